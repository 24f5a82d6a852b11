//! A tree and what was measured, to a number or a verdict.

use super::parse::{Expr, Fold, Quantity};

/// Which value each bound axis has.
pub type Bindings = Vec<(String, String)>;

/// What an expression comes to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// A quantity.
    Number(f64),
    /// A verdict.
    Truth(bool),
}

/// Where names and quantities come from.
pub trait Quantities {
    /// What was measured in the run that `run` names, over the whole of it or a period in seconds.
    fn quantity(
        &self,
        of: &str,
        what: &str,
        arguments: &[f64],
        run: &Bindings,
        period: Option<(f64, f64)>,
    ) -> Result<f64, String>;
    /// The values of an axis, as they are written.
    fn axis(&self, name: &str) -> Option<Vec<String>>;
    /// A variable that is no axis.
    fn variable(&self, name: &str, run: &Bindings) -> Option<f64>;
}

impl Expr {
    /// As a number.
    pub fn number(&self, from: &dyn Quantities, run: &Bindings) -> Result<f64, String> {
        match self.value(from, run)? {
            Value::Number(n) => Ok(n),
            Value::Truth(_) => Err("a number is needed here, not a verdict".into()),
        }
    }
    /// As a verdict.
    pub fn truth(&self, from: &dyn Quantities, run: &Bindings) -> Result<bool, String> {
        match self.value(from, run)? {
            Value::Truth(t) => Ok(t),
            Value::Number(_) => Err("a verdict is needed here, like \"a > b\", not a number".into()),
        }
    }
    /// As what it is.
    pub fn value(&self, from: &dyn Quantities, run: &Bindings) -> Result<Value, String> {
        Ok(match self {
            Expr::Number(n) => Value::Number(*n),
            Expr::Name(name) => Value::Number(named(name, from, run)?),
            Expr::Quantity(quantity) => Value::Number(measured(quantity, from, run)?),
            Expr::Negative(a) => Value::Number(-a.number(from, run)?),
            Expr::Not(a) => Value::Truth(!a.truth(from, run)?),
            Expr::Binary("and", a, b) => Value::Truth(a.truth(from, run)? && b.truth(from, run)?),
            Expr::Binary("or", a, b) => Value::Truth(a.truth(from, run)? || b.truth(from, run)?),
            Expr::Binary(sign, a, b) => binary(sign, a.number(from, run)?, b.number(from, run)?),
            Expr::Near(a, b, within) => {
                let (a, b, within) = (a.number(from, run)?, b.number(from, run)?, within.number(from, run)?);
                Value::Truth((a - b).abs() <= within * b.abs())
            }
            Expr::Call(name, arguments) => {
                let values: Result<Vec<f64>, String> =
                    arguments.iter().map(|a| a.number(from, run)).collect();
                Value::Number(call(name, &values?)?)
            }
            Expr::Fold(fold) => folded(fold, from, run)?,
        })
    }
}

fn binary(sign: &str, a: f64, b: f64) -> Value {
    match sign {
        "+" => Value::Number(a + b),
        "-" => Value::Number(a - b),
        "*" => Value::Number(a * b),
        "/" => Value::Number(a / b),
        "<" => Value::Truth(a < b),
        "<=" => Value::Truth(a <= b),
        ">" => Value::Truth(a > b),
        ">=" => Value::Truth(a >= b),
        "==" => Value::Truth(a == b),
        other => unreachable!("the parser makes no \"{other}\""),
    }
}

