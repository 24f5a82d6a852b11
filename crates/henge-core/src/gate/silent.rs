//! Requests that are silent for long give their slots back.
//!
//! # The problem
//! Storage can leave some requests without an answer for seconds, while it answers others at once: over a network those of a disk whose
//! server hangs, in a file system those that need its journal. They fill the depth. Then everybody stands still for them.
//!
//! # The rule
//! While the depth is used up and something waits, the gate looks at what is in flight, the oldest first, ten times in a patience. A request
//! is silent when it has been in flight for longer than the patience
//!
//! > P = max(P₀, 20·p99)
//!
//! where P₀ is configured and p99 is the service time that one read or write in a hundred exceeds. A request of a flow that has silent ones
//! already is silent after P/10. A silent request goes on, beside the depth. Its slot is another's.
//!
//! At most n requests are silent at once:
//!
//! > n = 4 + 4·⌊4t/P⌋ + 2·o
//!
//! where t is the time since some are, and o counts answers meanwhile that overtook the oldest of them: to requests dispatched after it. So storage
//! that is slow, or a whole device that pauses, is given little beyond its depth: there nobody overtakes.
//!
//! p99 is tracked by steps: up by 99/800 of itself and 1/800 of the request's time where a request takes longer, down by 1/800 where it does not. So it
//! rests where one in a hundred takes longer. A silent one makes P as long as it took itself, and no longer: a slow device is soon known for one, and
//! a server that hung for a minute is forgotten after some thousand answers. Two kinds of requests teach nothing, since they do not tell of the
//! device:
//!
//! - Holes, zeroes and syncs. They may need a file system's journal, while reads and writes are quick. Holes of 0.2 s each would make P 4 s.
//! - What 8 times as many answers as there are requests in flight have overtaken.
//!
//! # Example
//! Depth 32, P₀ = 1 s. Tenant A has 64 outstanding, and its server hangs; B has 4 on a server that does not. A's requests fill the depth
//! within milliseconds, and B stands still. After 1 s four of the 32 go beside, and B's four requests are dispatched. Each of their answers overtakes,
//! and lets two more go. Once eight of A's are silent, the rest of its 64 takes no slot any more. Then B has what A's 24 requests leave of the depth,
//! and soon all of it, until A's server answers: completions of what was silent take no slot from anybody.
//!
//! # Guarantee
//! At most [`Gate::SILENT`](super::Gate::SILENT) requests are silent at once, and where nobody overtakes, sixteen more in each patience; of one flow, as
//! many as [`stall`](super::stall) lets it have. Nothing is given up, answered twice, or counted twice.
//!
//! # Price
//! A list through the states, in the order of dispatch: constant time for each request. A look costs as many steps as requests are older than
//! P/10, which is none while storage is well.

use super::RequestState;
use crate::{Duration, FlowId, Instant, Op, Request};
use std::collections::VecDeque;

/// Nobody.
pub(super) const NONE: u32 = u32::MAX;
/// How many looks there are in a patience, and how much less patience a flow gets that has silent requests.
const LOOKS: u64 = 10;
/// Patience in service times that one request in a hundred exceeds.
const TIMES: u64 = 20;
/// Requests that are silent at once where nobody overtakes them, as many more in each of these parts of a patience, and how many more for each that
/// does.
const PROBES: u64 = 4;
const PARTS: u64 = 4;
const MORE: u64 = 2;
/// A request tells nothing of the device that was overtaken by so many times as many as there are in flight.
const LAPS: u32 = 8;

/// Neighbours in the order of dispatch, by slot.
#[derive(Clone, Copy)]
pub(super) struct Links {
    pub older: u32,
    pub newer: u32,
}

/// Requests in flight, in the order of dispatch.
#[derive(Clone, Copy)]
pub(super) struct Line {
    pub oldest: u32,
    newest: u32,
}

/// What is in flight, and how long it may be.
pub(super) struct Watch {
    /// None: nothing is ever silent.
    pub least: Option<Duration>,
    /// What has a slot, and what has given it back.
    pub line: Line,
    pub silent: Line,
    /// Since when something is silent, and how many answers have overtaken the oldest since.
    since: Instant,
    overtook: u64,
    /// Requests that were answered.
    pub answers: u32,
    /// The service time that one in a hundred exceeds, in nanoseconds.
    p99_ns: u64,
    pub look_at: Instant,
    /// Flows of which something that is stalled may go ([`stall`](super::stall)), and whether the last slot was such a one's.
    pub resuming: VecDeque<FlowId>,
    pub resumed: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            least: None,
            line: Line::EMPTY,
            silent: Line::EMPTY,
            since: Instant::ZERO,
            overtook: 0,
            answers: 0,
            p99_ns: 0,
            look_at: Instant::ZERO,
            resuming: VecDeque::new(),
            resumed: false,
        }
    }
}

