//! One client connection and its twin to the server, watched from both ends.
//!
//! The driver shows the unread bytes of a direction; [`Connection`] says how many of them may go on and
//! what they mean. It asks to hold I/O requests, and all others where only clients come. Everything else passes at once, past those
//! held: responses, bulk data of requests let through earlier, requests between servers, and what is not understood.
//!
//! ```text
//!   from_client → Hold   the driver takes the message out and queues it; release() when it goes to the server
//!   from_client → HoldAlone   the same, but no answer will be told from others': it is over as it goes
//!   from_client → Pass   forward the stated number of bytes
//!   from_server → Pass   forward the stated number of bytes; News says what was learnt: true cost, data moved, over
//! ```
//!
//! Per tag (the server matches by connection and tag): a write is request, response, data, completion; a read is
//! request, response, data, and *no* end mark, so it is over when the bytes of this server have passed; a small one
//! is over with its response. An error response ends either. Any other request is over with its response.

use crate::capability::{Capability, Credential};
use crate::frame::{HEADER_LEN, Header, MAGIC, Mode};
use crate::message::{Direction, IoRequest, Request, RequestBody, Response, ServerLimits, Version};
use crate::metadata::{Metadata, What};
use crate::op::Op;
use crate::sound;
use crate::wire::Malformed;
use std::collections::BTreeMap;

/// Requests that are held or awaited on one connection at most; further ones end it.
const UNDER_WAY_MAX: usize = 4096;
/// Less data than this is not worth a look at its header alone.
const BULK_MIN: u64 = 16 << 10;
/// What the bytes shown to the connection mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnectionEvent {
    /// They pass.
    Pass,
    /// A whole request: take it out, queue it, and [`release`](Connection::release) it later.
    Hold {
        /// Ties its response and data to it.
        tag: i64,
        /// What it asks for, and for whom.
        request: Box<Request>,
    },
    /// A whole request of I/O whose answer cannot be told from others'. Take it out and queue it. It is over as it goes.
    HoldAlone {
        /// What it asks for, and for whom.
        request: Box<Request>,
    },
    /// At least this number of bytes must be seen together before anything can be said.
    NeedMore(usize),
    /// This is no PVFS2, or the stream went astray: everything passes from now on, unscheduled.
    Opaque,
    /// What no client sends and servers take all the same: nothing of it may pass, and the connection ends.
    Refuse,
    /// A whole request that no server can go through. Take it out, and answer that it fails.
    Answer {
        /// What is wrong with it.
        why: Malformed,
    },
}

/// What was learnt from what the server answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News {
    /// An I/O request was accepted; `bytes` will move here, where that can be known.
    Accepted {
        /// Of the request.
        tag: i64,
        /// The true cost.
        bytes: Option<u64>,
    },
    /// A held request is over.
    Over {
        /// Of the request.
        tag: i64,
        /// Bytes that moved; `Err` holds the negative PVFS error.
        result: Result<u64, i32>,
        /// Bytes of its data that passed here.
        moved: u64,
    },
    /// A user was given this capability: I/O requests that carry it are theirs, unless another user got the same.
    Identity {
        /// What was given.
        capability: Box<Capability>,
        /// To whom.
        credential: Credential,
    },
    /// The server stated its time limits.
    Limits(ServerLimits),
}

/// How many bytes may go on, and what they mean.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step<T> {
    /// So many of the bytes shown may go to the other side (for `Hold`: are the message).
    pub len: usize,
    /// What they mean.
    pub what: T,
}

/// Where an I/O request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoState {
    /// With the proxy.
    Held,
    /// At the server, not yet answered.
    Released,
    /// Answered; data moves.
    Moving {
        /// Bytes that passed.
        moved: u64,
        /// Bytes to pass, where that is known.
        expected: Option<u64>,
    },
}

/// What passed without being understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionStats {
    /// Requests that could not be decoded; of these, I/O requests are held alone.
    pub malformed: u64,
    /// Requests that no server can go through: they are answered here.
    pub unsound: u64,
    /// Requests beyond the number that is followed, or with the tag of another: they end their connection.
    pub unfollowed: u64,
    /// Requests of servers, never held.
    pub between_servers: u64,
    /// Requests of administrators, and requests of servers where only clients come.
    pub refused: u64,
    /// I/O requests held.
    pub io_requests: u64,
}

