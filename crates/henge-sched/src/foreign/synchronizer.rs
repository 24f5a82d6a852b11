//! What all ways of keeping nodes informed have in common, and how configuration names them.

use super::{LayoutDriven, Predictor, Threshold};
use crate::names::unknown;
use henge_core::{Cost, FlowId, Instant, NodeId, ParamError, Params, Striping, Sync};

/// Where a client's command lies in the flow's own address space; part of it was served here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Service of one flow at this node: a request that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// Whose.
    pub flow: FlowId,
    /// What it cost here.
    pub cost: Cost,
    /// The command that it is a part of, where that is known.
    pub extent: Option<Extent>,
}

/// Messages to send, each to one node.
pub type Outbox = Vec<(NodeId, Sync)>;

/// Finds out what flows get at other nodes, and tells those what they get here. One per node; a state machine.
///
/// Whatever a method returns as a [`Cost`] is foreign service that became known: the caller hands it to
/// `Gate::foreign`. Service is counted when it is complete.
pub trait Synchronizer: Send {
    /// `flow` is served by `nodes` (this one among them or not) from now on.
    fn set_flow(&mut self, flow: FlowId, nodes: &[NodeId]);

    /// `flow` is served here no longer.
    fn remove_flow(&mut self, flow: FlowId);

    /// A request was taken in.
    fn arrived(&mut self, _flow: FlowId, _now: Instant, _out: &mut Outbox) {}

    /// A request is over.
    fn served(&mut self, served: &Served, now: Instant, out: &mut Outbox) -> Cost;

    /// A message came; what it tells is about `sync.flow`.
    fn receive(&mut self, sync: &Sync, now: Instant) -> Cost;

    /// How `flow` is striped became known here.
    fn set_striping(&mut self, _flow: FlowId, _striping: &Striping) {}

    /// When [`tick`](Self::tick) is due.
    fn wake_at(&self) -> Option<Instant> {
        None
    }

    /// Time passed.
    fn tick(&mut self, _now: Instant, _out: &mut Outbox) {}
}

/// Nobody tells anybody anything: coordinators piggyback, or each node is on its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Synchronizer for Silent {
    fn set_flow(&mut self, _: FlowId, _: &[NodeId]) {}
    fn remove_flow(&mut self, _: FlowId) {}
    fn served(&mut self, _: &Served, _: Instant, _: &mut Outbox) -> Cost {
        Cost::ZERO
    }
    fn receive(&mut self, _: &Sync, _: Instant) -> Cost {
        Cost::ZERO
    }
}

type Build = fn(&mut Params, NodeId, u64) -> Result<Box<dyn Synchronizer>, ParamError>;

const SYNCHRONIZERS: &[(&str, Build)] = &[
    ("predict", |p, here, epoch| Ok(Box::new(Predictor::new(here, epoch, every(p)?)))),
    ("threshold", |p, here, epoch| Ok(Box::new(Threshold::new(here, epoch, every(p)?)))),
    ("layout", |p, here, epoch| {
        let quiet = p.duration("quiet")?.unwrap_or(LayoutDriven::QUIET_DEFAULT);
        Ok(Box::new(LayoutDriven::new(here, epoch, quiet)))
    }),
    ("none", |_, _, _| Ok(Box::new(Silent))),
];

/// T: `every = "1MiB"`; a quarter of what the flow keeps outstanding where none is stated.
fn every(p: &mut Params) -> Result<Option<Cost>, ParamError> {
    match p.size("every")? {
        Some(0) => Err(p.error("every", "a message for every byte; write it like \"1MiB\"".to_owned())),
        every => Ok(every.map(Cost::new)),
    }
}

/// Reads `sync = "predict"` or `sync = { threshold = { every = "1MiB" } }`; `predict` where nothing is stated.
pub fn synchronizer(
    params: &mut Params,
    here: NodeId,
    epoch: u64,
) -> Result<Box<dyn Synchronizer>, ParamError> {
    let (name, mut inner) =
        params.choice("sync")?.unwrap_or_else(|| ("predict".to_owned(), Params::new("predict")));
    let Some((_, build)) = SYNCHRONIZERS.iter().find(|(n, _)| *n == name) else {
        return Err(unknown("synchronization", &name, SYNCHRONIZERS.iter().map(|(n, _)| *n), &inner));
    };
    let built = build(&mut inner, here, epoch)?;
    inner.finish()?;
    Ok(built)
}
