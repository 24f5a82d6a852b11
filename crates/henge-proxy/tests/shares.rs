//! Shares and latencies through proxies, over real sockets and in real time, beside the simulator's for the same load.
//!
//! Minutes of real time, so `make test` leaves them out and `make test-vpfs` runs them. 64 processes an application.

mod double;

use double::*;
use henge_sim::{Outside, Unwatched, World};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LIMITS: &str = "ClientJobBMITimeoutSecs 300\nServerJobFlowTimeoutSecs 30\n";
const PROCESSES: u64 = 64;
/// Bytes a second of each server.
const SPEED: f64 = 10e6;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

/// A proxy before each server; `one` and `four` come in at ports of their own.
fn proxies(servers: &[Server], scheduler: &str, sync: &str) -> Vec<Running> {
    let ports: Vec<u16> = servers.iter().map(|_| free_port()).collect();
    let start = |i: usize| {
        let mut text = format!(
            "server = \"{}\"\nscheduler = {scheduler}\nsync = {sync}
            [cluster]\nnode = \"s{i}\"\nsecret = \"correct horse\"\nlisten = \"127.0.0.1:{}\"
            [[flow]]\nname = \"one\"\ncontract = {{ weight = 1 }}\n[[flow]]\nname = \"four\"\ncontract = {{ weight = 4 }}
            [[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"one\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"four\"\n",
            servers[i].address, ports[i]
        );
        for j in (0..servers.len()).filter(|j| *j != i) {
            text += &format!("[[peer]]\nname = \"s{j}\"\naddress = \"127.0.0.1:{}\"\n", ports[j]);
        }
        Running::start(&text)
    };
    (0..servers.len()).map(start).collect()
}

/// Processes that write 64 KiB on each server of a file of theirs, and verify at the end; bytes are counted.
fn application(
    servers: &[SocketAddr],
    first_file: u64,
    stop: &Arc<AtomicBool>,
    bytes: &Arc<AtomicU64>,
) -> Vec<std::thread::JoinHandle<()>> {
    let process = |i: u64| {
        let (servers, stop, bytes) = (servers.to_vec(), stop.clone(), bytes.clone());
        std::thread::spawn(move || {
            let len = servers.len() << 16;
            let mut client = Client::connect(&servers, first_file + i);
            while !stop.load(Ordering::Relaxed) {
                client.write(0, &pattern(first_file + i, 0, len)).expect("written");
                bytes.fetch_add(len as u64, Ordering::Relaxed);
            }
            client.read_and_compare(0, &pattern(first_file + i, 0, len)).expect("as it was written");
        })
    };
    (0..PROCESSES).map(process).collect()
}

/// `one` writes to two servers, `four` to all four: MB/s of each.
fn live(scheduler: &str, sync: &str, seconds: u64, with_four: bool) -> [f64; 2] {
    let servers: Vec<Server> = (0..4).map(|_| Server::start(SPEED, LIMITS)).collect();
    let proxies = proxies(&servers, scheduler, sync);
    let at = |n: usize, app: usize| proxies[..n].iter().map(|p| p.addresses[app]).collect::<Vec<_>>();
    let stop = Arc::new(AtomicBool::new(false));
    let counts = [Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0))];
    let mut threads = application(&at(2, 0), 1000, &stop, &counts[0]);
    if with_four {
        threads.extend(application(&at(4, 1), 2000, &stop, &counts[1]));
    }
    std::thread::sleep(Duration::from_secs(4));
    let read = || counts.each_ref().map(|c| c.load(Ordering::Relaxed));
    let (before, begun) = (read(), Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, took) = (read(), begun.elapsed().as_secs_f64());
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|t| t.join().expect("data as it was written"));
    [0, 1].map(|i| (after[i] - before[i]) as f64 / took / 1e6)
}

