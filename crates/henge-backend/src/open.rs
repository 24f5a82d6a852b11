//! Opening what stands under a pool: past the page cache where that is possible, and by one node at a time.

use rustix::fs::{AtFlags, FlockOperation, StatxFlags};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// How a pool's files are opened and served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Past the page cache (O_DIRECT) where the file system can.
    pub direct: bool,
    /// Which engine moves the bytes.
    pub engine: crate::EngineChoice,
    /// About how many requests at once.
    pub depth: u32,
    /// For tests: this share of the transfers, in millionths, is cut short and gone on with; and the choice's seed.
    pub short: Option<(u32, u64)>,
    /// A directory's parts get addresses far apart, so that each can grow: right where no model looks at addresses.
    pub apart: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { direct: true, engine: crate::EngineChoice::Auto, depth: 128, short: None, apart: false }
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

fn open_with(options: OpenOptions, path: &Path, direct: bool) -> io::Result<(File, u64)> {
    if direct {
        match options.clone().custom_flags(libc::O_DIRECT).open(path) {
            Ok(file) => {
                let block = block_size(&file);
                return Ok((file, block));
            }
            // The file system knows no O_DIRECT.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            Err(e) => return Err(named(path, &e)),
        }
    }
    options.open(path).map(|file| (file, 1)).map_err(|e| named(path, &e))
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

/// So that no two nodes ever serve the same storage.
pub(crate) fn lock(file: &File, path: &Path) -> io::Result<()> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        io::Error::new(io::ErrorKind::ResourceBusy, format!("{} is in use by another node", path.display()))
    })
}

pub(crate) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// What a directory says of its files becomes durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path).and_then(|d| d.sync_all()).map_err(|e| named(path, &e))
}

pub(crate) fn describe(engine: &str, block: u64) -> String {
    match block {
        1 => format!("{engine}, through the page cache"),
        _ => format!("{engine}, O_DIRECT ({block} byte blocks)"),
    }
}
