//! The manager as the web page's source: all nodes, tokens, contracts by admission.

#[cfg(test)]
mod audited;
mod disks;

use crate::audit::{Audit, audited, to_its_end};
use crate::core::{Core, Unavailable, now_ms};
use crate::machine::{Caller, Failure, Machine};
use crate::model::DiskSpec;
use crate::tokens;
use axum::Router;
use henge_api::manager::Pool;
use henge_api::{Event, EventKind, Promise};
use henge_web::{
    About, Attach, Changed, Compare, Comparison, DiskMeta, NodeSample, Noted, Preview, Problem, Sample,
    Source, Tenant, Terms, Viewer, Wanted,
};
use std::sync::Arc;

/// A manager.
pub(crate) struct Page {
    pub core: Core,
    pub audit: Arc<Audit>,
    /// Places for who waits for nodes.
    pub waiting: tokio::sync::Semaphore,
}

impl Page {
    fn new(core: Core, audit: Arc<Audit>) -> Page {
        Page { core, audit, waiting: tokio::sync::Semaphore::new(disks::WAITING_MAX) }
    }
}

impl From<Unavailable> for Problem {
    fn from(e: Unavailable) -> Problem {
        Problem::Gone(e.to_string())
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let why = failure.to_string();
        match failure {
            Failure::Forbidden(_) => Problem::Forbidden(why),
            Failure::Missing(_) => Problem::Unknown(why),
            Failure::Refused(refusal) => match refusal.instead.words() {
                words if words.is_empty() => Problem::Refused(why),
                words => Problem::Refused(format!("{why}. What would fit, all else as asked: {words}")),
            },
            _ => Problem::Refused(why),
        }
    }
}

fn caller(viewer: &Viewer) -> Caller {
    match (viewer.tenant.clone(), viewer.disk.clone()) {
        (tenant, Some(name)) => Caller::Disk { tenant, name },
        (None, None) => Caller::Administrator,
        (Some(tenant), None) => Caller::Tenant(tenant),
    }
}

/// A disk's specification with some terms changed; an empty text takes one away.
fn changed(spec: &DiskSpec, terms: &Terms) -> Result<DiskSpec, Failure> {
    let mut spec = spec.clone();
    for (key, text) in terms {
        spec.set(key, text).map_err(|e| Failure::Bad(e.0))?;
    }
    Ok(spec)
}

/// What was changed, as an audit has it.
fn noted<T: serde::Serialize>(before: Option<&T>, after: Option<&T>) -> Changed {
    let value = |what: Option<&T>| what.and_then(|what| serde_json::to_value(what).ok());
    Changed { before: value(before), after: value(after) }
}

fn kind(text: &str) -> EventKind {
    match text {
        "admitted" | "created" => EventKind::Admitted,
        "refused" | "failed" => EventKind::Refused,
        "removed" | "removing" | "forgotten" => EventKind::Removed,
        "violated" => EventKind::Violated,
        "recovered" => EventKind::Recovered,
        "node_up" => EventKind::Started,
        _ => EventKind::Changed,
    }
}

/// What admission has given away of a pool, in requests a second.
fn reserved(machine: &Machine, node: &crate::machine::NodeState, pool: &Pool) -> Option<f64> {
    let free = machine.inventory.pool(&node.record.name, &pool.name)?.standing.as_ref()?.free();
    Some(pool.profile?.iops - free)
}

fn rate(text: Option<&String>) -> Option<u64> {
    text.and_then(|text| henge_core::parse_rate(text).ok()).map(|rate| rate.per_second)
}

/// The terms that were asked for; nodes are given the reservation that they take.
fn asked(spec: &DiskSpec) -> Terms {
    spec.terms(rate(spec.rate.as_ref()).unwrap_or(0))
}

fn promise(spec: &DiskSpec) -> Promise {
    let latency = spec.latency.as_ref().and_then(|text| henge_core::parse_duration(text).ok());
    Promise {
        weight: spec.weight.unwrap_or(1),
        rate: rate(spec.rate.as_ref()).map(|micro| micro as f64 / 1e6),
        limit: rate(spec.limit.as_ref()).map(|micro| micro as f64 / 1e6),
        unit: "requests".into(),
        latency: latency.map(|d| d.as_nanos()),
        percentile: latency.map(|_| spec.percentile.unwrap_or(95.0)),
    }
}

