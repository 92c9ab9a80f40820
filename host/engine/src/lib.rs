//! The engine of a host. The path of a launch:
//!
//! ```text
//! clock → due → plan → [decide: launches, cursor, claims] ─────────────────▶ run → [finish]
//!                          └─ launches that wait → release → [claim] ─┘
//! ```
//!
//! | room | what happens there |
//! |---|---|
//! | `decide` | transaction 1: recording launches and moving cursors, claiming what can start; backfilling |
//! | `claim` | turning waiting launches into runs holding a lease, within their shares |
//! | `run` | running tasks in order, each as a sandbox call; recording ends in transaction 2 |
//! | `recover` | rerunning orphaned launches, or ending them with a reason |
//! | `alive` | heartbeats and leases, watching clock and disk, noticing changes by other processes |
//! | `packages` | following the plugins folder and the schedules file, checking versions |
//! | `keep` | sealing the record, removing what has outlived its age |
//! | `tell` | alerting, delivering messages, metrics, tracing, logging, auditing |
//!
//! All services share one `ctx` and implement `service::Service`, looping over waiting and doing one step. `serve` starts and stops
//! them; ARCHITECTURE.md lists them. Start reading at [`Engine::tick`], which runs every step once, in order. Changes requested by
//! people are in `campanile-control`.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

pub mod alive;
pub mod claim;
pub mod crash;
mod ctx;
pub mod decide;
mod error;
pub mod keep;
pub mod packages;
pub mod recover;
pub mod run;
mod serve;
mod service;
pub mod tell;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future;
use tokio::sync::watch::Receiver;

pub use alive::start::StartError;
pub use decide::Decisions;
pub use error::EngineError;
pub use keep::retention::Removed;
pub use packages::schedules_file::FollowedFile;
pub use recover::Recovered;
pub use run::work::Work;
pub use serve::Followed;
pub use tell::launch_log::EndedLaunches;

use alive::start::{self, FreeName};
use alive::{changes, chores, clock_keeper, lease_keeper};
use campanile_control::lock::lock;
use campanile_control::reports::health::Symptoms;
use campanile_control::reports::symptom::Symptom;
use campanile_control::settings::Settings;
use campanile_model::approval_key::ApprovalKey;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{HostId, RunId};
use campanile_package::{PackageLoader, Packages, PluginsFolder};
use campanile_sandbox::StopSignal;
use campanile_store::launch::Finish;
use campanile_store::{Db, HostLock, hosts};
use ctx::{Ctx, SharedCtx};
use decide::backfill::{self, BackfillProgress};
use decide::{peers, release, schedule_defaults};
use error::Result;
use keep::{retention, seal};
use packages::folder;
use run::{Executor, finish};
use tell::alerts::delivery::AlertDelivery;
use tell::outbox::OutboxDelivery;
use tell::{alerts, metrics, traces, use_growth};

/// The public handle of one host's engine.
pub struct Engine {
    ctx: SharedCtx,
    executor: Arc<Executor>,
}

/// What one [`Engine::tick`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tick {
    /// Launches that recovery opened again.
    pub recovered: usize,
    /// Launches that recovery ended.
    pub ended_by_recovery: usize,
    pub decisions: usize,
    /// Launches of backfills.
    pub backfill_launches: usize,
    pub claimed: usize,
    pub finished: usize,
}

impl Engine {
    /// Run every step of the path once, with the time `now`, and wait for the runs that it claims.
    ///
    /// Each step does one batch, so some work may remain.
    ///
    /// [`Engine::serve`] does the same steps, each in its service.
    pub async fn tick(&self, now: Timestamp) -> Result<Tick> {
        if self.ctx.db.damage().is_some() {
            return Ok(Tick::default());
        }
        let recovered = self.recover(now).await?;
        let (decided, started) = decide::decide_and_claim(&self.ctx, now).await?;
        let backfills = self.run_backfills(now).await?;
        self.release(now).await?;
        let mut claimed = started;
        claimed.extend(self.claim(now).await?);
        let ends = future::join_all(claimed.iter().map(|work| self.execute(work))).await;
        let ends: Vec<Finish> = ends.into_iter().flatten().collect();
        let finished = self.finish(&ends).await?;
        for work in &claimed {
            self.untrack(work.run_id(), work.fence());
        }
        Ok(Tick {
            recovered: recovered.reopened,
            ended_by_recovery: recovered.ended,
            decisions: decided.decisions,
            backfill_launches: backfills.launched,
            claimed: claimed.len(),
            finished,
        })
    }

