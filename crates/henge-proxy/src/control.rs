//! What a proxy says of itself, over its control socket.

use crate::config::ProxyError;
use henge_core::{Duration, WaitReason};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// One application.
#[derive(Clone, Debug)]
pub struct FlowStatus {
    /// Its name.
    pub name: String,
    /// I/O requests that are over.
    pub requests: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// I/O requests waiting or at the server.
    pub pending: u32,
    /// Of them at the server.
    pub in_flight: u32,
    /// Answered later than its bound.
    pub late: u64,
    /// Latency, half of the requests within it.
    pub latency_p50: Option<Duration>,
    /// 95 %.
    pub latency_p95: Option<Duration>,
    /// 99 %.
    pub latency_p99: Option<Duration>,
    /// Why it waits now.
    pub waiting: Option<WaitReason>,
}

/// The proxy as a whole.
#[derive(Clone, Debug)]
pub struct Status {
    /// Applications.
    pub flows: Vec<FlowStatus>,
    /// Client connections.
    pub connections: usize,
    /// Bytes held in buffers.
    pub buffered: usize,
    /// I/O requests at the server.
    pub in_flight: u32,
    /// Most that may be there.
    pub depth: u32,
    /// How long clients wait for a response.
    pub client_timeout: Duration,
    /// Connections taken since the start.
    pub accepted: u64,
    /// Connections beyond the most that are served.
    pub turned_away: u64,
    /// Connections that the server did not take.
    pub unreachable: u64,
    /// Requests dropped because their client had given up.
    pub expired: u64,
    /// Requests that the server did not answer, or whose data stopped, for as long as a client waits.
    pub unanswered: u64,
    /// Requests whose capability two users hold; they went to `other`.
    pub ambiguous: u64,
    /// Requests that could not be decoded; they passed unscheduled.
    pub malformed: u64,
    /// Requests beyond what is followed on one connection; they passed unscheduled.
    pub unfollowed: u64,
    /// I/O requests of servers; they passed at once.
    pub between_servers: u64,
    /// Connections that do not speak PVFS2; everything passed.
    pub opaque: u64,
    /// Other proxies.
    pub peers: usize,
    /// Of them linked now.
    pub linked: usize,
    /// Messages to them.
    pub messages_sent: u64,
    /// Messages from them.
    pub messages_received: u64,
    /// Bytes to them.
    pub link_bytes_sent: u64,
    /// Links that were refused.
    pub links_refused: u64,
}

impl Status {
    /// As JSON; times in nanoseconds, sizes in bytes.
    pub fn to_json(&self) -> Value {
        let ns = |d: Option<Duration>| d.map(Duration::as_nanos);
        let flows: Vec<Value> = self
            .flows
            .iter()
            .map(|f| {
                json!({
                    "name": f.name, "requests": f.requests, "bytes": f.bytes, "pending": f.pending,
                    "in_flight": f.in_flight, "late": f.late, "latency_p50_ns": ns(f.latency_p50),
                    "latency_p95_ns": ns(f.latency_p95), "latency_p99_ns": ns(f.latency_p99),
                    "waiting": f.waiting.map(WaitReason::as_str),
                })
            })
            .collect();
        json!({
            "flows": flows, "connections": self.connections, "buffered_bytes": self.buffered,
            "in_flight": self.in_flight, "depth": self.depth, "client_timeout_ns": self.client_timeout.as_nanos(),
            "accepted": self.accepted, "turned_away": self.turned_away, "unreachable": self.unreachable,
            "expired": self.expired, "unanswered": self.unanswered, "ambiguous": self.ambiguous, "malformed": self.malformed,
            "unfollowed": self.unfollowed, "between_servers": self.between_servers, "opaque": self.opaque,
            "peers": self.peers, "linked": self.linked, "messages_sent": self.messages_sent,
            "messages_received": self.messages_received, "link_bytes_sent": self.link_bytes_sent,
            "links_refused": self.links_refused,
        })
    }

    pub(crate) fn to_line(&self) -> String {
        format!("{}\n", self.to_json())
    }

    /// Asks a running proxy.
    pub fn ask(control: &Path) -> Result<Value, ProxyError> {
        let what = || format!("asking {}", control.display());
        let mut stream = UnixStream::connect(control).map_err(|e| ProxyError::io(what(), e))?;
        let patience = Some(std::time::Duration::from_secs(5));
        stream.set_read_timeout(patience).map_err(|e| ProxyError::io(what(), e))?;
        stream.write_all(b"status\n").map_err(|e| ProxyError::io(what(), e))?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).map_err(|e| ProxyError::io(what(), e))?;
        serde_json::from_str(&line).map_err(|e| ProxyError::io(what(), e))
    }
}

/// Opens the control socket; one left behind by a proxy that is gone is replaced.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, ProxyError> {
    let what = || format!("the control socket {}", path.display());
    if path.exists() && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path).map_err(|e| ProxyError::io(what(), e))?;
    }
    let listener = UnixListener::bind(path).map_err(|e| ProxyError::io(what(), e))?;
    listener.set_nonblocking(true).map_err(|e| ProxyError::io(what(), e))?;
    Ok(listener)
}
