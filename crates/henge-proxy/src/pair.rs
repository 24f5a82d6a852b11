//! One client connection and its twin to the server.
//!
//! Bulk data goes from socket to socket through a pipe and is never copied to this process (`pair/bulk.rs`, `conduit.rs`); headers, requests
//! and answers are read, looked at, and written (`side.rs`).

mod bulk;
#[cfg(test)]
pub(crate) mod tests;

use crate::conduit::Conduit;
use crate::poller::Interest;
use crate::side::{INBOX, Side};
use henge_core::{Instant, RequestId};
use henge_pvfs2::{
    Connection, ConnectionEvent, HEADER_LEN, Malformed, News, Request, awaits_client, encode_failure,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::TcpStream;

/// Bulk data of at least this number of bytes to come goes through the pipe: two system calls cost as much as copying less.
const SPLICE_MIN: u64 = 4 << 10;
/// Read at once where bulk data may come behind what is read.
const SHORT: usize = 1 << 10;

/// Requests of a connection for which their flow has no room, and their bytes. With as many it is read no further.
const REFUSED_MAX: usize = 256;
const REFUSED_BYTES: usize = 64 << 10;
/// Our own answers that a client does not take; with as many it is read no further, either.
const ANSWERS_MAX: usize = 64;
/// PVFS_EPROTO, as a server answers it.
const PROTOCOL: i32 = -(38 | 1 << 30);

/// What became of a request that a client sent: the loop queues it.
#[derive(Debug)]
pub struct Held {
    /// By which its answer is found; none, where its answer cannot be told from others'.
    pub tag: Option<i64>,
    pub request: Box<Request>,
    /// As it came, header included.
    pub message: Vec<u8>,
}

/// A client connection and its twin.
#[derive(Debug)]
pub struct Pair {
    pub client: Side,
    pub server: Side,
    pub connection: Connection,
    /// Whose it is by the port or the address; `None`: users decide.
    pub flow: Option<usize>,
    /// Whose its last I/O request was, or all of them are.
    pub last_flow: Option<usize>,
    /// Requests in the gate or at the server, by tag.
    pub pending: BTreeMap<i64, RequestId>,
    /// Requests in the gate whose answers cannot be told from others': they are over as they go.
    pub alone: BTreeSet<RequestId>,
    /// Released while another message was half on its way.
    released: VecDeque<Vec<u8>>,
    /// Bytes of a header that was looked at and is still in the socket: it goes through the pipe before its data.
    ahead: [usize; 2],
    /// Our own answers, until a message of the server has passed whole.
    answers: VecDeque<Vec<u8>>,
    /// What was wrong with its last request that no server can go through, until somebody has asked.
    pub unsound: Option<Malformed>,
    /// Requests, and their bytes, for which their flow has no room.
    pub refused: (usize, usize),
    /// Handed over as it is: nothing of it moves any more.
    pub frozen: bool,
    /// When something moved last.
    pub active: Instant,
    /// One of its ends has ended, and it is looked at whether anything moves.
    pub ends: bool,
}

impl Pair {
    pub fn new(client: TcpStream, server: TcpStream, flow: Option<usize>) -> Self {
        Pair {
            client: Side::new(client),
            server: Side::new(server),
            connection: Connection::new(),
            flow,
            last_flow: flow,
            pending: BTreeMap::new(),
            alone: BTreeSet::new(),
            released: VecDeque::new(),
            ahead: [0; 2],
            answers: VecDeque::new(),
            unsound: None,
            refused: (0, 0),
            frozen: false,
            active: Instant::ZERO,
            ends: false,
        }
    }

    /// Moves what can be moved from the client. A request that is held stops it: the loop takes it and calls
    /// again.
    pub fn move_from_client(&mut self, conduit: &mut Conduit) -> io::Result<Option<Held>> {
        self.server.flush(conduit)?;
        while !self.is_blocked() && !self.is_choked(Towards::Server) {
            let dry = self.splice(Towards::Server, conduit, &mut Vec::new())?;
            // The message that they had to let pass may be over.
            self.send_released(&[])?;
            if dry || self.is_choked(Towards::Server) {
                break;
            }
            let most = self.most(Towards::Server);
            let (len, more) = self.client.fill(most, conduit)?;
            let (held, passed) = self.understand_client(&conduit.unread[..len])?;
            self.client.keep(&conduit.unread[passed..len]);
            if held.is_some() {
                return Ok(held);
            }
            if !more {
                break;
            }
        }
        Ok(None)
    }

    /// So much of it waits for room that no further bytes of the client are looked at. Less does not do: data of requests at the server comes
    /// behind what waits.
    pub fn is_blocked(&self) -> bool {
        let (requests, bytes) = self.refused;
        requests >= REFUSED_MAX || bytes >= REFUSED_BYTES || self.answers.len() >= ANSWERS_MAX
    }

    /// An answer of our own goes to the client, as soon as it takes one and no message of its server is half on its way.
    pub fn answer(&mut self, message: Vec<u8>) -> io::Result<()> {
        self.answers.push_back(message);
        self.send_answers()
    }

    fn send_answers(&mut self) -> io::Result<()> {
        let between =
            self.connection.is_between_messages_of_server() && self.ahead[Towards::Client as usize] == 0;
        while between
            && !self.client.is_choked()
            && let Some(answer) = self.answers.pop_front()
        {
            self.client.send(&answer, false)?;
        }
        Ok(())
    }

    /// One of its requests finds room no more.
    pub fn refuse(&mut self, message: &[u8]) {
        self.refused = (self.refused.0 + 1, self.refused.1 + message.len());
    }

    /// It was taken in, or given up.
    pub fn readmit(&mut self, message: &[u8]) {
        self.refused = (self.refused.0 - 1, self.refused.1 - message.len());
    }

    /// Writes what waits, to the server or the client, without looking for more.
    pub fn flush(&mut self, to_server: bool, conduit: &mut Conduit) -> io::Result<()> {
        let side = if to_server { &mut self.server } else { &mut self.client };
        side.flush(conduit)?;
        self.send_answers()
    }

    /// Where one side has ended and all of it was passed on, the other is told.
    pub fn pass_ends(&mut self) {
        // A server that waits for what never comes is told at once.
        let nothing_is_left = self.all_pending().next().is_none() || awaits_client(&self.connection);
        if self.client_has_left() && self.server.has_written() && nothing_is_left {
            self.client.pass_end(&self.server);
        }
        if self.server.ended && self.client.has_written() {
            self.server.pass_end(&self.client);
        }
    }

    /// How many bytes to read at once: few where bulk data may stand behind them, so that it can go through the pipe.
    fn most(&mut self, towards: Towards) -> usize {
        let (bulk, expected) = (self.bulk(towards), self.expects_bulk(towards));
        let answers = matches!(towards, Towards::Client) && self.connection.under_way() > 0;
        match self.from(towards).unread() {
            n if n < HEADER_LEN && (expected || answers) => (bulk as usize).min(SPLICE_MIN as usize) + SHORT,
            _ => INBOX,
        }
    }

    /// Acts on bytes of the client; how many were used up.
    fn understand_client(&mut self, input: &[u8]) -> io::Result<(Option<Held>, usize)> {
        let (mut sent, mut at) = (0, 0);
        let mut held = None;
        while at < input.len() && held.is_none() {
            self.send_released(&input[sent..at])?.then(|| sent = at);
            let step = self.connection.from_client(&input[at..]);
            match step.what {
                ConnectionEvent::NeedMore(_) => break,
                ConnectionEvent::Refuse => return Err(io::ErrorKind::InvalidData.into()),
                _ => {}
            }
            let begun = at;
            at += step.len;
            if let ConnectionEvent::Answer { why } = step.what {
                self.server.send(&input[sent..begun], false)?;
                sent = at;
                answer_unsound(self, &input[begun..at], why)?;
                if self.is_blocked() {
                    break;
                }
                continue;
            }
            if let Some((tag, request)) = held_by(step.what) {
                self.server.send(&input[sent..begun], false)?;
                held = Some(Held { tag, request, message: input[begun..at].to_vec() });
                sent = at;
            }
        }
        if !self.send_released(&input[sent..at])? {
            let more = !self.connection.is_opaque() && self.connection.bulk_from_client() > 0;
            self.server.send(&input[sent..at], more)?;
        }
        Ok((held, at))
    }

    /// Released messages go between two others, never into the middle of one: behind `passed`, if they go now.
    fn send_released(&mut self, passed: &[u8]) -> io::Result<bool> {
        if self.released.is_empty() || !self.connection.is_between_messages_of_client() {
            return Ok(false);
        }
        self.server.send(passed, true)?;
        while let Some(message) = self.released.pop_front() {
            self.server.send(&message, !self.released.is_empty())?;
        }
        Ok(true)
    }

    /// A held request goes to the server.
    pub fn release(&mut self, tag: Option<i64>, message: Vec<u8>) -> io::Result<()> {
        if let Some(tag) = tag {
            self.connection.release(tag);
        }
        self.released.push_back(message);
        self.send_released(&[]).map(drop)
    }

    /// Moves what can be moved from the server; what was learnt is appended to `news`. Whether it stopped since peers should hear of it before the
    /// client does: the answer with a capability waits here until this is called again.
    pub fn move_from_server(&mut self, conduit: &mut Conduit, news: &mut Vec<News>) -> io::Result<bool> {
        self.client.flush(conduit)?;
        while !self.is_choked(Towards::Client) {
            let dry = self.splice(Towards::Client, conduit, news)?;
            // The message that they had to let pass may be over.
            self.send_answers()?;
            if dry || self.is_choked(Towards::Client) {
                break;
            }
            let most = self.most(Towards::Client);
            let (len, more) = self.server.fill(most, conduit)?;
            let input = &conduit.unread[..len];
            let mut passed = 0;
            while passed < input.len() {
                let (step, heard) = self.connection.from_server(&input[passed..]);
                news.extend(heard);
                news.extend(self.connection.metadata.take_answered());
                if let ConnectionEvent::NeedMore(_) = step.what {
                    break;
                }
                passed += step.len;
            }
            if news.iter().any(|heard| matches!(heard, News::Identity { .. })) {
                self.client.queue(&input[..passed]);
                self.server.keep(&conduit.unread[passed..len]);
                return Ok(true);
            }
            let data_follows = !self.connection.is_opaque() && self.connection.bulk_from_server() > 0;
            self.client.send(&input[..passed], data_follows)?;
            self.send_answers()?;
            self.server.keep(&conduit.unread[passed..len]);
            if !more {
                break;
            }
        }
        Ok(false)
    }

    fn from(&mut self, towards: Towards) -> &mut Side {
        match towards {
            Towards::Server => &mut self.client,
            Towards::Client => &mut self.server,
        }
    }
    fn to(&mut self, towards: Towards) -> &mut Side {
        match towards {
            Towards::Server => &mut self.server,
            Towards::Client => &mut self.client,
        }
    }
    fn bulk(&self, towards: Towards) -> u64 {
        match towards {
            Towards::Server => self.connection.bulk_from_client(),
            Towards::Client => self.connection.bulk_from_server(),
        }
    }
    fn expects_bulk(&self, towards: Towards) -> bool {
        match towards {
            Towards::Server => self.connection.expects_bulk_from_client(),
            Towards::Client => self.connection.expects_bulk_from_server(),
        }
    }

    /// Whether so much waits to go one way that nothing more is read; bulk data is, once it can go through the pipe.
    fn is_choked(&self, towards: Towards) -> bool {
        let to = match towards {
            Towards::Server => &self.server,
            Towards::Client => &self.client,
        };
        to.is_choked() || (self.bulk(towards) >= SPLICE_MIN && !to.has_written())
    }

    /// The client sends nothing any more: nobody waits for what waits here. What was read and is no whole message never becomes one.
    pub fn client_has_left(&self) -> bool {
        let looked_at = !self.is_blocked() && !self.is_choked(Towards::Server);
        self.client.ended && (looked_at || self.client.unread() == 0)
    }

    /// Both ends are over, or the server's is: nothing will ever be answered.
    pub fn is_over(&self) -> bool {
        self.server.end_passed || (self.client.end_passed && self.server.ended)
    }

    /// What the poller should watch on the client's side and on the server's.
    pub fn interests(&self) -> (Interest, Interest) {
        let client = Interest {
            read: !self.client.ended
                && !self.is_blocked()
                && !self.frozen
                && !self.is_choked(Towards::Server),
            write: !self.client.has_written(),
        };
        let server = Interest {
            read: !self.server.ended && !self.frozen && !self.is_choked(Towards::Client),
            write: !self.server.has_written(),
        };
        (client, server)
    }

    /// Whether no message is half on its way or waits to be sent on, and no answer is awaited but for I/O.
    pub fn is_between_messages(&self) -> bool {
        self.is_still() && self.client.unread() == 0 && self.connection.metadata.unanswered() == 0
    }

    /// Whether no message is half passed on.
    pub fn is_still(&self) -> bool {
        let sides = [&self.client, &self.server];
        let idle = sides.iter().all(|s| s.has_written()) && self.server.unread() == 0;
        idle && self.released.is_empty()
            && self.answers.is_empty()
            && self.ahead == [0; 2]
            && (self.connection.is_opaque()
                || self.connection.bulk_from_client() == 0 && self.connection.bulk_from_server() == 0)
    }

    /// Whether what was released waits for the rest of a message that the client has begun.
    pub fn holds_released(&self) -> bool {
        !self.released.is_empty()
    }

    /// All its requests in the gate or at the server.
    pub fn all_pending(&self) -> impl Iterator<Item = RequestId> {
        self.pending.values().chain(&self.alone).copied()
    }

    /// Bytes that wait here, for bounds and reports.
    pub fn buffered(&self) -> usize {
        self.client.buffered() + self.server.buffered() + self.released.iter().map(Vec::len).sum::<usize>()
    }
}

/// A request that no server can go through fails. One that is too short for an answer ends its connection.
pub fn answer_unsound(pair: &mut Pair, message: &[u8], why: Malformed) -> io::Result<()> {
    pair.unsound = Some(why);
    let answer = encode_failure(message, PROTOCOL).ok_or(io::ErrorKind::InvalidData)?;
    pair.answer(answer)
}

/// The request that is to be queued, if one is.
pub fn held_by(event: ConnectionEvent) -> Option<(Option<i64>, Box<Request>)> {
    match event {
        ConnectionEvent::Hold { tag, request } => Some((Some(tag), request)),
        ConnectionEvent::HoldAlone { request } => Some((None, request)),
        _ => None,
    }
}

#[derive(Clone, Copy)]
enum Towards {
    Server,
    Client,
}
