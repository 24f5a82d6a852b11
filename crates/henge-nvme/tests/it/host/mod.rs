//! A host's side of the wire, and a disk in memory: what the tests share.
#![allow(dead_code)]

use henge_core::{Fault, Instant, RequestId};
use henge_nvme::reservation::Change;
use henge_nvme::wire::{Common, le16, le32, le64, pdu};
use henge_nvme::{
    Access, Action, Command, Limits, Namespace, Outcome, Reach, Segment, Service, Session, Status, Step,
    SubsystemId, Subsystems, Want,
};
use std::collections::BTreeMap;

pub const NQN: &str = "nqn.2026-11.example:disk";
pub const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:host";
pub const NOW: Instant = Instant::ZERO;
pub const BYTES: usize = 1 << 20;

pub fn namespace() -> Namespace {
    Namespace {
        bytes: BYTES as u64,
        block_shift: 9,
        preferred_shift: 12,
        read_only: false,
        reservable: true,
        serial: "serial".into(),
        uuid: [7; 16],
        reach: Reach::Optimized,
        reach_changes: 0,
    }
}

/// One subsystem with a disk of 1 MiB.
pub fn subsystems() -> (Subsystems, SubsystemId) {
    let mut subsystems = Subsystems::at(1);
    let id = subsystems.add(NQN, Access::default(), namespace()).expect("the first");
    (subsystems, id)
}

/// The driver's side of one session.
pub struct Driver {
    pub session: Session,
    pub disk: Vec<u8>,
    pub buffers: BTreeMap<RequestId, Vec<u8>>,
    /// Commands that were not done because `hold` is set.
    pub pending: Vec<Command>,
    pub hold: bool,
    pub fault: Option<Fault>,
    pub cancelled: Vec<RequestId>,
    /// Changes of who may use the disk that were asked for.
    pub changes: Vec<Change>,
    /// A power that was not computed because `hold` is set.
    pub deriving: Option<RequestId>,
    input: Vec<u8>,
    pub sent: Vec<u8>,
}

impl Driver {
    pub fn new(subsystems: &mut Subsystems, limits: Limits) -> Driver {
        let here = ("192.0.2.1".to_owned(), "4420".to_owned());
        Driver {
            session: Session::new(subsystems, limits, here, [3; 32], NOW),
            disk: vec![0; BYTES],
            buffers: BTreeMap::new(),
            pending: Vec::new(),
            hold: false,
            fault: None,
            cancelled: Vec::new(),
            changes: Vec::new(),
            deriving: None,
            input: Vec::new(),
            sent: Vec::new(),
        }
    }

    /// Bytes arrive. Everything that they lead to happens, and what is sent is kept in `sent`.
    pub fn feed(&mut self, subsystems: &mut Subsystems, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        loop {
            let taken = match self.session.want() {
                Want::Payload(p) => {
                    let n = self.input.len().min(p.len);
                    let buffer = self.buffers.entry(p.task).or_insert_with(|| vec![0; p.buffer]);
                    buffer[p.offset..p.offset + n].copy_from_slice(&self.input[..n]);
                    self.session.delivered(subsystems, &self.input[..n]);
                    n
                }
                _ => self.session.receive(subsystems, &self.input),
            };
            self.input.drain(..taken);
            self.work(subsystems);
            if taken == 0 {
                return;
            }
        }
    }

    /// Does what the session wants done, and sends.
    pub fn work(&mut self, subsystems: &mut Subsystems) {
        loop {
            let mut idle = true;
            while let Some(step) = self.session.step() {
                idle = false;
                match step {
                    Step::Execute(command) if self.hold => self.pending.push(command),
                    Step::Execute(command) => self.execute(subsystems, &command),
                    Step::Cancel(task) => self.cancelled.push(task),
                    Step::Release(task) => drop(self.buffers.remove(&task)),
                    Step::Derive(task) if self.hold => self.deriving = Some(task),
                    Step::Derive(task) => self.derive(subsystems, task),
                }
            }
            let mut unsent = 0;
            for segment in self.session.segments() {
                let bytes = match segment {
                    Segment::Bytes(own) => own,
                    Segment::Buffer(task, from, len) => &self.buffers[&task][from..from + len],
                };
                self.sent.extend_from_slice(bytes);
                unsent += bytes.len();
            }
            let buffers = &mut self.buffers;
            self.session.advance(subsystems, unsent, |task| drop(buffers.remove(&task)));
            if idle && unsent == 0 {
                return;
            }
        }
    }

