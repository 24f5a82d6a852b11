//! The server's end of a connection.
//!
//! The driver reads when [`Session::wants`] says so, feeds [`Session::receive`] and acts on its events, puts a
//! WRITE's bytes into the command's buffer itself, replies when commands are over, and writes
//! [`Session::output`]. How the bytes are cut on the way makes no difference (property test `splits`).
//!
//! What a client can make the server hold is bounded by [`Limits`]: commands in flight, the bytes of their buffers
//! (until a read's reply is written out), and header bytes that the client does not read. At a bound the session
//! wants nothing, so that the connection's own back-pressure holds the client.

use crate::command::{HEADER, Header, Terms, Wrong, check};
use crate::options::{Handshake, Step, list, refuse};
use crate::proto::{Error, Fields, IHAVEOPT, INIT_PASSWD, Put, cmd, gather, handshake, rep};
use crate::windows::Later;
use crate::{Closed, Command, CommandKind, Export, Exports, Limits, Output, SessionEvent, Tls, Wants};
use henge_core::{Instant, Pending, RequestId};
use std::collections::VecDeque;

/// Bytes that a waiting reply counts as: the bytes of its header.
const LATER: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    ClientFlags,
    Option,
    OptionData {
        option: u32,
        len: u32,
    },
    OptionSkip {
        option: u32,
        left: u32,
    },
    /// The names of the exports from this number on, as the client reads them.
    List {
        from: usize,
    },
    /// Nothing is read in clear any more.
    Tls,
    Requests,
    Payload {
        id: RequestId,
        left: u32,
    },
    Skip {
        cookie: u64,
        wrong: Wrong,
        left: u32,
    },
    Closed,
}

/// A command in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    pub cookie: u64,
    pub command: Command,
    pub replied: bool,
    /// Bytes of it that are sent in windows.
    pub sent: u32,
}

/// A session between two commands: what another process needs to go on with its connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rest {
    /// Structured replies were negotiated.
    pub structured: bool,
    /// `base:allocation` was, for the export that was chosen.
    pub allocation: bool,
    /// Bytes of a command that is not there as a whole.
    pub unread: Vec<u8>,
}

/// The server's end of one connection.
#[derive(Debug)]
pub struct Session {
    limits: Limits,
    pub(crate) state: State,
    /// Bytes of an item that is not complete.
    partial: Vec<u8>,
    pub(crate) out: Output,
    pub(crate) handshake: Handshake,
    pub(crate) commands: Pending<Open>,
    /// Bytes of the buffers of the commands in flight.
    buffered: u64,
    export: Option<Export>,
    allocation: bool,
    deadline: Option<Instant>,
    /// Nothing is begun any more.
    paused: bool,
    /// The read whose simple reply is not whole yet, and what has to wait for that.
    pub(crate) alone: Option<RequestId>,
    pub(crate) later: VecDeque<Later>,
}

impl Session {
    /// A connection just accepted; the greeting is ready to be written.
    pub fn new(limits: Limits, now: Instant) -> Self {
        let mut out = Output::default();
        out.bytes(|b| {
            b.u64(INIT_PASSWD);
            b.u64(IHAVEOPT);
            b.u16(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        });
        Session {
            limits,
            state: State::ClientFlags,
            partial: Vec::new(),
            out,
            handshake: Handshake::default(),
            commands: Pending::new(),
            buffered: 0,
            export: None,
            allocation: false,
            deadline: Some(now + limits.handshake),
            paused: false,
            alone: None,
            later: VecDeque::new(),
        }
    }

    /// The same, with this much of TLS.
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.handshake.tls = tls;
        self
    }

    /// Feeds bytes as they came: how many were taken, and what came of them. Call it again with the rest until
    /// all are taken; when it takes none and says `Nothing`, see [`wants`](Self::wants).
    pub fn receive<E: Exports + ?Sized>(
        &mut self,
        input: &[u8],
        exports: &E,
        now: Instant,
    ) -> (usize, SessionEvent) {
        let mut consumed = 0;
        let mut partial = std::mem::take(&mut self.partial);
        let event = loop {
            if let Some(event) = self.step(&mut partial, input, &mut consumed, exports, now) {
                break event;
            }
        };
        self.partial = partial;
        (consumed, event)
    }

