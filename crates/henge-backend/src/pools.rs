//! What an administrator does with a pool while no node serves it, whatever it is made of.

use crate::device::format as device;
use crate::directory::{identity, manage as directory};
use std::io;
use std::path::Path;

pub use crate::directory::identity::{Fill, fill};
pub use device::{Part, Shown, format, import, repair};

/// What is there. Nothing is changed, and it may be in use.
pub fn show(path: &Path) -> io::Result<Shown> {
    if path.is_dir() { directory::show(path) } else { device::show(path) }
}

/// Which pool a directory is; nothing where it is none yet, or not there.
pub fn id(directory: &Path) -> io::Result<Option<String>> {
    Ok(identity::read(directory)?.map(|identity| identity.pool.to_string()))
}

/// Another name for a pool, as its configuration is to call it.
pub fn rename(path: &Path, name: &str) -> io::Result<()> {
    if path.is_dir() { directory::rename(path, name) } else { device::rename(path, name) }
}

/// A kept part becomes the disk's of its name again; the part's name. The beginning of its id is enough.
pub fn adopt(path: &Path, id: &str) -> io::Result<String> {
    if path.is_dir() { directory::adopt_alone(path, id) } else { device::adopt(path, id) }
}

/// A kept part is deleted; its name. The beginning of its id is enough.
pub fn discard(path: &Path, id: &str) -> io::Result<String> {
    if path.is_dir() { directory::discard(path, id) } else { device::discard(path, id) }
}
