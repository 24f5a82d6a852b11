//! What an iSCSI unit or an NVMe namespace wants done, as commands of a virtual disk.
//!
//! Most actions are one command. Some are several: a pattern is written piece by piece; VERIFY reads and compares; a copy reads and writes;
//! ORWRITE reads, and writes only if nobody has written in between, or begins again. Of a disk over nodes it does so
//! extent by extent, as nobody holds the locks of two: no block is ever half one's and half another's.

use crate::plane::{Answer, Plane, Submitter};
use henge_backend::Buffer;
use henge_core::{Fault, Instant};
use henge_iscsi::scsi::{Action, Outcome};
use henge_vdisk::{Command, Failure, Frame, Kind, first_difference};

/// A command's buffer; its own bytes begin at `lead`.
pub(crate) struct Held {
    pub frame: Buffer,
    pub lead: usize,
}

impl Held {
    pub(crate) fn data(&self) -> &[u8] {
        &self.frame[self.lead..]
    }
}

/// Bytes of a pattern that are written at a time.
const FILL: u64 = 1 << 20;

/// An action on its way through a disk.
pub(crate) struct Job {
    action: Action,
    /// Bytes of a pattern, or of ORWRITE, that are written.
    done: u64,
    /// Bytes of ORWRITE that are under way.
    piece: u64,
    /// It does not go on once the disk has answered.
    given_up: bool,
    /// What ORWRITE has read, when the write is to come; or memory for what a copy writes.
    old: Option<Held>,
    /// What a copy does with what it has read.
    then: Option<Action>,
}

/// How a step went.
pub(crate) enum Step {
    /// The disk has a command.
    Submitted,
    /// There is no room or no memory; the same step again later.
    Later,
    /// It is over.
    Over(Verdict),
}

/// How an action ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    Done,
    Unequal(u64),
    Failed(Fault),
}

impl Verdict {
    pub(crate) fn outcome(self) -> Outcome<'static> {
        match self {
            Verdict::Done => Outcome::Done,
            Verdict::Unequal(at) => Outcome::Unequal(at),
            Verdict::Failed(fault) => Outcome::Failed(fault),
        }
    }
}

impl Job {
    pub(crate) fn new(action: Action) -> Job {
        Job { action, done: 0, piece: 0, given_up: false, old: None, then: None }
    }

    /// Reads `len` bytes at `from`, then writes them at `to`.
    pub(crate) fn copy(from: u64, to: u64, len: u64, fua: bool) -> Job {
        let then = Some(Action::Write { offset: to, len, fua });
        Job { then, ..Job::new(Action::Read { offset: from, len }) }
    }

    /// The range that it asks about, if it is GET LBA STATUS.
    pub(crate) fn extents(&self) -> Option<(u64, u64)> {
        match self.action {
            Action::Extents { offset, len } => Some((offset, len)),
            _ => None,
        }
    }

    /// Does no more than what is at the disk.
    pub(crate) fn give_up(&mut self) {
        self.given_up = true;
    }

    /// Sends the next command to the disk. `data`: the buffer of the SCSI command.
    pub(crate) fn step(
        &mut self,
        data: &mut Option<Held>,
        disk: usize,
        submitter: Submitter,
        plane: &mut Plane,
        now: Instant,
    ) -> Step {
        if !plane.disks.has_capacity(disk) {
            return Step::Later;
        }
        if let Action::Or { offset, len, .. } = self.action
            && self.old.is_none()
        {
            let vdisk = &plane.disks.of(disk).vdisk;
            let run =
                if vdisk.settings().owners { vdisk.layout().locate(offset + self.done).run } else { len };
            self.piece = run.min(len - self.done);
        }
        let (kind, offset, len, fua) = self.next();
        if kind == Kind::Write && !matches!(self.action, Action::Fill { .. }) {
            let Some(held) = data.take() else { return Step::Over(Verdict::Failed(Fault::Io)) };
            submit(
                plane,
                disk,
                submitter,
                Command { fua, ..Command::new(kind, offset, len, now, 0) },
                held.frame,
            );
            return Step::Submitted;
        }
        let frame = plane.disks.of(disk).vdisk.frame(kind, offset, len);
        if !self.has_target(frame, disk, plane) {
            return Step::Later;
        }
        let keeps = data.is_some() || self.old.is_some() && self.then.is_none();
        let buffer = match keeps {
            true => plane.take_more(disk, frame.len, submitter),
            false => plane.take_buffer(disk, frame.len),
        };
        let Some(mut buffer) = buffer else {
            // Copies that each wait for the other half of their memory would wait for ever.
            if self.then.is_some() {
                self.release(disk, plane);
            }
            return Step::Later;
        };
        if frame.zeroed {
            buffer.fill(0);
        }
        self.compose(&mut buffer, frame, len, data);
        submit(plane, disk, submitter, Command { fua, ..Command::new(kind, offset, len, now, 0) }, buffer);
        Step::Submitted
    }

