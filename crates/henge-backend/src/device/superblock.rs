//! What a device says of itself: that it is a pool of Henge, which one, and where its parts and its table lie.
//!
//! There are two copies, in the first and in the last page of the device, each with a checksum. They are written when the
//! device is formatted or the pool gets another name, and never by a node that serves. docs/durability.md has every byte.

use crate::Buffer;
use crate::open::named;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use uuid::Uuid;

/// Superblocks and pages of the table are that long: what every device writes at multiples of.
pub const PAGE: u64 = 4096;
/// Text in the middle of line ends: a copy that was changed on its way by somebody's idea of text is seen.
pub const MAGIC: [u8; 16] = *b"HENGE POOL\r\n\x1a\n\0\0";
/// Of the format.
pub const VERSION: u32 = 1;
const NAME: usize = 80;
const NAME_MAX: usize = 128;
const SUM: usize = PAGE as usize - 4;

/// One device's own description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Of this pool, since it was formatted.
    pub pool: Uuid,
    /// As the configuration calls it.
    pub name: String,
    /// Bytes of the device when it was formatted, in whole pages.
    pub device: u64,
    /// Where parts may lie; both whole MiB.
    pub data: std::ops::Range<u64>,
    /// Where the table's two copies begin.
    pub table: [u64; 2],
    /// Pages of the table.
    pub pages: u32,
}

/// What one copy's place holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Copy {
    /// A superblock.
    Whole(Superblock),
    /// One of a later format.
    Newer(u32),
    /// One whose checksum is wrong.
    Torn,
    /// Nothing of Henge's.
    Foreign,
}

impl Superblock {
    /// Bytes of a copy.
    pub fn encode(&self) -> Buffer {
        let mut page = Buffer::zeroed(PAGE as usize);
        page[..16].copy_from_slice(&MAGIC);
        page[16..20].copy_from_slice(&VERSION.to_le_bytes());
        page[20..24].copy_from_slice(&self.pages.to_le_bytes());
        page[24..40].copy_from_slice(self.pool.as_bytes());
        for (at, n) in
            (40..).step_by(8).zip([self.device, self.data.start, self.data.end, self.table[0], self.table[1]])
        {
            page[at..at + 8].copy_from_slice(&n.to_le_bytes());
        }
        page[NAME..NAME + self.name.len()].copy_from_slice(self.name.as_bytes());
        seal(&mut page);
        page
    }

    /// Reads a copy. What is sealed and yet says what cannot be is as good as torn.
    pub fn decode(page: &[u8]) -> Copy {
        if page[..16] != MAGIC {
            return Copy::Foreign;
        }
        let version = u32_at(page, 16);
        if version > VERSION {
            return Copy::Newer(version);
        }
        if version != VERSION || !is_sealed(page) {
            return Copy::Torn;
        }
        let n = |i: usize| u64_at(page, 40 + 8 * i);
        let name: Vec<u8> = page[NAME..NAME + NAME_MAX].iter().copied().take_while(|b| *b != 0).collect();
        let found = Superblock {
            pool: Uuid::from_bytes(page[24..40].try_into().expect("sixteen bytes")),
            name: String::from_utf8_lossy(&name).into_owned(),
            device: n(0),
            data: n(1)..n(2),
            table: [n(3), n(4)],
            pages: u32_at(page, 20),
        };
        if found.is_sound() { Copy::Whole(found) } else { Copy::Torn }
    }

    /// Whether everything lies within the device, in its order.
    fn is_sound(&self) -> bool {
        let table = u64::from(self.pages) * PAGE;
        let end = |from: u64| from.checked_add(table);
        self.pages > 0
            && self.table[0] >= PAGE
            && end(self.table[0]).is_some_and(|end| end <= self.data.start)
            && self.data.start < self.data.end
            && self.data.end <= self.table[1]
            && end(self.table[1]).is_some_and(|end| end.checked_add(PAGE) == Some(self.device))
    }

    /// Where the copies are.
    pub fn places(&self) -> [u64; 2] {
        [0, self.device - PAGE]
    }
}

