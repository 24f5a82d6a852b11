//! How the controller answers writes.

use super::super::arm::Motion;
use super::super::pass::Pass;
use super::super::write::Incoming;
use super::{Behind, Command, Controller, Dirty};
use henge_core::Instant;

impl Controller {
    pub(super) fn write(&mut self, command: Command, t: Instant) -> Instant {
        let Command { lbn, blocks, durable, .. } = command;
        let end = lbn + blocks;
        let early = self.cache.write.fast_write > 0;
        let ready = t + self.overheads.write(early, self.after_read) + self.overheads.data_preparation;
        let busy = self.behind.filter(|b| b.ends > t);
        let block = self.bus;
        let incoming = |from| Incoming { lbn, blocks, from, block };
        if let Some(behind) = busy.filter(|b| self.may_append(b, lbn, t)) {
            self.buffer.append(behind.segment, end);
            let start = self.catch_up(behind.ends, &incoming(ready)).max(ready);
            let (arrived, on_medium) = self.put_behind(incoming(ready), behind.segment, start);
            return if durable { on_medium } else { arrived };
        }
        let active = self.stream.map(|s| s.segment);
        if let Some(behind) = busy
            && early
            && self.cache.write.prebuffering
            && self.dirty.len() + 1 < self.cache.write.segments as usize
            && !durable
            && blocks <= self.buffer.size()
        {
            // Taken into another segment while the arm is still writing.
            let segment = self.buffer.take_for_write(lbn, end, active.or(Some(behind.segment)));
            let size = self.buffer.size();
            self.buffer.get_mut(segment).grow(end, size);
            let data = incoming(ready);
            self.dirty.push_back(Dirty { data, segment, ready });
            return ready + self.bus * blocks;
        }
        let free = busy.map_or(t, |b| b.ends);
        let start = free.max(ready) + self.stop_reading(free).since(free);
        let segment = self.buffer.take_for_write(lbn, end, active);
        let (arrived, on_medium) = self.put_behind(incoming(free.max(ready)), segment, start);
        if early && !durable { arrived } else { on_medium.max(arrived) }
    }

    /// The write on the medium goes on into blocks of the one that joined it, over tracks if need be, until it has
    /// laid down all that have arrived. Only then that one's own turn begins, which writes them again where they
    /// belong. Moves the arm there; returns when.
    fn catch_up(&mut self, ends: Instant, joined: &Incoming) -> Instant {
        let arrived =
            |t: Instant| joined.lbn + t.since(joined.from).as_nanos() / joined.block.as_nanos().max(1);
        let end = joined.lbn + joined.blocks;
        let (mut t, mut lbn) = (ends, joined.lbn);
        while lbn < end && arrived(t) > lbn {
            let pass = Pass::plan(&self.arm, self.position, t, lbn, end - lbn, Motion::Write);
            let behind = |n: u32| arrived(pass.passed(n)) > lbn + u64::from(n);
            // On one track blocks go by faster than they arrive, or all are there in time.
            let (mut least, mut most) = (1, pass.blocks);
            while least < most {
                let middle = least + (most - least) / 2;
                if behind(middle) { least = middle + 1 } else { most = middle }
            }
            self.position = pass.address.position();
            (t, lbn) = (pass.passed(least), lbn + u64::from(least));
        }
        t
    }

    /// A write may join the one that the arm is on if it continues it and no other has joined yet.
    fn may_append(&self, behind: &Behind, lbn: u64, t: Instant) -> bool {
        self.cache.write.fast_write > 0
            && self.cache.write.combine
            && self.dirty.is_empty()
            && behind.end_lbn == lbn
            && behind.starts <= t
    }
}
