//! Moments and spans as providers write them in headers and bodies.
use crate::clock::Timestamp;
use std::time::Duration;

/// Numbers beyond this are moments in seconds since the epoch, not spans; 1000 times as much, in milliseconds.
const EPOCH_SECONDS: f64 = 1e9;

/// Reads a number of `unit` seconds each; nothing where it is none or below zero.
pub(super) fn seconds(text: &str, unit: f64) -> Option<Duration> {
    let number: f64 = text.trim().parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}

/// Reads how long it is until a limit is as it was: a number of seconds, a moment in seconds or milliseconds since the epoch,
/// `6m0s`, a date of RFC 3339 or of HTTP.
pub(super) fn until(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    match text.parse::<f64>() {
        Ok(number) if number >= EPOCH_SECONDS * 1_000.0 => seconds(text, 0.001).map(|at| since(at, now)),
        Ok(number) if number >= EPOCH_SECONDS => seconds(text, 1.0).map(|at| since(at, now)),
        Ok(_) => seconds(text, 1.0),
        Err(_) => span(text).or_else(|| rfc3339(text).or_else(|| http_date(text)).map(|due| due.since(now))),
    }
}

fn since(at: Duration, now: Timestamp) -> Duration {
    at.saturating_sub(Duration::from_millis(now.0))
}

/// Reads `1h2m3.5s`, `20ms` and the like.
pub(super) fn span(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut sum = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let unit = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        sum = sum.checked_add(seconds(number, unit)?)?;
        rest = tail;
    }
    Some(sum)
}

/// Reads `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn http_date(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.trim().split_once(", ")?.1.split(' ');
    let day = words.next()?.parse().ok()?;
    let month = words.next().and_then(|word| MONTHS.iter().position(|month| *month == word))? as u64 + 1;
    let year = words.next()?.parse().ok()?;
    let time = words.next()?;
    if words.next() != Some("GMT") || words.next().is_some() {
        return None;
    }
    civil([year, month, day], time)
}

/// Reads `2026-11-30T10:00:00Z`; parts of a second are left out, and any zone but UTC is not understood.
pub(super) fn rfc3339(text: &str) -> Option<Timestamp> {
    let (date, time) = text.trim().split_once('T')?;
    let time = time.strip_suffix('Z').or_else(|| time.strip_suffix("+00:00"))?;
    let time = time.split_once('.').map_or(time, |(whole, _)| whole);
    let mut date = date.split('-').map(|part| part.parse().ok());
    let ymd = [date.next()??, date.next()??, date.next()??];
    if date.next().is_some() { None } else { civil(ymd, time) }
}

fn civil([year, month, day]: [u64; 3], time: &str) -> Option<Timestamp> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut time = time.split(':').map(|part| part.parse::<u64>().ok().filter(|part| *part < 61));
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    if time.next().is_some() {
        return None;
    }
    // Civil date to days, with years that begin in March so that the leap day is last.
    let march_year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = march_year * 365 + march_year / 4 - march_year / 100 + march_year / 400 + day_of_year;
    let days = days.checked_sub(719_468)?;
    Some(Timestamp((days * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_in_both_forms() {
        let now = http_date("Mon, 30 Nov 2026 10:00:00 GMT").unwrap();
        assert_eq!(now.to_string(), "2026-11-30T10:00:00Z");
        assert_eq!(rfc3339("2026-11-30T10:00:00Z"), Some(now));
        assert_eq!(rfc3339("2026-11-30T10:00:00.123456+00:00"), Some(now));
        assert_eq!(http_date("Tue, 29 Feb 2028 23:59:59 GMT").unwrap().to_string(), "2028-02-29T23:59:59Z");
        for nonsense in ["2026-11-30", "2026-13-30T10:00:00Z", "2026-11-30T10:00Z", "2026-11-30T10:00:00+02:00", "Mon, 99 Nov 2026 10:00:45 GMT", ""] {
            assert_eq!(rfc3339(nonsense).or(http_date(nonsense)), None, "{nonsense}");
        }
    }

    #[test]
    fn the_end_of_a_limit_is_read_in_every_form() {
        let now = rfc3339("2026-11-30T10:00:00Z").unwrap();
        for (text, seconds) in [
            ("12", 12.0),
            ("1.5", 1.5),
            ("6m0s", 360.0),
            ("2m59.56s", 179.56),
            ("20ms", 0.02),
            ("1h2m3s", 3_723.0),
            ("1d", 86_400.0),
            ("2026-11-30T10:00:45Z", 45.0),
            ("Mon, 30 Nov 2026 10:00:45 GMT", 45.0),
            ("1796032830", 30.0),
            ("1796032830500", 30.5),
            ("2026-11-30T09:00:00Z", 0.0),
        ] {
            assert_eq!(until(text, now), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for nonsense in ["soon", "-1", "NaN", "3x", "s", "", "1e300"] {
            assert_eq!(until(nonsense, now).filter(|wait| *wait < Duration::MAX), None, "{nonsense}");
        }
    }
}
