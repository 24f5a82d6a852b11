//! Hard disks.

#[cfg(test)]
mod any;
mod arm;
mod buffer;
mod clock;
mod controller;
mod drive;
mod facts;
mod laps;
mod pass;
pub(crate) mod reader;
mod seek;
mod stream;
mod write;
mod zones;

pub use arm::{Arm, Motion, Position};
pub use clock::{Angle, Spindle};
pub use controller::{Command, Controller};
pub use drive::{DriveOrder, Hdd, HddOptions};
pub use facts::{
    Cache, DiskFacts, Mechanics, Overheads, Prefetch, Queue, ReadAhead, SCHEMA, Vectors, Watermarks,
    WriteCache,
};
pub use reader::FactsError;
pub use seek::SeekCurve;
pub use zones::{Geometry, LbnVector, PhysicalAddress, Zone};
