//! One link: hello, proof, then messages.

use crate::handshake::{Greeting, Hellos, Identity, Proof, Refusal, Role};
use crate::message::{BODY_MAX, DATA_MAX, FRAME_HEADER, Message, frame, framed};
use crate::seal::{Coming, Keys, SEAL};
use henge_core::{Duration, Instant};
use serde::de::DeserializeOwned;

/// A ping is sent after so long a silence of ours.
const PING_EVERY: Duration = Duration::from_secs(1);
/// The peer is given up after so long a silence of its own.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// What the bytes shown mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// The peer is who it says, and knows the secret; messages may be sent.
    Established {
        /// The peer.
        name: String,
        /// Its epoch.
        epoch: u64,
    },
    /// A message; `data` raw bytes follow it in the stream. The caller takes them and shows them to [`Link::took`].
    Message {
        /// The message.
        message: Message,
        /// Bytes behind it.
        data: usize,
    },
    /// At least this number of bytes must be seen together.
    NeedMore(usize),
}

/// How many bytes were consumed, and what they meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes.
    pub len: usize,
    /// Meaning.
    pub event: Option<LinkEvent>,
}

#[expect(clippy::large_enum_variant, reason = "a link has one, and is established nearly all its life")]
#[derive(Debug)]
enum State {
    Greeting,
    Proving { theirs: Greeting, features: u64 },
    Established { name: String, keys: Keys, features: u64, coming: Option<Coming> },
}

/// One end of a link.
#[derive(Debug)]
pub struct Link {
    identity: Identity,
    role: Role,
    ours: Greeting,
    state: State,
    /// To be written.
    output: Vec<u8>,
    heard: Instant,
    spoke: Instant,
}

impl Link {
    /// A fresh connection; `nonce` is random and never used twice.
    pub fn new(identity: Identity, role: Role, nonce: [u8; 16], now: Instant) -> Self {
        let ours = identity.hello(nonce);
        let mut output = Vec::new();
        framed(&ours.bytes, 0, &mut output);
        Link { identity, role, ours, state: State::Greeting, output, heard: now, spoke: now }
    }

    /// What both ends prove to know is this from now on: of a connection that is encrypted, its own exporter (RFC 8446, section 7.5). Before the
    /// first byte of the peer is shown.
    pub fn prove_by(&mut self, secret: Vec<u8>) {
        self.identity.secret = secret;
    }

