//! Opening what stands under a pool: past the page cache where that is possible, and by one node at a time.

use rustix::fs::{Advice, AtFlags, FileType, FlockOperation, StatxFlags};
use rustix::process::FlockType;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Which engine to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EngineChoice {
    /// io_uring where the kernel allows it, else threads.
    #[default]
    Auto,
    /// io_uring or an error.
    Uring,
    /// Threads.
    Threads,
}

/// How a pool's files are opened and served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Past the page cache (O_DIRECT) where the file system can.
    pub direct: bool,
    /// Which engine moves the bytes.
    pub engine: EngineChoice,
    /// About how many requests at once.
    pub depth: u32,
    /// For tests: this share of the transfers, in millionths, is cut short and gone on with; and the choice's seed.
    pub short: Option<(u32, u64)>,
    /// A directory's parts get addresses far apart, so that each can grow: right where no model looks at addresses.
    pub apart: bool,
    /// Looks, and changes nothing: nothing is made, locked or written.
    pub look: bool,
    /// How long a node waits for requests of a killed one, which the kernel has not finished yet.
    pub patience: Duration,
    /// A directory's pool may promise more than its whole file system holds.
    pub overcommit: bool,
}

/// How long is waited at most for what is left of a process that had a lock: its last requests, or a child that has not begun its own
/// program yet.
pub(crate) const REMAINS: Duration = Duration::from_secs(2);

impl Default for Options {
    fn default() -> Self {
        Options {
            direct: true,
            engine: EngineChoice::Auto,
            depth: 128,
            short: None,
            apart: false,
            look: false,
            patience: Duration::from_secs(10),
            overcommit: false,
        }
    }
}

/// Opens for reading and writing; with the block that direct I/O takes, or 1 where it is not direct.
pub(crate) fn open(path: &Path, create: bool, direct: bool) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false).mode(0o600);
    open_with(options, path, direct)
}

/// The same for reading alone.
pub(crate) fn read_only(path: &Path, direct: bool) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.read(true);
    open_with(options, path, direct)
}

/// What is about to be served: a block device is claimed, so that nobody mounts it meanwhile, and what is mounted is refused;
/// and nobody else serves it. What a killed node has under way is waited for.
pub(crate) fn claim(path: &Path, direct: bool, patience: Duration) -> io::Result<(File, u64)> {
    let block_device = std::fs::metadata(path)
        .map(|m| FileType::from_raw_mode(std::os::unix::fs::MetadataExt::mode(&m)).is_block_device())
        .map_err(|e| named(path, &e))?;
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let flags = if block_device { libc::O_EXCL } else { 0 };
    let wait = Wait::new(path, patience);
    let (file, block) = loop {
        match open_flags(&options, path, direct, flags) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                // Whoever lives will not go because somebody waits; the requests of one that was killed do.
                if let Ok((probe, _)) = read_only(path, false)
                    && let Some(process) = holder(&probe)
                {
                    return Err(busy(path, &another(Some(process))));
                }
                if !wait.more() {
                    let why = "is in use: mounted, part of a RAID or of LVM, or served by another node";
                    return Err(io::Error::new(
                        io::ErrorKind::ResourceBusy,
                        format!("{} {why}", path.display()),
                    ));
                }
            }
            opened => break opened.map_err(|e| named(path, &e))?,
        }
    };
    lock(&file, path, patience)?;
    Ok((file, block))
}

fn open_with(options: OpenOptions, path: &Path, direct: bool) -> io::Result<(File, u64)> {
    open_flags(&options, path, direct, 0).map_err(|e| named(path, &e))
}

fn open_flags(options: &OpenOptions, path: &Path, direct: bool, flags: i32) -> io::Result<(File, u64)> {
    if direct {
        match open_unnoted(options, path, libc::O_DIRECT | flags) {
            Ok(file) => {
                let block = block_size(&file);
                return Ok((file, block));
            }
            // The file system knows no O_DIRECT.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            Err(e) => return Err(e),
        }
    }
    let file = open_unnoted(options, path, flags)?;
    read_nothing_ahead(&file);
    Ok((file, 1))
}

/// What is read through the page cache is what was asked for. Linux reads ahead in the thread that asks, a block device's
/// `read_ahead_kb` at a time: by 8 MiB, whoever waits for that thread waits for 30 ms, and nobody's contract is charged.
fn read_nothing_ahead(file: &File) {
    // Where it cannot be said, the kernel reads ahead as it likes.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Random);
}

/// Reads do not note when they were, where the file is ours: Linux notes it in the thread that asks, which would wait for the file system's
/// journal, and with it whoever waits for that thread.
fn open_unnoted(options: &OpenOptions, path: &Path, flags: i32) -> io::Result<File> {
    match options.clone().custom_flags(flags | libc::O_NOATIME).open(path) {
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => options.clone().custom_flags(flags).open(path),
        opened => opened,
    }
}

/// The alignment that direct I/O needs on this file; a page where the kernel does not say.
fn block_size(file: &File) -> u64 {
    let page = crate::ALIGN as u64;
    let Ok(stat) = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return page;
    };
    let said = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let block = u64::from(stat.stx_dio_offset_align);
    if said && block.is_power_of_two() && block <= page { block } else { page }
}

