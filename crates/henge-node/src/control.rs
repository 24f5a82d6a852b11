//! The handle by which others ask a node, from any thread. What is asked is routed to the loop that has it, and what is changed is
//! remembered before whoever asked is answered.

pub(crate) mod adding;
pub(crate) mod removal;

use crate::events::Events;
use crate::fill::Fills;
use crate::handover::Guest;
use crate::ledger::Ledger;
use crate::message::Message;
use crate::plane::Notice;
use crate::plane::PartOf;
use crate::plane::tickets::Worked;
use crate::shards::{Routes, Shards, local};
use crate::state::{Memory, Origin};
use crate::tags::Queued;
use crate::watch::{self, Latest};
use henge_api::{Choice, EventKind, Lead, Reply, Request, Status, Table};
use henge_config::Source;
use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

/// Asks a running node. Copies may be used from any thread.
#[derive(Clone)]
pub struct Control {
    pub(crate) shards: Arc<Shards>,
    routes: Arc<Mutex<Routes>>,
    latest: Arc<Latest>,
    events: Arc<Events>,
    memory: Arc<Mutex<Memory>>,
    /// Held while disks come to shards by their numbers, and while they go from several. No disk gets a number that another shard still knows
    /// as a former disk's.
    numbers: Arc<Mutex<()>>,
}

/// A node did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// It says why.
    #[error("{0}")]
    Refused(String),
    /// It did, and cannot remember it.
    #[error("it is done, but may be forgotten when the node restarts: {0}")]
    Unremembered(io::Error),
    /// It has ended.
    #[error("the node has ended")]
    Ended,
}

/// Parts that were made, by shard.
type Made = Vec<(usize, Vec<PartOf>)>;

impl Control {
    pub(crate) fn new(shards: Arc<Shards>, routes: Routes, events: Events, memory: Memory) -> Control {
        Control {
            shards,
            routes: Arc::new(Mutex::new(routes)),
            latest: Arc::default(),
            events: Arc::new(events),
            memory: Arc::new(Mutex::new(memory)),
            numbers: Arc::default(),
        }
    }

    /// Notes what is served from now on, and begins to watch it.
    pub(crate) fn begin(
        &self,
        disks: &[(String, String)],
        failed: &[String],
        noticed: Receiver<Notice>,
        fills: Fills,
        ledger: Ledger,
    ) -> io::Result<JoinHandle<()>> {
        let all = match failed {
            [] => format!("{} disks", disks.len()),
            failed => format!("{} disks; not served: {}", disks.len(), failed.join(", ")),
        };
        self.events.note(EventKind::Started, "", all);
        for (name, terms) in disks.iter().filter(|(name, _)| !self.events.knows(name)) {
            self.events.note(EventKind::Admitted, name, terms.clone());
        }
        let own = self.clone();
        let watcher = move || {
            watch::watch(&own.shards, &own.latest, &own.events, &noticed, fills, ledger);
        };
        std::thread::Builder::new().name("henge-watch".into()).spawn(watcher)
    }

    /// Parts of disks over several nodes are told there from now on, or to nobody.
    pub(crate) fn relay(&self, to: Option<SyncSender<Queued>>) {
        self.shards.tell_all(|| Message::Relay(to.clone()));
    }

    /// Finish times that the manager made.
    pub(crate) fn leads(&self, leads: Vec<Lead>) {
        let mut by_shard: Vec<Vec<Lead>> = (0..self.shards.count()).map(|_| Vec::new()).collect();
        for lead in leads {
            if let Some(theirs) = by_shard.get_mut(local(lead.at.0 as usize).0) {
                theirs.push(lead);
            }
        }
        for (shard, leads) in by_shard.into_iter().enumerate().filter(|(_, leads)| !leads.is_empty()) {
            self.shards.at(shard).send(Message::Leads(leads));
        }
    }

    fn numbers(&self) -> MutexGuard<'_, ()> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, and waits for the answer. What is changed is remembered before this returns.
    pub fn ask(&self, request: Request) -> Result<Reply, ControlError> {
        self.ask_as(request, Origin::Here)
    }

