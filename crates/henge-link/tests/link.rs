//! Two ends joined by a wire that cuts anywhere.

use henge_core::{Duration, Instant};
use henge_link::{Event, Identity, Link, Message, Refusal, WireNews};
use proptest::prelude::*;

fn identity(name: &str) -> Identity {
    Identity { cluster: "lab".into(), name: name.into(), epoch: 3, secret: b"quarry".to_vec() }
}

fn link(identity: Identity) -> Link {
    let nonce = [identity.name.as_bytes()[0]; 16];
    Link::new(identity, nonce, Instant::ZERO)
}

/// Carries bytes both ways in pieces of `cut` until nothing moves; what each end heard.
fn carry(a: &mut Link, b: &mut Link, cut: usize) -> Result<[Vec<Event>; 2], Refusal> {
    let mut heard = [Vec::new(), Vec::new()];
    let mut unread = [Vec::new(), Vec::new()];
    loop {
        let mut moved = false;
        for end in 0..2 {
            let (from, to) = if end == 0 { (&mut *b, &mut *a) } else { (&mut *a, &mut *b) };
            let n = from.output().len().min(cut);
            unread[end].extend(from.output().drain(..n));
            moved |= n > 0;
            loop {
                let received = to.receive(&unread[end], Instant::ZERO)?;
                match received.event {
                    Some(Event::NeedMore(n)) => {
                        assert!(n > unread[end].len());
                        break;
                    }
                    event => heard[end].extend(event),
                }
                unread[end].drain(..received.len);
            }
        }
        if !moved {
            return Ok(heard);
        }
    }
}

proptest! {
    #[test]
    fn however_the_bytes_are_cut_both_ends_hear_the_same(cut in 1usize..200, totals in proptest::collection::vec(any::<u64>(), 0..20)) {
        let (mut a, mut b) = (link(identity("a")), link(identity("b")));
        let heard = carry(&mut a, &mut b, cut).unwrap();
        prop_assert_eq!(&heard[0], &vec![Event::Established { name: "b".into(), epoch: 3 }]);
        let message = |total: &u64| Message::Sync {
            coordinator: false, epoch: 1, sequence: *total, flow: 7, news: WireNews::Total { total: *total, before: 0 },
        };
        totals.iter().for_each(|t| a.send(&message(t), 0, Instant::ZERO));
        let heard = carry(&mut a, &mut b, cut).unwrap();
        let wanted: Vec<Event> = totals.iter().map(|t| Event::Message { message: message(t), data: 0 }).collect();
        prop_assert_eq!(&heard[1], &wanted);
    }

    #[test]
    fn garbage_is_refused_not_believed(bytes in proptest::collection::vec(any::<u8>(), 0..500), established: bool) {
        let (mut a, mut b) = (link(identity("a")), link(identity("b")));
        if established {
            carry(&mut a, &mut b, 64).unwrap();
        }
        let mut at = 0;
        while at < bytes.len() {
            match a.receive(&bytes[at..], Instant::ZERO) {
                Err(_) => break,
                Ok(received) if received.len == 0 => break,
                Ok(received) => at += received.len,
            }
        }
        prop_assert!(established || a.peer().is_none());
    }
}

#[test]
fn who_does_not_belong_is_told_why() {
    let refusal =
        |other: Identity| carry(&mut link(identity("a")), &mut link(other), 64).unwrap_err().to_string();
    let wrong = refusal(Identity { secret: b"guess".to_vec(), ..identity("b") });
    assert!(wrong.contains("does not know this cluster's secret"), "{wrong}");
    let wrong = refusal(Identity { cluster: "field".into(), ..identity("b") });
    assert!(wrong.contains("\"field\"") && wrong.contains("\"lab\""), "{wrong}");
    assert!(refusal(identity("a")).contains("names must differ"));
    let mut http = link(identity("a"));
    assert_eq!(http.receive(b"GET / HTTP/1.1\r\n\r\n", Instant::ZERO), Err(Refusal::NotHenge));
}

#[test]
fn another_version_is_named() {
    let mut b = link(identity("b"));
    let mut hello = b.output().clone();
    hello[8 + 8] = 1; // behind the frame's header and the magic: the version, a varint
    let refused = link(identity("a")).receive(&hello, Instant::ZERO).unwrap_err();
    assert_eq!(refused, Refusal::Version { name: "b".into(), theirs: 1, ours: 4 });
}

/// A proof is bound to both nonces and to who proves: sent back, or replayed later, it proves nothing.
#[test]
fn a_proof_sent_back_proves_nothing() {
    let mut honest = link(identity("a"));
    let mut mirror = link(identity("b")); // has the frames' form, but not the secret
    let hello_of_mirror = mirror.output().clone();
    let len = honest.output().len();
    honest.receive(&hello_of_mirror, Instant::ZERO).unwrap();
    let proof_of_honest = honest.output()[len..].to_vec();
    assert!(matches!(honest.receive(&proof_of_honest, Instant::ZERO), Err(Refusal::Secret { .. })));
}

#[test]
fn silence_is_noticed() {
    let (mut a, mut b) = (link(identity("a")), link(identity("b")));
    carry(&mut a, &mut b, 64).unwrap();
    let later = Instant::ZERO + Duration::from_millis(1500);
    assert!(a.wake_at() <= later && a.tick(later));
    assert!(!a.output().is_empty(), "a ping");
    assert!(!a.tick(Instant::ZERO + Duration::from_secs(5)));
}
