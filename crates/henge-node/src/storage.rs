//! From the configuration's pools to stores.
//!
//! Whoever only looks (`--check`) makes, locks and writes nothing.

use crate::config::{NodeConfig, PoolConfig, at};
use henge_backend::registry::Wanted;
use henge_backend::{Emulated, Faulty, Options, Store, Traced, Volatile};
use henge_core::{Model, ParamError, format_size};
use henge_device::Built;
use std::io;

/// A pool's stores: one, or one per spindle with the stripe unit between them.
pub(crate) struct Stores {
    pub members: Vec<Box<dyn Store>>,
    pub unit: Option<u64>,
}

/// Opens everything under a pool; errors point at the pool.
pub(crate) fn open(pool: &PoolConfig, config: &NodeConfig, look: bool) -> Result<Stores, ParamError> {
    let (models, unit) = models(pool)?;
    let count = models.len() as u64;
    let mut members = Vec::new();
    for (i, model) in models.into_iter().enumerate() {
        let spindle = unit.map(|_| i);
        let member = medium(pool, config, spindle, pool.capacity / count, look)
            .and_then(|store| wrap(pool, spindle, model, store, look))
            .map_err(|e| at(&pool.spans.medium, e.to_string()))?;
        members.push(member);
    }
    Ok(Stores { members, unit })
}

/// How many stores a pool has.
pub(crate) fn members(pool: &PoolConfig) -> Result<usize, ParamError> {
    Ok(models(pool)?.0.len())
}

/// The models in front of a pool: none, one, or one per spindle.
fn models(pool: &PoolConfig) -> Result<(Vec<Option<Model>>, Option<u64>), ParamError> {
    let Some(spec) = pool.emulated.as_ref().map(|emulated| &emulated.device) else {
        return Ok((vec![None], None));
    };
    let built = spec.build();
    if pool.capacity > built.capacity() {
        return Err(at(
            &pool.spans.whole,
            format!(
                "pool \"{}\" is larger ({}) than the device it emulates ({})",
                pool.name,
                format_size(pool.capacity),
                format_size(built.capacity())
            ),
        ));
    }
    match built {
        Built::Array(array) if pool.scheduler.per_spindle => {
            // Parts begin at whole MiB on each spindle, so the units must, too.
            if !(1u64 << 20).is_multiple_of(array.stripes.unit) {
                let message = "per = \"spindle\" needs a stripe that divides 1MiB, like \"64KiB\"".to_owned();
                return Err(at(&pool.spans.whole, message));
            }
            Ok((array.spindles.into_iter().map(Some).collect(), Some(array.stripes.unit)))
        }
        built => {
            if pool.scheduler.per_spindle {
                return Err(at(
                    &pool.spans.whole,
                    "per = \"spindle\" needs an array; this is one device".into(),
                ));
            }
            Ok((vec![Some(built.into_model())], None))
        }
    }
}

fn medium(
    pool: &PoolConfig,
    config: &NodeConfig,
    spindle: Option<usize>,
    capacity: u64,
    look: bool,
) -> io::Result<Box<dyn Store>> {
    let short =
        pool.rehearsal.faults.filter(|faults| faults.short > 0).map(|faults| (faults.short, faults.seed));
    // A model and a cache in front know addresses below the capacity alone.
    let apart = pool.emulated.is_none() && pool.rehearsal.volatile.is_none();
    let (direct, engine) = (pool.direct, pool.engine);
    // An emulated disk is as large as its model, whatever plays it.
    let overcommit = pool.overcommit || pool.emulated.is_some();
    let options = Options { direct, engine, short, apart, look, overcommit, ..Options::default() };
    let opened = pool.medium.open(&Wanted { pool: &pool.name, spindle, capacity, options });
    if pool.medium.key() == "device" {
        return opened.map_err(|e| of_an_older_version(e, pool, config));
    }
    opened
}

/// A device that is no pool may be one of a version that kept its table in a file.
fn of_an_older_version(e: io::Error, pool: &PoolConfig, config: &NodeConfig) -> io::Error {
    let table = config.state.dir.join(format!("{}.extents", pool.name));
    if !table.exists() {
        return e;
    }
    let how =
        format!("an older version's table of it is {}: `henge pool import` keeps its disks", table.display());
    io::Error::new(e.kind(), format!("{e}; do not: {how}"))
}

/// What is configured in front of the medium, from the inside out.
fn wrap(
    pool: &PoolConfig,
    spindle: Option<usize>,
    model: Option<Model>,
    mut store: Box<dyn Store>,
    look: bool,
) -> io::Result<Box<dyn Store>> {
    if let Some(seed) = pool.rehearsal.volatile.filter(|_| !look) {
        store = Box::new(Volatile::new(seed, store)?);
    }
    if let Some(faults) = pool.rehearsal.faults {
        store = Box::new(Faulty::new(faults, store));
    }
    if let Some(model) = model {
        store = Box::new(Emulated::new(model, store));
    }
    if let Some(path) = pool.rehearsal.trace.as_ref().filter(|_| !look) {
        let path = spindle.map_or(path.clone(), |i| path.with_extension(format!("{i}.csv")));
        let file = std::fs::File::create(&path)?;
        store = Box::new(Traced::new(Box::new(io::BufWriter::new(file)), store)?);
    }
    Ok(store)
}
