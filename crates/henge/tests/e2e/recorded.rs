//! `henge node --requests` writes the simulator's columns, and what they say can be repeated.

use crate::live::{fio, has_nbd_engine};
use crate::support::{Node, have, qemu_io};
use henge_core::{Contract, Dispatch, FlowId, Gate, Params, Rate, Request, RequestId, RequestRow, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

#[test]
fn a_row_per_request() {
    if !have("a_row_per_request", &["qemu-io"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("live.csv");
    let config = "[[pool]]\nname = \"m\"\nmemory = true\ncapacity = \"64MiB\"\n[[disk]]\nname = \"web\"\ncapacity = \"8MiB\"\n";
    let node = Node::start_in(dir, config, &["--requests", record.to_str().unwrap()]);
    qemu_io(&node.uri("web"), &["write 4k 8k", "read 8k 4k", "flush"]);
    let _dir = node.stop();
    let text = std::fs::read_to_string(record).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(RequestRow::HEADER));
    let rows: Vec<_> = lines.map(|line| RequestRow::parse(line).unwrap()).collect();
    let what: Vec<_> = rows.iter().map(|r| (r.op.as_str(), r.offset, r.len)).collect();
    assert_eq!(what[..2], [("write", 4096, 8192), ("read", 8192, 4096)]);
    assert!(what[2..].iter().all(|w| w.0 == "flush") && what.len() > 2);
    assert!(rows.iter().all(|r| r.flow == "web" && r.arrival <= r.dispatch && r.dispatch <= r.completion));
    assert_eq!(rows.iter().map(|r| r.seq).collect::<Vec<_>>(), (1..=rows.len() as u64).collect::<Vec<_>>());
}

/// Feeds a gate the recorded arrivals and completions; how many requests it dispatched at another time.
fn repeated(rows: &[RequestRow<'_>], mut gate: Gate, contracts: &[(&str, Contract)]) -> usize {
    let first = rows.iter().map(|r| r.arrival).min().expect("a row");
    for (i, (_, contract)) in contracts.iter().enumerate() {
        gate.set_flow(FlowId(i as u32), contract, first).expect("a contract that the node accepted");
    }
    let mut submissions: Vec<usize> = (0..rows.len()).collect();
    submissions.sort_by_key(|i| rows[*i].seq);
    let mut submissions = submissions.into_iter().peekable();
    let mut completions = (0..rows.len()).peekable();
    let mut times: Vec<_> = rows.iter().flat_map(|r| [r.arrival, r.dispatch, r.completion]).collect();
    times.sort_unstable();
    times.dedup();
    let id = |i: usize| RequestId { slot: i as u32, generation: 0 };
    let mut dispatched = vec![None; rows.len()];
    for now in times {
        while let Some(i) = submissions.next_if(|i| rows[*i].arrival <= now) {
            let row = &rows[i];
            let flow = contracts.iter().position(|(name, _)| *name == row.flow).expect("a disk of the node");
            let mut request =
                Request::new(id(i), FlowId(flow as u32), row.op, row.offset, row.len, row.arrival);
            request.commands = Request::WHOLE / row.parts;
            gate.submit(request, now).expect("room as the node had");
        }
        loop {
            while let Dispatch::Ready(request) = gate.next(now) {
                dispatched[request.id.index()] = Some(now);
            }
            let Some(i) = completions.next_if(|i| rows[*i].completion <= now && dispatched[*i].is_some())
            else {
                break;
            };
            gate.complete(id(i), false, now);
        }
    }
    let differs =
        rows.iter().zip(&dispatched).enumerate().filter(|(_, (row, at))| **at != Some(row.dispatch));
    let differs: Vec<_> = differs.collect();
    for (i, (row, at)) in differs.iter().take(5) {
        println!("row {i} of {}, seq {}: {row:?}\n  dispatched at {at:?} here", rows.len(), row.seq);
    }
    differs.len()
}

fn a_live_run_repeats(scheduler: &str, knobs: &[(&str, Value)], contracts: [Contract; 2], terms: [&str; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("live.csv");
    let written: Vec<String> = knobs
        .iter()
        .map(|(key, value)| match value {
            Value::Text(text) => format!("{key} = \"{text}\""),
            Value::Integer(n) => format!("{key} = {n}"),
            _ => unreachable!("texts and numbers will do here"),
        })
        .collect();
    let config = format!(
        "[[pool]]\nname = \"array\"\nmemory = true\ncapacity = \"4GiB\"\nscheduler = {{ {scheduler} = {{ {} }} }}\n\
         emulated = {{ raid0 = 4, stripe = \"64KiB\", disk = \"dtla-307075\" }}\n\
         [[disk]]\nname = \"a\"\ncapacity = \"1GiB\"\ncontract = {{ {} }}\n\
         [[disk]]\nname = \"b\"\ncapacity = \"1GiB\"\ncontract = {{ {} }}\n",
        written.join(", "),
        terms[0],
        terms[1],
    );
    let node = Node::start_in(dir, &config, &["--requests", record.to_str().unwrap()]);
    let mut clients: Vec<_> = ["a", "b"].iter().map(|disk| fio(&node, disk, 8, 2).spawn().unwrap()).collect();
    assert!(clients.iter_mut().all(|client| client.wait().unwrap().success()));
    let _dir = node.stop();
    let text = std::fs::read_to_string(record).unwrap();
    let (remarks, lines): (Vec<_>, Vec<_>) = text.lines().skip(1).partition(|line| line.starts_with('#'));
    assert!(
        remarks.len() == 1 && remarks[0].starts_with("# lateness_p99_ns="),
        "how late the emulator was: {remarks:?}"
    );
    let rows: Vec<_> = lines.iter().map(|line| RequestRow::parse(line).unwrap()).collect();
    let params = knobs.iter().fold(Params::new(scheduler), |p, (key, value)| p.with(key, value.clone()));
    let gate = Gate::new(henge_sched::build(scheduler, params).unwrap());
    let [a, b] = contracts;
    let differ = repeated(&rows, gate, &[("a", a), ("b", b)]);
    println!("{scheduler}: {differ} of {} requests dispatched at another time than live", rows.len());
    assert!(rows.len() > 100 && differ == 0);
}

#[test]
fn recorded_arrivals_and_completions_give_the_same_dispatches() {
    if !has_nbd_engine("recorded_arrivals_and_completions_give_the_same_dispatches") {
        return;
    }
    let requests = || Value::Text("requests".into());
    a_live_run_repeats(
        "sfq",
        &[("depth", Value::Integer(4)), ("cost", requests())],
        [Contract::weighted(1), Contract::weighted(3)],
        ["weight = 1", "weight = 3"],
    );
    a_live_run_repeats(
        "cvc",
        &[("depth", Value::Integer(4)), ("cost", requests())],
        [Contract::reserved(Rate::requests(40)), Contract::reserved(Rate::requests(90))],
        ["rate = \"40/s\"", "rate = \"90/s\""],
    );
}

/// The percentiles that a node shows of its disks are those of its clients' requests, to the width of a bucket.
#[test]
fn shown_latency_is_the_recorded() {
    compare_shown("shown_latency_is_the_recorded", FAST, 2, |rows, _| rows, |_, _| BUCKET);
}

/// They are what the simulator says of the same arrivals, and what this machine is late for whoever waits on it: the median within 2 %,
/// percentiles above which there are a few samples within the width of a bucket.
///
/// The device holds two requests, so that a late wake-up of the node delays an answer but not the requests behind. It is slow, so that
/// a wake-up some 0.1 ms late is little beside a request. A thread that only sleeps measures how late wake-ups are in the same seconds:
/// a node is woken twice for a request, for the device and for its client.
#[test]
#[ignore = "depends on how soon this machine wakes who waits: make test-shown"]
fn shown_latency_is_the_simulators() {
    let naps = Naps::begin();
    let most =
        |quantile, listed: f64| if quantile > 0.5 { BUCKET } else { 0.02 } + 2.0 * naps.late() / listed;
    compare_shown("shown_latency_is_the_simulators", SLOW, 24, |_, again| again, most);
}

/// The width of a histogram's bucket, of the values in it.
const BUCKET: f64 = 1.0 / 32.0;

/// How late this machine wakes a thread that sleeps.
struct Naps {
    late: Arc<Mutex<Vec<f64>>>,
    over: Arc<AtomicBool>,
}

impl Naps {
    fn begin() -> Naps {
        let naps = Naps { late: Arc::default(), over: Arc::default() };
        let (late, over) = (Arc::clone(&naps.late), Arc::clone(&naps.over));
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let (began, nap) = (std::time::Instant::now(), std::time::Duration::from_millis(7));
                std::thread::sleep(nap);
                late.lock().unwrap().push((began.elapsed() - nap).as_secs_f64() * 1e3);
            }
        });
        naps
    }

    /// By so many ms, in the middle.
    fn late(&self) -> f64 {
        let mut late = self.late.lock().unwrap().clone();
        late.sort_by(f64::total_cmp);
        late[late.len() / 2]
    }
}

impl Drop for Naps {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A device's speed, and the requests that two clients ask of it a second: three quarters of what it can do.
type Speed = (&'static str, [u32; 2]);
const FAST: Speed = ("2MB/s", [50, 40]);
const SLOW: Speed = ("1MB/s", [25, 20]);

/// Lets two clients ask for three quarters of what a device can do, at random times, and holds the percentiles shown
/// against those of a list: the node's own record, or the simulator's of the same arrivals.
fn compare_shown(
    test: &str,
    (speed, rates): Speed,
    seconds: u32,
    choose: fn(String, String) -> String,
    most: impl Fn(f64, f64) -> f64,
) {
    if !has_nbd_engine(test) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [record, again, scenario] =
        ["live.csv", "sim.csv", "scenario.toml"].map(|name| dir.path().join(name));
    let (device, scheduler) =
        (format!("{{ constant = {{ rate = \"{speed}\" }} }}"), "{ sfq = { depth = 2 } }");
    let disks = [("one", "weight = 1", rates[0]), ("two", "weight = 2", rates[1])];
    let mut config = format!(
        "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"1GiB\"\nemulated = {device}\nscheduler = {scheduler}\n"
    );
    let mut plan = format!("duration = \"60s\"\n[node]\ndevice = {device}\nscheduler = {scheduler}\n");
    for (name, contract, _) in disks {
        config +=
            &format!("[[disk]]\nname = \"{name}\"\ncapacity = \"64MiB\"\ncontract = {{ {contract} }}\n");
        plan += &format!(
            "[[flow]]\nname = \"{name}\"\ncapacity = \"64MiB\"\ncontract = {{ {contract} }}\n\
             workload = {{ pattern = \"random\", size = \"16KiB\", outstanding = 1 }}\n"
        );
    }
    std::fs::write(&scenario, plan).unwrap();
    let node = Node::start_in(dir, &config, &["--requests", record.to_str().unwrap()]);
    let clients = disks.map(|(disk, _, rate)| {
        let rate = format!("--rate_iops={rate}");
        let poisson = ["--bs=16k", "--size=64m", "--rate_process=poisson", "--randrepeat=0", &rate];
        fio(&node, disk, 256, seconds).args(poisson).spawn().unwrap()
    });
    clients.into_iter().for_each(|mut c| assert!(c.wait().unwrap().success()));
    let status = node.status();
    let _dir = node.stop();

    let mut sim = std::process::Command::new(env!("CARGO_BIN_EXE_henge"));
    let sim = sim.arg("sim").arg(&scenario).arg("--replay").arg(&record).arg("--requests").arg(&again);
    let sim = sim.output().unwrap();
    assert!(sim.status.success(), "{}", String::from_utf8_lossy(&sim.stderr));
    let [record, again] = [record, again].map(|file| std::fs::read_to_string(file).unwrap());
    let text = choose(record, again);
    let lines = text.lines().skip(1).filter(|line| !line.starts_with('#'));
    let rows: Vec<_> = lines.map(|line| RequestRow::parse(line).unwrap()).collect();
    for (name, ..) in disks {
        let of = rows.iter().filter(|r| r.flow == name && r.op == henge_core::Op::Read);
        let mut listed: Vec<_> = of.map(|r| r.completion.since(r.arrival).as_millis_f64()).collect();
        listed.sort_by(f64::total_cmp);
        let shown = status["disks"].as_array().unwrap().iter().find(|d| d["name"] == name).unwrap();
        for (quantile, key) in [(0.5, "p50"), (0.95, "p95"), (0.99, "p99")] {
            let rank = (listed.len() as f64 * quantile).ceil() as usize - 1;
            let shown = shown["latency"][key].as_f64().unwrap() / 1e6;
            let off = shown / listed[rank] - 1.0;
            println!(
                "{name}: {key} {shown:.3} ms shown, {:.3} ms listed, {:+.2} %",
                listed[rank],
                off * 100.0
            );
            let most = most(quantile, listed[rank]);
            assert!(
                off.abs() < most,
                "{name}: {key} {shown} ms shown, {} ms listed, which is more than {:.2} %",
                listed[rank],
                most * 100.0
            );
        }
    }
}
