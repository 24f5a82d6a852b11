//! What clients and administrators do in a node's life, and what they are told.

use crate::medium::SECTOR;
use crate::model::{Disk, Since};
use crate::nbd::{End, FLUSH, FUA, Nbd, WRITE, WRITE_ZEROES};
use crate::node::{Answer, Node};
use crate::schedule::{Gone, Held, MIB, On, Schedule};
use rand::RngExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Schedule {
    pub fn step(&mut self, node: &mut Node) -> Result<(), Gone> {
        match self.dice.random_range(0..100) {
            0..28 => self.write(),
            28..40 => self.visit(),
            40..55 => self.flush(),
            55..62 => self.read_some(),
            62..75 => self.add(node),
            75..82 => self.remove(node),
            82..90 => self.grow(node),
            90..97 => self.set(node),
            _ => {
                let pool = if self.dice.random() { "folder" } else { "device" };
                let to = ["sfq", "mclock"][self.dice.random_range(0..2)];
                // In the unit of the limits, as the configuration has it.
                let to = json!({ to: { "cost": "requests" } });
                match node.ask(&json!({ "op": "scheduler", "pool": pool, "scheduler": to })) {
                    Answer::Gone => Err(Gone),
                    _ => Ok(()),
                }
            }
        }
    }

    /// A disk that is there for certain.
    pub fn some_disk(&mut self) -> Option<String> {
        let there: Vec<String> = { self.disks.iter() }
            .filter(|(n, h)| !h.perhaps && !self.failed.contains(*n))
            .map(|(n, _)| n.clone())
            .collect();
        if there.is_empty() { None } else { Some(there[self.dice.random_range(0..there.len())].clone()) }
    }

    /// What a client's connection ended with: where nothing had gone wrong, that is wrong.
    pub fn ended(&mut self, what: &str, error: io::Error) -> Gone {
        let alive = self.storage.lock().process.is_some();
        if alive && error.kind() == io::ErrorKind::WouldBlock {
            self.trouble(format!("{what}: no answer within a minute"));
        }
        if alive && error.kind() == io::ErrorKind::Other && self.storage.lock().hits.is_empty() {
            self.trouble(format!("{what}: {error}, and nothing had gone wrong"));
        }
        Gone
    }

    pub fn failed(&mut self, what: &str, error: u32) {
        if self.storage.lock().hits.is_empty() {
            self.trouble(format!("{what} fails with error {error}, and nothing had gone wrong"));
        }
    }

    fn write(&mut self) -> Result<(), Gone> {
        let Some(name) = self.some_disk() else { return Ok(()) };
        let outcome = self.write_to(&name);
        outcome.map_err(|e| self.ended(&format!("writing to {name}"), e))
    }

    fn write_to(&mut self, name: &str) -> io::Result<()> {
        let mut nbd = Nbd::connect(&self.folders.nbd(), name)?;
        let blocks = self.disks[name].disk.capacity[0] / SECTOR;
        let mut batch: BTreeMap<u64, (u64, u64, u64, bool)> = BTreeMap::new();
        for _ in 0..self.dice.random_range(1..7) {
            // Aligned and not, near the beginning and near the end, so that the same places are met often.
            let unit = if self.dice.random() { 8 } else { 1 };
            let near = self.dice.random_range(0..64) * unit;
            let first = if self.dice.random() { near } else { blocks - 1 - near };
            let count = unit * self.dice.random_range(1..9).min((blocks - first).div_ceil(unit));
            let count = count.min(blocks - first);
            if batch.values().any(|(f, c, ..)| first < f + c && *f < first + count) {
                continue; // in one batch no two writes meet
            }
            let (fua, zeroes) = (self.dice.random_range(0..4) == 0, self.dice.random_range(0..6) == 0);
            let disk = &mut self.disks.get_mut(name).expect("it is there").disk;
            let (version, data) = disk.begin(first, count, zeroes);
            let (offset, len) = (first * SECTOR, (count * SECTOR) as u32);
            batch.insert(offset, (first, count, version, fua));
            self.tell(|| {
                format!("write {name} {first}+{count} version {version}{}", if fua { " FUA" } else { "" })
            });
            let (kind, data) = if zeroes { (WRITE_ZEROES, &[][..]) } else { (WRITE, &data[..]) };
            nbd.send(if fua { FUA } else { 0 }, kind, offset, len, data)?;
        }
        for _ in 0..batch.len() {
            let (offset, end) = nbd.answer()?;
            let (first, count, version, fua) = batch[&offset];
            self.tell(|| format!("  {name} {first}+{count}: {end:?}"));
            self.written(name, (first, count, version, fua), end);
        }
        Ok(())
    }

    pub fn model(&mut self, name: &str) -> &mut Disk {
        &mut self.disks.get_mut(name).expect("it is there").disk
    }

    /// How a write ended: its first block, its length, its version, and whether it was to be durable.
    pub fn written(&mut self, name: &str, (first, count, version, fua): (u64, u64, u64, bool), end: End) {
        match end {
            End::Done => self.model(name).acknowledge(first, count, version, fua),
            End::Error(error) => {
                if fua {
                    self.model(name).flush_failed();
                }
                self.failed(&format!("a write to {name}"), error);
            }
        }
    }

    /// How a flush ended.
    pub fn flushed(&mut self, name: &str, end: End) {
        match end {
            End::Done => self.model(name).flushed(),
            End::Error(error) => {
                self.model(name).flush_failed();
                self.failed(&format!("a flush of {name}"), error);
            }
        }
    }

    fn flush(&mut self) -> Result<(), Gone> {
        let Some(name) = self.some_disk() else { return Ok(()) };
        let flush = || -> io::Result<End> {
            let mut nbd = Nbd::connect(&self.folders.nbd(), &name)?;
            nbd.send(0, FLUSH, 0, 0, &[])?;
            Ok(nbd.answer()?.1)
        };
        let end = flush().map_err(|e| self.ended(&format!("flushing {name}"), e))?;
        self.tell(|| format!("flush {name}: {end:?}"));
        self.flushed(&name, end);
        Ok(())
    }

    fn read_some(&mut self) -> Result<(), Gone> {
        let Some(name) = self.some_disk() else { return Ok(()) };
        let blocks = self.disks[&name].disk.capacity[0] / SECTOR;
        let first = if self.dice.random() { 0 } else { blocks - 600 };
        self.compare(&name, first, 600, Since::Nothing)
    }

    /// Reads and compares a range of a disk.
    pub fn compare(&mut self, name: &str, first: u64, count: u64, since: Since) -> Result<(), Gone> {
        let read = || -> io::Result<Result<Vec<u8>, u32>> {
            Nbd::connect(&self.folders.nbd(), name)?.read(first * SECTOR, (count * SECTOR) as usize)
        };
        let data = match read().map_err(|e| self.ended(&format!("reading {name}"), e))? {
            Ok(data) => data,
            Err(error) => {
                self.failed(&format!("a read of {name}"), error);
                return Ok(());
            }
        };
        self.compare_with(name, first, &data, since);
        Ok(())
    }

    pub fn compare_with(&mut self, name: &str, first: u64, data: &[u8], since: Since) {
        let disk = &mut self.disks.get_mut(name).expect("it is there").disk;
        let blocks = data.chunks(SECTOR as usize).zip(first..);
        let wrong: Vec<String> = blocks.filter_map(|(bytes, at)| disk.compare(at, bytes, since)).collect();
        if let Some(one) = wrong.first() {
            self.trouble(format!("disk {name}, after {since:?}: {one} ({} such)", wrong.len()));
        }
    }

    /// Asks for a change. `true`: done; `false`: refused, and nothing changed.
    fn change(&mut self, node: &Node, request: &Value) -> Result<Option<bool>, Gone> {
        self.tally.changes += 1;
        let answer = node.ask(request);
        let hits = self.storage.lock().hits.clone();
        self.tell(|| {
            format!("{request}: {} {hits:?}", format!("{answer:?}").chars().take(160).collect::<String>())
        });
        match answer {
            Answer::Done(_) => Ok(Some(true)),
            Answer::Unremembered => Ok(None),
            Answer::Refused(why) => {
                // A sync that failed for want of room has lost what it was to write as well as any other.
                let sync = |hit: &String| {
                    hit.starts_with("Fail")
                        && ["Folder", "Device"].iter().any(|on| hit.ends_with(&format!("at fsync of {on}")))
                };
                self.shaken |= why.contains("Input/output error") || hits.iter().any(sync);
                // What could not be made could not be taken away again either. Whose it is must be said before its name is used once more.
                // Of a device both are writes of its table, and the first may have reached it all the same.
                let table =
                    hits.iter().filter(|hit| hit.starts_with("Fail") && hit.ends_with("of Device")).count();
                self.kept |= table >= 2 || hits.iter().any(|hit| hit.contains("at unlink"));
                let kept = self.kept && why.contains("the pool keeps a part");
                let expected = ["no room", "cannot grow", "under way", "no disk", "is not served"];
                if hits.is_empty() && !kept && !expected.iter().any(|part| why.contains(part)) {
                    self.trouble(format!("{request} is refused, and nothing had gone wrong: {why}"));
                }
                // It is not served any more, and is to be removed again; or it was refused, and may be remembered all the same.
                let perhaps = ["could not be removed whole", "it may be there", "it may go when"];
                if perhaps.iter().any(|part| why.contains(part)) { Ok(None) } else { Ok(Some(false)) }
            }
            Answer::Gone => Err(Gone),
        }
    }

    fn add(&mut self, node: &Node) -> Result<(), Gone> {
        let name = NAMES[self.dice.random_range(0..NAMES.len())].to_owned();
        if self.disks.contains_key(&name) {
            return Ok(());
        }
        let pools = [json!(["folder"]), json!(["device"]), json!(["folder", "device"])];
        let which = self.dice.random_range(0..pools.len());
        let (pools, on) = (&pools[which], [On::Folder, On::Device, On::Both][which]);
        let disk = json!({ "name": name, "pools": pools, "stripe": "64KiB", "capacity": "1MiB" });
        self.tenants += 1;
        let held = |perhaps| Held { disk: Disk::new(self.tenants, MIB), perhaps, on };
        self.disks.insert(name.clone(), held(true));
        match self.change(node, &json!({ "op": "add", "disk": disk }))? {
            Some(true) => self.disks.get_mut(&name).expect("just made").perhaps = false,
            Some(false) => drop(self.disks.remove(&name)),
            None => {}
        }
        self.look(node);
        Ok(())
    }

    fn remove(&mut self, node: &Node) -> Result<(), Gone> {
        let Some(name) = self.some_disk().filter(|name| name != "base") else { return Ok(()) };
        let held = self.disks.get_mut(&name).expect("it is there");
        held.perhaps = true;
        held.disk.perhaps_emptied();
        match self.change(node, &json!({ "op": "remove", "name": name }))? {
            Some(true) => {
                self.tally.blocks += self.disks.remove(&name).expect("it is there").disk.compared;
            }
            Some(false) => self.disks.get_mut(&name).expect("it is there").perhaps = false,
            None => {}
        }
        self.look(node);
        Ok(())
    }

    fn grow(&mut self, node: &Node) -> Result<(), Gone> {
        let Some(name) = self.some_disk() else { return Ok(()) };
        let held = self.disks.get_mut(&name).expect("it is there");
        let [old] = held.disk.capacity[..] else { return Ok(()) };
        let new = old + MIB;
        if new > 4 * MIB {
            return Ok(());
        }
        held.disk.capacity.push(new);
        let done =
            self.change(node, &json!({ "op": "grow", "name": name, "capacity": format!("{new}B") }))?;
        let capacity = &mut self.disks.get_mut(&name).expect("it is there").disk.capacity;
        match done {
            Some(true) => *capacity = vec![new],
            Some(false) => *capacity = vec![old],
            None => {}
        }
        self.look(node);
        Ok(())
    }

    fn set(&mut self, node: &Node) -> Result<(), Gone> {
        let Some(name) = self.some_disk() else { return Ok(()) };
        let limit = format!("{}/s", self.dice.random_range(1000..9000) * 100);
        let held = self.disks.get_mut(&name).expect("it is there");
        let old = held.disk.limit.clone();
        held.disk.limit.push(limit.clone());
        let request = json!({ "op": "set", "name": name, "contract": { "limit": limit } });
        let done = self.change(node, &request)?;
        let known = &mut self.disks.get_mut(&name).expect("it is there").disk.limit;
        match done {
            Some(true) => *known = vec![limit],
            Some(false) => *known = old,
            None => {}
        }
        self.look(node);
        Ok(())
    }
}
