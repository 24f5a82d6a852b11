//! The data plane: disks and gates, and how a command becomes requests and they an answer.
//!
//! No sockets and no clock here. The loop submits commands with their buffers, calls [`Plane::poll`], and
//! takes the answers. Everything is indexed by small numbers; once warm, nothing is allocated per request.

use crate::config::{NodeConfig, at};
use crate::exchange::Exchange;
use crate::links::Links;
use crate::record::Recorder;
use crate::spread::Inner;
use crate::tags::Tags;
use crate::tap::{Taken, Tap, Tapped};
use henge_backend::{Buffer, BufferPool, Store};
use henge_core::{Cost, Instant, ParamError, Pending, RequestId};
use henge_vdisk::{Failure, PartId, Patch};
use std::collections::{BTreeMap, BTreeSet};

mod disk;
mod disks;
mod memory;
mod pools;
mod way;

pub(crate) use disk::Disk;
use disk::Flight;
pub(crate) use pools::{GateState, Pool};

/// Who waits for a command: a connection and its name for the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub connection: RequestId,
    pub command: RequestId,
}

/// A command that is over, with its buffer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub disk: usize,
    pub owner: Owner,
    pub outcome: Result<(), Failure>,
    pub frame: Buffer,
    /// Where the command's own bytes begin in it.
    pub lead: u64,
    /// What it was charged, where somebody is to be told: at the home of a place.
    pub cost: Cost,
}

/// What a request at a gate is for.
struct Errand {
    disk: u32,
    part: PartId,
    scratch: Option<Patch>,
    parts: u32,
    seq: u64,
    /// Those of the same disk before and after this one.
    older: Option<At>,
    newer: Option<At>,
}

/// Where an errand is: its gate, and its name there.
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
    pub answers: Vec<Answer>,
    /// The other nodes.
    pub links: Links,
    /// Parts of spread disks that are at their homes here.
    pub inner: Pending<Inner>,
    listed: Vec<usize>,
    freed: bool,
    /// Meters of disks count from then on, or from a disk's beginning.
    pub metered_since: Instant,
    recorder: Option<Recorder>,
    tap: Option<Tap>,
    /// Finish times that the manager makes.
    pub tags: Tags,
    /// A scheduler that is being exchanged.
    pub exchange: Option<Exchange>,
}

impl Plane {
    /// Opens pools and disks.
    pub(crate) fn open(config: &NodeConfig, epoch: u64, now: Instant) -> Result<Plane, ParamError> {
        let recorder = match &config.requests {
            None => None,
            Some(path) => Some(Recorder::create(path).map_err(|e| at(&(0..0), e.to_string()))?),
        };
        let mut plane = Plane {
            pools: Vec::new(),
            gates: Vec::new(),
            disks: Vec::new(),
            gaps: BTreeSet::new(),
            by_name: BTreeMap::new(),
            buffers: BufferPool::new(config.buffers),
            answers: Vec::new(),
            links: Links::new(config.link.clone(), epoch),
            inner: Pending::new(),
            listed: Vec::new(),
            freed: false,
            metered_since: Instant::ZERO,
            recorder,
            tap: None,
            tags: Tags::default(),
            exchange: None,
        };
        for pool in &config.pools {
            plane.add_pool(pool, config)?;
        }
        for peer in &config.peers {
            plane.links.add(peer.clone(), None).map_err(|e| at(&(0..0), e))?;
        }
        for disk in &config.disks {
            plane.add_disk(disk.clone(), now)?;
        }
        Ok(plane)
    }

    /// The disks that clients may use.
    pub(crate) fn served(&self) -> impl Iterator<Item = (usize, &Disk)> {
        let disks = self.disks.iter().enumerate().filter_map(|(n, d)| d.as_ref().map(|d| (n, d)));
        disks.filter(|(_, disk)| disk.home_of.is_none())
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
    pub(crate) fn has_room(&self, number: usize) -> bool {
        let Some(disk) = &self.disks[number] else { return false };
        let pending = disk.config.contract.pending.map_or(usize::MAX, |n| n as usize);
        disk.vdisk.has_room() && disk.vdisk.pending() < pending
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
        if !std::mem::replace(&mut self.gates[g].listed, true) {
            self.listed.push(g);
        }
    }

    /// Whether a gate is to be polled at once.
    pub(crate) fn is_listed(&self) -> bool {
        !self.listed.is_empty() || !self.links.returns.is_empty()
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

    /// Polls the listed gates until nothing is left to do at `now`.
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
        while let Some(g) = self.listed.pop() {
            self.gates[g].listed = false;
            while let Some(finished) = self.gates[g].pipeline.poll(now) {
                let errand = self.gates[g].errands.remove(finished.served.request.id);
                let errand = errand.expect("what is finished was submitted");
                self.unchain(&errand);
                if let Some(recorder) = &mut self.recorder {
                    let disk = self.disks[errand.disk as usize].as_ref().expect("a disk in use is there");
                    recorder.row(&disk.config.name, &finished.served, g as u32, errand.seq, errand.parts);
                }
                let cost = finished.served.request.cost;
                self.done(&errand, finished.outcome, &finished.payload, cost, now);
            }
        }
    }

    /// Whether any request is waiting or under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.gates.iter().all(|g| g.errands.is_empty()) && self.links.is_idle()
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
            for flight in disk.flights.iter_mut().filter_map(Option::take) {
                std::mem::forget(flight);
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
