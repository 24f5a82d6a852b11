//! A disk is made: what admission would say, and once it says yes, the disk with its places.

use super::admit::{read, reasons, rule, whole_micro};
use super::names::{bad_name, good_name, short_enough};
use super::{Caller, Created, Decision, Failure, KEYS_MAX, Machine, Place, gateways};
use crate::decide::{Chosen, Instead, Refusal};
use crate::model::{Begins, DiskRecord, DiskSpec, KeyRecord, PartRecord, Phase, rate_text};
use crate::tenant::{Quota, full_name};
use henge_api::is_name;
use henge_api::manager::Origin;

impl Machine {
    /// What admission would say now.
    pub fn preview(&self, caller: &Caller, spec: &DiskSpec) -> Result<Decision, Failure> {
        let specification = read(spec)?;
        let no = |why| Decision { admitted: false, why, places: Vec::new(), instead: Instead::default() };
        let within = self.given(caller, None, spec);
        if let Err(beyond) = within.and_then(|()| self.within_quota(caller.tenant(), "", spec, 0)) {
            return Ok(no(beyond.to_string()));
        }
        Ok(match self.choose(spec, &specification, &Origin::default()) {
            Ok(chosen) => match self.within_quota(caller.tenant(), "", spec, whole_micro(spec, &chosen)) {
                Err(beyond) => no(beyond.to_string()),
                Ok(()) => Decision {
                    admitted: true,
                    why: reasons(&chosen),
                    places: chosen.iter().map(place_of).collect(),
                    instead: Instead::default(),
                },
            },
            Err(refusal) => {
                Decision { admitted: false, why: refusal.why, places: Vec::new(), instead: refusal.instead }
            }
        })
    }

    /// The same of a disk that its nodes show to whom they show disks of which nothing is stated.
    #[cfg(test)]
    pub(crate) fn create(
        &mut self,
        caller: &Caller,
        name: &str,
        spec: &DiskSpec,
        tenant: Option<&str>,
        key: Option<(&str, &str)>,
    ) -> Result<Created, Failure> {
        self.create_for(caller, name, spec, tenant, key, Begins::default())
    }

    /// Admits, places and remembers a disk. The same key with the same request gives the same disk.
    pub fn create_for(
        &mut self,
        caller: &Caller,
        name: &str,
        spec: &DiskSpec,
        tenant: Option<&str>,
        key: Option<(&str, &str)>,
        begins: Begins,
    ) -> Result<Created, Failure> {
        good_name(name)?;
        gateways::allowed(caller, spec, &begins.origin)?;
        let owner = owner_of(caller, tenant)?;
        let full = owner.as_deref().map_or_else(|| name.to_owned(), |owner| full_name(owner, name));
        short_enough(&full)?;
        let name = full.as_str();
        let key = key.map(|(key, hash)| (format!("{}/{key}", caller.tenant().unwrap_or("")), hash));
        if let Some((key, hash)) = &key
            && let Some(known) = self.known_by(key, hash)?
        {
            return Ok(known);
        }
        let specification = read(spec)?;
        self.free_name(caller, name)?;
        self.given(caller, None, spec)?;
        self.within_quota(owner.as_deref(), name, spec, 0)?;
        let chosen = self.choose(spec, &specification, &begins.origin);
        let chosen = chosen.map_err(|refusal| self.refused(name, spec, refusal))?;
        self.within_quota(owner.as_deref(), name, spec, whole_micro(spec, &chosen))?;
        self.insert(name, owner, spec, &chosen, (caller, begins));
        if let Some((key, hash)) = key {
            self.put_key(key, KeyRecord { id: self.revision, hash: hash.to_owned(), disk: name.to_owned() });
        }
        Ok(Created { name: name.to_owned(), fresh: true })
    }

