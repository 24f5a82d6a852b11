//! What holds requests back and releases them.
//!
//! ```text
//!   submit ─▶ cost model ─▶ scheduler ─▶ depth ─▶ next      (then somebody does the I/O)
//!                 ▲             ▲           ▲
//!                 └─────────────┴───────────┴──── complete   (what it really took)
//! ```
//!
//! A gate decides *when*; it does no I/O. One thread owns it, so nothing inside is locked, and once
//! warm it allocates nothing per request.

mod beside;
mod complete;
mod demand;
mod dirty;
mod dispatch;
mod exchange;
mod passing;
mod pen;
mod readings;
mod silent;
mod stall;

use crate::{
    Contract, Cost, CostModel, DepthController, Duration, FlowId, FlowMeters, GateMeters, Instant, Keeps,
    QueueView, Refused, Request, RequestId, Scheduler,
};
use beside::{Beside, Slot};
pub use demand::Demand;
use demand::Noted;
pub use dirty::Dirty;
use exchange::Change;
use passing::Passing;
use pen::{Bounded, Held, KINDS, Pen};
use silent::{Links, Watch};
use stall::Hung;

/// The three parts that a gate is made of.
pub struct Assembly {
    /// What a request is charged.
    pub cost: Box<dyn CostModel>,
    /// Who goes next.
    pub scheduler: Box<dyn Scheduler>,
    /// How many at once.
    pub depth: Box<dyn DepthController>,
}

/// The flow has as many requests pending as its contract (or the gate) allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    /// The request, given back untouched.
    pub request: Request,
    /// Most that may be pending.
    pub pending: u32,
}

/// What is known of a request when it is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// As it was dispatched, its cost corrected to what it really was.
    pub request: Request,
    /// When it left the gate.
    pub dispatched: Instant,
    /// When it was over.
    pub completed: Instant,
    /// Disk time attributed to it: since its dispatch or the completion before it, whichever is later.
    pub disk_time: Duration,
}

#[derive(Clone, Copy)]
enum RequestState {
    Free,
    Waiting {
        id: RequestId,
    },
    Held {
        id: RequestId,
        flow: FlowId,
    },
    /// `answers`: how many there had been when it was dispatched.
    InFlight {
        request: Request,
        dispatched: Instant,
        answers: u32,
        epoch: u32,
        slot: Slot,
        links: Links,
    },
}

#[derive(Default)]
struct Flow {
    meters: FlowMeters,
    contract: Contract,
    removed: bool,
    /// Since which exchange its requests wait in the scheduler in which they do.
    epoch: u32,
    hung: Hung,
    /// Those that the scheduler does not have yet.
    held: Held,
    bounded: Bounded,
}

/// Cost model, scheduler and depth controller with the meters around them.
pub struct Gate {
    parts: Assembly,
    /// The parts before and the parts to come, while the scheduler is exchanged.
    change: Change,
    flows: Vec<Option<Box<Flow>>>,
    states: Vec<RequestState>,
    in_flight: u32,
    beside: Beside,
    passing: Passing,
    pen: Pen,
    watch: Watch,
    bounds: Bounds,
    ask_again: Option<Instant>,
    last_completion: Instant,
    meters: GateMeters,
    noted: Noted,
    /// Flows with a new oldest request: why it waits is asked once no more can go.
    fresh: Vec<FlowId>,
    /// Flows that began or ceased to have something waiting, as [`Dirty`] says.
    dirty: Dirty,
}

/// What a flow may have.
struct Bounds {
    /// Requests pending, where its contract does not say.
    pending: u32,
    /// Who submits bounds what is pending, by contracts, before commands are cut.
    leaves_pending: bool,
    /// Of each kind that may leave its slot, in the scheduler and in flight: no bound before any has awaited others.
    beside: [u32; KINDS],
}

impl Bounds {
    /// Requests that a flow may have pending.
    fn pending(&self, meters: &FlowMeters) -> u32 {
        meters.pending_max.filter(|_| !self.leaves_pending).map_or(self.pending, u32::from)
    }
}

/// What waits, for the depth controller: with what the scheduler still has that is being replaced.
struct View<'a>(&'a dyn Scheduler, Option<&'a dyn Scheduler>);

impl QueueView for View<'_> {
    fn queued(&self) -> usize {
        self.0.queued() + self.1.map_or(0, |old| old.queued())
    }
    fn due(&self, until: Instant) -> usize {
        self.0.due(until) + self.1.map_or(0, |old| old.due(until))
    }
}

impl Gate {
    /// Most requests a flow may have pending where its contract does not say.
    pub const PENDING_DEFAULT: u32 = 1024;
    /// Most FLUSHes at the device beside the depth: a device that makes something durable holds up others less than the slot would.
    pub const FLUSHES: u32 = 4;
    /// The same of an administrator's work.
    pub const ADMINISTRATION: u32 = 1;
    /// Most requests of a flow that are to be durable, in the scheduler and at the device together, where the depth is less and where they
    /// await syncs beside it. A sync takes the longer the more it is for, and the kernel may give nobody else its processor meanwhile.
    pub const DURABLE: u32 = 32;
    /// The same of holes and zeroes, whatever the depth. Storage makes those of a file one after the other, and nobody can take back what it has.
    pub const HOLES: u32 = 8;
    /// Most requests that are silent at once: each holds its buffer, and a slot at the device.
    pub const SILENT: u32 = 1024;

