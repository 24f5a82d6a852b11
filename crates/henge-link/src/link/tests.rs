//! Ends of different releases.

use super::*;
use crate::features::Speaks;
use crate::{VERSION, feature};

fn identity(name: &str) -> Identity {
    Identity { cluster: "lab".into(), name: name.into(), epoch: 3, secret: b"quarry".to_vec() }
}

/// An end of a release that speaks so, and says `more` behind what this one knows.
fn end(name: &str, speaks: Speaks, more: &[u8]) -> Link {
    let role = if name == "a" { Role::Dialler } else { Role::Dialled };
    let mut link = Link::new(identity(name), role, [name.as_bytes()[0]; 16], Instant::ZERO);
    link.ours = Greeting::new(link.ours.hello.clone(), speaks);
    link.ours.bytes.extend_from_slice(more);
    link.output.clear();
    framed(&link.ours.bytes, 0, &mut link.output);
    link
}

fn speaks(offers: u64, needs: u64) -> Speaks {
    Speaks { release: "7.0.0".into(), offers, needs }
}

fn ours() -> Speaks {
    Speaks::new(feature::ALL, 0)
}

/// What `from` has written, shown to `to`.
fn tell(from: &mut Link, to: &mut Link) -> Result<Vec<LinkEvent>, Refusal> {
    let bytes = std::mem::take(from.output());
    let (mut at, mut heard) = (0, Vec::new());
    while at < bytes.len() {
        let received = to.receive(&bytes[at..], Instant::ZERO)?;
        heard.extend(received.event);
        at += received.len;
    }
    Ok(heard)
}

/// Whether both let each other in.
fn meet(a: &mut Link, b: &mut Link) -> Result<(), Refusal> {
    tell(a, b)?;
    tell(b, a)?;
    tell(a, b)?;
    tell(b, a)?;
    assert!(a.peer().is_some() && b.peer().is_some());
    Ok(())
}

fn ended(from: &mut Link, to: &mut Link) -> usize {
    from.send(&Message::Ended, &[], Instant::ZERO);
    from.send(&Message::Heartbeat { number: 1 }, &[], Instant::ZERO);
    let heard = tell(from, to).unwrap();
    heard.iter().filter(|e| matches!(e, LinkEvent::Message { message: Message::Ended, .. })).count()
}

#[test]
fn an_older_release_is_told_nothing_that_it_does_not_understand() {
    let (mut a, mut b) = (end("a", ours(), b""), end("b", speaks(0, 0), b""));
    meet(&mut a, &mut b).unwrap();
    assert_eq!((ended(&mut a, &mut b), ended(&mut b, &mut a)), (0, 0));
    let (mut a, mut b) = (end("a", ours(), b""), end("b", ours(), b""));
    meet(&mut a, &mut b).unwrap();
    assert_eq!((ended(&mut a, &mut b), ended(&mut b, &mut a)), (1, 1));
}

#[test]
fn what_a_later_release_says_beyond_this_one_is_passed_over() {
    for (a, b) in [("later", "ours"), ("ours", "later")] {
        let one = |name, which| match which {
            "later" => end(name, speaks(u64::MAX, feature::ENDED), b"and more"),
            _ => end(name, ours(), b""),
        };
        let (mut a, mut b) = (one("a", a), one("b", b));
        meet(&mut a, &mut b).unwrap();
        assert_eq!((ended(&mut a, &mut b), ended(&mut b, &mut a)), (1, 1));
    }
}

#[test]
fn a_feature_that_is_needed_and_missing_is_named_by_either_end() {
    for names in [["a", "b"], ["b", "a"]] {
        let [here, later] = names;
        let (mut here, mut later) = (end(here, ours(), b""), end(later, speaks(u64::MAX, 1 << 40), b""));
        let why = tell(&mut later, &mut here).unwrap_err().to_string();
        assert!(why.contains("feature 40") && why.contains("upgrade this end"), "{why}");
        let why = tell(&mut here, &mut later).unwrap_err().to_string();
        assert!(why.contains("feature 40") && why.contains("upgrade the other end"), "{why}");
    }
}

/// Somebody on the way who takes a bit away, or adds one, ends the conversation.
#[test]
fn nobody_on_the_way_changes_what_is_spoken() {
    for changes in ["a", "b"] {
        let (mut a, mut b) = (end("a", ours(), b""), end("b", ours(), b""));
        let other = if changes == "a" { &mut a } else { &mut b };
        let (hello, own) = (other.ours.hello.clone(), other.ours.clone());
        other.output.clear();
        framed(&Greeting::new(hello, speaks(0, 0)).bytes, 0, &mut other.output);
        assert_ne!(own.speaks.offers, 0);
        assert!(matches!(meet(&mut a, &mut b), Err(Refusal::Secret { .. })), "{changes}");
    }
}

/// Version 5 said nothing behind its fixed part.
#[test]
fn a_hello_of_the_version_before_is_named() {
    let mut old = end("b", ours(), b"");
    old.ours.hello.version = VERSION - 1;
    let fixed = postcard::to_allocvec(&old.ours.hello).unwrap();
    old.output.clear();
    framed(&fixed, 0, &mut old.output);
    let refused = tell(&mut old, &mut end("a", ours(), b"")).unwrap_err();
    assert_eq!(refused, Refusal::Version { name: "b".into(), theirs: VERSION - 1, ours: VERSION });
    // Nor does one of this version come without its bits.
    let mut torn = end("b", ours(), b"");
    torn.output.clear();
    framed(&postcard::to_allocvec(&torn.ours.hello).unwrap(), 0, &mut torn.output);
    assert_eq!(tell(&mut torn, &mut end("a", ours(), b"")), Err(Refusal::NotHenge));
}
