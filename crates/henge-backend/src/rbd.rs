//! A pool of a Ceph cluster: each disk is an image.
//!
//! Replicas, their repair and where bytes lie are Ceph's; nothing of Henge's own lies in an image. So a disk can come from Ceph and leave
//! to it as it is. There is no table to keep: an image's metadata says whose it is.
//!
//! | | |
//! |---|---|
//! | [`library`] | Ceph's functions, found at run time |
//! | [`ceph`] | a cluster and its images, by those functions |
//! | [`cluster`] | what is asked of a cluster; how a disk's image is come by, and who may write it |
//! | [`flight`] | requests under way, and how the loop hears of their end |
//! | [`beside`] | the text that lies with a part, in its image's metadata |
//! | [`objects`] | which objects of an image hold something |
//!
//! The loop calls nothing that waits. What may wait runs on a thread of its own, and nobody waits for it for ever.
//!
//! # When something goes wrong
//! - A request is never given up: librbd cannot take one back, and an answered failure that happens later would be a lie. What is silent for
//!   long is said.
//! - Who was blocklisted was fenced: somebody else serves its images. Everything fails from the first such error on, until the node
//!   begins again.
//! - An image that was cut from outside fails requests beyond its end; what librbd has cut short is not acknowledged.

mod beside;
mod ceph;
mod cluster;
#[cfg(test)]
mod fake;
mod flight;
mod library;
mod objects;

use crate::registry::{Medium, Wanted};
use crate::space::{GRAIN, Space, check_name};
use crate::store::{Chore, Step};
use crate::{Beside, Buffer, Claim, Register, Store};
use beside::InMetadata;
use ceph::{Ceph, Reach};
pub use cluster::Origin;
use cluster::{Cluster, Had, Image, Plan, have};
use flight::{Ask, Flight, Flights, Landed};
use henge_core::{
    Backend, Done, Duration, Fault, Instant, Op, ParamError, Params, Pending, Request, RequestId,
};
use objects::Objects;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as Real;

/// How long monitors may be silent when a pool is opened.
const SILENCE_S: u32 = 15;
/// How long opening and the like may take: a lock of a client that has died is Ceph's to take away, after half a minute.
const PATIENCE: Real = Real::from_secs(60);
/// How long the end waits for images to be closed.
const FAREWELL: Real = Real::from_secs(3);
/// Most bytes that one request zeroes, so that others are not behind it for long.
const ZEROED: u64 = 128 << 20;
/// A request that is silent for so long is said to be.
const SILENT: Duration = Duration::from_secs(10);
/// How often requests under way are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Notices that nobody has taken; older ones are forgotten.
const NOTICES: usize = 16;
const FENCED: &str = "this node was blocklisted, so somebody else serves its images: nothing of this pool is served until the node \
    begins again";
/// What a blocklisted client is answered (`EBLOCKLISTED`).
const BLOCKLISTED: i64 = -(libc::ESHUTDOWN as i64);

/// `rbd = { pool = … }`
#[derive(Clone, Debug)]
struct OfCeph(Reach);

/// Reads `rbd = { pool = "henge", conf = "/etc/ceph/ceph.conf", user = "henge", keyring = "…" }`.
pub(crate) fn read(p: &mut Params) -> Result<Option<Arc<dyn Medium>>, ParamError> {
    let Some(mut table) = p.table("rbd")? else { return Ok(None) };
    let pool = table.text("pool")?;
    let pool = table.required("pool", pool)?;
    let user = table.text("user")?.unwrap_or_else(|| "henge".into());
    if let Some(name) = user.strip_prefix("client.") {
        return Err(table.error("user", format!("a user is named without client., like user = \"{name}\"")));
    }
    let reach = Reach {
        pool,
        user,
        conf: table.text("conf")?.unwrap_or_else(|| "/etc/ceph/ceph.conf".into()),
        keyring: table.text("keyring")?,
    };
    table.finish()?;
    Ok(Some(Arc::new(OfCeph(reach))))
}

impl Medium for OfCeph {
    fn key(&self) -> &'static str {
        "rbd"
    }
    fn open(&self, wanted: &Wanted<'_>) -> io::Result<Box<dyn Store>> {
        let landed = Landed::new()?;
        let reach = self.0.clone();
        let what = format!("Ceph pool {}", reach.pool);
        let ceph = within(what, move || Ceph::connect(&reach, SILENCE_S))?;
        let user = format!("as client.{} of {}", self.0.user, self.0.conf);
        Ok(Box::new(Rbd::new(Arc::new(ceph), landed, wanted, user)))
    }
    fn has_images(&self) -> bool {
        true
    }
    fn may_be_silent(&self) -> bool {
        true
    }
    fn is_shared(&self) -> bool {
        true
    }
}

