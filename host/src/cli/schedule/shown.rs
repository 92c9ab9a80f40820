//! A schedule as it is shown.

use serde_json::{Value, json};

use super::cell;
use crate::cli::rule::is_hashed;
use crate::clock::Timestamp;
use crate::db::schedules::{self, Schedule};
use crate::db::{DbError, Tx};
use crate::engine::schedules::ScheduleError;
use crate::schedule::{DayMatch, DstFold, DstGap, HashKey, Rule, Warning, WarningKind};

/// From so many other schedules in the minute of its next slot on, a new one is told of them.
const CROWD_MIN: i64 = 10;

const MINUTE_US: i64 = 60_000_000;

/// The rule of a schedule.
pub(super) fn rule(row: &Schedule) -> Result<Rule, ScheduleError> {
    Ok(Rule::parse(&row.says.rule, HashKey::of(row.state.id))?)
}

/// What all commands that show schedules give of one as JSON.
pub(super) fn value(row: &Schedule) -> Value {
    let context: Value = serde_json::from_str(&row.says.context).unwrap_or_default();
    let text = &row.says.rule;
    json!({
        "id": row.state.id,
        "name": row.says.name,
        "package": row.says.package,
        "task": row.says.task,
        "kind": text.kind,
        "expression": text.expression,
        "resolved": rule(row).ok().map(|rule| rule.resolved_form()),
        "anchor": text.anchor,
        "timezone": text.timezone,
        "day_match": text.day_match,
        "dst_gap": text.dst_gap,
        "dst_fold": text.dst_fold,
        "exclude": text.exclude,
        "context": context,
        "origin": row.state.origin,
        "enabled": row.state.enabled,
        "revision": row.state.revision,
        "next_slot": row.state.next_slot,
        "cursor": row.state.cursor_at,
        "created_at": row.state.created_at,
        "updated_at": row.state.updated_at,
    })
}

/// `cron H 3 * * * = 17 3 * * *`: the rule as written, and what hashed values are.
pub(super) fn rule_text(row: &Schedule) -> String {
    let written = format!("{} {}", row.says.rule.kind, row.says.rule.expression);
    match rule(row) {
        Ok(rule) if is_hashed(&rule) => format!("{written} = {}", rule.resolved_form()),
        _ => written,
    }
}

/// A schedule as lines of a key and a value; choices about its rule only where they were made.
pub(super) fn rows(row: &Schedule) -> Vec<(&'static str, String)> {
    let text = &row.says.rule;
    let mut rows = vec![
        ("schedule", row.says.name.clone()),
        ("id", row.state.id.to_string()),
        ("package", row.says.package.clone()),
        ("task", cell(&row.says.task)),
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
    rows.extend([
        ("context", row.says.context.clone()),
        ("from", row.state.origin.to_string()),
        ("enabled", row.state.enabled.to_string()),
        ("revision", row.state.revision.to_string()),
        ("next", cell(&row.state.next_slot)),
        ("decided to", row.state.cursor_at.to_string()),
    ]);
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
