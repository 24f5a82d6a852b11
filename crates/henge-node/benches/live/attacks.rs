//! Clients without manners: what they make a node hold, and whether others notice.

use crate::Report;
use crate::client::{Client, Load, READ, WRITE};
use crate::node::Node;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Two tenants at weights 1 and 3, and one whose clients misbehave.
const CONFIG: &str = r#"
connections = 16000
buffers = "256MiB"
[[pool]]
name = "p"
memory = true
capacity = "4GiB"
scheduler = { sfq = { depth = 1 } }
emulated = { constant = { rate = "400MB/s", time = "200us", capacity = "4GiB" } }
[[disk]]
name = "one"
capacity = "256MiB"
contract = { weight = 1 }
[[disk]]
name = "three"
capacity = "256MiB"
contract = { weight = 3 }
[[disk]]
name = "rude"
capacity = "1GiB"
contract = { weight = 1 }
"#;
const LONGEST: u32 = 32 << 20;
/// Of a connection: its memory here, and what its socket holds of replies that nobody reads.
const CONNECTIONS: usize = 10_000;

pub fn run(report: &mut Report) {
    report.say("attacks, 8 s each: tenants at weights 1 and 3 (16 reads of 16 KiB each) beside one at weight 1 that …");
    type Begin = fn(&Path) -> Attack;
    // Beside them, for comparison, a polite client that asks for as much at once.
    let attacks: [(&str, Begin, u32); 4] = [
        ("asks for the longest request again and again", longest, 1 << 20),
        ("reads nothing, on 100 connections", reads_nothing, 128 << 10),
        ("writes nothing after its headers, on 1000", writes_nothing, 1 << 20),
        ("opens 10,000 connections, half say hello", opens, 1 << 20),
    ];
    for (what, begin, len) in attacks {
        let node = Node::start(CONFIG);
        let _good = [
            Load::start(&node.socket(), "one", 16, 16 << 10),
            Load::start(&node.socket(), "three", 16, 16 << 10),
        ];
        std::thread::sleep(Duration::from_millis(500));
        // What a tenant gets while the third is as greedy, and polite.
        let polite = Load::start(&node.socket(), "rude", 16, len);
        std::thread::sleep(Duration::from_millis(500));
        let usual = node.rates(&["one", "three"], Duration::from_secs(6));
        drop(polite);
        let (quiet, cpu) = (node.memory("VmRSS"), node.cpu());
        let attack = begin(&node.socket());
        std::thread::sleep(Duration::from_secs(2));
        let rates = node.rates(&["one", "three"], Duration::from_secs(8));
        report.say(&format!("… {what}"));
        report.held("share of the other two", rates[1].1 / rates[0].1, ": 1", 3.0, 0.02);
        for (i, weight) in [(0, 1), (1, 3)] {
            let part = rates[i].1 / usual[i].1 * 100.0;
            report.at_least(&format!("of what weight {weight} gets beside a polite one"), part, "%", 98.0);
        }
        report.figure("node's memory before", quiet, "MiB");
        report.figure("node's memory, at most", node.memory("VmHWM"), "MiB");
        report.figure(
            "of it buffers (at most 256)",
            node.status().buffers_out as f64 / f64::from(1 << 20),
            "MiB",
        );
        report.figure("connections", node.status().connections as f64, "");
        report.figure("CPU", (node.cpu() - cpu) / 10.0 * 100.0, "%");
        drop(attack);
        let patience = std::time::Instant::now();
        while node.status().connections > 2 && patience.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(50));
        }
        report.figure("connections once it is gone", node.status().connections as f64, "(2 are the others')");
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// What goes on until it is dropped.
struct Attack {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
    _idle: Vec<UnixStream>,
}

impl Attack {
    fn holding(streams: Vec<UnixStream>) -> Attack {
        Attack { stop: Arc::default(), threads: Vec::new(), _idle: streams }
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn longest(socket: &Path) -> Attack {
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, mut client) =
        (Arc::clone(&stop), Client::connect(socket, "rude").expect("it takes a client"));
    let mut work = move || -> io::Result<()> {
        for _ in 0..8 {
            client.send(READ, 0, LONGEST)?;
        }
        while !stopped.load(Ordering::Relaxed) {
            client.receive(LONGEST)?;
            client.send(READ, 0, LONGEST)?;
        }
        Ok(())
    };
    let thread = std::thread::spawn(move || drop(work()));
    Attack { stop, threads: vec![thread], _idle: Vec::new() }
}

fn reads_nothing(socket: &Path) -> Attack {
    let streams = (0..100).map(|_| {
        let mut client = Client::connect(socket, "rude").expect("it takes a client");
        client.stream.set_nonblocking(true).expect("a socket may be nonblocking");
        // As many requests as the node takes in.
        for _ in 0..4096 {
            if client.send(READ, 0, 128 << 10).is_err() {
                break;
            }
        }
        client.stream
    });
    Attack::holding(streams.collect())
}

fn writes_nothing(socket: &Path) -> Attack {
    let streams = (0..1000).map(|_| {
        let mut client = Client::connect(socket, "rude").expect("it takes a client");
        client.send(WRITE, 0, LONGEST).expect("a header is taken");
        client.stream
    });
    Attack::holding(streams.collect())
}

fn opens(socket: &Path) -> Attack {
    let mut streams = Vec::new();
    for i in 0..CONNECTIONS {
        let Ok(mut stream) = UnixStream::connect(socket) else {
            std::thread::sleep(Duration::from_millis(1)); // the queue of those not yet accepted is full
            continue;
        };
        if i % 2 == 0 {
            let _ = stream.write_all(&3u32.to_be_bytes());
        }
        streams.push(stream);
    }
    Attack::holding(streams)
}
