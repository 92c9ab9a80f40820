//! Deliver messages about alerts.
//!
//! A message that is delivered again has the same `webhook-id` and the same content. The messages of one channel and rule are
//! delivered in their order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Span;

use crate::crash;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::run::secrets::Vault;
use crate::tell::alerts::message::{Content, SUBJECT, content};
use crate::tell::delivery::{Claimed, Delivery, Ended, Sender, UnderWay};
use crate::tell::log_spans;
use campanile_control::rules::alert_rule::{Channel, MailSettings, MailUser, Target, Value};
use campanile_model::clock::{Monotonic, Timestamp};
use campanile_model::status::{AlertMessageKind, MessageStatus};
use campanile_sandbox::{
    Delivered, DeliveryCall, Grants, Mail, MailLogin, OutboxMessage, Secrets, StopSignal, deliver,
    deliver_mail, grants_to, grants_to_mail_server,
};
use campanile_store::alert_messages::{self, AlertMessageTable, ClaimedAlertMessage};
use campanile_store::events::{EventKind, NewEvent};
use campanile_store::messages::{DeadMessage, DueMessage};

/// Deliveries of a host at once, over all channels.
const DELIVERIES_MAX: usize = 16;
/// The longest pause between two deliveries of a message, because later messages of its rule wait for it.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The name under which the permits of these requests are counted.
const SENDER: &str = "alerts";

/// The service that delivers messages about alerts.
pub(crate) type AlertDelivery = Delivery<AlertMessages>;

/// Sends messages about alerts.
pub(crate) struct AlertMessages;

