//! A TLS connection over a blocking socket that one thread reads while others write.
//!
//! Who reads waits at the socket, not at the lock: the connection's state is held only while bytes are decrypted or encrypted.

use rustls::ClientConnection;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes read from the socket at once.
const CHUNK: usize = 16 << 10;

struct Shared {
    socket: TcpStream,
    connection: Mutex<ClientConnection>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, ClientConnection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection whose handshake is over.
pub struct Duplex(Arc<Shared>);

/// One end of it in this process: for one thread that reads, or for any that write.
pub struct Half {
    shared: Arc<Shared>,
    chunk: Vec<u8>,
}

impl Duplex {
    /// Does the handshake, as slowly as the socket's time-outs allow.
    pub fn begin(socket: TcpStream, mut connection: ClientConnection) -> io::Result<Duplex> {
        while connection.is_handshaking() {
            connection.complete_io(&mut &socket)?;
        }
        Ok(Duplex(Arc::new(Shared { socket, connection: Mutex::new(connection) })))
    }

    /// Bytes that both ends know, and nobody else: RFC 8446, section 7.5.
    pub fn exporter(&self, label: &[u8]) -> io::Result<[u8; 32]> {
        self.0.lock().export_keying_material([0; 32], label, None).map_err(io::Error::other)
    }

    /// An end.
    pub fn half(&self) -> Half {
        Half { shared: Arc::clone(&self.0), chunk: Vec::new() }
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        &self.0.socket
    }
}

impl Read for Half {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.shared.lock().reader().read(into) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.chunk.resize(CHUNK, 0);
            let n = (&self.shared.socket).read(&mut self.chunk)?;
            let mut rest = &self.chunk[..n];
            let mut connection = self.shared.lock();
            loop {
                // Also at the end of the stream, which it is told by nothing.
                connection.read_tls(&mut rest)?;
                let done = connection.process_new_packets();
                while connection.wants_write() {
                    connection.write_tls(&mut &self.shared.socket)?;
                }
                done.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
                if rest.is_empty() {
                    break;
                }
            }
        }
    }
}

impl Write for Half {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let mut connection = self.shared.lock();
        let n = connection.writer().write(from)?;
        while connection.wants_write() {
            connection.write_tls(&mut &self.shared.socket)?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
