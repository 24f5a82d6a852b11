//! One connection of a host, which is one queue: bytes in, steps for the driver and bytes out.
//!
//! ```text
//!   loop {
//!     match session.want() {
//!       Header            read some bytes; n = session.receive(subsystems, bytes, now); keep what is after n
//!       Payload(p)        read p.len bytes to p.offset of the buffer of p.task; session.delivered(subsystems, those bytes, now)
//!       Later | Nothing   do not read: send first | close
//!     }
//!     while let Some(step) = session.step()   Execute, Cancel, Release, Derive
//!     send session.segments(), then session.advance(subsystems, n, |task| its buffer is free)
//!   }
//!   when an action is done: session.complete(subsystems, task, outcome, buffer)
//!   for each subsystems.next_poked(): session.poke(subsystems)
//! ```
//!
//! A command's buffer (of [`Command::buffer`] bytes) belongs to the driver from its first `Payload` or `Execute` until its
//! `Release`, or until it is sent. What is held at a time is bounded: by the queue's size in number, by [`Limits::held`] in bytes. Data that come
//! when asked for are asked for in order, a bounded number of bytes at a time, so that few buffers are half full.

mod authenticate;
mod cids;
mod command;
mod manage;
mod receive;
mod reply;
mod storage;

use crate::auth::{Derivation, Draw, Exchange};
use crate::fabrics::Joined;
use crate::output::{Digests, Output, Segment};
use crate::plan::Action;
use crate::reservation::{Change, HostId};
use crate::subsystem::{QueueId, SubsystemId, Subsystems};
use crate::wire::{CQE, SHORT_HEADER};
use cids::Cids;
use command::{Task, Work};
use henge_core::{Duration, Instant, Pending, RequestId};
use receive::Incoming;
use std::collections::VecDeque;

/// Bounds of a session.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of buffers at a time. At least one command may always go on.
    pub held: u64,
    /// Bytes that a command capsule of an I/O queue may carry, a multiple of 16; more is asked for.
    pub in_capsule: u32,
    /// Bytes of data that are asked for at a time.
    pub asked: u64,
    /// How long it may take until a connection is a queue.
    pub connect: Duration,
    /// And how long until the host has proved who it is, where it must. Hosts compute with numbers of up to 8192 bits meanwhile.
    pub authenticate: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            held: 32 << 20,
            in_capsule: 16 << 10,
            asked: 2 << 20,
            connect: Duration::from_secs(10),
            authenticate: Duration::from_secs(30),
        }
    }
}

/// What a command wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// Names it until its `Release`, or until it is completed if it has no buffer.
    pub task: RequestId,
    /// The subsystem whose disk it is for.
    pub subsystem: SubsystemId,
    /// Bytes that its buffer must have.
    pub buffer: usize,
    /// What to do. Within the buffer, data begin at 0.
    pub action: Action,
}

/// What the driver is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Do this, then call [`Session::complete`].
    Execute(Command),
    /// If it has not begun, do not: call [`Session::complete`] with [`henge_core::Fault::Cancelled`] instead.
    Cancel(RequestId),
    /// The command's buffer is free. Of one that is sent [`Session::advance`] says so.
    Release(RequestId),
    /// Run [`Session::derivation`] of the command beside the loop, then call [`Session::derived`].
    Derive(RequestId),
}

/// A step, by the name of its command alone: what is to be done stands there, and is copied once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Todo {
    Execute(RequestId),
    Cancel(RequestId),
    Release(RequestId),
    Derive(RequestId),
}

/// Payload that comes next on the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payload {
    /// Whose buffer it belongs to.
    pub task: RequestId,
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
    /// Nothing before more is sent.
    Later,
    /// Nothing any more: send what is left, then close.
    Nothing,
}

