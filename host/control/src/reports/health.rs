//! Health: finding out what's wrong with an installation. [`find`] sees the record. `add_trouble` of the engine and the callers of
//! [`find`] add what only they know.

pub mod disk;
pub mod growth;
pub mod own_backlog;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::reports::symptom::Symptom;
use crate::rules::lateness::OVERDUE;
use crate::settings::Settings;
use crate::stored::stored_json;
use campanile_model::clock::Timestamp;
use campanile_schedule::policy::Policies;
use campanile_store::disk::DiskSigns;
use campanile_store::stats::{self, HealthSigns};
use campanile_store::{DbError, Tx, alert_messages, alerts, hosts, outbox, use_growth};
use disk::{grown_wal, short_disk};

/// Tolerated number of overdue schedules.
const MISSED_MAX: i64 = 10;
/// Tolerated number of stalled launches and runs.
const STALLED_MAX: i64 = 5;
/// Consecutive failures making a schedule count as failing.
const FAILURES: u32 = 3;
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

/// What's wrong with an installation, before it's put into words.
#[derive(Debug, Default)]
pub struct Symptoms {
    /// These make it unhealthy.
    pub issues: Vec<Symptom>,
    /// What an operator should look at nevertheless.
    pub notes: Vec<Symptom>,
    pub signs: HealthSigns,
}

impl From<Symptoms> for Health {
    fn from(found: Symptoms) -> Health {
        let sentences = |symptoms: &[Symptom]| symptoms.iter().map(Symptom::to_string).collect();
        Health {
            healthy: found.issues.is_empty(),
            issues: sentences(&found.issues),
            notes: sentences(&found.notes),
            signs: found.signs,
        }
    }
}

/// Pure: judges health by its signs, and by how many microseconds this machine's clock is ahead of the database's.
pub fn judge(signs: HealthSigns, skew_us: i64) -> Vec<Symptom> {
    let mut issues = Vec::new();
    if signs.live_hosts == 0 && signs.schedules > 0 {
        issues.push(Symptom::Stopped {
            schedules: signs.schedules,
        });
    }
    if signs.overdue_schedules > MISSED_MAX {
        issues.push(Symptom::ManyOverdue {
            schedules: signs.overdue_schedules,
            span: OVERDUE,
        });
    }
    if signs.stalled > STALLED_MAX {
        issues.push(Symptom::Stalled {
            launches: signs.stalled,
            span: OVERDUE,
        });
    }
    if signs.cursors_ahead > NAMED_MAX {
        issues.push(Symptom::ManyCursorsAhead {
            schedules: signs.cursors_ahead,
        });
    }
    if skew_us.abs() >= SKEW_REPORTED_US {
        issues.push(Symptom::ClockOff {
            skew_s: skew_us as f64 / 1e6,
        });
    }
    issues
}

/// Returns the health of the system at `now`, as [`find`] sees it.
pub async fn read(
    tx: &mut Tx,
    now: Timestamp,
    settings: &Settings,
    skew_us: i64,
    disk: DiskSigns,
) -> Result<Health, DbError> {
    Ok(find(tx, now, settings, skew_us, disk).await?.into())
}

