//! Several nodes in one process, linked by real sockets: one disk through any of them.

use crate::common::{self, Client, until};
use henge_config::Source;
use henge_node::{Node, NodeConfig};
use std::time::{Duration, Instant};

const EIO: u32 = 5;
/// How long a part waits for a silent peer: longer than a client of these tests.
const LONG: &str = "timeout = \"10min\"";

fn config(name: &str, link: &str, rest: &str) -> NodeConfig {
    let (cores, shard) = common::cores();
    let text = format!(
        "listen = \"nbd://127.0.0.1:0\"\n{cores}[link]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\n{link}\n\
         [[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\n{shard}{rest}\n"
    );
    let mut config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
    config.state.forgets = true;
    config
}

const SECRET: &str = "secret = \"sixteen bytes and more\"";

fn node(name: &str, link: &str, rest: &str) -> Node {
    let link = if link.contains("secret") { link.to_owned() } else { format!("{SECRET}\n{link}") };
    Node::start(config(name, &link, rest)).unwrap_or_else(|e| panic!("{e}"))
}

fn link_address(node: &Node) -> String {
    node.link().and_then(|link| link.tcp("link")).expect("it has a link").to_string()
}

fn ask(node: &Node, request: henge_api::Request) {
    node.control().ask(request).unwrap_or_else(|e| panic!("{e}"));
}

fn introduce(nodes: &[Node], names: &[&str]) {
    for (a, here) in nodes.iter().zip(names) {
        for (b, there) in nodes.iter().zip(names).filter(|(_, there)| *there != here) {
            let (name, address) = ((*there).to_owned(), link_address(b));
            ask(a, henge_api::Request::Peer { name, address, iscsi: None, at: None });
        }
    }
}

fn disk(names: &[&str]) -> String {
    let pools: Vec<String> = names.iter().map(|name| format!("\"{name}/p\"")).collect();
    format!("name = \"web\"\npools = [{}]\nstripe = \"64KiB\"\ncapacity = \"24MiB\"\n", pools.join(", "))
}

fn linked(node: &Node) -> bool {
    let status = node.control().status().unwrap();
    status.peers.iter().all(|p| p.linked) && status.disks.iter().all(|d| d.layout.trouble.is_empty())
}

fn cluster(names: &[&str], link: &str) -> Vec<Node> {
    cluster_with(names, link, "")
}

