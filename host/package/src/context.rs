//! The context of a run: the keys that only the host sets, and how contexts are merged.

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

/// A context sets a key that only the host sets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the context may not set `{key}`: the host sets it for every run; choose another name")]
pub struct ReservedKey {
    /// One of [`RESERVED`].
    pub key: &'static str,
}

/// Check the context of a schedule, a sidecar or a trigger.
///
/// Only the top level is reserved; below it every name is allowed.
pub fn check(context: &Map<String, Value>) -> Result<(), ReservedKey> {
    check_keys(|key| context.contains_key(key))
}

/// Check the keys of a context, whatever holds them; `is_set` says whether the context sets a key.
pub fn check_keys(is_set: impl Fn(&str) -> bool) -> Result<(), ReservedKey> {
    match RESERVED.iter().find(|key| is_set(key)) {
        None => Ok(()),
        Some(key) => Err(ReservedKey { key }),
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
            assert_eq!(check(&context).unwrap_err().key, key);
        }
        assert_eq!(check(&map(json!({"mine": {"run_id": 1}}))), Ok(()));
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
