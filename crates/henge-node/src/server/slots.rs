//! Slots for connections: of the whole node, of each address, of each disk; and who has not said yet what it wants.
//!
//! The problem: connections are few, and cost nothing to open. Four thousand idle ones of one client lock everybody out. The rule: an
//! address has at most half of the node's slots, a disk a quarter (`connections_per_address`, `connections_per_disk`). Connections
//! that have not chosen a disk yet have at most a quarter, and the oldest of them makes way for a new one. Clients of a Unix socket have no address:
//! the system says who may come there.
//!
//! Where a node has several loops, they count together: behind a lock, which is taken when a connection comes and when it goes. Of those
//! that have not chosen a disk each loop has its part.
//!
//! Example: 4096 slots. One host opens 5000 connections: 2048 stay. All of them at one disk: 1024. Two hosts that say nothing: 1024
//! between them, of which each newcomer takes the oldest's; whoever says what it wants within that time is in.

use crate::link::whom;
use henge_core::RequestId;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// How many there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Most {
    pub all: usize,
    pub per_address: usize,
    pub per_disk: usize,
}

/// Who has how many, at all loops of the node.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    all: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

/// Slots, as one loop gives them.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    pub most: Most,
    counts: Arc<Counts>,
    /// Connections that may not have chosen a disk, the oldest first.
    undecided: VecDeque<RequestId>,
    undecided_max: usize,
}

impl Counts {
    /// Connections of all loops.
    #[cfg(test)]
    pub(crate) fn all(&self) -> usize {
        self.with(|counted| counted.all)
    }

    fn with<T>(&self, what: impl FnOnce(&mut Counted) -> T) -> T {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ConnectionSlots {
    /// As one of several loops that count together.
    pub(crate) fn new(most: Most, counts: Arc<Counts>, loops: usize) -> ConnectionSlots {
        // A connection's number has 24 bits.
        let most = Most { all: most.all.min(0xff_ffff), ..most };
        ConnectionSlots {
            most,
            counts,
            undecided: VecDeque::new(),
            undecided_max: (most.all / 4 / loops).max(1),
        }
    }

    /// Whether one more connection may come. If so it is counted, for its address too.
    pub(crate) fn admit(&mut self, address: Option<IpAddr>) -> bool {
        self.counts.with(|counted| {
            if counted.all >= self.most.all {
                return false;
            }
            if let Some(address) = address.map(whom) {
                let count = counted.by_address.entry(address).or_default();
                if *count >= self.most.per_address {
                    return false;
                }
                *count += 1;
            }
            counted.all += 1;
            true
        })
    }

    /// One of that address is gone.
    pub(crate) fn leave(&mut self, address: Option<IpAddr>) {
        self.counts.with(|counted| {
            counted.all -= 1;
            let Some(address) = address.map(whom) else { return };
            if let Some(count) = counted.by_address.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    counted.by_address.remove(&address);
                }
            }
        });
    }

    /// One has come and said nothing yet. Where there are too many of that kind: the oldest, which makes way. `decided` knows who is gone or has
    /// chosen a disk.
    pub(crate) fn arrived(
        &mut self,
        id: RequestId,
        decided: impl Fn(RequestId) -> bool,
    ) -> Option<RequestId> {
        self.undecided.push_back(id);
        let most = self.undecided_max;
        // Two looks for each that comes: connections that have decided do not pile up.
        for _ in 0..2 {
            if self.undecided.front().is_some_and(|id| decided(*id)) {
                self.undecided.pop_front();
            }
        }
        if self.undecided.len() <= most {
            return None;
        }
        while let Some(oldest) = self.undecided.pop_front() {
            if !decided(oldest) {
                return Some(oldest);
            }
            if self.undecided.len() <= most {
                return None;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Most = Most { all: 100, per_address: 50, per_disk: 25 };

    fn id(n: u32) -> RequestId {
        RequestId { slot: n, generation: 0 }
    }

    fn alone(most: Most) -> ConnectionSlots {
        ConnectionSlots::new(most, Arc::default(), 1)
    }

    #[test]
    fn an_address_has_half_and_gives_it_back() {
        let mut slots = alone(MOST);
        let (one, other) = ("192.0.2.1".parse().ok(), "192.0.2.2".parse().ok());
        let admitted = (0..5000).filter(|_| slots.admit(one)).count();
        assert_eq!(admitted, 50);
        assert!(slots.admit(other) && slots.admit(None));
        assert_eq!((0..5000).filter(|_| slots.admit(None)).count(), 48, "the node has so many in all");
        slots.leave(None);
        slots.leave(one);
        assert!(slots.admit(one) && !slots.admit(one));
        (0..50).for_each(|_| slots.leave(one));
        assert_eq!(
            slots.counts.with(|counted| counted.by_address.len()),
            1,
            "nobody is remembered who is gone"
        );
        // The same host by IPv4 in IPv6, and a subscriber's whole network.
        (0..40).for_each(|_| slots.leave(None));
        let mapped = (0..100).filter(|_| slots.admit("::ffff:192.0.2.1".parse().ok())).count();
        assert_eq!((mapped, slots.admit(one)), (50, false));
        (0..50).for_each(|_| slots.leave(one));
        let network =
            (0..100u16).filter(|n| slots.admit(Some(IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, *n]))));
        assert_eq!(network.count(), 50);
    }

    #[test]
    fn loops_count_together() {
        let counts: Arc<Counts> = Arc::default();
        let mut loops = [0, 1].map(|_| ConnectionSlots::new(MOST, Arc::clone(&counts), 2));
        let one = "192.0.2.1".parse().ok();
        let admitted = (0..200).filter(|n| loops[n % 2].admit(one)).count();
        assert_eq!(admitted, 50);
        // It came to one of them and goes from the other.
        loops[0].leave(one);
        assert!(loops[1].admit(one) && !loops[0].admit(one));
        assert_eq!((0..200).filter(|n| loops[n % 2].admit(None)).count(), 50);
        let nobody = |_| false;
        assert!(
            (0..12).all(|n| loops[1].arrived(id(n), nobody).is_none()),
            "each has its part of the silent"
        );
        assert_eq!(loops[1].arrived(id(12), nobody), Some(id(0)));
    }

    #[test]
    fn the_oldest_that_says_nothing_makes_way() {
        let mut slots = alone(MOST);
        let nobody = |_| false;
        assert!((0..25).all(|n| slots.arrived(id(n), nobody).is_none()));
        assert_eq!(slots.arrived(id(25), nobody), Some(id(0)));
        // Connections that have chosen a disk stay, however old they are, and are forgotten here.
        let even = |id: RequestId| id.slot.is_multiple_of(2);
        assert_eq!(slots.arrived(id(26), even), Some(id(1)));
        (28..10_000).for_each(|n| assert_eq!(slots.arrived(id(n), |_| true), None));
        assert!(slots.undecided.len() <= 26, "{}", slots.undecided.len());
    }
}