    /// One item of the stream; `None` to go on with the next.
    fn step<E: Exports + ?Sized>(
        &mut self,
        partial: &mut Vec<u8>,
        input: &[u8],
        consumed: &mut usize,
        exports: &E,
        now: Instant,
    ) -> Option<SessionEvent> {
        const NOTHING: Option<SessionEvent> = Some(SessionEvent::Nothing);
        if self.is_full() || self.begins_nothing() {
            return NOTHING;
        }
        match self.state {
            State::Requests => {
                let Some(bytes) = gather(partial, input, HEADER, consumed) else { return NOTHING };
                let header = Header::parse(bytes);
                partial.clear();
                self.request(header, now).or(answered(*consumed))
            }
            State::ClientFlags => {
                let Some(bytes) = gather(partial, input, 4, consumed) else { return NOTHING };
                let flags = Fields(bytes).u32();
                partial.clear();
                self.client_flags(flags.expect("four bytes were gathered"))
            }
            State::Option => {
                let Some(bytes) = gather(partial, input, 16, consumed) else { return NOTHING };
                let mut f = Fields(bytes);
                let fields = (f.u64(), f.u32(), f.u32());
                partial.clear();
                self.option_header(fields)
            }
            State::OptionData { option, len } => {
                let Some(data) = gather(partial, input, len as usize, consumed) else { return NOTHING };
                let step = self.handshake.option(option, data, exports, &mut self.out);
                partial.clear();
                let event = self.option_done(step, *consumed < input.len(), exports);
                event.or(if matches!(self.state, State::List { .. }) { None } else { answered(*consumed) })
            }
            State::List { from } => {
                let next = list(from, exports, &mut self.out);
                self.state = next.map_or(State::Option, |from| State::List { from });
                if next.is_some() { None } else { answered(*consumed) }
            }
            State::OptionSkip { option, left } => {
                self.option_skipped(option, skip(left, input, consumed)).or(answered(*consumed))
            }
            State::Skip { cookie, wrong, left } => {
                self.write_skipped(cookie, wrong, skip(left, input, consumed)).or(answered(*consumed))
            }
            State::Payload { .. } | State::Tls | State::Closed => NOTHING,
        }
    }

    /// An option was answered. `more`: bytes behind it are here already.
    fn option_done<E: Exports + ?Sized>(
        &mut self,
        step: Step,
        more: bool,
        exports: &E,
    ) -> Option<SessionEvent> {
        match step {
            Step::Next => {
                self.state = State::Option;
                None
            }
            Step::List => {
                self.state = State::List { from: 0 };
                None
            }
            // The client has to wait for the answer; what came with the question is of somebody on the way, or of a client that
            // would take it for encrypted.
            Step::Tls if more => Some(self.close(Closed::Garbage("bytes after STARTTLS, before its answer"))),
            Step::Tls => {
                self.state = State::Tls;
                Some(SessionEvent::StartTls)
            }
            Step::Enter(index) => Some(self.enter(index, exports)),
            Step::Close(why) => Some(self.close(why)),
        }
    }

    /// All but `left` bytes of an option that is too long are skipped.
    fn option_skipped(&mut self, option: u32, left: u32) -> Option<SessionEvent> {
        if left > 0 {
            self.state = State::OptionSkip { option, left };
            return Some(SessionEvent::Nothing);
        }
        refuse(&mut self.out, option, rep::ERR_TOO_BIG, "the option's data is too long");
        self.state = State::Option;
        None
    }

    /// All but `left` bytes of a refused WRITE are skipped.
    fn write_skipped(&mut self, cookie: u64, wrong: Wrong, left: u32) -> Option<SessionEvent> {
        if left > 0 {
            self.state = State::Skip { cookie, wrong, left };
            return Some(SessionEvent::Nothing);
        }
        self.wrong(cookie, wrong);
        self.state = State::Requests;
        None
    }