    /// Start a host: lock its name, mark earlier processes that had this name as dead, and record this one.
    ///
    /// Without `name` the host is named after the machine, with a number if another host on it has that name.
    pub async fn start(
        db: Db,
        clock: Clock,
        name: Option<&str>,
        settings: Settings,
        packages: Packages,
        loader: Arc<PackageLoader>,
    ) -> Result<(Arc<Engine>, HostLock), StartError> {
        let FreeName { name, lock, last } = start::free_name(&db, name, settings.lease).await?;
        clock_keeper::measure(&db, &clock).await?;
        let ctx = Arc::new(Ctx::new(db, clock, name, settings, packages));
        start::register(&ctx, last, ctx.clock.now()).await?;
        schedule_defaults::follow(&ctx, ctx.clock.now()).await?;
        let executor = Arc::new(Executor::new(Arc::clone(&ctx), loader));
        Ok((Arc::new(Engine { ctx, executor }), lock))
    }

    /// Serve until `shutdown` holds true, then drain.
    pub async fn serve(
        self: Arc<Self>,
        lock: HostLock,
        followed: Followed,
        shutdown: Receiver<bool>,
    ) -> Result {
        serve::serve(&self.ctx, &self.executor, lock, followed, shutdown).await
    }

    /// Returns a channel that becomes true when the host has loaded its packages and decides.
    pub fn serving(&self) -> Receiver<bool> {
        self.ctx.serving.subscribe()
    }

    /// Returns how many launches this host executes now.
    pub fn running(&self) -> usize {
        self.ctx.capacity.taken()
    }

    /// Whether launches wait although they are due, as far as this host has seen.
    pub fn is_short(&self) -> bool {
        self.ctx.capacity.is_short.load(Ordering::Relaxed)
    }

    /// Adds this host's trouble with the database to `symptoms`, unless it's already on record, along with approvals that don't
    /// count here.
    pub fn add_trouble(&self, symptoms: &mut Symptoms) {
        let ctx = &self.ctx;
        let uncounted = lock(&ctx.uncounted_approvals).clone();
        (symptoms.notes).extend(uncounted.into_iter().map(Symptom::Other));
        let is_known = symptoms
            .issues
            .iter()
            .any(|it| matches!(it, Symptom::DatabaseTrouble { host, .. } if *host == ctx.name));
        let lasting = ctx.trouble.lasting(std::time::Instant::now());
        let lasting = lasting.filter(|_| !is_known);
        symptoms
            .issues
            .extend(lasting.map(|lasting| Symptom::DatabaseTrouble {
                host: ctx.name.clone(),
                since: ctx.clock.now().minus(lasting.since.elapsed()),
                what: lasting.what,
            }));
    }

    /// Returns how many launches this host has ended since its start.
    pub fn ended(&self) -> EndedLaunches {
        self.ctx.launch_log.counts()
    }

    /// Returns the metrics of this host and those on record, in the format [`metrics::CONTENT_TYPE`]. Single schedules have
    /// metrics up to `schedules_max`, by name.
    ///
    /// It waits at most 5 s for the database, and always answers.
    pub async fn metrics(&self, schedules_max: u32) -> String {
        let ctx = &self.ctx;
        let (runs, runs_max) = (ctx.capacity.taken(), ctx.settings.runs_max);
        let counted = ctx.metrics.text(runs, runs_max);
        metrics::with_record(counted, &ctx.db, ctx.clock.now(), schedules_max).await
    }

    /// Mark silent hosts as dead, and recover orphaned launches.
    pub async fn recover(&self, now: Timestamp) -> Result<Recovered> {
        recover::recover(&self.ctx, now).await
    }

    /// Decide the due slots of a batch of schedules. Launches are opened; [`Engine::claim`] claims them.
    pub async fn decide(&self, now: Timestamp) -> Result<Decisions> {
        decide::decide(&self.ctx, now).await
    }

    /// Decide the due slots of a batch of schedules, and claim in the same transaction the launches that this host can
    /// start.
    pub async fn decide_and_claim(&self, now: Timestamp) -> Result<(Decisions, Vec<Work>)> {
        decide::decide_and_claim(&self.ctx, now).await
    }

    /// Do one step of every backfill that runs.
    pub async fn run_backfills(&self, now: Timestamp) -> Result<BackfillProgress> {
        backfill::run_backfills(&self.ctx, now).await
    }

    /// Open the queued launches that may start. Return how many.
    pub async fn release(&self, now: Timestamp) -> Result<usize> {
        release::release(&self.ctx, now).await
    }

    /// Claim open launches and due retries, as many as there is capacity for.
    pub async fn claim(&self, now: Timestamp) -> Result<Vec<Work>> {
        Ok(claim::claim(&self.ctx, now).await?.runs)
    }

    /// Register a claimed run, so that its lease is renewed until `untrack`. Return the signal that stops it.
    pub fn track(&self, work: &Work) -> StopSignal {
        self.ctx.leases.track(work.lease)
    }

    /// Notes the beginning of a run's call. False forbids the call because the run was dropped.
    pub fn begin_call(&self, run: RunId, fence: i64) -> bool {
        self.ctx.leases.begin_call(run, fence)
    }

    async fn execute(&self, work: &Work) -> Option<Finish> {
        let stop = self.track(work);
        let executed = self.executor.execute(work, &stop).await;
        // Dropping the charge early: other runs of the step may be waiting for it.
        executed.map(|(finish, _kept)| finish)
    }

