//! What is promised in all, against what the device can do: the check before a rate is promised.

use henge_core::{CostUnit, ParamError, Params, Rate, Refused, check_rate};

/// The knobs `capacity` and `overbook`, and the sum of the rates promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Booking {
    /// What the device can do, where that is stated.
    pub capacity: Option<Rate>,
    /// More may be promised.
    pub overbook: bool,
    unit: CostUnit,
    /// Modulo 2⁶⁴: where nothing bounds it, it may be more, and nobody asks.
    booked: u64,
}

impl Booking {
    /// Reads `capacity` (in `unit` a second) and `overbook`.
    pub fn from_params(p: &mut Params, unit: CostUnit) -> Result<Self, ParamError> {
        let capacity = p.rate("capacity")?;
        if let Some(capacity) = capacity {
            if capacity.unit != unit {
                let message = format!("the capacity counts {}, but this gate charges {unit}", capacity.unit);
                return Err(p.error("capacity", message));
            }
            if capacity.per_second == 0 {
                return Err(p.error("capacity", "a device without capacity serves nothing".into()));
            }
        }
        let overbook = p.bool("overbook")?.unwrap_or(false);
        Ok(Booking { capacity, overbook, unit, booked: 0 })
    }

    /// Promises `new` instead of `old`, or refuses and changes nothing.
    pub fn change(&mut self, old: Option<Rate>, new: Option<Rate>) -> Result<(), Refused> {
        self.booked = self.with(old, new)?;
        Ok(())
    }

    /// What would be promised in all with `new` instead of `old`.
    pub fn with(&self, old: Option<Rate>, new: Option<Rate>) -> Result<u64, Refused> {
        // A rate that counts something else is judged by measurements, not here.
        let (old, new) = (old.filter(|r| r.unit == self.unit), new.filter(|r| r.unit == self.unit));
        let others = self.booked.wrapping_sub(old.map_or(0, |r| r.per_second));
        match (self.most(), new) {
            (Some(capacity), Some(rate)) => check_rate(rate, others, capacity),
            _ => Ok(others.wrapping_add(new.map_or(0, |r| r.per_second))),
        }
    }

    /// The most that rates may be together, where that is bounded.
    pub fn most(&self) -> Option<Rate> {
        self.capacity.filter(|_| !self.overbook)
    }

    /// A flow left.
    pub fn release(&mut self, old: Option<Rate>) {
        let old = old.filter(|r| r.unit == self.unit).map_or(0, |r| r.per_second);
        self.booked = self.booked.wrapping_sub(old);
    }
}
