//! Traces: `trace = …`, how it is read and how it is replayed.

use super::paced::with_times;
use super::{Spec, TraceSpec, What};
use crate::{Addressing, Format, Level, ReplayOptions, TraceOptions};
use henge_core::{Duration, ParamError, Params};

/// `trace = …`.
pub(super) fn traced(p: &mut Params, file: String) -> Result<Spec, ParamError> {
    let options = trace_options(p)?;
    let speed = match p.number("speed")? {
        None => 1_000_000,
        Some(x) if (1e-6..=1e6).contains(&x) => (x * 1e6).round() as u64,
        Some(x) => {
            return Err(
                p.error("speed", format!("speed = {x} is out of range; it is from 0.000001 to 1000000"))
            );
        }
    };
    let mut replay = ReplayOptions { speed, ..ReplayOptions::default() };
    replay.addressing = match p.text("place")?.as_deref() {
        None | Some("refuse") => Addressing::Refuse,
        Some("wrap") => Addressing::Wrap,
        Some("scale") => {
            let extent = p.size("extent")?;
            match p.required("extent", extent)? {
                0 => return Err(p.error("extent", "extent must be above zero".to_owned())),
                extent => Addressing::Scale { extent },
            }
        }
        Some(other) => {
            return Err(p.error("place", format!("place is refuse, wrap or scale, not \"{other}\"")));
        }
    };
    replay.devices = p.integer("devices", 1, 1 << 20)?.unwrap_or(1) as u32;
    replay.only = p.integer("device", 0, u64::from(u32::MAX))?.map(|d| d as u32);
    replay.reorder = p.integer("reorder", 0, 1 << 24)?.unwrap_or(0) as usize;
    replay.clamp = match p.text("backwards")?.as_deref() {
        None | Some("refuse") => false,
        Some("clamp") => true,
        Some(other) => {
            return Err(p.error("backwards", format!("backwards is refuse or clamp, not \"{other}\"")));
        }
    };
    replay.dedup = p.duration("dedup")?;
    let count = |p: &mut Params, key: &str| p.integer(key, 1, 1 << 20);
    let window = Level::from_params(p, "window", true, count)?;
    let threads = Level::from_params(p, "outstanding", true, count)?;
    if window.is_some() && threads.is_some() {
        let what = "window keeps the trace's times and outstanding forgets them; choose one";
        return Err(p.error("outstanding", what.to_owned()));
    }
    if threads.is_some() {
        replay.speed = 0;
    }
    let pace = if threads.is_some() {
        ", its times forgotten".to_owned()
    } else {
        format!(" at {} times its speed", speed as f64 / 1e6)
    };
    let label = format!("trace {file}{pace}");
    let what = What::Trace(TraceSpec { file, options, replay });
    with_times(p, what, None, window.or(threads), label)
}

/// The keys that say how a trace is read.
fn trace_options(p: &mut Params) -> Result<TraceOptions, ParamError> {
    let format = match p.text("format")? {
        None => None,
        Some(name) => match Format::by_name(&name) {
            Some(format) => Some(format),
            None => {
                let message = format!("there is no trace format \"{name}\"; there are {}", Format::names());
                return Err(p.error("format", message));
            }
        },
    };
    let event = match p.text("event")? {
        None => None,
        Some(text) if text.len() == 1 && text.as_bytes()[0].is_ascii_uppercase() => Some(text.as_bytes()[0]),
        Some(_) => {
            return Err(
                p.error("event", "event is one capital letter of blkparse, \"Q\" or \"D\"".to_owned())
            );
        }
    };
    let mpiio = match p.text("module")?.as_deref() {
        None | Some("posix") => false,
        Some("mpiio") => true,
        Some(other) => return Err(p.error("module", format!("module is posix or mpiio, not \"{other}\""))),
    };
    let time_unit = p.duration("time_unit")?.map(Duration::as_nanos);
    let (offset_unit, size_unit) = (p.size("offset_unit")?, p.size("size_unit")?);
    for (key, unit) in [("time_unit", time_unit), ("offset_unit", offset_unit), ("size_unit", size_unit)] {
        if unit == Some(0) {
            return Err(p.error(key, format!("{key} must be above zero")));
        }
    }
    let skip_damaged = p.bool("skip_damaged")?.unwrap_or(false);
    Ok(TraceOptions { format, time_unit, offset_unit, size_unit, event, mpiio, skip_damaged })
}
