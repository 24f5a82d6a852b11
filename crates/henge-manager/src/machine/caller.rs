//! Who asks, and what is theirs.

use crate::model::DiskRecord;
use crate::tenant::called;

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

impl Caller {
    /// How this caller calls a disk.
    pub(crate) fn calls<'a>(&self, full: &'a str) -> &'a str {
        called(self.tenant(), full)
    }
}
