//! What people and programs read of a profile.

use super::conclude::{Findings, Measured, Noisy, rate};
use super::measure::{Series, Spread};
use henge_core::{Duration, format_size};
use henge_study::report::figure::{Figure, Series as Line};
use henge_study::report::table::table;
use serde_json::{Value, json};

fn ms(d: Option<Duration>) -> f64 {
    d.map_or(f64::NAN, Duration::as_millis_f64)
}

/// Four digits are enough of a measurement.
fn time(d: Duration) -> String {
    let ms = d.as_millis_f64();
    let digits = 3 - (ms.max(1e-6).log10().floor() as i32).clamp(-3, 3);
    format!("{ms:.0$} ms", digits.max(0) as usize)
}

fn share(x: f64) -> String {
    format!("± {:.1} %", x * 100.0)
}

/// A line per job.
pub fn jobs<'a>(series: impl Iterator<Item = &'a Series>) -> comfy_table::Table {
    let mut table = table(&["what", "per second", "spread", "MB/s", "mean ms", "p50", "p95", "p99"]);
    for s in series {
        let (rates, latency) = (s.rates(), s.latency());
        let at = |q: f64| format!("{:.3}", ms(latency.quantile(q)));
        table.add_row([
            s.job.name.clone(),
            format!("{:.1}", rates.median),
            share(rates.relative()),
            format!("{:.2}", s.bytes() / 1e6),
            format!("{:.3}", ms(latency.mean())),
            at(0.5),
            at(0.95),
            at(0.99),
        ]);
    }
    table
}

/// What was found, in sentences.
pub fn findings(f: &Findings) -> Vec<String> {
    let knee = &f.knee;
    let range = if knee.least == knee.most {
        String::new()
    } else {
        format!(" ({} to {} in single rounds)", knee.least, knee.most)
    };
    let mut lines = vec![format!("knee       depth {}{range}: 90 % of the peak of random reads", knee.depth)];
    if knee.rising {
        lines.push(
            "           the rate still rises where the measurement ends; see more with --depths".into(),
        );
    }
    let size = format_size(f.size);
    lines.push(format!(
        "capacity   {:.0} random requests/s of {size} at the knee (the worst round)",
        f.capacity
    ));
    let charge = &f.charge;
    lines.push(match charge.overhead() {
        Some(overhead) => format!(
            "size       a request at the knee costs {} + its size at {} = {} more bytes (off by up to {:.0} %)",
            time(charge.each),
            rate(charge.bandwidth),
            format_size(overhead),
            charge.off * 100.0
        ),
        None => format!("size       a request at the knee costs {}, whatever its size", time(charge.each)),
    });
    lines.push(format!(
        "alone      {} for {size} elsewhere, {} for {} in sequence",
        time(f.alone),
        time(f.in_sequence),
        format_size(f.stretch)
    ));
    lines.push(format!(
        "seeks      to begin elsewhere costs {:.3} ms ({}); {} in sequence at the knee",
        f.switch.median * 1e3,
        share(f.switch.relative()),
        rate(f.stream)
    ));
    let turn = f.turn;
    lines.push(format!("turns      {turn}: 20 times that (at least 20ms, at most 1s), a loss of 5 %"));
    match f.writes {
        Some((alone, busy)) => {
            lines.push(format!(
                "writes     take {alone:.2} times what reads take alone, {busy:.2} times at the knee"
            ));
        }
        None => lines.push("writes     not measured: that destroys data (--destroy-data)".into()),
    }
    lines
}

/// Why nothing is concluded.
pub fn refusal(noisy: &[Noisy], limit: f64, time: Duration) -> String {
    let figures = |s: &Spread| s.all.iter().map(|x| format!("{x:.1}")).collect::<Vec<_>>().join(", ");
    let mut lines = vec!["nothing is concluded: rounds differ by more than they may".to_owned()];
    let mut worst = 0.0f64;
    for n in noisy {
        let allowed = share(n.limit);
        lines.push(format!(
            "  {}: {} (at most {allowed}): {}",
            n.what,
            share(n.relative),
            figures(&n.spread)
        ));
        worst = worst.max(n.relative / n.limit);
    }
    // A round without an answer is as far off as can be.
    let accept = if worst.is_finite() {
        format!(", or accept the noise (--noise {:.0}%)", (worst * limit * 110.0).ceil())
    } else {
        String::new()
    };
    lines.push(format!(
        "keep others off the device (clients, scrubs, a throttled cache), measure longer (--time {}){accept}",
        time * 4
    ));
    lines.join("\n")
}

