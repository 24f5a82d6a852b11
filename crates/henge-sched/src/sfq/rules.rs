//! What configuration says of start-time fair queueing.

use crate::foreign::{MEMORY_DEFAULT, Policy};
use crate::line::{Line, default_burst};
use crate::names::one_of;
use henge_core::{Cost, CostUnit, Duration, ParamError, Params, Value};

/// The switches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub policy: Policy,
    /// How long foreign service is remembered; `None` is forever.
    pub memory: Option<Duration>,
    /// Tag at the head of the flow, not at arrival.
    pub tag_at_head: bool,
}

impl Rules {
    pub(crate) fn from_params(p: &mut Params) -> Result<Rules, ParamError> {
        let policy = one_of(p, "foreign", &Policy::NAMES)?.unwrap_or_default();
        let tag_at_head = one_of(p, "tag", &[("head", true), ("arrival", false)])?.unwrap_or(true);
        let memory = match p.get_mut("memory") {
            Some(Value::Text(text)) if text == "forever" => p.text("memory")?.and(None),
            _ => Some(p.duration("memory")?.unwrap_or(MEMORY_DEFAULT)),
        };
        if memory == Some(Duration::ZERO) {
            return Err(
                p.error("memory", "a memory of 0s charges nothing; write foreign = \"single\"".into())
            );
        }
        Ok(Rules { policy, memory, tag_at_head })
    }
}

/// `work_conserving = false, capacity = "100MB/s", burst = "1MB"`, or `capacity = "measured", nodes = 3`.
pub(super) fn line_from(p: &mut Params, unit: CostUnit) -> Result<Option<Line>, ParamError> {
    if p.bool("work_conserving")?.unwrap_or(true) {
        return Ok(None);
    }
    let burst = if unit == CostUnit::Bytes { p.size("burst")?.map(Cost::new) } else { None };
    if matches!(p.get_mut("capacity"), Some(Value::Text(text)) if text == "measured") {
        p.take("capacity");
        let nodes = p.integer("nodes", 1, 65_536)?.unwrap_or(1);
        return Ok(Some(Line::measured(unit, burst, nodes)));
    }
    let capacity = p.rate("capacity")?;
    let capacity = p.required("capacity", capacity)?;
    if capacity.unit != unit || capacity.per_second == 0 {
        return Err(p.error("capacity", format!("the capacity is more than zero, and counts {unit} here")));
    }
    Ok(Some(Line::new(capacity, burst.unwrap_or_else(|| default_burst(capacity)))))
}
