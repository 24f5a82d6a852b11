//! Where the data is that tests need and the repository does not hold.
#![allow(dead_code, reason = "every test file uses a part of this")]

use henge_workload::{Trace, TraceOptions};
use std::path::PathBuf;

/// The data directory: `HENGE_DATA`, or `shared` beside the repository.
pub struct Shared;
pub const SHARED: Shared = Shared;

impl Shared {
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
        let root = std::env::var_os("HENGE_DATA").map_or_else(|| PathBuf::from(beside), PathBuf::from);
        Some(root.join(name)).filter(|path| path.exists())
    }
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        std::fs::read(self.path(name)?).ok()
    }
}

/// A test that cannot run says so by its name.
pub struct Skip<'a>(pub &'a str);
impl Skip<'_> {
    pub fn report(self) {
        println!("skipped: {} needs HENGE_DATA", self.0);
    }
}

pub fn open_shared(name: &str, options: &TraceOptions) -> Option<Trace> {
    let path = SHARED.path(&format!("traces/{name}.zst"))?;
    let file = std::fs::File::open(path).ok()?;
    Some(Trace::open(name, Box::new(file), options).unwrap())
}
