//! A recording over days: cut into windows, of which the fullest are kept.
//!
//! **Problem.** A week of 5,000 commands a second is 97 GB of traces, and a simulation of it takes hours. Promises break in the few
//! minutes in which most is wanted.
//!
//! **Rule.** The time is cut into windows. Of all windows those are kept in which most commands were pending in the mean: at most
//! `keep` of them, and at most `room` bytes. Where both are full, the window with the fewest pending is removed.
//!
//! **Bound.** Disk: `room`, and one window more while it is written. Memory: one window, which ends early at [`WINDOW_COMMANDS`].

use super::{Ask, Session};
use crate::when::when;
use anyhow::{Context, Result, bail};
use henge_core::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What stands beside a recording's scenario.
pub(super) const ABOUT: &str = "recorded.json";
/// Most commands of a window: about 200 MB of memory.
const WINDOW_COMMANDS: usize = 2_000_000;
/// A window that could not be recorded is tried anew after this.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(10);

/// What a scenario has no room for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// The pools' names, in the order of the scenario's nodes.
    pub pools: Vec<String>,
    /// When it began, in milliseconds since 1970.
    pub began: u64,
    /// Commands recorded.
    pub commands: u64,
    /// Commands pending in the mean, over all disks.
    pub pending: f64,
    /// By disk: the 50th, 95th and 99th percentile of latency as recorded, in nanoseconds.
    pub latency_ns: BTreeMap<String, [u64; 3]>,
}

impl About {
    pub(super) fn text(&self) -> String {
        format!("{}\n", serde_json::to_string_pretty(self).expect("plain data"))
    }

    /// Of the recording in `dir`; an older recording has none.
    pub fn read(dir: &Path) -> Result<About> {
        let path = dir.join(ABOUT);
        match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).with_context(|| format!("reading {}", path.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(About::default()),
            Err(e) => Err(e).with_context(|| format!("reading {}", path.display())),
        }
    }
}

/// What is kept of a long recording.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// One window's length.
    pub window: Duration,
    /// Most windows.
    pub keep: usize,
    /// Most bytes on disk.
    pub room: u64,
}

/// A window on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// Its directory.
    pub dir: PathBuf,
    /// Commands pending in the mean.
    pub pending: f64,
    /// Bytes on disk.
    pub bytes: u64,
}

/// The directories of a recording's windows, oldest first; of a recording without windows its own.
pub fn of_windows(dir: &Path) -> Result<Vec<PathBuf>> {
    if dir.join("scenario.toml").is_file() {
        return Ok(vec![dir.to_owned()]);
    }
    let found: Vec<PathBuf> = kept(dir)?.into_iter().map(|kept| kept.dir).collect();
    if found.is_empty() {
        bail!("{}: there is no recording; `henge record --for 30s -o {0}` makes one", dir.display());
    }
    Ok(found)
}

fn kept(dir: &Path) -> Result<Vec<Kept>> {
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(e).with_context(|| format!("reading {}", dir.display())),
    };
    for entry in entries {
        let dir = entry.with_context(|| format!("reading {}", dir.display()))?.path();
        if is_window(&dir) && is_whole(&dir) {
            let pending = About::read(&dir)?.pending;
            found.push(Kept { pending, bytes: size(&dir)?, dir });
        }
    }
    found.sort_by(|a, b| a.dir.cmp(&b.dir));
    Ok(found)
}

/// `window-2026-11-21T23-59-58Z`, and nothing else, is ours to remove.
fn is_window(dir: &Path) -> bool {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let time = name.strip_prefix("window-").unwrap_or_default();
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00-00-00Z"
}

/// The scenario is written last.
fn is_whole(dir: &Path) -> bool {
    dir.join("scenario.toml").is_file()
}

