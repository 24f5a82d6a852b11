//! Whether a disk, new or changed, is within its tenant's quota, and below what the administrator stated of it.

use super::tenants::no_tenant;
use super::{Caller, Failure, Inventory, Journal};
use crate::model::{DiskRecord, DiskSpec};
use crate::tenant::{Quota, TenantRecord, Used};
use henge_core::{Given, TERMS};
use std::collections::BTreeMap;

/// Quotas of tenants: the administrator's ceilings, and their own.
#[derive(Default)]
pub(crate) struct Quotas {
    tenants: BTreeMap<String, TenantRecord>,
}

impl Inventory {
    /// What a tenant's disks hold, but for one.
    pub(super) fn used_by(&self, tenant: &str, without: Option<&str>) -> Used {
        let disks = self.disks.values().filter(|d| d.tenant.as_deref() == Some(tenant));
        let others = disks.filter(|d| Some(d.name.as_str()) != without);
        others.fold(Used::default(), |sum, d| sum.and(Used::of(&d.spec, d.whole_micro())))
    }
}

impl Quotas {
    pub(super) fn restore(&mut self, name: &str, value: &[u8]) -> Result<(), String> {
        let tenant: TenantRecord = serde_json::from_slice(value).map_err(|e| e.to_string())?;
        for quota in [&tenant.ceiling, &tenant.own] {
            quota.read().map_err(|e| e.0)?;
        }
        self.tenants.insert(name.to_owned(), tenant);
        Ok(())
    }

    /// Tenants of which a quota is stated.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tenants.keys().map(String::as_str)
    }

    /// Whether a quota of a tenant is stated.
    pub(super) fn state(&self, name: &str) -> bool {
        self.tenants.contains_key(name)
    }

    /// A tenant's quotas; without bounds where none is stated.
    pub(super) fn of(&self, name: &str) -> TenantRecord {
        self.tenants.get(name).cloned().unwrap_or_default()
    }

    /// The quota that this caller sets: the administrator the ceiling, a tenant its own.
    pub(crate) fn set_by(&self, caller: &Caller, name: &str) -> Result<Quota, Failure> {
        if !caller.is_tenant(name) {
            return Err(no_tenant(name));
        }
        let record = self.of(name);
        Ok(if caller.is_administrator() { record.ceiling } else { record.own })
    }

    pub(super) fn put(&mut self, journal: &mut Journal, name: &str, record: TenantRecord) {
        journal.put(format!("tenant/{name}"), Some(&record));
        self.tenants.insert(name.to_owned(), record);
    }

    pub(super) fn remove(&mut self, journal: &mut Journal, name: &str) {
        self.tenants.remove(name);
        journal.put::<TenantRecord>(format!("tenant/{name}"), None);
    }

    /// Whether a disk, new or changed, is within its tenant's quota; `name` is the whole one.
    pub(super) fn within(
        &self,
        inventory: &Inventory,
        tenant: Option<&str>,
        name: &str,
        spec: &DiskSpec,
        reserved_micro: u64,
    ) -> Result<(), Failure> {
        let Some((tenant, record)) = tenant.and_then(|t| Some((t, self.tenants.get(t)?))) else {
            return Ok(());
        };
        let (amounts, others) = (record.amounts(), inventory.used_by(tenant, Some(name)));
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
}

/// Whether a change is below what the administrator stated of the disk; his own always is.
pub(super) fn below_ceiling(caller: &Caller, disk: &DiskRecord, spec: &DiskSpec) -> Result<(), Failure> {
    // What is above already, and stays as it is, is no reason.
    let same = |term: &str| match term {
        "limit" => spec.limit == disk.spec.limit,
        "rate" => spec.rate == disk.spec.rate,
        "latency" => spec.latency == disk.spec.latency,
        "burst" => spec.burst == disk.spec.burst,
        "share" => (&spec.disk_time.share, &spec.amounts) == (&disk.spec.disk_time.share, &disk.spec.amounts),
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
