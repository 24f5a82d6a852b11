//! A target over a memory disk, for trying initiators against the session alone.
//!
//! ```text
//! cargo run --release -p henge-iscsi --example serve -- 127.0.0.1:3260 [127.0.0.1:3261] size=256 thin
//! iscsi-ls -s iscsi://127.0.0.1:3260
//! ```
//! Words after the addresses: `size=MiB`, `block=512|4096`, `thin`, `readonly`, `slow` (background work takes
//! its time), `user=NAME:SECRET`, `self=NAME:SECRET` (mutual CHAP). One thread, nothing durable.

// A driver has a clock and sockets; the library has none.
#![allow(clippy::disallowed_methods)]

use henge_core::{Duration, Fault, Instant, RequestId};
use henge_iscsi::chap::{Access, Secret};
use henge_iscsi::scsi::{Action, Extent, Outcome, Reservations, Status, UnitProperties};
use henge_iscsi::{Limits, Segment, Session, Step, Targets, Want};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

const TARGET: &str = "iqn.2026-11.example:memory";
const PAGE: usize = 4096;

/// Blocks in memory.
struct Memory {
    bytes: Vec<u8>,
    allocated: Vec<bool>,
}

impl Memory {
    fn run(&mut self, action: &Action, buffer: &mut [u8]) -> Answer {
        let span = |offset: u64, len: u64| offset as usize..(offset + len) as usize;
        match *action {
            Action::Read { offset, len } => {
                buffer[..len as usize].copy_from_slice(&self.bytes[span(offset, len)]);
            }
            Action::Write { offset, len, .. } => self.write(span(offset, len), &buffer[..len as usize]),
            Action::Check { .. } | Action::Flush => {}
            Action::Compare { offset, len } => {
                return unequal(&self.bytes[span(offset, len)], &buffer[..len as usize]);
            }
            Action::CompareWrite { offset, len, .. } => {
                let (expected, new) = buffer.split_at(len as usize);
                match unequal(&self.bytes[span(offset, len)], expected) {
                    Answer::Done => self.write(span(offset, len), new),
                    other => return other,
                }
            }
            Action::Or { offset, len, .. } => {
                let old = &self.bytes[span(offset, len)];
                let new: Vec<u8> = old.iter().zip(&*buffer).map(|(a, b)| a | b).collect();
                self.write(span(offset, len), &new);
            }
            Action::Fill { offset, len, ref pattern } => {
                let new: Vec<u8> = pattern.iter().copied().cycle().take(len as usize).collect();
                self.write(span(offset, len), &new);
            }
            Action::Zero { offset, len, .. } => self.write(span(offset, len), &vec![0; len as usize]),
            Action::Trim { offset, len } => {
                let span = span(offset, len);
                self.bytes[span.clone()].fill(0);
                let pages = span.start.div_ceil(PAGE)..(span.end / PAGE).max(span.start.div_ceil(PAGE));
                self.allocated[pages].fill(false);
            }
            Action::Extents { offset, len } => return Answer::Extents(self.extents(span(offset, len))),
            Action::Reserve(_) => unreachable!("reservations are the targets'"),
            Action::Sweep(_) => unreachable!("nobody else serves the disk"),
        }
        Answer::Done
    }

    fn write(&mut self, span: std::ops::Range<usize>, data: &[u8]) {
        self.allocated[span.start / PAGE..span.end.div_ceil(PAGE)].fill(true);
        self.bytes[span].copy_from_slice(data);
    }

    fn extents(&self, span: std::ops::Range<usize>) -> Vec<Extent> {
        let mut found: Vec<Extent> = Vec::new();
        let mut at = span.start;
        while at < span.end {
            let allocated = self.allocated[at / PAGE];
            let end = ((at / PAGE + 1) * PAGE).min(span.end);
            match found.last_mut() {
                Some(last) if last.allocated == allocated => last.len += (end - at) as u64,
                _ => found.push(Extent { len: (end - at) as u64, allocated }),
            }
            at = end;
        }
        found
    }
}

enum Answer {
    Done,
    Unequal(u64),
    Extents(Vec<Extent>),
    Decided(Status),
}

