//! Shares and latencies through proxies, over real sockets and in real time, beside the simulator's for the same load.
//!
//! Minutes of real time, so `make test` leaves them out and `make test-vpfs` runs them. 64 processes an application.

use crate::double::*;
use henge_core::{Instant, Op, RequestRow};
use henge_sim::{Outside, Unwatched, World};
use henge_workload::{Record, Records, TraceError, TraceSpec};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LIMITS: &str = "ClientJobBMITimeoutSecs 300\nServerJobFlowTimeoutSecs 30\n";
const PROCESSES: u64 = 64;
/// Bytes a second of each server.
const SPEED: f64 = 10e6;

/// A proxy before each server; `one` and `four` come in at ports of their own.
fn proxies(servers: &[Server], scheduler: &str, sync: &str, record: &Path) -> Vec<Running> {
    let ports: [u16; 4] = free_ports();
    let start = |i: usize| {
        let mut text = format!(
            "server = \"{}\"\nscheduler = {scheduler}\nsync = {sync}\nrecord = \"{}\"
            [cluster]\nnode = \"s{i}\"\nsecret = \"correct horse battery\"\nlisten = \"127.0.0.1:{}\"
            [[flow]]\nname = \"one\"\ncontract = {{ weight = 1 }}\n[[flow]]\nname = \"four\"\ncontract = {{ weight = 4 }}
            [[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"one\"\n[[listen]]\naddress = \"127.0.0.1:0\"\nflow = \"four\"\n",
            servers[i].address,
            record.join(format!("{i}.csv")).display(),
            ports[i]
        );
        for j in (0..servers.len()).filter(|j| *j != i) {
            text += &format!("[[peer]]\nname = \"s{j}\"\naddress = \"127.0.0.1:{}\"\n", ports[j]);
        }
        Running::start(&text)
    };
    (0..servers.len()).map(start).collect()
}

/// Processes that write 64 KiB on each server of a file of theirs, and verify at the end.
fn application(
    servers: &[SocketAddr],
    first_file: u64,
    stop: &Arc<AtomicBool>,
) -> Vec<std::thread::JoinHandle<()>> {
    let process = |i: u64| {
        let (servers, stop) = (servers.to_vec(), stop.clone());
        std::thread::spawn(move || {
            let len = servers.len() << 16;
            let mut client = Client::connect(&servers, first_file + i);
            while !stop.load(Ordering::Relaxed) {
                client.write(0, &pattern(first_file + i, 0, len)).expect("written");
            }
            client.read_and_compare(0, &pattern(first_file + i, 0, len)).expect("as it was written");
        })
    };
    (0..PROCESSES).map(process).collect()
}

/// What a live run did: MB/s of each, when measuring began, and when each one's commands had come at the first proxy.
struct Live {
    rates: [f64; 2],
    began: Duration,
    arrivals: [Vec<Instant>; 2],
}

/// `one` writes to two servers, `four` to all four. Bytes are counted where they are: at the servers, as they come. (Whole
/// calls would not do: 64 processes in step end 64 of some 1,000 calls on either side of a moment.)
fn live(scheduler: &str, sync: &str, seconds: u64, with_four: bool) -> Live {
    let folder = tempfile::tempdir().expect("a folder");
    let servers: Vec<Server> = (0..4).map(|_| Server::start(SPEED, LIMITS)).collect();
    let started = std::time::Instant::now();
    let proxies = proxies(&servers, scheduler, sync, folder.path());
    let at = |n: usize, app: usize| proxies[..n].iter().map(|p| p.addresses[app]).collect::<Vec<_>>();
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = application(&at(2, 0), 1000, &stop);
    if with_four {
        threads.extend(application(&at(4, 1), 2000, &stop));
    }
    std::thread::sleep(Duration::from_secs(4));
    let count = |files: std::ops::Range<u64>| {
        let of = |s: &Server| s.store.lock().expect("a store").moved_of(files.clone());
        servers.iter().map(of).sum::<u64>() as f64
    };
    let read = || [count(1000..2000), count(2000..3000)];
    let (before, begun) = (read(), std::time::Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, took) = (read(), begun.elapsed().as_secs_f64());
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|t| t.join().expect("data as it was written"));
    drop(proxies);
    let text = std::fs::read_to_string(folder.path().join("0.csv")).expect("a record");
    let arrivals = ["one", "four"].map(|flow| {
        let rows = text.lines().skip(1).map(|line| RequestRow::parse(line).expect("a row"));
        let mut all: Vec<Instant> =
            rows.filter(|r| r.flow == flow && r.op == Op::Write).map(|r| r.arrival).collect();
        all.sort_unstable();
        all
    });
    Live { rates: [0, 1].map(|i| (after[i] - before[i]) / took / 1e6), began: begun - started, arrivals }
}

/// A simulated run: as many processes that do the same, or the very commands of a live run at their times.
fn simulated(scheduler: &str, sync: &str, seconds: u64, live: Option<&Live>) -> [f64; 2] {
    let warmup = live.map_or(Duration::from_secs(4), |live| live.began).as_nanos();
    let load = |flow: &str, size: u64| match live {
        Some(_) => format!("{{ trace = \"{flow}\" }}"),
        None => format!(
            "{{ pattern = \"random\", size = \"{size}KiB\", align = \"{size}KiB\", read = 0.0, outstanding = {PROCESSES} }}"
        ),
    };
    let text = format!(
        "duration = \"{seconds}s\"\nwarmup = \"{warmup}ns\"\n[node]\nnodes = 4
        device = {{ constant = {{ rate = \"10MB/s\" }} }}\nscheduler = {scheduler}
        [network]\nlatency = \"100us\"\nsync = {sync}
        [[flow]]\nname = \"one\"\nnodes = [0, 1]\ncontract = {{ weight = 1 }}\nworkload = {}
        [[flow]]\nname = \"four\"\ncontract = {{ weight = 4 }}\nworkload = {}\n",
        load("one", 128),
        load("four", 256)
    );
    let params = henge_config::Source::new("scenario", text).parse("the scenario").expect("a scenario");
    let traces = |spec: &TraceSpec| {
        let live = live.expect("traces of live runs only");
        let (arrivals, len) =
            if spec.file == "one" { (&live.arrivals[0], 128 << 10) } else { (&live.arrivals[1], 256 << 10) };
        let record = |at: &Instant| Ok(Record { at: *at, op: Op::Write, len, ..Record::default() });
        let records: Vec<Result<Record, TraceError>> = arrivals.iter().map(record).collect();
        Ok(Box::new(records.into_iter()) as Records)
    };
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
        let live = live(scheduler, sync, 24, true);
        let simulated = [None, Some(&live)].map(|from| simulated(scheduler, sync, 24, from));
        let share = |[one, four]: [f64; 2]| four / (one + four);
        let apart = simulated.map(|s| (share(live.rates) / share(s) - 1.0).abs());
        let show = |rates: [f64; 2]| {
            format!("{:.2} and {:.2} MB/s, {:.1} % of 4 : 1", rates[0], rates[1], reached(rates) * 100.0)
        };
        println!("{sync}: live {}", show(live.rates));
        println!(
            "    the same processes simulated: {}; shares {:.2} % apart",
            show(simulated[0]),
            apart[0] * 100.0
        );
        println!(
            "    the same arrivals simulated: {}; shares {:.2} % apart",
            show(simulated[1]),
            apart[1] * 100.0
        );
        assert!(reached(live.rates) >= wanted, "{sync}: {:?}", live.rates);
        assert!(apart.iter().all(|a| *a <= 0.02), "{sync}: {:?} {simulated:?}", live.rates);
    }
}

/// Not work-conserving: one alone gets its sixth of the capacity (4 : 1, and 1 for whoever no rule names),
/// though all of it is free.
#[test]
#[ignore = "a minute of real time: make test-vpfs"]
fn without_work_conservation_nobody_gets_more_than_its_share() {
    let limiting = "{ sfq = { depth = 2, work_conserving = false, capacity = \"40MB/s\" } }";
    let sync = "{ predict = { every = \"256KiB\" } }";
    let [alone, _] = live(limiting, sync, 12, false).rates;
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
    begun: std::time::Instant,
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
                std::thread::sleep(due.saturating_duration_since(std::time::Instant::now()));
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
    let begun = std::time::Instant::now() + Duration::from_secs(3);
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
