//! A link to another node: messages out and in, and the bytes that belong to parts.
//!
//! A write's bytes go from the client's command straight into the link's socket, and on the other side from the socket into the
//! buffer that the store writes from; a read's bytes come back the same way. What travels is written many messages at a
//! time. The link never waits for anything but its socket: a part for which there is no memory is answered so, and sent
//! again by its coordinator, so that answers behind it come through.

mod attached;
mod incoming;
mod input;
mod output;
mod served;
mod wire;

use crate::links::{News, name};
use crate::plane::{Answer, Plane};
use crate::session::{Around, Session, Share, Slices, Stop, Taken, Wants};
use crate::spread::seating;
use crate::stream::Stream;
use attached::Attachments;
use henge_core::{Cost, Instant, RequestId};
use henge_link::{Identity, Message, PartOutcome, Role};
use incoming::IncomingParts;
use rustix::io::Errno;
use wire::Wire;

/// Bytes that are being received.
struct Inflow {
    to: To,
    done: usize,
    len: usize,
}

#[derive(Clone, Copy)]
enum To {
    /// A part of theirs.
    Incoming(RequestId),
    /// The answer to a part of ours, and what it was charged.
    Answer(RequestId, Cost),
    /// Nobody wants them.
    Nobody,
}

/// What both ends know is the exporter of their TLS connection: then a proof is worth nothing on any other.
const EXPORTER: &[u8] = b"EXPORTER-henge link 5";

/// Who both ends are.
struct Certificates {
    own: henge_tls::Identity,
    theirs: Option<henge_tls::Identity>,
}

/// One link.
pub(crate) struct PeerLink {
    wire: Wire,
    /// Which peer, once that is known.
    pub peer: Option<usize>,
    /// Which peer was dialled.
    pub dialled: Option<usize>,
    /// Where certificates say who is who.
    certificates: Option<Certificates>,
    inflow: Option<Inflow>,
    /// The last payload was a long one.
    long: bool,
    attachments: Attachments,
    incoming: IncomingParts,
    over: Option<String>,
    /// Nobody listens at the peer's address.
    refused: bool,
}

impl PeerLink {
    pub(crate) fn new(identity: Identity, nonce: [u8; 16], dialled: Option<usize>, now: Instant) -> Self {
        let role = if dialled.is_some() { Role::Dialler } else { Role::Dialled };
        PeerLink {
            wire: Wire::new(henge_link::Link::new(identity, role, nonce, now)),
            peer: None,
            dialled,
            certificates: None,
            inflow: None,
            long: false,
            attachments: Attachments::default(),
            incoming: IncomingParts::new(),
            over: None,
            refused: false,
        }
    }

    /// The other end is who its certificate says.
    pub(crate) fn certified(mut self, own: Option<henge_tls::Identity>) -> Self {
        self.certificates = own.map(|own| Certificates { own, theirs: None });
        self
    }

    /// Why it is over, for people.
    pub(crate) fn why(&self) -> String {
        self.over.clone().unwrap_or_else(|| match self.peer {
            Some(_) => "the connection broke".into(),
            None if self.wire.link.has_proven() => {
                "it was closed once this node had proven itself: the two know different secrets, or the other one has no \
                 [[peer]] of this name; its log says which"
                    .into()
            }
            None => "it was closed before it was established; the other node says why".into(),
        })
    }

    /// This node ends, and everything that it answered is durable.
    pub(crate) fn say_ended(&mut self, now: Instant) {
        if self.peer.is_some() {
            self.wire.send(&Message::Ended, &[], now);
        }
    }

    pub(crate) fn end(&mut self, why: &str) {
        self.over.get_or_insert_with(|| why.to_owned());
    }

    /// Pings, and gives up a peer that is silent. When it is to be asked again.
    pub(crate) fn look(&mut self, now: Instant) -> Instant {
        if now >= self.wire.link.wake_at() && !self.wire.link.tick(now) {
            self.end("the other node has been silent for 4s");
        }
        if self.wire.is_stuck(now) {
            self.end("the other node has taken nothing for 4s");
        }
        self.wire.text();
        self.wire.link.wake_at()
    }

