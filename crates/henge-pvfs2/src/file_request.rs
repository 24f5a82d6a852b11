//! Which bytes of a file an access touches, and which of them live at one server.
//!
//! # The problem
//! One call of a client becomes one request per server, and each carries the size of the *whole* call. What moves at
//! this server follows from the file request (a tree of strided blocks) and the distribution (how the file is
//! striped).
//!
//! # The rule
//! A tree entry at base `b` means: `num_blocks` blocks, `stride` apart, from `b + offset` on, each of `num_ereqs`
//! consecutive elements `ereq`; then the entry `sreq` at the same base. The access is the data bytes
//! `[file_req_offset, file_req_offset + aggregate_size)` of the type, which tiles with its extent.
//!
//! Of a contiguous range `[a, b)` of the file, `local(b) − local(a)` bytes lie at one server (`distribution.rs`). A read
//! gets only what lies below the data file's present size.
//!
//! # Price
//! Contiguous accesses: a few divisions. Strided ones: one step per block. Before a server has answered, at most
//! [`STEPS_QUICK`], since anybody may send such requests without a pause; afterwards at most [`STEPS_MAX`]. Beyond them
//! callers charge `aggregate_size / server_ct`, and [`FileRequest::pieces_most`] bounds the number of pieces.
//!
//! Source: `src/io/description/pint-request-encode.h`.

use crate::wire::{Malformed, Reader, Writer};

/// Most nested entries of a file request (the protocol's own limit).
const NESTED_MAX: i32 = 100;
/// Most contiguous pieces that are followed; a hostile request would otherwise cost time without bound.
pub(crate) const STEPS_MAX: u32 = 65_536;
/// The same before the server has answered.
pub(crate) const STEPS_QUICK: u32 = 1024;
/// Deepest nesting that is followed.
const DEPTH_MAX: u32 = 32;
/// What a tree begins with that is as it was sent: only then do servers make pointers of its numbers.
const COMMITTED: i32 = -1;
/// No entry.
const NONE: i32 = -1;

/// One entry of a file request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    offset: i64,
    num_ereqs: i32,
    num_blocks: i32,
    stride: i64,
    ub: i64,
    lb: i64,
    aggregate_size: i64,
    num_contig_chunks: i32,
    depth: i32,
    num_nested: i32,
    /// −1 where a whole tree begins.
    committed: i32,
    ereq: i32,
    sreq: i32,
}

/// A tree of strided blocks; entry 0 is its root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRequest {
    entries: Vec<Entry>,
    shape: Shape,
}

impl FileRequest {
    /// A plain stream of bytes: the access is a contiguous range of the file.
    pub fn contiguous() -> Self {
        FileRequest { entries: vec![Entry::BYTE], shape: Entry::BYTE_SHAPE }
    }

    /// `blocks` blocks of `len` bytes, one each `stride` bytes.
    pub fn vector(blocks: i32, len: i32, stride: i64) -> Self {
        let whole = i64::from(blocks) * i64::from(len);
        let root = Entry {
            offset: 0,
            num_ereqs: len,
            num_blocks: blocks,
            stride,
            ub: i64::from(blocks - 1) * stride + i64::from(len),
            lb: 0,
            aggregate_size: whole,
            num_contig_chunks: blocks,
            depth: 2,
            num_nested: 1,
            committed: COMMITTED,
            ereq: 1,
            sreq: -1,
        };
        let high = i64::from(len) + i64::from(blocks - 1) * stride.max(0);
        let shape = Shape { size: whole, depth: 2, high, turns: blocks as u64 };
        FileRequest { entries: vec![root, Entry::BYTE], shape }
    }

    /// Whether it is a plain stream of bytes.
    pub fn is_contiguous(&self) -> bool {
        let root = &self.entries[0];
        let plain = root.num_blocks == 0 && root.aggregate_size == 1 && root.sreq < 0;
        plain && (root.offset, root.lb, root.ub) == (0, 0, 1)
    }

