//! A schedule as a record, and what commands compute from its row.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::commands::rule::is_hashed;
use crate::commands::slots::{floor, without_slots};
use crate::output::{self, Record, Result};
use campanile_engine::definition;
use campanile_engine::schedule_admin::ScheduleError;
use campanile_model::clock::Timestamp;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{DayMatch, DstFold, DstGap, HashKey, Rule, Warning};
use campanile_store::launches::LaunchRow;
use campanile_store::schedules::{self, Revision, Schedule};
use campanile_store::{DbError, Tx};

/// The number of other schedules in the minute of its next slot from which a new schedule is warned.
const HERD_MIN: i64 = 10;

const MINUTE: Duration = Duration::from_secs(60);

/// A schedule.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ScheduleRecord {
    #[serde(flatten)]
    row: Schedule,
    /// The rule with hashed values resolved. Null when this version cannot read the rule.
    resolved: Option<String>,
    /// `enabled`, `paused` or `ended`.
    state: &'static str,
    /// The future slots that `schedule skip` skips.
    skips: BTreeSet<Timestamp>,
    launches_made: i64,
    /// The rule as written, and its hashed values.
    #[serde(skip)]
    pub rule_text: String,
}

/// A schedule that was just added.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct NewSchedule {
    #[serde(flatten)]
    pub schedule: ScheduleRecord,
    /// How the rule is read where that may surprise.
    pub notes: Vec<String>,
    pub warnings: Vec<Warning>,
    /// When a rule without slots launches.
    #[serde(skip)]
    without_slots: Option<String>,
}

/// A schedule with its explanation and its newest launches.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ScheduleDetail {
    #[serde(flatten)]
    pub schedule: NewSchedule,
    /// The rule in plain English. Null when this version cannot read the rule.
    pub explanation: Option<String>,
    /// Every policy with its value, set or default. Null where it has no effect or no bound.
    pub effective_policies: Option<Map<String, Value>>,
    pub launches: Vec<LaunchRow>,
}

impl NewSchedule {
    pub fn new(row: Schedule, rule: Option<&Rule>, now: Timestamp) -> NewSchedule {
        NewSchedule {
            schedule: ScheduleRecord::new(row),
            notes: rule.map_or_else(Vec::new, |rule| rule.notes().to_vec()),
            warnings: rule.map_or_else(Vec::new, |rule| rule.warnings(now)),
            without_slots: rule.and_then(without_slots),
        }
    }
}

impl Record for NewSchedule {
    fn print(&self) -> Result {
        let schedule = &self.schedule;
        let (name, rule) = (&schedule.row.definition.name, &schedule.rule_text);
        output::print_line!("added {name}: {rule}, {}", schedule.next_text())?;
        if let Some(when) = &self.without_slots {
            output::print_message(when);
        }
        for note in &self.notes {
            output::print_message!("note: {note}");
        }
        for Warning { message, hint, .. } in &self.warnings {
            output::print_message!("warning: {message}; {hint}");
        }
        Ok(())
    }
}

impl Record for ScheduleRecord {
    const LIST: &'static str = "name package task rule timezone origin state next_slot";

    fn text(&self, key: &str) -> Option<String> {
        let rule = &self.row.definition.rule;
        match key {
            "rule" => Some(self.rule_text.clone()),
            // Choices about the rule are shown only when they differ from the default.
            "day_match" if rule.day_match == DayMatch::default() => Some(String::new()),
            "dst_gap" if rule.dst_gap == DstGap::default() => Some(String::new()),
            "dst_fold" if rule.dst_fold == DstFold::default() => Some(String::new()),
            "exclude" => Some(rule.exclude.join("\n")),
            "policies" => policies_text(&self.row.definition),
            "paused" => Some(self.pause_text()),
            _ => None,
        }
    }
}

impl Record for ScheduleDetail {
    const DETAIL: &'static str = "name id package task args rule anchor timezone day_match dst_gap dst_fold exclude policies \
        context origin state paused revision next_slot cursor launches_made skips notes";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "notes" => Some(self.schedule.notes.join("\n")),
            _ => self.schedule.schedule.text(key),
        }
    }

    fn print(&self) -> Result {
        output::print_detail(self)?;
        output::print_line("")?;
        output::print_table(&self.launches)
    }
}

impl ScheduleRecord {
    pub(super) fn name(&self) -> &str {
        &self.row.definition.name
    }

