//! What a node and its manager say to each other: one line of JSON each, over one TCP connection that the node opens.
//!
//! ```text
//!   manager                                   node
//!   Challenge{nonce} ───────────────────────▶
//!            ◀──────────── Hello{name, nonce, proof}
//!   Proven{proof} or Refused ───────────────▶            from here on every line is sealed
//!            ◀──────────── Register{pools, disks}
//!   Welcome or Refused ─────────────────────▶
//!   Order{disk as it should be} ────────────▶
//!            ◀──────────── Done{revision, or why not}
//!            ◀──────────── Stats every second, Period every period
//!            ◀──────────── Asks{parts}, where the manager makes finish times
//!   Leads{finish times} ────────────────────▶
//! ```
//!
//! Register and Welcome say what each end [speaks]: its features. An end says nothing that the other one does not understand, and refuses one
//! that lacks what it needs. Both are sealed, so nobody on the way takes a feature away unseen.
//!
//! Both ends [prove](crate::proof) that they know the cluster's secret, the node first; the secret itself never travels.

use crate::{Ask, Keeps, Lead, Status, Terms};
pub use henge_link::Speaks;
use serde::{Deserialize, Serialize};

/// Version of the conversation. Releases that only add to it need no new one: an addition is a [`feature`]. A new one is for what older ones
/// would misunderstand. Unknown keys are passed over, unknown messages are [`FromManager::Later`] and [`FromNode::Later`], and what is missing
/// has a default.
/// 3: an order says each thing of a disk by itself, not by texts of the configuration.
pub const VERSION: u32 = 3;

/// Features of the conversation.
pub mod feature {
    /// The manager makes finish times for parts: [`Asks`](super::FromNode::Asks) and [`Leads`](super::FromManager::Leads).
    pub const FINISH_TIMES: u64 = 1 << 0;
    /// Certificates are renewed on the way: [`Renew`](super::FromNode::Renew), [`Certificate`](super::FromManager::Certificate) and
    /// [`Trust`](super::FromManager::Trust).
    pub const RENEWAL: u64 = 1 << 1;
    /// A gateway is drained by its manager: [`Drain`](super::FromManager::Drain).
    pub const DRAIN: u64 = 1 << 2;
    /// What this release understands.
    pub const ALL: u64 = FINISH_TIMES | RENEWAL | DRAIN;
    /// What releases of this version understand that say nothing of features.
    pub(super) const BEFORE: u64 = FINISH_TIMES | RENEWAL;
}

/// What this release speaks.
pub fn speaks() -> Speaks {
    Speaks::new(feature::ALL, 0)
}

/// What an end speaks that says nothing of it.
fn unsaid() -> Speaks {
    Speaks { offers: feature::BEFORE, ..Speaks::default() }
}

/// Longest line.
pub const LINE_MAX: usize = 16 << 20;
/// Longest line before both ends have proven who they are.
pub const HELLO_MAX: usize = 4 << 10;

/// What a manager says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum FromManager {
    /// Who are you?
    Challenge {
        /// [`VERSION`].
        version: u32,
        /// To be proven over.
        nonce: String,
    },
    /// This is the node's manager.
    Proven {
        /// That it knows the secret.
        proof: String,
    },
    /// The node is known now.
    Welcome {
        /// Milliseconds between two [`FromNode::Period`].
        period_ms: u64,
        /// It makes finish times for the parts of disks over several nodes.
        #[serde(default)]
        tags: bool,
        /// What the manager speaks.
        #[serde(default = "unsaid")]
        speaks: Speaks,
    },
    /// Finish times, as they were asked for.
    Leads {
        /// By part.
        leads: Vec<Lead>,
    },
    /// The node is not let in.
    Refused {
        /// Why, for people.
        why: String,
    },
    /// A disk as it should be.
    Order(Order),
    /// Whether the node lets go of disks that other gateways can serve.
    Drain {
        /// It is drained.
        on: bool,
    },
    /// Whom to believe from now on.
    Trust(Trust),
    /// The node's new certificate, as it asked for.
    Certificate {
        /// In PEM, its root behind it.
        certificate: String,
    },
    /// What a later version says, and this one passes over.
    #[serde(other)]
    Later,
}

impl FromManager {
    /// The feature that a node must have to understand it; 0 for what each one of this version understands.
    pub fn feature(&self) -> u64 {
        match self {
            FromManager::Leads { .. } => feature::FINISH_TIMES,
            FromManager::Trust(_) | FromManager::Certificate { .. } => feature::RENEWAL,
            FromManager::Drain { .. } => feature::DRAIN,
            _ => 0,
        }
    }
}

