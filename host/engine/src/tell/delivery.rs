//! Deliver the messages of a table: those of the outbox, and those about alerts.
//!
//! A host claims a message for longer than a delivery takes, and sends nothing when that time is over, or when its own lease
//! is over. If the host dies, another one delivers the message again when the claim has ended, with the same id.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{self, JoinSet};
use tracing::{Instrument as _, Span};

use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::run::secrets::Vault;
use crate::service::{Next, RETRY_PAUSE, Service};
use campanile_model::clock::{Monotonic, Timestamp};
use campanile_model::ids::MessageId;
use campanile_model::status::MessageStatus;
use campanile_model::text::printable;
use campanile_sandbox::Delivered;
use campanile_store::events::{self, NewEvent};
use campanile_store::messages::{DeadMessage, DeliveryEnd, DueMessage, MessageTable};

/// The pause after the first failed delivery. Each later one is three times as long, up to the greatest.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_FACTOR: u32 = 3;
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(12 * 3_600);
/// The messages that are given up in one transaction.
const GIVEN_UP_MAX: i64 = 256;
/// The receiver wants no more such messages.
const GONE: u16 = 410;

/// How a host delivers the messages of a table.
pub(crate) trait Sender: Sized + Send + Sync + 'static {
    /// Where the messages are.
    type Table: MessageTable;
    /// The name of the step in log lines about failures.
    const STEP: &'static str;
    /// The longest that one delivery takes, from the claim to the answer.
    const DELIVERY_WAIT_MAX: Duration;
    /// How long a claim lasts.
    const CLAIM: Duration = Self::DELIVERY_WAIT_MAX.saturating_mul(2);
    /// How often a host looks for messages, unless it is woken.
    const INTERVAL: Duration;
    /// The crash points of a delivery, in the order of [`crash::MESSAGE_POINTS`].
    const POINTS: [&'static str; 5];
    /// What the host delivers it with, such as a channel.
    type With: Send + Sync;

    /// What wakes a host that looks for messages.
    fn wake(ctx: &Ctx) -> &Notify;

    /// Returns due messages, as many as fit beside the deliveries under way.
    fn due(
        ctx: &Ctx,
        under_way: &UnderWay,
        now: Timestamp,
    ) -> impl Future<Output = Result<Vec<(DueMessage, Self::With)>>> + Send;

    /// Returns the package or the channel of a message.
    fn sender(message: &ClaimedOf<Self>) -> &str;

    /// Returns the span of the log lines about a delivery.
    fn span(claimed: &Claimed<Self>) -> Span;

    /// Delivers a claimed message once; none when its time was over before, or the lease of this host ended meanwhile.
    fn deliver(
        ctx: &Ctx,
        vault: &Vault,
        claimed: &Claimed<Self>,
    ) -> impl Future<Output = Result<Option<Ended>>> + Send;

    /// Returns a claimed message as one that was given up, whose last delivery failed with `error`.
    fn dead(message: &ClaimedOf<Self>, error: Option<String>) -> DeadMessage;

    /// Returns the event that a message was given up.
    fn dead_event(dead: &DeadMessage) -> NewEvent;
}

/// A message of a sender's table, claimed by this host.
pub(crate) type ClaimedOf<S> = <<S as Sender>::Table as MessageTable>::Claimed;

/// The package or the channel of each delivery under way.
pub(crate) type UnderWay = HashMap<task::Id, String>;

/// A message that this host has claimed.
pub(crate) struct Claimed<T: Sender> {
    pub(crate) id: MessageId,
    /// The number of this delivery, from 1.
    pub(crate) attempts: i64,
    pub(crate) message: ClaimedOf<T>,
    pub(crate) with: T::With,
    /// Until when this host may deliver it.
    pub(crate) until: Monotonic,
    /// The number of the lease of this host under which it was claimed.
    pub(crate) lease: u64,
}

/// The service that delivers the messages of a table.
pub(crate) struct Delivery<T: Sender> {
    vault: Arc<Vault>,
    deliveries: JoinSet<()>,
    under_way: UnderWay,
    table: PhantomData<T>,
}

impl<T: Sender> Service for Delivery<T> {
    const STEP: &'static str = T::STEP;

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        // With a wrong clock, messages would be given up that are new.
        if !ctx.clock.is_known() {
            return Ok(Next::After(T::INTERVAL));
        }
        give_up::<T>(ctx, now).await?;
        let Some(lease) = ctx.deliveries.lease() else {
            return Ok(Next::After(T::INTERVAL));
        };
        for claimed in self.claim(ctx, lease, now).await? {
            let (ctx, vault) = (Arc::clone(ctx), Arc::clone(&self.vault));
            let sender = T::sender(&claimed.message).to_owned();
            let span = T::span(&claimed);
            let delivery = async move { deliver_and_record(&ctx, &vault, claimed).await };
            let delivery = self.deliveries.spawn(delivery.instrument(span));
            self.under_way.insert(delivery.id(), sender);
        }
        Ok(Next::After(T::INTERVAL))
    }

    /// Waits for the end of a delivery, which makes room for another, or for a new message.
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
            () = T::wake(ctx).notified() => {}
        }
    }
}

