//! What goes into a virtual disk and what comes out.

use crate::GateId;
use henge_core::{Cost, Fault, Instant, Request, RequestId};
use std::fmt;

/// What a client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bytes.
    Read,
    /// Bytes changed.
    Write,
    /// Everything answered before it made durable, on every extent.
    Flush,
    /// Bytes given back: a hint, so rounded inwards to the alignment.
    Trim,
    /// Bytes that read as zeroes.
    WriteZeroes {
        /// The space stays provisioned.
        no_hole: bool,
    },
    /// The range will be read soon: it is read into the command's buffer, which nobody looks at.
    Cache,
    /// Which bytes of the range take room: a turn at the gate of its first byte; the driver asks the store when it is over.
    Status,
    /// The range is compared with given bytes and, if equal, replaced by others; nobody's write comes between.
    CompareAndWrite,
}

impl Kind {
    /// Whether it changes bytes.
    pub fn writes(self) -> bool {
        !matches!(self, Kind::Read | Kind::Flush | Kind::Cache | Kind::Status)
    }
    /// Whether its bytes go to or come from the device.
    pub fn moves_data(self) -> bool {
        matches!(self, Kind::Read | Kind::Write | Kind::Cache | Kind::CompareAndWrite)
    }
}

/// What a command brings along that is one part of a client's command, cut by a coordinator elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Portion {
    /// What it counts, in millionths of a client's command.
    pub commands: u32,
    /// Service that its flow got at other extents since its last part here.
    pub foreign: Cost,
}

/// A client's command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// What.
    pub kind: Kind,
    /// First byte of the disk.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Durable before it is answered.
    pub fua: bool,
    /// When it was complete on the wire.
    pub arrival: Instant,
    /// The caller's own name for it, given back with the answer.
    pub tag: u64,
    /// Where it is a part of a client's command.
    pub portion: Option<Portion>,
}

impl Command {
    /// A whole command without FUA.
    pub fn new(kind: Kind, offset: u64, len: u64, arrival: Instant, tag: u64) -> Self {
        Command { kind, offset, len, fua: false, arrival, tag, portion: None }
    }
}

/// The buffer a command needs.
///
/// Bytes of a read or write stand at `lead`; before and after them is room for the rest of the blocks that an
/// aligned device reads or writes with them. COMPARE AND WRITE has the bytes to compare with at `verify`.
/// WRITE_ZEROES needs room for its unaligned edges only, which the driver fills with zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Frame {
    /// Bytes of the buffer.
    pub len: u64,
    /// Where the command's own bytes begin.
    pub lead: u64,
    /// Where the bytes to compare with begin.
    pub verify: Option<u64>,
    /// The driver fills it with zeroes.
    pub zeroed: bool,
}

/// Names one part of a pending command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PartId {
    /// The command.
    pub command: RequestId,
    /// Which of its parts.
    pub index: u32,
}

/// One request for one gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// To be handed to [`part_done`](crate::VirtualDisk::part_done), once.
    pub id: PartId,
    /// For which gate.
    pub gate: GateId,
    /// What it is; the driver writes `id`, which is unique among all requests of the gate.
    pub request: Request,
    /// What is asked of its extent, where extents keep the locks ([`Settings::owners`](crate::Settings::owners)).
    pub kind: Kind,
    /// What it reads into or writes from.
    pub data: Data,
}

/// What a part reads into or writes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Data {
    /// Nothing.
    None,
    /// The command's buffer from `at` on.
    Frame {
        /// First byte in the buffer.
        at: u64,
    },
    /// To be compared with the buffer's bytes from `verify` on, and, if equal, replaced by those from `at` on, by its extent.
    Compare {
        /// First of the new bytes in the buffer.
        at: u64,
        /// First of the bytes to compare with.
        verify: u64,
    },
    /// A buffer of its own; when it is read, the driver calls [`Patch::apply`].
    Scratch(Patch),
}

/// How blocks that were read complete a command's buffer: the bytes before `head` and from `tail` on go into
/// the buffer; those in between are the command's own, compared with the bytes at `verify` if there are such.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patch {
    /// Where in the command's buffer the blocks belong.
    pub at: u64,
    /// The command's own bytes begin here, counted from the blocks' start …
    pub head: u64,
    /// … and end here.
    pub tail: u64,
    /// Where in the buffer the bytes to compare with stand.
    pub verify: Option<u64>,
}

impl Patch {
    /// Copies and compares.
    ///
    /// # Panics
    /// When `frame` is shorter than [`Frame::len`] said.
    pub fn apply(&self, blocks: &[u8], frame: &mut [u8]) -> Result<(), Failure> {
        let (at, head, tail) = (self.at as usize, self.head as usize, self.tail as usize);
        if let Some(verify) = self.verify {
            let wanted = &frame[verify as usize..verify as usize + tail - head];
            if let Some(differs) = first_difference(wanted, &blocks[head..tail]) {
                return Err(Failure::Miscompare { at: verify + differs as u64 });
            }
        }
        frame[at..at + head].copy_from_slice(&blocks[..head]);
        frame[at + tail..at + blocks.len()].copy_from_slice(&blocks[tail..]);
        Ok(())
    }
}

/// Where two stretches of bytes differ first, as far as both go. Byte by byte, a MiB takes a millisecond in which the loop serves nobody; piece
/// by piece, a thirtieth of that.
pub fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    const PIECE: usize = 1 << 10;
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let from = PIECE * a.chunks(PIECE).zip(b.chunks(PIECE)).position(|(a, b)| a != b)?;
    let within = a[from..].iter().zip(&b[from..]).position(|(a, b)| a != b)?;
    Some(from + within)
}

/// Why a command failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The storage said so.
    Fault(Fault),
    /// COMPARE AND WRITE found other bytes; the first that differs, as a position in the buffer.
    Miscompare {
        /// Position in the buffer.
        at: u64,
    },
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Failure::Fault(fault)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Fault(fault) => fault.fmt(f),
            Failure::Miscompare { .. } => f.write_str("the bytes differ from those to compare with"),
        }
    }
}
impl std::error::Error for Failure {}

/// A command that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finished {
    /// Its name while it was pending.
    pub id: RequestId,
    /// As it was submitted.
    pub command: Command,
    /// How it went; a read's bytes are the client's only if well.
    pub outcome: Result<(), Failure>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_found_wherever_it_is() {
        let (a, longer) = ([7; 5000], [7; 6000]);
        assert_eq!((first_difference(&a, &longer), first_difference(&[], &a)), (None, None));
        for at in [0, 1, 1023, 1024, 1025, 2048, 4095, 4096, 4999] {
            let mut b = longer;
            (b[at], b[4999], b[5000]) = (8, 9, 9);
            assert_eq!((first_difference(&a, &b), first_difference(&b, &a)), (Some(at), Some(at)));
        }
    }
}
