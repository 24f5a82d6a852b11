//! Device time, learned: what a request keeps the device from, in ns, by its kind and length.
//!
//! **Problem.** Bytes and commands say little about a device: a trim moves nothing and may cost more than a read, a small request costs more
//! than its bytes, a write ten reads. Time between completions is no measure of one request either: where many are under way, who completes
//! right after another seems to cost nothing. And what is learned from tenants must not be what a tenant wants to be learned.
//!
//! **Rule.** For each kind k of request a fixed part and one per byte (the form of Linux's iocost; Gimbal's write cost is their ratio between kinds),
//!
//! ```text
//!   cost(p) = clamp( f_k + b_k · len, floor, ceiling )
//! ```
//!
//! Two things are known of a window of 64 completions. The *sum*: y, the time that the device was busy, against what the model says of the window, p.
//! And o, how long a request of that kind and length takes that waits for no other at the device (the fifth that is served fastest): it had a slot of the
//! device for so long, which tells kinds and lengths from each other where the mixture never changes. Each coefficient moves by what it contributed,
//!
//! ```text
//!   θ ← θ · (1 + 1/4 · share(θ) · (y/p − 1)) · (1 + 1/8 · (R(θ) − 1))        all ratios between 1/4 and 4
//!   R(θ) = mean of o/cost over the requests, weighted by θ's part of their costs, over the same of all coefficients
//! ```
//!
//! the multiplicative update of Richardson and Lucy, a step for each window: coefficients stay above zero, and what has no part in a window does
//! not move. Costs rise at a quarter of that pace: a device that had too little under way seems slow.
//! It is made of windows during which something always waited at the gate: only then the device did what it could.
//!
//! **Example.** f = 50 us for reads, all alike, and 64 of them kept a device busy for 1.6 ms: p = 3.2 ms, y/p = 1/2, so f becomes 50 · (1 − 1/8) = 43.8
//! us, and 25 us (to 1 %) after 30 such windows. Which it is, 32 at once and 800 us each or one at a time, does not matter: 25 us is what others lose.
//!
//! **Guarantee.** A cost is never outside floor and ceiling. A tenant moves the coefficients of the kinds that it uses alone, by a quarter of what
//! a window is wrong by, and only while others wait; what it taught is unlearned at the same pace. Equal completions give equal costs.
//! Where the mixture never changes the sum is learned, and its division is as it was in the beginning.
//!
//! **Price.** A multiplication for an estimate, two divisions for a completion, thirty for a window. No allocation.
//!
//! **Where we depart.** iocost's coefficients are measured once, by saturating the device with each kind; here `henge profile` or a guess is
//! the beginning, and serving teaches. Charges are estimates, and are not corrected request by request: the time of one cannot be known.
//!
//! **Where it falls short.** Where requests always wait for each other within the device, and their mixture never changes, o counts that wait: beside
//! 16 KiB reads of 140 us, trims of 2 ms at equal weights took 0.89 of the device's time instead of half. Beside 1 MiB reads on
//! `sata-ssd`, both with 32 outstanding, 4 KiB reads had 4,433/s, and 27,989/s where bytes are charged. So `sfq` charges bytes; `mclock`, which would
//! count requests, time.

use super::Learned;
use henge_core::{Cost, CostModel, CostUnit, Duration, Op, ParamError, Params, Request, Seen};

/// Kinds that are told from each other.
pub const KINDS: [&str; 6] = ["read", "write", "trim", "zeroes", "flush", "durable"];
const WRITE: usize = 1;
/// Whatever changes something, and is to be durable: its sync is what it costs, and those who write without one do not pay for it.
const DURABLE: usize = 5;

/// Completions of a window.
const WINDOW: u32 = 64;
/// Fractional bits of coefficients (ns, and ns per KiB).
const BITS: u32 = 16;
/// Error and drift are means over about this number of windows, as a power of two.
const ERROR_BITS: u32 = 4;

