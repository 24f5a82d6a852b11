//! Copies under any faults: what is settled is in force wherever anybody acts, and all goes on once faults are over.

use henge_core::{Duration, Instant};
use henge_link::Message;
use henge_link::copies::{KEPT, LEASE, LeaseOwner, Replica};
use proptest::prelude::*;
use std::collections::VecDeque;

const DISK: &str = "web";
const HOLDERS: usize = 3;
const STEP: Duration = Duration::from_millis(50);

/// A replica's node, and its link to the owner.
struct End {
    replica: Replica,
    /// What it acts by: changes are numbered.
    acts_by: u64,
    /// A copy whose drain is not over.
    draining: Option<(u64, Instant)>,
    up: bool,
    /// Bytes wait in the cable while it is stalled.
    stalled: bool,
    to_owner: VecDeque<Message>,
    from_owner: VecDeque<Message>,
    /// How long what was begun before takes to be over.
    drain: Duration,
}

struct World {
    now: Instant,
    owner: LeaseOwner,
    epoch: u64,
    /// The last change: kept on the owner's disk.
    text: u64,
    /// Of that, what was answered.
    settled: u64,
    ends: Vec<End>,
}

impl World {
    fn new() -> World {
        let end = |_| End {
            replica: Replica::new(),
            acts_by: 0,
            draining: None,
            up: false,
            stalled: false,
            to_owner: VecDeque::new(),
            from_owner: VecDeque::new(),
            drain: Duration::ZERO,
        };
        let mut world = World {
            now: Instant::ZERO,
            owner: LeaseOwner::new(1),
            epoch: 1,
            text: 1,
            settled: 0,
            ends: (0..HOLDERS).map(end).collect(),
        };
        world.owner.add(DISK, "1".into(), world.now);
        for end in &mut world.ends {
            end.replica.add(DISK, 0, false, world.now);
        }
        (0..HOLDERS).for_each(|i| world.mend(i));
        world
    }

    fn cut(&mut self, i: usize) {
        let end = &mut self.ends[i];
        end.up = false;
        end.to_owner.clear();
        end.from_owner.clear();
        end.replica.unlinked(0);
    }

    fn mend(&mut self, i: usize) {
        self.cut(i);
        let end = &mut self.ends[i];
        (end.up, end.stalled) = (true, false);
        end.replica.linked(0, self.now);
    }

    fn restart_owner(&mut self) {
        self.epoch += 1_000_000;
        self.owner = LeaseOwner::new(self.epoch);
        self.owner.add(DISK, self.text.to_string(), self.now);
        (0..HOLDERS).for_each(|i| self.cut(i));
    }

    fn restart_holder(&mut self, i: usize) {
        self.cut(i);
        self.ends[i].replica = Replica::new();
        self.ends[i].replica.add(DISK, 0, false, self.now);
        (self.ends[i].acts_by, self.ends[i].draining) = (0, None);
    }

    fn change(&mut self) {
        if self.owner.is_settled(DISK, self.now) {
            self.text += 1;
            self.owner.change(DISK, self.text.to_string());
        }
    }

