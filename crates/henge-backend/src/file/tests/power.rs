//! A device that forgets what was not synced, and files above it: whatever was called durable is there, after every single step.

use super::super::line::SYNCS;
use super::super::{Files, RawFd};
use crate::Buffer;
use crate::engine::{Engine, Io, Kind};
use henge_core::{FlowId, Instant, Op, Request, RequestId};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

const FILES: u64 = 12;
/// Of each file.
const SECTORS: u64 = 6;
const SECTOR: u64 = 512;

/// How often a sector was changed: as clients read it, and as it is after a loss of power.
#[derive(Clone, Copy, Default)]
struct Content {
    now: u64,
    durable: u64,
    /// The next sync writes it. After a sync that failed the kernel believes it clean.
    dirty: bool,
}

type Sector = (RawFd, u64);

#[derive(Default)]
struct Medium {
    content: BTreeMap<Sector, Content>,
    under_way: Vec<(Io, Vec<(Sector, u64)>)>,
    over: VecDeque<(u32, i32)>,
}

impl Medium {
    fn dirty(&self, fd: RawFd) -> Vec<(Sector, u64)> {
        let of = self.content.range((fd, 0)..(fd + 1, 0)).filter(|(_, content)| content.dirty);
        of.map(|(sector, content)| (*sector, content.now)).collect()
    }
    /// As little as a sync may do: what was there when it began.
    fn clean(&mut self, snapshot: &[(Sector, u64)], good: bool) {
        for (sector, version) in snapshot {
            let content = self.content.get_mut(sector).expect("it was written");
            if good {
                content.durable = content.durable.max(*version);
            }
            content.dirty &= content.now != *version;
        }
    }
    /// Ends one thing that is under way, in any order.
    fn end(&mut self, random: &mut Pcg64Mcg) {
        let (io, snapshot) = self.under_way.swap_remove(random.random_range(0..self.under_way.len()));
        let sector = (io.fd, io.offset / SECTOR);
        let chance = random.random_range(0..100u32);
        let result = match io.kind {
            _ if chance < 5 => -libc::EINTR,
            Kind::Allocate { .. } if chance < 30 => -libc::EOPNOTSUPP,
            Kind::Write { .. } if chance < 8 => -libc::ENOSPC,
            Kind::Sync | Kind::Write { durable: true } if chance == 99 => {
                self.clean(&snapshot, false);
                -libc::EIO
            }
            Kind::Sync => {
                self.clean(&snapshot, true);
                0
            }
            Kind::Read => io.len as i32,
            Kind::Write { .. } | Kind::Allocate { .. } => {
                let content = self.content.entry(sector).or_default();
                content.now += 1;
                if io.kind == (Kind::Write { durable: true }) {
                    content.durable = content.now;
                } else {
                    content.dirty = true;
                }
                if let Kind::Allocate { .. } = io.kind { 0 } else { io.len as i32 }
            }
        };
        self.over.push_back((io.token, result));
    }
}

#[derive(Clone, Default)]
struct Forgetful(Rc<RefCell<Medium>>);

fn syncs(kind: Kind) -> bool {
    matches!(kind, Kind::Sync | Kind::Write { durable: true })
}

impl Engine for Forgetful {
    unsafe fn submit(&mut self, io: Io) {
        let mut medium = self.0.borrow_mut();
        if syncs(io.kind) {
            let all = || medium.under_way.iter().filter(|(other, _)| syncs(other.kind));
            let shared = all().filter(|(other, _)| other.kind == Kind::Sync && io.kind == Kind::Sync);
            assert!(
                shared.clone().all(|(other, _)| other.fd != io.fd),
                "one shared sync of a file at a time"
            );
            assert!(all().count() < SYNCS as usize, "and a few of all files");
        }
        let is_hole = |io: &Io| matches!(io.kind, Kind::Allocate { .. });
        let beside = medium.under_way.iter().any(|(other, _)| is_hole(other) && other.fd == io.fd);
        assert!(!is_hole(&io) || !beside, "one hole of a file at a time");
        let snapshot = medium.dirty(io.fd);
        medium.under_way.push((io, snapshot));
    }
    fn reap(&mut self) -> Option<(u32, i32)> {
        self.0.borrow_mut().over.pop_front()
    }
    fn idle(&self) -> bool {
        self.0.borrow().under_way.is_empty()
    }
    fn event_fd(&self) -> RawFd {
        -1
    }
    fn name(&self) -> &'static str {
        "forgetful"
    }
}

/// What a client asked for, and how often each sector was changed before.
struct Issued {
    op: Op,
    durable: bool,
    sector: Sector,
    before: BTreeMap<Sector, u64>,
}

/// What clients know.
struct Clients {
    medium: Forgetful,
    files: Files,
    asked: BTreeMap<u32, Issued>,
    next: u32,
    /// Changes that were answered, and those that have to be durable.
    changed: BTreeMap<Sector, u64>,
    durable: BTreeMap<Sector, u64>,
    /// Files with a change of an administrator under way, and what its sync would write.
    elsewhere: BTreeMap<RawFd, Vec<(Sector, u64)>>,
    good: u64,
    told: BTreeSet<u32>,
}

