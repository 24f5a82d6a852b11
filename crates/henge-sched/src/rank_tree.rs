//! An ordered set that knows the slack of the whole queue: an order-statistic tree.
//!
//! **Problem.** Requests stand in order of a key (a finish time, a deadline, an address). Wanted are the first, the
//! first at or after a key, how many stand before a key, and for CVC the latest start time of the head,
//!
//! ```text
//!   LST_Q = FT_Q − δ,   LST_i = min(LST_{i+1}, FT_i) − δ        (Stonehenge, equation (4))
//!   which is            LST_1 = min over ranks i of (FT_i − i·δ)
//! ```
//!
//! **Rule.** Every subtree keeps its number of entries c and m = min over its own ranks i of (key_i − i·δ). Two
//! neighbours join by (c, m) ⊕ (c', m') = (c + c', min(m, m' − c·δ)); an entry alone is (1, key − δ). In a binary tree
//! this reads m = min(m_left, FT − (c_left + 1)·δ, m_right − (c_left + 1)·δ); here a node has up to 32 entries, so that
//! ten thousand requests are three nodes deep and the memory touched by an operation is a few neighbouring lines.
//!
//! **Example.** δ = 10, keys 25, 30, 80: 25 − 10 = 15, 30 − 20 = 10, 80 − 30 = 50, so LST_1 = 10: the second is the
//! tight one, since both must be served by 30.
//!
//! **Price.** insert, remove: O(log n) nodes, each scanned once; `first`, `latest_start`: the root. δ belongs to the
//! stored minima, so changing it costs O(n): callers change it at most once in n operations.
//!
//! Nodes live in an arena and freed ones are used again: nothing is allocated once warm. Nodes that shrink below a
//! quarter are joined with a neighbour where both fit into one.

/// Entries of a node. Few in tests, so that small trees are deep ones.
const CAP: usize = if cfg!(test) { 8 } else { 32 };
/// Below this a node looks for a neighbour to join.
const FEW: usize = CAP / 4;
/// Keys above are as good as never; keeps all sums inside `i64`.
const KEY_MAX: i64 = 1 << 61;
/// δ above an hour is an hour, for the same reason.
const DELTA_MAX: u64 = 3_600_000_000_000;
/// Levels that a tree of 2³² entries with a quarter-full nodes may have.
const LEVELS: usize = 12;

/// One entry: its key, what orders equal keys, and the request's slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ranked {
    /// The order.
    pub key: u64,
    /// Orders equal keys; unique among them.
    pub seq: u64,
    /// Whose.
    pub slot: u32,
}

/// A leaf holds requests, an inner node the sums of its children; both alike, so that one code handles them.
#[derive(Clone)]
struct Node {
    len: usize,
    leaf: bool,
    /// Key and sequence number of the entry, or of the first entry below.
    firsts: [u128; CAP],
    /// Slot or child.
    links: [u32; CAP],
    counts: [u32; CAP],
    mins: [i64; CAP],
}

/// The set. See the head of this file.
pub struct RankTree {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
    len: usize,
    delta: i64,
}

fn packed(key: u64, seq: u64) -> u128 {
    u128::from(key) << 64 | u128::from(seq)
}

impl Node {
    fn empty(leaf: bool) -> Self {
        Node { len: 0, leaf, firsts: [0; CAP], links: [0; CAP], counts: [0; CAP], mins: [0; CAP] }
    }
    /// The place of the last entry at or before `first` (0 if there is none): where it is, or below which.
    fn place(&self, first: u128) -> usize {
        let at_or_before = self.firsts[..self.len].iter().filter(|f| **f <= first).count();
        at_or_before.saturating_sub(1)
    }
    fn put(&mut self, at: usize, first: u128, link: u32, (count, min): (u32, i64)) {
        let end = self.len;
        self.firsts.copy_within(at..end, at + 1);
        self.links.copy_within(at..end, at + 1);
        self.counts.copy_within(at..end, at + 1);
        self.mins.copy_within(at..end, at + 1);
        (self.firsts[at], self.links[at], self.counts[at], self.mins[at]) = (first, link, count, min);
        self.len += 1;
    }
    fn take(&mut self, at: usize) {
        let end = self.len;
        self.firsts.copy_within(at + 1..end, at);
        self.links.copy_within(at + 1..end, at);
        self.counts.copy_within(at + 1..end, at);
        self.mins.copy_within(at + 1..end, at);
        self.len -= 1;
    }
    /// Appends the entries of `other` from `from` on.
    fn append(&mut self, other: &Node, from: usize) {
        let (at, n) = (self.len, other.len - from);
        self.firsts[at..at + n].copy_from_slice(&other.firsts[from..other.len]);
        self.links[at..at + n].copy_from_slice(&other.links[from..other.len]);
        self.counts[at..at + n].copy_from_slice(&other.counts[from..other.len]);
        self.mins[at..at + n].copy_from_slice(&other.mins[from..other.len]);
        self.len += n;
    }
    /// (c, m) of the whole node.
    fn sum(&self, delta: i64) -> (u32, i64) {
        let mut count = 0;
        if delta == 0 {
            return (self.counts[..self.len].iter().sum(), self.mins[0]); // the smallest key
        }
        let mut min = i64::MAX;
        for i in 0..self.len {
            min = min.min(self.mins[i] - i64::from(count) * delta);
            count += self.counts[i];
        }
        (count, min)
    }
}

