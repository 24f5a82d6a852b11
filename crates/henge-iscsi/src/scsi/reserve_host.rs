//! Hosts by NVMe as registrants of the same table, beside initiator ports (NVM Express Base 2.0, section 8.19).
//!
//! SCSI's and NVMe's reservations are one model. A host stands in the table under a name of its own, `nvme,h,0xIDENTIFIER`, which no
//! initiator port can have; a host is one registrant, by whichever node and controller it comes. What differs:
//!
//! ```text
//!                            initiator port                    host
//!   register with the key    conflict, unless that key is      fine
//!     that it has already      given as the present one
//!   unregister, unknown      fine where the key is ignored     conflict
//!   replace, unknown         registers by the key 0            conflict, unless the key is ignored
//!   survives a loss of       set by each registration          set, cleared or left
//!     power
//! ```
//!
//! A change travels between nodes as an initiator's does, with a list that is too short to be taken for one.

use super::{Change, Effects, Kind, Parameters, Reservations, Sense, Status};
use crate::scsi::cdb::be64;

const NAME: &str = "nvme,h,0x";
/// Bytes of the list: the present key, the other key, flags.
const LIST: usize = 17;

/// What a host asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostAction {
    /// Register the other key.
    Register = 0,
    /// Unregister.
    Unregister = 1,
    /// Register the other key in place of the present one.
    Replace = 2,
    /// Reserve.
    Acquire = 3,
    /// Reserve in place of whoever has the other key.
    Preempt = 4,
    /// The same, and abort its commands.
    PreemptAndAbort = 5,
    /// Release the reservation.
    Release = 6,
    /// Release it, and unregister everybody.
    Clear = 7,
    /// Nothing but whether all of it survives a loss of power.
    Persist = 8,
}

impl HostAction {
    const ALL: [HostAction; 9] = [
        HostAction::Register,
        HostAction::Unregister,
        HostAction::Replace,
        HostAction::Acquire,
        HostAction::Preempt,
        HostAction::PreemptAndAbort,
        HostAction::Release,
        HostAction::Clear,
        HostAction::Persist,
    ];
}

/// A change that a host asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostChange {
    /// Its identifier.
    pub host: [u8; 16],
    /// What it asks for.
    pub action: HostAction,
    /// The type of the reservation, by SCSI's number.
    pub kind: u8,
    /// The key that it says it has.
    pub key: u64,
    /// The key that it wants, or whose owner it preempts.
    pub other: u64,
    /// Whether the key that it has does not matter.
    pub ignores_key: bool,
    /// Whether all of it is to survive a loss of power, if that is to change.
    pub persists: Option<bool>,
}

impl HostChange {
    /// As it is decided, here or at another node.
    pub fn to_change(&self) -> Change {
        let mut cdb = [0; 16];
        (cdb[1], cdb[2]) = (self.action as u8, self.kind);
        let mut list = self.key.to_be_bytes().to_vec();
        list.extend_from_slice(&self.other.to_be_bytes());
        let persists = self.persists.map_or(0, |persists| 2 | u8::from(persists) << 2);
        list.push(u8::from(self.ignores_key) | persists);
        Change { cdb, list, port: host_name(&self.host) }
    }

    fn of(change: &Change) -> Option<HostChange> {
        let host = host_of(&change.port)?;
        let action = *HostAction::ALL.get(usize::from(change.cdb[1]))?;
        let list: &[u8; LIST] = change.list.first_chunk().filter(|_| change.list.len() == LIST)?;
        let (key, other, flags) = (be64(list, 0), be64(list, 8), list[16]);
        let persists = (flags & 2 != 0).then_some(flags & 4 != 0);
        Some(HostChange {
            host,
            action,
            kind: change.cdb[2],
            key,
            other,
            ignores_key: flags & 1 != 0,
            persists,
        })
    }
}

/// The name of a host among registrants.
pub fn host_name(host: &[u8; 16]) -> String {
    format!("{NAME}{:032x}", u128::from_be_bytes(*host))
}

/// The host of that name; none of an initiator port's.
pub fn host_of(name: &str) -> Option<[u8; 16]> {
    let digits = name.strip_prefix(NAME)?;
    let lower =
        digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| lower)?;
    Some(number.to_be_bytes())
}

/// One registrant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registrant<'a> {
    /// An initiator port's name, or a host's.
    pub name: &'a str,
    /// Its key.
    pub key: u64,
    /// Whether it holds the reservation.
    pub holds: bool,
}

