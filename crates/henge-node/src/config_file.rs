//! Reads the node's configuration file, whose keys `config.rs` explains.

use crate::busy_poll::BusyPoll;
use crate::config::fronts::{asked, http, listen, missing, open_doors, page_in_clear};
use crate::config::{
    Bounds, DiskConfig, Loops, NodeConfig, NodeConfigError, PoolConfig, STATE_DIR, StateConfig, disk, pool,
};
use crate::front::Kinds;
use crate::fronts;
use crate::link_config::{self, LinkConfig, Nodes, PeerConfig};
use crate::manager::ManagerConfig;
use henge_config::{ConfigError, Source};
use henge_core::{Duration, ParamError, Params, format_size};
use henge_nbd::Limits;
use henge_tls::TlsConfig;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The longest request that the longest command buffer holds, blocks around it included.
const LONGEST: u64 = henge_backend::BUFFER_MAX as u64;

impl NodeConfig {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, NodeConfigError> {
        let source = Source::read(path)?;
        Ok(Self::parse(source)?)
    }

    /// Reads a text.
    pub fn parse(source: Source) -> Result<Self, ConfigError> {
        let params = source.parse("the node")?;
        Self::from_params(params, &source).map_err(|e| source.point(e))
    }

    fn from_params(mut p: Params, source: &Source) -> Result<Self, ParamError> {
        let kinds = fronts::kinds();
        let listen_span = p.error("listen", String::new()).span;
        let listen = listen(&mut p, &kinds)?;
        let tls = TlsConfig::take(&mut p)?;
        let insecure = p.bool("insecure")?.unwrap_or(false);
        let control = p.text("control")?.map(PathBuf::from);
        let http_span = p.error("http", String::new()).span;
        let http = http(&mut p)?;
        let (state, manager) = remembers(&mut p, tls.as_ref())?;
        let (loops, mut bounds) = bounds(&mut p)?;
        let requests = p.text("requests")?.map(PathBuf::from);
        let (link, peers) = link_config::links(&mut p, tls.as_ref())?;
        let mut pools = pools(&mut p, link.is_some())?;
        let disks = disks(&mut p, &pools, link.as_ref(), &peers, &kinds)?;
        p.finish()?;
        if let Some(missing) = missing(&listen, http.as_ref(), tls.as_ref(), &disks) {
            let span = if missing.span.is_empty() { listen_span } else { missing.span };
            return Err(ParamError { span, ..missing });
        }
        let mut open = open_doors(&listen, &kinds, tls.as_ref(), &disks, manager.is_some());
        if let Some(why) = open.first().filter(|_| !insecure) {
            let help = "let it listen on 127.0.0.1 or a Unix socket, or write insecure = true where the network lets only \
                        those in who may";
            return Err(ParamError { message: why.clone(), help: Some(help.into()), span: listen_span });
        }
        if let Some(why) = http.as_ref().and_then(page_in_clear) {
            if !insecure {
                let help = "write https:// before the address and tls = { … }; or insecure = true where nobody listens";
                return Err(ParamError { message: why, help: Some(help.into()), span: http_span });
            }
            open.push(why);
        }
        for (i, pool) in pools.iter_mut().enumerate() {
            pool.scheduler.charge_as(disks.iter().filter(|d| d.pools.contains(&i)).map(|d| &d.contract));
        }
        if bounds.buffers == 0 {
            bounds.buffers = buffers_for(loops.cores, &pools);
        }
        Ok(NodeConfig {
            kinds: Kinds {
                asked: if insecure { Vec::new() } else { asked(&listen, &kinds) },
                all: kinds,
                open,
            },
            listen,
            tls,
            control,
            http,
            state,
            manager,
            loops,
            bounds,
            requests,
            link,
            peers,
            pools,
            disks,
            source: source.clone(),
        })
    }
}

