//! Any bytes, in any pieces, to an NVMe/TCP session: no panic, no endless loop, nothing beyond its bounds.
//!
//! The first byte chooses how the rest is cut, what the connection is before it comes (nothing, an admin queue, an I/O
//! queue, a discovery controller's), whether hosts must prove who they are, and how commands end.
#![no_main]

use henge_core::{Duration, Fault, Instant, RequestId};
use henge_nvme::auth::Key;
use henge_nvme::reservation::{Ask, Change, Effect, Held, Notification, Registrant};
use henge_nvme::{
    Access, Action, Command, DISCOVERY, Limits, Namespace, Outcome, Reach, Segment, Service, Session, Status, Step,
    SubsystemId, Subsystems, Want,
};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

const HELD: u64 = 1 << 20;
const NQN: &str = "nqn.2026-11.example:d";
const SECRET: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let mut subsystems = Subsystems::at(1);
    let id = subsystems.add(NQN, Access::default(), namespace()).expect("the first");
    // A controller that is there already may do all; its other queues, and new hosts, are to prove who they are.
    let is_guarded = how & 0x0f == 0x0e;
    let mut admin = Host::new(&mut subsystems, how);
    let stage = how >> 6;
    if stage == 2 {
        admin.begin(&mut subsystems, 0, 0xffff, NQN);
    }
    if is_guarded {
        let key = Key::parse(SECRET).expect("well formed");
        let access = Access { key: Some(key.clone()), controller_key: Some(key), ..Access::default() };
        subsystems.set_access(id, access);
    }
    let mut host = Host::new(&mut subsystems, how);
    match stage {
        1 => host.begin(&mut subsystems, 0, 0xffff, NQN),
        2 => host.begin(&mut subsystems, 1, 1, NQN),
        3 => host.begin(&mut subsystems, 0, 0xffff, DISCOVERY),
        _ => {}
    }
    let step = usize::from(how & 0x0f) * 16 + 1;
    for (n, piece) in data.chunks(step).enumerate() {
        host.feed(&mut subsystems, piece);
        disturb(&mut subsystems, id, how, n);
        while let Some(queue) = subsystems.next_poked() {
            let poked = if queue == host.session.queue() { &mut host } else { &mut admin };
            poked.session.poke(&mut subsystems);
            poked.work(&mut subsystems);
        }
        host.session.tick(&mut subsystems, Instant::ZERO + Duration::from_secs(n as u64 / 8));
    }
    for host in [&mut host, &mut admin] {
        host.session.close(&mut subsystems);
        host.work(&mut subsystems);
        host.answer(&mut subsystems);
        host.work(&mut subsystems);
        assert!(host.session.is_over() && host.buffers.is_empty(), "everything is given back");
    }
});

/// Now and then the disk grows, cannot be reached, or goes.
fn disturb(subsystems: &mut Subsystems, id: SubsystemId, how: u8, n: usize) {
    if how & 0x0f != 0x0f {
        return;
    }
    match n % 16 {
        3 => subsystems.resize(id, (n as u64 + 16) << 19),
        5 => subsystems.set_reach(id, Reach::Inaccessible),
        6 => subsystems.set_reach(id, Reach::Detour),
        15 => subsystems.remove(id),
        _ => {}
    }
}

fn namespace() -> Namespace {
    Namespace {
        bytes: 8 << 20,
        block_shift: 9,
        preferred_shift: 12,
        read_only: false,
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

struct Host {
    session: Session,
    buffers: BTreeMap<RequestId, Vec<u8>>,
    held_back: Vec<Command>,
    /// Received and not yet taken.
    rest: Vec<u8>,
    how: u8,
}

impl Host {
    fn new(subsystems: &mut Subsystems, how: u8) -> Host {
        let limits = Limits { held: HELD, asked: 128 << 10, ..Limits::default() };
        let session = Session::new(subsystems, limits, ("::1".into(), "4420".into()), [how; 32], Instant::ZERO);
        Host { session, buffers: BTreeMap::new(), held_back: Vec::new(), rest: Vec::new(), how }
    }

    /// ICReq, Connect, and CC.EN for a controller.
    fn begin(&mut self, subsystems: &mut Subsystems, qid: u16, cntlid: u16, nqn: &str) {
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

    fn feed(&mut self, subsystems: &mut Subsystems, piece: &[u8]) {
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

    fn work(&mut self, subsystems: &mut Subsystems) {
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
                unsent += match segment {
                    Segment::Bytes(own) => own.len(),
                    Segment::Buffer(task, from, len) => self.buffers[&task][from..from + len].len(),
                };
            }
            if unsent == 0 {
                return;
            }
            self.session.advance(subsystems, unsent);
        }
    }

    fn answer(&mut self, subsystems: &mut Subsystems) {
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
}
