//! Other nodes that do not read.

use super::*;
use crate::server::links::accept_link;
use henge_link::{Identity, Link, LinkEvent, Message, Role};
use std::os::unix::net::UnixStream as Socket;

const NODES: &str = "[link]\nname = \"n2\"\nlisten = \"127.0.0.1:0\"\nsecret = \"0123456789abcdef\"\n\
                     [[peer]]\nname = \"n1\"\naddress = \"127.0.0.1:1\"\n";

/// The other end of a link.
struct Other {
    socket: Socket,
    link: Link,
}

impl Other {
    /// Node n1, linked.
    fn linked(bench: &mut Bench) -> Other {
        let (ours, theirs) = Socket::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        accept_link(&mut bench.server, theirs.into());
        let (cluster, name, secret) = ("henge".into(), "n1".into(), b"0123456789abcdef".to_vec());
        let identity = Identity { cluster, name, epoch: 1, secret };
        let link = Link::new(identity, Role::Dialler, [7; 16], bench.server.now);
        let mut other = Other { socket: ours, link };
        let mut unread = Vec::new();
        while other.link.peer().is_none() {
            assert!(other.send(usize::MAX), "it is let in");
            bench.round();
            let mut bytes = [0; 4096];
            let got = other.socket.read(&mut bytes).unwrap_or(0);
            unread.extend_from_slice(&bytes[..got]);
            loop {
                let received = other.link.receive(&unread, bench.server.now).unwrap();
                unread.drain(..received.len);
                if received.len == 0 || matches!(received.event, Some(LinkEvent::NeedMore(_))) {
                    break;
                }
            }
        }
        other
    }

    /// Sends what it has to say, so many bytes at most. Whether the link is still there.
    fn send(&mut self, most: usize) -> bool {
        let output = self.link.output();
        let len = output.len().min(most);
        match self.socket.write(&output[..len]) {
            Ok(n) => drop(output.drain(..n)),
            Err(e) => return e.kind() == ErrorKind::WouldBlock,
        }
        true
    }

    /// Asks for an extent that is not there: the answer says so.
    fn ask(&mut self, now: Instant) {
        let disk = "x".repeat(200);
        self.link.send(&Message::Attach { extent: 0, disk, index: 0, shape: 0 }, &[], now);
    }
}

#[test]
fn a_peer_that_asks_on_and_reads_nothing_is_let_go_before_its_answers_fill_the_memory() {
    let mut bench = Bench::new(NODES);
    let mut other = Other::linked(&mut bench);
    let mut asked = 0u64;
    while other.send(usize::MAX) {
        while other.link.output().len() < 60_000 {
            other.ask(bench.server.now);
            asked += 1;
        }
        bench.round();
        assert!(asked < 300_000, "answers to {asked} questions wait for a peer that does not read");
    }
    assert!(asked > 10_000, "a burst of {asked} questions is no reason");
    let peer = bench.server.plane.links.peer(0);
    assert!(peer.link.is_none() && peer.error.as_deref().is_some_and(|why| why.contains("does not read")));
}

#[test]
fn a_peer_that_speaks_and_reads_nothing_is_let_go_after_four_seconds() {
    let mut bench = Bench::new(NODES);
    let mut other = Other::linked(&mut bench);
    for _ in 0..4000 {
        other.ask(bench.server.now);
    }
    while !other.link.output().is_empty() {
        assert!(other.send(usize::MAX));
        bench.round();
    }
    for second in 1..=6 {
        for _ in 0..10 {
            bench.server.now += Duration::from_millis(100);
            other.link.send(&Message::Ping, &[], bench.server.now);
            if !other.send(usize::MAX) {
                assert!(second > 3, "let go in second {second}");
                let why = bench.server.plane.links.peer(0).error.clone().unwrap_or_default();
                return assert!(why.contains("taken nothing"), "{why}");
            }
            bench.round();
        }
    }
    panic!("what it does not read waits on");
}

#[test]
fn a_peer_that_reads_late_stays() {
    let mut bench = Bench::new(NODES);
    let mut other = Other::linked(&mut bench);
    for _ in 0..4000 {
        other.ask(bench.server.now);
    }
    let mut bytes = vec![0; 8 << 10];
    for _ in 0..100 {
        bench.server.now += Duration::from_millis(100);
        other.link.send(&Message::Ping, &[], bench.server.now);
        assert!(other.send(usize::MAX), "it reads a little");
        bench.round();
        let _ = other.socket.read(&mut bytes);
    }
}
