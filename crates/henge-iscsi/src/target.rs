//! The targets of a node, their units, and the sessions that use them.
//!
//! A target is a name with units behind it. What sessions must know of each other goes through here: a LUN
//! reset by one aborts the commands of all, a new session takes the place of an old one of the same
//! initiator port. Such news wait as notices; [`Targets::next_poked`] says whose to deliver.

use crate::chap::Access;
use crate::directory::Directory;
use crate::scsi::{
    Action, Change, Effects, Nexus, Outcome, Reservations, Status, Sweep, Unit, UnitProperties, attention,
};
use std::collections::{BTreeMap, BTreeSet};

/// Names a target among [`Targets`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct TargetId(u32);

impl TargetId {
    /// None is before it.
    pub(crate) const FIRST: TargetId = TargetId(0);

    /// None is between the two.
    pub(crate) fn next(self) -> TargetId {
        TargetId(self.0.saturating_add(1))
    }
}

/// One target.
#[derive(Debug)]
pub struct Target {
    /// Its iSCSI name.
    pub(crate) name: String,
    /// Who may use it.
    pub(crate) access: Access,
    /// How often that has changed.
    pub(crate) edition: u32,
    /// No initiator finds it.
    is_hidden: bool,
    pub(crate) units: BTreeMap<u16, Unit>,
    /// Portals of other nodes that lead to the same disk: their addresses, and their groups.
    pub(crate) elsewhere: Vec<(String, u16)>,
}

impl Target {
    fn new(name: String, access: Access, is_hidden: bool) -> Target {
        Target { name, access, edition: 0, is_hidden, units: BTreeMap::new(), elsewhere: Vec::new() }
    }
}

/// What a session is told by others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// Its commands for this unit are aborted (for all units when `None`).
    Abort(Option<u16>),
    /// Its commands for this unit that have not begun are given up, and answered: the unit cannot be used here now.
    Withdraw(u16),
    /// Reservations of this unit are others than its commands were taken in by: those that conflict are given up, and answered so.
    Recheck(u16),
    /// The work that a unit does in the background has ended.
    Background(u16),
    /// Something that a task management function may wait for is over.
    Quiet,
    /// End it: another session has its place, or the target is gone or reset.
    Close,
}

/// An initiator port: the initiator's name, and its ISID.
type Port = (String, [u8; 6]);

#[derive(Debug)]
struct Entry {
    target: Option<TargetId>,
    port: Port,
    /// The target's part of the session's name.
    tsih: u16,
    notices: Vec<Notice>,
}

/// All targets of a node, and all sessions.
#[derive(Debug)]
pub struct Targets {
    /// Relative identifier of the target port, which is the portal group's tag as well.
    pub(crate) port: u16,
    targets: BTreeMap<TargetId, Target>,
    pub(crate) directory: Directory,
    /// Targets with units that may have work of their own.
    working: BTreeSet<TargetId>,
    /// Targets whose units may have other bars than before.
    barred: BTreeSet<TargetId>,
    next_target: u32,
    sessions: BTreeMap<Nexus, Entry>,
    /// The same by the target's part of their names, by target, and by target and port: a login looks at no other session.
    by_tsih: BTreeMap<u16, Nexus>,
    members: BTreeSet<(TargetId, Nexus)>,
    by_port: BTreeMap<(TargetId, Port), Nexus>,
    next_session: u32,
    poked: BTreeSet<Nexus>,
    /// `address:port` of each portal.
    pub(crate) portals: Vec<String>,
    /// Who may ask which targets there are.
    pub(crate) discovery: Access,
}

/// The target port of a node that is alone.
pub const PORT: u16 = 1;
/// Most notices that wait for one session; more are one: abort all.
const NOTICES_MAX: usize = 32;

impl Default for Targets {
    fn default() -> Targets {
        Targets::new()
    }
}

impl Targets {
    /// None yet.
    pub fn new() -> Targets {
        Targets::at(PORT)
    }

    /// None yet, on a node whose target port has this identifier: another than that of any node with the same disks.
    pub fn at(port: u16) -> Targets {
        Targets {
            port,
            targets: BTreeMap::new(),
            directory: Directory::default(),
            working: BTreeSet::new(),
            barred: BTreeSet::new(),
            next_target: 0,
            sessions: BTreeMap::new(),
            by_tsih: BTreeMap::new(),
            members: BTreeSet::new(),
            by_port: BTreeMap::new(),
            next_session: 0,
            poked: BTreeSet::new(),
            portals: Vec::new(),
            discovery: Access::default(),
        }
    }

