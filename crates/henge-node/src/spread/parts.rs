//! A spread disk's parts go to their owners, and come back.

use super::{At, FLOW, INNER, Inner, Spread, across, seating};
use crate::links::{Ask, PARTS_MAX, Return};
use crate::plane::{Disk, Plane, Submitter};
use henge_backend::Buffer;
use henge_core::{Cost, Fault, FlowId, Instant, News, NodeId, RequestId};
use henge_link::{Message, PartKind, WireNews, WirePart, WireUnit};
use henge_vdisk::{Command, Data, Failure, Frame, GateId, Gates, Kind, Part, Portion};

/// Sub-requests of one coordinator under way at owners of other shards: an owner has places for those of all shards there may be.
const ACROSS_MAX: u32 = (1 << 20) / crate::config::pool::CORES_MAX as u32;

/// Room at the extents: never without bound, wherever they are.
struct Capacities<'a> {
    spread: &'a Spread,
    links: &'a crate::links::Links,
}

impl Gates for Capacities<'_> {
    fn has_capacity(&mut self, gate: GateId, _: FlowId) -> bool {
        match self.spread.extents[gate.index()] {
            At::Here(_) => self.spread.inside < PARTS_MAX,
            At::Across(..) => self.spread.inside < ACROSS_MAX,
            At::There(peer, toward) => self.links.has_capacity(peer, toward),
            At::Nowhere => false,
        }
    }
}

/// A sub-request's bytes on loan, or of their own; and where those to compare with stand: there, and in the command's buffer.
#[allow(unsafe_code)] // lends parts of a command's buffer
pub(super) fn loan(disk: &mut Disk, part: &Part, frame: Frame) -> (Buffer, (u64, u64)) {
    let Part { request, .. } = *part;
    let whole = disk.in_flight[part.id.command.index()].as_mut();
    let whole = &mut whole.expect("a pending command has its buffer here").frame;
    let (len, mut verify) = (request.len as usize, (0, 0));
    let buffer = match part.data {
        Data::Frame { at } => {
            // SAFETY: as for the parts of any disk: the frame stays until the command is finished, parts of one
            // command do not overlap (they end at whole blocks, or with the command), and nobody reads it meanwhile. Another
            // shard, too, gives the loan back before the command is finished.
            unsafe { whole.lend((at - frame.lead) as usize, frame.len as usize) }
        }
        Data::Compare { at, verify: from } => {
            let mut own = Buffer::zeroed(frame.len as usize);
            let to = frame.verify.expect("what is compared has room for it") as usize;
            own[frame.lead as usize..][..len].copy_from_slice(&whole[at as usize..][..len]);
            own[to..to + len].copy_from_slice(&whole[from as usize..][..len]);
            verify = (to as u64, from);
            own
        }
        _ => Buffer::zeroed(frame.len as usize),
    };
    (buffer, verify)
}

impl Plane {
    /// Hands a spread disk's parts to their owners.
    pub(crate) fn hand_out_extents(&mut self, number: usize, now: Instant) {
        loop {
            let disk = self.disks[number].as_mut().expect("a disk in use is there");
            let spread = disk.spread.as_deref_mut().expect("a spread disk");
            if spread.shared.as_ref().is_some_and(|seat| !seat.acts.here()) {
                return;
            }
            let held = spread.shared.as_mut().and_then(|seat| seat.next_held(spread.extents[0]));
            let next = held.or_else(|| disk.vdisk.next_part(&mut Capacities { spread, links: &self.links }));
            let Some(part) = next else { return };
            match spread.extents[part.gate.index()] {
                At::Here(owner) => self.give_owner(number, owner, &part, now),
                At::There(peer, toward) => self.give_peer(number, peer, toward, &part, now),
                At::Across(shard, owner) => across::give_across(self, number, (shard, owner), &part),
                At::Nowhere => unreachable!("it has no room"),
            }
        }
    }

    fn give_owner(&mut self, number: usize, owner: usize, part: &Part, now: Instant) {
        let frame = self.disks.of(owner).vdisk.frame(part.kind, part.request.offset, part.request.len);
        let (command, buffer, inner) = self.lend(number, part, frame, None);
        self.submit(owner, command, buffer, Submitter { connection: INNER, command: inner }, now);
    }

