//! What is remembered and what the API speaks of: disks, nodes, events, tokens.

use crate::access::Access;
use crate::tenant::Quota;
use henge_admission::Specification;
use henge_api::manager::{Held, Origin, Pool, Want};
use henge_api::typed;
use henge_core::{
    Contract, CostUnit, Duration, Params, Rate, TERMS, Term, Value, format_size, parse_rate, parse_size,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Terms of a contract as they are written.
pub type Terms = BTreeMap<String, String>;

/// What a tenant asks for: availability, bandwidth, capacity, delay, elasticity. Quantities carry their units.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct DiskSpec {
    /// C: how large.
    #[schema(example = "96GB", max_length = 64)]
    pub capacity: String,
    /// B: requests a second that it is promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "675/s", max_length = 64)]
    pub rate: Option<String>,
    /// D: how long a request may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "120ms", max_length = 64)]
    pub latency: Option<String>,
    /// E: how many percent of the requests are within the latency; 95 if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 95.0, minimum = 0.0, maximum = 100.0)]
    pub percentile: Option<f64>,
    /// Most requests queued at once for which the latency is promised; 16 if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 7, minimum = 1, maximum = 1048576)]
    pub pending: Option<u32>,
    /// A: copies that the storage behind it keeps; 1 if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16)]
    pub copies: Option<u32>,
    /// Over how many nodes it is striped; 1 if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000)]
    pub parts: Option<u32>,
    /// f: room for uneven load over the parts; 1 if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1.0, maximum = 100.0)]
    pub leeway: Option<f64>,
    /// Its share of what nobody reserved, relative to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1000000)]
    pub weight: Option<u32>,
    /// The most it gets, even when nobody else wants anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2000/s", max_length = 64)]
    pub limit: Option<String>,
    /// Requests that may come at once on top of rate or limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "64", max_length = 64)]
    pub burst: Option<String>,
    /// A share of the disk time of each pool it lies on, in place of a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "25%", max_length = 64)]
    pub share: Option<String>,
    /// What goes with the share: "rent", "latency" or "throughput"; rent if not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "rent", max_length = 64)]
    pub kind: Option<String>,
    /// What a share of kind "throughput" promises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "900/s", max_length = 64)]
    pub throughput: Option<String>,
    /// How far below its throughput lending may go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10%", max_length = 64)]
    pub tolerance: Option<String>,
    /// Terms that are one amount, by key: henge-core's table has them, and the API's description by that.
    #[serde(skip)]
    pub amounts: Terms,
}

// The terms of the table that have no field here go beside those that have.
impl Serialize for DiskSpec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all =
            DiskSpec::serialize(self, serde_json::value::Serializer).map_err(serde::ser::Error::custom)?;
        for (key, text) in &self.amounts {
            all[key] = typed(key, text).map_err(serde::ser::Error::custom)?;
        }
        all.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DiskSpec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<DiskSpec, D::Error> {
        use serde::de::Error;
        let mut all = serde_json::Map::deserialize(deserializer)?;
        let mut amounts = Terms::new();
        for term in Term::plain() {
            let text = match (all.remove(term.key), term.written.is_number()) {
                (None | Some(serde_json::Value::Null), _) => continue,
                (Some(serde_json::Value::String(text)), false) => text,
                (Some(serde_json::Value::Number(n)), true) => n.to_string(),
                (Some(other), _) => {
                    return Err(D::Error::custom(format!(
                        "{}: write it like {}, not {other}",
                        term.key, term.example
                    )));
                }
            };
            amounts.insert(term.key.to_owned(), text);
        }
        let spec = DiskSpec::deserialize(serde_json::Value::Object(all)).map_err(D::Error::custom)?;
        Ok(DiskSpec { amounts, ..spec })
    }
}