/// The coefficients of a kind, and what it did in this window.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    /// ns · 2¹⁶
    fixed: u64,
    /// ns per KiB · 2¹⁶
    per_kib: u64,
    count: u64,
    /// Of its requests in this window, for each coefficient: what it said, and that times o/cost, in ns.
    fixed_part: Part,
    moved_part: Part,
    /// By its lengths: how long one takes that waits for none.
    alone: [Alone; CLASSES],
    /// How often it had a part in a window.
    windows: u64,
    /// What it was in the beginning, or after it was learned.
    reference: Option<(u64, u64)>,
}

/// What a coefficient says of a window, and what occupancy makes of it.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    said: u64,
    occupied: u64,
}

impl Part {
    fn add(&mut self, said: u64, ratio: u64) {
        self.said += said;
        self.occupied = self.occupied.saturating_add(said.saturating_mul(ratio) >> RATIO_BITS);
    }
}

/// Classes of length, of a factor of four each.
const CLASSES: usize = 16;

/// The fifth of a kind that was served fastest lasted no longer: a quantile, followed step by step.
#[derive(Clone, Copy, Debug, Default)]
struct Alone(u64);

impl Alone {
    fn see(&mut self, service: u64) -> u64 {
        let service = service.clamp(1, 1 << 40);
        self.0 = match self.0 {
            0 => service,
            old if service < old => (old - (old >> 5)).max(service),
            old => (old + (old >> 7).max(1)).min(service),
        };
        self.0
    }
}

/// Fractional bits of o/cost.
const RATIO_BITS: u32 = 10;

/// The same with a beginning and bounds; see the head of this file.
#[derive(Clone, Debug)]
pub struct DeviceTime {
    floor: u64,
    ceiling: u64,
    kinds: [Kind; KINDS.len()],
    completions: u32,
    waited: u32,
    busy: u64,
    /// Mean |y − p| / p in millionths.
    error: u64,
}

/// Windows after which a kind counts as learned.
const LEARNED: u64 = 64;
/// Lengths beyond teach nothing more.
const LONG: u64 = 1 << 30;
/// Where nothing is known: ns, and ns per KiB (1 GB/s).
const GUESS: (u64, u64) = (50_000, 1_000);

impl DeviceTime {
    /// Costs between `floor` and `ceiling`.
    pub fn new(floor: Duration, ceiling: Duration) -> Self {
        let mut model = DeviceTime {
            floor: floor.as_nanos().max(1),
            ceiling: ceiling.as_nanos().max(1),
            kinds: [Kind::default(); KINDS.len()],
            completions: 0,
            waited: 0,
            busy: 0,
            error: 1_000_000,
        };
        for kind in 0..KINDS.len() {
            let per_kib = if kind <= WRITE || kind == DURABLE { GUESS.1 } else { 0 };
            model.set(kind, GUESS.0, per_kib);
        }
        model
    }

    /// Begins with these: ns, and ns per KiB.
    pub fn set(&mut self, kind: usize, fixed: u64, per_kib: u64) {
        let state = &mut self.kinds[kind];
        (state.fixed, state.per_kib) = (fixed << BITS, per_kib << BITS);
    }

    /// The same of a measured kind, which is then what drift is held against.
    pub fn seed(&mut self, kind: usize, fixed: u64, per_kib: u64) {
        self.set(kind, fixed, per_kib);
        self.kinds[kind].reference = Some((fixed << BITS, per_kib << BITS));
    }

    fn kind(request: &Request) -> usize {
        match request.op {
            Op::Read => 0,
            Op::Write | Op::Trim | Op::WriteZeroes if request.fua => DURABLE,
            Op::Write => WRITE,
            Op::Trim => 2,
            Op::WriteZeroes => 3,
            Op::Flush => 4,
        }
    }

