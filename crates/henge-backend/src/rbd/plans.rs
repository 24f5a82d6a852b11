//! How parts are to be come by: the node says it of each before the part is opened, and it is kept until the part is forgotten.

use super::cluster::Plan;
use crate::Claim;
use crate::origin::Origin;
use std::collections::{BTreeMap, BTreeSet};

/// Plans of parts, by their names.
pub(super) struct Plans {
    /// Nothing is made, locked or written.
    look: bool,
    /// All former disks are here.
    settled: bool,
    origins: BTreeMap<String, Origin>,
    adopted: BTreeSet<String>,
    /// Parts that their disks had before.
    expected: BTreeSet<String>,
    /// How parts are taken that are opened next.
    claims: BTreeMap<String, Claim>,
    /// Parts whose images are to be removed and may still be there.
    doomed: BTreeSet<String>,
}

impl Plans {
    pub(super) fn new(look: bool) -> Plans {
        Plans {
            look,
            settled: false,
            origins: BTreeMap::new(),
            adopted: BTreeSet::new(),
            expected: BTreeSet::new(),
            claims: BTreeMap::new(),
            doomed: BTreeSet::new(),
        }
    }

    pub(super) fn plan(&self, name: &str, len: u64) -> Plan {
        Plan {
            part: name.to_owned(),
            len,
            origin: self.origins.get(name).cloned().unwrap_or_default(),
            adopt: self.adopted.contains(name),
            expected: self.expected.contains(name),
            look: self.look,
            settled: self.settled,
            claim: self.claims.get(name).cloned(),
        }
    }

    pub(super) fn set_origin(&mut self, name: &str, origin: &Origin) {
        self.origins.insert(name.to_owned(), origin.clone());
    }

    pub(super) fn adopt(&mut self, name: &str) {
        self.adopted.insert(name.to_owned());
    }

    /// The part's disk had it before.
    pub(super) fn expect(&mut self, name: &str) {
        self.expected.insert(name.to_owned());
    }

    pub(super) fn claim(&mut self, name: &str, claim: &Claim) {
        self.claims.insert(name.to_owned(), claim.clone());
    }

    /// All former disks are here.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }

    /// The part's image is to be removed.
    pub(super) fn doom(&mut self, name: &str) {
        self.doomed.insert(name.to_owned());
    }

    pub(super) fn is_doomed(&self, name: &str) -> bool {
        self.doomed.contains(name)
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.doomed.remove(name);
        self.adopted.remove(name);
        self.expected.remove(name);
        self.origins.remove(name);
        self.claims.remove(name);
    }
}
