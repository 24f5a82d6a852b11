//! One peer: how it is linked, its extents and their credits, and the parts that it has or will be given.

use super::extents::{Extents, State, Toward};
use super::in_flight::{Ask, InFlight, Return, Sent, Stage, number};
use super::lifetimes::{Doubt, LastLife, Redial, Renewal};
use crate::link_config::PeerConfig;
use henge_core::{Cost, Duration, Fault, Instant, RequestId};
use henge_link::{Message, PartKind, WirePart};
use henge_vdisk::Failure;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// A part for which the peer had no room is sent again after so long.
pub(super) const LATER: Duration = Duration::from_millis(5);

/// What a link did.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    /// Parts sent and answered.
    pub parts: u64,
    /// Of them failed, for whatever reason.
    pub failed: u64,
    /// Parts served for the peer.
    pub served: u64,
    /// Announcements sent: messages for synchronization alone.
    pub announced: u64,
    /// Links that were established.
    pub established: u64,
}

/// Parts and messages that wait for a peer's link.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    queue: VecDeque<RequestId>,
    /// Short messages to be sent.
    pub messages: VecDeque<Message>,
    /// Extents whose parts wait for `later`.
    put_off: Vec<u32>,
    /// Parts that the peer had no room for wait until then.
    later: Option<Instant>,
}

impl Outgoing {
    /// The link has ended: nothing of it is said there.
    pub(super) fn forget(&mut self) {
        self.queue.clear();
        self.messages.clear();
        self.later = None;
        self.put_off.clear();
    }

    /// When parts that the peer had no room for are sent again.
    pub(super) fn later(&self) -> Option<Instant> {
        self.later
    }
}

/// Another node.
#[derive(Debug)]
pub(crate) struct Peer {
    pub config: PeerConfig,
    pub address: SocketAddr,
    /// Its established link.
    pub link: Option<RequestId>,
    pub dialling: Option<RequestId>,
    pub redial: Redial,
    /// Its link has ended while another one is being made: until then, what it had waits for that one.
    pub replaced_until: Option<Instant>,
    pub renewal: Renewal,
    pub(super) doubt: Doubt,
    pub last_life: LastLife,
    /// Why there is no link.
    pub error: Option<String>,
    pub counts: Counts,
    pub extents: Extents,
    pub in_flight: InFlight,
    pub outgoing: Outgoing,
}

impl Peer {
    pub(super) fn new(config: PeerConfig, address: SocketAddr) -> Peer {
        Peer {
            config,
            address,
            link: None,
            dialling: None,
            redial: Redial::new(),
            replaced_until: None,
            renewal: Renewal::new(),
            doubt: Doubt::default(),
            last_life: LastLife::default(),
            error: None,
            counts: Counts::default(),
            extents: Extents::default(),
            in_flight: InFlight::new(),
            outgoing: Outgoing::default(),
        }
    }

    /// An extent more: its number.
    pub(super) fn add(&mut self, toward: Toward) -> u32 {
        let number = self.extents.add(toward);
        match number {
            number if number < self.extents.asked() => self.ask(number),
            number if number == self.extents.asked() => _ = self.ask_more(),
            _ => {} // its turn comes
        }
        number
    }

    /// The parts that its link had go again by the next one. Those that may not be done twice, or that nobody wants, and have been sent.
    pub(super) fn begin_again(&mut self) -> Vec<RequestId> {
        let mut once = Vec::new();
        let mut extents = Vec::new();
        for (id, sent) in self.in_flight.parts.iter_mut() {
            let compares = matches!(sent.ask.kind, PartKind::CompareAndWrite { .. });
            if (compares || sent.unwanted) && sent.is_out() {
                once.push(id);
            }
            extents.push(sent.toward);
        }
        extents.sort_unstable();
        extents.dedup();
        self.extents.begin_life();
        for number in extents {
            let toward = self.extents.of_part(number); // knows nothing of the new link yet
            (toward.parts, toward.bytes) = (0, 0);
            let mut next = toward.newest;
            while let Some(id) = next {
                let sent = self.in_flight.parts.get_mut(id).expect("a chain's parts are there");
                (sent.stage, next) = (Stage::Waiting, sent.older);
                toward.waiting.push_front(id);
            }
        }
        once
    }

    /// Takes a part in; it waits for its credit.
    pub(super) fn take(&mut self, sent: Sent) {
        let number = sent.toward;
        let id = self.in_flight.insert(sent);
        let toward = self.extents.of_part(number);
        toward.pending += 1;
        toward.waiting.push_back(id);
        let older = toward.newest.replace(id);
        self.in_flight.set(id, |sent| sent.older = older);
        self.in_flight.set(older, |sent| sent.newer = Some(id));
    }

    /// The parts of an extent that belong to these commands, the newest first.
    pub(super) fn parts_of(&self, number: u32, commands: &[RequestId]) -> Vec<(RequestId, Stage)> {
        let newest = self.extents.known(number).and_then(|toward| toward.newest);
        self.in_flight.of_commands(newest, commands)
    }

    /// Asks for some more extents. Whether there are more.
    pub(super) fn ask_more(&mut self) -> bool {
        for number in self.extents.next_to_ask() {
            self.ask(number);
        }
        self.extents.has_more_to_ask()
    }

    /// The time until which parts were put off is over.
    pub(super) fn go_on(&mut self) {
        self.outgoing.later = None;
        for number in std::mem::take(&mut self.outgoing.put_off) {
            if let Some(toward) = self.extents.of_link(number) {
                toward.put_off = false;
                self.pump(number);
            }
        }
    }

