//! Workloads with names.
//!
//! Everything here is synthetic, and its label says so. A preset is a setting of the generators that was fitted to a
//! measured trace, which it names; `tests/fit.rs` measures both by the same statistics and prints them side by side.
//!
//! How they were fitted. Sizes: the trace's own frequencies, by operation; sizes below 1 % are gathered in one size per
//! power of two, their mean. Locality: the strictly sequential share is `locality`, what continues one of the previous
//! 32 is `recent` of the rest (Financial overwrites, so that some of those continue the last one too; its `locality` is
//! less by as much). Arrivals: with on/off sources of correlation time τᵢ (1/τ = 1/on + 1/off), variance Vᵢ
//! of their share of m(t), and gaps of squared variation c, the index of dispersion of counts in t is
//!
//! ```text
//! I(t) = c + 2 λ Σᵢ Vᵢ τᵢ g(τᵢ/t),   g(x) = 1 − x (1 − e^(−1/x))
//! ```
//!
//! solved for Vᵢ at t = 0.1, 1 and 10 s. What is on for the share p of the time and adds a then has V = a² p (1 − p).
//!
//! What is not fitted: which blocks are popular (jumps are uniform), the order of reads and writes, the daily rhythm.

use crate::{Burst, Gaps, Jump, Level, Mix, Period, Process, Sizes};
use henge_core::Duration;

/// A fitted workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    /// By which name configuration knows it.
    pub name: &'static str,
    /// What it was fitted to, for labels and tables.
    pub source: &'static str,
    /// What is asked.
    pub mix: Mix,
    /// When it is asked.
    pub process: Process,
    /// Requests a second, in millionths; `None` where the source says nothing about arrivals in real time.
    pub rate: Option<u64>,
}

/// The names of the fitted presets.
pub const NAMES: [&str; 6] = ["tpc-c", "financial", "websearch", "openmail", "postmark", "video"];

/// The fitted workload of that name.
pub fn fitted(name: &str) -> Option<Preset> {
    Some(match name {
        "tpc-c" => tpcc(),
        "financial" => financial(),
        "websearch" => websearch(),
        "openmail" => openmail(),
        "postmark" => postmark(),
        "video" => video(),
        _ => return None,
    })
}

/// Bytes and frequency.
type Frequencies = &'static [(u64, u64)];

/// Shares in millionths; sizes by frequency.
fn mix(read: u32, read_sizes: Frequencies, write_sizes: Frequencies, locality: u64, recent: u32) -> Mix {
    Mix {
        read,
        read_sizes: Sizes::mix(read_sizes),
        write_sizes: Sizes::mix(write_sizes),
        locality: Level::Constant(locality),
        recent,
        jump: Jump::Uniform,
        align: 4096,
        streams: 1,
    }
}

/// A memoryless on/off source: mean periods in microseconds, and what it adds.
const fn burst(on_us: u64, off_us: u64, adds: f64) -> Burst {
    let (on, off) = (Duration::from_micros(on_us), Duration::from_micros(off_us));
    Burst { on: Period::Exponential(on), off: Period::Exponential(off), adds }
}

/// An on-line transaction system: small random requests, two in three of them reads.
fn tpcc() -> Preset {
    const READS: Frequencies = &[(8192, 99_817), (61_440, 183)];
    const WRITES: Frequencies = &[
        (512, 382),
        (1024, 191),
        (1536, 649),
        (3072, 688),
        (6144, 726),
        (8192, 90_718),
        (12_288, 1146),
        (16_384, 3896),
        (24_064, 649),
        (51_200, 955),
    ];
    Preset {
        name: "tpc-c",
        source: "tpcc-7k.ns.ascii (7,000 requests in 136 ms: too short to say how they arrive)",
        mix: mix(625_946, READS, WRITES, 12_430, 5_640),
        process: Process::poisson(),
        rate: None,
    }
}

/// On-line transactions of a financial institution; the trace's sizes are whole pages.
fn financial() -> Preset {
    const READS: Frequencies = &[(4096, 13_720), (8192, 86_277)];
    const WRITES: Frequencies =
        &[(4096, 87_544), (8192, 4961), (12_288, 2202), (16_384, 144), (27_136, 1437), (49_152, 3711)];
    Preset {
        name: "financial",
        source: "financial1-50k-4kpages.disksim.trace",
        mix: mix(583_980, READS, WRITES, 4_095, 524_000),
        process: Process {
            gaps: Gaps::Exponential,
            base: 0.2,
            bursts: vec![
                burst(306_321, 576_220, 0.2881),
                burst(456_055, 876_720, 0.8767),
                burst(5_142_436, 7_200_825, 0.9601),
            ],
        },
        rate: Some(58_590_000),
    }
}

