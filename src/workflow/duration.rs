//! Durations as people write them.
use std::time::Duration;

/// The longest duration, so that sums of a few never overflow.
pub(super) const MAX_DURATION: Duration = Duration::from_hours(400 * 24);

/// Reads `90s`, `30m`, `2h`, `1h30m`, `7d`, `250ms`, or a bare number of seconds. Units go from large to small, each
/// once; anything else, and more than 400 days, is `None`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds)).filter(|duration| *duration <= MAX_DURATION);
    }
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut total_ms = 0_u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = &rest[digits..digits + letters];
        let (_, unit_ms) = units.find(|(name, _)| *name == unit)?;
        total_ms = total_ms.checked_add(number.checked_mul(*unit_ms)?)?;
        rest = &rest[digits + letters..];
    }
    (!text.is_empty()).then_some(Duration::from_millis(total_ms)).filter(|duration| *duration <= MAX_DURATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        let cases = [
            ("90s", 90_000),
            ("30m", 1_800_000),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("7d", 604_800_000),
            ("5", 5_000),
            ("1m5ms", 60_005),
            ("0s", 0),
        ];
        for (text, ms) in cases {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in ["", "s", "5x", "1s1h", "1h1h", "-5s", "1.5h", "5 s", "s5", "99999999999999999999s", "9999999d", "18446744073709551615", "é", "5é", "1h30"]
        {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
