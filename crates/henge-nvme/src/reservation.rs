//! Reservations: who may use a namespace (Base 8.19; the commands: NVM Command Set's 7.1 to 7.4 of Base 2.0).
//!
//! A host *registers* a key, and may then *acquire* the reservation. What its type leaves to the others:
//!
//! ```text
//!                                    registered            not registered
//!                                    reads    writes       reads    writes
//!   1 write exclusive                yes      conflict     yes      conflict
//!   2 exclusive access               conflict conflict     conflict conflict
//!   3 write exclusive, registrants   yes      yes          yes      conflict
//!   4 exclusive access, registrants  yes      yes          conflict conflict
//!   5 write exclusive, all           yes      yes          yes      conflict     each registrant holds it
//!   6 exclusive access, all          yes      yes          conflict conflict     each registrant holds it
//! ```
//!
//! Register and Report never conflict; Acquire and Release ask for the caller's key. Reads are Read, Compare and Verify; all else
//! that is for the disk counts as a write, Flush too (Base, figure 469).
//!
//! What is decided here is only what a command says. Who is registered is decided by the driver, which keeps one table for all its
//! front ends and nodes, and says here what holds ([`crate::Subsystems::adopt`]).

use crate::nvm::{self, TRANSFER_MAX};
use crate::plan::{Page, Plan};
use crate::status::Status;
use crate::wire::{Sqe, le64, put};
use std::collections::VecDeque;

/// Opcodes.
pub(crate) mod opcode {
    pub const REGISTER: u8 = 0x0d;
    pub const REPORT: u8 = 0x0e;
    pub const ACQUIRE: u8 = 0x11;
    pub const RELEASE: u8 = 0x15;
}

/// RESCAP: it survives a loss of power, the six types, and IEKEY as revision 1.3 has it.
pub(crate) const CAPABILITIES: u8 = 0xff;
/// The controller's number in a report: controllers are made as hosts come.
const DYNAMIC: u16 = 0xffff;

/// A host's identifier. Over fabrics it always has 128 bits.
pub type HostId = [u8; 16];

/// The type of a reservation (RTYPE).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Others read.
    WriteExclusive = 1,
    /// Others do nothing.
    ExclusiveAccess = 2,
    /// Registrants do all, others read.
    WriteExclusiveRegistrants = 3,
    /// Registrants do all.
    ExclusiveAccessRegistrants = 4,
    /// Registrants do all and hold it, others read.
    WriteExclusiveAll = 5,
    /// Registrants do all and hold it.
    ExclusiveAccessAll = 6,
}

impl Kind {
    /// All of them, by their numbers.
    pub const ALL: [Kind; 6] = [
        Kind::WriteExclusive,
        Kind::ExclusiveAccess,
        Kind::WriteExclusiveRegistrants,
        Kind::ExclusiveAccessRegistrants,
        Kind::WriteExclusiveAll,
        Kind::ExclusiveAccessAll,
    ];

    fn of(code: u32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u32 == code)
    }
    fn excludes_reads(self) -> bool {
        matches!(self, Kind::ExclusiveAccess | Kind::ExclusiveAccessRegistrants | Kind::ExclusiveAccessAll)
    }
    fn is_one_holders(self) -> bool {
        matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }
}

/// Whoever is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registrant {
    /// Who it is.
    pub host: HostId,
    /// Its key.
    pub key: u64,
    /// Whether it holds the reservation.
    pub holds: bool,
}

/// What holds of a namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// How often registrations have changed.
    pub generation: u32,
    /// The reservation's type, if there is one.
    pub kind: Option<Kind>,
    /// Whether it survives a loss of power.
    pub persists: bool,
    registrants: Vec<Registrant>,
}

impl Held {
    /// With these registrants.
    pub fn new(
        generation: u32,
        kind: Option<Kind>,
        persists: bool,
        mut registrants: Vec<Registrant>,
    ) -> Held {
        registrants.sort_unstable_by_key(|registrant| registrant.host);
        Held { generation, kind, persists, registrants }
    }

    /// Whether the reservation keeps a host from a command for the disk.
    #[inline]
    pub(crate) fn conflicts(&self, host: &HostId, opcode: u8) -> bool {
        let Some(kind) = self.kind else { return false };
        let at = self.registrants.binary_search_by_key(host, |registrant| registrant.host);
        let may_all = at.is_ok_and(|at| self.registrants[at].holds || !kind.is_one_holders());
        if may_all || is_command(opcode) {
            return false;
        }
        let reads = matches!(opcode, nvm::opcode::READ | nvm::opcode::COMPARE | nvm::opcode::VERIFY);
        !reads || kind.excludes_reads()
    }

