//! The loop against a session of its own: messages `[length][that many bytes]`, of which odd ones are payload.

use super::*;
use crate::plane::Answer;
use crate::session::bench::Bench;
use crate::session::{Share, Taken};
use proptest::prelude::*;
use rustix::event::epoll::EventFlags;
use std::io::{Read, Write};

const NODE: &str = "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"8MiB\"\n";

/// Takes messages, and says each of them back.
#[derive(Default)]
struct Echo {
    said: Vec<u8>,
    payload: Vec<u8>,
    /// Bytes of the payload that are still to come.
    left: usize,
    /// Messages after which it wants memory, once.
    thirsty_after: Option<usize>,
    messages: usize,
    full: bool,
}

impl Session for Echo {
    fn share(&self) -> Share {
        Share { bytes: 4096, messages: 8 }
    }
    fn resume(&mut self, _: &mut Around<'_>) -> Option<Stop> {
        None
    }
    fn wants<'a>(&'a mut self, _: &'a mut Around<'_>) -> Wants<'a> {
        if self.full {
            return Wants::Nothing;
        }
        if self.thirsty_after.is_some_and(|after| self.messages >= after) {
            self.thirsty_after = None;
            return Wants::Memory;
        }
        let from = self.payload.len() - self.left;
        match self.left {
            0 => Wants::Bytes { most: 300 },
            _ => Wants::Payload { into: &mut self.payload[from..], beyond: 100 },
        }
    }
    fn received(&mut self, input: &[u8], _: &mut Around<'_>) -> Taken {
        let len = usize::from(input[0]);
        if len % 2 == 1 {
            (self.payload, self.left) = (vec![0; len], len);
            return Taken { bytes: 1, stop: None };
        }
        if input.len() <= len {
            return Taken { bytes: 0, stop: None };
        }
        self.messages += 1;
        self.said.extend(&input[1..=len]);
        Taken { bytes: len + 1, stop: None }
    }
    fn delivered(&mut self, bytes: usize, _: &mut Around<'_>) -> Option<Stop> {
        self.left -= bytes;
        if self.left == 0 {
            self.messages += 1;
            self.said.append(&mut self.payload);
        }
        None
    }
    fn completed(&mut self, _: Answer, _: &mut Around<'_>) {}
    fn output<'a>(&'a mut self, _: &'a mut Around<'_>, out: &mut Slices<'_, 'a>) {
        // In pieces of 7, more of them than are written at once.
        let _ = self.said.chunks(7).all(|piece| out.push(piece));
    }
    fn written(&mut self, bytes: usize, _: &mut Around<'_>) {
        self.said.drain(..bytes);
    }
    fn close(&mut self, _: &mut Around<'_>) {}
    fn disk(&self) -> Option<usize> {
        None
    }
    fn takes(&self) -> bool {
        !self.full
    }
    fn has_output(&self) -> bool {
        !self.said.is_empty()
    }
    fn is_over(&self) -> bool {
        false
    }
    fn is_stalled(&self) -> bool {
        false
    }
    fn awaits_payload(&self) -> bool {
        self.left > 0
    }
    fn describe(&self) -> String {
        "an echo".into()
    }
}

fn message(len: u8, seed: u8) -> Vec<u8> {
    let body = (0..len).map(|at| at.wrapping_mul(31).wrapping_add(seed));
    std::iter::once(len).chain(body).collect()
}

#[test]
fn room_in_the_socket_is_watched_for_only_while_there_is_none() {
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut link = Link::new(ours.into());
    assert!(!link.interest().contains(EventFlags::OUT) && link.interest().contains(EventFlags::IN));
    link.awaited = true;
    assert!(link.interest().contains(EventFlags::OUT | EventFlags::IN));
}

#[test]
fn a_turn_ends_when_its_share_is_moved_and_the_rest_is_kept() {
    let mut bench = Bench::new(NODE);
    let (mut client, mut socket) = Bench::client(Echo::default());
    // Messages of 3 bytes each: a hundred of them are in one read, and eight are taken in a turn.
    let all: Vec<u8> = (0..100).flat_map(|seed| message(2, seed)).collect();
    socket.write_all(&all).unwrap();
    for turn in 1..=12 {
        assert_eq!(bench.read(&mut client), Stop::Turn, "turn {turn}");
        assert_eq!(client.session::<Echo>().unwrap().messages, turn * 8);
        assert!(client.has_input());
    }
    assert_eq!(bench.read(&mut client), Stop::Waiting);
    assert_eq!(client.session::<Echo>().unwrap().messages, 100);
    client.link.readable = false;
    assert!(!client.has_input());
    // Bytes bound a turn, too: 4096 of them, and what one read goes beyond.
    let many: Vec<u8> = (0..60).flat_map(|seed| message(254, seed)).collect();
    socket.write_all(&many).unwrap();
    assert_eq!(bench.read(&mut client), Stop::Turn);
    assert!(client.session::<Echo>().unwrap().messages <= 100 + 8);
}

