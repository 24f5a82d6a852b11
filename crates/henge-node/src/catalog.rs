//! The disks that NBD clients are shown: each client only those that it may use.
//!
//! Disks for anyone are in one map; those for some users, or for who shows some certificate, are in a map of each of these as well. So
//! what a client sees is a few maps, all in the order of disks' numbers, and neither a disk that comes or goes nor a client that
//! asks looks at the others. A disk that a client may not use is as one that does not exist.
//!
//! Each shard has a catalog of all shards' disks, so that it can answer every client by itself. Disks have their numbers among all shards here
//! ([`global`](crate::shards::number::global)).

use crate::access::NbdAccess;
use crate::shards::crowd::Crowd;
use crate::shards::number::local;
use henge_nbd::{Export, Exports};
use std::collections::BTreeMap;
use std::sync::Arc;

type Disks = BTreeMap<usize, Export>;

/// Who a client has proven to be.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Who {
    /// By a Unix socket: whose process it is.
    pub user: Option<u32>,
    /// By TLS: the names in its certificate.
    pub certificate: Vec<String>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Catalog {
    for_anyone: Disks,
    for_users: BTreeMap<u32, Disks>,
    for_certificates: BTreeMap<String, Disks>,
    by_name: BTreeMap<String, (usize, NbdAccess)>,
    names: BTreeMap<usize, (String, u64)>,
    /// Disks that take no client now, and why.
    refused: BTreeMap<usize, &'static str>,
    /// Which shard this is, and of how many.
    here: usize,
    shards: usize,
    /// Disks that this shard has had.
    editions: u64,
    /// Disks that every shard serves: by the number that each has where it is shown, the number here, and the shard of its gate.
    instead: BTreeMap<usize, (usize, usize)>,
    /// The same, the other way round.
    shown_as: BTreeMap<usize, usize>,
    crowd: Arc<Crowd>,
}

/// The disks that one client may use.
pub(crate) struct Shown<'a> {
    catalog: &'a Catalog,
    who: &'a Who,
}

impl Catalog {
    /// That of one of the shards whose clients these are.
    pub(crate) fn of_shard(here: usize, crowd: &Arc<Crowd>) -> Catalog {
        Catalog { here, shards: crowd.loops(), crowd: Arc::clone(crowd), ..Catalog::default() }
    }

    /// Whether some disks are other shards'.
    pub(crate) fn is_divided(&self) -> bool {
        self.shards > 1
    }

    /// The number that a disk has here, unless it is another shard's.
    pub(crate) fn here(&self, number: usize) -> Option<usize> {
        let (shard, number) = local(number);
        (shard == self.here).then_some(number)
    }

    /// The shard that shows the disk of that name, if it is another than this.
    pub(crate) fn elsewhere(&self, name: &str) -> Option<usize> {
        let number = self.by_name.get(name)?.0;
        let (shard, _) = local(self.shown_as.get(&number).copied().unwrap_or(number));
        (shard != self.here).then_some(shard)
    }

    /// The shard that is to serve a client of this disk, and the number that the disk has where it is shown; nothing where the client is to
    /// stay.
    pub(crate) fn away(&self, number: usize) -> Option<(usize, usize)> {
        let shown = self.shown_as.get(&number).copied().unwrap_or(number);
        let instead = self.instead.get(&shown);
        let to = instead.map_or(local(shown).0, |(_, gate)| self.crowd.place(self.here, *gate));
        (to != self.here).then_some((to, shown))
    }

    /// Which of the disks that have had this number where it is shown is there.
    pub(crate) fn edition(&self, number: usize) -> Option<u64> {
        self.names.get(&self.served_as(number)).map(|(_, edition)| *edition)
    }

    /// That of a disk that comes.
    pub(crate) fn next_edition(&mut self) -> u64 {
        self.editions += 1;
        self.editions
    }

    /// A disk is there, or is another than before.
    pub(crate) fn add(&mut self, number: usize, export: Export, access: &NbdAccess, edition: u64) {
        let refused = self.refused.get(&number).copied();
        self.remove(number);
        self.refused.extend(refused.map(|why| (number, why)));
        self.by_name.insert(export.name.clone(), (number, access.clone()));
        self.names.insert(number, (export.name.clone(), edition));
        match access {
            NbdAccess::Anyone => drop(self.for_anyone.insert(number, export)),
            NbdAccess::Nobody => {}
            NbdAccess::These { users, certificates } => {
                for user in users {
                    self.for_users.entry(*user).or_default().insert(number, export.clone());
                }
                for name in certificates {
                    self.for_certificates.entry(name.clone()).or_default().insert(number, export.clone());
                }
            }
        }
    }

