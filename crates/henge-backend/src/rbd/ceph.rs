//! A Ceph cluster by its client libraries.
//!
//! | | |
//! |---|---|
//! | [`connection`] | how a cluster and its pool are reached |
//! | [`image`] | an open image: requests, its lock, its metadata, its extents |
//! | [`marks`] | which images gateways have |
//! | [`words`] | what gateways say to each other by a pool |

#![allow(unsafe_code)] // calls of C functions

mod connection;
mod image;
mod marks;
mod words;

use super::cluster::{Cluster, Image};
use super::library::{Handle, Info, Library};
use super::requests::{FENCED, FORBIDDEN};
use crate::Register;
use crate::origin::Snapshot;
pub(crate) use connection::Reach;
use connection::{Connection, Pool};
use image::Opened;
use std::ffi::{CString, c_int};
use std::io;
use std::ptr::{null, null_mut};
use std::sync::{Arc, OnceLock};
use words::Words;

fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a text holds a zero byte"))
}

/// An error of theirs in words.
fn failed(what: &str, result: c_int) -> io::Error {
    let error = io::Error::from_raw_os_error(-result);
    match -result {
        libc::ESHUTDOWN => io::Error::new(error.kind(), format!("{what}: {FENCED}")),
        libc::EPERM | libc::EACCES => io::Error::new(error.kind(), format!("{what}: {FORBIDDEN}")),
        _ => io::Error::new(error.kind(), format!("{what}: {error}")),
    }
}

fn well(what: &str, result: c_int) -> io::Result<()> {
    if result < 0 { Err(failed(what, result)) } else { Ok(()) }
}

/// A pool of a Ceph cluster.
pub(crate) struct Ceph {
    pool: Arc<Pool>,
    name: String,
    conf: String,
}

impl Ceph {
    /// Connects. It may block for as long as the monitors may be silent.
    pub(crate) fn connect(reach: &Reach, silence_s: u32) -> io::Result<Ceph> {
        let pool = Connection::new(reach, silence_s)?.pool(&reach.pool, &reach.user)?;
        let (name, conf) = (format!("Ceph pool {}", reach.pool), reach.conf.clone());
        Ok(Ceph { pool: Arc::new(pool), name, conf })
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
        let (pool, name) = (Arc::clone(&self.pool), self.named(image));
        let (advisory, changed, watch) = (false.into(), false.into(), OnceLock::new());
        let mut rbd = Opened { pool, handle, name, object: 0, features: 0, write, advisory, changed, watch };
        let mut info = Info::empty();
        // SAFETY: an open image and a place for what it says.
        well(&rbd.name, unsafe { (library.rbd_stat)(handle, &mut info, size_of::<Info>()) })?;
        // SAFETY: as above.
        well(&rbd.name, unsafe { (library.rbd_get_features)(handle, &mut rbd.features) })?;
        rbd.object = info.object_size.max(1);
        let rbd = Arc::new(rbd);
        if write {
            rbd.watch()?;
        }
        Ok(Some(rbd))
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
    fn mark(&self, image: &str) -> io::Result<()> {
        marks::mark(&self.pool, image)
    }
    fn is_marked(&self, image: &str) -> io::Result<bool> {
        marks::is_marked(&self.pool, image)
    }
    fn unmark(&self, image: &str) -> io::Result<()> {
        marks::unmark(&self.pool, image)
    }
    fn monitors_say(&self) -> io::Result<String> {
        match self.pool.connection.asked(c"{\"prefix\": \"osd stat\"}") {
            Err(e) if e.raw_os_error() == Some(libc::ETIMEDOUT) => {
                let why = format!(
                    "no monitor answers: they have no quorum, or are no longer where \"{}\" had them when the node began; a node that begins \
                     again reads it anew",
                    self.conf
                );
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
            Err(e) => Err(io::Error::new(e.kind(), format!("its monitors do not say how OSDs are: {e}"))),
            Ok(said) => Ok(said.trim().to_owned()),
        }
    }
    fn register(&self) -> Option<Arc<dyn Register>> {
        Some(Arc::new(Words(Arc::clone(&self.pool))))
    }
    fn name(&self) -> &str {
        &self.name
    }
}
