//! The node that decides.

use super::{KEPT, PIECE};
use crate::Message;
use henge_core::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How it stands with another node.
#[derive(Debug)]
struct Standing {
    term: u64,
    /// Until when it may act by what it holds; `None` when it holds nothing.
    until: Option<Instant>,
}

#[derive(Debug)]
struct Thing {
    version: u64,
    text: String,
    /// Nodes that may act by a copy, and which version they have said to have seen.
    replicas: BTreeMap<u32, u64>,
    /// Nodes that have ever watched it.
    known: BTreeSet<u32>,
    /// Who acted by it before it was known here has stopped by then.
    from: Instant,
    /// Its first version here, where it goes from node to node.
    taken: Option<u64>,
}

impl Thing {
    fn new(version: u64, text: String, from: Instant, taken: Option<u64>) -> Thing {
        Thing { version, text, replicas: BTreeMap::new(), known: BTreeSet::new(), from, taken }
    }

    /// Whether a replica that has said so acts by a version of this node's.
    fn acts(&self, seen: u64) -> bool {
        self.taken.is_some_and(|first| seen >= first)
    }
}

/// What a node decides for others, which it knows by numbers.
#[derive(Debug)]
pub struct LeaseOwner {
    /// The last number given to a term or a version; grows over restarts.
    number: u64,
    peers: BTreeMap<u32, Standing>,
    things: BTreeMap<String, Thing>,
    /// Who was told of a thing and has not said to have seen it: told again with each heartbeat.
    late: BTreeSet<(u32, String)>,
    /// Who has begun, or ceased, to act by things that go from node to node.
    acting: VecDeque<(String, u32, bool)>,
    out: VecDeque<(u32, Message)>,
}

