//! Which nodes live, by words that each writes into storage that all of them share.
//!
//! # The problem
//! Two nodes that do not hear each other by network may both be well. Whoever takes the other for dead shuts it out of the storage. A node that
//! does not reach the storage is of no use there, however well it hears the others.
//!
//! # The rule
//! Each node writes its own word and then reads the others', in *rounds*, two a second. A word is the node's start, a count, and whether
//! it serves; and what it asks of the storage (`depths.rs`). A node is dead that said the same in [`ROUNDS`] rounds. A round counts only
//! where it took at most 2 s: in storage that stands still nobody's word grows, and that is nobody's fault. In storage that is slow,
//! rounds take longer, and so does missing a node.
//! A node whose count was seen to grow lives. Of others nothing is known yet.
//!
//! Of the gateways of a disk that nobody has, the first one that lives and serves takes it. While nothing is known of an earlier one, later ones
//! wait. Where an earlier one lives and does not take it, the next one tries after [`TURN`]. One that is drained comes after all that
//! serve: a disk that nobody else takes is better there than nowhere.
//!
//! # Example
//! `n1` dies after its word `7 40 serves`. `n2` reads it in its rounds 1 to 6. Six rounds of half a second: `n1` is dead, `n2` takes its disks.
//!
//! # Guarantee
//! None for who writes: that is the storage's lock. A node that wrote a word within any [`ROUNDS`] − 1 rounds of another is not dead to it.
//!
//! # Price
//! A write and a read for each other node, two a second. A node that is slow for three seconds is taken for dead.

use crate::depths;
use henge_core::{Demand, Duration, Instant};
use std::collections::BTreeMap;

/// How often a round begins.
pub const ROUND: Duration = Duration::from_millis(500);
/// A node is dead that said the same so often, each time after a word of our own was written.
pub const ROUNDS: u32 = 6;
/// A round that took longer says nothing: the storage stands still. Less than [`ROUNDS`] − 1 rounds that take no time, so that two nodes
/// before storage that is slow, and goes on, do not miss each other.
const QUICK: Duration = Duration::from_secs(2);
/// How long an earlier gateway of a disk has to take it, where it lives.
pub const TURN: Duration = Duration::from_secs(5);

/// What a node says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// Its start.
    pub epoch: u64,
    /// Grows with each word.
    pub count: u64,
    /// It takes disks. A node that is drained or about to end does not.
    pub serves: bool,
    /// What it asks of the storage, where it says so.
    pub demand: Option<Demand>,
}

impl Word {
    /// As it is written.
    pub fn text(&self) -> String {
        let serves = if self.serves { "serves" } else { "leaves" };
        let demand = self.demand.map_or_else(String::new, |demand| format!(" {}", depths::text(&demand)));
        format!("{} {} {serves}{demand}", self.epoch, self.count)
    }
    /// As it is read. Words of other versions may say more.
    pub fn parse(text: &str) -> Option<Word> {
        let mut words = text.split(' ');
        let (epoch, count) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Word { epoch, count, serves: words.next()? == "serves", demand: depths::parse(words) })
    }
}

/// What is known of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// Nothing yet.
    Unknown,
    /// Its count grew.
    Alive(Word),
    /// It said the same for too long, or nothing.
    Dead,
}

#[derive(Debug, Default)]
struct Seen {
    word: Option<Word>,
    /// Rounds in which it was the same.
    same: u32,
    grew: bool,
}

/// What one node knows of the others.
#[derive(Debug, Default)]
pub struct Lives {
    seen: BTreeMap<String, Seen>,
}

impl Lives {
    /// Nothing is known.
    pub fn new() -> Lives {
        Lives::default()
    }

    /// A round is over, in which our own word was written first, and these were read then.
    pub fn round<'a>(
        &mut self,
        heard: impl IntoIterator<Item = (&'a str, Option<Word>)>,
        began: Instant,
        ended: Instant,
    ) {
        if ended.since(began) > QUICK {
            return self.interrupted();
        }
        for (node, word) in heard {
            let seen = self.seen.entry(node.to_owned()).or_default();
            if seen.word == word {
                seen.same += 1;
                continue;
            }
            // What was there before our first round may be old.
            let first = seen.word.is_none() && seen.same == 0 && !seen.grew;
            *seen = Seen { word, same: 1, grew: seen.grew || !first };
        }
    }

    /// The storage did not answer, or took its time: nobody is missed for it.
    pub fn interrupted(&mut self) {
        let missed = self.seen.values_mut().filter(|seen| seen.same < ROUNDS);
        missed.for_each(|seen| seen.same = seen.same.min(1));
    }

