//! Going on after a store that failed: the state is made anew from what is stored, and nodes stay connected.
//!
//! # The problem
//! What nodes say once (who is here by which connection, meters, measurements) is not stored. Whoever makes the state anew without it has to let
//! every node come again. A store that is full fails each change that anybody asks for, so one tenant who asks would disconnect all nodes.
//!
//! # The rule
//! What nodes said is taken over from the state before. A node whose own record was to be stored comes again: what it was told by that is not known.
//! Disks of the batch are ordered anew, since their orders were not sent and the store may have kept the change all the same.
//!
//! What was told once because of a state that was not stored (events, failures, broken promises) is forgotten, and told again.

use super::Machine;
use crate::store::Batch;
use std::collections::BTreeSet;

impl Machine {
    /// Takes over what nodes said before `batch` was not stored. Connections that are over by that: nodes, and their sessions.
    pub(crate) fn resume(&mut self, before: Machine, batch: &Batch) -> Vec<(String, u64)> {
        let keys: BTreeSet<&str> = batch.changes.iter().map(|(key, _)| key.as_str()).collect();
        let mut over = Vec::new();
        // Who has a store that is full change things asks no more often for that.
        self.paces = before.paces;
        let before = before.inventory;
        for (name, old) in before.nodes {
            if let Some(node) = self.inventory.nodes.get_mut(&name) {
                node.found = old.found;
            }
            let Some(session) = old.session else { continue };
            let doubted = keys.contains(format!("node/{name}").as_str());
            match self.inventory.nodes.get_mut(&name).filter(|_| !doubted) {
                Some(node) => {
                    (node.session, node.status, node.seen) = (Some(session), old.status, old.seen);
                    self.inventory.open(&name);
                }
                None => over.push((name, session)),
            }
        }
        self.inventory.measured = before.measured;
        for (key, old) in before.pools {
            let here = self.inventory.nodes.get(&key.0).is_some_and(|node| node.session.is_some());
            if let Some(pool) = self.inventory.pools.get_mut(&key).filter(|_| here) {
                (pool.kept, pool.since) = (old.kept, old.since);
            }
        }
        self.inventory.refresh_all();
        for name in keys.iter().filter_map(|key| key.strip_prefix("disk/")) {
            self.order(name);
        }
        over
    }
}
