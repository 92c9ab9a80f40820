//! What the newest launches of a schedule say about it: how they went, how long they take, and what's wrong.

use std::time::Duration;

use campanile_control::reports::overview::{has_failed, has_result};
use campanile_model::clock::Timestamp;
use campanile_model::rule_text::RuleKind;
use campanile_model::text::{duration, duration_text};
use campanile_schedule::policy::{Overlap, Policies};
use campanile_schedule::rule::Rule;
use campanile_store::LaunchStatus;
use campanile_store::schedules::Schedule;
use campanile_store::troubles::{RecentLaunch, Streak};

use super::super::words::{rough, span};

/// How many results, and of slots, are judged, and how many are needed for that. This share of failures makes a schedule flaky.
const JUDGED: usize = 20;
const JUDGED_LEAST: usize = 10;
const SHARE_PERCENT: i64 = 20;
/// Why a slot is skipped that another launch is in the way of.
const OVERLAPS: [&str; 3] = ["overlap", "displaced", "window"];
/// The spans that a rule `every` is advised to have.
const ROUND_SECONDS: [u64; 16] = [
    1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400,
];

/// The newest launches of a schedule.
pub(super) struct History {
    /// The newest first.
    pub launches: Vec<RecentLaunch>,
    pub streak: Option<Streak>,
    /// How long those took that succeeded, sorted.
    durations: Vec<Duration>,
}

/// Slots that are skipped since launches take too long.
pub(super) struct TooSlow {
    pub skipped: i64,
    pub slots: i64,
    pub usual: Option<Duration>,
    /// The time between two slots.
    pub apart: Option<Duration>,
    /// What to change.
    pub remedies: Vec<String>,
}

impl History {
    pub(super) fn new(launches: Vec<RecentLaunch>, streak: Option<Streak>) -> History {
        let succeeded = launches
            .iter()
            .filter(|launch| launch.status == LaunchStatus::Succeeded);
        let mut durations = Vec::from_iter(succeeded.filter_map(took));
        durations.sort_unstable();
        History {
            launches,
            streak,
            durations,
        }
    }

    /// Returns the newest launches that succeeded or failed.
    fn results(&self) -> impl Iterator<Item = &RecentLaunch> + Clone {
        let launches = self.launches.iter();
        launches.filter(|launch| has_result(launch.status))
    }

    /// Returns how many of the newest `limit` results are failures, and how many there are.
    fn failures(&self, limit: usize) -> (usize, usize) {
        let results = self.results().take(limit);
        let failed = results.clone().filter(|launch| has_failed(launch.status));
        (failed.count(), results.count())
    }

    /// Returns how many of the shown launches succeeded.
    pub(super) fn succeeded(&self) -> usize {
        self.durations.len()
    }

    /// Returns how long a launch takes at most in so many percent of all cases.
    pub(super) fn at_percent(&self, percent: usize) -> Option<Duration> {
        let last = self.durations.len().checked_sub(1)?;
        self.durations.get(last * percent / 100).copied()
    }

    /// Returns the length of the longest row of failures.
    pub(super) fn longest_streak(&self) -> usize {
        let (mut longest, mut length) = (0, 0);
        for launch in self.results() {
            length = if has_failed(launch.status) {
                length + 1
            } else {
                0
            };
            longest = longest.max(length);
        }
        longest
    }

    /// Returns what isn't as usual: a class and a few words. None for a schedule that is well.
    pub(super) fn badge(
        &self,
        row: &Schedule,
        state: &str,
        now: Timestamp,
    ) -> Option<(&'static str, String)> {
        let (failed, all) = self.failures(JUDGED);
        let streak = self.streak.filter(|streak| streak.streak >= 2);
        let since = streak.and_then(|streak| streak.failing_since);
        let never = streak.is_some_and(|streak| streak.last_success_at.is_none());
        let (skipped, slots) = self.skips();
        let is_late = row.state.next_slot.is_some_and(|slot| slot < now);
        Some(match (state, since) {
            ("paused", _) => match row.state.paused_until {
                Some(until) => ("warn", format!("paused, {} to go", rough(until.since(now)))),
                None => ("warn", "paused".to_owned()),
            },
            ("ended", _) => ("skip", "ended".to_owned()),
            (_, Some(since)) if never => (
                "bad",
                format!("never succeeded, failing {}", rough(now.since(since))),
            ),
            (_, Some(since)) => ("bad", format!("failing {}", rough(now.since(since)))),
            _ if is_late => ("warn", "late".to_owned()),
            _ if all >= JUDGED_LEAST && is_many(failed as i64, all as i64) => {
                let share = failed * 100 / all;
                ("warn", format!("flaky: {share} % of the last {all} failed"))
            }
            _ if is_many(skipped, slots) => {
                let share = skipped * 100 / slots;
                ("warn", format!("skips {share} % of its slots"))
            }
            _ => return None,
        })
    }

