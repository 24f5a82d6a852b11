//! Tenants: their quotas, their names for disks, and how they end.

use super::commands::{Caller, Failure, shorten};
use super::{Machine, Revoked};
use crate::model::{DiskRecord, DiskSpec, KeyRecord, Phase, TokenRecord};
use crate::tenant::{Quota, TenantRecord, Used, called, full_name};
use henge_api::is_name;
use henge_core::{Given, TERMS};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::ToSchema;

/// A tenant: what it may have, what it has, and what is left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// What the administrator allows.
    pub ceiling: Quota,
    /// What it allows itself.
    pub own: Quota,
    /// What its disks hold.
    pub used: Quota,
    /// What is left of both; what has no bound is not stated.
    pub left: Quota,
    /// Tokens that are its.
    pub tokens: u32,
    /// Clients of it whose certificates count.
    #[serde(default)]
    pub clients: u32,
}

/// What went with a tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Forgotten {
    /// Tokens that open nothing any more.
    pub tokens: usize,
    /// Certificates of its clients that were revoked.
    pub certificates: usize,
    /// Invitations of its clients that open nothing any more.
    pub invitations: usize,
}

impl Machine {
    /// A disk by the name that the caller has for it. One that it may not see is as one that does not exist.
    pub fn visible(&self, caller: &Caller, name: &str) -> Result<&DiskRecord, Failure> {
        let disk = self.resolve(caller.tenant(), name).filter(|disk| caller.owns(disk));
        disk.ok_or_else(|| Failure::Missing(format!("there is no disk \"{}\"", shorten(name))))
    }

    /// A disk by the name that its tenant, or the administrator, has for it.
    pub(crate) fn resolve(&self, tenant: Option<&str>, name: &str) -> Option<&DiskRecord> {
        let in_its_own = tenant.and_then(|tenant| self.disks.get(&full_name(tenant, name)));
        in_its_own.or_else(|| self.disks.get(name))
    }

    /// What a tenant's disks hold, but for one.
    fn used_by(&self, tenant: &str, without: Option<&str>) -> Used {
        let disks = self.disks.values().filter(|d| d.tenant.as_deref() == Some(tenant));
        let others = disks.filter(|d| Some(d.name.as_str()) != without);
        others.fold(Used::default(), |sum, d| sum.and(Used::of(&d.spec, d.whole_micro())))
    }

    /// Whether a disk, new or changed, is within its tenant's quota; `name` is the whole one.
    pub(super) fn within_quota(
        &self,
        tenant: Option<&str>,
        name: &str,
        spec: &DiskSpec,
        reserved_micro: u64,
    ) -> Result<(), Failure> {
        let Some((tenant, record)) = tenant.and_then(|t| Some((t, self.tenants.get(t)?))) else {
            return Ok(());
        };
        let (amounts, others) = (record.amounts(), self.used_by(tenant, Some(name)));
        match amounts.refuses(&others, spec, reserved_micro) {
            None => Ok(()),
            Some(why) => Err(Failure::Quota {
                why: format!("the quota of tenant \"{tenant}\": {why}"),
                left: Box::new(amounts.left(&others)),
            }),
        }
    }

