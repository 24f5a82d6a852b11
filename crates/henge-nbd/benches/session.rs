//! What the NBD session costs: parse and reply of a 4 KiB read, payload not copied.
//!
//! `cargo bench -p henge-nbd` prints ns per command, the best of several rounds, for the two dialects.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use henge_core::Instant;
use henge_nbd::{Answer, Export, Limits, Session, SessionEvent, Wants};
use std::hint::black_box;

const NOW: Instant = Instant::from_nanos(1);
const DEPTH: usize = 32;
const OPT: [u8; 8] = *b"IHAVEOPT";

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    [&OPT[..], &option.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn entered(exports: &[Export], structured: bool) -> Session {
    let mut session = Session::new(Limits::default(), NOW);
    let structured = if structured { option(8, &[]) } else { vec![] };
    let bytes = [&3u32.to_be_bytes()[..], &structured, &option(1, b"disk")].concat();
    let (n, event) = session.receive(&bytes, exports, NOW);
    assert_eq!((n, event), (bytes.len(), SessionEvent::Entered { export: 0 }));
    let greeting = session.output().len() as usize;
    session.written(greeting, |_| {});
    session
}

/// One wake-up of a loop: `DEPTH` requests come in one read, all are answered, one writev takes the replies.
fn batch(session: &mut Session, exports: &[Export], input: &[u8]) {
    let mut rest = input;
    let mut ids = [Default::default(); DEPTH];
    let mut count = 0;
    loop {
        let (n, event) = session.receive(rest, exports, NOW);
        rest = &rest[n..];
        match event {
            SessionEvent::Command(command) => {
                ids[count] = command.id;
                count += 1;
            }
            SessionEvent::Payload(command) => {
                let Wants::Payload { len, .. } = session.wants() else { unreachable!("payload is wanted") };
                session.payload(len, NOW);
                rest = &rest[len as usize..];
                ids[count] = command.id;
                count += 1;
            }
            SessionEvent::Nothing => break,
            other => panic!("{other:?}"),
        }
    }
    for id in &ids[..count] {
        session.reply(*id, Answer::Done);
    }
    black_box(session.output().segments().count());
    let len = session.output().len() as usize;
    session.written(len, |id| {
        black_box(id);
    });
}

fn main() {
    let exports = [Export::new("disk", 1 << 40)];
    for (name, structured, kind) in [
        ("read 4KiB, simple replies", false, 0u16),
        ("read 4KiB, structured replies", true, 0),
        ("write 4KiB, simple replies", false, 1),
    ] {
        let mut session = entered(&exports, structured);
        let mut input = vec![];
        for i in 0..DEPTH as u64 {
            input.extend_from_slice(&0x2560_9513_u32.to_be_bytes());
            input.extend_from_slice(&0u16.to_be_bytes());
            input.extend_from_slice(&kind.to_be_bytes());
            input.extend_from_slice(&i.to_be_bytes());
            input.extend_from_slice(&(i << 20).to_be_bytes());
            input.extend_from_slice(&4096u32.to_be_bytes());
            if kind == 1 {
                input.extend_from_slice(&[0; 4096]);
            }
        }
        let rounds = 5000;
        let best = (0..7)
            .map(|_| {
                let start = std::time::Instant::now();
                for _ in 0..rounds {
                    batch(&mut session, &exports, black_box(&input));
                }
                start.elapsed().as_nanos() as f64 / (rounds * DEPTH) as f64
            })
            .fold(f64::INFINITY, f64::min);
        println!("{name}: {best:.0} ns per command");
    }
}