/// A request that is not answered yet.
struct Under {
    request: Request,
    slot: usize,
    life: u64,
    /// Where in the image it begins.
    offset: u64,
    done: u64,
    piece: u64,
    since: Instant,
    said: bool,
}

/// A part and its image.
struct Disk {
    image: Arc<dyn Image>,
    part: String,
    called: String,
    len: u64,
    ours: bool,
    objects: Objects,
    /// The last error that was said.
    said: i64,
}

/// Which objects of which slot, in which of its lives, hold something.
type Walked = (usize, u64, Vec<u64>);

/// What a chore has got, until its step goes on.
type Handed = Arc<Mutex<Option<Had>>>;

enum Opening {
    Part { name: String, len: u64, had: Handed },
    Growth { name: String, len: u64 },
    Removal { name: String },
}

/// A pool of images.
pub(crate) struct Rbd {
    cluster: Arc<dyn Cluster>,
    landed: Arc<Landed>,
    user: String,
    look: bool,
    capacity: u64,
    space: Space,
    /// By the order of `space.extents()`: where in `disks`.
    slots: Vec<usize>,
    disks: Vec<Option<Disk>>,
    /// How often each slot was used.
    lives: Vec<u64>,
    origins: BTreeMap<String, Origin>,
    adopted: BTreeSet<String>,
    /// How parts are taken that are opened next.
    claims: BTreeMap<String, Claim>,
    /// Parts whose images are to be removed and may still be there.
    doomed: BTreeSet<String>,
    /// All former disks are here.
    settled: bool,
    opening: Option<Opening>,
    walked: (Sender<Walked>, Receiver<Walked>),
    under: Pending<Under>,
    spare: Flights,
    landing: Flights,
    done: VecDeque<Done<Buffer>>,
    signalled: bool,
    look_at: Option<Instant>,
    fenced: bool,
    notices: VecDeque<String>,
}

/// Does something that may never end, on a thread; after a while it is let go on alone.
fn within<T: Send + 'static>(
    what: String,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = channel();
    // What comes too late is dropped there, and so closed.
    let work = move || drop(sender.send(work()));
    std::thread::Builder::new().name("rbd-admin".into()).spawn(work)?;
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let why = format!("{what}: Ceph has not answered for {} s; `ceph -s` says why", PATIENCE.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    })
}

/// Closes an image, once nobody else uses it: who still looks for its extents does not take long.
fn close(image: Arc<dyn Image>) {
    for _ in 0..200 {
        if Arc::strong_count(&image) == 1 {
            break;
        }
        std::thread::sleep(Real::from_millis(20));
    }
}

impl Rbd {
    fn new(cluster: Arc<dyn Cluster>, landed: Arc<Landed>, wanted: &Wanted<'_>, user: String) -> Rbd {
        let room = wanted.capacity.next_multiple_of(GRAIN);
        Rbd {
            cluster,
            landed,
            user,
            look: wanted.options.look,
            capacity: wanted.capacity,
            space: if wanted.options.apart { Space::apart(room) } else { Space::new(room) },
            slots: Vec::new(),
            disks: Vec::new(),
            lives: Vec::new(),
            origins: BTreeMap::new(),
            adopted: BTreeSet::new(),
            claims: BTreeMap::new(),
            doomed: BTreeSet::new(),
            settled: false,
            opening: None,
            walked: channel(),
            under: Pending::new(),
            spare: Vec::new(),
            landing: Vec::new(),
            done: VecDeque::new(),
            signalled: true,
            look_at: None,
            fenced: false,
            notices: VecDeque::new(),
        }
    }

    fn tell(&mut self, text: String) {
        if self.notices.len() == NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back(format!("{}: {text}", self.cluster.name()));
    }

    fn plan(&self, name: &str, len: u64) -> Plan {
        Plan {
            part: name.to_owned(),
            len,
            origin: self.origins.get(name).cloned().unwrap_or_default(),
            adopt: self.adopted.contains(name),
            look: self.look,
            settled: self.settled,
            claim: self.claims.get(name).cloned(),
        }
    }

