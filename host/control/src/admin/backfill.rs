//! Preview, begin and cancel a backfill, as a person requests.

pub mod batch;

use std::time::Duration;

use tokio::sync::Semaphore;

use crate::admin::backfill::batch::{MICROSECOND, SkippedSlots, span};
use crate::admin::schedule_admin::{self, Result, ScheduleError};
use crate::stored::stored_json;
use campanile_model::clock::Timestamp;
use campanile_model::ids::BackfillId;
use campanile_model::json_text::{JsonObject, text_of};
use campanile_model::text::{counted, duration_text};
use campanile_package::context;
use campanile_schedule::rule::Rule;
use campanile_store::backfills::{self, Backfill};
use campanile_store::events::EventKind;
use campanile_store::schedules::{self, Schedule};
use campanile_store::{BackfillStatus, Tx, changes, launch};

/// How many slots one backfill may have.
const SLOTS_MAX: u64 = 1_000_000;

/// A request for a backfill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackfillRequest<'a> {
    pub id: BackfillId,
    /// The first and the last slot that may be launched.
    pub from: Timestamp,
    pub to: Timestamp,
    /// The least time from one launch to the next, in whole milliseconds.
    pub spread: Duration,
    /// Whether slots are launched too that would be skipped; see [`SlotSurvey::slots_skipped`].
    pub forced: bool,
    /// Its keys override the schedule's.
    pub context: Option<&'a JsonObject>,
    pub by: &'a str,
}

/// What a backfill would do.
#[derive(Debug, Clone, PartialEq)]
pub struct BackfillPreview {
    pub schedule: Schedule,
    pub survey: SlotSurvey,
}

/// The slots of the span of a backfill.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct SlotSurvey {
    pub slots: u64,
    pub first: Timestamp,
    pub last: Timestamp,
    /// Slots that are not launched again.
    pub slots_skipped: u64,
    /// Those of them that are skipped because retention has removed launches of their days: whether they succeeded is not
    /// known.
    pub slots_removed: u64,
}

/// Returns what a backfill would do, without beginning it.
pub async fn preview(
    tx: &mut Tx,
    name: &str,
    asked: &BackfillRequest<'_>,
    now: Timestamp,
) -> Result<BackfillPreview> {
    let (from, to) = (asked.from, asked.to);
    if to < from {
        return Err(ScheduleError::Backfill(format!(
            "the backfill would end before it begins: {to} is before {from}; exchange the two"
        )));
    }
    if from > now {
        return Err(ScheduleError::Backfill(format!(
            "{from} is in the future, and slots to come are the schedule's own; begin with a time that is past"
        )));
    }
    if let Some(own) = asked.context {
        context::check(own)?;
    }
    let schedule = schedule_admin::find(tx, name).await?;
    let (rule, policies) = schedule_admin::parse(&schedule)?;
    if rule.delay_after_completion().is_some() || rule.at_host_start() {
        return Err(ScheduleError::Backfill(format!(
            "`{name}` has no slots to backfill: its rule launches at an event and not by the clock; `campanile schedule trigger` launches it now"
        )));
    }
    let (before, until) = span(&policies, from, to, now);
    let (first_instant, state) = (before.plus(MICROSECOND), &schedule.state);
    let skipped = SkippedSlots::read(tx, state, asked.forced, first_instant, until).await?;
    let Some(survey) = survey(rule.clone(), (before, until), skipped).await else {
        let next = match policies.next_slot(&rule, to.min(now), 0) {
            Some(next) => format!("the next one after that is {next}"),
            None => "there is none after that either".to_owned(),
        };
        let message = format!("`{name}` has no slot from {from} to {to}; {next}");
        return Err(ScheduleError::Backfill(message));
    };
    if survey.slots > SLOTS_MAX {
        return Err(ScheduleError::Backfill(format!(
            "`{name}` has more than {SLOTS_MAX} slots in this span; ask for a shorter one, and for the rest when that is done"
        )));
    }
    Ok(BackfillPreview { schedule, survey })
}

