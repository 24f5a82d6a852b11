//! Which bytes of a file take room, without a search.
//!
//! # The problem
//! Where data or a hole begins, lseek(2) searches for, through the whole file. 100,000 places that zeroes keep (WRITE ZEROES with NO_HOLE) took 45 ms for each
//! question, in the loop.
//!
//! # The rule
//! The file system's map (FIEMAP) is read instead: [`MOST`] entries of it, and of the range alone. What keeps room takes room, written or not. The map is
//! as true as the search on ext4. On XFS it does not know of pages that are in the cache alone, so it serves where none are (O_DIRECT). On other
//! file systems of this machine it may be missing, or slow; there the search is made.
//!
//! Where a question goes to a server (NFS, FUSE), nobody asks, since the loop would wait for as long as that server hangs: all takes room.

#![allow(unsafe_code)] // neither std nor rustix has this call

use rustix::fs::SeekFrom;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Most entries of the map that are looked at.
const MOST: usize = 32;

/// `FS_IOC_FIEMAP`.
const FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;

/// Of statfs(2).
const EXT4: i64 = 0xEF53;
const XFS: i64 = 0x5846_5342;

/// Others that are this machine's alone: tmpfs, ramfs, btrfs, F2FS, bcachefs, ZFS, overlayfs.
const LOCAL: [i64; 7] =
    [0x0102_1994, 0x8584_58f6, 0x9123_683e, 0xf2f5_2010, 0xca45_1a4e, 0x2fc1_2fc1, 0x794c_7630];

/// How it is found out which bytes of a file take room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// By the file system's map.
    Map,
    /// By a search.
    Search,
    /// Not at all.
    None,
}

impl Way {
    /// For files beside this one; `cached`: their data may be in the page cache alone.
    pub(super) fn of(file: &File, cached: bool) -> Way {
        rustix::fs::fstatfs(file).map_or(Way::None, |fs| Way::on(fs.f_type, cached))
    }

    fn on(kind: i64, cached: bool) -> Way {
        match kind {
            EXT4 => Way::Map,
            XFS if !cached => Way::Map,
            kind if kind == XFS || LOCAL.contains(&kind) => Way::Search,
            _ => Way::None,
        }
    }
}

/// An entry of the map: `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Entry {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    more: [u32; 3],
}

/// `struct fiemap` with room for its entries.
#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    entries: [Entry; MOST],
}

/// How many bytes from `at` on are alike, of `len` at most, and whether they take room.
pub(super) fn stretch(file: &File, at: u64, len: u64, way: Way) -> (u64, bool) {
    match way {
        Way::Map => by_map(file, at, len).unwrap_or((len, true)),
        Way::Search => by_search(file, at, len),
        Way::None => (len, true),
    }
}

fn by_map(file: &File, at: u64, len: u64) -> Option<(u64, bool)> {
    let (count, entries) = (MOST as u32, [Entry::default(); MOST]);
    let mut map = Map { start: at, length: len, flags: 0, mapped: 0, count, reserved: 0, entries };
    // SAFETY: the kernel reads and writes a `struct fiemap` with `count` entries, which is what this is, and keeps none of it.
    if unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP, &raw mut map) } != 0 {
        return None;
    }
    let mut entries = map.entries[..MOST.min(map.mapped as usize)].iter();
    let Some(first) = entries.next() else { return Some((len, !is_whole(file, at + len))) };
    if first.logical > at {
        return Some((len.min(first.logical - at), false));
    }
    let end = entries
        .fold(first.logical + first.length, |end, e| if e.logical == end { end + e.length } else { end });
    Some((len.min(end.saturating_sub(at)).max(1), true))
}

/// Requests carry their own offsets, so the file's is free to be moved.
fn by_search(file: &File, at: u64, len: u64) -> (u64, bool) {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) if data > at => (len.min(data - at), false),
        Ok(_) => match rustix::fs::seek(file, SeekFrom::Hole(at)) {
            Ok(hole) => (len.min(hole - at).max(1), true),
            Err(_) => (len, true),
        },
        Err(rustix::io::Errno::NXIO) => (len, !is_whole(file, at + len)),
        Err(_) => (len, true),
    }
}