    /// How a part is come by, on any thread.
    fn having(&self, plan: Plan) -> impl FnOnce() -> io::Result<Option<Had>> + Send + 'static {
        let (cluster, what) = (Arc::clone(&self.cluster), self.called(&plan.image()));
        move || within(what, move || have(&*cluster, &plan))
    }

    fn called(&self, image: &str) -> String {
        format!("{}, image \"{image}\"", self.cluster.name())
    }

    /// Whether there may be such a part: an image is one disk's, and whoever fenced it would fence himself.
    fn may_open(&self, plan: &Plan) -> io::Result<()> {
        check_name(&plan.part)?;
        let image = plan.image();
        match self.disks.iter().flatten().find(|disk| disk.called == image) {
            None => Ok(()),
            Some(disk) => {
                let why = format!("{} is that of \"{}\" here", self.called(&image), disk.part);
                Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
            }
        }
    }

    /// An image is there: so is the part.
    fn attach(&mut self, name: &str, len: u64, had: Had) -> io::Result<()> {
        let i = self.space.allocate(name, len)?;
        let slot = self.disks.iter().position(Option::is_none).unwrap_or(self.disks.len());
        if slot == self.disks.len() {
            self.disks.push(None);
            self.lives.push(0);
        }
        self.lives[slot] += 1;
        self.slots.insert(i, slot);
        // Whoever was shut out may be asked before he knows it: of an image that others write he must know no holes.
        let objects = Objects::new(had.image.object(), len, had.empty && !had.shared);
        if !had.empty && !had.shared && !self.look {
            self.walk(slot, Arc::clone(&had.image), objects.words());
        }
        let (part, called, ours) = (name.to_owned(), self.plan(name, len).image(), had.ours);
        self.disks[slot] = Some(Disk { image: had.image, part, called, len, ours, objects, said: 0 });
        Ok(())
    }

    /// Finds out which objects hold something. Until it is known, all do.
    fn walk(&self, slot: usize, image: Arc<dyn Image>, words: usize) {
        let (sender, landed) = (self.walked.0.clone(), Arc::clone(&self.landed));
        let life = self.lives[slot];
        let work = move || {
            let (object, mut bits) = (image.object(), vec![0; words]);
            let known = image.extents(&mut |offset, len| objects::mark(&mut bits, object, offset, len));
            drop(image);
            if matches!(known, Ok(true)) {
                // The pool may be gone.
                let _ = sender.send((slot, life, bits));
                landed.ring();
            }
        };
        // Without a thread it stays unknown.
        let _ = std::thread::Builder::new().name("rbd-extents".into()).spawn(work);
    }

    fn disk(&mut self, name: &str) -> Option<&mut Disk> {
        let i = self.space.extents().iter().position(|part| part.name == name)?;
        self.disks[self.slots[i]].as_mut()
    }

    fn base(&self, name: &str) -> u64 {
        self.space.find(name).map_or(0, |part| part.base)
    }

    /// How a part's image grows.
    fn growing(
        &mut self,
        name: &str,
        len: u64,
    ) -> io::Result<impl FnOnce() -> io::Result<()> + Send + use<>> {
        self.could_grow(name, len)?;
        let image = Arc::clone(&self.disk(name).expect("a part that grows is there").image);
        let what = self.called(name);
        // It may be longer than its disk already.
        Ok(move || within(what, move || if image.size() < len { image.resize(len) } else { Ok(()) }))
    }

    fn grown(&mut self, name: &str, len: u64) -> io::Result<()> {
        self.space.grow(name, len)?;
        let disk = self.disk(name).expect("a part that has grown is there");
        disk.len = len;
        disk.objects.grow(len);
        Ok(())
    }

    /// Takes a part out, and how its image is closed, which gives up its lock.
    fn releasing(&mut self, name: &str) -> Option<impl FnOnce() -> io::Result<()> + Send + use<>> {
        let i = self.space.free(name)?;
        let slot = self.slots.remove(i);
        let disk = self.disks[slot].take().expect("a part has an image");
        let what = self.called(&disk.called);
        self.forget(name);
        Some(move || {
            within(what, move || {
                close(disk.image);
                Ok(())
            })
        })
    }

    /// Takes a part out, and how its image is closed and removed; `None` where nothing of it is left.
    fn removing(&mut self, name: &str) -> Option<impl FnOnce() -> io::Result<()> + Send + use<>> {
        let plan = self.plan(name, 0);
        let mut image = None;
        if let Some(i) = self.space.free(name) {
            let slot = self.slots.remove(i);
            let disk = self.disks[slot].take().expect("a part has an image");
            if disk.ours {
                self.doomed.insert(name.to_owned());
            }
            image = Some(disk.image);
        }
        let doomed = self.doomed.contains(name);
        if image.is_none() && !doomed {
            self.forget(name);
            return None;
        }
        let (cluster, what, named) = (Arc::clone(&self.cluster), self.called(&plan.image()), plan.image());
        Some(move || {
            within(what, move || {
                image.into_iter().for_each(close);
                if doomed { cluster.remove(&named) } else { Ok(()) }
            })
        })
    }

    fn forget(&mut self, name: &str) {
        self.doomed.remove(name);
        self.adopted.remove(name);
        self.origins.remove(name);
        self.claims.remove(name);
    }

    /// The disk of a request, if it is still there.
    fn disk_of(&mut self, id: RequestId) -> Option<&mut Disk> {
        let under = self.under.get(id)?;
        let (slot, life) = (under.slot, under.life);
        self.disks[slot].as_mut().filter(|_| self.lives[slot] == life)
    }

    fn begin(&mut self, id: RequestId, buffer: Buffer) {
        let mut flight = self.spare.pop().unwrap_or_default();
        let under = self.under.get_mut(id).expect("it is under way");
        let left = under.request.len - under.done;
        let (ask, most) = match under.request.op {
            Op::Read => (Ask::Read, left),
            Op::Write => (Ask::Write, left),
            Op::Trim => (Ask::Zero { full: false }, ZEROED),
            Op::WriteZeroes => (Ask::Zero { full: true }, ZEROED),
            Op::Flush => (Ask::Flush, 0),
        };
        under.piece = left.min(most);
        let (offset, len) = (under.offset + under.done, under.piece);
        (flight.id, flight.ask, flight.offset, flight.len) = (id, ask, offset, len);
        let home = Arc::clone(&self.landed);
        let Some(disk) = self.disk_of(id) else {
            self.spare.push(flight);
            return self.finish(id, Err(Fault::Cancelled), buffer);
        };
        if matches!(ask, Ask::Write | Ask::Zero { .. }) {
            disk.objects.written(offset, len);
        }
        flight.buffer = buffer;
        disk.image.begin(flight, &home);
    }

    fn finish(&mut self, id: RequestId, outcome: Result<(), Fault>, payload: Buffer) {
        let under = self.under.remove(id).expect("a request ends once");
        self.done.push_back(Done { id: under.request.id, outcome, busy: None, payload });
    }

    fn landed(&mut self, mut flight: Box<Flight>, now: Instant) {
        let (id, ask, mut result) = (flight.id, flight.ask, flight.result);
        let (len, end) = (flight.len, flight.offset + flight.len);
        let payload = std::mem::take(&mut flight.buffer);
        self.spare.push(flight);
        let under = self.under.get(id).expect("what lands was under way");
        if under.said {
            let waited = Duration::from_millis(now.since(under.since).as_nanos() / 1_000_000);
            self.tell(format!("a request that was silent is answered after {waited}"));
        }
        // librbd cuts what reaches beyond the end, and calls the rest of it good.
        let cut = ask != Ask::Flush && self.disk_of(id).is_some_and(|disk| disk.image.size() < end);
        if result >= 0 && (cut || ask == Ask::Read && result as u64 != len) {
            result = -i64::from(libc::EINVAL);
        }
        if result < 0 {
            let fault = self.fault(id, result, cut);
            return self.finish(id, Err(fault), payload);
        }
        let under = self.under.get_mut(id).expect("what lands was under way");
        under.done += len;
        if under.done < under.request.len && ask != Ask::Flush {
            return self.begin(id, payload);
        }
        self.finish(id, Ok(()), payload);
    }

    /// What an error is to the client; and to the administrator, once.
    fn fault(&mut self, id: RequestId, result: i64, cut: bool) -> Fault {
        if result == BLOCKLISTED {
            if !std::mem::replace(&mut self.fenced, true) {
                self.tell(FENCED.into());
            }
            return Fault::Unreachable;
        }
        let errno = -result as i32;
        if let Some(disk) = self.disk_of(id)
            && std::mem::replace(&mut disk.said, result) != result
        {
            let (size, len) = (disk.image.size(), disk.len);
            let why = match errno {
                libc::ENOSPC | libc::EDQUOT => "the pool is full: writes fail until there is room".into(),
                libc::EROFS => "its lock was taken: another client writes it".into(),
                _ if cut => {
                    format!(
                        "the image was cut to {size} bytes, and its disk has {len}: `rbd resize` mends it"
                    )
                }
                _ => io::Error::from_raw_os_error(errno).to_string(),
            };
            let text = format!("\"{}\": {why}", disk.part);
            self.tell(text);
        }
        match errno {
            libc::ENOSPC | libc::EDQUOT => Fault::NoSpace,
            libc::EOPNOTSUPP => Fault::Unsupported,
            _ => Fault::Io,
        }
    }

    /// Hears of what is over.
    fn hear(&mut self, now: Instant) {
        let mut landing = std::mem::take(&mut self.landing);
        self.landed.take(&mut landing);
        landing.drain(..).for_each(|flight| self.landed(flight, now));
        self.landing = landing;
        while let Ok((slot, life, bits)) = self.walked.1.try_recv() {
            if self.lives[slot] == life
                && let Some(disk) = &mut self.disks[slot]
            {
                disk.objects.learn(&bits);
            }
        }
    }

    /// Says what has been silent for long.
    fn look_round(&mut self, now: Instant) {
        let (mut silent, mut since) = (0, now);
        for (_, under) in self.under.iter_mut() {
            if !under.said && under.since + SILENT <= now {
                under.said = true;
                silent += 1;
                since = since.min(under.since);
            }
        }
        if silent > 0 {
            self.tell(format!(
                "{silent} requests have been silent for {}; they wait until Ceph answers: `ceph health detail` says why",
                Duration::from_millis(now.since(since).as_nanos() / 1_000_000)
            ));
        }
        self.look_at = (!self.under.is_empty()).then(|| now + LOOK);
    }
}

