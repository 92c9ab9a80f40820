//! Time: its type, and the only place that reads the clock.
//!
//! All other code takes `now` as an argument, so that a test sets it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, FixedOffset, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// An instant in UTC, in whole microseconds, the precision of both databases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, schemars::JsonSchema)]
// Without this empty description, the schema of each key would repeat the comment above.
#[schemars(inline, description = "", extend("format" = "date-time"))]
pub struct Timestamp(#[schemars(with = "String")] i64);

const DAY_MICROS: i64 = 24 * 3_600 * 1_000_000;

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Timestamp = Timestamp(0);
    /// The beginning of the year 1.
    pub const FIRST: Timestamp = Timestamp(-62_135_596_800_000_000);
    /// The last microsecond of the year 9999.
    pub const LAST: Timestamp = Timestamp(253_402_300_799_999_999);

    /// Return the instant `micros` microseconds after the epoch.
    ///
    /// The result is clamped to the years 1 to 9999, which RFC 3339 can write.
    pub fn from_micros(micros: i64) -> Timestamp {
        Timestamp(micros.clamp(Timestamp::FIRST.0, Timestamp::LAST.0))
    }

    /// Return the microseconds since the epoch.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Return the days since the epoch, in UTC.
    pub fn day(self) -> i64 {
        self.0.div_euclid(DAY_MICROS)
    }

    /// Return the beginning of a day, in UTC.
    pub fn of_day(day: i64) -> Timestamp {
        Timestamp::from_micros(day.saturating_mul(DAY_MICROS))
    }

    /// Return the date in UTC, such as `2026-11-21`.
    pub fn date_text(self) -> String {
        self.to_chrono().format("%Y-%m-%d").to_string()
    }

    /// Return the next midnight in UTC.
    pub fn next_day(self) -> Timestamp {
        Timestamp::of_day(self.day() + 1)
    }

    /// Return the instant `duration` later.
    pub fn plus(self, duration: Duration) -> Timestamp {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(self.0.saturating_add(micros))
    }

    /// Return the instant `duration` earlier.
    pub fn minus(self, duration: Duration) -> Timestamp {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(self.0.saturating_sub(micros))
    }

    /// Return the time from `earlier` to this instant; zero when this instant is earlier.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Convert to the type of chrono.
    pub fn to_chrono(self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0).unwrap_or_default()
    }

    /// Print as the clock of `zone` shows it, which is `utc_offset` seconds ahead of UTC: `2026-11-21T09:00:00+01:00[Europe/Paris]`.
    pub fn local_text(self, utc_offset: i64, zone: &str) -> String {
        let offset = i32::try_from(utc_offset)
            .ok()
            .and_then(FixedOffset::east_opt);
        let local = match offset {
            Some(offset) => self.to_chrono().with_timezone(&offset),
            None => self.to_chrono().fixed_offset(),
        };
        let text = local.to_rfc3339_opts(SecondsFormat::AutoSi, false);
        format!("{text}[{zone}]")
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(time: DateTime<Utc>) -> Timestamp {
        Timestamp::from_micros(time.timestamp_micros())
    }
}

/// Print RFC 3339 in UTC, with a fraction only when it is not zero: `2026-11-21T08:00:00Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = match self.0.rem_euclid(1_000_000) {
            0 => SecondsFormat::Secs,
            _ => SecondsFormat::Micros,
        };
        f.write_str(&self.to_chrono().to_rfc3339_opts(format, true))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Read RFC 3339 with any offset.
impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Timestamp, InvalidTimestamp> {
        DateTime::parse_from_rfc3339(text)
            .map(|time| Timestamp::from(time.to_utc()))
            .map_err(|_| InvalidTimestamp(text.to_owned()))
    }
}

/// A text that is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an RFC 3339 time such as 2026-11-21T08:00:00Z")]
pub struct InvalidTimestamp(String);

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The source of `now`: [`Clock::system`] in the product, [`Clock::simulated`] in tests.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    /// The machine's clock, plus an offset in microseconds that follows the clock of the database.
    System(Arc<AtomicI64>),
    /// A value that tests move.
    Simulated(Arc<watch::Sender<Timestamp>>),
}

