//! The promise ledger: in how many of the seconds in which a disk wanted what it is promised it got it, kept across restarts.
//!
//! **Problem.** "Kept" over a whole run hides the bad minute that a tenant remembers; and whoever sells promises must say in a year how
//! they were kept.
//!
//! **Rule.** Each second is judged by itself (`promise.rs`), and counted, in milliseconds, in the hour and in the day (UTC) in which it ended,
//! and in all. The last [`HOURS`] hours and [`DAYS`] days are kept. Time during which the node did not run is in no count.
//!
//! **Bound.** A disk has at most [`HOURS`] + [`DAYS`] + 1 counts of [`WHYS`] reasons, whatever its age and however clocks step.
//!
//! **In the state directory**: `promises.jsonl`, a disk a line, written anew (beside, then renamed) once a minute where something was counted, and
//! at the end: a crash forgets a minute of counts. A line that cannot be read is left out, and said. What a disk was is forgotten once
//! it was removed: another one of its name begins anew.

use crate::promise::{self, Mark, Second, judge};
use henge_api::{DiskStatus, Kept, Seconds, Status};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Hours kept.
const HOURS: u64 = 24;
/// Days kept.
const DAYS: u64 = 30;
/// The number of reasons: a gate's, the device, the node. A file may say others; reasons beyond this number count as `other`.
const WHYS: usize = 16;
/// Disks whose days are told in one look: the days of a thousand disks would be megabytes every second.
const TOLD: usize = 8;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// Between two writings, by the clock of the looks.
const SAVE_MS: u64 = 60_000;
/// The longest line that is read back.
const LINE_MAX: usize = 1 << 20;

/// One disk's counts.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Counts {
    disk: String,
    ever: Seconds,
    /// By the number of the hour since 1970.
    hours: BTreeMap<u64, Seconds>,
    days: BTreeMap<u64, Seconds>,
}

impl Counts {
    /// A second that ended at `wall` was like this.
    fn count(&mut self, wall: u64, ms: u64, second: &Second) {
        let mut one = Seconds::default();
        match second {
            Second::NotWanted => return,
            Second::Kept => (one.wanted_ms, one.kept_ms) = (ms, ms),
            Second::Missed(why) => {
                let known = self.ever.missed_ms.contains_key(why) || self.ever.missed_ms.len() < WHYS;
                one.wanted_ms = ms;
                one.missed_ms.insert(if known { why.clone() } else { "other".into() }, ms);
            }
        }
        self.ever.add(&one);
        self.hours.entry(wall / HOUR_MS).or_default().add(&one);
        self.days.entry(wall / DAY_MS).or_default().add(&one);
        self.trim(wall);
    }

    /// Forgets what is too old; and, where a clock has stepped back, what has not come yet and is too much.
    fn trim(&mut self, wall: u64) {
        let keep = |counts: &mut BTreeMap<u64, Seconds>, now: u64, most: u64| {
            *counts = counts.split_off(&(now + 1).saturating_sub(most));
            while counts.len() as u64 > most {
                counts.pop_last();
            }
        };
        keep(&mut self.hours, wall / HOUR_MS, HOURS);
        keep(&mut self.days, wall / DAY_MS, DAYS);
    }

    fn kept(&self, wall: u64) -> Kept {
        let sum = |counts: &BTreeMap<u64, Seconds>, now: u64, most: u64| {
            let mut sum = Seconds::default();
            counts.range((now + 1).saturating_sub(most)..=now).for_each(|(_, one)| sum.add(one));
            sum
        };
        Kept {
            day: sum(&self.hours, wall / HOUR_MS, HOURS),
            month: sum(&self.days, wall / DAY_MS, DAYS),
            ever: self.ever.clone(),
            days: BTreeMap::new(),
        }
    }
}

/// What is known of a disk since the node began.
#[derive(Default)]
struct Seen {
    mark: Option<Mark>,
    known: promise::Known,
}

/// A disk that wanted its rate, of requests or bytes a second, and what it received.
pub(crate) struct Wanted {
    pub name: String,
    pub pools: Vec<String>,
    pub got: f64,
    pub rate: f64,
    pub bytes: bool,
}

/// All disks'.
pub(crate) struct Ledger {
    /// Nowhere, where a node remembers nothing.
    path: Option<PathBuf>,
    counts: BTreeMap<String, Counts>,
    seen: BTreeMap<String, Seen>,
    changed: bool,
    saved: u64,
    /// It cannot be written, which was said.
    failed: bool,
    /// Whose days are told next.
    turn: usize,
    /// Who wanted a rate at the last look.
    pub wanted: Vec<Wanted>,
}

impl Ledger {
    /// What the folder remembers.
    pub(crate) fn open(folder: Option<&Path>) -> Ledger {
        let path = folder.map(|folder| folder.join("promises.jsonl"));
        let counts = path.as_deref().map(read).unwrap_or_default();
        Ledger {
            path,
            counts,
            seen: BTreeMap::new(),
            changed: false,
            saved: 0,
            failed: false,
            turn: 0,
            wanted: Vec::new(),
        }
    }