    pub fn new(row: Schedule) -> ScheduleRecord {
        let rule = rule(&row).ok();
        let text = &row.definition.rule;
        let written = format!("{} {}", text.kind, text.expression);
        ScheduleRecord {
            resolved: rule.as_ref().map(Rule::resolved_form),
            rule_text: match rule.filter(is_hashed) {
                Some(rule) => format!("{written} = {}", rule.resolved_form()),
                None => written,
            },
            state: state(&row),
            skips: skips(&row),
            launches_made: row.state.history.launches,
            row,
        }
    }

    /// Return the next slot as the end of a sentence.
    pub fn next_text(&self) -> String {
        match self.row.state.next_slot {
            Some(slot) => format!("next slot {slot}"),
            None => "no next slot".to_owned(),
        }
    }

    /// Return since when, by whom, until when and why the schedule is paused; empty when it is not.
    fn pause_text(&self) -> String {
        let state = &self.row.state;
        let Some(paused_at) = state.paused_at else {
            return String::new();
        };
        let by = state.paused_by.as_ref().map(|by| format!(" by {by}"));
        let until = state.paused_until.map(|until| format!(", until {until}"));
        let note = state.pause_note.as_ref().map(|note| format!(": {note}"));
        let parts = [Some(paused_at.to_string()), by, until, note];
        parts.into_iter().flatten().collect()
    }
}

/// Return one line for each policy that the definition sets, and for each that the configuration sets.
fn policies_text(definition: &Revision) -> Option<String> {
    let own = definition::own_policies(definition).ok()?;
    let defaults = definition::defaults(definition).ok()?;
    let own = own
        .entries()
        .map(|(policy, text)| format!("{policy} {text}"));
    let defaults = defaults.entries();
    let defaults = defaults.map(|(policy, text)| format!("{policy} {text} (by the configuration)"));
    Some(own.chain(defaults).collect::<Vec<_>>().join("\n"))
}

/// Parse the rule of a schedule.
pub(crate) fn rule(row: &Schedule) -> Result<Rule, ScheduleError> {
    let key = HashKey::of(row.state.id);
    Ok(Rule::parse(&row.definition.rule, key)?)
}

/// Return the future slots of a schedule that `schedule skip` skips.
pub(crate) fn skips(row: &Schedule) -> BTreeSet<Timestamp> {
    let mut skips = row.state.history.skipped_slots();
    skips.retain(|slot| *slot > row.state.cursor_at);
    skips
}

/// Return the slots of a schedule after `after`, skipped ones included.
pub(crate) fn slots<'a>(
    row: &'a Schedule,
    rule: &'a Rule,
    policies: &'a Policies,
    after: Timestamp,
) -> impl Iterator<Item = Timestamp> + 'a {
    let skips = skips(row);
    let mut made = row.state.history.launches_made();
    let mut after = after;
    std::iter::from_fn(move || {
        after = policies.next_slot(rule, after, made)?;
        made += u64::from(!skips.contains(&after));
        Some(after)
    })
}

/// Return `paused`, `ended` or `enabled`.
fn state(row: &Schedule) -> &'static str {
    match row.state.enabled {
        false => "paused",
        true if row.state.next_slot.is_some() || waits_for_event(row) => "enabled",
        true => "ended",
    }
}

/// Return whether a schedule without a next slot waits for a host's start or for the end of a launch.
fn waits_for_event(row: &Schedule) -> bool {
    // Another version may be able to read what this one cannot.
    let Ok((rule, policies)) = definition::parse(&row.definition) else {
        return true;
    };
    let made = row.state.history.launches_made();
    let may_launch = || policies.allowed_from(row.state.cursor_at, made).is_some();
    rule.at_host_start() || (rule.delay_after_completion().is_some() && may_launch())
}

/// Return a warning when many other schedules have their next slot in the same minute.
pub(crate) async fn herd_warning(tx: &mut Tx, row: &Schedule) -> Result<Option<Warning>, DbError> {
    let Some(slot) = row.state.next_slot else {
        return Ok(None);
    };
    let minute = floor(slot, MINUTE);
    let others = schedules::waiting(tx, minute, minute.plus(MINUTE), row.state.id).await?;
    // Another command reports a rule that cannot be read.
    let rule = rule(row).ok().filter(|_| others >= HERD_MIN);
    Ok(rule.map(|rule| rule.crowded(others)))
}
