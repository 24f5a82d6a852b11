//! Devices by configuration; the crate's first page lists what can be written.

use crate::{
    Constant, ConstantConfig, DiskFacts, DriveOrder, Growth, Hdd, HddOptions, Raid0, Raid1, Raid5,
    SSD_SCHEMA, Sharing, Ssd, SsdFacts, Stripes, built_in,
};
use henge_core::{Backend, CostUnit, Duration, Model, ParamError, Params, Value};

/// Finds the text of a model file by the name written in the configuration, or says why it cannot.
pub type Files<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// For owners that have no files: only built-in models are found.
pub fn no_files(_name: &str) -> Result<String, String> {
    Err("no files can be read here".to_owned())
}

/// A device as configured; can be built any number of times.
#[derive(Clone, Debug)]
pub struct DeviceSpec(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Constant(ConstantConfig),
    Hdd(Box<DiskFacts>, HddOptions),
    Ssd(Box<SsdFacts>),
    Array { level: Level, members: u32, unit: u64, member: Box<Kind> },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Raid0,
    Raid1,
    Raid5,
}

impl Level {
    /// Each with its key and its least number of members.
    const ALL: [(Level, &'static str, u64); 3] =
        [(Level::Raid0, "raid0", 1), (Level::Raid1, "raid1", 2), (Level::Raid5, "raid5", 3)];
}

/// A device, ready to use.
pub enum Built {
    /// One device.
    One(Model),
    /// Spindles that may be gated one by one.
    Array(Array),
}

/// The spindles of a RAID-0 and how bytes are spread over them.
pub struct Array {
    /// In the order of the striping formula.
    pub spindles: Vec<Model>,
    /// The formula.
    pub stripes: Stripes,
}

impl Built {
    /// As one device, whatever it is.
    pub fn into_model(self) -> Model {
        match self {
            Built::One(model) => model,
            Built::Array(Array { spindles, stripes }) => Box::new(Raid0::new(spindles, stripes.unit)),
        }
    }
    /// Bytes it holds.
    pub fn capacity(&self) -> u64 {
        match self {
            Built::One(model) => model.capacity(),
            Built::Array(Array { spindles, stripes }) => {
                stripes.capacity(spindles.iter().map(Backend::capacity).min().unwrap_or(0))
            }
        }
    }
}

impl DeviceSpec {
    /// Reads the key `key` of `p`; `None` where it is absent.
    pub fn from_params(p: &mut Params, key: &str, files: Files<'_>) -> Result<Option<Self>, ParamError> {
        let place = p.error(key, String::new()).span;
        match p.take(key) {
            None => Ok(None),
            Some(Value::Text(name)) => {
                let mut bare = Params::at(key, place.clone());
                bare.set("disk", Value::Text(name), place);
                DeviceSpec::from_table(bare, files).map(Some)
            }
            Some(Value::Table(table)) => DeviceSpec::from_table(table, files).map(Some),
            Some(_) => Err(p.error(
                key,
                format!("{key} is a name like \"dtla-307075\" or a table like {{ raid0 = 4, … }}"),
            )),
        }
    }

    /// Reads a table that describes a device, and nothing else.
    pub fn from_table(mut p: Params, files: Files<'_>) -> Result<Self, ParamError> {
        let mut levels = Vec::new();
        for (level, key, least) in Level::ALL {
            if let Some(members) = p.integer(key, least, 1024)? {
                levels.push((level, key, members as u32));
            }
        }
        let kind = match levels[..] {
            [] => single(&mut p, files)?,
            [(level, _, members)] => {
                let unit = if level == Level::Raid1 { 0 } else { stripe(&mut p)? };
                let member = Box::new(single(&mut p, files)?);
                Kind::Array { level, members, unit, member }
            }
            [_, (_, key, _), ..] => {
                return Err(p.error(key, "an array has one level; leave the other out".to_owned()));
            }
        };
        p.finish()?;
        Ok(DeviceSpec(kind))
    }

    /// Makes the device, new and idle.
    pub fn build(&self) -> Built {
        match &self.0 {
            Kind::Array { level: Level::Raid0, members, unit, member } => {
                let stripes = Stripes { unit: *unit, spindles: *members as usize };
                Built::Array(Array { spindles: member.many(*members), stripes })
            }
            kind => Built::One(kind.model()),
        }
    }
}

impl Kind {
    fn model(&self) -> Model {
        match self {
            Kind::Constant(config) => Box::new(Constant::new(*config)),
            Kind::Hdd(facts, options) => Box::new(Hdd::new((**facts).clone(), *options)),
            Kind::Ssd(facts) => Box::new(Ssd::new((**facts).clone())),
            Kind::Array { level, members, unit, member } => {
                let members = member.many(*members);
                match level {
                    Level::Raid0 => Box::new(Raid0::new(members, *unit)),
                    Level::Raid1 => Box::new(Raid1::new(members)),
                    Level::Raid5 => Box::new(Raid5::new(members, *unit)),
                }
            }
        }
    }
    fn many(&self, count: u32) -> Vec<Model> {
        (0..count).map(|_| self.model()).collect()
    }
}

fn stripe(p: &mut Params) -> Result<u64, ParamError> {
    let unit = p.size("stripe")?;
    let unit = p.required("stripe", unit)?;
    if unit == 0 || !unit.is_multiple_of(512) {
        return Err(p.error("stripe", format!("a stripe unit is a multiple of 512B, not {unit}B")));
    }
    Ok(unit)
}

fn single(p: &mut Params, files: Files<'_>) -> Result<Kind, ParamError> {
    let constant = p.table("constant")?;
    let name = p.text("disk")?;
    match (constant, name) {
        (Some(table), None) => constant_from(table).map(Kind::Constant),
        (None, Some(name)) => disk(p, &name, files),
        (Some(_), Some(_)) => {
            Err(p.error("disk", "a device is either a disk or constant, not both".to_owned()))
        }
        (None, None) => Err(p.error_here(format!(
            "{} needs disk = \"dtla-307075\" or constant = {{ rate = \"50MB/s\" }}",
            p.name()
        ))),
    }
}

fn disk(p: &mut Params, name: &str, files: Files<'_>) -> Result<Kind, ParamError> {
    let text = match built_in(name) {
        Some(text) => text.to_owned(),
        None => files(name).map_err(|why| {
            let known: Vec<_> = crate::model_names().collect();
            let mut e = p.error("disk", format!("there is no model \"{name}\": {why}"));
            e.help = Some(format!("built in: {}; or the name of a facts file", known.join(", ")));
            e
        })?,
    };
    if text.contains(SSD_SCHEMA) {
        return flash(p, name, &text);
    }
    let facts = DiskFacts::parse(&text).map_err(|e| p.error("disk", format!("{name}: {e}")))?;
    let segments = p.integer("segments", 1, 1 << 16)?.map(|n| n as u32);
    let order = match p.text("order")?.as_deref() {
        None => None,
        Some("fifo") => Some(DriveOrder::Fifo),
        Some("nearest") => Some(DriveOrder::Nearest),
        Some("ascending") => Some(DriveOrder::Ascending),
        Some(other) => {
            let message =
                format!("\"{other}\" is not an order; there are \"fifo\", \"nearest\", \"ascending\"");
            return Err(p.error("order", message));
        }
    };
    let options = HddOptions {
        segments,
        cache: p.bool("cache")?,
        write_back: p.bool("write_back")?,
        queue: p.integer("queue", 1, 1 << 16)?.map(|n| n as u32),
        order,
        drained: p.bool("drained")?.unwrap_or(false),
    };
    Ok(Kind::Hdd(Box::new(facts), options))
}

/// A flash drive; `capacity` and `spare` instead of the file's, so that a small one can be worn in quickly.
fn flash(p: &mut Params, name: &str, text: &str) -> Result<Kind, ParamError> {
    let mut facts = SsdFacts::parse(text).map_err(|e| p.error("disk", format!("{name}: {e}")))?;
    let capacity = p.size("capacity")?;
    facts.layout.capacity = capacity.unwrap_or(facts.layout.capacity);
    facts.layout.spare = p.share("spare")?.unwrap_or(facts.layout.spare);
    let key = if capacity.is_some() { "capacity" } else { "spare" };
    facts.check().map_err(|(what, why)| p.error(key, format!("{name}: {what} {why}")))?;
    Ok(Kind::Ssd(Box::new(facts)))
}

fn constant_from(mut p: Params) -> Result<ConstantConfig, ParamError> {
    let rate = match p.rate("rate")? {
        None => None,
        Some(rate) if rate.unit == CostUnit::Bytes && rate.per_second > 0 => Some(rate.per_second),
        Some(rate) => {
            return Err(p.error("rate", format!("{rate} is not a rate of bytes; write it like \"50MB/s\"")));
        }
    };
    let time = p.duration("time")?.unwrap_or(Duration::ZERO);
    let slots = p.integer("slots", 1, 1 << 16)?;
    let sharing = match (slots, p.bool("even")?.unwrap_or(false)) {
        (Some(_), true) => {
            return Err(p.error("even", "slots are independent of each other; leave one out".to_owned()));
        }
        (Some(n), false) => Sharing::Slots(n as u32),
        (None, true) => Sharing::Even,
        (None, false) => Sharing::Serial,
    };
    let growth = p.table("growth")?.map(growth_from).transpose()?;
    let capacity = p.size("capacity")?.unwrap_or(1 << 40);
    if rate.is_none() && time == Duration::ZERO {
        return Err(p.error_here("constant needs a rate, a time, or both".to_owned()));
    }
    p.finish()?;
    Ok(ConstantConfig { rate, time, sharing, growth, capacity })
}

fn growth_from(mut p: Params) -> Result<Growth, ParamError> {
    let mut milli = |key: &str, least: f64| -> Result<u32, ParamError> {
        let x = p.number(key)?;
        let x = p.required(key, x)?;
        if !(least..=1000.0).contains(&x) {
            return Err(p.error(key, format!("{key} = {x} is out of range; it is from {least} to 1000")));
        }
        Ok((x * 1000.0).round() as u32)
    };
    let growth = Growth { a_milli: milli("a", 0.001)?, b_milli: milli("b", 0.0)? };
    p.finish()?;
    Ok(growth)
}