impl Watch {
    /// Patience with a request, and with one of a flow that has silent ones.
    pub(super) fn patience(&self) -> Option<(Duration, Duration)> {
        let least = self.least?;
        let long = least.max(Duration::from_nanos(self.p99_ns.saturating_mul(TIMES)));
        Some((long, Duration::from_nanos((long.as_nanos() / LOOKS).max(1))))
    }

    /// A look begins: how many may be silent at once, of which some are.
    pub(super) fn look(&mut self, (long, short): (Duration, Duration), some: bool, now: Instant) -> u32 {
        self.look_at = now + short;
        if !some {
            (self.since, self.overtook) = (now, 0);
        }
        let parts = now.since(self.since).as_nanos() / (long.as_nanos() / PARTS).max(1);
        let most =
            PROBES.saturating_mul(parts.saturating_add(1)).saturating_add(MORE.saturating_mul(self.overtook));
        most.min(super::Gate::SILENT.into()) as u32
    }

    /// A request is answered: whether how long that took says something of the device. `before`: answers when it was dispatched.
    pub(super) fn tells(&mut self, request: &Request, before: u32, in_flight: u32) -> bool {
        self.answers = self.answers.wrapping_add(1);
        let overtaken = self.answers.wrapping_sub(before) > LAPS.saturating_mul(in_flight.saturating_add(1));
        matches!(request.op, Op::Read | Op::Write) && !request.fua && !overtaken
    }

    /// It had a slot until then. `overtook`: before one that is silent and was dispatched earlier.
    pub(super) fn answered(&mut self, service: Duration, tells: bool, overtook: bool) {
        self.overtook += u64::from(overtook);
        if tells {
            self.learn(service);
        }
    }

    /// It was silent until then.
    pub(super) fn silent_answered(&mut self, service: Duration, tells: bool) {
        if tells {
            self.p99_ns = self.p99_ns.max(service.as_nanos() / TIMES);
        }
    }

    fn learn(&mut self, service: Duration) {
        let (p99, service) = (self.p99_ns, service.as_nanos());
        self.p99_ns = if service > p99 {
            p99.saturating_add(p99 / 800 * 99).saturating_add(service / 800 + 1).min(service)
        } else {
            p99 - p99 / 800
        };
    }
}

impl Line {
    const EMPTY: Line = Line { oldest: NONE, newest: NONE };

    /// The newest from now on.
    pub(super) fn append(&mut self, states: &mut [RequestState], slot: u32) -> Links {
        let links = Links { older: self.newest, newer: NONE };
        match links.older {
            NONE => self.oldest = slot,
            older => set(states, older, |links| links.newer = slot),
        }
        self.newest = slot;
        links
    }

    /// Not watched any more.
    pub(super) fn unlink(&mut self, states: &mut [RequestState], links: Links) {
        match links.older {
            NONE => self.oldest = links.newer,
            older => set(states, older, |other| other.newer = links.newer),
        }
        match links.newer {
            NONE => self.newest = links.older,
            newer => set(states, newer, |other| other.older = links.older),
        }
    }
}

fn set(states: &mut [RequestState], slot: u32, change: impl FnOnce(&mut Links)) {
    let RequestState::InFlight { links, .. } = &mut states[slot as usize] else {
        panic!("what is in the list is in flight");
    };
    change(links);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracked_time_rests_where_one_in_a_hundred_takes_longer() {
        let mut watch = Watch { least: Some(Duration::from_millis(1)), ..Watch::default() };
        // Service times of 1, 2, …, 100 ms in an order that visits all: 99 ms is exceeded by one in a hundred.
        for i in 0..20_000u64 {
            watch.learn(Duration::from_millis(1 + i * 37 % 100));
        }
        let ms = watch.p99_ns / 1_000_000;
        assert!((95..=100).contains(&ms), "{ms} ms");
        let (long, short) = watch.patience().unwrap();
        assert_eq!(long, Duration::from_nanos(watch.p99_ns * 20));
        assert_eq!(short, Duration::from_nanos(watch.p99_ns * 2));
    }

    #[test]
    fn nothing_is_silent_where_nobody_says_so_and_the_least_holds() {
        assert!(Watch::default().patience().is_none());
        let watch = Watch { least: Some(Duration::from_secs(1)), ..Watch::default() };
        assert_eq!(watch.patience(), Some((Duration::from_secs(1), Duration::from_millis(100))));
    }
}
