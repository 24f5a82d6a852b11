//! Ceph's libraries, found when a pool needs them: a node without such a pool needs no Ceph.
//!
//! Signatures are those of librbd 1.16 and librados 3 (Ceph 16) and later, which only add to them.

#![allow(unsafe_code)] // functions of C libraries that are found by name

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// A handle of theirs: a cluster, a pool of it, an image, a completion, options.
pub(crate) type Handle = *mut c_void;
/// What is called when a request is over.
pub(crate) type Over = unsafe extern "C" fn(Handle, *mut c_void);
/// What is called when an image was changed.
pub(crate) type Changed = unsafe extern "C" fn(*mut c_void);
/// What is called for each range of a difference.
pub(crate) type Range = unsafe extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;

/// `rbd_image_info_t`
#[repr(C)]
pub(crate) struct Info {
    pub size: u64,
    pub object_size: u64,
    pub objects: u64,
    pub order: c_int,
    prefix: [c_char; 24],
    parent_pool: i64,
    parent_name: [c_char; 96],
}

impl Info {
    pub(crate) fn empty() -> Info {
        let (prefix, parent_name) = ([0; 24], [0; 96]);
        Info { size: 0, object_size: 0, objects: 0, order: 0, prefix, parent_pool: 0, parent_name }
    }
}

/// `rbd_config_option_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    pub name: *mut c_char,
    pub value: *mut c_char,
    pub source: c_int,
}

macro_rules! functions {
    ($($library:ident: fn $name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions that are used, by their own names.
        pub(crate) struct Library {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }
        impl Library {
            fn find(rados: NonNull<c_void>, rbd: NonNull<c_void>) -> Result<Library, String> {
                let of = Both { rados, rbd };
                Ok(Library {
                    // SAFETY: the name is that of a function with this signature in C's headers.
                    $($name: unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(
                            symbol(of.$library, concat!(stringify!($name), "\0"))?,
                        )
                    },)*
                })
            }
        }
    };
}

struct Both {
    rados: NonNull<c_void>,
    rbd: NonNull<c_void>,
}

