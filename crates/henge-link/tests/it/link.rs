//! Two ends joined by a wire that cuts anywhere.

use henge_core::{Duration, Instant};
use henge_link::{Identity, Link, LinkEvent, Message, PartOutcome, Refusal, Role, WireNews};
use proptest::prelude::*;

fn identity(name: &str) -> Identity {
    Identity { cluster: "lab".into(), name: name.into(), epoch: 3, secret: b"quarry".to_vec() }
}

/// The end whose name is `a` dials.
fn link(identity: Identity) -> Link {
    let role = if identity.name == "a" { Role::Dialler } else { Role::Dialled };
    end(identity, role)
}

fn end(identity: Identity, role: Role) -> Link {
    let nonce = [identity.name.as_bytes()[0]; 16];
    Link::new(identity, role, nonce, Instant::ZERO)
}

/// Carries bytes both ways in pieces of `cut` until nothing moves; what each end heard.
fn carry(a: &mut Link, b: &mut Link, cut: usize) -> Result<[Vec<LinkEvent>; 2], Refusal> {
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
                    Some(LinkEvent::NeedMore(n)) => {
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
        prop_assert_eq!(&heard[0], &vec![LinkEvent::Established { name: "b".into(), epoch: 3 }]);
        let message = |total: &u64| Message::Sync {
            coordinator: false, epoch: 1, sequence: *total, flow: 7, news: WireNews::Total { total: *total, before: 0 },
        };
        totals.iter().for_each(|t| a.send(&message(t), &[], Instant::ZERO));
        let heard = carry(&mut a, &mut b, cut).unwrap();
        let wanted: Vec<LinkEvent> = totals.iter().map(|t| LinkEvent::Message { message: message(t), data: 0 }).collect();
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
                Ok(received) => {
                    prop_assert!(!established, "nothing fits without its seal");
                    at += received.len;
                }
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
    assert_eq!(refused, Refusal::Version { name: "b".into(), theirs: 1, ours: 6 });
}

/// What an end has to say, taken off its wire.
fn said(end: &mut Link) -> Vec<u8> {
    std::mem::take(end.output())
}

fn hear(end: &mut Link, bytes: &[u8]) -> Result<Option<LinkEvent>, Refusal> {
    end.receive(bytes, Instant::ZERO).map(|received| received.event)
}

/// Two sockets to nodes that were dialled, their hellos and proofs swapped: neither says anything that the other could believe.
#[test]
fn who_was_dialled_proves_nothing_to_who_has_not() {
    let mut first = end(identity("a"), Role::Dialled);
    let mut second = end(identity("b"), Role::Dialled);
    let hellos = (said(&mut first), said(&mut second));
    assert_eq!(hear(&mut first, &hellos.1), Ok(None));
    assert_eq!(hear(&mut second, &hellos.0), Ok(None));
    assert!(first.output().is_empty() && second.output().is_empty(), "no proof before a proof");
}

/// A proof names its role, both nonces and both names: sent back, swapped or replayed, it proves nothing.
#[test]
fn a_proof_fits_one_role_of_one_conversation() {
    // Sent back to its sender, by somebody who is dialled and greets with another's name.
    let mut dialler = end(identity("a"), Role::Dialler);
    let mut mirror = end(identity("b"), Role::Dialled);
    said(&mut dialler);
    hear(&mut dialler, &said(&mut mirror)).unwrap();
    let proof = said(&mut dialler);
    assert!(matches!(hear(&mut dialler, &proof), Err(Refusal::Secret { .. })));

    // Two that both dialled somebody in between, who swaps what they say.
    let (mut a, mut b) = (end(identity("a"), Role::Dialler), end(identity("b"), Role::Dialler));
    let hellos = (said(&mut a), said(&mut b));
    hear(&mut a, &hellos.1).unwrap();
    hear(&mut b, &hellos.0).unwrap();
    let proofs = (said(&mut a), said(&mut b));
    assert!(matches!(hear(&mut a, &proofs.1), Err(Refusal::Secret { .. })));
    assert!(matches!(hear(&mut b, &proofs.0), Err(Refusal::Secret { .. })));

    // Replayed to one whose nonce is another.
    let mut later = Link::new(identity("b"), Role::Dialled, [9; 16], Instant::ZERO);
    hear(&mut later, &hellos.0).unwrap();
    assert!(matches!(hear(&mut later, &proofs.0), Err(Refusal::Secret { .. })));
}

/// An established pair, and a message with data of the first for the second.
fn pair_and_message() -> (Link, Link, Vec<u8>) {
    let (mut a, mut b) = (link(identity("a")), link(identity("b")));
    carry(&mut a, &mut b, 64).unwrap();
    a.send(&Message::Done { id: 7, outcome: PartOutcome::Done, cost: 3 }, &[5; 100], Instant::ZERO);
    let mut frame = said(&mut a);
    frame.extend_from_slice(&[5; 100]);
    (a, b, frame)
}

/// Takes one message and its data.
fn take(end: &mut Link, bytes: &[u8]) -> Result<(), Refusal> {
    let received = end.receive(bytes, Instant::ZERO)?;
    let Some(LinkEvent::Message { data, .. }) = received.event else { panic!("no message: {received:?}") };
    let behind = &bytes[received.len..received.len + data];
    behind.chunks(33).try_for_each(|piece| end.took(piece))
}

#[test]
fn whoever_is_on_the_way_changes_drops_repeats_and_adds_nothing_unseen() {
    let refused =
        |outcome: Result<(), Refusal>| assert_eq!(outcome, Err(Refusal::Changed { name: "a".into() }));
    let (_, mut b, frame) = pair_and_message();
    take(&mut b, &frame).unwrap();
    refused(take(&mut b, &frame)); // again

    // Every bit of it counts: of the header, the body, both seals, and the data. (A length that grows asks for more first.)
    for at in (0..frame.len()).filter(|at| !(0..8).contains(at)) {
        let (_, mut b, mut frame) = pair_and_message();
        frame[at] ^= 1 << (at % 8);
        refused(take(&mut b, &frame));
    }
    let (_, mut b, mut frame) = pair_and_message();
    frame[4] ^= 1; // 101 bytes of data
    frame.push(0);
    refused(take(&mut b, &frame));

    // One is dropped.
    let (mut a, mut b, _) = pair_and_message();
    a.send(&Message::Heartbeat { number: 1 }, &[], Instant::ZERO);
    refused(take(&mut b, &said(&mut a)));

    // What an end said itself is not what the other one says.
    let (mut a, mut b, _) = pair_and_message();
    a.send(&Message::Heartbeat { number: 1 }, &[], Instant::ZERO);
    b.send(&Message::Heartbeat { number: 1 }, &[], Instant::ZERO);
    let of_a = said(&mut a);
    assert!(matches!(take(&mut a, &of_a), Err(Refusal::Changed { .. })));
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
