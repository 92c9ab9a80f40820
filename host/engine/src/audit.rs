//! The audit: compute statistics, and report whether the system is healthy.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::chores;
pub use crate::clock_keeper::SKEW_REPORTED_US;
use crate::ctx::{Ctx, SharedCtx};
use crate::cursor_watch::{CURSOR_AHEAD, NAMED_MAX, silent_until};
use crate::database_state;
use crate::disk_keeper::{grown_wal, unhealthy};
use crate::error::Result;
pub use crate::lateness::Lag;
use crate::lateness::OVERDUE;
use crate::own_backlog;
use crate::service::{Next, Service, record_event};
use crate::settings::Settings;
use crate::trouble;
use crate::use_growth::{self, GrowthPass};
use crate::work::stored_json;
use campanile_model::clock::Timestamp;
use campanile_model::text::{counted, duration_text, printable_line};
use campanile_schedule::policy::Policies;
use campanile_store::disk::DiskSigns;
use campanile_store::events::EventKind;
use campanile_store::schedules::Schedule;
use campanile_store::stats::{self, Counts, HealthSigns};
use campanile_store::task_use::{self, UseSums};
use campanile_store::{DbError, Tx, alert_messages, alerts, hosts, outbox};

/// So many overdue schedules are healthy.
const MISSED_MAX: i64 = 10;
/// So many stalled launches and runs are healthy.
const STALLED_MAX: i64 = 5;
/// The most launches on which the lag is measured.
const LAGS_MAX: i64 = 10_000;
/// The most executions from which the average time of a schedule is computed.
const SAMPLE_OF_SCHEDULE: i64 = 1_000;
/// A schedule is failing when this number of its newest launches failed.
const FAILURES: i64 = 3;
/// A load that takes longer is a sign that its host hangs: a host ends its loads before.
const LOAD_STUCK: Duration = Duration::from_secs(15 * 60);
/// How long health shows the steps of clocks, and how many of them.
const STEP_SPAN: Duration = Duration::from_secs(3_600);
const STEPS_MAX: i64 = 5;

/// Numbers about a span of time up to now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Statistics {
    pub since: Timestamp,
    #[serde(flatten)]
    pub counts: Counts,
    #[serde(flatten)]
    pub rates: Rates,
    /// The time from fire time to start of the newest on-time launches.
    pub lag_ms: Lag,
    /// The same time of the newest launches that waited in a queue, were caught up, or were requested.
    pub wait_ms: Lag,
}

/// Numbers about the launches of one schedule with a slot in a span of time up to now.
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

/// What the counts of a span come to. Shares are 0 to 1, and none where nothing was counted.
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
    /// How often a launch lost its host: each recovery, and each launch that ended as abandoned or unknown.
    pub lost: i64,
    /// The share of the launches that lost their host and then succeeded, among those that ended as succeeded, failed or
    /// abandoned.
    pub recovery_success_rate: Option<f64>,
}

impl Rates {
    /// Return the rates of launches in a span. `executions` are the start and the end of some.
    pub(crate) fn of(
        counts: &Counts,
        span: Duration,
        executions: &[(Timestamp, Timestamp)],
    ) -> Rates {
        let share = |part: i64, whole: i64| (whole > 0).then(|| part as f64 / whole as f64);
        let ended = counts.succeeded + counts.failed + counts.unknown + counts.abandoned;
        let (recovered, failed) = (counts.recovery_successes, counts.recovery_failures);
        let minutes = span.as_secs_f64() / 60.0;
        let executed = (counts.succeeded + counts.failed) as f64;
        let times = executions.iter().map(|(start, end)| end.since(*start));
        let total_ms = times.sum::<Duration>().as_secs_f64() * 1e3;
        Rates {
            success_rate: share(counts.succeeded, ended),
            failed_rate: share(counts.failed, ended),
            executions_per_minute: if minutes > 0.0 {
                executed / minutes
            } else {
                0.0
            },
            average_time_ms: (!executions.is_empty()).then(|| total_ms / executions.len() as f64),
            lost: counts.recovery_attempts + counts.abandoned + counts.unknown,
            recovery_success_rate: share(recovered, recovered + failed + counts.abandoned),
        }
    }
}

/// Whether the system is healthy, and if not, why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Health {
    pub healthy: bool,
    /// One sentence each.
    pub issues: Vec<String>,
    /// What an operator should look at although the system is healthy: one sentence each.
    pub notes: Vec<String>,
    #[serde(flatten)]
    pub signs: HealthSigns,
}

