//! The seat of a disk whose image several gateways can open: who has it now, and how it goes from one to another.
//!
//! # The problem
//! A gateway keeps nothing of a disk: its bytes are with the cluster behind. So another one can go on where it ended. But one at a time has
//! the locks, the order of writes and the contract, or limits would hold twice and COMPARE AND WRITE not at all.
//!
//! # The rule
//! A shared disk is a disk over nodes with one extent. Its owner is at the gateway that has the image's lock. That one has the *seat*. Every
//! gateway takes clients, and passes what it has not the seat for over a link, as for any disk over nodes. Seats move:
//!
//! | what happens | what is done |
//! |---|---|
//! | nobody says that it has the disk | the thread of [`crate::seats`] finds out whose turn it is; that one claims the image and makes its owner |
//! | the gateway is drained | once another one is linked and takes disks, its owner takes nothing more; once nothing is under way there the image is closed, and the next one claims it |
//! | nobody else takes what a drained gateway has let go of | that gateway has it again, and keeps it until it is drained anew |
//! | the gateway was shut out of the storage | the same; what was under way fails at once, and is handed out again elsewhere |
//! | a link is lost | what was under way there is handed out again once somebody has the seat; it may be the same one |
//!
//! What is handed out again was not answered, so doing it twice does no harm; what compares is not handed out again, and fails. A change that was
//! with a lost gateway is handed out once that one cannot do it any more: it was shut out, or has ended the old link.
//!
//! # Example
//! `n1` has `web`; a client of `n2` has a write on its way there when `n1` dies. `n2` holds the write. Some 3 s later it has shut `n1` out and
//! has the image, and the write is done there. The client has waited, and sees no error.
//!
//! # Guarantee
//! No client sees an error for a seat that moves, but for COMPARE AND WRITE. An answered write is in the storage, whoever answered it.
//!
//! # Price
//! Clients of a gateway without the seat pay for a link. They wait, and are told nothing, while nobody has the seat.

use super::acts::Acts;
use super::extents::{align_of, extent_lens, layout};
use super::{At, FLOW, shape};
use crate::config::DiskConfig;
use crate::plane::tickets::PartOf;
use crate::plane::{Disk, NotAdded, Plane};
use henge_backend::Claim;
use henge_core::{DepthPart, Duration, Fault, Instant, ParamError, RequestId};
use henge_link::lives::TURN;
use henge_vdisk::{Failure, Kind, Part, VirtualDisk};
use std::collections::{BTreeSet, VecDeque};

/// After a claim that failed the next one waits so long.
const AGAIN: Duration = Duration::from_secs(1);
/// Vacant disks told of at once.
const TOLD: usize = 256;

/// What a gateway knows of a shared disk's seat, beside where it is.
#[derive(Debug)]
pub(crate) struct Seat {
    /// The other gateways: peers, and the number of the extent there.
    others: Vec<(usize, u32)>,
    /// Parts whose gateway was lost.
    held: VecDeque<Part>,
    /// An owner that takes nothing more.
    leaving: Option<usize>,
    /// The image is being claimed.
    claiming: bool,
    /// Nobody has it, as far as is known here, since then.
    since: Instant,
    /// It is not claimed before.
    not_before: Instant,
    /// Some gateway had it, so its image is not to be made.
    had: bool,
    /// Why it could not be claimed.
    why: String,
    /// Nobody else took it when this drained gateway had let go of it.
    untaken: bool,
    /// Why this drained gateway has it still.
    stays: String,
    /// By which table of reservations commands go.
    pub(super) acts: Acts,
}

impl Seat {
    /// The next part to be handed out again, where somebody has the seat.
    pub(super) fn next_held(&mut self, at: At) -> Option<Part> {
        if at == At::Nowhere { None } else { self.held.pop_front() }
    }

    /// Where its parts may be.
    pub(super) fn extents(&self) -> impl Iterator<Item = At> {
        let others = self.others.iter().map(|(peer, toward)| At::There(*peer, *toward));
        others.chain(self.leaving.map(At::Here))
    }