impl Answer {
    fn outcome(&self) -> Outcome<'_> {
        match self {
            Answer::Done => Outcome::Done,
            Answer::Unequal(at) => Outcome::Unequal(*at),
            Answer::Extents(extents) => Outcome::Extents(extents),
            Answer::Decided(status) => Outcome::Decided(*status),
        }
    }
}

fn unequal(a: &[u8], b: &[u8]) -> Answer {
    match a.iter().zip(b).position(|(a, b)| a != b) {
        Some(at) => Answer::Unequal(at as u64),
        None => Answer::Done,
    }
}

/// A connection.
struct Peer {
    stream: TcpStream,
    session: Session,
    staging: Vec<u8>,
    buffers: BTreeMap<RequestId, Vec<u8>>,
    ended: bool,
}

impl Peer {
    /// Reads until nothing comes, or nothing is wanted.
    fn receive(&mut self, targets: &mut Targets, memory: &mut Memory, now: Instant) {
        let mut chunk = vec![0; 64 * 1024];
        loop {
            self.consume(targets, memory, now);
            let want = self.session.want();
            let read = match want {
                Want::Later | Want::Nothing => return,
                Want::Header => self.stream.read(&mut chunk),
                Want::Payload(p) => {
                    let buffer = self.buffers.entry(p.task).or_insert_with(|| vec![0; p.buffer]);
                    self.stream.read(&mut buffer[p.offset..p.offset + p.len])
                }
            };
            match read {
                Ok(0) => return self.end(targets),
                Ok(n) => match want {
                    Want::Payload(p) => {
                        let bytes = &self.buffers[&p.task][p.offset..p.offset + n];
                        self.session.delivered(targets, bytes, now);
                    }
                    _ => self.staging.extend_from_slice(&chunk[..n]),
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.end(targets),
            }
        }
    }

    fn end(&mut self, targets: &mut Targets) {
        self.ended = true;
        self.session.close(targets);
    }

    /// Gives the session what has been read, and does what it asks for.
    fn consume(&mut self, targets: &mut Targets, memory: &mut Memory, now: Instant) {
        loop {
            let taken = match self.session.want() {
                Want::Payload(p) if !self.staging.is_empty() => {
                    let n = self.staging.len().min(p.len);
                    let buffer = self.buffers.entry(p.task).or_insert_with(|| vec![0; p.buffer]);
                    buffer[p.offset..p.offset + n].copy_from_slice(&self.staging[..n]);
                    self.session.delivered(targets, &self.staging[..n], now);
                    n
                }
                Want::Payload(_) => 0,
                _ => self.session.receive(targets, &self.staging, now),
            };
            while self.session.is_trying() {
                self.session.go_on(targets, now);
            }
            self.staging.drain(..taken);
            self.work(targets, memory);
            if taken == 0 {
                return;
            }
        }
    }

    fn work(&mut self, targets: &mut Targets, memory: &mut Memory) {
        while let Some(step) = self.session.step() {
            match step {
                Step::Execute(command) => {
                    let buffer = self.buffers.entry(command.task).or_default();
                    buffer.resize(command.buffer, 0);
                    let answer = match &command.action {
                        Action::Reserve(change) => {
                            Answer::Decided(targets.reserve(command.target, command.unit, change))
                        }
                        action => memory.run(action, buffer),
                    };
                    let buffer = &self.buffers[&command.task];
                    self.session.complete(targets, command.task, answer.outcome(), buffer);
                    if command.buffer == 0 {
                        self.buffers.remove(&command.task);
                    }
                }
                Step::Cancel(task) => {
                    self.session.complete(targets, task, Outcome::Failed(Fault::Cancelled), &[]);
                }
                Step::Release(task) => drop(self.buffers.remove(&task)),
            }
        }
    }

    fn send(&mut self, targets: &mut Targets) {
        while !self.ended && !self.session.is_sent() {
            let mut bytes = Vec::new();
            for segment in self.session.segments().take(64) {
                match segment {
                    Segment::Bytes(own) => bytes.extend_from_slice(own),
                    Segment::Buffer(task, from, len) => {
                        bytes.extend_from_slice(&self.buffers[&task][from..from + len]);
                    }
                }
            }
            match self.stream.write(&bytes) {
                Ok(n) => self.session.advance(targets, n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.end(targets),
            }
        }
        if self.session.want() == Want::Nothing {
            self.end(targets);
        }
    }
}

struct Options {
    listeners: Vec<TcpListener>,
    mebibytes: u64,
    disk: UnitProperties,
    access: Access,
    slow: bool,
}

fn options() -> Options {
    let disk = UnitProperties {
        bytes: 0,
        block_shift: 9,
        physical_shift: 9,
        thin: false,
        read_only: false,
        reservable: true,
        serial: "0123456789abcdef".into(),
        id: 0x0123_4567_89ab_cdef,
    };
    let mut options =
        Options { listeners: Vec::new(), mebibytes: 256, disk, access: Access::default(), slow: false };
    let secret = |word: &str| {
        let (name, secret) = word.split_once(':').expect("NAME:SECRET");
        Secret { name: name.into(), secret: secret.into() }
    };
    for word in std::env::args().skip(1) {
        match word.split_once('=') {
            Some(("size", size)) => options.mebibytes = size.parse().expect("MiB"),
            Some(("block", size)) => {
                options.disk.block_shift = size.parse::<u32>().expect("bytes").ilog2();
                options.disk.physical_shift = options.disk.block_shift;
            }
            Some(("user", word)) => options.access.users.push(secret(word)),
            Some(("self", word)) => options.access.target = Some(secret(word)),
            _ if word == "thin" => options.disk.thin = true,
            _ if word == "readonly" => options.disk.read_only = true,
            _ if word == "slow" => options.slow = true,
            _ => options.listeners.push(TcpListener::bind(&word).expect("an address to listen on")),
        }
    }
    options.disk.bytes = options.mebibytes << 20;
    options
}

/// Not secret: a test's challenges need only differ.
fn entropy(started: std::time::Instant) -> [u8; 33] {
    let mut state = started.elapsed().as_nanos() as u64 | 1;
    std::array::from_fn(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
}

fn main() {
    let options = options();
    let bytes = options.disk.bytes as usize;
    let mut memory = Memory { bytes: vec![0; bytes], allocated: vec![false; bytes.div_ceil(PAGE)] };
    let mut targets = Targets::new();
    for listener in &options.listeners {
        listener.set_nonblocking(true).expect("a listener can be non-blocking");
        targets.add_portal(&listener.local_addr().expect("it is bound").to_string());
    }
    let target = targets.add_target(TARGET, options.access).expect("the first");
    targets.add_unit(target, 0, options.disk, Reservations::default());
    let started = std::time::Instant::now();
    let mut peers: Vec<Peer> = Vec::new();
    let mut rest = Instant::ZERO;
    loop {
        let mut fds: Vec<PollFd<'_>> =
            options.listeners.iter().map(|l| PollFd::new(l, PollFlags::IN)).collect();
        for peer in &peers {
            let out = if peer.session.is_sent() { PollFlags::empty() } else { PollFlags::OUT };
            let read = if peer.session.want() == Want::Later { PollFlags::empty() } else { PollFlags::IN };
            fds.push(PollFd::new(&peer.stream, read | out));
        }
        let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        poll(&mut fds, Some(&wait)).expect("poll waits");
        drop(fds);
        let now = Instant::from_nanos(started.elapsed().as_nanos() as u64);
        for listener in &options.listeners {
            while let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(true).expect("a socket can be non-blocking");
                stream.set_nodelay(true).expect("TCP has this option");
                let session = Session::new(&mut targets, Limits::default(), entropy(started), now);
                peers.push(Peer {
                    stream,
                    session,
                    staging: Vec::new(),
                    buffers: BTreeMap::new(),
                    ended: false,
                });
            }
        }
        while now >= rest
            && let Some((target, number, action)) = targets.background()
        {
            let answer = memory.run(&action, &mut []);
            targets.background_done(target, number, &answer.outcome());
            if options.slow {
                rest = now + Duration::from_millis(50);
            }
        }
        for peer in &mut peers {
            peer.receive(&mut targets, &mut memory, now);
        }
        while let Some(nexus) = targets.next_poked() {
            if let Some(peer) = peers.iter_mut().find(|peer| peer.session.nexus() == nexus) {
                peer.session.poke(&mut targets);
            }
        }
        for peer in &mut peers {
            peer.session.tick(&mut targets, now);
            peer.work(&mut targets, &mut memory);
            peer.send(&mut targets);
            peer.work(&mut targets, &mut memory);
        }
        peers.retain(|peer| !peer.ended);
    }
}
