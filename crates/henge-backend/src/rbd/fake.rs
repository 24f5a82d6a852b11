//! A cluster in memory, which does what a test says.

#![allow(unsafe_code)] // requests complete

use super::cluster::{Cluster, Image, Lock};
use super::in_flight::{Ask, Completions, InFlight};
use crate::origin::Snapshot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// What an image is.
#[derive(Default)]
pub(crate) struct State {
    pub data: Vec<u8>,
    pub notes: BTreeMap<String, String>,
    pub holder: Option<String>,
    /// It gives its lock up to nobody.
    pub stubborn: bool,
    /// Somebody asked it for that.
    pub waited: bool,
    pub caches: bool,
    /// What is asked of notes next fails so.
    pub notes_fail: VecDeque<io::ErrorKind>,
    /// Somebody has changed it since its size was looked at.
    pub changed: bool,
    /// Its feature of a lock was switched off.
    pub unlocked: bool,
    /// Who looks at its size waits.
    pub silent: bool,
    /// It has no feature of a lock.
    pub lockless: bool,
    /// Ceph knows which objects there are.
    pub mapped: bool,
    /// Results of the next requests, instead of what they would be.
    pub results: VecDeque<i64>,
    /// Requests do not end.
    pub hangs: bool,
    pub hung: Vec<(Box<InFlight>, Arc<Completions>)>,
    pub asked: Vec<(Ask, u64, u64)>,
    pub broken: Vec<String>,
}

/// A cluster; it calls itself `me` where it takes locks.
#[derive(Default)]
pub(crate) struct Fake {
    images: Mutex<BTreeMap<String, Arc<Mutex<State>>>>,
    pub marks: Mutex<BTreeSet<String>>,
    pub log: Mutex<Vec<String>>,
    /// New images have no feature of a lock.
    pub lockless: AtomicBool,
    /// What monitors say; nothing where nobody has said it.
    pub said: Mutex<Option<String>>,
}

pub(crate) const OBJECT: u64 = 1 << 16;

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl Fake {
    pub(crate) fn new() -> Arc<Fake> {
        Arc::new(Fake::default())
    }
    /// An image that somebody else has made.
    pub(crate) fn with(self: Arc<Self>, name: &str, size: u64) -> Arc<Self> {
        self.put(name, size);
        self
    }
    fn put(&self, name: &str, size: u64) {
        let (data, lockless) = (vec![0; size as usize], self.lockless.load(Ordering::Relaxed));
        let state = State { data, lockless, mapped: true, ..State::default() };
        held(&self.images).insert(name.into(), Arc::new(Mutex::new(state)));
    }
    pub(crate) fn names(&self) -> Vec<String> {
        held(&self.images).keys().cloned().collect()
    }
    /// Looks at an image, or changes it.
    pub(crate) fn at<T>(&self, name: &str, look: impl FnOnce(&mut State) -> T) -> T {
        let state = Arc::clone(held(&self.images).get(name).expect("there is such an image"));
        let mut state = held(&state);
        look(&mut state)
    }
    /// What hangs is answered.
    pub(crate) fn answer(&self, name: &str) {
        let hung = self.at(name, |image| {
            image.hangs = false;
            std::mem::take(&mut image.hung)
        });
        let image = Opened(Arc::clone(&held(&self.images)[name]), true);
        hung.into_iter().for_each(|(request, completions)| image.begin(request, &completions));
    }
    fn note(&self, what: String) {
        held(&self.log).push(what);
    }
}

impl Cluster for Fake {
    fn open(&self, image: &str, write: bool) -> io::Result<Option<Arc<dyn Image>>> {
        let found = held(&self.images).get(image).cloned();
        Ok(found.map(|state| Arc::new(Opened(state, write)) as Arc<dyn Image>))
    }
    fn create(&self, image: &str, size: u64) -> io::Result<()> {
        self.note(format!("create {image}"));
        self.put(image, size);
        Ok(())
    }
    fn clone(&self, from: &Snapshot, image: &str) -> io::Result<()> {
        self.note(format!("clone {from} {image}"));
        let data = self.at(&from.image, |parent| parent.data.clone());
        self.put(image, 0);
        let notes = self.at(&from.image, |parent| parent.notes.clone());
        self.at(image, |clone| (clone.data, clone.notes) = (data, notes));
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.note(format!("rename {from} {to}"));
        let state = held(&self.images).remove(from).expect("there is such an image");
        held(&self.images).insert(to.into(), state);
        Ok(())
    }
    fn remove(&self, image: &str) -> io::Result<()> {
        if held(&self.images).remove(image).is_some() {
            self.note(format!("remove {image}"));
        }
        Ok(())
    }
    fn mark(&self, image: &str) -> io::Result<()> {
        held(&self.marks).insert(image.into());
        Ok(())
    }
    fn is_marked(&self, image: &str) -> io::Result<bool> {
        Ok(held(&self.marks).contains(image))
    }
    fn unmark(&self, image: &str) -> io::Result<()> {
        held(&self.marks).remove(image);
        Ok(())
    }
    fn monitors_say(&self) -> io::Result<String> {
        held(&self.said).clone().ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "no monitor answers"))
    }
    fn register(&self) -> Option<Arc<dyn crate::Register>> {
        None
    }
    fn name(&self) -> &str {
        "Ceph pool fake"
    }
}