    fn send(&mut self) {
        while let Some((peer, message)) = self.owner.next_message() {
            let end = &mut self.ends[peer as usize];
            if end.up {
                end.from_owner.push_back(message);
            }
        }
        for end in &mut self.ends {
            while let Some((_, message)) = end.replica.next_message() {
                if end.up {
                    end.to_owner.push_back(message);
                }
            }
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        self.owner.tick(now);
        for (i, end) in self.ends.iter_mut().enumerate() {
            end.replica.tick(now);
            if let Some((version, _)) = end.draining.filter(|(_, until)| *until <= now) {
                end.draining = None;
                end.replica.seen(DISK, version);
            }
            if end.stalled || !end.up {
                continue;
            }
            for message in std::mem::take(&mut end.to_owner) {
                self.owner.heard(i as u32, &message, now);
            }
            for message in std::mem::take(&mut end.from_owner) {
                let Some(copy) = end.replica.heard(0, &message) else { continue };
                assert_eq!(copy.thing, DISK);
                let number: u64 = copy.text.parse().expect("a change's number");
                assert!(number >= end.acts_by, "never back");
                if number > end.acts_by || end.draining.is_none() {
                    end.draining = Some((copy.version, now + end.drain));
                }
                end.acts_by = number;
            }
        }
        self.send();
        if self.owner.is_settled(DISK, now) {
            self.settled = self.text;
        }
        self.check();
    }

    fn check(&self) {
        for (i, end) in self.ends.iter().enumerate() {
            let good = end.replica.is_good(DISK, self.now);
            assert!(
                !good || end.acts_by >= self.settled,
                "replica {i} acts by {} when {} is settled",
                end.acts_by,
                self.settled
            );
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(u16),
    Change,
    Cut(usize),
    Mend(usize),
    Stall(usize),
    Flow(usize),
    Slow(usize, u16),
    RestartOwner,
    RestartHolder(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..HOLDERS;
    prop_oneof![
        6 => (1u16..60).prop_map(Step::Wait),
        6 => Just(Step::Change),
        2 => which.clone().prop_map(Step::Cut),
        3 => which.clone().prop_map(Step::Mend),
        2 => which.clone().prop_map(Step::Stall),
        2 => which.clone().prop_map(Step::Flow),
        1 => (which.clone(), 0u16..3000).prop_map(|(i, ms)| Step::Slow(i, ms)),
        1 => Just(Step::RestartOwner),
        1 => which.prop_map(Step::RestartHolder),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn what_is_settled_is_in_force_wherever_anybody_acts(
        events in proptest::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new();
        for event in events {
            match event {
                Step::Wait(steps) => (0..steps).for_each(|_| world.step()),
                Step::Change => world.change(),
                Step::Cut(i) => world.cut(i),
                Step::Mend(i) => world.mend(i),
                Step::Stall(i) => world.ends[i].stalled = true,
                Step::Flow(i) => world.ends[i].stalled = false,
                Step::Slow(i, ms) => world.ends[i].drain = Duration::from_millis(ms.into()),
                Step::RestartOwner => world.restart_owner(),
                Step::RestartHolder(i) => world.restart_holder(i),
            }
            world.send();
            world.step();
        }
        // Faults are over: all act again, by the last change.
        for i in 0..HOLDERS {
            world.ends[i].drain = Duration::ZERO;
            if !world.ends[i].up || world.ends[i].stalled {
                world.mend(i);
            }
        }
        (0..300).for_each(|_| world.step());
        prop_assert_eq!(world.settled, world.text);
        for end in &world.ends {
            prop_assert!(end.replica.is_good(DISK, world.now));
            prop_assert_eq!(end.acts_by, world.text);
        }
    }
}

/// The module's worked example, with its figures.
#[test]
fn a_change_waits_for_a_holder_that_is_cut_off_until_that_has_stopped() {
    let mut world = World::new();
    (0..200).for_each(|_| world.step()); // ten seconds: the owner's own first ones are over
    assert_eq!(world.settled, 1);
    world.cut(0);
    let cut = world.now;
    world.change();
    world.send();
    while world.ends[0].replica.is_good(DISK, world.now) {
        world.step();
        assert_eq!(world.settled, 1, "not while the first one acts by the old text");
    }
    let stopped = world.now.since(cut);
    assert!(stopped <= LEASE && stopped >= Duration::from_secs(2), "{stopped:?}");
    while world.settled == 1 {
        world.step();
    }
    let settled = world.now.since(cut);
    assert!(settled > stopped && settled.as_nanos() <= KEPT.as_nanos() + STEP.as_nanos(), "{settled:?}");
    assert_eq!(world.ends[1].acts_by, 2, "the others go on");
    assert!(world.ends[1].replica.is_good(DISK, world.now));
    world.mend(0);
    (0..10).for_each(|_| world.step());
    assert!(world.ends[0].replica.is_good(DISK, world.now));
    assert_eq!(world.ends[0].acts_by, 2);
}

#[test]
fn long_texts_travel_in_pieces_and_too_long_ones_do_not_arrive() {
    let now = Instant::ZERO;
    for (len, arrives) in [(0, true), (100_000, true), (3 << 20, false)] {
        let (mut owner, mut replica) = (LeaseOwner::new(1), Replica::new());
        let text: String = "é".repeat(len / 2);
        owner.add(DISK, text.clone(), now);
        replica.add(DISK, 0, true, now);
        let mut arrived = None;
        while let Some((_, message)) = replica.next_message() {
            owner.heard(0, &message, now);
        }
        while let Some((_, message)) = owner.next_message() {
            arrived = replica.heard(0, &message).or(arrived);
        }
        assert_eq!(arrived.map(|copy| copy.text), arrives.then_some(text));
    }
}

/// What goes from owner to owner: a replica is heeded from its word on that it has seen this owner's text, and no longer than its term lasts.
#[test]
fn of_a_thing_that_was_taken_a_replica_is_heeded_once_it_has_seen_it() {
    let (mut owner, now) = (LeaseOwner::new(1), Instant::ZERO);
    let acting = |owner: &mut LeaseOwner| std::iter::from_fn(|| owner.next_acting()).collect::<Vec<_>>();
    let version = |owner: &mut LeaseOwner| {
        let all = std::iter::from_fn(|| owner.next_message());
        all.filter_map(|(_, m)| if let Message::Copy { version, .. } = m { Some(version) } else { None })
            .last()
    };
    let watch = Message::Watch { thing: DISK.into() };
    let seen = |version| Message::Seen { thing: DISK.into(), version };
    owner.take(DISK, "1".into());
    assert!(owner.is_settled(DISK, now), "nobody is waited for");
    owner.heard(2, &watch, now);
    let first = version(&mut owner).expect("a copy");
    assert!(!owner.is_settled(DISK, now) && acting(&mut owner).is_empty());
    owner.heard(2, &seen(first), now);
    assert_eq!(acting(&mut owner), [(DISK.to_owned(), 2, true)]);
    owner.change(DISK, "2".into());
    let second = version(&mut owner).expect("a copy");
    owner.heard(2, &seen(second), now);
    assert!(acting(&mut owner).is_empty(), "it acts as before");
    // Another one has it, and this one again: what the replica said of the tenure before is no word on this one.
    owner.remove(DISK);
    owner.take(DISK, "9".into());
    owner.heard(2, &watch, now);
    owner.heard(2, &seen(second), now);
    assert!(acting(&mut owner).is_empty());
    let third = version(&mut owner).expect("a copy");
    owner.heard(2, &seen(third), now);
    assert_eq!(acting(&mut owner), [(DISK.to_owned(), 2, true)]);
    // Silent for so long that it has stopped, it is heeded no more.
    owner.tick(now + KEPT);
    assert_eq!(acting(&mut owner), [(DISK.to_owned(), 2, false)]);
}
