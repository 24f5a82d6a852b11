//! What speaks a protocol: bytes in, commands out, replies back, and no socket.
//!
//! # The rule
//! A [`Session`] says where the next bytes belong, is told that they are there, and says what is to be written. The pump (`pump.rs`) alone
//! reads and writes: it has the one loop for every protocol, so that its bounds, and what a short read means, are said once. A
//! session hears the time as an argument. It sends commands to disks through the plane, which answers by [`Session::completed`].
//!
//! Example: an NBD session wants [`Wants::Bytes`]. They hold a WRITE's header and 100 bytes of its payload. [`Session::received`] takes the header
//! alone; then the session wants a [`Wants::Payload`], the command's own memory, and the pump puts the 100 bytes there. What is missing of the
//! payload is read from the socket to its place, uncopied, with the next header behind it.

use crate::catalog::Catalog;
use crate::front::Doors;
use crate::link::Link;
use crate::plane::{Answer, Plane};
use crate::stream::Stream;
use crate::targets::TargetRegistry;
use crate::turns::{BYTES, COMMANDS};
use henge_core::{Instant, RequestId};
use rustix::io::Errno;
use std::any::Any;
use std::io::IoSlice;

/// What a session may use of the node.
pub(crate) struct Around<'a> {
    pub plane: &'a mut Plane,
    pub catalog: &'a Catalog,
    pub registry: &'a mut TargetRegistry,
    /// Its connection.
    pub id: RequestId,
    pub now: Instant,
}

/// Why reading stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// The socket is empty, or the session wants nothing for now.
    Waiting,
    /// Others first; there is more.
    Turn,
    /// Room or memory at its disk is missing.
    Stalled,
    /// The disk that it has come for is another shard's: it [departs](Session::depart).
    Away,
    /// It is over: end of stream, an error, or what the protocol does not allow.
    Gone,
}

/// How a session goes on at another shard; nothing where its disk is gone.
pub(crate) type Begin = Box<dyn FnOnce(&mut Around<'_>) -> Option<Box<dyn Moves>> + Send>;

/// A session that goes on at the shard of its disk.
pub(crate) struct Departure {
    /// Which shard.
    pub to: usize,
    pub begin: Begin,
}

/// What a session wants of the bytes that come next.
pub(crate) enum Wants<'a> {
    /// Messages, read so many bytes at a time at most.
    Bytes { most: usize },
    /// Bytes that belong here. So many that follow may be read with them, as messages. Here is never nowhere.
    Payload { into: &'a mut [u8], beyond: usize },
    /// Memory, first, for a payload.
    Memory,
    /// Nothing, for now or for ever.
    Nothing,
}

/// What became of bytes that a session was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// How many it took. None where it needs more of them at once.
    pub bytes: usize,
    /// Why no more can be given to it, if so.
    pub stop: Option<Stop>,
}

/// What a connection may move in one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub bytes: usize,
    pub messages: u32,
}

