//! The pings of runs: a host sends a request to a monitor, such as Healthchecks, when a run of a schedule starts and when it ends.
//!
//! ```text
//! run starts, end on record ─▶ queue (bounded) ─▶ names of schedules ─▶ requests, in order for each schedule
//! ```
//!
//! The path of a launch adds to a queue, and waits for nothing. Pings are no part of the record: a host that dies sends none,
//! and its monitor then misses them, as it should.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{self, JoinSet};
use tracing::Instrument as _;

use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::run::secrets::Vault;
use crate::service::{Next, Service};
use crate::tell::alerts::delivery::{SendTime, reveal, send};
use crate::tell::alerts::ping_queue::{RunPing, trim};
use crate::tell::log_spans;
use campanile_control::rules::alert_rule::{Target, Value};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{MessageId, ScheduleId};
use campanile_sandbox::{Delivered, OutboxMessage, StopSignal};
use campanile_store::schedules;

/// The schedules whose pings are sent at once.
const SENDING_MAX: usize = 16;
/// The longest time of one request.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// The pauses after failed requests. After the last one, the ping is dropped.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// How long a stopping host sends the pings that wait.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Notes pings. Without an address for pings in the configuration, nothing is noted.
pub(crate) fn note(ctx: &Ctx, pings: impl IntoIterator<Item = RunPing>) {
    if !ctx.settings.alerts.pings.is_empty() {
        ctx.pings.add(pings);
    }
}

/// A ping to one address.
struct Outgoing {
    ping: RunPing,
    /// The schedule.
    name: String,
    target: Target,
}

/// The service that sends pings of runs.
pub(crate) struct Pings {
    vault: Arc<Vault>,
    /// Pings whose schedules have not been read yet.
    noted: VecDeque<RunPing>,
    waiting: VecDeque<Outgoing>,
    sending: JoinSet<()>,
    /// The schedules of the pings that are being sent.
    busy: HashMap<task::Id, ScheduleId>,
}

impl Service for Pings {
    const STEP: &'static str = "reading the schedules of runs";

    async fn tick(&mut self, ctx: &SharedCtx, _: Timestamp) -> Result<Next> {
        self.receive(ctx).await?;
        self.begin(ctx);
        Ok(Next::WhenWoken)
    }

    /// Waits for the end of a ping, after which the next one of its schedule can be sent, or for a new one.
    async fn woken(&mut self, ctx: &Ctx) {
        tokio::select! {
            ended = self.sending.join_next_with_id(), if !self.sending.is_empty() => self.end(ended),
            () = ctx.pings.wake.notified() => {}
        }
    }
}

/// Sends the pings that wait, as far as their monitors answer in time.
pub(crate) async fn send_waiting(ctx: &SharedCtx) {
    let mut service = Pings::new(ctx);
    let sending = async {
        while service.tick(ctx, ctx.clock.now()).await.is_ok() && !service.sending.is_empty() {
            let ended = service.sending.join_next_with_id().await;
            service.end(ended);
        }
    };
    // A ping that is not sent by then is dropped; its monitor misses it.
    let _ = tokio::time::timeout(LAST_WAIT, sending).await;
}

impl Pings {
    pub(crate) fn new(ctx: &Ctx) -> Pings {
        Pings {
            vault: Arc::new(Vault::new(ctx.settings.secrets.clone())),
            noted: VecDeque::new(),
            waiting: VecDeque::new(),
            sending: JoinSet::new(),
            busy: HashMap::new(),
        }
    }

    /// Takes the pings from the queue, and finds the addresses of their schedules.
    async fn receive(&mut self, ctx: &Ctx) -> Result {
        self.noted.extend(ctx.pings.take());
        trim(&mut self.noted);
        if self.noted.is_empty() {
            return Ok(());
        }
        let ids: BTreeSet<ScheduleId> = self.noted.iter().map(|ping| ping.schedule_id).collect();
        let ids = Vec::from_iter(ids);
        // After an error they wait for the next step.
        let names = schedules::names_of(&mut ctx.db.read().await?, &ids).await?;
        let names: HashMap<ScheduleId, String> = names.into_iter().collect();
        for ping in self.noted.drain(..) {
            let Some(name) = names.get(&ping.schedule_id) else {
                continue;
            };
            let matching = ctx.settings.alerts.pings.iter();
            let matching = matching.filter(|settings| settings.schedule.matches(name));
            self.waiting.extend(matching.map(|settings| Outgoing {
                ping: ping.clone(),
                name: name.clone(),
                target: settings.target.clone(),
            }));
        }
        trim(&mut self.waiting);
        Ok(())
    }

    /// Begins to send the oldest pings of schedules of which none is being sent.
    fn begin(&mut self, ctx: &SharedCtx) {
        let mut busy: BTreeSet<ScheduleId> = self.busy.values().copied().collect();
        let mut left = VecDeque::new();
        for outgoing in self.waiting.drain(..) {
            let schedule = outgoing.ping.schedule_id;
            if self.sending.len() >= SENDING_MAX || !busy.insert(schedule) {
                left.push_back(outgoing);
                continue;
            }
            let (ctx, vault) = (Arc::clone(ctx), Arc::clone(&self.vault));
            let span = log_spans::run(Some(&outgoing.name), outgoing.ping.run_id);
            let sending = async move { send_repeatedly(&ctx, &vault, &outgoing).await };
            let sending = self.sending.spawn(sending.instrument(span));
            self.busy.insert(sending.id(), schedule);
        }
        self.waiting = left;
    }

    fn end(&mut self, ended: Option<Result<(task::Id, ()), task::JoinError>>) {
        let id = match ended {
            Some(Ok((id, ()))) => id,
            Some(Err(panic)) => panic.id(),
            None => return,
        };
        self.busy.remove(&id);
    }
}

/// Sends a ping until its monitor gets it, or the last try fails.
async fn send_repeatedly(ctx: &Ctx, vault: &Vault, outgoing: &Outgoing) {
    let mut pauses = PAUSES.into_iter();
    loop {
        let Err(why) = send_once(ctx, vault, outgoing).await else {
            return;
        };
        let Some(pause) = pauses.next() else {
            return tracing::warn!(error = why, "a ping of this run was not received");
        };
        tokio::time::sleep(pause).await;
    }
}

async fn send_once(ctx: &Ctx, vault: &Vault, outgoing: &Outgoing) -> Result<(), String> {
    let Outgoing { ping, name, target } = outgoing;
    let url = reveal(vault, &target.url).await?;
    let request = OutboxMessage {
        id: MessageId::of_alerts(ctx.clock.now()),
        method: "POST".to_owned(),
        url: String::new(),
        headers: vec![(
            "content-type".to_owned(),
            "text/plain; charset=utf-8".to_owned(),
        )],
        body: ping.body().as_bytes().to_vec(),
    };
    let target = Target {
        url: Value::Plain(ping.url(&url, name)),
        private: target.private,
    };
    let time = SendTime {
        until: ctx.clock.monotonic().plus(WAIT_MAX),
        stop: &StopSignal::default(),
    };
    match send(ctx, vault, &target, request, &[], time).await {
        Some(Delivered::Answered { status, .. }) if (200..300).contains(&status) => Ok(()),
        Some(Delivered::Answered { status, .. }) => Err(format!("the receiver answered {status}")),
        Some(Delivered::Failed(why)) => Err(why),
        None => Err("the host was too slow to send it".to_owned()),
    }
}
