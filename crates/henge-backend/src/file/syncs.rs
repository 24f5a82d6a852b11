//! Who shares which sync, and who syncs by itself.
//!
//! # The problem
//! Each sync is a flush of the device's cache, or a commit of the file system's journal. It takes as long for a hundred writes as for one. A
//! durable write that syncs by itself (`RWF_DSYNC`) is over soonest, and a hundred of them are a hundred syncs, each of which has a worker of the
//! kernel and a place at the device.
//!
//! # The rule
//! A few syncs are under way on all files of a pool ([`line`](super::line)). A write past the page cache that finds room there syncs by itself. Any other durable
//! request first moves its data. Then it waits, as a FLUSH does, for a sync that begins after that. Of these shared syncs one of a file is under
//! way at a time. Whoever comes meanwhile waits for the next, which is one for all of them. Files have them in the order in which they asked.
//!
//! # Example
//! Writes A to F come at once, past the page cache. A to D sync by themselves. E and F move their data, and wait. When A is over, one sync is for
//! both. G, whose data arrives while that is under way, has the next.
//!
//! # Errors
//! The kernel tells of data that it could not write back once per open file, to whichever sync ends next, and counts that data as
//! clean from then on. So two syncs at once could not tell whose data was lost, and a later one succeeds although it is. That too is why one
//! is under way at a time. After one that failed all fail that waited for it, wait for the next, or come later, until the file is opened anew. (Past
//! the page cache each write is told its own error.)
//!
//! An administrator's change syncs the same file on another thread. While that is under way, whatever would be called durable is held
//! back: the error may be told over there, and nobody knows until that thread is done.
//!
//! # Guarantee
//! A request is answered as durable only after a sync that began when its data was there has ended well. It waits for one sync that is under way
//! and for its own, and for others' where more are wanted at once than are under way.

use super::Files;
use super::line::Begun;
use henge_core::Fault;
use std::io;
use std::os::fd::RawFd;

/// The syncs of one file.
#[derive(Default)]
pub(super) struct Syncs {
    /// Changes under way elsewhere that sync the file.
    elsewhere: u32,
    /// What is durable unless one of those fails.
    held: Vec<u32>,
    /// Whose sync is under way.
    leader: Option<u32>,
    begun: Option<Begun>,
    /// Whose data was there before it began.
    riders: Vec<u32>,
    /// Whose data was there after it began.
    waiting: Vec<u32>,
    /// It is in the line of the files that want a sync.
    queued: bool,
    pub failed: bool,
}

/// Files that have waited, and for which there is a place, have their syncs.
pub(super) fn begin_next(files: &mut Files) {
    while let Some(next) = files.line.next() {
        if let Some(syncs) = files.syncs.get_mut(&next) {
            syncs.queued = false;
        }
        files.sync(next);
    }
}

impl Files {
    /// Whether a write that could sync by itself has room for that.
    pub(super) fn may_be_alone(&mut self) -> bool {
        let room = self.line.is_free();
        self.line.under_way += u32::from(room);
        room
    }

    /// Its data is there: it is over with the next sync that begins.
    pub(super) fn waits(&mut self, token: u32) {
        super::awaits(self, token);
        let fd = self.get(token).fd;
        let syncs = self.syncs.entry(fd).or_default();
        if syncs.failed {
            return self.finish(token, Err(Fault::Io));
        }
        syncs.waiting.push(token);
        self.sync(fd);
    }

    /// Begins the next sync of a file, where somebody waits for one and none is under way.
    fn sync(&mut self, fd: RawFd) {
        let Some(syncs) = self.syncs.get_mut(&fd) else { return };
        if syncs.leader.is_some() || syncs.waiting.is_empty() || syncs.queued {
            return;
        }
        if !self.line.has_place() {
            syncs.queued = true;
            return self.line.wait(fd);
        }
        std::mem::swap(&mut syncs.riders, &mut syncs.waiting);
        let leader = syncs.riders.pop().expect("somebody waits");
        (syncs.leader, syncs.begun) = (Some(leader), Some(self.line.begin()));
        self.issue(leader);
    }