    /// Why nobody has it, for people.
    pub(super) fn trouble(&self, at: At) -> Option<String> {
        let why = match at {
            At::Nowhere if !self.why.is_empty() => self.why.as_str(),
            At::Nowhere => "it is looked for",
            _ => return None,
        };
        Some(format!("no gateway has it: {why}"))
    }
}

/// The seats of all shared disks here.
#[derive(Default)]
pub(crate) struct Seats {
    /// Disks that nobody has.
    vacant: BTreeSet<usize>,
    /// Disks whose owners are to go.
    leaving: BTreeSet<usize>,
    /// Disks that came or went just now: peers are to hear of it.
    pub(super) moved: Vec<usize>,
    /// Disks that another gateway has now: initiators and hosts are to hear of it.
    found: Vec<usize>,
    /// This node takes no seats.
    pub drained: bool,
    /// Disks whose commands may go on.
    pub(super) acting: Vec<usize>,
}

impl Seats {
    pub(super) fn forget(&mut self, number: usize) {
        self.vacant.remove(&number);
        self.leaving.remove(&number);
    }
}

/// Why a drained gateway has a disk still.
fn stays(others: &[String], what: &str) -> String {
    format!("this gateway is drained and has it still: none of its others ({}) {what}", others.join(", "))
}

/// A disk that nobody has.
#[derive(Clone, Debug)]
pub(crate) struct Vacant {
    pub name: String,
    pub gateways: Vec<String>,
    /// For so long.
    pub time: Duration,
}

impl Plane {
    /// Makes a disk that several gateways can serve. Where its image was opened for it, it has the seat.
    pub(super) fn add_shared(&mut self, config: DiskConfig, now: Instant) -> Result<usize, NotAdded> {
        let wrong = |message: String| ParamError {
            message: format!("disk \"{}\": {message}", config.name),
            help: None,
            span: config.capacity_span.clone(),
        };
        let settings = henge_vdisk::Settings { owners: true, align: align_of(&config), ..config.settings };
        let layout = layout(&config, config.capacity).map_err(|e| wrong(e.to_string()))?;
        let vdisk = VirtualDisk::new(FLOW, layout, settings).map_err(|e| wrong(e.to_string()))?;
        let len = extent_lens(&config, config.capacity)[0];
        let mut owner = None;
        if let Some(&pool) = config.pools.first() {
            let parts = self.parts_of(&DiskConfig { places: Vec::new(), ..config.clone() }, len, 0);
            let is_open = |part: &PartOf| self.gates[part.gate].pipeline.backend().has_part(&part.name);
            if parts.iter().all(is_open) {
                owner = Some(self.add_extent(&config, pool, 0, len, now)?);
            }
        }
        let number = self.free_number();
        let mut others = Vec::new();
        let here = self.links.here().map(str::to_owned);
        for node in config.gateways.iter().filter(|node| Some(*node) != here.as_ref()) {
            let peer = self.links.find(node).expect("the configuration names peers");
            others.push((peer, self.links.attach(peer, &config.name, number, 0, shape(&config))));
        }
        let mut spread = self.spread(&config, 1);
        spread.extents.push(owner.map_or(At::Nowhere, At::Here));
        spread.units.push(owner.and_then(|owner| self.unit_of(owner)));
        spread.shared = Some(Seat {
            others,
            held: VecDeque::new(),
            leaving: None,
            claiming: false,
            since: now,
            not_before: now,
            had: owner.is_some(),
            why: String::new(),
            untaken: false,
            stays: String::new(),
            acts: Acts::default(),
        });
        match owner {
            Some(owner) => self.disk(owner).extent_of = Some(number),
            None => _ = self.seats.vacant.insert(number),
        }
        let mut disk = Disk::new(config, vdisk, Vec::new());
        disk.spread = Some(Box::new(spread));
        self.put_disk(number, disk);
        self.say_seat(number);
        Ok(number)
    }