impl Sender for AlertMessages {
    type Table = AlertMessageTable;
    const STEP: &'static str = "delivering messages about alerts";
    const DELIVERY_WAIT_MAX: Duration = Duration::from_secs(10);
    const INTERVAL: Duration = Duration::from_secs(1);
    const POINTS: [&'static str; 5] = crash::ALERT_MESSAGE_POINTS;
    type With = Channel;

    fn wake(ctx: &Ctx) -> &Notify {
        &ctx.wake.alerts
    }

    /// Returns messages of the channels that this host has.
    async fn due(
        ctx: &Ctx,
        under_way: &UnderWay,
        now: Timestamp,
    ) -> Result<Vec<(DueMessage, Channel)>> {
        let mut found = Vec::new();
        let mut tx = ctx.db.read().await?;
        for (name, channel) in &ctx.settings.alerts.channels {
            let room = DELIVERIES_MAX.saturating_sub(under_way.len() + found.len());
            if room == 0 {
                break;
            }
            let due = alert_messages::due(&mut tx, name, now, room as i64).await?;
            found.extend(due.into_iter().map(|due| (due, channel.clone())));
        }
        Ok(found)
    }

    fn sender(message: &ClaimedAlertMessage) -> &str {
        &message.channel
    }

    fn span(claimed: &Claimed<AlertMessages>) -> Span {
        let message = &claimed.message;
        log_spans::alert_delivery(claimed.id, &message.channel, &message.rule)
    }

    async fn deliver(
        ctx: &Ctx,
        vault: &Vault,
        claimed: &Claimed<AlertMessages>,
    ) -> Result<Option<Ended>> {
        deliver_once(ctx, vault, claimed).await
    }

    fn dead(message: &ClaimedAlertMessage, error: Option<String>) -> DeadMessage {
        DeadMessage {
            id: message.id,
            sender: message.channel.clone(),
            what: message.rule.clone(),
            attempts: message.attempts,
            error,
        }
    }

    fn dead_event(dead: &DeadMessage) -> NewEvent {
        let (channel, rule) = (&dead.sender, &dead.what);
        let last = dead.error.as_deref().unwrap_or("no host has the channel");
        let detail = format!(
            "a message of the rule `{rule}` to the channel `{channel}` was given up after {} deliveries: {last}",
            dead.attempts
        );
        tracing::error!(
            %channel,
            %rule,
            attempts = dead.attempts,
            error = last,
            "gave up a message about alerts"
        );
        NewEvent::new(EventKind::AlertMessageDead, channel, detail)
    }
}

/// Delivers a claimed message once; none when its time was over before.
async fn deliver_once(
    ctx: &Ctx,
    vault: &Vault,
    claimed: &Claimed<AlertMessages>,
) -> Result<Option<Ended>> {
    let (message, channel) = (&claimed.message, &claimed.with);
    let mut tx = ctx.db.read().await?;
    let alerts = alert_messages::alerts_of(&mut tx, message.id).await?;
    drop(tx);
    let is_test = message.kind == AlertMessageKind::Test;
    if alerts.is_empty() && !is_test {
        // The channel got no message that these alerts fire, as the message was given up.
        return Ok(Some(Ended {
            status: MessageStatus::Discarded,
            next_attempt_at: None,
            answer: None,
            error: None,
        }));
    }
    let content = content(channel.template, message, &alerts);
    let deliveries = &ctx.deliveries;
    let tracked = deliveries.track(message.id, message.attempts, claimed.lease);
    let time = SendTime {
        until: claimed.until,
        stop: &tracked.stop,
    };
    let sent = match &channel.mail {
        Some(mail) => send_mail(ctx, vault, (&channel.target, mail), message, content, time).await,
        None => {
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
            send(ctx, vault, &channel.target, request, signing, time).await
        }
    };
    let Some(delivered) = sent else {
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

/// Sends `request` to `target`, whose address it gets. The secrets `signing` sign it. None when the time was over before the
/// receiver answered.
pub(crate) async fn send(
    ctx: &Ctx,
    vault: &Vault,
    target: &Target,
    mut request: OutboxMessage,
    signing: &[String],
    time: SendTime<'_>,
) -> Option<Delivered> {
    request.url = match reveal(vault, &target.url).await {
        Ok(url) => url,
        Err(why) => return Some(Delivered::Failed(why)),
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
    let also_signing = signing.iter().skip(1).cloned().collect();
    let call = call(ctx, grants, (secrets, also_signing), &time)?;
    stopped(target, &time, deliver(&request, call)).await
}

/// Sends the content of a message by the mail server `target`, as [`send`] does.
async fn send_mail(
    ctx: &Ctx,
    vault: &Vault,
    (target, settings): (&Target, &MailSettings),
    message: &ClaimedAlertMessage,
    content: Content,
    time: SendTime<'_>,
) -> Option<Delivered> {
    let (server, login) = match revealed_login(vault, &target.url, settings.login.as_ref()).await {
        Ok(revealed) => revealed,
        Err(why) => return Some(Delivered::Failed(why)),
    };
    let grants = match grants_to_mail_server(&server, target.private) {
        Ok(grants) => grants,
        Err(what) => return Some(Delivered::Failed(format!("the address {what}"))),
    };
    let mut headers = content.headers.into_iter();
    let subject = headers.find(|(name, _)| name == SUBJECT);
    let password = login.as_ref().map(|login| login.password.clone());
    let secrets = password.map(|password| ("password".to_owned(), password));
    let secrets = Secrets::from_iter(secrets);
    let mail = Mail {
        id: message.id,
        server,
        from: settings.from.clone(),
        to: settings.to.clone(),
        subject: subject.map(|(_, value)| value).unwrap_or_default(),
        text: content.body,
        at: message.created_at,
        login,
    };
    let call = call(ctx, grants, (secrets, Vec::new()), &time)?;
    stopped(target, &time, deliver_mail(&mail, call)).await
}

/// Returns the address of a mail server, and what a host proves to it.
async fn revealed_login(
    vault: &Vault,
    url: &Value,
    login: Option<&MailUser>,
) -> Result<(String, Option<MailLogin>), String> {
    let server = reveal(vault, url).await?;
    let Some(login) = login else {
        return Ok((server, None));
    };
    let name = login.password_secret.as_str();
    let mut secrets = vault
        .values([name])
        .await
        .map_err(|error| error.to_string())?;
    let password = secrets.remove(name);
    let login = MailLogin {
        user: reveal(vault, &login.user).await?,
        password: password.ok_or_else(|| format!("the secret `{name}` is not there"))?,
    };
    Ok((server, Some(login)))
}

/// Returns a text, which may be that of a secret. The error is a sentence without an end.
pub(crate) async fn reveal(vault: &Vault, value: &Value) -> Result<String, String> {
    match value {
        Value::Plain(text) => Ok(text.clone()),
        Value::Secret(name) => match vault.values([name.as_str()]).await {
            Ok(secrets) => Ok(secrets.values().map(|secret| secret.reveal()).collect()),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Returns what a delivery needs beside its message; none when its time is over.
fn call(
    ctx: &Ctx,
    grants: Grants,
    (secrets, also_signing): (Secrets, Vec<String>),
    time: &SendTime<'_>,
) -> Option<DeliveryCall> {
    // A host that was suspended meanwhile sends nothing. Another one may deliver the message now.
    let wait_max = time.until.since(ctx.clock.monotonic());
    if wait_max.is_zero() || time.stop.is_dropped() {
        return None;
    }
    Some(DeliveryCall {
        package: SENDER.to_owned(),
        grants: Arc::new(grants),
        secrets,
        also_signing,
        now: ctx.clock.now(),
        wait_max,
        stop: time.stop.clone(),
        traceparent: None,
    })
}

/// Waits for a delivery to `target` until it is stopped; then returns none.
async fn stopped(
    target: &Target,
    time: &SendTime<'_>,
    delivery: impl Future<Output = Delivered>,
) -> Option<Delivered> {
    tokio::select! {
        biased;
        () = time.stop.dropped() => None,
        delivered = delivery => match delivered {
            // The connection refused to send more.
            Delivered::Failed(_) if time.stop.is_dropped() => None,
            // A receiver may repeat its address, which is a secret then.
            Delivered::Answered { status, retry_after, .. } if target.url.secret().is_some() => {
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
