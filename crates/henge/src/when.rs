//! Moments of the calendar, for people.

use std::time::{Duration, UNIX_EPOCH};

/// The last second of the year 9999: what lies beyond is no date.
const LAST: u64 = 253_402_300_799_000;

/// `2026-11-21T23:59:58Z` (RFC 3339, UTC) from milliseconds since 1970.
pub fn when(ms: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms.min(LAST))).to_string()
}

#[cfg(test)]
mod tests {
    use super::when;

    #[test]
    fn dates() {
        assert_eq!(when(0), "1970-01-01T00:00:00Z");
        assert_eq!(when(951_827_696_000), "2000-02-29T12:34:56Z");
        assert_eq!(when(1_735_689_599_999), "2024-12-31T23:59:59Z");
        assert_eq!(when(u64::MAX), "9999-12-31T23:59:59Z");
    }
}
