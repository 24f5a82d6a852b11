//! The node's configuration file.
//!
//! ```toml
//! listen = ["nbd://127.0.0.1:10809", "nbd+unix:///run/henge/nbd.sock"]
//! control = "/run/henge/node.sock"
//! http = "127.0.0.1:8080"               # the web page; elsewhere { listen = "0.0.0.0:8080", token_file = "/etc/henge/tokens" }
//! state_dir = "/var/lib/henge"
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
//! | `copies` | copies that its storage keeps by itself | 1 |
//! | `profile` | `{ iops, service }` at saturation, for the manager: `henge profile` | none |
//! | `faults`, `volatile`, `trace` | for tests: errors and stalls; a write cache that forgets; a line per request | none |

use crate::link_config::{self, LinkConfig, Nodes, PeerConfig, PlaceConfig};
use crate::manager::ManagerConfig;
use henge_backend::{EngineChoice, Faults};
use henge_config::{ConfigError, Source};
use henge_core::{Contract, ParamError, Params, Value, format_size};
use henge_device::DeviceSpec;
use henge_nbd::Limits;
use henge_vdisk::Settings;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Where a node listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// `nbd://HOST:PORT`
    Tcp(String),
    /// `nbd+unix:///PATH`
    Unix(PathBuf),
    /// `iscsi://HOST:PORT`
    Iscsi(String),
}

/// What keeps a pool's data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Medium {
    /// A directory of sparse files.
    Path(PathBuf),
    /// A block device, or one big file.
    Device(PathBuf),
    /// Memory.
    Memory,
}

/// A scheduler by name with its knobs.
#[derive(Clone, Debug)]
pub struct SchedulerConfig {
    /// By which the registry knows it.
    pub name: String,
    /// Its parameters.
    pub knobs: Params,
    /// One gate for each spindle of an emulated array.
    pub per_spindle: bool,
}

impl SchedulerConfig {
    /// Where no cost is stated, the gate charges what its contracts count.
    pub(crate) fn charge_as<'a>(&mut self, contracts: impl Iterator<Item = &'a Contract>) {
        henge_sched::charge_as(&mut self.knobs, contracts);
    }
}

/// `[[pool]]`
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Its name.
    pub name: String,
    /// What keeps its data.
    pub medium: Medium,
    /// Bytes; 0 takes all of a device.
    pub capacity: u64,
    /// Its gate, or gates.
    pub scheduler: SchedulerConfig,
    /// The device it pretends to be …
    pub emulated: Option<DeviceSpec>,
    /// … as it is written.
    pub emulated_text: Option<String>,
    /// Past the page cache.
    pub direct: bool,
    /// What moves bytes.
    pub engine: EngineChoice,
    /// What goes wrong on purpose.
    pub faults: Option<Faults>,
    /// Seed of a volatile write cache.
    pub volatile: Option<u64>,
    /// Where a line per request is written.
    pub trace: Option<PathBuf>,
    /// Copies that its storage keeps.
    pub copies: u32,
    /// What it was measured to do.
    pub profile: Option<crate::manager::wire::Profile>,
    /// Its place in the file.
    pub span: Range<usize>,
    /// The place of the medium.
    pub medium_span: Range<usize>,
}

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
    pub settings: Settings,
    /// Nobody may write.
    pub read_only: bool,
    /// Who may use it by iSCSI.
    pub access: henge_iscsi::chap::Access,
    /// Its place in the file.
    pub span: Range<usize>,
    /// The contract's place.
    pub contract_span: Range<usize>,
    /// The capacity's place.
    pub capacity_span: Range<usize>,
}

/// `http = "127.0.0.1:8080"`, or a table with `listen` and `token_file`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Http {
    /// Where the web page and the metrics are.
    pub listen: std::net::SocketAddr,
    /// One token a line.
    pub token_file: Option<PathBuf>,
}

/// Where a node remembers what it must when its file does not say.
pub(crate) const STATE_DIR: &str = "/var/lib/henge";

