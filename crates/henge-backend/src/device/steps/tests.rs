//! Steps that fail, one after the other, and are done again.

use super::*;
use crate::device::format;
use crate::{Buffer, Growth, Options};
use henge_core::{Backend, FlowId, Instant, Op, Request, RequestId};
use std::os::unix::fs::FileExt;
use std::path::Path;

const PART: u64 = 3 << 20;
const MIB: u64 = 1 << 20;

fn again(dir: &Path) -> Device {
    let options = Options { direct: false, patience: std::time::Duration::ZERO, ..Options::default() };
    Device::open(&dir.join("device"), "p", 0, options).unwrap()
}

/// On a device full of somebody's bytes.
fn device(dir: &Path) -> Device {
    std::fs::write(dir.join("device"), vec![0xdd; 16 << 20]).unwrap();
    format::format(&dir.join("device"), "p", true).unwrap();
    again(dir)
}

fn zero(device: &mut Device, from: u64, len: u64) {
    let request = Request::new(RequestId::default(), FlowId(0), Op::WriteZeroes, from, len, Instant::ZERO);
    device.submit(&request, Buffer::empty(), Instant::ZERO);
    loop {
        if let Some(done) = device.reap(Instant::ZERO) {
            return assert_eq!(done.outcome, Ok(()));
        }
        std::thread::yield_now();
    }
}

/// Carries out the steps, of which that number fails before anything of it is done; how it ended, and how many there were.
fn carry_out(
    device: &mut Device,
    name: &str,
    begun: io::Result<Step>,
    fails: usize,
) -> (io::Result<u64>, usize) {
    let (mut step, mut count) = (begun, 0);
    loop {
        let outcome = match step {
            Err(e) => return (Err(e), count),
            Ok(Step::There(base)) => return (Ok(base), count),
            _ if count == fails => Err(io::Error::other("it fails")),
            Ok(Step::Run(chore)) => std::thread::spawn(chore).join().unwrap(),
            Ok(Step::Zero { from, len }) => {
                zero(device, from, len);
                Ok(None)
            }
        };
        count += 1;
        step = device.go_on(name, outcome);
    }
}

fn bytes(device: &Device, base: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    device.file.read_exact_at(&mut bytes, device.data + base).unwrap();
    bytes
}

/// Whichever step of making, growing or removing fails: what was there is as it was, the next attempt succeeds, also after the node
/// began again, and nobody reads what was there before.
#[test]
fn every_step_can_fail_and_be_done_again() {
    for fails in 0..3 {
        for restart in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let mut d = device(dir.path());
            let base = d.open_part("a", PART).unwrap();
            d.file.write_all_at(&[7; PART as usize], d.data + base).unwrap();

            let begun = d.begin_part("b", PART);
            let (made, steps) = carry_out(&mut d, "b", begun, fails);
            assert!(made.is_err() && !d.has_part("b") && steps > fails, "step {fails} of {steps}");
            assert!(d.space.find("b").is_none());
            if restart {
                drop(d);
                d = again(dir.path());
                d.open_part("a", PART).unwrap();
            }
            let begun = d.begin_part("b", PART);
            let (made, steps) = carry_out(&mut d, "b", begun, usize::MAX);
            assert_eq!(steps, 3, "record, zero, sync");
            let b = made.unwrap();
            assert!(!d.has_part("b"), "it is nobody's yet");
            for fails in [0, usize::MAX] {
                let begun = d.begin_claim("b");
                assert_eq!(carry_out(&mut d, "b", begun, fails).0.is_ok(), fails > 0);
                assert_eq!(d.has_part("b"), fails > 0);
            }
            assert!(bytes(&d, b, PART).iter().all(|byte| *byte == 0));

            // It grows over what somebody removed; two steps.
            let begun = d.begin_part("c", PART);
            let c = carry_out(&mut d, "c", begun, usize::MAX).0.unwrap();
            let begun = d.begin_claim("c");
            carry_out(&mut d, "c", begun, usize::MAX).0.unwrap();
            d.file.write_all_at(&[9; PART as usize], d.data + c).unwrap();
            let begun = d.begin_removal("c");
            assert_eq!(carry_out(&mut d, "c", begun, usize::MAX).1, 1);
            let begun = d.begin_part("b", 2 * PART);
            let (grown, _) = carry_out(&mut d, "b", begun, fails.min(1));
            assert!(grown.is_err() && d.space.find("b").unwrap().len == PART);
            let begun = d.begin_part("b", 2 * PART);
            assert_eq!(carry_out(&mut d, "b", begun, usize::MAX).0.unwrap(), b);
            assert!(bytes(&d, b, 2 * PART).iter().all(|byte| *byte == 0));

            let begun = d.begin_removal("b");
            assert!(carry_out(&mut d, "b", begun, 0).0.is_err() && d.has_part("b"));
            let begun = d.begin_removal("b");
            carry_out(&mut d, "b", begun, usize::MAX).0.unwrap();
            drop(d);
            let mut d = again(dir.path());
            assert!(!d.has_part("b") && !d.has_part("c"));
            assert_eq!(d.open_part("a", PART).unwrap(), base);
            assert!(bytes(&d, base, PART).iter().all(|byte| *byte == 7), "nobody touched it");
        }
    }
}

