//! Parts of extents that come and go, held against lists that keep everything.

use super::extents::Toward;
use super::in_flight::{Ask, Sent, Stage};
use super::{Links, Peer};
use crate::link_config::PeerConfig;
use henge_backend::Buffer;
use henge_core::{Cost, Duration, FlowId, Instant, Op, Request, RequestId};
use henge_link::PartKind;
use henge_vdisk::{Data, Failure, GateId, Kind, Part, PartId};
use proptest::prelude::*;
use std::collections::VecDeque;

fn ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn peer(extents: u32) -> Peer {
    let config = PeerConfig { name: "n2".into(), address: "127.0.0.1:1".into(), iscsi: None, nvme: None };
    let mut peer = Peer::new(config, ([127, 0, 0, 1], 1).into());
    for index in 0..extents {
        peer.add(Toward::new(&format!("d{index}"), index as usize, 0, 0));
    }
    peer
}

fn part(toward: u32, command: u32, deadline: u64) -> Sent {
    let id = PartId { command: RequestId { slot: command, generation: 0 }, index: 0 };
    let request = Request::new(RequestId::default(), FlowId(0), Op::Read, 0, 512, Instant::ZERO);
    let part = Part { id, gate: GateId(0), request, kind: Kind::Read, data: Data::None };
    let ask = Ask { kind: PartKind::Read, offset: 0, len: 512, commands: 1, verify: 0 };
    let (stage, deadline) = (Stage::Waiting, Some(ms(deadline)));
    let (loan, disk) = (Buffer::empty(), toward as usize);
    let unwanted = false;
    Sent { disk, part, toward, ask, loan, stage, unwanted, deadline, older: None, newer: None }
}

fn id_of(peer: &Peer, toward: u32, command: u32) -> RequestId {
    let command = RequestId { slot: command, generation: 0 };
    peer.parts_of(toward, &[command]).first().expect("a part that is under way is in its extent's chain").0
}

/// An extent that is refused fails silently while nobody wants it; the first command that fails by it says why, and no other one.
#[test]
fn a_refusal_is_said_once_commands_fail_by_it() {
    let mut peer = peer(2);
    let mut returns = VecDeque::new();
    peer.refused(0, "it is not named".into(), &mut returns);
    assert!(returns.is_empty());
    let said = peer.complaint(0).expect("the first one");
    assert!(said.contains("\"d0\"") && said.contains("n2") && said.ends_with("it is not named"), "{said}");
    assert_eq!(peer.complaint(0), None);
    assert_eq!(peer.complaint(1), None, "it is not refused");

    peer.take(part(1, 7, 50));
    peer.refused(1, "it is elsewhere".into(), &mut returns);
    assert_eq!(returns.len(), 1, "what waited fails");
    assert!(peer.complaint(1).is_some());
    peer.refused(1, "it is another".into(), &mut returns);
    assert!(peer.complaint(1).is_some_and(|said| said.ends_with("it is another")), "another reason is news");
}

#[derive(Clone, Debug)]
enum Step {
    Take(u32),
    Over(usize),
    Late(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u32..3).prop_map(Step::Take),
        3 => any::<usize>().prop_map(Step::Over),
        1 => (0u64..30).prop_map(Step::Late),
    ]
}

