//! Which figures a scenario wants; drawing them is somebody else's business.

use crate::experiment::expression;
use crate::rule::Expr;
use henge_core::{ParamError, Params, Value};

/// One figure.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Its file's name.
    pub name: String,
    /// Above it.
    pub title: String,
    /// Left of it.
    pub y_label: String,
    /// Below it.
    pub x_label: String,
    /// What it shows.
    pub kind: PlotKind,
    /// A horizontal line: what was promised.
    pub line: Option<f64>,
    /// Only these runs: axis and value.
    pub only: Vec<(String, String)>,
    /// Only these values of the series axis; all where nothing is said.
    pub among: Vec<String>,
    /// Where the scale ends; at the highest value where nothing is said.
    pub y_max: Option<f64>,
    /// Where the scale begins; at 0 where nothing is said.
    pub y_min: Option<f64>,
    /// Whether equal distances below are equal ratios.
    pub x_log: bool,
    /// Drawn for a page beside text.
    pub small: bool,
    /// What the paper has: points, by the name of what they belong to.
    pub paper: Vec<(String, Vec<(f64, f64)>)>,
}

/// What a figure shows.
#[derive(Clone, Debug)]
pub enum PlotKind {
    /// An expression over the values of an axis, a line for each value of another.
    Line {
        /// The axis below.
        x: String,
        /// One line each; `None` draws one.
        series: Option<String>,
        /// What: several named expressions, or one.
        y: Vec<(String, Expr)>,
    },
    /// A measure over time, in windows, for some flows.
    Time {
        /// `rate`, `throughput`, `p95` …
        what: String,
        /// Which.
        flows: Vec<String>,
        /// One panel of lines per value of this axis.
        series: Option<String>,
        /// Only from here on, in seconds of the run.
        from: Option<f64>,
    },
    /// Curves of equal value: at each value of one axis, the least value of another from which on an expression reaches a level.
    Iso {
        /// The axis below.
        x: String,
        /// The axis that is sought.
        over: String,
        /// For each of its values a line for each level; `None` draws the levels alone.
        series: Option<String>,
        /// What must reach the level.
        y: Expr,
        /// The levels, with their names.
        levels: Vec<(String, f64)>,
    },
    /// The distribution of latencies, for some flows.
    Cdf {
        /// Which.
        flows: Vec<String>,
        /// One line per value of this axis.
        series: Option<String>,
        /// To where, in seconds.
        until: Option<f64>,
    },
}

impl Plot {
    /// The axis of whose values it shows several.
    pub fn series(&self) -> Option<&str> {
        match &self.kind {
            PlotKind::Line { series, .. } | PlotKind::Iso { series, .. } => series.as_deref(),
            PlotKind::Time { series, .. } | PlotKind::Cdf { series, .. } => series.as_deref(),
        }
    }

    /// Where of an axis one value alone is left: whether it still shows anything, which it then does of that.
    pub fn keep(&mut self, axis: &str, value: &str) -> bool {
        let here = |of: &String| of == value;
        let shown = self.only.iter().all(|(bound, of)| bound != axis || of == value);
        if self.series() != Some(axis) || self.among.is_empty() {
            return shown;
        }
        self.among.retain(here);
        shown && !self.among.is_empty()
    }

    pub(crate) fn read(mut p: Params) -> Result<Plot, ParamError> {
        let name = p.text("name")?;
        let name = p.required("name", name)?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            return Err(p.error("name", "the name of a figure has letters, digits, - and _".into()));
        }
        let title = p.text("title")?.unwrap_or_else(|| name.clone());
        let y_label = p.text("y_label")?.unwrap_or_default();
        let series = p.text("series")?;
        let (kind, x_label) = kind(&mut p, series)?;
        let x_label = p.text("x_label")?.unwrap_or(x_label);
        let line = p.number("line")?;
        let only = each(&mut p, "only", |t, k| Ok(t.text(k)?.unwrap_or_default()))?;
        let among = names(&mut p, "among")?;
        let (y_min, y_max) = (p.number("y_min")?, p.number("y_max")?);
        let (x_log, small) = (p.bool("x_log")?.unwrap_or(false), p.bool("small")?.unwrap_or(false));
        let paper = each(&mut p, "paper", points)?;
        p.finish()?;
        Ok(Plot { name, title, y_label, x_label, kind, line, only, among, y_max, y_min, x_log, small, paper })
    }
}

