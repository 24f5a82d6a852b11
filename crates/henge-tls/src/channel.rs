//! One end of a TLS 1.3 connection, without a socket (RFC 8446): a handshake by rustls, then its records (`records.rs`).
//!
//! Who drives it puts what came from the socket into [`Channel::space`], asks for a [`Channel::step`] until it needs more, and
//! [takes](Channel::take) what is plain. What is to be sent stands in [`Channel::output`].
//!
//! Where the socket's kernel seals in our place ([`Channel::hand_over`]), data does not come here. What comes from the other side does, as before.
//!
//! Steps of the handshake are taken at once, or [lent](Channel::lend) to whoever takes them elsewhere.
//!
//! Of what comes, at most [`CHUNK`] bytes wait. They are decrypted where they lie, and copied once; or they [land](Channel::land) where they belong. Of
//! what goes, [`HELD`] bytes are taken at once, and copied once into the records that are encrypted there. While nothing comes it holds the
//! beginning of a record at most. Who sends records of which nothing comes is let go after [`BARREN`] bytes.

use crate::handshake::{Handshake, record_len};
use crate::landing::{BOUNCE, Landing, PAUSE};
use crate::records::{FRAGMENT, HEADER, Opened, Order, Records};
use crate::shake::{Shake, Shaken, Then};
use henge_io::kernel_tls::Keys;
use rustls::Error;
use rustls::crypto::cipher::OutboundChunks;
use rustls::pki_types::CertificateDer;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

/// Most bytes of the other side that wait: a payload of 128 KiB with its records' headers, and messages with it, in one system call. More than a
/// record, or any message of a handshake.
const CHUNK: usize = 160 << 10;
/// Memory behind what waits that need not be given back.
const SLACK: usize = 16 << 10;
/// Most bytes that are taken at once.
const HELD: usize = 128 << 10;
/// Most pieces of them.
const PIECES: usize = 64;
/// Bytes of a record that is long: copying as many costs more than another step.
const LONG: usize = 2 << 10;
/// Encrypted bytes in a row of which no byte for us came: more than any handshake, its certificates included.
const BARREN: usize = 256 << 10;

/// The type of a record that says nothing.
const CHANGE_CIPHER_SPEC: u8 = 20;

/// What a connection needs for its next bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Another step.
    Step,
    /// More of the other side.
    Bytes,
    /// A step of its handshake that is [lent](Channel::lend).
    Shake,
}

/// One end of a connection.
pub struct Channel {
    state: State,
    /// Steps of the handshake are taken elsewhere, and one is due.
    lends: bool,
    is_due: bool,
    incoming: Incoming,
    /// Records that the socket has not taken.
    outgoing: VecDeque<Vec<u8>>,
    /// Bytes of the first that it has.
    sent: usize,
    barren: usize,
    /// Reads before records may be received where their data belongs, again.
    pause: u8,
    is_ended: bool,
    /// Why nothing can be read any more.
    failed: Option<Error>,
}

enum State {
    /// With what is to be written once it is over. The handshake is not here while it is lent.
    Shaking(Option<Box<Handshake>>, Vec<u8>),
    Open(Box<Records>),
    /// The handshake came to nothing.
    Over,
}

impl State {
    fn records(&self) -> Option<&Records> {
        match self {
            State::Open(records) => Some(records),
            State::Shaking(..) | State::Over => None,
        }
    }
}

/// What came from the other side.
#[derive(Default)]
struct Incoming {
    bytes: Vec<u8>,
    /// These are decrypted, and nobody has taken them yet.
    plain: Range<usize>,
    /// From here on they are as they came. Those before are done with, once `plain` is.
    at: usize,
    /// Up to here the handshake has seen them.
    shown: usize,
}

impl Channel {
    /// A connection that begins with this handshake. Who dials has its first message to send. `lends`: further steps are taken by whoever
    /// [borrows](Channel::lend) them.
    pub fn new(handshake: Handshake, lends: bool) -> Channel {
        let mut channel = Channel {
            state: State::Shaking(Some(Box::new(handshake)), Vec::new()),
            lends: false,
            is_due: true,
            incoming: Incoming::default(),
            outgoing: VecDeque::new(),
            sent: 0,
            barren: 0,
            pause: 0,
            is_ended: false,
            failed: None,
        };
        // It needs no input.
        if let Some(first) = channel.lend() {
            channel.shaken(first.run());
        }
        channel.lends = lends;
        channel
    }

    /// Once the handshake is over, the certificates that the other side has shown, its own first.
    pub fn theirs(&self) -> Option<&[CertificateDer<'static>]> {
        self.state.records().map(Records::theirs)
    }

