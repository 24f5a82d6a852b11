//! `[[pool]]`: what keeps its data, and who goes next there.

use super::text::check_name;
use henge_backend::registry::{self, Medium};
use henge_backend::{EngineChoice, Faults};
use henge_core::{Contract, ParamError, Params, Value};
use henge_device::DeviceSpec;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Longest file that says what a device is like, in bytes.
const MODEL_FILE_MAX: u64 = 16 << 20;
/// Loops of a node at most.
pub(crate) const CORES_MAX: u64 = 256;

/// A scheduler by name with its knobs.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    /// By which the registry knows it.
    pub name: String,
    /// What its writer should know of how it is written.
    pub hint: Option<String>,
    /// Its parameters.
    pub knobs: Params,
    /// One gate for each spindle of an emulated array.
    pub per_spindle: bool,
    /// Its pool is a device, so what its table does not say suits one.
    pub device: bool,
}

impl SchedulerConfig {
    /// Where no cost is stated, the gate charges what its contracts count.
    pub(crate) fn charge_as<'a>(&mut self, contracts: impl Iterator<Item = &'a Contract>) {
        henge_sched::charge_as(&mut self.knobs, contracts);
    }

    /// Who steers its depth, and how, as people are told: `", kept, with shares"`. Nothing where it is a number.
    pub(crate) fn steered(&self) -> String {
        let (name, shares) = match self.knobs.clone().take("depth") {
            Some(Value::Text(name)) => (name, false),
            Some(Value::Table(mut table)) => {
                let Some(name) = table.keys().first().cloned() else { return String::new() };
                let shares = match table.take(&name) {
                    Some(Value::Table(mut knobs)) => knobs.take("shares") == Some(Value::Bool(true)),
                    _ => false,
                };
                (name, shares)
            }
            _ => return String::new(),
        };
        format!(", {name}{}", if shares { ", with shares" } else { "" })
    }

    /// As the configuration writes it.
    pub(crate) fn text(&self) -> String {
        let mut knobs = self.knobs.clone();
        if self.per_spindle {
            knobs.set("per", Value::Text("spindle".into()), 0..0);
        }
        let knobs = henge_api::json(&Value::Table(knobs));
        henge_api::toml(&serde_json::json!({ &self.name: knobs }))
    }
}

/// `[[pool]]`
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Its name.
    pub name: String,
    /// What keeps its data.
    pub medium: Arc<dyn Medium>,
    /// Bytes; 0 takes all of a device.
    pub capacity: u64,
    /// Its gate, or gates.
    pub scheduler: SchedulerConfig,
    /// The device it pretends to be.
    pub emulated: Option<Emulated>,
    /// Most bytes of one request; the storage says where nothing is stated.
    pub quantum: Option<u64>,
    /// The loop that it belongs to; the node divides pools where nothing is stated.
    pub shard: Option<usize>,
    /// Clients of its disks are served by all loops; its gate stays where it is.
    pub every_core: bool,
    /// Past the page cache.
    pub direct: bool,
    /// What moves bytes.
    pub engine: EngineChoice,
    /// For tests.
    pub rehearsal: Rehearsal,
    /// It may promise more than the file system under it holds.
    pub overcommit: bool,
    /// Copies that its storage keeps.
    pub copies: u32,
    /// What it was measured to do.
    pub profile: Option<henge_api::manager::Profile>,
    /// Places in the file.
    pub spans: PoolSpans,
}

/// A device that a pool pretends to be.
#[derive(Clone, Debug)]
pub struct Emulated {
    /// Its model.
    pub device: DeviceSpec,
    /// The same, as it is written.
    pub text: String,
}

/// What a test asks of a pool's storage.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// What goes wrong on purpose.
    pub faults: Option<Faults>,
    /// Seed of a volatile write cache.
    pub volatile: Option<u64>,
    /// Where a line per request is written.
    pub trace: Option<PathBuf>,
}

/// Where a pool stands in the file.
#[derive(Clone, Debug)]
pub struct PoolSpans {
    /// All of it.
    pub whole: Range<usize>,
    /// Its medium.
    pub medium: Range<usize>,
}