    fn client_flags(&mut self, flags: u32) -> Option<SessionEvent> {
        let known = u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES);
        if flags & !known != 0 {
            return Some(self.close(Closed::Garbage("unknown client flags")));
        }
        self.handshake.fixed = flags & u32::from(handshake::FIXED_NEWSTYLE) != 0;
        self.handshake.no_zeroes = flags & u32::from(handshake::NO_ZEROES) != 0;
        self.state = State::Option;
        None
    }

    fn option_header(&mut self, fields: (Option<u64>, Option<u32>, Option<u32>)) -> Option<SessionEvent> {
        let (Some(magic), Some(option), Some(len)) = fields else {
            unreachable!("sixteen bytes were gathered")
        };
        if magic != IHAVEOPT {
            return Some(self.close(Closed::Garbage("no option magic")));
        }
        self.state = match len {
            _ if len <= self.limits.option => State::OptionData { option, len },
            _ if len <= self.limits.skip && option != crate::proto::opt::EXPORT_NAME => {
                State::OptionSkip { option, left: len }
            }
            _ => return Some(self.close(Closed::Garbage("an absurdly long option"))),
        };
        None
    }

    fn enter<E: Exports + ?Sized>(&mut self, index: usize, exports: &E) -> SessionEvent {
        let Some(export) = exports.get(index) else { return self.close(Closed::UnknownExport) };
        self.export = Some(export.clone());
        self.allocation = self.handshake.structured && self.handshake.allocation == Some(index);
        self.state = State::Requests;
        self.deadline = None;
        SessionEvent::Entered { export: index }
    }

    fn request(&mut self, header: Option<Header>, now: Instant) -> Option<SessionEvent> {
        let Some(h) = header else { return Some(self.close(Closed::Garbage("no request magic"))) };
        if h.kind == cmd::DISC {
            return Some(self.close(Closed::Disconnect));
        }
        let export = self.export.as_ref().expect("requests come after an export was chosen");
        let terms = Terms { export, structured: self.handshake.structured, allocation: self.allocation };
        match check(&h, &terms) {
            Err(wrong) if h.kind == cmd::WRITE && h.len > 0 => {
                if h.len > self.limits.skip {
                    return Some(self.close(Closed::Garbage("an absurdly long write")));
                }
                self.state = State::Skip { cookie: h.cookie, wrong, left: h.len };
                None
            }
            Err(wrong) => {
                self.wrong(h.cookie, wrong);
                None
            }
            Ok(kind) => Some(self.admit(&h, kind, now)),
        }
    }

    fn admit(&mut self, h: &Header, kind: CommandKind, now: Instant) -> SessionEvent {
        let id = self.commands.next_id();
        let fua = h.flags & cmd::FLAG_FUA != 0;
        let command = Command { id, kind, offset: h.offset, len: h.len, fua, arrival: now };
        self.commands.insert(Open { cookie: h.cookie, command, replied: false, sent: 0 });
        self.buffered += buffer(&command);
        if kind == CommandKind::Write && h.len > 0 {
            self.state = State::Payload { id, left: h.len };
            return SessionEvent::Payload(command);
        }
        SessionEvent::Command(command)
    }

    /// `n` bytes of payload were put into the buffer. When it is complete: the command, its arrival now.
    ///
    /// # Panics
    /// When that is more than was wanted.
    pub fn payload(&mut self, n: u32, now: Instant) -> Option<Command> {
        let State::Payload { id, left } = &mut self.state else { panic!("no payload is wanted") };
        *left = left.checked_sub(n).expect("no more payload than was wanted");
        if *left > 0 {
            return None;
        }
        let id = *id;
        self.state = State::Requests;
        let open = self.commands.get_mut(id).expect("the command whose payload came is in flight");
        open.command.arrival = now;
        Some(open.command)
    }

    /// Refuses the WRITE whose payload is awaited: what is missing is skipped, then `error` is answered.
    ///
    /// # Panics
    /// When no payload is awaited.
    pub fn refuse_payload(&mut self, error: Error, why: &'static str) {
        let State::Payload { id, left } = self.state else { panic!("no payload is wanted") };
        let cookie = self.release(id).cookie;
        self.state = State::Skip { cookie, wrong: (error, why), left };
    }

    /// What to read next.
    pub fn wants(&self) -> Wants {
        match self.state {
            State::Payload { id, left } => {
                let len = self.commands.get(id).map_or(0, |open| open.command.len);
                Wants::Payload { id, at: len - left, len: left }
            }
            State::Tls | State::Closed => Wants::Nothing,
            _ if self.is_full() || self.begins_nothing() => Wants::Nothing,
            _ => Wants::Bytes,
        }
    }

    /// It has more to say without hearing anything: [`receive`](Self::receive) goes on once output was written, with no input as
    /// well.
    pub fn goes_on(&self) -> bool {
        matches!(self.state, State::List { .. })
    }

    /// Everything that is said in clear is written, and TLS may begin.
    pub fn is_ready_for_tls(&self) -> bool {
        matches!(self.state, State::Tls) && self.out.is_empty()
    }

    /// From here on bytes in both directions are encrypted. What was negotiated before is not any more.
    ///
    /// # Panics
    /// When it was not [ready](Self::is_ready_for_tls).
    pub fn encrypted(&mut self) {
        assert!(self.is_ready_for_tls(), "TLS begins once its acknowledgement is written");
        self.handshake.encrypted();
        self.state = State::Option;
    }

    fn is_full(&self) -> bool {
        self.out.held() + self.later.len() * LATER >= self.limits.output
            || self.commands.len() >= self.limits.commands as usize
            || (self.buffered >= self.limits.bytes && self.buffered > 0)
    }

    /// What to write.
    pub fn output(&self) -> &Output {
        &self.out
    }

    /// `n` bytes of the output were written; `released` hears of each command whose buffer, or whose oldest window, is free now.
    pub fn written(&mut self, n: usize, mut released: impl FnMut(RequestId)) {
        let Session { out, commands, buffered, .. } = self;
        out.advance(n, |id, over| {
            if over {
                let open = commands.remove(id).expect("a command is kept until its reply is written");
                *buffered -= buffer(&open.command);
            }
            released(id);
        });
    }

    /// Ends the use of a command's name.
    pub(crate) fn release(&mut self, id: RequestId) -> Open {
        let open = self.commands.remove(id).expect("a command in flight");
        self.buffered -= buffer(&open.command);
        open
    }

    fn close(&mut self, why: Closed) -> SessionEvent {
        self.state = State::Closed;
        self.deadline = None;
        SessionEvent::Closed(why)
    }

    /// When [`tick`](Self::tick) has something to do.
    pub fn wake_at(&self) -> Option<Instant> {
        self.deadline
    }
    /// Time passes: a handshake that takes too long is over.
    pub fn tick(&mut self, now: Instant) -> Option<Closed> {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return None;
        }
        self.close(Closed::Late);
        Some(Closed::Late)
    }

    /// From now on no option and no command is begun; what has begun is finished, with its payload. The client is told nothing: what it sends
    /// meanwhile is answered by whoever [goes on](Self::go_on) in this session's place, or by nobody, and then its connection ends.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Whether the next thing to be taken would be a new one, and none is begun any more.
    fn begins_nothing(&self) -> bool {
        self.paused && matches!(self.state, State::ClientFlags | State::Option | State::Requests)
    }

    /// Where a paused session stands once all that it has begun is finished and written. `None` before that, and before an export is
    /// chosen. No command is missing from it: the client has an answer to all but those of which it holds the bytes.
    pub fn rest(&self) -> Option<Rest> {
        let quiet = self.commands.is_empty() && self.out.is_empty() && self.later.is_empty();
        let at_rest =
            self.paused && quiet && matches!(self.state, State::Requests) && !self.handshake.encrypted;
        at_rest.then(|| Rest {
            structured: self.handshake.structured,
            allocation: self.allocation,
            unread: self.partial.clone(),
        })
    }

    /// A session that begins where another one rested, with the export as it is now. `rest.unread` is to be received first.
    pub fn go_on(limits: Limits, rest: &Rest, export: Export) -> Session {
        let handshake = Handshake { structured: rest.structured, fixed: true, ..Handshake::default() };
        Session {
            limits,
            state: State::Requests,
            partial: Vec::new(),
            out: Output::default(),
            handshake,
            commands: Pending::new(),
            buffered: 0,
            export: Some(export),
            allocation: rest.allocation,
            deadline: None,
            paused: false,
            alone: None,
            later: VecDeque::new(),
        }
    }
    /// The export changed its size.
    pub fn resize(&mut self, size: u64) {
        if let Some(export) = &mut self.export {
            export.size = size;
        }
    }
    /// The export that was chosen.
    pub fn export(&self) -> Option<&Export> {
        self.export.as_ref()
    }
    /// A command in flight.
    pub fn command(&self, id: RequestId) -> Option<&Command> {
        self.commands.get(id).map(|open| &open.command)
    }
    /// Commands in flight, or with a reply that is not written yet.
    pub fn in_flight(&self) -> usize {
        self.commands.len()
    }
    /// Bytes of their buffers.
    pub fn buffered(&self) -> u64 {
        self.buffered
    }
    /// The conversation is over, everything is answered, and the answers are written.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Closed) && self.commands.is_empty() && self.out.is_empty()
    }
}

/// Bytes of the buffer that a command needs.
fn buffer(command: &Command) -> u64 {
    match command.kind {
        CommandKind::Read { .. } | CommandKind::Write => u64::from(command.len),
        _ => 0,
    }
}

/// A message that is over ends the call, if it has taken anything: otherwise its driver would take it for one that wants more.
fn answered(consumed: usize) -> Option<SessionEvent> {
    (consumed > 0).then_some(SessionEvent::Answered)
}

/// Takes up to `left` bytes that nobody wants; how many are still to come.
fn skip(left: u32, input: &[u8], consumed: &mut usize) -> u32 {
    let n = (left as usize).min(input.len() - *consumed);
    *consumed += n;
    left - n as u32
}
