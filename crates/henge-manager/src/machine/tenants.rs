//! Tenants: what they may have, what they have, and how they end.

#[cfg(test)]
mod tests;

use super::names::bad_name;
use super::{Caller, Failure, Machine, Revoked, shorten};
use crate::model::{KeyRecord, TokenRecord};
use crate::tenant::{Quota, TenantRecord};
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

fn no_tenant(name: &str) -> Failure {
    Failure::Missing(format!("there is no tenant \"{}\"", shorten(name)))
}
