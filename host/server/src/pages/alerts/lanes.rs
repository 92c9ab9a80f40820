//! When which alerts fired in the last day: a lane for each rule and subject.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::super::timeline::{self, Lane, Window};
use super::super::words::{Clock, counted, line, rough};
use campanile_model::clock::Timestamp;
use campanile_store::alerts::{self, Alert, AlertStatus, Severity};
use campanile_store::{DbError, Tx};

/// The time that the lanes show.
pub(in super::super) const DAY: Duration = Duration::from_secs(86_400);
/// The most alerts that are read, once of those that are resolved and once of the others; and the most lanes.
const READ_MAX: i64 = 500;
const LANES_MAX: usize = 40;

/// The alerts that fired in the last day, with the time that the lanes show.
pub(super) struct Fired {
    alerts: Vec<Alert>,
    window: Window,
}

impl Fired {
    pub(super) async fn read(tx: &mut Tx, now: Timestamp) -> Result<Fired, DbError> {
        let from = now.minus(DAY);
        let mut fired = alerts::resolved_since(tx, from, READ_MAX).await?;
        fired.extend(alerts::list_unresolved(tx, None, READ_MAX).await?);
        fired.retain(|alert| alert.fired_at.is_some());
        Ok(Fired {
            alerts: fired,
            window: Window { from, to: now },
        })
    }

    /// Shows the lanes, those with the newest alert first; nothing if none fired.
    pub(super) fn card(&self, clock: Clock) -> Markup {
        let mut lanes = Vec::from_iter(self.by_rule_and_subject());
        lanes.sort_by_key(|(_, alerts)| {
            std::cmp::Reverse(alerts.iter().map(|one| one.fired_at).max())
        });
        let more = lanes.len().saturating_sub(LANES_MAX);
        lanes.truncate(LANES_MAX);
        let shown = lanes.into_iter();
        let shown = shown.map(|((rule, subject), alerts)| self.lane(rule, subject, &alerts));
        let shown = Vec::from_iter(shown);
        html! {
            @if !shown.is_empty() {
                section.card.w12 aria-labelledby="fired" {
                    header { h2 #fired { "Fired in the last 24 h" } span.far { "a bar while an alert fires" } }
                    (timeline::lanes(&[("", shown)], "fired", self.window, clock))
                    @if more > 0 { p.more { "And " (counted(more as u64, "other")) "." } }
                }
            }
        }
    }

    fn by_rule_and_subject(&self) -> BTreeMap<(&str, &str), Vec<&Alert>> {
        let mut lanes: BTreeMap<(&str, &str), Vec<&Alert>> = BTreeMap::new();
        for alert in &self.alerts {
            let key = (alert.rule.as_str(), alert.subject.as_str());
            lanes.entry(key).or_default().push(alert);
        }
        lanes
    }

    fn lane(&self, rule: &str, subject: &str, alerts: &[&Alert]) -> Lane {
        let spans = alerts.iter().filter_map(|alert| {
            let class = match alert.severity {
                Severity::Critical => "bad",
                Severity::Warning => "warn",
                Severity::Info => "run",
            };
            let until = alert.resolved_at.unwrap_or(self.window.to);
            Some((class, alert.fired_at?, until))
        });
        let spans = Vec::from_iter(spans);
        let lasted: Duration = spans
            .iter()
            .map(|(_, from, to)| to.since((*from).max(self.window.from)))
            .sum();
        let fires = alerts
            .iter()
            .any(|alert| alert.status == AlertStatus::Firing);
        let label = html! {
            span title=(line(&format!("{rule}: {subject}"))) {
                (line(subject)) " " span.far { (line(rule)) @if fires { " · fires" } }
            }
        };
        let after = html! {
            @if spans.len() > 1 { (spans.len()) "× " }
            (rough(lasted))
        };
        Lane::of_spans((label, after), &spans, self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::ids::AlertId;
    use campanile_store::alerts::AlertKind;
    use chrono_tz::Tz;

    fn alert(subject: &str, hours_ago: (u64, Option<u64>), now: Timestamp) -> Alert {
        let at = |hours: u64| now.minus(Duration::from_secs(hours * 3_600));
        let (fired, resolved) = hours_ago;
        Alert {
            id: AlertId::new(at(fired)),
            rule: "failed".to_owned(),
            kind: AlertKind::Failed,
            severity: Severity::Warning,
            status: if resolved.is_some() {
                AlertStatus::Resolved
            } else {
                AlertStatus::Firing
            },
            subject: subject.to_owned(),
            subject_id: subject.to_owned(),
            detail: String::new(),
            version: 1,
            since_at: at(fired),
            fired_at: Some(at(fired)),
            notified_at: None,
            clear_at: None,
            resolved_at: resolved.map(at),
            flaps: 0,
        }
    }

    #[test]
    fn a_lane_has_the_alerts_of_a_rule_about_one_subject() {
        let now = Timestamp::EPOCH.plus(20 * DAY);
        let fired = Fired {
            alerts: vec![
                alert("<b>", (6, Some(5)), now),
                alert("<b>", (3, None), now),
                alert("b", (30, Some(23)), now),
            ],
            window: Window {
                from: now.minus(DAY),
                to: now,
            },
        };
        let clock = Clock { now, zone: Tz::UTC };
        let shown = fired.card(clock).into_string();
        // 3 and 6 hours ago, for three hours and one.
        for part in [
            "M875.0 6.0h125.0",
            "M750.0 6.0h41.7",
            " · fires",
            "2× 4 h 0 min",
            "M0.0 6.0h41.7",
            "&lt;b&gt;",
        ] {
            assert!(shown.contains(part), "no `{part}`: {shown}");
        }
        let none = Fired {
            alerts: Vec::new(),
            ..fired
        };
        assert_eq!(none.card(clock).into_string(), "");
    }
}