    /// Of a disk that has that number where it is shown, clients of this shard come to this number.
    pub(crate) fn serve_instead(&mut self, there: usize, here: usize, gate: usize) {
        self.instead.insert(there, (here, gate));
        self.shown_as.insert(here, there);
    }

    /// The number by which clients come to a disk that has that number at its shard.
    pub(crate) fn served_as(&self, number: usize) -> usize {
        self.instead.get(&number).map_or(number, |(here, _)| *here)
    }

    /// Nobody else may come to a disk, for that reason. Whether that is new.
    pub(crate) fn refuse(&mut self, number: usize, why: &'static str) -> bool {
        self.refused.insert(number, why) != Some(why)
    }

    /// A disk takes clients again. Whether that is new.
    pub(crate) fn welcome(&mut self, number: usize) -> bool {
        self.refused.remove(&number).is_some()
    }

    /// A disk is gone.
    pub(crate) fn remove(&mut self, number: usize) {
        self.refused.remove(&number);
        if let Some(shown) = self.shown_as.remove(&number) {
            self.instead.remove(&shown);
        }
        let Some((name, _)) = self.names.remove(&number) else { return };
        let gone = self.by_name.remove(&name);
        self.for_anyone.remove(&number);
        if let Some((_, NbdAccess::These { users, certificates })) = gone {
            users.iter().for_each(|user| take_out(&mut self.for_users, user, number));
            certificates.iter().for_each(|name| take_out(&mut self.for_certificates, name, number));
        }
    }

    /// What a client may use.
    pub(crate) fn shown_to<'a>(&'a self, who: &'a Who) -> Shown<'a> {
        Shown { catalog: self, who }
    }
}

/// A disk is no longer among those of somebody; who has none is forgotten.
fn take_out<K: Ord>(of: &mut BTreeMap<K, Disks>, who: &K, number: usize) {
    let Some(theirs) = of.get_mut(who) else { return };
    theirs.remove(&number);
    if theirs.is_empty() {
        of.remove(who);
    }
}

impl<'a> Shown<'a> {
    /// The maps of which each shows some; a disk may be in several.
    fn maps(&self) -> impl Iterator<Item = &'a Disks> + use<'a> {
        let (catalog, who) = (self.catalog, self.who);
        let user = who.user.and_then(|user| catalog.for_users.get(&user));
        let certificate = who.certificate.iter().filter_map(|name| catalog.for_certificates.get(name));
        std::iter::once(&catalog.for_anyone).chain(user).chain(certificate)
    }
}

