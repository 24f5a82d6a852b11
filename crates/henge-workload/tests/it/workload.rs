//! Workloads from their descriptions, driven against a server of constant service time.

use henge_core::{Duration, Instant, Op, Params, Value};
use henge_workload::{Next, Record, Records, Spec, Workload};
use std::collections::BTreeMap;

fn text(s: &str) -> Value {
    Value::Text(s.to_owned())
}
fn table(entries: &[(&str, Value)]) -> Params {
    entries.iter().fold(Params::new("workload"), |p, (key, value)| p.with(key, value.clone()))
}
fn spec(entries: &[(&str, Value)]) -> Spec {
    Spec::from_params(table(entries)).unwrap()
}
fn refused(entries: &[(&str, Value)]) -> String {
    Spec::from_params(table(entries)).unwrap_err().to_string()
}

const GIB: u64 = 1 << 30;

/// One request, as it went.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Ran {
    record: Record,
    thread: u32,
    issued: Instant,
    outstanding: u64,
}

/// Runs until `end`; every request takes `service`, all at once.
fn drive(workload: &mut Workload, service: Duration, end: Instant) -> Vec<Ran> {
    let mut under_way: BTreeMap<(Instant, u64), u32> = BTreeMap::new();
    let (mut ran, mut now) = (Vec::new(), Instant::ZERO);
    while now <= end {
        let mut wake = Instant::FAR;
        loop {
            match workload.next(now).unwrap() {
                Next::Issue { record, thread } => {
                    assert!(record.at <= now);
                    under_way.insert((now + service, ran.len() as u64), thread);
                    ran.push(Ran { record, thread, issued: now, outstanding: workload.outstanding() });
                }
                Next::At(at) => {
                    assert!(at > now, "it is asked again in the future");
                    wake = at;
                    break;
                }
                Next::Full | Next::End => break,
            }
        }
        let Some(next) = under_way.keys().next().map(|k| k.0).into_iter().chain([wake]).min() else { break };
        if next == Instant::FAR {
            break;
        }
        now = next;
        while let Some((&(at, number), &thread)) = under_way.first_key_value().filter(|(k, _)| k.0 <= now) {
            under_way.remove(&(at, number));
            workload.complete(thread, now);
        }
    }
    ran
}

fn secs(s: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(s)
}

#[test]
fn a_closed_loop_keeps_its_threads_busy() {
    let spec =
        spec(&[("pattern", text("random")), ("size", text("4KiB")), ("outstanding", Value::Integer(8))]);
    let mut workload = spec.build(GIB, 1, 0, None).unwrap();
    let ran = drive(&mut workload, Duration::from_millis(10), secs(1));
    // 8 at a time, 10 ms each: rounds at 0, 10, … 1000 ms.
    assert_eq!(ran.len(), 8 * 101);
    assert!(ran.iter().all(|r| r.outstanding <= 8 && r.record.op == Op::Read && r.record.end() <= GIB));
    assert!(ran.iter().all(|r| r.record.at == r.issued));
}

#[test]
fn think_time_slows_a_thread() {
    let spec = spec(&[
        ("pattern", text("sequential")),
        ("size", text("64KiB")),
        ("outstanding", Value::Integer(1)),
        ("think", text("15ms")),
    ]);
    let ran = drive(&mut spec.build(GIB, 1, 0, None).unwrap(), Duration::from_millis(5), secs(1));
    assert_eq!(ran.len(), 51); // one every 20 ms, both ends included
    assert!(ran.windows(2).all(|w| w[1].record.offset == w[0].record.end()));
}

#[test]
fn threads_come_and_go() {
    let ramp = table(&[("from", Value::Integer(0)), ("to", Value::Integer(10)), ("over", text("10s"))]);
    let level = Params::new("outstanding").with("ramp", Value::Table(ramp));
    let spec =
        spec(&[("pattern", text("random")), ("size", text("4KiB")), ("outstanding", Value::Table(level))]);
    let ran = drive(&mut spec.build(GIB, 1, 0, None).unwrap(), Duration::from_millis(100), secs(12));
    for second in 0..10 {
        let within: Vec<_> =
            ran.iter().filter(|r| r.issued >= secs(second) && r.issued < secs(second + 1)).collect();
        assert_eq!(within.len() as u64, second * 10, "second {second}");
        assert!(within.iter().all(|r| r.outstanding <= second));
    }
}

