//! Explain why a schedule launched, or did not launch, at one moment. Each finding comes from the database.
//!
//! ```text
//! name, time ── ScheduleHistory::read ── LaunchTrace::read ── moment, launch, path (pure) ──▶ findings
//! ```
//!
//! `history` reads the database. `moment` explains a moment without a decision, and how the schedule stands. `launch`
//! explains the decision about a slot, and `path` what followed. Nothing here repeats a host's decision.

mod history;
mod launch;
mod moment;
mod path;

use std::str::FromStr;
use std::time::Duration;

use chrono::{Datelike as _, NaiveDateTime};
use serde::{Deserialize, Serialize};

use crate::admin::schedule_admin::{Result, ScheduleError};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_model::time_text::{InvalidTimeText, TimeText};
use campanile_model::{text, words};
use campanile_schedule::rule::{DstAction, Rule, SlotCheck, clock_text};
use campanile_store::history::DecidedLaunch;
use campanile_store::{LaunchStatus, Tx, removed_launches};
use history::{LaunchTrace, ParsedRevision, ScheduleHistory};
use moment::ReadableRevision;

/// A shorter wait has no finding.
const NOTICED: Duration = Duration::from_secs(1);

words! {
    /// What a finding is about.
    FindingKind {
        Renamed => "renamed",
        /// The schedule was added after the moment.
        Added => "added",
        Removed => "removed",
        /// This version of Campanile cannot read the schedule's definition.
        Unreadable => "unreadable",
        /// The moment is a slot of the rule.
        Slot => "slot",
        /// The rule has no slot then.
        NoSlot => "no_slot",
        /// An exclusion removes the slot.
        Excluded => "excluded",
        /// A change of the zone's offset is involved.
        Clock => "clock",
        Before => "before",
        After => "after",
        /// It is before `start_at`.
        NotBegun => "not_begun",
        /// It is after `end_at`, or `max_launches` is reached.
        Ended => "ended",
        /// A person skipped the slot.
        SlotSkipped => "slot_skipped",
        Paused => "paused",
        /// The slot was undecided when a pause began.
        Overdue => "overdue",
        Resumed => "resumed",
        Edited => "edited",
        Late => "late",
        /// No live host had the package.
        PackageMissing => "no_package",
        /// The overlap policy skipped it.
        Overlapped => "overlapped",
        /// The launch was requested, apart from the slots.
        Requested => "requested",
        Launched => "launched",
        Queued => "queued",
        /// It waited for its fire time or for free capacity.
        Waited => "waited",
        /// It left the queue.
        Opened => "opened",
        /// A host claimed it.
        Claimed => "claimed",
        Called => "called",
        Lost => "lost",
        /// Recovery made it claimable again.
        Recovered => "recovered",
        /// How it ended, or its status now.
        Outcome => "outcome",
        /// It was skipped for another reason.
        Skipped => "skipped",
        /// Retention has removed launches of that day.
        Expired => "expired",
        /// The slot has come, and no decision is recorded.
        Undecided => "undecided",
        /// What comes next.
        Coming => "coming",
        NoHost => "no_host",
    }
}

/// One link of the explanation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Finding {
    pub kind: FindingKind,
    pub at: Option<Timestamp>,
    /// `at` on the clock of the schedule's zone.
    pub local: Option<String>,
    /// One clause; `kind` and `at` are not repeated in it.
    pub text: String,
}

impl Finding {
    fn at(kind: FindingKind, at: Timestamp, text: impl Into<String>) -> Finding {
        Finding {
            at: Some(at),
            ..Finding::new(kind, text)
        }
    }

