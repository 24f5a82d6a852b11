//! The subsystems of a node, their controllers, and the queues that hosts have connected.
//!
//! A subsystem is a name (NQN) with one namespace, number 1, behind it: a virtual disk. A host's Connect to it makes a
//! controller; each connection is one queue of a controller. What queues must know of each other goes through here as
//! notices; [`Subsystems::next_poked`] says whose session to give them to.

use crate::auth::{Group, Key};
use crate::controller::Controller;
use crate::directory::Directory;
use crate::namespace::Namespace;
use crate::reservation::{Effect, Epochs, Held};
use crate::status::Status;
use henge_core::{Pending, RequestId};
use std::collections::{BTreeMap, BTreeSet};

/// Names a subsystem among [`Subsystems`]: each command looks for its own, so a name is a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct SubsystemId(RequestId);

/// Names a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct QueueId(u32);

/// The name of the subsystem that tells of all others (Base 4.5).
pub const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Controllers have numbers up to this one (Base 4.6.3).
const CONTROLLER_MAX: u16 = 0xffef;
/// Most notices that wait for one queue; of more, the bluntest is kept.
const NOTICES_MAX: usize = 32;

/// Who may use a subsystem.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// NQNs of hosts; empty: any.
    pub hosts: Vec<String>,
    /// What one of them proves to know by DH-HMAC-CHAP.
    pub keys: BTreeMap<String, Key>,
    /// What others prove to know; with none, a host is who it says.
    pub key: Option<Key>,
    /// What the controller proves to know, when a host asks.
    pub controller_key: Option<Key>,
    /// The weakest group in which they may prove it.
    pub weakest: Group,
}

impl Access {
    /// Whether this host may.
    pub fn allows(&self, host: &str) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|name| name == host)
    }
    /// What this host proves to know.
    pub fn key(&self, host: &str) -> Option<&Key> {
        self.keys.get(host).or(self.key.as_ref())
    }
    /// Whether each host proves who it is.
    pub fn is_guarded(&self) -> bool {
        let all = !self.hosts.is_empty() && self.hosts.iter().all(|host| self.keys.contains_key(host));
        all || self.key.is_some()
    }
}

/// How a host is refused that may not use a subsystem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Some subsystem asks hosts for proofs: this one, too, in groups from this one on, and no proof is right.
    Proof(Group),
    /// Some subsystem asks for hosts' names.
    Host,
    /// None asks anything: there is no such name.
    Name,
}

/// One subsystem.
#[derive(Debug)]
pub struct Subsystem {
    pub(crate) nqn: String,
    pub(crate) access: Access,
    pub(crate) namespace: Namespace,
    /// Who may use it, beside whom.
    pub(crate) held: Held,
    /// That may be old: commands wait before the storage until it is not.
    pub(crate) stale: bool,
    /// Why the disk is no host's to use now, by what others did with it.
    pub(crate) barred: Option<Status>,
    pub(crate) epochs: Epochs,
    /// Where other nodes serve it: address and port.
    pub(crate) elsewhere: Vec<(String, String)>,
}

/// What a queue is told by others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// The controller has an event to tell.
    Event,
    /// Give up the command of this name.
    Abort(u16),
    /// Give up all commands: the host was preempted.
    Preempted,
    /// Give up what has not begun: the namespace cannot be used here now.
    Withdraw,
    /// Give up what conflicts with reservations that hold now, and was taken in by others.
    Recheck,
    /// End it: its controller is gone.
    Close,
}

#[derive(Debug, Default)]
struct Queue {
    controller: Option<u16>,
    notices: Vec<Notice>,
}

