//! The context JSON of a call: the user's keys, and the host's reserved keys.

use serde::Serialize;
use serde_json::Value;

use campanile_model::clock::Timestamp;
use campanile_model::ids::{InputHash, LaunchId, LaunchKind, RunId, ScheduleId};
use campanile_model::trace_context::TraceContext;
use campanile_package::context::RESERVED;
use campanile_sandbox::{JsonObject, JsonText, RunFacts, object_text};

/// The values of the reserved keys, by their names.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Facts {
    pub is_recovery: bool,
    /// The slot, or the time of a manual request.
    pub original_scheduled_time: Timestamp,
    /// When recovery made the launch claimable again.
    pub recovery_attempt_time: Option<Timestamp>,
    pub execution_id: LaunchId,
    pub run_id: RunId,
    /// 1 for the first call of the task for this launch. A call that a lost run may have made counts.
    pub attempt: i64,
    pub trigger: LaunchKind,
    /// `id`, `name`, `expression` and `timezone`, or null.
    pub schedule: Value,
    pub scheduled_local: String,
    /// The previous slot: the launch covers the time after it, up to its own slot.
    pub interval_start: Timestamp,
    /// The span of the call; none for a task that gets no trace context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceContext>,
    /// The output of the last successful run, or null.
    #[serde(skip)]
    pub last_result: JsonText,
    /// The failure since then, or null.
    #[serde(skip)]
    pub last_failure: JsonText,
}

impl Facts {
    /// Returns the values for a manual launch at `now` without a schedule and without a database.
    pub fn by_hand(now: Timestamp) -> Facts {
        let launch = LaunchId::of(ScheduleId::random(), now, LaunchKind::Manual);
        let run = RunId::of(launch, 1);
        Facts {
            is_recovery: false,
            original_scheduled_time: now,
            recovery_attempt_time: None,
            execution_id: launch,
            run_id: run,
            attempt: 1,
            trigger: LaunchKind::Manual,
            schedule: Value::Null,
            scheduled_local: now.to_string(),
            interval_start: now,
            traceparent: None,
            last_result: JsonText::null(),
            last_failure: JsonText::null(),
        }
    }

    /// Returns the reserved keys with their values as JSON, without the braces of the object.
    fn reserved(&self) -> String {
        // No value here can fail to become JSON.
        let facts = serde_json::to_string(self).unwrap_or_default();
        let facts = facts
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'));
        let facts = facts.unwrap_or_default();
        let slot = self.original_scheduled_time;
        // The last two may be as large as the result of a run, and are never parsed.
        let (result, failure) = (self.last_result.as_str(), self.last_failure.as_str());
        format!(
            r#""scheduled_time":"{slot}","interval_end":"{slot}",{facts},"last_result":{result},"last_failure":{failure}"#
        )
    }

    /// Returns what `run-info` tells the task about a run that was to begin at `scheduled_time`.
    pub fn of_run(&self, scheduled_time: Timestamp) -> RunFacts {
        RunFacts {
            execution_id: self.execution_id,
            run_id: self.run_id,
            attempt: u32::try_from(self.attempt).unwrap_or(u32::MAX),
            is_recovery: self.is_recovery,
            scheduled_time,
            original_scheduled_time: self.original_scheduled_time,
            traceparent: self.traceparent,
        }
    }
}

/// Returns the hash of the user's keys. The order in which keys were written has no effect.
///
/// It is the hash of the JSON without spaces, with the keys of every object in byte order.
pub fn hash(user: &JsonObject) -> InputHash {
    let user = user.iter().map(|(key, value)| (key, value.sorted()));
    let user = Vec::from_iter(user);
    let user = user
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    InputHash::of(object_text(user).as_bytes())
}

/// Returns the context of one call as text: the keys of `user`, which may not be reserved, and the reserved keys.
pub fn of_call<'c>(
    user: impl IntoIterator<Item = (&'c str, &'c JsonText)>,
    facts: &Facts,
) -> String {
    let user = user.into_iter().filter(|(key, _)| !RESERVED.contains(key));
    let mut text = object_text(user.map(|(key, value)| (key, value.as_str())));
    text.pop();
    if text.len() > 1 {
        text.push(',');
    }
    text.push_str(&facts.reserved());
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use campanile_sandbox::object_of;

    #[test]
    fn the_order_of_keys_does_not_change_the_hash_and_a_value_does() {
        let of = |text: &str| hash(&serde_json::from_str(text).unwrap());
        let hashed = of(r#"{"b": {"d": 1, "c": [2, {"f": 3, "e": 4}]}, "a": "x"}"#);
        // The value is part of the contract with databases already written.
        assert_eq!(
            hashed,
            InputHash::of(br#"{"a":"x","b":{"c":[2,{"e":4,"f":3}],"d":1}}"#)
        );
        assert_eq!(
            hashed,
            of(r#"{"a": "x", "b": {"c": [2, {"e": 4, "f": 3}], "d": 1}}"#)
        );
        assert_ne!(
            hashed,
            of(r#"{"a": "x", "b": {"c": [2, {"e": 4, "f": 5}], "d": 1}}"#)
        );
    }

    #[test]
    fn every_reserved_key_is_set_and_the_users_are_kept() {
        let launch = LaunchId::of(ScheduleId::random(), Timestamp::EPOCH, LaunchKind::Manual);
        let facts = Facts {
            is_recovery: true,
            original_scheduled_time: Timestamp::EPOCH,
            recovery_attempt_time: Some(Timestamp::from_micros(1_500_000)),
            execution_id: launch,
            run_id: RunId::of(launch, 1),
            attempt: 2,
            trigger: LaunchKind::Catchup,
            schedule: Value::Null,
            scheduled_local: "local".to_owned(),
            interval_start: Timestamp::EPOCH,
            traceparent: Some(TraceContext::of_launch(launch, None)),
            last_result: json!({"n": 1}).into(),
            last_failure: JsonText::null(),
        };
        let mut user = serde_json::Map::new();
        user.insert("name".to_owned(), "world".into());
        user.insert("attempt".to_owned(), "mine".into());
        let user = object_of(&user);
        let user = user.iter().map(|(key, value)| (key.as_str(), value));
        let context: Value = serde_json::from_str(&of_call(user, &facts)).unwrap();
        assert_eq!(context["last_result"]["n"], 1);
        for key in RESERVED {
            assert!(context.get(key).is_some(), "{key}");
        }
        assert_eq!(context.as_object().unwrap().len(), RESERVED.len() + 1);
        assert_eq!(context["name"], "world");
        assert_eq!(context["attempt"], 2);
        assert_eq!(context["trigger"], "catchup");
        assert_eq!(
            context["recovery_attempt_time"],
            "1970-01-01T00:00:01.500000Z"
        );
        assert_eq!(context["scheduled_time"], "1970-01-01T00:00:00Z");
        assert_eq!(
            context["scheduled_time"],
            context["original_scheduled_time"]
        );
    }
}
