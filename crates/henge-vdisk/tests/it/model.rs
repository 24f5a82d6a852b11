//! Consistency and durability: random commands over several coordinators, faults, aborts, power cuts.
//!
//! The devices keep a log of what was written; a command's parts are carried out one by one in random order. Each
//! byte of the disk is judged as a register of its own:
//!
//! - A read may return a byte of write W only if W had begun before the read ended, and no write that succeeded lies
//!   wholly between W's end and the read's beginning. (Writes that failed may have left bytes, or not.)
//! - After a power cut, a byte may be that of write W unless a *durable* write lies wholly after W: one with FUA that
//!   was answered, or one that was answered before a FLUSH began that was answered well.
//!
//! A lost update (two read-modify-writes of one block), a FLUSH that leaves a device out, a join that answers
//! too early, or a part in the wrong place all break one of the two.

use henge_core::{Fault, FlowId, Instant, Op};
use henge_vdisk::{
    Array, Command, Data, Extent, Failure, GateId, Kind, Layout, Part, PartId, Settings, Target, VirtualDisk,
    striped_below,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const CAPACITY: u64 = 512;
const ALIGN: u64 = 8;

/// A write to one byte, as the world saw it.
#[derive(Clone, Copy, Debug)]
struct Written {
    value: u8,
    begun: u64,
    /// When it was answered; `u64::MAX` while it is not.
    answered: u64,
    /// Answered well: its bytes are there.
    sure: bool,
    /// Whether it survives a power cut, from when on.
    durable: bool,
}

/// A device with a volatile cache: a log of writes, in the order they were carried out.
#[derive(Default)]
struct Device {
    log: Vec<(u64, Vec<u8>, bool)>,
}

impl Device {
    fn read(&self, offset: u64, into: &mut [u8]) {
        for (at, bytes, _) in &self.log {
            for (i, byte) in bytes.iter().enumerate() {
                if let Some(target) =
                    (at + i as u64).checked_sub(offset).and_then(|p| into.get_mut(p as usize))
                {
                    *target = *byte;
                }
            }
        }
    }
    /// Forgets what is not durable, as `keep` decides.
    fn cut_power(&mut self, mut keep: impl FnMut() -> bool) {
        self.log.retain(|(_, _, durable)| *durable || keep());
        self.log.iter_mut().for_each(|(_, _, durable)| *durable = true);
    }
}

/// A command in flight at a coordinator.
struct Flying {
    command: Command,
    begun: u64,
    buffer: Vec<u8>,
    lead: usize,
    /// Index into the history of each byte it writes.
    history: Vec<(u64, usize)>,
}

struct World {
    coordinators: Vec<VirtualDisk>,
    devices: BTreeMap<GateId, Device>,
    /// Parts handed out and not done; for a FLUSH, how long the log was then.
    parts: Vec<(usize, Part, usize)>,
    flying: BTreeMap<(usize, henge_core::RequestId), Flying>,
    history: Vec<Vec<Written>>,
    now: u64,
    next_value: u8,
    reads_judged: usize,
    random: u64,
}

impl World {
    fn new(layout: Layout, settings: Settings, coordinators: usize, random: u64) -> World {
        let disk = || VirtualDisk::new(FlowId(0), layout.clone(), settings).unwrap();
        let first = Written { value: 0, begun: 0, answered: 0, sure: true, durable: true };
        World {
            coordinators: (0..coordinators).map(|_| disk()).collect(),
            devices: layout.gates().iter().map(|g| (*g, Device::default())).collect(),
            parts: vec![],
            flying: BTreeMap::new(),
            history: vec![vec![first]; CAPACITY as usize],
            now: 0,
            next_value: 0,
            reads_judged: 0,
            random: random | 1,
        }
    }
    /// xorshift: the test's own source, so that the steps stay few and shrink well.
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn submit(&mut self, at: usize, kind: Kind, offset: u64, len: u64, fua: bool) {
        let begun = self.tick();
        self.next_value = self.next_value % 250 + 1;
        let zero = matches!(kind, Kind::WriteZeroes { .. } | Kind::Trim);
        let value = if zero { 0 } else { self.next_value };
        let disk = &mut self.coordinators[at];
        let frame = disk.frame(kind, offset, len);
        let mut buffer = vec![if frame.zeroed { 0 } else { 0xff }; frame.len as usize];
        let lead = frame.lead as usize;
        if matches!(kind, Kind::Write | Kind::CompareAndWrite) {
            buffer[lead..lead + len as usize].fill(value);
        }
        if let Some(verify) = frame.verify {
            // What one byte's last sure write left, for all: equal now and then.
            let expected = self.history.get(offset as usize).map_or(0, |h| h.last().map_or(0, |w| w.value));
            buffer[verify as usize..].fill(expected);
        }
        let command = Command { fua, ..Command::new(kind, offset, len, Instant::ZERO, begun) };
        let id = disk.submit(command).unwrap();
        let mut history = vec![];
        if kind.writes() && offset + len <= CAPACITY {
            for byte in offset..offset + len {
                let bytes = &mut self.history[byte as usize];
                history.push((byte, bytes.len()));
                bytes.push(Written { value, begun, answered: u64::MAX, sure: false, durable: false });
            }
        }
        self.flying.insert((at, id), Flying { command, begun, buffer, lead, history });
        self.answers(at);
    }

    /// Hands out up to `most` parts of a coordinator.
    fn hand_out(&mut self, at: usize, most: usize) {
        for _ in 0..most {
            let Some(part) = self.coordinators[at].next_part(&mut ()) else { return };
            let log = self.devices[&part.gate].log.len();
            self.parts.push((at, part, log));
        }
    }

    /// Carries one outstanding part out, or fails it.
    fn carry_out(&mut self, pick: usize, fault: bool) {
        if self.parts.is_empty() {
            return;
        }
        let (at, part, log) = self.parts.swap_remove(pick % self.parts.len());
        self.tick();
        // A write that fails may have been carried out, or not.
        let done = !fault || self.random(2) == 0;
        let outcome = if done { self.on_device(at, &part, log) } else { Ok(()) };
        let outcome = if fault { Err(Failure::Fault(Fault::Io)) } else { outcome };
        self.part_done(at, part.id, outcome);
    }

    fn part_done(&mut self, at: usize, id: PartId, outcome: Result<(), Failure>) {
        self.coordinators[at].part_done(id, outcome);
        self.answers(at);
    }

    fn on_device(&mut self, at: usize, part: &Part, log: usize) -> Result<(), Failure> {
        let device = self.devices.get_mut(&part.gate).unwrap();
        let flying = self.flying.get_mut(&(at, part.id.command)).unwrap();
        let (offset, len) = (part.request.offset, part.request.len as usize);
        if len == 0 && part.request.op != Op::Flush {
            return Ok(()); // a turn at the gate, which no device sees
        }
        assert_eq!((offset % ALIGN, len as u64 % ALIGN), (0, 0), "devices take whole blocks");
        match (part.request.op, part.data) {
            (Op::Read, Data::Frame { at }) => {
                device.read(offset, zeroed(&mut flying.buffer[at as usize..at as usize + len]));
            }
            (Op::Read, Data::Scratch(patch)) => {
                let mut scratch = vec![0; len];
                device.read(offset, &mut scratch);
                return patch.apply(&scratch, &mut flying.buffer);
            }
            (Op::Write, Data::Frame { at }) => {
                let bytes = flying.buffer[at as usize..at as usize + len].to_vec();
                device.log.push((offset, bytes, part.request.fua));
            }
            (Op::Trim | Op::WriteZeroes, Data::None) => {
                device.log.push((offset, vec![0; len], part.request.fua));
            }
            // As little as a device may do: what was carried out before the FLUSH was handed out.
            (Op::Flush, Data::None) => device.log[..log].iter_mut().for_each(|entry| entry.2 = true),
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    /// Takes the answers of a coordinator.
    fn answers(&mut self, at: usize) {
        while let Some(done) = self.coordinators[at].next_finished() {
            let flying = self.flying.remove(&(at, done.id)).unwrap();
            assert_eq!(done.command, flying.command);
            let now = self.tick();
            let well = done.outcome.is_ok();
            // Bytes that TRIM rounds away stay as they are.
            let trim = done.command.kind == Kind::Trim;
            for (byte, index) in flying.history {
                let written = &mut self.history[byte as usize][index];
                (written.answered, written.sure) = (now, well && !trim);
                written.durable = written.sure && done.command.fua;
            }
            match done.command.kind {
                Kind::Read if well => {
                    self.judge_read(&flying.command, &flying.buffer[flying.lead..], flying.begun)
                }
                Kind::Flush if well => {
                    for written in self.history.iter_mut().flatten() {
                        written.durable |= written.sure && written.answered < flying.begun;
                    }
                }
                _ => {}
            }
        }
    }

    fn judge_read(&mut self, command: &Command, bytes: &[u8], begun: u64) {
        for (i, got) in bytes[..command.len as usize].iter().enumerate() {
            let history = &self.history[command.offset as usize + i];
            let allowed = history.iter().any(|w| {
                let overwritten = |o: &Written| o.sure && o.begun > w.answered && o.answered < begun;
                w.value == *got && !history.iter().any(overwritten)
            });
            assert!(
                allowed,
                "byte {} reads {got}: {history:?}, read begun {begun}",
                command.offset as usize + i
            );
            self.reads_judged += 1;
        }
    }

    /// Everything in flight is lost with the node; what remains on the devices must be allowed.
    fn power_cut(&mut self) {
        let gates: Vec<_> = self.devices.keys().copied().collect();
        for gate in gates {
            let mut dice: Vec<bool> =
                (0..self.devices[&gate].log.len()).map(|_| self.random(3) == 0).collect();
            let device = self.devices.get_mut(&gate).unwrap();
            device.cut_power(|| dice.pop().unwrap_or(false));
        }
        let layout = self.coordinators[0].layout().clone();
        let settings = *self.coordinators[0].settings();
        self.parts.clear();
        self.flying.clear();
        for disk in &mut self.coordinators {
            *disk = VirtualDisk::new(FlowId(0), layout.clone(), settings).unwrap();
        }
        let now = self.tick();
        for byte in 0..CAPACITY {
            let spot = layout.locate(byte);
            let mut got = [0];
            self.devices[&spot.gate].read(spot.offset, &mut got);
            let history = &mut self.history[byte as usize];
            let allowed = history
                .iter()
                .any(|w| w.value == got[0] && !history.iter().any(|o| o.durable && o.begun > w.answered));
            assert!(allowed, "after a power cut byte {byte} is {}: {history:?}", got[0]);
            // From here on that is what is written there.
            *history = vec![Written { value: got[0], begun: 0, answered: now, sure: true, durable: true }];
        }
    }

    /// Lets everything finish, and reads all of it.
    fn settle(&mut self) {
        for at in 0..self.coordinators.len() {
            self.submit(at, Kind::Read, 0, CAPACITY, false);
        }
        while !self.flying.is_empty() {
            for at in 0..self.coordinators.len() {
                self.hand_out(at, usize::MAX);
            }
            assert!(!self.parts.is_empty(), "commands wait for nothing");
            self.carry_out(0, false);
        }
        assert!(self.coordinators.iter().all(|disk| disk.pending() == 0));
    }
}

fn zeroed(bytes: &mut [u8]) -> &mut [u8] {
    bytes.fill(0);
    bytes
}

/// One to three extents on gates or arrays, in units of blocks.
fn layouts() -> impl Strategy<Value = Layout> {
    (1u64..5, proptest::collection::vec((1u32..4, 1u64..4, 0u64..5), 1..4)).prop_map(|(unit, shapes)| {
        let mut gate = 0;
        let members = shapes.len() as u64;
        let extent = |(i, (spindles, array_unit, base)): (usize, (u32, u64, u64))| {
            let gates: Vec<_> = (gate..gate + spindles).map(GateId).collect();
            gate += spindles;
            let target = match spindles {
                1 => Target::Gate(gates[0]),
                _ => Target::Array(Arc::new(Array { unit: array_unit * ALIGN, spindles: gates })),
            };
            let len = striped_below(CAPACITY, i as u64, members, unit * ALIGN);
            Extent { target, base: base * ALIGN, len }
        };
        let extents = shapes.into_iter().enumerate().map(extent).collect();
        Layout::new(CAPACITY, unit * ALIGN, extents).unwrap()
    })
}

#[derive(Clone, Debug)]
enum Step {
    Submit { at: usize, kind: u8, offset: u64, len: u64, fua: bool },
    HandOut { at: usize, most: usize },
    CarryOut { pick: usize, fault: bool },
    Abort { at: usize, pick: usize },
    PowerCut,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few extents, so that commands meet.
    let submit = (0usize..3, 0u8..12, 0u64..CAPACITY, 1u64..80, any::<bool>())
        .prop_map(|(at, kind, offset, len, fua)| Step::Submit { at, kind, offset: offset % 48, len, fua });
    let anywhere = (0usize..3, 0u8..12, 0u64..CAPACITY + 20, 0u64..CAPACITY, any::<bool>())
        .prop_map(|(at, kind, offset, len, fua)| Step::Submit { at, kind, offset, len, fua });
    let step = prop_oneof![
        6 => submit,
        2 => anywhere,
        12 => (0usize..3, 1usize..6).prop_map(|(at, most)| Step::HandOut { at, most }),
        24 => (any::<usize>(), 0u8..40).prop_map(|(pick, f)| Step::CarryOut { pick, fault: f == 0 }),
        1 => (0usize..3, any::<usize>()).prop_map(|(at, pick)| Step::Abort { at, pick }),
        1 => Just(Step::PowerCut),
    ];
    proptest::collection::vec(step, 1..250)
}

fn kind(n: u8) -> Kind {
    match n {
        0..=2 => Kind::Read,
        3..=6 => Kind::Write,
        7 => Kind::Flush,
        8 => Kind::Trim,
        9 => Kind::WriteZeroes { no_hole: true },
        10 => Kind::WriteZeroes { no_hole: false },
        _ => Kind::CompareAndWrite,
    }
}

/// `coordinators` > 1: whole blocks only, and no COMPARE AND WRITE, whose locks are one coordinator's.
fn run(layout: Layout, settings: Settings, coordinators: usize, seed: u64, steps: &[Step]) -> usize {
    let mut world = World::new(layout, settings, coordinators, seed);
    for step in steps {
        match *step {
            Step::Submit { at, kind: n, mut offset, mut len, fua } => {
                let mut kind = kind(n);
                // Whole blocks meet parts of blocks, too.
                if coordinators > 1 || (offset + len).is_multiple_of(2) {
                    offset -= offset % ALIGN;
                    len -= len % ALIGN;
                    if coordinators > 1 && kind == Kind::CompareAndWrite {
                        kind = Kind::Write;
                    }
                }
                world.submit(at % coordinators, kind, offset, len, fua);
            }
            Step::HandOut { at, most } => world.hand_out(at % coordinators, most),
            Step::CarryOut { pick, fault } => world.carry_out(pick, fault),
            Step::Abort { at, pick } => {
                let at = at % coordinators;
                let ids: Vec<_> = world.flying.keys().filter(|(a, _)| *a == at).map(|(_, id)| *id).collect();
                if let Some(id) = ids.get(pick % ids.len().max(1)) {
                    assert!(world.coordinators[at].abort(*id));
                    world.answers(at);
                }
            }
            Step::PowerCut => world.power_cut(),
        }
    }
    world.settle();
    world.power_cut();
    world.reads_judged
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn one_coordinator_any_bytes(layout in layouts(), quantum in 1u64..20, holes in any::<bool>(), seed in any::<u64>(), steps in steps()) {
        let settings = Settings { align: ALIGN, quantum: quantum * ALIGN, span: 3 * quantum * ALIGN, holes, command_bytes: 64, ..Settings::default() };
        prop_assert!(run(layout, settings, 1, seed, &steps) >= CAPACITY as usize);
    }

    #[test]
    fn three_coordinators_whole_blocks(layout in layouts(), quantum in 1u64..20, holes in any::<bool>(), seed in any::<u64>(), steps in steps()) {
        let settings = Settings { align: ALIGN, quantum: quantum * ALIGN, span: 3 * quantum * ALIGN, holes, command_bytes: 64, ..Settings::default() };
        prop_assert!(run(layout, settings, 3, seed, &steps) >= CAPACITY as usize);
    }
}