impl Clients {
    fn new(block: u64) -> Clients {
        let medium = Forgetful::default();
        let files = Files::new(Box::new(medium.clone()), block);
        Clients {
            medium,
            files,
            asked: BTreeMap::new(),
            next: 0,
            changed: BTreeMap::new(),
            durable: BTreeMap::new(),
            elsewhere: BTreeMap::new(),
            good: 0,
            told: BTreeSet::new(),
        }
    }

    fn ask(&mut self, random: &mut Pcg64Mcg, busiest: u64) {
        let fd = random.random_range(0..busiest) as RawFd;
        let sector = (fd, random.random_range(0..SECTORS));
        let op = [Op::Write, Op::Write, Op::Write, Op::Trim, Op::WriteZeroes, Op::Flush]
            [random.random_range(0..6usize)];
        // Ranges are locked: nobody changes a sector that somebody else is changing.
        if op != Op::Flush && self.asked.values().any(|asked| asked.sector == sector && asked.op != Op::Flush)
        {
            return;
        }
        let id = RequestId { slot: self.next, generation: 0 };
        self.next += 1;
        let len = if op == Op::Flush { 0 } else { SECTOR };
        let mut request = Request::new(id, FlowId(0), op, 0, len, Instant::ZERO);
        request.fua = op != Op::Flush && random.random_range(0..3) > 0;
        let durable = request.fua || op == Op::Flush;
        let of = |((other, _), _): &(&Sector, &u64)| *other == fd;
        let before = self.changed.iter().filter(of).map(|(sector, n)| (*sector, *n)).collect();
        self.asked.insert(id.slot, Issued { op, durable, sector, before });
        let payload = if op == Op::Write { Buffer::zeroed(SECTOR as usize) } else { Buffer::empty() };
        self.files.submit(&request, payload, fd, sector.1 * SECTOR);
    }

    /// An administrator's change begins, or is over.
    fn change_elsewhere(&mut self, random: &mut Pcg64Mcg, fails: bool) {
        let fd = random.random_range(0..FILES) as RawFd;
        match self.elsewhere.remove(&fd) {
            None => {
                self.files.elsewhere(fd);
                let snapshot = self.medium.0.borrow().dirty(fd);
                self.elsewhere.insert(fd, snapshot);
            }
            Some(snapshot) => {
                self.medium.0.borrow_mut().clean(&snapshot, !fails);
                let eio = || crate::open::synced(Err(std::io::Error::from_raw_os_error(libc::EIO)));
                let _ = self.files.heed_elsewhere(fd, if fails { eio() } else { Ok(()) });
            }
        }
    }

    fn hear(&mut self) {
        while let Some(done) = self.files.reap() {
            let asked = self.asked.remove(&done.id.slot).expect("it is answered once");
            while let Some(id) = self.files.awaits_others() {
                assert!(self.told.insert(id.slot), "said once");
            }
            if done.outcome.is_err() {
                continue;
            }
            self.good += u64::from(asked.durable);
            if asked.op != Op::Flush {
                *self.changed.entry(asked.sector).or_default() += 1;
            }
            match asked.durable {
                true if asked.op == Op::Flush => asked.before.into_iter().for_each(|(sector, n)| {
                    let known = self.durable.entry(sector).or_default();
                    *known = n.max(*known);
                }),
                true => drop(self.durable.insert(asked.sector, self.changed[&asked.sector])),
                false => {}
            }
        }
    }

    /// The power may go now.
    fn check(&self, seed: u64) {
        let medium = self.medium.0.borrow();
        for (sector, n) in &self.durable {
            let is = medium.content.get(sector).map_or(0, |content| content.durable);
            assert!(is >= *n, "seed {seed}: {sector:?} was durable in version {n}, and is in {is}");
        }
    }
}

#[test]
fn what_was_called_durable_is_there_whenever_the_power_goes() {
    let mut answered = 0;
    for seed in 0..300 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut clients = Clients::new(if seed % 2 == 0 { 1 } else { SECTOR });
        let busiest = 1 + seed % FILES;
        for _ in 0..400 {
            match random.random_range(0..20) {
                0..8 => clients.ask(&mut random, busiest),
                8 if seed % 5 == 0 => clients.change_elsewhere(&mut random, seed % 10 == 0),
                _ if clients.medium.idle() => clients.ask(&mut random, busiest),
                _ => clients.medium.0.borrow_mut().end(&mut random),
            }
            clients.hear();
            clients.check(seed);
        }
        while !clients.medium.idle() {
            clients.medium.0.borrow_mut().end(&mut random);
            clients.hear();
            clients.check(seed);
        }
        for fd in clients.elsewhere.keys().copied().collect::<Vec<_>>() {
            clients.elsewhere.remove(&fd);
            let _ = clients.files.heed_elsewhere(fd, Ok(()));
        }
        clients.hear();
        let left: Vec<u32> = clients.asked.keys().copied().collect();
        assert!(left.is_empty(), "seed {seed}: {left:?} were never answered");
        assert_eq!(clients.files.line.under_way, 0, "seed {seed}");
        answered += clients.good;
    }
    assert!(answered > 20_000, "{answered} durable answers");
}
