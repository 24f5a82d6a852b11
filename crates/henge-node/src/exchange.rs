//! Another scheduler for a pool, while it works: prepared a step in each turn of the loop, so that no turn looks at all disks.
//!
//! First what the pool's contracts count is looked up, for what the new scheduler is to charge. Then each of the pool's gates
//! makes its flows known to a scheduler of its own. Once all of them have accepted, they take over in the same turn, and
//! whoever asked is answered; what waits moves in the turns after it. If one refuses, all are dropped.

use crate::config::SchedulerConfig;
use crate::operate::{Outcome, build, scheduler};
use crate::plane::Plane;
use henge_api::Choice;
use henge_core::{Contract, CostUnit, Instant};

/// Disks looked at in one turn, and flows made known at a time.
const STEP: usize = 256;

/// An exchange that is being prepared.
pub(crate) struct Exchange {
    pool: usize,
    scheduler: SchedulerConfig,
    /// The disks below this number were looked at.
    seen: usize,
    /// One contract for each unit that was found.
    units: Vec<(CostUnit, Contract)>,
    /// The gates have their new schedulers.
    built: bool,
}

impl Exchange {
    /// Begins to exchange the scheduler of a pool, where no other is being exchanged.
    pub(crate) fn begin(
        plane: &Plane,
        other: Option<&Exchange>,
        pool: &str,
        new: &Choice,
    ) -> Outcome<Exchange> {
        let number = plane.pools.iter().position(|p| p.config.name == pool);
        let number = number.ok_or_else(|| {
            let known: Vec<&str> = plane.pools.iter().map(|p| p.config.name.as_str()).collect();
            format!("there is no pool \"{pool}\"; there are: {}", known.join(", "))
        })?;
        if let Some(other) = other {
            let name = &plane.pools[other.pool].config.name;
            return Err(format!("the scheduler of pool \"{name}\" is being exchanged; try again"));
        }
        let old = &plane.pools[number].config.scheduler;
        let new = scheduler(new, old.per_spindle, old.device)?;
        if new.per_spindle != old.per_spindle {
            return Err("gates per spindle are made when the node starts; say it in its file".into());
        }
        Ok(Exchange { pool: number, scheduler: new, seen: 0, units: Vec::new(), built: false })
    }

    /// Goes on with it; its outcome once it is over.
    pub(crate) fn step(&mut self, plane: &mut Plane, now: Instant) -> Option<Outcome> {
        let gates = plane.pools[self.pool].gates.clone();
        let outcome = self.prepare(plane, now);
        if let Ok(false) = outcome {
            return None;
        }
        for g in gates {
            let gate = plane.pools.gates[g].pipeline.gate_mut();
            match outcome {
                Ok(_) => gate.take_over(now),
                Err(_) => gate.prepare_no_more(),
            }
            plane.pools.list(g);
        }
        Some(outcome.map(|_| plane.pools[self.pool].config.scheduler = self.scheduler.clone()))
    }

    /// A step: whether all gates may take their new schedulers.
    fn prepare(&mut self, plane: &mut Plane, now: Instant) -> Outcome<bool> {
        let gates = plane.pools[self.pool].gates.clone();
        if !self.built {
            let to = plane.disks.len().min(self.seen + STEP);
            let seen = plane.disks[self.seen..to].iter().flatten();
            for disk in seen.filter(|d| d.config.pools.contains(&self.pool)) {
                let contract = &disk.config.contract;
                for unit in contract.units() {
                    if self.units.iter().all(|(known, _)| *known != unit) {
                        self.units.push((unit, contract.clone()));
                    }
                }
            }
            self.seen = to;
            if to < plane.disks.len() {
                return Ok(false);
            }
            self.scheduler.charge_as(self.units.iter().map(|(_, contract)| contract));
            for g in gates {
                plane.pools.gates[g].pipeline.gate_mut().prepare(build(&self.scheduler)?, STEP);
            }
            self.built = true;
            return Ok(false);
        }
        let mut ready = true;
        for g in gates {
            ready &=
                plane.pools.gates[g].pipeline.gate_mut().prepare_step(now).map_err(|(flow, refused)| {
                    let name = plane.disks[flow.index()].as_ref().map_or("", |d| d.config.name.as_str());
                    format!("disk \"{name}\": {refused}")
                })?;
        }
        Ok(ready)
    }
}
