//! One peer: its extents and their credits, and the parts that it has or will be given.

use super::{
    Ask, Counts, LATER, Peer, RENEW_LEAST, RENEW_MOST, RESTING, RETRY_LEAST, Return, STEP, Sent, Stage,
    State, Toward, number,
};
use crate::link_config::PeerConfig;
use henge_backend::Buffer;
use henge_core::{Cost, Fault, Instant, Pending, RequestId};
use henge_link::{Message, PartKind, WirePart};
use henge_vdisk::Failure;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// So many deadlines of parts that are over may be remembered, whatever is under way.
const DEADLINES: usize = 1024;

impl Peer {
    pub(super) fn new(config: PeerConfig, address: SocketAddr) -> Peer {
        Peer {
            config,
            address,
            link: None,
            dialling: None,
            retry_at: Instant::ZERO,
            patience: RETRY_LEAST,
            replaced_until: None,
            renew_at: Instant::ZERO,
            renewal: RENEW_LEAST,
            error: None,
            in_doubt: Vec::new(),
            doubted_until: None,
            epoch: None,
            settled: false,
            counts: Counts::default(),
            toward: Vec::new(),
            given_up: VecDeque::new(),
            disks: BTreeMap::new(),
            asked: 0,
            life: 0,
            sent: Pending::new(),
            deadlines: VecDeque::new(),
            put_off: Vec::new(),
            queue: VecDeque::new(),
            messages: VecDeque::new(),
            later: None,
        }
    }

    /// An extent more: its number.
    pub(super) fn add(&mut self, toward: Toward) -> u32 {
        *self.disks.entry(toward.disk).or_insert(0) += 1;
        let rested = self.given_up.len() > RESTING;
        let number = match self.given_up.pop_front_if(|_| rested) {
            Some(number) => {
                self.toward[number as usize] = Some(toward);
                number
            }
            None => {
                self.toward.push(Some(toward));
                self.toward.len() as u32 - 1
            }
        };
        match number {
            number if number < self.asked => self.ask(number),
            number if number == self.asked => _ = self.ask_more(),
            _ => {} // its turn comes
        }
        number
    }

    /// An extent is not used any more.
    pub(super) fn give_up(&mut self, number: u32) {
        let Some(toward) = self.toward[number as usize].take() else { return };
        self.given_up.push_back(number);
        match self.disks.get_mut(&toward.disk) {
            Some(extents) if *extents > 1 => *extents -= 1,
            _ => drop(self.disks.remove(&toward.disk)),
        }
    }

    /// Whether the peer may do a part, and change something, after its link was lost here.
    pub(super) fn may_do(&self, id: RequestId) -> bool {
        self.sent.get(id).is_some_and(|sent| {
            let changes = !matches!(sent.ask.kind, PartKind::Read | PartKind::Flush | PartKind::Cache);
            changes && matches!(sent.stage, Stage::Writing | Stage::Written)
        })
    }

    /// Its link is dialled anew by newer certificates. The other end may have none yet: then it is asked again later.
    pub(crate) fn renewed(&mut self, now: Instant) {
        let again = now < self.renew_at + self.renewal;
        self.renewal = if again { (self.renewal * 2).min(RENEW_MOST) } else { RENEW_LEAST };
        self.renew_at = now + self.renewal;
    }

    /// A part that has been sent is not wanted any more.
    pub(super) fn forsake(&mut self, id: RequestId) {
        if let Some(sent) = self.sent.get_mut(id) {
            sent.unwanted = true;
        }
    }

    /// What was to be said on a link that has ended.
    pub(super) fn forget_said(&mut self) {
        self.queue.clear();
        self.messages.clear();
        self.later = None;
        self.put_off.clear();
    }

    /// The parts that its link had go again by the next one. Those that may not be done twice, or that nobody wants, and have been sent.
    pub(super) fn begin_again(&mut self) -> Vec<RequestId> {
        let mut once = Vec::new();
        let mut extents = Vec::new();
        for (id, sent) in self.sent.iter_mut() {
            let compares = matches!(sent.ask.kind, PartKind::CompareAndWrite { .. });
            if (compares || sent.unwanted) && matches!(sent.stage, Stage::Writing | Stage::Written) {
                once.push(id);
            }
            extents.push(sent.toward);
        }
        extents.sort_unstable();
        extents.dedup();
        self.life += 1;
        for number in extents {
            let toward = self.extent_of(number); // knows nothing of the new link yet
            (toward.parts, toward.bytes) = (0, 0);
            let mut next = toward.newest;
            while let Some(id) = next {
                let sent = self.sent.get_mut(id).expect("a chain's parts are there");
                (sent.stage, next) = (Stage::Waiting, sent.older);
                self.toward[number as usize].as_mut().expect("it is there").waiting.push_front(id);
            }
        }
        once
    }

