//! What people ask: create, change and remove disks, preview, drain nodes, tokens.

use super::tenants::{good_name, short_enough};
use super::{KEYS_MAX, Machine, PoolKey, gateways, place};
use crate::access::{Access, Secrets};
use crate::decide::{self, Because, Chosen, Instead, PoolState, Refusal};
use crate::kept::Asked;
use crate::model::Begins;
use crate::model::{
    DiskRecord, DiskSpec, HeldRecord, KeyRecord, PartRecord, Phase, TokenRecord, rate_text, whole_of,
};
use crate::tenant::{Quota, full_name};
use henge_admission::{Specification, Standing};
use henge_api::is_name;
use henge_api::manager::{Order, Origin};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Caller {
    /// May do everything.
    Administrator,
    /// Sees and changes its own disks.
    Tenant(String),
    /// Sees and changes one disk.
    Disk {
        /// Whose it is.
        tenant: Option<String>,
        /// As nodes call it.
        name: String,
    },
}

impl Caller {
    /// Whose disks it speaks of.
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Caller::Administrator => None,
            Caller::Tenant(name) => Some(name),
            Caller::Disk { tenant, .. } => tenant.as_deref(),
        }
    }
    /// Whether it may do everything.
    pub fn is_administrator(&self) -> bool {
        *self == Caller::Administrator
    }
    /// Whether it is this tenant, or above all of them.
    pub fn is_tenant(&self, name: &str) -> bool {
        match self {
            Caller::Administrator => true,
            Caller::Tenant(own) => own == name,
            Caller::Disk { .. } => false,
        }
    }
    /// Whether a disk is its business.
    pub fn owns(&self, disk: &DiskRecord) -> bool {
        match self {
            Caller::Administrator => true,
            Caller::Tenant(name) => disk.tenant.as_deref() == Some(name),
            Caller::Disk { tenant, name } => disk.tenant == *tenant && disk.name == *name,
        }
    }
}

/// Why something was not done.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Failure {
    /// It makes no sense, whoever asks when.
    #[error("{0}")]
    Bad(String),
    /// It is somebody else's.
    #[error("{0}")]
    Forbidden(String),
    /// There is no such thing.
    #[error("{0}")]
    Missing(String),
    /// Something is in the way.
    #[error("{0}")]
    Conflict(String),
    /// It is not what the caller thinks it is.
    #[error("{0}")]
    Changed(String),
    /// Not admitted.
    #[error("{}", .0.why)]
    Refused(Refusal),
    /// More than its tenant may have.
    #[error("{why}")]
    Quota {
        /// In words.
        why: String,
        /// What is left.
        left: Box<Quota>,
    },
}

/// A part's place, for people.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Place {
    /// The node.
    pub node: String,
    /// Its pool.
    pub pool: String,
    /// What is reserved there.
    #[schema(example = "67.796611/s")]
    pub reserved: String,
}

/// What admission says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// Whether it would be admitted.
    pub admitted: bool,
    /// Why, or why not.
    pub why: String,
    /// Where it would lie.
    pub places: Vec<Place>,
    /// What would be admitted, each with everything else as asked; empty if it is admitted, or nothing would do.
    pub instead: Instead,
}

