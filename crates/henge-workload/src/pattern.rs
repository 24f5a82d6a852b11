//! Where requests go and how large they are, without regard to when.
//!
//! The rule, for every request: with probability `locality` it begins where the previous one of its stream ended;
//! else with probability `recent` where one of the 32 before that ended; else somewhere by the order's own law
//! (uniform, or Zipf over blocks). A sequential reader is locality 1, a random one locality 0. A request that does
//! not fit before the end of the area begins at the area's start.
//!
//! Example: locality 0.5, 4 KiB, area 1 GiB: half of the requests continue, half jump; mean run of 2 requests.

use crate::Level;
use henge_core::{Instant, Op};
use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64;
use std::collections::VecDeque;

/// How many ends of earlier requests `recent` chooses from, the same as the statistics of traces count.
pub const RECENT: usize = 32;

/// Where jumps go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jump {
    /// Anywhere, equally likely.
    Uniform,
    /// By Zipf's law with this exponent over the area's blocks; which blocks are popular is scattered.
    Zipf(f64),
}

/// Sizes with their relative frequency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes, and the sum of all frequencies up to and with this one.
    steps: Vec<(u64, u64)>,
}

impl Sizes {
    /// One size.
    pub fn fixed(bytes: u64) -> Self {
        Sizes { steps: vec![(bytes, 1)] }
    }
    /// Any mix: bytes and frequency. At least one frequency is above zero.
    pub fn mix(parts: &[(u64, u64)]) -> Self {
        let mut sum = 0;
        let steps: Vec<_> = parts
            .iter()
            .filter(|(_, n)| *n > 0)
            .map(|(bytes, n)| {
                sum += n;
                (*bytes, sum)
            })
            .collect();
        assert!(!steps.is_empty(), "a mix has at least one size");
        Sizes { steps }
    }
    /// All multiples of `step` from `from` to `to`, equally likely.
    pub fn uniform(from: u64, to: u64, step: u64) -> Self {
        let all: Vec<_> = (from.div_ceil(step)..=to / step).map(|n| (n * step, 1)).collect();
        Sizes::mix(&all)
    }
    /// The largest.
    pub fn max(&self) -> u64 {
        self.steps.iter().map(|s| s.0).max().unwrap_or(0)
    }
    /// The mean, in bytes.
    pub fn mean(&self) -> f64 {
        let total = self.steps.last().map_or(1, |s| s.1);
        let mut before = 0;
        let mut sum = 0.0;
        for (bytes, upto) in &self.steps {
            sum += *bytes as f64 * (upto - before) as f64;
            before = *upto;
        }
        sum / total as f64
    }
    /// Whether all are multiples of `unit`.
    pub fn aligned(&self, unit: u64) -> bool {
        self.steps.iter().all(|s| s.0.is_multiple_of(unit))
    }
    fn draw(&self, rng: &mut Pcg64) -> u64 {
        let total = self.steps.last().expect("a mix has at least one size").1;
        if self.steps.len() == 1 {
            return self.steps[0].0;
        }
        let pick = rng.random_range(0..total);
        self.steps[self.steps.partition_point(|s| s.1 <= pick)].0
    }
}

/// Describes requests; [`Pattern`] draws them.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// Share of reads, in millionths.
    pub read: u32,
    /// Sizes of reads.
    pub read_sizes: Sizes,
    /// Sizes of writes.
    pub write_sizes: Sizes,
    /// Probability of beginning where the previous request ended, in millionths.
    pub locality: Level,
    /// Else, probability of beginning where one of the 32 before ended, in millionths.
    pub recent: u32,
    /// Where the others go.
    pub jump: Jump,
    /// Jumps go to multiples of this.
    pub align: u64,
    /// Independent streams, each with its own part of the area; thread i belongs to stream i mod `streams`.
    pub streams: u32,
}

