//! Tables indexed by the slot of a [`RequestId`]: constant time, no hashing, one allocation per high-water mark.

use crate::RequestId;

/// Hands out [`RequestId`]s, and keeps something for each that is in use.
///
/// ```
/// use henge_core::Pending;
/// let mut pending = Pending::new();
/// let a = pending.insert("a");
/// assert_eq!(pending.remove(a), Some("a"));
/// let b = pending.insert("b");
/// assert_eq!(b.slot, a.slot); // the slot is reused,
/// assert_eq!(pending.get(a), None); // and the old name is dead
/// ```
#[derive(Clone, Debug)]
pub struct Pending<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Pending { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Pending<T> {
    /// Nothing pending.
    pub fn new() -> Self {
        Self::default()
    }
    /// How many are pending.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The id that the next `insert` will give.
    pub fn next_id(&self) -> RequestId {
        match self.free.last() {
            Some(&slot) => RequestId { slot, generation: self.slots[slot as usize].0 },
            None => RequestId { slot: self.slots.len() as u32, generation: 0 },
        }
    }
    /// Keeps `item`, under a new id.
    #[inline]
    pub fn insert(&mut self, item: T) -> RequestId {
        let Some(slot) = self.free.pop() else {
            self.slots.push((0, Some(item)));
            return RequestId { slot: self.slots.len() as u32 - 1, generation: 0 };
        };
        let (generation, place) = &mut self.slots[slot as usize];
        // Said to be empty, so that the item is made in its place, and nothing is dropped there.
        assert!(place.is_none(), "a slot is free");
        *place = Some(item);
        RequestId { slot, generation: *generation }
    }
    /// The id in use at a slot, for callers that know only the slot.
    pub fn in_slot(&self, slot: u32) -> Option<RequestId> {
        let (generation, item) = self.slots.get(slot as usize)?;
        item.as_ref().map(|_| RequestId { slot, generation: *generation })
    }
    /// What was kept under `id`, if it is still in use.
    #[inline]
    pub fn get(&self, id: RequestId) -> Option<&T> {
        let (generation, item) = self.slots.get(id.index())?;
        if *generation == id.generation { item.as_ref() } else { None }
    }
    /// The same, to change it.
    #[inline]
    pub fn get_mut(&mut self, id: RequestId) -> Option<&mut T> {
        let (generation, item) = self.slots.get_mut(id.index())?;
        if *generation == id.generation { item.as_mut() } else { None }
    }
    /// Ends the use of `id`.
    pub fn remove(&mut self, id: RequestId) -> Option<T> {
        let (generation, item) = self.slots.get_mut(id.index())?;
        if *generation != id.generation {
            return None;
        }
        let item = item.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(id.slot);
        Some(item)
    }
    /// The same, of what nobody looks at any more: it is dropped where it lies.
    #[inline]
    pub fn discard(&mut self, id: RequestId) {
        if let Some((generation, item)) = self.slots.get_mut(id.index())
            && *generation == id.generation
            && item.is_some()
        {
            *item = None;
            *generation = generation.wrapping_add(1);
            self.free.push(id.slot);
        }
    }
    /// All in use, by slot, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (RequestId, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(slot, (generation, item))| {
            let id = RequestId { slot: slot as u32, generation: *generation };
            item.as_mut().map(|item| (id, item))
        })
    }
    /// All in use, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (RequestId, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, (generation, item))| {
            item.as_ref().map(|item| (RequestId { slot: slot as u32, generation: *generation }, item))
        })
    }
}
