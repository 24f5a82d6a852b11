//! A disk is promised something else, has other secrets, or goes; nodes that have none of it are forgotten.

use super::admit::{admit_again, admitted_on, read, rule, whole_micro};
use super::quotas::below_ceiling;
use super::{Caller, Failure, Machine};
use crate::access::{Access, Secrets};
use crate::decide::Chosen;
use crate::model::{DiskRecord, DiskSpec, HeldRecord, PartRecord, Phase, rate_text};
use crate::shorten::shorten;

impl Machine {
    /// Promises a disk something else, on the nodes it is on. If that is refused the old contract stays.
    pub fn change(
        &mut self,
        caller: &Caller,
        name: &str,
        spec: &DiskSpec,
        expected: Option<u64>,
    ) -> Result<(), Failure> {
        self.paces.ask(caller, self.journal.now())?;
        let disk = self.inventory.visible(caller, name)?.clone();
        let name = disk.name.as_str();
        unchanged(&disk, expected)?;
        if disk.phase == Phase::Removing {
            return Err(Failure::Conflict(format!("disk \"{name}\" is being removed")));
        }
        let specification = read(spec)?;
        may_become(&disk, spec)?;
        // Who waits for this is not told why an earlier one failed.
        self.failures.forget(name);
        if *spec == disk.spec && disk.differences.is_empty() {
            return Ok(());
        }
        below_ceiling(caller, &disk, spec)?;
        self.quotas.given(caller, Some(&disk.spec), spec)?;
        self.quotas.within(&self.inventory, disk.tenant.as_deref(), name, spec, 0)?;
        let chosen = admit_again(&self.inventory, &disk, spec, &specification)?;
        self.quotas.within(
            &self.inventory,
            disk.tenant.as_deref(),
            name,
            spec,
            whole_micro(spec, &chosen),
        )?;
        let mut ceiling = disk.ceiling.clone();
        if caller.is_administrator() {
            ceiling.follow(Some(&disk.spec), spec);
        }
        let grows = spec.bytes() > disk.spec.bytes() && disk.parts.len() > 1;
        let mut changed = DiskRecord {
            spec: spec.clone(),
            // Nobody sees more of it before there is room at all its places; a disk that no node has made yet is made so large.
            growing_from: match grows && disk.phase != Phase::Creating {
                true => disk.growing_from.or(Some(disk.spec.bytes())),
                false => disk.growing_from,
            },
            admitted_by: rule(&chosen).to_owned(),
            differences: Default::default(),
            ceiling,
            phase: if disk.phase == Phase::Creating { Phase::Creating } else { Phase::Changing },
            ..disk.clone()
        };
        for (part, chosen) in changed.parts.iter_mut().zip(&chosen) {
            // The node enforces the old contract until it says otherwise.
            if part.held.is_none() && part.confirmed > 0 {
                part.held = Some(HeldRecord { spec: disk.spec.clone(), reserved_micro: part.reserved_micro });
            }
            part.reserved_micro = chosen.reserved_micro;
        }
        self.put_disk(name, Some(changed));
        admitted_on(self, &chosen);
        self.journal.put_event("changed", Some(&disk), None, format!("now {}", spec.describe()));
        self.order(name);
        Ok(())
    }

    /// What a change would reserve, or why it would be refused.
    pub fn admits_change(
        &self,
        caller: &Caller,
        name: &str,
        spec: &DiskSpec,
    ) -> Result<Vec<String>, Failure> {
        let disk = self.inventory.visible(caller, name)?;
        let specification = read(spec)?;
        may_become(disk, spec)?;
        below_ceiling(caller, disk, spec)?;
        self.quotas.given(caller, Some(&disk.spec), spec)?;
        self.quotas.within(&self.inventory, disk.tenant.as_deref(), &disk.name, spec, 0)?;
        let chosen = admit_again(&self.inventory, disk, spec, &specification)?;
        self.quotas.within(
            &self.inventory,
            disk.tenant.as_deref(),
            &disk.name,
            spec,
            whole_micro(spec, &chosen),
        )?;
        let line = |(old, new): (&PartRecord, &Chosen)| {
            let (before, after) = (rate_text(old.reserved_micro), rate_text(new.reserved_micro));
            format!("{}/{}: {before} reserved before, {after} after", old.node, old.pool)
        };
        Ok(disk.parts.iter().zip(&chosen).map(line).collect())
    }

