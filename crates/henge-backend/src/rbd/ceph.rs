//! A Ceph cluster by its client libraries.

#![allow(unsafe_code)] // calls of C functions

use super::cluster::{Cluster, Image, Lock, Snapshot};
use super::flight::{Ask, Flight, Landed};
use super::library::{Handle, Info, Library, Setting};
use crate::Register;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::ptr::{null, null_mut};
use std::sync::Arc;

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

/// How a cluster is reached.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    pub pool: String,
    pub conf: String,
    pub user: String,
    pub keyring: Option<String>,
}

fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a text holds a zero byte"))
}

/// An error of theirs in words.
fn failed(what: &str, result: c_int) -> io::Error {
    let error = io::Error::from_raw_os_error(-result);
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn well(what: &str, result: c_int) -> io::Result<()> {
    if result < 0 { Err(failed(what, result)) } else { Ok(()) }
}

/// A connection to a cluster.
struct Connection {
    library: &'static Library,
    cluster: Handle,
}

// SAFETY: librados' handles may be used by several threads at once.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: created, and dropped once; pools that come of it hold it.
        unsafe { (self.library.rados_shutdown)(self.cluster) };
    }
}

/// A pool of it.
struct Pool {
    connection: Connection,
    pool: Handle,
    /// Its name anywhere.
    store: String,
}

// SAFETY: as for Connection.
unsafe impl Send for Pool {}
// SAFETY: as for Connection.
unsafe impl Sync for Pool {}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: created, and dropped once; images that come of it hold it.
        unsafe { (self.connection.library.rados_ioctx_destroy)(self.pool) };
    }
}

/// A pool of a Ceph cluster.
pub(crate) struct Ceph {
    pool: Arc<Pool>,
    name: String,
}

impl Connection {
    /// Blocks for as long as the monitors may be silent.
    fn new(reach: &Reach, silence_s: u32) -> io::Result<Connection> {
        let library = Library::get().map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why))?;
        let mut cluster = null_mut();
        let user = text(&format!("client.{}", reach.user))?;
        // SAFETY: texts that end with a zero, and a place for the handle.
        let made = unsafe { (library.rados_create2)(&mut cluster, c"ceph".as_ptr(), user.as_ptr(), 0) };
        well("no Ceph client", made)?;
        let connection = Connection { library, cluster };
        let conf = text(&reach.conf)?;
        // SAFETY: a handle and a text.
        let read = unsafe { (library.rados_conf_read_file)(cluster, conf.as_ptr()) };
        well(&format!("conf \"{}\"", reach.conf), read)?;
        let silence = silence_s.to_string();
        // A cache would answer writes that no OSD has; one connection's patience is no reason to fail data.
        let mut settings = vec![
            ("rbd_cache", "false"),
            ("client_mount_timeout", silence.as_str()),
            ("rados_mon_op_timeout", silence.as_str()),
            ("rados_osd_op_timeout", "0"),
        ];
        settings.extend(reach.keyring.as_deref().map(|keyring| ("keyring", keyring)));
        for (key, value) in settings {
            let (name, value) = (text(key)?, text(value)?);
            // SAFETY: a handle and texts.
            let set = unsafe { (library.rados_conf_set)(cluster, name.as_ptr(), value.as_ptr()) };
            well(&format!("Ceph's setting {key}"), set)?;
        }
        // SAFETY: a handle that is not connected yet.
        let connected = unsafe { (library.rados_connect)(cluster) };
        match -connected {
            0 => Ok(connection),
            libc::ETIMEDOUT => {
                let why = format!(
                    "no monitor of \"{}\" answered within {silence_s} s: they have no quorum, or mon_host is wrong",
                    reach.conf
                );
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
            libc::EACCES | libc::EPERM => {
                let why = format!(
                    "the cluster of \"{}\" refuses client.{}: its key is not the one in the keyring, or it has no such \
                     user; `ceph auth get client.{}` says",
                    reach.conf, reach.user, reach.user
                );
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
            libc::ENOENT => {
                let why = format!(
                    "\"{}\" leads to no keyring of client.{} that can be read, or to no monitor",
                    reach.conf, reach.user
                );
                Err(io::Error::new(io::ErrorKind::NotFound, why))
            }
            _ => Err(failed(&format!("the cluster of \"{}\"", reach.conf), connected)),
        }
    }

    /// The cluster's own name.
    fn fsid(&self) -> io::Result<String> {
        let mut room = [0u8; 64];
        // SAFETY: a handle, and room with its length.
        let len =
            unsafe { (self.library.rados_cluster_fsid)(self.cluster, room.as_mut_ptr().cast(), room.len()) };
        if len < 0 {
            return Err(failed("the cluster's fsid", len));
        }
        Ok(String::from_utf8_lossy(&room[..(len as usize).min(room.len())]).into_owned())
    }

    fn pool(self, name: &str, user: &str) -> io::Result<Pool> {
        let (mut pool, named) = (null_mut(), text(name)?);
        // SAFETY: a handle, a text, and a place for the pool's handle.
        let made = unsafe { (self.library.rados_ioctx_create)(self.cluster, named.as_ptr(), &mut pool) };
        match -made {
            0 => {
                // A full pool is an error, and not a reason to wait for ever.
                // SAFETY: the pool's handle.
                unsafe { (self.library.rados_set_pool_full_try)(pool) };
                // SAFETY: the pool's handle.
                let id = unsafe { (self.library.rados_ioctx_get_id)(pool) };
                let mut pool = Pool { connection: self, pool, store: String::new() };
                pool.store = format!("ceph {} {id}", pool.connection.fsid()?);
                Ok(pool)
            }
            libc::ENOENT => {
                let why =
                    format!("the cluster has no pool \"{name}\"; `ceph osd pool ls` names those that it has");
                Err(io::Error::new(io::ErrorKind::NotFound, why))
            }
            libc::EPERM | libc::EACCES => {
                let why = format!("client.{user} may not use the pool \"{name}\"");
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
            _ => Err(failed(&format!("pool \"{name}\""), made)),
        }
    }
}

impl Ceph {
    /// Connects. It may block for as long as the monitors may be silent.
    pub(crate) fn connect(reach: &Reach, silence_s: u32) -> io::Result<Ceph> {
        let pool = Connection::new(reach, silence_s)?.pool(&reach.pool, &reach.user)?;
        Ok(Ceph { pool: Arc::new(pool), name: format!("Ceph pool {}", reach.pool) })
    }

    fn library(&self) -> &'static Library {
        self.pool.connection.library
    }

    fn named(&self, image: &str) -> String {
        format!("{}, image \"{image}\"", self.name)
    }

    /// Calls with options that say nothing, so that the cluster's own hold.
    fn with_options(&self, call: impl FnOnce(Handle) -> c_int) -> c_int {
        let mut options = null_mut();
        // SAFETY: a place for the handle.
        unsafe { (self.library().rbd_image_options_create)(&mut options) };
        let result = call(options);
        // SAFETY: created just now.
        unsafe { (self.library().rbd_image_options_destroy)(options) };
        result
    }
}

