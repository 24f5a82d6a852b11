//! Whose turn it is: who must have the device now, whose turn goes on, who lends, and when the device stands still.

use super::{Kind, Locality, Selection, Turn};
use henge_core::{Dispatch, Duration, FlowId, Instant, WaitReason};

impl Locality {
    /// An L disk with the right to the device that must have it now to keep its bound; or `ahead` of now.
    fn must_serve(&mut self, now: Instant, ahead: Duration) -> Option<FlowId> {
        // Whoever is served now is served to the end, and a turn's request may be the one in hundreds that takes long.
        let longest = self.longest.get().min(i128::from(self.rules.turn.as_nanos()));
        let due = |at: i64| i128::from(at) <= i128::from((now + ahead).as_nanos()) + longest;
        self.orders.must.peek().filter(|&(_, at)| self.rules.urgency && due(at))?;
        // S moved since they were placed: mostly on; back where an estimate of a disk's time was too high.
        while let Some((flow, _)) = self.orders.unentitled.peek().filter(|&(_, v)| v <= self.s) {
            self.place(FlowId(flow));
        }
        while let Some((flow, _)) =
            self.orders.entitled.peek().filter(|&(f, _)| self.disks[FlowId(f)].v > self.s)
        {
            self.place(FlowId(flow));
        }
        let found = self.orders.entitled.peek().filter(|&(_, at)| due(at)).map(|(flow, _)| FlowId(flow));
        debug_assert_eq!(
            found,
            self.must_serve_of_all(due),
            "the order of those with the right to the device"
        );
        found
    }

    /// The same by looking at all disks.
    fn must_serve_of_all(&self, due: impl Fn(i64) -> bool) -> Option<FlowId> {
        let must = |flow: FlowId| self.orders.must.get(flow.0).filter(|&at| due(at));
        let entitled = self.disks.iter().filter(|(_, disk)| disk.v <= self.s);
        entitled.filter_map(|(flow, _)| Some((must(flow)?, flow.0))).min().map(|(_, flow)| FlowId(flow))
    }

    /// The L disk with an urgent request, the most urgent first.
    fn urgent(&self, now: Instant) -> Option<FlowId> {
        let (flow, at) = self.orders.urgent.peek()?;
        (at <= now.as_nanos() as i64).then_some(FlowId(flow))
    }

    /// Rule 2: whether `from` can let `to` have its time for one request (and the turn that may follow). What it lent
    /// before in the same turn stands on its clock, and it will wait for that too.
    fn may_lend(&mut self, from: FlowId, to: FlowId, now: Instant) -> bool {
        let s = self.disks[to].bound.as_ref().map_or(0, |b| i128::from(b.loan().as_nanos()));
        let turn = i128::from(self.rules.turn.as_nanos());
        let lent = (self.disks[from].v - self.s).max(0);
        let standstill = lent + self.scaled(from, s) + turn;
        let average = self.disks[from].average.as_mut();
        from != to && average.is_some_and(|a| a.can_spare(standstill, now))
    }

    /// A T disk whose average is below (1 − τ)·c, or would be if it stood still for a turn: so long another may have the device. Not one whose
    /// share does not yield so much: others' bounds would pay for that.
    fn is_short(&mut self, flow: FlowId, now: Instant) -> bool {
        let turn = i128::from(self.rules.turn.as_nanos());
        let share = self.share(&self.disks[flow]);
        let average = self.disks[flow].average.as_mut();
        self.rules.urgency && average.is_some_and(|a| !a.can_spare(turn, now) && !a.is_beyond(share))
    }

    /// Until when to wait for the next request of a disk that has none.
    pub(super) fn thinks_until(&self, flow: FlowId, now: Instant) -> Option<Instant> {
        let disk = self.disks.get(flow).filter(|d| d.pending == 0)?;
        if self.rules.think == Duration::ZERO {
            return None;
        }
        disk.thinking.until(self.rules.think, self.rules.think_max).filter(|&until| until > now)
    }

