//! A scenario that is run many times, and what the runs must show together.
//!
//! ```toml
//! title = "Efficiency of CVC"
//! [[vary]]                                  # an axis: every combination of values is a run
//! name = "scheduler"
//! key = "node.scheduler"
//! values = { cscan = "cscan", cvc = { cvc = { per = "spindle" } } }
//! [[vary]]
//! name = "S"                                # used as ${S}
//! values = [2, 10, 13]
//! [[measure]]                               # runs made before, whose result is a variable
//! name = "C"
//! set = { "node.scheduler" = "vc" }
//! value = "total.rate"
//! [[row]]
//! what = "fully booked: CVC within 5 % of VC"
//! paper = "≤ 1.05"
//! here = "max(S >= 10: total.rate[scheduler=cvc] / total.rate[scheduler=vc])"
//! holds = "here <= 1.05"
//! ```
//!
//! A text that contains `${expression}` has it replaced before the scenario is read, so that
//! `rate = "${2 * S * C / 210}/s"` is a rate.

use crate::rule::{Bindings, Expr, Quantities};
use crate::{Plot, edit};
use henge_core::{ParamError, Params, Value};
use std::ops::Range;

/// One value of an axis: its name, and what it sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// As rules and reports call it.
    pub name: String,
    /// Paths and values.
    pub sets: Vec<(String, Value)>,
}

/// What is varied.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// As rules call it.
    pub name: String,
    /// Its values.
    pub values: Vec<Setting>,
}

/// A variable that is measured before the runs.
#[derive(Clone, Debug)]
pub struct Measure {
    /// Its name.
    pub name: String,
    /// What that run sets.
    pub sets: Vec<(String, Value)>,
    /// What it is.
    pub value: Expr,
}

/// One line of the table paper / here / verdict.
#[derive(Clone, Debug)]
pub struct Row {
    /// What is compared.
    pub what: String,
    /// What the paper says.
    pub paper: String,
    /// What is computed from the runs.
    pub here: Expr,
    /// How it is shown: digits behind the point and a unit (`percent`, `x`, `ms`, …).
    pub unit: String,
    /// The verdict; `None` reports without judging.
    pub holds: Option<Expr>,
    /// Why it differs, where it is known to.
    pub note: Option<String>,
    /// The experiment whose lines show that this is why.
    pub shown_by: Option<String>,
    /// Where it is written.
    pub span: Range<usize>,
}

/// A scenario file with its axes, rules and plots.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What it is called.
    pub title: String,
    /// What it shows and with which settings, for people.
    pub about: String,
    /// What is varied.
    pub axes: Vec<Axis>,
    /// What is measured first.
    pub measures: Vec<Measure>,
    /// What the runs must show.
    pub rows: Vec<Row>,
    /// Figures.
    pub plots: Vec<Plot>,
    /// The scenario itself.
    pub base: Params,
}

/// A line of the verdict, computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// What is compared.
    pub what: String,
    /// What the paper says.
    pub paper: String,
    /// What came out.
    pub here: f64,
    /// In which unit.
    pub unit: String,
    /// Whether it holds; `None` where it is reported alone.
    pub holds: Option<bool>,
    /// Why it differs.
    pub note: Option<String>,
    /// The experiment whose lines show that this is why.
    pub shown_by: Option<String>,
}

impl Experiment {
    /// Takes what concerns an experiment out of a scenario's table.
    pub fn read(mut p: Params) -> Result<Experiment, ParamError> {
        let title = p.text("title")?.unwrap_or_default();
        let about = p.text("about")?.unwrap_or_default();
        let axes = p.tables("vary")?.into_iter().map(axis).collect::<Result<_, _>>()?;
        let measures: Vec<Measure> =
            p.tables("measure")?.into_iter().map(measure).collect::<Result<_, _>>()?;
        let rows: Vec<Row> = p.tables("row")?.into_iter().map(row).collect::<Result<_, _>>()?;
        let plots = p.tables("plot")?.into_iter().map(Plot::read).collect::<Result<_, _>>()?;
        check_measured(&rows, &measures)?;
        Ok(Experiment { title, about, axes, measures, rows, plots, base: p.rest() })
    }

    /// Replaces or adds an axis.
    pub fn vary(&mut self, axis: Axis) {
        self.axes.retain(|a| a.name != axis.name);
        self.axes.push(axis);
    }

    /// Every combination of the axes' values, the last axis fastest.
    pub fn runs(&self) -> Vec<Bindings> {
        let mut runs = vec![Bindings::new()];
        for axis in &self.axes {
            let with = |run: &Bindings, value: &Setting| {
                let mut run = run.clone();
                run.push((axis.name.clone(), value.name.clone()));
                run
            };
            runs = runs.iter().flat_map(|run| axis.values.iter().map(move |v| with(run, v))).collect();
        }
        runs
    }

