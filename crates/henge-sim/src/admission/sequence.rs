//! Runs a sequence; see the module's head.

use super::measure::{measured, violation};
use super::{Admitted, Rule, Step, Verdict};
use crate::{Outcome, Outside, SimError, Unwatched, World};
use henge_admission::{Fixed, Measured, PromisedPart, Reservation, Rules, Samples};
use henge_core::{Contract, CostUnit, ParamError, Params, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Seeds of the second window are this far from those of the first.
const LATER: u64 = 1 << 40;
/// Disks of the run that measures saturation.
const SATURATING: usize = 8;

/// Why a sequence could not be decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The scenario is wrong.
    Params(ParamError),
    /// A run could not go on.
    Run(SimError),
}

impl From<ParamError> for Fault {
    fn from(e: ParamError) -> Self {
        Fault::Params(e)
    }
}
impl From<SimError> for Fault {
    fn from(e: SimError) -> Self {
        Fault::Run(e)
    }
}
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Params(e) => e.fmt(f),
            Fault::Run(e) => e.fmt(f),
        }
    }
}
impl std::error::Error for Fault {}

/// A disk that asks.
struct Candidate {
    flow: Params,
    part: henge_admission::Part,
    /// What it asks in the second window.
    later: Option<Value>,
}

/// Disks that ask one after another.
pub struct Sequence {
    base: Params,
    disks: Vec<Candidate>,
    seed: u64,
    slack: f64,
    /// Requests of each disk outstanding where saturation is measured; as many as may be pending where nothing is said.
    outstanding: Option<u32>,
}

/// Which run of the first disks.
#[derive(Clone, Copy)]
enum Window<'a> {
    /// Each in a closed loop.
    Saturated,
    /// With their own loads, which are measured.
    First,
    /// The same, but the last of them is new, and those listed sleep: these ask what they declared.
    Replayed(&'a [usize]),
    /// With their own loads, another time.
    Second,
}

impl Sequence {
    /// Whether a scenario is one.
    pub fn is_meant(scenario: &mut Params) -> bool {
        scenario.get_mut("admission").is_some()
    }

    /// Reads a scenario with a table `admission`.
    pub fn read(mut p: Params) -> Result<Sequence, ParamError> {
        let admission = p.table("admission")?;
        let mut admission = p.required("admission", admission)?;
        let most = admission.integer("disks", 1, 1000)?.unwrap_or(40) as usize;
        let slack = admission.number("slack")?.unwrap_or(Rules::OURS.slack);
        let outstanding = admission.integer("outstanding", 1, 1 << 16)?.map(|n| n as u32);
        admission.finish()?;
        let seed = p.integer("seed", 0, u64::MAX >> 1)?.unwrap_or(1);
        let kinds = p.tables("flow")?;
        if kinds.is_empty() {
            return Err(p.error_here(format!("{} needs at least one [[flow]]", p.name())));
        }
        let turns = (0..most).map(|i| (i, &kinds[i % kinds.len()]));
        let disks = turns.map(|(i, kind)| candidate(kind, i)).collect::<Result<_, _>>()?;
        Ok(Sequence { base: p.rest(), disks, seed, slack, outstanding })
    }

    /// Lets every rule admit until it refuses.
    pub fn run(&self, outside: &Outside<'_>) -> Result<(Admitted, Outcome), Fault> {
        let saturated = self.window(SATURATING.min(self.disks.len()), Window::Saturated, outside)?;
        let iops_max = saturated.flows.iter().map(|f| f.answered as f64).sum::<f64>() / saturated.seconds();
        let mut going: Vec<Going> = Rule::ALL.into_iter().map(Going::new).collect();
        let mut steps = Vec::new();
        let mut before: Vec<Measured> = Vec::new();
        let mut service = 1.0 / iops_max;
        for n in 0..self.disks.len() {
            if n > 0 {
                let outcome = self.window(n, Window::First, outside)?;
                before = outcome.flows.iter().map(|f| measured(f, &outcome)).collect();
                service = self.service(&outcome).unwrap_or(service);
            }
            let node = Node { paper: Fixed::paper(iops_max), ours: Fixed { iops_max, service } };
            for rule in going.iter_mut().filter(|g| g.open) {
                rule.open = self.decide(rule, &node, &before, outside)?;
                if rule.rule == Rule::Paper {
                    steps.push(rule.step);
                }
            }
            if going.iter().all(|g| !g.open) {
                break;
            }
        }
        self.judge(&going, iops_max, steps, outside)
    }

    /// t(E): what all but few requests take, by the strictest disk.
    fn service(&self, outcome: &Outcome) -> Option<f64> {
        let strictest = self.disks.iter().map(|d| d.part.elasticity).fold(0.0, f64::max);
        let mut all = henge_core::Histogram::default();
        outcome.gates.iter().for_each(|g| all.merge(&g.service));
        all.quantile(strictest).map(|d| d.as_secs_f64())
    }