    /// Once the handshake is over, bytes that both ends know, and nobody else (RFC 8446, section 7.5), for a use that `label` names.
    pub fn exported(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.state.records()?.exported(label)
    }

    /// Whether the other side has said that nothing more comes, or its stream is at its end.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Bytes of the other side that wait: the beginning of a record, once all that is whole was taken.
    pub fn held(&self) -> usize {
        self.incoming.bytes.len() - self.incoming.at
    }

    /// Whether nothing more is plain, and what comes next is a long record.
    pub fn is_next_long(&self) -> bool {
        let Incoming { bytes, plain, at, .. } = &self.incoming;
        plain.is_empty() && record_len(&bytes[*at..]).is_some_and(|len| len >= LONG)
    }

    /// Moves what is decrypted to where it is wanted: how many bytes.
    pub fn take(&mut self, into: &mut [u8]) -> usize {
        let incoming = &mut self.incoming;
        let n = incoming.plain.len().min(into.len());
        let from = incoming.plain.start;
        into[..n].copy_from_slice(&incoming.bytes[from..from + n]);
        incoming.plain.start += n;
        n
    }

    /// A step towards more bytes, once all that is plain was taken.
    pub fn step(&mut self) -> Result<Next, Error> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        debug_assert!(self.incoming.plain.is_empty(), "what is plain is taken first");
        let next = match self.state {
            State::Shaking(None, _) => Next::Shake,
            State::Shaking(..) if self.is_due => Next::Shake,
            State::Shaking(..) => self.go_on(),
            State::Open(_) => self.open(),
            State::Over => Next::Bytes,
        };
        self.look_at_barren();
        self.failed.clone().map_or(Ok(next), Err)
    }

    fn look_at_barren(&mut self) {
        if self.failed.is_none() && self.barren > BARREN {
            self.fail(Error::General("records of which nothing comes".into()));
        }
    }

    /// The handshake goes on, with what has come for it: here, or elsewhere.
    fn go_on(&mut self) -> Next {
        if !self.incoming.show() {
            return Next::Bytes;
        }
        self.is_due = true;
        // A record that only older versions have a use for (RFC 8446, section 5) is passed over, which takes no time.
        let is_empty = self.incoming.bytes.get(self.incoming.at) == Some(&CHANGE_CIPHER_SPEC);
        if self.lends && !is_empty {
            return Next::Shake;
        }
        if let Some(shake) = self.lend() {
            self.shaken(shake.run());
        }
        Next::Step
    }

    /// The step of the handshake that is due, to be [brought back](Channel::shaken). Nothing is to be read meanwhile.
    pub fn lend(&mut self) -> Option<Shake> {
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        let State::Shaking(handshake, _) = &mut self.state else { return None };
        let window = self.incoming.at..self.incoming.shown;
        Some(Shake::new(*handshake.take()?, self.incoming.bytes[window].to_vec()))
    }

    /// A step of the handshake was taken.
    pub fn shaken(&mut self, shaken: Shaken) {
        let State::Shaking(handshake, early) = &mut self.state else { return };
        let Shaken { window, out, came } = shaken;
        let at = self.incoming.at;
        self.incoming.bytes[at..at + window.len()].copy_from_slice(&window);
        self.outgoing.extend(out);
        let taken = match came {
            Ok((taken, Then::More(goes_on))) => {
                *handshake = Some(Box::new(goes_on));
                taken
            }
            Ok((taken, Then::Over(mut records))) => {
                let early = std::mem::take(early);
                let sealed = records.seal(&OutboundChunks::Single(&early), &mut self.outgoing);
                self.state = State::Open(records);
                self.failed = self.failed.take().or(sealed.err());
                taken
            }
            Err(why) => {
                self.state = State::Over;
                return self.failed = Some(why);
            }
        };
        self.incoming.at += taken;
        self.barren += taken;
    }

    /// Decrypts the next record, if it is whole.
    fn open(&mut self) -> Next {
        let State::Open(records) = &mut self.state else { return Next::Bytes };
        let Some(at) = self.incoming.record().filter(|_| !self.is_ended) else { return Next::Bytes };
        self.incoming.at = at.end;
        let opened = records.open(&mut self.incoming.bytes[at.clone()]);
        if let Some(plain) = self.opened(opened, at.len()) {
            self.incoming.plain = at.start + plain.start..at.start + plain.end;
        }
        Next::Step
    }

    /// What became of a record of this length: where in it data is, if that is what it has.
    fn opened(&mut self, opened: Result<Opened, Error>, len: usize) -> Option<Range<usize>> {
        match opened {
            Ok(Opened::Data { from, to }) => {
                self.barren = if from < to { 0 } else { self.barren + len };
                return Some(from..to);
            }
            Ok(Opened::Own) => self.barren += len,
            Ok(Opened::End) => self.is_ended = true,
            Err(why) => self.fail(why),
        }
        None
    }

    /// Receives by `read` what is missing of a payload, after a [`step`](Channel::step) that needed more, and opens records where their data
    /// belongs (`landing.rs`). How many bytes are there; more may be [plain](Channel::take) or follow by steps. `None`, with nothing read, where the
    /// ordinary way is better.
    pub fn land<E>(
        &mut self,
        payload: &mut [u8],
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<Option<usize>, E> {
        if !matches!(self.state, State::Open(_)) || self.failed.is_some() {
            return Ok(None);
        }
        if self.pause > 0 {
            self.pause -= 1;
            return Ok(None);
        }
        self.incoming.forget();
        let held = self.incoming.bytes.len();
        let Some(mut landing) = Landing::begin(payload, &self.incoming.bytes) else { return Ok(None) };
        self.incoming.bytes.resize(held + BOUNCE, 0);
        let came = read(&mut landing.pieces(payload, &mut self.incoming.bytes[held..]));
        landing.came(*came.as_ref().unwrap_or(&0));
        self.incoming.bytes.truncate(held + landing.bounced());
        if came? == 0 {
            self.end();
            return Ok(Some(0));
        }
        let (mut landed, mut number) = (0, 0);
        while let State::Open(records) = &mut self.state
            && let Some(place) = landing.record(number, payload)
        {
            let (begin, len) = (number * FRAGMENT, HEADER + place.sealed.len());
            let opened = records.open_apart(&place.header, place.sealed);
            number += 1;
            let plain = self.opened(opened, len).unwrap_or_default();
            if plain.start > 0 {
                payload.copy_within(begin + plain.start..begin + plain.end, begin);
            }
            landed += plain.len();
            // Whatever follows belongs elsewhere than was assumed.
            if plain.len() < FRAGMENT {
                break;
            }
        }
        if landing.has(number) {
            self.pause = PAUSE;
        }
        self.incoming.at = held;
        if !landing.is_all(number) {
            let bounced = self.incoming.bytes.split_off(held);
            self.incoming.bytes.clear();
            landing.rest(number, payload).for_each(|piece| self.incoming.bytes.extend_from_slice(piece));
            self.incoming.bytes.extend(bounced);
            self.incoming.at = 0;
        }
        self.look_at_barren();
        Ok(Some(landed))
    }

    /// Ends it: the other side hears why, and nothing more is read or written.
    pub fn fail(&mut self, why: Error) {
        if let State::Open(records) = &mut self.state {
            let _ = records.close(Some(&why), &mut self.outgoing);
        }
        self.failed = Some(why);
    }

    /// Where bytes of the other side are to be appended; nothing where nobody can make sense of as many as there may be.
    pub fn space(&mut self) -> Option<&mut Vec<u8>> {
        self.incoming.forget();
        if self.incoming.bytes.len() >= CHUNK {
            self.fail(Error::General("a message is too long".into()));
            return None;
        }
        let bytes = &mut self.incoming.bytes;
        bytes.reserve_exact(CHUNK - bytes.len());
        Some(bytes)
    }

    /// Nothing has come into the [space](Channel::space): memory that holds nothing is given back.
    pub fn rest(&mut self) {
        let bytes = &mut self.incoming.bytes;
        if bytes.is_empty() {
            *bytes = Vec::new();
        } else if bytes.capacity() - bytes.len() > SLACK {
            bytes.shrink_to_fit();
        }
    }

    /// The stream of the other side is at its end.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// Takes bytes to be sent, the first piece first: how many. None while earlier ones wait for the handshake.
    pub fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize, Error> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        let most = match &self.state {
            State::Shaking(_, early) => HELD - early.len(),
            State::Open(_) | State::Over => HELD,
        };
        let mut pieces: [&[u8]; PIECES] = [&[]; PIECES];
        let (mut count, mut len) = (0, 0);
        for (piece, slice) in pieces.iter_mut().zip(from) {
            *piece = &slice[..slice.len().min(most - len)];
            (count, len) = (count + 1, len + piece.len());
        }
        let pieces = &pieces[..count];
        match &mut self.state {
            State::Over => return Err(Error::HandshakeNotComplete),
            State::Shaking(_, early) => pieces.iter().for_each(|piece| early.extend_from_slice(piece)),
            State::Open(records) => records.seal(&OutboundChunks::new(pieces), &mut self.outgoing)?,
        }
        Ok(len)
    }

    /// Whether there is something to be sent.
    pub fn has_output(&self) -> bool {
        !self.outgoing.is_empty()
            || self.state.records().is_some_and(|records| records.owes() || records.has_orders())
    }

    /// Keys by which the socket's kernel can seal what follows; once, when the handshake is over and the socket has all that we sealed.
    pub fn keys(&mut self) -> Option<Keys> {
        if self.failed.is_some() || self.has_output() {
            return None;
        }
        match &mut self.state {
            State::Open(records) => records.keys(),
            State::Shaking(..) | State::Over => None,
        }
    }

    /// The kernel has taken the [keys](Channel::keys). From here on data goes to the socket as it is, and what else is to be said
    /// stands in [orders](Channel::order).
    pub fn hand_over(&mut self) {
        if let State::Open(records) = &mut self.state {
            records.hand_over();
        }
    }

    /// Before so many pieces are written that a kernel seals, together so many bytes: new keys may be due, by [orders](Channel::order).
    pub fn prepare(&mut self, pieces: usize, bytes: usize) -> Result<(), Error> {
        match (&self.failed, &mut self.state) {
            (Some(why), _) => Err(why.clone()),
            (None, State::Open(records)) => records.make_room(most_records(pieces, bytes)),
            (None, State::Shaking(..) | State::Over) => Err(Error::HandshakeNotComplete),
        }
    }

    /// The kernel has taken so many bytes of them.
    pub fn sealed(&mut self, pieces: usize, bytes: usize) {
        if let State::Open(records) = &mut self.state {
            records.seals.number += most_records(pieces, bytes);
        }
    }

    /// What a kernel that seals is to be told next. New keys that the other side has asked for are among it, once all else is told.
    pub fn order(&mut self) -> Option<&Order> {
        let State::Open(records) = &mut self.state else { return None };
        if records.owes()
            && !records.has_orders()
            && let Err(why) = records.seal(&OutboundChunks::new_empty(), &mut self.outgoing)
        {
            self.failed = Some(why);
        }
        records.orders()?.front()
    }

    /// It was told.
    pub fn told(&mut self) {
        if let State::Open(records) = &mut self.state
            && let Some(orders) = records.orders()
        {
            orders.pop_front();
        }
    }

    /// What is to be sent next, as far as there are places for it: how many it took. An answer about keys is among it once all else is sent,
    /// so that questions without end make one answer.
    pub fn output<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        if self.outgoing.is_empty()
            && let State::Open(records) = &mut self.state
            && records.owes()
            && let Err(why) = records.seal(&OutboundChunks::new_empty(), &mut self.outgoing)
        {
            self.failed = Some(why);
        }
        let mut count = 0;
        for (slice, record) in slices.iter_mut().zip(&self.outgoing) {
            *slice = IoSlice::new(if count == 0 { &record[self.sent..] } else { record });
            count += 1;
        }
        count
    }

    /// So many bytes of it are sent.
    pub fn written(&mut self, mut count: usize) {
        while let Some(first) = self.outgoing.front() {
            let left = first.len() - self.sent;
            if count < left {
                break;
            }
            (self.sent, count) = (0, count - left);
            self.outgoing.pop_front();
        }
        self.sent += count;
    }

    /// Says that nothing more comes.
    pub fn close(&mut self) {
        if let State::Open(records) = &mut self.state
            && self.failed.is_none()
        {
            let _ = records.close(None, &mut self.outgoing);
        }
    }
}

/// A kernel ends a record at a piece's end, at most, or where it is full.
fn most_records(pieces: usize, bytes: usize) -> u64 {
    (pieces + bytes.div_ceil(FRAGMENT)) as u64
}

impl Incoming {
    /// Forgets what is done with, also what is plain and was not taken.
    fn forget(&mut self) {
        let done = std::mem::take(&mut self.at);
        self.bytes.drain(..done);
        self.plain = 0..0;
        self.shown = self.shown.saturating_sub(done);
    }

    /// Where the next record is, if it is whole.
    fn record(&self) -> Option<Range<usize>> {
        let end = self.at + record_len(&self.bytes[self.at..])?;
        (end <= self.bytes.len()).then_some(self.at..end)
    }

    /// Lets the handshake see one more record, if it is whole.
    fn show(&mut self) -> bool {
        let rest = &self.bytes[self.shown..];
        let Some(len) = record_len(rest).filter(|len| *len <= rest.len()) else { return false };
        self.shown += len;
        true
    }
}

#[cfg(test)]
mod tests;
