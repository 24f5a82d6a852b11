//! What a disk can take from others: memory, and turns.

use super::block_status::{EXTENT_STEP, EXTENT_STEPS};
use super::{Plane, Submitter};
use crate::config::NodeConfig;
use crate::job::{Held, Job, Step, Verdict};
use crate::plane::block_status;
use henge_backend::Buffer;
use henge_config::Source;
use henge_core::{Contract, Dispatch, Duration, FlowId, Instant, Latency, Op, Rate, Request, RequestId};
use henge_iscsi::scsi::Action;
use henge_vdisk::{Command, Kind};

const MIB: u64 = 1 << 20;

fn plane(text: &str) -> Plane {
    let config =
        NodeConfig::parse(Source::new("node.toml", text.to_owned())).unwrap_or_else(|e| panic!("{e}"));
    Plane::open(&config, 1, false, Instant::ZERO).unwrap_or_else(|e| panic!("{}", config.source.point(e)))
}

fn submitter(n: u32) -> Submitter {
    let id = RequestId { slot: n, generation: 0 };
    Submitter { connection: id, command: id }
}

fn disks(count: usize, terms: &str) -> String {
    let mut text =
        "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\nscheduler = { sfq = { depth = 32 } }\n"
            .to_owned();
    for n in 0..count {
        text += &format!("[[disk]]\nname = \"d{n}\"\ncapacity = \"4MiB\"\n{terms}\n");
    }
    text
}

/// Eight clients with 32 MiB each, which they keep: the ninth disk's 4 KiB are there, and its whole minimum. And the number of a disk that
/// is gone is another's, with nothing held.
#[test]
fn whoever_keeps_memory_keeps_it_from_itself() {
    let mut plane = plane(&disks(9, ""));
    let mut kept = Vec::new();
    for disk in 0..8 {
        while let Some(buffer) = plane.take_buffer(disk, 32 * MIB) {
            kept.push((disk, buffer));
        }
        while let Some(buffer) = plane.take_buffer(disk, MIB) {
            kept.push((disk, buffer));
        }
    }
    assert!(plane.memory.buffers.out() <= plane.memory.buffers.budget());
    let own: Vec<Buffer> =
        (0..8).map(|_| plane.take_buffer(8, MIB).expect("its minimum is its own")).collect();
    assert!(kept.iter().all(|(disk, _)| *disk < 8) && !plane.memory.freed());
    own.into_iter().for_each(|buffer| plane.put_buffer(8, buffer));
    assert!(plane.memory.freed());
    plane.remove_disk(0, Instant::ZERO);
    kept.into_iter().for_each(|(disk, buffer)| plane.put_buffer(disk, buffer));
    assert_eq!(plane.memory.buffers.out(), 0);
}

/// Commands that ask nothing of the device are limited as all are: of ten thousand at 100/s, a second lets through a hundred.
#[test]
fn nothing_is_limited_as_well() {
    let kinds =
        [Kind::Read, Kind::Write, Kind::Trim, Kind::Cache, Kind::Status, Kind::WriteZeroes { no_hole: true }];
    for kind in kinds {
        let mut plane = plane(&disks(1, "contract = { limit = \"100/s\" }"));
        let (mut sent, mut answered) = (0, 0);
        for ms in 0..=2000 {
            let now = Instant::ZERO + Duration::from_millis(ms);
            while sent < 10_000 && plane.disks.has_capacity(0) {
                let len = if kind == Kind::Cache { 4096 } else { 0 };
                plane.submit(0, Command::new(kind, 0, len, now, 0), Buffer::empty(), submitter(sent), now);
                sent += 1;
            }
            plane.pools.list_due(now);
            plane.poll(now);
            answered += plane.answers.drain(..).filter(|answer| answer.outcome == Ok(())).count();
        }
        assert!((150..=320).contains(&answered), "{kind:?}: {answered} in 2 s at 100/s");
    }
}

