//! How the controller answers reads.

use super::super::arm::Motion;
use super::super::facts::Prefetch;
use super::super::laps;
use super::super::pass::Pass;
use super::super::stream::{Drain, Stream};
use super::{Command, Controller};
use henge_core::Instant;

impl Controller {
    /// How far the drive reads on behind a read that ends at `end`, in the segment that starts at `start`.
    fn read_limit(&self, start: u64, lbn: u64, end: u64) -> u64 {
        let ahead = &self.cache.read_ahead;
        let (capacity, size) = (self.arm.geometry().capacity(), self.buffer.size());
        let limit = match ahead.prefetch {
            Prefetch::None => end,
            Prefetch::TrackAhead if end < capacity => {
                let address = self.arm.geometry().locate(end);
                let track_end = end + u64::from(address.left_on_track);
                let track_start = end - u64::from(address.before_on_track);
                // A segment that began on an earlier track is a sequential stream: one track more.
                if start < track_start { track_end + u64::from(address.per_track) } else { track_end }
            }
            Prefetch::TrackAhead => capacity,
            _ if ahead.max > 0 => end + u64::from(ahead.max),
            _ if ahead.overwrite_returned => end + size,
            _ => (lbn + size).max(end + u64::from(ahead.min)),
        };
        limit.clamp(end, capacity)
    }

    pub(super) fn read(&mut self, command: Command, t: Instant) -> Instant {
        let Command { lbn, blocks, .. } = command;
        let end = lbn + blocks;
        // A command that finds the arm writing waits, and has spent its overhead meanwhile.
        let free = self.behind.map_or(t, |b| b.ends.max(t));
        let ready = t + self.overheads.read(false, self.after_read);
        let hit = self.buffer.find(lbn, end).or_else(|| self.almost_hit(lbn));
        let Some(segment) = hit else {
            let active = self.stream.map(|s| s.segment);
            // Stopped first: the segment may be the one it reads into.
            let start = free.max(ready) + self.stop_reading(free).since(free);
            let segment = self.buffer.take_for_read(lbn, active);
            self.set_limits(segment, lbn, lbn, end);
            return self.fetch(segment, lbn, end, lbn, start, ready);
        };
        let bus_from =
            if free > t { free.max(ready) } else { t + self.overheads.read(true, self.after_read) };
        self.buffer.touch(segment);
        let start = self.buffer.get(segment).start;
        self.set_limits(segment, start, lbn, end);
        let limit = self.buffer.get(segment).limit;
        if let Some(stream) = self.stream.as_mut().filter(|s| s.segment == segment) {
            stream.limit = stream.limit.max(limit);
            stream.resume(t);
            return self.take_out(lbn, end, bus_from, 1);
        }
        let held = self.buffer.get(segment).end;
        let stopped = self.stop_reading(free).since(free);
        if held >= end {
            if self.cache.read_ahead.restart_on_hit && held < limit {
                self.fetch(segment, lbn, held, held, free.max(ready) + stopped, bus_from);
            }
            return bus_from + self.bus * blocks;
        }
        self.fetch(segment, lbn, end, held, free.max(ready) + stopped, bus_from)
    }

    /// The block that read-ahead is about to fetch counts as a hit, where the drive does so.
    fn almost_hit(&self, lbn: u64) -> Option<usize> {
        let stream = self.stream.filter(|_| self.cache.read_ahead.almost_hits && self.cache.enabled)?;
        (self.buffer.get(stream.segment).end == lbn).then_some(stream.segment)
    }

    fn set_limits(&mut self, segment: usize, start: u64, lbn: u64, end: u64) {
        let limit = self.read_limit(start, lbn, end);
        let least = (end + u64::from(self.cache.read_ahead.min)).min(limit);
        let s = self.buffer.get_mut(segment);
        s.limit = s.limit.max(limit);
        s.least = s.least.max(least);
    }

    /// Sends the arm to block `next` at `start`, for a read of `lbn..end`; returns when the host has it all.
    fn fetch(
        &mut self,
        segment: usize,
        lbn: u64,
        end: u64,
        next: u64,
        start: Instant,
        bus_from: Instant,
    ) -> Instant {
        let limit = self.buffer.get(segment).limit;
        let size = self.buffer.size();
        let pass =
            Pass::plan(&self.arm, self.position, start, next, limit.max(next + 1) - next, Motion::Read);
        if self.cache.read_any_free && self.buffer.get(segment).start == self.buffer.get(segment).end {
            // What comes by on the way to the first block is kept, too.
            let turned = pass.first.since(pass.on_track);
            let sector = self.arm.spindle().transfer(1, pass.address.per_track).as_nanos().max(1);
            let before = (turned.as_nanos() / sector).min(u64::from(pass.address.before_on_track));
            let s = self.buffer.get_mut(segment);
            (s.start, s.end) = (next - before, next);
        }
        // The host has nothing to take before the first block is in.
        let mark = if next == lbn { self.cache.read_mark(end - lbn) } else { 1 };
        let from = bus_from.max(pass.passed(pass.blocks.min(mark as u32)));
        let drain = Drain { start: lbn, lbn, end, before: from, from, block: self.bus };
        let mut stream = Stream { segment, pass, limit, drain, size, mode: self.cache.read_ahead.prefetch };
        stream.pass = stream.fit(&self.arm, pass);
        self.stream = Some(stream);
        self.take_out(lbn, end, bus_from, mark)
    }

    /// The host takes `lbn..end` out of the active stream's segment, from `bus_from` on and not before `mark`
    /// blocks are in; returns when it has all.
    fn take_out(&mut self, lbn: u64, end: u64, bus_from: Instant, mark: u64) -> Instant {
        let stream = self.stream.as_mut().expect("only called with a stream");
        let zero_latency = self.cache.zero_latency_read;
        // Before the current pass everything is in.
        let mut at = stream.pass.lbn.clamp(lbn, end);
        let mut bus = bus_from + self.bus * (at - lbn);
        let from = stream.drain.from.max(bus_from);
        stream.drain = Drain { start: lbn, lbn, end, before: from, from, ..stream.drain };
        stream.pass = stream.fit(&self.arm, stream.pass);
        while at < end {
            let pass = stream.pass;
            if at < pass.end_lbn() {
                let stop = end.min(pass.end_lbn());
                let (skip, n) = ((at - pass.lbn) as u32, stop - at);
                let wanted = (stop - pass.lbn) as u32;
                // A head that lands among the blocks it wants reads the later ones first.
                let head_part = if zero_latency { pass.cut(wanted).landed_at(&self.arm) } else { 0 };
                let last = if head_part > skip { head_part } else { wanted };
                let after = self.bus * (u64::from(wanted - last) + 1);
                let blocks = self.bus * n;
                bus = (bus + blocks).max(pass.passed(skip + 1) + blocks).max(pass.passed(last) + after);
                if mark > 1 && (at..stop).contains(&(lbn + mark - 1)) {
                    let marked = pass.passed((lbn + mark - pass.lbn).min(u64::from(wanted)) as u32);
                    bus = bus.max(marked + self.bus * (stop - lbn));
                }
                at = stop;
            }
            // What has come is taken by then; what comes next is waited for.
            stream.drain = Drain { lbn: at, before: bus, from: bus, ..stream.drain };
            if at < end {
                let track = stream.pass.address.track;
                stream.pass = stream.next_pass(&self.arm, end).expect("what a command needs is read");
                if !zero_latency && lbn + mark <= at {
                    bus = laps::skip(&self.arm, stream, end, track);
                    at = stream.drain.lbn;
                }
            }
        }
        bus
    }
}