    fn established(
        &mut self,
        name: &str,
        epoch: u64,
        id: RequestId,
        plane: &mut Plane,
    ) -> Result<(), String> {
        if let Some(Certificates { own, theirs }) = &self.certificates {
            let fits = |who: &henge_tls::Identity| {
                who.role == henge_tls::Role::Node && who.cluster == own.cluster && who.name == name
            };
            if !theirs.as_ref().is_some_and(fits) {
                let shown = theirs.as_ref().map_or_else(|| "nobody's".to_owned(), |who| format!("{who}'s"));
                return Err(format!(
                    "it says it is \"{name}\", and its certificate is {shown}: a node's name in [link] is its certificate's"
                ));
            }
        }
        let Some(peer) = plane.links.find(name) else {
            return Err(format!(
                "\"{name}\" is no peer of this node; add [[peer]] name = \"{name}\" if it should be"
            ));
        };
        if self.dialled.is_some_and(|dialled| dialled != peer) {
            return Err(format!(
                "\"{name}\" answers at another peer's address; correct that [[peer]]'s address"
            ));
        }
        // A peer that started anew is here before its old link is noticed to be dead.
        if let Some(old) = plane.links.peer(peer).link.filter(|old| *old != id) {
            plane.links.doomed.push(old);
        }
        self.peer = Some(peer);
        plane.links.joined.push((peer, id, epoch));
        Ok(())
    }

    fn message(
        &mut self,
        message: Message,
        data: usize,
        id: RequestId,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<(), String> {
        let peer = self.peer.expect("messages follow the handshake");
        if data > 0 && !matches!(message, Message::Part(_) | Message::Done { .. }) {
            return Err("it sent bytes with a message that has none".into());
        }
        match message {
            Message::Attach { extent, disk, index, shape } => {
                self.attachments.add(extent, disk.into(), index, shape)?;
                self.answer_attach(extent, plane, now);
            }
            Message::Attached { extent, parts, bytes, unit } => {
                plane.attached((peer, extent), parts, bytes, unit, now)
            }
            Message::Detached { extent, why } => {
                plane.links.refused((peer, extent), why);
                seating::refused_there(plane, (peer, extent), now);
            }
            Message::Part(part) => self.part(&part, data, id, plane, now)?,
            Message::Done { id: part, outcome, cost } => {
                self.done(part, outcome, Cost::new(cost), data, plane, now)?
            }
            Message::Cancel { id: theirs } => {
                let found = self.incoming.called(theirs).filter(|(_, i)| i.frame.is_empty());
                if let Some((command, owner)) = found.map(|(command, i)| (command, i.owner)) {
                    plane.abort(owner, id, Some(command), now);
                }
            }
            Message::Ended => plane.links.peer(peer).last_life.settle(),
            Message::Sync { epoch, sequence, flow, news, .. } => {
                self.heard(flow, (epoch, sequence), &news, plane, now);
            }
            Message::Heartbeat { .. }
            | Message::HeartbeatAnswer { .. }
            | Message::Watch { .. }
            | Message::Copy { .. }
            | Message::Seen { .. }
            | Message::Reserve { .. }
            | Message::Sweep { .. }
            | Message::Reserved { .. } => plane.links.news.push_back(News::Said(peer, message)),
            // Between proxies only.
            Message::Flow { .. } | Message::Identity { .. } | Message::Ping => {}
        }
        Ok(())
    }

    /// A part of ours is answered; its bytes follow, if it was a read.
    fn done(
        &mut self,
        part: u64,
        outcome: PartOutcome,
        cost: Cost,
        data: usize,
        plane: &mut Plane,
        now: Instant,
    ) -> Result<(), String> {
        let (id, peer) = (name(part), self.peer.expect("messages follow the handshake"));
        if data > 0 {
            let expected = outcome == PartOutcome::Done && plane.links.peer(peer).in_flight.expects(id, data);
            let to = if expected { To::Answer(id, cost) } else { To::Nobody };
            self.inflow = Some(Inflow { to, done: 0, len: data });
            return Ok(());
        }
        // A read without its bytes is no read.
        let empty = outcome == PartOutcome::Done && plane.links.peer(peer).in_flight.is_read(id);
        let outcome = if empty { PartOutcome::Io } else { outcome };
        plane.links.answered(peer, part, outcome, cost, now);
        Ok(())
    }
}

impl Session for PeerLink {
    fn share(&self) -> Share {
        Share { bytes: input::TURN, messages: u32::MAX }
    }