    /// Whether a node lives.
    pub fn of(&self, node: &str) -> Life {
        match self.seen.get(node) {
            Some(seen) if seen.same >= ROUNDS => Life::Dead,
            Some(Seen { word: Some(word), grew: true, .. }) => Life::Alive(*word),
            _ => Life::Unknown,
        }
    }

    /// Whether it is `me` who should take a disk of these gateways that nobody has had for so long.
    pub fn is_mine(&self, me: &str, gateways: &[String], vacant: Duration) -> bool {
        let mut patience = Duration::ZERO;
        for node in gateways {
            if node == me {
                return vacant >= patience;
            }
            match self.of(node) {
                Life::Alive(word) if word.serves => patience += TURN,
                Life::Unknown => return false,
                Life::Alive(_) | Life::Dead => {}
            }
        }
        false
    }

    /// Whether `me`, which is drained, should take such a disk after all: each gateway that serves has had its turn.
    pub fn is_left_to(&self, me: &str, gateways: &[String], vacant: Duration) -> bool {
        let others = gateways.iter().filter(|node| *node != me).map(|node| self.of(node));
        let mut patience = Duration::ZERO;
        for life in others {
            match life {
                Life::Alive(word) if word.serves => patience += TURN,
                Life::Unknown => return false,
                Life::Alive(_) | Life::Dead => {}
            }
        }
        vacant >= patience
    }

    /// What those that live ask of the storage.
    pub fn demands(&self) -> impl Iterator<Item = Demand> {
        self.seen.keys().filter_map(|node| match self.of(node) {
            Life::Alive(word) => word.demand,
            Life::Unknown | Life::Dead => None,
        })
    }