/// Properties of a disk in the API's description that the table has, and no field.
pub(crate) fn describe(document: &mut utoipa::openapi::OpenApi) {
    use utoipa::openapi::RefOr;
    use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
    let schemas = document.components.iter_mut().flat_map(|components| &mut components.schemas);
    for (_, schema) in schemas.filter(|(name, _)| ["DiskSpec", "DiskPatch"].contains(&name.as_str())) {
        let RefOr::T(Schema::Object(disk)) = schema else { continue };
        for term in Term::plain() {
            let object = ObjectBuilder::new().description(Some(format!("{}.", capital(term.help))));
            let number = term.written.is_number();
            let kind = if number { Type::Integer } else { Type::String };
            let object = object.schema_type(SchemaType::Array(vec![kind, Type::Null]));
            let object = match number {
                true => object.minimum(Some(1)),
                false => object.examples([term.example]).max_length(Some(64)),
            };
            disk.properties.insert(term.key.to_owned(), object.build().into());
        }
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The specification is wrong, whoever should keep it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadSpec(pub String);

impl DiskSpec {
    /// A term as it is written, of a contract or of where the disk lies.
    pub fn term(&self, key: &str) -> Option<String> {
        match serde_json::to_value(self).ok()?.get(key)? {
            serde_json::Value::String(text) => Some(text.clone()),
            number => number.as_f64().map(|x| x.to_string()),
        }
    }

    /// Sets a term as somebody typed it; an empty text takes it away.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), BadSpec> {
        let mut all = serde_json::to_value(&*self).expect("it is texts and numbers");
        let object = all.as_object_mut().expect("it is an object");
        if text.is_empty() && key != "capacity" && Term::of_disk(key).is_some() {
            object.remove(key);
        } else {
            object.insert(key.to_owned(), typed(key, text).map_err(BadSpec)?);
        }
        *self = serde_json::from_value(all).map_err(|e| BadSpec(format!("{key}: {e}")))?;
        Ok(())
    }

    /// The terms of its contract as they are written.
    fn written(&self) -> Terms {
        let all = serde_json::to_value(self).expect("it is texts and numbers");
        let text = |term: &Term| match all.get(term.key)? {
            serde_json::Value::String(text) => Some(text.clone()),
            number => number.as_f64().map(|x| x.to_string()),
        };
        TERMS.iter().filter_map(|term| Some((term.key.to_owned(), text(term)?))).collect()
    }

    /// What it means.
    pub fn read(&self) -> Result<Specification, BadSpec> {
        let mut p = Params::new("the disk").with("capacity", Value::Text(self.capacity.clone()));
        let texts = [("rate", &self.rate), ("latency", &self.latency)];
        for (key, text) in texts.into_iter().filter_map(|(k, t)| t.as_ref().map(|t| (k, t))) {
            p = p.with(key, Value::Text(text.clone()));
        }
        let numbers = [("pending", self.pending), ("copies", self.copies)];
        for (key, number) in numbers.into_iter().filter_map(|(k, n)| n.map(|n| (k, n))) {
            p = p.with(key, Value::Integer(i64::from(number)));
        }
        let floats = [("percentile", self.percentile), ("leeway", self.leeway)];
        for (key, number) in floats.into_iter().filter_map(|(k, n)| n.map(|n| (k, n))) {
            p = p.with(key, Value::Float(number));
        }
        let mut specification = Specification::from_params(&mut p).map_err(|e| BadSpec(e.to_string()))?;
        if self.parts().is_none_or(|n| n > 1000) {
            return Err(BadSpec("a disk has between 1 and 1000 parts".into()));
        }
        if self.percentile.is_some() && self.latency.is_none() && self.rate.is_none() {
            return Err(BadSpec(
                "a percentile says how often a latency or a rate is kept; state one of them".into(),
            ));
        }
        if specification.elasticity * 1e6 < 1.0 {
            return Err(BadSpec("a percentile is at least 0.0001".into()));
        }
        self.check_contract()?;
        if self.share.is_some() {
            // Its promise is a share of the device, which the node's scheduler sums up: admission reserves no rate beside it.
            specification.delay = None;
        }
        Ok(specification)
    }

    /// Whether its terms make a contract, and one that a manager can give.
    fn check_contract(&self) -> Result<(), BadSpec> {
        let mut p = Params::new("the disk");
        // Beside a rate without a latency the percentile is admission's alone.
        let all = self.written().into_iter().filter(|(key, _)| key != "percentile" || self.latency.is_some());
        for (key, text) in all {
            p = p.with(&key, Term::value(&key, &text).map_err(BadSpec)?);
        }
        let contract = Contract::from_params(&mut p).map_err(|e| BadSpec(e.to_string()))?;
        let counts = |rate: Option<Rate>| rate.is_none_or(|rate| rate.unit == CostUnit::Requests);
        if !counts(contract.limit) {
            return Err(BadSpec("a limit counts requests; write it like \"2000/s\"".into()));
        }
        if let Some(burst) = &self.burst {
            if !counts(parse_rate(&format!("{burst}/s")).ok()) {
                return Err(BadSpec("a burst counts requests; write it like \"64\"".into()));
            }
            if self.rate.is_none() && self.limit.is_none() && self.latency.is_none() {
                return Err(BadSpec("a burst comes on top of a rate or a limit; state one of them".into()));
            }
        }
        if self.share.is_some() && self.rate.is_some() {
            return Err(BadSpec("a disk has a rate or a share of disk time; state one of them".into()));
        }
        Ok(())
    }

    /// Over how many nodes; `None` for zero.
    pub fn parts(&self) -> Option<u32> {
        Some(self.parts.unwrap_or(1)).filter(|n| *n > 0)
    }

    /// Bytes; for a specification that was read.
    pub fn bytes(&self) -> u64 {
        parse_size(&self.capacity).unwrap_or(0)
    }

    /// The contract that a node is given when it reserves `reserved_micro` millionths of a request a second.
    pub fn terms(&self, reserved_micro: u64) -> Terms {
        let mut terms = self.written();
        terms.remove("rate");
        if reserved_micro > 0 {
            terms.insert("rate".into(), rate_text(reserved_micro));
        }
        if self.latency.is_some() {
            terms.entry("percentile".into()).or_insert_with(|| "95".into());
            terms.entry("pending".into()).or_insert_with(|| "16".into());
        } else {
            terms.remove("percentile"); // the rate's, which admission has turned into a reservation
        }
        terms
    }

    /// In one line, for people.
    pub fn describe(&self) -> String {
        let mut words = vec![self.capacity.clone()];
        words.extend(self.rate.clone());
        if let Some(latency) = &self.latency {
            words.push(format!("{latency} for {} %", self.percentile.unwrap_or(95.0)));
        }
        words.extend(self.share.as_ref().map(|share| format!("{share} of the disk time")));
        words.join(", ")
    }
}

/// "67.796611/s"
pub fn rate_text(micro: u64) -> String {
    let text = format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
    format!("{}/s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Where a disk is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Admitted and placed; a node has yet to make it.
    Creating,
    /// Served as promised.
    Ready,
    /// Admitted anew; a node has yet to take the new contract.
    Changing,
    /// Going; a node has yet to remove it, and its place is not free before.
    Removing,
}

/// One piece of a disk on one node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PartRecord {
    /// Which node.
    pub node: String,
    /// Which of its pools.
    pub pool: String,
    /// Millionths of a request a second that are reserved.
    pub reserved_micro: u64,
    /// What the node has confirmed last, while that is not what it should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldRecord>,
    /// The last revision that the node confirmed.
    #[serde(default)]
    pub confirmed: u64,
}

/// What a node still enforces.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HeldRecord {
    /// The older specification.
    pub spec: DiskSpec,
    /// Its reservation.
    pub reserved_micro: u64,
}