/// What is drawn, and what its horizontal axis is called where nothing else is said.
fn kind(p: &mut Params, series: Option<String>) -> Result<(PlotKind, String), ParamError> {
    match p.text("kind")?.as_deref() {
        None | Some("line") => {
            let x = p.text("x")?;
            let x = p.required("x", x)?;
            let y = match p.table("ys")? {
                None => vec![(String::new(), expression(p, "y")?)],
                Some(mut t) => of_keys(&mut t, expression)?,
            };
            Ok((PlotKind::Line { x: x.clone(), series, y }, x))
        }
        Some("iso") => {
            let (x, over) = (p.text("x")?, p.text("over")?);
            let (x, over) = (p.required("x", x)?, p.required("over", over)?);
            let y = expression(p, "y")?;
            let table = p.table("levels")?;
            let mut table = p.required("levels", table)?;
            let levels = of_keys(&mut table, |t, key| {
                let level = t.number(key)?;
                t.required(key, level)
            })?;
            Ok((PlotKind::Iso { x: x.clone(), over, series, y, levels }, x))
        }
        Some("time") => {
            let what = p.text("what")?;
            let what = p.required("what", what)?;
            let from = p.duration("from")?.map(|d| d.as_secs_f64());
            Ok((PlotKind::Time { what, flows: names(p, "flows")?, series, from }, "time (s)".to_owned()))
        }
        Some("cdf") => {
            let until = p.duration("until")?.map(|d| d.as_secs_f64());
            Ok((PlotKind::Cdf { flows: names(p, "flows")?, series, until }, "latency (ms)".to_owned()))
        }
        Some(other) => {
            let message = format!("kind is \"line\", \"iso\", \"time\" or \"cdf\", not \"{other}\"");
            Err(p.error("kind", message))
        }
    }
}

/// Reads a table whose keys are names; one that is not there has none.
fn each<T>(
    p: &mut Params,
    table: &str,
    read: impl Fn(&mut Params, &str) -> Result<T, ParamError>,
) -> Result<Vec<(String, T)>, ParamError> {
    p.table(table)?.map_or(Ok(Vec::new()), |mut t| of_keys(&mut t, read))
}

fn of_keys<T>(
    table: &mut Params,
    read: impl Fn(&mut Params, &str) -> Result<T, ParamError>,
) -> Result<Vec<(String, T)>, ParamError> {
    table.keys().into_iter().map(|key| Ok((key.clone(), read(table, &key)?))).collect()
}

/// `[[2, 1.25], [10, 1.05]]`
fn points(p: &mut Params, key: &str) -> Result<Vec<(f64, f64)>, ParamError> {
    let wrong = p.error(key, format!("{key} is a list of points, like [[2, 1.25], [10, 1.05]]"));
    let number = |value: &Value| match value {
        Value::Integer(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        _ => None,
    };
    let point = |value: &Value| match value {
        Value::List(pair) => match pair.as_slice() {
            [(x, _), (y, _)] => number(x).zip(number(y)),
            _ => None,
        },
        _ => None,
    };
    match p.take(key) {
        Some(Value::List(items)) => items.iter().map(|(v, _)| point(v).ok_or(wrong.clone())).collect(),
        _ => Err(wrong),
    }
}

fn names(p: &mut Params, key: &str) -> Result<Vec<String>, ParamError> {
    let wrong = |p: &Params| p.error(key, format!("{key} is a list of names"));
    match p.take(key) {
        None => Ok(Vec::new()),
        Some(Value::List(items)) => items
            .into_iter()
            .map(|(v, _)| match v {
                Value::Text(t) => Ok(t),
                _ => Err(wrong(p)),
            })
            .collect(),
        Some(_) => Err(wrong(p)),
    }
}
