//! A heap whose items are indices (flows, or slots of requests) that know their position in it, so that any of them
//! can be moved or removed in O(log n).
//!
//! Four children a node: a tree half as deep as a binary one, whose children lie side by side in memory. Keys stand
//! in the heap's own array, so that comparing touches nothing else. Equal keys leave in the order of their index.

/// Not in the heap.
const OUT: u32 = u32::MAX;
const ARITY: usize = 4;
/// So many are looked at when they are counted.
const COUNTED: usize = 4096;

/// By key, then by index; spelled out, because comparing the pairs compares keys twice.
fn before<K: Ord>(a: &(K, u32), b: &(K, u32)) -> bool {
    a.0 < b.0 || (a.0 == b.0 && a.1 < b.1)
}

/// A smallest-first heap over indices.
///
/// ```
/// use henge_sched::IndexedHeap;
/// let mut heap = IndexedHeap::new();
/// heap.set(7, 30);
/// heap.set(2, 20);
/// heap.set(7, 10); // moved
/// assert_eq!(heap.peek(), Some((7, 10)));
/// assert_eq!(heap.remove(7), Some(10));
/// assert_eq!(heap.pop(), Some((2, 20)));
/// ```
#[derive(Clone)]
pub struct IndexedHeap<K> {
    items: Vec<(K, u32)>,
    /// Where each index stands in `items`.
    positions: Vec<u32>,
}

impl<K: Ord + Copy> Default for IndexedHeap<K> {
    fn default() -> Self {
        IndexedHeap { items: Vec::new(), positions: Vec::new() }
    }
}

impl<K: Ord + Copy> IndexedHeap<K> {
    /// An empty heap.
    pub fn new() -> Self {
        Self::default()
    }
    /// How many are in it.
    pub fn len(&self) -> usize {
        self.items.len()
    }
    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
    /// The smallest.
    pub fn peek(&self) -> Option<(u32, K)> {
        self.items.first().map(|&(key, index)| (index, key))
    }
    /// The key of `index`.
    pub fn get(&self, index: u32) -> Option<K> {
        self.position(index).map(|at| self.items[at].0)
    }
    /// Whether `index` is in it.
    pub fn contains(&self, index: u32) -> bool {
        self.position(index).is_some()
    }
    /// How many have such a key. Of more than some thousands, as many as there would be if the rest were like every n-th.
    pub fn count(&self, such: impl Fn(&K) -> bool) -> usize {
        let nth = self.items.len().div_ceil(COUNTED).max(1);
        let seen = self.items.len().div_ceil(nth);
        let found = self.items.iter().step_by(nth).filter(|(key, _)| such(key)).count();
        if nth == 1 { found } else { found * self.items.len() / seen }
    }

    /// Puts `index` in, or moves it to a new key.
    pub fn set(&mut self, index: u32, key: K) {
        let item = (key, index);
        match self.position(index) {
            Some(at) if before(&item, &self.items[at]) => self.rise(at, item),
            Some(at) => self.sink(at, item),
            None => {
                if self.positions.len() <= index as usize {
                    self.positions.resize(index as usize + 1, OUT);
                }
                self.items.push(item);
                self.rise(self.items.len() - 1, item);
            }
        }
    }

    /// Takes `index` out.
    pub fn remove(&mut self, index: u32) -> Option<K> {
        let at = self.position(index)?;
        let key = self.items[at].0;
        self.positions[index as usize] = OUT;
        let last = self.items.pop().expect("something is in it");
        if at < self.items.len() {
            if before(&last, &self.items[at]) { self.rise(at, last) } else { self.sink(at, last) }
        }
        Some(key)
    }

    /// Takes the smallest out.
    pub fn pop(&mut self) -> Option<(u32, K)> {
        let (index, key) = self.peek()?;
        self.remove(index);
        Some((index, key))
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.items.clear();
        self.positions.fill(OUT);
    }

    fn position(&self, index: u32) -> Option<usize> {
        match self.positions.get(index as usize) {
            None | Some(&OUT) => None,
            Some(&at) => Some(at as usize),
        }
    }

    fn rise(&mut self, mut at: usize, item: (K, u32)) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if before(&self.items[parent], &item) {
                break;
            }
            self.put(at, self.items[parent]);
            at = parent;
        }
        self.put(at, item);
    }

    fn sink(&mut self, mut at: usize, item: (K, u32)) {
        loop {
            let first = at * ARITY + 1;
            let end = self.items.len().min(first + ARITY);
            let Some(children) = self.items.get(first..end) else { break };
            let Some((&(mut least), others)) = children.split_first() else { break };
            let mut offset = 0;
            for (i, &child) in others.iter().enumerate() {
                if before(&child, &least) {
                    (least, offset) = (child, i + 1);
                }
            }
            if !before(&least, &item) {
                break;
            }
            self.put(at, least);
            at = first + offset;
        }
        self.put(at, item);
    }

    fn put(&mut self, at: usize, item: (K, u32)) {
        self.items[at] = item;
        self.positions[item.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against a map that is searched for its smallest.
        #[test]
        fn behaves_like_a_sorted_map(ops in proptest::collection::vec((0u8..5, 0u32..40, 0u8..20), 1..400)) {
            let mut heap = IndexedHeap::new();
            let mut model: BTreeMap<u32, u8> = BTreeMap::new();
            for (op, index, key) in ops {
                match op {
                    0..=2 => {
                        heap.set(index, key);
                        model.insert(index, key);
                    }
                    3 => prop_assert_eq!(heap.remove(index), model.remove(&index)),
                    _ => {
                        let least = model.iter().map(|(&i, &k)| (k, i)).min();
                        prop_assert_eq!(heap.pop(), least.map(|(k, i)| (i, k)));
                        least.map(|(_, i)| model.remove(&i));
                    }
                }
                prop_assert_eq!(heap.len(), model.len());
                prop_assert_eq!(heap.get(index), model.get(&index).copied());
                let least = model.iter().map(|(&i, &k)| (k, i)).min();
                prop_assert_eq!(heap.peek(), least.map(|(k, i)| (i, k)));
            }
        }
    }
}