    /// Reads the number of nested entries, the padding, and the entries.
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let nested = r.i32("file request entries")?;
        if !(0..=NESTED_MAX).contains(&nested) {
            return Err(r.malformed("file request entries"));
        }
        r.pad(4)?;
        let entries = (0..=nested).map(|_| Entry::read(r)).collect::<Result<Vec<_>, _>>()?;
        let mut tree = FileRequest { entries, shape: Entry::BYTE_SHAPE };
        tree.shape = tree.check().map_err(|what| r.malformed(what))?;
        Ok(tree)
    }

    /// Whether a server can go through it. What it says of itself must be so, since servers divide by it, and take memory by it. Entries that nothing
    /// leads to may hold anything: clients send more than there are.
    fn check(&self) -> Result<Shape, &'static str> {
        let root = &self.entries[0];
        let here = self.entries.len() as i32;
        if root.num_nested != here - 1 || root.committed != COMMITTED {
            return Err("file request entries");
        }
        let mut known = vec![Known::Nothing; self.entries.len()];
        let shape = self.check_entry(0, true, &mut known)?;
        // A server has room for as many levels as the tree says.
        if (shape.depth..=here).contains(&root.depth) { Ok(shape) } else { Err("file request depth") }
    }

    /// What an entry and those that follow it are. An element is the first of its own.
    fn check_entry(&self, index: i32, first: bool, known: &mut [Known]) -> Result<Shape, &'static str> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        let entry = self.entries.get(at).ok_or("file request entry index")?;
        match known[at] {
            Known::Nothing => known[at] = Known::Begun,
            Known::Begun => return Err("file request entries in a circle"),
            // A byte is an element of many, and follows none.
            Known::All(shape) if (first && shape.size > 0) || (!first && entry.ereq != NONE) => {
                return Ok(shape);
            }
            Known::All(_) => return Err("file request entry without elements"),
        }
        let mut shape = if entry.ereq == NONE {
            entry.plain().filter(|_| first).ok_or("file request entry without elements")?
        } else {
            let element = self.check_entry(entry.ereq, true, known)?;
            entry.blocks(&self.entries[entry.ereq as usize], element)?
        };
        if entry.sreq != NONE {
            let behind = self.check_entry(entry.sreq, false, known)?;
            shape = shape.followed_by(behind).ok_or("file request size")?;
        }
        if shape.size != entry.aggregate_size || (first && shape.size == 0) {
            return Err("file request size");
        }
        known[at] = Known::All(shape);
        Ok(shape)
    }

    /// Where the furthest byte of the file is that an access up to the data byte `end` may touch; none where servers cannot compute it.
    pub(crate) fn reach(&self, end: u64) -> Option<u64> {
        let root = &self.entries[0];
        let tiles = i64::try_from(end / u64::try_from(root.aggregate_size).ok()?).ok()?;
        let last = tiles.checked_mul(root.ub.checked_sub(root.lb)?)?.checked_add(self.shape.high)?;
        Some(u64::try_from(last).unwrap_or(0))
    }

    /// How often a server goes round before it comes to the data byte `begin`: it begins with the first byte, wherever the access does.
    pub(crate) fn turns(&self, begin: u64) -> u64 {
        let root = &self.entries[0];
        let element = usize::try_from(root.ereq).ok().and_then(|i| self.entries.get(i));
        let at_once = root.extent() == Some(root.aggregate_size);
        if element.is_none_or(|element| at_once && element.num_contig_chunks == 1) {
            return 0;
        }
        let tiles = begin.div_ceil(u64::try_from(root.aggregate_size).unwrap_or(1).max(1));
        tiles.saturating_mul(self.shape.turns)
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        w.i32(self.entries.len() as i32 - 1).pad(4);
        self.entries.iter().for_each(|e| e.write(w));
    }

    /// At most so many contiguous pieces hold `len` bytes of the data, from anywhere on.
    pub(crate) fn pieces_most(&self, len: u64) -> u64 {
        if self.is_contiguous() {
            return 1;
        }
        let size = u64::try_from(self.entries[0].aggregate_size).unwrap_or(0).max(1);
        let mut known = vec![None; self.entries.len()];
        // The access may begin within one tile and end within another.
        let tiles = len.div_ceil(size).saturating_add(1);
        self.pieces_of(0, &mut known).saturating_mul(tiles).min(len)
    }

    /// Pieces of the entry `index` and those that follow it; without bound where entries go in circles.
    fn pieces_of(&self, index: i32, known: &mut [Option<u64>]) -> u64 {
        let Some(entry) = usize::try_from(index).ok().and_then(|i| self.entries.get(i)) else { return 0 };
        if let Some(pieces) = known[index as usize] {
            return pieces;
        }
        known[index as usize] = Some(u64::MAX);
        let element = usize::try_from(entry.ereq).ok().and_then(|i| self.entries.get(i));
        let of_a_block = match element {
            Some(element) if element.has_no_holes() => 1,
            Some(_) => {
                self.pieces_of(entry.ereq, known).saturating_mul(u64::from(entry.num_ereqs.max(0) as u32))
            }
            None => 1,
        };
        let blocks = if entry.num_blocks == 0 { 1 } else { u64::from(entry.num_blocks.max(0) as u32) };
        let pieces = of_a_block.saturating_mul(blocks).saturating_add(self.pieces_of(entry.sreq, known));
        known[index as usize] = Some(pieces);
        pieces
    }

    /// Calls `piece(offset, len)` for each contiguous piece of the file, in order of the data. `None` if the
    /// tree is contradictory, or has more than `most` steps.
    pub(crate) fn pieces(
        &self,
        offset: u64,
        len: u64,
        most: u32,
        mut piece: impl FnMut(u64, u64),
    ) -> Option<()> {
        if self.is_contiguous() {
            piece(offset, len);
            return Some(());
        }
        let root = &self.entries[0];
        let size = u64::try_from(root.aggregate_size).ok().filter(|s| *s > 0)?;
        let extent = u64::try_from(root.ub.checked_sub(root.lb)?).ok()?;
        let mut walk =
            Walk { tree: &self.entries, skip: offset % size, left: len, steps: most, piece: &mut piece };
        let mut base = (offset / size).checked_mul(extent)?;
        while walk.left > 0 {
            let before = (walk.skip, walk.left);
            walk.chain(0, i64::try_from(base).ok()?, 0)?;
            if (walk.skip, walk.left) == before {
                return None; // a type without data
            }
            base = base.checked_add(extent)?;
        }
        Some(())
    }
}

