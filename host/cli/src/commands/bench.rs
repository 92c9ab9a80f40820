//! `campanile bench`: measure the speed of launches on this machine.
//!
//! Absolute figures depend on the machine. The same process therefore measures the bare sandbox and the bare database
//! too, and reports ratios that can be compared.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde::Serialize;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::serve;
use crate::Common;
use crate::config::Config;
use crate::output::{self, Failure, Record, Result, failed};
use crate::progress::Line;
use campanile_control::admin::schedule_admin::{self, ScheduleDefinition};
use campanile_control::rules::lateness::Lag;
use campanile_control::settings::RetentionLimits;
use campanile_engine::packages::watch::{Mode, Watch};
use campanile_engine::{Engine, EngineError, Followed};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{ArtifactDigest, uuid_at};
use campanile_model::json_text::JsonObject;
use campanile_package::{Packages, PluginsFolder};
use campanile_sandbox::own_files::temporary_directory;
use campanile_schedule::policy::{Overlap, Policies};
use campanile_schedule::rule::{HashKey, Rule, RuleKind, RuleText};
use campanile_store::launch::{LaunchRow, RunEnd};
use campanile_store::task_runs::TaskRun;
use campanile_store::{Db, HostLock, LaunchStatus, Origin, packages, schedules, stats};

pub(crate) mod api;
mod big;
pub(crate) mod growth;
pub(crate) mod launches;
pub(crate) mod load;
pub(crate) mod outage;
pub(crate) mod seals;

/// The launched task reads its context, logs a line and returns a small result.
const NOOP: &[u8] = include_bytes!("../../assets/noop.wasm");
/// The name of the package and of its task.
const NAME: &str = "noop";
/// The schedules of a measurement are called `bench-0`, `bench-1`, …
const BACKLOG: &str = "bench-";
/// The number of schedules of `bench launches`.
const SCHEDULES: u32 = 1_000;
/// The time between two slots of a backlog.
const HOUR: Duration = Duration::from_secs(3_600);
/// The longest wait for anything in a benchmark.
const WAIT_MAX: Duration = Duration::from_secs(600);

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Measure how fast a backlog of no-op launches is executed
    Launches(launches::Launches),
    /// Measure how late launches are when many schedules are due at once, and count missed and doubled slots
    Burst(Burst),
    /// Measure how fast packages load, and how much compiling a large one delays launches
    Load(load::Load),
    /// Fill a database with launches, and measure launches and questions on it; `--database` says which, and it stays
    Growth(growth::Growth),
    /// Measure how much requests and listeners of the API delay launches, and how fast they are answered
    Api(api::Api),
    /// Measure how a host catches up after an outage of an hour, how late launches on time start meanwhile, and how long other
    /// writers wait
    Outage(outage::Outage),
    /// Measure how much sealing the record delays launches
    Seals(seals::Seals),
}

#[derive(Args)]
pub(crate) struct Burst {
    /// The number of schedules
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    schedules: u32,
    /// The period of the schedules
    #[arg(long, default_value = "1s", value_name = "PERIOD")]
    every: String,
    /// The duration in seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// The number of schedules beside them that are never due
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    idle: u32,
    /// How long the host serves before the first slot, in seconds; it seals the events of the schedules meanwhile
    #[arg(long, default_value_t = 0, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=3_600))]
    warm_up: u64,
}

/// The result of `bench burst`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct BurstReport {
    backend: &'static str,
    schedules: u32,
    /// Schedules beside them that were never due.
    idle_schedules: u32,
    seconds: u64,
    /// The number of slots in that time.
    slots: usize,
    succeeded: usize,
    /// Slots without a launch that succeeded.
    missed: usize,
    /// Slots with more than one launch or more than one run.
    doubled: usize,
    lag_ms: Lag,
    cpu_us_per_launch: f64,
}

impl Record for BurstReport {}

