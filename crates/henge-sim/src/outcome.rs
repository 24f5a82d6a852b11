//! What a run measured.

use crate::admission::Admitted;
use crate::{Fairness, FlowOutcome, Timing, Traffic};
use henge_core::{Duration, Histogram};

/// One gate with its device.
#[derive(Clone, Debug)]
pub struct GateOutcome {
    /// `node0`, or `node0/spindle2`.
    pub name: String,
    /// On which node.
    pub node: u32,
    /// Requests served.
    pub served: u64,
    /// Bytes served, by flow; a flow beyond the end had none.
    pub bytes: Vec<u64>,
    /// Time during which it held at least one request.
    pub occupied: Duration,
    /// Time that the model says it was busy.
    pub busy: Duration,
    /// Mean number in flight.
    pub depth_mean: f64,
    /// The same window by window, warm-up included.
    pub depths: Vec<f64>,
    /// Most requests that its depth controller allowed, at the end of each window.
    pub limits: Vec<u32>,
    /// Dispatch to completion.
    pub service: Histogram,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// It repeats the run.
    pub seed: u64,
    /// How it was measured.
    pub timing: Timing,
    /// Gates, in order.
    pub gates: Vec<GateOutcome>,
    /// How many nodes.
    pub nodes: u32,
    /// Flows, in the scenario's order.
    pub flows: Vec<FlowOutcome>,
    /// Requests submitted to gates, warm-up included.
    pub requests: u64,
    /// What nodes told each other.
    pub traffic: Traffic,
    /// The largest unfairness, and its bound.
    pub fairness: Fairness,
    /// Where the scenario is a sequence of disks that ask to be admitted: how that went. The rest is then of its last run.
    pub admission: Option<Admitted>,
}

impl Outcome {
    /// The flow called `name`.
    pub fn flow(&self, name: &str) -> Option<&FlowOutcome> {
        self.flows.iter().find(|f| f.name == name)
    }
    /// What messages took of all nodes' time.
    pub fn message_share(&self) -> f64 {
        let all = (self.timing.warmup + self.timing.duration).as_secs_f64() * self.gates.len() as f64;
        self.traffic.time.as_secs_f64() / all
    }
    /// Measured seconds.
    pub fn seconds(&self) -> f64 {
        self.timing.duration.as_secs_f64()
    }
}
