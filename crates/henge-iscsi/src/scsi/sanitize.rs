//! SANITIZE: the whole disk is overwritten or given back, in the background (SBC-3, sections 4.11 and 5.20).
//!
//! The work belongs to the unit, not to who asked for it: it goes on through resets and lost sessions, in
//! pieces, and all that would touch the medium is answered NOT READY, SANITIZE IN PROGRESS meanwhile. It
//! begins when nothing else is at the storage. CRYPTOGRAPHIC ERASE does not exist: nothing is encrypted here.

use super::cdb::be16;
use super::{Action, Outcome, Plan, Sense, Unit};

/// Service action EXIT FAILURE MODE.
pub const EXIT_FAILURE: u8 = 0x1f;
const OVERWRITE: u8 = 0x01;
/// Bytes of one piece that is overwritten. A multiple of each block size.
const PIECE: u64 = 4 << 20;
/// Bytes of one piece that is given back.
const TRIM_PIECE: u64 = 1 << 30;

#[derive(Debug)]
struct Job {
    /// What to write; `None` gives the blocks back.
    pattern: Option<Box<[u8]>>,
    /// Rounds to go, this one included.
    rounds: u64,
    all_rounds: u64,
    /// Whether each round inverts what the one before wrote.
    invert: bool,
    /// First byte that is not done.
    next: u64,
    /// Whether a piece is at the storage.
    running: bool,
}

/// How far a unit's sanitize operation is.
#[derive(Debug, Default)]
pub struct Sanitize {
    job: Option<Job>,
    /// The last one failed; the medium cannot be used until EXIT FAILURE MODE.
    pub(super) failed: bool,
}

impl Sanitize {
    /// In 65536ths; `None` when there is nothing to do.
    pub fn progress(&self, bytes: u64) -> Option<u16> {
        let job = self.job.as_ref()?;
        let done = u128::from(job.all_rounds - job.rounds) * u128::from(bytes) + u128::from(job.next);
        let whole = u128::from(job.all_rounds) * u128::from(bytes);
        Some((done * 65_536 / whole.max(1)).min(65_535) as u16)
    }
    /// Whether one is under way.
    pub fn active(&self) -> bool {
        self.job.is_some()
    }
}

impl Unit {
    pub(super) fn start_sanitize(&mut self, cdb: &[u8; 16]) -> Plan {
        let (action, len) = (cdb[1] & 0x1f, usize::from(be16(cdb, 7)));
        if action == OVERWRITE {
            // A pattern of one byte to one block, after four bytes
            let fits = len > 4 && len <= 4 + self.properties.block_size() as usize;
            return if fits { Plan::Parameters(len) } else { Sense::field(7).into() };
        }
        if len != 0 {
            return Sense::field(7).into();
        }
        if action == EXIT_FAILURE {
            self.sanitize.failed = false;
            return Plan::GOOD;
        }
        self.begin_sanitize(cdb, None, 1, false)
    }

    /// OVERWRITE's list (SBC-3 5.20.2).
    pub(super) fn sanitize_overwrite(&mut self, cdb: &[u8; 16], list: &[u8]) -> Plan {
        if list.len() < 5 {
            return Sense::LIST_LENGTH.into();
        }
        let (invert, rounds) = (list[0] & 0x80 != 0, list[0] & 0x1f);
        let len = usize::from(be16(list, 2));
        if rounds == 0 || list[0] & 0x60 != 0 {
            return Sense::parameter(0).into();
        }
        if len == 0 || len > self.properties.block_size() as usize || len != list.len() - 4 {
            return Sense::parameter(2).into();
        }
        // Each block begins with the pattern anew.
        let block: Box<[u8]> =
            list[4..].iter().copied().cycle().take(self.properties.block_size() as usize).collect();
        self.begin_sanitize(cdb, Some(block), u64::from(rounds), invert)
    }

    /// What keeps commands from the medium while one is under way.
    pub(crate) fn sanitizing(&self) -> Option<Sense> {
        self.sanitize.progress(self.properties.bytes).map(Sense::sanitizing)
    }

    fn begin_sanitize(
        &mut self,
        cdb: &[u8; 16],
        pattern: Option<Box<[u8]>>,
        rounds: u64,
        invert: bool,
    ) -> Plan {
        if let Some(sense) = self.sanitizing() {
            return sense.into(); // another one began while this one's list came
        }
        let job = Job { pattern, rounds, all_rounds: rounds, invert, next: 0, running: false };
        self.sanitize = Sanitize { job: Some(job), failed: false };
        let immediate = cdb[1] & 0x80 != 0;
        if immediate { Plan::GOOD } else { Plan::Background }
    }

    /// The next piece of work that belongs to the unit itself, if it can begin now. Answer it by
    /// [`Unit::background_done`].
    pub fn background(&mut self) -> Option<Action> {
        let quiet = self.quiet();
        let bytes = self.properties.bytes;
        let job = self.sanitize.job.as_mut()?;
        if job.running || !quiet {
            return None;
        }
        job.running = true;
        let offset = job.next;
        Some(match &job.pattern {
            Some(pattern) => {
                Action::Fill { offset, len: PIECE.min(bytes - offset), pattern: pattern.clone() }
            }
            None => Action::Trim { offset, len: TRIM_PIECE.min(bytes - offset) },
        })
    }

    /// A piece is done. `true` when that ended the work.
    pub fn background_done(&mut self, outcome: &Outcome<'_>) -> bool {
        let bytes = self.properties.bytes;
        let Some(job) = &mut self.sanitize.job else { return false };
        job.running = false;
        if *outcome == Outcome::Full {
            return false;
        }
        if *outcome != Outcome::Done {
            self.sanitize = Sanitize { job: None, failed: true };
            return true;
        }
        let piece = if job.pattern.is_some() { PIECE } else { TRIM_PIECE };
        job.next = job.next.saturating_add(piece);
        if job.next < bytes {
            return false;
        }
        job.next = 0;
        job.rounds -= 1;
        if job.invert
            && let Some(pattern) = &mut job.pattern
        {
            pattern.iter_mut().for_each(|byte| *byte = !*byte);
        }
        if job.rounds == 0 {
            self.sanitize.job = None;
        }
        !self.sanitize.active()
    }

    /// How a background operation that somebody waited for has ended.
    pub(crate) fn background_status(&self) -> super::Status {
        if self.sanitize.failed { super::Status::Check(Sense::SANITIZE_FAILED) } else { super::Status::Good }
    }
}