impl Backend for Rbd {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, now: Instant) {
        let found = self.space.locate(request.offset, request.len).map(|(i, part)| (i, part.base));
        let found = found.ok_or(Fault::OutOfRange);
        let found = found.and_then(|at| if self.fenced { Err(Fault::Unreachable) } else { Ok(at) });
        let (i, base) = match found {
            Ok(found) => found,
            Err(fault) => {
                let (id, outcome) = (request.id, Err(fault));
                return self.done.push_back(Done { id, outcome, busy: None, payload });
            }
        };
        let id = self.under.insert(Under {
            request: *request,
            slot: self.slots[i],
            life: self.lives[self.slots[i]],
            offset: request.offset - base,
            done: 0,
            piece: 0,
            since: now,
            said: false,
        });
        self.look_at.get_or_insert(now + LOOK);
        self.begin(id, payload);
    }
    fn reap(&mut self, now: Instant) -> Option<Done<Buffer>> {
        if std::mem::take(&mut self.signalled) {
            self.hear(now);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_round(now);
        }
        self.done.pop_front()
    }
    fn wake_at(&self) -> Option<Instant> {
        if self.done.is_empty() { self.look_at } else { Some(Instant::ZERO) }
    }
    fn capacity(&self) -> u64 {
        self.capacity
    }
}

