//! The client's end of a connection: for load generators, replay and tests.
//!
//! It negotiates (structured replies and base:allocation where wished, then GO), then keeps any number of commands
//! in flight. Like the server's end it neither reads nor writes: the driver feeds [`Client::receive`], puts the bytes
//! of a read where they belong, and writes [`Client::output`], in which a WRITE's payload is a segment.

use crate::proto::{Error, Fields, OPTION_REPLY_MAGIC, Put, REQUEST_MAGIC, STRING_MAX, cmd, gather};
use crate::{BlockSize, Extent, Output};
use henge_core::{Pending, RequestId};

/// What a client wants of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wish {
    /// Which export; `""` for the default one.
    pub export: String,
    /// Structured replies, if the server has them.
    pub structured: bool,
    /// base:allocation, if the server has it; needs structured replies.
    pub allocation: bool,
}

/// What came of the negotiation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Negotiated {
    /// Bytes of the export.
    pub size: u64,
    /// Transmission flags.
    pub flags: u16,
    /// Structured replies.
    pub structured: bool,
    /// BLOCK_STATUS can be asked.
    pub allocation: bool,
    /// Sizes.
    pub block: BlockSize,
}

/// A command to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Bytes.
    Read,
    /// Bytes changed; the payload is a segment of the output.
    Write,
    /// What was answered before made durable.
    Flush,
    /// Bytes given back.
    Trim,
    /// A range that will be read soon.
    Cache,
    /// Bytes that read as zeroes.
    WriteZeroes {
        /// The space stays provisioned.
        no_hole: bool,
        /// Only if quicker than writing.
        fast: bool,
    },
    /// Which bytes are holes or zeroes.
    BlockStatus,
}

/// What came of some input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEvent {
    /// All of it is taken and nothing came of it yet.
    Nothing,
    /// Commands may be sent.
    Ready(Negotiated),
    /// `len` bytes follow for command `id`'s buffer, from `at` on; report them by [`Client::payload`].
    Payload {
        /// Whose buffer.
        id: RequestId,
        /// Position in it.
        at: u32,
        /// How many.
        len: u32,
    },
    /// Part of what `id` reads is zeroes.
    Hole {
        /// Whose buffer.
        id: RequestId,
        /// Position in it.
        at: u32,
        /// How many.
        len: u32,
    },
    /// The status that `id` asked for: see [`Client::extents`].
    Extents(RequestId),
    /// A command is over; its name is free.
    Done {
        /// Which.
        id: RequestId,
        /// How it went.
        outcome: Result<(), Error>,
    },
    /// The conversation is over.
    Failed(ClientFailure),
}

/// Why a conversation failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientFailure {
    /// The server refused the export.
    Refused {
        /// The reply's type.
        kind: u32,
        /// The server's reason.
        message: String,
    },
    /// The server does not keep to the protocol.
    Protocol(&'static str),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Greeting,
    OptionReply { option: u32 },
    OptionData { option: u32, kind: u32, len: u32 },
    Reply,
    ChunkRest,
    ChunkData { id: RequestId, kind: u16, done: bool, len: u32 },
    Payload { id: RequestId, done: bool, left: u32 },
    Failed,
}

/// A command in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub ask: Ask,
    pub offset: u64,
    pub len: u32,
    /// Bytes of a read that have come.
    pub covered: u64,
    /// Some of a write's payload is still to be written.
    pub unsent: bool,
    pub error: Option<Error>,
    /// Chunks without content that have come, of which one says all.
    pub empty: u16,
}

/// The client's end of one connection.
#[derive(Debug)]
pub struct Client {
    pub(crate) wish: Wish,
    pub(crate) state: State,
    partial: Vec<u8>,
    pub(crate) out: Output,
    pub(crate) negotiated: Negotiated,
    pub(crate) pending: Pending<Sent>,
    pub(crate) extents: Vec<Extent>,
    pub(crate) message: String,
    /// First 16 bytes of a chunk's header.
    pub(crate) head: [u8; 16],
    /// Done, to be said after the event that came with it.
    pub(crate) after: Option<RequestId>,
}

/// Longest data of an option reply or of a chunk that is not a read's bytes.
const DATA_MAX: u32 = 8 << 20;

impl Client {
    /// A connection just opened; the server speaks first.
    ///
    /// # Panics
    /// When the export's name is longer than the protocol allows.
    pub fn new(wish: Wish) -> Self {
        assert!(wish.export.len() <= STRING_MAX, "an export's name is at most {STRING_MAX} bytes");
        Client {
            wish,
            state: State::Greeting,
            partial: Vec::new(),
            out: Output::default(),
            negotiated: Negotiated::default(),
            pending: Pending::new(),
            extents: Vec::new(),
            message: String::new(),
            head: [0; 16],
            after: None,
        }
    }