/// What the steps have made is what `open_part` would have: found at once, now and after the node began again; and a part that is
/// there is no work.
#[test]
fn what_was_made_by_steps_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let mut d = device(dir.path());
    let begun = d.begin_part("a", PART);
    let base = carry_out(&mut d, "a", begun, usize::MAX).0.unwrap();
    assert_eq!(d.open_part("a", PART).unwrap(), base);
    assert!(matches!(d.begin_part("a", PART), Ok(Step::There(at)) if at == base));
    assert!(d.go_on("a", Ok(None)).is_err(), "nothing is under way");
    drop(d);
    assert_eq!(again(dir.path()).open_part("a", PART).unwrap(), base);
}

/// A part that was made and that nobody has claimed goes when the node begins again, with its space, and nobody has to say so; a part that
/// was claimed stays, whatever becomes of its disk.
#[test]
fn what_nobody_has_claimed_goes_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut d = device(dir.path());
    for (name, claimed) in [("a", true), ("b", false), ("c", false)] {
        let begun = d.begin_part(name, PART);
        let base = carry_out(&mut d, name, begun, usize::MAX).0.unwrap();
        assert!(matches!(d.begin_part(name, PART), Ok(Step::There(at)) if at == base), "it is found");
        assert!(d.begin_part(name, 2 * PART).is_err(), "whoever wants another one waits");
        if claimed {
            let begun = d.begin_claim(name);
            carry_out(&mut d, name, begun, usize::MAX).0.unwrap();
            d.file.write_all_at(&[7; 100], d.data + base).unwrap();
        }
    }
    // Whoever was refused in the end takes it back at once.
    let begun = d.begin_removal("c");
    carry_out(&mut d, "c", begun, usize::MAX).0.unwrap();
    assert!(d.space.find("c").is_none() && d.space.find("b").is_some());
    drop(d);
    let mut d = again(dir.path());
    assert!(d.has_part("a") && !d.has_part("b"));
    assert_eq!(d.space.extents().len(), 1, "its space can be had again");
    assert_eq!(d.settle(&|_| false).unwrap(), ["a"], "no disk has it, and what is written there is kept");
    assert!(d.adopt_part("b").is_ok() && !d.has_part("b"), "nothing is kept of what nobody claimed");
    let base = d.open_part("b", 2 * PART).unwrap();
    assert!(bytes(&d, base, 2 * PART).iter().all(|byte| *byte == 0));
}

/// Making fails, and so does taking it back. The record keeps its space, without a name: the next part of that name is whole, and whoever removes it
/// gives its own space back.
#[test]
fn a_place_that_could_not_be_given_back_is_nobodys() {
    let dir = tempfile::tempdir().unwrap();
    let mut d = device(dir.path());
    let begun = d.begin_part("a", PART);
    let Ok(Step::Run(chore)) = begun else { panic!("a record is to be written") };
    assert!(matches!(d.go_on("a", chore()), Ok(Step::Zero { .. })));
    assert!(matches!(d.go_on("a", Err(io::Error::other("zeroing fails"))), Ok(Step::Run(_))));
    let why = d.go_on("a", Err(io::Error::other("so does this"))).err().unwrap().to_string();
    assert!(why.contains("zeroing fails"), "{why}");
    let taken = |d: &Device| d.space.extents().iter().map(|e| e.len).sum::<u64>();
    assert_eq!((taken(&d), d.has_part("a")), (PART, false), "its room is counted");

    let begun = d.begin_part("a", PART);
    let base = carry_out(&mut d, "a", begun, usize::MAX).0.unwrap();
    let begun = d.begin_claim("a");
    carry_out(&mut d, "a", begun, usize::MAX).0.unwrap();
    assert_eq!(d.space.find("a").map(|e| e.base), Some(base));
    let begun = d.begin_removal("a");
    carry_out(&mut d, "a", begun, usize::MAX).0.unwrap();
    assert!(d.space.locate(base, PART).is_none(), "it is its own place that goes");
    let other = d.open_part("b", PART).unwrap();
    assert_eq!((other, taken(&d)), (base, 2 * PART));
    drop(d);
    let mut d = again(dir.path());
    assert_eq!(taken(&d), PART, "it goes when the node begins again");
    assert_eq!(d.open_part("b", PART).unwrap(), base);
}