fn sample(machine: &Machine) -> Sample {
    let now = now_ms();
    let node = |n: &crate::machine::NodeState| NodeSample {
        name: n.record.name.clone(),
        up: n.session.is_some(),
        age_ms: now.saturating_sub(n.seen),
        status: n.status.clone().unwrap_or_default(),
        capable: n.record.pools.iter().filter_map(|p| Some((p.name.clone(), p.profile?.iops))).collect(),
        reserved: n
            .record
            .pools
            .iter()
            .filter_map(|p| Some((p.name.clone(), reserved(machine, n, p)?)))
            .collect(),
    };
    let meta = |d: &crate::model::DiskRecord| {
        let (contract, promise) = (Some(asked(&d.spec)), Some(promise(&d.spec)));
        (d.name.clone(), DiskMeta { tenant: d.tenant.clone(), contract, promise })
    };
    let about = About {
        kind: "manager".into(),
        name: "manager".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        terms: henge_api::fields(true),
    };
    Sample {
        about,
        nodes: machine.inventory.nodes().map(node).collect(),
        disks: machine.disks().map(meta).collect(),
    }
}

/// What an event is about.
fn named(event: &crate::model::Event) -> &str {
    event.disk.as_deref().or(event.node.as_deref()).unwrap_or_default()
}

fn events(machine: &Machine, viewer: &Viewer, disk: Option<&str>, after: u64, most: usize) -> Vec<Noted> {
    let about = |e: &&crate::model::Event| disk.is_none() || e.disk.as_deref() == disk;
    let theirs = |e: &&crate::model::Event| viewer.may_see(named(e), e.tenant.as_deref());
    let one = |e: &crate::model::Event| {
        let (name, detail) = (named(e).to_owned(), e.text.clone());
        let event = Event { seq: e.id, at: e.time, kind: kind(&e.kind), name, detail };
        Noted { event, tenant: e.tenant.clone() }
    };
    // Only what is answered is copied.
    let newest = machine.events(after).rev().filter(about).filter(theirs).take(most);
    let mut newest: Vec<Noted> = newest.map(one).collect();
    newest.reverse();
    newest
}

impl Source for Page {
    fn sample(&self) -> Result<Sample, Problem> {
        Ok(self.core.call_and_wait(|machine| sample(machine))?)
    }

    fn viewer(&self, token: Option<&str>, _local: bool) -> Result<Viewer, Problem> {
        let Some(token) = token.map(str::to_owned) else {
            return Err(Problem::Token(
                "a token is needed; the administrator's lies in the manager's state_dir".into(),
            ));
        };
        let known = self.core.call_and_wait(move |machine| tokens::known(machine, &token))?;
        let known = known.map_err(|e| Problem::Token(e.to_string()))?;
        let tenant = known.caller.tenant().map(str::to_owned);
        let disk = match &known.caller {
            Caller::Disk { name, .. } => Some(name.clone()),
            _ => None,
        };
        let may_create = !known.read && disk.is_none();
        Ok(Viewer {
            name: known.name(),
            token: known.id,
            tenant,
            disk,
            may_change: !known.read,
            may_create,
            may_compare: false,
        })
    }

    fn events(
        &self,
        viewer: &Viewer,
        disk: Option<&str>,
        after: u64,
        most: usize,
    ) -> Result<Vec<Noted>, Problem> {
        let (viewer, disk) = (viewer.clone(), disk.map(str::to_owned));
        Ok(self.core.call_and_wait(move |machine| events(machine, &viewer, disk.as_deref(), after, most))?)
    }

    fn change(&self, viewer: &Viewer, disk: &str, terms: &Terms) -> Result<Changed, Problem> {
        let (caller, disk, terms) = (caller(viewer), disk.to_owned(), terms.clone());
        let change = move |machine: &mut Machine| {
            let before = machine.inventory.visible(&caller, &disk)?.spec.clone();
            let spec = changed(&before, &terms)?;
            machine.change(&caller, &disk, &spec, None)?;
            Ok::<_, Failure>(noted(Some(&before), Some(&spec)))
        };
        Ok(self.core.call_and_wait(change)??)
    }

