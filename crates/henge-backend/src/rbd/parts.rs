//! The parts that are open, and the image of each.

use super::cluster::{Cluster, Had, Image, Plan};
use super::in_flight::Completions;
use super::objects::{self, Objects};
use crate::space::{Space, check_name};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A part and its image.
pub(super) struct OpenImage {
    pub image: Arc<dyn Image>,
    pub part: String,
    pub called: String,
    pub len: u64,
    /// Made since the pool was opened.
    pub made: bool,
    pub ours: bool,
    pub objects: Objects,
    /// A thread looks at its size.
    pub looks: Arc<AtomicBool>,
    /// That thread has found that its lock was switched off.
    pub unlocked: Arc<AtomicBool>,
    /// The last error that was said.
    pub said: i64,
}

impl OpenImage {
    /// Somebody has changed the image, and nobody knows yet what it is now.
    fn is_in_doubt(&self) -> bool {
        self.looks.load(Ordering::Acquire) || self.image.is_changed()
    }

    /// Its size; `None` where that has to be asked for. A thread does that, and rings.
    pub(super) fn size(&self, completions: &Arc<Completions>) -> Option<u64> {
        if self.looks.load(Ordering::Acquire) {
            return None;
        }
        if !self.image.is_changed() {
            return Some(self.image.size());
        }
        let (image, looks) = (Arc::clone(&self.image), Arc::clone(&self.looks));
        let (bell, unlocked) = (Arc::clone(completions), Arc::clone(&self.unlocked));
        self.looks.store(true, Ordering::Release);
        let work = move || {
            image.size();
            unlocked.store(image.has_lost_its_lock(), Ordering::Release);
            drop(image);
            looks.store(false, Ordering::Release);
            bell.ring();
        };
        let begun = std::thread::Builder::new().name("rbd-size".into()).spawn(work);
        if begun.is_err() {
            // The next turn tries again.
            self.looks.store(false, Ordering::Release);
            completions.ring();
        }
        None
    }
}

/// A slot, in one of its lives.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    number: usize,
    life: u64,
}

/// Which objects of a slot's image hold something.
type Walked = (Slot, Vec<u64>);

/// The parts that are open.
pub(super) struct Parts {
    space: Space,
    /// By the order of `space.extents()`: where in `images`.
    slots: Vec<usize>,
    images: Vec<Option<OpenImage>>,
    /// How often each slot was used.
    lives: Vec<u64>,
    walked: (Sender<Walked>, Receiver<Walked>),
}

impl Parts {
    pub(super) fn new(space: Space) -> Parts {
        Parts { space, slots: Vec::new(), images: Vec::new(), lives: Vec::new(), walked: channel() }
    }

    pub(super) fn len(&self, name: &str) -> Option<u64> {
        self.space.find(name).map(|part| part.len)
    }

    pub(super) fn base(&self, name: &str) -> u64 {
        self.space.find(name).map_or(0, |part| part.base)
    }

    pub(super) fn get(&self, name: &str) -> Option<&OpenImage> {
        self.images[self.number(name)?].as_ref()
    }

    /// The image of a part that is open.
    pub(super) fn image(&self, name: &str) -> Arc<dyn Image> {
        Arc::clone(&self.get(name).expect("a part that grows is there").image)
    }

    fn number(&self, name: &str) -> Option<usize> {
        let i = self.space.extents().iter().position(|part| part.name == name)?;
        Some(self.slots[i])
    }

    /// The slot of a range, and where the range begins in its image.
    pub(super) fn locate(&self, offset: u64, len: u64) -> Option<(Slot, u64)> {
        let (i, part) = self.space.locate(offset, len)?;
        let number = self.slots[i];
        Some((Slot { number, life: self.lives[number] }, offset - part.base))
    }

    /// The image in a slot, if that life of it is not over.
    pub(super) fn at(&mut self, slot: Slot) -> Option<&mut OpenImage> {
        self.images[slot.number].as_mut().filter(|_| self.lives[slot.number] == slot.life)
    }