    /// The peer's name, once established.
    pub fn peer(&self) -> Option<&str> {
        match &self.state {
            State::Established { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Whether this end has proven itself, and the other has not.
    pub fn has_proven(&self) -> bool {
        self.role == Role::Dialler && matches!(self.state, State::Proving { .. })
    }

    /// Queues a message; its data must be written right behind [`output`](Self::output), just as they are now. One that the other end does
    /// not understand is not sent.
    ///
    /// # Panics
    /// Before the link is established: there is nobody yet whom one could trust with it.
    pub fn send(&mut self, message: &Message, data: &[u8], now: Instant) {
        let State::Established { keys, features, .. } = &mut self.state else {
            panic!("messages follow the handshake")
        };
        if message.feature() & !*features != 0 {
            return;
        }
        let start = self.output.len();
        frame(message, data.len(), &mut self.output);
        if !data.is_empty() {
            self.output.extend_from_slice(&keys.ours.data(data));
        }
        let seal = keys.ours.message(&self.output[start..]);
        self.output.extend_from_slice(&seal);
        self.spoke = now;
    }

    /// Data behind a message, as they come; all of them before the next [`receive`](Self::receive).
    pub fn took(&mut self, data: &[u8]) -> Result<(), Refusal> {
        let State::Established { name, coming, .. } = &mut self.state else {
            panic!("data follow messages, and messages the handshake")
        };
        let fits = coming.as_mut().expect("data follow messages that announce them").take(data);
        if fits.is_some() {
            *coming = None;
        }
        if fits == Some(false) { Err(Refusal::Changed { name: name.clone() }) } else { Ok(()) }
    }

    /// Bytes to write; the caller removes what was written.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Looks at the unread bytes.
    pub fn receive(&mut self, input: &[u8], now: Instant) -> Result<Received, Refusal> {
        let Some(header) = input.first_chunk::<FRAME_HEADER>() else {
            return Ok(Received { len: 0, event: Some(LinkEvent::NeedMore(FRAME_HEADER)) });
        };
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize
        };
        let (body, data) = (word(0), word(4));
        if body > BODY_MAX || data > DATA_MAX || (self.peer().is_none() && data > 0) {
            return Err(self.malformed());
        }
        let seals = match (self.peer(), data) {
            (None, _) => 0,
            (Some(_), 0) => SEAL,
            (Some(_), _) => 2 * SEAL,
        };
        let len = FRAME_HEADER + body + seals;
        if input.len() < len {
            return Ok(Received { len: 0, event: Some(LinkEvent::NeedMore(len)) });
        }
        self.heard = now;
        let frame = &input[..len];
        let event = match &self.state {
            State::Established { .. } => self.message(frame, body, data)?,
            _ => self.handshake(&frame[FRAME_HEADER..])?,
        };
        Ok(Received { len, event })
    }

    fn message(&mut self, frame: &[u8], body: usize, data: usize) -> Result<Option<LinkEvent>, Refusal> {
        let State::Established { name, keys, coming, .. } = &mut self.state else {
            unreachable!("said before")
        };
        assert!(coming.is_none(), "data of a message are taken before the next one");
        let expected = (data > 0).then(|| keys.theirs.coming(data)); // before the number moves on
        let (sealed, seal) = frame.split_at(frame.len() - SEAL);
        if !keys.theirs.fits(sealed, seal) {
            return Err(Refusal::Changed { name: name.clone() });
        }
        let body_end = FRAME_HEADER + body;
        let seal = sealed[body_end..].first_chunk::<SEAL>();
        *coming = expected.zip(seal).map(|(expected, seal)| expected.with(*seal));
        match self.decode(&sealed[FRAME_HEADER..body_end])? {
            Message::Ping if data == 0 => Ok(None),
            message => Ok(Some(LinkEvent::Message { message, data })),
        }
    }

    fn handshake(&mut self, body: &[u8]) -> Result<Option<LinkEvent>, Refusal> {
        if matches!(self.state, State::Greeting) {
            let theirs = Greeting::read(body).ok_or(Refusal::NotHenge)?;
            self.identity.accepts(&theirs.hello)?;
            let named = |lack| Refusal::Feature { name: theirs.hello.name.clone(), lack };
            let features = self.ours.speaks.with(&theirs.speaks).map_err(named)?;
            if self.role == Role::Dialler {
                self.prove(&theirs);
            }
            self.state = State::Proving { theirs, features };
            return Ok(None);
        }
        let proof: Proof = self.decode(body)?;
        let State::Proving { theirs, features } = &self.state else {
            unreachable!("messages are no handshake")
        };
        let (theirs, features) = (theirs.clone(), *features);
        let hellos = Hellos::new(self.role, &self.ours, &theirs);
        self.identity.verify(self.role.other(), &hellos, &proof, &theirs.hello.name)?;
        let keys = self.identity.keys(self.role, &hellos);
        // Who was dialled proves only to who has.
        if self.role == Role::Dialled {
            self.prove(&theirs);
        }
        let (name, epoch) = (theirs.hello.name, theirs.hello.epoch);
        self.state = State::Established { name: name.clone(), keys, features, coming: None };
        Ok(Some(LinkEvent::Established { name, epoch }))
    }

    fn prove(&mut self, theirs: &Greeting) {
        let proof = self.identity.prove(self.role, &Hellos::new(self.role, &self.ours, theirs));
        frame(&proof, 0, &mut self.output);
    }

    /// When [`tick`](Self::tick) is due.
    pub fn wake_at(&self) -> Instant {
        (self.heard + SILENCE_MAX).min(self.spoke + PING_EVERY)
    }

    /// Pings when nothing was said for a while; `false` when the peer has been silent for too long.
    pub fn tick(&mut self, now: Instant) -> bool {
        if now.since(self.spoke) >= PING_EVERY {
            if self.peer().is_some() {
                self.send(&Message::Ping, &[], now);
            }
            self.spoke = now;
        }
        now.since(self.heard) < SILENCE_MAX
    }

    fn decode<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, Refusal> {
        match postcard::take_from_bytes(body) {
            Ok((message, [])) => Ok(message),
            _ => Err(self.malformed()),
        }
    }

    fn malformed(&self) -> Refusal {
        match &self.state {
            State::Greeting => Refusal::NotHenge,
            State::Proving { theirs, .. } => Refusal::Malformed { name: theirs.hello.name.clone() },
            State::Established { name, .. } => Refusal::Malformed { name: name.clone() },
        }
    }
}

#[cfg(test)]
mod tests;
