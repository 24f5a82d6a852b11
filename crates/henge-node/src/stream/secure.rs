//! TLS over a socket that does not wait (RFC 8446), by rustls.
//!
//! Of what comes, at most [`CHUNK`] bytes wait to be decrypted, and rustls holds one record (16 KiB); of what goes, [`HELD`] bytes wait
//! for the socket. A connection at rest holds none of them. What is written is copied once, into the records that are encrypted there.
//! Who sends records of which nothing comes is let go after [`BARREN`] bytes.

use super::Got;
use henge_tls::{Tls, names};
use rustix::io::{Errno, Result};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::SystemTime;

/// Bytes read from the socket at once.
const CHUNK: usize = 64 << 10;
/// Encrypted bytes that wait for the socket.
const HELD: usize = 128 << 10;
/// Encrypted bytes in a row of which no byte for us came: more than any handshake, its certificates included.
const BARREN: usize = 256 << 10;

pub(super) struct Secure {
    connection: Connection,
    tls: Arc<Tls>,
    /// Read from the socket; from `at` on not yet decrypted.
    incoming: Vec<u8>,
    at: usize,
    barren: usize,
    /// When the other side's certificate was last found to count ([`Tls::turn`]).
    turn: u64,
    /// Why nothing can be read any more.
    failed: Option<Errno>,
    /// Where we dialled: the certificate that we showed.
    shown: Option<CertificateDer<'static>>,
}

impl Secure {
    /// The server's end; `None` when the system gives no randomness.
    pub(super) fn begin(tls: &Arc<Tls>) -> Option<Secure> {
        Some(Secure::new(tls, ServerConnection::new(tls.server()).ok()?.into()))
    }

    /// The end that dialled.
    pub(super) fn dial(
        tls: &Arc<Tls>,
        connection: ClientConnection,
        shown: CertificateDer<'static>,
    ) -> Secure {
        Secure { shown: Some(shown), ..Secure::new(tls, connection.into()) }
    }

    fn new(tls: &Arc<Tls>, mut connection: Connection) -> Secure {
        connection.set_buffer_limit(Some(HELD));
        let (incoming, at, barren, turn, failed) = (Vec::new(), 0, 0, tls.turn(), None);
        Secure { connection, tls: Arc::clone(tls), incoming, at, barren, turn, failed, shown: None }
    }

    /// Once the handshake is over, the names of the other side's certificate.
    pub(super) fn proven(&self) -> Option<Vec<String>> {
        if self.connection.is_handshaking() {
            return None;
        }
        let chain = self.connection.peer_certificates();
        Some(chain.and_then(<[_]>::first).map_or_else(Vec::new, |leaf| names(leaf)))
    }

    /// Once the handshake is over, bytes that both ends know, and nobody else.
    pub(super) fn exported(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.connection.export_keying_material([0; 32], label, None).ok()
    }

    pub(super) fn readv(&mut self, fd: BorrowedFd<'_>, into: &mut [IoSliceMut<'_>]) -> Result<Got> {
        let mut len = 0;
        for slice in into {
            let mut filled = 0;
            while filled < slice.len() {
                match self.connection.reader().read(&mut slice[filled..]) {
                    // The end, said so or not: what NBD has to say is framed by itself.
                    Ok(0) => return Ok(Got { len, more: true }),
                    Ok(n) => {
                        (filled, len) = (filled + n, len + n);
                        self.barren = 0;
                        continue;
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => return Ok(Got { len, more: true }),
                }
                match self.decrypt(fd) {
                    Ok(()) => {}
                    Err(Errno::AGAIN) if len > 0 => return Ok(Got { len, more: false }),
                    // It is said again when there is nothing else to be said.
                    Err(_) if len > 0 => return Ok(Got { len, more: true }),
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(Got { len, more: true })
    }

    /// A step towards more bytes: from the socket, or from what came from there.
    fn decrypt(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        self.look_again()?;
        if self.at == self.incoming.len() {
            self.receive(fd)?;
        }
        let mut rest = &self.incoming[self.at..];
        let before = rest.len();
        let taken = self.connection.read_tls(&mut rest);
        let n = before - rest.len();
        self.at += n;
        self.barren += n;
        let done = match taken {
            Ok(_) => self.connection.process_new_packets().map(drop),
            Err(_) => Err(rustls::Error::General("a message is too long".into())),
        };
        if let Err(why) = done {
            self.tls.tell(&why);
            // The other side hears why, if it listens.
            let _ = self.flush(fd);
            self.failed = Some(Errno::PROTO);
        } else if self.barren > BARREN {
            self.failed = Some(Errno::PROTO);
        }
        self.failed.map_or(Ok(()), Err)
    }

    /// Whether certificates are shown anew by a connection that begins now, and this one, which we dialled, ends one day.
    pub(super) fn is_dated(&self) -> bool {
        let Some(shown) = &self.shown else { return false };
        let theirs = self.connection.peer_certificates().unwrap_or_default();
        self.tls.is_dated(shown, theirs, SystemTime::now())
    }

    /// Ends the connection if the other side's certificate counts no more: it was revoked, or has expired.
    pub(super) fn look_again(&mut self) -> Result<()> {
        let turn = self.tls.turn();
        if turn != self.turn {
            self.turn = turn;
            let chain = self.connection.peer_certificates().unwrap_or_default();
            if let Err(why) = self.tls.still(chain, SystemTime::now()) {
                self.tls.tell(&why);
                self.failed = Some(Errno::PROTO);
            }
        }
        self.failed.map_or(Ok(()), Err)
    }

    /// Reads from the socket. Nothing more in it at its end: then rustls is told.
    fn receive(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        self.at = 0;
        self.incoming.clear();
        self.incoming.reserve_exact(CHUNK);
        let read = loop {
            match rustix::io::read(fd, rustix::buffer::spare_capacity(&mut self.incoming)) {
                Err(Errno::INTR) => {}
                read => break read,
            }
        };
        if read.is_err() {
            self.incoming = Vec::new();
        }
        read.map(drop)
    }

    pub(super) fn writev(&mut self, fd: BorrowedFd<'_>, from: &[IoSlice<'_>]) -> Result<usize> {
        self.flush(fd)?;
        let n = self.connection.writer().write_vectored(from).map_err(|_| Errno::PROTO)?;
        match self.flush(fd) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR) if n > 0 => Ok(n),
            Ok(()) => Err(Errno::AGAIN),
            Err(e) => Err(e),
        }
    }

    pub(super) fn is_flushed(&self) -> bool {
        !self.connection.wants_write()
    }

    pub(super) fn flush(&mut self, fd: BorrowedFd<'_>) -> Result<()> {
        while self.connection.wants_write() {
            self.connection
                .write_tls(&mut Socket(fd))
                .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        }
        Ok(())
    }

    /// Says that nothing more comes, if the socket takes it.
    pub(super) fn end(&mut self, fd: BorrowedFd<'_>) {
        self.connection.send_close_notify();
        let _ = self.flush(fd);
    }
}

/// Where rustls writes.
struct Socket<'a>(BorrowedFd<'a>);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }
    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(self.0, from)?)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
