//! RAID-5: striping with rotating parity (left-symmetric, as Linux md does by default).
//!
//! Row r of n members holds n - 1 units of data and one of parity, at the same offset on each. Parity is on member
//! n - 1 - (r mod n); data unit k of the row is on the k-th member behind it.
//!
//! A write that covers whole rows writes data and parity. A smaller one has to read first, the cheaper of
//! - *read-modify-write*: the old data it replaces and the old parity; new parity = old parity ^ old data ^ new;
//! - *reconstruct*: what it does not replace; new parity = that ^ new data.
//!
//! So one small write costs two reads and two writes on two members: the small-write penalty. Two writes that touch
//! a row follow one another, or the second would compute parity from what the first is about to replace.
//!
//! Example: 4 members, unit 64 KiB. 4 KiB at offset 0: row 0, parity on member 3, data on member 0. Read 4 KiB of
//! each at 0, then write both.

use super::fan::{Fan, Part};
use henge_core::{Backend, Done, Fault, Instant, Model, Op, Request, RequestId};
use std::collections::VecDeque;
use std::ops::Range;

/// The layout, and what a request means for the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Layout {
    members: u64,
    unit: u64,
}

/// What comes first and what follows.
#[derive(Debug, Default)]
struct Plan {
    reads: Vec<Part>,
    writes: Vec<Part>,
}

impl Layout {
    /// Bytes of data in a row.
    fn row(&self) -> u64 {
        (self.members - 1) * self.unit
    }
    fn parity(&self, row: u64) -> usize {
        (self.members - 1 - row % self.members) as usize
    }
    /// The member of data unit `k` of `row`.
    fn data(&self, row: u64, k: u64) -> usize {
        ((self.parity(row) as u64 + 1 + k) % self.members) as usize
    }
    /// The rows that a range touches.
    fn rows(&self, offset: u64, len: u64) -> Range<u64> {
        if len == 0 { 0..0 } else { offset / self.row()..(offset + len - 1) / self.row() + 1 }
    }
    /// The piece of data unit `k` of `row` that lies in the range, counted from the unit's begin.
    fn covered(&self, row: u64, k: u64, offset: u64, len: u64) -> Range<u64> {
        let start = row * self.row() + k * self.unit;
        let within = |at: u64| at.saturating_sub(start).min(self.unit);
        within(offset)..within(offset + len)
    }

    fn read(&self, op: Op, offset: u64, len: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        for row in self.rows(offset, len) {
            for k in 0..self.members - 1 {
                let c = self.covered(row, k, offset, len);
                push(&mut parts, self.data(row, k), op, row * self.unit + c.start, c.end - c.start);
            }
        }
        parts
    }

    fn write(&self, op: Op, offset: u64, len: u64) -> Plan {
        let mut plan = Plan::default();
        let end = offset + len;
        let full = offset.div_ceil(self.row())..end / self.row();
        for row in self.rows(offset, len).filter(|r| !full.contains(r)) {
            self.write_part_of_row(&mut plan, op, row, offset, len);
        }
        if !full.is_empty() {
            // Whole rows are one run on each member, data and parity alike.
            let run = (full.end - full.start) * self.unit;
            for member in 0..self.members as usize {
                push(&mut plan.writes, member, op, full.start * self.unit, run);
            }
        }
        plan
    }

    fn write_part_of_row(&self, plan: &mut Plan, op: Op, row: u64, offset: u64, len: u64) {
        let at = row * self.unit;
        let new: Vec<Range<u64>> = (0..self.members - 1).map(|k| self.covered(row, k, offset, len)).collect();
        let touched = || new.iter().filter(|c| !c.is_empty());
        // Parity changes over the union of what changes in the units.
        let low = touched().map(|c| c.start).min().unwrap_or(0);
        let high = touched().map(|c| c.end).max().unwrap_or(0);
        let mut modify =
            vec![Part { member: self.parity(row), op: Op::Read, offset: at + low, len: high - low }];
        let mut reconstruct = Vec::new();
        for (k, c) in new.iter().enumerate() {
            let member = self.data(row, k as u64);
            if c.is_empty() {
                push(&mut reconstruct, member, Op::Read, at + low, high - low);
                continue;
            }
            push(&mut modify, member, Op::Read, at + c.start, c.end - c.start);
            push(&mut reconstruct, member, Op::Read, at + low, c.start.saturating_sub(low));
            push(&mut reconstruct, member, Op::Read, at + c.end, high.saturating_sub(c.end));
            push(&mut plan.writes, member, op, at + c.start, c.end - c.start);
        }
        plan.reads.extend(if modify.len() <= reconstruct.len() { modify } else { reconstruct });
        push(&mut plan.writes, self.parity(row), op, at + low, high - low);
    }
}

