//! The ping of a host to a monitor outside, which misses it when the host or its database does not work.

use std::time::Duration;

use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::run::secrets::Vault;
use crate::service::{Next, Service};
use crate::tell::alerts::delivery::{SendTime, send};
use campanile_control::rules::alert_rule::Heartbeat;
use campanile_model::clock::Timestamp;
use campanile_model::ids::MessageId;
use campanile_sandbox::{Delivered, OutboxMessage, StopSignal};
use campanile_store::alert_facts;

/// A slot that is undecided for longer says that this host does not work.
const OVERDUE: Duration = Duration::from_secs(60);
/// The longest time of a ping.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The service that pings.
pub(crate) struct HostPing {
    vault: Vault,
    heartbeat: Option<Heartbeat>,
}

impl Service for HostPing {
    const STEP: &'static str = "sending the heartbeat";
    const IS_INTERRUPTIBLE: bool = true;

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        self.ping(ctx, now).await?;
        let interval = self.heartbeat.as_ref().map(|heartbeat| heartbeat.interval);
        Ok(interval.map_or(Next::WhenWoken, Next::After))
    }
}

impl HostPing {
    pub(crate) fn new(ctx: &Ctx) -> HostPing {
        HostPing {
            vault: Vault::new(ctx.settings.secrets.clone()),
            heartbeat: ctx.settings.alerts.heartbeat.clone(),
        }
    }

    /// Ping if this host works. Returns whether the monitor got it.
    pub(crate) async fn ping(&self, ctx: &Ctx, now: Timestamp) -> Result<bool> {
        let Some(heartbeat) = self.heartbeat.as_ref() else {
            return Ok(false);
        };
        if !is_working(ctx, now).await? {
            return Ok(false);
        }
        let request = OutboxMessage {
            id: MessageId::of_alerts(now),
            method: "POST".to_owned(),
            url: String::new(),
            headers: Vec::new(),
            body: ctx.name.clone().into_bytes(),
        };
        let time = SendTime {
            until: ctx.clock.monotonic().plus(WAIT_MAX),
            stop: &StopSignal::default(),
        };
        let sent = send(ctx, &self.vault, &heartbeat.target, request, &[], time).await;
        let why = match sent {
            Some(Delivered::Answered { status, .. }) if (200..300).contains(&status) => {
                return Ok(true);
            }
            Some(Delivered::Answered { status, .. }) => format!("the receiver answered {status}"),
            Some(Delivered::Failed(why)) => why,
            None => "the host was too slow to send it".to_owned(),
        };
        tracing::warn!(why, "the heartbeat of this host was not received");
        Ok(false)
    }
}

/// Whether this host decides and claims, its lease is renewed, and no slot has been undecided for too long.
async fn is_working(ctx: &Ctx, now: Timestamp) -> Result<bool> {
    if ctx.begins_nothing() {
        return Ok(false);
    }
    let mut tx = ctx.db.read().await?;
    let overdue = alert_facts::overdue_schedules(&mut tx, now.minus(OVERDUE), 1).await?;
    Ok(overdue.is_empty())
}