    /// Feeds bytes as they came: how many were taken, and what came of them. Call it again with the rest until
    /// it says `Nothing`: all is taken then, unless payload is awaited.
    pub fn receive(&mut self, input: &[u8]) -> (usize, ClientEvent) {
        if let Some(id) = self.after.take() {
            return (0, self.done(id).unwrap_or_else(|why| self.protocol(why)));
        }
        let mut consumed = 0;
        let mut partial = std::mem::take(&mut self.partial);
        let event = loop {
            let need = match self.state {
                State::Greeting => 18,
                State::OptionReply { .. } => 20,
                State::OptionData { len, .. } | State::ChunkData { len, .. } => len as usize,
                State::Reply => 16,
                State::ChunkRest => 4,
                State::Payload { .. } | State::Failed => break ClientEvent::Nothing,
            };
            let Some(bytes) = gather(&mut partial, input, need, &mut consumed) else {
                break ClientEvent::Nothing;
            };
            let event = self.item(bytes).unwrap_or_else(|why| Some(self.protocol(why)));
            partial.clear();
            if let Some(event) = event {
                break event;
            }
        };
        self.partial = partial;
        (consumed, event)
    }

    fn item(&mut self, bytes: &[u8]) -> Result<Option<ClientEvent>, &'static str> {
        match self.state {
            State::Greeting => self.greeting(bytes),
            State::OptionReply { option } => {
                let mut f = Fields(bytes);
                let (magic, echo) = (f.u64(), f.u32());
                if magic != Some(OPTION_REPLY_MAGIC) || echo != Some(option) {
                    return Err("not a reply to the option");
                }
                let (Some(kind), Some(len)) = (f.u32(), f.u32()) else { return Err("a reply cut short") };
                if len > DATA_MAX {
                    return Err("an absurdly long option reply");
                }
                self.state = State::OptionData { option, kind, len };
                Ok(None)
            }
            State::OptionData { option, kind, .. } => self.option_reply(option, kind, bytes),
            State::Reply => self.reply_head(bytes),
            State::ChunkRest => self.chunk_head(bytes),
            State::ChunkData { id, kind, done, .. } => self.chunk_data(id, kind, done, bytes),
            State::Payload { .. } | State::Failed => unreachable!("no item is gathered in this state"),
        }
    }

    /// Sends a command; its name until it is done.
    ///
    /// # Panics
    /// Before the negotiation is over.
    pub fn send(&mut self, ask: Ask, offset: u64, len: u32, fua: bool) -> RequestId {
        assert!(self.is_ready(), "commands are sent after the negotiation");
        let (kind, flags) = match ask {
            Ask::Read => (cmd::READ, 0),
            Ask::Write => (cmd::WRITE, 0),
            Ask::Flush => (cmd::FLUSH, 0),
            Ask::Trim => (cmd::TRIM, 0),
            Ask::Cache => (cmd::CACHE, 0),
            Ask::BlockStatus => (cmd::BLOCK_STATUS, 0),
            Ask::WriteZeroes { no_hole, fast } => {
                let hole = if no_hole { cmd::FLAG_NO_HOLE } else { 0 };
                (cmd::WRITE_ZEROES, hole | if fast { cmd::FLAG_FAST_ZERO } else { 0 })
            }
        };
        let unsent = ask == Ask::Write && len > 0;
        let id = self.pending.insert(Sent { ask, offset, len, covered: 0, unsent, error: None, empty: 0 });
        let flags = flags | if fua { cmd::FLAG_FUA } else { 0 };
        self.request(flags, kind, u64::from(id.generation) << 32 | u64::from(id.slot), offset, len);
        if unsent {
            self.out.payload(id, 0, len as usize, true);
        }
        id
    }

    /// Says goodbye (NBD_CMD_DISC). Wait for what is in flight before.
    pub fn disconnect(&mut self) {
        self.request(0, cmd::DISC, 0, 0, 0);
    }

    fn request(&mut self, flags: u16, kind: u16, cookie: u64, offset: u64, len: u32) {
        self.out.bytes(|b| {
            b.u32(REQUEST_MAGIC);
            b.u16(flags);
            b.u16(kind);
            b.u64(cookie);
            b.u64(offset);
            b.u32(len);
        });
    }

    /// What to write.
    pub fn output(&self) -> &Output {
        &self.out
    }
    /// `n` bytes of the output were written; `released` hears of each WRITE whose payload is out.
    pub fn written(&mut self, n: usize, mut released: impl FnMut(RequestId)) {
        let pending = &mut self.pending;
        self.out.advance(n, |id, _| {
            if let Some(sent) = pending.get_mut(id) {
                sent.unsent = false;
            }
            released(id);
        });
    }
    /// Whether commands may be sent.
    pub fn is_ready(&self) -> bool {
        matches!(
            self.state,
            State::Reply | State::ChunkRest | State::ChunkData { .. } | State::Payload { .. }
        )
    }
    /// Commands in flight.
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }
    /// The extents of the last [`ClientEvent::Extents`].
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }
    /// The server's reason for the last error; empty if it gave none.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn protocol(&mut self, why: &'static str) -> ClientEvent {
        self.state = State::Failed;
        ClientEvent::Failed(ClientFailure::Protocol(why))
    }
}

/// Most chunks without content in answer to one command. A driver reads for as long as something comes.
pub(crate) const EMPTY_MAX: u16 = 1024;
/// Longest chunk that is read as a whole.
pub(crate) const CHUNK_MAX: u32 = DATA_MAX + 4;
