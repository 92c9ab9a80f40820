//! A schedule as it is shown.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::cell;
use crate::commands::rule::is_hashed;
use campanile_engine::schedule_admin::ScheduleError;
use campanile_model::clock::Timestamp;
use campanile_model::text::duration_text;
use campanile_model::text::printable_line;
use campanile_schedule::policy::{Catchup, Defaults, Overlap, Policies, Policy};
use campanile_schedule::rule::{DayMatch, DstFold, DstGap, HashKey, Rule, Warning, WarningKind};
use campanile_store::schedules::{self, Schedule};
use campanile_store::{DbError, Tx};

/// From so many other schedules in the minute of its next slot on, a new one is told of them.
const CROWD_MIN: i64 = 10;

const MINUTE_US: i64 = 60_000_000;

/// The rule of a schedule.
pub(super) fn rule(row: &Schedule) -> Result<Rule, ScheduleError> {
    Ok(Rule::parse(
        &row.definition.rule,
        HashKey::of(row.state.id),
    )?)
}

/// What all commands that show schedules give of one as JSON.
pub(super) fn value(row: &Schedule) -> Value {
    let context: Value = serde_json::from_str(&row.definition.context).unwrap_or_default();
    let text = &row.definition.rule;
    let policies = policies(row).ok();
    json!({
        "id": row.state.id,
        "name": row.definition.name,
        "package": row.definition.package,
        "task": row.definition.task,
        "kind": text.kind,
        "expression": text.expression,
        "resolved": rule(row).ok().map(|rule| rule.resolved_form()),
        "anchor": text.anchor,
        "timezone": text.timezone,
        "day_match": text.day_match,
        "dst_gap": text.dst_gap,
        "dst_fold": text.dst_fold,
        "exclude": text.exclude,
        "policies": policies.map(|policies| said(&policies)),
        "context": context,
        "origin": row.state.origin,
        "enabled": row.state.enabled,
        "state": state(row),
        "paused_at": row.state.paused_at,
        "paused_by": row.state.paused_by,
        "pause_note": row.state.pause_note,
        "paused_until": row.state.paused_until,
        "revision": row.state.revision,
        "next_slot": row.state.next_slot,
        "skips": skips(row),
        "launches_made": row.state.history.launches,
        "cursor": row.state.cursor_at,
        "created_at": row.state.created_at,
        "updated_at": row.state.updated_at,
    })
}

/// What a schedule says besides its rule.
pub(super) fn policies(row: &Schedule) -> Result<Policies, serde_json::Error> {
    serde_json::from_str(&row.definition.policies)
}

/// The policies of which something is said.
fn said(policies: &Policies) -> Value {
    serde_json::to_value(policies).unwrap_or_default()
}

/// Every policy as it holds: as said, or else by default; null where it means nothing or sets no bound.
pub(super) fn in_force(policies: &Policies, defaults: &Defaults) -> Value {
    let span = |span: Option<Duration>, default| duration_text(span.unwrap_or(default));
    let catches_up = policies.catchup != Catchup::None;
    let with = |overlap| policies.overlap == overlap;
    let mut all = Map::new();
    for (policy, value) in [
        (Policy::Catchup, json!(policies.catchup)),
        (
            Policy::CatchupWindow,
            json!(catches_up.then(|| span(policies.catchup_window, defaults.catchup_window))),
        ),
        (
            Policy::CatchupMax,
            json!((policies.catchup == Catchup::All).then(|| policies.catchup_max())),
        ),
        (
            Policy::MisfireGrace,
            json!(span(policies.misfire_grace, defaults.misfire_grace)),
        ),
        (Policy::Overlap, json!(policies.overlap)),
        (
            Policy::MaxBuffered,
            json!(with(Overlap::BufferAll).then(|| policies.max_buffered())),
        ),
        (
            Policy::Keep,
            json!(with(Overlap::BufferOne).then(|| policies.keep())),
        ),
        (
            Policy::CancelGrace,
            json!(with(Overlap::CancelOther).then(|| duration_text(policies.cancel_grace()))),
        ),
        (Policy::Delivery, json!(policies.delivery)),
    ] {
        all.insert(policy.to_string(), value);
    }
    let said = said(policies);
    for policy in Policy::ALL {
        let key = policy.to_string();
        all.entry(key.clone()).or_insert_with(|| said[key].clone());
    }
    Value::Object(all)
}

/// The slots to come that were taken out.
pub(super) fn skips(row: &Schedule) -> BTreeSet<Timestamp> {
    let skips = row.state.history.skipped_slots();
    let to_come = skips.into_iter();
    to_come.filter(|slot| *slot > row.state.cursor_at).collect()
}