/// What is in the page cache and not dirty is read from the medium: after a failed sync the two may differ.
pub(crate) fn forget_cache(file: &File) {
    // Where it cannot be, what is read is what the kernel has.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// So that no two nodes ever serve the same storage.
///
/// The lock belongs to the open file, and the kernel keeps an open file for as long as a request on it is under way: io_uring's
/// requests outlive the process that made them. So who holds the lock of the very file that is written knows that nobody else's
/// writes can still arrive there. A process that lives has a POSIX lock besides, which ends with it: that is how another node
/// is told from the remains of one, which are waited for.
pub(crate) fn lock(file: &File, path: &Path, patience: Duration) -> io::Result<()> {
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    let own = rustix::fs::fcntl_lock(file, exclusive);
    if matches!(own, Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS)) {
        return Err(busy(path, &another(holder(file))));
    }
    flock(file, path, patience)
}

/// The process that has the POSIX lock of a file, where it is one of this machine's that can be named.
fn holder(file: &File) -> Option<i32> {
    let theirs = rustix::process::fcntl_getlk(file, &FlockType::WriteLock.into()).ok()??;
    theirs.pid.map(|pid| pid.as_raw_nonzero().get())
}

fn another(process: Option<i32>) -> String {
    process.map_or("another node".into(), |pid| format!("another node: process {pid}"))
}

fn busy(path: &Path, whom: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, format!("{} is in use by {whom}", path.display()))
}

/// The lock of the open file alone, which also who only reads can have.
pub(crate) fn flock(file: &File, path: &Path, patience: Duration) -> io::Result<()> {
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    let wait = Wait::new(path, patience);
    loop {
        match rustix::fs::flock(file, exclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) if wait.more() => {}
            Err(rustix::io::Errno::AGAIN) => {
                return Err(busy(path, "another node, or requests of a killed one are not over yet"));
            }
            Err(e) => return Err(named(path, &e.into())),
        }
    }
}

/// Waiting for the remains of a killed node, which is said when it takes longer than a moment.
struct Wait<'a> {
    path: &'a Path,
    since: Instant,
    patience: Duration,
    said: std::cell::Cell<bool>,
}

impl Wait<'_> {
    fn new(path: &Path, patience: Duration) -> Wait<'_> {
        Wait { path, since: Instant::now(), patience, said: false.into() }
    }
    fn more(&self) -> bool {
        let waited = self.since.elapsed();
        if waited > Duration::from_millis(300) && !self.said.replace(true) {
            tracing::warn!(
                "{} is in use; waiting up to {:?} for requests of a killed node to end",
                self.path.display(),
                self.patience
            );
        }
        if waited < self.patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        waited < self.patience
    }
}

pub(crate) fn named(path: &Path, error: &io::Error) -> io::Error {
    reworded(error, format!("{}: {error}", path.display()))
}

/// The same error in other words; a failed sync stays one.
pub(crate) fn reworded(error: &io::Error, text: String) -> io::Error {
    if is_failed_sync(error) {
        io::Error::new(error.kind(), SyncFailed(text))
    } else {
        io::Error::new(error.kind(), text)
    }
}

/// A sync of a file has failed, so whatever anybody wrote to it before may be gone.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct SyncFailed(String);

/// What a sync came to; its error is known for one from then on.
pub(crate) fn synced(outcome: io::Result<()>) -> io::Result<()> {
    outcome.map_err(|e| io::Error::new(e.kind(), SyncFailed(e.to_string())))
}

pub(crate) fn is_failed_sync(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<SyncFailed>())
}

/// What a directory says of its files becomes durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path).and_then(|d| d.sync_all()).map_err(|e| named(path, &e))
}

/// `direct`: what was asked for.
pub(crate) fn describe(engine: &str, block: u64, direct: bool) -> String {
    match (block, direct) {
        (1, true) => format!("{engine}, through the page cache (O_DIRECT is refused here)"),
        (1, false) => format!("{engine}, through the page cache"),
        _ => format!("{engine}, O_DIRECT ({block} byte blocks)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::FileTimes;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::time::SystemTime;

    /// The ordinary mount notes a read of a file that was written since the last one, or was read a day ago.
    #[test]
    fn reads_note_no_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part");
        std::fs::write(&path, [1; 8192]).unwrap();
        let long_ago =
            FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        File::options().write(true).open(&path).unwrap().set_times(long_ago).unwrap();
        for (file, _) in [open(&path, false, true).unwrap(), claim(&path, false, Duration::ZERO).unwrap()] {
            let mut page = crate::Buffer::zeroed(4096);
            file.read_exact_at(&mut page, 0).unwrap();
        }
        let after = std::fs::metadata(&path).unwrap();
        assert_eq!(after.atime(), 1_000_000_000);
    }

    /// Pages of the file that are in the page cache.
    #[allow(unsafe_code)] // rustix has no mincore
    fn resident(file: &File, len: usize) -> usize {
        use std::os::fd::AsRawFd;
        let mut pages = vec![0u8; len / 4096];
        // SAFETY: the file has `len` bytes; the mapping is of whole pages, is not looked into, and ends here.
        unsafe {
            let at =
                libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::mincore(at, len, pages.as_mut_ptr()), 0);
            libc::munmap(at, len);
        }
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    /// Two pages in order are where Linux begins to read ahead.
    #[test]
    fn through_the_page_cache_nothing_is_read_ahead() {
        let (dir, len) = (tempfile::tempdir().unwrap(), 16 << 20);
        let path = dir.path().join("part");
        File::create(&path).unwrap().set_len(len as u64).unwrap();
        let (file, _) = open(&path, false, false).unwrap();
        for at in [0, 4096] {
            file.read_exact_at(&mut [0; 4096], at).unwrap();
        }
        // None where the file system has no page of a hole.
        assert!(resident(&file, len) <= 2, "{} pages", resident(&file, len));
    }
}