    /// The sync of a request is over, however it went: the next begins, of the file that has waited longest.
    pub(super) fn led(&mut self, fd: RawFd) {
        self.line.under_way -= 1;
        begin_next(self);
        self.sync(fd);
    }

    /// The same, where it led one for others.
    pub(super) fn lets_go(&mut self, token: u32, fd: RawFd) {
        if let Some(syncs) = self.syncs.get_mut(&fd).filter(|syncs| syncs.leader == Some(token)) {
            syncs.leader = None;
            syncs.begun.take().into_iter().for_each(|begun| self.line.took(begun));
            self.led(fd);
        }
    }

    /// A sync is over, and was good, unless something else has shown meanwhile that it cannot be trusted.
    pub(super) fn synced(&mut self, token: u32) {
        let fd = self.get(token).fd;
        let syncs = self.syncs.entry(fd).or_default();
        let mut riders = std::mem::take(&mut syncs.riders);
        self.lets_go(token, fd);
        self.durable(token);
        riders.drain(..).for_each(|token| self.durable(token));
        let Some(syncs) = self.syncs.get_mut(&fd) else { return };
        // Its memory is kept.
        for list in [&mut syncs.riders, &mut syncs.waiting] {
            if list.capacity() == 0 {
                std::mem::swap(list, &mut riders);
            }
        }
    }

    /// A request is durable, unless the file's last word is another.
    pub(super) fn durable(&mut self, token: u32) {
        let fd = self.get(token).fd;
        match self.syncs.get_mut(&fd) {
            Some(syncs) if syncs.failed => self.finish(token, Err(Fault::Io)),
            Some(syncs) if syncs.elsewhere > 0 => syncs.held.push(token),
            _ => self.finish(token, Ok(())),
        }
    }

    /// Somebody else is about to change a file that is served, and to sync it: [`heed_elsewhere`](Self::heed_elsewhere) says how it went.
    pub(crate) fn elsewhere(&mut self, fd: RawFd) {
        self.syncs.entry(fd).or_default().elsewhere += 1;
    }

    /// How that went: what was held back is durable, or not.
    pub(crate) fn heed_elsewhere<T>(&mut self, fd: RawFd, outcome: io::Result<T>) -> io::Result<T> {
        let syncs = self.syncs.entry(fd).or_default();
        syncs.elsewhere = syncs.elsewhere.saturating_sub(1);
        let outcome = self.heed(fd, outcome);
        let syncs = self.syncs.entry(fd).or_default();
        if syncs.elsewhere == 0 && !syncs.failed {
            std::mem::take(&mut syncs.held).into_iter().for_each(|token| self.finish(token, Ok(())));
        }
        outcome
    }

    /// What somebody else did with a file that is served. A failed sync is everybody's: the system has said so once, and says it to
    /// no FLUSH that follows.
    pub(crate) fn heed<T>(&mut self, fd: RawFd, outcome: io::Result<T>) -> io::Result<T> {
        if outcome.as_ref().is_err_and(crate::open::is_failed_sync) {
            self.poison(fd);
        }
        outcome
    }

    /// From now on nothing on this file can be called durable.
    pub(super) fn poison(&mut self, fd: RawFd) {
        let syncs = self.syncs.entry(fd).or_default();
        if std::mem::replace(&mut syncs.failed, true) {
            return;
        }
        self.failed.push(fd);
        let mut others = std::mem::take(&mut syncs.riders);
        others.append(&mut syncs.waiting);
        others.append(&mut syncs.held);
        others.into_iter().for_each(|other| self.finish(other, Err(Fault::Io)));
    }

    /// Whether a sync of a file has failed, whoever was told.
    pub(crate) fn has_failed(&self, fd: RawFd) -> bool {
        self.syncs.get(&fd).is_some_and(|syncs| syncs.failed)
    }

    /// That descriptor was closed; the next file of that number is another.
    pub(crate) fn forget(&mut self, fd: RawFd) {
        let gone = self.syncs.remove(&fd);
        self.line.under_way -= u32::from(gone.is_some_and(|syncs| syncs.leader.is_some()));
        self.line.forget(fd);
        self.holes.forget(fd);
        self.failed.retain(|failed| *failed != fd);
    }
}