pub(crate) fn pool(mut p: Params) -> Result<PoolConfig, ParamError> {
    let span = p.span();
    let name = p.text("name")?;
    let name = p.required("name", name)?;
    check_name(&p, &name)?;
    let (medium, medium_span) = registry::read(&mut p)?;
    let capacity = p.size("capacity")?;
    let text = p.get_mut("emulated").map(|written| henge_api::toml(&henge_api::json(written)));
    let device = DeviceSpec::from_params(&mut p, "emulated", &model_file)?;
    let emulated = device.zip(text).map(|(device, text)| Emulated { device, text });
    let direct = p.bool("direct")?.unwrap_or(true);
    // Through the page cache it is memory's time, mostly.
    let scheduler = scheduler(&mut p, medium.is_device() && direct)?;
    let capacity =
        capacity_of(&p, &name, capacity, &*medium, emulated.as_ref().map(|emulated| &emulated.device))?;
    let engine = engine(&mut p)?;
    let faults = faults(&mut p)?;
    let volatile = volatile(&mut p)?;
    let quantum = quantum(&mut p)?;
    let pool = PoolConfig {
        quantum,
        name,
        medium,
        capacity,
        scheduler,
        emulated,
        shard: p.integer("shard", 0, CORES_MAX - 1)?.map(|n| n as usize),
        every_core: p.bool("every_core")?.unwrap_or(false),
        direct,
        engine,
        rehearsal: Rehearsal { faults, volatile, trace: p.text("trace")?.map(PathBuf::from) },
        overcommit: p.bool("overcommit")?.unwrap_or(false),
        copies: p.integer("copies", 1, 16)?.unwrap_or(1) as u32,
        profile: crate::manager::config::profile(&mut p)?,
        spans: PoolSpans { whole: span, medium: medium_span },
    };
    has_its_spindles(&p, &pool)?;
    p.finish()?;
    Ok(pool)
}

/// As stated; else as the medium or its emulation has it.
fn capacity_of(
    p: &Params,
    name: &str,
    stated: Option<u64>,
    medium: &dyn Medium,
    emulated: Option<&DeviceSpec>,
) -> Result<u64, ParamError> {
    match (stated, medium.knows_capacity(), emulated) {
        (Some(0), ..) => Err(p.error("capacity", "a pool of 0 bytes holds nothing".into())),
        (Some(capacity), ..) => Ok(capacity),
        (None, true, _) => Ok(0),
        (None, _, Some(spec)) => Ok(spec.build().capacity()),
        (None, ..) => {
            Err(p.missing("capacity", format!("pool \"{name}\" needs a capacity, like capacity = \"200GB\"")))
        }
    }
}

fn engine(p: &mut Params) -> Result<EngineChoice, ParamError> {
    match p.text("engine")?.as_deref() {
        None | Some("auto") => Ok(EngineChoice::Auto),
        Some("io_uring") => Ok(EngineChoice::Uring),
        Some("threads") => Ok(EngineChoice::Threads),
        Some(other) => {
            let message = format!("engine is \"auto\", \"io_uring\" or \"threads\", not \"{other}\"");
            Err(p.error("engine", message))
        }
    }
}

fn faults(p: &mut Params) -> Result<Option<Faults>, ParamError> {
    let Some(mut table) = p.table("faults")? else { return Ok(None) };
    let faults = Faults::from_params(&mut table)?;
    table.finish()?;
    Ok(Some(faults))
}

/// The seed by which a power failure loses what was not synced.
fn volatile(p: &mut Params) -> Result<Option<u64>, ParamError> {
    let Some(mut table) = p.table("volatile")? else { return Ok(None) };
    let seed = table.integer("seed", 0, i64::MAX as u64)?.unwrap_or(1);
    table.finish()?;
    Ok(Some(seed))
}

fn quantum(p: &mut Params) -> Result<Option<u64>, ParamError> {
    let quantum = p.size("quantum")?;
    let page = henge_backend::ALIGN as u64;
    if quantum.is_some_and(|q| q < page || q > 1 << 20 || !q.is_multiple_of(page)) {
        return Err(p.error("quantum", "a pool's quantum is from 4KiB to 1MiB, a multiple of 4KiB".into()));
    }
    Ok(quantum)
}

/// Whether a scheduler for each spindle has spindles.
fn has_its_spindles(p: &Params, pool: &PoolConfig) -> Result<(), ParamError> {
    if pool.scheduler.per_spindle && pool.emulated.is_none() {
        return Err(p.error(
            "scheduler",
            "per = \"spindle\" needs an emulated array; add emulated = { raid0 = 4, … }".into(),
        ));
    }
    if pool.scheduler.per_spindle && !pool.medium.has_spindles() {
        let key = pool.medium.key();
        return Err(p.error(key, format!("per = \"spindle\" needs a directory or memory, not {key}")));
    }
    Ok(())
}

