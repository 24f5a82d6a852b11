//! Text to tokens.

use henge_core::{parse_duration, parse_size};

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token {
    Number(f64),
    Name(String),
    /// `"…"`, for values that are no name.
    Text(String),
    Sign(&'static str),
    End,
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Number(n) => write!(f, "{n}"),
            Token::Name(s) => f.write_str(s),
            Token::Text(s) => write!(f, "\"{s}\""),
            Token::Sign(s) => f.write_str(s),
            Token::End => f.write_str("the end"),
        }
    }
}

/// Longer signs first.
const SIGNS: [&str; 20] =
    ["<=", ">=", "==", "..", "<", ">", "=", "~", "+", "-", "*", "/", "(", ")", "[", "]", ",", ":", ".", "%"];

/// The tokens of `text`, each with its first byte.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let (token, len) = if c.is_whitespace() {
            at += c.len_utf8();
            continue;
        } else if c.is_ascii_digit() {
            number(rest)?
        } else if c.is_alphabetic() || c == '_' {
            let len = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            (Token::Name(rest[..len].to_owned()), len)
        } else if c == '"' {
            let len = rest[1..].find('"').ok_or("a quote is not closed")?;
            (Token::Text(rest[1..=len].to_owned()), len + 2)
        } else {
            let sign = SIGNS.iter().find(|s| rest.starts_with(**s));
            let sign = sign.ok_or_else(|| format!("'{c}' means nothing here"))?;
            (Token::Sign(sign), sign.len())
        };
        found.push((at, token));
        at += len;
    }
    found.push((text.len(), Token::End));
    Ok(found)
}

/// A number with or without a unit: seconds, bytes, or a share.
fn number(text: &str) -> Result<(Token, usize), String> {
    let mut digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    // `10..20` is a range of two numbers, not one number with two points.
    if let Some(range) = text[..digits].find("..") {
        digits = range;
    }
    let value: f64 =
        text[..digits].parse().map_err(|_| format!("\"{}\" is not a number", &text[..digits]))?;
    if text[digits..].starts_with('%') {
        return Ok((Token::Number(value / 100.0), digits + 1));
    }
    let unit = text[digits..].find(|c: char| !c.is_ascii_alphabetic()).map_or(text.len(), |n| n + digits);
    if unit == digits {
        return Ok((Token::Number(value), digits));
    }
    let with_unit = &text[..unit];
    let value = match (parse_duration(with_unit), parse_size(with_unit)) {
        (Ok(time), _) => time.as_secs_f64(),
        (_, Ok(bytes)) => bytes as f64,
        _ => return Err(format!("\"{with_unit}\" is neither a time nor a size")),
    };
    Ok((Token::Number(value), unit))
}
