//! Simulated tenants, servers and clocks: what is judged is what happened.

use super::*;
use henge_api::Buckets;
use henge_core::Duration;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

/// A disk whose counters somebody moves.
struct Tenant {
    disk: DiskStatus,
    latency: Histogram,
    mark: Mark,
    known: Known,
}

impl Tenant {
    fn new(promise: Promise) -> Tenant {
        let disk = DiskStatus { promise, ..DiskStatus::default() };
        Tenant { mark: Mark::of(&disk), disk, latency: Histogram::default(), known: Known::default() }
    }

    /// For `time`, so many commands a second of `each`, `pending` of them at once for this part of the time.
    fn goes(&mut self, time: u64, rate: f64, pending: f64, part: f64) {
        let commands = (rate * time as f64 / 1e9).round() as u64;
        self.disk.meters.metered += time;
        self.disk.meters.commands += commands;
        self.disk.meters.bytes += commands * 4096;
        self.disk.meters.busy += (time as f64 * part) as u64;
        self.disk.meters.outstanding_us += (time as f64 * part * pending / 1e3) as u64;
        if commands > 0 {
            let each = time as f64 * part * pending / commands as f64;
            self.latency.record(Duration::from_nanos(each as u64));
        }
    }

    fn judged(&mut self) -> Second {
        self.disk.meters.histogram = Some(Buckets::from(&self.latency));
        let now = Mark::of(&self.disk);
        let second = judge(&self.mark, &now, &self.disk, &mut self.known);
        self.mark = now;
        second
    }
}

fn rated(rate: f64) -> Promise {
    Promise { rate: Some(rate), unit: "requests".into(), ..Promise::default() }
}

fn late(percentile: f64) -> Promise {
    Promise {
        latency: Some(5_000_000),
        percentile: Some(percentile),
        unit: "requests".into(),
        ..Promise::default()
    }
}

/// At the gateway that has a disk's seat: its own clients receive a part, and the gate knows the rest.
#[test]
fn clients_of_all_gateways_count_where_the_seat_is() {
    let mut tenant = Tenant::new(rated(300.0));
    tenant.disk.flow.all = Some(Received::default());
    tenant.judged();
    let mut second = |here: f64, there: u64, waits: f64| {
        tenant.goes(SECOND, here, 8.0, if here > 0.0 { 1.0 } else { 0.0 });
        let commands = here as u64 + there;
        let all = tenant.disk.flow.all.get_or_insert_default();
        (all.commands, all.bytes) = (all.commands + commands, all.bytes + commands * 4096);
        *tenant.disk.flow.waits.entry("share".into()).or_default() += (waits * SECOND as f64) as u64;
        // Sixteen are in the gate or at the device, all the time.
        tenant.disk.flow.wait += (15.5 * SECOND as f64) as u64;
        tenant.disk.flow.service += SECOND / 2;
        tenant.judged()
    };
    assert_eq!(second(150.0, 150, 1.0), Second::Kept, "half of it by each");
    assert_eq!(second(0.0, 300, 1.0), Second::Kept, "all of it by others");
    assert_eq!(second(0.0, 200, 1.0), Second::Missed("share".into()), "it waited, by others");
    assert_eq!(second(150.0, 100, 1.0), Second::Missed("share".into()));
    assert_eq!(second(0.0, 200, 0.5), Second::NotWanted, "nobody knows whether others had anything pending");
    assert_eq!(second(0.0, 0, 0.0), Second::NotWanted);
}

