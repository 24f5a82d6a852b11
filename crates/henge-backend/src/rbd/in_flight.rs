//! Requests that a cluster has, and the list on which they come back.
//!
//! # The problem
//! librbd says on threads of its own that a request is over. The loop must hear of it without a lock, and without a system call for each.
//!
//! # The rule
//! A request is a box that the library holds. Its thread puts it on top of a stack, by one compare-and-swap. Whoever finds the stack empty
//! rings the bell, an event descriptor. The loop takes the whole stack by one swap, and turns it round.
//!
//! # Example
//! Three are over while the loop does something else: the first rings, two find the stack not empty. The loop wakes once and has three.
//!
//! # Guarantee
//! Nothing is on the stack unless the bell was rung after the loop's last look. Boxes come in the order in which they were put.
//!
//! # Price
//! Boxes are used again, so that nothing is allocated for a request. There are as many as requests were ever under way at once.

#![allow(unsafe_code)] // boxes that pass through a C library, and a list of them without a lock

use crate::Buffer;
use henge_core::RequestId;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a cluster is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Ask {
    /// Image to memory.
    #[default]
    Read,
    /// Memory to image.
    Write,
    /// The range reads as zeroes from then on.
    Zero {
        /// It also keeps its room.
        full: bool,
    },
    /// What was written before is durable.
    Flush,
}

/// One request while it is under way.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// Whose.
    pub id: RequestId,
    pub ask: Ask,
    pub offset: u64,
    pub len: u64,
    /// Where in the buffer.
    pub at: usize,
    pub buffer: Buffer,
    /// Bytes, or the negative error number.
    pub result: i64,
    next: Option<ptr::NonNull<InFlight>>,
    completions: Option<Arc<Completions>>,
}

// SAFETY: `next` is only read and written by whoever has the box.
unsafe impl Send for InFlight {}

/// Boxes, each of which keeps its address while the library has it, and is used again.
#[allow(clippy::vec_box)]
pub(crate) type Boxes = Vec<Box<InFlight>>;

/// Those that are over.
#[derive(Debug)]
pub(crate) struct Completions {
    top: AtomicPtr<InFlight>,
    bell: OwnedFd,
}

impl Completions {
    pub(crate) fn new() -> io::Result<Arc<Completions>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Completions { top: AtomicPtr::new(ptr::null_mut()), bell }))
    }

    /// Whom to wait for.
    pub(crate) fn bell(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// There is something to look at, if not here.
    pub(crate) fn ring(&self) {
        // A counter that is full has been rung.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn put(&self, request: Box<InFlight>) {
        let request = Box::into_raw(request);
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // SAFETY: from a box, and not on the stack yet.
            unsafe { (*request).next = ptr::NonNull::new(top) };
            match self.top.compare_exchange_weak(top, request, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => top = now,
            }
        }
        if top.is_null() {
            self.ring();
        }
    }

    /// All that are over, the first first. Those who put more from now on ring.
    pub(crate) fn take(&self, into: &mut Boxes) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let from = into.len();
        let mut top = ptr::NonNull::new(self.top.swap(ptr::null_mut(), Ordering::Acquire));
        while let Some(request) = top {
            // SAFETY: from a box in `put`; the swap has made it ours alone.
            let mut request = unsafe { Box::from_raw(request.as_ptr()) };
            top = request.next.take();
            into.push(request);
        }
        into[from..].reverse();
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        self.take(&mut Vec::new());
    }
}

impl InFlight {
    /// Is handed to the library: its address, by which it [completes](Self::complete).
    pub(crate) fn hand_out(mut self: Box<Self>, completions: &Arc<Completions>) -> *mut InFlight {
        self.completions = Some(Arc::clone(completions));
        Box::into_raw(self)
    }

    /// Is over.
    ///
    /// # Safety
    /// `request` comes from [`hand_out`](Self::hand_out), and completes once.
    pub(crate) unsafe fn complete(request: *mut InFlight, result: i64) {
        // SAFETY: from a box in `hand_out`, and nobody else has it.
        let mut request = unsafe { Box::from_raw(request) };
        request.result = result;
        // Not on the stack with it: the last to know the stack would be in it.
        let completions = request.completions.take().expect("it was handed out");
        completions.put(request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(offset: u64) -> Box<InFlight> {
        Box::new(InFlight { offset, ..InFlight::default() })
    }

    fn is_rung(completions: &Completions) -> bool {
        rustix::io::read(&completions.bell, &mut [0; 8]).is_ok()
    }

    fn complete(request: *mut InFlight) {
        // SAFETY: the tests complete each once.
        unsafe { InFlight::complete(request, 7) };
    }

    #[test]
    fn the_first_rings_and_all_come_in_order() {
        let completions = Completions::new().unwrap();
        let out: Vec<*mut InFlight> = (0..3).map(|i| request(i).hand_out(&completions)).collect();
        assert!(!is_rung(&completions));
        complete(out[0]);
        assert!(is_rung(&completions));
        out[1..].iter().for_each(|request| complete(*request));
        assert!(!is_rung(&completions), "it was not empty");
        let mut all = Vec::new();
        completions.take(&mut all);
        assert_eq!(all.iter().map(|f| (f.offset, f.result)).collect::<Vec<_>>(), [(0, 7), (1, 7), (2, 7)]);
        complete(request(4).hand_out(&completions));
        assert!(is_rung(&completions));
    }

    #[test]
    fn several_threads_lose_none_and_the_bell_tells_of_the_last() {
        let completions = Completions::new().unwrap();
        let threads: Vec<_> = (0..4u64)
            .map(|t| {
                let completions = Arc::clone(&completions);
                std::thread::spawn(move || {
                    (0..1000).for_each(|i| complete(request(t * 1000 + i).hand_out(&completions)));
                })
            })
            .collect();
        let mut all = Vec::new();
        while all.len() < 4000 {
            let mut fds = [rustix::event::PollFd::new(&completions.bell, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, None).unwrap(); // for ever, if one came without a ring
            completions.take(&mut all);
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        for t in 0..4 {
            let of: Vec<u64> = all.iter().map(|f| f.offset).filter(|o| o / 1000 == t).collect();
            assert!(of.is_sorted() && of.len() == 1000);
        }
    }

    #[test]
    fn what_lands_after_everybody_has_gone_is_freed() {
        let completions = Completions::new().unwrap();
        let weak = Arc::downgrade(&completions);
        let late = request(0).hand_out(&completions);
        drop(completions);
        complete(late);
        assert!(weak.upgrade().is_none());
    }
}