impl Bench {
    pub async fn run(self, common: &Common) -> Result {
        let config = common.config()?;
        // The hosts here must not refuse the files of the measurement, and no task here creates a file.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        match self {
            Bench::Launches(launches) => common.print(&launches.measure(&config).await?),
            Bench::Burst(burst) => {
                let report = burst.measure(&config).await?;
                common.print(&report)?;
                output::check(report.missed + report.doubled == 0)
            }
            Bench::Load(load) => common.print(&load.measure(&config).await?),
            Bench::Growth(growth) => common.print(&growth.measure(&config).await?),
            Bench::Api(api) => common.print(&api.measure(&config).await?),
            Bench::Outage(outage) => common.print(&outage.measure(&config).await?),
            Bench::Seals(seals) => common.print(&seals.measure(&config).await?),
        }
    }
}

impl Burst {
    async fn measure(self, config: &Config) -> Result<BurstReport> {
        const MARGIN: Duration = Duration::from_secs(2);
        let _step = Line::step(format_args!(
            "measuring {} schedules for {} s",
            self.schedules, self.seconds
        ));
        let rule = RuleText::new(RuleKind::Every, self.every, "UTC");
        let host = BenchHost::start(config, scratch_db(config).await?, Mode::Off).await?;
        let schedules = self.schedules..self.schedules.saturating_add(self.idle);
        let now = host.engine.clock().now();
        // They are due in a year.
        let idle = every("8760h", now);
        add_many_schedules(
            host.engine.db(),
            schedules,
            &idle,
            &beside_each_other(),
            now,
        )
        .await?;
        tokio::time::sleep(Duration::from_secs(self.warm_up)).await;
        // All schedules must be added before the first slot.
        let from = host.engine.clock().now().plus(MARGIN);
        let until = from.plus(Duration::from_secs(self.seconds));
        add_schedules(host.engine.db(), 0..self.schedules, &rule, from).await?;
        let ((), cost) = Cost::of(host.engine.clock().sleep_until(until.plus(MARGIN))).await;
        let rows = host.launches(from, until).await?;
        host.stop().await?;

        let rule = Rule::parse(&rule, HashKey::NONE)?;
        let slots = rule.slots(from, until).count() * self.schedules as usize;
        let slot = |row: &LaunchRow| (row.schedule.clone(), row.scheduled_time);
        let launched: HashSet<_> = rows.iter().map(slot).collect();
        let succeeded: HashSet<_> = rows.iter().filter(has_succeeded).map(slot).collect();
        let run_again = rows.iter().filter(|row| row.attempts > 1).count();
        Ok(BurstReport {
            backend: config.files.database.backend(),
            schedules: self.schedules,
            idle_schedules: self.idle,
            seconds: self.seconds,
            slots,
            succeeded: succeeded.len(),
            missed: slots - succeeded.len().min(slots),
            doubled: rows.len() - launched.len() + run_again,
            lag_ms: lag(&rows),
            cpu_us_per_launch: micros(cost.cpu) / rows.len().max(1) as f64,
        })
    }
}

/// Returns when the first of these launches was decided.
fn first_decision(rows: &[LaunchRow]) -> Timestamp {
    let decided = rows.iter().map(|row| row.decided_at);
    decided.min().unwrap_or(Timestamp::EPOCH)
}

/// Returns how many launches were executed in a second, from the first decision to the last recorded end.
fn launches_per_s(rows: &[LaunchRow]) -> f64 {
    let first = first_decision(rows);
    let ended = rows.iter().filter_map(|row| row.finished_at).max();
    rows.len() as f64 / ended.unwrap_or(first).since(first).as_secs_f64()
}

fn has_succeeded(row: &&LaunchRow) -> bool {
    row.status == LaunchStatus::Succeeded
}

/// Returns how late launches started after their slots.
fn lag(rows: &[LaunchRow]) -> Lag {
    let starts = rows.iter();
    Lag::of(starts.filter_map(|row| Some((row.scheduled_time, row.started_at?))))
}