    /// A sub-request as its owner takes it, with its command's bytes on loan in a frame as the owner needs it; and its name here. Without a loan
    /// where its bytes are read here.
    pub(super) fn lend(
        &mut self,
        number: usize,
        part: &Part,
        frame: Frame,
        reads: Option<u64>,
    ) -> (Command, Buffer, RequestId) {
        let Part { request, kind, .. } = *part;
        let (buffer, verify) = match reads {
            None => loan(self.disks.of(number), part, frame),
            Some(_) => (Buffer::empty(), (0, 0)),
        };
        let spread = self.disks.of(number).spread.as_mut().expect("a spread disk");
        spread.inside += 1;
        let extent = part.gate.0;
        let foreign = spread.take(extent);
        let inner = self.inner.insert(Inner { disk: number, part: *part, extent, verify, reads });
        let command = Command {
            fua: request.fua,
            // What a relay was told goes on.
            portion: Some(Portion { commands: request.commands, foreign: foreign + request.foreign }),
            ..Command::new(kind, request.offset, request.len, request.arrival, 0)
        };
        (command, buffer, inner)
    }

    #[allow(unsafe_code)] // lends parts of a command's buffer
    fn give_peer(&mut self, number: usize, peer: usize, toward: u32, part: &Part, now: Instant) {
        let Part { request, .. } = *part;
        let disk = self.disks[number].as_mut().expect("a disk in use is there");
        let whole = disk.in_flight[part.id.command.index()].as_mut();
        let whole = &mut whole.expect("a pending command has its buffer here").frame;
        let (len, mut verify) = (request.len as usize, 0);
        let fua = request.fua;
        let kind = match part.kind {
            Kind::Read => PartKind::Read,
            Kind::Write => PartKind::Write { fua },
            Kind::Flush => PartKind::Flush,
            Kind::Trim => PartKind::Trim,
            Kind::WriteZeroes { no_hole } => PartKind::WriteZeroes { no_hole, fua },
            // A turn at its owner, for either.
            Kind::Cache | Kind::Status => PartKind::Cache,
            Kind::CompareAndWrite => PartKind::CompareAndWrite { fua },
        };
        let loan = match part.data {
            _ if part.kind == Kind::Cache => Buffer::empty(), // its bytes stay there
            // SAFETY: as for the parts of any disk: see `give_owner`.
            Data::Frame { at } => unsafe { whole.lend(at as usize, len) },
            Data::Compare { at, verify: from } => {
                let mut both = Buffer::zeroed(2 * len);
                both[..len].copy_from_slice(&whole[at as usize..][..len]);
                both[len..].copy_from_slice(&whole[from as usize..][..len]);
                verify = from;
                both
            }
            _ => Buffer::empty(),
        };
        let ask = Ask { kind, offset: request.offset, len: request.len, commands: request.commands, verify };
        let patient = disk.spread.as_ref().is_some_and(|spread| spread.shared.is_some());
        self.links.send((peer, toward), (number, *part, patient), ask, loan, now);
    }

    /// An owner's command of one of our own coordinators is over.
    pub(crate) fn inner_done(
        &mut self,
        id: RequestId,
        outcome: Result<(), Failure>,
        frame: Buffer,
        cost: Cost,
    ) {
        let inner = self.inner.remove(id).expect("a part at an owner is over once");
        drop(frame);
        let outcome = outcome.map_err(|failure| match failure {
            Failure::Miscompare { at } => Failure::Miscompare { at: at - inner.verify.0 + inner.verify.1 },
            fault => fault,
        });
        let disk = self.disks.of(inner.disk);
        disk.spread.as_mut().expect("a spread disk").inside -= 1;
        let Inner { disk, part, extent, .. } = inner;
        self.links.returns.push_back(Return { disk, part, extent, outcome, cost });
    }

    /// Joins what has come back, and hands out what could not go before.
    pub(crate) fn settle(&mut self, now: Instant) {
        while let Some(back) = self.links.returns.pop_front() {
            let Return { disk: number, part, extent, outcome, cost } = back;
            if outcome == Err(Failure::Fault(Fault::Unreachable)) && seating::hold(self, number, &part, now) {
                continue;
            }
            let disk = self.disks[number].as_mut().expect("a disk with parts stays");
            let spread = disk.spread.as_mut().expect("a spread disk");
            if cost > Cost::ZERO && spread.alike() {
                spread.coordinator.served(FLOW, NodeId(extent), cost, &mut spread.outbox);
            }
            if disk.extent.disk.is_some()
                && let Some(command) = disk.in_flight[part.id.command.index()].as_mut()
            {
                command.cost += cost; // a relay's
            }
            disk.vdisk.part_done(part.id, outcome);
            if !self.disks.of(number).spread.as_ref().is_none_or(|s| s.outbox.is_empty()) {
                self.announce(number, now);
            }
            self.hand_out_extents(number, now);
            self.collect(number, now);
        }
    }

