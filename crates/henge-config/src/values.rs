//! Values that several programs' configurations have: lists of texts, secrets.

use henge_core::{ParamError, Params, Value};
use std::path::Path;

/// Longest file with a secret, in bytes.
const SECRET_FILE_MAX: u64 = 4096;

/// One text, or a list of some.
pub fn texts(p: &mut Params, key: &str) -> Result<Option<Vec<String>>, ParamError> {
    let span = p.error(key, String::new()).span;
    let wrong = |span| {
        let message = format!("{key} is a text, or a list of texts");
        ParamError { message, help: None, span }
    };
    match p.take(key) {
        None => Ok(None),
        Some(Value::Text(one)) => Ok(Some(vec![one])),
        Some(Value::List(items)) if !items.is_empty() => {
            let text = |(value, span)| match value {
                Value::Text(text) => Ok(text),
                _ => Err(wrong(span)),
            };
            items.into_iter().map(text).collect::<Result<_, _>>().map(Some)
        }
        Some(_) => Err(wrong(span)),
    }
}

/// Reads `secret = "…"` or `secret_file = "…"`.
pub fn secret(p: &mut Params) -> Result<String, ParamError> {
    let short = "a secret has at least 16 characters; `openssl rand -hex 32` makes a good one";
    match (p.text("secret")?, p.text("secret_file")?) {
        (Some(secret), None) if secret.len() >= 16 => Ok(secret),
        (Some(_), None) => Err(p.error("secret", short.into())),
        (None, Some(file)) => {
            let text = henge_io::read_text(Path::new(&file), SECRET_FILE_MAX)
                .map_err(|e| p.error("secret_file", e.to_string()))?;
            let secret = text.trim().to_owned();
            if secret.len() < 16 {
                Err(p.error("secret_file", format!("{file}: {short}")))
            } else {
                Ok(secret)
            }
        }
        (Some(_), Some(_)) => Err(p.error("secret", "secret or secret_file, not both".into())),
        (None, None) => Err(p.error_here(format!("{} needs a secret_file (or a secret)", p.name()))),
    }
}
