//! What happened to the disks, kept across restarts: a bounded log of JSON lines in the state directory.
//!
//! The newest [`KEPT`] events are held in memory and in `events.jsonl`; once the file holds twice as many it is written
//! anew (beside, then renamed). Lines that cannot be read, as after a crash in the middle of one, are left out.
//! Off the data path: the control socket's threads and the watcher write here.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most events kept.
pub const KEPT: usize = 4096;
/// The longest line that is read back.
const LINE_MAX: usize = 16 << 10;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The node began to serve.
    Started,
    /// A disk's contract was accepted, and the disk is served.
    Admitted,
    /// A disk's contract was changed.
    Changed,
    /// A disk was not accepted, or its contract not changed.
    Refused,
    /// A disk was removed.
    Removed,
    /// A pool got another scheduler.
    Scheduler,
    /// A disk does not receive what it was promised.
    Violated,
    /// It does again.
    Recovered,
}

impl EventKind {
    /// As people read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            EventKind::Started => "started",
            EventKind::Admitted => "admitted",
            EventKind::Changed => "changed",
            EventKind::Refused => "refused",
            EventKind::Removed => "removed",
            EventKind::Scheduler => "scheduler",
            EventKind::Violated => "violated",
            EventKind::Recovered => "recovered",
        }
    }
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Counts from 1, across restarts.
    pub seq: u64,
    /// Milliseconds since 1970, by the clock of who noted it.
    pub at: u64,
    /// What.
    pub kind: EventKind,
    /// Which disk (or pool); empty where it is about the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The particulars, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// Milliseconds since 1970.
pub(crate) fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// The log.
pub(crate) struct Events {
    inner: Mutex<Inner>,
}

struct Inner {
    kept: VecDeque<Event>,
    next: u64,
    file: Option<File>,
    path: PathBuf,
    lines: usize,
}

impl Events {
    /// What the directory remembers; where it cannot be written, events are kept in memory alone and the log says so.
    pub(crate) fn open(dir: &Path) -> Events {
        let path = dir.join("events.jsonl");
        let kept = File::open(&path).map(read).unwrap_or_default();
        let next = kept.back().map_or(1, |e| e.seq + 1);
        let mut inner = Inner { kept, next, file: None, path, lines: 0 };
        // A place that nobody has named or made is left alone.
        let made =
            if dir == Path::new(crate::config::STATE_DIR) { Ok(()) } else { std::fs::create_dir_all(dir) };
        let rewritten = made.and_then(|()| inner.rewrite());
        if let Err(e) = rewritten {
            tracing::warn!(file = %inner.path.display(), error = %e, "events are not kept across restarts");
        }
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
            EventKind::Violated | EventKind::Refused => {
                tracing::warn!(event = kind.as_str(), name, detail = event.detail);
            }
            _ => tracing::info!(event = kind.as_str(), name, detail = event.detail),
        }
        inner.append(&event);
        inner.kept.push_back(event);
        if inner.kept.len() > KEPT {
            inner.kept.pop_front();
        }
        if inner.lines > 2 * KEPT
            && let Err(e) = inner.rewrite()
        {
            tracing::warn!(error = %e, "the log of events cannot be written anew");
        }
    }

    /// The newest `most`, oldest first, of one name or of all, that came after `after`.
    pub(crate) fn after(&self, name: Option<&str>, after: u64, most: usize) -> Vec<Event> {
        let inner = self.lock();
        let of = |e: &&Event| e.seq > after && name.is_none_or(|n| n == e.name);
        let mut found: Vec<Event> = inner.kept.iter().rev().filter(of).take(most).cloned().collect();
        found.reverse();
        found
    }

    /// Whether a disk of that name was admitted (and not removed since).
    pub(crate) fn knows(&self, name: &str) -> bool {
        let inner = self.lock();
        let about = |e: &&Event| {
            e.name == name
                && !matches!(e.kind, EventKind::Refused | EventKind::Scheduler | EventKind::Started)
        };
        inner.kept.iter().rev().find(about).is_some_and(|e| e.kind != EventKind::Removed)
    }
}

fn read(file: File) -> VecDeque<Event> {
    let mut kept = VecDeque::new();
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
        kept.push_back(event);
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
}

impl Inner {
    fn append(&mut self, event: &Event) {
        let Some(file) = &mut self.file else { return };
        let mut line = serde_json::to_vec(event).expect("an event is plain data");
        line.push(b'\n');
        // What cannot be written is in memory and in the log of the process.
        if file.write_all(&line).is_ok() {
            self.lines += 1;
        }
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let beside = self.path.with_extension("jsonl.new");
        let mut text = Vec::new();
        for event in &self.kept {
            serde_json::to_writer(&mut text, event)?;
            text.push(b'\n');
        }
        std::fs::write(&beside, &text)?;
        std::fs::rename(&beside, &self.path)?;
        self.file = Some(OpenOptions::new().append(true).open(&self.path)?);
        self.lines = self.kept.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_kept_across_restarts_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let events = Events::open(dir.path());
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
        let events = Events::open(dir.path());
        let newest = events.after(Some("d1"), 0, 2);
        assert_eq!(newest.iter().map(|e| e.seq).collect::<Vec<_>>(), [3 * KEPT as u64 - 2, 3 * KEPT as u64]);
        events.note(EventKind::Removed, "d1", "");
        assert_eq!(events.after(None, 3 * KEPT as u64, 9)[0].seq, 3 * KEPT as u64 + 1);
        assert!(events.knows("d0") && !events.knows("d1") && !events.knows("d2"));
    }

    #[test]
    fn a_directory_that_cannot_be_made_stops_nobody() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let events = Events::open(&file.path().join("below"));
        events.note(EventKind::Started, "", "é".repeat(2000));
        let noted = events.after(None, 0, 1);
        assert!(noted[0].detail.len() <= 1024 && noted[0].detail.chars().all(|c| c == 'é'));
    }
}
