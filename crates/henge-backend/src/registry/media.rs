//! The kinds that are files or memory of this machine.

use super::{Medium, Wanted};
use crate::{Device, Directory, Memory, Store};
use henge_core::{ParamError, Params};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
struct InDirectory(PathBuf);

#[derive(Debug)]
struct OnDevice(PathBuf);

#[derive(Debug)]
struct InMemory;

type Read = Result<Option<Arc<dyn Medium>>, ParamError>;

pub(super) fn directory(p: &mut Params) -> Read {
    Ok(p.text("path")?.map(|path| Arc::new(InDirectory(path.into())) as Arc<dyn Medium>))
}

pub(super) fn device(p: &mut Params) -> Read {
    Ok(p.text("device")?.map(|path| Arc::new(OnDevice(path.into())) as Arc<dyn Medium>))
}

pub(super) fn memory(p: &mut Params) -> Read {
    let wanted = p.bool("memory")?.unwrap_or(false);
    Ok(wanted.then(|| Arc::new(InMemory) as Arc<dyn Medium>))
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

impl Medium for OnDevice {
    fn key(&self) -> &'static str {
        "device"
    }
    fn is_device(&self) -> bool {
        true
    }
    fn open(&self, wanted: &Wanted<'_>) -> io::Result<Box<dyn Store>> {
        Ok(Box::new(Device::open(&self.0, wanted.pool, wanted.capacity, wanted.options)?))
    }
    fn knows_capacity(&self) -> bool {
        true
    }
}

impl Medium for InMemory {
    fn is_lost_at_the_end(&self) -> bool {
        true
    }
    fn key(&self) -> &'static str {
        "memory"
    }
    fn open(&self, wanted: &Wanted<'_>) -> io::Result<Box<dyn Store>> {
        Ok(Box::new(Memory::new(wanted.capacity)?))
    }
    fn has_spindles(&self) -> bool {
        true
    }
    fn copies(&self) -> bool {
        true
    }
}
