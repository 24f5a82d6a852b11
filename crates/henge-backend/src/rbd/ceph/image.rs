//! An open image: its requests, its lock, its metadata, and which ranges hold something.

use super::super::cluster::{Image, Lock};
use super::super::in_flight::{Ask, Completions, InFlight};
use super::super::library::{Handle, Library, Setting};
use super::connection::Pool;
use super::{failed, text, well};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Features of images and what may be wrong with them (`rbd/features.h`, `rbd/librbd.h`).
const EXCLUSIVE_LOCK: u64 = 1 << 2;
const FAST_DIFF: u64 = 1 << 4;
const OBJECT_MAP_INVALID: u64 = 1 << 0;
const FAST_DIFF_INVALID: u64 = 1 << 1;
const EXCLUSIVE: c_int = 0;
/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`
const KEEP_ROOM: c_int = 1;
/// By which our lock of an image without a lock of its own is known.
const COOKIE: &CStr = c"henge";
/// Longest note that is read.
const NOTE_MAX: usize = 1 << 20;

/// An open image.
pub(super) struct Opened {
    pub(super) pool: Arc<Pool>,
    pub(super) handle: Handle,
    pub(super) name: String,
    pub(super) object: u64,
    pub(super) features: u64,
    pub(super) write: bool,
    /// Our lock is one that nobody has to obey.
    pub(super) advisory: AtomicBool,
    /// Somebody has changed the image since its size was looked at.
    pub(super) changed: AtomicBool,
    /// By which its changes are watched.
    pub(super) watch: OnceLock<u64>,
}

// SAFETY: librbd's images may be used by several threads at once.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        let library = self.library();
        if *self.advisory.get_mut() {
            // SAFETY: an open image and a text. If it stays locked, whoever comes next says so.
            unsafe { (library.rbd_unlock)(self.handle, COOKIE.as_ptr()) };
        }
        if let Some(watch) = self.watch.get() {
            // SAFETY: an open image, and its watch; nobody is told of changes afterwards.
            unsafe { (library.rbd_update_unwatch)(self.handle, *watch) };
        }
        // SAFETY: opened, and closed once; it waits for what is under way, so no request completes later.
        unsafe { (library.rbd_close)(self.handle) };
    }
}

/// A request is over, on a thread of librbd.
unsafe extern "C" fn over(completion: Handle, request: *mut c_void) {
    let Ok(library) = Library::get() else { std::process::abort() };
    // SAFETY: the completion that this was called for, which nobody uses afterwards.
    let result = unsafe {
        let result = (library.rbd_aio_get_return_value)(completion);
        (library.rbd_aio_release)(completion);
        result
    };
    // SAFETY: `begin` has sent it out, and its completion is called once.
    unsafe { InFlight::complete(request.cast(), result as i64) };
}

/// An image was changed, says a thread of librbd.
unsafe extern "C" fn changed(flag: *mut c_void) {
    // SAFETY: `watch` has handed over this very type, which stays where it is until the watch has ended.
    unsafe { &*flag.cast::<AtomicBool>() }.store(true, Ordering::Release);
}

/// For each range that holds something; what is called does not unwind.
unsafe extern "C" fn range(offset: u64, len: usize, exists: c_int, each: *mut c_void) -> c_int {
    // SAFETY: `extents` hands over this very type and waits until all is over.
    let each = unsafe { &mut *each.cast::<&mut dyn FnMut(u64, u64)>() };
    if exists != 0 {
        each(offset, len as u64);
    }
    0
}

impl Opened {
    fn library(&self) -> &'static Library {
        self.pool.connection.library
    }

    /// From now on it is known when somebody changes the image. It stays where it is.
    pub(super) fn watch(self: &Arc<Self>) -> io::Result<()> {
        let (mut watch, flag) = (0, (&raw const self.changed).cast_mut());
        // SAFETY: an open image, a place for the watch, and a flag that outlives it.
        let watched =
            unsafe { (self.library().rbd_update_watch)(self.handle, &mut watch, changed, flag.cast()) };
        well(&self.name, watched)?;
        self.watch.set(watch).expect("it is watched once");
        Ok(())
    }

    /// Who has the lock that anybody may ask for: client, cookie, address.
    fn lockers(&self) -> io::Result<Vec<(String, String, String)>> {
        let mut buffers = [const { [0u8; 4096] }; 4];
        let mut lens = [4096usize; 4];
        let mut exclusive = 0;
        let [tag, clients, cookies, addresses] = &mut buffers;
        let [tag_len, clients_len, cookies_len, addresses_len] = &mut lens;
        // SAFETY: an open image, and buffers with their lengths.
        let found = unsafe {
            (self.library().rbd_list_lockers)(
                self.handle,
                &mut exclusive,
                tag.as_mut_ptr().cast(),
                tag_len,
                clients.as_mut_ptr().cast(),
                clients_len,
                cookies.as_mut_ptr().cast(),
                cookies_len,
                addresses.as_mut_ptr().cast(),
                addresses_len,
            )
        };
        well(&self.name, found as c_int)?;
        let words = |buffer: &[u8]| -> Vec<String> {
            let words = buffer.split(|b| *b == 0).take(found as usize);
            words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
        };
        let all = words(clients).into_iter().zip(words(cookies)).zip(words(addresses));
        Ok(all.map(|((client, cookie), address)| (client, cookie, address)).collect())
    }

    fn is_lockable(&self) -> bool {
        self.features & EXCLUSIVE_LOCK != 0
    }
}

impl Image for Opened {
    fn begin(&self, request: Box<InFlight>, completions: &Arc<Completions>) {
        let library = self.library();
        let (ask, offset, len) = (request.ask, request.offset, request.len as usize);
        let mut request = request;
        let at = request.at;
        let moves = matches!(ask, Ask::Read | Ask::Write);
        assert!(!moves || request.buffer.len() >= at + len, "what is moved has room");
        let memory: *mut c_char = request.buffer[at..].as_mut_ptr().cast();
        let request = request.hand_out(completions);
        let mut completion = null_mut();
        // SAFETY: the request keeps its buffer until it completes, which it does when the completion is called, or below. The image is open.
        unsafe {
            let mut begun = (library.rbd_aio_create_completion)(request.cast(), over, &mut completion);
            if begun < 0 {
                return InFlight::complete(request, i64::from(begun));
            }
            begun = match ask {
                Ask::Read => (library.rbd_aio_read)(self.handle, offset, len, memory, completion),
                Ask::Write => (library.rbd_aio_write)(self.handle, offset, len, memory, completion),
                Ask::Zero { full } => {
                    let keep = if full { KEEP_ROOM } else { 0 };
                    (library.rbd_aio_write_zeroes)(self.handle, offset, len, completion, keep, 0)
                }
                Ask::Flush => (library.rbd_aio_flush)(self.handle, completion),
            };
            if begun < 0 {
                // It was refused, so its completion is never called.
                (library.rbd_aio_release)(completion);
                InFlight::complete(request, i64::from(begun));
            }
        }
    }
    fn is_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }
    fn has_lost_its_lock(&self) -> bool {
        let mut features = 0;
        // SAFETY: an open image and a place for its features.
        let said = unsafe { (self.library().rbd_get_features)(self.handle, &mut features) };
        self.is_lockable() && said >= 0 && features & EXCLUSIVE_LOCK == 0
    }
    fn size(&self) -> u64 {
        // Before the look: what changes during it is looked at again.
        self.changed.store(false, Ordering::Release);
        let mut size = 0;
        // SAFETY: an open image and a place for its size.
        let said = unsafe { (self.library().rbd_get_size)(self.handle, &mut size) };
        if said < 0 { 0 } else { size }
    }
    fn resize(&self, size: u64) -> io::Result<()> {
        // SAFETY: an open image.
        well(&self.name, unsafe { (self.library().rbd_resize)(self.handle, size) })
    }
    fn note(&self, key: &str) -> io::Result<Option<String>> {
        let (key, mut value) = (text(key)?, vec![0u8; 1024]);
        let read = loop {
            let mut len = value.len();
            // SAFETY: an open image, a text, and a buffer with its length.
            let read = unsafe {
                let value = value.as_mut_ptr().cast();
                (self.library().rbd_metadata_get)(self.handle, key.as_ptr(), value, &mut len)
            };
            // It says how long it is, and may be longer by the next time.
            if read != -libc::ERANGE || len <= value.len() || len > NOTE_MAX {
                break read;
            }
            value.resize(len, 0);
        };
        if read == -libc::ENOENT {
            return Ok(None);
        }
        well(&self.name, read)?;
        let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
        value.truncate(end);
        let wrong = |_| io::Error::new(io::ErrorKind::InvalidData, "it is no text");
        String::from_utf8(value).map(Some).map_err(wrong)
    }
    fn set_note(&self, key: &str, value: &str) -> io::Result<()> {
        let (key, value) = (text(key)?, text(value)?);
        // SAFETY: an open image and texts.
        well(&self.name, unsafe {
            (self.library().rbd_metadata_set)(self.handle, key.as_ptr(), value.as_ptr())
        })
    }
    fn remove_note(&self, key: &str) -> io::Result<()> {
        let key = text(key)?;
        // SAFETY: an open image and a text.
        let done = unsafe { (self.library().rbd_metadata_remove)(self.handle, key.as_ptr()) };
        if done == -libc::ENOENT { Ok(()) } else { well(&self.name, done) }
    }
    fn caches(&self) -> io::Result<bool> {
        let mut all = vec![Setting { name: null_mut(), value: null_mut(), source: 0 }; 512];
        let mut count = all.len() as c_int;
        // SAFETY: an open image, and places with their number.
        well(&self.name, unsafe {
            (self.library().rbd_config_image_list)(self.handle, all.as_mut_ptr(), &mut count)
        })?;
        let filled = &all[..count.clamp(0, 512) as usize];
        let is = |setting: &&Setting, name: &CStr| {
            // SAFETY: filled by the call, with texts that it owns until the clean-up.
            unsafe { CStr::from_ptr(setting.name) == name }
        };
        let cache = filled.iter().find(|setting| is(setting, c"rbd_cache"));
        // SAFETY: as above.
        let caches = cache.is_some_and(|setting| unsafe { CStr::from_ptr(setting.value) } != c"false");
        // SAFETY: what the call has filled, once.
        unsafe { (self.library().rbd_config_image_list_cleanup)(all.as_mut_ptr(), count) };
        Ok(caches)
    }
    fn holder(&self) -> io::Result<Option<String>> {
        if !self.is_lockable() {
            return Ok(self
                .lockers()?
                .into_iter()
                .next()
                .map(|(client, cookie, _)| format!("{client}/{cookie}")));
        }
        let (mut mode, mut owners, mut count) = (0, [null_mut(); 8], 8);
        // SAFETY: an open image, and places with their number.
        let found = unsafe {
            (self.library().rbd_lock_get_owners)(self.handle, &mut mode, owners.as_mut_ptr(), &mut count)
        };
        if found == -libc::ENOENT || found == 0 && count == 0 {
            return Ok(None);
        }
        if found == -libc::EBUSY {
            // Not librbd's own lock, but one that somebody has set by hand.
            return Ok(self
                .lockers()?
                .into_iter()
                .next()
                .map(|(client, cookie, _)| format!("{client}/{cookie}")));
        }
        well(&self.name, found)?;
        // SAFETY: filled by the call with texts, which are freed below.
        let holder = unsafe { CStr::from_ptr(owners[0]) }.to_string_lossy().into_owned();
        // SAFETY: as above, once.
        unsafe { (self.library().rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count) };
        Ok(Some(holder))
    }
    fn lock(&self) -> io::Result<Lock> {
        if !self.write {
            return Ok(Lock::Theirs("nobody: it is open for reading alone".into()));
        }
        let lockable = self.is_lockable();
        if lockable && let Some(by_hand) = self.holder()?.filter(|holder| holder.starts_with("client.")) {
            // For that one's end librbd would wait for ever.
            return Ok(Lock::Theirs(by_hand));
        }
        // SAFETY: an open image, and a text.
        let locked = unsafe {
            if lockable {
                (self.library().rbd_lock_acquire)(self.handle, EXCLUSIVE)
            } else {
                (self.library().rbd_lock_exclusive)(self.handle, COOKIE.as_ptr())
            }
        };
        match -locked {
            0 => {
                self.advisory.store(!lockable, Ordering::Relaxed);
                Ok(Lock::Ours)
            }
            libc::EEXIST => Ok(Lock::Ours),
            libc::EROFS | libc::EBUSY => {
                Ok(Lock::Theirs(self.holder()?.unwrap_or_else(|| "a client that has gone by now".into())))
            }
            _ => Err(failed(&self.name, locked)),
        }
    }
    fn break_lock(&self, holder: &str) -> io::Result<()> {
        let broken = match holder.split_once('/').filter(|(client, _)| client.starts_with("client.")) {
            Some((client, cookie)) => {
                let (client, cookie) = (text(client)?, text(cookie)?);
                // SAFETY: an open image and texts.
                unsafe { (self.library().rbd_break_lock)(self.handle, client.as_ptr(), cookie.as_ptr()) }
            }
            None => {
                let holder = text(holder)?;
                // SAFETY: an open image and a text.
                unsafe { (self.library().rbd_lock_break)(self.handle, EXCLUSIVE, holder.as_ptr()) }
            }
        };
        // Who gives it up meanwhile does not have it any more.
        if broken == -libc::ENOENT { Ok(()) } else { well(&self.name, broken) }
    }
    fn is_guarded(&self) -> bool {
        self.is_lockable()
    }
    fn object(&self) -> u64 {
        self.object
    }
    fn extents(&self, each: &mut dyn FnMut(u64, u64)) -> io::Result<bool> {
        let mut flags = 0;
        // SAFETY: an open image and a place for its flags.
        well(&self.name, unsafe { (self.library().rbd_get_flags)(self.handle, &mut flags) })?;
        if self.features & FAST_DIFF == 0 || flags & (OBJECT_MAP_INVALID | FAST_DIFF_INVALID) != 0 {
            return Ok(false);
        }
        let mut each = each;
        let arg: *mut c_void = (&raw mut each).cast();
        // SAFETY: an open image, no snapshot to begin with, and what `range` casts back while this call lasts.
        let walked = unsafe {
            (self.library().rbd_diff_iterate2)(self.handle, null(), 0, self.size(), 1, 1, range, arg)
        };
        well(&self.name, walked).map(|()| true)
    }
}
