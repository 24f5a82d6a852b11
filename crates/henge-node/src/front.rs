//! What a front end says of itself: where its clients come, what a disk's table may say of it, and how a disk is shown there.
//!
//! A front end is a way by which clients use disks: a protocol. It is files of its own, and one line of the registry (`fronts.rs`). Its
//! [`Kind`] is what the configuration and people need; `Arrival` and the session that comes of it are the registry's.
//!
//! # Doors
//! What a disk's table says of a front end is a [`Door`]. A disk that one door guards is not shown by others that say nothing, so that no
//! open door stands beside a guarded one. A front end that cannot ask who comes keeps away from more: from each door that names somebody.

use henge_core::{ParamError, Params};
use henge_nbd::Tls;
use std::any::Any;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// The front ends of a node.
#[derive(Clone, Default, Debug)]
pub(crate) struct Kinds {
    pub all: Vec<&'static Kind>,
    /// Those by which other machines come: each disk that is shown there says who may use it.
    pub asked: Vec<&'static Kind>,
    /// Doors through which others than this machine's users come unasked, as `insecure = true` allows; in words.
    pub open: Vec<String>,
}

/// How a disk is shown at an address, or under another name of its host.
pub type Show = fn(at: &Local, host: Option<&str>, disk: &str) -> String;

/// How addresses of a front end begin.
#[derive(Debug)]
pub struct Scheme {
    /// What stands before "://".
    pub name: &'static str,
    /// The port where none is written; without any it is a Unix socket.
    pub port: Option<u16>,
    /// Whether clients speak TLS there.
    pub tls: Tls,
    /// An address, for messages; none where others will do.
    pub example: &'static str,
    /// How a disk is shown.
    pub show: Show,
    /// What is shown is no address but the command that attaches a disk.
    pub attaches: bool,
}

impl Scheme {
    /// By TCP, in clear, at this port where none is written.
    pub(crate) const fn tcp(name: &'static str, port: u16, show: Show) -> Scheme {
        Scheme { name, port: Some(port), tls: Tls::No, example: "", show, attaches: false }
    }
}

impl PartialEq for Scheme {
    fn eq(&self, other: &Scheme) -> bool {
        self.name == other.name
    }
}

impl Eq for Scheme {}

/// Where a node is to listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listen {
    /// For whom.
    pub scheme: &'static Scheme,
    /// A host and a port, or a path.
    pub at: At,
    /// Whether clients speak TLS there.
    pub tls: Tls,
}

/// A place as the configuration says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum At {
    /// `HOST:PORT`
    Host(String),
    /// A Unix socket.
    Path(PathBuf),
}

impl Listen {
    /// The host that other machines reach, if they do.
    pub(crate) fn reached_at(&self) -> Option<&str> {
        match &self.at {
            At::Host(host) if !is_loopback(host) => Some(host),
            _ => None,
        }
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.scheme.name;
        match &self.at {
            At::Host(host) => write!(f, "{name}://{host}"),
            At::Path(path) => write!(f, "{name}://{}", path.display()),
        }
    }
}

/// Whether only this machine's processes reach a host and port.
fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Where a node can be reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// By whom.
    pub scheme: &'static Scheme,
    /// At which address of this machine.
    pub at: Local,
}

/// An address of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Local {
    /// By TCP.
    Tcp(SocketAddr),
    /// By a Unix socket.
    Unix(PathBuf),
}

impl Local {
    /// `HOST:PORT`, or the path.
    pub(crate) fn text(&self, host: Option<&str>) -> String {
        match (self, host) {
            (Local::Tcp(at), Some(host)) => format!("{host}:{}", at.port()),
            (Local::Tcp(at), None) => at.to_string(),
            (Local::Unix(path), _) => path.display().to_string(),
        }
    }
}

impl Address {
    /// As clients write it; `export` is the disk. Of a protocol that has no such names, the command that attaches it.
    pub fn uri(&self, export: &str) -> String {
        (self.scheme.show)(&self.at, None, export)
    }
    /// The same, of a machine that clients know by another name.
    pub(crate) fn advertised(&self, host: Option<&str>, export: &str) -> String {
        (self.scheme.show)(&self.at, host, export)
    }
    /// By TCP: where, if it is that scheme's.
    pub fn tcp(&self, scheme: &str) -> Option<SocketAddr> {
        match self.at {
            Local::Tcp(at) if self.scheme.name == scheme => Some(at),
            _ => None,
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.scheme.name, self.at.text(None))
    }
}

