//! The table of a shared disk among three gateways, whose storage, links and seats do what is worst: no answered change is ever lost, and no write
//! is done that each table forbids which held since it came.

use super::moves::Acting;
use super::writer::{Done, ToDo, What, Writer, carry_out};
use super::*;
use crate::config::NodeConfig;
use crate::links::News;
use crate::spread::Seated;
use henge_backend::ImageMetadata;
use henge_config::Source;
use henge_core::Duration;
use henge_iscsi::scsi::{Class, Disk as Lun};
use proptest::prelude::*;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};

const GATEWAYS: usize = 3;
const PORTS: [&str; 3] = ["iqn.a,i,0x1", "iqn.b,i,0x1", "iqn.c,i,0x1"];
const KINDS: [u8; 3] = [1, 5, 8];

/// How a call to the storage goes wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wrong {
    /// It is not done.
    Lost,
    /// It is done, and nobody hears so.
    Unheard,
}

/// What the image's metadata says, and who has its lock: a gateway, and which of all tenures.
#[derive(Default)]
struct Storage {
    text: Option<String>,
    lock: (usize, u64),
    wrong: VecDeque<Option<Wrong>>,
    /// Every table that was ever there.
    history: Vec<Reservations>,
}

struct Lies {
    storage: Arc<Mutex<Storage>>,
    by: (usize, u64),
}

impl Lies {
    fn call<T>(&self, what: impl FnOnce(&mut Storage) -> T) -> io::Result<T> {
        let mut storage = self.storage.lock().unwrap();
        if storage.lock != self.by {
            return Err(io::Error::other("shut out"));
        }
        let wrong = storage.wrong.pop_front().flatten();
        if wrong == Some(Wrong::Lost) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let done = what(&mut storage);
        if wrong == Some(Wrong::Unheard) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(done) }
    }
}

impl ImageMetadata for Lies {
    fn read(&self) -> io::Result<Option<String>> {
        self.call(|storage| storage.text.clone())
    }
    fn write(&self, text: &str) -> io::Result<()> {
        self.call(|storage| {
            storage.history.push(Reservations::restore(text).expect("what is written can be read"));
            storage.text = Some(text.to_owned());
        })
    }
    fn place(&self) -> &str {
        "the image's metadata"
    }
}

/// A write of an initiator: by whom, and the last table that was answered when it came.
#[derive(Clone, Debug)]
struct Write {
    port: usize,
    since: usize,
    id: u64,
}

enum Item {
    Says(Message),
    Has,
    HasNot,
    Part(Write),
    Again(Write),
}

struct Gateway {
    tables: ReservationTables,
    targets: Targets,
    nvme: Fabric,
    links: Links,
    todo: Receiver<ToDo>,
    done: Sender<Done>,
    target: TargetId,
    /// Which tenure, while the seat is here as far as is known here.
    here: Option<u64>,
    there: Option<usize>,
    takes: [bool; GATEWAYS],
    turn: u64,
    acts: bool,
    admitted: BTreeSet<usize>,
    /// Not handed out; handed to a link; at the home.
    held: Vec<Write>,
    queued: Vec<Write>,
    home: Vec<(Option<usize>, Write)>,
    given_up: BTreeSet<u64>,
}

struct World {
    storage: Arc<Mutex<Storage>>,
    gateways: Vec<Gateway>,
    wires: Vec<Vec<Option<VecDeque<Item>>>>,
    now: Instant,
    tenures: u64,
    /// Which table each change made, once it was there.
    made: BTreeMap<u32, usize>,
    changes: BTreeMap<u32, Change>,
    asked: u32,
    open: BTreeSet<u32>,
    answered: usize,
    writes: u64,
    applied: u64,
}

fn name(i: usize) -> String {
    format!("n{}", i + 1)
}