    /// Asks the peer to take parts of an extent.
    fn ask(&mut self, number: u32) {
        let linked = self.link.is_some();
        let Some(toward) = self.extents.of_link(number) else { return };
        toward.state = State::Asking;
        let (disk, index, shape) = (toward.name.clone(), toward.index, toward.shape);
        if linked {
            self.outgoing.messages.push_back(Message::Attach { extent: number, disk, index, shape });
        }
    }

    /// The peer's word on an extent. The disk, its extent and the unit, where that is attached now.
    pub(crate) fn attached(&mut self, number: u32, parts: u32, bytes: u64) -> Option<(usize, u32)> {
        let toward = self.extents.of_link(number)?;
        toward.state = State::Attached { parts: parts.max(1), bytes };
        let found = (toward.disk, toward.index);
        self.pump(number);
        Some(found)
    }

    /// The peer takes no parts of an extent; those that wait are given up.
    pub(super) fn refused(&mut self, number: u32, why: String, returns: &mut VecDeque<Return>) {
        let Some(toward) = self.extents.of_link(number) else { return };
        toward.state = State::Refused { why, told: false };
        for id in std::mem::take(&mut toward.waiting) {
            let outcome = Err(Failure::Fault(Fault::Unreachable));
            returns.extend(self.over(id, outcome, Cost::ZERO).map(|(_, back)| back));
        }
    }

    /// That an extent is refused, and why, where nobody has been told.
    pub(super) fn complaint(&mut self, number: u32) -> Option<String> {
        let peer = &self.config.name;
        let toward = self.extents.of_link(number)?;
        let State::Refused { why, told } = &mut toward.state else { return None };
        let first = !std::mem::replace(told, true);
        first
            .then(|| format!("commands of disk \"{}\" fail, because {peer} refuses them: {why}", toward.name))
    }

    /// Whether the peer takes parts of an extent now.
    pub(crate) fn takes(&self, number: u32) -> bool {
        let attached = |t: &Toward| self.extents.is_of_link(t) && matches!(t.state, State::Attached { .. });
        self.link.is_some() && self.extents.known(number).is_some_and(attached)
    }

    /// Why an extent is not attached, for people.
    pub(crate) fn trouble(&self, number: u32) -> Option<String> {
        let toward = self.extents.known(number)?;
        match (&toward.state, self.link) {
            (_, None) => Some(self.error.clone().unwrap_or_else(|| "not linked yet".into())),
            (State::Refused { why, .. }, _) if self.extents.is_of_link(toward) => Some(why.clone()),
            (State::Attached { .. }, _) if self.extents.is_of_link(toward) => None,
            _ => Some("asked for, not answered yet".into()),
        }
    }

    /// Lets those go that have a credit. Whether there are any.
    pub(super) fn pump(&mut self, number: u32) -> bool {
        let later = self.outgoing.later.is_some();
        let Some(toward) = self.extents.of_link(number) else { return false };
        let State::Attached { parts, bytes } = toward.state else { return false };
        if later {
            if !toward.waiting.is_empty() && !std::mem::replace(&mut toward.put_off, true) {
                self.outgoing.put_off.push(number);
            }
            return false;
        }
        let mut any = false;
        while let Some(&id) = toward.waiting.front() {
            let sent = self.in_flight.parts.get_mut(id).expect("what waits is pending");
            let len = sent.credit();
            if toward.parts >= parts || (toward.parts > 0 && toward.bytes + len > bytes) {
                break;
            }
            toward.waiting.pop_front();
            sent.stage = Stage::Queued;
            toward.parts += 1;
            toward.bytes += len;
            self.outgoing.queue.push_back(id);
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
        let sent = self.in_flight.parts.remove(id)?;
        let toward = self.extents.of_part(sent.toward);
        toward.pending -= 1;
        if sent.stage == Stage::Waiting {
            toward.waiting.retain(|other| *other != id);
        } else {
            toward.parts -= 1;
            toward.bytes -= sent.credit();
        }
        if sent.newer.is_none() {
            toward.newest = sent.older;
        }
        self.in_flight.set(sent.newer, |newer| newer.older = sent.older);
        self.in_flight.set(sent.older, |older| older.newer = sent.newer);
        self.counts.parts += 1;
        self.counts.failed += u64::from(outcome.is_err());
        let Sent { disk, part, toward, .. } = sent;
        let extent = self.extents.index_of(toward);
        Some((toward, Return { disk, part, extent, outcome, cost }))
    }

    pub(super) fn put_off(&mut self, id: RequestId, now: Instant) {
        let sent = self.in_flight.parts.get_mut(id).expect("it was just there");
        sent.stage = Stage::Waiting;
        let (number, len) = (sent.toward, sent.credit());
        let toward = self.extents.of_part(number);
        toward.parts -= 1;
        toward.bytes -= len;
        toward.waiting.push_front(id);
        self.outgoing.later = Some(now + LATER);
        self.pump(number);
    }

    /// The next part for the link: its disk and extent, and its bytes.
    pub(crate) fn next(&mut self) -> Option<(RequestId, usize, u32)> {
        loop {
            let id = self.outgoing.queue.pop_front()?;
            // It may have been given up meanwhile.
            if let Some(sent) = self.in_flight.parts.get_mut(id).filter(|s| s.stage == Stage::Queued) {
                sent.stage = Stage::Writing;
                return Some((id, sent.disk, self.extents.known_of(sent.toward).index));
            }
        }
    }

    /// The message of a part that `next` gave, and how many bytes follow.
    pub(crate) fn message(&mut self, id: RequestId, foreign: Cost) -> (WirePart, usize) {
        let sent = self.in_flight.parts.get_mut(id).expect("it was just given");
        let toward = self.extents.known_of(sent.toward);
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
}