/// Adds a part, or lengthens the member's last one if it goes on there; nothing for an empty one.
fn push(parts: &mut Vec<Part>, member: usize, op: Op, offset: u64, len: u64) {
    if len == 0 {
        return;
    }
    let last = parts.iter_mut().rev().find(|p| p.member == member && p.op == op);
    match last {
        Some(last) if last.offset + last.len == offset => last.len += len,
        _ => parts.push(Part { member, op, offset, len }),
    }
}

/// Members with rotating parity, used as one device.
pub struct Raid5 {
    fan: Fan,
    layout: Layout,
    /// Rows that writes under way change.
    locked: Vec<(RequestId, Range<u64>)>,
    /// Writes that wait for them.
    waiting: VecDeque<Request>,
}

impl Raid5 {
    /// Three or more `members` of any kind; the smallest one's capacity counts for each. `unit` is above zero.
    pub fn new(members: Vec<Model>, unit: u64) -> Self {
        assert!(members.len() >= 3 && unit > 0, "parity needs two others, and a unit holds something");
        let layout = Layout { members: members.len() as u64, unit };
        Raid5 { fan: Fan::new(members), layout, locked: Vec::new(), waiting: VecDeque::new() }
    }

    fn is_locked(&self, rows: &Range<u64>) -> bool {
        self.locked.iter().any(|(_, l)| l.start < rows.end && rows.start < l.end)
    }

    /// Starts the waiting writes whose rows are free, oldest first; none overtakes one for the same rows.
    fn start_waiting(&mut self, now: Instant) {
        let mut held: Vec<Range<u64>> = Vec::new();
        let mut index = 0;
        while index < self.waiting.len() {
            let request = self.waiting[index];
            let rows = self.layout.rows(request.offset, request.len);
            let behind = held.iter().any(|h| h.start < rows.end && rows.start < h.end);
            if behind || self.is_locked(&rows) {
                held.push(rows);
                index += 1;
                continue;
            }
            self.waiting.remove(index);
            let plan = self.layout.write(request.op, request.offset, request.len);
            self.locked.push((request.id, rows));
            self.fan.start(&request, plan.reads.into_iter(), plan.writes, now);
        }
    }
}

impl Backend for Raid5 {
    type Payload = ();