impl Gateway {
    fn new(here: usize, storage: &Arc<Mutex<Storage>>) -> Gateway {
        let _ = storage;
        let mut text = format!(
            "[link]\nname = \"{}\"\nlisten = \"127.0.0.1:1\"\nsecret = \"0123456789abcdef\"\n",
            name(here)
        );
        for other in (0..GATEWAYS).filter(|other| *other != here) {
            text += &format!("[[peer]]\nname = \"{}\"\naddress = \"127.0.0.1:2\"\n", name(other));
        }
        let config = NodeConfig::parse(Source::new("node.toml", text)).unwrap_or_else(|e| panic!("{e}"));
        let epoch = (here as u64 + 1) << 32;
        let mut links = Links::new(config.link.clone(), epoch);
        for peer in config.peers {
            links.add(peer, Some(([127, 0, 0, 1], 2).into())).unwrap();
        }
        let wake = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let wake = Arc::new(wake);
        let (mut targets, nvme) = (Targets::at(here as u16 + 1), Fabric::new(1, true, Arc::clone(&wake)));
        let target = targets.add_hidden("iqn.2026-11.local.henge:web");
        let lun = Lun {
            bytes: 1 << 20,
            block_shift: 9,
            physical_shift: 9,
            thin: true,
            read_only: false,
            reservable: true,
            serial: "7".into(),
            id: 7,
        };
        targets.add_unit(target, 0, lun, Reservations::default());
        let (to_images, todo, done) = Writer::by_hand();
        let mut tables = ReservationTables::writing(epoch, Writer::new(wake, true).unwrap(), Some(to_images));
        tables.follow("web", (target, 0));
        Gateway {
            tables,
            targets,
            nvme,
            links,
            todo,
            done,
            target,
            here: None,
            there: None,
            takes: [false; GATEWAYS],
            turn: 0,
            acts: false,
            admitted: BTreeSet::new(),
            held: Vec::new(),
            queued: Vec::new(),
            home: Vec::new(),
            given_up: BTreeSet::new(),
        }
    }

    fn table(&mut self) -> Reservations {
        self.targets.unit(self.target, 0).unwrap().reservations().clone()
    }

    /// As the plane says it.
    fn seat(&mut self, seated: Seated) {
        (self.turn, self.acts) = (self.turn + 1, false);
        self.admitted.clear();
        self.held.append(&mut self.queued);
        let (disk, turn) = ("web".to_owned(), self.turn);
        self.links.news.push_back(News::Seat { disk, turn, seated });
    }

    fn look_for(&mut self) {
        let found = self.takes.iter().position(|takes| *takes);
        if self.here.is_none() && found != self.there {
            self.there = found;
            self.seat(match found {
                Some(g) => Seated::There(self.links.find(&name(g)).unwrap()),
                None => Seated::Nowhere,
            });
        }
    }

    fn lose(&mut self) {
        self.here = None;
        self.there = None;
        self.seat(Seated::Nowhere);
        self.look_for();
    }
}

impl World {
    fn new() -> World {
        let storage = Arc::default();
        let gateways = (0..GATEWAYS).map(|here| Gateway::new(here, &storage)).collect();
        World {
            storage,
            gateways,
            wires: (0..GATEWAYS).map(|_| (0..GATEWAYS).map(|_| None).collect()).collect(),
            now: Instant::ZERO,
            tenures: 0,
            made: BTreeMap::new(),
            changes: BTreeMap::new(),
            asked: 0,
            open: BTreeSet::new(),
            answered: 0,
            writes: 0,
            applied: 0,
        }
    }

    fn link(&mut self, a: usize, b: usize) {
        if a == b || self.wires[a][b].is_some() {
            return;
        }
        for (one, other) in [(a, b), (b, a)] {
            self.wires[one][other] = Some(VecDeque::new());
            let gateway = &mut self.gateways[one];
            let peer = gateway.links.find(&name(other)).unwrap();
            self.writes += 1;
            let connection = RequestId { slot: self.writes as u32, generation: 0 };
            gateway.links.up(peer, connection, 7);
            gateway.links.connections.push(connection);
            if gateway.here.is_some() && gateway.acts {
                self.wires[one][other].as_mut().unwrap().push_back(Item::Has);
            }
        }
    }

    fn cut(&mut self, a: usize, b: usize) {
        if a == b || self.wires[a][b].is_none() {
            return;
        }
        for (one, other) in [(a, b), (b, a)] {
            let lost = self.wires[one][other].take().unwrap();
            let gateway = &mut self.gateways[one];
            // What had no answer is held, and so is what was handed to the link; what is at the home there is done or not.
            let back = lost
                .into_iter()
                .filter_map(|item| if let Item::Part(write) = item { Some(write) } else { None });
            gateway.held.extend(back.filter(|write| !gateway.given_up.contains(&write.id)));
            let peer = gateway.links.find(&name(other)).unwrap();
            gateway.links.down(peer, "cut", self.now);
            gateway.takes[other] = false;
            gateway.look_for();
        }
        for (one, other) in [(a, b), (b, a)] {
            // Orphans are aborted: they have not begun.
            self.gateways[one].home.retain(|(from, _)| *from != Some(other));
        }
    }