    /// A window is over.
    #[inline(never)]
    fn close(&mut self) {
        let always = self.waited * 8 >= self.completions * 7;
        let parts = self.kinds.iter().flat_map(|k| [k.fixed_part, k.moved_part]);
        let (said, occupied) =
            parts.fold((0, 0), |(a, b), p| (a + u128::from(p.said), b + u128::from(p.occupied)));
        if always && said > 0 && self.busy > 0 {
            let off = Off::of(u128::from(self.busy), said);
            self.error = self.error - (self.error >> ERROR_BITS) + (off.millionths() >> ERROR_BITS);
            // A device that had too little under way seems slow: it is believed more slowly than one that is fast.
            let off = if off.0 > 0 { Off(off.0 >> 2) } else { off };
            for kind in self.kinds.iter_mut().filter(|kind| kind.count > 0) {
                kind.fixed = off.step(kind.fixed, kind.fixed_part, said, occupied);
                kind.per_kib = off.step(kind.per_kib, kind.moved_part, said, occupied);
                kind.bound(self.floor, self.ceiling);
                kind.windows += 1;
                if kind.windows == LEARNED {
                    kind.reference.get_or_insert((kind.fixed, kind.per_kib));
                }
            }
        }
        (self.completions, self.waited, self.busy) = (0, 0, 0);
        for kind in &mut self.kinds {
            (kind.count, kind.fixed_part, kind.moved_part) = (0, Part::default(), Part::default());
        }
    }
}

/// By how much a sum is wrong: its ratio to the truth less one, with 16 fractional bits.
#[derive(Clone, Copy)]
struct Off(i128);

impl Off {
    fn of(truth: u128, said: u128) -> Off {
        Off(((truth << 16) / said.max(1)).clamp(1 << 14, 1 << 18) as i128 - (1 << 16))
    }
    fn millionths(self) -> u64 {
        ((self.0.unsigned_abs() * 1_000_000) >> 16) as u64
    }
    /// A coefficient after its step.
    fn step(self, theta: u64, part: Part, said: u128, occupied: u128) -> u64 {
        if part.said == 0 {
            return theta;
        }
        let share = (u128::from(part.said) << 16) / said;
        let sum = (1 << 16) + ((self.0 * share as i128) >> 18);
        // (occupied / said of its own) / (occupied / said of all)
        let own = Off::of(u128::from(part.occupied) * said, u128::from(part.said) * occupied.max(1));
        let split = (1 << 16) + (own.0 >> 3);
        let new = (((i128::from(theta) * sum) >> 16) * split) >> 16;
        new.clamp(0, i128::from(u64::MAX >> 8)) as u64
    }
}

impl Kind {
    /// A coefficient that is far out takes as long to come back: neither leaves what the costs may be.
    fn bound(&mut self, floor: u64, ceiling: u64) {
        let least = if self.fixed == 0 && self.per_kib > 0 { 0 } else { (floor << BITS) >> 4 };
        self.fixed = self.fixed.clamp(least, ceiling << BITS);
        self.per_kib = self.per_kib.min(ceiling << BITS);
        // What has become zero would stay so.
        if self.per_kib > 0 {
            self.per_kib = self.per_kib.max(1 << (BITS - 4));
        }
    }

    fn cost(&self, (fixed, per_kib): (u64, u64), len: u64) -> u64 {
        let cost = u128::from(fixed) + ((u128::from(per_kib) * u128::from(len)) >> 10);
        u64::try_from(cost >> BITS).unwrap_or(u64::MAX)
    }
}

