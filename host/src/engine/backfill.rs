//! Back-fill: the slots of a time that is past are launched because a person asks for it.
//!
//! ```text
//! survey ── begin ──▶ running ── fill_back, a few launches at a time ──▶ done
//!                        └── cancel, or its schedule is removed ──▶ cancelled
//! ```
//!
//! A backfill has a cursor of its own; the schedule's stays where it is, and so do its count of launches and its
//! pause. Launches and cursor go on the record together: a crash changes nothing or all, and the ids of the launches
//! follow from schedule, slot and backfill, so that nothing is launched twice.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Map, Value};

use super::schedules::{self as orders, ScheduleError};
use super::spec::Spec;
use super::{Engine, EngineError};
use crate::clock::Timestamp;
use crate::crash;
use crate::db::backfills::{self, Backfill, Step};
use crate::db::events::{self, EventKind};
use crate::db::launches::NewLaunch;
use crate::db::schedules::{self, Schedule};
use crate::db::{BackfillState, DbError, Decision, Tx, changes, packages};
use crate::ids::{ArtifactDigest, BackfillId, HostId, LaunchId, LaunchKind};
use crate::package::context;
use crate::policy::Policies;
use crate::schedule::Rule;
use crate::strict::duration_text;

/// Launches of one backfill that are not over at the same time, at most.
pub const UNFINISHED_MAX: i64 = 100;
/// Slots of one backfill, at most.
pub const SLOTS_MOST: u64 = 1_000_000;
/// Slots looked at in one transaction for each launch that may be made; the rest follows in the next.
const SLOTS_PER_LAUNCH: usize = 10;
/// The finest step of an instant.
const MICROSECOND: Duration = Duration::from_micros(1);

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked<'a> {
    pub id: BackfillId,
    /// The first and the last slot that may be launched.
    pub from: Timestamp,
    pub to: Timestamp,
    /// From one launch to the next at least, in whole milliseconds.
    pub spread: Duration,
    /// Whether slots that have succeeded are launched too.
    pub forced: bool,
    /// Laid over the schedule's context.
    pub context: Option<&'a Map<String, Value>>,
    pub by: &'a str,
}

/// What a backfill comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Survey {
    pub schedule: Schedule,
    pub slots: u64,
    pub first: Timestamp,
    pub last: Timestamp,
    /// Slots that have succeeded and are not launched again.
    pub left_alone: u64,
}

/// Why there is no backfill as asked.
#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    #[error("the backfill would end before it begins: {to} is before {from}; exchange the two")]
    EndsFirst { from: Timestamp, to: Timestamp },
    #[error(
        "{0} is in the future, and slots to come are the schedule's own; begin with a time that is past"
    )]
    Future(Timestamp),
    #[error(
        "`{0}` has no slots that could be filled back: its rule launches at an event and not by the clock; `campanile schedule trigger` launches it now"
    )]
    NoClock(String),
    #[error("`{name}` has no slot from {from} to {to}; {}", next_is(.next))]
    NoSlots {
        name: String,
        from: Timestamp,
        to: Timestamp,
        next: Option<Timestamp>,
    },
    #[error(
        "`{name}` has more than {SLOTS_MOST} slots in this span; ask for a shorter one, and for the rest when that is done"
    )]
    TooMany { name: String },
    #[error(
        "there is a backfill {id} already, with {}; say the same to follow it, or choose another id",
        .differences.join(", ")
    )]
    Differs {
        id: BackfillId,
        differences: Vec<String>,
    },
    #[error("there is no backfill {0}; `campanile backfill list` shows those there are")]
    Unknown(BackfillId),
    #[error("the backfill {id} is {state} already")]
    Over {
        id: BackfillId,
        state: BackfillState,
    },
}

fn next_is(next: &Option<Timestamp>) -> String {
    match next {
        Some(next) => format!("the next one after that is {next}"),
        None => "there is none after that either".to_owned(),
    }
}

