//! Read what the rules look at, in bounded pages.
//!
//! A step reads, whatever the record holds:
//!
//! | what | the most rows |
//! |---|---|
//! | alerts that are not resolved, launches that failed within the last hours, runs, overdue slots, waiting launches | 200 each |
//! | schedules, by their last success and failure | 5,000 |
//! | the newest 100 slots of each schedule among these, and of those whose row gives a reason | 500 more schedules |
//!
//! Each page begins where the one before ended, and begins again after the last one. A host with 100,000 schedules has looked
//! at each of them after 20 steps, 100 seconds. The launches of a schedule are read only when its row, a failure, a run or an
//! alert gives a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ctx::Ctx;
use crate::error::Result;
use crate::tell::alerts::conditions::{ScheduleFacts, found};
use crate::tell::alerts::step::Finding;
use campanile_control::reports::symptom::Symptom;
use campanile_control::rules::alert_rule::{Condition, RECORD, Rule};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{AlertId, LaunchId, ScheduleId};
use campanile_schedule::policy::Policies;
use campanile_store::alert_facts::{self, RecoveryOutcomes, SilentHost, WatchedSchedule};
use campanile_store::alerts::{self, Alert};
use campanile_store::{Tx, size, stats};

/// The rows of one page.
const PAGE: i64 = 200;
/// The schedules of one page, and the pages of one step.
const SCHEDULES_PAGE: i64 = 1_000;
const SCHEDULES_PAGES_MAX: usize = 5;
/// The most schedules whose launches one step reads because of what their rows say.
const SCHEDULES_READ_MAX: usize = 500;
/// The schedules that are read in one transaction.
const SCHEDULES_PER_READ: usize = 64;
/// The slots of one schedule that are read.
const SLOTS_MAX: i64 = 100;
/// The unfinished launches of one schedule that are read, of each status.
const UNFINISHED_MAX: i64 = 20;
/// Failures whose slots are older are found by the schedule's row alone.
const FAILED_WITHIN: Duration = Duration::from_secs(3_600);
/// A host that died longer ago than this raises no alert.
const DIED_WITHIN: Duration = Duration::from_secs(7 * 24 * 3_600);
/// How often the size of the record is measured.
const SIZE_INTERVAL: Duration = Duration::from_secs(60);
/// The least and the greatest number of recovered launches from which a rate is computed.
const RECOVERIES_MIN: i64 = 5;
const RECOVERIES_MAX: i64 = 10_000;
/// The usual duration is the median of this many successes at most, among the newest slots of the second number. With fewer
/// successes than the third number, there is none.
const USUAL_OF: i64 = 20;
const USUAL_AMONG: i64 = 100;
const USUAL_MIN: usize = 5;

/// What a host saw about one subject of a rule.
pub(crate) struct Observation<'r> {
    pub(crate) rule: &'r Rule,
    pub(crate) current: Option<Alert>,
    pub(crate) finding: Option<Finding>,
}

/// Where the pages of the next step begin.
pub(crate) struct Watch {
    unresolved_after: AlertId,
    failed_after: LaunchId,
    runs_after: ScheduleId,
    schedules_after: ScheduleId,
    size_at: Option<Timestamp>,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            unresolved_after: AlertId::FIRST,
            failed_after: LaunchId::FIRST,
            runs_after: ScheduleId::FIRST,
            schedules_after: ScheduleId::FIRST,
            size_at: None,
        }
    }
}

/// The alerts that are not resolved, by rule and subject.
type Unresolved = BTreeMap<(String, String), Alert>;