    /// Stop tracking a run, unless it was claimed again under another fence.
    pub fn untrack(&self, run: RunId, fence: i64) {
        self.ctx.leases.untrack(run, fence);
    }

    /// Record ends of runs in one commit. Return how many of the runs were still this host's.
    pub async fn finish(&self, ends: &[Finish]) -> Result<usize> {
        finish::finish(&self.ctx, ends).await
    }

    /// Record that this host is alive, and renew the leases of its runs.
    pub async fn renew(&self, now: Timestamp) -> Result {
        lease_keeper::renew(&self.ctx, now).await
    }

    /// Look which other hosts claim launches.
    pub async fn look_at_hosts(&self, now: Timestamp) -> Result {
        let mut tx = self.ctx.db.read().await?;
        Ok(peers::look(&self.ctx, &mut tx, now).await?)
    }

    /// Claim nothing while the record says that this host is drained.
    pub async fn follow_drain(&self) -> Result {
        let host = hosts::with_id(&mut self.ctx.db.read().await?, self.ctx.host).await?;
        match host {
            Some(host) => Ok(changes::follow_drain(&self.ctx, &host).await?),
            None => Ok(()),
        }
    }

    /// Drop the runs whose lease has expired, or whose grace is over.
    pub fn drop_expired(&self) {
        lease_keeper::drop_expired(&self.ctx);
    }

    /// Renew the lease of the chores, or take it when it has ended. Return whether this host does the chores now.
    ///
    /// A serving host does that with its heartbeat.
    pub async fn hold_chores(&self, now: Timestamp) -> Result<bool> {
        let mut tx = self.ctx.db.write().await?;
        let held = chores::renew_or_take(&self.ctx, &mut tx, now).await?;
        tx.commit().await?;
        chores::note(&self.ctx, held);
        Ok(chores::are_ours(&self.ctx))
    }

    /// Remove launches, task runs, events and artifacts that are older than the ages of the settings. It is one pass without
    /// pauses. On a host that does not do the chores, this removes nothing.
    pub async fn remove_old(&self, now: Timestamp) -> Result<Removed> {
        retention::remove_old(&self.ctx, now).await
    }

    /// Seal the rows that are old enough. It seals all of them, without pauses. Only the host that does the chores seals.
    pub async fn seal(&self, now: Timestamp) -> Result {
        while seal::seal(&self.ctx, now).await?.is_some() {}
        Ok(())
    }

    /// Look at all schedules for growth of their use, in one pass without pauses. On a host that does not do the chores, this
    /// notes nothing.
    pub async fn check_growth(&self, now: Timestamp) -> Result {
        let mut pass = use_growth::GrowthPass::default();
        while pass.step(&self.ctx, now).await? {}
        Ok(())
    }

    /// Deliver the messages of the outbox that are due once, and wait for these deliveries. Return how many there were.
    pub async fn deliver_messages(&self, now: Timestamp) -> Result<usize> {
        OutboxDelivery::new(&self.ctx)
            .deliver_due(&self.ctx, now)
            .await
    }

    /// Evaluate the rules for alerts once. Return how many alerts this host changed.
    pub async fn evaluate_alerts(&self, now: Timestamp) -> Result<usize> {
        alerts::Alerts::new(&self.ctx)
            .evaluate(&self.ctx, now)
            .await
    }

    /// Deliver the messages about alerts that are due once, and wait for these deliveries. Return how many there were.
    pub async fn deliver_alerts(&self, now: Timestamp) -> Result<usize> {
        AlertDelivery::new(&self.ctx)
            .deliver_due(&self.ctx, now)
            .await
    }

    /// Send the traces of ended launches, as far as the collector accepts them. Return how many launches still wait.
    pub async fn export_traces(&self) -> usize {
        traces::export_waiting(&self.ctx).await
    }

    /// Send the pings of runs that wait, as far as their monitors answer in time.
    pub async fn send_pings(&self) {
        alerts::pings::send_waiting(&self.ctx).await;
    }

    /// Ping the address of the configuration if this host works. Return whether it did.
    pub async fn ping(&self, now: Timestamp) -> Result<bool> {
        alerts::host_ping::HostPing::new(&self.ctx)
            .ping(&self.ctx, now)
            .await
    }

    /// Scan the plugin folder until every file is loaded, and record and apply what changed.
    pub async fn scan(&self, folder: &mut PluginsFolder) -> Result {
        folder::scan_and_load(&self.ctx, folder).await
    }

    /// The database of this engine.
    pub fn db(&self) -> &Db {
        &self.ctx.db
    }

    /// The clock of this engine, which follows the database's.
    pub fn clock(&self) -> &Clock {
        &self.ctx.clock
    }

    /// Returns the key that seals decisions about versions.
    pub fn approval_key(&self) -> &ApprovalKey {
        self.ctx.packages.own_record().key()
    }

    /// The id of this process of the host.
    pub fn host(&self) -> HostId {
        self.ctx.host
    }
}