impl FromNode {
    /// The feature that a manager must have to understand it; 0 for what each one of this version understands.
    pub fn feature(&self) -> u64 {
        match self {
            FromNode::Asks { .. } => feature::FINISH_TIMES,
            FromNode::Renew { .. } => feature::RENEWAL,
            _ => 0,
        }
    }
}

/// Whom to believe: texts in PEM.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Trust {
    /// The cluster's roots.
    pub ca: String,
    /// Lists of certificates that count no more; empty for none.
    pub revoked: String,
}

/// A disk as it should be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Which disk.
    pub name: String,
    /// Grows with every change.
    pub revision: u64,
    /// How it should be, a [`Want`]; none: it should not be. It is read by itself: who does not understand it refuses this order, and
    /// hears the next one.
    want: Option<serde_json::Value>,
    /// Whose disk it is: orders of several tenants are carried out by turns. Nodes of earlier releases pass it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

impl Order {
    /// To be sent.
    pub fn new(name: &str, revision: u64, want: Option<&Want>) -> Order {
        let want = want.map(|want| serde_json::to_value(want).expect("it is plain data"));
        Order { name: name.to_owned(), revision, want, tenant: None }
    }

    /// The same, of this tenant's disk.
    #[must_use]
    pub fn of(self, tenant: Option<String>) -> Order {
        Order { tenant, ..self }
    }

    /// How the disk should be, as far as this end understands it. Nothing of it is passed over: half an order is another one.
    pub fn want(&self) -> Result<Option<Want>, String> {
        let read = self.want.clone().map(serde_json::from_value).transpose();
        read.map_err(|e| {
            format!(
                "this end does not understand the order ({e}): install one release on both, the manager first"
            )
        })
    }
}

/// How a disk should be on this node.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Want {
    /// Bytes.
    pub capacity: u64,
    /// The node's pool on which it lies; or all its places as NODE/POOL, in the order of its stripes.
    pub pools: Vec<String>,
    /// Room for uneven load over several places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leeway: Option<f64>,
    /// Terms of its contract.
    pub contract: Terms,
    /// Where the other nodes that have parts of it are, by name.
    #[serde(default, skip_serializing_if = "Terms::is_empty")]
    pub peers: Terms,
    /// Bytes that it will have, where it lies on several nodes and there is not room for it at all of them yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub room: Option<u64>,
    /// Who may attach; none: whom the node's doors let in where nothing is stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// The nodes that can serve it, on a pool that they share; in the order in which they take it over. Empty: only those with its places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// What it begins with.
    #[serde(default, skip_serializing_if = "Origin::is_default")]
    pub origin: Origin,
}

/// What a disk begins with; nothing is stated: with zeroes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// An image that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A snapshot of an image: `golden@1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What a former disk of its name has left.
    #[serde(default)]
    pub adopt: bool,
}

impl Origin {
    /// Nothing is stated.
    pub fn is_default(&self) -> bool {
        *self == Origin::default()
    }
}

/// Who may attach to a disk.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// By NBD: names in certificates, or `anyone` alone; nobody where there is none.
    pub nbd: Vec<String>,
    /// By iSCSI: the name for CHAP.
    pub user: String,
    /// By iSCSI: the secret.
    pub chap: String,
    /// By NVMe: the secret, as `nvme gen-dhchap-key` writes it.
    pub nvme: String,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("nbd", &self.nbd).field("user", &self.user).finish_non_exhaustive()
    }
}

/// What a node says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum FromNode {
    /// Who I am.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The node's name.
        name: String,
        /// For the manager to prove over.
        nonce: String,
        /// That it knows the secret.
        proof: String,
    },
    /// Here I am.
    Register(Box<Register>),
    /// An order was carried out, or not.
    Done {
        /// Which disk.
        name: String,
        /// The order's.
        revision: u64,
        /// Why not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Meters.
    Stats {
        /// All of them.
        status: Box<Status>,
    },
    /// Distributions over one period.
    Period {
        /// Its length.
        seconds: f64,
        /// By disk.
        disks: Vec<Seen>,
    },
    /// Parts that wait for a finish time.
    Asks {
        /// In the order in which they came.
        asks: Vec<Ask>,
    },
    /// A disk was changed by somebody at the node.
    Changed {
        /// How it is now.
        held: Held,
    },
    /// The node's certificate is to be exchanged for a new one.
    Renew {
        /// A request for it (PKCS #10, in PEM).
        request: String,
    },
    /// What a later version says, and this one passes over.
    #[serde(other)]
    Later,
}

