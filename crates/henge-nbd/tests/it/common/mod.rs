//! Bytes as the protocol document writes them, and a driver that keeps buffers.
#![allow(dead_code, reason = "each test file uses some of it")]

use henge_core::{Instant, RequestId};
use henge_nbd::{Export, Limits, Output, Segment, Session, SessionEvent, Wants};
use std::collections::BTreeMap;

pub const NOW: Instant = Instant::from_nanos(1_000);

/// `h("00000003 'abc'")`: hexadecimal digits, and text between quotes.
pub fn h(s: &str) -> Vec<u8> {
    let mut bytes = vec![];
    for (i, part) in s.split('\'').enumerate() {
        if i % 2 == 1 {
            bytes.extend_from_slice(part.as_bytes());
            continue;
        }
        let digits: Vec<u8> = part.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        assert!(digits.len().is_multiple_of(2), "half a byte in {s}");
        for pair in digits.chunks(2) {
            bytes.push(u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
        }
    }
    bytes
}

/// For messages: like `h`, the other way round.
pub fn show(bytes: &[u8]) -> String {
    bytes
        .chunks(4)
        .map(|w| w.iter().map(|b| format!("{b:02x}")).collect::<String>())
        .collect::<Vec<_>>()
        .join(" ")
}

/// All output, payload taken from `buffers`; it is written then.
pub fn drain(output: &Output, buffers: &BTreeMap<RequestId, Vec<u8>>) -> Vec<u8> {
    let mut bytes = vec![];
    for segment in output.segments() {
        match segment {
            Segment::Bytes(b) => bytes.extend_from_slice(b),
            Segment::Payload { id, at, len } => {
                bytes.extend_from_slice(&buffers[&id][at as usize..at as usize + len]);
            }
        }
    }
    bytes
}

/// A session with its buffers.
pub struct Server {
    pub session: Session,
    pub exports: Vec<Export>,
    pub buffers: BTreeMap<RequestId, Vec<u8>>,
    pub events: Vec<SessionEvent>,
    /// Input that the session did not want yet.
    pub held: Vec<u8>,
}

impl Server {
    pub fn new(exports: Vec<Export>, limits: Limits) -> Server {
        let session = Session::new(limits, NOW);
        Server { session, exports, buffers: BTreeMap::new(), events: vec![], held: vec![] }
    }
    /// Feeds bytes; whole commands (writes with their payload in) are in `events` afterwards.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        let mut input = std::mem::take(&mut self.held);
        loop {
            if let Wants::Payload { id, at, len } = self.session.wants() {
                let n = (len as usize).min(input.len());
                let (at, end) = (at as usize, at as usize + n);
                self.buffers.get_mut(&id).unwrap()[at..end].copy_from_slice(&input[..n]);
                input.drain(..n);
                match self.session.payload(n as u32, NOW) {
                    Some(command) => self.events.push(SessionEvent::Command(command)),
                    None => break,
                }
                continue;
            }
            let (n, event) = self.session.receive(&input, self.exports.as_slice(), NOW);
            input.drain(..n);
            match event {
                SessionEvent::Nothing => break,
                SessionEvent::Answered => {}
                SessionEvent::Payload(command) => {
                    self.buffers.insert(command.id, vec![0; command.len as usize]);
                }
                SessionEvent::Command(command) => {
                    self.buffers.insert(command.id, vec![0; command.len as usize]);
                    self.events.push(event);
                }
                _ => self.events.push(event),
            }
        }
        self.held = input;
    }
    /// All output, written.
    pub fn take(&mut self) -> Vec<u8> {
        let bytes = drain(self.session.output(), &self.buffers);
        let buffers = &mut self.buffers;
        self.session.written(bytes.len(), |id| {
            buffers.remove(&id).expect("a buffer is released once");
        });
        bytes
    }
    /// Feeds, and compares what comes back.
    #[track_caller]
    pub fn talk(&mut self, client: &str, server: &str) {
        self.feed(&h(client));
        let (got, expected) = (self.take(), h(server));
        assert!(got == expected, "\n got      {}\n expected {}", show(&got), show(&expected));
    }
    pub fn event(&mut self) -> SessionEvent {
        assert!(!self.events.is_empty(), "no event");
        self.events.remove(0)
    }
    /// The next event, which is a command.
    #[track_caller]
    pub fn command(&mut self) -> henge_nbd::Command {
        match self.event() {
            SessionEvent::Command(command) => command,
            other => panic!("{other:?} is not a command"),
        }
    }
}
