//! What a scenario asks for (`[[plot]]`), and what every run is worth, as figures.

use super::figure::{Figure, Series};
use anyhow::{Result, anyhow};
use henge_core::{Duration, Histogram};
use henge_sim::rule::{Bindings, Expr};
use henge_sim::{Experiment, FlowOutcome, GateOutcome, Measured, Outcome, Plot, PlotKind, Timing, Window};

/// All figures that the scenario asks for.
pub fn wanted(experiment: &Experiment, measured: &Measured) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for plot in &experiment.plots {
        figures
            .extend(one(plot, experiment, measured).map_err(|why| anyhow!("the plot {}: {why}", plot.name))?);
    }
    Ok(figures)
}

/// One plot over the runs that were measured.
struct Plotted<'a> {
    plot: &'a Plot,
    experiment: &'a Experiment,
    measured: &'a Measured,
}

fn one(plot: &Plot, experiment: &Experiment, measured: &Measured) -> Result<Vec<Figure>, String> {
    let plotted = Plotted { plot, experiment, measured };
    match &plot.kind {
        PlotKind::Line { x, series, y } => Ok(vec![plotted.line(x, series, y)?]),
        PlotKind::Iso { x, over, series, y, levels } => {
            Ok(vec![plotted.iso((x, over), series, y, levels)?])
        }
        PlotKind::Time { what, flows, series, from } => plotted.time(what, flows, series, *from),
        PlotKind::Cdf { flows, series, until } => Ok(vec![plotted.cdf(flows, series, *until)?]),
    }
}

impl Plotted<'_> {
    fn values(&self, axis: &str) -> Result<Vec<String>, String> {
        let found = self.experiment.axes.iter().find(|a| a.name == axis);
        let found = found.ok_or_else(|| format!("{axis} is not an axis of this scenario"))?;
        let only = self.plot.only.iter().find(|(a, _)| a == axis).map(|(_, v)| v);
        Ok(found.values.iter().map(|v| v.name.clone()).filter(|v| only.is_none_or(|o| o == v)).collect())
    }

    /// A figure without curves; the plot's own, or its part of this name.
    fn blank(&self, part: &str) -> Figure {
        let plot = self.plot;
        Figure {
            name: if part.is_empty() { plot.name.clone() } else { format!("{}-{part}", plot.name) },
            title: if part.is_empty() { plot.title.clone() } else { self.titled(part) },
            legend: plot.series().map(str::to_owned).filter(|_| part.is_empty()),
            x_label: plot.x_label.clone(),
            y_label: plot.y_label.clone(),
            series: Vec::new(),
            line: plot.line,
            y_max: plot.y_max,
            y_min: plot.y_min,
            x_log: plot.x_log,
            small: plot.small,
            categories: Vec::new(),
            paper: plot
                .paper
                .iter()
                .map(|(name, points)| Series { name: name.clone(), points: points.clone(), steps: false })
                .collect(),
        }
    }

    /// A number says nothing without what it is of.
    fn titled(&self, value: &str) -> String {
        let title = &self.plot.title;
        match self.plot.series() {
            Some(axis) if value.parse::<f64>().is_ok() => format!("{title} — {axis} = {value}"),
            _ => format!("{title} — {value}"),
        }
    }

    /// One value of a series axis each; a plot without such an axis has one series without a name.
    fn runs(&self, series: &Option<String>) -> Result<Vec<(String, Bindings)>, String> {
        let (base, among) = (&self.plot.only, &self.plot.among);
        let Some(axis) = series else { return Ok(vec![(String::new(), base.clone())]) };
        let mut names = self.values(axis)?;
        if let Some(unknown) = among.iter().find(|v| !names.contains(v)) {
            return Err(format!("{axis} has no value \"{unknown}\"; it has {}", names.join(", ")));
        }
        names.retain(|v| among.is_empty() || among.contains(v));
        Ok(names.into_iter().map(|v| (v.clone(), with(base, axis, &v))).collect())
    }

    /// Expressions along an axis.
    fn line(&self, x: &str, series: &Option<String>, y: &[(String, Expr)]) -> Result<Figure, String> {
        let mut figure = self.blank("");
        let along = self.values(x)?;
        // What is compared by name has no order and no distance: bars.
        if along.iter().any(|v| v.parse::<f64>().is_err()) {
            figure.categories = along;
        }
        for (name, run) in self.runs(series)? {
            for (part, expression) in y {
                let mut points = Vec::new();
                for (i, at) in self.values(x)?.into_iter().enumerate() {
                    let value = expression.number(self.measured, &with(&run, x, &at))?;
                    points.push((at.parse().unwrap_or(i as f64), value));
                }
                points.sort_by(|a: &(f64, f64), b| a.0.total_cmp(&b.0));
                figure.series.push(Series { name: joined(&name, part), points, steps: false });
            }
        }
        Ok(figure)
    }

    /// Curves of equal value: for each `x`, from which value of `over` on an expression is at a level.
    fn iso(
        &self,
        (x, over): (&str, &str),
        series: &Option<String>,
        y: &Expr,
        levels: &[(String, f64)],
    ) -> Result<Figure, String> {
        let mut figure = self.blank("");
        for (name, run) in self.runs(series)? {
            let mut curves: Vec<Series> = levels
                .iter()
                .map(|(level, _)| Series { name: joined(&name, level), points: Vec::new(), steps: false })
                .collect();
            for at in self.values(x)? {
                let here = with(&run, x, &at);
                let mut along = Vec::new();
                for step in self.values(over)? {
                    let value = y.number(self.measured, &with(&here, over, &step))?;
                    along.push((number_of(over, &step)?, value));
                }
                for (curve, (_, level)) in curves.iter_mut().zip(levels) {
                    let reached = reaches(&along, *level).unwrap_or(f64::NAN);
                    curve.points.push((number_of(x, &at)?, reached));
                }
            }
            figure.series.extend(curves);
        }
        Ok(figure)
    }

    /// A measure over time: a figure for each run, or one for all where each has one curve.
    fn time(
        &self,
        what: &str,
        flows: &[String],
        series: &Option<String>,
        from: Option<f64>,
    ) -> Result<Vec<Figure>, String> {
        let mut figures = Vec::new();
        let mut names = Vec::new();
        for (name, run) in self.runs(series)? {
            let mut figure = self.blank(&name);
            figure.series = curves(self.measured.run(&run)?, what, flows)?;
            names.push(name);
            let begins = from.unwrap_or(0.0);
            figure.series.iter_mut().for_each(|s| s.points.retain(|p| p.0 >= begins));
            figures.push(figure);
        }
        if let Some(overlaid) = overlaid(&figures, &names, self.blank("")) {
            return Ok(vec![overlaid]);
        }
        // Side by side they are compared: one scale for all.
        let highest = figures.iter().flat_map(|f| &f.series).flat_map(|s| &s.points).map(|p| p.1);
        let highest = highest.chain(self.plot.line).filter(|y| y.is_finite()).fold(0.0, f64::max);
        figures.iter_mut().for_each(|f| f.y_max = f.y_max.or((highest > 0.0).then_some(highest)));
        Ok(figures)
    }

    /// How many latencies are up to a value.
    fn cdf(&self, flows: &[String], series: &Option<String>, until: Option<f64>) -> Result<Figure, String> {
        let mut figure = self.blank("");
        for (name, run) in self.runs(series)? {
            for flow in chosen(self.measured.run(&run)?, flows)? {
                figure.series.push(cdf(&joined(&flow.name, &name), &flow.latency, until));
            }
        }
        figure.y_max = Some(1.0);
        Ok(figure)
    }
}