proptest! {
    /// Each part is late once, when its time has come and not before, unless it was over; its extent finds it until then.
    #[test]
    fn parts_are_found_and_late_as_if_all_were_looked_at(steps in proptest::collection::vec(step(), 0..200)) {
        let mut peer = peer(3);
        // What is under way: extent, command, deadline, and whether it was said to be late.
        let mut under_way: Vec<(u32, u32, u64, bool)> = Vec::new();
        let mut now = 0;
        for (command, step) in (0..).zip(steps) {
            match step {
                Step::Take(extent) => {
                    peer.take(part(extent, command, now + 50));
                    under_way.push((extent, command, now + 50, false));
                }
                Step::Over(n) if !under_way.is_empty() => {
                    let (extent, command, ..) = under_way.remove(n % under_way.len());
                    let id = id_of(&peer, extent, command);
                    prop_assert!(peer.over(id, Ok(()), Cost::ZERO).is_some());
                }
                Step::Over(_) => {}
                Step::Late(more) => {
                    now += more;
                    let late: Vec<RequestId> =
                        peer.in_flight.late(ms(now)).into_iter().map(|(id, _)| id).collect();
                    let due = under_way.iter_mut().filter(|(_, _, at, said)| *at <= now && !said);
                    let due: Vec<RequestId> = due.map(|(extent, command, _, said)| {
                        *said = true;
                        id_of(&peer, *extent, *command)
                    }).collect();
                    prop_assert_eq!(late, due);
                }
            }
            for extent in 0..3 {
                let all: Vec<RequestId> =
                    (0..=command).map(|slot| RequestId { slot, generation: 0 }).collect();
                let found = peer.parts_of(extent, &all).into_iter().map(|(id, _)| id);
                let kept = under_way.iter().rev().filter(|(at, ..)| *at == extent);
                let kept: Vec<RequestId> = kept.map(|(_, c, ..)| id_of(&peer, extent, *c)).collect();
                prop_assert_eq!(found.collect::<Vec<_>>(), kept);
            }
        }
    }
}

/// One part that is never answered keeps no more than some deadlines of all that come and go behind it.
#[test]
fn deadlines_behind_a_part_that_stays_do_not_pile_up() {
    let mut peer = peer(1);
    peer.take(part(0, 0, 1_000_000));
    for command in 1..100_000 {
        peer.take(part(0, command, 1_000_000 + u64::from(command)));
        let id = id_of(&peer, 0, command);
        peer.over(id, Ok(()), Cost::ZERO);
        assert!(peer.in_flight.deadlines() <= 1100, "{} after {command}", peer.in_flight.deadlines());
    }
    assert_eq!(peer.in_flight.late(ms(2_000_000)).len(), 1);
}

/// A connection's number.
fn connection(slot: u32) -> RequestId {
    RequestId { slot, generation: 0 }
}

/// Links with one peer, linked by connection 1 in its life 7, with extents attached.
fn linked(extents: u32) -> Links {
    let mut links = Links { peers: vec![Some(peer(extents))], ..Links::default() };
    links.up(0, connection(1), 7);
    for number in 0..extents {
        links.peer(0).attached(number, 2, 1 << 20);
    }
    links
}

/// Parts as they are in an extent, oldest first, with their stages.
fn stages(links: &mut Links, toward: u32, commands: u32) -> Vec<Stage> {
    let all: Vec<RequestId> = (0..commands).map(connection).collect();
    links.peer(0).parts_of(toward, &all).into_iter().rev().map(|(_, stage)| stage).collect()
}

#[test]
fn a_link_that_another_replaces_loses_nothing() {
    for waits in [false, true] {
        let mut links = linked(2);
        for command in 0..5 {
            links.peer(0).take(part(command % 2, command, 1000));
        }
        let compare = Ask { kind: PartKind::CompareAndWrite { fua: false }, ..part(0, 5, 1000).ask };
        links.peer(0).take(Sent { ask: compare, ..part(0, 5, 1000) });
        for number in 0..2 {
            links.peer(0).pump(number);
        }
        // The first of each extent is written, the second queued, the rest wait for credit.
        let sent: Vec<RequestId> = std::iter::from_fn(|| links.peer(0).next()).map(|(id, ..)| id).collect();
        sent.into_iter().for_each(|id| links.peer(0).in_flight.written(id));
        assert_eq!(
            stages(&mut links, 0, 6),
            [Stage::Written, Stage::Written, Stage::Waiting, Stage::Waiting]
        );
        links.peer(0).dialling = Some(connection(2));
        if waits {
            // The other end lets go of the old link before this one has seen the new one.
            assert!(links.wait_for_next(0, connection(1), ms(10)));
            assert!(links.peer(0).link.is_none() && links.returns.is_empty());
        }
        links.replace(0, connection(2), 7, ms(20));
        links.up(0, connection(2), 7);
        assert!(links.returns.is_empty(), "{:?}", links.returns);
        assert_eq!(stages(&mut links, 0, 6), [Stage::Waiting; 4]);
        assert_eq!(stages(&mut links, 1, 6), [Stage::Waiting; 2]);
        for number in 0..2 {
            links.peer(0).attached(number, 8, 1 << 20);
        }
        let again: Vec<RequestId> = std::iter::from_fn(|| links.peer(0).next()).map(|(id, ..)| id).collect();
        let again: Vec<u32> = again.into_iter().map(|id| command_of(&links, id)).collect();
        assert_eq!(again, [0, 2, 4, 5, 1, 3], "each once, in its extent's order");
        let ids: Vec<RequestId> = links.peer(0).in_flight.parts.iter().map(|(id, _)| id).collect();
        for id in ids {
            links.peer(0).in_flight.written(id);
            links.answered(0, super::number(id), henge_link::PartOutcome::Done, Cost::ZERO, ms(30));
        }
        assert!(links.is_idle() || links.returns.iter().all(|back| back.outcome.is_ok()));
        assert_eq!(links.returns.len(), 6);
    }
}

