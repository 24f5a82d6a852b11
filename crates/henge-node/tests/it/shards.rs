//! A node of two loops, from outside: whichever accepts, each client reaches its disk, and the handle speaks for both.

use crate::common::{self, Client, until};
use henge_api::Request;
use henge_config::Source;
use henge_node::{Node, NodeConfig, check};

fn config(disks: &str) -> NodeConfig {
    let pool = |name| format!("[[pool]]\nname = \"{name}\"\nmemory = true\ncapacity = \"256MiB\"\n");
    let text = format!("listen = \"nbd://127.0.0.1:0\"\ncores = 2\n{}{}{disks}", pool("a"), pool("b"));
    let mut config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
    config.state.forgets = true;
    config
}

fn disk(name: &str, pool: &str) -> String {
    format!("name = \"{name}\"\npool = \"{pool}\"\ncapacity = \"16MiB\"\n")
}

fn both() -> String {
    format!("[[disk]]\n{}[[disk]]\n{}", disk("x", "a"), disk("y", "b"))
}

#[test]
fn each_client_reaches_its_disk_and_meters_are_one_nodes() {
    let node = Node::start(config(&both())).unwrap_or_else(|e| panic!("{e}"));
    // More than one loop would accept by chance alone.
    let mut clients: Vec<(u8, Client)> =
        (0..16).map(|n| (n, Client::connect(&node, if n % 2 == 0 { "x" } else { "y" }))).collect();
    for (n, client) in &mut clients {
        assert_eq!(client.write(u64::from(*n) * 4096, &[*n; 4096]), 0);
    }
    for (n, client) in &mut clients {
        assert_eq!(client.read(u64::from(*n) * 4096, 4096).unwrap(), [*n; 4096]);
    }
    let status = node.control().status().unwrap();
    let pools: Vec<&str> = status.pools.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!((pools, status.connections), (vec!["a", "b"], 16));
    for name in ["x", "y"] {
        let disk = status.disk(name).unwrap();
        assert_eq!((disk.meters.commands, disk.meters.reads, disk.connections), (16, 8, 8), "{name}");
    }
    let meters = node.control().meters().unwrap();
    let gates: Vec<u32> = ["x", "y"].map(|name| meters.disk(name).unwrap().flow.gates[0].gate).to_vec();
    assert_eq!(gates, [0, 1], "each has a number of its own");
    drop(clients);
    until("all have gone", || node.control().status().unwrap().connections == 0);
    node.control().reset().unwrap();
    let status = node.control().status().unwrap();
    assert!(["x", "y"].iter().all(|name| status.disk(name).unwrap().meters.commands == 0));
    node.stop().unwrap();
}

#[test]
fn disks_come_and_go_on_the_loop_of_their_pool_and_all_know_at_once() {
    let node = Node::start(config("")).unwrap_or_else(|e| panic!("{e}"));
    let control = node.control();
    for (name, pool) in [("x", "a"), ("y", "b")] {
        control.ask(common::add(&disk(name, pool))).unwrap();
        // Whichever loop accepts, it knows of the disk by now.
        for n in 0..8 {
            assert_eq!(Client::connect(&node, name).write(n * 4096, &[1; 4096]), 0);
        }
    }
    control.set("x", &[("weight", "3")]).unwrap();
    control.exchange("b", "fifo").unwrap();
    control.ask(Request::Grow { name: "y".into(), capacity: "32MiB".into() }).unwrap();
    let status = control.status().unwrap();
    assert_eq!(status.disk("y").unwrap().capacity, 32 << 20);
    assert_eq!(status.pools.iter().map(|p| p.scheduler.as_str()).collect::<Vec<_>>(), ["sfq", "fifo"]);
    for n in 0..8 {
        assert_eq!(Client::connect(&node, "y").write((16 << 20) + n * 4096, &[1; 4096]), 0, "it has grown");
    }
    let taken = control.ask(common::add(&disk("y", "a"))).unwrap_err().to_string();
    assert!(taken.contains("there is a disk \"y\" already"), "{taken}");
    let unknown = control.set("z", &[("weight", "3")]).unwrap_err().to_string();
    assert_eq!(unknown, "there is no disk \"z\"; there are: x, y");
    control.ask(Request::Remove { name: "y".into() }).unwrap();
    assert!(control.status().unwrap().disk("y").is_none());
    // The name is free again, on another loop.
    control.ask(common::add(&disk("y", "a"))).unwrap();
    assert_eq!(Client::connect(&node, "y").read(0, 4096).unwrap(), [0; 4096]);
    node.stop().unwrap();
}

