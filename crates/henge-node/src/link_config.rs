//! The part of a node's configuration that is about other nodes.
//!
//! ```toml
//! [link]
//! name = "n1"                         # this node, as the others call it
//! listen = "10.0.0.1:10810"           # where they come
//! secret_file = "/etc/henge/secret"   # what all nodes of the cluster know, and nobody else
//!
//! [[peer]]
//! name = "n2"
//! address = "10.0.0.2:10810"
//! iscsi = "10.0.0.2:3260"             # where initiators find the disks that it serves together with this node; may be left out
//!
//! [[disk]]
//! name = "web"
//! pools = ["n1/ssd", "n2/ssd"]        # the same on every node that serves it
//! stripe = "64KiB"
//! capacity = "96GB"
//! ```
//!
//! | key of `[link]` | means | default |
//! |---|---|---|
//! | `name` | this node's name; unique in the cluster | needed |
//! | `listen` | where peers come, `HOST:PORT` | needed; port 10810 |
//! | `secret`, `secret_file` | the shared secret, or the file that holds it | one is needed, unless an `identity` says who this node is |
//! | `cluster` | both ends of a link must name the same | `"henge"` |
//! | `timeout` | a part that a peer has not answered by then fails | `"10s"` |
//! | `announce` | service unknown to a node that this coordinator does not reach: told after so much; or `"never"` | `"1MiB"` |

use crate::config::text::check_name;
use henge_core::{Duration, ParamError, Params, Value};
use henge_nvme::PORT as NVME_PORT;
use henge_tls::TlsConfig;
use std::ops::Range;

/// Where peers come, where no port is written.
const PORT: u16 = 10_810;
/// Where initiators come, where no port is written.
const ISCSI_PORT: u16 = 3260;
/// Most extents of a disk, so most pools that it lies on.
pub(crate) const DISK_EXTENTS_MAX: usize = 1024;
/// Shorter secrets can be found by trying.
const SECRET_MIN: usize = 16;
/// Longest file with a secret, in bytes.
const SECRET_FILE_MAX: u64 = 4096;

/// `[link]`
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Both ends of a link name the same.
    pub cluster: String,
    /// This node.
    pub name: String,
    /// Where peers come.
    pub listen: String,
    /// What all nodes know.
    /// Or none: each shows its certificate, by TLS.
    pub secret: Option<Secret>,
    /// How long a peer may take for a part.
    pub timeout: Duration,
    /// T of a coordinator, in bytes; without it nothing is announced.
    pub announce: Option<u64>,
}

/// A secret; never printed.
#[derive(Clone)]
pub struct Secret(pub(crate) Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a secret")
    }
}

/// `[[peer]]`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerConfig {
    /// Its name.
    pub name: String,
    /// `HOST:PORT`
    pub address: String,
    /// Where initiators come: `HOST:PORT`, if that is known.
    pub iscsi: Option<String>,
    /// Where hosts come by NVMe: `HOST:PORT`, if that is known.
    pub nvme: Option<String>,
}

/// A pool of the cluster: where a piece of a disk is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaceConfig {
    /// Which node; nothing for this one, of a disk that no other node knows.
    pub node: String,
    /// Which of its pools.
    pub pool: String,
}

impl std::fmt::Display for PlaceConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.node, self.pool)
    }
}

/// The nodes that a disk may name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes<'a> {
    pub here: Option<&'a str>,
    /// Those that are known; `None`: any will do.
    pub peers: Option<&'a [PeerConfig]>,
}

impl Nodes<'_> {
    /// Whether it is another node that a disk may name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.peers.is_none_or(|peers| peers.iter().any(|peer| peer.name == name))
    }
}

/// Reads `[link]` and `[[peer]]`.
pub(crate) fn links(
    p: &mut Params,
    tls: Option<&TlsConfig>,
) -> Result<(Option<LinkConfig>, Vec<PeerConfig>), ParamError> {
    let link = match p.table("link")? {
        None => None,
        Some(table) => Some(link(table, tls)?),
    };
    let mut peers: Vec<PeerConfig> = Vec::new();
    for table in p.tables("peer")? {
        let span = table.span();
        let wrong = |message: String| ParamError { message, help: None, span: span.clone() };
        let peer = peer(table)?;
        let Some(link) = &link else {
            return Err(wrong("a [[peer]] needs a [link] with this node's own name".into()));
        };
        if peer.name == link.name {
            return Err(wrong(format!("\"{}\" is this node itself; peers are the others", peer.name)));
        }
        if peers.iter().any(|other| other.name == peer.name) {
            return Err(wrong(format!("there is a peer \"{}\" already", peer.name)));
        }
        peers.push(peer);
    }
    Ok((link, peers))
}

