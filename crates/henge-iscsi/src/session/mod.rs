//! One connection of an initiator, which is one session: bytes in, steps for the driver and bytes out.
//!
//! ```text
//!   loop {
//!     match session.want() {
//!       Header            read some bytes; n = session.receive(targets, bytes, now); keep what is after n
//!       Payload(p)        read p.len bytes to p.offset of the buffer of p.task; session.delivered(targets, those bytes, now)
//!       Later | Nothing   do not read: send first | close
//!     }
//!     while let Some(step) = session.step()   Execute, Cancel, Release
//!     send session.segments(), then session.advance(targets, n)
//!   }
//!   while session.is_trying(): others first, then session.go_on(targets, now)
//!   when an action is done: session.complete(targets, task, outcome, buffer, now)
//!   for each targets.next_poked(): session.poke(targets)
//! ```
//!
//! A command's buffer (of [`Command::buffer`] bytes) belongs to the driver from its first `Payload` or
//! `Execute` until its `Release`. A long READ or WRITE has several, one after another (`window.rs`). What is held at
//! a time is bounded: by the command window in number, by [`Limits::held`] in bytes.

mod command;
mod data;
mod manage;
mod receive;
mod reply;
mod window;

use crate::login::Login;
use crate::output::{Output, Segment};
use crate::params::{Negotiated, Offer};
use crate::scsi::{Action, Nexus};
use crate::target::{TargetId, Targets};
use crate::wire::{Header, NO_TAG, response};
use command::Task;
use henge_core::{Duration, Instant, Pending, RequestId};
use receive::Incoming;
use std::collections::{BTreeMap, VecDeque};

/// Bounds of a session.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Commands at a time.
    pub window: u32,
    /// Immediate commands beside them.
    pub immediate: u32,
    /// Bytes of data in buffers at a time. At least one command may always go on.
    pub held: u64,
    /// A READ or WRITE that is longer goes through a buffer of so many bytes, piece by piece ([`Session::set_piece`]).
    pub piece: u64,
    /// How long a login may take.
    pub login: Duration,
    /// How long an initiator may be silent before it is asked whether it lives, and then before it is given up.
    pub silence: Duration,
    /// What to agree on.
    pub offer: Offer,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            window: 128,
            immediate: 16,
            held: 32 << 20,
            piece: 1 << 20,
            login: Duration::from_secs(15),
            silence: Duration::from_secs(60),
            offer: Offer::default(),
        }
    }
}

/// What a command wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// Names it until its `Release`.
    pub task: RequestId,
    /// The target.
    pub target: TargetId,
    /// The unit.
    pub unit: u16,
    /// Bytes that its buffer must have.
    pub buffer: usize,
    /// What to do. Within the buffer, data begin at 0.
    pub action: Action,
}

/// What the driver is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Do this, then call [`Session::complete`].
    Execute(Command),
    /// If it has not begun, do not: call [`Session::complete`] with [`henge_core::Fault::Cancelled`] instead.
    Cancel(RequestId),
    /// The command's buffer is free.
    Release(RequestId),
}

/// Payload that comes next on the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payload {
    /// Whose buffer it belongs to.
    pub task: RequestId,
    /// Its unit.
    pub unit: u16,
    /// Where in the buffer.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    /// Bytes that the buffer must have.
    pub buffer: usize,
}

/// What to read next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Bytes for [`Session::receive`].
    Header,
    /// Bytes for a buffer, and then [`Session::delivered`].
    Payload(Payload),
    /// Nothing before more is sent, or a proof is [tried](Session::is_trying).
    Later,
    /// Nothing any more: send what is left, then close.
    Nothing,
}