impl Default for RankTree {
    fn default() -> Self {
        Self::new()
    }
}

impl RankTree {
    /// Nothing in it, δ = 0.
    pub fn new() -> Self {
        RankTree { nodes: vec![Node::empty(true)], free: Vec::new(), root: 0, len: 0, delta: 0 }
    }
    /// How many entries.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.nodes.truncate(1);
        self.nodes[0] = Node::empty(true);
        self.free.clear();
        (self.root, self.len) = (0, 0);
    }

    /// Adds an entry; (key, seq) is unique.
    pub fn insert(&mut self, entry: Ranked) {
        let first = packed(entry.key, entry.seq);
        let (path, levels) = self.descend(first);
        let (leaf, at) = path[levels - 1];
        let node = &self.nodes[leaf as usize];
        let at = if node.len > 0 && node.firsts[at] < first { at + 1 } else { at };
        let mut split = self.put(leaf, at, first, entry.slot, self.alone(entry.key));
        for &(parent, at) in path[..levels - 1].iter().rev() {
            self.refresh(parent, at);
            split = match split {
                Some(new) => {
                    let sum = self.nodes[new as usize].sum(self.delta);
                    self.put(parent, at + 1, self.nodes[new as usize].firsts[0], new, sum)
                }
                None => None,
            };
        }
        if let Some(new) = split {
            let old = self.root;
            self.root = self.allocate(false);
            for child in [old, new] {
                let (first, sum) =
                    (self.nodes[child as usize].firsts[0], self.nodes[child as usize].sum(self.delta));
                let root = &mut self.nodes[self.root as usize];
                root.put(root.len, first, child, sum);
            }
        }
        self.len += 1;
    }

    /// Takes an entry out and says whose it was; `None` if it is not there.
    pub fn remove(&mut self, key: u64, seq: u64) -> Option<u32> {
        let first = packed(key, seq);
        let (path, levels) = self.descend(first);
        let (leaf, at) = path[levels - 1];
        let node = &mut self.nodes[leaf as usize];
        if at >= node.len || node.firsts[at] != first {
            return None;
        }
        let slot = node.links[at];
        node.take(at);
        for &(parent, at) in path[..levels - 1].iter().rev() {
            self.tidy(parent, at);
        }
        while !self.nodes[self.root as usize].leaf && self.nodes[self.root as usize].len <= 1 {
            let root = &self.nodes[self.root as usize];
            let only = (root.len == 1).then_some(root.links[0]);
            self.free.push(self.root);
            self.root = match only {
                Some(child) => child,
                None => self.allocate(true),
            };
        }
        self.len -= 1;
        Some(slot)
    }

    /// The smallest.
    pub fn first(&self) -> Option<Ranked> {
        let mut node = &self.nodes[self.root as usize];
        if node.len == 0 {
            return None;
        }
        while !node.leaf {
            node = &self.nodes[node.links[0] as usize];
        }
        Some(entry(node, 0))
    }

    /// The smallest that is not before (key, seq).
    pub fn at_or_after(&self, key: u64, seq: u64) -> Option<Ranked> {
        let first = packed(key, seq);
        let mut node = &self.nodes[self.root as usize];
        let mut right: Option<u32> = None; // the subtree just right of the way down
        while !node.leaf {
            let at = node.place(first);
            if at + 1 < node.len {
                right = Some(node.links[at + 1]);
            }
            node = &self.nodes[node.links[at] as usize];
        }
        let at = node.firsts[..node.len].iter().filter(|f| **f < first).count();
        if at < node.len {
            return Some(entry(node, at));
        }
        let mut node = &self.nodes[right? as usize];
        while !node.leaf {
            node = &self.nodes[node.links[0] as usize];
        }
        Some(entry(node, 0))
    }

    /// How many keys are smaller than `key`.
    pub fn count_below(&self, key: u64) -> usize {
        let first = packed(key, 0);
        let mut node = &self.nodes[self.root as usize];
        let mut below = 0;
        while !node.leaf {
            let at = node.place(first);
            below += node.counts[..at].iter().sum::<u32>() as usize;
            node = &self.nodes[node.links[at] as usize];
        }
        below + node.firsts[..node.len].iter().filter(|f| **f < first).count()
    }

    /// LST_1 = min over ranks i of (key_i − i·δ), negative where even starting at zero were too late; `None`
    /// while empty.
    pub fn latest_start(&self) -> Option<i64> {
        (self.len > 0).then(|| self.nodes[self.root as usize].sum(self.delta).1)
    }

    /// δ in force.
    pub fn delta(&self) -> u64 {
        self.delta as u64
    }

    /// Changes δ, at the cost of looking at every entry.
    pub fn set_delta(&mut self, delta: u64) {
        let delta = delta.min(DELTA_MAX) as i64;
        if delta != self.delta {
            self.delta = delta;
            self.renew(self.root);
        }
    }

    fn alone(&self, key: u64) -> (u32, i64) {
        (1, i64::try_from(key).unwrap_or(KEY_MAX).min(KEY_MAX) - self.delta)
    }

    fn renew(&mut self, node: u32) -> (u32, i64) {
        for i in 0..self.nodes[node as usize].len {
            let n = &self.nodes[node as usize];
            let (leaf, link, key) = (n.leaf, n.links[i], (n.firsts[i] >> 64) as u64);
            let (count, min) = if leaf { self.alone(key) } else { self.renew(link) };
            let n = &mut self.nodes[node as usize];
            (n.counts[i], n.mins[i]) = (count, min);
        }
        self.nodes[node as usize].sum(self.delta)
    }

    /// From the root to the leaf where `first` is or would be: nodes, and the place in each.
    fn descend(&self, first: u128) -> ([(u32, usize); LEVELS], usize) {
        let mut path = [(0, 0); LEVELS];
        let (mut levels, mut at) = (0, self.root);
        loop {
            let node = &self.nodes[at as usize];
            path[levels] = (at, node.place(first));
            levels += 1;
            if node.leaf {
                return (path, levels);
            }
            at = node.links[path[levels - 1].1];
        }
    }

    fn allocate(&mut self, leaf: bool) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize].len = 0;
                self.nodes[index as usize].leaf = leaf;
                index
            }
            None => {
                self.nodes.push(Node::empty(leaf));
                (self.nodes.len() - 1) as u32
            }
        }
    }

    /// Puts an entry into a node; a full one is split first, and the new right half returned.
    fn put(&mut self, node: u32, at: usize, first: u128, link: u32, sum: (u32, i64)) -> Option<u32> {
        if self.nodes[node as usize].len < CAP {
            self.nodes[node as usize].put(at, first, link, sum);
            return None;
        }
        // Entries mostly come in ascending order: then the left half stays nearly full.
        let cut = if at == CAP { CAP - FEW } else { CAP / 2 };
        let right = self.allocate(self.nodes[node as usize].leaf);
        let [left, new] =
            self.nodes.get_disjoint_mut([node as usize, right as usize]).expect("a new node is another");
        new.append(left, cut);
        left.len = cut;
        if at <= cut {
            left.put(at, first, link, sum);
        } else {
            new.put(at - cut, first, link, sum);
        }
        Some(right)
    }

    /// Writes the sum of the child at `at` anew.
    fn refresh(&mut self, parent: u32, at: usize) {
        let child = &self.nodes[self.nodes[parent as usize].links[at] as usize];
        let (first, (count, min)) = (child.firsts[0], child.sum(self.delta));
        let parent = &mut self.nodes[parent as usize];
        (parent.firsts[at], parent.counts[at], parent.mins[at]) = (first, count, min);
    }

    /// After a removal below: an empty child goes, a small one joins a neighbour, and the sum is written anew.
    fn tidy(&mut self, parent: u32, at: usize) {
        let links = &self.nodes[parent as usize].links;
        let (child, children) = (links[at], self.nodes[parent as usize].len);
        let len = self.nodes[child as usize].len;
        if len == 0 {
            self.nodes[parent as usize].take(at);
            self.free.push(child);
            return;
        }
        if len < FEW {
            let lefts = [at.checked_sub(1), (at + 1 < children).then_some(at)];
            for left in lefts.into_iter().flatten() {
                let (a, b) = (links[left], links[left + 1]);
                if self.nodes[a as usize].len + self.nodes[b as usize].len > CAP {
                    continue;
                }
                let [into, from] =
                    self.nodes.get_disjoint_mut([a as usize, b as usize]).expect("neighbours are two nodes");
                into.append(from, 0);
                self.nodes[parent as usize].take(left + 1);
                self.free.push(b);
                self.refresh(parent, left);
                return;
            }
        }
        self.refresh(parent, at);
    }
}