    pub(super) fn seat(&mut self, number: usize) -> Option<(&mut At, &mut Seat)> {
        let spread = self.disks.get_mut(number)?.as_mut()?.spread.as_deref_mut()?;
        let seat = spread.shared.as_mut()?;
        Some((&mut spread.extents[0], seat))
    }

    /// The parts that are made when a shared disk is added: the first of its gateways makes them.
    pub(super) fn parts_to_make(&self, config: &DiskConfig, len: u64) -> Vec<PartOf> {
        let first = config.gateways.first().map(String::as_str);
        if first != self.links.here() || !self.is_settled() {
            return Vec::new();
        }
        let claim = Claim { makes: true, known: false, ..self.claim() };
        self.parts_claimed(config, len, claim)
    }

    fn claim(&self) -> Claim {
        let me = self.links.here().unwrap_or_default().to_owned();
        Claim { me, epoch: self.links.epoch, ..Claim::default() }
    }

    fn parts_claimed(&self, config: &DiskConfig, len: u64, claim: Claim) -> Vec<PartOf> {
        let parts = self.parts_of(&DiskConfig { places: Vec::new(), ..config.clone() }, len, 0);
        parts.into_iter().map(|part| PartOf { claim: Some(claim.clone()), ..part }).collect()
    }

    /// Of the depth that all gateways of a gate's storage share, this one has this part.
    pub(crate) fn divide_depth(&mut self, gate: usize, part: DepthPart, now: Instant) {
        self.gates[gate].pipeline.gate_mut().divide_depth(part, now);
        self.list(gate);
    }

    /// Disks on a gate's storage that nobody has, some of them.
    pub(crate) fn vacant(&self, gate: usize, now: Instant) -> Vec<Vacant> {
        let on =
            |config: &DiskConfig| config.pools.first().is_some_and(|p| self.pools[*p].gates.contains(&gate));
        let all = self.seats.vacant.iter().filter_map(|number| self.disks[*number].as_ref());
        let due = all.filter_map(|disk| {
            let seat = disk.spread.as_ref()?.shared.as_ref()?;
            let due = !seat.claiming && seat.not_before <= now && on(&disk.config);
            due.then(|| Vacant {
                name: disk.config.name.clone(),
                gateways: disk.config.gateways.clone(),
                time: now.since(seat.since),
            })
        });
        due.take(TOLD).collect()
    }

    /// Begins to claim a disk's image, if nobody has it: its parts.
    pub(crate) fn begin_claim(&mut self, name: &str, lives: Claim) -> Option<Vec<PartOf>> {
        let number = self.number(name).filter(|number| self.seats.vacant.contains(number))?;
        let config = self.disk(number).config.clone();
        let (at, seat) = self.seat(number)?;
        if *at != At::Nowhere || std::mem::replace(&mut seat.claiming, true) {
            return None;
        }
        let had = seat.had;
        let makes = !had && config.gateways.first().map(String::as_str) == self.links.here();
        let claim = Claim { makes, known: true, dead: lives.dead, alive: lives.alive, ..self.claim() };
        let len = extent_lens(&config, config.capacity)[0];
        Some(self.parts_claimed(&config, len, claim))
    }

    /// A claim is over; parts that are open and not needed are returned.
    pub(crate) fn end_claim(
        &mut self,
        name: &str,
        parts: Vec<PartOf>,
        outcome: Result<(), String>,
        now: Instant,
    ) -> Vec<PartOf> {
        let Some(number) = self.number(name) else { return parts }; // it was removed meanwhile
        let Some((at, seat)) = self.seat(number) else { return parts };
        seat.claiming = false;
        let why = match outcome {
            Ok(()) if *at != At::Nowhere => "another gateway says that it has it".into(),
            Ok(()) => match self.take_seat(number, now) {
                Ok(()) => return Vec::new(),
                Err(why) => why,
            },
            Err(why) => {
                self.not_seated(number, why, now);
                return Vec::new();
            }
        };
        self.not_seated(number, why, now);
        parts
    }