/// Of an entry, while a tree is checked.
#[derive(Clone, Copy)]
enum Known {
    Nothing,
    Begun,
    All(Shape),
}

/// What an entry is, with those that follow it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shape {
    /// Bytes of data.
    size: i64,
    /// Levels.
    depth: i32,
    /// Where its furthest byte ends, from its base.
    high: i64,
    /// How often a server goes round for it.
    turns: u64,
}

impl Shape {
    fn followed_by(self, other: Shape) -> Option<Shape> {
        Some(Shape {
            size: self.size.checked_add(other.size)?,
            depth: self.depth.max(other.depth),
            high: self.high.max(other.high),
            turns: self.turns.saturating_add(other.turns),
        })
    }
}

struct Walk<'a, F: FnMut(u64, u64)> {
    tree: &'a [Entry],
    skip: u64,
    left: u64,
    /// That may still be taken.
    steps: u32,
    piece: &'a mut F,
}

impl<F: FnMut(u64, u64)> Walk<'_, F> {
    fn step(&mut self) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        Some(())
    }

    /// `len` bytes of the file from `at` on hold data of the type.
    fn data(&mut self, at: i64, len: u64) -> Option<()> {
        let skipped = self.skip.min(len);
        self.skip -= skipped;
        let taken = (len - skipped).min(self.left);
        if taken > 0 {
            (self.piece)(u64::try_from(at).ok()?.checked_add(skipped)?, taken);
            self.left -= taken;
        }
        Some(())
    }

    /// The entry `index` at `base`, and those that follow it by `sreq`.
    fn chain(&mut self, mut index: i32, base: i64, depth: u32) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        while index >= 0 && self.left > 0 {
            self.step()?;
            let entry = self.tree[index as usize];
            for block in 0..i64::from(entry.num_blocks.max(0)) {
                if self.left == 0 {
                    break;
                }
                self.step()?;
                let at = base.checked_add(entry.offset)?.checked_add(block.checked_mul(entry.stride)?)?;
                self.block(&entry, at, depth)?;
            }
            if entry.num_blocks == 0 {
                self.data(base.checked_add(entry.offset)?, u64::try_from(entry.aggregate_size).ok()?)?;
            }
            index = entry.sreq;
        }
        Some(())
    }

    /// `num_ereqs` consecutive elements from `at` on.
    fn block(&mut self, entry: &Entry, at: i64, depth: u32) -> Option<()> {
        let count = i64::from(entry.num_ereqs);
        if entry.ereq < 0 {
            return None;
        }
        let element = self.tree[entry.ereq as usize];
        let extent = element.ub.checked_sub(element.lb)?;
        if element.has_no_holes() {
            return self.data(at, u64::try_from(count.checked_mul(extent)?).ok()?); // no holes inside
        }
        for i in 0..count {
            if self.left == 0 {
                break;
            }
            self.chain(entry.ereq, at.checked_add(i.checked_mul(extent)?)?, depth + 1)?;
        }
        Some(())
    }
}

impl Entry {
    const BYTE: Entry = Entry {
        offset: 0,
        num_ereqs: 1,
        num_blocks: 0,
        stride: 1,
        ub: 1,
        lb: 0,
        aggregate_size: 1,
        num_contig_chunks: 1,
        depth: 1,
        num_nested: 0,
        committed: COMMITTED,
        ereq: -1,
        sreq: -1,
    };