/// `more`: further keys of the disk.
fn cluster_with(names: &[&str], link: &str, more: &str) -> Vec<Node> {
    let nodes: Vec<Node> = names.iter().map(|name| node(name, link, "")).collect();
    introduce(&nodes, names);
    for node in &nodes {
        ask(node, common::add(&(disk(names) + more)));
    }
    let begun = Instant::now();
    while !nodes.iter().all(linked) {
        if begun.elapsed() > Duration::from_secs(20) {
            let states = nodes.iter().zip(names).map(|(node, name)| {
                let status = node.control().status().unwrap();
                let peers: Vec<_> = status.peers.iter().map(|p| (&p.name, p.linked)).collect();
                let troubles: Vec<_> = status.disks.iter().map(|d| &d.layout.trouble).collect();
                format!("{name}: peers {peers:?}, troubles {troubles:?}")
            });
            panic!("the nodes are not linked after 20 s: {}", states.collect::<Vec<_>>().join("; "));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    nodes
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut x = seed | 1;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn what_is_written_through_one_node_is_read_through_another() {
    let nodes = cluster(&["n1", "n2", "n3"], "");
    let mut clients: Vec<Client> = nodes.iter().map(|node| Client::connect(node, "web")).collect();
    let long = pattern(1_000_003, 7);
    for (i, at) in [0u64, 65_000, 3 << 20, (24 << 20) - 1_000_003].into_iter().enumerate() {
        assert_eq!(clients[i % 3].write(at, &long), 0, "at {at}");
        clients[i % 3].send(0, 3, 0, 0, &[]); // a flush through one node covers all
        assert_eq!(clients[i % 3].reply(), 0);
        for client in &mut clients {
            assert!(client.read(at, long.len() as u32).unwrap() == long, "at {at}");
        }
    }
    // TRIM and WRITE_ZEROES, unaligned: the owners see to the edges.
    assert_eq!(clients[0].write(4 << 20, &long), 0);
    clients[1].send(0, 6, (4 << 20) + 100, 500_000, &[]);
    assert_eq!(clients[1].reply(), 0, "write zeroes");
    let mut expected = long.clone();
    expected[100..500_100].fill(0);
    assert!(clients[2].read(4 << 20, long.len() as u32).unwrap() == expected);
    clients[2].send(0, 4, 0, 8 << 20, &[]);
    assert_eq!(clients[2].reply(), 0, "trim");
    assert_eq!(clients[0].read(24 << 20, 1), Err(22), "beyond the end");
    for node in &nodes {
        let status = node.control().status().unwrap();
        assert_eq!(status.buffers_out, 0, "all memory came back");
        assert_eq!(status.disks.len(), 1, "owners are nobody's to see");
        assert!(status.peers.iter().all(|p| p.failed == 0 && p.parts > 0), "{:?}", status.peers);
    }
    nodes.into_iter().for_each(|node| node.stop().unwrap());
}

#[test]
fn a_disk_over_several_nodes_grows_while_it_is_served() {
    use henge_api::Request::{Grow, Room};
    let nodes = cluster(&["n1", "n2", "n3"], "");
    let mut old = Client::connect(&nodes[0], "web");
    let long = pattern(1_000_003, 7);
    let end = |capacity: u64| capacity - long.len() as u64;
    assert_eq!(old.write(end(24 << 20), &long), 0);
    let (name, capacity) = (|| "web".to_owned(), |text: &str| text.to_owned());
    let refused = |node: &Node, request| node.control().ask(request).unwrap_err().to_string();
    let why = refused(&nodes[0], Grow { name: name(), capacity: capacity("12MiB") });
    assert!(why.contains("does not shrink"), "{why}");
    // 64 MiB in each pool: room for 192 MiB in all, and no more.
    let why = refused(&nodes[1], Room { name: name(), capacity: capacity("256MiB") });
    assert!(why.contains("disk \"web\""), "{why}");
    let shown = |node: &Node| node.control().status().unwrap().disks[0].capacity;
    nodes.iter().for_each(|node| ask(node, Room { name: name(), capacity: capacity("96MiB") }));
    assert!(nodes.iter().all(|node| shown(node) == 24 << 20), "room alone is not seen");
    for (i, node) in nodes.iter().enumerate() {
        ask(node, Grow { name: name(), capacity: capacity("96MiB") });
        // One node after the other: those that have grown have all of it, those that have not what they had.
        let mut client = Client::connect(node, "web");
        assert_eq!(client.write(end(96 << 20), &pattern(long.len(), i as u64)), 0);
        assert!(client.read(end(24 << 20), long.len() as u32).unwrap() == long);
        assert!(old.read(end(24 << 20), long.len() as u32).unwrap() == long);
    }
    assert!(nodes.iter().all(|node| shown(node) == 96 << 20 && linked(node)));
    for node in &nodes {
        let mut client = Client::connect(node, "web");
        assert!(client.read(end(96 << 20), long.len() as u32).unwrap() == pattern(long.len(), 2));
        assert_eq!(client.read(96 << 20, 1), Err(22), "beyond the end");
    }
}

/// Two coordinators write the halves of the same blocks at the same time: neither loses what the other wrote.
#[test]
fn unaligned_writes_of_two_coordinators_to_one_block_are_both_there() {
    // Memory takes any address; with whole blocks alone, owners have to read, change and write back, under their locks.
    let nodes = cluster_with(&["n1", "n2"], "", "commands = { align = \"4KiB\" }\n");
    let mut writers: Vec<std::thread::JoinHandle<()>> = Vec::new();
    for (i, node) in nodes.iter().enumerate() {
        let mut client = Client::connect(node, "web");
        writers.push(std::thread::spawn(move || {
            for round in 0..200u64 {
                let at = (round % 40) * 4096 + i as u64 * 2000;
                assert_eq!(client.write(at, &[i as u8 + 1; 1999]), 0);
            }
        }));
    }
    writers.into_iter().for_each(|w| w.join().unwrap());
    let mut client = Client::connect(&nodes[0], "web");
    for block in 0..40u64 {
        let bytes = client.read(block * 4096, 4096).unwrap();
        assert!(
            bytes[..1999].iter().all(|b| *b == 1) && bytes[2000..3999].iter().all(|b| *b == 2),
            "{block}"
        );
    }
}

#[test]
fn a_node_that_is_gone_fails_its_parts_at_once_and_is_back_soon() {
    let names = ["n1", "n2", "n3"];
    let mut nodes = cluster(&names, LONG);
    let mut client = Client::connect(&nodes[0], "web");
    assert_eq!(client.write(0, &pattern(3 * 65_536, 1)), 0);
    let gone = nodes.remove(1);
    let address = link_address(&gone);
    gone.stop().unwrap();
    until("the peer is noticed to be gone", || !linked(&nodes[0]));
    assert_eq!(client.read(65_536, 4096), Err(EIO), "its part");
    assert!(client.read(0, 65_536).is_ok(), "the others' parts go on");
    assert!(client.read(2 * 65_536, 65_536).is_ok());
    client.send(0, 3, 0, 0, &[]);
    assert_eq!(client.reply(), EIO, "a flush that does not reach every owner has failed");
    let status = nodes[0].control().status().unwrap();
    assert!(status.disks[0].layout.trouble[0].starts_with("n2/p: "), "{:?}", status.disks[0].layout.trouble);
    // Anew, at the same address; its memory is empty, which is what memory is.
    let text = SECRET.to_owned();
    let mut anew = config("n2", &text, "");
    anew.link.as_mut().unwrap().listen = address;
    let anew = Node::start(anew).unwrap_or_else(|e| panic!("{e}"));
    nodes.insert(1, anew);
    introduce(&nodes, &names);
    until("it is linked", || nodes[0].control().status().unwrap().peers.iter().all(|p| p.linked));
    assert_eq!(client.read(65_536, 4096), Err(EIO), "it does not know the disk yet");
    let trouble = nodes[0].control().status().unwrap().disks[0].layout.trouble.clone();
    assert!(trouble[0].contains("does not serve a disk \"web\""), "{trouble:?}");
    ask(&nodes[1], common::add(&disk(&names)));
    until("its extent is served again", || linked(&nodes[0]));
    assert_eq!(client.write(65_536, &[9; 4096]), 0);
    assert_eq!(client.read(65_536, 4096).unwrap(), [9; 4096]);
}

#[test]
fn a_part_that_is_not_answered_fails_after_the_stated_time() {
    let nodes = [node("n1", "timeout = \"300ms\"", ""), slow("n2", 1, 32)];
    introduce(&nodes, &["n1", "n2"]);
    let both = disk(&["n1", "n2"]);
    nodes.iter().for_each(|node| ask(node, common::add(&both)));
    until("all nodes are linked", || nodes.iter().all(linked));
    let mut client = Client::connect(&nodes[0], "web");
    let begun = Instant::now();
    assert_eq!(client.read(65_536, 4096), Err(EIO));
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert!(client.read(0, 4096).is_ok(), "the extent here");
    assert!(linked(&nodes[0]), "slow is not gone");
}

/// Commands that wait at another node are taken back when their client goes; what another client has there stays.
#[test]
fn a_client_that_goes_takes_its_parts_along() {
    let nodes = [node("n1", LONG, ""), slow("n2", 4096, 1)];
    introduce(&nodes, &["n1", "n2"]);
    let both = disk(&["n1", "n2"]);
    nodes.iter().for_each(|node| ask(node, common::add(&both)));
    until("all nodes are linked", || nodes.iter().all(linked));
    let mut goes = Client::connect(&nodes[0], "web");
    let mut stays = Client::connect(&nodes[0], "web");
    for i in 0..240 {
        goes.send(0, 0, 65_536 + i % 100 * 512, 512, &[]);
    }
    stays.send(0, 0, 65_536, 512, &[]);
    let there =
        || nodes[1].control().status().unwrap().pools[0].gates.iter().map(|g| g.queued).sum::<usize>();
    let pending = || nodes[0].control().status().unwrap().peers[0].pending;
    until("they wait at the other node", || pending() > 15 && there() > 10);
    drop(goes);
    // All of them would take 30 s, longer than is waited.
    until("its parts are given up", || pending() <= 2 && there() <= 1);
    assert_eq!(stays.reply(), 0);
}

/// A node whose pool serves so many bytes a second.
fn slow(name: &str, rate: u32, depth: u32) -> Node {
    let (cores, shard) = common::cores();
    let text = format!(
        "listen = \"nbd://127.0.0.1:0\"\n{cores}[link]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\n{SECRET}\n\
         [[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\n{shard}emulated = {{ constant = {{ rate = \"{rate}B/s\", capacity = \"64MiB\" }} }}\n\
         scheduler = {{ sfq = {{ depth = {depth} }} }}\n"
    );
    let mut config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
    config.state.forgets = true;
    Node::start(config).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn strangers_are_told_why() {
    let nodes = [node("n1", "", ""), node("n2", "secret = \"another one altogether\"", "")];
    introduce(&nodes, &["n1", "n2"]);
    let error = |node: &Node| node.control().status().unwrap().peers[0].error.clone();
    until("both know why", || {
        let all = [error(&nodes[0]), error(&nodes[1])];
        all.iter().flatten().any(|e| e.contains("different secrets"))
    });
    let status = nodes[0].control().status().unwrap();
    assert!(!status.peers[0].linked);
    // A disk known differently on the two is not served together.
    let nodes = [node("n1", "", ""), node("n2", "", "")];
    introduce(&nodes, &["n1", "n2"]);
    ask(&nodes[0], common::add(&disk(&["n1", "n2"])));
    let other = disk(&["n1", "n2"]).replace("64KiB", "128KiB");
    ask(&nodes[1], common::add(&other));
    until("the difference is named", || {
        let status = nodes[0].control().status().unwrap();
        status.disks[0].layout.trouble.iter().any(|t| t.contains("another stripe or other pools"))
    });
}

#[test]
fn a_node_that_a_disk_does_not_name_does_not_reach_it() {
    let names = ["n1", "n2", "n3"];
    let nodes: Vec<Node> = names.iter().map(|name| node(name, "", "")).collect();
    introduce(&nodes, &names);
    // All three are linked for another disk's sake.
    let all = disk(&names).replace("\"web\"", "\"all\"").replace("24MiB", "3MiB");
    nodes.iter().for_each(|node| ask(node, common::add(&all)));
    until("the links", || nodes.iter().all(linked));
    let theirs = disk(&["n1", "n2"]);
    nodes[..2].iter().for_each(|node| ask(node, common::add(&theirs)));
    until("their disk", || nodes[..2].iter().all(linked));
    let mut owner = Client::connect(&nodes[0], "web");
    let text = pattern(1 << 20, 3);
    assert_eq!(owner.write(0, &text), 0);
    // The third one says what the others' files say, and is refused by both.
    ask(&nodes[2], common::add(&theirs));
    let trouble = || nodes[2].control().status().unwrap().disk("web").unwrap().layout.trouble.join("; ");
    until("both have refused", || trouble().matches("does not name node n3").count() == 2);
    let mut thief = Client::connect(&nodes[2], "web");
    assert_eq!(thief.read(0, 4096), Err(EIO));
    assert_eq!(thief.write(0, &[7; 4096]), EIO);
    assert!(owner.read(0, 1 << 20).unwrap() == text, "nothing was overwritten");
    drop(thief);
    // Where its owners name it, clients come by it.
    for node in &nodes {
        ask(node, henge_api::Request::Remove { name: "web".into() });
        ask(node, common::add(&format!("{theirs}through = [\"n3\"]\n")));
    }
    until("all serve it", || nodes.iter().all(linked));
    let mut by_the_third = Client::connect(&nodes[2], "web");
    assert_eq!(by_the_third.write(0, &text), 0);
    assert!(by_the_third.read(0, 1 << 20).unwrap() == text);
    nodes.into_iter().for_each(|node| node.stop().unwrap());
}

#[test]
fn removing_a_disk_ends_what_others_have_there() {
    let nodes = cluster(&["n1", "n2"], "");
    let mut client = Client::connect(&nodes[0], "web");
    assert_eq!(client.write(65_536, &[1; 4096]), 0);
    ask(&nodes[1], henge_api::Request::Remove { name: "web".into() });
    until("the extent is gone", || !linked(&nodes[0]));
    assert_eq!(client.read(65_536, 4096), Err(EIO));
    let refused = nodes[0].control().ask(henge_api::Request::Unpeer { name: "n2".into() });
    assert!(refused.unwrap_err().to_string().contains("lies on node n2"));
    ask(&nodes[0], henge_api::Request::Remove { name: "web".into() });
    ask(&nodes[0], henge_api::Request::Unpeer { name: "n2".into() });
    assert!(nodes[0].control().status().unwrap().peers.is_empty());
}

/// More disks than are asked for in a step when a link is made, and more than a number of an extent rests for.
#[test]
fn hundreds_of_disks_over_two_nodes_come_and_go_and_come_back() {
    let names = ["a", "b"];
    let large = |name: &str| {
        let text = format!(
            "listen = \"nbd://127.0.0.1:0\"\n[link]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\n{SECRET}\n\
             [[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"1GiB\"\n"
        );
        let mut config = NodeConfig::parse(Source::new("node.toml", text)).unwrap();
        config.state.forgets = true;
        Node::start(config).unwrap()
    };
    let mut nodes: Vec<Node> = names.iter().map(|name| large(name)).collect();
    introduce(&nodes, &names);
    let one = |n: usize| {
        format!("name = \"d{n}\"\npools = [\"a/p\", \"b/p\"]\nstripe = \"4KiB\"\ncapacity = \"16KiB\"\n")
    };
    until("the links are there", || nodes.iter().all(linked));
    for round in 0..1100 {
        for node in &nodes {
            ask(node, common::add(&one(300)));
        }
        if round > 1090 {
            until("both know of both extents", || nodes.iter().all(linked));
            let mut client = Client::connect(&nodes[0], "d300");
            assert_eq!(client.write(0, &pattern(16 << 10, round)), 0);
            assert_eq!(
                Client::connect(&nodes[1], "d300").read(0, 16 << 10).unwrap(),
                pattern(16 << 10, round)
            );
        }
        for node in &nodes {
            ask(node, henge_api::Request::Remove { name: "d300".into() });
        }
    }
    for node in &nodes {
        for n in 0..300 {
            ask(node, common::add(&one(n)));
        }
    }
    until("both know of all extents", || nodes.iter().all(linked));
    let mut client = Client::connect(&nodes[0], "d299");
    assert_eq!(client.write(0, &pattern(16 << 10, 7)), 0);
    let refused = nodes[0].control().ask(henge_api::Request::Unpeer { name: "b".into() }).unwrap_err();
    assert!(refused.to_string().contains("lies on node b; remove it first"), "{refused}");
    // The other node is another one, with the same name and the same disks, and nothing on them.
    drop(nodes.pop());
    until("the link is lost", || !linked(&nodes[0]));
    nodes.push(large("b"));
    introduce(&nodes, &names);
    for n in 0..300 {
        ask(&nodes[1], common::add(&one(n)));
    }
    until("the link is back", || nodes.iter().all(linked));
    let kept = client.read(0, 4096).unwrap();
    assert_eq!(kept, pattern(16 << 10, 7)[..4096], "its own part is as it was");
    assert_eq!(client.read(4096, 4096), Ok(vec![0; 4096]), "the other's part is new");
    for n in 0..300 {
        for node in &nodes {
            ask(node, henge_api::Request::Remove { name: format!("d{n}") });
        }
    }
    ask(&nodes[0], henge_api::Request::Unpeer { name: "b".into() });
}

/// Nodes of two loops: links at the first, pool p at the second, pool q at the first. Disk web lies on p of each.
fn divided(names: &[&str]) -> Vec<Node> {
    let nodes = names.iter().map(|name| {
        let text = format!(
            "listen = \"nbd://127.0.0.1:0\"\ncores = 2\n[link]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\n{SECRET}\n\
             [[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\nshard = 1\n\
             [[pool]]\nname = \"q\"\nmemory = true\ncapacity = \"64MiB\"\nshard = 0\n"
        );
        let mut config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
        config.state.forgets = true;
        Node::start(config).unwrap_or_else(|e| panic!("{e}"))
    });
    let nodes: Vec<Node> = nodes.collect();
    introduce(&nodes, names);
    nodes.iter().for_each(|node| ask(node, common::add(&disk(names))));
    until("all are linked", || nodes.iter().all(linked));
    nodes
}

#[test]
fn nodes_of_several_loops_are_one_cluster() {
    let names = ["n1", "n2"];
    let nodes = divided(&names);
    let mut clients: Vec<Client> = nodes.iter().map(|node| Client::connect(node, "web")).collect();
    let long = pattern(1_000_003, 9);
    for (i, at) in [0u64, 65_000, 3 << 20].into_iter().enumerate() {
        assert_eq!(clients[i % 2].write(at, &long), 0);
        clients.iter_mut().for_each(|client| assert!(client.read(at, 1_000_003).unwrap() == long));
    }
    // Compare through the other node, and a FLUSH that covers both.
    clients[0].send(0, 3, 0, 0, &[]);
    assert_eq!(clients[0].reply(), 0);
    // It is on a gate of the second loop of each node, and is one disk of one node there.
    for node in &nodes {
        let status = node.control().status().unwrap();
        let web = status.disk("web").unwrap();
        assert_eq!((status.disks.len(), web.layout.places.len(), web.layout.pools[0].as_str()), (1, 2, "p"));
        assert_eq!(status.buffers_out, 0);
        until("its gate was seen", || {
            node.control()
                .meters()
                .unwrap()
                .disk("web")
                .is_some_and(|web| web.flow.gates.len() == 1 && web.flow.gates[0].service > 0)
        });
    }
    // What its clients got at this node's loop is told to the other node, though none of it went there.
    let announced = || nodes[0].control().status().unwrap().peers[0].announced;
    let before = announced();
    for stripe in 0..48u64 {
        assert_eq!(clients[0].write(stripe * 2 * 65_536, &[1; 65_536]), 0);
    }
    assert!(announced() > before, "3 MiB, and one message for each");
    // A contract, and room.
    ask(
        &nodes[0],
        henge_api::Request::Set { name: "web".into(), contract: [("weight".into(), "3".into())].into() },
    );
    for request in [true, false] {
        for node in &nodes {
            let (name, capacity) = ("web".to_owned(), "32MiB".to_owned());
            ask(
                node,
                if request {
                    henge_api::Request::Room { name, capacity }
                } else {
                    henge_api::Request::Grow { name, capacity }
                },
            );
        }
    }
    let mut later = Client::connect(&nodes[1], "web");
    assert_eq!(later.write((32 << 20) - 1_000_003, &long), 0);
    assert!(Client::connect(&nodes[0], "web").read((32 << 20) - 1_000_003, 1_000_003).unwrap() == long);
    // Disks of one node alone are where their pools are, or over both loops.
    ask(&nodes[0], common::add("name = \"own\"\npool = \"p\"\ncapacity = \"1MiB\"\n"));
    ask(&nodes[0], common::add("name = \"wide\"\npools = [\"p\", \"q\"]\ncapacity = \"1MiB\"\n"));
    for name in ["own", "wide"] {
        assert_eq!(Client::connect(&nodes[0], name).write(100_000, &long[..200_000]), 0);
        assert!(Client::connect(&nodes[0], name).read(100_000, 200_000).unwrap() == long[..200_000]);
        assert!(
            nodes[0].control().status().unwrap().disk(name).unwrap().layout.places.is_empty(),
            "no other node knows it"
        );
    }
    // A peer that a disk names stays; it goes from both loops.
    let unpeer = || nodes[0].control().ask(henge_api::Request::Unpeer { name: "n2".into() });
    assert!(unpeer().unwrap_err().to_string().contains("disk \"web\" lies on node n2"));
    drop((clients, later));
    nodes.iter().for_each(|node| ask(node, henge_api::Request::Remove { name: "web".into() }));
    unpeer().unwrap();
    let unknown = nodes[0].control().ask(common::add(&disk(&names))).unwrap_err().to_string();
    assert!(unknown.contains("neither this node (n1) nor a peer"), "{unknown}");
    for node in nodes {
        node.stop().unwrap();
    }
}
