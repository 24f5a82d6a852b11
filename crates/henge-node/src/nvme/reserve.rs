//! Reservations of hosts: one table with iSCSI's initiators ([`crate::targets`]'s), told in NVMe's words.

use super::Fabric;
use crate::fnv::fnv;
use henge_core::RequestId;
use henge_iscsi::scsi::{self, Bar, Effects, HostAction, HostChange, Key, Reservations, attention, host_of};
use henge_nvme::Status;
use henge_nvme::reservation::{Ask, Change, Effect, Held, HostId, Kind, Notification, Registrant};

/// A host wants to change who may use a disk.
pub(crate) struct Wish {
    pub connection: RequestId,
    pub command: RequestId,
    pub disk: usize,
    pub change: scsi::Change,
}

/// SCSI's number of a type.
fn code(kind: Kind) -> u8 {
    match kind {
        Kind::WriteExclusive => 1,
        Kind::ExclusiveAccess => 3,
        Kind::WriteExclusiveRegistrants => 5,
        Kind::ExclusiveAccessRegistrants => 6,
        Kind::WriteExclusiveAll => 7,
        Kind::ExclusiveAccessAll => 8,
    }
}

/// A host's change as the table takes it.
pub(super) fn as_change(change: &Change) -> scsi::Change {
    let (action, kind) = match change.ask {
        Ask::Register => (HostAction::Register, None),
        Ask::Unregister => (HostAction::Unregister, None),
        Ask::Replace => (HostAction::Replace, None),
        Ask::Acquire(kind) => (HostAction::Acquire, Some(kind)),
        Ask::Preempt(kind) => (HostAction::Preempt, Some(kind)),
        Ask::PreemptAndAbort(kind) => (HostAction::PreemptAndAbort, Some(kind)),
        Ask::Release(kind) => (HostAction::Release, Some(kind)),
        Ask::Clear => (HostAction::Clear, None),
        Ask::Persist => (HostAction::Persist, None),
    };
    let &Change { host, key, other, ignores_key, persists, .. } = change;
    HostChange { host, action, kind: kind.map_or(0, code), key, other, ignores_key, persists }.to_change()
}

/// How such a change has ended.
pub(super) fn as_status(status: scsi::Status) -> Status {
    match status {
        scsi::Status::Good | scsi::Status::ConditionMet => Status::SUCCESS,
        scsi::Status::ReservationConflict => Status::RESERVATION,
        scsi::Status::Busy | scsi::Status::TaskSetFull => Status::NOT_READY,
        scsi::Status::Check(sense) => match sense.key {
            Key::NotReady => Status::INACCESSIBLE,
            Key::IllegalRequest if sense == scsi::Sense::NO_UNIT => Status::NAMESPACE,
            Key::IllegalRequest if sense != scsi::Sense::REGISTRATIONS => Status::FIELD,
            // No room, no medium for it, or nobody knows what became of it.
            _ => Status::INTERNAL,
        },
    }
}

/// Who a registrant is to hosts. An initiator port has an identifier made of its name, which no host is likely to have.
fn identifier(name: &str) -> HostId {
    host_of(name).unwrap_or_else(|| {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&fnv(name.as_bytes()).to_be_bytes());
        id[8..].copy_from_slice(&fnv(&[name.as_bytes(), b"/host"].concat()).to_be_bytes());
        id
    })
}

/// What holds, as hosts see it.
fn held(table: &Reservations) -> Held {
    let kind = table.kind().and_then(|number| Kind::ALL.into_iter().find(|kind| code(*kind) == number));
    let registrants = table.registrants();
    let registrants =
        registrants.map(|r| Registrant { host: identifier(r.name), key: r.key, holds: r.holds }).collect();
    Held::new(table.generation(), kind, table.persists(), registrants)
}

/// How commands for a disk end that initiators keep hosts from.
fn as_refusal(bar: Bar) -> Status {
    match bar {
        Bar::Reserved => Status::RESERVATION,
        Bar::Stopped => Status::NOT_READY,
        Bar::Sanitizing => Status::SANITIZING,
        Bar::SanitizeFailed => Status::SANITIZE_FAILED,
    }
}

/// The part of it that concerns hosts.
fn effects(of: &Effects) -> Vec<Effect> {
    let told = of.attentions.iter().filter_map(|(name, code)| {
        let notification = match *code {
            attention::REGISTRATIONS_PREEMPTED => Notification::RegistrationPreempted,
            attention::RESERVATIONS_RELEASED => Notification::Released,
            attention::RESERVATIONS_PREEMPTED => Notification::Preempted,
            _ => return None,
        };
        Some(Effect { host: host_of(name)?, notification: Some(notification), aborts: false })
    });
    let aborts = of.abort.iter().filter_map(|name| host_of(name));
    told.chain(aborts.map(|host| Effect { host, notification: None, aborts: true })).collect()
}

