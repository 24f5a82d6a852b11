//! One figure: lines over an axis, as SVG (light or dark), PNG and CSV.

use anyhow::{Context, Result};
use kuva::backend::png::PngBackend;
use kuva::backend::svg::SvgBackend;
use kuva::plot::annotations::ReferenceLine;
use kuva::plot::legend::{LegendEntry, LegendPosition, LegendShape};
use kuva::plot::scatter::MarkerShape;
use kuva::plot::{BarPlot, LinePlot, LineStyle, ScatterPlot};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::render_multiple;
use kuva::render::theme::Theme;
use std::fmt::Write as _;
use std::path::Path;

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// As the legend calls it.
    pub name: String,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
    /// A staircase (windows, distributions) instead of straight lines.
    pub steps: bool,
}

/// A figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Its files' name.
    pub name: String,
    /// Above it.
    pub title: String,
    /// Below it.
    pub x_label: String,
    /// Left of it.
    pub y_label: String,
    /// What it shows.
    pub series: Vec<Series>,
    /// What was promised, or what it is measured against.
    pub line: Option<f64>,
    /// The y axis ends here; by the data where nothing is said.
    pub y_max: Option<f64>,
    /// And begins here; at 0 where nothing is said.
    pub y_min: Option<f64>,
    /// Whether equal distances below are equal ratios.
    pub x_log: bool,
    /// Drawn for a page beside text: its letters are as large there as the page's own.
    pub small: bool,
    /// Above the legend: what its names are values of.
    pub legend: Option<String>,
    /// The names of what is compared, where that are no numbers: bars then, a group for each.
    pub categories: Vec<String>,
    /// What the paper has: open markers.
    pub paper: Vec<Series>,
}

/// Light or dark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Dark lines on white.
    Light,
    /// For dark pages.
    Dark,
}

/// Okabe and Ito's colors, which people who see fewer colors tell apart; without yellow, which white swallows.
const COLORS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F"];
const SIZE: (f64, f64) = (760.0, 430.0);
const SMALL: (f64, f64) = (520.0, 260.0);

impl Figure {
    fn highest(&self) -> f64 {
        let all = self.series.iter().chain(&self.paper);
        let ys = all.flat_map(|s| &s.points).map(|p| p.1).chain(self.line);
        ys.filter(|y| y.is_finite()).fold(0.0, f64::max)
    }