fn entry(node: &Node, at: usize) -> Ranked {
    let first = node.firsts[at];
    Ranked { key: (first >> 64) as u64, seq: first as u64, slot: node.links[at] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Stonehenge, equation (4), as the paper writes it.
    fn recursive(keys: &[u64], delta: i64) -> Option<i64> {
        keys.iter().rev().fold(None, |next, &ft| {
            let ft = ft as i64;
            Some(next.map_or(ft, |lst: i64| lst.min(ft)) - delta)
        })
    }

    fn naive(keys: &[u64], delta: i64) -> Option<i64> {
        keys.iter().zip(1..).map(|(&ft, i)| ft as i64 - i * delta).min()
    }

    #[test]
    fn the_example_of_the_head() {
        let mut tree = RankTree::new();
        tree.set_delta(10);
        for (seq, key) in [80, 25, 30].into_iter().enumerate() {
            tree.insert(Ranked { key, seq: seq as u64, slot: seq as u32 });
        }
        assert_eq!(tree.latest_start(), Some(10));
        assert_eq!(tree.remove(30, 2), Some(2));
        assert_eq!(tree.latest_start(), Some(15));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Everything the tree answers, against a sorted list, while entries come and go and δ changes.
        #[test]
        fn agrees_with_a_sorted_list(
            operations in prop::collection::vec((0u8..10, 0u64..400, any::<prop::sample::Index>()), 1..1500),
            deltas in prop::collection::vec(0u64..50, 1..8),
        ) {
            let mut tree = RankTree::new();
            let mut list: Vec<(u64, u64, u32)> = Vec::new();
            let every = operations.len().div_ceil(deltas.len());
            for (i, (what, key, which)) in operations.iter().enumerate() {
                if i % every == 0 {
                    tree.set_delta(deltas[i / every]);
                }
                // Rises through the first half, falls through the second.
                if (*what < 7) == (i < operations.len() / 2) || list.is_empty() {
                    tree.insert(Ranked { key: *key, seq: i as u64, slot: i as u32 });
                    let entry = (*key, i as u64, i as u32);
                    list.insert(list.partition_point(|e| *e < entry), entry);
                } else {
                    let (key, seq, slot) = list.remove(which.index(list.len()));
                    prop_assert_eq!(tree.remove(key, seq), Some(slot));
                    prop_assert_eq!(tree.remove(key, seq), None);
                }
                let keys: Vec<u64> = list.iter().map(|e| e.0).collect();
                let delta = tree.delta() as i64;
                prop_assert_eq!(tree.len(), list.len());
                prop_assert_eq!(tree.latest_start(), recursive(&keys, delta));
                prop_assert_eq!(tree.latest_start(), naive(&keys, delta));
                prop_assert_eq!(tree.first().map(|r| (r.key, r.seq, r.slot)), list.first().copied());
                let from = list.partition_point(|e| e.0 < *key);
                prop_assert_eq!(tree.count_below(*key), from);
                prop_assert_eq!(tree.at_or_after(*key, 0).map(|r| (r.key, r.seq, r.slot)), list.get(from).copied());
            }
        }
    }

    /// A queue that moves through ten thousand keys again and again lives in the nodes it first took.
    #[test]
    fn warm_trees_allocate_nothing() {
        let mut tree = RankTree::new();
        let mut seq = 0;
        let mut turn = |tree: &mut RankTree| {
            for i in 0..10_000u64 {
                tree.insert(Ranked { key: seq * 10_000 + i * 7_919 % 10_000, seq, slot: 0 });
                seq += 1;
            }
            while let Some(first) = tree.first() {
                tree.remove(first.key, first.seq);
            }
        };
        turn(&mut tree);
        let nodes = tree.nodes.len();
        for _ in 0..5 {
            turn(&mut tree);
        }
        assert!(tree.nodes.len() <= nodes + nodes / 8, "{} nodes grew to {}", nodes, tree.nodes.len());
        assert!(nodes < 10_000 / FEW, "{nodes} nodes");
    }
}