/// Count the slots after `before` and up to `until`, up to one more than [`SLOTS_MAX`]. Return none when there is no slot.
///
/// A million takes most of a second, so it is done beside the threads of the host's services, and once at a time.
async fn survey(
    rule: Rule,
    (before, until): (Timestamp, Timestamp),
    skipped: SkippedSlots,
) -> Option<SlotSurvey> {
    static COUNTING: Semaphore = Semaphore::const_new(1);
    // The semaphore is never closed.
    let permit = COUNTING.acquire().await;
    let count = move || {
        // A request that is given up meanwhile leaves the thread busy.
        let _permit = permit;
        let mut counted = None;
        for slot in rule.slots(before, until).take(SLOTS_MAX as usize + 1) {
            let survey = counted.get_or_insert(SlotSurvey {
                slots: 0,
                first: slot,
                last: slot,
                slots_skipped: 0,
                slots_removed: 0,
            });
            survey.slots += 1;
            survey.last = slot;
            survey.slots_skipped += u64::from(skipped.contains(slot));
            survey.slots_removed += u64::from(skipped.is_by_removal(slot));
        }
        counted
    };
    match tokio::task::spawn_blocking(count).await {
        Ok(counted) => counted,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Returns the backfill `id`.
pub async fn find(tx: &mut Tx, id: BackfillId) -> Result<Backfill> {
    let found = backfills::find(tx, id).await?;
    found.ok_or_else(|| {
        ScheduleError::NotFound(format!(
            "there is no backfill {id}; `campanile backfill list` shows those there are"
        ))
    })
}

/// Returns the earlier backfill with the same id, if there is one.
///
/// # Errors
/// When the earlier request differs from this one.
pub async fn find_earlier(
    tx: &mut Tx,
    name: &str,
    asked: &BackfillRequest<'_>,
) -> Result<Option<Backfill>> {
    let Some(before) = backfills::find(tx, asked.id).await? else {
        return Ok(None);
    };
    let mut differences = differences(&before, name, asked);
    let current = schedules::find(tx, name).await?;
    if current.is_some_and(|current| current.state.id != before.schedule_id) {
        differences.push(format!("an earlier schedule `{name}`, which was removed"));
    }
    if !differences.is_empty() {
        let (id, differences) = (asked.id, differences.join(", "));
        return Err(ScheduleError::Conflict(format!(
            "there is a backfill {id} already, with {differences}; repeat the same request to follow it, or choose another id"
        )));
    }
    Ok(Some(before))
}

/// Begin a backfill; hosts execute it.
pub async fn begin(
    tx: &mut Tx,
    preview: &BackfillPreview,
    asked: &BackfillRequest<'_>,
    now: Timestamp,
) -> Result<Backfill> {
    let name = &preview.schedule.definition.name;
    let schedule = schedule_admin::lock(tx, name).await?;
    let (state, surveyed) = (&schedule.state, &preview.schedule.state);
    if (state.id, state.revision) != (surveyed.id, surveyed.revision) {
        return Err(ScheduleError::Raced(name.clone()));
    }
    let backfill = Backfill {
        id: asked.id,
        schedule_id: state.id,
        schedule: name.clone(),
        schedule_revision: state.revision,
        status: BackfillStatus::Running,
        from: asked.from,
        to: asked.to,
        spread_ms: spread_ms(asked),
        forced: asked.forced,
        context: asked.context.map(text_of),
        cursor_at: preview.survey.first.minus(MICROSECOND),
        next_fire: now,
        slots: i64::try_from(preview.survey.slots).unwrap_or(i64::MAX),
        launched: 0,
        slots_skipped: 0,
        created_at: now,
        created_by: asked.by.to_owned(),
        finished_at: None,
    };
    backfills::insert(tx, &backfill).await?;
    let detail = format!(
        "{} by {}: {} from {} to {}",
        asked.id,
        asked.by,
        counted(preview.survey.slots, "slot"),
        preview.survey.first,
        preview.survey.last
    );
    changes::record(tx, now, EventKind::BackfillStarted, name, &detail).await?;
    Ok(backfill)
}

/// Cancel a backfill; return how many of its launches had not started and are skipped. Started launches continue.
pub async fn cancel(tx: &mut Tx, id: BackfillId, by: &str, now: Timestamp) -> Result<u64> {
    let name = find(tx, id).await?.schedule;
    schedules::lock_named(tx, &[&name]).await?;
    let found = find(tx, id).await?;
    if found.schedule != name {
        // It was renamed before this transaction locked the row, so the wrong row is locked.
        return Err(ScheduleError::Raced(name));
    }
    if found.status != BackfillStatus::Running {
        let message = format!("the backfill {id} is {} already", found.status);
        return Err(ScheduleError::Conflict(message));
    }
    let skipped = launch::withdraw_backfill(tx, id, now).await?;
    let detail = format!("{id} by {by}, {} had not begun", counted(skipped, "launch"));
    schedule_admin::cancel_backfill(tx, id, &name, &detail, now).await?;
    changes::bump(tx).await?;
    Ok(skipped)
}

fn spread_ms(asked: &BackfillRequest<'_>) -> i64 {
    i64::try_from(asked.spread.as_millis()).unwrap_or(i64::MAX)
}

/// Returns how a backfill differs from a request with the same id: a clause for each argument.
fn differences(before: &Backfill, name: &str, asked: &BackfillRequest<'_>) -> Vec<String> {
    let context: Option<JsonObject> = stored_json(before.context.as_deref());
    let shown = |context: Option<&JsonObject>| context.map_or("none".to_owned(), text_of);
    let spread = |ms: i64| {
        let ms = u64::try_from(ms).unwrap_or_default();
        duration_text(Duration::from_millis(ms))
    };
    let quoted = |name: &str| format!("`{name}`");
    let (forced, asked_forced) = (before.forced.to_string(), asked.forced.to_string());
    let (spread_before, spread_asked) = (spread(before.spread_ms), spread(spread_ms(asked)));
    let mut arguments = vec![
        ("the schedule", quoted(&before.schedule), quoted(name)),
        ("--from", before.from.to_string(), asked.from.to_string()),
        ("--to", before.to.to_string(), asked.to.to_string()),
        ("--spread", spread_before, spread_asked),
        ("--force", forced, asked_forced),
    ];
    // The order of the keys does not matter.
    if context.as_ref() != asked.context {
        arguments.push(("--context", shown(context.as_ref()), shown(asked.context)));
    }
    arguments.retain(|(_, was, is)| was != is);
    let clauses = arguments.iter();
    let clauses = clauses.map(|(what, was, is)| format!("{what} {was} instead of {is}"));
    clauses.collect()
}

#[cfg(test)]
mod tests;
