//! The outbox: record the messages of a call, and deliver them.
//!
//! ```text
//! send ─▶ [transaction: call succeeded, message] ─▶ claim ─▶ deliver ─▶ delivered
//!                                                     ▲          │
//!                                                     └─ later ──┤ failed
//!                                                                └─▶ dead: days have passed
//! ```
//!
//! A host delivers messages of packages in its folder, with the grants that their sidecars have now. It claims a message for
//! longer than a delivery takes, and sends nothing when that time is over, or when its own lease is over. If the host dies,
//! another one delivers the message when the claim has ended, or when the host is marked as dead and its lease has ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{self, JoinSet};

use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::secrets::Vault;
use crate::service::{Next, RETRY_PAUSE, Service};
use campanile_model::clock::{Monotonic, Timestamp};
use campanile_model::ids::{LaunchId, MessageId};
use campanile_model::status::MessageStatus;
use campanile_model::text::printable;
use campanile_sandbox::{
    Delivered, DeliveryCall, Grants, OutboxMessage, deliver, delivery_secrets,
};
use campanile_store::Tx;
use campanile_store::events::{self, EventKind, NewEvent};
use campanile_store::outbox::{
    self, ClaimedMessage, DeadMessage, DeliveryEnd, DueMessage, NewMessage,
};

/// Deliveries of a host at once, and of one package.
const DELIVERIES_MAX: usize = 32;
const PACKAGE_DELIVERIES_MAX: usize = 8;
/// The longest that one delivery takes, from the claim to the answer.
const DELIVERY_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a claim lasts.
const CLAIM: Duration = DELIVERY_WAIT_MAX.saturating_mul(2);
/// How often a host looks for messages that others recorded.
const INTERVAL: Duration = Duration::from_secs(2);
/// The pause after the first failed delivery. Each later one is three times as long, up to the greatest.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_FACTOR: u32 = 3;
const PAUSE_MAX: Duration = Duration::from_secs(12 * 3_600);
/// The messages that are given up in one transaction.
const GIVEN_UP_MAX: i64 = 256;
/// The receiver wants no more such messages.
const GONE: u16 = 410;

/// Record the messages of a call, which are delivered until `give_up_at`.
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

/// A message that this host has claimed.
struct Claimed {
    message: ClaimedMessage,
    /// The grants of its package.
    grants: Arc<Grants>,
    /// Until when this host may deliver it.
    until: Monotonic,
}

/// The service that delivers messages.
pub(crate) struct OutboxDelivery {
    vault: Arc<Vault>,
    deliveries: JoinSet<()>,
    /// The packages of the deliveries under way.
    under_way: HashMap<task::Id, String>,
}

impl Service for OutboxDelivery {
    const STEP: &'static str = "delivering messages of the outbox";

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        // With a wrong clock, messages would be given up that are new.
        if !ctx.clock.is_known() {
            return Ok(Next::After(INTERVAL));
        }
        tidy(ctx, now).await?;
        if !ctx.deliveries.may_begin() {
            return Ok(Next::After(INTERVAL));
        }
        for claimed in self.claim(ctx, now).await? {
            let (ctx, vault) = (Arc::clone(ctx), Arc::clone(&self.vault));
            let package = claimed.message.package.clone();
            let delivery = self.deliveries.spawn(async move {
                deliver_and_record(&ctx, &vault, claimed).await;
            });
            self.under_way.insert(delivery.id(), package);
        }
        Ok(Next::After(INTERVAL))
    }

    /// Wait for the end of a delivery, which makes room for another, or for a new message.
    async fn woken(&mut self, ctx: &Ctx) {
        tokio::select! {
            ended = self.deliveries.join_next_with_id(), if !self.deliveries.is_empty() => {
                let id = match ended {
                    Some(Ok((id, ()))) => id,
                    // After a panic the message is delivered when its claim has ended.
                    Some(Err(panic)) => panic.id(),
                    None => return,
                };
                self.under_way.remove(&id);
            }
            () = ctx.wake.outbox.notified() => {}
        }
    }
}