impl Cluster for Ceph {
    fn open(&self, image: &str, write: bool) -> io::Result<Option<Arc<dyn Image>>> {
        let (mut handle, name) = (null_mut(), text(image)?);
        let library = self.library();
        let open = if write { library.rbd_open } else { library.rbd_open_read_only };
        // SAFETY: a pool, a text, a place for the handle, and no snapshot.
        let opened = unsafe { open(self.pool.pool, name.as_ptr(), &mut handle, null()) };
        if opened == -libc::ENOENT {
            return Ok(None);
        }
        if matches!(-opened, libc::EPERM | libc::EACCES) {
            let why = format!(
                "{}: the user may not; `ceph auth caps` gives it mon 'profile rbd' osd 'profile rbd pool=…'",
                self.named(image)
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        well(&self.named(image), opened)?;
        let (pool, name, advisory) = (Arc::clone(&self.pool), self.named(image), false.into());
        let mut rbd = Opened { pool, handle, name, object: 0, features: 0, write, advisory };
        let mut info = Info::empty();
        // SAFETY: an open image and a place for what it says.
        well(&rbd.name, unsafe { (library.rbd_stat)(handle, &mut info, size_of::<Info>()) })?;
        // SAFETY: as above.
        well(&rbd.name, unsafe { (library.rbd_get_features)(handle, &mut rbd.features) })?;
        rbd.object = info.object_size.max(1);
        Ok(Some(Arc::new(rbd)))
    }
    fn create(&self, image: &str, size: u64) -> io::Result<()> {
        let name = text(image)?;
        // SAFETY: a pool, a text and options.
        let call =
            |options| unsafe { (self.library().rbd_create4)(self.pool.pool, name.as_ptr(), size, options) };
        let made = self.with_options(call);
        if made == -libc::EDQUOT {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("{}: the pool is full", self.named(image)),
            ));
        }
        well(&self.named(image), made)
    }
    fn clone(&self, from: &Snapshot, image: &str) -> io::Result<()> {
        let (library, name) = (self.library(), text(image)?);
        let (parent, snapshot) = (text(&from.image)?, text(&from.name)?);
        let mut other = null_mut();
        if let Some(pool) = &from.pool {
            let named = text(pool)?;
            // SAFETY: a cluster, a text, and a place for the pool's handle.
            let made = unsafe {
                (library.rados_ioctx_create)(self.pool.connection.cluster, named.as_ptr(), &mut other)
            };
            well(&format!("pool \"{pool}\""), made)?;
        }
        let within = if other.is_null() { self.pool.pool } else { other };
        let cloned = self.with_options(|options| {
            // SAFETY: two pools, texts and options.
            unsafe {
                (library.rbd_clone3)(
                    within,
                    parent.as_ptr(),
                    snapshot.as_ptr(),
                    self.pool.pool,
                    name.as_ptr(),
                    options,
                )
            }
        });
        if !other.is_null() {
            // SAFETY: created above.
            unsafe { (library.rados_ioctx_destroy)(other) };
        }
        match -cloned {
            libc::ENOENT => {
                let why =
                    format!("{} has no snapshot {from}; `rbd snap ls` names those that there are", self.name);
                Err(io::Error::new(io::ErrorKind::NotFound, why))
            }
            libc::EINVAL => {
                let why = format!("{from} cannot be cloned yet; `rbd snap protect {from}` allows it");
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
            _ => well(&format!("a clone of {from}"), cloned),
        }
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, into) = (text(from)?, text(to)?);
        // SAFETY: a pool and texts.
        let renamed = unsafe { (self.library().rbd_rename)(self.pool.pool, from.as_ptr(), into.as_ptr()) };
        well(&self.named(to), renamed)
    }
    fn remove(&self, image: &str) -> io::Result<()> {
        let name = text(image)?;
        // SAFETY: a pool and a text.
        let removed = unsafe { (self.library().rbd_remove)(self.pool.pool, name.as_ptr()) };
        match -removed {
            libc::ENOENT => Ok(()),
            libc::ENOTEMPTY => {
                let why = format!("{} has snapshots, which `rbd snap purge` removes", self.named(image));
                Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, why))
            }
            libc::EBUSY => {
                let why = format!("{} is open elsewhere; `rbd status` says where", self.named(image));
                Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
            }
            _ => well(&self.named(image), removed),
        }
    }
    fn register(&self) -> Option<Arc<dyn Register>> {
        Some(Arc::new(Words(Arc::clone(&self.pool))))
    }
    fn name(&self) -> &str {
        &self.name
    }
}

