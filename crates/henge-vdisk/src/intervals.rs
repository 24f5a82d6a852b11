//! Which ranges overlap a range: a treap by first byte, whose every subtree knows its farthest end and its turns.
//!
//! The problem: among thousands of pending writes, find the latest one before a given turn that overlaps a range. The rule: nodes
//! are ordered by (first byte, turn), as heap by a number that is drawn from the turn; each knows the farthest end, the first and the
//! last turn of its subtree, so a search leaves out what ends too early, begins too late, or cannot be a later find than it has.
//!
//! Example: [0, 8) of turn 1, [4, 12) of turn 2, [30, 40) of turn 3; asked for the latest before turn 4 that overlaps [6, 9): turn 2.
//!
//! Price: insertion and removal are logarithmic (expected: the numbers look random and are the same in each run). A search is, too,
//! where overlaps are few or alike; where many ranges of many lengths overlap it may look at more, never at more than all.
//! Nothing is allocated once the high-water mark is reached.

use std::ops::Range;

/// No node.
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    start: u64,
    end: u64,
    turn: u64,
    heap: u64,
    left: u32,
    right: u32,
    /// Of the whole subtree.
    farthest: u64,
    first_turn: u64,
    last_turn: u64,
}

const EMPTY: Node = Node {
    start: 0,
    end: 0,
    turn: 0,
    heap: 0,
    left: NIL,
    right: NIL,
    farthest: 0,
    first_turn: u64::MAX,
    last_turn: 0,
};

/// Ranges by the slots of their locks.
#[derive(Clone, Debug)]
pub(crate) struct Intervals {
    nodes: Vec<Node>,
    root: u32,
}

impl Default for Intervals {
    fn default() -> Self {
        Intervals { nodes: Vec::new(), root: NIL }
    }
}