    /// Tells extents of service elsewhere that no part of ours has told them.
    fn announce(&mut self, number: usize, now: Instant) {
        let spread = self.disks[number].as_mut().and_then(|d| d.spread.as_mut()).expect("a spread disk");
        let told: Vec<_> =
            { spread.outbox.drain(..) }.map(|(p, sync)| (spread.extents[p.0 as usize], sync)).collect();
        for (at, sync) in told {
            let News::Total { total, before } = sync.news else { continue };
            match at {
                At::Here(owner) => across::foreign_at(self, owner, total.saturating_sub(before), now),
                At::Across(shard, owner) => {
                    across::announce_across(self, (shard, owner), total.saturating_sub(before));
                }
                At::There(peer, toward) => {
                    let peer = self.links.peer(peer);
                    let Some(link) = peer.link else { continue };
                    peer.counts.announced += 1;
                    peer.outgoing.messages.push_back(Message::Sync {
                        coordinator: true,
                        epoch: sync.epoch,
                        sequence: sync.sequence,
                        flow: toward,
                        news: WireNews::Total { total: total.get(), before: before.get() },
                    });
                    self.links.dirty.push(link);
                }
                At::Nowhere => {}
            }
        }
    }

    /// The next part for a peer's link, with its bytes' number.
    pub(crate) fn next_part_for(&mut self, peer: usize) -> Option<(RequestId, WirePart, usize)> {
        let (id, number, extent) = self.links.peer(peer).next()?;
        let disk = self.disks[number].as_mut().expect("a disk with parts stays");
        let foreign = disk.spread.as_mut().expect("a spread disk").take(extent);
        let (part, data) = self.links.peer(peer).message(id, foreign);
        Some((id, part, data))
    }

    /// A peer takes an extent's parts from now on. What its flow got elsewhere before is not told: nobody could be
    /// served there meanwhile, so nobody has lost anything by it.
    pub(crate) fn attached(
        &mut self,
        (peer, toward): (usize, u32),
        parts: u32,
        bytes: u64,
        unit: WireUnit,
        now: Instant,
    ) {
        let Some((number, extent)) = self.links.peer(peer).attached(toward, parts, bytes) else { return };
        let Some(disk) = self.disks[number].as_mut() else { return };
        let Some(spread) = &mut disk.spread else { return };
        spread.take(extent);
        spread.units[extent as usize] = Some(unit);
        let (name, alike) = (disk.config.name.clone(), spread.alike());
        if !alike {
            let message = format!(
                "the pools of disk \"{name}\" charge different things, so its share of the total is not kept; set one `cost` on all"
            );
            self.links.notices.say(message);
        }
        seating::seated_there(self, number, (peer, toward), now);
    }

    /// Gives up parts of commands that a client does not wait for any more. These are in order.
    pub(crate) fn abort_parts(&mut self, number: usize, theirs: &[RequestId], now: Instant) {
        for at in seating::give_up_held(self, number, theirs) {
            let owner = match at {
                At::Nowhere => continue,
                At::There(peer, toward) => {
                    self.links.cancel((peer, toward), theirs);
                    continue;
                }
                At::Across(shard, owner) => {
                    across::abort_across(self, number, (shard, owner), theirs);
                    continue;
                }
                At::Here(owner) => owner,
            };
            let is_theirs = |i: &Inner| theirs.binary_search(&i.part.id.command).is_ok();
            let ours = |id: &RequestId| self.inner.get(*id).is_some_and(is_theirs);
            let in_flight = self.disks[owner].iter().flat_map(|disk| disk.in_flight.iter().flatten());
            let inside = in_flight.filter(|f| f.submitter.connection == INNER).map(|f| f.submitter.command);
            let mut inside: Vec<RequestId> = inside.filter(ours).collect();
            inside.sort_unstable();
            let is_inside = |s: &Submitter| s.connection == INNER && inside.binary_search(&s.command).is_ok();
            self.abort_those(owner, is_inside, now);
        }
        self.settle(now);
    }
}
