//! The proxy's configuration file.
//!
//! ```toml
//! server = "10.0.0.1:3334"            # the PVFS2 server behind this proxy
//! control = "/run/henge/proxy.sock"
//! scheduler = { sfq = { depth = 4 } }
//!
//! [[flow]]
//! name = "weather"
//! contract = { weight = 4 }
//!
//! [[flow]]
//! name = "genomics"
//! contract = { weight = 1 }
//!
//! [[listen]]                          # OrangeFS zones: the port says whose it is
//! address = "10.0.0.9:4334"
//! flow = "weather"
//!
//! [[listen]]                          # here rules say whose it is
//! address = "10.0.0.9:5334"
//!
//! [[rule]]                            # the first rule that fits decides
//! client = "10.1.0.0/16"              # or user = 20001
//! flow = "genomics"
//! ```
//!
//! Where applications share several servers, each server's proxy knows the others, and a flow's share is one of the total:
//!
//! ```toml
//! sync = { predict = { every = "1MiB" } }   # or layout, or threshold
//!
//! [cluster]
//! node = "s1"                         # this proxy
//! identity = "/etc/henge/identity"    # as `henge join` wrote it; or, on a network of their own, secret_file = "/etc/henge/secret"
//! listen = "10.0.0.9:7001"
//!
//! # state_dir = "/var/lib/henge-proxy"    # at the top: keeps NODE.epoch, a number that grows with each start
//!
//! [[peer]]
//! name = "s2"
//! address = "10.0.0.10:7001"
//! ```
//!
//! A request counts 64 KiB at least, or what `least = "16KiB"` says; the same on all proxies.
//!
//! `metadata = { listattr = "256KiB" }` says so of a kind of request but for I/O, and of each 32 objects that it names.
//!
//! `pieces_max = 4096` answers a read or write of more contiguous pieces of its file with the error EMSGSIZE: a server goes through them one by one, and
//! does nothing else meanwhile. Without it any number goes.
//!
//! `record = "FILE"` writes a row for each I/O request that is over, as `henge sim --requests` does: for whoever wants to
//! know what came when, and to replay it in the simulator.
//!
//! What no port and no rule names is the flow `other`, best effort.

use henge_config::{ConfigError, Source};
use henge_core::{Contract, Duration, ParamError, Params};
use henge_pvfs2::{NAMES, Op};
use henge_tls::TlsConfig;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

/// Where a proxy remembers when its file does not say.
const STATE_DIR: &str = "/var/lib/henge-proxy";

/// Bytes that a request counts at least where its file does not say: about what its message and its seek keep a server from.
const LEAST: u64 = 64 << 10;

/// What can go wrong before and while a proxy runs.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// In the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// With a socket, a file, or the kernel.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
}

impl ProxyError {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        ProxyError::Io { what: what.into(), source: source.into() }
    }
}

/// One application.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// Its name.
    pub name: String,
    /// What it is promised.
    pub contract: Contract,
}

/// Where clients come in.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// Where.
    pub address: SocketAddr,
    /// Whose everything is that comes in there; `None` leaves it to the rules.
    pub flow: Option<usize>,
    /// Clients' packets are redirected here, so that no alias of the server names it.
    pub redirected: bool,
}

/// By what a rule tells clients apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// Addresses that share the first bits.
    Client {
        /// One of them.
        address: IpAddr,
        /// How many bits.
        bits: u32,
    },
    /// A user id, from the request (protocol 6000) or by the capability that the user was given (7000).
    User(u32),
}

impl Who {
    /// Whether an address is meant.
    pub fn is_address(&self, other: IpAddr) -> bool {
        let Who::Client { address, bits } = *self else { return false };
        let same = |a: u128, b: u128, width: u32| bits == 0 || (a ^ b) >> (width - bits) == 0;
        match (address, other.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

/// Whose a request is.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Which requests.
    pub who: Who,
    /// Index of the flow.
    pub flow: usize,
}

/// How proxies prove to each other who they are.
#[derive(Clone)]
pub enum Proof {
    /// All know the same.
    Secret(String),
    /// Each shows its certificate: of a folder that `henge join` wrote.
    Identity(TlsConfig),
}

/// The other proxies of the same file system.
#[derive(Clone)]
pub struct PeersConfig {
    /// How they call this one.
    pub name: String,
    /// All must name the same.
    pub cluster: String,
    /// How they prove who they are.
    pub proof: Proof,
    /// Where they link to this one.
    pub listen: SocketAddr,
    /// Their names and addresses.
    pub peers: Vec<(String, SocketAddr)>,
    /// How they keep each other informed: `sync = …` of the file.
    pub sync: Params,
}

impl std::fmt::Debug for PeersConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} with {:?}", self.name, self.cluster, self.peers)
    }
}

/// What requests count, and how long they may be.
#[derive(Clone, Debug)]
pub struct RequestsConfig {
    /// Bytes that one counts at least.
    pub least: u64,
    /// The same of kinds of metadata, by number.
    pub metadata: BTreeMap<i32, u64>,
    /// Contiguous pieces of its file that a read or write may have.
    pub pieces_max: u64,
}

