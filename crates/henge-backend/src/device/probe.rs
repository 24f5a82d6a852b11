//! What stands on a device that is no pool: so that nobody's data is taken for free space.
//!
//! Every file system, partition table and volume manager that Linux knows signs the first or the last MiB. Where both are zero
//! the device is blank; else what is known is named, and what is not is data all the same.

use crate::Buffer;
use crate::open::named;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Looked at, at both ends.
const LOOK: u64 = 1 << 20;

/// Signatures in the first MiB: where, what, whose.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"XFSB", "an XFS file system"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (0, b"bluestore block device", "a Ceph BlueStore device"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (0, b"hsqs", "a squashfs file system"),
    (0, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID (md)"),
    (4096, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID (md)"),
    (0, b"LABELONE", "an LVM physical volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (1024, b"LABELONE", "an LVM physical volume"),
    (1536, b"LABELONE", "an LVM physical volume"),
    (512, b"EFI PART", "a GPT partition table"),
    (4096, b"EFI PART", "a GPT partition table"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (0x10040, b"_BHRfS_M", "a btrfs file system"),
    (4086, b"SWAPSPACE2", "a swap area"),
    (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcache device"),
    (4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "a bcachefs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (82, b"FAT32   ", "a FAT file system"),
    (54, b"FAT1", "a FAT file system"),
    (32769, b"CD001", "an ISO 9660 image"),
];

/// What stands on a device of `size` bytes; nothing where it is blank.
pub fn what(file: &File, size: u64, path: &Path) -> io::Result<Option<String>> {
    let first = read(file, 0, LOOK.min(size), path)?;
    if let Some(known) = known(&first) {
        return Ok(Some(known.to_owned()));
    }
    let from = size.saturating_sub(LOOK).max(first.len() as u64).next_multiple_of(super::PAGE).min(size);
    let last = read(file, from, size - from, path)?;
    for (bytes, base) in [(&first, 0), (&last, from)] {
        if let Some(at) = bytes.iter().position(|b| *b != 0) {
            return Ok(Some(format!("data of somebody's (the first at byte {})", base + at as u64)));
        }
    }
    Ok(None)
}

fn known(first: &[u8]) -> Option<&'static str> {
    let has = |at: usize, what: &[u8]| first.get(at..at + what.len()) == Some(what);
    if has(0x438, b"\x53\xef") {
        let flags = |at: usize| first.get(at..at + 4).map_or(0, |b| super::superblock::u32_at(b, 0));
        // Extents or 64 bits make it ext4, a journal ext3.
        let (journal, later) = (flags(0x45c) & 4 != 0, flags(0x460) & 0xc0 != 0);
        return Some(match (journal, later) {
            (_, true) => "an ext4 file system",
            (true, _) => "an ext3 file system",
            _ => "an ext2 file system",
        });
    }
    let found = SIGNATURES.iter().find(|(at, what, _)| has(*at, what)).map(|(.., whose)| *whose);
    // A ZFS label keeps its uberblocks, a KiB each, in the second half of its 256 KiB.
    let zfs = || (128..256).any(|k| has(k << 10, b"\x0c\xb1\xba\0")).then_some("a ZFS pool");
    let mbr = || has(510, b"\x55\xaa").then_some("a partition table (MBR)");
    found.or_else(zfs).or_else(mbr)
}

/// Whole pages, as direct I/O wants them; what is beyond the end stays zero.
fn read(file: &File, at: u64, len: u64, path: &Path) -> io::Result<Buffer> {
    let mut bytes = Buffer::zeroed(len.next_multiple_of(super::PAGE) as usize);
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // The end of a file that does not end at a page.
            Err(_) if done > 0 => break,
            Err(e) => return Err(named(path, &e)),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(len: u64, write: &[(u64, &[u8])]) -> Option<String> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        write.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
        what(&file, len, Path::new("device")).unwrap()
    }

    #[test]
    fn what_others_wrote_is_found_and_named() {
        assert_eq!(found(8 << 20, &[]), None);
        assert_eq!(found(8 << 20, &[(4 << 20, b"in the middle")]), None);
        assert_eq!(found(8 << 20, &[(0, b"XFSB")]).unwrap(), "an XFS file system");
        assert_eq!(found(8 << 20, &[(200 << 10, b"\x0c\xb1\xba\0")]).unwrap(), "a ZFS pool");
        assert_eq!(
            found(8 << 20, &[(510, b"\x55\xaa"), (512, b"EFI PART")]).unwrap(),
            "a GPT partition table"
        );
        let text = found(8 << 20, &[(77, b"x")]).unwrap();
        assert!(text.contains("byte 77"), "{text}");
        let text = found(8 << 20, &[((8 << 20) - 1, b"x")]).unwrap();
        assert!(text.contains("byte 8388607"), "{text}");
        // Shorter than what is looked at, and not in whole pages.
        assert!(found(5000, &[(4999, b"x")]).is_some());
        assert_eq!(found(5000, &[]), None);
    }
}