    /// A gate without flows.
    pub fn new(parts: Assembly) -> Self {
        Gate {
            parts,
            change: Change::default(),
            flows: Vec::new(),
            states: Vec::new(),
            in_flight: 0,
            beside: Beside::default(),
            passing: Passing::default(),
            pen: Pen::default(),
            watch: Watch::default(),
            bounds: Bounds {
                pending: Self::PENDING_DEFAULT,
                leaves_pending: false,
                beside: [u32::MAX; KINDS],
            },
            ask_again: None,
            last_completion: Instant::ZERO,
            meters: GateMeters::default(),
            noted: Noted::default(),
            fresh: Vec::new(),
            dirty: Dirty::default(),
        }
    }

    /// The flows that began or ceased to have something waiting since this was last asked, and perhaps others.
    pub fn take_dirty(&mut self) -> Dirty {
        std::mem::take(&mut self.dirty)
    }

    /// What its scheduler keeps of contracts.
    pub fn keeps(&self) -> Keeps {
        self.parts.scheduler.keeps()
    }

    /// Whether [`set_flow`](Self::set_flow) would accept this; changes nothing.
    pub fn check(&self, flow: FlowId, contract: &Contract) -> Result<(), Refused> {
        self.parts.scheduler.check(flow, contract)
    }

    /// Adds a flow or changes its contract; from now on it governs queued and new requests. A refused
    /// contract leaves everything as it was.
    pub fn set_flow(&mut self, flow: FlowId, contract: &Contract, now: Instant) -> Result<(), Refused> {
        self.move_flow(flow, now);
        self.parts.scheduler.set_flow(flow, contract, now)?;
        self.parts.depth.set_flow(flow, Some(contract));
        self.change.set_flow(flow, contract, now);
        if self.flows.len() <= flow.index() {
            self.flows.resize_with(flow.index() + 1, || None);
        }
        let state = self.flows[flow.index()].get_or_insert_default();
        state.contract = contract.clone();
        state.meters.govern(contract);
        state.removed = false;
        state.epoch = self.change.epoch();
        self.ask_again = Some(now);
        Ok(())
    }

    /// Removes a flow; what it had waiting comes back in `orphans`, what is in flight completes as usual.
    pub fn remove_flow(&mut self, flow: FlowId, now: Instant, orphans: &mut Vec<Request>) {
        let first = orphans.len();
        self.change.remove_flow(flow, now, orphans);
        self.parts.scheduler.remove_flow(flow, now, orphans);
        self.parts.depth.set_flow(flow, None);
        if let Some(Some(state)) = self.flows.get_mut(flow.index()) {
            for request in &orphans[first..] {
                state.bounded.leaves(request);
                self.passing.gave_up(request);
            }
            self.pen.give_up(state, orphans);
        }
        for request in &orphans[first..] {
            self.states[request.id.index()] = RequestState::Free;
        }
        self.dirty.note(flow);
        let Some(slot) = self.flows.get_mut(flow.index()) else { return };
        let Some(state) = slot else { return };
        state.meters.pending -= (orphans.len() - first) as u32;
        state.removed = true;
        if state.meters.pending == 0 {
            *slot = None;
        }
    }

    /// Takes a request in, or gives it back when the flow's queue is full.
    ///
    /// # Panics
    /// When the flow was never set, or the id is in use: errors of the caller.
    pub fn submit(&mut self, mut request: Request, now: Instant) -> Result<(), Full> {
        let state =
            self.flows.get_mut(request.flow.index()).and_then(|s| s.as_mut()).expect("a flow that was set");
        let meters = &mut state.meters;
        let pending = self.bounds.pending(meters);
        if meters.pending >= pending {
            meters.full += 1;
            return Err(Full { request, pending });
        }
        if !meters.waits() {
            self.dirty.note(request.flow);
            meters.oldest_since = now;
            if !std::mem::replace(&mut meters.is_fresh, true) {
                self.fresh.push(request.flow);
            }
        }
        meters.pending += 1;
        let slot = request.id.index();
        if self.states.len() <= slot {
            self.states.resize(slot + 1, RequestState::Free);
        }
        assert!(
            matches!(self.states[slot], RequestState::Free),
            "request {:?} is already pending",
            request.id
        );
        self.ask_again = Some(now);
        let parts = self.change.holder(&state.epoch, &mut self.parts);
        request.cost = parts.cost.estimate(&request);
        assert!(request.cost > Cost::ZERO, "a request that costs nothing is never scheduled fairly");
        if !request.administration {
            let held = RequestState::Held { id: request.id, flow: request.flow };
            if let Some(kind) = state.bounds(&request, self.bounds.beside) {
                self.states[slot] = held;
                self.pen.hold_bounded(&mut state.held, kind, request);
                return Ok(());
            }
            state.bounded.enters(&request);
            let later = if state.is_held() { Some(now) } else { self.parts.depth.admits(&request, now) };
            if let Some(later) = later {
                self.states[slot] = held;
                self.pen.hold(state, request, later);
                return Ok(());
            }
        }
        self.states[slot] = RequestState::Waiting { id: request.id };
        self.passing.waits(&request);
        let parts = self.change.holder(&state.epoch, &mut self.parts);
        parts.scheduler.enqueue(request, now);
        Ok(())
    }

