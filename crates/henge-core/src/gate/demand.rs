//! What a gate asked of its depth lately, for gates that divide one among them.
//!
//! By Little's law requests in flight are service times over time. So a promised rate needs as many slots as its requests a second take
//! seconds of service: 5,000/s of 2 ms each need ten.

use super::Gate;
use crate::{CostUnit, DepthPart, Duration, Instant, Rate};

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

/// What is noted between two looks, and what came of them.
pub(super) struct Noted {
    /// This gate's part of its depth.
    pub part: DepthPart,
    /// Most in flight that had a slot.
    pub most: u32,
    /// More waited than there were slots.
    pub lacked: bool,
    since: Instant,
    /// Of each flow at the last look.
    before: Vec<Before>,
}

impl Default for Noted {
    fn default() -> Self {
        let since = Instant::ZERO;
        Noted { part: DepthPart::ALL, most: 0, lacked: false, since, before: Vec::new() }
    }
}

#[derive(Clone, Copy, Default)]
struct Before {
    completed: u64,
    commands: u64,
    bytes: u64,
    service_time: Duration,
}

impl Gate {
    /// What it asked for since the last time; `None` where its depth cannot be divided. It looks at every flow.
    pub fn demand(&mut self, now: Instant) -> Option<Demand> {
        let whole = self.parts.depth.whole()?;
        let noted = &mut self.noted;
        noted.before.resize(self.flows.len(), Before::default());
        let time = now.since(noted.since).as_nanos();
        let (mut asked, mut all, mut promised) = (0, 0, 0);
        for (flow, before) in self.flows.iter().zip(&mut noted.before) {
            let Some(flow) = flow.as_deref().filter(|flow| !flow.removed) else {
                *before = Before::default();
                continue;
            };
            let (meters, weight) = (&flow.meters, u64::from(flow.contract.weight()));
            let now = Before {
                completed: meters.completed,
                commands: meters.commands,
                bytes: meters.bytes,
                service_time: meters.service_time,
            };
            let was = std::mem::replace(before, now);
            all += weight;
            if meters.pending == 0 && now.completed <= was.completed {
                continue;
            }
            asked += weight;
            let service = now.service_time.saturating_sub(was.service_time).as_nanos();
            let needs = flow.contract.rate.map_or(0, |rate| slots(rate, &was, &now, service));
            // Who does not wait has what it wants.
            let used = thousandths(service, time);
            promised += if meters.waits() || noted.lacked { needs } else { needs.min(used) };
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

/// Thousandths of a slot that a rate takes, as requests were lately.
fn slots(rate: Rate, was: &Before, now: &Before, service: u64) -> u64 {
    let done = match rate.unit {
        // Both are millionths.
        CostUnit::Requests => now.commands.saturating_sub(was.commands),
        CostUnit::Bytes => now.bytes.saturating_sub(was.bytes),
        CostUnit::DiskTime => return rate.per_second / 1_000_000,
    };
    let slots = u128::from(rate.per_second) * u128::from(service) / u128::from(done.max(1)) / 1_000_000;
    u64::try_from(slots).unwrap_or(u64::MAX / 2).min(1 << 40)
}

/// So much service in so much time, in thousandths of a slot.
fn thousandths(service: u64, time: u64) -> u64 {
    let slots = u128::from(service) * 1000 / u128::from(time.max(1));
    u64::try_from(slots).unwrap_or(u64::MAX)
}
