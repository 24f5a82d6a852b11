//! Who is at the other end.
//!
//! **Problem.** Two ends that share a secret want to know of each other that they do, over a connection on which somebody may read,
//! change, swap and replay bytes.
//!
//! **Rule.** Both say hello in clear. Then the end that dialled proves first, by a MAC over its role and both hellos, each with
//! its name and a fresh nonce; the end that was dialled proves only to who has. Both derive a key for each direction from the same
//! bytes, and every message afterwards is [sealed](crate::seal) with it.
//!
//! **Guarantee.** An end that was dialled says nothing that depends on the secret before the other has proven to know it: it
//! cannot be asked for proofs to be used elsewhere. A proof names its role, so the proofs of two ends that were both
//! dialled never fit each other, and none fits its own sender. Who carries an honest conversation along learns what is said, and can
//! end it, but adds, drops, changes and repeats nothing unseen.
//!
//! **Price.** One round trip more than when both prove at once. Whoever holds the secret may claim any name. What is said can be read on
//! the way, and later by whoever learns the secret: that is for TLS.

use crate::features::{Lack, Speaks};
use crate::seal::Keys;
use crate::{VERSION, feature};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Says that this is a link of Henge, before anything else is believed.
const MAGIC: [u8; 8] = *b"henge\0ln";
/// What the MACs of this protocol begin with, so that they fit nothing else that the secret is used for.
const PROOF: &[u8] = b"henge link 6 proof";
const KEY: &[u8] = b"henge link 6 key";

/// Which end of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It dialled, and proves first.
    Dialler,
    /// It was dialled.
    Dialled,
}

impl Role {
    pub(crate) fn other(self) -> Role {
        match self {
            Role::Dialler => Role::Dialled,
            Role::Dialled => Role::Dialler,
        }
    }
    fn label(self) -> &'static [u8] {
        match self {
            Role::Dialler => b"dialler",
            Role::Dialled => b"dialled",
        }
    }
}

/// This end.
#[derive(Clone)]
pub struct Identity {
    /// Both ends must name the same.
    pub cluster: String,
    /// This node.
    pub name: String,
    /// Grows when this node starts anew.
    pub epoch: u64,
    /// What all nodes of the cluster know.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} (epoch {})", self.cluster, self.name, self.epoch)
    }
}

/// The first thing that each end says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    magic: [u8; 8],
    /// Protocol version.
    pub version: u16,
    /// Cluster.
    pub cluster: String,
    /// Node.
    pub name: String,
    /// Epoch.
    pub epoch: u64,
    nonce: [u8; 16],
}

/// A hello as it stands on the wire: its fixed part, which tells versions apart, then what it speaks. What a later release adds behind that is
/// passed over, and is under the MAC all the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Greeting {
    pub hello: Hello,
    pub speaks: Speaks,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Greeting {
    pub(crate) fn new(hello: Hello, speaks: Speaks) -> Greeting {
        let bytes = postcard::to_allocvec(&(&hello, &speaks)).expect("a hello always encodes");
        Greeting { hello, speaks, bytes }
    }

    /// Reads one. Of another version the fixed part is all that is known.
    pub(crate) fn read(bytes: &[u8]) -> Option<Greeting> {
        let (hello, rest) = postcard::take_from_bytes::<Hello>(bytes).ok()?;
        let speaks = match hello.version == VERSION {
            true => postcard::take_from_bytes::<Speaks>(rest).ok()?.0,
            false => Speaks::default(),
        };
        Some(Greeting { hello, speaks, bytes: bytes.to_vec() })
    }
}

/// Both hellos, the dialler's first.
pub(crate) struct Hellos<'a> {
    pub dialler: &'a Greeting,
    pub dialled: &'a Greeting,
}

impl<'a> Hellos<'a> {
    pub(crate) fn new(role: Role, ours: &'a Greeting, theirs: &'a Greeting) -> Self {
        match role {
            Role::Dialler => Hellos { dialler: ours, dialled: theirs },
            Role::Dialled => Hellos { dialler: theirs, dialled: ours },
        }
    }
}

