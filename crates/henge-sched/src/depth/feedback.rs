//! Depth by feedback: as deep as the latency bounds allow, decided anew each window.
//!
//! **Problem.** A deep queue at the device gives throughput, a shallow one latency (Little: depth = throughput · latency).
//! Which depth keeps every flow's percentile in bound, and wastes the least?
//!
//! **Rule** (two-level I/O control, section 3.2.2). At the end of a window of `window` = 1 s:
//!
//! ```text
//!   X requests completed      L the depth now      Lmax most in flight      due: queued with a deadline in the next window
//!   T_i percentile of service times of flow i (dispatch → completion)       W_i mean wait      demand = queued + in flight + expected
//!
//!   E_i  = (l_i − W_i) / T_i          above 1: there is slack
//!   low  = due · L / X                depth that completes what is due
//!   high = demand · L / X             depth that completes everything
//!   rt_i = E_i · L (underloaded)  or  E_i · Lmax (overloaded)
//!
//!   underloaded:  rt_i < low             → overloaded from the next window on
//!                 rt_i > high            → high
//!                 rt_i < L or Lmax ≥ L   → rt_i
//!                 else                   → L
//!   overloaded:   demand > X             → unlimited (finish the overload first)
//!                 X > due                → max(rt_i, low), underloaded again
//!                 else                   → L
//! ```
//!
//! The new L is the smallest over the flows. Expected arrivals are the arrivals of the last window.
//!
//! **Example.** l = 100 ms, W = 20 ms, T = 40 ms: E = 2. With L = Lmax = 8 and 200 completed of 400 wanted, high = 16 = rt: L becomes 16.
//!
//! **Guarantee.** None in the paper; as written its rules run away or collapse. **Ours** (`rules = "paper"` switches all of them off,
//! each has its own key):
//! - `keep`: Lmax < L keeps L, before all else, and E is multiplied by min(L, Lmax): otherwise depth ran to 100 in steady load. While
//!   overloaded Lmax stands for L in low and high, and X ≥ due ends it.
//! - `floor`: never below the device's knee, the depth that gives 90 % of its peak throughput: below, throughput falls, W grows, E falls
//!   further (32 % in bound after a stall of 3 s; with the floor 89 to 97 %). Where none is stated it is 8, and gives way to a bound of which the
//!   device alone takes more than half at that depth: then it is L · l_i / 2 T_i, for the flow for which that is least, and as much is left to wait.
//!   Waiting, which a small depth makes longer, lowers no floor.
//! - `saturation` (default twice the floor): never above it; a truly unlimited depth switches the scheduler off and gains nothing.
//! - `samples` = 20: a percentile of fewer says nothing. Such a flow's windows count together until there are so many, at most so many windows;
//!   meanwhile its last rt_i holds. Before, a flow of 18 requests a second had no say, and 300 ms at a bound of 100 ms. A window without completions
//!   keeps L. E is smoothed, `smoothing` = 0.5 for the new one.
//!
//! **Before storage that others use, too** (several gateways of one cluster) L is the depth of all of them, and this gate has a part of it. What it has in
//! flight stands for as much more. X, due and demand stand in ratios only.
//!
//! **Price.** A few ns per request, and one histogram per flow that has a bound. A window's end looks at the flows that had requests
//! in it, a bounded number at a time: with more of them the decision comes later.

use super::fixed::DEPTH_MAX;
use crate::Flows;
use crate::names::one_of;
use crate::terms::Terms;
use henge_core::{
    Contract, DepthController, DepthPart, Duration, FlowId, Histogram, Instant, Latency, ParamError, Params,
    QueueView, Request, Value,
};

/// Flows looked at in a step at the end of a window, and the time between two steps.
const STEP: usize = 32;
const PAUSE: Duration = Duration::from_micros(100);

/// The switches.
#[derive(Clone, Copy, Debug)]
struct Rules {
    window: Duration,
    keep: bool,
    floor: u32,
    /// The floor is a guess, and gives way.
    gives_way: bool,
    saturation: u32,
    samples: u64,
    smoothing: f64,
}