    /// The bytes of a command that are not the SCSI command's own buffer.
    fn compose(&self, buffer: &mut Buffer, frame: Frame, len: u64, data: &mut Option<Held>) {
        let (lead, n) = (frame.lead as usize, len as usize);
        match (&self.action, frame.verify, &self.old, data) {
            (Action::Fill { pattern, .. }, ..) => {
                buffer[lead..lead + n].chunks_mut(pattern.len()).for_each(|to| {
                    to.copy_from_slice(&pattern[..to.len()]);
                });
            }
            (Action::CompareWrite { .. }, Some(verify), _, Some(data)) => {
                let (compare, new) = data.data().split_at(n);
                buffer[verify as usize..verify as usize + n].copy_from_slice(compare);
                buffer[lead..lead + n].copy_from_slice(&new[..n]);
            }
            (Action::Or { .. }, Some(verify), Some(old), Some(data)) => {
                let old = &old.data()[..n];
                buffer[verify as usize..verify as usize + n].copy_from_slice(old);
                let new = old.iter().zip(&data.data()[self.done as usize..]).map(|(a, b)| a | b);
                buffer[lead..lead + n].iter_mut().zip(new).for_each(|(to, byte)| *to = byte);
            }
            _ => {}
        }
    }

    /// A copy has memory for what it writes before it reads, unless what it reads is aligned as what it writes. False when memory is missing.
    fn has_target(&mut self, source: Frame, disk: usize, plane: &mut Plane) -> bool {
        let Some(Action::Write { offset, len, .. }) = self.then else { return true };
        let target = plane.disks.of(disk).vdisk.frame(Kind::Write, offset, len);
        if target == source || self.old.is_some() {
            return true;
        }
        let buffer = plane.take_buffer(disk, target.len);
        self.old = buffer.map(|frame| Held { frame, lead: target.lead as usize });
        self.old.is_some()
    }

    /// What a copy has read, where it is to be written from.
    fn moved(&mut self, read: Held, len: u64, disk: usize, plane: &mut Plane) -> Held {
        let Some(mut target) = self.old.take() else { return read };
        let n = len as usize;
        target.frame[target.lead..target.lead + n].copy_from_slice(&read.data()[..n]);
        plane.put_buffer(disk, read.frame);
        plane.round.note(disk, len);
        target
    }

    /// Kind, offset, length and FUA of the next command.
    fn next(&self) -> (Kind, u64, u64, bool) {
        match self.action {
            Action::Read { offset, len }
            | Action::Check { offset, len }
            | Action::Compare { offset, len } => (Kind::Read, offset, len, false),
            Action::Write { offset, len, fua } => (Kind::Write, offset, len, fua),
            Action::CompareWrite { offset, len, fua } => (Kind::CompareAndWrite, offset, len, fua),
            Action::Or { offset, fua, .. } => {
                let kind = if self.old.is_some() { Kind::CompareAndWrite } else { Kind::Read };
                (kind, offset + self.done, self.piece, fua)
            }
            Action::Fill { offset, len, .. } => {
                (Kind::Write, offset + self.done, (len - self.done).min(FILL), false)
            }
            // To SCSI, what is given back reads as zeroes, its unaligned ends too: TRIM is a hint and does not do.
            Action::Zero { offset, len, fua } => (Kind::WriteZeroes { no_hole: false }, offset, len, fua),
            Action::Trim { offset, len } => (Kind::WriteZeroes { no_hole: false }, offset, len, false),
            // The gate is to see that it is asked, not how far the answer may reach.
            Action::Extents { offset, .. } => (Kind::Status, offset, 0, false),
            Action::Flush | Action::Reserve(_) | Action::Sweep(_) => (Kind::Flush, 0, 0, false),
        }
    }