    fn not_seated(&mut self, number: usize, why: String, now: Instant) {
        let Some((_, seat)) = self.seat(number) else { return };
        seat.not_before = now + AGAIN;
        if seat.why != why {
            seat.why.clone_from(&why);
            let name = self.disk(number).config.name.clone();
            self.notice(&name, format!("it cannot be served here now: {why}"));
        }
    }

    fn take_seat(&mut self, number: usize, now: Instant) -> Result<(), String> {
        let config = self.disk(number).config.clone();
        let len = extent_lens(&config, config.capacity)[0];
        let owner = self.add_extent(&config, config.pools[0], 0, len, now).map_err(|e| e.error.message)?;
        self.disk(owner).extent_of = Some(number);
        let (unit, drained, others) = (self.unit_of(owner), self.seats.drained, self.others_of(&config));
        let spread = self.disk(number).spread.as_mut().expect("a shared disk");
        (spread.extents[0], spread.units[0]) = (At::Here(owner), unit);
        let seat = spread.shared.as_mut().expect("a shared disk");
        (seat.had, seat.why) = (true, String::new());
        seat.untaken = drained && now.since(seat.since) >= TURN;
        let mut told = "it is served here now".to_owned();
        if seat.untaken {
            told = stays(&others, "took it in its turn; look at it there, and drain this one again");
            seat.stays.clone_from(&told);
        }
        self.seats.vacant.remove(&number);
        self.seats.moved.push(number);
        self.say_seat(number);
        self.notice(&config.name, told);
        self.links.doubt_no_more_of(number);
        self.hand_out_extents(number, now);
        Ok(())
    }

    /// A gateway says that it takes a disk's parts.
    pub(super) fn seated_there(&mut self, number: usize, there: (usize, u32), now: Instant) {
        let Some((at, seat)) = self.seat(number) else { return };
        if !matches!(at, At::Here(_)) {
            *at = At::There(there.0, there.1);
            (seat.had, seat.why) = (true, String::new());
            self.seats.vacant.remove(&number);
            self.seats.found.push(number);
            self.say_seat(number);
            self.links.doubt_no_more_of(number);
            self.hand_out_extents(number, now);
        }
    }

    /// A gateway says that it does not.
    pub(crate) fn refused_there(&mut self, there: (usize, u32), now: Instant) {
        let disks = self.links.peers[there.0].as_ref().and_then(|peer| peer.disk_of(there.1));
        if let Some(number) = disks {
            self.look_for(number, now);
        }
    }

    /// A link is lost: disks that were served by it are looked for.
    pub(crate) fn lost_link(&mut self, peer: usize, now: Instant) {
        let there = |disk: &Disk| {
            disk.spread
                .as_ref()
                .is_some_and(|s| s.shared.is_some() && matches!(s.extents[0], At::There(p, _) if p == peer))
        };
        let lost = self.disks.iter().enumerate().filter(|(_, disk)| disk.as_ref().is_some_and(there));
        for number in lost.map(|(number, _)| number).collect::<Vec<_>>() {
            self.look_for(number, now);
        }
    }

    /// The gateway that had it may have it no more: another one that says it has, or nobody.
    fn look_for(&mut self, number: usize, now: Instant) {
        let Some((at, seat)) = self.seat(number) else { return };
        let (was, others) = (*at, seat.others.clone());
        if matches!(was, At::Here(_)) {
            return;
        }
        let links = &self.links;
        let takes = |(peer, toward): &&(usize, u32)| {
            links.peers[*peer].as_ref().is_some_and(|peer| peer.takes(*toward))
        };
        let found = others.iter().find(takes).map_or(At::Nowhere, |(peer, toward)| At::There(*peer, *toward));
        if found == was {
            return;
        }
        let (at, seat) = self.seat(number).expect("it was just there");
        *at = found;
        seat.since = now;
        self.say_seat(number);
        let (_, seat) = self.seat(number).expect("it was just there");
        match found {
            At::Nowhere if seat.leaving.is_none() => _ = self.seats.vacant.insert(number),
            At::Nowhere => {}
            _ => {
                self.seats.vacant.remove(&number);
                self.seats.found.push(number);
                self.hand_out_extents(number, now);
            }
        }
    }

