//! An initiator's side of the wire, and a disk in memory: what the tests share.
#![allow(dead_code)]

use henge_core::{Fault, Instant, RequestId};
use henge_iscsi::chap::Access;
use henge_iscsi::scsi::{Action, Outcome, Reservations, Status, UnitProperties};
use henge_iscsi::wire::{Header, padding, request};
use henge_iscsi::{Command, Limits, Segment, Session, Step, TargetId, Targets, Want};
use std::collections::BTreeMap;

pub const TARGET: &str = "iqn.2026-11.example:disk";
pub const NOW: Instant = Instant::ZERO;
pub const BYTES: usize = 1 << 20;

/// A target with one thin disk of 1 MiB.
pub fn targets(access: Access) -> Targets {
    target(access).0
}

/// The same, with its name.
pub fn target(access: Access) -> (Targets, TargetId) {
    let disk = UnitProperties {
        bytes: BYTES as u64,
        block_shift: 9,
        physical_shift: 9,
        thin: true,
        read_only: false,
        reservable: true,
        serial: "serial".into(),
        id: 7,
    };
    let mut targets = Targets::new();
    targets.add_portal("192.0.2.1:3260");
    let target = targets.add_target(TARGET, access).expect("the first");
    assert!(targets.add_unit(target, 0, disk, Reservations::default()));
    (targets, target)
}

/// The driver's side of one session.
pub struct Host {
    pub session: Session,
    pub disk: Vec<u8>,
    pub buffers: BTreeMap<RequestId, Vec<u8>>,
    /// Commands that were not done because `hold` is set.
    pub pending: Vec<Command>,
    pub hold: bool,
    pub cancelled: Vec<RequestId>,
    /// The initiator takes nothing.
    pub deaf: bool,
    /// The largest buffer that a command had.
    pub largest: usize,
    input: Vec<u8>,
    pub sent: Vec<u8>,
}

