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
use toml::de::{DeString, DeTable, DeValue};

/// Longest file, in bytes: room for a hundred thousand disks.
const FILE_MAX: u64 = 16 << 20;
/// Longest line that an error shows, in bytes, and longest message, in characters: what it says ends in logs.
const SHOWN_MAX: usize = 400;

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
    /// Reads a file of at most 16 MiB.
    ///
    /// # Errors
    /// It cannot be read, is no regular file, is longer, or is not UTF-8. The error names it.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        let text = henge_io::read_text(path, FILE_MAX)?;
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
        let entry = |(key, value): (&toml::Spanned<DeString<'_>>, &toml::Spanned<DeValue<'_>>)| {
            let key = key.get_ref().as_ref();
            Ok((key.to_owned(), self.value(key, value.get_ref(), value.span())?, value.span()))
        };
        // TOML has each key once.
        params.extend(table.iter().map(entry).collect::<Result<Vec<_>, ParamError>>()?);
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
    pub fn point(&self, mut error: ParamError) -> ConfigError {
        if let Some((end, _)) = error.message.char_indices().nth(SHOWN_MAX) {
            error.message.truncate(end);
            error.message.push('…');
        }
        let start = error.span.start.min(self.text.len());
        if error.span.is_empty() && start == 0 {
            let rendered = error.help.as_ref().map_or(String::new(), |h| format!("\n  = {h}"));
            return ConfigError { place: format!("{}: ", self.name), error, rendered };
        }
        let line_start = self.text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |i| start + i);
        let number = self.text[..start].matches('\n').count() + 1;
        let column = self.text[line_start..start].chars().count() + 1;
        let place = format!("{}:{number}:{column}: ", self.name);
        if line_end - line_start > SHOWN_MAX {
            let rendered = error.help.as_ref().map_or(String::new(), |h| format!("\n  = {h}"));
            return ConfigError { place, error, rendered };
        }
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
        ConfigError { place, error, rendered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: String) -> String {
        let read = Source::new("node.toml", text).parse("the node");
        let why = read.expect_err("it is wrong").to_string();
        assert!(why.len() < 2000, "{} bytes for a log", why.len());
        why
    }

    #[test]
    fn a_file_that_nobody_wrote_by_hand_is_refused_in_a_few_words() {
        assert!(refused(format!("a = {}", "[".repeat(10_000))).contains("recurs"));
        assert!(refused(format!("{}a = 1", "a.".repeat(10_000))).contains("recurs"));
        assert!(refused(format!("[{}a]", "a.".repeat(10_000))).contains("recurs"));
        assert!(refused(format!("a = {}1", "{ a = ".repeat(10_000))).contains("recurs"));
        let long = "x".repeat(1 << 20);
        assert!(refused(format!("{long} = 1\n{long} = 2\n")).contains("node.toml:2:1: "));
        assert!(refused(format!("a = \"{long}\nb = 1\n")).contains("node.toml:1:"));
        let source = Source::new("node.toml", format!("capacity = \"{long}\"\n{long} = 1\n"));
        let mut node = source.parse("the node").expect("each key is there once");
        let why = source.point(node.size("capacity").unwrap_err()).to_string();
        assert!(
            why.len() < 2000 && why.starts_with("node.toml:1:12: capacity: \"xxx"),
            "{} bytes",
            why.len()
        );
        let why = source.point(node.finish().unwrap_err()).to_string();
        assert!(why.len() < 2000 && why.starts_with("node.toml:2:"), "{} bytes", why.len());
    }

    #[test]
    fn what_is_no_file_of_a_sensible_length_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.toml");
        std::fs::File::create(&path).unwrap().set_len(FILE_MAX + 1).unwrap();
        let why = Source::read(&path).unwrap_err().to_string();
        assert!(why.contains("node.toml: is longer than 16777216 bytes"), "{why}");
        assert!(Source::read(Path::new("/dev/zero")).unwrap_err().to_string().contains("a device"));
    }
}
