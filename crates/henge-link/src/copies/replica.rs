//! The nodes that act by what another has decided.

use super::{HEARTBEAT, LEASE, TEXT_MAX};
use crate::Message;
use henge_core::Instant;
use std::collections::{BTreeMap, VecDeque};

/// Heartbeats that may be answered late.
const HEARTBEATS_MAX: usize = 8;

/// How it stands with an owner.
#[derive(Debug)]
struct Standing {
    linked: bool,
    /// The last heartbeat's number.
    number: u64,
    /// Heartbeats that were sent, and when.
    sent: VecDeque<(u64, Instant)>,
    /// The term of the last answer, and until when that lets act.
    lease: Option<(u64, Instant)>,
    /// When the next heartbeat is due.
    next: Instant,
    /// Things that it keeps for this node.
    things: usize,
}

/// A text that has come in part.
#[derive(Debug)]
struct Partial {
    of: (u64, u64),
    pieces: u32,
    text: String,
}

#[derive(Debug)]
struct Thing {
    owner: u32,
    /// Term and version of the copy.
    have: Option<(u64, u64)>,
    partial: Option<Partial>,
}

/// A copy has come. Once it is acted by, [`Replica::seen`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Of what.
    pub thing: String,
    /// Which.
    pub version: u64,
    /// What it says.
    pub text: String,
    /// Whether nothing was missed between the copy before and this one.
    pub follows: bool,
}

/// What a node holds copies of.
#[derive(Debug, Default)]
pub struct Replica {
    owners: BTreeMap<u32, Standing>,
    things: BTreeMap<String, Thing>,
    out: VecDeque<(u32, Message)>,
}

impl Replica {
    /// Nothing yet.
    pub fn new() -> Replica {
        Replica::default()
    }

    /// Holds a copy of a thing that another node keeps.
    pub fn add(&mut self, name: &str, owner: u32, linked: bool, now: Instant) {
        self.things.insert(name.to_owned(), Thing { owner, have: None, partial: None });
        let standing = self.owners.entry(owner).or_insert_with(|| Standing {
            linked,
            number: 0,
            sent: VecDeque::new(),
            lease: None,
            next: now,
            things: 0,
        });
        standing.things += 1;
        if standing.linked {
            self.out.push_back((owner, Message::Watch { thing: name.to_owned() }));
        }
    }

    /// Holds it no more.
    pub fn remove(&mut self, name: &str) {
        let Some(thing) = self.things.remove(name) else { return };
        if let Some(standing) = self.owners.get_mut(&thing.owner) {
            standing.things -= 1;
            if standing.things == 0 {
                self.owners.remove(&thing.owner);
            }
        }
    }

    /// An owner is linked, perhaps anew: what it has said since may be lost, so all is asked for.
    pub fn linked(&mut self, owner: u32, now: Instant) {
        let Some(standing) = self.owners.get_mut(&owner) else { return };
        (standing.linked, standing.next) = (true, now);
        self.watch(owner, |_| true);
        self.tick(now);
    }

    /// An owner's link is lost.
    pub fn unlinked(&mut self, owner: u32) {
        if let Some(standing) = self.owners.get_mut(&owner) {
            standing.linked = false;
        }
    }

    fn watch(&mut self, owner: u32, which: impl Fn(&Thing) -> bool) {
        let wanted = self.things.iter().filter(|(_, thing)| thing.owner == owner && which(thing));
        self.out.extend(wanted.map(|(name, _)| (owner, Message::Watch { thing: name.clone() })));
    }

    /// A node has said something. What is no message to a replica is left alone.
    pub fn heard(&mut self, owner: u32, message: &Message) -> Option<Arrived> {
        match message {
            Message::HeartbeatAnswer { number, term } => {
                self.answered(owner, *number, *term);
                None
            }
            Message::Copy { thing, term, version, piece, last, text } => {
                self.arrived(owner, thing, (*term, *version), (*piece, *last, text))
            }
            _ => None,
        }
    }