impl Reservations {
    /// How often registrations have changed.
    pub fn generation(&self) -> u32 {
        self.generation
    }
    /// The type of the reservation, by SCSI's number; none without one.
    pub fn kind(&self) -> Option<u8> {
        self.holder.as_ref().map(|holder| holder.kind.0)
    }
    /// Whether all of it survives a loss of power.
    pub fn persists(&self) -> bool {
        self.through_power_loss
    }
    /// All registrants.
    pub fn registrants(&self) -> impl Iterator<Item = Registrant<'_>> {
        self.registrations.iter().map(|r| Registrant { name: &r.port, key: r.key, holds: self.holds(r) })
    }

    /// A host's change.
    pub(super) fn change_by_host(&mut self, change: &Change) -> Result<Effects, Status> {
        let asked = HostChange::of(change).ok_or(Status::Check(Sense::LIST_LENGTH))?;
        let name = change.port.as_str();
        let mine = self.key_of(name);
        let known = mine == Some(asked.key) || asked.ignores_key && mine.is_some();
        let may = match asked.action {
            HostAction::Register => mine.is_none_or(|key| key == asked.other),
            HostAction::Replace => known || asked.ignores_key,
            HostAction::Persist => true,
            _ => known,
        };
        if !may {
            return Err(Status::ReservationConflict);
        }
        let before = self.kept();
        let registers = matches!(asked.action, HostAction::Register | HostAction::Replace);
        if registers && asked.other == 0 {
            return Err(Status::Check(Sense::parameter(8))); // 0 is the key of those who have none
        }
        let mut cdb = [0; 16];
        cdb[2] = asked.kind;
        let through_power_loss = asked.persists.unwrap_or(self.through_power_loss);
        let given = |action_key| Parameters { key: asked.key, action_key, through_power_loss };
        let mut effects = match asked.action {
            HostAction::Register | HostAction::Replace => self.register(name, &given(asked.other))?,
            HostAction::Unregister => self.register(name, &given(0))?,
            HostAction::Acquire => self.reserve(name, &cdb)?,
            HostAction::Preempt | HostAction::PreemptAndAbort => {
                cdb[1] = if asked.action == HostAction::Preempt { 4 } else { 5 };
                self.preempt(name, &cdb, &given(asked.other))?
            }
            HostAction::Release => {
                Kind::new(asked.kind).ok_or(Status::Check(Sense::field(2)))?;
                self.release(name, &cdb)?
            }
            HostAction::Clear => self.clear(name),
            HostAction::Persist => {
                self.through_power_loss = through_power_loss;
                Effects::default()
            }
        };
        effects.keep = self.kept() != before;
        Ok(effects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::attention;
    use crate::scsi::opcodes::Class;

    const A: [u8; 16] = [0xaa; 16];
    const B: [u8; 16] = [0xbb; 16];
    const PORT: &str = "iqn.a,i,0x000000000001";

    const ASKED: HostChange = HostChange {
        host: A,
        action: HostAction::Register,
        kind: 1,
        key: 0,
        other: 0,
        ignores_key: false,
        persists: None,
    };

    fn ask(r: &mut Reservations, asked: HostChange) -> Result<Effects, Status> {
        r.apply(&asked.to_change())
    }
    fn by_port(r: &mut Reservations, action: u8, kind: u8, key: u8, other: u8) -> Result<Effects, Status> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[2]) = (0x5f, action, kind);
        let mut list = vec![0; 24];
        (list[7], list[15]) = (key, other);
        r.apply(&Change { cdb, list, port: PORT.into() })
    }

    #[test]
    fn a_name_is_a_hosts_or_a_ports() {
        assert_eq!(host_name(&A), format!("nvme,h,0x{}", "aa".repeat(16)));
        assert_eq!(host_of(&host_name(&B)), Some(B));
        for other in [
            PORT,
            "nvme,h,0xaa",
            "nvme,h,0x+AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "nvme,h,0x000000000001,i,0x000000000001",
        ] {
            assert_eq!(host_of(other), None, "{other}");
        }
    }

    #[test]
    fn registering_asks_for_less_than_scsi() {
        let mut r = Reservations::default();
        let asked = HostChange { other: 5, ..ASKED };
        assert!(ask(&mut r, asked).is_ok());
        assert!(ask(&mut r, asked).is_ok(), "the key that it has");
        assert_eq!(ask(&mut r, HostChange { other: 6, ..ASKED }), Err(Status::ReservationConflict));
        assert_eq!(ask(&mut r, ASKED), Err(Status::ReservationConflict), "0 is not its key either");
        let zero = HostChange { host: B, ..ASKED };
        assert_eq!(ask(&mut r, zero), Err(Status::Check(Sense::parameter(8))));
        let replace = HostChange { action: HostAction::Replace, other: 7, ..ASKED };
        assert_eq!(ask(&mut r, replace), Err(Status::ReservationConflict));
        assert!(ask(&mut r, HostChange { key: 5, ..replace }).is_ok());
        assert_eq!(ask(&mut r, HostChange { host: B, ..replace }), Err(Status::ReservationConflict));
        assert!(ask(&mut r, HostChange { host: B, ignores_key: true, ..replace }).is_ok());
        let leave = HostChange { action: HostAction::Unregister, ignores_key: true, ..ASKED };
        assert!(ask(&mut r, leave).is_ok());
        assert_eq!(ask(&mut r, leave), Err(Status::ReservationConflict), "it is gone already");
        let left: Vec<_> = r.registrants().map(|r| (host_of(r.name), r.key)).collect();
        assert_eq!(left, [(Some(B), 7)]);
    }

    #[test]
    fn surviving_a_loss_of_power_is_set_cleared_or_left() {
        let mut r = Reservations::default();
        assert!(!ask(&mut r, HostChange { other: 5, ..ASKED }).unwrap().keep);
        let set = HostChange { persists: Some(true), other: 5, ..ASKED };
        assert!(ask(&mut r, set).unwrap().keep && r.persists());
        assert!(ask(&mut r, HostChange { other: 6, host: B, ..ASKED }).unwrap().keep, "left as it is");
        assert_eq!(Reservations::restore(&r.save()).as_ref(), Ok(&r));
        let clear = HostChange { action: HostAction::Persist, persists: Some(false), ..ASKED };
        assert!(ask(&mut r, clear).unwrap().keep && r.save().is_empty());
    }

    #[test]
    fn hosts_and_ports_contest_one_reservation() {
        let mut r = Reservations::default();
        assert!(by_port(&mut r, 0, 0, 0, 1).is_ok());
        assert!(by_port(&mut r, 1, 3, 1, 0).is_ok());
        let name = host_name(&A);
        assert!(r.conflicts(&name, Class::Read));
        let acquire = HostChange { action: HostAction::Acquire, key: 2, ..ASKED };
        assert_eq!(ask(&mut r, acquire), Err(Status::ReservationConflict), "not registered");
        assert!(ask(&mut r, HostChange { other: 2, ..ASKED }).is_ok());
        assert_eq!(ask(&mut r, acquire), Err(Status::ReservationConflict), "held by another");
        let preempt = HostChange { action: HostAction::PreemptAndAbort, other: 1, ..acquire };
        let effects = ask(&mut r, preempt).unwrap();
        assert_eq!(effects.attentions, [(PORT.to_owned(), attention::REGISTRATIONS_PREEMPTED)]);
        assert_eq!(effects.abort, [PORT]);
        assert!(r.conflicts(PORT, Class::Write) && !r.conflicts(&name, Class::Write));
        // And back: an initiator preempts a host, whose commands are aborted.
        assert!(by_port(&mut r, 0, 0, 0, 1).is_ok());
        let effects = by_port(&mut r, 5, 1, 1, 2).unwrap();
        assert_eq!((&effects.abort, &effects.attentions[0].0), (&vec![name.clone()], &name));
        assert_eq!(Reservations::told(&r.tell(&effects)).unwrap().1.abort, effects.abort);
    }

    #[test]
    fn a_change_of_another_shape_is_refused() {
        let mut r = Reservations::default();
        let fine = HostChange { other: 5, ..ASKED }.to_change();
        for (action, len) in [(9, LIST), (0, LIST - 1), (0, 24)] {
            let mut wrong = fine.clone();
            wrong.cdb[1] = action;
            wrong.list.resize(len, 0);
            assert_eq!(r.apply(&wrong), Err(Status::Check(Sense::LIST_LENGTH)));
        }
        let kind = HostChange { action: HostAction::Release, key: 5, kind: 2, ..ASKED };
        assert!(r.apply(&fine).is_ok());
        assert_eq!(ask(&mut r, kind), Err(Status::Check(Sense::field(2))));
        // Nor does an initiator port pass for a host by a short list.
        let port = Change { port: PORT.into(), ..fine };
        assert_eq!(r.apply(&port), Err(Status::Check(Sense::LIST_LENGTH)));
    }
}