/// A disk was created, or was there already, just so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Created {
    /// The disk.
    pub name: String,
    /// Whether this request made it.
    pub fresh: bool,
}

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

    fn choose(
        &self,
        spec: &DiskSpec,
        specification: &Specification,
        origin: &Origin,
    ) -> Result<Vec<Chosen>, Refusal> {
        let parts = spec.parts().unwrap_or(1);
        let is_image = origin.image.is_some() || origin.from.is_some();
        let suits = |pool: &&PoolState| pool.shared.is_some() || !is_image;
        if is_image && !self.pools.values().any(|pool| suits(&pool)) {
            return Err(decide::no_images());
        }
        let asked = Asked::new(spec);
        let mut chosen = decide::place(self.pools.values().filter(suits), specification, &asked, parts)?;
        if let [first] = chosen.as_slice() {
            chosen = self.gateways_of(first, specification, &asked);
        }
        below_limit(spec, &chosen)?;
        Ok(chosen)
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
        if owner.as_deref().is_some_and(|t| !is_name(t)) {
            return Err(super::tenants::bad_name());
        }
        let full = owner.as_deref().map_or_else(|| name.to_owned(), |owner| full_name(owner, name));
        short_enough(&full)?;
        let name = full.as_str();
        let key = key.map(|(key, hash)| (format!("{}/{key}", caller.tenant().unwrap_or("")), hash));
        if let Some((key, hash)) = &key
            && let Some(known) = self.keys.get(key)
        {
            if known.hash != *hash {
                let why = "this idempotency key was used for another request; take a new key".into();
                return Err(Failure::Bad(why));
            }
            if self.disks.contains_key(&known.disk) {
                return Ok(Created { name: known.disk.clone(), fresh: false });
            }
        }
        let specification = read(spec)?;
        self.free_name(caller, name)?;
        self.given(caller, None, spec)?;
        self.within_quota(owner.as_deref(), name, spec, 0)?;
        let chosen = match self.choose(spec, &specification, &begins.origin) {
            Ok(chosen) => chosen,
            Err(refusal) => {
                // Many refusals say the same; the log has one line of a kind.
                let text = format!("\"{name}\" ({}): {}", spec.describe(), refusal.why);
                if self.events.back().is_none_or(|e| e.text != text) {
                    self.put_event("refused", None, None, text);
                }
                return Err(Failure::Refused(refusal));
            }
        };
        self.within_quota(owner.as_deref(), name, spec, whole_micro(spec, &chosen))?;
        self.insert(name, owner, spec, &chosen, (caller, begins));
        if let Some((key, hash)) = key {
            self.put_key(key, KeyRecord { id: self.revision, hash: hash.to_owned(), disk: name.to_owned() });
        }
        Ok(Created { name: name.to_owned(), fresh: true })
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

    /// What was measured there no longer says how it will be. Where measurement decided, the others' reservations follow it.
    fn admitted_on(&mut self, chosen: &[Chosen]) {
        for c in chosen {
            let key = (c.node.clone(), c.pool.clone());
            if !c.by_worst_case {
                self.follow_measurement(&key);
            }
            if let Some(pool) = self.pools.get_mut(&key) {
                pool.since = 0;
            }
            self.refresh(&key);
        }
    }

    /// Gives every disk of a pool the reservation that its measurement asks for, so that the scheduler's reservations add up
    /// to what the pool can do.
    fn follow_measurement(&mut self, key: &PoolKey) {
        let Some(pool) = self.pools.get(key) else { return };
        let Some(reservations) = pool.standing.as_ref().and_then(Standing::reservations) else { return };
        let names: Vec<String> = self.on.get(key).into_iter().flatten().cloned().collect();
        let changes: Vec<(String, u64)> = names
            .into_iter()
            .zip(reservations)
            .map(|(name, r)| (name, (r.rate() * 1e6).ceil() as u64))
            .filter(|(name, micro)| {
                let part = self.disks[name].parts.iter().find(|p| place(p) == *key);
                part.is_some_and(|p| p.reserved_micro > *micro)
            })
            .collect();
        for (name, micro) in changes {
            let mut disk = self.disks[&name].clone();
            for part in disk.parts.iter_mut().filter(|p| place(p) == *key) {
                part.reserved_micro = micro;
            }
            self.put_disk(&name, Some(disk));
            self.order(&name);
        }
    }

    /// Sends a disk's present state to its nodes that are here.
    pub(super) fn order(&mut self, name: &str) {
        let Some(disk) = self.disks.get(name) else { return };
        for part in &disk.parts {
            if self.nodes.get(&part.node).is_some_and(|n| n.session.is_some()) {
                let want = disk.want(&part.node, |node| self.nodes.get(node)?.record.link.clone());
                let order = Order::new(name, disk.revision, want.as_ref());
                self.orders.push((part.node.clone(), order));
            }
        }
    }

    /// Promises a disk something else, on the nodes it is on. If that is refused the old contract stays.
    pub fn change(
        &mut self,
        caller: &Caller,
        name: &str,
        spec: &DiskSpec,
        expected: Option<u64>,
    ) -> Result<(), Failure> {
        let disk = self.visible(caller, name)?.clone();
        let name = disk.name.as_str();
        unchanged(&disk, expected)?;
        if disk.phase == Phase::Removing {
            return Err(Failure::Conflict(format!("disk \"{name}\" is being removed")));
        }
        let specification = read(spec)?;
        may_become(&disk, spec)?;
        if *spec == disk.spec && disk.differences.is_empty() {
            return Ok(());
        }
        self.below_ceiling(caller, &disk, spec)?;
        self.given(caller, Some(&disk.spec), spec)?;
        self.within_quota(disk.tenant.as_deref(), name, spec, 0)?;
        let chosen = self.admit_again(&disk, spec, &specification)?;
        self.within_quota(disk.tenant.as_deref(), name, spec, whole_micro(spec, &chosen))?;
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
        self.failures.retain(|(failed, ..)| failed != name);
        self.put_disk(name, Some(changed));
        self.admitted_on(&chosen);
        self.put_event("changed", Some(&disk), None, format!("now {}", spec.describe()));
        self.order(name);
        Ok(())
    }

    /// Other secrets for a disk, and other names by NBD if some are stated: those from before open nothing once its nodes know. Who may now.
    pub fn rekey(
        &mut self,
        caller: &Caller,
        name: &str,
        secrets: Secrets,
        nbd: Option<Vec<String>>,
    ) -> Result<Access, Failure> {
        let disk = self.visible(caller, name)?.clone();
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
        self.put_disk(name, Some(changed));
        self.put_event(
            "rekeyed",
            Some(&disk),
            None,
            "it has other secrets now; those before open nothing".into(),
        );
        self.order(name);
        Ok(access)
    }

    /// Admits a disk anew where it is.
    fn admit_again(
        &self,
        disk: &DiskRecord,
        spec: &DiskSpec,
        specification: &Specification,
    ) -> Result<Vec<Chosen>, Failure> {
        let asked = Asked::new(spec).instead_of(&disk.spec);
        let part = specification.part(disk.divided() as u32);
        let (mut chosen, mut there) = (Vec::new(), Vec::new());
        for old in &disk.parts {
            let key = place(old);
            let Some(pool) = self.pools.get(&key) else {
                return Err(Failure::Conflict(format!(
                    "node \"{}\" has no pool \"{}\" any more",
                    old.node, old.pool
                )));
            };
            if pool.copies < part.copies {
                let why =
                    format!("{}/{} keeps {} copies, not {}", old.node, old.pool, pool.copies, part.copies);
                return Err(Failure::Conflict(why));
            }
            let mut without = pool.clone();
            let (others, used) = self.on_pool(&key, Some(&disk.name));
            without.used = used;
            if specification.capacity > disk.spec.bytes() && part.capacity > without.free() {
                return Err(Failure::Refused(decide::no_room(&without, &part)));
            }
            without.standing =
                pool.standing.as_ref().map(|s| Standing::new(*s.fixed(), others, self.settings.rules));
            without.kept = pool.kept.as_ref().map(|kept| self.kept_on(&key, kept, Some(&disk.name)));
            let again = decide::again(&without, &part, specification.is_best_effort());
            chosen.push(again.map_err(Failure::Refused)?);
            there.push(without);
        }
        below_limit(spec, &chosen).map_err(Failure::Refused)?;
        // All parts are given what the one takes that takes most.
        let most = chosen.iter().map(|c| c.reserved_micro).max().unwrap_or(0);
        for pool in &there {
            asked.at(pool, most).map_err(|refused| Failure::Refused(decide::not_kept(pool, refused)))?;
        }
        Ok(chosen)
    }

    /// What a change would reserve, or why it would be refused.
    pub fn admits_change(
        &self,
        caller: &Caller,
        name: &str,
        spec: &DiskSpec,
    ) -> Result<Vec<String>, Failure> {
        let disk = self.visible(caller, name)?;
        let specification = read(spec)?;
        may_become(disk, spec)?;
        self.below_ceiling(caller, disk, spec)?;
        self.given(caller, Some(&disk.spec), spec)?;
        self.within_quota(disk.tenant.as_deref(), &disk.name, spec, 0)?;
        let chosen = self.admit_again(disk, spec, &specification)?;
        self.within_quota(disk.tenant.as_deref(), &disk.name, spec, whole_micro(spec, &chosen))?;
        let line = |(old, new): (&PartRecord, &Chosen)| {
            let (before, after) = (rate_text(old.reserved_micro), rate_text(new.reserved_micro));
            format!("{}/{}: {before} reserved before, {after} after", old.node, old.pool)
        };
        Ok(disk.parts.iter().zip(&chosen).map(line).collect())
    }

    /// Removes a disk. Its place is free once its nodes say so. `false`: a node is away, it goes when that is back.
    pub fn remove(
        &mut self,
        caller: &Caller,
        name: &str,
        expected: Option<u64>,
        force: bool,
    ) -> Result<bool, Failure> {
        let disk = self.visible(caller, name)?.clone();
        let name = disk.name.as_str();
        unchanged(&disk, expected)?;
        let clients = self.clients(name);
        if clients > 0 && !force && disk.phase != Phase::Removing {
            let why = format!("disk \"{name}\" has {clients} client(s); disconnect them, or force it");
            return Err(Failure::Conflict(why));
        }
        if disk.phase != Phase::Removing {
            let removing = DiskRecord { phase: Phase::Removing, ..disk.clone() };
            self.put_disk(name, Some(removing));
            self.put_event("removing", Some(&disk), None, "its data goes, too".into());
        }
        self.order(name);
        Ok(disk.parts.iter().all(|p| self.nodes.get(&p.node).is_some_and(|n| n.session.is_some())))
    }

    /// Clients connected to a disk, as its nodes said last.
    pub fn clients(&self, name: &str) -> usize {
        let Some(disk) = self.disks.get(name) else { return 0 };
        let on = disk.parts.iter().filter_map(|p| self.nodes.get(&p.node)?.status.as_ref()?.disk(name));
        on.map(|d| d.connections).sum()
    }

    /// Why a disk's creation came to nothing.
    pub fn failure(&self, name: &str) -> Option<&str> {
        self.failures.iter().rev().find(|(failed, ..)| failed == name).map(|(.., why)| why.as_str())
    }

    /// Forgets a node that is away and has no disks.
    pub fn forget_node(&mut self, name: &str) -> Result<(), Failure> {
        let Some(node) = self.nodes.get(name) else {
            return Err(Failure::Missing(format!("there is no node \"{}\"", shorten(name))));
        };
        let disks = self.disks.values().filter(|d| d.parts.iter().any(|p| p.node == name)).count();
        if disks > 0 {
            return Err(Failure::Conflict(format!("node \"{name}\" has {disks} disk(s); remove them first")));
        }
        if node.session.is_some() {
            return Err(Failure::Conflict(format!("node \"{name}\" is connected; stop it first")));
        }
        self.put_node(name, None);
        self.put_event("forgotten", None, Some(name), "forgotten".into());
        Ok(())
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

    /// Remembers a token.
    pub fn put_token(&mut self, token: TokenRecord) {
        self.put(format!("token/{}", token.id), Some(&token));
        self.tokens.insert(token.id.clone(), token);
    }

    /// Forgets a token.
    pub fn remove_token(&mut self, id: &str) -> Result<(), Failure> {
        let Some(token) = self.tokens.get(id) else {
            return Err(Failure::Missing(format!("there is no token \"{}\"", shorten(id))));
        };
        let others = self.tokens.values().filter(|t| t.tenant.is_none() && t.id != id).count();
        if token.tenant.is_none() && others == 0 {
            return Err(Failure::Conflict(
                "the last administrator's token stays; make another one first".into(),
            ));
        }
        self.tokens.remove(id);
        self.put::<TokenRecord>(format!("token/{id}"), None);
        Ok(())
    }
}

fn read(spec: &DiskSpec) -> Result<Specification, Failure> {
    spec.read().map_err(|e| Failure::Bad(e.0))
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

/// Whether what is reserved for the whole disk is below its limit: no node reads a contract that promises more than it lets through.
fn below_limit(spec: &DiskSpec, chosen: &[Chosen]) -> Result<(), Refusal> {
    let limit = spec.limit.as_ref().and_then(|text| henge_core::parse_rate(text).ok());
    let whole = whole_micro(spec, chosen);
    if limit.is_none_or(|limit| whole <= limit.per_second) {
        return Ok(());
    }
    let why = format!("the latency takes a reservation of {}, which is above the limit", rate_text(whole));
    Err(Refusal { because: Because::Impossible, why, instead: Instead::default() })
}

/// What the whole disk reserves.
fn whole_micro(spec: &DiskSpec, chosen: &[Chosen]) -> u64 {
    whole_of(spec, chosen.iter().map(|c| c.reserved_micro), spec.parts().unwrap_or(1) as usize)
}

fn rule(chosen: &[Chosen]) -> &'static str {
    if chosen.iter().all(|c| c.by_worst_case) { "worst case" } else { "measurement" }
}

fn reasons(chosen: &[Chosen]) -> String {
    format!("by {}", rule(chosen))
}

fn place_of(chosen: &Chosen) -> Place {
    Place { node: chosen.node.clone(), pool: chosen.pool.clone(), reserved: rate_text(chosen.reserved_micro) }
}

/// Names from outside, in messages.
pub(crate) fn shorten(text: &str) -> String {
    let short: String = text.chars().take(64).collect();
    if short.len() < text.len() { format!("{short}…") } else { short }
}