/// A device's two copies: the first page, and the last.
pub fn copies(file: &File, size: u64, path: &Path) -> io::Result<[Copy; 2]> {
    let read = |at: u64| -> io::Result<Copy> {
        let mut page = Buffer::zeroed(PAGE as usize);
        file.read_exact_at(&mut page, at)?;
        Ok(Superblock::decode(&page))
    };
    if size < 2 * PAGE {
        return Ok([Copy::Foreign, Copy::Foreign]);
    }
    either(read(0), read(size / PAGE * PAGE - PAGE)).map_err(|e| named(path, &e))
}

/// A copy that cannot be read is as good as a torn one, where the other is right. Where it is not, nobody knows what stands there.
fn either(first: io::Result<Copy>, last: io::Result<Copy>) -> io::Result<[Copy; 2]> {
    Ok(match (first, last) {
        (Err(_), Ok(last @ Copy::Whole(_))) => [Copy::Torn, last],
        (Ok(first @ Copy::Whole(_)), Err(_)) => [first, Copy::Torn],
        (first, last) => [first?, last?],
    })
}

/// Puts the checksum of all before it into a page's last four bytes.
pub fn seal(page: &mut [u8]) {
    let sum = crc32c::crc32c(&page[..SUM]);
    page[SUM..].copy_from_slice(&sum.to_le_bytes());
}

/// Whether the checksum is right.
pub fn is_sealed(page: &[u8]) -> bool {
    u32_at(page, SUM) == crc32c::crc32c(&page[..SUM])
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one() -> Superblock {
        Superblock {
            pool: Uuid::from_u128(0x1234_5678),
            name: "ssd".into(),
            device: 64 << 20,
            data: 1 << 20..63 << 20,
            table: [PAGE, (64 << 20) - 6 * PAGE],
            pages: 5,
        }
    }

    proptest! {
        /// Whatever byte changes, the copy is no longer believed; and no bytes at all make the reader panic.
        #[test]
        fn a_changed_byte_is_seen(at in 0usize..4096, by in 1u8..=255, noise in prop::collection::vec(any::<u8>(), 4096)) {
            let mut page = one().encode();
            page[at] ^= by;
            prop_assert!(!matches!(Superblock::decode(&page), Copy::Whole(_)));
            let mut noise = noise;
            noise[..16].copy_from_slice(&MAGIC);
            noise[16..20].copy_from_slice(&VERSION.to_le_bytes());
            seal(&mut noise);
            if let Copy::Whole(found) = Superblock::decode(&noise) {
                prop_assert!(found.data.end <= found.device);
            }
        }
    }

    #[test]
    fn what_is_written_is_read_and_a_later_format_is_named() {
        let mut page = one().encode();
        assert_eq!(Superblock::decode(&page), Copy::Whole(one()));
        page[16] = 2;
        assert_eq!(Superblock::decode(&page), Copy::Newer(2));
        assert_eq!(Superblock::decode(&[0; 4096]), Copy::Foreign);
        // Sealed, and yet impossible: parts beyond the end.
        let beyond = Superblock { data: 1 << 20..65 << 20, ..one() };
        assert_eq!(Superblock::decode(&beyond.encode()), Copy::Torn);
    }

    #[test]
    fn a_copy_that_cannot_be_read_is_as_good_as_a_torn_one() {
        let bad = || Err(io::Error::from_raw_os_error(libc::EIO));
        let whole = || Copy::Whole(one());
        assert_eq!(either(bad(), Ok(whole())).unwrap(), [Copy::Torn, whole()]);
        assert_eq!(either(Ok(whole()), bad()).unwrap(), [whole(), Copy::Torn]);
        for other in [Copy::Torn, Copy::Foreign, Copy::Newer(2)] {
            let why = either(bad(), Ok(other.clone())).unwrap_err();
            assert_eq!(why.raw_os_error(), Some(libc::EIO), "it says what is wrong");
            assert!(either(Ok(other), bad()).is_err());
        }
        assert!(either(bad(), bad()).is_err());
    }
}
