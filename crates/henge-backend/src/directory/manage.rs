//! The files of a directory's pool that no disk has: files that were being made, and files that are kept.

use super::{LOCK, identity};
use crate::device::format::{Part, Shown};
use crate::open::{self, named};
use crate::space::check_name;
use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use uuid::Uuid;

/// A part that no disk has any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    pub name: String,
    pub id: String,
    pub len: u64,
}

/// Names of the files; none of a directory that is not there.
fn names(path: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(named(path, &e)),
    };
    let name = |entry: io::Result<std::fs::DirEntry>| entry.map(|e| e.file_name().into_string().ok());
    let mut names: Vec<String> = entries
        .filter_map(|e| name(e).transpose())
        .collect::<io::Result<_>>()
        .map_err(|e| named(path, &e))?;
    names.sort_unstable();
    Ok(names)
}

/// A part's name ends with the number of its place; other files are not ours.
fn is_part(name: &str) -> bool {
    let number = name.rsplit_once(".part").map(|(_, n)| n);
    check_name(name).is_ok() && number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// `.NAME.kept.ID`
fn kept_name(name: &str, id: &str) -> String {
    format!(".{name}.kept.{id}")
}

/// The parts that are kept.
pub fn kept(path: &Path) -> io::Result<Vec<Kept>> {
    let of = |file: &String| {
        let (name, id) = file.strip_prefix('.')?.rsplit_once(".kept.")?;
        check_name(name).ok()?;
        let id: Uuid = id.parse().ok()?;
        let len = std::fs::metadata(path.join(file)).map_or(0, |m| m.len());
        Some(Kept { name: name.to_owned(), id: id.to_string(), len })
    };
    Ok(names(path)?.iter().filter_map(of).collect())
}

/// Deletes a file, which may be gone already.
pub fn unlink(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(named(path, &e)),
        _ => Ok(()),
    }
}

/// The file of a part that is being made, or that nobody has claimed yet.
pub fn beside(path: &Path, name: &str) -> std::path::PathBuf {
    path.join(format!(".{name}.new"))
}

/// Deletes what was being made when the node ended.
pub fn clear(path: &Path) -> io::Result<()> {
    let unmade = |name: &&String| {
        name.strip_prefix('.').and_then(|n| n.strip_suffix(".new")).is_some_and(|n| check_name(n).is_ok())
    };
    names(path)?.iter().filter(unmade).try_for_each(|name| unlink(&path.join(name)))
}

/// Parts that no disk has are kept under names of their own; those in which nobody ever wrote anything are deleted. The names of the
/// kept ones.
pub fn keep_unclaimed(path: &Path, is_claimed: &dyn Fn(&str) -> bool) -> io::Result<Vec<String>> {
    let mut names = names(path)?;
    names.retain(|name| is_part(name) && !is_claimed(name));
    if names.is_empty() {
        return Ok(names);
    }
    let mut kept = Vec::new();
    for name in names {
        let from = path.join(&name);
        if is_unwritten(&from) {
            unlink(&from)?;
        } else {
            let to = path.join(kept_name(&name, &Uuid::new_v4().to_string()));
            std::fs::rename(&from, &to).map_err(|e| named(&from, &e))?;
            kept.push(name);
        }
    }
    open::sync_directory(path)?;
    Ok(kept)
}

/// Whether a file is one hole from its beginning to its end. What cannot be known was written: not every file system knows its
/// holes, and some count no blocks of any file.
fn is_unwritten(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    file.metadata().is_ok_and(|found| found.is_file()) && is_hole(&file, 0)
}

/// Whether nothing was ever written from there on.
fn is_hole(file: &File, from: u64) -> bool {
    matches!(rustix::fs::seek(file, SeekFrom::Data(from)), Err(rustix::io::Errno::NXIO))
}

/// Whether a file's end is nothing but zeroes. A long one is not read, only asked for its holes.
pub fn reads_zero(file: &File, from: u64, to: u64) -> bool {
    const READ_MAX: u64 = 64 << 20;
    if is_hole(file, from) {
        return true;
    }
    let mut bytes = crate::Buffer::zeroed(1 << 20);
    let mut at = from;
    while to - from <= READ_MAX && at < to {
        match file.read_at(&mut bytes, at) {
            Ok(0) => return true,
            Ok(n) if bytes[..n].iter().all(|b| *b == 0) => at += n as u64,
            _ => return false,
        }
    }
    at >= to
}

