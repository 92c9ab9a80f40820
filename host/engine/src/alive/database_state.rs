//! Problems of the database itself: damage, or a server accepting no writes.

use std::time::Duration;

use crate::ctx::Ctx;
use crate::service::{record_event, within};
use campanile_control::reports::symptom::Symptom;
use campanile_model::clock::Timestamp;
use campanile_store::events::EventKind;

/// Reports a damaged database, once in the log and, if possible, as an event.
#[derive(Default)]
pub(crate) struct DamageReport {
    is_logged: bool,
    is_recorded: bool,
}

impl DamageReport {
    /// Reports any damage this host has run into, taking at most `patience` for recording it.
    pub(crate) async fn look(&mut self, ctx: &Ctx, patience: Duration, now: Timestamp) {
        let Some(why) = ctx.db.damage().filter(|_| !self.is_recorded) else {
            return;
        };
        let why = why.to_owned();
        let detail = Symptom::DamageSeen { why }.to_string();
        if !self.is_logged {
            tracing::error!("{detail}");
            self.is_logged = true;
        }
        let event = record_event(ctx, now, EventKind::DatabaseDamaged, &ctx.name, &detail);
        // Parts of the database may still be writable.
        self.is_recorded = within(patience, event).await.is_ok();
    }
}
