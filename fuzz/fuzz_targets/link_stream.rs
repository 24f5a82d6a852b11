//! After a true handshake, in any pieces: what one end sends the other receives as it was, and any bytes behind it are waited for
//! or refused, for they have no seal. No panic.
#![no_main]

use henge_core::Instant;
use henge_link::{Identity, Link, LinkEvent, Message, Role, WireNews};
use libfuzzer_sys::fuzz_target;

fn end(name: &str, nonce: u8) -> Link {
    let secret = b"quarry, and quarry again".to_vec();
    let identity = Identity { cluster: "lab".into(), name: name.into(), epoch: 1, secret };
    let role = if name == "a" { Role::Dialler } else { Role::Dialled };
    Link::new(identity, role, [nonce; 16], Instant::ZERO)
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
    let sent = postcard::from_bytes::<Message>(data).unwrap_or(sent);
    if sent == Message::Ping {
        return; // not shown
    }
    b.send(&sent, &[], Instant::ZERO);
    let mut stream = std::mem::take(b.output());
    stream.extend_from_slice(data);
    let (mut unread, mut heard) = (Vec::new(), 0);
    for piece in stream.chunks(usize::from(how >> 1) + 1) {
        unread.extend_from_slice(piece);
        loop {
            let Ok(received) = a.receive(&unread, Instant::ZERO) else { return assert!(heard == 1) };
            match received.event {
                Some(LinkEvent::NeedMore(needed)) => {
                    assert!(received.len == 0 && needed > unread.len());
                    break;
                }
                Some(LinkEvent::Message { message, data }) => {
                    assert!(heard == 0 && message == sent && data == 0, "believed without a seal");
                    heard += 1;
                }
                Some(LinkEvent::Established { .. }) | None => panic!("established twice, or a ping without a seal"),
            }
            assert!(received.len > 0 && received.len <= unread.len());
            unread.drain(..received.len);
        }
    }
});
