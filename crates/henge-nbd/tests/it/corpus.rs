//! What the fuzzers kept, replayed: every input that once reached something new, or once was a finding.

use crate::common::Server;
use henge_nbd::{Answer, Ask, Client, ClientEvent, Export, Limits, SessionEvent, Wish};
use std::path::Path;

/// The inputs kept for one target, without the byte that chooses how they are cut.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).expect("a corpus").map(|e| e.expect("an entry").path()).collect();
    files.sort();
    assert!(files.len() > 10, "{} holds a corpus", folder.display());
    files.iter().map(|file| std::fs::read(file).expect("a readable input").split_off(1)).collect()
}

#[test]
fn sessions_survive() {
    for input in kept("nbd_session") {
        for cut in [1, 7, usize::MAX] {
            let exports = vec![Export::new("disk", 1 << 20), Export::new("other", 1 << 40)];
            let mut s = Server::new(exports, Limits { bytes: 1 << 20, ..Limits::default() });
            for piece in input.chunks(cut.min(input.len().max(1))) {
                s.feed(piece);
                for event in std::mem::take(&mut s.events) {
                    if let SessionEvent::Command(command) = event
                        && !s.session.reply(command.id, Answer::Done)
                    {
                        s.buffers.remove(&command.id);
                    }
                }
                s.take();
            }
        }
    }
}

#[test]
fn clients_survive() {
    for input in kept("nbd_client") {
        for structured in [false, true] {
            let mut client = Client::new(Wish { export: "disk".into(), structured, allocation: structured });
            let mut rest = &input[..];
            loop {
                let (taken, event) = client.receive(rest);
                rest = &rest[taken..];
                match event {
                    ClientEvent::Nothing | ClientEvent::Failed(_) => break,
                    ClientEvent::Ready(_) => {
                        for (ask, len) in
                            [(Ask::Read, 16), (Ask::Read, 0), (Ask::Write, 4), (Ask::BlockStatus, 512)]
                        {
                            client.send(ask, 1, len, false);
                        }
                    }
                    ClientEvent::Payload { len, .. } => {
                        let n = rest.len().min(len as usize);
                        rest = &rest[n..];
                        client.payload(n as u32);
                    }
                    _ => {}
                }
            }
        }
    }
}