/// Where a session is in its life.
#[derive(Debug)]
enum Stage {
    Login(Box<Login>),
    Full,
    Over,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    nexus: Nexus,
    target: Option<TargetId>,
    /// Its name and the target's, for logs and for INQUIRY.
    names: (String, String),
    /// Guarded targets that a discovery session shows, in order, while who may use them is said as it was.
    shown: Vec<(TargetId, u32)>,
    stage: Stage,
    /// The login request whose proof is still compared with secrets.
    trying: Option<Header>,
    /// Secrets that were compared since that was last asked.
    tries: usize,
    limits: Limits,
    agreed: Negotiated,
    incoming: Option<Incoming>,
    out: Output,
    steps: VecDeque<Step>,
    stat_sn: u32,
    exp_cmd_sn: u32,
    /// Never goes back (RFC 7143 4.2.2.1).
    max_cmd_sn: u32,
    tasks: Pending<Task>,
    by_tag: BTreeMap<u32, RequestId>,
    /// Commands in the window, and immediate ones.
    counts: [u32; 2],
    /// Bytes of buffers that are in use.
    held: u64,
    /// Buffers in use and their bytes: a buffer outlives its task until the reply is sent.
    buffers: BTreeMap<RequestId, usize>,
    waiting: VecDeque<RequestId>,
    /// Commands of which a piece was just sent.
    sent: Vec<RequestId>,
    functions: Vec<manage::Function>,
    /// What is left of a long text response.
    text: Vec<u8>,
    /// In the middle of a list of all targets: where it goes on.
    listed: Option<TargetId>,
    text_in: Vec<u8>,
    next_tag: u32,
    deadline: Instant,
    pinged: bool,
    logout_asked: bool,
}

/// Bytes of our own that may wait before nothing more is read.
const BACKLOG_MAX: usize = 256 * 1024;
/// The same of whoever uses no target: anybody may come so far.
const STRANGERS_MAX: usize = 32 * 1024;

impl Session {
    /// A connection has opened. `entropy` is for CHAP: unpredictable bytes, new for each connection.
    pub fn new(targets: &mut Targets, limits: Limits, entropy: [u8; 33], now: Instant) -> Session {
        Session {
            nexus: targets.open(),
            target: None,
            names: (String::new(), String::new()),
            shown: Vec::new(),
            stage: Stage::Login(Box::new(Login::new(entropy))),
            deadline: now + limits.login,
            trying: None,
            tries: 0,
            limits,
            agreed: Negotiated::default(),
            incoming: None,
            out: Output::default(),
            steps: VecDeque::new(),
            stat_sn: 0,
            exp_cmd_sn: 0,
            max_cmd_sn: 0,
            tasks: Pending::new(),
            by_tag: BTreeMap::new(),
            counts: [0; 2],
            held: 0,
            buffers: BTreeMap::new(),
            waiting: VecDeque::new(),
            sent: Vec::new(),
            functions: Vec::new(),
            text: Vec::new(),
            listed: None,
            text_in: Vec::new(),
            next_tag: 0,
            pinged: false,
            logout_asked: false,
        }
    }

    /// Its name among the sessions.
    pub fn nexus(&self) -> Nexus {
        self.nexus
    }
    /// Who is at the other end, once it has said so.
    pub fn initiator(&self) -> &str {
        match &self.stage {
            Stage::Login(login) => login.initiator(),
            _ => &self.names.0,
        }
    }
    /// The target that it uses, once logged in.
    pub fn target(&self) -> Option<TargetId> {
        self.target
    }
    /// Terms of the session.
    pub fn agreed(&self) -> &Negotiated {
        &self.agreed
    }

    /// What the data in a command's buffer are for, once it is known: where on the disk they go decides how a buffer is aligned.
    pub fn action(&self, task: RequestId) -> Option<Action> {
        self.tasks.get(task)?.next_action()
    }

    /// Whether a [`Step::Release`] of the command's buffer is still to come.
    pub fn holds(&self, task: RequestId) -> bool {
        self.buffers.contains_key(&task)
    }

    /// What to read next.
    pub fn want(&self) -> Want {
        if matches!(self.stage, Stage::Over) {
            return Want::Nothing;
        }
        match &self.incoming {
            Some(incoming) => incoming.want(),
            None if self.trying.is_some() => Want::Later,
            None if self.out.own_len() > self.backlog_max() => Want::Later,
            None => Want::Header,
        }
    }

