//! Names and values as the configuration writes them.

use henge_core::{ParamError, Params, Value};
use std::ops::Range;

/// Names become file names and export names.
pub(crate) fn check_name(p: &Params, name: &str) -> Result<(), ParamError> {
    let fits = !name.is_empty()
        && name.len() <= 64
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if fits {
        return Ok(());
    }
    Err(p.error("name", format!("\"{name}\" is no name; up to 64 letters, digits, '.', '_' and '-' are")))
}

/// A value as TOML writes it, on one line.
pub(super) fn toml(value: &Value) -> String {
    match value {
        Value::Text(text) => format!("{text:?}"),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|(item, _)| toml(item)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(table) => table_text(table),
        plain => crate::operate::term(plain),
    }
}

pub(super) fn table_text(table: &Params) -> String {
    let mut copy = table.clone();
    let keys = table.keys();
    let pair = |key: &String| copy.take(key).map(|value| format!("{key:?} = {}", toml(&value)));
    let pairs: Vec<String> = keys.iter().filter_map(pair).collect();
    format!("{{ {} }}", pairs.join(", "))
}

/// An error that belongs to a place of the file, found after it was read.
pub(crate) fn at(span: &Range<usize>, message: String) -> ParamError {
    ParamError { message, help: None, span: span.clone() }
}
