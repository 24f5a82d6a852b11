//! The service that promises leave to flows that have none: a share of the service, 2 % unless configured, even where the promises
//! could use up everything.
//!
//! Whenever a promise is served while somebody without one waits, the floor grows by its share of the cost; when it
//! covers a request, that request's turn has come. Nothing is banked while nobody waits.

use henge_core::{Cost, ParamError, Params};

/// Counts what is due to flows without a promise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Floor {
    /// In millionths.
    share: u32,
    /// In millionths of a cost unit.
    owed: u128,
}

const MILLION: u128 = 1_000_000;

impl Default for Floor {
    fn default() -> Self {
        Floor { share: 20_000, owed: 0 }
    }
}

impl Floor {
    /// `best_effort = "2%"`
    pub fn from_params(params: &mut Params) -> Result<Self, ParamError> {
        match params.share("best_effort")? {
            Some(share) if share > 500_000 => {
                Err(params.error("best_effort", "best effort keeps at most \"50%\"".to_owned()))
            }
            Some(share) => Ok(Floor { share, owed: 0 }),
            None => Ok(Floor::default()),
        }
    }
    /// A promise was served; somebody without one waits, or not.
    pub fn promise_served(&mut self, cost: Cost, waits: bool) {
        self.owed = if waits { self.owed + u128::from(cost.get()) * u128::from(self.share) } else { 0 };
    }
    /// Whether a request of `cost` without a promise has its turn.
    pub fn covers(&self, cost: Cost) -> bool {
        self.share > 0 && self.owed >= u128::from(cost.get()) * MILLION
    }
    /// A request without a promise was served.
    pub fn served(&mut self, cost: Cost) {
        self.owed = self.owed.saturating_sub(u128::from(cost.get()) * MILLION);
    }
}
