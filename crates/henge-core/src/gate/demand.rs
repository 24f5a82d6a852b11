//! What a gate asked of its depth lately, for gates that divide one among them.
//!
//! By Little's law requests in flight are service times over time. So a promised rate needs as many slots as its requests a second take
//! seconds of service: 5,000/s of 2 ms each need ten.

use super::Gate;
use crate::{Completed, CostUnit, DepthPart, Duration, Instant, Rate};

/// Most that one rate may need, in thousandths of a slot: more than any depth.
const MOST: u64 = 1 << 40;

/// What one gate asks of a depth that it divides with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// Weights of the flows that asked for something; of all flows where none did.
    pub weight: u64,
    /// Most slots that were used; `None` where more would have been.
    pub used: Option<u32>,
    /// Slots that promised rates need.
    pub promised: u32,
    /// The depth that all gates have together, as far as this one knows.
    pub whole: u32,
}

/// What is noted between two looks, and the part that came of the words of all.
pub(super) struct Noted {
    /// This gate's part of its depth.
    pub part: DepthPart,
    /// Most in flight that had a slot.
    pub most: u32,
    /// More waited than there were slots.
    pub lacked: bool,
    since: Instant,
    /// Of each flow at the last look.
    before: Vec<Counted>,
}

impl Default for Noted {
    fn default() -> Self {
        let since = Instant::ZERO;
        Noted { part: DepthPart::ALL, most: 0, lacked: false, since, before: Vec::new() }
    }
}

/// What a flow has had since it was added.
#[derive(Clone, Copy, Default)]
struct Counted {
    completed: u64,
    commands: u64,
    bytes: u64,
    service_time: Duration,
}

impl Counted {
    fn of(completed: &Completed) -> Counted {
        let Completed { requests, commands, bytes, service_time, .. } = *completed;
        Counted { completed: requests, commands, bytes, service_time }
    }

    /// Since an earlier look; all of it where the flow is another one.
    fn since(&self, before: &Counted) -> Counted {
        Counted {
            completed: self.completed.saturating_sub(before.completed),
            commands: self.commands.saturating_sub(before.commands),
            bytes: self.bytes.saturating_sub(before.bytes),
            service_time: self.service_time.saturating_sub(before.service_time),
        }
    }

    /// Slots that it took for so long, in thousandths.
    fn slots(&self, time: Duration) -> u64 {
        let slots = u128::from(self.service_time.as_nanos()) * 1000 / u128::from(time.as_nanos().max(1));
        u64::try_from(slots).unwrap_or(u64::MAX)
    }

    /// Slots that a rate takes of requests like these, in thousandths.
    fn slots_of(&self, rate: Rate) -> u64 {
        let done = match rate.unit {
            // Both are millionths.
            CostUnit::Requests => self.commands,
            CostUnit::Bytes => self.bytes,
            CostUnit::DiskTime => return rate.per_second / 1_000_000,
        };
        let service = u128::from(self.service_time.as_nanos());
        let slots = u128::from(rate.per_second) * service / u128::from(done.max(1)) / 1_000_000;
        u64::try_from(slots).unwrap_or(u64::MAX).min(MOST)
    }
}

impl Gate {
    /// What it asked for since the last time; `None` where its depth cannot be divided. It looks at every flow.
    pub fn demand(&mut self, now: Instant) -> Option<Demand> {
        let whole = self.parts.depth.whole()?;
        let noted = &mut self.noted;
        noted.before.resize(self.flows.len(), Counted::default());
        let time = now.since(noted.since);
        let (mut asked, mut all, mut promised) = (0, 0, 0);
        for (flow, before) in self.flows.iter().zip(&mut noted.before) {
            let Some(flow) = flow.as_deref().filter(|flow| !flow.removed) else {
                *before = Counted::default();
                continue;
            };
            let counted = Counted::of(&flow.meters.completed);
            let lately = counted.since(&std::mem::replace(before, counted));
            let weight = u64::from(flow.contract.weight());
            all += weight;
            if flow.meters.pending == 0 && lately.completed == 0 {
                continue;
            }
            asked += weight;
            let needs = flow.contract.rate.map_or(0, |rate| lately.slots_of(rate));
            // Who does not wait has what it wants.
            let lacks = flow.meters.waits() || noted.lacked;
            promised += if lacks { needs } else { needs.min(lately.slots(time)) };
        }
        let used = if noted.lacked { None } else { Some(noted.most) };
        (noted.most, noted.lacked, noted.since) = (self.in_flight - self.beside.all(), false, now);
        let promised = u32::try_from(promised.div_ceil(1000)).unwrap_or(u32::MAX).min(whole);
        Some(Demand { weight: if asked > 0 { asked } else { all }, used, promised, whole })
    }

    /// The depth of all gates before the same storage, while this one has a part of it.
    pub fn depth_of_all(&self) -> Option<u32> {
        self.parts.depth.whole().filter(|_| self.noted.part != DepthPart::ALL)
    }

    /// From now on this gate has this part of its depth; others before the same storage have the rest.
    pub fn divide_depth(&mut self, part: DepthPart, now: Instant) {
        self.noted.part = part;
        self.parts.depth.divide(part);
        self.ask_again = Some(now);
    }
}