    /// The device stands still on `flow`'s account until then at the latest.
    pub(super) fn stand_still(&mut self, until: Instant, now: Instant) -> Dispatch {
        self.still.get_or_insert(now);
        let must = self.orders.must.peek().map(|(_, at)| Instant::from_nanos(at.max(0) as u64));
        let until = must.filter(|&at| at > now).map_or(until, |at| at.min(until));
        Dispatch::Wait { until: Some(until), reason: WaitReason::Turn }
    }

    /// Charges the time for which the device stood still.
    pub(super) fn end_stillness(&mut self, now: Instant) {
        let Some(since) = self.still.take() else { return };
        let t = i128::from(now.since(since).as_nanos());
        match self.last {
            Some(flow) if self.rules.think > Duration::ZERO && self.disks.get(flow).is_some() => {
                self.charge(flow, Kind::Charged, t);
            }
            _ => self.s += t,
        }
        self.mark = now;
    }

    /// Whether the turn goes on.
    pub(super) fn goes_on(&mut self, turn: Turn, now: Instant) -> bool {
        if now >= turn.ends || self.disks.get(turn.owner).is_none() {
            return false;
        }
        match turn.kind {
            Kind::Charged => {
                let own_must =
                    self.orders.must.get(turn.owner.0).is_some_and(|at| at <= now.as_nanos() as i64);
                own_must
                    || self.is_short(turn.owner, now)
                    || self.must_serve(now, Duration::ZERO).is_none_or(|flow| flow == turn.owner)
            }
            Kind::Bonus => self.orders.ready.peek().is_none_or(|(_, v)| v > self.s),
            Kind::Borrowed { from } => {
                let urgent =
                    self.orders.urgent.get(turn.owner.0).is_some_and(|at| at <= now.as_nanos() as i64);
                urgent && self.backlog.waits(from) && self.may_lend(from, turn.owner, now)
            }
        }
    }

    /// Rules 1 to 4: who is served next, and on whose account; or how long to wait.
    pub(super) fn select(&mut self, now: Instant) -> Result<(FlowId, Kind), Dispatch> {
        self.selection = Selection { number: self.selection.number + 1, s: self.s };
        let (first, v) = self.orders.ready.peek().expect("somebody waits");
        // Nobody ends the turn of a T disk that is short: who would be urgent during it goes first.
        let whole = v <= self.s && self.is_short(FlowId(first), now);
        let ahead = if whole { self.turn_of(FlowId(first)) } else { Duration::ZERO };
        if let Some(flow) = self.must_serve(now, ahead) {
            return Ok((flow, Kind::Charged));
        }
        if let Some(last) = self.last
            && self.disks.get(last).is_some_and(|d| d.v <= self.s && d.v <= v)
            && let Some(until) = self.thinks_until(last, now)
        {
            return Err(self.stand_still(until, now));
        }
        let first = FlowId(first);
        if v <= self.s {
            return Ok(match self.urgent(now) {
                Some(urgent) if self.may_lend(first, urgent, now) => (urgent, Kind::Borrowed { from: first }),
                _ => (first, Kind::Charged),
            });
        }
        if let Some((flow, _)) = self.orders.urgent.peek() {
            return Ok((FlowId(flow), Kind::Bonus));
        }
        if let Some((flow, _)) = self.orders.ready_average.peek() {
            return Ok((FlowId(flow), Kind::Bonus));
        }
        if self.rules.work_conserving {
            // Who has nothing waiting jumps along: that is no credit.
            (self.s, self.selection.s) = (v, v);
            return Ok((first, Kind::Charged));
        }
        self.last = None; // nobody pays for this
        self.still.get_or_insert(now);
        let ahead = u64::try_from(v - self.s).unwrap_or(u64::MAX);
        Err(Dispatch::Wait { until: Some(now + Duration::from_nanos(ahead)), reason: WaitReason::OwnShare })
    }
}
