//! A turn of the loop: what happened is taken in, what is due is done, storage works, and clients are answered.

use super::left::Left;
use super::{
    Server, Source, administer, around, doors, leaving, links, listeners, moving, nvme, orders, patience,
    removal, seats, shakes,
};
use crate::give_way;
use crate::link::End;
use crate::spread::across;
use crate::turns::{self, Of, Terms, Way};
use henge_core::{Duration, Instant, RequestId};
use rustix::event::epoll::{self, Event, EventFlags};
use rustix::time::Timespec;
use std::io;

/// Connections that try again in one turn when memory came back.
const RETRIES: usize = 64;
/// Sessions whose time has come that are told so in one turn, and how soon one may name its next time.
const TICKS: usize = 64;
const TICK: Duration = Duration::from_millis(1);
/// How soon another shard whose lane was full is told the rest.
const BEHIND: Duration = Duration::from_micros(20);
/// Events taken at once.
pub(super) const EVENTS: usize = 256;

impl Server {
    /// Runs until it is told to stop. What is left then.
    pub(crate) fn run(mut self) -> io::Result<Left> {
        // The kernel may wake us this much too late; the default, 50 us, is for machines that save power.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let served: Vec<usize> = self.plane.disks.served().map(|(number, _)| number).collect();
        served.into_iter().for_each(|number| moving::publish(&mut self, number));
        let mut events = Vec::with_capacity(EVENTS);
        let mut asked_alone = false;
        let mut begun = self.clock();
        loop {
            self.now = self.clock();
            self.turns.measured(self.now.since(begun));
            self.wait(&mut events, asked_alone)?;
            self.now = self.clock();
            begun = self.now;
            for event in &events {
                self.happened(event);
            }
            asked_alone = self.is_asked_alone(&events, asked_alone);
            let over = begun + turns::ROUND_TIME;
            self.plane.round.ends_at(self.poll.started + std::time::Duration::from_nanos(over.as_nanos()));
            self.turn();
            if let Some(abandoned) = orders::finished(&mut self) {
                self.plane.end_record()?;
                return Ok(leaving::leave(self, abandoned));
            }
        }
    }

    /// Waits until there are events, or something is due by itself; what is expected at once is looked for first.
    pub(super) fn wait(&mut self, events: &mut Vec<Event>, asked_alone: bool) -> io::Result<()> {
        let due = self.due();
        let answered = std::mem::take(&mut self.poll.answered);
        if self.is_looked_for(asked_alone, answered)
            && due.is_none_or(|at| at > self.now)
            && let Some(until) = self.poll.busy.begin(self.now)
        {
            self.plane.across.lanes.rouse();
            let (begun, until) = (self.now, due.map_or(until, |at| at.min(until)));
            while self.now < until {
                self.events(events, Some(Duration::ZERO))?;
                self.now = self.clock();
                if !events.is_empty() {
                    break;
                }
                std::hint::spin_loop();
            }
            self.poll.busy.end(self.now.since(begun), !events.is_empty());
            if !events.is_empty() {
                return Ok(());
            }
        }
        let within = due.map(|at| at.since(self.now));
        let lanes = &mut self.plane.across.lanes;
        if within == Some(Duration::ZERO) || !lanes.sleep() {
            if self.poll.give_way.is_time(self.now, self.plane.pools.at_workers()) {
                lanes.rouse();
                std::thread::sleep(std::time::Duration::from_nanos(give_way::NAP.as_nanos()));
            }
            return self.events(events, Some(Duration::ZERO));
        }
        self.events(events, within)?;
        self.poll.give_way.slept(self.now);
        self.plane.across.lanes.awake();
        Ok(())
    }

    /// Whether something is expected at once: one client alone has asked one thing, which is answered, or which storage has that answers soon.
    /// Nothing is looked for while other storage has more: a deep queue is answered one by one, and whoever looks each time never sleeps. Nor is it
    /// while the kernel's workers have something to do for a gate: they may want this processor.
    pub(super) fn is_looked_for(&self, asked_alone: bool, answered: u32) -> bool {
        let pools = &self.plane.pools;
        let (soon, late) = pools.at_storage();
        let alone = asked_alone && answered as usize + soon == 1;
        alone && late == 0 && !pools.may_need_workers()
    }

    /// Whether one client has said something, and nothing else has happened since, unless storage has answered.
    pub(super) fn is_asked_alone(&self, events: &[Event], before: bool) -> bool {
        let [event] = events else { return false };
        match Source::unpack(event.data) {
            Source::Connection(id) => self.clients.all.get(id).is_some_and(|client| !client.is_node),
            Source::Gate(..) => before,
            Source::Listener(_) | Source::Control => false,
        }
    }

