//! The context JSON that a task is handed: the user's keys, and the host's on top.

use serde_json::{Map, Value, json};

use super::take::Work;
use crate::clock::Timestamp;

/// The user's part: the package's, the schedule's over it, the trigger's on top.
pub fn of_user(package: &Map<String, Value>, work: &Work) -> Map<String, Value> {
    let mut context = package.clone();
    context.extend(work.spec.context.clone());
    if let Some(Ok(Value::Object(own))) = work.taken.context.as_deref().map(serde_json::from_str) {
        context.extend(own);
    }
    context
}

/// The whole context of one call, as text: `user` with the reserved keys over it.
pub fn of_call(mut user: Map<String, Value>, work: &Work, attempt: i64) -> String {
    let taken = &work.taken;
    let stored = |text: &Option<String>| -> Value {
        text.as_deref()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or(Value::Null)
    };
    let time = |time: Timestamp| Value::String(time.to_string());
    let recovered_at = taken.recovered_at.filter(|_| work.is_recovery);
    let mut set = |key: &str, value: Value| user.insert(key.to_owned(), value);
    set("is_recovery", work.is_recovery.into());
    set("original_scheduled_time", time(taken.slot));
    set("recovery_attempt_time", recovered_at.map_or(Value::Null, time));
    set("execution_id", taken.launch_id.to_string().into());
    set("run_id", work.run_id.to_string().into());
    set("attempt", attempt.into());
    set("trigger", taken.kind.as_str().into());
    set(
        "schedule",
        json!({
            "id": taken.schedule_id,
            "name": work.spec.says.name,
            "expression": work.spec.says.expression,
            "timezone": work.spec.says.timezone,
        }),
    );
    set("scheduled_local", taken.slot_local.as_str().into());
    set("interval_start", time(taken.interval_start));
    set("interval_end", time(taken.slot));
    set("last_result", stored(&taken.last_result));
    set("last_failure", stored(&taken.last_failure));
    Value::Object(user).to_string()
}
