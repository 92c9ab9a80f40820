//! The loops of a serving host: each waits until there may be something to do, does one step, and goes on.
//!
//! Trouble with the database ends no loop: it is said once, and the step is tried again.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::audit::SKEW_REPORTED_US;
use super::backfill::BackfillProgress;
use super::room::Place;
use super::{Engine, EngineError, Following, RETRY_PAUSE, Work};
use crate::watch::Watch;
use campanile_model::clock::Timestamp;
use campanile_model::ids::RunId;
use campanile_package::PluginsFolder;
use campanile_store::runs::Finish;
use campanile_store::{DbError, HostLock, changes, package_versions, runs, schedules};

/// How often a host looks whether another process has changed schedules.
const CHANGE_INTERVAL: Duration = Duration::from_millis(500);
/// The longest a dispatcher sleeps while another host may have opened launches.
const DISPATCH_INTERVAL: Duration = Duration::from_millis(500);
/// The longest a scheduler sleeps while a backfill runs, whose launches may end at other hosts.
const BACKFILL_INTERVAL: Duration = Duration::from_secs(1);
/// The pause when a due schedule is in another transaction's hands.
const CONTENDED_PAUSE: Duration = Duration::from_millis(20);
/// Ends of runs recorded in one commit at most.
const FINISH_BATCH_MAX: usize = 256;
/// How often the offset between this host's clock and the database's is measured.
const CLOCK_INTERVAL: Duration = Duration::from_secs(60);
/// With an offset this large the host neither decides nor takes.
const SKEW_REFUSED_US: i64 = 60_000_000;

/// How long a host that stops waits for the database to take its last words.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// A run that is over, with the place it has: given back when its end is on the record.
type Ended = (Finish, Place);

impl Engine {
    /// Serve until `shutdown` says true, then drain.
    ///
    /// The host's lease is renewed from the first moment to the last: looking through a folder that has to be
    /// compiled may take longer than one lasts.
    pub async fn serve(
        self: Arc<Self>,
        lock: HostLock,
        folder: PluginsFolder,
        watcher: Watch,
        orders: Option<Following>,
        shutdown: watch::Receiver<bool>,
    ) -> Result<(), EngineError> {
        let (stop, _) = watch::channel(false);
        let (drained, draining) = watch::channel(false);
        let leases = tokio::spawn(Arc::clone(&self).lease_keeper(lock, stop.clone(), draining));
        let asked = tokio::spawn(pass_on(shutdown.clone(), stop.clone()));
        let rung = self.ring(folder, watcher, orders, &stop).await;
        asked.abort();
        drained.send_replace(true);
        // The name is this host's until its last words are on the record.
        let _lock = leases.await;
        let left = rung.as_deref().unwrap_or_default();
        let stopped = in_time(STOP_WAIT, self.stop(left, self.clock.now())).await;
        rung?;
        stopped?;
        match *shutdown.borrow() {
            true => Ok(()),
            // Nobody asked for this end.
            false => Err(EngineError::NameLost(self.name.clone())),
        }
    }

