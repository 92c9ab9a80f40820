//! The states of an alert. Pure.
//!
//! ```text
//! ok ─▶ pending ─▶ firing ─▶ resolved
//!  ▲       │          │ ▲
//!  └───────┘          ▼ │
//!               clear for a while: a condition that comes back is counted, without a message
//! ```

use campanile_control::reports::symptom::Symptom;
use campanile_control::rules::alert_rule::Rule;
use campanile_model::clock::Timestamp;
use campanile_model::ids::AlertId;
use campanile_store::alerts::{Alert, AlertStatus};

/// A condition that holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finding {
    pub(crate) subject: String,
    pub(crate) subject_id: String,
    pub(crate) symptom: Symptom,
}

/// What a host does about one subject of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Nothing,
    Insert(Alert),
    /// The alert has the version after the one that was read.
    Change(Alert),
    /// The condition of a pending alert is gone.
    Delete(Alert),
}

/// Decide about a subject: `current` is its alert that is not resolved, `finding` the condition if it holds.
pub(crate) fn step(
    rule: &Rule,
    current: Option<&Alert>,
    finding: Option<&Finding>,
    is_silenced: bool,
    now: Timestamp,
) -> Step {
    let Some(current) = current else {
        return finding.map_or(Step::Nothing, |finding| {
            Step::Insert(fire_if_due(rule, new(rule, finding, now), is_silenced, now))
        });
    };
    let mut next = Alert {
        version: current.version + 1,
        ..current.clone()
    };
    match (current.status, finding) {
        (AlertStatus::Resolved, _) => return Step::Nothing,
        (AlertStatus::Pending, None) => return Step::Delete(current.clone()),
        (AlertStatus::Pending, Some(finding)) => {
            next.detail = finding.symptom.to_string();
            next = fire_if_due(rule, next, is_silenced, now);
            // While it only waits, nothing is written.
            if next.status == AlertStatus::Pending {
                return Step::Nothing;
            }
        }
        (AlertStatus::Firing, Some(_)) => {
            if next.clear_at.take().is_some() {
                next.flaps += 1;
            }
            next = notify(rule, next, is_silenced, now);
        }
        (AlertStatus::Firing, None) => {
            let clear_at = *next.clear_at.get_or_insert(now);
            if now.since(clear_at) >= rule.resolve_after {
                next.status = AlertStatus::Resolved;
                next.resolved_at = Some(now);
            }
        }
    }
    if (&next.status, &next.clear_at, &next.notified_at)
        == (&current.status, &current.clear_at, &current.notified_at)
    {
        Step::Nothing
    } else {
        Step::Change(next)
    }
}

fn new(rule: &Rule, finding: &Finding, now: Timestamp) -> Alert {
    Alert {
        id: AlertId::new(now),
        rule: rule.name.clone(),
        kind: rule.condition.kind(),
        severity: rule.severity,
        status: AlertStatus::Pending,
        subject: finding.subject.clone(),
        subject_id: finding.subject_id.clone(),
        detail: finding.symptom.to_string(),
        version: 1,
        since_at: now,
        fired_at: None,
        notified_at: None,
        clear_at: None,
        resolved_at: None,
        flaps: 0,
    }
}

fn fire_if_due(rule: &Rule, mut alert: Alert, is_silenced: bool, now: Timestamp) -> Alert {
    if now.since(alert.since_at) < rule.pending_for {
        return alert;
    }
    alert.status = AlertStatus::Firing;
    alert.fired_at = Some(now);
    notify(rule, alert, is_silenced, now)
}