const OVER: &str = "name = \"z\"\npools = [\"b\", \"a\"]\ncapacity = \"16MiB\"\n";

/// Blocks over all stripes of a disk: each has bytes of its own.
fn fill(client: &mut Client, salt: u8) {
    for n in 0..64u8 {
        let bytes: Vec<u8> = (0..40_000u32).map(|i| (i as u8).wrapping_mul(7) ^ n ^ salt).collect();
        assert_eq!(client.write(u64::from(n) * 200_003, &bytes), 0, "{n}");
    }
}

fn is_filled(client: &mut Client, salt: u8) {
    for n in 0..64u8 {
        let read = client.read(u64::from(n) * 200_003, 40_000).unwrap();
        let expected = (0..40_000u32).map(|i| (i as u8).wrapping_mul(7) ^ n ^ salt);
        assert!(read.into_iter().eq(expected), "{n}");
    }
}

#[test]
fn a_disk_lies_over_pools_of_two_loops() {
    let node = Node::start(config("")).unwrap_or_else(|e| panic!("{e}"));
    let control = node.control();
    control.ask(common::add(OVER)).unwrap();
    let mut client = Client::connect(&node, "z");
    fill(&mut client, 1);
    is_filled(&mut client, 1);
    let z = || control.status().unwrap().disk("z").cloned().unwrap();
    assert_eq!(control.status().unwrap().disks.len(), 1, "it is one disk, whatever shards know of it");
    assert_eq!(
        (z().meters.commands, z().connections, z().layout.pools),
        (128, 1, vec!["b".to_owned(), "a".to_owned()])
    );
    until("both gates have served it", || {
        control
            .meters()
            .unwrap()
            .disk("z")
            .is_some_and(|z| z.flow.gates.iter().filter(|at| at.service > 0).count() == 2)
    });
    // A contract is for both gates, and is refused by both or none.
    control.set("z", &[("weight", "3")]).unwrap();
    assert_eq!(z().contract["weight"], "3");
    let room = "20MiB";
    control.ask(Request::Grow { name: "z".into(), capacity: room.into() }).unwrap();
    assert_eq!(
        (z().capacity, Client::connect(&node, "z").write((20 << 20) - 4096, &[9; 4096])),
        (20 << 20, 0)
    );
    is_filled(&mut client, 1);
    let taken = control.ask(common::add(OVER)).unwrap_err().to_string();
    assert!(taken.contains("there is a disk \"z\" already"), "{taken}");
    control.ask(Request::Remove { name: "z".into() }).unwrap();
    let status = control.status().unwrap();
    assert!(status.disk("z").is_none() && status.pools.iter().all(|pool| pool.promised == 0));
    // What was there is nobody's.
    control.ask(common::add(OVER)).unwrap();
    assert_eq!(Client::connect(&node, "z").read(200_003, 40_000).unwrap(), [0; 40_000]);
    // Beyond a pool's room, none of it is there.
    let long = OVER.replace("\"z\"", "\"y\"").replace("16MiB", "700MiB");
    let full = control.ask(common::add(&long)).unwrap_err().to_string();
    assert!(full.contains("disk \"y\"") || full.contains("room"), "{full}");
    assert!(control.status().unwrap().disk("y").is_none());
    control.ask(common::add(&long.replace("700MiB", "16MiB"))).unwrap();
    node.stop().unwrap();
}

/// A node of two pools of files in a folder, which it finds again.
struct Kept(tempfile::TempDir);

impl Kept {
    fn new() -> Kept {
        let dir = tempfile::tempdir().unwrap();
        ["a", "b"].iter().for_each(|pool| std::fs::create_dir(dir.path().join(pool)).unwrap());
        Kept(dir)
    }

    fn start(&self, cores: usize, shards: [&str; 2], disk: &str) -> Node {
        let pool = |name: &str, shard: &str| {
            let path = self.0.path().join(name);
            format!(
                "[[pool]]\nname = \"{name}\"\npath = \"{}\"\ncapacity = \"64MiB\"\n{shard}\n",
                path.display()
            )
        };
        let state = self.0.path().join("state");
        let text = format!(
            "listen = \"nbd://127.0.0.1:0\"\nstate_dir = \"{}\"\ncores = {cores}\n{}{}{disk}",
            state.display(),
            pool("a", shards[0]),
            pool("b", shards[1])
        );
        let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
        Node::start(config).unwrap_or_else(|e| panic!("{e}"))
    }
}

const APART: [&str; 2] = ["shard = 0", "shard = 1"];