    /// Whether a rule takes the next disk, beside those before it.
    fn decide(
        &self,
        going: &mut Going,
        node: &Node,
        before: &[Measured],
        outside: &Outside<'_>,
    ) -> Result<bool, Fault> {
        let seen = |i: usize| before.get(i).map(|m| going.with_ratios(m.clone(), i, node, &self.disks[i]));
        let disks: Vec<PromisedPart> = (0..=before.len())
            .map(|i| PromisedPart { part: self.disks[i].part, measured: seen(i) })
            .collect();
        let answer = match going.rule {
            Rule::Deterministic => henge_admission::deterministic(&node.paper, &disks),
            Rule::Paper => {
                let rules = Rules { slack: self.slack, ..Rules::PAPER };
                going.step = step(node, &disks, &rules);
                henge_admission::measured(&node.paper, &disks, &rules)
            }
            Rule::Measured => {
                let rules = Rules { slack: self.slack, ..Rules::OURS };
                henge_admission::measured(&node.ours, &disks, &rules)
            }
            Rule::Replay => {
                let mut fault = None;
                let simulate = || match self.replayed(before, outside) {
                    Ok(violations) => violations,
                    Err(e) => {
                        fault = Some(e);
                        Vec::new()
                    }
                };
                let answer = henge_admission::replay(&node.ours, &disks, simulate);
                if let Some(fault) = fault {
                    return Err(fault);
                }
                answer
            }
        };
        if let Ok(admission) = &answer {
            going.admitted += 1;
            going.reserved = admission.reservations.iter().map(Reservation::rate).collect();
        }
        Ok(answer.is_ok())
    }

    /// The last window again, with one disk more.
    fn replayed(&self, before: &[Measured], outside: &Outside<'_>) -> Result<Vec<f64>, Fault> {
        let asleep = |(i, m): (usize, &Measured)| m.asleep(self.disks[i].part.rate).then_some(i);
        let asleep: Vec<usize> = before.iter().enumerate().filter_map(asleep).collect();
        let outcome = self.window(before.len() + 1, Window::Replayed(&asleep), outside)?;
        Ok(self.violations(&outcome))
    }

    fn violations(&self, outcome: &Outcome) -> Vec<f64> {
        outcome.flows.iter().zip(&self.disks).map(|(f, d)| violation(f, d.part.elasticity)).collect()
    }

    /// What became of the guarantees in the second window.
    fn judge(
        &self,
        going: &[Going],
        iops_max: f64,
        steps: Vec<Step>,
        outside: &Outside<'_>,
    ) -> Result<(Admitted, Outcome), Fault> {
        let mut known: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        let mut last = None;
        let mut fault = None;
        let mut at = |n: usize| -> Vec<f64> {
            if let Some(violations) = known.get(&n) {
                return violations.clone();
            }
            let violations = match self.window(n, Window::Second, outside) {
                Ok(outcome) => {
                    let violations = self.violations(&outcome);
                    last = Some(outcome);
                    violations
                }
                Err(e) => {
                    fault.get_or_insert(e);
                    vec![f64::INFINITY]
                }
            };
            known.insert(n, violations.clone());
            violations
        };
        let oracle = henge_admission::oracle(self.disks.len(), &mut at);
        let worst = |violations: Vec<f64>| violations.into_iter().fold(0.0, f64::max);
        let verdicts = going.iter().map(|g| Verdict {
            rule: g.rule,
            admitted: g.admitted,
            violation: if g.admitted == 0 { 0.0 } else { worst(at(g.admitted)) },
        });
        let verdicts = verdicts.collect();
        if let Some(fault) = fault {
            return Err(fault);
        }
        let outcome = last.expect("the oracle looks at one disk at least");
        Ok((Admitted { iops_max, verdicts, oracle, steps }, outcome))
    }

    /// One run of the first disks.
    fn window(&self, n: usize, window: Window<'_>, outside: &Outside<'_>) -> Result<Outcome, Fault> {
        let seed = match window {
            Window::Second => self.seed.wrapping_add(LATER),
            _ => self.seed,
        };
        let flow = |(i, disk): (usize, &Candidate)| {
            let mut flow = disk.flow.clone();
            let workload = match window {
                Window::First => None,
                Window::Second => disk.later.clone(),
                Window::Saturated => saturated(&mut flow, self.outstanding.unwrap_or(disk.part.pending)),
                Window::Replayed(asleep) if asleep.contains(&i) => Some(declared(disk, false)),
                Window::Replayed(_) => (i + 1 == n).then(|| declared(disk, true)),
            };
            if let Some(workload) = workload {
                flow.set("workload", workload, 0..0);
            }
            let span = flow.span();
            (Value::Table(flow), span)
        };
        let flows = self.disks[..n].iter().enumerate().map(flow).collect();
        let seed = i64::try_from(seed & (u64::MAX >> 1)).unwrap_or(i64::MAX);
        let scenario = self
            .base
            .clone()
            .with("seed", Value::Integer(seed))
            .with("overbook", Value::Bool(true))
            .with("flow", Value::List(flows));
        let mut world = World::build(scenario, outside)?;
        world.watch_where_covered();
        Ok(world.run(&mut Unwatched)?)
    }
}

