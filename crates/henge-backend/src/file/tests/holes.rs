//! Holes and zeroes of one file: one is at the engine, and those that wait for it say so.

use super::*;

const PUNCH: Kind = Kind::Allocate { mode: ways_to_zero(Op::Trim)[0] };
const ZERO: Kind = Kind::Allocate { mode: ways_to_zero(Op::WriteZeroes)[0] };

/// Four holes of one file, and one of another: two are at the engine. Three need no slot, and are made in their order.
#[test]
fn holes_of_a_file_are_made_one_after_the_other_and_who_waits_says_so() {
    let (engine, mut files) = told(4096);
    (0..4).for_each(|slot| ask(&mut files, slot, Op::Trim, false, 7));
    ask(&mut files, 4, Op::WriteZeroes, false, 8);
    assert_eq!(engine.under_way(), [PUNCH, ZERO], "one of each file");
    assert_eq!((over(&mut files), waiting(&mut files)), (vec![], vec![1, 2, 3]));
    // Whoever else comes waits for no hole.
    for (slot, op) in [(5, Op::Read), (6, Op::Write), (7, Op::Flush)] {
        ask(&mut files, slot, op, false, 7);
        engine.end_last(0);
        assert_eq!(over(&mut files), [(slot, true)]);
    }
    engine.end_last(0);
    assert_eq!(over(&mut files), [(4, true)]);
    for slot in 0..4 {
        assert_eq!(engine.under_way(), [PUNCH]);
        engine.end(if slot == 1 { -libc::EIO } else { 0 });
        assert_eq!(over(&mut files), [(slot, slot != 1)], "in their order, also after one that fails");
    }
    assert_eq!((engine.under_way(), waiting(&mut files), files.crowd.workers), (vec![], vec![7], 0));
    ask(&mut files, 8, Op::Trim, false, 7);
    assert_eq!((engine.under_way(), waiting(&mut files)), (vec![PUNCH], vec![]), "nobody is in its way");
}

/// One that has to be made again, or otherwise, goes on with its turn. Once it is written as zeroes, the next begins.
#[test]
fn a_hole_that_is_tried_again_keeps_its_turn() {
    let (engine, mut files) = told(4096);
    (0..2).for_each(|slot| ask(&mut files, slot, Op::Trim, false, 7));
    assert_eq!(engine.end(-libc::EINTR), PUNCH);
    assert_eq!((over(&mut files), engine.under_way()), (vec![], vec![PUNCH]));
    assert_eq!(engine.end(-libc::EOPNOTSUPP), PUNCH);
    assert_eq!((over(&mut files), engine.under_way()), (vec![], vec![ZERO]));
    assert_eq!(engine.end(-libc::EOPNOTSUPP), ZERO);
    assert_eq!((over(&mut files), engine.under_way()), (vec![], vec![Kind::Write { durable: false }, PUNCH]));
    engine.end_last(0);
    engine.end_last(0);
    assert_eq!(over(&mut files), [(1, true), (0, true)]);
}

/// It says once that it has no slot. Its sync begins when it has been made, and not before.
#[test]
fn a_durable_hole_waits_for_its_turn_and_then_for_its_sync() {
    let (engine, mut files) = told(4096);
    ask(&mut files, 0, Op::Trim, false, 7);
    ask(&mut files, 1, Op::Trim, true, 7);
    ask(&mut files, 2, Op::Flush, false, 7);
    assert_eq!((engine.under_way(), waiting(&mut files)), (vec![PUNCH, Kind::Sync], vec![1, 2]));
    engine.end_last(0);
    assert_eq!(over(&mut files), [(2, true)], "it is for what was answered before");
    engine.end(0);
    assert_eq!((over(&mut files), engine.under_way()), (vec![(0, true)], vec![PUNCH]));
    engine.end(0);
    assert_eq!((over(&mut files), engine.under_way()), (vec![], vec![Kind::Sync]));
    engine.end(0);
    assert_eq!((over(&mut files), waiting(&mut files)), (vec![(1, true)], vec![]));
}

/// More files with holes than workers: each has one at the engine in its turn, however many of another wait.
#[test]
fn files_have_their_holes_in_turns() {
    let (engine, mut files) = told(4096);
    (0..40).for_each(|slot| ask(&mut files, slot, Op::Trim, false, 7));
    (1..=2 * WORKERS).for_each(|n| ask(&mut files, 40 + n, Op::Trim, false, 7 + n as RawFd));
    let mut order = Vec::new();
    while !engine.under_way().is_empty() {
        assert!(engine.under_way().len() <= WORKERS as usize);
        engine.end(0);
        order.extend(over(&mut files).iter().map(|(slot, _)| *slot));
    }
    assert_eq!(order.len(), 40 + 2 * WORKERS as usize);
    assert_eq!(order[0], 0);
    assert_eq!(order.iter().position(|slot| *slot == 1), Some(2 * WORKERS as usize + 1), "after all others");
    // Of a descriptor that is closed nothing is left.
    (7..8 + 2 * WORKERS).for_each(|fd| files.forget(fd as RawFd));
    assert!(files.holes.is_empty());
}
