//! A peer that is linked for other disks' sake, and asks about this one.

use super::*;
use crate::config::DiskConfig;
use henge_core::FlowId;
use henge_vdisk::{GateId, Layout, VirtualDisk};

/// Nodes n1, which is here, n2 and n3; the disk lies on the first two.
fn disk() -> DiskConfig {
    let text = "[link]\nname = \"n1\"\nlisten = \"127.0.0.1:1\"\nsecret = \"0123456789abcdef\"\n\
                [[peer]]\nname = \"n2\"\naddress = \"127.0.0.1:2\"\n[[peer]]\nname = \"n3\"\naddress = \"127.0.0.1:3\"\n\
                [[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"1MiB\"\n\
                [[disk]]\nname = \"wide\"\ncapacity = \"1MiB\"\npools = [\"n1/p\", \"n2/p\"]\n";
    let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
    config.disks.into_iter().next().expect("it has one")
}

#[test]
fn a_peer_that_a_disk_does_not_name_asks_for_nothing_and_holds_nothing_up() {
    let storage = Arc::default();
    let mut gateway = Gateway::new(0, &storage);
    let config = disk();
    let layout = Layout::single(GateId(0), 0, config.capacity);
    let settings = henge_vdisk::Settings { owners: true, ..config.cutting.settings };
    let vdisk = VirtualDisk::new(FlowId(0), layout, settings).unwrap();
    let disks = [Some(Disk::new(config, vdisk, Vec::new()))];
    let now = Instant::ZERO;
    gateway.tables.keep("wide", (gateway.target, 0, None), &Reservations::default(), now);
    for (peer, slot) in [(0, 1), (1, 2)] {
        gateway.links.up(peer, RequestId { slot, generation: 0 }, 7);
        gateway.links.peer(peer).outgoing.messages.clear();
    }
    let register = |id| {
        let mut list = vec![0; 24];
        list[15] = 1; // SERVICE ACTION RESERVATION KEY
        let mut cdb = [0; 16];
        (cdb[0], cdb[8]) = (0x5f, 24); // PERSISTENT RESERVE OUT: REGISTER
        Message::Reserve { id, disk: "wide".into(), port: PORTS[0].into(), cdb, list }
    };
    let mut says = |peer: usize, message: Message| {
        gateway.links.news.push_back(News::Said(peer, message));
        let mut units = Units { targets: &mut gateway.targets, nvme: &mut gateway.nvme, disks: &disks };
        gateway.tables.portion.begin();
        gateway.tables.settle(&mut units, &mut gateway.links, now);
        let known = gateway.tables.known("wide").count();
        let queued = gateway.tables.tables["wide"].queue.len();
        let said: Vec<Message> = gateway.links.peer(peer).outgoing.messages.drain(..).collect();
        (known, queued, said)
    };
    // The third node is told nothing of it, and is waited for by nobody.
    let watch = || Message::Watch { thing: "wide".into() };
    assert_eq!(says(1, watch()), (0, 0, Vec::new()));
    let (_, queued, said) = says(1, register(5));
    assert!(queued == 0 && matches!(said[..], [Message::Reserved { id: 5, .. }]), "{queued}: {said:?}");
    // The second one is.
    let (known, _, said) = says(0, watch());
    assert!(known == 1 && said.iter().any(|said| matches!(said, Message::Copy { .. })), "{said:?}");
    assert_eq!(says(0, register(6)).1, 1, "it is asked for, and decided once everybody has seen what holds");
}
