//! The orders in which disks with something waiting stand: by their clocks, and by when they become urgent.

use super::disk::{Clock, LocalityDisk};
use crate::IndexedHeap;
use henge_core::FlowId;

/// Disks with something waiting.
pub(super) struct Orders {
    /// By V; all, and the throughput-conscious.
    pub ready: IndexedHeap<Clock>,
    pub ready_average: IndexedHeap<Clock>,
    /// Latency-conscious disks, by when they become urgent; of all, and of what can be met.
    pub urgent: IndexedHeap<i64>,
    pub must: IndexedHeap<i64>,
    /// Disks of `must` that have the right to the device (V ≤ S), by the same; the others, by V.
    pub entitled: IndexedHeap<i64>,
    pub unentitled: IndexedHeap<Clock>,
}

impl Orders {
    pub fn new() -> Self {
        Orders {
            ready: IndexedHeap::new(),
            ready_average: IndexedHeap::new(),
            urgent: IndexedHeap::new(),
            must: IndexedHeap::new(),
            entitled: IndexedHeap::new(),
            unentitled: IndexedHeap::new(),
        }
    }

    fn by_clock(&mut self) -> [&mut IndexedHeap<Clock>; 3] {
        [&mut self.ready, &mut self.ready_average, &mut self.unentitled]
    }
    fn by_urgency(&mut self) -> [&mut IndexedHeap<i64>; 3] {
        [&mut self.urgent, &mut self.must, &mut self.entitled]
    }

    /// Puts a disk where its clock and its queue say, by the system clock S.
    pub fn place(&mut self, flow: FlowId, disk: &LocalityDisk, s: Clock) {
        self.ready.set(flow.0, disk.v);
        if disk.average.is_some() {
            self.ready_average.set(flow.0, disk.v);
        }
        let (urgent, must) = disk.bound.as_ref().map_or((None, None), |b| b.urgent_at());
        let entitled = must.filter(|_| disk.v <= s);
        for (heap, at) in self.by_urgency().into_iter().zip([urgent, must, entitled]) {
            match at {
                Some(at) => heap.set(flow.0, at),
                None => drop(heap.remove(flow.0)),
            }
        }
        match (must, entitled) {
            (Some(_), None) => self.unentitled.set(flow.0, disk.v),
            _ => drop(self.unentitled.remove(flow.0)),
        }
    }

    /// Nothing of the disk waits.
    pub fn remove(&mut self, flow: FlowId) {
        for heap in self.by_clock() {
            heap.remove(flow.0);
        }
        for heap in self.by_urgency() {
            heap.remove(flow.0);
        }
    }

    pub fn clear(&mut self) {
        for heap in self.by_clock() {
            heap.clear();
        }
        for heap in self.by_urgency() {
            heap.clear();
        }
    }
}