/// Note that the channels get a message, unless they got one before, or a silence applies.
fn notify(rule: &Rule, mut alert: Alert, is_silenced: bool, now: Timestamp) -> Alert {
    if alert.notified_at.is_none() && !is_silenced && !rule.channels.is_empty() {
        alert.notified_at = Some(now);
    }
    alert
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros((1_800_000_000 + seconds) * 1_000_000)
    }

    fn rule(pending_s: u64, resolve_s: u64) -> Rule {
        Rule {
            channels: vec!["ops".to_owned()],
            pending_for: Duration::from_secs(pending_s),
            resolve_after: Duration::from_secs(resolve_s),
            ..Rule::expect_within()
        }
    }

    fn finding() -> Finding {
        Finding {
            subject: "nightly".to_owned(),
            subject_id: "1".to_owned(),
            symptom: Symptom::Other("it failed".to_owned()),
        }
    }

    /// Follow an alert: each entry is a time, whether the condition holds, and whether a silence applies. Return after
    /// each entry the status, whether it was notified, and the flaps; `-` for no alert.
    fn follow(rule: &Rule, entries: &[(i64, bool, bool)]) -> Vec<String> {
        let mut current: Option<Alert> = None;
        let mut states = Vec::new();
        for (time, holds, is_silenced) in entries {
            let finding = holds.then(finding);
            match step(
                rule,
                current.as_ref(),
                finding.as_ref(),
                *is_silenced,
                at(*time),
            ) {
                Step::Nothing => {}
                Step::Insert(alert) => {
                    assert!(current.is_none());
                    current = Some(alert);
                }
                Step::Change(alert) => {
                    let before = current.as_ref().unwrap();
                    assert_eq!(alert.version, before.version + 1);
                    assert_ne!(before.status, AlertStatus::Resolved);
                    current = Some(alert);
                }
                Step::Delete(alert) => {
                    assert_eq!(Some(&alert), current.as_ref());
                    current = None;
                }
            }
            states.push(current.as_ref().map_or("-".to_owned(), |alert| {
                let notified = if alert.notified_at.is_some() {
                    " notified"
                } else {
                    ""
                };
                format!("{}{notified} {}", alert.status, alert.flaps)
            }));
        }
        states
    }

    const HOLDS: bool = true;
    const CLEAR: bool = false;

    #[test]
    fn an_alert_fires_after_its_pending_time_and_is_resolved_after_its_clear_time() {
        let states = follow(
            &rule(10, 20),
            &[
                (0, HOLDS, false),
                (5, HOLDS, false),
                (10, HOLDS, false),
                (15, CLEAR, false),
                (34, CLEAR, false),
                (35, CLEAR, false),
                (36, HOLDS, false),
            ],
        );
        assert_eq!(
            states,
            [
                "pending 0",
                "pending 0",
                "firing notified 0",
                "firing notified 0",
                "firing notified 0",
                "resolved notified 0",
                "resolved notified 0",
            ]
        );
    }

    #[test]
    fn a_condition_that_ends_while_pending_leaves_nothing() {
        let states = follow(
            &rule(10, 0),
            &[(0, HOLDS, false), (9, CLEAR, false), (10, HOLDS, false)],
        );
        assert_eq!(states, ["pending 0", "-", "pending 0"]);
    }

    #[test]
    fn flapping_is_one_alert_that_counts() {
        let states = follow(
            &rule(0, 30),
            &[
                (0, HOLDS, false),
                (10, CLEAR, false),
                (20, HOLDS, false),
                (30, CLEAR, false),
                (59, HOLDS, false),
                (60, CLEAR, false),
                (90, CLEAR, false),
            ],
        );
        assert_eq!(
            states,
            [
                "firing notified 0",
                "firing notified 0",
                "firing notified 1",
                "firing notified 1",
                "firing notified 2",
                "firing notified 2",
                "resolved notified 2",
            ]
        );
    }

    #[test]
    fn a_silenced_alert_is_notified_when_the_silence_ends_and_it_still_fires() {
        let states = follow(
            &rule(0, 0),
            &[(0, HOLDS, true), (10, HOLDS, true), (20, HOLDS, false)],
        );
        assert_eq!(states, ["firing 0", "firing 0", "firing notified 0"]);
        let states = follow(&rule(0, 0), &[(0, HOLDS, true), (10, CLEAR, false)]);
        assert_eq!(states, ["firing 0", "resolved 0"]);
    }

    #[test]
    fn a_rule_without_channels_tells_nobody() {
        let rule = Rule::expect_within();
        let states = follow(&rule, &[(0, HOLDS, false), (1, CLEAR, false)]);
        assert_eq!(states, ["firing 0", "resolved 0"]);
    }
}
