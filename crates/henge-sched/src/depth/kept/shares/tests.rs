use super::*;
use henge_core::{Contract, DepthController, Duration};

const TURN: u64 = 64_000_000;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// Flows of these weights, of which each has a request at the device.
fn kept(weights: &[u32]) -> Kept {
    let mut kept = Kept::new(32, true);
    for (flow, weight) in (0..).zip(weights) {
        kept.set_flow(FlowId(flow), Some(&Contract::weighted(*weight)));
        kept.dispatched(FlowId(flow), Duration::ZERO, 1, at(0));
    }
    kept.shares.look.number = 1;
    kept
}

/// It has this trial, or a later one, and what it does alone is this.
fn tried(kept: &mut Kept, flow: u32, looked: Looked, reference: u64) {
    let flow = &mut kept.flows[FlowId(flow)];
    (flow.share.look, flow.share.looked, flow.share.reference) = (1, looked, reference);
    (flow.share.protected, flow.share.before) = (looked == Looked::Now, 1);
}

#[test]
fn who_is_away_when_its_trial_ends_is_protected_no_more() {
    let mut kept = kept(&[1, 1, 1]);
    tried(&mut kept, 0, Looked::Now, 1000);
    tried(&mut kept, 1, Looked::Now, 1000);
    kept.shares.trial = true;
    kept.restart(at(64));
    for flow in [0, 2] {
        kept.dispatched(FlowId(flow), Duration::ZERO, 1, at(64));
    }
    kept.shares.trial = false;
    kept.goes_on(true, 2, at(128));
    assert_eq!(kept.protect_short(), 1);
    kept.restart(at(128));
    (0..3).for_each(|flow| kept.dispatched(FlowId(flow), Duration::ZERO, 1, at(128)));
    assert_eq!([0, 1, 2].map(|flow| kept.flows[FlowId(flow)].share.protected), [true, false, false]);
    assert_eq!(kept.flows[FlowId(1)].share.look, 0, "it is one who comes");
}

#[test]
fn who_was_not_seen_alone_is_neither_short_nor_has_enough() {
    for short in [false, true] {
        let mut kept = kept(&[1, 1, 1]);
        tried(&mut kept, 0, Looked::Now, 1000);
        tried(&mut kept, 1, Looked::Now, 0);
        kept.goes_on(short, 2, at(64));
        assert_eq!(kept.protect_short(), u64::from(short));
        assert!(!kept.flows[FlowId(1)].share.protected && !kept.flows[FlowId(1)].had_enough(at(64)));
    }
}

#[test]
fn who_is_short_is_not_held_back_for_a_further_trial() {
    let mut kept = kept(&[4, 1, 2, 1]);
    tried(&mut kept, 0, Looked::Now, 1000);
    tried(&mut kept, 1, Looked::Later, 0);
    tried(&mut kept, 2, Looked::Later, 0);
    assert!(!kept.goes_on(true, 4, at(64)));
    let looked_at = |flow| kept.shares.newcomer.as_ref().is_some_and(|one| one.is_of(FlowId(flow)));
    assert!(looked_at(2) && !looked_at(1), "the heaviest is looked at as who comes is");
    assert_eq!(kept.flows[FlowId(1)].share.look, 0, "and then the other one");
    tried(&mut kept, 0, Looked::Now, 1000);
    tried(&mut kept, 1, Looked::Later, 0);
    assert!(kept.goes_on(false, 4, at(64)), "nobody is short");
}

#[test]
fn nobody_is_measured_anew_for_who_was_there_for_a_moment() {
    let measured = |idle_ms: u64| {
        let mut kept = kept(&[1, 1, 1]);
        for (flow, had) in [(0, 1100), (1, 100)] {
            tried(&mut kept, flow, Looked::Now, 1000);
            let flow = &mut kept.flows[FlowId(flow)];
            (flow.kept, flow.window.done, flow.share.with) = (had, 1, 1);
            flow.share.bound(TURN, at(0));
        }
        kept.window.seen.protected = 2;
        kept.flows[FlowId(1)].window.idle = idle_ms * 1_000_000;
        kept.bound_who_takes_much(100, at(4 * 64), 4 * TURN);
        kept.shares.newcomer.is_some_and(|one| one.is_of(FlowId(0)))
    };
    assert!(measured(0) && measured(128) && !measured(129));
}

#[test]
fn who_is_what_it_was_measured_as_is_left_for_longer_each_time() {
    let mut flow = Watched::new();
    flow.share.protected = true;
    flow.is_short_of(1000, 2, TURN, at(0));
    assert!(flow.share.known.0 <= at(0), "it was not known");
    for turns in [16, 32, 64, 64] {
        flow.is_short_of(1200, 2, TURN, at(0));
        flow.share.reference = 1000;
        assert_eq!(flow.share.known.0, at(64 * turns));
    }
    flow.is_short_of(1300, 2, TURN, at(0));
    assert!(flow.share.known.0 <= at(0), "it is something else");
}

