//! Reads values out of a facts file, each error naming its key by its whole path.

use henge_core::Duration;
use serde_json::Value;
use std::fmt;

/// What is wrong with a facts file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactsError {
    /// The key that is meant, by its path (`geometry.zones[2].first_cyl`); empty for the file as a whole.
    pub key: String,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for FactsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() { f.write_str(&self.what) } else { write!(f, "{}: {}", self.key, self.what) }
    }
}
impl std::error::Error for FactsError {}

impl FactsError {
    pub(crate) fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        FactsError { key: key.into(), what: what.into() }
    }
}

pub(crate) type Read<T> = Result<T, FactsError>;

/// One object of the file, and where it is.
pub(crate) struct Reader<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> Reader<'a> {
    pub fn root(value: &'a Value) -> Self {
        Reader { value, path: String::new() }
    }
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
    pub fn wrong<T>(&self, key: &str, what: impl Into<String>) -> Read<T> {
        Err(FactsError::new(self.path(key), what))
    }
    /// The value of a key that is there and not null.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.value.get(key).filter(|v| !v.is_null())
    }
    fn required(&self, key: &str) -> Read<&'a Value> {
        self.get(key).ok_or_else(|| FactsError::new(self.path(key), "is missing"))
    }
    pub fn object(&self, key: &str) -> Read<Reader<'a>> {
        let value = self.required(key)?;
        if value.is_object() {
            Ok(Reader { value, path: self.path(key) })
        } else {
            self.wrong(key, "is not an object { … }")
        }
    }
    pub fn array(&self, key: &str) -> Read<&'a [Value]> {
        match self.required(key)?.as_array() {
            Some(items) => Ok(items),
            None => self.wrong(key, "is not a list [ … ]"),
        }
    }
    pub fn objects(&self, key: &str) -> Read<Vec<Reader<'a>>> {
        let items = self.array(key)?;
        let reader = |(i, value)| Reader { value, path: format!("{}[{i}]", self.path(key)) };
        Ok(items.iter().enumerate().map(reader).collect())
    }
    pub fn text(&self, key: &str) -> Read<String> {
        match self.required(key)?.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => self.wrong(key, "is not a text"),
        }
    }
    pub fn text_or(&self, key: &str, default: &str) -> String {
        self.get(key).and_then(Value::as_str).unwrap_or(default).to_owned()
    }
    /// A finite number, at least zero: nothing in a facts file is negative.
    pub fn number(&self, key: &str) -> Read<f64> {
        match self.required(key)?.as_f64() {
            Some(x) if x.is_finite() && x >= 0.0 => Ok(x),
            Some(x) => self.wrong(key, format!("is {x}, but cannot be negative")),
            None => self.wrong(key, "is not a number"),
        }
    }
    pub fn number_or(&self, key: &str, default: f64) -> Read<f64> {
        if self.get(key).is_some() { self.number(key) } else { Ok(default) }
    }
    /// A whole number from `least` to `most`.
    pub fn integer(&self, key: &str, least: u64, most: u64) -> Read<u64> {
        let x = self.number(key)?;
        if x.fract() != 0.0 || x > 2f64.powi(53) {
            return self.wrong(key, format!("is {x}, not a whole number"));
        }
        let n = x as u64;
        if (least..=most).contains(&n) {
            Ok(n)
        } else {
            self.wrong(key, format!("is {n}, not from {least} to {most}"))
        }
    }
    pub fn integer_or(&self, key: &str, least: u64, most: u64, default: u64) -> Read<u64> {
        if self.get(key).is_some() { self.integer(key, least, most) } else { Ok(default) }
    }
    /// 0, 1, true or false; absent is false.
    pub fn flag(&self, key: &str) -> Read<bool> {
        match self.get(key) {
            Some(Value::Bool(b)) => Ok(*b),
            Some(_) => Ok(self.integer(key, 0, 1)? == 1),
            None => Ok(false),
        }
    }
    /// Milliseconds that a file must say, if only that they are 0.
    pub fn said_ms(&self, key: &str) -> Read<Duration> {
        self.required(key)?;
        self.ms(key)
    }
    /// Milliseconds; absent is zero.
    pub fn ms(&self, key: &str) -> Read<Duration> {
        let ms = self.number_or(key, 0.0)?;
        if ms > 60_000.0 {
            self.wrong(key, format!("is {ms} ms, more than a minute"))
        } else {
            Ok(from_ms(ms))
        }
    }
    /// Milliseconds of either sign, as what they add and what they take away; absent is zero.
    pub fn signed_ms(&self, key: &str) -> Read<(Duration, Duration)> {
        match self.get(key).and_then(Value::as_f64) {
            Some(ms) if (-1000.0..0.0).contains(&ms) => Ok((Duration::ZERO, from_ms(-ms))),
            _ => Ok((self.ms(key)?, Duration::ZERO)),
        }
    }
}

pub(crate) fn from_ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}
