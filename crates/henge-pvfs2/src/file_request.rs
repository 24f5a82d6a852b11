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
    ereq: i32,
    sreq: i32,
}

/// A tree of strided blocks; entry 0 is its root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRequest {
    entries: Vec<Entry>,
}

impl FileRequest {
    /// A plain stream of bytes: the access is a contiguous range of the file.
    pub fn contiguous() -> Self {
        FileRequest { entries: vec![Entry::BYTE] }
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
            depth: 1,
            num_nested: 1,
            ereq: 1,
            sreq: -1,
        };
        FileRequest { entries: vec![root, Entry::BYTE] }
    }

    /// Whether it is a plain stream of bytes.
    pub fn is_contiguous(&self) -> bool {
        let root = &self.entries[0];
        root.num_blocks == 0 && root.aggregate_size == 1 && root.ub == 1 && root.sreq < 0
    }

    /// Reads the number of nested entries, the padding, and the entries.
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let nested = r.i32("file request entries")?;
        if !(0..=NESTED_MAX).contains(&nested) {
            return Err(r.malformed("file request entries"));
        }
        r.pad(4)?;
        let entries = (0..=nested).map(|_| Entry::read(r)).collect::<Result<Vec<_>, _>>()?;
        let known = |i: i32| i < entries.len() as i32;
        if entries.iter().any(|e| !known(e.ereq) || !known(e.sreq)) {
            return Err(r.malformed("file request entry index"));
        }
        Ok(FileRequest { entries })
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
        depth: 0,
        num_nested: 0,
        ereq: -1,
        sreq: -1,
    };

    fn has_no_holes(&self) -> bool {
        self.sreq < 0 && self.ub.checked_sub(self.lb) == Some(self.aggregate_size)
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
            ereq: -1,
            sreq: -1,
        };
        r.pad(4 + 4 + 4)?; // committed, refcount, padding
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
        w.i32(0).i32(1).pad(4).i32(self.ereq).i32(self.sreq);
    }
}
