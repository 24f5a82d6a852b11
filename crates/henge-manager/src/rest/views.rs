//! What the API shows of disks, nodes and pools.

use crate::machine::{self, Caller, Leaving, Machine, NodeState, Place};
use crate::model::{Difference, DiskRecord, DiskSpec, Phase, rate_text};
use crate::tenant::Quota;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::openapi::RefOr;
use utoipa::{PartialSchema, ToSchema};

/// A disk: what was promised, where it is, what it receives.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Disk {
    /// How it is called.
    #[serde(flatten)]
    #[schema(schema_with = Names::schema)]
    pub names: Names,
    /// What was promised.
    pub spec: DiskSpec,
    /// What the administrator stated of it: its tenant moves below.
    pub ceiling: Quota,
    /// Where in its life.
    pub phase: Phase,
    /// Its entity tag, for If-Match.
    pub revision: u64,
    /// Milliseconds since 1970.
    pub created: u64,
    /// By which rule it was admitted.
    pub admitted_by: String,
    /// Where it lies; the administrator is told.
    pub places: Vec<Place>,
    /// Where clients reach it.
    pub addresses: Vec<String>,
    /// How its owner attaches to it; told once, by the answer that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attach: Option<Attach>,
    /// What manager and node had differently when they met again; the stricter is enforced until the contract is changed.
    pub differences: BTreeMap<String, Difference>,
    /// What a node still enforces while it has not confirmed the present contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub still: Option<DiskSpec>,
    /// What its clients see; none while its node is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<Received>,
    /// Whether a node that has a part of it is not connected.
    pub away: bool,
    /// Whether it does not receive what it was promised, by the last seconds.
    pub broken: bool,
}

/// How a disk is called, and whose it is.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Names {
    /// Its name, as who asks calls it.
    pub name: String,
    /// As nodes and their clients call it: a tenant's has the tenant's name before its own.
    pub export: String,
    /// Whose; none: the administrator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// How to attach to a disk: the secrets that its nodes ask for, and what to type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub struct Attach {
    /// By iSCSI: the name for CHAP.
    pub user: String,
    /// By iSCSI: the secret.
    pub chap: String,
    /// By NVMe: the secret, for `nvme connect --dhchap-secret`.
    pub nvme: String,
    /// By NBD: who may; nobody where there is none.
    pub nbd: Vec<String>,
    /// A line for each address that lets somebody in.
    pub ways: Vec<String>,
}

/// What to type, by address; nothing where nobody is let in.
pub(crate) fn attach(disk: &Disk, access: &crate::access::Access) -> Attach {
    let (user, chap, nvme) = (&disk.names.export, &access.secrets.chap, &access.secrets.nvme);
    let way = |address: &String| match address.split_once("://") {
        Some(("iscsi", rest)) => Some(format!("iscsi://{user}%{chap}@{rest}")),
        Some((nbd, _)) if nbd.starts_with("nbd") => (!access.nbd.is_empty()).then(|| address.clone()),
        _ if address.starts_with("nvme connect") => Some(format!("{address} --dhchap-secret {nvme}")),
        _ => None,
    };
    Attach {
        user: user.clone(),
        chap: chap.clone(),
        nvme: nvme.clone(),
        nbd: access.nbd.clone(),
        ways: disk.addresses.iter().filter_map(way).collect(),
    }
}

/// What a disk's clients see, since its meters began. Times are nanoseconds.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Received {
    /// Clients connected.
    pub clients: u64,
    /// Commands answered.
    pub commands: u64,
    /// Commands a second.
    pub rate: f64,
    /// Answered later than promised.
    pub late: u64,
    /// Share of the commands within the promised latency.
    pub in_bound: f64,
    /// Answered with an error.
    pub failed: u64,
    /// Commands pending.
    pub pending: u64,
    /// Median latency.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Why the next request waits now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// How much of the time it received what it is promised; none where it is promised nothing. Of a disk on several nodes, the
    /// sum of theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
}

/// How much of the time a disk received what it is promised.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Kept {
    /// The last 24 hours.
    pub day: Seconds,
    /// The last 30 days.
    pub month: Seconds,
    /// Since the disk was made.
    pub ever: Seconds,
}

/// The seconds in which a disk wanted what it is promised, in milliseconds.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Seconds {
    /// All of them.
    pub wanted_ms: u64,
    /// Those in which it received it.
    pub kept_ms: u64,
    /// The others, by what held its requests up most.
    pub missed_ms: BTreeMap<String, u64>,
}