    /// Run every loop until `stop` says true, then drain; gives the runs that did not end.
    ///
    /// The folder is looked through once before anything is decided, so that no slot is skipped
    /// for a package that is merely not loaded yet, and then the schedules file, which names packages.
    async fn ring(
        self: &Arc<Self>,
        mut folder: PluginsFolder,
        watcher: Watch,
        mut orders: Option<Following>,
        stop: &watch::Sender<bool>,
    ) -> Result<Vec<RunId>, EngineError> {
        let mut stopping = stop.subscribe();
        self.expect_files(&mut folder).await?;
        tokio::select! {
            scanned = self.scan(&mut folder) => scanned?,
            _ = stopping.wait_for(|now| *now) => {
                tracing::info!("stopped before the plugin folder was looked through");
                return Ok(Vec::new());
            }
        }
        self.forget_ended_hosts(self.clock.now()).await?;
        if let Some(orders) = &mut orders {
            self.follow_file(orders, self.clock.now()).await?;
        }
        while self.recover(self.clock.now()).await?.more {}
        self.follow_tzdata(self.clock.now()).await?;
        self.launch_at_start(self.clock.now()).await?;
        tracing::info!(host = %self.name, database = %self.db.url(), packages = self.packages.all().len(), "serving");

        let (ended, ends) = mpsc::unbounded_channel();
        let mut loops = JoinSet::new();
        let engine = || Arc::clone(self);
        loops.spawn(engine().scheduler(stopping.clone()));
        loops.spawn(engine().dispatcher(ended, stopping.clone()));
        loops.spawn(engine().recovery(stopping.clone()));
        loops.spawn(engine().auditor(stopping.clone()));
        loops.spawn(engine().change_watcher(stopping.clone()));
        loops.spawn(engine().folder_watcher(folder, watcher, stopping.clone()));
        if let Some(orders) = orders {
            loops.spawn(engine().file_watcher(orders, stopping.clone()));
        }
        loops.spawn(engine().clock_keeper(stopping.clone()));
        // This one goes on while the host drains.
        let finisher = tokio::spawn(engine().finisher(ends));

        let _ = stopping.wait_for(|now| *now).await;
        let until = tokio::time::Instant::now() + STOP_WAIT;
        while let Ok(Some(ended)) = tokio::time::timeout_at(until, loops.join_next()).await {
            if let Err(panic) = ended {
                tracing::error!("a loop ended in a panic: {panic}");
            }
        }
        // One that still waits for the database does so in vain.
        loops.shutdown().await;
        self.drain().await;
        // What is still held after that is dropped and handed back.
        let left = self.holding.drop_all();
        let finisher =
            tokio::time::timeout(self.settings.drain.clamp(RETRY_PAUSE, STOP_WAIT), finisher);
        if finisher.await.is_err() {
            tracing::error!(
                "the database does not answer: ends of runs are not on the record, the next host recovers these runs"
            );
        }
        Ok(left)
    }

    /// Wait for the runs that are held, at most as long as the settings say.
    async fn drain(&self) {
        if self.settings.drain.is_zero() {
            return;
        }
        self.holding.ask_to_stop();
        if tokio::time::timeout(self.settings.drain, self.room.empty())
            .await
            .is_err()
        {
            tracing::warn!(
                runs = self.holding.runs().len(),
                "not every run ended in time; they are handed back"
            );
        }
    }

    /// Decide slots when they come.
    async fn scheduler(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        loop {
            let mut wake_at = None;
            if !self.stands_back.load(Ordering::Relaxed) {
                match self.schedule_once().await {
                    Ok(next) => wake_at = next,
                    Err(error) => {
                        self.trouble.say("deciding slots", &error);
                        wake_at = Some(self.clock.now().plus(RETRY_PAUSE));
                    }
                }
            }
            tokio::select! {
                // Also when there is something to do at once.
                biased;
                _ = stopping.wait_for(|now| *now) => return,
                () = self.clock.sleep_until(wake_at.unwrap_or(self.clock.now().plus(CLOCK_INTERVAL))) => {}
                () = self.wake.scheduler.notified() => {}
            }
        }
    }

    /// Decide all that has come, and do one step of the backfills; gives the time of the next.
    ///
    /// A backfill may have a million slots to look at: those that come meanwhile do not wait for it.
    async fn schedule_once(&self) -> Result<Option<Timestamp>, EngineError> {
        loop {
            let intended = self.intend(self.clock.now()).await?;
            if intended.decisions > 0 {
                self.trouble.over();
                self.wake.launches();
            }
            if !intended.more {
                break;
            }
        }
        let filled = self.run_backfills(self.clock.now()).await?;
        if filled.launched > 0 {
            self.wake.launches();
        }
        let mut tx = self.db.read().await?;
        let next = schedules::next_due(&mut tx).await?;
        Ok(next_look(next, filled, self.clock.now()))
    }

