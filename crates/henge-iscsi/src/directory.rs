//! Which targets initiators find: by name, in lists, and by what they prove.
//!
//! Anybody may ask for a list, or offer a proof. So neither looks at targets that are not for who asks, however many there are: what is for
//! everybody, for each initiator that targets name, and for who knows a secret, is each listed as targets come and go.

use crate::chap::Access;
use crate::target::TargetId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

type Ids = BTreeSet<TargetId>;

/// All targets that are not hidden.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    by_name: BTreeMap<String, TargetId>,
    /// How many of them say who may log in.
    guarded: usize,
    /// Those that ask for no proof, and for no name of an initiator.
    open: Ids,
    /// Those that ask for an initiator's name alone, by it.
    by_initiator: BTreeMap<String, Ids>,
    /// Those that ask for a proof, by user and secret.
    by_user: BTreeMap<String, BTreeMap<Vec<u8>, Ids>>,
}

impl Directory {
    /// A target is there.
    pub fn add(&mut self, name: &str, id: TargetId, access: &Access) {
        self.by_name.insert(name.to_owned(), id);
        self.guarded += usize::from(access.is_stated());
        if access.users.is_empty() && access.initiators.is_empty() {
            self.open.insert(id);
        } else if access.users.is_empty() {
            for initiator in &access.initiators {
                self.by_initiator.entry(initiator.clone()).or_default().insert(id);
            }
        }
        for user in &access.users {
            let secrets = self.by_user.entry(user.name.clone()).or_default();
            secrets.entry(user.secret.clone()).or_default().insert(id);
        }
    }

    /// A target that was there by this access is gone.
    pub fn remove(&mut self, name: &str, id: TargetId, access: &Access) {
        self.by_name.remove(name);
        self.guarded -= usize::from(access.is_stated());
        self.open.remove(&id);
        for initiator in &access.initiators {
            take_out(&mut self.by_initiator, initiator, id);
        }
        for user in &access.users {
            let Some(secrets) = self.by_user.get_mut(&user.name) else { continue };
            take_out(secrets, &user.secret, id);
            if secrets.is_empty() {
                self.by_user.remove(&user.name);
            }
        }
    }

    pub fn find(&self, name: &str) -> Option<TargetId> {
        self.by_name.get(name).copied()
    }

    /// Whether any target says who may log in: then nobody is told which names there are.
    pub fn is_guarded(&self) -> bool {
        self.guarded > 0
    }

    /// The first target from one on that an initiator of this name finds without a proof.
    pub fn next(&self, from: TargetId, initiator: &str) -> Option<TargetId> {
        let named = self.by_initiator.get(initiator);
        let firsts = [Some(&self.open), named].into_iter().flatten();
        firsts.filter_map(|ids| ids.range(from..).next()).min().copied()
    }

    /// Targets that a user of this name may use who knows a secret for which `is_right`: of `most` secrets, from behind one on. Each secret
    /// is tried once, also where one before it is right.
    pub fn proven(
        &self,
        user: &str,
        behind: Option<&[u8]>,
        most: usize,
        is_right: impl Fn(&[u8]) -> bool,
    ) -> Tried {
        let mut tried = Tried::default();
        let Some(secrets) = self.by_user.get(user) else { return tried };
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        for (secret, ids) in secrets.range::<[u8], _>((from, Bound::Unbounded)) {
            if tried.count == most {
                return tried;
            }
            if is_right(secret) {
                tried.opened.extend(ids);
            }
            tried.count += 1;
            tried.last = Some(secret.clone());
        }
        tried.last = None;
        tried
    }
}

/// What came of a proof and some secrets.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// What it opens.
    pub opened: Vec<TargetId>,
    /// How many secrets it was compared with.
    pub count: usize,
    /// The last of them, where there are more behind it.
    pub last: Option<Vec<u8>>,
}

/// A target is no longer among those of somebody; who has none is forgotten.
fn take_out<K: Ord>(of: &mut BTreeMap<K, Ids>, who: &K, id: TargetId) {
    let Some(theirs) = of.get_mut(who) else { return };
    theirs.remove(&id);
    if theirs.is_empty() {
        of.remove(who);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chap::Secret;

    fn access(user: Option<(&str, &str)>, initiators: &[&str]) -> Access {
        let secret = |(name, word): (&str, &str)| Secret { name: name.to_owned(), secret: word.into() };
        let initiators = initiators.iter().map(|name| (*name).to_owned()).collect();
        Access { users: user.map(secret).into_iter().collect(), initiators, target: None }
    }

    fn listed(directory: &Directory, initiator: &str) -> Vec<TargetId> {
        let after = |id: &TargetId| directory.next(id.next(), initiator);
        std::iter::successors(directory.next(TargetId::FIRST, initiator), after).collect()
    }

    #[test]
    fn each_finds_what_is_for_it_and_each_secret_is_tried_once() {
        let ids: Vec<TargetId> =
            std::iter::successors(Some(TargetId::FIRST), |id| Some(id.next())).take(7).collect();
        let all = [
            access(None, &[]),
            access(None, &["iqn.a", "iqn.b"]),
            access(Some(("ann", "one")), &[]),
            access(None, &[]),
            access(Some(("ann", "one")), &["iqn.a"]),
            access(Some(("ann", "two")), &[]),
            access(Some(("bob", "one")), &[]),
        ];
        let mut directory = Directory::default();
        for (id, access) in ids.iter().zip(&all) {
            directory.add(&format!("{id:?}"), *id, access);
        }
        assert_eq!(listed(&directory, "iqn.a"), [ids[0], ids[1], ids[3]]);
        assert_eq!(listed(&directory, "iqn.c"), [ids[0], ids[3]]);
        let tried = std::cell::RefCell::new(Vec::new());
        let knows = |secret: &[u8]| {
            tried.borrow_mut().push(secret.to_vec());
            secret == b"one"
        };
        let both = directory.proven("ann", None, 2, knows);
        assert_eq!((both.opened, both.count, both.last), (vec![ids[2], ids[4]], 2, None));
        assert_eq!(tried.take(), [b"one", b"two"]);
        // The same in portions of one.
        let first = directory.proven("ann", None, 1, knows);
        assert_eq!((first.opened.len(), first.count, first.last.as_deref()), (2, 1, Some(&b"one"[..])));
        let second = directory.proven("ann", first.last.as_deref(), 1, knows);
        assert_eq!((second.opened.len(), second.count, second.last), (0, 1, None));
        assert_eq!(tried.take(), [b"one", b"two"]);
        assert!(directory.proven("carol", None, 9, |_| true).opened.is_empty() && directory.is_guarded());
        for (id, access) in ids.iter().zip(&all) {
            directory.remove(&format!("{id:?}"), *id, access);
        }
        assert!(directory.by_user.is_empty() && directory.by_initiator.is_empty() && !directory.is_guarded());
        assert!(listed(&directory, "iqn.a").is_empty() && directory.find(&format!("{:?}", ids[0])).is_none());
    }
}
