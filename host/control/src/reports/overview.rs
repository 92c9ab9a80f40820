//! What an operator looks at first: what's broken, since when, and what changed just before.
//!
//! Reads are bounded, however large the record: the schedules that fail, and the newest decisions.

mod cause;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind, ScheduleId};
use campanile_model::status::LaunchStatus;
use campanile_model::words;
use campanile_store::events::{Event, EventKind};
use campanile_store::troubles::{self, FailingSchedule, RecentLaunch};
use campanile_store::{DbError, Tx, schedules, seals};
use cause::Failure;
pub use cause::cause;

/// The most failing schedules that are read.
const FAILING_MAX: i64 = 200;
/// The newest decisions that are read.
pub const DECISIONS_MAX: i64 = 2_000;
/// From this many failures in a row on, a schedule counts as failing.
const STREAK_LEAST: i64 = 2;
/// How long before the first failure a change counts as one just before.
const CHANGED_BEFORE: Duration = Duration::from_secs(10 * 60);
/// What a host records so soon after somebody's change of the same thing follows from it.
const CAUSED_WITHIN: Duration = Duration::from_secs(60);
/// The most events that are looked at for such a change, and the most troubles it's looked for.
const CHANGES_MAX: i64 = 200;
const EXPLAINED_MAX: usize = 10;
/// Of so many of the newest launches of a schedule, and of the slots it needs at least, this share makes it flaky, or
/// chronically skipping.
const JUDGED: usize = 20;
const JUDGED_LEAST: usize = 10;
const SHARE_PERCENT: usize = 20;

words! {
    /// What's wrong with schedules.
    TroubleKind {
        /// They have failed at least twice, and never succeeded.
        NeverSucceeded => "never succeeded",
        /// Their last launches failed, at least two in a row.
        Failing => "failing",
        /// Their last launch failed, and the one before didn't.
        FailedOnce => "failed once",
        /// One launch in five or more fails.
        Flaky => "flaky",
        /// One slot in five or more is skipped, since the launch before still runs or comes too late.
        SkipsSlots => "skips slots",
    }
}

/// Schedules in trouble for the same cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Trouble {
    pub kind: TroubleKind,
    /// By name.
    pub schedules: Vec<(ScheduleId, String)>,
    pub package: String,
    /// The last message of one of them, or a sentence. It may have several lines.
    pub message: String,
    /// When the first of them began to fail.
    pub since: Option<Timestamp>,
    /// All failures of all of them since their last successes.
    pub streak: i64,
    /// The newest success of any of them.
    pub last_success_at: Option<Timestamp>,
    /// What changed just before the first failure.
    pub change: Option<Event>,
}

/// What an operator looks at first.
#[derive(Debug, Default)]
pub struct Overview {
    /// What fails, for the longest time first; then what is flaky and what skips slots.
    pub troubles: Vec<Trouble>,
    /// The newest decisions, newest first: at most [`DECISIONS_MAX`].
    pub recent: Vec<RecentLaunch>,
    /// The names of the schedules of `recent`.
    pub names: HashMap<ScheduleId, String>,
    /// From when on `recent` has all decisions.
    pub complete_from: Timestamp,
}

impl Overview {
    /// Reads the overview with the decisions since `since`.
    ///
    /// # Errors
    ///
    /// Fails if the database does.
    pub async fn read(tx: &mut Tx, since: Timestamp) -> Result<Overview, DbError> {
        let failing = troubles::failing(tx, FAILING_MAX).await?;
        let mut recent = troubles::newest_decisions(tx, since, DECISIONS_MAX).await?;
        // A backfill decides many slots at once.
        recent.sort_by_key(|launch| Reverse((launch.decided_at, launch.scheduled_time, launch.id)));
        let mut ids = Vec::from_iter(recent.iter().map(|launch| launch.schedule_id));
        ids.sort_unstable();
        ids.dedup();
        let names = schedules::names_of(tx, &ids).await?;
        let names: HashMap<ScheduleId, String> = names.into_iter().collect();
        let is_cut = recent.len() as i64 == DECISIONS_MAX;
        let oldest = recent.last().map(|oldest| oldest.decided_at);
        let mut troubles = by_cause(failing);
        explain(tx, &mut troubles).await?;
        let failing = troubles
            .iter()
            .filter(|trouble| trouble.kind != TroubleKind::FailedOnce);
        let failing: Vec<ScheduleId> = ids_of(failing).collect();
        let unsteady = unsteady(&recent, &names, &failing);
        // A flaky schedule may just have failed.
        let flaky: Vec<ScheduleId> = ids_of(&unsteady).collect();
        for trouble in &mut troubles {
            trouble.schedules.retain(|(id, _)| !flaky.contains(id));
        }
        troubles.retain(|trouble| !trouble.schedules.is_empty());
        troubles.extend(unsteady);
        Ok(Overview {
            troubles,
            recent,
            names,
            complete_from: oldest.filter(|_| is_cut).unwrap_or(since),
        })
    }