/// The whole file.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server behind.
    pub server: SocketAddr,
    /// Where status is asked for.
    pub control: Option<PathBuf>,
    /// Where clients come in.
    pub listen: Vec<ListenConfig>,
    /// Applications; the last is `other`, for everyone that is not named.
    pub flows: Vec<FlowConfig>,
    /// Who is who.
    pub rules: Vec<Rule>,
    /// The scheduler's name.
    pub scheduler: String,
    /// What its writer should know of how it is written.
    pub hint: Option<String>,
    /// Its knobs.
    pub knobs: Params,
    /// What requests count, and how long they may be.
    pub requests: RequestsConfig,
    /// Where requests are recorded, if they are.
    pub record: Option<PathBuf>,
    /// Most client connections.
    pub connections: usize,
    /// The client's own time-out for a request, where it is not to be read from the server's configuration.
    pub client_timeout: Option<Duration>,
    /// The other proxies, where flows share several servers.
    pub peers: Option<PeersConfig>,
    /// Where a proxy with peers keeps its epoch; without, it is the clock's, which tests may do.
    pub state_dir: Option<PathBuf>,
    /// The text, for errors found later.
    pub source: Source,
}

impl Config {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ProxyError> {
        let source = Source::read(path).map_err(|e| ProxyError::io("the configuration", e))?;
        Ok(Self::parse(source)?)
    }

    /// Reads a text.
    pub fn parse(source: Source) -> Result<Self, ConfigError> {
        let params = source.parse("the proxy")?;
        Self::from_params(params, &source).map_err(|e| source.point(e))
    }

    fn from_params(mut p: Params, source: &Source) -> Result<Self, ParamError> {
        let server = address(&mut p, "server")?;
        let control = p.text("control")?.map(PathBuf::from);
        let record = p.text("record")?.map(PathBuf::from);
        let connections = p.integer("connections", 1, 100_000)?.unwrap_or(1024) as usize;
        let client_timeout = p.duration("client_timeout")?;
        let requests = RequestsConfig {
            least: p.size("least")?.unwrap_or(LEAST),
            metadata: metadata(&mut p)?,
            pieces_max: p.integer("pieces_max", 1, 1 << 32)?.unwrap_or(u64::MAX),
        };
        let flows = flows(&mut p)?;
        let mut listen = Vec::new();
        for mut table in p.tables("listen")? {
            let flow = flow_of(&mut table, &flows)?;
            let redirected = table.bool("redirected")?.unwrap_or(false);
            listen.push(ListenConfig { address: address(&mut table, "address")?, flow, redirected });
            table.finish()?;
        }
        if listen.is_empty() {
            return Err(p.error_here("nobody can come in; add [[listen]] address = \"0.0.0.0:4334\"".into()));
        }
        let rules = p.tables("rule")?.into_iter().map(|t| rule(t, &flows)).collect::<Result<_, _>>()?;
        let choice = p.choice("scheduler")?;
        let (scheduler, knobs) = choice.unwrap_or_else(|| ("sfq".to_owned(), Params::new("sfq")));
        let (scheduler, hint) = match henge_sched::respelled(&scheduler) {
            Some((right, hint)) => (right, Some(hint)),
            None => (scheduler, None),
        };
        let peers = peers(&mut p)?;
        let state_dir = p.text("state_dir")?.unwrap_or_else(|| STATE_DIR.into());
        p.finish()?;
        henge_sched::build(&scheduler, knobs.clone())?;
        let source = source.clone();
        Ok(Config {
            server,
            control,
            listen,
            flows,
            rules,
            scheduler,
            hint,
            knobs,
            requests,
            record,
            connections,
            client_timeout,
            peers,
            state_dir: Some(state_dir.into()),
            source,
        })
    }
}

/// `metadata = { listattr = "256KiB" }`.
fn metadata(p: &mut Params) -> Result<BTreeMap<i32, u64>, ParamError> {
    let Some(mut kinds) = p.table("metadata")? else { return Ok(BTreeMap::new()) };
    let mut least = BTreeMap::new();
    for name in kinds.keys() {
        let Some(op) = Op::from_name(&name) else {
            let known: Vec<&str> = NAMES.iter().map(|(_, name)| *name).collect();
            let message = format!("there is no metadata request \"{name}\"; there are: {}", known.join(", "));
            return Err(kinds.error(&name, message));
        };
        if let Some(bytes) = kinds.size(&name)? {
            least.insert(op.number(), bytes);
        }
    }
    kinds.finish()?;
    Ok(least)
}

