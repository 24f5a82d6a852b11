//! An NBD client, from the protocol's text: several writes at once, and errors as values.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub struct Nbd(UnixStream);

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Done,
    /// The server's error number.
    Error(u32),
}

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const WRITE_ZEROES: u16 = 6;
pub const FUA: u16 = 1;

impl Nbd {
    pub fn connect(socket: &Path, disk: &str) -> io::Result<Nbd> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.read_exact(&mut [0; 18])?;
        let mut hello = 3u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT\0\0\0\x01");
        hello.extend((disk.len() as u32).to_be_bytes());
        hello.extend(disk.as_bytes());
        stream.write_all(&hello)?;
        stream.read_exact(&mut [0; 10])?;
        Ok(Nbd(stream))
    }

    pub fn send(&mut self, flags: u16, kind: u16, offset: u64, len: u32, data: &[u8]) -> io::Result<()> {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend(flags.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(len.to_be_bytes());
        request.extend(data);
        self.0.write_all(&request)
    }

    /// The next answer: of the command with this offset, which is its handle.
    pub fn answer(&mut self) -> io::Result<(u64, End)> {
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        let handle = u64::from_be_bytes(reply[8..16].try_into().expect("eight bytes"));
        Ok(match u32::from_be_bytes(reply[4..8].try_into().expect("four bytes")) {
            0 => (handle, End::Done),
            error => (handle, End::Error(error)),
        })
    }

    pub fn read(&mut self, offset: u64, len: usize) -> io::Result<Result<Vec<u8>, u32>> {
        self.send(0, READ, offset, len as u32, &[])?;
        if let (_, End::Error(error)) = self.answer()? {
            return Ok(Err(error));
        }
        let mut data = vec![0; len];
        self.0.read_exact(&mut data)?;
        Ok(Ok(data))
    }
}