impl From<henge_api::Seconds> for Seconds {
    fn from(seconds: henge_api::Seconds) -> Seconds {
        let henge_api::Seconds { wanted_ms, kept_ms, missed_ms } = seconds;
        Seconds { wanted_ms, kept_ms, missed_ms }
    }
}

impl From<henge_api::Kept> for Kept {
    fn from(kept: henge_api::Kept) -> Kept {
        Kept { day: kept.day.into(), month: kept.month.into(), ever: kept.ever.into() }
    }
}

/// A node.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Whether it is here.
    pub connected: bool,
    /// Whether it takes no new disks.
    pub draining: bool,
    /// Where clients reach its disks; `%` stands for the disk's name.
    pub addresses: Vec<String>,
    /// Its pools.
    pub pools: Vec<Pool>,
    /// Disks that the manager placed there.
    pub disks: Vec<String>,
    /// Disks of its own.
    pub own: Vec<String>,
    /// When its meters came last; milliseconds since 1970.
    pub seen: u64,
    /// While it is drained: what becomes of each of its disks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaving: Vec<Leaving>,
}

/// A pool.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub struct Pool {
    /// Its node.
    pub node: String,
    /// Its name.
    pub name: String,
    /// Who goes next there.
    pub scheduler: String,
    /// Terms of a contract that its scheduler keeps; none where its node does not say: it is asked by an order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["rate", "latency"]))]
    pub keeps: Option<Vec<String>>,
    /// Terms that go with one of several others there.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub needs: BTreeMap<String, Vec<String>>,
    /// Copies that its storage keeps.
    pub copies: u32,
    /// Bytes.
    pub capacity: u64,
    /// Bytes that disks have.
    pub used: u64,
    /// Requests a second at saturation; none without a profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<f64>,
    /// Requests a second that a newcomer could reserve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<f64>,
    /// Whether it takes new disks.
    pub open: bool,
}

pub(crate) fn disk(machine: &Machine, caller: &Caller, record: &DiskRecord) -> Disk {
    let places = record.parts.iter().filter(|_| caller.is_administrator()).map(|p| Place {
        node: p.node.clone(),
        pool: p.pool.clone(),
        reserved: rate_text(p.reserved_micro),
    });
    let nodes = || record.parts.iter().filter_map(|p| machine.inventory.node(&p.node));
    let addresses = nodes().flat_map(|n| &n.record.addresses).map(|a| a.replace('%', &record.name));
    let meters: Vec<_> = nodes().filter_map(|n| n.status.as_ref()?.disk(&record.name)).collect();
    Disk {
        names: Names {
            name: caller.calls(&record.name).to_owned(),
            export: record.name.clone(),
            tenant: record.tenant.clone(),
        },
        spec: record.spec.clone(),
        ceiling: record.ceiling.clone(),
        phase: record.phase,
        revision: record.revision,
        created: record.created,
        admitted_by: record.admitted_by.clone(),
        places: places.collect(),
        addresses: addresses.collect(),
        attach: None,
        differences: record.differences.clone(),
        still: record.parts.iter().find_map(|p| p.held.as_ref()).map(|h| h.spec.clone()),
        received: received(&meters),
        away: record
            .parts
            .iter()
            .any(|p| machine.inventory.node(&p.node).is_none_or(|n| n.session.is_none())),
        broken: machine.inventory.is_broken(&record.name),
    }
}

/// A disk's names stand beside its other properties in the API's description, as they do in JSON.
pub(super) fn describe(document: &mut utoipa::openapi::OpenApi) {
    use utoipa::openapi::schema::{Object, Schema};
    let mut schemas = document.components.iter_mut().flat_map(|components| &mut components.schemas);
    let Some((_, disk)) = schemas.find(|(name, _)| *name == "Disk") else { return };
    let RefOr::T(Schema::AllOf(halves)) = disk else { return };
    let mut whole = Object::new();
    whole.description = halves.description.take();
    for half in halves.items.drain(..) {
        if let RefOr::T(Schema::Object(half)) = half {
            whole.properties.extend(half.properties);
            whole.required.extend(half.required);
        }
    }
    *disk = Schema::Object(whole).into();
}