/// `[cluster]`, `[[peer]]` and `sync`.
fn peers(p: &mut Params) -> Result<Option<PeersConfig>, ParamError> {
    let mut sync = Params::at("sync", p.error("sync", String::new()).span);
    let wanted = p.take("sync");
    let tables = p.tables("peer")?;
    let Some(mut cluster) = p.table("cluster")? else {
        if wanted.is_some() || !tables.is_empty() {
            let message = "peers belong to a cluster; add [cluster] node, identity and listen";
            return Err(p.error_here(message.into()));
        }
        return Ok(None);
    };
    if let Some(value) = wanted {
        let span = sync.span();
        sync.set("sync", value, span);
    }
    let name = cluster.text("node")?;
    let name = cluster.required("node (this proxy's name)", name)?;
    let cluster_name = cluster.text("name")?.unwrap_or_else(|| "henge".to_owned());
    let proof = proof(&mut cluster)?;
    let listen = address(&mut cluster, "listen")?;
    cluster.finish()?;
    let mut peers: Vec<(String, SocketAddr)> = Vec::new();
    for mut table in tables {
        let peer = table.text("name")?;
        let peer = table.required("name", peer)?;
        if peer == name || peers.iter().any(|(other, _)| *other == peer) {
            return Err(table.error("name", format!("there is a node \"{peer}\" already; names differ")));
        }
        peers.push((peer, address(&mut table, "address")?));
        table.finish()?;
    }
    henge_sched::foreign::synchronizer(&mut sync.clone(), henge_core::NodeId(0), 0)?;
    Ok(Some(PeersConfig { name, cluster: cluster_name, proof, listen, peers, sync }))
}

/// `identity = "…"`, or a secret.
fn proof(cluster: &mut Params) -> Result<Proof, ParamError> {
    let keys = cluster.keys();
    let has = |key: &str| keys.iter().any(|other| other == key);
    if !has("identity") {
        return henge_config::secret(cluster).map(Proof::Secret);
    }
    if has("secret") || has("secret_file") {
        let message = "certificates say who is who; take the secret out".into();
        return Err(cluster.error("identity", message));
    }
    let dir = cluster.text("identity")?.unwrap_or_default();
    Ok(Proof::Identity(TlsConfig::of(Path::new(&dir))))
}

/// The flows of the file, and `other` at the end.
fn flows(p: &mut Params) -> Result<Vec<FlowConfig>, ParamError> {
    let mut flows: Vec<FlowConfig> = Vec::new();
    for mut table in p.tables("flow")? {
        let name = table.text("name")?;
        let name = table.required("name", name)?;
        if flows.iter().any(|f| f.name == name) {
            return Err(table.error("name", format!("there is a flow \"{name}\" already")));
        }
        let contract = contract(&mut table)?;
        table.finish()?;
        flows.push(FlowConfig { name, contract });
    }
    match flows.iter().position(|f| f.name == "other") {
        Some(at) => {
            let other = flows.remove(at);
            flows.push(other);
        }
        None => flows.push(FlowConfig { name: "other".to_owned(), contract: Contract::best_effort() }),
    }
    Ok(flows)
}

fn contract(table: &mut Params) -> Result<Contract, ParamError> {
    let Some(mut terms) = table.table("contract")? else { return Ok(Contract::best_effort()) };
    let contract = Contract::from_params(&mut terms)?;
    terms.finish()?;
    Ok(contract)
}

fn flow_of(table: &mut Params, flows: &[FlowConfig]) -> Result<Option<usize>, ParamError> {
    let Some(name) = table.text("flow")? else { return Ok(None) };
    match flows.iter().position(|f| f.name == name) {
        Some(at) => Ok(Some(at)),
        None => {
            let known: Vec<&str> = flows.iter().map(|f| f.name.as_str()).collect();
            Err(table.error("flow", format!("there is no flow \"{name}\"; there are: {}", known.join(", "))))
        }
    }
}

fn rule(mut table: Params, flows: &[FlowConfig]) -> Result<Rule, ParamError> {
    let flow = flow_of(&mut table, flows)?;
    let flow = table.required("flow", flow)?;
    let user = table.integer("user", 0, u64::from(u32::MAX))?;
    let client = table.text("client")?;
    let who = match (user, client) {
        (Some(uid), None) => Who::User(uid as u32),
        (None, Some(text)) => client_network(&table, &text)?,
        _ => {
            return Err(table.error_here(
                "a rule names a user or a client: user = 20001, or client = \"10.1.0.0/16\"".into(),
            ));
        }
    };
    table.finish()?;
    Ok(Rule { who, flow })
}

fn client_network(table: &Params, text: &str) -> Result<Who, ParamError> {
    let wrong =
        || table.error("client", format!("\"{text}\" is no address; write \"10.1.2.3\" or \"10.1.0.0/16\""));
    let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => most,
        Some(bits) => bits.parse().ok().filter(|b| *b <= most).ok_or_else(wrong)?,
    };
    Ok(Who::Client { address, bits })
}

fn address(table: &mut Params, key: &str) -> Result<SocketAddr, ParamError> {
    let text = table.text(key)?;
    let text = table.required(key, text)?;
    let resolved = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    resolved.ok_or_else(|| {
        table.error(key, format!("\"{text}\" is no address with a port; write it like \"10.0.0.1:3334\""))
    })
}