/// Deliver the messages that are due once, and wait for these deliveries. Return how many there were.
pub(crate) async fn deliver_due(ctx: &SharedCtx, now: Timestamp) -> Result<usize> {
    let mut service = OutboxDelivery::new(ctx);
    service.tick(ctx, now).await?;
    let deliveries = service.deliveries.len();
    while service.deliveries.join_next().await.is_some() {}
    Ok(deliveries)
}

impl OutboxDelivery {
    pub(crate) fn new(ctx: &Ctx) -> OutboxDelivery {
        OutboxDelivery {
            vault: Arc::new(Vault::new(ctx.settings.secrets.clone())),
            deliveries: JoinSet::new(),
            under_way: HashMap::new(),
        }
    }

    /// Claim messages of the packages in this host's folder, as many as there is room for deliveries.
    async fn claim(&self, ctx: &Ctx, now: Timestamp) -> Result<Vec<Claimed>> {
        let due = self.due(ctx, now).await?;
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let until = ctx.clock.monotonic().plus(DELIVERY_WAIT_MAX);
        let mut tx = ctx.db.write().await?;
        let mut claimed = Vec::with_capacity(due.len());
        for (due, grants) in due {
            if let Some(message) = outbox::claim(&mut tx, due, ctx.host, now.plus(CLAIM)).await? {
                claimed.push(Claimed {
                    message,
                    grants,
                    until,
                });
            }
        }
        crash::point("before_message_claim_commit");
        tx.commit().await?;
        crash::point("after_message_claim_commit");
        Ok(claimed)
    }

    /// Return messages that are due, sorted by id, so that two transactions cannot deadlock.
    async fn due(&self, ctx: &Ctx, now: Timestamp) -> Result<Vec<(DueMessage, Arc<Grants>)>> {
        let mut room = DELIVERIES_MAX.saturating_sub(self.under_way.len());
        let mut found = Vec::new();
        let mut tx = ctx.db.read().await?;
        for name in outbox::due_packages(&mut tx, now).await? {
            let Some(package) = ctx.packages.get(&name) else {
                continue;
            };
            let busy = self
                .under_way
                .values()
                .filter(|other| **other == name)
                .count();
            let room_of_package = PACKAGE_DELIVERIES_MAX.saturating_sub(busy).min(room);
            if room_of_package == 0 {
                continue;
            }
            let grants = Arc::clone(&package.sidecar.grants);
            let due = outbox::due(&mut tx, &name, now, room_of_package as i64).await?;
            room -= due.len();
            found.extend(due.into_iter().map(|due| (due, Arc::clone(&grants))));
        }
        found.sort_unstable_by_key(|(due, _)| due.id);
        Ok(found)
    }
}

/// Deliver a claimed message once, and record how that ended.
async fn deliver_and_record(ctx: &Ctx, vault: &Vault, claimed: Claimed) {
    let id = claimed.message.id;
    let Some(delivered) = deliver_once(ctx, vault, &claimed).await else {
        tracing::warn!(message = %id, "this delivery was dropped: the host was too slow, or could not renew its lease; the message is delivered when its claim has ended");
        return;
    };
    let claimed = claimed.message;
    crash::point("after_message_delivery");
    let now = ctx.clock.now();
    let limits = (claimed.attempts, claimed.give_up_at);
    let ended = Ended::of(
        limits,
        PAUSE_MAX,
        delivered,
        now,
        rand::random_range(-1.0..=1.0),
    );
    let record = || record_end(ctx, &claimed, &ended, now);
    record_during_claim(ctx, id, now.plus(CLAIM), record).await;
}

