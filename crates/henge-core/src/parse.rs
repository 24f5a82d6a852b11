//! Quantities as people write them: a number and its unit, always both.
//!
//! `20ms`, `4MB/s`, `675/s`, `96GB`, `64KiB`, `30%`. Decimal prefixes are powers of 1000, binary
//! ones (`KiB`) powers of 1024. A bare number is an error that names the units that would do.

use crate::{Duration, Rate};

/// What is wrong with a quantity, in words for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityError(pub String);

impl std::fmt::Display for QuantityError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
impl std::error::Error for QuantityError {}

const TIME: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];
const SIZE: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
];

/// A span of time: `20ms`, `1.5s`, `3us`, `2min`, `24h`.
///
/// ```
/// use henge_core::{parse_duration, Duration};
/// assert_eq!(parse_duration("20ms").unwrap(), Duration::from_millis(20));
/// assert!(parse_duration("20").unwrap_err().to_string().contains("\"20ms\""));
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, QuantityError> {
    let ns = quantity(text, TIME, "a time", "\"20ms\", \"1.5s\" or \"2min\"")?;
    Ok(Duration::from_nanos(ns))
}

/// A size in bytes: `96GB`, `64KiB`, `512B`.
pub fn parse_size(text: &str) -> Result<u64, QuantityError> {
    quantity(text, SIZE, "a size", "\"96GB\", \"64KiB\" or \"512B\"")
}

/// A rate: `675/s` is requests, `4MB/s` is bytes, `300ms/s` is disk time.
pub fn parse_rate(text: &str) -> Result<Rate, QuantityError> {
    const LIKE: &str = "\"675/s\" (requests), \"4MB/s\" (bytes) or \"300ms/s\" (disk time)";
    let wrong = || QuantityError(format!("\"{text}\" is not a rate; write it like {LIKE}"));
    let amount = text.trim().strip_suffix("/s").ok_or_else(wrong)?.trim();
    let (number, unit) = split(amount);
    if unit.is_empty() {
        return Ok(Rate::requests_micro(scale(number, 1_000_000).ok_or_else(wrong)?));
    }
    if TIME.iter().any(|(u, _)| *u == unit) {
        return Ok(Rate::disk_time(quantity(amount, TIME, "a rate", LIKE)?));
    }
    Ok(Rate::bytes(quantity(amount, SIZE, "a rate", LIKE)?))
}

/// A share: `30%` or a number from 0 to 1 written with a point (`0.3`). In parts per million.
pub fn parse_share(text: &str) -> Result<u32, QuantityError> {
    let wrong = || QuantityError(format!("\"{text}\" is not a share; write it like \"30%\""));
    let ppm = match text.trim().strip_suffix('%') {
        Some(percent) => scale(percent.trim(), 10_000),
        None => scale(text.trim(), 1_000_000),
    };
    match ppm {
        Some(ppm) if ppm <= 1_000_000 => Ok(ppm as u32),
        Some(_) => {
            Err(QuantityError(format!("\"{text}\" is more than the whole; a share is at most \"100%\"")))
        }
        None => Err(wrong()),
    }
}

fn quantity(text: &str, units: &[(&str, u64)], what: &str, like: &str) -> Result<u64, QuantityError> {
    let (number, unit) = split(text.trim());
    if unit.is_empty() && !number.is_empty() {
        return Err(QuantityError(format!("\"{text}\" has no unit; write {what} like {like}")));
    }
    let Some(&(_, factor)) = units.iter().find(|(u, _)| *u == unit) else {
        return Err(QuantityError(format!("\"{text}\" is not {what}; write it like {like}")));
    };
    scale(number, factor).ok_or_else(|| {
        QuantityError(format!("\"{text}\" is not {what} that can be represented; write it like {like}"))
    })
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// `number` (digits, at most one point) times `factor`, exactly; digits finer than the unit are an error.
fn scale(number: &str, factor: u64) -> Option<u64> {
    let number = number.replace('_', "");
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if (whole.is_empty() && fraction.is_empty()) || whole.len() > 20 || fraction.len() > 18 {
        return None;
    }
    let digits = |s: &str| if s.is_empty() { Some(0u128) } else { s.parse::<u128>().ok() };
    let below = 10u128.pow(fraction.len() as u32);
    let total = (digits(whole)? * below + digits(fraction)?) * u128::from(factor);
    if !total.is_multiple_of(below) {
        return None;
    }
    u64::try_from(total / below).ok()
}

/// A size for people: `96GB`, `64KiB`, exact where it can be.
pub fn format_size(bytes: u64) -> String {
    let exact = |units: &[(&'static str, u64)]| {
        units
            .iter()
            .rev()
            .find(|(_, f)| bytes >= *f && bytes.is_multiple_of(*f))
            .map(|(u, f)| (bytes / f, *u))
    };
    let best = |a: Option<(u64, &'static str)>, b: Option<(u64, &'static str)>| match (a, b) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    };
    match best(exact(&SIZE[..7]), exact(&SIZE[7..])) {
        Some((n, u)) if n < 100_000 => format!("{n}{u}"),
        _ if bytes == 0 => "0B".to_owned(),
        _ => {
            let (unit, factor) =
                SIZE[..7].iter().rev().find(|(u, f)| bytes >= *f && *u != "KB").copied().unwrap_or(("B", 1));
            format!("{:.1}{unit}", bytes as f64 / factor as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_as_written() {
        assert_eq!(parse_duration("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_size("64KiB").unwrap(), 65536);
        assert_eq!(parse_size("1.5 MB").unwrap(), 1_500_000);
        assert_eq!(parse_rate("675/s").unwrap(), Rate::requests(675));
        assert_eq!(parse_rate("67.8/s").unwrap(), Rate::requests_micro(67_800_000));
        assert_eq!(parse_rate("4MB/s").unwrap(), Rate::bytes(4_000_000));
        assert_eq!(parse_share("30%").unwrap(), 300_000);
        assert_eq!(parse_share("0.25").unwrap(), 250_000);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for text in ["", "ms", "-3ms", "1..2s", "3 parsecs", "99999999999999999999999s", "0.0000001ns", "٣ms"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_rate("675").is_err());
        assert!(parse_rate("4MB").is_err());
        assert!(parse_share("130%").unwrap_err().0.contains("at most"));
    }

    #[test]
    fn sizes_print_as_people_write_them() {
        assert_eq!(format_size(65536), "64KiB");
        assert_eq!(format_size(96_000_000_000), "96GB");
        assert_eq!(format_size(0), "0B");
        assert_eq!(format_size(1_234_567_891), "1.2GB");
        assert_eq!(format_size(512), "512B");
    }
}
