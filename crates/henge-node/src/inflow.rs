//! Memory for payloads as their bytes come, whatever the protocol.
//!
//! A header is cheap to send, and its payload may never follow. So a payload has memory for [`EARLY`] bytes at first, and for all of it
//! once these have come. What is longer than a window comes piece by piece (`connection/long.rs` for NBD, the session itself for iSCSI), so
//! *all* is a window at most.
//!
//! Many payloads of a disk may have begun, each with its [`EARLY`] bytes, and nothing be left for the rest of any. Then one of them has it beyond
//! what the disk may hold, and after it the next.

use crate::job::Held;
use crate::plane::{Plane, Submitter};
use henge_vdisk::Frame;

/// Longest piece of a command. A power of two, so that pieces are aligned wherever the command begins.
pub(crate) const WINDOW: u32 = 1 << 20;
/// A payload has so much memory before anything of it has come.
pub(crate) const EARLY: usize = 64 << 10;

/// How many bytes of a payload can be put into its buffer, from byte `at` on; `frame` says how large that will be. `None` when memory is
/// missing: what has come is kept.
pub(crate) fn capacity(
    held: &mut Option<Held>,
    frame: Frame,
    at: usize,
    (disk, whose): (usize, Submitter),
    plane: &mut Plane,
) -> Option<usize> {
    let from = frame.lead as usize + at;
    match held {
        None => {
            let first = if from < EARLY { frame.len.min(EARLY as u64) } else { frame.len };
            let buffer = plane.take_buffer(disk, first)?;
            *held = Some(Held { frame: buffer, lead: frame.lead as usize });
        }
        Some(held) if from >= held.frame.len() && (held.frame.len() as u64) < frame.len => {
            let mut whole = plane.take_more(disk, frame.len, whose)?;
            whole[..held.frame.len()].copy_from_slice(&held.frame);
            plane.put_buffer(disk, std::mem::replace(&mut held.frame, whole));
        }
        Some(_) => {}
    }
    let there = held.as_ref().map_or(0, |held| held.frame.len());
    Some(there.saturating_sub(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;
    use henge_config::Source;
    use henge_core::{Instant, RequestId};

    const MIB: usize = 1 << 20;

    fn plane() -> Plane {
        plane_of(1)
    }

    fn plane_of(disks: usize) -> Plane {
        let pool = "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\n".to_owned();
        let disk = |n| format!("[[disk]]\nname = \"d{n}\"\ncapacity = \"1MiB\"\n");
        let text = (0..disks).map(disk).fold(pool, |text, disk| text + &disk);
        let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
        Plane::open(&config, 1, false, Instant::ZERO).unwrap_or_else(|e| panic!("{e:?}"))
    }

    /// The command of that number.
    fn whose(slot: u32) -> Submitter {
        let command = RequestId { slot, generation: 0 };
        Submitter { connection: RequestId::default(), command }
    }

    fn frame(len: usize, lead: usize) -> Frame {
        Frame { len: len as u64, lead: lead as u64, verify: None, zeroed: false }
    }

    /// Of a long payload of which little has come, little is held; what has come stays where it was put.
    #[test]
    fn a_payload_has_memory_as_it_comes() {
        let mut plane = plane();
        for (len, lead) in [(MIB, 0), (MIB, 512), (69_632, 512), (EARLY, 0), (4096, 100)] {
            let mut held = None;
            let (end, mut at, mut most) = (len - lead, 0, 0);
            while at < end {
                let capacity = capacity(&mut held, frame(len, lead), at, (0, whose(0)), &mut plane)
                    .expect("there is memory");
                assert!(capacity > 0, "it goes on");
                let n = capacity.min(end - at).min(7000);
                let buffer = held.as_mut().expect("it has room");
                for (i, byte) in buffer.frame[lead + at..lead + at + n].iter_mut().enumerate() {
                    *byte = (at + i) as u8;
                }
                at += n;
                most = most.max(plane.disks.of(0).held);
                assert!(
                    at + lead > EARLY || plane.disks.of(0).held <= EARLY,
                    "{at} bytes of {len} have come"
                );
            }
            let buffer = held.expect("it has come");
            assert_eq!((buffer.frame.len(), buffer.lead), (len, lead), "what the disk is to have");
            assert!((0..end).all(|i| buffer.data()[i] == i as u8));
            assert!(most <= len.next_power_of_two() + EARLY);
            plane.put_buffer(0, buffer.frame);
            assert_eq!(plane.memory.buffers.out(), 0);
        }
    }

    /// Ninety-six headers of writes hold their beginnings, and a payload that finds no memory for the rest keeps what has come.
    #[test]
    fn headers_alone_hold_little() {
        let mut plane = plane();
        let mut begun: Vec<Option<Held>> = (0..96).map(|_| None).collect();
        for held in &mut begun {
            capacity(held, frame(MIB, 0), 0, (0, whose(0)), &mut plane)
                .expect("there is memory for its beginning");
        }
        assert!(plane.memory.buffers.out() <= 96 * EARLY);
        let mut kept = Vec::new();
        while let Some(buffer) = plane.take_buffer(0, MIB as u64) {
            kept.push(buffer);
        }
        // None has memory for the rest: one of them has it all the same, and when that is done another one.
        for i in [0, 1] {
            let mut rest =
                |i: usize| capacity(&mut begun[i], frame(MIB, 0), EARLY, (0, whose(i as u32)), &mut plane);
            assert_eq!((rest(i), rest(2)), (Some(MIB - EARLY), None));
            assert_eq!(begun[2].as_ref().map(|held| held.frame.len()), Some(EARLY), "what has come is kept");
            let held = begun[i].take().expect("it has its memory");
            plane.put_buffer(0, held.frame);
            let buffer = plane.take_buffer(0, EARLY as u64).expect("what it had at first");
            begun[i] = Some(Held { frame: buffer, lead: 0 });
        }
        kept.into_iter().for_each(|buffer| plane.put_buffer(0, buffer));
        begun.into_iter().flatten().for_each(|held| plane.put_buffer(0, held.frame));
        assert_eq!(plane.memory.buffers.out(), 0);
    }

    /// All others hold what they may, and one command of each has memory beyond that. Who holds nothing has the minimum.
    #[test]
    fn what_is_lent_is_nobodys_minimum() {
        let mut plane = plane_of(16);
        let least = plane.memory.least();
        let mut kept = Vec::new();
        for disk in 0..15 {
            for len in [MIB as u64, 4096] {
                while let Some(buffer) = plane.take_buffer(disk, len) {
                    kept.push((disk, buffer));
                }
            }
        }
        for disk in 0..15 {
            let lent = plane.take_more(disk, 1 << 20, whose(7)).expect("one of each disk has it");
            kept.push((disk, lent));
        }
        for _ in 0..least / 4096 {
            let buffer = plane.take_buffer(15, 4096).expect("it is the disk's own");
            kept.push((15, buffer));
        }
        let (out, budget) = (plane.memory.buffers.out(), plane.memory.buffers.budget());
        assert!(out <= budget + 15 * MIB, "{out} of {budget}");
        kept.into_iter().for_each(|(disk, buffer)| plane.put_buffer(disk, buffer));
        assert_eq!(plane.memory.buffers.out(), 0);
    }
}