/// Call `record` until it has recorded the end of the delivery of a message, or the claim has ended. It returns false when
/// the message is not this host's any more.
pub(crate) async fn record_during_claim<F>(
    ctx: &Ctx,
    id: MessageId,
    claim_until: Timestamp,
    record: impl Fn() -> F,
) where
    F: Future<Output = Result<bool>>,
{
    // After the claim another host delivers it again, and records that.
    while ctx.clock.now() < claim_until {
        match record().await {
            Ok(true) => return,
            Ok(false) => {
                tracing::warn!(message = %id, "the end of a delivery is ignored: the message was claimed again or discarded meanwhile");
                return;
            }
            Err(error) => {
                ctx.trouble.report("recording a delivery", &error);
                if !error.may_pass() {
                    return;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// Deliver a claimed message once; none when its time was over before, or the lease of this host ended meanwhile.
async fn deliver_once(ctx: &Ctx, vault: &Vault, claimed: &Claimed) -> Option<Delivered> {
    let Claimed {
        message: claimed,
        grants,
        until,
    } = claimed;
    let message = OutboxMessage {
        id: claimed.id,
        method: claimed.method.clone(),
        url: claimed.url.clone(),
        headers: serde_json::from_str(&claimed.headers).unwrap_or_default(),
        body: claimed.body.clone(),
    };
    let tracked = ctx.deliveries.track(claimed.id, claimed.attempts);
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

/// How a delivery ended, and what follows.
#[derive(Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) status: MessageStatus,
    pub(crate) next_attempt_at: Option<Timestamp>,
    pub(crate) answer: Option<i64>,
    pub(crate) error: Option<String>,
}

impl Ended {
    /// Decide after the delivery with the number `attempts`; none begins after `give_up_at`. A pause is at most `pause_max`,
    /// and `jitter` from -1.0 to 1.0 changes it by up to a quarter.
    pub(crate) fn of(
        (attempts, give_up_at): (i64, Timestamp),
        pause_max: Duration,
        delivered: Delivered,
        now: Timestamp,
        jitter: f64,
    ) -> Ended {
        let (answer, error, asked) = match delivered {
            Delivered::Answered {
                status,
                text,
                retry_after,
            } => {
                let error = format!("the receiver answered {status}: {}", text.trim());
                let error = (!(200..300).contains(&status)).then_some(error);
                (Some(status), error, retry_after)
            }
            Delivered::Failed(why) => (None, Some(why), None),
        };
        let pause = pause(attempts, jitter)
            .min(pause_max)
            .max(asked.unwrap_or_default().min(PAUSE_MAX));
        let next = now.plus(pause);
        let status = match &error {
            None => MessageStatus::Delivered,
            Some(_) if answer == Some(GONE) || next > give_up_at => MessageStatus::Dead,
            Some(_) => MessageStatus::Pending,
        };
        Ended {
            next_attempt_at: (status == MessageStatus::Pending).then_some(next),
            status,
            answer: answer.map(i64::from),
            error: error.map(|error| printable(error.trim_end_matches([':', ' '])).into_owned()),
        }
    }
}

/// Return the pause after the failed delivery of this number, from 1.
fn pause(attempts: i64, jitter: f64) -> Duration {
    let former = u32::try_from(attempts.max(1) - 1).unwrap_or(u32::MAX);
    let factor = PAUSE_FACTOR.checked_pow(former).unwrap_or(u32::MAX);
    let pause = PAUSE_FIRST.saturating_mul(factor).min(PAUSE_MAX);
    pause.mul_f64(1.0 + 0.25 * jitter)
}

/// Record the end of a delivery. Return false when the message was claimed again or discarded meanwhile.
async fn record_end(
    ctx: &Ctx,
    claimed: &ClaimedMessage,
    ended: &Ended,
    now: Timestamp,
) -> Result<bool> {
    let mut tx = ctx.db.write().await?;
    let end = DeliveryEnd {
        id: claimed.id,
        attempts: claimed.attempts,
        status: ended.status,
        next_attempt_at: ended.next_attempt_at,
        finished_at: (ended.status != MessageStatus::Pending).then_some(now),
        answer: ended.answer,
        error: ended.error.as_deref(),
    };
    let is_recorded = outbox::end(&mut tx, &end).await?;
    if is_recorded && ended.status == MessageStatus::Dead {
        let dead = DeadMessage {
            id: claimed.id,
            package: claimed.package.clone(),
            method: claimed.method.clone(),
            url: claimed.url.clone(),
            attempts: claimed.attempts,
            error: ended.error.clone(),
        };
        report_dead(&mut tx, &[dead], now).await?;
    }
    crash::point("before_message_end_commit");
    tx.commit().await?;
    crash::point("after_message_end_commit");
    Ok(is_recorded)
}

/// End the claims of hosts that have ended, and give up messages whose time is over, also those of packages that no host
/// has.
async fn tidy(ctx: &Ctx, now: Timestamp) -> Result {
    let mut tx = ctx.db.read().await?;
    let has_orphans = outbox::has_orphans(&mut tx, now).await?;
    if !has_orphans && !outbox::has_late(&mut tx, now).await? {
        return Ok(());
    }
    drop(tx);
    let mut tx = ctx.db.write().await?;
    outbox::release_orphans(&mut tx, now).await?;
    let dead = outbox::give_up(&mut tx, now, GIVEN_UP_MAX).await?;
    report_dead(&mut tx, &dead, now).await?;
    tx.commit().await?;
    Ok(())
}

async fn report_dead(tx: &mut Tx, dead: &[DeadMessage], now: Timestamp) -> Result {
    let events = dead.iter().map(|dead| {
        let last = dead.error.as_deref().unwrap_or("no host could deliver it");
        let detail = format!(
            "the message {} ({} {}) was given up after {} deliveries: {last}; `campanile outbox retry {}` delivers it again",
            dead.id, dead.method, dead.url, dead.attempts, dead.id
        );
        tracing::warn!(package = %dead.package, "{}", printable(&detail));
        NewEvent {
            kind: EventKind::MessageDead,
            subject: dead.package.clone(),
            detail,
        }
    });
    let events: Vec<NewEvent> = events.collect();
    events::record_all(tx, now, &events).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000)
    }

    /// The number of a delivery, and an hour in which another may begin.
    fn claimed(attempts: i64) -> (i64, Timestamp) {
        (attempts, now().plus(Duration::from_secs(3_600)))
    }

    fn answered(status: u16, retry_after: Option<u64>) -> Delivered {
        Delivered::Answered {
            status,
            text: "a\u{1b}[31m\n".to_owned(),
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    fn seconds(ended: &Ended) -> Option<u64> {
        let at = ended.next_attempt_at?;
        Some(at.since(now()).as_secs())
    }

    #[test]
    fn a_message_is_delivered_by_a_status_of_200_to_299_and_else_delivered_again_until_it_is_given_up()
     {
        for (attempts, delivered, status, pause) in [
            (1, answered(200, None), MessageStatus::Delivered, None),
            (9, answered(299, Some(60)), MessageStatus::Delivered, None),
            (1, answered(301, None), MessageStatus::Pending, Some(5)),
            (2, answered(400, None), MessageStatus::Pending, Some(15)),
            (3, answered(503, None), MessageStatus::Pending, Some(45)),
            (
                3,
                answered(503, Some(100)),
                MessageStatus::Pending,
                Some(100),
            ),
            (3, answered(503, Some(3)), MessageStatus::Pending, Some(45)),
            (6, answered(503, None), MessageStatus::Pending, Some(1_215)),
            // The next delivery would be after the hour.
            (7, answered(503, None), MessageStatus::Dead, None),
            (1, answered(503, Some(3_601)), MessageStatus::Dead, None),
            (1, answered(410, None), MessageStatus::Dead, None),
            (
                i64::MAX,
                Delivered::Failed("x".to_owned()),
                MessageStatus::Dead,
                None,
            ),
        ] {
            let ended = Ended::of(claimed(attempts), PAUSE_MAX, delivered, now(), 0.0);
            assert_eq!(
                (ended.status, seconds(&ended)),
                (status, pause),
                "{attempts} {ended:?}"
            );
            assert_eq!(ended.error.is_none(), status == MessageStatus::Delivered);
        }
    }

    #[test]
    fn the_answer_of_a_receiver_is_recorded_as_printable_text() {
        let ended = Ended::of(claimed(1), PAUSE_MAX, answered(500, None), now(), 0.0);
        assert_eq!(ended.answer, Some(500));
        assert_eq!(
            ended.error.as_deref(),
            Some("the receiver answered 500: a\\u{1b}[31m")
        );
        let silent = Delivered::Answered {
            status: 500,
            text: String::new(),
            retry_after: None,
        };
        let ended = Ended::of(claimed(1), PAUSE_MAX, silent, now(), 1.0);
        assert_eq!(ended.error.as_deref(), Some("the receiver answered 500"));
        assert_eq!(
            ended.next_attempt_at,
            Some(now().plus(Duration::from_millis(6_250)))
        );
    }
}
