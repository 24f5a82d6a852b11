//! What a request is charged.
//!
//! | name | charged | good for |
//! |---|---|---|
//! | `requests` | client commands, long ones several times | promises in IOPS |
//! | `bytes` | bytes | promises in MB/s |
//! | `bytes+overhead` | bytes, and a stated number more per command | devices where small requests cost as well |
//! | `disk time` | nanoseconds during which the device was busy with it | disks that seek |
//! | `time` | what the device can do for nobody else meanwhile, in nanoseconds, learned by kind and length | shares of flash, and of anything used in different ways |
//!
//! FLUSH, TRIM and WRITE_ZEROES move no data, and cost something all the same: see [`transferred`].

mod bytes;
mod disk_time;
mod requests;
mod time;

pub use bytes::Bytes;
pub use disk_time::DiskTimeCost;
pub use requests::Requests;
pub use time::{DeviceTime, KINDS};

use crate::names::unknown;
use henge_core::{Cost, CostModel, CostUnit, Learned, Op, ParamError, Params, Request};

type Build = fn(&mut Params) -> Result<Box<dyn CostModel>, ParamError>;

const MODELS: &[(&str, Build)] = &[
    ("bytes", bytes::build),
    ("requests", requests::build),
    ("bytes+overhead", bytes::build_with_overhead),
    ("disk time", disk_time::build),
    ("time", time::build),
];

/// What an operation without data is charged in bytes: about what its message and its seek keep a device from.
const WITHOUT_DATA: u64 = 64 << 10;

/// Reads `cost = "bytes"` or `cost = { "bytes+overhead" = { overhead = "4KiB" } }`.
pub fn from_params(params: &mut Params, default: &str) -> Result<Box<dyn CostModel>, ParamError> {
    let (name, mut inner) =
        params.choice("cost")?.unwrap_or_else(|| (default.to_owned(), Params::new(default)));
    let Some((_, build)) = MODELS.iter().find(|(n, _)| *n == name) else {
        return Err(unknown("cost model", &name, MODELS.iter().map(|(n, _)| *n), &inner));
    };
    let model = build(&mut inner)?;
    inner.finish()?;
    Ok(model)
}

/// What a contract's term that counts in `unit` is charged for a request at a gate that charges in `gate`: rates and limits stay what they say
/// where shares go by time.
pub(crate) fn in_unit(request: &Request, unit: CostUnit, gate: CostUnit) -> Cost {
    match unit {
        _ if unit == gate => request.cost,
        CostUnit::Bytes => Cost::new(transferred(request)),
        CostUnit::Requests => Requests::new(Requests::PER_DEFAULT).estimate(request),
        CostUnit::DiskTime => request.cost,
    }
}

/// Bytes that a request stands for: its length where it moves data; 64 KiB for a FLUSH; the length, at most 64 KiB,
/// for TRIM and WRITE_ZEROES, which change maps and not media. Never zero.
pub fn transferred(request: &Request) -> u64 {
    match request.op {
        Op::Read | Op::Write => request.len.max(1),
        Op::Flush => WITHOUT_DATA,
        Op::Trim | Op::WriteZeroes => request.len.clamp(1, WITHOUT_DATA),
    }
}
