//! Two nodes, a disk over both, and what lies between them: either is killed, loses power, ends in order or has failing storage;
//! the link is held up, cut, or cut at one end first; clocks step apart.
//!
//! What is judged beside one node's rules ([`crate::schedule`]): every node shows what was acknowledged at any; a node that
//! begins again is linked again, whatever the clocks say; and no FLUSH vouches for a write that the other node's loss of
//! power has taken. The client of a node that lives on sees no connection end, so an error must tell it, once.

use crate::medium::{Medium, SECTOR};
use crate::middle::{Middle, Mode};
use crate::model::{Disk, Since};
use crate::mount::{Mounted, Storage};
use crate::nbd::{End, FLUSH, FUA, Nbd, WRITE, WRITE_ZEROES};
use crate::node::{Answer, Folders, NoNode, Node, clock, format};
use crate::plan::{Kind, Part, Plan, What};
use crate::schedule::{MIB, Tally, loops};
use fuser::BackgroundSession;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const STRIPE: u64 = 64 << 10;
/// The disks, and at which node each of their places is.
const DISKS: [(&str, &str, &[usize]); 2] = [
    ("web", "\"n1/folder\", \"n2/folder\"", &[0, 1]),
    ("wide", "\"n2/device\", \"n1/folder\", \"n1/device\"", &[1, 0, 0]),
];
/// What every wait ends with.
const PATIENCE: Duration = Duration::from_secs(20);

/// A node and its storage.
struct Side {
    folders: Folders,
    storage: Mounted,
    /// The file system, as long as it is used.
    _session: BackgroundSession,
    node: Option<Node>,
    epoch: u64,
    _dir: tempfile::TempDir,
}

