//! An NBD client as plain as can be, so that what is measured is the node.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// READ, WRITE (NBD protocol, "Request types").
pub const READ: u16 = 0;
pub const WRITE: u16 = 1;

pub struct Client {
    pub stream: UnixStream,
    replies: BufReader<UnixStream>,
    cookie: u64,
    data: Vec<u8>,
}

impl Client {
    pub fn connect(socket: &Path, export: &str) -> io::Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.read_exact(&mut [0; 18])?;
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT");
        hello.extend(1u32.to_be_bytes()); // EXPORT_NAME
        hello.extend((export.len() as u32).to_be_bytes());
        hello.extend(export.as_bytes());
        stream.write_all(&hello)?;
        stream.read_exact(&mut [0; 10])?;
        let replies = BufReader::with_capacity(256 << 10, stream.try_clone()?);
        Ok(Client { stream, replies, cookie: 0, data: Vec::new() })
    }
    /// The header of a request alone.
    pub fn send(&mut self, kind: u16, offset: u64, len: u32) -> io::Result<()> {
        self.cookie += 1;
        let mut request = [0; 28];
        request[..4].copy_from_slice(&0x2560_9513u32.to_be_bytes());
        request[6..8].copy_from_slice(&kind.to_be_bytes());
        request[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        request[16..24].copy_from_slice(&offset.to_be_bytes());
        request[24..].copy_from_slice(&len.to_be_bytes());
        self.stream.write_all(&request)
    }
    /// The answer to a READ of that many bytes.
    pub fn receive(&mut self, len: u32) -> io::Result<()> {
        let mut header = [0; 16];
        self.replies.read_exact(&mut header)?;
        if header[4..8] != [0; 4] {
            return Err(io::Error::other("the node answered with an error"));
        }
        self.data.resize(len as usize, 0);
        self.replies.read_exact(&mut self.data)
    }
}

/// Reads of `len` bytes, `depth` at a time, until it is stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    pub fn start(socket: &Path, export: &str, depth: u32, len: u32) -> Load {
        let mut client = Client::connect(socket, export).expect("the node takes a client");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let mut work = move || -> io::Result<()> {
            let mut at = 0u64;
            let mut next = || {
                at = (at + 1) * 7 % 97;
                at * u64::from(len)
            };
            for _ in 0..depth {
                client.send(READ, next(), len)?;
            }
            while !stopped.load(Ordering::Relaxed) {
                client.receive(len)?;
                client.send(READ, next(), len)?;
            }
            Ok(())
        };
        let thread = std::thread::spawn(move || {
            // Ends with an error when the node does.
            let _ = work();
        });
        Load { stop, thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