functions! {
    rados: fn rados_create2(*mut Handle, *const c_char, *const c_char, u64) -> c_int;
    rados: fn rados_conf_read_file(Handle, *const c_char) -> c_int;
    rados: fn rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
    rados: fn rados_conf_get(Handle, *const c_char, *mut c_char, usize) -> c_int;
    rados: fn rados_connect(Handle) -> c_int;
    rados: fn rados_mon_command(
        Handle, *const *const c_char, usize, *const c_char, usize, *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize
    ) -> c_int;
    rados: fn rados_buffer_free(*mut c_char) -> ();
    rados: fn rados_shutdown(Handle) -> ();
    rados: fn rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
    rados: fn rados_ioctx_destroy(Handle) -> ();
    rados: fn rados_ioctx_get_id(Handle) -> i64;
    rados: fn rados_cluster_fsid(Handle, *mut c_char, usize) -> c_int;
    rados: fn rados_set_pool_full_try(Handle) -> ();
    rados: fn rados_setxattr(Handle, *const c_char, *const c_char, *const c_char, usize) -> c_int;
    rados: fn rados_getxattr(Handle, *const c_char, *const c_char, *mut c_char, usize) -> c_int;
    rados: fn rados_remove(Handle, *const c_char) -> c_int;
    rbd: fn rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd: fn rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    rbd: fn rbd_close(Handle) -> c_int;
    rbd: fn rbd_image_options_create(*mut Handle) -> ();
    rbd: fn rbd_image_options_destroy(Handle) -> ();
    rbd: fn rbd_create4(Handle, *const c_char, u64, Handle) -> c_int;
    rbd: fn rbd_clone3(Handle, *const c_char, *const c_char, Handle, *const c_char, Handle) -> c_int;
    rbd: fn rbd_rename(Handle, *const c_char, *const c_char) -> c_int;
    rbd: fn rbd_remove(Handle, *const c_char) -> c_int;
    rbd: fn rbd_resize(Handle, u64) -> c_int;
    rbd: fn rbd_stat(Handle, *mut Info, usize) -> c_int;
    rbd: fn rbd_get_size(Handle, *mut u64) -> c_int;
    rbd: fn rbd_update_watch(Handle, *mut u64, Changed, *mut c_void) -> c_int;
    rbd: fn rbd_update_unwatch(Handle, u64) -> c_int;
    rbd: fn rbd_get_features(Handle, *mut u64) -> c_int;
    rbd: fn rbd_get_flags(Handle, *mut u64) -> c_int;
    rbd: fn rbd_metadata_get(Handle, *const c_char, *mut c_char, *mut usize) -> c_int;
    rbd: fn rbd_metadata_set(Handle, *const c_char, *const c_char) -> c_int;
    rbd: fn rbd_metadata_remove(Handle, *const c_char) -> c_int;
    rbd: fn rbd_config_image_list(Handle, *mut Setting, *mut c_int) -> c_int;
    rbd: fn rbd_config_image_list_cleanup(*mut Setting, c_int) -> ();
    rbd: fn rbd_lock_acquire(Handle, c_int) -> c_int;
    rbd: fn rbd_lock_get_owners(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
    rbd: fn rbd_lock_get_owners_cleanup(*mut *mut c_char, usize) -> ();
    rbd: fn rbd_lock_break(Handle, c_int, *const c_char) -> c_int;
    rbd: fn rbd_list_lockers(
        Handle, *mut c_int, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize
    ) -> isize;
    rbd: fn rbd_lock_exclusive(Handle, *const c_char) -> c_int;
    rbd: fn rbd_unlock(Handle, *const c_char) -> c_int;
    rbd: fn rbd_break_lock(Handle, *const c_char, *const c_char) -> c_int;
    rbd: fn rbd_diff_iterate2(Handle, *const c_char, u64, u64, u8, u8, Range, *mut c_void) -> c_int;
    rbd: fn rbd_aio_create_completion(*mut c_void, Over, *mut Handle) -> c_int;
    rbd: fn rbd_aio_get_return_value(Handle) -> isize;
    rbd: fn rbd_aio_release(Handle) -> ();
    rbd: fn rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
    rbd: fn rbd_aio_write(Handle, u64, usize, *const c_char, Handle) -> c_int;
    rbd: fn rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
    rbd: fn rbd_aio_flush(Handle, Handle) -> c_int;
}

impl Library {
    /// The libraries, once for the process; what is missing, and how it is had.
    pub(crate) fn get() -> Result<&'static Library, String> {
        static FOUND: OnceLock<Result<Library, String>> = OnceLock::new();
        let found = FOUND.get_or_init(|| Library::find(open(c"librados.so.2")?, open(c"librbd.so.1")?));
        found.as_ref().map_err(Clone::clone)
    }
}

const HOW: &str =
    "rbd pools need Ceph's client library, which Debian and Fedora call librbd1, of Ceph 16 or later";

/// It stays open: its threads may outlive every pool.
fn open(name: &CStr) -> Result<NonNull<c_void>, String> {
    // SAFETY: a name that ends with a zero; the library's constructors are those of Ceph, which run in any process of its clients.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    NonNull::new(library).ok_or_else(|| format!("{}: {HOW}", why()))
}

fn symbol(library: NonNull<c_void>, name: &'static str) -> Result<*mut c_void, String> {
    // SAFETY: an open library, and a name that the macro has ended with a zero.
    let found = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr().cast()) };
    if found.is_null() { Err(format!("{}: {HOW}", why())) } else { Ok(found) }
}

fn why() -> String {
    // SAFETY: the text belongs to the C library and stays until this thread's next call of that family.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "it cannot be loaded".into();
    }
    // SAFETY: not null, so a text that ends with a zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
