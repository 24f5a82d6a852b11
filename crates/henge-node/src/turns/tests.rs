//! The rule's guarantees, over random weights, costs and arrivals, in simulated time.

use super::*;
use proptest::prelude::*;

fn name(n: usize) -> RequestId {
    RequestId { slot: n as u32, generation: 0 }
}

fn rated(rate: u64) -> Terms {
    Terms::of(&Contract { rate: Some(Rate::requests(rate)), ..Contract::default() })
}

/// Flows that always have work: after each turn its connection has more.
struct Always {
    turns: Turns,
    terms: Vec<Terms>,
    now: Instant,
    got: Vec<u64>,
    commands: Vec<u64>,
}

impl Always {
    fn new(terms: Vec<Terms>) -> Always {
        let mut turns = Turns::new();
        for (n, terms) in terms.iter().enumerate() {
            turns.put(Of::Disk(n), *terms, name(n), Way::In);
        }
        let n = terms.len();
        Always { turns, terms, now: Instant::ZERO, got: vec![0; n], commands: vec![0; n] }
    }

    /// One piece, which takes its cost's time. Whose it was.
    fn step(&mut self, of: impl Fn(usize) -> Done) -> usize {
        let turn = self.turns.next(self.now).expect("there is always work");
        let n = turn.connection.index();
        let done = of(n);
        let cost = self.turns.cost(done);
        self.turns.put(Of::Disk(n), self.terms[n], turn.connection, Way::In);
        self.turns.done(turn, done, self.now);
        self.now += Duration::from_nanos(cost);
        self.got[n] += cost;
        self.commands[n] += u64::from(done.commands);
        n
    }
}