proptest! {
    /// A closed loop with enough outstanding, on a server whose speed changes: a second is kept if and only if it was fast enough,
    /// however irregular the looks.
    #[test]
    fn a_closed_loop_gets_its_rate_or_not(
        rate in 50.0f64..50_000.0,
        fast in 1.5f64..10.0,
        seconds in prop::collection::vec((0.02f64..3.0, SECOND / 2..3 * SECOND), 1..50),
    ) {
        let mut tenant = Tenant::new(rated(rate));
        // It has been alone for a while, `fast` times as fast as promised, with as many outstanding as that takes.
        let pending = (fast * rate * 0.001).max(1.0);
        tenant.goes(10 * SECOND, pending / 0.001_f64.min(pending / (fast * rate)), pending, 1.0);
        prop_assert_eq!(tenant.judged(), Second::Kept);
        for (of, time) in seconds {
            let near = 2.0 / (rate * time as f64 / 1e9);
            prop_assume!((of - ENOUGH).abs() > 0.005 + near);
            tenant.goes(time, of * rate, pending, 1.0);
            let judged = tenant.judged();
            match of > ENOUGH {
                true => prop_assert_eq!(judged, Second::Kept),
                false => prop_assert!(matches!(judged, Second::Missed(_)), "{} of {}/s: {:?}", of, rate, judged),
            }
        }
    }

    /// Who has nothing pending for a while did not want its rate; who cannot have it with so few outstanding neither.
    #[test]
    fn who_asks_for_little_is_not_wronged(
        rate in 100.0f64..50_000.0,
        asked in 0.0f64..0.9,
        part in 0.0f64..0.97,
        time in SECOND / 2..3 * SECOND,
    ) {
        let mut tenant = Tenant::new(rated(rate));
        prop_assume!((asked - ENOUGH).abs() * rate * time as f64 / 1e9 > 2.0);
        // It knows better times: its commands are slow now, and yet it has nothing pending for a while.
        tenant.goes(10 * SECOND, 4.0 * rate, 1.0, 1.0);
        prop_assert_eq!(tenant.judged(), Second::Kept);
        tenant.goes(time, asked * rate, 3.0, part);
        prop_assert_eq!(tenant.judged(), Second::NotWanted);
        // One at a time, all the time, each as fast as any.
        let mut one = Tenant::new(rated(rate));
        one.goes(10 * SECOND, asked * rate, 1.0, 1.0);
        let judged = one.judged();
        prop_assert!(judged == Second::NotWanted || asked * rate < 1.0, "{:?}", judged);
    }

    /// Late commands are forgiven as far as the percentile allows in all, and no further.
    #[test]
    fn lateness_is_forgiven_by_the_percentile(
        percentile in prop::sample::select(vec![50.0, 90.0, 95.0, 99.0, 99.9]),
        seconds in prop::collection::vec((0u64..200, 0u64..30), 1..200),
    ) {
        let mut tenant = Tenant::new(late(percentile));
        let (mut kept_commands, mut kept_late) = (0, 0);
        for (commands, late) in seconds {
            let late = late.min(commands);
            tenant.goes(SECOND, commands as f64, 1.0, 0.5);
            tenant.disk.meters.late += late;
            let allowed = commands as f64 * (1.0 - percentile / 100.0);
            match tenant.judged() {
                Second::NotWanted => prop_assert_eq!(commands, 0),
                Second::Kept => {
                    kept_commands += commands;
                    kept_late += late;
                }
                Second::Missed(_) => prop_assert!(late as f64 > allowed, "{} of {}", late, commands),
            }
        }
        prop_assert!(kept_late as f64 <= kept_commands as f64 * (1.0 - percentile / 100.0) + 1e-3);
    }

    /// Counters that began anew, or another promise, are no second at all.
    #[test]
    fn what_began_anew_is_not_compared(a in 0u64..100 * SECOND, b in 0u64..100 * SECOND, n in 0u64..1000, m in 0u64..1000) {
        let at = |at, commands| Mark { at, commands, ..Mark::default() };
        let time = at(b, m).since_ms(&at(a, n));
        prop_assert_eq!(time, (b > a && m >= n).then(|| (b - a) / 1_000_000));
        let other = Mark { promise: rated(7.0), ..at(a.max(b) + 1, n.max(m)) };
        prop_assert_eq!(other.since_ms(&at(a, n)), None);
    }
}

#[test]
fn the_example_of_the_head() {
    let mut eight = Tenant::new(rated(10_000.0));
    eight.goes(SECOND, 40_000.0, 8.0, 1.0);
    eight.judged();
    eight.goes(SECOND, 725.0, 8.0, 1.0);
    assert!(matches!(eight.judged(), Second::Missed(_)));
    eight.goes(SECOND, 10_050.0, 8.0, 1.0);
    assert_eq!(eight.judged(), Second::Kept);
    let mut one = Tenant::new(rated(10_000.0));
    one.goes(SECOND, 5_000.0, 1.0, 1.0);
    one.judged();
    one.goes(SECOND, 4_900.0, 1.0, 1.0);
    assert_eq!(one.judged(), Second::NotWanted);
}

