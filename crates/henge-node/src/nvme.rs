//! The NVMe subsystems of a node: one for each virtual disk, which is its namespace 1.
//!
//! One disk to a subsystem, since a subsystem is what a host may or may not use, what it finds by discovery, and what it puts
//! together from several nodes: who may use a disk, and by which nodes, is said of each disk.

mod access;
pub(crate) mod host;
mod reserve;
mod service;

pub(crate) use access::access;
pub(crate) use reserve::Wish;

use crate::beside::Beside;
use crate::fnv::fnv;
use crate::front::Doors;
use crate::plane::Disk;
use henge_core::{Duration, Instant, RequestId};
use henge_nvme::auth::Derivation;
use henge_nvme::{Namespace, PORT, QueueId, Reach, SubsystemId, Subsystems};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What the names of all subsystems begin with.
pub(crate) const PREFIX: &str = "nqn.2026-11.local.henge:";

/// How often queues are looked at for silence.
const LOOK: Duration = Duration::from_secs(1);
/// Queues that are looked at in a step.
const STEP: usize = 64;

/// Powers that hosts' proofs need, each for a command.
type Powers = Beside<(RequestId, Derivation), (RequestId, Vec<u8>)>;

/// Subsystems, and which disk each of them is.
pub(crate) struct Fabric {
    pub subsystems: Subsystems,
    disks: BTreeMap<SubsystemId, usize>,
    by_disk: BTreeMap<usize, SubsystemId>,
    /// Subsystems that disks had, whose hosts' commands may still be at the storage.
    former: BTreeSet<(usize, SubsystemId)>,
    /// Other shards' disks, by their numbers among all: hosts find them here, and are sent there.
    elsewhere: BTreeMap<usize, SubsystemId>,
    /// Which connection a queue is.
    connections: BTreeMap<QueueId, RequestId>,
    /// The queue that was looked at last, while there are more.
    looked: Option<QueueId>,
    next_look: Option<Instant>,
    /// Whether hosts come here at all.
    enabled: bool,
    /// Changes of who may use disks that are still to be decided.
    pub wishes: VecDeque<Wish>,
    /// What hosts' proofs wait for.
    pub powers: Powers,
}

impl Fabric {
    /// `port`: this node's number among those that serve the same disks. Where nobody listens, nothing is offered. `wake` wakes the loop.
    pub(crate) fn new(port: u16, enabled: bool, wake: Arc<OwnedFd>) -> Fabric {
        Fabric {
            subsystems: Subsystems::at(port),
            disks: BTreeMap::new(),
            by_disk: BTreeMap::new(),
            former: BTreeSet::new(),
            elsewhere: BTreeMap::new(),
            connections: BTreeMap::new(),
            looked: None,
            next_look: None,
            enabled,
            wishes: VecDeque::new(),
            powers: Beside::new("henge-proofs", |(task, derivation)| (task, derivation.run()), wake),
        }
    }

    /// A disk is there: a subsystem for it. Of one that was there before, hosts are told how long it is now.
    pub(crate) fn add(&mut self, number: usize, disk: &Disk) {
        if !self.enabled {
            return;
        }
        if let Some(&id) = self.by_disk.get(&number) {
            return self.subsystems.resize(id, disk.vdisk.capacity());
        }
        let config = &disk.config;
        let nqn = format!("{PREFIX}{}", config.name);
        let namespace = namespace(&config.name, config.read_only, disk.vdisk.capacity());
        let Some(id) = self.subsystems.add(&nqn, config.doors.of().cloned().unwrap_or_default(), namespace)
        else {
            return;
        };
        self.disks.insert(id, number);
        self.by_disk.insert(number, id);
    }

    /// Who may use a disk from now on, and whether hosts find it. Hosts that are there connect anew, if they may.
    pub(crate) fn set_access(&mut self, number: usize, access: henge_nvme::Access, shown: bool) {
        match self.by_disk.get(&number) {
            Some(&id) if shown => self.subsystems.set_access(id, access),
            Some(_) => self.remove(number),
            None => {}
        }
    }