    /// It has ended its life in order: whatever it answered is durable.
    pub(crate) fn settle(&mut self) {
        self.settled = true;
    }

    /// It is linked in this life. Whether it has begun again, and may have forgotten what it answered.
    pub(super) fn lives(&mut self, epoch: u64) -> bool {
        let settled = std::mem::take(&mut self.settled);
        self.epoch.replace(epoch).is_some_and(|before| before != epoch && !settled)
    }

    /// Whether it was linked in this life before.
    pub(super) fn lived(&self, epoch: u64) -> bool {
        self.epoch == Some(epoch) && !self.settled
    }

    /// The disks with extents there.
    pub(crate) fn disks(&self) -> Vec<usize> {
        self.disks.keys().copied().collect()
    }

    /// A disk with an extent there, if there is any.
    pub(crate) fn a_disk(&self) -> Option<usize> {
        self.disks.keys().next().copied()
    }

    /// The disk of an extent there.
    pub(crate) fn disk_of(&self, number: u32) -> Option<usize> {
        Some(self.toward.get(number as usize)?.as_ref()?.disk)
    }

    /// An extent, as this link knows it: what the last one said of it is forgotten.
    fn extent(&mut self, number: u32) -> Option<&mut Toward> {
        let toward = self.toward.get_mut(number as usize)?.as_mut()?;
        if toward.life != self.life {
            toward.life = self.life;
            toward.waiting.clear();
            toward.put_off = false;
            toward.state = State::Asking;
        }
        Some(toward)
    }

    /// The same, of a part that is there.
    fn extent_of(&mut self, number: u32) -> &mut Toward {
        self.extent(number).expect("an extent with parts stays")
    }

    /// Whether the peer has said that it takes no parts of an extent.
    pub(super) fn refuses(&mut self, number: u32) -> bool {
        matches!(self.extent_of(number).state, State::Refused { .. })
    }

    /// Takes a part in; it waits for its credit.
    pub(super) fn take(&mut self, sent: Sent) {
        let (number, deadline) = (sent.toward, sent.deadline);
        let id = self.sent.insert(sent);
        self.deadlines.extend(deadline.map(|at| (at, id)));
        // Most are over long before. One that is not keeps those behind it: they are let go once they are as many as all that
        // are under way.
        for _ in 0..2 {
            self.deadlines.pop_front_if(|(_, id)| self.sent.get(*id).is_none());
        }
        if self.deadlines.len() > 2 * self.sent.len() + DEADLINES {
            self.deadlines.retain(|(_, id)| self.sent.get(*id).is_some());
        }
        let toward = self.extent_of(number);
        toward.pending += 1;
        toward.waiting.push_back(id);
        let older = toward.newest.replace(id);
        self.chain(id, |sent| sent.older = older);
        self.chain(older, |sent| sent.newer = Some(id));
    }

    fn chain(&mut self, id: impl Into<Option<RequestId>>, set: impl FnOnce(&mut Sent)) {
        if let Some(sent) = id.into().and_then(|id| self.sent.get_mut(id)) {
            set(sent);
        }
    }

    /// The parts of an extent that belong to these commands, the newest first.
    pub(super) fn parts_of(&self, number: u32, commands: &[RequestId]) -> Vec<(RequestId, Stage)> {
        let mut found = Vec::new();
        let mut next = self.toward[number as usize].as_ref().and_then(|toward| toward.newest);
        while let Some(id) = next {
            let sent = self.sent.get(id).expect("a chain's parts are there");
            if commands.contains(&sent.part.id.command) {
                found.push((id, sent.stage));
            }
            next = sent.older;
        }
        found
    }

    /// The parts that should have been answered by now.
    pub(super) fn late(&mut self, now: Instant) -> Vec<(RequestId, Stage)> {
        let mut late = Vec::new();
        while let Some((at, id)) = self.deadlines.front().copied() {
            match self.sent.get(id) {
                Some(_) if at > now => break,
                Some(sent) => late.push((id, sent.stage)),
                None => {}
            }
            self.deadlines.pop_front();
        }
        late
    }

