//! How long whole tracks take, one after the other, without a step for each.
//!
//! **Problem.** A read of many tracks costs a step per track: a look-up, a head switch or a seek of one cylinder, a
//! wait. A request of a megabyte would cost ten times one of a sector.
//!
//! **Rule.** Which way the arm goes from a track to the next repeats: after as many tracks as lie in both whole
//! cylinders and whole sparing ranges, a *lap*. What a track adds, from its first block to the first block of the next,
//! depends on skews and on the way alone, not on the time. So the time from one whole track to another is a sum that
//! is worked out once per zone, plus laps in between. The angle of the track that is reached then says the exact
//! time: it is the one nearest to the sum.
//!
//! **Example.** Two surfaces, 10 ms a revolution, skews that make the head lose 1 ms between surfaces and 2 ms between
//! cylinders: tracks begin at 0, 11, 23, 34, 46 ms. A lap is two tracks, 23 ms. From track 1 to track 4: one lap (to
//! track 3), then the step from 3 to 4, that is 12 ms: 35 ms, as 46 - 11 says.
//!
//! **Guarantee.** The same times as step by step, to the rounding of a nanosecond, where it applies: within a zone, no
//! slipped sector on the way, no difference in density between surfaces.
//!
//! **Price.** A table of at most [`LONGEST`] tracks per zone, made with the drive.

use super::arm::{Arm, Motion, Position};
use super::pass::Pass;
use super::stream::{Drain, Stream};
use super::zones::PhysicalAddress;
use henge_core::{Duration, Instant};

/// The longest lap that a table is made for, in tracks.
const LONGEST: u64 = 512;

/// The laps of one zone.
#[derive(Clone, Debug)]
pub(super) struct Laps {
    /// The first track of the first lap: those before it hold no block.
    start: u64,
    /// When each track's first block goes by, from the lap's first track on; the last is the next lap's first.
    begins: Vec<Duration>,
    reading: Gaps,
    writing: Gaps,
}

/// The times from the end of a track to the first block of the next.
#[derive(Clone, Copy, Debug)]
struct Gaps {
    shortest: Duration,
    longest: Duration,
    /// By how much slower than they go by blocks must come or be taken so that those of each track make its gap good,
    /// in ns a block.
    gain: u64,
}

impl Laps {
    /// For zone number `zone` of the drive of `arm`; `None` where its tracks do not repeat.
    pub fn of(arm: &Arm, zone: usize) -> Option<Laps> {
        let (endless, tracks) = arm.geometry().endless(zone, LONGEST)?;
        let arm = arm.with_geometry(endless);
        let first_lbn = arm.geometry().zones()[0].blocks.0;
        let start = arm.geometry().locate(first_lbn).track;
        let (begins, reading) = lap(&arm, tracks, Motion::Read);
        let (_, writing) = lap(&arm, tracks, Motion::Write);
        Some(Laps { start, begins, reading, writing })
    }

    /// From the first block of track `from` to that of track `to`, a later one.
    fn between(&self, from: u64, to: u64) -> Duration {
        let tracks = self.begins.len() as u64 - 1;
        let (from, to) = (from - self.start, to - self.start);
        let (laps, from, to) = (to / tracks - from / tracks, from % tracks, to % tracks);
        let there = self.begins[tracks as usize] * laps + self.begins[to as usize];
        there.saturating_sub(self.begins[from as usize])
    }
}

/// The first lap of a drive of one zone.
fn lap(arm: &Arm, tracks: u64, motion: Motion) -> (Vec<Duration>, Gaps) {
    let plan = |from: Position, t, lbn| Pass::plan(arm, from, t, lbn, u64::from(u32::MAX), motion);
    let first_lbn = arm.geometry().zones()[0].blocks.0;
    let mut pass = plan(arm.geometry().locate(first_lbn).position(), Instant::ZERO, first_lbn);
    let (start, first_track) = (pass.first, pass.address.track);
    let mut begins = vec![Duration::ZERO];
    let mut gaps = Gaps { shortest: Duration::from_nanos(u64::MAX), longest: Duration::ZERO, gain: 0 };
    while pass.address.track < first_track + tracks {
        let next = plan(pass.address.position(), pass.end(), pass.end_lbn());
        let gap = next.first.since(pass.end());
        let gain = gap.as_nanos().div_ceil(u64::from(next.blocks.saturating_sub(2).max(1)));
        gaps = Gaps {
            shortest: gaps.shortest.min(gap),
            longest: gaps.longest.max(gap),
            gain: gaps.gain.max(gain),
        };
        // Tracks in between are all spare, and nobody asks for them.
        begins.resize((next.address.track - first_track) as usize + 1, next.first.since(start));
        pass = next;
    }
    (begins, gaps)
}

