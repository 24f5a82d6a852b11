//! What is written of every change: the change with its revision, to be stored, and the log that people read.

use super::log::Log;
use crate::model::{DiskRecord, Event};
use crate::store::Batch;
use serde::Serialize;

/// The latest revision that is believed of a node: half of what a node may say ([`crate::heard`]).
const BELIEVED_MAX: u64 = 1 << 52;

/// The time, the revision and the log; and all that is to be stored.
pub(crate) struct Journal {
    now: u64,
    revision: u64,
    batch: Batch,
    log: Log,
}

impl Journal {
    pub(super) fn new(events_max: usize) -> Journal {
        Journal { now: 0, revision: 0, batch: Batch::default(), log: Log::new(events_max) }
    }

    pub(super) fn restore(&mut self, kind: &str, value: &[u8]) -> serde_json::Result<()> {
        match kind {
            "event" => self.log.add(serde_json::from_slice(value)?),
            _ => self.revision = serde_json::from_slice(value)?,
        }
        Ok(())
    }

    /// Time goes on, and never back.
    pub(super) fn at(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// The time it was told last, in milliseconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// The revision of the latest change.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Revisions from now on are above one that a node knows. One that nobody ever counts to is believed of no node: nodes and managers
    /// count no further than a little beyond it.
    pub(super) fn is_ahead_of(&mut self, revision: u64) {
        if revision <= BELIEVED_MAX {
            self.revision = self.revision.max(revision);
        }
    }

    pub(super) fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        let revision = self.revision;
        self.put("meta/revision".into(), Some(&revision));
        revision
    }

    /// Something is to be stored, or forgotten.
    pub(super) fn put<T: Serialize>(&mut self, key: String, value: Option<&T>) {
        let bytes = value.map(|v| serde_json::to_vec(v).expect("our records have keys that are texts"));
        self.batch.changes.push((key, bytes));
    }

    pub(super) fn put_event(
        &mut self,
        kind: &str,
        disk: Option<&DiskRecord>,
        node: Option<&str>,
        text: String,
    ) {
        let (name, tenant) = disk.map(|d| (d.name.clone(), d.tenant.clone())).unzip();
        self.note(Event {
            disk: name,
            node: node.map(str::to_owned),
            ..self.event(kind, tenant.flatten(), text)
        });
    }

    /// What a tenant did to no disk: it is in the way of its own events alone.
    pub(super) fn put_event_of(&mut self, kind: &str, tenant: Option<&str>, text: String) {
        self.note(self.event(kind, tenant.map(str::to_owned), text));
    }

    fn event(&self, kind: &str, tenant: Option<String>, text: String) -> Event {
        let id = self.log.newest().map_or(1, |e| e.id + 1);
        Event { id, time: self.now, kind: kind.to_owned(), disk: None, node: None, tenant, text }
    }

    fn note(&mut self, event: Event) {
        self.put(format!("event/{:020}", event.id), Some(&event));
        self.log.add(event);
        while let Some(gone) = self.log.take_surplus() {
            self.put::<Event>(format!("event/{:020}", gone.id), None);
        }
    }

    /// Events after one, the oldest first.
    pub(super) fn events(&self, after: u64) -> impl DoubleEndedIterator<Item = &Event> {
        self.log.after(after)
    }

    /// Whether the latest event says the same.
    pub(super) fn says_last(&self, text: &str) -> bool {
        self.log.newest().is_some_and(|e| e.text == text)
    }

    /// Events of a tenant that ends are the administrator's: no tenant's name has a space.
    pub(super) fn disown_events(&mut self, name: &str) {
        for event in self.log.give(name, &format!("{name} (removed)")) {
            self.put(format!("event/{:020}", event.id), Some(&event));
        }
    }

    /// Everything that is to be stored now.
    pub(super) fn take_batch(&mut self) -> Batch {
        std::mem::take(&mut self.batch)
    }
}
