//! Times as people type them: RFC 3339, a date, `yesterday 14:00`, `now-2h`.

use std::time::Duration;

use campanile_model::clock::{Clock, Timestamp};
use campanile_model::text;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Read a time of an argument. Words such as `yesterday` count from this machine's clock. Everything is in UTC.
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    read(text.trim(), Clock::system().now())
}

fn read(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let error = match text.parse::<Timestamp>() {
        Ok(time) => return Ok(time),
        Err(error) => error,
    };
    let found = match text.strip_prefix("now") {
        Some(shift) => from_now(shift, now),
        None => of_day(text, now),
    };
    found.ok_or_else(|| {
        format!(
            "{error}, nor a time in UTC such as `2026-11-21`, `2026-11-21 08:00`, `yesterday 14:00` or `now-2h`"
        )
    })
}

/// Return `now` moved by a text such as `-2h`, `+ 30m` or nothing.
fn from_now(shift: &str, now: Timestamp) -> Option<Timestamp> {
    let shift = shift.trim();
    if shift.is_empty() {
        return Some(now);
    }
    let span = text::duration(shift.get(1..)?).ok()?;
    match shift.as_bytes()[0] {
        b'-' => Some(now.minus(span)),
        b'+' => Some(now.plus(span)),
        _ => None,
    }
}

/// Return the time of a day, with or without a time of day.
fn of_day(text: &str, now: Timestamp) -> Option<Timestamp> {
    let (day, clock) = text.split_once(' ').unwrap_or((text, "00:00"));
    let date = |time: Timestamp| time.to_string()[..10].to_owned();
    let date = match day {
        "today" => date(now),
        "yesterday" => date(now.minus(DAY)),
        "tomorrow" => date(now.plus(DAY)),
        day => day.to_owned(),
    };
    let clock = clock.trim();
    let seconds = if clock.matches(':').count() == 1 {
        ":00"
    } else {
        ""
    };
    format!("{date}T{clock}{seconds}Z").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_people_type_it() {
        let now: Timestamp = "2026-03-01T12:30:15.5Z".parse().unwrap();
        for (text, expected) in [
            ("2026-11-21T08:00:00+02:00", "2026-11-21T06:00:00Z"),
            ("2026-11-21", "2026-11-21T00:00:00Z"),
            ("2026-11-21 08:05", "2026-11-21T08:05:00Z"),
            ("2026-11-21 08:05:06", "2026-11-21T08:05:06Z"),
            ("today", "2026-03-01T00:00:00Z"),
            ("yesterday", "2026-02-28T00:00:00Z"),
            ("yesterday 14:00", "2026-02-28T14:00:00Z"),
            ("tomorrow 00:30", "2026-03-02T00:30:00Z"),
            ("now", "2026-03-01T12:30:15.500000Z"),
            ("now-2h", "2026-03-01T10:30:15.500000Z"),
            ("now + 1h 30m", "2026-03-01T14:00:15.500000Z"),
            ("now-7days", "2026-02-22T12:30:15.500000Z"),
        ] {
            let found = read(text, now).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(found, expected.parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_time_is_refused_with_examples() {
        let now: Timestamp = "2026-03-01T12:30:15Z".parse().unwrap();
        for text in [
            "",
            "noon",
            "14:00",
            "2026-02-29",
            "2026-11-21 8",
            "2026-11-21 25:00",
            "yesterday 14",
            "now2h",
            "now-",
            "now-2",
            "now*2h",
            "nowhere",
            "now-é",
            "2026-11-21T08:00:00",
            "today 1:2:3:4",
        ] {
            let error = read(text, now).unwrap_err();
            assert!(
                error.starts_with(&format!("`{text}` is not an RFC 3339 time")),
                "{error}"
            );
            assert!(error.contains("`yesterday 14:00` or `now-2h`"), "{error}");
        }
    }
}
