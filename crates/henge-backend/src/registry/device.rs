//! `device`: a block device with a table of ours.

use super::{Kind, Medium, Read, Wanted};
use crate::{Device, Store};
use henge_core::Params;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const KIND: Kind = Kind { key: "device", example: "device = \"/dev/sdb\"", read };

#[derive(Debug)]
struct OnDevice(PathBuf);

fn read(p: &mut Params) -> Read {
    Ok(p.text("device")?.map(|path| Arc::new(OnDevice(path.into())) as Arc<dyn Medium>))
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
    fn device(&self) -> Option<&Path> {
        Some(&self.0)
    }
    fn knows_capacity(&self) -> bool {
        true
    }
}
