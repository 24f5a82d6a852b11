//! A quantity that changes while a workload runs: how many threads, how many requests a second, how local.
//!
//! Every level is a staircase: constant between changes that are known beforehand. So whoever follows it can
//! compute with a constant up to [`Level::next_change`], exactly, and a ramp of threads steps where the whole
//! number does.
//!
//! Example: `{ ramp = { from = 0, to = 20, over = "200s" } }` of threads is 0 for 10 s, then 1 for 10 s, … and 20
//! from 200 s on: step k of n begins at k · over / n.

use henge_core::{Duration, Instant, ParamError, Params, Value};

/// A staircase over time, in whatever unit its reader uses (threads, millionths of a request per second, ppm).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Level {
    /// Always the same.
    Constant(u64),
    /// From one value to another in equal steps, then stays.
    Ramp {
        /// Value at the start.
        from: u64,
        /// Value at the end.
        to: u64,
        /// How long it takes.
        over: Duration,
        /// In how many steps.
        steps: u64,
    },
    /// One value, then another, again and again.
    OnOff {
        /// Value while on; it is zero while off.
        high: u64,
        /// How long on.
        on: Duration,
        /// How long off.
        off: Duration,
        /// Whether it begins with off.
        off_first: bool,
    },
    /// A sine between two values, starting at the middle and rising, in steps of 1/64 period.
    Sine {
        /// Lowest value.
        low: u64,
        /// Highest value.
        high: u64,
        /// One full swing.
        period: Duration,
    },
    /// Given values from given times on; zero before the first.
    Steps(Vec<(Instant, u64)>),
}

/// Steps that a sine makes in one period.
const SINE_STEPS: u64 = 64;
/// Steps that a ramp makes where its unit is finer than one.
const RAMP_STEPS: u64 = 1000;

impl Level {
    /// The value at `t`.
    pub fn value(&self, t: Instant) -> u64 {
        match self {
            Level::Constant(v) => *v,
            Level::Ramp { from, to, over, steps } => {
                let done = step_at(t, *over, *steps).min(*steps);
                let span = u128::from(from.abs_diff(*to)) * u128::from(done) / u128::from(*steps);
                if to >= from { from + span as u64 } else { from - span as u64 }
            }
            Level::OnOff { high, on, off, off_first } => {
                let phase = t.as_nanos() % (on.as_nanos() + off.as_nanos());
                let turn = if *off_first { off } else { on };
                if (phase < turn.as_nanos()) != *off_first { *high } else { 0 }
            }
            Level::Sine { low, high, period } => {
                let step = step_at(t, *period, SINE_STEPS) % SINE_STEPS;
                let angle = step as f64 / SINE_STEPS as f64 * std::f64::consts::TAU;
                let middle = (*low as f64 + *high as f64) / 2.0;
                (middle + (*high as f64 - *low as f64) / 2.0 * angle.sin()).round() as u64
            }
            Level::Steps(steps) => steps.iter().rev().find(|(at, _)| *at <= t).map_or(0, |(_, v)| *v),
        }
    }

    /// The first instant after `t` at which the value may differ; `None` when it stays for good.
    pub fn next_change(&self, t: Instant) -> Option<Instant> {
        match self {
            Level::Constant(_) => None,
            Level::Ramp { over, steps, .. } => {
                let next = step_at(t, *over, *steps) + 1;
                (next <= *steps).then(|| step_begin(next, *over, *steps))
            }
            Level::OnOff { on, off, off_first, .. } => {
                let cycle = on.as_nanos() + off.as_nanos();
                let start = t.as_nanos() - t.as_nanos() % cycle;
                let turn = start.saturating_add(if *off_first { off } else { on }.as_nanos());
                let end = start.saturating_add(cycle);
                Some(Instant::from_nanos(if t.as_nanos() < turn { turn } else { end }))
            }
            Level::Sine { period, .. } => {
                Some(step_begin(step_at(t, *period, SINE_STEPS) + 1, *period, SINE_STEPS))
            }
            Level::Steps(steps) => steps.iter().map(|(at, _)| *at).find(|at| *at > t),
        }
    }

    /// The highest value it ever has.
    pub fn max(&self) -> u64 {
        match self {
            Level::Constant(v) => *v,
            Level::Ramp { from, to, .. } => *from.max(to),
            Level::OnOff { high, .. } | Level::Sine { high, .. } => *high,
            Level::Steps(steps) => steps.iter().map(|(_, v)| *v).max().unwrap_or(0),
        }
    }