    /// Takes the lock from whoever has it: that one is shut out from then on, whether it knows that or not.
    fn claim(&mut self, g: usize) {
        if self.gateways[g].here.is_some() || self.gateways[g].there.is_some() {
            return;
        }
        self.tenures += 1;
        let by = (g, self.tenures);
        self.storage.lock().unwrap().lock = by;
        self.gateways[g].here = Some(self.tenures);
        let metadata: Arc<dyn ImageMetadata> = Arc::new(Lies { storage: Arc::clone(&self.storage), by });
        self.gateways[g].seat(Seated::Here(Some(metadata)));
    }

    /// The home ends; a gateway that was shut out finds that so.
    fn leave(&mut self, g: usize) {
        let Some(tenure) = self.gateways[g].here else { return };
        for at in (0..self.gateways[g].home.len()).rev() {
            self.apply(g, at);
        }
        let _ = tenure;
        self.gateways[g].lose();
        for other in 0..GATEWAYS {
            if let Some(wire) = &mut self.wires[g][other] {
                wire.push_back(Item::HasNot);
            }
        }
    }

    /// The storage does a write, or has shut the home out.
    fn apply(&mut self, g: usize, at: usize) {
        if at >= self.gateways[g].home.len() {
            return;
        }
        let (from, write) = self.gateways[g].home.remove(at);
        let storage = self.storage.lock().unwrap();
        if self.gateways[g].here.map(|tenure| (g, tenure)) != Some(storage.lock) {
            drop(storage);
            match from {
                None => self.gateways[g].held.push(write),
                Some(from) => {
                    if let Some(wire) = &mut self.wires[g][from] {
                        wire.push_back(Item::Again(write));
                    }
                }
            }
            return;
        }
        let port = PORTS[write.port];
        let free = Reservations::default();
        let tables = storage.history.get(write.since.saturating_sub(1)..).unwrap_or_default();
        let tables = tables.iter().chain((write.since == 0).then_some(&free));
        let may = tables.into_iter().any(|table| !table.conflicts(port, Class::Write));
        assert!(may, "{write:?} is forbidden by every table since it came: {:?}", storage.history);
        self.applied += 1;
    }

    fn settle(&mut self, g: usize) {
        let gateway = &mut self.gateways[g];
        let mut units = Units { targets: &mut gateway.targets, nvme: &mut gateway.nvme, disks: &[] };
        gateway.tables.settle(&mut units, &mut gateway.links, self.now);
        let mut rechecks = false;
        while gateway.tables.next_recheck().is_some() {
            rechecks = true;
        }
        if rechecks {
            let table = gateway.table();
            let stays = |write: &Write| !table.conflicts(PORTS[write.port], Class::Write);
            gateway.held.retain(stays);
            gateway.queued.retain(stays);
            let sent = self.wires[g].iter().flatten().flatten();
            let sent = sent.filter_map(|item| if let Item::Part(write) = item { Some(write) } else { None });
            gateway.given_up.extend(sent.filter(|write| !stays(write)).map(|write| write.id));
            // Those under way whose question was taken off the wire.
            for other in 0..GATEWAYS {
                let back = self.wires[other][g].iter().flatten();
                let back =
                    back.filter_map(|item| if let Item::Again(write) = item { Some(write) } else { None });
                gateway.given_up.extend(back.filter(|write| !stays(write)).map(|write| write.id));
            }
        }
        while let Some(Acting { turn, peer, acts, .. }) = gateway.tables.next_acting() {
            if turn != gateway.turn {
                continue;
            }
            match peer {
                None => {
                    gateway.acts = acts;
                    if acts && gateway.here.is_some() {
                        self.wires[g].iter_mut().flatten().for_each(|wire| wire.push_back(Item::Has));
                    }
                }
                Some(peer) => {
                    let other = gateway.links.peers[peer].as_ref().unwrap().config.name[1..]
                        .parse::<usize>()
                        .unwrap()
                        - 1;
                    if acts {
                        gateway.admitted.insert(other)
                    } else {
                        gateway.admitted.remove(&other)
                    };
                }
            }
        }
        while let Some((_, command, status)) = self.gateways[g].tables.next_decided() {
            self.over(command.slot, status);
        }
    }

    fn over(&mut self, change: u32, status: Status) {
        assert!(self.open.remove(&change), "each is answered once");
        if status == Status::Good {
            let made = self.made.get(&change).expect("what is answered was written before");
            self.answered = self.answered.max(made + 1);
        }
    }

