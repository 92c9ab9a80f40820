//! The policies that the configuration of the hosts gives to schedules which do not set them.
//!
//! A host that starts records those of its configuration. Each revision of a schedule holds the policies that were recorded
//! when it was made, so that a decision depends neither on the host that makes it, nor on a later change:
//!
//! ```text
//! configuration ── start of a host ──▶ schedule_default ── add, edit, files ──▶ schedule_revision.defaults
//!                         └── another revision of every schedule that does not set them ──┘
//! ```

use serde_json::json;

use crate::ctx::Ctx;
use crate::error::{EngineError, Result};
use campanile_control::schedules::definition;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_schedule::policy::{Defaults, Policies, Policy};
use campanile_store::events::EventKind;
use campanile_store::schedules::{self, Revision, Schedule};
use campanile_store::{Tx, changes, schedule_defaults};

/// How many schedules are read at a time.
const PAGE: i64 = 500;

/// Record the policies of this host's configuration. If they differ from those on record, give another revision to each
/// schedule that they change.
pub(crate) async fn follow(ctx: &Ctx, now: Timestamp) -> Result {
    let defaults = &ctx.settings.schedule_defaults;
    let revised = campanile_store::retry(EngineError::is_transient, || async {
        let mut tx = ctx.db.write().await?;
        if !schedule_defaults::set(&mut tx, &json!(defaults).to_string()).await? {
            return Ok(None);
        }
        let revised = revise_all(&mut tx, defaults, now).await?;
        let detail = format!(
            "{}; schedules with another revision: {revised}",
            text(defaults)
        );
        let kind = EventKind::DefaultsChanged;
        changes::record(&mut tx, now, kind, &ctx.name, &detail).await?;
        tx.commit().await?;
        Ok::<_, EngineError>(Some(revised))
    });
    if let Some(revised) = revised.await? {
        tracing::warn!(
            schedules = revised,
            "the defaults of schedules are those of this host's configuration now: {}; give every host the same `[defaults]`",
            text(defaults)
        );
    }
    Ok(())
}

/// Give a new revision to every schedule whose policies `defaults` change. Return their number.
async fn revise_all(tx: &mut Tx, defaults: &Policies, now: Timestamp) -> Result<usize> {
    let mut revised = 0;
    let mut after = ScheduleId::FIRST;
    loop {
        let page = schedules::lock_after(tx, after, PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(revised);
        };
        after = last.state.id;
        let changed = page
            .iter()
            .filter_map(|schedule| changed(schedule, defaults, now));
        let changed: Vec<Revision> = changed.collect();
        schedules::redefine(tx, &changed).await?;
        revised += changed.len();
    }
}

/// Returns the next revision of a schedule; none when `defaults` change nothing, or this version cannot read its policies.
fn changed(schedule: &Schedule, defaults: &Policies, now: Timestamp) -> Option<Revision> {
    let definition = &schedule.definition;
    let own = definition::own_policies(definition).ok()?;
    let defaults = json!(own.unset_of(defaults)).to_string();
    (defaults != definition.defaults).then(|| Revision {
        revision: definition.revision + 1,
        defaults,
        since: now,
        ..definition.clone()
    })
}

/// Returns what applies to a schedule that sets nothing, such as `catchup is latest, delivery is at_least_once`.
fn text(defaults: &Policies) -> String {
    let of_host = Defaults::default();
    let words = defaults.effective(&of_host);
    let words = words.filter(|(policy, _)| matches!(policy, Policy::Catchup | Policy::Delivery));
    let words = words.filter_map(|(policy, text)| Some(format!("{policy} is {}", text?)));
    words.collect::<Vec<String>>().join(", ")
}