/// `feedback = { window = "1s", floor = 8, saturation = 16, samples = 20, smoothing = 0.5, keep = true, rules = "ours" }`
pub(super) fn build(p: &mut Params, _: &Terms) -> Result<Box<dyn DepthController>, ParamError> {
    let paper = one_of(p, "rules", &[("ours", false), ("paper", true)])?.unwrap_or(false);
    let stated = p.integer("floor", 1, DEPTH_MAX)?;
    let floor = stated.unwrap_or(if paper { 1 } else { 8 }) as u32;
    let most = if paper { DEPTH_MAX } else { (2 * u64::from(floor)).min(DEPTH_MAX) };
    let saturation = match p.get_mut("saturation") {
        Some(Value::Text(text)) if text == "none" => p.text("saturation")?.map_or(DEPTH_MAX, |_| DEPTH_MAX),
        _ => p.integer("saturation", 1, DEPTH_MAX)?.unwrap_or(most),
    } as u32;
    if saturation < floor {
        return Err(
            p.error("saturation", format!("a saturation of {saturation} is below the floor of {floor}"))
        );
    }
    let smoothing = p.number("smoothing")?.unwrap_or(if paper { 1.0 } else { 0.5 });
    if !(smoothing > 0.0 && smoothing <= 1.0) {
        return Err(p.error("smoothing", format!("{smoothing} is no smoothing; it is above 0 and at most 1")));
    }
    let window = p.duration("window")?.unwrap_or(Duration::from_secs(1));
    if window == Duration::ZERO {
        return Err(p.error("window", "a window of 0s never ends".into()));
    }
    let rules = Rules {
        window,
        keep: p.bool("keep")?.unwrap_or(!paper),
        floor,
        gives_way: stated.is_none() && !paper,
        saturation,
        samples: p.integer("samples", 1, 1 << 20)?.unwrap_or(if paper { 1 } else { 20 }),
        smoothing,
    };
    Ok(Box::new(Feedback::new(rules)))
}

/// One flow with a bound.
#[derive(Default)]
struct Class {
    bound: Duration,
    percentile: f64,
    waits: Duration,
    dispatched: u64,
    service: Histogram,
    /// E, smoothed, and l_i / T_i, with the depth at which they were measured.
    slack: Option<(Slack, f64)>,
    /// The number of the window that it last had a request in.
    window: u64,
    /// The number of the window in which its first sample came.
    since: u64,
}

/// The least over the flows.
#[derive(Clone, Copy)]
struct Slack {
    /// E.
    slack: f64,
    /// l_i / T_i: the same without the wait.
    alone: f64,
}

/// A window that is over, while its flows are looked at.
struct Closing {
    window: Window,
    /// Flows still to be looked at, and the least slack so far.
    flows: Vec<FlowId>,
    least: Option<Slack>,
    next: Instant,
}

/// What a window saw, and what is known at its end.
struct Window {
    completed: f64,
    in_flight_max: f64,
    depth: f64,
    /// The depth that a flow's E is of.
    base: f64,
    due: f64,
    demand: f64,
}

struct Feedback {
    rules: Rules,
    classes: Flows<Class>,
    /// L, of which `part` is this gate's.
    depth: u32,
    part: DepthPart,
    overloaded: bool,
    /// Smallest rt_i of the last window that had one.
    in_time: Option<f64>,
    ends: Option<Instant>,
    /// The window's number, from 1, and the flows that had requests in it.
    number: u64,
    active: Vec<FlowId>,
    closing: Option<Closing>,
    completed: u64,
    dispatched: u64,
    in_flight: u32,
    in_flight_max: u32,
    queued: usize,
}

impl Feedback {
    fn new(rules: Rules) -> Self {
        // Where the paper knows no floor it has to begin somewhere.
        let depth = rules.floor.max(8).min(rules.saturation);
        Feedback {
            rules,
            classes: Flows::new(),
            depth,
            part: DepthPart::ALL,
            overloaded: false,
            in_time: None,
            ends: None,
            number: 1,
            active: Vec::new(),
            closing: None,
            completed: 0,
            dispatched: 0,
            in_flight: 0,
            in_flight_max: 0,
            queued: 0,
        }
    }

