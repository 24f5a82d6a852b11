//! The node's configuration file.
//!
//! ```toml
//! listen = ["nbd://127.0.0.1:10809", "nbd+unix:///run/henge/nbd.sock"]
//! control = "/run/henge/node.sock"
//! # listen = "nbds://10.0.0.5:10809" and tls = { … }: `tls.rs`
//! http = "127.0.0.1:8080"               # the web page; elsewhere { listen = "https://10.0.0.5:8080", token_file = "/etc/henge/tokens" }
//! state_dir = "/var/lib/henge"          # what the node remembers; this is the default
//! cores = 4                             # loops, each on a core of its own, among which pools are divided; all cores but one are the default
//! busy_poll = "50us"                    # a client's next request is looked for so long before the node sleeps; "0us": not at all
//! kernel_tls = true                     # the kernel encrypts what is sent by TLS, where it can; this is the default
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
//! | `shard` | the loop that it belongs to, counted from 0 | the node divides its pools |
//! | `every_core` | every core serves clients of its disks; its gate stays on one | `false` |
//! | `direct` | past the page cache where possible | `true` |
//! | `engine` | `"auto"`, `"io_uring"` or `"threads"` | `"auto"` |
//! | `overcommit` | a directory's pool may promise more than its file system holds in all | `false` |
//! | `copies` | copies that its storage keeps by itself | 1 |
//! | `profile` | `{ iops, service }` at saturation, for the manager: `henge profile` | none |
//! | `faults`, `volatile`, `trace` | for tests: errors and stalls; a write cache that forgets; a line per request | none |

use crate::front::Kinds;
use crate::link_config::{LinkConfig, PeerConfig};
use crate::manager::config::ManagerConfig;
use henge_config::{ConfigError, Source};
use henge_core::Duration;
use henge_nbd::Limits;
use henge_tls::TlsConfig;
use std::path::PathBuf;

mod disk;
pub(crate) mod fronts;
pub(crate) mod pool;
pub(crate) mod text;

pub use crate::front::Listen;
pub(crate) use disk::disk;
pub use disk::{Beginning, Cutting, DiskConfig, DiskSpans};
pub use fronts::Http;
pub(crate) use pool::scheduler;
pub use pool::{Emulated, PoolConfig, PoolSpans, Rehearsal, SchedulerConfig};
pub(crate) use text::at;

/// Where a node remembers when its file does not say.
pub(crate) const STATE_DIR: &str = "/var/lib/henge";

/// All of it.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Where clients come.
    pub listen: Vec<Listen>,
    /// The node's certificate, and whose it takes.
    pub tls: Option<TlsConfig>,
    /// All front ends.
    pub(crate) kinds: Kinds,
    /// The control socket.
    pub control: Option<PathBuf>,
    /// The web page.
    pub http: Option<Http>,
    /// What the node remembers.
    pub state: StateConfig,
    /// Who decides over it.
    pub manager: Option<ManagerConfig>,
    /// Its loops.
    pub loops: Loops,
    /// What clients may take in all.
    pub bounds: Bounds,
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

/// A node's loops.
#[derive(Clone, Debug)]
pub struct Loops {
    /// How many, each on a core of its own, at most.
    pub cores: usize,
    /// For how long a client's next request is looked for before one sleeps.
    pub busy_poll: Duration,
    /// Whether the kernel may seal what clients and peers by TLS are sent.
    pub kernel_tls: bool,
}

/// What a node remembers, and where.
#[derive(Clone, Debug)]
pub struct StateConfig {
    /// The folder.
    pub dir: PathBuf,
    /// Whether the file says where.
    pub is_stated: bool,
    /// For tests and demonstrations in this process: nothing is read from the folder or written there, and changes end with the node.
    pub forgets: bool,
}

/// What clients may take of a node.
#[derive(Clone, Debug)]
pub struct Bounds {
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
    /// Bounds on each connection.
    pub limits: Limits,
}

impl NodeConfig {
    /// Doors through which others than this machine's users come unasked, as `insecure = true` allows; in words.
    pub fn open_doors(&self) -> &[String] {
        &self.kinds.open
    }

    /// Whether other machines come by this front end, so that each disk that it shows says who may use it.
    pub fn demands(&self, front: &str) -> bool {
        self.kinds.asked.iter().any(|kind| kind.key == front)
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