#[test]
fn who_is_heavier_and_had_enough_keeps_its_due_in_a_trial_of_others() {
    let mut kept = kept(&[4, 4, 1, 1]);
    for flow in 0..3 {
        let flow = &mut kept.flows[FlowId(flow)];
        (flow.share.heavier, flow.share.before, flow.share.left.alone) =
            (flow.promise.weight > 1, 1000, 1_000_000);
    }
    kept.flows[FlowId(0)].had(false, TURN, at(0));
    kept.flows[FlowId(2)].had(false, TURN, at(0));
    leave_dues(&kept.window.active, &mut kept.flows, 10, at(1));
    let floors = |kept: &Kept| [0, 1, 2, 3].map(|flow| kept.flows[FlowId(flow)].share.left.floor);
    assert_eq!(floors(&kept), [400_000, 0, 0, 0]);
    kept.flows[FlowId(1)].had(false, TURN, at(0));
    leave_dues(&kept.window.active, &mut kept.flows, 10, at(1));
    assert_eq!(floors(&kept), [333_333, 333_333, 0, 0], "of both there is a third of a turn left");
    let mut nothing = || leave_nothing(&kept.window.active, &mut kept.flows);
    assert!(nothing() && !nothing());
    assert_eq!(floors(&kept), [0; 4]);
}

#[test]
fn where_all_have_little_of_something_those_with_few_places_are_measured() {
    let mut kept = kept(&[1, 1]);
    kept.restart(at(64));
    for (flow, cost, places) in [(0, 900, 100), (1, 100, 900)] {
        kept.dispatched(FlowId(flow), Duration::ZERO, 1, at(64));
        let flow = &mut kept.flows[FlowId(flow)];
        (flow.came, flow.window.cost, flow.window.places, flow.window.done) = (1, cost, places, 100);
        flow.window.outstanding = 8 * TURN;
    }
    (kept.window.seen.all_cost, kept.window.seen.places, kept.window.seen.cost) = (1000, 1000, 1000);
    kept.consider(at(128), TURN);
    assert!(kept.shares.trial);
    assert!(kept.flows[FlowId(0)].share.protected && !kept.flows[FlowId(1)].share.protected);
}

#[test]
fn who_was_here_for_half_of_a_window_has_enough_with_half_of_its_share() {
    let has_little = |idle: u64| {
        let mut kept = kept(&[1, 1]);
        for (flow, had) in [(0, 300), (1, 700)] {
            let flow = &mut kept.flows[FlowId(flow)];
            (flow.window.cost, flow.window.places, flow.window.done) = (had, had, 100);
            flow.window.outstanding = 8 * TURN;
        }
        kept.flows[FlowId(0)].window.idle = idle;
        (kept.window.seen.all_cost, kept.window.seen.places) = (1000, 1000);
        [0, 1].map(|flow| kept.all(at(64), TURN).has_little(&kept.flows[FlowId(flow)]))
    };
    assert_eq!([has_little(0), has_little(TURN / 2)], [[true, false], [false, false]]);
}

#[test]
fn the_window_in_which_somebody_came_is_looked_at_only_after_another_one() {
    let mut kept = kept(&[4, 1]);
    kept.restart(at(64));
    (0..2).for_each(|flow| kept.dispatched(FlowId(flow), Duration::ZERO, 1, at(64)));
    (kept.flows[FlowId(0)].came, kept.flows[FlowId(1)].came) = (1, 2);
    let heavy = &mut kept.flows[FlowId(0)];
    (heavy.window.done, heavy.window.outstanding, heavy.window.places) = (100, 8 * TURN, 8 * TURN);
    kept.consider(at(128), TURN);
    assert!(!kept.shares.trial, "most of what was done was done without it");
    kept.consider(at(128), TURN);
    assert!(kept.shares.trial, "whoever comes all the time would never be seen");
}

#[test]
fn who_has_lost_a_quarter_since_the_last_look_is_looked_at_though_nobody_else_is() {
    let looked_at = |before: u64| {
        let mut kept = kept(&[4, 1]);
        kept.restart(at(64));
        for flow in [0, 1] {
            kept.dispatched(FlowId(flow), Duration::ZERO, 1, at(64));
            kept.flows[FlowId(flow)].came = 1;
        }
        let heavy = &mut kept.flows[FlowId(0)];
        (heavy.share.look, heavy.share.before) = (1, before);
        (heavy.window.done, heavy.window.outstanding, heavy.window.places) = (100, 8 * TURN, 8 * TURN);
        heavy.window.total = TURN / 100_000; // 10,000 a second
        kept.pace.patience.0 = TRIAL * TURN;
        kept.consider(at(128), TURN);
        kept.shares.trial
    };
    assert!(!looked_at(13_333) && looked_at(13_334));
}

#[test]
fn who_has_enough_is_left_alone_longer_each_time_unless_it_loses_a_quarter() {
    const TURN: u64 = 1_000_000;
    let after = |turns: u64| Instant::from_nanos(turns * TURN);
    let mut flow = Watched::new();
    flow.share.before = 1000;
    assert!(!flow.had_enough(after(0)), "nobody has looked");
    flow.had(false, TURN, after(0));
    assert!(flow.had_enough(after(63)) && !flow.had_enough(after(64)));
    flow.share.before = 750;
    assert!(flow.had_enough(after(1)));
    flow.share.before = 749;
    assert!(!flow.had_enough(after(1)), "it has lost since");
    for turns in [128, 256, 512, 1024, 1024] {
        flow.had(false, TURN, after(0));
        assert!(flow.had_enough(after(turns - 1)) && !flow.had_enough(after(turns)), "{turns}");
    }
    flow.had(true, TURN, after(0));
    assert!(!flow.had_enough(after(0)), "it was short");
    flow.had(false, TURN, after(0));
    assert!(!flow.had_enough(after(64)), "all begins anew");
}
