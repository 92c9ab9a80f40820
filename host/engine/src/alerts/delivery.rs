//! Deliver messages about alerts.
//!
//! A host claims a message for longer than a delivery takes. If it dies, another host delivers the message again when the
//! claim has ended, with the same `webhook-id` and the same content. The messages of one channel and rule are delivered in
//! their order.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::alerts::message::content;
use crate::alerts::rule::{Channel, Target, Url};
use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::outbox::{Ended, record_during_claim};
use crate::secrets::Vault;
use crate::service::{Next, Service};
use campanile_model::clock::{Monotonic, Timestamp};
use campanile_model::status::{AlertMessageKind, MessageStatus};
use campanile_model::text::printable;
use campanile_sandbox::{Delivered, DeliveryCall, OutboxMessage, StopSignal, deliver, grants_to};
use campanile_store::alert_messages::{
    self, AlertDeliveryEnd, ClaimedAlertMessage, DueAlertMessage,
};
use campanile_store::events::{self, EventKind, NewEvent};

/// Deliveries of a host at once, over all channels.
const DELIVERIES_MAX: usize = 16;
/// The longest that one delivery takes, from the claim to the answer.
const DELIVERY_WAIT_MAX: Duration = Duration::from_secs(10);
/// The longest pause between two deliveries of a message, because later messages of its rule wait for it.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a claim lasts.
const CLAIM: Duration = DELIVERY_WAIT_MAX.saturating_mul(2);
/// How often a host looks for messages.
const INTERVAL: Duration = Duration::from_secs(1);
/// The messages that are given up in one transaction.
const GIVEN_UP_MAX: i64 = 256;
/// The name under which the permits of these requests are counted.
const SENDER: &str = "alerts";

/// A message that this host has claimed.
struct Claimed {
    message: ClaimedAlertMessage,
    channel: Channel,
    /// Until when this host may deliver it.
    until: Monotonic,
}

/// The service that delivers messages about alerts.
pub(crate) struct AlertDelivery {
    vault: Arc<Vault>,
    deliveries: JoinSet<()>,
}

impl Service for AlertDelivery {
    const STEP: &'static str = "delivering messages about alerts";

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        // With a wrong clock, messages would be given up that are new.
        if !ctx.clock.is_known() {
            return Ok(Next::After(INTERVAL));
        }
        give_up(ctx, now).await?;
        if !ctx.deliveries.may_begin() {
            return Ok(Next::After(INTERVAL));
        }
        for claimed in self.claim(ctx, now).await? {
            let (ctx, vault) = (Arc::clone(ctx), Arc::clone(&self.vault));
            self.deliveries.spawn(async move {
                deliver_and_record(&ctx, &vault, claimed).await;
            });
        }
        Ok(Next::After(INTERVAL))
    }

    /// Wait for the end of a delivery, after which the next message of its rule is due, or for a new message.
    async fn woken(&mut self, ctx: &Ctx) {
        tokio::select! {
            // After a panic the message is delivered when its claim has ended.
            _ = self.deliveries.join_next(), if !self.deliveries.is_empty() => {}
            () = ctx.wake.alerts.notified() => {}
        }
    }
}

/// Deliver the messages that are due once, and wait for these deliveries. Return how many there were.
pub(crate) async fn deliver_due(ctx: &SharedCtx, now: Timestamp) -> Result<usize> {
    let mut service = AlertDelivery::new(ctx);
    service.tick(ctx, now).await?;
    let deliveries = service.deliveries.len();
    while service.deliveries.join_next().await.is_some() {}
    Ok(deliveries)
}

impl AlertDelivery {
    pub(crate) fn new(ctx: &Ctx) -> AlertDelivery {
        AlertDelivery {
            vault: Arc::new(Vault::new(ctx.settings.secrets.clone())),
            deliveries: JoinSet::new(),
        }
    }

    /// Claim messages of the channels that this host has, as many as there is room for deliveries.
    async fn claim(&self, ctx: &Ctx, now: Timestamp) -> Result<Vec<Claimed>> {
        let due = self.due(ctx, now).await?;
        if due.is_empty() {
            return Ok(Vec::new());
        }
        let until = ctx.clock.monotonic().plus(DELIVERY_WAIT_MAX);
        let mut tx = ctx.db.write().await?;
        let mut claimed = Vec::with_capacity(due.len());
        for (due, channel) in due {
            let message = alert_messages::claim(&mut tx, due, ctx.host, now.plus(CLAIM)).await?;
            claimed.extend(message.map(|message| Claimed {
                message,
                channel: channel.clone(),
                until,
            }));
        }
        crash::point("before_alert_claim_commit");
        tx.commit().await?;
        crash::point("after_alert_claim_commit");
        Ok(claimed)
    }

