//! Who is at the other end.

use crate::VERSION;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Says that this is a link of Henge, before anything else is believed.
const MAGIC: [u8; 8] = *b"henge\0ln";
const LABEL: &[u8] = b"henge link 1";

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
    pub(crate) fn hello(&self, nonce: [u8; 16]) -> Hello {
        Hello {
            magic: MAGIC,
            version: VERSION,
            cluster: self.cluster.clone(),
            name: self.name.clone(),
            epoch: self.epoch,
            nonce,
        }
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

    /// A MAC over both hellos, the prover's first, so that neither can be replayed nor turned around.
    fn mac(&self, prover: &Hello, verifier: &Hello) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("a MAC takes keys of any length");
        mac.update(LABEL);
        for hello in [prover, verifier] {
            let bytes = postcard::to_allocvec(hello).expect("a hello always encodes");
            mac.update(&(bytes.len() as u64).to_le_bytes());
            mac.update(&bytes);
        }
        mac
    }

    pub(crate) fn prove(&self, ours: &Hello, theirs: &Hello) -> Proof {
        Proof { mac: self.mac(ours, theirs).finalize().into_bytes().into() }
    }

    /// In constant time.
    pub(crate) fn verify(&self, ours: &Hello, theirs: &Hello, proof: &Proof) -> Result<(), Refusal> {
        let verified = self.mac(theirs, ours).verify_slice(&proof.mac);
        verified.map_err(|_| Refusal::Secret { name: theirs.name.clone() })
    }
}