    /// Returns the schedules in a trouble of this kind.
    pub fn schedules_in(&self, kind: TroubleKind) -> impl Iterator<Item = &(ScheduleId, String)> {
        let troubles = self.troubles.iter();
        troubles
            .filter(move |trouble| trouble.kind == kind)
            .flat_map(|trouble| &trouble.schedules)
    }

    /// Returns how many schedules fail.
    pub fn failing(&self) -> usize {
        let failing = self.schedules_in(TroubleKind::Failing);
        failing.count() + self.schedules_in(TroubleKind::NeverSucceeded).count()
    }
}

fn ids_of<'t>(troubles: impl IntoIterator<Item = &'t Trouble>) -> impl Iterator<Item = ScheduleId> {
    let schedules = troubles.into_iter().flat_map(|trouble| &trouble.schedules);
    schedules.map(|(id, _)| *id)
}

/// Pure: puts failing schedules of a package with the same cause together. `failing` is sorted by when they began to fail.
fn by_cause(failing: Vec<FailingSchedule>) -> Vec<Trouble> {
    let mut places = HashMap::new();
    let mut troubles: Vec<Trouble> = Vec::new();
    for one in failing {
        let kind = match one.last_success_at {
            _ if one.streak < STREAK_LEAST => TroubleKind::FailedOnce,
            None => TroubleKind::NeverSucceeded,
            Some(_) => TroubleKind::Failing,
        };
        let failure = Failure::read(&one.failure);
        let key = (
            kind,
            one.package.clone(),
            failure.kind.clone(),
            cause(&failure.message),
        );
        let place = *places.entry(key).or_insert(troubles.len());
        match troubles.get_mut(place) {
            Some(trouble) => {
                trouble.schedules.push((one.id, one.name));
                trouble.streak += one.streak;
                trouble.last_success_at = trouble.last_success_at.max(one.last_success_at);
            }
            None => troubles.push(Trouble {
                kind,
                schedules: vec![(one.id, one.name)],
                package: one.package,
                message: failure.message,
                since: Some(one.failing_since),
                streak: one.streak,
                last_success_at: one.last_success_at,
                change: None,
            }),
        }
    }
    for trouble in &mut troubles {
        trouble.schedules.sort_by(|a, b| a.1.cmp(&b.1));
    }
    troubles.sort_by_key(|trouble| trouble.kind == TroubleKind::FailedOnce);
    troubles
}

/// Finds what changed just before each of the first troubles began.
async fn explain(tx: &mut Tx, troubles: &mut [Trouble]) -> Result<(), DbError> {
    for trouble in troubles.iter_mut().take(EXPLAINED_MAX) {
        let Some(since) = trouble.since else { continue };
        let (from, to) = (
            since.minus(CHANGED_BEFORE),
            since.plus(Duration::from_micros(1)),
        );
        let events = seals::events(tx, from, to, CHANGES_MAX).await?;
        let may_be_why = events
            .into_iter()
            .filter(|event| may_be_why(event, trouble));
        trouble.change = last_change(may_be_why.collect());
    }
    Ok(())
}

/// Pure: returns the last of these events. If a host recorded it by itself, what somebody did to the same subject just before says
/// more: a version is loaded because somebody approved it.
fn last_change(mut events: Vec<Event>) -> Option<Event> {
    let last = events.pop()?;
    let is_cause = |event: &Event| {
        event.principal.is_some()
            && event.subject == last.subject
            && last.at.since(event.at) < CAUSED_WITHIN
    };
    let by_somebody = events.into_iter().rev().find(is_cause);
    Some(match (&last.principal, by_somebody) {
        (None, Some(cause)) => cause,
        _ => last,
    })
}

/// Whether what an event reports may be why schedules fail.
fn may_be_why(event: &Event, trouble: &Trouble) -> bool {
    use EventKind as Kind;
    let is_own = event.subject == trouble.package
        || trouble
            .schedules
            .iter()
            .any(|(_, name)| *name == event.subject);
    match event.kind {
        Kind::PackageLoaded
        | Kind::PackageUploaded
        | Kind::VersionApproved
        | Kind::VersionDowngraded
        | Kind::PackageRolledBack
        | Kind::ScheduleAdded
        | Kind::ScheduleChanged
        | Kind::ScheduleRenamed
        | Kind::ScheduleResumed => is_own,
        Kind::SchedulesFileApplied | Kind::DefaultsChanged | Kind::TzdataChanged => true,
        Kind::HostStarted => true,
        _ => false,
    }
}

