//! What a file system may forget: files and names as programs see them, and as a loss of power may leave them.
//!
//! # The rule
//! Programs see each write at once. On the medium are, for certain, the content that a successful sync of the file covered and
//! the names that a sync of a directory covered. The rest is the dice's when the power goes:
//!
//! - each sector of 512 bytes is as it was, or as any later write left it, each for itself; a sector is never torn;
//! - a file's length is the old one, or any later one;
//! - names change in the order in which they were changed, up to some point: what came later is forgotten.
//!
//! A sync that fails has written some sectors, and *forgets that the others were written*: programs go on seeing them, and
//! no later sync covers them (Linux marks such pages clean: Rebello and others, "Can Applications Recover from fsync Failures?",
//! USENIX ATC 2020). POSIX promises no more than this; real file systems often keep more.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

pub const SECTOR: u64 = 512;
pub const ROOT: u64 = 1;

/// A sector's content; none reads as zeroes.
type Sector = Option<Box<[u8; SECTOR as usize]>>;
/// A name in a folder.
pub type Name = (u64, String);

#[derive(Clone, Default)]
struct Content {
    len: u64,
    sectors: BTreeMap<u64, Sector>,
}

#[derive(Default)]
pub struct File {
    pub is_folder: bool,
    seen: Content,
    durable: Content,
    /// Since the last sync, by sector, in their order.
    writes: BTreeMap<u64, Vec<Sector>>,
    lens: Vec<u64>,
    /// Seen, and never to be durable until written again.
    lost: BTreeSet<u64>,
}

/// All files and names.
pub struct Medium {
    files: BTreeMap<u64, File>,
    seen: BTreeMap<Name, u64>,
    durable: BTreeMap<Name, u64>,
    /// Changes of names since the last sync of a folder; those of one change happen together.
    changes: Vec<Vec<(Name, Option<u64>)>>,
    next: u64,
    dice: Pcg64Mcg,
}

impl Medium {
    pub fn new(dice: Pcg64Mcg) -> Medium {
        let root = File { is_folder: true, ..File::default() };
        Medium {
            files: [(ROOT, root)].into(),
            seen: BTreeMap::new(),
            durable: BTreeMap::new(),
            changes: Vec::new(),
            next: ROOT + 1,
            dice,
        }
    }

    pub fn find(&self, name: &Name) -> Option<u64> {
        self.seen.get(name).copied()
    }
    pub fn file(&self, file: u64) -> Option<&File> {
        self.files.get(&file)
    }
    pub fn len(&self, file: u64) -> u64 {
        self.files.get(&file).map_or(0, |f| f.seen.len)
    }
    /// Names in a folder.
    pub fn list(&self, folder: u64) -> Vec<(String, u64)> {
        let from = (folder, String::new());
        let of = self.seen.range(from..).take_while(|((of, _), _)| *of == folder);
        of.map(|((_, name), file)| (name.clone(), *file)).collect()
    }

    pub fn create(&mut self, name: Name, is_folder: bool) -> u64 {
        let file = self.next;
        self.next += 1;
        self.files.insert(file, File { is_folder, ..File::default() });
        self.rename_to(vec![(name, Some(file))]);
        file
    }

    pub fn remove(&mut self, name: Name) {
        self.rename_to(vec![(name, None)]);
    }

    pub fn rename(&mut self, from: Name, to: Name) {
        let file = self.seen.get(&from).copied();
        self.rename_to(vec![(from, None), (to, file)]);
    }

    fn rename_to(&mut self, change: Vec<(Name, Option<u64>)>) {
        apply(&mut self.seen, &change);
        self.changes.push(change);
    }

    pub fn read(&self, file: u64, offset: u64, len: u64) -> Vec<u8> {
        let Some(content) = self.files.get(&file).map(|f| &f.seen) else { return Vec::new() };
        let end = (offset + len).min(content.len);
        let mut data = vec![0; end.saturating_sub(offset) as usize];
        let mut at = offset;
        while at < end {
            let (sector, within) = (at / SECTOR, at % SECTOR);
            let step = (SECTOR - within).min(end - at);
            if let Some(Some(bytes)) = content.sectors.get(&sector) {
                let to = &mut data[(at - offset) as usize..][..step as usize];
                to.copy_from_slice(&bytes[within as usize..][..step as usize]);
            }
            at += step;
        }
        data
    }

