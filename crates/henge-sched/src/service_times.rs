//! How long the device takes for a request: measured over the last 512 completions, or predicted from the distance.
//!
//! The window keeps its values sorted (a binary search and a move of at most 4 KiB per completion), so that
//! percentiles are exact and cost nothing to ask for. Until 20 requests are over, nothing is known.
//!
//! Two times are kept: *service* (dispatch → completion), whose 90th percentile tells when a request dispatched now will
//! be over, and the time per *slot* (since its dispatch or the completion before it, whichever is later), whose mean is
//! what one request costs the others in time, however many the device holds at once.
//!
//! The prediction: per power of two of the distance from the request dispatched before, a mean and a mean
//! deviation, both over about 16 requests; the 90th percentile of a bell curve is mean + 1.6 mean deviations.

use henge_core::{Completion, Duration, Instant};

const WINDOW: usize = 512;
const SAMPLES_LEAST: usize = 20;
const CLASSES: usize = 65;
const CLASS_SAMPLES_LEAST: u32 = 8;

/// See the head of this file.
pub(crate) struct ServiceTimes {
    /// The last services and slots, a ring.
    recent: Vec<(u64, u64)>,
    oldest: usize,
    sorted: Vec<u64>,
    slots: u64,
    last_completion: Instant,
    classes: [Class; CLASSES],
    /// Distance class of each request in flight, and whether it stands apart, by its slot.
    flying: Vec<(u8, bool)>,
    /// Time per slot of those apart.
    apart: Class,
}

#[derive(Clone, Copy, Default)]
struct Class {
    mean: u64,
    deviation: u64,
    samples: u32,
}

impl Default for ServiceTimes {
    fn default() -> Self {
        ServiceTimes {
            recent: Vec::with_capacity(WINDOW),
            oldest: 0,
            sorted: Vec::with_capacity(WINDOW + 1),
            slots: 0,
            last_completion: Instant::ZERO,
            classes: [Class::default(); CLASSES],
            flying: Vec::new(),
            apart: Class::default(),
        }
    }
}

fn class(from: u64, to: u64) -> u8 {
    (64 - from.abs_diff(to).leading_zeros()) as u8
}

impl ServiceTimes {
    /// A request at `offset` was dispatched when the arm stood at `head`. Some stand apart, since the arm comes from
    /// elsewhere: requests taken out of a sweep, or the first of a turn.
    pub fn dispatched(&mut self, slot: u32, head: u64, offset: u64, apart: bool) {
        if self.flying.len() <= slot as usize {
            self.flying.resize(slot as usize + 1, (0, false));
        }
        self.flying[slot as usize] = (class(head, offset), apart);
    }

    /// A request is over.
    pub fn completed(&mut self, completion: &Completion, now: Instant) {
        let service = completion.service.as_nanos();
        let slot = now.since(completion.dispatched.max(self.last_completion)).as_nanos();
        self.last_completion = now;
        if self.recent.len() < WINDOW {
            self.recent.push((service, slot));
        } else {
            let (old, old_slot) = std::mem::replace(&mut self.recent[self.oldest], (service, slot));
            self.oldest = (self.oldest + 1) % WINDOW;
            let at = self.sorted.binary_search(&old).expect("the window's values are in the sorted list");
            self.sorted.remove(at);
            self.slots -= old_slot;
        }
        self.slots += slot;
        let at = self.sorted.partition_point(|&t| t < service);
        self.sorted.insert(at, service);
        if let Some(&(class, apart)) = self.flying.get(completion.request.id.index()) {
            self.classes[class as usize].learn(service);
            if apart {
                self.apart.learn(slot);
            }
        }
    }

    fn known(&self) -> bool {
        self.recent.len() >= SAMPLES_LEAST
    }

    /// The service time that `ppm` millionths of the requests do not exceed.
    pub fn percentile(&self, ppm: u32) -> Option<Duration> {
        let rank = (self.sorted.len() as u64 * u64::from(ppm)).div_ceil(1_000_000).max(1);
        self.known().then(|| Duration::from_nanos(self.sorted[rank as usize - 1]))
    }

    /// Mean time that a request keeps a slot of the device from others.
    pub fn mean_slot(&self) -> Option<Duration> {
        self.known().then(|| Duration::from_nanos(self.slots / self.recent.len() as u64))
    }