/// Pure: finds the schedules that are flaky or skip many slots, without those that fail anyway.
fn unsteady(
    recent: &[RecentLaunch],
    names: &HashMap<ScheduleId, String>,
    failing: &[ScheduleId],
) -> Vec<Trouble> {
    let mut by_schedule: BTreeMap<&str, Vec<&RecentLaunch>> = BTreeMap::new();
    for launch in recent {
        let is_of_rule = !matches!(launch.kind, LaunchKind::Manual | LaunchKind::Backfill);
        let is_calm = is_of_rule && !failing.contains(&launch.schedule_id);
        if let Some(name) = names.get(&launch.schedule_id).filter(|_| is_calm) {
            by_schedule.entry(name).or_default().push(launch);
        }
    }
    let mut troubles = Vec::new();
    for (name, launches) in by_schedule {
        let Some(newest) = launches.first() else {
            continue;
        };
        let trouble = |kind, message| Trouble {
            kind,
            schedules: vec![(newest.schedule_id, name.to_owned())],
            package: newest.package.clone(),
            message,
            since: None,
            streak: 0,
            last_success_at: None,
            change: None,
        };
        let ended = launches.iter().filter(|launch| has_result(launch.status));
        let ended = Vec::from_iter(ended.take(JUDGED));
        let failed = ended.iter().filter(|launch| has_failed(launch.status));
        let failed = failed.count();
        if ended.len() >= JUDGED_LEAST && failed * 100 >= ended.len() * SHARE_PERCENT {
            let message = format!("{failed} of its last {} launches failed", ended.len());
            troubles.push(trouble(TroubleKind::Flaky, message));
        }
        let slots = launches.iter().take(JUDGED);
        let of_overlap = |launch: &&&RecentLaunch| {
            let reason = launch.reason.as_deref().unwrap_or_default();
            launch.status == LaunchStatus::Skipped && OVERLAPS.contains(&reason)
        };
        let all: i64 = slots.clone().map(|launch| launch.slots()).sum();
        let skipped: i64 = slots.filter(of_overlap).map(|launch| launch.slots()).sum();
        if all >= JUDGED_LEAST as i64 && skipped * 100 >= all * SHARE_PERCENT as i64 {
            let message = format!(
                "{skipped} of its last {all} slots were skipped: its launches take longer than its slots are apart, or start too late"
            );
            troubles.push(trouble(TroubleKind::SkipsSlots, message));
        }
    }
    troubles.sort_by_key(|trouble| trouble.kind as u8);
    troubles
}

/// Why a slot is skipped that another launch is in the way of.
const OVERLAPS: [&str; 3] = ["overlap", "displaced", "window"];

/// Whether a launch with this status has succeeded or failed.
pub fn has_result(status: LaunchStatus) -> bool {
    status == LaunchStatus::Succeeded || has_failed(status)
}

/// Whether a launch with this status has failed.
pub fn has_failed(status: LaunchStatus) -> bool {
    matches!(
        status,
        LaunchStatus::Failed | LaunchStatus::Abandoned | LaunchStatus::Unknown
    )
}