    /// The thread that writes does one thing.
    fn work(&mut self, g: usize) {
        let Ok(todo) = self.gateways[g].todo.try_recv() else { return };
        let before = self.storage.lock().unwrap().history.len();
        let writes = matches!(todo.what, What::Write(_));
        let number = todo.number;
        let done = carry_out(todo);
        let storage = self.storage.lock().unwrap();
        if writes && storage.history.len() > before {
            let table = &self.gateways[g].tables.tables["web"];
            // Of a seat that was let go of the lock is kept until it is written; who asked for it has heard that nobody knows.
            let asker = table.writing.as_ref().filter(|(of, ..)| *of == number).map(|(_, asker, ..)| *asker);
            let change = match asker {
                None => None,
                Some(Asker::Here(_, command)) => Some(command.slot),
                Some(Asker::There(peer, id)) => {
                    let other = &self.gateways[g].links.peers[peer].as_ref().unwrap().config.name;
                    let other = other[1..].parse::<usize>().unwrap() - 1;
                    match self.gateways[other].tables.asked.get(&id) {
                        Some((_, Asker::Here(_, command))) => Some(command.slot),
                        _ => None, // nobody waits for it any more
                    }
                }
            };
            if let Some(change) = change {
                let mut next = match before {
                    0 => Reservations::default(),
                    _ => storage.history[before - 1].clone(),
                };
                let asked = &self.changes[&change];
                assert!(next.apply(asked).is_ok(), "what is written was allowed: {asked:?}");
                assert_eq!(next, storage.history[before], "nothing is lost by {asked:?}");
                self.made.insert(change, before);
            }
        }
        drop(storage);
        let _ = self.gateways[g].done.send(done);
    }

    fn ask(&mut self, g: usize, change: Change) {
        self.asked += 1;
        let number = self.asked;
        self.changes.insert(number, change.clone());
        self.open.insert(number);
        let asker = Asker::Here(RequestId::default(), RequestId { slot: number, generation: 0 });
        let gateway = &mut self.gateways[g];
        if let Some(status) = gateway.tables.ask("web", Asked::Change(change), asker, &mut gateway.links) {
            self.over(number, status);
        }
    }

    /// An initiator's write comes; by the table that is in force there.
    fn write(&mut self, g: usize, port: usize) {
        self.writes += 1;
        if !self.gateways[g].table().conflicts(PORTS[port], Class::Write) {
            let write = Write { port, since: self.answered, id: self.writes };
            self.gateways[g].held.push(write);
        }
    }

    /// What is held goes to where the seat is.
    fn hand_out(&mut self, g: usize) {
        let gateway = &mut self.gateways[g];
        if !gateway.acts {
            return;
        }
        let held = std::mem::take(&mut gateway.held);
        match gateway.here {
            Some(_) => gateway.home.extend(held.into_iter().map(|write| (None, write))),
            None => gateway.queued.extend(held),
        }
    }

    /// A link takes what it is given: parts that were handed to it before, however long ago, and then what is said.
    fn send(&mut self, g: usize, parts: bool) {
        let gateway = &mut self.gateways[g];
        for other in (0..GATEWAYS).filter(|other| *other != g) {
            let peer = gateway.links.find(&name(other)).unwrap();
            let Some(wire) = &mut self.wires[g][other] else { continue };
            if parts && gateway.there == Some(other) {
                wire.extend(gateway.queued.drain(..).map(Item::Part));
            }
            let said = &mut gateway.links.peers[peer].as_mut().unwrap().messages;
            let about = |message: &Message| !matches!(message, Message::Attach { .. });
            wire.extend(said.drain(..).filter(about).map(Item::Says));
        }
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let Some(item) = self.wires[from][to].as_mut().and_then(VecDeque::pop_front) else { return };
        let gateway = &mut self.gateways[to];
        match item {
            Item::Says(message) => {
                let peer = gateway.links.find(&name(from)).unwrap();
                gateway.links.news.push_back(News::Said(peer, message));
            }
            Item::Has => {
                gateway.takes[from] = true;
                if gateway.here.is_none() && gateway.there != Some(from) {
                    gateway.there = Some(from);
                    let peer = gateway.links.find(&name(from)).unwrap();
                    gateway.seat(Seated::There(peer));
                }
            }
            Item::HasNot => {
                gateway.takes[from] = false;
                gateway.look_for();
            }
            Item::Part(write) if gateway.here.is_some() && gateway.admitted.contains(&from) => {
                gateway.home.push((Some(from), write));
            }
            Item::Part(write) => {
                if let Some(wire) = &mut self.wires[to][from] {
                    wire.push_back(Item::Again(write));
                }
            }
            Item::Again(write) if gateway.given_up.contains(&write.id) => {}
            // Still at the link, if that is the gateway with the seat: it goes again without being looked at.
            Item::Again(write) if gateway.there == Some(from) => gateway.queued.push(write),
            Item::Again(write) => gateway.held.push(write),
        }
    }
}

