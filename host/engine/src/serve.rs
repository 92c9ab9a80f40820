//! Serving: the services of a host, from the start to the drained stop.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::alive::changes::ChangeWatcher;
use crate::alive::clock_keeper::ClockKeeper;
use crate::alive::disk_keeper::DiskKeeper;
use crate::alive::lease_keeper::LeaseKeeper;
use crate::alive::start;
use crate::claim::Dispatcher;
use crate::ctx::{Ctx, SharedCtx};
use crate::decide::Scheduler;
use crate::decide::cursor_watch::CursorWatch;
use crate::decide::next_slots::NextSlots;
use crate::error::{EngineError, Result};
use crate::keep::retention::Retention;
use crate::keep::seal::Sealer;
use crate::packages::folder::{FolderSync, expect_files, scan_at_start};
use crate::packages::schedules_file::{FollowedFile, follow_file};
use crate::packages::watch::Watch;
use crate::recover::{Recovery, recover};
use crate::run::starter::Starter;
use crate::run::{Executor, finish};
use crate::service::{RETRY_PAUSE, Service, within};
use crate::tell::alerts::Alerts;
use crate::tell::alerts::delivery::AlertDelivery;
use crate::tell::alerts::host_ping::HostPing;
use crate::tell::alerts::pings::{self, Pings};
use crate::tell::audit::Auditor;
use crate::tell::outbox::OutboxDelivery;
use crate::tell::traces::{self, TraceExport};
use campanile_model::ids::RunId;
use campanile_package::PluginsFolder;
use campanile_store::HostLock;

/// How long a stopping host waits for the database to record its last writes.
const STOP_WAIT: std::time::Duration = std::time::Duration::from_secs(10);

/// The files that a host follows.
pub struct Followed {
    pub folder: PluginsFolder,
    pub watcher: Watch,
    pub schedules: Option<FollowedFile>,
}

/// Serve until `shutdown` holds true, then drain.
///
/// The host's lease is renewed from the first moment to the last: the first scan of a folder may compile for longer
/// than a lease lasts.
pub(crate) async fn serve(
    ctx: &SharedCtx,
    executor: &Arc<Executor>,
    lock: HostLock,
    followed: Followed,
    shutdown: watch::Receiver<bool>,
) -> Result {
    let (stop, _) = watch::channel(false);
    let (drained, until_drained) = watch::channel(false);
    let leases = LeaseKeeper::new(lock, stop.clone());
    let leases = leases.run(Arc::clone(ctx), until_drained);
    let leases = tokio::spawn(stopping_at_panic(leases, &stop));
    let forwarding = tokio::spawn(forward(shutdown.clone(), stop.clone()));
    let ended = run_services(ctx, executor, followed, &stop).await;
    forwarding.abort();
    drained.send_replace(true);
    // The name stays locked until the last writes are recorded.
    let keeper = leases.await;
    let runs = ended.as_ref().map(|ended| &*ended.left).unwrap_or_default();
    let stopped = within(STOP_WAIT, start::stop(ctx, runs, ctx.clock.now())).await;
    let keeper_panic = keeper.as_ref().err().map(ToString::to_string);
    if let Ok(mut keeper) = keeper {
        keeper.end_watch(ctx).await?;
    }
    let panic = ended?.panic.or(keeper_panic);
    stopped?;
    if let Some(panic) = panic {
        return Err(EngineError::Bug(format!(
            "a service of this host ended in a panic, so the host has stopped ({panic}); start it again, and report what its log says before"
        )));
    }
    match *shutdown.borrow() {
        true => Ok(()),
        // No one asked for this stop.
        false if ctx.db.url().is_shared() => Err(EngineError::NameLost(ctx.name.clone())),
        false => Err(EngineError::FileLost(ctx.db.url().to_string())),
    }
}

