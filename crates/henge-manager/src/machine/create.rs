//! A disk is made: what admission would say, and once it says yes, the disk with its places.

use super::admit::{admitted_on, choose, read, reasons, rule, whole_micro};
use super::names::{bad_name, good_name, short_enough};
use super::{Caller, Created, Decision, Failure, Journal, Machine, Place, gateways};
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
        let within = self.quotas.given(caller, None, spec);
        if let Err(beyond) =
            within.and_then(|()| self.quotas.within(&self.inventory, caller.tenant(), "", spec, 0))
        {
            return Ok(no(beyond.to_string()));
        }
        Ok(match choose(&self.inventory, spec, &specification, &Origin::default()) {
            Ok(chosen) => match self.quotas.within(
                &self.inventory,
                caller.tenant(),
                "",
                spec,
                whole_micro(spec, &chosen),
            ) {
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
        self.paces.ask(caller, self.journal.now())?;
        good_name(name)?;
        gateways::allowed(caller, spec, &begins.origin)?;
        let owner = owner_of(caller, tenant)?;
        let full = owner.as_deref().map_or_else(|| name.to_owned(), |owner| full_name(owner, name));
        short_enough(&full)?;
        let name = full.as_str();
        let key = key.map(|(key, hash)| (format!("{}/{key}", caller.tenant().unwrap_or("")), hash));
        if let Some((key, hash)) = &key
            && let Some(known) = known_by(self, key, hash)?
        {
            return Ok(known);
        }
        let specification = read(spec)?;
        self.inventory.free_name(caller, name)?;
        self.quotas.given(caller, None, spec)?;
        self.quotas.within(&self.inventory, owner.as_deref(), name, spec, 0)?;
        let chosen = choose(&self.inventory, spec, &specification, &begins.origin);
        let chosen = chosen.map_err(|refusal| refused(&mut self.journal, name, spec, refusal))?;
        self.quotas.within(&self.inventory, owner.as_deref(), name, spec, whole_micro(spec, &chosen))?;
        let disk = admitted(name, owner, spec, &chosen, (caller, begins));
        insert(self, disk, &chosen);
        if let Some((key, hash)) = key {
            let id = self.journal.revision();
            let record = KeyRecord { id, hash: hash.to_owned(), disk: name.to_owned() };
            self.keys.put(&mut self.journal, key, record);
        }
        Ok(Created { name: name.to_owned(), fresh: true })
    }
}

/// What an idempotency key has made, if it is still there.
fn known_by(machine: &Machine, key: &str, hash: &str) -> Result<Option<Created>, Failure> {
    let disk = machine.keys.known(key, hash)?.and_then(|disk| machine.inventory.disk(disk));
    Ok(disk.map(|disk| Created { name: disk.name.clone(), fresh: false }))
}

/// Many refusals say the same; the log has one line of a kind.
fn refused(journal: &mut Journal, name: &str, spec: &DiskSpec, refusal: Refusal) -> Failure {
    let text = format!("\"{name}\" ({}): {}", spec.describe(), refusal.why);
    if !journal.says_last(&text) {
        journal.put_event("refused", None, None, text);
    }
    Failure::Refused(refusal)
}

/// A disk that was admitted. It has no time and no revision before it is remembered.
fn admitted(
    name: &str,
    tenant: Option<String>,
    spec: &DiskSpec,
    chosen: &[Chosen],
    (caller, begins): (&Caller, Begins),
) -> DiskRecord {
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
    DiskRecord {
        name: name.to_owned(),
        tenant,
        spec: spec.clone(),
        parts: parts.collect(),
        phase: Phase::Creating,
        revision: 0,
        created: 0,
        admitted_by: rule(chosen).to_owned(),
        growing_from: None,
        room: None,
        differences: Default::default(),
        ceiling,
        access: begins.access,
        shared: chosen.len() > spec.parts().unwrap_or(1) as usize,
        origin: begins.origin,
    }
}

/// Remembers a disk that was admitted, and tells its nodes.
fn insert(machine: &mut Machine, disk: DiskRecord, chosen: &[Chosen]) {
    let disk = DiskRecord { created: machine.journal.now(), ..disk };
    machine.failures.forget(&disk.name);
    machine.put_disk(&disk.name, Some(disk.clone()));
    admitted_on(machine, chosen);
    let where_ = chosen.iter().map(|c| format!("{}/{}", c.node, c.pool)).collect::<Vec<_>>().join(", ");
    let text = format!("{}; {}", disk.spec.describe(), reasons(chosen));
    machine.journal.put_event("admitted", Some(&disk), Some(&where_), text);
    machine.order(&disk.name);
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
