//! A file's content, replaced as a whole: after a crash there is the old one or the new one, and never a part.
//!
//! # The rule
//! What is new is written beside the old file and synced; then it takes the file's name, and the directory is synced. The first
//! half needs room and may fail without harm; the second needs none. [`prepare`] is the first half, [`Prepared::commit`] the
//! second: who changes something else as well does that in between, and nothing is done that cannot be remembered.
//!
//! Files are their owner's alone (mode 0600), also where the old one was not. Errors name the file.

use atomic_write_file::AtomicWriteFile;
use atomic_write_file::unix::OpenOptionsExt as _;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// New content on the medium, which does not have the file's name yet. Dropped, it is as if it had never been.
#[derive(Debug)]
pub struct Prepared {
    path: PathBuf,
    file: AtomicWriteFile,
}

impl Prepared {
    /// Gives it the name. After an error either content may be the one that is found after a crash.
    pub fn commit(self) -> io::Result<()> {
        let Prepared { path, file } = self;
        file.commit().map_err(|e| named(&path, &e))
    }
}

/// Writes `content` beside `path`, whose content it will become, and syncs it. The directory is made where it is missing.
pub fn prepare(path: &Path, content: &[u8]) -> io::Result<Prepared> {
    let write = || {
        make_directory(path.parent().unwrap_or(Path::new(".")))?;
        let mut options = AtomicWriteFile::options();
        let mut file = options.preserve_mode(false).mode(0o600).open(path)?;
        file.write_all(content)?;
        file.sync_all()?;
        Ok(file)
    };
    match write() {
        Ok(file) => Ok(Prepared { path: path.to_owned(), file }),
        Err(e) => Err(named(path, &e)),
    }
}

/// Replaces the content of `path`.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    prepare(path, content)?.commit()
}

/// Makes a directory that is its owner's alone, with those above it, where it is missing.
pub fn make_directory(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // The new name is to outlive a crash as well as what will be in it.
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => std::fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_has_the_old_content_until_it_has_all_of_the_new() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/here/disks.json");
        replace(&path, b"old").unwrap();
        let new = prepare(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(new);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        prepare(&path, b"new").unwrap().commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn it_is_its_owners_alone_whatever_it_was_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/disks.json");
        replace(&path, b"x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        replace(&path, b"y").unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn what_cannot_be_written_is_said_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        let error = replace(&dir.path().join("file/disks.json"), b"x").unwrap_err();
        assert!(error.to_string().contains("file/disks.json: "), "{error}");
    }
}
