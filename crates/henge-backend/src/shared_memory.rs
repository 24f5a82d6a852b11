//! Memory that other threads read.
//!
//! # The problem
//! A pool that several loops serve has one gate, whose loop copied every byte that was read. The other loops waited for it, and each byte passed
//! from one processor to the other.
//!
//! # The rule
//! One thread writes, and says whose turn it is. Who has had a turn reads by itself, word by word. Each 64 KiB have a *version*, which is odd while
//! they are written. What was read counts if the version was even before, and is the same after. So a block is read as it was before a write or
//! after it, as where one thread does both. Whoever reads never waits: it asks the writer for what was written meanwhile.
//!
//! A part that is removed is somebody else's one day. So there is a *generation* of all, which grows before any part goes. What was read counts if
//! the generation is the one before the turn was asked for.
//!
//! # Example
//! Loop 1 asks for 4 KiB at generation 3, and hears that it had its turn. It reads version 8, the bytes, version 8, and generation 3: these are its
//! bytes. Had loop 0 begun to write there, the version would be 9, or 10 after it. Had a disk been removed, the generation would be 4.
//!
//! # Price
//! Two stores for each write of up to 64 KiB, and two loads and a fence for each read. By words 4 KiB take up to twice as long as by `memcpy`.

use crate::pages::Pages;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

const WORD: usize = 8;
/// Words that are moved in one step of a loop.
const STEP: usize = 8;
/// Bytes that have one version.
const STRIPE: usize = 64 << 10;

/// What other threads read of a store in memory.
#[derive(Clone)]
pub struct SharedMemory(Arc<Shared>);

struct Shared {
    pages: Arc<Pages>,
    versions: Box<[AtomicU32]>,
    generation: AtomicU64,
}

/// The first generations of memories: no two ever have the same.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedMemory({} bytes)", self.0.pages.len())
    }
}

impl SharedMemory {
    /// Most that is read for one request: the store itself copies longer ones, piece by piece.
    pub const LEN_MAX: u64 = 128 << 10;

    pub(crate) fn new(pages: &Arc<Pages>) -> SharedMemory {
        let versions = (0..pages.len().div_ceil(STRIPE)).map(|_| AtomicU32::new(0)).collect();
        let generation = AtomicU64::new(GENERATIONS.fetch_add(1 << 40, Relaxed));
        SharedMemory(Arc::new(Shared { pages: Arc::clone(pages), versions, generation }))
    }

    /// What is asked of the store from now on may be read at this one.
    pub fn generation(&self) -> u64 {
        self.0.generation.load(Acquire)
    }

    /// What stands at an address. False where it was written meanwhile, or where a part went since that generation: then the bytes mean nothing.
    #[must_use]
    pub fn read(&self, generation: u64, from: u64, mut to: &mut [u8]) -> bool {
        let within = |from: &usize| from.checked_add(to.len()).is_some_and(|end| end <= self.0.pages.len());
        let Some(mut from) = usize::try_from(from).ok().filter(within) else { return false };
        while !to.is_empty() {
            let (piece, rest) = to.split_at_mut(to.len().min(STRIPE - from % STRIPE));
            let version = &self.0.versions[from / STRIPE];
            let before = version.load(Acquire);
            read(self.words(), from, piece);
            fence(Acquire);
            if before % 2 == 1 || version.load(Relaxed) != before {
                return false;
            }
            from += piece.len();
            to = rest;
        }
        self.0.generation.load(Relaxed) == generation
    }

    /// A part is about to go: what was asked for before is not read any more.
    pub(crate) fn part_goes(&self) {
        // Only one thread writes.
        self.0.generation.store(self.0.generation.load(Relaxed) + 1, Relaxed);
        fence(Release);
    }

