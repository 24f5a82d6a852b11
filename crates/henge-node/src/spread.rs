//! Disks that lie on pools of several nodes.
//!
//! Each extent of such a disk has an *owner*: the node with that pool keeps a virtual disk of the extent alone, which holds the
//! locks, completes blocks, and meets the gate. Whoever coordinates the disk (any node that knows it) cuts commands where
//! extents end, hands each part to its owner, here or over a link, and joins the answers:
//!
//! ```text
//! client ─▶ coordinator's disk ─┬─▶ owner of extent 0 (here) ─▶ gate ─▶ store
//!                               └─▶ link ─▶ owner of extent 1 (there) ─▶ gate ─▶ store
//! ```
//!
//! A write that was answered is in the store of its owner, so it is read back through any coordinator, and a FLUSH, which goes
//! to every owner, covers what all coordinators have completed. With each part goes the service that its flow got at the
//! other extents since the last part there (DSFQ's "delay"): this coordinator's own count of it, taken from the costs that come
//! back with the answers. Where costs count different things on different extents, nothing is added up.
//!
//! Price: a part of such a disk at its own node costs about 0.3 us more than a disk that is the node's alone.

pub(crate) mod across;
pub(crate) mod acts;
pub(crate) mod coordinator;
pub(crate) mod extents;
pub(crate) mod layout;
mod parts;
pub(crate) mod seat;
pub(crate) mod seating;

use crate::config::DiskConfig;
use crate::link_config::PlaceConfig;
use crate::shards::across::Reach;
use henge_core::{Cost, FlowId, NodeId, RequestId};
use henge_link::WireUnit;
use henge_sched::foreign::{Coordinator, Outbox};
use henge_vdisk::Part;

/// Who submits the parts of a spread disk to owners of this node; there is no such connection.
pub(crate) const INNER: RequestId = RequestId { slot: u32::MAX - 2, generation: u32::MAX };

/// A disk's own flow at its coordinator: it counts for one disk.
const FLOW: FlowId = FlowId(0);

/// Where an extent is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    /// The number of its owner.
    Here(usize),
    /// A peer, and the number of the extent there.
    There(usize, u32),
    /// Another shard of this node, and the number of its owner there.
    Across(usize, usize),
    /// No gateway has it now, or the shard that has it has not said so yet: what comes waits.
    Nowhere,
}

/// What a coordinator knows of a disk's extents.
pub(crate) struct Spread {
    pub extents: Vec<At>,
    coordinator: Coordinator,
    /// What each extent's costs count, as far as that is known.
    units: Vec<Option<WireUnit>>,
    /// Those whose bytes are read here, though they are at other shards.
    reach: Vec<Option<Reach>>,
    /// Sub-requests at owners of this node.
    inside: u32,
    outbox: Outbox,
    /// Its one extent goes from one gateway to another.
    pub shared: Option<seat::Seat>,
}

/// A part at an owner of this node.
#[derive(Debug)]
pub(crate) struct Inner {
    disk: usize,
    part: Part,
    extent: u32,
    /// Where the bytes to compare with stand: at the owner, and in the command's buffer.
    verify: (u64, u64),
    /// Its bytes are read here, once it has had its turn: the generation of that memory when it was asked for.
    reads: Option<u64>,
}

impl Spread {
    fn alike(&self) -> bool {
        let mut known = self.units.iter().flatten();
        let first = known.next();
        known.all(|unit| Some(unit) == first)
    }

    /// The service elsewhere that a part for this extent has to tell.
    fn take(&mut self, extent: u32) -> Cost {
        self.coordinator.take(FLOW, NodeId(extent))
    }
}

/// A digest of what two nodes must know alike to serve a disk together: FNV-1a, 64 bits. Not its size: an address is at the same
/// place whatever the size is, and a disk grows at one node after the other.
pub(crate) fn shape(config: &DiskConfig) -> u64 {
    let places: Vec<String> = config.places.iter().map(PlaceConfig::to_string).collect();
    let gateways =
        if config.gateways.is_empty() { String::new() } else { format!(" by {}", config.gateways.join(" ")) };
    let text = format!("{} {}{gateways}", config.stripe, places.join(" "));
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}
