//! The outbox: record the messages of a call, and deliver them.
//!
//! ```text
//! send ─▶ [transaction: call succeeded, message] ─▶ claim ─▶ deliver ─▶ delivered
//!                                                     ▲          │
//!                                                     └─ later ──┤ failed
//!                                                                └─▶ dead: days have passed
//! ```
//!
//! A host delivers messages of packages in its folder, with the grants that their sidecars have now (`delivery.rs`). If the
//! host dies, another one delivers the message when the claim has ended, or when the host is marked as dead and its lease has
//! ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Span;

use crate::crash;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::run::secrets::Vault;
use crate::tell::delivery::{Claimed, Delivery, Ended, PAUSE_MAX, Sender, UnderWay};
use crate::tell::log_spans;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_model::trace_context::TraceContext;
use campanile_sandbox::{
    Delivered, DeliveryCall, Grants, OutboxMessage, deliver, delivery_secrets,
};
use campanile_store::Tx;
use campanile_store::events::{EventKind, NewEvent};
use campanile_store::messages::{DeadMessage, DueMessage};
use campanile_store::outbox::{self, ClaimedMessage, NewMessage, OutboxTable};

/// Deliveries of a host at once, and of one package.
const DELIVERIES_MAX: usize = 32;
const PACKAGE_DELIVERIES_MAX: usize = 8;

/// Records the messages of a call, which are delivered until `give_up_at`.
pub(crate) async fn record(
    tx: &mut Tx,
    (package, task): (&str, &str),
    launch_id: LaunchId,
    messages: &[OutboxMessage],
    (now, give_up_at): (Timestamp, Timestamp),
) -> Result {
    let rows = messages
        .iter()
        .zip(0..)
        .map(|(message, number)| NewMessage {
            id: message.id,
            launch_id,
            package,
            task,
            number,
            method: &message.method,
            url: &message.url,
            headers: serde_json::to_string(&message.headers).unwrap_or_default(),
            body: &message.body,
            created_at: now,
            give_up_at,
        });
    let mut rows: Vec<NewMessage<'_>> = rows.collect();
    // Sorted by id, so that two transactions cannot deadlock.
    rows.sort_unstable_by_key(|row| row.id);
    outbox::insert(tx, &rows).await?;
    Ok(())
}

/// The service that delivers messages.
pub(crate) type OutboxDelivery = Delivery<Outbox>;

/// Sends the messages of the outbox.
pub(crate) struct Outbox;