impl Exports for Shown<'_> {
    fn count(&self) -> usize {
        // What is for two names of a certificate is in two of them.
        self.maps().map(BTreeMap::len).sum()
    }

    fn list(&self, from: usize) -> impl Iterator<Item = (usize, &Export)> {
        let mut at = from;
        std::iter::from_fn(move || {
            let next = self.maps().filter_map(|disks| disks.range(at..).next());
            let (number, export) = next.min_by_key(|(number, _)| **number)?;
            at = number + 1;
            Some((*number, export))
        })
    }

    fn get(&self, index: usize) -> Option<&Export> {
        self.maps().find_map(|disks| disks.get(&index))
    }

    fn refusal(&self, index: usize) -> Option<&'static str> {
        self.catalog.refused.get(&index).copied()
    }

    fn find(&self, name: &str) -> Option<usize> {
        if name.is_empty() {
            let mut shown = self.list(0);
            return shown.next().filter(|_| shown.next().is_none()).map(|(number, _)| number);
        }
        let number = self.catalog.by_name.get(name)?.0;
        self.get(number).map(|_| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(user: Option<u32>) -> Who {
        Who { user, certificate: Vec::new() }
    }

    fn names(catalog: &Catalog, who: Who) -> Vec<String> {
        let shown = catalog.shown_to(&who);
        let names: Vec<String> = shown.list(0).map(|(_, export)| export.name.clone()).collect();
        let several = who.certificate.len() + usize::from(who.user.is_some()) > 1;
        assert!(shown.count() == names.len() || several && shown.count() > names.len());
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
        let users = |users: &[u32]| NbdAccess::These { users: users.to_vec(), certificates: Vec::new() };
        let disks = [
            ("a", users(&[7])),
            ("b", NbdAccess::Anyone),
            ("c", NbdAccess::Nobody),
            ("d", users(&[7, 8])),
            ("e", NbdAccess::Anyone),
        ];
        for (number, (name, access)) in disks.iter().enumerate() {
            catalog.add(number, Export::new(name, 4096), access, 0);
        }
        assert_eq!(names(&catalog, user(None)), ["b", "e"]);
        assert_eq!(names(&catalog, user(Some(7))), ["a", "b", "d", "e"]);
        assert_eq!(names(&catalog, user(Some(8))), ["b", "d", "e"]);
        assert_eq!(names(&catalog, user(Some(9))), ["b", "e"]);
        // Unknown and forbidden look alike.
        for name in ["a", "c", "d", "zzz", ""] {
            assert_eq!(catalog.shown_to(&user(None)).find(name), None, "{name}");
            assert_eq!(catalog.shown_to(&user(Some(9))).find(name), None, "{name}");
        }
        assert!(catalog.shown_to(&user(None)).get(0).is_none());
        // From a number on, as LIST goes on.
        let later: Vec<usize> = catalog.shown_to(&user(Some(7))).list(2).map(|(n, _)| n).collect();
        assert_eq!(later, [3, 4]);
        // A sole disk is the default one: the sole one that is shown.
        (0..3).for_each(|number| catalog.remove(number));
        catalog.remove(4);
        assert_eq!(catalog.shown_to(&user(Some(8))).find(""), Some(3));
        assert_eq!(catalog.shown_to(&user(None)).find(""), None);
        catalog.add(3, Export::new("d", 4096), &NbdAccess::Anyone, 0);
        assert_eq!((names(&catalog, user(None)), catalog.for_users.len()), (vec!["d".to_owned()], 0));
    }

    #[test]
    fn a_certificate_shows_what_any_of_its_names_may_use_once() {
        let mut catalog = Catalog::default();
        let these = |users: &[u32], names: &[&str]| {
            let certificates = names.iter().map(|&name| name.to_owned()).collect();
            NbdAccess::These { users: users.to_vec(), certificates }
        };
        let disks = [
            ("a", these(&[], &["CN=ann"])),
            ("b", NbdAccess::Anyone),
            ("c", these(&[7], &["CN=ann", "spiffe://h/ann"])),
            ("d", these(&[], &["spiffe://h/ann"])),
            ("e", these(&[], &["spiffe://h/bob"])),
        ];
        for (number, (name, access)) in disks.iter().enumerate() {
            catalog.add(number, Export::new(name, 4096), access, 0);
        }
        let shows = |names: &[&str]| Who {
            user: None,
            certificate: names.iter().map(|&name| name.to_owned()).collect(),
        };
        assert_eq!(names(&catalog, Who::default()), ["b"]);
        assert_eq!(names(&catalog, shows(&["CN=ann"])), ["a", "b", "c"]);
        assert_eq!(names(&catalog, shows(&["CN=ann", "spiffe://h/ann"])), ["a", "b", "c", "d"]);
        assert_eq!(names(&catalog, Who { user: Some(7), ..shows(&["spiffe://h/ann"]) }), ["b", "c", "d"]);
        assert_eq!(names(&catalog, shows(&["spiffe://h/bob"])), ["b", "e"]);
        // Neither part of a name, nor its case, nor another kind of name is that name.
        assert_eq!(names(&catalog, shows(&["CN=an", "CN=Ann", "ann", "spiffe://h/ann/x"])), ["b"]);
        // The sole disk of several names is the default one.
        let sole = |catalog: &Catalog| catalog.shown_to(&shows(&["CN=ann", "spiffe://h/ann"])).find("");
        assert_eq!(sole(&catalog), None);
        let mut one = Catalog::default();
        one.add(2, Export::new("c", 4096), &these(&[7], &["CN=ann", "spiffe://h/ann"]), 0);
        assert_eq!(sole(&one), Some(2));
        let bob = shows(&["spiffe://h/bob"]);
        assert_eq!(catalog.shown_to(&bob).find("a"), catalog.shown_to(&bob).find("zzz"));
        assert!(catalog.shown_to(&bob).get(0).is_none());
        (0..5).for_each(|number| catalog.remove(number));
        assert!(catalog.for_certificates.is_empty() && catalog.for_users.is_empty());
    }
}
