//! Disks that nodes have by orders which are not remembered here: when they are taken into the inventory.
//!
//! # The rule
//! A node speaks for its own name only. A disk with places at other nodes counts there, and those are ordered to have it: so each node that it
//! names must have said the same of it, the same places in the same order. Until then it waits, and an event says for whom.
//!
//! A node that is away holds its disks up until it comes. Its nodes serve such a disk on meanwhile, and its name is taken.
//!
//! What a node said stays until it comes again, has confirmed an order for that disk, or is forgotten itself. It is no more than one line.

use super::Reconciler;
use crate::machine::gateways;
use crate::machine::inventory::{Inventory, PoolKey};
use henge_api::manager::Held;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where a disk lies, as one of its nodes says it: node and pool.
pub(super) fn places(node: &str, held: &Held) -> Vec<PoolKey> {
    let said = match held.gateways.is_empty() {
        true => held.pools.clone(),
        false => gateways::places(held),
    };
    let place = |place: &String| {
        let (on, pool) = place.split_once('/').unwrap_or((node, place));
        (on.to_owned(), pool.to_owned())
    };
    said.iter().map(place).collect()
}

/// Which of a node's disks it has by orders that are not remembered here.
pub(super) fn unknown(inventory: &Inventory, disks: &[Held]) -> Arc<BTreeMap<String, Held>> {
    let unknown = disks.iter().filter(|h| h.revision.is_some() && inventory.disk(&h.name).is_none());
    Arc::new(unknown.map(|held| (held.name.clone(), held.clone())).collect())
}

/// A node has confirmed an order for a disk: it has that by an order which is remembered.
pub(super) fn is_known(inventory: &mut Inventory, node: &str, disk: &str) {
    let node = inventory.nodes.get_mut(node).filter(|node| node.found.contains_key(disk));
    node.map(|node| Arc::make_mut(&mut node.found).remove(disk));
}

/// Whether a node says that a disk lies at these places.
fn says(inventory: &Inventory, node: &str, disk: &Held, at: &[PoolKey]) -> bool {
    let said = inventory.node(node).and_then(|node| node.found.get(&disk.name));
    let alike = |said: &&Held| said.gateways.is_empty() == disk.gateways.is_empty();
    said.filter(alike).is_some_and(|said| places(node, said) == at)
}

impl Reconciler<'_> {
    /// Takes those disks into the inventory that every node says which they name. For what others wait is said once.
    pub(super) fn take_in(&mut self) {
        let found = Arc::clone(&self.machine.inventory.nodes[self.node].found);
        let mut waiting: Vec<(&str, String)> = Vec::new();
        for held in found.values() {
            let at = places(self.node, held);
            let mut others: BTreeSet<&str> = at.iter().map(|(node, _)| node.as_str()).collect();
            // A node speaks for disks of its own.
            if !others.remove(self.node) {
                continue;
            }
            let silent = others.iter().find(|node| !says(&self.machine.inventory, node, held, &at));
            match silent {
                Some(node) => waiting.push((&held.name, (*node).to_owned())),
                None => self.agreed(held, &others),
            }
        }
        let Some((disk, silent)) = waiting.first() else { return };
        let n = waiting.len();
        let text = format!(
            "has {n} disk(s) by forgotten orders that name other nodes, such as \"{disk}\": none is taken in before all its nodes say the same, \
             and \"{silent}\" does not"
        );
        if self.machine.failures.is_news(disk, self.node, &text) {
            self.machine.journal.put_event("refused", None, Some(self.node), text);
        }
    }

    /// All nodes of a disk say the same: it is taken in as the one says that has the latest order, and the others are brought to that.
    fn agreed(&mut self, held: &Held, others: &BTreeSet<&str>) {
        let nodes = &self.machine.inventory.nodes;
        let says = |node: &&str| Some(((*node).to_owned(), nodes.get(*node)?.found.get(&held.name)?.clone()));
        let mut said: Vec<(String, Held)> = others.iter().filter_map(says).collect();
        said.push((self.node.to_owned(), held.clone()));
        let latest = said.iter().max_by_key(|(_, held)| held.revision);
        let Some((node, latest)) = latest else { return };
        Reconciler { machine: self.machine, node }.adopt(latest);
        for (node, held) in said.iter().filter(|(node, _)| node != self.node) {
            let inventory = &self.machine.inventory;
            let is_here = inventory.nodes.get(node).is_some_and(|node| node.session.is_some());
            if is_here && inventory.disks.contains_key(&held.name) {
                Reconciler { machine: self.machine, node }.compare(held);
            }
        }
    }
}