#[test]
fn open_arrivals_do_not_wait() {
    let spec = spec(&[("pattern", text("random")), ("size", text("4KiB")), ("rate", text("200/s"))]);
    let ran = drive(&mut spec.build(GIB, 1, 0, None).unwrap(), Duration::from_secs(2), secs(50));
    // 10 000 expected, standard deviation 100.
    assert!((9_500..10_500).contains(&ran.len()), "{}", ran.len());
    assert!(ran.iter().any(|r| r.outstanding > 300));
}

#[test]
fn a_window_holds_back_and_counts_from_the_room_it_made() {
    let spec = spec(&[
        ("pattern", text("random")),
        ("size", text("4KiB")),
        ("rate", text("1000/s")),
        ("arrivals", text("constant")),
        ("outstanding", Value::Integer(4)),
    ]);
    let ran = drive(&mut spec.build(GIB, 1, 0, None).unwrap(), Duration::from_millis(10), secs(10));
    assert!(ran.iter().all(|r| r.outstanding <= 4));
    // 4 per 10 ms pass; the input is above that, so the window is always full.
    assert!((3_980..=4_004).contains(&ran.len()), "{}", ran.len());
    assert!(
        ran.iter().all(|r| r.record.at == r.issued),
        "what was held back is meant to leave when there is room"
    );
}

#[test]
fn equal_seeds_give_equal_requests_and_others_do_not() {
    let spec = spec(&[("preset", text("financial"))]);
    let run = |seed, stream| {
        drive(&mut spec.build(GIB, seed, stream, None).unwrap(), Duration::from_millis(1), secs(5))
    };
    assert_eq!(run(1, 0), run(1, 0));
    assert_ne!(run(1, 0), run(2, 0));
    assert_ne!(run(1, 0), run(1, 1));
}

#[test]
fn every_preset_runs() {
    for name in henge_workload::preset::NAMES.into_iter().chain(["ior", "btio"]) {
        let pace =
            if name == "ior" || name == "btio" { vec![] } else { vec![("outstanding", Value::Integer(4))] };
        let entries: Vec<_> = [("preset", text(name))].into_iter().chain(pace).collect();
        let spec = spec(&entries);
        assert!(spec.label().contains("synthetic"), "{}", spec.label());
        let ran = drive(&mut spec.build(9 * GIB, 1, 0, None).unwrap(), Duration::from_millis(10), secs(1));
        assert!(ran.len() >= 400, "{name}: {}", ran.len());
    }
}

#[test]
fn parallel_programs_end() {
    let spec = spec(&[
        ("preset", text("ior")),
        ("ranks", Value::Integer(4)),
        ("block", text("1MiB")),
        ("transfer", text("256KiB")),
        ("segments", Value::Integer(3)),
    ]);
    let mut workload = spec.build(GIB, 1, 0, None).unwrap();
    let ran = drive(&mut workload, Duration::from_millis(1), secs(10));
    assert_eq!(ran.len(), 4 * 4 * 3);
    assert_eq!(workload.next(secs(10)).unwrap(), Next::End);
}

fn records(times_ms: &[u64]) -> Records {
    let records: Vec<_> = times_ms
        .iter()
        .enumerate()
        .map(|(i, ms)| {
            let at = Instant::from_nanos(7_000_000_000 + ms * 1_000_000);
            Ok(Record { at, device: 0, op: Op::Read, offset: i as u64 * 4096, len: 4096 })
        })
        .collect();
    Box::new(records.into_iter())
}

