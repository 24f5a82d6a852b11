//! Links that are made, lost, and dialled again.

use super::{IN_DOUBT, LOOK, Links, News, REPLACED, RETRY_LEAST, RETRY_MOST, Stage};
use henge_core::{Cost, Fault, Instant, RequestId};
use henge_vdisk::Failure;

impl Links {
    /// A peer's link is established; all extents are attached anew. Whether the peer may have forgotten what it answered before.
    pub(crate) fn up(&mut self, p: usize, connection: RequestId, epoch: u64) -> bool {
        let peer = self.peer(p);
        (peer.link, peer.error, peer.patience) = (Some(connection), None, RETRY_LEAST);
        peer.dialling = peer.dialling.filter(|id| *id != connection);
        peer.counts.established += 1;
        peer.asked = 0;
        let more = peer.ask_more();
        let forgot = peer.lives(epoch) && peer.a_disk().is_some();
        let name = peer.config.name.clone();
        self.said.clear();
        self.say(format!("linked to {name}"));
        if forgot {
            self.say(format!(
                "{name} has begun again, and may have lost writes that no FLUSH covered: each client of a disk with an extent there is \
                 told by one FLUSH that fails"
            ));
        }
        self.news.push_back(News::Up(p));
        self.doubt_no_more(p);
        self.touch(p);
        if more {
            self.wake_now();
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
        self.wake_by(until);
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
        if !peer.lived(epoch) {
            if waited {
                self.down(p, "the other node has started anew", now);
            }
            return;
        }
        (peer.link, peer.replaced_until) = (None, None);
        peer.forget_said();
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
        peer.forget_said();
        peer.deadlines.clear();
        peer.life += 1;
        let ids: Vec<RequestId> = peer.sent.iter().map(|(id, _)| id).collect();
        for id in ids {
            let unreachable = Err(Failure::Fault(Fault::Unreachable));
            let in_doubt = peer.may_do(id);
            if let Some((_, back)) = peer.over(id, unreachable, Cost::ZERO) {
                match in_doubt {
                    true => peer.in_doubt.push(back),
                    false => self.returns.push_back(back),
                }
            }
        }
        peer.doubted_until = (!peer.in_doubt.is_empty()).then_some(now + IN_DOUBT);
        let until = peer.doubted_until;
        self.news.push_back(News::Down(p));
        peer.error.get_or_insert_with(|| why.to_owned());
        let name = peer.config.name.clone();
        self.failed(p, why, now);
        if let Some(until) = until {
            self.wake_by(until);
        }
        self.say(format!("the link to {name} is lost: {why}"));
    }

    /// Nothing that came by a former link can be done there any more.
    pub(crate) fn doubt_no_more(&mut self, p: usize) {
        let peer = self.peer(p);
        peer.doubted_until = None;
        let over = std::mem::take(&mut peer.in_doubt);
        self.returns.extend(over);
    }

    /// A disk's storage has shut out whoever had it before: nothing that peers have of it can be done any more.
    pub(crate) fn doubt_no_more_of(&mut self, disk: usize) {
        for peer in self.peers.iter_mut().flatten() {
            let (over, doubted) =
                std::mem::take(&mut peer.in_doubt).into_iter().partition(|back| back.disk == disk);
            peer.in_doubt = doubted;
            self.returns.extend::<Vec<_>>(over);
        }
    }

    /// A link was not made or did not last: when it is dialled again.
    pub(crate) fn failed(&mut self, p: usize, why: &str, now: Instant) {
        let peer = self.peer(p);
        peer.dialling = None;
        peer.retry_at = now + peer.patience;
        peer.patience = (peer.patience * 2).min(RETRY_MOST);
        peer.error = Some(why.to_owned());
        let at = peer.retry_at;
        self.wake_by(at);
    }

    /// Ends what has taken too long. Links that are stuck in the middle of such a part are named.
    pub(crate) fn tick(&mut self, now: Instant, stuck: &mut Vec<RequestId>) {
        self.tick_at = None;
        for p in 0..self.peers.len() {
            let Some(peer) = &mut self.peers[p] else { continue };
            if peer.later.is_some_and(|at| at <= now) {
                peer.go_on();
                self.dirty.extend(peer.link);
            }
            let more = peer.link.is_some() && peer.ask_more();
            if more {
                self.dirty.extend(peer.link);
            }
            let late = peer.late(now);
            if peer.replaced_until.is_some_and(|until| until <= now) {
                self.lost.push(p);
            }
            let doubted = peer.doubted_until;
            let at = [
                doubted,
                peer.later,
                peer.replaced_until,
                more.then_some(now),
                (!peer.sent.is_empty()).then_some(now + LOOK),
            ];
            let dial = (peer.link.is_none() && peer.dialling.is_none())
                .then_some(peer.retry_at.max(now + RETRY_LEAST));
            if let Some(at) = at.into_iter().chain([dial]).flatten().min() {
                self.wake_by(at);
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
