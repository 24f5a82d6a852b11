//! Three gateways, their links and the seat: what moves between them, and what must hold of it.

use super::*;

impl World {
    pub(super) fn new() -> World {
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

    pub(super) fn link(&mut self, a: usize, b: usize) {
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

    pub(super) fn cut(&mut self, a: usize, b: usize) {
        if a == b || self.wires[a][b].is_none() {
            return;
        }
        for (one, other) in [(a, b), (b, a)] {
            let lost = self.wires[one][other].take().unwrap();
            let gateway = &mut self.gateways[one];
            // What had no answer is held, and so is what was handed to the link; what is at the owner there is done or not.
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
            self.gateways[one].at_owner.retain(|(from, _)| *from != Some(other));
        }
    }

    /// Takes the lock from whoever has it: that one is shut out from then on, whether it knows that or not.
    pub(super) fn claim(&mut self, g: usize) {
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

    /// The extent's owner ends; a gateway that was shut out finds that so.
    pub(super) fn leave(&mut self, g: usize) {
        let Some(tenure) = self.gateways[g].here else { return };
        for at in (0..self.gateways[g].at_owner.len()).rev() {
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

    /// The storage does a write, or has shut the extent's owner out.
    pub(super) fn apply(&mut self, g: usize, at: usize) {
        if at >= self.gateways[g].at_owner.len() {
            return;
        }
        let (from, write) = self.gateways[g].at_owner.remove(at);
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

    pub(super) fn settle(&mut self, g: usize) {
        let gateway = &mut self.gateways[g];
        let mut units = Units { targets: &mut gateway.targets, nvme: &mut gateway.nvme, disks: &[] };
        gateway.tables.portion.begin();
        gateway.tables.settle(&mut units, &mut gateway.links, self.now);
        let mut rechecks = false;
        while gateway.tables.verdicts.next_recheck().is_some() {
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
        while let Some(Acting { turn, peer, acts, .. }) = gateway.tables.verdicts.next_acting() {
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
        while let Some((_, command, status)) = self.gateways[g].tables.answers.next_decided() {
            self.over(command.slot, status);
        }
    }

    pub(super) fn over(&mut self, change: u32, status: Status) {
        assert!(self.open.remove(&change), "each is answered once");
        if status == Status::Good {
            let made = self.made.get(&change).expect("what is answered was written before");
            self.answered = self.answered.max(made + 1);
        }
    }

    /// The thread that writes does one thing.
    pub(super) fn work(&mut self, g: usize) {
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
                    match self.gateways[other].tables.passed_on.unanswered.get(&id) {
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

    pub(super) fn ask(&mut self, g: usize, change: Change) {
        self.asked += 1;
        let number = self.asked;
        self.changes.insert(number, change.clone());
        self.open.insert(number);
        let asker = Asker::Here(RequestId::default(), RequestId { slot: number, generation: 0 });
        let gateway = &mut self.gateways[g];
        if let Some(status) = gateway.tables.ask("web", OwnerTask::Change(change), asker, &mut gateway.links)
        {
            self.over(number, status);
        }
    }

    /// An initiator's write comes; by the table that is in force there.
    pub(super) fn write(&mut self, g: usize, port: usize) {
        self.writes += 1;
        if !self.gateways[g].table().conflicts(PORTS[port], Class::Write) {
            let write = Write { port, since: self.answered, id: self.writes };
            self.gateways[g].held.push(write);
        }
    }

    /// What is held goes to where the seat is.
    pub(super) fn hand_out(&mut self, g: usize) {
        let gateway = &mut self.gateways[g];
        if !gateway.acts {
            return;
        }
        let held = std::mem::take(&mut gateway.held);
        match gateway.here {
            Some(_) => gateway.at_owner.extend(held.into_iter().map(|write| (None, write))),
            None => gateway.queued.extend(held),
        }
    }

    /// A link takes what it is given: parts that were handed to it before, however long ago, and then what is said.
    pub(super) fn send(&mut self, g: usize, parts: bool) {
        let gateway = &mut self.gateways[g];
        for other in (0..GATEWAYS).filter(|other| *other != g) {
            let peer = gateway.links.find(&name(other)).unwrap();
            let Some(wire) = &mut self.wires[g][other] else { continue };
            if parts && gateway.there == Some(other) {
                wire.extend(gateway.queued.drain(..).map(Item::Part));
            }
            let said = &mut gateway.links.peers[peer].as_mut().unwrap().outgoing.messages;
            let about = |message: &Message| !matches!(message, Message::Attach { .. });
            wire.extend(said.drain(..).filter(about).map(Item::Says));
        }
    }

    pub(super) fn deliver(&mut self, from: usize, to: usize) {
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
                gateway.at_owner.push((Some(from), write));
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
