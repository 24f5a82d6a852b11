//! The constant-rate device against hand calculation, and RAID-0 over it.

use henge_core::{Backend, Duration, Fault, FlowId, Instant, Model, Op, Pending, Request};
use henge_device::{Constant, ConstantConfig, Growth, Raid0, Sharing};

const MB: u64 = 1_000_000;

fn config(sharing: Sharing, growth: Option<Growth>) -> ConstantConfig {
    ConstantConfig { rate: Some(50 * MB), time: Duration::ZERO, sharing, growth, capacity: 1 << 40 }
}

/// Submits requests at their times, runs to the end, and returns when each is over, in ms, with its busy time.
fn run(device: &mut dyn Backend<Payload = ()>, requests: &[(u64, Op, u64, u64)]) -> Vec<(f64, f64)> {
    let mut pending = Pending::new();
    let mut results = vec![(0.0, 0.0); requests.len()];
    let mut next = 0;
    let mut now = Instant::ZERO;
    loop {
        while next < requests.len() && Instant::ZERO + Duration::from_millis(requests[next].0) <= now {
            let (_, op, offset, len) = requests[next];
            let id = pending.insert(next);
            device.submit(&Request::new(id, FlowId(0), op, offset, len, now), (), now);
            next += 1;
        }
        while let Some(done) = device.reap(now) {
            let index = pending.remove(done.id).expect("each request is finished once");
            assert_eq!(done.outcome, Ok(()));
            results[index] = (now.as_secs_f64() * 1e3, done.busy.expect("models know").as_millis_f64());
        }
        let arrival = requests.get(next).map(|r| Instant::ZERO + Duration::from_millis(r.0));
        let Some(then) = [device.wake_at(), arrival].into_iter().flatten().min() else { return results };
        assert!(then >= now, "time goes on");
        now = then;
    }
}

fn close(got: f64, expected: f64) {
    assert!((got - expected).abs() < 1e-3, "{got} ms instead of {expected} ms");
}

#[test]
fn the_worked_example_of_the_head_comment() {
    let two = [(0, Op::Read, 0, MB), (0, Op::Read, 0, MB)];
    let mut serial = Constant::new(config(Sharing::Serial, None));
    let done = run(&mut serial, &two);
    close(done[0].0, 20.0);
    close(done[1].0, 40.0);
    let mut slots = Constant::new(config(Sharing::Slots(2), None));
    let done = run(&mut slots, &two);
    close(done[0].0, 40.0);
    close(done[1].0, 40.0);
    let growth = Some(Growth { a_milli: 1150, b_milli: 2000 });
    let done = run(&mut Constant::new(config(Sharing::Serial, growth)), &two);
    close(done[0].0, 20.0 / 0.575);
    close(done[1].0, 20.0 / 0.575 + 20.0 / (1.15 / 3.0));
    close(done[1].1, 20.0 / (1.15 / 3.0));
}

#[test]
fn even_sharing_slows_everybody() {
    // The second comes when the first is half done: 10 ms of work left at half speed each.
    let requests = [(0, Op::Read, 0, MB), (10, Op::Write, 0, MB)];
    let done = run(&mut Constant::new(config(Sharing::Even, None)), &requests);
    close(done[0].0, 30.0);
    close(done[1].0, 40.0);
}

#[test]
fn beyond_the_end_is_refused() {
    let mut device = Constant::new(ConstantConfig { capacity: MB, ..config(Sharing::Serial, None) });
    let id = Pending::new().insert(());
    device.submit(&Request::new(id, FlowId(0), Op::Read, MB - 1, 2, Instant::ZERO), (), Instant::ZERO);
    assert_eq!(device.reap(Instant::ZERO).unwrap().outcome, Err(Fault::OutOfRange));
}

#[test]
fn raid0_waits_for_its_last_piece() {
    let member = || Box::new(Constant::new(config(Sharing::Serial, None))) as Model;
    let mut array = Raid0::new((0..4).map(|_| member()).collect(), MB / 4);
    // 1.25 MB: two units on the first spindle, one on each other; the first takes 10 ms.
    let done = run(&mut array, &[(0, Op::Read, 0, MB / 4 * 5), (0, Op::Flush, 0, 0), (0, Op::Read, 7, 0)]);
    close(done[0].0, 10.0);
    close(done[0].1, 10.0);
    close(done[1].0, 10.0);
    close(done[2].0, 0.0);
}
