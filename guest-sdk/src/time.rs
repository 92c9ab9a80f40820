//! Instants, without a clock.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};

const NANOS_PER_SECOND: u32 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// An instant in UTC with a precision of one nanosecond.
///
/// It is parsed from RFC 3339 and printed as RFC 3339.
///
/// ```
/// use campanile_sdk::Timestamp;
/// use std::time::Duration;
///
/// let slot: Timestamp = "2026-11-21T02:00:00+01:00".parse().unwrap();
/// assert_eq!(slot.to_string(), "2026-11-21T01:00:00Z");
/// assert_eq!(slot.date(), "2026-11-21");
/// assert_eq!(slot.plus(Duration::from_secs(60)).since(slot), Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    seconds: i64,
    nanoseconds: u32,
}

impl Timestamp {
    /// Create the instant `seconds` and `nanoseconds` after 1970-01-01T00:00:00Z.
    ///
    /// `seconds` is negative before 1970. Nanoseconds above 999 999 999 are carried into the seconds.
    ///
    /// ```
    /// # use campanile_sdk::Timestamp;
    /// assert_eq!(Timestamp::new(1_795_248_000, 0).to_string(), "2026-11-21T08:00:00Z");
    /// assert_eq!(Timestamp::new(0, 1_500_000_000), Timestamp::new(1, 500_000_000));
    /// ```
    pub fn new(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp {
            seconds: seconds.saturating_add(i64::from(nanoseconds / NANOS_PER_SECOND)),
            nanoseconds: nanoseconds % NANOS_PER_SECOND,
        }
    }

    /// Return the whole seconds since 1970-01-01T00:00:00Z, rounded down.
    ///
    /// ```
    /// # use campanile_sdk::Timestamp;
    /// assert_eq!(Timestamp::new(-1, 500_000_000).unix_seconds(), -1);
    /// ```
    pub fn unix_seconds(self) -> i64 {
        self.seconds
    }

    /// Return the fraction of a second, in nanoseconds.
    ///
    /// ```
    /// # use campanile_sdk::Timestamp;
    /// assert_eq!(Timestamp::new(-1, 500_000_000).subsec_nanoseconds(), 500_000_000);
    /// ```
    pub fn subsec_nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// Return the instant that is `duration` later.
    ///
    /// ```
    /// # use campanile_sdk::Timestamp;
    /// # use std::time::Duration;
    /// let later = Timestamp::new(0, 0).plus(Duration::from_millis(1500));
    /// assert_eq!(later.to_string(), "1970-01-01T00:00:01.5Z");
    /// ```
    pub fn plus(self, duration: Duration) -> Timestamp {
        let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        Timestamp::new(
            self.seconds.saturating_add(seconds),
            self.nanoseconds + duration.subsec_nanos(),
        )
    }

    /// Return the time from `earlier` to this instant, or zero if `earlier` is not earlier.
    ///
    /// ```
    /// # use campanile_sdk::Timestamp;
    /// # use std::time::Duration;
    /// let (early, late) = (Timestamp::new(10, 0), Timestamp::new(70, 0));
    /// assert_eq!(late.since(early), Duration::from_secs(60));
    /// assert_eq!(early.since(late), Duration::ZERO);
    /// ```
    pub fn since(self, earlier: Timestamp) -> Duration {
        if self <= earlier {
            return Duration::ZERO;
        }
        let seconds = self.seconds.abs_diff(earlier.seconds);
        // `self` is later. If its nanoseconds are fewer, its seconds are more, and one can be borrowed.
        if self.nanoseconds >= earlier.nanoseconds {
            Duration::new(seconds, self.nanoseconds - earlier.nanoseconds)
        } else {
            Duration::new(
                seconds - 1,
                self.nanoseconds + NANOS_PER_SECOND - earlier.nanoseconds,
            )
        }
    }

    /// Return the date in UTC, such as `2026-11-21`.
    ///
    /// ```
    /// # use campanile_sdk::Timestamp;
    /// let slot: Timestamp = "2026-11-21T00:30:00+01:00".parse()?;
    /// assert_eq!(slot.date(), "2026-11-20");
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    pub fn date(self) -> String {
        let (year, month, day) = civil_from_days(self.seconds.div_euclid(SECONDS_PER_DAY));
        format!("{year:04}-{month:02}-{day:02}")
    }
}

/// Print RFC 3339 in UTC, without trailing zeros in the fraction: `2026-11-21T08:00:00Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = self.seconds.rem_euclid(SECONDS_PER_DAY);
        write!(
            f,
            "{}T{:02}:{:02}:{:02}",
            self.date(),
            second / 3600,
            second / 60 % 60,
            second % 60
        )?;
        if self.nanoseconds != 0 {
            let digits = format!("{:09}", self.nanoseconds);
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

/// Parse RFC 3339 with any offset.
///
/// A leap second is read as the following second. The error is permanent.
impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Timestamp> {
        parse(text).ok_or_else(|| {
            Error::permanent(format!(
                "`{text}` is not an RFC 3339 time such as 2026-11-21T08:00:00Z"
            ))
        })
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    let days = days_from_date(date)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (clock, mut rest) = (rest.get(..8)?, rest.get(8..)?);
    let colons = clock.as_bytes()[2] == b':' && clock.as_bytes()[5] == b':';
    let hour = number(clock.get(..2)?, 23)?;
    let minute = number(clock.get(3..5)?, 59)?;
    let second = number(clock.get(6..8)?, 60)?;
    let mut nanoseconds = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let end = fraction
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(fraction.len());
        let (digits, after) = fraction.split_at(end);
        if digits.is_empty() {
            return None;
        }
        // Digits below a nanosecond are dropped.
        for index in 0..9 {
            let digit = digits.as_bytes().get(index).map_or(0, |byte| byte - b'0');
            nanoseconds = nanoseconds * 10 + u32::from(digit);
        }
        rest = after;
    }
    let offset = match rest {
        "Z" | "z" => 0,
        _ => {
            let sign = match rest.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let hours = number(rest.get(1..3)?, 23)?;
            let minutes = number(rest.get(3..)?.strip_prefix(':')?, 59)?;
            sign * (hours * 3600 + minutes * 60)
        }
    };
    colons.then(|| {
        let second = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
        Timestamp::new(second - offset, nanoseconds)
    })
}

