//! What gateways say to each other by a pool: attributes of one object.

use super::connection::Pool;
use super::text;
use crate::Register;
use std::ffi::CStr;
use std::io;
use std::sync::Arc;

/// The object whose attributes are what gateways say; one object, so that they all see it go on or stand still together.
const WORDS: &CStr = c"henge.gateways";

/// What gateways say to each other by a pool.
pub(super) struct Words(pub(super) Arc<Pool>);

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
