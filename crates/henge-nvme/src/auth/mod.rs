//! DH-HMAC-CHAP: a host proves that it knows its secret, and the controller that it knows its own (Base 8.13.5).
//!
//! ```text
//!   host                                        controller
//!   Negotiate: hashes, groups          ──▶
//!                                      ◀──      Challenge: C1, S1, 2^y
//!   Reply: R1 = H(host's key, C1 …), 2^x, C2  ──▶
//!                                      ◀──      Success1: R2 = H(controller's key, C2 …)   or Failure1: why
//!   Success2, or Failure2              ──▶      only where the host has sent a C2
//! ```
//! The host sends by Authentication Send and fetches by Authentication Receive. C is the challenge, hashed with 2^xy where there
//! is a group. An exchange that fails ends its connection. Randomness comes from outside, by a seed.

mod group;
mod key;
mod primes;

pub use group::{Derivation, Group};
pub use key::{Hash, Key};

use crate::wire::{le16, le32, put};
use subtle::ConstantTimeEq;

/// Most bytes of a message: a Reply with SHA-512 and 8192 bits has 1168.
pub(crate) const MESSAGE_MAX: usize = 4096;
/// Bytes before the values of a Challenge, Reply or Success1.
const HEAD: usize = 16;

/// Message types and ids.
mod message {
    pub const COMMON: u8 = 0;
    pub const DHCHAP: u8 = 1;
    pub const NEGOTIATE: u8 = 0x00;
    pub const CHALLENGE: u8 = 0x01;
    pub const REPLY: u8 = 0x02;
    pub const SUCCESS1: u8 = 0x03;
    pub const SUCCESS2: u8 = 0x04;
    pub const FAILURE2: u8 = 0xf0;
    pub const FAILURE1: u8 = 0xf1;
}

/// Why an exchange fails (Base, figure 442).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failure {
    Failed = 1,
    NoProtocol = 2,
    Concatenation = 3,
    NoHash = 4,
    NoGroup = 5,
    Payload = 6,
    Message = 7,
}

/// Random bytes of a connection, from its seed.
pub(crate) struct Draw {
    seed: [u8; 32],
    count: u64,
}

impl std::fmt::Debug for Draw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Draw(…)")
    }
}

impl Draw {
    pub fn new(seed: [u8; 32]) -> Draw {
        Draw { seed, count: 0 }
    }
    /// A number.
    pub fn number(&mut self) -> u32 {
        le32(&self.take(4), 0)
    }
    /// `len` bytes, at most 64.
    fn take(&mut self, len: usize) -> Vec<u8> {
        self.count += 1;
        let mut bytes = Hash::Sha512.hmac(&self.seed, &[&self.count.to_le_bytes()]);
        bytes.truncate(len);
        bytes
    }
}

/// Who proves what to whom.
#[derive(Debug)]
pub(crate) struct Parties<'a> {
    pub host: &'a str,
    pub subsystem: &'a str,
    /// What the host proves to know; `None`: nothing that it says is a proof.
    pub host_key: Option<&'a Key>,
    /// What the controller proves to know, when asked.
    pub controller_key: Option<&'a Key>,
    /// Weaker groups are not good enough.
    pub weakest: Group,
    /// The subsystem is nobody's: no proof is right, and finding that out takes as long.
    pub is_nobodys: bool,
}

/// What was agreed on.
struct Terms {
    id: u16,
    hash: Hash,
    group: Group,
    sequence: u32,
    challenge: Vec<u8>,
    exponent: Vec<u8>,
    public: Vec<u8>,
}

/// What the host has replied.
struct Reply {
    response: Vec<u8>,
    /// Its challenge, and the number with it.
    asks: Option<(Vec<u8>, u32)>,
}

/// Where an exchange is.
#[derive(Default)]
enum State {
    /// There is none.
    #[default]
    Idle,
    /// Our public value is computed.
    Public(Box<Terms>),
    /// The host fetches its challenge.
    Challenge(Box<Terms>),
    /// And replies.
    Reply(Box<Terms>),
    /// What both know is computed.
    Shared(Box<Terms>, Reply),
    /// The host fetches that it is believed, and our response.
    Success { id: u16, hash: Hash, response: Option<Vec<u8>> },
    /// And says whether it believes us.
    Success2 { id: u16 },
    /// The host fetches why not.
    Failed { id: u16, why: Failure },
}

/// What a message of the host's leads to.
#[derive(Debug)]
pub(crate) enum Sent {
    /// The command is done.
    Done,
    /// It is done when this is computed: [`Exchange::derived`].
    Derive(Derivation),
    /// The host gives up: the connection ends.
    Over,
}

/// A connection's authentication.
#[derive(Default)]
pub(crate) struct Exchange {
    /// The host must prove who it is.
    required: bool,
    proven: bool,
    state: State,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchange {{ required: {}, proven: {} }}", self.required, self.proven)
    }
}

