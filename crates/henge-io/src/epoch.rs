//! A number that is larger at each start than at all starts before it, whatever the clock says.
//!
//! # The problem
//! Others tell what a process says now from what it said before it was started anew by a number, its epoch, and take what has a
//! smaller one for late. Taken from the clock, the number falls when the clock is set back, and then nobody listens any more.
//!
//! # The rule
//! A file keeps the last epoch. The next is the larger of that plus [`LIFE`] and the clock's nanoseconds since 1970, and is in the
//! file before anybody is told. So the file alone is enough for who has it, and the clock alone for who has lost it.
//! An epoch's life has [`LIFE`] numbers to itself, for whoever counts on from it.
//!
//! Worked example: the file says 2 000 000 000 000 000 000, the clock was set back by a year. The epoch is 2 000 000 004 294 967 296.
//!
//! # What it guarantees
//! Epochs grow as long as the file is kept or the clock is not set back; only both together lose the order. Where the file
//! cannot be written, the epoch is right as long as the clock is, and the caller is told.

use crate::replace;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Numbers that belong to one start: more than anybody counts in a life.
pub const LIFE: u64 = 1 << 32;
/// The clock is believed up to the year 2262, so that there is always room to count on.
const CLOCK_MAX: u64 = i64::MAX as u64;

/// The next epoch by the file at `path`, and why the file does not have it, if so. A file that is there and cannot be read, or
/// does not say a number, is an error: nobody knows what was said before.
pub fn epoch(path: &Path) -> io::Result<(u64, Option<io::Error>)> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    epoch_at(path, clock)
}

fn epoch_at(path: &Path, clock: Duration) -> io::Result<(u64, Option<io::Error>)> {
    let clock = u64::try_from(clock.as_nanos()).unwrap_or(u64::MAX).min(CLOCK_MAX);
    let next = match last(path)? {
        Some(last) => last.saturating_add(LIFE).max(clock),
        None => clock.max(1),
    };
    Ok((next, replace(path, format!("{next}\n").as_bytes()).err()))
}

fn last(path: &Path) -> io::Result<Option<u64>> {
    let wrong = |kind, why: String| io::Error::new(kind, format!("{}: {why}", path.display()));
    match std::fs::read_to_string(path) {
        Ok(text) => match text.trim_end().parse() {
            Ok(last) => Ok(Some(last)),
            Err(_) => {
                let why = format!(
                    "no epoch: \"{}\"; where the clock is right, the file may be removed",
                    text.escape_debug().take(40).collect::<String>()
                );
                Err(wrong(io::ErrorKind::InvalidData, why))
            }
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(wrong(e.kind(), e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const YEAR: Duration = Duration::from_secs(365 * 86_400);

    #[test]
    fn it_grows_whatever_the_clock_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/epoch");
        let mut before = 0;
        // Forward, back, to 1970, and where no clock should be.
        for clock in [56, 57, 40, 0, 56, 300, 600, 1].map(|years| YEAR * years) {
            let (epoch, trouble) = epoch_at(&path, clock).unwrap();
            assert!(trouble.is_none() && epoch >= before + LIFE, "{before}, then {epoch} at {clock:?}");
            before = epoch;
        }
    }

    #[test]
    fn who_has_lost_the_file_goes_by_the_clock_and_who_cannot_write_it_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("epoch");
        let (first, _) = epoch_at(&path, YEAR * 56).unwrap();
        fs::remove_file(&path).unwrap();
        let (second, _) = epoch_at(&path, YEAR * 57).unwrap();
        assert!(second > first);
        fs::write(dir.path().join("file"), "").unwrap();
        let nowhere = dir.path().join("file/epoch");
        assert!(epoch_at(&nowhere, YEAR).is_err(), "what is not a missing file is an error");
        // Nothing to read there, and no folder can be made there, not even by root.
        let (third, trouble) = epoch_at(Path::new("/proc/henge/epoch"), YEAR * 58).unwrap();
        assert!(third > second && trouble.is_some_and(|e| e.to_string().contains("/proc/henge/epoch")));
    }

    #[test]
    fn a_file_that_says_nothing_is_an_error_that_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("epoch");
        for text in ["", "x", "-1", "99999999999999999999999"] {
            fs::write(&path, text).unwrap();
            let error = epoch_at(&path, YEAR).unwrap_err().to_string();
            assert!(error.contains("epoch: no epoch") && error.contains("removed"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing is lost");
        }
    }
}
