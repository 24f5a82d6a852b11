//! `[[disk]]`: how much it holds, where, and what it is promised.

use super::PoolConfig;
use super::text::check_name;
use crate::front::{Doors, Kind};
use crate::link_config::{self, DISK_EXTENTS_MAX, Nodes, PlaceConfig};
use henge_backend::Origin;
use henge_core::{Contract, ParamError, Params, Value, format_size};
use henge_vdisk::Settings;
use std::collections::BTreeSet;
use std::ops::Range;

/// `[[disk]]`
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// Its name, and its export's.
    pub name: String,
    /// On which pools of this node, as indices; striped over all of them.
    pub pools: Vec<usize>,
    /// Where it lies on pools of the cluster: all of them, in the order of the stripes. Empty for a disk that is this
    /// node's alone.
    pub places: Vec<PlaceConfig>,
    /// Nodes of which each can serve it, in the order in which they take it over; none for a disk of its pools' nodes.
    pub gateways: Vec<String>,
    /// Other nodes by which clients come to it.
    pub through: Vec<String>,
    /// Bytes.
    pub capacity: u64,
    /// Stripe unit.
    pub stripe: u64,
    /// How much of the fair part of its rate each gate owes it, in millionths.
    pub leeway: u64,
    /// The contract's keys as they are written.
    pub terms: Vec<(String, Value)>,
    /// What they mean.
    pub contract: Contract,
    /// How commands are cut and counted.
    pub cutting: Cutting,
    /// Nobody may write.
    pub read_only: bool,
    /// What it begins with.
    pub beginning: Beginning,
    /// Who may use it, by each front end.
    pub doors: Doors,
    /// Places in the file.
    pub spans: DiskSpans,
}

/// How a disk's commands are cut and counted.
#[derive(Clone, Debug)]
pub struct Cutting {
    /// As its table says.
    pub settings: Settings,
    /// Its pools say how long a request may be.
    pub by_pool: bool,
}

/// What a disk begins with.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// What a former disk of this name left becomes this one's.
    pub adopt: bool,
    /// Where its bytes come from, on a pool of images.
    pub origin: Origin,
    /// Pools that had its parts when it was served last.
    pub had_on: BTreeSet<String>,
    /// Its removal had begun when the node ended.
    pub going: bool,
}

/// Where a disk stands in the file.
#[derive(Clone, Debug)]
pub struct DiskSpans {
    /// All of it.
    pub whole: Range<usize>,
    /// Its contract.
    pub contract: Range<usize>,
    /// Its capacity.
    pub capacity: Range<usize>,
}

