//! Reference data that is not in the repository: `HENGE_DATA` names its directory, `../shared` is looked at, too.

use std::path::PathBuf;

/// The directory of disk data; without it says which test is skipped.
pub fn disks(test: &str) -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let root = std::env::var_os("HENGE_DATA").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let disks = root.join("disks");
    if disks.join("facts").is_dir() {
        return Some(disks);
    }
    println!("skipped: {test} needs HENGE_DATA");
    None
}