/// One term that manager and node had differently.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// As the manager had it.
    pub manager: Option<String>,
    /// As the node had it.
    pub node: Option<String>,
}

/// A disk, remembered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DiskRecord {
    /// Its name, and its export's.
    pub name: String,
    /// Whose; none: the administrator's.
    pub tenant: Option<String>,
    /// What was promised.
    pub spec: DiskSpec,
    /// Where.
    pub parts: Vec<PartRecord>,
    /// Where in its life.
    pub phase: Phase,
    /// Grows with every change of anything; the entity tag.
    pub revision: u64,
    /// Milliseconds since 1970.
    pub created: u64,
    /// By which rule it was admitted.
    pub admitted_by: String,
    /// Bytes that it is shown with while its places grow, where it lies on several nodes and has yet to become as large as
    /// promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growing_from: Option<u64>,
    /// Bytes for which its places may be long enough already: growing was refused by one node after others had done it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
    /// What a node had differently when it came back; until somebody changes the contract.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub differences: BTreeMap<String, Difference>,
    /// What the administrator stated of it: its tenant moves below.
    #[serde(default)]
    pub ceiling: Quota,
    /// Who may attach; none: a disk of an earlier release, or one that was found at its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// Each of its nodes can serve all of it, on a pool that they share.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// What it began with.
    #[serde(default, skip_serializing_if = "Origin::is_default")]
    pub origin: Origin,
}

