//! Any bytes, in any pieces, to an iSCSI session: no panic, no endless loop, nothing beyond its bounds.
//!
//! The first byte chooses how the rest is cut, whether there was a login before, and how commands are answered.
#![no_main]

use henge_core::{Fault, Instant, RequestId};
use henge_iscsi::chap::{Access, Secret};
use henge_iscsi::scsi::{self, Action, Change, Extent, Group, Outcome, Reservations, Status, UnitProperties};
use henge_iscsi::wire::Header;
use henge_iscsi::{Limits, Offer, Segment, Session, Step, Targets, Want};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

const NOW: Instant = Instant::from_nanos(1);
const HELD: u64 = 1 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let mut targets = targets(how & 0x40 != 0);
    let limits = Limits { window: 8, immediate: 4, held: HELD, offer: Offer::default(), ..Limits::default() };
    let session = Session::new(&mut targets, limits, [7; 33], NOW);
    let mut host = Host { session, buffers: BTreeMap::new(), held_back: Vec::new(), rest: Vec::new(), how };
    if how & 0x80 != 0 {
        host.feed(&mut targets, &login());
    }
    let step = usize::from(how & 0x0f) * 16 + 1;
    for (n, piece) in data.chunks(step).enumerate() {
        host.feed(&mut targets, piece);
        // Now and then another node is not heard of, or has decided for another initiator.
        if let Some(target) = host.session.target().filter(|_| how & 0x0f == 0x0f) {
            targets.set_available(target, 1, n % 3 != 1);
            let mut cdb = [0; 16];
            (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, [6, 1, 5, 3][n % 4], if n % 4 == 0 { 0 } else { 5 }, 24);
            let mut list = vec![0; 24];
            (list[7], list[15]) = (1, 1);
            targets.reserve(target, 1, &Change { cdb, list, port: "other,i,0x000000000002,t,0x0002".into() });
        }
    }
    host.session.close(&mut targets);
    host.work(&mut targets);
    host.answer(&mut targets);
    host.work(&mut targets);
    assert!(host.session.is_over() && host.buffers.is_empty(), "everything is given back");
});

fn targets(secret: bool) -> Targets {
    let mut access = Access::default();
    if secret {
        access.users.push(Secret { name: "alice".into(), secret: b"secret".into() });
    }
    let mut targets = Targets::new();
    let target = targets.add_target("t", access).expect("the first");
    for (unit, thin) in [(0, true), (1, false)] {
        let disk = UnitProperties {
            bytes: 1 << 20,
            block_shift: 9,
            physical_shift: 12,
            thin,
            read_only: false,
            reservable: true,
            serial: "s".into(),
            id: 1,
        };
        targets.add_unit(target, unit, disk, Reservations::default());
    }
    // The second one has two ways to it.
    let group = |port| Group { port, access: scsi::Access::Optimized };
    targets.unit(target, 1).expect("just added").set_groups(vec![group(1), group(2)]);
    targets
}

/// Straight to the full feature phase.
fn login() -> Vec<u8> {
    let text = b"InitiatorName=i\0TargetName=t\0";
    let mut header = Header::reply(0x43);
    header.put(1, 0x87).put_u32(24, 1).put_data_len(text.len());
    let mut bytes = header.0.to_vec();
    bytes.extend_from_slice(text);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

struct Host {
    session: Session,
    buffers: BTreeMap<RequestId, Vec<u8>>,
    held_back: Vec<henge_iscsi::Command>,
    /// Received and not yet taken.
    rest: Vec<u8>,
    how: u8,
}

impl Host {
    fn feed(&mut self, targets: &mut Targets, piece: &[u8]) {
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
                    self.session.delivered(targets, &input[..n], NOW);
                    n
                }
                _ => self.session.receive(targets, input, NOW),
            };
            while self.session.is_trying() {
                self.session.go_on(targets, NOW);
            }
            input = &input[taken..];
            self.work(targets);
            if self.how & 0x10 == 0 {
                self.answer(targets);
            }
            let held: usize = self.buffers.values().map(Vec::len).sum();
            assert!(held as u64 <= HELD + (4 << 20), "one command may go beyond the budget, no more");
            assert!(self.buffers.len() <= 32);
            if taken == 0 {
                break;
            }
        }
        self.rest = input.to_vec();
        self.answer(targets);
        while let Some(nexus) = targets.next_poked() {
            assert_eq!(nexus, self.session.nexus());
            self.session.poke(targets);
        }
    }

    fn work(&mut self, targets: &mut Targets) {
        loop {
            while let Some(step) = self.session.step() {
                match step {
                    Step::Execute(command) => {
                        let buffer = self.buffers.entry(command.task).or_default();
                        buffer.resize(command.buffer, 0);
                        self.held_back.push(command);
                    }
                    Step::Cancel(_) => {}
                    Step::Release(task) => drop(self.buffers.remove(&task)),
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
            self.session.advance(targets, unsent);
        }
    }

    fn answer(&mut self, targets: &mut Targets) {
        while let Some(command) = self.held_back.pop() {
            let (offset, len) = match command.action {
                Action::Read { offset, len }
                | Action::Write { offset, len, .. }
                | Action::Check { offset, len }
                | Action::Compare { offset, len }
                | Action::CompareWrite { offset, len, .. }
                | Action::Or { offset, len, .. }
                | Action::Fill { offset, len, .. }
                | Action::Zero { offset, len, .. }
                | Action::Trim { offset, len }
                | Action::Extents { offset, len } => (offset, len),
                Action::Flush => (0, 512),
                Action::Reserve(ref change) => {
                    assert!(change.list.len() <= 4096 && command.buffer == 0);
                    let status = targets.reserve(command.target, command.unit, change);
                    self.buffers.remove(&command.task);
                    self.session.complete(targets, command.task, Outcome::Decided(status), &[]);
                    self.work(targets);
                    continue;
                }
                Action::Sweep(_) => {
                    assert!(command.unit == 1 && command.buffer == 0, "only that one is served elsewhere");
                    let status = if self.how & 0x40 == 0 { Status::Good } else { Status::Busy };
                    self.buffers.remove(&command.task);
                    self.session.complete(targets, command.task, Outcome::Decided(status), &[]);
                    self.work(targets);
                    continue;
                }
            };
            assert!(offset + len <= 1 << 20 && offset % 512 == 0 && len % 512 == 0 && len > 0);
            let outcome = match (&command.action, self.how & 0x20) {
                (_, 0x20) => Outcome::Failed(Fault::Io),
                (Action::Compare { .. } | Action::CompareWrite { .. }, _) => Outcome::Unequal(1),
                (Action::Extents { .. }, _) => Outcome::Extents(&[Extent { len: 1 << 20, allocated: false }]),
                _ => Outcome::Done,
            };
            self.session.complete(targets, command.task, outcome, &self.buffers[&command.task]);
            if command.buffer == 0 && self.buffers.get(&command.task).is_some_and(Vec::is_empty) {
                self.buffers.remove(&command.task);
            }
            self.work(targets);
        }
    }
}
