//! What a node remembers of the changes made while it ran: disks that were added, contracts that were changed.
//!
//! # The rule
//! The configuration file says how the node begins. A disk that was added, and terms that were changed since, stand in
//! `state_dir/disks.json` and are done again when the node starts. What the file is to be is written beside it and synced before
//! a change is done ([`Memory::prepare`]), and takes its name before the change is acknowledged ([`Memory::commit`]). So where there
//! is no room, nothing is changed, and whoever asked is told.
//!
//! Who edits a disk's contract in the configuration file means that contract: changes made to the older text are forgotten.
//!
//! A node that has no folder to remember in ([`Place`]) refuses changes.

mod place;

use henge_api::{Request, Terms};
use henge_io::Prepared;
pub(crate) use place::Place;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;

/// The file's name.
const DISKS: &str = "disks.json";

/// What is kept of one disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The table it was added by; none for a disk of the configuration file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<String>,
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
}

/// Who asks for a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// Somebody at the control socket, or the process itself.
    Here,
    /// The manager, by this order.
    Manager(u64),
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
    place: Place,
    peers: Terms,
    iscsi: Terms,
    pub disks: BTreeMap<String, Kept>,
    /// Terms of the configuration file's disks.
    file: BTreeMap<String, Terms>,
}

impl Memory {
    /// Reads what is remembered. `file` has the terms of the configuration's disks.
    pub(crate) fn open(place: Place, file: BTreeMap<String, Terms>) -> io::Result<Memory> {
        let File { peers, iscsi, mut disks } = match place.file(DISKS) {
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
        for (name, kept) in
            disks.iter_mut().filter(|(_, kept)| kept.capacity.is_some() && kept.added.is_none())
        {
            if let Some(now) = file.get(name).filter(|now| kept.file.as_ref() != Some(*now)) {
                *kept = Kept { file: Some(now.clone()), capacity: kept.capacity, ..Kept::default() };
            }
        }
        // The file is the later word on disks whose text was edited, and on disks that it has and had not.
        disks.retain(|name, kept| match (file.get(name), &kept.added, &kept.file) {
            (Some(now), None, Some(then)) => now == then,
            (Some(_), Some(_), _) => false,
            (None, None, _) => false,
            _ => true,
        });
        Ok(Memory { place, peers, iscsi, disks, file })
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
        for (name, kept) in &self.disks {
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

    /// Writes down, beside what is remembered, what is to be once a request is done; `added` is the name of the disk that it makes.
    pub(crate) fn prepare(
        &self,
        request: &Request,
        added: Option<&str>,
        origin: Origin,
    ) -> io::Result<Change> {
        let (peers, iscsi) = (self.peers.clone(), self.iscsi.clone());
        let mut after = File { peers, iscsi, disks: self.disks.clone() };
        if self.change(&mut after, request, added, origin)? {
            let file = self.write(&after)?;
            Ok(Change { after, file })
        } else {
            Ok(Change { after, file: None })
        }
    }

    /// The request was done: what was prepared is what is remembered. Where that fails it is not known what a restart finds.
    pub(crate) fn commit(&mut self, change: Change) -> io::Result<()> {
        let Change { after: File { peers, iscsi, disks }, file } = change;
        (self.peers, self.iscsi, self.disks) = (peers, iscsi, disks);
        file.map_or(Ok(()), Prepared::commit)
    }

    /// A disk that was remembered before it was there was refused: it is as if nobody had asked. After an error a restart may find it.
    pub(crate) fn forget(&mut self, name: &str) -> io::Result<()> {
        self.disks.remove(name);
        let after = File { peers: self.peers.clone(), iscsi: self.iscsi.clone(), disks: self.disks.clone() };
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
        };
        let File { peers, iscsi: portals, disks } = after;
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
                    Some(table) => *table = with_capacity(table, bytes)?,
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
                *table = with_doors(table, doors)?;
                mark(kept);
            }
            (Request::Remove { name }, _) => {
                disks.remove(name);
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
        let (peers, iscsi) = (self.peers.clone(), self.iscsi.clone());
        let mut after = File { peers, iscsi, disks: self.disks.clone() };
        let kept = self.entry(&mut after.disks, name);
        (kept.revision, kept.changed) = (Some(revision), false);
        let file = self.write(&after)?;
        self.commit(Change { after, file })
    }

    fn write(&self, whole: &File) -> io::Result<Option<Prepared>> {
        self.place.check()?;
        let Some(path) = self.place.file(DISKS) else { return Ok(None) };
        let mut text = serde_json::to_vec_pretty(whole).map_err(io::Error::other)?;
        text.push(b'\n');
        henge_io::prepare(&path, &text).map(Some)
    }
}

/// A disk's table, a key per line, with another capacity.
fn with_capacity(table: &str, bytes: u64) -> io::Result<String> {
    let is_capacity = |line: &str| line.split('=').next().is_some_and(|key| key.trim() == "capacity");
    let new = format!("capacity = \"{bytes}B\"");
    let lines = table.lines().map(|line| if is_capacity(line) { new.as_str() } else { line });
    let text = lines.collect::<Vec<_>>().join("\n") + "\n";
    let read = henge_config::Source::new("the disk", text.clone()).parse("the disk").ok();
    match read.and_then(|mut p| p.size("capacity").ok().flatten()) {
        Some(found) if found == bytes => Ok(text),
        _ => Err(io::Error::other("its table does not state a capacity on a line of its own")),
    }
}

/// A disk's table, a key per line, with other doors.
fn with_doors(table: &str, doors: &str) -> io::Result<String> {
    let kinds = crate::fronts::kinds();
    let is_door = |line: &&str| {
        let key = line.split('=').next().map_or("", str::trim);
        kinds.iter().any(|kind| kind.key == key)
    };
    let lines = table.lines().filter(|line| !is_door(line)).chain(doors.lines());
    let text = lines.collect::<Vec<_>>().join("\n") + "\n";
    match henge_config::Source::new("the disk", text.clone()).parse("the disk") {
        Ok(_) => Ok(text),
        Err(_) => Err(io::Error::other("its table does not say who may use it on lines of their own")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let place = || Place::of(dir.path());
        let file: BTreeMap<_, _> = [("web".to_owned(), terms(&[("weight", "4")]))].into();
        let mut memory = Memory::open(place(), file.clone()).unwrap();
        let add = Request::Add { disk: "name = \"db\"\n".into() };
        note(&mut memory, &add, Some("db"), Origin::Manager(7)).unwrap();
        note(&mut memory, &set("web", &[("limit", "9/s")]), None, Origin::Here).unwrap();
        note(&mut memory, &set("web", &[("weight", "")]), None, Origin::Here).unwrap();

        let again = Memory::open(place(), file).unwrap();
        let web = set("web", &[("limit", "9/s"), ("weight", "")]);
        assert_eq!(again.replay(), vec![("db".to_owned(), add.clone()), ("web".to_owned(), web)]);
        assert_eq!((again.disks["db"].revision, again.disks["db"].changed), (Some(7), false));
        assert!(again.is_managed("db") && !again.is_managed("web") && !again.is_managed("none"));

        let edited = [("web".to_owned(), terms(&[("weight", "5")]))].into();
        let mut again = Memory::open(place(), edited).unwrap();
        assert_eq!(again.replay(), vec![("db".to_owned(), add)]);
        note(&mut again, &Request::Remove { name: "db".into() }, None, Origin::Here).unwrap();
        assert_eq!(Memory::open(place(), BTreeMap::new()).unwrap().replay(), vec![]);
    }

    #[test]
    fn a_disk_that_has_grown_is_as_large_when_the_node_begins_again() {
        let dir = tempfile::tempdir().unwrap();
        let place = || Place::of(dir.path());
        let file: BTreeMap<_, _> = [("web".to_owned(), terms(&[("weight", "4")]))].into();
        let mut memory = Memory::open(place(), file.clone()).unwrap();
        let grow =
            |name: &str, capacity: &str| Request::Grow { name: name.into(), capacity: capacity.into() };
        note(&mut memory, &grow("web", "12GB"), None, Origin::Here).unwrap();
        let add = Request::Add { disk: "name = \"db\"\ncapacity = \"1GB\"\npool = \"p\"\n".into() };
        note(&mut memory, &add, Some("db"), Origin::Manager(7)).unwrap();
        note(&mut memory, &grow("db", "2GB"), None, Origin::Manager(9)).unwrap();
        // Whoever edits the contract in the file does not shrink the disk.
        let edited: BTreeMap<_, _> = [("web".to_owned(), terms(&[("weight", "5")]))].into();
        for file in [file, edited.clone(), edited] {
            let memory = Memory::open(place(), file).unwrap();
            assert_eq!(memory.disks["web"].capacity, Some(12_000_000_000));
            assert_eq!(memory.disks["db"].revision, Some(9));
            let larger = "name = \"db\"\ncapacity = \"2000000000B\"\npool = \"p\"\n";
            assert_eq!(memory.replay(), [("db".to_owned(), Request::Add { disk: larger.into() })]);
        }
    }

    #[test]
    fn who_may_use_a_disk_is_remembered_as_it_was_said_last() {
        let dir = tempfile::tempdir().unwrap();
        let place = || Place::of(dir.path());
        let file: BTreeMap<_, _> = [("web".to_owned(), Terms::new())].into();
        let mut memory = Memory::open(place(), file.clone()).unwrap();
        let add = "name = \"db\"\nnbd = \"nobody\"\niscsi = { user = \"db\", secret = \"one one one!\" }\ncapacity = \"1GB\"\n";
        note(&mut memory, &Request::Add { disk: add.into() }, Some("db"), Origin::Manager(7)).unwrap();
        let doors = "nbd = \"anyone\"\niscsi = { user = \"db\", secret = \"two two two!\" }";
        let change = |name: &str| Request::Access { name: name.into(), doors: doors.into() };
        note(&mut memory, &change("db"), None, Origin::Manager(9)).unwrap();
        let again = Memory::open(place(), file).unwrap();
        let now = format!("name = \"db\"\ncapacity = \"1GB\"\n{doors}\n");
        assert_eq!(again.replay(), [("db".to_owned(), Request::Add { disk: now })]);
        assert_eq!((again.disks["db"].revision, again.disks["db"].changed), (Some(9), false));
        assert!(!fs::read_to_string(dir.path().join("disks.json")).unwrap().contains("one one one!"));
        let refused = again.prepare(&change("web"), None, Origin::Here).err().unwrap();
        assert!(refused.to_string().contains("the node's file"), "{refused}");
    }

    #[test]
    fn what_was_prepared_and_not_done_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let mut memory = Memory::open(Place::of(dir.path()), BTreeMap::new()).unwrap();
        let add = |name: &str| Request::Add { disk: format!("name = \"{name}\"\n") };
        note(&mut memory, &add("db"), Some("db"), Origin::Here).unwrap();
        drop(memory.prepare(&add("web"), Some("web"), Origin::Here).unwrap());
        drop(memory.prepare(&Request::Remove { name: "db".into() }, None, Origin::Here).unwrap());
        let again = Memory::open(Place::of(dir.path()), BTreeMap::new()).unwrap();
        assert_eq!(again.replay(), [("db".to_owned(), add("db"))]);
        assert_eq!(memory.replay(), again.replay());
        let names = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["disks.json"]);
    }

    #[test]
    fn who_has_no_place_to_remember_changes_nothing() {
        let memory = Memory::open(Place::none("/var/lib/henge: no"), BTreeMap::new()).unwrap();
        let refused = memory.prepare(&set("web", &[("limit", "9/s")]), None, Origin::Here).err().unwrap();
        assert!(refused.to_string().contains("/var/lib/henge: no"), "{refused}");
        assert!(refused.to_string().contains("state_dir = "), "{refused}");
    }

    #[test]
    fn a_broken_memory_is_an_error_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disks.json");
        fs::write(&path, "{").unwrap();
        let error = Memory::open(Place::of(dir.path()), BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains("disks.json"), "{error}");
    }
}