/// All subsystems of a node, and all that hosts have of them.
#[derive(Debug)]
pub struct Subsystems {
    subsystems: Pending<Subsystem>,
    by_name: BTreeMap<String, SubsystemId>,
    /// Of those that are gone: commands that are still at the storage.
    leaving: BTreeMap<SubsystemId, Epochs>,
    /// Of those that say who may use them, how many ask for which group; with none at all where a name is enough.
    guards: BTreeMap<Option<Group>, usize>,
    controllers: BTreeMap<u16, Controller>,
    next_controller: u16,
    /// By subsystem: a change of one looks at no other's controllers.
    members: BTreeSet<(Option<SubsystemId>, u16)>,
    queues: BTreeMap<QueueId, Queue>,
    next_queue: u32,
    poked: BTreeSet<QueueId>,
    /// The number of the last challenge; 0: there was none.
    sequence: u32,
    /// Grows whenever the discovery log becomes another.
    pub(crate) generation: u64,
    /// What the log shows, once somebody has asked since then.
    directory: Option<Directory>,
    /// The number of this node's port, told by discovery.
    pub(crate) port: u16,
}

impl Subsystems {
    /// None yet. `port` is this node's number among those that serve the same disks; numbers of controllers begin there, so
    /// that numbers of several nodes differ: hosts refuse a second controller of a subsystem with a number that they have.
    pub fn at(port: u16) -> Subsystems {
        Subsystems {
            subsystems: Pending::new(),
            by_name: BTreeMap::new(),
            leaving: BTreeMap::new(),
            guards: BTreeMap::new(),
            controllers: BTreeMap::new(),
            next_controller: port.clamp(1, CONTROLLER_MAX),
            members: BTreeSet::new(),
            queues: BTreeMap::new(),
            next_queue: 0,
            poked: BTreeSet::new(),
            sequence: 0,
            generation: 1,
            directory: None,
            port,
        }
    }

    /// A new subsystem; `None` when there is one of that name.
    pub fn add(&mut self, nqn: &str, access: Access, namespace: Namespace) -> Option<SubsystemId> {
        if self.by_name.contains_key(nqn) || nqn == DISCOVERY {
            return None;
        }
        self.count(&access, true);
        let subsystem = Subsystem {
            nqn: nqn.to_owned(),
            access,
            namespace,
            held: Held::default(),
            stale: false,
            barred: None,
            epochs: Epochs::default(),
            elsewhere: Vec::new(),
        };
        let id = SubsystemId(self.subsystems.insert(subsystem));
        self.by_name.insert(nqn.to_owned(), id);
        self.discovery_changed();
        Some(id)
    }

    /// The subsystem is gone, and its controllers.
    pub fn remove(&mut self, id: SubsystemId) {
        let Some(gone) = self.subsystems.remove(id.0) else { return };
        self.by_name.remove(&gone.nqn);
        if !gone.epochs.is_quiet() {
            self.leaving.insert(id, gone.epochs);
        }
        self.count(&gone.access, false);
        for cntlid in self.controllers_of(Some(id)) {
            self.end_controller(cntlid);
        }
        self.discovery_changed();
    }

    /// Who may use it from now on. Controllers that are there end: hosts connect anew, if they may.
    pub fn set_access(&mut self, id: SubsystemId, access: Access) {
        let Some(subsystem) = self.subsystems.get_mut(id.0).filter(|there| there.access != access) else {
            return;
        };
        let before = std::mem::replace(&mut subsystem.access, access.clone());
        self.count(&before, false);
        self.count(&access, true);
        for cntlid in self.controllers_of(Some(id)) {
            self.end_controller(cntlid);
        }
        self.discovery_changed();
    }

    /// One more says who may use it, or one less.
    fn count(&mut self, access: &Access, more: bool) {
        let guard = match (access.is_guarded(), access.hosts.is_empty()) {
            (true, _) => Some(access.weakest),
            (false, false) => None,
            (false, true) => return,
        };
        let count = self.guards.entry(guard).or_insert(0);
        *count = if more { *count + 1 } else { *count - 1 };
        if *count == 0 {
            self.guards.remove(&guard);
        }
    }

