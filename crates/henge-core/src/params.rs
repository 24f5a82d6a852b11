//! A table of parameters as somebody wrote it, read key by key.
//!
//! Schedulers, devices and workloads take their knobs from here, so that one mechanism finds unknown
//! keys, missing units and values out of range, and every error knows which place of the file it means.
//! Nothing here reads a file: `henge-config` makes `Params` from TOML.
//!
//! ```
//! use henge_core::{Params, Value};
//! let mut p = Params::new("sfq").with("depth", Value::Integer(32)).with("detph", Value::Integer(3));
//! assert_eq!(p.integer("depth", 1, 1024).unwrap(), Some(32));
//! let error = p.finish().unwrap_err();
//! assert!(error.to_string().contains("unknown key \"detph\""));
//! ```

use crate::{Duration, QuantityError, Rate, parse_duration, parse_rate, parse_share, parse_size};
use std::fmt;
use std::ops::Range;

/// One value of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `true`
    Bool(bool),
    /// `32`
    Integer(i64),
    /// `0.25`
    Float(f64),
    /// `"20ms"`
    Text(String),
    /// `{ … }`
    Table(Params),
    /// `[ … ]`, each with its place
    List(Vec<(Value, Range<usize>)>),
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Value::Bool(_) => "true or false",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a number",
            Value::Text(_) => "a text",
            Value::Table(_) => "a table",
            Value::List(_) => "a list",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    key: String,
    value: Value,
    /// Bytes of the file; empty where there is no file.
    span: Range<usize>,
    taken: bool,
}

/// A named table whose keys are taken one by one; what is left at the end was not understood.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Params {
    name: String,
    span: Range<usize>,
    entries: Vec<Entry>,
    asked: Vec<String>,
}

/// What is wrong, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamError {
    /// What is wrong.
    pub message: String,
    /// What would be right, where that is known.
    pub help: Option<String>,
    /// Bytes of the file that are meant; empty where there is no file.
    pub span: Range<usize>,
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}
impl std::error::Error for ParamError {}

/// Adds keys that are not there yet, with their places. It looks at no others: a file may have a million of them.
impl Extend<(String, Value, Range<usize>)> for Params {
    fn extend<I: IntoIterator<Item = (String, Value, Range<usize>)>>(&mut self, keys: I) {
        let entry = |(key, value, span)| Entry { key, value, span, taken: false };
        self.entries.extend(keys.into_iter().map(entry));
    }
}

