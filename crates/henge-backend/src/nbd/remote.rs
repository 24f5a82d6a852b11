//! One export: the requests that its server has, and what becomes of them when it is lost.
//!
//! # The rule
//! A request that was not answered when its connection was lost is sent again on another. That is safe because no two writes of the same
//! bytes are ever with the server at once: the later one waits here for the earlier one's answer. So nothing newer is overwritten.
//!
//! An answered write is only in the server's cache until a FLUSH after it is answered. While one connection of several is left, the server
//! lives, and so does its cache. A new connection says nothing about that, and has to wait ([`links`](super::links)). When the last one
//! is lost and some answered write was not flushed, nobody can tell whether it is still there. Then every FLUSH and FUA fails until the
//! node begins again, as after a failed sync of a file. With `fua` each write is durable before it is answered, so nothing is ever in doubt.
//!
//! # Bounds
//! As many requests as the gate's depth. They wait for a lost server for `wait`, then they fail. A server may also come back each time, and be lost by
//! the same request again: that one fails, too, once `wait` is over since its first loss.

use super::dial::{Dialed, named};
use super::link::{InFlight, Link, Over, ZEROES};
use super::links::Links;
use super::redial::Redial;
use super::uri::Uri;
use super::writes::Writes;
use crate::notices::Notices;
use crate::{Buffer, Watch};
use henge_core::{Done, Duration, Fault, Instant, Op, Pending, Request, RequestId};
use henge_nbd::proto::flag;
use henge_nbd::{Ask, Error, Negotiated};
use rustix::event::epoll::EventFlags;
use std::collections::VecDeque;
use std::ops::Range;

/// Most bytes that one command zeroes, so that others are not behind it for long.
const ZEROED: u64 = 128 << 20;
/// A new connection waits at least so long for an answer by an older one: storage may be slow, however little a client waits for a lost server.
const PROOF_LEAST: Duration = Duration::from_secs(10);

/// How a server is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Terms {
    /// Connections, where the server allows several.
    pub connections: usize,
    /// How long requests wait for a server that is lost.
    pub wait: Duration,
    /// Every write is durable before it is answered.
    pub fua: bool,
}

/// The server's write cache, as far as it is known here.
#[derive(Default)]
struct WriteCache {
    /// Writes answered that may be in it.
    answered: u64,
    /// How many of them a FLUSH has covered.
    flushed: u64,
    in_doubt: bool,
}

impl WriteCache {
    fn is_dirty(&self) -> bool {
        self.answered > self.flushed
    }
}

/// One export.
pub(crate) struct Remote {
    uri: Uri,
    terms: Terms,
    pub said: Negotiated,
    /// Bytes that a disk uses.
    pub used: u64,
    links: Links,
    in_flight: Pending<InFlight>,
    writes: Writes,
    waiting: VecDeque<RequestId>,
    over: Vec<Over>,
    cache: WriteCache,
    down_since: Option<Instant>,
    /// Since then nothing was answered, and a new connection waits for that.
    silent_since: Option<Instant>,
    redial: Redial,
    pub notices: Notices,
    /// Among those that have something to do.
    pub runnable: bool,
}

impl Remote {
    /// An export to which one connection is there. `number` is the upper part of its sockets' names.
    pub(crate) fn new(
        uri: Uri,
        terms: Terms,
        number: u32,
        dialed: Dialed,
        watch: Watch,
    ) -> Result<Remote, String> {
        let said = dialed.said;
        fits(&said, terms, 0).map_err(|why| format!("{}: {why}", named(&uri)))?;
        let mut links = Links::new(watch, number);
        links.add(dialed).map_err(|e| format!("{}: {e}", named(&uri)))?;
        let notices = Notices::about(named(&uri));
        let mut remote = Remote {
            uri,
            terms,
            said,
            used: 0,
            links,
            in_flight: Pending::new(),
            writes: Writes::default(),
            waiting: VecDeque::new(),
            over: Vec::new(),
            cache: WriteCache::default(),
            down_since: None,
            silent_since: None,
            redial: Redial::new(),
            notices,
            runnable: false,
        };
        remote.say_lacks(flag::SEND_FLUSH);
        Ok(remote)
    }

    /// Says what the server cannot do, and could before.
    fn say_lacks(&mut self, before: u16) {
        if before & flag::SEND_FLUSH != 0 && !self.can(flag::SEND_FLUSH) {
            self.notices
                .tell("the server knows no FLUSH: whether what it has answered is durable is up to it");
        }
        if before & flag::READ_ONLY == 0 && self.can(flag::READ_ONLY) {
            self.notices.tell("the export is read-only: every write fails");
        }
    }