    /// How a host is refused that may not use a subsystem, whether there is one of that name or not: so that no name is told.
    pub(crate) fn refusal(&self) -> Refusal {
        match self.guards.last_key_value().map(|(guard, _)| *guard) {
            Some(Some(weakest)) => Refusal::Proof(weakest),
            Some(None) => Refusal::Host,
            None => Refusal::Name,
        }
    }

    /// Where other nodes serve it: address and port of each.
    pub fn set_elsewhere(&mut self, id: SubsystemId, elsewhere: Vec<(String, String)>) {
        if let Some(subsystem) = self.subsystems.get_mut(id.0)
            && subsystem.elsewhere != elsewhere
        {
            subsystem.elsewhere = elsewhere;
            self.discovery_changed();
        }
    }

    /// The namespace has `bytes` bytes now; hosts are told.
    pub fn resize(&mut self, id: SubsystemId, bytes: u64) {
        let Some(subsystem) = self.subsystems.get_mut(id.0) else { return };
        if std::mem::replace(&mut subsystem.namespace.bytes, bytes) != bytes {
            self.tell_controllers(Some(id), Controller::namespace_changed);
        }
    }

    /// How the namespace can be reached by way of this node; hosts are told.
    pub fn set_reach(&mut self, id: SubsystemId, reach: crate::Reach) {
        let Some(subsystem) = self.subsystems.get_mut(id.0) else { return };
        if std::mem::replace(&mut subsystem.namespace.reach, reach) != reach {
            subsystem.namespace.reach_changes += 1;
            self.tell_controllers(Some(id), Controller::reach_changed);
            if reach == crate::Reach::Inaccessible {
                for cntlid in self.controllers_of(Some(id)) {
                    self.tell_io_queues(cntlid, Notice::Withdraw);
                }
            }
        }
    }

    /// Who may use the namespace from now on. Whom that concerns is told, and commands of preempted hosts are aborted: they have
    /// left the storage once it is [`Subsystems::is_quiet_before`] the number returned.
    pub fn adopt(&mut self, id: SubsystemId, held: Held, effects: &[Effect]) -> u32 {
        let Some(subsystem) = self.subsystems.get_mut(id.0) else { return 0 };
        subsystem.held = held;
        let aborts = effects.iter().any(|effect| effect.aborts);
        let epoch = if aborts { subsystem.epochs.next() } else { 0 };
        if effects.is_empty() {
            return epoch;
        }
        // Hundreds of hosts may be told, and have a thousand controllers: each looks for its own host alone.
        let mut effects = effects.to_vec();
        effects.sort_by_key(|effect| effect.host);
        for cntlid in self.controllers_of(Some(id)) {
            let Some(controller) = self.controllers.get_mut(&cntlid) else { continue };
            let (host, mut tells, mut aborts) = (controller.host_id, false, false);
            let first = effects.partition_point(|effect| effect.host < host);
            for effect in effects[first..].iter().take_while(|effect| effect.host == host) {
                aborts |= effect.aborts;
                if let Some(notification) = effect.notification {
                    tells |= controller.reservation_changed(notification);
                }
            }
            if tells {
                self.tell_admin(cntlid);
            }
            if aborts {
                self.tell_io_queues(cntlid, Notice::Preempted);
            }
        }
        epoch
    }

    /// Whether reservations may be others than those known here. Commands are taken in all the same; nothing is told of reservations.
    pub fn set_stale(&mut self, id: SubsystemId, stale: bool) {
        if let Some(subsystem) = self.subsystems.get_mut(id.0) {
            subsystem.stale = stale;
        }
    }

    /// Clients of another protocol have said something of the disk that keeps hosts from it: commands for it end so.
    pub fn set_barred(&mut self, id: SubsystemId, barred: Option<Status>) {
        if let Some(subsystem) = self.subsystems.get_mut(id.0) {
            subsystem.barred = barred;
        }
    }