/// A curve's name: of its run and of its part, where it has them.
fn joined(first: &str, second: &str) -> String {
    [first, second].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A measure of one run, by window: of its gates, of all flows together, or of each of some flows.
fn curves(outcome: &Outcome, what: &str, flows: &[String]) -> Result<Vec<Series>, String> {
    match what {
        "depth" | "limit" => {
            Ok(outcome.gates.iter().map(|gate| depths(gate, &outcome.timing, what == "limit")).collect())
        }
        "distance" => Ok(vec![distances(outcome)]),
        _ => chosen(outcome, flows)?.into_iter().map(|flow| over_time(flow, &outcome.timing, what)).collect(),
    }
}

fn number_of(axis: &str, value: &str) -> Result<f64, String> {
    value.parse().map_err(|_| format!("{axis} has the value \"{value}\", and numbers are needed"))
}

/// From where on, by straight lines between points, the values stay at `level` or above; `None` where the last is below.
fn reaches(points: &[(f64, f64)], level: f64) -> Option<f64> {
    let below = points.iter().rposition(|(_, y)| y.is_nan() || *y < level);
    let Some(below) = below else { return points.first().map(|p| p.0) };
    let (x, y) = *points.get(below + 1)?;
    let (x0, y0) = points[below];
    Some(if y0.is_nan() || y == y0 { x } else { x0 + (x - x0) * (level - y0) / (y - y0) })
}

/// The same one curve of several runs: in one picture.
fn overlaid(figures: &[Figure], names: &[String], into: Figure) -> Option<Figure> {
    if figures.len() < 2 || figures.iter().any(|f| f.series.len() != 1) {
        return None;
    }
    let one = |(figure, name): (&Figure, &String)| Series { name: name.clone(), ..figure.series[0].clone() };
    Some(Figure { series: figures.iter().zip(names).map(one).collect(), ..into })
}

fn with(run: &Bindings, axis: &str, value: &str) -> Bindings {
    let mut run = run.clone();
    run.push((axis.to_owned(), value.to_owned()));
    run
}

fn chosen<'a>(outcome: &'a Outcome, flows: &[String]) -> Result<Vec<&'a FlowOutcome>, String> {
    if flows.is_empty() {
        return Ok(outcome.flows.iter().collect());
    }
    flows.iter().map(|f| outcome.flow(f).ok_or_else(|| format!("there is no flow {f}"))).collect()
}

