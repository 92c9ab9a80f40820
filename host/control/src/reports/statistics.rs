//! Launch statistics: counts, rates and delays.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::rules::lateness::Lag;
use campanile_model::clock::Timestamp;
use campanile_store::schedules::Schedule;
use campanile_store::stats::{self, Counts};
use campanile_store::task_use::{self, UseSums};
use campanile_store::{DbError, Tx};

/// Maximum number of launches sampled for measuring lag.
const LAGS_MAX: i64 = 10_000;
/// Maximum number of executions sampled for averaging a schedule's duration.
const SAMPLE_OF_SCHEDULE: i64 = 1_000;

/// Statistics covering a time span ending now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Statistics {
    pub since: Timestamp,
    #[serde(flatten)]
    pub counts: Counts,
    #[serde(flatten)]
    pub rates: Rates,
    /// Lag of on-time launches, counting from fire time to start.
    pub lag_ms: Lag,
    /// Lag of queued, caught-up and manually triggered launches.
    pub wait_ms: Lag,
}

/// Statistics for one schedule's slots in a time span ending now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ScheduleStatistics {
    pub schedule: String,
    pub since: Timestamp,
    #[serde(flatten)]
    pub counts: Counts,
    #[serde(flatten)]
    pub rates: Rates,
    #[serde(flatten)]
    pub used: UseSums,
}

/// Rates derived from counts. Shares range from 0 to 1, with none for an empty denominator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Rates {
    /// The share of the ended launches that succeeded, 0 to 1; none when none ended.
    pub success_rate: Option<f64>,
    /// The share of the ended launches that failed; cancelled ones do not count as ended.
    pub failed_rate: Option<f64>,
    /// Launches that succeeded or failed, a minute, over the whole span.
    pub executions_per_minute: f64,
    /// The mean time from start to end of the newest executions, waits for retries included, in milliseconds.
    pub average_time_ms: Option<f64>,
    /// What half of these times do not exceed, in milliseconds.
    pub p50_time_ms: Option<f64>,
    /// What 95 % of these times do not exceed, in milliseconds.
    pub p95_time_ms: Option<f64>,
    /// How often a launch lost its host: each recovery, and each launch that ended as abandoned or unknown.
    pub lost: i64,
    /// The share of the launches that lost their host and then succeeded, among those that ended as succeeded, failed or
    /// abandoned.
    pub recovery_success_rate: Option<f64>,
}

impl Rates {
    /// Derives rates from counts, averaging over a sample of `executions` given as start and end.
    pub fn of(counts: &Counts, span: Duration, executions: &[(Timestamp, Timestamp)]) -> Rates {
        let share = |part: i64, whole: i64| (whole > 0).then(|| part as f64 / whole as f64);
        let ended = counts.succeeded + counts.failed + counts.unknown + counts.abandoned;
        let (recovered, failed) = (counts.recovery_successes, counts.recovery_failures);
        let minutes = span.as_secs_f64() / 60.0;
        let executed = (counts.succeeded + counts.failed) as f64;
        let times = executions.iter().map(|(start, end)| end.since(*start));
        let mut times_ms = Vec::from_iter(times.map(|time| time.as_secs_f64() * 1e3));
        times_ms.sort_by(f64::total_cmp);
        let at_percent = |percent: usize| {
            let rank = (times_ms.len() * percent).div_ceil(100);
            times_ms.get(rank.checked_sub(1)?).copied()
        };
        Rates {
            success_rate: share(counts.succeeded, ended),
            failed_rate: share(counts.failed, ended),
            executions_per_minute: if minutes > 0.0 {
                executed / minutes
            } else {
                0.0
            },
            average_time_ms: (!times_ms.is_empty())
                .then(|| times_ms.iter().sum::<f64>() / times_ms.len() as f64),
            p50_time_ms: at_percent(50),
            p95_time_ms: at_percent(95),
            lost: counts.recovery_attempts + counts.abandoned + counts.unknown,
            recovery_success_rate: share(recovered, recovered + failed + counts.abandoned),
        }
    }
}

/// Returns statistics for launches decided within `span` before `now`.
pub async fn read(tx: &mut Tx, now: Timestamp, span: Duration) -> Result<Statistics, DbError> {
    let since = now.minus(span);
    let (counts, rates) = counts_and_rates(tx, now, span).await?;
    Ok(Statistics {
        since,
        counts,
        rates,
        lag_ms: Lag::of(stats::lags(tx, since, LAGS_MAX).await?),
        wait_ms: Lag::of(stats::waits(tx, since, LAGS_MAX).await?),
    })
}

/// Counts the launches decided within `span` before `now`, deriving their rates.
pub async fn counts_and_rates(
    tx: &mut Tx,
    now: Timestamp,
    span: Duration,
) -> Result<(Counts, Rates), DbError> {
    let since = now.minus(span);
    let counts = stats::counts(tx, since).await?;
    let executions = stats::executions(tx, since, LAGS_MAX).await?;
    Ok((counts, Rates::of(&counts, span, &executions)))
}

/// Returns statistics per schedule for slots within `span` before `now`.
pub async fn of_schedules(
    tx: &mut Tx,
    schedules: &[Schedule],
    now: Timestamp,
    span: Duration,
) -> Result<Vec<ScheduleStatistics>, DbError> {
    let since = now.minus(span);
    let ids = Vec::from_iter(schedules.iter().map(|schedule| schedule.state.id));
    let all = stats::counts_of(tx, &ids, since).await?;
    let used = task_use::of_schedules(tx, &ids, since).await?;
    let mut rows = Vec::with_capacity(schedules.len());
    for schedule in schedules {
        let id = schedule.state.id;
        let counts = all.get(&id).copied().unwrap_or_default();
        let executions = match counts.succeeded + counts.failed {
            0 => Vec::new(),
            _ => stats::executions_of(tx, id, since, SAMPLE_OF_SCHEDULE).await?,
        };
        rows.push(ScheduleStatistics {
            schedule: schedule.definition.name.clone(),
            since,
            counts,
            rates: Rates::of(&counts, span, &executions),
            used: used.get(&id).copied().unwrap_or_default(),
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_shares_of_what_was_counted() {
        let counts = Counts {
            launches: 12,
            succeeded: 6,
            failed: 2,
            cancelled: 1,
            unknown: 1,
            unfinished: 1,
            recovered: 5,
            recovery_attempts: 7,
            recovery_successes: 3,
            recovery_failures: 1,
            abandoned: 1,
            ..Counts::default()
        };
        let second = |s| Timestamp::EPOCH.plus(Duration::from_secs(s));
        let executions = [(second(1), second(2)), (second(5), second(8))];
        let rates = Rates::of(&counts, Duration::from_secs(240), &executions);
        let expected = Rates {
            success_rate: Some(0.6),
            failed_rate: Some(0.2),
            executions_per_minute: 2.0,
            average_time_ms: Some(2_000.0),
            p50_time_ms: Some(1_000.0),
            p95_time_ms: Some(3_000.0),
            lost: 9,
            recovery_success_rate: Some(0.6),
        };
        assert_eq!(rates, expected);
        let nothing = Rates::of(&Counts::default(), Duration::ZERO, &[]);
        assert_eq!((nothing.success_rate, nothing.failed_rate), (None, None));
        assert_eq!(nothing.executions_per_minute, 0.0);
        assert_eq!((nothing.average_time_ms, nothing.lost), (None, 0));
        assert_eq!((nothing.p50_time_ms, nothing.p95_time_ms), (None, None));
        assert_eq!(nothing.recovery_success_rate, None);
    }
}