    /// The scenario of one run.
    pub fn scenario(&self, run: &Bindings, variables: &dyn Quantities) -> Result<Params, ParamError> {
        let sets = run.iter().flat_map(|(axis, value)| {
            let axis = self.axes.iter().find(|a| a.name == *axis).expect("a run binds known axes");
            let setting = axis.values.iter().find(|s| s.name == *value).expect("to known values");
            setting.sets.iter()
        });
        self.with(sets, run, variables)
    }

    /// The scenario of a run that is made to measure a variable.
    pub fn measuring(&self, measure: &Measure, variables: &dyn Quantities) -> Result<Params, ParamError> {
        self.with(measure.sets.iter(), &Bindings::new(), variables)
    }

    fn with<'a>(
        &self,
        sets: impl Iterator<Item = &'a (String, Value)>,
        run: &Bindings,
        variables: &dyn Quantities,
    ) -> Result<Params, ParamError> {
        let mut p = self.base.clone();
        for (path, value) in sets {
            edit::set(&mut p, path, value.clone())?;
        }
        edit::texts(&mut p, &mut |text| fill(text, run, variables))
            .map_err(|message| self.base.error_here(message))?;
        Ok(p)
    }

    /// Judges what the runs showed.
    pub fn judge(&self, measured: &dyn Quantities) -> Result<Vec<Judged>, ParamError> {
        self.rows.iter().map(|row| row.judge(measured)).collect()
    }
}

/// A line that measures nothing says nothing: what it shows, and what it is judged by, must come from a run.
fn check_measured(rows: &[Row], measures: &[Measure]) -> Result<(), ParamError> {
    let measured = |name: &str| measures.iter().any(|m| m.name == name);
    for row in rows {
        let wrong = |message: &str, help: &str| {
            let span = row.span.clone();
            Err(ParamError { message: format!("\"{}\": {message}", row.what), help: Some(help.into()), span })
        };
        if !row.here.is_measured(&measured) {
            return wrong("here has no measured term", "a flow's, a node's or total's, like VD2.rate");
        }
        let judged = |rule: &Expr| rule.is_measured(&|name: &str| name == "here" || measured(name));
        if row.holds.as_ref().is_some_and(|rule| !judged(rule)) {
            return wrong("holds has no measured term", "it judges here, like here >= 675");
        }
    }
    Ok(())
}

impl Row {
    fn judge(&self, measured: &dyn Quantities) -> Result<Judged, ParamError> {
        let wrong = |message: String| ParamError { message, help: None, span: self.span.clone() };
        let here = self.here.number(measured, &Bindings::new()).map_err(wrong)?;
        let with_here = vec![("here".to_owned(), here.to_string())];
        let holds =
            self.holds.as_ref().map(|rule| rule.truth(measured, &with_here)).transpose().map_err(wrong)?;
        Ok(Judged {
            what: self.what.clone(),
            paper: self.paper.clone(),
            here,
            unit: self.unit.clone(),
            holds,
            note: self.note.clone(),
            shown_by: self.shown_by.clone(),
        })
    }
}

/// A required text, read as an expression.
pub(crate) fn expression(p: &mut Params, key: &str) -> Result<Expr, ParamError> {
    let text = p.text(key)?;
    let text = p.required(key, text)?;
    Expr::parse(&text).map_err(|message| p.error(key, message))
}

fn axis(mut p: Params) -> Result<Axis, ParamError> {
    let name = p.text("name")?;
    let name = p.required("name", name)?;
    let key = p.text("key")?;
    let place = p.error("values", String::new()).span;
    let wrong = |message: &str| ParamError { message: message.into(), help: None, span: place.clone() };
    let one = |name: String, value: Value| {
        let sets = match (&key, value) {
            (Some(key), value) => vec![(key.clone(), value)],
            // Without a key, a table's keys are paths; anything else is used as ${name} only.
            (None, Value::Table(mut table)) => {
                table.keys().into_iter().map(|k| (k.clone(), table.take(&k).expect("a listed key"))).collect()
            }
            (None, _) => Vec::new(),
        };
        Setting { name, sets }
    };
    let values: Vec<Setting> = match p.take("values") {
        Some(Value::List(items)) => items
            .into_iter()
            .map(|(value, _)| {
                let name = scalar(&value).ok_or_else(|| wrong("in a list, values are numbers or texts"))?;
                Ok(one(name, value))
            })
            .collect::<Result<_, ParamError>>()?,
        Some(Value::Table(mut table)) => {
            table.keys().into_iter().map(|k| one(k.clone(), table.take(&k).expect("a listed key"))).collect()
        }
        _ => return Err(wrong("an axis needs values: a list, or a table of named ones")),
    };
    if values.is_empty() {
        return Err(wrong("an axis has at least one value"));
    }
    p.finish()?;
    Ok(Axis { name, values })
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Bool(b) => Some(b.to_string()),
        Value::Integer(n) => Some(n.to_string()),
        Value::Float(x) => Some(x.to_string()),
        Value::Text(t) => Some(t.clone()),
        Value::Table(_) | Value::List(_) => None,
    }
}

