//! A virtual disk: where its bytes are, and what becomes of a command.
//!
//! ```text
//! command ─▶ VirtualDisk ─▶ parts, one request each, for the gates of the disk's extents
//! answer  ◀─ (join)      ◀─ part_done
//! ```
//!
//! [`Layout`] is the map from the disk's bytes to (gate, offset): extents striped by the RAID-0 formula, and the
//! same formula once more where an extent lies on an array whose spindles have a gate each. [`VirtualDisk`] cuts
//! commands along it, joins the parts, holds back what a read-modify-write must not meet, and sends a FLUSH
//! everywhere. No clock, no data, no allocation per command once warm: buffers belong to the driver, which is
//! told what goes where ([`Frame`], [`Data`]).

//! ```
//! use henge_core::{FlowId, Instant};
//! use henge_vdisk::{Command, Data, Extent, GateId, Kind, Layout, Settings, Target, VirtualDisk};
//!
//! let extent = |gate| Extent { target: Target::Gate(GateId(gate)), base: 0, len: 1 << 20 };
//! let layout = Layout::new(2 << 20, 64 << 10, vec![extent(0), extent(1)])?;
//! let mut disk = VirtualDisk::new(FlowId(0), layout, Settings::default())?;
//! let mut buffer = vec![0; disk.frame(Kind::Read, 65_000, 1000).len as usize];
//! disk.submit(Command::new(Kind::Read, 65_000, 1000, Instant::ZERO, 42)).expect("nothing is pending yet");
//! let devices = [vec![1u8; 1 << 20], vec![2u8; 1 << 20]];
//! while let Some(part) = disk.next_part(&mut ()) {
//!     // A driver gives the request an id and submits it to the gate; when it is served:
//!     let Data::Frame { at } = part.data else { unreachable!("an aligned read goes into the frame") };
//!     let (from, len) = (part.request.offset as usize, part.request.len as usize);
//!     buffer[at as usize..][..len].copy_from_slice(&devices[part.gate.index()][from..][..len]);
//!     disk.part_done(part.id, Ok(()));
//! }
//! let done = disk.next_finished().expect("all parts are done");
//! assert_eq!((done.command.tag, done.outcome), (42, Ok(())));
//! assert_eq!((buffer[535], buffer[536]), (1, 2)); // stripe 1 begins at 65 536
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod command;
mod disk;
mod intervals;
mod layout;
mod locks;
mod plan;
mod settings;

pub use command::{
    Command, Data, Failure, Finished, Frame, Kind, Part, PartId, Patch, Portion, first_difference,
};
pub use disk::{Full, Gates, ResizeError, VirtualDisk};
pub use layout::{
    Array, DeviceRange, Extent, GateId, Layout, LayoutError, Spot, Target, stripe, striped_below,
};
pub use locks::{LockId, RangeLocks};
pub use settings::Settings;
