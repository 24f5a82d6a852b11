//! Disks made and removed on the manager's page, how to attach to them, and tenants' quotas.

use super::{Page, caller, noted};
use crate::access::{self, Access, Secrets};
use crate::machine::{Caller, Decision, Failure, Machine};
use crate::model::{Begins, DiskSpec, Phase};
use crate::rest::views;
use crate::tenant::Quota;
use henge_web::{Attach, Changed, Preview, Problem, Secret, Tenant, Terms, Viewer, Wanted, ways};
use std::time::{Duration, Instant};

/// How long whoever makes or removes a disk waits for its nodes.
const WAIT: Duration = Duration::from_secs(5);
/// Most that wait at once: half of the page's threads (`henge_web::serve`).
pub(super) const WAITING_MAX: usize = 8;
/// Between two looks meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// What somebody typed, as a specification.
fn specification(wanted: &Wanted) -> Result<DiskSpec, Failure> {
    let spec = DiskSpec { capacity: wanted.capacity.clone(), ..DiskSpec::default() };
    super::changed(&spec, &wanted.contract)
}

/// Whose disk it is to be: the administrator may say.
fn owner(viewer: &Viewer, wanted: &Wanted) -> Option<String> {
    Some(wanted.tenant.clone()).filter(|tenant| !tenant.is_empty() && viewer.tenant.is_none())
}

/// What admission says of a disk that is not there yet.
pub(super) fn offer(page: &Page, viewer: &Viewer, wanted: &Wanted) -> Result<Preview, Problem> {
    let (asks, owner, wanted, sees) =
        (caller(viewer), owner(viewer, wanted), wanted.clone(), viewer.sees_all());
    let decide = move |machine: &mut Machine| {
        access::check(&wanted.nbd).map_err(|e| Failure::Bad(e.0))?;
        let asks = owner.map_or(asks, Caller::Tenant);
        machine.inventory.could_be_called(&asks, &wanted.name)?;
        machine.preview(&asks, &specification(&wanted)?)
    };
    match page.core.call_and_wait(decide)? {
        Ok(decision) => Ok(shown(decision, sees)),
        Err(failure @ Failure::Forbidden(_)) => Err(failure.into()),
        Err(failure) => {
            Ok(Preview { accepted: false, why: Problem::from(failure).to_string(), lines: Vec::new() })
        }
    }
}

/// Where it would lie is the administrator's business.
fn shown(decision: Decision, sees_all: bool) -> Preview {
    let words = decision.instead.words();
    let why = match (decision.admitted, words.is_empty()) {
        (false, false) => format!("{}. What would fit, all else as asked: {words}", decision.why),
        _ => decision.why,
    };
    let place = |p: &crate::machine::Place| format!("on {}/{}: {} reserved", p.node, p.pool, p.reserved);
    let lines = if sees_all { decision.places.iter().map(place).collect() } else { Vec::new() };
    Preview { accepted: decision.admitted, why, lines }
}

/// Makes a disk, and waits a while for its nodes. Its secrets are in this answer alone.
pub(super) fn create(page: &Page, viewer: &Viewer, wanted: &Wanted) -> Result<Attach, Problem> {
    let secrets = Secrets::new().map_err(|e| Problem::Gone(e.to_string()))?;
    let access = Access { nbd: wanted.nbd.clone(), secrets };
    let (asks, owner, asked, given) = (caller(viewer), owner(viewer, wanted), wanted.clone(), access.clone());
    let make = move |machine: &mut Machine| {
        access::check(&asked.nbd).map_err(|e| Failure::Bad(e.0))?;
        let spec = specification(&asked)?;
        let begins = Begins { access: Some(given), ..Begins::default() };
        machine.create_for(&asks, &asked.name, &spec, owner.as_deref(), None, begins)
    };
    let name = page.core.call_and_wait(make)??.name;
    settled(page, viewer, &name, |phase| phase.is_some_and(|phase| phase != Phase::Creating))?;
    let (asks, asked) = (caller(viewer), name.clone());
    let view = page.core.call_and_wait(move |machine| {
        machine.inventory.visible(&asks, &asked).map(|disk| views::disk(machine, &asks, disk))
    })??;
    let told = views::attach(&view, &access);
    let secret = |what: &str, text: String| Secret { what: what.into(), text };
    let mut attach = described(&view, &access.nbd);
    for way in attach.ways.iter_mut().filter(|way| way.front == "NVMe/TCP") {
        for (_, command) in &mut way.lines {
            *command = format!("{command} --dhchap-secret {}", told.nvme);
        }
    }
    attach.secrets = vec![
        secret("iSCSI: CHAP name", told.user),
        secret("iSCSI: CHAP secret", told.chap),
        secret("NVMe: DH-HMAC-CHAP secret", told.nvme),
    ];
    attach.note =
        format!("Copy the secrets now: they are not shown again. {}", attach.note).trim_end().into();
    Ok(attach)
}

/// Removes a disk and its data. One whose node is away goes when it is back.
pub(super) fn remove(page: &Page, viewer: &Viewer, disk: &str, force: bool) -> Result<Changed, Problem> {
    let (asks, name) = (caller(viewer), disk.to_owned());
    let remove = move |machine: &mut Machine| {
        let before = machine.inventory.visible(&asks, &name)?.spec.clone();
        Ok::<_, Failure>((machine.remove(&asks, &name, None, force)?, before))
    };
    let (here, before) = page.core.call_and_wait(remove)??;
    if here {
        settled(page, viewer, disk, |phase| phase.is_none_or(|phase| phase != Phase::Removing))?;
    }
    Ok(noted(Some(&before), None))
}

