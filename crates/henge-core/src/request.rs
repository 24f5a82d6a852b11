//! A request as schedulers see it: what and how much, never the data itself.

use crate::{Cost, FlowId, Instant, RequestId};

/// What a request does to the storage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Op {
    /// Read `len` bytes at `offset`.
    #[default]
    Read,
    /// Write `len` bytes at `offset`.
    Write,
    /// Make durable what was completed before.
    Flush,
    /// Give `len` bytes at `offset` back to the pool; they read as zeroes afterwards.
    Trim,
    /// Make `len` bytes at `offset` read as zeroes.
    WriteZeroes,
}

impl Op {
    /// One lower-case word, as traces and reports write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Trim => "trim",
            Op::WriteZeroes => "zero",
        }
    }
}

/// One request at one gate. `offset` is an address on the gate's device (a part's place is already
/// added), so that schedulers which order by position need no further map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Names it while it is pending.
    pub id: RequestId,
    /// Whose it is.
    pub flow: FlowId,
    /// What it does.
    pub op: Op,
    /// Durable before it is answered (a write with FUA).
    pub fua: bool,
    /// An administrator's work, such as zeroing a new part: it has a slot of its own at the gate.
    pub administration: bool,
    /// How many client commands it stands for, in millionths: a whole command is
    /// [`Request::WHOLE`]; one of n parts of a split command is 1/n of that.
    pub commands: u32,
    /// First byte on the device.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// When the client's command was complete on the wire; latency counts from here.
    pub arrival: Instant,
    /// What it is charged; the gate's cost model writes it at submission.
    pub cost: Cost,
    /// Service its flow received at other nodes since its last request here (DSFQ's "delay").
    pub foreign: Cost,
}

impl Request {
    /// `commands` of a request that is one whole client command.
    pub const WHOLE: u32 = 1_000_000;

    /// A whole command of one part, cost not yet estimated.
    pub const fn new(id: RequestId, flow: FlowId, op: Op, offset: u64, len: u64, arrival: Instant) -> Self {
        Request {
            id,
            flow,
            op,
            fua: false,
            administration: false,
            commands: Self::WHOLE,
            offset,
            len,
            arrival,
            cost: Cost::ZERO,
            foreign: Cost::ZERO,
        }
    }

    /// The byte after its last.
    pub const fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}
