//! The mechanism: one arm with all heads on it, over platters that turn.
//!
//! Getting to a block takes the seek or the head switch, whichever is longer, then (for writes) the settle time,
//! then the wait until the block comes around. A transfer over several tracks pays, between two tracks, head
//! switch or one-cylinder seek and the wait that the skew is made to fit. Blocks of one track pass in one go, so
//! the cost of an access is per track, not per sector.

use super::clock::Spindle;
use super::facts::DiskFacts;
use super::laps::Laps;
use super::seek::SeekCurve;
use super::zones::{Geometry, PhysicalAddress};
use henge_core::{Duration, Instant};

/// Whether blocks are read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Motion {
    /// To read.
    Read,
    /// To write: settles first.
    Write,
}

/// Over which track the heads are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// The arm's cylinder.
    pub cylinder: u32,
    /// The head in use.
    pub head: u32,
}

/// What a block's sector may be late by and still be caught: rounding of times, not physics.
pub(super) const SLACK: Duration = Duration::from_nanos(50);

/// The part of a drive that moves.
#[derive(Clone, Debug)]
pub struct Arm {
    geometry: Geometry,
    seek: SeekCurve,
    spindle: Spindle,
    head_switch: Duration,
    write_settle: Duration,
    write_saves: Duration,
    write_seek_extra: Duration,
    /// By zone.
    laps: Vec<Option<Laps>>,
}

impl Arm {
    /// The mechanism of a drive.
    pub fn new(facts: &DiskFacts) -> Self {
        let m = &facts.mechanics;
        let mut arm = Arm {
            geometry: facts.geometry.clone(),
            seek: SeekCurve::new(&m.seek, facts.geometry.cylinders()),
            spindle: Spindle::new(m.rpm),
            head_switch: m.head_switch,
            write_settle: m.write_settle,
            write_saves: m.write_saves,
            write_seek_extra: m.write_seek_extra,
            laps: Vec::new(),
        };
        arm.laps = (0..arm.geometry.zones().len()).map(|zone| Laps::of(&arm, zone)).collect();
        arm
    }
    /// The same mechanism over other platters.
    pub(super) fn with_geometry(&self, geometry: Geometry) -> Arm {
        Arm { geometry, seek: self.seek.clone(), laps: Vec::new(), ..*self }
    }
    /// How the tracks of a zone follow each other.
    pub(super) fn laps(&self, zone: u32) -> Option<&Laps> {
        self.laps.get(zone as usize)?.as_ref()
    }
    /// Where blocks lie.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    /// How it turns.
    pub fn spindle(&self) -> &Spindle {
        &self.spindle
    }
    /// How it moves.
    pub fn seek_curve(&self) -> &SeekCurve {
        &self.seek
    }

    /// From `from` over the track of `to`: the longer of seek and head switch, and the settling of a write.
    pub fn move_time(&self, from: Position, to: Position, motion: Motion) -> Duration {
        let distance = from.cylinder.abs_diff(to.cylinder);
        let switch = if from.head == to.head { Duration::ZERO } else { self.head_switch };
        let mut time = self.seek.time(distance).max(switch);
        if motion == Motion::Write {
            // A head that stayed on its track has nothing to settle.
            if time > Duration::ZERO {
                time = (time + self.write_settle).saturating_sub(self.write_saves);
            }
            if distance > 0 {
                time += self.write_seek_extra;
            }
        }
        time
    }

    /// When the block at `address` starts to pass under its head, for an arm that is on track at `t`.
    pub fn arrives(&self, t: Instant, address: &PhysicalAddress) -> Instant {
        t + self.spindle.wait(t, address.angle(), SLACK)
    }

    /// How long `blocks` from `lbn` on take to pass, all on the track of `address`.
    pub fn passing(&self, address: &PhysicalAddress, lbn: u64, blocks: u32) -> Duration {
        let sectors = self.geometry.sectors_passing(address, lbn, blocks);
        self.spindle.transfer(u64::from(sectors), address.per_track)
    }
}

impl PhysicalAddress {
    /// The track, as a position of the arm.
    pub fn position(&self) -> Position {
        Position { cylinder: self.cylinder, head: self.head }
    }
}