impl Clock {
    /// Return the machine's clock.
    pub fn system() -> Clock {
        Clock(Source::System(Arc::new(AtomicI64::new(0))))
    }

    /// Return a clock that shows `start` until [`Clock::advance_to`] moves it.
    pub fn simulated(start: Timestamp) -> Clock {
        Clock(Source::Simulated(Arc::new(watch::Sender::new(start))))
    }

    /// Return the present instant.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the only place that reads the machine's clock"
    )]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System(offset_us) => {
                let machine = Timestamp::from(Utc::now());
                Timestamp::from_micros(machine.0 + offset_us.load(Ordering::Relaxed))
            }
            Source::Simulated(now) => *now.borrow(),
        }
    }

    /// Set the offset that is added to the machine's clock, in microseconds.
    ///
    /// Many hosts follow one clock; on Postgres it is the clock of the database. A simulated clock has no offset.
    pub fn set_offset_us(&self, offset: i64) {
        if let Source::System(offset_us) = &self.0 {
            offset_us.store(offset, Ordering::Relaxed);
        }
    }

    /// Return the offset in microseconds.
    pub fn offset_us(&self) -> i64 {
        match &self.0 {
            Source::System(offset_us) => offset_us.load(Ordering::Relaxed),
            Source::Simulated(_) => 0,
        }
    }

    /// Wait until the clock shows `deadline` or later.
    ///
    /// The function reads the system clock at least once a minute, because a timer uses the monotonic
    /// clock: a correction of the clock and the machine's sleep do not move it.
    pub async fn sleep_until(&self, deadline: Timestamp) {
        match &self.0 {
            Source::System(_) => loop {
                let wait = deadline.since(self.now());
                if wait.is_zero() {
                    return;
                }
                tokio::time::sleep(wait.min(Duration::from_secs(60))).await;
            },
            Source::Simulated(now) => {
                let mut now = now.subscribe();
                // This clock owns the sender, so the wait cannot fail.
                let _ = now.wait_for(|now| *now >= deadline).await;
            }
        }
    }

    /// Move a simulated clock forward; an earlier instant and the system clock are left alone.
    pub fn advance_to(&self, to: Timestamp) {
        if let Source::Simulated(now) = &self.0 {
            now.send_if_modified(|now| {
                let forward = to > *now;
                *now = (*now).max(to);
                forward
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_printed_only_when_it_is_not_zero() {
        let whole = Timestamp::from_micros(1_800_000_000_000_000);
        let fine = Timestamp::from_micros(1_800_000_000_000_001);
        assert_eq!(whole.to_string(), "2027-01-15T08:00:00Z");
        assert_eq!(fine.to_string(), "2027-01-15T08:00:00.000001Z");
        assert_eq!(fine.to_string().parse(), Ok(fine));
    }

    #[test]
    fn an_instant_is_from_the_years_that_its_text_can_show() {
        let first = Timestamp::from_micros(i64::MIN);
        let last = Timestamp::from_micros(i64::MAX);
        assert_eq!(first.to_string(), "0001-01-01T00:00:00Z");
        assert_eq!(last.to_string(), "9999-12-31T23:59:59.999999Z");
        assert_eq!(
            [first, last].map(|time| time.to_string().parse()),
            [Ok(first), Ok(last)]
        );
    }

    #[test]
    fn the_schema_of_an_instant_is_a_text_of_this_format() {
        let schema = schemars::schema_for!(Timestamp);
        let schema = schema.as_object().unwrap();
        assert_eq!(
            (&schema["type"], &schema["format"]),
            (&"string".into(), &"date-time".into())
        );
        assert!(!schema.contains_key("description"));
    }

    #[tokio::test]
    async fn a_simulated_clock_wakes_its_sleepers_and_never_goes_back() {
        let start = Timestamp::from_micros(1_000_000);
        let clock = Clock::simulated(start);
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(start.plus(Duration::from_secs(5))).await }
        });
        clock.advance_to(start.plus(Duration::from_secs(5)));
        sleeper.await.unwrap();
        clock.advance_to(start);
        assert_eq!(clock.now(), start.plus(Duration::from_secs(5)));
    }
}
