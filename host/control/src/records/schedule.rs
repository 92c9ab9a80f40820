//! A schedule as a record, and what is computed from its row.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::admin::schedule_admin::{
    self, Difference, ScheduleDefinition, ScheduleError, differences,
};
use crate::schedules::definition;
use campanile_model::clock::Timestamp;
use campanile_model::namespace::split;
use campanile_model::read_by_parts;
use campanile_package::Manifest;
use campanile_schedule::policy::{Defaults, Policies, Policy};
use campanile_schedule::rule::{HashKey, Rule, RuleText, Warning};
use campanile_store::launch::{self, LaunchRow};
use campanile_store::schedules::{self, Schedule};
use campanile_store::{DbError, Origin, Tx, packages};

/// The number of other schedules in the minute of its next slot from which a new schedule is warned.
const HERD_MIN: i64 = 10;

const MINUTE: Duration = Duration::from_secs(60);

/// Manifests searched for proposals of one name, at most.
const PROPOSALS_READ: i64 = 100;

/// The number of launches that are shown with a schedule.
const LAUNCHES_SHOWN: i64 = 10;

/// A schedule.
#[derive(Serialize, schemars::JsonSchema)]
pub struct ScheduleRecord {
    #[serde(flatten)]
    pub row: Schedule,
    /// The rule with hashed values resolved. Null when this version cannot read the rule.
    resolved: Option<String>,
    /// `enabled`, `paused` or `ended`.
    pub state: Cow<'static, str>,
    /// The future slots that `schedule skip` skips.
    skips: BTreeSet<Timestamp>,
    launches_made: i64,
}

read_by_parts!(ScheduleRecord { row } {
    resolved: Option<String>,
    state: Cow<'static, str>,
    skips: BTreeSet<Timestamp>,
    launches_made: i64,
});

/// A schedule that was just added.
#[derive(Serialize, schemars::JsonSchema)]
pub struct NewSchedule {
    #[serde(flatten)]
    pub schedule: ScheduleRecord,
    /// How the rule is read where that may surprise.
    pub notes: Vec<String>,
    pub warnings: Vec<Warning>,
}

read_by_parts!(NewSchedule { schedule } { notes: Vec<String>, warnings: Vec<Warning> });

/// A schedule with its explanation and its newest launches.
#[derive(Serialize, schemars::JsonSchema)]
pub struct ScheduleDetail {
    #[serde(flatten)]
    pub schedule: NewSchedule,
    /// The rule in plain English. Null when this version cannot read the rule.
    pub explanation: Option<String>,
    /// Every policy with its value, set or default. Null where it has no effect or no bound.
    pub effective_policies: Option<Map<String, Value>>,
    /// The packages that propose a schedule of this name, which isn't used because this schedule has the name.
    pub replaces_proposals_of: Vec<String>,
    pub launches: Vec<LaunchRow>,
}

read_by_parts!(ScheduleDetail { schedule } {
    explanation: Option<String>,
    effective_policies: Option<Map<String, Value>>,
    replaces_proposals_of: Vec<String>,
    launches: Vec<LaunchRow>,
});

/// The slots that a [`RulePreview`] shows.
pub const SLOTS_PREVIEWED: usize = 5;

/// What a rule means.
pub struct RulePreview {
    /// The rule in plain English.
    pub explanation: String,
    pub notes: Vec<String>,
    pub warnings: Vec<Warning>,
    /// When a rule without slots launches.
    pub without_slots: Option<String>,
    /// The next slots, each with the time on the clock of its zone.
    pub slots: Vec<(Timestamp, String)>,
}

/// The effect that a new definition of a schedule would have.
pub struct Redefinition {
    /// How it differs from the present definition.
    pub differences: Vec<Difference>,
    pub rule: RulePreview,
    pub is_paused: bool,
}

/// The result of `schedule rename`.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct RenameReport<'a> {
    pub schedule: Cow<'a, str>,
    pub was: Cow<'a, str>,
    pub revision: i64,
    /// `renamed`.
    pub done: Cow<'static, str>,
}

/// The result of `schedule skip`.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct SkipReport<'a> {
    pub schedule: Cow<'a, str>,
    pub scheduled_time: Timestamp,
    /// `skipped` or `restored`.
    pub done: Cow<'static, str>,
}

/// The result of a command that changes a schedule.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChangeReport<'a> {
    pub schedule: Cow<'a, str>,
    /// `paused`, `resumed`, `reset` or `removed`.
    pub done: Cow<'static, str>,
}

impl NewSchedule {
    /// Make the record of a schedule whose rule is `rule`, if this version can read it.
    pub fn new(row: Schedule, rule: Option<&Rule>, now: Timestamp) -> NewSchedule {
        NewSchedule {
            schedule: ScheduleRecord::new(row),
            notes: rule.map_or_else(Vec::new, |rule| rule.notes().to_vec()),
            warnings: rule.map_or_else(Vec::new, |rule| rule.warnings(now)),
        }
    }