    /// Take launches while there is capacity, and carry them out.
    async fn dispatcher(
        self: Arc<Self>,
        ended: mpsc::UnboundedSender<Ended>,
        mut stopping: watch::Receiver<bool>,
    ) {
        loop {
            let mut pause = DISPATCH_INTERVAL;
            if !self.stands_back.load(Ordering::Relaxed) {
                let now = self.clock.now();
                if let Err(error) = self.release(now).await {
                    self.trouble.say("looking whose turn it is", &error);
                }
                match self.take(now).await {
                    Ok(work) if work.is_empty() => pause = self.until_next_launch(now).await,
                    Ok(work) => {
                        self.trouble.over();
                        for work in work {
                            self.set_off(work, &ended);
                        }
                        if *stopping.borrow() {
                            return;
                        }
                        continue;
                    }
                    Err(error) => {
                        self.trouble.say("taking launches", &error);
                        pause = RETRY_PAUSE;
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.wake.dispatcher.notified() => {}
                _ = stopping.wait_for(|now| *now) => return,
            }
        }
    }

    /// How long nothing is to be taken after all was at `now`, as far as the database knows.
    async fn until_next_launch(&self, now: Timestamp) -> Duration {
        let next = async {
            let mut tx = self.db.read().await?;
            runs::next_wake(&mut tx, now).await
        };
        match next.await {
            Ok(Some(next)) => next.since(self.clock.now()).min(DISPATCH_INTERVAL),
            _ => DISPATCH_INTERVAL,
        }
    }

    /// Carry out one run in a task of its own, so that whatever goes wrong there goes wrong alone.
    fn set_off(self: &Arc<Self>, work: Work, ended: &mpsc::UnboundedSender<Ended>) {
        let Some(place) = self.room.take() else {
            // Only this loop takes places, and it takes no more work than there are; should that
            // ever be wrong, the lease runs out and recovery takes the run.
            tracing::error!(run = %work.run_id, "taken beyond capacity");
            return;
        };
        let engine = Arc::clone(self);
        let ended = ended.clone();
        let stop = self.hold(&work);
        tokio::spawn(async move {
            let call = AssertUnwindSafe(engine.carry_out(&work, &stop)).catch_unwind();
            match call.await {
                // The finisher lives as long as anything can be sent to it.
                Ok(Some(finish)) => return drop(ended.send((finish, place))),
                Ok(None) => {}
                // Its lease runs out, and recovery takes it.
                Err(_) => {
                    tracing::error!(run = %work.run_id, "a bug in Campanile: carrying the run out ended in a panic");
                }
            }
            engine.let_go(work.run_id, work.fence);
            engine.room.give_back([place], engine.clock.now());
        });
    }

    /// Put ends on the record, as many in one commit as have come meanwhile.
    async fn finisher(self: Arc<Self>, mut ends: mpsc::UnboundedReceiver<Ended>) {
        let mut batch: Vec<Ended> = Vec::new();
        while ends.recv_many(&mut batch, FINISH_BATCH_MAX).await > 0 {
            // In one order with whoever else changes these rows.
            batch.sort_unstable_by_key(|(end, _)| end.run_id);
            let (finishes, places): (Vec<Finish>, Vec<Place>) = batch.drain(..).unzip();
            self.finish_at_last(&finishes).await;
            for finish in &finishes {
                self.let_go(finish.run_id, finish.fence);
            }
            self.room.give_back(places, self.clock.now());
            self.wake.launches();
        }
    }

    /// Put ends on the record, however long the database is away.
    async fn finish_at_last(&self, finishes: &[Finish]) {
        loop {
            match self.finish(finishes).await {
                Ok(_) => return self.trouble.over(),
                Err(error) if error.may_pass() => {
                    self.trouble.say("recording ends of runs", &error);
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => match finishes {
                    // Never again in this form; the lease runs out and recovery takes the run.
                    [one] => {
                        tracing::error!(run = %one.run_id, "the end of a run could not be recorded: {error}");
                        return;
                    }
                    // One of them is to blame; the others are recorded without it.
                    all => {
                        let (first, second) = all.split_at(all.len() / 2);
                        Box::pin(self.finish_at_last(first)).await;
                        return Box::pin(self.finish_at_last(second)).await;
                    }
                },
            }
        }
    }

    /// Renew the heartbeat, the leases and the hold on the host's name, until the host has drained.
    ///
    /// A database that does not answer at all is not waited for past the end of a lease: then the
    /// runs are dropped. Gives the name's lock back, for the host's last words.
    async fn lease_keeper(
        self: Arc<Self>,
        mut lock: HostLock,
        stop: watch::Sender<bool>,
        mut drained: watch::Receiver<bool>,
    ) -> HostLock {
        // A lost lease is noticed at once, not at the next renewal.
        let mut tick = tokio::time::interval(self.settings.renew.min(Duration::from_secs(1)));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut renew_at = tokio::time::Instant::now();
        let mut file_missed = false;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.wake.lease_keeper.notified() => renew_at = tokio::time::Instant::now(),
                _ = drained.wait_for(|now| *now) => return lock,
            }
            let begun = tokio::time::Instant::now();
            if begun >= renew_at {
                match in_time(self.patience(), self.renew(self.clock.now())).await {
                    Ok(()) => {
                        self.trouble.over();
                        renew_at = begun + self.settings.renew;
                    }
                    Err(error) => self.trouble.say("renewing leases", &error),
                }
                match in_time(self.patience(), async { Ok(lock.hold().await?) }).await {
                    Ok(true) => {}
                    Ok(false) => {
                        tracing::error!(host = %self.name, "another process serves under this host's name now; stopping");
                        stop.send_replace(true);
                    }
                    Err(error) => self.trouble.say("holding the host's name", &error),
                }
            }
            let missing = lock.missing_file();
            if let Some(file) = missing.filter(|_| !file_missed) {
                tracing::error!(
                    "{} was deleted or replaced while it is served: what is recorded from now on is lost when this process ends; stop it, and put the file back",
                    file.display()
                );
            }
            file_missed = missing.is_some();
            self.drop_expired(self.clock.now());
        }
    }

    /// How long the lease keeper waits for one answer: not past the end of the first lease.
    fn patience(&self) -> Duration {
        let first_end = self
            .holding
            .first_end()
            .map_or(self.settings.renew, |end| end.since(self.clock.now()));
        first_end.clamp(RETRY_PAUSE, self.settings.renew.max(RETRY_PAUSE))
    }

    /// Take up what dead hosts left behind.
    async fn recovery(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.settings.recovery_interval) => {}
                _ = stopping.wait_for(|now| *now) => return,
            }
            loop {
                match self.recover(self.clock.now()).await {
                    Ok(recovered) => {
                        if recovered.again > 0 {
                            self.wake.launches();
                        }
                        if !recovered.more {
                            break;
                        }
                    }
                    Err(error) => {
                        self.trouble.say("recovering", &error);
                        break;
                    }
                }
            }
        }
    }

    /// Look everything over.
    async fn auditor(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.settings.audit_interval) => {}
                _ = stopping.wait_for(|now| *now) => return,
            }
            if let Err(error) = self.audit(self.clock.now()).await {
                self.trouble.say("auditing", &error);
            }
        }
    }

    /// Notice what other processes change: a command, or another host.
    async fn change_watcher(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        let mut last = None;
        let mut decided_last = None;
        loop {
            let look = async {
                let mut tx = self.db.read().await?;
                let counter = changes::counter(&mut tx).await?;
                if last != Some(counter) {
                    let counting = schedules::after_completion(&mut tx).await?;
                    self.specs.note_counting_from_ends(counting);
                    let decided = package_versions::last_decided_at(&mut tx).await?;
                    if decided_last.replace(decided) != Some(decided) {
                        self.wake.folder();
                    }
                }
                Ok::<_, DbError>(counter)
            };
            if let Ok(counter) = look.await
                && last.replace(counter) != Some(counter)
            {
                self.wake.schedules();
                self.wake.launches();
                // A run may have been asked to end, or be over.
                self.wake.leases();
            }
            tokio::select! {
                () = tokio::time::sleep(CHANGE_INTERVAL) => {}
                _ = stopping.wait_for(|now| *now) => return,
            }
        }
    }

    /// Follow the plugin folder.
    async fn folder_watcher(
        self: Arc<Self>,
        mut folder: PluginsFolder,
        mut watcher: Watch,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut again = false;
        loop {
            let hint = async {
                match again {
                    // What could not be recorded does not wait for the folder to change.
                    true => tokio::time::sleep(RETRY_PAUSE).await,
                    false => watcher.changed().await,
                }
            };
            tokio::select! {
                () = hint => {}
                () = self.wake.folder_watcher.notified() => {}
                _ = stopping.wait_for(|now| *now) => return,
            }
            // A scan that compiles may take long.
            let scanned = tokio::select! {
                scanned = self.scan(&mut folder) => scanned,
                _ = stopping.wait_for(|now| *now) => return,
            };
            again = scanned.as_ref().is_err_and(EngineError::may_pass);
            if let Err(error) = scanned {
                self.trouble.say("following the plugin folder", &error);
            }
        }
    }

    /// Follow the schedules file.
    async fn file_watcher(
        self: Arc<Self>,
        mut orders: Following,
        mut stopping: watch::Receiver<bool>,
    ) {
        loop {
            tokio::select! {
                () = orders.hint() => {}
                _ = stopping.wait_for(|now| *now) => return,
            }
            let followed = tokio::select! {
                followed = self.follow_file(&mut orders, self.clock.now()) => followed,
                _ = stopping.wait_for(|now| *now) => return,
            };
            if let Err(error) = followed {
                self.trouble.say("following the schedules file", &error);
            }
        }
    }

    /// Follow the database's clock: among many hosts one clock decides.
    async fn clock_keeper(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(CLOCK_INTERVAL) => {}
                _ = stopping.wait_for(|now| *now) => return,
            }
            if let Err(error) = self.measure_clock().await {
                self.trouble.say("reading the database's clock", &error);
            }
        }
    }

    /// Follow the database's clock from now on, and stand back while this machine's is too far off.
    pub(super) async fn measure_clock(&self) -> Result<(), EngineError> {
        let Some(offset_us) = self.db.clock_offset_us(&self.clock).await? else {
            return Ok(());
        };
        self.clock.set_offset_us(offset_us);
        let stands_back = is_too_far(offset_us);
        if self.stands_back.swap(stands_back, Ordering::Relaxed) != stands_back
            || offset_us.abs() >= SKEW_REPORTED_US
        {
            tracing::warn!(
                offset_ms = offset_us / 1_000,
                stands_back,
                "this machine's clock and the database's differ; the database's decides"
            );
        }
        Ok(())
    }
}

