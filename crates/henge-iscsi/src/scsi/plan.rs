//! What a command comes to: an answer, or work for the storage.

use super::reserve::Change;
use super::sense::{Sense, Status};
use super::sweep::Sweep;

/// One thing for the storage to do. Offsets and lengths are bytes, whole blocks, and within the disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Read into the command's buffer.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Write the command's buffer.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Durable before it is done.
        fua: bool,
    },
    /// Read, and forget what was read: can the medium still give it?
    Check {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Compare the medium with the command's buffer.
    Compare {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The buffer has `2 × len` bytes: if the medium equals the first half, write the second, with nobody
    /// else's write in between.
    CompareWrite {
        /// First byte.
        offset: u64,
        /// Bytes on the medium.
        len: u64,
        /// Durable before it is done.
        fua: bool,
    },
    /// Set on the medium what is set in the buffer, with nobody else's write in between.
    Or {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Durable before it is done.
        fua: bool,
    },
    /// Write one pattern again and again.
    Fill {
        /// First byte.
        offset: u64,
        /// Bytes, a multiple of the pattern's.
        len: u64,
        /// What to write.
        pattern: Box<[u8]>,
    },
    /// Make it read as zeroes.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Durable before it is done.
        fua: bool,
    },
    /// Give it back to the pool; it reads as zeroes afterwards.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Make durable what was completed before.
    Flush,
    /// Which parts of this are allocated? To be answered by [`Outcome::Extents`].
    Extents {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Decide about the unit's reservations, keep them where they survive a restart, and see to it that they are in force
    /// wherever the unit is served. To be answered by [`Outcome::Decided`].
    Reserve(Box<Change>),
    /// Sweep the unit at every other node that serves it; it is done here. To be answered by [`Outcome::Decided`] once nothing
    /// that began before is at the storage there.
    Sweep(Sweep),
}

/// A piece of the disk in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// Whether it takes room in the pool.
    pub allocated: bool,
}

/// How an action ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// As it should.
    Done,
    /// What was compared is unequal, from this byte of the comparison on.
    Unequal(u64),
    /// Answer to [`Action::Extents`]: from its offset on, without a gap.
    Extents(&'a [Extent]),
    /// Answer to [`Action::Reserve`] and [`Action::Sweep`].
    Decided(Status),
    /// The storage failed.
    Failed(henge_core::Fault),
    /// The flow's queue is full.
    Full,
}

/// Which way data go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// No data.
    None,
    /// So many bytes from the disk to the initiator.
    In(u64),
    /// So many bytes from the initiator to the disk.
    Out(u64),
}

/// What a command comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// It is finished.
    Done(Status),
    /// It is finished, and the initiator gets these bytes.
    Data(Vec<u8>),
    /// So many bytes of parameters first, then [`super::Unit::parameters`].
    Parameters(usize),
    /// It is finished when [`super::Unit::background`]'s work is.
    Background,
    /// The storage is to do these one after another, with the command's buffer.
    Storage(Transfer, Vec<Action>),
}

impl Plan {
    /// Finished well.
    pub const GOOD: Plan = Plan::Done(Status::Good);
    /// Finished with a reason.
    pub fn check(sense: Sense) -> Plan {
        Plan::Done(Status::Check(sense))
    }
    /// These bytes, but no more than the initiator has allocated for them.
    pub fn data(mut bytes: Vec<u8>, allocated: usize) -> Plan {
        bytes.truncate(allocated);
        Plan::Data(bytes)
    }
}

impl From<Sense> for Plan {
    fn from(sense: Sense) -> Plan {
        Plan::check(sense)
    }
}
