//! Arrays over devices of known speed: the small-write penalty, mirrors, and writes that share a row.

use henge_core::{Backend, Duration, FlowId, Instant, Model, Op, Pending, Request, RequestId};
use henge_device::{Constant, ConstantConfig, Raid1, Raid5, Sharing};

/// A device on which every request takes a millisecond.
fn member() -> Model {
    let time = Duration::from_millis(1);
    Box::new(Constant::new(ConstantConfig {
        rate: None,
        time,
        sharing: Sharing::Serial,
        growth: None,
        capacity: 1 << 30,
    }))
}

/// All at once; when each is over, in ms.
fn all_at_once(device: &mut dyn Backend<Payload = ()>, requests: &[(Op, u64, u64)]) -> Vec<f64> {
    let mut pending: Pending<usize> = Pending::new();
    let ids: Vec<RequestId> = (0..requests.len()).map(|i| pending.insert(i)).collect();
    for ((op, offset, len), id) in requests.iter().zip(&ids) {
        device.submit(&Request::new(*id, FlowId(0), *op, *offset, *len, Instant::ZERO), (), Instant::ZERO);
    }
    let mut over = vec![0.0; requests.len()];
    let mut now = Instant::ZERO;
    loop {
        while let Some(done) = device.reap(now) {
            assert_eq!(done.outcome, Ok(()));
            over[pending.remove(done.id).expect("each is finished once")] = now.as_secs_f64() * 1e3;
        }
        let Some(next) = device.wake_at() else { break };
        assert!(next > now, "time goes on");
        now = next;
    }
    assert!(pending.is_empty(), "each request is finished");
    over
}

#[test]
fn a_small_write_costs_a_read_and_a_write() {
    let mut array = Raid5::new((0..4).map(|_| member()).collect(), 65536);
    assert_eq!(all_at_once(&mut array, &[(Op::Read, 0, 4096)]), [1.0]);
    let mut array = Raid5::new((0..4).map(|_| member()).collect(), 65536);
    assert_eq!(all_at_once(&mut array, &[(Op::Write, 0, 4096)]), [2.0]);
    let mut array = Raid5::new((0..4).map(|_| member()).collect(), 65536);
    assert_eq!(all_at_once(&mut array, &[(Op::Write, 0, 3 * 65536)]), [1.0]);
}

#[test]
fn writes_to_one_row_follow_one_another() {
    // Different data members, but one parity: without the lock both would be over after 4 ms at the latest
    // with the wrong parity; with it the second starts when the first is over.
    let mut array = Raid5::new((0..4).map(|_| member()).collect(), 65536);
    let over = all_at_once(&mut array, &[(Op::Write, 0, 4096), (Op::Write, 65536, 4096)]);
    assert_eq!(over, [2.0, 4.0]);
    // Rows apart do not wait: row 0 uses members 3 and 0, row 2 members 1 and 2.
    let mut array = Raid5::new((0..4).map(|_| member()).collect(), 65536);
    let over = all_at_once(&mut array, &[(Op::Write, 0, 4096), (Op::Write, 2 * 3 * 65536, 4096)]);
    assert_eq!(over, [2.0, 2.0]);
}

#[test]
fn mirrors_share_reads_and_double_writes() {
    let mut array = Raid1::new((0..2).map(|_| member()).collect());
    let over = all_at_once(&mut array, &[(Op::Read, 0, 512), (Op::Read, 0, 512), (Op::Write, 0, 512)]);
    assert_eq!(over, [1.0, 1.0, 2.0]);
}