/// The second thing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Proof {
    mac: [u8; 32],
}

/// Why the other end is not let in.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Something else speaks there.
    #[error("the other end does not speak Henge's link protocol")]
    NotHenge,
    /// Another version.
    #[error(
        "node {name} speaks version {theirs} of the link protocol, this one {ours}; run the same release on both"
    )]
    Version {
        /// Who.
        name: String,
        /// Its version.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// A feature that one end needs and the other one lacks.
    #[error("node {name} cannot link: {lack}")]
    Feature {
        /// Who.
        name: String,
        /// What is lacking.
        lack: Lack,
    },
    /// Another cluster.
    #[error(
        "node {name} belongs to the cluster \"{theirs}\", this one to \"{ours}\"; correct `cluster` on one of them"
    )]
    Cluster {
        /// Who.
        name: String,
        /// Its cluster.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// The wrong secret.
    #[error("node {name} does not know this cluster's secret; compare `secret` on both")]
    Secret {
        /// Who.
        name: String,
    },
    /// Somebody on the way.
    #[error(
        "what came from node {name} is not what it sent: somebody changed, dropped or repeated bytes on the way"
    )]
    Changed {
        /// Who.
        name: String,
    },
    /// This node's own name.
    #[error("the other end calls itself {name}, as this node does; names must differ")]
    SameName {
        /// Which.
        name: String,
    },
    /// Frames too long, or bodies that are no message.
    #[error("node {name} sent what is no message of the link protocol")]
    Malformed {
        /// Who, where that is known.
        name: String,
    },
}

impl Identity {
    pub(crate) fn hello(&self, nonce: [u8; 16]) -> Greeting {
        let hello = Hello {
            magic: MAGIC,
            version: VERSION,
            cluster: self.cluster.clone(),
            name: self.name.clone(),
            epoch: self.epoch,
            nonce,
        };
        Greeting::new(hello, Speaks::new(feature::ALL, 0))
    }

    /// Whether a hello is one that we answer.
    pub(crate) fn accepts(&self, hello: &Hello) -> Result<(), Refusal> {
        let name = hello.name.clone();
        if hello.magic != MAGIC {
            return Err(Refusal::NotHenge);
        }
        if hello.version != VERSION {
            return Err(Refusal::Version { name, theirs: hello.version, ours: VERSION });
        }
        if hello.cluster != self.cluster {
            return Err(Refusal::Cluster { name, theirs: hello.cluster.clone(), ours: self.cluster.clone() });
        }
        if hello.name == self.name {
            return Err(Refusal::SameName { name });
        }
        Ok(())
    }

    /// A MAC over a purpose, a role and both hellos.
    fn mac(&self, purpose: &[u8], role: Role, hellos: &Hellos<'_>) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("a MAC takes keys of any length");
        let mut update = |bytes: &[u8]| {
            mac.update(&(bytes.len() as u64).to_le_bytes());
            mac.update(bytes);
        };
        update(purpose);
        update(role.label());
        for hello in [hellos.dialler, hellos.dialled] {
            update(&hello.bytes);
        }
        mac
    }

    /// That we know the secret.
    pub(crate) fn prove(&self, role: Role, hellos: &Hellos<'_>) -> Proof {
        Proof { mac: self.mac(PROOF, role, hellos).finalize().into_bytes().into() }
    }

    /// That the other end does. In constant time.
    pub(crate) fn verify(
        &self,
        theirs: Role,
        hellos: &Hellos<'_>,
        proof: &Proof,
        name: &str,
    ) -> Result<(), Refusal> {
        let verified = self.mac(PROOF, theirs, hellos).verify_slice(&proof.mac);
        verified.map_err(|_| Refusal::Secret { name: name.to_owned() })
    }

    /// What seals messages, ours and theirs.
    pub(crate) fn keys(&self, role: Role, hellos: &Hellos<'_>) -> Keys {
        let key = |from: Role| self.mac(KEY, from, hellos).finalize().into_bytes().into();
        Keys::new(key(role), key(role.other()))
    }
}