/// What one step did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilledBack {
    /// Launches put on the record.
    pub launched: usize,
    /// Whether a backfill goes on.
    pub goes_on: bool,
    /// Whether there are slots that could be looked at without waiting for anything.
    pub more: bool,
}

/// Nothing can be done before something else has happened.
const WAITS: FilledBack = FilledBack {
    launched: 0,
    goes_on: true,
    more: false,
};

/// Look what a backfill comes to, without beginning it.
pub async fn survey(
    tx: &mut Tx,
    name: &str,
    asked: &Asked<'_>,
    now: Timestamp,
) -> Result<Survey, ScheduleError> {
    let (from, to) = (asked.from, asked.to);
    if to < from {
        return Err(BackfillError::EndsFirst { from, to }.into());
    }
    if from > now {
        return Err(BackfillError::Future(from).into());
    }
    if let Some(own) = asked.context {
        context::check(own)?;
    }
    let schedule = orders::find(tx, name).await?;
    let (rule, policies) = orders::parse(&schedule)?;
    let name = name.to_owned();
    if rule.delay_after_completion().is_some() || rule.at_host_start() {
        return Err(BackfillError::NoClock(name).into());
    }
    let (before, until) = span(&policies, from, to, now);
    let mut slots = rule.slots(before, until);
    let Some(first) = slots.next() else {
        let next = policies.next_slot(&rule, to.min(now), 0);
        return Err(BackfillError::NoSlots {
            name,
            from,
            to,
            next,
        }
        .into());
    };
    let rest = slots.take(usize::try_from(SLOTS_MOST).unwrap_or(usize::MAX));
    let (last, count) = rest.fold((first, 1), |(_, count), slot| (slot, count + 1));
    if count > SLOTS_MOST {
        return Err(BackfillError::TooMany { name }.into());
    }
    let left_alone = match asked.forced {
        true => 0,
        false => {
            let succeeded = backfills::succeeded(tx, schedule.state.id, first, last).await?;
            // A rule that was edited has had other slots.
            let own = succeeded.into_iter().filter(|slot| rule.matches(*slot));
            own.count() as u64
        }
    };
    Ok(Survey {
        schedule,
        slots: count,
        first,
        last,
        left_alone,
    })
}

/// The backfill that was asked for before under the same id, if there is one.
///
/// # Errors
/// When that one is not what is asked for now.
pub async fn asked_before(
    tx: &mut Tx,
    name: &str,
    asked: &Asked<'_>,
) -> Result<Option<Backfill>, ScheduleError> {
    let Some(before) = backfills::find(tx, asked.id).await? else {
        return Ok(None);
    };
    let differences = differences(&before, name, asked);
    if !differences.is_empty() {
        let id = asked.id;
        return Err(BackfillError::Differs { id, differences }.into());
    }
    Ok(Some(before))
}

/// Begin what was surveyed; hosts carry it out.
pub async fn begin(
    tx: &mut Tx,
    survey: &Survey,
    asked: &Asked<'_>,
    now: Timestamp,
) -> Result<Backfill, ScheduleError> {
    let name = &survey.schedule.says.name;
    schedules::lock(tx, Some(name), None).await?;
    let schedule = orders::find(tx, name).await?;
    let (state, surveyed) = (&schedule.state, &survey.schedule.state);
    if (state.id, state.revision) != (surveyed.id, surveyed.revision) {
        return Err(ScheduleError::Raced(name.clone()));
    }
    let backfill = Backfill {
        id: asked.id,
        schedule_id: state.id,
        schedule: name.clone(),
        schedule_revision: state.revision,
        state: BackfillState::Running,
        from: asked.from,
        to: asked.to,
        spread_ms: spread_ms(asked),
        forced: asked.forced,
        context: asked
            .context
            .map(|own| Value::Object(own.clone()).to_string()),
        cursor_at: survey.first.minus(MICROSECOND),
        next_fire: now,
        slots: i64::try_from(survey.slots).unwrap_or(i64::MAX),
        launched: 0,
        left_alone: 0,
        created_at: now,
        created_by: asked.by.to_owned(),
        finished_at: None,
    };
    backfills::insert(tx, &backfill).await?;
    let detail = format!(
        "{} by {}: {} slots from {} to {}",
        asked.id, asked.by, survey.slots, survey.first, survey.last
    );
    events::record(tx, now, EventKind::BackfillStarted, name, &detail).await?;
    changes::bump(tx).await?;
    Ok(backfill)
}

