//! Whether this host lives, is ready and is healthy.

use campanile_control::reports::health;
use std::time::Duration;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use crate::call::{Call, Reply, Result};
use crate::problem::ApiProblem;
use campanile_control::bounds::Number;
use campanile_control::reports::health::{Health, Symptoms};
use campanile_control::reports::symptom::Symptom;
use campanile_engine::tell::metrics;

/// How long the database may take to answer a probe.
const PROBE_WAIT: Duration = Duration::from_secs(2);
/// How long the result of a probe is that of others too.
const PROBE_KEPT: Duration = Duration::from_millis(500);

/// The answer to a probe.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct Probe {
    /// `ok`.
    status: &'static str,
}

const OK: Probe = Probe { status: "ok" };

/// Say that the process answers.
pub(crate) async fn live(_: Call) -> Result {
    Reply::json(&OK)
}

/// Say that the host has loaded its packages, decides, and reaches its database.
pub(crate) async fn ready(call: Call) -> Result {
    let app = &call.state.app;
    if *app.stopping.borrow() {
        return Err(ApiProblem::unavailable("the host is stopping"));
    }
    if !*app.engine.serving().borrow() {
        return Err(ApiProblem::unavailable(
            "the host has not loaded its packages yet",
        ));
    }
    match reaches_database(&call).await {
        Ok(()) => Reply::json(&OK),
        Err(why) => Err(ApiProblem::unavailable(why)),
    }
}

/// Whether the database answers, and if not, why. Probes need no token, so one at a time asks, and its result is that of
/// all for a moment.
async fn reaches_database(call: &Call) -> Result<(), String> {
    let mut last = call.state.ready.lock().await;
    if let Some((at, result)) = &*last
        && at.elapsed() < PROBE_KEPT
    {
        return result.clone();
    }
    let result = match timeout(PROBE_WAIT, call.db.read()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!(
            "the database has not answered for {} s",
            PROBE_WAIT.as_secs()
        )),
    };
    *last = Some((Instant::now(), result.clone()));
    result
}

/// Returns the health of the installation.
pub(crate) async fn health(call: Call) -> Result {
    Reply::json(&judged(&call).await?)
}

/// Judges the health of the installation.
pub(crate) async fn judged(call: &Call) -> Result<Health> {
    Ok(symptoms(call).await?.into())
}

/// Returns what's wrong with the installation, also what this host alone knows.
pub(crate) async fn symptoms(call: &Call) -> Result<Symptoms> {
    let app = &call.state.app;
    let disk = call.db.disk_signs().await;
    let mut tx = call.read().await?;
    let mut symptoms = health::find(
        &mut tx,
        call.now(),
        &app.settings,
        app.engine.clock().skew_us(),
        disk,
    )
    .await?;
    drop(tx);
    app.engine.add_trouble(&mut symptoms);
    let notes = std::sync::Arc::clone(&app.machine_notes);
    // A panic of the task leaves the notes out.
    let notes = tokio::task::spawn_blocking(move || notes())
        .await
        .unwrap_or_default();
    symptoms.notes.extend(notes.into_iter().map(Symptom::Other));
    Ok(symptoms)
}

/// Metrics to show.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct GetMetrics {
    /// How many schedules get their own metrics, the first ones by name; none unless given
    schedules: Option<Number<0, 10_000>>,
}

/// Returns the metrics of this host and those on record.
pub(crate) async fn metrics(call: Call) -> Result {
    let GetMetrics { schedules } = call.query.question()?;
    let schedules = schedules.map_or(0, |schedules| schedules.0);
    let schedules = schedules.try_into().unwrap_or_default();
    let text = call.state.app.engine.metrics(schedules).await;
    Ok(Reply::plain(metrics::CONTENT_TYPE, text))
}

/// Returns the OpenAPI document.
pub(crate) async fn openapi(call: Call) -> Result {
    Ok(Reply::text(StatusCode::OK, call.state.document.clone()))
}