/// Where a connection is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// ICReq comes first.
    Opened,
    /// Then Connect.
    Agreed,
    /// Then commands.
    Joined(Joined),
    Over,
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    queue: QueueId,
    stage: Stage,
    limits: Limits,
    /// The address and the port that the host has come to.
    here: (String, String),
    subsystem: Option<SubsystemId>,
    /// The identifier of its host.
    host: HostId,
    digests: Digests,
    incoming: Option<Incoming>,
    out: Output,
    todo: VecDeque<Todo>,
    tasks: Pending<Task>,
    /// The host's names for commands that are not answered.
    cids: Cids,
    /// Completions so far, counted around the queue.
    head: u16,
    /// Bytes of buffers that are in use.
    held: u64,
    /// Commands at the storage.
    at_storage: usize,
    /// Commands that wait for room for their buffers.
    waiting: VecDeque<RequestId>,
    /// Commands whose data are to be asked for.
    asking: VecDeque<RequestId>,
    /// Bytes that were asked for and have not come.
    asked: u64,
    /// The tag by which data were asked for last.
    last_tag: u16,
    /// Asynchronous event requests, oldest first.
    events: VecDeque<RequestId>,
    /// The first of a fused pair, when the command before was one.
    fused: Option<RequestId>,
    /// Whether the host has proved who it is, and how far it is.
    exchange: Exchange,
    draw: Draw,
    /// What is computed for the exchange, and the command that waits for it.
    derivation: Option<(RequestId, Derivation)>,
    /// The exchange has failed: the next answer is the last.
    is_refused: bool,
    /// When it must be a queue.
    deadline: Instant,
    /// A command has come, or was answered, since the last tick.
    is_active: bool,
}

/// Bytes of our own that may wait before nothing more is read.
const BACKLOG_MAX: usize = 256 << 10;
/// How much later than agreed a host may show that it lives: sessions are looked at about once a second.
const GRACE: Duration = Duration::from_secs(2);

impl Session {
    /// A connection has opened, which came to this address and port. `seed` is 32 random bytes of its own.
    pub fn new(
        subsystems: &mut Subsystems,
        limits: Limits,
        here: (String, String),
        seed: [u8; 32],
        now: Instant,
    ) -> Session {
        Session {
            queue: subsystems.open(),
            stage: Stage::Opened,
            deadline: now + limits.connect,
            limits,
            here,
            subsystem: None,
            host: [0; 16],
            digests: Digests::default(),
            incoming: None,
            out: Output::default(),
            todo: VecDeque::new(),
            tasks: Pending::new(),
            cids: Cids::default(),
            head: 0,
            held: 0,
            at_storage: 0,
            waiting: VecDeque::new(),
            asking: VecDeque::new(),
            asked: 0,
            last_tag: 0,
            events: VecDeque::new(),
            fused: None,
            exchange: Exchange::default(),
            draw: Draw::new(seed),
            derivation: None,
            is_refused: false,
            is_active: false,
        }
    }

    /// Its name among the connections.
    pub fn queue(&self) -> QueueId {
        self.queue
    }
    /// The subsystem that it is a queue of, once connected; none for discovery.
    pub fn subsystem(&self) -> Option<SubsystemId> {
        self.subsystem
    }
    /// Whether its host has proved who it is, where it must. Before that it does nothing else.
    pub fn is_proven(&self) -> bool {
        !self.exchange.is_closed()
    }
    /// What was agreed on about digests.
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// What a command's data are for: where on the disk they go decides how a buffer is aligned.
    pub fn action(&self, task: RequestId) -> Option<Action> {
        self.tasks.get(task)?.action()
    }

    /// What [`Action::Reserve`] of a command is to change.
    pub fn change(&self, task: RequestId) -> Option<Change> {
        match &self.tasks.get(task)?.work {
            Work::Reserve(change) => Some(**change),
            _ => None,
        }
    }

    /// Whether data are to come that were asked for, or announced.
    pub fn awaits_data(&self) -> bool {
        self.asked > 0 || matches!(self.want(), Want::Payload(_))
    }

    /// Whether a [`Step::Release`] of the command's buffer is still to come.
    pub fn holds(&self, task: RequestId) -> bool {
        self.tasks.get(task).is_some_and(|task| task.holds > 0)
    }

    /// What to read next.
    #[inline]
    pub fn want(&self) -> Want {
        if self.stage == Stage::Over {
            return Want::Nothing;
        }
        match &self.incoming {
            Some(incoming) => incoming.want(),
            None if self.out.own_len() > BACKLOG_MAX => Want::Later,
            None => Want::Header,
        }
    }