    /// What [`Subsystems::set_barred`] said.
    pub fn barred(&self, id: SubsystemId) -> Option<Status> {
        self.subsystems.get(id.0)?.barred
    }

    /// Commands were taken in by reservations that had been replaced elsewhere: those that conflict with what holds now are given up.
    pub fn recheck(&mut self, id: SubsystemId) {
        for cntlid in self.controllers_of(Some(id)) {
            self.tell_io_queues(cntlid, Notice::Recheck);
        }
    }

    /// Whether no command for the namespace that began before `epoch` is at the storage. Of a subsystem that is gone: whether none is.
    pub fn is_quiet_before(&self, id: SubsystemId, epoch: u32) -> bool {
        match self.subsystems.get(id.0) {
            Some(there) => there.epochs.is_quiet_before(epoch),
            None => !self.leaving.contains_key(&id),
        }
    }

    /// A command that began in this epoch is back from the storage.
    pub(crate) fn end(&mut self, id: SubsystemId, epoch: u32) {
        if let Some(subsystem) = self.subsystems.get_mut(id.0) {
            subsystem.epochs.end(epoch);
        } else if let Some(epochs) = self.leaving.get_mut(&id) {
            epochs.end(epoch);
            if epochs.is_quiet() {
                self.leaving.remove(&id);
            }
        }
    }

    /// A controller has an event to tell.
    pub(crate) fn tell_admin(&mut self, cntlid: u16) {
        let admin = self.controllers.get(&cntlid).and_then(|there| there.queues.get(&0).copied());
        if let Some(admin) = admin {
            self.tell(admin, Notice::Event);
        }
    }

    fn tell_io_queues(&mut self, cntlid: u16, notice: Notice) {
        let Some(controller) = self.controllers.get(&cntlid) else { return };
        let queues: Vec<QueueId> = controller.queues.range(1..).map(|(_, queue)| *queue).collect();
        queues.into_iter().for_each(|queue| self.tell(queue, notice));
    }

    /// A session that has news: call [`crate::Session::poke`] for it.
    pub fn next_poked(&mut self) -> Option<QueueId> {
        self.poked.pop_first()
    }

    #[inline]
    pub(crate) fn get(&self, id: SubsystemId) -> Option<&Subsystem> {
        self.subsystems.get(id.0)
    }
    #[inline]
    pub(crate) fn get_mut(&mut self, id: SubsystemId) -> Option<&mut Subsystem> {
        self.subsystems.get_mut(id.0)
    }
    pub(crate) fn find(&self, nqn: &str) -> Option<SubsystemId> {
        self.by_name.get(nqn).copied()
    }
    /// Who finds what by discovery.
    pub(crate) fn directory(&mut self) -> &Directory {
        self.directory.get_or_insert_with(|| {
            Directory::of(self.subsystems.iter().map(|(id, there)| (SubsystemId(id), there)))
        })
    }
    pub(crate) fn controller(&self, cntlid: u16) -> Option<&Controller> {
        self.controllers.get(&cntlid)
    }
    pub(crate) fn controller_mut(&mut self, cntlid: u16) -> Option<&mut Controller> {
        self.controllers.get_mut(&cntlid)
    }

    /// A number for a challenge: no two in a row have the same, and none is 0. The first one is drawn.
    pub(crate) fn next_sequence(&mut self, drawn: u32) -> u32 {
        let next = if self.sequence == 0 { drawn } else { self.sequence.wrapping_add(1) };
        self.sequence = next.max(1);
        self.sequence
    }

    /// A name for a new connection.
    pub(crate) fn open(&mut self) -> QueueId {
        self.next_queue = self.next_queue.wrapping_add(1);
        let id = QueueId(self.next_queue);
        self.queues.insert(id, Queue::default());
        id
    }

