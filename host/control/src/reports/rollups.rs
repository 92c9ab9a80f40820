//! How launches went over days and months: the rollup, and the newest launches that it doesn't have yet.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_model::rollup::Period;
use campanile_store::rollup::{self, HourResults, Rollup};
use campanile_store::troubles::{self, RecentLaunch};
use campanile_store::{DbError, Tx, seals};

use super::overview::DECISIONS_MAX;
use crate::rules::rollup::EndedLaunch;

/// A span up to now in equal periods of UTC. The last one isn't over yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollupSpan {
    pub period: Period,
    pub count: u16,
}

impl RollupSpan {
    pub const HOURS_24: RollupSpan = RollupSpan::hours(24);
    pub const HOURS_OF_7_DAYS: RollupSpan = RollupSpan::hours(7 * 24);
    pub const DAYS_7: RollupSpan = RollupSpan::days(7);
    pub const DAYS_30: RollupSpan = RollupSpan::days(30);
    pub const DAYS_OF_12_WEEKS: RollupSpan = RollupSpan::days(12 * 7);
    pub const DAYS_OF_A_YEAR: RollupSpan = RollupSpan::days(365);

    const fn hours(count: u16) -> RollupSpan {
        RollupSpan {
            period: Period::Hour,
            count,
        }
    }

    const fn days(count: u16) -> RollupSpan {
        RollupSpan {
            period: Period::Day,
            count,
        }
    }

    /// Returns the beginnings of the periods, the oldest first.
    pub fn starts(self, now: Timestamp) -> impl Iterator<Item = Timestamp> {
        let last = self.period.start(now);
        let before = move |periods: u16| last.minus(self.period.length() * u32::from(periods));
        (0..self.count).rev().map(before)
    }

    /// Returns the beginning of the oldest period.
    pub fn since(self, now: Timestamp) -> Timestamp {
        self.starts(now).next().unwrap_or(now)
    }
}

/// The newest launches, which aren't sealed yet, so that the rollup doesn't have them.
#[derive(Debug, Default)]
pub struct UnsealedLaunches {
    launches: Vec<RecentLaunch>,
    /// The launches decided before this are counted once they have ended, those decided later aren't.
    pub counted_until: Timestamp,
}

impl UnsealedLaunches {
    /// Reads them, at most [`DECISIONS_MAX`]. With more of them none is counted, so that no time has a part of its launches.
    ///
    /// # Errors
    ///
    /// Fails if the database does.
    pub async fn read(tx: &mut Tx, now: Timestamp) -> Result<UnsealedLaunches, DbError> {
        let sealed = seals::newest_end(tx).await?;
        let (until, late) = sealed.unwrap_or((Timestamp::FIRST, None));
        let recent = troubles::newest_decisions(tx, until, DECISIONS_MAX).await?;
        let is_cut = recent.len() as i64 == DECISIONS_MAX;
        // While a clock that was set back hasn't caught up, new launches have times before the end of the last seal.
        let counted_until = late.or(is_cut.then_some(until)).unwrap_or(now);
        Ok(UnsealedLaunches {
            launches: if is_cut { Vec::new() } else { recent },
            counted_until,
        })
    }
}

/// How launches went, by schedule or package, and in each of them by the periods with a launch.
pub type RollupsBy<K> = HashMap<K, BTreeMap<Timestamp, Rollup>>;

/// Returns how launches of schedules went. A schedule without launches in the span is left out.
///
/// # Errors
///
/// Fails if the database does.
pub async fn of_schedules(
    tx: &mut Tx,
    schedules: &[ScheduleId],
    span: RollupSpan,
    unsealed: &UnsealedLaunches,
    now: Timestamp,
) -> Result<RollupsBy<ScheduleId>, DbError> {
    let since = span.since(now);
    let rows = rollup::of_schedules(tx, schedules, span.period, since).await?;
    let rows = rows
        .into_iter()
        .map(|row| (row.schedule_id, row.starts_at, row.rollup));
    let newest = unsealed.launches.iter();
    let newest = newest.filter(|launch| schedules.contains(&launch.schedule_id));
    let newest = newest.map(|launch| (launch.schedule_id, launch));
    Ok(merged(rows, newest, span, since))
}

