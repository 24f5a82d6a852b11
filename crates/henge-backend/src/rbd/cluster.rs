//! What is asked of a cluster, and how a disk's image is come by. All of it may block, so it is done by threads of its own.
//!
//! # Whose an image is
//! An image that Henge makes says in its metadata which part it is (`henge.part`). It is made under another name, gets that mark, and only
//! then its name: so an image without a mark is somebody else's, whatever crashes. Nothing but `image = …` takes such an image.
//!
//! A gateway cannot know by itself whether another one has made a disk's image. So an object beside the images says of each that gateways have it
//! (`henge.made.NAME`). It is there before the image is written, and goes before the image does. Where it is and the image is not, the image was
//! lost: made anew it would be empty, and nobody would know.
//!
//! # Who may write
//! Whoever has an image's lock. It is taken before the first byte is written, and never given up for the asking. So whoever takes it
//! must break it, which has the former holder blocklisted: all its requests fail from then on, also those under way.
//!
//! A node that was killed leaves its lock behind, and Ceph takes it for alive for half a minute. So the lock's holder is noted beside it
//! (`henge.holder`), as a process: when that process was of this machine and is gone, its lock is broken at once. Where several nodes may have an
//! image, the node and its start are noted too (`henge.gateway`), and [`Claim`] says of which the lock may be broken.

use super::in_flight::{Completions, InFlight};
use crate::origin::{Origin, Snapshot, snapshot};
use crate::{Claim, Register};
use std::io;
use std::sync::Arc;

/// What keeps others from writing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Lock {
    /// Nobody but we may.
    Ours,
    /// Somebody else may.
    Theirs(String),
}

/// A place where images are.
pub(crate) trait Cluster: Send + Sync {
    /// An image; `None` where there is none of that name.
    fn open(&self, image: &str, write: bool) -> io::Result<Option<Arc<dyn Image>>>;
    /// A new one, of zeroes.
    fn create(&self, image: &str, size: u64) -> io::Result<()>;
    /// A new one that begins as another one's snapshot.
    fn clone(&self, from: &Snapshot, image: &str) -> io::Result<()>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Also of one that is not there.
    fn remove(&self, image: &str) -> io::Result<()>;
    /// Notes beside the images that gateways have one of that name: who finds none knows that it was lost.
    fn mark(&self, image: &str) -> io::Result<()>;
    fn is_marked(&self, image: &str) -> io::Result<bool>;
    /// Also of one that was not noted.
    fn unmark(&self, image: &str) -> io::Result<()>;
    /// What its monitors say of the OSDs; an error that says so where they say nothing. It may wait.
    fn monitors_say(&self) -> io::Result<String>;
    /// Where nodes that use it tell each other that they live.
    fn register(&self) -> Option<Arc<dyn Register>>;
    /// For people.
    fn name(&self) -> &str;
    /// One of its images, for people.
    fn called(&self, image: &str) -> String {
        format!("{}, image \"{image}\"", self.name())
    }
}

/// An image that is open. Those who use it share it; the last one closes it, which may block.
pub(crate) trait Image: Send + Sync {
    /// Begins; it completes in any case.
    fn begin(&self, request: Box<InFlight>, completions: &Arc<Completions>);
    /// As large as it is now. It asks Ceph once after each change of the image, and waits for the answer.
    fn size(&self) -> u64;
    /// Whether somebody has changed the image since its size was looked at: `size` may wait.
    fn is_changed(&self) -> bool;
    /// Whether somebody has switched off the feature by which we had its lock. It may wait as `size` does.
    fn has_lost_its_lock(&self) -> bool;
    fn resize(&self, size: u64) -> io::Result<()>;
    fn note(&self, key: &str) -> io::Result<Option<String>>;
    fn set_note(&self, key: &str, value: &str) -> io::Result<()>;
    /// Also of one that is not there.
    fn remove_note(&self, key: &str) -> io::Result<()>;
    /// Whether writes may be answered while they are in this machine's memory alone.
    fn caches(&self) -> io::Result<bool>;
    /// Who has its lock; nobody knows for how long.
    fn holder(&self) -> io::Result<Option<String>>;
    fn lock(&self) -> io::Result<Lock>;
    /// Takes the lock from that holder, who is blocklisted.
    fn break_lock(&self, holder: &str) -> io::Result<()>;
    /// Whether nobody else can write it as long as we have its lock.
    fn is_guarded(&self) -> bool;
    /// Bytes of one object.
    fn object(&self) -> u64;
    /// Calls for each range that holds something; `false` where finding out would cost a look at every object.
    fn extents(&self, each: &mut dyn FnMut(u64, u64)) -> io::Result<bool>;
}