/// What a piece of work took.
struct Cost {
    /// Of all threads of this process.
    cpu: Duration,
    wall: Duration,
}

impl Cost {
    /// Run `work`; return its result with its processor time and its wall time.
    async fn of<T>(work: impl Future<Output = T>) -> (T, Cost) {
        let cpu_time = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            Duration::try_from(time).unwrap_or_default()
        };
        let (before, started) = (cpu_time(), Instant::now());
        let done = work.await;
        let cpu = cpu_time() - before;
        let wall = started.elapsed();
        (done, Cost { cpu, wall })
    }
}

/// An engine on a scratch database that does not serve yet, with the no-op package in its folder.
struct Scratch {
    engine: Arc<Engine>,
    lock: HostLock,
    plugins: PluginsFolder,
    dir: TempDir,
}

impl Scratch {
    /// Create an engine on `db`. Launches of earlier measurements stay in that database.
    async fn new(config: &Config, db: Db) -> Result<Scratch> {
        Scratch::named(config, db, "bench").await
    }

    /// Create an engine for the host of this name on `db`.
    async fn named(config: &Config, db: Db, host: &str) -> Result<Scratch> {
        let clock = Clock::system();
        let dir = temporary_directory().map_err(Failure::failed)?;
        std::fs::write(dir.path().join("noop.wasm"), NOOP).map_err(Failure::failed)?;
        let loader = serve::loader(config, &clock)?;
        let rules = serve::rules(config, loader.sandbox());
        let plugins =
            PluginsFolder::open(dir.path(), Arc::clone(&loader), rules).map_err(Failure::failed)?;
        let mut settings = serve::settings(config);
        // The slots of the backlog must count as late, not as missed.
        settings.late.misfire_grace = Duration::from_secs(366 * 24 * 3_600);
        // Retention must not remove rows of a fill of many months.
        settings.retention = RetentionLimits::FOR_EVER;
        let (name, packages) = (Some(host), Packages::default());
        let (engine, lock) = Engine::start(db, clock, name, settings, packages, loader).await?;
        Ok(Scratch {
            engine,
            lock,
            plugins,
            dir,
        })
    }

    /// Load the package, as a host that serves does.
    async fn load(&mut self) -> Result {
        let scan = self.engine.scan(&mut self.plugins);
        scan.await.map_err(Failure::failed)
    }
}

/// Create an empty database that [`Db::discard`] deletes.
async fn scratch_db(config: &Config) -> Result<Db> {
    let now = Clock::system().now();
    let name = format!("campanile_bench_{}", uuid_at(now).simple());
    Ok(Db::open_scratch(&config.files.database, &name).await?)
}

/// A host that serves a database of a benchmark.
struct BenchHost {
    engine: Arc<Engine>,
    dir: TempDir,
    stop: watch::Sender<bool>,
    served: JoinHandle<Result<(), EngineError>>,
}

impl BenchHost {
    /// Serve `db`. Launches of earlier measurements stay in that database.
    async fn start(config: &Config, db: Db, mode: Mode) -> Result<BenchHost> {
        BenchHost::serve(Scratch::new(config, db).await?, mode).await
    }

    /// Serve the database of `scratch`.
    async fn serve(scratch: Scratch, mode: Mode) -> Result<BenchHost> {
        let followed = Followed {
            folder: scratch.plugins,
            watcher: Watch::start(scratch.dir.path(), mode, WAIT_MAX),
            schedules: None,
        };
        let (stop, stopping) = watch::channel(false);
        let serving = Arc::clone(&scratch.engine).serve(scratch.lock, followed, stopping);
        let host = BenchHost {
            engine: scratch.engine,
            dir: scratch.dir,
            stop,
            served: tokio::spawn(serving),
        };
        let pause = Duration::from_millis(10);
        host.until_active(NAME, NOOP, pause).await?;
        Ok(host)
    }

