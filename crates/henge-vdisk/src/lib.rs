//! A virtual disk: where its bytes are, and what becomes of a command.
//!
//! ```text
//! command ─▶ VirtualDisk ─▶ parts, one request each, for the gates of the disk's places
//! answer  ◀─ (join)      ◀─ part_done
//! ```
//!
//! [`Layout`] is the map from the disk's bytes to (gate, offset): places striped by the RAID-0 formula, and the
//! same formula once more where a place lies on an array whose spindles have a gate each. [`VirtualDisk`] cuts
//! commands along it, joins the parts, holds back what a read-modify-write must not meet, and sends a FLUSH
//! everywhere. No clock, no data, no allocation per command once warm: buffers belong to the driver, which is
//! told what goes where ([`Frame`], [`Data`]).

#![forbid(unsafe_code)]

mod command;
mod disk;
mod layout;
mod locks;
mod plan;
mod settings;

pub use command::{Command, Data, Failure, Finished, Frame, Kind, Part, PartId, Patch};
pub use disk::{Full, Gates, ResizeError, VirtualDisk};
pub use layout::{Array, Extent, GateId, Layout, LayoutError, Place, Spot, Target, stripe, striped_below};
pub use locks::{LockId, RangeLocks};
pub use settings::Settings;
