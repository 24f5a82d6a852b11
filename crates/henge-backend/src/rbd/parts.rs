//! Parts and their images: how a part gets one, grows, and gives it up.
//!
//! What waits for Ceph is handed out as a closure. The store runs it, or a thread that a step names.

use super::cluster::{Had, Image, Plan, have};
use super::objects::{self, Objects};
use super::{OpenImage, Rbd};
use crate::Store;
use crate::space::check_name;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration as Real;

/// How long opening and the like may take: a lock of a client that has died is Ceph's to take away, after half a minute.
const PATIENCE: Real = Real::from_secs(60);

/// What a chore has got, until its step goes on.
pub(super) type Handed = Arc<Mutex<Option<Had>>>;

/// A part that is made, grows or goes, step by step.
pub(super) enum Opening {
    Part { name: String, len: u64, had: Handed },
    Growth { name: String, len: u64 },
    Removal { name: String },
}

/// Does something that may never end, on a thread; after a while it is let go on alone.
pub(super) fn within<T: Send + 'static>(
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
    pub(super) fn plan(&self, name: &str, len: u64) -> Plan {
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
    pub(super) fn having(&self, plan: Plan) -> impl FnOnce() -> io::Result<Option<Had>> + Send + 'static {
        let (cluster, what) = (Arc::clone(&self.cluster), self.called(&plan.image()));
        move || within(what, move || have(&*cluster, &plan))
    }

    /// Whether there may be such a part: an image is one disk's, and whoever fenced it would fence himself.
    pub(super) fn may_open(&self, plan: &Plan) -> io::Result<()> {
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
    pub(super) fn attach(&mut self, name: &str, len: u64, had: Had) -> io::Result<()> {
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
        let (part, called) = (name.to_owned(), self.plan(name, len).image());
        let Had { image, made, ours, .. } = had;
        self.disks[slot] = Some(OpenImage { image, part, called, len, made, ours, objects, said: 0 });
        Ok(())
    }

    /// Finds out which objects hold something. Until it is known, all do.
    pub(super) fn walk(&self, slot: usize, image: Arc<dyn Image>, words: usize) {
        let (sender, completions) = (self.walked.0.clone(), Arc::clone(&self.completions));
        let life = self.lives[slot];
        let work = move || {
            let (object, mut bits) = (image.object(), vec![0; words]);
            let known = image.extents(&mut |offset, len| objects::mark(&mut bits, object, offset, len));
            drop(image);
            if matches!(known, Ok(true)) {
                // The pool may be gone.
                let _ = sender.send((slot, life, bits));
                completions.ring();
            }
        };
        // Without a thread it stays unknown.
        let _ = std::thread::Builder::new().name("rbd-extents".into()).spawn(work);
    }

    pub(super) fn disk(&mut self, name: &str) -> Option<&mut OpenImage> {
        let i = self.space.extents().iter().position(|part| part.name == name)?;
        self.disks[self.slots[i]].as_mut()
    }

    pub(super) fn base(&self, name: &str) -> u64 {
        self.space.find(name).map_or(0, |part| part.base)
    }

    /// How a part's image grows.
    pub(super) fn growing(
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

    pub(super) fn grown(&mut self, name: &str, len: u64) -> io::Result<()> {
        self.space.grow(name, len)?;
        let disk = self.disk(name).expect("a part that has grown is there");
        disk.len = len;
        disk.objects.grow(len);
        Ok(())
    }

    /// Takes a part out, and how its image is closed, which gives up its lock.
    pub(super) fn releasing(&mut self, name: &str) -> Option<impl FnOnce() -> io::Result<()> + Send + use<>> {
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
    pub(super) fn removing(&mut self, name: &str) -> Option<impl FnOnce() -> io::Result<()> + Send + use<>> {
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

    pub(super) fn forget(&mut self, name: &str) {
        self.doomed.remove(name);
        self.adopted.remove(name);
        self.origins.remove(name);
        self.claims.remove(name);
    }
}