    /// The next thing to do.
    #[inline]
    pub fn step(&mut self) -> Option<Step> {
        loop {
            return Some(match self.todo.pop_front()? {
                Todo::Execute(id) => match self.work(id) {
                    Some(command) => Step::Execute(command),
                    None => continue,
                },
                Todo::Cancel(id) => Step::Cancel(id),
                Todo::Release(id) => Step::Release(id),
                Todo::Derive(id) => Step::Derive(id),
            });
        }
    }

    /// What a command wants done next, which is at the storage from now on.
    #[inline]
    fn work(&self, id: RequestId) -> Option<Command> {
        let (task, subsystem) = (self.tasks.get(id)?, self.subsystem?);
        let action = task.action()?;
        Some(Command { task: id, subsystem, buffer: task.holds, action })
    }
    /// What to send.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        self.out.segments()
    }
    /// Whether all is sent.
    pub fn is_sent(&self) -> bool {
        self.out.is_empty()
    }

    /// `count` bytes of the segments have been sent; `released` hears of each command whose buffer is free with them.
    pub fn advance(
        &mut self,
        subsystems: &mut Subsystems,
        count: usize,
        mut released: impl FnMut(RequestId),
    ) {
        let (tasks, held) = (&mut self.tasks, &mut self.held);
        self.out.advance(count, |id| {
            if let Some(task) = tasks.get(id) {
                *held -= task.holds as u64;
                tasks.discard(id);
                released(id);
            }
        });
        self.admit(subsystems);
    }

    /// Whether the connection is over and none of its commands is at the storage: nothing keeps it.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over && self.at_storage == 0
    }

    /// Time has passed: a connection that takes too long to become a queue, or to prove whose it is, ends, and so does a controller whose host is silent.
    pub fn tick(&mut self, subsystems: &mut Subsystems, now: Instant) {
        let Stage::Joined(joined) = self.stage else {
            if self.stage != Stage::Over && now >= self.deadline {
                self.close(subsystems);
            }
            return;
        };
        if self.exchange.is_closed() && now >= self.deadline + self.limits.authenticate {
            return self.close(subsystems);
        }
        let Some(controller) = subsystems.controller_mut(joined.cntlid) else { return };
        if std::mem::take(&mut self.is_active) {
            controller.refresh(now);
        } else if joined.qid == 0 && controller.deadline.is_some_and(|at| now >= at + GRACE) {
            self.close(subsystems);
        }
    }

    /// The connection is gone, or is to go: what has not begun is given up.
    pub fn close(&mut self, subsystems: &mut Subsystems) {
        if self.stage == Stage::Over {
            return;
        }
        self.stage = Stage::Over;
        self.incoming = None;
        self.waiting.clear();
        self.asking.clear();
        self.events.clear();
        self.cids.clear();
        let mut gone = Vec::new();
        for (id, task) in self.tasks.iter_mut() {
            if task.at_storage {
                task.aborted = true;
                self.todo.push_back(Todo::Cancel(id));
            } else if !task.answered {
                gone.push(id);
            }
        }
        gone.into_iter().for_each(|id| self.forget(id));
        subsystems.leave(self.queue);
    }

    /// A command is no more, and nothing of it is to be sent.
    fn forget(&mut self, id: RequestId) {
        let Some(holds) = self.tasks.get(id).map(|task| task.holds) else { return };
        self.tasks.discard(id);
        if holds > 0 {
            self.held -= holds as u64;
            self.todo.push_back(Todo::Release(id));
        }
    }

    /// Most bytes that a capsule may carry now.
    fn capsule_max(&self) -> usize {
        match self.stage {
            Stage::Joined(joined) if joined.qid > 0 => self.limits.in_capsule as usize,
            _ => ADMIN_CAPSULE,
        }
    }
}

/// Bytes that a command capsule of an admin queue may carry (Transport 3.3.2.1).
const ADMIN_CAPSULE: usize = 8192;

const _: () = assert!(SHORT_HEADER == 8 + CQE, "a response is a header and a completion");
