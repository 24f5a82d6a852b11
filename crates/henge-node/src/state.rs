//! What a node remembers of the changes made while it ran: disks that were added, contracts that were changed.
//!
//! # The rule
//! The configuration file says how the node begins. A disk that was added, and terms that were changed since, stand in
//! `state_dir/disks.json` and are done again when the node starts. What the file is to be is written beside it and synced before
//! a change is done ([`Memory::prepare`]), and takes its name before the change is acknowledged ([`Memory::commit`]). So where there
//! is no room, nothing is changed, and whoever asked is told.
//!
//! Beside them stands which pools have parts of which disk, of the file's disks as well ([`Memory::have`]). It is written when a disk has its
//! parts, so a node that ends before makes what is missing. Of one that ends later nothing may be missing.
//!
//! A removal is noted before the first part goes ([`Memory::mark`]), and forgotten after the last. So a node that ends between goes on with it,
//! and never serves what is left.
//!
//! Who edits a disk's contract in the configuration file means that contract: changes made to the older text are forgotten.
//!
//! A node that has no folder to remember in ([`StateDir`]) refuses changes.

mod dir;
pub(crate) mod pools;

pub(crate) use dir::StateDir;
use henge_api::{Request, Table, Terms};
use henge_io::Prepared;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

/// The file's name.
const DISKS: &str = "disks.json";

/// What is kept of one disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The table it was added by; none for a disk of the configuration file.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "table_or_text")]
    pub added: Option<Table>,
    /// The file's terms that the changes were made to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<Terms>,
    /// Terms changed since; an empty text takes one away.
    #[serde(default)]
    pub terms: Terms,
    /// Bytes, where it has grown: a disk of the configuration file is then as large as this, or as the file says, whichever is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u64>,
    /// The manager's order that made it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Changed here since that order.
    #[serde(default)]
    pub changed: bool,
    /// Its removal has begun, and is gone on with when the node begins again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub going: bool,
}

/// A disk's table. Nodes of protocol version 2 kept it as a text of the configuration.
fn table_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Table>, D::Error> {
    let kept = serde_json::Value::deserialize(deserializer)?;
    let serde_json::Value::String(text) = kept else {
        return serde_json::from_value(kept).map_err(D::Error::custom);
    };
    let read = henge_config::Source::new("a disk that was added", text).parse("the disk");
    read.map(|params| Some(Table::from(&params))).map_err(D::Error::custom)
}

/// The file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct File {
    /// Addresses of nodes that were made known, by name.
    #[serde(default)]
    peers: Terms,
    /// Where initiators come to them.
    #[serde(default, skip_serializing_if = "Terms::is_empty")]
    iscsi: Terms,
    #[serde(default)]
    disks: BTreeMap<String, Kept>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    parts: Parts,
}

/// The pools that have parts of a disk, by the disk's name. Where one is missing when the node begins again, somebody has lost it.
pub(crate) type Parts = BTreeMap<String, BTreeSet<String>>;

/// Who asks for a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// Somebody at the control socket, or the process itself.
    Here,
    /// The manager, by this order.
    Manager(u64),
    /// The manager, by an order of which more is to be done: a node that ends before that has not carried it out.
    Midway,
}

/// A change that the node can remember from now on; it is to be done, then committed.
pub(crate) struct Change {
    after: File,
    /// None where nothing is remembered, or where nothing is new.
    file: Option<Prepared>,
}

/// The node's memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    state_dir: StateDir,
    peers: Terms,
    iscsi: Terms,
    pub disks: BTreeMap<String, Kept>,
    pub parts: Parts,
    /// Disks that are being added: nobody else adds one of that name, nor removes it.
    pub coming: BTreeSet<String>,
    /// Terms of the configuration file's disks.
    file: BTreeMap<String, Terms>,
    /// The keys by which a disk's table says who may use it.
    doors: Vec<&'static str>,
}

