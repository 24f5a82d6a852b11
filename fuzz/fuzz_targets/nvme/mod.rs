//! A host and a disk that takes anything: what the targets of NVMe share.
#![allow(dead_code)]

use henge_core::{Fault, Instant, RequestId};
use henge_nvme::reservation::{Ask, Change, Effect, Held, Notification, Registrant};
use henge_nvme::wire::{Common, le32, pdu};
use henge_nvme::{
    Action, Command, Limits, Namespace, Outcome, Reach, Segment, Service, Session, Status, Step, SubsystemId,
    Subsystems, Want,
};
use std::collections::BTreeMap;

const HELD: u64 = 1 << 20;
/// Most bytes that are kept for the host to look at.
const SENT_MAX: usize = 4 << 20;
pub const NQN: &str = "nqn.2026-11.example:d";
pub const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

pub fn namespace() -> Namespace {
    Namespace {
        bytes: 8 << 20,
        block_shift: 9,
        preferred_shift: 12,
        read_only: false,
        reservable: true,
        serial: "s".into(),
        uuid: [1; 16],
        reach: Reach::Optimized,
        reach_changes: 0,
    }
}

/// Who asks has what it asks for, and whoever was there before is preempted.
fn adopt(subsystems: &mut Subsystems, id: SubsystemId, change: &Change) {
    let kind = match change.ask {
        Ask::Acquire(kind) | Ask::Preempt(kind) | Ask::PreemptAndAbort(kind) => Some(kind),
        _ => None,
    };
    let registrant = |host, holds| Registrant { host, key: change.other, holds };
    let all = vec![registrant(change.host, kind.is_some()), registrant([9; 16], false)];
    let effects = [0, 1, 9].map(|host| Effect {
        host: [host; 16],
        notification: Some(Notification::Released),
        aborts: change.ignores_key || matches!(change.ask, Ask::PreemptAndAbort(_)),
    });
    let held = Held::new(change.key as u32, kind, change.persists == Some(true), all);
    let epoch = subsystems.adopt(id, held, &effects);
    let _ = subsystems.is_quiet_before(id, epoch);
}

pub struct Host {
    pub session: Session,
    pub buffers: BTreeMap<RequestId, Vec<u8>>,
    held_back: Vec<Command>,
    /// Received and not yet taken.
    rest: Vec<u8>,
    /// What was sent to the host, which takes it from here.
    pub sent: Vec<u8>,
    how: u8,
}

impl Host {
    pub fn new(subsystems: &mut Subsystems, how: u8) -> Host {
        let limits = Limits { held: HELD, asked: 128 << 10, ..Limits::default() };
        let session = Session::new(subsystems, limits, ("::1".into(), "4420".into()), [how; 32], Instant::ZERO);
        Host { session, buffers: BTreeMap::new(), held_back: Vec::new(), rest: Vec::new(), sent: Vec::new(), how }
    }

    /// ICReq, Connect, and CC.EN for a controller.
    pub fn begin(&mut self, subsystems: &mut Subsystems, qid: u16, cntlid: u16, nqn: &str) {
        let mut bytes = vec![0; 128];
        (bytes[2], bytes[4]) = (128, 128);
        let mut data = vec![0; 1024];
        data[16..18].copy_from_slice(&cntlid.to_le_bytes());
        data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
        data[..16].fill(1);
        data[512] = b'h';
        let mut connect = vec![4, 0, 72, 72, 0x48, 4, 0, 0, 0x7f, 0x40, 0, 0, 1];
        connect.resize(72, 0);
        connect[40..44].copy_from_slice(&1024_u32.to_le_bytes());
        connect[47] = 1;
        connect[50..52].copy_from_slice(&qid.to_le_bytes());
        connect[52] = 15;
        bytes.extend(connect);
        bytes.extend(data);
        if qid == 0 {
            let mut enable = vec![4, 0, 72, 0, 72, 0, 0, 0, 0x7f, 0x40, 1, 0, 0];
            enable.resize(72, 0);
            (enable[47], enable[52]) = (0x5a, 0x14);
            enable[56..60].copy_from_slice(&0x0046_0001_u32.to_le_bytes());
            bytes.extend(enable);
        }
        self.feed(subsystems, &bytes);
        assert_eq!(self.session.want(), Want::Header);
    }

    pub fn feed(&mut self, subsystems: &mut Subsystems, piece: &[u8]) {
        let mut whole = std::mem::take(&mut self.rest);
        whole.extend_from_slice(piece);
        let mut input = &whole[..];
        loop {
            let taken = match self.session.want() {
                Want::Payload(p) => {
                    let n = input.len().min(p.len);
                    let buffer = self.buffers.entry(p.task).or_insert_with(|| vec![0; p.buffer]);
                    assert!(p.offset + p.len <= p.buffer && buffer.len() == p.buffer);
                    buffer[p.offset..p.offset + n].copy_from_slice(&input[..n]);
                    self.session.delivered(subsystems, &input[..n]);
                    n
                }
                _ => self.session.receive(subsystems, input),
            };
            input = &input[taken..];
            self.work(subsystems);
            if self.how & 0x10 == 0 {
                self.answer(subsystems);
            }
            let held: usize = self.buffers.values().map(Vec::len).sum();
            assert!(held as u64 <= HELD + (2 << 20), "one command may go beyond the budget, and capsules");
            assert!(self.buffers.len() <= 32);
            if taken == 0 {
                break;
            }
        }
        self.rest = input.to_vec();
        self.answer(subsystems);
    }