/// A round that has done its part leaves no slot of the device free while requests wait for one.
#[test]
fn a_slot_that_has_become_free_does_not_wait_for_the_next_round() {
    let mut plane = plane(&disks(1, ""));
    for n in 0..64 {
        let command = Command::new(Kind::Read, u64::from(n) * 65536, 65536, Instant::ZERO, 0);
        let buffer = plane.take_buffer(0, 65536).expect("4 MiB are there");
        plane.submit(0, command, buffer, submitter(n), Instant::ZERO);
    }
    plane.round.begin(128 << 10);
    plane.poll(Instant::ZERO);
    let (over, gate) = (plane.answers.len(), plane.pools.gates[0].pipeline.gate());
    assert!((1..=4).contains(&over), "a round's part: {over}");
    assert_eq!(gate.in_flight(), 32, "the depth");
}

/// A neighbour's write has the only slot, and a worker is to do it. Past the page cache reads wait for such a slot; through it they do not.
#[test]
fn a_read_through_the_page_cache_waits_for_no_writers_slot() {
    for direct in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let pool = format!("path = {:?}\ndirect = {direct}", dir.path().join("p"));
        let text = disks(2, "").replace("memory = true", &pool).replace("depth = 32", "depth = 1");
        let mut plane = plane(&text);
        for (number, kind) in [(0, Kind::Write), (1, Kind::Read)] {
            let buffer = plane.take_buffer(number, 4096).expect("memory");
            let command = Command::new(kind, 0, 4096, Instant::ZERO, 0);
            plane.submit(number, command, buffer, submitter(number as u32), Instant::ZERO);
        }
        plane.pools.gates[0].pipeline.submit_ready(Instant::ZERO);
        let gate = plane.pools.gates[0].pipeline.gate();
        assert_eq!((gate.in_flight(), gate.queued()), if direct { (1, 1) } else { (2, 0) });
    }
}

/// Looks take their disk's turns, and leave to gates what they have to do in a round.
#[test]
fn who_looks_in_every_round_keeps_no_gate_from_its_work() {
    let mut plane = plane(&disks(2, ""));
    let buffer = plane.take_buffer(1, 4096).expect("memory");
    plane.submit(1, Command::new(Kind::Read, 0, 4096, Instant::ZERO, 0), buffer, submitter(0), Instant::ZERO);
    plane.pools.list_due(Instant::ZERO);
    plane.round.begin(128 << 10);
    for _ in 0..64 {
        block_status::extents(&mut plane, 0, 0, 64 * MIB, 10_000);
    }
    plane.poll(Instant::ZERO);
    assert_eq!(plane.answers.len(), 1);
}

/// What is copied of a long request is charged to its disk as it is copied, and once.
#[test]
fn a_long_request_is_charged_piece_by_piece() {
    let mut plane = plane(&disks(1, ""));
    let buffer = plane.take_buffer(0, MIB).expect("memory");
    plane.submit(0, Command::new(Kind::Read, 0, MIB, Instant::ZERO, 0), buffer, submitter(0), Instant::ZERO);
    let mut rounds = Vec::new();
    while plane.answers.is_empty() {
        plane.pools.list_due(Instant::ZERO);
        plane.round.begin(128 << 10);
        plane.poll(Instant::ZERO);
        rounds.push(std::iter::from_fn(|| plane.round.next_copied()).map(|(_, bytes)| bytes).sum::<u64>());
    }
    assert_eq!(rounds, [128 << 10; 8]);
}