fn change(port: usize, action: u8, kind: u8, key: u8, new: u8) -> Change {
    let (mut cdb, mut list) = ([0; 16], vec![0; 24]);
    (cdb[0], cdb[1], cdb[2]) = (0x5f, action, kind);
    (list[7], list[15]) = (key, new);
    Change { cdb, list, port: PORTS[port].to_owned() }
}

#[derive(Clone, Debug)]
enum Step {
    Settle(usize),
    Work(usize),
    Wait(u64),
    Link(usize, usize),
    Cut(usize, usize),
    Claim(usize),
    Leave(usize),
    Ask(usize, usize, u8, u8),
    Write(usize, usize),
    HandOut(usize),
    Send(usize, bool),
    Deliver(usize, usize),
    Apply(usize, usize),
    Wrong(Option<Wrong>),
}

fn step() -> impl Strategy<Value = Step> {
    let g = 0..GATEWAYS;
    let wrong = prop_oneof![Just(None), Just(Some(Wrong::Lost)), Just(Some(Wrong::Unheard))];
    prop_oneof![
        12 => g.clone().prop_map(Step::Settle),
        6 => g.clone().prop_map(Step::Work),
        2 => prop_oneof![0u64..300, 2000u64..6000].prop_map(Step::Wait),
        2 => (g.clone(), g.clone()).prop_map(|(a, b)| Step::Link(a, b)),
        1 => (g.clone(), g.clone()).prop_map(|(a, b)| Step::Cut(a, b)),
        3 => g.clone().prop_map(Step::Claim),
        1 => g.clone().prop_map(Step::Leave),
        5 => (g.clone(), 0..3usize, 0u8..6, 0u8..3).prop_map(|(g, port, action, kind)| Step::Ask(g, port, action, kind)),
        8 => (g.clone(), 0..3usize).prop_map(|(g, port)| Step::Write(g, port)),
        6 => g.clone().prop_map(Step::HandOut),
        8 => (g.clone(), any::<bool>()).prop_map(|(g, parts)| Step::Send(g, parts)),
        14 => (g.clone(), g.clone()).prop_map(|(a, b)| Step::Deliver(a, b)),
        6 => (g, 0..4usize).prop_map(|(g, at)| Step::Apply(g, at)),
        1 => wrong.prop_map(Step::Wrong),
    ]
}

