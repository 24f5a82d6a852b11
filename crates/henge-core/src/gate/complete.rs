//! What is heard of requests at the device: what they really cost, and that they are over.

use super::beside::Slot;
use super::silent::Links;
use super::{Gate, RequestState, Served};
use crate::meters::Metered;
use crate::{Completion, Cost, Duration, Instant, Op, Request, RequestId, Seen};

impl Gate {
    /// The true cost of a pending request became known (a read's answer says how much there was).
    pub fn adjust(&mut self, id: RequestId, cost: Cost, now: Instant) {
        assert!(cost > Cost::ZERO, "a request that costs nothing is never scheduled fairly");
        if let Some(RequestState::InFlight { request, epoch, .. }) = self.states.get_mut(id.index())
            && request.id == id
        {
            if let Some(parts) = self.change.dispatcher(*epoch, &mut self.parts) {
                parts.scheduler.adjust(request, cost, now);
            }
            request.cost = cost;
        }
    }

    /// A request in flight moves so many bytes, not what it asked for: it costs what one of that length does.
    pub fn moves(&mut self, id: RequestId, len: u64, now: Instant) {
        if let Some(RequestState::InFlight { request, epoch, .. }) = self.states.get(id.index())
            && request.id == id
            && let Some(parts) = self.change.dispatcher(*epoch, &mut self.parts)
        {
            let cost = parts.cost.estimate(&Request { len, ..*request });
            self.adjust(id, cost, now);
        }
    }

    /// A request was dispatched just now, and another one of its flow goes in its turn: it is that one from here on, and costs what that one does.
    /// Neither makes anything durable by itself, nor is an administrator's.
    pub fn goes_as(&mut self, id: RequestId, other: &Request, now: Instant) {
        let Some(RequestState::InFlight { request, epoch, .. }) = self.states.get_mut(id.index()) else {
            return;
        };
        if request.id != id {
            return;
        }
        let moves_data = |op| matches!(op, Op::Read | Op::Write);
        assert!(moves_data(request.op) && moves_data(other.op) && !request.fua && !other.fua);
        self.passing.becomes(request, other);
        (request.op, request.commands) = (other.op, other.commands);
        (request.offset, request.len, request.arrival) = (other.offset, other.len, other.arrival);
        if let Some(parts) = self.change.dispatcher(*epoch, &mut self.parts) {
            let cost = parts.cost.estimate(request);
            self.adjust(id, cost, now);
        }
    }

    /// A dispatched request is over, well or not.
    ///
    /// # Panics
    /// When it is not in flight: completing twice is an error of the caller.
    pub fn complete(&mut self, id: RequestId, failed: bool, now: Instant) -> Served {
        self.ends(id, failed, true, now)
    }

    /// A dispatched request is over for its gate, though nobody knows when the device has done it: it costs what was estimated, and teaches nothing.
    ///
    /// # Panics
    /// When it is not in flight.
    pub fn complete_unseen(&mut self, id: RequestId, now: Instant) -> Served {
        self.ends(id, true, false, now)
    }

    fn ends(&mut self, id: RequestId, failed: bool, seen: bool, now: Instant) -> Served {
        let state = std::mem::replace(&mut self.states[id.index()], RequestState::Free);
        let RequestState::InFlight { mut request, dispatched, answers, epoch, slot, links } = state else {
            panic!("request {id:?} is not in flight");
        };
        assert_eq!(request.id, id, "a request of another generation is in flight there");
        self.meters.advance(self.in_flight, now);
        self.in_flight -= 1;
        self.passing.over(&request);
        let service = now.since(dispatched);
        let tells = self.watch.tells(&request, answers, self.in_flight) && seen;
        self.gives_place_back(&request, (slot, links), dispatched, (service, tells));
        let disk_time = now.since(dispatched.max(self.last_completion));
        if seen {
            self.last_completion = now;
        }
        let (cost, waits) = (request.cost, self.parts.scheduler.queued() > 0);
        if let Some(parts) = self.change.dispatcher(epoch, &mut self.parts) {
            let actual = if seen {
                let seen = Seen { disk_time, service, in_flight: self.in_flight, waits, failed };
                parts.cost.seen(&request, seen);
                parts.cost.actual(&request, disk_time)
            } else {
                request.cost
            };
            let completion = Completion { request, actual, dispatched, service, in_flight: self.in_flight };
            parts.scheduler.complete(&completion, now);
            request.cost = actual;
        }
        if self.change.is_recent(epoch) {
            match slot {
                Slot::Own if !seen => self.parts.depth.gave_back(request.flow, now),
                Slot::Own | Slot::Awaiting => {
                    self.parts.depth.completed(&request, service, self.in_flight - self.beside.all(), now);
                }
                Slot::Beside if !request.administration => {
                    self.parts.depth.completed_beside(&request, service, now);
                }
                _ => {}
            }
            if slot == Slot::Own {
                self.parts.depth.freed(cost, waits, now);
            }
        }
        self.no_more_bounded(&request, now);
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

    /// It is over: its place at the device is another's.
    fn gives_place_back(
        &mut self,
        request: &Request,
        (slot, links): (Slot, Links),
        dispatched: Instant,
        (service, tells): (Duration, bool),
    ) {
        match slot {
            Slot::Own => {
                self.watch.line.unlink(&mut self.states, links);
                let overtook = self.has_silent_before(dispatched);
                self.watch.answered(service, tells, overtook);
                self.one_less(request.flow, false);
            }
            Slot::Beside => {
                if let Some((count, _)) = self.beside.of(request) {
                    *count -= 1;
                }
            }
            Slot::GivenBack => {
                self.watch.silent.unlink(&mut self.states, links);
                self.watch.silent_answered(service, tells);
                self.beside.silent -= 1;
                self.one_less(request.flow, true);
            }
            Slot::Passing => {
                self.beside.passing -= 1;
                self.passing.forget(request.id);
            }
            Slot::Awaiting => self.beside.awaiting -= 1,
            Slot::Stalled => panic!("request {:?} is not at the device", request.id),
        }
    }
}