fn measure(mut p: Params) -> Result<Measure, ParamError> {
    let name = p.text("name")?;
    let name = p.required("name", name)?;
    let value = expression(&mut p, "value")?;
    let sets = match p.table("set")? {
        None => Vec::new(),
        Some(mut t) => t.keys().into_iter().map(|k| (k.clone(), t.take(&k).expect("a listed key"))).collect(),
    };
    p.finish()?;
    Ok(Measure { name, sets, value })
}

fn row(mut p: Params) -> Result<Row, ParamError> {
    let what = p.text("what")?;
    let what = p.required("what", what)?;
    let paper = p.text("paper")?.unwrap_or_default();
    let here = expression(&mut p, "here")?;
    let unit = p.text("unit")?.unwrap_or_default();
    let holds = match p.text("holds")? {
        None => None,
        Some(text) => Some(Expr::parse(&text).map_err(|message| p.error("holds", message))?),
    };
    let note = p.text("note")?;
    let shown_by = p.text("shown_by")?;
    let span = p.span();
    p.finish()?;
    Ok(Row { what, paper, here, unit, holds, note, shown_by, span })
}

/// Replaces every `${…}` of a text; `None` where there is none.
fn fill(text: &str, run: &Bindings, variables: &dyn Quantities) -> Result<Option<Value>, String> {
    let Some(first) = text.find("${") else { return Ok(None) };
    if let Some(whole) = text.strip_prefix("${").and_then(|t| t.strip_suffix('}'))
        && first == 0
        && !whole.contains('}')
    {
        return filled(whole, run, variables).map(Some);
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        let end = rest[at..].find('}').ok_or_else(|| format!("\"{text}\": a ${{ is not closed"))? + at;
        match filled(&rest[at + 2..end], run, variables)? {
            Value::Integer(n) => out.push_str(&n.to_string()),
            // Quantities take a few digits behind the point, and no more are meant.
            Value::Float(x) => out.push_str(&format!("{x:.3}")),
            Value::Text(t) => out.push_str(&t),
            _ => unreachable!("an expression is a number or a name"),
        }
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    Ok(Some(Value::Text(out)))
}

fn filled(expression: &str, run: &Bindings, variables: &dyn Quantities) -> Result<Value, String> {
    let expression = expression.trim();
    if let Some((_, value)) = run.iter().find(|(axis, _)| axis == expression)
        && value.parse::<f64>().is_err()
    {
        return Ok(Value::Text(value.clone()));
    }
    let number = Expr::parse(expression)?.number(variables, run)?;
    if number.fract() == 0.0 && number.abs() < 1e15 {
        return Ok(Value::Integer(number as i64));
    }
    Ok(Value::Float(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged_by(here: &str, holds: &str) -> Result<(), ParamError> {
        let row = Row {
            what: "a line".into(),
            paper: String::new(),
            here: Expr::parse(here).unwrap(),
            unit: String::new(),
            holds: Some(Expr::parse(holds).unwrap()),
            note: None,
            shown_by: None,
            span: 0..0,
        };
        let measure =
            Measure { name: "C".into(), sets: Vec::new(), value: Expr::parse("total.rate").unwrap() };
        check_measured(&[row], &[measure])
    }

    #[test]
    fn a_rule_without_a_measured_term_is_refused() {
        for (here, holds) in [
            ("f.rate[S=2] * 4 - 175", "here >= 1"),
            ("C", "here > 350"),
            ("max(S <= 3: f.rate)", "here ~ 125 within 5%"),
            ("f.rate", "g.rate < 3 and 1 < 2"),
            ("min(S >= 0 and f.rate >= 3: S)", "here <= 5"),
        ] {
            judged_by(here, holds).unwrap_or_else(|e| panic!("{here}, {holds}: {e}"));
        }
        for (here, holds, said) in [
            ("4 * 40 - 35", "here >= 1", "here has no measured term"),
            ("max(S <= 3: S)", "here >= 1", "here has no measured term"),
            ("sum(S: 1)", "here == 3", "here has no measured term"),
            ("f.rate", "1 < 2", "holds has no measured term"),
            ("f.rate", "not 3 > 4", "holds has no measured term"),
        ] {
            let error = judged_by(here, holds).unwrap_err();
            assert!(error.message.contains(said), "{here}, {holds}: {}", error.message);
        }
    }
}