/// A node, when it comes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Register {
    /// Its name.
    pub name: String,
    /// Where clients reach it; `%` stands for the disk's name.
    pub addresses: Vec<String>,
    /// Where other nodes reach it; none: it has no parts of disks that lie on several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Its pools.
    pub pools: Vec<Pool>,
    /// Every disk that it serves.
    pub disks: Vec<Held>,
    /// What it speaks.
    #[serde(default = "unsaid")]
    pub speaks: Speaks,
}

/// A pool and its profile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Bytes for disks.
    pub capacity: u64,
    /// Copies that its storage keeps.
    pub copies: u32,
    /// Who goes next there.
    pub scheduler: String,
    /// What it keeps of contracts; none: only the node knows, and is asked by an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeps: Option<Keeps>,
    /// Measured at saturation; none: nothing can be promised there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// The name of storage that other nodes reach, too: its disks are images. None: it is this node's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
}

/// What a pool was measured to do.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// Requests a second at saturation, with the pool's scheduler and depth.
    pub iops: f64,
    /// Seconds that 95 % of requests take at most.
    pub service: f64,
}

/// A disk as a node has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// Its name.
    pub name: String,
    /// On which of the node's pools; NODE/POOL where it lies on several nodes.
    pub pools: Vec<String>,
    /// Bytes.
    pub capacity: u64,
    /// Terms of its contract.
    pub contract: Terms,
    /// The order that made it; none: it is the node's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Changed at the node since.
    #[serde(default)]
    pub changed: bool,
    /// The nodes that can serve it, on a pool that they share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
}

/// One disk over one period.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Which.
    pub name: String,
    /// Commands answered.
    pub commands: u64,
    /// Most of them in one second.
    pub peak: u64,
    /// Latencies: nanoseconds (upper edge of a bucket) and how many.
    pub latency: Vec<(u64, u64)>,
}

/// Bytes as text.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DiskStatus, Kept, Seconds};

    /// Each message that a node sends is read again as it was, with all that a status may hold.
    #[test]
    fn days_of_a_promise_come_over() {
        let seconds = Seconds { wanted_ms: 2000, kept_ms: 1000, missed_ms: [("turn".into(), 1000)].into() };
        let kept = Kept { days: [(20_000, seconds.clone()), (20_001, seconds)].into(), ..Kept::default() };
        let disk = DiskStatus { name: "web".into(), kept: Some(kept), ..DiskStatus::default() };
        let stats = FromNode::Stats { status: Box::new(Status { disks: vec![disk], ..Status::default() }) };
        let line = serde_json::to_string(&stats).unwrap();
        assert_eq!(serde_json::from_str::<FromNode>(&line).unwrap(), stats);
        let wrong = line.replace("20001", "tomorrow");
        let why = serde_json::from_str::<FromNode>(&wrong).unwrap_err().to_string();
        assert!(why.contains("\"tomorrow\" is not the number of a day"), "{why}");
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over() {
        let manager = |text: &str| serde_json::from_str::<FromManager>(text).unwrap();
        let node = |text: &str| serde_json::from_str::<FromNode>(text).unwrap();
        assert_eq!(manager(r#"{"say":"sing","song":{"verses":[1,2]}}"#), FromManager::Later);
        assert_eq!(node(r#"{"say":"sing","song":3}"#), FromNode::Later);
        let welcome = r#"{"say":"welcome","period_ms":7,"mood":"good"}"#;
        assert_eq!(manager(welcome), FromManager::Welcome { period_ms: 7, tags: false, speaks: unsaid() });
        let speaking = r#"{"say":"welcome","period_ms":7,"speaks":{"release":"7.0","offers":513,"mood":1}}"#;
        let FromManager::Welcome { speaks: theirs, .. } = manager(speaking) else { panic!("a welcome") };
        assert_eq!(speaks().with(&theirs), Ok(feature::FINISH_TIMES));
        // But for an order, of which nothing is passed over, and which is refused by itself.
        let order = |want: &str| match manager(&format!(
            r#"{{"say":"order","name":"web","revision":7,"want":{want}}}"#
        )) {
            FromManager::Order(order) => order.want(),
            other => panic!("{other:?}"),
        };
        assert_eq!(order("null"), Ok(None));
        assert_eq!(order(r#"{"capacity":4096,"pools":["7"],"contract":{}}"#).unwrap().unwrap().pools, ["7"]);
        for (more, named) in
            [(r#","capacity":1,"read_only":true"#, "read_only"), (r#","capacity":"1GB""#, "1GB")]
        {
            let why = order(&format!(r#"{{"pools":["p"],"contract":{{}}{more}}}"#)).unwrap_err();
            assert!(why.contains(named) && why.contains("the manager first"), "{why}");
        }
        // What is missing and has no default is still an error.
        assert!(serde_json::from_str::<FromManager>(r#"{"say":"welcome"}"#).is_err());
    }
}