    /// Does something to the bytes there.
    pub(crate) fn change<T>(&self, from: usize, len: usize, what: impl FnOnce(&[AtomicU64]) -> T) -> T {
        let stripes = from / STRIPE..(from + len).div_ceil(STRIPE).max(from / STRIPE);
        let step = |order| {
            let versions = &self.0.versions[stripes.clone()];
            versions.iter().for_each(|version| version.store(version.load(Relaxed).wrapping_add(1), order));
        };
        step(Relaxed);
        fence(Release);
        let done = what(self.words());
        step(Release);
        done
    }

    /// The bytes, for the thread that writes.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.0.pages.words()
    }
}

/// What stands from byte `from` on.
pub(crate) fn read(words: &[AtomicU64], from: usize, to: &mut [u8]) {
    let (first, at) = (from / WORD, from % WORD);
    let before = if at > 0 { (WORD - at).min(to.len()) } else { 0 };
    let (head, rest) = to.split_at_mut(before);
    if before > 0 {
        head.copy_from_slice(&words[first].load(Relaxed).to_ne_bytes()[at..at + before]);
    }
    let words = &words[first + usize::from(at > 0)..];
    let (steps, rest) = rest.as_chunks_mut::<{ STEP * WORD }>();
    let (whole, single) = words.split_at(steps.len() * STEP);
    for (to, words) in steps.iter_mut().zip(whole.as_chunks::<STEP>().0) {
        for (to, word) in to.as_chunks_mut::<WORD>().0.iter_mut().zip(words) {
            *to = word.load(Relaxed).to_ne_bytes();
        }
    }
    for (to, word) in rest.chunks_mut(WORD).zip(single) {
        to.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..to.len()]);
    }
}

/// Puts bytes there; only one thread does.
pub(crate) fn write(words: &[AtomicU64], from: usize, bytes: &[u8]) {
    let (first, at) = (from / WORD, from % WORD);
    let before = if at > 0 { (WORD - at).min(bytes.len()) } else { 0 };
    let (head, rest) = bytes.split_at(before);
    if before > 0 {
        put(&words[first], at, head);
    }
    let words = &words[first + usize::from(at > 0)..];
    let (whole, tail) = rest.as_chunks::<WORD>();
    for (bytes, word) in whole.iter().zip(words) {
        word.store(u64::from_ne_bytes(*bytes), Relaxed);
    }
    if !tail.is_empty() {
        put(&words[whole.len()], 0, tail);
    }
}

/// Some bytes of a word.
fn put(word: &AtomicU64, at: usize, bytes: &[u8]) {
    let mut all = word.load(Relaxed).to_ne_bytes();
    all[at..at + bytes.len()].copy_from_slice(bytes);
    word.store(u64::from_ne_bytes(all), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_was_read_is_never_half_of_one_write_and_half_of_another() {
        const BLOCK: usize = 4096;
        let pages = Pages::map(2 * STRIPE as u64).expect("a mapping of 128 KiB");
        let shared = SharedMemory::new(&Arc::new(pages));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut bytes = [0; BLOCK];
                while bytes[0] < 200 {
                    if shared.read(shared.generation(), 60_000, &mut bytes) {
                        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{bytes:?}");
                    }
                }
            });
            for byte in 1..=200 {
                shared.change(60_000, BLOCK, |words| write(words, 60_000, &[byte; BLOCK]));
            }
            reader.join().unwrap();
        });
    }

    #[test]
    fn any_bytes_are_written_and_read_and_no_others_change() {
        let words: Vec<AtomicU64> = (0..40).map(|_| AtomicU64::new(u64::MAX)).collect();
        let mut want = vec![0xff; 320];
        for from in 0..20 {
            for len in [0, 1, 3, 7, 8, 9, 63, 64, 65, 71, 130, 200, 300] {
                let bytes: Vec<u8> = (0..len).map(|i| (i as u8) ^ (from + len) as u8).collect();
                write(&words, from, &bytes);
                want[from..from + len].copy_from_slice(&bytes);
                let (mut got, mut part) = (vec![0; 320], vec![0; len]);
                read(&words, 0, &mut got);
                read(&words, from, &mut part);
                assert!(got == want && part == bytes, "{len} at {from}");
            }
        }
    }
}
