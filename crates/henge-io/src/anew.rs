//! Starting the program of a process anew: the process stays, and with it the descriptors that the next program is to have.
//!
//! The program before writes down in a file without a name what its descriptors are, lets them [`outlive`] it, and
//! [executes](exec) its command again. The next one finds the file ([`inherited`]) and takes the descriptors ([`adopt`]). The process keeps its number, so
//! whoever watches it notices nothing.

#![allow(unsafe_code)] // descriptors that a program finds have no safe interface

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells the program where what it was left is written: which process, and the descriptor of the file.
const VARIABLE: &str = "HENGE_HANDOVER";

/// A file without a name, with this in it, that outlives the program.
pub fn note(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("henge-handover", MemfdFlags::empty())?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Whether descriptors stay open when the program ends and another one begins in its process.
pub fn outlive<'a>(descriptors: impl IntoIterator<Item = BorrowedFd<'a>>, outlive: bool) -> io::Result<()> {
    let flags = if outlive { FdFlags::empty() } else { FdFlags::CLOEXEC };
    descriptors.into_iter().try_for_each(|fd| Ok(fcntl_setfd(fd, flags)?))
}

/// Starts the program of this process anew, with the same arguments and what is written in `note`. Returns only if that cannot be.
pub fn exec(note: &File) -> io::Error {
    let mut arguments = std::env::args_os();
    let mut again = std::process::Command::new(arguments.next().unwrap_or_else(|| "henge".into()));
    let place = format!("{} {}", std::process::id(), note.as_raw_fd());
    again.args(arguments).env(VARIABLE, place).exec()
}

/// The note that this program was left by the one before it in the process. Found once.
pub fn inherited() -> Option<File> {
    static FOUND: AtomicBool = AtomicBool::new(false);
    let place = std::env::var(VARIABLE).ok()?;
    let (process, file) = place.split_once(' ')?;
    // Whoever is started by such a program has the variable, too, but not the descriptors.
    if process.parse() != Ok(std::process::id()) || FOUND.swap(true, Ordering::Relaxed) {
        return None;
    }
    // SAFETY: this process was given the descriptor by `exec`, and it is taken once.
    Some(File::from(unsafe { OwnedFd::from_raw_fd(file.parse().ok()?) }))
}

/// Takes a descriptor that the program before has written down. It outlives this program no more.
///
/// # Safety
/// The number comes from the note of this process, and nobody else takes it.
pub unsafe fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: as the caller promises. A number that is not open is given back below, before anybody closes it.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    match fcntl_setfd(&fd, FdFlags::CLOEXEC) {
        Ok(()) => Ok(fd),
        Err(e) => {
            let _ = std::os::fd::IntoRawFd::into_raw_fd(fd);
            Err(e.into())
        }
    }
}