impl LeaseOwner {
    /// `epoch` is larger than any that this node had before.
    pub fn new(epoch: u64) -> LeaseOwner {
        LeaseOwner {
            number: epoch,
            peers: BTreeMap::new(),
            things: BTreeMap::new(),
            late: BTreeSet::new(),
            acting: VecDeque::new(),
            out: VecDeque::new(),
        }
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Decides about one more thing, of which this is the text.
    pub fn add(&mut self, name: &str, text: String, now: Instant) {
        let version = self.next();
        self.things.insert(name.to_owned(), Thing::new(version, text, now + KEPT, None));
    }

    /// Decides from now on about a thing that went from another node to this one, by what that one had decided. Nobody is waited for: by
    /// copies of the former owner nobody reaches the thing any more.
    pub fn take(&mut self, name: &str, text: String) {
        let version = self.next();
        self.things.insert(name.to_owned(), Thing::new(version, text, Instant::ZERO, Some(version)));
    }

    /// Whether this node decides about a thing.
    pub fn decides(&self, name: &str) -> bool {
        self.things.contains_key(name)
    }

    /// Decides about it no more. Who holds it learns that with its next heartbeat; of what was taken, by hearing who has it.
    pub fn remove(&mut self, name: &str) {
        let Some(thing) = self.things.remove(name) else { return };
        if thing.taken.is_some() {
            return thing
                .replicas
                .into_keys()
                .for_each(|peer| _ = self.late.remove(&(peer, name.to_owned())));
        }
        thing.replicas.into_keys().for_each(|peer| self.end_term(peer));
    }

    /// A replica that has begun to act by a thing that was taken, or has ceased to. What comes from one that does not act is not to be
    /// done: it may have been begun by an older copy.
    pub fn next_acting(&mut self) -> Option<(String, u32, bool)> {
        self.acting.pop_front()
    }

    /// It has another text from now on: who holds it is told. The one before must be settled.
    ///
    /// # Panics
    /// When the thing is not known.
    pub fn change(&mut self, name: &str, text: String) {
        let version = self.next();
        let thing = self.things.get_mut(name).expect("a thing that changes is known");
        (thing.version, thing.text) = (version, text);
        for peer in thing.replicas.keys().copied().collect::<Vec<_>>() {
            self.tell(name, peer);
        }
    }

    /// Whether all who act by it have seen what it is, and it may be changed.
    pub fn is_settled(&mut self, name: &str, now: Instant) -> bool {
        self.tick(now);
        let Some(thing) = self.things.get(name) else { return false };
        now >= thing.from && thing.replicas.values().all(|seen| *seen >= thing.version)
    }

    /// When a thing that is not settled now is so at the latest, whatever the others do.
    pub fn settled_by(&self, name: &str, now: Instant) -> Option<Instant> {
        let thing = self.things.get(name)?;
        let late = thing.replicas.iter().filter(|(_, seen)| **seen < thing.version);
        let until = late.filter_map(|(peer, _)| self.peers.get(peer)?.until);
        until.chain([thing.from]).max().filter(|at| *at > now)
    }

    /// Nodes that have ever watched it, whether they hold it now or not.
    pub fn known(&self, name: &str) -> impl Iterator<Item = u32> {
        self.things.get(name).into_iter().flat_map(|thing| thing.known.iter().copied())
    }

    /// A node has said something. What is no message to an owner is left alone.
    pub fn heard(&mut self, peer: u32, message: &Message, now: Instant) {
        self.tick(now);
        match message {
            Message::Heartbeat { number } => {
                let standing = self.standing(peer);
                standing.until = standing.until.map(|until| until.max(now + KEPT));
                let term = standing.term;
                self.out.push_back((peer, Message::HeartbeatAnswer { number: *number, term }));
                let late = self.late.range((peer, String::new())..).take_while(|(of, _)| *of == peer);
                for name in late.map(|(_, name)| name.clone()).collect::<Vec<_>>() {
                    self.tell(&name, peer);
                }
            }
            Message::Watch { thing: name } => {
                let Some(thing) = self.things.get_mut(name) else { return };
                thing.known.insert(peer);
                thing.replicas.entry(peer).or_insert(0);
                let standing = self.standing(peer);
                standing.until = Some(standing.until.map_or(now + KEPT, |until| until.max(now + KEPT)));
                self.tell(name, peer);
            }
            Message::Seen { thing: name, version } => {
                let Some(thing) = self.things.get_mut(name) else { return };
                let Some(before) = thing.replicas.get(&peer).copied() else { return };
                let seen = before.max(*version);
                thing.replicas.insert(peer, seen);
                if thing.acts(seen) && !thing.acts(before) {
                    self.acting.push_back((name.clone(), peer, true));
                }
                if seen >= thing.version {
                    self.late.remove(&(peer, name.clone()));
                }
            }
            _ => {}
        }
    }

    fn standing(&mut self, peer: u32) -> &mut Standing {
        if !self.peers.contains_key(&peer) {
            let term = self.next();
            self.peers.insert(peer, Standing { term, until: None });
        }
        self.peers.get_mut(&peer).expect("just put there")
    }

    /// Time has passed: who was not heard of holds nothing any more.
    pub fn tick(&mut self, now: Instant) {
        let late = self.peers.iter().filter(|(_, s)| s.until.is_some_and(|until| until <= now));
        for peer in late.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            self.end_term(peer);
        }
    }

    fn end_term(&mut self, peer: u32) {
        let term = self.next();
        self.peers.insert(peer, Standing { term, until: None });
        for (name, thing) in &mut self.things {
            if thing.replicas.remove(&peer).is_some_and(|seen| thing.acts(seen)) {
                self.acting.push_back((name.clone(), peer, false));
            }
        }
        self.late.retain(|(of, _)| *of != peer);
    }

    fn tell(&mut self, name: &str, peer: u32) {
        let (Some(thing), Some(standing)) = (self.things.get(name), self.peers.get(&peer)) else { return };
        self.late.insert((peer, name.to_owned()));
        let mut rest = &thing.text[..];
        for piece in 0.. {
            let mut cut = rest.len().min(PIECE);
            while !rest.is_char_boundary(cut) {
                cut -= 1;
            }
            let (text, after) = rest.split_at(cut);
            rest = after;
            let message = Message::Copy {
                thing: name.to_owned(),
                term: standing.term,
                version: thing.version,
                piece,
                last: rest.is_empty(),
                text: text.to_owned(),
            };
            self.out.push_back((peer, message));
            if rest.is_empty() {
                return;
            }
        }
    }

    /// What is to be said, and to whom. What cannot be said may be dropped: who is linked again watches anew.
    pub fn next_message(&mut self) -> Option<(u32, Message)> {
        self.out.pop_front()
    }
}
