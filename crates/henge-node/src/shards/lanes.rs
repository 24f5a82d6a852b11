//! Sub-requests that go from one shard to another, and their answers.
//!
//! # The problem
//! A disk may lie on pools of two shards, and a pool may have more clients than one loop can talk to. A gate belongs to one loop all the same:
//! its order is worth nothing if two loops give it.
//!
//! # The rule
//! Between each two shards there are two *lanes*, one for each direction: a ring with one producer and one consumer, without a lock. A
//! sub-request goes over it with the command's own memory on loan, so that nothing is copied. The answer comes back the other way, and with it the
//! loan. Whoever is awake looks into its lanes in each round, and whoever sleeps is woken (`inbox.rs`).
//!
//! A wake-up costs its waker more than a small request. So whoever answers wakes a sleeper once for several answers:
//! - when at least as many answers are there as are still to come, or [`ANSWERS`];
//! - in the first round that begins [`PATIENCE`] after the first of them;
//! - before it sleeps itself.
//!
//! # Example
//! A shard has 18 sub-requests at a gate whose loop is busy. It sleeps, and is woken when 9 are answered, or after 50 us. A shard that has one
//! there is woken for its answer at once.
//!
//! # Bounds
//! A ring has [`PLACES`] places. What finds none waits at the sender, in order. Of those there are at most as many as a disk may have
//! [under way](crate::links::PARTS_MAX), as with owners on the same shard.
//!
//! # Price
//! Some 0.1 us for each crossing, one atomic operation for each lane in each round in which something was said, and an eventfd
//! where the other one sleeps. Of several answers to a sleeper the first may wait for [`PATIENCE`] and two rounds of a busy loop.

use super::inbox::{Inbox, bit};
use henge_backend::Buffer;
use henge_core::{Cost, Duration, Instant, RequestId};
use henge_vdisk::{Command, Failure};
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What a lane holds before its sender keeps the rest.
const PLACES: usize = 256;

/// So many answers wake whoever sleeps, however many are still to come.
const ANSWERS: u32 = 32;
/// From when on it is woken by the next round of its waker, however few answers there are.
const PATIENCE: Duration = Duration::from_micros(50);

/// What is said by one shard to another.
#[derive(Debug)]
pub(crate) enum Crossing {
    /// A sub-request for an owner there, with its memory on loan, and its name here.
    Part { owner: usize, command: Command, frame: Buffer, id: RequestId },
    /// It is over.
    Done { id: RequestId, outcome: Result<(), Failure>, cost: Cost, frame: Buffer },
    /// Nobody waits for these any more.
    Abort { owner: usize, ids: Vec<RequestId> },
    /// Its flow was served so much at other extents.
    Foreign { owner: usize, service: Cost },
}

/// The lanes to and from one other shard.
struct Lane {
    out: Producer<Crossing>,
    into: Consumer<Crossing>,
    /// What found no place in the ring.
    behind: VecDeque<Crossing>,
    /// It was said something since the other one was told.
    spoke: bool,
    /// Sub-requests of the other one that have come, and are not answered.
    owed: u32,
    /// Answers since the other one was last awake, as far as is known here.
    answered: u32,
    /// Since when it has slept over something said.
    asleep: Option<Instant>,
    bell: Bell,
}

/// What wakes a shard.
struct Bell {
    /// The shard that rings.
    here: usize,
    inbox: Arc<Inbox>,
    wake: Arc<OwnedFd>,
}