    pub fn write(&mut self, file: u64, offset: u64, data: &[u8]) {
        let Some(f) = self.files.get_mut(&file) else { return };
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let (sector, within) = (at / SECTOR, (at % SECTOR) as usize);
            let step = (SECTOR as usize - within).min((end - at) as usize);
            let mut bytes = f.seen.sectors.get(&sector).cloned().flatten().unwrap_or(Box::new([0; 512]));
            bytes[within..within + step].copy_from_slice(&data[(at - offset) as usize..][..step]);
            f.put(sector, Some(bytes));
            at += step as u64;
        }
        if end > f.seen.len {
            f.set_len(end);
        }
    }

    /// A range becomes zeroes, up to the end of the file, whose length stays.
    pub fn zero(&mut self, file: u64, offset: u64, len: u64) {
        let end = (offset + len).min(self.len(file));
        let Some(f) = self.files.get_mut(&file).filter(|_| offset < end) else { return };
        let whole = offset.div_ceil(SECTOR)..(end / SECTOR).max(offset.div_ceil(SECTOR));
        let there: Vec<u64> = f.seen.sectors.range(whole.clone()).map(|(sector, _)| *sector).collect();
        there.into_iter().for_each(|sector| f.put(sector, None));
        let edges = [(offset, (whole.start * SECTOR).min(end)), ((whole.end * SECTOR).max(offset), end)];
        for (from, to) in edges.into_iter().filter(|(from, to)| from < to) {
            self.write(file, from, &vec![0; (to - from) as usize]);
        }
    }

    pub fn set_len(&mut self, file: u64, len: u64) {
        let old = self.len(file);
        if len < old {
            self.zero(file, len, old - len);
        }
        if let Some(f) = self.files.get_mut(&file) {
            f.set_len(len);
        }
    }

    /// Whether it went well decides what is on the medium now.
    pub fn sync(&mut self, file: u64, well: bool) {
        let Medium { files, dice, .. } = self;
        let Some(f) = files.get_mut(&file) else { return };
        for sector in std::mem::take(&mut f.writes).into_keys() {
            if well || dice.random() {
                let now = f.seen.sectors.get(&sector).cloned().flatten();
                f.durable.sectors.insert(sector, now);
            } else {
                f.lost.insert(sector);
            }
        }
        if well || dice.random() {
            f.durable.len = f.seen.len;
        }
        f.lens.clear();
    }

    pub fn sync_names(&mut self) {
        self.changes.clear();
        self.durable = self.seen.clone();
    }

    /// The power goes, and comes back.
    pub fn cut(&mut self) {
        let kept = self.dice.random_range(0..=self.changes.len());
        for change in self.changes.drain(..).take(kept) {
            apply(&mut self.durable, &change);
        }
        self.seen = self.durable.clone();
        let named: BTreeSet<u64> = self.durable.values().copied().chain([ROOT]).collect();
        self.files.retain(|file, _| named.contains(file));
        let Medium { files, dice, .. } = self;
        for f in files.values_mut() {
            for (sector, versions) in std::mem::take(&mut f.writes) {
                let which = dice.random_range(0..=versions.len());
                if let Some(version) = which.checked_sub(1).map(|i| versions[i].clone()) {
                    f.durable.sectors.insert(sector, version);
                }
            }
            f.lens.insert(0, f.durable.len);
            f.durable.len = f.lens[dice.random_range(0..f.lens.len())];
            f.lens.clear();
            f.lost.clear();
            f.durable.sectors.retain(|sector, _| sector * SECTOR < f.durable.len);
            f.seen = f.durable.clone();
        }
    }
}

fn apply(names: &mut BTreeMap<Name, u64>, change: &[(Name, Option<u64>)]) {
    for (name, file) in change {
        match file {
            Some(file) => names.insert(name.clone(), *file),
            None => names.remove(name),
        };
    }
}

impl File {
    fn put(&mut self, sector: u64, content: Sector) {
        self.seen.sectors.insert(sector, content.clone());
        self.writes.entry(sector).or_default().push(content);
        self.lost.remove(&sector);
    }
    fn set_len(&mut self, len: u64) {
        self.seen.len = len;
        self.lens.push(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn medium(seed: u64) -> (Medium, u64) {
        let mut medium = Medium::new(Pcg64Mcg::seed_from_u64(seed));
        let file = medium.create((ROOT, "f".into()), false);
        medium.write(file, 0, &[1; 2048]);
        (medium, file)
    }

    #[test]
    fn what_was_synced_is_there_and_what_was_not_may_be() {
        let mut after = BTreeSet::new();
        for seed in 0..200 {
            let (mut medium, file) = medium(seed);
            medium.sync(file, true);
            medium.sync_names();
            medium.write(file, 0, &[2; 1024]);
            medium.write(file, 512, &[3; 512]);
            assert_eq!(medium.read(file, 0, 4096)[..512], [2; 512]);
            medium.cut();
            let data = medium.read(file, 0, 4096);
            assert_eq!(data.len(), 2048);
            assert_eq!(data[1024..], [1; 1024], "what was not written since");
            assert!(data.chunks(512).all(|sector| sector.iter().all(|b| *b == sector[0])), "torn");
            after.insert((data[0], data[512]));
        }
        let all = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)];
        assert_eq!(after, all.into(), "every combination is seen");
    }

    #[test]
    fn names_are_forgotten_from_the_end() {
        let mut after = BTreeSet::new();
        for seed in 0..100 {
            let (mut medium, file) = medium(seed);
            medium.sync(file, true);
            medium.rename((ROOT, "f".into()), (ROOT, "g".into()));
            medium.create((ROOT, "h".into()), false);
            medium.cut();
            let names: Vec<String> = medium.list(ROOT).into_iter().map(|(name, _)| name).collect();
            after.insert(names.join(" "));
        }
        assert_eq!(after, ["", "f", "g", "g h"].map(str::to_owned).into());
    }

    #[test]
    fn a_later_sync_does_not_bring_back_what_a_failed_one_forgot() {
        let mut lost = 0;
        for seed in 0..100 {
            let (mut medium, file) = medium(seed);
            medium.sync_names();
            medium.sync(file, false);
            medium.sync(file, true);
            assert_eq!(medium.read(file, 0, 2048), [1; 2048], "programs see it as before");
            medium.cut();
            lost += u32::from(medium.read(file, 0, 2048) != [1; 2048]);
        }
        assert!((60..=99).contains(&lost), "{lost} of 100");
    }

    #[test]
    fn zeroes_and_lengths() {
        let (mut medium, file) = medium(1);
        medium.zero(file, 100, 1000);
        let data = medium.read(file, 0, 2048);
        assert!(data[..100].iter().chain(&data[1100..]).all(|b| *b == 1) && data[100..1100] == [0; 1000]);
        medium.set_len(file, 50);
        medium.set_len(file, 2048);
        assert_eq!(medium.read(file, 0, 4096), [vec![1; 50], vec![0; 1998]].concat());
    }
}