fn piece() -> impl Strategy<Value = Done> {
    (0..=COMMANDS, 0..=BYTES as u64).prop_map(|(commands, bytes)| Done { commands, others: 0, bytes })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// SFQ, theorem 1, in every interval that begins at the beginning, which is where its proof's worst case is.
    #[test]
    fn shares_differ_by_a_piece_of_each(
        weights in prop::collection::vec(1u32..1000, 2..8),
        pieces in prop::collection::vec(piece(), 50),
        from in 0usize..500,
    ) {
        let mut always = Always::new(weights.iter().map(|w| Terms::weighted(*w)).collect());
        let largest = pieces.iter().map(|p| always.turns.cost(*p)).max().unwrap() as f64;
        for step in 0..from {
            always.step(|n| pieces[(step * 7 + n) % pieces.len()]);
        }
        let before = always.got.clone();
        for step in 0..1000 {
            always.step(|n| pieces[(step * 13 + n) % pieces.len()]);
            for i in 0..weights.len() {
                for j in 0..i {
                    let by = |k: usize| (always.got[k] - before[k]) as f64 / f64::from(weights[k]);
                    let bound = largest / f64::from(weights[i]) + largest / f64::from(weights[j]);
                    prop_assert!((by(i) - by(j)).abs() <= bound + 1.0, "{i} {j} at {step}: {} {}", by(i), by(j));
                }
            }
        }
    }

    /// Whoever comes waits for a piece of each other, whatever it and they had before, and whatever the weights.
    #[test]
    fn whoever_comes_waits_for_one_piece_of_each(
        weights in prop::collection::vec(1u32..100, 1..8),
        pieces in prop::collection::vec(piece(), 50),
        alone in 1usize..200,
        beside in 1usize..200,
    ) {
        // The newcomer is the last; it has had the processor for itself for a while, and then went.
        let n = weights.len();
        let mut turns = Turns::new();
        for _ in 0..alone {
            turns.put(Of::Disk(n), Terms::weighted(1), name(n), Way::Out);
            let turn = turns.next(Instant::ZERO).unwrap();
            turns.done(turn, pieces[alone % pieces.len()], Instant::ZERO);
        }
        let mut always = Always { turns, terms: vec![], now: Instant::ZERO, got: vec![0; n + 1], commands: vec![0; n + 1] };
        always.terms = weights.iter().map(|w| Terms::weighted(*w)).chain([Terms::weighted(1)]).collect();
        for (i, w) in weights.iter().enumerate() {
            always.turns.put(Of::Disk(i), Terms::weighted(*w), name(i), Way::In);
        }
        // Long enough for the others to have passed the newcomer's last piece.
        let mut steps = 0;
        while always.turns.virtual_time < always.turns.flow(Of::Disk(n)).finish {
            always.step(|k| pieces[(steps + k) % pieces.len()]);
            steps += 1;
        }
        for step in 0..beside {
            always.step(|k| pieces[(step * 3 + k) % pieces.len()]);
        }
        always.turns.put(Of::Disk(n), Terms::weighted(1), name(n), Way::In);
        let mut seen = vec![0; n];
        loop {
            let k = always.step(|k| pieces[k % pieces.len()]);
            if k == n { break; }
            seen[k] += 1;
        }
        prop_assert!(seen.iter().all(|s| *s <= 1), "{seen:?}");
    }

    /// A rate is kept whatever the others' weights, number and pieces, as long as the processor is enough for it.
    #[test]
    fn a_rate_is_kept_beside_anyone(
        weights in prop::collection::vec(1u32..1_000_000, 1..8),
        bulk in piece(),
        rate in 1000u64..20_000,
        at_once in 1u32..16,
    ) {
        let mut terms: Vec<Terms> = weights.iter().map(|w| Terms::weighted(*w)).collect();
        terms.push(rated(rate));
        let n = weights.len();
        let mut always = Always::new(terms);
        let of = |k: usize| if k == n { Done { commands: at_once, others: 0, bytes: u64::from(at_once) * 4096 } } else { bulk };
        // Twice as many, since each counts half on this way.
        let mine = always.turns.cost(of(n)) * 2 * rate / u64::from(at_once);
        prop_assume!(mine < 600_000_000);
        let warm = Instant::from_nanos(50_000_000);
        while always.now < warm { always.step(of); }
        let (from, before) = (always.now, always.commands[n]);
        while always.now.since(from) < Duration::from_millis(200) { always.step(of); }
        let got = (always.commands[n] - before) as f64 / 2.0;
        let wanted = rate as f64 * always.now.since(from).as_nanos() as f64 / 1e9;
        prop_assert!(got >= 0.99 * wanted - f64::from(at_once), "{got} of {wanted}");
    }

    /// Turns that a flow with a rate had because nobody else wanted them are not taken from its reserved ones.
    #[test]
    fn what_was_spare_is_no_debt(alone in 1usize..5000, rate in 1000u64..10_000, bulk in piece()) {
        let mut always = Always::new(vec![rated(rate)]);
        let of = |k: usize| if k == 0 { Done { commands: 1, others: 0, bytes: 4096 } } else { bulk };
        for _ in 0..alone { always.step(of); }
        for k in 1..4 {
            always.terms.push(Terms::weighted(1_000_000));
            always.got.push(0);
            always.commands.push(0);
            always.turns.put(Of::Disk(k), Terms::weighted(1_000_000), name(k), Way::In);
        }
        let (from, before) = (always.now, always.commands[0]);
        while always.now.since(from) < Duration::from_millis(20) { always.step(of); }
        let got = (always.commands[0] - before) as f64 / 2.0;
        prop_assert!(got >= 0.97 * rate as f64 * 0.02 - 1.0, "{got}");
        prop_assert!(got <= 1.3 * rate as f64 * 0.02 + 2.0, "{got}: what is beyond its rate goes by weight");
    }

    /// What rounds took is all given to somebody, but for what rounding loses.
    #[test]
    fn the_processors_time_is_divided_without_rest(
        rounds in prop::collection::vec((1u64..2_000_000, prop::collection::vec((0usize..5, piece()), 1..20)), 1..50),
    ) {
        let mut turns = Turns::new();
        let (mut took, mut lost) = (0, 0);
        for (ns, pieces) in rounds {
            for (n, done) in &pieces {
                turns.put(Of::Disk(*n), Terms::weighted(1), name(*n), Way::Out);
                let turn = turns.next(Instant::ZERO).unwrap();
                turns.done(turn, *done, Instant::ZERO);
            }
            turns.charge(Of::Disk(0), 4096);
            turns.measured(Duration::from_nanos(ns));
            took += ns;
            lost += 6;
        }
        let used: u64 = (0..5).map(|n| turns.used(Of::Disk(n))).sum();
        prop_assert!(used <= took && used + lost >= took, "{used} of {took}");
        prop_assert!(turns.correction >= ONE / 16 && turns.correction <= 16 * ONE);
    }
}