struct Opened(Arc<Mutex<State>>, bool);

impl Image for Opened {
    fn begin(&self, mut request: Box<InFlight>, completions: &Arc<Completions>) {
        let mut image = held(&self.0);
        image.asked.push((request.ask, request.offset, request.len));
        if image.hangs {
            return image.hung.push((request, Arc::clone(completions)));
        }
        // As librbd does: what reaches beyond the end is cut, what begins there is wrong.
        let end = image.data.len();
        let (from, to) = (request.offset as usize, ((request.offset + request.len) as usize).min(end));
        let scripted = image.results.pop_front();
        let result = match request.ask {
            _ if scripted.is_some() => scripted.unwrap_or_default(),
            Ask::Flush => 0,
            _ if from >= end => -i64::from(libc::EINVAL),
            Ask::Read => {
                request.buffer[..to - from].copy_from_slice(&image.data[from..to]);
                (to - from) as i64
            }
            Ask::Write => {
                image.data[from..to].copy_from_slice(&request.buffer[..to - from]);
                0
            }
            Ask::Zero { .. } => {
                image.data[from..to].fill(0);
                0
            }
        };
        drop(image);
        let request = request.hand_out(completions);
        // SAFETY: it has just set out.
        unsafe { InFlight::complete(request, result) };
    }
    fn size(&self) -> u64 {
        while held(&self.0).silent {
            std::thread::yield_now();
        }
        let mut image = held(&self.0);
        image.changed = false;
        image.data.len() as u64
    }
    fn has_lost_its_lock(&self) -> bool {
        held(&self.0).unlocked
    }
    fn is_changed(&self) -> bool {
        held(&self.0).changed
    }
    fn resize(&self, size: u64) -> io::Result<()> {
        held(&self.0).data.resize(size as usize, 0);
        Ok(())
    }
    fn note(&self, key: &str) -> io::Result<Option<String>> {
        let mut image = held(&self.0);
        match image.notes_fail.pop_front() {
            Some(kind) => Err(kind.into()),
            None => Ok(image.notes.get(key).cloned()),
        }
    }
    fn set_note(&self, key: &str, value: &str) -> io::Result<()> {
        assert!(self.1, "who looks notes nothing");
        let mut image = held(&self.0);
        if let Some(kind) = image.notes_fail.pop_front() {
            return Err(kind.into());
        }
        image.notes.insert(key.into(), value.into());
        Ok(())
    }
    fn remove_note(&self, key: &str) -> io::Result<()> {
        held(&self.0).notes.remove(key);
        Ok(())
    }
    fn caches(&self) -> io::Result<bool> {
        Ok(held(&self.0).caches)
    }
    fn holder(&self) -> io::Result<Option<String>> {
        Ok(held(&self.0).holder.clone())
    }
    fn lock(&self) -> io::Result<Lock> {
        assert!(self.1, "who looks locks nothing");
        let mut image = held(&self.0);
        match image.holder.clone() {
            Some(who) if who != "me" && image.stubborn => {
                image.waited = true;
                Ok(Lock::Theirs(who))
            }
            _ => {
                image.holder = Some("me".into());
                Ok(Lock::Ours)
            }
        }
    }
    fn break_lock(&self, holder: &str) -> io::Result<()> {
        let mut image = held(&self.0);
        image.broken.push(holder.into());
        image.holder = None;
        Ok(())
    }
    fn is_guarded(&self) -> bool {
        !held(&self.0).lockless
    }
    fn object(&self) -> u64 {
        OBJECT
    }
    fn extents(&self, each: &mut dyn FnMut(u64, u64)) -> io::Result<bool> {
        let image = held(&self.0);
        for (i, object) in image.data.chunks(OBJECT as usize).enumerate() {
            if object.iter().any(|byte| *byte != 0) {
                each(i as u64 * OBJECT, object.len() as u64);
            }
        }
        Ok(image.mapped)
    }
}