/// SplitMix64's finalizer: turns in order become numbers without one.
fn scatter(turn: u64) -> u64 {
    let mut z = turn.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Intervals {
    /// Adds the range of `slot`, which has none here; turns are unique and above 0.
    pub(crate) fn insert(&mut self, slot: u32, range: &Range<u64>, turn: u64) {
        if self.nodes.len() <= slot as usize {
            self.nodes.resize(slot as usize + 1, EMPTY);
        }
        let (start, end) = (range.start, range.end);
        self.nodes[slot as usize] = Node { start, end, turn, heap: scatter(turn), ..EMPTY };
        self.refresh(slot);
        self.root = self.add(self.root, slot);
    }

    /// Takes it out again.
    pub(crate) fn remove(&mut self, slot: u32) {
        self.root = self.take(self.root, slot);
    }

    /// The slot and turn of the latest range before `turn` that overlaps `range`.
    pub(crate) fn latest(&self, range: &Range<u64>, turn: u64) -> Option<(u64, u32)> {
        let mut best = None;
        self.search(self.root, range, turn, &mut best);
        best
    }

    fn search(&self, at: u32, range: &Range<u64>, before: u64, best: &mut Option<(u64, u32)>) {
        if at == NIL {
            return;
        }
        let node = &self.nodes[at as usize];
        let found = best.map_or(0, |(turn, _)| turn);
        if node.farthest <= range.start || node.first_turn >= before || node.last_turn <= found {
            return;
        }
        // What begins at or behind the range's end is on the right of what does.
        if node.start >= range.end {
            return self.search(node.left, range, before, best);
        }
        if node.end > range.start && node.turn < before && node.turn > found {
            *best = Some((node.turn, at));
        }
        let last = |child: u32| self.nodes.get(child as usize).map_or(0, |node| node.last_turn);
        let (one, other) = match last(node.left) > last(node.right) {
            true => (node.left, node.right),
            false => (node.right, node.left),
        };
        self.search(one, range, before, best);
        self.search(other, range, before, best);
    }

    fn key(&self, slot: u32) -> (u64, u64) {
        let node = &self.nodes[slot as usize];
        (node.start, node.turn)
    }

    /// What a node knows of its subtree, from its children.
    fn refresh(&mut self, slot: u32) {
        let node = self.nodes[slot as usize];
        let (mut farthest, mut first, mut last) = (node.end, node.turn, node.turn);
        for child in [node.left, node.right] {
            if let Some(child) = self.nodes.get(child as usize) {
                farthest = farthest.max(child.farthest);
                first = first.min(child.first_turn);
                last = last.max(child.last_turn);
            }
        }
        let node = &mut self.nodes[slot as usize];
        (node.farthest, node.first_turn, node.last_turn) = (farthest, first, last);
    }

    fn add(&mut self, at: u32, new: u32) -> u32 {
        if at == NIL {
            return new;
        }
        if self.nodes[new as usize].heap > self.nodes[at as usize].heap {
            let (left, right) = self.split(at, self.key(new));
            (self.nodes[new as usize].left, self.nodes[new as usize].right) = (left, right);
            self.refresh(new);
            return new;
        }
        if self.key(new) < self.key(at) {
            let left = self.add(self.nodes[at as usize].left, new);
            self.nodes[at as usize].left = left;
        } else {
            let right = self.add(self.nodes[at as usize].right, new);
            self.nodes[at as usize].right = right;
        }
        self.refresh(at);
        at
    }

    /// The nodes before and from `key` on.
    fn split(&mut self, at: u32, key: (u64, u64)) -> (u32, u32) {
        if at == NIL {
            return (NIL, NIL);
        }
        if self.key(at) < key {
            let (left, right) = self.split(self.nodes[at as usize].right, key);
            self.nodes[at as usize].right = left;
            self.refresh(at);
            (at, right)
        } else {
            let (left, right) = self.split(self.nodes[at as usize].left, key);
            self.nodes[at as usize].left = right;
            self.refresh(at);
            (left, at)
        }
    }

    fn take(&mut self, at: u32, gone: u32) -> u32 {
        assert!(at != NIL, "a range is taken out once");
        let Node { left, right, .. } = self.nodes[at as usize];
        if at == gone {
            return self.join(left, right);
        }
        if self.key(gone) < self.key(at) {
            let left = self.take(left, gone);
            self.nodes[at as usize].left = left;
        } else {
            let right = self.take(right, gone);
            self.nodes[at as usize].right = right;
        }
        self.refresh(at);
        at
    }

    /// One tree of two, all of whose nodes are in order.
    fn join(&mut self, left: u32, right: u32) -> u32 {
        if left == NIL || right == NIL {
            return if left == NIL { right } else { left };
        }
        if self.nodes[left as usize].heap > self.nodes[right as usize].heap {
            let joined = self.join(self.nodes[left as usize].right, right);
            self.nodes[left as usize].right = joined;
            self.refresh(left);
            left
        } else {
            let joined = self.join(left, self.nodes[right as usize].left);
            self.nodes[right as usize].left = joined;
            self.refresh(right);
            right
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The latest overlap is the one that a look at all finds, whatever came and went; the tree stays in order.
        #[test]
        fn as_a_look_at_all(steps in proptest::collection::vec((0u64..60, 1u64..20, any::<bool>(), 0u32..40, 0u64..80), 1..200)) {
            let mut tree = Intervals::default();
            let mut all: std::collections::BTreeMap<u32, (Range<u64>, u64)> = Default::default();
            for (turn, (start, len, remove, slot, before)) in steps.into_iter().enumerate() {
                let (range, turn) = (start..start + len, turn as u64 + 1);
                match (all.contains_key(&slot), remove) {
                    (true, true) => {
                        tree.remove(slot);
                        all.remove(&slot);
                    }
                    (true, false) => {}
                    (false, _) => {
                        tree.insert(slot, &range, turn);
                        all.insert(slot, (range.clone(), turn));
                    }
                }
                let overlaps = all.iter().filter(|(_, (r, t))| r.start < range.end && range.start < r.end && *t < before);
                prop_assert_eq!(tree.latest(&range, before), overlaps.map(|(slot, (_, t))| (*t, *slot)).max());
            }
        }
    }
}