    fn offer(&self, viewer: &Viewer, wanted: &Wanted) -> Result<Preview, Problem> {
        disks::offer(self, viewer, wanted)
    }

    fn create(&self, viewer: &Viewer, wanted: &Wanted) -> Result<Attach, Problem> {
        disks::create(self, viewer, wanted)
    }

    fn remove(&self, viewer: &Viewer, disk: &str, force: bool) -> Result<Changed, Problem> {
        disks::remove(self, viewer, disk, force)
    }

    fn attach(&self, viewer: &Viewer, disk: &str) -> Result<Attach, Problem> {
        disks::attach(self, viewer, disk)
    }

    fn tenants(&self, viewer: &Viewer) -> Result<Vec<Tenant>, Problem> {
        disks::tenants(self, viewer)
    }

    fn set_quota(&self, viewer: &Viewer, tenant: &str, terms: &Terms) -> Result<Changed, Problem> {
        disks::set_quota(self, viewer, tenant, terms)
    }

    fn preview(&self, viewer: &Viewer, disk: &str, terms: &Terms) -> Result<Preview, Problem> {
        let (caller, disk, terms) = (caller(viewer), disk.to_owned(), terms.clone());
        let preview = move |machine: &mut Machine| {
            let spec = changed(&machine.inventory.visible(&caller, &disk)?.spec, &terms)?;
            machine.admits_change(&caller, &disk, &spec)
        };
        match self.core.call_and_wait(preview)? {
            // Where is the administrator's business.
            Ok(_) if !viewer.sees_all() => {
                Ok(Preview { accepted: true, why: "admitted".into(), lines: Vec::new() })
            }
            Ok(lines) => Ok(Preview { accepted: true, why: "admitted".into(), lines }),
            Err(failure @ (Failure::Missing(_) | Failure::Forbidden(_))) => Err(failure.into()),
            Err(failure) => {
                Ok(Preview { accepted: false, why: Problem::from(failure).to_string(), lines: Vec::new() })
            }
        }
    }

    fn compare(&self, _: &Viewer, _: &Compare) -> Result<Comparison, Problem> {
        Err(Problem::Refused("a manager records nothing; ask the page of the disk's node".into()))
    }

    fn around(&self, routes: Router) -> Router {
        let audit = || Arc::clone(&self.audit);
        routes
            .layer(axum::middleware::from_fn_with_state(audit(), audited))
            .layer(axum::middleware::from_fn_with_state(audit(), to_its_end))
    }
}

