//! The data plane: disks and gates, and how a command becomes requests and they an answer.
//!
//! No sockets and no clock here. The loop submits commands with their buffers, calls [`Plane::poll`], and
//! takes the answers. Everything is indexed by small numbers; once warm, nothing is allocated per request.

use crate::config::{DiskConfig, NodeConfig, at};
use crate::front::Kinds;
use crate::links::Links;
use crate::record::Recorder;
use crate::shards::across::Across;
use crate::shards::division::Division;
use crate::shards::lanes::Lanes;
use crate::spread::Inner;
use crate::spread::seat::Seats;
use crate::tags::Tags;
use crate::turns::{BYTES, Done};
use disks::Disks;
use henge_backend::{Buffer, Store};
use henge_core::{Instant, ParamError, Pending};
use memory::Memory;
use observers::Observers;
use pools::Pools;
use round::{REQUEST, Round};
use tickets::Tickets;

pub(crate) mod block_status;
mod budget;
mod disk;
mod disks;
mod failed;
pub(crate) mod make;
pub(crate) mod manage;
mod memory;
mod observers;
mod part;
pub(crate) mod pools;
mod round;
mod sub_request;
#[cfg(test)]
mod tests;
pub(crate) mod tickets;
mod way;

pub(crate) use disk::Disk;
pub(crate) use failed::{Failed, NotAdded, Notice};
pub(crate) use part::PartOf;
pub(crate) use pools::GateState;
pub(crate) use sub_request::{Answer, Submitter};

/// What sessions have taken in, ever.
#[derive(Clone, Copy, Default)]
pub(crate) struct TakenIn {
    pub commands: u32,
    /// Those that are commands, and all others.
    pub messages: u32,
}

impl TakenIn {
    /// How many since then: commands, and messages.
    pub(crate) fn since(self, before: TakenIn) -> (u32, u32) {
        (self.commands.wrapping_sub(before.commands), self.messages.wrapping_sub(before.messages))
    }
}

/// Everything between sessions and storage.
pub(crate) struct Plane {
    pub pools: Pools,
    pub disks: Disks,
    pub memory: Memory,
    pub round: Round,
    pub answers: Vec<Answer>,
    pub taken_in: TakenIn,
    pub kinds: Kinds,
    /// The other nodes.
    pub links: Links,
    /// The other shards.
    pub across: Across,
    /// Parts of spread disks that are at their owners here.
    pub inner: Pending<Inner>,
    /// Disks that several gateways can serve.
    pub seats: Seats,
    /// Finish times that the manager makes.
    pub tags: Tags,
    /// Parts that are being made or removed.
    pub tickets: Tickets,
    pub observers: Observers,
}

impl Plane {
    /// Opens pools and disks. A disk whose storage fails is left out, and the others are served. Whoever only looks changes nothing,
    /// and is told of the first that would fail.
    pub(crate) fn open(
        config: &NodeConfig,
        epoch: u64,
        look: bool,
        now: Instant,
    ) -> Result<Plane, ParamError> {
        let whole = Division::whole(config.pools.len());
        Plane::open_shard(config, Across::new(Lanes::default(), 0, whole), epoch, look, now)
    }

    /// The same of what belongs to one shard. It knows of the others' pools, and has no gates of them.
    pub(crate) fn open_shard(
        config: &NodeConfig,
        across: Across,
        epoch: u64,
        look: bool,
        now: Instant,
    ) -> Result<Plane, ParamError> {
        let (here, division) = (across.here, across.division.clone());
        let buffers = config.bounds.buffers / division.count();
        let recorder = match &config.requests {
            _ if look => None,
            None => None,
            Some(path) => Some(Recorder::open(path, here).map_err(|e| at(&(0..0), e.to_string()))?),
        };
        let mut plane = Plane {
            pools: Pools::new(),
            disks: Disks::default(),
            memory: Memory::new(buffers),
            round: Round::new(),
            answers: Vec::new(),
            taken_in: TakenIn::default(),
            kinds: config.kinds.clone(),
            links: Links::of_shard(here, config.link.clone(), epoch),
            across,
            inner: Pending::new(),
            seats: Seats::default(),
            tags: Tags::default(),
            tickets: Tickets::default(),
            observers: Observers::new(recorder),
        };
        for (number, pool) in config.pools.iter().enumerate() {
            match division.shard(number) == here {
                true => plane.pools.add(pool, config, look)?,
                false => plane.pools.add_elsewhere(pool),
            }
            if division.shard(number) == here && division.is_hot(number) {
                plane.pools.share(number);
            }
        }
        for peer in &config.peers {
            plane.links.add(peer.clone(), None).map_err(|e| at(&(0..0), e))?;
        }
        let mine = |disk: &&DiskConfig| division.shards_of(disk).contains(&here);
        for disk in config.disks.iter().filter(mine) {
            if disk.beginning.going && disk.has_own_parts(&config.pools) {
                let failed = Failed::going(&plane, disk.clone());
                plane.disks.failed.insert(disk.name.clone(), failed);
                continue;
            }
            match plane.add_disk(disk.clone(), now) {
                Ok(_) => {}
                Err(e) if e.storage && !look => {
                    plane.disks.failed.insert(disk.name.clone(), Failed::unopened(e.error.message));
                }
                Err(e) => return Err(e.error),
            }
        }
        Ok(plane)
    }