    /// A part has not reached its gateway, or that one has not answered: it is handed out again, if it may be.
    pub(super) fn hold(&mut self, number: usize, part: &Part, now: Instant) -> bool {
        let disk = self.disks[number].as_ref().expect("a disk with parts stays");
        // What compares may have been done; what was given up is not to be done any more.
        let again = part.kind != Kind::CompareAndWrite && !disk.vdisk.is_given_up(part.id.command);
        let Some((at, seat)) = self.seat(number) else { return false };
        if again {
            seat.held.push_back(*part);
        }
        if let At::Here(_) = at {
            self.leave(number, "its storage answers that this node was shut out", now);
        } else {
            self.look_for(number, now);
        }
        self.hand_out_extents(number, now);
        again
    }

    /// Whether an owner's storage is another gateway's by now; then it takes nothing more.
    pub(crate) fn is_lost(&mut self, owner: usize, now: Instant) -> bool {
        let Some(number) = self.disks[owner].as_ref().and_then(|disk| disk.extent_of) else { return false };
        let Some((at, seat)) = self.seat(number) else { return false };
        if *at == At::Here(owner) {
            self.leave(number, "its storage answers that this node was shut out", now);
            return true;
        }
        seat.leaving == Some(owner)
    }

    /// The owner here takes nothing more.
    fn leave(&mut self, number: usize, why: &str, now: Instant) {
        let Some((at, seat)) = self.seat(number) else { return };
        let At::Here(owner) = *at else { return };
        *at = At::Nowhere;
        seat.stays.clear();
        (seat.leaving, seat.since) = (Some(owner), now);
        seat.why = why.to_owned();
        self.seats.leaving.insert(number);
        self.seats.moved.push(number);
        self.say_seat(number);
        let name = self.disk(number).config.name.clone();
        self.notice(&name, format!("it is not served here any more: {why}"));
        self.look_for(number, now);
    }

    /// Lets go of the disks on a gate's storage.
    pub(crate) fn leave_all(&mut self, gate: usize, why: &str, now: Instant) {
        self.seated_on(gate).into_iter().for_each(|number| self.leave(number, why, now));
    }

    /// The other gateways of a disk.
    fn others_of(&self, config: &DiskConfig) -> Vec<String> {
        let others = config.gateways.iter().filter(|name| Some(name.as_str()) != self.links.here());
        others.cloned().collect()
    }

    /// The disks on a gate's storage that this node has.
    fn seated_on(&self, gate: usize) -> Vec<usize> {
        let is_on =
            |disk: &Disk| disk.config.pools.first().is_some_and(|p| self.pools[*p].gates.contains(&gate));
        let is_here = |disk: &Disk| {
            let spread = disk.spread.as_ref().filter(|spread| spread.shared.is_some());
            spread.is_some_and(|spread| matches!(spread.extents[0], At::Here(_)))
        };
        let all = self.disks.iter().enumerate();
        let found = all.filter(|(_, disk)| disk.as_ref().is_some_and(|disk| is_here(disk) && is_on(disk)));
        found.map(|(number, _)| number).collect()
    }

    /// This node takes no seats from now on, and lets go of those that others take; or takes them again.
    pub(crate) fn drain(&mut self, on: bool) {
        self.seats.drained = on;
        let seats = self.disks.iter_mut().flatten().filter_map(|disk| disk.spread.as_mut()?.shared.as_mut());
        for seat in seats {
            seat.untaken = false;
            seat.stays.clear();
        }
    }