/// A search engine's index: reads alone, steadier than Poisson within a second.
fn websearch() -> Preset {
    const READS: Frequencies =
        &[(4096, 48), (8192, 59_804), (16_384, 11_676), (24_576, 8292), (32_768, 20_176)];
    Preset {
        name: "websearch",
        source: "websearch1-50k-4kpages.disksim.trace",
        mix: mix(999_800, READS, &[(8192, 1)], 59_960, 256_800),
        process: Process {
            gaps: Gaps::Gamma(1.1805),
            base: 0.8175,
            bursts: vec![burst(4_027_099, 4_027_099, 0.3650)],
        },
        rate: Some(388_620_000),
    }
}

/// A mail and time-sharing server. OpenMail's own trace is not public; another server of the same house is.
fn openmail() -> Preset {
    const READS: Frequencies = &[
        (2048, 123),
        (4096, 46_414),
        (8192, 33_545),
        (16_384, 1419),
        (24_576, 4324),
        (32_768, 7788),
        (50_176, 237),
        (65_536, 6122),
    ];
    const WRITES: Frequencies = &[
        (1024, 15_324),
        (2048, 8368),
        (3072, 484),
        (4096, 4462),
        (5632, 398),
        (8192, 51_791),
        (15_872, 518),
        (27_648, 333),
        (49_152, 333),
        (65_536, 17_988),
    ];
    Preset {
        name: "openmail",
        source: "cello2003-hour.srt (OpenMail itself is not public)",
        mix: mix(245_767, READS, WRITES, 276_210, 210_700),
        process: Process {
            gaps: Gaps::Exponential,
            base: 0.05,
            bursts: vec![
                burst(201_825, 22_114_025, 49.7566),
                burst(305_451, 16_812_000, 2.8020),
                burst(12_386_555, 384_521_481, 14.4196),
            ],
        },
        rate: Some(11_624_000),
    }
}

/// The Postmark benchmark as a file system passed it on.
fn postmark() -> Preset {
    const READS: Frequencies = &[
        (4096, 1203),
        (8192, 2182),
        (12_288, 1114),
        (16_384, 589),
        (24_576, 1149),
        (32_768, 15_647),
        (49_152, 1537),
        (65_536, 70_720),
        (96_256, 168),
        (98_304, 2793),
        (193_024, 261),
        (391_680, 454),
        (792_576, 632),
        (1_579_008, 657),
        (3_085_312, 894),
    ];
    const WRITES: Frequencies = &[
        (4096, 17_219),
        (8192, 2778),
        (12_288, 2205),
        (16_384, 2100),
        (20_480, 1871),
        (24_576, 1985),
        (28_672, 1451),
        (32_768, 1861),
        (36_864, 1756),
        (40_960, 2004),
        (45_056, 1575),
        (49_152, 1699),
        (53_248, 1651),
        (57_344, 2004),
        (61_440, 1661),
        (65_536, 277),
        (101_376, 2272),
        (194_560, 4362),
        (262_144, 1861),
        (393_728, 5803),
        (826_368, 11_635),
        (1_048_576, 8008),
        (1_565_184, 7512),
        (3_041_792, 8590),
        (4_194_304, 5860),
    ];
    Preset {
        name: "postmark",
        source: "postmark.disksim.trace",
        mix: mix(831_714, READS, WRITES, 461_540, 626_570),
        process: Process {
            gaps: Gaps::Exponential,
            base: 0.05,
            bursts: vec![
                burst(31_246, 752_591, 8.7802),
                burst(57_026, 405_800, 0.8116),
                burst(29_561_930, 61_832_560, 1.5458),
            ],
        },
        rate: Some(126_940_000),
    }
}

/// A film at 4 Mbit/s, read ahead in pieces of 64 KiB: 7.63 requests a second.
fn video() -> Preset {
    const READS: Frequencies = &[(65_536, 1)];
    Preset {
        name: "video",
        source: "a stream of 4 Mbit/s by definition",
        mix: mix(1_000_000, READS, READS, 1_000_000, 0),
        process: Process::constant(),
        rate: Some(4_000_000 / 8 * 1_000_000 / 65_536),
    }
}