impl Exchange {
    pub fn new(required: bool) -> Exchange {
        Exchange { required, ..Exchange::default() }
    }
    /// The host may do nothing but prove who it is.
    pub fn is_closed(&self) -> bool {
        self.required && !self.proven
    }

    /// A message of the host's. `sequence`: the number of a challenge, should there be one.
    pub fn send(&mut self, parties: &Parties<'_>, bytes: &[u8], draw: &mut Draw, sequence: u32) -> Sent {
        if bytes.len() < 6 {
            return self.fail(0, Failure::Payload);
        }
        let id = le16(bytes, 4);
        match (bytes[0], bytes[1], std::mem::take(&mut self.state)) {
            (message::COMMON, message::FAILURE2, _) => Sent::Over,
            (_, _, failed @ State::Failed { .. }) => {
                self.state = failed;
                Sent::Done
            }
            // One power at a time for each connection.
            (_, _, State::Public(_) | State::Shared(..)) => self.fail(id, Failure::Message),
            (message::COMMON, message::NEGOTIATE, _) => self.negotiate(parties, bytes, draw, sequence),
            (message::DHCHAP, message::REPLY, State::Reply(terms)) if terms.id == id => {
                self.reply(parties, terms, bytes)
            }
            (message::DHCHAP, message::REPLY, State::Reply(_)) => self.fail(id, Failure::Payload),
            (message::DHCHAP, message::SUCCESS2, State::Success2 { id: expected }) if expected == id => {
                self.proven = true;
                Sent::Done
            }
            _ => self.fail(id, Failure::Message),
        }
    }

    fn fail(&mut self, id: u16, why: Failure) -> Sent {
        self.state = State::Failed { id, why };
        Sent::Done
    }

    fn negotiate(&mut self, parties: &Parties<'_>, bytes: &[u8], draw: &mut Draw, sequence: u32) -> Sent {
        let id = le16(bytes, 4);
        // Whose proof cannot be right is not worth two powers.
        if parties.host_key.is_none() {
            return self.fail(id, Failure::Failed);
        }
        let (hash, group) = match chosen(parties, bytes) {
            Ok(chosen) => chosen,
            Err(why) => return self.fail(id, why),
        };
        let (challenge, exponent) = (draw.take(hash.len()), draw.take(group.exponent_len()));
        let terms = Terms { id, hash, group, sequence, challenge, exponent, public: Vec::new() };
        if group.is_null() {
            self.state = State::Challenge(Box::new(terms));
            return Sent::Done;
        }
        let derivation = Derivation::public(group, &terms.exponent);
        self.state = State::Public(Box::new(terms));
        Sent::Derive(derivation)
    }

    fn reply(&mut self, parties: &Parties<'_>, terms: Box<Terms>, bytes: &[u8]) -> Sent {
        let len = terms.hash.len();
        if bytes.len() < HEAD || usize::from(bytes[6]) != len {
            return self.fail(terms.id, Failure::Payload);
        }
        let (value_len, value_at) = (usize::from(le16(bytes, 10)), HEAD + 2 * len);
        if bytes.len() < value_at + value_len {
            return self.fail(terms.id, Failure::Payload);
        }
        let (number, challenge) = (le32(bytes, 12), &bytes[HEAD + len..value_at]);
        // Number 0 says that the challenge is for a key of TLS alone.
        let asks = (bytes[8] & 1 != 0 && number != 0).then(|| (challenge.to_vec(), number));
        let reply = Reply { response: bytes[HEAD..HEAD + len].to_vec(), asks };
        let value = &bytes[value_at..value_at + value_len];
        if terms.group.is_null() && value.is_empty() {
            self.judge(parties, &terms, &reply, None);
            Sent::Done
        } else if terms.group.takes(value) {
            let derivation = Derivation::shared(terms.group, &terms.exponent, value);
            self.state = State::Shared(terms, reply);
            Sent::Derive(derivation)
        } else {
            self.fail(terms.id, Failure::Payload)
        }
    }

    /// A power is computed.
    pub fn derived(&mut self, parties: &Parties<'_>, power: Vec<u8>) {
        match std::mem::take(&mut self.state) {
            State::Public(mut terms) => {
                terms.public = power;
                self.state = State::Challenge(terms);
            }
            State::Shared(terms, reply) => self.judge(parties, &terms, &reply, Some(&power)),
            other => self.state = other,
        }
    }

