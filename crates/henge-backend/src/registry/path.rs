//! `path`: a directory of files.

use super::{Kind, Medium, Read, Wanted};
use crate::{Directory, Store};
use henge_core::Params;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const KIND: Kind = Kind { key: "path", example: "path = \"/srv/henge\"", read };

#[derive(Debug)]
struct InDirectory(PathBuf);

fn read(p: &mut Params) -> Read {
    Ok(p.text("path")?.map(|path| Arc::new(InDirectory(path.into())) as Arc<dyn Medium>))
}

impl Medium for InDirectory {
    fn key(&self) -> &'static str {
        "path"
    }
    fn is_device(&self) -> bool {
        true
    }
    fn open(&self, wanted: &Wanted<'_>) -> io::Result<Box<dyn Store>> {
        let (path, name) = match wanted.spindle {
            Some(i) => (self.0.join(format!("spindle{i}")), format!("{}.{i}", wanted.pool)),
            None => (self.0.clone(), wanted.pool.to_owned()),
        };
        Ok(Box::new(Directory::open(&path, &name, wanted.capacity, wanted.options)?))
    }
    fn has_spindles(&self) -> bool {
        true
    }
    fn directory(&self) -> Option<&Path> {
        Some(&self.0)
    }
}