#[test]
fn a_trace_keeps_its_distances_at_its_speed() {
    let spec = spec(&[("trace", text("x")), ("speed", Value::Float(1.25)), ("start", text("1s"))]);
    assert_eq!(spec.trace().unwrap().file, "x");
    let mut workload = spec.build(GIB, 1, 0, Some(records(&[0, 10, 10, 100]))).unwrap();
    let ran = drive(&mut workload, Duration::from_secs(1), secs(10));
    let at: Vec<u64> = ran.iter().map(|r| r.record.at.as_nanos() / 1_000_000).collect();
    assert_eq!(at, [1000, 1008, 1008, 1080]);
}

#[test]
fn a_trace_in_a_closed_loop_forgets_its_times() {
    let spec = spec(&[("trace", text("x")), ("outstanding", Value::Integer(2))]);
    let mut workload = spec.build(GIB, 1, 0, Some(records(&[0, 10_000, 5_000, 100_000]))).unwrap();
    let ran = drive(&mut workload, Duration::from_millis(1), secs(10));
    assert_eq!(ran.iter().map(|r| r.issued.as_nanos() / 1_000_000).collect::<Vec<_>>(), [0, 0, 1, 1]);
}

fn replay_error(entries: &[(&str, Value)], capacity: u64, times: &[u64]) -> String {
    let all: Vec<_> = [("trace", text("x"))].into_iter().chain(entries.iter().cloned()).collect();
    let mut workload = spec(&all).build(capacity, 1, 0, Some(records(times))).unwrap();
    loop {
        match workload.next(secs(1000)) {
            Ok(Next::Issue { .. }) => {}
            Ok(_) => return String::new(),
            Err(error) => return error.to_string(),
        }
    }
}

#[test]
fn a_trace_that_runs_backwards_or_beyond_the_disk_is_an_error() {
    let backwards = replay_error(&[], GIB, &[0, 10, 7]);
    assert!(backwards.starts_with("request 3 is 3ms earlier"), "{backwards}");
    assert_eq!(replay_error(&[("reorder", Value::Integer(1))], GIB, &[0, 10, 7]), "");
    assert_eq!(replay_error(&[("backwards", text("clamp"))], GIB, &[0, 10, 7]), "");
    let beyond = replay_error(&[], 8192, &[0, 1, 2]);
    assert!(beyond.starts_with("request 3 ends at byte 12288, beyond the disk of 8192 bytes"), "{beyond}");
    assert_eq!(replay_error(&[("place", text("wrap"))], 8192, &[0, 1, 2]), "");
    let scale = [("place", text("scale")), ("extent", text("12KiB"))];
    assert_eq!(replay_error(&scale, 8192, &[0, 1, 2]), "");
}

#[test]
fn what_is_wrong_in_a_description_is_said() {
    let random = ("pattern", text("random"));
    let size = ("size", text("4KiB"));
    for (entries, expected) in [
        (vec![], "exactly one of"),
        (vec![random.clone()], "needs size"),
        (vec![random.clone(), size.clone()], "needs a rate, or how many"),
        (vec![("pattern", text("randm"))], "sequential, random and zipf"),
        (vec![("preset", text("tpcc"))], "tpc-c, financial"),
        (vec![("preset", text("tpc-c"))], "needs a rate, or how many"),
        (vec![("trace", text("x")), ("format", text("spcc"))], "spc, disksim"),
        (vec![("trace", text("x")), ("speeed", Value::Integer(2))], "did you mean \"speed\""),
        (vec![random.clone(), size.clone(), ("rate", Value::Integer(9))], "675/s"),
        (vec![random, size, ("rate", text("10/s")), ("arrivals", text("poison"))], "poisson"),
    ] {
        let error = refused(&entries);
        assert!(error.contains(expected), "{error} has no {expected}");
    }
}

#[test]
fn an_area_beyond_the_disk_is_refused() {
    let spec = spec(&[
        ("pattern", text("random")),
        ("size", text("4KiB")),
        ("outstanding", Value::Integer(1)),
        ("offset", text("1GiB")),
        ("span", text("1GiB")),
    ]);
    assert!(spec.build(2 * GIB, 1, 0, None).is_ok());
    assert!(spec.build(GIB, 1, 0, None).unwrap_err().contains("beyond the disk"));
    assert!(spec.build(GIB + 1, 1, 0, None).unwrap_err().contains("beyond the disk"));
}