    pub(crate) fn ask_as(&self, mut request: Request, origin: Origin) -> Result<Reply, ControlError> {
        if let Request::Peer { address, at: at @ None, .. } = &mut request {
            *at = Some(crate::links::resolve(address).map_err(ControlError::Refused)?);
        }
        match &request {
            Request::Meters => {
                let status = self.latest.get().ok_or(ControlError::Ended)?;
                return Ok(Reply { status: Some(Status::clone(&status)), ..Reply::done() });
            }
            Request::Status => {
                let mut status = self.shards.look(false).ok_or(ControlError::Ended)?;
                self.latest.tell(&mut status);
                return Ok(Reply { status: Some(status), ..Reply::done() });
            }
            Request::Events { name, after, most } => {
                let events = self.events.after(name.as_deref(), *after, *most);
                return Ok(Reply { events: Some(events), ..Reply::done() });
            }
            Request::Tap => {
                let taken = self.shards.tap().ok_or(ControlError::Ended)?;
                return Ok(Reply { taken: Some(taken), ..Reply::done() });
            }
            _ => {}
        }
        let about = note(&request);
        let reply = self.tell_and_keep(request, origin);
        if let Some((kind, name, detail)) = about {
            match &reply {
                Ok(_) => self.events.note(kind, &name, detail),
                Err(why @ ControlError::Unremembered(_)) => {
                    self.events.note(kind, &name, format!("{detail} ({why})"));
                }
                Err(why) => self.events.note(EventKind::Refused, &name, format!("{detail}: {why}")),
            }
        }
        reply
    }

    fn tell_and_keep(&self, request: Request, origin: Origin) -> Result<Reply, ControlError> {
        let shards = self.routes().of(&request).map_err(ControlError::Refused)?;
        let added = match &request {
            Request::Set { .. } | Request::Remove { .. } | Request::Grow { .. } => None,
            Request::Peer { .. } | Request::Unpeer { .. } | Request::Access { .. } => None,
            Request::Add { disk } => disk.name().map(str::to_owned),
            Request::Room { .. } => {
                self.prepare(&shards, &request)?;
                return self.tell(&shards, request);
            }
            Request::Reset | Request::Untap => return self.tell_all(&request),
            _ => return self.tell(&shards, request),
        };
        if let Request::Remove { name } = &request {
            let name = name.clone();
            return removal::remove_and_keep(self, &shards, request, &name, origin);
        }
        if let Some(disk) = added {
            return adding::add(self, request, &disk, origin);
        }
        // This may take hours, in which others go on.
        self.prepare(&shards, &request)?;
        // Held meanwhile, so that what is remembered last is what was done last.
        let mut memory = self.memory();
        let change = memory.prepare(&request, None, origin).map_err(unremembered)?;
        let reply = self.tell(&shards, request)?;
        memory.commit(change).map_err(ControlError::Unremembered)?;
        Ok(reply)
    }

    /// Has the parts made that a request will need; those that were not there before, by shard.
    fn prepare(&self, shards: &[usize], request: &Request) -> Result<Made, ControlError> {
        let mut made = Vec::new();
        if !matches!(request, Request::Add { .. } | Request::Grow { .. } | Request::Room { .. }) {
            return Ok(made);
        }
        for &shard in shards {
            match self.work(shard, |reply| Message::Prepare(request.clone(), reply)) {
                Ok(parts) => made.push((shard, parts)),
                Err(e) => {
                    if let Request::Add { disk } = request {
                        adding::discard(self, disk.name().unwrap_or_default(), &made);
                    }
                    return Err(e);
                }
            }
        }
        Ok(made)
    }