    /// The extended data structure of Reservation Report, whose entries have host identifiers of 128 bits.
    fn report(&self) -> Vec<u8> {
        let mut b = vec![0; 64 * (1 + self.registrants.len())];
        put(&mut b, 0, self.generation.to_le_bytes());
        b[4] = self.kind.map_or(0, |kind| kind as u8);
        let count = u16::try_from(self.registrants.len()).unwrap_or(u16::MAX);
        put(&mut b, 5, count.to_le_bytes());
        b[9] = u8::from(self.persists); // PTPLS
        for (entry, registrant) in b[64..].chunks_exact_mut(64).zip(&self.registrants) {
            put(entry, 0, DYNAMIC.to_le_bytes());
            entry[2] = u8::from(registrant.holds);
            put(entry, 8, registrant.key.to_le_bytes());
            put(entry, 16, registrant.host);
        }
        b
    }
}

/// What a host asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Register a key.
    Register,
    /// Unregister.
    Unregister,
    /// Another key in place of the one it has.
    Replace,
    /// The reservation.
    Acquire(Kind),
    /// The reservation, in place of whoever has a key.
    Preempt(Kind),
    /// The same, and that its commands are aborted.
    PreemptAndAbort(Kind),
    /// That the reservation ends.
    Release(Kind),
    /// That all registrations end.
    Clear,
    /// Whether all of it survives a loss of power, and no more.
    Persist,
}

/// A change of who may use a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Who asks.
    pub host: HostId,
    /// For what.
    pub ask: Ask,
    /// The key that it says it has (CRKEY).
    pub key: u64,
    /// The key that it wants (NRKEY), or whose owner it preempts (PRKEY).
    pub other: u64,
    /// The key that it has does not matter (IEKEY).
    pub ignores_key: bool,
    /// Whether all of it is to survive a loss of power, if that is to change (CPTPL).
    pub persists: Option<bool>,
}

/// Whether it is one of these commands.
pub(crate) fn is_command(code: u8) -> bool {
    matches!(code, opcode::REGISTER | opcode::REPORT | opcode::ACQUIRE | opcode::RELEASE)
}

/// Begins one of the commands.
pub(crate) fn start(held: &Held, host: &HostId, sqe: &Sqe) -> Plan {
    if *host == [0; 16] {
        return Status::SEQUENCE.into(); // a host without an identifier is nobody who could be registered
    }
    if sqe.opcode() == opcode::REPORT {
        return report(held, sqe);
    }
    match ask(sqe) {
        Some(_) => Plan::Parameters(if sqe.opcode() == opcode::RELEASE { 8 } else { 16 }),
        None => Status::FIELD.into(),
    }
}

/// Reservation Report.
fn report(held: &Held, sqe: &Sqe) -> Plan {
    if sqe.dword(11) & 1 == 0 {
        return Status::HOST_ID_FORMAT.into();
    }
    let len = (u64::from(sqe.dword(10)) + 1) * 4;
    if len > TRANSFER_MAX {
        return Status::FIELD.into();
    }
    Plan::Page(Page::new(held.report(), len as usize))
}

/// What dword 10 asks for; `None` where a field is wrong.
fn ask(sqe: &Sqe) -> Option<Ask> {
    let dword = sqe.dword(10);
    let (action, ignores_key, kind) = (dword & 7, dword & 8 != 0, Kind::of(dword >> 8 & 0xff));
    if sqe.opcode() == opcode::REGISTER {
        return match (action, dword >> 30) {
            (_, 1) => None,
            (0, _) => Some(Ask::Register),
            (1, _) => Some(Ask::Unregister),
            (2, _) => Some(Ask::Replace),
            _ => None,
        };
    }
    if ignores_key {
        return None; // since revision 1.3
    }
    match (sqe.opcode(), action) {
        (opcode::ACQUIRE, 0) => kind.map(Ask::Acquire),
        (opcode::ACQUIRE, 1) => kind.map(Ask::Preempt),
        (opcode::ACQUIRE, 2) => kind.map(Ask::PreemptAndAbort),
        (opcode::RELEASE, 0) => kind.map(Ask::Release),
        (opcode::RELEASE, 1) => Some(Ask::Clear),
        _ => None,
    }
}

/// The keys of a command have come.
pub(crate) fn change(host: &HostId, sqe: &Sqe, list: &[u8]) -> Plan {
    let Some(ask) = ask(sqe) else { return Status::FIELD.into() };
    let registers = sqe.opcode() == opcode::REGISTER;
    let other = if list.len() >= 16 { le64(list, 8) } else { 0 };
    if matches!(ask, Ask::Register | Ask::Replace) && other == 0 {
        return Status::FIELD.into(); // 0 stands for those who have none
    }
    let persists = match sqe.dword(10) >> 30 {
        2 if registers => Some(false),
        3 if registers => Some(true),
        _ => None,
    };
    let ignores_key = registers && sqe.dword(10) & 8 != 0;
    Plan::Reserve(Change { host: *host, ask, key: le64(list, 0), other, ignores_key, persists })
}

