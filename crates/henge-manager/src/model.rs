//! What is remembered and what the API speaks of: disks, nodes, events, tokens.
//!
//! | | |
//! |---|---|
//! | `spec` | what a tenant asks for, as it is written and what it means |
//! | `disk` | a disk: what was promised, where it lies, where it is in its life |
//! | `certificates` | a cluster's roots, invitations, certificates |

mod certificates;
mod disk;
mod spec;

pub use certificates::{AuthorityRecord, CertificateRecord, InvitationRecord, RootRecord};
pub(crate) use disk::whole_of;
pub use disk::{Begins, Difference, DiskRecord, HeldRecord, PartRecord, Phase};
pub(crate) use spec::describe;
pub use spec::{BadSpec, DiskSpec, DiskTime, Terms};

use henge_api::manager::{Held, Pool};
use henge_core::{Duration, format_size};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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

/// "67.796611/s"
pub fn rate_text(micro: u64) -> String {
    let text = format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000);
    format!("{}/s", text.trim_end_matches('0').trim_end_matches('.'))
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
