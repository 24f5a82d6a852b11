//! Any bytes after a true handshake, in any pieces: no panic, every byte is used or waited for, and what one end sends the
//! other receives as it was, whatever came before it.
#![no_main]

use henge_core::Instant;
use henge_link::{Event, Identity, Link, Message, WireNews};
use libfuzzer_sys::fuzz_target;

fn end(name: &str, nonce: u8) -> Link {
    let secret = b"quarry, and quarry again".to_vec();
    let identity = Identity { cluster: "lab".into(), name: name.into(), epoch: 1, secret };
    Link::new(identity, [nonce; 16], Instant::ZERO)
}

/// Shows `link` what the other end has written.
fn pass(from: &mut Link, to: &mut Link) {
    let bytes = std::mem::take(from.output());
    let mut at = 0;
    while at < bytes.len() {
        at += to.receive(&bytes[at..], Instant::ZERO).expect("a true handshake").len;
    }
}

fuzz_target!(|data: &[u8]| {
    let (mut a, mut b) = (end("a", 1), end("b", 2));
    for _ in 0..2 {
        pass(&mut a, &mut b);
        pass(&mut b, &mut a);
    }
    assert!(a.peer() == Some("b") && b.peer() == Some("a"));
    let Some((&how, data)) = data.split_first() else { return };
    // A message of the other end first, and its bytes in pieces like the rest.
    let news = WireNews::Total { total: u64::from(how), before: 0 };
    let sent = Message::Sync { coordinator: how & 1 == 1, epoch: 1, sequence: 7, flow: 3, news };
    b.send(&sent, 0, Instant::ZERO);
    let mut stream = std::mem::take(b.output());
    stream.extend_from_slice(data);
    let (mut unread, mut raw, mut first) = (Vec::new(), 0usize, true);
    for piece in stream.chunks(usize::from(how >> 1) + 1) {
        unread.extend_from_slice(piece);
        loop {
            let take = raw.min(unread.len());
            unread.drain(..take);
            raw -= take;
            if raw > 0 {
                break;
            }
            let Ok(received) = a.receive(&unread, Instant::ZERO) else { return };
            match received.event {
                Some(Event::NeedMore(needed)) => {
                    assert!(received.len == 0 && needed > unread.len());
                    break;
                }
                Some(Event::Established { .. }) => panic!("established twice"),
                Some(Event::Message { message, data }) => {
                    assert!(!std::mem::take(&mut first) || message == sent);
                    raw = data;
                }
                None => {}
            }
            assert!(received.len > 0 && received.len <= unread.len());
            unread.drain(..received.len);
        }
    }
});