/// End a backfill before its time; gives how many of its launches had not begun and are skipped. Those that had
/// begun go on.
pub async fn cancel(
    tx: &mut Tx,
    id: BackfillId,
    by: &str,
    now: Timestamp,
) -> Result<u64, ScheduleError> {
    let find = async |tx: &mut Tx| -> Result<Backfill, ScheduleError> {
        let found = backfills::find(tx, id).await?;
        Ok(found.ok_or(BackfillError::Unknown(id))?)
    };
    let name = find(tx).await?.schedule;
    schedules::lock(tx, Some(&name), None).await?;
    let state = find(tx).await?.state;
    if state != BackfillState::Running {
        return Err(BackfillError::Over { id, state }.into());
    }
    let skipped = backfills::cancel_launches(tx, id, now).await?;
    let detail = format!("{id} by {by}, {skipped} launches had not begun");
    end_cancelled(tx, id, &name, &detail, now).await?;
    changes::bump(tx).await?;
    Ok(skipped)
}

/// End the backfills of a schedule that is removed.
pub(super) async fn end_with(
    tx: &mut Tx,
    schedule: &Schedule,
    now: Timestamp,
) -> Result<(), DbError> {
    for backfill in backfills::running(tx).await? {
        if backfill.schedule_id == schedule.state.id {
            let id = backfill.id;
            let detail = format!("{id}, as its schedule was removed");
            end_cancelled(tx, id, &schedule.says.name, &detail, now).await?;
        }
    }
    Ok(())
}

async fn end_cancelled(
    tx: &mut Tx,
    id: BackfillId,
    name: &str,
    detail: &str,
    now: Timestamp,
) -> Result<(), DbError> {
    backfills::finish(tx, id, BackfillState::Cancelled, now).await?;
    events::record(tx, now, EventKind::BackfillCancelled, name, detail).await
}

impl Engine {
    /// Launch what has its turn of every backfill that runs, and end those that are done.
    pub async fn fill_back(&self, now: Timestamp) -> Result<FilledBack, EngineError> {
        let mut tx = self.db.read().await?;
        let running = backfills::running(&mut tx).await?;
        drop(tx);
        self.fills_back
            .store(!running.is_empty(), Ordering::Relaxed);
        let mut done = FilledBack::default();
        for backfill in running {
            let step = self.fill_one(&backfill, now).await?;
            done.launched += step.launched;
            done.goes_on |= step.goes_on;
            done.more |= step.more;
        }
        Ok(done)
    }

    async fn fill_one(
        &self,
        backfill: &Backfill,
        now: Timestamp,
    ) -> Result<FilledBack, EngineError> {
        let mut tx = self.db.write().await?;
        // Whoever decides about a schedule's launches holds its row; one that another host holds, it looks after.
        let held = schedules::hold(&mut tx, &[backfill.schedule_id]).await?;
        if held.is_empty() {
            return Ok(WAITS);
        }
        let filled = self.fill_held(&mut tx, backfill, now).await?;
        if filled.launched > 0 {
            crash::point("before_backfill_commit");
        }
        // Also when nothing was written: a transaction that is merely dropped holds the row a little longer.
        tx.commit().await?;
        if filled.launched > 0 {
            crash::point("after_backfill_commit");
        }
        Ok(filled)
    }