/// What a host's services left behind.
#[derive(Default)]
struct Ended {
    /// Unfinished runs.
    left: Vec<RunId>,
    /// The panic that ended a service early, if any.
    panic: Option<String>,
}

/// Runs every service until `stop` holds true, then drains. A panicking service stops the host too: without it, the host would
/// look healthy while doing nothing.
async fn run_services(
    ctx: &SharedCtx,
    executor: &Arc<Executor>,
    mut followed: Followed,
    stop: &watch::Sender<bool>,
) -> Result<Ended> {
    let mut stopping = stop.subscribe();
    let mut services = JoinSet::new();
    // Before all others: they depend on the time.
    spawn(&mut services, ctx, ClockKeeper::default(), stop);
    if !prepare(ctx, &mut followed, &mut stopping).await? {
        return Ok(Ended::default());
    }
    tracing::info!(host = %ctx.name, database = %ctx.db.url(), packages = ctx.packages.all().len(), "serving");
    ctx.serving.send_replace(true);
    // The next heartbeat takes the lease of the chores, if no host has it.
    ctx.wake.lease_keeper.notify_one();

    let disk = DiskKeeper::start(ctx).await;
    let (ended, ends) = mpsc::unbounded_channel();
    let executor = Arc::clone(executor);
    let starter = Starter { executor, ended };
    let scheduler = Scheduler {
        starter: starter.clone(),
    };
    spawn(&mut services, ctx, scheduler, stop);
    spawn(&mut services, ctx, Dispatcher { starter }, stop);
    spawn(&mut services, ctx, Recovery, stop);
    spawn(&mut services, ctx, Auditor::default(), stop);
    spawn(&mut services, ctx, NextSlots::default(), stop);
    spawn(&mut services, ctx, Retention::new(ctx), stop);
    spawn(&mut services, ctx, Sealer, stop);
    spawn(&mut services, ctx, OutboxDelivery::new(ctx), stop);
    spawn(&mut services, ctx, Alerts::new(ctx), stop);
    spawn(&mut services, ctx, AlertDelivery::new(ctx), stop);
    spawn(&mut services, ctx, HostPing::new(ctx), stop);
    spawn(&mut services, ctx, Pings::new(ctx), stop);
    spawn(&mut services, ctx, TraceExport::default(), stop);
    spawn(&mut services, ctx, ChangeWatcher::default(), stop);
    let folder = FolderSync {
        must_forget: followed.folder.is_unusable(),
        folder: followed.folder,
        watcher: followed.watcher,
        recorded_loads: BTreeSet::new(),
    };
    spawn(&mut services, ctx, folder, stop);
    if let Some(file) = followed.schedules {
        spawn(&mut services, ctx, file, stop);
    }
    spawn(&mut services, ctx, CursorWatch::default(), stop);
    spawn(&mut services, ctx, disk, stop);
    // The finisher works while the host drains, until the last run has ended.
    let finisher = finish::record_ends(Arc::clone(ctx), ends);
    let finisher = tokio::spawn(stopping_at_panic(finisher, stop));

    let _ = stopping.wait_for(|stop| *stop).await;
    let until = Instant::now() + STOP_WAIT;
    let mut panic = None;
    while let Ok(Some(ended)) = timeout_at(until, services.join_next()).await {
        panic = panic.or(ended.err().map(|panic| panic.to_string()));
    }
    // A service that still waits for the database is dropped.
    services.shutdown().await;
    drain(ctx).await;
    // Runs that have not ended are dropped and handed back.
    let left = ctx.leases.drop_all();
    let patience = ctx.settings.drain.clamp(RETRY_PAUSE, STOP_WAIT);
    match timeout(patience, finisher).await {
        Ok(ended) => panic = panic.or(ended.err().map(|panic| panic.to_string())),
        Err(_) => tracing::error!(
            "the database does not answer: the ends of runs are not recorded, and the next host recovers these runs"
        ),
    }
    pings::send_waiting(ctx).await;
    let unsent = traces::export_waiting(ctx).await;
    if unsent > 0 {
        tracing::warn!(
            launches = unsent,
            "their traces were not sent to the collector"
        );
    }
    Ok(Ended { left, panic })
}