    /// Asks for some more extents. Whether there are more.
    pub(super) fn ask_more(&mut self) -> bool {
        let end = (self.asked + STEP).min(self.toward.len() as u32);
        for number in self.asked..end {
            self.ask(number);
        }
        self.asked = end;
        end < self.toward.len() as u32
    }

    /// The time until which parts were put off is over.
    pub(super) fn go_on(&mut self) {
        self.later = None;
        for number in std::mem::take(&mut self.put_off) {
            if let Some(toward) = self.extent(number) {
                toward.put_off = false;
                self.pump(number);
            }
        }
    }

    /// Asks the peer to take parts of an extent.
    fn ask(&mut self, number: u32) {
        let linked = self.link.is_some();
        let Some(toward) = self.extent(number) else { return };
        toward.state = State::Asking;
        let (disk, index, shape) = (toward.name.clone(), toward.index, toward.shape);
        if linked {
            self.messages.push_back(Message::Attach { extent: number, disk, index, shape });
        }
    }

    /// The peer's word on an extent. The disk, its extent and the unit, where that is attached now.
    pub(crate) fn attached(&mut self, number: u32, parts: u32, bytes: u64) -> Option<(usize, u32)> {
        let toward = self.extent(number)?;
        toward.state = State::Attached { parts: parts.max(1), bytes };
        let found = (toward.disk, toward.index);
        self.pump(number);
        Some(found)
    }

    /// The peer takes no parts of an extent; those that wait are given up.
    pub(super) fn refused(&mut self, number: u32, why: String, returns: &mut VecDeque<Return>) {
        let Some(toward) = self.extent(number) else { return };
        toward.state = State::Refused { why, told: false };
        for id in std::mem::take(&mut toward.waiting) {
            let outcome = Err(Failure::Fault(Fault::Unreachable));
            returns.extend(self.over(id, outcome, Cost::ZERO).map(|(_, back)| back));
        }
    }

    /// That an extent is refused, and why, where nobody has been told.
    pub(super) fn complaint(&mut self, number: u32) -> Option<String> {
        let peer = self.config.name.clone();
        let toward = self.extent(number)?;
        let State::Refused { why, told } = &mut toward.state else { return None };
        let first = !std::mem::replace(told, true);
        first
            .then(|| format!("commands of disk \"{}\" fail, because {peer} refuses them: {why}", toward.name))
    }

    /// Whether the peer takes parts of an extent now.
    pub(crate) fn takes(&self, number: u32) -> bool {
        let toward = self.toward.get(number as usize).and_then(Option::as_ref);
        let attached = |t: &Toward| t.life == self.life && matches!(t.state, State::Attached { .. });
        self.link.is_some() && toward.is_some_and(attached)
    }

    /// Why an extent is not attached, for people.
    pub(crate) fn trouble(&self, number: u32) -> Option<String> {
        let toward = self.toward.get(number as usize)?.as_ref()?;
        match (&toward.state, self.link) {
            (_, None) => Some(self.error.clone().unwrap_or_else(|| "not linked yet".into())),
            (State::Refused { why, .. }, _) if toward.life == self.life => Some(why.clone()),
            (State::Attached { .. }, _) if toward.life == self.life => None,
            _ => Some("asked for, not answered yet".into()),
        }
    }

    /// Lets those go that have a credit. Whether there are any.
    pub(super) fn pump(&mut self, number: u32) -> bool {
        let later = self.later.is_some();
        let Some(toward) = self.extent(number) else { return false };
        let State::Attached { parts, bytes } = toward.state else { return false };
        if later {
            if !toward.waiting.is_empty() && !std::mem::replace(&mut toward.put_off, true) {
                self.put_off.push(number);
            }
            return false;
        }
        let toward = self.toward[number as usize].as_mut().expect("it is there");
        let mut any = false;
        while let Some(&id) = toward.waiting.front() {
            let sent = self.sent.get_mut(id).expect("what waits is pending");
            let len = if sent.loan.is_empty() { 0 } else { sent.ask.len };
            if toward.parts >= parts || (toward.parts > 0 && toward.bytes + len > bytes) {
                break;
            }
            toward.waiting.pop_front();
            sent.stage = Stage::Queued;
            toward.parts += 1;
            toward.bytes += len;
            self.queue.push_back(id);
            any = true;
        }
        any
    }

