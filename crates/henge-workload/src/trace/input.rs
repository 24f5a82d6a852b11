//! Bytes of a trace: unpacked when packed, line by line or record by record, in a buffer of fixed size.

use flate2::read::MultiGzDecoder;
use std::io::{self, Read};

/// The largest header or sample that is looked at before the first record.
pub(crate) const SAMPLE: usize = 64 * 1024;
/// Bytes read at a time.
const CHUNK: usize = 256 * 1024;
/// The longest line; what is longer is no trace.
const LINE_MAX: usize = SAMPLE;

/// How the bytes were packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// Not at all.
    Plain,
    /// gzip, also of several members.
    Gzip,
    /// Zstandard, also of several frames.
    Zstd,
}

pub(crate) struct Input {
    reader: Box<dyn Read + Send>,
    pub packing: Packing,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    eof: bool,
}

const DARSHAN: &str = "a Darshan log; print its trace with darshan-dxt-parser, whose text is read here";
const UTF16: &str = "text in UTF-16; convert it first (iconv -f UTF-16 -t UTF-8)";
const BLKTRACE: &str = "blktrace's binary output; print it with blkparse, whose text is read here";
const WEB: &str = "a web page, not a trace; the download went wrong";
/// What is recognized only to say so.
const UNREADABLE: &[(&[u8], &str)] = &[
    (b"BZh", "packed with bzip2; unpack it first (bunzip2)"),
    (b"\xfd7zXZ\0", "packed with xz; unpack it first (unxz)"),
    (b"PK\x03\x04", "a ZIP archive; unpack it first (unzip)"),
    (b"3.00\0\0", DARSHAN),
    (b"3.10\0\0", DARSHAN),
    (b"3.20\0\0", DARSHAN),
    (b"3.21\0\0", DARSHAN),
    (b"3.41\0\0", DARSHAN),
    (b"7z\xbc\xaf", "a 7z archive; unpack it first (7z x)"),
    (b"\x04\x22\x4d\x18", "packed with lz4; unpack it first (unlz4)"),
    (b"\xff\xfe", UTF16),
    (b"\xfe\xff", UTF16),
    (b"\x07tae", BLKTRACE),
    (b"eat\x07", BLKTRACE),
    (b"PAR1", "a Parquet file; write it as CSV first"),
    (b"version https://git-lfs", "a pointer of Git LFS, not the trace; fetch that first (git lfs pull)"),
    (b"<!DOCTYPE", WEB),
    (b"<html", WEB),
];

impl Input {
    /// Looks at the first bytes and unpacks what they announce.
    pub fn new(mut raw: Box<dyn Read + Send>) -> io::Result<Input> {
        let mut head = [0; 24];
        let mut have = 0;
        while have < head.len() {
            match raw.read(&mut head[have..]) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let first = io::Cursor::new(head[..have].to_vec());
        if let Some((_, what)) = UNREADABLE.iter().find(|(magic, _)| head[..have].starts_with(magic)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, *what));
        }
        let (packing, reader): (_, Box<dyn Read + Send>) = if head.starts_with(&[0x1f, 0x8b]) {
            (Packing::Gzip, Box::new(MultiGzDecoder::new(first.chain(raw))))
        } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            (Packing::Zstd, Box::new(zstd::stream::read::Decoder::new(first.chain(raw))?))
        } else {
            (Packing::Plain, Box::new(first.chain(raw)))
        };
        let mut input = Input { reader, packing, buffer: vec![0; CHUNK], start: 0, end: 0, eof: false };
        while !input.eof && input.end < SAMPLE {
            input.fill()?;
        }
        // A byte order mark says nothing that is not known.
        if input.rest().starts_with(b"\xef\xbb\xbf") {
            input.start = 3;
        }
        Ok(input)
    }

    /// What is in the buffer.
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Whether nothing is left.
    pub fn at_end(&mut self) -> io::Result<bool> {
        while self.start == self.end && !self.eof {
            self.fill()?;
        }
        Ok(self.start == self.end)
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        match self.reader.read(&mut self.buffer[self.end..]) {
            Ok(0) => self.eof = true,
            Ok(n) => self.end += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// The next line without its end; `None` after the last.
    #[inline]
    pub fn line(&mut self) -> io::Result<Option<&[u8]>> {
        let mut searched = 0;
        loop {
            let rest = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memchr(b'\n', &rest[searched..]) {
                let from = self.start;
                let to = from + searched + at;
                self.start = to + 1;
                let line = &self.buffer[from..to];
                return Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)));
            }
            searched = rest.len();
            if searched > LINE_MAX {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a line of more than 64 KiB; this is no text trace",
                ));
            }
            if self.eof {
                let from = std::mem::replace(&mut self.start, self.end);
                let line = &self.buffer[from..self.end];
                return Ok((!line.is_empty()).then(|| line.strip_suffix(b"\r").unwrap_or(line)));
            }
            self.fill()?;
        }
    }

    /// The next `n` bytes; `None` at the end, an error of kind `UnexpectedEof` when only some of them are there.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> io::Result<Option<&[u8]>> {
        while self.end - self.start < n && !self.eof {
            self.fill()?;
        }
        match self.end - self.start {
            0 => Ok(None),
            have if have < n => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the last record has {have} of {n} bytes"),
            )),
            _ => {
                self.start += n;
                Ok(Some(&self.buffer[self.start - n..self.start]))
            }
        }
    }

    /// Passes over `n` bytes that are in the buffer.
    pub fn skip(&mut self, n: usize) {
        assert!(n <= self.end - self.start, "only what was looked at is passed over");
        self.start += n;
    }
}
