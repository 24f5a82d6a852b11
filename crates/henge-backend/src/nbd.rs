//! A pool over NBD servers: each disk is a whole export.
//!
//! An export's bytes are what its server makes of them, so other clients of the server read the very same disk, and nothing of ours lies
//! among them. There is no table to keep, and none to lose. The price: whoever wants several disks makes several exports.
//!
//! | | |
//! |---|---|
//! | [`uri`] | where a server is |
//! | [`dial`] | connects and negotiates, on a thread that may block |
//! | [`link`] | one connection, in the loop |
//! | [`links`] | the connections to one export, and which sends the next command |
//! | [`redial`] | when a lost server is dialled again |
//! | [`remote`] | one export over its connections: what is sent again, what is in doubt |
//! | [`writes`] | no two writes of the same bytes are with a server at once |

mod dial;
mod link;
mod links;
mod redial;
mod remote;
mod uri;
mod writes;

use crate::registry::{Medium, Wanted};
use crate::space::{GRAIN, Space, check_name};
use crate::store::{Chore, Step};
use crate::{Buffer, Store, Watch};
use dial::Dialed;
use henge_core::{Backend, Done, Duration, Fault, Instant, ParamError, Params, Request};
use remote::{Remote, Terms};
use rustix::event::epoll::{self, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use uri::Uri;

/// The name of what tells of dialled connections; sockets have their exports' numbers.
const DIALED: u32 = u32::MAX;

/// `nbd = { uri = … }`
#[derive(Clone, Debug)]
struct Exports {
    uri: Uri,
    by_name: bool,
    terms: Terms,
}

/// Reads `nbd = { uri = "nbd://10.0.0.5/vm", by_name = false, connections = 2, wait = "30s", fua = false }`.
pub(crate) fn read(p: &mut Params) -> Result<Option<Arc<dyn Medium>>, ParamError> {
    let Some(mut table) = p.table("nbd")? else { return Ok(None) };
    let uri = table.text("uri")?;
    let uri = uri::parse(&table.required("uri", uri)?).map_err(|why| table.error("uri", why))?;
    let by_name = table.bool("by_name")?.unwrap_or(false);
    if by_name && !uri.export.is_empty() {
        let why = "with by_name = true each disk's name is its export's; leave the export out of the uri";
        return Err(table.error("uri", why.into()));
    }
    let terms = Terms {
        connections: table.integer("connections", 1, 16)?.unwrap_or(2) as usize,
        wait: table.duration("wait")?.unwrap_or(Duration::from_secs(30)),
        fua: table.bool("fua")?.unwrap_or(false),
    };
    table.finish()?;
    Ok(Some(Arc::new(Exports { uri, by_name, terms })))
}

impl Medium for Exports {
    fn key(&self) -> &'static str {
        "nbd"
    }
    fn open(&self, wanted: &Wanted<'_>) -> io::Result<Box<dyn Store>> {
        Ok(Box::new(Nbd::open(self.clone(), wanted.capacity, wanted.options.apart)?))
    }
    fn knows_capacity(&self) -> bool {
        !self.by_name
    }
    fn copies(&self) -> bool {
        true
    }
    fn answers_soon(&self) -> bool {
        true
    }
    fn patience(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }
}

/// A pool over NBD servers.
pub(crate) struct Nbd {
    exports: Exports,
    capacity: u64,
    space: Space,
    /// By the order of `space.extents()`: where in `remotes`.
    slots: Vec<usize>,
    remotes: Vec<Option<Remote>>,
    /// Parts whose disks say that they take what is there.
    adopted: BTreeSet<String>,
    watch: Watch,
    bell: Arc<OwnedFd>,
    dialed: (Sender<Answered>, Receiver<Answered>),
    /// How often each slot was used, so that a connection dialled for a former user is dropped.
    lives: Vec<u64>,
    /// Something came of dialling.
    is_dialed: bool,
    /// A part that is being opened by steps.
    opening: Option<Opening>,
    runnable: Vec<usize>,
    wake: Option<Instant>,
    done: VecDeque<Done<Buffer>>,
}

