//! What holds for any drive and any requests: time goes forward, one head position, nothing faster than physics.

use henge_core::{Backend, Duration, FlowId, Instant, Op, Pending, Request};
use henge_device::{Arm, Command, Controller, DiskFacts, DriveOrder, Hdd, HddOptions, Motion, built_in};
use proptest::prelude::*;

const DRIVES: [&str; 5] = ["st32171w", "st34501n", "st39102lw", "atlas10k", "dtla-307075"];

fn facts(drive: usize) -> DiskFacts {
    DiskFacts::parse(built_in(DRIVES[drive % DRIVES.len()]).unwrap()).unwrap()
}

/// A request: where on the disk (in millionths), whether it goes on from the one before, how long, what.
#[derive(Clone, Copy, Debug)]
struct Draw {
    place: u64,
    goes_on: bool,
    sectors: u64,
    write: bool,
    durable: bool,
    think_us: u64,
}

fn draws() -> impl Strategy<Value = Vec<Draw>> {
    let one = (0u64..1_000_000, any::<bool>(), 1u64..700, any::<bool>(), 0u32..8, 0u64..30_000);
    let one = one.prop_map(|(place, goes_on, sectors, write, durable, think)| Draw {
        place,
        goes_on,
        sectors: if sectors > 300 { sectors } else { sectors % 20 + 1 },
        write,
        durable: durable == 0,
        think_us: if think > 15_000 { 0 } else { think },
    });
    prop::collection::vec(one, 1..60)
}

fn commands(draws: &[Draw], capacity: u64) -> Vec<(Command, Duration)> {
    let mut next = 0;
    let command = |d: &Draw| {
        let random = d.place * (capacity / 1_000_000);
        let lbn =
            if d.goes_on && next + d.sectors <= capacity { next } else { random.min(capacity - d.sectors) };
        next = lbn + d.sectors;
        let command = Command { lbn, blocks: d.sectors, write: d.write, durable: d.durable };
        (command, Duration::from_micros(d.think_us))
    };
    draws.iter().map(command).collect()
}

