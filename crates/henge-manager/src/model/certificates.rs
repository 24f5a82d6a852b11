//! Who belongs to the cluster: its roots, invitations to join it, certificates that were issued.

use serde::{Deserialize, Serialize};

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