impl CostModel for DeviceTime {
    fn unit(&self) -> CostUnit {
        CostUnit::DiskTime
    }
    fn estimate(&mut self, request: &Request) -> Cost {
        let kind = &self.kinds[Self::kind(request)];
        let cost = kind.cost((kind.fixed, kind.per_kib), request.len);
        Cost::new(cost.clamp(self.floor, self.ceiling))
    }
    fn seen(&mut self, request: &Request, seen: Seen) {
        if seen.failed {
            return;
        }
        let kind = &mut self.kinds[Self::kind(request)];
        let len = request.len.min(LONG);
        let (fixed, moved) =
            (kind.fixed >> BITS, ((kind.per_kib >> (BITS / 2)) * (len >> 5)) >> (5 + BITS / 2));
        let class = (64 - len.leading_zeros()) as usize / 2;
        let slot = kind.alone[class.min(CLASSES - 1)].see(seen.service.as_nanos());
        let ratio = (slot << RATIO_BITS) / (fixed + moved).max(1);
        kind.count += 1;
        kind.fixed_part.add(fixed, ratio);
        kind.moved_part.add(moved, ratio);
        self.busy += seen.disk_time.as_nanos();
        self.waited += u32::from(seen.waits);
        self.completions += 1;
        if self.completions == WINDOW {
            self.close();
        }
    }
    fn learned(&self, into: &mut Vec<Learned>) {
        for (kind, name) in self.kinds.iter().zip(KINDS).filter(|(kind, _)| kind.windows > 0) {
            let now = kind.cost((kind.fixed, kind.per_kib), 64 << 10).max(1);
            let then = kind.reference.map(|reference| kind.cost(reference, 64 << 10).max(1));
            into.push(Learned {
                kind: name,
                fixed: Duration::from_nanos(kind.fixed >> BITS),
                per_mib: Duration::from_nanos(kind.per_kib.saturating_mul(1024) >> BITS),
                windows: kind.windows,
                error: self.error.min(1_000_000) as u32,
                drift: then.map(|then| (u128::from(now) * 1000 / u128::from(then)) as u64),
            });
        }
    }
}

