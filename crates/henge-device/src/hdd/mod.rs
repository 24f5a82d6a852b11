//! Hard disks.

mod arm;
mod clock;
mod drive;
mod facts;
mod reader;
mod seek;
mod zones;

pub use arm::{Arm, Motion, Position};
pub use clock::{Angle, Spindle};
pub use drive::{Hdd, HddOptions};
pub use facts::{Cache, DiskFacts, LbnVector, Mechanics, Overheads, Prefetch, Queue, SCHEMA, Vectors};
pub use reader::FactsError;
pub use seek::SeekCurve;
pub use zones::{Geometry, Place, Zone};
