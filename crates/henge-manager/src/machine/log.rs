//! The log that people read: so many events, and nobody's crowd out others'.
//!
//! Where there is no room, the oldest goes of whoever has most. So a tenant that changes its disks without end loses its own past, and not what
//! nodes said of promises meanwhile. What admission refused counts as one's alone.

use crate::model::Event;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Whether it was refused, and whose it is.
type Whose = (bool, Option<String>);

/// Events by number.
pub(super) struct Log {
    events: BTreeMap<u64, Event>,
    by_whom: BTreeMap<Whose, BTreeSet<u64>>,
    most: usize,
}

fn whose(event: &Event) -> Whose {
    (event.kind == "refused", event.tenant.clone())
}

impl Log {
    /// Of at most so many events.
    pub(super) fn new(most: usize) -> Log {
        Log { events: BTreeMap::new(), by_whom: BTreeMap::new(), most }
    }

    /// One more.
    pub(super) fn add(&mut self, event: Event) {
        self.by_whom.entry(whose(&event)).or_default().insert(event.id);
        self.events.insert(event.id, event);
    }

    /// One that has no room any more. The newest always has.
    pub(super) fn take_surplus(&mut self) -> Option<Event> {
        if self.events.len() <= self.most {
            return None;
        }
        let largest = self.by_whom.values().max_by_key(|of| (of.len(), Reverse(of.first().copied())));
        let oldest = largest.and_then(|of| of.first().copied())?;
        self.remove(oldest)
    }

    fn remove(&mut self, id: u64) -> Option<Event> {
        let event = self.events.remove(&id)?;
        if let Some(of) = self.by_whom.get_mut(&whose(&event)) {
            of.remove(&id);
            if of.is_empty() {
                self.by_whom.remove(&whose(&event));
            }
        }
        Some(event)
    }

    pub(super) fn newest(&self) -> Option<&Event> {
        self.events.values().next_back()
    }

    /// Those after one, the oldest first.
    pub(super) fn after(&self, after: u64) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.range(after.saturating_add(1)..).map(|(_, event)| event)
    }

    /// Events of a tenant are somebody else's from now on; as they are then.
    pub(super) fn give(&mut self, tenant: &str, to: &str) -> Vec<Event> {
        let theirs = self.events.values().filter(|event| event.tenant.as_deref() == Some(tenant));
        let ids: Vec<u64> = theirs.map(|event| event.id).collect();
        let mut given = Vec::new();
        for id in ids {
            let Some(event) = self.remove(id) else { continue };
            let event = Event { tenant: Some(to.to_owned()), ..event };
            self.add(event.clone());
            given.push(event);
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: u64, kind: &str, tenant: Option<&str>) -> Event {
        let tenant = tenant.map(str::to_owned);
        Event { id, time: id, kind: kind.into(), disk: None, node: None, tenant, text: String::new() }
    }

    /// How many there are of whom, with the numbers of the oldest and the newest.
    fn kept(log: &Log, tenant: Option<&str>) -> (usize, Option<u64>, Option<u64>) {
        let theirs: Vec<u64> = log.after(0).filter(|e| e.tenant.as_deref() == tenant).map(|e| e.id).collect();
        (theirs.len(), theirs.first().copied(), theirs.last().copied())
    }

    #[test]
    fn nobody_makes_the_log_forget_what_others_did() {
        let mut log = Log::new(50);
        let add = |log: &mut Log, kind: &str, tenant: Option<&str>| {
            let id = log.newest().map_or(1, |newest| newest.id + 1);
            log.add(event(id, kind, tenant));
            let gone = log.take_surplus();
            assert_eq!(log.newest().unwrap().id, id, "numbers never begin anew");
            assert!(log.take_surplus().is_none() && log.after(0).count() <= 50);
            gone
        };
        (0..10).for_each(|_| drop(add(&mut log, "violated", Some("ann"))));
        (0..10).for_each(|_| drop(add(&mut log, "node_down", None)));
        (0..1000).for_each(|_| drop(add(&mut log, "changed", Some("bob"))));
        (0..1000).for_each(|_| drop(add(&mut log, "refused", None)));
        assert_eq!(kept(&log, Some("ann")), (10, Some(1), Some(10)));
        assert_eq!(kept(&log, Some("bob")), (15, Some(1006), Some(1020)));
        let down = log.after(0).filter(|e| e.kind == "node_down").count();
        let refused = log.after(0).filter(|e| e.kind == "refused").count();
        assert_eq!((down, refused), (10, 15));
        assert_eq!(log.after(2019).map(|e| e.id).collect::<Vec<_>>(), [2020]);
        let given = log.give("bob", "bob (removed)");
        assert_eq!(
            (given.len(), kept(&log, Some("bob")).0, kept(&log, Some("bob (removed)")).0),
            (15, 0, 15)
        );
        // One alone.
        let mut log = Log::new(1);
        log.add(event(1, "changed", Some("ann")));
        log.add(event(2, "changed", Some("bob")));
        assert_eq!(log.take_surplus().map(|event| event.id), Some(1));
    }
}
