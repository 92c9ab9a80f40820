//! Time: its type, and the only place that reads the clock.
//!
//! All other code takes `now` as an argument, so that a test sets it.

mod time_state;

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, FixedOffset, SecondsFormat, Utc};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

pub use time_state::{CONFIRM, Look, STEP_MIN};
use time_state::{Reading, TimeState};

/// An instant in UTC, in whole microseconds, the precision of both databases.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, schemars::JsonSchema)]
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

    /// Returns the instant `micros` microseconds after the epoch.
    ///
    /// The result is clamped to the years 1 to 9999, which RFC 3339 can write.
    pub fn from_micros(micros: i64) -> Timestamp {
        Timestamp(micros.clamp(Timestamp::FIRST.0, Timestamp::LAST.0))
    }

    /// Returns the microseconds since the epoch.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Returns the days since the epoch, in UTC.
    pub fn day(self) -> i64 {
        self.0.div_euclid(DAY_MICROS)
    }

    /// Returns the beginning of a day, in UTC.
    pub fn of_day(day: i64) -> Timestamp {
        Timestamp::from_micros(day.saturating_mul(DAY_MICROS))
    }

    /// Returns the date in UTC, such as `2026-11-21`.
    pub fn date_text(self) -> String {
        self.to_chrono().format("%Y-%m-%d").to_string()
    }

    /// Returns the next midnight in UTC.
    pub fn next_day(self) -> Timestamp {
        Timestamp::of_day(self.day() + 1)
    }

    /// Returns the instant `duration` later.
    pub fn plus(self, duration: Duration) -> Timestamp {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(self.0.saturating_add(micros))
    }

    /// Returns the instant `duration` earlier.
    pub fn minus(self, duration: Duration) -> Timestamp {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(self.0.saturating_sub(micros))
    }

    /// Returns the time from `earlier` to this instant; zero when this instant is earlier.
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

/// An instant on the machine's monotonic clock, in microseconds.
///
/// No change of the machine's time moves it, and it counts while the machine is suspended. It means nothing to another
/// process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(i64);

impl Monotonic {
    /// An instant that never comes.
    pub const NEVER: Monotonic = Monotonic(i64::MAX);

    /// Returns the instant that [`Monotonic::micros`] gave.
    pub fn from_micros(micros: i64) -> Monotonic {
        Monotonic(micros)
    }

    /// Returns the microseconds since an instant before the process began.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Returns the instant `duration` later.
    pub fn plus(self, duration: Duration) -> Monotonic {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Monotonic(self.0.saturating_add(micros))
    }

    /// Returns the time from `earlier` to this instant; zero when this instant is earlier.
    pub fn since(self, earlier: Monotonic) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// What the clock of a database showed at a moment of this process.
#[derive(Debug, Clone, Copy)]
pub struct Anchor {
    pub at: Monotonic,
    pub time: Timestamp,
    /// By how much `at` may be wrong.
    pub error: Duration,
}

/// The source of `now`: [`Clock::system`] in the product, [`Clock::simulated`] in tests.
#[derive(Clone)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    /// An anchor plus the monotonic time since.
    System(Arc<SystemClock>),
    /// A value that tests move.
    Simulated(Arc<watch::Sender<Timestamp>>),
}

struct SystemClock {
    /// `now` minus the monotonic clock, in microseconds: a copy from `state`, to be read without a lock.
    anchor_us: AtomicI64,
    state: Mutex<TimeState>,
    /// Wakes sleepers: `now` moved, or timers stood still.
    changed: watch::Sender<()>,
}

impl SystemClock {
    fn state(&self) -> MutexGuard<'_, TimeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.anchor_us.load(Ordering::Relaxed) + monotonic().micros())
    }

    /// Change what is known about the time, and wake sleepers if it matters to them.
    fn change<T>(&self, change: impl FnOnce(&mut TimeState) -> T, matters: fn(&T) -> bool) -> T {
        let mut state = self.state();
        let done = change(&mut state);
        self.anchor_us.store(state.anchor_us(), Ordering::Relaxed);
        drop(state);
        if matters(&done) {
            self.changed.send_replace(());
        }
        done
    }
}

impl Clock {
    /// Returns a clock that begins with the machine's wall clock.
    ///
    /// It advances with the monotonic clock. It follows the wall clock where [`Clock::look`] is called, and the clock of a
    /// database after [`Clock::follow`].
    pub fn system() -> Clock {
        let state = TimeState::new(reading());
        Clock(Source::System(Arc::new(SystemClock {
            anchor_us: AtomicI64::new(state.anchor_us()),
            state: Mutex::new(state),
            changed: watch::Sender::default(),
        })))
    }

    /// Returns a clock that shows `start` until [`Clock::advance_to`] moves it.
    pub fn simulated(start: Timestamp) -> Clock {
        Clock(Source::Simulated(Arc::new(watch::Sender::new(start))))
    }