fn call(name: &str, values: &[f64]) -> Result<f64, String> {
    match (name, values) {
        ("abs", [a]) => Ok(a.abs()),
        ("sqrt", [a]) => Ok(a.sqrt()),
        ("min", [_, ..]) => Ok(values.iter().copied().fold(f64::INFINITY, f64::min)),
        ("max", [_, ..]) => Ok(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        ("mean", [_, ..]) => Ok(values.iter().sum::<f64>() / values.len() as f64),
        ("sum", [_, ..]) => Ok(values.iter().sum()),
        _ => {
            Err(format!("no function {name} takes {} arguments; there are abs, sqrt, min, max", values.len()))
        }
    }
}

fn named(name: &str, from: &dyn Quantities, run: &Bindings) -> Result<f64, String> {
    if let Some((_, value)) = run.iter().rev().find(|(axis, _)| axis == name) {
        return value.parse().map_err(|_| format!("{name} is \"{value}\" here, which is no number"));
    }
    from.variable(name, run).ok_or_else(|| match from.axis(name) {
        Some(_) => format!("which {name}? bind it: all({name}: …), or [{name}=…]"),
        None => format!("{name} is not known here"),
    })
}

fn measured(quantity: &Quantity, from: &dyn Quantities, run: &Bindings) -> Result<f64, String> {
    let mut run = run.clone();
    for (axis, value) in &quantity.run {
        if from.axis(axis).is_none() {
            return Err(format!("{axis} is not an axis of this scenario"));
        }
        run.retain(|(bound, _)| bound != axis);
        run.push((axis.clone(), value.clone()));
    }
    let arguments: Result<Vec<f64>, String> =
        quantity.arguments.iter().map(|a| a.number(from, &run)).collect();
    let period = match &quantity.period {
        None => None,
        Some((a, b)) => Some((a.number(from, &run)?, b.number(from, &run)?)),
    };
    from.quantity(&quantity.of, &quantity.what, &arguments?, &run, period)
}

fn folded(fold: &Fold, from: &dyn Quantities, run: &Bindings) -> Result<Value, String> {
    let values =
        from.axis(&fold.axis).ok_or_else(|| format!("{} is not an axis of this scenario", fold.axis))?;
    let mut kept = Vec::new();
    for value in values {
        let mut run = run.clone();
        run.push((fold.axis.clone(), value));
        let holds = fold.when.as_ref().map_or(Ok(true), |when| when.truth(from, &run))?;
        if holds {
            kept.push(run);
        }
    }
    if kept.is_empty() {
        return Err(format!("no {} is left by the condition", fold.axis));
    }
    if matches!(fold.how.as_str(), "all" | "any" | "count") {
        let verdicts: Result<Vec<bool>, String> = kept.iter().map(|run| fold.body.truth(from, run)).collect();
        let verdicts = verdicts?;
        return Ok(match fold.how.as_str() {
            "all" => Value::Truth(verdicts.iter().all(|v| *v)),
            "any" => Value::Truth(verdicts.iter().any(|v| *v)),
            _ => Value::Number(verdicts.iter().filter(|v| **v).count() as f64),
        });
    }
    let numbers: Result<Vec<f64>, String> = kept.iter().map(|run| fold.body.number(from, run)).collect();
    call(&fold.how, &numbers?).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// VD.rate is 100 · S under "vc" and 110 · S under "cvc".
    struct Table;
    impl Quantities for Table {
        fn quantity(
            &self,
            of: &str,
            what: &str,
            arguments: &[f64],
            run: &Bindings,
            period: Option<(f64, f64)>,
        ) -> Result<f64, String> {
            let get = |axis: &str| run.iter().find(|(a, _)| a == axis).map(|(_, v)| v.as_str());
            let s: f64 = get("S").ok_or("which S?")?.parse().unwrap();
            let factor = if get("scheduler") == Some("cvc") { 110.0 } else { 100.0 };
            match (of, what) {
                ("VD", "rate") => Ok(factor * s + period.map_or(0.0, |(a, b)| b - a)),
                ("VD", "within") => Ok(arguments[0]),
                _ => Err(format!("{of}.{what} was not measured")),
            }
        }
        fn axis(&self, name: &str) -> Option<Vec<String>> {
            match name {
                "S" => Some(vec!["2".into(), "3".into(), "11".into()]),
                "scheduler" => Some(vec!["vc".into(), "cvc".into()]),
                _ => None,
            }
        }
        fn variable(&self, name: &str, _run: &Bindings) -> Option<f64> {
            (name == "C").then_some(350.0)
        }
    }

    fn value(text: &str) -> Result<Value, String> {
        Expr::parse(text)?.value(&Table, &Vec::new())
    }
    fn number(text: &str) -> f64 {
        match value(text).unwrap() {
            Value::Number(n) => n,
            Value::Truth(_) => panic!("{text} is a verdict"),
        }
    }

    #[test]
    fn arithmetic_and_units() {
        assert_eq!(number("1 + 2 * 3 - 4 / 2"), 5.0);
        assert_eq!(number("-(1 - 3) * C / 35"), 20.0);
        assert_eq!(number("120ms"), 0.12);
        assert_eq!(number("64KiB + 5%"), 65_536.05);
        assert_eq!(number("max(1, 3, 2) + abs(-4)"), 7.0);
    }

    #[test]
    fn runs_are_named_or_bound() {
        assert_eq!(number("VD.rate[scheduler=cvc, S=2]"), 220.0);
        assert_eq!(number("VD.rate[scheduler=vc, S=2, 10s..30s]"), 220.0);
        assert_eq!(number("max(S < 10: VD.rate[scheduler=vc])"), 300.0);
        assert_eq!(number("VD.within(120ms)[S=2]"), 0.12);
        assert_eq!(number("sum(S: S)"), 16.0);
        assert_eq!(number("count(S: VD.rate[scheduler=vc] >= 300)"), 2.0);
        assert_eq!(number("mean(scheduler: VD.rate[S=2])"), 210.0);
    }

    #[test]
    fn verdicts() {
        for (text, holds) in [
            ("all(S: VD.rate[scheduler=cvc] >= 1.09 * VD.rate[scheduler=vc])", true),
            ("all(S >= 11: VD.rate[scheduler=cvc] <= 1.05 * VD.rate[scheduler=vc])", false),
            ("any(S: VD.rate[scheduler=vc] > 1000)", true),
            ("1 < 2 < 3", true),
            ("1 < 3 < 2", false),
            ("not 1 < 2 or 2 == 2", true),
            ("104 ~ 100 within 5%", true),
            ("106 ~ 100 within 5%", false),
        ] {
            assert_eq!(value(text), Ok(Value::Truth(holds)), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, said) in [
            ("1 +", "expected a number, a name or \"(\" at character 4, not the end"),
            ("VD.rate[S=2", "expected ] at character 12"),
            ("x", "x is not known here"),
            ("S", "which S? bind it"),
            ("VD.rate[color=2]", "color is not an axis"),
            ("all(S > 99: S > 1)", "no S is left by the condition"),
            ("1 < 2 and 3", "a verdict is needed here"),
            ("12parsecs", "neither a time nor a size"),
            ("a ; b", "';' means nothing here"),
            ("VD.colour[S=2]", "VD.colour was not measured"),
        ] {
            let error = value(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    proptest::proptest! {
        /// Whatever is written, reading it ends with a value or a message.
        #[test]
        fn reading_never_panics(text in "[-a-zS0-9 .:,()<>=~%\\[\\]\"/*+]{0,40}") {
            let _ = value(&text);
        }
    }
}