/// For a command under way that wants the blocks before `end`: leaves out, of the passes from the current one of
/// `stream` on, those that change nothing. The host has all blocks before the current pass by `stream.drain.from`;
/// returns when it has all before the new current pass. `before` is the track of the pass before.
pub(super) fn skip(arm: &Arm, stream: &mut Stream, end: u64, before: u64) -> Instant {
    let (pass, block) = (&stream.pass, stream.drain.block);
    let from = &pass.address;
    let worth_it = end > pass.end_lbn() + u64::from(from.per_track);
    if !worth_it || stream.size < 2 {
        return stream.drain.from;
    }
    let Some(laps) = arm.laps(from.zone) else { return stream.drain.from };
    let skipped = if block * u64::from(pass.blocks) <= pass.span() {
        skip_awaited(arm, laps, stream, end)
    } else if from.track == before {
        skip_full(arm, laps, stream, end)
    } else {
        None
    };
    if let Some((pass, drain)) = skipped {
        (stream.pass, stream.drain) = (pass, drain);
    }
    stream.drain.from
}

/// Where the host waits for blocks: it takes them at least as fast as they go by, so has each as soon as that is in and
/// gone over the bus. The segment never fills, and the last block alone says when the host has all: on to the last
/// but one of the tracks.
fn skip_awaited(arm: &Arm, laps: &Laps, stream: &Stream, end: u64) -> Option<(Pass, Drain)> {
    let (pass, drain) = (&stream.pass, stream.drain);
    let (geometry, from) = (arm.geometry(), &pass.address);
    let whole = from.before_on_track == 0 && pass.blocks == from.left_on_track;
    if !whole
        || geometry.begins_late(from.zone, pass.lbn)
        || drain.block > laps.reading.shortest
        || drain.from > pass.first
    {
        return None;
    }
    let last = geometry.locate(end - 1);
    if last.zone != from.zone || last.track <= from.track + 2 {
        return None;
    }
    let until = end - 1 - u64::from(last.before_on_track);
    if geometry.slips_around(from.zone, pass.lbn, until) {
        return None;
    }
    let address = geometry.locate(until - 1);
    let before = address.before_on_track;
    let address = PhysicalAddress {
        sector: address.sector - before,
        left_on_track: before + address.left_on_track,
        before_on_track: 0,
        ..address
    };
    // Half a revolution before it is due, its first block comes by next when it is due.
    let half = Duration::from_nanos(arm.spindle().revolution().as_nanos() / 2);
    let early = pass.first + laps.between(from.track, address.track).saturating_sub(half);
    let lbn = until - 1 - u64::from(before);
    let pass = Pass::over(arm, address, lbn, address.left_on_track, arm.arrives(early, &address));
    Some((pass, Drain { lbn: pass.lbn, ..drain }))
}

/// Where the arm waits for the host: it takes blocks slower than they go by, out of a segment that holds some revolutions
/// of what it takes. Once the segment has been full, each block is read when it comes by first after there is room
/// for it, but for the first ones of a track (see [`resume_at`]).
fn skip_full(arm: &Arm, laps: &Laps, stream: &Stream, end: u64) -> Option<(Pass, Drain)> {
    let (pass, drain) = (&stream.pass, stream.drain);
    if pass.passed(1) > drain.from || !laps.reading.fit(arm, drain.block, stream.size) {
        return None;
    }
    let (lbn, address) = resume_at(arm, &laps.reading, pass, drain.block, end)?;
    let first = arm.arrives(drain.space_at(lbn - 1, stream.size), &address);
    let taken = drain.from + drain.block * (lbn - drain.lbn);
    let drain = Drain { lbn, before: taken, from: taken, ..drain };
    let one = Pass::over(arm, address, lbn - 1, 1, first);
    let pass = Stream { pass: one, drain, ..*stream }.next_pass(arm, end)?;
    Some((pass, drain))
}

/// The same for a write that has laid down `pass` and waited for blocks on the way, and of which one more comes each
/// `block` into a segment of `size`: each is written when it comes by first after it has come. Returns the block to
/// go on with, when the one before it starts to go by and where; `came` says when a block has come.
pub(super) fn skip_waiting(
    arm: &Arm,
    pass: &Pass,
    block: Duration,
    size: u64,
    end: u64,
    came: impl Fn(u64) -> Instant,
) -> Option<Pass> {
    let gaps = arm.laps(pass.address.zone)?.writing;
    if end <= pass.end_lbn() + u64::from(pass.address.per_track) || !gaps.fit(arm, block, size) {
        return None;
    }
    let (lbn, address) = resume_at(arm, &gaps, pass, block, end)?;
    Some(Pass::over(arm, address, lbn - 1, 1, arm.arrives(came(lbn - 1), &address)))
}

