//! Where traces are found: beside whoever names them, or in the data directory.

use henge_workload::{Records, Trace, TraceSpec};
use std::fs::File;
use std::path::{Path, PathBuf};

/// The directory of published traces and disks, where there is one: `HENGE_DATA`, or `shared` beside the project.
pub fn directory() -> Option<PathBuf> {
    let named = std::env::var_os("HENGE_DATA").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from("../shared"))).filter(|dir| dir.is_dir())
}

/// Opens a trace; `dir` is where relative names start.
pub fn open(dir: &Path, spec: &TraceSpec) -> Result<Records, String> {
    let beside = dir.join(&spec.file);
    let known = directory().map(|data| data.join("traces").join(&spec.file));
    let path = [Some(beside.clone()), known].into_iter().flatten().find(|p| p.is_file()).unwrap_or(beside);
    let file = File::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let trace = Trace::open(&spec.file, Box::new(file), &spec.options).map_err(|e| e.to_string())?;
    Ok(Box::new(trace))
}