/// What a disk begins with, beside what it is promised.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Begins {
    /// Who may attach; none: whom its nodes let in where nothing is stated.
    pub access: Option<Access>,
    /// With which bytes.
    pub origin: Origin,
}

impl DiskRecord {
    /// How it should be on a node of its; `link` says where nodes reach each other.
    pub fn want(&self, node: &str, link: impl Fn(&str) -> Option<String>) -> Option<Want> {
        let part = self.parts.iter().find(|p| p.node == node)?;
        if self.phase == Phase::Removing {
            return None;
        }
        let others = self.parts.iter().filter(|p| p.node != node);
        let peers = others.filter_map(|p| Some((p.node.clone(), link(&p.node)?))).collect();
        let (pools, leeway) = match self.parts.as_slice() {
            _ if self.shared => (vec![part.pool.clone()], None),
            [_] => (vec![part.pool.clone()], None),
            parts => {
                // The same on every node: it is how they know that they mean the same disk.
                let places = parts.iter().map(|p| format!("{}/{}", p.node, p.pool));
                (places.collect(), Some(self.spec.leeway.unwrap_or(1.0)))
            }
        };
        let gateways = self.parts.iter().filter(|_| self.shared).map(|p| p.node.clone());
        Some(Want {
            capacity: self.growing_from.unwrap_or(self.spec.bytes()),
            pools,
            leeway,
            contract: self.spec.terms(self.whole_micro()),
            peers,
            room: self.growing_from.map(|_| self.spec.bytes()),
            access: self.access.as_ref().map(|access| access.told(&self.name)),
            gateways: gateways.collect(),
            origin: self.origin.clone(),
        })
    }

    /// Over how many nodes it is divided. Each gateway of a shared disk has all of it, and may be promised all of it.
    pub fn divided(&self) -> usize {
        if self.shared { 1 } else { self.parts.len() }
    }

    /// What the whole disk is promised: the rate, and how many may be pending.
    pub(crate) fn whole_contract(&self) -> Contract {
        let rate = Some(Rate::requests_micro(self.whole_micro())).filter(|rate| rate.per_second > 0);
        Contract { rate, pending: self.spec.pending, ..Contract::default() }
    }

    /// What the whole disk reserves, in millionths of a request a second: nodes make f·B/N of it for each part.
    pub(crate) fn whole_micro(&self) -> u64 {
        whole_of(&self.spec, self.parts.iter().map(|p| p.reserved_micro), self.divided())
    }
}

/// What a whole disk that is divided over `count` nodes reserves, by what its parts do.
pub(crate) fn whole_of(spec: &DiskSpec, parts: impl Iterator<Item = u64>, count: usize) -> u64 {
    let most = parts.max().unwrap_or(0);
    let leeway = if count == 1 { 1.0 } else { spec.leeway.unwrap_or(1.0) };
    (most as f64 * count as f64 / leeway).floor() as u64
}