impl Memory {
    /// Reads what is remembered. `file` has the terms of the configuration's disks, and `doors` the keys that say who may use one.
    pub(crate) fn open(
        state_dir: StateDir,
        file: BTreeMap<String, Terms>,
        doors: Vec<&'static str>,
    ) -> io::Result<Memory> {
        let File { peers, iscsi, mut disks, mut parts } = match state_dir.file(DISKS) {
            None => File::default(),
            Some(path) => match fs::read(&path) {
                Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
                    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {e}", path.display()))
                })?,
                Err(e) if e.kind() == io::ErrorKind::NotFound => File::default(),
                Err(e) => return Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
            },
        };
        // A contract that was edited says nothing of a disk's size, and a part is not shrunk.
        for (name, kept) in disks
            .iter_mut()
            .filter(|(_, kept)| kept.capacity.is_some() && kept.added.is_none() && !kept.going)
        {
            if let Some(now) = file.get(name).filter(|now| kept.file.as_ref() != Some(*now)) {
                *kept = Kept { file: Some(now.clone()), capacity: kept.capacity, ..Kept::default() };
            }
        }
        // The file is the later word on disks whose text was edited, and on disks that it has and had not.
        disks.retain(|name, kept| match (file.get(name), &kept.added, &kept.file) {
            (Some(_), ..) if kept.going => true,
            (Some(now), None, Some(then)) => now == then,
            (Some(_), Some(_), _) => false,
            (None, None, _) => false,
            _ => true,
        });
        parts.retain(|name, _| file.contains_key(name) || disks.contains_key(name));
        Ok(Memory { state_dir, peers, iscsi, disks, parts, coming: BTreeSet::new(), file, doors })
    }

    /// Whether a manager made this disk, by an order of its own. What the configuration states, or somebody added here, is the node's.
    pub(crate) fn is_managed(&self, name: &str) -> bool {
        self.disks.get(name).is_some_and(|kept| kept.added.is_some() && kept.revision.is_some())
    }

    /// The requests that bring a node of the configuration file to where it was.
    pub(crate) fn replay(&self) -> Vec<(String, Request)> {
        let peer = |(name, address): (&String, &String)| {
            let iscsi = self.iscsi.get(name).cloned();
            (name.clone(), Request::Peer { name: name.clone(), address: address.clone(), iscsi, at: None })
        };
        let mut requests: Vec<_> = self.peers.iter().map(peer).collect();
        for (name, kept) in self.disks.iter().filter(|(_, kept)| !kept.going) {
            if let Some(disk) = &kept.added {
                requests.push((name.clone(), Request::Add { disk: disk.clone() }));
            }
            if !kept.terms.is_empty() {
                requests
                    .push((name.clone(), Request::Set { name: name.clone(), contract: kept.terms.clone() }));
            }
        }
        requests
    }

    /// The disks whose removal has begun, and the tables of those that the configuration does not have.
    pub(crate) fn going(&self) -> Vec<(String, Option<Table>)> {
        let going = self.disks.iter().filter(|(_, kept)| kept.going);
        let table = |name: &String, kept: &Kept| kept.added.clone().filter(|_| !self.file.contains_key(name));
        going.map(|(name, kept)| (name.clone(), table(name, kept))).collect()
    }

    /// Notes that a disk's removal has begun; or that the disk stays, which is then known here whatever can be written.
    pub(crate) fn mark(&mut self, name: &str, going: bool) -> io::Result<()> {
        if let Some(kept) = self.disks.get_mut(name).filter(|_| !going) {
            kept.going = false;
        }
        let mut after = self.as_it_is();
        self.entry(&mut after.disks, name).going = going;
        self.write_all(after)
    }

    /// Writes down, beside what is remembered, what is to be once a request is done; `added` is the name of the disk that it makes.
    pub(crate) fn prepare(
        &self,
        request: &Request,
        added: Option<&str>,
        origin: Origin,
    ) -> io::Result<Change> {
        let mut after = self.as_it_is();
        if self.change(&mut after, request, added, origin)? {
            let file = self.write(&after)?;
            Ok(Change { after, file })
        } else {
            Ok(Change { after, file: None })
        }
    }

    /// The request was done: what was prepared is what is remembered. Where that fails it is not known what a restart finds.
    pub(crate) fn commit(&mut self, change: Change) -> io::Result<()> {
        let Change { after: File { peers, iscsi, disks, parts }, file } = change;
        (self.peers, self.iscsi, self.disks, self.parts) = (peers, iscsi, disks, parts);
        file.map_or(Ok(()), Prepared::commit)
    }

    /// A disk that was remembered before it was there was refused: it is as if nobody had asked. After an error a restart may find it.
    pub(crate) fn forget(&mut self, name: &str) -> io::Result<()> {
        self.disks.remove(name);
        self.parts.remove(name);
        self.write_all(self.as_it_is())
    }

    /// These disks have their parts on those pools. Nothing is written where that is nothing new.
    pub(crate) fn have(&mut self, parts: Parts) -> io::Result<()> {
        let is_known = |(name, on): (&String, _)| self.parts.get(name).unwrap_or(&BTreeSet::new()) == on;
        if self.state_dir.folder().is_none() || parts.iter().all(is_known) {
            return Ok(());
        }
        let mut after = self.as_it_is();
        for (name, on) in parts {
            match on.is_empty() {
                true => after.parts.remove(&name),
                false => after.parts.insert(name, on),
            };
        }
        self.write_all(after)
    }

    fn as_it_is(&self) -> File {
        let (peers, iscsi) = (self.peers.clone(), self.iscsi.clone());
        File { peers, iscsi, disks: self.disks.clone(), parts: self.parts.clone() }
    }

    fn write_all(&mut self, after: File) -> io::Result<()> {
        let file = self.write(&after)?;
        self.commit(Change { after, file })
    }

    /// What a request makes of the memory; whether that is anything new.
    fn change(
        &self,
        after: &mut File,
        request: &Request,
        added: Option<&str>,
        origin: Origin,
    ) -> io::Result<bool> {
        let mark = |kept: &mut Kept| match origin {
            Origin::Manager(revision) => (kept.revision, kept.changed) = (Some(revision), false),
            Origin::Here => kept.changed = true,
            Origin::Midway => {}
        };
        let File { peers, iscsi: portals, disks, parts } = after;
        match (request, added) {
            (Request::Add { disk }, Some(name)) => {
                let mut kept = Kept { added: Some(disk.clone()), ..Kept::default() };
                mark(&mut kept);
                disks.insert(name.to_owned(), kept);
            }
            (Request::Set { name, contract }, _) => {
                let kept = self.entry(disks, name);
                kept.terms.extend(contract.clone());
                mark(kept);
            }
            (Request::Grow { name, capacity }, _) => {
                // What is no size is refused by who is asked to do it.
                let Ok(bytes) = henge_core::parse_size(capacity) else { return Ok(false) };
                let kept = self.entry(disks, name);
                match &mut kept.added {
                    Some(table) => table.set("capacity", format!("{bytes}B")),
                    None => kept.capacity = Some(bytes),
                }
                mark(kept);
            }
            (Request::Access { name, doors }, _) => {
                let kept = self.entry(disks, name);
                let Some(table) = &mut kept.added else {
                    return Err(io::Error::other(
                        "this disk stands in the node's file, and so does who may use it: edit it there, and start the node anew",
                    ));
                };
                for door in &self.doors {
                    table.remove(door);
                }
                table.extend(doors.clone());
                mark(kept);
            }
            (Request::Remove { name }, _) => {
                disks.remove(name);
                parts.remove(name);
            }
            (Request::Peer { name, address, iscsi, .. }, _) => {
                let before = peers.insert(name.clone(), address.clone());
                let moved = iscsi
                    .as_ref()
                    .is_some_and(|at| portals.insert(name.clone(), at.clone()).as_ref() != Some(at));
                return Ok(before.as_ref() != Some(address) || moved);
            }
            (Request::Unpeer { name }, _) => {
                peers.remove(name);
                portals.remove(name);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// What is kept of a disk; for one of the configuration file, beside the terms that it has there.
    fn entry<'a>(&self, disks: &'a mut BTreeMap<String, Kept>, name: &str) -> &'a mut Kept {
        let file = || self.file.get(name).cloned();
        disks.entry(name.to_owned()).or_insert_with(|| Kept { file: file(), ..Kept::default() })
    }

    /// Notes that a disk is as an order wants it, without anything having been changed.
    pub(crate) fn settled(&mut self, name: &str, revision: u64) -> io::Result<()> {
        let mut after = self.as_it_is();
        let kept = self.entry(&mut after.disks, name);
        (kept.revision, kept.changed) = (Some(revision), false);
        self.write_all(after)
    }

    fn write(&self, whole: &File) -> io::Result<Option<Prepared>> {
        self.state_dir.check()?;
        let Some(path) = self.state_dir.file(DISKS) else { return Ok(None) };
        let mut text = serde_json::to_vec_pretty(whole).map_err(io::Error::other)?;
        text.push(b'\n');
        henge_io::prepare(&path, &text).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn keys() -> Vec<&'static str> {
        crate::fronts::kinds().iter().map(|kind| kind.key).collect()
    }
    fn terms(pairs: &[(&str, &str)]) -> Terms {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }
    fn set(name: &str, pairs: &[(&str, &str)]) -> Request {
        Request::Set { name: name.into(), contract: terms(pairs) }
    }

    fn note(memory: &mut Memory, request: &Request, added: Option<&str>, origin: Origin) -> io::Result<()> {
        let change = memory.prepare(request, added, origin)?;
        memory.commit(change)
    }

    #[test]
    fn changes_outlive_the_node_until_the_file_is_edited() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = || StateDir::of(dir.path());
        let file: BTreeMap<_, _> = [("web".to_owned(), terms(&[("weight", "4")]))].into();
        let mut memory = Memory::open(state_dir(), file.clone(), keys()).unwrap();
        let add = Request::Add { disk: Table::of_disk("db") };
        note(&mut memory, &add, Some("db"), Origin::Manager(7)).unwrap();
        note(&mut memory, &set("web", &[("limit", "9/s")]), None, Origin::Here).unwrap();
        note(&mut memory, &set("web", &[("weight", "")]), None, Origin::Here).unwrap();

        let again = Memory::open(state_dir(), file, keys()).unwrap();
        let web = set("web", &[("limit", "9/s"), ("weight", "")]);
        assert_eq!(again.replay(), vec![("db".to_owned(), add.clone()), ("web".to_owned(), web)]);
        assert_eq!((again.disks["db"].revision, again.disks["db"].changed), (Some(7), false));
        assert!(again.is_managed("db") && !again.is_managed("web") && !again.is_managed("none"));

        let edited = [("web".to_owned(), terms(&[("weight", "5")]))].into();
        let mut again = Memory::open(state_dir(), edited, keys()).unwrap();
        assert_eq!(again.replay(), vec![("db".to_owned(), add)]);
        note(&mut again, &Request::Remove { name: "db".into() }, None, Origin::Here).unwrap();
        assert_eq!(Memory::open(state_dir(), BTreeMap::new(), keys()).unwrap().replay(), vec![]);
    }

    /// As nodes of protocol version 2 wrote it.
    #[test]
    fn disks_that_were_kept_as_texts_are_read_as_tables() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = || StateDir::of(dir.path());
        fs::write(dir.path().join("disks.json"), include_str!("state/version2.json")).unwrap();
        let mut memory = Memory::open(state_dir(), BTreeMap::new(), keys()).unwrap();
        let web = json!({
            "name": "web", "pool": "7", "capacity": "2000000000B", "leeway": 1.5, "adopt": true,
            "contract": { "rate": "5/s", "limit": "675/s", "percentile": 95, "latency": "20ms", "pending": 3 },
            "nbd": { "certificates": ["CN=Zo\u{e9}\u{308}"] },
            "iscsi": { "user": "web", "secret": "one one \"one!" },
        });
        let web: Table = serde_json::from_value(web).unwrap();
        let wide = Table::of_disk("wide").with("capacity", "1GB").with("pools", vec!["n1/p", "n2/p"]);
        let add = |table: &Table| Request::Add { disk: table.clone() };
        let both = [
            ("web".to_owned(), add(&web)),
            ("web".to_owned(), set("web", &[("limit", "9/s")])),
            ("wide".to_owned(), add(&wide)),
        ];
        assert_eq!(memory.replay(), both);
        assert_eq!((memory.disks["web"].revision, memory.disks["web"].changed), (Some(7), true));
        // Written again it is a table, and read the same.
        note(&mut memory, &set("web", &[("limit", "8/s")]), None, Origin::Here).unwrap();
        assert!(!fs::read_to_string(dir.path().join("disks.json")).unwrap().contains("name = "));
        assert_eq!(Memory::open(state_dir(), BTreeMap::new(), keys()).unwrap().disks, memory.disks);
    }

    #[test]
    fn a_disk_that_has_grown_is_as_large_when_the_node_begins_again() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = || StateDir::of(dir.path());
        let file: BTreeMap<_, _> = [("web".to_owned(), terms(&[("weight", "4")]))].into();
        let mut memory = Memory::open(state_dir(), file.clone(), keys()).unwrap();
        let grow =
            |name: &str, capacity: &str| Request::Grow { name: name.into(), capacity: capacity.into() };
        note(&mut memory, &grow("web", "12GB"), None, Origin::Here).unwrap();
        let db = Table::of_disk("db").with("pool", "p");
        let add = Request::Add { disk: db.clone().with("capacity", "1GB") };
        note(&mut memory, &add, Some("db"), Origin::Manager(7)).unwrap();
        note(&mut memory, &grow("db", "2GB"), None, Origin::Manager(9)).unwrap();
        // Whoever edits the contract in the file does not shrink the disk.
        let edited: BTreeMap<_, _> = [("web".to_owned(), terms(&[("weight", "5")]))].into();
        for file in [file, edited.clone(), edited] {
            let memory = Memory::open(state_dir(), file, keys()).unwrap();
            assert_eq!(memory.disks["web"].capacity, Some(12_000_000_000));
            assert_eq!(memory.disks["db"].revision, Some(9));
            let disk = db.clone().with("capacity", "2000000000B");
            assert_eq!(memory.replay(), [("db".to_owned(), Request::Add { disk })]);
        }
    }

    #[test]
    fn who_may_use_a_disk_is_remembered_as_it_was_said_last() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = || StateDir::of(dir.path());
        let file: BTreeMap<_, _> = [("web".to_owned(), Terms::new())].into();
        let mut memory = Memory::open(state_dir(), file.clone(), keys()).unwrap();
        let by_iscsi =
            |secret: &str| Table::default().with("iscsi", json!({ "user": "db", "secret": secret }));
        let with = |mut table: Table, doors: &Table| {
            table.extend(doors.clone());
            table
        };
        let db = Table::of_disk("db").with("capacity", "1GB");
        let add = with(db.clone().with("nbd", "nobody").with("nvme", json!({})), &by_iscsi("one one one!"));
        note(&mut memory, &Request::Add { disk: add }, Some("db"), Origin::Manager(7)).unwrap();
        let doors = by_iscsi("two two two!").with("nbd", "anyone");
        let change = |name: &str| Request::Access { name: name.into(), doors: doors.clone() };
        note(&mut memory, &change("db"), None, Origin::Manager(9)).unwrap();
        let again = Memory::open(state_dir(), file, keys()).unwrap();
        assert_eq!(again.replay(), [("db".to_owned(), Request::Add { disk: with(db, &doors) })]);
        assert_eq!((again.disks["db"].revision, again.disks["db"].changed), (Some(9), false));
        assert!(!fs::read_to_string(dir.path().join("disks.json")).unwrap().contains("one one one!"));
        let refused = again.prepare(&change("web"), None, Origin::Here).err().unwrap();
        assert!(refused.to_string().contains("the node's file"), "{refused}");
    }

    #[test]
    fn what_was_prepared_and_not_done_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let mut memory = Memory::open(StateDir::of(dir.path()), BTreeMap::new(), keys()).unwrap();
        let add = |name: &str| Request::Add { disk: Table::of_disk(name) };
        note(&mut memory, &add("db"), Some("db"), Origin::Here).unwrap();
        drop(memory.prepare(&add("web"), Some("web"), Origin::Here).unwrap());
        drop(memory.prepare(&Request::Remove { name: "db".into() }, None, Origin::Here).unwrap());
        let again = Memory::open(StateDir::of(dir.path()), BTreeMap::new(), keys()).unwrap();
        assert_eq!(again.replay(), [("db".to_owned(), add("db"))]);
        assert_eq!(memory.replay(), again.replay());
        let names = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["disks.json"]);
    }

    #[test]
    fn who_has_no_place_to_remember_changes_nothing() {
        let memory = Memory::open(StateDir::none("/var/lib/henge: no"), BTreeMap::new(), keys()).unwrap();
        let refused = memory.prepare(&set("web", &[("limit", "9/s")]), None, Origin::Here).err().unwrap();
        assert!(refused.to_string().contains("/var/lib/henge: no"), "{refused}");
        assert!(refused.to_string().contains("state_dir = "), "{refused}");
    }

    #[test]
    fn a_broken_memory_is_an_error_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disks.json");
        fs::write(&path, "{").unwrap();
        let error = Memory::open(StateDir::of(dir.path()), BTreeMap::new(), keys()).unwrap_err();
        assert!(error.to_string().contains("disks.json"), "{error}");
    }
}
