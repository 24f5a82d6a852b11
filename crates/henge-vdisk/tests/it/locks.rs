//! Range locks: exclusion, order, no deadlock.

use henge_core::RequestId;
use henge_vdisk::{LockId, RangeLocks};
use proptest::prelude::*;

fn owner(n: u32) -> RequestId {
    RequestId { slot: n, generation: 0 }
}

/// The example of the file's head.
#[test]
fn later_ones_wait_for_earlier_ones_even_if_those_wait() {
    let mut locks = RangeLocks::new();
    let (a, held) = locks.acquire(0..8, false, owner(0));
    assert!(held);
    let (b, held) = locks.acquire(4..12, true, owner(1));
    assert!(!held);
    let (_, held) = locks.acquire(10..20, false, owner(2));
    assert!(!held, "C conflicts with B, which waits");
    let (_, held) = locks.acquire(30..40, false, owner(3));
    assert!(held);
    let mut woken = vec![];
    locks.release(a, &mut woken);
    assert_eq!(woken, [owner(1)]);
    locks.release(b, &mut woken);
    assert_eq!(woken, [owner(1), owner(2)]);
}

/// One that gives up while it waits does not hold up those behind it.
#[test]
fn giving_up_wakes_those_behind() {
    let mut locks = RangeLocks::new();
    let (_, _) = locks.acquire(0..8, false, owner(0));
    let (b, _) = locks.acquire(0..8, true, owner(1));
    let (_, held) = locks.acquire(0..8, false, owner(2));
    assert!(!held);
    let mut woken = vec![];
    locks.release(b, &mut woken);
    assert_eq!(woken, [owner(2)]);
}

struct Claim {
    lock: LockId,
    range: std::ops::Range<u64>,
    exclusive: bool,
    held: bool,
    released: bool,
}

proptest! {
    /// Random acquisitions and releases, also of waiting locks: whoever is held conflicts with no other that is;
    /// exactly those are held that no earlier conflicting one precedes; in the end everybody was held.
    #[test]
    fn exclusion_order_and_progress(steps in proptest::collection::vec((0u64..20, 1u64..8, any::<bool>(), 0usize..8, 0u8..10), 1..120)) {
        let mut locks = RangeLocks::new();
        let mut asked: Vec<Claim> = vec![];
        let release = |locks: &mut RangeLocks, asked: &mut Vec<Claim>, i: usize| {
            let mut woken = vec![];
            locks.release(asked[i].lock, &mut woken);
            asked[i].released = true;
            assert!(woken.is_sorted(), "woken in the order they came");
            for w in woken {
                assert!(!asked[w.index()].held && !asked[w.index()].released);
                asked[w.index()].held = true;
            }
        };
        let conflict = |a: &Claim, b: &Claim| (a.exclusive || b.exclusive)
            && a.range.start < b.range.end && b.range.start < a.range.end;
        for (start, len, exclusive, pick, what) in steps {
            let range = start..start + len;
            let (lock, held) = locks.acquire(range.clone(), exclusive, owner(asked.len() as u32));
            asked.push(Claim { lock, range, exclusive, held, released: false });
            if what < 7 {
                let alive: Vec<_> = (0..asked.len()).filter(|&i| !asked[i].released && (asked[i].held || what == 0)).collect();
                if let Some(&i) = alive.get(pick % alive.len().max(1)) {
                    release(&mut locks, &mut asked, i);
                }
            }
            let alive: Vec<_> = asked.iter().filter(|a| !a.released).collect();
            for (i, a) in alive.iter().enumerate() {
                prop_assert_eq!(a.held, !alive[..i].iter().any(|b| conflict(a, b)));
            }
        }
        // No deadlock: releasing whoever is held ends with nobody waiting.
        while let Some(i) = asked.iter().position(|a| a.held && !a.released) {
            release(&mut locks, &mut asked, i);
        }
        prop_assert!(asked.iter().all(|a| a.released));
        prop_assert!(locks.is_empty());
    }
}
