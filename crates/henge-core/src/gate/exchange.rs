//! Another scheduler takes over while the gate works.
//!
//! *Problem.* The new scheduler has to know every flow, and what waits has to move over. All at once takes time linear in the
//! flows and in what waits, during which nothing is dispatched.
//!
//! *Rule.* In two parts, each in steps of a bounded number of flows.
//! 1. The new one is told of the flows' contracts ([`Gate::prepare_step`]) while the old one goes on as if nothing were. If it
//!    refuses one, it is dropped, and nothing has happened.
//! 2. It takes over ([`Gate::take_over`]), with its cost model and its depth. Whenever the gate is asked for the next request,
//!    some more flows move, in the order of their numbers: what a flow has waiting is enqueued anew, in its order. A flow that
//!    has not moved is with the old one, and so is what it submits; one that is added or changed moves at once. The old one is
//!    asked first, and the new one where the old one has nothing that may go.
//!
//! *Example.* 1,000 flows, all with something waiting, steps of 64: 16 steps make them known. Then the gate is asked 16 times,
//! and each time 64 flows move and at most one request of the others leaves; the new one decides from the seventeenth on. While
//! it has dispatched nothing its virtual time stands, so the first to move does not get ahead of the last.
//!
//! *Guarantee.* Nothing is lost, no flow's requests overtake each other, and the gate is idle only if both schedulers are. Of `n`
//! flows with `w` requests waiting, at most (n + w) / step + 2 requests leave by the old one after it was replaced: to
//! within that number, shares are the old scheduler's before and the new one's after. A flow's limit begins anew, as when it is set.
//!
//! *Price.* A step looks at `step` flows, and moves at most `step` requests and what is left of one flow's. Otherwise, a
//! comparison a request. Between flows what waited may change its order: a FIFO serves it flow by flow, not as it came.

use super::{Assembly, Gate};
use crate::{Contract, Dispatch, FlowId, Instant, Refused, Request, Slots};

/// The epoch minus that of a request which the old scheduler dispatched after it was replaced; two for a request before.
const AMID: u32 = 1;

/// The scheduler that is to come, and the one that is going, each with its cost model and its depth.
#[derive(Default)]
pub(super) struct Change {
    /// Grows by two with each exchange, so that no scheduler hears of requests it did not dispatch.
    epoch: u32,
    coming: Option<Coming>,
    going: Option<Going>,
}

struct Coming {
    parts: Assembly,
    step: usize,
    /// The flows below this number were made known.
    known: usize,
    /// A contract that changed while it was being prepared.
    refused: Option<(FlowId, Refused)>,
}

struct Going {
    parts: Assembly,
    step: usize,
    /// The flows below this number have moved; of the others, the flows that were set since.
    moved: usize,
    /// Empty but while a flow moves.
    orphans: Vec<Request>,
}

impl Change {
    /// Whether flows are moving.
    pub(super) fn is_moving(&self) -> bool {
        self.going.is_some()
    }
    /// The old one, while flows move.
    pub(super) fn old(&self) -> Option<&Assembly> {
        self.going.as_ref().map(|g| &g.parts)
    }
    /// The same, to be used.
    pub(super) fn old_mut(&mut self) -> Option<&mut Assembly> {
        self.going.as_mut().map(|g| &mut g.parts)
    }
    /// The epoch of flows and requests of the scheduler in force.
    #[inline]
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }
    /// Whether a request of this epoch was dispatched since the scheduler in force took over: its depth has counted it.
    #[inline]
    pub(super) fn is_recent(&self, epoch: u32) -> bool {
        self.epoch.wrapping_sub(epoch) <= AMID
    }
    /// Who has the requests of a flow of this epoch, at a gate with `parts`. The flow's is only looked at while flows move:
    /// otherwise a request would fetch it into the cache for nothing.
    #[inline]
    pub(super) fn holder<'a>(&'a mut self, epoch: &u32, parts: &'a mut Assembly) -> &'a mut Assembly {
        match &mut self.going {
            Some(going) if *epoch != self.epoch => &mut going.parts,
            _ => parts,
        }
    }
    /// Who dispatched a request of this epoch; `None` if that scheduler is gone.
    #[inline]
    pub(super) fn dispatcher<'a>(
        &'a mut self,
        epoch: u32,
        parts: &'a mut Assembly,
    ) -> Option<&'a mut Assembly> {
        match self.epoch.wrapping_sub(epoch) {
            0 => Some(parts),
            1 | 2 => self.old_mut(),
            _ => None,
        }
    }
    /// A flow was added, or has another contract: the one to come hears of it, if it knows the flow.
    pub(super) fn set_flow(&mut self, flow: FlowId, contract: &Contract, now: Instant) {
        if let Some(coming) = self.coming.as_mut().filter(|c| flow.index() < c.known) {
            coming.set_flow(flow, contract, now);
        }
    }
    /// A flow is removed.
    pub(super) fn remove_flow(&mut self, flow: FlowId, now: Instant, orphans: &mut Vec<Request>) {
        if let Some(coming) = &mut self.coming {
            coming.parts.scheduler.remove_flow(flow, now, orphans);
            coming.parts.depth.set_flow(flow, None);
        }
        if let Some(going) = &mut self.going {
            going.parts.scheduler.remove_flow(flow, now, orphans);
        }
    }
}

