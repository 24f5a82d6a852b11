//! What a proxy costs: throughput where servers are the limit, CPU a MiB beside a plain splice forwarder, CPU a message
//! between proxies, memory with a thousand connections.
//!
//! `make bench-vpfs` (`ARGS="throughput cpu messages memory"` for some of it). Servers and clients are the double of
//! the tests, in this process; CPU is that of the proxies' threads.

#[path = "../../tests/it/double/mod.rs"]
mod double;
mod forwarder;

use double::{Client, Server, pattern};
use forwarder::Forwarder;
use henge_proxy::{Config, Proxy, Status, Stop};
use rustix::time::{ClockId, clock_gettime};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SERVERS: usize = 4;
const LIMITS: &str = "ClientJobBMITimeoutSecs 300\nServerJobFlowTimeoutSecs 30\n";
/// Bytes of one call, over all servers.
const CALL: usize = 4 << 20;

/// CPU seconds of the thread that asks.
pub fn thread_cpu() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// Four proxies that tell each other, with one application.
struct Proxies {
    addresses: Vec<SocketAddr>,
    control: Vec<std::path::PathBuf>,
    threads: Vec<(Stop, std::thread::JoinHandle<f64>)>,
    _folder: tempfile::TempDir,
}

impl Proxies {
    fn start(servers: &[Server], sync: &str) -> Proxies {
        let folder = tempfile::tempdir().expect("a folder");
        let ports: [u16; SERVERS] = double::free_ports();
        let (mut addresses, mut threads, mut controls) = (Vec::new(), Vec::new(), Vec::new());
        for (i, server) in servers.iter().enumerate() {
            let control = folder.path().join(format!("{i}.sock"));
            let mut text = format!(
                "server = \"{}\"\ncontrol = \"{}\"\nscheduler = {{ sfq = {{ depth = 16 }} }}\nsync = {sync}
                [cluster]\nnode = \"s{i}\"\nsecret = \"correct horse battery\"\nlisten = \"127.0.0.1:{}\"
                [[flow]]\nname = \"app\"\ncontract = {{ weight = 1 }}
                [[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"app\"\n",
                server.address,
                control.display(),
                ports[i]
            );
            for j in (0..servers.len()).filter(|j| *j != i) {
                text += &format!("[[peer]]\nname = \"s{j}\"\naddress = \"127.0.0.1:{}\"\n", ports[j]);
            }
            let mut config =
                Config::parse(henge_config::Source::new("bench", text)).unwrap_or_else(|e| panic!("{e}"));
            config.state_dir = None;
            let mut proxy = Proxy::new(config).unwrap_or_else(|e| panic!("{e}"));
            addresses.push(proxy.addresses()[0]);
            let stop = proxy.stopper();
            let named = std::thread::Builder::new().name("proxy".into());
            let thread = named.spawn(move || {
                proxy.run().expect("it runs");
                thread_cpu()
            });
            let thread = thread.expect("a thread");
            threads.push((stop, thread));
            controls.push(control);
        }
        std::thread::sleep(Duration::from_millis(500)); // they find each other
        Proxies { addresses, control: controls, threads, _folder: folder }
    }

    fn messages(&self) -> u64 {
        let sent =
            |c: &std::path::PathBuf| Status::ask(c).expect("a status")["messages_sent"].as_u64().unwrap_or(0);
        self.control.iter().map(sent).sum()
    }

    /// Stops them; their CPU seconds.
    fn stop(self) -> f64 {
        self.threads.iter().for_each(|(stop, _)| stop.stop());
        self.threads.into_iter().map(|(_, thread)| thread.join().expect("it ran")).sum()
    }
}

/// What a load moved: MiB a second in the midst of it, and MiB in all.
struct Moved {
    rate: f64,
    all: f64,
}

/// So many clients write or read sequentially for a while.
fn load(addresses: &[SocketAddr], clients: u64, seconds: f64, read: bool) -> Moved {
    let (stop, moved) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (1..=clients)
        .map(|file| {
            let (addresses, stop, moved) = (addresses.to_vec(), stop.clone(), moved.clone());
            std::thread::spawn(move || {
                let mut client = Client::connect(&addresses, file);
                let data = pattern(file, 0, CALL);
                client.write(0, &data).expect("written");
                moved.fetch_add(CALL as u64, Ordering::Relaxed);
                while !stop.load(Ordering::Relaxed) {
                    match read {
                        true => client.read_and_compare(0, &data).expect("read"),
                        false => client.write(0, &data).expect("written"),
                    }
                    moved.fetch_add(CALL as u64, Ordering::Relaxed);
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let (from, begun) = (moved.load(Ordering::Relaxed), Instant::now());
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let (to, took) = (moved.load(Ordering::Relaxed), begun.elapsed().as_secs_f64());
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|t| t.join().expect("a client"));
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Moved { rate: mib(to - from) / took, all: mib(moved.load(Ordering::Relaxed)) }
}

fn start_servers(bytes_per_second: f64) -> Vec<Server> {
    (0..SERVERS).map(|_| Server::start(bytes_per_second, LIMITS)).collect()
}

fn addresses(servers: &[Server]) -> Vec<SocketAddr> {
    servers.iter().map(|s| s.address).collect()
}

/// Median, least and most.
fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

/// Servers are the limit: throughput through proxies, of that direct, pair by pair.
fn servers_are_the_limit(rounds: usize) {
    for read in [false, true] {
        let ratios = (0..rounds).map(|_| {
            let servers = start_servers(100e6);
            let direct = load(&addresses(&servers), 8, 3.0, read);
            let proxies = Proxies::start(&servers, "{ predict = { every = \"1MiB\" } }");
            let through = load(&proxies.addresses, 8, 3.0, read);
            proxies.stop();
            eprintln!("    direct {:.1} MiB/s, through proxies {:.1} MiB/s", direct.rate, through.rate);
            through.rate / direct.rate
        });
        let (median, least, most) = spread(ratios.collect());
        println!(
            "{SERVERS} servers of 100 MB/s, {}: {:+.2} % of the direct throughput (least {:+.2}, most {:+.2}; {rounds} pairs)",
            if read { "reads" } else { "writes" },
            (median - 1.0) * 100.0,
            (least - 1.0) * 100.0,
            (most - 1.0) * 100.0
        );
    }
}

/// CPU is the limit: CPU of the proxies a MiB, of a splice forwarder's, pair by pair.
fn cpu_is_the_limit(rounds: usize) {
    const TURNS: usize = 4;
    const PREDICT: &str = "{ predict = { every = \"1MiB\" } }";
    for (sync, read) in [(PREDICT, false), (PREDICT, true), ("\"none\"", false), ("\"none\"", true)] {
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            let servers = start_servers(1e12);
            let forwarder = Forwarder::start(&addresses(&servers));
            let proxies = Proxies::start(&servers, sync);
            // By turns of less than a second, so that both meet the same weather.
            let (mut plain, mut through) = (0.0, 0.0);
            for _ in 0..TURNS {
                plain += load(&forwarder.addresses, 4, 0.3, read).all;
                through += load(&proxies.addresses, 4, 0.3, read).all;
            }
            let (plain, through) = (forwarder.stop() * 1e6 / plain, proxies.stop() * 1e6 / through);
            ours.push(through);
            theirs.push(plain);
            ratios.push(through / plain);
        }
        let (median, least, most) = spread(ratios);
        println!(
            "CPU a MiB, {}, sync = {sync}: proxy {:.0} us, splice forwarder {:.0} us, ratio {median:.2} (least {least:.2}, most {most:.2}; {rounds} pairs)",
            if read { "reads" } else { "writes" },
            spread(ours).0,
            spread(theirs).0
        );
    }
}

/// What a message between proxies costs at each end: small requests, announced each, and not at all.
fn messages() {
    const CALLS: usize = 3000;
    let run = |sync: &str| {
        let servers = start_servers(1e12);
        let proxies = Proxies::start(&servers, sync);
        let addresses = proxies.addresses.clone();
        let threads: Vec<_> = (1..=4u64)
            .map(|file| {
                let addresses = addresses.clone();
                std::thread::spawn(move || {
                    let mut client = Client::connect(&addresses, file);
                    let data = pattern(file, 0, 256 << 10);
                    for _ in 0..CALLS {
                        client.write(0, &data).expect("written");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().expect("a client"));
        let messages = proxies.messages();
        (proxies.stop(), messages)
    };
    let (with, messages) = run("{ threshold = { every = \"32KiB\" } }");
    let (without, _) = run("\"none\"");
    println!(
        "messages between proxies: {messages}; {:.1} us of CPU for each, at each of its ends",
        (with - without) * 1e6 / (2 * messages) as f64
    );
}

/// Ends with whoever started it, also when that panics.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Memory of a proxy with a thousand connections, each with a request behind it.
fn memory(henge: &str) {
    // Clients and the server's ends of them are here.
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = rustix::process::Rlimit { current: most, maximum: most };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("the limit's limit");
    let server = Server::start(1e12, LIMITS);
    let folder = tempfile::tempdir().expect("a folder");
    let ([port], file) = (double::free_ports(), folder.path().join("proxy.toml"));
    let text = format!(
        "server = \"{}\"\nconnections = 2000\n[[listen]]\naddress = \"127.0.0.1:{port}\"\n",
        server.address
    );
    std::fs::write(&file, text).expect("written");
    let child = std::process::Command::new(henge)
        .args(["proxy", "-c"])
        .arg(&file)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("henge runs");
    let child = Child(child);
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    while TcpStream::connect(address).is_err() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut clients: Vec<Client> = (1..=1000).map(|file| Client::connect(&[address], file)).collect();
    for (file, client) in clients.iter_mut().enumerate() {
        client.write(0, &pattern(file as u64, 0, 300_000)).expect("written");
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.0.id())).expect("Linux says");
    let of = |key: &str| {
        let line = status.lines().find(|l| l.starts_with(key)).expect("it says that too");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).expect("a number") * 1024.0
            / 1e6
    };
    println!("memory with 1,000 connections: {:.1} MB, {:.1} MB at most", of("VmRSS:"), of("VmHWM:"));
}

fn main() {
    let rounds = std::env::var("ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(5);
    let only: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|o| o == name);
    if wanted("throughput") {
        servers_are_the_limit(rounds);
    }
    if wanted("cpu") {
        cpu_is_the_limit(rounds);
    }
    if wanted("messages") {
        messages();
    }
    if !wanted("memory") {
        return;
    }
    match std::env::var("HENGE") {
        Ok(henge) => memory(&henge),
        Err(_) => println!("skipped: memory with 1,000 connections needs HENGE, the command's path"),
    }
}