    /// Returns the present instant.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System(clock) => clock.now(),
            Source::Simulated(now) => *now.borrow(),
        }
    }

    /// Returns the present instant of the monotonic clock. That of a simulated clock moves with its time.
    pub fn monotonic(&self) -> Monotonic {
        match &self.0 {
            Source::System(_) => monotonic(),
            Source::Simulated(now) => Monotonic(now.borrow().micros()),
        }
    }

    /// Returns the instant of the monotonic clock at which this clock shows `time`.
    pub fn monotonic_at(&self, time: Timestamp) -> Monotonic {
        match &self.0 {
            Source::System(clock) => {
                Monotonic(time.micros() - clock.anchor_us.load(Ordering::Relaxed))
            }
            Source::Simulated(_) => Monotonic(time.micros()),
        }
    }

    /// Whether `now` can be relied on: the wall clock has not stepped since the time was known last.
    pub fn is_known(&self) -> bool {
        match &self.0 {
            Source::System(clock) => clock.state().is_known(reading()),
            Source::Simulated(_) => true,
        }
    }

    /// Compare the wall clock with the monotonic clock. Call this about twice a second where decisions depend on `now`.
    pub fn look(&self) -> Look {
        let moves = |look: &Look| matches!(look, Look::Resumed | Look::Confirmed(_));
        match &self.0 {
            Source::System(clock) => clock.change(|state| state.look(reading()), moves),
            Source::Simulated(_) => Look::Steady,
        }
    }

    /// Follow the clock of a database, which showed `anchor`. Return by how many microseconds `now` moved.
    pub fn follow(&self, anchor: Anchor) -> i64 {
        let moves = |moved: &i64| moved.unsigned_abs() >= STEP_MIN.as_micros() as u64;
        match &self.0 {
            Source::System(clock) => clock.change(|state| state.follow(anchor), moves),
            Source::Simulated(_) => 0,
        }
    }

    /// Let the time be unknown until it is measured again.
    pub fn forget(&self) {
        if let Source::System(clock) = &self.0 {
            clock.state().forget();
        }
    }

    /// Returns by how many microseconds the machine's wall clock is ahead of the database's; zero without one.
    pub fn skew_us(&self) -> i64 {
        match &self.0 {
            Source::System(clock) if clock.state().follows_database() => {
                wall().micros() - clock.now().micros()
            }
            _ => 0,
        }
    }

    /// Wait until the clock shows `deadline` or later.
    ///
    /// A timer stands still while the machine is suspended. [`Clock::look`] notices that, and wakes this function.
    pub async fn sleep_until(&self, deadline: Timestamp) {
        match &self.0 {
            Source::System(clock) => {
                let mut changed = clock.changed.subscribe();
                loop {
                    let wait = deadline.since(clock.now());
                    if wait.is_zero() {
                        return;
                    }
                    let wait = tokio::time::sleep(wait.min(Duration::from_secs(60)));
                    tokio::select! {
                        () = wait => {}
                        _ = changed.changed() => {}
                    }
                }
            }
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

/// Read the monotonic clock.
fn monotonic() -> Monotonic {
    // On Linux `Monotonic` stands still while the machine is suspended; on macOS it does not.
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    Monotonic(time.tv_sec * 1_000_000 + time.tv_nsec / 1_000)
}

/// Read the wall clock.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the only place that reads the machine's wall clock"
)]
fn wall() -> Timestamp {
    Timestamp::from_micros(Timestamp::from(Utc::now()).micros() + test_step_us())
}

/// Read both clocks.
fn reading() -> Reading {
    let before = monotonic();
    let wall = wall();
    let took = monotonic().since(before);
    Reading {
        monotonic: before.plus(took / 2),
        wall,
        took_us: took.as_micros() as i64,
    }
}

/// Returns by how much a test sets the wall clock wrong, in microseconds: the file that `CAMPANILE_TEST_WALL_CLOCK` names has
/// the seconds. Only a build with debug assertions looks.
#[cfg(debug_assertions)]
fn test_step_us() -> i64 {
    static FILE: std::sync::LazyLock<Option<std::ffi::OsString>> =
        std::sync::LazyLock::new(|| std::env::var_os("CAMPANILE_TEST_WALL_CLOCK"));
    let text = FILE
        .as_ref()
        .and_then(|file| std::fs::read_to_string(file).ok());
    let seconds: Option<i64> = text.and_then(|text| text.trim().parse().ok());
    seconds.unwrap_or(0) * 1_000_000
}

/// Nothing, in a release build.
#[cfg(not(debug_assertions))]
#[inline(always)]
fn test_step_us() -> i64 {
    0
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

    #[tokio::test]
    async fn a_system_clock_follows_a_database_and_wakes_its_sleepers() {
        let clock = Clock::system();
        let hour = Duration::from_secs(3_600);
        assert_eq!((clock.is_known(), clock.skew_us()), (true, 0));
        let deadline = clock.now().plus(hour);
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(deadline).await }
        });
        tokio::task::yield_now().await;
        clock.forget();
        assert!(!clock.is_known());
        let moved = clock.follow(Anchor {
            at: clock.monotonic(),
            time: clock.now().plus(hour),
            error: Duration::ZERO,
        });
        assert!((3_599_000_000..=3_601_000_000).contains(&moved), "{moved}");
        sleeper.await.unwrap();
        assert!(clock.is_known() && clock.skew_us() <= -3_599_000_000);
        let (before, now) = (clock.monotonic(), clock.now());
        assert_eq!(clock.look(), Look::Steady);
        assert!(clock.monotonic() >= before && clock.now() >= now);
    }
}
