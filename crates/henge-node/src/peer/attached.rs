//! The extents that the peer has attached here, or wants to.

use crate::link_config::DISK_EXTENTS_MAX;
use std::collections::BTreeMap;
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

/// All of them, by the peer's numbers. An extent has one number: a peer that was rid of a disk and has it again asks under a new one.
#[derive(Default)]
pub(super) struct Attachments {
    by_number: BTreeMap<u32, Attached>,
    /// The number of each extent of each disk.
    by_disk: BTreeMap<(Arc<str>, u32), u32>,
}

impl Attachments {
    /// The peer wants to attach an extent; it has no owner yet.
    pub(super) fn add(&mut self, extent: u32, disk: Arc<str>, index: u32, shape: u64) -> Result<(), String> {
        if index as usize >= DISK_EXTENTS_MAX {
            return Err(format!(
                "it attaches extent {index} of a disk; a disk has {DISK_EXTENTS_MAX} at most"
            ));
        }
        if self.by_number.len() >= EXTENTS_MAX && !self.by_number.contains_key(&extent) {
            return Err("it attaches too many extents".into());
        }
        let attached = Attached { owner: None, refusal: None, disk: disk.clone(), index, shape };
        if let Some(before) = self.by_number.insert(extent, attached) {
            self.by_disk.remove(&(before.disk, before.index));
        }
        if let Some(older) = self.by_disk.insert((disk, index), extent) {
            self.by_number.remove(&older);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_comes_and_goes_has_each_extent_once() {
        let mut all = Attachments::default();
        let disk: Arc<str> = "web".into();
        for number in 0..2000 {
            all.add(number, disk.clone(), number % 2, 7).unwrap();
        }
        assert_eq!(all.of_disk(&disk), [1998, 1999]);
        assert_eq!(all.by_number.len(), 2);
        assert!(all.get(3).is_none());
        // A number may come to mean something else.
        all.add(1998, "mail".into(), 0, 7).unwrap();
        assert_eq!((all.of_disk(&disk), all.of_disk(&"mail".into())), (vec![1999], vec![1998]));
    }

    #[test]
    fn a_disk_has_no_more_extents_than_one_may_have() {
        let mut all = Attachments::default();
        assert!(all.add(0, "web".into(), DISK_EXTENTS_MAX as u32, 7).unwrap_err().contains("1024 at most"));
        all.add(0, "web".into(), DISK_EXTENTS_MAX as u32 - 1, 7).unwrap();
    }
}
