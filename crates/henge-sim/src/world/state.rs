//! What a running world consists of.

use super::SimEvent;
use super::gate_meter::GateMeter;
use crate::Calendar;
use crate::interrupted::Interrupted;
use crate::meter::{Meter, Submitted};
use henge_core::{Backend, Contract, Instant, Pending, Pipeline, RequestId, Striping, WaitReason};
use henge_sched::foreign;
use henge_vdisk::{DeviceRange, Layout};
use henge_workload::Workload;

/// A gate with its device.
pub(crate) struct GateState {
    pub name: String,
    pub node: u32,
    pub pipeline: Pipeline<Interrupted>,
    /// Most bytes of one request.
    pub(crate) quantum: u64,
    pub(super) parts: Pending<PartOf>,
    /// Submissions and completions so far.
    pub(super) seen: u64,
    pub(super) wake: Option<Instant>,
    pub(super) touched: bool,
    pub(super) meter: GateMeter,
    /// Since when each flow waits, and why; used when the run explains.
    pub(super) waiting: Vec<Option<(Instant, WaitReason)>>,
}

impl GateState {
    pub(crate) fn new(name: String, node: u32, pipeline: Pipeline<Interrupted>) -> Self {
        GateState {
            name,
            node,
            quantum: pipeline.backend().quantum(),
            pipeline,
            parts: Pending::new(),
            seen: 0,
            wake: None,
            touched: false,
            meter: GateMeter::default(),
            waiting: Vec::new(),
        }
    }
}

/// Which command a gate's request is a part of.
#[derive(Clone, Copy)]
pub(super) struct PartOf {
    pub(super) command: RequestId,
    pub(super) seq: u64,
    pub(super) parts: u32,
}

/// Commands that are pending.
pub(crate) struct Commands {
    pub(super) pending: Pending<Command>,
    /// The parts of the one that is being cut.
    pub(super) ranges: Vec<DeviceRange>,
    /// A command counts against a rate once for each begun piece of this length.
    pub(crate) piece: u64,
    /// Requests that were made of all commands so far.
    pub(super) requests: u64,
}

impl Commands {
    pub(super) fn new() -> Self {
        Commands { pending: Pending::new(), ranges: Vec::new(), piece: 256 << 10, requests: 0 }
    }
}

/// Pipelines to be polled at this instant, and those that are being.
#[derive(Default)]
pub(super) struct Polls {
    pub(super) touched: Vec<u32>,
    pub(super) settling: Vec<u32>,
}

impl Polls {
    /// Those that were touched are polled now, in order.
    pub(super) fn begin(&mut self) {
        std::mem::swap(&mut self.touched, &mut self.settling);
        self.settling.sort_unstable();
    }
}

/// When something happens next.
pub(super) struct Agenda {
    pub(super) calendar: Calendar<SimEvent>,
    /// When the synchronizer is called.
    tick: Option<Instant>,
}

impl Agenda {
    pub(super) fn new() -> Self {
        Agenda { calendar: Calendar::new(), tick: None }
    }

    pub(super) fn enter(&mut self, at: Instant, event: SimEvent) {
        self.calendar.enter(at, event);
    }

    /// The synchronizer wants to be called.
    pub(super) fn enter_tick(&mut self, at: Instant) {
        if self.tick.is_none_or(|tick| at < tick) {
            self.tick = Some(at);
            self.enter(at, SimEvent::Tick);
        }
    }

    /// The synchronizer is called now.
    pub(super) fn ticked(&mut self) {
        self.tick = None;
    }
}

/// A client's command while it is pending.
pub(super) struct Command {
    pub(super) client: u32,
    pub(super) thread: u32,
    pub(super) asked: Submitted,
    pub(super) extent: foreign::Extent,
    pub(super) left: u32,
    pub(super) failed: bool,
}

/// Somebody who sends commands to one disk of a flow.
pub(crate) struct Client {
    pub flow: usize,
    pub layout: Layout,
    /// The same as nodes tell each other, where every extent has one gate.
    pub striping: Option<Striping>,
    pub load: Workload,
    pub wake: Option<Instant>,
    pub ended: bool,
}

/// A flow and what it is promised.
pub(crate) struct FlowState {
    pub name: String,
    pub meter: Meter,
    /// Every gate that one of its disks touches, with the contract that holds there.
    pub gates: Vec<u32>,
    pub present: bool,
    /// Multiplies what is reserved at each gate, in millionths.
    pub leeway: u64,
}

/// Something that the scenario changes at a time.
pub(crate) struct Change {
    pub at: Instant,
    pub flow: usize,
    pub what: What,
}

/// What changes.
pub(crate) enum What {
    /// The flow's contract.
    Contract(Box<Contract>),
    /// The flow goes; what it had waiting is lost.
    Leave,
    /// Threads, or the window.
    Outstanding(u64),
    /// Rate of arrivals in millionths of a request per second.
    Rate(u64),
    /// Probability of adjacency in millionths.
    Locality(u64),
}