    fn new(kind: FindingKind, text: impl Into<String>) -> Finding {
        Finding {
            kind,
            at: None,
            local: None,
            text: text.into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Answer {
    /// The newest name of the schedule.
    pub schedule: String,
    pub schedule_id: ScheduleId,
    /// The zone of the local times.
    pub timezone: String,
    /// In reading order.
    pub findings: Vec<Finding>,
}

/// The moment in question, as a person typed it. A time without an offset is one on the clock of the schedule's zone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct When(TimeText);

/// A text that is not a moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidWhen {
    /// It is no time at all.
    #[error(transparent)]
    NoTime(#[from] InvalidTimeText),
    /// No rule has a slot then.
    #[error("`{0}` is outside the years 1970 to 2099")]
    OutsideOfRules(String),
}

impl InvalidWhen {
    /// Returns what to write instead.
    pub fn hint(&self) -> &'static str {
        TimeText::HINT
    }
}

/// Read a moment, as [`TimeText`] does.
impl FromStr for When {
    type Err = InvalidWhen;

    fn from_str(text: &str) -> Result<When, InvalidWhen> {
        let when = text.parse::<TimeText>()?;
        let year = match when {
            TimeText::Instant(instant) => Some(instant.to_chrono().year()),
            TimeText::Local(local) => local.date().map(|date| date.year()),
            TimeText::BeforeNow(_) | TimeText::AfterNow(_) => None,
        };
        if year.is_none_or(|year| (1970..2100).contains(&year)) {
            Ok(When(when))
        } else {
            Err(InvalidWhen::OutsideOfRules(text.to_owned()))
        }
    }
}

/// Explain what the schedule `name` did at the moment `when`. Without a moment, explain its newest decision and how it
/// stands at `now`. `name` may be a former name.
///
/// # Errors
/// When there never was a schedule of that name. When `when` is a local time and this version cannot read the rule.
pub async fn why(tx: &mut Tx, name: &str, when: Option<When>, now: Timestamp) -> Result<Answer> {
    // Less than two days away from a time on the clock of another zone.
    let about = when.map(|when| when.0.in_utc(now));
    let history = ScheduleHistory::read(tx, name, about, now).await?;
    let revision = history.revision_at(about.unwrap_or(now));
    let explained = match (when, about) {
        (Some(When(TimeText::Local(local))), _) => {
            let readable = ReadableRevision::new(&history, revision);
            let unreadable =
                |why: &str| ScheduleError::unreadable(&revision.definition, why.to_owned());
            let readable = readable.map_err(unreadable)?;
            let today = readable.rule.local(now).date();
            at_local(tx, &history, &readable, local.on(today)).await?
        }
        (_, Some(instant)) => at(tx, &history, instant).await?,
        (_, None) => newest(tx, &history).await?,
    };
    let mut findings = Vec::from_iter(moment::renamed(&history, name));
    findings.extend(explained);
    if let Ok((rule, _)) = &revision.parsed {
        for finding in &mut findings {
            finding.local = finding.at.map(|at| rule.local_text(at));
        }
    }
    Ok(Answer {
        schedule: history.newest.definition.name.clone(),
        schedule_id: history.state.id,
        timezone: revision.definition.rule.timezone.clone(),
        findings,
    })
}

async fn newest(tx: &mut Tx, history: &ScheduleHistory) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    if let Some(decided) = campanile_store::history::newest(tx, history.state.id).await? {
        let trace = LaunchTrace::read(tx, history, decided).await?;
        findings = launch::chain(history, &trace, None);
    }
    findings.extend(moment::standing(history));
    Ok(findings)
}

/// Explain the decisions about an instant, or why there is none.
async fn at(tx: &mut Tx, history: &ScheduleHistory, instant: Timestamp) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let traces = LaunchTrace::read_all(tx, history, instant).await?;
    if !traces.iter().any(|trace| trace.decides(instant)) {
        let (schedule, day) = (history.state.id, instant.day());
        let removed = removed_launches::of_day(tx, schedule, day).await?;
        let uncounted_before = removed_launches::uncounted_before(tx, schedule).await?;
        findings.extend(match removed {
            Some(removed) => moment::of_removed_day(history, instant, removed),
            None if uncounted_before.is_some_and(|before| day < before) => {
                moment::of_uncounted_day(history, instant)
            }
            None => moment::without_decision(history, instant),
        });
    }
    for trace in traces.iter().filter(|trace| trace.is_about(instant)) {
        findings.extend(launch::chain(history, trace, Some(instant)));
    }
    Ok(findings)
}

/// Explain the instants at which the clock of the schedule's zone shows `local`: none, one or two.
async fn at_local(
    tx: &mut Tx,
    history: &ScheduleHistory,
    readable: &ReadableRevision<'_>,
    local: NaiveDateTime,
) -> Result<Vec<Finding>> {
    let rule = readable.rule;
    match rule.instants_of(local)[..] {
        [instant] => at(tx, history, instant).await,
        [first, second, ..] => {
            let (clock, apart) = (clock_text(local), span(second.since(first)));
            let twice = format!("the clock shows {clock} twice, {apart} apart");
            let mut findings = vec![Finding::new(FindingKind::Clock, twice)];
            findings.extend(at(tx, history, first).await?);
            findings.extend(at(tx, history, second).await?);
            Ok(findings)
        }
        [] => {
            let change = rule.gap_end(local);
            let check = rule.check_slot_in_gap(local, change);
            if let SlotCheck::ClockChange(effect) = check
                && let DstAction::Shifted { to } = effect.action
            {
                return at(tx, history, to).await;
            }
            Ok(readable.skipped_by_clock(local, change, &check))
        }
    }
}

/// Returns the rule as its author wrote it: `cron `30 2 * * *` (revision 1)`.
fn rule_of(revision: &ParsedRevision) -> String {
    let (rule, number) = (&revision.definition.rule, revision.definition.revision);
    format!("{} `{}` (revision {number})", rule.kind, rule.expression)
}

/// Returns the rule in English, as the end of a sentence.
fn explained(rule: &Rule) -> String {
    let text = rule.explanation();
    let mut letters = text.trim_end_matches('.').chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// Name a launch by its slot and its id, and say how it ended.
fn named(other: &DecidedLaunch) -> String {
    let launch = &other.launch;
    let (slot, id, status) = (launch.scheduled_time, launch.id, launch.status);
    let run = launch.run_id.0;
    let run = run.map_or_else(String::new, |run| format!(", run {run}"));
    let auxiliary = match status {
        LaunchStatus::Cancelled | LaunchStatus::Abandoned | LaunchStatus::Skipped => "was ",
        LaunchStatus::Unknown => "ended ",
        _ => "",
    };
    let became = match launch.finished_at {
        Some(end) => format!("{auxiliary}{status} at {end}"),
        None => format!("is {status} now"),
    };
    format!("the launch of {slot} ({id}{run}), which {became}")
}

/// Returns a length of time as text: milliseconds count below a minute only.
fn span(length: Duration) -> String {
    const EXACT_BELOW: Duration = Duration::from_secs(60);
    let whole = if length < EXACT_BELOW {
        Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
    } else {
        Duration::from_secs(length.as_secs())
    };
    text::duration_text(whole)
}

#[cfg(test)]
mod tests;
