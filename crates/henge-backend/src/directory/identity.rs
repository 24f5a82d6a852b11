//! Which pool a directory is: a small text file, with a checksum over the lines before it.
//!
//! ```text
//! henge pool 1
//! pool 550e8400-e29b-41d4-a716-446655440000
//! name ssd
//! crc32c 1a2b3c4d
//! ```

use crate::open::{self, named};
use crate::space::check_name;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use uuid::Uuid;

const FILE: &str = ".henge.pool";
const VERSION: u32 = 1;

/// What a directory says that it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub pool: Uuid,
    pub name: String,
}

impl Identity {
    fn text(&self) -> String {
        let lines = format!("henge pool {VERSION}\npool {}\nname {}\n", self.pool, self.name);
        format!("{lines}crc32c {:08x}\n", crc32c::crc32c(lines.as_bytes()))
    }

    fn parse(text: &str) -> Result<Identity, String> {
        let version = text.lines().next().and_then(|line| line.strip_prefix("henge pool "));
        match version.and_then(|v| v.parse::<u32>().ok()) {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => {
                return Err(format!("is of format {newer}, made by a newer Henge; this one knows {VERSION}"));
            }
            _ => return Err("does not begin with \"henge pool 1\"".into()),
        }
        let torn = || "is torn or was changed: its checksum is wrong".to_owned();
        let (lines, sum) = text.split_once("crc32c ").ok_or_else(torn)?;
        if u32::from_str_radix(sum.trim_end(), 16) != Ok(crc32c::crc32c(lines.as_bytes())) {
            return Err(torn());
        }
        let value = |key: &str| lines.lines().find_map(|line| line.strip_prefix(key)).ok_or_else(torn);
        let pool = value("pool ")?.parse().map_err(|_| torn())?;
        Ok(Identity { pool, name: value("name ")?.to_owned() })
    }
}

/// What a directory says that it is; nothing where it is none of ours yet, or not there.
pub fn read(path: &Path) -> io::Result<Option<Identity>> {
    let file = path.join(FILE);
    let text = match std::fs::read(&file) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(named(&file, &e)),
    };
    Identity::parse(&text).map(Some).map_err(|why| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{} {why}; nothing was written", file.display()))
    })
}

/// Whether it is that pool, or could become it.
pub fn check(path: &Path, name: &str) -> io::Result<()> {
    let Some(found) = read(path)?.filter(|found| found.name != name) else { return Ok(()) };
    let why = format!(
        "{} is the pool \"{}\" ({}), not \"{name}\"; name it so, or `henge pool rename` it",
        path.display(),
        found.name,
        found.pool
    );
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Says in the directory which pool it is, if it does not yet.
pub fn settle(path: &Path, name: &str) -> io::Result<()> {
    check(path, name)?;
    if read(path)?.is_some() {
        return Ok(());
    }
    write(path, &Identity { pool: Uuid::new_v4(), name: name.to_owned() })
}

/// Another name for the pool.
pub fn rename(path: &Path, name: &str) -> io::Result<()> {
    check_name(name)?;
    let Some(found) = read(path)? else {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is no pool", path.display())));
    };
    write(path, &Identity { name: name.to_owned(), ..found })
}

/// Beside, synced, and renamed over the old one.
fn write(path: &Path, identity: &Identity) -> io::Result<()> {
    let (file, beside) = (path.join(FILE), path.join(".henge.pool.new"));
    let write = || -> io::Result<()> {
        let mut fresh = File::create(&beside)?;
        fresh.write_all(identity.text().as_bytes())?;
        fresh.sync_all()?;
        std::fs::rename(&beside, &file)?;
        open::sync_directory(path)
    };
    write().map_err(|e| named(&file, &e))
}

/// A pool's file system, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// In all.
    pub all: u64,
    /// Free for us.
    pub free: u64,
    /// Taken by the pool's files.
    pub held: u64,
}

/// How full the file system under a pool is.
pub fn fill(path: &Path) -> io::Result<Fill> {
    // Where the directory is to be made: what is there of its path.
    let there = path.ancestors().find(|p| p.exists()).unwrap_or(Path::new("."));
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    let fs = rustix::fs::statvfs(there).map_err(|e| named(there, &e.into()))?;
    let bytes = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
    Ok(Fill { all: bytes(fs.f_blocks), free: bytes(fs.f_bavail), held: super::manage::allocated(path) })
}

/// Whether the file system under a pool can hold what the pool promises: refused where it never could, and a line where it
/// cannot now.
pub fn check_capacity(path: &Path, capacity: u64, overcommit: bool) -> io::Result<Option<String>> {
    let Fill { all, free, held } = fill(path)?;
    let size = henge_core::format_size;
    let at = path.display();
    if capacity > all && !overcommit {
        let why = format!(
            "{at}: its file system holds {} in all, and the pool promises {}; lower its capacity, or write overcommit = true",
            size(all),
            size(capacity)
        );
        return Err(io::Error::new(io::ErrorKind::StorageFull, why));
    }
    if capacity <= free.saturating_add(held) {
        return Ok(None);
    }
    Ok(Some(format!(
        "{at}: the pool promises {}, and its file system has room for {} of it: disks may find it full",
        size(capacity),
        size(free.saturating_add(held))
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever stands in the file: it is read as what was written, or not at all.
        #[test]
        fn what_was_changed_is_not_believed(at in 0usize..80, by in 1u8..128, noise in "\\PC*") {
            let one = Identity { pool: Uuid::from_u128(7), name: "ssd".into() };
            let mut bytes = one.text().into_bytes();
            let at = at % bytes.len();
            bytes[at] ^= by;
            if let Ok(found) = Identity::parse(&String::from_utf8_lossy(&bytes)) {
                prop_assert_eq!(found, one.clone()); // white space at its end
            }
            let _ = Identity::parse(&noise);
            prop_assert_eq!(Identity::parse(&one.text()), Ok(one));
        }
    }

    #[test]
    fn a_later_format_is_named() {
        let why = Identity::parse("henge pool 2\nwhatever\n").unwrap_err();
        assert!(why.contains("format 2"), "{why}");
    }
}
