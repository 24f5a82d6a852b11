//! Whose process is at the other end of a connection within this machine.
//!
//! The kernel lists every TCP socket with the user who made it (`/proc/net/tcp`, `tcp6`): the one whose own address is our peer's, and
//! whose peer is our own. Looked up once for a connection, and only when somebody without a token asks. Where the list
//! cannot be read nobody is known.

use henge_tls::{Identity, Tls, names};
use rustls_pki_types::CertificateDer;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// A connection.
pub struct Caller {
    theirs: SocketAddr,
    ours: Option<SocketAddr>,
    user: OnceLock<Option<u32>>,
    proof: Option<Proof>,
}

/// The certificate by which the other side came, and who checked it.
struct Proof {
    tls: Arc<Tls>,
    chain: Vec<CertificateDer<'static>>,
}

impl Caller {
    pub(crate) fn new(theirs: SocketAddr, ours: Option<SocketAddr>) -> Caller {
        Caller { theirs, ours, user: OnceLock::new(), proof: None }
    }

    /// By TLS, with this certificate, or none.
    pub(crate) fn proven(self, tls: &Arc<Tls>, chain: Vec<CertificateDer<'static>>) -> Caller {
        let proof = Some(Proof { tls: Arc::clone(tls), chain });
        Caller { proof, ..self }
    }

    /// From where.
    pub(crate) fn address(&self) -> SocketAddr {
        self.theirs
    }

    /// Whether it came by TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.proof.is_some()
    }

    /// Who its certificate says it is in the cluster, if that counts at this moment; and the certificate.
    pub fn identity(&self) -> Option<(Identity, &[u8])> {
        let Proof { tls, chain } = self.proof.as_ref()?;
        let own = chain.first()?;
        tls.still(chain, SystemTime::now()).ok()?;
        Some((Identity::of(&names(own))?, own))
    }

    /// One whose user is known.
    #[cfg(test)]
    pub(crate) fn of(user: Option<u32>) -> Caller {
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        Caller { theirs: nobody, ours: None, user: OnceLock::from(user), proof: None }
    }

    /// Whether the process there is this one's user's, or root's.
    pub(crate) fn is_ours(&self) -> bool {
        let user = *self.user.get_or_init(|| user_of(self.theirs, self.ours?));
        user.is_some_and(|user| user == 0 || user == rustix::process::geteuid().as_raw())
    }
}

/// The user of the socket at `own`, connected to `peer`.
fn user_of(own: SocketAddr, peer: SocketAddr) -> Option<u32> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut tables = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter();
    tables.find_map(|path| find(&read(path), own, peer))
}

/// `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid …`, addresses in hexadecimal.
fn find(table: &str, own: SocketAddr, peer: SocketAddr) -> Option<u32> {
    let pairs = [(v4(own).zip(v4(peer))), Some((v6(own), v6(peer)))];
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, remote) = (words.next()?, words.next()?);
        let ours = pairs.iter().flatten().any(|(own, peer)| own == local && peer == remote);
        if ours { words.nth(4)?.parse().ok() } else { None }
    })
}

fn v4(address: SocketAddr) -> Option<String> {
    let IpAddr::V4(ip) = address.ip().to_canonical() else { return None };
    Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port()))
}

fn v6(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let words = ip.octets();
    let words = words.chunks_exact(4).map(|w| u32::from_ne_bytes([w[0], w[1], w[2], w[3]]));
    let text: String = words.map(|word| format!("{word:08X}")).collect();
    format!("{text}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_of_this_process_is_its_users() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(host) else { continue }; // no IPv6 here
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, theirs) = listener.accept().unwrap();
            let caller = Caller::new(theirs, server.local_addr().ok());
            assert!(caller.is_ours(), "{host}");
            drop(client);
        }
    }

    #[test]
    fn others_are_told_by_their_user() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             \x20  0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n\
             \x20  1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1007        0 2 1\n";
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(find(table, at(0xC350), at(0x1F90)), Some(1007));
        assert_eq!(find(table, at(0xC351), at(0x1F90)), None);
    }
}
