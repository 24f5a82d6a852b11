//! A link's bytes: the socket's own, or TLS over it, where certificates say who peers are.
//!
//! Messages between proxies are few and short, so each is copied once more on its way.

use henge_tls::{Identity, Tls, names};
use rustls::{Connection, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::SystemTime;

/// Bytes that wait to be encrypted, or to be taken by the socket.
const HELD: usize = 64 << 10;
/// What both ends of a TLS connection know, and nobody else (RFC 8446, section 7.5).
const EXPORTER: &[u8] = b"EXPORTER-henge link 5";

pub(super) struct Wire {
    socket: TcpStream,
    secure: Option<Box<Secure>>,
}

struct Secure {
    connection: Connection,
    tls: Arc<Tls>,
    /// When the other side's certificate was last found to count.
    turn: u64,
}

fn broken(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

impl Wire {
    /// In clear, or by TLS, as who dialled or as who was dialled. None where the system gives no randomness.
    pub fn new(socket: TcpStream, tls: Option<&Arc<Tls>>, dials: bool) -> Option<Wire> {
        let Some(tls) = tls else { return Some(Wire { socket, secure: None }) };
        let mut connection: Connection = match dials {
            true => tls.dial()?.connection().ok()?.into(),
            false => ServerConnection::new(tls.server()).ok()?.into(),
        };
        connection.set_buffer_limit(Some(HELD));
        let secure = Secure { connection, tls: Arc::clone(tls), turn: tls.turn() };
        Some(Wire { socket, secure: Some(Box::new(secure)) })
    }

    /// Bytes that came; WouldBlock when there are none now, nothing at the end.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(secure) = &mut self.secure else { return self.socket.read(into) };
        loop {
            match secure.connection.reader().read(into) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            secure.look_again()?;
            if secure.connection.read_tls(&mut &self.socket)? == 0 {
                return Ok(0);
            }
            let done = secure.connection.process_new_packets();
            if let Err(why) = &done {
                secure.tls.tell(why);
            }
            // Also where it is refused: the other side hears why.
            let flushed = secure.flush(&self.socket);
            done.map_err(broken)?;
            flushed?;
        }
    }

    /// Takes some of the bytes; WouldBlock when it takes none.
    pub fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let Some(secure) = &mut self.secure else { return self.socket.write(from) };
        secure.flush(&self.socket)?;
        let taken = secure.connection.writer().write(from)?;
        secure.flush(&self.socket)?;
        if taken == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Puts what was taken into the socket, as far as that takes it.
    pub fn flush(&mut self) -> io::Result<()> {
        self.secure.as_mut().map_or(Ok(()), |secure| secure.flush(&self.socket))
    }

    /// Whether what was taken is not in the socket yet, as far as it could be.
    pub fn has_unwritten(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.connection.wants_write())
    }

    /// Whether there may be more after a read that was not filled.
    pub fn is_secure(&self) -> bool {
        self.secure.is_some()
    }

    /// Once the handshake is over: who the other side's certificate says it is, and what both ends know.
    pub fn proven(&self) -> Option<(Option<Identity>, [u8; 32])> {
        let connection = &self.secure.as_ref()?.connection;
        let secret = connection.export_keying_material([0; 32], EXPORTER, None).ok()?;
        let own = connection.peer_certificates().and_then(<[_]>::first);
        Some((own.and_then(|own| Identity::of(&names(own))), secret))
    }

    /// Whether the other side's certificate counts still.
    pub fn look_again(&mut self) -> io::Result<()> {
        self.secure.as_mut().map_or(Ok(()), |secure| secure.look_again())
    }
}

impl Secure {
    fn look_again(&mut self) -> io::Result<()> {
        let turn = self.tls.turn();
        if turn == self.turn {
            return Ok(());
        }
        let chain = self.connection.peer_certificates().unwrap_or_default();
        self.tls.still(chain, SystemTime::now()).inspect_err(|why| self.tls.tell(why)).map_err(broken)?;
        self.turn = turn;
        Ok(())
    }

    /// As far as the socket takes it.
    fn flush(&mut self, socket: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut &*socket) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
