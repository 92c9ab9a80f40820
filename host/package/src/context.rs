//! The context's reserved keys: the host's word, which nobody else may put in its mouth.

use serde_json::{Map, Value};

/// The keys that the host adds to every context.
pub const RESERVED: [&str; 13] = [
    "is_recovery",
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
    "last_result",
    "last_failure",
];

/// A context that sets a key of the host's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the context may not set `{key}`: the host sets it for every run; choose another name")]
pub struct ReservedKey {
    /// One of [`RESERVED`].
    pub key: String,
}

/// Check a context at the door: in a schedule, a sidecar, a trigger or an answer of a task.
///
/// Only the top level is the host's; below it every name is free.
pub fn check(context: &Map<String, Value>) -> Result<(), ReservedKey> {
    match RESERVED.iter().find(|key| context.contains_key(**key)) {
        None => Ok(()),
        Some(key) => Err(ReservedKey {
            key: (*key).to_owned(),
        }),
    }
}

/// `under` with the keys of `over` on top of it; keys are replaced whole, not merged within.
pub fn merge(under: &Map<String, Value>, over: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = under.clone();
    for (key, value) in over {
        merged.insert(key.clone(), value.clone());
    }
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
    fn each_reserved_key_is_refused_at_the_top_and_free_below() {
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