/// Returns what's wrong with the system at `now`. Hosts with ended leases don't count as live. `disk` holds measurements taken just
/// before.
pub async fn find(
    tx: &mut Tx,
    now: Timestamp,
    settings: &Settings,
    skew_us: i64,
    disk: DiskSigns,
) -> Result<Symptoms, DbError> {
    let overdue_since = now.minus(OVERDUE);
    let signs = stats::health_signs(tx, overdue_since, now, now.plus(CURSOR_AHEAD)).await?;
    let own = own_backlog::find(tx, now).await?;
    let of_all = HealthSigns {
        stalled: (signs.stalled - own.stalled).max(0),
        ..signs
    };
    let mut issues = judge(of_all, skew_us);
    let mut notes = Vec::new();
    let free = disk.free_bytes;
    issues.extend(free.and_then(|free| short_disk(free, settings.disk_reserve_bytes)));
    notes.extend(disk.wal_bytes.and_then(grown_wal));
    issues.extend(database_issues(tx).await?);
    if signs.overdue_schedules > 0 {
        let overdue = stats::overdue(tx, overdue_since, NAMED_MAX).await?;
        notes.extend(
            (overdue.into_iter()).map(|(schedule, since)| Symptom::Overdue { schedule, since }),
        );
    }
    let messages = outbox::count_dead(tx).await?;
    notes.extend((messages > 0).then_some(Symptom::MessagesDead { messages }));
    let alerts = alerts::count_firing(tx).await?;
    notes.extend((alerts > 0).then_some(Symptom::AlertsFiring { alerts }));
    if signs.cursors_ahead > 0 {
        let ahead = stats::cursors_ahead(tx, now.plus(CURSOR_AHEAD), NAMED_MAX).await?;
        issues.extend(
            (ahead.into_iter()).map(|(schedule, cursor_at)| Symptom::CursorAhead {
                schedule,
                cursor_at,
            }),
        );
    }
    let silent = stats::silent_hosts(tx, now).await?;
    issues.extend((silent.into_iter()).map(|(host, since)| Symptom::HostSilent { host, since }));
    let troubled = hosts::troubled(tx, now).await?;
    issues.extend(
        (troubled.into_iter()).map(|(host, since, what)| Symptom::DatabaseTrouble {
            host,
            since,
            what,
        }),
    );
    let drained = stats::drained_hosts(tx).await?;
    if !drained.is_empty() && drained.len() as i64 == signs.live_hosts {
        issues.push(Symptom::AllDrained);
    }
    notes.extend(
        (drained.into_iter()).map(|(host, by, since)| Symptom::HostDrained { host, by, since }),
    );
    let failing = alert_messages::failing(tx, overdue_since, NAMED_MAX).await?;
    issues.extend(
        (failing.into_iter()).map(|(channel, since, why)| Symptom::ChannelFailing {
            channel,
            since,
            why,
        }),
    );
    let failing = stats::failing_schedules(tx, FAILURES.into(), NAMED_MAX).await?;
    issues.extend(
        (failing.into_iter()).map(|(schedule, failure)| Symptom::Failing {
            schedule,
            launches: FAILURES,
            why: Some(message_of(&failure)),
        }),
    );
    let missing = stats::missing_labels(tx, overdue_since, now, NAMED_MAX).await?;
    issues.extend(
        (missing.into_iter()).map(|(labels, launches, since)| Symptom::LabelsMissing {
            labels,
            launches,
            since,
        }),
    );
    notes.extend(overdue_queues(tx, now, settings).await?);
    let window = settings.late.catchup_window;
    let groups = stats::waiting_groups(tx, now.minus(window), NAMED_MAX).await?;
    issues.extend(
        (groups.into_iter()).map(|(group, launches, since)| Symptom::GroupTooSmall {
            group,
            launches,
            since,
            window,
        }),
    );
    issues.extend(own.issues);
    notes.extend(own.notes);
    let growing = use_growth::list(tx, NAMED_MAX).await?;
    notes.extend(growing.iter().flat_map(growth::symptoms));
    let steps = stats::clock_steps(tx, now.minus(STEP_SPAN), STEPS_MAX).await?;
    notes.extend(
        (steps.into_iter()).map(|(host, at, detail)| Symptom::ClockStepped { host, at, detail }),
    );
    for (package, since) in stats::loads(tx).await? {
        let list = if since < now.minus(LOAD_STUCK) {
            &mut issues
        } else {
            &mut notes
        };
        list.push(Symptom::Loading { package, since });
    }
    let mut rejections = stats::rejections(tx, NAMED_MAX + 1).await?;
    let has_more = rejections.len() as i64 > NAMED_MAX;
    rejections.truncate(NAMED_MAX as usize);
    notes.extend((rejections.into_iter()).map(|(package, why)| Symptom::Rejected { package, why }));
    notes.extend(has_more.then_some(Symptom::MoreRejected));
    Ok(Symptoms {
        issues,
        notes,
        signs,
    })
}

/// Returns the damage of the database, or a server accepting no writes.
async fn database_issues(tx: &mut Tx) -> Result<Vec<Symptom>, DbError> {
    let mut issues = Vec::new();
    if tx.is_on_standby().await? {
        issues.push(Symptom::OnStandby);
    }
    let mut damage = stats::damage(tx, NAMED_MAX).await?.into_iter();
    issues.extend(match damage.next() {
        Some((host, detail)) => Some(Symptom::Damaged {
            host,
            others: damage.count(),
            detail,
        }),
        // Recording it failed.
        None => tx.damage().map(|why| Symptom::DamageSeen { why }),
    });
    Ok(issues)
}

/// Returns the schedules with a launch queued for longer than a missed slot would be caught up.
async fn overdue_queues(
    tx: &mut Tx,
    now: Timestamp,
    settings: &Settings,
) -> Result<Vec<Symptom>, DbError> {
    let queues = stats::queues(tx).await?.into_iter();
    let overdue = queues.filter_map(|(schedule, policies, oldest)| {
        let policies: Option<Policies> = stored_json(Some(&policies));
        let window = policies.and_then(|policies| policies.catchup_window);
        let window = window.unwrap_or(settings.late.catchup_window);
        let since = oldest.filter(|oldest| now.since(*oldest) > window)?;
        Some(Symptom::QueuedLong {
            schedule,
            since,
            window,
        })
    });
    Ok(overdue.take(NAMED_MAX as usize).collect())
}

/// Returns the message of a recorded failure.
fn message_of(failure: &str) -> String {
    let failure: Option<Value> = stored_json(Some(failure));
    let message = failure
        .as_ref()
        .and_then(|failure| failure["message"].as_str());
    message.unwrap_or_default().to_owned()
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
        assert_eq!(judge(well, 0), []);
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
            let issues = judge(ill, 0);
            assert_eq!(issues.len(), 1);
            assert!(issues[0].to_string().contains(word), "{issues:?}");
        }
        let issues = judge(well, -1_000_000);
        assert!(issues[0].to_string().contains("1.0 s off"), "{issues:?}");
    }

    #[test]
    fn nobody_serving_nothing_is_well() {
        assert_eq!(judge(HealthSigns::default(), 0), []);
    }
}