/// Parse two digits as a number of at most `max`.
fn number(digits: &str, max: i64) -> Option<i64> {
    let well_formed = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value: i64 = well_formed.then(|| digits.parse().ok())??;
    (value <= max).then_some(value)
}

/// Return the days since 1970 of `YYYY-MM-DD`, or `None` if the date does not exist.
fn days_from_date(date: &str) -> Option<i64> {
    let year = number(date.get(..2)?, 99)? * 100 + number(date.get(2..4)?, 99)?;
    let month = number(date.get(4..7)?.strip_prefix('-')?, 12)?;
    let day = number(date.get(7..10)?.strip_prefix('-')?, 31)?;
    if month == 0 || day == 0 {
        return None;
    }
    let days = days_from_civil(year, month, day);
    // A date that does not exist does not round-trip: 30 February becomes 2 March.
    (civil_from_days(days) == (year, month, day)).then_some(days)
}

/// Return the days since 1970 in the proleptic Gregorian calendar, counted in eras of 400 years that begin on 1
/// March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Return year, month and day: the inverse of [`days_from_civil`].
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

impl From<Timestamp> for SystemTime {
    fn from(timestamp: Timestamp) -> SystemTime {
        let whole = Duration::from_secs(timestamp.seconds.unsigned_abs());
        let start = if timestamp.seconds < 0 {
            UNIX_EPOCH.checked_sub(whole)
        } else {
            UNIX_EPOCH.checked_add(whole)
        };
        // A time outside the range of the platform's clock becomes the epoch instead of a panic.
        start.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(u64::from(timestamp.nanoseconds))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Timestamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn known_times_parse_to_their_unix_seconds() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59Z", -1),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2026-11-21T08:00:00Z", 1_795_248_000),
            ("2026-11-21T09:00:00+01:00", 1_795_248_000),
            ("2026-11-21T02:30:00-05:30", 1_795_248_000),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
            ("0001-01-01T00:00:00Z", -62_135_596_800),
            ("2016-12-31T23:59:60Z", 1_483_228_800),
        ] {
            assert_eq!(at(text).unix_seconds(), seconds, "{text}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_round_trips() {
        let mut previous = days_from_civil(1900, 1, 1) - 1;
        for year in 1900..2300 {
            for month in 1..=12 {
                for day in 1..=31 {
                    let text = format!("{year:04}-{month:02}-{day:02}");
                    if let Some(days) = days_from_date(&text) {
                        assert_eq!(days, previous + 1, "{text}");
                        assert_eq!(Timestamp::new(days * SECONDS_PER_DAY, 0).date(), text);
                        previous = days;
                    }
                }
            }
        }
        assert_eq!(previous + 1, days_from_civil(2300, 1, 1));
    }

    #[test]
    fn fractions_are_printed_without_trailing_zeros() {
        assert_eq!(
            at("2026-11-21T08:00:00.250Z").subsec_nanoseconds(),
            250_000_000
        );
        assert_eq!(
            at("2026-11-21T08:00:00.250Z").to_string(),
            "2026-11-21T08:00:00.25Z"
        );
        assert_eq!(
            at("2026-11-21T08:00:00.0000000019Z").subsec_nanoseconds(),
            1
        );
        assert_eq!(
            at("1969-12-31T23:59:59.5Z").to_string(),
            "1969-12-31T23:59:59.5Z"
        );
    }

    #[test]
    fn text_that_is_not_a_time_is_an_error() {
        for text in [
            "",
            "2026-11-21",
            "2026-11-21T08:00Z",
            "2026-11-21T08:00:00",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T08:60:00Z",
            "2026-11-21T08:00:00.Z",
            "2026-11-21T08:00:00+1:00",
            "2026-11-21T08:00:00+01:00x",
            "2026-11-21T08-00-00Z",
            "+026-11-21T08:00:00Z",
            "2026-11-2éT08:00:00Z",
            "2026-00-10T00:00:00Z",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn since_borrows_from_the_seconds() {
        let early = at("1969-12-31T23:59:58.9Z");
        let late = at("1970-01-01T00:00:01.1Z");
        assert_eq!(late.since(early), Duration::from_millis(2200));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early.plus(Duration::from_millis(2200)), late);
        let system = SystemTime::from(early);
        assert_eq!(
            UNIX_EPOCH.duration_since(system).unwrap(),
            Duration::from_millis(1100)
        );
    }
}
