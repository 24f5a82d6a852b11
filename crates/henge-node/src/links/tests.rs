//! Parts of places that come and go, held against lists that keep everything.

use super::{Ask, Peer, Sent, Stage, Toward};
use crate::link_config::PeerConfig;
use henge_backend::Buffer;
use henge_core::{Cost, Duration, FlowId, Instant, Op, Request, RequestId};
use henge_link::PartKind;
use henge_vdisk::{Data, GateId, Kind, Part, PartId};
use proptest::prelude::*;

fn ms(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn peer(places: u32) -> Peer {
    let config = PeerConfig { name: "n2".into(), address: "127.0.0.1:1".into(), iscsi: None, nvme: None };
    let mut peer = Peer::new(config, ([127, 0, 0, 1], 1).into());
    for index in 0..places {
        peer.add(Toward::new(&format!("d{index}"), index as usize, 0, 0, 0));
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
    Sent { disk, part, toward, ask, loan, stage, deadline, older: None, newer: None }
}

fn id_of(peer: &Peer, toward: u32, command: u32) -> RequestId {
    let command = RequestId { slot: command, generation: 0 };
    peer.parts_of(toward, &[command]).first().expect("a part that is under way is in its place's chain").0
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
    /// Each part is late once, when its time has come and not before, unless it was over; its place finds it until then.
    #[test]
    fn parts_are_found_and_late_as_if_all_were_looked_at(steps in proptest::collection::vec(step(), 0..200)) {
        let mut peer = peer(3);
        // What is under way: place, command, deadline, and whether it was said to be late.
        let mut under_way: Vec<(u32, u32, u64, bool)> = Vec::new();
        let mut now = 0;
        for (command, step) in (0..).zip(steps) {
            match step {
                Step::Take(place) => {
                    peer.take(part(place, command, now + 50));
                    under_way.push((place, command, now + 50, false));
                }
                Step::Over(n) if !under_way.is_empty() => {
                    let (place, command, ..) = under_way.remove(n % under_way.len());
                    let id = id_of(&peer, place, command);
                    prop_assert!(peer.over(id, Ok(()), Cost::ZERO).is_some());
                }
                Step::Over(_) => {}
                Step::Late(more) => {
                    now += more;
                    let late: Vec<RequestId> =
                        peer.late(ms(now)).into_iter().map(|(id, _)| id).collect();
                    let due = under_way.iter_mut().filter(|(_, _, at, said)| *at <= now && !said);
                    let due: Vec<RequestId> = due.map(|(place, command, _, said)| {
                        *said = true;
                        id_of(&peer, *place, *command)
                    }).collect();
                    prop_assert_eq!(late, due);
                }
            }
            for place in 0..3 {
                let all: Vec<RequestId> =
                    (0..=command).map(|slot| RequestId { slot, generation: 0 }).collect();
                let found = peer.parts_of(place, &all).into_iter().map(|(id, _)| id);
                let kept = under_way.iter().rev().filter(|(at, ..)| *at == place);
                let kept: Vec<RequestId> = kept.map(|(_, c, ..)| id_of(&peer, place, *c)).collect();
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
        assert!(peer.deadlines.len() <= 1100, "{} after {command}", peer.deadlines.len());
    }
    assert_eq!(peer.late(ms(2_000_000)).len(), 1);
}