impl Params {
    /// An empty table; `name` is how messages call it.
    pub fn new(name: &str) -> Self {
        Params { name: name.to_owned(), ..Params::default() }
    }
    /// The same, at a place of a file.
    pub fn at(name: &str, span: Range<usize>) -> Self {
        Params { name: name.to_owned(), span, ..Params::default() }
    }
    /// How messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Its place in the file.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }
    /// Adds or replaces a key.
    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.set(key, value, 0..0);
        self
    }
    /// Adds or replaces a key that stands at `span`.
    pub fn set(&mut self, key: &str, value: Value, span: Range<usize>) {
        self.entries.retain(|e| e.key != key);
        self.entries.push(Entry { key: key.to_owned(), value, span, taken: false });
    }
    /// The keys not taken yet, in the order they were written.
    pub fn keys(&self) -> Vec<String> {
        self.entries.iter().filter(|e| !e.taken).map(|e| e.key.clone()).collect()
    }
    /// What was not taken yet, as a table of the same name and place.
    #[must_use]
    pub fn rest(mut self) -> Self {
        self.entries.retain(|e| !e.taken);
        self.asked.clear();
        self
    }
    /// The value of a key, without taking it; to walk nested tables.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.entries.iter_mut().find(|e| e.key == key).map(|e| &mut e.value)
    }

    /// An error about `key`, at its place, or at the table's when the key is absent.
    pub fn error(&self, key: &str, message: String) -> ParamError {
        let span = self.entries.iter().find(|e| e.key == key).map_or(self.span.clone(), |e| e.span.clone());
        ParamError { message, help: None, span }
    }
    /// An error about the table as a whole.
    pub fn error_here(&self, message: String) -> ParamError {
        ParamError { message, help: None, span: self.span.clone() }
    }

    /// Takes a key as it is.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        if !self.asked.iter().any(|k| k == key) {
            self.asked.push(key.to_owned());
        }
        let entry = self.entries.iter_mut().find(|e| e.key == key && !e.taken)?;
        entry.taken = true;
        Some(entry.value.clone())
    }
    fn wrong(&self, key: &str, expected: &str, got: &Value) -> ParamError {
        self.error(key, format!("{key} is {expected}, not {}", got.kind()))
    }
    fn quantity<T>(&self, key: &str, parsed: Result<T, QuantityError>) -> Result<Option<T>, ParamError> {
        parsed.map(Some).map_err(|e| self.error(key, format!("{key}: {e}")))
    }
    /// The text of a quantity; a bare number becomes its digits, so that the parser can name the units.
    fn quantity_text(&mut self, key: &str, what: &str) -> Result<Option<String>, ParamError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Integer(n)) => Ok(Some(n.to_string())),
            Some(Value::Float(x)) => Ok(Some(x.to_string())),
            Some(other) => Err(self.wrong(key, what, &other)),
        }
    }

    /// A text.
    pub fn text(&mut self, key: &str) -> Result<Option<String>, ParamError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, "a text in quotes", &other)),
        }
    }
    /// `true` or `false`.
    pub fn bool(&mut self, key: &str) -> Result<Option<bool>, ParamError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(b)),
            Some(other) => Err(self.wrong(key, "true or false", &other)),
        }
    }
    /// A whole number from `least` to `most`.
    pub fn integer(&mut self, key: &str, least: u64, most: u64) -> Result<Option<u64>, ParamError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Integer(n)) => match u64::try_from(n) {
                Ok(n) if (least..=most).contains(&n) => Ok(Some(n)),
                _ => {
                    Err(self.error(key, format!("{key} = {n} is out of range; it is from {least} to {most}")))
                }
            },
            Some(other) => Err(self.wrong(key, "a whole number", &other)),
        }
    }
    /// A number, whole or not.
    pub fn number(&mut self, key: &str) -> Result<Option<f64>, ParamError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Integer(n)) => Ok(Some(n as f64)),
            Some(Value::Float(x)) if x.is_finite() => Ok(Some(x)),
            Some(other) => Err(self.wrong(key, "a number", &other)),
        }
    }
    /// A span of time with its unit.
    pub fn duration(&mut self, key: &str) -> Result<Option<Duration>, ParamError> {
        match self.quantity_text(key, "a time like \"20ms\"")? {
            None => Ok(None),
            Some(text) => self.quantity(key, parse_duration(&text)),
        }
    }
    /// A size with its unit, in bytes.
    pub fn size(&mut self, key: &str) -> Result<Option<u64>, ParamError> {
        match self.quantity_text(key, "a size like \"64KiB\"")? {
            None => Ok(None),
            Some(text) => self.quantity(key, parse_size(&text)),
        }
    }
    /// A rate with its unit.
    pub fn rate(&mut self, key: &str) -> Result<Option<Rate>, ParamError> {
        match self.quantity_text(key, "a rate like \"675/s\" or \"4MB/s\"")? {
            None => Ok(None),
            Some(text) => self.quantity(key, parse_rate(&text)),
        }
    }
    /// A share in millionths: `"30%"` or a number from 0 to 1.
    pub fn share(&mut self, key: &str) -> Result<Option<u32>, ParamError> {
        match self.quantity_text(key, "a share like \"30%\"")? {
            None => Ok(None),
            Some(text) => self.quantity(key, parse_share(&text)),
        }
    }
    /// A nested table.
    pub fn table(&mut self, key: &str) -> Result<Option<Params>, ParamError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Table(table)) => Ok(Some(table)),
            Some(other) => Err(self.wrong(key, "a table { … }", &other)),
        }
    }
    /// A list of tables (`[[flow]]`); absent is empty.
    pub fn tables(&mut self, key: &str) -> Result<Vec<Params>, ParamError> {
        let items = match self.take(key) {
            None => return Ok(Vec::new()),
            Some(Value::List(items)) => items,
            Some(Value::Table(one)) => return Ok(vec![one]),
            Some(other) => return Err(self.wrong(key, "a list of tables", &other)),
        };
        let table = |(value, span): (Value, Range<usize>)| match value {
            Value::Table(table) => Ok(table),
            other => Err(ParamError {
                message: format!("{key} is a list of tables, not of {}", other.kind()),
                help: None,
                span,
            }),
        };
        items.into_iter().map(table).collect()
    }
    /// A choice written either as a bare name (`"fifo"`) or as a table with the name as its one key
    /// (`{ sfq = { depth = 32 } }`): the name, and its parameters.
    pub fn choice(&mut self, key: &str) -> Result<Option<(String, Params)>, ParamError> {
        let span = self.error(key, String::new()).span;
        match self.take(key) {
            None => Ok(None),
            Some(Value::Text(name)) => {
                let params = Params::at(&name, span);
                Ok(Some((name, params)))
            }
            Some(Value::Table(mut table)) => {
                let [name] = table.keys().try_into().map_err(|keys: Vec<String>| {
                    self.error(
                        key,
                        format!("{key} has one kind as its key, not {}: {}", keys.len(), keys.join(", ")),
                    )
                })?;
                let params = table.table(&name)?.expect("the key was just listed");
                Ok(Some((name, params)))
            }
            Some(other) => Err(self.wrong(key, "a name or a table { name = { … } }", &other)),
        }
    }
    /// For a key that must be there.
    pub fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, ParamError> {
        value.ok_or_else(|| self.missing(key, format!("{} needs {key}", self.name)))
    }
    /// A key that must be there is not: what stands in its stead nearly spelled so is the error.
    pub fn missing(&self, key: &str, message: String) -> ParamError {
        let most = (key.len() / 4).max(1);
        match self.entries.iter().find(|e| !e.taken && distance(key, &e.key) <= most) {
            Some(stray) => self.stray(stray, format!("did you mean \"{key}\"?")),
            None => self.error_here(message),
        }
    }
    fn stray(&self, stray: &Entry, help: String) -> ParamError {
        let message = format!("unknown key \"{}\" in {}", stray.key, self.name);
        ParamError { message, help: Some(help), span: stray.span.clone() }
    }
    /// Whether everything was understood: the first key that nobody asked for is an error.
    pub fn finish(self) -> Result<(), ParamError> {
        let Some(stray) = self.entries.iter().find(|e| !e.taken) else { return Ok(()) };
        // Who is much longer than all that are known was not meant as one of them.
        let near = match stray.key.len() > NEAR_MAX {
            true => None,
            false => self.asked.iter().min_by_key(|known| distance(known, &stray.key)),
        };
        let help = match near {
            Some(near) if distance(near, &stray.key) <= 2 => format!("did you mean \"{near}\"?"),
            _ if self.asked.is_empty() => "it takes none".to_owned(),
            _ => format!("known here: {}", self.asked.join(", ")),
        };
        Err(self.stray(stray, help))
    }
}