    fn scene(&self, look: Look) -> kuva::render::render::Scene {
        let highest = self.y_max.unwrap_or_else(|| self.highest());
        // What is beyond the scale runs along its upper edge.
        let top = if highest > 0.0 { highest * 1.05 } else { f64::INFINITY };
        let lines =
            self.series.iter().enumerate().map(|(i, s)| Plot::Line(line(s, i, top, self.hides(i, highest))));
        let bars = !self.categories.is_empty();
        let mut plots: Vec<Plot> = if bars { vec![Plot::Bar(self.bars())] } else { lines.collect() };
        plots.extend(self.paper.iter().map(|s| Plot::Scatter(self.markers(s))));
        let xs = || self.series.iter().flat_map(|s| &s.points).map(|p| p.0).filter(|x| x.is_finite());
        let (low, high) = (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max));
        let (width, height) = if self.small { SMALL } else { SIZE };
        let theme = match look {
            Look::Light => {
                Theme { grid_color: "#e4e4e4".into(), legend_border: "#dddddd".into(), ..Theme::light() }
            }
            Look::Dark => {
                Theme { background: "#16191d".into(), legend_bg: "#16191d".into(), ..Theme::dark() }
            }
        };
        let mut layout = Layout::auto_from_plots(&plots)
            .with_width(width)
            .with_height(height)
            .with_title(self.title.clone())
            .with_title_size(15)
            .with_label_size(13)
            .with_x_label(self.x_label.clone())
            .with_y_label(self.y_label.clone())
            .with_y_axis_min(self.y_min.unwrap_or(0.0))
            .with_legend_position(LegendPosition::OutsideRightTop)
            .with_theme(theme);
        if highest > 0.0 {
            let above = if self.y_min.is_some() { highest } else { highest * 1.05 };
            layout = layout.with_y_axis_max(above);
        }
        if bars {
            layout.x_tick_rotate = None;
        } else if self.x_log {
            layout = layout.with_log_x();
        } else if low < high {
            // A marker at the end is seen whole.
            let room = if self.paper.is_empty() { 0.0 } else { (high - low) * 0.02 };
            layout = layout.with_x_axis_min(low).with_x_axis_max(high + room);
            if let Some(step) = whole_steps(xs(), low, high) {
                layout = layout.with_x_tick_step(step);
            }
        }
        let named = self.series.iter().any(|s| !s.name.is_empty());
        if named || !self.paper.is_empty() {
            layout = layout.with_legend_entries(self.entries(bars, look));
            if let Some(title) = self.legend.as_ref().filter(|_| named) {
                layout = layout.with_legend_title(title.clone());
            }
        }
        if let Some(y) = self.line {
            layout = layout.with_reference_line(ReferenceLine::horizontal(y).with_color("#999999"));
        }
        render_multiple(plots, layout)
    }

    /// Whether a line runs over one that was drawn before, most of its way: it would hide it.
    fn hides(&self, i: usize, highest: f64) -> bool {
        let over = |before: &Series| {
            let close =
                |(a, b): (&(f64, f64), &(f64, f64))| a.0 == b.0 && (a.1 - b.1).abs() <= 0.01 * highest;
            let same = self.series[i].points.iter().zip(&before.points).filter(|pair| close(*pair)).count();
            same * 2 >= self.series[i].points.len() && same > 0
        };
        self.series[..i].iter().any(over)
    }

    /// What the legend says: a line or a bar each, and open markers for what the paper has.
    fn entries(&self, bars: bool, look: Look) -> Vec<LegendEntry> {
        let highest = self.y_max.unwrap_or_else(|| self.highest());
        let shape = if bars { LegendShape::Rect } else { LegendShape::Line };
        let drawn =
            self.series.iter().enumerate().filter(|(_, s)| !s.name.is_empty()).map(|(i, s)| LegendEntry {
                label: s.name.clone(),
                color: COLORS[i % COLORS.len()].into(),
                shape,
                dasharray: (!bars && (i >= COLORS.len() || self.hides(i, highest))).then(|| "6 3".into()),
            });
        // The library draws no open marker in a legend: a ring of the ink's color is told by its name.
        let ink = if look == Look::Light { "#333333" } else { "#dddddd" };
        let paper = self.paper.iter().map(|s| LegendEntry {
            label: if s.name.is_empty() { "○ paper".into() } else { format!("○ {} (paper)", s.name) },
            color: if s.name.is_empty() { ink.into() } else { self.color_of(s).into() },
            shape: LegendShape::CircleSize(0.0),
            dasharray: None,
        });
        drawn.chain(paper).collect()
    }

    fn color_of(&self, series: &Series) -> &'static str {
        let of = self.series.iter().position(|s| s.name == series.name).unwrap_or(COLORS.len() - 1);
        COLORS[of % COLORS.len()]
    }

    /// A group of bars for each category, a bar for each series.
    fn bars(&self) -> BarPlot {
        let mut plot = BarPlot::new();
        for (at, category) in self.categories.iter().enumerate() {
            let value =
                |s: &Series| s.points.get(at).map_or(0.0, |p| if p.1.is_finite() { p.1 } else { 0.0 });
            let bars = self.series.iter().enumerate().map(|(i, s)| (value(s), COLORS[i % COLORS.len()]));
            plot = plot.with_group(category.clone(), bars.collect::<Vec<_>>());
        }
        plot
    }

    /// Open markers, in the color of the line that they belong to.
    fn markers(&self, series: &Series) -> ScatterPlot {
        ScatterPlot::new()
            .with_data(series.points.clone())
            .with_color(self.color_of(series))
            .with_size(5.0)
            .with_marker(MarkerShape::Circle)
            .with_marker_opacity(0.0)
            .with_marker_stroke_width(1.6)
    }

    /// As a vector picture.
    pub fn svg(&self, look: Look) -> String {
        SvgBackend::default().render_scene(&self.scene(look))
    }

    /// As a bitmap.
    pub fn png(&self) -> Result<Vec<u8>> {
        PngBackend::new()
            .with_scale(1.5)
            .render_scene(&self.scene(Look::Light))
            .map_err(|why| anyhow::anyhow!("drawing {}: {why}", self.name))
    }

    /// Its points: one row each.
    pub fn csv(&self) -> String {
        let mut out = format!("series,{},{}\n", field(&self.x_label), field(&self.y_label));
        let paper = self.paper.iter().map(|s| (format!("{} (paper)", s.name).trim().to_owned(), s));
        for (name, series) in self.series.iter().map(|s| (s.name.clone(), s)).chain(paper) {
            for (x, y) in &series.points {
                let x = match self.categories.get(*x as usize) {
                    Some(category) => field(category),
                    None => x.to_string(),
                };
                writeln!(out, "{},{x},{y}", field(&name)).expect("writing to a string succeeds");
            }
        }
        out
    }

    /// Writes NAME.svg, NAME.png and NAME.csv, and of a small one NAME-dark.svg.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let write = |ending: &str, bytes: &[u8]| {
            let path = dir.join(format!("{}.{ending}", self.name));
            std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))
        };
        write("svg", self.svg(Look::Light).as_bytes())?;
        if self.small {
            let path = dir.join(format!("{}-dark.svg", self.name));
            std::fs::write(&path, self.svg(Look::Dark))
                .with_context(|| format!("writing {}", path.display()))?;
        }
        write("png", &self.png()?)?;
        write("csv", self.csv().as_bytes())
    }
}

