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
mod exchange;
mod pen;
mod silent;

use crate::meters::Metered;
use crate::{
    Completion, Contract, Cost, CostModel, DepthController, Dispatch, Duration, FlowId, FlowMeters,
    GateMeters, Instant, Keeps, Learned, QueueView, Refused, Request, RequestId, Scheduler, Seen, Slots,
    WaitReason,
};
use beside::{Beside, Slot};
use exchange::{AMID, Change};
use pen::{Durable, Held, Pen};
use silent::{Links, NONE, Watch};

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
enum Place {
    Free,
    Waiting { id: RequestId },
    Held { id: RequestId, flow: FlowId },
    InFlight { request: Request, dispatched: Instant, epoch: u32, slot: Slot, links: Links },
}

#[derive(Default)]
struct Flow {
    meters: FlowMeters,
    contract: Contract,
    removed: bool,
    /// Since which exchange its requests wait in the scheduler in which they do.
    epoch: u32,
    /// Of its requests, those that have given their slots back.
    silent: u32,
    /// Those that the scheduler does not have yet.
    held: Held,
    durable: Durable,
}

/// Cost model, scheduler and depth controller with the meters around them.
pub struct Gate {
    parts: Assembly,
    /// The parts before and the parts to come, while the scheduler is exchanged.
    change: Change,
    flows: Vec<Option<Box<Flow>>>,
    places: Vec<Place>,
    in_flight: u32,
    beside: Beside,
    /// Most requests of a flow that are to be durable, in the scheduler and in flight: no bound before any has awaited a sync.
    most_durable: u32,
    pen: Pen,
    watch: Watch,
    /// Grows by two with each exchange of the scheduler, so that none hears of requests it did not dispatch.
    epoch: u32,
    pending_max: u32,
    /// Who submits bounds what is pending, by contracts, before commands are cut.
    leaves_pending: bool,
    ask_again: Option<Instant>,
    last_completion: Instant,
    meters: GateMeters,
    /// Flows with a new oldest request: why it waits is asked once no more can go.
    fresh: Vec<FlowId>,
    /// Flows that began or ceased to have something waiting, as [`Dirty`] says.
    dirty: Dirty,
}

/// Some flows, those of which began or ceased to have something waiting among them: one bit for each, and all whose numbers
/// are the same modulo 64 share it. Whoever watches a few flows of many gates need not look at all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dirty(u64);