    /// One step of a backfill whose schedule's row is held.
    async fn fill_held(
        &self,
        tx: &mut Tx,
        backfill: &Backfill,
        now: Timestamp,
    ) -> Result<FilledBack, EngineError> {
        let found = backfills::find(tx, backfill.id).await?;
        let found = found.filter(|found| found.state == BackfillState::Running);
        let state = schedules::state(tx, backfill.schedule_id).await?;
        let Some((backfill, state)) = found.zip(state) else {
            return Ok(FilledBack::default());
        };
        let spec = self.specs.get(tx, state.id, backfill.schedule_revision);
        let spec = spec.await?;
        // One that this version cannot read waits for another one.
        let Some(rule) = &spec.rule else {
            return Ok(WAITS);
        };
        let unfinished = backfills::unfinished(tx, &backfill).await?;
        let room = usize::try_from(UNFINISHED_MAX - unfinished).unwrap_or_default();
        let slots = next_slots(&backfill, &spec.policies, rule, room * SLOTS_PER_LAUNCH);
        let (Some(&first), Some(&last)) = (slots.first(), slots.last()) else {
            if unfinished > 0 {
                return Ok(WAITS);
            }
            end_done(tx, &backfill, now).await?;
            return Ok(FilledBack::default());
        };
        let package = packages::find(tx, &spec.says.package).await?;
        let present = package.filter(|package| package.missing_since.is_none());
        // One that is missing is waited for.
        let Some(digest) = present.and_then(|package| package.digest) else {
            return Ok(WAITS);
        };
        let succeeded: BTreeSet<Timestamp> = match backfill.forced {
            true => BTreeSet::new(),
            false => backfills::succeeded(tx, state.id, first, last)
                .await?
                .into_iter()
                .collect(),
        };
        let portion = portion(&backfill, &slots, &succeeded, room, now);
        if !backfills::advance(tx, &portion.step).await? {
            return Ok(WAITS);
        }
        let maker = Maker {
            backfill: &backfill,
            spec: &spec,
            rule,
            digest,
            host: self.host,
            now,
        };
        let launches: Vec<NewLaunch> = portion
            .fire_times
            .iter()
            .map(|&(slot, fire_time)| maker.launch(slot, fire_time))
            .collect();
        let launched = launches.len();
        // What goes on beside it is limited by what the schedule says now.
        let now_says = self.specs.get(tx, state.id, state.revision).await?;
        orders::launch_each_beside(tx, &state, &now_says.policies, launches, now).await?;
        Ok(FilledBack {
            launched,
            goes_on: true,
            more: launched < room,
        })
    }
}

/// Pure: the first slots after the cursor, at most `most` of them and at least one, if there is one.
fn next_slots(
    backfill: &Backfill,
    policies: &Policies,
    rule: &Rule,
    most: usize,
) -> Vec<Timestamp> {
    let (_, until) = span(policies, backfill.from, backfill.to, backfill.created_at);
    let slots = rule.slots(backfill.cursor_at, until);
    slots.take(most.max(1)).collect()
}

/// Slots to look at in one transaction.
#[derive(Debug, Clone, PartialEq)]
struct Portion {
    /// Each slot to be launched, and when.
    fire_times: Vec<(Timestamp, Timestamp)>,
    step: Step,
}

/// Pure: what to launch of `slots`, which follow the cursor: `room` of them at most, and not those that have
/// `succeeded`.
fn portion(
    backfill: &Backfill,
    slots: &[Timestamp],
    succeeded: &BTreeSet<Timestamp>,
    room: usize,
    now: Timestamp,
) -> Portion {
    let spread = Duration::from_millis(u64::try_from(backfill.spread_ms).unwrap_or_default());
    let mut step = Step {
        id: backfill.id,
        from: backfill.cursor_at,
        to: backfill.cursor_at,
        next_fire: backfill.next_fire,
        launched: 0,
        left_alone: 0,
    };
    let mut fire_times = Vec::new();
    for &slot in slots {
        if succeeded.contains(&slot) {
            step.left_alone += 1;
        } else if fire_times.len() < room {
            let fire_time = step.next_fire.max(now);
            step.next_fire = fire_time.plus(spread);
            step.launched += 1;
            fire_times.push((slot, fire_time));
        } else {
            break;
        }
        step.to = slot;
    }
    Portion { fire_times, step }
}

