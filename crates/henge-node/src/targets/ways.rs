//! The ways to a disk that several nodes serve: this node and those with its extents are groups of portals to one target.
//!
//! Every node tells the same: the target's name, the disk's serial number and world-wide name come from the disk's name, a
//! group's number from its node's name. Which of them can be reached is looked at once a second while initiators are there.

use super::TargetRegistry;
use crate::links::Links;
use crate::plane::{Disk, Plane};
use henge_core::RequestId;
use henge_iscsi::scsi::{Access, Group, Nexus};
use henge_nvme::Reach;
use std::ops::Bound;

/// Sessions, and targets, that are looked at in a step.
const STEP: usize = 64;

/// A node's target port: from its name, so that every node says the same. Zero is none.
pub(super) fn port(node: &str) -> u16 {
    let hash = crate::fnv::fnv(node.as_bytes());
    let folded = hash ^ hash >> 32;
    ((folded ^ folded >> 16) as u16).max(1)
}

/// The names of the nodes that certainly serve a disk: this one, those with an extent of it, and those that act by reservations
/// kept here.
fn nodes<'a>(disk: &'a Disk, links: &'a Links, known: &[usize]) -> Vec<&'a str> {
    let mut nodes: Vec<&str> = disk.config.places.iter().map(|place| place.node.as_str()).collect();
    nodes.extend(links.here());
    if disk.is_shared() {
        nodes.extend(disk.config.gateways.iter().chain(&disk.config.through).map(String::as_str));
    }
    let known = known.iter().filter_map(|peer| links.peers.get(*peer)?.as_ref());
    nodes.extend(known.map(|peer| peer.config.name.as_str()));
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

fn is_linked(links: &Links, peer: usize) -> bool {
    links.peers[peer].as_ref().is_some_and(|peer| peer.link.is_some())
}

/// Whether other nodes may serve a disk, too. One that lies on several loops of this node is this node's alone.
fn has_others(disk: &Disk) -> bool {
    disk.is_shared() || disk.config.is_of_cluster()
}

/// Whether a node has a part of a disk: one of its extents, or its seat.
fn has_part(disk: &Disk, links: &Links, node: &str) -> bool {
    if disk.is_shared() {
        return disk.seat(links) == Some(node);
    }
    disk.config.places.iter().any(|place| place.node == node)
}

/// The groups, each under its own number. Two names that give the same number would be one way to an initiator: then only
/// this node is told of.
fn groups(disk: &Disk, links: &Links, known: &[usize], good: bool) -> Vec<Group> {
    let Some(here) = links.here().filter(|_| has_others(disk)) else { return Vec::new() };
    let group = |node: &str| {
        let linked =
            if node == here { good } else { links.find(node).is_some_and(|peer| is_linked(links, peer)) };
        let access = match (linked, has_part(disk, links, node)) {
            (false, _) => Access::Unavailable,
            (true, true) => Access::Optimized,
            (true, false) => Access::Detour,
        };
        Group { port: port(node), access }
    };
    let mut groups: Vec<Group> = nodes(disk, links, known).into_iter().map(group).collect();
    groups.sort_unstable_by_key(|group| group.port);
    let apart = groups.windows(2).all(|pair| pair[0].port != pair[1].port);
    if !apart {
        groups.retain(|group| group.port == port(here));
        groups.dedup_by_key(|group| group.port);
    }
    groups
}

impl TargetRegistry {
    /// Says of one target which ways there are to it.
    pub(crate) fn tell_ways(&mut self, number: usize, disk: &Disk, links: &Links) {
        let Some(&id) = self.by_disk.get(&number) else { return };
        let known: Vec<usize> = self.reservations.known(&disk.config.name).collect();
        let groups = groups(disk, links, &known, self.reservations.is_good(&disk.config.name));
        let mut elsewhere = Vec::new();
        if groups.len() > 1 {
            for peer in nodes(disk, links, &known).into_iter().filter_map(|node| links.find(node)) {
                let config = links.peers[peer].as_ref().map(|peer| &peer.config);
                if let Some((name, Some(at))) = config.map(|config| (&config.name, &config.iscsi)) {
                    elsewhere.push((at.clone(), port(name)));
                }
            }
        }
        elsewhere.dedup();
        self.tell_hosts(number, disk, links, &known);
        self.targets.set_elsewhere(id, elsewhere);
        if let Some(unit) = self.targets.unit(id, 0) {
            unit.set_groups(groups);
        }
    }

    /// Says the same to hosts that come by NVMe: how this node reaches the disk, and by which addresses others do.
    fn tell_hosts(&mut self, number: usize, disk: &Disk, links: &Links, known: &[usize]) {
        let has_part = !has_others(disk) || links.here().is_none_or(|here| has_part(disk, links, here));
        let reach = match (&disk.spread, self.reservations.is_good(&disk.config.name)) {
            (_, false) => Reach::Inaccessible,
            (None, true) => Reach::Optimized,
            (Some(_), true) if has_part => Reach::Optimized,
            (Some(_), true) => Reach::Detour,
        };
        let mut elsewhere = Vec::new();
        if disk.spread.is_some() {
            for peer in nodes(disk, links, known).into_iter().filter_map(|node| links.find(node)) {
                let at = links.peers[peer].as_ref().and_then(|peer| peer.config.nvme.as_deref());
                elsewhere.extend(
                    at.and_then(|at| at.rsplit_once(':'))
                        .map(|(host, port)| (host.trim_matches(['[', ']']).to_owned(), port.to_owned())),
                );
            }
        }
        self.nvme.tell_ways(number, reach, elsewhere);
    }

    /// A look at everything goes on, or a new one begins: the connections to be looked at in this step, and whether there are
    /// more. Where links have come or gone, some more targets hear of their ways.
    pub(crate) fn look(&mut self, plane: &Plane) -> (Vec<RequestId>, bool) {
        if self.looked.is_none() {
            let linked: Vec<bool> =
                (0..plane.links.peers.len()).map(|peer| is_linked(&plane.links, peer)).collect();
            if linked != self.linked {
                self.linked = linked;
                self.look_again();
            }
        }
        if let Some(from) = self.untold.take() {
            let numbers: Vec<usize> = self.by_disk.range(from..).map(|(n, _)| *n).take(STEP + 1).collect();
            self.untold = numbers.get(STEP).copied();
            for number in numbers.into_iter().take(STEP) {
                if let Some(disk) = plane.disks[number].as_ref().filter(|disk| disk.spread.is_some()) {
                    self.tell_ways(number, disk, &plane.links);
                }
            }
        }
        let after = self.looked.map_or(Bound::Unbounded, Bound::Excluded);
        let next: Vec<(Nexus, RequestId)> =
            self.connections.range((after, Bound::Unbounded)).map(|(n, id)| (*n, *id)).take(STEP).collect();
        self.looked = next.last().filter(|_| next.len() == STEP).map(|(nexus, _)| *nexus);
        let more = self.looked.is_some() || self.untold.is_some();
        (next.into_iter().map(|(_, id)| id).collect(), more)
    }

    /// From the next look on all targets hear of their ways again, whether or not links have come or gone.
    pub(crate) fn look_again(&mut self) {
        self.untold = Some(0);
    }
}

#[cfg(test)]
mod tests {
    use super::port;

    #[test]
    fn a_node_has_the_same_port_on_every_node() {
        // FNV-1a of the names, folded to 16 bits: numbers that must not change with a new version.
        let ports: Vec<u16> = (1..=64).map(|n| port(&format!("n{n}"))).collect();
        let mut apart = ports.clone();
        apart.sort_unstable();
        apart.dedup();
        assert_eq!(apart.len(), ports.len(), "{ports:?}");
        assert!(ports.iter().all(|port| *port != 0));
        assert_eq!(&ports[..2], &[port("n1"), port("n2")]);
    }
}