impl Store for Rbd {
    fn set_origin(&mut self, name: &str, origin: &Origin) -> io::Result<()> {
        self.origins.insert(name.to_owned(), origin.clone());
        Ok(())
    }
    fn open_part(&mut self, name: &str, len: u64) -> io::Result<u64> {
        match self.space.find(name).map(|part| part.len) {
            Some(has) if has < len => {
                self.growing(name, len)?()?;
                self.grown(name, len)?;
            }
            Some(_) => {}
            None => {
                let plan = self.plan(name, len);
                self.may_open(&plan)?;
                match self.having(plan)()? {
                    Some(had) => self.attach(name, len, had)?,
                    // It would be made.
                    None => {
                        let i = self.space.allocate(name, len)?;
                        return Ok(self.space.extents()[i].base);
                    }
                }
            }
        }
        Ok(self.base(name))
    }
    fn could_grow(&self, name: &str, len: u64) -> io::Result<()> {
        self.space.could_grow(name, len)
    }
    fn remove_part(&mut self, name: &str) -> io::Result<()> {
        if let Some(removing) = self.removing(name) {
            removing()?;
            self.forget(name);
        }
        Ok(())
    }
    fn begin_part(&mut self, name: &str, len: u64) -> io::Result<Step> {
        match self.space.find(name).map(|part| part.len) {
            Some(has) if has < len => {
                let growing = self.growing(name, len)?;
                self.opening = Some(Opening::Growth { name: name.to_owned(), len });
                Ok(Step::Run(Box::new(move || growing().map(|()| None))))
            }
            Some(_) => Ok(Step::There(self.base(name))),
            None => {
                let plan = self.plan(name, len);
                self.may_open(&plan)?;
                let having = self.having(plan);
                let had: Handed = Arc::default();
                self.opening = Some(Opening::Part { name: name.to_owned(), len, had: Arc::clone(&had) });
                let chore: Chore = Box::new(move || {
                    *had.lock().unwrap_or_else(PoisonError::into_inner) = having()?;
                    Ok(None)
                });
                Ok(Step::Run(chore))
            }
        }
    }
    fn begin_removal(&mut self, name: &str) -> io::Result<Step> {
        let Some(removing) = self.removing(name) else { return Ok(Step::There(0)) };
        self.opening = Some(Opening::Removal { name: name.to_owned() });
        Ok(Step::Run(Box::new(move || removing().map(|()| None))))
    }
    fn begin_release(&mut self, name: &str) -> io::Result<Step> {
        let Some(releasing) = self.releasing(name) else { return Ok(Step::There(0)) };
        self.opening = Some(Opening::Removal { name: name.to_owned() });
        Ok(Step::Run(Box::new(move || releasing().map(|()| None))))
    }
    fn claim_part(&mut self, name: &str, claim: &Claim) -> io::Result<()> {
        check_name(name)?;
        self.claims.insert(name.to_owned(), claim.clone());
        Ok(())
    }
    fn register(&self) -> Option<Arc<dyn Register>> {
        self.cluster.register()
    }
    fn beside(&self, name: &str) -> Option<Arc<dyn Beside>> {
        let i = self.space.extents().iter().position(|part| part.name == name)?;
        let disk = self.disks[self.slots[i]].as_ref()?;
        Some(Arc::new(InMetadata::new(Arc::clone(&disk.image), &self.called(&disk.called))))
    }
    fn go_on(&mut self, name: &str, outcome: io::Result<Option<File>>) -> io::Result<Step> {
        let opening = self.opening.take();
        outcome?;
        let strange = || io::Error::other(format!("nothing is under way with \"{name}\""));
        match opening {
            Some(Opening::Part { name: of, len, had }) if of == name => {
                let had = had.lock().unwrap_or_else(PoisonError::into_inner).take();
                self.attach(name, len, had.ok_or_else(strange)?)?;
                Ok(Step::There(self.base(name)))
            }
            Some(Opening::Growth { name: of, len }) if of == name => {
                self.grown(name, len)?;
                Ok(Step::There(self.base(name)))
            }
            Some(Opening::Removal { name: of }) if of == name => {
                self.forget(name);
                Ok(Step::There(0))
            }
            _ => Err(strange()),
        }
    }
    fn has_part(&self, name: &str) -> bool {
        self.space.find(name).is_some()
    }
    fn adopt_part(&mut self, name: &str) -> io::Result<()> {
        check_name(name)?;
        self.adopted.insert(name.to_owned());
        Ok(())
    }
    fn opens_elsewhere(&self) -> bool {
        true
    }
    fn settle(&mut self, _is_spared: &dyn Fn(&str) -> bool) -> io::Result<Vec<String>> {
        self.settled = true;
        Ok(Vec::new())
    }
    fn notice(&mut self) -> Option<String> {
        self.notices.pop_front()
    }
    fn extent(&self, offset: u64, len: u64) -> (u64, bool) {
        let found = self.space.locate(offset, len);
        let disk =
            found.and_then(|(i, part)| Some((self.disks[self.slots[i]].as_ref()?, offset - part.base)));
        disk.map_or((len, true), |(disk, at)| disk.objects.extent(at, len))
    }
    fn event_fd(&self) -> Option<RawFd> {
        Some(self.landed.bell())
    }
    fn signalled(&mut self) {
        self.signalled = true;
    }
    fn describe(&self) -> String {
        format!("{} {}, an image for each disk", self.cluster.name(), self.user)
    }
}

impl Drop for Rbd {
    /// Closes what can be closed soon, so that others may open it at once. What is under way may never end.
    fn drop(&mut self) {
        let images: Vec<_> = self.disks.drain(..).flatten().map(|disk| disk.image).collect();
        let cluster = Arc::clone(&self.cluster);
        let (sender, receiver) = channel::<()>();
        let work = move || {
            drop(images);
            drop(cluster);
            drop(sender);
        };
        if std::thread::Builder::new().name("rbd-close".into()).spawn(work).is_ok() {
            let _ = receiver.recv_timeout(FAREWELL);
        }
    }
}

#[cfg(test)]
mod tests;