/// Pure: the instant after which the slots begin that may be filled back, and the last that may be one: a schedule
/// has none before its start and after its end, and what comes after the request is its own.
fn span(
    policies: &Policies,
    from: Timestamp,
    to: Timestamp,
    asked_at: Timestamp,
) -> (Timestamp, Timestamp) {
    let from = policies.start_at.map_or(from, |start| start.max(from));
    let to = policies.end_at.map_or(to, |end| end.min(to));
    (from.minus(MICROSECOND), to.min(asked_at))
}

/// What the launches of one step have in common.
struct Maker<'a> {
    backfill: &'a Backfill,
    spec: &'a Spec,
    rule: &'a Rule,
    digest: ArtifactDigest,
    host: HostId,
    now: Timestamp,
}

impl Maker<'_> {
    fn launch(&self, slot: Timestamp, fire_time: Timestamp) -> NewLaunch {
        let backfill = self.backfill;
        NewLaunch {
            id: LaunchId::of_backfill(backfill.schedule_id, slot, backfill.id),
            schedule_id: backfill.schedule_id,
            schedule_revision: backfill.schedule_revision,
            kind: LaunchKind::Backfill,
            slot,
            slot_local: self.rule.local_text(slot),
            slot_last: slot,
            slot_count: 1,
            decision: Decision::Launched,
            reason: None,
            overlaps: None,
            package: self.spec.says.package.clone(),
            digest: Some(self.digest.clone()),
            context: backfill.context.clone(),
            backfill_id: Some(backfill.id),
            interval_start: self.rule.prev(slot).unwrap_or(slot),
            fire_time,
            decided_by: Some(self.host),
            claimed_at: self.now,
        }
    }
}

async fn end_done(tx: &mut Tx, backfill: &Backfill, now: Timestamp) -> Result<(), DbError> {
    backfills::finish(tx, backfill.id, BackfillState::Done, now).await?;
    let ends = backfills::ends(tx, backfill.id).await?;
    let detail = format!(
        "{}: {} succeeded, {} failed, {} cancelled, {} left alone",
        backfill.id, ends.succeeded, ends.failed, ends.cancelled, backfill.left_alone
    );
    let name = &backfill.schedule;
    events::record(tx, now, EventKind::BackfillDone, name, &detail).await
}

fn spread_ms(asked: &Asked<'_>) -> i64 {
    i64::try_from(asked.spread.as_millis()).unwrap_or(i64::MAX)
}

/// How a backfill differs from what is asked for under its id; a clause for each argument.
fn differences(before: &Backfill, name: &str, asked: &Asked<'_>) -> Vec<String> {
    let context: Option<Map<String, Value>> = before
        .context
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok());
    let shown = |context: Option<&Map<String, Value>>| {
        context.map_or("none".to_owned(), |own| {
            Value::Object(own.clone()).to_string()
        })
    };
    let spread = |ms: i64| {
        let ms = u64::try_from(ms).unwrap_or_default();
        duration_text(Duration::from_millis(ms))
    };
    let mut differences = Vec::new();
    let mut compare = |what: &str, same: bool, was: String, is: String| {
        if !same {
            differences.push(format!("{what} {was} instead of {is}"));
        }
    };
    let quoted = |name: &str| format!("`{name}`");
    let (was, is) = (&before.schedule, name);
    compare("the schedule", was == is, quoted(was), quoted(is));
    let (was, is) = (before.from, asked.from);
    compare("--from", was == is, was.to_string(), is.to_string());
    let (was, is) = (before.to, asked.to);
    compare("--to", was == is, was.to_string(), is.to_string());
    let (was, is) = (before.spread_ms, spread_ms(asked));
    compare("--spread", was == is, spread(was), spread(is));
    let (was, is) = (before.forced, asked.forced);
    compare("--force", was == is, was.to_string(), is.to_string());
    let (was, is) = (context.as_ref(), asked.context);
    compare("--context", was == is, shown(was), shown(is));
    differences
}

#[cfg(test)]
mod tests;
