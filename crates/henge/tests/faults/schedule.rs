//! One seed: a node's lives, what is done in them, what goes wrong, and the judgement after each.

use crate::medium::{Medium, SECTOR};
use crate::model::{Disk, Since};
use crate::mount::{Mounted, Storage};
use crate::node::{Answer, Folders, NoNode, Node, clock, format};
use crate::plan::{Kind, Part, Plan, What};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const MIB: u64 = 1 << 20;

/// Counts of a campaign.
#[derive(Default)]
pub struct Tally {
    pub lives: u64,
    pub kills: u64,
    pub cuts: u64,
    pub faults: u64,
    pub changes: u64,
    pub visits: u64,
    pub formats: u64,
    pub blocks: u64,
    /// How long a node took to serve, on storage that is well.
    pub starts: Vec<Duration>,
    /// How long one took that begins anew, in a folder of its own in which nothing ever goes wrong.
    pub bare: Vec<Duration>,
    /// What went wrong with which disk, and when.
    pub troubles: Vec<String>,
}

/// A disk that may be there.
pub struct Held {
    pub disk: Disk,
    /// Nobody was told whether it is.
    pub perhaps: bool,
    pub on: On,
}

/// Which pools a disk lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    Folder,
    Device,
    Both,
}

/// The node has gone.
pub struct Gone;

/// A schedule under way.
pub struct Schedule {
    pub dice: Pcg64Mcg,
    pub storage: Mounted,
    pub folders: Folders,
    pub disks: BTreeMap<String, Held>,
    pub tenants: u64,
    epoch: u64,
    /// Where a node listens for iSCSI and NVMe.
    pub ports: (u16, u16),
    /// Disks that the node says it cannot serve, while its storage fails.
    pub failed: BTreeSet<String>,
    /// Its storage is well again: everything is to be served.
    judging: bool,
    pub tally: Tally,
    /// In this life an administrator was told that storage failed, or the node did not end well. A sync may have failed, which ends FLUSH for
    /// as long as the node lives; after its end nobody vouches for what was written and not flushed before.
    pub shaken: bool,
    /// A change was refused, and its storage failed to remove a file.
    pub kept: bool,
    /// Whether each step is told, for whoever looks into a seed.
    tells: bool,
}

/// Loops of a seed's node: one, or one for each pool.
pub fn loops(seed: u64) -> usize {
    1 + (seed % 2) as usize
}

/// Runs a seed's schedule; `formats`: whether this version makes pools by `henge pool format`.
pub fn run(seed: u64, formats: bool) -> Tally {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let dir = tempfile::tempdir().expect("a directory");
    let (sockets, mounted) = (dir.path().join("s"), dir.path().join("m"));
    std::fs::create_dir(&sockets).and_then(|()| std::fs::create_dir(&mounted)).expect("directories");
    let medium = Medium::new(Pcg64Mcg::seed_from_u64(dice.random()));
    let storage = Mounted(Arc::new(Mutex::new(Storage::new(medium, dice.random_range(0..4) > 0))));
    let session =
        storage.mount(&mounted).expect("a FUSE file system; /dev/fuse, and fusermount3 for others than root");
    let engine = if dice.random() { "auto" } else { "threads" };
    let keys = format!("engine = \"{engine}\"\ndirect = {}\ncost = \"requests\"\n", dice.random::<bool>());
    let folders = Folders::alone(sockets, mounted, &keys, loops(seed));
    let mut schedule = Schedule {
        dice,
        storage,
        folders,
        disks: [("base".to_owned(), Held { disk: Disk::new(1, MIB), perhaps: true, on: On::Folder })].into(),
        tenants: 1,
        epoch: 0,
        ports: (0, 0),
        failed: BTreeSet::new(),
        judging: false,
        shaken: false,
        kept: false,
        tally: Tally::default(),
        tells: std::env::var_os("HENGE_TELL").is_some(),
    };
    if seed.is_multiple_of(4) {
        schedule.tally.bare.extend(bare(&keys));
    }
    schedule.prepare(formats);
    for _ in 0..schedule.dice.random_range(2..5) {
        let cut = schedule.life();
        if !schedule.judge(cut) {
            break;
        }
        if formats && schedule.dice.random_range(0..6) == 0 && !schedule.format_anew() {
            break;
        }
    }
    schedule.tally.blocks += schedule.disks.values().map(|held| held.disk.compared).sum::<u64>();
    drop(session);
    schedule.tally
}

