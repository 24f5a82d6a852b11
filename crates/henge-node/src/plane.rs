//! The data plane: disks and gates, and how a command becomes requests and they an answer.
//!
//! No sockets and no clock here. The loop submits commands with their buffers, calls [`Plane::poll`], and
//! takes the answers. Everything is indexed by small numbers; once warm, nothing is allocated per request.

use crate::config::{DiskConfig, NodeConfig, at};
use crate::exchange::Exchange;
use crate::front::Kind;
use crate::links::Links;
use crate::record::Recorder;
use crate::shards::Division;
use crate::shards::lanes::Lanes;
use crate::spread::Inner;
use crate::spread::across::Across;
use crate::tags::Tags;
use crate::tap::Tap;
use crate::turns::{BYTES, Done, Turns};
use henge_api::{Taken, Tapped};
use henge_backend::{Buffer, BufferPool, Store};
use henge_core::{Cost, Instant, ParamError, Pending, RequestId};
use henge_vdisk::{Failure, PartId, Patch};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;

mod budget;
mod disk;
mod disks;
mod failed;
mod memory;
mod pools;
#[cfg(test)]
mod tests;
pub(crate) mod tickets;
mod way;

use budget::Budget;
pub(crate) use disk::Disk;
use disk::InFlight;
pub(crate) use failed::{Failed, NotAdded, Notice};
pub(crate) use pools::{GateState, Pool};

/// Who waits for a command: a connection and its name for the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Submitter {
    pub connection: RequestId,
    pub command: RequestId,
}

/// A command that is over, with its buffer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub disk: usize,
    pub submitter: Submitter,
    pub outcome: Result<(), Failure>,
    pub frame: Buffer,
    /// Where the command's own bytes begin in it.
    pub lead: u64,
    /// The disk's address of its first byte.
    pub at: u64,
    /// What it was charged, where somebody is to be told: at the owner of an extent.
    pub cost: Cost,
}

/// What a request at a gate is for.
struct SubRequest {
    disk: u32,
    part: PartId,
    scratch: Option<Patch>,
    /// Memory that it has beside its command's, counted for its disk.
    extra: usize,
    /// Bytes that were copied for it, and charged.
    copied: u64,
    parts: u32,
    seq: u64,
    /// The sub-requests of the same disk before and after this one.
    older: Option<At>,
    newer: Option<At>,
}

/// What a request counts of a round beside the bytes that it copies: passing it on takes about as long as copying so many.
const REQUEST: u64 = 2 << 10;

/// Where a sub-request is: its gate, and its name there.
type At = (u32, RequestId);