/// The device is not asked again and again in one turn of the loop: a question about room ends after so many steps, and its disk is
/// charged for them.
#[test]
fn a_look_at_what_takes_room_is_bounded() {
    let text = "[[pool]]\nname = \"a\"\nmemory = true\ncapacity = \"64MiB\"\n[[pool]]\nname = \"b\"\nmemory = true\ncapacity = \"64MiB\"\n\
                [[disk]]\nname = \"d\"\npools = [\"a\", \"b\"]\nstripe = \"4KiB\"\ncapacity = \"64MiB\"\n";
    let mut plane = plane(text);
    let found = block_status::extents(&mut plane, 0, 0, 64 * MIB, 10_000);
    let steps = EXTENT_STEPS as u64;
    assert_eq!(found.iter().map(|e| e.len).sum::<u64>(), steps * 4096, "one step a stripe");
    assert_eq!(plane.round.next_copied(), Some((0, steps * EXTENT_STEP)));
    block_status::extents(&mut plane, 0, 0, 4096, 10_000);
    assert_eq!((plane.round.next_copied(), plane.round.next_copied()), (Some((0, EXTENT_STEP)), None));

    plane.round.ends_at(std::time::Instant::now());
    let found = block_status::extents(&mut plane, 0, 0, 64 * MIB, 10_000);
    assert_eq!(found.iter().map(|e| e.len).sum::<u64>(), 4096, "one step, where the round is over");
}

/// A disk over two extents that are here.
fn spread(terms: &str) -> Plane {
    plane(&format!(
        "[link]\nname = \"n1\"\nlisten = \"127.0.0.1:0\"\nsecret = \"a secret of sixteen bytes and more\"\n\
         [[pool]]\nname = \"a\"\nmemory = true\ncapacity = \"64MiB\"\n[[pool]]\nname = \"b\"\nmemory = true\ncapacity = \"64MiB\"\n\
         [[disk]]\nname = \"d\"\npools = [\"n1/a\", \"n1/b\"]\nstripe = \"64KiB\"\ncapacity = \"64MiB\"\n{terms}\n"
    ))
}

/// A client that hangs up with all that a disk takes is looked for once, at each extent, and that is charged.
#[test]
fn what_is_given_up_is_looked_for_once() {
    for spreads in [false, true] {
        let mut plane = if spreads { spread("") } else { plane(&disks(1, "")) };
        let number = plane.disks.number(if spreads { "d" } else { "d0" }).unwrap();
        let mut sent: u32 = 0;
        while plane.disks.has_capacity(number)
            && let Some(buffer) = plane.take_buffer(number, 512)
        {
            let read = Command::new(Kind::Read, u64::from(sent % 64) << 16, 512, Instant::ZERO, 0);
            plane.submit(number, read, buffer, submitter(1), Instant::ZERO);
            sent += 1;
        }
        assert!(sent > 500, "{sent} are under way");
        while plane.round.next_copied().is_some() {}
        plane.abort(number, submitter(1).connection, None, Instant::ZERO);
        let charged: u64 = std::iter::from_fn(|| plane.round.next_copied()).map(|(_, bytes)| bytes).sum();
        let each = charged / u64::from(sent);
        assert!((20..200).contains(&each), "for each command as long as {each} bytes take");
        while plane.is_runnable() {
            plane.poll(Instant::ZERO);
        }
        assert_eq!((plane.answers.len(), plane.is_idle()), (sent as usize, true));
    }
}

/// A CACHE on a disk over extents reads within the memory that its command has, whether an extent is told to fetch or not.
#[test]
fn a_spread_disk_is_asked_to_cache() {
    for prefetch in [true, false] {
        let mut plane = spread(&format!("commands = {{ prefetch = {prefetch} }}"));
        let number = plane.disks.number("d").unwrap();
        for (n, (offset, len)) in [(0, MIB), (4096, 64 << 10), (100, 5000), (0, 0)].into_iter().enumerate() {
            let frame = plane.disks.of(number).vdisk.frame(Kind::Cache, offset, len);
            let buffer = plane.take_buffer(number, frame.len).unwrap();
            let command = Command::new(Kind::Cache, offset, len, Instant::ZERO, 0);
            plane.submit(number, command, buffer, submitter(n as u32), Instant::ZERO);
            while plane.is_runnable() {
                plane.poll(Instant::ZERO);
            }
            let answer = plane.answers.pop().expect("memory answers at once");
            assert_eq!(answer.outcome, Ok(()), "{offset} + {len}, prefetch {prefetch}");
            plane.put_buffer(number, answer.frame);
        }
        assert_eq!(plane.memory.buffers.out(), 0);
    }
}

