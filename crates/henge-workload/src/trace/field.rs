//! Numbers and words out of a line of bytes, without allocation.

use super::error::{Bad, bad};
use henge_core::Op;

/// Splits at runs of blanks and tabs.
pub(crate) struct Blanks<'a>(pub &'a [u8]);

impl<'a> Blanks<'a> {
    /// The next field; empty when there is none.
    #[inline]
    pub fn next(&mut self) -> &'a [u8] {
        let line = self.0;
        let from = line.iter().position(|b| *b != b' ' && *b != b'\t').unwrap_or(line.len());
        let line = &line[from..];
        let to = line.iter().position(|b| *b == b' ' || *b == b'\t').unwrap_or(line.len());
        self.0 = &line[to..];
        &line[..to]
    }
}

/// Splits at one separator; blanks around a field do not count, nor do quotes.
pub(crate) struct Separated<'a> {
    rest: Option<&'a [u8]>,
    by: u8,
    /// Whether a field was asked for that the line does not have.
    short: bool,
}

impl<'a> Separated<'a> {
    pub fn new(line: &'a [u8], by: u8) -> Self {
        Separated { rest: Some(line), by, short: false }
    }
    /// Whether a field was asked for that the line does not have.
    pub fn rest_is_missing(&self) -> bool {
        self.short
    }
    /// The next field; empty when it is, or when there is none.
    #[inline]
    pub fn next(&mut self) -> &'a [u8] {
        let Some(line) = self.rest else {
            self.short = true;
            return b"";
        };
        let to = line.iter().position(|b| *b == self.by);
        let field = match to {
            Some(to) => {
                self.rest = Some(&line[to + 1..]);
                &line[..to]
            }
            None => {
                self.rest = None;
                line
            }
        };
        unquoted(field.trim_ascii())
    }
}

/// Without the quotes that some programs write around every field.
#[inline]
fn unquoted(field: &[u8]) -> &[u8] {
    let inner = field.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    inner.unwrap_or(field)
}

const MISSING: &str = "missing";
const NOT_WHOLE: &str = "not a whole number";
const TOO_LARGE: &str = "too large a number";

/// Why this is no whole number, where it is one of another kind.
#[cold]
fn not_whole(text: &[u8]) -> &'static str {
    match text {
        [b'-', ..] => "below zero",
        [b'0', b'x' | b'X', ..] => "hexadecimal, where a decimal number is expected",
        _ => NOT_WHOLE,
    }
}

/// Why this is no time.
#[cold]
fn not_time(text: &[u8]) -> &'static str {
    match text {
        [b'-', ..] => "a time below zero",
        _ if text.contains(&b',') => "not a time: a fraction is expected behind a point, not a comma",
        _ if text.contains(&b':') => "not a time: a number is expected, not a date or a clock's time",
        [b'0'..=b'9', ..] if text.contains(&b'+') => {
            "a time that has lost its last digits: write it without an exponent"
        }
        _ => "not a time",
    }
}

/// A whole number; a fraction of zeroes (`4096.0`) is none.
#[inline]
pub(crate) fn whole(text: &[u8], field: &'static str) -> Result<u64, Bad> {
    let mut n: u64 = 0;
    for (i, b) in text.iter().enumerate() {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            let zeroes = *b == b'.' && i > 0 && text[i + 1..].iter().all(|b| *b == b'0');
            return if zeroes { Ok(n) } else { Err(bad(field, not_whole(text))) };
        }
        // 18 digits fit whatever they are.
        if i < 18 {
            n = n * 10 + u64::from(digit);
        } else {
            n = n
                .checked_mul(10)
                .and_then(|n| n.checked_add(u64::from(digit)))
                .ok_or(bad(field, TOO_LARGE))?;
        }
    }
    if text.is_empty() { Err(bad(field, MISSING)) } else { Ok(n) }
}

/// A whole number that fits 32 bits.
#[inline]
pub(crate) fn small(text: &[u8], field: &'static str) -> Result<u32, Bad> {
    u32::try_from(whole(text, field)?).map_err(|_| bad(field, TOO_LARGE))
}

/// A number times `unit`, both whole.
#[inline]
pub(crate) fn scaled(text: &[u8], unit: u64, field: &'static str) -> Result<u64, Bad> {
    whole(text, field)?.checked_mul(unit).ok_or(bad(field, TOO_LARGE))
}

