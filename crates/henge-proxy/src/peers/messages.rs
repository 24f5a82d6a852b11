//! What peers say, and how it is said: flows and nodes go by name on the wire, by number here.

use super::{HERE, Peers, Told};
use henge_core::{Cost, FlowId, Instant, News, NodeId, Sender, Striping, Sync};
use henge_link::{Message, WireNews};
use henge_pvfs2::{Capability, Reader};

impl Peers {
    pub(super) fn message(&mut self, name: u64, message: Message, now: Instant) {
        let joined = self.joined.get_mut(&name).expect("it just spoke");
        let peer = NodeId(joined.peer.expect("an established link has a peer") as u32 + 1);
        match message {
            Message::Flow { id, name } => {
                if let Some(ours) = self.foreign.flows.iter().position(|f| *f == name) {
                    joined.flows.insert(id, FlowId(ours as u32));
                }
            }
            Message::Sync { coordinator, epoch, sequence, flow, news } => {
                let Some(flow) = joined.flows.get(&flow).copied() else { return };
                let Some(news) = self.news(news) else { return };
                let sender = if coordinator { Sender::Coordinator(peer) } else { Sender::Node(peer) };
                let foreign =
                    self.foreign.synchronizer.receive(&Sync { sender, epoch, sequence, flow, news }, now);
                self.told.push(Told::Foreign(flow, foreign));
            }
            Message::Identity { capability, uid } => {
                if let Ok(capability) = Capability::read(&mut Reader::new(&capability)) {
                    self.told.push(Told::Identity(capability, uid));
                }
            }
            // Parts of commands travel between nodes only.
            _ => {}
        }
    }

    fn news(&self, news: WireNews) -> Option<News> {
        Some(match news {
            WireNews::Total { total, before } => {
                News::Total { total: Cost::new(total), before: Cost::new(before) }
            }
            WireNews::Departed => News::Departed,
            WireNews::Layout { stripe, nodes } => {
                let nodes = nodes.iter().map(|n| self.node_of(n)).collect::<Option<Vec<_>>>()?;
                News::Layout(Striping { stripe, nodes })
            }
        })
    }

    fn node_of(&self, name: &str) -> Option<NodeId> {
        if name == self.identity.name {
            return Some(HERE);
        }
        self.peers.iter().position(|p| p.name == name).map(|i| NodeId(i as u32 + 1))
    }

    fn name_of(&self, node: NodeId) -> String {
        match node {
            HERE => self.identity.name.clone(),
            NodeId(n) => self.peers.get(n as usize - 1).map_or_else(String::new, |p| p.name.clone()),
        }
    }

    pub(super) fn wire(&self, sync: &Sync) -> Message {
        let news = match &sync.news {
            News::Total { total, before } => WireNews::Total { total: total.get(), before: before.get() },
            News::Departed => WireNews::Departed,
            News::Layout(s) => WireNews::Layout {
                stripe: s.stripe,
                nodes: s.nodes.iter().map(|n| self.name_of(*n)).collect(),
            },
        };
        let coordinator = matches!(sync.sender, Sender::Coordinator(_));
        Message::Sync { coordinator, epoch: sync.epoch, sequence: sync.sequence, flow: sync.flow.0, news }
    }
}