    /// Is the host who it says? And who are we?
    fn judge(&mut self, parties: &Parties<'_>, terms: &Terms, reply: &Reply, shared: Option<&[u8]>) {
        let Terms { id, hash, .. } = *terms;
        let session_key = shared.map(|power| hash.digest(power));
        let response = |key: &Key, names: (&str, &str), role: &[u8], challenge: &[u8], number: u32| {
            let augmented = session_key.as_ref().map(|key| hash.hmac(key, &[challenge]));
            let challenge = augmented.as_deref().unwrap_or(challenge);
            let (first, second) = (names.0.as_bytes(), names.1.as_bytes());
            let (number, id) = (number.to_le_bytes(), id.to_le_bytes());
            hash.hmac(&key.of(names.0), &[challenge, &number, &id, &[0], role, first, &[0], second])
        };
        let (host, subsystem) = (parties.host, parties.subsystem);
        let is_right = parties.host_key.is_some_and(|key| {
            let right = response(key, (host, subsystem), b"HostHost", &terms.challenge, terms.sequence);
            bool::from(right.ct_eq(&reply.response)) && !parties.is_nobodys
        });
        let ours = match (&reply.asks, parties.controller_key) {
            (None, _) => Some(None),
            (Some((challenge, number)), Some(key)) => {
                Some(Some(response(key, (subsystem, host), b"Controller", challenge, *number)))
            }
            (Some(_), None) => None,
        };
        let Some(response) = ours.filter(|_| is_right) else {
            self.state = State::Failed { id, why: Failure::Failed };
            return;
        };
        self.proven |= response.is_none();
        self.state = State::Success { id, hash, response };
    }

    /// What the host fetches now: [`Exchange::fetched`] says that it has.
    pub fn message(&mut self) -> Vec<u8> {
        let (kind, number, id) = match &self.state {
            State::Challenge(terms) => (message::DHCHAP, message::CHALLENGE, terms.id),
            State::Success { id, .. } => (message::DHCHAP, message::SUCCESS1, *id),
            State::Failed { id, .. } => (message::COMMON, message::FAILURE1, *id),
            _ => {
                self.fail(0, Failure::Message);
                (message::COMMON, message::FAILURE1, 0)
            }
        };
        let mut out = vec![0; HEAD];
        (out[0], out[1]) = (kind, number);
        put(&mut out, 4, id.to_le_bytes());
        match &self.state {
            State::Challenge(terms) => {
                (out[6], out[8], out[9]) =
                    (terms.hash.len() as u8, terms.hash.number(), terms.group.number());
                put(&mut out, 10, (terms.public.len() as u16).to_le_bytes());
                put(&mut out, 12, terms.sequence.to_le_bytes());
                out.extend_from_slice(&terms.challenge);
                out.extend_from_slice(&terms.public);
            }
            State::Success { hash, response, .. } => {
                (out[6], out[8]) = (hash.len() as u8, u8::from(response.is_some()));
                match response {
                    Some(response) => out.extend_from_slice(response),
                    None => out.resize(HEAD + hash.len(), 0),
                }
            }
            State::Failed { why, .. } => (out[6], out[7]) = (1, *why as u8),
            _ => {}
        }
        out
    }

    /// The host has the message. Whether that was the last one: the connection ends.
    pub fn fetched(&mut self) -> bool {
        self.state = match std::mem::take(&mut self.state) {
            State::Challenge(terms) => State::Reply(terms),
            State::Success { id, response: Some(_), .. } => State::Success2 { id },
            State::Success { .. } => State::Idle,
            other => other,
        };
        matches!(self.state, State::Failed { .. })
    }
}

/// The hash and the group, of those that a Negotiate lists: its first hash that we have, and the smallest group that is good
/// enough. Without a group only where nothing else is offered, since then whoever listens can try secrets.
fn chosen(parties: &Parties<'_>, bytes: &[u8]) -> Result<(Hash, Group), Failure> {
    const DESCRIPTOR: usize = 64;
    if bytes.len() < 8 {
        return Err(Failure::Payload);
    }
    if bytes[6] != 0 {
        return Err(Failure::Concatenation);
    }
    let end = 8 + usize::from(bytes[7]) * DESCRIPTOR;
    let mut protocols = bytes.get(8..end).ok_or(Failure::Payload)?.chunks_exact(DESCRIPTOR);
    let protocol = protocols.find(|protocol| protocol[0] == 1).ok_or(Failure::NoProtocol)?;
    let (hashes, groups) = (usize::from(protocol[2]), usize::from(protocol[3]));
    if hashes > 30 || groups > 30 {
        return Err(Failure::Payload);
    }
    let hash =
        protocol[4..4 + hashes].iter().find_map(|number| Hash::numbered(*number)).ok_or(Failure::NoHash)?;
    let offered = &protocol[34..34 + groups];
    let usable = |group: &&Group| **group >= parties.weakest && offered.contains(&group.number());
    let (null, real) = Group::ALL.split_at(1);
    let group = real.iter().find(usable).or(null.iter().find(usable)).ok_or(Failure::NoGroup)?;
    Ok((hash, *group))
}