/// Room was made that nobody was told of, then more, or the disk got less of it. It may begin again with what it had, or with what it got, and
/// what stands in its room stays.
#[test]
fn room_that_nobody_was_told_of_is_in_nobodys_way() {
    let growth = |has, len, is_told| Growth { has: has * PART, len: len * PART, is_told };
    for (rooms, told, starts) in [
        (&[2, 3][..], None, &[(1, true), (2, false), (3, true)][..]),
        (&[3, 2], None, &[(1, true), (2, false)]),
        (&[3], Some(2), &[(1, true), (2, true), (3, true)]),
        (&[2], Some(2), &[(1, true), (2, true)]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut d = device(dir.path());
        let base = d.open_part("a", PART).unwrap();
        for room in rooms {
            let begun = d.begin_growth("a", growth(1, *room, false));
            assert_eq!(carry_out(&mut d, "a", begun, usize::MAX).0.unwrap(), base);
        }
        // Another node has told its clients.
        let longest = d.space.find("a").unwrap().len;
        assert_eq!(longest, *rooms.iter().max().unwrap() * PART);
        let more = longest - PART;
        d.file.write_all_at(&vec![7; more as usize], d.data + base + PART).unwrap();
        if let Some(told) = told {
            for fails in [0, usize::MAX] {
                let begun = d.begin_growth("a", growth(1, told, true));
                let (outcome, steps) = carry_out(&mut d, "a", begun, fails);
                assert!(outcome.is_ok() == (fails > 0 || steps == 0));
            }
            assert_eq!(d.open_part("a", told * PART).unwrap(), base);
        }
        assert_eq!(d.space.find("a").unwrap().len, longest);
        drop(d);
        for (len, served) in starts {
            let mut d = again(dir.path());
            assert_eq!(d.open_part("a", len * PART).is_ok(), *served, "{rooms:?} {told:?}: {len}");
            assert!(bytes(&d, base + PART, more).iter().all(|byte| *byte == 7));
        }
        // It grows over its room, and beyond.
        let mut d = again(dir.path());
        d.open_part("a", PART).unwrap();
        for (len, steps) in [(3, usize::from(longest < 3 * PART)), (4, 1)] {
            let begun = d.begin_growth("a", growth(1, len, true));
            let (grown, took) = carry_out(&mut d, "a", begun, usize::MAX);
            assert_eq!(
                (grown.unwrap(), took),
                (base, 2 * steps),
                "zero and record: {rooms:?} {told:?}, {len}"
            );
        }
        assert!(bytes(&d, base + PART, more).iter().all(|byte| *byte == 7));
        assert!(bytes(&d, base + longest, 4 * PART - longest).iter().all(|byte| *byte == 0));
        drop(d);
        again(dir.path()).open_part("a", 4 * PART).unwrap();
    }
}

/// Room was made that nobody was told of, and the disk is made anew with less. What is beyond is given back by a step: at once, its syncs would stop everybody.
#[test]
fn room_that_nobody_was_told_of_is_given_back_in_a_step() {
    let dir = tempfile::tempdir().unwrap();
    let mut d = device(dir.path());
    let base = d.open_part("a", PART).unwrap();
    let room = |d: &mut Device| {
        let begun = d.begin_growth("a", Growth { has: PART, len: 3 * PART, is_told: false });
        assert_eq!(carry_out(d, "a", begun, usize::MAX).0.unwrap(), base);
    };
    room(&mut d);
    for fails in [0, 1] {
        room(&mut d);
        let begun = d.begin_part("a", 2 * PART);
        assert!(matches!(begun, Ok(Step::Run(_))));
        let (made, steps) = carry_out(&mut d, "a", begun, fails);
        assert_eq!((made.is_err(), steps), (fails == 0, 1));
        assert_eq!(d.space.find("a").unwrap().len, if fails == 0 { 3 } else { 2 } * PART);
    }
    assert!(matches!(d.begin_part("a", 2 * PART), Ok(Step::There(at)) if at == base));
    assert_eq!(d.open_part("b", PART).unwrap(), base + 2 * PART, "it is another's");
    drop(d);
    for len in [PART, 2 * PART] {
        assert_eq!(again(dir.path()).open_part("a", len).unwrap(), base);
    }
}

/// A tenant's FLUSH is told that something was lost, and no later sync is: it may have been zeroes. Nobody gets a part then under which somebody
/// else's bytes may stand.
#[test]
fn zeroes_that_a_failed_sync_may_have_lost_make_no_part() {
    let dir = tempfile::tempdir().unwrap();
    let mut d = device(dir.path());
    d.open_part("a", PART).unwrap();
    let lose = |d: &mut Device| {
        let eio = crate::open::synced(Err(io::Error::from_raw_os_error(libc::EIO)));
        assert!(d.files.heed(d.file.as_raw_fd(), eio).is_err());
    };
    let Ok(Step::Run(record)) = d.begin_part("b", PART) else { panic!("a record is to be written") };
    assert!(matches!(d.go_on("b", record()), Ok(Step::Zero { .. })));
    let Ok(Step::Run(sync)) = d.go_on("b", Ok(None)) else { panic!("zeroes are to be synced") };
    lose(&mut d);
    let begun = d.go_on("b", sync());
    let why = carry_out(&mut d, "b", begun, usize::MAX).0.unwrap_err().to_string();
    assert!(why.contains("a sync failed") && !d.is_new("b") && d.space.find("b").is_none(), "{why}");
    let begun = d.begin_part("a", 2 * PART);
    assert!(carry_out(&mut d, "a", begun, usize::MAX).0.is_err(), "nor does one grow");
    assert_eq!(d.space.find("a").unwrap().len, PART);
    let begun = d.begin_removal("a");
    assert!(carry_out(&mut d, "a", begun, usize::MAX).0.is_ok(), "what asks for no zeroes is done");
}

/// What a former disk left is adopted by a longer one: its record, and the zeroes behind it, are steps. At once, either would stop everybody.
#[test]
fn what_was_kept_is_adopted_and_lengthened_in_steps() {
    let dir = tempfile::tempdir().unwrap();
    let mut d = device(dir.path());
    let base = d.open_part("a", PART).unwrap();
    d.file.write_all_at(&[7; PART as usize], d.data + base).unwrap();
    drop(d);
    let mut d = again(dir.path());
    assert_eq!(d.settle(&|_| false).unwrap(), ["a"]);
    for fails in [0, 1] {
        assert!(!d.has_part("a"));
        let begun = d.begin_adoption("a");
        assert!(matches!(begun, Ok(Step::Run(_))));
        let (adopted, steps) = carry_out(&mut d, "a", begun, fails);
        assert_eq!((adopted.is_err(), steps), (fails == 0, 1));
    }
    let begun = d.begin_part("a", 2 * PART);
    assert!(matches!(begun, Ok(Step::Zero { len: PART, .. })));
    let (made, _) = carry_out(&mut d, "a", begun, usize::MAX);
    assert_eq!(made.unwrap(), base);
    drop(d);
    let mut d = again(dir.path());
    assert_eq!(d.open_part("a", 2 * PART).unwrap(), base);
    assert!(bytes(&d, base, PART).iter().all(|byte| *byte == 7));
    assert!(bytes(&d, base + PART, PART).iter().all(|byte| *byte == 0));
}

/// What nobody opened of one disk is put aside, a record at a time, and said. What others have, or could not open, stays.
#[test]
fn what_nobody_opened_is_kept_in_steps_that_may_fail() {
    for fails in [0, 1, usize::MAX] {
        let dir = tempfile::tempdir().unwrap();
        let mut d = device(dir.path());
        for name in ["a.part0", "a.part1", "a.part2", "b.part0"] {
            d.open_part(name, MIB).unwrap();
        }
        drop(d);
        let mut d = again(dir.path());
        d.open_part("a.part1", MIB).unwrap();
        let begun = d.begin_keeping("a");
        assert!(matches!(begun, Ok(Step::Run(_))));
        assert_eq!(carry_out(&mut d, "a", begun, fails).0.is_ok(), fails > 1);
        let begun = d.begin_keeping("a");
        carry_out(&mut d, "a", begun, usize::MAX).0.unwrap();
        let said: Vec<String> = std::iter::from_fn(|| d.notice()).collect();
        assert_eq!(said, ["a.part0", "a.part2"].map(put_aside));
        let has = ["a.part0", "a.part1", "a.part2", "b.part0"].map(|name| d.has_part(name));
        assert_eq!(has, [false, true, false, true]);
        drop(d);
        let mut d = again(dir.path());
        assert!(d.open_part("a.part0", MIB).unwrap_err().to_string().contains("adopt = true"));
    }
}
