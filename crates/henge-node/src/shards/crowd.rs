//! Which loop serves the next client of a pool that all of them serve.
//!
//! The problem: the kernel wakes whichever loop sleeps for a connection that comes. So one loop may accept all of a pool's clients while the others
//! have nothing to do. The rule: a client counts [`CLIENT`] at the loop that talks to it, and [`GATE`] at the loop that has its gate. Whoever
//! accepts it sends it to the loop with the least, or keeps it where none has less.
//!
//! Example: two loops, the gate on loop 0, and six clients. Loop 1 gets the first (10 there, 3 at loop 0), loop 0 the second (16 : 10), loop 1 the
//! next two (22 : 30), loop 0 one (35 : 30), loop 1 the last: two clients and all gates here, four clients there.
//!
//! Price: two atomic operations for a client that comes or goes. Clients count alike, however busy they are; none moves again.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What talking to a client counts.
const CLIENT: usize = 10;
/// What its requests count at their gate: about as much less as a request's way through a gate takes less than its way through a socket
/// (`make bench-cores`).
const GATE: usize = 3;

/// By loop, what its clients count.
#[derive(Default)]
pub(crate) struct Crowd(Vec<AtomicUsize>);

impl Crowd {
    pub(super) fn new(loops: usize) -> Crowd {
        Crowd((0..loops).map(|_| AtomicUsize::new(0)).collect())
    }

    /// How many loops there are.
    pub(crate) fn loops(&self) -> usize {
        self.0.len()
    }

    /// A client is served by loop `at`, and its gate is at `gate`.
    pub(crate) fn enter(&self, at: usize, gate: usize) {
        self.0[at].fetch_add(CLIENT, Ordering::Relaxed);
        self.0[gate].fetch_add(GATE, Ordering::Relaxed);
    }

    /// It is gone.
    pub(crate) fn leave(&self, at: usize, gate: usize) {
        self.0[at].fetch_sub(CLIENT, Ordering::Relaxed);
        self.0[gate].fetch_sub(GATE, Ordering::Relaxed);
    }

    /// Who is to serve a client that came to loop `here` and whose gate is at `gate`. A loop without the gate is preferred.
    pub(crate) fn place(&self, here: usize, gate: usize) -> usize {
        let rank = |at: &usize| (self.0[*at].load(Ordering::Relaxed), *at == gate, *at != here);
        (0..self.0.len()).min_by_key(rank).unwrap_or(here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By loop, how many of so many clients each gets, who all come to that one.
    fn placed(loops: usize, clients: usize, here: usize) -> Vec<usize> {
        let (crowd, mut all) = (Crowd::new(loops), vec![0; loops]);
        for _ in 0..clients {
            let at = crowd.place(here, 0);
            crowd.enter(at, 0);
            all[at] += 1;
        }
        all
    }

    #[test]
    fn the_example_of_the_head() {
        for here in [0, 1] {
            assert_eq!(placed(2, 6, here), [2, 4]);
        }
        assert_eq!(placed(8, 7, 3), [0, 1, 1, 1, 1, 1, 1, 1], "one that has no gate is there for each");
        assert_eq!(placed(1, 5, 0), [5]);
    }

    #[test]
    fn who_goes_makes_room() {
        let crowd = Crowd::new(3);
        [1, 2, 1].iter().for_each(|at| crowd.enter(*at, 0));
        assert_eq!(crowd.place(1, 0), 0);
        crowd.leave(1, 0);
        crowd.leave(1, 0);
        assert_eq!(crowd.place(2, 0), 1);
    }
}
