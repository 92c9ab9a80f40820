//! Health: finding out what's wrong with an installation.

pub mod database;
pub mod disk;
pub mod growth;
pub mod own_backlog;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::rules::lateness::OVERDUE;
use crate::settings::Settings;
use crate::stored::stored_json;
use campanile_model::clock::Timestamp;
use campanile_model::text::{counted, duration_text, printable_line};
use campanile_schedule::policy::Policies;
use campanile_store::disk::DiskSigns;
use campanile_store::stats::{self, HealthSigns};
use campanile_store::{DbError, Tx, alert_messages, alerts, hosts, outbox, use_growth};
use disk::{grown_wal, unhealthy};

/// Tolerated number of overdue schedules.
const MISSED_MAX: i64 = 10;
/// Tolerated number of stalled launches and runs.
const STALLED_MAX: i64 = 5;
/// Consecutive failures making a schedule count as failing.
const FAILURES: i64 = 3;
/// Hosts give up on loading before this, so a longer load means a hanging host.
const LOAD_STUCK: Duration = Duration::from_secs(15 * 60);
/// How far back, and how many, clock steps are listed.
const STEP_SPAN: Duration = Duration::from_secs(3_600);
const STEPS_MAX: i64 = 5;
/// Cursors further ahead of the clock were written with a wrong clock.
pub const CURSOR_AHEAD: Duration = Duration::from_secs(60);
/// Maximum number of subjects listed by name.
pub const NAMED_MAX: i64 = 20;
/// Clock skew worth reporting, in microseconds.
pub const SKEW_REPORTED_US: i64 = 1_000_000;

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

/// Returns the system's health at `now`. Hosts with ended leases don't count as live. `disk` holds measurements taken just before.
pub async fn read(
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
    health.issues.extend(database::issues(tx).await?);
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
        health.issues.push(trouble(&name, since, &what));
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
    for growing in use_growth::list(tx, NAMED_MAX).await? {
        health.notes.extend(growth::sentences(&growing));
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

/// Explains a cursor running ahead of the clock, and the remedy.
pub fn silent_until(name: &str, cursor_at: Timestamp) -> String {
    format!(
        "has decided its slots up to {cursor_at}, ahead of the clock, and decides none before: the clock was wrong before, or is now; when the clock is right, type `campanile schedule reset-cursor {name}`"
    )
}

/// Returns the beginning of the issue text for a host's trouble.
pub fn trouble_of(host: &str) -> String {
    format!("the host `{host}` has trouble with the database")
}

/// Returns the issue text for a host's trouble with the database.
pub fn trouble(host: &str, since: Timestamp, what: &str) -> String {
    format!(
        "{} since {since}: {}",
        trouble_of(host),
        printable_line(what)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
