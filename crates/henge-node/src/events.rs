//! What happened to the disks, kept across restarts: a bounded log of JSON lines in the state directory.
//!
//! [`KEPT`] events are held in memory and in `events.jsonl`. Where one more comes, the oldest goes of whoever has most: so a tenant whose disk
//! changes without end loses its own past, and not what was said of others' promises. Once the file holds twice as many it is written
//! anew (beside, then renamed). Lines that cannot be read, as after a crash in the middle of one, are left out.
//! Off the data path: the control socket's threads and the watcher write here.

use henge_api::{Event, EventKind};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most events kept.
pub const KEPT: usize = 4096;
/// The longest line that is read back.
const LINE_MAX: usize = 16 << 10;

/// Milliseconds since 1970.
pub(crate) fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// The log.
pub(crate) struct Events {
    inner: Mutex<Inner>,
}

/// Events by number.
#[derive(Default)]
struct Kept {
    events: BTreeMap<u64, Event>,
    by_whom: BTreeMap<String, BTreeSet<u64>>,
}

/// Whose an event is: a manager's tenants have names that end before a dot, and what was refused is everybody's.
fn whose(event: &Event) -> &str {
    match event.kind {
        EventKind::Refused => "",
        _ => event.name.split('.').next().unwrap_or_default(),
    }
}

impl Kept {
    fn add(&mut self, event: Event) {
        self.remove(event.seq);
        self.by_whom.entry(whose(&event).to_owned()).or_default().insert(event.seq);
        self.events.insert(event.seq, event);
        if self.events.len() > KEPT {
            let most = self.by_whom.values().max_by_key(|of| (of.len(), Reverse(of.first().copied())));
            let oldest = most.and_then(|of| of.first().copied());
            oldest.into_iter().for_each(|seq| self.remove(seq));
        }
    }

    fn remove(&mut self, seq: u64) {
        let Some(event) = self.events.remove(&seq) else { return };
        let Some(theirs) = self.by_whom.get_mut(whose(&event)) else { return };
        theirs.remove(&seq);
        if theirs.is_empty() {
            self.by_whom.remove(whose(&event));
        }
    }
}

struct Inner {
    kept: Kept,
    next: u64,
    file: Option<File>,
    /// None where nothing is remembered.
    path: Option<PathBuf>,
    lines: usize,
    /// Something is not in the file that should be there, or is there in part.
    torn: bool,
}

impl Events {
    /// What the folder remembers; where it cannot be written, or there is none, events are kept in memory alone and the log says so.
    pub(crate) fn open(folder: Option<&Path>) -> Events {
        let path = folder.map(|folder| folder.join("events.jsonl"));
        let kept = path.as_ref().and_then(|path| File::open(path).ok()).map(read).unwrap_or_default();
        let next = kept.events.keys().next_back().map_or(1, |seq| seq + 1);
        let mut inner = Inner { kept, next, file: None, path, lines: 0, torn: false };
        inner.mend();
        Events { inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("nobody panics while noting an event")
    }

    /// Notes what happened now.
    pub(crate) fn note(&self, kind: EventKind, name: &str, detail: impl Into<String>) {
        let mut inner = self.lock();
        let mut detail: String = detail.into();
        if detail.len() > 1024 {
            let end = (0..=1024).rev().find(|i| detail.is_char_boundary(*i)).unwrap_or(0);
            detail.truncate(end);
        }
        let event = Event { seq: inner.next, at: wall(), kind, name: name.to_owned(), detail };
        inner.next += 1;
        match kind {
            EventKind::Violated | EventKind::Refused | EventKind::Storage | EventKind::Drifted => {
                tracing::warn!(event = kind.as_str(), name, detail = event.detail);
            }
            _ => tracing::info!(event = kind.as_str(), name, detail = event.detail),
        }
        inner.append(&event);
        inner.kept.add(event);
        if inner.lines > 2 * KEPT || inner.torn {
            inner.mend();
        }
    }

    /// The newest `most`, oldest first, of one name or of all, that came after `after`.
    pub(crate) fn after(&self, name: Option<&str>, after: u64, most: usize) -> Vec<Event> {
        let inner = self.lock();
        let of = |e: &&Event| name.is_none_or(|n| n == e.name);
        let later = inner.kept.events.range(after.saturating_add(1)..).rev().map(|(_, event)| event);
        let mut found: Vec<Event> = later.filter(of).take(most).cloned().collect();
        found.reverse();
        found
    }

    /// Whether a disk of that name was admitted (and not removed since), as far as it is remembered.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.last_of(name).is_some_and(|kind| kind != EventKind::Removed)
    }

    /// Whether a disk of that name was removed (and not admitted since). Of one that only older events told of nobody knows.
    pub(crate) fn was_removed(&self, name: &str) -> bool {
        self.last_of(name) == Some(EventKind::Removed)
    }

    /// What happened last to the disk of that name.
    fn last_of(&self, name: &str) -> Option<EventKind> {
        let inner = self.lock();
        let about = |e: &&Event| {
            e.name == name
                && !matches!(
                    e.kind,
                    EventKind::Refused | EventKind::Scheduler | EventKind::Started | EventKind::Storage
                )
        };
        inner.kept.events.values().rev().find(about).map(|e| e.kind)
    }
}