/// However much is answered at once, a round of the loop does its part of it and looks at its sockets again: bytes count where they are
/// copied, in memory or through the page cache, and so does each request.
#[test]
fn a_round_is_bounded_whatever_is_answered_at_once() {
    let mut plane = plane(&disks(1, ""));
    for (len, most) in [(0, 64), (4096, 22), (MIB / 16, 2)] {
        let mut sent = 0;
        while sent < 1000
            && plane.disks.has_capacity(0)
            && let Some(buffer) = plane.take_buffer(0, len)
        {
            let read = Command::new(Kind::Read, 0, len, Instant::ZERO, 0);
            plane.submit(0, read, buffer, submitter(sent), Instant::ZERO);
            sent += 1;
        }
        let (mut rounds, mut left) = (0, sent as usize);
        assert!(left > 10 * most, "{left} of {len} bytes are under way");
        while !plane.is_idle() {
            plane.round.begin(128 << 10);
            plane.poll(Instant::ZERO);
            assert!(plane.answers.len() <= most, "{} of {len} bytes in one round", plane.answers.len());
            rounds += 1;
            assert!(!plane.answers.is_empty() && left >= plane.answers.len(), "it goes on");
            left -= plane.answers.len();
            for answer in std::mem::take(&mut plane.answers) {
                plane.put_buffer(0, answer.frame);
            }
        }
        assert!(left == 0 && rounds >= sent as usize / most, "{left} left after {rounds} rounds");
    }
}

/// Where the kernel took all of a round's time, gates stop at the next look at the clock, and fill the slots that are free.
#[test]
fn a_round_whose_time_is_over_ends_within_a_piece() {
    let round = |over: bool| {
        let mut plane = plane(&disks(1, ""));
        for n in 0..64 {
            let buffer = plane.take_buffer(0, 512).expect("memory");
            let read = Command::new(Kind::Read, 0, 512, Instant::ZERO, 0);
            plane.submit(0, read, buffer, submitter(n), Instant::ZERO);
        }
        if over {
            plane.round.ends_at(std::time::Instant::now());
        }
        plane.round.begin(64 << 10);
        plane.poll(Instant::ZERO);
        (plane.answers.len(), plane.pools.gates[0].pipeline.gate().in_flight())
    };
    let (whole, _) = round(false);
    assert!(whole > 16, "without a time: {whole}");
    assert_eq!(round(true), (2, 32), "answered, and at the storage");
}

/// A FLUSH that is for hundreds is answered in pieces, too, and none of their slots is another's meanwhile. What is over then comes after them.
#[test]
fn a_round_is_bounded_whatever_one_flush_is_for() {
    let mut plane = plane(&disks(2, ""));
    let flush = || Command::new(Kind::Flush, 0, 0, Instant::ZERO, 0);
    let mut sent = 0;
    while plane.disks.has_capacity(0) {
        plane.submit(0, flush(), Buffer::empty(), submitter(sent), Instant::ZERO);
        sent += 1;
    }
    assert!(sent > 500, "{sent} are under way");
    let (mut answered, mut rounds, mut neighbour) = (Vec::new(), 0, 0);
    while plane.is_runnable() {
        rounds += 1;
        plane.submit(1, flush(), Buffer::empty(), submitter(10_000), Instant::ZERO);
        if plane.disks.has_capacity(0) {
            plane.submit(0, flush(), Buffer::empty(), submitter(sent), Instant::ZERO);
            sent += 1;
        }
        if rounds == 5 {
            plane.abort(0, submitter(700).connection, None, Instant::ZERO);
        }
        plane.round.begin(64 << 10);
        plane.poll(Instant::ZERO);
        let round = std::mem::take(&mut plane.answers);
        assert!(round.len() <= 70, "{} in one round", round.len());
        neighbour += round.iter().filter(|answer| answer.disk == 1).count();
        answered.extend(
            round.iter().filter(|answer| answer.disk == 0).map(|answer| answer.submitter.command.slot),
        );
        if rounds == 200 {
            break;
        }
    }
    assert!(neighbour >= rounds - 1, "the neighbour's {neighbour} in {rounds} rounds");
    while plane.is_runnable() {
        plane.round.begin(64 << 10);
        plane.poll(Instant::ZERO);
        let round = std::mem::take(&mut plane.answers);
        answered.extend(
            round.iter().filter(|answer| answer.disk == 0).map(|answer| answer.submitter.command.slot),
        );
    }
    answered.sort_unstable();
    assert!(plane.is_idle() && answered == (0..sent).collect::<Vec<_>>(), "each of {sent} is answered once");
}