/// Returns how launches of packages went. A package without launches in the span is left out.
///
/// # Errors
///
/// Fails if the database does.
pub async fn of_packages(
    tx: &mut Tx,
    packages: &[String],
    span: RollupSpan,
    unsealed: &UnsealedLaunches,
    now: Timestamp,
) -> Result<RollupsBy<String>, DbError> {
    let since = span.since(now);
    let rows = rollup::of_packages(tx, packages, span.period, since).await?;
    let rows = rows
        .into_iter()
        .map(|row| (row.package, row.starts_at, row.rollup));
    let newest = unsealed.launches.iter();
    let newest = newest.filter(|launch| packages.contains(&launch.package));
    let newest = newest.map(|launch| (launch.package.clone(), launch));
    Ok(merged(rows, newest, span, since))
}

/// Pure: puts the rows of the rollup and the newest launches together.
fn merged<'l, K: Eq + Hash>(
    rows: impl Iterator<Item = (K, Timestamp, Rollup)>,
    newest: impl Iterator<Item = (K, &'l RecentLaunch)>,
    span: RollupSpan,
    since: Timestamp,
) -> RollupsBy<K> {
    let mut all: RollupsBy<K> = HashMap::new();
    for (key, start, rollup) in rows {
        let sum = all.entry(key).or_default().entry(start).or_default();
        sum.add(&rollup);
    }
    for (key, launch) in newest.filter(|(_, launch)| launch.finished_at.is_some()) {
        let launch = EndedLaunch::from(launch);
        let start = span.period.start(launch.slot);
        if start >= since {
            launch.count_in(all.entry(key).or_default().entry(start).or_default());
        }
    }
    all
}

/// Pure: sums up periods.
pub fn sum<'r>(periods: impl IntoIterator<Item = &'r Rollup>) -> Rollup {
    let mut sum = Rollup::default();
    for rollup in periods {
        sum.add(rollup);
    }
    sum
}

/// Returns how many launches succeeded and failed in the hour of `now` on each of the 7 days before, all together.
///
/// # Errors
///
/// Fails if the database does.
pub async fn same_hour_before(tx: &mut Tx, now: Timestamp) -> Result<(i64, i64), DbError> {
    let hour = Period::Hour.start(now);
    let before = (1..=7).map(|days| hour.minus(Period::Day.length() * days));
    let found = rollup::results_of_hours(tx, &Vec::from_iter(before)).await?;
    let sum = |of: fn(&HourResults) -> i64| found.iter().map(of).sum();
    Ok((sum(|hour| hour.succeeded), sum(|hour| hour.failed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_ends_with_the_present_period() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2026-11-29T18:42:31Z");
        let starts = Vec::from_iter(RollupSpan::HOURS_24.starts(now));
        assert_eq!(starts.len(), 24);
        assert_eq!(starts[0], at("2026-11-28T19:00:00Z"));
        assert_eq!(starts[23], at("2026-11-29T18:00:00Z"));
        assert_eq!(RollupSpan::HOURS_24.since(now), starts[0]);
        let days = RollupSpan::DAYS_30.since(now);
        assert_eq!(days, at("2026-10-31T00:00:00Z"));
        for span in [
            RollupSpan::HOURS_24,
            RollupSpan::HOURS_OF_7_DAYS,
            RollupSpan::DAYS_7,
            RollupSpan::DAYS_OF_12_WEEKS,
            RollupSpan::DAYS_OF_A_YEAR,
        ] {
            let is_kept = span.since(now) >= span.period.oldest(now);
            assert!(is_kept, "{span:?}");
        }
    }
}
