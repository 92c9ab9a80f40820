//! Why a schedule did what it did at one moment, or did not: read from the record, finding by finding.
//!
//! ```text
//! name, time ── ScheduleHistory::read ── moments asked for ── LaunchTrace::read ── moment, launch (pure) ──▶ findings
//! ```
//!
//! `history` reads what is on the record, `moment` says what keeps a moment from being launched, or how the schedule
//! stands; `launch` tells what was decided about a slot, and `path` what became of it. What the record does not hold is
//! not told: nothing here decides again what a host has decided.

mod history;
mod launch;
mod moment;
mod path;

use std::str::FromStr;
use std::time::Duration;

use chrono::{Datelike as _, NaiveDateTime};
use serde::Serialize;

use super::schedule_admin::ScheduleError;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_model::text;
use campanile_model::words;
use campanile_schedule::rule::{DstAction, LocalOccurrence, Rule, SlotCheck, clock_text};
use campanile_store::Tx;
use history::{LaunchTrace, ScheduleHistory};

words! {
    /// What a finding is about.
    FindingKind {
        /// It has another name now.
        Renamed => "renamed",
        /// It was made later.
        Added => "added",
        /// It was removed.
        Removed => "removed",
        /// This version cannot read what it says.
        Unreadable => "unreadable",
        /// The moment is a slot of the rule.
        Slot => "slot",
        /// The rule has no slot then.
        NoSlot => "no_slot",
        /// An exclusion leaves the slot out.
        LeftOut => "left_out",
        /// A change of offset has a part in it.
        Clock => "clock",
        /// The slot before it.
        Before => "before",
        /// The slot after it.
        After => "after",
        /// It is before `start_at`.
        NotBegun => "not_begun",
        /// It is after `end_at`, or all launches were made.
        Ended => "ended",
        /// A person took the slot out.
        TakenOut => "taken_out",
        /// The schedule was paused.
        Paused => "paused",
        /// Nobody had decided it when a pause began.
        Overdue => "overdue",
        /// The pause ended.
        Resumed => "resumed",
        /// The timing was changed.
        Edited => "edited",
        /// It was decided late.
        Late => "late",
        /// No live host had the package.
        PackageMissing => "no_package",
        /// Another launch went on.
        Overlapped => "overlapped",
        /// It was asked for besides the slots.
        Asked => "asked",
        /// It was decided to launch it.
        Launched => "launched",
        /// It had to wait for its turn.
        Queued => "queued",
        /// It waited for its fire time or for a free place.
        Waited => "waited",
        /// Its turn came.
        Turn => "turn",
        /// A host began a run.
        Taken => "taken",
        /// A task was called.
        Called => "called",
        /// A run was lost.
        Lost => "lost",
        /// It was opened again.
        Recovered => "recovered",
        /// How it ended, or how it stands.
        Outcome => "outcome",
        /// It was skipped for another reason.
        Skipped => "skipped",
        /// Its time has come, and no decision is on the record.
        Undecided => "undecided",
        /// What comes next.
        Coming => "coming",
        /// Nobody is there to decide.
        NoHost => "no_host",
    }
}

/// One link of the chain.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Finding {
    pub kind: FindingKind,
    /// When that was, or will be.
    pub at: Option<Timestamp>,
    /// `at` on the clock of the schedule's zone.
    pub local: Option<String>,
    /// One clause, which says what `kind` and `at` do not.
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

/// The whole chain.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Answer {
    /// What the schedule is called, or was at last.
    pub schedule: String,
    pub schedule_id: ScheduleId,
    /// The zone in which local times are told.
    pub timezone: String,
    /// In the order in which they are to be read.
    pub findings: Vec<Finding>,
}

/// The moment that is asked about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    Instant(Timestamp),
    /// What the clock of the schedule's zone shows.
    Local(NaiveDateTime),
}

/// A text that should have been a moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is {what}")]
pub struct InvalidWhen {
    text: String,
    what: &'static str,
}

impl InvalidWhen {
    /// What to write instead.
    pub fn hint(&self) -> &'static str {
        "write an RFC 3339 time such as 2026-11-21T08:00:00Z, or what the clock of the schedule's zone shows, such as \
         \"2026-03-08 02:30\""
    }
}

/// Reads RFC 3339 with any offset, and date and time without one.
impl FromStr for When {
    type Err = InvalidWhen;

    fn from_str(text: &str) -> Result<When, InvalidWhen> {
        let local = |format: &&str| NaiveDateTime::parse_from_str(text, format).ok();
        let formats = [
            "%Y-%m-%d %H:%M",
            "%Y-%m-%dT%H:%M",
            "%Y-%m-%d %H:%M:%S%.f",
            "%Y-%m-%dT%H:%M:%S%.f",
        ];
        let when = match text.parse() {
            Ok(instant) => Some(When::Instant(instant)),
            Err(_) => formats.iter().find_map(local).map(When::Local),
        };
        let refused = |what| InvalidWhen {
            text: text.to_owned(),
            what,
        };
        let when = when.ok_or_else(|| refused("not a time"))?;
        match (1970..2100).contains(&when.year()) {
            true => Ok(when),
            false => Err(refused("outside the years 1970 to 2099")),
        }
    }
}

