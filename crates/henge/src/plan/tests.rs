//! Recordings made by hand, of which it is known what breaks.

use super::*;
use henge_core::{Duration, Instant, Op};
use henge_workload::{Format, Record, TraceWriter};

/// A disk that asks for `rate` reads of 4 KiB a second, for 10 s.
fn trace(dir: &Path, name: &str, rate: u64) {
    let file = std::fs::File::create(dir.join(format!("{name}.trace"))).unwrap();
    let mut writer = TraceWriter::new(Format::Henge, file).unwrap().unwrap();
    for i in 0..rate * 10 {
        let at = Instant::ZERO + Duration::from_nanos(i * 1_000_000_000 / rate);
        writer.write(&Record { at, device: 0, op: Op::Read, offset: i % 1000 * 4096, len: 4096 }).unwrap();
    }
    writer.finish().unwrap();
}

/// A device of 100 reads a second, under a scheduler that keeps rates: `web` is promised 40/s and asks for them.
pub(crate) fn recorded(dir: &Path, backup: u64) -> Recorded {
    trace(dir, "web", 40);
    trace(dir, "backup", backup);
    let text = "duration = \"10s\"\noverbook = true\n[node]\n\
        device = { constant = { time = \"10ms\", slots = 1, capacity = \"4GiB\" } }\n\
        scheduler = { vc = { depth = 1 } }\n\
        [[flow]]\nname = \"web\"\ncapacity = \"1GiB\"\ncontract = { rate = \"40/s\" }\nworkload = { trace = \"web.trace\" }\n\
        [[flow]]\nname = \"backup\"\ncapacity = \"1GiB\"\nworkload = { trace = \"backup.trace\" }\n";
    std::fs::write(dir.join("scenario.toml"), text).unwrap();
    Recorded::read(dir).unwrap()
}

fn change(add: &[&str], set: &[&str]) -> Change {
    Change {
        add: add.iter().map(|text| Added::parse(text).unwrap()).collect(),
        set: set.iter().map(|text| Term::parse(text).unwrap()).collect(),
        ..Change::default()
    }
}

#[test]
fn a_disk_that_fits_breaks_nothing_and_one_that_does_not_breaks_a_promise() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = recorded(dir.path(), 20);
    let before = recorded.judge(&Change::default()).unwrap();
    let web = &before["web"];
    assert!(web.wanted >= 9 && web.missed() == 0, "{} {}", web.wanted, web.kept);
    // 40 + 30 of 100 a second: all is kept.
    let fits = recorded.judge(&change(&["mail capacity=1GiB rate=40/s like=web"], &[])).unwrap();
    assert_eq!((fits["web"].missed(), fits["mail"].missed()), (0, 0));
    assert!(fits["mail"].wanted >= 9);
    // 40 + 90 of 100 a second, all of it promised: not everybody can have it.
    let text =
        "mail capacity=1GiB rate=90/s workload={ pattern = \"random\", size = \"4KiB\", outstanding = 8 }";
    let broken = recorded.judge(&change(&[text], &[])).unwrap();
    assert!(
        broken["web"].missed() + broken["mail"].missed() > 5,
        "{} {}",
        broken["web"].missed(),
        broken["mail"].missed()
    );
}

#[test]
fn another_scheduler_a_term_and_a_load_change_what_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = recorded(dir.path(), 95);
    assert_eq!(recorded.judge(&Change::default()).unwrap()["web"].missed(), 0, "the rate is kept");
    let twice = Change { times: vec!["backup=2".into()], ..Change::default() };
    assert_eq!(recorded.judge(&twice).unwrap()["web"].missed(), 0, "whatever the neighbour asks");
    // Without a promise there is none to miss; the same load under FIFO is late.
    let without = recorded.judge(&change(&[], &["web.rate="])).unwrap();
    assert_eq!((without["web"].wanted, without["web"].contract.rate), (0, None));
    let fifo = Change {
        scheduler: Some("{ fifo = { depth = 1, unkept = \"ignore\" } }".into()),
        ..Change::default()
    };
    let fifo = recorded.judge(&fifo).unwrap();
    assert!(fifo["web"].slowest > Duration::from_secs(1), "{}", fifo["web"].slowest);
    let gone = Change { remove: vec!["backup".into()], ..Change::default() };
    assert!(!recorded.judge(&gone).unwrap().contains_key("backup"));
}

#[test]
fn windows_add_up_and_a_disk_may_be_absent_from_one() {
    let dir = tempfile::tempdir().unwrap();
    for (minute, backup) in [(1, 20), (2, 30)] {
        let window = dir.path().join(format!("window-2026-11-21T23-{minute:02}-00Z"));
        std::fs::create_dir(&window).unwrap();
        let _ = recorded(&window, backup);
    }
    let both = Recorded::read(dir.path()).unwrap();
    assert_eq!(both.windows.len(), 2);
    let second = both.windows[1].join("scenario.toml");
    let text = std::fs::read_to_string(&second).unwrap();
    std::fs::write(&second, text.split("[[flow]]\nname = \"backup\"").next().unwrap()).unwrap();
    let judged = Recorded::read(dir.path()).unwrap().judge(&change(&[], &["backup.rate=5/s"])).unwrap();
    assert!(judged["web"].seconds == 20.0 && judged["backup"].seconds == 10.0);
    assert!(judged["web"].wanted >= 18 && judged["web"].missed() == 0);
    let wrong = both.judge(&change(&[], &["web.rte=5/s"])).unwrap_err();
    assert!(format!("{wrong:#}").contains("rte"), "{wrong:#}");
}
