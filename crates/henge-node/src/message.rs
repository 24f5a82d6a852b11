//! What a loop hears from other threads, other shards among them, and what it answers.

use crate::front::Doors;
use crate::handover::Guest;
use crate::plane::PartOf;
use crate::plane::tickets::Worked;
use crate::session::Begin;
use crate::shards::across::Owner;
use crate::spread::seat::Vacant;
use crate::stream::Stream;
use crate::tags::Queued;
use henge_api::{DiskStatus, Lead, Reply, Request, Status, Table, Taken, Tapped};
use henge_backend::{Claim, Register};
use henge_core::{Demand, DepthPart};
use henge_nbd::Export;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender};

/// Disks that the loop tells of in one turn.
pub(crate) const SLICE: usize = 32;

/// A control request and where its answer goes.
pub(crate) enum Message {
    Ask(Request, Sender<Reply>),
    /// Make the parts that this request will need.
    Prepare(Request, Sender<Worked>),
    /// Whether the parts of a disk, which were on these pools, are there.
    Find(Request, BTreeSet<String>, Sender<Result<(), String>>),
    /// Remove the disk of that name. What comes last is dropped when the disk has left its number.
    Remove(String, Sender<Reply>, Option<Sender<()>>),
    /// What is left of a disk whose removal had begun is to be known.
    Remains(Table, Sender<Result<(), String>>),
    /// Whether the disk of that name is served.
    Serves(String, Sender<bool>),
    /// The disk of that name is remembered: these parts, which were made for it, are its own.
    Claim(String, Vec<PartOf>, Sender<Worked>),
    /// The disk of that name, for which these parts were made, was refused.
    Discard(String, Vec<PartOf>, Sender<Worked>),
    /// The disk of that name, added here, was refused at another shard. `why`: it is remembered, and not served.
    Withdraw {
        disk: String,
        why: Option<String>,
        over: Sender<()>,
    },
    /// What a ticket had to have done is done.
    Chore(u64, io::Result<Option<File>>),
    /// Opens or empties the tap, for an empty buffer.
    Tap {
        buffer: Vec<Tapped>,
        reply: Sender<Taken>,
    },
    /// The meters, from this disk on.
    Sample {
        from: usize,
        /// With histograms, and what each gate knows.
        whole: bool,
        reply: Sender<Slice>,
    },
    /// Pools that other nodes may share.
    Shared(Sender<Vec<Shared>>),
    /// The disks of a gate's storage that nobody has.
    Seats {
        gate: usize,
        reply: Sender<Seats>,
    },
    /// Of the depth that all gateways of a gate's storage share, this one has this part.
    DepthPart {
        gate: usize,
        part: DepthPart,
    },
    /// It is this node's turn to have a disk.
    Claimed(String, Claim),
    /// This node is drained, and these others take disks of a gate's storage.
    LetGo {
        gate: usize,
        to: Vec<String>,
    },
    /// This node was shut out of a gate's storage.
    ShutOut {
        gate: usize,
    },
    /// A connection whose disk is here.
    Arrive(Box<Traveller>),
    /// What another shard says of its disks.
    News(News),
    /// Everything that was sent before is heard.
    Heard(Sender<()>),
    /// Tell of parts there from now on, or nobody.
    Relay(Option<SyncSender<Queued>>),
    /// Finish times that the manager made.
    Leads(Vec<Lead>),
    /// Every disk that was here before is here again, but for those that could not be, and why: clients may come. Those in `left` are
    /// there already.
    Settle {
        failed: Vec<(String, String)>,
        left: Vec<Guest>,
        over: Sender<()>,
    },
    /// Finish what is under way, flush, and end.
    Stop,
    /// The same; sockets are kept for the program that comes next.
    HandOver,
}

/// A part of the meters, as the loop gives it.
pub(crate) struct Slice {
    /// Everything but the disks; with the first part.
    pub head: Option<Status>,
    pub disks: Vec<DiskStatus>,
    /// Where the next part begins.
    pub next: Option<usize>,
}

/// A connection on its way to the shard of its disk.
pub(crate) struct Traveller {
    pub stream: Stream,
    pub from: Option<IpAddr>,
    /// Bytes that came and were not taken.
    pub rest: Vec<u8>,
    pub begin: Begin,
}

/// What a shard says of a disk of its own, by the disk's number among all shards.
#[derive(Clone)]
pub(crate) enum News {
    /// It is there, or is another than before.
    Shown(Arc<Shown>),
    /// It is gone.
    Gone(usize),
    /// It takes no client now, for that reason.
    Refused(usize, &'static str),
    /// It takes clients again.
    Welcome(usize),
    /// Initiators keep everybody from it: it is stopped, or sanitized. Or they do so no longer.
    Barred(usize, bool),
    /// Who has an extent of it, which other shards need to know; or nobody.
    Owner { disk: String, extent: u32, owner: Option<Owner> },
}

/// A disk as clients of any shard find it.
pub(crate) struct Shown {
    pub number: usize,
    /// Which of the disks that have had this number.
    pub edition: u64,
    pub export: Export,
    pub doors: Doors,
}

/// Shared storage: its gate, and where nodes tell each other that they live.
pub(crate) type Shared = (usize, Arc<dyn Register>);

/// What the loop tells of a pool's disks.
pub(crate) struct Seats {
    /// This node, and its start.
    pub me: String,
    pub epoch: u64,
    /// The other nodes.
    pub others: Vec<String>,
    /// Disks that nobody has.
    pub vacant: Vec<Vacant>,
    /// This node takes disks.
    pub serves: bool,
    /// It is drained, and goes on: it takes what nobody else does.
    pub drained: bool,
    /// What the gate asks of the storage, where its depth can be divided.
    pub demand: Option<Demand>,
}