/// The same load in the simulator.
fn simulated(scheduler: &str, sync: &str, seconds: u64) -> [f64; 2] {
    let text = format!(
        "duration = \"{seconds}s\"\nwarmup = \"4s\"\n[node]\nnodes = 4
        device = {{ constant = {{ rate = \"10MB/s\" }} }}\nscheduler = {scheduler}
        [network]\nlatency = \"100us\"\nsync = {sync}
        [[flow]]\nname = \"one\"\nnodes = [0, 1]\ncontract = {{ weight = 1 }}
        workload = {{ pattern = \"random\", size = \"128KiB\", align = \"128KiB\", read = 0.0, outstanding = {PROCESSES} }}
        [[flow]]\nname = \"four\"\ncontract = {{ weight = 4 }}
        workload = {{ pattern = \"random\", size = \"256KiB\", align = \"256KiB\", read = 0.0, outstanding = {PROCESSES} }}\n"
    );
    let params = henge_config::Source::new("scenario", text).parse("the scenario").expect("a scenario");
    let traces = |_: &henge_workload::TraceSpec| Err("no traces here".to_owned());
    let world = World::build(params, &Outside { devices: &henge_device::no_files, traces: &traces });
    let outcome = world.unwrap_or_else(|e| panic!("{e}")).run(&mut Unwatched).expect("it runs");
    ["one", "four"].map(|flow| outcome.flow(flow).expect("a flow").bytes as f64 / seconds as f64 / 1e6)
}

/// 4 : 1 promised for the totals; how much of it was reached, from either side.
fn reached([one, four]: [f64; 2]) -> f64 {
    let ratio = four / one / 4.0;
    ratio.min(1.0 / ratio)
}

#[test]
#[ignore = "a minute of real time: make test-vpfs"]
fn totals_through_four_proxies_follow_the_weights_as_in_the_simulator() {
    let scheduler = "{ sfq = { depth = 2 } }";
    for (sync, wanted) in [
        ("{ predict = { every = \"1MiB\" } }", 0.99),
        ("\"layout\"", 0.99),
        ("{ threshold = { every = \"256KiB\" } }", 0.97),
    ] {
        let (live, simulated) = (live(scheduler, sync, 16, true), simulated(scheduler, sync, 16));
        let share = |[one, four]: [f64; 2]| four / (one + four);
        let apart = (share(live) / share(simulated) - 1.0).abs();
        println!(
            "{sync}: live {:.2} and {:.2} MB/s, {:.1} % of 4 : 1; simulated {:.2} and {:.2}, {:.1} %; shares {:.2} % apart",
            live[0],
            live[1],
            reached(live) * 100.0,
            simulated[0],
            simulated[1],
            reached(simulated) * 100.0,
            apart * 100.0
        );
        assert!(reached(live) >= wanted, "{sync}: {live:?}");
        assert!(apart <= 0.02, "{sync}: {live:?} {simulated:?}");
    }
}

/// Not work-conserving: one alone gets its sixth of the capacity (4 : 1, and 1 for whoever no rule names),
/// though all of it is free.
#[test]
#[ignore = "a minute of real time: make test-vpfs"]
fn without_work_conservation_nobody_gets_more_than_its_share() {
    let limiting = "{ sfq = { depth = 2, work_conserving = false, capacity = \"40MB/s\" } }";
    let sync = "{ predict = { every = \"256KiB\" } }";
    let [alone, _] = live(limiting, sync, 12, false);
    let promised = 40.0 / 6.0;
    println!("work_conserving = false: one alone has {alone:.2} MB/s of its {promised:.2}");
    assert!((alone / promised - 1.0).abs() < 0.05, "{alone}");
}

/// Requests that one application meant to send at fixed times: how late each was answered, by window of a second.
fn paced(
    address: SocketAddr,
    file: u64,
    per_second: f64,
    seconds: u64,
    begun: Instant,
) -> Vec<(usize, Duration)> {
    let gap = PROCESSES as f64 / per_second;
    let process = |i: u64| {
        std::thread::spawn(move || {
            let mut client = Client::connect(&[address], file + i);
            let data = pattern(file + i, 0, 65_536);
            client.write(0, &data).expect("written");
            let mut answers = Vec::new();
            for n in 0.. {
                let due = begun + Duration::from_secs_f64(gap * (n as f64 + i as f64 / PROCESSES as f64));
                let second = due.duration_since(begun).as_secs();
                if second >= seconds {
                    return answers;
                }
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                client.read_and_compare(0, &data).expect("read");
                answers.push((second as usize, due.elapsed()));
            }
            answers
        })
    };
    let threads: Vec<_> = (0..PROCESSES).map(process).collect();
    threads.into_iter().flat_map(|t| t.join().expect("a process")).collect()
}

/// Two-level contracts: 30 and 12 MB/s of 50 offered in 64 KiB requests, 100 ms and 300 ms at the 95th percentile.
#[test]
#[ignore = "a minute of real time: make test-vpfs"]
fn two_level_contracts_hold_through_a_proxy() {
    const SECONDS: u64 = 30;
    let server = Server::start(50e6, LIMITS);
    let proxy = Running::start(&format!(
        "server = \"{}\"\nscheduler = \"two-level\"
        [[flow]]\nname = \"fast\"\ncontract = {{ rate = \"32MB/s\", latency = \"100ms\", percentile = 95 }}
        [[flow]]\nname = \"slow\"\ncontract = {{ rate = \"14MB/s\", latency = \"300ms\", percentile = 95 }}
        [[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"fast\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"slow\"\n",
        server.address
    ));
    let begun = Instant::now() + Duration::from_secs(3);
    let apps = [(30e6, 100), (12e6, 300)].iter().zip(&proxy.addresses).enumerate().map(
        |(i, ((rate, bound), address))| {
            let (rate, address) = (*rate / 65_536.0, *address);
            (*bound, std::thread::spawn(move || paced(address, 1000 * (i as u64 + 1), rate, SECONDS, begun)))
        },
    );
    for (bound, thread) in apps.collect::<Vec<_>>() {
        let answers = thread.join().expect("an application");
        let mut within = 0;
        for second in 0..SECONDS as usize {
            let mut window: Vec<Duration> = answers.iter().filter(|a| a.0 == second).map(|a| a.1).collect();
            window.sort();
            let p95 = window[(window.len() * 95).div_ceil(100) - 1];
            within += u64::from(p95 <= Duration::from_millis(bound));
        }
        println!(
            "two-level, {bound} ms: 95th percentile within in {within} of {SECONDS} windows, {} requests",
            answers.len()
        );
        assert!(within * 100 >= SECONDS * 95);
    }
}
