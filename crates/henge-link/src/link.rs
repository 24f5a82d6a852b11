//! One link: hello, proof, then messages.

use crate::handshake::{Hello, Identity, Proof, Refusal};
use crate::message::{BODY_MAX, DATA_MAX, FRAME_HEADER, Message, frame};
use henge_core::{Duration, Instant};
use serde::de::DeserializeOwned;

/// A ping is sent after so long a silence of ours.
const PING_EVERY: Duration = Duration::from_secs(1);
/// The peer is given up after so long a silence of its own.
const SILENCE_MAX: Duration = Duration::from_secs(4);

/// What the bytes shown mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The peer is who it says, and knows the secret; messages may be sent.
    Established {
        /// The peer.
        name: String,
        /// Its epoch.
        epoch: u64,
    },
    /// A message; `data` raw bytes follow it in the stream and are the caller's to take.
    Message {
        /// The message.
        message: Message,
        /// Bytes behind it.
        data: usize,
    },
    /// At least so many bytes must be seen together.
    NeedMore(usize),
}

/// How many bytes were consumed, and what they meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes.
    pub len: usize,
    /// Meaning.
    pub event: Option<Event>,
}

#[derive(Debug)]
enum State {
    Greeting,
    Proving { theirs: Hello },
    Established { name: String },
}

/// One end of a link.
#[derive(Debug)]
pub struct Link {
    identity: Identity,
    ours: Hello,
    state: State,
    /// To be written.
    output: Vec<u8>,
    heard: Instant,
    spoke: Instant,
}

impl Link {
    /// A fresh connection; `nonce` is random and never used twice.
    pub fn new(identity: Identity, nonce: [u8; 16], now: Instant) -> Self {
        let ours = identity.hello(nonce);
        let mut output = Vec::new();
        frame(&ours, 0, &mut output);
        Link { identity, ours, state: State::Greeting, output, heard: now, spoke: now }
    }

    /// The peer's name, once established.
    pub fn peer(&self) -> Option<&str> {
        match &self.state {
            State::Established { name, .. } => Some(name),
            _ => None,
        }
    }

    /// Queues a message; its `data` bytes must be written right behind [`output`](Self::output).
    ///
    /// # Panics
    /// Before the link is established: there is nobody yet whom one could trust with it.
    pub fn send(&mut self, message: &Message, data: usize, now: Instant) {
        assert!(self.peer().is_some(), "messages follow the handshake");
        frame(message, data, &mut self.output);
        self.spoke = now;
    }

    /// Bytes to write; the caller removes what was written.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// Looks at the unread bytes.
    pub fn receive(&mut self, input: &[u8], now: Instant) -> Result<Received, Refusal> {
        let Some(header) = input.first_chunk::<FRAME_HEADER>() else {
            return Ok(Received { len: 0, event: Some(Event::NeedMore(FRAME_HEADER)) });
        };
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize
        };
        let (body, data) = (word(0), word(4));
        if body > BODY_MAX || data > DATA_MAX {
            return Err(self.malformed());
        }
        let len = FRAME_HEADER + body;
        if input.len() < len {
            return Ok(Received { len: 0, event: Some(Event::NeedMore(len)) });
        }
        self.heard = now;
        let body = &input[FRAME_HEADER..len];
        let event = match &self.state {
            State::Established { .. } => match self.decode(body)? {
                Message::Ping if data == 0 => None,
                message => Some(Event::Message { message, data }),
            },
            _ if data > 0 => return Err(self.malformed()),
            State::Greeting => {
                let theirs: Hello = self.decode(body)?;
                self.identity.accepts(&theirs)?;
                frame(&self.identity.prove(&self.ours, &theirs), 0, &mut self.output);
                self.state = State::Proving { theirs };
                None
            }
            State::Proving { theirs } => {
                let proof: Proof = self.decode(body)?;
                self.identity.verify(&self.ours, theirs, &proof)?;
                let (name, epoch) = (theirs.name.clone(), theirs.epoch);
                self.state = State::Established { name: name.clone() };
                Some(Event::Established { name, epoch })
            }
        };
        Ok(Received { len, event })
    }

    /// When [`tick`](Self::tick) is due.
    pub fn wake_at(&self) -> Instant {
        (self.heard + SILENCE_MAX).min(self.spoke + PING_EVERY)
    }

    /// Pings when nothing was said for a while; `false` when the peer has been silent for too long.
    pub fn tick(&mut self, now: Instant) -> bool {
        if now.since(self.spoke) >= PING_EVERY {
            if self.peer().is_some() {
                frame(&Message::Ping, 0, &mut self.output);
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
            State::Proving { theirs } => Refusal::Malformed { name: theirs.name.clone() },
            State::Established { name } => Refusal::Malformed { name: name.clone() },
        }
    }
}
