//! Names and values as the configuration writes them.

use henge_core::{ParamError, Params};
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

/// An error that belongs to a place of the file, found after it was read.
pub(crate) fn at(span: &Range<usize>, message: String) -> ParamError {
    ParamError { message, help: None, span: span.clone() }
}
