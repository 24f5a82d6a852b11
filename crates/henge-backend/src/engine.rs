//! Moving bytes between memory and files without waiting: by io_uring, or by threads where it is forbidden.

mod short;
mod threads;
mod uring;

pub use short::Short;
pub use threads::Threads;
pub use uring::Uring;

use crate::open::{EngineChoice, Options};
use std::os::fd::RawFd;
use std::ptr::NonNull;

/// Longest write through the page cache at once. The kernel keeps what is written at once together in one folio, and ext4 looks
/// at every block of the folio at each later write into it: a random write of 4 KiB costs 54 us of CPU where the disk was filled
/// by writes of 1 MiB, and 17 us where it was by these.
pub(crate) const WRITTEN_MAX: u64 = 128 << 10;

/// Longest read through the page cache at once. What is there is copied while its caller waits, some 15 us for so much; whoever reaps has others'
/// turns in between.
pub(crate) const COPIED_MAX: u64 = 64 << 10;

/// One thing for the kernel to do.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// Comes back with the result.
    pub token: u32,
    /// What.
    pub kind: Kind,
    /// On which file.
    pub fd: RawFd,
    /// From which byte.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
    /// From or to where; dangling for kinds that move nothing.
    pub memory: NonNull<u8>,
    /// It may take its time, and is done beside whoever submits it, even if it could be done at once.
    pub aside: bool,
}

/// What an [`Io`] does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// File to memory.
    Read,
    /// Memory to file.
    Write {
        /// Durable before it is over (RWF_DSYNC).
        durable: bool,
    },
    /// What was written before becomes durable (fdatasync).
    Sync,
    /// fallocate with these flags.
    Allocate {
        /// FALLOC_FL_…
        mode: i32,
    },
}

// SAFETY: `memory` is only an address; the contract of `Engine::submit` says who may use it, and when.
#[allow(unsafe_code)] // to hand an address to a worker thread
unsafe impl Send for Io {}

/// Does [`Io`]s, in any order.
pub trait Engine {
    /// Starts one.
    ///
    /// # Safety
    /// `io.memory` is valid for `io.len` bytes, and nobody else reads (or, for a read, touches) them, until `reap`
    /// has returned this token, or until the engine has been dropped and [`Engine::idle`] was true before.
    #[allow(unsafe_code)] // the kernel uses the memory after the call has returned
    unsafe fn submit(&mut self, io: Io);

    /// One that is over: its token, and the bytes moved or the negative error number.
    fn reap(&mut self) -> Option<(u32, i32)>;

    /// Whether nothing is under way.
    fn idle(&self) -> bool;

    /// Signals an edge (to `epoll`) whenever something is over; nobody needs to read it.
    fn event_fd(&self) -> RawFd;

    /// By what, in a word or two.
    fn name(&self) -> &'static str;
}

/// Makes the engine that the options choose, for transfers of whole blocks.
pub fn open(options: &Options, block: u64) -> std::io::Result<Box<dyn Engine>> {
    let engine = choose(options.engine, options.depth, block == 1)?;
    Ok(match options.short {
        Some((share, seed)) => Box::new(Short::new(engine, share, block, seed)),
        None => engine,
    })
}

fn choose(choice: EngineChoice, depth: u32, cached: bool) -> std::io::Result<Box<dyn Engine>> {
    let threads = || Threads::new(depth.clamp(1, 16)).map(|t| Box::new(t) as Box<dyn Engine>);
    let at_once = if cached { COPIED_MAX } else { u64::MAX };
    let ring = || Uring::new(depth).map(|ring| ring.telling_at_most(at_once));
    match choice {
        EngineChoice::Threads => threads(),
        EngineChoice::Uring => Ok(Box::new(ring()?)),
        EngineChoice::Auto => match ring() {
            Ok(ring) => Ok(Box::new(ring)),
            Err(_) => threads(),
        },
    }
}
