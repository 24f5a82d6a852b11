//! What a gate says that it asks of a depth which it divides with others.

use super::*;

/// A depth that can be divided.
struct Divided(u32, DepthPart);
impl DepthController for Divided {
    fn depth(&self) -> u32 {
        self.1.of(self.0)
    }
    fn whole(&self) -> Option<u32> {
        Some(self.0)
    }
    fn divide(&mut self, part: DepthPart) {
        self.1 = part;
    }
}

fn divided(depth: u32) -> Assembly {
    Assembly { depth: Box::new(Divided(depth, DepthPart::ALL)), ..parts(1, false) }
}

fn gate(depth: u32, contracts: &[Contract]) -> Gate {
    let mut gate = Gate::new(divided(depth));
    for (flow, contract) in contracts.iter().enumerate() {
        gate.set_flow(FlowId(flow as u32), contract, Instant::ZERO).unwrap();
    }
    gate
}

fn ask(gate: &mut Gate, ids: &mut Pending<()>, flow: u32, now: Instant) -> RequestId {
    let id = ids.insert(());
    gate.submit(Request::new(id, FlowId(flow), Op::Read, 0, 4096, now), now).unwrap();
    id
}

fn go(gate: &mut Gate, now: Instant) -> usize {
    std::iter::repeat_with(|| gate.next(now)).take_while(|d| matches!(d, Dispatch::Ready(_))).count()
}

#[test]
fn it_says_who_asks_how_much_was_used_and_whether_more_was_wanted() {
    let (mut gate, mut ids) = (gate(4, &[Contract::weighted(3), Contract::weighted(5)]), Pending::new());
    let said = |weight, used| Some(Demand { weight, used, promised: 0, whole: 4 });
    assert_eq!(gate.demand(ms(0)), said(8, Some(0)), "nobody asks: all would");
    let first: Vec<_> = (0..2).map(|_| ask(&mut gate, &mut ids, 0, ms(1))).collect();
    assert_eq!(go(&mut gate, ms(1)), 2);
    first.iter().for_each(|id| _ = gate.complete(*id, false, ms(2)));
    assert_eq!(gate.demand(ms(500)), said(3, Some(2)), "what is over by now was asked for as well");
    assert_eq!(gate.demand(ms(1000)), said(8, Some(0)));
    let second: Vec<_> = (0..5).map(|i| ask(&mut gate, &mut ids, i % 2, ms(1001))).collect();
    assert_eq!(go(&mut gate, ms(1001)), 4);
    assert_eq!(gate.demand(ms(1500)), said(8, None), "a fifth waits");
    second[..4].iter().for_each(|id| _ = gate.complete(*id, false, ms(1600)));
    assert_eq!(go(&mut gate, ms(1600)), 1);
    assert_eq!(gate.demand(ms(2000)), said(8, Some(4)), "what was in flight at the last look counts");
    assert_eq!(gate.demand(ms(2500)), said(3, Some(1)), "the fifth is the first flow's, and still under way");
}

#[test]
fn a_promise_needs_what_its_requests_take_and_no_more_than_is_used_where_nobody_waits() {
    let promised = Contract::reserved(Rate::requests(1000));
    let (mut gate, mut ids) = (gate(64, &[promised]), Pending::new());
    gate.demand(ms(0));
    // 100 requests of 8 ms in half a second: 1.6 slots. At a thousand a second they would be eight.
    let serve = |gate: &mut Gate, ids: &mut Pending<()>, from: u64| {
        for i in 0..100 {
            let id = ask(gate, ids, 0, ms(from + i * 5));
            assert_eq!(go(gate, ms(from + i * 5)), 1);
            gate.complete(id, false, ms(from + i * 5 + 8));
        }
    };
    serve(&mut gate, &mut ids, 0);
    assert_eq!(gate.demand(ms(500)).unwrap().promised, 2);
    serve(&mut gate, &mut ids, 500);
    // More is wanted than there are slots.
    (0..65).for_each(|_| _ = ask(&mut gate, &mut ids, 0, ms(1000)));
    go(&mut gate, ms(1000));
    assert_eq!(gate.demand(ms(1000)).unwrap().promised, 8);
}

#[test]
fn its_part_holds_also_for_the_scheduler_that_takes_over() {
    let (mut gate, mut ids) = (gate(16, &[Contract::best_effort()]), Pending::new());
    (0..16).for_each(|_| _ = ask(&mut gate, &mut ids, 0, ms(0)));
    assert_eq!(gate.depth_of_all(), None);
    gate.divide_depth(DepthPart::new(5, 16), ms(0));
    assert_eq!((go(&mut gate, ms(0)), gate.depth(), gate.depth_of_all()), (5, 5, Some(16)));
    gate.prepare(divided(32), 8);
    while !gate.prepare_step(ms(0)).unwrap() {}
    gate.take_over(ms(0));
    assert_eq!((gate.depth(), gate.depth_of_all()), (10, Some(32)));
    assert_eq!(go(&mut gate, ms(0)), 5, "of ten, five are in flight");
    gate.divide_depth(DepthPart::ALL, ms(1));
    assert_eq!((go(&mut gate, ms(1)), gate.depth_of_all()), (6, None));
}