/// Blocks that are read before they are written count for their disk, until the command is over or given up.
#[test]
fn blocks_around_a_write_are_counted() {
    let mut plane = plane(&disks(1, "commands = { align = \"4KiB\" }"));
    for gives_up in [false, true] {
        let frame = plane.disks.of(0).vdisk.frame(Kind::Write, 100, 5000);
        let mut buffer = plane.take_buffer(0, frame.len).unwrap();
        buffer.fill(1);
        let before = plane.disks.of(0).held;
        let write = Command::new(Kind::Write, 100, 5000, Instant::ZERO, 0);
        plane.submit(0, write, buffer, submitter(1), Instant::ZERO);
        assert_eq!(plane.disks.of(0).held, before + 2 * 4096, "its first and its last block");
        if gives_up {
            plane.abort(0, submitter(1).connection, None, Instant::ZERO);
        }
        while plane.is_runnable() {
            plane.poll(Instant::ZERO);
        }
        let answer = plane.answers.pop().expect("memory answers at once");
        assert_eq!(answer.outcome.is_err(), gives_up);
        assert_eq!(plane.disks.of(0).held, before);
        plane.put_buffer(0, answer.frame);
        assert_eq!((plane.disks.of(0).held, plane.memory.budget.shared().1), (0, 0));
    }
}

/// What a COMPARE looks at is work of the loop that no gate sees: it counts for the turns of its disk.
#[test]
fn what_is_compared_is_charged() {
    let mut plane = plane(&disks(1, ""));
    let (submitter, len) = (submitter(1), 64 << 10);
    let frame = plane.take_buffer(0, len).expect("memory");
    let mut data = Some(Held { frame, lead: 0 });
    let mut job = Job::new(Action::Compare { offset: 0, len });
    assert!(matches!(job.step(&mut data, 0, submitter, &mut plane, Instant::ZERO), Step::Submitted));
    while plane.is_runnable() {
        plane.poll(Instant::ZERO);
    }
    while plane.round.next_copied().is_some() {}
    let answer = plane.answers.pop().expect("memory answers at once");
    assert!(matches!(job.answered(answer, &mut data, &mut plane), Some(Verdict::Done)));
    assert_eq!(plane.round.next_copied(), Some((0, len)));
}

/// Commands answered in 60 s of two disks on four spindles of 100/s with a gate each: "a" has 60/s in all and keeps 8 reads outstanding,
/// "b" has 330/s and keeps 64. Chance chooses the extents.
fn on_spindles(one_clock: bool) -> [u32; 2] {
    let mut plane = plane(
        "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\nscheduler = { vc = { per = \"spindle\" } }\n\
         emulated = { raid0 = 4, stripe = \"64KiB\", constant = { time = \"10ms\" } }\n\
         [[disk]]\nname = \"a\"\ncapacity = \"16MiB\"\ncontract = { rate = \"60/s\" }\n\
         [[disk]]\nname = \"b\"\ncapacity = \"16MiB\"\ncontract = { rate = \"330/s\" }\n",
    );
    if !one_clock {
        (0..2).for_each(|disk| plane.disks.of(disk).clock = None);
    }
    let (mut answered, mut outstanding, mut random) = ([0; 2], [0; 2], 1u64);
    let mut now = Instant::ZERO;
    while now < Instant::from_nanos(60_000_000_000) {
        for (disk, most) in [(0, 8), (1, 64)] {
            while outstanding[disk] < most {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let command = Command::new(Kind::Read, (random >> 33) % 4096 * 4096, 4096, now, 0);
                let buffer = plane.take_buffer(disk, 4096).expect("there is room for 72 reads");
                plane.submit(disk, command, buffer, submitter(0), now);
                outstanding[disk] += 1;
            }
        }
        plane.pools.list_due(now);
        plane.poll(now);
        let answers = std::mem::take(&mut plane.answers);
        if answers.is_empty() {
            now = plane.pools.wake_at().map_or(now, |at| at.max(now + Duration::from_nanos(1)));
        }
        for answer in answers {
            assert_eq!(answer.outcome, Ok(()));
            answered[answer.disk] += 1;
            outstanding[answer.disk] -= 1;
            plane.put_buffer(answer.disk, answer.frame);
        }
    }
    answered
}

