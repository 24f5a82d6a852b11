//! Parts on a store that takes its time, beside a tenant.

use super::*;
use crate::config::NodeConfig;
use crate::operate;
use crate::plane::{Failed, Plane, Submitter, manage};
use henge_backend::Memory;
use henge_config::Source;
use henge_core::{Backend, Done, Duration};
use henge_vdisk::{Command, Kind};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const MIB: u64 = 1 << 20;

/// A device that moves 1 KiB in a microsecond, one request after the other, records what it is asked to, and never blocks: a part
/// that is opened and was not made by steps is an error.
struct Slow {
    memory: Memory,
    parts: BTreeMap<String, u64>,
    half: Option<(String, u64, u8)>,
    /// Parts that nobody has claimed.
    made: Vec<String>,
    /// The next part was there: steps find it.
    finds: bool,
    free_at: Instant,
    done: VecDeque<(Instant, Done<Buffer>)>,
    log: Rc<RefCell<Vec<String>>>,
    zeroed: Rc<RefCell<Vec<(u64, u64)>>>,
    fails: bool,
}

impl Backend for Slow {
    type Payload = Buffer;
    fn submit(&mut self, request: &Request, payload: Buffer, now: Instant) {
        if request.op == Op::WriteZeroes {
            self.zeroed.borrow_mut().push((request.offset, request.len));
        }
        self.free_at = self.free_at.max(now) + Duration::from_micros(request.len / 1024);
        self.memory.submit(request, payload, now);
        // A long request comes back in pieces.
        let mut done =
            std::iter::repeat_with(|| self.memory.reap(now)).take(1 << 20).flatten().next().expect("over");
        if self.fails && self.zeroed.borrow().len() > 3 {
            done.outcome = Err(Fault::Io);
        }
        self.done.push_back((self.free_at, done));
    }
    fn reap(&mut self, now: Instant) -> Option<Done<Buffer>> {
        self.done.pop_front_if(|(at, _)| *at <= now).map(|(_, done)| done)
    }
    fn wake_at(&self) -> Option<Instant> {
        self.done.front().map(|(at, _)| *at)
    }
    fn capacity(&self) -> u64 {
        self.memory.capacity()
    }
}

impl Slow {
    fn chore(&self, what: &str) -> Step {
        self.log.borrow_mut().push(what.to_owned());
        Step::Run(Box::new(|| Ok(None)))
    }
}

impl Store for Slow {
    fn open_part(&mut self, name: &str, _len: u64) -> io::Result<u64> {
        let base = self.parts.get(name).copied();
        base.ok_or_else(|| io::Error::other(format!("\"{name}\" would be made in the loop")))
    }
    fn has_part(&self, name: &str) -> bool {
        self.parts.contains_key(name)
    }
    fn is_new(&self, name: &str) -> bool {
        self.made.iter().any(|made| made == name)
    }
    fn remove_part(&mut self, _name: &str) -> io::Result<()> {
        Err(io::Error::other("would block"))
    }
    fn begin_part(&mut self, name: &str, len: u64) -> io::Result<Step> {
        if let Some(base) = self.parts.get(name) {
            return Ok(Step::There(*base));
        }
        self.half = Some((name.to_owned(), len, 0));
        if !std::mem::take(&mut self.finds) {
            self.made.push(name.to_owned());
        }
        Ok(self.chore("making"))
    }
    fn go_on(&mut self, name: &str, outcome: io::Result<Option<File>>) -> io::Result<Step> {
        let (of, len, stage) = self.half.take().ok_or_else(|| io::Error::other("nothing was begun"))?;
        assert_eq!(of, name, "one part at a time");
        outcome?;
        let base = 16 * MIB * (1 + self.parts.len() as u64);
        match stage {
            0 => {
                self.half = Some((of, len, 1));
                Ok(Step::Zero { from: base, len })
            }
            1 => {
                self.half = Some((of, len, 2));
                Ok(self.chore("used"))
            }
            2 => {
                self.parts.insert(of, base);
                Ok(Step::There(base))
            }
            _ => {
                self.parts.remove(&of);
                Ok(Step::There(0))
            }
        }
    }
    fn begin_removal(&mut self, name: &str) -> io::Result<Step> {
        if name == "stuck" {
            return Err(io::Error::other("it cannot be removed"));
        }
        self.half = Some((name.to_owned(), 0, 3));
        Ok(self.chore("free"))
    }
    fn begin_keeping(&mut self, disk: &str) -> io::Result<Step> {
        self.half = Some((disk.to_owned(), 0, 3));
        Ok(self.chore("kept"))
    }
    fn settle(&mut self, _is_spared: &dyn Fn(&str) -> bool) -> io::Result<Vec<String>> {
        self.log.borrow_mut().push("kept in the loop".into());
        Ok(Vec::new())
    }
    fn describe(&self) -> String {
        "slow".into()
    }
}