/// Serves the page; it ends when what this returns is dropped.
pub(crate) fn serve(
    address: std::net::SocketAddr,
    tls: Option<Arc<henge_tls::Tls>>,
    core: Core,
    audit: Arc<Audit>,
) -> std::io::Result<henge_web::Serving> {
    // No disk is served here, so the page has a part of the processor. What serves nodes and the API has more.
    henge_web::serve(address, tls, Arc::new(Page::new(core, audit)), henge_io::give_some_way)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Settings;
    use henge_api::manager::{Profile, Register};

    fn node(name: &str, profile: Option<Profile>) -> Register {
        Register {
            name: name.into(),
            addresses: Vec::new(),
            link: None,
            pools: vec![crate::heard::tests::pool(profile)],
            disks: Vec::new(),
            speaks: henge_api::manager::speaks(),
        }
    }

    /// A disk over two nodes is shown as it was asked for, and its reservation at the pools that have it.
    #[test]
    fn striped_disks_are_shown_whole_and_count_at_their_pools() {
        let mut machine = Machine::load(Settings { rules: None, ..Settings::default() }, Vec::new()).unwrap();
        for (session, name) in [(1, "a"), (2, "b")] {
            let profile = Some(Profile { iops: 500.0, service: 0.014 });
            machine.register(session, Register { link: Some(format!("{name}:1")), ..node(name, profile) });
        }
        let spec = DiskSpec {
            capacity: "1GB".into(),
            rate: Some("400/s".into()),
            parts: Some(2),
            leeway: Some(1.5),
            ..DiskSpec::default()
        };
        machine.create(&Caller::Administrator, "d", &spec, None, None).unwrap();
        let sample = sample(&machine);
        let meta = &sample.disks["d"];
        assert_eq!(meta.promise.as_ref().unwrap().rate, Some(400.0));
        assert_eq!(meta.contract.as_ref().unwrap()["rate"], "400/s");
        for node in &sample.nodes {
            // 1.5 · 400 / 2.
            assert!((node.reserved["p"] - 300.0).abs() < 1e-6, "{:?}", node.reserved);
        }
    }

    /// Nodes that do not answer, and more who wait for them than the page has threads.
    #[test]
    fn who_waits_for_nodes_leaves_threads_to_others() {
        let core = Core::start(Settings::default(), crate::store::MemoryStore::default()).unwrap();
        core.call_and_wait(|machine| machine.register(1, node("n", None))).unwrap();
        let page = Arc::new(Page::new(core.clone(), Audit::new(crate::audit::AuditTo::Nobody).unwrap()));
        let viewer = |_| Viewer {
            name: "ann".into(),
            tenant: Some("ann".into()),
            may_create: true,
            ..Viewer::default()
        };
        let make = |i: usize| {
            let (page, viewer) = (Arc::clone(&page), viewer(i));
            let wanted = Wanted { name: format!("d{i}"), capacity: "1GB".into(), ..Wanted::default() };
            std::thread::spawn(move || page.create(&viewer, &wanted).map(|attach| attach.note))
        };
        let waiting: Vec<_> = (0..disks::WAITING_MAX).map(make).collect();
        while page.waiting.available_permits() > 0 {
            std::thread::yield_now();
        }
        // One more is answered at once, and told.
        let note = make(99).join().unwrap().unwrap();
        assert!(note.contains("Its node has yet to make it"), "{note}");
        assert_eq!(page.waiting.available_permits(), 0, "the others wait");
        core.stop();
        waiting.into_iter().for_each(|thread| assert!(thread.join().unwrap().is_err(), "the manager ends"));
    }

    #[test]
    fn a_tenant_is_told_of_its_own_disks_alone_though_another_has_the_same_name() {
        let mut machine = Machine::load(Settings { rules: None, ..Settings::default() }, Vec::new()).unwrap();
        machine.register(1, node("d", None)); // as a disk is called
        let spec = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
        for tenant in ["ann", "bob"] {
            machine.create(&Caller::Tenant(tenant.into()), "d", &spec, None, None).unwrap();
            let name = format!("{tenant}.d");
            machine.remove(&Caller::Administrator, &name, None, true).unwrap();
            machine.take_orders();
            let revision = machine.inventory.disk(&name).unwrap().revision;
            machine.done("d", &name, revision, None);
        }
        let kinds = |tenant: Option<&str>, disk: Option<&str>, after: u64, most: usize| {
            let viewer = Viewer { tenant: tenant.map(str::to_owned), ..Viewer::default() };
            let all = events(&machine, &viewer, disk, after, most);
            all.iter().map(|n| (n.event.seq, n.event.kind)).collect::<Vec<_>>()
        };
        use EventKind::{Admitted, Removed, Started};
        assert_eq!(kinds(None, None, 0, 9).len(), 7, "the node, and three for each tenant");
        assert_eq!(kinds(Some("ann"), None, 0, 9), [(2, Admitted), (3, Removed), (4, Removed)]);
        assert_eq!(kinds(Some("bob"), Some("bob.d"), 0, 9), [(5, Admitted), (6, Removed), (7, Removed)]);
        // The newest of its own, not what is its own of the newest.
        assert_eq!(kinds(Some("ann"), None, 0, 1), [(4, Removed)]);
        assert_eq!(kinds(Some("eve"), None, 0, 9), []);
        assert_eq!(kinds(None, None, 0, 1).len() + kinds(None, None, 6, 9).len(), 2);
        assert!(matches!(kinds(None, None, 0, 9)[0], (1, Started)));
    }
}