    /// How many of the first bytes are alike, and whether they hold something.
    pub(super) fn extent(&self, offset: u64, len: u64) -> (u64, bool) {
        let found = self.space.locate(offset, len);
        let open =
            found.and_then(|(i, part)| Some((self.images[self.slots[i]].as_ref()?, offset - part.base)));
        // One that was changed may have lost its lock, and so be written by others.
        let open = open.filter(|(open, _)| !open.is_in_doubt());
        open.map_or((len, true), |(open, at)| open.objects.extent(at, len))
    }

    /// Whether there may be such a part: there is room for it, an image is one disk's, and whoever fenced it would fence himself. What is
    /// refused later leaves an image.
    pub(super) fn may_open(&self, plan: &Plan, cluster: &dyn Cluster) -> io::Result<()> {
        check_name(&plan.part)?;
        self.space.clone().allocate(&plan.part, plan.len)?;
        let image = plan.image();
        match self.images.iter().flatten().find(|open| open.called == image) {
            None => Ok(()),
            Some(open) => {
                let why = format!("{} is that of \"{}\" here", cluster.called(&image), open.part);
                Err(io::Error::new(io::ErrorKind::AlreadyExists, why))
            }
        }
    }

    /// A part without an image: it is only looked at.
    pub(super) fn reserve(&mut self, name: &str, len: u64) -> io::Result<()> {
        self.space.allocate(name, len).map(|_| ())
    }

    /// An image is there: so is the part.
    pub(super) fn attach(&mut self, plan: &Plan, had: Had, completions: &Arc<Completions>) -> io::Result<()> {
        let i = self.space.allocate(&plan.part, plan.len)?;
        let number = self.images.iter().position(Option::is_none).unwrap_or(self.images.len());
        if number == self.images.len() {
            self.images.push(None);
            self.lives.push(0);
        }
        self.lives[number] += 1;
        self.slots.insert(i, number);
        // Whoever was shut out may be asked before he knows it: of an image that others write he must know no holes.
        let objects = Objects::new(had.image.object(), plan.len, had.empty && !had.shared);
        if !had.empty && !had.shared && !plan.look {
            let slot = Slot { number, life: self.lives[number] };
            self.walk(slot, Arc::clone(&had.image), objects.words(), completions);
        }
        let (part, called, len) = (plan.part.clone(), plan.image(), plan.len);
        let Had { image, made, ours, .. } = had;
        let (looks, unlocked) = Default::default();
        self.images[number] =
            Some(OpenImage { image, part, called, len, made, ours, objects, looks, unlocked, said: 0 });
        Ok(())
    }

    /// Finds out which objects hold something. Until it is known, all do.
    fn walk(&self, slot: Slot, image: Arc<dyn Image>, words: usize, completions: &Arc<Completions>) {
        let (sender, completions) = (self.walked.0.clone(), Arc::clone(completions));
        let work = move || {
            let (object, mut bits) = (image.object(), vec![0; words]);
            let known = image.extents(&mut |offset, len| objects::mark(&mut bits, object, offset, len));
            drop(image);
            if matches!(known, Ok(true)) {
                // The pool may be gone.
                let _ = sender.send((slot, bits));
                completions.ring();
            }
        };
        // Without a thread it stays unknown.
        let _ = std::thread::Builder::new().name("rbd-extents".into()).spawn(work);
    }

    /// Hears which objects hold something.
    pub(super) fn learn(&mut self) {
        while let Ok((slot, bits)) = self.walked.1.try_recv() {
            if let Some(open) = self.at(slot) {
                open.objects.learn(&bits);
            }
        }
    }

    pub(super) fn could_grow(&self, name: &str, len: u64) -> io::Result<()> {
        self.space.could_grow(name, len)
    }

    pub(super) fn grown(&mut self, name: &str, len: u64) -> io::Result<()> {
        self.space.grow(name, len)?;
        let open = self.number(name).and_then(|number| self.images[number].as_mut());
        let open = open.expect("a part that has grown is there");
        open.len = len;
        open.objects.grow(len);
        Ok(())
    }

    /// Takes a part out.
    pub(super) fn take(&mut self, name: &str) -> Option<OpenImage> {
        let i = self.space.free(name)?;
        let number = self.slots.remove(i);
        Some(self.images[number].take().expect("a part has an image"))
    }

    /// Takes all images out.
    pub(super) fn drain(&mut self) -> Vec<Arc<dyn Image>> {
        self.images.drain(..).flatten().map(|open| open.image).collect()
    }
}
