//! What disks and tenants are called: a tenant's name for a disk, the name that nodes know, and which are free.

use super::{Caller, Failure, Inventory, NodeState};
use crate::model::{DiskRecord, Phase};
use crate::shorten::shorten;
use crate::tenant::full_name;
use henge_api::is_name;

impl Inventory {
    /// A disk by the name that the caller has for it. One that it may not see is as one that does not exist.
    pub(crate) fn visible(&self, caller: &Caller, name: &str) -> Result<&DiskRecord, Failure> {
        let disk = self.resolve(caller.tenant(), name).filter(|disk| caller.owns(disk));
        disk.ok_or_else(|| Failure::Missing(format!("there is no disk \"{}\"", shorten(name))))
    }

    /// A disk by the name that its tenant, or the administrator, has for it.
    pub(crate) fn resolve(&self, tenant: Option<&str>, name: &str) -> Option<&DiskRecord> {
        let in_its_own = tenant.and_then(|tenant| self.disks.get(&full_name(tenant, name)));
        in_its_own.or_else(|| self.disks.get(name))
    }

    /// Whether this caller could make a disk of that name.
    pub(crate) fn could_be_called(&self, caller: &Caller, name: &str) -> Result<(), Failure> {
        good_name(name)?;
        let full = caller.tenant().map_or_else(|| name.to_owned(), |owner| full_name(owner, name));
        short_enough(&full)?;
        self.free_name(caller, &full)
    }

    pub(super) fn free_name(&self, caller: &Caller, name: &str) -> Result<(), Failure> {
        match self.disks.get(name) {
            None => {}
            Some(disk) if disk.phase == Phase::Removing && caller.owns(disk) => {
                let why = format!(
                    "a disk \"{name}\" is still being removed from its node; wait, or take another name"
                );
                return Err(Failure::Conflict(why));
            }
            Some(_) => {
                return Err(Failure::Conflict(format!("the name \"{name}\" is in use; take another one")));
            }
        }
        let has = |n: &&NodeState| n.found.contains_key(name) || n.record.own.iter().any(|h| h.name == name);
        let own = self.nodes.values().find(has);
        match own {
            None => Ok(()),
            Some(_) => Err(Failure::Conflict(format!("the name \"{name}\" is in use; take another one"))),
        }
    }
}

pub(super) fn good_name(name: &str) -> Result<(), Failure> {
    let why = || format!("\"{}\" is no name; up to 64 letters, digits, '.', '_' and '-' are", shorten(name));
    if is_name(name) { Ok(()) } else { Err(Failure::Bad(why())) }
}

/// Nodes know a tenant's disk by the tenant's name and its own.
pub(super) fn short_enough(full: &str) -> Result<(), Failure> {
    let why =
        || format!("nodes would call it \"{full}\", which is longer than 64 characters; take a shorter name");
    if is_name(full) { Ok(()) } else { Err(Failure::Bad(why())) }
}

pub(super) fn bad_name() -> Failure {
    Failure::Bad("the tenant's name is no name; up to 64 letters, digits, '.', '_' and '-' are".into())
}