/// Which image is to be had, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub part: String,
    pub len: u64,
    pub origin: Origin,
    /// What a former disk of the name left is this one's.
    pub adopt: bool,
    /// The disk had it before: what is not there was lost.
    pub expected: bool,
    /// Nothing is made, locked or written.
    pub look: bool,
    /// All former disks are here: who comes now is a new one.
    pub settled: bool,
    /// Other nodes may have it.
    pub claim: Option<Claim>,
}

/// What came of a plan.
pub(crate) struct Had {
    pub image: Arc<dyn Image>,
    /// Made just now.
    pub made: bool,
    /// Made just now, of nothing, and nobody else can write it: it holds nothing.
    pub empty: bool,
    /// Henge made it, so it goes with its disk.
    pub ours: bool,
    /// Other nodes may have it later, or had it before.
    pub shared: bool,
}

const PART: &str = "henge.part";
const HOLDER: &str = "henge.holder";
const GATEWAY: &str = "henge.gateway";
/// Who may use the disk.
pub(super) const RESERVATIONS: &str = "henge.reservations";

impl Plan {
    /// The image's name: the disk's, where it is all of it.
    pub(crate) fn image(&self) -> String {
        self.origin.image.clone().unwrap_or_else(|| image_of(&self.part))
    }
}