/// Waits until a disk's phase is as wanted, or for [`WAIT`]: what is late comes later. What failed is an error. While [`WAITING_MAX`] others wait
/// there is one look: who waits has one of the page's threads, and others need some as well.
fn settled(page: &Page, viewer: &Viewer, disk: &str, done: fn(Option<Phase>) -> bool) -> Result<(), Problem> {
    let begun = Instant::now();
    let place = page.waiting.try_acquire();
    loop {
        let (asks, name) = (caller(viewer), disk.to_owned());
        let (phase, failure) = page.core.call_and_wait(move |machine| {
            let phase = machine.inventory.visible(&asks, &name).ok().map(|disk| disk.phase);
            (phase, machine.failures.of(&name).map(str::to_owned))
        })?;
        if let Some(why) = failure {
            return Err(Problem::Refused(why));
        }
        if done(phase) || place.is_err() || begun.elapsed() >= WAIT {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

/// How clients attach to a disk, without its secrets.
pub(super) fn attach(page: &Page, viewer: &Viewer, disk: &str) -> Result<Attach, Problem> {
    let (asks, name) = (caller(viewer), disk.to_owned());
    let look = move |machine: &mut Machine| {
        let found = machine.inventory.visible(&asks, &name)?;
        let nbd =
            found.access.as_ref().map_or_else(|| vec!["anyone".to_owned()], |access| access.nbd.clone());
        Ok::<_, Failure>((views::disk(machine, &asks, found), nbd))
    };
    let (view, nbd) = page.core.call_and_wait(look)??;
    let mut attach = described(&view, &nbd);
    if !attach.ways.is_empty() {
        attach.note =
            format!("The secrets were shown when the disk was made. {}", attach.note).trim_end().into();
    }
    Ok(attach)
}

fn described(view: &views::Disk, nbd: &[String]) -> Attach {
    let open = |address: &&String| !address.starts_with("nbd") || !nbd.is_empty();
    let known: Vec<_> = view.addresses.iter().filter(open).filter_map(|address| ways(address)).collect();
    let note = match (known.is_empty(), nbd.is_empty(), view.phase) {
        (_, _, Phase::Creating) => "Its node has yet to make it.",
        (true, ..) => "None of its nodes listens where its clients may come.",
        (_, true, _) => "Nobody may attach by NBD; who may is said when a disk is made.",
        _ => "",
    };
    Attach { disk: view.names.export.clone(), ways: known, secrets: Vec::new(), note: note.into() }
}

/// Terms as they are written.
fn terms(quota: &Quota) -> Terms {
    let serde_json::Value::Object(terms) = serde_json::to_value(quota).unwrap_or_default() else {
        return Terms::new();
    };
    let text = |value: serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    terms.into_iter().map(|(term, value)| (term, text(value))).collect()
}

/// The tenants that this viewer may see.
pub(super) fn tenants(page: &Page, viewer: &Viewer) -> Result<Vec<Tenant>, Problem> {
    let asks = caller(viewer);
    let all = page.core.call_and_wait(move |machine| machine.tenants(&asks))?;
    let one = |tenant: crate::machine::Tenant| Tenant {
        ceiling: terms(&tenant.ceiling),
        own: terms(&tenant.own),
        used: terms(&tenant.used),
        left: terms(&tenant.left),
        name: tenant.name,
        tokens: tenant.tokens,
    };
    Ok(all.into_iter().map(one).collect())
}

/// Sets terms of the quota that is this viewer's to set; an empty one takes its bound away.
pub(super) fn set_quota(
    page: &Page,
    viewer: &Viewer,
    tenant: &str,
    changes: &Terms,
) -> Result<Changed, Problem> {
    let (asks, name, changes) = (caller(viewer), tenant.to_owned(), changes.clone());
    let set = move |machine: &mut Machine| {
        let before = machine.quotas.set_by(&asks, &name)?;
        let mut quota = before.clone();
        for (term, text) in &changes {
            put(&mut quota, term, text)?;
        }
        machine.set_quota(&asks, &name, quota.clone())?;
        Ok::<_, Failure>(noted(Some(&before), Some(&quota)))
    };
    Ok(page.core.call_and_wait(set)??)
}

fn put(quota: &mut Quota, term: &str, text: &str) -> Result<(), Failure> {
    let some = Some(text.to_owned()).filter(|text| !text.is_empty());
    let number = |text: &String| {
        text.parse::<u32>().map_err(|_| Failure::Bad(format!("{term} is a whole number, not \"{text}\"")))
    };
    match term {
        "disks" => quota.disks = some.as_ref().map(number).transpose()?,
        "weight" => quota.weight = some.as_ref().map(number).transpose()?,
        "burst" => quota.burst = some.as_ref().map(number).transpose()?,
        "bytes" => quota.bytes = some,
        "rate" => quota.rate = some,
        "limit" => quota.limit = some,
        "latency" => quota.latency = some,
        "share" => quota.share = some,
        _ => return Err(Failure::Bad(format!("a quota has no term \"{term}\""))),
    }
    Ok(())
}