#[test]
fn the_example_of_the_head() {
    let mut turns = Turns::new();
    let a = Terms::weighted(3);
    turns.put(Of::Disk(0), a, name(0), Way::In);
    turns.put(Of::Disk(1), Terms::weighted(1), name(1), Way::In);
    let mut order = Vec::new();
    for _ in 0..8 {
        let turn = turns.next(Instant::ZERO).unwrap();
        let n = turn.connection.index();
        turns.put(Of::Disk(n), [a, Terms::weighted(1)][n], turn.connection, Way::In);
        turns.done(turn, Done { commands: 8, others: 0, bytes: 0 }, Instant::ZERO);
        order.push(n);
    }
    assert_eq!(order, [0, 1, 0, 0, 0, 1, 0, 0]);
    turns.put(Of::Disk(2), rated(10_000), name(2), Way::In);
    let first = turns.next(Instant::ZERO).unwrap();
    assert!(first.connection == name(2) && first.reserved);
    turns.done(first, Done { commands: 8, others: 0, bytes: 0 }, Instant::ZERO);
    // Half of eight commands at 12,500 a second: so much of a reserved turn is this way's.
    assert_eq!(turns.flow(Of::Disk(2)).due, Instant::from_nanos(320_000));
}

#[test]
fn who_was_away_has_saved_up_no_turns() {
    let mut always = Always::new(vec![Terms::weighted(1), Terms::weighted(1)]);
    let turn = always.turns.next(always.now).unwrap();
    assert_eq!(turn.connection, name(0));
    always.turns.done(turn, Done { commands: 1, others: 0, bytes: 0 }, always.now); // and it is away
    for _ in 0..100 {
        assert_eq!(always.step(|_| Done { commands: 1, others: 0, bytes: 0 }), 1);
    }
    always.turns.put(Of::Disk(0), Terms::weighted(1), name(0), Way::In);
    let next: Vec<usize> =
        (0..20).map(|_| always.step(|_| Done { commands: 1, others: 0, bytes: 0 })).collect();
    let its = next.iter().filter(|n| **n == 0).count();
    assert!((9..=11).contains(&its), "{its} of 20");
}

#[test]
fn answers_go_before_questions() {
    let mut turns = Turns::new();
    turns.put(Of::Links, Terms::weighted(1), name(1), Way::In);
    turns.put(Of::Links, Terms::weighted(1), name(2), Way::Out);
    let turn = turns.next(Instant::ZERO).unwrap();
    assert_eq!((turn.connection, turn.way), (name(2), Way::Out));
}

#[test]
fn a_small_copy_alone_in_a_round_costs_something_also_on_a_fast_machine() {
    let mut turns = Turns::new();
    // Long rounds that took no time teach that this machine is as fast as can be.
    for _ in 0..100 {
        turns.charge(Of::Disk(0), 1 << 30);
        turns.measured(Duration::from_nanos(1));
    }
    turns.charge(Of::Disk(0), 1);
    assert!(turns.estimated() >= 1);
    turns.measured(Duration::from_nanos(7));
    assert!(turns.used(Of::Disk(0)) >= 7);
}

/// A rate of a command a day has its next turn in weeks. A larger one has it at once, and so has another disk of that number.
#[test]
fn another_rate_has_its_turns_at_once() {
    let daily = Terms::of(&Contract::reserved(Rate::requests_micro(12)));
    let piece = |n| Done { commands: 32, others: 0, bytes: if n == 0 { 0 } else { BYTES as u64 } };
    let daily_first = || {
        let mut always = Always::new(vec![daily, Terms::weighted(1_000_000)]);
        assert_eq!(always.step(piece), 0, "its first turn");
        for _ in 0..100 {
            always.step(piece);
        }
        assert_eq!(always.commands[0], 64, "and one by weight");
        always
    };
    let mut always = daily_first();
    always.terms[0] = rated(10_000);
    always.turns.put(Of::Disk(0), always.terms[0], name(2), Way::In);
    assert_eq!(always.turns.next(always.now).map(|turn| turn.flow), Some(Of::Disk(0).index()));
    let mut always = daily_first();
    always.turns.forget(Of::Disk(0));
    assert_eq!(always.turns.next(always.now).map(|turn| turn.flow), Some(Of::Disk(0).index()));
}