    /// Where it is.
    pub(crate) fn uri(&self) -> &Uri {
        &self.uri
    }

    fn can(&self, flag: u16) -> bool {
        self.said.flags & flag != 0
    }

    fn wanted(&self) -> usize {
        if self.can(flag::CAN_MULTI_CONN) { self.terms.connections } else { 1 }
    }

    /// Its sockets are watched elsewhere.
    pub(crate) fn be_watched(&mut self, watch: &Watch) -> rustix::io::Result<()> {
        self.links.be_watched(watch)
    }

    /// A socket has told of something.
    pub(crate) fn happened(&mut self, link: usize, flags: EventFlags) {
        if let Some(link) = self.links.get_mut(link) {
            link.happened(flags);
        }
    }

    /// Any socket may have told of something.
    pub(crate) fn looks(&mut self) {
        self.links.iter_mut().for_each(|link| link.happened(EventFlags::IN));
    }

    /// Takes a request whose first byte is at `offset` of the export.
    pub(crate) fn submit(&mut self, request: &Request, payload: Buffer, offset: u64) {
        let held = InFlight {
            request: *request,
            payload,
            offset,
            done: 0,
            piece: 0,
            flushing: false,
            covers: 0,
            link: None,
            come: 0,
            begun: false,
            lost_since: None,
            bytes: false,
        };
        let id = self.in_flight.insert(held);
        self.waiting.push_back(id);
    }

    /// Does all that can be done at once. What is over goes to `done`.
    pub(crate) fn work(&mut self, now: Instant, done: &mut VecDeque<Done<Buffer>>) {
        self.expire(now, done);
        self.give_up_silent(now);
        self.dispatch(now, done);
        self.serve_links(now, done);
        self.silent_since = self.silent_since.or(Some(now)).filter(|_| self.links.awaits_proof());
    }

    fn serve_links(&mut self, now: Instant, done: &mut VecDeque<Done<Buffer>>) {
        loop {
            for i in 0..self.links.slots() {
                let Some(link) = self.links.get_mut(i) else { continue };
                let moved =
                    link.write(&self.in_flight).and_then(|()| link.read(&mut self.in_flight, &mut self.over));
                let heard = std::mem::take(&mut self.over);
                let went = heard.iter().fold(false, |went, over| went | self.settle(*over, done));
                self.over = heard;
                self.over.clear();
                match moved {
                    Err(lost) => self.lost(i, &lost.0, now),
                    Ok(()) if went => self.lost(i, "the server shuts down", now),
                    Ok(()) => {}
                }
            }
            if self.waiting.is_empty() || !self.dispatch(now, done) {
                return;
            }
        }
    }

    /// Sends what may be sent; whether anything was.
    fn dispatch(&mut self, now: Instant, done: &mut VecDeque<Done<Buffer>>) -> bool {
        let (mut any, mut last, mut stay) = (false, None, VecDeque::new());
        while let Some(id) = self.waiting.pop_front() {
            let held = self.in_flight.get(id).expect("a request that waits is there");
            let durable = held.request.op == Op::Flush || held.request.fua;
            if held.lost_since.is_some_and(|since| since + self.terms.wait <= now) {
                self.finish(id, Err(Fault::Unreachable), done);
            } else if durable && self.cache.in_doubt {
                self.finish(id, Err(Fault::Io), done);
            } else if is_write(held) && self.can(flag::READ_ONLY) {
                self.finish(id, Err(Fault::Unsupported), done);
            } else if (held.request.op == Op::Flush || held.flushing) && !self.can(flag::SEND_FLUSH) {
                self.finish(id, Ok(()), done);
            } else if !self.waits_behind(id) {
                match self.links.next(last) {
                    Some(link) => {
                        self.send(id, link);
                        (any, last) = (true, Some(link));
                    }
                    None => stay.push_back(id),
                }
            }
        }
        self.waiting = stay;
        any
    }

    /// Whether a write of some of the same bytes is with the server: then this one waits until that is over.
    fn waits_behind(&mut self, id: RequestId) -> bool {
        let held = self.in_flight.get(id).expect("a request that waits is there");
        let bytes = written(held).filter(|_| !held.begun);
        bytes.is_some_and(|bytes| self.writes.waits(id, bytes))
    }