/// Bytes that the directory's files take from their file system.
pub fn allocated(path: &Path) -> u64 {
    let files = names(path).unwrap_or_default();
    files.iter().filter_map(|name| path.join(name).symlink_metadata().ok()).map(|m| m.blocks() * 512).sum()
}

/// Nobody serves it meanwhile.
fn locked(path: &Path) -> io::Result<File> {
    let (lock, _) = open::open(&path.join(LOCK), false, false)?;
    open::lock(&lock, path, open::REMAINS)?;
    Ok(lock)
}

fn find(path: &Path, id: &str) -> io::Result<Kept> {
    let mut found: Vec<Kept> = kept(path)?.into_iter().filter(|kept| kept.id.starts_with(id)).collect();
    match (found.pop(), found.len()) {
        (Some(one), 0) => Ok(one),
        (last, n) => {
            let why = crate::store::not_one(n + usize::from(last.is_some()), id);
            Err(io::Error::new(io::ErrorKind::NotFound, format!("{} {why}", path.display())))
        }
    }
}

/// A kept part becomes a disk's again; its name.
pub(super) fn adopt(path: &Path, id: &str) -> io::Result<String> {
    let part = find(path, id)?;
    let (from, to) = (path.join(kept_name(&part.name, &part.id)), path.join(&part.name));
    if to.symlink_metadata().is_ok() {
        let why = format!("there is a part \"{}\" in use already; only one can have the name", part.name);
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    std::fs::rename(&from, &to).map_err(|e| named(&from, &e))?;
    open::sync_directory(path)?;
    Ok(part.name)
}

/// The one part of that name that is kept, if any is.
pub(super) fn the_kept(path: &Path, name: &str) -> io::Result<Option<Kept>> {
    let mut all = kept(path)?.into_iter().filter(|kept| kept.name == name);
    match (all.next(), all.next()) {
        (Some(_), Some(_)) => Err(crate::store::several(name)),
        (one, _) => Ok(one),
    }
}

/// It becomes a disk's again.
pub(super) fn adopt_named(path: &Path, name: &str) -> io::Result<()> {
    the_kept(path, name)?.map_or(Ok(()), |one| adopt(path, &one.id).map(drop))
}

/// The same, while no node serves it.
pub fn adopt_alone(path: &Path, id: &str) -> io::Result<String> {
    let _lock = locked(path)?;
    adopt(path, id)
}

/// A kept part is deleted; its name.
pub fn discard(path: &Path, id: &str) -> io::Result<String> {
    let _lock = locked(path)?;
    let part = find(path, id)?;
    unlink(&path.join(kept_name(&part.name, &part.id)))?;
    open::sync_directory(path)?;
    Ok(part.name)
}

/// Another name for the pool.
pub fn rename(path: &Path, name: &str) -> io::Result<()> {
    let _lock = locked(path)?;
    identity::rename(path, name)
}

/// What is there. Nothing is changed, and it may be in use.
pub fn show(path: &Path) -> io::Result<Shown> {
    let Some(identity) = identity::read(path)? else {
        let why = format!(
            "{} is no pool of Henge; a node makes a directory one when it first serves it",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    };
    let used = |name: &String| {
        let len = path.join(name).symlink_metadata().ok()?.len();
        Some(Part { id: String::new(), name: name.clone(), len, at: None, used: true })
    };
    let mut parts: Vec<Part> = names(path)?.iter().filter(|name| is_part(name)).filter_map(used).collect();
    let kept = kept(path)?.into_iter();
    parts.extend(kept.map(|k| Part { id: k.id, name: k.name, len: k.len, at: None, used: false }));
    Ok(Shown {
        kind: "directory",
        pool: identity.pool.to_string(),
        name: identity.name,
        version: 1,
        capacity: None,
        parts,
        notes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// /proc counts no blocks, as some file systems of users do.
    #[test]
    fn a_file_without_blocks_was_written_unless_it_is_a_hole() {
        let counted_none = Path::new("/proc/self/status");
        assert_eq!(std::fs::metadata(counted_none).unwrap().blocks(), 0);
        assert!(!is_unwritten(counted_none));
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        assert!(is_unwritten(file.path()));
        file.as_file().write_all_at(b"x", 1 << 19).unwrap();
        assert!(!is_unwritten(file.path()));
    }
}
