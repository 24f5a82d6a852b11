//! Links that are made, lost, and dialled again.

use super::in_flight::Stage;
use super::lifetimes::RETRY_LEAST;
use super::{Links, News};
use henge_core::{Cost, Duration, Fault, Instant, RequestId};
use henge_vdisk::Failure;

/// A link that ends while another to the same peer is being made is taken for replaced for so long.
const REPLACED: Duration = Duration::from_secs(2);
/// How often parts are looked at for their deadline.
pub(super) const LOOK: Duration = Duration::from_millis(250);

impl Links {
    /// A peer's link is established; all extents are attached anew. Whether the peer may have forgotten what it answered before.
    pub(crate) fn up(&mut self, p: usize, connection: RequestId, epoch: u64) -> bool {
        let peer = self.peer(p);
        (peer.link, peer.error) = (Some(connection), None);
        peer.redial.linked();
        peer.dialling = peer.dialling.filter(|id| *id != connection);
        peer.counts.established += 1;
        peer.extents.ask_again();
        let more = peer.ask_more();
        let forgot = peer.last_life.lives(epoch) && peer.extents.a_disk().is_some();
        let name = peer.config.name.clone();
        self.notices.forget();
        self.notices.say(format!("linked to {name}"));
        if forgot {
            self.notices.say(format!(
                "{name} has begun again, and may have lost writes that no FLUSH covered: each client of a disk with an extent there is \
                 told by one FLUSH that fails"
            ));
        }
        self.news.push_back(News::Up(p));
        self.doubt_no_more(p);
        self.touch(p);
        if more {
            self.alarm.now();
        }
        forgot
    }

    /// A link has ended while another to the same peer is being made: whether what it had waits for that one. The other end lets go of
    /// the old one as soon as it has the new one, which this end may see later.
    pub(crate) fn wait_for_next(&mut self, p: usize, ended: RequestId, now: Instant) -> bool {
        let until = now + REPLACED;
        let peer = self.peer(p);
        if peer.link != Some(ended) || peer.dialling.is_none_or(|next| next == ended) {
            return false;
        }
        (peer.link, peer.replaced_until) = (None, Some(until));
        self.alarm.by(until);
        true
    }

    /// A peer is linked by a connection that may replace another one. If it lives on, what that one had under way goes again by this one:
    /// the peer has ended it by then, as this end does next, and what the peer has begun of it holds its slot until it is over.
    pub(crate) fn replace(&mut self, p: usize, connection: RequestId, epoch: u64, now: Instant) {
        let Some(peer) = self.peers[p].as_mut() else { return };
        let waited = peer.replaced_until.is_some();
        if !waited && peer.link.is_none_or(|link| link == connection) {
            return;
        }
        if !peer.last_life.lived(epoch) {
            if waited {
                self.down(p, "the other node has started anew", now);
            }
            return;
        }
        (peer.link, peer.replaced_until) = (None, None);
        peer.outgoing.forget();
        for id in peer.begin_again() {
            if let Some((_, back)) = peer.over(id, Err(Failure::Fault(Fault::Unreachable)), Cost::ZERO) {
                self.returns.push_back(back);
            }
        }
    }

    /// A peer's link is lost: what it had is over at once.
    pub(crate) fn down(&mut self, p: usize, why: &str, now: Instant) {
        let Some(peer) = self.peers[p].as_mut() else { return };
        (peer.link, peer.replaced_until) = (None, None);
        peer.outgoing.forget();
        peer.in_flight.forget_deadlines();
        peer.extents.begin_life();
        let ids: Vec<RequestId> = peer.in_flight.parts.iter().map(|(id, _)| id).collect();
        for id in ids {
            let unreachable = Err(Failure::Fault(Fault::Unreachable));
            let in_doubt = peer.in_flight.may_be_done(id);
            if let Some((_, back)) = peer.over(id, unreachable, Cost::ZERO) {
                match in_doubt {
                    true => peer.doubt.add(back),
                    false => self.returns.push_back(back),
                }
            }
        }
        let until = peer.doubt.begin(now);
        self.news.push_back(News::Down(p));
        peer.error.get_or_insert_with(|| why.to_owned());
        let name = peer.config.name.clone();
        self.failed(p, why, now);
        if let Some(until) = until {
            self.alarm.by(until);
        }
        self.notices.say(format!("the link to {name} is lost: {why}"));
    }

    /// Nothing that came by a former link can be done there any more.
    pub(crate) fn doubt_no_more(&mut self, p: usize) {
        let over = self.peer(p).doubt.end();
        self.returns.extend(over);
    }

    /// A disk's storage has shut out whoever had it before: nothing that peers have of it can be done any more.
    pub(crate) fn doubt_no_more_of(&mut self, disk: usize) {
        for peer in self.peers.iter_mut().flatten() {
            self.returns.extend(peer.doubt.end_of(disk));
        }
    }

    /// A link was not made or did not last: when it is dialled again.
    pub(crate) fn failed(&mut self, p: usize, why: &str, now: Instant) {
        let peer = self.peer(p);
        peer.dialling = None;
        peer.error = Some(why.to_owned());
        let at = peer.redial.failed(now);
        self.alarm.by(at);
    }

    /// Ends what has taken too long. Links that are stuck in the middle of such a part are named.
    pub(crate) fn tick(&mut self, now: Instant, stuck: &mut Vec<RequestId>) {
        self.alarm.off();
        for p in 0..self.peers.len() {
            let Some(peer) = &mut self.peers[p] else { continue };
            if peer.outgoing.later().is_some_and(|at| at <= now) {
                peer.go_on();
                self.dirty.extend(peer.link);
            }
            let more = peer.link.is_some() && peer.ask_more();
            if more {
                self.dirty.extend(peer.link);
            }
            let late = peer.in_flight.late(now);
            if peer.replaced_until.is_some_and(|until| until <= now) {
                self.lost.push(p);
            }
            let doubted = peer.doubt.until();
            let at = [
                doubted,
                peer.outgoing.later(),
                peer.replaced_until,
                more.then_some(now),
                (!peer.in_flight.is_empty()).then_some(now + LOOK),
            ];
            let dial = (peer.link.is_none() && peer.dialling.is_none())
                .then_some(peer.redial.at.max(now + RETRY_LEAST));
            if let Some(at) = at.into_iter().chain([dial]).flatten().min() {
                self.alarm.by(at);
            }
            if doubted.is_some_and(|until| until <= now) {
                self.doubt_no_more(p);
            }
            for (id, stage) in late {
                if stage == Stage::Writing {
                    stuck.extend(self.peer(p).link);
                } else {
                    self.over(p, id, Err(Failure::Fault(Fault::Unreachable)), Cost::ZERO);
                }
            }
        }
    }
}