/// A turn's payload takes the heads of its answers along; what is more is the next turn's.
#[test]
fn an_answer_as_long_as_a_share_is_written_in_one_turn() {
    let mut bench = Bench::new(NODE);
    let (mut client, mut socket) = Bench::client(Echo::default());
    let mut written = |said: usize| {
        client.session::<Echo>().unwrap().said = vec![1; said];
        assert!(client.write(&mut bench.around()));
        let left = client.session::<Echo>().unwrap().said.len();
        socket.read_exact(&mut vec![0; said - left]).unwrap();
        left
    };
    assert_eq!(written(4096 + 8 * 48), 0);
    assert_eq!(written(3 * 4096), 2 * 4096 - 8 * HEAD);
}

#[test]
fn the_beginning_of_a_message_is_kept_and_asks_for_nothing() {
    let mut bench = Bench::new(NODE);
    let (mut client, mut socket) = Bench::client(Echo::default());
    let whole = message(200, 5);
    for byte in &whole[..200] {
        socket.write_all(&[*byte]).unwrap();
        assert_eq!(bench.read(&mut client), Stop::Waiting);
        assert!(!client.has_input(), "it can do nothing with what it has");
    }
    socket.write_all(&whole[200..]).unwrap();
    assert_eq!(bench.read(&mut client), Stop::Waiting);
    assert_eq!(client.session::<Echo>().unwrap().said, whole[1..]);
}

#[test]
fn who_is_full_or_without_memory_is_not_read_from() {
    let mut bench = Bench::new(NODE);
    let (mut client, mut socket) = Bench::client(Echo { thirsty_after: Some(1), ..Echo::default() });
    socket.write_all(&[message(2, 1), message(4, 2)].concat()).unwrap();
    assert_eq!(bench.read(&mut client), Stop::Stalled);
    assert_eq!(client.session::<Echo>().unwrap().messages, 1);
    assert_eq!(bench.read(&mut client), Stop::Waiting);
    assert_eq!(client.session::<Echo>().unwrap().messages, 2, "there is memory now");
    client.session::<Echo>().unwrap().full = true;
    socket.write_all(&message(2, 3)).unwrap();
    assert_eq!(bench.read(&mut client), Stop::Waiting);
    assert!(client.link.readable && !client.has_input(), "the socket keeps what is not taken");
    drop(socket);
    assert_eq!(bench.read(&mut client), Stop::Waiting, "nor is its end looked for");
    client.session::<Echo>().unwrap().full = false;
    client.link.end = crate::link::End::Said;
    assert_eq!(bench.read(&mut client), Stop::Gone);
    assert_eq!(client.session::<Echo>().unwrap().messages, 3, "what came before the end counts");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Messages and payloads of all lengths, however the socket cuts them: each arrives once, whole, in order.
    #[test]
    fn all_bytes_arrive_in_order(
        lens in proptest::collection::vec(any::<u8>(), 1..80),
        cuts in proptest::collection::vec(1usize..700, 1..20),
    ) {
        let mut bench = Bench::new(NODE);
        let (mut client, mut socket) = Bench::client(Echo::default());
        let sent: Vec<Vec<u8>> = lens.iter().enumerate().map(|(i, len)| message(*len, i as u8)).collect();
        let expected: Vec<u8> = sent.iter().flat_map(|message| &message[1..]).copied().collect();
        let (bytes, mut at, mut got) = (sent.concat(), 0, Vec::new());
        let mut cuts = cuts.iter().cycle();
        while at < bytes.len() || got.len() < expected.len() {
            let cut = *cuts.next().unwrap();
            let n = cut.min(bytes.len() - at);
            socket.write_all(&bytes[at..at + n]).unwrap();
            at += n;
            while bench.read(&mut client) == Stop::Turn {}
            prop_assert!(bench.write(&mut client));
            let mut answer = vec![0; 64 << 10];
            if let Ok(n) = socket.read(&mut answer) {
                got.extend_from_slice(&answer[..n]);
            }
        }
        prop_assert!(got == expected);
    }
}