fn read(file: File) -> Kept {
    let mut kept = Kept::default();
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return kept,
            Ok(_) => {}
        }
        let Some(event) = (line.len() <= LINE_MAX).then(|| serde_json::from_slice(&line).ok()).flatten()
        else {
            continue;
        };
        kept.add(event);
    }
}

impl Inner {
    fn append(&mut self, event: &Event) {
        let Some(file) = self.file.as_mut().filter(|_| !self.torn) else { return };
        let mut line = serde_json::to_vec(event).expect("an event is plain data");
        line.push(b'\n');
        match file.write_all(&line) {
            Ok(()) => self.lines += 1,
            // A part of it may be there; the next line is not to be lost with it.
            Err(_) => self.torn = true,
        }
    }

    /// Writes the file anew; where that fails it is tried again with the next event. What is not in the file is in memory.
    fn mend(&mut self) {
        let failed = self.rewrite().err();
        if let Some(e) = failed.as_ref().filter(|_| !self.torn) {
            tracing::warn!(error = %e, "events are not kept across restarts");
        }
        if failed.is_none() && std::mem::take(&mut self.torn) {
            tracing::info!("events are kept across restarts again");
        }
        self.torn = failed.is_some();
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut text = Vec::new();
        for event in self.kept.events.values() {
            serde_json::to_writer(&mut text, event)?;
            text.push(b'\n');
        }
        henge_io::replace(path, &text)?;
        self.file = Some(OpenOptions::new().append(true).open(path)?);
        self.lines = self.kept.events.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_kept_across_restarts_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let events = Events::open(Some(dir.path()));
        for i in 0..3 * KEPT {
            events.note(EventKind::Changed, &format!("d{}", i % 2), format!("{i}"));
        }
        drop(events);
        let path = dir.path().join("events.jsonl");
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 2 * KEPT + 1, "{lines}");
        // A crash in the middle of a line, and somebody's editor.
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"seq\":9999999,\"at\":1\n\xff\xfe\n{\"seq\":").unwrap();
        let events = Events::open(Some(dir.path()));
        let newest = events.after(Some("d1"), 0, 2);
        assert_eq!(newest.iter().map(|e| e.seq).collect::<Vec<_>>(), [3 * KEPT as u64 - 2, 3 * KEPT as u64]);
        events.note(EventKind::Removed, "d1", "");
        assert_eq!(events.after(None, 3 * KEPT as u64, 9)[0].seq, 3 * KEPT as u64 + 1);
        assert!(events.knows("d0") && !events.knows("d1") && !events.knows("d2"));
        assert!(!events.was_removed("d0") && events.was_removed("d1"));
        assert!(!events.was_removed("d2"), "what is too old to be remembered is not removed by that");
    }

    #[test]
    fn nobody_makes_the_node_forget_what_others_did() {
        let dir = tempfile::tempdir().unwrap();
        let events = Events::open(Some(dir.path()));
        (0..9).for_each(|_| events.note(EventKind::Violated, "bob.web", ""));
        (0..9).for_each(|_| events.note(EventKind::Changed, "own", ""));
        // A tenant of a manager with as many disks as it likes.
        (0..2 * KEPT).for_each(|i| events.note(EventKind::Changed, &format!("ann.{i}"), ""));
        (0..2 * KEPT).for_each(|i| events.note(EventKind::Refused, &format!("{i}"), ""));
        drop(events);
        let events = Events::open(Some(dir.path()));
        let of = |name: &str| events.after(Some(name), 0, KEPT).len();
        assert_eq!((of("bob.web"), of("own")), (9, 9));
        let all = events.after(None, 0, 2 * KEPT);
        assert!(all.len() == KEPT && all.is_sorted_by_key(|event| event.seq));
        let theirs = all.iter().filter(|event| event.name.starts_with("ann.")).count();
        assert!(theirs.abs_diff(KEPT / 2) < 20, "{theirs}");
    }

    #[test]
    fn a_directory_that_cannot_be_made_stops_nobody() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let events = Events::open(Some(&file.path().join("below")));
        events.note(EventKind::Started, "", "é".repeat(2000));
        let noted = events.after(None, 0, 1);
        assert!(noted[0].detail.len() <= 1024 && noted[0].detail.chars().all(|c| c == 'é'));
    }

    #[test]
    fn what_could_not_be_written_is_once_it_can() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let events = Events::open(Some(dir.path()));
        events.note(EventKind::Started, "", "first");
        // A device that is always full takes the file's place.
        events.lock().file = Some(OpenOptions::new().append(true).open("/dev/full").unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        events.note(EventKind::Changed, "web", "second");
        std::fs::remove_dir(&path).unwrap();
        events.note(EventKind::Changed, "web", "third");
        drop(events);
        let details: Vec<_> =
            Events::open(Some(dir.path())).after(None, 0, 9).into_iter().map(|e| e.detail).collect();
        assert_eq!(details, ["first", "second", "third"]);
    }
}