    /// Portals of other nodes that lead to the same disk, with the identifiers of their ports; discovery names them, too.
    pub fn set_elsewhere(&mut self, id: TargetId, portals: Vec<(String, u16)>) {
        if let Some(target) = self.targets.get_mut(&id) {
            target.elsewhere = portals;
        }
    }

    /// A portal that discovery names: `192.0.2.1:3260` or `[2001:db8::1]:3260`.
    pub fn add_portal(&mut self, address: &str) {
        self.portals.push(address.to_owned());
    }

    /// Who may ask for the names of the targets.
    pub fn set_discovery(&mut self, access: Access) {
        self.discovery = access;
    }

    /// A new target without units; `None` when there is one of that name.
    pub fn add_target(&mut self, name: &str, access: Access) -> Option<TargetId> {
        if self.find(name).is_some() {
            return None;
        }
        let id = TargetId(self.next_target);
        self.next_target += 1;
        self.directory.add(name, id, &access);
        self.targets.insert(id, Target::new(name.to_owned(), access, false));
        Some(id)
    }

    /// A new target that no initiator finds: its units are there for others' reservations.
    pub fn add_hidden(&mut self, name: &str) -> TargetId {
        let id = TargetId(self.next_target);
        self.next_target += 1;
        self.targets.insert(id, Target::new(name.to_owned(), Access::default(), true));
        id
    }

    /// The target is gone; its sessions end.
    pub fn remove_target(&mut self, id: TargetId) {
        if let Some(gone) = self.targets.remove(&id)
            && !gone.is_hidden
        {
            self.directory.remove(&gone.name, id, &gone.access);
        }
        self.working.remove(&id);
        self.barred.remove(&id);
        self.notify(id, None, Notice::Close);
    }

    /// A new unit, with its reservations as [`Reservations::save`] wrote them. `false` when the number is taken.
    pub fn add_unit(&mut self, id: TargetId, number: u16, disk: UnitProperties, kept: Reservations) -> bool {
        let Some(target) = self.targets.get_mut(&id) else { return false };
        if number >= 0x4000 || target.units.contains_key(&number) {
            return false;
        }
        let mut unit = Unit::new(disk, kept);
        for &(_, nexus) in self.members.range((id, Nexus(0))..=(id, Nexus(u32::MAX))) {
            let Some(entry) = self.sessions.get(&nexus) else { continue };
            unit.attach(nexus, &port_name(&entry.port), self.port);
        }
        target.units.insert(number, unit);
        target.units.values_mut().for_each(|unit| unit.alert(attention::LUNS, |_, _| true));
        true
    }

    /// The unit is gone; its commands are aborted.
    pub fn remove_unit(&mut self, id: TargetId, number: u16) {
        let Some(target) = self.targets.get_mut(&id) else { return };
        target.units.remove(&number);
        target.units.values_mut().for_each(|unit| unit.alert(attention::LUNS, |_, _| true));
        self.notify(id, None, Notice::Abort(Some(number)));
    }

    /// A unit, to resize it or to ask it.
    pub fn unit(&mut self, id: TargetId, number: u16) -> Option<&mut Unit> {
        self.targets.get_mut(&id)?.units.get_mut(&number)
    }

    /// Work that belongs to units, not to sessions. Answer each by [`Targets::background_done`].
    pub fn background(&mut self) -> Option<(TargetId, u16, Action)> {
        self.working.iter().find_map(|&id| {
            let target = self.targets.get_mut(&id)?;
            target.units.iter_mut().find_map(|(&number, unit)| Some((id, number, unit.background()?)))
        })
    }

    /// A unit of this target may have work of its own from now on.
    pub(crate) fn note_work(&mut self, id: TargetId) {
        self.working.insert(id);
    }

    /// What keeps others from a unit of this target may be something else from now on.
    pub(crate) fn note_bar(&mut self, id: TargetId) {
        self.barred.insert(id);
    }

    /// A target for whose units [`Unit::bar`] may say something else than before.
    pub fn next_barred(&mut self) -> Option<TargetId> {
        self.barred.pop_first()
    }