/// One side of a conversation.
pub(crate) trait Session: Any {
    /// What it may move in one turn.
    fn share(&self) -> Share {
        Share { bytes: BYTES, messages: COMMANDS }
    }
    /// Its turn to read begins: what was held back is tried again. Why it stays held back, if so.
    fn resume(&mut self, _around: &mut Around<'_>) -> Option<Stop> {
        None
    }
    /// What the next bytes are to be.
    fn wants<'a>(&'a mut self, around: &'a mut Around<'_>) -> Wants<'a>;
    /// Messages, or a beginning of some: takes one, or more.
    fn received(&mut self, input: &[u8], around: &mut Around<'_>) -> Taken;
    /// So many bytes are where it [wanted](Session::wants) them. Why no more can be given to it, if so.
    fn delivered(&mut self, bytes: usize, around: &mut Around<'_>) -> Option<Stop>;
    /// A command is over.
    fn completed(&mut self, answer: Answer, around: &mut Around<'_>);
    /// Its turn to write begins: one question about what takes room is answered, if some wait. Each is as much work as many commands, so
    /// however many are asked, others have their turns between them.
    fn look(&mut self, _around: &mut Around<'_>) {}
    /// What is to be written next, as far as there are places for it.
    fn output<'a>(&'a mut self, around: &'a mut Around<'_>, out: &mut Slices<'_, 'a>);
    /// So many bytes of it are written.
    fn written(&mut self, bytes: usize, around: &mut Around<'_>);
    /// Something came by the stream, which may know by now whose it is.
    fn came_by(&mut self, _stream: &Stream) {}
    /// What could be written was. The stream may become another; `unread`: bytes that came by this one are not taken yet. False when the
    /// protocol leaves nothing but to close it.
    fn left_by(&mut self, _stream: &mut Stream, _unread: bool) -> bool {
        true
    }
    /// When [`Session::tick`] has something to do.
    fn due(&self) -> Option<Instant> {
        None
    }
    /// That time has come. False when it is over.
    fn tick(&mut self, _around: &mut Around<'_>) -> bool {
        true
    }
    /// The stream is at its end, or broken.
    fn lost(&mut self, _why: Option<Errno>) {}
    /// It goes on elsewhere, after [`Stop::Away`]: what is to be known of it there. What it has here is given back.
    fn depart(&mut self, _around: &mut Around<'_>) -> Option<Departure> {
        None
    }
    /// The connection is gone: memory is given back, and commands that have not begun are given up.
    fn close(&mut self, around: &mut Around<'_>);
    /// The node is about to end: nothing new is begun. Whoever can finish what it has begun by taking more bytes says true, and takes those
    /// alone. Of all others nothing more is read. No client is told of an error: what is not answered is asked again, by another connection.
    fn pause(&mut self, _around: &mut Around<'_>) -> bool {
        false
    }
    /// What another process needs to go on where a paused session stands, if it can be said.
    fn rest(&self) -> Option<henge_nbd::Rest> {
        None
    }

    /// The disk that it uses.
    fn disk(&self) -> Option<usize>;
    /// Whether it goes on where who may use its disk has changed. Those that others end say nothing: NBD's by the server, and initiators and
    /// hosts by their targets.
    fn may_stay(&self, _doors: &Doors) -> bool {
        true
    }
    /// Whether it would take bytes now.
    fn takes(&self) -> bool;
    /// Whether it has something to do in its turn, though nothing comes.
    fn goes_on(&self) -> bool {
        false
    }
    /// Whether there is something to write.
    fn has_output(&self) -> bool;
    /// Whether all is said.
    fn is_over(&self) -> bool {
        false
    }
    /// Whether it waits for room or memory.
    fn is_stalled(&self) -> bool {
        false
    }
    /// Whether it is to be put among those that wait for room at its disk; said once.
    fn is_to_wait(&mut self) -> bool {
        false
    }
    /// Whether bytes of a payload are to come.
    fn awaits_payload(&self) -> bool {
        false
    }
    /// Whether nothing of it is at its disk, as far as it would be missed there.
    fn is_quiet(&self) -> bool {
        true
    }
    /// Who it is, for people: "an NBD client".
    fn describe(&self) -> String {
        "a client".into()
    }
}

/// A pump of whichever session.
pub(crate) trait Moves: Any {
    /// Reads and acts until something stops it. `chunk` is what [`chunk`](crate::pump::chunk) made.
    fn read(&mut self, link: &mut Link, around: &mut Around<'_>, chunk: &mut [u8]) -> Stop;
    /// Writes a turn's bytes, as far as the socket takes them. False when the connection is broken.
    fn write(&mut self, link: &mut Link, around: &mut Around<'_>) -> bool;
    /// Whether bytes came that it may take now.
    fn keeps(&self) -> bool;
    /// Where the session rests, with the bytes that it has not taken.
    fn rest(&self) -> Option<henge_nbd::Rest>;
    /// The session goes on elsewhere, with the bytes that it has not taken.
    fn depart(&mut self, around: &mut Around<'_>) -> Option<(Departure, Vec<u8>)>;
    /// These bytes came before it did.
    fn keep(&mut self, rest: Vec<u8>);
    fn session(&self) -> &dyn Session;
    fn session_mut(&mut self) -> &mut dyn Session;
}

/// Pieces that are written at once, by their addresses.
pub(crate) struct Slices<'s, 'a> {
    slices: &'s mut [IoSlice<'a>],
    count: usize,
    left: usize,
}

impl<'s, 'a> Slices<'s, 'a> {
    /// At most `most` bytes.
    pub(crate) fn new(slices: &'s mut [IoSlice<'a>], most: usize) -> Slices<'s, 'a> {
        Slices { slices, count: 0, left: most }
    }
    /// The next piece. False when no further one can be taken.
    pub(crate) fn push(&mut self, bytes: &'a [u8]) -> bool {
        let bytes = &bytes[..bytes.len().min(self.left)];
        self.slices[self.count] = IoSlice::new(bytes);
        self.count += 1;
        self.left -= bytes.len();
        self.left > 0 && self.count < self.slices.len()
    }
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
pub(crate) mod bench;
