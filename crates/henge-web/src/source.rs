//! Where the page's data comes from: a node alone, or the manager.

use crate::offer::{Attach, Tenant, Wanted};
use axum::Router;
use henge_api::{Event, Promise, Status};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Terms of a contract as the configuration writes them; an empty value takes a term away.
pub type Terms = BTreeMap<String, String>;

/// What the page shows and does. All calls may block (each runs on a thread for such), none for longer than some
/// seconds except [`compare`](Source::compare).
pub trait Source: Send + Sync + 'static {
    /// Everything as it stands. Called about once a second, however many look.
    fn sample(&self) -> Result<Sample, Problem>;

    /// Who a token belongs to. `None` is a request without one; `local` says that it came from this machine and
    /// that its browser means this machine (its Host header).
    fn viewer(&self, token: Option<&str>, local: bool) -> Result<Viewer, Problem>;

    /// Of the events that this viewer may see, the newest `most` that came after `after`, oldest first, of one disk or of all.
    fn events(
        &self,
        viewer: &Viewer,
        disk: Option<&str>,
        after: u64,
        most: usize,
    ) -> Result<Vec<Noted>, Problem>;

    /// Changes a disk's contract. Asked only for viewers who may.
    fn change(&self, viewer: &Viewer, disk: &str, terms: &Terms) -> Result<Changed, Problem>;

    /// What [`change`](Source::change) would answer, without changing anything.
    fn preview(&self, viewer: &Viewer, disk: &str, terms: &Terms) -> Result<Preview, Problem>;

    /// What [`create`](Source::create) would answer, without making anything.
    fn offer(&self, viewer: &Viewer, wanted: &Wanted) -> Result<Preview, Problem>;

    /// Makes a disk; how its clients attach. Asked only for viewers who may.
    fn create(&self, viewer: &Viewer, wanted: &Wanted) -> Result<Attach, Problem>;

    /// Removes a disk and its data, with `force` also one that clients use. Asked only for viewers who may.
    fn remove(&self, viewer: &Viewer, disk: &str, force: bool) -> Result<Changed, Problem>;

    /// How clients attach to a disk.
    fn attach(&self, viewer: &Viewer, disk: &str) -> Result<Attach, Problem>;

    /// The tenants that this viewer may see, with their quotas.
    fn tenants(&self, viewer: &Viewer) -> Result<Vec<Tenant>, Problem>;

    /// Sets terms of a tenant's quota; an empty one takes its bound away. Asked only for viewers who may.
    fn set_quota(&self, viewer: &Viewer, tenant: &str, terms: &Terms) -> Result<Changed, Problem>;

    /// Records the load for some seconds and simulates it under each of the schedulers. Asked only for viewers who may.
    fn compare(&self, viewer: &Viewer, wanted: &Compare) -> Result<Comparison, Problem>;

    /// Stands around the page's requests: an audit, which finds [`Asks`] in them, and [`Changed`] in answers.
    fn around(&self, routes: Router) -> Router {
        routes
    }
}

/// Who asks, once that is known: for whom put it into the request's extensions.
pub type Asks = Arc<OnceLock<Viewer>>;

/// What was changed, as it was and as it is; nothing where nobody notes that.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Changed {
    /// Before.
    pub before: Option<Value>,
    /// After; none of what is gone.
    pub after: Option<Value>,
}

/// Everything at one moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Whose it is.
    pub about: About,
    /// Every node, also those that are gone, with the last that was heard of them.
    pub nodes: Vec<NodeSample>,
    /// What is known of disks beyond what their nodes know, by name.
    pub disks: BTreeMap<String, DiskMeta>,
}

/// Who serves the page.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// `node` or `manager`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Of Henge.
    pub version: String,
    /// Terms that its disks' contracts may have, as forms ask for them.
    #[serde(default)]
    pub terms: Vec<henge_api::Field>,
}

