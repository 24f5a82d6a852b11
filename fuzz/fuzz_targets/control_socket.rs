//! Any lines on the control socket of a node that runs: each is answered, and the node goes on.
//!
//! What is asked is done: disks are made and removed, contracts changed, schedulers exchanged. A node with many disks
//! makes room for a new one, so that inputs stay quick. Each question is two switches between threads, and each of those waits
//! for its turn where the machine has other work of a higher priority: on two cores busy with compilers, 450 inputs a second at
//! priority 5 were 18 at 19. So nothing is asked that the input does not ask for, but the number of disks where one was made.
#![no_main]

use henge_config::Source;
use henge_node::{Node, NodeConfig, answer_line};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;

const NODE: &str = r#"
listen = "nbd+unix:///tmp/henge-fuzz-PID.sock"
[[pool]]
name = "ram"
memory = true
capacity = "16MiB"
scheduler = "sfq"
[[pool]]
name = "disks"
emulated = { raid0 = 2, stripe = "64KiB", disk = "dtla-307075" }
memory = true
capacity = "16MiB"
scheduler = { cvc = { capacity = "1000/s" } }
[[disk]]
name = "web"
pool = "ram"
capacity = "1MiB"
[[disk]]
name = "slow"
pool = "disks"
capacity = "1MiB"
contract = { rate = "10/s" }
"#;
const DISKS_MAX: usize = 8;

thread_local! {
    static RUNNING: RefCell<Option<Node>> = const { RefCell::new(None) };
}

fn start() -> Node {
    let text = NODE.replace("PID", &std::process::id().to_string());
    let mut config = NodeConfig::parse(Source::new("node.toml", &text)).expect("the configuration is right");
    config.state.forgets = true;
    Node::start(config).expect("it starts")
}

fuzz_target!(|data: &[u8]| {
    RUNNING.with_borrow_mut(|running| {
        let node = running.get_or_insert_with(start);
        let mut added = false;
        for line in data.split(|&b| b == b'\n').take(8) {
            let reply = answer_line(line, node.control());
            assert!(reply.ok != reply.error.is_some(), "an error says what it is");
            assert_ne!(reply.error.as_deref(), Some("the node is ending"), "the node goes on");
            added |= reply.ok && line.windows(5).any(|word| word == b"\"add\"");
            let text = serde_json::to_string(&reply).expect("answers can be written");
            assert!(!text.contains('\n'), "an answer is one line");
        }
        if added && node.control().status().expect("the node goes on").disks.len() > DISKS_MAX {
            *running = None;
        }
    });
});