/// The gates of one pool keep one clock for a disk's whole rate.
#[test]
fn a_disk_on_several_spindles_has_its_whole_rate() {
    let [a, b] = on_spindles(true);
    assert!(a >= 60 * 60 * 975 / 1000 && b >= 330 * 60 * 99 / 100, "{a} and {b}");
    let [a, _] = on_spindles(false);
    assert!(a < 60 * 60 * 95 / 100, "each gate on its own: {a}");
}

/// A write of 1 MiB comes to a pool of memory as it is, to a device's in pieces of 128 KiB, and as the pool or the disk say where they do; it
/// counts the same, and is answered once.
#[test]
fn commands_are_cut_as_their_pools_say() {
    let ssd = "emulated = \"nvme-dc\"";
    let array = "emulated = { raid0 = 4, stripe = \"64KiB\", disk = \"dtla-307075\" }";
    for (pool, disk, pieces) in [
        ("", "", 1),
        ("quantum = \"64KiB\"", "", 16),
        (ssd, "", 8),
        (array, "", 2),
        (&format!("{ssd}\nquantum = \"256KiB\""), "", 4),
        (ssd, "commands = { quantum = \"512KiB\" }", 2),
        (ssd, "commands = { align = \"256KiB\" }", 4),
    ] {
        let text = format!(
            "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\nscheduler = {{ sfq = {{ depth = 32 }} }}\n{pool}\n\
             [[disk]]\nname = \"d\"\ncapacity = \"4MiB\"\n{disk}\n"
        );
        let mut plane = plane(&text);
        let buffer = plane.take_buffer(0, MIB).expect("its minimum is its own");
        let command = Command::new(Kind::Write, MIB, MIB, Instant::ZERO, 0);
        plane.submit(0, command, buffer, submitter(0), Instant::ZERO);
        let flow = plane.disks.of(0).vdisk.flow();
        let pending = plane.pools.gates[0].pipeline.gate().flow_meters(flow).unwrap().pending;
        assert_eq!(pending, pieces, "{pool} {disk}");
        let mut now = Instant::ZERO;
        while plane.answers.is_empty() {
            now += Duration::from_millis(1);
            plane.pools.list_due(now);
            plane.poll(now);
        }
        assert_eq!((plane.answers.len(), plane.answers[0].outcome), (1, Ok(())));
        // Four times 256 KiB, however it was cut.
        let commands = plane.pools.gates[0].pipeline.gate().flow_meters(flow).unwrap().completed.commands;
        assert_eq!(commands, 4 * 1_000_000, "{pool} {disk}");
    }
}

#[test]
fn a_pool_that_would_cut_within_pages_is_refused() {
    for quantum in ["6KiB", "2MiB", "0KiB"] {
        let text =
            format!("[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\nquantum = \"{quantum}\"\n");
        let error = NodeConfig::parse(Source::new("node.toml", text)).unwrap_err().to_string();
        assert!(error.contains("from 4KiB to 1MiB"), "{error}");
    }
}

