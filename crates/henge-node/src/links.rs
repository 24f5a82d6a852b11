//! The other nodes: which are linked, and the parts of commands that are on their way to them and back.
//!
//! A part waits until its extent is attached and has a credit, then until the link takes it, then for its answer. All that
//! time counts: what is not answered by the link's `timeout` fails, and so does at once everything that a peer is given while it
//! has no link, or has not been given when its link is lost. A change that the peer has may still be done there: its bytes may be on their
//! way. If it failed at once, its client could write the same place by another node, and be overwritten afterwards. So it fails once
//! the old link has surely ended at the other end, too (`lifetimes.rs`). Credits are counted for each extent, so a flow whose parts a peer does not
//! answer holds up itself alone.
//!
//! Buffers. A part has its command's bytes on loan, and gives them back before its command may go on. Once some of them
//! are in the socket the rest must follow, so a part that is half written is never given up without its link.

mod alarm;
mod extents;
mod foreign;
mod in_flight;
mod lifetimes;
mod lives;
mod news;
mod parts;
mod peer;
#[cfg(test)]
mod tests;

pub(crate) use in_flight::{Ask, PARTS_MAX, Return, name, number};
pub(crate) use news::{News, Seated};
pub(crate) use peer::Peer;

use crate::link_config::{LinkConfig, PeerConfig};
use alarm::Alarm;
use extents::Toward;
use foreign::ForeignTotals;
use henge_core::{CostUnit, Instant, RequestId};
use henge_link::{Message, WireUnit};
use news::Notices;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// All of them.
#[derive(Default)]
pub(crate) struct Links {
    pub config: Option<LinkConfig>,
    /// Another shard has the links: here peers are names that disks may have.
    pub is_passive: bool,
    pub epoch: u64,
    pub peers: Vec<Option<Peer>>,
    /// Every link's connection, established or not.
    pub connections: Vec<RequestId>,
    /// Links with something to write.
    pub dirty: Vec<RequestId>,
    /// Links that others have replaced.
    pub doomed: Vec<RequestId>,
    /// Links that were established just now.
    pub joined: Vec<(usize, RequestId, u64)>,
    /// Peers whose link has ended, and no other one came.
    pub lost: Vec<usize>,
    /// This node flushes everything and ends: it takes no more parts.
    pub ending: bool,
    pub returns: VecDeque<Return>,
    pub news: VecDeque<News>,
    pub foreign: ForeignTotals,
    pub alarm: Alarm,
    pub notices: Notices,
}

impl Links {
    /// Those of a shard, of which the first has the links.
    pub(crate) fn of_shard(here: usize, config: Option<LinkConfig>, epoch: u64) -> Links {
        Links { config, epoch, is_passive: here > 0, ..Links::default() }
    }

    /// This node's name.
    pub(crate) fn here(&self) -> Option<&str> {
        self.config.as_ref().map(|config| config.name.as_str())
    }
    /// Whether a place's node is this one.
    pub(crate) fn is_here(&self, node: &str) -> bool {
        node.is_empty() || self.here() == Some(node)
    }
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.peers.iter().position(|p| p.as_ref().is_some_and(|p| p.config.name == name))
    }
    /// What a peer is called; nothing of who is none.
    pub(crate) fn name(&self, peer: Option<usize>) -> &str {
        let known = peer.and_then(|p| self.peers.get(p)?.as_ref());
        known.map_or("", |peer| peer.config.name.as_str())
    }
    pub(crate) fn peer(&mut self, p: usize) -> &mut Peer {
        self.peers[p].as_mut().expect("a peer in use is there")
    }
    pub(crate) fn configs(&self) -> Vec<PeerConfig> {
        self.peers.iter().flatten().map(|p| p.config.clone()).collect()
    }

    /// Adds a peer, or changes where it is. What its address means is looked up here only while a node starts; later,
    /// whoever asks has done it.
    pub(crate) fn add(&mut self, config: PeerConfig, at: Option<SocketAddr>) -> Result<(), String> {
        let here = self.here().ok_or("this node has no [link]: it cannot have peers")?;
        if config.name == here {
            return Err(format!("\"{here}\" is this node itself"));
        }
        let address = match self.is_passive {
            true => SocketAddr::from(([0; 4], 0)),
            false => at.map_or_else(|| resolve(&config.address), Ok)?,
        };
        match self.is_passive {
            true => self.alarm.off(),
            false => self.alarm.now(),
        }
        if let Some(p) = self.find(&config.name) {
            let peer = self.peer(p);
            let iscsi = config.iscsi.or(peer.config.iscsi.take());
            let nvme = config.nvme.or(peer.config.nvme.take());
            peer.config = PeerConfig { iscsi, nvme, ..config };
            (peer.address, peer.redial.at) = (address, Instant::ZERO);
            return Ok(());
        }
        let peer = Peer::new(config, address);
        match self.peers.iter_mut().find(|p| p.is_none()) {
            Some(free) => *free = Some(peer),
            None => self.peers.push(Some(peer)),
        }
        Ok(())
    }

    /// Forgets a peer that no disk names; its link is doomed.
    pub(crate) fn remove(&mut self, p: usize) {
        let Some(peer) = self.peers[p].take() else { return };
        self.doomed.extend(peer.link.into_iter().chain(peer.dialling));
    }

    /// Whether this node is the one of the two that dials.
    pub(crate) fn dials(&self, peer: &Peer) -> bool {
        !self.is_passive && self.here().is_some_and(|here| here < peer.config.name.as_str())
    }

    /// An extent of a disk at a peer: its number there.
    pub(crate) fn attach(&mut self, p: usize, name: &str, disk: usize, index: u32, shape: u64) -> u32 {
        let number = self.peer(p).add(Toward::new(name, disk, index, shape));
        self.touch(p);
        number
    }

    /// Sends a short message, if the peer is linked.
    pub(crate) fn tell(&mut self, p: usize, message: Message) -> bool {
        let peer = self.peers.get_mut(p).and_then(Option::as_mut).filter(|peer| peer.link.is_some());
        let Some(peer) = peer else { return false };
        peer.outgoing.messages.push_back(message);
        self.touch(p);
        true
    }

    /// There is something to write to a peer.
    fn touch(&mut self, p: usize) {
        let link = self.peers[p].as_ref().and_then(|peer| peer.link);
        self.dirty.extend(link);
    }

    /// Whether parts are under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.returns.is_empty() && self.peers.iter().flatten().all(|p| p.in_flight.is_empty())
    }
}

/// What an address means; a name server may take seconds to say.
pub(crate) fn resolve(address: &str) -> Result<SocketAddr, String> {
    use std::net::ToSocketAddrs;
    let mut found = address.to_socket_addrs().map_err(|e| format!("{address}: {e}"))?;
    found.next().ok_or_else(|| format!("{address} is no address"))
}

pub(crate) fn unit(unit: CostUnit) -> WireUnit {
    match unit {
        CostUnit::Bytes => WireUnit::Bytes,
        CostUnit::Requests => WireUnit::Requests,
        CostUnit::DiskTime => WireUnit::DiskTime,
    }
}
