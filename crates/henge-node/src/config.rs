//! The node's configuration file.
//!
//! ```toml
//! listen = ["nbd://127.0.0.1:10809", "nbd+unix:///run/henge/nbd.sock"]
//! control = "/run/henge/node.sock"
//! # listen = "nbds://10.0.0.5:10809" and tls = { … }: `tls.rs`
//! http = "127.0.0.1:8080"               # the web page; elsewhere { listen = "0.0.0.0:8080", token_file = "/etc/henge/tokens" }
//! state_dir = "/var/lib/henge"          # what the node remembers; this is the default
//! busy_poll = "50us"                    # a client's next request is looked for so long before the node sleeps; "0us": not at all
//!
//! [[pool]]
//! name = "ssd"
//! path = "/srv/henge"                 # or device = "/dev/sdb", or memory = true
//! capacity = "200GB"
//! scheduler = { sfq = { depth = 32 } }
//!
//! [[disk]]
//! name = "web"
//! pool = "ssd"                        # or pools = ["a", "b"], striped; ["n1/a", "n2/b"] over nodes: `link_config.rs`
//! capacity = "96GB"
//! contract = { weight = 4, limit = "675/s" }
//! ```
//!
//! | key of a pool | means | default |
//! |---|---|---|
//! | `path`, `device`, `memory` | a directory of sparse files; a block device; memory | one is needed |
//! | `capacity` | bytes for disks | the device's, or the emulated disk's |
//! | `scheduler` | who goes next | `{ sfq = { depth = 32 } }` |
//! | `cost` | what a request is charged | what the disks' rates and limits count in, else the scheduler's |
//! | `emulated` | a device model whose time requests take | none |
//! | `direct` | past the page cache where possible | `true` |
//! | `engine` | `"auto"`, `"io_uring"` or `"threads"` | `"auto"` |
//! | `overcommit` | a directory's pool may promise more than its file system holds in all | `false` |
//! | `copies` | copies that its storage keeps by itself | 1 |
//! | `profile` | `{ iops, service }` at saturation, for the manager: `henge profile` | none |
//! | `faults`, `volatile`, `trace` | for tests: errors and stalls; a write cache that forgets; a line per request | none |

use crate::busy_poll::BusyPoll;
use crate::link_config::{self, LinkConfig, Nodes, PeerConfig};
use crate::manager::ManagerConfig;
use crate::tls::TlsConfig;
use henge_config::{ConfigError, Source};
use henge_core::{Duration, ParamError, Params, format_size};
use henge_nbd::Limits;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

mod disk;
mod fronts;
mod pool;
mod text;

pub use disk::DiskConfig;
pub(crate) use disk::disk;
pub use fronts::{Http, Listen};
pub(crate) use pool::scheduler;
pub use pool::{PoolConfig, SchedulerConfig};
pub(crate) use text::{at, check_name};

/// Where a node remembers when its file does not say.
pub(crate) const STATE_DIR: &str = "/var/lib/henge";

