//! One line of JSON each: how Henge's programs frame what they say to each other.

use crate::{Reply, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Making a disk zeroes its space: the longest that a node takes to answer.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Why a line was not read.
#[derive(Debug)]
pub enum LineError {
    /// The connection.
    Io(io::Error),
    /// It ended within a line.
    Torn,
    /// A line is longer than so many bytes. The rest of it is unread: nothing after it can be understood.
    TooLong(usize),
    /// A whole line that does not say what was expected; the next one may.
    NotUnderstood(serde_json::Error),
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineError::Io(e) => write!(f, "{e}"),
            LineError::Torn => f.write_str("it hung up within a line"),
            LineError::TooLong(most) => write!(f, "a line is at most {most} bytes"),
            LineError::NotUnderstood(e) => write!(f, "not understood: {e}"),
        }
    }
}

impl std::error::Error for LineError {}

impl From<LineError> for io::Error {
    fn from(error: LineError) -> io::Error {
        match error {
            LineError::Io(e) => e,
            LineError::Torn => io::Error::new(io::ErrorKind::UnexpectedEof, error),
            LineError::TooLong(_) | LineError::NotUnderstood(_) => {
                io::Error::new(io::ErrorKind::InvalidData, error)
            }
        }
    }
}

/// What it says, as a line.
pub fn encode_line(what: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(what).expect("what is said is plain data: its maps have texts as keys");
    line.push(b'\n');
    line
}

/// What a line says that was read with its end; `most` bytes were allowed.
pub fn decode_line<T: DeserializeOwned>(line: &[u8], most: usize) -> Result<T, LineError> {
    match line.ends_with(b"\n") {
        true => serde_json::from_slice(line).map_err(LineError::NotUnderstood),
        false if line.len() >= most => Err(LineError::TooLong(most)),
        false => Err(LineError::Torn),
    }
}

/// Says it.
pub fn write_line(out: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    out.write_all(&encode_line(what))?;
    out.flush()
}

/// Waits for a line of at most `most` bytes; none where the other end has ended.
pub fn read_line<T: DeserializeOwned>(
    reader: &mut impl BufRead,
    most: usize,
) -> Result<Option<T>, LineError> {
    let mut line = Vec::new();
    let n = reader.by_ref().take(most as u64).read_until(b'\n', &mut line).map_err(LineError::Io)?;
    if n == 0 { Ok(None) } else { decode_line(&line, most).map(Some) }
}

/// Asks a node by its control socket.
pub fn ask(path: &Path, request: &Request) -> io::Result<Reply> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let mut stream = UnixStream::connect(path).map_err(named)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(named)?;
    write_line(&mut stream, request).map_err(named)?;
    let reply = read_line(&mut BufReader::new(stream), usize::MAX).map_err(|e| named(e.into()))?;
    reply
        .map(Reply::explained)
        .ok_or_else(|| named(io::Error::new(io::ErrorKind::UnexpectedEof, "the node hung up")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_refused_or_torn() {
        let mut said = Vec::new();
        write_line(&mut said, &Request::Status).unwrap();
        write_line(&mut said, &Reply::failed("no")).unwrap();
        said.extend(b"{\"op\":\"meters\"}\n{\"op\":");
        let mut reader = BufReader::new(said.as_slice());
        assert_eq!(read_line::<Request>(&mut reader, 100).unwrap(), Some(Request::Status));
        // Another kind of line is not understood, and the next one is.
        assert!(matches!(read_line::<Request>(&mut reader, 100), Err(LineError::NotUnderstood(_))));
        assert_eq!(read_line::<Request>(&mut reader, 100).unwrap(), Some(Request::Meters));
        assert!(matches!(read_line::<Request>(&mut reader, 100), Err(LineError::Torn)));
        assert_eq!(read_line::<Request>(&mut reader, 100).unwrap(), None);
    }

    #[test]
    fn a_question_of_another_release_is_refused_with_both_releases() {
        let said = |release: &str| {
            let reply =
                format!(r#"{{"ok":false,"error":"not understood: x","release":"{release}","mood":1}}"#);
            serde_json::from_str::<Reply>(&reply).unwrap().explained().error.unwrap()
        };
        let why = said("7.0.0");
        assert!(why.contains("Henge 7.0.0") && why.contains(env!("CARGO_PKG_VERSION")), "{why}");
        let own = Reply::not_understood("not understood: x").explained();
        assert_eq!(own.error.as_deref(), Some("not understood: x"), "one release misunderstands nothing");
        // An older node says nothing of its release.
        let old = serde_json::from_str::<Reply>(r#"{"ok":false,"error":"no"}"#).unwrap().explained();
        assert_eq!(old, Reply::failed("no"));
    }

    #[test]
    fn a_line_without_end_takes_no_more_than_it_may() {
        let mut reader = BufReader::new(io::repeat(b'x'));
        assert!(matches!(read_line::<Request>(&mut reader, 1000), Err(LineError::TooLong(1000))));
        // Exactly as long as it may be.
        let line = encode_line(&Request::Status);
        let mut reader = BufReader::new(line.as_slice());
        assert_eq!(read_line::<Request>(&mut reader, line.len()).unwrap(), Some(Request::Status));
        let mut reader = BufReader::new(line.as_slice());
        assert!(matches!(read_line::<Request>(&mut reader, line.len() - 1), Err(LineError::TooLong(_))));
    }
}
