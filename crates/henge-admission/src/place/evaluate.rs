//! How far each way of placing stays behind the optimum, over random small instances.
//!
//! Batch against [`exact`](super::exact), on-line against [`online_optimum`](super::online_optimum): an on-line rule cannot
//! choose whom to refuse. An instance has 2 to 4 nodes and 6 to 9 disks that together want about 1.5 times what there is, in two
//! dimensions; disks are worth 1 to 9 and some lie on two nodes.

use super::{Node, Placement, Score, Wish, exact, online, online_optimum, search, toyoda, value};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// What one way of placing lost.
#[derive(Clone, PartialEq, Debug)]
pub struct Loss {
    /// The way.
    pub name: String,
    /// Against the on-line optimum, or the batch one.
    pub online: bool,
    /// Mean of 1 − value/optimum.
    pub mean: f64,
    /// The largest.
    pub worst: f64,
    /// Share of the instances in which nothing was lost.
    pub optimal: f64,
}

/// The i-th instance of a seed.
pub fn instance(seed: u64, i: u64) -> (Vec<Node>, Vec<Wish>) {
    let mut rng = Pcg64Mcg::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i));
    let node = |rng: &mut Pcg64Mcg| Node {
        free: vec![rng.random_range(50.0..150.0), rng.random_range(50.0..150.0)],
        copies: 1,
    };
    let nodes: Vec<Node> = (0..rng.random_range(2..5)).map(|_| node(&mut rng)).collect();
    let disks = rng.random_range(6..10);
    let most = 3.0 * 100.0 * nodes.len() as f64 / f64::from(disks);
    let wish = |rng: &mut Pcg64Mcg| {
        let parts = rng.random_range(1..3usize);
        let part = (0..2).map(|_| rng.random_range(1.0..most) / parts as f64).collect();
        Wish { part, parts, value: f64::from(rng.random_range(1..10u32)), copies: 1 }
    };
    let wishes = (0..disks).map(|_| wish(&mut rng)).collect();
    (nodes, wishes)
}

type Way = Box<dyn Fn(&[Node], &[Wish], u64) -> Placement>;

/// Mean loss of every way over `instances` random instances.
pub fn evaluate(instances: u64, seed: u64) -> Vec<Loss> {
    let batch: Vec<(&str, Way)> = vec![
        ("Toyoda (the paper's)", Box::new(|n, w, _| toyoda(n, w))),
        ("Toyoda, then 200 steps of search", Box::new(|n, w, i| search(n, w, 200, i + 1))),
        ("Toyoda, then 2000 steps of search (the default)", Box::new(|n, w, i| search(n, w, 2000, i + 1))),
        ("in order of arrival", Box::new(|n, w, _| online(n, w, Score::Dot))),
    ];
    let scores = [
        ("dot product (the default)", Score::Dot),
        ("best fit", Score::BestFit),
        ("worst fit", Score::WorstFit),
        ("first fit", Score::FirstFit),
    ];
    let mut losses: Vec<(String, bool, Vec<f64>)> = Vec::new();
    losses.extend(batch.iter().map(|(name, _)| ((*name).to_owned(), false, Vec::new())));
    losses.extend(scores.iter().map(|(name, _)| ((*name).to_owned(), true, Vec::new())));
    for i in 0..instances {
        let (nodes, wishes) = instance(seed, i);
        let best = value(&wishes, &exact(&nodes, &wishes));
        for ((_, way), row) in batch.iter().zip(&mut losses) {
            row.2.push(loss(value(&wishes, &way(&nodes, &wishes, i)), best));
        }
        let few = &wishes[..wishes.len().min(7)];
        let best = online_optimum(&nodes, few);
        for ((_, by), row) in scores.iter().zip(&mut losses[batch.len()..]) {
            row.2.push(loss(value(few, &online(&nodes, few, *by)), best));
        }
    }
    losses.into_iter().map(|(name, online, all)| summary(name, online, &all)).collect()
}

fn loss(got: f64, best: f64) -> f64 {
    if best > 0.0 { (1.0 - got / best).max(0.0) } else { 0.0 }
}

fn summary(name: String, online: bool, all: &[f64]) -> Loss {
    let n = all.len().max(1) as f64;
    Loss {
        name,
        online,
        mean: all.iter().sum::<f64>() / n,
        worst: all.iter().copied().fold(0.0, f64::max),
        optimal: all.iter().filter(|l| **l < 1e-9).count() as f64 / n,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_stays_within_three_percent_of_the_optimum() {
        let losses = evaluate(40, 1);
        let of = |name: &str| losses.iter().find(|l| l.name.contains(name)).map(|l| l.mean).unwrap();
        assert!(of("2000") <= 0.03 && of("2000") <= of("paper's"), "{losses:#?}");
        assert_eq!(evaluate(3, 7), evaluate(3, 7), "one seed, one table");
    }
}
