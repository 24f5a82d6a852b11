//! One depth for all gateways before the same storage.
//!
//! # The problem
//! Storage takes the longer the more is under way there, whoever sent it. Gateways with a depth of their own each have as many times that depth under way
//! as there are gateways. And a gateway with one busy tenant has as much of the storage as one with ten.
//!
//! # The rule
//! Each gateway says what it asks ([`Demand`]) with the word by which it says that it lives, twice a second. Of the depth D, which is the least that any
//! of them knows, each computes its part from the same words:
//!
//! ```text
//!   1. slots that promised rates need, or in proportion to them where that is more than D
//!   2. of the rest, in proportion to the weights of flows that ask, to each no more than it used
//! ```
//!
//! Who lacked slots may have any number of them by the second line, and so may each in its own reckoning: what it had of too little yesterday does not bound
//! what it has today.
//!
//! # Example
//! D = 16. Gateway A has three tenants of weight 1 that want more, B has one. A gets 12, B 4. B's tenant pauses and uses one slot: A gets 15. It comes back: B has
//! its 4 at once, and A goes back to 12 half a second later.
//!
//! # Guarantee
//! Where all gateways reckon from the same words, their parts come to D, but for rounding and for the one slot that each has at least. With equal service times,
//! throughput of two gateways that both lack slots is as their weights. A promise that fits in D keeps its slots.
//!
//! # Price
//! Words are up to a second old: who comes back has too little under way for nobody, and together they have too much for that long.
//!
//! # Source
//! Weighted max-min fairness (Demers, Keshav, Shenker, SIGCOMM 1989), with minima first, as bQueue and pShift move reservations between servers.

use henge_core::{Demand, DepthPart};

/// As it is written into a word: weight, slots used (or `more`), slots promised, depth.
pub fn text(demand: &Demand) -> String {
    let used = demand.used.map_or_else(|| "more".to_owned(), |used| used.to_string());
    format!("{} {used} {} {}", demand.weight, demand.promised, demand.whole)
}

/// As it is read.
pub fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Demand> {
    let weight = words.next()?.parse().ok()?;
    let used = words.next()?;
    let used = if used == "more" { None } else { Some(used.parse().ok()?) };
    let promised = words.next()?.parse().ok()?;
    let whole = words.next()?.parse().ok().filter(|whole| *whole > 0)?;
    Some(Demand { weight, used, promised, whole })
}

/// What one gateway has of the depth of all, by what it asks itself and what the others say.
///
/// ```
/// use henge_core::Demand;
/// let ask = |weight, used| Demand { weight, used, promised: 0, whole: 16 };
/// let (a, b) = (ask(3, None), ask(1, None));
/// assert_eq!(henge_link::depths::part(&a, [b]).of(16), 12);
/// assert_eq!(henge_link::depths::part(&a, [ask(1, Some(1))]).of(16), 15);
/// ```
pub fn part(own: &Demand, others: impl IntoIterator<Item = Demand>) -> DepthPart {
    let own = Demand { used: None, ..*own };
    let mut all: Vec<Demand> = others.into_iter().collect();
    all.insert(0, own);
    let whole = all.iter().map(|d| u64::from(d.whole)).min().unwrap_or(1).max(1);
    let promised: u64 = all.iter().map(needed).sum();
    let thousandths = if promised >= whole {
        whole * 1000 * needed(&own) / promised
    } else {
        needed(&own) * 1000 + rest((whole - promised) * 1000, &all)
    };
    // Of its own depth, where that is more than another's.
    DepthPart::new(u32::try_from(thousandths).unwrap_or(u32::MAX).max(1), own.whole.saturating_mul(1000))
}

/// Slots that promises need, and that are used.
fn needed(demand: &Demand) -> u64 {
    u64::from(demand.promised.min(demand.used.unwrap_or(u32::MAX)))
}

