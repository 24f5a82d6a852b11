//! Real storage behind a gate.
//!
//! Every [`Store`] is a [`henge_core::Backend`] whose payload is a [`Buffer`]; wrappers stack on top of one
//! another and of a medium:
//!
//! | medium | keeps data in |
//! |---|---|
//! | [`Memory`] | memory |
//! | [`Directory`] | one sparse file per part |
//! | [`Device`] | a block device with a table of extents |
//! | exports of NBD servers | other machines and programs |
//! | images of a Ceph pool | OSDs of a cluster |
//!
//! [`pools`] is what an administrator does with the last two while no node serves them. [`Raw`] is a file or a device as it is, for whoever measures it.
//!
//! | wrapper | adds |
//! |---|---|
//! | [`Emulated`] | the timing of any device model, in real time |
//! | [`Faulty`] | errors, stalls, completions out of order |
//! | [`Volatile`] | a write cache that is forgotten when the power goes |
//! | [`Traced`] | one line per request |
//!
//! Files are served by io_uring where the kernel allows it and by threads where it does not. Time is an argument
//! here too; only the driver reads the clock.

mod buffer;
mod device;
mod directory;
mod emulated;
mod engine;
mod faulty;
mod file;
mod memory;
mod nbd;
mod notices;
mod open;
mod origin;
mod pages;
pub mod pools;
mod raw;
mod rbd;
pub mod registry;
mod shared;
mod shared_memory;
mod space;
mod store;
mod traced;
mod volatile;
mod watch;

pub use buffer::{ALIGN, BUFFER_MAX, Buffer, BufferPool};
pub use device::Device;
pub use directory::Directory;
pub use emulated::Emulated;
pub use faulty::{Faults, Faulty};
pub use memory::Memory;
pub use open::{EngineChoice, Options};
pub use origin::Origin;
pub use raw::Raw;
pub use shared::{Claim, ImageMetadata, Register};
pub use shared_memory::SharedMemory;
pub use store::{Chore, Growth, Step, Store, put_aside};
pub use traced::Traced;
pub use volatile::Volatile;
pub use watch::Watch;