impl When {
    fn year(self) -> i32 {
        self.roughly().to_chrono().year()
    }

    /// The instant, or one less than a day away.
    fn roughly(self) -> Timestamp {
        match self {
            When::Instant(instant) => instant,
            When::Local(local) => Timestamp::from(local.and_utc()),
        }
    }
}

/// Why the schedule called `name`, or once called so, did what it did at the moment `when`, or did not; without a
/// moment, what it decided last and how it stands at `now`.
///
/// # Errors
/// When there was never a schedule of that name, and when a local time is given that cannot be understood since this
/// version cannot read what the schedule said then.
pub async fn why(
    tx: &mut Tx,
    name: &str,
    when: Option<When>,
    now: Timestamp,
) -> Result<Answer, ScheduleError> {
    let history = ScheduleHistory::read(tx, name, when.map(When::roughly), now).await?;
    let (findings, about) = match when {
        None => (newest(tx, &history).await?, now),
        Some(When::Instant(instant)) => (at(tx, &history, instant).await?, instant),
        Some(When::Local(local)) => (
            shown(tx, &history, local).await?,
            when.map_or(now, When::roughly),
        ),
    };
    let renamed = moment::renamed(&history, name);
    let said = history.revision_at(about);
    let mut findings: Vec<Finding> = renamed.into_iter().chain(findings).collect();
    if let Ok((rule, _)) = &said.parsed {
        for finding in &mut findings {
            finding.local = finding.at.map(|at| rule.local_text(at));
        }
    }
    Ok(Answer {
        schedule: history.newest.definition.name.clone(),
        schedule_id: history.state.id,
        timezone: said.definition.rule.timezone.clone(),
        findings,
    })
}

/// The decision made last, and how the schedule stands.
async fn newest(tx: &mut Tx, history: &ScheduleHistory) -> Result<Vec<Finding>, ScheduleError> {
    let mut findings = Vec::new();
    if let Some(decided) = campanile_store::history::newest(tx, history.state.id).await? {
        let trace = LaunchTrace::read(tx, history, decided).await?;
        findings = launch::chain(history, &trace, None);
    }
    findings.extend(moment::standing(history));
    Ok(findings)
}

/// What was decided about an instant, or what kept that from being done.
async fn at(
    tx: &mut Tx,
    history: &ScheduleHistory,
    instant: Timestamp,
) -> Result<Vec<Finding>, ScheduleError> {
    let mut findings = Vec::new();
    let traces = LaunchTrace::read_all(tx, history, instant).await?;
    if !traces.iter().any(|trace| trace.answers(instant)) {
        findings.extend(moment::without_decision(history, instant));
    }
    for trace in traces.iter().filter(|trace| trace.holds(instant)) {
        findings.extend(launch::chain(history, trace, Some(instant)));
    }
    Ok(findings)
}

/// What was decided about the instants at which the clock shows a local time.
async fn shown(
    tx: &mut Tx,
    history: &ScheduleHistory,
    local: NaiveDateTime,
) -> Result<Vec<Finding>, ScheduleError> {
    let said = history.revision_at(When::Local(local).roughly());
    let rule = match &said.parsed {
        Ok((rule, _)) => rule,
        Err(why) => {
            return Err(ScheduleError::Unreadable {
                name: said.definition.name.clone(),
                why: why.clone(),
            });
        }
    };
    match rule.occurrences_of(local) {
        LocalOccurrence::Once(instant) => at(tx, history, instant).await,
        LocalOccurrence::Twice(first, second) => {
            let twice = format!(
                "the clock shows {} twice, {} apart",
                clock_text(local),
                span(second.since(first))
            );
            let mut findings = vec![Finding::new(FindingKind::Clock, twice)];
            findings.extend(at(tx, history, first).await?);
            findings.extend(at(tx, history, second).await?);
            Ok(findings)
        }
        LocalOccurrence::InGap { change } => {
            let fit = rule.check_slot_in_gap(local, change);
            if let SlotCheck::ClockChange(touched) = fit
                && let DstAction::Shifted { to } = touched.action
            {
                return at(tx, history, to).await;
            }
            let findings = moment::left_out_by_clock(said, rule, local, change, &fit);
            Ok(findings)
        }
    }
}

/// A rule as it was written: `cron `30 2 * * *` (revision 1)`.
fn rule_of(said: &history::ParsedRevision) -> String {
    let definition = &said.definition;
    format!(
        "{} `{}` (revision {})",
        definition.rule.kind, definition.rule.expression, definition.revision
    )
}

/// The rule in English, as the end of a sentence.
fn explained(rule: &Rule) -> String {
    let text = rule.explanation();
    let text = text.trim_end_matches('.');
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// A length of time in units that matter.
fn span(length: Duration) -> String {
    const EXACT_BELOW: Duration = Duration::from_secs(60);
    let whole = match length < EXACT_BELOW {
        true => Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX)),
        false => Duration::from_secs(length.as_secs()),
    };
    text::duration_text(whole)
}

#[cfg(test)]
mod tests;
