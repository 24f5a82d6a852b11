//! SIGHUP: when a program begins anew, and with which configuration.
//!
//! # The problem
//! Whoever lets clients go finds out too late that the next program does not begin. A file that was right a moment ago may be half written by then.
//! And each beginning is a pause for clients, however often it is asked for.
//!
//! # The rule
//! The text that was found to be right is what the next program begins with: it is handed over, and not read again. A file that
//! says something else by then is looked at as if SIGHUP had come. So no change is lost by a signal that comes while no program
//! listens. Looks are a [`REST`] apart, and all signals between two of them are one. Whoever took long to begin rests for nine times as long.
//! So a storm of signals takes a tenth of the time from clients at most, however many disks there are.

use henge_config::Source;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// From one look at the file to the next, and from a beginning to the first look, at least.
const REST: Duration = Duration::from_secs(1);

/// Whether somebody has asked, and when that is looked at.
#[derive(Default)]
pub(super) struct HangUps {
    asked: bool,
    rests_until: Option<Instant>,
}

impl HangUps {
    /// The program serves, in the place of another one, and has taken so long for it.
    pub(super) fn have_begun(&mut self, took: Duration, now: Instant) {
        self.rests_until = Some(now + REST.max(took * 9));
    }

    /// Somebody asks.
    pub(super) fn ask(&mut self) {
        self.asked = true;
    }

    /// For how long to wait for further signals: `most`, or until a look is due.
    pub(super) fn patience(&self, most: Duration, now: Instant) -> Duration {
        match (self.asked, self.rests_until) {
            (true, Some(until)) => until.saturating_duration_since(now).min(most),
            (true, None) => Duration::ZERO,
            (false, _) => most,
        }
    }

    /// Whether the file is to be looked at now. Said once for all who have asked.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        if !self.asked || self.rests_until.is_some_and(|until| now < until) {
            return false;
        }
        (self.asked, self.rests_until) = (false, Some(now + REST));
        true
    }
}

/// What a program begins with: the text that the one before it has found to be right, or its file.
pub(super) fn source(file: &Path, left: Option<String>) -> io::Result<Source> {
    match left {
        Some(text) => Ok(Source::new(file.display().to_string(), text)),
        None => Source::read(file),
    }
}

/// Whether the file says something else by now, or nothing.
pub(super) fn has_changed(file: &Path, since: &Source) -> bool {
    Source::read(file).map_or(true, |now| now.text() != since.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(3600);

    #[test]
    fn hundreds_of_signals_a_second_are_one_look_a_second() {
        let begun = Instant::now();
        let mut hang_ups = HangUps::default();
        assert!(!hang_ups.is_due(begun) && hang_ups.patience(MOST, begun) == MOST);
        let mut looks = Vec::new();
        for ms in 0..5_000 {
            let now = begun + Duration::from_millis(ms);
            hang_ups.ask();
            if hang_ups.is_due(now) {
                looks.push(ms);
            }
        }
        assert_eq!(looks, [0, 1000, 2000, 3000, 4000]);
        // The last of them is not lost.
        let now = begun + Duration::from_millis(4_999);
        assert_eq!(hang_ups.patience(MOST, now), Duration::from_millis(1));
        assert!(!hang_ups.is_due(now) && hang_ups.is_due(now + Duration::from_millis(1)));
        assert!(!hang_ups.is_due(now + MOST), "nobody has asked since");
    }

    #[test]
    fn who_has_begun_anew_rests_first_and_longer_where_that_was_long() {
        let begun = Instant::now();
        for (took_ms, rests_ms) in [(20, 1_000), (3_000, 27_000)] {
            let mut hang_ups = HangUps::default();
            hang_ups.have_begun(Duration::from_millis(took_ms), begun);
            hang_ups.ask();
            let rest = Duration::from_millis(rests_ms);
            assert!(!hang_ups.is_due(begun) && hang_ups.patience(MOST, begun) == rest);
            assert!(hang_ups.is_due(begun + rest));
        }
    }

    #[test]
    fn a_program_begins_with_what_was_found_to_be_right() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("node.toml");
        std::fs::write(&file, "cores = 2\n").unwrap();
        let checked = source(&file, None).unwrap();
        assert!(!has_changed(&file, &checked));
        std::fs::write(&file, "cor").unwrap();
        let begins = source(&file, Some(checked.text().to_owned())).unwrap();
        assert_eq!((begins.text(), begins.name()), ("cores = 2\n", checked.name()));
        assert!(has_changed(&file, &begins));
        std::fs::remove_file(&file).unwrap();
        assert!(has_changed(&file, &begins) && source(&file, None).is_err());
    }
}