impl Host {
    pub fn new(targets: &mut Targets, limits: Limits) -> Host {
        let session = Session::new(targets, limits, std::array::from_fn(|i| i as u8), NOW);
        Host {
            session,
            disk: vec![0; BYTES],
            buffers: BTreeMap::new(),
            pending: Vec::new(),
            hold: false,
            cancelled: Vec::new(),
            deaf: false,
            largest: 0,
            input: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Bytes arrive. Everything that they lead to happens, and what is sent is kept in `sent`.
    pub fn feed(&mut self, targets: &mut Targets, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        loop {
            let taken = match self.session.want() {
                Want::Payload(p) => {
                    let n = self.input.len().min(p.len);
                    let buffer = self.buffers.entry(p.task).or_insert_with(|| vec![0; p.buffer]);
                    buffer[p.offset..p.offset + n].copy_from_slice(&self.input[..n]);
                    self.session.delivered(targets, &self.input[..n], NOW);
                    n
                }
                _ => self.session.receive(targets, &self.input, NOW),
            };
            while self.session.is_trying() {
                self.session.go_on(targets, NOW);
            }
            self.input.drain(..taken);
            self.work(targets);
            if taken == 0 {
                return;
            }
        }
    }

    /// Does what the session wants done, and sends.
    pub fn work(&mut self, targets: &mut Targets) {
        loop {
            let mut idle = true;
            while let Some(step) = self.session.step() {
                idle = false;
                match step {
                    Step::Execute(command) if self.hold => self.pending.push(command),
                    Step::Execute(command) => self.execute(targets, &command),
                    Step::Cancel(task) => self.cancelled.push(task),
                    Step::Release(task) => drop(self.buffers.remove(&task)),
                }
            }
            let mut unsent = 0;
            let sends = if self.deaf { 0 } else { usize::MAX };
            for segment in self.session.segments().take(sends) {
                let bytes = match segment {
                    Segment::Bytes(own) => own,
                    Segment::Buffer(task, from, len) => &self.buffers[&task][from..from + len],
                };
                self.sent.extend_from_slice(bytes);
                unsent += bytes.len();
            }
            self.session.advance(targets, unsent);
            if idle && unsent == 0 {
                return;
            }
        }
    }

    fn execute(&mut self, targets: &mut Targets, command: &Command) {
        let buffer = self.buffers.entry(command.task).or_default();
        buffer.resize(command.buffer, 0);
        self.largest = self.largest.max(buffer.len());
        let outcome = match command.action {
            Action::Read { offset, len } => {
                let from = offset as usize;
                buffer[..len as usize].copy_from_slice(&self.disk[from..from + len as usize]);
                Outcome::Done
            }
            Action::Write { offset, len, .. } => {
                let to = offset as usize;
                self.disk[to..to + len as usize].copy_from_slice(&buffer[..len as usize]);
                Outcome::Done
            }
            Action::Flush => Outcome::Done,
            Action::Reserve(ref change) => {
                Outcome::Decided(targets.reserve(command.target, command.unit, change))
            }
            Action::Sweep(_) => Outcome::Decided(Status::Good),
            _ => Outcome::Failed(Fault::Unsupported),
        };
        self.session.complete(targets, command.task, outcome, buffer);
        if command.buffer == 0 {
            self.buffers.remove(&command.task);
        }
    }

    /// Finishes what was held back.
    pub fn finish(&mut self, targets: &mut Targets, outcome: Outcome<'_>) {
        for command in std::mem::take(&mut self.pending) {
            let buffer = self.buffers.entry(command.task).or_default();
            buffer.resize(command.buffer, 0);
            self.session.complete(targets, command.task, outcome, &self.buffers[&command.task]);
        }
        self.work(targets);
    }

    /// PDUs sent so far, without digests, and forgets them.
    pub fn replies(&mut self) -> Vec<(Header, Vec<u8>)> {
        let bytes = std::mem::take(&mut self.sent);
        split(&bytes, false)
    }
}

/// Cuts a stream into PDUs.
pub fn split(mut bytes: &[u8], digests: bool) -> Vec<(Header, Vec<u8>)> {
    let mut found = Vec::new();
    let digest = if digests { 4 } else { 0 };
    while let Some(header) = Header::read(bytes) {
        let len = header.data_len();
        let at = 48 + digest;
        found.push((header, bytes[at..at + len].to_vec()));
        let tail = if len > 0 { len + padding(len) + digest } else { 0 };
        bytes = &bytes[at + tail..];
    }
    assert!(bytes.is_empty(), "the stream ends with a whole PDU");
    found
}

/// A PDU on the wire.
pub fn pdu(mut header: Header, data: &[u8]) -> Vec<u8> {
    header.put_data_len(data.len());
    let mut bytes = header.0.to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len() + padding(data.len()), 0);
    bytes
}

/// The same, with digests.
pub fn pdu_digested(mut header: Header, data: &[u8]) -> Vec<u8> {
    header.put_data_len(data.len());
    let mut bytes = header.0.to_vec();
    bytes.extend_from_slice(&crc32c::crc32c(&header.0).to_le_bytes());
    if !data.is_empty() {
        let mut padded = data.to_vec();
        padded.resize(data.len() + padding(data.len()), 0);
        bytes.extend_from_slice(&padded);
        bytes.extend_from_slice(&crc32c::crc32c(&padded).to_le_bytes());
    }
    bytes
}

/// A login request: flags T, C, CSG, NSG; ISID 0x80 0 0 0 0 1.
pub fn login(flags: u8, pairs: &[&str]) -> Vec<u8> {
    let mut header = Header::reply(0x40 | request::LOGIN);
    header.put(1, flags).put(8, 0x80).put(13, 1).put_u32(24, 1);
    let text: String = pairs.iter().map(|pair| format!("{pair}\0")).collect();
    pdu(header, text.as_bytes())
}

/// Straight to the full feature phase.
pub fn plain_login(extra: &[&str]) -> Vec<u8> {
    let name = format!("TargetName={TARGET}");
    let mut pairs = vec!["InitiatorName=iqn.2026-11.example:host", "SessionType=Normal", &name];
    pairs.extend_from_slice(extra);
    login(0x87, &pairs) // CSG 1, NSG 3
}

/// A SCSI command; flags R 0x40, W 0x20, F 0x80.
pub fn scsi(flags: u8, itt: u32, cmd_sn: u32, expected: u32, cdb: &[u8], data: &[u8]) -> Vec<u8> {
    pdu(scsi_header(flags, itt, cmd_sn, expected, cdb), data)
}

pub fn scsi_header(flags: u8, itt: u32, cmd_sn: u32, expected: u32, cdb: &[u8]) -> Header {
    let mut header = Header::reply(request::SCSI);
    header.put(1, flags).put_u32(16, itt).put_u32(20, expected).put_u32(24, cmd_sn);
    header.0[32..32 + cdb.len()].copy_from_slice(cdb);
    header
}

pub fn data_out(last: bool, itt: u32, ttt: u32, number: u32, offset: u32, data: &[u8]) -> Vec<u8> {
    let mut header = Header::reply(request::DATA);
    header.put(1, if last { 0x80 } else { 0 }).put_u32(16, itt).put_u32(20, ttt);
    header.put_u32(36, number).put_u32(40, offset);
    pdu(header, data)
}

/// Task management.
pub fn manage(function: u8, itt: u32, cmd_sn: u32, about: u32) -> Vec<u8> {
    let mut header = Header::reply(request::TASK);
    header.put(1, 0x80 | function).put_u32(16, itt).put_u32(20, about).put_u32(24, cmd_sn);
    pdu(header, &[])
}

/// READ(10) and WRITE(10).
pub fn cdb10(opcode: u8, lba: u8, blocks: u8) -> [u8; 10] {
    [opcode, 0, 0, 0, 0, lba, 0, 0, blocks, 0]
}

/// A session that is logged in, past its first unit attention; the next command has CmdSN 2.
pub fn ready(targets: &mut Targets, limits: Limits, extra: &[&str]) -> Host {
    let mut host = Host::new(targets, limits);
    host.feed(targets, &plain_login(extra));
    host.feed(targets, &scsi(0x80, 1, 1, 0, &[0; 6], &[]));
    let replies = host.replies();
    assert_eq!(replies.len(), 2);
    assert_eq!(replies[1].0.0[3], 0x02, "POWER ON is reported first");
    host
}