    /// Takes a part out.
    pub(super) fn over(
        &mut self,
        id: RequestId,
        outcome: Result<(), Failure>,
        cost: Cost,
    ) -> Option<(u32, Return)> {
        let sent = self.sent.remove(id)?;
        let toward = self.extent_of(sent.toward);
        toward.pending -= 1;
        if sent.stage == Stage::Waiting {
            toward.waiting.retain(|other| *other != id);
        } else {
            toward.parts -= 1;
            toward.bytes -= if sent.loan.is_empty() { 0 } else { sent.ask.len };
        }
        if sent.newer.is_none() {
            toward.newest = sent.older;
        }
        self.chain(sent.newer, |newer| newer.older = sent.older);
        self.chain(sent.older, |older| older.newer = sent.newer);
        self.counts.parts += 1;
        self.counts.failed += u64::from(outcome.is_err());
        let Sent { disk, part, toward, .. } = sent;
        let extent = self.toward[toward as usize].as_ref().map_or(0, |t| t.index);
        Some((toward, Return { disk, part, extent, outcome, cost }))
    }

    pub(super) fn put_off(&mut self, id: RequestId, now: Instant) {
        let sent = self.sent.get_mut(id).expect("it was just there");
        sent.stage = Stage::Waiting;
        let (number, len) = (sent.toward, if sent.loan.is_empty() { 0 } else { sent.ask.len });
        let toward = self.extent_of(number);
        toward.parts -= 1;
        toward.bytes -= len;
        toward.waiting.push_front(id);
        self.later = Some(now + LATER);
        self.pump(number);
    }

    /// The next part for the link: its disk and extent, and its bytes.
    pub(crate) fn next(&mut self) -> Option<(RequestId, usize, u32)> {
        loop {
            let id = self.queue.pop_front()?;
            // It may have been given up meanwhile.
            if let Some(sent) = self.sent.get_mut(id).filter(|s| s.stage == Stage::Queued) {
                sent.stage = Stage::Writing;
                let toward = self.toward[sent.toward as usize].as_ref().expect("an extent with parts stays");
                return Some((id, sent.disk, toward.index));
            }
        }
    }

    /// The message of a part that `next` gave, and how many bytes follow.
    pub(crate) fn message(&mut self, id: RequestId, foreign: Cost) -> (WirePart, usize) {
        let sent = self.sent.get_mut(id).expect("it was just given");
        let toward = self.toward[sent.toward as usize].as_mut().expect("an extent with parts stays");
        let before = toward.carried;
        toward.carried += foreign.get();
        let Ask { kind, offset, len, commands, .. } = sent.ask;
        let (extent, foreign) = (sent.toward, toward.carried);
        let data = sent.ask.data();
        if data == 0 {
            sent.stage = Stage::Written;
        }
        (WirePart { id: number(id), extent, kind, offset, len, commands, foreign, before }, data)
    }

    /// The bytes of a part: to be written, or to be read into.
    pub(crate) fn bytes(&mut self, id: RequestId) -> Option<&mut Buffer> {
        self.sent.get_mut(id).map(|sent| &mut sent.loan)
    }

    /// The same, to be read.
    pub(crate) fn loan(&self, id: RequestId) -> &Buffer {
        &self.sent.get(id).expect("a part stays until its bytes are written").loan
    }

    /// Whether a part is a read of some bytes.
    pub(crate) fn is_read(&self, id: RequestId) -> bool {
        self.sent.get(id).is_some_and(|s| s.ask.kind == PartKind::Read && s.ask.len > 0)
    }

    /// Whether a part expects `len` bytes as its answer.
    pub(crate) fn expects(&self, id: RequestId, len: usize) -> bool {
        self.sent
            .get(id)
            .is_some_and(|s| s.stage == Stage::Written && s.ask.kind == PartKind::Read && s.loan.len() == len)
    }

    /// Its bytes are in the socket.
    pub(crate) fn written(&mut self, id: RequestId) {
        if let Some(sent) = self.sent.get_mut(id) {
            sent.stage = Stage::Written;
        }
    }

    /// Parts sent or waiting.
    pub(crate) fn pending(&self) -> usize {
        self.sent.len()
    }
}