impl World {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Settle(g) => self.settle(g),
            Step::Work(g) => self.work(g),
            Step::Wait(ms) => self.now += Duration::from_millis(ms),
            Step::Link(a, b) => self.link(a, b),
            Step::Cut(a, b) => self.cut(a, b),
            Step::Claim(g) => self.claim(g),
            Step::Leave(g) => self.leave(g),
            Step::Ask(g, port, action, kind) => {
                let (key, kind) = (port as u8 + 1, KINDS[usize::from(kind)]);
                // REGISTER AND IGNORE, RESERVE, RELEASE, PREEMPT of the next port's key, PREEMPT AND ABORT of it, unregistered
                let other = (key % 3) + 1;
                let (action, new) =
                    [(6, key), (1, 0), (2, 0), (4, other), (5, other), (6, 0)][usize::from(action)];
                self.ask(g, change(port, action, kind, key, new));
            }
            Step::Write(g, port) => self.write(g, port),
            Step::HandOut(g) => self.hand_out(g),
            Step::Send(g, parts) => self.send(g, parts),
            Step::Deliver(a, b) => self.deliver(a, b),
            Step::Apply(g, at) => self.apply(g, at),
            Step::Wrong(wrong) => self.storage.lock().unwrap().wrong.push_back(wrong),
        }
    }

    /// Faults are over.
    fn heal(&mut self) {
        self.storage.lock().unwrap().wrong.clear();
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            self.link(a, b);
        }
        // Whoever was shut out finds that, and somebody has the disk.
        let lock = self.storage.lock().unwrap().lock;
        for g in 0..GATEWAYS {
            if self.gateways[g].here.is_some_and(|tenure| (g, tenure) != lock) {
                self.leave(g);
            }
        }
        for round in 0..400 {
            for g in 0..GATEWAYS {
                self.settle(g);
                self.work(g);
                self.settle(g);
                self.hand_out(g);
                self.send(g, true);
                while !self.gateways[g].home.is_empty() {
                    self.apply(g, 0);
                }
                for other in 0..GATEWAYS {
                    while self.wires[g][other].as_ref().is_some_and(|wire| !wire.is_empty()) {
                        self.deliver(g, other);
                    }
                }
            }
            if round == 2 && self.gateways.iter().all(|gateway| gateway.here.is_none()) {
                self.claim(0);
            }
            self.now += Duration::from_millis(50);
        }
    }

    fn is_well(&mut self) {
        assert!(self.open.is_empty(), "each change is answered: {:?}", self.open);
        let there = self.storage.lock().unwrap().history.last().cloned().unwrap_or_default();
        for g in 0..GATEWAYS {
            assert!(self.gateways[g].acts, "{} acts", name(g));
            assert_eq!(self.gateways[g].table(), there, "{} knows what holds", name(g));
            let waits =
                self.gateways[g].held.len() + self.gateways[g].queued.len() + self.gateways[g].home.len();
            assert_eq!(waits, 0, "nothing waits at {}", name(g));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_reservation_is_lost_and_none_is_passed_by(steps in proptest::collection::vec(step(), 0..400)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.heal();
        world.is_well();
    }
}

/// A world in which `n1` has the disk, and all is well.
fn begun() -> World {
    let mut world = World::new();
    world.claim(0);
    world.heal();
    world.is_well();
    world
}

#[test]
fn a_reservation_goes_with_the_seat_and_a_hung_gateways_writes_do_not() {
    let mut world = begun();
    world.ask(0, change(0, 6, 0, 0, 1));
    world.heal();
    world.ask(1, change(0, 1, 1, 1, 0));
    world.heal();
    world.is_well();
    assert_eq!(world.answered, 2, "both are answered");
    // n1 hangs with a write of each; n2 is linked to it no more, and takes the disk.
    world.write(0, 0);
    world.cut(0, 1);
    world.cut(1, 2);
    world.cut(0, 2);
    world.claim(1);
    (0..3).for_each(|_| {
        world.settle(1);
        world.work(1);
    });
    assert!(world.gateways[1].acts && world.gateways[1].here.is_some());
    let table = world.gateways[1].table();
    assert!(table.conflicts(PORTS[1], Class::Write) && !table.conflicts(PORTS[0], Class::Write));
    // The holder lets go there, another one reserves, and n1 goes on: what it had is forbidden by now.
    for (port, action, key, new) in [(0, 2, 1, 0), (0, 6, 1, 0), (1, 6, 0, 2), (1, 1, 2, 0)] {
        world.ask(1, change(port, action, 1, key, new));
        (0..3).for_each(|_| {
            world.settle(1);
            world.work(1);
        });
    }
    assert_eq!(world.answered, 6, "nobody is waited for");
    world.write(0, 0);
    world.hand_out(0);
    let applied = world.applied;
    world.heal();
    world.is_well();
    assert_eq!(world.applied, applied, "neither write is done");
}

#[test]
fn a_table_that_nobody_understands_closes_the_disk_at_every_gateway_until_it_is_mended() {
    for garbage in ["", "generation seven\n", "reserve 9 iqn.a\n", "\u{fffd}"] {
        let mut world = begun();
        world.ask(0, change(0, 6, 0, 0, 1));
        world.heal();
        world.ask(0, change(0, 1, 1, 1, 0));
        world.heal();
        let good = world.storage.lock().unwrap().text.replace(garbage.into());
        world.leave(0);
        world.claim(1);
        world.heal();
        for g in 0..GATEWAYS {
            assert!(!world.gateways[g].tables.is_good("web"), "{garbage:?} at {}", name(g));
            assert!(world.gateways[g].acts, "clients by NBD go on");
            world.ask(g, change(1, 6, 0, 0, 2));
            assert!(world.open.is_empty(), "it is refused at once");
        }
        world.storage.lock().unwrap().text = good;
        world.heal();
        world.is_well();
        for g in 0..GATEWAYS {
            assert!(world.gateways[g].tables.is_good("web"));
            assert!(
                world.gateways[g].table().conflicts(PORTS[1], Class::Write),
                "{garbage:?}: it is reserved still"
            );
        }
    }
}
