//! The row of this host in the database.

use crate::ctx::Ctx;
use crate::error::{EngineError, Result};
use campanile_model::clock::Timestamp;
use campanile_schedule::rule::tzdata_version;
use campanile_store::Tx;
use campanile_store::events::{self, EventKind};
use campanile_store::hosts::{self, Host};

/// Inserts the row for this incarnation of the host and records its start as an event. Returns its number among the processes of
/// its name, for the caller to note after committing.
pub(crate) async fn record_host(ctx: &Ctx, tx: &mut Tx, now: Timestamp) -> Result<i64> {
    let host = Host {
        id: ctx.host,
        name: ctx.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        wasmtime_version: campanile_sandbox::WASMTIME_VERSION.to_owned(),
        tzdata_version: tzdata_version().to_owned(),
        started_at: now,
        heartbeat_at: now,
        lease_until: now.plus(ctx.settings.lease),
        runs_max: ctx.settings.runs_max as i64,
        labels: ctx.settings.labels.clone(),
        ended_at: None,
        end_reason: None,
        drained_at: None,
        drained_by: None,
        claims_ended_at: None,
    };
    hosts::register(tx, &host).await?;
    let detail = format!("incarnation {}", ctx.host);
    events::record(tx, now, EventKind::HostStarted, &ctx.name, &detail).await?;
    let number = hosts::number_of(tx, ctx.host).await?;
    number.ok_or_else(|| {
        EngineError::Bug("a host that was just recorded is not on record".to_owned())
    })
}