    /// The outcome of what [`Targets::background`] gave.
    pub fn background_done(&mut self, id: TargetId, number: u16, outcome: &Outcome<'_>) {
        let ended = self.unit(id, number).is_some_and(|unit| unit.background_done(outcome));
        if ended {
            self.note_bar(id);
            let works = |target: &Target| target.units.values().any(|unit| unit.sanitize.active());
            if !self.targets.get(&id).is_some_and(works) {
                self.working.remove(&id);
            }
            self.notify(id, None, Notice::Background(number));
        }
    }

    /// A session that has news: call [`crate::Session::poke`] for it.
    pub fn next_poked(&mut self) -> Option<Nexus> {
        self.poked.pop_first()
    }

    /// Who may log in from now on, and whether initiators find it. Sessions that are there end: they log in anew, if they may.
    pub fn set_access(&mut self, id: TargetId, access: Access, shown: bool) {
        let Some(target) = self.targets.get_mut(&id) else { return };
        if target.access == access && target.is_hidden != shown {
            return;
        }
        if !target.is_hidden {
            self.directory.remove(&target.name, id, &target.access);
        }
        (target.access, target.is_hidden) = (access, !shown);
        target.edition = target.edition.wrapping_add(1);
        if shown {
            self.directory.add(&target.name, id, &target.access);
        }
        self.notify(id, None, Notice::Close);
    }

    pub(crate) fn find(&self, name: &str) -> Option<TargetId> {
        self.directory.find(name)
    }
    pub(crate) fn get(&self, id: TargetId) -> Option<&Target> {
        self.targets.get(&id)
    }
    pub(crate) fn get_mut(&mut self, id: TargetId) -> Option<&mut Target> {
        self.targets.get_mut(&id)
    }

    /// A name for a new connection.
    pub(crate) fn open(&mut self) -> Nexus {
        self.next_session = self.next_session.wrapping_add(1);
        Nexus(self.next_session)
    }

    /// Whether `tsih` names a session of this initiator port.
    pub(crate) fn has_session(&self, initiator: &str, isid: [u8; 6], tsih: u16) -> bool {
        let entry = self.by_tsih.get(&tsih).and_then(|nexus| self.sessions.get(nexus));
        entry.is_some_and(|entry| entry.port.0 == initiator && entry.port.1 == isid)
    }

    /// A login has succeeded. An older session of the same initiator port with the target ends
    /// (RFC 7143 6.3.5, session reinstatement). Returns the new session's TSIH, or `None` when there is none left.
    pub(crate) fn enter(
        &mut self,
        nexus: Nexus,
        initiator: &str,
        isid: [u8; 6],
        to: Option<TargetId>,
    ) -> Option<u16> {
        let port = (initiator.to_owned(), isid);
        if let Some(id) = to
            && let Some(&old) = self.by_port.get(&(id, port.clone()))
        {
            self.detach(old);
            self.tell(old, Notice::Close);
        }
        if self.by_tsih.len() >= usize::from(u16::MAX) {
            return None;
        }
        // Sessions are counted, so the first one is free unless there were 65535 since.
        let first = (nexus.0 as u16).max(1);
        let tsih = (first..=u16::MAX).chain(1..first).find(|tsih| !self.by_tsih.contains_key(tsih))?;
        let name = port_name(&port);
        if let Some(target) = to.and_then(|id| self.targets.get_mut(&id)) {
            let port = self.port;
            target.units.values_mut().for_each(|unit| unit.attach(nexus, &name, port));
        }
        if let Some(id) = to {
            self.members.insert((id, nexus));
            self.by_port.insert((id, port.clone()), nexus);
        }
        self.by_tsih.insert(tsih, nexus);
        self.sessions.insert(nexus, Entry { target: to, port, tsih, notices: Vec::new() });
        Some(tsih)
    }

    fn detach(&mut self, nexus: Nexus) {
        let target = self.sessions.get(&nexus).and_then(|entry| entry.target);
        if let Some(id) = target
            && let Some(target) = self.targets.get_mut(&id)
        {
            target.units.values_mut().for_each(|unit| unit.detach(nexus));
            self.note_bar(id);
        }
        if let Some(entry) = self.sessions.get_mut(&nexus)
            && let Some(id) = entry.target.take()
        {
            self.members.remove(&(id, nexus));
            self.by_port.remove(&(id, entry.port.clone()));
        }
    }

    /// The session is over.
    pub(crate) fn leave(&mut self, nexus: Nexus) {
        self.detach(nexus);
        if let Some(entry) = self.sessions.remove(&nexus) {
            self.by_tsih.remove(&entry.tsih);
        }
        self.poked.remove(&nexus);
    }

