//! What travels on a link.

use crate::feature;
use serde::{Deserialize, Serialize};

/// Bytes before each body: its length, and the length of the data behind it.
pub const FRAME_HEADER: usize = 8;
/// Longest body.
pub const BODY_MAX: usize = 64 << 10;
/// Longest data behind a body.
pub const DATA_MAX: usize = 32 << 20;

/// One message. Flows are numbered by the sender, which introduces each by name first; nodes go by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// The sender calls this flow by this number from now on.
    Flow {
        /// The sender's number.
        id: u32,
        /// The cluster's name for it.
        name: String,
    },
    /// What the sender knows of a flow's service ([`henge_core::Sync`]).
    Sync {
        /// Counted by a coordinator, of what it sent to other nodes; else by a node, of what it served.
        coordinator: bool,
        /// Grows when the sender starts anew.
        epoch: u64,
        /// Grows with each message of an epoch.
        sequence: u64,
        /// The sender's number of the flow.
        flow: u32,
        /// What there is to tell.
        news: WireNews,
    },
    /// A user was given a capability of the parallel file system; an opaque key for whoever meets it again.
    Identity {
        /// The capability, as both ends write it.
        capability: Vec<u8>,
        /// The user.
        uid: u32,
    },
    /// The sender will send parts for an extent of a disk, by this number.
    Attach {
        /// The sender's number, never used for another extent while the link lasts.
        extent: u32,
        /// The disk.
        disk: String,
        /// Which of its extents, in the order of the stripes.
        index: u32,
        /// A digest of the disk's capacity, stripe and extents as the sender knows them.
        shape: u64,
    },
    /// Parts of the extent may come.
    Attached {
        /// The other end's number.
        extent: u32,
        /// Most parts of it under way at once.
        parts: u32,
        /// Most bytes of them.
        bytes: u64,
        /// What costs count.
        unit: WireUnit,
    },
    /// No parts of the extent: it is not served here, for now.
    Detached {
        /// The other end's number.
        extent: u32,
        /// Why.
        why: String,
    },
    /// A part; a write's bytes follow.
    Part(WirePart),
    /// A part is over; a read's bytes follow if it went well.
    Done {
        /// The other end's name for it.
        id: u64,
        /// How it went.
        outcome: PartOutcome,
        /// What it was charged.
        cost: u64,
    },
    /// The part is not wanted any more; it is answered all the same.
    Cancel {
        /// The sender's name for it.
        id: u64,
    },
    /// The sender acts by copies of what the other end keeps ([`crate::copies`]), and asks to go on.
    Heartbeat {
        /// The sender's name for it.
        number: u64,
    },
    /// It may, for a while.
    HeartbeatAnswer {
        /// The other end's name for it.
        number: u64,
        /// Copies of this term alone.
        term: u64,
    },
    /// The sender wants a copy of a thing, and to be told of its changes.
    Watch {
        /// Its name.
        thing: String,
    },
    /// A thing as it is now, or a piece of that.
    Copy {
        /// Its name.
        thing: String,
        /// Good while heartbeats are answered in this term.
        term: u64,
        /// Grows with each change.
        version: u64,
        /// From 0 on.
        piece: u32,
        /// Whether it is the last piece.
        last: bool,
        /// What it says.
        text: String,
    },
    /// The sender acts by this version from now on.
    Seen {
        /// The thing.
        thing: String,
        /// Which.
        version: u64,
    },
    /// A PERSISTENT RESERVE OUT of one of the sender's initiators, for the node that keeps the disk's reservations.
    Reserve {
        /// The sender's name for it.
        id: u64,
        /// The disk.
        disk: String,
        /// Who asks.
        port: String,
        /// The command.
        cdb: [u8; 16],
        /// Its parameter list.
        list: Vec<u8>,
    },
    /// It is decided, and in force at every node.
    Reserved {
        /// The other end's name for it.
        id: u64,
        /// SCSI's status …
        status: u8,
        /// … and, with CHECK CONDITION, why.
        why: Option<WireSense>,
    },
    /// Nothing else to say.
    Ping,
    /// A task management function of one of the sender's initiators takes away everybody's commands, as it has done at the sender;
    /// for the node that keeps the disk's reservations. Answered by [`Message::Reserved`] when it is done at every node.
    Sweep {
        /// The sender's name for it.
        id: u64,
        /// The disk.
        disk: String,
        /// What goes.
        what: WireSweep,
    },
    /// The sender ends, and everything that it answered is durable: who links with its next life need doubt nothing.
    Ended,
}