    fn answered(&mut self, owner: u32, number: u64, term: u64) {
        let Some(standing) = self.owners.get_mut(&owner) else { return };
        let Some(at) = standing.sent.iter().find(|(sent, _)| *sent == number).map(|(_, at)| *at + LEASE)
        else {
            return;
        };
        match &mut standing.lease {
            Some((known, _)) if term < *known => {}
            Some((known, until)) if term == *known => *until = (*until).max(at),
            lease => {
                *lease = Some((term, at));
                self.watch(owner, |thing| thing.have.is_none_or(|(of, _)| of != term));
            }
        }
    }

    fn arrived(
        &mut self,
        owner: u32,
        name: &str,
        of: (u64, u64),
        (piece, last, text): (u32, bool, &str),
    ) -> Option<Arrived> {
        let thing = self.things.get_mut(name).filter(|thing| thing.owner == owner)?;
        if thing.have.is_some_and(|have| of < have) {
            return None; // of a link before this one
        }
        if piece == 0 {
            thing.partial = Some(Partial { of, pieces: 0, text: String::new() });
        }
        let partial = thing.partial.as_mut().filter(|p| p.of == of && p.pieces == piece)?;
        if partial.text.len() + text.len() > TEXT_MAX {
            thing.partial = None;
            return None;
        }
        partial.pieces += 1;
        partial.text.push_str(text);
        if !last {
            return None;
        }
        let text = thing.partial.take()?.text;
        let follows = thing.have.is_some_and(|(term, _)| term == of.0);
        thing.have = Some(of);
        Some(Arrived { thing: name.to_owned(), version: of.1, text, follows })
    }

    /// What has come is acted by from now on, and nothing that was begun before and must not go on does.
    pub fn seen(&mut self, name: &str, version: u64) {
        if let Some(thing) = self.things.get(name) {
            self.out.push_back((thing.owner, Message::Seen { thing: name.to_owned(), version }));
        }
    }

    /// Until when a copy may be acted by; `None` when it may not.
    pub fn good_until(&self, name: &str) -> Option<Instant> {
        let thing = self.things.get(name)?;
        let (term, until) = self.owners.get(&thing.owner)?.lease?;
        thing.have.filter(|(of, _)| *of == term).map(|_| until)
    }

    /// Whether a copy may be acted by now.
    pub fn is_good(&self, name: &str, now: Instant) -> bool {
        self.good_until(name).is_some_and(|until| now < until)
    }

    /// Time has passed: heartbeats, and what no answer has come for.
    pub fn tick(&mut self, now: Instant) {
        let due = self.owners.iter().filter(|(_, s)| s.linked && s.next <= now);
        for owner in due.map(|(owner, _)| *owner).collect::<Vec<_>>() {
            let standing = self.owners.get_mut(&owner).expect("just found");
            standing.number += 1;
            standing.next = now + HEARTBEAT;
            if standing.sent.len() == HEARTBEATS_MAX {
                standing.sent.pop_front();
            }
            standing.sent.push_back((standing.number, now));
            let (number, term) = (standing.number, standing.lease.map(|(term, _)| term));
            self.out.push_back((owner, Message::Heartbeat { number }));
            self.watch(owner, |thing| thing.have.map(|(of, _)| of) != term);
        }
    }

    /// When [`Replica::tick`] has something to do.
    pub fn wake_at(&self) -> Option<Instant> {
        self.owners.values().filter(|s| s.linked).map(|s| s.next).min()
    }

    /// What is to be said, and to whom. What cannot be said may be dropped: who is linked again watches anew.
    pub fn next_message(&mut self) -> Option<(u32, Message)> {
        self.out.pop_front()
    }
}

const _: () = assert!(HEARTBEAT.as_nanos() < LEASE.as_nanos() && LEASE.as_nanos() < super::KEPT.as_nanos());