    fn send(&mut self, id: RequestId, link: usize) {
        let zeroes = self.can(flag::SEND_WRITE_ZEROES);
        let fua = self.can(flag::SEND_FUA);
        let all = self.terms.fua;
        let (answered, come) = (self.cache.answered, self.links.come());
        let block = u64::from(self.said.block.least.max(1));
        let payload = u64::from(self.said.block.most) / block * block;
        let held = self.in_flight.get_mut(id).expect("a request that waits is there");
        let left = held.request.len - held.done;
        let (ask, most) = match held.request.op {
            _ if held.flushing => (Ask::Flush, 0),
            Op::Flush => (Ask::Flush, 0),
            Op::Read => (Ask::Read, payload),
            Op::Write => (Ask::Write, payload),
            Op::Trim | Op::WriteZeroes if zeroes => {
                (Ask::WriteZeroes { no_hole: held.request.op == Op::WriteZeroes, fast: false }, ZEROED)
            }
            Op::Trim | Op::WriteZeroes => (Ask::Write, payload.min(ZEROES.len() as u64)),
        };
        held.bytes = ask == Ask::Write && held.request.op != Op::Write;
        held.piece = left.min(most);
        held.covers = answered;
        (held.link, held.come) = (Some(link), come);
        if let Some(bytes) = written(held).filter(|_| !held.begun) {
            self.writes.begin(bytes);
        }
        held.begun = true;
        let offset = if ask == Ask::Flush { 0 } else { held.offset + held.done };
        let fua = fua && is_write(held) && ask != Ask::Flush && (all || held.request.fua);
        let link = self.links.get_mut(link).expect("the idlest connection is there");
        link.send(id, ask, offset, held.piece, fua);
    }

    /// A piece is over. True where the server wants no more on this connection.
    fn settle(&mut self, (id, outcome): Over, done: &mut VecDeque<Done<Buffer>>) -> bool {
        let (can_fua, can_flush, all) =
            (self.can(flag::SEND_FUA), self.can(flag::SEND_FLUSH), self.terms.fua);
        let held = self.in_flight.get_mut(id).expect("a request that was sent is there");
        let flush = held.request.op == Op::Flush || held.flushing;
        if outcome != Err(Error::Shutdown) {
            self.links.answered(held.come);
            self.silent_since = None;
        }
        match outcome {
            Err(Error::Shutdown) => return true, // it is still this connection's, and is lost with it
            Err(error) => {
                if flush {
                    self.doubt("a FLUSH failed");
                }
                self.finish(id, Err(fault(error)), done);
            }
            Ok(()) if flush => {
                self.cache.flushed = self.cache.flushed.max(held.covers);
                self.finish(id, Ok(()), done);
            }
            Ok(()) => {
                (held.link, held.lost_since) = (None, None);
                held.done += held.piece;
                let durable = can_fua && (all || held.request.fua);
                if held.done < held.request.len {
                    self.waiting.push_front(id);
                } else if is_write(held) && held.request.fua && !can_fua && can_flush {
                    held.flushing = true;
                    self.waiting.push_front(id);
                } else {
                    self.cache.answered += u64::from(is_write(held) && !durable);
                    self.finish(id, Ok(()), done);
                }
            }
        }
        false
    }

    fn finish(&mut self, id: RequestId, outcome: Result<(), Fault>, done: &mut VecDeque<Done<Buffer>>) {
        let held = self.in_flight.remove(id).expect("a request ends once");
        if let Some(bytes) = written(&held).filter(|_| held.begun) {
            self.waiting.extend(self.writes.over(&bytes));
        }
        done.push_back(Done { id: held.request.id, outcome, busy: None, payload: held.payload });
    }

    fn doubt(&mut self, why: &str) {
        if !std::mem::replace(&mut self.cache.in_doubt, true) {
            self.notices.tell(&format!("{why}: {}", crate::store::SYNC_FAILED));
        }
    }

    fn lost(&mut self, link: usize, why: &str, now: Instant) {
        let last = self.links.remove(link);
        for (id, held) in self.in_flight.iter_mut() {
            if held.link == Some(link) {
                held.link = None;
                held.lost_since.get_or_insert(now);
                self.waiting.push_back(id);
            }
            // A server that begins again may have forgotten what it answered.
            if last && is_write(held) {
                (held.done, held.flushing) = (0, false);
            }
        }
        self.redial.lost(why, now);
        if self.links.alive() == 0 {
            self.down_since = Some(now);
            self.notices
                .tell(&format!("the connection is lost ({why}); requests wait for {}", self.terms.wait));
        }
        if last && self.cache.is_dirty() {
            self.doubt("the last connection was lost before a FLUSH");
        }
    }

