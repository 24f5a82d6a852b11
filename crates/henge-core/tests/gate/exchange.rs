//! The scheduler is exchanged while requests wait and are in flight.

use super::*;

/// All steps of an exchange that come before the new scheduler takes over, and that.
fn exchange(gate: &mut Gate, parts: Assembly, step: usize, now: Instant) -> Result<(), (FlowId, Refused)> {
    gate.prepare(parts, step);
    while !gate.prepare_step(now)? {}
    gate.take_over(now);
    Ok(())
}

#[test]
fn an_exchange_moves_what_waits_and_forgets_no_one_in_flight() {
    let (mut gate, mut ids) = (gate(1, &Contract::best_effort()), Pending::new());
    let running = submit(&mut gate, &mut ids, ms(0)).unwrap();
    let waiting = submit(&mut gate, &mut ids, ms(0)).unwrap();
    gate.next(ms(0));
    exchange(&mut gate, parts(1, false), 1, ms(1)).unwrap();
    assert_eq!((gate.queued(), gate.in_flight()), (1, 1));
    assert_eq!(gate.next(ms(1)), Dispatch::Wait { until: None, reason: WaitReason::DeviceBusy });
    gate.complete(running, false, ms(2));
    assert!(matches!(gate.next(ms(2)), Dispatch::Ready(r) if r.id == waiting));
}

#[test]
fn a_refused_exchange_leaves_the_old_scheduler_in_place() {
    let latency = Some(Latency { bound: Duration::from_millis(8), percentile: 950_000 });
    let (mut gate, mut ids) = (gate(1, &Contract { latency, ..Contract::default() }), Pending::new());
    let waiting = submit(&mut gate, &mut ids, ms(0)).unwrap();
    let (flow, refused) = exchange(&mut gate, parts(1, true), 1, ms(1)).unwrap_err();
    assert_eq!((flow, refused.term), (FLOW, "latency"));
    assert!(matches!(gate.next(ms(1)), Dispatch::Ready(r) if r.id == waiting));
}

/// A gate of a hundred flows with one request each.
fn hundred() -> (Gate, Pending<()>) {
    let (mut gate, mut ids) = (gate(1000, &Contract::best_effort()), Pending::new());
    for flow in 0..100 {
        gate.set_flow(FlowId(flow), &Contract::best_effort(), ms(0)).unwrap();
        let id = ids.insert(());
        gate.submit(Request::new(id, FlowId(flow), Op::Read, 0, 4096, ms(0)), ms(0)).unwrap();
    }
    (gate, ids)
}

#[test]
fn an_exchange_looks_at_so_many_flows_at_a_time_and_the_old_scheduler_goes_on() {
    let (mut gate, _) = hundred();
    gate.prepare(parts(1000, false), 10);
    for step in 1..=10 {
        assert_eq!(gate.prepare_step(ms(0)).unwrap(), step == 10, "100 flows in steps of 10");
    }
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(r) if r.flow == FlowId(0)));
    gate.take_over(ms(0));
    // Each time that it is asked, ten flows move, and one of the others leaves by the old scheduler: the first of those that
    // are left in it, which are in the order of their numbers.
    for moved in (10..100).step_by(10) {
        let old = gate.next(ms(0));
        assert!(matches!(old, Dispatch::Ready(r) if r.flow == FlowId(moved)), "{old:?} after {moved}");
        assert!(gate.is_exchanging() && gate.wake_at() == Some(ms(0)), "it asks to be asked again");
    }
    let new = gate.next(ms(0));
    assert!(matches!(new, Dispatch::Ready(r) if r.flow == FlowId(1)), "{new:?}: the first that moved");
    assert!(!gate.is_exchanging());
    let mut left = 0;
    while let Dispatch::Ready(_) = gate.next(ms(0)) {
        left += 1;
    }
    assert_eq!((left, gate.queued(), gate.in_flight()), (100 - 1 - 9 - 1, 0, 100));
}

#[test]
fn a_contract_that_changes_during_an_exchange_reaches_both_schedulers() {
    let latency = Some(Latency { bound: Duration::from_millis(8), percentile: 950_000 });
    let wants = Contract { latency, ..Contract::default() };
    let (mut gate, mut ids) = hundred();
    gate.prepare(parts(1000, true), 10);
    assert!(!gate.prepare_step(ms(0)).unwrap());
    // The old scheduler takes it, the new one would not: it is the exchange that fails, not the contract.
    gate.set_flow(FlowId(3), &wants, ms(0)).unwrap();
    assert_eq!(gate.prepare_step(ms(0)).unwrap_err().0, FlowId(3));
    gate.set_flow(FlowId(3), &Contract::best_effort(), ms(0)).unwrap();
    exchange(&mut gate, parts(1000, true), 10, ms(0)).unwrap();
    // The new one decides now, also of flows that have not moved.
    assert!(gate.set_flow(FlowId(99), &wants, ms(0)).is_err());
    // One that comes meanwhile is with the new one from its beginning.
    gate.set_flow(FlowId(100), &Contract::best_effort(), ms(0)).unwrap();
    let id = ids.insert(());
    gate.submit(Request::new(id, FlowId(100), Op::Read, 0, 4096, ms(0)), ms(0)).unwrap();
    let mut seen = 0;
    while let Dispatch::Ready(_) = gate.next(ms(0)) {
        seen += 1;
    }
    assert_eq!((seen, gate.is_exchanging()), (101, false));
}
