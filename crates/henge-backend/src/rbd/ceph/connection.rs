//! How a cluster and its pool are reached, and why they cannot be.

use super::super::library::{Handle, Library};
use super::{failed, text, well};
use std::ffi::CStr;
use std::io;
use std::ptr::{null, null_mut};

/// How often librbd notes in an image's header that it was read, and that it was written. Each note is a durable write, for each image that is used.
const STAMPS: [&str; 2] = ["rbd_atime_update_interval", "rbd_mtime_update_interval"];
/// Ceph's own, in seconds; whoever states something else in `conf` is obeyed.
const STAMP_OF_CEPH: &str = "60";
const STAMP_S: &str = "3600";

/// How a cluster is reached.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    pub pool: String,
    pub conf: String,
    pub user: String,
    pub keyring: Option<String>,
}

/// A connection to a cluster.
pub(super) struct Connection {
    pub(super) library: &'static Library,
    pub(super) cluster: Handle,
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
pub(super) struct Pool {
    pub(super) connection: Connection,
    pub(super) pool: Handle,
    /// Its name anywhere.
    pub(super) store: String,
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

impl Connection {
    /// Blocks for as long as the monitors may be silent.
    pub(super) fn new(reach: &Reach, silence_s: u32) -> io::Result<Connection> {
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
        // A cache would answer writes that no OSD has; one connection's patience is no reason to fail data. Gates and the node's memory bound what
        // is under way. Beyond bounds of its own librados stops the threads of all images, for one whose OSDs are silent.
        let mut settings = vec![
            ("rbd_cache", "false"),
            ("rbd_non_blocking_aio", "true"),
            ("objecter_inflight_ops", "0"),
            ("objecter_inflight_op_bytes", "0"),
            ("client_mount_timeout", silence.as_str()),
            ("rados_mon_op_timeout", silence.as_str()),
            ("rados_osd_op_timeout", "0"),
        ];
        settings.extend(reach.keyring.as_deref().map(|keyring| ("keyring", keyring)));
        settings.extend(
            STAMPS.into_iter().filter(|key| connection.has_set(key, STAMP_OF_CEPH)).map(|key| (key, STAMP_S)),
        );
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

    /// Whether a setting has this value; not where the library does not know it.
    fn has_set(&self, key: &str, value: &str) -> bool {
        let (Ok(key), mut room) = (text(key), [0u8; 64]) else { return false };
        // SAFETY: a handle, a text, and room with its length.
        let got = unsafe {
            (self.library.rados_conf_get)(self.cluster, key.as_ptr(), room.as_mut_ptr().cast(), room.len())
        };
        got >= 0 && CStr::from_bytes_until_nul(&room).is_ok_and(|has| has.to_bytes() == value.as_bytes())
    }

    /// What monitors answer to a command. Blocks for as long as they may be silent.
    pub(super) fn asked(&self, command: &CStr) -> io::Result<String> {
        let (mut out, mut len) = (null_mut(), 0);
        // SAFETY: a handle, one text, no input, a place for the answer and its length, and none for words about it.
        let done = unsafe {
            (self.library.rados_mon_command)(
                self.cluster,
                &command.as_ptr(),
                1,
                null(),
                0,
                &mut out,
                &mut len,
                null_mut(),
                null_mut(),
            )
        };
        if out.is_null() {
            return if done < 0 { Err(io::Error::from_raw_os_error(-done)) } else { Ok(String::new()) };
        }
        // SAFETY: filled by the call with so many bytes, which are freed below.
        let said =
            String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(out.cast(), len) }).into_owned();
        // SAFETY: as above, once.
        unsafe { (self.library.rados_buffer_free)(out) };
        if done < 0 { Err(io::Error::from_raw_os_error(-done)) } else { Ok(said) }
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

    pub(super) fn pool(self, name: &str, user: &str) -> io::Result<Pool> {
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