impl Trouble {
    /// Returns the newest failed launch of each of its schedules, among the newest decisions, newest first.
    pub fn newest_failures(&self, recent: &[RecentLaunch]) -> Vec<LaunchId> {
        let mut newest: HashMap<ScheduleId, &RecentLaunch> = HashMap::new();
        let failed = recent.iter().filter(|launch| has_failed(launch.status));
        for launch in failed {
            let is_newer = |other: &&RecentLaunch| other.finished_at < launch.finished_at;
            if newest.get(&launch.schedule_id).is_none_or(is_newer) {
                newest.insert(launch.schedule_id, launch);
            }
        }
        let own = self.schedules.iter().filter_map(|(id, _)| newest.get(id));
        let mut own = Vec::from_iter(own.copied());
        own.sort_by_key(|launch| Reverse((launch.finished_at, launch.id)));
        own.iter().map(|launch| launch.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::access::Channel;
    use campanile_model::ids::EventId;
    use uuid::Uuid;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    fn failing(name: &str, message: &str, since: u64, success: Option<u64>) -> FailingSchedule {
        FailingSchedule {
            id: ScheduleId(Uuid::from_u128(name.len() as u128)),
            name: name.to_owned(),
            package: "billing".to_owned(),
            failure: serde_json::json!({ "kind": "failed", "message": message }).to_string(),
            failing_since: at(since),
            streak: 2,
            last_success_at: success.map(at),
        }
    }

    #[test]
    fn schedules_that_fail_for_the_same_cause_are_one_trouble() {
        let found = by_cause(vec![
            failing("first", "no answer from 10.0.0.7 within 3 s", 10, Some(1)),
            failing("b", "no answer from 10.0.0.9 within 30 s", 20, Some(5)),
            failing("never", "no answer from 10.0.0.7 within 3 s", 30, None),
            failing("others", "disk full", 40, Some(1)),
            FailingSchedule {
                streak: 1,
                ..failing("once", "disk full", 50, Some(1))
            },
        ]);
        let shown = found.iter().map(|trouble| {
            let names = trouble.schedules.iter().map(|(_, name)| name.as_str());
            (trouble.kind.as_str(), Vec::from_iter(names), trouble.streak)
        });
        assert_eq!(
            Vec::from_iter(shown),
            [
                ("failing", vec!["b", "first"], 4),
                ("never succeeded", vec!["never"], 2),
                ("failing", vec!["others"], 2),
                ("failed once", vec!["once"], 1)
            ]
        );
        assert_eq!(
            (found[0].since, found[0].last_success_at),
            (Some(at(10)), Some(at(5)))
        );
    }

    fn launch(schedule: ScheduleId, status: LaunchStatus, reason: Option<&str>) -> RecentLaunch {
        RecentLaunch {
            id: LaunchId::FIRST,
            schedule_id: schedule,
            package: "web".to_owned(),
            kind: LaunchKind::Schedule,
            status,
            reason: reason.map(str::to_owned),
            scheduled_time: at(0),
            slot_count: None,
            fire_time: at(0),
            decided_at: at(0),
            opened_at: None,
            started_at: None,
            finished_at: None,
            recoveries: 0,
        }
    }

    #[test]
    fn one_failure_in_five_is_flaky_and_one_skipped_slot_in_five_is_chronic() {
        let schedule = ScheduleId(Uuid::from_u128(7));
        let names = HashMap::from([(schedule, "check".to_owned())]);
        let kinds = |bad: usize, status, reason| {
            let of = |number| {
                if number < bad {
                    launch(schedule, status, reason)
                } else {
                    launch(schedule, LaunchStatus::Succeeded, None)
                }
            };
            let recent = Vec::from_iter((0..JUDGED).map(of));
            let found = unsteady(&recent, &names, &[]);
            Vec::from_iter(found.iter().map(|trouble| trouble.kind))
        };
        assert_eq!(kinds(3, LaunchStatus::Failed, None), []);
        assert_eq!(kinds(4, LaunchStatus::Failed, None), [TroubleKind::Flaky]);
        let skipped = LaunchStatus::Skipped;
        assert_eq!(kinds(3, skipped, Some("overlap")), []);
        assert_eq!(
            kinds(4, skipped, Some("overlap")),
            [TroubleKind::SkipsSlots]
        );
        assert_eq!(kinds(4, skipped, Some("by_hand")), []);
        // A schedule that fails anyway is no news.
        let recent = vec![launch(schedule, LaunchStatus::Failed, None); JUDGED];
        assert_eq!(unsteady(&recent, &names, &[schedule]), []);
    }

    fn event(second: u64, kind: EventKind, subject: &str, principal: Option<&str>) -> Event {
        Event {
            id: EventId(Uuid::from_u128(u128::from(second))),
            at: at(second),
            kind,
            subject: subject.to_owned(),
            launch_id: None,
            detail: String::new(),
            principal: principal.map(str::to_owned),
            channel: Channel::Host,
            address: None,
            from_at: None,
            to_at: None,
        }
    }

    #[test]
    fn a_change_that_a_host_made_by_itself_is_the_doing_of_who_asked_for_it_just_before() {
        let approved = event(100, EventKind::VersionApproved, "billing", Some("ada"));
        let loaded = event(101, EventKind::PackageLoaded, "billing", None);
        let of_others = event(101, EventKind::VersionApproved, "web", Some("bo"));
        let last = |events: &[&Event]| last_change(events.iter().copied().cloned().collect());
        assert_eq!(last(&[]), None);
        assert_eq!(last(&[&approved, &loaded]), Some(approved.clone()));
        assert_eq!(last(&[&of_others, &loaded]), Some(loaded.clone()));
        assert_eq!(last(&[&loaded, &of_others]), Some(of_others));
        let later = event(200, EventKind::PackageLoaded, "billing", None);
        assert_eq!(last(&[&approved, &later]), Some(later.clone()));
    }
}
