//! Times as people type them: RFC 3339, a date, `yesterday 14:00`, `now-2h`.
//!
//! This is the only reader of such texts. The command line reads every option of a time with it, and the engine the
//! moment that `schedule why` is asked about.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta};

use crate::clock::{Clock, Timestamp};
use crate::text;

/// A time as a person typed it, before a clock and a zone give it a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeText {
    /// RFC 3339, with an offset.
    Instant(Timestamp),
    /// `now-2h`: a span before now.
    BeforeNow(Duration),
    /// `now`, `now+2h`: a span after now.
    AfterNow(Duration),
    /// `2026-11-21 08:00` or `yesterday 14:00`: what a clock shows. Its zone is not part of the text.
    Local(LocalTime),
}

/// A day and a time of day, without a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    day: Day,
    time: NaiveTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Day {
    Date(NaiveDate),
    /// Days after the day that the clock shows now.
    FromToday(i64),
}

/// A text that is no time. Its hint is [`TimeText::HINT`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time")]
pub struct InvalidTimeText(String);

/// Read a time. One without an offset is in UTC, and words such as `yesterday` count from `now`.
///
/// # Errors
///
/// A sentence with the text and examples, when it is no time.
pub fn read(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let time = text.parse::<TimeText>();
    time.map(|time| time.in_utc(now))
        .map_err(|error| format!("{error}: {}", TimeText::HINT))
}

/// An instant given as people type it. Words such as `yesterday` are relative to this machine's clock, and times without an offset
/// are in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenTime(pub Timestamp);

impl FromStr for GivenTime {
    type Err = String;

    fn from_str(text: &str) -> Result<GivenTime, String> {
        read(text, Clock::system().now()).map(GivenTime)
    }
}

impl Display for GivenTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

crate::as_text!(GivenTime);

/// A time, or a span before now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    At(Timestamp),
    Ago(Duration),
}

impl Moment {
    /// Read a time as [`read`] does, or a span such as `2h`.
    ///
    /// # Errors
    ///
    /// A sentence with the text and examples, when it is neither.
    pub fn read(text: &str, now: Timestamp) -> Result<Moment, String> {
        match (read(text, now), text::duration(text)) {
            (Ok(at), _) => Ok(Moment::At(at)),
            (_, Ok(span)) => Ok(Moment::Ago(span)),
            _ => Err(format!(
                "`{text}` is neither a time nor a span before now: {}, or a span such as 2h",
                TimeText::HINT
            )),
        }
    }

    /// Returns the time that it means at `now`.
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Moment::At(at) => at,
            Moment::Ago(span) => now.minus(span),
        }
    }
}

/// Takes words such as `yesterday` relative to this machine's clock.
impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        Moment::read(text, Clock::system().now())
    }
}

crate::as_text!(Moment);

impl Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::At(at) => at.fmt(f),
            Moment::Ago(span) => f.write_str(&text::duration_text(*span)),
        }
    }
}

impl TimeText {
    /// What to write instead of a text that is no time.
    pub const HINT: &str = "write an RFC 3339 time such as 2026-11-21T08:00:00Z, or `2026-11-21`, \
        `2026-11-21 08:00`, `yesterday 14:00` or `now-2h`";

    /// Returns the instant at `now`. A time without an offset is in UTC.
    pub fn in_utc(self, now: Timestamp) -> Timestamp {
        match self {
            TimeText::Instant(instant) => instant,
            TimeText::BeforeNow(span) => now.minus(span),
            TimeText::AfterNow(span) => now.plus(span),
            TimeText::Local(local) => {
                Timestamp::from(local.on(now.to_chrono().date_naive()).and_utc())
            }
        }
    }
}

impl LocalTime {
    /// Returns the date, when the text has one. A word such as `yesterday` is none.
    pub fn date(self) -> Option<NaiveDate> {
        match self.day {
            Day::Date(date) => Some(date),
            Day::FromToday(_) => None,
        }
    }

    /// Returns the date and the time of day. `today` is the date that a clock of the zone shows.
    pub fn on(self, today: NaiveDate) -> NaiveDateTime {
        let date = match self.day {
            Day::Date(date) => date,
            Day::FromToday(days) => {
                let date = today.checked_add_signed(TimeDelta::days(days));
                date.unwrap_or(today)
            }
        };
        date.and_time(self.time)
    }
}

/// Read a time. Spaces around it do not count.
impl FromStr for TimeText {
    type Err = InvalidTimeText;

    fn from_str(text: &str) -> Result<TimeText, InvalidTimeText> {
        let trimmed = text.trim();
        if let Ok(instant) = trimmed.parse() {
            return Ok(TimeText::Instant(instant));
        }
        let found = match trimmed.strip_prefix("now") {
            Some(shift) => from_now(shift),
            None => local(trimmed).map(TimeText::Local),
        };
        found.ok_or_else(|| InvalidTimeText(text.to_owned()))
    }
}

/// Read what follows `now`: a text such as `-2h`, `+ 30m` or nothing.
fn from_now(shift: &str) -> Option<TimeText> {
    let shift = shift.trim();
    if shift.is_empty() {
        return Some(TimeText::AfterNow(Duration::ZERO));
    }
    let span = text::duration(shift.get(1..)?).ok()?;
    match shift.as_bytes()[0] {
        b'-' => Some(TimeText::BeforeNow(span)),
        b'+' => Some(TimeText::AfterNow(span)),
        _ => None,
    }
}

