//! Depth by work: so much device time under way as keeps the device busy, and no more.
//!
//! **Problem.** A number of requests says nothing about what is at the device: 32 reads of 4 KiB are over in a millisecond, 32 writes of 1 MiB in
//! twenty, and whoever comes waits behind them, whatever the scheduler says. Too little under way, and the device idles.
//!
//! **Rule.** The costs of what is under way, in ns of device time (`cost = "time"`), stay within a budget; one request may always go. It is found by
//! trying. Of six windows, of at least 64 completions during which something waited, five have W, and one has W + max(W/8, c). Where that gives
//! over 1.5 % more work a second, W grows by max(W/8, c/2), else it shrinks by 1/32 of that (by all of it after eight in a row),
//! but not for 32 trials to where it was seen to be too small.
//!
//! ```text
//!   W ← clamp( W ± max(W/8, c/2), c/2, min( most, tightest latency bound / 2 ) )          c: the costliest request of a window
//! ```
//!
//! Where nothing waits nobody tells whether more would be of use: W shrinks by a sixteenth a window, to no less than four requests.
//!
//! What is under way bounds what a newcomer waits at the device: W, and the one request that may exceed it. So no more than half of the tightest
//! bound may be under way, however much throughput that costs: promises come first.
//!
//! **Example.** A device does 16 at once, 800 us each: 50 us of its time for each. At W = 800 us all 16 are under way. At W = 700 us, 787 us gives an
//! eighth more: W grows. At 1 ms and 1125 us no more is done than at 800 us: W shrinks. It stays about there, and a newcomer waits 50 us, not W.
//!
//! **Guarantee.** Where cost models are right, and completions even, throughput of requests that use the device alike is within 5 % of what it gives (tests beside).
//!
//! **Price.** An addition for each dispatch and completion, a few divisions for a window.
//!
//! **Where it falls short.** One budget stands for one bottleneck. On emulated flash (`nvme-dc`) programming holds up writes and hardly any read: beside
//! 256 writes of 128 KiB a single reader has 60,900 reads/s at a fixed depth of 32, and 10,300/s by this rule, since it shares with the
//! writer what only the writer lacks. So it is not the default.
//!
//! **Source.** That delay at the device, not a count, is to be bounded: K2 (Miller et al., RTSS 2019), Kyber (Linux), Gimbal (Min et al., SIGCOMM
//! 2021), whose congestion control compares latencies with thresholds. Thresholds depend on the device; what is looked for here is the knee itself.

use crate::terms::Terms;
use henge_core::{Contract, Cost, DepthController, Duration, FlowId, Instant, ParamError, Params};

/// Completions of a window at least.
const WINDOW: u32 = 64;
/// Windows of a trial, the first of which has the larger budget.
const TRIAL: u32 = 6;
/// Trials for which a budget that was too small is not tried again.
const MEMORY: u32 = 32;
/// After this number of shrinks in a row the budget is far too large.
const FAR: u32 = 8;
/// A window is no shorter than this number of budgets, so that work under way at its begin does not count for much.
const LONG: u64 = 16;
/// In 1/1024: what the larger budget must give more.
const WORTH: u128 = 15;
/// Most in flight, whatever they cost.
const MOST: u32 = 4096;

/// See the head of this file.
#[derive(Clone, Debug)]
pub struct WorkDepth {
    /// W in ns.
    budget: u64,
    least: u64,
    most: u64,
    /// Half of the tightest bound of a flow.
    bound: u64,
    bounds: Vec<(FlowId, u64)>,
    under_way: u64,
    in_flight: u32,
    /// The window's number in its trial.
    number: u32,
    window: Window,
    /// A budget was too small, remembered for this number of trials.
    too_small: u64,
    remembered: u32,
    /// Trials since one that let the budget grow.
    shrinks: u32,
    /// Work and time of this trial at the larger budget, and at the smaller.
    tried: [(u64, u64); 2],
    /// What the costliest request of the last window cost.
    cost: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Option<Instant>,
    completions: u32,
    waited: u32,
    work: u64,
    largest: u64,
}