struct Rig {
    plane: Plane,
    now: Instant,
    log: Rc<RefCell<Vec<String>>>,
    zeroed: Rc<RefCell<Vec<(u64, u64)>>>,
    /// Bytes that the tenant was answered.
    got: u64,
    /// The longest that it waited for one answer.
    waited: Duration,
}

/// A plane with one tenant of weight 4, on a store that is slow from then on.
fn rig(fails: bool) -> Rig {
    rig_of(fails, false)
}

/// The same; `finds`: the part that is asked for first is there already.
fn rig_of(fails: bool, finds: bool) -> Rig {
    let text = "[[pool]]\nname = \"p\"\nmemory = true\ncapacity = \"64MiB\"\nscheduler = { sfq = { depth = 1 } }\n\
        [[disk]]\nname = \"tenant\"\ncapacity = \"4MiB\"\ncontract = { weight = 4 }\n";
    let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap();
    let mut plane = Plane::open(&config, 1, false, Instant::ZERO).unwrap();
    let (log, zeroed) = (Rc::default(), Rc::default());
    let slow = Slow {
        memory: Memory::new(64 * MIB).unwrap(),
        parts: BTreeMap::new(),
        half: None,
        made: Vec::new(),
        finds,
        free_at: Instant::ZERO,
        done: VecDeque::new(),
        log: Rc::clone(&log),
        zeroed: Rc::clone(&zeroed),
        fails,
    };
    *plane.pools.gates[0].pipeline.backend_mut() = Box::new(slow);
    Rig { plane, now: Instant::ZERO, log, zeroed, got: 0, waited: Duration::ZERO }
}

const LEN: u64 = 256 << 10;

impl Rig {
    /// Keeps four reads of the tenant pending until the ticket is over: what it came to.
    fn run(&mut self, ticket: u64) -> Worked {
        let id = RequestId { slot: 7, generation: 0 };
        let submitter = Submitter { connection: id, command: id };
        let (mut pending, mut sent) = (0, 0);
        loop {
            while pending < 4 {
                let command = Command::new(Kind::Read, sent % 8 * LEN, LEN, self.now, 0);
                sent += 1;
                self.plane.submit(0, command, Buffer::zeroed(LEN as usize), submitter, self.now);
                pending += 1;
            }
            self.plane.pools.list_due(self.now);
            self.plane.poll(self.now);
            for answer in std::mem::take(&mut self.plane.answers) {
                assert_eq!(answer.outcome, Ok(()));
                (pending, self.got) = (pending - 1, self.got + LEN);
            }
            while let Some((id, chore)) = self.plane.tickets.next_chore() {
                let outcome = chore();
                let Plane { tickets, pools, disks, .. } = &mut self.plane;
                tickets.chore_done(pools, disks, id, outcome, self.now);
            }
            if let Some((id, worked)) = self.plane.tickets.next_worked() {
                assert_eq!(id, ticket);
                return worked;
            }
            if pending == 4 {
                let before = self.now;
                self.now = self.plane.pools.wake_at().map_or(self.now, |at| at.max(self.now));
                self.waited = self.waited.max(self.now.since(before));
            }
        }
    }
}

const ADD: &str = "name = \"new\"\ncapacity = \"32MiB\"\n";

fn table(text: &str) -> henge_api::Table {
    henge_api::Table::from(&Source::new("a disk", text).parse("the disk").unwrap())
}

fn begin(rig: &mut Rig, add: &str) -> u64 {
    let (disk, works) =
        operate::works_for(&rig.plane, &henge_api::Request::Add { disk: table(add) }).unwrap();
    let Plane { tickets, pools, disks, .. } = &mut rig.plane;
    tickets.begin(pools, disks, &disk, works, rig.now)
}