/// Set Features' Reservation Persistence.
pub(crate) fn persist(host: HostId, persists: bool) -> Plan {
    let persists = Some(persists);
    Plan::Reserve(Change { host, ask: Ask::Persist, key: 0, other: 0, ignores_key: false, persists })
}

/// What a host is told about its registration, or the reservation (Base 8.19.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Notification {
    /// Another host has ended its registration.
    RegistrationPreempted = 1,
    /// The reservation that bound others beside registrants has ended.
    Released = 2,
    /// Another host has ended the reservation, and all registrations.
    Preempted = 3,
}

/// What becomes of a host by another one's change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effect {
    /// Whom it concerns.
    pub host: HostId,
    /// What it is told.
    pub notification: Option<Notification>,
    /// Its commands for the namespace are aborted.
    pub aborts: bool,
}

/// Most notifications that wait to be read; of more, the oldest are lost, which the count of the next one shows.
const NOTIFICATIONS_MAX: usize = 32;

/// What a controller has not told its host yet: the reservation notification log.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Which kinds are not wanted (feature 82h): bit 1 for the first kind, and so on.
    pub mask: u32,
    waiting: VecDeque<(u64, Notification)>,
    count: u64,
}

impl Log {
    /// Bits of the mask that mean something.
    pub const MASK: u32 = 0x0e;

    /// Something has happened. Whether that is to be told.
    pub fn note(&mut self, notification: Notification) -> bool {
        if self.mask & 1 << notification as u32 != 0 {
            return false;
        }
        // 0 says that there is none.
        self.count = self.count.wrapping_add(1).max(1);
        if self.waiting.len() == NOTIFICATIONS_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back((self.count, notification));
        true
    }
    /// The page (Base 5.16.1.25): the oldest one, and how many wait behind it.
    pub fn page(&self) -> Vec<u8> {
        let mut b = vec![0; 64];
        if let Some((count, notification)) = self.waiting.front() {
            put(&mut b, 0, count.to_le_bytes());
            b[8] = *notification as u8;
            b[9] = u8::try_from(self.waiting.len() - 1).unwrap_or(u8::MAX);
            put(&mut b, 12, nvm::NSID.to_le_bytes());
        }
        b
    }
    /// The host has read it. Whether there is another one.
    pub fn read(&mut self) -> bool {
        self.waiting.pop_front();
        !self.waiting.is_empty()
    }
    pub fn forget(&mut self) {
        self.waiting.clear();
    }
}

/// Commands at the storage, by when they began: what was there before a host was preempted must be over before that is answered.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    current: u32,
    /// Commands of the current one.
    count: u32,
    /// Earlier ones with commands, the oldest first, and how many.
    earlier: VecDeque<(u32, u32)>,
}

impl Epochs {
    /// A command goes to the storage.
    #[inline]
    pub fn begin(&mut self) -> u32 {
        self.count += 1;
        self.current
    }
    /// It is back.
    #[inline]
    pub fn end(&mut self, epoch: u32) {
        if epoch == self.current {
            self.count -= 1;
        } else if let Some(at) = self.earlier.iter().position(|(other, _)| *other == epoch) {
            self.earlier[at].1 -= 1;
            if self.earlier[at].1 == 0 {
                self.earlier.remove(at);
            }
        }
    }
    /// From now on commands are told from those before.
    pub fn next(&mut self) -> u32 {
        if self.count > 0 {
            self.earlier.push_back((self.current, std::mem::take(&mut self.count)));
        }
        self.current = self.current.wrapping_add(1);
        self.current
    }
    /// Whether nothing is at the storage.
    pub fn is_quiet(&self) -> bool {
        self.count == 0 && self.earlier.is_empty()
    }
    /// Whether nothing that began before is at the storage.
    pub fn is_quiet_before(&self, epoch: u32) -> bool {
        (self.count == 0 || self.current >= epoch) && self.earlier.iter().all(|(other, _)| *other >= epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs that are over are forgotten, also between those that are not.
    #[test]
    fn what_began_before_is_waited_for_and_nothing_else() {
        let mut epochs = Epochs::default();
        let first = epochs.begin();
        let next = epochs.next();
        for _ in 0..100 {
            let between = epochs.begin();
            epochs.next();
            epochs.end(between);
        }
        let last = epochs.begin();
        assert_eq!(
            (epochs.earlier.len(), epochs.is_quiet_before(next), epochs.is_quiet_before(first)),
            (1, false, true)
        );
        epochs.end(first);
        assert_eq!((epochs.earlier.len(), epochs.is_quiet_before(last), epochs.is_quiet()), (0, true, false));
        assert!(!epochs.is_quiet_before(last + 1));
        epochs.end(last);
        assert!(epochs.is_quiet() && epochs.is_quiet_before(last + 1));
    }
}
