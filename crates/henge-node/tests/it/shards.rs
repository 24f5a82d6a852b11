//! A node of two loops, from outside: whichever accepts, each client reaches its disk, and the handle speaks for both.

use crate::common::{self, Client, until};
use henge_api::Request;
use henge_config::Source;
use henge_node::{Node, NodeConfig, check};

fn config(disks: &str) -> NodeConfig {
    let pool = |name| format!("[[pool]]\nname = \"{name}\"\nmemory = true\ncapacity = \"256MiB\"\n");
    let text = format!("listen = \"nbd://127.0.0.1:0\"\ncores = 2\n{}{}{disks}", pool("a"), pool("b"));
    let mut config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
    config.forgets = true;
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
        assert_eq!((disk.commands, disk.reads, disk.connections), (16, 8, 8), "{name}");
    }
    let meters = node.control().meters().unwrap();
    let gates: Vec<u32> = ["x", "y"].map(|name| meters.disk(name).unwrap().gates[0].gate).to_vec();
    assert_eq!(gates, [0, 1], "each has a number of its own");
    drop(clients);
    until("all have gone", || node.control().status().unwrap().connections == 0);
    node.control().reset().unwrap();
    let status = node.control().status().unwrap();
    assert!(["x", "y"].iter().all(|name| status.disk(name).unwrap().commands == 0));
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

#[test]
fn pools_of_two_loops_have_no_disk_in_common() {
    let node = Node::start(config("")).unwrap_or_else(|e| panic!("{e}"));
    let over = "name = \"z\"\npools = [\"a\", \"b\"]\ncapacity = \"16MiB\"\n";
    let why = node.control().ask(common::add(over)).unwrap_err().to_string();
    assert!(why.contains("different cores") && why.contains("the same shard"), "{why}");
    node.stop().unwrap();
    // In the file it keeps them on one loop.
    let node = Node::start(config(&format!("[[disk]]\n{over}"))).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(Client::connect(&node, "z").write(60 << 10, &[1; 16 << 10]), 0);
    node.stop().unwrap();
}

#[test]
fn check_says_which_loop_has_what() {
    let lines = check(&config(&both())).unwrap();
    let cores = lines.iter().find(|line| line.starts_with("cores")).unwrap();
    assert_eq!(cores, "cores    2: shard 0 has a; shard 1 has b");
}
