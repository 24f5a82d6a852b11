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
//! **Price.** A few ns per request, and one histogram per flow that has a bound. A window's end looks at the flows that had requests
//! in it, a bounded number at a time: with more of them the decision comes later.

use super::DEPTH_MAX;
use crate::Flows;
use crate::registry::one_of;
use henge_core::{
    Contract, DepthController, Duration, FlowId, Histogram, Instant, Latency, ParamError, Params, QueueView,
    Request, Value,
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
pub(super) fn build(p: &mut Params, _: bool) -> Result<Box<dyn DepthController>, ParamError> {
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
    depth: u32,
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
        let in_flight_max = f64::from(self.in_flight_max);
        let limit = f64::from(self.depth);
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
        self.depth
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
        self.overloaded || f64::from(in_flight) < 0.9 * in_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::{Pattern, Trial, anywhere, request, text};
    use henge_core::Rate;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }
    struct Queue(usize, usize);
    impl QueueView for Queue {
        fn queued(&self) -> usize {
            self.0
        }
        fn due(&self, _: Instant) -> usize {
            self.1
        }
    }
    fn controller(params: Params) -> Box<dyn DepthController> {
        let mut params = params;
        let mut controller = build(&mut params, false).unwrap();
        let latency = Some(Latency { bound: Duration::from_millis(100), percentile: 950_000 });
        controller.set_flow(FlowId(0), Some(&Contract { latency, ..Contract::default() }));
        controller
    }
    /// A window in which `n` requests wait and are served so long, `depth` at once.
    fn window(
        c: &mut dyn DepthController,
        k: u64,
        n: u64,
        wait: u64,
        service: u64,
        depth: u32,
        queue: Queue,
    ) {
        for _ in 0..n {
            c.dispatched(FlowId(0), Duration::from_millis(wait), depth, at(k * 1000));
            c.completed(&request(0, 0, 512), Duration::from_millis(service), depth - 1, at(k * 1000 + 1));
        }
        c.tick(&queue, at((k + 1) * 1000));
    }

    #[test]
    fn the_example_of_the_head() {
        let mut c = controller(Params::new("feedback").with("floor", Value::Integer(8)));
        assert_eq!(c.depth(), 8);
        window(&mut *c, 0, 200, 20, 40, 8, Queue(193, 0));
        assert_eq!(c.depth(), 16); // E = 2; high is above that
        // No slack: E = (100 − 20) / 160 = 0.5, smoothed 1.25; then 0.875, and the floor.
        window(&mut *c, 1, 200, 20, 160, 16, Queue(193, 0));
        assert_eq!(c.depth(), 16);
        window(&mut *c, 2, 200, 20, 160, 16, Queue(193, 0));
        assert_eq!(c.depth(), 14);
        for k in 3..10 {
            let depth = c.depth();
            window(&mut *c, k, 200, 20, 160, depth, Queue(193, 0));
        }
        assert_eq!(c.depth(), 8);
    }

    /// A device that serves one at a time, 25 ms each: at a depth of 8 each takes 200 ms, twice the bound.
    #[test]
    fn a_floor_that_nobody_stated_gives_way_to_a_bound() {
        for (floor, depths) in [(None, 1..=4), (Some(8), 8..=8)] {
            let params = Params::new("feedback");
            let params = floor.map_or(params.clone(), |n| params.with("floor", Value::Integer(n)));
            let mut c = controller(params);
            for k in 0..30 {
                let depth = c.depth();
                window(&mut *c, k, 40, 0, 25 * u64::from(depth), depth, Queue(40, 0));
            }
            assert!(depths.contains(&c.depth()), "{floor:?}: {}", c.depth());
        }
    }

    #[test]
    fn too_few_samples_or_none_keep_the_depth() {
        let mut c = controller(Params::new("feedback"));
        window(&mut *c, 0, 19, 0, 1, 8, Queue(500, 0));
        assert_eq!(c.depth(), 8);
        window(&mut *c, 1, 0, 0, 1, 8, Queue(500, 400));
        assert_eq!(c.depth(), 8);
        window(&mut *c, 2, 20, 0, 1, 8, Queue(500, 0));
        assert_eq!(c.depth(), 16);
    }

    #[test]
    fn an_overload_takes_all_and_ends() {
        for (rules, unlimited) in [("ours", 16), ("paper", DEPTH_MAX as u32)] {
            let mut c = controller(Params::new("feedback").with("rules", text(rules)));
            window(&mut *c, 0, 100, 90, 100, 8, Queue(600, 500)); // E = 0.1, 500 due, 100 done
            assert_eq!(c.depth(), unlimited, "{rules}");
            assert!(c.spare(1000));
            window(&mut *c, 1, 100, 90, 100, 16, Queue(600, 500));
            assert_eq!(c.depth(), unlimited, "{rules}");
            // The next window finishes everything. E = 2 (ours smoothes to 1.05), Lmax = 16.
            window(&mut *c, 2, 700, 0, 50, 16, Queue(0, 0));
            assert_eq!(c.depth(), if rules == "ours" { 16 } else { 32 });
            assert!(!c.spare(30), "underloaded again");
        }
    }

    /// 18 requests in a window are too few to judge by, and two windows' are not. A device that takes 20 ms for each, one at a time.
    #[test]
    fn a_flow_of_few_requests_has_its_say() {
        let mut c = controller(Params::new("feedback"));
        for k in 0..30 {
            let depth = c.depth();
            window(&mut *c, k, 18, 15, 20 * u64::from(depth), depth, Queue(18, 0));
        }
        // (100 − 15) / 20 keep the bound.
        assert_eq!(c.depth(), 4);
        // Who asks still less, in every other window, is not judged by what was long ago.
        let mut c = controller(Params::new("feedback"));
        for k in 0..90 {
            window(&mut *c, k, k % 2, 10, 1000, 8, Queue(1, 0));
        }
        assert_eq!(c.depth(), 8);
    }

    /// Between its windows with enough samples, what a flow of few requests needs holds against another's slack.
    #[test]
    fn a_flow_of_few_requests_holds_the_depth_meanwhile() {
        let mut c = controller(Params::new("feedback"));
        let latency = Some(Latency { bound: Duration::from_secs(10), percentile: 950_000 });
        c.set_flow(FlowId(1), Some(&Contract { latency, ..Contract::default() }));
        for k in 0..41 {
            let depth = c.depth();
            for _ in 0..40 {
                c.dispatched(FlowId(1), Duration::ZERO, depth, at(k * 1000));
                let service = Duration::from_millis(20 * u64::from(depth));
                c.completed(&request(1, 0, 512), service, depth - 1, at(k * 1000 + 1));
            }
            window(&mut *c, k, 10, 15, 20 * u64::from(depth), depth, Queue(400, 0));
            assert!(k < 20 || c.depth() == 4, "window {k}: {}", c.depth());
        }
    }

    #[test]
    fn unused_depth_stays_as_it_is() {
        let mut c = controller(Params::new("feedback"));
        for k in 0..20 {
            window(&mut *c, k, 100, 0, 1, 4, Queue(0, 0));
            assert_eq!(c.depth(), 8);
        }
    }

    /// A window of many flows is looked at in steps, in which those that go on count for it and for the next.
    #[test]
    fn many_flows_are_decided_on_in_steps() {
        let latency = Some(Latency { bound: Duration::from_millis(100), percentile: 950_000 });
        let mut c = controller(Params::new("feedback").with("saturation", Value::Integer(1000)));
        for flow in 0..100 {
            c.set_flow(FlowId(flow), Some(&Contract { latency, ..Contract::default() }));
        }
        let request = |c: &mut Box<dyn DepthController>, flow, service, ms| {
            let depth = c.depth();
            c.dispatched(FlowId(flow), Duration::ZERO, depth, at(ms));
            c.completed(&request(flow, 0, 512), Duration::from_millis(service), depth - 1, at(ms));
        };
        // Flow 0 has E = 100 / 20, all others 100 / 10.
        for (flow, n) in (0..100).flat_map(|flow| (0..20).map(move |n| (flow, n))) {
            request(&mut c, flow, if flow == 0 { 20 } else { 10 }, n);
        }
        c.tick(&Queue(1_000_000, 0), at(1000));
        request(&mut c, 0, 10, 1000);
        request(&mut c, 99, 10, 1000);
        let mut steps = 1;
        while let Some(next) = c.wake_at().filter(|next| *next < at(2000)) {
            assert_eq!(c.depth(), 8, "before all were looked at");
            c.tick(&Queue(1_000_000, 0), next);
            steps += 1;
        }
        assert_eq!((steps, c.depth()), (4, 40));
        // What they did meanwhile counts for this window: 20 samples each, with the one of before.
        for (flow, n) in [0, 99].into_iter().flat_map(|flow| (1..20).map(move |n| (flow, n))) {
            request(&mut c, flow, 10, 1000 + n);
        }
        c.tick(&Queue(1_000_000, 0), at(2000));
        assert_eq!(c.depth(), 300); // E = 10, of flow 0 smoothed to (5 + 10) / 2
    }

    /// A device that stalls for 3 s: five windows later the flow is within its bound again.
    #[test]
    fn it_recovers_from_a_stall() {
        let params = [("deadline", text("conforming"))];
        let inner = Params::new("feedback");
        let depth = Value::Table(Params::new("depth").with("feedback", Value::Table(inner)));
        let mut stalled = false;
        let mut t = Trial::new("edf", &[params[0].clone(), ("depth", depth)]).device(move |r| {
            if !stalled && r.arrival >= at(10_000) {
                stalled = true;
                return Duration::from_secs(3);
            }
            Duration::from_micros(1250) // 64 KiB at 50 MB/s
        });
        let contract = |mb: u64, ms: u64| Contract {
            latency: Some(Latency { bound: Duration::from_millis(ms), percentile: 950_000 }),
            ..Contract::reserved(Rate::bytes(mb * 1_000_000))
        };
        t.flow(0, &contract(40, 100));
        t.flow(1, &contract(20, 300));
        // 30 and 12 MB/s in requests of 64 KiB.
        t.source(0, Pattern::Poisson(Duration::from_micros(2184)), anywhere(65536), at(40_000));
        t.source(1, Pattern::Poisson(Duration::from_micros(5461)), anywhere(65536), at(40_000));
        t.run(at(40_000));
        for (flow, ms) in [(0, 100), (1, 300)] {
            let bound = Duration::from_millis(ms);
            assert!(t.within(flow, bound, at(2000), at(10_000)) >= 0.99, "before");
            // The stall leaves 3 s of 42 MB/s behind, of which 8 MB/s are worked off.
            let late =
                (13..40).rev().find(|s| t.within(flow, bound, at(s * 1000), at(s * 1000 + 1000)) < 0.95);
            assert!(late.is_none_or(|s| s <= 33), "flow {flow} late in second {late:?}");
        }
    }
}