/// How many requests a gate has in flight, or may have, window by window.
fn depths(gate: &GateOutcome, timing: &Timing, limit: bool) -> Series {
    let width = timing.window.as_secs_f64();
    let at = |(i, depth): (usize, f64)| ((i as f64 + 0.5) * width, depth);
    let values: Vec<f64> =
        if limit { gate.limits.iter().map(|&l| f64::from(l)).collect() } else { gate.depths.clone() };
    Series { name: gate.name.clone(), points: values.into_iter().enumerate().map(at).collect(), steps: false }
}

/// How far all flows together are from their weights, window by window.
fn distances(outcome: &Outcome) -> Series {
    let width = outcome.timing.window.as_secs_f64();
    let windows = outcome.flows.iter().map(|f| f.windows.len()).min().unwrap_or(0);
    let at = |i: usize| {
        let served = outcome.flows.iter().map(|f| (f, f.windows[i].bytes));
        ((i as f64 + 0.5) * width, henge_sim::distance(served))
    };
    Series { name: "total".into(), points: (0..windows).map(at).collect(), steps: false }
}

/// One measure of a flow, window by window.
pub fn over_time(flow: &FlowOutcome, timing: &Timing, what: &str) -> Result<Series, String> {
    let width = timing.window.as_secs_f64();
    let value = |w: &Window| -> Result<f64, String> {
        Ok(match what {
            "rate" => w.commands as f64 / width,
            "offered" => w.arrived as f64 / width,
            "throughput" => w.bytes as f64 / width / 1e6,
            "p50" => w.p50.as_millis_f64(),
            "p95" => w.p95.as_millis_f64(),
            "max" => w.max.as_millis_f64(),
            "late" => {
                if w.commands == 0 {
                    f64::NAN
                } else {
                    w.late as f64 / w.commands as f64
                }
            }
            "disk_share" => w.disk_time.as_secs_f64() / width,
            other => return Err(format!("{other} is not kept by window")),
        })
    };
    let points = flow.windows.iter().enumerate().map(|(i, w)| Ok(((i as f64 + 0.5) * width, value(w)?)));
    Ok(Series { name: flow.name.clone(), points: points.collect::<Result<_, String>>()?, steps: false })
}

/// The share of latencies (ms) up to a value.
pub fn cdf(name: &str, latency: &Histogram, until: Option<f64>) -> Series {
    let all = latency.count().max(1) as f64;
    let end = until.map_or(Duration::MAX, Duration::from_secs_f64);
    let mut below = 0;
    let mut points = vec![(0.0, 0.0)];
    for (edge, count) in latency.buckets().take_while(|(edge, _)| *edge <= end) {
        below += count;
        points.push((edge.as_millis_f64(), below as f64 / all));
    }
    Series { name: name.to_owned(), points, steps: true }
}

/// The end of the bucket by which 99.5 % were answered.
fn nearly_all(latency: &Histogram) -> Option<Duration> {
    let within = latency.quantile(0.995)?;
    latency.buckets().map(|(edge, _)| edge).find(|edge| *edge >= within)
}

/// Latencies this many times the fastest flow's median would leave it a line at the left edge.
const WIDE: f64 = 20.0;

/// Equal distances below are equal ratios from here on: nothing lies at 0.
fn by_ratios(figure: &mut Figure) {
    figure.x_log = true;
    figure.series.iter_mut().for_each(|s| s.points.retain(|point| point.0 > 0.0));
}