/// Reads one `[[disk]]`.
pub(crate) fn disk(
    mut p: Params,
    pools: &[PoolConfig],
    is_taken: &dyn Fn(&str) -> bool,
    nodes: Nodes<'_>,
    kinds: &[&'static Kind],
) -> Result<DiskConfig, ParamError> {
    let span = p.span();
    let name = p.text("name")?;
    let name = p.required("name", name)?;
    check_name(&p, &name)?;
    if is_taken(&name) {
        return Err(p.error("name", format!("there is a disk \"{name}\" already")));
    }
    let gateways = gateways(&mut p, nodes)?;
    let through = nodes_of(&mut p, "through", nodes, "by which clients come to it")?;
    let (on, places) = match gateways.is_empty() {
        true => pools_of(&mut p, pools, nodes)?,
        false => shared_pool(&mut p, pools, &gateways, nodes)?,
    };
    let capacity_span = p.error("capacity", String::new()).span;
    let capacity = capacity(&mut p)?;
    let stripe = stripe(&mut p)?;
    let leeway = p.number("leeway")?.unwrap_or(1.0);
    if !(1.0..=100.0).contains(&leeway) {
        return Err(p.error("leeway", format!("leeway = {leeway} is out of range; it is from 1 to 100")));
    }
    let contract_span = p.error("contract", String::new()).span;
    let (terms, contract) = contract(&mut p)?;
    let (settings, by_pool) = commands(&mut p)?;
    let read_only = p.bool("read_only")?.unwrap_or(false);
    let adopt = p.bool("adopt")?.unwrap_or(false);
    let origin = origin(&mut p, &on, pools, &places)?;
    let doors = Doors::read(kinds, &mut p)?;
    p.finish()?;
    Ok(DiskConfig {
        name,
        pools: on,
        places,
        gateways,
        through,
        capacity,
        stripe,
        leeway: (leeway * 1e6).round() as u64,
        terms,
        contract,
        cutting: Cutting { settings, by_pool },
        read_only,
        beginning: Beginning { adopt, origin, had_on: BTreeSet::new(), going: false },
        doors,
        spans: DiskSpans { whole: span, contract: contract_span, capacity: capacity_span },
    })
}

/// In whole pages: at least what is written, and a multiple of every device's block.
fn capacity(p: &mut Params) -> Result<u64, ParamError> {
    let capacity = p.size("capacity")?;
    let capacity = p.required("capacity", capacity)?;
    if capacity == 0 {
        return Err(p.error("capacity", "a disk of 0 bytes holds nothing".into()));
    }
    let pages = capacity.checked_next_multiple_of(henge_backend::ALIGN as u64);
    pages.ok_or_else(|| p.error("capacity", "more than 64 bits can count".into()))
}

fn stripe(p: &mut Params) -> Result<u64, ParamError> {
    let page = henge_backend::ALIGN as u64;
    let stripe = p.size("stripe")?.unwrap_or(64 << 10);
    if stripe == 0 || !stripe.is_multiple_of(page) {
        return Err(p.error("stripe", format!("a stripe is a multiple of {}", format_size(page))));
    }
    Ok(stripe)
}

/// The contract's keys as they are written, and what they mean.
fn contract(p: &mut Params) -> Result<(Vec<(String, Value)>, Contract), ParamError> {
    let Some(mut table) = p.table("contract")? else { return Ok((Vec::new(), Contract::best_effort())) };
    let terms = terms_of(&table);
    let contract = Contract::from_params(&mut table)?;
    table.finish()?;
    Ok((terms, contract))
}

/// How commands are cut and counted, and whether its pools say how long a request may be. Zeroes that need not keep their room become
/// holes, in every store of ours: what is trimmed there reads as zeroes.
fn commands(p: &mut Params) -> Result<(Settings, bool), ParamError> {
    let Some(mut table) = p.table("commands")? else {
        return Ok((Settings { holes: true, ..Settings::default() }, true));
    };
    let is_stated = |name: &str| table.keys().iter().any(|key| key == name);
    let (holes, quantum) = (is_stated("holes"), is_stated("quantum"));
    let settings = Settings::take(&mut table)?;
    table.finish()?;
    Ok((Settings { holes: settings.holes || !holes, ..settings }, !quantum))
}

impl DiskConfig {
    /// Whether other nodes may know it.
    pub(crate) fn is_of_cluster(&self) -> bool {
        self.places.first().is_some_and(|place| !place.node.is_empty())
    }

    /// Whether its parts are this node's, by their names alone. Images are found by what they say of themselves, and may be another gateway's.
    pub(crate) fn has_own_parts(&self, pools: &[PoolConfig]) -> bool {
        self.gateways.is_empty() && !self.pools.iter().any(|pool| pools[*pool].medium.has_images())
    }

    /// Whether a node is one of those that have it or pass commands on to it. No other one has business with it.
    pub(crate) fn names(&self, node: &str) -> bool {
        let named = self.gateways.iter().chain(&self.through).any(|name| name == node);
        named || self.places.iter().any(|place| place.node == node)
    }
}

/// `gateways = ["n1", "n2"]`
fn gateways(p: &mut Params, nodes: Nodes<'_>) -> Result<Vec<String>, ParamError> {
    nodes_of(p, "gateways", nodes, "in the order in which they take the disk over")
}

/// A list of nodes: this one, or its peers.
fn nodes_of(p: &mut Params, key: &str, nodes: Nodes<'_>, what_for: &str) -> Result<Vec<String>, ParamError> {
    let span = p.error(key, String::new()).span;
    let Some(value) = p.take(key) else { return Ok(Vec::new()) };
    let wrong = |message: String, span: &Range<usize>| ParamError { message, help: None, span: span.clone() };
    let example = format!("{key} is a list of nodes, like [\"n1\", \"n2\"], {what_for}");
    let Value::List(items) = value else { return Err(wrong(example, &span)) };
    let Some(here) = nodes.here else {
        let why = format!("{key} are nodes of a cluster; this one needs a [link] with its name");
        return Err(wrong(why, &span));
    };
    let mut names: Vec<String> = Vec::new();
    for (value, span) in &items {
        let Value::Text(name) = value else { return Err(wrong(example, span)) };
        if name != here && !nodes.has(name) {
            return Err(wrong(format!("\"{name}\" is neither this node ({here}) nor a peer"), span));
        }
        if names.contains(name) {
            return Err(wrong(format!("\"{name}\" is named twice"), span));
        }
        names.push(name.clone());
    }
    if names.is_empty() { Err(wrong(example, &span)) } else { Ok(names) }
}

/// The one pool of a disk with gateways, which each of them has by that name: here, if this node is one, and as a place.
fn shared_pool(
    p: &mut Params,
    pools: &[PoolConfig],
    gateways: &[String],
    nodes: Nodes<'_>,
) -> Result<(Vec<usize>, Vec<PlaceConfig>), ParamError> {
    if p.get_mut("pools").is_some() {
        let why =
            "a disk with gateways has one pool, which each of them has by the same name: pool = \"ceph\"";
        return Err(p.error("pools", why.into()));
    }
    let place = |pool: &str| vec![PlaceConfig { node: gateways[0].clone(), pool: pool.to_owned() }];
    if !gateways.iter().any(|name| Some(name.as_str()) == nodes.here) {
        let pool = p.text("pool")?;
        let pool = p.required("pool", pool)?;
        return Ok((Vec::new(), place(&pool)));
    }
    let span = p.error("pool", String::new()).span;
    let (on, elsewhere) = pools_of(p, pools, nodes)?;
    let wrong = |message: String| ParamError { message, help: None, span: span.clone() };
    let [pool] = on[..] else {
        let why = format!("a disk with gateways names its pool without a node: pool = \"{}\"", {
            elsewhere.first().map_or("ceph", |place| place.pool.as_str())
        });
        return Err(wrong(why));
    };
    if !elsewhere.is_empty() || !pools[pool].medium.is_shared() {
        let why =
            format!("\"{}\" is this node's alone; gateways share a pool of images (rbd)", pools[pool].name);
        return Err(wrong(why));
    }
    Ok((on, place(&pools[pool].name)))
}

/// `image`, `from` and `fence`, which are for one disk on one pool of images.
fn origin(
    p: &mut Params,
    on: &[usize],
    pools: &[PoolConfig],
    places: &[PlaceConfig],
) -> Result<Origin, ParamError> {
    let keys = ["image", "from", "fence"];
    let key = keys.into_iter().find(|key| p.get_mut(key).is_some());
    let origin =
        Origin { image: p.text("image")?, from: p.text("from")?, fence: p.bool("fence")?.unwrap_or(false) };
    let Some(key) = key else { return Ok(origin) };
    if let Some(pool) = on.iter().map(|i| &pools[*i]).find(|pool| !pool.medium.has_images()) {
        let why = format!("{key} is for disks on pools of images (rbd), and \"{}\" is none", pool.name);
        return Err(p.error(key, why));
    }
    if on.len().max(places.len()) > 1 && !(origin.image.is_none() && origin.from.is_none()) {
        return Err(p.error(key, format!("a disk with {key} is one image, so it has one pool")));
    }
    origin.check().map_err(|(key, why)| p.error(key, why))?;
    Ok(origin)
}

/// The keys and values of a contract as written, to be changed one by one later.
fn terms_of(table: &Params) -> Vec<(String, Value)> {
    let mut copy = table.clone();
    table.keys().into_iter().filter_map(|key| copy.take(&key).map(|value| (key, value))).collect()
}

/// `pool = "ssd"`, `pools = ["a", "b"]`, or `pools = ["n1/a", "n2/b"]`: this node's pools, and the cluster's.
fn pools_of(
    p: &mut Params,
    pools: &[PoolConfig],
    nodes: Nodes<'_>,
) -> Result<(Vec<usize>, Vec<PlaceConfig>), ParamError> {
    let span = p.error("pool", String::new()).span;
    let names = match (p.take("pool"), p.take("pools")) {
        (Some(one), None) => vec![(one, span)],
        (None, Some(Value::List(items))) if !items.is_empty() => items,
        (None, Some(_)) => {
            return Err(p.error("pools", "pools is a list of names, like [\"a\", \"b\"]".into()));
        }
        (Some(_), Some(_)) => return Err(p.error("pools", "a disk has pool or pools, not both".into())),
        (None, None) if pools.len() == 1 => return Ok((vec![0], Vec::new())),
        (None, None) => return Err(p.error_here(format!("{} needs a pool", p.name()))),
    };
    let (mut on, mut places) = (Vec::new(), Vec::new());
    let count = names.len();
    if count > DISK_EXTENTS_MAX {
        return Err(
            p.error("pools", format!("{count} pools are named; a disk lies on {DISK_EXTENTS_MAX} at most"))
        );
    }
    for (value, span) in names {
        let wrong = |message: String| ParamError { message, help: None, span: span.clone() };
        let Value::Text(text) = &value else {
            return Err(wrong("a pool is named by a text, like \"ssd\"".into()));
        };
        let twice = || wrong(format!("\"{text}\" is named twice; a disk is on a pool once"));
        let place = link_config::place(text, &span, nodes)?;
        if let Some(place) = &place {
            if places.contains(place) {
                return Err(twice());
            }
            places.push(place.clone());
        }
        if place.as_ref().is_some_and(|place| Some(place.node.as_str()) != nodes.here) {
            continue;
        }
        let name = place.as_ref().map_or(text, |place| &place.pool);
        let Some(found) = pools.iter().position(|pool| pool.name == *name) else {
            let known: Vec<_> = pools.iter().map(|pool| pool.name.as_str()).collect();
            return Err(wrong(format!("there is no pool \"{name}\"; there are: {}", known.join(", "))));
        };
        if on.contains(&found) {
            return Err(twice());
        }
        on.push(found);
    }
    if !places.is_empty() && places.len() < count {
        let message = "either all pools are written with their node, like \"n1/ssd\", or none is";
        return Err(p.error_here(message.into()));
    }
    Ok((on, places))
}