/// Of which slot, in which of its lives, and what came of it.
type Answered = (usize, u64, Result<Dialed, String>);

/// A part's name and length, and where a thread puts its connection.
type Opening = (String, u64, Arc<Mutex<Option<Dialed>>>);

impl Nbd {
    fn open(exports: Exports, capacity: u64, apart: bool) -> io::Result<Nbd> {
        let capacity = match capacity {
            0 => dial::dial(&exports.uri).map_err(io::Error::other)?.said.size,
            stated => stated,
        };
        // Until a loop watches.
        let nobody = Watch::new(Rc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?), 0);
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let room = capacity.next_multiple_of(GRAIN);
        Ok(Nbd {
            exports,
            capacity,
            space: if apart { Space::apart(room) } else { Space::new(room) },
            slots: Vec::new(),
            remotes: Vec::new(),
            adopted: BTreeSet::new(),
            watch: nobody,
            bell: Arc::new(bell),
            dialed: channel(),
            lives: Vec::new(),
            is_dialed: false,
            opening: None,
            runnable: Vec::new(),
            wake: None,
            done: VecDeque::new(),
        })
    }

    /// The export that a part is.
    fn export(&self, part: &str) -> Uri {
        let mut uri = self.exports.uri.clone();
        if self.exports.by_name {
            part.rsplit_once(".part").map_or(part, |(disk, _)| disk).clone_into(&mut uri.export);
        }
        uri
    }

    /// Whether there may be such a part.
    fn may_open(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        match self.space.extents().first() {
            Some(other) if !self.exports.by_name => {
                let why = format!(
                    "{} is one disk's, and \"{}\" has it; another export is another pool, or by_name = true",
                    dial::named(&self.exports.uri),
                    other.name
                );
                Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
            }
            _ => Ok(()),
        }
    }

    /// A connection is there: so is the part.
    fn attach(&mut self, name: &str, len: u64, dialed: Dialed) -> io::Result<()> {
        let uri = self.export(name);
        enough(&uri, dialed.said.size, len)?;
        let slot = self.remotes.iter().position(Option::is_none).unwrap_or(self.remotes.len());
        let mut remote = Remote::new(uri, self.exports.terms, slot as u32, dialed, self.watch.clone())
            .map_err(io::Error::other)?;
        remote.used = len;
        let i = self.space.allocate(name, len)?;
        self.slots.insert(i, slot);
        if slot == self.remotes.len() {
            self.remotes.push(None);
            self.lives.push(0);
        }
        self.lives[slot] += 1;
        self.remotes[slot] = Some(remote);
        self.make_runnable(slot);
        Ok(())
    }

    fn lengthen(&mut self, name: &str, len: u64) -> io::Result<()> {
        self.could_grow(name, len)?;
        let i = self.space.extents().iter().position(|part| part.name == name);
        let slot = self.slots[i.expect("a part that grows is there")];
        self.space.grow(name, len)?;
        self.remotes[slot].as_mut().expect("a part has an export").used = len;
        Ok(())
    }

    fn base(&self, name: &str) -> u64 {
        self.space.find(name).map_or(0, |part| part.base)
    }

    fn make_runnable(&mut self, slot: usize) {
        if let Some(remote) = &mut self.remotes[slot]
            && !std::mem::replace(&mut remote.runnable, true)
        {
            self.runnable.push(slot);
        }
    }

    /// Takes what came of dialling.
    fn hear(&mut self, now: Instant) {
        while let Ok((slot, life, dialed)) = self.dialed.1.try_recv() {
            if self.lives[slot] == life
                && let Some(remote) = &mut self.remotes[slot]
            {
                remote.dialed(dialed, now);
                self.make_runnable(slot);
            }
        }
    }

    /// Connects again, on a thread that may wait.
    fn dial(&mut self, slot: usize, now: Instant) {
        let Some(remote) = &mut self.remotes[slot] else { return };
        let (uri, life) = (remote.uri().clone(), self.lives[slot]);
        let (sender, bell) = (self.dialed.0.clone(), Arc::clone(&self.bell));
        let thread = std::thread::Builder::new().name("nbd-dial".into()).spawn(move || {
            // Whoever asked may be gone.
            let _ = sender.send((slot, life, dial::dial(&uri)));
            let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
        });
        if let Err(e) = thread {
            remote.dialed(Err(format!("no thread to connect: {e}")), now);
        }
    }

    fn work(&mut self, now: Instant) {
        if self.wake.is_some_and(|at| at <= now) {
            for slot in 0..self.remotes.len() {
                if self.remotes[slot].as_ref().is_some_and(|r| r.wake_at().is_some_and(|at| at <= now)) {
                    self.make_runnable(slot);
                }
            }
        }
        let mut troubled = self.wake.is_some();
        while let Some(slot) = self.runnable.pop() {
            let Some(remote) = &mut self.remotes[slot] else { continue };
            remote.runnable = false;
            remote.work(now, &mut self.done);
            let to_dial = remote.is_to_dial(now);
            troubled |= remote.wake_at().is_some();
            if to_dial {
                self.dial(slot, now);
                troubled = true;
            }
        }
        if troubled {
            self.wake = self.remotes.iter().flatten().filter_map(Remote::wake_at).min();
        }
    }
}