fn line(series: &Series, i: usize, top: f64, over: bool) -> LinePlot {
    let style = match i / COLORS.len() {
        0 if over => LineStyle::Dashed,
        0 => LineStyle::Solid,
        1 => LineStyle::Dashed,
        _ => LineStyle::Dotted,
    };
    let points = series.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite());
    let plot = LinePlot::new()
        .with_data(points.map(|(x, y)| (x, y.min(top))).collect::<Vec<_>>())
        .with_color(COLORS[i % COLORS.len()])
        .with_stroke_width(1.8)
        .with_line_style(style);
    if series.steps { plot.with_step() } else { plot }
}

/// The distance of ticks where all that is below are whole numbers, for there is no half a thread; some ten of them.
fn whole_steps(xs: impl Iterator<Item = f64>, low: f64, high: f64) -> Option<f64> {
    let mut xs = xs.peekable();
    xs.peek()?;
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0, 25.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];
    let fits = steps.into_iter().find(|step| (high - low) / step <= 12.0);
    fits.filter(|_| xs.all(|x| x.fract() == 0.0))
}

/// A field of CSV: quoted where it must be.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure() -> Figure {
        Figure {
            name: "shares".into(),
            title: "Shares".into(),
            x_label: "time (s)".into(),
            y_label: "requests/s, all".into(),
            series: vec![Series {
                name: "a".into(),
                points: vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.5)],
                steps: false,
            }],
            line: Some(2.0),
            ..Figure::default()
        }
    }

    #[test]
    fn csv_holds_every_point() {
        assert_eq!(figure().csv(), "series,time (s),\"requests/s, all\"\na,0,1\na,1,NaN\na,2,3.5\n");
    }

    #[test]
    fn all_kinds_are_written() {
        let dir = tempfile::tempdir().unwrap();
        figure().write(dir.path()).unwrap();
        let png = std::fs::read(dir.path().join("shares.png")).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        let svg = std::fs::read_to_string(dir.path().join("shares.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("requests/s, all"));
        // Bars, and what a paper has.
        let categories = vec!["none".to_owned(), "total".to_owned(), "hybrid, one of three".to_owned()];
        let bars = Figure { categories, ..figure() };
        assert_eq!(
            bars.csv(),
            "series,time (s),\"requests/s, all\"\na,none,1\na,total,NaN\na,\"hybrid, one of three\",3.5\n"
        );
        assert!(bars.svg(Look::Light).contains("hybrid, one of three"));
        let paper = vec![Series { name: "a".into(), points: vec![(1.0, 2.0)], steps: false }];
        assert!(Figure { paper, ..figure() }.svg(Look::Light).contains("○ a (paper)"));
        // A figure of nothing is drawn, too.
        Figure { series: Vec::new(), line: None, ..figure() }.write(dir.path()).unwrap();
    }
}
