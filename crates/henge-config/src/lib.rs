//! Configuration files: TOML becomes [`Params`], and every error points into the file.
//!
//! ```
//! use henge_config::Source;
//! let source = Source::new("node.toml", "[[disk]]\nname = \"web\"\ncapacity = 96\n");
//! let mut file = source.parse("node.toml").unwrap();
//! let mut disk = file.tables("disk").unwrap().remove(0);
//! let error = source.point(disk.size("capacity").unwrap_err());
//! assert!(error.to_string().contains("node.toml:3:12: capacity: \"96\" has no unit"));
//! ```

mod redact;
mod values;

pub use redact::redacted;
pub use values::{secret, texts};

use henge_core::{ParamError, Params, Value};
use std::fmt;
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// The text of a configuration file, with the name that errors show.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
}

/// An error in a configuration file, shown with the line it means.
#[derive(Debug)]
pub struct ConfigError {
    place: String,
    error: ParamError,
    rendered: String,
}

impl ConfigError {
    /// What is wrong, and where in the file.
    pub fn param(&self) -> &ParamError {
        &self.error
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.place, self.error.message, self.rendered)
    }
}
impl std::error::Error for ConfigError {}

impl Source {
    /// A text that is already here.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Source { name: name.into(), text: text.into() }
    }
    /// Reads a file.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| std::io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        Ok(Source::new(path.display().to_string(), text))
    }
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file as a table; `what` is how messages about the whole file call it.
    pub fn parse(&self, what: &str) -> Result<Params, ConfigError> {
        let table = DeTable::parse(&self.text).map_err(|e| {
            self.point(ParamError {
                message: e.message().to_owned(),
                help: None,
                span: e.span().unwrap_or_default(),
            })
        })?;
        self.table(what, table.get_ref(), table.span()).map_err(|e| self.point(e))
    }

    fn table(
        &self,
        name: &str,
        table: &DeTable<'_>,
        span: std::ops::Range<usize>,
    ) -> Result<Params, ParamError> {
        let mut params = Params::at(name, span);
        for (key, value) in table {
            let key = key.get_ref().as_ref();
            let span = value.span();
            params.set(key, self.value(key, value.get_ref(), span.clone())?, span);
        }
        Ok(params)
    }

    fn value(
        &self,
        key: &str,
        value: &DeValue<'_>,
        span: std::ops::Range<usize>,
    ) -> Result<Value, ParamError> {
        let unreadable =
            |what: &str| ParamError { message: format!("{key} is {what}"), help: None, span: span.clone() };
        Ok(match value {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Boolean(b) => Value::Bool(*b),
            DeValue::Integer(n) => {
                let digits: String = n.as_str().chars().filter(|c| *c != '_').collect();
                Value::Integer(
                    i64::from_str_radix(&digits, n.radix()).map_err(|_| unreadable("too large a number"))?,
                )
            }
            DeValue::Float(x) => {
                Value::Float(x.as_str().replace('_', "").parse().map_err(|_| unreadable("not a number"))?)
            }
            DeValue::Datetime(_) => return Err(unreadable("a date; dates are not used here")),
            DeValue::Array(items) => {
                let item =
                    |v: &toml::Spanned<DeValue<'_>>| Ok((self.value(key, v.get_ref(), v.span())?, v.span()));
                Value::List(items.iter().map(item).collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => Value::Table(self.table(key, table, span)?),
        })
    }

    /// Gives an error its place in this file: `FILE:LINE:COLUMN: message`, the line, and a caret below.
    pub fn point(&self, error: ParamError) -> ConfigError {
        let start = error.span.start.min(self.text.len());
        if error.span.is_empty() && start == 0 {
            let rendered = error.help.as_ref().map_or(String::new(), |h| format!("\n  = {h}"));
            return ConfigError { place: format!("{}: ", self.name), error, rendered };
        }
        let line_start = self.text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |i| start + i);
        let number = self.text[..start].matches('\n').count() + 1;
        let column = self.text[line_start..start].chars().count() + 1;
        // Secrets are not shown: what this says ends in logs.
        let shown = |end: usize| match redact::begins_within(&self.text, line_start) {
            true => redact::HIDDEN.to_owned(),
            false => redacted(&self.text[line_start..end]),
        };
        let line = shown(line_end);
        let before = shown(start).chars().count();
        let marked = shown(error.span.end.clamp(start, line_end)).chars().count();
        let marked = marked.saturating_sub(before).max(1);
        let gutter = number.to_string();
        let pad = " ".repeat(gutter.len());
        let mut rendered =
            format!("\n{pad} |\n{gutter} | {line}\n{pad} | {}{}", " ".repeat(before), "^".repeat(marked));
        if let Some(help) = &error.help {
            rendered.push_str(&format!("\n{pad} = {help}"));
        }
        ConfigError { place: format!("{}:{number}:{column}: ", self.name), error, rendered }
    }
}