/// Pure: judge health by its signs, and by how many microseconds this machine's clock is ahead of the database's.
pub fn judge(signs: HealthSigns, skew_us: i64) -> Health {
    let mut issues = Vec::new();
    let overdue_s = OVERDUE.as_secs();
    if signs.live_hosts == 0 && signs.schedules > 0 {
        issues.push(format!(
            "the scheduler is stopped: no host serves {}; start `campanile serve`",
            counted(signs.schedules, "enabled schedule")
        ));
    }
    if signs.overdue_schedules > MISSED_MAX {
        issues.push(format!(
            "{} schedules have a slot that no host has decided for more than {overdue_s} s",
            signs.overdue_schedules
        ));
    }
    if signs.stalled > STALLED_MAX {
        issues.push(format!(
            "{} launches or runs have stood still for more than {overdue_s} s",
            signs.stalled
        ));
    }
    if signs.cursors_ahead > NAMED_MAX {
        issues.push(format!(
            "{} schedules have decided slots ahead of the clock",
            signs.cursors_ahead
        ));
    }
    if skew_us.abs() >= SKEW_REPORTED_US {
        let skew_s = skew_us as f64 / 1e6;
        issues.push(format!(
            "this machine's clock is {skew_s:.1} s off the database's; hosts use the database's, but let NTP set this one"
        ));
    }
    Health {
        healthy: issues.is_empty(),
        issues,
        notes: Vec::new(),
        signs,
    }
}