/// The object whose attributes are what gateways say; one object, so that they all see it go on or stand still together.
const WORDS: &CStr = c"henge.gateways";

/// What gateways say to each other by a pool.
struct Words(Arc<Pool>);

impl Register for Words {
    fn store(&self) -> &str {
        &self.0.store
    }
    fn write(&self, node: &str, word: &str) -> io::Result<()> {
        let (library, node) = (self.0.connection.library, text(node)?);
        // SAFETY: a pool, texts, and bytes with their length.
        let written = unsafe {
            (library.rados_setxattr)(
                self.0.pool,
                WORDS.as_ptr(),
                node.as_ptr(),
                word.as_ptr().cast(),
                word.len(),
            )
        };
        if written < 0 { Err(io::Error::from_raw_os_error(-written)) } else { Ok(()) }
    }
    fn read(&self, node: &str) -> io::Result<Option<String>> {
        let (library, node) = (self.0.connection.library, text(node)?);
        let mut word = [0u8; 256];
        // SAFETY: a pool, texts, and room with its length.
        let read = unsafe {
            let room = word.as_mut_ptr().cast();
            (library.rados_getxattr)(self.0.pool, WORDS.as_ptr(), node.as_ptr(), room, word.len())
        };
        match -read {
            libc::ENOENT | libc::ENODATA => Ok(None),
            error if error > 0 => Err(io::Error::from_raw_os_error(error)),
            _ => Ok(Some(String::from_utf8_lossy(&word[..read as usize]).into_owned())),
        }
    }
}

/// An open image.
struct Opened {
    pool: Arc<Pool>,
    handle: Handle,
    name: String,
    object: u64,
    features: u64,
    write: bool,
    /// Our lock is one that nobody has to obey.
    advisory: std::sync::atomic::AtomicBool,
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
        // SAFETY: opened, and closed once; it waits for what is under way, so no flight lands later.
        unsafe { (library.rbd_close)(self.handle) };
    }
}

/// A request is over, on a thread of librbd.
unsafe extern "C" fn over(completion: Handle, flight: *mut c_void) {
    let Ok(library) = Library::get() else { std::process::abort() };
    // SAFETY: the completion that this was called for, which nobody uses afterwards.
    let result = unsafe {
        let result = (library.rbd_aio_get_return_value)(completion);
        (library.rbd_aio_release)(completion);
        result
    };
    // SAFETY: `begin` has sent it out, and its completion is called once.
    unsafe { Flight::land(flight.cast(), result as i64) };
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
    fn begin(&self, flight: Box<Flight>, home: &Arc<Landed>) {
        let library = self.library();
        let (ask, offset, len) = (flight.ask, flight.offset, flight.len as usize);
        let mut flight = flight;
        let at = flight.at;
        let moves = matches!(ask, Ask::Read | Ask::Write);
        assert!(!moves || flight.buffer.len() >= at + len, "what is moved has room");
        let memory: *mut c_char = flight.buffer[at..].as_mut_ptr().cast();
        let flight = flight.set_out(home);
        let mut completion = null_mut();
        // SAFETY: the flight keeps its buffer until it lands, and lands when the completion is called, or below. The image is open.
        unsafe {
            let mut begun = (library.rbd_aio_create_completion)(flight.cast(), over, &mut completion);
            if begun < 0 {
                return Flight::land(flight, i64::from(begun));
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
                Flight::land(flight, i64::from(begun));
            }
        }
    }
    fn size(&self) -> u64 {
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
                self.advisory.store(!lockable, std::sync::atomic::Ordering::Relaxed);
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