struct Pair {
    dice: Pcg64Mcg,
    sides: [Side; 2],
    middle: Middle,
    disks: BTreeMap<&'static str, Disk>,
    /// Clients that stay, by node and disk.
    clients: BTreeMap<(usize, &'static str), Nbd>,
    /// Of those: who may hear, by one FLUSH that fails, that the other node has begun again …
    may_hear: BTreeSet<(usize, &'static str)>,
    /// … and who must, before a FLUSH is answered well: something was lost.
    owed: BTreeSet<(usize, &'static str)>,
    /// Something was done that commands may fail by.
    excused: bool,
    tally: Tally,
    tells: bool,
}

/// Runs a seed's schedule.
pub fn run(seed: u64) -> Tally {
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    // Addresses of this machine that no other schedule has.
    let net = (std::process::id() % 100 + 100, seed / 250 % 250, seed % 250 + 1);
    let address = |n: usize| format!("127.{}.{}.{}:{}", net.0, net.1, net.2, 10_811 + n);
    let middle = Middle::new(address(1).parse().expect("an address")).expect("a listener");
    // The node whose name sorts first dials.
    let peers = [middle.address.to_string(), address(0)];
    let sides = [0, 1].map(|n| side(n, (&address(n), &peers[n]), loops(seed / 2 + n as u64), &mut dice));
    let mut pair = Pair {
        dice,
        sides,
        middle,
        disks: DISKS.iter().map(|(name, ..)| (*name, Disk::new(1, MIB))).collect(),
        clients: BTreeMap::new(),
        may_hear: BTreeSet::new(),
        owed: BTreeSet::new(),
        excused: false,
        tally: Tally::default(),
        tells: std::env::var_os("HENGE_TELL").is_some(),
    };
    if pair.start(0) && pair.start(1) && pair.calm() {
        for _ in 0..pair.dice.random_range(2..6) {
            pair.round();
            if !pair.tally.troubles.is_empty() || !pair.calm() {
                break;
            }
        }
    }
    for side in &mut pair.sides {
        if let Some(mut node) = side.node.take() {
            node.kill();
        }
    }
    pair.tally.blocks = pair.disks.values().map(|disk| disk.compared).sum();
    pair.tally
}

fn side(n: usize, (listen, peer): (&str, &str), loops: usize, dice: &mut Pcg64Mcg) -> Side {
    let dir = tempfile::tempdir().expect("a directory");
    let (sockets, mounted) = (dir.path().join("s"), dir.path().join("m"));
    std::fs::create_dir(&sockets).and_then(|()| std::fs::create_dir(&mounted)).expect("directories");
    let medium = Medium::new(Pcg64Mcg::seed_from_u64(dice.random()));
    let storage = Mounted(Arc::new(Mutex::new(Storage::new(medium, dice.random_range(0..4) > 0))));
    let session = storage.mount(&mounted).expect("a FUSE file system");
    let engine = if dice.random() { "auto" } else { "threads" };
    let keys = format!("engine = \"{engine}\"\ndirect = {}\ncost = \"requests\"\n", dice.random::<bool>());
    let mut text = format!(
        "cores = {loops}\n[link]\nname = \"n{}\"\nlisten = \"{listen}\"\nsecret = \"sixteen bytes and more\"\n\
         [[peer]]\nname = \"n{}\"\naddress = \"{peer}\"\n",
        n + 1,
        2 - n
    );
    text += &Folders::pools(&mounted, &keys, loops);
    for (name, pools, _) in DISKS {
        text += &format!(
            "[[disk]]\nname = \"{name}\"\npools = [{pools}]\nstripe = \"{STRIPE}B\"\ncapacity = \"{MIB}B\"\n"
        );
    }
    let folders = Folders::new(sockets, mounted, &text);
    std::fs::File::create(folders.mounted.join("device"))
        .and_then(|file| file.set_len(16 * MIB).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::File::open(&folders.mounted)?.sync_all())
        .expect("the storage is well");
    format(&folders, "device").expect("the storage is well");
    Side { folders, storage, _session: session, node: None, epoch: 0, _dir: dir }
}

impl Pair {
    fn trouble(&mut self, what: impl Into<String>) {
        let hits: Vec<String> = self.sides.iter().map(|side| side.storage.lock().hits.join("; ")).collect();
        self.tally.troubles.push(format!("two nodes: {}\n      [{}]", what.into(), hits.join(" | ")));
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            println!("  {}", what());
        }
    }

    /// Starts a node on storage that is well. Whether it serves.
    fn start(&mut self, n: usize) -> bool {
        self.tally.lives += 1;
        let days = if self.dice.random_range(0..2) == 0 { self.dice.random_range(-4000..4000) } else { 0 };
        let side = &mut self.sides[n];
        let storage = side.storage.clone();
        let begun = move |id| storage.lock().process = Some(id);
        let days = if clock().is_some() { days } else { 0 };
        let (node, time) = Node::start(&side.folders, days, begun);
        self.tell(|| format!("n{} begins, its clock {days} days off: {time:.0?}", n + 1));
        match node {
            Ok(node) => {
                if !node.log().contains(" is in use; waiting up to ") {
                    self.tally.starts.push(time);
                }
                self.sides[n].node = Some(node);
            }
            Err(NoNode::Said(why)) => self.trouble(format!("n{} does not serve: {why}", n + 1)),
            Err(why) => self.trouble(format!("n{} does not serve: {why:?}", n + 1)),
        }
        let side = &mut self.sides[n];
        let said = std::fs::read_to_string(side.folders.mounted.join("state/epoch")).unwrap_or_default();
        match said.trim().parse() {
            Ok(epoch) if epoch > side.epoch => side.epoch = epoch,
            _ if side.node.is_none() => {}
            _ => {
                let before = side.epoch;
                self.trouble(format!("the epoch of n{} is {said:?} after {before}", n + 1));
            }
        }
        self.sides[n].node.is_some()
    }

    /// Some steps, with something that goes wrong among them.
    fn round(&mut self) {
        for _ in 0..self.dice.random_range(4..16) {
            match self.dice.random_range(0..100) {
                0..45 => self.write(),
                45..62 => self.flush(),
                62..74 => self.read(),
                74..78 => self.arm(),
                78..88 => self.disturb(),
                _ => self.end(),
            }
            if !self.tally.troubles.is_empty() {
                return;
            }
        }
    }

    /// Everything is well again, and every node shows what was acknowledged at any. Whether it does.
    fn calm(&mut self) -> bool {
        self.middle.set(Mode::Open);
        for n in 0..2 {
            let hit = !self.sides[n].storage.lock().hits.is_empty();
            self.sides[n].storage.lock().plans.clear();
            let ended = self.sides[n].node.as_mut().is_none_or(Node::has_ended);
            if (hit || ended) && !self.again(n) {
                return false;
            }
        }
        self.excused = false;
        for n in 0..2 {
            for (name, ..) in DISKS {
                if !self.look(n, name, None) {
                    return false;
                }
            }
        }
        true
    }

    /// Something happens to the link.
    fn disturb(&mut self) {
        self.excused = true;
        self.tally.faults += 1;
        let ms = self.dice.random_range(1..600);
        let kind = self.dice.random_range(0..5);
        self.tell(|| format!("the link: {kind}, {ms} ms"));
        match kind {
            0 => self.middle.cut(None),
            1 => self.middle.cut(Some(Duration::from_millis(ms))),
            2 => {
                // What is written meanwhile is on its way when the near end is cut.
                self.middle.set(Mode::Held);
                self.write_from(0);
                self.middle.cut(Some(Duration::from_millis(ms)));
                self.middle.set(Mode::Open);
            }
            3 => {
                self.middle.set(Mode::Down);
                self.middle.cut(None);
                std::thread::sleep(Duration::from_millis(ms));
                self.middle.set(Mode::Open);
            }
            _ => {
                self.middle.set(Mode::Held);
                let n = self.dice.random_range(0..2);
                self.write_from(n);
                std::thread::sleep(Duration::from_millis(ms));
                self.middle.set(Mode::Open);
                // What was on its way has come before anybody else writes there.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// A node's storage is to fail soon.
    fn arm(&mut self) {
        let n = self.dice.random_range(0..2);
        let part = [Part::State, Part::Folder, Part::Device, Part::Any][self.dice.random_range(0..4)];
        let (kind, what) = match self.dice.random_range(0..8) {
            0 => (None, What::Kill),
            1 => (None, What::KillAfter),
            2 | 3 => (None, What::Cut),
            4 => (Some(Kind::Write), What::Fail(libc::EIO, 1)),
            5 | 6 => (Some(Kind::Sync), What::Fail(libc::EIO, 1)),
            _ => (None, What::Stall(Duration::from_millis(self.dice.random_range(5..400)))),
        };
        let at = self.dice.random_range(1..8);
        self.tell(|| format!("n{}: {what:?} at the {at}th of {part:?}", n + 1));
        self.sides[n].storage.lock().plans.push(Plan { part, kind, at, what });
        self.excused = true;
    }

    /// A node ends, and begins again.
    fn end(&mut self) {
        let n = self.dice.random_range(0..2);
        self.excused = true;
        if self.dice.random_range(0..4) == 0
            && let Some(node) = &mut self.sides[n].node
            && !node.has_ended()
        {
            self.tally.kills += 1;
            self.tell(|| format!("n{} ends in order", n + 1));
            let _ = self.sides[n].node.as_mut().expect("it was just there").stop();
        }
        self.again(n);
    }

    /// A node is killed, if it lives; its power goes, perhaps; it begins again on storage that is well. What its disks lost is looked for
    /// through the other node. Whether all is as it should be.
    fn again(&mut self, n: usize) -> bool {
        self.tally.kills += 1;
        if let Some(mut node) = self.sides[n].node.take() {
            node.kill();
        }
        let cut = {
            let mut storage = self.sides[n].storage.lock();
            let cut = storage.is_cut || self.dice.random();
            storage.heal(cut);
            if !storage.hits.is_empty() {
                // A sync may have failed: nobody vouches for what was written and not flushed before.
                self.disks.values_mut().for_each(Disk::flush_failed);
            }
            storage.hits.clear();
            cut
        };
        self.tell(|| format!("n{} is gone; power lost: {cut}", n + 1));
        self.tally.cuts += u64::from(cut);
        self.forget_clients(n);
        if !self.start(n) {
            return false;
        }
        let since = if cut { Since::Cut } else { Since::Kill };
        let other = 1 - n;
        let alive = self.sides[other].node.as_mut().is_some_and(|node| !node.has_ended());
        let through = if alive { other } else { n };
        if !alive {
            // Both are down: the other's turn comes in `calm`; until then its places cannot be read.
            self.sides[other].storage.lock().plans.clear();
            if !self.again_after(other) {
                return false;
            }
        }
        DISKS.iter().all(|(name, ..)| self.look(through, name, Some((n, since))))
    }

    /// A node's clients know that it has ended; those of the other may hear it.
    fn forget_clients(&mut self, n: usize) {
        self.clients.retain(|(at, _), _| *at != n);
        self.owed.retain(|(at, _)| *at != n);
        self.may_hear = self.clients.keys().copied().collect();
    }

    /// The other node had ended by itself meanwhile: the power went there, for all that is known.
    fn again_after(&mut self, n: usize) -> bool {
        if let Some(mut node) = self.sides[n].node.take() {
            node.kill();
        }
        let cut = self.sides[n].storage.lock().is_cut;
        self.sides[n].storage.lock().heal(cut);
        if !std::mem::take(&mut self.sides[n].storage.lock().hits).is_empty() {
            self.disks.values_mut().for_each(Disk::flush_failed);
        }
        self.forget_clients(n);
        let since = if cut { Since::Cut } else { Since::Kill };
        self.start(n) && DISKS.iter().all(|(name, ..)| self.look(1 - n, name, Some((n, since))))
    }

    /// Reads a disk whole through a node, as soon as it can be, and compares. `ended`: the node that has just begun again, and after
    /// what. Whether it could be read.
    fn look(&mut self, n: usize, name: &'static str, ended: Option<(usize, Since)>) -> bool {
        let begun = Instant::now();
        let data = loop {
            let read = || -> io::Result<Result<Vec<u8>, u32>> {
                Nbd::connect(&self.sides[n].folders.nbd(), name)?.read(0, MIB as usize)
            };
            match read() {
                Ok(Ok(data)) => break data,
                // A storage that is to fail soon has failed now.
                _ if self.sides[n].node.as_mut().is_none_or(Node::has_ended) && self.excused => return true,
                why if begun.elapsed() > PATIENCE => {
                    let links = self.sides[n].node.as_ref().map(|node| match node.status() {
                        Answer::Done(status) => status["status"]["peers"].to_string(),
                        other => format!("{other:?}"),
                    });
                    let why = why.map(|data| data.map(|_| ()));
                    self.trouble(format!("{name} cannot be read through n{}: {why:?}; {links:?}", n + 1));
                    return false;
                }
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let homes = DISKS.iter().find(|(of, ..)| *of == name).expect("a disk of ours").2;
        let disk = self.disks.get_mut(name).expect("a disk of ours");
        let (mut wrong, mut lost) = (Vec::new(), false);
        for (bytes, at) in data.chunks(SECTOR as usize).zip(0..) {
            let home = homes[(at * SECTOR / STRIPE) as usize % homes.len()];
            let since = ended.filter(|(node, _)| *node == home).map_or(Since::Nothing, |(_, since)| since);
            lost |= since == Since::Cut && disk.is_behind(at, bytes);
            wrong.extend(disk.compare(at, bytes, since));
        }
        if lost && let Some((node, _)) = ended {
            self.tell(|| format!("{name}: n{} has lost what was acknowledged and not flushed", node + 1));
            let told = self.clients.keys().filter(|(at, of)| *at != node && *of == name);
            self.owed.extend(told.copied().collect::<Vec<_>>());
        }
        if let Some(one) = wrong.first() {
            self.trouble(format!("{name} through n{}, {ended:?}: {one} ({} such)", n + 1, wrong.len()));
        }
        wrong.is_empty()
    }

    /// A node, a disk, and a client that stays there.
    fn client(&mut self, n: usize, name: &'static str) -> Option<&mut Nbd> {
        if !self.clients.contains_key(&(n, name)) {
            let client = Nbd::connect(&self.sides[n].folders.nbd(), name).ok()?;
            self.clients.insert((n, name), client);
        }
        self.clients.get_mut(&(n, name))
    }

    fn some(&mut self) -> (usize, &'static str) {
        (self.dice.random_range(0..2), DISKS[self.dice.random_range(0..DISKS.len())].0)
    }

    /// A client's connection has ended: it knows that something is wrong.
    fn lost(&mut self, n: usize, name: &'static str, what: &str, error: &io::Error) {
        self.clients.remove(&(n, name));
        self.owed.remove(&(n, name));
        self.may_hear.remove(&(n, name));
        self.tell(|| format!("{what} {name} at n{}: {error}", n + 1));
        if error.kind() == io::ErrorKind::WouldBlock {
            self.trouble(format!("{what} {name} at n{}: no answer within a minute", n + 1));
        } else if !self.excused {
            self.trouble(format!("{what} {name} at n{}: {error}, and nothing had gone wrong", n + 1));
        }
    }

    fn failed(&mut self, n: usize, name: &str, what: &str, error: u32) {
        if !self.excused {
            self.trouble(format!(
                "{what} {name} at n{} fails with {error}, and nothing had gone wrong",
                n + 1
            ));
        }
    }

    fn write(&mut self) {
        let n = self.dice.random_range(0..2);
        self.write_from(n);
    }

    fn write_from(&mut self, n: usize) {
        let name = self.some().1;
        let unit = if self.dice.random() { 8 } else { 1 };
        // Near the ends of stripes, so that most lie on both nodes.
        let stripe = self.dice.random_range(1..MIB / STRIPE - 1) * STRIPE / SECTOR;
        let first = stripe - self.dice.random_range(0..4) * unit;
        let count = self.dice.random_range(1..9) * unit;
        let (fua, zeroes) = (self.dice.random_range(0..5) == 0, self.dice.random_range(0..6) == 0);
        let (version, data) = self.disks.get_mut(name).expect("a disk of ours").begin(first, count, zeroes);
        let mut ask = || -> io::Result<End> {
            let client = self.client(n, name).ok_or(io::ErrorKind::ConnectionRefused)?;
            let (kind, data) = if zeroes { (WRITE_ZEROES, &[][..]) } else { (WRITE, &data[..]) };
            client.send(if fua { FUA } else { 0 }, kind, first * SECTOR, (count * SECTOR) as u32, data)?;
            Ok(client.answer()?.1)
        };
        let end = ask();
        self.tell(|| {
            format!("write {name} at n{}: {first}+{count} version {version} FUA {fua}: {end:?}", n + 1)
        });
        let disk = self.disks.get_mut(name).expect("a disk of ours");
        match end {
            Ok(End::Done) => disk.acknowledge(first, count, version, fua),
            Ok(End::Error(error)) => self.failed(n, name, "a write to", error),
            Err(error) => self.lost(n, name, "writing", &error),
        }
    }

    fn flush(&mut self) {
        let (n, name) = self.some();
        let mut ask = || -> io::Result<End> {
            let client = self.client(n, name).ok_or(io::ErrorKind::ConnectionRefused)?;
            client.send(0, FLUSH, 0, 0, &[])?;
            Ok(client.answer()?.1)
        };
        let end = ask();
        self.tell(|| format!("flush {name} at n{}: {end:?}", n + 1));
        match end {
            Ok(End::Done) if self.owed.remove(&(n, name)) => {
                self.trouble(format!(
                    "a FLUSH of {name} at n{} vouches for what the other node has lost",
                    n + 1
                ));
            }
            Ok(End::Done) => self.disks.get_mut(name).expect("a disk of ours").flushed(),
            Ok(End::Error(error)) => {
                self.owed.remove(&(n, name));
                self.disks.get_mut(name).expect("a disk of ours").flush_failed();
                if !self.may_hear.remove(&(n, name)) {
                    self.failed(n, name, "a flush of", error);
                }
            }
            Err(error) => self.lost(n, name, "flushing", &error),
        }
    }

    fn read(&mut self) {
        let (n, name) = self.some();
        let first = self.dice.random_range(0..MIB / SECTOR - 256);
        let mut ask = || -> io::Result<Result<Vec<u8>, u32>> {
            let client = self.client(n, name).ok_or(io::ErrorKind::ConnectionRefused)?;
            client.read(first * SECTOR, 256 * SECTOR as usize)
        };
        match ask() {
            Ok(Ok(data)) => {
                let disk = self.disks.get_mut(name).expect("a disk of ours");
                let blocks = data.chunks(SECTOR as usize).zip(first..);
                let wrong: Vec<String> =
                    blocks.filter_map(|(b, at)| disk.compare(at, b, Since::Nothing)).collect();
                if let Some(one) = wrong.first() {
                    self.trouble(format!("{name} through n{}: {one} ({} such)", n + 1, wrong.len()));
                }
            }
            Ok(Err(error)) => self.failed(n, name, "a read of", error),
            Err(error) => self.lost(n, name, "reading", &error),
        }
    }
}