    fn resume(&mut self, _: &mut Around<'_>) -> Option<Stop> {
        None
    }

    fn wants<'a>(&'a mut self, around: &'a mut Around<'_>) -> Wants<'a> {
        self.wanted(around.plane)
    }

    fn received(&mut self, input: &[u8], around: &mut Around<'_>) -> Taken {
        let taken = self.take(input, around.id, around.plane, around.now);
        self.wire.text();
        match taken {
            Ok(bytes) => Taken { bytes, stop: None },
            Err(why) => {
                self.end(&why);
                Taken { bytes: 0, stop: Some(Stop::Gone) }
            }
        }
    }

    fn delivered(&mut self, bytes: usize, around: &mut Around<'_>) -> Option<Stop> {
        let delivered = self.arrived(bytes, around.id, around.plane, around.now);
        delivered.err().map(|why| {
            self.end(&why);
            Stop::Gone
        })
    }

    fn completed(&mut self, answer: Answer, around: &mut Around<'_>) {
        self.answer(answer, around.plane, around.now);
        if let Some(why) = self.wire.overflow() {
            self.end(&why);
        }
    }

    fn came_by(&mut self, stream: &Stream) {
        let Some(certificates) = self.certificates.as_mut().filter(|c| c.theirs.is_none()) else { return };
        if let (Some(names), Some(secret)) = (stream.proven(), stream.exported(EXPORTER)) {
            certificates.theirs = henge_tls::Identity::of(&names);
            self.wire.link.prove_by(secret.to_vec());
        }
    }

    fn output<'a>(&'a mut self, around: &'a mut Around<'_>, out: &mut Slices<'_, 'a>) {
        self.wire.text();
        self.fill(around.plane, around.now);
        let peer = self.peer.and_then(|p| around.plane.links.peers[p].as_ref());
        self.wire.pieces(peer, out);
    }

    fn written(&mut self, bytes: usize, around: &mut Around<'_>) {
        self.passed_on(bytes, around.plane);
    }

    fn lost(&mut self, why: Option<Errno>) {
        self.refused |= why == Some(Errno::CONNREFUSED);
        match why {
            Some(why) => self.end(&std::io::Error::from(why).to_string()),
            None if self.peer.is_some() => self.end("the other node closed it"),
            None => {}
        }
    }

    fn close(&mut self, around: &mut Around<'_>) {
        let Around { plane, id, now, .. } = around;
        let (why, id, now) = (self.why(), *id, *now);
        plane.links.connections.retain(|other| *other != id);
        self.release(id, plane, now);
        let links = &mut plane.links;
        let mut waits = |p: usize| links.peers[p].is_some() && links.wait_for_next(p, id, now);
        if self.peer.is_some_and(&mut waits) {
            return;
        }
        match (self.peer, self.dialled) {
            (Some(p), _) if links.peers[p].as_ref().is_some_and(|peer| peer.link == Some(id)) => {
                links.down(p, &why, now);
                seating::lost_link(plane, p, now);
            }
            // Also one that was established here and refused there before it was joined: it is dialled again.
            (_, Some(p)) if links.peers[p].as_ref().is_some_and(|peer| peer.dialling == Some(id)) => {
                let name = links.peer(p).config.name.clone();
                links.failed(p, &why, now);
                let linked = links.peer(p).link;
                links.notices.say(match linked {
                    None => format!("no link to {name}: {why}"),
                    Some(_) => {
                        format!("the link to {name} is not exchanged for one by newer certificates: {why}")
                    }
                });
                if links.peer(p).replaced_until.is_some() {
                    links.down(p, &why, now);
                    seating::lost_link(plane, p, now);
                }
                if self.refused {
                    plane.links.doubt_no_more(p);
                }
            }
            (None, None) => links.notices.say(format!("a link is refused: {why}")),
            _ => {}
        }
    }

    /// Needed until every disk is flushed.
    fn pause(&mut self, _: &mut Around<'_>) -> bool {
        true
    }

    /// Its parts are of many disks.
    fn disk(&self) -> Option<usize> {
        None
    }
    fn takes(&self) -> bool {
        true
    }
    fn has_output(&self) -> bool {
        self.wire.has_output()
    }
    fn is_over(&self) -> bool {
        self.over.is_some()
    }
    fn is_stalled(&self) -> bool {
        false
    }
    fn awaits_payload(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        "a node".into()
    }
}
