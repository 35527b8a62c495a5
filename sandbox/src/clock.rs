//! The one place that reads the clock, and the one way a time is written: UTC with milliseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now, as it stands in a log: `2026-11-30T18:00:00.123Z`.
pub fn now() -> String {
    stamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A time since the epoch, as text.
fn stamp(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = civil(i64::try_from(seconds / 86_400).unwrap_or_default());
    let (h, m, s) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:03}Z", since_epoch.subsec_millis())
}

/// Days since 1970-01-01 as year, month and day. Counted in eras of 400 years that begin on the first of March, so that the leap
/// day is the last day of a year.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

/// A length of time as a flag has it: `15s`, `500ms`, `2m`, `1h`.
///
/// # Errors
/// A sentence that says what to write instead.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} does not begin with a whole number; write 15s, 500ms, 2m or 1h"))?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("{text:?} has no unit of ms, s, m or h; write 15s, 500ms, 2m or 1h")),
    };
    number
        .checked_mul(millis)
        .filter(|ms| *ms <= 24 * 3_600_000)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text:?} is more than 24h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_utc_with_milliseconds() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_796_061_600_123, "2026-11-30T18:00:00.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(stamp(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn durations_need_a_number_and_a_unit() {
        assert_eq!(duration("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "s", "15", "-1s", "1d", "1.5s", "25h", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