/// Removes windows whose writing was interrupted.
fn sweep(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry.with_context(|| format!("reading {}", dir.display()))?.path();
        if is_window(&path) && !is_whole(&path) {
            std::fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

fn size(dir: &Path) -> Result<u64> {
    let named = || format!("reading {}", dir.display());
    let files = std::fs::read_dir(dir).with_context(named)?;
    files.map(|file| Ok(file?.metadata()?.len())).sum::<std::io::Result<u64>>().with_context(named)
}

impl Bounds {
    /// Removes what is too much; what is left.
    pub(super) fn trim(&self, dir: &Path) -> Result<Vec<Kept>> {
        let mut all = kept(dir)?;
        let room = |all: &[Kept]| all.iter().map(|k| k.bytes).sum::<u64>();
        while all.len() > 1 && (all.len() > self.keep || room(&all) > self.room) {
            let least = (0..all.len()).min_by(|&a, &b| all[a].pending.total_cmp(&all[b].pending));
            let gone = all.remove(least.expect("it is not empty"));
            std::fs::remove_dir_all(&gone.dir).with_context(|| format!("removing {}", gone.dir.display()))?;
        }
        Ok(all)
    }
}

/// Records for `time` into `dir`, and keeps the fullest windows. A node that restarts ends a window, and is asked again.
/// `tick` hears how far it is, and may end it; `said` hears what is kept.
pub fn rotate(
    (ask, pool): (Ask<'_>, Option<&str>),
    time: Duration,
    bounds: Bounds,
    dir: &Path,
    mut tick: impl FnMut(f64) -> bool,
    mut said: impl FnMut(&str),
) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    if dir.join("scenario.toml").exists() {
        bail!("{}: a recording without windows is there; choose another directory by -o", dir.display());
    }
    sweep(dir)?;
    bounds.trim(dir)?;
    let start = std::time::Instant::now();
    let share = || start.elapsed().as_secs_f64() / time.as_secs_f64();
    // Who names a wrong pool or node hears it at once; later the node may be away for a while.
    let mut session = Some(Session::begin(ask, pool)?);
    while share() < 1.0 {
        let now = match session.take() {
            Some(now) => Ok(now),
            None => Session::begin(ask, pool),
        };
        let heard = now.and_then(|mut now| {
            let on = now.listen(bounds.window, WINDOW_COMMANDS, |_, _| tick(share()) && share() < 1.0)?;
            let recording = now.cut(bounds.window)?;
            Ok((now, on, recording))
        });
        match heard {
            Ok((now, on, recording)) => {
                if let Some(recording) = recording {
                    let name = format!("window-{}", when(recording.wall).replace([':', ' '], "-"));
                    recording.write(&dir.join(name))?;
                }
                let all = bounds.trim(dir)?;
                let bytes = all.iter().map(|k| k.bytes).sum();
                said(&format!("{} windows, {}", all.len(), henge_core::format_size(bytes)));
                if !on {
                    break;
                }
                session = Some(now);
            }
            Err(why) => {
                said(&format!("{why:#}"));
                std::thread::sleep(AGAIN);
                if !tick(share()) {
                    break;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(dir: &Path, minute: u32, pending: f64, bytes: usize) {
        let dir = dir.join(format!("window-2026-11-21T23-{minute:02}-00Z"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join(ABOUT), About { pending, ..About::default() }.text()).unwrap();
        std::fs::write(dir.join("web.trace"), vec![0; bytes]).unwrap();
        std::fs::write(dir.join("scenario.toml"), "").unwrap();
    }

    fn pending(kept: &[Kept]) -> Vec<f64> {
        kept.iter().map(|kept| kept.pending).collect()
    }

    #[test]
    fn the_fullest_windows_are_kept_within_number_and_room() {
        let dir = tempfile::tempdir().unwrap();
        for (minute, load) in [(0, 3.0), (1, 9.5), (2, 0.5), (3, 7.0), (4, 8.0)] {
            window(dir.path(), minute, load, 10_000);
        }
        let bounds = Bounds { window: Duration::from_secs(60), keep: 4, room: 1 << 30 };
        assert_eq!(pending(&bounds.trim(dir.path()).unwrap()), [3.0, 9.5, 7.0, 8.0]);
        // Three of a little more than 10,000 bytes.
        let bounds = Bounds { room: 31_000, ..bounds };
        assert_eq!(pending(&bounds.trim(dir.path()).unwrap()), [9.5, 7.0, 8.0]);
        // One that is alone too large is better than none.
        let bounds = Bounds { room: 1, ..bounds };
        assert_eq!(pending(&bounds.trim(dir.path()).unwrap()), [9.5]);
        assert_eq!(of_windows(dir.path()).unwrap(), [dir.path().join("window-2026-11-21T23-01-00Z")]);
    }

    #[test]
    fn what_an_interrupted_recording_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        window(dir.path(), 7, 1.0, 10);
        for name in ["window-2026-11-21T23-59-58Z", "window-shopping", "window-"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        sweep(dir.path()).unwrap();
        let mut left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["window-", "window-2026-11-21T23-07-00Z", "window-shopping"]);
    }
}