    /// Return messages that are due, sorted by id, so that two transactions cannot deadlock.
    async fn due<'c>(
        &self,
        ctx: &'c Ctx,
        now: Timestamp,
    ) -> Result<Vec<(DueAlertMessage, &'c Channel)>> {
        let mut found = Vec::new();
        let mut tx = ctx.db.read().await?;
        for (name, channel) in &ctx.settings.alerts.channels {
            let room = DELIVERIES_MAX.saturating_sub(self.deliveries.len() + found.len());
            if room == 0 {
                break;
            }
            let due = alert_messages::due(&mut tx, name, now, room as i64).await?;
            found.extend(due.into_iter().map(|due| (due, channel)));
        }
        found.sort_unstable_by_key(|(due, _)| due.id);
        Ok(found)
    }
}

/// Deliver a claimed message once, and record how that ended.
async fn deliver_and_record(ctx: &Ctx, vault: &Vault, claimed: Claimed) {
    let id = claimed.message.id;
    let ended = match deliver_once(ctx, vault, &claimed).await {
        Ok(Some(ended)) => ended,
        Ok(None) => {
            tracing::warn!(message = %id, "this delivery was dropped: the host was too slow, or could not renew its lease; the message is delivered when its claim has ended");
            return;
        }
        Err(error) => {
            return ctx
                .trouble
                .report("reading the alerts of a message", &error);
        }
    };
    crash::point("after_alert_delivery");
    let now = ctx.clock.now();
    let record = || record_end(ctx, &claimed.message, &ended, now);
    record_during_claim(ctx, id, now.plus(CLAIM), record).await;
}

/// Deliver a claimed message once; none when its time was over before.
async fn deliver_once(ctx: &Ctx, vault: &Vault, claimed: &Claimed) -> Result<Option<Ended>> {
    let (message, channel) = (&claimed.message, &claimed.channel);
    let mut tx = ctx.db.read().await?;
    let alerts = alert_messages::alerts_of(&mut tx, message.id).await?;
    drop(tx);
    let is_test = message.kind == AlertMessageKind::Test;
    if alerts.is_empty() && !is_test {
        // The channel was not told that these alerts fire, as the message was given up.
        return Ok(Some(Ended {
            status: MessageStatus::Discarded,
            next_attempt_at: None,
            answer: None,
            error: None,
        }));
    }
    let content = content(channel.template, message, &alerts);
    let own = channel.headers.iter();
    let own = own.map(|(name, value)| (name.clone(), value.clone()));
    let request = OutboxMessage {
        id: message.id,
        method: "POST".to_owned(),
        url: String::new(),
        headers: content.headers.into_iter().chain(own).collect(),
        body: content.body.into_bytes(),
    };
    let signing = &channel.signing_secrets;
    let tracked = ctx.deliveries.track(message.id, message.attempts);
    let time = SendTime {
        until: claimed.until,
        stop: &tracked.stop,
    };
    let Some(delivered) = send(ctx, vault, &channel.target, request, signing, time).await else {
        return Ok(None);
    };
    let limits = (message.attempts, message.give_up_at);
    let jitter = rand::random_range(-1.0..=1.0);
    Ok(Some(Ended::of(
        limits,
        PAUSE_MAX,
        delivered,
        ctx.clock.now(),
        jitter,
    )))
}

/// Until when a request may be sent.
pub(crate) struct SendTime<'t> {
    pub(crate) until: Monotonic,
    /// Stops the request earlier, with the lease of this host.
    pub(crate) stop: &'t StopSignal,
}

