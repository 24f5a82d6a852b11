//! The nodes that act by what another has decided.

use super::{BEAT, LEASE, TEXT_MAX};
use crate::Message;
use henge_core::Instant;
use std::collections::{BTreeMap, VecDeque};

/// Beats that may be answered late.
const BEATS_MAX: usize = 8;

/// How it stands with a keeper.
#[derive(Debug)]
struct Standing {
    linked: bool,
    beat: u64,
    /// Beats that were sent, and when.
    sent: VecDeque<(u64, Instant)>,
    /// The term of the last answer, and until when that lets act.
    lease: Option<(u64, Instant)>,
    /// When the next beat is due.
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
    keeper: u32,
    /// Term and version of the copy.
    have: Option<(u64, u64)>,
    partial: Option<Partial>,
}

/// A copy has come. Once it is acted by, [`Holder::seen`].
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
pub struct Holder {
    keepers: BTreeMap<u32, Standing>,
    things: BTreeMap<String, Thing>,
    out: VecDeque<(u32, Message)>,
}

impl Holder {
    /// Nothing yet.
    pub fn new() -> Holder {
        Holder::default()
    }

    /// Holds a copy of a thing that another node keeps.
    pub fn add(&mut self, name: &str, keeper: u32, linked: bool, now: Instant) {
        self.things.insert(name.to_owned(), Thing { keeper, have: None, partial: None });
        let standing = self.keepers.entry(keeper).or_insert_with(|| Standing {
            linked,
            beat: 0,
            sent: VecDeque::new(),
            lease: None,
            next: now,
            things: 0,
        });
        standing.things += 1;
        if standing.linked {
            self.out.push_back((keeper, Message::Watch { thing: name.to_owned() }));
        }
    }

    /// Holds it no more.
    pub fn remove(&mut self, name: &str) {
        let Some(thing) = self.things.remove(name) else { return };
        if let Some(standing) = self.keepers.get_mut(&thing.keeper) {
            standing.things -= 1;
            if standing.things == 0 {
                self.keepers.remove(&thing.keeper);
            }
        }
    }

    /// A keeper is linked, perhaps anew: what it has said since may be lost, so all is asked for.
    pub fn linked(&mut self, keeper: u32, now: Instant) {
        let Some(standing) = self.keepers.get_mut(&keeper) else { return };
        (standing.linked, standing.next) = (true, now);
        self.watch(keeper, |_| true);
        self.tick(now);
    }

    /// A keeper's link is lost.
    pub fn unlinked(&mut self, keeper: u32) {
        if let Some(standing) = self.keepers.get_mut(&keeper) {
            standing.linked = false;
        }
    }

    fn watch(&mut self, keeper: u32, which: impl Fn(&Thing) -> bool) {
        let wanted = self.things.iter().filter(|(_, thing)| thing.keeper == keeper && which(thing));
        self.out.extend(wanted.map(|(name, _)| (keeper, Message::Watch { thing: name.clone() })));
    }

    /// A node has said something. What is no message to a holder is left alone.
    pub fn heard(&mut self, keeper: u32, message: &Message) -> Option<Arrived> {
        match message {
            Message::Beaten { beat, term } => {
                self.beaten(keeper, *beat, *term);
                None
            }
            Message::Copy { thing, term, version, piece, last, text } => {
                self.arrived(keeper, thing, (*term, *version), (*piece, *last, text))
            }
            _ => None,
        }
    }

    fn beaten(&mut self, keeper: u32, beat: u64, term: u64) {
        let Some(standing) = self.keepers.get_mut(&keeper) else { return };
        let Some(at) = standing.sent.iter().find(|(b, _)| *b == beat).map(|(_, at)| *at + LEASE) else {
            return;
        };
        match &mut standing.lease {
            Some((known, _)) if term < *known => {}
            Some((known, until)) if term == *known => *until = (*until).max(at),
            lease => {
                *lease = Some((term, at));
                self.watch(keeper, |thing| thing.have.is_none_or(|(of, _)| of != term));
            }
        }
    }

    fn arrived(
        &mut self,
        keeper: u32,
        name: &str,
        of: (u64, u64),
        (piece, last, text): (u32, bool, &str),
    ) -> Option<Arrived> {
        let thing = self.things.get_mut(name).filter(|thing| thing.keeper == keeper)?;
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
            self.out.push_back((thing.keeper, Message::Seen { thing: name.to_owned(), version }));
        }
    }

    /// Until when a copy may be acted by; `None` when it may not.
    pub fn good_until(&self, name: &str) -> Option<Instant> {
        let thing = self.things.get(name)?;
        let (term, until) = self.keepers.get(&thing.keeper)?.lease?;
        thing.have.filter(|(of, _)| *of == term).map(|_| until)
    }

    /// Whether a copy may be acted by now.
    pub fn is_good(&self, name: &str, now: Instant) -> bool {
        self.good_until(name).is_some_and(|until| now < until)
    }

    /// Time has passed: beats, and what no answer has come for.
    pub fn tick(&mut self, now: Instant) {
        let due = self.keepers.iter().filter(|(_, s)| s.linked && s.next <= now);
        for keeper in due.map(|(keeper, _)| *keeper).collect::<Vec<_>>() {
            let standing = self.keepers.get_mut(&keeper).expect("just found");
            standing.beat += 1;
            standing.next = now + BEAT;
            if standing.sent.len() == BEATS_MAX {
                standing.sent.pop_front();
            }
            standing.sent.push_back((standing.beat, now));
            let (beat, term) = (standing.beat, standing.lease.map(|(term, _)| term));
            self.out.push_back((keeper, Message::Beat { beat }));
            self.watch(keeper, |thing| thing.have.map(|(of, _)| of) != term);
        }
    }

    /// When [`Holder::tick`] has something to do.
    pub fn wake_at(&self) -> Option<Instant> {
        self.keepers.values().filter(|s| s.linked).map(|s| s.next).min()
    }

    /// What is to be said, and to whom. What cannot be said may be dropped: who is linked again watches anew.
    pub fn next_message(&mut self) -> Option<(u32, Message)> {
        self.out.pop_front()
    }
}

const _: () = assert!(BEAT.as_nanos() < LEASE.as_nanos() && LEASE.as_nanos() < super::KEPT.as_nanos());