/// So many requests of another flow, each of which takes so long at a gate's device.
fn serve(plane: &mut Plane, gate: usize, each: Duration) {
    let gate = plane.pools.gates[gate].pipeline.gate_mut();
    let (flow, mut now) = (FlowId(9), Instant::ZERO);
    gate.set_flow(flow, &Contract::best_effort(), now).unwrap();
    for generation in 0..30 {
        let id = RequestId { slot: 0, generation };
        gate.submit(Request::new(id, flow, Op::Read, 0, 4096, now), now).unwrap();
        assert!(matches!(gate.next(now), Dispatch::Ready(_)));
        now += each;
        gate.complete(id, false, now);
    }
}

/// One of a disk's pools takes another contract, the next one refuses it, and neither would promise the disk's own any more.
#[test]
fn a_contract_that_one_pool_refuses_is_nobodys() {
    let pool = |name| {
        format!("[[pool]]\nname = \"{name}\"\nmemory = true\ncapacity = \"64MiB\"\nscheduler = \"cvc\"\n")
    };
    let disk = "[[disk]]\nname = \"d\"\npools = [\"a\", \"b\"]\nstripe = \"64KiB\"\ncapacity = \"4MiB\"\n\
                contract = { rate = \"10/s\", latency = \"5ms\" }\n";
    let mut plane = plane(&(pool("a") + &pool("b") + disk));
    serve(&mut plane, 0, Duration::from_millis(7));
    serve(&mut plane, 1, Duration::from_millis(9));
    let before = plane.pools.gates[0].pipeline.gate().contract(FlowId(0)).cloned();
    let mut config = plane.disks.of(0).config.clone();
    let latency = Some(Latency { bound: Duration::from_millis(8), percentile: 950_000 });
    config.contract = Contract { latency, ..Contract::reserved(Rate::requests(20)) };
    let now = Instant::ZERO + Duration::from_secs(1);
    assert_eq!(plane.set_contract(0, config, now).unwrap_err().term, "latency");
    assert_eq!(plane.pools.gates[0].pipeline.gate().contract(FlowId(0)).cloned(), before);
}

/// One of the owners of a disk's extents takes another contract and the next one refuses it, when the first would not promise its own any more.
#[test]
fn a_contract_that_one_owner_refuses_is_nobodys() {
    let pool = |name, knobs| {
        format!(
            "[[pool]]\nname = \"{name}\"\nmemory = true\ncapacity = \"64MiB\"\nscheduler = {{ cvc = {{ {knobs} }} }}\n"
        )
    };
    let node =
        "[link]\nname = \"n\"\nlisten = \"127.0.0.1:0\"\nsecret = \"a secret of sixteen bytes and more\"\n";
    let disk = "[[disk]]\nname = \"d\"\npools = [\"n/a\", \"n/b\"]\nstripe = \"64KiB\"\ncapacity = \"4MiB\"\n\
                contract = { rate = \"10/s\", latency = \"5ms\" }\n";
    let mut plane = plane(&(node.to_owned() + &pool("a", "") + &pool("b", "capacity = \"50/s\"") + disk));
    let number = plane.disks.find("d").unwrap();
    let owners = plane.disks.owners(number);
    assert_eq!(owners.len(), 2);
    serve(&mut plane, 0, Duration::from_millis(7));
    let before: Vec<_> = owners.iter().map(|o| plane.disks.of(*o).config.clone()).collect();
    let mut config = plane.disks.of(number).config.clone();
    let latency = Some(Latency { bound: Duration::from_millis(8), percentile: 950_000 });
    config.contract = Contract { latency, ..Contract::reserved(Rate::requests(400)) };
    config.terms = vec![("rate".into(), henge_core::Value::Text("400/s".into()))];
    let now = Instant::ZERO + Duration::from_secs(1);
    assert_eq!(plane.set_contract(number, config, now).unwrap_err().term, "rate");
    for (owner, before) in owners.iter().zip(before) {
        let config = &plane.disks.of(*owner).config;
        assert_eq!((&config.contract, &config.terms), (&before.contract, &before.terms));
    }
}