    /// Returns when a rule without slots launches, as a sentence; none for a rule with slots.
    pub fn without_slots(&self) -> Option<String> {
        rule(&self.schedule.row)
            .ok()
            .as_ref()
            .and_then(without_slots)
    }

    /// Read the schedule that was just added.
    pub async fn read(
        tx: &mut Tx,
        name: &str,
        now: Timestamp,
    ) -> Result<NewSchedule, ScheduleError> {
        let row = schedule_admin::find(tx, name).await?;
        let rule = rule(&row)?;
        let herd = herd_warning(tx, &row).await?;
        let mut added = NewSchedule::new(row, Some(&rule), now);
        added.warnings.extend(herd);
        Ok(added)
    }
}

impl ScheduleDetail {
    /// Read a schedule. `late` has the host's policies for late slots.
    pub async fn read(
        tx: &mut Tx,
        name: &str,
        late: &Defaults,
        now: Timestamp,
    ) -> Result<ScheduleDetail, ScheduleError> {
        let row = schedule_admin::find(tx, name).await?;
        // A rule that this version cannot read is shown as it is stored.
        let rule = rule(&row).ok();
        let policies = definition::policies(&row.definition).ok();
        let json = |(policy, text): (Policy, Option<String>)| {
            let value = text.map_or(Value::Null, |text| policy.json(text));
            (policy.to_string(), value)
        };
        Ok(ScheduleDetail {
            explanation: rule.as_ref().map(Rule::explanation),
            effective_policies: policies
                .map(|policies| policies.effective(late).map(json).collect()),
            replaces_proposals_of: replaced_proposals(tx, &row).await?,
            launches: launch::of_schedule(tx, row.state.id, LAUNCHES_SHOWN).await?,
            schedule: NewSchedule::new(row, rule.as_ref(), now),
        })
    }
}

/// Returns the packages proposing a schedule of this name in vain.
async fn replaced_proposals(tx: &mut Tx, row: &Schedule) -> Result<Vec<String>, DbError> {
    let name = &row.definition.name;
    let found = packages::perhaps_proposing(tx, name, split(name).1, PROPOSALS_READ).await?;
    let proposes = |(package, manifest): &(String, String)| {
        let manifest = Manifest::from_stored(package, manifest);
        manifest.schedules().iter().any(|it| it.name == *name)
    };
    let is_used =
        |package: &str| row.state.origin == Origin::Package && row.definition.package == package;
    let in_vain = found
        .into_iter()
        .filter(|found| !is_used(&found.0) && proposes(found));
    Ok(in_vain.map(|(package, _)| package).collect())
}

impl Redefinition {
    /// Check a definition that a schedule is to have, and return what it would do. Nothing is changed.
    pub async fn read(
        tx: &mut Tx,
        row: &Schedule,
        wanted: &ScheduleDefinition,
        now: Timestamp,
    ) -> Result<Redefinition, ScheduleError> {
        let rule = schedule_admin::check_edit(tx, row, wanted, now).await?;
        let current = schedule_admin::read(&row.definition)?;
        let slots = slots(row, &rule, &wanted.policies, None, now);
        Ok(Redefinition {
            differences: differences(&current, wanted),
            rule: RulePreview::new(&rule, slots, now),
            is_paused: !row.state.enabled,
        })
    }
}

impl RulePreview {
    fn new(rule: &Rule, slots: impl Iterator<Item = Timestamp>, now: Timestamp) -> RulePreview {
        let slots = slots.take(SLOTS_PREVIEWED);
        RulePreview {
            explanation: rule.explanation(),
            notes: rule.notes().to_vec(),
            warnings: rule.warnings(now),
            without_slots: without_slots(rule),
            slots: slots.map(|slot| (slot, rule.local_text(slot))).collect(),
        }
    }

    /// Returns what the rule of a new schedule would mean. Its hashed values come with the schedule's id, so other ones stand for them.
    ///
    /// # Errors
    ///
    /// When the rule is wrong, or contradicts the policies.
    pub fn of_new(
        rule: &RuleText,
        policies: &Policies,
        now: Timestamp,
    ) -> Result<RulePreview, ScheduleError> {
        let rule = Rule::parse(rule, HashKey::NONE)?;
        policies.check(&rule)?;
        let (mut last, mut made) = (now, 0);
        let slots = std::iter::from_fn(|| {
            last = policies.next_slot(&rule, last, made)?;
            made += 1;
            Some(last)
        });
        let mut preview = RulePreview::new(&rule, slots, now);
        if is_hashed(&rule) {
            let note =
                "hashed values differ for each schedule: this one's are known once it's added";
            preview.notes.push(note.to_owned());
        }
        Ok(preview)
    }
}

impl ScheduleRecord {
    /// Returns the name of the schedule.
    pub fn name(&self) -> &str {
        &self.row.definition.name
    }

