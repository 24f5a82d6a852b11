//! Device models: hard disks, SSDs, arrays, constant rate.
//!
//! Every model is a [`henge_core::Backend`] without data ([`henge_core::Model`] when boxed): requests go in by
//! `submit`, come out by `reap` when their time has come, and `wake_at` says when that is. `Done::busy` is the
//! true device time. Time is an argument; nothing here reads a clock or a file.
//!
//! Configuration names a device in one way everywhere. [`DeviceSpec::from_params`] reads it, and what it gives
//! can be built as often as needed (one per node):
//!
//! ```
//! use henge_core::{Params, Value};
//! use henge_device::{Built, DeviceSpec, no_files};
//! let table = Params::new("device")
//!     .with("raid0", Value::Integer(4))
//!     .with("stripe", Value::Text("64KiB".into()))
//!     .with("disk", Value::Text("dtla-307075".into()));
//! let mut node = Params::new("node").with("device", Value::Table(table));
//! let spec = DeviceSpec::from_params(&mut node, "device", &no_files).unwrap().unwrap();
//! // One gate for the whole array:
//! let model: henge_core::Model = spec.build().into_model();
//! assert!(model.capacity() > 300_000_000_000);
//! // Or one gate per spindle; `stripes` splits requests among them:
//! let Built::Array(array) = spec.build() else { panic!("a RAID-0 is an array") };
//! assert_eq!((array.spindles.len(), array.stripes.locate(65536)), (4, (1, 0)));
//! ```
//!
//! What can be written:
//!
//! | `device =` | is |
//! |---|---|
//! | `"dtla-307075"`, `"my-drive.json"` | a built-in model, or a file that the owner's [`Files`] finds |
//! | `{ disk = "st34501n", segments = 8, cache = true }` | the same, some of it changed |
//! | `{ disk = "nvme-dc", capacity = "8GB", spare = "15%" }` | a flash drive, some of it changed |
//! | `{ raid0 = 4, stripe = "64KiB", disk = "…" }` | four of them, striped |
//! | `{ raid1 = 2, disk = "…" }` | mirrors |
//! | `{ raid5 = 5, stripe = "64KiB", disk = "…" }` | rotating parity |
//! | `{ constant = { rate = "50MB/s", time = "1ms", slots = 8, capacity = "100GB" } }` | constant rate |
//!
//! In an array, `disk = …` may be any of these except an array, and keys beside it go to the disk: for a hard disk
//! `segments`, `cache`, `write_back` (true or false), `queue` and `order = "fifo" | "nearest" | "ascending"` (what
//! it orders by itself), `drained = true` (answers only when it has nothing left to do, so that its time includes
//! what a command causes later); for a flash drive `capacity` and `spare` (over-provisioning: spare / exported).
//! `constant` serves one request after another; `slots = n` makes n independent servers of a n-th of the rate
//! each; `even = true` serves all at once in equal shares; `growth = { a = 1.15, b = 2.0 }` is a speed of
//! min(1, a*n/(n+b)) with n in flight.

#![forbid(unsafe_code)]

mod array;
mod completions;
mod constant;
mod hdd;
mod models;
mod registry;
pub mod replay;
mod ssd;

pub use array::{Piece, Raid0, Raid1, Raid5, Stripes};
pub use constant::{Constant, ConstantConfig, Growth, Sharing};
pub use hdd::*;
pub use models::{built_in, description as model_description, names as model_names};
pub use registry::{Array, Built, DeviceSpec, Files, no_files};
pub use ssd::*;

use henge_core::Op;

/// Whether an operation moves its bytes to or from the medium.
pub(crate) fn moves_data(op: Op) -> bool {
    matches!(op, Op::Read | Op::Write | Op::WriteZeroes)
}
