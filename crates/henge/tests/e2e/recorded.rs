//! `henge node --requests` writes the simulator's columns, and what they say can be repeated.

use crate::shares::{fio, has_nbd_engine};
use crate::support::{Node, have, qemu_io};
use henge_core::{Contract, Dispatch, FlowId, Gate, Params, Rate, Request, RequestId, RequestRow, Value};

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