/// A pool that never was quick enough: 16 reads at once had 160/s of 600/s, and no second counted.
#[test]
fn on_a_pool_that_was_always_too_slow_seconds_are_missed() {
    let mut tenant = Tenant::new(rated(600.0));
    for _ in 0..50 {
        tenant.goes(SECOND, 160.0, 16.0, 1.0);
        assert!(matches!(tenant.judged(), Second::Missed(_)));
    }
    // Two at once, or one that is not always there, ask for less.
    for (pending, part) in [(2.0, 1.0), (16.0, 0.97)] {
        let mut tenant = Tenant::new(rated(600.0));
        tenant.goes(SECOND, 160.0, pending, part);
        assert_eq!(tenant.judged(), Second::NotWanted, "{pending} at once");
    }
    // Long commands, and those that move nothing, take their time.
    for each in [1 << 20, 0] {
        let mut tenant = Tenant::new(rated(600.0));
        tenant.goes(SECOND, 160.0, 16.0, 1.0);
        tenant.disk.meters.bytes = 160 * each;
        assert_eq!(tenant.judged(), Second::NotWanted, "{each} bytes");
    }
}

/// Slow commands had been the fastest hundredth once there were a hundred of them for each fast one, and then no second counted any more.
#[test]
fn a_device_that_stays_slow_is_not_acquitted() {
    let mut tenant = Tenant::new(rated(10_000.0));
    tenant.goes(SECOND, 40_000.0, 8.0, 1.0);
    assert_eq!(tenant.judged(), Second::Kept);
    for second in 0..300 {
        tenant.goes(SECOND, 725.0, 8.0, 1.0);
        assert!(matches!(tenant.judged(), Second::Missed(_)), "second {second}");
    }
    tenant.disk.promise.rate = Some(9_000.0);
    let mut judge = Judge::new(&tenant.disk);
    tenant.goes(SECOND, 725.0, 8.0, 1.0);
    assert_eq!(judge.second(&tenant.disk), Second::NotWanted, "another promise begins anew");
}

#[test]
fn one_late_command_is_saved_up_and_no_more() {
    let mut tenant = Tenant::new(late(95.0));
    let mut second = |commands: f64, late| {
        tenant.goes(SECOND, commands, 1.0, 0.5);
        tenant.disk.meters.late += late;
        tenant.judged()
    };
    for _ in 0..1000 {
        assert_eq!(second(20.0, 0), Second::Kept);
    }
    assert_eq!(second(20.0, 2), Second::Kept);
    assert_eq!(second(20.0, 2), Second::Missed("node".into()));
    // Of five a second, every fourth may have one.
    for n in 1..=8 {
        assert_eq!(second(5.0, u64::from(n % 4 == 0)), Second::Kept, "{n}");
    }
    assert_eq!(second(5.0, 1), Second::Missed("node".into()));
}

#[test]
fn a_disk_that_is_not_answered_at_all_is_wronged() {
    for promise in [rated(10.0), late(95.0)] {
        let mut tenant = Tenant::new(promise);
        tenant.goes(SECOND, 0.0, 1.0, 1.0);
        tenant.disk.flow.service += SECOND;
        assert_eq!(tenant.judged(), Second::Missed("device".into()));
    }
}

#[test]
fn beyond_its_rate_latency_is_nobodys_promise_unless_pending_bounds_it() {
    let promise = Promise { rate: Some(100.0), ..late(95.0) };
    let mut tenant = Tenant::new(promise);
    tenant.goes(SECOND, 500.0, 4.0, 1.0);
    tenant.disk.meters.late += 400;
    assert_eq!(tenant.judged(), Second::Kept);
    tenant.disk.contract.insert("pending".into(), "4".into());
    tenant.goes(SECOND, 500.0, 4.0, 1.0);
    tenant.disk.meters.late += 400;
    tenant.disk.flow.wait += SECOND / 2;
    tenant.disk.flow.waits.insert("turn".into(), SECOND / 4);
    tenant.disk.flow.waits.insert("own share".into(), SECOND / 8);
    tenant.disk.meters.outstanding_us -= 3_200_000;
    assert_eq!(tenant.judged(), Second::Missed("turn".into()));
}