    fn window(&self, queue: &dyn QueueView, until: Instant) -> Window {
        let arrivals = (self.dispatched as f64 + queue.queued() as f64 - self.queued as f64).max(0.0);
        let limit = f64::from(self.depth);
        let all = f64::from(self.in_flight_max) * self.part.factor();
        // A part is rounded.
        let in_flight_max = if self.in_flight_max < self.depth() { all } else { all.max(limit) };
        let depth = if self.overloaded && self.rules.keep { in_flight_max } else { limit };
        let base = match (self.overloaded, self.rules.keep) {
            (true, _) => in_flight_max,
            (false, true) => limit.min(in_flight_max),
            (false, false) => limit,
        };
        Window {
            completed: self.completed as f64,
            in_flight_max,
            depth,
            base,
            due: queue.due(until) as f64,
            demand: queue.queued() as f64 + f64::from(self.in_flight) + arrivals,
        }
    }

    /// The flow's, which has a request in this window: what it had in the last one is looked at first.
    fn class(&mut self, flow: FlowId) -> Option<&mut Class> {
        let class = self.classes.get_mut(flow)?;
        if class.window != self.number {
            if let Some(closing) = self.closing.as_mut().filter(|_| class.window + 1 == self.number) {
                closing.least = class.least(closing.least, &self.rules, closing.window.base);
            }
            class.window = self.number;
            if class.service.count() == 0 || self.number > class.since + self.rules.samples {
                class.forget();
                class.since = self.number;
            }
            self.active.push(flow);
        }
        Some(class)
    }

    /// Looks at some more flows of a window that is over, and decides after the last.
    fn close(&mut self, mut closing: Closing, now: Instant) {
        let left = closing.flows.len().saturating_sub(STEP);
        for flow in closing.flows.drain(left..) {
            if let Some(class) = self.classes.get_mut(flow).filter(|class| class.window != self.number) {
                closing.least = class.least(closing.least, &self.rules, closing.window.base);
            }
        }
        if left == 0 {
            if self.active.capacity() == 0 {
                self.active = closing.flows;
            }
            if closing.window.completed > 0.0 {
                let floor = self.floor(&closing.window, closing.least);
                let depth = self.decide(&closing.window, closing.least.map(|least| least.slack));
                self.depth = depth.clamp(floor, self.rules.saturation);
            }
        } else {
            self.closing = Some(Closing { next: now + PAUSE, ..closing });
        }
    }

    /// The floor for the next window.
    fn floor(&self, window: &Window, least: Option<Slack>) -> u32 {
        let Some(least) = least.filter(|_| self.rules.gives_way) else { return self.rules.floor };
        let in_time = window.in_flight_max.min(f64::from(self.depth)) * least.alone / 2.0;
        self.rules.floor.min((in_time as u32).max(1))
    }

    /// The depth for the next window, from the least E.
    fn decide(&mut self, w: &Window, least: Option<f64>) -> u32 {
        let rules = self.rules;
        let (low, high) = (w.due * w.depth / w.completed, w.demand * w.depth / w.completed);
        let overloaded = self.overloaded;
        let in_time = least.map(|slack| slack * w.base);
        self.in_time = in_time.or(self.in_time);
        if overloaded && w.demand > w.completed {
            return u32::MAX;
        }
        let Some(in_time) = in_time else { return self.depth }; // too few samples everywhere
        if overloaded {
            let over = if rules.keep { w.completed >= w.due } else { w.completed > w.due };
            self.overloaded = !over;
            return if over { rounded(in_time.max(low)) } else { self.depth };
        }
        // Each candidate grows with rt, so the flow with the smallest rt has the smallest.
        if rules.keep && w.in_flight_max < f64::from(self.depth) {
            self.depth
        } else if in_time < low {
            self.overloaded = true;
            u32::MAX
        } else if in_time > high {
            rounded(high)
        } else if in_time < f64::from(self.depth) || w.in_flight_max >= f64::from(self.depth) {
            rounded(in_time)
        } else {
            self.depth
        }
    }
}

fn rounded(depth: f64) -> u32 {
    depth.round().clamp(1.0, DEPTH_MAX as f64) as u32
}

