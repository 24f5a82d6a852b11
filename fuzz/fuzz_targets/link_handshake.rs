//! Any bytes, in any pieces, to an end of a link: no panic, and nobody without the secret is ever believed.
#![no_main]

use henge_core::Instant;
use henge_link::{Identity, Link, LinkEvent, Role};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&role, data)) = data.split_first() else { return };
    let role = if role & 1 == 0 { Role::Dialler } else { Role::Dialled };
    let identity = Identity { cluster: "lab".into(), name: "a".into(), epoch: 1, secret: b"quarry".to_vec() };
    let mut link = Link::new(identity, role, [7; 16], Instant::ZERO);
    let mut at = 0;
    while let Ok(received) = link.receive(&data[at..], Instant::ZERO) {
        match received.event {
            Some(LinkEvent::NeedMore(needed)) => {
                assert!(received.len == 0 && needed > data.len() - at);
                break;
            }
            Some(LinkEvent::Established { .. } | LinkEvent::Message { .. }) => panic!("believed without a proof"),
            None => at += received.len,
        }
    }
    assert!(link.peer().is_none());
});