/// Longest key, in bytes, that is compared with those that are known: a comparison takes as long as both are long.
const NEAR_MAX: usize = 100;

/// Levenshtein distance, for "did you mean".
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_a_name_or_a_table() {
        let mut p = Params::new("pool").with("scheduler", Value::Text("fifo".into()));
        assert_eq!(p.choice("scheduler").unwrap().unwrap().0, "fifo");
        let inner = Params::new("sfq").with("depth", Value::Integer(8));
        let outer = Params::new("scheduler").with("sfq", Value::Table(inner));
        let mut p = Params::new("pool").with("scheduler", Value::Table(outer));
        let (name, mut params) = p.choice("scheduler").unwrap().unwrap();
        assert_eq!((name.as_str(), params.integer("depth", 1, 64).unwrap()), ("sfq", Some(8)));
    }

    #[test]
    fn a_near_miss_is_named() {
        let mut p = Params::new("disk").with("capcity", Value::Text("1GB".into()));
        assert_eq!(p.size("capacity").unwrap(), None);
        let missing = p.missing("capacity", "it needs a capacity".into());
        assert_eq!(missing.help.as_deref(), Some("did you mean \"capacity\"?"));
        assert_eq!(p.required::<u64>("name", None).unwrap_err().message, "disk needs name");
        assert_eq!(p.finish().unwrap_err().help.unwrap(), "did you mean \"capacity\"?");
    }

    #[test]
    fn a_bare_number_names_the_units() {
        let mut p = Params::new("contract").with("latency", Value::Integer(20));
        assert!(p.duration("latency").unwrap_err().message.contains("\"20ms\""));
    }
}