impl Coming {
    fn set_flow(&mut self, flow: FlowId, contract: &Contract, now: Instant) {
        match self.parts.scheduler.set_flow(flow, contract, now) {
            Ok(()) => self.parts.depth.set_flow(flow, Some(contract)),
            Err(refused) => self.refused = self.refused.take().or(Some((flow, refused))),
        }
    }
}

impl Gate {
    /// Scheduler, depth and cost model that are to take over, in steps of `step` flows. They replace any that were prepared
    /// before.
    pub fn prepare(&mut self, parts: Assembly, step: usize) {
        assert!(step > 0, "an exchange that never gets anywhere");
        self.change.coming = Some(Coming { parts, step, known: 0, refused: None });
    }

    /// Makes some more flows known to what was prepared: true once it knows them all and may take over. If it refuses a
    /// contract, it is dropped, and the old one goes on.
    ///
    /// # Panics
    /// When nothing was prepared.
    pub fn prepare_step(&mut self, now: Instant) -> Result<bool, (FlowId, Refused)> {
        self.move_on(now); // an exchange before it ends first
        let coming = self.change.coming.as_mut().expect("a scheduler was prepared");
        let from = coming.known;
        coming.known = self.flows.len().min(from + coming.step);
        for (i, state) in self.flows.iter().enumerate().take(coming.known).skip(from) {
            if let Some(state) = state.as_ref().filter(|s| !s.removed) {
                coming.set_flow(FlowId(i as u32), &state.contract, now);
            }
        }
        if let Some(refused) = coming.refused.take() {
            self.change.coming = None;
            return Err(refused);
        }
        Ok(coming.known == self.flows.len() && !self.change.is_moving())
    }

    /// Forgets what was prepared.
    pub fn prepare_no_more(&mut self) {
        self.change.coming = None;
    }

    /// What was prepared takes over.
    ///
    /// # Panics
    /// When the last [`prepare_step`](Self::prepare_step) did not say that it may, or flows were added since.
    pub fn take_over(&mut self, now: Instant) {
        let coming = self.change.coming.take().expect("a scheduler was prepared");
        assert!(
            coming.known == self.flows.len() && coming.refused.is_none(),
            "a scheduler that knows every flow"
        );
        assert!(!self.change.is_moving(), "one exchange after the other");
        let Coming { parts, step, .. } = coming;
        let parts = std::mem::replace(&mut self.parts, parts);
        self.change.going = Some(Going { parts, step, moved: 0, orphans: Vec::new() });
        self.change.epoch = self.change.epoch.wrapping_add(1 + AMID);
        self.parts.depth.divide(self.noted.part);
        self.ask_again = Some(now);
    }

    /// Whether flows are moving from one scheduler to another.
    pub fn is_exchanging(&self) -> bool {
        self.change.is_moving()
    }

    /// Moves some more flows.
    pub(super) fn move_on(&mut self, now: Instant) {
        let Some(going) = &mut self.change.going else { return };
        let (mut at, step) = (going.moved, going.step);
        let (end, mut requests) = (self.flows.len().min(at + step), 0);
        while at < end && requests < step {
            requests += self.move_flow(FlowId(at as u32), now);
            at += 1;
        }
        if at < self.flows.len() {
            self.change.going.as_mut().expect("flows are moving").moved = at;
        } else {
            let going = self.change.going.take().expect("flows are moving");
            assert_eq!(going.parts.scheduler.queued(), 0, "{} kept requests", going.parts.scheduler.name());
        }
    }

    /// Moves a flow, unless it has moved; how many requests of its came along.
    pub(super) fn move_flow(&mut self, flow: FlowId, now: Instant) -> usize {
        let Change { epoch, going: Some(going), .. } = &mut self.change else { return 0 };
        let Some(Some(state)) = self.flows.get_mut(flow.index()) else { return 0 };
        if std::mem::replace(&mut state.epoch, *epoch) == *epoch {
            return 0;
        }
        going.parts.scheduler.remove_flow(flow, now, &mut going.orphans);
        let moved = going.orphans.len();
        for mut request in going.orphans.drain(..) {
            request.cost = self.parts.cost.estimate(&request);
            self.parts.scheduler.enqueue(request, now);
        }
        moved
    }

    /// The next request, and the epoch of whoever dispatches it.
    pub(super) fn ask(&mut self, now: Instant, slots: Slots) -> (Dispatch, u32) {
        let mut old = Dispatch::Idle;
        if let Some(parts) = self.change.old_mut() {
            old = parts.scheduler.dispatch(now, slots);
            if matches!(old, Dispatch::Ready(_)) {
                return (old, self.change.epoch.wrapping_sub(AMID));
            }
        }
        let new = self.parts.scheduler.dispatch(now, slots);
        (if self.change.is_moving() { either(old, new) } else { new }, self.change.epoch)
    }
}

/// What two schedulers answer together, the first of which has nothing ready.
fn either(old: Dispatch, new: Dispatch) -> Dispatch {
    match (old, new) {
        (Dispatch::Wait { until: a, .. }, Dispatch::Wait { until: b, reason }) => {
            let until = a.into_iter().chain(b).min();
            Dispatch::Wait { until, reason }
        }
        (old, Dispatch::Idle) => old,
        (_, new) => new,
    }
}