/// The slots to come of a schedule after `after`, also those that were taken out.
pub(super) fn slots<'a>(
    row: &'a Schedule,
    rule: &'a Rule,
    policies: &'a Policies,
    after: Timestamp,
) -> impl Iterator<Item = Timestamp> + 'a {
    let skips = skips(row);
    let mut made = u64::try_from(row.state.history.launches).unwrap_or_default();
    let mut after = after;
    std::iter::from_fn(move || {
        after = policies.next_slot(rule, after, made)?;
        made += u64::from(!skips.contains(&after));
        Some(after)
    })
}

/// Whether a schedule is `paused`, has `ended`, or rings: `enabled`.
pub(super) fn state(row: &Schedule) -> &'static str {
    let state = &row.state;
    match (state.enabled, state.next_slot) {
        (false, _) => "paused",
        (true, Some(_)) => "enabled",
        (true, None) if waits(row) => "enabled",
        (true, None) => "ended",
    }
}

/// Whether a schedule without a next slot waits for something else: a host's start, or the end of a launch.
fn waits(row: &Schedule) -> bool {
    // One that this version cannot read waits for another version.
    let (Ok(rule), Ok(policies)) = (rule(row), policies(row)) else {
        return true;
    };
    let made = u64::try_from(row.state.history.launches).unwrap_or_default();
    let goes_on = || policies.allowed_from(row.state.cursor_at, made).is_some();
    rule.at_host_start() || (rule.delay_after_completion().is_some() && goes_on())
}

/// By whom a schedule is paused, since when, until when and why.
fn pause_text(row: &Schedule) -> Option<String> {
    let mut text = row.state.paused_at?.to_string();
    if let Some(by) = &row.state.paused_by {
        text += &format!(" by {}", printable_line(by));
    }
    if let Some(until) = row.state.paused_until {
        text += &format!(", until {until}");
    }
    if let Some(note) = &row.state.pause_note {
        text += &format!(": {}", printable_line(note));
    }
    Some(text)
}

/// `cron H 3 * * * = 17 3 * * *`: the rule as written, and what hashed values are.
pub(super) fn rule_text(row: &Schedule) -> String {
    let written = format!(
        "{} {}",
        row.definition.rule.kind, row.definition.rule.expression
    );
    match rule(row) {
        Ok(rule) if is_hashed(&rule) => format!("{written} = {}", rule.resolved_form()),
        _ => written,
    }
}

/// A schedule as lines of a key and a value; choices about its rule only where they were made.
pub(super) fn rows(row: &Schedule) -> Vec<(&'static str, String)> {
    let text = &row.definition.rule;
    let mut rows = vec![
        ("schedule", row.definition.name.clone()),
        ("id", row.state.id.to_string()),
        ("package", row.definition.package.clone()),
        ("task", cell(&row.definition.task)),
        ("rule", rule_text(row)),
        ("anchor", cell(&text.anchor)),
        ("timezone", text.timezone.clone()),
    ];
    if text.day_match != DayMatch::default() {
        rows.push(("day match", text.day_match.to_string()));
    }
    if text.dst_gap != DstGap::default() {
        rows.push(("dst gap", text.dst_gap.to_string()));
    }
    if text.dst_fold != DstFold::default() {
        rows.push(("dst fold", text.dst_fold.to_string()));
    }
    if !text.exclude.is_empty() {
        rows.push(("exclude", text.exclude.join("; ")));
    }
    match policies(row) {
        Ok(policies) => {
            let said = policies.said();
            rows.extend(said.map(|(policy, text)| (policy.as_str(), text)));
        }
        Err(_) => rows.push(("policies", row.definition.policies.clone())),
    }
    rows.extend([
        ("context", row.definition.context.clone()),
        ("from", row.state.origin.to_string()),
        ("state", state(row).to_owned()),
    ]);
    rows.extend(pause_text(row).map(|pause| ("paused", pause)));
    rows.extend([
        ("revision", row.state.revision.to_string()),
        ("next", cell(&row.state.next_slot)),
        ("decided to", row.state.cursor_at.to_string()),
        ("launched", row.state.history.launches.to_string()),
    ]);
    let skips = skips(row).into_iter();
    rows.extend(skips.map(|slot| ("taken out", slot.to_string())));
    let notes = rule(row).map(|rule| rule.notes().to_vec());
    rows.extend(notes.into_iter().flatten().map(|note| ("note", note)));
    rows
}

/// That the next slot of a schedule is in the same minute as those of many others, if it is.
pub(super) async fn crowd(tx: &mut Tx, row: &Schedule) -> Result<Option<Warning>, DbError> {
    let Some(slot) = row.state.next_slot else {
        return Ok(None);
    };
    let minute = slot.micros() - slot.micros().rem_euclid(MINUTE_US);
    let [from, until] = [minute, minute + MINUTE_US].map(Timestamp::from_micros);
    let others = schedules::waiting(tx, from, until, row.state.id).await?;
    Ok((others >= CROWD_MIN).then(|| Warning {
        kind: WarningKind::Herd,
        message: format!("{others} other schedules have their next slot in the same minute"),
        hint: "write `H` for the minute, or choose one that is free".to_owned(),
    }))
}