impl Bell {
    /// Wakes it, unless it has woken by itself.
    fn ring(&self) {
        if self.inbox.sleeps_over(self.here) {
            // A counter that is full wakes as well.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

impl Lane {
    /// Whether the other one is to be woken now.
    fn is_to_wake(&self, now: Instant) -> bool {
        let answers = self.answered >= self.owed.min(ANSWERS);
        answers || !self.behind.is_empty() || self.asleep.is_some_and(|since| now.since(since) >= PATIENCE)
    }

    /// Wakes the other one, if it sleeps.
    fn rouse(&mut self) {
        self.answered = 0;
        if self.asleep.take().is_some() {
            self.bell.ring();
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.rouse();
    }
}

/// The lanes of one shard. A node of one has none.
#[derive(Default)]
pub(crate) struct Lanes {
    here: usize,
    /// By shard; none to itself.
    lanes: Vec<Option<Lane>>,
    inbox: Arc<Inbox>,
    /// The bits of those whose lanes are to be looked at.
    heard: u64,
    /// Whose lane is looked at next.
    next: usize,
    /// To whom something was said.
    spoken: Vec<usize>,
    /// Who sleeps, and is to be woken for what was said.
    sleepers: Vec<usize>,
}

impl Lanes {
    /// Those of all shards, of which each is woken by writing there.
    pub(crate) fn between(wakes: &[Arc<OwnedFd>]) -> Vec<Lanes> {
        let count = wakes.len();
        let inboxes: Vec<Arc<Inbox>> = wakes.iter().map(|_| Arc::default()).collect();
        let none = || (0..count).map(|_| None).collect::<Vec<Option<Lane>>>();
        let mut all: Vec<Lanes> = inboxes
            .iter()
            .enumerate()
            .map(|(here, inbox)| Lanes { here, lanes: none(), inbox: Arc::clone(inbox), ..Lanes::default() })
            .collect();
        let lane = |here: usize, to: usize, out, into| Lane {
            out,
            into,
            behind: VecDeque::new(),
            spoke: false,
            owed: 0,
            answered: 0,
            asleep: None,
            bell: Bell { here, inbox: Arc::clone(&inboxes[to]), wake: Arc::clone(&wakes[to]) },
        };
        for one in 0..count {
            for other in one + 1..count {
                let (there, here) = (RingBuffer::new(PLACES), RingBuffer::new(PLACES));
                all[one].lanes[other] = Some(lane(one, other, there.0, here.1));
                all[other].lanes[one] = Some(lane(other, one, here.0, there.1));
            }
        }
        all
    }

    /// How many shards there are.
    pub(crate) fn count(&self) -> usize {
        self.lanes.len().max(1)
    }

    /// Says something to another shard, which hears of it by [`tell`](Self::tell). It comes back where that shard has ended.
    pub(crate) fn send(&mut self, to: usize, crossing: Crossing) -> Result<(), Crossing> {
        let lane = self.lanes[to].as_mut().expect("nobody crosses to where it is");
        if lane.out.is_abandoned() {
            return Err(crossing);
        }
        let is_answer = matches!(crossing, Crossing::Done { .. });
        lane.owed -= u32::from(is_answer);
        // What is no answer counts as many: it waits for no other.
        lane.answered = lane.answered.saturating_add(if is_answer { 1 } else { ANSWERS });
        let kept = match lane.behind.is_empty() {
            true => lane.out.push(crossing).err().map(|PushError::Full(crossing)| crossing),
            false => Some(crossing),
        };
        lane.behind.extend(kept);
        if !std::mem::replace(&mut lane.spoke, true) {
            self.spoken.push(to);
        }
        Ok(())
    }

    /// Tells those to whom something was said. Who sleeps is woken now, or in a later round.
    pub(crate) fn tell(&mut self, now: Instant) {
        let (here, lanes, sleepers) = (self.here, &mut self.lanes, &mut self.sleepers);
        self.spoken.retain(|to| {
            let lane = lanes[*to].as_mut().expect("something was said to it");
            while let Some(crossing) = lane.behind.pop_front() {
                if let Err(PushError::Full(crossing)) = lane.out.push(crossing) {
                    lane.behind.push_front(crossing);
                    break;
                }
            }
            match lane.bell.inbox.spoke(here) {
                false => lane.answered = 0,
                true if lane.asleep.is_none() => {
                    lane.asleep = Some(now);
                    sleepers.push(*to);
                }
                true => {}
            }
            lane.spoke = !lane.behind.is_empty();
            lane.spoke
        });
        self.sleepers.retain(|to| {
            let lane = self.lanes[*to].as_mut().expect("something was said to it");
            let wakes = lane.is_to_wake(now);
            if wakes {
                lane.rouse();
            }
            !wakes
        });
    }

    /// Wakes everybody who sleeps and was said something.
    pub(crate) fn rouse(&mut self) {
        for to in self.sleepers.drain(..) {
            self.lanes[to].as_mut().expect("something was said to it").rouse();
        }
    }

    /// Whether something found no place, and is to be [told](Self::tell) soon.
    pub(crate) fn is_behind(&self) -> bool {
        !self.spoken.is_empty()
    }

    /// Whether something has come.
    pub(crate) fn has_input(&self) -> bool {
        self.heard != 0
    }

    /// The next that has come, from whom. Of several that speak, each in its turn.
    pub(crate) fn next(&mut self) -> Option<(usize, Crossing)> {
        self.heard |= self.inbox.heard();
        if self.heard == 0 {
            return None;
        }
        let count = self.lanes.len();
        for from in (0..count).map(|n| (self.next + n) % count) {
            let heard = self.heard & bit(from) != 0;
            let Some(lane) = self.lanes[from].as_mut().filter(|_| heard) else { continue };
            if let Ok(crossing) = lane.into.pop() {
                lane.owed += u32::from(matches!(crossing, Crossing::Part { .. }));
                self.next = (from + 1) % count;
                return Some((from, crossing));
            }
        }
        self.heard = 0;
        None
    }

    /// Its loop is about to sleep. False when there is something to be looked at first.
    pub(crate) fn sleep(&mut self) -> bool {
        let sleeps = self.lanes.is_empty() || self.heard == 0 && self.inbox.sleep();
        if sleeps {
            self.rouse();
        }
        sleeps
    }

    /// Its loop is awake.
    pub(crate) fn awake(&self) {
        if !self.lanes.is_empty() {
            self.inbox.awake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_vdisk::Kind;
    use rustix::event::{EventfdFlags, eventfd};

    fn wake() -> Arc<OwnedFd> {
        Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap())
    }

    fn told(wake: &OwnedFd) -> bool {
        rustix::io::read(wake, &mut [0; 8]).is_ok()
    }

    fn foreign(n: usize) -> Crossing {
        Crossing::Foreign { owner: n, service: Cost::ZERO }
    }

    fn owner(crossing: &Crossing) -> usize {
        let Crossing::Foreign { owner, .. } = crossing else { panic!("{crossing:?}") };
        *owner
    }

    #[test]
    fn what_finds_no_place_waits_in_order_and_only_who_sleeps_is_woken() {
        let wakes = [wake(), wake(), wake()];
        let mut all = Lanes::between(&wakes);
        let [a, b, c] = &mut all[..] else { panic!() };
        (0..PLACES + 50).for_each(|n| a.send(1, foreign(n)).unwrap());
        a.tell(Instant::ZERO);
        assert!(a.is_behind() && !told(&wakes[1]), "it is awake");
        assert!(!b.sleep(), "something is there");
        c.send(1, foreign(7)).unwrap();
        c.tell(Instant::ZERO);
        let (mut from_a, mut from_c) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            while let Some((from, crossing)) = b.next() {
                if from == 0 { &mut from_a } else { &mut from_c }.push(owner(&crossing));
            }
            a.tell(Instant::ZERO);
        }
        assert_eq!((from_a, from_c), ((0..PLACES + 50).collect(), vec![7]));
        assert!(!a.is_behind() && b.next().is_none() && b.sleep());
        a.send(1, foreign(8)).unwrap();
        a.tell(Instant::ZERO);
        assert!(told(&wakes[1]) && !told(&wakes[0]) && !told(&wakes[2]));
        b.awake();
        assert_eq!(b.next().map(|(from, crossing)| (from, owner(&crossing))), Some((0, 8)));
        // To one that has ended nothing is said.
        drop(all.remove(1));
        assert!(all[0].send(1, foreign(9)).is_err());
    }

    /// Two shards, of which the first has so many sub-requests at the second, and sleeps; and what wakes it.
    fn asked(parts: u32) -> (Lanes, Lanes, Arc<OwnedFd>) {
        let wakes = [wake(), wake()];
        let mut all = Lanes::between(&wakes);
        let (mut gate, mut asks) = (all.remove(1), all.remove(0));
        for slot in 0..parts {
            let command = Command::new(Kind::Read, 0, 0, Instant::ZERO, 0);
            let id = RequestId { slot, generation: 0 };
            asks.send(1, Crossing::Part { owner: 0, command, frame: Buffer::empty(), id }).unwrap();
        }
        asks.tell(Instant::ZERO);
        assert!(asks.sleep() && std::iter::from_fn(|| gate.next()).count() as u32 == parts);
        (asks, gate, Arc::clone(&wakes[0]))
    }

    fn answer(gate: &mut Lanes, now: Instant) {
        let (id, frame) = (RequestId { slot: 0, generation: 0 }, Buffer::empty());
        gate.send(0, Crossing::Done { id, outcome: Ok(()), cost: Cost::ZERO, frame }).unwrap();
        gate.tell(now);
    }

    #[test]
    fn who_sleeps_is_woken_once_for_half_of_its_answers_and_at_once_for_the_only_one() {
        let (_asks, mut gate, wake) = asked(18);
        (0..8).for_each(|_| answer(&mut gate, Instant::ZERO));
        assert!(!told(&wake), "more is to come");
        answer(&mut gate, Instant::ZERO);
        assert!(told(&wake), "as many are there as are to come");
        let (_asks, mut gate, wake) = asked(1);
        answer(&mut gate, Instant::ZERO);
        assert!(told(&wake));
        let (_asks, mut gate, wake) = asked(200);
        (1..ANSWERS).for_each(|_| answer(&mut gate, Instant::ZERO));
        assert!(!told(&wake));
        answer(&mut gate, Instant::ZERO);
        assert!(told(&wake), "there are many");
        let (_asks, mut gate, wake) = asked(18);
        gate.send(0, foreign(0)).unwrap();
        gate.tell(Instant::ZERO);
        assert!(told(&wake), "it is no answer");
    }

    #[test]
    fn few_answers_wait_for_a_bounded_time_and_not_while_their_sender_sleeps_or_has_ended() {
        let (_asks, mut gate, wake) = asked(18);
        answer(&mut gate, Instant::ZERO);
        gate.tell(Instant::ZERO + PATIENCE - Duration::from_nanos(1));
        assert!(!told(&wake));
        gate.tell(Instant::ZERO + PATIENCE);
        assert!(told(&wake));
        let (_asks, mut gate, wake) = asked(18);
        answer(&mut gate, Instant::ZERO);
        assert!(gate.sleep() && told(&wake));
        let (_asks, mut gate, wake) = asked(18);
        answer(&mut gate, Instant::ZERO);
        drop(gate);
        assert!(told(&wake));
    }

    #[test]
    fn who_has_woken_by_itself_is_not_woken() {
        let (mut asks, mut gate, wake) = asked(18);
        answer(&mut gate, Instant::ZERO);
        asks.awake();
        assert!(asks.next().is_some() && asks.next().is_none() && asks.sleep());
        gate.tell(Instant::ZERO + PATIENCE);
        assert!(!told(&wake), "it has heard everything");
    }

    #[test]
    fn several_that_speak_have_turns() {
        let wakes = [wake(), wake(), wake()];
        let mut all = Lanes::between(&wakes);
        for from in [1, 2] {
            (0..3).for_each(|n| all[from].send(0, foreign(n)).unwrap());
            all[from].tell(Instant::ZERO);
        }
        let mut order = Vec::new();
        while let Some((from, crossing)) = all[0].next() {
            order.push((from, owner(&crossing)));
        }
        assert_eq!(order, [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2)]);
    }
}