/// What is taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WireSweep {
    /// Commands.
    Commands,
    /// The unit's state as well.
    Unit,
    /// Sessions as well.
    Sessions,
}

/// SCSI's sense data on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WireSense {
    /// Sense key.
    pub key: u8,
    /// Additional sense code and qualifier.
    pub code: u16,
    /// The byte of the parameter list at fault (true), or of the CDB.
    pub at: Option<(bool, u16)>,
}

/// What is asked of a part's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PartKind {
    /// Bytes.
    Read,
    /// Bytes changed; they follow.
    Write {
        /// Durable before it is answered.
        fua: bool,
    },
    /// Everything answered before it made durable.
    Flush,
    /// Bytes given back.
    Trim,
    /// Bytes that read as zeroes.
    WriteZeroes {
        /// The space stays provisioned.
        no_hole: bool,
        /// Durable before it is answered.
        fua: bool,
    },
    /// The range will be read soon.
    Cache,
    /// Compared and, if equal, replaced; the new bytes follow, then those to compare with.
    CompareAndWrite {
        /// Durable before it is answered.
        fua: bool,
    },
}

/// A part of a client's command, for the node that holds its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WirePart {
    /// The sender's name for it.
    pub id: u64,
    /// The sender's number of the extent.
    pub extent: u32,
    /// What is to be done.
    pub kind: PartKind,
    /// First byte of the extent.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Millionths of a client's command that it stands for.
    pub commands: u32,
    /// Service that the flow got at other extents, all in all since the extent was attached …
    pub foreign: u64,
    /// … and as the part before this one said.
    pub before: u64,
}

/// How a part went.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PartOutcome {
    /// Well; a read's bytes follow.
    Done,
    /// Not taken in for want of memory or room: to be sent again a little later.
    Later,
    /// The extent is not served here any more.
    Detached,
    /// The bytes to compare with differ from this one on.
    Miscompare(u64),
    /// An error of the medium.
    Io,
    /// No space left.
    NoSpace,
    /// Such an operation is not possible there.
    Unsupported,
    /// Beyond the end.
    OutOfRange,
    /// Given up before it was begun, as the sender wished.
    Cancelled,
}

/// What an extent's costs count; coordinators add up only what counts alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WireUnit {
    /// Bytes.
    Bytes,
    /// Millionths of a client's command.
    Requests,
    /// Nanoseconds of disk time.
    DiskTime,
}

/// [`henge_core::News`] on the wire.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WireNews {
    /// Service so far, and as announced the time before.
    Total {
        /// In cost units.
        total: u64,
        /// The same.
        before: u64,
    },
    /// Striped like this.
    Layout {
        /// Bytes of one stripe.
        stripe: u64,
        /// Names, in the order of the stripes.
        nodes: Vec<String>,
    },
    /// Quiet for a while.
    Departed,
}

impl Message {
    /// The feature that an end must have to understand it; 0 for what each end of this version understands. A message of a feature has no data.
    pub(crate) fn feature(&self) -> u64 {
        match self {
            Message::Ended => feature::ENDED,
            _ => 0,
        }
    }
}

/// Appends a body in its frame; `data` bytes follow it.
pub(crate) fn frame<T: Serialize>(body: &T, data: usize, into: &mut Vec<u8>) {
    // Nearly all are short: no memory is asked for them.
    let mut short = [0; 128];
    if let Ok(body) = postcard::to_slice(body, &mut short) {
        framed(body, data, into);
    } else {
        framed(&postcard::to_allocvec(body).expect("messages of ours always encode"), data, into);
    }
}

/// The same, of a body that is bytes already.
pub(crate) fn framed(body: &[u8], data: usize, into: &mut Vec<u8>) {
    assert!(data <= DATA_MAX && body.len() <= BODY_MAX, "messages of ours fit a frame");
    into.extend_from_slice(&(body.len() as u32).to_le_bytes());
    into.extend_from_slice(&(data as u32).to_le_bytes());
    into.extend_from_slice(body);
}