#[test]
fn it_keeps_its_bytes_however_pools_are_divided() {
    let kept = Kept::new();
    let added = kept.start(2, APART, "");
    added.control().ask(common::add(OVER)).unwrap();
    fill(&mut Client::connect(&added, "z"), 5);
    added.stop().unwrap();
    for (cores, shards) in [(2, APART), (1, ["", ""]), (2, ["", ""]), (2, APART)] {
        let node = kept.start(cores, shards, "");
        let mut client = Client::connect(&node, "z");
        is_filled(&mut client, 5);
        fill(&mut client, 5);
        drop(client);
        node.stop().unwrap();
    }
}

#[test]
fn a_part_that_cannot_be_opened_is_kept_and_so_are_those_beside_it() {
    let stated = format!("[[disk]]\n{OVER}");
    for (in_file, cores) in [(true, 2), (false, 2), (true, 1), (false, 1)] {
        let kept = Kept::new();
        let shards = if cores == 2 { APART } else { ["", ""] };
        let start = || kept.start(cores, shards, if in_file { &stated } else { "" });
        let node = start();
        if !in_file {
            node.control().ask(common::add(OVER)).unwrap();
        }
        fill(&mut Client::connect(&node, "z"), 5);
        node.stop().unwrap();
        for pool in ["a", "b"] {
            let is_part = |path: &std::path::PathBuf| path.to_string_lossy().contains(".part");
            let files = std::fs::read_dir(kept.0.path().join(pool)).unwrap();
            let part = files.map(|file| file.unwrap().path()).find(is_part).expect("each pool has a part");
            let aside = kept.0.path().join("aside");
            std::fs::rename(&part, &aside).unwrap();
            // It is there and cannot be opened, and whoever unlinks it can.
            std::os::unix::fs::symlink(&part, &part).unwrap();
            let node = start();
            let status = node.control().status().unwrap();
            let case = format!("in the file: {in_file}, {cores} loops, pool {pool}");
            assert!(status.disk("z").is_none(), "{case}: half of it is nobody's disk");
            assert_eq!(status.failed.iter().map(|failed| failed.name.as_str()).collect::<Vec<_>>(), ["z"]);
            let taken = node.control().ask(common::add(OVER)).unwrap_err().to_string();
            assert!(taken.contains("\"z\""), "{taken}");
            node.stop().unwrap();
            assert!(std::fs::symlink_metadata(&part).is_ok(), "{case}: it was deleted");
            std::fs::rename(&aside, &part).unwrap();
            let node = start();
            is_filled(&mut Client::connect(&node, "z"), 5);
            node.stop().unwrap();
        }
    }
}

#[test]
fn every_loop_serves_clients_of_a_pool_that_says_so() {
    let text = "listen = \"nbd://127.0.0.1:0\"\ncores = 3\nbuffers = \"1GiB\"\n[[pool]]\nname = \"hot\"\nmemory = true\ncapacity = \"64MiB\"\n\
                every_core = true\n[[disk]]\nname = \"x\"\ncapacity = \"16MiB\"\n";
    let mut config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
    config.state.forgets = true;
    let node = Node::start(config).unwrap_or_else(|e| panic!("{e}"));
    let control = node.control();
    // A disk that comes later, too.
    control.ask(common::add("name = \"y\"\ncapacity = \"16MiB\"\n")).unwrap();
    for name in ["x", "y"] {
        let mut clients: Vec<Client> = (0..12).map(|_| Client::connect(&node, name)).collect();
        for (n, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.write(n as u64 * 50_001, &[n as u8 + 1; 50_001]), 0);
        }
        // What one has written, each other one reads, by whichever loop.
        for client in &mut clients {
            for n in 0..12u64 {
                assert!(client.read(n * 50_001, 50_001).unwrap().iter().all(|byte| *byte == n as u8 + 1));
            }
        }
        let disk = control.status().unwrap().disk(name).cloned().unwrap();
        assert_eq!((disk.meters.commands, disk.connections), (12 * 13, 12), "{name}");
    }
    until("all have gone", || control.status().unwrap().connections == 0);
    control.ask(Request::Remove { name: "x".into() }).unwrap();
    assert!(control.status().unwrap().disk("x").is_none());
    control.ask(common::add("name = \"x\"\ncapacity = \"16MiB\"\n")).unwrap();
    (0..6).for_each(|_| assert_eq!(Client::connect(&node, "x").read(0, 4096).unwrap(), [0; 4096]));
    node.stop().unwrap();
}

#[test]
fn check_says_which_loop_has_what() {
    let lines = check(&config(&both())).unwrap();
    let cores = lines.iter().find(|line| line.starts_with("cores")).unwrap();
    assert_eq!(cores, "cores    2: shard 0 has a; shard 1 has b");
}