impl Watch {
    /// Look at one page of everything that the rules watch.
    pub(crate) async fn look<'r>(
        &mut self,
        ctx: &Ctx,
        rules: &'r [Rule],
        now: Timestamp,
    ) -> Result<Vec<Observation<'r>>> {
        let unresolved = self.unresolved(ctx).await?;
        let mut seen = self.look_at_others(ctx, rules, &unresolved, now).await?;
        let mut ids = self.suspects(ctx, rules, now).await?;
        let of_rule = |rule: &str| rules.iter().find(|known| known.name == rule);
        for alert in unresolved.values() {
            let rule = of_rule(&alert.rule).filter(|rule| rule.condition.is_of_schedules());
            ids.extend(rule.and_then(|_| alert.subject_id.parse::<ScheduleId>().ok()));
        }
        let listed: Vec<ScheduleId> = ids.iter().copied().collect();
        let mut tx = ctx.db.read().await?;
        let mut schedules = alert_facts::schedules_with(&mut tx, &listed).await?;
        drop(tx);
        // The schedule of an alert may be removed.
        let there: BTreeSet<ScheduleId> = schedules.iter().map(|schedule| schedule.id).collect();
        let gone = unresolved.values().filter(|alert| {
            let id = alert.subject_id.parse::<ScheduleId>();
            id.is_ok_and(|id| ids.contains(&id) && !there.contains(&id))
        });
        seen.extend(gone.filter_map(|alert| {
            let rule = of_rule(&alert.rule).filter(|rule| rule.condition.is_of_schedules())?;
            Some(clear(rule, alert))
        }));
        self.sweep(ctx, rules, &mut schedules, &there, now).await?;
        for part in schedules.chunks(SCHEDULES_PER_READ) {
            let mut tx = ctx.db.read().await?;
            for schedule in part {
                evaluate(&mut tx, rules, schedule, &unresolved, &mut seen, now).await?;
            }
        }
        Ok(seen)
    }

    async fn unresolved(&mut self, ctx: &Ctx) -> Result<Unresolved> {
        let mut tx = ctx.db.read().await?;
        let page = alerts::unresolved(&mut tx, self.unresolved_after, PAGE).await?;
        self.unresolved_after = next_page(&page, PAGE, |alert| alert.id, AlertId::FIRST);
        let keyed = page
            .into_iter()
            .map(|alert| ((alert.rule.clone(), alert.subject_id.clone()), alert));
        Ok(keyed.collect())
    }

    /// Returns the schedules of which a failure, a run or a waiting launch gives a reason to look.
    async fn suspects(
        &mut self,
        ctx: &Ctx,
        rules: &[Rule],
        now: Timestamp,
    ) -> Result<BTreeSet<ScheduleId>> {
        let mut ids = BTreeSet::new();
        let mut tx = ctx.db.read().await?;
        let failed = |rule: &Rule| is_of_failures(&rule.condition);
        if rules.iter().any(failed) {
            let spans = rules.iter().filter_map(|rule| match rule.condition {
                Condition::Failed { within, .. } => within,
                _ => None,
            });
            let span = spans.fold(FAILED_WITHIN, Duration::max);
            let first = LaunchId::first_at(now.minus(span));
            let after = self.failed_after.max(first);
            let page = alert_facts::failed_after(&mut tx, after, PAGE).await?;
            self.failed_after = next_page(&page, PAGE, |(launch, _)| *launch, LaunchId::FIRST);
            ids.extend(page.into_iter().map(|(_, schedule)| schedule));
        }
        let late = rules.iter().filter_map(|rule| match rule.condition {
            Condition::LateStart { by } => Some(by),
            _ => None,
        });
        let late = late.min();
        let has_long = |rule: &Rule| matches!(rule.condition, Condition::TooLong { .. });
        if late.is_some() || rules.iter().any(has_long) {
            let page = alert_facts::runs_after(&mut tx, self.runs_after, PAGE).await?;
            self.runs_after = next_page(&page, PAGE, |run| run.0, ScheduleId::FIRST);
            ids.extend(page.into_iter().map(|(schedule, ..)| schedule));
        }
        if let Some(late) = late {
            let before = now.minus(late);
            ids.extend(alert_facts::overdue_schedules(&mut tx, before, PAGE).await?);
            ids.extend(alert_facts::unclaimed(&mut tx, before, PAGE).await?);
            ids.extend(alert_facts::queued(&mut tx, before, PAGE).await?);
        }
        Ok(ids)
    }

    /// Read pages of schedules, and add those to `schedules` whose row gives a reason to look at their launches.
    async fn sweep(
        &mut self,
        ctx: &Ctx,
        rules: &[Rule],
        schedules: &mut Vec<WatchedSchedule>,
        there: &BTreeSet<ScheduleId>,
        now: Timestamp,
    ) -> Result {
        let is_expecting = |rule: &Rule| matches!(rule.condition, Condition::ExpectWithin);
        let needs_all = rules
            .iter()
            .any(|rule| rule.condition.is_of_schedules() && !is_expecting(rule));
        let most = schedules.len() + SCHEDULES_READ_MAX;
        for _ in 0..SCHEDULES_PAGES_MAX {
            let mut tx = ctx.db.read().await?;
            let after = self.schedules_after;
            let page = if needs_all {
                alert_facts::schedules_after(&mut tx, after, SCHEDULES_PAGE).await?
            } else {
                alert_facts::expecting_after(&mut tx, after, SCHEDULES_PAGE).await?
            };
            drop(tx);
            let next = next_page(&page, SCHEDULES_PAGE, |it| it.id, ScheduleId::FIRST);
            for schedule in page {
                if schedules.len() >= most {
                    return Ok(());
                }
                self.schedules_after = schedule.id;
                let is_suspect = rules.iter().any(|rule| is_suspect(rule, &schedule, now));
                if is_suspect && !there.contains(&schedule.id) {
                    schedules.push(schedule);
                }
            }
            self.schedules_after = next;
            if next == ScheduleId::FIRST {
                break;
            }
        }
        Ok(())
    }

    /// Look at hosts, at packages and at the record as a whole.
    async fn look_at_others<'r>(
        &mut self,
        ctx: &Ctx,
        rules: &'r [Rule],
        unresolved: &Unresolved,
        now: Timestamp,
    ) -> Result<Vec<Observation<'r>>> {
        let mut seen = Vec::new();
        let is_size_due = self
            .size_at
            .is_none_or(|at| now.since(at) >= SIZE_INTERVAL || now < at);
        for rule in rules
            .iter()
            .filter(|rule| !rule.condition.is_of_schedules())
        {
            if matches!(rule.condition, Condition::RecordFull { .. }) {
                if !is_size_due {
                    continue;
                }
                self.size_at = Some(now);
            }
            let mut tx = ctx.db.read().await?;
            let mut findings = others(ctx, &mut tx, rule, now).await?;
            let is_whole = findings.len() < PAGE as usize;
            findings.retain(|finding| {
                let pattern = rule.subject.as_ref();
                pattern.is_none_or(|pattern| pattern.matches(&finding.subject))
            });
            let subjects: BTreeSet<&str> = findings
                .iter()
                .map(|finding| &*finding.subject_id)
                .collect();
            let gone = unresolved.values().filter(|alert| {
                is_whole && alert.rule == rule.name && !subjects.contains(&*alert.subject_id)
            });
            seen.extend(gone.map(|alert| clear(rule, alert)));
            for finding in findings {
                let current = alerts::unresolved_of(&mut tx, &rule.name, &finding.subject_id);
                seen.push(Observation {
                    rule,
                    current: current.await?,
                    finding: Some(finding),
                });
            }
        }
        Ok(seen)
    }
}

