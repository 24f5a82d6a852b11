//! What a trace is like, drawn: rate, addresses, sizes, gaps and burstiness on one sheet.

use super::seconds;
use anyhow::{Context, Result, anyhow};
use henge_core::{Duration, Histogram, Op};
use henge_workload::Stats;
use kuva::backend::png::PngBackend;
use kuva::backend::svg::SvgBackend;
use kuva::prelude::*;
use kuva::render::figure::Figure;
use std::path::Path;

const READ: &str = "#2f7ed8";
const WRITE: &str = "#d9662b";
const ALL: &str = "#3c9d6b";

pub type Scene = kuva::render::render::Scene;

/// The sheet for one trace.
pub fn draw(name: &str, stats: &Stats, dark: bool) -> Scene {
    let theme = || if dark { Theme::dark() } else { Theme::light() };
    let panels =
        [rate(stats), addresses(stats), sizes(stats), gaps(stats), dispersion(stats), throughput(stats)];
    let (plots, layouts): (Vec<_>, Vec<_>) =
        panels.into_iter().map(|(plots, layout)| (plots, layout.with_theme(theme()))).unzip();
    let length = seconds(stats.duration().as_secs_f64());
    Figure::new(3, 2)
        .with_title(format!("{name}: {} requests over {length}", stats.requests()))
        .with_plots(plots)
        .with_layouts(layouts)
        .with_cell_size(640.0, 330.0)
        .render()
}

/// Writes the sheet in both forms.
pub fn write(scene: &Scene, svg: &Path, png: &Path) -> Result<()> {
    std::fs::write(svg, SvgBackend::default().render_scene(scene))
        .with_context(|| svg.display().to_string())?;
    let bytes = PngBackend::new().render_scene(scene).map_err(|e| anyhow!("{}: {e}", png.display()))?;
    std::fs::write(png, bytes).with_context(|| png.display().to_string())
}

/// Large numbers as 20k and 3M, so that they fit beside the axis.
fn short() -> TickFormat {
    TickFormat::Custom(std::sync::Arc::new(|v: f64| match v.abs() {
        a if a >= 1e6 => format!("{}M", v / 1e6),
        a if a >= 1e4 => format!("{}k", v / 1e3),
        _ => TickFormat::Auto.format(v),
    }))
}

type Panel = (Vec<Plot>, Layout);

fn panel(plots: Vec<Plot>, title: &str, x: &str, y: &str, adjust: impl FnOnce(Layout) -> Layout) -> Panel {
    let layout = Layout::auto_from_plots(&plots).with_title(title).with_x_label(x).with_y_label(y);
    let layout = adjust(layout);
    (plots, layout)
}

/// Seconds, or what suits the length of the trace: its name, and how many seconds it has.
fn time_unit(stats: &Stats) -> (&'static str, f64) {
    match stats.duration().as_secs_f64() {
        s if s > 3.0 * 86_400.0 => ("days", 86_400.0),
        s if s > 3.0 * 3_600.0 => ("hours", 3_600.0),
        s if s > 600.0 => ("minutes", 60.0),
        s if s > 2.0 => ("seconds", 1.0),
        _ => ("milliseconds", 1e-3),
    }
}

fn rate(stats: &Stats) -> Panel {
    let (unit, scale) = time_unit(stats);
    let points: Vec<(f64, f64)> = stats.timeline().rates().map(|(at, n, _)| (at / scale, n)).collect();
    let line =
        LinePlot::new().with_data(points).with_color(ALL).with_step().with_fill().with_fill_opacity(0.25);
    let x = format!("time in {unit}");
    panel(vec![line.into()], "Rate", &x, "requests a second", |l| {
        l.with_y_axis_min(0.0).with_y_tick_format(short())
    })
}

fn addresses(stats: &Stats) -> Panel {
    let (unit, scale) = time_unit(stats);
    let start = stats.earliest();
    let (size, name) = size_unit(stats.max_end());
    let of = |op: Op| -> Vec<(f64, f64)> {
        let chosen = stats.points().iter().filter(|r| r.op == op);
        chosen.map(|r| (r.at.since(start).as_secs_f64() / scale, r.offset as f64 / size)).collect()
    };
    let mut plots: Vec<Plot> = Vec::new();
    for (op, color, legend) in [(Op::Read, READ, "read"), (Op::Write, WRITE, "write")] {
        let points = of(op);
        if !points.is_empty() {
            let dots = ScatterPlot::new().with_data(points).with_color(color).with_size(1.3);
            plots.push(dots.with_marker_opacity(0.6).with_legend(legend).into());
        }
    }
    let title = format!("Addresses ({} of {} requests)", stats.points().len(), stats.requests());
    panel(plots, &title, &format!("time in {unit}"), &format!("offset in {name}"), |l| l.with_y_axis_min(0.0))
}