fn spawn<S: Service + 'static>(
    services: &mut JoinSet<()>,
    ctx: &SharedCtx,
    service: S,
    stop: &watch::Sender<bool>,
) {
    let run = service.run(Arc::clone(ctx), stop.subscribe());
    services.spawn(stopping_at_panic(run.map(drop), stop));
}

/// Runs `work`, stopping the host if it panics.
fn stopping_at_panic<W: Future>(
    work: W,
    stop: &watch::Sender<bool>,
) -> impl Future<Output = W::Output> + use<W> {
    struct StopAtPanic(watch::Sender<bool>);
    impl Drop for StopAtPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.send_replace(true);
            }
        }
    }
    let guard = StopAtPanic(stop.clone());
    async move {
        let _guard = guard;
        work.await
    }
}

/// Bring the database up to date with this host. Return false when the host was stopped meanwhile.
///
/// The folder is scanned before anything is decided, so that no slot is skipped for a package that is not loaded yet.
/// The schedules file names packages, so it comes after.
async fn prepare(
    ctx: &Ctx,
    followed: &mut Followed,
    stopping: &mut watch::Receiver<bool>,
) -> Result<bool> {
    expect_files(ctx, &mut followed.folder).await?;
    tokio::select! {
        scanned = scan_at_start(ctx, &mut followed.folder) => scanned?,
        _ = stopping.wait_for(|stop| *stop) => {
            tracing::info!("stopped before the plugin folder was scanned");
            return Ok(false);
        }
    }
    // What an earlier process of this host had counts until the folder is scanned.
    if !followed.folder.is_unusable() {
        // A lost session of another host may have locks for a few seconds.
        let forget = || start::forget_ended_hosts(ctx, ctx.clock.now());
        campanile_store::retry(EngineError::is_transient, forget).await?;
    }
    if let Some(file) = &mut followed.schedules {
        follow_file(ctx, file, ctx.clock.now()).await?;
    }
    let recover = || recover(ctx, ctx.clock.now());
    while campanile_store::retry(EngineError::is_transient, recover)
        .await?
        .more
    {}
    start::follow_tzdata(ctx, ctx.clock.now()).await?;
    start::launch_at_start(ctx, ctx.clock.now()).await?;
    Ok(true)
}

/// Wait for the runs of this host, at most as long as the settings allow.
async fn drain(ctx: &Ctx) {
    if ctx.settings.drain.is_zero() {
        return;
    }
    ctx.leases.request_stop();
    let idle = ctx.capacity.wait_until_idle();
    if timeout(ctx.settings.drain, idle).await.is_err() {
        tracing::warn!(
            runs = ctx.leases.len(),
            "not every run ended in time; they are handed back"
        );
    }
}

/// Set `to` when `from` holds true, or when its sender is gone.
async fn forward(mut from: watch::Receiver<bool>, to: watch::Sender<bool>) {
    let _ = from.wait_for(|stop| *stop).await;
    to.send_replace(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_stops_the_host_and_an_end_does_not() {
        let (stop, _) = watch::channel(false);
        tokio::spawn(stopping_at_panic(async {}, &stop))
            .await
            .unwrap();
        assert!(!*stop.borrow());
        // Dropped midway, as when stopping takes too long.
        drop(stopping_at_panic(std::future::pending::<()>(), &stop));
        assert!(!*stop.borrow());
        let work = async {
            tokio::task::yield_now().await;
            panic!("a test");
        };
        let ended = tokio::spawn(stopping_at_panic(work, &stop)).await;
        assert!(ended.is_err_and(|error: tokio::task::JoinError| error.is_panic()));
        assert!(*stop.borrow());
    }
}