    /// The events that are there, or come within the time.
    pub(super) fn events(&self, events: &mut Vec<Event>, within: Option<Duration>) -> io::Result<()> {
        events.clear();
        let within = within.map(Duration::as_nanos);
        let within = within
            .map(|ns| Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
        match epoll::wait(&self.poll.epoll, rustix::buffer::spare_capacity(events), within.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    pub(super) fn clock(&self) -> Instant {
        Instant::from_nanos(self.poll.started.elapsed().as_nanos() as u64)
    }

    /// When something will happen by itself; `None` for never.
    pub(super) fn due(&self) -> Option<Instant> {
        let joined = !self.plane.links.joined.is_empty();
        let more = joined
            || self.work.exchange.is_some()
            || self.plane.is_runnable()
            || self.registry.goes_on()
            || self.clients.looked.goes_on();
        if !self.turns.is_empty() || more {
            return Some(self.now);
        }
        let session = self.clients.due.first().map(|(at, _)| *at);
        let stopping = self.stopping.map(|s| if s.leave_by > self.now { s.leave_by } else { s.deadline });
        let links = self.plane.links.alarm.at();
        let registry = [self.registry.wake_at(self.now), self.registry.nvme.wake_at()];
        let waits = self.waits.due();
        let behind = self.plane.across.lanes.is_behind().then(|| self.now + BEHIND);
        let at = [
            self.plane.pools.wake_at(),
            session,
            stopping,
            self.clients.look,
            links,
            self.work.removal_due(),
            waits,
            behind,
            self.entrance.arrivals.due(),
        ];
        at.into_iter().chain(registry).flatten().min()
    }

    pub(super) fn happened(&mut self, event: &Event) {
        match Source::unpack(event.data) {
            Source::Listener(n) => self.accept(n as usize),
            Source::Gate(n, name) => self.plane.pools.happened(n as usize, name, event.flags),
            Source::Control => orders::control(self),
            Source::Connection(id) => {
                let Some(connection) = self.clients.all.get_mut(id) else { return };
                let flags = event.flags;
                if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR) {
                    let link = &mut connection.link;
                    link.readable = true;
                    // The end of the stream is not announced twice, so it is read up to there.
                    link.end = link.end.max(End::of(flags));
                }
                let written = flags.contains(EventFlags::OUT) && !connection.link.writable;
                connection.link.writable |= written;
                let read = connection.link.readable;
                if read {
                    self.want(id, Way::In);
                }
                if written {
                    self.want(id, Way::Out);
                }
            }
        }
    }

    /// There may be something to write.
    pub(super) fn mark(&mut self, id: RequestId) {
        self.want(id, Way::Out);
    }

    /// There may be something to be done for a connection: it has a turn, by its disk's contract.
    pub(super) fn want(&mut self, id: RequestId, way: Way) {
        let Some(client) = self.clients.all.get_mut(id) else { return };
        let link = &mut client.link;
        let runnable = match way {
            Way::In => &mut link.runnable,
            Way::Out => &mut link.unwritten,
        };
        if std::mem::replace(runnable, true) {
            return;
        }
        let (of, terms) = match client {
            _ if client.is_node => (Of::Links, Terms::weighted(self.plane.disks.links_weight)),
            _ => match client.disk().and_then(|n| Some((n, self.plane.disks[n].as_ref()?))) {
                Some((number, disk)) => (Of::Disk(number), Terms::of(&disk.config.contract)),
                None => (Of::Newcomers, Terms::weighted(1)),
            },
        };
        self.turns.put(of, terms, id, way);
    }

    /// Takes in what came, lets storage work, replies.
    pub(super) fn turn(&mut self) {
        self.registry.begin_turn();
        shakes::bring_back(self);
        self.tick_sessions();
        patience::lose_patience(self);
        doors::look_at_certificates(self);
        listeners::open_again(self);
        self.look();
        nvme::look_at_hosts(self);
        links::tick_links(self);
        // Before anything is begun: what may be done now depends on it.
        self.settle_reservations();
        orders::go_on_exchanging(self);
        self.plane.pools.list_due(self.now);
        self.plane.round.begin(turns::ROUND_BYTES);
        loop {
            self.move_bytes();
            self.poke();
            across::cross(&mut self.plane, self.now);
            self.serve();
            links::mark_links(self);
            self.plane.across.lanes.tell(self.now);
            if self.turns.is_empty() || self.turns.is_over() || self.plane.round.is_late() {
                break;
            }
            // What comes now came after what has just been dispatched, and is recorded so: a replay must tell them apart.
            self.now += Duration::from_nanos(1);
        }
        administer::administer(self);
        removal::go_on_removing(self);
        seats::move_seats(self);
        links::mark_links(self);
        if self.plane.memory.freed() {
            self.water();
        }
        self.plane.across.lanes.tell(self.now);
    }
}

impl Server {
    /// Sessions whose time has come, some at a time.
    pub(super) fn tick_sessions(&mut self) {
        for _ in 0..TICKS {
            let Some(&(at, id)) = self.clients.due.first().filter(|(at, _)| *at <= self.now) else { return };
            self.clients.due.remove(&(at, id));
            let Some(client) = self.clients.all.get_mut(id) else { continue };
            if !client.tick(around!(self, id)) {
                self.drop_connection(id);
                continue;
            }
            self.clients.due.extend(client.due().map(|at| (at.max(self.now + TICK), id)));
            self.mark(id);
        }
    }

    /// Lets some that wait for memory try again, disk by disk: however many connections of one disk wait, another disk's are not
    /// behind them. Whoever still finds none waits for what others hold, and is asked again when that comes back: so some are enough.
    pub(super) fn water(&mut self) {
        let mut left = RETRIES;
        while left > 0
            && let Some(disk) = self.waiters.thirsty.pop_front()
        {
            let Some(waiters) = self.waiters.memory.get_mut(&disk) else { continue };
            let next = waiters.pop_front();
            match waiters.is_empty() {
                true => drop(self.waiters.memory.remove(&disk)),
                false => self.waiters.thirsty.push_back(disk),
            }
            left -= usize::from(next.is_some_and(|id| self.retry(id)));
        }
    }

    /// Gates dispatch and storage works, as long as there is something at this moment, and clients' commands are answered.
    pub(super) fn serve(&mut self) {
        loop {
            self.plane.poll(self.now);
            self.charge();
            if !self.plane.answers.is_empty() {
                self.answer();
                self.poke();
            } else if !self.settle_reservations() {
                break;
            }
        }
    }
}