fn link(mut p: Params, tls: Option<&TlsConfig>) -> Result<LinkConfig, ParamError> {
    let name = p.text("name")?;
    let name = p.required("name", name)?;
    check_name(&p, &name)?;
    let listen = p.text("listen")?;
    let listen = address(&p, "listen", p.required("listen", listen)?)?;
    let stated = p.keys().iter().any(|key| key == "secret" || key == "secret_file");
    let identity = tls.is_some_and(|tls| tls.identity.is_some());
    let secret = if identity && !stated { None } else { Some(secret(&mut p)?) };
    let timeout = p.duration("timeout")?.unwrap_or(Duration::from_secs(10));
    if timeout < Duration::from_millis(100) || timeout > Duration::from_secs(3600) {
        return Err(p.error("timeout", format!("timeout = {timeout} is out of range; 100ms to 1h")));
    }
    let announce = match p.get_mut("announce") {
        Some(Value::Text(text)) if text == "never" => {
            p.take("announce");
            None
        }
        _ => Some(p.size("announce")?.unwrap_or(1 << 20)),
    };
    if announce == Some(0) {
        return Err(p.error("announce", "a message for every byte; write it like \"1MiB\"".into()));
    }
    let cluster = p.text("cluster")?.unwrap_or_else(|| "henge".into());
    p.finish()?;
    Ok(LinkConfig { cluster, name, listen, secret, timeout, announce })
}

fn secret(p: &mut Params) -> Result<Secret, ParamError> {
    let (key, text) = match (p.text("secret")?, p.text("secret_file")?) {
        (Some(text), None) => ("secret", text),
        (None, Some(path)) => {
            let read = henge_io::read_text(path.as_ref(), SECRET_FILE_MAX);
            ("secret_file", read.map_err(|e| p.error("secret_file", e.to_string()))?)
        }
        (None, None) => {
            let message =
                "a link needs secret_file = \"/etc/henge/secret\": what all nodes of the cluster know";
            return Err(p.error_here(message.into()));
        }
        (Some(_), Some(_)) => {
            return Err(p.error("secret", "a link has secret or secret_file, not both".into()));
        }
    };
    let text = text.trim_end_matches(['\n', '\r']);
    if text.len() < SECRET_MIN {
        return Err(p.error(
            key,
            format!("a secret has at least {SECRET_MIN} bytes; like the output of `openssl rand -hex 16`"),
        ));
    }
    Ok(Secret(text.as_bytes().to_vec()))
}

/// Reads one `[[peer]]`.
pub(crate) fn peer(mut p: Params) -> Result<PeerConfig, ParamError> {
    let name = p.text("name")?;
    let name = p.required("name", name)?;
    check_name(&p, &name)?;
    let text = p.text("address")?;
    let address = address(&p, "address", p.required("address", text)?)?;
    let iscsi = match p.text("iscsi")? {
        None => None,
        Some(text) => Some(at_port(&p, "iscsi", text, ISCSI_PORT)?),
    };
    let nvme = match p.text("nvme")? {
        None => None,
        Some(text) => Some(at_port(&p, "nvme", text, NVME_PORT)?),
    };
    p.finish()?;
    Ok(PeerConfig { name, address, iscsi, nvme })
}

fn address(p: &Params, key: &str, text: String) -> Result<String, ParamError> {
    at_port(p, key, text, PORT)
}

fn at_port(p: &Params, key: &str, text: String, port: u16) -> Result<String, ParamError> {
    let (_, tail) = text.rsplit_once(']').unwrap_or(("", &text));
    let text = if tail.contains(':') { text } else { format!("{text}:{port}") };
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text),
        _ => Err(p.error(key, format!("\"{text}\" is no HOST:PORT, like \"10.0.0.2:{port}\""))),
    }
}

/// A pool's name as a disk states it: `Some` where it names a node.
pub(crate) fn place(
    text: &str,
    span: &Range<usize>,
    nodes: Nodes<'_>,
) -> Result<Option<PlaceConfig>, ParamError> {
    let Some((node, pool)) = text.split_once('/') else { return Ok(None) };
    let wrong = |message: String| ParamError { message, help: None, span: span.clone() };
    let Some(here) = nodes.here else {
        return Err(wrong(format!(
            "\"{text}\" is on a node of a cluster; this one needs a [link] with its name"
        )));
    };
    if node != here && !nodes.has(node) {
        let known: Vec<_> = nodes.peers.unwrap_or_default().iter().map(|peer| peer.name.as_str()).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        return Err(wrong(format!("\"{node}\" is neither this node ({here}) nor a peer; peers: {known}")));
    }
    if pool.is_empty() || pool.contains('/') {
        return Err(wrong(format!("\"{text}\" is no NODE/POOL, like \"{here}/ssd\"")));
    }
    Ok(Some(PlaceConfig { node: node.to_owned(), pool: pool.to_owned() }))
}