    /// The same shape with every value times `num / den`.
    #[must_use]
    pub fn scaled(&self, num: u64, den: u64) -> Level {
        let f = |v: u64| (u128::from(v) * u128::from(num) / u128::from(den)).min(u128::from(u64::MAX)) as u64;
        match self.clone() {
            Level::Constant(v) => Level::Constant(f(v)),
            Level::Ramp { from, to, over, steps } => Level::Ramp { from: f(from), to: f(to), over, steps },
            Level::OnOff { high, on, off, off_first } => Level::OnOff { high: f(high), on, off, off_first },
            Level::Sine { low, high, period } => Level::Sine { low: f(low), high: f(high), period },
            Level::Steps(steps) => Level::Steps(steps.into_iter().map(|(t, v)| (t, f(v))).collect()),
        }
    }

    /// Reads `key`: one value, or `{ ramp = { from, to, over } }`, `{ on-off = { high, on, off, off_first } }`,
    /// `{ sine = { low, high, period } }`, `[{ at, to }, …]`. `read` takes one value from a table;
    /// `whole` says that values count things, so that ramps step by one.
    pub fn from_params<F>(
        p: &mut Params,
        key: &str,
        whole: bool,
        read: F,
    ) -> Result<Option<Level>, ParamError>
    where
        F: Fn(&mut Params, &str) -> Result<Option<u64>, ParamError>,
    {
        match p.get_mut(key) {
            Some(Value::Table(_)) => {}
            Some(Value::List(_)) => return steps(p, key, read).map(Some),
            _ => return Ok(read(p, key)?.map(Level::Constant)),
        }
        let Some((kind, mut q)) = p.choice(key)? else { return Ok(None) };
        let need = |q: &mut Params, name: &str| {
            let value = read(q, name)?;
            q.required(name, value)
        };
        let level = match kind.as_str() {
            "ramp" => {
                let (from, to) = (need(&mut q, "from")?, need(&mut q, "to")?);
                let steps = if whole { from.abs_diff(to).max(1) } else { RAMP_STEPS };
                Level::Ramp { from, to, over: positive(&mut q, "over")?, steps }
            }
            "on-off" => {
                let high = need(&mut q, "high")?;
                let (on, off) = (positive(&mut q, "on")?, positive(&mut q, "off")?);
                Level::OnOff { high, on, off, off_first: q.bool("off_first")?.unwrap_or(false) }
            }
            "sine" => {
                let (low, high) = (need(&mut q, "low")?, need(&mut q, "high")?);
                if low > high {
                    return Err(q.error("low", format!("low = {low} is above high = {high}")));
                }
                Level::Sine { low, high, period: positive(&mut q, "period")? }
            }
            _ => {
                let message = format!(
                    "{key} has no shape \"{kind}\"; it is a value, ramp, on-off, sine or a list of steps"
                );
                return Err(p.error(key, message));
            }
        };
        q.finish()?;
        Ok(Some(level))
    }
}

/// A staircase written step by step.
fn steps<F>(p: &mut Params, key: &str, read: F) -> Result<Level, ParamError>
where
    F: Fn(&mut Params, &str) -> Result<Option<u64>, ParamError>,
{
    let mut list: Vec<(Instant, u64)> = Vec::new();
    for mut step in p.tables(key)? {
        let at = step.duration("at")?;
        let at = Instant::ZERO + step.required("at", at)?;
        let to = read(&mut step, "to")?;
        let to = step.required("to", to)?;
        if list.last().is_some_and(|(before, _)| *before >= at) {
            return Err(step.error("at", format!("the steps of {key} go forward in time")));
        }
        step.finish()?;
        list.push((at, to));
    }
    if list.is_empty() {
        return Err(p.error(key, format!("{key} is a list without a step")));
    }
    Ok(Level::Steps(list))
}

/// A span of time that must be there and above zero.
pub(crate) fn positive(p: &mut Params, key: &str) -> Result<Duration, ParamError> {
    let span = p.duration(key)?;
    let span = p.required(key, span)?;
    if span == Duration::ZERO {
        return Err(p.error(key, format!("{key} must be above zero")));
    }
    Ok(span)
}

/// How many whole steps have begun by `t`.
fn step_at(t: Instant, over: Duration, steps: u64) -> u64 {
    let done = u128::from(t.as_nanos()) * u128::from(steps) / u128::from(over.as_nanos());
    u64::try_from(done).unwrap_or(u64::MAX - 1)
}