/// Returns where the next page begins, starting over after a partial page.
fn next_page<R, K>(page: &[R], limit: i64, key: impl Fn(&R) -> K, first: K) -> K {
    let is_full = page.len() as i64 >= limit;
    page.last().filter(|_| is_full).map_or(first, key)
}

/// The condition of an alert does not hold any more.
fn clear<'r>(rule: &'r Rule, alert: &Alert) -> Observation<'r> {
    Observation {
        rule,
        current: Some(alert.clone()),
        finding: None,
    }
}

fn is_of_failures(condition: &Condition) -> bool {
    matches!(
        condition,
        Condition::Failed { .. } | Condition::Abandoned | Condition::Unknown
    )
}

/// Whether the row of a schedule gives a reason to look at its launches. Quick: it reads nothing.
fn is_suspect(rule: &Rule, schedule: &WatchedSchedule, now: Timestamp) -> bool {
    if !rule.watches(&schedule.name, &schedule.package) {
        return false;
    }
    match rule.condition {
        Condition::NoSuccessFor { than } => schedule.enabled && schedule.success_age(now) > than,
        Condition::ExpectWithin => {
            let within = expect_within(schedule).filter(|_| schedule.enabled);
            within.is_some_and(|within| schedule.success_age(now) >= within)
        }
        Condition::TooShort { .. } => true,
        _ => is_of_failures(&rule.condition) && schedule.failure_scheduled_time.is_some(),
    }
}

/// Returns the policy `expect_within` of a schedule. Policies of another version that cannot be read have none.
fn expect_within(schedule: &WatchedSchedule) -> Option<Duration> {
    // Most schedules have none, and their policies are not parsed.
    if !schedule.policies.contains("\"expect_within\"") {
        return None;
    }
    let policies: Policies = serde_json::from_str(&schedule.policies).ok()?;
    policies.expect_within
}