    /// The disk has answered: over, or there is another step.
    pub(crate) fn answered(
        &mut self,
        answer: Answer,
        data: &mut Option<Held>,
        plane: &mut Plane,
    ) -> Option<Verdict> {
        let Answer { disk, outcome, frame, lead, .. } = answer;
        let held = Held { frame, lead: lead as usize };
        let verdict = match outcome {
            Ok(()) => Verdict::Done,
            Err(Failure::Fault(fault)) => Verdict::Failed(fault),
            Err(Failure::Miscompare { at }) => {
                let (kind, offset, len, _) = self.next();
                let verify = plane.disks.of(disk).vdisk.frame(kind, offset, len).verify;
                Verdict::Unequal(at - verify.unwrap_or(0))
            }
        };
        let done = matches!(verdict, Verdict::Done);
        match &self.action {
            Action::Read { len, .. } if done && self.then.is_some() => {
                let len = *len;
                *data = Some(self.moved(held, len, disk, plane));
                if let Some(write) = self.then.take() {
                    self.action = write;
                }
                return self.given_up.then_some(Verdict::Failed(Fault::Cancelled));
            }
            Action::Read { .. } if done => {
                *data = Some(held);
                return Some(verdict);
            }
            Action::Write { .. } => {
                // It stays the SCSI command's: WRITE AND VERIFY compares with it.
                *data = Some(held);
                return Some(verdict);
            }
            Action::Or { len, .. } => {
                let len = *len;
                return self.or_answered(verdict, held, len, disk, plane);
            }
            Action::Compare { len, .. } if done => {
                let (read, len) = (held.data(), *len as usize);
                let wanted = data.as_ref().map_or(&[][..], Held::data);
                let differs = first_difference(&read[..len.min(read.len())], wanted);
                plane.round.note(disk, len as u64);
                plane.put_buffer(disk, held.frame);
                return Some(differs.map_or(verdict, |at| Verdict::Unequal(at as u64)));
            }
            _ => plane.put_buffer(disk, held.frame),
        }
        if let Action::Fill { len, .. } = self.action
            && done
        {
            self.done += (len - self.done).min(FILL);
            if self.done < len {
                return self.given_up.then_some(Verdict::Failed(Fault::Cancelled));
            }
            return Some(verdict);
        }
        self.release(disk, plane);
        Some(verdict)
    }

    /// What was to be changed by OR has been read, or was compared and written.
    fn or_answered(
        &mut self,
        verdict: Verdict,
        held: Held,
        len: u64,
        disk: usize,
        plane: &mut Plane,
    ) -> Option<Verdict> {
        let (done, read) = (matches!(verdict, Verdict::Done), self.old.is_none());
        if done && read && !self.given_up {
            self.old = Some(held);
            return None;
        }
        plane.put_buffer(disk, held.frame);
        self.release(disk, plane);
        if self.given_up && (read || !done) {
            return Some(Verdict::Failed(Fault::Cancelled));
        }
        if matches!(verdict, Verdict::Unequal(_)) {
            return None; // somebody else wrote; once more from what there is now
        }
        if done && self.done + self.piece < len {
            self.done += self.piece;
            return self.given_up.then_some(Verdict::Failed(Fault::Cancelled));
        }
        Some(verdict)
    }

    /// Gives back what it holds.
    pub(crate) fn release(&mut self, disk: usize, plane: &mut Plane) {
        if let Some(old) = self.old.take() {
            plane.put_buffer(disk, old.frame);
        }
    }
}

fn submit(plane: &mut Plane, disk: usize, submitter: Submitter, command: Command, frame: Buffer) {
    let now = command.arrival;
    plane.submit(disk, command, frame, submitter, now);
}