/// A node.
#[derive(Clone, Debug, Default)]
pub struct NodeSample {
    /// Its name.
    pub name: String,
    /// Whether it answers.
    pub up: bool,
    /// How long ago its status came.
    pub age_ms: u64,
    /// As it answered [`henge_api::Request::Meters`]; times in it are the node's own.
    pub status: Arc<Status>,
    /// What its pools can do at most (measured), by pool, in the pool's unit a second.
    pub capable: BTreeMap<String, f64>,
    /// Requests a second that are reserved of them in all, by pool, where the source knows better than the node: of disks over
    /// several nodes a node knows its part alone.
    pub reserved: BTreeMap<String, f64>,
}

/// What the manager knows of a disk.
#[derive(Clone, Debug, Default)]
pub struct DiskMeta {
    /// Whose it is.
    pub tenant: Option<String>,
    /// The whole disk's contract, where its nodes know their parts of it alone.
    pub contract: Option<Terms>,
    /// The same in numbers.
    pub promise: Option<Promise>,
}

/// Who looks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Viewer {
    /// A name for people.
    pub name: String,
    /// Names its token, for an audit.
    #[serde(skip)]
    pub token: String,
    /// Sees only this tenant's disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Sees only this disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// May change contracts.
    pub may_change: bool,
    /// May make and remove disks.
    #[serde(default)]
    pub may_create: bool,
    /// May record and compare.
    pub may_compare: bool,
}

/// What happened, and to whose disk: names are given again, so a name does not say whose a disk was then.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Noted {
    /// What.
    #[serde(flatten)]
    pub event: Event,
    /// Whose disk it is about; none: the administrator's business.
    #[serde(skip)]
    pub tenant: Option<String>,
}

impl Viewer {
    /// Whether everything is this viewer's business.
    pub fn sees_all(&self) -> bool {
        self.tenant.is_none() && self.disk.is_none()
    }
    /// Whether a disk is.
    pub fn may_see(&self, name: &str, tenant: Option<&str>) -> bool {
        let theirs = self.disk.is_some() || self.tenant.is_some();
        let whose = !theirs || self.tenant.as_deref() == tenant;
        whose && self.disk.as_deref().is_none_or(|disk| disk == name)
    }
    /// Whether something that happened is.
    pub fn may_know(&self, noted: &Noted) -> bool {
        self.may_see(&noted.event.name, noted.tenant.as_deref())
    }
}

/// What an admission decision would be.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Preview {
    /// Whether it would be accepted.
    pub accepted: bool,
    /// Why, or why not and what would be; for people.
    pub why: String,
    /// More lines: what is promised on each pool before and after.
    pub lines: Vec<String>,
}

/// What to record and simulate.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compare {
    /// Which node; the only one where nothing is said.
    #[serde(default)]
    pub node: String,
    /// Which pool; the first where nothing is said.
    #[serde(default)]
    pub pool: String,
    /// How long to record.
    pub seconds: u32,
    /// Names, or tables as the configuration writes them.
    pub schedulers: Vec<String>,
}

/// The same load under several schedulers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// How many requests were recorded, and of which time.
    pub about: String,
    /// Width of a window in seconds.
    pub window: f64,
    /// One for each scheduler.
    pub runs: Vec<Run>,
}

/// One scheduler's outcome.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    /// The scheduler.
    pub name: String,
    /// Why it could not be simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Disk by disk.
    pub flows: Vec<RunFlow>,
}

/// One disk under one scheduler.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RunFlow {
    /// The disk.
    pub name: String,
    /// Commands a second, in all.
    pub rate: f64,
    /// Median latency in seconds.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Share of the commands that kept the promise.
    pub kept: f64,
    /// Commands a second, window by window.
    pub rates: Vec<f64>,
    /// 95th percentile of latency, window by window, in seconds.
    pub p95s: Vec<f64>,
}

/// Why something is not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// The node or manager does not answer.
    #[error("{0}")]
    Gone(String),
    /// It says no, and why.
    #[error("{0}")]
    Refused(String),
    /// There is no such thing.
    #[error("{0}")]
    Unknown(String),
    /// A token is needed, or another one.
    #[error("{0}")]
    Token(String),
    /// This viewer may not.
    #[error("{0}")]
    Forbidden(String),
}