    fn submit(&mut self, request: &Request, (): (), now: Instant) {
        let Request { op, offset, len, .. } = *request;
        if request.end() > self.capacity() {
            return self.fan.refuse(request, Fault::OutOfRange, now);
        }
        match op {
            Op::Flush => {
                let all = (0..self.fan.len()).map(|member| Part { member, op, offset: 0, len: 0 });
                self.fan.start(request, all, Vec::new(), now);
            }
            // Parity of trimmed units would have to be known as zero on the members; a trim is only a hint.
            Op::Trim => self.fan.start(request, std::iter::empty(), Vec::new(), now),
            Op::Read => {
                let parts = self.layout.read(op, offset, len);
                self.fan.start(request, parts.into_iter(), Vec::new(), now);
            }
            Op::Write | Op::WriteZeroes => {
                self.waiting.push_back(*request);
                self.start_waiting(now);
            }
        }
    }
    fn reap(&mut self, now: Instant) -> Option<Done<()>> {
        let done = self.fan.reap(now)?;
        if let Some(index) = self.locked.iter().position(|(id, _)| *id == done.id) {
            self.locked.swap_remove(index);
            self.start_waiting(now);
        }
        Some(done)
    }
    fn wake_at(&self) -> Option<Instant> {
        self.fan.wake_at()
    }
    fn capacity(&self) -> u64 {
        self.fan.smallest() / self.layout.unit * self.layout.row()
    }
    /// Whole rows where a row is larger than what the members take: parts of one are read before they are written.
    fn quantum(&self) -> u64 {
        let row = self.layout.row();
        (self.fan.quantum().saturating_mul(self.fan.len() as u64 - 1) / row).max(1).saturating_mul(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Members as bytes. `write` carries a plan out as a controller would, from what the plan reads alone.
    struct Bytes {
        layout: Layout,
        members: Vec<Vec<u8>>,
    }

    impl Bytes {
        fn new(layout: Layout, rows: u64) -> Self {
            Bytes { layout, members: vec![vec![0; (rows * layout.unit) as usize]; layout.members as usize] }
        }
        /// What the array's byte `x` is, by the layout of the head comment.
        fn at(&self, x: u64) -> (usize, usize) {
            let l = self.layout;
            let (row, within) = (x / l.row(), x % l.row());
            (l.data(row, within / l.unit), (row * l.unit + within % l.unit) as usize)
        }
        fn write(&mut self, offset: u64, new: &[u8]) {
            let l = self.layout;
            let plan = l.write(Op::Write, offset, new.len() as u64);
            let mut known: Vec<Vec<Option<u8>>> = self.members.iter().map(|m| vec![None; m.len()]).collect();
            for p in &plan.reads {
                let range = p.offset as usize..(p.offset + p.len) as usize;
                let old = self.members[p.member][range.clone()].iter().map(|b| Some(*b));
                known[p.member].splice(range, old);
            }
            let mut fresh: Vec<Vec<Option<u8>>> = self.members.iter().map(|m| vec![None; m.len()]).collect();
            for (x, byte) in (offset..).zip(new) {
                let (member, i) = self.at(x);
                fresh[member][i] = Some(*byte);
            }
            for p in &plan.writes {
                for i in p.offset as usize..(p.offset + p.len) as usize {
                    let parity = l.parity(i as u64 / l.unit);
                    self.members[p.member][i] = match fresh[p.member][i] {
                        Some(byte) => byte,
                        None => {
                            assert_eq!(
                                p.member, parity,
                                "only parity is written besides the request's own bytes"
                            );
                            parity_byte(parity, i, &known, &fresh)
                        }
                    };
                }
            }
        }
    }

    /// New parity from what was read and what is new: by reconstruction if all is known, else by modification.
    fn parity_byte(parity: usize, i: usize, known: &[Vec<Option<u8>>], fresh: &[Vec<Option<u8>>]) -> u8 {
        let data = (0..known.len()).filter(|m| *m != parity);
        let now: Option<Vec<u8>> = data.clone().map(|m| fresh[m][i].or(known[m][i])).collect();
        if let Some(all) = now {
            return all.iter().fold(0, |a, b| a ^ b);
        }
        let old = known[parity][i].expect("modification reads the old parity");
        data.filter_map(|m| fresh[m][i].map(|new| new ^ known[m][i].expect("and the old data")))
            .fold(old, |a, b| a ^ b)
    }

    proptest! {
        /// After any writes: each byte is where the layout says, and each row's parity fits its data.
        #[test]
        fn parity_is_consistent(members in 3u64..7, unit in 1u64..6, writes in prop::collection::vec((0u64..90, 1usize..60, any::<u8>()), 1..12)) {
            let layout = Layout { members, unit };
            let rows = 150u64.div_ceil(layout.row()) + 1;
            let mut array = Bytes::new(layout, rows);
            let mut expected = vec![0u8; (rows * layout.row()) as usize];
            for (offset, len, seed) in writes {
                let new: Vec<u8> = (0..len).map(|i| seed.wrapping_mul(31).wrapping_add(i as u8)).collect();
                expected[offset as usize..offset as usize + len].copy_from_slice(&new);
                array.write(offset, &new);
            }
            for (x, byte) in (0..).zip(&expected) {
                let (member, i) = array.at(x);
                prop_assert_eq!(array.members[member][i], *byte, "byte {}", x);
            }
            for i in 0..array.members[0].len() {
                let sum = array.members.iter().fold(0, |a, m| a ^ m[i]);
                prop_assert_eq!(sum, 0, "parity at {}", i);
            }
        }

        /// A read touches each byte once, where the layout says.
        #[test]
        fn reads_cover_the_range(members in 3u64..7, unit in 1u64..6, offset in 0u64..90, len in 0u64..60) {
            let layout = Layout { members, unit };
            let bytes = Bytes::new(layout, 200);
            let mut wanted: Vec<_> = (offset..offset + len).map(|x| bytes.at(x)).collect();
            let parts = layout.read(Op::Read, offset, len);
            let mut got: Vec<_> = parts.iter().flat_map(|p| (p.offset..p.offset + p.len).map(|i| (p.member, i as usize))).collect();
            wanted.sort_unstable();
            got.sort_unstable();
            prop_assert_eq!(wanted, got);
        }
    }

    #[test]
    fn the_small_write_penalty() {
        let layout = Layout { members: 4, unit: 65536 };
        let plan = layout.write(Op::Write, 0, 4096);
        let part = |member, op| Part { member, op, offset: 0, len: 4096 };
        assert_eq!(plan.reads, [part(3, Op::Read), part(0, Op::Read)]);
        assert_eq!(plan.writes, [part(0, Op::Write), part(3, Op::Write)]);
        // Whole rows read nothing and are one run on each member.
        let plan = layout.write(Op::Write, 0, 2 * 3 * 65536);
        assert!(plan.reads.is_empty());
        assert_eq!(plan.writes.len(), 4);
        // Two of three units: the third is read, not three others.
        assert_eq!(layout.write(Op::Write, 0, 2 * 65536).reads.len(), 1);
    }
}