    /// A disk is gone, and its subsystem.
    pub(crate) fn remove(&mut self, number: usize) {
        if let Some(id) = self.by_disk.remove(&number) {
            self.disks.remove(&id);
            self.subsystems.remove(id);
            self.former.retain(|(_, id)| !self.subsystems.is_quiet_before(*id, 0));
            self.former.insert((number, id));
        }
    }

    /// A disk of another shard is there: hosts find it.
    pub(crate) fn add_elsewhere(&mut self, number: usize, export: &henge_nbd::Export, doors: &Doors) {
        if !self.enabled || self.elsewhere.contains_key(&number) {
            return;
        }
        let nqn = format!("{PREFIX}{}", export.name);
        let namespace = namespace(&export.name, export.read_only, export.size);
        let id = self.subsystems.add(&nqn, doors.of().cloned().unwrap_or_default(), namespace);
        self.elsewhere.extend(id.map(|id| (number, id)));
    }

    /// It is gone.
    pub(crate) fn remove_elsewhere(&mut self, number: usize) {
        if let Some(id) = self.elsewhere.remove(&number) {
            self.subsystems.remove(id);
        }
    }

    /// How a disk is reached by way of this node, and where other nodes serve it.
    pub(crate) fn tell_ways(&mut self, number: usize, reach: Reach, elsewhere: Vec<(String, String)>) {
        if let Some(&id) = self.by_disk.get(&number) {
            self.subsystems.set_reach(id, reach);
            self.subsystems.set_elsewhere(id, elsewhere);
        }
    }

    /// The disk behind a subsystem.
    fn disk(&self, id: SubsystemId) -> Option<usize> {
        self.disks.get(&id).copied()
    }

    /// A queue is on this connection.
    pub(crate) fn connected(&mut self, queue: QueueId, id: RequestId, now: Instant) {
        self.connections.insert(queue, id);
        self.next_look.get_or_insert(now + LOOK);
    }

    /// The connection with news for its queue.
    pub(crate) fn next_poked(&mut self) -> Option<RequestId> {
        while let Some(queue) = self.subsystems.next_poked() {
            if let Some(&id) = self.connections.get(&queue) {
                return Some(id);
            }
        }
        None
    }

    /// When [`Fabric::look`] has something to do.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.next_look
    }

    /// The connections to be looked at now: some at a time, all of them about once a second.
    pub(crate) fn look(&mut self, now: Instant) -> Vec<RequestId> {
        if self.next_look.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let after = self.looked.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.connections.range((after, Bound::Unbounded)).take(STEP);
        let next: Vec<(QueueId, RequestId)> = next.map(|(queue, id)| (*queue, *id)).collect();
        self.looked = next.last().filter(|_| next.len() == STEP).map(|(queue, _)| *queue);
        let pause = if self.looked.is_some() { Duration::ZERO } else { LOOK };
        self.next_look = (!self.connections.is_empty()).then_some(now + pause);
        next.into_iter().map(|(_, id)| id).collect()
    }
}

/// The disk as a namespace. All that names it comes from its name, so that every node says the same.
fn namespace(name: &str, read_only: bool, capacity: u64) -> Namespace {
    let name = name.as_bytes();
    let (high, low) = (fnv(name), fnv(&[name, b"/nvme"].concat()));
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&high.to_be_bytes());
    uuid[8..].copy_from_slice(&low.to_be_bytes());
    Namespace {
        bytes: capacity,
        block_shift: 9,
        preferred_shift: henge_backend::ALIGN.ilog2(),
        read_only,
        reservable: true,
        serial: format!("{high:016x}"),
        uuid,
        reach: Reach::Optimized,
        reach_changes: 0,
    }
}

/// What a user types to attach a disk.
pub(crate) fn connect(host: &str, port: u16, disk: &str) -> String {
    let service = if port == PORT { String::new() } else { format!(" -s {port}") };
    format!("nvme connect -t tcp -a {host}{service} -n {PREFIX}{disk}")
}

/// The same, of a listener: one that listens everywhere can be reached here, too.
pub(crate) fn connect_to(at: &SocketAddr, disk: &str) -> String {
    let host = match at {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => "127.0.0.1".to_owned(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => "::1".to_owned(),
        _ => at.ip().to_string(),
    };
    connect(&host, at.port(), disk)
}
