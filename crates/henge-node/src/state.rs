//! What a node remembers of the changes made while it ran: disks that were added, contracts that were changed.
//!
//! # The rule
//! The configuration file says how the node begins. A disk that was added, and terms that were changed since, stand in
//! `state_dir/disks.json` and are done again when the node starts. A change is acknowledged only once it is in that file,
//! which is written beside the old one, synced, and renamed over it.
//!
//! Who edits a disk's contract in the configuration file means that contract: changes made to the older text are forgotten.
//!
//! A node whose configuration does not state a `state_dir` remembers nothing.

use crate::control::{Reply, Request};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

/// Terms of a contract as they are written.
pub type Terms = BTreeMap<String, String>;

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

/// The node's memory: in a file, or nowhere.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    path: Option<PathBuf>,
    peers: Terms,
    iscsi: Terms,
    pub disks: BTreeMap<String, Kept>,
    /// Terms of the configuration file's disks.
    file: BTreeMap<String, Terms>,
}

impl Memory {
    /// Reads what is remembered. `file` has the terms of the configuration's disks.
    pub(crate) fn open(path: Option<PathBuf>, file: BTreeMap<String, Terms>) -> io::Result<Memory> {
        let File { peers, iscsi, mut disks } = match &path {
            None => File::default(),
            Some(path) => match fs::read(path) {
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
        Ok(Memory { path, peers, iscsi, disks, file })
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

    /// Notes a request that was done; `added` is the name of the disk that it made.
    pub(crate) fn note(&mut self, request: &Request, added: Option<&str>, origin: Origin) -> io::Result<()> {
        let mark = |kept: &mut Kept| match origin {
            Origin::Manager(revision) => (kept.revision, kept.changed) = (Some(revision), false),
            Origin::Here => kept.changed = true,
        };
        match (request, added) {
            (Request::Add { disk }, Some(name)) => {
                let mut kept = Kept { added: Some(disk.clone()), ..Kept::default() };
                mark(&mut kept);
                self.disks.insert(name.to_owned(), kept);
            }
            (Request::Set { name, contract }, _) => {
                let file = self.file.get(name).cloned();
                let kept = self.disks.entry(name.clone()).or_insert_with(|| Kept { file, ..Kept::default() });
                kept.terms.extend(contract.clone());
                mark(kept);
            }
            (Request::Grow { name, capacity }, _) => {
                let bytes = henge_core::parse_size(capacity)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e.0))?;
                let file = self.file.get(name).cloned();
                let kept = self.disks.entry(name.clone()).or_insert_with(|| Kept { file, ..Kept::default() });
                match &mut kept.added {
                    Some(table) => *table = with_capacity(table, bytes)?,
                    None => kept.capacity = Some(bytes),
                }
                mark(kept);
            }
            (Request::Remove { name }, _) => {
                self.disks.remove(name);
            }
            (Request::Peer { name, address, iscsi, .. }, _) => {
                let before = self.peers.insert(name.clone(), address.clone());
                let moved = iscsi
                    .as_ref()
                    .is_some_and(|at| self.iscsi.insert(name.clone(), at.clone()).as_ref() != Some(at));
                if before.as_ref() == Some(address) && !moved {
                    return Ok(());
                }
            }
            (Request::Unpeer { name }, _) => {
                self.peers.remove(name);
                self.iscsi.remove(name);
            }
            _ => return Ok(()),
        }
        self.save()
    }

    /// Notes that a disk is as an order wants it, without anything having been changed.
    pub(crate) fn settled(&mut self, name: &str, revision: u64) -> io::Result<()> {
        let file = self.file.get(name).cloned();
        let kept = self.disks.entry(name.to_owned()).or_insert_with(|| Kept { file, ..Kept::default() });
        (kept.revision, kept.changed) = (Some(revision), false);
        self.save()
    }

    fn save(&self) -> io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let parent = path.parent().unwrap_or(path);
        fs::create_dir_all(parent).map_err(named)?;
        let fresh = path.with_extension("json.new");
        let mut file = fs::File::create(&fresh).map_err(named)?;
        let (peers, iscsi) = (self.peers.clone(), self.iscsi.clone());
        let whole = File { peers, iscsi, disks: self.disks.clone() };
        serde_json::to_writer_pretty(&mut file, &whole).map_err(io::Error::other)?;
        file.write_all(b"\n").map_err(named)?;
        file.sync_all().map_err(named)?;
        fs::rename(&fresh, path).map_err(named)?;
        fs::File::open(parent).and_then(|dir| dir.sync_all()).map_err(named)
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

/// A request was done, and could not be remembered.
pub(crate) fn unremembered(e: &io::Error) -> Reply {
    Reply::failed(format_args!("it is done, but will be forgotten when the node restarts: {e}"))
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

    #[test]
    fn changes_outlive_the_node_until_the_file_is_edited() {
        let dir = tempfile::tempdir().unwrap();
        let path = Some(dir.path().join("disks.json"));
        let file: BTreeMap<_, _> = [("web".to_owned(), terms(&[("weight", "4")]))].into();
        let mut memory = Memory::open(path.clone(), file.clone()).unwrap();
        let add = Request::Add { disk: "name = \"db\"\n".into() };
        memory.note(&add, Some("db"), Origin::Manager(7)).unwrap();
        memory.note(&set("web", &[("limit", "9/s")]), None, Origin::Here).unwrap();
        memory.note(&set("web", &[("weight", "")]), None, Origin::Here).unwrap();

        let again = Memory::open(path.clone(), file).unwrap();
        let web = set("web", &[("limit", "9/s"), ("weight", "")]);
        assert_eq!(again.replay(), vec![("db".to_owned(), add.clone()), ("web".to_owned(), web)]);
        assert_eq!((again.disks["db"].revision, again.disks["db"].changed), (Some(7), false));

        let edited = [("web".to_owned(), terms(&[("weight", "5")]))].into();
        let mut again = Memory::open(path.clone(), edited).unwrap();
        assert_eq!(again.replay(), vec![("db".to_owned(), add)]);
        again.note(&Request::Remove { name: "db".into() }, None, Origin::Here).unwrap();
        assert_eq!(Memory::open(path, BTreeMap::new()).unwrap().replay(), vec![]);
    }

    #[test]
    fn a_disk_that_has_grown_is_as_large_when_the_node_begins_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = Some(dir.path().join("disks.json"));
        let file: BTreeMap<_, _> = [("web".to_owned(), terms(&[("weight", "4")]))].into();
        let mut memory = Memory::open(path.clone(), file.clone()).unwrap();
        let grow =
            |name: &str, capacity: &str| Request::Grow { name: name.into(), capacity: capacity.into() };
        memory.note(&grow("web", "12GB"), None, Origin::Here).unwrap();
        let add = Request::Add { disk: "name = \"db\"\ncapacity = \"1GB\"\npool = \"p\"\n".into() };
        memory.note(&add, Some("db"), Origin::Manager(7)).unwrap();
        memory.note(&grow("db", "2GB"), None, Origin::Manager(9)).unwrap();
        // Whoever edits the contract in the file does not shrink the disk.
        let edited: BTreeMap<_, _> = [("web".to_owned(), terms(&[("weight", "5")]))].into();
        for file in [file, edited.clone(), edited] {
            let memory = Memory::open(path.clone(), file).unwrap();
            assert_eq!(memory.disks["web"].capacity, Some(12_000_000_000));
            assert_eq!(memory.disks["db"].revision, Some(9));
            let larger = "name = \"db\"\ncapacity = \"2000000000B\"\npool = \"p\"\n";
            assert_eq!(memory.replay(), [("db".to_owned(), Request::Add { disk: larger.into() })]);
        }
    }

    #[test]
    fn a_broken_memory_is_an_error_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disks.json");
        fs::write(&path, "{").unwrap();
        let error = Memory::open(Some(path), BTreeMap::new()).unwrap_err();
        assert!(error.to_string().contains("disks.json"), "{error}");
    }
}