    /// Of what a byte is made.
    const BYTE_SHAPE: Shape = Shape { size: 1, depth: 1, high: 1, turns: 1 };

    fn extent(&self) -> Option<i64> {
        self.ub.checked_sub(self.lb)
    }

    /// Whether servers go through any number of them at once.
    fn has_no_holes(&self) -> bool {
        self.sreq < 0 && self.num_contig_chunks == 1 && self.extent() == Some(self.aggregate_size)
    }

    /// Bytes without elements.
    fn plain(&self) -> Option<Shape> {
        let size = self.extent().filter(|extent| *extent == self.aggregate_size && *extent > 0)?;
        let high = self.offset.checked_add(size)?;
        (self.sreq == NONE && self.num_blocks == 0).then_some(Shape { size, depth: 1, high, turns: 1 })
    }

    /// Blocks of an element.
    fn blocks(&self, of: &Entry, element: Shape) -> Result<Shape, &'static str> {
        let (blocks, elements) = (i64::from(self.num_blocks), i64::from(self.num_ereqs));
        // Blocks of nothing would be gone through all the same.
        if blocks < 1 || elements < 0 || (elements == 0 && blocks > 1) {
            return Err("file request blocks");
        }
        let size = element.size.checked_mul(blocks).and_then(|size| size.checked_mul(elements));
        let extent =
            |entry: &Entry| entry.extent().filter(|extent| *extent >= 0).ok_or("file request extent");
        let last =
            extent(of)?.checked_mul((elements - 1).max(0)).and_then(|last| last.checked_add(element.high));
        let far = self.stride.checked_mul(blocks - 1).map(|far| far.max(0));
        let high = last.zip(far).and_then(|(last, far)| last.checked_add(far)?.checked_add(self.offset));
        let turns = if of.has_no_holes() {
            1
        } else {
            element.turns.saturating_mul(elements as u64).saturating_add(1)
        };
        extent(self)?;
        let (size, high) = size.zip(high).ok_or("file request size")?;
        Ok(Shape { size, depth: element.depth + 1, high, turns: turns.saturating_mul(blocks as u64) })
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let entry = Entry {
            offset: r.i64("entry offset")?,
            num_ereqs: r.i32("entry num_ereqs")?,
            num_blocks: r.i32("entry num_blocks")?,
            stride: r.i64("entry stride")?,
            ub: r.i64("entry ub")?,
            lb: r.i64("entry lb")?,
            aggregate_size: r.i64("entry aggregate_size")?,
            num_contig_chunks: r.i32("entry num_contig_chunks")?,
            depth: r.i32("entry depth")?,
            num_nested: r.i32("entry num_nested")?,
            committed: r.i32("entry committed")?,
            ereq: -1,
            sreq: -1,
        };
        r.pad(4 + 4)?; // refcount, padding
        Ok(Entry { ereq: r.i32("entry ereq")?, sreq: r.i32("entry sreq")?, ..entry })
    }

    fn write(&self, w: &mut Writer) {
        w.i64(self.offset)
            .i32(self.num_ereqs)
            .i32(self.num_blocks)
            .i64(self.stride)
            .i64(self.ub)
            .i64(self.lb);
        w.i64(self.aggregate_size).i32(self.num_contig_chunks).i32(self.depth).i32(self.num_nested);
        w.i32(self.committed).i32(1).pad(4).i32(self.ereq).i32(self.sreq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two blocks of a byte, one each second byte.
    const ROOT: Entry = Entry {
        num_blocks: 2,
        stride: 2,
        ub: 3,
        aggregate_size: 2,
        num_contig_chunks: 2,
        depth: 2,
        num_nested: 1,
        ereq: 1,
        ..Entry::BYTE
    };

    fn read(entries: &[Entry]) -> Result<FileRequest, Malformed> {
        let mut w = Writer::new();
        FileRequest { entries: entries.to_vec(), shape: Entry::BYTE_SHAPE }.write(&mut w);
        FileRequest::read(&mut Reader::new(&w.into_bytes()))
    }

    /// A server of 2.10 was seen to divide by zero, to write beyond its memory, or to go round for ever by each of these.
    #[test]
    fn trees_that_end_a_server_are_not_read() {
        assert_eq!(read(&[ROOT, Entry::BYTE]), Ok(FileRequest::vector(2, 1, 2)));
        assert_eq!(read(&[Entry::BYTE]), Ok(FileRequest::contiguous()));
        let empty = Entry { num_ereqs: 0, aggregate_size: 0, ..ROOT };
        let bad = [
            ("divides by it", Entry { aggregate_size: 0, ..ROOT }),
            ("says more than there is", Entry { aggregate_size: 1 << 40, ..ROOT }),
            ("less than nothing", Entry { aggregate_size: -2, ..ROOT }),
            ("more entries than came", Entry { num_nested: 0x1_0000, ..ROOT }),
            ("no room for its levels", Entry { depth: 0, ..ROOT }),
            ("less room than that", Entry { depth: -1, ..ROOT }),
            ("too little room", Entry { depth: 1, ..ROOT }),
            ("all memory for its levels", Entry { depth: i32::MAX, ..ROOT }),
            ("numbers taken for pointers", Entry { committed: 0, ..ROOT }),
            ("an element that did not come", Entry { ereq: 0x7f_ffff, ..ROOT }),
            ("a negative element", Entry { ereq: -2, ..ROOT }),
            ("its own element", Entry { ereq: 0, ..ROOT }),
            ("its own follower", Entry { sreq: 0, ..ROOT }),
            ("a negative follower", Entry { sreq: -7, ..ROOT }),
            ("a byte that follows", Entry { sreq: 1, aggregate_size: 3, ..ROOT }),
            ("blocks of nothing", Entry { num_blocks: i32::MAX, aggregate_size: 0, ..empty }),
            ("nothing at all", Entry { num_blocks: 1, ..empty }),
            ("fewer blocks than none", Entry { num_blocks: -2, aggregate_size: -2, ..ROOT }),
            ("a negative extent", Entry { ub: -3, ..ROOT }),
            ("a stride beyond 64 bits", Entry { num_blocks: 3, aggregate_size: 3, stride: i64::MAX, ..ROOT }),
        ];
        for (why, root) in bad {
            assert!(read(&[root, Entry::BYTE]).is_err(), "{why}");
        }
        for byte in
            [Entry { aggregate_size: 0, ub: 0, ..Entry::BYTE }, Entry { aggregate_size: -1, ..Entry::BYTE }]
        {
            assert!(read(&[byte]).is_err(), "{byte:?}");
        }
    }

    /// Clients count more entries than their trees have, and send what lay in memory for the others.
    #[test]
    fn entries_that_nothing_leads_to_may_hold_anything() {
        let garbage = Entry { ereq: 0x7f_ffff, sreq: -9, aggregate_size: -1, ..Entry::BYTE };
        let root = Entry { num_nested: 2, ..ROOT };
        assert!(read(&[root, Entry::BYTE, garbage]).is_ok());
        // A byte is the element of each; one piece may be empty.
        let second = Entry { num_blocks: 1, num_ereqs: 0, aggregate_size: 0, num_nested: 1, ..ROOT };
        let first = Entry { sreq: 1, ereq: 2, num_nested: 2, ..ROOT };
        assert!(read(&[first, Entry { ereq: 2, ..second }, Entry::BYTE]).is_ok());
    }

    /// Servers begin with the first byte. One of 2.10 took no request for minutes while it went to the byte 2^36 of such a list.
    #[test]
    fn what_is_passed_over_is_counted() {
        let list = FileRequest::vector(1000, 1, 2);
        assert_eq!((list.turns(0), list.turns(1), list.turns(5_000_000)), (0, 1000, 5_000_000));
        assert_eq!(list.turns(u64::MAX), u64::MAX);
        assert_eq!(FileRequest::contiguous().turns(1 << 62), 0);
        // Elements that have no holes, and say that they have, are gone through one by one.
        let split = Entry {
            num_contig_chunks: 2,
            num_blocks: 1,
            stride: 0,
            num_ereqs: 1,
            ub: 1,
            aggregate_size: 1,
            num_nested: 1,
            ereq: 2,
            ..ROOT
        };
        let root = Entry {
            num_blocks: 1,
            num_ereqs: 100,
            ub: 100,
            aggregate_size: 100,
            depth: 3,
            num_nested: 2,
            ..ROOT
        };
        let tree = read(&[root, split, Entry::BYTE]).expect("it is sound");
        assert_eq!((tree.turns(1), tree.pieces_most(100)), (101, 100));
    }

    #[test]
    fn how_far_an_access_reaches() {
        assert_eq!(FileRequest::vector(10, 4, 100).reach(40), Some(904 + 904));
        assert_eq!(FileRequest::contiguous().reach(1 << 40), Some((1 << 40) + 1));
        assert_eq!(FileRequest::vector(10, 4, i64::MAX / 10).reach(u64::MAX), None);
    }
}
