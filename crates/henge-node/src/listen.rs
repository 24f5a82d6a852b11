//! Sockets that clients come to.

use crate::config::Listen;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Where a node can be reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// By TCP.
    Tcp(SocketAddr),
    /// By a Unix socket.
    Unix(PathBuf),
    /// By iSCSI over TCP.
    Iscsi(SocketAddr),
    /// By other nodes.
    Link(SocketAddr),
}

impl Address {
    /// As clients write it; `export` is the disk.
    pub fn uri(&self, export: &str) -> String {
        match self {
            Address::Tcp(address) => format!("nbd://{address}/{export}"),
            Address::Unix(path) => format!("nbd+unix:///{export}?socket={}", path.display()),
            Address::Link(address) => format!("link://{address}"),
            Address::Iscsi(address) => format!("iscsi://{address}/{}{export}/0", crate::portal::PREFIX),
        }
    }
}

/// What a Unix socket holds of replies that its client has not read yet; the kernel doubles it for its own needs.
/// By default that is hardly more than one reply of 128 KiB, and the next begins when three quarters of it are read.
const REPLIES: usize = 256 << 10;

/// A socket that is listened on.
pub(crate) struct Listener {
    fd: OwnedFd,
    pub address: Address,
}

impl Listener {
    pub(crate) fn bind(listen: &Listen) -> io::Result<Listener> {
        match listen {
            Listen::Tcp(host) | Listen::Iscsi(host) => {
                let named = |e: io::Error| io::Error::new(e.kind(), format!("{host}: {e}"));
                let socket = TcpListener::bind(host).map_err(named)?;
                socket.set_nonblocking(true)?;
                let local = socket.local_addr()?;
                let iscsi = matches!(listen, Listen::Iscsi(_));
                let address = if iscsi { Address::Iscsi(local) } else { Address::Tcp(local) };
                Ok(Listener { fd: socket.into(), address })
            }
            Listen::Unix(path) => {
                let socket = bind_unix(path)?;
                socket.set_nonblocking(true)?;
                Ok(Listener { fd: socket.into(), address: Address::Unix(path.clone()) })
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

    /// The next client; `None` when there is none now.
    pub(crate) fn accept(&self) -> rustix::io::Result<Option<OwnedFd>> {
        use rustix::net::SocketFlags;
        match rustix::net::accept_with(&self.fd, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(fd) => {
                if matches!(self.address, Address::Unix(_)) {
                    // With less, replies only take more turns.
                    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&fd, REPLIES);
                } else {
                    // A reply is never held back to be sent with the next one.
                    rustix::net::sockopt::set_tcp_nodelay(&fd, true)?;
                }
                Ok(Some(fd))
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