/// When step `k` begins.
fn step_begin(k: u64, over: Duration, steps: u64) -> Instant {
    let ns = (u128::from(k) * u128::from(over.as_nanos())).div_ceil(u128::from(steps));
    Instant::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(s: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(s)
    }
    fn whole(p: &mut Params, key: &str) -> Result<Option<u64>, ParamError> {
        p.integer(key, 0, 1 << 30)
    }
    fn number(key: &str, n: i64) -> (String, Value) {
        (key.to_owned(), Value::Integer(n))
    }
    fn time(key: &str, t: &str) -> (String, Value) {
        (key.to_owned(), Value::Text(t.to_owned()))
    }
    fn shape(kind: &str, entries: Vec<(String, Value)>) -> Params {
        let inner = entries.into_iter().fold(Params::new(kind), |p, (k, v)| p.with(&k, v));
        Params::new("t").with("n", Value::Table(Params::new("n").with(kind, Value::Table(inner))))
    }
    fn read(mut p: Params) -> Result<Level, String> {
        Level::from_params(&mut p, "n", true, whole).map(Option::unwrap).map_err(|e| e.to_string())
    }

    #[test]
    fn a_ramp_of_threads_steps_by_one() {
        let level =
            read(shape("ramp", vec![number("from", 0), number("to", 20), time("over", "200s")])).unwrap();
        assert_eq!([0, 9, 10, 105, 199, 200, 999].map(|s| level.value(at(s))), [0, 0, 1, 10, 19, 20, 20]);
        assert_eq!(level.next_change(at(10)), Some(at(20)));
        assert_eq!(level.next_change(at(200)), None);
        let down = read(shape("ramp", vec![number("from", 4), number("to", 0), time("over", "4s")])).unwrap();
        assert_eq!([0, 1, 3, 4].map(|s| down.value(at(s))), [4, 3, 1, 0]);
    }

    #[test]
    fn on_off_and_sine_are_as_written() {
        let level =
            read(shape("on-off", vec![number("high", 7), time("on", "2s"), time("off", "1s")])).unwrap();
        assert_eq!([0, 1, 2, 3, 4, 5].map(|s| level.value(at(s))), [7, 7, 0, 7, 7, 0]);
        let other = Level::OnOff {
            high: 7,
            on: Duration::from_secs(2),
            off: Duration::from_secs(1),
            off_first: true,
        };
        assert_eq!([0, 1, 2, 3, 4, 5].map(|s| other.value(at(s))), [0, 7, 7, 0, 7, 7]);
        assert_eq!([0, 1, 2, 3].map(|s| other.next_change(at(s))), [1, 3, 3, 4].map(|s| Some(at(s))));
        let sine = vec![number("low", 0), number("high", 20), time("period", "64s")];
        let level = read(shape("sine", sine)).unwrap();
        assert_eq!([0, 16, 32, 48, 64].map(|s| level.value(at(s))), [10, 20, 10, 0, 10]);
    }

    #[test]
    fn steps_are_a_list_that_goes_forward() {
        let step = |t: &str, to: i64| {
            let table =
                Params::new("step").with("at", Value::Text(t.to_owned())).with("to", Value::Integer(to));
            (Value::Table(table), 0..0)
        };
        let list = |steps| Params::new("t").with("n", Value::List(steps));
        let level = read(list(vec![step("1s", 35), step("4s", 85)])).unwrap();
        assert_eq!([0, 1, 3, 4, 9].map(|s| level.value(at(s))), [0, 35, 35, 85, 85]);
        assert!(read(list(vec![step("4s", 1), step("1s", 2)])).unwrap_err().contains("forward"));
        assert!(read(list(vec![])).unwrap_err().contains("without a step"));
        assert!(read(shape("ramps", vec![])).unwrap_err().contains("no shape \"ramps\""));
        let idle = vec![number("high", 7), time("on", "0s"), time("off", "1s")];
        assert!(read(shape("on-off", idle)).unwrap_err().contains("above zero"));
    }

    proptest! {
        /// Between two changes a level is constant, and a change is always ahead.
        #[test]
        fn nothing_changes_before_the_next_change(
            kind in 0..4u8, a in 0..100u64, b in 0..100u64, x in 1..100_000u64, y in 1..100_000u64, t in 0..10_000_000u64,
        ) {
            let (over, off) = (Duration::from_nanos(x), Duration::from_nanos(y));
            let level = match kind {
                0 => Level::Ramp { from: a, to: b, over, steps: a.abs_diff(b).max(1) },
                1 => Level::OnOff { high: a, on: over, off, off_first: b % 2 == 0 },
                2 => Level::Sine { low: a.min(b), high: a.max(b), period: over },
                _ => Level::Steps(vec![(Instant::from_nanos(x), a), (Instant::from_nanos(x + y), b)]),
            };
            let now = Instant::from_nanos(t);
            let next = level.next_change(now).unwrap_or(now + Duration::from_nanos(1_000_000));
            prop_assert!(next > now);
            let before = next - Duration::from_nanos(1);
            prop_assert_eq!(level.value(now), level.value(before.max(now)));
            prop_assert!(level.value(now) <= level.max());
        }
    }
}