    /// The same for requests that stand apart, as far as there were any.
    pub fn mean_slot_apart(&self) -> Option<Duration> {
        let mean = self.mean_slot()?;
        Some(if self.apart.enough() { mean.max(Duration::from_nanos(self.apart.mean)) } else { mean })
    }

    /// What a request that stands apart takes, nine times out of ten; no less than others.
    pub fn apart(&self) -> Option<Duration> {
        let others = self.percentile(900_000)?;
        Some(if self.apart.enough() { others.max(self.apart.most()) } else { others })
    }

    /// The same 999 times out of 1000.
    pub fn apart_at_most(&self) -> Option<Duration> {
        let others = self.percentile(999_000)?;
        Some(if self.apart.enough() { others.max(self.apart.at_most()) } else { others })
    }

    /// What a request at `offset` will take with the arm at `head`, nine times out of ten.
    pub fn predicted(&self, head: u64, offset: u64) -> Option<Duration> {
        let class = &self.classes[class(head, offset) as usize];
        if class.enough() { Some(class.most()) } else { self.percentile(900_000) }
    }
}

impl Class {
    fn enough(&self) -> bool {
        self.samples >= CLASS_SAMPLES_LEAST
    }
    /// Nine out of ten take no longer.
    fn most(&self) -> Duration {
        Duration::from_nanos(self.mean + self.deviation * 16 / 10)
    }
    /// 999 of 1000 take no longer: 3.09 standard deviations of a bell curve, which are 3.9 mean deviations.
    fn at_most(&self) -> Duration {
        Duration::from_nanos(self.mean + self.deviation * 39 / 10)
    }
    fn learn(&mut self, service: u64) {
        self.samples = self.samples.saturating_add(1);
        let parts = u64::from(self.samples.min(16));
        let deviation = service.abs_diff(self.mean);
        self.mean = self.mean - self.mean / parts + service / parts;
        if self.samples > 1 {
            self.deviation = self.deviation - self.deviation / parts + deviation / parts;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::request;
    use henge_core::{Cost, RequestId};

    fn over(slot: u32, dispatched: Instant, service: Duration) -> Completion {
        let request = henge_core::Request { id: RequestId { slot, generation: 0 }, ..request(0, 0, 1) };
        Completion { request, actual: Cost::new(1), dispatched, service, in_flight: 0 }
    }

    #[test]
    fn percentiles_are_of_the_last_512() {
        let mut times = ServiceTimes::default();
        let mut now = Instant::ZERO;
        for i in 1..=2000u64 {
            let service = Duration::from_micros(1 + i * 7919 % 1000);
            let dispatched = now;
            now += service;
            times.completed(&over(0, dispatched, service), now);
            assert_eq!(times.percentile(900_000).is_some(), i >= 20);
            let from = i.saturating_sub(512) + 1;
            let mut window: Vec<u64> = (from..=i).map(|i| 1 + i * 7919 % 1000).collect();
            window.sort_unstable();
            if i >= 20 {
                let expected = window[(window.len() * 9).div_ceil(10) - 1];
                assert_eq!(times.percentile(900_000), Some(Duration::from_micros(expected)));
                let mean = window.iter().sum::<u64>() * 1000 / window.len() as u64;
                assert_eq!(times.mean_slot(), Some(Duration::from_nanos(mean)));
            }
        }
    }

    #[test]
    fn near_and_far_are_predicted_apart() {
        let mut times = ServiceTimes::default();
        for i in 0..200u64 {
            let (offset, ms) = if i % 2 == 0 { (4096, 1) } else { (1 << 35, 9) };
            times.dispatched(0, 0, offset, true);
            let now = Instant::ZERO + Duration::from_millis(10 * (i + 1));
            times.completed(&over(0, now - Duration::from_millis(ms), Duration::from_millis(ms)), now);
        }
        assert_eq!(times.predicted(0, 5000), Some(Duration::from_millis(1)));
        assert_eq!(times.predicted(1 << 35, 0), Some(Duration::from_millis(9)));
        assert_eq!(times.predicted(0, 1 << 20), times.percentile(900_000)); // never seen
    }
}
