//! Short reads, which are answered at once, pass others that have all slots.

use super::*;

/// A gate for two flows at which reads may pass.
fn two(depth: u32) -> Gate {
    let mut gate = gate(depth, &Contract::best_effort());
    gate.set_flow(FlowId(1), &Contract::best_effort(), ms(0)).unwrap();
    gate.let_reads_pass();
    gate
}

fn ask(gate: &mut Gate, ids: &mut Pending<()>, flow: u32, op: Op, now: Instant) -> RequestId {
    ask_for(4096, gate, ids, flow, op, now)
}

fn ask_for(len: u64, gate: &mut Gate, ids: &mut Pending<()>, flow: u32, op: Op, now: Instant) -> RequestId {
    let id = ids.insert(());
    gate.submit(Request::new(id, FlowId(flow), op, 0, len, now), now).unwrap();
    id
}

fn ready(gate: &mut Gate, now: Instant) -> Vec<RequestId> {
    let next = || if let Dispatch::Ready(request) = gate.next(now) { Some(request.id) } else { None };
    std::iter::from_fn(next).collect()
}

/// Writes have all slots. A neighbour's read goes at once, and the writes before it have the next slots in their order.
#[test]
fn a_read_waits_for_no_write_that_has_a_slot() {
    let (mut gate, mut ids) = (two(2), Pending::new());
    let writes: Vec<_> = (0..5).map(|_| ask(&mut gate, &mut ids, 0, Op::Write, ms(0))).collect();
    assert_eq!(ready(&mut gate, ms(0)), writes[..2]);
    let read = ask(&mut gate, &mut ids, 1, Op::Read, ms(1));
    let last = ask(&mut gate, &mut ids, 0, Op::Write, ms(1));
    assert_eq!((ready(&mut gate, ms(1)), gate.in_flight(), gate.stalled()), (vec![read], 3, 3));
    let served = gate.complete(read, false, ms(2));
    assert_eq!((served.dispatched, served.completed), (ms(1), ms(2)));
    assert_eq!(ready(&mut gate, ms(2)), [], "its place is no slot");
    gate.complete(writes[1], false, ms(3));
    assert_eq!(ready(&mut gate, ms(3)), [writes[2]]);
    assert!(gate.cancel(writes[3], ms(3)).is_some(), "it is not at the device");
    gate.complete(writes[0], false, ms(4));
    assert_eq!(ready(&mut gate, ms(4)), [writes[4]]);
    gate.complete(writes[2], false, ms(5));
    assert_eq!((ready(&mut gate, ms(5)), gate.stalled(), gate.queued()), (vec![last], 0, 0));
    let served = gate.complete(writes[4], false, ms(7));
    assert_eq!(
        (served.dispatched, served.disk_time),
        (ms(4), Duration::from_millis(2)),
        "since it was there"
    );
}

/// A long read takes many turns, or a worker: four of them have all slots, and a short one waits for none of them.
#[test]
fn a_short_read_waits_for_no_long_one() {
    let (mut gate, mut ids) = (two(4), Pending::new());
    let long: Vec<_> = (0..6).map(|_| ask_for(128 << 10, &mut gate, &mut ids, 0, Op::Read, ms(0))).collect();
    assert_eq!(ready(&mut gate, ms(0)), long[..4]);
    let short = ask(&mut gate, &mut ids, 1, Op::Read, ms(1));
    assert_eq!(ready(&mut gate, ms(1)), [short]);
    gate.complete(short, false, ms(2));
    gate.complete(long[0], false, ms(3));
    assert_eq!(ready(&mut gate, ms(3)), [long[4]]);
}

