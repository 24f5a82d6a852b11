//! What a command comes to: an ending, or work for the storage.

use crate::namespace::Service;
use crate::reservation::Change;
use crate::status::{Ending, Status};
use henge_core::Fault;

/// One thing for the storage to do. Offsets and lengths are bytes, whole blocks, and within the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// Compare the disk with the command's buffer.
    Compare {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The buffer has `2 × len` bytes: if the disk equals the first half, write the second, with nobody else's write in
    /// between.
    CompareWrite {
        /// First byte.
        offset: u64,
        /// Bytes on the disk.
        len: u64,
        /// Durable before it is done.
        fua: bool,
    },
    /// Read, and forget what was read: can the storage still give it?
    Check {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
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
    /// Read a range, and write what was read to another one.
    Copy {
        /// First byte of what is read.
        from: u64,
        /// First byte of where it goes.
        to: u64,
        /// Bytes.
        len: u64,
        /// Durable before it is done.
        fua: bool,
    },
    /// Make durable what was completed before.
    Flush,
    /// Change who may use the disk, as [`crate::Session::change`] says. To be answered by [`Outcome::Decided`].
    Reserve,
    /// Tell what the disk is promised and what it has got. To be answered by [`Outcome::Service`].
    Report,
}

impl Action {
    /// Whether it changes the disk.
    pub fn writes(&self) -> bool {
        !matches!(
            self,
            Action::Read { .. }
                | Action::Compare { .. }
                | Action::Check { .. }
                | Action::Reserve
                | Action::Report
        )
    }
    /// Whether it is the storage's to do.
    pub(crate) fn is_for_disk(&self) -> bool {
        !matches!(self, Action::Reserve | Action::Report)
    }
    /// Bytes that its buffer must have.
    pub fn buffer(&self) -> usize {
        (match self {
            Action::Read { len, .. } | Action::Write { len, .. } | Action::Compare { len, .. } => *len,
            Action::CompareWrite { len, .. } => 2 * *len,
            _ => 0,
        }) as usize
    }
}

/// How an action ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// As it should.
    Done,
    /// What was compared is unequal.
    Unequal,
    /// Answer to [`Action::Report`].
    Service(&'a Service),
    /// Answer to [`Action::Reserve`].
    Decided(Status),
    /// The storage failed.
    Failed(Fault),
}

/// Bytes for the host, and zeroes behind them: whoever asks for a MiB of a short page has not a MiB of memory filled with zeroes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    pub bytes: Vec<u8>,
    /// How many that is in all.
    pub len: usize,
}

impl Page {
    /// So many bytes of this page; zeroes after its end.
    pub fn new(mut bytes: Vec<u8>, len: usize) -> Page {
        bytes.truncate(len);
        Page { bytes, len }
    }
}

/// What a command comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Plan {
    /// It is over.
    Done(Ending),
    /// It is over, and the host gets these bytes.
    Data(Vec<u8>),
    /// The same, of a length that the host chooses.
    Page(Page),
    /// So many bytes of parameters first.
    Parameters(usize),
    /// One thing for the storage; its data come from the host, go there, or there are none.
    Storage(Action),
    /// These one after another, without data.
    Several(Vec<Action>),
    /// A change of who may use the disk.
    Reserve(Change),
    /// It waits for an event.
    Event,
}

impl From<Status> for Plan {
    fn from(status: Status) -> Plan {
        Plan::Done(status.into())
    }
}

impl Plan {
    /// Well, with a result.
    pub fn result(result: impl Into<u64>) -> Plan {
        Plan::Done(Ending { status: Status::SUCCESS, result: result.into() })
    }
}
