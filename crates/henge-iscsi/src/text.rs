//! `key=value` pairs, each ended by a zero byte (RFC 7143, section 6.1).

use std::fmt;

/// Most bytes of text that one negotiation step may have, over all its PDUs.
pub const TEXT_MAX: usize = 64 * 1024;
/// Most keys of a negotiation. RFC 7143 has some thirty; vendors add theirs.
pub const KEYS_MAX: usize = 256;
/// Most bytes of a key's name (RFC 7143 6.1).
const KEY_MAX: usize = 63;
/// Most bytes of a value that we look at: the longest is a CHAP challenge in hexadecimal.
const VALUE_MAX: usize = 8192;

/// How text breaks the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextError {
    /// A pair without `=`, without a name, or too long.
    Pair,
    /// Not UTF-8.
    Encoding,
    /// A number that is none.
    Number,
    /// Bytes that are neither hexadecimal nor base64.
    Binary,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TextError::Pair => "not a key=value pair",
            TextError::Encoding => "text is not UTF-8",
            TextError::Number => "not a number",
            TextError::Binary => "neither hexadecimal nor base64",
        })
    }
}
impl std::error::Error for TextError {}

/// The pairs of `bytes`, in order.
pub fn pairs(bytes: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    let text = std::str::from_utf8(bytes).map_err(|_| TextError::Encoding)?;
    let mut found = Vec::new();
    for pair in text.split('\0').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or(TextError::Pair)?;
        if key.is_empty() || key.len() > KEY_MAX || value.len() > VALUE_MAX {
            return Err(TextError::Pair);
        }
        found.push((key, value));
    }
    Ok(found)
}

/// Adds one pair.
pub fn push(out: &mut Vec<u8>, key: &str, value: &str) {
    out.extend_from_slice(key.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value.as_bytes());
    out.push(0);
}

/// A number: decimal, or hexadecimal after `0x` (RFC 7143 6.1, numerical-value).
pub fn number(value: &str) -> Result<u32, TextError> {
    let parsed = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => u32::from_str_radix(digits, 16),
        None if value.bytes().all(|b| b.is_ascii_digit()) => value.parse(),
        _ => return Err(TextError::Number),
    };
    parsed.map_err(|_| TextError::Number)
}

/// Bytes: hexadecimal after `0x`, base64 after `0b` (RFC 7143 6.1, binary-value).
pub fn binary(value: &str) -> Result<Vec<u8>, TextError> {
    match value.get(..2) {
        Some("0x" | "0X") => hexadecimal(&value[2..]),
        Some("0b" | "0B") => base64(&value[2..]),
        _ => Err(TextError::Binary),
    }
}

fn hexadecimal(digits: &str) -> Result<Vec<u8>, TextError> {
    let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8).ok_or(TextError::Binary);
    let bytes = digits.as_bytes();
    // An odd digit in front stands alone: 0x1 is one byte.
    let (first, pairs) = bytes.split_at(bytes.len() % 2);
    let mut out = Vec::with_capacity(bytes.len().div_ceil(2));
    for &b in first {
        out.push(digit(b)?);
    }
    for pair in pairs.chunks_exact(2) {
        out.push(digit(pair[0])? << 4 | digit(pair[1])?);
    }
    Ok(out)
}

fn base64(digits: &str) -> Result<Vec<u8>, TextError> {
    let digits = digits.trim_end_matches('=');
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for b in digits.bytes() {
        let digit = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(TextError::Binary),
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Ok(out)
}

/// Bytes as `0x…`.
pub fn to_hexadecimal(bytes: &[u8]) -> String {
    use fmt::Write;
    let mut out = String::with_capacity(2 + 2 * bytes.len());
    out.push_str("0x");
    for b in bytes {
        write!(out, "{b:02x}").expect("a String takes all that is written");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_split_at_zeroes_and_the_first_equals_sign() {
        let text = b"InitiatorName=iqn.a\0A=b=c\0\0Empty=\0";
        assert_eq!(pairs(text), Ok(vec![("InitiatorName", "iqn.a"), ("A", "b=c"), ("Empty", "")]));
        assert_eq!(pairs(b"nothing\0"), Err(TextError::Pair));
        assert_eq!(pairs(b"=x\0"), Err(TextError::Pair));
        assert_eq!(pairs(b"a=\xff\0"), Err(TextError::Encoding));
    }

    #[test]
    fn numbers_and_bytes() {
        assert_eq!(number("262144"), Ok(262_144));
        assert_eq!(number("0x40000"), Ok(262_144));
        assert_eq!(number("-1"), Err(TextError::Number));
        assert_eq!(number("4294967296"), Err(TextError::Number));
        assert_eq!(binary("0x0aFf"), Ok(vec![10, 255]));
        assert_eq!(binary("0xaff"), Ok(vec![10, 255]));
        assert_eq!(binary("0bSGVuZ2U="), Ok(b"Henge".to_vec()));
        assert_eq!(binary("12"), Err(TextError::Binary));
        assert_eq!(to_hexadecimal(&[1, 0xab]), "0x01ab");
    }
}