    /// Takes a waiting request out, or one that is stalled; `None` if it is at the device, over, or unknown.
    pub fn cancel(&mut self, id: RequestId, now: Instant) -> Option<Request> {
        let request = match *self.states.get(id.index())? {
            RequestState::Waiting { id: waiting } if waiting == id => {
                let here = self.parts.scheduler.cancel(id, now);
                let request = here.or_else(|| self.change.old_mut()?.scheduler.cancel(id, now));
                let request = request.expect("a waiting request is in the scheduler");
                self.parts.depth.passed(request.flow);
                self.passing.gave_up(&request);
                self.no_more_bounded(&request, now);
                request
            }
            RequestState::Held { id: held, flow } if held == id => {
                let state = self.flows[flow.index()].as_mut().expect("a pending request's flow is kept");
                let request = self.pen.cancel(state, id).expect("a held request is held");
                self.pen.wake(flow, &mut state.held, now);
                request
            }
            RequestState::InFlight { request, slot: Slot::Stalled, .. } if request.id == id => {
                self.cancel_stalled(request, now);
                request
            }
            _ => return None,
        };
        self.states[id.index()] = RequestState::Free;
        let state = self.flow_mut(request.flow);
        state.meters.pending -= 1;
        state.meters.cancelled += 1;
        self.dirty.note(request.flow);
        self.ask_again = Some(now);
        self.forget_if_removed(request.flow);
        Some(request)
    }

    /// `flow` received `service` at other nodes.
    pub fn foreign(&mut self, flow: FlowId, service: Cost, now: Instant) {
        if let Some(state) = self.flows.get(flow.index()).and_then(|s| s.as_deref()).filter(|s| !s.removed) {
            let parts = self.change.holder(&state.epoch, &mut self.parts);
            parts.scheduler.foreign(flow, service, now);
        }
    }

    /// A finish time for a waiting request was made elsewhere, `lead` after its arrival. `false` if it came too late, or if this
    /// gate's scheduler has no use for it.
    pub fn retag(&mut self, id: RequestId, lead: Duration, now: Instant) -> bool {
        let waits = matches!(self.states.get(id.index()), Some(RequestState::Waiting { id: waiting }) if *waiting == id);
        let retag = |parts: &mut Assembly| parts.scheduler.retag(id, lead, now);
        let taken = waits && (retag(&mut self.parts) || self.change.old_mut().is_some_and(retag));
        if taken {
            self.ask_again = Some(now);
        }
        taken
    }

    /// When [`next`](Self::next) is worth asking without a submission or a completion in between.
    pub fn wake_at(&self) -> Option<Instant> {
        let old = self.change.old().and_then(|parts| parts.scheduler.wake_at());
        [self.ask_again, self.parts.scheduler.wake_at(), old, self.parts.depth.wake_at(), self.pen.wake_at()]
            .into_iter()
            .flatten()
            .min()
    }

    fn tick(&mut self, now: Instant) {
        if self.parts.depth.wake_at().is_some_and(|t| t <= now) {
            let old = self.change.old().map(|parts| &*parts.scheduler);
            self.parts.depth.tick(&View(&*self.parts.scheduler, old), now);
        }
    }

    fn flow_mut(&mut self, flow: FlowId) -> &mut Flow {
        self.flows[flow.index()].as_mut().expect("a pending request's flow is kept")
    }

    fn forget_if_removed(&mut self, flow: FlowId) {
        let slot = &mut self.flows[flow.index()];
        if slot.as_ref().is_some_and(|s| s.meters.pending == 0 && s.removed) {
            *slot = None;
        }
    }

    /// Requests that have been in flight for so long, and for much longer than others, give their slots back; `None`: never.
    pub fn set_patience(&mut self, least: Option<Duration>) {
        self.watch.least = least;
    }
    /// Most requests pending for flows whose contract does not say.
    pub fn set_pending_max(&mut self, pending: u32) {
        assert!(pending > 0, "a gate that takes nothing in");
        self.bounds.pending = pending;
    }
    /// Contracts' bounds on pending commands are the submitter's business: commands are bounded before they are cut into
    /// requests. Schedulers still know them.
    pub fn leave_pending(&mut self) {
        self.bounds.leaves_pending = true;
    }
}
