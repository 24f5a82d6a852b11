//! However the stream is cut on its way in and out, the conversation is the same; and no stream makes it panic.

use crate::common::{Server, h, show};
use henge_nbd::{Answer, CommandKind, Export, Limits, Piece, SessionEvent};
use proptest::prelude::*;

fn exports() -> Vec<Export> {
    vec![Export::new("disk", 1 << 16), Export::new("other", 1 << 20)]
}

/// A conversation: options, then requests, good and bad.
fn conversation() -> impl Strategy<Value = Vec<u8>> {
    let option =
        (0u32..13, proptest::collection::vec(any::<u8>(), 0..30), 0u8..4).prop_map(|(option, junk, what)| {
            let data = match what {
                0 => junk,
                1 => h("00000004 'disk' 0002 0001 0003"),
                2 => h("00000005 'other' 00000001 0000000f 'base:allocation'"),
                _ => vec![],
            };
            // Not those that end the handshake.
            let option = if matches!(option, 1 | 2 | 7) { 8 } else { option };
            let mut bytes = h(&format!("49484156454F5054 {option:08x} {:08x}", data.len()));
            bytes.extend(data);
            bytes
        });
    let request = (0u16..9, 0u16..32, 0u64..1 << 17, 0u32..5000, any::<u64>()).prop_map(
        |(kind, flags, offset, len, cookie)| {
            // Half of the requests without a flag, so that they are done.
            let flags = flags.saturating_sub(16);
            let kind = if kind == 2 { 1 } else { kind };
            let (offset, len) = if kind == 3 { (0, 0) } else { (offset, len) };
            let mut bytes =
                h(&format!("25609513 {flags:04x} {kind:04x} {cookie:016x} {offset:016x} {len:08x}"));
            if kind == 1 {
                bytes.extend((0..len).map(|i| (i as u8) ^ cookie as u8));
            }
            bytes
        },
    );
    (proptest::collection::vec(option, 0..6), any::<bool>(), proptest::collection::vec(request, 0..20))
        .prop_map(|(options, structured, requests)| {
            let mut bytes = h("00000003");
            if structured {
                bytes.extend(h("49484156454F5054 00000008 00000000"));
            }
            bytes.extend(options.concat());
            bytes.extend(h("49484156454F5054 00000007 0000000b 00000005 'other' 0000"));
            bytes.extend(requests.concat());
            bytes.extend(h("25609513 0000 0002 0000000000000000 0000000000000000 00000000"));
            bytes
        })
}

/// Feeds `bytes` in pieces; after each piece answers what has come. All events, and all output.
fn converse(bytes: &[u8], cuts: &[usize], limits: Limits) -> (Vec<SessionEvent>, Vec<u8>, Vec<u8>) {
    let mut s = Server::new(exports(), limits);
    let (mut events, mut output, mut written) = (vec![], vec![], vec![]);
    let mut rest = bytes;
    let mut cuts = cuts.iter().cycle();
    loop {
        let n = (*cuts.next().expect("a cycle does not end")).min(rest.len());
        let (piece, after) = rest.split_at(n);
        rest = after;
        s.feed(piece);
        let came = std::mem::take(&mut s.events);
        for event in &came {
            let SessionEvent::Command(command) = *event else { continue };
            if command.kind == CommandKind::Write {
                written.extend_from_slice(&s.buffers[&command.id]);
            } else {
                s.buffers.get_mut(&command.id).unwrap().fill(command.offset as u8);
            }
            let half = command.len / 2;
            let pieces = [Piece { len: half, hole: true }, Piece { len: command.len - half, hole: false }];
            let answer = match command.kind {
                CommandKind::Read { .. } if command.offset.is_multiple_of(3) => Answer::Pieces(&pieces),
                _ => Answer::Done,
            };
            if !s.session.reply(command.id, answer) {
                s.buffers.remove(&command.id);
            }
        }
        events.extend(came);
        let bytes = s.take();
        if rest.is_empty() && bytes.is_empty() && s.held.is_empty() {
            break;
        }
        output.extend(bytes);
    }
    assert!(s.session.is_over() && s.buffers.is_empty(), "everything is answered and nothing leaks");
    (events, output, written)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_is_the_same_conversation(
        bytes in conversation(),
        cuts in proptest::collection::vec(prop_oneof![Just(1usize), 1usize..40, 1usize..6000], 1..20),
    ) {
        // One command at a time in both, so that names and order of answers are the same, too.
        let limits = Limits { commands: 1, ..Limits::default() };
        let whole = converse(&bytes, &[usize::MAX], limits);
        let cut = converse(&bytes, &cuts, limits);
        prop_assert_eq!(&whole.0, &cut.0);
        prop_assert!(whole.1 == cut.1, "\n{}\n{}", show(&whole.1), show(&cut.1));
        prop_assert_eq!(whole.2, cut.2);
        prop_assert!(matches!(whole.0.last(), Some(SessionEvent::Closed(_))));
    }

    /// Bytes from anywhere, or a good conversation with one byte changed: no panic, no endless loop.
    #[test]
    fn no_stream_is_fatal(
        mut bytes in prop_oneof![conversation(), proptest::collection::vec(any::<u8>(), 0..200)],
        at in any::<proptest::sample::Index>(), flip in 1u8..=255,
        cuts in proptest::collection::vec(1usize..500, 1..5),
    ) {
        if !bytes.is_empty() {
            let i = at.index(bytes.len());
            bytes[i] ^= flip;
        }
        let mut s = Server::new(exports(), Limits::default());
        let mut rest = &bytes[..];
        for n in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*n).min(rest.len()));
            rest = after;
            s.feed(piece);
            for event in std::mem::take(&mut s.events) {
                if let SessionEvent::Command(command) = event && !s.session.reply(command.id, Answer::Done) {
                    s.buffers.remove(&command.id);
                }
            }
            s.take();
            prop_assert!(s.session.buffered() <= Limits::default().bytes + (32 << 20));
            if rest.is_empty() {
                break;
            }
        }
    }
}
