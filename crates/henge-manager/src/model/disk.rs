//! A disk: what was promised, where it lies, where it is in its life, and how its nodes should have it.

use super::DiskSpec;
use crate::access::Access;
use crate::tenant::Quota;
use henge_api::manager::{Origin, Want};
use henge_core::{Contract, Rate};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

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