    fn backlog_max(&self) -> usize {
        if self.target.is_some() { BACKLOG_MAX } else { STRANGERS_MAX }
    }
    /// Whether data are to come that were asked for, or announced.
    pub fn awaits_data(&self) -> bool {
        matches!(self.want(), Want::Payload(_))
            || self.tasks.iter().any(|(_, task)| task.r2t.is_some() || task.unsolicited)
    }

    /// The next thing to do.
    pub fn step(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// What to send.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        self.out.segments()
    }

    /// Whether all is sent.
    pub fn is_sent(&self) -> bool {
        self.out.is_empty()
    }

    /// `count` bytes of the segments have been sent.
    pub fn advance(&mut self, targets: &mut Targets, count: usize) {
        let (steps, buffers, held, sent) =
            (&mut self.steps, &mut self.buffers, &mut self.held, &mut self.sent);
        self.out.advance(count, |task, whole| {
            if !whole {
                sent.push(task);
            } else if let Some(len) = buffers.remove(&task) {
                *held -= len as u64;
                steps.push_back(Step::Release(task));
            }
        });
        while let Some(task) = self.sent.pop() {
            self.piece_sent(targets, task);
        }
        self.admit(targets);
    }

    /// Whether the connection is over and none of its commands is at the storage: nothing keeps it.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over) && self.tasks.is_empty()
    }

    /// When [`Session::tick`] has something to do.
    pub fn wake_at(&self) -> Option<Instant> {
        (!matches!(self.stage, Stage::Over)).then_some(self.deadline)
    }

    /// Time has passed: a login that takes too long ends, a silent initiator is asked, then given up.
    pub fn tick(&mut self, targets: &mut Targets, now: Instant) {
        if now < self.deadline || matches!(self.stage, Stage::Over) {
            return;
        }
        if matches!(self.stage, Stage::Login(_)) || self.pinged {
            self.close(targets);
            return;
        }
        self.pinged = true;
        self.deadline = now + self.limits.silence;
        let mut ping = Header::reply(response::NOP);
        let tag = self.new_tag();
        ping.put_u32(16, NO_TAG).put_u32(20, tag);
        self.stamp(&mut ping, false);
        self.out.pdu(ping, &[]);
    }

    /// The connection is gone, or is to go: commands end, and what the session had of the units is given back.
    pub fn close(&mut self, targets: &mut Targets) {
        if matches!(self.stage, Stage::Over) {
            return;
        }
        self.stage = Stage::Over;
        self.trying = None;
        self.incoming = None;
        self.functions.clear();
        self.abort_tasks(targets, |_| true);
        targets.leave(self.nexus);
    }

    /// Asks the initiator to log out (RFC 7143 11.9, event 1), because the node is about to end.
    pub fn shutdown(&mut self, targets: &mut Targets, within_seconds: u16) {
        match self.stage {
            Stage::Full if !self.logout_asked => {
                self.logout_asked = true;
                let mut message = Header::reply(response::ASYNC);
                message.put_u32(16, NO_TAG).put(36, 1).put_u16(42, within_seconds);
                self.stamp(&mut message, true);
                self.out.pdu(message, &[]);
            }
            Stage::Full | Stage::Over => {}
            Stage::Login(_) => self.close(targets),
        }
    }

    /// StatSN, ExpCmdSN and MaxCmdSN of an outgoing PDU; one that carries status takes a number.
    fn stamp(&mut self, header: &mut Header, status: bool) {
        let free = self.limits.window.saturating_sub(self.counts[0]);
        let max = self.exp_cmd_sn.wrapping_add(free).wrapping_sub(1);
        if crate::wire::before(self.max_cmd_sn, max) {
            self.max_cmd_sn = max;
        }
        header.put_u32(24, self.stat_sn).put_u32(28, self.exp_cmd_sn).put_u32(32, self.max_cmd_sn);
        if status {
            self.stat_sn = self.stat_sn.wrapping_add(1);
        }
    }

    fn new_tag(&mut self) -> u32 {
        self.next_tag = (self.next_tag + 1) & 0x7fff_ffff;
        self.next_tag
    }
}