#[derive(Default, Debug)]
struct Passing {
    left: u64,
    /// The I/O whose data this is.
    data_of: Option<i64>,
}

#[derive(Debug)]
struct Io {
    request: Box<IoRequest>,
    state: IoState,
}

impl Io {
    /// Whether it is a read that was answered: its data comes.
    fn is_read_moving(&self) -> bool {
        matches!(self.state, IoState::Moving { .. }) && self.request.direction == Direction::Read
    }
}

/// One client connection.
#[derive(Default, Debug)]
pub struct Connection {
    from_client: Passing,
    from_server: Passing,
    ios: BTreeMap<i64, Io>,
    /// Requests but for I/O.
    pub metadata: Metadata,
    opaque: bool,
    clients_only: bool,
    /// Data that no request explains, either way.
    pub stray: Stray,
    stats: ConnectionStats,
}

impl Connection {
    /// A fresh one: nothing is exchanged before the first header.
    pub fn new() -> Self {
        Self::default()
    }

    /// One on which everything passes.
    pub fn opaque() -> Self {
        Connection { opaque: true, ..Self::default() }
    }

    /// One that no server comes by: every request is held, also of whoever says there that it is a server.
    pub fn of_clients() -> Self {
        Connection { clients_only: true, ..Self::default() }
    }

    /// What passed without being understood.
    pub fn stats(&self) -> ConnectionStats {
        self.stats
    }
    /// Whether everything passes.
    pub fn is_opaque(&self) -> bool {
        self.opaque
    }
    /// Where the I/O request of `tag` is; `None` when it is over or unknown.
    pub fn io_state(&self, tag: i64) -> Option<IoState> {
        self.ios.get(&tag).map(|io| io.state)
    }
    /// I/O requests that are not over.
    pub fn under_way(&self) -> usize {
        self.ios.len()
    }

    /// A held request goes to the server now.
    ///
    /// # Panics
    /// When it is not held: releasing twice would duplicate a message.
    pub fn release(&mut self, tag: i64) {
        if self.metadata.release(tag) {
            return;
        }
        let io = self.ios.get_mut(&tag).expect("a held request is known");
        assert_eq!(io.state, IoState::Held, "released twice");
        io.state = IoState::Released;
    }

    /// A held request was dropped (its client gave up), or one whose answer will never come is forgotten.
    pub fn forget(&mut self, tag: i64) {
        self.ios.remove(&tag);
        self.metadata.forget(tag);
    }

    /// Whether the client's last message has passed whole, so that another may go to the server now.
    pub fn is_between_messages_of_client(&self) -> bool {
        self.from_client.left == 0
    }
    /// The same of the server's, so that an answer of our own may go to the client now.
    pub fn is_between_messages_of_server(&self) -> bool {
        !self.opaque && self.from_server.left == 0
    }
    /// Bytes of the client's present message that pass without being looked at.
    pub fn bulk_from_client(&self) -> u64 {
        if self.opaque { u64::MAX } else { self.from_client.left }
    }
    /// The same, from the server.
    pub fn bulk_from_server(&self) -> u64 {
        if self.opaque { u64::MAX } else { self.from_server.left }
    }
    /// Whether the client's next message is likely bulk data, of which the header alone need be seen.
    pub fn expects_bulk_from_client(&self) -> bool {
        self.expects(Direction::Write)
    }
    /// The same, from the server.
    pub fn expects_bulk_from_server(&self) -> bool {
        self.expects(Direction::Read)
    }
    /// Whether a header from the client, not passed yet, begins bulk data: then nothing of its message need be seen
    /// beyond these bytes.
    pub fn begins_bulk_from_client(&self, header: &[u8; HEADER_LEN]) -> bool {
        let between = !self.opaque && self.from_client.left == 0;
        let header = Header::parse(header).filter(|_| between);
        header.is_some_and(|h| h.mode != Mode::Unexpected && h.size >= BULK_MIN)
    }
    /// The same, from the server: the data of a read that was answered.
    pub fn begins_bulk_from_server(&self, header: &[u8; HEADER_LEN]) -> bool {
        let between = !self.opaque && self.from_server.left == 0;
        let header = Header::parse(header).filter(|_| between);
        header.is_some_and(|h| h.size >= BULK_MIN && self.ios.get(&h.tag).is_some_and(Io::is_read_moving))
    }
    fn expects(&self, direction: Direction) -> bool {
        self.ios.values().any(|io| {
            let IoState::Moving { moved, expected } = io.state else { return false };
            io.request.direction == direction && expected.is_none_or(|e| e.saturating_sub(moved) >= BULK_MIN)
        })
    }
    /// `bytes` bytes of it passed elsewhere (spliced from socket to socket).
    ///
    /// # Panics
    /// When fewer than `bytes` bytes were to pass.
    pub fn moved_from_client(&mut self, bytes: u64) {
        self.moved(bytes, Way::FromClient);
    }
    /// The same, from the server; says so when an I/O request is over with it.
    ///
    /// # Panics
    /// When fewer than `bytes` bytes were to pass.
    pub fn moved_from_server(&mut self, bytes: u64) -> Option<News> {
        self.moved(bytes, Way::FromServer);
        self.from_server.data_of.and_then(|tag| self.over_if_all_moved(tag))
    }