    pub fn work(&mut self, subsystems: &mut Subsystems) {
        loop {
            while let Some(step) = self.session.step() {
                match step {
                    Step::Execute(command) => {
                        if command.buffer > 0 {
                            let buffer = self.buffers.entry(command.task).or_default();
                            buffer.resize(command.buffer, 0);
                        }
                        self.held_back.push(command);
                    }
                    Step::Cancel(_) => {}
                    Step::Release(task) => drop(self.buffers.remove(&task)),
                    Step::Derive(task) => {
                        // Any number will do here; the real one takes too long.
                        assert!(self.session.derivation(task).is_some());
                        self.session.derived(subsystems, task, vec![self.how; 256]);
                    }
                }
            }
            let mut unsent = 0;
            for segment in self.session.segments() {
                let bytes = match segment {
                    Segment::Bytes(own) => own,
                    Segment::Buffer(task, from, len) => &self.buffers[&task][from..from + len],
                };
                unsent += bytes.len();
                if self.sent.len() < SENT_MAX {
                    self.sent.extend_from_slice(bytes);
                }
            }
            if unsent == 0 {
                return;
            }
            let buffers = &mut self.buffers;
            self.session.advance(subsystems, unsent, |task| drop(buffers.remove(&task)));
        }
    }

    pub fn answer(&mut self, subsystems: &mut Subsystems) {
        while let Some(command) = self.held_back.pop() {
            assert_eq!(command.buffer, command.action.buffer());
            let (offset, len) = match command.action {
                Action::Read { offset, len }
                | Action::Write { offset, len, .. }
                | Action::Check { offset, len }
                | Action::Compare { offset, len }
                | Action::CompareWrite { offset, len, .. }
                | Action::Zero { offset, len, .. }
                | Action::Trim { offset, len } => (offset, len),
                Action::Copy { from, to, len, .. } => (from.max(to), len),
                Action::Flush | Action::Report | Action::Reserve => (0, 512),
            };
            assert!(offset + len <= 64 << 20 && offset % 512 == 0 && len % 512 == 0 && len > 0);
            let service = Service::default();
            let outcome = match (&command.action, self.how & 0x20) {
                (Action::Report, _) => Outcome::Service(&service),
                (Action::Reserve, _) => {
                    let change = self.session.change(command.task).expect("it was asked for");
                    adopt(subsystems, command.subsystem, &change);
                    Outcome::Decided(Status::SUCCESS)
                }
                (_, 0x20) => Outcome::Failed(Fault::Io),
                (Action::Compare { .. } | Action::CompareWrite { .. }, _) => Outcome::Unequal,
                _ => Outcome::Done,
            };
            let none = Vec::new();
            let buffer = self.buffers.get(&command.task).unwrap_or(&none);
            self.session.complete(subsystems, command.task, outcome, buffer);
            self.work(subsystems);
        }
    }

    /// A command's capsule with its data in it, or at the host, which sends them when it is asked to.
    pub fn command(&mut self, subsystems: &mut Subsystems, mut entry: [u8; 64], data: &[u8], in_capsule: bool) {
        entry[1] = entry[1] & 3 | 0x40;
        entry[39] = if in_capsule { 1 } else { 0x5a };
        let inside = if in_capsule { data } else { &[] };
        let mut bytes = vec![4, 0, 72, if inside.is_empty() { 0 } else { 72 }];
        bytes.extend((72 + inside.len() as u32).to_le_bytes());
        bytes.extend(entry);
        bytes.extend_from_slice(inside);
        self.sent.clear();
        self.feed(subsystems, &bytes);
        let mut at = 0;
        while let Some(common) = Common::read(&self.sent[at..]) {
            let whole = self.sent[at..].to_vec();
            at += common.len as usize;
            if common.kind == pdu::R2T {
                let (from, len) = (le32(&whole, 12) as usize, le32(&whole, 16) as usize);
                let mut answer = vec![pdu::H2C_DATA, pdu::LAST, 24, 24];
                answer.extend((24 + len as u32).to_le_bytes());
                answer.extend_from_slice(&whole[8..20]);
                answer.extend([0; 4]);
                answer.extend(data.iter().copied().chain(std::iter::repeat(0)).skip(from).take(len));
                self.feed(subsystems, &answer);
            }
            if at >= self.sent.len() {
                break;
            }
        }
    }

    /// The connection ends, and nothing is left of it.
    pub fn end(&mut self, subsystems: &mut Subsystems) {
        self.session.close(subsystems);
        self.work(subsystems);
        self.answer(subsystems);
        self.work(subsystems);
        assert!(self.session.is_over() && self.buffers.is_empty(), "everything is given back");
    }
}