impl WorkDepth {
    /// A budget of `first`, from `least` to `most`.
    pub fn new(first: Duration, least: Duration, most: Duration) -> Self {
        let (least, most) = (least.as_nanos().max(1), most.as_nanos().max(1));
        WorkDepth {
            budget: first.as_nanos().clamp(least, most),
            least,
            most,
            bound: u64::MAX,
            bounds: Vec::new(),
            under_way: 0,
            in_flight: 0,
            number: 0,
            window: Window::default(),
            too_small: 0,
            remembered: 0,
            shrinks: 0,
            tried: [(0, 0); 2],
            cost: 0,
        }
    }

    fn now(&self) -> u64 {
        let more = (self.budget / 8).max(self.cost);
        let tried = if self.number > 0 { self.budget } else { self.budget + more };
        tried.min(self.bound).max(self.least)
    }

    /// A window is over, if it is long enough.
    fn close(&mut self, now: Instant) {
        let Window { since, completions, waited, work, largest } = self.window;
        let Some(since) = since else { return };
        let time = now.since(since).as_nanos();
        if completions < WINDOW || time < LONG * self.now() {
            return;
        }
        self.window = Window { since: Some(now), ..Window::default() };
        self.cost = largest;
        if waited * 8 < completions * 7 {
            // Nobody would have used more: what is never reached would come too late to be found too large.
            self.budget = (self.budget - self.budget / 16).max(4 * self.cost).clamp(self.least, self.budget);
            return;
        }
        let tried = &mut self.tried[usize::from(self.number > 0)];
        *tried = (tried.0 + work, tried.1 + time);
        self.number += 1;
        if self.number == TRIAL {
            self.number = 0;
            self.decide();
        }
    }

    /// A trial is over.
    fn decide(&mut self) {
        let [(more, longer), (less, time)] = std::mem::take(&mut self.tried);
        let (less, more) = (u128::from(less) * u128::from(longer), u128::from(more) * u128::from(time));
        if time > 0 {
            let worth = more > less + less / 1024 * WORTH;
            let step = (self.budget / 8).max(self.cost / 2).max(1);
            self.remembered = self.remembered.saturating_sub(1);
            self.budget = if worth {
                self.shrinks = 0;
                (self.too_small, self.remembered) = (self.budget + step / 8, MEMORY);
                self.budget.saturating_add(step)
            } else {
                // In small steps about the knee, in large ones far from it.
                self.shrinks += 1;
                let step = if self.shrinks > FAR { step } else { (step / 32).max(1) };
                let known = if self.remembered > 0 { self.too_small } else { 0 };
                self.budget.saturating_sub(step).max(known.min(self.budget))
            };
            let least = self.least.max(self.cost / 2);
            self.budget = self.budget.max(least).min(self.most).min(self.bound.max(self.least));
        }
    }
}

impl DepthController for WorkDepth {
    fn depth(&self) -> u32 {
        let full = self.in_flight > 0 && (self.under_way >= self.now() || self.in_flight >= MOST);
        if full { self.in_flight } else { self.in_flight + 1 }
    }
    fn holds_back(&self) -> bool {
        true
    }
    fn took(&mut self, cost: Cost, now: Instant) {
        self.under_way += cost.get();
        self.in_flight += 1;
        self.window.since.get_or_insert(now);
    }
    fn freed(&mut self, cost: Cost, waits: bool, now: Instant) {
        self.under_way = self.under_way.saturating_sub(cost.get());
        self.in_flight -= 1;
        if self.in_flight == 0 {
            self.under_way = 0; // costs may be adjusted meanwhile
        }
        let window = &mut self.window;
        window.completions += 1;
        window.waited += u32::from(waits);
        window.work = window.work.saturating_add(cost.get());
        window.largest = window.largest.max(cost.get());
        self.close(now);
    }
    fn set_flow(&mut self, flow: FlowId, contract: Option<&Contract>) {
        self.bounds.retain(|(other, _)| *other != flow);
        if let Some(latency) = contract.and_then(|c| c.latency) {
            self.bounds.push((flow, latency.bound.as_nanos() / 2));
        }
        self.bound = self.bounds.iter().map(|(_, bound)| *bound).min().unwrap_or(u64::MAX);
        self.budget = self.budget.min(self.bound).max(self.least);
    }
    fn work(&self) -> Option<(Duration, Duration)> {
        Some((Duration::from_nanos(self.under_way), Duration::from_nanos(self.now())))
    }
}

