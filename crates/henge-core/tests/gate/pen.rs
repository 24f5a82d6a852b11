//! Requests that the depth controller does not let in yet are held, each until its hour.

use super::*;

/// Lets in one request each ten milliseconds.
struct Pace(Instant);
impl DepthController for Pace {
    fn depth(&self) -> u32 {
        8
    }
    fn admits(&mut self, _: &Request, now: Instant) -> Option<Instant> {
        if now < self.0 {
            return Some(self.0);
        }
        self.0 = now + Duration::from_millis(10);
        None
    }
}

#[test]
fn what_is_not_let_in_waits_in_its_order_and_comes_back_once() {
    let mut gate = Gate::new(Assembly { depth: Box::new(Pace(ms(0))), ..parts(8, false) });
    gate.set_flow(FLOW, &Contract::best_effort(), ms(0)).unwrap();
    let mut ids = Pending::new();
    let all: Vec<_> = (0..5).map(|_| submit(&mut gate, &mut ids, ms(0)).unwrap()).collect();
    let goes = |gate: &mut Gate, at| match gate.next(at) {
        Dispatch::Ready(request) => Some(request.id),
        _ => None,
    };
    assert_eq!((gate.queued(), goes(&mut gate, ms(0))), (5, Some(all[0])));
    assert_eq!(gate.next(ms(0)), Dispatch::Wait { until: Some(ms(10)), reason: WaitReason::Depth });
    assert_eq!((gate.waiting(FLOW, ms(0)), gate.wake_at()), (Some(WaitReason::Depth), Some(ms(10))));
    assert_eq!(goes(&mut gate, ms(10)), Some(all[1]));
    // Given up while it is held: the next one takes its turn.
    assert_eq!(gate.cancel(all[2], ms(11)).map(|r| r.id), Some(all[2]));
    assert_eq!(gate.cancel(all[2], ms(11)), None);
    assert_eq!((goes(&mut gate, ms(19)), goes(&mut gate, ms(20))), (None, Some(all[3])));
    // The flow ends: what is held is given back.
    let mut orphans = Vec::new();
    gate.remove_flow(FLOW, ms(21), &mut orphans);
    assert_eq!(orphans.iter().map(|r| r.id).collect::<Vec<_>>(), [all[4]]);
    for id in [all[0], all[1], all[3]] {
        gate.complete(id, false, ms(22));
    }
    assert_eq!((gate.queued(), gate.next(ms(40))), (0, Dispatch::Idle));
}

#[test]
fn an_administrators_work_is_never_held() {
    let mut gate = Gate::new(Assembly { depth: Box::new(Pace(ms(1000))), ..parts(8, false) });
    gate.set_flow(FLOW, &Contract::best_effort(), ms(0)).unwrap();
    let mut ids = Pending::new();
    submit(&mut gate, &mut ids, ms(0)).unwrap();
    let zeroing = ids.insert(());
    let mut request = Request::new(zeroing, FLOW, Op::WriteZeroes, 0, 4096, ms(0));
    request.administration = true;
    gate.submit(request, ms(0)).unwrap();
    assert!(matches!(gate.next(ms(0)), Dispatch::Ready(request) if request.id == zeroing));
    assert!(matches!(gate.next(ms(0)), Dispatch::Wait { .. }));
}
