//! Which request goes to the device next, and why none does.

use super::beside::Slot;
use super::silent::{Links, NONE};
use super::stall::AT_ONCE;
use super::{Flow, Gate, RequestState};
use crate::{Dispatch, Duration, FlowId, Instant, Request, Slots, WaitReason};

impl Gate {
    /// The next request that may go to the device.
    pub fn next(&mut self, now: Instant) -> Dispatch {
        self.tick(now);
        self.move_on(now);
        self.let_in(now);
        let waits = self.queued() > 0 || !self.watch.resuming.is_empty() || self.passing.has_overtaken();
        if self.is_full() && waits {
            self.release(now);
        }
        self.seat_passing(now);
        let beside = self.beside.all();
        let depth = self.parts.depth.depth().saturating_add(beside);
        if self.in_flight >= depth {
            self.ask_again = None;
            if let Some(request) = self.pass(now) {
                self.ask_again = Some(now);
                return Dispatch::Ready(request);
            }
            let look_at = self.watch.least.filter(|_| waits).map(|_| self.watch.look_at);
            let at = [look_at, self.ask_again].into_iter().flatten().min();
            self.ask_again = if self.change.is_moving() { Some(now) } else { at };
            if self.queued() == 0 {
                return Dispatch::Idle;
            }
            self.noted.lacked = true;
            let reason = self.why_full();
            self.note_reasons(reason, now);
            return Dispatch::Wait { until: None, reason };
        }
        if let Some(request) = self.next_overtaken(now) {
            self.ask_again = Some(now);
            return Dispatch::Ready(request);
        }
        if !self.watch.resumed
            && let Some(request) = self.resume(now)
        {
            return self.resumes(request, now);
        }
        for _ in 0..AT_ONCE {
            let answer = self.ask_next(depth, now);
            let Dispatch::Ready(request) = answer else {
                return self.resume(now).map_or(answer, |request| self.resumes(request, now));
            };
            self.watch.resumed = false;
            if !self.stalls(&request, now) {
                return answer;
            }
            // It is its flow's turn, and its oldest goes.
            if let Some(oldest) = self.resume_of(request.flow, now) {
                self.ask_again = Some(now);
                return Dispatch::Ready(oldest);
            }
        }
        // Not all at once.
        let until = now + Duration::from_nanos(1);
        self.ask_again = Some(until);
        Dispatch::Wait { until: Some(until), reason: WaitReason::DeviceBusy }
    }

    fn resumes(&mut self, request: Request, now: Instant) -> Dispatch {
        (self.watch.resumed, self.ask_again) = (true, Some(now));
        Dispatch::Ready(request)
    }

    /// What the scheduler would have go, where there is a slot.
    pub(super) fn ask_next(&mut self, depth: u32, now: Instant) -> Dispatch {
        let beside = self.beside.all();
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
                let waits_for = self.in_flight + self.beside.stalled;
                assert!(waits_for > 0, "{} waits for nothing", self.parts.scheduler.name());
                self.note_reasons(reason, now);
            }
            Dispatch::Idle => debug_assert_eq!(self.queued(), 0, "idle with a backlog"),
        }
        answer
    }

    pub(super) fn is_full(&self) -> bool {
        self.in_flight - self.beside.all() >= self.parts.depth.depth()
    }

    fn dispatched(&mut self, request: Request, epoch: u32, now: Instant) {
        let state = &self.states[request.id.index()];
        assert!(
            matches!(state, RequestState::Waiting { id } if *id == request.id),
            "{} dispatched {:?}, which was not waiting",
            self.parts.scheduler.name(),
            request.id
        );
        self.passing.goes(&request);
        let is_full = self.is_full();
        let beside = self.beside.of(&request).filter(|(count, most)| **count < *most);
        let slot = match beside.map(|(count, _)| *count += 1) {
            Some(()) => Slot::Beside,
            None if is_full => self.place_beside(&request),
            None => Slot::Own,
        };
        let links = Links { older: NONE, newer: NONE };
        let answers = self.watch.answers;
        self.states[request.id.index()] =
            RequestState::InFlight { request, dispatched: now, answers, epoch, slot, links };
        if slot == Slot::Own {
            let joined = self.watch.line.append(&mut self.states, request.id.slot);
            if let RequestState::InFlight { links, .. } = &mut self.states[request.id.index()] {
                *links = joined;
            }
        }
        self.meters.advance(self.in_flight, now);
        self.in_flight += u32::from(slot != Slot::Stalled);
        self.left(request.flow, now);
        if matches!(slot, Slot::Stalled | Slot::Passing) || (slot == Slot::Beside && request.administration) {
            return self.parts.depth.passed(request.flow);
        }
        let parts = self.change.dispatcher(epoch, &mut self.parts).expect("it has just dispatched");
        let wait = now.since(parts.scheduler.waits_from(&request));
        if slot != Slot::Own {
            return self.parts.depth.went_beside(request.flow, wait, now);
        }
        let in_flight = self.in_flight - self.beside.all();
        self.noted.most = self.noted.most.max(in_flight);
        self.parts.depth.dispatched(request.flow, wait, in_flight, now);
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
                let parts = self.change.holder(epoch, &mut self.parts);
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
    pub(super) fn why_full(&self) -> WaitReason {
        if self.parts.depth.holds_back() { WaitReason::Depth } else { WaitReason::DeviceBusy }
    }
}