/// Clients of a disk that lies on several nodes come to any of them: counts add up, and the largest latency stands.
fn received(meters: &[&henge_api::DiskStatus]) -> Option<Received> {
    // What nodes say is bounded, and its sum is not.
    let sum =
        |of: fn(&henge_api::DiskStatus) -> u64| meters.iter().fold(0u64, |sum, d| sum.saturating_add(of(d)));
    let most = |of: fn(&henge_api::DiskStatus) -> u64| meters.iter().map(|d| of(d)).max().unwrap_or(0);
    let (commands, late) = (sum(|d| d.meters.commands), sum(|d| d.meters.late));
    (!meters.is_empty()).then(|| Received {
        clients: sum(|d| d.connections as u64),
        commands,
        rate: meters.iter().map(|d| d.meters.rate()).sum(),
        late,
        in_bound: if commands == 0 { 1.0 } else { 1.0 - late as f64 / commands as f64 },
        failed: sum(|d| d.meters.failed),
        pending: sum(|d| d.meters.pending as u64),
        p50: most(|d| d.meters.latency.p50),
        p95: most(|d| d.meters.latency.p95),
        p99: most(|d| d.meters.latency.p99),
        waiting: meters.iter().find_map(|d| d.flow.waiting.clone()),
        kept: henge_api::Kept::sum(meters.iter().filter_map(|d| d.kept.as_ref())).map(Kept::from),
    })
}

pub(crate) fn node(machine: &Machine, node: &NodeState) -> Node {
    let record = &node.record;
    let disks = machine.disks().filter(|d| d.parts.iter().any(|p| p.node == record.name));
    Node {
        name: record.name.clone(),
        connected: node.session.is_some(),
        draining: record.draining,
        addresses: record.addresses.clone(),
        pools: pools(machine, node),
        disks: disks.map(|d| d.name.clone()).collect(),
        own: record.own.iter().map(|h| h.name.clone()).collect(),
        seen: node.seen,
        leaving: if record.draining { machine::leaving(&machine.inventory, node) } else { Vec::new() },
    }
}

pub(crate) fn pools(machine: &Machine, node: &NodeState) -> Vec<Pool> {
    let one = |pool: &henge_api::manager::Pool| {
        let state = machine.inventory.pool(&node.record.name, &pool.name);
        let said = state.and_then(|state| state.kept.as_ref()).map(|kept| &kept.said);
        Pool {
            node: node.record.name.clone(),
            name: pool.name.clone(),
            scheduler: said.map_or(&pool.scheduler, |said| &said.scheduler).clone(),
            keeps: said.map(|said| said.terms.clone()),
            needs: said.map(needs).unwrap_or_default(),
            copies: pool.copies,
            capacity: pool.capacity,
            used: state.map_or(0, |s| s.used),
            iops: pool.profile.map(|p| p.iops),
            free: state.and_then(|s| s.standing.as_ref()).map(henge_admission::Standing::free),
            open: state.is_some_and(|s| s.open),
        }
    };
    node.record.pools.iter().map(one).collect()
}

/// By term, what it goes with: `rate`, or `kind=latency`.
fn needs(said: &henge_api::Keeps) -> BTreeMap<String, Vec<String>> {
    let with = |with: &henge_api::With| match &with.word {
        Some(word) => format!("{}={word}", with.term),
        None => with.term.clone(),
    };
    said.needs.iter().map(|need| (need.term.clone(), need.with.iter().map(with).collect())).collect()
}

#[cfg(test)]
mod tests {
    use crate::rest::harness::{ASKED, Harness};

    #[test]
    fn where_a_disk_lies_is_the_administrators_business() {
        let mut harness = Harness::open().unwrap();
        let mut ask = |path: &str, who: usize| {
            let which = ASKED.iter().position(|asked| *asked == ("GET", path)).unwrap();
            let answered = harness.ask(which, who, Vec::new()).unwrap();
            assert_eq!(answered.status, 200);
            String::from_utf8(answered.body).unwrap()
        };
        let (all, anns) = (ask("/disks", 0), ask("/disks", 1));
        assert!(all.contains(r#""pool":"p""#) && anns.contains(r#""export":"ann.web""#), "{all}\n{anns}");
        assert!(anns.contains(r#""places":[]"#) && !anns.contains(r#""pool""#), "{anns}");
        let (all, anns) = (ask("/events", 0), ask("/events", 1));
        assert!(all.contains("/p") && anns.contains("admitted"), "{all}\n{anns}");
        assert!(!anns.contains("/p") && !anns.contains(r#""node":""#), "{anns}");
    }
}
