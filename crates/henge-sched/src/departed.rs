//! What flows that are gone had used of their bursts: whoever comes begins no fuller.
//!
//! **Problem.** A flow that begins with a full bucket may send a burst at once. Whoever is removed and added over and over, or changes
//! its contract to and fro, has a burst each time. Six neighbours of 100/s did so every 20 ms, and left a promised 300/s only 160/s.
//!
//! **Rule.** E is when all that a flow took is paid off at its rate, and G is the latest such time of all that went.
//!
//! ```text
//!   it goes      G = max( G, E )
//!   it comes     E = max( t, min( G, t + (σ + c) / ρ ) )          c: the cost of its first request
//!   it changes   it goes, and comes again; and E is no less than what it took costs at the new rate
//! ```
//!
//! A flow changes as its rate or its burst does. To give up a promise is to go, and to get one is to come. Limits (`bucket.rs`) and mClock's tags have a
//! G of their own.
//!
//! **Example.** 100/s, bursts of 10: a flow sends 10 at 0 and goes, so G = 100 ms. One that comes at 20 ms has E = 100 ms: 2 conform at once,
//! and the third at 30 ms.
//!
//! **Guarantee.** In any time t, flows that come one in place of another take at most ρ·t + σ and a request, as one that stays. σ is ρ·S, where
//! ρ and S are the largest rate and σ/ρ among them. For E of who comes is no less than E of who went, or it begins empty.
//!
//! **Price.** One time. After a neighbour with a long burst went, a newcomer has its rate at once and its burst after σ/ρ.

use henge_core::VTime;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Departed {
    paid: VTime,
}

impl Departed {
    /// A flow goes, and what it took is paid off at `paid`.
    pub fn add(&mut self, paid: VTime) {
        self.paid = self.paid.max(paid);
    }
    /// When all is paid off that those took who went.
    pub fn paid(&self) -> VTime {
        self.paid
    }
}