impl Dirty {
    /// Whether `flow` may be among them.
    pub fn may_have(self, flow: FlowId) -> bool {
        self.0 & Self::bit(flow) > 0
    }
    fn note(&mut self, flow: FlowId) {
        self.0 |= Self::bit(flow);
    }
    fn bit(flow: FlowId) -> u64 {
        1 << (flow.0 % 64)
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
    /// Most requests that are silent at once: each holds its buffer, and a slot at the device.
    pub const SILENT: u32 = 1024;

    /// A gate without flows.
    pub fn new(parts: Assembly) -> Self {
        Gate {
            parts,
            change: Change::default(),
            flows: Vec::new(),
            places: Vec::new(),
            in_flight: 0,
            beside: Beside::default(),
            most_durable: u32::MAX,
            pen: Pen::default(),
            watch: Watch::default(),
            epoch: 0,
            pending_max: Self::PENDING_DEFAULT,
            leaves_pending: false,
            ask_again: None,
            last_completion: Instant::ZERO,
            meters: GateMeters::default(),
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
        state.epoch = self.epoch;
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
            orphans[first..].iter().for_each(|request| state.durable.leaves(request));
            self.pen.give_up(&mut state.held, orphans);
        }
        for request in &orphans[first..] {
            self.places[request.id.index()] = Place::Free;
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
        let pending = Self::most_pending(meters, self.leaves_pending, self.pending_max);
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
        if self.places.len() <= slot {
            self.places.resize(slot + 1, Place::Free);
        }
        assert!(matches!(self.places[slot], Place::Free), "request {:?} is already pending", request.id);
        self.ask_again = Some(now);
        let parts = self.change.holder(&state.epoch, self.epoch, &mut self.parts);
        request.cost = parts.cost.estimate(&request);
        assert!(request.cost > Cost::ZERO, "a request that costs nothing is never scheduled fairly");
        if !request.administration {
            let later = match state.held.is_empty() && state.durable.has_room(&request, self.most_durable) {
                true => self.parts.depth.admits(&request, now),
                false => Some(now),
            };
            if let Some(later) = later {
                self.places[slot] = Place::Held { id: request.id, flow: request.flow };
                self.pen.hold(state, request, later);
                return Ok(());
            }
            state.durable.enters(&request);
        }
        self.places[slot] = Place::Waiting { id: request.id };
        let parts = self.change.holder(&state.epoch, self.epoch, &mut self.parts);
        parts.scheduler.enqueue(request, now);
        Ok(())
    }

    /// Takes a waiting request out; `None` if it is in flight, over, or unknown.
    pub fn cancel(&mut self, id: RequestId, now: Instant) -> Option<Request> {
        let request = match *self.places.get(id.index())? {
            Place::Waiting { id: waiting } if waiting == id => {
                let here = self.parts.scheduler.cancel(id, now);
                let request = here.or_else(|| self.change.old_mut()?.scheduler.cancel(id, now));
                let request = request.expect("a waiting request is in the scheduler");
                self.parts.depth.passed(request.flow);
                self.no_more_durable(&request, now);
                request
            }
            Place::Held { id: held, flow } if held == id => {
                let held =
                    &mut self.flows[flow.index()].as_mut().expect("a pending request's flow is kept").held;
                let request = self.pen.cancel(held, id).expect("a held request is held");
                self.pen.wake(flow, held, now);
                request
            }
            _ => return None,
        };
        self.places[id.index()] = Place::Free;
        let state = self.flow_mut(request.flow);
        state.meters.pending -= 1;
        state.meters.cancelled += 1;
        self.dirty.note(request.flow);
        self.ask_again = Some(now);
        self.forget_if_removed(request.flow);
        Some(request)
    }

    /// The next request that may go to the device.
    pub fn next(&mut self, now: Instant) -> Dispatch {
        self.tick(now);
        self.move_on(now);
        self.let_in(now);
        if self.is_full() && self.queued() > 0 {
            self.release(now);
        }
        let beside = self.beside.all();
        let depth = self.parts.depth.depth().saturating_add(beside);
        if self.in_flight >= depth {
            let look_at = self.watch.least.filter(|_| self.queued() > 0).map(|_| self.watch.look_at);
            self.ask_again = if self.change.is_moving() { Some(now) } else { look_at };
            if self.queued() == 0 {
                return Dispatch::Idle;
            }
            let reason = self.why_full();
            self.note_reasons(reason, now);
            return Dispatch::Wait { until: None, reason };
        }
        let slots = Slots {
            in_flight: self.in_flight,
            depth,
            spare: self.parts.depth.spare(self.in_flight - beside),
        };
        let (mut answer, epoch) = self.ask(now, slots);
        if answer == Dispatch::Idle && self.pen.held > 0 {
            // Not before the next moment, however soon the pen is to be asked again.
            let until = self.pen.wake_at().map(|at| at.max(now + Duration::from_nanos(1)));
            answer = Dispatch::Wait { until, reason: WaitReason::Depth };
        }
        self.ask_again = self.change.is_moving().then_some(now);
        match answer {
            Dispatch::Ready(request) => self.dispatched(request, epoch, now),
            Dispatch::Wait { until: Some(until), reason } => {
                assert!(until > now, "{} waits for the past", self.parts.scheduler.name());
                self.ask_again.get_or_insert(until);
                self.note_reasons(reason, now);
            }
            Dispatch::Wait { until: None, reason } => {
                assert!(self.in_flight > 0, "{} waits for nothing", self.parts.scheduler.name());
                self.note_reasons(reason, now);
            }
            Dispatch::Idle => debug_assert_eq!(self.queued(), 0, "idle with a backlog"),
        }
        answer
    }

    fn is_full(&self) -> bool {
        self.in_flight - self.beside.all() >= self.parts.depth.depth()
    }

    fn dispatched(&mut self, request: Request, epoch: u32, now: Instant) {
        let place = &mut self.places[request.id.index()];
        assert!(
            matches!(place, Place::Waiting { id } if *id == request.id),
            "{} dispatched {:?}, which was not waiting",
            self.parts.scheduler.name(),
            request.id
        );
        let slot = self.beside.of(&request).filter(|(count, most)| **count < *most);
        let beside = slot.map(|(count, _)| *count += 1).is_some();
        let slot = if beside { Slot::Beside } else { Slot::Own };
        let links = Links { older: NONE, newer: NONE };
        *place = Place::InFlight { request, dispatched: now, epoch, slot, links };
        if !beside {
            let joined = self.watch.append(&mut self.places, request.id.slot);
            if let Place::InFlight { links, .. } = &mut self.places[request.id.index()] {
                *links = joined;
            }
        }
        self.meters.advance(self.in_flight, now);
        self.in_flight += 1;
        self.left(request.flow, now);
        if beside {
            return self.parts.depth.passed(request.flow);
        }
        let parts =
            self.change.dispatcher(epoch, self.epoch, &mut self.parts).expect("it has just dispatched");
        let wait = now.since(parts.scheduler.waits_from(&request));
        self.parts.depth.dispatched(request.flow, wait, self.in_flight - self.beside.all(), now);
        self.parts.depth.took(request.cost, now);
    }

    /// A request of `flow` was dispatched: what the oldest one waited goes to its reason, and the next is the oldest.
    fn left(&mut self, flow: FlowId, now: Instant) {
        let state = self.flows[flow.index()].as_mut().expect("a pending request's flow is kept");
        self.pen.wake(flow, &mut state.held, now);
        let meters = &mut state.meters;
        if let Some(reason) = meters.why.take() {
            meters.waits[reason as usize] += now.since(meters.oldest_since);
        }
        meters.in_flight += 1;
        if meters.waits() {
            meters.oldest_since = now;
            if !std::mem::replace(&mut meters.is_fresh, true) {
                self.fresh.push(flow);
            }
        } else {
            self.dirty.note(flow);
        }
    }

    /// Nothing more can go now, for `reason` where the scheduler has none of the flow's own: asked once for each
    /// request that has become its flow's oldest, so that the cost does not grow with the flows that wait.
    fn note_reasons(&mut self, reason: WaitReason, now: Instant) {
        while let Some(flow) = self.fresh.pop() {
            if let Some(Flow { meters, epoch, held, .. }) = self.flows[flow.index()].as_deref_mut() {
                let parts = self.change.holder(epoch, self.epoch, &mut self.parts);
                let why = match meters.pending - meters.in_flight == held.len() {
                    true if !held.is_empty() => WaitReason::Depth,
                    _ => parts.scheduler.waiting(flow, now).unwrap_or(reason),
                };
                meters.is_fresh = false;
                meters.why = meters.waits().then_some(why);
            }
        }
    }

    /// Why nothing goes while as much is in flight as may be.
    fn why_full(&self) -> WaitReason {
        if self.parts.depth.holds_back() { WaitReason::Depth } else { WaitReason::DeviceBusy }
    }

    /// The true cost of a pending request became known (a read's answer says how much there was).
    pub fn adjust(&mut self, id: RequestId, cost: Cost, now: Instant) {
        assert!(cost > Cost::ZERO, "a request that costs nothing is never scheduled fairly");
        if let Some(Place::InFlight { request, epoch, .. }) = self.places.get_mut(id.index())
            && request.id == id
        {
            if let Some(parts) = self.change.dispatcher(*epoch, self.epoch, &mut self.parts) {
                parts.scheduler.adjust(request, cost, now);
            }
            request.cost = cost;
        }
    }

    /// A dispatched request is over, well or not.
    ///
    /// # Panics
    /// When it is not in flight: completing twice is an error of the caller.
    pub fn complete(&mut self, id: RequestId, failed: bool, now: Instant) -> Served {
        let place = std::mem::replace(&mut self.places[id.index()], Place::Free);
        let Place::InFlight { mut request, dispatched, epoch, slot, links } = place else {
            panic!("request {id:?} is not in flight");
        };
        assert_eq!(request.id, id, "a request of another generation is in flight there");
        self.meters.advance(self.in_flight, now);
        self.in_flight -= 1;
        let service = now.since(dispatched);
        match slot {
            Slot::Own => {
                self.watch.unlink(&mut self.places, links);
                self.watch.learn(service);
            }
            Slot::Beside => {
                if let Some((count, _)) = self.beside.of(&request) {
                    *count -= 1;
                }
            }
            Slot::GivenBack => {
                self.beside.silent -= 1;
                self.flow_mut(request.flow).silent -= 1;
            }
            Slot::Syncing => self.beside.syncing -= 1,
        }
        let disk_time = now.since(dispatched.max(self.last_completion));
        self.last_completion = now;
        let (cost, waits) = (request.cost, self.parts.scheduler.queued() > 0);
        if let Some(parts) = self.change.dispatcher(epoch, self.epoch, &mut self.parts) {
            parts.cost.seen(&request, Seen { disk_time, service, in_flight: self.in_flight, waits, failed });
            let actual = parts.cost.actual(&request, disk_time);
            let completion = Completion { request, actual, dispatched, service, in_flight: self.in_flight };
            parts.scheduler.complete(&completion, now);
            request.cost = actual;
        }
        if self.epoch.wrapping_sub(epoch) <= AMID {
            if matches!(slot, Slot::Own | Slot::Syncing) {
                self.parts.depth.completed(&request, service, self.in_flight - self.beside.all(), now);
            }
            if slot == Slot::Own {
                self.parts.depth.freed(cost, waits, now);
            }
        }
        self.no_more_durable(&request, now);
        let state = self.flow_mut(request.flow);
        let metered = Metered {
            op: request.op,
            len: request.len,
            commands: request.commands,
            cost: request.cost,
            wait: dispatched.since(request.arrival),
            service,
            disk_time,
            failed,
        };
        state.meters.completed(&metered);
        self.ask_again = Some(now);
        self.forget_if_removed(request.flow);
        Served { request, dispatched, completed: now, disk_time }
    }

    /// `flow` received `service` at other nodes.
    pub fn foreign(&mut self, flow: FlowId, service: Cost, now: Instant) {
        if let Some(state) = self.flows.get(flow.index()).and_then(|s| s.as_deref()).filter(|s| !s.removed) {
            let parts = self.change.holder(&state.epoch, self.epoch, &mut self.parts);
            parts.scheduler.foreign(flow, service, now);
        }
    }

    /// A finish time for a waiting request was made elsewhere, `lead` after its arrival. `false` if it came too late, or if this
    /// gate's scheduler has no use for it.
    pub fn retag(&mut self, id: RequestId, lead: Duration, now: Instant) -> bool {
        let waits =
            matches!(self.places.get(id.index()), Some(Place::Waiting { id: waiting }) if *waiting == id);
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

    fn most_pending(meters: &FlowMeters, leaves_pending: bool, most: u32) -> u32 {
        meters.pending_max.filter(|_| !leaves_pending).map_or(most, u32::from)
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
    /// Requests in flight that have given their slots back.
    pub fn silent(&self) -> u32 {
        self.beside.silent
    }
    /// Most requests pending for flows whose contract does not say.
    pub fn set_pending_max(&mut self, pending: u32) {
        assert!(pending > 0, "a gate that takes nothing in");
        self.pending_max = pending;
    }
    /// Contracts' bounds on pending commands are the submitter's business: commands are bounded before they are cut into
    /// requests. Schedulers still know them.
    pub fn leave_pending(&mut self) {
        self.leaves_pending = true;
    }
    /// Whether a submission of `flow` would be taken in now.
    pub fn has_room(&self, flow: FlowId) -> bool {
        self.flows.get(flow.index()).and_then(|s| s.as_deref()).is_some_and(|s| {
            let most = Self::most_pending(&s.meters, self.leaves_pending, self.pending_max);
            !s.removed && s.meters.pending < most
        })
    }
    /// The contract in force.
    pub fn contract(&self, flow: FlowId) -> Option<&Contract> {
        self.flows.get(flow.index())?.as_deref().filter(|s| !s.removed).map(|s| &s.contract)
    }
    /// The flow's meters.
    pub fn flow_meters(&self, flow: FlowId) -> Option<&FlowMeters> {
        self.flows.get(flow.index())?.as_deref().map(|s| &s.meters)
    }
    /// The flows that are set.
    pub fn flows(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.flows
            .iter()
            .enumerate()
            .filter(|(_, s)| s.as_ref().is_some_and(|s| !s.removed))
            .map(|(i, _)| FlowId(i as u32))
    }
    /// The gate's meters, brought up to `now`.
    pub fn meters(&mut self, now: Instant) -> &GateMeters {
        self.meters.advance(self.in_flight, now);
        &self.meters
    }
    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }
    /// Requests waiting.
    pub fn queued(&self) -> usize {
        let old = self.change.old().map_or(0, |parts| parts.scheduler.queued());
        self.parts.scheduler.queued() + old + self.pen.held
    }
    /// Most requests in flight now, beside FLUSHes and administration in slots of their own.
    pub fn depth(&self) -> u32 {
        self.parts.depth.depth()
    }
    /// Why `flow` waits now.
    pub fn waiting(&self, flow: FlowId, now: Instant) -> Option<WaitReason> {
        let state = self.flows.get(flow.index())?.as_deref()?;
        if !state.meters.waits() {
            return None;
        }
        if state.meters.pending - state.meters.in_flight == state.held.len() {
            return Some(WaitReason::Depth);
        }
        let busy = self.in_flight - self.beside.all() >= self.parts.depth.depth();
        let old = self.change.old().filter(|_| state.epoch != self.epoch);
        old.unwrap_or(&self.parts).scheduler.waiting(flow, now).or(busy.then(|| self.why_full()))
    }
    /// Time during which the oldest request of `flow` waited for `reason`, the one that waits now included.
    pub fn waited(&self, flow: FlowId, reason: WaitReason, now: Instant) -> Duration {
        let Some(state) = self.flows.get(flow.index()).and_then(|s| s.as_deref()) else {
            return Duration::ZERO;
        };
        let meters = &state.meters;
        let open = meters.why == Some(reason) && meters.waits();
        meters.waits[reason as usize] + if open { now.since(meters.oldest_since) } else { Duration::ZERO }
    }
    /// In which unit it charges.
    pub fn cost_unit(&self) -> crate::CostUnit {
        self.parts.cost.unit()
    }
    /// Device time under way and most that may be, where the depth counts work.
    pub fn work(&self) -> Option<(Duration, Duration)> {
        self.parts.depth.work()
    }
    /// What its cost model has learned.
    pub fn learned(&self) -> Vec<Learned> {
        let mut learned = Vec::new();
        self.parts.cost.learned(&mut learned);
        learned
    }
    /// The scheduler, to look at.
    pub fn scheduler(&self) -> &dyn Scheduler {
        &*self.parts.scheduler
    }
}