/// Pure: whether a host whose clock is `offset_us` off the database's neither decides nor takes.
fn is_too_far(offset_us: i64) -> bool {
    offset_us.abs() >= SKEW_REFUSED_US
}

/// Pure: when the scheduler looks again, whose next slot is due at `next` and whose backfills did a step of theirs.
fn next_look(
    next: Option<Timestamp>,
    filled: BackfillProgress,
    now: Timestamp,
) -> Option<Timestamp> {
    let contended = now.plus(CONTENDED_PAUSE);
    let next = next.map(|next| if next <= now { contended } else { next });
    let run_backfills = match (filled.has_more, filled.is_running) {
        (true, _) => Some(now),
        (false, true) => Some(now.plus(BACKFILL_INTERVAL)),
        (false, false) => None,
    };
    next.into_iter().chain(run_backfills).min()
}

/// Say on `to` that `from` has said true, or that nobody is left to say it.
async fn pass_on(mut from: watch::Receiver<bool>, to: watch::Sender<bool>) {
    let _ = from.wait_for(|now| *now).await;
    to.send_replace(true);
}

/// Give up on a database that does not answer within `limit`.
async fn in_time<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, EngineError> {
    let silent = |_| DbError::Unavailable(format!("no answer in {:.1} s", limit.as_secs_f64()));
    tokio::time::timeout(limit, step).await.map_err(silent)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_a_minute_off_stands_back() {
        for (offset_us, stands_back) in [
            (0, false),
            (59_999_999, false),
            (-59_999_999, false),
            (60_000_000, true),
            (-60_000_000, true),
            (i64::from(u32::MAX) * 1_000_000, true),
        ] {
            assert_eq!(is_too_far(offset_us), stands_back, "{offset_us}");
        }
    }

    #[test]
    fn slots_are_decided_between_two_steps_of_a_backfill() {
        let now = Timestamp::from_micros(0);
        let after = |millis| Some(now.plus(Duration::from_millis(millis)));
        for (is_running, has_more, next, looks) in [
            (false, false, None, None),
            (false, false, after(0), after(20)),
            (false, false, after(5_000), after(5_000)),
            (true, false, None, after(1_000)),
            (true, false, after(30), after(30)),
            // At once, and what is due is decided first.
            (true, true, after(5_000), after(0)),
        ] {
            let filled = BackfillProgress {
                launched: 0,
                is_running,
                has_more,
            };
            assert_eq!(next_look(next, filled, now), looks, "{filled:?} {next:?}");
        }
    }
}