    fn moved(&mut self, bytes: u64, way: Way) {
        if self.opaque {
            return;
        }
        let passing = match way {
            Way::FromClient => &mut self.from_client,
            Way::FromServer => &mut self.from_server,
        };
        assert!(bytes <= passing.left, "more passed than the message has");
        passing.left -= bytes;
        if let Some(io) = passing.data_of.and_then(|tag| self.ios.get_mut(&tag))
            && let IoState::Moving { moved, .. } = &mut io.state
        {
            *moved += bytes;
        }
    }

    /// Looks at the unread bytes from the client.
    pub fn from_client(&mut self, input: &[u8]) -> Step<ConnectionEvent> {
        if let Some(len) = self.go_on(input, Way::FromClient) {
            return Step { len, what: ConnectionEvent::Pass };
        }
        let Some(header) = header(input) else {
            if !begins_with_magic(input) {
                return self.no_header(input);
            }
            self.stats.malformed += 1;
            return Step { len: 0, what: ConnectionEvent::Refuse };
        };
        if header.mode != Mode::Unexpected {
            let data_of = self.ios.contains_key(&header.tag).then_some(header.tag);
            if data_of.is_none() {
                self.stray.note(&header, self.stats);
            }
            self.from_client = Passing { left: header.size, data_of };
            let len = HEADER_LEN + self.go_on(&input[HEADER_LEN..], Way::FromClient).unwrap_or(0);
            return Step { len, what: ConnectionEvent::Pass };
        }
        let len = HEADER_LEN + header.size as usize;
        if input.len() < len {
            return Step { len: 0, what: ConnectionEvent::NeedMore(len) };
        }
        Step { len, what: self.request(header.tag, &input[HEADER_LEN..len]) }
    }

    fn request(&mut self, tag: i64, payload: &[u8]) -> ConnectionEvent {
        let parsed = Request::parse(payload);
        if let Err(why) = check(payload, &parsed, self.clients_only) {
            self.stats.unsound += 1;
            return ConnectionEvent::Answer { why };
        }
        let Ok(request) = parsed else {
            self.stats.malformed += 1;
            // Its server says so, and takes as long for that as for another one.
            return self.ask(tag, What::Other, Request::unread(Version::V7000, Op::Other(0)));
        };
        match &request.body {
            RequestBody::Io(_) if request.is_between_servers() && !self.clients_only => {
                self.stats.between_servers += 1;
                ConnectionEvent::Pass
            }
            RequestBody::OfServers if !self.clients_only => {
                self.stats.between_servers += 1;
                self.ask(tag, What::Other, request)
            }
            RequestBody::OfServers | RequestBody::Administers => {
                self.stats.refused += 1;
                ConnectionEvent::Refuse
            }
            RequestBody::UnreadIo(_) => {
                self.stats.malformed += 1;
                ConnectionEvent::HoldAlone { request: Box::new(request) }
            }
            RequestBody::Io(_) if is_taken(self, tag) => unfollowed(&mut self.stats),
            RequestBody::Io(io) => {
                self.stats.io_requests += 1;
                self.ios.insert(tag, Io { request: io.clone(), state: IoState::Held });
                ConnectionEvent::Hold { tag, request: Box::new(request) }
            }
            RequestBody::GetAttr { credential, .. } => self.ask(tag, What::GetAttr(*credential), request),
            RequestBody::Other { .. } => {
                let config = request.op == Op::GetConfig;
                let asked = if config { What::GetConfig } else { What::Other };
                self.ask(tag, asked, request)
            }
        }
    }

