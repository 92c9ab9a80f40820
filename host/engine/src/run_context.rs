//! The context of a claimed launch: the user's keys and the reserved keys, from what the database stores.

use serde_json::{Map, Value, json};

use super::spec::Spec;
use super::work::Work;
use campanile_package::Package;
use campanile_store::runs::ClaimedLaunch;
use campanile_workflow::context::Facts;

/// Return the reserved keys for one call of a task, the `attempt`-th for its launch.
pub(super) fn facts(work: &Work, attempt: i64) -> Facts {
    let launch = &work.launch;
    let definition = &work.spec.definition;
    let stored = |text: &Option<String>| -> Value {
        text.as_deref()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or(Value::Null)
    };
    Facts {
        is_recovery: work.is_recovery,
        original_scheduled_time: launch.scheduled_time,
        recovery_attempt_time: launch.recovered_at.filter(|_| work.is_recovery),
        execution_id: launch.launch_id,
        run_id: work.run_id,
        attempt,
        trigger: launch.kind,
        schedule: json!({
            "id": launch.schedule_id,
            "name": definition.name,
            "expression": definition.rule.expression,
            "timezone": definition.rule.timezone,
        }),
        scheduled_local: launch.scheduled_local.clone(),
        interval_start: launch.interval_start,
        last_result: stored(&launch.last_result),
        last_failure: stored(&launch.last_failure),
    }
}

/// Return the user's keys: the schedule's override the sidecar's, and the trigger's override both.
///
/// The sidecar's keys are those of now; the schedule's are those of the revision that decided the launch.
pub(super) fn user_keys(
    package: Option<&Package>,
    spec: &Spec,
    launch: &ClaimedLaunch,
) -> Map<String, Value> {
    let mut context = package.map_or_else(Map::new, |package| package.sidecar.context.clone());
    context.extend(spec.context.clone());
    if let Some(Ok(Value::Object(trigger))) = launch.context.as_deref().map(serde_json::from_str) {
        context.extend(trigger);
    }
    context
}