    pub fn derive(&mut self, subsystems: &mut Subsystems, task: RequestId) {
        let power = self.session.derivation(task).expect("it was asked for").run();
        self.session.derived(subsystems, task, power);
    }

    fn execute(&mut self, subsystems: &mut Subsystems, command: &Command) {
        let mut none = Vec::new();
        let buffer = if command.buffer > 0 {
            self.buffers.entry(command.task).or_insert_with(|| vec![0; command.buffer])
        } else {
            &mut none
        };
        let range = |offset: u64, len: u64| offset as usize..(offset + len) as usize;
        let service = Service { commands: 3, reads: 1, bytes: 1_024_000, ..Service::default() };
        let outcome = match command.action {
            Action::Reserve => {
                self.changes.push(self.session.change(command.task).expect("it was asked for"));
                Outcome::Decided(Status::SUCCESS)
            }
            _ if self.fault.is_some() => Outcome::Failed(self.fault.expect("just asked")),
            Action::Read { offset, len } => {
                buffer.copy_from_slice(&self.disk[range(offset, len)]);
                Outcome::Done
            }
            Action::Write { offset, len, .. } => {
                self.disk[range(offset, len)].copy_from_slice(buffer);
                Outcome::Done
            }
            Action::Compare { offset, len } if self.disk[range(offset, len)] == buffer[..] => Outcome::Done,
            Action::CompareWrite { offset, len, .. }
                if self.disk[range(offset, len)] == buffer[..len as usize] =>
            {
                self.disk[range(offset, len)].copy_from_slice(&buffer[len as usize..]);
                Outcome::Done
            }
            Action::Compare { .. } | Action::CompareWrite { .. } => Outcome::Unequal,
            Action::Zero { offset, len, .. } | Action::Trim { offset, len } => {
                self.disk[range(offset, len)].fill(0);
                Outcome::Done
            }
            Action::Copy { from, to, len, .. } => {
                self.disk.copy_within(range(from, len), to as usize);
                Outcome::Done
            }
            Action::Flush | Action::Check { .. } => Outcome::Done,
            Action::Report => Outcome::Service(&service),
        };
        self.session.complete(subsystems, command.task, outcome, buffer);
    }

    /// Finishes what was held back, the newest first.
    pub fn finish(&mut self, subsystems: &mut Subsystems) {
        while let Some(command) = self.pending.pop() {
            self.execute(subsystems, &command);
        }
        self.work(subsystems);
    }

    /// PDUs sent so far, and forgets them.
    pub fn replies(&mut self) -> Vec<Reply> {
        let bytes = std::mem::take(&mut self.sent);
        split(&bytes)
    }

    /// The one completion that was sent.
    pub fn completion(&mut self) -> Completion {
        let replies = self.replies();
        let [reply] = &replies[..] else { panic!("one reply, not {replies:?}") };
        reply.completion()
    }
}

/// A PDU of the controller's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    pub kind: u8,
    pub flags: u8,
    pub header: Vec<u8>,
    pub data: Vec<u8>,
}

/// A completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    pub result: u64,
    pub head: u16,
    pub cid: u16,
    /// Type and code.
    pub status: u16,
    pub final_: bool,
}

impl Reply {
    pub fn completion(&self) -> Completion {
        assert_eq!(self.kind, pdu::RESPONSE, "{self:?}");
        let status = le16(&self.header, 22) >> 1;
        Completion {
            result: le64(&self.header, 8),
            head: le16(&self.header, 16),
            cid: le16(&self.header, 20),
            status: status & 0x7ff,
            final_: status >> 14 & 1 != 0,
        }
    }
}

