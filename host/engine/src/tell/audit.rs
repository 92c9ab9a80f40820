//! Auditing: watching health and reporting changes.

use crate::alive::chores;
use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::service::{Next, Service, record_event};
use crate::tell::use_growth::GrowthPass;
use campanile_control::reports::{health, statistics};
use campanile_model::clock::Timestamp;
use campanile_store::events::EventKind;

/// The service computing statistics and reporting changes in health, active only on the host doing the chores. Every host reports
/// repeated runs, being the only one to know about its own.
#[derive(Default)]
pub(crate) struct Auditor {
    /// Whether the last audit found issues.
    was_unhealthy: bool,
    growth: GrowthPass,
}

impl Service for Auditor {
    const STEP: &'static str = "auditing";

    fn first(ctx: &Ctx) -> Next {
        Next::After(ctx.settings.audit_interval)
    }

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        ctx.launch_log.report_left_out();
        report_repeated_runs(ctx, now).await?;
        if !chores::are_ours(ctx) {
            *self = Auditor::default();
            return Ok(Self::first(ctx));
        }
        let disk = ctx.db.disk_signs().await;
        let mut tx = ctx.db.read_long().await?;
        let statistics = statistics::read(&mut tx, now, ctx.settings.audit_interval).await?;
        let skew_us = ctx.clock.skew_us();
        let health = health::read(&mut tx, now, &ctx.settings, skew_us, disk).await?;
        drop(tx);
        tracing::info!(
            launches = statistics.counts.launches,
            succeeded = statistics.counts.succeeded,
            failed = statistics.counts.failed,
            skipped = statistics.counts.skipped,
            recovered = statistics.counts.recovered,
            abandoned = statistics.counts.abandoned,
            lag_p99_ms = statistics.lag_ms.p99,
            healthy = health.healthy,
            "audit"
        );
        if self.was_unhealthy == health.healthy {
            self.was_unhealthy = !health.healthy;
            let detail = if health.healthy {
                "healthy again".to_owned()
            } else {
                health.issues.join("; ")
            };
            tracing::warn!(healthy = health.healthy, "health changed: {detail}");
            chores::record_event(ctx, now, EventKind::HealthChanged, &ctx.name, &detail).await?;
        }
        self.growth.step(ctx, now).await?;
        Ok(Self::first(ctx))
    }
}

/// Reports runs restarted after the database lost track of them.
async fn report_repeated_runs(ctx: &Ctx, now: Timestamp) -> Result {
    let repeated = ctx.begun.take_repeated();
    if repeated == 0 {
        return Ok(());
    }
    let detail = format!(
        "the database lost the record of {repeated} runs that this host had begun; they ran again as recoveries, those of at_most_once did not"
    );
    tracing::warn!("{detail}");
    record_event(ctx, now, EventKind::RunsRepeated, &ctx.name, &detail)
        .await
        .inspect_err(|_| ctx.begun.put_back(repeated))
}