/// Whose limit or share holds the reads back: what others wait for stays in the scheduler's order, but for a few.
#[test]
fn a_bounded_number_is_overtaken() {
    let (mut gate, mut ids) = (two(1), Pending::new());
    let writes: Vec<_> = (0..40).map(|_| ask(&mut gate, &mut ids, 0, Op::Write, ms(0))).collect();
    let read = ask(&mut gate, &mut ids, 1, Op::Read, ms(0));
    assert_eq!(ready(&mut gate, ms(0)), writes[..1]);
    assert_eq!((gate.stalled(), gate.queued()), (32, 8), "the scheduler has the rest");
    let mut gone = Vec::new();
    for (n, id) in writes.iter().enumerate() {
        gate.complete(*id, false, ms(1 + n as u64));
        gone.extend(ready(&mut gate, ms(1 + n as u64)));
        if gone.last() == Some(&read) {
            gate.complete(read, false, ms(1 + n as u64));
        }
    }
    let at = gone.iter().position(|id| *id == read).expect("it went");
    assert_eq!(at, 8, "before those that were overtaken");
    gone.remove(at);
    assert_eq!(gone, writes[1..]);
}

/// Where nobody says so, reads wait for slots as all others do.
#[test]
fn nobody_passes_at_other_gates() {
    let (mut gate, mut ids) = (gate(1, &Contract::best_effort()), Pending::new());
    let write = ask(&mut gate, &mut ids, 0, Op::Write, ms(0));
    let read = ask(&mut gate, &mut ids, 0, Op::Read, ms(0));
    assert_eq!(ready(&mut gate, ms(0)), [write]);
    gate.complete(write, false, ms(1));
    assert_eq!(ready(&mut gate, ms(1)), [read]);
}

proptest::proptest! {
    /// Whatever comes, ends, is given up or silent: short reads and others each have as many places as the depth has slots, each request goes once, short
    /// reads in their order and others in theirs, and nothing is left.
    #[test]
    fn reads_and_others_each_have_the_depth(
        depth in 1_u32..5, steps in proptest::collection::vec((0_u8..12, 0_usize..64), 1..300),
    ) {
        let (mut gate, mut ids) = (two(depth), Pending::new());
        let (mut waiting, mut under_way, mut at) = (Vec::<(RequestId, bool)>::new(), Vec::<(RequestId, bool)>::new(), 0);
        let mut in_order = true;
        let steps = steps.into_iter().chain(std::iter::repeat_n((8, 0), 1200));
        for (what, which) in steps {
            at += 1;
            match what {
                0..4 => {
                    let op = if what < 2 { Op::Read } else { Op::Write };
                    let len = if what == 0 { 4096 } else { 32 << 10 };
                    let id = ask_for(len, &mut gate, &mut ids, which as u32 % 2, op, ms(at));
                    waiting.push((id, what == 0));
                }
                4..9 if !under_way.is_empty() => {
                    gate.complete(under_way.swap_remove(which % under_way.len()).0, false, ms(at));
                }
                9 if !waiting.is_empty() => {
                    let (id, _) = waiting.remove(which % waiting.len());
                    proptest::prop_assert_eq!(gate.cancel(id, ms(at)).map(|request| request.id), Some(id));
                }
                10 if !under_way.is_empty() => {
                    in_order &= !gate.give_back(under_way[which % under_way.len()].0, ms(at));
                }
                _ => {}
            }
            for id in ready(&mut gate, ms(at)) {
                let (_, short) = *waiting.iter().find(|(other, _)| *other == id).expect("it waited");
                if in_order {
                    let first = waiting.iter().find(|(_, other)| *other == short);
                    proptest::prop_assert_eq!(first.map(|(id, _)| *id), Some(id));
                }
                waiting.retain(|(other, _)| *other != id);
                under_way.push((id, short));
            }
            let reads = under_way.iter().filter(|(_, short)| *short).count() as u32;
            proptest::prop_assert!(reads <= depth + gate.silent() && under_way.len() as u32 - reads <= depth + gate.silent());
            proptest::prop_assert_eq!(gate.in_flight() as usize, under_way.len());
            proptest::prop_assert_eq!(gate.queued() + gate.stalled() as usize, waiting.len());
        }
        proptest::prop_assert_eq!((waiting.len(), under_way.len(), gate.silent(), gate.stalled()), (0, 0, 0, 0));
    }
}