/// How long a node takes here and now, where nothing goes wrong.
fn bare(keys: &str) -> Option<Duration> {
    let dir = tempfile::tempdir().ok()?;
    let (sockets, mounted) = (dir.path().join("s"), dir.path().join("m"));
    std::fs::create_dir(&sockets).and_then(|()| std::fs::create_dir(&mounted)).ok()?;
    std::fs::File::create(mounted.join("device")).and_then(|file| file.set_len(16 * MIB)).ok()?;
    let folders = Folders::alone(sockets, mounted, keys, 1);
    format(&folders, "device").ok()?;
    let (node, time) = Node::start(&folders, 0, |_| ());
    node.ok()?.kill();
    Some(time)
}

impl Schedule {
    pub fn trouble(&mut self, what: impl Into<String>) {
        let hits = self.storage.lock().hits.join("; ");
        self.tally.troubles.push(format!("{}\n      [{hits}]", what.into()));
    }

    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            println!("  {}", what());
        }
    }

    /// The device, and the pool on it; making that may fail, and is done again.
    fn prepare(&mut self, formats: bool) {
        let device = self.folders.mounted.join("device");
        let made = std::fs::File::create(&device).and_then(|file| {
            file.set_len(16 * MIB)?;
            file.sync_all()?;
            std::fs::File::open(&self.folders.mounted)?.sync_all()
        });
        made.expect("the storage is well");
        if formats {
            if self.dice.random_range(0..3) == 0 {
                self.arm(Part::Device);
                // Whatever it says: it is done again.
                let _ = format(&self.folders, "device");
                self.settle(false);
            }
            self.storage.lock().hits.clear();
            if let Err(why) = format(&self.folders, "device") {
                self.trouble(format!("a device was not made a pool: {why}"));
            }
        }
    }

    /// Between two lives somebody makes the device a pool anew; that may fail, and is done again. Disks that lay on it are lost: they are not
    /// served, and are given up. One that the node did not know to have its part is empty, and another's: what the former one had must never
    /// show. Whether the schedule goes on.
    fn format_anew(&mut self) -> bool {
        if self.dice.random() {
            self.arm(Part::Device);
        }
        // Whatever it says: it is done again.
        let _ = format(&self.folders, "device");
        let cut = self.dice.random_range(0..2) == 0;
        let cut = self.settle(cut);
        self.storage.lock().hits.clear();
        if let Err(why) = format(&self.folders, "device") {
            self.trouble(format!("a device was not formatted anew: {why}"));
            return false;
        }
        self.tally.formats += 1;
        self.tally.cuts += u64::from(cut);
        self.tell(|| format!("-- the device was formatted anew; power lost: {cut}"));
        if !self.give_up_what_is_lost() {
            return false;
        }
        for held in self.disks.values_mut() {
            match held.on {
                On::Folder => {}
                On::Both => held.disk.perhaps_emptied(),
                On::Device => {
                    self.tenants += 1;
                    self.tally.blocks += held.disk.compared;
                    let old = std::mem::replace(&mut held.disk, Disk::new(self.tenants, MIB));
                    (held.disk.capacity, held.disk.limit) = (old.capacity, old.limit);
                }
            }
        }
        // What was seen after the last restart, and not flushed, may have gone with the power.
        !cut || self.judge(true)
    }

    /// Removes the disks that the node does not serve, since the device has no part of theirs any more.
    fn give_up_what_is_lost(&mut self) -> bool {
        let mut node = match self.start().0 {
            Ok(node) => node,
            Err(why) => {
                self.trouble(format!("after a format: the node does not serve: {why:?}"));
                return false;
            }
        };
        let Answer::Done(answer) = node.status() else { return false };
        for failed in answer["status"]["failed"].as_array().into_iter().flatten() {
            let (name, why) =
                (failed["name"].as_str().unwrap_or_default(), failed["why"].as_str().unwrap_or_default());
            if why.contains("its removal had begun") {
                continue; // it goes by itself
            }
            let is_lost = self.disks.get(name).is_some_and(|held| held.on != On::Folder);
            if !is_lost || !why.contains("and is not there") {
                self.trouble(format!("after a format {name} is not served: {why}"));
            }
            let removed = node.ask(&json!({ "op": "remove", "name": name }));
            if !matches!(removed, Answer::Done(_)) {
                self.trouble(format!("after a format {name} is not given up: {removed:?}"));
            }
            // What lies in the folder is kept.
            let held = self.disks.remove(name);
            self.kept |= held.as_ref().is_some_and(|held| held.on == On::Both);
            self.tally.blocks += held.map_or(0, |held| held.disk.compared);
        }
        node.kill();
        self.settle(false);
        true
    }

    /// Has something go wrong soon.
    fn arm(&mut self, part: Part) {
        let dice = &mut self.dice;
        let few = 1u32 << dice.random_range(0..5);
        let at = 1 + dice.random_range(0..few);
        let (kind, what) = match dice.random_range(0..13) {
            0 => (None, What::Kill),
            1 => (None, What::KillAfter),
            2..=4 => (None, What::Cut),
            5 => (Some(Kind::Write), What::Fail(libc::EIO, dice.random_range(1..4))),
            6 => (Some(Kind::Read), What::Fail(libc::EIO, 1)),
            7 => (None, What::Fail(libc::ENOSPC, if dice.random() { 2 } else { u32::MAX })),
            8 | 9 => (Some(Kind::Sync), What::Fail(libc::EIO, 1)),
            10 => (Some(Kind::Shape), What::Fail(libc::EIO, 1)),
            11 => (Some(Kind::Open), What::Fail(libc::EIO, 1)),
            _ => (None, What::Stall(Duration::from_millis(dice.random_range(5..100)))),
        };
        self.storage.lock().plans.push(Plan { part, kind, at, what });
    }

    fn some_part(&mut self) -> Part {
        [Part::State, Part::Folder, Part::Device, Part::Any][self.dice.random_range(0..4)]
    }

    /// The process has ended. Whether the power went, too.
    fn settle(&mut self, cut: bool) -> bool {
        let mut storage = self.storage.lock();
        let cut = cut || storage.is_cut;
        storage.heal(cut);
        cut
    }

    fn start(&mut self) -> (Result<Node, NoNode>, Duration) {
        self.tally.lives += 1;
        let days = if self.dice.random_range(0..3) == 0 { self.dice.random_range(-4000..4000) } else { 0 };
        let storage = self.storage.clone();
        let begun = move |id| storage.lock().process = Some(id);
        Node::start(&self.folders, if clock().is_some() { days } else { 0 }, begun)
    }

    /// A life in which something goes wrong. Whether the power went at its end.
    fn life(&mut self) -> bool {
        match self.dice.random_range(0..8) {
            0 | 1 => {
                let part = self.some_part();
                self.arm(part);
            }
            // A start opens each file, and removes none: what it cannot open is to be there afterwards.
            2 => {
                let part = [Part::Folder, Part::Any][self.dice.random_range(0..2)];
                let (at, errno) =
                    (self.dice.random_range(1..10), [libc::EIO, libc::EMFILE][self.dice.random_range(0..2)]);
                let what = What::Fail(errno, 1);
                self.storage.lock().plans.push(Plan { part, kind: Some(Kind::Open), at, what });
            }
            _ => {}
        }
        let (node, _) = self.start();
        match node {
            Ok(mut node) => {
                self.ports = node.ports;
                self.live(&mut node);
            }
            Err(NoNode::Killed) => {}
            Err(NoNode::Silent) => self.trouble("neither does the node serve nor does it end"),
            Err(NoNode::Said(why)) => self.said(&why),
        }
        let faults = self.storage.lock().hits.len() as u64;
        self.tally.faults += faults;
        self.tally.kills += 1;
        let cut = self.dice.random_range(0..2) == 0;
        let cut = self.settle(cut);
        self.tell(|| format!("-- the end; power lost: {cut}"));
        if std::mem::take(&mut self.shaken) {
            self.disks.values_mut().for_each(|held| held.disk.flush_failed());
        }
        self.tally.cuts += u64::from(cut);
        cut
    }

    /// A node that does not begin says why, in one line.
    fn said(&mut self, why: &str) {
        let lines: Vec<&str> =
            why.lines().filter(|line| !line.contains(" WARN ") && !line.contains(" INFO ")).collect();
        if self.storage.lock().hits.is_empty() {
            self.trouble(format!(
                "the node does not serve, and nothing had gone wrong with its storage: {why}"
            ));
        } else if lines.is_empty() || lines.len() > 6 {
            self.trouble(format!("the node does not serve and does not say why in a line: {why}"));
        }
    }

    fn live(&mut self, node: &mut Node) {
        self.look(node);
        let steps = self.dice.random_range(3..14);
        for _ in 0..steps {
            if self.dice.random_range(0..5) == 0 {
                let part = self.some_part();
                self.arm(part);
            }
            if self.step(node).is_err() || node.has_ended() {
                break;
            }
        }
        match self.dice.random_range(0..4) {
            // It says so where what was not flushed may be lost.
            0 if !node.has_ended() => self.shaken |= !node.stop(),
            _ => node.kill(),
        }
    }

    /// Compares the node's disks with what it acknowledged. What nobody knew is known then, as long as this node lives.
    pub fn look(&mut self, node: &Node) {
        let Answer::Done(answer) = node.status() else { return };
        let mut there = BTreeMap::new();
        for disk in answer["status"]["disks"].as_array().into_iter().flatten() {
            let name = disk["name"].as_str().unwrap_or_default().to_owned();
            let limit = disk["contract"]["limit"].as_str().unwrap_or_default().to_owned();
            there.insert(name, (disk["capacity"].as_u64().unwrap_or_default(), limit));
        }
        // Not while its storage is well: then every disk is served.
        let troubled = !self.judging && !self.storage.lock().hits.is_empty();
        let failed = answer["status"]["failed"].as_array().into_iter().flatten();
        let failed = failed.filter_map(|disk| disk["name"].as_str().map(str::to_owned));
        self.failed = failed.filter(|_| troubled).collect();
        let mut wrong = Vec::new();
        for (name, held) in &mut self.disks {
            match there.remove(name) {
                None if held.perhaps || self.failed.contains(name) => {}
                None => wrong.push(format!("disk {name} is not there")),
                Some((capacity, limit)) => {
                    if !held.disk.capacity.contains(&capacity) {
                        wrong.push(format!("disk {name} has {capacity} bytes, not {:?}", held.disk.capacity));
                    }
                    if !held.disk.limit.contains(&limit) {
                        wrong.push(format!(
                            "disk {name} has the limit \"{limit}\", not {:?}",
                            held.disk.limit
                        ));
                    }
                }
            }
        }
        wrong.extend(there.into_keys().map(|name| format!("disk {name} is there, and should not be")));
        wrong.into_iter().for_each(|wrong| self.trouble(wrong));
    }

    /// On storage that is well again: the node serves, and has all that was promised. Whether it does.
    fn judge(&mut self, cut: bool) -> bool {
        let hits = std::mem::take(&mut self.storage.lock().hits);
        let (node, time) = self.start();
        let mut node = match node {
            Ok(node) => node,
            Err(why) => {
                self.storage.lock().hits = hits;
                self.trouble(format!(
                    "after {}: the node does not serve: {why:?}",
                    if cut { "a cut" } else { "a kill" }
                ));
                return false;
            }
        };
        // One that waits for a killed node's requests says so, and until when.
        if !node.log().contains(" is in use; waiting up to ") {
            self.tally.starts.push(time);
        }
        self.storage.lock().hits.clone_from(&hits);
        self.judging = true;
        self.look(&node);
        self.judging = false;
        self.storage.lock().hits.clear();
        let before = self.tally.troubles.len();
        self.resolve(&node);
        self.check_epoch();
        let since = if cut { Since::Cut } else { Since::Kill };
        for name in self.disks.keys().cloned().collect::<Vec<_>>() {
            let blocks = self.disks[&name].disk.capacity[0] / SECTOR;
            if self.compare(&name, 0, blocks, since).is_err() {
                self.trouble(format!("disk {name} cannot be read: {}", node.log()));
            }
        }
        if self.tally.troubles.len() > before {
            self.tally.troubles.push(format!("  in the life before: [{}]", hits.join("; ")));
        }
        node.kill();
        // What was seen after a restart may still be forgotten by the medium: a look behind the node's back.
        let again = !cut && self.dice.random_range(0..3) == 0;
        self.settle(again);
        self.tally.cuts += u64::from(again);
        self.tally.troubles.is_empty() && (!again || self.judge(true))
    }

    /// After a restart nothing is uncertain: what is there was decided.
    fn resolve(&mut self, node: &Node) {
        let Answer::Done(answer) = node.status() else { return };
        let disks = answer["status"]["disks"].as_array().cloned().unwrap_or_default();
        self.disks.retain(|name, held| {
            let Some(found) = disks.iter().find(|disk| disk["name"] == name.as_str()) else {
                return !held.perhaps;
            };
            held.perhaps = false;
            held.disk.capacity = vec![found["capacity"].as_u64().unwrap_or_default()];
            held.disk.limit = vec![found["contract"]["limit"].as_str().unwrap_or_default().to_owned()];
            true
        });
    }

    /// Peers hear a node whose epoch has grown.
    fn check_epoch(&mut self) {
        let file = self.folders.mounted.join("state/epoch");
        let said = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        match said {
            Some(epoch) if epoch > self.epoch => self.epoch = epoch,
            _ => self.trouble(format!("the epoch is {said:?} after {}", self.epoch)),
        }
    }
}
