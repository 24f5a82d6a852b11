//! Which images gateways have: an object of the pool for each, with one attribute.

use super::connection::Pool;
use super::{text, well};
use crate::rbd::cluster::mark_of;
use std::ffi::CStr;
use std::io;

/// Its only attribute. What it says is not looked at.
const MADE: &CStr = c"made";

pub(super) fn mark(pool: &Pool, image: &str) -> io::Result<()> {
    let (name, object) = (mark_of(image), text(&mark_of(image))?);
    // SAFETY: a pool, texts, and one byte.
    let made = unsafe {
        let said = c"1".as_ptr();
        (pool.connection.library.rados_setxattr)(pool.pool, object.as_ptr(), MADE.as_ptr(), said, 1)
    };
    well(&name, made)
}

pub(super) fn is_marked(pool: &Pool, image: &str) -> io::Result<bool> {
    let (name, object) = (mark_of(image), text(&mark_of(image))?);
    let mut said = [0u8; 16];
    // SAFETY: a pool, texts, and room with its length.
    let read = unsafe {
        let room = said.as_mut_ptr().cast();
        (pool.connection.library.rados_getxattr)(pool.pool, object.as_ptr(), MADE.as_ptr(), room, said.len())
    };
    match -read {
        libc::ENOENT | libc::ENODATA => Ok(false),
        _ => well(&name, read).map(|()| true),
    }
}

pub(super) fn unmark(pool: &Pool, image: &str) -> io::Result<()> {
    let (name, object) = (mark_of(image), text(&mark_of(image))?);
    // SAFETY: a pool and a text.
    let removed = unsafe { (pool.connection.library.rados_remove)(pool.pool, object.as_ptr()) };
    if removed == -libc::ENOENT { Ok(()) } else { well(&name, removed) }
}