fn size_unit(largest: u64) -> (f64, &'static str) {
    match largest {
        0..=0x1f_ffff => (1024.0, "KiB"),
        0x20_0000..=0x7fff_ffff => (1_048_576.0, "MiB"),
        0x8000_0000..=0x1ff_ffff_ffff => (1_073_741_824.0, "GiB"),
        _ => (1_099_511_627_776.0, "TiB"),
    }
}

fn sizes(stats: &Stats) -> Panel {
    let mut plots: Vec<Plot> = Vec::new();
    for (op, color, legend) in [(Op::Read, READ, "read"), (Op::Write, WRITE, "write")] {
        let total: u64 = stats.sizes(op).map(|s| s.1).sum();
        let mut sum = 0;
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (size, n) in stats.sizes(op).filter(|s| s.0 > 0) {
            let size = size as f64 / 1024.0;
            if points.is_empty() {
                points.push((size, 0.0));
            }
            sum += n;
            points.push((size, 100.0 * sum as f64 / total as f64));
        }
        if let Some(last) = points.last().copied() {
            points.push((last.0 * 1.5, last.1));
            let line = LinePlot::new().with_data(points).with_color(color).with_step().with_stroke_width(1.8);
            plots.push(line.with_legend(legend).into());
        }
    }
    panel(plots, "Sizes", "KiB", "% of requests at most as large", |l| {
        l.with_log_x().with_y_axis_min(0.0).with_y_axis_max(100.0)
    })
}

fn cumulative(h: &Histogram) -> Vec<(f64, f64)> {
    let mut sum = 0;
    h.buckets()
        .map(|(upper, n)| {
            sum += n;
            (upper.as_millis_f64().max(1e-3), 100.0 * sum as f64 / h.count() as f64)
        })
        .collect()
}

fn gaps(stats: &Stats) -> Panel {
    let line = LinePlot::new()
        .with_data(cumulative(stats.gaps()))
        .with_color(ALL)
        .with_step()
        .with_stroke_width(1.8);
    panel(vec![line.into()], "Gaps between requests", "ms", "% of gaps at most as long", |l| {
        l.with_log_x().with_y_axis_min(0.0).with_y_axis_max(100.0)
    })
}

fn dispersion(stats: &Stats) -> Panel {
    let points: Vec<(f64, f64)> = stats
        .dispersion()
        .into_iter()
        .filter_map(|(width, d)| d.map(|d| (width.as_secs_f64(), d.max(1e-3))))
        .collect();
    let mut plots: Vec<Plot> = Vec::new();
    if !points.is_empty() {
        plots.push(LinePlot::new().with_data(points.clone()).with_color(ALL).with_stroke_width(1.8).into());
        plots.push(ScatterPlot::new().with_data(points).with_color(ALL).with_size(3.5).into());
    }
    panel(plots, "Burstiness", "counted in bins of so many seconds", "variance / mean", |l| {
        l.with_log_scale()
    })
}

fn throughput(stats: &Stats) -> Panel {
    let (unit, scale) = time_unit(stats);
    let points: Vec<(f64, f64)> =
        stats.timeline().rates().map(|(at, _, bytes)| (at / scale, bytes / 1_048_576.0)).collect();
    let line =
        LinePlot::new().with_data(points).with_color(ALL).with_step().with_fill().with_fill_opacity(0.25);
    let x = format!("time in {unit}");
    panel(vec![line.into()], "Throughput", &x, "MiB a second", |l| {
        l.with_y_axis_min(0.0).with_y_tick_format(short())
    })
}

/// The distribution of latencies and lateness of a replay.
pub fn latencies(name: &str, latency: &Histogram, late: &Histogram, dark: bool) -> Scene {
    let mut plots: Vec<Plot> = Vec::new();
    for (h, color, legend) in [(latency, READ, "latency"), (late, WRITE, "sent late by")] {
        if h.max().is_some_and(|max| max > Duration::ZERO) {
            let line =
                LinePlot::new().with_data(cumulative(h)).with_color(color).with_step().with_stroke_width(1.8);
            plots.push(line.with_legend(legend).into());
        }
    }
    let theme = if dark { Theme::dark() } else { Theme::light() };
    let (plots, layout) = panel(plots, name, "ms", "% of requests within", |l| {
        l.with_log_x().with_y_axis_min(0.0).with_y_axis_max(100.0).with_theme(theme)
    });
    Figure::new(1, 1).with_plots(vec![plots]).with_layouts(vec![layout]).with_cell_size(800.0, 450.0).render()
}