    /// Memory for a command of this disk; `None` when it has to wait (`budget.rs` says for how much nobody has to).
    pub(crate) fn take_buffer(&mut self, number: usize, len: u64) -> Option<Buffer> {
        self.memory.take(self.disks.of(number), len)
    }

    /// The same for a command that keeps what it has while it waits.
    pub(crate) fn take_more(&mut self, number: usize, len: u64, whose: Submitter) -> Option<Buffer> {
        self.memory.take_more((number, self.disks.of(number)), len, whose)
    }
    /// Gives a command's memory back.
    pub(crate) fn put_buffer(&mut self, number: usize, buffer: Buffer) {
        self.memory.put((number, self.disks[number].as_mut()), buffer);
    }

    /// A long CACHE of a disk is over, and another may begin.
    pub(crate) fn end_fetch(&mut self, number: usize) {
        self.disks.end_fetch(number);
        self.memory.note_freed();
    }

    /// Whether a gate is to be polled at once.
    pub(crate) fn is_runnable(&self) -> bool {
        let here = !self.pools.runnable.is_empty() || self.round.has_unanswered();
        here || !self.links.returns.is_empty() || self.across.lanes.has_input()
    }

    /// Polls the runnable gates until nothing is left to do at `now`, or the round has done its part. Gates do a piece by turns. What is
    /// answered at once may bring forth more, for as long as clients like: so each request counts, and where storage is memory or the
    /// page cache, its bytes do.
    pub(crate) fn poll(&mut self, now: Instant) {
        loop {
            self.poll_gates(now);
            if self.links.returns.is_empty() {
                return;
            }
            self.settle(now);
        }
    }

    fn poll_gates(&mut self, now: Instant) {
        while !self.round.is_over()
            && let Some(turn) = self.pools.runnable.next(now)
        {
            let g = turn.connection.index();
            self.pools.gates[g].runnable = false;
            self.observers.hear(&mut self.pools.gates[g]);
            let (mut piece, mut worked) = (BYTES as u64, Done::default());
            while piece > 0 {
                let Some(finished) = self.pools.gates[g].pipeline.poll(now) else {
                    worked.bytes += self.pools.gates[g].copied(&mut self.round);
                    break;
                };
                let gate = &mut self.pools.gates[g];
                let sub_request = gate.sub_requests.remove(finished.served.request.id);
                let sub_request = sub_request.expect("what is finished was submitted");
                let len = finished.served.request.len.saturating_sub(sub_request.copied);
                worked.commands += 1;
                let number = sub_request.disk as usize;
                let Some(disk) = self.disks[number].as_mut() else {
                    // A piece of some zeroing.
                    self.round.spend(REQUEST);
                    piece = piece.saturating_sub(len.max(REQUEST));
                    let Plane { tickets, pools, disks, .. } = self;
                    let zeroed = tickets.zeroed(pools, disks, g, sub_request.disk, finished.outcome, now);
                    assert!(zeroed, "what is at a gate is a disk's, or zeroes");
                    continue;
                };
                disk.over(&finished.served.request);
                if let Some(recorder) = &mut self.observers.recorder {
                    recorder.row(
                        &disk.config.name,
                        &finished.served,
                        g as u32,
                        sub_request.seq,
                        sub_request.parts,
                    );
                }
                let done = if gate.copies { len + REQUEST } else { REQUEST };
                self.round.spend(done);
                piece = if self.round.has_timed_out() { 0 } else { piece.saturating_sub(done) };
                if gate.copies {
                    self.round.note(number, len);
                    worked.bytes += len;
                    gate.weight = disk.config.contract.weight();
                }
                self.pools.unchain(&mut self.disks, &sub_request);
                let cost = finished.served.request.cost;
                self.done(&sub_request, finished.outcome, &finished.payload, cost, now);
            }
            self.pools.runnable.done(turn, worked, now);
            if piece == 0 {
                // It is polled again when others have had their turns, perhaps in the next round; its device works on meanwhile.
                self.pools.gates[g].pipeline.submit_ready(now);
                self.pools.list(g);
            }
            if let Some(number) = self.round.next_unanswered() {
                self.collect(number, now);
            }
        }
        while !self.round.is_over()
            && let Some(number) = self.round.next_unanswered()
        {
            self.collect(number, now);
        }
    }

    /// Whether any request is waiting or under way.
    pub(crate) fn is_idle(&self) -> bool {
        let gates = self.pools.gates.iter().all(|g| g.sub_requests.is_empty());
        gates
            && !self.round.has_unanswered()
            && self.links.is_idle()
            && self.inner.is_empty()
            && !self.across.lanes.is_behind()
    }

    /// Writes the rest of the record, now that the run is over.
    pub(crate) fn end_record(&mut self) -> std::io::Result<()> {
        let Some(recorder) = &mut self.observers.recorder else { return Ok(()) };
        let lateness =
            self.pools.gates.iter().filter_map(|g| g.pipeline.backend().lateness()?.quantile(0.99));
        if let Some(worst) = lateness.max() {
            recorder.lateness(worst);
        }
        recorder.flush()
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if self.is_idle() {
            return;
        }
        // Buffers that storage may still be using are left where they are, for ever.
        for disk in self.disks.iter_mut().flatten() {
            for command in disk.in_flight.iter_mut().filter_map(Option::take) {
                std::mem::forget(command);
            }
        }
    }
}
