//! Which nodes: packing disks into nodes in several dimensions at once.
//!
//! # The problem
//! A disk takes some of each dimension (requests/s, bytes …) of N different nodes, all or none. Which disks fit
//! together, and where? NP-complete, in two forms: *batch*, where all wishes are known and the most valuable set is
//! sought ([`toyoda`], [`search`], [`exact`]), and *on-line*, in order of arrival, where nothing placed moves
//! ([`online`]).
//!
//! Source: Stonehenge, section 3.2; Toyoda, Management Science 21 (1975).

mod evaluate;
mod exact;
mod online;
mod search;
mod toyoda;

pub use evaluate::{Loss, evaluate, instance};
pub use exact::exact;
pub use online::{Score, choose, online, online_optimum, score};
pub use search::search;
pub use toyoda::toyoda;

/// What a node has, or what a part takes: one number per dimension, in any unit, the same order everywhere.
pub type Vector = Vec<f64>;

/// A hair: demands that fill a node exactly do fit, in spite of rounding.
const HAIR: f64 = 1e-9;

/// A disk that wants a place.
#[derive(Clone, PartialEq, Debug)]
pub struct Wish {
    /// What each of its parts takes.
    pub part: Vector,
    /// How many parts, each on another node.
    pub parts: usize,
    /// What placing it is worth; 1 to count disks.
    pub value: f64,
    /// Copies that its nodes must keep.
    pub copies: u32,
}

/// A node that takes parts.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// What is free.
    pub free: Vector,
    /// Copies that its backend keeps.
    pub copies: u32,
}

impl Node {
    /// Whether one part fits.
    pub fn fits(&self, wish: &Wish) -> bool {
        self.copies >= wish.copies
            && self.free.iter().zip(&wish.part).all(|(f, d)| *d <= f + HAIR * f.abs().max(1.0))
    }
    fn take(&mut self, wish: &Wish) {
        self.free.iter_mut().zip(&wish.part).for_each(|(f, d)| *f -= d);
    }
    fn give_back(&mut self, wish: &Wish) {
        self.free.iter_mut().zip(&wish.part).for_each(|(f, d)| *f += d);
    }
}

/// For each wish the nodes that it got, ascending; `None` if it was not placed.
pub type Placement = Vec<Option<Vec<usize>>>;

/// What a placement is worth.
pub fn value(wishes: &[Wish], placement: &Placement) -> f64 {
    wishes.iter().zip(placement).filter(|(_, p)| p.is_some()).map(|(w, _)| w.value).sum()
}

/// Checks a placement against the rules; `Err` says what is broken.
pub fn check(nodes: &[Node], wishes: &[Wish], placement: &Placement) -> Result<(), String> {
    let mut nodes = nodes.to_vec();
    for (i, (wish, places)) in wishes.iter().zip(placement).enumerate() {
        let Some(places) = places else { continue };
        if places.len() != wish.parts || !places.is_sorted_by(|a, b| a < b) {
            return Err(format!("disk {i} has not {} different nodes: {places:?}", wish.parts));
        }
        for &at in places {
            if !nodes[at].fits(wish) {
                return Err(format!("disk {i} does not fit on node {at}"));
            }
            nodes[at].take(wish);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(super) fn instances() -> impl Strategy<Value = (Vec<Node>, Vec<Wish>)> {
        let node = (50.0..150.0f64, 50.0..150.0f64, 1u32..3)
            .prop_map(|(a, b, copies)| Node { free: vec![a, b], copies });
        let wish = (1.0..70.0f64, 1.0..70.0f64, 1usize..3, 1u32..3, 1u32..10).prop_map(
            |(a, b, parts, copies, value)| Wish {
                part: vec![a / parts as f64, b / parts as f64],
                parts,
                value: f64::from(value),
                copies,
            },
        );
        (proptest::collection::vec(node, 1..4), proptest::collection::vec(wish, 0..9))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn nobody_overfills_a_node_and_nobody_beats_the_optimum((nodes, wishes) in instances()) {
            let best = exact(&nodes, &wishes);
            let greedy = toyoda(&nodes, &wishes);
            let searched = search(&nodes, &wishes, 50, 1);
            let in_order = online(&nodes, &wishes, Score::Dot);
            for placement in [&best, &greedy, &searched, &in_order] {
                prop_assert_eq!(check(&nodes, &wishes, placement), Ok(()));
                prop_assert!(value(&wishes, placement) <= value(&wishes, &best) + 1e-6);
            }
            prop_assert!(value(&wishes, &searched) + 1e-6 >= value(&wishes, &greedy), "search starts from Toyoda");
        }
    }

    #[test]
    fn a_disk_that_wants_more_copies_than_any_node_keeps_is_not_placed() {
        let nodes = vec![Node { free: vec![10.0], copies: 2 }];
        let wish = |copies| Wish { part: vec![1.0], parts: 1, value: 1.0, copies };
        assert_eq!(toyoda(&nodes, &[wish(3), wish(2)]), vec![None, Some(vec![0])]);
    }
}
