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

impl Plane {
    /// Begins to exchange the scheduler of a pool.
    pub(crate) fn exchange(&mut self, pool: &str, new: &Choice) -> Outcome {
        let number = self.pools.iter().position(|p| p.config.name == pool);
        let number = number.ok_or_else(|| {
            let known: Vec<&str> = self.pools.iter().map(|p| p.config.name.as_str()).collect();
            format!("there is no pool \"{pool}\"; there are: {}", known.join(", "))
        })?;
        if let Some(other) = &self.exchange {
            let name = &self.pools[other.pool].config.name;
            return Err(format!("the scheduler of pool \"{name}\" is being exchanged; try again"));
        }
        let old = &self.pools[number].config.scheduler;
        let new = scheduler(new, old.per_spindle, old.device)?;
        if new.per_spindle != old.per_spindle {
            return Err("gates per spindle are made when the node starts; say it in its file".into());
        }
        self.exchange =
            Some(Exchange { pool: number, scheduler: new, seen: 0, units: Vec::new(), built: false });
        Ok(())
    }

    /// Goes on with it; its outcome once it is over.
    pub(crate) fn exchange_step(&mut self, now: Instant) -> Option<Outcome> {
        let mut exchange = self.exchange.take()?;
        let gates = self.pools[exchange.pool].gates.clone();
        let outcome = self.prepare(&mut exchange, now);
        if let Ok(false) = outcome {
            self.exchange = Some(exchange);
            return None;
        }
        for g in gates {
            let gate = self.gates[g].pipeline.gate_mut();
            match outcome {
                Ok(_) => gate.take_over(now),
                Err(_) => gate.prepare_no_more(),
            }
            self.list(g);
        }
        Some(outcome.map(|_| self.pools[exchange.pool].config.scheduler = exchange.scheduler))
    }

    /// A step: whether all gates may take their new schedulers.
    fn prepare(&mut self, exchange: &mut Exchange, now: Instant) -> Outcome<bool> {
        let gates = self.pools[exchange.pool].gates.clone();
        if !exchange.built {
            let to = self.disks.len().min(exchange.seen + STEP);
            let seen = self.disks[exchange.seen..to].iter().flatten();
            for disk in seen.filter(|d| d.config.pools.contains(&exchange.pool)) {
                let contract = &disk.config.contract;
                for unit in contract.units() {
                    if exchange.units.iter().all(|(known, _)| *known != unit) {
                        exchange.units.push((unit, contract.clone()));
                    }
                }
            }
            exchange.seen = to;
            if to < self.disks.len() {
                return Ok(false);
            }
            exchange.scheduler.charge_as(exchange.units.iter().map(|(_, contract)| contract));
            for g in gates {
                self.gates[g].pipeline.gate_mut().prepare(build(&exchange.scheduler)?, STEP);
            }
            exchange.built = true;
            return Ok(false);
        }
        let mut ready = true;
        for g in gates {
            ready &= self.gates[g].pipeline.gate_mut().prepare_step(now).map_err(|(flow, refused)| {
                let name = self.disks[flow.index()].as_ref().map_or("", |d| d.config.name.as_str());
                format!("disk \"{name}\": {refused}")
            })?;
        }
        Ok(ready)
    }
}