fn image_of(part: &str) -> String {
    part.strip_suffix(".part0").unwrap_or(part).to_owned()
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

/// The object that says that gateways have an image.
pub(super) fn mark_of(image: &str) -> String {
    format!("henge.made.{image}")
}

/// Whether gateways had an image that is not there. Who makes a disk anew says so, and is not asked.
fn is_lost(cluster: &dyn Cluster, plan: &Plan, name: &str) -> io::Result<bool> {
    let goes_on = plan.claim.as_ref().is_some_and(|claim| claim.known);
    Ok(goes_on && plan.origin.image.is_none() && cluster.is_marked(name)?)
}

/// Opens, or makes, what the plan says. `None` where that is only looked at and not there yet.
pub(crate) fn have(cluster: &dyn Cluster, plan: &Plan) -> io::Result<Option<Had>> {
    let name = plan.image();
    let of = cluster.name();
    let (image, made) = match cluster.open(&name, !plan.look)? {
        Some(image) => (image, false),
        None if plan.origin.image.is_some() => {
            let why = format!("{of} has no image \"{name}\"; `rbd ls` names those that it has");
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        None if plan.expected => {
            let why = format!(
                "{of} has no image \"{name}\" any more, which this disk had: one that was renamed is served by `image = …`; only to begin anew, \
                 empty, `henge vd remove` the disk, and make it again"
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        None if is_lost(cluster, plan, &name)? => {
            let mark = mark_of(&name);
            let why = format!(
                "{of} has no image \"{name}\" any more, which the disk's gateways had: one that was renamed is served by `image = …`; only to \
                 begin anew, empty, `rados rm {mark}` in that pool"
            );
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        None if plan.look => return Ok(None),
        None if plan.claim.as_ref().is_some_and(|claim| !claim.makes) => {
            let why = format!("{of} has no image \"{name}\"; the first of the disk's gateways makes it");
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        None => (make(cluster, plan, &name)?, true),
    };
    let ours = made || whose(&*image, plan, &name, of)?;
    let size = image.size();
    if size < plan.len && !ours {
        let why = format!("{of}, image \"{name}\" has {size} bytes, fewer than the disk's {}", plan.len);
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    if image.caches()? {
        let why = format!(
            "{of}, image \"{name}\" sets rbd_cache for itself: writes would be answered before Ceph has them; \
             `rbd config image remove {name} rbd_cache`"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if !plan.look {
        lock(&*image, plan, &name, of)?;
        if ours && plan.claim.is_some() {
            cluster.mark(&name)?;
        }
        if size < plan.len {
            image.resize(plan.len)?;
        }
    }
    let empty = made && plan.origin.from.is_none() && image.is_guarded();
    let shared = plan.claim.is_some();
    Ok(Some(Had { image, made, empty, ours, shared }))
}

/// Whether Henge made it for this part; an error where this disk is not to have it.
fn whose(image: &dyn Image, plan: &Plan, name: &str, of: &str) -> io::Result<bool> {
    let mark = image.note(PART)?;
    if let Some(part) = mark.as_ref().filter(|part| **part != plan.part) {
        let (disk, own) = (image_of(part), image_of(&plan.part));
        let why = format!("{of}, image \"{name}\" is that of a disk \"{disk}\", not of \"{own}\"");
        return if plan.adopt {
            Ok(false)
        } else {
            Err(refused(format!("{why}; adopt = true takes it all the same")))
        };
    }
    if plan.origin.image.is_none() && mark.is_none() {
        let why = format!(
            "{of} has an image \"{name}\" that Henge did not make; image = \"{name}\" serves it as it is, another name \
             makes another"
        );
        return Err(refused(why));
    }
    let known = plan.claim.as_ref().is_some_and(|claim| claim.known);
    if plan.origin.image.is_none() && plan.settled && !plan.adopt && !known {
        let why = format!(
            "{of} keeps the image \"{name}\" of a former disk of that name; adopt = true gives it to this disk, `rbd rm` \
             deletes it"
        );
        return Err(refused(why));
    }
    Ok(plan.origin.image.is_none())
}

/// A new image, of the part's length.
fn make(cluster: &dyn Cluster, plan: &Plan, name: &str) -> io::Result<Arc<dyn Image>> {
    let unnamed = format!("{name}.henge-new");
    // What a crash has left.
    cluster.remove(&unnamed)?;
    match &plan.origin.from {
        None => cluster.create(&unnamed, plan.len)?,
        Some(text) => {
            let from = snapshot(text).map_err(io::Error::other)?;
            cluster.clone(&from, &unnamed)?;
        }
    }
    let gone = || io::Error::other(format!("{}: the new image \"{name}\" is not there", cluster.name()));
    let image = cluster.open(&unnamed, true)?.ok_or_else(gone)?;
    let size = image.size();
    if size > plan.len {
        drop(image);
        cluster.remove(&unnamed)?;
        let why = format!(
            "{} has {size} bytes, and the disk would cut it to {}",
            plan.origin.from.as_deref().unwrap_or(name),
            plan.len
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    image.set_note(PART, &plan.part)?;
    // A clone has its parent's metadata, and is another disk.
    image.remove_note(RESERVATIONS)?;
    drop(image);
    cluster.rename(&unnamed, name)?;
    cluster.open(name, true)?.ok_or_else(gone)
}

fn lock(image: &dyn Image, plan: &Plan, name: &str, of: &str) -> io::Result<()> {
    if let Some(holder) = image.holder()? {
        let is_dead = image.note(HOLDER)?.is_some_and(|note| {
            note.split_once(' ').is_some_and(|(who, process)| who == holder && process::is_gone(process))
        });
        let held = plan.claim.as_ref().zip(gateway(image, &holder)?);
        let outlived = held.as_ref().is_some_and(|(claim, (node, epoch))| claim.outlives(node, *epoch));
        // `fence` is for strangers: a gateway that lives keeps what it has.
        let fence = plan.origin.fence && plan.claim.is_none();
        if fence || is_dead || outlived {
            image.break_lock(&holder)?;
        } else if let Some((_, (node, _))) = held.filter(|(claim, (node, _))| claim.me != *node) {
            // Asking for the lock would wait for its answer, and of one that died just now for 30 s: longer than until it is missed.
            return Err(lives(of, name, &node));
        }
    }
    match image.lock()? {
        Lock::Ours => {
            // Whoever comes after us may know us by it; who cannot, waits.
            if let Some(holder) = image.holder()? {
                if let Some(Claim { me, epoch, .. }) = &plan.claim {
                    image.set_note(GATEWAY, &format!("{holder} {me} {epoch}"))?;
                }
                image.set_note(HOLDER, &format!("{holder} {}", process::here()))?;
            }
            Ok(())
        }
        Lock::Theirs(who) if plan.claim.is_some() => {
            Err(lives(of, name, &gateway(image, &who)?.map_or(who, |(node, _)| node)))
        }
        Lock::Theirs(who) => {
            let why = format!(
                "{of}, image \"{name}\" is locked by {who}; end that client, or let fence = true break its lock, which \
                 shuts it out of the cluster"
            );
            Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
        }
    }
}

fn lives(of: &str, name: &str, gateway: &str) -> io::Error {
    let why = format!("{of}, image \"{name}\" is locked by gateway {gateway}, which lives");
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}

/// Which start of which gateway a lock's holder is, if it is one.
fn gateway(image: &dyn Image, holder: &str) -> io::Result<Option<(String, u64)>> {
    let Some(note) = image.note(GATEWAY)? else { return Ok(None) };
    let words: Vec<&str> = note.rsplitn(3, ' ').collect();
    let [epoch, node, who] = words[..] else { return Ok(None) };
    Ok(epoch.parse().ok().filter(|_| who == holder).map(|epoch| (node.to_owned(), epoch)))
}

/// Processes, by what names them for ever: the machine's start, who counts them, their number, their own start.
mod process {
    use std::fs;

    /// Field 22 of `stat`, behind a name that may hold anything.
    fn start_of(number: &str) -> Option<String> {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        Some(stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned())
    }

    fn place() -> Option<String> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let counted = fs::read_link("/proc/self/ns/pid").ok()?;
        Some(format!("{} {}", boot.trim(), counted.display()))
    }

    /// This one; where the system does not say, one that nobody ever takes for gone.
    pub(super) fn here() -> String {
        let named = || Some(format!("{} {} {}", place()?, std::process::id(), start_of("self")?));
        named().unwrap_or_else(|| "unknown".into())
    }

    /// Whether it was of this machine and is no more.
    pub(super) fn is_gone(process: &str) -> bool {
        let words: Vec<&str> = process.split(' ').collect();
        let [boot, counted, number, start] = words[..] else { return false };
        if place() != Some(format!("{boot} {counted}")) || number.parse::<u32>().is_err() {
            return false;
        }
        start_of(number).is_none_or(|now| now != start)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn this_process_lives_and_another_start_of_its_number_does_not() {
            let here = here();
            assert!(!is_gone(&here), "{here}");
            let (rest, start) = here.rsplit_once(' ').unwrap();
            let earlier = start.parse::<u64>().unwrap() - 1;
            assert!(is_gone(&format!("{rest} {earlier}")));
            let elsewhere = format!("x{rest} {earlier}");
            assert!(!is_gone(&elsewhere), "nobody knows that of another machine's");
            for odd in ["", "unknown", "a b c d", "a b c"] {
                assert!(!is_gone(odd), "{odd}");
            }
        }
    }
}

#[cfg(test)]
mod tests;
