//! Health findings about harm a package, schedule or namespace does only to itself: a backlog caused by its own limits, slots
//! overlapping its own launches, a used-up quota. They name the culprit but leave the installation healthy, as nobody else is
//! affected.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::reports::health::NAMED_MAX;
use crate::reports::symptom::Symptom;
use crate::rules::lateness::{Lag, ON_TIME_MAX, OVERDUE};
use campanile_model::clock::Timestamp;
use campanile_model::namespace::split;
use campanile_store::stats::{self, StartedLaunch};
use campanile_store::{DbError, Tx, package_record};

/// On-time launches starting later than this point to overloaded hosts, or to a package with more launches than it may run.
const LAG_MAX_MS: f64 = ON_TIME_MAX.as_secs() as f64 * 1e3;
/// Period over which lag is judged.
const LAG_SPAN: Duration = Duration::from_secs(600);
/// Lag is judged on this many of the newest launches.
const LAGS_MAX: i64 = 2_000;
/// Period over which skips are judged.
const SKIPS_SPAN: Duration = Duration::from_secs(24 * 3_600);
/// Skips are judged on this many of the newest decisions.
const SKIPS_SEARCHED: i64 = 2_000;
/// A schedule needs this many decided slots before its skips are worth reporting.
const SLOTS_MIN: i64 = 10;
/// Packages whose waiting launches are counted, at most.
const STARVED_MAX: i64 = 10_000;

#[derive(Debug, Default)]
pub(crate) struct OwnBacklog {
    /// Findings about a single package, schedule or namespace.
    pub notes: Vec<Symptom>,
    /// Findings about the whole installation.
    pub issues: Vec<Symptom>,
    /// Launches held up by their own package.
    pub stalled: i64,
}

/// Finds what packages, schedules and namespaces did to themselves.
pub(crate) async fn find(tx: &mut Tx, now: Timestamp) -> Result<OwnBacklog, DbError> {
    let mut found = OwnBacklog::default();
    let overdue_since = now.minus(OVERDUE);
    let starved = stats::starved_packages(tx, overdue_since, STARVED_MAX).await?;
    found.stalled = starved.iter().map(|(_, launches, _)| launches).sum();
    for (package, launches, since) in starved.into_iter().take(NAMED_MAX as usize) {
        found.notes.push(Symptom::PackageStarved {
            package,
            launches,
            since,
        });
    }
    for name in package_record::exceeded(tx, now.day()).await? {
        let whose = match split(&name) {
            (Some(namespace), "") => format!("the namespace {namespace}"),
            _ => format!("the package `{name}`"),
        };
        found.notes.push(Symptom::QuotaUsed { whose });
    }
    let since = now.minus(SKIPS_SPAN);
    let skips = stats::mostly_skipped(tx, since, SKIPS_SEARCHED, SLOTS_MIN, NAMED_MAX).await?;
    for (schedule, skipped, slots) in skips {
        found.notes.push(Symptom::MostlySkipped {
            schedule,
            skipped,
            slots,
        });
    }
    let launches = stats::newest_lags(tx, now.minus(LAG_SPAN), LAGS_MAX).await?;
    judge_lags(&launches, &mut found);
    Ok(found)
}

/// Pure: judges how late launches start. If only a few packages are late while most others are on time, those few are holding
/// themselves up.
fn judge_lags(launches: &[StartedLaunch], found: &mut OwnBacklog) {
    let mut by_package: BTreeMap<&str, Vec<(Timestamp, Timestamp)>> = BTreeMap::new();
    for launch in launches {
        let of_package = by_package.entry(&launch.package).or_default();
        of_package.push((launch.fire_time, launch.started_at));
    }
    let packages = by_package.len();
    let lags = by_package.into_iter();
    let lags = lags.map(|(package, times)| (package, Lag::of(times).p99));
    let late = Vec::from_iter(lags.filter(|(_, p99)| *p99 > LAG_MAX_MS));
    let minutes = LAG_SPAN.as_secs() / 60;
    if late.len() * 2 > packages {
        let all = launches.iter().map(|it| (it.fire_time, it.started_at));
        let late_s = Lag::of(all).p99 / 1e3;
        found.issues.push(Symptom::StartsLate { minutes, late_s });
        return;
    }
    for (package, p99) in late.into_iter().take(NAMED_MAX as usize) {
        found.notes.push(Symptom::PackageStartsLate {
            package: package.to_owned(),
            minutes,
            late_s: p99 / 1e3,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launches(package: &str, late: Duration, count: usize) -> Vec<StartedLaunch> {
        let fire_time = Timestamp::EPOCH;
        let launch = StartedLaunch {
            package: package.to_owned(),
            fire_time,
            started_at: fire_time.plus(late),
        };
        vec![launch; count]
    }

    fn judged(packages: &[(&str, u64)]) -> (usize, usize) {
        let all = packages.iter();
        let all = all.flat_map(|(name, late)| launches(name, Duration::from_secs(*late), 50));
        let mut found = OwnBacklog::default();
        judge_lags(&Vec::from_iter(all), &mut found);
        (found.issues.len(), found.notes.len())
    }

    #[test]
    fn a_package_that_is_late_alone_is_its_own_finding() {
        assert_eq!(judged(&[]), (0, 0));
        assert_eq!(judged(&[("a", 0), ("b", 1)]), (0, 0));
        assert_eq!(judged(&[("a", 60), ("b", 0)]), (0, 1));
        assert_eq!(judged(&[("a", 60), ("b", 60), ("c", 0), ("d", 0)]), (0, 2));
        // If most packages are late, or the only one is, the hosts are to blame.
        assert_eq!(judged(&[("a", 60), ("b", 60), ("c", 0)]), (1, 0));
        assert_eq!(judged(&[("a", 60)]), (1, 0));
    }
}
