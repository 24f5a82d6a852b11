//! What nodes are to be told, once the changes behind it are stored.

use super::Inventory;
use crate::model::Phase;
use henge_api::manager::Order;

/// Messages to nodes, by node.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(super) orders: Vec<(String, Order)>,
    /// Nodes that are to hear whether they are drained.
    pub(super) drains: Vec<(String, bool)>,
}

impl Outbox {
    /// Sends a disk's present state to its nodes that are here.
    pub(super) fn order(&mut self, inventory: &Inventory, name: &str) {
        let Some(disk) = inventory.disks.get(name) else { return };
        for part in &disk.parts {
            if inventory.nodes.get(&part.node).is_some_and(|n| n.session.is_some()) {
                self.order_to(inventory, &part.node, name);
            }
        }
    }

    /// Sends a disk's present state to one node.
    pub(super) fn order_to(&mut self, inventory: &Inventory, node: &str, name: &str) {
        let disk = &inventory.disks[name];
        let want = disk.want(node, |node| inventory.nodes.get(node)?.record.link.clone());
        let order = Order::new(name, disk.revision, want.as_ref()).of(disk.tenant.clone());
        self.orders.push((node.to_owned(), order));
    }

    /// Sends again what nodes that are here have not confirmed; called every few seconds.
    pub(crate) fn remind(&mut self, inventory: &Inventory) {
        for disk in inventory.disks.values().filter(|d| d.phase != Phase::Ready) {
            self.order(inventory, &disk.name);
        }
    }

    /// Tells a node whether it is drained.
    pub(super) fn drain(&mut self, name: &str, draining: bool) {
        self.drains.push((name.to_owned(), draining));
    }
}