/// Cuts a stream into PDUs, and checks digests.
pub fn split(mut bytes: &[u8]) -> Vec<Reply> {
    let mut found = Vec::new();
    while let Some(common) = Common::read(bytes) {
        let (whole, rest) = bytes.split_at(common.len as usize);
        let header = &whole[..usize::from(common.header)];
        if common.flags & pdu::HEADER_DIGEST != 0 {
            assert_eq!(whole[header.len()..][..4], crc32c::crc32c(header).to_le_bytes());
        }
        let end = whole.len() - if common.flags & pdu::DATA_DIGEST != 0 { 4 } else { 0 };
        let data = if common.data_at > 0 { &whole[usize::from(common.data_at)..end] } else { &[] };
        if common.flags & pdu::DATA_DIGEST != 0 {
            assert_eq!(whole[end..], crc32c::crc32c(data).to_le_bytes());
        }
        let (kind, flags) = (common.kind, common.flags);
        found.push(Reply { kind, flags, header: header.to_vec(), data: data.to_vec() });
        bytes = rest;
    }
    assert!(bytes.is_empty(), "the stream ends with a whole PDU");
    found
}

/// What a host sends, with or without digests.
#[derive(Clone, Copy, Default)]
pub struct Wire {
    pub header: bool,
    pub data: bool,
}

impl Wire {
    pub fn both() -> Wire {
        Wire { header: true, data: true }
    }

    pub fn hello(self) -> Vec<u8> {
        let mut bytes = vec![0; 128];
        bytes[2] = 128;
        bytes[4] = 128;
        bytes[11] = u8::from(self.header) | u8::from(self.data) << 1;
        bytes
    }

    fn pdu(self, kind: u8, mut flags: u8, mut header: Vec<u8>, data: &[u8]) -> Vec<u8> {
        let digest = if self.header { 4 } else { 0 };
        let has_data = !data.is_empty();
        let data_digest = if self.data && has_data { 4 } else { 0 };
        flags |= u8::from(self.header) | if data_digest > 0 { 2 } else { 0 };
        let at = header.len() + digest;
        let len = (at + data.len() + data_digest) as u32;
        let data_at = if has_data { at as u8 } else { 0 };
        Common { kind, flags, header: header.len() as u8, data_at, len }.write(&mut header);
        let mut bytes = header;
        if self.header {
            bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        }
        bytes.extend_from_slice(data);
        if data_digest > 0 {
            bytes.extend(crc32c::crc32c(data).to_le_bytes());
        }
        bytes
    }

    /// A command with its data in the capsule.
    pub fn command(self, sqe: Entry, data: &[u8]) -> Vec<u8> {
        let mut header = vec![0; 8];
        header.extend_from_slice(&sqe.0);
        self.pdu(pdu::COMMAND, 0, header, data)
    }

    /// Data that were asked for.
    pub fn data(self, cid: u16, tag: u16, offset: u32, data: &[u8], last: bool) -> Vec<u8> {
        let mut header = vec![0; 24];
        header[8..10].copy_from_slice(&cid.to_le_bytes());
        header[10..12].copy_from_slice(&tag.to_le_bytes());
        header[12..16].copy_from_slice(&offset.to_le_bytes());
        header[16..20].copy_from_slice(&(data.len() as u32).to_le_bytes());
        self.pdu(pdu::H2C_DATA, if last { pdu::LAST } else { 0 }, header, data)
    }

    /// The answer to an R2T: its part of `data`.
    pub fn answer(self, r2t: &Reply, data: &[u8]) -> Vec<u8> {
        assert_eq!(r2t.kind, pdu::R2T, "{r2t:?}");
        let (from, len) = (le32(&r2t.header, 12) as usize, le32(&r2t.header, 16) as usize);
        let (cid, tag) = (le16(&r2t.header, 8), le16(&r2t.header, 10));
        self.data(cid, tag, from as u32, &data[from..from + len], true)
    }
}