    /// Whether a tenant's disk, new or changed from `before`, has the terms that only a quota, or the administrator, gives as they were. Where no
    /// quota counts them they would be a way around it.
    pub(super) fn given(
        &self,
        caller: &Caller,
        before: Option<&DiskSpec>,
        now: &DiskSpec,
    ) -> Result<(), Failure> {
        let counted = caller.tenant().and_then(|tenant| self.tenants.get(tenant));
        let counts = |term: &str| counted.is_some_and(|record| record.ceiling.states(term));
        let moved = TERMS.iter().find_map(|term| match term.given {
            Given::Within(quota) if !counts(quota) => {
                let moved = now.term(term.key) != before.and_then(|before| before.term(term.key));
                moved.then_some((term.key, quota))
            }
            _ => None,
        });
        match moved {
            Some((key, quota)) if !caller.is_administrator() => Err(Failure::Forbidden(format!(
                "{key} is the administrator's to give, as no quota of {quota} counts it; leave it as it is, or have the administrator set \
                 `henge tenant set … --{quota}`"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether a change is below what the administrator stated of the disk; his own always is.
    pub(super) fn below_ceiling(
        &self,
        caller: &Caller,
        disk: &DiskRecord,
        spec: &DiskSpec,
    ) -> Result<(), Failure> {
        // What is above already, and stays as it is, is no reason.
        let same = |term: &str| match term {
            "limit" => spec.limit == disk.spec.limit,
            "rate" => spec.rate == disk.spec.rate,
            "latency" => spec.latency == disk.spec.latency,
            "burst" => spec.burst == disk.spec.burst,
            "share" => (&spec.share, &spec.amounts) == (&disk.spec.share, &disk.spec.amounts),
            _ => spec.weight == disk.spec.weight,
        };
        let mut above = disk.ceiling.above_disk(spec).into_iter().filter(|(term, _)| !same(term));
        match above.next() {
            Some((term, most)) if !caller.is_administrator() => Err(Failure::Forbidden(format!(
                "the administrator set {term} to {most} for this disk; it can be moved below, not above"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether this caller could make a disk of that name.
    pub(crate) fn could_be_called(&self, caller: &Caller, name: &str) -> Result<(), Failure> {
        good_name(name)?;
        let full = caller.tenant().map_or_else(|| name.to_owned(), |owner| full_name(owner, name));
        short_enough(&full)?;
        self.free_name(caller, &full)
    }

    pub(super) fn free_name(&self, caller: &Caller, name: &str) -> Result<(), Failure> {
        match self.disks.get(name) {
            None => {}
            Some(disk) if disk.phase == Phase::Removing && caller.owns(disk) => {
                let why = format!(
                    "a disk \"{name}\" is still being removed from its node; wait, or take another name"
                );
                return Err(Failure::Conflict(why));
            }
            Some(_) => {
                return Err(Failure::Conflict(format!("the name \"{name}\" is in use; take another one")));
            }
        }
        let own = self.nodes.values().find(|n| n.record.own.iter().any(|h| h.name == name));
        match own {
            None => Ok(()),
            Some(_) => Err(Failure::Conflict(format!("the name \"{name}\" is in use; take another one"))),
        }
    }

    /// Every name that owns something here, and those with a quota.
    fn tenant_names(&self) -> BTreeSet<&str> {
        let of_disks = self.disks.values().filter_map(|d| d.tenant.as_deref());
        let of_tokens = self.tokens.values().filter_map(|t| t.tenant.as_deref());
        let stated = self.tenants.keys().map(String::as_str);
        stated.chain(of_disks).chain(of_tokens).chain(self.tenants_of_clients()).collect()
    }

    /// Tenants that the caller may see: a tenant sees itself.
    pub fn tenants(&self, caller: &Caller) -> Vec<Tenant> {
        let names = self.tenant_names().into_iter().filter(|name| caller.is_tenant(name));
        names.map(|name| self.shown(name)).collect()
    }

    /// One of them.
    pub fn tenant(&self, caller: &Caller, name: &str) -> Result<Tenant, Failure> {
        let known = caller.is_tenant(name) && self.tenant_names().contains(name);
        if known { Ok(self.shown(name)) } else { Err(no_tenant(name)) }
    }

    fn shown(&self, name: &str) -> Tenant {
        let record = self.tenants.get(name).cloned().unwrap_or_default();
        let used = self.used_by(name, None);
        let left = record.amounts().left(&used);
        let tokens = self.tokens.values().filter(|t| t.tenant.as_deref() == Some(name)).count();
        Tenant {
            name: name.to_owned(),
            ceiling: record.ceiling,
            own: record.own,
            used: Quota::used(&used),
            left,
            tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
            clients: u32::try_from(self.clients_of(name)).unwrap_or(u32::MAX),
        }
    }

    /// The quota that this caller sets: the administrator the ceiling, a tenant its own.
    pub fn quota_of(&self, caller: &Caller, name: &str) -> Result<Quota, Failure> {
        if !caller.is_tenant(name) {
            return Err(no_tenant(name));
        }
        let record = self.tenants.get(name).cloned().unwrap_or_default();
        Ok(if caller.is_administrator() { record.ceiling } else { record.own })
    }

    /// Sets a tenant's quota. What its disks hold already stays theirs.
    pub fn set_quota(&mut self, caller: &Caller, name: &str, quota: Quota) -> Result<Tenant, Failure> {
        let before = self.quota_of(caller, name)?;
        if !is_name(name) {
            return Err(bad_name());
        }
        quota.read().map_err(|e| Failure::Bad(e.0))?;
        let mut record = self.tenants.get(name).cloned().unwrap_or_default();
        if caller.is_administrator() {
            record.ceiling = quota.clone();
        } else {
            if let Some((term, most)) = quota.above(&record.ceiling).first() {
                return Err(Failure::Conflict(format!(
                    "{term} is at most {most} for tenant \"{name}\", as the administrator set it; ask for less, or ask him"
                )));
            }
            record.own = quota.clone();
        }
        if quota != before || !self.tenants.contains_key(name) {
            self.put(format!("tenant/{name}"), Some(&record));
            self.tenants.insert(name.to_owned(), record);
            self.put_event("quota", None, None, format!("tenant \"{name}\": {}", quota.words()));
        }
        Ok(self.shown(name))
    }

    /// Forgets a tenant that has no disks, with its tokens and clients: what they have open ends. A tenant of the same name that is
    /// made later has nothing of it: neither certificates, nor what its log says.
    pub fn remove_tenant(&mut self, name: &str) -> Result<Forgotten, Failure> {
        if !self.tenant_names().contains(name) {
            return Err(no_tenant(name));
        }
        let disks = self.disks.values().filter(|d| d.tenant.as_deref() == Some(name)).count();
        if disks > 0 {
            return Err(Failure::Conflict(format!(
                "tenant \"{name}\" has {disks} disk(s); remove them first, and their data with them"
            )));
        }
        let tokens = self.tokens.values().filter(|t| t.tenant.as_deref() == Some(name));
        let tokens: Vec<String> = tokens.map(|t| t.id.clone()).collect();
        for id in &tokens {
            self.tokens.remove(id);
            self.put::<TokenRecord>(format!("token/{id}"), None);
        }
        let Revoked { certificates, invitations } = self.revoke_clients(name);
        let keys = self.keys.keys().filter(|key| key.split_once('/').is_some_and(|(of, _)| of == name));
        for key in keys.cloned().collect::<Vec<_>>() {
            self.keys.remove(&key);
            self.put::<KeyRecord>(format!("key/{key}"), None);
        }
        self.disown_events(name);
        self.tenants.remove(name);
        self.put::<TenantRecord>(format!("tenant/{name}"), None);
        let forgotten = Forgotten { tokens: tokens.len(), certificates, invitations };
        let text = format!(
            "tenant \"{name}\"; {} token(s) ended, {certificates} certificate(s) revoked, {invitations} invitation(s) taken back",
            tokens.len()
        );
        self.put_event("forgotten", None, None, text);
        Ok(forgotten)
    }

    /// Events of a tenant that ends are the administrator's: no tenant's name has a space.
    fn disown_events(&mut self, name: &str) {
        let mut changed = Vec::new();
        for event in self.events.iter_mut().filter(|e| e.tenant.as_deref() == Some(name)) {
            event.tenant = Some(format!("{name} (removed)"));
            changed.push(event.clone());
        }
        for event in changed {
            self.put(format!("event/{:020}", event.id), Some(&event));
        }
    }
}

impl Caller {
    /// How this caller calls a disk.
    pub(crate) fn calls<'a>(&self, full: &'a str) -> &'a str {
        called(self.tenant(), full)
    }
}

pub(super) fn good_name(name: &str) -> Result<(), Failure> {
    let why = || format!("\"{}\" is no name; up to 64 letters, digits, '.', '_' and '-' are", shorten(name));
    if is_name(name) { Ok(()) } else { Err(Failure::Bad(why())) }
}

/// Nodes know a tenant's disk by the tenant's name and its own.
pub(super) fn short_enough(full: &str) -> Result<(), Failure> {
    let why =
        || format!("nodes would call it \"{full}\", which is longer than 64 characters; take a shorter name");
    if is_name(full) { Ok(()) } else { Err(Failure::Bad(why())) }
}

fn no_tenant(name: &str) -> Failure {
    Failure::Missing(format!("there is no tenant \"{}\"", shorten(name)))
}

pub(super) fn bad_name() -> Failure {
    Failure::Bad("the tenant's name is no name; up to 64 letters, digits, '.', '_' and '-' are".into())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ADMIN, settings, settle, spec, three};
    use super::*;
    use crate::machine::commands::Created;
    use crate::machine::{Grant, Settings};
    use crate::model::{AuthorityRecord, CertificateRecord, InvitationRecord};
    use crate::tokens::{self, Scope};

    fn callers() -> (Caller, Caller) {
        (Caller::Tenant("ann".into()), Caller::Tenant("bob".into()))
    }

    #[test]
    fn tenants_see_and_change_their_own_and_both_may_have_the_same_name() {
        let (mut machine, _) = three();
        let (ann, bob) = callers();
        let plain = spec(1, None, None);
        let made = machine.create(&ann, "d", &plain, None, None).unwrap();
        assert_eq!(made, Created { name: "ann.d".into(), fresh: true });
        for name in ["d", "ann.d"] {
            assert!(matches!(machine.visible(&bob, name), Err(Failure::Missing(_))));
            assert!(matches!(machine.remove(&bob, name, None, true), Err(Failure::Missing(_))));
            assert!(matches!(machine.change(&bob, name, &plain, None), Err(Failure::Missing(_))));
            assert_eq!(machine.visible(&ann, name).unwrap().name, "ann.d");
        }
        let of_another = machine.create(&bob, "e", &plain, Some("ann"), None);
        assert!(matches!(of_another, Err(Failure::Forbidden(_))));
        // What bob is told does not say that ann has one.
        assert_eq!(machine.create(&bob, "d", &plain, None, None).unwrap().name, "bob.d");
        for again in ["d", "bob.d"] {
            assert!(matches!(machine.create(&bob, again, &plain, None, None), Err(Failure::Conflict(_))));
        }
        assert_eq!(
            (machine.visible(&ADMIN, "bob.d").is_ok(), machine.visible(&ADMIN, "d").is_ok()),
            (true, false)
        );
        let long = "x".repeat(61);
        assert!(matches!(machine.create(&bob, &long, &plain, None, None), Err(Failure::Bad(_))));
        // A disk of an earlier release has no tenant's name before its own.
        machine.create(&ADMIN, "old", &plain, None, None).unwrap();
        let old = DiskRecord { tenant: Some("ann".into()), ..machine.disk("old").unwrap().clone() };
        machine.put_disk("old", Some(old));
        assert_eq!(machine.visible(&ann, "old").unwrap().name, "old");
        assert_eq!((ann.calls("old"), ann.calls("ann.d"), ADMIN.calls("ann.d")), ("old", "d", "ann.d"));
    }

    #[test]
    fn a_quota_is_kept_and_what_is_left_is_said() {
        let (mut machine, mut nodes) = three();
        let (ann, bob) = callers();
        let quota = Quota {
            disks: Some(2),
            bytes: Some("30GB".into()),
            rate: Some("100/s".into()),
            ..Quota::default()
        };
        machine.set_quota(&ADMIN, "ann", quota).unwrap();
        machine.create(&ann, "a", &spec(20, Some(60), None), None, None).unwrap();
        settle(&mut machine, &mut nodes);
        let beyond = |outcome: Result<Created, Failure>| match outcome {
            Err(Failure::Quota { why, left }) => (why, *left),
            other => panic!("{other:?}"),
        };
        let (why, left) = beyond(machine.create(&ann, "b", &spec(11, None, None), None, None));
        assert!(why.contains("10GB are left"), "{why}");
        let all = Quota {
            disks: Some(1),
            bytes: Some("10000000000B".into()),
            rate: Some("40/s".into()),
            ..Quota::default()
        };
        assert_eq!(left, all);
        // Whoever makes it: the administrator raises the quota first.
        let (why, _) = beyond(machine.create(&ADMIN, "b", &spec(1, Some(41), None), Some("ann"), None));
        assert!(why.contains("rate"), "{why}");
        let preview = machine.preview(&ann, &spec(1, Some(41), None)).unwrap();
        assert!(!preview.admitted && preview.why.contains("40/s are left"), "{preview:?}");
        assert!(machine.preview(&bob, &spec(1, Some(41), None)).unwrap().admitted);
        machine.create(&ann, "b", &spec(10, Some(40), None), None, None).unwrap();
        let (why, _) = beyond(machine.create(&ann, "c", &spec(1, None, None), None, None));
        assert!(why.contains("disks"), "{why}");
        // A change is held against the others', not against what it had itself.
        machine.change(&ann, "b", &spec(10, Some(39), None), None).unwrap();
        machine.change(&ann, "b", &spec(10, Some(40), None), None).unwrap();
        assert!(matches!(
            machine.change(&ann, "b", &spec(10, Some(41), None), None),
            Err(Failure::Quota { .. })
        ));
        // A disk counts until its nodes have said that it is gone.
        settle(&mut machine, &mut nodes);
        machine.remove(&ann, "a", None, true).unwrap();
        beyond(machine.create(&ann, "c", &spec(1, None, None), None, None));
        settle(&mut machine, &mut nodes);
        machine.create(&ann, "c", &spec(20, Some(60), None), None, None).unwrap();
        let shown = machine.tenant(&ann, "ann").unwrap();
        assert_eq!(
            (shown.used.disks, shown.left.disks, shown.left.rate.as_deref()),
            (Some(2), Some(0), Some("0/s"))
        );
    }

    #[test]
    fn a_latency_counts_by_what_is_reserved_for_it() {
        let (mut machine, _) = three();
        let (ann, _) = callers();
        machine.create(&ann, "a", &spec(1, None, Some(120)), None, None).unwrap();
        let reserved = machine.disk("ann.a").unwrap().whole_micro();
        assert!(reserved > 1_000_000, "a latency takes a reservation");
        let quota = |micro: u64| Quota { rate: Some(crate::model::rate_text(micro)), ..Quota::default() };
        machine.set_quota(&ADMIN, "ann", quota(2 * reserved - 1)).unwrap();
        let second = machine.create(&ann, "b", &spec(1, None, Some(120)), None, None);
        assert!(matches!(second, Err(Failure::Quota { .. })), "{second:?}");
        machine.set_quota(&ADMIN, "ann", quota(2 * reserved)).unwrap();
        machine.create(&ann, "b", &spec(1, None, Some(120)), None, None).unwrap();
    }

    #[test]
    fn a_tenant_moves_below_the_ceiling_and_not_above() {
        let (mut machine, _) = three();
        let (ann, bob) = callers();
        let disks = |n| Quota { disks: Some(n), ..Quota::default() };
        machine.set_quota(&ADMIN, "ann", disks(10)).unwrap();
        assert!(matches!(machine.set_quota(&ann, "ann", disks(11)), Err(Failure::Conflict(_))));
        assert!(matches!(machine.set_quota(&bob, "ann", disks(1)), Err(Failure::Missing(_))));
        assert!(matches!(machine.tenant(&bob, "ann"), Err(Failure::Missing(_))));
        assert_eq!(machine.tenants(&bob), []);
        assert_eq!(machine.set_quota(&ann, "ann", disks(1)).unwrap().left.disks, Some(1));
        machine.create(&ann, "a", &spec(1, None, None), None, None).unwrap();
        let own = machine.create(&ann, "b", &spec(1, None, None), None, None);
        assert!(matches!(own, Err(Failure::Quota { .. })));
        machine.set_quota(&ann, "ann", disks(10)).unwrap();
        machine.create(&ann, "b", &spec(1, None, None), None, None).unwrap();
        let bad = Quota { bytes: Some("many".into()), ..Quota::default() };
        assert!(matches!(machine.set_quota(&ADMIN, "ann", bad), Err(Failure::Bad(_))));
        assert!(matches!(machine.set_quota(&ADMIN, "a b", disks(1)), Err(Failure::Bad(_))));
        // It is remembered.
        let stored = machine.take_batch().changes.into_iter().filter_map(|(k, v)| Some((k, v?)));
        let stored: std::collections::BTreeMap<_, _> = stored.collect();
        let young = Machine::load(settings(), stored.into_iter().collect()).unwrap();
        assert_eq!(young.tenant(&ADMIN, "ann").unwrap(), machine.tenant(&ADMIN, "ann").unwrap());
    }

    #[test]
    fn terms_that_the_administrator_set_are_a_ceiling() {
        let (mut machine, _) = three();
        let (ann, _) = callers();
        let limited =
            |limit: Option<&str>| DiskSpec { limit: limit.map(str::to_owned), ..spec(1, None, None) };
        machine.create(&ADMIN, "d", &limited(Some("500/s")), Some("ann"), None).unwrap();
        for above in [limited(None), limited(Some("501/s"))] {
            assert!(matches!(machine.change(&ann, "d", &above, None), Err(Failure::Forbidden(_))));
            assert!(matches!(machine.admits_change(&ann, "d", &above), Err(Failure::Forbidden(_))));
        }
        let one = Caller::Disk { tenant: Some("ann".into()), name: "ann.d".into() };
        machine.change(&one, "d", &limited(Some("100/s")), None).unwrap();
        assert!(matches!(machine.change(&one, "d", &limited(None), None), Err(Failure::Forbidden(_))));
        machine.change(&ann, "d", &limited(Some("500/s")), None).unwrap();
        machine.change(&ADMIN, "ann.d", &limited(None), None).unwrap();
        machine.change(&ann, "d", &limited(Some("900/s")), None).unwrap();
        // What a tenant made itself has no ceiling but its quota.
        machine.create(&ann, "e", &limited(Some("500/s")), None, None).unwrap();
        machine.change(&ann, "e", &limited(None), None).unwrap();
    }

    #[test]
    fn a_token_of_one_disk_opens_that_one() {
        let (mut machine, _) = three();
        let (ann, _) = callers();
        for name in ["d", "e"] {
            machine.create(&ann, name, &spec(1, None, None), None, None).unwrap();
        }
        machine.create(&ADMIN, "d", &spec(1, None, None), None, None).unwrap();
        let scope = Scope { tenant: Some("ann".into()), read: true, disk: Some("ann.d".into()) };
        let (token, record) = tokens::create(scope, 0, None).unwrap();
        machine.put_token(record);
        let known = tokens::known(&machine, &token).unwrap();
        assert!(known.read);
        let one = known.caller;
        assert_eq!(machine.visible(&one, "d").unwrap().name, "ann.d");
        assert!(matches!(machine.visible(&one, "e"), Err(Failure::Missing(_))));
        assert_eq!(machine.disks().filter(|d| one.owns(d)).count(), 1);
        let made = machine.create(&one, "f", &spec(1, None, None), None, None);
        assert!(matches!(made, Err(Failure::Forbidden(_))));
        assert_eq!(machine.tenants(&one), []);
        // The administrator's disk of that name is another one; a token of it opens no tenant's.
        let other = Caller::Disk { tenant: None, name: "d".into() };
        assert_eq!(machine.visible(&other, "d").unwrap().tenant, None);
        assert!(machine.visible(&other, "ann.d").is_err() && !other.is_administrator());
    }

    #[test]
    fn a_tenant_without_disks_ends_with_its_tokens() {
        let (mut machine, mut nodes) = three();
        let (ann, _) = callers();
        let (token, record) =
            tokens::create(Scope { tenant: Some("ann".into()), ..Scope::default() }, 0, None).unwrap();
        machine.put_token(record);
        machine.create(&ann, "d", &spec(1, None, None), None, None).unwrap();
        settle(&mut machine, &mut nodes);
        assert!(matches!(machine.remove_tenant("ann"), Err(Failure::Conflict(_))));
        machine.remove(&ann, "d", None, true).unwrap();
        settle(&mut machine, &mut nodes);
        assert!(tokens::known(&machine, &token).is_ok());
        machine.remove_tenant("ann").unwrap();
        assert!(tokens::known(&machine, &token).is_err());
        assert!(matches!(machine.remove_tenant("ann"), Err(Failure::Missing(_))));
        assert!(matches!(machine.tenant(&ADMIN, "ann"), Err(Failure::Missing(_))));
    }

    fn certificate(serial: &str, name: &str, tenant: Option<&str>) -> CertificateRecord {
        CertificateRecord {
            serial: serial.into(),
            role: "client".into(),
            name: name.into(),
            tenant: tenant.map(str::to_owned),
            hosts: Vec::new(),
            root: "r".into(),
            issued: 0,
            expires: u64::MAX,
            revoked: None,
        }
    }

    #[test]
    fn a_tenant_made_later_has_nothing_of_the_one_before() {
        let (mut machine, mut nodes) = three();
        machine.put_authority(AuthorityRecord { cluster: "demo".into(), roots: Vec::new(), list: 4 });
        let (ann, bob) = callers();
        let plain = spec(1, None, None);
        for (who, key) in [(&ann, "k"), (&bob, "k")] {
            machine.create(who, "d", &plain, None, Some((key, "one request"))).unwrap();
        }
        settle(&mut machine, &mut nodes);
        let invitation = |id: &str, name: &str, tenant: Option<&str>| InvitationRecord {
            id: id.into(),
            role: "client".into(),
            name: name.into(),
            tenant: tenant.map(str::to_owned),
            hosts: Vec::new(),
            hash: format!("hash-{id}"),
            created: 0,
            expires: u64::MAX,
            used: None,
        };
        for (id, name) in [("open", "phone"), ("under way", "tablet")] {
            machine.invite(invitation(id, name, Some("ann"))).unwrap();
        }
        let under_way = Grant::Invitation(machine.redeem("hash-under way").unwrap().id);
        let certificates = [
            certificate("1", "laptop", Some("ann")),
            certificate("2", "ann", None), // invited before tenants had clients
            certificate("3", "ann", Some("bob")),
            certificate("4", "backup", None),
            CertificateRecord { role: "node".into(), ..certificate("5", "ann", None) },
        ];
        for one in certificates {
            machine.issued(one, &Grant::Own).unwrap();
        }
        assert_eq!(machine.tenant(&ADMIN, "ann").unwrap().clients, 2);
        machine.remove(&ann, "d", None, true).unwrap();
        settle(&mut machine, &mut nodes);
        let shown =
            |machine: &Machine| machine.events(0).filter(|e| e.tenant.as_deref() == Some("ann")).count();
        assert!(shown(&machine) > 0);
        let forgotten = machine.remove_tenant("ann").unwrap();
        assert_eq!(forgotten, Forgotten { tokens: 0, certificates: 2, invitations: 1 });
        assert_eq!(machine.authority().unwrap().list, 5, "nodes are told");
        let counting = |machine: &Machine| {
            let counting = machine.certificates().filter(|c| c.revoked.is_none());
            counting.map(|c| c.serial.clone()).collect::<Vec<_>>()
        };
        assert_eq!(counting(&machine), ["3", "4", "5"]);
        assert!(machine.issued(certificate("6", "tablet", Some("ann")), &under_way).is_err());
        assert!(machine.redeem("hash-open").is_err());
        // Somebody else is called so now.
        let quota = Quota { disks: Some(1), ..Quota::default() };
        machine.set_quota(&ADMIN, "ann", quota).unwrap();
        assert_eq!(shown(&machine), 0, "what happened before is not hers to know");
        assert_eq!(machine.tenant(&ADMIN, "ann").unwrap().clients, 0);
        assert!(machine.may_renew("1").is_err() && machine.may_renew("2").is_err());
        machine.create(&ann, "e", &plain, None, Some(("k", "another request"))).unwrap();
        // And what is stored says the same.
        let stored = machine.take_batch().changes.into_iter();
        let stored: std::collections::BTreeMap<_, _> = stored.collect();
        let stored = stored.into_iter().filter_map(|(k, v)| Some((k, v?))).collect();
        let young = Machine::load(settings(), stored).unwrap();
        assert_eq!((counting(&young), shown(&young)), (counting(&machine), shown(&machine)));
    }

    #[test]
    fn a_tenant_is_there_while_it_has_a_client() {
        let (mut machine, _) = three();
        machine.issued(certificate("1", "laptop", Some("zoe")), &Grant::Own).unwrap();
        assert_eq!(machine.tenant(&ADMIN, "zoe").unwrap().clients, 1);
        machine.remove_tenant("zoe").unwrap();
        assert!(machine.tenant(&ADMIN, "zoe").is_err());
    }

    #[test]
    fn what_no_quota_counts_is_the_administrators_to_give() {
        let mut machine = Machine::load(Settings { rules: None, ..Settings::default() }, Vec::new()).unwrap();
        let pool = henge_api::manager::Pool {
            name: "p".into(),
            capacity: 1 << 40,
            copies: 1,
            scheduler: "locality".into(),
            keeps: None,
            profile: None,
            shared: None,
        };
        let node = henge_api::manager::Register {
            name: "n".into(),
            addresses: Vec::new(),
            link: None,
            pools: vec![pool],
            disks: Vec::new(),
            speaks: henge_api::manager::speaks(),
        };
        machine.register(1, node);
        let ann = Caller::Tenant("ann".into());
        let with = |terms: &[(&str, &str)]| {
            let mut spec = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
            terms.iter().for_each(|(key, text)| spec.set(key, text).unwrap());
            spec
        };
        let shared =
            with(&[("share", "25%"), ("kind", "throughput"), ("throughput", "90/s"), ("tolerance", "5%")]);
        let why = machine.create(&ann, "d", &shared, None, None).unwrap_err().to_string();
        assert!(why.contains("share is the administrator's to give"), "{why}");
        let said = machine.preview(&ann, &shared).unwrap();
        assert!(!said.admitted && said.why.contains("administrator's"), "{said:?}");
        machine.create(&Caller::Administrator, "d", &shared, Some("ann"), None).unwrap();
        // She changes other terms, and none of these: a tolerance that is gone promises more.
        let mut other = shared.clone();
        other.set("weight", "3").unwrap();
        machine.change(&ann, "ann.d", &other, None).unwrap();
        for (term, text) in [("tolerance", ""), ("share", "26%"), ("burst", "9"), ("min_share", "1%")] {
            let mut more = other.clone();
            more.set("limit", "9/s").unwrap();
            more.set(term, text).unwrap();
            let why = machine.change(&ann, "ann.d", &more, None).unwrap_err().to_string();
            assert!(why.contains(term), "{term}: {why}");
            machine.admits_change(&ann, "ann.d", &more).unwrap_err();
        }
        // A quota of shares makes them hers, as far as it goes, and not bursts.
        let quota = Quota { share: Some("60%".into()), ..Quota::default() };
        machine.set_quota(&Caller::Administrator, "ann", quota).unwrap();
        let own = with(&[("share", "35%")]);
        machine.create(&ann, "e", &own, None, None).unwrap();
        match machine.create(&ann, "f", &with(&[("share", "1%")]), None, None).unwrap_err() {
            Failure::Quota { why, left } => {
                assert!(why.contains("60% are allowed and 60% in use; 0% are left"), "{why}");
                assert_eq!(left.share.as_deref(), Some("0%"));
            }
            other => panic!("{other:?}"),
        }
        let bursts = with(&[("limit", "9/s"), ("burst", "7")]);
        assert!(machine.create(&ann, "g", &bursts, None, None).unwrap_err().to_string().contains("--burst"));
        // What the administrator stated of a disk stays its ceiling.
        let mut more = other.clone();
        more.set("share", "26%").unwrap();
        machine.remove(&ann, "e", None, true).unwrap();
        let why = machine.change(&ann, "ann.d", &more, None).unwrap_err().to_string();
        assert!(why.contains("set share to 25%"), "{why}");
        more.set("share", "24%").unwrap();
        machine.change(&ann, "ann.d", &more, None).unwrap();
        more.set("share", "25%").unwrap();
        machine.change(&ann, "ann.d", &more, None).unwrap();
        let want = machine.disk("ann.d").unwrap().want("n", |_| None).unwrap();
        assert_eq!((want.contract["share"].as_str(), want.contract["tolerance"].as_str()), ("25%", "5%"));
    }
}