    /// Ask `is_done` every `pause` until it is; fail with `message` when the host ends or it takes too long.
    async fn until(
        &self,
        pause: Duration,
        message: &str,
        is_done: impl AsyncFn() -> Result<bool>,
    ) -> Result {
        let deadline = Instant::now() + WAIT_MAX;
        while !is_done().await? {
            if self.served.is_finished() || Instant::now() > deadline {
                return Err(Failure::failed(message));
            }
            tokio::time::sleep(pause).await;
        }
        Ok(())
    }

    /// Wait until the database has that version of a package as the active one; look every `pause`.
    async fn until_active(&self, name: &str, bytes: &[u8], pause: Duration) -> Result {
        let digest = ArtifactDigest::of(bytes);
        let message = format!("the host did not load the package `{name}`");
        let is_active = async || {
            let row = packages::find(&mut self.engine.db().read().await?, name).await?;
            let row = row.filter(|row| row.missing_since.is_none());
            Ok(row.is_some_and(|row| row.digest.as_ref() == Some(&digest)))
        };
        self.until(pause, &message, is_active).await
    }

    /// Wait until no slot is due and no launch is unfinished.
    async fn until_idle(&self) -> Result {
        let message = "the launches did not end in time";
        let is_idle = async || {
            let mut tx = self.engine.db().read().await?;
            let next = schedules::next_due(&mut tx).await?;
            let is_decided = next.is_none_or(|next| next > self.engine.clock().now());
            Ok(is_decided && stats::unfinished(&mut tx).await? == 0)
        };
        self.until(Duration::from_millis(100), message, is_idle)
            .await
    }

    /// Returns the launches of the schedules of a measurement with slots after `from` and until `until`.
    async fn launches(&self, from: Timestamp, until: Timestamp) -> Result<Vec<LaunchRow>> {
        self.launches_of(BACKLOG, from, until).await
    }

