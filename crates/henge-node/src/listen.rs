//! Sockets that clients come to.

use crate::config::Listen;
use henge_nbd::Tls;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where a node can be reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// By TCP.
    Tcp(SocketAddr),
    /// By TCP, with TLS.
    Tls(SocketAddr),
    /// By a Unix socket.
    Unix(PathBuf),
    /// By iSCSI over TCP.
    Iscsi(SocketAddr),
    /// By NVMe over TCP.
    Nvme(SocketAddr),
    /// By other nodes.
    Link(SocketAddr),
}

impl Address {
    /// As clients write it; `export` is the disk. Of NVMe, which has no such names, the command that attaches it.
    pub fn uri(&self, export: &str) -> String {
        match self {
            Address::Tcp(address) => format!("nbd://{address}/{export}"),
            Address::Tls(address) => format!("nbds://{address}/{export}"),
            Address::Unix(path) => format!("nbd+unix:///{export}?socket={}", path.display()),
            Address::Nvme(address) => crate::nvme::connect_to(address, export),
            Address::Link(address) => format!("link://{address}"),
            Address::Iscsi(address) => format!("iscsi://{address}/{}{export}/0", crate::portal::PREFIX),
        }
    }
}

/// What a Unix socket holds of replies that its client has not read yet; the kernel doubles it for its own needs.
/// By default that is hardly more than one reply of 128 KiB, and the next begins when three quarters of it are read.
const REPLIES: usize = 256 << 10;

/// A connection that says nothing for so long is asked whether it lives …
const SILENT: Duration = Duration::from_secs(60);
/// … and again after so long.
const ASKED_AGAIN: Duration = Duration::from_secs(15);
/// For so long a client may be out of reach, or take nothing at all: a guest that is moved to another host is back by then.
const GONE: Duration = Duration::from_secs(120);

/// A socket that is listened on.
pub(crate) struct Listener {
    fd: OwnedFd,
    pub address: Address,
    /// Whether NBD clients speak TLS here.
    pub tls: Tls,
}

impl Listener {
    pub(crate) fn bind(listen: &Listen) -> io::Result<Listener> {
        match listen {
            Listen::Tcp(host) | Listen::Tls(host, _) | Listen::Iscsi(host) | Listen::Nvme(host) => {
                let named = |e: io::Error| io::Error::new(e.kind(), format!("{host}: {e}"));
                let socket = TcpListener::bind(host).map_err(named)?;
                socket.set_nonblocking(true)?;
                let local = socket.local_addr()?;
                let address = match listen {
                    Listen::Iscsi(_) => Address::Iscsi(local),
                    Listen::Nvme(_) => Address::Nvme(local),
                    Listen::Tls(_, Tls::Require) => Address::Tls(local),
                    _ => Address::Tcp(local),
                };
                let tls = if let Listen::Tls(_, tls) = listen { *tls } else { Tls::No };
                Ok(Listener { fd: socket.into(), address, tls })
            }
            Listen::Unix(path) => {
                let socket = bind_unix(path)?;
                socket.set_nonblocking(true)?;
                Ok(Listener { fd: socket.into(), address: Address::Unix(path.clone()), tls: Tls::No })
            }
        }
    }

    /// Where other nodes come.
    pub(crate) fn bind_link(host: &str) -> io::Result<Listener> {
        let mut listener = Listener::bind(&Listen::Tcp(host.to_owned()))?;
        if let Address::Tcp(local) = listener.address {
            listener.address = Address::Link(local);
        }
        Ok(listener)
    }

    /// The next client, and its address where it has one; `None` when there is none now.
    pub(crate) fn accept(&self) -> rustix::io::Result<Option<(OwnedFd, Option<IpAddr>)>> {
        use rustix::net::SocketFlags;
        match rustix::net::acceptfrom_with(&self.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((fd, from)) => {
                let from = from.and_then(|a| SocketAddr::try_from(a).ok()).map(|a| a.ip());
                if matches!(self.address, Address::Unix(_)) {
                    // With less, replies only take more turns.
                    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&fd, REPLIES);
                } else {
                    // A reply is never held back to be sent with the next one.
                    rustix::net::sockopt::set_tcp_nodelay(&fd, true)?;
                    notice_its_end(&fd)?;
                }
                Ok(Some((fd, from)))
            }
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A host that has vanished does not say so: silent connections are asked after [`SILENT`], and one that answers nothing, or takes nothing of
/// what it is sent, for [`GONE`] ends.
fn notice_its_end(fd: &OwnedFd) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, SILENT)?;
    sockopt::set_tcp_keepintvl(fd, ASKED_AGAIN)?;
    sockopt::set_tcp_keepcnt(fd, (GONE.as_secs() / ASKED_AGAIN.as_secs()) as u32)?;
    sockopt::set_tcp_user_timeout(fd, GONE.as_millis() as u32)
}

/// Binds a Unix socket; one that a dead node left behind is replaced, one of a living node is not.
pub(crate) fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(named)?;
    }
    match UnixListener::bind(path) {
        Err(e)
            if e.kind() == io::ErrorKind::AddrInUse
                && std::fs::symlink_metadata(path)?.file_type().is_socket()
                && UnixStream::connect(path).is_err() =>
        {
            std::fs::remove_file(path).map_err(named)?;
            UnixListener::bind(path).map_err(named)
        }
        bound => bound.map_err(named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn every_tcp_client_is_asked_whether_it_lives() {
        use rustix::net::sockopt;
        for listen in [Listen::Tcp("127.0.0.1:0".into()), Listen::Iscsi("127.0.0.1:0".into())] {
            let listener = Listener::bind(&listen).unwrap();
            let (Address::Tcp(at) | Address::Iscsi(at)) = listener.address else { panic!("by TCP") };
            let client = TcpStream::connect(at).unwrap();
            let (fd, from) = loop {
                if let Some(come) = listener.accept().unwrap() {
                    break come;
                }
            };
            assert_eq!(from, Some(client.local_addr().unwrap().ip()));
            assert!(sockopt::socket_keepalive(&fd).unwrap());
            assert_eq!(sockopt::tcp_user_timeout(&fd).unwrap(), 120_000);
            assert_eq!(sockopt::tcp_keepidle(&fd).unwrap(), SILENT);
        }
    }
}
