//! Generated workloads: `pattern = …` and `preset = …`, and the keys that say what is asked.

use super::paced::{number, paced};
use super::program::program;
use super::{Spec, What};
use crate::preset::{self, Preset};
use crate::{Jump, Level, Mix, Process, Sizes};
use henge_core::{ParamError, Params, Value};

/// `pattern = …`.
pub(super) fn made(p: &mut Params, pattern: &str) -> Result<Spec, ParamError> {
    let (locality, zipf) = match pattern {
        "sequential" => (1_000_000, false),
        "random" => (0, false),
        "zipf" => (0, true),
        other => {
            return Err(p.error(
                "pattern",
                format!("there is no pattern \"{other}\"; there are sequential, random and zipf"),
            ));
        }
    };
    let jump = if zipf { Jump::Zipf(number(p, "skew", 1.0, 0.0, 10.0)?) } else { Jump::Uniform };
    let sizes = sizes(p)?;
    let sizes = p.required("size", sizes)?;
    let align = if sizes.aligned(4096) { 4096 } else { 512 };
    let usual = Mix {
        read: 1_000_000,
        read_sizes: sizes.clone(),
        write_sizes: sizes,
        locality: Level::Constant(locality),
        recent: 0,
        jump,
        align,
        streams: 1,
    };
    let mix = changed(p, usual)?;
    let size = mix.mean_size();
    let label = format!("synthetic: {pattern}, {:.1} KiB on average", size / 1024.0);
    paced(p, What::Mix(mix), Process::poisson(), None, label)
}

/// `preset = …`.
pub(super) fn named(p: &mut Params, name: &str) -> Result<Spec, ParamError> {
    if let Some(program) = program(p, name)? {
        let label = format!("synthetic: {name}, {} ranks", program.ranks());
        let mut spec = paced(p, What::Ranks(program), Process::poisson(), None, label)?;
        if spec.arrivals.is_some() {
            return Err(
                p.error("rate", format!("{name} runs as fast as its ranks are answered; it has no rate"))
            );
        }
        spec.outstanding = Some(Level::Constant(u64::from(program.ranks())));
        return Ok(spec);
    }
    let Some(Preset { source, mut mix, process, rate, .. }) = preset::fitted(name) else {
        let names = preset::NAMES.join(", ");
        return Err(
            p.error("preset", format!("there is no preset \"{name}\"; there are {names}, ior and btio"))
        );
    };
    if let Some(sizes) = sizes(p)? {
        mix.read_sizes = sizes.clone();
        mix.write_sizes = sizes;
    }
    let mix = changed(p, mix)?;
    let speed = number(p, "speed", 1.0, 1e-6, 1e6)?;
    let rate = rate.map(|r| (r as f64 * speed) as u64);
    let label = format!("synthetic: {name}-like, after {source}");
    paced(p, What::Mix(mix), process, rate, label)
}

/// The keys that change what a mix asks.
fn changed(p: &mut Params, mut mix: Mix) -> Result<Mix, ParamError> {
    let share = |p: &mut Params, key: &str| Ok(p.share(key)?.map(u64::from));
    if let Some(read) = p.share("read")? {
        mix.read = read;
    }
    if let Some(locality) = Level::from_params(p, "locality", false, share)? {
        mix.locality = locality;
    }
    if let Some(recent) = p.share("recent")? {
        mix.recent = recent;
    }
    if let Some(align) = p.size("align")? {
        if align == 0 {
            return Err(p.error("align", "align must be above zero".to_owned()));
        }
        mix.align = align;
    }
    if let Some(streams) = p.integer("streams", 1, 65536)? {
        mix.streams = streams as u32;
    }
    Ok(mix)
}

/// `size = …`.
fn sizes(p: &mut Params) -> Result<Option<Sizes>, ParamError> {
    const MOST: u64 = 1 << 30;
    let fits = |p: &Params, key: &str, bytes: u64| {
        let right = bytes > 0 && bytes <= MOST;
        if right { Ok(bytes) } else { Err(p.error(key, format!("{key} is from 1B to 1GiB"))) }
    };
    match p.get_mut("size") {
        Some(Value::Table(_)) => {
            let mut q = p.table("size")?.expect("it was just seen");
            let mut need = |key: &str| {
                let bytes = q.size(key)?;
                let bytes = q.required(key, bytes)?;
                fits(&q, key, bytes)
            };
            let (from, to) = (need("from")?, need("to")?);
            let step = q.size("step")?.unwrap_or(if from.is_multiple_of(1024) { 1024 } else { 512 });
            if step == 0 || from.div_ceil(step) > to / step || (to - from) / step > 1 << 16 {
                return Err(p.error(
                    "size",
                    "there is no size, or there are too many, from …, to …, by step".to_owned(),
                ));
            }
            q.finish()?;
            Ok(Some(Sizes::uniform(from, to, step)))
        }
        Some(Value::List(_)) => {
            let mut parts = Vec::new();
            for mut part in p.tables("size")? {
                let (size, share) = (part.size("size")?, part.share("share")?);
                let size = part.required("size", size)?;
                parts.push((fits(&part, "size", size)?, u64::from(part.required("share", share)?)));
                part.finish()?;
            }
            if parts.iter().all(|(_, share)| *share == 0) {
                return Err(p.error("size", "the shares of the sizes are all zero".to_owned()));
            }
            Ok(Some(Sizes::mix(&parts)))
        }
        _ => match p.size("size")? {
            None => Ok(None),
            Some(bytes) => Ok(Some(Sizes::fixed(fits(p, "size", bytes)?))),
        },
    }
}
