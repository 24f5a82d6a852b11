//! What a request costs, and what memory a node takes, as connections and disks grow.

use crate::Report;
use crate::client::{Client, READ};
use crate::node::Node;
use henge_api::{Choice, Request};
use std::fmt::Write;
use std::time::{Duration, Instant};

const LEN: u32 = 4 << 10;
const GROWTH: [usize; 4] = [1, 10, 100, 1000];

pub fn run(report: &mut Report) {
    report.say(
        "scale: reads of 4 KiB, memory pool, SFQ(32); a disk and a connection of its own for each client;",
    );
    report.say("       every client has one read under way, so as many flows wait as there are");
    for n in GROWTH {
        grow(report, n, n);
    }
    report.say("scale: the same with 32 clients that work, among so many disks");
    for n in &GROWTH[2..] {
        grow(report, *n, 32);
    }
}

fn grow(report: &mut Report, disks: usize, active: usize) {
    let mut config = String::from(
        "connections = 4096\n[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"2GiB\"\nscheduler = { sfq = { depth = 32 } }\n",
    );
    for i in 0..disks {
        writeln!(config, "[[disk]]\nname = \"d{i}\"\ncapacity = \"1MiB\"").expect("a string takes all");
    }
    let began = Instant::now();
    let node = Node::start(&config);
    let started = began.elapsed().as_secs_f64() * 1e3;
    let empty = node.memory("VmRSS");
    let began = Instant::now();
    let mut clients: Vec<Client> = (0..disks)
        .map(|i| Client::connect(&node.socket(), &format!("d{i}")).expect("the node takes a client"))
        .collect();
    let connected = began.elapsed().as_secs_f64() * 1e6 / disks as f64;
    let connections = node.memory("VmRSS");
    let mut answered = 0u64;
    let mut cpu = node.cpu();
    let mut began = Instant::now();
    let mut warm = false;
    loop {
        for client in &mut clients[..active] {
            client.send(READ, 0, LEN).expect("the node reads");
        }
        for client in &mut clients[..active] {
            client.receive(LEN).expect("the node answers");
        }
        answered += active as u64;
        if !warm && began.elapsed() > Duration::from_millis(500) {
            (warm, answered, cpu, began) = (true, 0, node.cpu(), Instant::now());
        } else if warm && began.elapsed() > Duration::from_secs(3) {
            break;
        }
    }
    let each = (node.cpu() - cpu) * 1e6 / answered as f64;
    let rate = answered as f64 / began.elapsed().as_secs_f64();
    let asked = Instant::now();
    node.status();
    let status = asked.elapsed().as_secs_f64() * 1e3;
    let reset = node.order(&Request::Reset);
    let scheduler = Choice(serde_json::json!({ "sfq": { "depth": 32 } }));
    let exchange = node.order(&Request::Scheduler { pool: "p".to_owned(), scheduler });
    let name = format!("{disks} disks, {active} at work");
    if report.is_json() {
        report.figure(&format!("scale/{disks}/{active}/cpu"), each, "us/request");
        report.figure(&format!("scale/{disks}/{active}/memory"), node.memory("VmRSS"), "MiB");
        report.figure(&format!("scale/{disks}/{active}/reset"), reset, "ms");
        report.figure(&format!("scale/{disks}/{active}/exchange"), exchange, "ms");
        return;
    }
    println!(
        "  {name:<26}{each:>7.2} us CPU/request {rate:>9.0} requests/s; memory {empty:>6.1} MiB, {connections:>6.1} connected, {:>6.1} worked; \
         start {started:>5.0} ms, connect {connected:>4.0} us each, status {status:>5.1} ms, reset {reset:>5.2} ms, exchange {exchange:>5.2} ms",
        node.memory("VmRSS")
    );
}
