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
pub(crate) struct Flight {
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
    next: Option<ptr::NonNull<Flight>>,
    home: Option<Arc<Landed>>,
}

// SAFETY: `next` is only read and written by whoever has the box.
unsafe impl Send for Flight {}

/// Boxes, each of which keeps its address while the library has it, and is used again.
#[allow(clippy::vec_box)]
pub(crate) type Flights = Vec<Box<Flight>>;

/// Those that are over.
#[derive(Debug)]
pub(crate) struct Landed {
    top: AtomicPtr<Flight>,
    bell: OwnedFd,
}

impl Landed {
    pub(crate) fn new() -> io::Result<Arc<Landed>> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Landed { top: AtomicPtr::new(ptr::null_mut()), bell }))
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

    fn put(&self, flight: Box<Flight>) {
        let flight = Box::into_raw(flight);
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            // SAFETY: from a box, and not on the stack yet.
            unsafe { (*flight).next = ptr::NonNull::new(top) };
            match self.top.compare_exchange_weak(top, flight, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => top = now,
            }
        }
        if top.is_null() {
            self.ring();
        }
    }

    /// All that are over, the first first. Those who put more from now on ring.
    pub(crate) fn take(&self, into: &mut Flights) {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let from = into.len();
        let mut top = ptr::NonNull::new(self.top.swap(ptr::null_mut(), Ordering::Acquire));
        while let Some(flight) = top {
            // SAFETY: from a box in `put`; the swap has made it ours alone.
            let mut flight = unsafe { Box::from_raw(flight.as_ptr()) };
            top = flight.next.take();
            into.push(flight);
        }
        into[from..].reverse();
    }
}

impl Drop for Landed {
    fn drop(&mut self) {
        self.take(&mut Vec::new());
    }
}

impl Flight {
    /// Sets out: its address, by which it [`lands`](Self::land).
    pub(crate) fn set_out(mut self: Box<Self>, home: &Arc<Landed>) -> *mut Flight {
        self.home = Some(Arc::clone(home));
        Box::into_raw(self)
    }

    /// Is over.
    ///
    /// # Safety
    /// `flight` comes from [`set_out`](Self::set_out), and lands once.
    pub(crate) unsafe fn land(flight: *mut Flight, result: i64) {
        // SAFETY: from a box in `set_out`, and nobody else has it.
        let mut flight = unsafe { Box::from_raw(flight) };
        flight.result = result;
        // Not on the stack with it: the last to know the stack would be in it.
        let home = flight.home.take().expect("it set out from somewhere");
        home.put(flight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight(offset: u64) -> Box<Flight> {
        Box::new(Flight { offset, ..Flight::default() })
    }

    fn is_rung(landed: &Landed) -> bool {
        rustix::io::read(&landed.bell, &mut [0; 8]).is_ok()
    }

    fn land(flight: *mut Flight) {
        // SAFETY: the tests land each once.
        unsafe { Flight::land(flight, 7) };
    }

    #[test]
    fn the_first_rings_and_all_come_in_order() {
        let landed = Landed::new().unwrap();
        let out: Vec<*mut Flight> = (0..3).map(|i| flight(i).set_out(&landed)).collect();
        assert!(!is_rung(&landed));
        land(out[0]);
        assert!(is_rung(&landed));
        out[1..].iter().for_each(|flight| land(*flight));
        assert!(!is_rung(&landed), "it was not empty");
        let mut all = Vec::new();
        landed.take(&mut all);
        assert_eq!(all.iter().map(|f| (f.offset, f.result)).collect::<Vec<_>>(), [(0, 7), (1, 7), (2, 7)]);
        land(flight(4).set_out(&landed));
        assert!(is_rung(&landed));
    }

    #[test]
    fn several_threads_lose_none_and_the_bell_tells_of_the_last() {
        let landed = Landed::new().unwrap();
        let threads: Vec<_> = (0..4u64)
            .map(|t| {
                let landed = Arc::clone(&landed);
                std::thread::spawn(move || {
                    (0..1000).for_each(|i| land(flight(t * 1000 + i).set_out(&landed)));
                })
            })
            .collect();
        let mut all = Vec::new();
        while all.len() < 4000 {
            let mut fds = [rustix::event::PollFd::new(&landed.bell, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, None).unwrap(); // for ever, if one came without a ring
            landed.take(&mut all);
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        for t in 0..4 {
            let of: Vec<u64> = all.iter().map(|f| f.offset).filter(|o| o / 1000 == t).collect();
            assert!(of.is_sorted() && of.len() == 1000);
        }
    }

    #[test]
    fn what_lands_after_everybody_has_gone_is_freed() {
        let landed = Landed::new().unwrap();
        let weak = Arc::downgrade(&landed);
        let late = flight(0).set_out(&landed);
        drop(landed);
        land(late);
        assert!(weak.upgrade().is_none());
    }
}