/// Whether a hole up to its end is one: of a file that was cut off nobody knows what stood there.
fn is_whole(file: &File, end: u64) -> bool {
    file.metadata().is_ok_and(|found| found.len() >= end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Directory, Options, Store};
    use henge_core::{Backend, FlowId, Instant, Op, Request, RequestId};
    use rustix::fs::{FallocateFlags, fallocate};
    use std::os::unix::fs::FileExt;

    const PAGE: u64 = 4096;

    /// Pages that are written, kept by zeroes, and neither, also beside a file's end; what is said by map and by search.
    #[test]
    fn the_map_says_what_the_search_finds_and_what_is_kept() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 * PAGE).unwrap();
        file.write_all_at(&[7; 2 * PAGE as usize], 2 * PAGE).unwrap();
        if Way::of(&file, true) != Way::Map {
            println!("skipped: the_map_says_what_the_search_finds_and_what_is_kept needs ext4");
            return;
        }
        for durable in [false, true] {
            for (at, expected) in
                [(0, (2, false)), (1, (1, false)), (2, (2, true)), (3, (1, true)), (4, (12, false))]
            {
                let expected = (expected.0 * PAGE, expected.1);
                assert_eq!(stretch(&file, at * PAGE, (16 - at) * PAGE, Way::Map), expected, "{at}");
                assert_eq!(stretch(&file, at * PAGE, (16 - at) * PAGE, Way::Search), expected, "{at}");
            }
            assert_eq!(stretch(&file, 2 * PAGE + 10, 100, Way::Map), (100, true));
            assert_eq!(stretch(&file, 15 * PAGE, 2 * PAGE, Way::Map), (2 * PAGE, true), "cut off");
            if !durable {
                file.sync_all().unwrap();
            }
        }
        fallocate(&file, FallocateFlags::KEEP_SIZE, 8 * PAGE, PAGE).unwrap();
        assert_eq!(
            stretch(&file, 8 * PAGE, 8 * PAGE, Way::Map),
            (PAGE, true),
            "it is kept, and holds nothing"
        );
        file.write_all_at(&[7; PAGE as usize], 8 * PAGE).unwrap();
        assert_eq!(stretch(&file, 8 * PAGE, 8 * PAGE, Way::Map), (PAGE, true), "what is only in the cache");
    }

    /// A question looks at a bounded number of places, however many there are: of a thousand that lie one behind the other the first few.
    #[test]
    fn a_question_costs_the_same_of_many_places() {
        let file = tempfile::tempfile().unwrap();
        if Way::of(&file, true) != Way::Map {
            println!("skipped: a_question_costs_the_same_of_many_places needs ext4");
            return;
        }
        file.set_len(2000 * PAGE).unwrap();
        for page in (0..2000).step_by(2) {
            fallocate(&file, FallocateFlags::KEEP_SIZE, page * PAGE, PAGE).unwrap();
            file.write_all_at(&[7; PAGE as usize], (page + 1) * PAGE).unwrap();
        }
        file.sync_all().unwrap();
        let (len, takes) = stretch(&file, 0, 2000 * PAGE, Way::Map);
        assert!(takes && len == MOST as u64 * PAGE, "{len}");
    }

    /// A hole is being made, or a page of the cache written: the kernel has the file to itself, and nobody waits for it.
    #[test]
    fn nobody_asks_about_a_file_that_changes() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { direct: false, ..Options::default() };
        let mut pool = Directory::open(dir.path(), "p", 16 << 20, options).unwrap();
        let base = pool.open_part("a", 1 << 20).unwrap();
        let len = 1 << 20;
        for (op, takes) in [(Op::Trim, false), (Op::WriteZeroes, true), (Op::Write, true), (Op::Trim, false)]
        {
            let request = Request::new(RequestId::default(), FlowId(0), op, base, len, Instant::ZERO);
            let payload = if op == Op::Write { Buffer::zeroed(len as usize) } else { Buffer::empty() };
            pool.submit(&request, payload, Instant::ZERO);
            assert_eq!(pool.extent(base, len), (len, true), "{op:?} is under way");
            while pool.reap(Instant::ZERO).is_none() {
                std::thread::yield_now();
            }
            // Only a search takes what zeroes keep for a hole, and who does not look knows of none.
            let takes = match pool.way {
                Way::Map => takes,
                Way::Search => op == Op::Write,
                Way::None => true,
            };
            assert_eq!(pool.extent(base, len), (len, takes), "{op:?} is over");
        }
    }

    #[test]
    fn nobody_waits_for_a_server() {
        const NFS: i64 = 0x6969;
        const FUSE: i64 = 0x6573_5546;
        for cached in [false, true] {
            assert_eq!([NFS, FUSE].map(|kind| Way::on(kind, cached)), [Way::None; 2]);
            assert_eq!(Way::on(XFS, cached), if cached { Way::Search } else { Way::Map });
            assert!(LOCAL.iter().all(|kind| Way::on(*kind, cached) == Way::Search));
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE).unwrap();
        assert_eq!(stretch(&file, 0, PAGE, Way::None), (PAGE, true));
    }
}