impl Sender for Outbox {
    type Table = OutboxTable;
    const STEP: &'static str = "delivering messages of the outbox";
    const DELIVERY_WAIT_MAX: Duration = Duration::from_secs(30);
    const INTERVAL: Duration = Duration::from_secs(2);
    const POINTS: [&'static str; 5] = crash::MESSAGE_POINTS;
    /// The grants of its package.
    type With = Arc<Grants>;

    fn wake(ctx: &Ctx) -> &Notify {
        &ctx.wake.outbox
    }

    /// Returns messages of the packages in this host's folder.
    async fn due(
        ctx: &Ctx,
        under_way: &UnderWay,
        now: Timestamp,
    ) -> Result<Vec<(DueMessage, Arc<Grants>)>> {
        let mut room = DELIVERIES_MAX.saturating_sub(under_way.len());
        let mut found = Vec::new();
        let mut tx = ctx.db.read().await?;
        for name in outbox::due_packages(&mut tx, now).await? {
            let Some(package) = ctx.packages.get(&name) else {
                continue;
            };
            let busy = under_way.values().filter(|other| **other == name).count();
            let room_of_package = PACKAGE_DELIVERIES_MAX.saturating_sub(busy).min(room);
            if room_of_package == 0 {
                continue;
            }
            let grants = &package.sidecar.grants;
            let due = outbox::due(&mut tx, &name, now, room_of_package as i64).await?;
            room -= due.len();
            found.extend(due.into_iter().map(|due| (due, Arc::clone(grants))));
        }
        Ok(found)
    }

    fn sender(message: &ClaimedMessage) -> &str {
        &message.package
    }

    fn span(claimed: &Claimed<Outbox>) -> Span {
        let message = &claimed.message;
        log_spans::outbox_delivery(claimed.id, &message.package, message.launch_id)
    }

    async fn deliver(ctx: &Ctx, vault: &Vault, claimed: &Claimed<Outbox>) -> Result<Option<Ended>> {
        let delivered = deliver_once(ctx, vault, claimed).await;
        let limits = (claimed.attempts, claimed.message.give_up_at);
        let (now, jitter) = (ctx.clock.now(), rand::random_range(-1.0..=1.0));
        Ok(delivered.map(|delivered| Ended::of(limits, PAUSE_MAX, delivered, now, jitter)))
    }

    fn dead(message: &ClaimedMessage, error: Option<String>) -> DeadMessage {
        DeadMessage {
            id: message.id,
            sender: message.package.clone(),
            what: format!("{} {}", message.method, message.url),
            attempts: message.attempts,
            error,
        }
    }

    fn dead_event(dead: &DeadMessage) -> NewEvent {
        let last = dead.error.as_deref().unwrap_or("no host could deliver it");
        let detail = format!(
            "the message {} ({}) was given up after {} deliveries: {last}; `campanile outbox retry {}` delivers it again",
            dead.id, dead.what, dead.attempts, dead.id
        );
        tracing::warn!(
            package = %dead.sender,
            id = %dead.id,
            attempts = dead.attempts,
            error = last,
            "gave up a message; `campanile outbox retry {}` delivers it again",
            dead.id
        );
        NewEvent::new(EventKind::MessageDead, &dead.sender, detail)
    }
}

/// Delivers a claimed message once; none when its time was over before, or the lease of this host ended meanwhile.
async fn deliver_once(ctx: &Ctx, vault: &Vault, claimed: &Claimed<Outbox>) -> Option<Delivered> {
    let Claimed {
        message: claimed,
        with: grants,
        until,
        lease,
        ..
    } = claimed;
    let message = OutboxMessage {
        id: claimed.id,
        method: claimed.method.clone(),
        url: claimed.url.clone(),
        headers: serde_json::from_str(&claimed.headers).unwrap_or_default(),
        body: claimed.body.clone(),
    };
    let tracked = ctx.deliveries.track(claimed.id, claimed.attempts, *lease);
    let names = delivery_secrets(&message, grants);
    let secrets = match vault.values(names.iter().map(String::as_str)).await {
        Ok(secrets) => secrets,
        Err(error) => return Some(Delivered::Failed(error.to_string())),
    };
    // A host that was suspended meanwhile sends nothing. Another one may deliver the message now.
    let wait_max = until.since(ctx.clock.monotonic());
    if wait_max.is_zero() || tracked.stop.is_dropped() {
        return None;
    }
    let call = DeliveryCall {
        package: claimed.package.clone(),
        grants: Arc::clone(grants),
        secrets,
        also_signing: Vec::new(),
        now: ctx.clock.now(),
        wait_max,
        stop: tracked.stop.clone(),
        traceparent: traceparent(ctx, claimed),
    };
    tokio::select! {
        biased;
        () = tracked.stop.dropped() => None,
        delivered = deliver(&message, call) => match delivered {
            // The connection refused to send more.
            Delivered::Failed(_) if tracked.stop.is_dropped() => None,
            delivered => Some(delivered),
        },
    }
}

/// Returns the span of the launch of a message, where tasks of the launch get one too.
fn traceparent(ctx: &Ctx, claimed: &ClaimedMessage) -> Option<TraceContext> {
    let caller = claimed.caller_traceparent;
    let is_traced = caller.is_some() || ctx.settings.traces.is_some();
    is_traced.then(|| TraceContext::of_launch(claimed.launch_id, caller))
}