    /// Judges the time since the last look, and tells each disk how its promise was kept. `is_removed`: of disks that are not there.
    pub(crate) fn see(&mut self, status: &mut Status, is_removed: impl Fn(&str) -> bool) {
        let wall = status.wall;
        self.wanted.clear();
        for disk in &mut status.disks {
            self.look(disk, wall);
        }
        self.tell_days(&mut status.disks);
        let here: BTreeSet<&str> = status.disks.iter().map(|disk| disk.name.as_str()).collect();
        self.seen.retain(|name, _| here.contains(name.as_str()));
        let before = self.counts.len();
        self.counts.retain(|name, _| here.contains(name.as_str()) || !is_removed(name));
        self.changed |= self.counts.len() < before;
        // A clock that stepped back does not keep it from being written.
        if wall.abs_diff(self.saved) >= SAVE_MS {
            self.save();
            self.saved = wall;
        }
    }

    fn look(&mut self, disk: &mut DiskStatus, wall: u64) {
        if !self.seen.contains_key(&disk.name) {
            self.seen.insert(disk.name.clone(), Seen::default());
        }
        let seen = self.seen.get_mut(&disk.name).expect("it was just put there");
        let mark = Mark::of(disk);
        if let Some(before) = &seen.mark
            && let Some(ms) = mark.since_ms(before)
        {
            let second = judge(before, &mark, disk, &mut seen.known);
            if second != Second::NotWanted {
                self.wanted.extend(wanted(before, &mark, disk, &seen.known));
                let counts = self.counts.entry(disk.name.clone()).or_default();
                counts.disk.clone_from(&disk.name);
                counts.count(wall, ms, &second);
                self.changed = true;
            }
        } else {
            seen.known = promise::Known::default();
        }
        seen.mark = Some(mark);
        disk.kept = self.counts.get(&disk.name).map(|counts| counts.kept(wall));
    }

    /// Tells [`TOLD`] disks' days, from the disk after those of the last look.
    fn tell_days(&mut self, disks: &mut [DiskStatus]) {
        let all = disks.len();
        for i in 0..all.min(TOLD) {
            let disk = &mut disks[(self.turn + i) % all];
            if let (Some(kept), Some(counts)) = (&mut disk.kept, self.counts.get(&disk.name)) {
                kept.days.clone_from(&counts.days);
            }
        }
        self.turn = if all > TOLD { (self.turn + TOLD) % all } else { 0 };
    }

    /// Writes what has changed.
    pub(crate) fn save(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let Some(path) = &self.path else { return };
        let result = self.write(path);
        if let Err(e) = &result
            && !self.failed
        {
            tracing::warn!(file = %path.display(), error = %e, "how promises are kept is not remembered across restarts");
        }
        self.failed = result.is_err();
        self.changed = self.failed;
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = Vec::new();
        for counts in self.counts.values() {
            serde_json::to_writer(&mut text, counts)?;
            text.push(b'\n');
        }
        henge_io::replace(path, &text)
    }
}

fn wanted(before: &Mark, now: &Mark, disk: &DiskStatus, known: &promise::Known) -> Option<Wanted> {
    let bytes = match disk.promise.unit.as_str() {
        "requests" => false,
        "bytes" => true,
        _ => return None,
    };
    let (got, rate) = promise::wanted(before, now, disk, known)?;
    Some(Wanted { name: disk.name.clone(), pools: disk.layout.pools.clone(), got, rate, bytes })
}

