//! Forget packages whose files have been away for `packages.forget_after`: the schedules that they defined end.

use std::time::Duration;

use crate::ctx::Ctx;
use crate::error::Result;
use campanile_control::admin::schedule_admin::{self, ScheduleError};
use campanile_model::clock::Timestamp;
use campanile_model::text::{counted, duration_text};
use campanile_store::events::{self, EventKind};
use campanile_store::{packages, schedules};

/// Packages forgotten in one step at most.
const FORGOTTEN_MAX: i64 = 100;

/// Ends the schedules of packages that have been missing for longer than the configuration says, a transaction for each
/// package.
///
/// The package and its versions stay on record until an operator removes them. A file that returns defines its schedules
/// anew.
pub(crate) async fn end_forgotten(ctx: &Ctx, now: Timestamp) -> Result {
    let Some(forget_after) = ctx.settings.forget_after else {
        return Ok(());
    };
    let before = now.minus(forget_after);
    let mut reader = ctx.db.read().await?;
    let names = packages::forgotten(&mut reader, before, FORGOTTEN_MAX).await?;
    drop(reader);
    for name in names {
        forget(ctx, &name, forget_after, now).await?;
    }
    Ok(())
}

async fn forget(ctx: &Ctx, name: &str, forget_after: Duration, now: Timestamp) -> Result {
    let mut tx = ctx.db.write().await?;
    let package = packages::lock(&mut tx, name).await?;
    // Its file may be back meanwhile.
    let missing_since = package.and_then(|package| package.missing_since);
    let Some(since) = missing_since.filter(|since| *since < now.minus(forget_after)) else {
        return Ok(());
    };
    schedules::lock_defined_by_package(&mut tx, name).await?;
    let defined = schedules::defined_by_package(&mut tx, name).await?;
    for schedule in &defined {
        match schedule_admin::end(&mut tx, schedule, now).await {
            Ok(()) => {}
            Err(ScheduleError::Db(error)) => return Err(error.into()),
            Err(error) => {
                let schedule = &schedule.definition.name;
                tracing::warn!(package = %name, %schedule, %error, "the package isn't forgotten yet");
                return Ok(());
            }
        }
    }
    let detail = format!(
        "no live host has had it since {since}, longer than `forget_after` = {}: {} that it defined ended",
        duration_text(forget_after),
        counted(defined.len(), "schedule"),
    );
    events::record(&mut tx, now, EventKind::PackageForgotten, name, &detail).await?;
    tx.commit().await?;
    tracing::warn!(package = %name, "{detail}");
    Ok(())
}