/// Read a day, with or without a time of day.
fn local(text: &str) -> Option<LocalTime> {
    // The `T` of RFC 3339 stands between digits; that of `today` and `tomorrow` begins a word.
    let is_dated = text.starts_with(|first: char| first.is_ascii_digit());
    let separator = |letter: char| letter == ' ' || (is_dated && letter == 'T');
    let (day, clock) = match text.split_once(separator) {
        Some((day, clock)) => (day, time_of_day(clock.trim())?),
        None => (text, NaiveTime::MIN),
    };
    let day = match day {
        "today" => Day::FromToday(0),
        "yesterday" => Day::FromToday(-1),
        "tomorrow" => Day::FromToday(1),
        date => Day::Date(date_of(date)?),
    };
    Some(LocalTime { day, time: clock })
}

/// Read a date such as `2026-11-21`, of a year that [`Timestamp`] knows.
fn date_of(text: &str) -> Option<NaiveDate> {
    // RFC 3339 defines what a date is: chrono's own formats also read `2026-1-1` and `+2026-01-01`.
    let midnight = DateTime::parse_from_rfc3339(&format!("{text}T00:00:00Z")).ok()?;
    let date = midnight.date_naive();
    let last = Timestamp::LAST.to_chrono().date_naive();
    (Timestamp::FIRST.to_chrono().date_naive()..=last)
        .contains(&date)
        .then_some(date)
}

/// Read a time of day: `8:00`, `08:00`, `08:00:15` or `08:00:15.5`.
fn time_of_day(text: &str) -> Option<NaiveTime> {
    let seconds = if text.matches(':').count() == 1 {
        ":00"
    } else {
        ""
    };
    // RFC 3339 has two digits.
    let zero = if text.find(':') == Some(1) { "0" } else { "" };
    let instant = format!("2000-01-01T{zero}{text}{seconds}Z");
    let instant: Timestamp = instant.parse().ok()?;
    Some(instant.to_chrono().time())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_time_is_read_as_people_type_it() {
        let now = time("2026-03-01T12:30:15.5Z");
        for (text, expected) in [
            ("2026-11-21T08:00:00+02:00", "2026-11-21T06:00:00Z"),
            ("2026-11-21", "2026-11-21T00:00:00Z"),
            ("2026-11-21 08:05", "2026-11-21T08:05:00Z"),
            ("2026-11-21 8:05", "2026-11-21T08:05:00Z"),
            ("2026-11-21 08:05:06", "2026-11-21T08:05:06Z"),
            ("2026-11-21T08:05", "2026-11-21T08:05:00Z"),
            ("2026-11-21T08:05:06.5", "2026-11-21T08:05:06.500000Z"),
            ("today", "2026-03-01T00:00:00Z"),
            ("yesterday", "2026-02-28T00:00:00Z"),
            ("yesterday 14:00", "2026-02-28T14:00:00Z"),
            (" yesterday  14:00 ", "2026-02-28T14:00:00Z"),
            ("tomorrow 00:30", "2026-03-02T00:30:00Z"),
            ("tomorrow 9:00", "2026-03-02T09:00:00Z"),
            ("now", "2026-03-01T12:30:15.500000Z"),
            ("now-2h", "2026-03-01T10:30:15.500000Z"),
            ("now + 1h 30m", "2026-03-01T14:00:15.500000Z"),
            ("now-7days", "2026-02-22T12:30:15.500000Z"),
            ("9999-12-31 23:59", "9999-12-31T23:59:00Z"),
        ] {
            let read: TimeText = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(read.in_utc(now), time(expected), "{text}");
        }
    }

    #[test]
    fn a_day_is_that_of_the_clock_that_is_asked() {
        // A clock of Auckland shows the next day already.
        let today = NaiveDate::from_ymd_opt(2026, 3, 2).unwrap();
        for (text, expected) in [
            ("yesterday 14:00", "2026-03-01T14:00:00"),
            ("today 9:30", "2026-03-02T09:30:00"),
            ("2026-11-21", "2026-11-21T00:00:00"),
        ] {
            let Ok(TimeText::Local(local)) = text.parse() else {
                panic!("{text}");
            };
            assert_eq!(local.on(today), expected.parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_time_is_refused() {
        for text in [
            "",
            "noon",
            "14:00",
            "2026-02-29",
            "2026-2-1",
            "+2026-02-01",
            "2026-11-21 8",
            "2026-11-21 25:00",
            "2026-11-21 08:00Z",
            "yesterday 14",
            "yesterdayT14:00",
            "now2h",
            "now-",
            "now-2",
            "now*2h",
            "nowhere",
            "now-é",
            "today 1:2:3:4",
            "today 08:00:00+02:00",
        ] {
            let error = text.parse::<TimeText>().unwrap_err();
            assert_eq!(error.to_string(), format!("`{text}` is not a time"));
        }
    }

    #[test]
    fn a_span_is_a_time_before_now() {
        let now: Timestamp = "2026-03-01T12:30:00Z".parse().unwrap();
        for (text, expected) in [
            ("2h", "2026-03-01T10:30:00Z"),
            ("2026-02-01", "2026-02-01T00:00:00Z"),
        ] {
            let moment = Moment::read(text, now).unwrap();
            assert_eq!(moment.at(now).to_string(), expected, "{text}");
        }
    }
}