/// A rule under way.
struct Going {
    rule: Rule,
    admitted: usize,
    open: bool,
    /// What each disk reserved at the last admission.
    reserved: Vec<f64>,
    step: Step,
}

impl Going {
    fn new(rule: Rule) -> Self {
        Going { rule, admitted: 0, open: true, reserved: Vec::new(), step: Step::default() }
    }

    /// Delays over the worst case at the reservation that was in force.
    fn with_ratios(&self, mut measured: Measured, i: usize, node: &Node, disk: &Candidate) -> Measured {
        if self.rule == Rule::Paper
            && let Some(reserved) = self.reserved.get(i).filter(|r| **r > 0.0)
        {
            let worst = node.paper.worst_case(*reserved, disk.part.pending);
            measured.delay_ratios =
                Samples::new(measured.delays.values().iter().map(|d| d / worst).collect());
        }
        measured
    }
}

/// What the node can do, as the paper counts and as we do.
struct Node {
    paper: Fixed,
    ours: Fixed,
}

/// What the paper's rule sees.
fn step(node: &Node, disks: &[PromisedPart], rules: &Rules) -> Step {
    let strictest = disks.iter().map(|d| d.part.elasticity).fold(0.0, f64::max);
    let here = &disks[..disks.len() - 1];
    let ratios = here.iter().filter_map(|d| d.measured.as_ref()?.delay_ratios.quantile(strictest));
    Step {
        ratio: ratios.fold(0.0, f64::max),
        reserved: henge_admission::needed(&node.paper, here, rules).unwrap_or(f64::NAN) / node.paper.iops_max,
        reserved_worst: henge_admission::needed_worst(&node.paper, here).unwrap_or(f64::NAN)
            / node.paper.iops_max,
    }
}

/// The i-th disk, of this kind.
fn candidate(kind: &Params, i: usize) -> Result<Candidate, ParamError> {
    let mut flow = kind.clone();
    let name = flow.text("name")?.unwrap_or_else(|| "disk".to_owned());
    let later = flow.take("later");
    let mut read = flow.clone();
    let contract = match read.table("contract")? {
        Some(mut table) => Contract::from_params(&mut table)?,
        None => Contract::default(),
    };
    let rate = match contract.rate {
        None => 0.0,
        Some(rate) if rate.unit == CostUnit::Requests => rate.per_second as f64 / 1e6,
        Some(rate) => {
            return Err(flow.error("contract", format!("admission counts requests; {rate} is not")));
        }
    };
    let part = henge_admission::Part {
        rate,
        capacity: 0,
        pending: contract.pending.unwrap_or(16),
        delay: contract.latency.map(|l| l.bound),
        elasticity: contract.latency.map_or(0.95, |l| f64::from(l.percentile) / 1e6),
        copies: 1,
    };
    let mut flow = flow.rest();
    flow.set("name", Value::Text(format!("{name}-{}", i + 1)), 0..0);
    Ok(Candidate { flow, part, later })
}

/// A disk's own load, as fast as it is answered.
fn saturated(flow: &mut Params, outstanding: u32) -> Option<Value> {
    let mut workload = flow.table("workload").ok()??;
    for key in ["rate", "speed", "arrivals", "outstanding", "window", "start", "stop", "later"] {
        workload.take(key);
    }
    let workload = workload.rest().with("outstanding", Value::Integer(i64::from(outstanding)));
    Some(Value::Table(workload))
}

/// Somebody of whom nothing is known but the declared rate: random requests, in bursts of twice that for a newcomer.
fn declared(disk: &Candidate, bursty: bool) -> Value {
    let text = |t: String| Value::Text(t);
    let rate = match (disk.part.rate, disk.part.delay) {
        (0.0, Some(delay)) => f64::from(disk.part.pending + 1) / delay.as_secs_f64(),
        (rate, _) => rate.max(0.001),
    };
    let mut load = Params::new("workload")
        .with("pattern", text("random".into()))
        .with("size", text("8KiB".into()))
        .with("rate", text(format!("{rate:.3}/s")));
    if bursty {
        let periods = Params::new("on-off")
            .with("on", text("2s".into()))
            .with("off", text("2s".into()))
            .with("random", Value::Bool(true));
        load.set(
            "arrivals",
            Value::Table(Params::new("arrivals").with("on-off", Value::Table(periods))),
            0..0,
        );
    }
    Value::Table(load)
}