    /// A request but for I/O: held where only clients come, and else remembered until its answer.
    fn ask(&mut self, tag: i64, what: What, request: Request) -> ConnectionEvent {
        if !self.clients_only {
            self.metadata.pass(tag, what);
            return ConnectionEvent::Pass;
        }
        if is_taken(self, tag) {
            return unfollowed(&mut self.stats);
        }
        self.metadata.hold(tag, what);
        ConnectionEvent::Hold { tag, request: Box::new(request) }
    }

    /// Looks at the unread bytes from the server. Nothing from there is ever held.
    pub fn from_server(&mut self, input: &[u8]) -> (Step<ConnectionEvent>, Option<News>) {
        if let Some(len) = self.go_on(input, Way::FromServer) {
            let news = self.from_server.data_of.and_then(|tag| self.over_if_all_moved(tag));
            return (Step { len, what: ConnectionEvent::Pass }, news);
        }
        let Some(header) = header(input) else {
            return (self.no_header(input), None);
        };
        let look = self.look_at(&header);
        let needed = HEADER_LEN + look as usize;
        if input.len() < needed {
            return (Step { len: 0, what: ConnectionEvent::NeedMore(needed) }, None);
        }
        let moving = self.ios.get(&header.tag).is_some_and(Io::is_read_moving);
        if !self.ios.contains_key(&header.tag) && !self.metadata.knows(header.tag) {
            self.stray.note(&header, self.stats);
        }
        let mut news = None;
        if !moving {
            news = self.answer(&header, &input[HEADER_LEN..needed]);
        }
        self.from_server = Passing { left: header.size, data_of: moving.then_some(header.tag) };
        let len = HEADER_LEN + self.go_on(&input[HEADER_LEN..], Way::FromServer).unwrap_or(0);
        if moving {
            news = self.over_if_all_moved(header.tag);
        }
        (Step { len, what: ConnectionEvent::Pass }, news)
    }

    /// How many bytes of a message from the server must be seen.
    fn look_at(&self, header: &Header) -> u64 {
        let most = match self.ios.get(&header.tag) {
            Some(io) if io.is_read_moving() => 0,
            Some(_) => Response::HEAD_MAX as u64,
            None => self.metadata.look_at(header.tag, header.size),
        };
        header.size.min(most)
    }

    fn answer(&mut self, header: &Header, head: &[u8]) -> Option<News> {
        let tag = header.tag;
        // What answers a request that is still held answers another one of the same tag.
        if let Some(io) = self.ios.get_mut(&tag).filter(|io| io.state != IoState::Held) {
            let moved = if let IoState::Moving { moved, .. } = io.state { moved } else { 0 };
            let over = |result| News::Over { tag, result, moved };
            let news = match Response::parse(head) {
                Ok(Response::Failed { status, .. }) => over(Err(status)),
                Ok(Response::SmallIo { result_size, .. }) => over(Ok(result_size)),
                Ok(Response::WriteCompletion { total_completed }) => over(Ok(total_completed)),
                Ok(Response::Io { bstream_size }) => {
                    let size = if io.request.direction == Direction::Read { bstream_size } else { u64::MAX };
                    let expected = io.request.bytes_here(size);
                    io.state = IoState::Moving { moved: 0, expected };
                    let nothing = io.request.direction == Direction::Read && expected.is_none_or(|e| e == 0);
                    if !nothing {
                        return Some(News::Accepted { tag, bytes: expected });
                    }
                    // Nothing comes; or nobody can tell how much: this response is the last that is sure.
                    over(Ok(expected.unwrap_or_else(|| io.request.estimate().bytes)))
                }
                Ok(Response::Other { .. }) | Err(_) => return None,
            };
            self.ios.remove(&tag);
            return Some(news);
        }
        self.metadata.answer(tag, header.size, head)
    }