/// Reads `scheduler = …` and the pool's `cost = …` beside it. What they do not say suits a device, if the pool is one.
pub(crate) fn scheduler(p: &mut Params, device: bool) -> Result<SchedulerConfig, ParamError> {
    let (name, mut knobs) =
        p.choice("scheduler")?.unwrap_or_else(|| ("sfq".into(), Params::at("sfq", p.span())));
    let (name, hint) = match henge_sched::respelled(&name) {
        Some((right, hint)) => (right, Some(hint)),
        None => (name, None),
    };
    let span = p.error("cost", String::new()).span;
    if let Some(cost) = p.take("cost") {
        if knobs.get_mut("cost").is_some() {
            return Err(p.error("cost", "the scheduler has a cost already; leave one of them out".into()));
        }
        knobs.set("cost", cost, span);
    }
    if device {
        henge_sched::suit_device(&name, &mut knobs);
    }
    if name == "sfq" && knobs.get_mut("depth").is_none() {
        knobs = knobs.with("depth", Value::Integer(32));
    }
    let per_spindle = match knobs.text("per")?.as_deref() {
        None | Some("array" | "device") => false,
        Some("spindle") => true,
        Some(other) => {
            return Err(knobs.error("per", format!("per is \"spindle\" or \"array\", not \"{other}\"")));
        }
    };
    // So that a wrong scheduler is found where it is written, and before anything is opened.
    henge_sched::build(&name, knobs.clone())?;
    Ok(SchedulerConfig { name, hint, knobs, per_spindle, device })
}

fn model_file(name: &str) -> Result<String, String> {
    henge_io::read_text(name.as_ref(), MODEL_FILE_MAX).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_config::Source;

    fn of(medium: &str, scheduler: &str) -> String {
        let text = format!("name = \"p\"\ncapacity = \"1GiB\"\n{medium}\n{scheduler}\n");
        let params = Source::new("pool", text).parse("pool").unwrap();
        pool(params).unwrap_or_else(|e| panic!("{e}")).scheduler.text().replace('"', "")
    }

    #[test]
    fn people_are_told_who_steers_the_depth() {
        let told = |scheduler: &str| {
            let text = format!("name = \"p\"\ncapacity = \"1GiB\"\npath = \"/srv/henge\"\n{scheduler}\n");
            pool(Source::new("pool", text).parse("pool").unwrap()).unwrap().scheduler.steered()
        };
        assert_eq!(told(""), ", kept, with shares");
        assert_eq!(told("scheduler = \"vc\""), ", kept");
        assert_eq!(told("scheduler = { sfq = { depth = { kept = { most = 8 } } } }"), ", kept");
        assert_eq!(told("scheduler = { edf = { depth = \"feedback\" } }"), ", feedback");
        assert_eq!(told("scheduler = { sfq = { depth = 8 } }"), "");
    }

    #[test]
    fn what_a_pool_does_not_say_suits_a_device_where_it_is_one() {
        let path = "path = \"/srv/henge\"";
        for medium in [path, "device = \"/dev/null\""] {
            assert_eq!(of(medium, ""), "{ sfq = { depth = { kept = { shares = true } } } }");
            let mclock = "{ mclock = { cost = time, depth = { kept = { shares = true } } } }";
            assert_eq!(of(medium, "scheduler = \"mclock\""), mclock);
        }
        // A rate is what this one charges.
        assert_eq!(of(path, "scheduler = \"vc\""), "{ vc = { depth = kept } }");
        // Whoever states a cost says what shares count.
        assert_eq!(of(path, "cost = \"bytes\""), "{ sfq = { cost = bytes, depth = 32 } }");
        // What is stated stays as it is.
        let bytes = "scheduler = \"mclock\"\ncost = \"bytes\"";
        assert_eq!(of(path, bytes), "{ mclock = { cost = bytes, depth = kept } }");
        let stated = "scheduler = { mclock = { depth = 4, cost = \"requests\" } }";
        assert_eq!(of(path, stated), "{ mclock = { cost = requests, depth = 4 } }");
        // A capacity counts what the gate charges.
        let capacity = "scheduler = { mclock = { capacity = \"900/s\" } }";
        assert_eq!(of(path, capacity), "{ mclock = { capacity = 900/s, depth = kept } }");
        for medium in ["memory = true", "path = \"/srv/henge\"\ndirect = false"] {
            let plain = of(medium, "scheduler = \"mclock\"");
            assert!(!plain.contains("kept") && !plain.contains("time"), "{medium}: {plain}");
        }
    }
}
