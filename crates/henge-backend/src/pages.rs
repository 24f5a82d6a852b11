//! A private anonymous mapping, until its last user is gone.

#![allow(unsafe_code)] // a mapping, because a Vec would touch all of its pages to read as zeroes

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

pub(crate) const PAGE: usize = 4096;

/// What is mapped, until its last user is gone.
pub(crate) struct Pages {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length, neither of which changes; what stands there is reached by `Map`, and given back by `Hole`.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// New ones, all zeroes.
    pub(crate) fn map(len: u64) -> io::Result<Pages> {
        let len = usize::try_from(len)
            .ok()
            .and_then(|len| len.checked_next_multiple_of(PAGE))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "more than memory can address"))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        let at = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len.max(PAGE),
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )?
        };
        let at = NonNull::new(at.cast()).expect("a mapping is never at address zero");
        Ok(Pages { at, len: len.max(PAGE) })
    }

    pub(crate) fn at(&self) -> NonNull<u8> {
        self.at
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What stands there, for whoever shares it: nobody has its bytes then.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: whole pages that are mapped for as long as this is, and any bytes are a word. `Map` gives nobody the bytes of what is shared.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().cast(), self.len / size_of::<AtomicU64>()) }
    }

    /// Whole pages go back to the kernel, and read as zeroes.
    ///
    /// # Safety
    /// They are within the mapping, and no reference points to them.
    pub(crate) unsafe fn give_back(&self, first: usize, last: usize) -> io::Result<()> {
        // SAFETY: private anonymous pages read as zeroes after MADV_DONTNEED; nobody refers to them, as the caller promises.
        let given = unsafe {
            rustix::mm::madvise(self.at.as_ptr().add(first).cast(), last - first, Advice::LinuxDontNeed)
        };
        given.map_err(io::Error::from)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: a mapping of this length; nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.at.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
    }
}