/// 32 MiB are zeroed piece by piece, each once, by a flow that gets a fifth beside a tenant of weight 4. Then the disk is added
/// without its store having anything to make; and it is removed by steps as well.
#[test]
fn a_disk_is_made_beside_a_tenant_that_keeps_its_share() {
    let mut rig = rig(false);
    let ticket = begin(&mut rig, ADD);
    let made = rig.run(ticket).unwrap();
    assert_eq!(made.len(), 1);
    let pieces = rig.zeroed.borrow().clone();
    assert_eq!(pieces.iter().map(|(_, len)| len).sum::<u64>(), 32 * MIB);
    assert!(pieces.windows(2).all(|w| w[0].0 + w[0].1 == w[1].0) && pieces.iter().all(|p| p.1 <= PIECE));
    let share = rig.got as f64 / (rig.got + 32 * MIB) as f64;
    assert!((0.78..0.82).contains(&share), "the tenant got {share} of the device");
    assert!(rig.waited <= Duration::from_micros(LEN / 1024), "one piece at a time: {}", rig.waited);
    assert_eq!(*rig.log.borrow(), ["making", "used"]);
    let number = operate::add(&mut rig.plane, &table(ADD), rig.now).unwrap();
    // The number that the zeroing had is a disk's again.
    assert_eq!(number, 1);
    rig.plane.remove_disk(number, rig.now);
    let works: Vec<Work> = rig.plane.tickets.retired().into_iter().map(Work::Remove).collect();
    assert_eq!(works.len(), 1);
    let Plane { tickets, pools, disks, .. } = &mut rig.plane;
    let ticket = tickets.begin(pools, disks, "new", works, rig.now);
    assert_eq!(rig.run(ticket), Ok(vec![]));
    assert_eq!(*rig.log.borrow(), ["making", "used", "free"]);
}

/// Runs a ticket to make a new disk's part, which fails half-way.
fn failed(rig: &mut Rig) -> String {
    let ticket = begin(rig, ADD);
    // The tenant's own requests fail as well from then on; here only the ticket's outcome matters.
    let worked = loop {
        assert!(
            rig.plane.pools.at_workers().all(|(_, over)| over < 1000),
            "no more are over than were begun"
        );
        rig.plane.pools.list_due(rig.now);
        rig.plane.poll(rig.now);
        while let Some((id, chore)) = rig.plane.tickets.next_chore() {
            let outcome = chore();
            let Plane { tickets, pools, disks, .. } = &mut rig.plane;
            tickets.chore_done(pools, disks, id, outcome, rig.now);
        }
        if let Some((id, worked)) = rig.plane.tickets.next_worked() {
            assert_eq!(id, ticket);
            break worked;
        }
        rig.now = rig.plane.pools.wake_at().map_or(rig.now, |at| at.max(rig.now));
    };
    worked.unwrap_err()
}

/// A ticket that fails half-way takes back what it made, says why, and the next one begins anew.
#[test]
fn what_fails_leaves_nothing() {
    let mut rig = rig(true);
    assert!(failed(&mut rig).contains("zeroing failed"));
    assert_eq!(*rig.log.borrow(), ["making", "free"]);
    assert!(
        operate::add(&mut rig.plane, &table(ADD), rig.now).unwrap_err().contains("would be made in the loop")
    );
}

/// A part that was there is some disk's, with all that was ever written: whatever fails, it stays.
#[test]
fn what_fails_leaves_what_it_found() {
    let mut rig = rig_of(true, true);
    assert!(failed(&mut rig).contains("zeroing failed"));
    assert_eq!(*rig.log.borrow(), ["making"]);
}

/// Whoever would adopt what a former disk left may find nothing, and a whole part has to be made, or to be opened.
#[test]
fn what_is_adopted_is_made_or_opened_beside_the_loop() {
    let mut rig = rig(false);
    let adopt = format!("{ADD}adopt = true\n");
    let ticket = begin(&mut rig, &adopt);
    assert_eq!(rig.run(ticket).map(|made| made.len()), Ok(1));
    assert!(operate::add(&mut rig.plane, &table(&adopt), rig.now).is_ok());
}

/// One part of several cannot be removed: the others go all the same.
#[test]
fn what_cannot_be_removed_keeps_nothing_else() {
    let mut rig = rig(false);
    let part = |name: &str| PartOf {
        gate: 0,
        name: name.into(),
        len: MIB,
        adopt: false,
        origin: Default::default(),
        claim: None,
    };
    let works = ["a", "stuck", "b"].map(|name| Work::Remove(part(name))).into();
    let Plane { tickets, pools, disks, .. } = &mut rig.plane;
    let ticket = tickets.begin(pools, disks, "disk", works, rig.now);
    assert_eq!(rig.run(ticket), Err("it cannot be removed".into()));
    assert_eq!(*rig.log.borrow(), ["free", "free"]);
}

/// A disk was not removed whole, and is removed again: beside the loop, too.
#[test]
fn what_is_left_of_a_disk_is_removed_by_steps() {
    let mut rig = rig(false);
    let part = PartOf {
        gate: 0,
        name: "disk.part0".into(),
        len: MIB,
        adopt: false,
        origin: Default::default(),
        claim: None,
    };
    manage::left_behind(&mut rig.plane, "disk".into(), "it hung", std::slice::from_ref(&part));
    assert!(operate::add(&mut rig.plane, &table("name = \"disk\"\ncapacity = \"1MiB\"\n"), rig.now).is_err());
    assert_eq!(manage::remove_failed(&mut rig.plane, "disk"), [Work::Remove(part)]);
    assert!(rig.plane.disks.failed.is_empty());
}