    fn tell(&mut self, nexus: Nexus, notice: Notice) {
        let Some(entry) = self.sessions.get_mut(&nexus) else { return };
        if entry.notices.len() >= NOTICES_MAX && notice != Notice::Close {
            // Too slow to hear each: the bluntest that covers them all.
            entry.notices.retain(|notice| matches!(notice, Notice::Close | Notice::Background(_)));
            entry.notices.dedup();
            entry.notices.push(Notice::Abort(None));
        }
        if !entry.notices.contains(&notice) {
            entry.notices.push(notice);
        }
        self.poked.insert(nexus);
    }

    /// Tells all sessions of a target but one.
    pub(crate) fn notify(&mut self, id: TargetId, but: Option<Nexus>, notice: Notice) {
        let to = self.members.range((id, Nexus(0))..=(id, Nexus(u32::MAX))).map(|&(_, nexus)| nexus);
        let to: Vec<Nexus> = to.filter(|&nexus| Some(nexus) != but).collect();
        to.into_iter().for_each(|nexus| self.tell(nexus, notice));
    }

    /// A unit's reservations are these from now on, by whomever that was decided: who is concerned is told, and commands of
    /// preempted sessions, or all of them in a sweep, are aborted. They have left the storage once the unit is
    /// [`Unit::quiet_before`] the number returned.
    pub fn adopt(&mut self, id: TargetId, number: u16, next: Reservations, effects: &Effects) -> u32 {
        let Some(unit) = self.unit(id, number) else { return 0 };
        let hit = unit.adopt(next, effects);
        let epoch = if effects.abort.is_empty() { 0 } else { unit.epoch() };
        hit.into_iter().for_each(|nexus| self.tell(nexus, Notice::Abort(Some(number))));
        match effects.sweep {
            Some((what, _)) => self.sweep(id, number, what, None),
            None => epoch,
        }
    }

    /// Sweeps a unit here: all commands are aborted, except commands of the session `by`, which sees to its own. They have left the
    /// storage once the unit is [`Unit::quiet_before`] the number returned.
    pub(crate) fn sweep(&mut self, id: TargetId, number: u16, what: Sweep, by: Option<Nexus>) -> u32 {
        let Some(unit) = self.unit(id, number) else { return 0 };
        unit.sweep(what, by);
        let epoch = unit.epoch();
        self.note_bar(id);
        self.notify(id, by, Notice::Abort(Some(number)));
        if what == Sweep::Sessions {
            self.notify(id, by, Notice::Close);
        }
        epoch
    }

    /// Decides about a unit's reservations here and now, for a driver that keeps them nowhere else.
    pub fn reserve(&mut self, id: TargetId, number: u16, change: &Change) -> Status {
        let Some(unit) = self.unit(id, number) else { return Status::Check(crate::scsi::Sense::NO_UNIT) };
        let mut next = unit.reservations().clone();
        match next.apply(change) {
            Ok(effects) => {
                self.adopt(id, number, next, &effects);
                Status::Good
            }
            Err(status) => status,
        }
    }

    /// Whether a unit can be used here: not while what is known of its reservations may be old.
    pub fn set_available(&mut self, id: TargetId, number: u16, available: bool) {
        let Some(unit) = self.unit(id, number) else { return };
        if unit.is_available() == available {
            return;
        }
        unit.set_available(available);
        if !available {
            self.notify(id, None, Notice::Withdraw(number));
        }
    }

    /// Says whether a unit's reservations may be others than those known here.
    pub fn set_stale(&mut self, id: TargetId, number: u16, stale: bool) {
        if let Some(unit) = self.unit(id, number) {
            unit.set_stale(stale);
        }
    }

    /// Commands were taken in by reservations that had been replaced elsewhere: those that conflict with what holds now are given up.
    pub fn recheck(&mut self, id: TargetId, number: u16) {
        self.notify(id, None, Notice::Recheck(number));
    }

    pub(crate) fn take_notices(&mut self, nexus: Nexus) -> Vec<Notice> {
        self.sessions.get_mut(&nexus).map(|entry| std::mem::take(&mut entry.notices)).unwrap_or_default()
    }
}

/// An initiator port's name (RFC 7143 4.4.3): the initiator's, and the ISID.
pub(crate) fn port_name(port: &Port) -> String {
    let (initiator, i) = port;
    format!("{initiator},i,0x{:02x}{:02x}{:02x}{:02x}{:02x}{:02x}", i[0], i[1], i[2], i[3], i[4], i[5])
}
