//! Every scheduler by name. What configuration says in `scheduler = { sfq = { depth = 32, cost = "bytes" } }`
//! becomes an [`Assembly`] here, and nowhere else.
//!
//! A scheduler's table holds its own keys and three that all have: `depth` (a number, or a controller such as
//! `depth = { feedback = { … } }`), `cost` (a name, or `cost = { "bytes+overhead" = { overhead = "4KiB" } }`) and
//! `unkept = "refuse" | "ignore"`: what becomes of a contract's terms that the scheduler does not keep.

use crate::entry::{Entry, OnDevice};
use crate::names::{one_of, unknown};
use crate::terms::Terms;
use crate::{cost, depth};
use henge_core::{Assembly, Contract, ParamError, Params, Value};

/// All schedulers. To add one: one file, one line here, and its `mod` in `lib.rs`.
pub const SCHEDULERS: &[Entry] = &[
    crate::fifo::ENTRY,
    crate::sfq::ENTRY,
    crate::mclock::ENTRY,
    crate::pclock::ENTRY,
    crate::cscan::ENTRY,
    crate::virtual_clock::ENTRY,
    crate::cvc::ENTRY,
    crate::edf::ENTRY,
    crate::two_level::ENTRY,
    crate::locality::ENTRY,
];

/// The scheduler called `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    SCHEDULERS.iter().find(|e| e.name == name)
}

/// How a scheduler's name is spelled, and a hint to say so, where an underscore is all that is wrong: names have hyphens, and pages once wrote
/// `two_level`.
///
/// ```
/// assert_eq!(henge_sched::respelled("two_level").unwrap().0, "two-level");
/// assert_eq!(henge_sched::respelled("two-level"), None);
/// assert_eq!(henge_sched::respelled("no_such"), None);
/// ```
pub fn respelled(name: &str) -> Option<(String, String)> {
    let right = name.replace('_', "-");
    let hint = format!("the scheduler \"{name}\" is spelled \"{right}\", and taken for that");
    (find(name).is_none() && find(&right).is_some()).then_some((right, hint))
}

/// The schedulers that keep the term called `term`, as a list for people.
pub fn schedulers_that_keep(term: &str) -> String {
    let names: Vec<_> = SCHEDULERS.iter().filter(|e| e.keeps.contains(&term)).map(|e| e.name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// A gate's parts: the scheduler `name` with its depth and cost model, all read from `params`.
///
/// ```
/// use henge_core::{Params, Value};
/// let gate = henge_sched::build("fifo", Params::new("fifo").with("depth", Value::Integer(4))).unwrap();
/// assert_eq!(gate.depth.depth(), 4);
/// let error = henge_sched::build("fi-fo", Params::new("fi-fo")).err().unwrap();
/// assert_eq!(error.help.as_deref(), Some("did you mean \"fifo\"?"));
/// ```
pub fn build(name: &str, mut params: Params) -> Result<Assembly, ParamError> {
    let Some(entry) = find(name) else {
        return Err(unknown("scheduler", name, SCHEDULERS.iter().map(|e| e.name), &params));
    };
    let cost = cost::from_params(&mut params, entry.cost)?;
    let mut terms = Terms {
        name: entry.name,
        keeps: entry.keeps,
        needs: &[],
        unit: cost.unit(),
        own_units: false,
        ignore: false,
        keepers: schedulers_that_keep,
    };
    let depth = depth::from_params(&mut params, entry.depth, &terms)?;
    terms.ignore = one_of(&mut params, "unkept", &[("refuse", false), ("ignore", true)])?.unwrap_or(false);
    let scheduler = (entry.build)(&mut params, terms)?;
    params.finish()?;
    Ok(Assembly { cost, scheduler, depth })
}

/// Where a scheduler's table states no cost and all contracts count in one unit, the gate charges in that: whoever writes
/// `limit = "675/s"` need not know what the scheduler would charge otherwise.
///
/// ```
/// use henge_core::{Contract, CostUnit, Params, Rate};
/// let mut knobs = Params::new("sfq");
/// henge_sched::charge_as(&mut knobs, [&Contract::reserved(Rate::requests(675))]);
/// assert_eq!(henge_sched::build("sfq", knobs).unwrap().cost.unit(), CostUnit::Requests);
/// ```
pub fn charge_as<'a>(knobs: &mut Params, contracts: impl IntoIterator<Item = &'a Contract>) {
    let mut units = contracts.into_iter().flat_map(Contract::units);
    let Some(unit) = units.next() else { return };
    if knobs.get_mut("cost").is_none() && units.all(|other| other == unit) {
        knobs.set("cost", Value::Text(unit.to_string()), 0..0);
    }
}

/// What a scheduler's table does not say, as it suits a device: the depth gives way to promises, and what would count requests
/// otherwise charges time, learned. A capacity counts what the gate charges, so whoever states one means the contracts' unit. Where neither that
/// nor a cost is stated, a weight is a share of what a disk has alone. Whoever states one says what shares count.
///
/// ```
/// use henge_core::{CostUnit, Params};
/// let mut knobs = Params::new("mclock");
/// henge_sched::suit_device("mclock", &mut knobs);
/// assert_eq!(henge_sched::build("mclock", knobs).unwrap().cost.unit(), CostUnit::DiskTime);
/// ```
pub fn suit_device(name: &str, knobs: &mut Params) {
    let Some(OnDevice { time, kept, shares }) = find(name).map(|entry| entry.on_device) else { return };
    let says_what_counts = knobs.get_mut("cost").is_some() || knobs.get_mut("capacity").is_some();
    if time && !says_what_counts {
        knobs.set("cost", Value::Text("time".into()), 0..0);
    }
    if knobs.get_mut("depth").is_some() {
        return;
    }
    if shares && !says_what_counts {
        let kept = Params::new("kept").with("shares", Value::Bool(true));
        knobs.set("depth", Value::Table(Params::new("depth").with("kept", Value::Table(kept))), 0..0);
    } else if kept {
        knobs.set("depth", Value::Text("kept".into()), 0..0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_summaries_are_one_line() {
        for (i, entry) in SCHEDULERS.iter().enumerate() {
            assert!(SCHEDULERS[..i].iter().all(|e| e.name != entry.name), "{} twice", entry.name);
            assert!(!entry.summary.is_empty() && !entry.summary.contains('\n'), "{}", entry.name);
            let built = build(entry.name, Params::new(entry.name)).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(built.scheduler.name(), entry.name);
        }
    }

    #[test]
    fn what_nobody_asked_for_is_an_error() {
        let error = build("fifo", Params::new("fifo").with("detph", Value::Integer(1))).err().unwrap();
        assert!(error.to_string().contains("did you mean \"depth\"?"), "{error}");
        let error = build("quantum", Params::new("quantum")).err().unwrap();
        assert!(error.message.contains("there are: fifo"), "{error}");
        let params = Params::new("fifo").with("cost", Value::Text("byte".into()));
        let error = build("fifo", params).err().unwrap();
        assert_eq!(error.help.as_deref(), Some("did you mean \"bytes\"?"));
    }
}