/// What every report shows: throughput over time, latency, shares, utilization.
pub fn of_run(outcome: &Outcome, prefix: &str) -> Result<Vec<Figure>> {
    let figure = |name: &str, title: &str, x: &str, y: &str, series: Vec<Series>| Figure {
        name: format!("{prefix}{name}"),
        title: title.to_owned(),
        x_label: x.to_owned(),
        y_label: y.to_owned(),
        series,
        ..Figure::default()
    };
    let times = |what: &str| -> Result<Vec<Series>> {
        outcome.flows.iter().map(|f| over_time(f, &outcome.timing, what).map_err(|e| anyhow!(e))).collect()
    };
    // The plot ends where the slowest flow has answered 99.5 %: one straggler would squeeze everything else.
    let until = outcome.flows.iter().filter_map(|f| nearly_all(&f.latency)).max().map(|d| d.as_secs_f64());
    let cdfs = outcome.flows.iter().map(|f| cdf(&f.name, &f.latency, until)).collect();
    let fastest = outcome.flows.iter().filter_map(|f| f.latency.quantile(0.5)).min().map(|d| d.as_secs_f64());
    let is_wide = until.zip(fastest).is_some_and(|(until, fastest)| until > WIDE * fastest);
    let mut latency = figure("latency", "Latency", "latency (ms)", "share answered within", cdfs);
    if is_wide {
        by_ratios(&mut latency);
    }
    Ok(vec![
        figure("rate", "Requests answered", "time (s)", "requests/s", times("rate")?),
        figure("throughput", "Throughput", "time (s)", "MB/s", times("throughput")?),
        latency,
        figure("p95", "Latency over time", "time (s)", "95th percentile (ms)", times("p95")?),
        figure("share", "Share of the service", "time (s)", "share of bytes", shares(outcome, false)),
        figure(
            "unfairness",
            "Unfairness",
            "time (s)",
            "share of bytes / share promised − 1 (absolute)",
            shares(outcome, true),
        ),
        figure(
            "disk-time",
            "Device time by flow",
            "time (s)",
            "share of the devices' time",
            times("disk_share")?,
        ),
    ])
}

/// Each flow's share of the bytes of a window; or how far it is from its weight's share.
fn shares(outcome: &Outcome, unfairness: bool) -> Vec<Series> {
    let width = outcome.timing.window.as_secs_f64();
    let weights: f64 = outcome.flows.iter().map(|f| f64::from(f.contract.weight())).sum();
    let windows = outcome.flows.iter().map(|f| f.windows.len()).max().unwrap_or(0);
    let total =
        |i: usize| outcome.flows.iter().filter_map(|f| f.windows.get(i)).map(|w| w.bytes).sum::<u64>();
    let of = |flow: &FlowOutcome| {
        let due = f64::from(flow.contract.weight()) / weights;
        let point = |i: usize| {
            let bytes = flow.windows.get(i).map_or(0, |w| w.bytes);
            let share = if total(i) == 0 { f64::NAN } else { bytes as f64 / total(i) as f64 };
            let y = if unfairness { (share / due - 1.0).abs() } else { share };
            ((i as f64 + 0.5) * width, y)
        };
        Series { name: flow.name.clone(), points: (0..windows).map(point).collect(), steps: false }
    };
    outcome.flows.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A logarithm has no place for 0, where each curve begins otherwise.
    #[test]
    fn by_ratios_nothing_lies_at_zero() {
        let mut latency = Histogram::default();
        latency.record(Duration::from_millis(4));
        let mut figure = Figure { series: vec![cdf("a", &latency, None)], ..Figure::default() };
        assert_eq!(figure.series[0].points[0], (0.0, 0.0));
        by_ratios(&mut figure);
        assert!(figure.x_log && figure.series[0].points.iter().all(|point| point.0 > 0.0));
        assert_eq!(figure.series[0].points.last().expect("one was answered").1, 1.0);
    }

    #[test]
    fn a_curve_of_latencies_ends_where_nearly_all_were_answered() {
        let mut latency = Histogram::default();
        for ms in [4000, 4170, 4171, 4172, 4180] {
            latency.record(Duration::from_millis(ms));
        }
        let end = nearly_all(&latency).expect("there are some").as_secs_f64();
        assert_eq!(cdf("a", &latency, Some(end)).points.last().expect("there are some").1, 1.0);
    }

    #[test]
    fn a_curve_of_equal_value_begins_where_the_level_is_kept_from_then_on() {
        let points = [(0.0, 0.1), (20.0, 0.8), (40.0, 0.6), (60.0, 0.9), (80.0, 1.0)];
        assert_eq!(reaches(&points, 0.75), Some(50.0));
        assert_eq!(reaches(&points, 0.05), Some(0.0));
        assert_eq!(reaches(&points, 1.0), Some(80.0));
        assert_eq!(reaches(&points[..3], 0.75), None);
        assert_eq!(reaches(&[(1.0, f64::NAN), (2.0, 1.0)], 0.5), Some(2.0));
        assert_eq!(reaches(&[], 0.5), None);
    }
}