/// Whether an export holds so much.
fn enough(uri: &Uri, size: u64, len: u64) -> io::Result<()> {
    if len <= size {
        return Ok(());
    }
    let why = format!("{} has {size} bytes, fewer than the disk's {len}", dial::named(uri));
    // Of this disk alone: the others are served.
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

impl Backend for Nbd {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, _now: Instant) {
        let Some((i, part)) = self.space.locate(request.offset, request.len) else {
            let (id, outcome) = (request.id, Err(Fault::OutOfRange));
            return self.done.push_back(Done { id, outcome, busy: None, payload });
        };
        let (offset, slot) = (request.offset - part.base, self.slots[i]);
        self.remotes[slot].as_mut().expect("a part has an export").submit(request, payload, offset);
        self.make_runnable(slot);
    }
    fn reap(&mut self, now: Instant) -> Option<Done<Buffer>> {
        if std::mem::take(&mut self.is_dialed) {
            self.hear(now);
        }
        if !self.runnable.is_empty() || self.wake.is_some_and(|at| at <= now) {
            self.work(now);
        }
        self.done.pop_front()
    }
    fn wake_at(&self) -> Option<Instant> {
        if self.done.is_empty() && self.runnable.is_empty() { self.wake } else { Some(Instant::ZERO) }
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
}

impl Store for Nbd {
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
        if !self.adopted.contains(name) {
            let why = format!(
                "{} holds what its server says, so the disk needs adopt = true: it takes what is there",
                dial::named(&self.export(name))
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        match self.space.find(name).map(|part| part.len) {
            Some(has) if has < len => self.lengthen(name, len)?,
            Some(_) => {}
            None => {
                self.may_open(name)?;
                let dialed = dial::dial(&self.export(name)).map_err(io::Error::other)?;
                self.attach(name, len, dialed)?;
            }
        }
        Ok(self.base(name))
    }
    fn could_grow(&self, name: &str, len: u64) -> io::Result<()> {
        let parts = self.space.extents().iter().zip(&self.slots);
        for (part, slot) in parts.filter(|(part, _)| part.name == name && part.len < len) {
            let remote = self.remotes[*slot].as_ref().expect("a part has an export");
            enough(remote.uri(), remote.said.size, len)?;
            self.space.could_grow(&part.name, len)?;
        }
        Ok(())
    }
    fn remove_part(&mut self, name: &str) -> io::Result<()> {
        self.adopted.remove(name);
        if let Some(i) = self.space.free(name) {
            let slot = self.slots.remove(i);
            if let Some(mut remote) = self.remotes[slot].take() {
                remote.end();
            }
        }
        Ok(())
    }
    fn begin_part(&mut self, name: &str, len: u64) -> io::Result<Step> {
        match self.space.find(name).map(|part| part.len) {
            Some(has) if has < len => self.lengthen(name, len)?,
            Some(_) => {}
            None => {
                self.may_open(name)?;
                let (uri, shared) = (self.export(name), Arc::new(Mutex::new(None)));
                self.opening = Some((name.to_owned(), len, Arc::clone(&shared)));
                let chore: Chore = Box::new(move || {
                    let dialed = dial::dial(&uri).map_err(io::Error::other)?;
                    *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(dialed);
                    Ok(None)
                });
                return Ok(Step::Run(chore));
            }
        }
        Ok(Step::There(self.base(name)))
    }
    fn go_on(&mut self, name: &str, outcome: io::Result<Option<File>>) -> io::Result<Step> {
        let opening = self.opening.take().filter(|(of, ..)| of == name);
        outcome?;
        let dialed = opening.and_then(|(_, len, shared)| {
            Some((len, shared.lock().unwrap_or_else(PoisonError::into_inner).take()?))
        });
        let (len, dialed) =
            dialed.ok_or_else(|| io::Error::other(format!("nothing is under way with \"{name}\"")))?;
        self.attach(name, len, dialed)?;
        Ok(Step::There(self.base(name)))
    }
    fn has_part(&self, name: &str) -> bool {
        self.space.find(name).is_some()
    }
    fn is_new(&self, name: &str) -> bool {
        // To remove it is to leave its server: nothing that is stored goes.
        self.space.find(name).is_some()
    }
    fn forget_part(&mut self, name: &str) {
        if self.space.find(name).is_none() {
            self.adopted.remove(name);
        }
    }
    fn adopt_part(&mut self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.adopted.insert(name.to_owned());
        Ok(())
    }
    fn opens_elsewhere(&self) -> bool {
        true
    }
    fn notice(&mut self) -> Option<String> {
        self.remotes.iter_mut().flatten().find_map(|remote| remote.notices.take())
    }
    fn block(&self) -> u64 {
        self.remotes.iter().flatten().map(|remote| u64::from(remote.said.block.least)).max().unwrap_or(1)
    }
    fn signalled(&mut self) {
        for slot in 0..self.remotes.len() {
            self.remotes[slot].iter_mut().for_each(Remote::looks);
            self.make_runnable(slot);
        }
        self.is_dialed = true;
    }
    fn be_watched(&mut self, watch: &Watch) -> io::Result<()> {
        watch.add(&*self.bell, DIALED, EventFlags::IN | EventFlags::ET)?;
        self.watch = watch.clone();
        self.remotes.iter_mut().flatten().try_for_each(|remote| remote.be_watched(watch))?;
        Ok(())
    }
    fn happened(&mut self, name: u32, flags: EventFlags) {
        if name == DIALED {
            let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
            self.is_dialed = true;
            return;
        }
        let slot = (name >> 8) as usize;
        if let Some(Some(remote)) = self.remotes.get_mut(slot) {
            remote.happened((name & 0xff) as usize, flags);
            self.make_runnable(slot);
        }
    }
    fn describe(&self) -> String {
        let exports = if self.exports.by_name { ", an export for each disk by its name" } else { "" };
        let fua = if self.exports.terms.fua { ", every write durable" } else { "" };
        format!("NBD server {}{exports}{fua}", dial::named(&self.exports.uri))
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        self.remotes.iter_mut().flatten().for_each(Remote::end);
    }
}