/// For programs.
pub fn json(
    target: &str,
    measured: &Measured,
    found: Option<&Findings>,
    noisy: &[Noisy],
    pool: &str,
) -> Value {
    let spread = |s: &Spread| json!({"median": s.median, "least": s.least, "most": s.most, "rounds": s.all});
    let series = |s: &Series| {
        let l = s.latency();
        json!({
            "what": s.job.name, "op": s.job.op.as_str(), "size": s.job.size, "depth": s.job.depth,
            "per_second": spread(&s.rates()), "bytes_per_second": s.bytes(),
            "latency_ms": {"mean": ms(l.mean()), "p50": ms(l.quantile(0.5)), "p95": ms(l.quantile(0.95)), "p99": ms(l.quantile(0.99))},
        })
    };
    let conclusion = found.map(|f| {
        json!({
            "knee": f.knee.depth, "knee_least": f.knee.least, "knee_most": f.knee.most, "still_rising": f.knee.rising,
            "capacity_per_second": f.capacity, "request_ms": f.charge.each.as_millis_f64(),
            "bandwidth_bytes_per_second": f.charge.bandwidth, "overhead_bytes": f.charge.overhead(), "fit_off": f.charge.off,
            "alone_ms": f.alone.as_millis_f64(), "in_sequence_ms": f.in_sequence.as_millis_f64(),
            "stream_bytes_per_second": f.stream, "switch_ms": spread(&f.switch.in_ms()),
            "turn_ms": f.turn.as_millis_f64(),
            "writes": f.writes.map(|(alone, busy)| json!({"alone": alone, "at_the_knee": busy})),
            "pool": pool,
            "schedulers": f.schedulers().into_iter().map(|(what, name, table)| {
                json!({"for": what, "scheduler": format!("{{ {name} = {{ {table} }} }}")})
            }).collect::<Vec<_>>(),
        })
    });
    let noise = |n: &Noisy| json!({"what": n.what, "relative": n.relative, "rounds": n.spread.all});
    json!({
        "target": target,
        "measured": measured.all().map(series).collect::<Vec<_>>(),
        "conclusion": conclusion,
        "noisy": noisy.iter().map(noise).collect::<Vec<_>>(),
    })
}

/// Throughput and latency against depth, and time against size.
pub fn figures(m: &Measured, found: Option<&Findings>) -> Vec<Figure> {
    let line = |name: &str, points: Vec<(f64, f64)>| Line { name: name.into(), points, steps: false };
    let by_depth = |y: &dyn Fn(&Series) -> f64| {
        m.depths.iter().map(|s| (f64::from(s.job.depth), y(s))).collect::<Vec<_>>()
    };
    let latency = |q: f64| by_depth(&|s: &Series| ms(s.latency().quantile(q)));
    let size = m.depths.first().map_or(0, |s| s.job.size);
    let asked = format!("Random {} reads", format_size(size));
    let figure = |name: &str, title: String, x: &str, y: &str, series| Figure {
        name: name.into(),
        title,
        x_label: x.into(),
        y_label: y.into(),
        series,
        ..Figure::default()
    };
    let mut rates = vec![
        line("median", by_depth(&|s| s.rates().median)),
        line("least of the rounds", by_depth(&|s| s.rates().least)),
        line("most of the rounds", by_depth(&|s| s.rates().most)),
    ];
    let peak = m.depths.iter().map(|s| s.rates().median).fold(0.0, f64::max);
    if let Some(f) = found {
        let knee = f64::from(f.knee.depth);
        rates.push(line(&format!("knee: {}", f.knee.depth), vec![(knee, 0.0), (knee, peak)]));
    }
    let mut times = vec![line(
        "measured",
        m.sizes.iter().map(|s| (s.job.size as f64 / 1024.0, 1e3 / s.rates().median)).collect(),
    )];
    if let Some(f) = found {
        let at = |s: &Series| {
            let x = s.job.size as f64;
            (x / 1024.0, (f.charge.each.as_secs_f64() + x / f.charge.bandwidth) * 1e3)
        };
        times.push(line("charged", m.sizes.iter().map(at).collect()));
    }
    let means = by_depth(&|s| ms(s.latency().mean()));
    vec![
        figure("depth", format!("{asked} against depth"), "depth", "requests/s", rates),
        figure(
            "latency",
            format!("{asked}: latency"),
            "depth",
            "ms",
            vec![
                line("mean", means),
                line("p50", latency(0.5)),
                line("p95", latency(0.95)),
                line("p99", latency(0.99)),
            ],
        ),
        figure("size", "What size costs at the knee".into(), "KiB", "ms of the device a request", times),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round without an answer is no noise that anybody could accept.
    #[test]
    fn only_noise_that_has_an_end_may_be_accepted() {
        let last = |relative| {
            let spread = Spread { all: vec![0.0, 100.0], median: 50.0, least: 0.0, most: 100.0 };
            let noisy = Noisy { what: "reads".into(), spread, relative, limit: 0.1 };
            refusal(&[noisy], 0.1, Duration::from_secs(1)).lines().last().unwrap().to_owned()
        };
        assert!(last(0.2).ends_with("(--time 4s), or accept the noise (--noise 22%)"), "{}", last(0.2));
        assert!(last(f64::INFINITY).ends_with("measure longer (--time 4s)"), "{}", last(f64::INFINITY));
    }
}
