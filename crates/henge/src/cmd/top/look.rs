//! Where `henge top` looks: nodes' control sockets, or a web page's server.

use henge_api::Request;
use henge_web::{About, Hub, NodeSample, Sample, Snapshot, Viewer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Everything, or why not.
pub type Look = Result<Snapshot, String>;

/// Looks once a second.
pub struct Looker {
    url: Option<String>,
    token: Option<String>,
    sockets: Vec<PathBuf>,
    hub: Hub,
    /// The last that was heard of each socket.
    last: BTreeMap<PathBuf, (NodeSample, std::time::Instant)>,
}

impl Looker {
    pub fn new(url: Option<String>, token: Option<String>, sockets: Vec<PathBuf>) -> Looker {
        Looker { url, token, sockets, hub: Hub::default(), last: BTreeMap::new() }
    }

    /// Looks on a thread of its own, until nobody listens.
    pub fn start(mut self) -> Receiver<Look> {
        let (sender, receiver) = mpsc::sync_channel(4);
        std::thread::spawn(move || {
            while sender.send(self.look()).is_ok() {
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        receiver
    }

    pub fn look(&mut self) -> Look {
        match &self.url {
            Some(url) => fetch(url, self.token.as_deref()),
            None => self.nodes(),
        }
    }

    fn nodes(&mut self) -> Look {
        let mut problems = Vec::new();
        for socket in &self.sockets {
            match ask(socket, self.sockets.len() > 1) {
                Ok(sample) => {
                    self.last.insert(socket.clone(), (sample, std::time::Instant::now()));
                }
                Err(problem) => {
                    problems.push(problem);
                    if let Some((sample, heard)) = self.last.get_mut(socket) {
                        sample.up = false;
                        sample.age_ms = heard.elapsed().as_millis() as u64;
                    }
                }
            }
        }
        if problems.len() == self.sockets.len() {
            return Err(problems.join("; "));
        }
        let about =
            About { kind: "nodes".into(), version: env!("CARGO_PKG_VERSION").into(), ..About::default() };
        let nodes = self.last.values().map(|(sample, _)| sample.clone()).collect();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        self.hub.see(Sample { about, nodes, disks: BTreeMap::new() }, wall);
        Ok(self.hub.snapshot(&Viewer::default()))
    }
}

fn ask(socket: &Path, several: bool) -> Result<NodeSample, String> {
    let reply = henge_api::ask(socket, &Request::Meters).map_err(|e| e.to_string())?;
    let status =
        reply.status.ok_or_else(|| reply.error.unwrap_or_else(|| "the node sent no meters".into()))?;
    let name = if several { socket.display().to_string() } else { "this node".into() };
    Ok(NodeSample { name, up: true, status: Arc::new(status), ..NodeSample::default() })
}

fn fetch(url: &str, token: Option<&str>) -> Look {
    let path = format!("{}/api/v1/live/snapshot", url.trim_end_matches('/'));
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(Duration::from_secs(5)))
        .http_status_as_error(false)
        .build()
        .into();
    let mut request = agent.get(&path);
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let mut response = request.call().map_err(|e| format!("{url}: {e}"))?;
    let status = response.status();
    if !status.is_success() {
        let told: serde_json::Value = response.body_mut().read_json().unwrap_or_default();
        let why = told["error"].as_str().unwrap_or("no reason given").to_owned();
        return Err(format!("{url}: {why} ({status})"));
    }
    let body = response.body_mut().with_config().limit(64 << 20);
    body.read_json().map_err(|e| format!("{url}: {e}"))
}