impl Mix {
    /// Mean bytes of a request.
    pub fn mean_size(&self) -> f64 {
        let read = f64::from(self.read) / 1e6;
        read * self.read_sizes.mean() + (1.0 - read) * self.write_sizes.mean()
    }
    /// Largest request.
    pub fn max_size(&self) -> u64 {
        self.read_sizes.max().max(self.write_sizes.max())
    }
}

/// One stream's position.
#[derive(Clone, Debug, Default)]
struct Cursor {
    next: u64,
    ends: VecDeque<u64>,
}

/// Draws request after request from a [`Mix`] over an area of the disk.
#[derive(Clone, Debug)]
pub struct Pattern {
    mix: Mix,
    start: u64,
    /// Bytes of one stream's part.
    part: u64,
    /// Blocks of `align` bytes at which a jump may land, and the law over them.
    blocks: u64,
    zipf: Option<(Zipf<f64>, u64)>,
    cursors: Vec<Cursor>,
    rng: Pcg64,
}

impl Pattern {
    /// Over the `span` bytes from `start` on; `Err` says how many bytes the area lacks.
    pub fn new(mix: Mix, start: u64, span: u64, rng: Pcg64) -> Result<Self, String> {
        let streams = u64::from(mix.streams.max(1));
        let part = span / streams / mix.align * mix.align;
        let longest = mix.max_size();
        if part < longest || part < mix.align {
            let each = longest.max(mix.align);
            return Err(format!(
                "requests of up to {each} bytes in {streams} stream(s) need at least {} bytes, the area has {span}",
                each * streams
            ));
        }
        let blocks = (part - longest) / mix.align + 1;
        let zipf = match mix.jump {
            Jump::Uniform => None,
            Jump::Zipf(s) => {
                let law = Zipf::new(blocks as f64, s).map_err(|e| e.to_string())?;
                Some((law, scattering(blocks)))
            }
        };
        let cursors = vec![Cursor::default(); streams as usize];
        Ok(Pattern { mix, start, part, blocks, zipf, cursors, rng })
    }

    /// The next request of `thread`, sent at `now`.
    pub fn draw(&mut self, thread: u32, now: Instant) -> (Op, u64, u64) {
        let read = self.rng.random_ratio(self.mix.read, 1_000_000);
        let (op, sizes) =
            if read { (Op::Read, &self.mix.read_sizes) } else { (Op::Write, &self.mix.write_sizes) };
        let len = sizes.draw(&mut self.rng);
        let stream = thread as usize % self.cursors.len();
        let local = self.mix.locality.value(now).min(1_000_000) as u32;
        let cursor = &self.cursors[stream];
        let mut at = if self.rng.random_ratio(local, 1_000_000) {
            cursor.next
        } else if cursor.ends.len() > 1 && self.rng.random_ratio(self.mix.recent, 1_000_000) {
            // The newest end is `next` itself, which `locality` has had its chance at.
            cursor.ends[self.rng.random_range(1..cursor.ends.len())]
        } else {
            self.jump()
        };
        if at + len > self.part {
            at = 0;
        }
        let cursor = &mut self.cursors[stream];
        cursor.next = at + len;
        if self.mix.recent > 0 {
            cursor.ends.truncate(RECENT - 1);
            cursor.ends.push_front(at + len);
        }
        (op, self.start + stream as u64 * self.part + at, len)
    }

    /// Changes the probability of adjacency from now on.
    pub fn set_locality(&mut self, locality: Level) {
        self.mix.locality = locality;
    }

    fn jump(&mut self) -> u64 {
        let block = match &self.zipf {
            None => self.rng.random_range(0..self.blocks),
            Some((zipf, factor)) => scatter(zipf.sample(&mut self.rng) as u64 - 1, *factor, self.blocks),
        };
        block * self.mix.align
    }
}

/// Sends rank to block so that popular blocks do not lie side by side: a multiplication modulo `n` by a number
/// without a common factor is a permutation.
fn scatter(rank: u64, factor: u64, n: u64) -> u64 {
    (u128::from(rank.min(n - 1)) * u128::from(factor) % u128::from(n)) as u64
}

