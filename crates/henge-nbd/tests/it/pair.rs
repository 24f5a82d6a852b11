//! Both ends joined by a wire, cut at random: what one side means is what the other understands.

use crate::common::NOW;
use henge_core::{Fault, RequestId};
use henge_nbd::{
    Answer, Ask, Client, ClientEvent, ClientFailure, CommandKind, Error, Export, Extent, Limits, Output,
    Piece, Segment, Session, SessionEvent, Wants, Wish,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A server with a disk in memory, and a client, both fed a few bytes at a time.
struct Pair {
    server: Session,
    client: Client,
    exports: Vec<Export>,
    disk: Vec<u8>,
    server_buffers: BTreeMap<RequestId, Vec<u8>>,
    client_buffers: BTreeMap<RequestId, Vec<u8>>,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    /// How many bytes go over the wire at once, in turn.
    cuts: Vec<usize>,
    turn: usize,
    ready: bool,
    failed: Option<ClientFailure>,
    done: Vec<(RequestId, Result<(), Error>)>,
}

fn wire(output: &Output, buffers: &BTreeMap<RequestId, Vec<u8>>, most: usize) -> Vec<u8> {
    let mut bytes = vec![];
    for segment in output.segments() {
        match segment {
            Segment::Bytes(b) => bytes.extend_from_slice(b),
            Segment::Payload { id, at, len } => bytes.extend_from_slice(&buffers[&id][at as usize..][..len]),
        }
    }
    bytes.truncate(most);
    bytes
}

impl Pair {
    fn new(wish: Wish, cuts: Vec<usize>) -> Pair {
        Pair {
            server: Session::new(Limits { commands: 8, bytes: 3000, ..Limits::default() }, NOW),
            client: Client::new(wish),
            exports: vec![Export::new("disk", 4096)],
            disk: (0..4096u32).map(|i| (i / 7) as u8).collect(),
            server_buffers: BTreeMap::new(),
            client_buffers: BTreeMap::new(),
            to_server: vec![],
            to_client: vec![],
            cuts,
            turn: 0,
            ready: false,
            failed: None,
            done: vec![],
        }
    }
    fn cut(&mut self) -> usize {
        self.turn += 1;
        self.cuts[self.turn % self.cuts.len()]
    }
    /// Until nothing moves any more.
    fn run(&mut self) {
        loop {
            let before = (self.to_server.len(), self.to_client.len());
            let n = self.cut();
            let bytes = wire(self.server.output(), &self.server_buffers, n);
            let buffers = &mut self.server_buffers;
            self.server.written(bytes.len(), |id| assert!(buffers.remove(&id).is_some()));
            self.to_client.extend_from_slice(&bytes);
            let n = self.cut();
            let sent = wire(self.client.output(), &self.client_buffers, n);
            self.client.written(sent.len(), |_| {});
            self.to_server.extend_from_slice(&sent);
            let moved = self.serve() | self.consume();
            if !moved
                && bytes.is_empty()
                && sent.is_empty()
                && before == (self.to_server.len(), self.to_client.len())
            {
                return;
            }
        }
    }
    fn serve(&mut self) -> bool {
        if let Wants::Payload { id, at, len } = self.server.wants() {
            let n = (len as usize).min(self.to_server.len());
            let buffer = self.server_buffers.get_mut(&id).unwrap();
            buffer[at as usize..at as usize + n].copy_from_slice(&self.to_server[..n]);
            self.to_server.drain(..n);
            if let Some(command) = self.server.payload(n as u32, NOW) {
                self.execute(command);
            }
            return n > 0;
        }
        let (n, event) = self.server.receive(&self.to_server, self.exports.as_slice(), NOW);
        self.to_server.drain(..n);
        match event {
            SessionEvent::Nothing => return n > 0,
            SessionEvent::Payload(c) => {
                self.server_buffers.insert(c.id, vec![0; c.len as usize]);
            }
            SessionEvent::Command(c) => {
                self.server_buffers.insert(c.id, vec![0; c.len as usize]);
                self.execute(c);
            }
            SessionEvent::Entered { export } => assert_eq!(export, 0),
            SessionEvent::Closed(_) | SessionEvent::StartTls | SessionEvent::Answered => {}
        }
        true
    }
    fn execute(&mut self, c: henge_nbd::Command) {
        let range = c.offset as usize..c.offset as usize + c.len as usize;
        let buffer = self.server_buffers.get_mut(&c.id).unwrap();
        // Byte 4095 cannot be read or written.
        let broken = range.end == 4096 && c.len > 0;
        let mut pieces = vec![];
        match c.kind {
            CommandKind::Read { .. } => {
                buffer.copy_from_slice(&self.disk[range.clone()]);
                for byte in &self.disk[range] {
                    let hole = *byte == 0;
                    match pieces.last_mut() {
                        Some(Piece { len, hole: h }) if *h == hole => *len += 1,
                        _ => pieces.push(Piece { len: 1, hole }),
                    }
                }
            }
            CommandKind::Write => self.disk[range].copy_from_slice(buffer),
            CommandKind::WriteZeroes { .. } => self.disk[range].fill(0),
            _ => {}
        }
        let extents =
            [Extent { len: 5, hole: true, zero: true }, Extent { len: 9, hole: false, zero: false }];
        let answer = match c.kind {
            _ if broken => Answer::Fault(Fault::Io),
            CommandKind::Read { .. } if c.offset.is_multiple_of(2) => Answer::Pieces(&pieces),
            CommandKind::BlockStatus { .. } => Answer::Extents(&extents),
            _ => Answer::Done,
        };
        if !self.server.reply(c.id, answer) {
            self.server_buffers.remove(&c.id);
        }
    }
    fn consume(&mut self) -> bool {
        let (n, event) = self.client.receive(&self.to_client);
        self.to_client.drain(..n);
        match event {
            ClientEvent::Nothing => return n > 0,
            ClientEvent::Ready(_) => self.ready = true,
            ClientEvent::Failed(why) => self.failed = Some(why),
            ClientEvent::Done { id, outcome } => self.done.push((id, outcome)),
            ClientEvent::Hole { id, at, len } => {
                self.client_buffers.get_mut(&id).unwrap()[at as usize..(at + len) as usize].fill(0);
            }
            ClientEvent::Extents(_) => assert_eq!(self.client.extents().len(), 2),
            ClientEvent::Payload { id, at, len } => {
                // The rest of the payload must have come; the cuts are at this wire's other end.
                let n = (len as usize).min(self.to_client.len());
                let (mut at, mut left) = (at as usize, len as usize);
                let mut take = n;
                loop {
                    let bytes: Vec<u8> = self.to_client.drain(..take).collect();
                    self.client_buffers.get_mut(&id).unwrap()[at..at + take].copy_from_slice(&bytes);
                    (at, left) = (at + take, left - take);
                    let event = self.client.payload(take as u32);
                    if left == 0 {
                        if let ClientEvent::Done { id, outcome } = event {
                            self.done.push((id, outcome));
                        }
                        break;
                    }
                    let n = self.cut();
                    let more = wire(self.server.output(), &self.server_buffers, n);
                    let buffers = &mut self.server_buffers;
                    self.server.written(more.len(), |id| assert!(buffers.remove(&id).is_some()));
                    self.to_client.extend_from_slice(&more);
                    take = left.min(self.to_client.len());
                }
            }
        }
        true
    }
    fn send(&mut self, ask: Ask, offset: u64, len: u32, fill: u8) -> RequestId {
        let id = self.client.send(ask, offset, len, false);
        let fill = if ask == Ask::Write { fill } else { 0xee };
        self.client_buffers.insert(id, vec![fill; len as usize]);
        id
    }
}

fn wish(structured: bool) -> Wish {
    Wish { export: "disk".into(), structured, allocation: true }
}

#[test]
fn a_server_without_such_an_export() {
    let mut pair = Pair::new(Wish { export: "other".into(), ..wish(true) }, vec![100]);
    pair.run();
    let kind = (1 << 31) + 6;
    let message = "there is no such export".to_owned();
    assert_eq!(pair.failed, Some(ClientFailure::Refused { kind, message }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Random commands, one after the other or pipelined, with cuts anywhere, in both dialects: every answer and every
    /// byte is right.
    #[test]
    fn what_is_asked_is_answered(
        structured in any::<bool>(),
        cuts in proptest::collection::vec(1usize..200, 1..8),
        asks in proptest::collection::vec((0u8..7, 0u64..4200, 0u32..300, any::<bool>(), 1u8..255), 1..40),
    ) {
        let mut pair = Pair::new(wish(structured), cuts);
        pair.run();
        prop_assert!(pair.ready);
        let mut disk = pair.disk.clone();
        let mut sent = vec![];
        for (what, offset, len, wait, fill) in asks {
            let ask = match what {
                0 | 1 => Ask::Read,
                2 | 3 => Ask::Write,
                4 => Ask::WriteZeroes { no_hole: wait, fast: false },
                5 => Ask::BlockStatus,
                _ => Ask::Flush,
            };
            let (offset, len) = if ask == Ask::Flush { (0, 0) } else { (offset, len) };
            let beyond = offset + u64::from(len) > 4096;
            let broken = offset + u64::from(len) == 4096 && len > 0;
            let range = offset as usize..(offset as usize + len as usize);
            let expected = match ask {
                Ask::BlockStatus if !structured || len == 0 => Err(Error::Invalid),
                Ask::Write | Ask::WriteZeroes { .. } if beyond => Err(Error::NoSpace),
                _ if beyond => Err(Error::Invalid),
                _ if broken => Err(Error::Io),
                _ => Ok(()),
            };
            let id = pair.send(ask, offset, len, fill);
            if !beyond {
                match ask {
                    Ask::Write => disk[range.clone()].fill(fill),
                    Ask::WriteZeroes { .. } => disk[range.clone()].fill(0),
                    _ => {}
                }
            }
            let bytes = if ask == Ask::Read && expected.is_ok() { Some(disk[range].to_vec()) } else { None };
            sent.push((id, expected, bytes));
            if wait {
                pair.run();
            }
        }
        pair.run();
        prop_assert_eq!(pair.failed, None);
        prop_assert_eq!(&pair.disk, &disk);
        prop_assert_eq!(pair.done.len(), sent.len());
        for (i, (id, expected, bytes)) in sent.iter().enumerate() {
            prop_assert_eq!(pair.done[i], (*id, *expected), "command {}", i);
            // Later commands may have reused the name, and the buffer with it.
            if let Some(bytes) = bytes && !sent[i + 1..].iter().any(|(other, ..)| other == id) {
                prop_assert_eq!(&pair.client_buffers[id], bytes);
            }
        }
        // Nothing leaks.
        prop_assert_eq!(pair.server_buffers.len(), 0);
        prop_assert_eq!((pair.server.in_flight(), pair.server.buffered(), pair.client.in_flight()), (0, 0, 0));
    }
}