/// Evaluate every rule that watches a schedule.
async fn evaluate<'r>(
    tx: &mut Tx,
    rules: &'r [Rule],
    schedule: &WatchedSchedule,
    unresolved: &Unresolved,
    seen: &mut Vec<Observation<'r>>,
    now: Timestamp,
) -> Result {
    let id = schedule.id;
    let watching: Vec<&Rule> = rules
        .iter()
        .filter(|rule| rule.watches(&schedule.name, &schedule.package))
        .collect();
    let has_usual = |rule: &&Rule| matches!(rule.condition, Condition::TooLong { than: None });
    let expect_within = expect_within(schedule);
    let decision = match expect_within {
        Some(within) => alert_facts::decision_until(tx, id, now.minus(within)).await?,
        None => None,
    };
    let facts = ScheduleFacts {
        schedule,
        expect_within,
        launches: &alert_facts::newest_launches(tx, id, SLOTS_MAX).await?,
        unfinished: &alert_facts::unfinished(tx, id, UNFINISHED_MAX).await?,
        decision: decision.as_ref(),
        usual: if watching.iter().any(has_usual) {
            usual(stats::successes(tx, id, USUAL_OF, USUAL_AMONG).await?)
        } else {
            None
        },
    };
    let subject_id = id.to_string();
    for rule in rules.iter().filter(|rule| rule.condition.is_of_schedules()) {
        let is_watching = watching.iter().any(|other| other.name == rule.name);
        let symptom = is_watching
            .then(|| found(&rule.condition, &facts, now))
            .flatten();
        let known = unresolved.get(&(rule.name.clone(), subject_id.clone()));
        let observation = match (symptom, known) {
            (None, None) => continue,
            (None, Some(alert)) => clear(rule, alert),
            (Some(symptom), known) => Observation {
                rule,
                current: match known {
                    Some(alert) => Some(alert.clone()),
                    None => alerts::unresolved_of(tx, &rule.name, &subject_id).await?,
                },
                finding: Some(Finding {
                    subject: schedule.name.clone(),
                    subject_id: subject_id.clone(),
                    symptom,
                }),
            },
        };
        seen.push(observation);
    }
    Ok(())
}

/// Returns the median duration; none when too few launches succeeded.
fn usual(launches: Vec<(Timestamp, Timestamp)>) -> Option<Duration> {
    let times = launches.into_iter();
    let mut times: Vec<Duration> = times.map(|(start, end)| end.since(start)).collect();
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied();
    median.filter(|_| times.len() >= USUAL_MIN)
}

/// Returns what a rule finds among hosts, packages and in the record as a whole.
async fn others(ctx: &Ctx, tx: &mut Tx, rule: &Rule, now: Timestamp) -> Result<Vec<Finding>> {
    let finding = |subject: &str, symptom: Symptom| Finding {
        subject: subject.to_owned(),
        subject_id: subject.to_owned(),
        symptom,
    };
    let of_record = |symptom| finding(RECORD, symptom);
    Ok(match rule.condition {
        Condition::HostSilent => {
            let hosts = alert_facts::silent_hosts(tx, now.minus(DIED_WITHIN), PAGE).await?;
            let hosts = hosts.into_iter().map(
                |SilentHost {
                     name: host,
                     heartbeat_at: since,
                 }| { finding(&host.clone(), Symptom::HostSilent { host, since }) },
            );
            hosts.collect()
        }
        Condition::PackageRejected => {
            let rejected = stats::rejections(tx, PAGE).await?.into_iter();
            let rejected = rejected.map(|(package, why)| {
                finding(&package.clone(), Symptom::Rejected { package, why })
            });
            rejected.collect()
        }
        Condition::RecoveryRate { below, within } => {
            let since = now.minus(within);
            let RecoveryOutcomes { succeeded, ended } =
                alert_facts::recoveries(tx, since, RECOVERIES_MAX).await?;
            let rate = succeeded as f64 / ended.max(1) as f64;
            let is_low = ended >= RECOVERIES_MIN && rate < below;
            let low = is_low.then_some(Symptom::RecoveryRate {
                succeeded,
                ended,
                since,
            });
            low.map(of_record).into_iter().collect()
        }
        Condition::RecordFull { above } => {
            let Some(max) = ctx.settings.retention.max_bytes else {
                return Ok(Vec::new());
            };
            let used = size::used_bytes(tx).await?.unsigned_abs();
            let is_full = used as f64 > max as f64 * above;
            let full = is_full.then_some(Symptom::RecordFull { used, max });
            full.map(of_record).into_iter().collect()
        }
        _ => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn the_usual_duration_is_the_median_of_enough_successes() {
        let launches = |seconds: &[i64]| usual(seconds.iter().map(|s| (at(0), at(*s))).collect());
        assert_eq!(launches(&[1, 2, 3, 4]), None);
        let median = launches(&[900, 2, 3, 1, 4]);
        assert_eq!(median, Some(Duration::from_secs(3)));
    }

    #[test]
    fn a_page_that_is_not_full_is_followed_by_the_first() {
        assert_eq!(next_page(&[1, 2], 2, |id| *id, 0), 2);
        assert_eq!(next_page(&[1], 2, |id| *id, 0), 0);
        assert_eq!(next_page::<i32, i32>(&[], 2, |id| *id, 0), 0);
    }
}
