//! Payload memory: aligned for direct I/O, reused, and bounded.
//!
//! A buffer is a power of two of bytes, at least [`ALIGN`], aligned to [`ALIGN`]. A [`BufferPool`] keeps those
//! that are free by size, so that a warm node allocates nothing per request, and never lets more than its budget
//! be out at once: what cannot be had is not read from the wire.

#![allow(unsafe_code)] // own allocations with an alignment that Vec cannot give

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer, and the smallest: a page, which is what the strictest devices ask for.
pub const ALIGN: usize = 4096;

/// The longest buffer: the longest payload a protocol here accepts (32 MiB), with the blocks around it.
pub const BUFFER_MAX: usize = 64 << 20;

const CLASSES: usize = (BUFFER_MAX / ALIGN).ilog2() as usize + 1;

/// Bytes that a device may read from or write to. Requests without data carry an empty one, which owns nothing.
pub struct Buffer {
    memory: NonNull<u8>,
    /// 0 for the empty buffer and for loans, which own nothing.
    capacity: usize,
    len: usize,
}

// SAFETY: a Buffer is the only owner of its memory, like a Box<[u8]>; nothing in it is bound to a thread.
unsafe impl Send for Buffer {}
// SAFETY: through a shared Buffer the memory can only be read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// No data.
    pub const fn empty() -> Self {
        Buffer { memory: NonNull::dangling(), capacity: 0, len: 0 }
    }

    /// `len` zeroes that belong to no pool. Empty for `len` 0.
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Buffer::empty();
        }
        let capacity = capacity_for(len);
        let layout = layout(capacity);
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Buffer { memory, capacity, len }
    }

    /// Bytes that could be held.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes how many bytes count. Those that come in again are what the buffer held before.
    ///
    /// # Panics
    /// When `len` is above the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "a buffer of {} holds no {len}", self.capacity);
        self.len = len;
    }

    /// The bytes `[at, at + len)` as a buffer of their own, so that parts of one command can be under way at once.
    ///
    /// # Safety
    /// Until the loan is dropped, this buffer is neither dropped nor put back nor moved out of reach, and nobody
    /// touches those bytes through it or through another loan.
    ///
    /// # Panics
    /// When they are not within the buffer.
    pub unsafe fn lend(&mut self, at: usize, len: usize) -> Buffer {
        assert!(at <= self.len && len <= self.len - at, "{at} + {len} is beyond a buffer of {}", self.len);
        // SAFETY: within the allocation, as just asserted.
        Buffer { memory: unsafe { self.memory.add(at) }, capacity: 0, len }
    }

    /// Where the bytes are; for engines that hand them to the kernel.
    pub(crate) fn address(&mut self) -> NonNull<u8> {
        self.memory
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Buffer::empty()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: allocated in `zeroed` with this very layout, and owned by nobody else.
            unsafe { dealloc(self.memory.as_ptr(), layout(self.capacity)) };
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` ≤ capacity bytes, initialized at allocation, or a dangling pointer with len 0;
        // a loan's lender keeps the memory alive.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {})", self.len, self.capacity)
    }
}

fn capacity_for(len: usize) -> usize {
    len.next_power_of_two().max(ALIGN)
}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGN).expect("a power of two aligned to a page is a layout")
}

/// Buffers in use and free ones, by size. Belongs to one thread.
///
/// ```
/// use henge_backend::BufferPool;
/// let mut pool = BufferPool::new(64 << 10);
/// let a = pool.get(40_000).unwrap();
/// assert!(pool.get(4096).is_none()); // 64 KiB are out
/// pool.put(a);
/// assert_eq!(pool.out(), 0);
/// ```
#[derive(Debug)]
pub struct BufferPool {
    free: [Vec<Buffer>; CLASSES],
    budget: usize,
    out: usize,
    kept: usize,
}

impl BufferPool {
    /// At most `budget` bytes out at once; that much, in the worst case, is the memory it takes.
    pub fn new(budget: usize) -> Self {
        BufferPool { free: [const { Vec::new() }; CLASSES], budget, out: 0, kept: 0 }
    }
    /// Bytes that a payload of `len` takes.
    pub fn footprint(len: usize) -> usize {
        if len == 0 { 0 } else { capacity_for(len) }
    }
    /// Bytes out.
    pub fn out(&self) -> usize {
        self.out
    }
    /// Bytes that could still be had.
    pub fn available(&self) -> usize {
        self.budget.saturating_sub(self.out)
    }
    /// Most bytes out at once.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// A buffer of `len` bytes with any content; `None` when that is longer than any, or over the budget.
    pub fn get(&mut self, len: usize) -> Option<Buffer> {
        let fits = BufferPool::footprint(len.min(BUFFER_MAX)) <= self.available();
        if fits || len == 0 { self.get_beyond(len) } else { None }
    }
    /// The same, whatever the budget. `None` when that is longer than any.
    pub fn get_beyond(&mut self, len: usize) -> Option<Buffer> {
        if len == 0 {
            return Some(Buffer::empty());
        }
        if len > BUFFER_MAX {
            return None;
        }
        let capacity = capacity_for(len);
        self.out += capacity;
        if let Some(mut buffer) = self.free[class(capacity)].pop() {
            self.kept -= capacity;
            buffer.set_len(len);
            return Some(buffer);
        }
        self.shrink_to(self.available());
        Some(Buffer::zeroed(len))
    }

    /// Takes a buffer back that `get` gave out.
    pub fn put(&mut self, buffer: Buffer) {
        if buffer.capacity == 0 {
            return;
        }
        assert!(self.out >= buffer.capacity, "a buffer came back that was not out");
        self.out -= buffer.capacity;
        self.kept += buffer.capacity;
        self.free[class(buffer.capacity)].push(buffer);
    }

    /// Frees kept buffers, the longest first, until at most `kept` bytes of them are left.
    fn shrink_to(&mut self, kept: usize) {
        for list in self.free.iter_mut().rev() {
            while self.kept > kept {
                let Some(buffer) = list.pop() else { break };
                self.kept -= buffer.capacity;
            }
        }
    }
}

fn class(capacity: usize) -> usize {
    (capacity / ALIGN).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_the_budget() {
        let mut pool = BufferPool::new(1 << 20);
        let mut out = Vec::new();
        while let Some(buffer) = pool.get(10_000) {
            assert_eq!(buffer.len(), 10_000);
            assert_eq!(buffer.as_ptr() as usize % ALIGN, 0);
            out.push(buffer);
        }
        assert_eq!(out.len(), (1 << 20) / (16 << 10));
        for buffer in out.drain(..) {
            pool.put(buffer);
        }
        assert_eq!(pool.out(), 0);
        // Kept small ones make way for a long one: the memory in all stays within the budget.
        let long = pool.get(1 << 20).unwrap();
        assert_eq!(pool.kept, 0);
        pool.put(long);
        assert_eq!((pool.out, pool.kept), (0, 1 << 20));
    }

    #[test]
    fn what_is_had_beyond_the_budget_counts() {
        let mut pool = BufferPool::new(8192);
        let (one, more) = (pool.get(8192).unwrap(), pool.get_beyond(4096).unwrap());
        assert_eq!((pool.out(), pool.available()), (12_288, 0));
        pool.put(one);
        assert!(pool.get(8192).is_none(), "4 KiB are out");
        pool.put(more);
        assert!(pool.get(8192).is_some());
    }

    #[test]
    fn the_empty_buffer_is_free_of_charge() {
        let mut pool = BufferPool::new(0);
        let none = pool.get(0).unwrap();
        assert!(none.is_empty());
        pool.put(none);
        assert!(pool.get(1).is_none());
        assert!(BufferPool::new(usize::MAX).get(BUFFER_MAX + 1).is_none());
    }
}