    /// Other secrets for a disk, and other names by NBD if some are stated: those from before open nothing once its nodes know. Who may now.
    pub fn rekey(
        &mut self,
        caller: &Caller,
        name: &str,
        secrets: Secrets,
        nbd: Option<Vec<String>>,
    ) -> Result<Access, Failure> {
        self.paces.ask(caller, self.journal.now())?;
        let disk = self.inventory.visible(caller, name)?.clone();
        let name = disk.name.as_str();
        if disk.phase == Phase::Removing {
            return Err(Failure::Conflict(format!("disk \"{name}\" is being removed")));
        }
        let before = || disk.access.as_ref().map(|access| access.nbd.clone());
        let access = Access { nbd: nbd.or_else(before).unwrap_or_default(), secrets };
        let mut changed = disk.clone();
        changed.access = Some(access.clone());
        if changed.phase != Phase::Creating {
            changed.phase = Phase::Changing;
            let held = |part: &PartRecord| HeldRecord {
                spec: disk.spec.clone(),
                reserved_micro: part.reserved_micro,
            };
            changed
                .parts
                .iter_mut()
                .for_each(|part| part.held = part.held.take().or_else(|| Some(held(part))));
        }
        self.failures.forget(name);
        self.put_disk(name, Some(changed));
        self.journal.put_event(
            "rekeyed",
            Some(&disk),
            None,
            "it has other secrets now; those before open nothing".into(),
        );
        self.order(name);
        Ok(access)
    }

    /// Removes a disk. Its place is free once its nodes say so. `false`: a node is away, it goes when that is back.
    pub fn remove(
        &mut self,
        caller: &Caller,
        name: &str,
        expected: Option<u64>,
        force: bool,
    ) -> Result<bool, Failure> {
        self.paces.ask(caller, self.journal.now())?;
        let disk = self.inventory.visible(caller, name)?.clone();
        let name = disk.name.as_str();
        unchanged(&disk, expected)?;
        let clients = self.clients(name);
        if clients > 0 && !force && disk.phase != Phase::Removing {
            let why = format!("disk \"{name}\" has {clients} client(s); disconnect them, or force it");
            return Err(Failure::Conflict(why));
        }
        if disk.phase != Phase::Removing {
            let removing = DiskRecord { phase: Phase::Removing, ..disk.clone() };
            self.failures.forget(name);
            self.put_disk(name, Some(removing));
            self.journal.put_event("removing", Some(&disk), None, "its data goes, too".into());
        }
        self.order(name);
        Ok(disk.parts.iter().all(|p| self.inventory.nodes.get(&p.node).is_some_and(|n| n.session.is_some())))
    }

    /// Forgets a node that is away and has no disks.
    pub fn forget_node(&mut self, name: &str) -> Result<(), Failure> {
        let Some(node) = self.inventory.nodes.get(name) else {
            return Err(Failure::Missing(format!("there is no node \"{}\"", shorten(name))));
        };
        let disks = self.inventory.disks.values().filter(|d| d.parts.iter().any(|p| p.node == name)).count();
        if disks > 0 {
            return Err(Failure::Conflict(format!("node \"{name}\" has {disks} disk(s); remove them first")));
        }
        if node.session.is_some() {
            return Err(Failure::Conflict(format!("node \"{name}\" is connected; stop it first")));
        }
        self.inventory.put_node(&mut self.journal, name, None);
        self.journal.put_event("forgotten", None, Some(name), "forgotten".into());
        Ok(())
    }
}

/// Whether a disk can become so at all, whatever is free.
fn may_become(disk: &DiskRecord, spec: &DiskSpec) -> Result<(), Failure> {
    if spec.parts() != disk.spec.parts() {
        return Err(Failure::Bad(
            "a disk stays on as many nodes as it was made on; make a new one and copy".into(),
        ));
    }
    let (old, new, name) = (disk.spec.bytes(), spec.bytes(), &disk.name);
    if new < old {
        let why = format!(
            "disk \"{name}\" does not shrink: what lies beyond {} would be lost; leave it at {}, or make a smaller one and copy",
            spec.capacity, disk.spec.capacity
        );
        return Err(Failure::Conflict(why));
    }
    Ok(())
}

fn unchanged(disk: &DiskRecord, expected: Option<u64>) -> Result<(), Failure> {
    match expected {
        Some(expected) if expected != disk.revision => Err(Failure::Changed(format!(
            "disk \"{}\" has changed since (it is at \"{}\", not \"{expected}\"); look at it again",
            disk.name, disk.revision
        ))),
        _ => Ok(()),
    }
}