    /// Returns how many of the newest slots were skipped since another launch was in the way, and how many slots those are.
    fn skips(&self) -> (i64, i64) {
        let newest = self.launches.iter().take(JUDGED * 5);
        let of_overlap = |launch: &&RecentLaunch| {
            let reason = launch.reason.as_deref().unwrap_or_default();
            launch.status == LaunchStatus::Skipped && OVERLAPS.contains(&reason)
        };
        let slots = newest.clone().map(RecentLaunch::slots).sum();
        let skipped = newest.filter(of_overlap).map(RecentLaunch::slots).sum();
        (skipped, slots)
    }

    /// Returns what to say about slots that are skipped since launches take too long; none if few are.
    pub(super) fn too_slow(
        &self,
        row: &Schedule,
        rule: Option<&Rule>,
        policies: &Policies,
        coming: &[Timestamp],
    ) -> Option<TooSlow> {
        let (skipped, slots) = self.skips();
        if !is_many(skipped, slots) {
            return None;
        }
        let apart = match coming {
            [first, second, ..] => Some(second.since(*first)),
            _ => None,
        };
        let usual = self.at_percent(50);
        let is_every = rule.is_some() && row.definition.rule.kind == RuleKind::Every;
        let every = is_every.then(|| roomy(self.at_percent(95)?, &row.definition.rule.expression));
        let overlap =
            (policies.overlap == Overlap::Skip).then(|| "overlap = \"buffer_one\"".into());
        let remedies = every.flatten().into_iter().chain(overlap);
        Some(TooSlow {
            skipped,
            slots,
            usual,
            apart,
            remedies: remedies.collect(),
        })
    }
}

/// Returns a rule `every` with room for launches that take so long, if the present one has none.
fn roomy(takes: Duration, present: &str) -> Option<String> {
    let needed = takes.mul_f64(1.2);
    let present = duration(present).unwrap_or_default();
    let mut round = ROUND_SECONDS.into_iter().map(Duration::from_secs);
    let wide = round.find(|span| *span >= needed && *span > present)?;
    Some(format!("every {}", duration_text(wide)))
}

/// Whether a part is enough of enough to be said.
fn is_many(part: i64, all: i64) -> bool {
    all >= JUDGED_LEAST as i64 && part * 100 >= all * SHARE_PERCENT
}

/// Returns how long a launch took that has ended.
fn took(launch: &RecentLaunch) -> Option<Duration> {
    Some(launch.finished_at?.since(launch.started_at?))
}

impl TooSlow {
    /// Says it in one sentence: `takes 39 s, due every 40 s: 29 % of 100 slots skipped`.
    pub(super) fn text(&self) -> String {
        let share = self.skipped * 100 / self.slots.max(1);
        let takes = self.usual.map(|usual| format!("takes {}", span(usual)));
        let due = self.apart.map(|apart| format!("due every {}", span(apart)));
        let facts = Vec::from_iter(takes.into_iter().chain(due)).join(", ");
        let facts = if facts.is_empty() {
            "launches take longer than slots are apart".to_owned()
        } else {
            facts
        };
        format!(
            "{facts}: {share} % of the last {} slots were skipped",
            self.slots
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::ids::{LaunchId, LaunchKind, ScheduleId};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    fn history(statuses: &[LaunchStatus]) -> History {
        let launch = |(place, status): (usize, &LaunchStatus)| RecentLaunch {
            id: LaunchId::FIRST,
            schedule_id: ScheduleId::FIRST,
            package: String::new(),
            kind: LaunchKind::Schedule,
            status: *status,
            reason: (*status == LaunchStatus::Skipped).then(|| "overlap".to_owned()),
            scheduled_time: at(1_000),
            slot_count: None,
            fire_time: at(1_000),
            decided_at: at(1_000),
            opened_at: None,
            started_at: Some(at(1_000)),
            finished_at: Some(at(1_001 + place as u64)),
            recoveries: 0,
        };
        let launches = statuses.iter().enumerate().map(launch);
        History::new(launches.collect(), None)
    }

    #[test]
    fn a_history_counts_what_ended() {
        use LaunchStatus as S;
        let history = history(&[S::Running, S::Failed, S::Succeeded, S::Failed, S::Unknown]);
        assert_eq!(history.failures(20), (3, 4));
        assert_eq!(history.failures(2), (1, 2));
        assert_eq!(history.longest_streak(), 2);
        assert_eq!(history.at_percent(95), Some(Duration::from_secs(3)));
    }

    #[test]
    fn a_rule_gets_room_for_its_launches() {
        let takes = Duration::from_secs(39);
        assert_eq!(roomy(takes, "40s").as_deref(), Some("every 1m"));
        assert_eq!(roomy(takes, "90s").as_deref(), Some("every 2m"));
        assert_eq!(roomy(takes * 1_000, "40s"), None);
        use LaunchStatus as S;
        let mut statuses = vec![S::Succeeded; 7];
        statuses.extend([S::Skipped; 3]);
        assert_eq!(history(&statuses).skips(), (3, 10));
        let slow = TooSlow {
            skipped: 29,
            slots: 100,
            usual: Some(takes),
            apart: Some(Duration::from_secs(40)),
            remedies: Vec::new(),
        };
        assert_eq!(
            slow.text(),
            "takes 39 s, due every 40 s: 29 % of the last 100 slots were skipped"
        );
    }
}