    /// A new controller, whose admin queue is this connection. `None` when there is no number left.
    pub(crate) fn begin_controller(&mut self, admin: QueueId, mut controller: Controller) -> Option<u16> {
        let from = self.next_controller;
        let mut numbers = (from..=CONTROLLER_MAX).chain(1..from);
        let cntlid = numbers.find(|number| !self.controllers.contains_key(number))?;
        self.next_controller = if cntlid == CONTROLLER_MAX { 1 } else { cntlid + 1 };
        controller.queues.insert(0, admin);
        self.members.insert((controller.subsystem, cntlid));
        self.controllers.insert(cntlid, controller);
        self.queues.entry(admin).or_default().controller = Some(cntlid);
        Some(cntlid)
    }

    /// A connection is I/O queue `qid` of a controller. `false` when the controller has it already.
    pub(crate) fn join(&mut self, queue: QueueId, cntlid: u16, qid: u16) -> bool {
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return false };
        if controller.queues.contains_key(&qid) {
            return false;
        }
        controller.queues.insert(qid, queue);
        self.queues.entry(queue).or_default().controller = Some(cntlid);
        true
    }

    /// A connection is over. With its admin queue a controller ends.
    pub(crate) fn leave(&mut self, queue: QueueId) {
        self.poked.remove(&queue);
        let Some(Queue { controller: Some(cntlid), .. }) = self.queues.remove(&queue) else { return };
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return };
        if controller.queues.get(&0) == Some(&queue) {
            controller.queues.remove(&0);
            self.end_controller(cntlid);
        } else {
            controller.queues.retain(|_, other| *other != queue);
        }
    }

    /// The controller is no more; connections that are left to it are closed.
    pub(crate) fn end_controller(&mut self, cntlid: u16) {
        let Some(controller) = self.controllers.remove(&cntlid) else { return };
        self.members.remove(&(controller.subsystem, cntlid));
        controller.queues.into_values().for_each(|queue| self.tell(queue, Notice::Close));
    }

    /// The controller is reset or shut down: its I/O queues are closed (Base 3.7.2, over fabrics).
    pub(crate) fn close_io_queues(&mut self, cntlid: u16) {
        let Some(controller) = self.controllers.get_mut(&cntlid) else { return };
        let queues = controller.queues.split_off(&1);
        queues.into_values().for_each(|queue| self.tell(queue, Notice::Close));
    }

    pub(crate) fn tell(&mut self, queue: QueueId, notice: Notice) {
        let Some(entry) = self.queues.get_mut(&queue) else { return };
        if entry.notices.contains(&notice) {
            return;
        }
        // A host that asks for more aborts at once than are kept loses some: Abort is best effort (Base 5.1).
        if entry.notices.len() < NOTICES_MAX || !matches!(notice, Notice::Abort(_)) {
            entry.notices.push(notice);
        }
        self.poked.insert(queue);
    }

    pub(crate) fn take_notices(&mut self, queue: QueueId) -> Vec<Notice> {
        self.queues.get_mut(&queue).map(|entry| std::mem::take(&mut entry.notices)).unwrap_or_default()
    }

    fn controllers_of(&self, subsystem: Option<SubsystemId>) -> Vec<u16> {
        let members = self.members.range((subsystem, 0)..=(subsystem, u16::MAX));
        members.map(|(_, cntlid)| *cntlid).collect()
    }

    /// Gives each controller of a subsystem an event, and pokes those that are to tell it.
    fn tell_controllers(&mut self, subsystem: Option<SubsystemId>, event: impl Fn(&mut Controller) -> bool) {
        for cntlid in self.controllers_of(subsystem) {
            let Some(controller) = self.controllers.get_mut(&cntlid) else { continue };
            let admin = controller.queues.get(&0).copied();
            if event(controller)
                && let Some(admin) = admin
            {
                self.tell(admin, Notice::Event);
            }
        }
    }

    fn discovery_changed(&mut self) {
        self.generation += 1;
        self.directory = None;
        self.tell_controllers(None, Controller::discovery_changed);
    }
}