    /// Make the record of a schedule.
    pub fn new(row: Schedule) -> ScheduleRecord {
        ScheduleRecord {
            resolved: rule(&row).ok().as_ref().map(Rule::resolved_form),
            state: Cow::Borrowed(state(&row)),
            skips: skips(&row),
            launches_made: row.state.history.launches,
            row,
        }
    }

    /// Returns the row, with what the record has of its history.
    pub fn into_row(self) -> Schedule {
        let skips = serde_json::to_string(&self.skips).ok();
        let mut row = self.row;
        row.state.history.launches = self.launches_made;
        row.state.history.skips = skips;
        row
    }

    /// Returns the rule as it is written, with its hashed values.
    pub fn rule_text(&self) -> String {
        let text = &self.row.definition.rule;
        let written = format!("{} {}", text.kind, text.expression);
        match rule(&self.row).ok().filter(is_hashed) {
            Some(rule) => format!("{written} = {}", rule.resolved_form()),
            None => written,
        }
    }

    /// Returns the next slot as the end of a sentence.
    pub fn next_text(&self) -> String {
        match self.row.state.next_slot {
            Some(slot) => format!("next slot {slot}"),
            None => "no next slot".to_owned(),
        }
    }

    /// Returns since when, by whom, until when and why the schedule is paused; empty when it is not.
    pub fn pause_text(&self) -> String {
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

/// Parse the rule of a schedule.
pub fn rule(row: &Schedule) -> Result<Rule, ScheduleError> {
    let key = HashKey::of(row.state.id);
    Ok(Rule::parse(&row.definition.rule, key)?)
}

/// Returns the future slots of a schedule that `schedule skip` skips.
pub fn skips(row: &Schedule) -> BTreeSet<Timestamp> {
    let mut skips = row.state.history.skipped_slots();
    skips.retain(|slot| *slot > row.state.cursor_at);
    skips
}

/// Returns the slots of a schedule after `after`, or without it those to be decided from `now` on, skipped ones included.
pub fn slots<'a>(
    row: &'a Schedule,
    rule: &'a Rule,
    policies: &'a Policies,
    after: Option<Timestamp>,
    now: Timestamp,
) -> impl Iterator<Item = Timestamp> + 'a {
    let decided = row.state.cursor_at.max(now);
    let after = after.unwrap_or(decided);
    // The slots until then count towards the maximum.
    let mut last = match policies.max_launches {
        Some(_) => after.min(decided),
        None => after,
    };
    let skips = skips(row);
    let mut made = row.state.history.launches_made();
    let all = std::iter::from_fn(move || {
        last = policies.next_slot(rule, last, made)?;
        made += u64::from(!skips.contains(&last));
        Some(last)
    });
    all.skip_while(move |slot| *slot <= after)
}

/// Returns `paused`, `ended` or `enabled`.
pub fn state(row: &Schedule) -> &'static str {
    match row.state.enabled {
        false => "paused",
        true if row.state.next_slot.is_some() || waits_for_event(row) => "enabled",
        true => "ended",
    }
}

/// Returns whether a schedule without a next slot waits for a host's start or for the end of a launch.
fn waits_for_event(row: &Schedule) -> bool {
    // Another version may be able to read what this one cannot.
    let Ok((rule, policies)) = definition::parse(&row.definition) else {
        return true;
    };
    let made = row.state.history.launches_made();
    let may_launch = || policies.allowed_from(row.state.cursor_at, made).is_some();
    rule.at_host_start() || (rule.delay_after_completion().is_some() && may_launch())
}

/// Returns a warning when many other schedules have their next slot in the same minute.
async fn herd_warning(tx: &mut Tx, row: &Schedule) -> Result<Option<Warning>, DbError> {
    let Some(slot) = row.state.next_slot else {
        return Ok(None);
    };
    let minute = floor(slot, MINUTE);
    let others = schedules::waiting(tx, minute, minute.plus(MINUTE), row.state.id).await?;
    // Another command reports a rule that cannot be read.
    let rule = rule(row).ok().filter(|_| others >= HERD_MIN);
    Ok(rule.map(|rule| rule.crowded(others)))
}

/// Returns whether the rule has values hashed from its schedule's id.
pub fn is_hashed(rule: &Rule) -> bool {
    rule.normal_form() != rule.resolved_form()
}

/// Returns the last multiple of `step` since the epoch, up to `at`.
pub fn floor(at: Timestamp, step: Duration) -> Timestamp {
    let step = i64::try_from(step.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(at.micros() - at.micros().rem_euclid(step))
}

/// Returns a sentence saying when a rule without slots launches; none for a rule with slots.
pub fn without_slots(rule: &Rule) -> Option<String> {
    if !rule.at_host_start() && rule.delay_after_completion().is_none() {
        return None;
    }
    let when = rule.explanation().replacen("Once", "once", 1);
    let when = when.trim_end_matches('.');
    Some(format!("the rule has no slots: it launches {when}"))
}