/// `time = { floor = "1us", ceiling = "1s", read = "80us", read_mib = "400us", … }`
pub(super) fn build(params: &mut Params) -> Result<Box<dyn CostModel>, ParamError> {
    let floor = params.duration("floor")?.unwrap_or(Duration::from_nanos(500));
    let ceiling = params.duration("ceiling")?.unwrap_or(Duration::from_secs(1));
    if ceiling < floor || floor == Duration::ZERO {
        return Err(
            params.error("ceiling", format!("costs are from above 0s, {floor}, to no less, {ceiling}"))
        );
    }
    let mut model = DeviceTime::new(floor, ceiling);
    for (kind, name) in KINDS.iter().enumerate() {
        let fixed = params.duration(name)?;
        let per_mib = params.duration(&format!("{name}_mib"))?;
        if fixed.is_some() || per_mib.is_some() {
            let ns = |d: Option<Duration>| d.map_or(0, |d| d.as_nanos().min(1 << 40));
            model.seed(kind, ns(fixed), ns(per_mib) >> 10);
            if kind == WRITE {
                // A durable one is no cheaper, and what it is beyond that is learned.
                model.set(DURABLE, ns(fixed), ns(per_mib) >> 10);
            }
        }
    }
    Ok(Box::new(model))
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_core::{FlowId, Instant, RequestId};
    use proptest::prelude::*;

    fn request(op: Op, len: u64) -> Request {
        Request::new(RequestId::default(), FlowId(0), op, 0, len, Instant::ZERO)
    }
    fn model() -> DeviceTime {
        DeviceTime::new(Duration::from_nanos(500), Duration::from_secs(1))
    }
    fn seen(ns: u64, waits: bool) -> Seen {
        let disk_time = Duration::from_nanos(ns);
        Seen { disk_time, service: disk_time, in_flight: 0, waits, failed: false }
    }
    fn micros(model: &mut DeviceTime, op: Op, len: u64) -> f64 {
        model.estimate(&request(op, len)).get() as f64 / 1000.0
    }

    /// Beside a tenant whose writes are durable, and cost a hundred times as much, another's plain writes stay as cheap as they are.
    #[test]
    fn nobody_pays_for_anothers_syncs() {
        let mut m = model();
        let durable = Request { fua: true, ..request(Op::Write, 4096) };
        let cost = |m: &mut DeviceTime, durable: &Request| m.estimate(durable).get() as f64 / 1000.0;
        for _ in 0..20_000 {
            m.seen(&request(Op::Write, 4096), seen(20_000, true));
            m.seen(&durable, seen(2_000_000, true));
        }
        let (plain, synced) = (micros(&mut m, Op::Write, 4096), cost(&mut m, &durable));
        assert!(
            (15.0..25.0).contains(&plain) && (1_800.0..2_200.0).contains(&synced),
            "{plain} and {synced} us"
        );
        assert_eq!(
            cost(&mut m, &Request { fua: true, ..request(Op::Read, 4096) }),
            micros(&mut m, Op::Read, 4096)
        );
    }

    #[test]
    fn the_example_of_the_head() {
        let mut m = model();
        m.set(0, 50_000, 0);
        let window =
            |m: &mut DeviceTime| (0..64).for_each(|_| m.seen(&request(Op::Read, 4096), seen(25_000, true)));
        window(&mut m);
        assert_eq!(micros(&mut m, Op::Read, 4096).round(), 44.0);
        (0..30).for_each(|_| window(&mut m));
        assert!((micros(&mut m, Op::Read, 4096) - 25.0).abs() < 0.25);
    }

    /// A device as others see it: what each kind keeps it from. Completions come in clumps, so that the time between them says nothing
    /// about who completes.
    struct Device {
        fixed: [u64; 5],
        per_kib: [u64; 5],
        parallel: u64,
    }

    impl Device {
        fn cost(&self, op: Op, len: u64) -> u64 {
            let kind = DeviceTime::kind(&request(op, len));
            self.fixed[kind] + ((self.per_kib[kind] * len) >> 10)
        }
        /// Serves these, `parallel` at once.
        fn serve(&self, model: &mut DeviceTime, all: &[(Op, u64)], waits: bool) {
            for clump in all.chunks(self.parallel as usize) {
                let total: u64 = clump.iter().map(|(op, len)| self.cost(*op, *len)).sum();
                for (i, (op, len)) in clump.iter().enumerate() {
                    let seen = Seen {
                        service: Duration::from_nanos(self.cost(*op, *len) * self.parallel),
                        in_flight: self.parallel as u32 - 1,
                        ..seen(if i == 0 { total } else { 0 }, waits)
                    };
                    model.seen(&request(*op, *len), seen);
                }
            }
        }
    }

    const OPS: [Op; 4] = [Op::Read, Op::Write, Op::Trim, Op::Flush];
    const LENS: [u64; 4] = [4 << 10, 16 << 10, 128 << 10, 1 << 20];

    /// So many requests of mixtures that change.
    fn mixture(seed: u64, n: u64) -> Vec<(Op, u64)> {
        let hash = |i: u64| {
            (i ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
                >> 33
        };
        let one = |i: u64| {
            let mode = hash(i / 200) % 8;
            let op = if mode < 4 { OPS[mode as usize] } else { OPS[(hash(i * 3 + 1) % 4) as usize] };
            let len = if hash(i / 150 + 77) % 2 == 0 {
                LENS[(hash(i / 150) % 4) as usize]
            } else {
                LENS[(hash(i * 7) % 4) as usize]
            };
            (op, if op == Op::Flush { 0 } else { len })
        };
        (0..n).map(one).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Constant and seek-like devices, writes that cost ten reads, trims that cost a hundred, 1 to 64 at once.
        #[test]
        fn it_learns_what_the_device_is_like(
            read in 2_000u64..200_000, write in 1u64..11, trim in 1u64..100, flush in 1u64..50,
            per_kib in 50u64..10_000, parallel in prop::sample::select(vec![1u64, 2, 8, 32, 64]), seed in any::<u64>(),
        ) {
            let device = Device {
                fixed: [read, read * write, read * trim, read, read * flush],
                per_kib: [per_kib, per_kib * write, 0, 0, 0],
                parallel,
            };
            let mut m = model();
            device.serve(&mut m, &mixture(seed, 150_000), true);
            for op in OPS {
                for len in LENS.into_iter().filter(|len| op != Op::Flush || *len == LENS[0]) {
                    let len = if op == Op::Flush { 0 } else { len };
                    let (is, said) = (device.cost(op, len), m.estimate(&request(op, len)).get());
                    // Small parts of what is learned together are known less well.
                    let known = device.cost(op, 128 << 10) / 8;
                    let wrong = is.abs_diff(said) as f64 / is.max(known) as f64;
                    prop_assert!(wrong < 0.35, "{op:?} of {len}: {said} ns of {is}, {device_fixed:?}", device_fixed = device.fixed);
                }
            }
            let mut learned = Vec::new();
            m.learned(&mut learned);
            prop_assert!(learned.len() == 4 && learned.iter().all(|l| l.error < 200_000), "{learned:?}");
        }

        /// Whatever completes how fast: costs stay within their bounds, and what was taught is unlearned.
        #[test]
        fn nobody_drives_a_cost_out_of_its_bounds(
            lies in prop::collection::vec((0usize..4, 0u64..1 << 32, prop::sample::select(vec![0u64, 1, 1 << 20, 1 << 40]), any::<bool>()), 1..4000),
        ) {
            let (floor, ceiling) = (Duration::from_micros(2), Duration::from_millis(20));
            let mut m = DeviceTime::new(floor, ceiling);
            for (op, len, ns, waits) in lies {
                m.seen(&request(OPS[op], len), seen(ns, waits));
                for op in OPS {
                    for len in [0, 1, 1 << 20, u64::MAX] {
                        let cost = Duration::from_nanos(m.estimate(&request(op, len)).get());
                        prop_assert!((floor..=ceiling).contains(&cost), "{op:?} {len}: {cost}");
                    }
                }
            }
            let device = Device { fixed: [100_000; 5], per_kib: [0; 5], parallel: 4 };
            device.serve(&mut m, &[(Op::Read, 4096); 64 * 200], true);
            let cost = micros(&mut m, Op::Read, 4096);
            prop_assert!((90.0..110.0).contains(&cost), "{cost} us of 100");
        }
    }

    /// A tenant that asks for little, and so never keeps the device busy, teaches nothing; one that floods with cheap writes teaches nothing of reads.
    #[test]
    fn a_tenant_teaches_nothing_of_others() {
        let device = Device { fixed: [100_000, 100_000, 0, 0, 0], per_kib: [0; 5], parallel: 1 };
        let mut m = model();
        device.serve(
            &mut m,
            &mixture(1, 20_000).iter().map(|(_, len)| (Op::Read, *len)).collect::<Vec<_>>(),
            true,
        );
        let before = micros(&mut m, Op::Read, 16 << 10);
        for _ in 0..100_000 {
            m.seen(&request(Op::Read, 16 << 10), seen(1, false));
            m.seen(&request(Op::Write, 4096), seen(1, false));
        }
        (0..100_000).for_each(|_| m.seen(&request(Op::Write, 4096), seen(700, true)));
        assert_eq!(micros(&mut m, Op::Read, 16 << 10), before);
    }

    #[test]
    fn what_changed_shows_as_drift() {
        let mut m = model();
        let run = |m: &mut DeviceTime, us: u64| {
            let device = Device { fixed: [us * 1000; 5], per_kib: [0; 5], parallel: 1 };
            device.serve(m, &[(Op::Read, 4096); 64 * 400], true);
        };
        let drift = |m: &DeviceTime| {
            let mut learned = Vec::new();
            m.learned(&mut learned);
            learned[0].drift.expect("it was learned")
        };
        m.seed(0, 80_000, 0);
        run(&mut m, 80);
        assert!((950..1050).contains(&drift(&m)), "{}", drift(&m));
        run(&mut m, 400);
        assert!((4500..5500).contains(&drift(&m)), "{}", drift(&m));
    }
}
