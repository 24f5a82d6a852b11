//! What a running world consists of.

use crate::interrupted::Interrupted;
use crate::meter::{Meter, Submitted};
use henge_core::{
    Backend, Contract, Duration, Histogram, Instant, Pending, Pipeline, RequestId, Striping, WaitReason,
};
use henge_sched::foreign;
use henge_vdisk::Layout;
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
    pub(super) service: Histogram,
    pub(super) busy_at_warm: Duration,
    pub(super) depth_at_warm: u128,
    pub(super) depths: Vec<f64>,
    /// Most that could be in flight, at the end of each window.
    pub(super) limits: Vec<u32>,
    /// Of the windows in `depths` together.
    pub(super) depth_so_far: u128,
    pub(super) served: u64,
    /// Bytes served, by flow.
    pub(super) bytes: Vec<u64>,
    pub(super) busy: Duration,
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
            service: Histogram::default(),
            busy_at_warm: Duration::ZERO,
            depth_at_warm: 0,
            depths: Vec::new(),
            limits: Vec::new(),
            depth_so_far: 0,
            served: 0,
            bytes: Vec::new(),
            busy: Duration::ZERO,
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