/// A point in time in nanoseconds: whole or decimal, times `unit` nanoseconds; what is finer is dropped.
#[inline]
pub(crate) fn time(text: &[u8], unit: u64, field: &'static str) -> Result<u64, Bad> {
    let Some(point) = text.iter().position(|b| !b.is_ascii_digit()) else {
        return scaled(text, unit, field);
    };
    if text[point] != b'.' {
        return exponent(text, unit).ok_or_else(|| bad(field, not_time(text)));
    }
    let whole_part = if point == 0 { 0 } else { scaled(&text[..point], unit, field)? };
    let mut fraction: u64 = 0;
    let mut below: u64 = 1;
    for b in &text[point + 1..] {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return exponent(text, unit).ok_or_else(|| bad(field, not_time(text)));
        }
        if below < 1_000_000_000_000 {
            fraction = fraction * 10 + u64::from(digit);
            below *= 10;
        }
    }
    if point == 0 && below == 1 {
        return Err(bad(field, not_time(text)));
    }
    let fraction = (u128::from(fraction) * u128::from(unit) / u128::from(below)) as u64;
    whole_part.checked_add(fraction).ok_or(bad(field, TOO_LARGE))
}

/// `1.5e-05`, as programs print small numbers.
#[cold]
fn exponent(text: &[u8], unit: u64) -> Option<u64> {
    let known = |b: &u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    if !text.iter().all(known) {
        return None;
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let ns = value * unit as f64;
    // Where whole numbers have more digits than such text keeps, as file times do, all times of an hour look alike.
    ((0.0..9e15).contains(&value) && ns < 1.8e19).then_some(ns.round() as u64)
}

/// `r`, `R`, `read`, `Read` …
#[inline]
pub(crate) fn read_or_write(text: &[u8], field: &'static str) -> Result<Op, Bad> {
    match text {
        b"r" | b"R" => Ok(Op::Read),
        b"w" | b"W" => Ok(Op::Write),
        _ if text.eq_ignore_ascii_case(b"read") => Ok(Op::Read),
        _ if text.eq_ignore_ascii_case(b"write") => Ok(Op::Write),
        b"" => Err(bad(field, MISSING)),
        _ => Err(bad(field, "neither read nor write")),
    }
}

/// A digit that says whether it is a read.
#[inline]
pub(crate) fn flag(text: &[u8], read: &[u8], write: &[u8], field: &'static str) -> Result<Op, Bad> {
    if text == read {
        Ok(Op::Read)
    } else if text == write {
        Ok(Op::Write)
    } else {
        Err(bad(field, if text.is_empty() { MISSING } else { "neither 0 nor 1" }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_written() {
        assert_eq!(whole(b"18446744073709551615", "n"), Ok(u64::MAX));
        assert_eq!(whole(b"18446744073709551616", "n"), Err(bad("n", TOO_LARGE)));
        assert_eq!(whole(b"4096.0", "n"), Ok(4096));
        for text in [&b""[..], b"-1", b"1x", b"4096.5", b".0", b"0x10"] {
            assert!(whole(text, "n").is_err(), "{text:?}");
        }
    }

    #[test]
    fn times_are_exact() {
        assert_eq!(time(b"0.026214", 1_000_000_000, "t"), Ok(26_214_000));
        assert_eq!(time(b"1456095145.133076000", 1_000_000_000, "t"), Ok(1_456_095_145_133_076_000));
        assert_eq!(time(b"128166385295514663", 100, "t"), Ok(12_816_638_529_551_466_300));
        assert_eq!(time(b"7961.833", 1_000_000, "t"), Ok(7_961_833_000));
        assert_eq!(time(b".5", 1_000, "t"), Ok(500));
        assert_eq!(time(b"1.5e-05", 1_000_000_000, "t"), Ok(15_000));
        assert_eq!(time(b"1.5e+03", 1_000, "t"), Ok(1_500_000));
        assert_eq!(time(b"0.1234567899999", 1_000_000_000, "t"), Ok(123_456_789));
        for text in [
            &b""[..],
            b".",
            b"-1.0",
            b"1.2.3",
            b"nan",
            b"1e400",
            b"1.28166372e+17",
            b"inf",
            b"99999999999999999999.0",
        ] {
            assert!(time(text, 1_000_000_000, "t").is_err(), "{text:?}");
        }
    }

    #[test]
    fn fields_are_split_as_people_write_them() {
        let mut blanks = Blanks(b"  1.0\t\t2   3");
        assert_eq!(
            [blanks.next(), blanks.next(), blanks.next(), blanks.next()],
            [&b"1.0"[..], b"2", b"3", b""]
        );
        let mut commas = Separated::new(b"a, b ,,c, \"d\"", b',');
        let fields = [(); 5].map(|()| commas.next());
        assert_eq!(fields, [&b"a"[..], b"b", b"", b"c", b"d"]);
    }
}
