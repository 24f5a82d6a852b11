//! Sockets that clients come to.

use crate::front::{Address, At, Listen, Local, Scheme};
use henge_nbd::Tls;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Other nodes come, and no clients.
static LINK: Scheme = Scheme {
    name: "link",
    port: Some(0),
    tls: Tls::No,
    example: "",
    show: |at, host, _| format!("link://{}", at.text(host)),
    attaches: false,
};

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
    /// As the configuration says it.
    stated: String,
    /// Somebody else goes on with it.
    handed: bool,
    pub address: Address,
    /// Whether clients speak TLS here.
    pub tls: Tls,
}

impl Listener {
    pub(crate) fn bind(listen: &Listen) -> io::Result<Listener> {
        let (scheme, tls) = (listen.scheme, listen.tls);
        let (fd, at) = match &listen.at {
            At::Host(host) => {
                let named = |e: io::Error| io::Error::new(e.kind(), format!("{host}: {e}"));
                let socket = TcpListener::bind(host).map_err(named)?;
                socket.set_nonblocking(true)?;
                let local = socket.local_addr()?;
                (socket.into(), Local::Tcp(local))
            }
            At::Path(path) => {
                let socket = bind_unix(path)?;
                socket.set_nonblocking(true)?;
                (socket.into(), Local::Unix(path.clone()))
            }
        };
        Ok(Listener { fd, stated: listen.to_string(), handed: false, address: Address { scheme, at }, tls })
    }

    /// One that was bound by the program before, if it is among `left`; else a new one.
    pub(crate) fn find(listen: &Listen, left: &mut Vec<(String, OwnedFd)>) -> io::Result<Listener> {
        let stated = listen.to_string();
        let Some(place) = left.iter().position(|(at, _)| *at == stated) else {
            return Listener::bind(listen);
        };
        let (_, fd) = left.swap_remove(place);
        let at = match &listen.at {
            At::Host(_) => {
                let at = rustix::net::getsockname(&fd)?;
                Local::Tcp(SocketAddr::try_from(at).map_err(|_| io::Error::other("it is no TCP socket"))?)
            }
            At::Path(path) => Local::Unix(path.clone()),
        };
        let address = Address { scheme: listen.scheme, at };
        Ok(Listener { fd, stated, handed: false, address, tls: listen.tls })
    }

    /// For the program that comes next.
    pub(crate) fn hand(mut self) -> io::Result<(String, OwnedFd)> {
        let fd = self.fd.try_clone()?;
        self.handed = true;
        Ok((std::mem::take(&mut self.stated), fd))
    }

    /// Where other nodes come.
    pub(crate) fn find_link(host: &str, left: &mut Vec<(String, OwnedFd)>) -> io::Result<Listener> {
        Listener::find(&Listen { scheme: &LINK, at: At::Host(host.to_owned()), tls: Tls::No }, left)
    }

    /// Other nodes come here.
    pub(crate) fn is_links(&self) -> bool {
        *self.address.scheme == LINK
    }

    /// The next client, and its address where it has one; `None` when there is none now.
    pub(crate) fn accept(&self) -> rustix::io::Result<Option<(OwnedFd, Option<IpAddr>)>> {
        use rustix::net::SocketFlags;
        match rustix::net::acceptfrom_with(&self.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((fd, from)) => {
                let from = from.and_then(|a| SocketAddr::try_from(a).ok()).map(|a| a.ip());
                if matches!(self.address.at, Local::Unix(_)) {
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
        if let Local::Unix(path) = &self.address.at
            && !self.handed
        {
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
        for name in ["nbd", "iscsi", "nvme"] {
            let scheme = crate::fronts::kinds().into_iter().flat_map(|kind| kind.schemes);
            let scheme = scheme.into_iter().find(|scheme| scheme.name == name).unwrap();
            let at = At::Host("127.0.0.1:0".into());
            let listener = Listener::bind(&Listen { scheme, at, tls: Tls::No }).unwrap();
            let at = listener.address.tcp(name).unwrap();
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