    /// The nodes that live and take disks.
    pub fn serving(&self) -> impl Iterator<Item = &str> {
        let serves = |node: &&String| matches!(self.of(node), Life::Alive(word) if word.serves);
        self.seen.keys().filter(serves).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word(count: u64) -> Word {
        Word { epoch: 7, count, serves: true, demand: None }
    }
    fn quick(lives: &mut Lives, word: Option<Word>) {
        lives.round([("n1", word)], Instant::ZERO, Instant::ZERO);
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        let demand = Demand { weight: 3, used: None, promised: 2, whole: 16 };
        let demand = Some(demand);
        for word in [word(0), Word { epoch: u64::MAX, count: 3, serves: false, demand }] {
            assert_eq!(Word::parse(&word.text()), Some(word));
        }
        assert_eq!(Word::parse("7 0 serves and more"), Some(word(0)));
        for odd in ["", "7", "7 0", "x 0 serves", "7 -1 serves"] {
            assert_eq!(Word::parse(odd), None, "{odd}");
        }
    }

    #[test]
    fn who_says_the_same_six_times_is_dead_and_who_goes_on_lives_again() {
        let mut lives = Lives::new();
        quick(&mut lives, Some(word(1)));
        assert_eq!(lives.of("n1"), Life::Unknown, "it may be an old word");
        quick(&mut lives, Some(word(2)));
        assert_eq!(lives.of("n1"), Life::Alive(word(2)));
        (0..ROUNDS - 2).for_each(|_| quick(&mut lives, Some(word(2))));
        assert_eq!(lives.of("n1"), Life::Alive(word(2)));
        quick(&mut lives, Some(word(2)));
        assert_eq!(lives.of("n1"), Life::Dead);
        lives.interrupted();
        assert_eq!(lives.of("n1"), Life::Dead, "until it says something");
        quick(&mut lives, Some(Word { epoch: 8, ..word(0) }));
        assert!(matches!(lives.of("n1"), Life::Alive(_)));
        assert_eq!(lives.of("n2"), Life::Unknown);
    }

    #[test]
    fn who_never_said_anything_is_dead_after_as_many_rounds() {
        let mut lives = Lives::new();
        (0..ROUNDS).for_each(|_| quick(&mut lives, None));
        assert_eq!(lives.of("n1"), Life::Dead);
        quick(&mut lives, Some(word(1)));
        assert_eq!(lives.of("n1"), Life::Alive(word(1)));
    }

    #[test]
    fn storage_that_stands_still_is_nobodys_end() {
        let mut lives = Lives::new();
        (1..3).for_each(|count| quick(&mut lives, Some(word(count))));
        for _ in 0..100 {
            (0..ROUNDS - 2).for_each(|_| quick(&mut lives, Some(word(2))));
            lives.round(
                [("n1", Some(word(2)))],
                Instant::ZERO,
                Instant::ZERO + QUICK + Duration::from_nanos(1),
            );
            lives.interrupted();
        }
        assert_eq!(lives.of("n1"), Life::Alive(word(2)));
    }

    proptest! {
        /// Each round of either node takes up to 2 s: who goes on is not missed. Who stops is missed after six rounds, as long as they are.
        #[test]
        fn in_slow_storage_who_writes_lives_and_who_stops_is_missed(
            ours in prop::collection::vec(0u64..=2000, 200),
            theirs in prop::collection::vec(0u64..=2000, 200),
            stops in 5_000u64..60_000,
        ) {
            let wait = |took: u64| took.max(500);
            // When each of their words was there.
            let mut written: Vec<u64> = theirs.iter().scan(0, |at, took| { *at += wait(*took); Some(*at) }).collect();
            written.retain(|at| *at < stops);
            let (mut lives, mut now, mut after) = (Lives::new(), 0, 0);
            for took in ours {
                let (began, ended) = (now, now + took);
                let count = written.iter().filter(|at| **at <= ended).count() as u64;
                let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
                lives.round([("n1", (count > 0).then(|| word(count)))], at(began), at(ended));
                now += wait(took);
                let last = written.last().copied().unwrap_or(0);
                if began < last && count > 0 {
                    prop_assert!(lives.of("n1") != Life::Dead, "missed at {ended} ms, though it wrote until {last} ms");
                }
                after += u32::from(began >= last);
            }
            prop_assert!(after <= ROUNDS || lives.of("n1") == Life::Dead, "not missed after {after} rounds");
        }
    }

    #[test]
    fn the_first_that_serves_takes_a_disk() {
        let gateways: Vec<String> = ["n1", "n2", "n3"].map(String::from).into();
        let mut lives = Lives::new();
        let mine = |lives: &Lives, me: &str, vacant| lives.is_mine(me, &gateways, vacant);
        assert!(mine(&lives, "n1", Duration::ZERO) && !mine(&lives, "n2", Duration::from_secs(99)));
        let round = |lives: &mut Lives, one: Word, two: Word| {
            lives.round([("n1", Some(one)), ("n2", Some(two))], Instant::ZERO, Instant::ZERO);
        };
        (0..2).for_each(|n| round(&mut lives, word(n), word(n)));
        assert!(!mine(&lives, "n2", Duration::ZERO) && mine(&lives, "n2", TURN));
        assert!(!mine(&lives, "n3", TURN) && mine(&lives, "n3", TURN * 2));
        assert!(!mine(&lives, "n4", TURN * 9), "it is no gateway of the disk");
        round(&mut lives, Word { serves: false, ..word(3) }, word(3));
        assert!(mine(&lives, "n2", Duration::ZERO), "the first one leaves");
        (4..4 + u64::from(ROUNDS)).for_each(|n| round(&mut lives, word(3), word(n)));
        assert_eq!(lives.of("n1"), Life::Dead);
        assert!(mine(&lives, "n2", Duration::ZERO) && !mine(&lives, "n3", Duration::ZERO));
    }

    #[test]
    fn what_nobody_else_takes_is_left_to_who_is_drained() {
        let gateways: Vec<String> = ["n1", "n2", "n3"].map(String::from).into();
        let left = |lives: &Lives, vacant| lives.is_left_to("n1", &gateways, vacant);
        let mut lives = Lives::new();
        let round = |lives: &mut Lives, two: Word, three: Word| {
            lives.round([("n2", Some(two)), ("n3", Some(three))], Instant::ZERO, Instant::ZERO);
        };
        round(&mut lives, word(1), word(1));
        assert!(!left(&lives, Duration::from_secs(99)), "nothing is known of the others");
        assert_eq!(lives.serving().count(), 0);
        round(&mut lives, word(2), word(2));
        assert!(!left(&lives, TURN) && left(&lives, TURN * 2), "each of them has a turn");
        assert_eq!(lives.serving().collect::<Vec<_>>(), ["n2", "n3"]);
        round(&mut lives, Word { serves: false, ..word(3) }, word(3));
        assert!(left(&lives, TURN) && lives.serving().collect::<Vec<_>>() == ["n3"]);
        (4..4 + u64::from(ROUNDS)).for_each(|n| round(&mut lives, word(n), word(3)));
        assert!(!left(&lives, Duration::ZERO) && left(&lives, TURN));
        let leaves = Word { serves: false, ..word(99) };
        round(&mut lives, leaves, word(3));
        assert!(left(&lives, Duration::ZERO), "one is dead, and one is drained as well");
    }

    proptest! {
        /// Whoever writes at least once in each five rounds of another one's is never dead to it, in whatever order they run.
        #[test]
        fn who_writes_is_not_dead(steps in prop::collection::vec(0u32..ROUNDS, 1..200)) {
            let (mut lives, mut count) = (Lives::new(), 0);
            for rounds in steps {
                count += 1;
                for _ in 0..rounds {
                    quick(&mut lives, Some(word(count)));
                    prop_assert_ne!(lives.of("n1"), Life::Dead);
                }
            }
        }
    }
}
