//! A tiny world for the tests beside the schedulers: a gate, sources of requests, and a device that serves one request
//! after the other in simulated time, in the order they were dispatched.

use henge_core::{
    Contract, Dispatch, Duration, FlowId, Gate, Instant, Op, Params, Pending, Refused, Request, RequestId,
    Served, Value,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;

/// A read; its id is given when it is submitted.
pub(crate) fn request(flow: u32, offset: u64, len: u64) -> Request {
    Request::new(RequestId::default(), FlowId(flow), Op::Read, offset, len, Instant::ZERO)
}

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// When a source's requests come.
pub(crate) enum Pattern {
    /// So many outstanding, the next one so long after a completion.
    Closed(u32, Duration),
    /// With exponential gaps of this mean.
    Poisson(Duration),
    /// Then.
    At(VecDeque<Instant>),
}

/// Offset and length of a source's n-th request.
pub(crate) type Shape = Box<dyn FnMut(u64) -> (u64, u64)>;

/// Always the same place: for devices whose time does not depend on it.
pub(crate) fn anywhere(len: u64) -> Shape {
    Box::new(move |_| (0, len))
}

struct Source {
    flow: FlowId,
    pattern: Pattern,
    shape: Shape,
    /// Arrivals that are known, ascending.
    next: VecDeque<Instant>,
    sent: u64,
    until: Instant,
}

/// See the head of this file.
pub(crate) struct Trial {
    pub gate: Gate,
    pub now: Instant,
    pub served: Vec<Served>,
    device: Box<dyn FnMut(&Request) -> Duration>,
    ids: Pending<()>,
    free_at: Instant,
    flying: VecDeque<(Instant, RequestId)>,
    sources: Vec<Source>,
    rng: Pcg64Mcg,
}

impl Trial {
    /// A gate of the registry; its device takes 1 ms for everything.
    pub fn new(scheduler: &str, params: &[(&str, Value)]) -> Self {
        let params = params.iter().fold(Params::new(scheduler), |p, (key, value)| p.with(key, value.clone()));
        let mut gate = Gate::new(crate::build(scheduler, params).unwrap_or_else(|e| panic!("{e}")));
        gate.set_pending_max(1 << 20);
        Trial {
            gate,
            now: Instant::ZERO,
            served: Vec::new(),
            device: Box::new(|_| Duration::from_millis(1)),
            ids: Pending::new(),
            free_at: Instant::ZERO,
            flying: VecDeque::new(),
            sources: Vec::new(),
            rng: Pcg64Mcg::seed_from_u64(1),
        }
    }
    pub fn seed(mut self, seed: u64) -> Self {
        self.rng = Pcg64Mcg::seed_from_u64(seed);
        self
    }
    /// Another device: how long it takes for a request, asked in the order of service.
    pub fn device(mut self, device: impl FnMut(&Request) -> Duration + 'static) -> Self {
        self.device = Box::new(device);
        self
    }
    pub fn try_flow(&mut self, flow: u32, contract: &Contract) -> Result<(), Refused> {
        self.gate.set_flow(FlowId(flow), contract, self.now)
    }
    pub fn flow(&mut self, flow: u32, contract: &Contract) {
        self.try_flow(flow, contract).unwrap_or_else(|r| panic!("{r}"));
    }

    /// From now on until `until`, requests of this kind come.
    pub fn source(&mut self, flow: u32, pattern: Pattern, shape: Shape, until: Instant) {
        let mut source = Source { flow: FlowId(flow), pattern, shape, next: VecDeque::new(), sent: 0, until };
        match &mut source.pattern {
            Pattern::Closed(n, _) => source.next.extend((0..*n).map(|_| self.now)),
            Pattern::Poisson(mean) => source.next.push_back(self.now + gap(&mut self.rng, *mean)),
            Pattern::At(times) => source.next = std::mem::take(times),
        }
        self.sources.push(source);
    }

    /// Submits a request that arrives now.
    pub fn submit(&mut self, request: Request) -> RequestId {
        let id = self.ids.insert(());
        let request = Request { id, arrival: self.now, ..request };
        self.gate.submit(request, self.now).expect("the bound on pending requests is far");
        id
    }
    /// Dispatches one by hand; the device is not asked.
    pub fn dispatch(&mut self) -> Option<Request> {
        match self.gate.next(self.now) {
            Dispatch::Ready(request) => {
                // By hand there is room for all.
                self.gate.complete(request.id, false, self.now);
                self.ids.remove(request.id);
                Some(request)
            }
            _ => None,
        }
    }

    /// Lets the world go on until `end`.
    pub fn run(&mut self, end: Instant) {
        loop {
            self.pump();
            let arrival = self.sources.iter().filter_map(|s| s.next.front().copied()).min();
            let completion = self.flying.front().map(|f| f.0);
            let wake = self.gate.wake_at().filter(|&t| t > self.now);
            let Some(next) = [arrival, completion, wake].into_iter().flatten().min().filter(|&t| t <= end)
            else {
                self.now = end;
                return;
            };
            self.now = next;
            while self.flying.front().is_some_and(|f| f.0 <= next) {
                let (_, id) = self.flying.pop_front().expect("it was just seen");
                self.complete(id);
            }
            for s in 0..self.sources.len() {
                while self.sources[s].next.front().is_some_and(|&t| t <= next) {
                    self.arrive(s);
                }
            }
        }
    }

    fn pump(&mut self) {
        while let Dispatch::Ready(request) = self.gate.next(self.now) {
            self.free_at = self.free_at.max(self.now) + (self.device)(&request);
            self.flying.push_back((self.free_at, request.id));
        }
    }

    fn complete(&mut self, id: RequestId) {
        self.served.push(self.gate.complete(id, false, self.now));
        self.ids.remove(id);
        let served = self.served.last().expect("it was just pushed");
        let (flow, now) = (served.request.flow, self.now);
        for s in self.sources.iter_mut().filter(|s| s.flow == flow) {
            if let Pattern::Closed(_, think) = s.pattern
                && now + think < s.until
            {
                s.next.push_back(now + think);
            }
        }
    }

    fn arrive(&mut self, s: usize) {
        let source = &mut self.sources[s];
        let arrival = source.next.pop_front().expect("it was just seen");
        let (offset, len) = (source.shape)(source.sent);
        source.sent += 1;
        if let Pattern::Poisson(mean) = source.pattern {
            let next = arrival + gap(&mut self.rng, mean);
            if next < source.until {
                source.next.push_back(next);
            }
        }
        let request = request(source.flow.0, offset, len);
        self.submit(request);
    }

    /// Requests of a flow that were over in an interval.
    pub fn completed(&self, flow: u32, from: Instant, to: Instant) -> usize {
        let within = |s: &&Served| s.request.flow == FlowId(flow) && from < s.completed && s.completed <= to;
        self.served.iter().filter(within).count()
    }
    /// Share of a flow's requests that were answered within `bound`, of those over in an interval.
    pub fn within(&self, flow: u32, bound: Duration, from: Instant, to: Instant) -> f64 {
        let of = |s: &&Served| s.request.flow == FlowId(flow) && from < s.completed && s.completed <= to;
        let good =
            self.served.iter().filter(of).filter(|s| s.completed.since(s.request.arrival) <= bound).count();
        good as f64 / self.completed(flow, from, to).max(1) as f64
    }
}

fn gap(rng: &mut impl Rng, mean: Duration) -> Duration {
    let u: f64 = rng.random();
    Duration::from_secs_f64(-(1.0 - u).ln() * mean.as_secs_f64())
}