/// Everything between sessions and storage.
pub(crate) struct Plane {
    pub pools: Vec<Pool>,
    pub gates: Vec<GateState>,
    /// Removed disks leave a gap, so that flows keep their numbers.
    pub disks: Vec<Option<Disk>>,
    /// Those gaps.
    gaps: BTreeSet<usize>,
    /// The disks that clients may use, by name.
    by_name: BTreeMap<String, usize>,
    pub buffers: BufferPool,
    budget: Budget,
    /// How often memory was asked for and not there.
    pub refused: u64,
    pub answers: Vec<Answer>,
    /// All front ends.
    pub kinds: Vec<&'static Kind>,
    /// Those by which other machines come: each disk that is shown there says who may use it.
    pub asked: Vec<&'static Kind>,
    /// The other nodes.
    pub links: Links,
    /// The other shards.
    pub across: Across,
    /// Parts of spread disks that are at their owners here.
    pub inner: Pending<Inner>,
    /// Gates that are to be polled, in order.
    runnable: Turns,
    /// Bytes that gates may still copy in memory in this round.
    copyable: u64,
    /// Disks whose bytes were copied, and how many: the loop charges them for it.
    copied: Vec<(usize, u64)>,
    /// Commands taken in.
    pub begun: u32,
    /// The weights of all extents that other nodes ask of here.
    pub links_weight: u32,
    freed: bool,
    /// Meters of disks count from then on, or from a disk's beginning.
    pub metered_since: Instant,
    recorder: Option<Recorder>,
    tap: Option<Tap>,
    /// Finish times that the manager makes.
    pub tags: Tags,
    /// Parts that are being made or removed.
    tickets: tickets::Tickets,
    /// A scheduler that is being exchanged.
    pub exchange: Option<Exchange>,
    /// Disks that are not served although they should be. Nobody else gets their names, nor their parts.
    pub failed: BTreeMap<String, Failed>,
    /// Disks that several gateways can serve.
    pub seats: crate::spread::seat::Seats,
    /// Every disk that was here before is here again.
    settled: bool,
    /// Who is told what an administrator is to know.
    notices: Option<Sender<Notice>>,
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
        let buffers = config.buffers / division.count();
        let recorder = match &config.requests {
            _ if look => None,
            None => None,
            Some(path) => Some(Recorder::open(path, here).map_err(|e| at(&(0..0), e.to_string()))?),
        };
        let mut plane = Plane {
            pools: Vec::new(),
            gates: Vec::new(),
            disks: Vec::new(),
            gaps: BTreeSet::new(),
            by_name: BTreeMap::new(),
            buffers: BufferPool::new(buffers),
            budget: Budget::new(buffers),
            refused: 0,
            answers: Vec::new(),
            kinds: config.kinds.clone(),
            asked: config.asked.clone(),
            links: Links::of_shard(here, config.link.clone(), epoch),
            across,
            inner: Pending::new(),
            runnable: Turns::new(),
            copyable: u64::MAX,
            copied: Vec::new(),
            begun: 0,
            links_weight: 1,
            freed: false,
            metered_since: Instant::ZERO,
            recorder,
            tap: None,
            tags: Tags::default(),
            tickets: tickets::Tickets::default(),
            exchange: None,
            failed: BTreeMap::new(),
            seats: crate::spread::seat::Seats::default(),
            settled: false,
            notices: None,
        };
        for (number, pool) in config.pools.iter().enumerate() {
            match division.shard(number) == here {
                true => plane.add_pool(pool, config, look)?,
                false => plane.pools.push(Pool::elsewhere(pool)),
            }
        }
        for peer in &config.peers {
            plane.links.add(peer.clone(), None).map_err(|e| at(&(0..0), e))?;
        }
        let mine = |disk: &&DiskConfig| division.shards_of(disk).contains(&here);
        for disk in config.disks.iter().filter(mine) {
            match plane.add_disk(disk.clone(), now) {
                Ok(_) => {}
                Err(e) if e.storage && !look => {
                    plane.failed.insert(disk.name.clone(), Failed::unopened(e.error.message));
                }
                Err(e) => return Err(e.error),
            }
        }
        Ok(plane)
    }

    /// The disks that clients may use.
    pub(crate) fn served(&self) -> impl Iterator<Item = (usize, &Disk)> {
        let disks = self.disks.iter().enumerate().filter_map(|(n, d)| d.as_ref().map(|d| (n, d)));
        disks.filter(|(_, disk)| disk.extent_of.is_none())
    }

    /// Disks whose FLUSH at the end has failed.
    pub(crate) fn unflushed(&self) -> impl Iterator<Item = &str> {
        self.disks.iter().flatten().filter(|disk| disk.unflushed).map(|disk| disk.config.name.as_str())
    }

    /// The number of a disk by its name.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The disk of that number.
    pub(crate) fn disk(&mut self, number: usize) -> &mut Disk {
        self.disks[number].as_mut().expect("a disk in use is there")
    }

    /// Whether the disk takes another command: its contract's bound on pending ones.
    pub(crate) fn has_capacity(&self, number: usize) -> bool {
        let Some(disk) = &self.disks[number] else { return false };
        let pending = disk.config.contract.pending.map_or(usize::MAX, |n| n as usize);
        disk.vdisk.has_capacity() && disk.vdisk.pending() < pending
    }

    /// Opens the tap, or empties it.
    pub(crate) fn tap(&mut self, buffer: Vec<Tapped>, now: Instant) -> Taken {
        match &mut self.tap {
            Some(tap) => tap.empty(buffer, now),
            None => {
                self.tap = Some(Tap::open(buffer, now));
                Taken { now: now.as_nanos(), ..Taken::default() }
            }
        }
    }

    /// Closes the tap.
    pub(crate) fn untap(&mut self) {
        self.tap = None;
    }

    /// Puts a gate on the list of those to be polled.
    pub(crate) fn list(&mut self, g: usize) {
        self.gates[g].line_up(g, &mut self.runnable);
    }

    /// A gate's storage has signalled.
    pub(crate) fn signalled(&mut self, g: usize) {
        self.gates[g].pipeline.backend_mut().signalled();
        self.list(g);
    }

    /// Whether a gate is to be polled at once.
    pub(crate) fn is_runnable(&self) -> bool {
        !self.runnable.is_empty() || !self.links.returns.is_empty() || self.across.lanes.has_input()
    }

    /// Lists the gates whose time has come.
    pub(crate) fn list_due(&mut self, now: Instant) {
        for g in 0..self.gates.len() {
            if self.gates[g].pipeline.wake_at().is_some_and(|at| at <= now) {
                self.list(g);
            }
        }
    }

    /// When `list_due` will find something.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.gates.iter().filter_map(|g| g.pipeline.wake_at()).min()
    }

    /// A round of the loop begins, in which gates may copy `bytes` bytes in memory.
    pub(crate) fn begin_round(&mut self, bytes: u64) {
        self.copyable = bytes;
    }

    /// What was copied since this was asked last.
    pub(crate) fn next_copied(&mut self) -> Option<(usize, u64)> {
        self.copied.pop()
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
        while self.copyable > 0
            && let Some(turn) = self.runnable.next(now)
        {
            let g = turn.connection.index();
            self.gates[g].runnable = false;
            self.hear(g);
            let (mut piece, mut worked) = (BYTES as u64, Done::default());
            while piece > 0 {
                let Some(finished) = self.gates[g].pipeline.poll(now) else {
                    worked.bytes += self.copied_on(g);
                    break;
                };
                let sub_request = self.gates[g].sub_requests.remove(finished.served.request.id);
                let sub_request = sub_request.expect("what is finished was submitted");
                let len = finished.served.request.len.saturating_sub(sub_request.copied);
                if self.disks[sub_request.disk as usize].is_none()
                    && self.zeroed(g, sub_request.disk, finished.outcome, now)
                {
                    self.copyable = self.copyable.saturating_sub(REQUEST);
                    piece = piece.saturating_sub(len.max(REQUEST));
                    worked.commands += 1;
                    continue;
                }
                self.unchain(&sub_request);
                self.disk(sub_request.disk as usize).over(&finished.served.request);
                if let Some(recorder) = &mut self.recorder {
                    let disk =
                        self.disks[sub_request.disk as usize].as_ref().expect("a disk in use is there");
                    recorder.row(
                        &disk.config.name,
                        &finished.served,
                        g as u32,
                        sub_request.seq,
                        sub_request.parts,
                    );
                }
                let done = if self.gates[g].copies { len + REQUEST } else { REQUEST };
                self.copyable = self.copyable.saturating_sub(done);
                piece = piece.saturating_sub(done);
                if self.gates[g].copies {
                    self.copied.push((sub_request.disk as usize, len));
                    worked.bytes += len;
                    let disk = self.disks[sub_request.disk as usize].as_ref();
                    self.gates[g].weight = disk.map_or(1, |disk| disk.config.contract.weight());
                }
                worked.commands += 1;
                let cost = finished.served.request.cost;
                self.done(&sub_request, finished.outcome, &finished.payload, cost, now);
            }
            self.runnable.done(turn, worked, now);
            if piece == 0 {
                // It is polled again when others have had their turns, perhaps in the next round; its device works on meanwhile.
                self.gates[g].pipeline.submit_ready(now);
                self.list(g);
            }
        }
    }

    /// A gate has copied a piece of a longer request: its disk is charged for it at once. Bytes of the round that it took.
    fn copied_on(&mut self, g: usize) -> u64 {
        let Some((id, len)) = self.gates[g].pipeline.backend_mut().copied() else { return 0 };
        if !self.gates[g].copies {
            return 0;
        }
        self.copyable = self.copyable.saturating_sub(len + REQUEST);
        if let Some(sub_request) = self.gates[g].sub_requests.get_mut(id) {
            sub_request.copied += len;
            self.copied.push((sub_request.disk as usize, len));
        }
        len
    }

    /// Whether any request is waiting or under way.
    pub(crate) fn is_idle(&self) -> bool {
        let gates = self.gates.iter().all(|g| g.sub_requests.is_empty());
        gates && self.links.is_idle() && self.inner.is_empty() && !self.across.lanes.is_behind()
    }

    /// Writes the rest of the record, now that the run is over.
    pub(crate) fn end_record(&mut self) -> std::io::Result<()> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        let lateness = self.gates.iter().filter_map(|g| g.pipeline.backend().lateness()?.quantile(0.99));
        if let Some(worst) = lateness.max() {
            recorder.lateness(worst);
        }
        recorder.flush()
    }

    /// Leaves buffers that storage may still be using where they are, for ever.
    fn abandon(&mut self) {
        for disk in self.disks.iter_mut().flatten() {
            for command in disk.in_flight.iter_mut().filter_map(Option::take) {
                std::mem::forget(command);
            }
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if !self.is_idle() {
            self.abandon();
        }
    }
}