/// The counts in a file. Lines that cannot be read are reported, and left out.
fn read(path: &Path) -> BTreeMap<String, Counts> {
    let mut counts = BTreeMap::new();
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(e) => {
            if e.kind() != io::ErrorKind::NotFound {
                tracing::warn!(file = %path.display(), error = %e, "how promises were kept before cannot be read; counting begins anew");
            }
            return counts;
        }
    };
    for (n, line) in text.split(|b| *b == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let one = (line.len() <= LINE_MAX).then(|| serde_json::from_slice::<Counts>(line).ok()).flatten();
        match one {
            Some(one) => drop(counts.insert(one.disk.clone(), one)),
            None => {
                tracing::warn!(file = %path.display(), line = n + 1, "a disk's counts cannot be read; they begin anew");
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_api::{AtGates, CommandMeters, Promise};
    use proptest::prelude::*;

    fn second() -> impl Strategy<Value = Second> {
        prop_oneof![
            Just(Second::NotWanted),
            Just(Second::Kept),
            (0..40u8).prop_map(|n| Second::Missed(format!("reason {n}")))
        ]
    }

    proptest! {
        /// However clocks step and time passes: counts add up, and their number is bounded.
        #[test]
        fn counts_add_up_and_are_bounded(steps in prop::collection::vec((0u64..40 * DAY_MS, any::<bool>(), 1u64..5000, second()), 1..200)) {
            let mut counts = Counts::default();
            let (mut wall, mut wanted, mut kept) = (1_700_000_000_000u64, 0, 0);
            for (step, back, ms, second) in steps {
                // Mostly small steps; sometimes far, and back.
                let step = if step % 3 == 0 { step } else { step % 5000 };
                wall = if back && step % 3 == 0 { wall - step.min(wall / 2) } else { wall + step };
                counts.count(wall, ms, &second);
                wanted += if second == Second::NotWanted { 0 } else { ms };
                kept += if second == Second::Kept { ms } else { 0 };
                prop_assert!(counts.hours.len() as u64 <= HOURS && counts.days.len() as u64 <= DAYS);
                let now = counts.kept(wall);
                prop_assert_eq!((now.ever.wanted_ms, now.ever.kept_ms), (wanted, kept));
                for sum in [&now.day, &now.month, &now.ever] {
                    let missed: u64 = sum.missed_ms.values().sum();
                    prop_assert_eq!(sum.wanted_ms, sum.kept_ms + missed);
                    prop_assert!(sum.missed_ms.len() <= WHYS + 1);
                    prop_assert!(sum.wanted_ms <= wanted);
                }
            }
        }
    }

    fn disk(name: &str, at: u64, commands: u64) -> DiskStatus {
        let promise = Promise { rate: Some(100.0), unit: "requests".into(), ..Promise::default() };
        let busy = at * 1_000_000_000;
        let waits = BTreeMap::from([("own share".into(), busy)]);
        let meters = CommandMeters { metered: busy, commands, busy, ..CommandMeters::default() };
        let flow = AtGates { waits, wait: busy, ..AtGates::default() };
        DiskStatus { name: name.into(), meters, promise, flow, ..DiskStatus::default() }
    }

    fn look(ledger: &mut Ledger, at: u64, commands: u64) -> Kept {
        let wall = 1_800_000_000_000 + at * 1000;
        let disks = vec![disk("web", at, commands)];
        let mut status = Status { wall, disks, ..Status::default() };
        ledger.see(&mut status, |_| false);
        status.disks[0].kept.clone().unwrap_or_default()
    }

    #[test]
    fn counts_outlive_the_node_and_a_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(Some(dir.path()));
        let mut commands = 0;
        for at in 1..=100 {
            commands += if at % 10 == 0 { 50 } else { 100 };
            look(&mut ledger, at, commands);
        }
        ledger.save();
        let path = dir.path().join("promises.jsonl");
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{{\"disk\":\"old\",\"ever\":{{\"wanted_ms\":7,\n{whole}")).unwrap();
        // The node's meters begin at nothing again: the first look compares with none.
        let mut ledger = Ledger::open(Some(dir.path()));
        let kept = look(&mut ledger, 200, 3);
        assert_eq!((kept.ever.wanted_ms, kept.ever.kept_ms), (99_000, 89_000));
        assert_eq!(kept.day.missed_ms, BTreeMap::from([("own share".to_owned(), 10_000)]));
        assert_eq!(look(&mut ledger, 201, 103).month.kept_ms, 90_000);
    }

    #[test]
    fn days_are_told_of_a_few_disks_at_a_time_and_of_each_in_turn() {
        let mut ledger = Ledger::open(None);
        let mut told = BTreeMap::new();
        for at in 1..=8 {
            let disks = (0..20).map(|n| disk(&format!("d{n}"), at, 100 * at)).collect();
            let mut status = Status { wall: 1_800_000_000_000 + at * 1000, disks, ..Status::default() };
            ledger.see(&mut status, |_| false);
            let with_days = |d: &&DiskStatus| d.kept.as_ref().is_some_and(|kept| !kept.days.is_empty());
            let now: Vec<&str> = status.disks.iter().filter(with_days).map(|d| d.name.as_str()).collect();
            assert!(now.len() <= TOLD, "{now:?}");
            now.iter().for_each(|name| *told.entry((*name).to_owned()).or_insert(0) += 1);
        }
        assert_eq!(told.len(), 20, "each was told: {told:?}");
        let mut one =
            Status { wall: 1_800_000_009_000, disks: vec![disk("d0", 9, 900)], ..Status::default() };
        ledger.see(&mut one, |_| false);
        let kept = one.disks[0].kept.as_ref().unwrap();
        assert_eq!(kept.days, BTreeMap::from([(1_800_000_009_000 / DAY_MS, kept.ever.clone())]));
    }

    #[test]
    fn a_removed_disk_leaves_nothing_to_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(Some(dir.path()));
        look(&mut ledger, 1, 0);
        look(&mut ledger, 2, 100);
        let mut empty = Status { wall: 1_800_000_003_000, ..Status::default() };
        ledger.see(&mut empty, |_| false);
        assert_eq!(ledger.counts["web"].ever.kept_ms, 1000, "it may come back");
        ledger.see(&mut empty, |name| name == "web");
        assert!(ledger.counts.is_empty());
        ledger.save();
        assert_eq!(std::fs::read_to_string(dir.path().join("promises.jsonl")).unwrap(), "");
    }

    #[test]
    fn a_directory_that_cannot_be_written_stops_nobody() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut ledger = Ledger::open(Some(&file.path().join("below")));
        look(&mut ledger, 1, 0);
        look(&mut ledger, 2, 100);
        ledger.save();
        assert!(ledger.failed && ledger.changed);
        assert_eq!(look(&mut ledger, 3, 200).ever.kept_ms, 2000);
    }
}
