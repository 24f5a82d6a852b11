//! Any bytes, in any pieces, to an NBD session: no panic, no endless loop, nothing beyond its bounds.
//!
//! The first byte chooses how the rest is cut and how commands are answered.
#![no_main]

use henge_core::{Fault, Instant};
use henge_nbd::{Answer, CommandKind, Error, Export, Limits, Piece, Session, SessionEvent, Tls, Wants};
use libfuzzer_sys::fuzz_target;

const NOW: Instant = Instant::from_nanos(1);

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let exports = [Export::new("disk", 1 << 20), Export { read_only: true, ..Export::new("other", 1 << 40) }];
    let limits = Limits { commands: 4, bytes: 1 << 16, output: 4096, skip: 1 << 20, ..Limits::default() };
    let tls = [Tls::No, Tls::No, Tls::Allow, Tls::Require][usize::from(how >> 6)];
    let mut session = Session::new(limits, NOW).with_tls(tls);
    let mut waiting = Vec::new();
    let step = usize::from(how >> 3) + 1;
    let mut rest = data;
    while !rest.is_empty() {
        let n = step.min(rest.len());
        let taken = feed(&mut session, &rest[..n], &exports, &mut waiting);
        rest = &rest[taken..];
        assert!(session.in_flight() <= 4 && session.buffered() <= (1 << 16) + (32 << 20));
        if taken == 0 || how & 1 == 0 {
            // Nothing is taken only while something is to be answered or read, or at the end.
            let moved = answer(&mut session, &mut waiting, how) | read(&mut session);
            if taken == 0 && !moved {
                assert_eq!(session.wants(), Wants::Nothing);
                break;
            }
        }
    }
    answer(&mut session, &mut waiting, how);
    read(&mut session);
    let payload = usize::from(matches!(session.wants(), Wants::Payload { .. }));
    assert_eq!(session.in_flight(), payload, "only a write whose payload is missing remains");
});

type Waiting = Vec<henge_nbd::Command>;

fn feed(session: &mut Session, mut input: &[u8], exports: &[Export], waiting: &mut Waiting) -> usize {
    let whole = input.len();
    loop {
        if let Wants::Payload { len, .. } = session.wants() {
            let n = (len as usize).min(input.len());
            input = &input[n..];
            match session.payload(n as u32, NOW) {
                Some(command) => waiting.push(command),
                None => break,
            }
            continue;
        }
        let (n, event) = session.receive(input, exports, NOW);
        input = &input[n..];
        match event {
            SessionEvent::Nothing => break,
            SessionEvent::Command(command) => waiting.push(command),
            SessionEvent::Answered
            | SessionEvent::Payload(_)
            | SessionEvent::Entered { .. }
            | SessionEvent::StartTls => {}
            SessionEvent::Closed(_) => return whole,
        }
    }
    whole - input.len()
}

fn answer(session: &mut Session, waiting: &mut Waiting, how: u8) -> bool {
    let any = !waiting.is_empty();
    for command in waiting.drain(..) {
        let half = command.len / 2;
        let pieces = [Piece { len: half, hole: true }, Piece { len: command.len - half, hole: false }];
        let answer = match (how & 6, command.kind) {
            (2, CommandKind::Read { .. }) => Answer::Pieces(&pieces),
            (4, _) => Answer::Fault(Fault::Io),
            (6, _) => Answer::Failed(Error::Shutdown, "enough"),
            _ => Answer::Done,
        };
        session.reply(command.id, answer);
    }
    any
}

fn read(session: &mut Session) -> bool {
    let len = session.output().len() as usize;
    session.written(len, |_| {});
    let begins = session.is_ready_for_tls();
    if begins {
        session.encrypted();
    }
    len > 0 || begins
}
