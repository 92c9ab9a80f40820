//! The context of a run: the keys that only the host sets, and how contexts are merged.

use campanile_model::json_depth::{self, TooDeep};
use campanile_model::json_text::{JsonObject, JsonText, text_of};
use campanile_model::text::{size_rounded, size_text};

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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContextFault {
    /// It sets one of the [`RESERVED`] keys.
    #[error("the context may not set `{0}`: the host sets it for every run; choose another name")]
    Reserved(&'static str),
    #[error("the context {0}; make it flatter, or pass its deep part as a text")]
    TooDeep(#[from] TooDeep),
    #[error("the context has {}, and may have {}; pass large data in a file or a bucket", size_rounded(*.0), size_text(BYTES_MAX))]
    TooLarge(u64),
    #[error(
        "the context holds a NUL character, written `\\u0000`, which no argument can hold; encode it, such as in Base64"
    )]
    Nul,
}

/// The largest context that a person or a file may give, as JSON without spaces.
pub const BYTES_MAX: u64 = 16 << 20;

/// Check the context of a schedule, a sidecar or a trigger.
///
/// Only the top level is reserved; below it every name is allowed.
pub fn check(context: &JsonObject) -> Result<(), ContextFault> {
    check_keys(|key| context.contains_key(key))?;
    let text = text_of(context);
    if text.len() as u64 > BYTES_MAX {
        return Err(ContextFault::TooLarge(text.len() as u64));
    }
    if has_nul(&text) {
        return Err(ContextFault::Nul);
    }
    Ok(json_depth::check(text.as_bytes())?)
}

/// Whether JSON text has an escaped NUL character. A backslash that is itself escaped begins none.
fn has_nul(json: &str) -> bool {
    json.match_indices("\\u0000").any(|(at, _)| {
        let before = json.as_bytes()[..at].iter().rev();
        before.take_while(|byte| **byte == b'\\').count() % 2 == 0
    })
}

/// Check the keys of a context, whatever holds them; `is_set` says whether the context sets a key.
pub fn check_keys(is_set: impl Fn(&str) -> bool) -> Result<(), ContextFault> {
    match RESERVED.iter().find(|key| is_set(key)) {
        None => Ok(()),
        Some(key) => Err(ContextFault::Reserved(key)),
    }
}

/// Returns `base` with the keys of `over`. A key of both is replaced, not merged.
pub fn merge(base: &JsonObject, over: &JsonObject) -> JsonObject {
    let mut merged = base.clone();
    merged.extend(over.clone());
    merged
}

/// Applies a merge patch (RFC 7396): null removes a key.
pub fn apply_patch(target: &mut JsonObject, patch: JsonObject) {
    let object = |text: &JsonText| serde_json::from_str::<JsonObject>(text.as_str()).ok();
    for (key, value) in patch {
        if value == JsonText::null() {
            target.remove(&key);
            continue;
        }
        let inner = target.get(&key).and_then(object);
        let value = match (object(&value), inner) {
            (Some(patch), Some(mut inner)) => {
                apply_patch(&mut inner, patch);
                JsonText::of_checked(text_of(&inner))
            }
            _ => value,
        };
        target.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::json_depth::JSON_DEPTH_MAX;
    use campanile_model::json_text::object_of;
    use serde_json::{Value, json};

    fn map(value: Value) -> JsonObject {
        object_of(value.as_object().unwrap())
    }

    #[test]
    fn each_reserved_key_is_refused_at_the_top_and_allowed_below() {
        for key in RESERVED {
            let context = map(json!({ key: null }));
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
    fn a_context_that_is_too_large_or_has_a_nul_is_refused() {
        let long = "x".repeat(BYTES_MAX as usize);
        let fault = check(&map(json!({"a": long}))).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "the context has 16.0 MiB, and may have 16MiB; pass large data in a file or a bucket"
        );
        for nul in [
            json!({"a": "\0"}),
            json!({"a": [{"b\0": 1}]}),
            json!({"a": "\\\0"}),
        ] {
            assert_eq!(check(&map(nul)), Err(ContextFault::Nul));
        }
        assert_eq!(check(&map(json!({"a": "\\u0000"}))), Ok(()));
    }

    #[test]
    fn the_upper_context_wins_key_by_key() {
        let merged = merge(
            &map(json!({"a": 1, "b": {"x": 1}})),
            &map(json!({"b": {"y": 2}})),
        );
        assert_eq!(merged, map(json!({"a": 1, "b": {"y": 2}})));
    }

    #[test]
    fn a_merge_patch_sets_and_removes_keys_and_changes_no_number() {
        let of = |text: &str| serde_json::from_str::<JsonObject>(text).unwrap();
        let mut target = of(r#"{"a":1,"b":{"c":2.10,"d":3},"e":4,"g":12345678901234567890}"#);
        apply_patch(
            &mut target,
            of(r#"{"a":5.0,"b":{"d":null,"f":{"h":6}},"e":null}"#),
        );
        assert_eq!(
            text_of(&target),
            r#"{"a":5.0,"b":{"c":2.10,"f":{"h":6}},"g":12345678901234567890}"#
        );
    }
}