    /// Nobody waits for a lost server for ever.
    fn expire(&mut self, now: Instant, done: &mut VecDeque<Done<Buffer>>) {
        if self.down_since.is_some_and(|since| since + self.terms.wait <= now) {
            while let Some(id) = self.waiting.pop_front() {
                self.finish(id, Err(Fault::Unreachable), done);
            }
        }
    }

    /// A server may hang on some connections for ever. New ones do not wait as long.
    fn give_up_silent(&mut self, now: Instant) {
        let Some(since) = self.silent_since.filter(|since| *since + self.proof() <= now) else { return };
        self.silent_since = None;
        while let Some(link) = self.links.any_known().filter(|_| self.links.awaits_proof()) {
            self.lost(link, &format!("nothing was answered for {}", now.since(since)), now);
        }
    }

    fn proof(&self) -> Duration {
        self.terms.wait.max(PROOF_LEAST)
    }

    /// When somebody is to dial, if a connection is missing.
    fn dials_at(&self) -> Option<Instant> {
        self.redial.due().filter(|_| self.links.alive() < self.wanted())
    }

    /// Whether somebody is to dial now; the outcome goes to [`dialed`](Self::dialed).
    pub(crate) fn is_to_dial(&mut self, now: Instant) -> bool {
        let due = self.dials_at().is_some_and(|at| at <= now);
        if due {
            self.redial.begin();
        }
        due
    }

    /// What came of dialling.
    pub(crate) fn dialed(&mut self, outcome: Result<Dialed, String>, now: Instant) {
        self.redial.end();
        let placed = outcome.and_then(|dialed| {
            fits(&dialed.said, self.terms, self.used)?;
            let (said, before) = (dialed.said, self.said);
            if said.block.least > before.block.least {
                let (now, then) = (said.block.least, before.block.least);
                return Err(format!(
                    "its blocks have {now} bytes, and had {then}: a node that begins again takes them"
                ));
            }
            self.links.add(dialed).map_err(|e| e.to_string())?;
            self.said = said;
            self.say_lacks(before.flags);
            Ok(())
        });
        match placed {
            Ok(()) => {
                self.redial.came(now);
                if let Some(since) = self.down_since.take() {
                    let ms = now.since(since).as_nanos() / 1_000_000;
                    self.notices.tell(&format!("the server is back after {}", Duration::from_millis(ms)));
                }
            }
            Err(why) => {
                if self.redial.failed(&why, now) {
                    let named = format!("{}: ", named(&self.uri));
                    let why = why.strip_prefix(&named).unwrap_or(&why);
                    self.notices.tell(&format!("no connection: {why}"));
                }
            }
        }
    }

    /// When there is something to do that no socket tells of.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let dial = self.dials_at();
        let waits = self.down_since.filter(|_| !self.in_flight.is_empty());
        let end = waits.map(|since| since + self.terms.wait);
        let silent = self.silent_since.map(|since| since + self.proof());
        [dial, end, silent].into_iter().flatten().min()
    }

    /// Says goodbye.
    pub(crate) fn end(&mut self) {
        self.links.iter_mut().for_each(Link::end);
    }
}

fn is_write(held: &InFlight) -> bool {
    matches!(held.request.op, Op::Write | Op::Trim | Op::WriteZeroes)
}

/// The bytes that it changes, where it changes some.
fn written(held: &InFlight) -> Option<Range<u64>> {
    let changes = is_write(held) && held.request.len > 0;
    changes.then(|| held.offset..held.offset + held.request.len)
}

/// Whether an export can be used so, of which a disk uses `used` bytes.
fn fits(said: &Negotiated, terms: Terms, used: u64) -> Result<(), String> {
    if said.size < used {
        return Err(format!("the export has shrunk to {} bytes, and its disk has {used}", said.size));
    }
    if terms.fua && said.flags & (flag::SEND_FUA | flag::READ_ONLY) == 0 {
        return Err("fua = true needs a server that knows FUA, and this one does not".into());
    }
    Ok(())
}

fn fault(error: Error) -> Fault {
    match error {
        Error::NoSpace => Fault::NoSpace,
        Error::NotSupported => Fault::Unsupported,
        Error::NotPermitted
        | Error::Io
        | Error::NoMemory
        | Error::Invalid
        | Error::Overflow
        | Error::Shutdown => Fault::Io,
    }
}

#[cfg(test)]
mod tests;