/// A node, remembered.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its name.
    pub name: String,
    /// Where clients reach it; `%` stands for the disk's name.
    pub addresses: Vec<String>,
    /// Where other nodes reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Its pools.
    pub pools: Vec<Pool>,
    /// Disks of its own, which no manager made.
    pub own: Vec<Held>,
    /// No new disks are placed there.
    pub draining: bool,
    /// Grows with every change.
    pub revision: u64,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Their order.
    pub id: u64,
    /// Milliseconds since 1970.
    pub time: u64,
    /// What: admitted, refused, created, changed, removed, violated, recovered, difference, failed, node_up, node_down, drained.
    #[schema(example = "admitted")]
    pub kind: String,
    /// Which disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Which node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whose disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// For people.
    pub text: String,
}

/// A token, remembered by its hash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Names it, in place of the secret.
    pub id: String,
    /// Whose; none: an administrator's.
    pub tenant: Option<String>,
    /// SHA-256 of the token, as text.
    pub hash: String,
    /// Milliseconds since 1970.
    pub created: u64,
    /// Not after; milliseconds since 1970.
    pub expires: Option<u64>,
    /// It may look, and change nothing.
    #[serde(default)]
    pub read: bool,
    /// It opens this disk alone, as nodes call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
}

/// A cluster's roots.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityRecord {
    /// The cluster's name.
    pub cluster: String,
    /// Certificates and keys. The newest is the first, and signs.
    pub roots: Vec<RootRecord>,
    /// Grows with each list of revoked certificates.
    pub list: u64,
}

impl std::fmt::Debug for AuthorityRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} roots of {}", self.roots.len(), self.cluster)
    }
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootRecord {
    /// In PEM.
    pub certificate: String,
    /// Its private key, in PEM.
    pub key: String,
    /// Milliseconds since 1970.
    pub created: u64,
    /// The same root, signed by the one before it: for whoever believes that one alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vouched: String,
}

/// An invitation to join the cluster, remembered by its token's hash.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InvitationRecord {
    /// Names it.
    pub id: String,
    /// As what.
    pub role: String,
    /// As whom.
    pub name: String,
    /// Whose client; none: nobody's, or what is no client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// By which hosts' names clients reach it.
    pub hosts: Vec<String>,
    /// SHA-256 of the token's secret.
    pub hash: String,
    /// Milliseconds since 1970.
    pub created: u64,
    /// Not after; milliseconds since 1970.
    pub expires: u64,
    /// When it was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
}

/// A certificate that was issued.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CertificateRecord {
    /// Its number, in hexadecimal.
    pub serial: String,
    /// Of what.
    pub role: String,
    /// Of whom.
    pub name: String,
    /// Whose client; none: nobody's, or what is no client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// By which hosts' names clients reach it.
    pub hosts: Vec<String>,
    /// SHA-256 of the root that signed it.
    pub root: String,
    /// Milliseconds since 1970.
    pub issued: u64,
    /// Not after; milliseconds since 1970.
    pub expires: u64,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<u64>,
}

impl CertificateRecord {
    /// As `henge ca` names somebody: `node/n1`.
    pub fn whose(&self) -> String {
        format!("{}/{}", self.role, self.name)
    }
    /// Whether it ends with a tenant.
    pub fn is_of(&self, tenant: &str) -> bool {
        is_of(self.tenant.as_deref(), &self.role, &self.name, tenant)
    }
}

impl InvitationRecord {
    /// As `henge ca` names somebody: `node/n1`.
    pub fn whose(&self) -> String {
        format!("{}/{}", self.role, self.name)
    }
    /// Whether it ends with a tenant.
    pub fn is_of(&self, tenant: &str) -> bool {
        is_of(self.tenant.as_deref(), &self.role, &self.name, tenant)
    }
}

/// A client that was invited for no tenant, and has a tenant's name, is taken for that tenant's.
fn is_of(stated: Option<&str>, role: &str, name: &str, tenant: &str) -> bool {
    stated.map_or(role == "client" && name == tenant, |stated| stated == tenant)
}

