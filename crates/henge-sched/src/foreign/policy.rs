//! How much foreign service a request is charged: the `delay` of DSFQ.
//!
//! | policy | a request of cost c pays | gives |
//! |---|---|---|
//! | `single` | nothing | each node shares its own capacity in proportion |
//! | `total` | all that is owed, DSFQ equation (7) | the total is shared in proportion, where the load makes that possible |
//! | `hybrid` | min(owed, k·c), the rest stays owed | the total, yet never less than φmin of any one node |
//! | `hybrid-memoryless` | the same, the rest is forgiven: DSFQ equation (12) | the paper's rule |
//!
//! ```text
//!   k = (φ/φmin − 1) / (1 − φ)      φ normalized over the flows that are set at the node: Σφ = 1
//! ```
//!
//! Worked example (DSFQ, section 4.3): two flows of equal weight, φmin = 1/12: k = (6 − 1) / (1/2) = 10. A flow alone
//! at its node has φ = 1 and nobody to give way to: no cap. φmin = φ gives k = 0, which is `single`.
//!
//! The memoryless rule is cheated by a flow that alternates bursts between two nodes: only the first request of a
//! burst carries the debt, and nearly all of it is forgiven. Bursts of 0.2 / 1 / 2 s give the cheat 1.79 / 1.95 /
//! 1.98 times its share; where the rest stays owed, 1.000.

use crate::Weight;
use henge_core::Cost;

/// How foreign service is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Policy {
    /// Not at all.
    Single,
    /// In full.
    #[default]
    Total,
    /// Capped by the least share of a node.
    Hybrid {
        /// What exceeds the cap stays owed. The paper forgives it.
        remembers: bool,
    },
}

/// Fractional bits of the cap k.
const K_BITS: u32 = 20;

impl Policy {
    /// All, as configuration names them.
    pub const NAMES: [(&str, Policy); 4] = [
        ("single", Policy::Single),
        ("total", Policy::Total),
        ("hybrid", Policy::Hybrid { remembers: true }),
        ("hybrid-memoryless", Policy::Hybrid { remembers: false }),
    ];

    /// The most that a request of `cost` pays. `min_share` is φmin in millionths, `total` is Σφ of the node.
    pub fn cap(self, cost: Cost, weight: Weight, total: u64, min_share: Option<u32>) -> Cost {
        match (self, min_share) {
            (Policy::Single, _) => Cost::ZERO,
            (Policy::Total, _) | (Policy::Hybrid { .. }, None) => Cost::new(u64::MAX),
            (Policy::Hybrid { .. }, Some(min_share)) => hybrid_cap(cost, weight, total, min_share),
        }
    }
}

/// DSFQ, equation (11). With φ = w/W and φmin = m/10⁶, k = (w·10⁶ − W·m) / (m·(W − w)).
fn hybrid_cap(cost: Cost, weight: Weight, total: u64, min_share: u32) -> Cost {
    const MILLION: u64 = 1_000_000;
    let (w, m) = (u64::from(weight.get()), u64::from(min_share.max(1)));
    let others = total.saturating_sub(w);
    if others == 0 {
        return Cost::new(u64::MAX);
    }
    let above = (w * MILLION).saturating_sub(total.saturating_mul(m));
    // above ≤ 10¹² < 2⁴⁰, so the shift fits.
    let k = (above << K_BITS) / m.saturating_mul(others);
    let capped = (u128::from(cost.get()) * u128::from(k)) >> K_BITS;
    Cost::new(u64::try_from(capped).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: Policy = Policy::Hybrid { remembers: true };

    /// DSFQ, section 4.3: "delay = min { batchcost − cost, 10 · cost }".
    #[test]
    fn a_twelfth_of_a_node_at_equal_weights_caps_at_ten_times_the_cost() {
        let cap = HYBRID.cap(Cost::new(4096), Weight::new(5), 10, Some(83_333)).get();
        assert!(cap.abs_diff(40_960) <= 1, "{cap}");
    }

    #[test]
    fn the_ends_of_the_cap() {
        let cost = Cost::new(4096);
        assert_eq!(HYBRID.cap(cost, Weight::new(7), 7, Some(83_333)), Cost::new(u64::MAX)); // φ → 1
        assert_eq!(HYBRID.cap(cost, Weight::new(1), 4, Some(250_000)), Cost::ZERO); // φmin = φ
        assert_eq!(HYBRID.cap(cost, Weight::new(1), 4, Some(900_000)), Cost::ZERO); // more than φ
        assert_eq!(HYBRID.cap(cost, Weight::new(1), 4, None), Cost::new(u64::MAX));
    }
}