/// Send `request` to `target`, whose address it gets. The secrets `signing` sign it. None when the time was over before the
/// receiver answered.
pub(crate) async fn send(
    ctx: &Ctx,
    vault: &Vault,
    target: &Target,
    mut request: OutboxMessage,
    signing: &[String],
    time: SendTime<'_>,
) -> Option<Delivered> {
    request.url = match &target.url {
        Url::Plain(url) => url.clone(),
        Url::Secret(name) => match vault.values([name.as_str()]).await {
            Ok(secrets) => secrets.values().map(|secret| secret.reveal()).collect(),
            Err(error) => return Some(Delivered::Failed(error.to_string())),
        },
    };
    let mut grants = match grants_to(&request.url, target.private) {
        Ok(grants) => grants,
        Err(what) => return Some(Delivered::Failed(format!("the address {what}"))),
    };
    // The configuration was checked: a header names only secrets that the host has.
    grants.secrets = ctx.settings.secrets.keys().cloned().collect();
    for grant in &mut grants.http {
        grant.signing_secret = signing.first().cloned();
    }
    let mut names = campanile_sandbox::delivery_secrets(&request, &grants);
    names.extend(signing.iter().cloned());
    let secrets = match vault.values(names.iter().map(String::as_str)).await {
        Ok(secrets) => secrets,
        Err(error) => return Some(Delivered::Failed(error.to_string())),
    };
    // A host that was suspended meanwhile sends nothing. Another one may deliver the message now.
    let wait_max = time.until.since(ctx.clock.monotonic());
    if wait_max.is_zero() || time.stop.is_dropped() {
        return None;
    }
    let call = DeliveryCall {
        package: SENDER.to_owned(),
        grants: Arc::new(grants),
        secrets,
        also_signing: signing.iter().skip(1).cloned().collect(),
        now: ctx.clock.now(),
        wait_max,
        stop: time.stop.clone(),
    };
    tokio::select! {
        biased;
        () = time.stop.dropped() => None,
        delivered = deliver(&request, call) => match delivered {
            // The connection refused to send more.
            Delivered::Failed(_) if time.stop.is_dropped() => None,
            Delivered::Failed(why) => Some(Delivered::Failed(of_configuration(&why))),
            // A receiver may repeat its address, which is a secret then.
            Delivered::Answered { status, retry_after, .. } if target.url.is_secret() => {
                Some(Delivered::Answered {
                    status,
                    text: String::new(),
                    retry_after,
                })
            }
            answered => Some(answered),
        },
    }
}

/// Return a refusal with the advice for the configuration in place of the one for a package.
fn of_configuration(why: &str) -> String {
    match why.split_once("; to allow it, add ") {
        Some((what, _)) => format!(
            "{what}; to allow it, write `private = true` beside the address in the configuration"
        ),
        None => why.to_owned(),
    }
}

/// Record the end of a delivery. Return false when the message was claimed again meanwhile.
async fn record_end(
    ctx: &Ctx,
    message: &ClaimedAlertMessage,
    ended: &Ended,
    now: Timestamp,
) -> Result<bool> {
    let mut tx = ctx.db.write().await?;
    let end = AlertDeliveryEnd {
        id: message.id,
        attempts: message.attempts,
        status: ended.status,
        next_attempt_at: ended.next_attempt_at,
        finished_at: (ended.status != MessageStatus::Pending).then_some(now),
        answer: ended.answer,
        error: ended.error.as_deref(),
    };
    let is_mine = alert_messages::end(&mut tx, &end).await?;
    if is_mine && ended.status == MessageStatus::Dead {
        let last = ended.error.as_deref().unwrap_or_default();
        let dead = dead_event(&message.channel, &message.rule, message.attempts, last);
        events::record_all(&mut tx, now, &[dead]).await?;
    }
    crash::point("before_alert_end_commit");
    tx.commit().await?;
    crash::point("after_alert_end_commit");
    Ok(is_mine)
}

/// Give up the messages whose last delivery is over, such as those of a channel that no host has any more.
async fn give_up(ctx: &Ctx, now: Timestamp) -> Result {
    let mut tx = ctx.db.read().await?;
    if !alert_messages::has_late(&mut tx, now).await? {
        return Ok(());
    }
    drop(tx);
    let mut tx = ctx.db.write().await?;
    let dead = alert_messages::give_up(&mut tx, now, GIVEN_UP_MAX).await?;
    let dead = dead.iter().map(|dead| {
        let last = dead.error.as_deref().unwrap_or("no host has the channel");
        dead_event(&dead.channel, &dead.rule, dead.attempts, last)
    });
    let dead: Vec<NewEvent> = dead.collect();
    events::record_all(&mut tx, now, &dead).await?;
    tx.commit().await?;
    Ok(())
}

fn dead_event(channel: &str, rule: &str, attempts: i64, last: &str) -> NewEvent {
    let detail = format!(
        "a message of the rule `{rule}` to the channel `{channel}` was given up after {attempts} deliveries: {last}"
    );
    tracing::error!(channel, "{}", printable(&detail));
    NewEvent {
        kind: EventKind::AlertMessageDead,
        subject: channel.to_owned(),
        detail,
    }
}