/// What a disk's table says of a front end.
pub(crate) trait Door: Any + Debug + Send + Sync {
    /// The table says something.
    fn is_stated(&self) -> bool;
    /// Whoever comes by it proves who they are.
    fn guards(&self) -> bool;
    /// Somebody may come by it.
    fn lets_in(&self) -> bool {
        true
    }
    /// It says who may come, proven or not.
    fn names_somebody(&self) -> bool {
        self.guards()
    }
}

/// A door of which the table says no more than that it is there.
#[derive(Debug)]
pub(crate) struct Stated(pub bool);

impl Door for Stated {
    fn is_stated(&self) -> bool {
        self.0
    }
    fn guards(&self) -> bool {
        false
    }
}

/// What a disk's table says of all of them.
#[derive(Clone, Debug, Default)]
pub struct Doors(Vec<(&'static Kind, Arc<dyn Door>)>);

impl Doors {
    /// Reads each front end's key.
    pub(crate) fn read(kinds: &[&'static Kind], p: &mut Params) -> Result<Doors, ParamError> {
        let doors = kinds.iter().map(|kind| Ok((*kind, (kind.door)(p)?)));
        Ok(Doors(doors.collect::<Result<_, _>>()?))
    }
    /// What is said of the front end whose door is of that type.
    pub(crate) fn of<D: Door>(&self) -> Option<&D> {
        let any = |(_, door): &'_ &(&'static Kind, Arc<dyn Door>)| (door.as_ref() as &dyn Any).is::<D>();
        let (_, door) = self.0.iter().find(any)?;
        (door.as_ref() as &dyn Any).downcast_ref()
    }
    /// Whether a front end shows the disk.
    pub(crate) fn shown_by(&self, key: &str) -> bool {
        let Some((kind, door)) = self.0.iter().find(|(kind, _)| kind.key == key) else { return false };
        let closed = |other: &dyn Door| if kind.asks { other.guards() } else { other.names_somebody() };
        door.is_stated() || !self.0.iter().any(|(other, door)| other.key != key && closed(door.as_ref()))
    }
    /// Front ends by which somebody may come to the disk.
    pub(crate) fn open(&self) -> impl Iterator<Item = &'static str> {
        let open = |(kind, door): &&(&'static Kind, Arc<dyn Door>)| self.shown_by(kind.key) && door.lets_in();
        self.0.iter().filter(open).map(|(kind, _)| kind.key)
    }
    /// The first front end of those that would let anybody in who comes to the disk.
    pub(crate) fn unguarded(&self, of: &[&'static Kind]) -> Option<&'static Kind> {
        let open = |(kind, door): &&(&'static Kind, Arc<dyn Door>)| {
            of.iter().any(|of| of.key == kind.key) && self.shown_by(kind.key) && !door.guards()
        };
        self.0.iter().find(open).map(|(kind, _)| *kind)
    }
}

/// What the configuration needs to know of a front end.
pub(crate) struct Kind {
    /// Its key in a disk's table.
    pub key: &'static str,
    pub schemes: &'static [Scheme],
    /// It can ask clients who they are.
    pub asks: bool,
    /// `{ at = "…", tls = "…" }` is a listener, too.
    pub may_be_tls: bool,
    /// Takes its key out of a disk's table.
    pub door: fn(&mut Params) -> Result<Arc<dyn Door>, ParamError>,
    /// Why whoever reaches this listener may use a disk unasked. `proves`: TLS asks for certificates; `disk`: one that this front end shows
    /// and does not guard.
    pub risk: fn(listen: &Listen, host: &str, proves: bool, disk: Option<&str>) -> Option<String>,
    /// What a disk has to say where other machines come by it. Nothing where no disk has to.
    pub demand: Option<&'static str>,
}

impl Kind {
    /// One that cannot ask who comes, for the rest of a kind's fields.
    pub(crate) const OPEN: Kind = Kind {
        key: "",
        schemes: &[],
        asks: false,
        may_be_tls: false,
        door: |_| Ok(Arc::new(Stated(false))),
        risk: |listen, _, _, _| Some(format!("{listen}: whoever reaches it uses every disk that it shows")),
        demand: None,
    };
}

impl Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.key)
    }
}