impl<T: Sender> Delivery<T> {
    pub(crate) fn new(ctx: &Ctx) -> Delivery<T> {
        Delivery {
            vault: Arc::new(Vault::new(ctx.settings.secrets.clone())),
            deliveries: JoinSet::new(),
            under_way: HashMap::new(),
            table: PhantomData,
        }
    }

    /// Delivers due messages once, waiting for these deliveries. Returns how many there were.
    pub(crate) async fn deliver_due(mut self, ctx: &SharedCtx, now: Timestamp) -> Result<usize> {
        self.tick(ctx, now).await?;
        let deliveries = self.deliveries.len();
        while self.deliveries.join_next().await.is_some() {}
        Ok(deliveries)
    }

    async fn claim(&self, ctx: &Ctx, lease: u64, now: Timestamp) -> Result<Vec<Claimed<T>>> {
        let mut found = T::due(ctx, &self.under_way, now).await?;
        if found.is_empty() {
            return Ok(Vec::new());
        }
        // Sorted by id, so that two transactions cannot deadlock.
        found.sort_unstable_by_key(|(due, _)| due.id);
        let until = ctx.clock.monotonic().plus(T::DELIVERY_WAIT_MAX);
        let mut tx = ctx.db.write().await?;
        let mut claimed = Vec::with_capacity(found.len());
        for (due, with) in found {
            let message = T::Table::claim(&mut tx, due, ctx.host, now.plus(T::CLAIM)).await?;
            claimed.extend(message.map(|message| Claimed {
                id: due.id,
                attempts: due.attempts + 1,
                message,
                with,
                until,
                lease,
            }));
        }
        let [before_commit, after_commit, ..] = T::POINTS;
        crash::point(before_commit);
        tx.commit().await?;
        crash::point(after_commit);
        Ok(claimed)
    }
}

/// Releases the messages of hosts that have ended, and gives up those whose time for deliveries has ended, also messages that
/// no host can deliver.
async fn give_up<T: Sender>(ctx: &Ctx, now: Timestamp) -> Result {
    let mut tx = ctx.db.read().await?;
    if !T::Table::has_overdue(&mut tx, now).await? {
        return Ok(());
    }
    drop(tx);
    let mut tx = ctx.db.write().await?;
    T::Table::release(&mut tx, now).await?;
    let dead = T::Table::give_up(&mut tx, now, GIVEN_UP_MAX).await?;
    let events: Vec<NewEvent> = dead.iter().map(T::dead_event).collect();
    events::record_all(&mut tx, now, &events).await?;
    Ok(tx.commit().await?)
}

/// Delivers a claimed message once, and records how that ended.
async fn deliver_and_record<T: Sender>(ctx: &Ctx, vault: &Vault, claimed: Claimed<T>) {
    let delivered = T::deliver(ctx, vault, &claimed).await;
    ctx.trouble
        .note("reading the alerts of a message", &delivered);
    let ended = match delivered {
        Ok(Some(ended)) => ended,
        Ok(None) => {
            tracing::warn!(
                "dropped the delivery: the host was too slow or couldn't renew its lease; the message is delivered once its claim has ended"
            );
            return;
        }
        Err(_) => return,
    };
    crash::point(T::POINTS[2]);
    let (attempt, status) = (claimed.attempts, ended.status.as_str());
    match &ended.error {
        None => tracing::debug!(attempt, %status, "delivered the message"),
        Some(error) => tracing::debug!(attempt, %status, error, "the delivery failed"),
    }
    let now = ctx.clock.now();
    // After the claim another host delivers the message again, and records that.
    while ctx.clock.now() < now.plus(T::CLAIM) {
        let recorded = record_end(ctx, &claimed, &ended, now).await;
        ctx.trouble.note("recording a delivery", &recorded);
        match recorded {
            Ok(true) => return,
            Ok(false) => {
                tracing::warn!(
                    "ignored the end of the delivery: the message has been claimed again or discarded"
                );
                return;
            }
            Err(error) if !error.may_pass() => return,
            Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
        }
    }
}

/// Records the end of a delivery. Returns false when the message was claimed again or discarded meanwhile.
async fn record_end<T: Sender>(
    ctx: &Ctx,
    claimed: &Claimed<T>,
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
    let is_mine = T::Table::end(&mut tx, &end).await?;
    if is_mine && ended.status == MessageStatus::Dead {
        let dead = T::dead_event(&T::dead(&claimed.message, ended.error.clone()));
        events::record_all(&mut tx, now, &[dead]).await?;
    }
    let [.., before_commit, after_commit] = T::POINTS;
    crash::point(before_commit);
    tx.commit().await?;
    crash::point(after_commit);
    Ok(is_mine)
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
    /// Decides after the delivery with the number `attempts`; none begins after `give_up_at`. A pause is at most `pause_max`,
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

/// Returns the pause after the failed delivery of this number, from 1.
fn pause(attempts: i64, jitter: f64) -> Duration {
    let former = u32::try_from(attempts.max(1) - 1).unwrap_or(u32::MAX);
    let factor = PAUSE_FACTOR.checked_pow(former).unwrap_or(u32::MAX);
    let pause = PAUSE_FIRST.saturating_mul(factor).min(PAUSE_MAX);
    pause.mul_f64(1.0 + 0.25 * jitter)
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
