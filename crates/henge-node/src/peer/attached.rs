//! The extents that the peer has attached here, or wants to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most extents of a peer.
const EXTENTS_MAX: usize = 1 << 16;

/// An extent that the peer attached, or wants to.
pub(super) struct Attached {
    pub owner: Option<usize>,
    /// Why there is none, as the peer was told.
    pub refusal: Option<String>,
    pub disk: Arc<str>,
    pub index: u32,
    pub shape: u64,
}

/// All of them, by the peer's numbers.
#[derive(Default)]
pub(super) struct Attachments {
    by_number: BTreeMap<u32, Attached>,
    /// The extents of each disk.
    by_disk: BTreeSet<(Arc<str>, u32)>,
}

impl Attachments {
    /// The peer wants to attach an extent; it has no owner yet.
    pub(super) fn add(&mut self, extent: u32, disk: Arc<str>, index: u32, shape: u64) -> Result<(), String> {
        if self.by_number.len() >= EXTENTS_MAX && !self.by_number.contains_key(&extent) {
            return Err("it attaches too many extents".into());
        }
        self.by_disk.insert((disk.clone(), extent));
        let attached = Attached { owner: None, refusal: None, disk: disk.clone(), index, shape };
        if let Some(before) = self.by_number.insert(extent, attached).filter(|b| b.disk != disk) {
            self.by_disk.remove(&(before.disk, extent));
        }
        Ok(())
    }

    pub(super) fn get(&self, extent: u32) -> Option<&Attached> {
        self.by_number.get(&extent)
    }

    pub(super) fn get_mut(&mut self, extent: u32) -> Option<&mut Attached> {
        self.by_number.get_mut(&extent)
    }

    /// The owner here of an extent.
    pub(super) fn owner(&self, extent: u32) -> Option<usize> {
        self.get(extent)?.owner
    }

    /// The extents of a disk.
    pub(super) fn of_disk(&self, disk: &Arc<str>) -> Vec<u32> {
        let extents = self.by_disk.range((disk.clone(), 0)..=(disk.clone(), u32::MAX));
        extents.map(|(_, extent)| *extent).collect()
    }
}