    /// Returns the launches of schedules with this name prefix, for slots after `from` up to and including `until`.
    async fn launches_of(
        &self,
        prefix: &str,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<LaunchRow>> {
        const PAGE: i64 = 10_000;
        let mut tx = self.engine.db().read().await?;
        let (mut rows, mut after) = (Vec::new(), None);
        loop {
            let page = campanile_store::launch::list(&mut tx, after, PAGE).await?;
            let last = page.last().map(|last| (last.id, last.scheduled_time));
            let is_in = |row: &LaunchRow| from < row.scheduled_time && row.scheduled_time <= until;
            let is_ours = |row: &LaunchRow| row.schedule.starts_with(prefix) && is_in(row);
            rows.extend(page.into_iter().filter(is_ours));
            match last {
                // The ids sort by slot, to a quarter of a second.
                Some((id, slot)) if slot.plus(Duration::from_secs(1)) > from => after = Some(id),
                _ => return Ok(rows),
            }
        }
    }

    /// Returns the launches of a backlog of `n` at `now`, without those of a backlog before it.
    async fn backlog(&self, n: u32, now: Timestamp) -> Result<Vec<LaunchRow>> {
        let slots = n.div_ceil(SCHEDULES.min(n));
        let mut rows = self.launches(now.minus(HOUR * slots), now).await?;
        rows.retain(|row| row.decided_at >= now);
        Ok(rows)
    }

    /// Stop, and delete the database.
    async fn stop(self) -> Result {
        let db = self.engine.db().clone();
        let ended = self.end().await;
        db.discard().await?;
        ended
    }

    /// Stop, and leave the database.
    async fn end(self) -> Result {
        self.stop.send_replace(true);
        let stopped = self.served.await;
        drop(self.dir);
        stopped
            .map_err(|panic| failed!("the host panicked: {panic}"))?
            .map_err(Failure::failed)
    }
}

/// Add hourly schedules with `n` undecided slots in total at `now`.
async fn add_backlog(db: &Db, n: u32, now: Timestamp) -> Result {
    // The last slot is now, so that no other slot follows during the benchmark.
    let rule = every("1h", now.minus(HOUR * 100_000));
    let schedules = SCHEDULES.min(n);
    let (each, one_more) = (n / schedules, n % schedules);
    let since = |slots: u32| now.minus(HOUR * slots);
    add_schedules(db, 0..one_more, &rule, since(each + 1)).await?;
    add_schedules(db, one_more..schedules, &rule, since(each)).await
}

/// Add schedules of the no-op package in many transactions, as if at `since` and each a microsecond after the one before. The
/// events of one moment are in one seal, and on a real record no million events are of one moment.
async fn add_many_schedules(
    db: &Db,
    numbers: std::ops::Range<u32>,
    rule: &RuleText,
    policies: &Policies,
    since: Timestamp,
) -> Result {
    const AT_ONCE: u32 = 1_000;
    for from in numbers.clone().step_by(AT_ONCE as usize) {
        let until = numbers.end.min(from.saturating_add(AT_ONCE));
        let moment = since.plus(Duration::from_micros(u64::from(from / AT_ONCE)));
        add_schedules_with(db, (BACKLOG, from..until), rule, policies, moment).await?;
    }
    Ok(())
}

/// Returns a rule with one slot in each period, counted from `anchor`.
fn every(period: &str, anchor: Timestamp) -> RuleText {
    RuleText {
        anchor: Some(anchor),
        ..RuleText::new(RuleKind::Every, period, "UTC")
    }
}

/// Add schedules of the no-op package in one transaction, as if at `since`.
async fn add_schedules(
    db: &Db,
    numbers: std::ops::Range<u32>,
    rule: &RuleText,
    since: Timestamp,
) -> Result {
    let policies = beside_each_other();
    add_schedules_with(db, (BACKLOG, numbers), rule, &policies, since).await
}

/// Returns policies launching all due slots at once. Each still goes through the overlap check.
fn beside_each_other() -> Policies {
    Policies {
        overlap: Overlap::Allow,
        max_concurrent: Some(u32::MAX),
        ..Policies::default()
    }
}

/// Add schedules of the no-op package with these policies, named by a prefix and numbers.
async fn add_schedules_with(
    db: &Db,
    (prefix, numbers): (&str, std::ops::Range<u32>),
    rule: &RuleText,
    policies: &Policies,
    since: Timestamp,
) -> Result {
    let wanted = numbers.map(|number| ScheduleDefinition {
        name: format!("{prefix}{number}"),
        package: NAME.to_owned(),
        task: None,
        rule: rule.clone(),
        policies: policies.clone(),
        args: None,
        context: JsonObject::new(),
        enabled: true,
    });
    let wanted: Vec<ScheduleDefinition> = wanted.collect();
    let adding = schedule_admin::change(db, async |tx| {
        let added = schedule_admin::add_all(tx, &wanted, Origin::Operator, since).await?;
        added.into_iter().try_for_each(|added| added.map(drop))
    });
    Ok(adding.await?)
}

/// Decide, claim and finish all launches that are due, and return their number.
async fn finish_without_calls(engine: &Engine, now: Timestamp) -> Result<usize, EngineError> {
    let output = || Some("{}".to_owned());
    let call = || TaskRun {
        output: output(),
        wall_ms: 0.1,
        cpu_ms: 0.1,
        memory_peak_bytes: 1 << 20,
        ..TaskRun::succeeded(NAME, 1, now, now)
    };
    while engine.decide(now).await?.more {}
    let mut finished = 0;
    loop {
        let work = engine.claim(now).await?;
        if work.is_empty() {
            return Ok(finished);
        }
        let ends = work.iter().map(|work| {
            let end = RunEnd::Succeeded { output: output() };
            work.finished(end, vec![call()], now)
        });
        finished += engine.finish(&ends.collect::<Vec<_>>()).await?;
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
