//! Tenants: what they may have, what they have, and how they end.

#[cfg(test)]
mod tests;

use super::names::bad_name;
use super::{Caller, Failure, Machine, Revoked};
use crate::shorten::shorten;
use crate::tenant::Quota;
use henge_api::is_name;
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
    /// Tenants that the caller may see: a tenant sees itself.
    pub fn tenants(&self, caller: &Caller) -> Vec<Tenant> {
        let names = names(self).into_iter().filter(|name| caller.is_tenant(name));
        names.map(|name| shown(self, name)).collect()
    }

    /// One of them.
    pub fn tenant(&self, caller: &Caller, name: &str) -> Result<Tenant, Failure> {
        let known = caller.is_tenant(name) && names(self).contains(name);
        if known { Ok(shown(self, name)) } else { Err(no_tenant(name)) }
    }

    /// Sets a tenant's quota. What its disks hold already stays theirs.
    pub fn set_quota(&mut self, caller: &Caller, name: &str, quota: Quota) -> Result<Tenant, Failure> {
        self.paces.ask(caller, self.journal.now())?;
        let before = self.quotas.set_by(caller, name)?;
        if !is_name(name) {
            return Err(bad_name());
        }
        quota.read().map_err(|e| Failure::Bad(e.0))?;
        let mut record = self.quotas.of(name);
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
        if quota != before || !self.quotas.state(name) {
            self.quotas.put(&mut self.journal, name, record);
            let text = format!("tenant \"{name}\": {}", quota.words());
            self.journal.put_event_of("quota", caller.tenant(), text);
        }
        Ok(shown(self, name))
    }

    /// Forgets a tenant that has no disks, with its tokens and clients: what they have open ends. A tenant of the same name that is
    /// made later has nothing of it: neither certificates, nor what its log says.
    pub fn remove_tenant(&mut self, name: &str) -> Result<Forgotten, Failure> {
        if !names(self).contains(name) {
            return Err(no_tenant(name));
        }
        let disks = self.disks().filter(|d| d.tenant.as_deref() == Some(name)).count();
        if disks > 0 {
            return Err(Failure::Conflict(format!(
                "tenant \"{name}\" has {disks} disk(s); remove them first, and their data with them"
            )));
        }
        let journal = &mut self.journal;
        let tokens = self.tokens.forget_tenant(journal, name);
        let Revoked { certificates, invitations } = self.identities.revoke_clients(journal, name);
        self.keys.forget_tenant(journal, name);
        journal.disown_events(name);
        self.quotas.remove(journal, name);
        let forgotten = Forgotten { tokens, certificates, invitations };
        let text = format!(
            "tenant \"{name}\"; {tokens} token(s) ended, {certificates} certificate(s) revoked, {invitations} invitation(s) taken back"
        );
        journal.put_event("forgotten", None, None, text);
        Ok(forgotten)
    }
}

/// Every name that owns something here, and those with a quota.
fn names(machine: &Machine) -> BTreeSet<&str> {
    let of_disks = machine.disks().filter_map(|d| d.tenant.as_deref());
    let of_tokens = machine.tokens.all().filter_map(|t| t.tenant.as_deref());
    let of_clients = machine.identities.tenants_of_clients(machine.journal.now());
    machine.quotas.names().chain(of_disks).chain(of_tokens).chain(of_clients).collect()
}

fn shown(machine: &Machine, name: &str) -> Tenant {
    let record = machine.quotas.of(name);
    let used = machine.inventory.used_by(name, None);
    let left = record.amounts().left(&used);
    let clients = machine.identities.clients_of(name, machine.journal.now());
    Tenant {
        name: name.to_owned(),
        ceiling: record.ceiling,
        own: record.own,
        used: Quota::used(&used),
        left,
        tokens: u32::try_from(machine.tokens.of(name).count()).unwrap_or(u32::MAX),
        clients: u32::try_from(clients).unwrap_or(u32::MAX),
    }
}

pub(super) fn no_tenant(name: &str) -> Failure {
    Failure::Missing(format!("there is no tenant \"{}\"", shorten(name)))
}