/// A submission entry in the making.
#[derive(Clone, Copy)]
pub struct Entry(pub [u8; 64]);

impl Entry {
    pub fn new(opcode: u8, cid: u16) -> Entry {
        let mut e = Entry([0; 64]);
        e.0[0] = opcode;
        e.0[1] = 0x40;
        e.0[39] = 0x5a;
        e.put(2, &cid.to_le_bytes())
    }
    pub fn put(mut self, at: usize, bytes: &[u8]) -> Entry {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }
    pub fn nsid(self, nsid: u32) -> Entry {
        self.put(4, &nsid.to_le_bytes())
    }
    pub fn dword(self, n: usize, value: u32) -> Entry {
        self.put(n * 4, &value.to_le_bytes())
    }
    pub fn fuse(self, which: u8) -> Entry {
        self.put(1, &[0x40 | which])
    }
    /// Room for, or data of, so many bytes at the host.
    pub fn at_host(self, len: usize) -> Entry {
        self.put(32, &(len as u32).to_le_bytes())
    }
    /// So many bytes in the capsule.
    pub fn in_capsule(self, len: usize) -> Entry {
        self.put(32, &(len as u32).to_le_bytes()).put(39, &[1])
    }
    /// Blocks of namespace 1.
    pub fn blocks(self, first: u64, count: u32) -> Entry {
        self.nsid(1).put(40, &first.to_le_bytes()).dword(12, (count - 1) & 0xffff)
    }
}

pub fn connect(qid: u16, cntlid: u16, nqn: &str, flow_control: bool) -> (Entry, Vec<u8>) {
    let mut data = vec![0; 1024];
    data[..16].fill(9);
    data[16..18].copy_from_slice(&cntlid.to_le_bytes());
    data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
    data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
    let entry = Entry::new(0x7f, 0)
        .put(4, &[1])
        .put(42, &qid.to_le_bytes())
        .put(44, &31_u16.to_le_bytes())
        .put(46, &[if flow_control { 0 } else { 4 }])
        .in_capsule(1024);
    (entry, data)
}

/// CC with EN: entries of 64 and 16 bytes.
pub fn enable(cid: u16) -> Entry {
    Entry::new(0x7f, cid).put(4, &[0]).dword(11, 0x14).dword(12, 0x0046_0001)
}

/// An admin queue that is connected and ready. Its controller's number, too.
pub fn admin(subsystems: &mut Subsystems, wire: Wire, nqn: &str) -> (Driver, u16) {
    let mut driver = Driver::new(subsystems, Limits::default());
    let (entry, data) = connect(0, 0xffff, nqn, true);
    driver.feed(subsystems, &wire.hello());
    assert_eq!(driver.replies()[0].kind, pdu::IC_RESP);
    driver.feed(subsystems, &wire.command(entry, &data));
    let joined = driver.completion();
    assert_eq!(joined.status, 0, "{joined:?}");
    driver.feed(subsystems, &wire.command(enable(1), &[]));
    assert_eq!(driver.completion().status, 0);
    (driver, joined.result as u16)
}

/// An I/O queue of a controller.
pub fn io(
    subsystems: &mut Subsystems,
    wire: Wire,
    cntlid: u16,
    limits: Limits,
    flow_control: bool,
) -> Driver {
    let mut driver = Driver::new(subsystems, limits);
    let (entry, data) = connect(1, cntlid, NQN, flow_control);
    driver.feed(subsystems, &wire.hello());
    driver.feed(subsystems, &wire.command(entry, &data));
    let replies = driver.replies();
    assert_eq!(replies[1].completion().status, 0, "{replies:?}");
    driver
}

/// Delivers what sessions have for each other.
pub fn poke(subsystems: &mut Subsystems, drivers: &mut [&mut Driver]) {
    while let Some(queue) = subsystems.next_poked() {
        for driver in drivers.iter_mut().filter(|driver| driver.session.queue() == queue) {
            driver.session.poke(subsystems);
            driver.work(subsystems);
        }
    }
}