impl Gaps {
    /// Whether a segment of `size` blocks, one each `block`, holds what comes or goes until the arm is there.
    fn fit(&self, arm: &Arm, block: Duration, size: u64) -> bool {
        block * size.saturating_sub(1) >= arm.spindle().revolution() * 3 + self.longest
    }
}

/// The block to go on with, and where the one before it lies, of a command for the blocks before `end` whose arm waits
/// for one block after the other, each `block` apart.
///
/// The first blocks of a track lag behind what is waited for, by the time it takes to get to the track. As they come
/// slower than they go by, that is made good within so many; from there on, and at the end of each track, a block
/// goes by first after it has come, whatever was before. So this is the last block, or the first of its track.
fn resume_at(
    arm: &Arm,
    gaps: &Gaps,
    pass: &Pass,
    block: Duration,
    end: u64,
) -> Option<(u64, PhysicalAddress)> {
    let (geometry, from) = (arm.geometry(), &pass.address);
    let gain = block.saturating_sub(arm.spindle().transfer(1, from.per_track)).as_nanos();
    if gain <= gaps.gain {
        return None;
    }
    let last = geometry.locate(end - 1);
    let before = u64::from(last.before_on_track);
    let made_good = before > gaps.longest.as_nanos() / gain + 2;
    let lbn = if made_good { end - 1 } else { end - 1 - before };
    if last.zone != from.zone || lbn <= pass.end_lbn() + 1 || geometry.slips_around(from.zone, pass.lbn, end)
    {
        return None;
    }
    Some((lbn, geometry.locate(lbn - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hdd::{Command, Controller, DiskFacts};
    use proptest::prelude::*;

    fn drive(model: &str) -> DiskFacts {
        DiskFacts::parse(crate::models::built_in(model).expect("a built-in model")).expect("sound")
    }

    proptest! {
        /// Every answer is the one of going from track to track, but for the rounding of its time.
        #[test]
        fn as_step_by_step(
            model in prop::sample::select(&["st32171w", "st34501n", "st39102lw", "atlas10k", "dtla-307075"][..]),
            bus_us in prop::option::of(1..150u64),
            write_back in prop::bool::ANY,
            segment in prop::option::of(prop_oneof![1..4u32, 1..2000u32]),
            commands in prop::collection::vec((0.0..1.0f64, 1..20_000u64, 0..20_000u64, prop::bool::ANY), 1..20),
        ) {
            let mut facts = drive(model);
            facts.bus_sector = bus_us.map_or(facts.bus_sector, Duration::from_micros);
            facts.cache.segment_sectors = segment.unwrap_or(facts.cache.segment_sectors);
            let capacity = facts.geometry.capacity();
            let (mut skips, mut steps) = (Controller::new(&facts), Controller::new(&facts).without_laps());
            let mut t = Instant::ZERO;
            for (at, blocks, think, write) in commands {
                let lbn = (at * (capacity - blocks) as f64) as u64;
                let command = Command { lbn, blocks, write, durable: !write_back };
                let (one, other) = (skips.execute(command, t), steps.execute(command, t));
                let off = one.since(other).max(other.since(one));
                prop_assert!(off <= Duration::from_nanos(50), "{model}, write {write}, {blocks} blocks from {lbn}: {one:?} for {other:?}");
                t = one + Duration::from_micros(think);
            }
        }
    }

    /// A segment of one block takes the next one when that is on the medium, a revolution later. Here 60 of them.
    #[test]
    fn a_segment_of_one_block() {
        let mut facts = drive("atlas10k");
        facts.cache.segment_sectors = 1;
        let mut controller = Controller::new(&facts);
        let (lbn, blocks, t) = (0, 60, Instant::ZERO);
        let command = Command { lbn, blocks, write: true, durable: true };
        let took = controller.execute(command, t).since(t);
        let revolution = Arm::new(&facts).spindle().revolution();
        assert!((revolution * (blocks - 1)..revolution * (blocks + 5)).contains(&took), "{took:?}");
    }

    /// The tracks of built-in drives do repeat, so that long reads on them are cheap.
    #[test]
    fn most_zones_have_laps() {
        for model in ["st32171w", "st34501n", "st39102lw", "atlas10k"] {
            let arm = Arm::new(&drive(model));
            let zones = arm.geometry().zones().len();
            let with = (0..zones).filter(|z| arm.laps(*z as u32).is_some()).count();
            assert_eq!(with, zones, "{model}");
        }
    }
}