/// The outcome of a creation by an idempotency key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyRecord {
    /// Their order, for forgetting the oldest.
    pub id: u64,
    /// Of the request.
    pub hash: String,
    /// The disk that it made.
    pub disk: String,
}

/// "120ms", from seconds; rounded up to what a text can say.
pub fn duration_text(duration: Duration) -> String {
    let ns = duration.as_nanos();
    let us = ns.div_ceil(1000);
    Duration::from_nanos(us * 1000).to_string()
}

/// "12GB", rounded down.
pub fn size_text(bytes: u64) -> String {
    format_size(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_api::Table;
    use proptest::prelude::*;

    /// Contracts that a manager can give: terms as somebody types them.
    fn contracts() -> impl Strategy<Value = Terms> {
        use prop::option::of;
        let rates = (of(1..900u32), of(0..900u32), of(1..=1_000_000u32), of(1..99u32));
        let bounds = (of((1..5000u32, of(1..=1000u32))), of(1..1000u32), of(1..=1000u32));
        let share = of((1..=100u32, 0..3u8, 1..900u32, of(0..100u32)));
        (rates, bounds, share).prop_map(|((rate, above, weight, burst), (latency, pending, least), share)| {
            let mut terms = Terms::new();
            let mut put = |key: &str, value: Option<String>| drop(value.map(|v| terms.insert(key.into(), v)));
            put("weight", weight.map(|n| n.to_string()));
            put("pending", pending.map(|n| n.to_string()));
            put("latency", latency.map(|(ms, _)| format!("{ms}ms")));
            put("percentile", latency.and_then(|(_, tenths)| Some((f64::from(tenths?) / 10.0).to_string())));
            put("min_share", least.map(|tenths| format!("{}%", f64::from(tenths) / 10.0)));
            match share {
                None => {
                    put("rate", rate.map(|n| format!("{n}.5/s")));
                    put("limit", above.map(|n| format!("{}/s", rate.unwrap_or(0) + n + 1)));
                    let on_top = rate.is_some() || above.is_some() || latency.is_some();
                    put("burst", burst.filter(|_| on_top).map(|n| n.to_string()));
                }
                Some((percent, kind, throughput, tolerance)) => {
                    put("share", Some(format!("{percent}%")));
                    match (kind, latency) {
                        (0, _) => put("kind", Some("rent".into())),
                        (1, Some(_)) => put("kind", Some("latency".into())),
                        (1, None) => {}
                        _ => {
                            put("kind", Some("throughput".into()));
                            put("throughput", Some(format!("{throughput}/s")));
                            put("tolerance", tolerance.map(|n| format!("{n}%")));
                        }
                    }
                }
            }
            terms
        })
    }

    /// What a node makes of a disk's table.
    fn at_node(name: &str, pool: &str, contract: &Terms) -> (String, String, Contract) {
        let mut table = Table::of_disk(name).with("pool", pool);
        contract.iter().for_each(|(key, text)| table.set_term(key, text).unwrap());
        let sent = serde_json::to_vec(&table).unwrap();
        let mut p = serde_json::from_slice::<Table>(&sent).unwrap().params("the disk").unwrap();
        let (name, pool) = (p.text("name").unwrap().unwrap(), p.text("pool").unwrap().unwrap());
        let Some(mut terms) = p.table("contract").unwrap() else { return (name, pool, Contract::default()) };
        let contract = Contract::from_params(&mut terms).unwrap();
        terms.finish().unwrap();
        (name, pool, contract)
    }

    proptest! {
        /// Typed at a page or a command, sent to the manager, stored, ordered of a node, told by it, adopted: always the same contract.
        #[test]
        fn every_term_goes_round_unchanged(
            terms in contracts(),
            name in prop::sample::select(vec!["7", "true", "1e5", "x y", "inf", "[a]", "{}", "\"q\"", "1979-05-27", "a\nb = 1"]),
        ) {
            let (_, _, meant) = at_node("d", "p", &terms);
            // At a page, and by the command.
            let mut spec = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
            let mut json = serde_json::Map::from_iter([("capacity".to_owned(), "1GB".into())]);
            for (key, text) in &terms {
                spec.set(key, text).unwrap();
                json.insert(key.clone(), typed(key, text).unwrap());
                prop_assert_eq!(spec.term(key), Some(text.clone()));
            }
            let sent: DiskSpec = serde_json::from_value(json.into()).unwrap();
            prop_assert_eq!(&sent, &spec);
            let stored: DiskSpec = serde_json::from_slice(&serde_json::to_vec(&sent).unwrap()).unwrap();
            prop_assert_eq!(&stored, &spec);
            spec.read().unwrap();
            // To the node and back.
            let reserved = meant.rate.map_or(0, |rate| rate.per_second);
            let ordered: Terms =
                serde_json::from_slice(&serde_json::to_vec(&stored.terms(reserved)).unwrap()).unwrap();
            let (called, pool, made) = at_node(name, name, &ordered);
            prop_assert_eq!((called.as_str(), pool.as_str()), (name, name));
            let pending = meant.pending.or(meant.latency.map(|_| 16));
            prop_assert_eq!(&made, &Contract { pending, ..meant });
            let mut adopted = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
            ordered.iter().for_each(|(key, text)| adopted.set(key, text).unwrap());
            prop_assert_eq!(adopted.terms(reserved), ordered);
        }
    }

    #[test]
    fn what_a_manager_cannot_give_is_said() {
        let spec = |terms: &[(&str, &str)]| {
            let mut spec = DiskSpec { capacity: "1GB".into(), ..DiskSpec::default() };
            terms.iter().for_each(|(key, text)| spec.set(key, text).unwrap());
            spec.read().map(|read| read.is_best_effort())
        };
        for (terms, says) in [
            (&[("burst", "1MB"), ("rate", "9/s")][..], "burst"),
            (&[("burst", "1MB"), ("latency", "9ms")], "a burst counts requests"),
            (&[("burst", "7")], "on top of a rate"),
            (&[("share", "5%"), ("rate", "9/s")], "state one of them"),
            (&[("kind", "rent")], "share = \"25%\""),
            (&[("share", "5%"), ("kind", "7")], "\"7\" is not a kind"),
            (&[("limit", "1MB/s")], "a limit counts requests"),
            (&[("weight", "0")], "out of range"),
        ] {
            let error = spec(terms).unwrap_err();
            assert!(error.0.contains(says), "{terms:?}: {error}");
        }
        assert_eq!(
            spec(&[("share", "5%"), ("kind", "latency"), ("latency", "9ms")]),
            Ok(true),
            "no rate beside a share"
        );
        let unknown = DiskSpec::default().set("latncy", "").unwrap_err();
        assert!(unknown.0.contains("latency") && unknown.0.contains("min_share"), "{unknown}");
    }

    #[test]
    fn specifications_are_read_with_their_units() {
        let spec = DiskSpec {
            capacity: "96GB".into(),
            rate: Some("675/s".into()),
            latency: Some("120ms".into()),
            ..DiskSpec::default()
        };
        let read = spec.read().unwrap();
        assert_eq!((read.capacity, read.rate), (96_000_000_000, Some(675.0)));
        let terms = spec.terms(675_500_000);
        assert_eq!(terms["rate"], "675.5/s");
        assert_eq!((terms["percentile"].as_str(), terms["pending"].as_str()), ("95", "16"));
        for (bad, says) in [
            (DiskSpec { capacity: "96".into(), ..spec.clone() }, "96"),
            (DiskSpec { rate: Some("-3/s".into()), ..spec.clone() }, "rate"),
            (DiskSpec { percentile: Some(101.0), ..spec.clone() }, "probability"),
            (DiskSpec { parts: Some(0), ..spec.clone() }, "parts"),
            (DiskSpec { limit: Some("9/s".into()), ..spec.clone() }, "limit"),
        ] {
            let error = bad.read().unwrap_err();
            assert!(error.0.contains(says), "{error}");
        }
    }
}
