//! What a proxy says of itself, over its control socket.

use crate::config::ProxyError;
use crate::peers::PeerCounts;
use crate::poller::{Interest, Poller};
use crate::socket::{REST, lacks_descriptors};
use henge_core::{Duration, Instant, WaitReason};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// One application.
#[derive(Clone, Debug)]
pub struct FlowStatus {
    /// Its name.
    pub name: String,
    /// Requests that are over, metadata at the application's own port among them.
    pub requests: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Requests waiting or at the server.
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
    /// Requests at the server.
    pub in_flight: u32,
    /// Most that may be there.
    pub depth: u32,
    /// How long clients wait for a response.
    pub client_timeout: Duration,
    /// What happened since the start.
    pub counts: Counts,
    /// Other proxies.
    pub peers: usize,
    /// Of them linked now.
    pub linked: usize,
    /// What went over their links.
    pub links: PeerCounts,
}

/// What happened since a proxy's start.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
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
    /// Requests of other protocols that could not be decoded. I/O among them waited its turn, and was charged as much; the rest passed.
    pub malformed: u64,
    /// Requests beyond what is followed on one connection, or with another's tag. They waited their turn, and were over as they went.
    pub unfollowed: u64,
    /// Requests of servers; they passed at once.
    pub between_servers: u64,
    /// Requests of administrators, and requests of servers where only clients come. Their connections ended.
    pub refused: u64,
    /// Reads and writes of more pieces than the configuration allows; they were answered with an error.
    pub too_long: u64,
    /// Requests that no server can go through; they were answered with an error.
    pub unsound: u64,
    /// Connections that do not speak PVFS2; everything passed.
    pub opaque: u64,
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
        let counts = &self.counts;
        json!({
            "flows": flows, "connections": self.connections, "buffered_bytes": self.buffered,
            "in_flight": self.in_flight, "depth": self.depth, "client_timeout_ns": self.client_timeout.as_nanos(),
            "accepted": counts.accepted, "turned_away": counts.turned_away, "unreachable": counts.unreachable,
            "expired": counts.expired, "unanswered": counts.unanswered, "ambiguous": counts.ambiguous, "malformed": counts.malformed,
            "unfollowed": counts.unfollowed, "between_servers": counts.between_servers, "refused": counts.refused, "too_long": counts.too_long,
            "unsound": counts.unsound, "opaque": counts.opaque,
            "peers": self.peers, "linked": self.linked, "messages_sent": self.links.sent,
            "messages_received": self.links.received, "link_bytes_sent": self.links.bytes_sent,
            "links_refused": self.links.refused,
        })
    }

    fn to_line(&self) -> String {
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

/// Names of the control socket and of callers, for the poller.
pub(crate) const CONTROL: u64 = 1 << 40;
pub(crate) const ASKER: u64 = 1 << 42;
/// Callers at once.
const ASKERS_MAX: usize = 64;

/// The control socket, and who asks there.
pub(crate) struct Control {
    /// None where the configuration has none, and once the proxy leaves.
    socket: Option<UnixListener>,
    askers: BTreeMap<u64, UnixStream>,
    next_asker: u64,
    /// Nobody is accepted before.
    rests_until: Option<Instant>,
}

impl Control {
    pub(crate) fn open(path: Option<&Path>, poller: &Poller) -> Result<Self, ProxyError> {
        let socket = path.map(listen).transpose()?;
        if let Some(socket) = &socket {
            poller
                .add(socket, CONTROL, Interest::READ)
                .map_err(|e| ProxyError::io("the control socket", e))?;
        }
        Ok(Control { socket, askers: BTreeMap::new(), next_asker: 0, rests_until: None })
    }

    /// Nobody new is heard.
    pub(crate) fn close(&mut self) {
        self.socket = None;
    }

    pub(crate) fn accept(&mut self, poller: &Poller, now: Instant) {
        let Some(socket) = &self.socket else { return };
        let asker = match socket.accept() {
            Ok((asker, _)) => asker,
            Err(e) if lacks_descriptors(&e) => {
                self.rests_until = Some(now + REST);
                // A poller that forgets the socket forgets it for good: nothing better can be done.
                let _ = poller.change(socket, CONTROL, Interest::default());
                return;
            }
            Err(_) => return,
        };
        if self.askers.len() >= ASKERS_MAX || asker.set_nonblocking(true).is_err() {
            return;
        }
        let name = ASKER | self.next_asker;
        self.next_asker += 1;
        if poller.add(&asker, name, Interest::READ).is_ok() {
            self.askers.insert(name, asker);
        }
    }

    /// Accepts again after a rest.
    pub(crate) fn tick(&mut self, poller: &Poller, now: Instant) {
        let is_over = self.rests_until.take_if(|at| *at <= now).is_some();
        if let Some(socket) = self.socket.as_ref().filter(|_| is_over) {
            let _ = poller.change(socket, CONTROL, Interest::READ);
        }
    }

    /// Any line asks for the status; the answer is one line of JSON.
    pub(crate) fn asked(&mut self, name: u64, status: &Status) {
        let Some(asker) = self.askers.get_mut(&name) else { return };
        let mut line = [0; 256];
        let answered = match asker.read(&mut line) {
            Ok(0) => false,
            Ok(n) if line[..n].contains(&b'\n') => asker.write_all(status.to_line().as_bytes()).is_ok(),
            Ok(_) => true,
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
        };
        if !answered {
            self.askers.remove(&name);
        }
    }
}

/// Opens the control socket; one left behind by a proxy that is gone is replaced.
fn listen(path: &Path) -> Result<UnixListener, ProxyError> {
    let what = || format!("the control socket {}", path.display());
    if path.exists() && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path).map_err(|e| ProxyError::io(what(), e))?;
    }
    let listener = UnixListener::bind(path).map_err(|e| ProxyError::io(what(), e))?;
    listener.set_nonblocking(true).map_err(|e| ProxyError::io(what(), e))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests have descriptors, too: it runs itself again.
    #[test]
    fn askers_that_no_descriptor_is_left_for_do_not_wake_the_loop_without_end() {
        let name = "control::tests::askers_that_no_descriptor_is_left_for_do_not_wake_the_loop_without_end";
        if !crate::children::is_alone(name) {
            return;
        }
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        use std::os::fd::AsRawFd;
        let dir = tempfile::tempdir().expect("a folder");
        let (path, poller) = (dir.path().join("control"), Poller::new().expect("epoll"));
        let mut control = Control::open(Some(&path), &poller).expect("it listens");
        let _asker = UnixStream::connect(&path).expect("connected");
        let limit = getrlimit(Resource::Nofile);
        let free = std::fs::File::open("/dev/null").expect("the next one").as_raw_fd() as u64;
        setrlimit(Resource::Nofile, Rlimit { current: Some(free), ..limit }).expect("fewer");
        let mut happened = Vec::new();
        let look = |happened: &mut Vec<_>| poller.wait(Some(Duration::ZERO), happened).expect("epoll");
        look(&mut happened);
        assert_eq!(happened.len(), 1, "somebody waits");
        control.accept(&poller, Instant::ZERO);
        happened.clear();
        control.tick(&poller, Instant::ZERO);
        look(&mut happened);
        setrlimit(Resource::Nofile, limit).expect("as before");
        assert!(happened.is_empty() && control.askers.is_empty(), "{happened:?}");
        control.tick(&poller, Instant::ZERO + REST);
        look(&mut happened);
        assert_eq!(happened.len(), 1);
        control.accept(&poller, Instant::ZERO + REST);
        assert_eq!(control.askers.len(), 1, "it is accepted once there is room");
    }
}