/// A disk that could not be opened is given up. What is there of it is kept, and its records are written beside the loop.
#[test]
fn what_could_not_be_opened_is_put_aside_by_steps() {
    let mut rig = rig(false);
    rig.plane.disks.failed.insert("disk".into(), Failed::unopened("it is longer".into()));
    let works = manage::remove_failed(&mut rig.plane, "disk");
    assert!(rig.log.borrow().is_empty(), "nothing in the loop");
    let Plane { tickets, pools, disks, .. } = &mut rig.plane;
    let ticket = tickets.begin(pools, disks, "disk", works, rig.now);
    assert_eq!(rig.run(ticket), Ok(Vec::new()));
    assert_eq!(*rig.log.borrow(), ["kept"]);
}

/// Two tickets at one gate go one after the other; of one disk, in their order.
#[test]
fn tickets_at_one_gate_wait_for_each_other() {
    let mut rig = rig(false);
    let first = begin(&mut rig, "name = \"a\"\ncapacity = \"1MiB\"\n");
    let second = begin(&mut rig, "name = \"b\"\ncapacity = \"1MiB\"\n");
    assert_eq!(*rig.log.borrow(), ["making"]);
    assert_eq!(rig.run(first).map(|made| made.len()), Ok(1));
    assert_eq!(rig.run(second).map(|made| made.len()), Ok(1));
    assert_eq!(*rig.log.borrow(), ["making", "used", "making", "used"]);
    // A node that ends begins nothing.
    rig.plane.tickets.close();
    begin(&mut rig, "name = \"c\"\ncapacity = \"1MiB\"\n");
    assert_eq!(rig.log.borrow().len(), 4);
}

/// A node on a device, until it ends without a word.
struct OnDevice {
    dir: tempfile::TempDir,
}

impl OnDevice {
    fn begin(&self, capacity: &str) -> Result<Plane, String> {
        let text = format!(
            "[[pool]]\nname = \"p\"\ndevice = \"{}\"\ndirect = false\n[[disk]]\nname = \"web\"\ncapacity = \"{capacity}\"\n",
            self.dir.path().join("device").display()
        );
        let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap();
        let plane = Plane::open(&config, 0, false, Instant::ZERO).map_err(|e| e.message)?;
        plane.disks.failed.get("web").map_or(Ok(()), |failed| Err(failed.why.clone())).map(|()| plane)
    }
}

/// Does for a request what threads and gates would.
fn prepare(plane: &mut Plane, request: &henge_api::Request) -> Worked {
    let (disk, works) = operate::works_for(plane, request)?;
    let Plane { tickets, pools, disks, .. } = plane;
    let ticket = tickets.begin(pools, disks, &disk, works, Instant::ZERO);
    loop {
        if let Some((id, worked)) = plane.tickets.next_worked() {
            assert_eq!(id, ticket);
            return worked;
        }
        if let Some((id, chore)) = plane.tickets.next_chore() {
            let outcome = std::thread::spawn(chore).join().unwrap();
            let Plane { tickets, pools, disks, .. } = plane;
            tickets.chore_done(pools, disks, id, outcome, Instant::ZERO);
        }
        plane.round.begin(MIB);
        plane.pools.list(0);
        plane.poll(Instant::ZERO);
        std::thread::yield_now();
    }
}

/// A disk was to grow, and could not be remembered with more. It may be asked to have less than that then, and it is served with what is
/// remembered of it, whichever that is.
#[test]
fn a_disk_that_did_not_grow_may_grow_less_and_begin_again() {
    let node = OnDevice { dir: tempfile::tempdir().unwrap() };
    let path = node.dir.path().join("device");
    std::fs::File::create(&path).unwrap().set_len(64 * MIB).unwrap();
    henge_backend::pools::format(&path, "p", false).unwrap();
    let grow = |capacity: &str| henge_api::Request::Grow { name: "web".into(), capacity: capacity.into() };
    let mut plane = node.begin("4MiB").unwrap();
    for refused in ["16MiB", "20MiB"] {
        prepare(&mut plane, &grow(refused)).unwrap();
    }
    drop(plane);
    let mut plane = node.begin("4MiB").unwrap();
    prepare(&mut plane, &grow("24MiB")).unwrap();
    prepare(&mut plane, &grow("8MiB")).unwrap();
    operate::grow(&mut plane, "web", "8MiB").unwrap();
    drop(plane);
    for remembered in ["4MiB", "8MiB"] {
        drop(node.begin(remembered).unwrap());
    }
    assert!(node.begin("6MiB").is_err(), "what was told is not shrunk");
}
