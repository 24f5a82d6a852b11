//! Which bytes of a spread disk are at which of its extents.

use crate::config::DiskConfig;
use henge_vdisk::{Extent, GateId, Layout, LayoutError, Target};

/// What extents end at a multiple of.
pub(crate) fn align_of(config: &DiskConfig) -> u64 {
    (henge_backend::ALIGN as u64).max(config.cutting.settings.align)
}

/// What a disk is striped by over its extents.
fn unit_of_stripes(config: &DiskConfig) -> u64 {
    if config.places.len() == 1 { u64::MAX } else { config.stripe }
}

/// How long each extent of a disk of `capacity` bytes is.
pub(super) fn extent_lens(config: &DiskConfig, capacity: u64) -> Vec<u64> {
    let (count, unit) = (config.places.len() as u64, unit_of_stripes(config));
    let len = |i| henge_vdisk::striped_below(capacity, i, count, unit).next_multiple_of(align_of(config));
    (0..count).map(len).collect()
}

/// Which address of a disk of `capacity` bytes is where. Of two sizes the larger one only has more: what both have is at the same place.
pub(super) fn layout(config: &DiskConfig, capacity: u64) -> Result<Layout, LayoutError> {
    let extent = |(i, len)| Extent { target: Target::Gate(GateId(i as u32)), base: 0, len };
    let extents = extent_lens(config, capacity).into_iter().enumerate().map(extent);
    Layout::new(capacity, unit_of_stripes(config), extents.collect())
}
