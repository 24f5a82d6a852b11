//! Makes and opens the files of parts; by itself, since it may block, and be done on another thread.

use super::manage;
use crate::open::{self, Options, named};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// What is needed to make a file of the pool.
pub(super) struct Maker {
    pub path: PathBuf,
    pub options: Options,
    /// Of direct I/O, in the whole pool.
    pub block: u64,
    /// What would be adopted, where nothing is but looked at.
    pub adopted: Vec<String>,
}

impl Maker {
    /// The file of a part, so long; made, if need be.
    pub(super) fn open_file(&self, name: &str, len: u64) -> io::Result<Option<File>> {
        let (file, made) = self.find_or_make(name, len)?;
        if made {
            self.claim(name)?;
        }
        Ok(file)
    }

    /// The same, and whether it was made: then it is nobody's before it is [claimed](Self::claim).
    pub(super) fn find_or_make(&self, name: &str, len: u64) -> io::Result<(Option<File>, bool)> {
        let path = self.path.join(name);
        // Whole pages, so that a window around the last bytes can be written.
        let whole = len.next_multiple_of(crate::ALIGN as u64);
        let there = match std::fs::symlink_metadata(&path) {
            Ok(_) => true,
            Err(e) if e.kind() == io::ErrorKind::NotFound => false,
            Err(e) => return Err(named(&path, &e)),
        };
        let free = there || self.adopted.iter().any(|adopted| adopted == name);
        if !free && let Some(kept) = manage::kept(&self.path)?.into_iter().find(|kept| kept.name == name) {
            return Err(crate::store::kept(name, &kept.id, kept.len));
        }
        if self.options.look {
            if there {
                let (file, _) = open::read_only(&path, false)?;
                self.check_length(&file, &path, whole)?;
            }
            return Ok((None, false));
        }
        if !there {
            return self.make_file(name, whole).map(|file| (Some(file), true));
        }
        let (file, block) = open::claim(&path, self.options.direct, self.options.patience)?;
        if block > self.block {
            let why = format!("needs blocks of {block} bytes, unlike the rest of the pool");
            return Err(named(&path, &io::Error::other(why)));
        }
        if self.check_length(&file, &path, whole)? < whole {
            file.set_len(whole).and_then(|()| file.sync_all()).map_err(|e| named(&path, &e))?;
        }
        if block == 1 {
            open::forget_cache(&file);
        }
        Ok((Some(file), false))
    }

    /// A part that was made, and is whole, gets its name.
    pub(super) fn claim(&self, name: &str) -> io::Result<()> {
        let path = self.path.join(name);
        let renamed = std::fs::rename(manage::beside(&self.path, name), &path);
        renamed.map_err(|e| named(&path, &e)).and_then(|()| open::sync_directory(&self.path))
    }

    /// Makes a part beside its place, whole.
    fn make_file(&self, name: &str, len: u64) -> io::Result<File> {
        let (path, beside) = (self.path.join(name), manage::beside(&self.path, name));
        let make = || -> io::Result<File> {
            manage::unlink(&beside)?;
            let (file, _) = open::open(&beside, true, self.options.direct)?;
            open::lock(&file, &beside, self.options.patience)?;
            file.set_len(len)?;
            file.sync_all()?;
            Ok(file)
        };
        make().map_err(|e| named(&path, &e))
    }

    /// How long a part is. Longer than its disk is no harm where nothing was ever written beyond: then it grew, and the power went
    /// before anybody was told.
    fn check_length(&self, file: &File, path: &Path, whole: u64) -> io::Result<u64> {
        let present = file.metadata().map_err(|e| named(path, &e))?.len();
        if present <= whole || manage::reads_zero(file, whole, present) {
            return Ok(present);
        }
        let why = format!("holds {present} bytes; a part is not shrunk to {whole}, its end would be lost");
        Err(named(path, &io::Error::new(io::ErrorKind::InvalidInput, why)))
    }

    /// Makes an open file longer. Synced also where it is as long already: the one before may have failed after that.
    pub(super) fn lengthen(&self, file: &File, name: &str, len: u64) -> io::Result<()> {
        let whole = len.next_multiple_of(crate::ALIGN as u64);
        let grow = || if file.metadata()?.len() < whole { file.set_len(whole) } else { Ok(()) };
        grow().and_then(|()| open::synced(file.sync_all())).map_err(|e| named(&self.path.join(name), &e))
    }
}