fn command_of(links: &Links, id: RequestId) -> u32 {
    let peer = links.peers[0].as_ref().expect("it is there");
    peer.in_flight.parts.get(id).expect("it is under way").part.id.command.slot
}

#[test]
fn what_may_not_be_done_twice_fails_and_so_does_all_when_the_other_node_began_anew() {
    let compare = |command| {
        let sent = part(0, command, 60_000);
        let kind = PartKind::CompareAndWrite { fua: false };
        Sent { ask: Ask { kind, ..sent.ask }, ..sent }
    };
    let begin = || {
        let mut links = linked(1);
        links.peer(0).take(compare(0));
        links.peer(0).take(part(0, 1, 60_000));
        links.peer(0).pump(0);
        while let Some((id, ..)) = links.peer(0).next() {
            links.peer(0).in_flight.written(id);
        }
        links.peer(0).dialling = Some(connection(2));
        links
    };
    let mut links = begin();
    links.replace(0, connection(2), 7, ms(1));
    links.up(0, connection(2), 7);
    let failed: Vec<u32> = links.returns.iter().map(|back| back.part.id.command.slot).collect();
    assert_eq!((failed, links.peer(0).in_flight.len()), (vec![0], 1));
    // Another life: it may have forgotten what it answered, and what is under way fails as with a link that is lost.
    let mut links = begin();
    assert!(links.wait_for_next(0, connection(1), ms(1)));
    links.replace(0, connection(2), 8, ms(2));
    links.up(0, connection(2), 8);
    assert_eq!((links.returns.len(), links.peer(0).in_flight.len()), (2, 0));
    // No other link comes.
    let mut links = begin();
    assert!(links.wait_for_next(0, connection(1), ms(1)));
    links.tick(ms(1999), &mut Vec::new());
    assert!(links.lost.is_empty() && links.returns.is_empty());
    links.tick(ms(2001), &mut Vec::new());
    assert_eq!(links.lost, [0]);
    links.down(0, "a test", ms(2001));
    assert_eq!(links.returns.len(), 1, "the read; what may have changed something is in doubt");
    // One that nobody is to replace is lost at once.
    let mut links = begin();
    links.peer(0).dialling = None;
    assert!(!links.wait_for_next(0, connection(1), ms(1)));
}

/// Which byte differs is a peer's word: no other place than one that was asked about reaches a client's command.
#[test]
fn a_peer_says_of_no_byte_that_differs_but_of_those_it_was_to_compare() {
    let compares = PartKind::CompareAndWrite { fua: false };
    let io = Failure::Fault(henge_core::Fault::Io);
    for (kind, at, expected) in [
        (compares, 511, Failure::Miscompare { at: 4096 + 511 }),
        (compares, 512, io),
        (compares, u64::MAX, io),
        (PartKind::Read, 0, io),
    ] {
        let mut links = linked(1);
        let ask = Ask { kind, verify: 4096, ..part(0, 0, 60_000).ask };
        links.peer(0).take(Sent { ask, ..part(0, 0, 60_000) });
        links.peer(0).pump(0);
        let (id, ..) = links.peer(0).next().expect("it was taken");
        links.peer(0).in_flight.written(id);
        links.answered(0, super::number(id), henge_link::PartOutcome::Miscompare(at), Cost::ZERO, ms(1));
        assert_eq!(links.returns[0].outcome, Err(expected), "{kind:?} at {at}");
    }
}
