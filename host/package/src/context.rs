//! The context of a run: the keys that only the host sets, and how contexts are merged.

use campanile_model::json_depth::{JSON_DEPTH_MAX, TooDeep};
use serde_json::{Map, Value};

/// The keys that the host adds to every context.
pub const RESERVED: [&str; 15] = [
    "is_recovery",
    "scheduled_time",
    "original_scheduled_time",
    "recovery_attempt_time",
    "execution_id",
    "run_id",
    "attempt",
    "trigger",
    "schedule",
    "scheduled_local",
    "interval_start",
    "interval_end",
    "traceparent",
    "last_result",
    "last_failure",
];

/// Why a context is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextFault {
    /// It sets a key of [`RESERVED`].
    #[error("the context may not set `{0}`: the host sets it for every run; choose another name")]
    Reserved(&'static str),
    #[error("the context {0}; make it flatter, or pass its deep part as a text")]
    TooDeep(#[from] TooDeep),
}

/// Check the context of a schedule, a sidecar or a trigger.
///
/// Only the top level is reserved; below it every name is allowed.
pub fn check(context: &Map<String, Value>) -> Result<(), ContextFault> {
    check_keys(|key| context.contains_key(key))?;
    // The map itself is a level.
    match context
        .values()
        .any(|value| is_deeper(value, JSON_DEPTH_MAX - 1))
    {
        true => Err(TooDeep.into()),
        false => Ok(()),
    }
}

/// Whether a value nests deeper than `levels`.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let is_below = |value: &Value| is_deeper(value, levels.saturating_sub(1));
    match value {
        Value::Array(items) => levels == 0 || items.iter().any(is_below),
        Value::Object(entries) => levels == 0 || entries.values().any(is_below),
        _ => false,
    }
}

/// Check the keys of a context, whatever holds them; `is_set` says whether the context sets a key.
pub fn check_keys(is_set: impl Fn(&str) -> bool) -> Result<(), ContextFault> {
    match RESERVED.iter().find(|key| is_set(key)) {
        None => Ok(()),
        Some(key) => Err(ContextFault::Reserved(key)),
    }
}

/// Return `base` with the keys of `over`. A key of both is replaced, not merged.
pub fn merge(base: &Map<String, Value>, over: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = base.clone();
    merged.extend(over.clone());
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn each_reserved_key_is_refused_at_the_top_and_allowed_below() {
        for key in RESERVED {
            let mut context = Map::new();
            context.insert(key.to_owned(), Value::Null);
            assert_eq!(check(&context), Err(ContextFault::Reserved(key)));
        }
        assert_eq!(check(&map(json!({"mine": {"run_id": 1}}))), Ok(()));
    }

    #[test]
    fn a_context_that_nests_too_deep_is_refused() {
        let nested = |levels: usize| (1..levels).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(check(&map(json!({"a": nested(JSON_DEPTH_MAX)}))), Ok(()));
        let deep = map(json!({"a": nested(JSON_DEPTH_MAX + 1)}));
        assert_eq!(check(&deep), Err(ContextFault::TooDeep(TooDeep)));
    }

    #[test]
    fn the_upper_context_wins_key_by_key() {
        let merged = merge(
            &map(json!({"a": 1, "b": {"x": 1}})),
            &map(json!({"b": {"y": 2}})),
        );
        assert_eq!(merged, map(json!({"a": 1, "b": {"y": 2}})));
    }
}
