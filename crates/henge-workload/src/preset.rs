//! Workloads with names.
//!
//! Everything here is synthetic and says so in its label. The `-like` presets are settings of the generators that were
//! fitted to a measured trace, named with each; `tests/fit.rs` measures both by the same statistics and prints the table.

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

const fn ms(n: u64) -> Period {
    Period::Exponential(Duration::from_millis(n))
}

fn mix(read: u32, read_sizes: Sizes, write_sizes: Sizes, strict: u64, recent: u32) -> Mix {
    Mix {
        read,
        read_sizes,
        write_sizes,
        locality: Level::Constant(strict),
        recent,
        jump: Jump::Uniform,
        align: 4096,
        streams: 1,
    }
}

fn tpcc() -> Preset {
    let sizes = Sizes::mix(&[(8192, 964), (16384, 36)]);
    Preset {
        name: "tpc-c",
        source: "tpcc-7k.ns.ascii (7,000 requests in 136 ms; its arrivals are too short to be fitted)",
        mix: mix(625_900, sizes.clone(), sizes, 12_000, 6_000),
        process: Process::poisson(),
        rate: None,
    }
}

fn financial() -> Preset {
    let sizes = Sizes::mix(&[(4096, 40), (8192, 55), (16384, 5)]);
    Preset {
        name: "financial",
        source: "financial1-50k-4kpages.disksim.trace",
        mix: mix(584_000, sizes.clone(), sizes, 6_000, 520_000),
        process: Process {
            gaps: Gaps::Exponential,
            base: 0.5,
            bursts: vec![Burst { on: ms(30), off: ms(270), adds: 5.0 }],
        },
        rate: Some(58_600_000),
    }
}

fn websearch() -> Preset {
    let sizes = Sizes::mix(&[(8192, 601), (16384, 122), (24576, 78), (32768, 198)]);
    Preset {
        name: "websearch",
        source: "websearch1-50k-4kpages.disksim.trace",
        mix: mix(999_800, sizes, Sizes::fixed(8192), 60_000, 256_000),
        process: Process::poisson(),
        rate: Some(388_600_000),
    }
}

fn openmail() -> Preset {
    let sizes = Sizes::mix(&[(4096, 1), (8192, 6), (32768, 1), (65536, 1)]);
    Preset {
        name: "openmail",
        source: "cello2003-hour.srt (OpenMail itself is not public)",
        mix: mix(245_800, sizes.clone(), sizes, 276_000, 211_000),
        process: Process::poisson(),
        rate: Some(11_600_000),
    }
}

fn postmark() -> Preset {
    Preset {
        name: "postmark",
        source: "postmark.disksim.trace",
        mix: mix(831_700, Sizes::fixed(65536), Sizes::fixed(524_288), 462_000, 626_000),
        process: Process::poisson(),
        rate: Some(126_900_000),
    }
}

/// A film at 4 Mbit/s, read ahead in pieces of 64 KiB: 7.63 requests a second.
fn video() -> Preset {
    let sizes = Sizes::fixed(65536);
    Preset {
        name: "video",
        source: "a stream of 4 Mbit/s by definition",
        mix: mix(1_000_000, sizes.clone(), sizes, 1_000_000, 0),
        process: Process::constant(),
        rate: Some(4_000_000 / 8 * 1_000_000 / 65536),
    }
}
