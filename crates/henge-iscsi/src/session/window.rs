//! READs and WRITEs that are longer than a piece: they go through one buffer, piece by piece.
//!
//! The problem: an initiator that takes no replies, or sends no data, would hold the whole length of its commands, times the commands that it
//! may have. The rule: of a long command one piece is under way. A READ's is read, then sent in Data-In PDUs; once these are sent, the next
//! one is read. Data for a WRITE are asked for (R2T) up to the piece's end; once that is written, for the next one. Pieces end at whole
//! pages of the disk.
//!
//! Example: a READ of 4 MiB by an initiator that reads nothing: 1 MiB is read and held. An initiator that answers no R2T holds what has come.
//!
//! Price: a long READ that is alone is not read ahead; a WRITE that is aborted may have written some pieces, as SCSI allows.

use super::command::{Task, Work};
use super::{Session, Step};
use crate::scsi::Action;
use crate::target::Targets;
use henge_core::RequestId;

/// Pieces are no shorter: the data that come unasked fit into the first one.
const LEAST: u64 = 128 << 10;
/// Pieces end at multiples of it.
const PAGE: u64 = 4096;

impl Session {
    /// Commands that come from now on go in pieces of so many bytes, if they are longer.
    pub fn set_piece(&mut self, bytes: u64) {
        self.limits.piece = bytes;
    }

    /// How long pieces of a new command are.
    pub(super) fn piece(&self) -> u64 {
        self.limits.piece.max(LEAST).max(u64::from(self.agreed.first_burst).next_multiple_of(PAGE) + PAGE)
    }

    /// A piece is over, and well; there is another one. `buffer` is the command's.
    pub(super) fn next_piece(&mut self, targets: &mut Targets, id: RequestId, buffer: &[u8]) {
        let Some(task) = self.tasks.get(id) else { return };
        if matches!(task.next_action(), Some(Action::Read { .. })) {
            return self.send_piece(id, buffer);
        }
        self.turn_page(id);
        self.advance_task(targets, id);
    }

    /// A READ's piece is sent: the next one is read.
    pub(super) fn piece_sent(&mut self, targets: &mut Targets, id: RequestId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.sending = false;
        self.turn_page(id);
        self.execute(targets, id);
    }

    /// The command's next bytes come; those before need the buffer no more.
    fn turn_page(&mut self, id: RequestId) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let Some((_, len)) = task.piece_at() else { return };
        task.base += len as usize;
        self.steps.push_back(Step::Release(id));
    }
}

impl Task {
    /// The one action of a command that goes in pieces: its first byte, and its length.
    fn long(&self) -> Option<(u64, u64)> {
        let Work::Storage(actions) = &self.work else { return None };
        let [Action::Read { offset, len } | Action::Write { offset, len, .. }] = actions[..] else {
            return None;
        };
        (len > self.window).then_some((offset, len))
    }

    /// The piece that is next: where on the disk, and its length. `None` where the command is done at once.
    pub fn piece_at(&self) -> Option<(u64, u64)> {
        let (offset, len) = self.long()?;
        let at = offset + self.base as u64;
        Some((at, (self.window - at % PAGE).min(len - self.base as u64)))
    }

    /// Whether another piece comes after this one.
    pub fn has_another(&self) -> bool {
        self.long().zip(self.piece_at()).is_some_and(|((_, all), (_, len))| (self.base as u64 + len) < all)
    }

    /// Bytes of its data after which something is to be done with them.
    pub fn piece_end(&self) -> usize {
        self.piece_at().map_or(self.takes, |(_, len)| self.takes.min(self.base + len as usize))
    }

    /// What the storage is to do next.
    pub fn next_action(&self) -> Option<Action> {
        let Work::Storage(actions) = &self.work else { return None };
        let action = actions.last()?.clone();
        let Some((at, piece)) = self.piece_at() else { return Some(action) };
        Some(match action {
            Action::Read { .. } => Action::Read { offset: at, len: piece },
            Action::Write { fua, .. } => Action::Write { offset: at, len: piece, fua },
            other => other,
        })
    }
}