    /// Has the loop work at parts beside the data path, and waits for it.
    fn work(
        &self,
        shard: usize,
        message: impl FnOnce(Sender<Worked>) -> Message,
    ) -> Result<Vec<PartOf>, ControlError> {
        self.shards.at(shard).ask(message).ok_or(ControlError::Ended)?.map_err(ControlError::Refused)
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody here has changed a disk that a manager made. While something is being changed, which may take as long as storage does not
    /// answer, nobody waits to know.
    pub(crate) fn was_changed_here(&self) -> bool {
        let memory = match self.memory.try_lock() {
            Ok(memory) => memory,
            Err(TryLockError::Poisoned(memory)) => memory.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        memory.disks.values().any(|kept| kept.changed && kept.revision.is_some())
    }

    /// Notes that a disk is as the manager's order wants it.
    pub(crate) fn settle(&self, name: &str, revision: u64) -> io::Result<()> {
        self.memory().settled(name, revision)
    }

    /// Does again what was done before the node ended, and lets clients come. What cannot be is said, and remembered on.
    pub(crate) fn recall(&self, left: Vec<Guest>) {
        self.fail_everywhere();
        let (requests, going) = {
            let memory = self.memory();
            (memory.replay(), memory.going())
        };
        let mut failed = vec![Vec::new(); self.shards.count()];
        for (name, table) in going.into_iter().filter_map(|(name, table)| Some((name, table?))) {
            let shards = self.routes().place(&Request::Add { disk: table.clone() });
            let shards = shards.unwrap_or_else(|_| vec![0]);
            self.routes().came(&name, &shards);
            if let Err(e) = removal::find_remains(self, &shards, &table) {
                eprintln!("henge: disk \"{name}\" is not served: {e}");
                shards.iter().for_each(|shard| failed[*shard].push((name.clone(), e.to_string())));
            }
        }
        for (name, request) in requests {
            let adds = matches!(request, Request::Add { .. });
            let shards = self.routes().place(&request);
            let done = shards.clone().map_err(ControlError::Refused).and_then(|shards| {
                if adds {
                    adding::find_parts(self, &shards, &name, &request)?;
                }
                let made = self.prepare(&shards, &request)?;
                adding::claim(self, &name, &made)?;
                self.tell(&shards, request)
            });
            if let Err(e) = done {
                eprintln!("henge: disk \"{name}\" is not as it was before the node ended: {e}");
                let shards = shards.unwrap_or_else(|_| vec![0]);
                if adds {
                    self.routes().came(&name, &shards);
                    shards.iter().for_each(|shard| failed[*shard].push((name.clone(), e.to_string())));
                }
            }
        }
        let mut guests: Vec<Vec<Guest>> = failed.iter().map(|_| Vec::new()).collect();
        for guest in left {
            // Of a disk that is nowhere, any shard says so.
            let shard = self.routes().of_disk(&guest.disk).map_or(0, |shards| shards[0]);
            guests[shard].push(guest);
        }
        for (shard, (failed, left)) in failed.into_iter().zip(guests).enumerate() {
            // Nobody is there to answer where the loop has ended.
            let _ = self.shards.at(shard).ask(|over| Message::Settle { failed, left, over });
        }
    }

    /// A disk of the file that one of its shards could not open is served by none of them.
    fn fail_everywhere(&self) {
        if self.shards.count() == 1 {
            return;
        }
        for failed in self.shards.look(false).unwrap_or_default().failed {
            let shards = self.routes().of_disk(&failed.name).unwrap_or_default();
            self.withdraw(&shards, &failed.name, Some(&failed.why));
        }
    }

    /// These shards have no such disk any more; their parts of it stay.
    fn withdraw(&self, shards: &[usize], disk: &str, why: Option<&str>) {
        for shard in shards {
            // Nobody is there to answer where the loop has ended.
            let _ = self.shards.at(*shard).ask(|over| Message::Withdraw {
                disk: disk.to_owned(),
                why: why.map(str::to_owned),
                over,
            });
        }
        self.shards.settle();
    }

    /// The meters, at most a second old, without a copy.
    pub fn meters(&self) -> Result<Arc<Status>, ControlError> {
        self.latest.get().ok_or(ControlError::Ended)
    }

    /// Tells the shards that a request concerns. Which disks there are then, all shards know before this returns.
    fn tell(&self, shards: &[usize], request: Request) -> Result<Reply, ControlError> {
        let came = if let Request::Add { disk } = &request { disk.name().map(str::to_owned) } else { None };
        let _numbers = came.is_some().then(|| self.numbers());
        let went = matches!(request, Request::Remove { .. });
        let changes = matches!(request, Request::Grow { .. } | Request::Access { .. });
        let reply = match shards {
            [shard] => self.tell_one(*shard, request),
            several => self.tell_several(several, &request),
        }?;
        came.iter().for_each(|name| self.routes().came(name, shards));
        if came.is_some() || went || changes {
            self.shards.settle();
        }
        Ok(reply)
    }

    fn tell_one(&self, shard: usize, request: Request) -> Result<Reply, ControlError> {
        let went = if let Request::Remove { name } = &request { Some(name.clone()) } else { None };
        // Only removing a disk's data takes long; a loop that ends hangs up.
        let reply =
            self.shards.at(shard).ask(|reply| Message::Ask(request, reply)).ok_or(ControlError::Ended)?;
        let reply = said(reply)?;
        went.iter().for_each(|name| self.routes().went(name, shard));
        Ok(reply)
    }

    /// Tells all shards that a disk concerns; the first of them shows it to clients, and is told last. What one refuses, none has done.
    fn tell_several(&self, shards: &[usize], request: &Request) -> Result<Reply, ControlError> {
        let all = || shards.iter().rev().copied();
        match request {
            Request::Add { disk } => {
                let mut added = Vec::new();
                for shard in all() {
                    if let Err(e) = self.tell_one(shard, request.clone()) {
                        self.withdraw(&added, disk.name().unwrap_or_default(), None);
                        return Err(e);
                    }
                    added.push(shard);
                }
            }
            // At once: each sends its own clients away, and what they have at others is over then.
            Request::Remove { name } => {
                let numbers = self.numbers();
                let (gone, all_gone) = std::sync::mpsc::channel();
                let asked: Vec<_> = all()
                    .map(|shard| {
                        let (reply, answer) = std::sync::mpsc::channel();
                        self.shards.at(shard).send(Message::Remove(name.clone(), reply, Some(gone.clone())));
                        (shard, answer)
                    })
                    .collect();
                drop(gone);
                // Nobody says anything there: it ends when the disk has left its number everywhere, which what it has on storage may outlast.
                let _ = all_gone.recv();
                drop(numbers);
                let mut done = Ok(Reply::done());
                for (shard, answer) in asked {
                    let reply = answer.recv().map_err(|_| ControlError::Ended).and_then(said);
                    if reply.is_ok() {
                        self.routes().went(name, shard);
                    }
                    done = done.and(reply);
                }
                return done;
            }
            Request::Grow { name, capacity } => {
                let ahead = Request::Room { name: name.clone(), capacity: capacity.clone() };
                for request in [&ahead, request] {
                    all().try_for_each(|shard| self.tell_one(shard, request.clone()).map(drop))?;
                }
            }
            Request::Set { name, contract } => {
                let trial = Request::Preview { name: name.clone(), contract: contract.clone() };
                for request in [&trial, request] {
                    all().try_for_each(|shard| self.tell_one(shard, request.clone()).map(drop))?;
                }
            }
            // Whoever has the links may refuse.
            Request::Peer { .. } | Request::Unpeer { .. } => {
                shards.iter().try_for_each(|shard| self.tell_one(*shard, request.clone()).map(drop))?;
            }
            Request::Preview { .. } | Request::Offer { .. } => {
                let mut lines: Vec<String> = Vec::new();
                for &shard in shards {
                    let more = self.tell_one(shard, request.clone())?.lines.unwrap_or_default();
                    lines.extend(more.into_iter().filter(|line| !lines.contains(line)).collect::<Vec<_>>());
                }
                return Ok(Reply { lines: Some(lines), ..Reply::done() });
            }
            _ => all().try_for_each(|shard| self.tell_one(shard, request.clone()).map(drop))?,
        }
        Ok(Reply::done())
    }

    fn tell_all(&self, request: &Request) -> Result<Reply, ControlError> {
        let mut said = Ok(Reply::done());
        for shard in 0..self.shards.count() {
            said = said.and(self.tell_one(shard, request.clone()));
        }
        said
    }

    /// Meters and contracts of everything.
    pub fn status(&self) -> Result<Status, ControlError> {
        self.ask(Request::Status).map(|reply| reply.status.unwrap_or_default())
    }
    /// Changes terms of a disk's contract; an empty value takes one away.
    pub fn set(&self, disk: &str, terms: &[(&str, &str)]) -> Result<(), ControlError> {
        let contract = terms.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.ask(Request::Set { name: disk.to_owned(), contract }).map(drop)
    }
    /// Another scheduler for a pool, while it works: a name, or a table as the configuration writes it.
    pub fn exchange(&self, pool: &str, scheduler: &str) -> Result<(), ControlError> {
        let scheduler = scheduler.trim();
        let scheduler = match scheduler.starts_with(['{', '"', '\'']) {
            false => scheduler.into(),
            true => {
                let read =
                    Source::new("the scheduler", format!("scheduler = {scheduler}")).parse("the scheduler");
                let read = read.map_err(|e| ControlError::Refused(e.to_string()))?;
                Table::from(&read).remove("scheduler").expect("the one key of the text")
            }
        };
        self.ask(Request::Scheduler { pool: pool.to_owned(), scheduler: Choice(scheduler) }).map(drop)
    }
    /// Starts all disks' meters anew.
    pub fn reset(&self) -> Result<(), ControlError> {
        self.ask(Request::Reset).map(drop)
    }
}

/// What a loop answered.
fn said(reply: Reply) -> Result<Reply, ControlError> {
    match reply.ok {
        true => Ok(reply),
        false => Err(ControlError::Refused(reply.error.unwrap_or_default())),
    }
}

/// Nothing is done that is not remembered.
fn unremembered(e: io::Error) -> ControlError {
    ControlError::Refused(format!("it could not be remembered: {e}"))
}

/// What is noted of a request: its kind, whom it is about, and the particulars.
fn note(request: &Request) -> Option<(EventKind, String, String)> {
    match request {
        Request::Set { name, contract } => {
            let terms: Vec<String> = contract.iter().map(|(key, value)| format!("{key}={value}")).collect();
            Some((EventKind::Changed, name.clone(), terms.join(" ")))
        }
        Request::Add { disk } => {
            let mut rest = disk.clone();
            rest.remove("name");
            let name = disk.name().unwrap_or_default().to_owned();
            Some((EventKind::Admitted, name, henge_config::redacted(&rest.to_string())))
        }
        Request::Grow { name, capacity } => {
            Some((EventKind::Changed, name.clone(), format!("capacity={capacity}")))
        }
        Request::Access { name, doors } => {
            Some((EventKind::Changed, name.clone(), henge_config::redacted(&doors.to_string())))
        }
        Request::Remove { name } => Some((EventKind::Removed, name.clone(), String::new())),
        Request::Scheduler { pool, scheduler } => {
            Some((EventKind::Scheduler, pool.clone(), scheduler.to_string()))
        }
        Request::Status | Request::Reset | Request::Meters | Request::Room { .. } => None,
        Request::Preview { .. }
        | Request::Offer { .. }
        | Request::Events { .. }
        | Request::Tap
        | Request::Untap => None,
        Request::Peer { .. } | Request::Unpeer { .. } => None,
        Request::Drain { on } => {
            let what = if *on { "drained: it takes no shared disks" } else { "takes shared disks again" };
            Some((EventKind::Changed, String::new(), what.into()))
        }
    }
}

#[cfg(test)]
mod tests;
