//! The optimum, by branch and bound: for small instances, to show what a heuristic loses.
//!
//! Disks in order of value; each is tried on every set of nodes that fits, and left out. A branch is cut when even
//! placing all remaining disks would not beat the best found. Exponential: 8 disks on 3 nodes take microseconds to
//! milliseconds, 20 on 5 can take minutes.

use super::{Node, Placement, Wish, toyoda, value};

/// The most valuable placement.
pub fn exact(nodes: &[Node], wishes: &[Wish]) -> Placement {
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by(|a, b| wishes[*b].value.total_cmp(&wishes[*a].value).then(a.cmp(b)));
    let best = toyoda(nodes, wishes);
    let best_value = value(wishes, &best);
    let mut search =
        Search { wishes, order, nodes: nodes.to_vec(), current: vec![None; wishes.len()], best, best_value };
    let all = wishes.iter().map(|w| w.value).sum();
    search.go(0, 0.0, all);
    search.best
}

struct Search<'a> {
    wishes: &'a [Wish],
    order: Vec<usize>,
    nodes: Vec<Node>,
    current: Placement,
    best: Placement,
    best_value: f64,
}

impl Search<'_> {
    fn go(&mut self, depth: usize, placed: f64, open: f64) {
        if placed > self.best_value + 1e-12 {
            self.best_value = placed;
            self.best.clone_from(&self.current);
        }
        if depth == self.order.len() || placed + open <= self.best_value + 1e-12 {
            return;
        }
        let i = self.order[depth];
        let wish = &self.wishes[i];
        for places in combinations(&self.nodes, wish) {
            places.iter().for_each(|n| self.nodes[*n].take(wish));
            self.current[i] = Some(places.clone());
            self.go(depth + 1, placed + wish.value, open - wish.value);
            self.current[i] = None;
            places.iter().for_each(|n| self.nodes[*n].give_back(wish));
        }
        self.go(depth + 1, placed, open - wish.value);
    }
}

/// Every set of nodes that a disk's parts fit on.
pub(super) fn combinations(nodes: &[Node], wish: &Wish) -> Vec<Vec<usize>> {
    fn extend(fitting: &[usize], left: usize, chosen: &mut Vec<usize>, into: &mut Vec<Vec<usize>>) {
        if left == 0 {
            into.push(chosen.clone());
            return;
        }
        for (k, &node) in fitting.iter().enumerate() {
            if fitting.len() - k < left {
                break;
            }
            chosen.push(node);
            extend(&fitting[k + 1..], left - 1, chosen, into);
            chosen.pop();
        }
    }
    let fitting: Vec<usize> = (0..nodes.len()).filter(|i| nodes[*i].fits(wish)).collect();
    let mut all = Vec::new();
    if wish.parts > 0 {
        extend(&fitting, wish.parts, &mut Vec::new(), &mut all);
    }
    all
}