    fn over_if_all_moved(&mut self, tag: i64) -> Option<News> {
        let io = self.ios.get(&tag)?;
        let IoState::Moving { moved, expected: Some(expected) } = io.state else { return None };
        if io.request.direction != Direction::Read || moved < expected {
            return None;
        }
        self.ios.remove(&tag);
        Some(News::Over { tag, result: Ok(moved), moved })
    }

    /// The rest of a message whose header has passed already.
    fn go_on(&mut self, input: &[u8], way: Way) -> Option<usize> {
        if self.opaque {
            return Some(input.len());
        }
        let left = match way {
            Way::FromClient => self.from_client.left,
            Way::FromServer => self.from_server.left,
        };
        if left == 0 {
            return None;
        }
        let len = left.min(input.len() as u64);
        self.moved(len, way);
        Some(len as usize)
    }

    fn no_header(&mut self, input: &[u8]) -> Step<ConnectionEvent> {
        if input.len() < HEADER_LEN {
            return Step { len: 0, what: ConnectionEvent::NeedMore(HEADER_LEN) };
        }
        self.opaque = true;
        Step { len: input.len(), what: ConnectionEvent::Opaque }
    }
}

/// Bytes of data that have begun to move and that no request explains: of one that is not followed, or more than a followed one has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stray(u64);

impl Stray {
    /// Answers are shorter than what is counted. A server's data belongs to a request that is not followed.
    fn note(&mut self, header: &Header, stats: ConnectionStats) {
        if header.size >= BULK_MIN && stats.between_servers == 0 {
            self.0 = self.0.saturating_add(header.size);
        }
    }
    /// Whether there are any.
    pub fn is_some(self) -> bool {
        self.0 > 0
    }
    /// So many since this was last asked.
    pub fn take(&mut self) -> u64 {
        std::mem::take(&mut self.0)
    }
}

/// Whether a server can go through a request. What is refused whatever it says need not be looked at.
fn check(payload: &[u8], parsed: &Result<Request, Malformed>, clients_only: bool) -> Result<(), Malformed> {
    match parsed.as_ref().map(|request| (request.version, &request.body)) {
        Ok((_, RequestBody::Io(_) | RequestBody::Administers)) => Ok(()),
        Ok((_, RequestBody::OfServers)) if clients_only => Ok(()),
        Ok((Version::V7000, RequestBody::UnreadIo(why))) => Err(*why),
        _ => sound::check(payload, clients_only),
    }
}

/// Whether no further request can be followed by this tag.
fn is_taken(connection: &Connection, tag: i64) -> bool {
    let many = connection.ios.len() + connection.metadata.len() >= UNDER_WAY_MAX;
    many || connection.metadata.has(tag) || connection.ios.contains_key(&tag)
}

/// No client sends so many, or one with the tag of another that is under way.
fn unfollowed(stats: &mut ConnectionStats) -> ConnectionEvent {
    stats.unfollowed += 1;
    ConnectionEvent::Refuse
}

/// Which way the data of a request goes that is under way.
pub fn direction(connection: &Connection, tag: i64) -> Option<Direction> {
    connection.ios.get(&tag).map(|io| io.request.direction)
}

/// Whether the server waits for more of a connection's client: the rest of a message, or data of a write.
pub fn awaits_client(connection: &Connection) -> bool {
    let lacks = |io: &Io| match io.state {
        IoState::Moving { moved, expected } => {
            io.request.direction == Direction::Write && expected.is_none_or(|all| moved < all)
        }
        _ => false,
    };
    !connection.opaque && (connection.from_client.left > 0 || connection.ios.values().any(lacks))
}

fn header(input: &[u8]) -> Option<Header> {
    Header::parse(input.first_chunk::<HEADER_LEN>()?)
}

/// Whether a whole header is there and says that it is one. Servers look at no more of it: neither at its mode nor at its size.
fn begins_with_magic(input: &[u8]) -> bool {
    input.len() >= HEADER_LEN && input.starts_with(&MAGIC.to_le_bytes())
}

#[derive(Clone, Copy)]
enum Way {
    FromClient,
    FromServer,
}