impl Class {
    /// The least E with this one's.
    fn least(&mut self, least: Option<Slack>, rules: &Rules, base: f64) -> Option<Slack> {
        let Some(own) = self.slack(rules, base) else { return least };
        let least = least.unwrap_or(own);
        Some(Slack { slack: own.slack.min(least.slack), alone: own.alone.min(least.alone) })
    }

    /// E, of this window if there are enough samples, which are forgotten then; else the last one, as it would be at this depth.
    fn slack(&mut self, rules: &Rules, base: f64) -> Option<Slack> {
        let enough = self.service.count() >= rules.samples && self.dispatched > 0;
        let Some(service) = self.service.quantile(self.percentile).filter(|_| enough) else {
            let (last, at) = self.slack?;
            let scale = at / base.max(1.0);
            return Some(Slack { slack: last.slack * scale, alone: last.alone * scale });
        };
        let bound = self.bound.as_nanos() as f64;
        let wait = self.waits.as_nanos() as f64 / self.dispatched as f64;
        let service = service.as_nanos().max(1) as f64;
        self.forget();
        let new = ((bound - wait) / service).max(0.0);
        let slack = self.slack.map_or(new, |(old, _)| old.slack + (new - old.slack) * rules.smoothing);
        let slack = Slack { slack, alone: bound / service };
        self.slack = Some((slack, base));
        Some(slack)
    }

    fn forget(&mut self) {
        self.waits = Duration::ZERO;
        self.dispatched = 0;
        self.service.clear();
    }
}

impl DepthController for Feedback {
    fn depth(&self) -> u32 {
        self.part.of(self.depth)
    }
    fn whole(&self) -> Option<u32> {
        Some(self.depth)
    }
    fn divide(&mut self, part: DepthPart) {
        self.part = part;
    }
    fn holds_back(&self) -> bool {
        self.depth < self.rules.saturation
    }
    fn dispatched(&mut self, flow: FlowId, wait: Duration, in_flight: u32, now: Instant) {
        self.ends.get_or_insert(now + self.rules.window);
        self.dispatched += 1;
        self.in_flight = in_flight;
        self.in_flight_max = self.in_flight_max.max(in_flight);
        if let Some(class) = self.class(flow) {
            class.waits += wait;
            class.dispatched += 1;
        }
    }
    fn completed(&mut self, request: &Request, service: Duration, in_flight: u32, _: Instant) {
        self.completed += 1;
        self.in_flight = in_flight;
        if let Some(class) = self.class(request.flow) {
            class.service.record(service);
        }
    }
    fn set_flow(&mut self, flow: FlowId, contract: Option<&Contract>) {
        match contract.and_then(|c| c.latency) {
            Some(Latency { bound, percentile }) => {
                let class = self.classes.get_or_insert_with(flow, Class::default);
                if class.bound != bound {
                    class.slack = None; // of another bound
                }
                (class.bound, class.percentile) = (bound, f64::from(percentile) / 1e6);
            }
            None => drop(self.classes.remove(flow)),
        }
    }
    fn wake_at(&self) -> Option<Instant> {
        self.closing.as_ref().map(|closing| closing.next).or(self.ends)
    }
    fn tick(&mut self, queue: &dyn QueueView, now: Instant) {
        if let Some(closing) = self.closing.take() {
            return self.close(closing, now);
        }
        let window = self.window(queue, now + self.rules.window);
        let flows = std::mem::take(&mut self.active);
        self.number += 1;
        self.close(Closing { window, flows, least: None, next: now }, now);
        let idle = self.dispatched == 0 && self.in_flight == 0 && queue.queued() == 0;
        self.ends = (!idle).then(|| now + self.rules.window);
        (self.completed, self.dispatched) = (0, 0);
        (self.in_flight_max, self.queued) = (self.in_flight, queue.queued());
    }
    fn spare(&self, in_flight: u32) -> bool {
        let in_time = self.in_time.unwrap_or(f64::from(self.depth));
        self.overloaded || f64::from(in_flight) * self.part.factor() < 0.9 * in_time
    }
}

#[cfg(test)]
mod tests;