    /// What an idempotency key has made, if it is still there.
    fn known_by(&self, key: &str, hash: &str) -> Result<Option<Created>, Failure> {
        let Some(known) = self.keys.get(key) else { return Ok(None) };
        if known.hash != *hash {
            let why = "this idempotency key was used for another request; take a new key".into();
            return Err(Failure::Bad(why));
        }
        let made = Created { name: known.disk.clone(), fresh: false };
        Ok(self.disks.contains_key(&known.disk).then_some(made))
    }

    /// Many refusals say the same; the log has one line of a kind.
    fn refused(&mut self, name: &str, spec: &DiskSpec, refusal: Refusal) -> Failure {
        let text = format!("\"{name}\" ({}): {}", spec.describe(), refusal.why);
        if self.events.back().is_none_or(|e| e.text != text) {
            self.put_event("refused", None, None, text);
        }
        Failure::Refused(refusal)
    }

    fn insert(
        &mut self,
        name: &str,
        tenant: Option<String>,
        spec: &DiskSpec,
        chosen: &[Chosen],
        (caller, begins): (&Caller, Begins),
    ) {
        let mut ceiling = Quota::default();
        if caller.is_administrator() {
            ceiling.follow(None, spec);
        }
        let parts = chosen.iter().map(|c| PartRecord {
            node: c.node.clone(),
            pool: c.pool.clone(),
            reserved_micro: c.reserved_micro,
            held: None,
            confirmed: 0,
        });
        let disk = DiskRecord {
            name: name.to_owned(),
            tenant,
            spec: spec.clone(),
            parts: parts.collect(),
            phase: Phase::Creating,
            revision: 0,
            created: self.now,
            admitted_by: rule(chosen).to_owned(),
            growing_from: None,
            room: None,
            differences: Default::default(),
            ceiling,
            access: begins.access,
            shared: chosen.len() > spec.parts().unwrap_or(1) as usize,
            origin: begins.origin,
        };
        self.failures.retain(|(failed, ..)| failed != name);
        self.put_disk(name, Some(disk.clone()));
        self.admitted_on(chosen);
        let where_ = chosen.iter().map(|c| format!("{}/{}", c.node, c.pool)).collect::<Vec<_>>().join(", ");
        self.put_event(
            "admitted",
            Some(&disk),
            None,
            format!("{} on {where_}; {}", spec.describe(), reasons(chosen)),
        );
        self.order(name);
    }

    fn put_key(&mut self, key: String, record: KeyRecord) {
        self.put(format!("key/{key}"), Some(&record));
        self.keys.insert(key, record);
        while self.keys.len() > KEYS_MAX {
            let oldest = self.keys.iter().min_by_key(|(_, r)| r.id).map(|(k, _)| k.clone());
            let Some(oldest) = oldest else { return };
            self.keys.remove(&oldest);
            self.put::<KeyRecord>(format!("key/{oldest}"), None);
        }
    }

    /// Why a disk's creation came to nothing.
    pub fn failure(&self, name: &str) -> Option<&str> {
        self.failures.iter().rev().find(|(failed, ..)| failed == name).map(|(.., why)| why.as_str())
    }
}

/// Whose a new disk is: a tenant's own, or whose the administrator says.
fn owner_of(caller: &Caller, tenant: Option<&str>) -> Result<Option<String>, Failure> {
    let owner = match (caller, tenant) {
        (Caller::Tenant(own), Some(other)) if own != other => {
            let why = format!("this token makes disks of \"{own}\" only; leave the tenant out");
            return Err(Failure::Forbidden(why));
        }
        (Caller::Tenant(own), _) => Some(own.clone()),
        (Caller::Administrator, tenant) => tenant.map(str::to_owned),
        (Caller::Disk { .. }, _) => {
            let why = "this token is for one disk, and makes none; ask the administrator for another one";
            return Err(Failure::Forbidden(why.into()));
        }
    };
    match owner {
        Some(tenant) if !is_name(&tenant) => Err(bad_name()),
        owner => Ok(owner),
    }
}

fn place_of(chosen: &Chosen) -> Place {
    Place { node: chosen.node.clone(), pool: chosen.pool.clone(), reserved: rate_text(chosen.reserved_micro) }
}