/// A factor for [`scatter`] near the golden section of `n`.
fn scattering(n: u64) -> u64 {
    let mut factor = (n as f64 * 0.618_033_988_749_895) as u64 | 1;
    while gcd(factor, n) != 1 {
        factor += 2;
    }
    factor
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix() -> Mix {
        Mix {
            read: 700_000,
            read_sizes: Sizes::fixed(4096),
            write_sizes: Sizes::mix(&[(4096, 1), (8192, 3)]),
            locality: Level::Constant(0),
            recent: 0,
            jump: Jump::Uniform,
            align: 4096,
            streams: 1,
        }
    }

    #[test]
    fn shares_are_as_asked() {
        let mix = Mix { locality: Level::Constant(300_000), recent: 500_000, ..mix() };
        let mut pattern = Pattern::new(mix, 1 << 30, 1 << 40, Pcg64::new(1, 1)).unwrap();
        let (mut reads, mut large, mut adjacent, mut near) = (0, 0, 0, 0);
        let mut ends: VecDeque<u64> = VecDeque::new();
        for _ in 0..100_000 {
            let (op, offset, len) = pattern.draw(0, Instant::ZERO);
            assert!(offset >= 1 << 30 && offset + len <= (1 << 30) + (1 << 40));
            reads += u32::from(op == Op::Read);
            large += u32::from(op == Op::Write && len == 8192);
            adjacent += u32::from(ends.front() == Some(&offset));
            near += u32::from(ends.contains(&offset));
            ends.truncate(RECENT - 1);
            ends.push_front(offset + len);
        }
        // Five standard errors of a share are at most 0.8 %.
        for (got, share) in [(reads, 0.7), (large, 0.3 * 0.75), (adjacent, 0.3), (near, 0.3 + 0.7 * 0.5)] {
            assert!((f64::from(got) / 1e5 - share).abs() < 0.008, "{got} for {share}");
        }
    }

    #[test]
    fn zipf_blocks_are_popular_by_rank() {
        let mix = Mix { jump: Jump::Zipf(1.0), read: 1_000_000, ..mix() };
        let mut pattern = Pattern::new(mix, 0, 4096 * 100, Pcg64::new(1, 1)).unwrap();
        let mut hits = vec![0u32; 100];
        for _ in 0..100_000 {
            hits[(pattern.draw(0, Instant::ZERO).1 / 4096) as usize] += 1;
        }
        hits.sort_unstable_by(|a, b| b.cmp(a));
        // Rank 1 of 99 blocks has 1 / H(99) = 19.3 % of all, rank 2 half of that.
        assert!((f64::from(hits[0]) / 1e5 - 0.193).abs() < 0.01, "{}", hits[0]);
        assert!((f64::from(hits[0]) / f64::from(hits[1]) - 2.0).abs() < 0.15, "{} {}", hits[0], hits[1]);
    }

    #[test]
    fn scattering_is_a_permutation() {
        for n in [1, 2, 7, 100, 4096, 99_991] {
            let mut seen = vec![false; n as usize];
            for rank in 0..n {
                assert!(
                    !std::mem::replace(&mut seen[scatter(rank, scattering(n), n) as usize], true),
                    "{rank} of {n}"
                );
            }
        }
    }

    #[test]
    fn a_sequential_stream_wraps_at_the_end_of_its_part() {
        let mix = Mix { locality: Level::Constant(1_000_000), streams: 2, read: 1_000_000, ..mix() };
        let mut pattern = Pattern::new(mix, 0, 4096 * 6, Pcg64::new(1, 1)).unwrap();
        let offsets: Vec<u64> = (0..5).map(|_| pattern.draw(1, Instant::ZERO).1 / 4096).collect();
        assert_eq!(offsets, [3, 4, 5, 3, 4]);
        assert_eq!(pattern.draw(2, Instant::ZERO).1, 0);
    }

    #[test]
    fn an_area_too_small_is_refused() {
        assert!(Pattern::new(mix(), 0, 4096, Pcg64::new(1, 1)).unwrap_err().contains("8192"));
    }
}