/// What the first has of the rest, in thousandths of a slot.
fn rest(mut rest: u64, all: &[Demand]) -> u64 {
    let wanted = |d: &Demand| d.used.map(|used| (u64::from(used) - needed(d)) * 1000);
    let mut open: Vec<&Demand> = all.iter().collect();
    loop {
        let weights = open.iter().map(|d| u128::from(d.weight.max(1))).sum::<u128>().max(1);
        let due = |d: &Demand, rest| (u128::from(rest) * u128::from(d.weight.max(1)) / weights) as u64;
        // Whoever wants less than is due has that.
        let mut left = rest;
        let before = open.len();
        open.retain(|d| match wanted(d).filter(|wanted| *wanted <= due(d, rest)) {
            Some(wanted) => {
                left = left.saturating_sub(wanted);
                false
            }
            None => true,
        });
        if open.len() == before {
            return due(&all[0], rest);
        }
        rest = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asks() -> impl Strategy<Value = Demand> {
        let used = prop_oneof![Just(None), (0u32..200).prop_map(Some)];
        (0u64..2_000_000, used, 0u32..64, 1u32..512).prop_map(|(weight, used, promised, whole)| Demand {
            weight,
            used,
            promised,
            whole,
        })
    }

    /// Parts of all, each by its own reckoning.
    fn parts(all: &[Demand]) -> Vec<u64> {
        let others = |i: usize| all.iter().enumerate().filter(move |(n, _)| *n != i).map(|(_, d)| *d);
        all.iter().enumerate().map(|(i, own)| u64::from(part(own, others(i)).of(own.whole))).collect()
    }

    #[test]
    fn who_comes_back_has_its_part_at_once_and_what_is_not_used_is_anothers() {
        let ask = |weight, used| Demand { weight, used, promised: 0, whole: 16 };
        assert_eq!(parts(&[ask(3, None), ask(1, None)]), [12, 4]);
        assert_eq!(parts(&[ask(3, None), ask(1, Some(1))]), [15, 4]);
        assert_eq!(parts(&[ask(1, None), ask(1, Some(5)), ask(2, None)]), [4, 4, 8]);
        assert_eq!(
            parts(&[ask(1, None), ask(1, Some(2)), ask(2, None)]),
            [5, 4, 9],
            "2 leave 14 for 1 and 2"
        );
        assert_eq!(parts(&[ask(7, None)]), [16], "alone");
        // The least depth counts.
        let shallow = Demand { whole: 4, ..ask(1, None) };
        assert_eq!(parts(&[ask(1, None), shallow]), [2, 2]);
    }

    #[test]
    fn promises_come_first() {
        let ask = |weight, promised| Demand { weight, used: None, promised, whole: 16 };
        assert_eq!(parts(&[ask(1, 10), ask(5, 0)]), [11, 5], "ten, and a sixth of six");
        assert_eq!(parts(&[ask(1, 24), ask(100, 8)]), [12, 4], "more than there is");
        let idle = Demand { used: Some(0), ..ask(1, 10) };
        assert_eq!(parts(&[idle, ask(1, 0)]), [13, 16], "a promise that nobody uses keeps nothing back");
    }

    proptest! {
        #[test]
        fn words_are_read_as_they_are_written(demand in asks()) {
            prop_assert_eq!(parse(text(&demand).split(' ')), Some(demand));
        }

        #[test]
        fn whatever_is_said_a_part_is_at_least_one_and_no_more_than_the_depth(
            own in asks(), others in prop::collection::vec(any::<(u64, Option<u32>, u32, u32)>(), 0..8),
        ) {
            let others: Vec<_> = others.into_iter().map(|(weight, used, promised, whole)| Demand { weight, used, promised, whole }).collect();
            let own_part = part(&own, others.iter().copied()).of(own.whole);
            prop_assert!((1..=own.whole).contains(&own_part));
        }

        /// Of gateways that all lack slots nobody has too much, nothing is left over, and parts are as weights.
        #[test]
        fn parts_of_who_lacks_come_to_the_depth(weights in prop::collection::vec(1u64..1000, 1..8), whole in 8u32..512) {
            let all: Vec<Demand> = weights.iter().map(|&weight| Demand { weight, used: None, promised: 0, whole }).collect();
            let sum: u64 = weights.iter().sum();
            let parts = parts(&all);
            for (part, weight) in parts.iter().zip(&weights) {
                let due = u64::from(whole) * weight / sum;
                prop_assert!(*part <= due + 1 && *part + 1 >= due, "{part} of {due}");
            }
        }

        /// Whoever used less than its part leaves the rest to those who lack, and nobody has less than by weights alone.
        #[test]
        fn nothing_is_left_over(demands in prop::collection::vec(asks(), 2..8), whole in 64u32..512) {
            let all: Vec<Demand> = demands.iter().map(|d| Demand { whole, promised: 0, ..*d }).collect();
            let (parts, n) = (parts(&all), all.len() as u64);
            if all.iter().all(|d| d.used.is_some()) {
                return Ok(());
            }
            // What each takes of its part, once it takes what it wants.
            let taken = all.iter().zip(&parts).map(|(d, part)| d.used.map_or(*part, |used| u64::from(used).min(*part)));
            let taken: u64 = taken.sum();
            prop_assert!(taken <= u64::from(whole) + n && taken + n >= u64::from(whole), "{taken} of {whole}: {parts:?}");
            let sum: u64 = all.iter().map(|d| d.weight.max(1)).sum();
            for (d, part) in all.iter().zip(&parts) {
                let due = u64::from(whole) * d.weight.max(1) / sum;
                prop_assert!(*part + 1 >= due, "{part} of {due}");
            }
        }
    }

    #[test]
    fn what_is_no_demand_is_none() {
        for odd in ["", "1", "1 2", "1 2 3", "1 x 3 4", "-1 2 3 4", "1 2 3 0"] {
            assert_eq!(parse(odd.split(' ')), None, "{odd}");
        }
    }
}