impl Fabric {
    /// These reservations of a disk hold from now on. Commands that they abort are over once it is quiet before the number returned.
    pub(crate) fn adopt(&mut self, disk: usize, table: &Reservations, of: &Effects) -> u32 {
        match self.by_disk.get(&disk) {
            Some(&id) => self.subsystems.adopt(id, held(table), &effects(of)),
            None => 0,
        }
    }

    /// What initiators have said of a disk that keeps hosts from it.
    pub(crate) fn set_barred(&mut self, disk: usize, bar: Option<Bar>) {
        if let Some(&id) = self.by_disk.get(&disk) {
            self.subsystems.set_barred(id, bar.map(as_refusal));
        }
    }

    /// Says whether a disk's reservations may be others than those known here.
    pub(crate) fn set_stale(&mut self, disk: usize, stale: bool) {
        if let Some(&id) = self.by_disk.get(&disk) {
            self.subsystems.set_stale(id, stale);
        }
    }

    /// Commands of hosts were taken in by older reservations: those that conflict with what holds now are given up.
    pub(crate) fn recheck(&mut self, disk: usize) {
        if let Some(&id) = self.by_disk.get(&disk) {
            self.subsystems.recheck(id);
        }
    }

    /// Whether hosts that had a door to a disk, which is gone, still have commands there.
    pub(crate) fn has_leaving(&self, disk: usize) -> bool {
        let mut former = self.former.iter().filter(|(number, _)| *number == disk);
        former.any(|(_, id)| !self.subsystems.is_quiet_before(*id, 0))
    }

    /// Whether nothing of hosts that began before is at a disk.
    pub(crate) fn is_quiet_before(&self, disk: usize, epoch: u32) -> bool {
        self.by_disk.get(&disk).is_none_or(|id| self.subsystems.is_quiet_before(*id, epoch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_iscsi::scsi::Sense;

    #[test]
    fn the_table_is_told_in_the_words_of_hosts() {
        let mut table = Reservations::default();
        let register = Change {
            host: [7; 16],
            ask: Ask::Register,
            key: 0,
            other: 0xabc,
            ignores_key: false,
            persists: Some(true),
        };
        assert!(table.apply(&as_change(&register)).is_ok());
        for kind in Kind::ALL {
            let acquire = Change { ask: Ask::Acquire(kind), key: 0xabc, ..register };
            assert!(table.apply(&as_change(&acquire)).is_ok());
            let us = Registrant { host: [7; 16], key: 0xabc, holds: true };
            assert_eq!(held(&table), Held::new(1, Some(kind), true, vec![us]));
            let release = Change { ask: Ask::Release(kind), ..acquire };
            assert!(table.apply(&as_change(&release)).is_ok());
        }
        // An initiator port preempts: its own identifier is not a host's, and the host hears of it.
        let mut cdb = [0; 16];
        (cdb[0], cdb[2]) = (0x5f, 1);
        let mut list = vec![0; 24];
        list[15] = 1;
        let port = "iqn.a,i,0x000000000001".to_owned();
        assert!(table.apply(&scsi::Change { cdb, list: list.clone(), port: port.clone() }).is_ok());
        cdb[1] = 5;
        (list[7], list[14], list[15]) = (1, 0x0a, 0xbc);
        let of = table.apply(&scsi::Change { cdb, list, port: port.clone() }).unwrap();
        let told = |notification, aborts| Effect { host: [7; 16], notification, aborts };
        assert_eq!(effects(&of), [told(Some(Notification::RegistrationPreempted), false), told(None, true)]);
        let alone = Registrant { host: identifier(&port), key: 1, holds: false };
        assert_eq!(held(&table), Held::new(3, None, false, vec![alone]));
        assert_ne!(identifier(&port), identifier("iqn.a,i,0x000000000002"));
    }

    #[test]
    fn endings_are_told_in_the_words_of_hosts() {
        for (status, expected) in [
            (scsi::Status::Good, Status::SUCCESS),
            (scsi::Status::ReservationConflict, Status::RESERVATION),
            (scsi::Status::Busy, Status::NOT_READY),
            (scsi::Status::Check(Sense::RELEASE), Status::FIELD),
            (scsi::Status::Check(Sense::parameter(8)), Status::FIELD),
            (scsi::Status::Check(Sense::REGISTRATIONS), Status::INTERNAL),
            (scsi::Status::Check(Sense::NO_UNIT), Status::NAMESPACE),
            (scsi::Status::Check(Sense::UNAVAILABLE), Status::INACCESSIBLE),
            (scsi::Status::Check(Sense::UNANSWERED), Status::INTERNAL),
            (scsi::Status::Check(Sense::WRITE), Status::INTERNAL),
        ] {
            assert_eq!(as_status(status), expected, "{status:?}");
        }
    }
}
