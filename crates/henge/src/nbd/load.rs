//! A workload sent to a server, on the wall clock.

use super::Connection;
use super::connection::Outcome;
use anyhow::{Result, bail};
use henge_core::{Duration, Instant, Op, RequestId};
use henge_nbd::{Ask, proto};
use henge_workload::{Next, Record, Workload};

/// The wall clock, from an epoch that several loads may share.
#[derive(Clone, Copy, Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// Begins now.
    pub fn start() -> Clock {
        Clock(std::time::Instant::now())
    }
    /// Since it began.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// One request, as it went.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// What was asked; `at` is when it was meant to be sent.
    pub record: Record,
    /// When it was sent.
    pub sent: Instant,
    /// When its answer was complete.
    pub done: Instant,
    /// How it ended.
    pub outcome: Outcome,
}

impl Sent {
    /// From the moment it was meant to be sent to its answer.
    pub fn latency(&self) -> Duration {
        self.done.since(self.record.at)
    }
    /// How late it was sent.
    pub fn late(&self) -> Duration {
        self.sent.since(self.record.at)
    }
}

/// Most commands in flight, whatever the workload wants; what is held back shows as lateness.
const IN_FLIGHT_MAX: usize = 4096;

/// A workload on a connection.
pub struct Load {
    connection: Connection,
    workload: Workload,
    clock: Clock,
    /// By slot: what is in flight.
    pending: Vec<Option<(Record, u32, Instant)>>,
    in_flight: usize,
    over: bool,
}

impl Load {
    /// The workload's times are the clock's.
    pub fn new(connection: Connection, workload: Workload, clock: Clock) -> Load {
        Load { connection, workload, clock, pending: Vec::new(), in_flight: 0, over: false }
    }

    /// Runs until the workload ends, or no longer sends after `stop`; `done` hears of every request. What is in flight
    /// then is waited for.
    pub fn run(&mut self, stop: Instant, mut done: impl FnMut(&Sent)) -> Result<()> {
        loop {
            let wake = self.issue(stop, &mut done)?;
            self.connection.flush()?;
            if self.over && self.in_flight == 0 {
                return Ok(());
            }
            let time = (wake != Instant::FAR).then(|| wake.since(self.clock.now()));
            if time != Some(Duration::ZERO) {
                self.connection.wait(time)?;
            }
            let (pending, workload, in_flight) = (&mut self.pending, &mut self.workload, &mut self.in_flight);
            let now = self.clock.now();
            self.connection.reap(&mut |id: RequestId, outcome| {
                let place = pending.get_mut(id.index()).and_then(Option::take);
                let (record, thread, sent) = place.expect("only what was sent is answered");
                *in_flight -= 1;
                workload.complete(thread, now);
                done(&Sent { record, sent, done: now, outcome });
            })?;
        }
    }

    /// Sends what is due; when to look again.
    fn issue(&mut self, stop: Instant, done: &mut impl FnMut(&Sent)) -> Result<Instant> {
        while self.in_flight < IN_FLIGHT_MAX {
            let now = self.clock.now();
            if now >= stop {
                self.over = true;
            }
            if self.over {
                return Ok(Instant::FAR);
            }
            match self.workload.next(now)? {
                Next::Issue { record, thread } => self.send(record, thread, now, done)?,
                Next::At(at) => return Ok(at.min(stop)),
                Next::Full => return Ok(stop),
                Next::End => self.over = true,
            }
        }
        Ok(stop)
    }

    fn send(
        &mut self,
        record: Record,
        thread: u32,
        now: Instant,
        done: &mut impl FnMut(&Sent),
    ) -> Result<()> {
        let n = self.connection.negotiated();
        let ask = match record.op {
            Op::Read => Some(Ask::Read),
            Op::Write => Some(Ask::Write),
            Op::Flush => (n.flags & proto::flag::SEND_FLUSH != 0).then_some(Ask::Flush),
            Op::Trim => (n.flags & proto::flag::SEND_TRIM != 0).then_some(Ask::Trim),
            Op::WriteZeroes => (n.flags & proto::flag::SEND_WRITE_ZEROES != 0)
                .then_some(Ask::WriteZeroes { no_hole: false, fast: false }),
        };
        let Some(ask) = ask.filter(|_| record.len > 0 || record.op == Op::Flush) else {
            // Not sent: the server has no such command, or there is nothing to do.
            self.workload.complete(thread, now);
            let outcome = if record.len > 0 { Err(proto::Error::NotSupported) } else { Ok(()) };
            done(&Sent { record, sent: now, done: now, outcome });
            return Ok(());
        };
        // The server's smallest block: whole ones are asked for.
        let least = u64::from(n.block.least.max(1));
        let offset = record.offset / least * least;
        let end = record.end().div_ceil(least) * least;
        let data = matches!(ask, Ask::Read | Ask::Write);
        let len = match u32::try_from(end - offset) {
            Ok(len) if !data || n.block.most == 0 || len <= n.block.most => len,
            _ => {
                bail!("a request of {} bytes is larger than the server takes ({})", record.len, n.block.most)
            }
        };
        if end > n.size && record.op != Op::Flush {
            let size = n.size;
            bail!("a request ends at byte {end}, beyond the export of {size} bytes; try --place wrap");
        }
        let (offset, len) = if record.op == Op::Flush { (0, 0) } else { (offset, len) };
        let id = self.connection.client().send(ask, offset, len, false);
        if self.pending.len() <= id.index() {
            self.pending.resize(id.index() + 1, None);
        }
        self.pending[id.index()] = Some((record, thread, now));
        self.in_flight += 1;
        Ok(())
    }
}
