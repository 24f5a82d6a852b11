//! The keys that say when, how long and where.

use super::{Spec, What};
use crate::level::positive;
use crate::{Burst, Gaps, Level, Period, Process, Think};
use henge_core::{CostUnit, Duration, Instant, ParamError, Params, Value};

/// The keys that say when: `rate`, `arrivals`, `outstanding`, `think`, and how long.
pub(super) fn paced(
    p: &mut Params,
    what: What,
    process: Process,
    rate: Option<u64>,
    label: String,
) -> Result<Spec, ParamError> {
    let mean = match &what {
        What::Mix(mix) => mix.mean_size(),
        _ => 1.0,
    };
    let per_second = |p: &mut Params, key: &str| {
        let Some(rate) = p.rate(key)? else { return Ok(None) };
        match rate.unit {
            CostUnit::Requests => Ok(Some(rate.per_second)),
            CostUnit::Bytes => Ok(Some((rate.per_second as f64 * 1e6 / mean) as u64)),
            CostUnit::DiskTime => Err(p.error(key, format!("{key} is in requests or bytes a second here"))),
        }
    };
    let written = Level::from_params(p, "rate", false, per_second)?;
    let own = arrivals(p)?;
    let outstanding = Level::from_params(p, "outstanding", true, |p, key| p.integer(key, 0, 1 << 20))?;
    let closed = written.is_none() && outstanding.is_some();
    let arrivals = match (written, rate) {
        (Some(level), _) => Some((own.unwrap_or(process), level)),
        (None, Some(rate)) if !closed => Some((own.unwrap_or(process), Level::Constant(rate))),
        _ if own.is_some() => return Err(p.error("arrivals", "arrivals need a rate".to_owned())),
        _ => None,
    };
    if arrivals.is_none() && outstanding.is_none() && !matches!(what, What::Ranks(_)) {
        let message = format!("{} needs a rate, or how many requests are outstanding, or both", p.name());
        return Err(p.error_here(message));
    }
    for (key, level) in [("rate", arrivals.as_ref().map(|a| &a.1)), ("outstanding", outstanding.as_ref())] {
        if level.is_some_and(|level| level.max() == 0) {
            return Err(p.error(key, format!("{key} must be above zero at some time")));
        }
    }
    with_times(p, what, arrivals, outstanding, label)
}

/// The keys that every workload has: where, how long, and what threads do between requests.
pub(super) fn with_times(
    p: &mut Params,
    what: What,
    arrivals: Option<(Process, Level)>,
    outstanding: Option<Level>,
    label: String,
) -> Result<Spec, ParamError> {
    let offset = p.size("offset")?.unwrap_or(0);
    let span = p.size("span")?;
    if span == Some(0) {
        return Err(p.error("span", "span must be above zero".to_owned()));
    }
    let start = Instant::ZERO + p.duration("start")?.unwrap_or(Duration::ZERO);
    let stop = p.duration("stop")?.map_or(Instant::FAR, |stop| Instant::ZERO + stop);
    if stop <= start {
        return Err(p.error("stop", "stop comes after start".to_owned()));
    }
    let requests = p.integer("requests", 1, i64::MAX as u64)?.unwrap_or(u64::MAX);
    let think = think(p)?;
    Ok(Spec { what, arrivals, outstanding, think, offset, span, start, stop, requests, label })
}

fn think(p: &mut Params) -> Result<Think, ParamError> {
    if matches!(p.get_mut("think"), Some(Value::Table(_))) {
        let mut q = p.table("think")?.expect("it was just seen");
        let mean = positive(&mut q, "exponential")?;
        q.finish()?;
        return Ok(Think::Exponential(mean));
    }
    Ok(Think::Constant(p.duration("think")?.unwrap_or(Duration::ZERO)))
}

/// `arrivals = …`.
fn arrivals(p: &mut Params) -> Result<Option<Process>, ParamError> {
    if let Some(Value::Text(_)) = p.get_mut("arrivals") {
        let process = match p.text("arrivals")?.as_deref() {
            Some("poisson") => Process::poisson(),
            Some("constant") => Process::constant(),
            Some("self-similar") => Process::self_similar(0.8, 32, Duration::from_secs(1)),
            Some(other) => {
                let message = format!(
                    "there are no arrivals \"{other}\"; there are poisson, constant, self-similar, on-off, gamma and processes"
                );
                return Err(p.error("arrivals", message));
            }
            None => unreachable!("it was just seen"),
        };
        return Ok(Some(process));
    }
    let Some((kind, mut q)) = p.choice("arrivals")? else { return Ok(None) };
    let process = match kind.as_str() {
        "on-off" => {
            let (on, off) = (positive(&mut q, "on")?, positive(&mut q, "off")?);
            let period = if q.bool("random")?.unwrap_or(false) { Period::Exponential } else { Period::Fixed };
            let burst = Burst { on: period(on), off: period(off), adds: 1.0 };
            Process { gaps: Gaps::Exponential, base: 0.0, bursts: vec![burst] }
        }
        "self-similar" => {
            let hurst = number(&mut q, "hurst", 0.8, 0.5, 0.99)?;
            let sources = q.integer("sources", 1, 4096)?.unwrap_or(32);
            let period = q.duration("period")?.unwrap_or(Duration::from_secs(1));
            if period == Duration::ZERO {
                return Err(q.error("period", "period must be above zero".to_owned()));
            }
            Process::self_similar(hurst, sources as usize, period)
        }
        "processes" => {
            let count = q.integer("count", 1, 1 << 16)?;
            let count = q.required("count", count)? as u32;
            let within = q.duration("within")?.unwrap_or(Duration::ZERO);
            Process { gaps: Gaps::Processes { count, within }, ..Process::poisson() }
        }
        "gamma" => {
            Process { gaps: Gaps::Gamma(number(&mut q, "shape", 1.0, 0.01, 1000.0)?), ..Process::poisson() }
        }
        other => {
            let message = format!(
                "there are no arrivals \"{other}\"; there are poisson, constant, self-similar, on-off, gamma and processes"
            );
            return Err(p.error("arrivals", message));
        }
    };
    q.finish()?;
    Ok(Some(process))
}

/// A number within bounds.
pub(super) fn number(
    p: &mut Params,
    key: &str,
    usual: f64,
    least: f64,
    most: f64,
) -> Result<f64, ParamError> {
    match p.number(key)? {
        None => Ok(usual),
        Some(x) if (least..=most).contains(&x) => Ok(x),
        Some(x) => Err(p.error(key, format!("{key} = {x} is out of range; it is from {least} to {most}"))),
    }
}
