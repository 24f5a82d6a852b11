//! What a disk's clients saw: whole commands, from the moment they were complete on the wire to their answers.

use henge_core::{Contract, Duration, Histogram, Instant};
use henge_vdisk::{Finished, Kind};

/// Of one disk, since it was added or its meters were reset.
#[derive(Clone, Debug, Default)]
pub struct DiskMeters {
    /// Commands answered.
    pub commands: u64,
    /// Of them reads.
    pub reads: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Of them read.
    pub bytes_read: u64,
    /// Answered with an error.
    pub failed: u64,
    /// Answered later than the contract's latency.
    pub late: u64,
    /// How long they took.
    pub latency: Histogram,
    /// When counting began.
    pub since: Instant,
    /// Time during which commands were pending, until `occupied`.
    busy: Duration,
    /// Commands pending, over time.
    outstanding_ns: u128,
    occupied: Instant,
}

impl DiskMeters {
    /// Begins anew if what it counted is older than `since`.
    pub(crate) fn not_before(&mut self, since: Instant) {
        if self.since < since {
            self.reset(since);
        }
    }
    /// So many commands were pending until now; to be said before their number changes.
    pub(crate) fn pending(&mut self, commands: usize, now: Instant) {
        let passed = now.since(self.occupied);
        self.occupied = now;
        if commands > 0 {
            self.busy += passed;
            self.outstanding_ns += commands as u128 * u128::from(passed.as_nanos());
        }
    }

    /// Time during which commands were pending; and their number over time, in microseconds.
    pub(crate) fn occupancy(&self) -> (Duration, u64) {
        (self.busy, u64::try_from(self.outstanding_ns / 1000).unwrap_or(u64::MAX))
    }

    pub(crate) fn finished(&mut self, finished: &Finished, contract: &Contract, now: Instant) {
        let command = &finished.command;
        let latency: Duration = now.since(command.arrival);
        self.commands += 1;
        self.reads += u64::from(command.kind == Kind::Read);
        if matches!(command.kind, Kind::Read | Kind::Write) {
            self.bytes += command.len;
            self.bytes_read += if command.kind == Kind::Read { command.len } else { 0 };
        }
        self.failed += u64::from(finished.outcome.is_err());
        self.late += u64::from(contract.latency.is_some_and(|l| latency > l.bound));
        self.latency.record(latency);
    }

    fn reset(&mut self, now: Instant) {
        let mut latency = std::mem::take(&mut self.latency);
        latency.clear();
        *self = DiskMeters { latency, since: now, occupied: now, ..DiskMeters::default() };
    }
}