    /// A drained node lets go of the disks on a gate's storage for which another gateway is linked and takes disks, as `to` says.
    pub(crate) fn let_go(&mut self, gate: usize, to: &[String], now: Instant) {
        if !self.seats.drained {
            return; // no more
        }
        for number in self.seated_on(gate) {
            let others =
                self.disks[number].as_ref().map_or_else(Vec::new, |disk| self.others_of(&disk.config));
            let peer = |name: &str| self.links.peers[self.links.find(name)?].as_ref();
            let is_linked = |name: &str| peer(name).is_some_and(|peer| peer.link.is_some());
            let taken = others.iter().any(|name| to.contains(name) && is_linked(name));
            let Some((_, seat)) = self.seat(number) else { continue };
            if seat.untaken {
                continue;
            }
            if taken {
                self.leave(number, "this gateway is drained", now);
            } else {
                seat.stays = stays(&others, "is linked and takes disks; it moves once one does");
            }
        }
    }

    /// A disk whose peers are to hear where it is.
    pub(crate) fn next_moved(&mut self) -> Option<String> {
        let number = self.seats.moved.pop()?;
        self.disks[number].as_ref().map(|disk| disk.config.name.clone())
    }

    /// A disk to which there is another way.
    pub(crate) fn next_found(&mut self) -> Option<usize> {
        std::iter::from_fn(|| self.seats.found.pop()).find(|number| self.disks[*number].is_some())
    }

    /// A disk whose owner here has nothing under way any more: the owner is gone, and these parts of it are to be closed.
    pub(crate) fn next_left(&mut self, now: Instant) -> Option<(String, Vec<PartOf>)> {
        let quiet = |number: &&usize| {
            let seat = self.disks[**number].as_ref().and_then(|d| d.spread.as_ref()?.shared.as_ref());
            let owner = seat.and_then(|seat| self.disks[seat.leaving?].as_ref());
            owner.is_none_or(|owner| owner.vdisk.pending() == 0)
        };
        let number = *self.seats.leaving.iter().find(quiet)?;
        self.seats.leaving.remove(&number);
        let (_, seat) = self.seat(number)?;
        let owner = seat.leaving?;
        let config = self.disk(owner).config.clone();
        let parts = self.parts_of(&config, config.capacity, 0);
        self.drop_extent(owner, now);
        Some((self.disk(number).config.name.clone(), parts))
    }

    /// Its image is closed: whoever is next may have it.
    pub(crate) fn left(&mut self, name: &str) {
        let Some(number) = self.number(name) else { return };
        let Some((at, seat)) = self.seat(number) else { return };
        seat.leaving = None;
        if *at == At::Nowhere {
            self.seats.vacant.insert(number);
        }
    }

    /// Whether a disk's owner is about to go.
    pub(crate) fn is_moving(&mut self, number: usize) -> bool {
        self.seat(number).is_some_and(|(_, seat)| seat.leaving.is_some() || seat.claiming)
    }

    /// Who has a shared disk, for people.
    pub(crate) fn seat_of(&self, disk: &Disk) -> Option<String> {
        disk.seat(&self.links).map(str::to_owned)
    }

    /// Why this gateway, which is drained, has a shared disk still.
    pub(crate) fn stays(&self, disk: &Disk) -> Option<String> {
        let seat = disk.spread.as_ref()?.shared.as_ref()?;
        Some(seat.stays.clone()).filter(|why| !why.is_empty())
    }

    /// Where parts of these commands may be; those that are held are over.
    pub(super) fn give_up_held(&mut self, number: usize, theirs: &[RequestId]) -> Vec<At> {
        let disk = self.disks[number].as_mut().expect("a disk in use is there");
        let spread = disk.spread.as_deref_mut().expect("a spread disk");
        let mut extents = spread.extents.clone();
        if let Some(seat) = &mut spread.shared {
            extents.retain(|at| matches!(at, At::Here(_)));
            extents.extend(seat.extents());
            let mut over = Vec::new();
            seat.held.retain(|part| {
                let stays = !theirs.contains(&part.id.command);
                over.extend((!stays).then_some(part.id));
                stays
            });
            for id in over {
                disk.vdisk.part_done(id, Err(Failure::Fault(Fault::Cancelled)));
            }
        }
        extents
    }
}

#[cfg(test)]
mod tests;