/// All of it.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Where clients come.
    pub listen: Vec<Listen>,
    /// The node's certificate, and whose it takes.
    pub tls: Option<TlsConfig>,
    /// Doors through which others than this machine's users come unasked, as `insecure = true` allows; in words.
    pub open: Vec<String>,
    /// Other machines reach a portal for iSCSI: each disk says who may log in.
    pub chap_needed: bool,
    /// Other machines reach a listener for NVMe: each disk that is shown there says how hosts prove who they are.
    pub proof_needed: bool,
    /// The control socket.
    pub control: Option<PathBuf>,
    /// The web page.
    pub http: Option<Http>,
    /// What the node remembers.
    pub state_dir: PathBuf,
    /// Whether the file says where.
    pub state_dir_stated: bool,
    /// For tests and demonstrations in this process: nothing is read from the folder or written there, and changes end with the node.
    pub forgets: bool,
    /// Who decides over it.
    pub manager: Option<ManagerConfig>,
    /// Bytes for all payloads together.
    pub buffers: usize,
    /// Most connections at once, in all, of one address, and at one disk.
    pub connections: usize,
    /// Most of one address.
    pub connections_per_address: usize,
    /// Most at one disk.
    pub connections_per_disk: usize,
    /// A payload of which nothing has come for so long ends its connection.
    pub payload_timeout: Duration,
    /// A command that has waited for memory for so long is told of.
    pub memory_wait: Duration,
    /// For how long a client's next request is looked for before the node sleeps.
    pub busy_poll: Duration,
    /// Bounds on each connection.
    pub limits: Limits,
    /// Where one row per request is written.
    pub requests: Option<PathBuf>,
    /// How it is linked to other nodes, if it is.
    pub link: Option<LinkConfig>,
    /// The other nodes.
    pub peers: Vec<PeerConfig>,
    /// Pools.
    pub pools: Vec<PoolConfig>,
    /// Disks.
    pub disks: Vec<DiskConfig>,
    /// The file, for errors that are found later.
    pub source: Source,
}

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
        let listen_span = p.error("listen", String::new()).span;
        let listen = fronts::listen(&mut p)?;
        let tls = TlsConfig::take(&mut p)?;
        let insecure = p.bool("insecure")?.unwrap_or(false);
        let control = p.text("control")?.map(PathBuf::from);
        let http = fronts::http(&mut p)?;
        let state_dir = p.text("state_dir")?;
        let state_dir_stated = state_dir.is_some();
        let state_dir = state_dir.unwrap_or_else(|| STATE_DIR.into()).into();
        let manager = match p.table("manager")? {
            None => None,
            Some(table) if state_dir_stated => Some(ManagerConfig::from_params(table)?),
            Some(_) => {
                let message = "a node with a manager needs a state_dir, like state_dir = \"/var/lib/henge\"";
                return Err(p.error("manager", message.into()));
            }
        };
        let buffers = p.size("buffers")?.unwrap_or(256 << 20);
        if buffers < 2 * LONGEST {
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
        let requests = p.text("requests")?.map(PathBuf::from);
        let (link, peers) = link_config::links(&mut p)?;
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
        if pools.is_empty() && link.is_none() {
            let message =
                "a node needs at least one [[pool]]; like [[pool]] name = \"ssd\" path = \"/srv/henge\"";
            return Err(p.error_here(message.to_owned()));
        }
        let mut disks: Vec<DiskConfig> = Vec::new();
        let mut names = BTreeSet::new();
        for table in p.tables("disk")? {
            let nodes = Nodes { here: link.as_ref().map(|link| link.name.as_str()), peers: &peers };
            let disk = disk(table, &pools, &|name| names.contains(name), nodes)?;
            names.insert(disk.name.clone());
            disks.push(disk);
        }
        p.finish()?;
        if let Some(missing) = fronts::missing(&listen, tls.as_ref(), &disks) {
            let span = if missing.span.is_empty() { listen_span } else { missing.span };
            return Err(ParamError { span, ..missing });
        }
        let open = fronts::open_doors(&listen, tls.as_ref(), &disks, manager.is_some());
        if let Some(why) = open.first().filter(|_| !insecure) {
            let help = "let it listen on 127.0.0.1 or a Unix socket, or write insecure = true where the network lets only \
                        those in who may";
            return Err(ParamError { message: why.clone(), help: Some(help.into()), span: listen_span });
        }
        for (i, pool) in pools.iter_mut().enumerate() {
            pool.scheduler.charge_as(disks.iter().filter(|d| d.pools.contains(&i)).map(|d| &d.contract));
        }
        let source = source.clone();
        Ok(NodeConfig {
            chap_needed: !insecure && fronts::by_iscsi_from_elsewhere(&listen).is_some(),
            proof_needed: !insecure && fronts::by_nvme_from_elsewhere(&listen).is_some(),
            open,
            listen,
            tls,
            control,
            http,
            state_dir,
            state_dir_stated,
            forgets: false,
            manager,
            buffers: usize::try_from(buffers).unwrap_or(usize::MAX),
            connections,
            connections_per_address,
            connections_per_disk,
            payload_timeout,
            memory_wait,
            busy_poll,
            limits,
            requests,
            link,
            peers,
            pools,
            disks,
            source,
        })
    }
}

/// The file cannot be read, or does not say what it should.
#[derive(Debug, thiserror::Error)]
pub enum NodeConfigError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It is wrong somewhere.
    #[error(transparent)]
    Config(#[from] ConfigError),
}
