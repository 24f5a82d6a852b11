//! One peer: its places and their credits, and the parts that it has or will be given.

use super::{Ask, Counts, LATER, Peer, RETRY_LEAST, Return, Sent, Stage, State, number};
use crate::link_config::PeerConfig;
use henge_backend::Buffer;
use henge_core::{Cost, Fault, Instant, Pending, RequestId};
use henge_link::{Message, PartKind, WirePart};
use henge_vdisk::Failure;
use std::collections::VecDeque;
use std::net::SocketAddr;

impl Peer {
    pub(super) fn new(config: PeerConfig, address: SocketAddr) -> Peer {
        Peer {
            config,
            address,
            link: None,
            dialling: None,
            retry_at: Instant::ZERO,
            patience: RETRY_LEAST,
            error: None,
            counts: Counts::default(),
            toward: Vec::new(),
            sent: Pending::new(),
            queue: VecDeque::new(),
            messages: VecDeque::new(),
            later: None,
        }
    }

    /// Asks the peer to take parts of a place.
    pub(super) fn ask(&mut self, number: u32) {
        let Some(toward) = self.toward[number as usize].as_mut() else { return };
        toward.state = State::Asking;
        if self.link.is_some() {
            self.messages.push_back(Message::Attach {
                place: number,
                disk: toward.name.clone(),
                index: toward.index,
                shape: toward.shape,
            });
        }
    }

    /// The peer's word on a place. The disk, its place and the unit, where that is attached now.
    pub(crate) fn attached(&mut self, number: u32, parts: u32, bytes: u64) -> Option<(usize, u32)> {
        let toward = self.toward.get_mut(number as usize)?.as_mut()?;
        toward.state = State::Attached { parts: parts.max(1), bytes };
        let found = (toward.disk, toward.index);
        self.pump(number);
        Some(found)
    }

    /// The peer takes no parts of a place; those that wait are given up.
    pub(crate) fn refused(&mut self, number: u32, why: String, returns: &mut VecDeque<Return>) {
        let Some(Some(toward)) = self.toward.get_mut(number as usize) else { return };
        toward.state = State::Refused(why);
        for id in std::mem::take(&mut toward.waiting) {
            let outcome = Err(Failure::Fault(Fault::Unreachable));
            returns.extend(self.over(id, outcome, Cost::ZERO).map(|(_, back)| back));
        }
    }

    /// Why a place is not attached, for people.
    pub(crate) fn trouble(&self, number: u32) -> Option<String> {
        let toward = self.toward.get(number as usize)?.as_ref()?;
        match (&toward.state, self.link) {
            (_, None) => Some(self.error.clone().unwrap_or_else(|| "not linked yet".into())),
            (State::Refused(why), _) => Some(why.clone()),
            _ => None,
        }
    }

    /// Lets those go that have a credit. Whether there are any.
    pub(super) fn pump(&mut self, number: u32) -> bool {
        if self.later.is_some() {
            return false;
        }
        let Some(toward) = self.toward[number as usize].as_mut() else { return false };
        let State::Attached { parts, bytes } = toward.state else { return false };
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
        let toward = self.toward[sent.toward as usize].as_mut().expect("a place with parts stays");
        toward.pending -= 1;
        if sent.stage == Stage::Waiting {
            toward.waiting.retain(|other| *other != id);
        } else {
            toward.parts -= 1;
            toward.bytes -= if sent.loan.is_empty() { 0 } else { sent.ask.len };
        }
        self.counts.parts += 1;
        self.counts.failed += u64::from(outcome.is_err());
        let Sent { disk, part, toward, .. } = sent;
        let place = self.toward[toward as usize].as_ref().map_or(0, |t| t.index);
        Some((toward, Return { disk, part, place, outcome, cost }))
    }

    pub(super) fn put_off(&mut self, id: RequestId, now: Instant) {
        let sent = self.sent.get_mut(id).expect("it was just there");
        sent.stage = Stage::Waiting;
        let toward = self.toward[sent.toward as usize].as_mut().expect("a place with parts stays");
        toward.parts -= 1;
        toward.bytes -= if sent.loan.is_empty() { 0 } else { sent.ask.len };
        toward.waiting.push_front(id);
        self.later = Some(now + LATER);
    }

    /// The next part for the link: its disk and place, and its bytes.
    pub(crate) fn next(&mut self) -> Option<(RequestId, usize, u32)> {
        loop {
            let id = self.queue.pop_front()?;
            // It may have been given up meanwhile.
            if let Some(sent) = self.sent.get_mut(id).filter(|s| s.stage == Stage::Queued) {
                sent.stage = Stage::Writing;
                let toward = self.toward[sent.toward as usize].as_ref().expect("a place with parts stays");
                return Some((id, sent.disk, toward.index));
            }
        }
    }

    /// The message of a part that `next` gave, and how many bytes follow.
    pub(crate) fn message(&mut self, id: RequestId, foreign: Cost) -> (WirePart, usize) {
        let sent = self.sent.get_mut(id).expect("it was just given");
        let toward = self.toward[sent.toward as usize].as_mut().expect("a place with parts stays");
        let before = toward.carried;
        toward.carried += foreign.get();
        let Ask { kind, offset, len, commands, .. } = sent.ask;
        let (place, foreign) = (sent.toward, toward.carried);
        let data = sent.ask.data();
        if data == 0 {
            sent.stage = Stage::Written;
        }
        (WirePart { id: number(id), place, kind, offset, len, commands, foreign, before }, data)
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

    /// Whether a part expects so many bytes as its answer.
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