/// All of it.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Where clients come.
    pub listen: Vec<Listen>,
    /// The control socket.
    pub control: Option<PathBuf>,
    /// The web page.
    pub http: Option<Http>,
    /// What the node remembers.
    pub state_dir: PathBuf,
    /// Whether the file says where; changes made while the node runs are kept only then.
    pub remembers: bool,
    /// Who decides over it.
    pub manager: Option<ManagerConfig>,
    /// Bytes for all payloads together.
    pub buffers: usize,
    /// Most connections at once.
    pub connections: usize,
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
        let listen = listen(&mut p)?;
        let control = p.text("control")?.map(PathBuf::from);
        let http = http(&mut p)?;
        let state_dir = p.text("state_dir")?;
        let remembers = state_dir.is_some();
        let state_dir = state_dir.unwrap_or_else(|| STATE_DIR.into()).into();
        let manager = match p.table("manager")? {
            None => None,
            Some(table) if remembers => Some(ManagerConfig::from_params(table)?),
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
            let pool = pool(table)?;
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
        for table in p.tables("disk")? {
            let nodes = Nodes { here: link.as_ref().map(|link| link.name.as_str()), peers: &peers };
            let disk = disk(table, &pools, &disks, nodes)?;
            disks.push(disk);
        }
        p.finish()?;
        for (i, pool) in pools.iter_mut().enumerate() {
            pool.scheduler.charge_as(disks.iter().filter(|d| d.pools.contains(&i)).map(|d| &d.contract));
        }
        let source = source.clone();
        Ok(NodeConfig {
            listen,
            control,
            http,
            state_dir,
            remembers,
            manager,
            buffers: usize::try_from(buffers).unwrap_or(usize::MAX),
            connections,
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

/// `listen = "…"` or a list of such.
fn listen(p: &mut Params) -> Result<Vec<Listen>, ParamError> {
    let span = p.error("listen", String::new()).span;
    let texts = match p.take("listen") {
        None => return Ok(Vec::new()),
        Some(Value::List(items)) => items,
        Some(one) => vec![(one, span)],
    };
    let parse = |(value, span): (Value, Range<usize>)| {
        let wrong = || ParamError {
            message:
                "listen is an address like \"nbd://127.0.0.1:10809\", \"nbd+unix:///run/henge/nbd.sock\" or \
                 \"iscsi://127.0.0.1:3260\""
                    .into(),
            help: None,
            span: span.clone(),
        };
        let Value::Text(text) = &value else { return Err(wrong()) };
        if let Some(path) = text.strip_prefix("nbd+unix://").filter(|p| p.starts_with('/')) {
            return Ok(Listen::Unix(path.into()));
        }
        let (host, iscsi) = match text.split_once("://") {
            Some(("nbd", host)) if !host.is_empty() => (host, false),
            Some(("iscsi", host)) if !host.is_empty() => (host, true),
            _ => return Err(wrong()),
        };
        let (_, tail) = host.rsplit_once(']').unwrap_or(("", host));
        let port = if iscsi { 3260 } else { 10809 };
        let host = if tail.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
        Ok(if iscsi { Listen::Iscsi(host) } else { Listen::Tcp(host) })
    };
    texts.into_iter().map(parse).collect()
}

/// The web page's address; one that other machines reach needs tokens.
fn http(p: &mut Params) -> Result<Option<Http>, ParamError> {
    const ADDRESS: &str = "an address and a port, like \"127.0.0.1:8080\" or \"[::1]:8080\"";
    let span = p.error("http", String::new()).span;
    let at = |message: String, help: Option<String>| ParamError { message, help, span: span.clone() };
    let (listen, token_file) = match p.take("http") {
        None => return Ok(None),
        Some(Value::Text(listen)) => (listen, None),
        Some(Value::Table(mut table)) => {
            let listen = table.text("listen")?;
            let listen = table.required("listen", listen)?;
            let token_file = table.text("token_file")?.map(PathBuf::from);
            table.finish()?;
            (listen, token_file)
        }
        Some(_) => return Err(at(format!("http is {ADDRESS}"), None)),
    };
    let text = listen.strip_prefix("http://").unwrap_or(&listen);
    let address = text.replacen("localhost:", "127.0.0.1:", 1).parse::<std::net::SocketAddr>();
    let Ok(listen) = address else { return Err(at(format!("http is {ADDRESS}, not \"{listen}\""), None)) };
    if token_file.is_none() && !listen.ip().is_loopback() {
        return Err(at(
            format!(
                "other machines reach {listen}, so it needs tokens; or let it be 127.0.0.1:{}",
                listen.port()
            ),
            Some(format!(
                "write http = {{ listen = \"{listen}\", token_file = \"/etc/henge/tokens\" }}, with one token a line, \
                 like `head -c 24 /dev/urandom | base64` gives"
            )),
        ));
    }
    Ok(Some(Http { listen, token_file }))
}

fn pool(mut p: Params) -> Result<PoolConfig, ParamError> {
    let span = p.span();
    let name = p.text("name")?;
    let name = p.required("name", name)?;
    check_name(&p, &name)?;
    let (medium, medium_span) = medium(&mut p)?;
    let capacity = p.size("capacity")?;
    let emulated_text = p.get_mut("emulated").map(|written| toml(written));
    let emulated = DeviceSpec::from_params(&mut p, "emulated", &model_file)?;
    let scheduler = scheduler(&mut p)?;
    let capacity = match (capacity, &medium, &emulated) {
        (Some(0), ..) => return Err(p.error("capacity", "a pool of 0 bytes holds nothing".into())),
        (Some(capacity), ..) => capacity,
        (None, Medium::Device(_), _) => 0,
        (None, _, Some(spec)) => spec.build().capacity(),
        (None, ..) => {
            return Err(p.error_here(format!("pool \"{name}\" needs a capacity, like capacity = \"200GB\"")));
        }
    };
    let engine = match p.text("engine")?.as_deref() {
        None | Some("auto") => EngineChoice::Auto,
        Some("io_uring") => EngineChoice::Uring,
        Some("threads") => EngineChoice::Threads,
        Some(other) => {
            return Err(p.error(
                "engine",
                format!("engine is \"auto\", \"io_uring\" or \"threads\", not \"{other}\""),
            ));
        }
    };
    let faults = match p.table("faults")? {
        None => None,
        Some(mut table) => {
            let faults = Faults::from_params(&mut table)?;
            table.finish()?;
            Some(faults)
        }
    };
    let volatile = match p.table("volatile")? {
        None => None,
        Some(mut table) => {
            let seed = table.integer("seed", 0, i64::MAX as u64)?.unwrap_or(1);
            table.finish()?;
            Some(seed)
        }
    };
    let pool = PoolConfig {
        name,
        medium,
        capacity,
        scheduler,
        emulated,
        emulated_text,
        direct: p.bool("direct")?.unwrap_or(true),
        engine,
        faults,
        volatile,
        trace: p.text("trace")?.map(PathBuf::from),
        copies: p.integer("copies", 1, 16)?.unwrap_or(1) as u32,
        profile: crate::manager::profile(&mut p)?,
        span,
        medium_span,
    };
    if pool.scheduler.per_spindle && pool.emulated.is_none() {
        return Err(p.error(
            "scheduler",
            "per = \"spindle\" needs an emulated array; add emulated = { raid0 = 4, … }".into(),
        ));
    }
    if pool.scheduler.per_spindle && matches!(pool.medium, Medium::Device(_)) {
        return Err(p.error("device", "per = \"spindle\" needs a directory or memory, not a device".into()));
    }
    p.finish()?;
    Ok(pool)
}

fn medium(p: &mut Params) -> Result<(Medium, Range<usize>), ParamError> {
    let path = p.text("path")?;
    let device = p.text("device")?;
    let memory = p.bool("memory")?.unwrap_or(false);
    let place = |key: &str| p.error(key, String::new()).span;
    match (path, device, memory) {
        (Some(path), None, false) => Ok((Medium::Path(path.into()), place("path"))),
        (None, Some(device), false) => Ok((Medium::Device(device.into()), place("device"))),
        (None, None, true) => Ok((Medium::Memory, place("memory"))),
        (None, None, false) => Err(p.error_here(format!(
            "a {} needs path = \"/srv/henge\", device = \"/dev/sdb\" or memory = true",
            p.name()
        ))),
        _ => Err(p.error_here(format!("a {} has one of path, device and memory", p.name()))),
    }
}

/// Reads `scheduler = …` and the pool's `cost = …` beside it.
pub(crate) fn scheduler(p: &mut Params) -> Result<SchedulerConfig, ParamError> {
    let (name, mut knobs) =
        p.choice("scheduler")?.unwrap_or_else(|| ("sfq".into(), Params::at("sfq", p.span())));
    if name == "sfq" && knobs.get_mut("depth").is_none() {
        knobs = knobs.with("depth", Value::Integer(32));
    }
    let span = p.error("cost", String::new()).span;
    if let Some(cost) = p.take("cost") {
        if knobs.get_mut("cost").is_some() {
            return Err(p.error("cost", "the scheduler has a cost already; leave one of them out".into()));
        }
        knobs.set("cost", cost, span);
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
    Ok(SchedulerConfig { name, knobs, per_spindle })
}

fn model_file(name: &str) -> Result<String, String> {
    std::fs::read_to_string(name).map_err(|e| e.to_string())
}

/// Reads one `[[disk]]`.
pub(crate) fn disk(
    mut p: Params,
    pools: &[PoolConfig],
    others: &[DiskConfig],
    nodes: Nodes<'_>,
) -> Result<DiskConfig, ParamError> {
    let span = p.span();
    let name = p.text("name")?;
    let name = p.required("name", name)?;
    check_name(&p, &name)?;
    if others.iter().any(|other| other.name == name) {
        return Err(p.error("name", format!("there is a disk \"{name}\" already")));
    }
    let (on, places) = pools_of(&mut p, pools, nodes)?;
    let capacity_span = p.error("capacity", String::new()).span;
    let capacity = p.size("capacity")?;
    let capacity = p.required("capacity", capacity)?;
    if capacity == 0 {
        return Err(p.error("capacity", "a disk of 0 bytes holds nothing".into()));
    }
    // Whole pages: at least what is written, and a multiple of every device's block.
    let page = henge_backend::ALIGN as u64;
    let capacity = capacity
        .checked_next_multiple_of(page)
        .ok_or_else(|| p.error("capacity", "more than 64 bits can count".into()))?;
    let stripe = p.size("stripe")?.unwrap_or(64 << 10);
    if stripe == 0 || !stripe.is_multiple_of(page) {
        return Err(p.error("stripe", format!("a stripe is a multiple of {}", format_size(page))));
    }
    let leeway = p.number("leeway")?.unwrap_or(1.0);
    if !(1.0..=100.0).contains(&leeway) {
        return Err(p.error("leeway", format!("leeway = {leeway} is out of range; it is from 1 to 100")));
    }
    let contract_span = p.error("contract", String::new()).span;
    let (terms, contract) = match p.table("contract")? {
        None => (Vec::new(), Contract::best_effort()),
        Some(mut table) => {
            let terms = terms_of(&table);
            let contract = Contract::from_params(&mut table)?;
            table.finish()?;
            (terms, contract)
        }
    };
    let settings = match p.table("commands")? {
        None => Settings::default(),
        Some(mut table) => {
            let settings = Settings::take(&mut table)?;
            table.finish()?;
            settings
        }
    };
    let read_only = p.bool("read_only")?.unwrap_or(false);
    let access = crate::access::access(&mut p)?;
    p.finish()?;
    Ok(DiskConfig {
        name,
        pools: on,
        places,
        capacity,
        stripe,
        leeway: (leeway * 1e6).round() as u64,
        terms,
        contract,
        settings,
        read_only,
        access,
        span,
        contract_span,
        capacity_span,
    })
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
    for (value, span) in names {
        let wrong = |message: String| ParamError { message, help: None, span: span.clone() };
        let Value::Text(text) = &value else { return Err(wrong("a pool is named by a text".into())) };
        let place = link_config::place(text, &span, nodes)?;
        if let Some(place) = &place {
            if places.contains(place) {
                return Err(wrong("a disk is on a pool once".into()));
            }
            places.push(place.clone());
        }
        if place.as_ref().is_some_and(|place| Some(place.node.as_str()) != nodes.here) {
            continue;
        }
        let name = place.as_ref().map_or(text, |place| &place.pool);
        let Some(found) = pools.iter().position(|pool| pool.name == *name) else {
            let known: Vec<_> = pools.iter().map(|pool| pool.name.as_str()).collect();
            return Err(wrong(format!("there is no such pool; there are: {}", known.join(", "))));
        };
        if on.contains(&found) {
            return Err(wrong("a disk is on a pool once".into()));
        }
        on.push(found);
    }
    if !places.is_empty() && places.len() < count {
        let message = "either all pools are written with their node, like \"n1/ssd\", or none is";
        return Err(p.error_here(message.into()));
    }
    Ok((on, places))
}

/// Names become file names and export names.
pub(crate) fn check_name(p: &Params, name: &str) -> Result<(), ParamError> {
    let fits = !name.is_empty()
        && name.len() <= 64
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if fits {
        return Ok(());
    }
    Err(p.error("name", format!("\"{name}\" is no name; up to 64 letters, digits, '.', '_' and '-' are")))
}

/// A value as TOML writes it, on one line.
pub(crate) fn toml(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("{text:?}"),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|(item, _)| toml(item)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(table) => table_text(table),
        plain => crate::operate::term(plain),
    }
}

fn table_text(table: &Params) -> String {
    let mut copy = table.clone();
    let keys = table.keys();
    let pair = |key: &String| copy.take(key).map(|value| format!("{key:?} = {}", toml(&value)));
    let pairs: Vec<String> = keys.iter().filter_map(pair).collect();
    format!("{{ {} }}", pairs.join(", "))
}

impl SchedulerConfig {
    /// As the configuration writes it.
    pub(crate) fn text(&self) -> String {
        let mut knobs = self.knobs.clone();
        if self.per_spindle {
            knobs.set("per", Value::Text("spindle".into()), 0..0);
        }
        format!("{{ {} = {} }}", self.name, table_text(&knobs))
    }
}

/// An error that belongs to a place of the file, found after it was read.
pub(crate) fn at(span: &Range<usize>, message: String) -> ParamError {
    ParamError { message, help: None, span: span.clone() }
}