/// The sum of what passing the medium takes, without any seek or wait.
fn on_medium(arm: &Arm, mut lbn: u64, mut blocks: u64) -> Duration {
    let mut time = Duration::ZERO;
    while blocks > 0 {
        let place = arm.geometry().locate(lbn);
        let run = u64::from(place.left_on_track).min(blocks);
        time += arm.spindle().transfer(run, place.per_track);
        (lbn, blocks) = (lbn + run, blocks - run);
    }
    time
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Each command is answered after it came; never before the bus can have carried it; a durable write never
    /// before the medium can have passed; and a drive left alone comes to rest.
    #[test]
    fn nothing_is_faster_than_physics(drive in 0usize..5, draws in draws()) {
        let facts = facts(drive);
        let (arm, bus) = (Arm::new(&facts), facts.bus_sector);
        let mut controller = Controller::new(&facts);
        let mut now = Instant::ZERO;
        let mut durable_before = Instant::ZERO;
        for (command, think) in commands(&draws, facts.geometry.capacity()) {
            let start = now + think;
            let answered = controller.execute(command, start);
            prop_assert!(answered >= start + bus * command.blocks, "{command:?} from {start:?} to {answered:?}");
            if command.write && command.durable {
                let medium = on_medium(&arm, command.lbn, command.blocks);
                // Rounding: a nanosecond for each track.
                let least = (start + medium) - Duration::from_nanos(16);
                prop_assert!(answered >= least, "{command:?} from {start:?} to {answered:?}");
                prop_assert!(controller.clone().durable_at() <= answered);
            }
            let durable = controller.clone().durable_at();
            prop_assert!(durable >= durable_before, "what is on the medium stays there");
            durable_before = durable;
            let rest = controller.clone().quiet_at();
            prop_assert!(rest < answered + Duration::from_secs(5), "it comes to rest: {rest:?}");
            now = answered;
        }
    }

    /// Moving to a block and on to another is never quicker than the seek between them: one head position.
    #[test]
    fn the_head_is_in_one_place(drive in 0usize..5, a in 0u64..1_000_000, b in 0u64..1_000_000) {
        let facts = facts(drive);
        let arm = Arm::new(&facts);
        let scale = facts.geometry.capacity() / 1_000_000;
        let (a, b) = (a * scale, b * scale);
        let options = HddOptions { cache: Some(false), ..HddOptions::default() };
        let mut drive = Hdd::new(facts, options);
        let mut read = |lbn: u64, now: Instant| {
            let id = Pending::new().insert(());
            drive.submit(&Request::new(id, FlowId(0), Op::Read, lbn * 512, 512, now), (), now);
            let answered = drive.wake_at().expect("it is under way");
            assert_eq!(drive.reap(answered).map(|d| d.outcome), Some(Ok(())));
            answered
        };
        let first = read(a, Instant::ZERO);
        let second = read(b, first);
        let [from, to] = [a, b].map(|lbn| arm.geometry().locate(lbn).position());
        prop_assert!(second.since(first) >= arm.move_time(from, to, Motion::Read));
    }

    /// Through the queue, in any order of its own, each request is answered once, at times that do not go back.
    #[test]
    fn each_request_is_answered_once(drive in 0usize..5, order in 0u8..3, queue in 1u32..20, draws in draws()) {
        let facts = facts(drive);
        let capacity = facts.geometry.capacity();
        let order = [DriveOrder::Fifo, DriveOrder::Nearest, DriveOrder::Ascending][usize::from(order)];
        let options = HddOptions { queue: Some(queue), order: Some(order), ..HddOptions::default() };
        let mut hdd = Hdd::new(facts, options);
        let mut pending: Pending<Instant> = Pending::new();
        let mut arrivals = Vec::new();
        let mut at = Instant::ZERO;
        for (command, think) in commands(&draws, capacity) {
            at += think;
            arrivals.push((at, command));
        }
        let (mut now, mut next, mut answered) = (Instant::ZERO, 0, 0);
        loop {
            while next < arrivals.len() && arrivals[next].0 <= now {
                let (came, c) = arrivals[next];
                let id = pending.insert(came);
                let op = if c.write { Op::Write } else { Op::Read };
                hdd.submit(&Request::new(id, FlowId(0), op, c.lbn * 512, c.blocks * 512, came), (), now);
                next += 1;
            }
            while let Some(done) = hdd.reap(now) {
                prop_assert!(pending.remove(done.id).is_some(), "answered twice");
                prop_assert!(done.busy.unwrap() <= now.since(Instant::ZERO));
                answered += 1;
            }
            let arrival = arrivals.get(next).map(|a| a.0);
            let Some(then) = [hdd.wake_at(), arrival].into_iter().flatten().min() else { break };
            prop_assert!(then >= now, "time goes on");
            now = then;
        }
        prop_assert_eq!(answered, arrivals.len());
    }

    /// Equal requests, equal answers.
    #[test]
    fn runs_repeat(drive in 0usize..5, draws in draws()) {
        let facts = facts(drive);
        let commands = commands(&draws, facts.geometry.capacity());
        let run = || {
            let mut controller = Controller::new(&facts);
            let mut now = Instant::ZERO;
            commands.iter().map(|(c, think)| { now = controller.execute(*c, now + *think); now }).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }

    /// Every block of a drive is somewhere, and blocks of one track follow each other.
    #[test]
    fn blocks_follow_each_other(drive in 0usize..5, at in 0u64..1_000_000) {
        let g = facts(drive).geometry;
        let lbn = at * (g.capacity() / 1_000_000);
        let place = g.locate(lbn);
        prop_assert!(place.cylinder < g.cylinders() && place.head < g.surfaces() && place.sector < place.per_track);
        if place.left_on_track > 1 && lbn + 1 < g.capacity() {
            let next = g.locate(lbn + 1);
            prop_assert_eq!(next.position(), place.position());
            prop_assert!(next.sector > place.sector);
            prop_assert_eq!(next.left_on_track + 1, place.left_on_track);
        } else if lbn + 1 < g.capacity() {
            prop_assert_ne!(g.locate(lbn + 1).position(), place.position());
        }
    }
}