/// The loops, and what clients may hold, and for how long; of memory nothing where it is not stated.
fn bounds(p: &mut Params) -> Result<(Loops, Bounds), ParamError> {
    let cores = p.integer("cores", 1, pool::CORES_MAX)?.map_or_else(all_but_one, |n| n as usize);
    let buffers = p.size("buffers")?;
    if buffers.is_some_and(|buffers| buffers < 2 * LONGEST) {
        return Err(p.error("buffers", format!("buffers is at least {}", format_size(2 * LONGEST))));
    }
    let connections = p.integer("connections", 1, 100_000)?.unwrap_or(4096) as usize;
    let mut part = |key, of: usize| Ok(p.integer(key, 1, 100_000)?.map_or(of.max(1), |n| n as usize));
    let connections_per_address = part("connections_per_address", connections / 2)?;
    let connections_per_disk = part("connections_per_disk", connections / 4)?;
    let busy_poll = p.duration("busy_poll")?.unwrap_or(BusyPoll::WINDOW);
    if busy_poll > BusyPoll::MOST {
        return Err(p.error("busy_poll", format!("busy_poll is at most {}", BusyPoll::MOST)));
    }
    let kernel_tls = p.bool("kernel_tls")?.unwrap_or(true);
    let mut patience = |key, default: u64| match p.duration(key)? {
        Some(time) if time < Duration::from_secs(1) => Err(p.error(key, format!("{key} is at least 1s"))),
        time => Ok(time.unwrap_or(Duration::from_secs(default))),
    };
    let (payload_timeout, memory_wait) = (patience("payload_timeout", 60)?, patience("memory_wait", 5)?);
    let limits = match p.table("limits")? {
        None => Limits::default(),
        Some(mut table) => {
            let limits = Limits::take(&mut table)?;
            table.finish()?;
            limits
        }
    };
    let stated = buffers.map(|buffers| usize::try_from(buffers).unwrap_or(usize::MAX));
    let bounds = Bounds {
        buffers: stated.unwrap_or(0),
        connections,
        connections_per_address,
        connections_per_disk,
        payload_timeout,
        memory_wait,
        limits,
    };
    Ok((Loops { cores, busy_poll, kernel_tls }, bounds))
}

/// Loops where the file does not say how many: one processor of those that this process may use is left to the kernel, and to clients here.
fn all_but_one() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    (cores - 1).clamp(1, pool::CORES_MAX as usize)
}

/// Memory for payloads where the file does not say how much: for two loops, or as much for each of more.
fn buffers_for(cores: usize, pools: &[PoolConfig]) -> usize {
    let loops = if pools.iter().any(|pool| pool.every_core) { cores } else { cores.min(pools.len()) };
    2 * LONGEST as usize * loops.max(2)
}

/// Where the node remembers, whether that is stated, and who decides over it.
fn remembers(
    p: &mut Params,
    tls: Option<&TlsConfig>,
) -> Result<(StateConfig, Option<ManagerConfig>), ParamError> {
    let state_dir = p.text("state_dir")?;
    let stated = state_dir.is_some();
    let state_dir = state_dir.unwrap_or_else(|| STATE_DIR.into()).into();
    let manager = match p.table("manager")? {
        None => None,
        Some(table) if stated => Some(ManagerConfig::from_params(table, tls)?),
        Some(_) => {
            let message = "a node with a manager needs a state_dir, like state_dir = \"/var/lib/henge\"";
            return Err(p.error("manager", message.into()));
        }
    };
    Ok((StateConfig { dir: state_dir, is_stated: stated, forgets: false }, manager))
}

fn pools(p: &mut Params, linked: bool) -> Result<Vec<PoolConfig>, ParamError> {
    let mut pools: Vec<PoolConfig> = Vec::new();
    for table in p.tables("pool")? {
        let name_span = table.span();
        let pool = pool::pool(table)?;
        if pools.iter().any(|other| other.name == pool.name) {
            let message = format!("there is a pool \"{}\" already", pool.name);
            return Err(ParamError { message, help: None, span: name_span });
        }
        pools.push(pool);
    }
    if pools.is_empty() && !linked {
        let message =
            "a node needs at least one [[pool]]; like [[pool]] name = \"ssd\" path = \"/srv/henge\"";
        return Err(p.error_here(message.to_owned()));
    }
    Ok(pools)
}

fn disks(
    p: &mut Params,
    pools: &[PoolConfig],
    link: Option<&LinkConfig>,
    peers: &[PeerConfig],
    kinds: &[&'static crate::front::Kind],
) -> Result<Vec<DiskConfig>, ParamError> {
    let mut disks: Vec<DiskConfig> = Vec::new();
    let mut names = BTreeSet::new();
    for table in p.tables("disk")? {
        let nodes = Nodes { here: link.map(|link| link.name.as_str()), peers: Some(peers) };
        let disk = disk(table, pools, &|name| names.contains(name), nodes, kinds)?;
        names.insert(disk.name.clone());
        disks.push(disk);
    }
    Ok(disks)
}
