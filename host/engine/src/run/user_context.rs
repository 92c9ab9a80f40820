//! The user's part of the context of a run: the keys of the sidecar, of the schedule and of the trigger.

use std::sync::Arc;

use campanile_model::ids::InputHash;
use campanile_package::Package;
use campanile_sandbox::JsonObject;
use campanile_workflow::context;

/// The user's part of a context, and its hash.
pub(crate) struct UserContext {
    pub(crate) keys: Arc<JsonObject>,
    pub(crate) hash: InputHash,
}

impl UserContext {
    /// Returns the user's keys: those of `schedule` override the sidecar's, and those of `trigger`, a JSON object, override
    /// both.
    pub(crate) fn of(
        package: Option<&Package>,
        schedule: &JsonObject,
        trigger: Option<&str>,
    ) -> UserContext {
        let mut keys =
            package.map_or_else(JsonObject::new, |package| package.sidecar.context.clone());
        keys.extend(schedule.clone());
        let trigger = trigger.and_then(|text| serde_json::from_str::<JsonObject>(text).ok());
        keys.extend(trigger.unwrap_or_default());
        UserContext {
            hash: context::hash(&keys),
            keys: Arc::new(keys),
        }
    }
}