/// `work = { first = "200us", least = "20us", most = "1s" }`
pub(super) fn build(params: &mut Params, _: &Terms) -> Result<Box<dyn DepthController>, ParamError> {
    let first = params.duration("first")?.unwrap_or(Duration::from_micros(200));
    let least = params.duration("least")?.unwrap_or(Duration::from_micros(20));
    let most = params.duration("most")?.unwrap_or(Duration::from_secs(1));
    if least > most || least == Duration::ZERO {
        return Err(params.error("least", format!("a budget is from above 0s, {least}, to no less, {most}")));
    }
    Ok(Box::new(WorkDepth::new(first, least, most)))
}

#[cfg(test)]
mod tests {
    use crate::depth::trial::{device, flash, run, weighted};
    use henge_core::Op;

    const TIMED: [(&str, &str); 2] = [("cost", "time"), ("depth", "work")];
    const DEEP: [(&str, &str); 2] = [("cost", "time"), ("depth", "4096")];

    #[test]
    fn throughput_is_what_the_device_gives() {
        for parallel in [1, 2, 4, 16, 64] {
            for (op, len) in
                [(Op::Read, 4096), (Op::Read, 128 << 10), (Op::Write, 128 << 10), (Op::Trim, 4096)]
            {
                let client = [(0, 256, op, len)];
                let count = |settings: &[(&str, &str)]| {
                    let many = parallel > 4 && (op, len) != (Op::Read, 128 << 10) && op != Op::Trim;
                    let ms = if many { 2_000 } else { 8_000 };
                    run("sfq", settings, &weighted(&[1]), device(parallel, flash), &client, ms)[0].0
                };
                let (got, whole) = (count(&TIMED), count(&DEEP));
                assert!(got * 100 >= whole * 95, "{parallel} at once, {op:?} of {len}: {got} of {whole}");
            }
        }
    }

    /// 4 KiB reads one at a time beside 128 KiB writes, 256 of them outstanding (1 MiB at 32, cut).
    #[test]
    fn a_single_reader_does_not_wait_behind_what_others_have_under_way() {
        for parallel in [4, 8, 16] {
            let clients = [(0, 1, Op::Read, 4096), (1, 256, Op::Write, 128 << 10)];
            let p999 = |latencies: &[u64]| latencies[latencies.len() * 999 / 1000];
            let alone = p999(
                &run("sfq", &TIMED, &weighted(&[1, 1]), device(parallel, flash), &clients[..1], 4_000)[0].1,
            );
            let whole =
                run("sfq", &DEEP, &weighted(&[1, 1]), device(parallel, flash), &clients[1..], 4_000)[1].0;
            let both = run("sfq", &TIMED, &weighted(&[1, 1]), device(parallel, flash), &clients, 8_000);
            let (reads, writes) = (both[0].0 as u64, both[1].0 as u64 / 2);
            let total = (reads / 2 * flash(Op::Read, 4096) + writes * flash(Op::Write, 128 << 10)) * 100;
            assert!(
                total >= whole as u64 * flash(Op::Write, 128 << 10) * 95,
                "{parallel}: {writes} of {whole}"
            );
            let late = p999(&both[0].1);
            // Where few are served at once one write's time is more than two reads'.
            let piece = flash(Op::Write, 128 << 10) + flash(Op::Read, 4096);
            assert!(
                late <= (3 * alone).max(piece * 33 / 32),
                "{parallel} at once: {late} ns beside, {alone} alone"
            );
        }
    }

    /// Half of the device's time each, whatever the lengths and kinds.
    #[test]
    fn equal_weights_share_time() {
        for (op, len, outstanding) in [(Op::Write, 128 << 10, 256), (Op::Read, 512, 128)] {
            let clients = [(0, 32, Op::Read, 16 << 10), (1, outstanding, op, len)];
            let both = run("sfq", &TIMED, &weighted(&[1, 1]), device(4, flash), &clients, 8_000);
            let time = |flow: usize, op, len| both[flow].0 as u64 * flash(op, len);
            let (a, b) = (time(0, Op::Read, 16 << 10), time(1, op, len));
            let share = a as f64 / (a + b) as f64;
            assert!((0.45..0.55).contains(&share), "beside {op:?} of {len}: {share}");
        }
    }
}
