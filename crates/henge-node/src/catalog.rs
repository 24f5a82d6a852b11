//! The disks that NBD clients are shown: each client only those that it may use.
//!
//! Disks for anyone are in one map; those for some users are in a map of each of these users as well. So what a client sees is at most two
//! maps, both in the order of disks' numbers, and neither a disk that comes or goes nor a client that asks looks at the others. A disk that
//! a client may not use is as one that does not exist.

use crate::access::NbdAccess;
use henge_nbd::{Export, Exports};
use std::collections::BTreeMap;

type Disks = BTreeMap<usize, Export>;

/// All of them.
#[derive(Default)]
pub(crate) struct Catalog {
    for_anyone: Disks,
    for_users: BTreeMap<u32, Disks>,
    by_name: BTreeMap<String, (usize, NbdAccess)>,
    names: BTreeMap<usize, String>,
    /// Disks that take no client now, and why.
    refused: BTreeMap<usize, &'static str>,
}

/// The disks that one client may use.
pub(crate) struct Shown<'a> {
    for_anyone: &'a Disks,
    for_user: Option<&'a Disks>,
    by_name: &'a BTreeMap<String, (usize, NbdAccess)>,
    refused: &'a BTreeMap<usize, &'static str>,
}

impl Catalog {
    /// A disk is there, or is another than before.
    pub(crate) fn add(&mut self, number: usize, export: Export, access: &NbdAccess) {
        self.remove(number);
        self.by_name.insert(export.name.clone(), (number, access.clone()));
        self.names.insert(number, export.name.clone());
        match access {
            NbdAccess::Anyone => drop(self.for_anyone.insert(number, export)),
            NbdAccess::Nobody => {}
            NbdAccess::Users(users) => {
                for user in users {
                    self.for_users.entry(*user).or_default().insert(number, export.clone());
                }
            }
        }
    }

    /// Nobody else may come to a disk, for that reason.
    pub(crate) fn refuse(&mut self, number: usize, why: &'static str) {
        self.refused.insert(number, why);
    }

    /// A disk takes clients again.
    pub(crate) fn welcome(&mut self, number: usize) {
        self.refused.remove(&number);
    }

    /// A disk is gone.
    pub(crate) fn remove(&mut self, number: usize) {
        let Some(name) = self.names.remove(&number) else { return };
        let gone = self.by_name.remove(&name);
        self.for_anyone.remove(&number);
        if let Some((_, NbdAccess::Users(users))) = gone {
            for user in users {
                let Some(theirs) = self.for_users.get_mut(&user) else { continue };
                theirs.remove(&number);
                if theirs.is_empty() {
                    self.for_users.remove(&user);
                }
            }
        }
    }

    /// What a client may use: by a Unix socket a process of this user, else anybody.
    pub(crate) fn shown_to(&self, user: Option<u32>) -> Shown<'_> {
        let for_user = user.and_then(|user| self.for_users.get(&user));
        Shown { for_anyone: &self.for_anyone, for_user, by_name: &self.by_name, refused: &self.refused }
    }
}

impl Exports for Shown<'_> {
    fn count(&self) -> usize {
        self.for_anyone.len() + self.for_user.map_or(0, BTreeMap::len)
    }

    fn list(&self, from: usize) -> impl Iterator<Item = (usize, &Export)> {
        let mut anyone = self.for_anyone.range(from..).peekable();
        let mut user = self.for_user.into_iter().flat_map(move |disks| disks.range(from..)).peekable();
        std::iter::from_fn(move || {
            let next = match (anyone.peek(), user.peek()) {
                (Some((a, _)), Some((u, _))) if u < a => user.next(),
                (Some(_), _) => anyone.next(),
                (None, _) => user.next(),
            };
            next.map(|(number, export)| (*number, export))
        })
    }

    fn get(&self, index: usize) -> Option<&Export> {
        self.for_anyone.get(&index).or_else(|| self.for_user?.get(&index))
    }

    fn refusal(&self, index: usize) -> Option<&'static str> {
        self.refused.get(&index).copied()
    }

    fn find(&self, name: &str) -> Option<usize> {
        if name.is_empty() && self.count() == 1 {
            return self.list(0).next().map(|(number, _)| number);
        }
        let number = self.by_name.get(name)?.0;
        self.get(number).map(|_| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(catalog: &Catalog, user: Option<u32>) -> Vec<String> {
        let shown = catalog.shown_to(user);
        let names: Vec<String> = shown.list(0).map(|(_, export)| export.name.clone()).collect();
        assert_eq!(names.len(), shown.count());
        assert_eq!(
            shown.list(0).map(|(n, _)| n).collect::<Vec<_>>(),
            shown
                .list(0)
                .map(|(n, e)| {
                    assert_eq!(shown.find(&e.name), Some(n));
                    n
                })
                .collect::<Vec<_>>()
        );
        names
    }

    #[test]
    fn each_client_is_shown_what_it_may_use_and_nothing_else() {
        let mut catalog = Catalog::default();
        let users = |users: &[u32]| NbdAccess::Users(users.to_vec());
        let disks = [
            ("a", users(&[7])),
            ("b", NbdAccess::Anyone),
            ("c", NbdAccess::Nobody),
            ("d", users(&[7, 8])),
            ("e", NbdAccess::Anyone),
        ];
        for (number, (name, access)) in disks.iter().enumerate() {
            catalog.add(number, Export::new(name, 4096), access);
        }
        assert_eq!(names(&catalog, None), ["b", "e"]);
        assert_eq!(names(&catalog, Some(7)), ["a", "b", "d", "e"]);
        assert_eq!(names(&catalog, Some(8)), ["b", "d", "e"]);
        assert_eq!(names(&catalog, Some(9)), ["b", "e"]);
        // Unknown and forbidden look alike.
        for name in ["a", "c", "d", "zzz", ""] {
            assert_eq!(catalog.shown_to(None).find(name), None, "{name}");
            assert_eq!(catalog.shown_to(Some(9)).find(name), None, "{name}");
        }
        assert!(catalog.shown_to(None).get(0).is_none());
        // From a number on, as LIST goes on.
        let later: Vec<usize> = catalog.shown_to(Some(7)).list(2).map(|(n, _)| n).collect();
        assert_eq!(later, [3, 4]);
        // A sole disk is the default one: the sole one that is shown.
        (0..3).for_each(|number| catalog.remove(number));
        catalog.remove(4);
        assert_eq!(catalog.shown_to(Some(8)).find(""), Some(3));
        assert_eq!(catalog.shown_to(None).find(""), None);
        catalog.add(3, Export::new("d", 4096), &NbdAccess::Anyone);
        assert_eq!((names(&catalog, None), catalog.for_users.len()), (vec!["d".to_owned()], 0));
    }
}