/// Return numbers about the launches decided in the span `span` before `now`.
pub async fn statistics(
    tx: &mut Tx,
    now: Timestamp,
    span: Duration,
) -> Result<Statistics, DbError> {
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

/// Return the counts of the launches decided in the span `span` before `now`, and what they come to.
pub(crate) async fn counts_and_rates(
    tx: &mut Tx,
    now: Timestamp,
    span: Duration,
) -> Result<(Counts, Rates), DbError> {
    let since = now.minus(span);
    let counts = stats::counts(tx, since).await?;
    let executions = stats::executions(tx, since, LAGS_MAX).await?;
    Ok((counts, Rates::of(&counts, span, &executions)))
}

/// Return numbers about the launches of each of `schedules` with a slot in the span `span` before `now`.
pub async fn schedule_statistics(
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

/// Returns the system's health at `now`. Hosts with ended leases don't count as live. `disk` holds measurements taken just before.
pub async fn health(
    tx: &mut Tx,
    now: Timestamp,
    settings: &Settings,
    skew_us: i64,
    disk: DiskSigns,
) -> Result<Health, DbError> {
    let overdue_since = now.minus(OVERDUE);
    let signs = stats::health_signs(tx, overdue_since, now, now.plus(CURSOR_AHEAD)).await?;
    let own = own_backlog::find(tx, now).await?;
    let of_all = HealthSigns {
        stalled: (signs.stalled - own.stalled).max(0),
        ..signs
    };
    let mut health = Health {
        signs,
        ..judge(of_all, skew_us)
    };
    let free = disk
        .free_bytes
        .and_then(|free| unhealthy(free, settings.disk_reserve_bytes));
    health.issues.extend(free);
    health.notes.extend(disk.wal_bytes.and_then(grown_wal));
    health.issues.extend(database_state::issues(tx).await?);
    if signs.overdue_schedules > 0 {
        for (name, slot) in stats::overdue(tx, overdue_since, NAMED_MAX).await? {
            health.notes.push(format!(
                "the schedule `{name}` has slots since {slot} that no host has decided"
            ));
        }
    }
    let dead = outbox::count_dead(tx).await?;
    if dead > 0 {
        health.notes.push(format!(
            "{dead} messages of the outbox were given up; `campanile outbox list --status dead` shows them"
        ));
    }
    let firing = alerts::count_firing(tx).await?;
    if firing > 0 {
        health.notes.push(format!(
            "{}; `campanile alert list` shows them",
            match firing {
                1 => "1 alert fires".to_owned(),
                _ => format!("{firing} alerts fire"),
            }
        ));
    }
    let ahead = match signs.cursors_ahead {
        // Counting has looked at all of them.
        0 => Vec::new(),
        _ => stats::cursors_ahead(tx, now.plus(CURSOR_AHEAD), NAMED_MAX).await?,
    };
    for (name, cursor_at) in ahead {
        let why = silent_until(&name, cursor_at);
        health.issues.push(format!("the schedule `{name}` {why}"));
    }
    for (name, heartbeat_at) in stats::silent_hosts(tx, now).await? {
        health.issues.push(format!(
            "the host `{name}` is silent since {heartbeat_at}: it died, or it lost its connection to the database"
        ));
    }
    for (name, since, what) in hosts::troubled(tx, now).await? {
        health.issues.push(trouble::issue(&name, since, &what));
    }
    let drained = stats::drained_hosts(tx).await?;
    if !drained.is_empty() && drained.len() as i64 == signs.live_hosts {
        let issue = "every live host is drained, so launches wait; `campanile host drain NAME --undo` lets one claim them";
        health.issues.push(issue.to_owned());
    }
    for (name, by, since) in drained {
        health.notes.push(format!(
            "the host `{name}` is drained since {since} by {}: it claims nothing",
            printable_line(&by)
        ));
    }
    for (channel, since, why) in alert_messages::failing(tx, overdue_since, NAMED_MAX).await? {
        health.issues.push(format!(
            "the channel `{channel}` has not received an alert of {since}: {}; `campanile alert deliveries --channel {channel}` shows its messages",
            printable_line(&why)
        ));
    }
    for (name, failure) in stats::failing_schedules(tx, FAILURES, NAMED_MAX).await? {
        health.issues.push(format!(
            "the last {FAILURES} launches of the schedule `{name}` all failed: {}",
            message_of(&failure)
        ));
    }
    for (labels, launches, oldest) in
        stats::missing_labels(tx, overdue_since, now, NAMED_MAX).await?
    {
        health.issues.push(format!(
            "{launches} launches wait since {oldest} for a host with {}, and no live host has them",
            labels.named()
        ));
    }
    for (name, window, oldest) in overdue_queues(tx, now, settings).await? {
        health.notes.push(format!(
            "a launch of the schedule `{name}` is queued since {oldest}, longer than its `catchup_window` of {window}: its launches take longer than its slots are apart"
        ));
    }
    let window = settings.late.catchup_window;
    for (name, launches, oldest) in stats::waiting_groups(tx, now.minus(window), NAMED_MAX).await? {
        let window = duration_text(window);
        health.issues.push(format!(
            "the group `{name}` is too small: {launches} of its launches wait, the oldest since {oldest}, longer than the `catchup_window` of {window}; give it a larger `max`, or its schedules fewer slots"
        ));
    }
    health.issues.extend(own.issues);
    health.notes.extend(own.notes);
    for growing in campanile_store::use_growth::list(tx, NAMED_MAX).await? {
        health.notes.extend(use_growth::sentences(&growing));
    }
    for (name, at, detail) in stats::clock_steps(tx, now.minus(STEP_SPAN), STEPS_MAX).await? {
        health.notes.push(format!(
            "the clock of the host `{name}` stepped at {at}: {detail}"
        ));
    }
    for (name, since) in stats::loads(tx).await? {
        let line = format!("the package `{name}` is loading since {since}");
        match since < now.minus(LOAD_STUCK) {
            true => health.issues.push(line),
            false => health.notes.push(line),
        }
    }
    let mut rejections = stats::rejections(tx, NAMED_MAX + 1).await?;
    let has_more = rejections.len() as i64 > NAMED_MAX;
    rejections.truncate(NAMED_MAX as usize);
    for (name, why) in rejections {
        let (name, why) = (printable_line(&name), printable_line(&why));
        health.notes.push(format!(
            "the package `{name}` has a file that cannot be used: {why}"
        ));
    }
    if has_more {
        let note = "more packages have a file that cannot be used; see `campanile package list`";
        health.notes.push(note.to_owned());
    }
    health.healthy = health.issues.is_empty();
    Ok(health)
}

/// Return the schedules with a launch that is queued for longer than a missed slot would be caught up: the name, that span,
/// and since when.
async fn overdue_queues(
    tx: &mut Tx,
    now: Timestamp,
    settings: &Settings,
) -> Result<Vec<(String, String, Timestamp)>, DbError> {
    let queues = stats::queues(tx).await?.into_iter();
    let overdue = queues.filter_map(|(name, policies, oldest)| {
        let policies: Option<Policies> = stored_json(Some(&policies));
        let window = policies.and_then(|policies| policies.catchup_window);
        let window = window.unwrap_or(settings.late.catchup_window);
        let oldest = oldest.filter(|oldest| now.since(*oldest) > window)?;
        Some((name, duration_text(window), oldest))
    });
    Ok(overdue.take(NAMED_MAX as usize).collect())
}

/// Return the message of a recorded failure.
fn message_of(failure: &str) -> String {
    let failure: Option<Value> = stored_json(Some(failure));
    let message = failure
        .as_ref()
        .and_then(|failure| failure["message"].as_str());
    printable_line(message.unwrap_or_default())
}

/// The service that computes statistics and reports changes of health. Only the host that does the chores does that. Each
/// host reports the runs that it alone knows to be repeated.
#[derive(Default)]
pub(crate) struct Auditor {
    /// Whether the last audit found issues.
    was_unhealthy: bool,
    growth: GrowthPass,
}

impl Service for Auditor {
    const STEP: &'static str = "auditing";

    fn first(ctx: &Ctx) -> Next {
        Next::After(ctx.settings.audit_interval)
    }

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        ctx.launch_log.report_left_out();
        report_repeated_runs(ctx, now).await?;
        if !chores::are_ours(ctx) {
            *self = Auditor::default();
            return Ok(Self::first(ctx));
        }
        let disk = ctx.db.disk_signs().await;
        let mut tx = ctx.db.read_long().await?;
        let statistics = statistics(&mut tx, now, ctx.settings.audit_interval).await?;
        let skew_us = ctx.clock.skew_us();
        let health = health(&mut tx, now, &ctx.settings, skew_us, disk).await?;
        drop(tx);
        tracing::info!(
            launches = statistics.counts.launches,
            succeeded = statistics.counts.succeeded,
            failed = statistics.counts.failed,
            skipped = statistics.counts.skipped,
            recovered = statistics.counts.recovered,
            abandoned = statistics.counts.abandoned,
            lag_p99_ms = statistics.lag_ms.p99,
            healthy = health.healthy,
            "audit"
        );
        if self.was_unhealthy == health.healthy {
            self.was_unhealthy = !health.healthy;
            let detail = match health.healthy {
                true => "healthy again".to_owned(),
                false => health.issues.join("; "),
            };
            tracing::warn!(healthy = health.healthy, "health changed: {detail}");
            chores::record_event(ctx, now, EventKind::HealthChanged, &ctx.name, &detail).await?;
        }
        self.growth.step(ctx, now).await?;
        Ok(Self::first(ctx))
    }
}

/// Report the runs that this host began again, because the database had lost their record.
async fn report_repeated_runs(ctx: &Ctx, now: Timestamp) -> Result {
    let repeated = ctx.begun.take_repeated();
    if repeated == 0 {
        return Ok(());
    }
    let detail = format!(
        "the database lost the record of {repeated} runs that this host had begun; they ran again as recoveries, those of at_most_once did not"
    );
    tracing::warn!("{detail}");
    record_event(ctx, now, EventKind::RunsRepeated, &ctx.name, &detail)
        .await
        .inspect_err(|_| ctx.begun.put_back(repeated))
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
            lost: 9,
            recovery_success_rate: Some(0.6),
        };
        assert_eq!(rates, expected);
        let nothing = Rates::of(&Counts::default(), Duration::ZERO, &[]);
        assert_eq!((nothing.success_rate, nothing.failed_rate), (None, None));
        assert_eq!(nothing.executions_per_minute, 0.0);
        assert_eq!((nothing.average_time_ms, nothing.lost), (None, 0));
        assert_eq!(nothing.recovery_success_rate, None);
    }

    #[test]
    fn lag_percentiles_are_of_the_launches_themselves() {
        let launches = (1..=200).map(|ms| {
            let fire_time = Timestamp::EPOCH;
            (fire_time, fire_time.plus(Duration::from_millis(ms)))
        });
        let lag = Lag::of(launches);
        assert_eq!((lag.p50, lag.p99, lag.max), (100.0, 198.0, 200.0));
        assert_eq!(Lag::of([]), Lag::default());
    }

    #[test]
    fn each_sign_beyond_its_bound_is_an_issue() {
        let well = HealthSigns {
            live_hosts: 1,
            schedules: 3,
            overdue_schedules: MISSED_MAX,
            stalled: STALLED_MAX,
            cursors_ahead: 0,
        };
        assert!(judge(well, 0).healthy);
        for (ill, word) in [
            (
                HealthSigns {
                    live_hosts: 0,
                    ..well
                },
                "stopped",
            ),
            (
                HealthSigns {
                    overdue_schedules: 11,
                    ..well
                },
                "no host has decided",
            ),
            (HealthSigns { stalled: 6, ..well }, "stood still"),
            (
                HealthSigns {
                    cursors_ahead: 21,
                    ..well
                },
                "ahead of the clock",
            ),
        ] {
            let health = judge(ill, 0);
            assert_eq!(health.issues.len(), 1);
            assert!(health.issues[0].contains(word), "{}", health.issues[0]);
        }
        assert!(judge(well, -1_000_000).issues[0].contains("1.0 s off"));
    }

    #[test]
    fn nobody_serving_nothing_is_well() {
        assert!(judge(HealthSigns::default(), 0).healthy);
    }
}
