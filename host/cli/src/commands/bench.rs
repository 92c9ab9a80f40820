//! `campanile bench`: measure the speed of launches on this machine.
//!
//! Absolute figures depend on the machine. The same process therefore measures the bare sandbox and the bare database
//! too, and reports ratios that can be compared.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::Map;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::serve;
use super::stats::lag_text;
use crate::Common;
use crate::config::Config;
use crate::output::{self, Failure, Record};
use campanile_engine::audit::Lag;
use campanile_engine::schedule_admin::{self, ScheduleDefinition};
use campanile_engine::watch::{Mode, Watch};
use campanile_engine::{Engine, EngineError, Followed, Settings};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{ArtifactDigest, RunId};
use campanile_package::{HostRules, Packages, PluginsFolder};
use campanile_sandbox::{Call, Grants, Limits, MemoryBuckets, Outcome, Sandbox, StopSignal, World};
use campanile_schedule::policy::{Overlap, Policies};
use campanile_schedule::rule::{HashKey, Rule, RuleKind, RuleText};
use campanile_store::launches::{self, LaunchRow};
use campanile_store::runs::RunEnd;
use campanile_store::task_runs::TaskRun;
use campanile_store::{Db, LaunchStatus, Origin, packages, schedules, stats};
use campanile_workflow::context::{self, Facts};

mod big;
pub(crate) mod load;

/// The launched task reads its context, logs a line and returns a small result.
const NOOP: &[u8] = include_bytes!("../../assets/noop.wasm");
/// The name of the package and of its task.
const NAME: &str = "noop";
/// The number of schedules of `bench launches`.
const SCHEDULES: u32 = 1_000;
/// The number of calls of the bare sandbox. A tenth as many warm it up.
const SANDBOX_CALLS: u32 = 10_000;
/// The longest wait for anything in a benchmark.
const WAIT_MAX: Duration = Duration::from_secs(600);

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Measure how fast a backlog of no-op launches is executed
    Launches(Launches),
    /// Measure how late launches are when many schedules are due at once, and count missed and doubled slots
    Burst(Burst),
    /// Measure how fast packages load, and how much compiling a large one delays launches
    Load(load::Load),
}

#[derive(Args)]
pub(crate) struct Launches {
    /// The number of launches
    #[arg(short, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    n: u32,
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
}

/// The result of `bench launches`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct LaunchesReport {
    backend: &'static str,
    launches: u32,
    /// Measured from the first decision to the last recorded finish.
    launches_per_s: f64,
    /// From the first decision, when every launch is due, to the start of each launch.
    lag_ms: Lag,
    /// The CPU time of this process, user and system, of all threads.
    cpu_us_per_launch: f64,
    /// The CPU time of a launch divided by that of a bare call.
    ratio_to_sandbox: f64,
    /// The time of a launch divided by that of its three transactions alone.
    ratio_to_database: f64,
    sandbox_cpu_us_per_call: f64,
    sandbox_calls_per_s: f64,
    database_launches_per_s: f64,
}

/// The result of `bench burst`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct BurstReport {
    backend: &'static str,
    schedules: u32,
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

impl Record for LaunchesReport {
    const DETAIL: &'static str = "backend launches launches_per_s lag_ms cpu_us_per_launch ratio_to_sandbox \
        ratio_to_database sandbox_cpu_us_per_call sandbox_calls_per_s database_launches_per_s";

    fn text(&self, key: &str) -> Option<String> {
        (key == "lag_ms").then(|| lag_text(&self.lag_ms))
    }
}

impl Record for BurstReport {
    const DETAIL: &'static str =
        "backend schedules seconds slots succeeded missed doubled lag_ms cpu_us_per_launch";

    fn text(&self, key: &str) -> Option<String> {
        (key == "lag_ms").then(|| lag_text(&self.lag_ms))
    }
}

impl Bench {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let config = common.config()?;
        match self {
            Bench::Launches(launches) => launches.run(common, &config).await,
            Bench::Burst(burst) => burst.run(common, &config).await,
            Bench::Load(load) => load.run(common, &config).await,
        }
    }
}

impl Launches {
    async fn run(self, common: &Common, config: &Config) -> Result<ExitCode, Failure> {
        let sandbox = bare_sandbox(config).await?;
        let database = bare_database(config, self.n).await?;

        let host = BenchHost::start(config, Mode::Off).await?;
        host.add_backlog(self.n).await?;
        // Adding schedules and reading the rows are not parts of a launch.
        let before = cpu_time();
        host.until_idle().await?;
        let cpu = cpu_time() - before;
        let rows = host.succeeded(self.n as usize).await?;
        host.stop().await?;

        let first = rows.iter().map(|row| row.claimed_at).min();
        let ended = rows.iter().filter_map(|row| row.finished_at).max();
        let (Some(first), Some(ended)) = (first, ended) else {
            return Err(Failure::failed("no launch was finished"));
        };
        let per_s = f64::from(self.n) / ended.since(first).as_secs_f64();
        let cpu_us = micros(cpu) / f64::from(self.n);
        let starts = rows.iter().filter_map(|row| row.started_at);
        let report = LaunchesReport {
            backend: config.files.database.backend(),
            launches: self.n,
            launches_per_s: per_s,
            lag_ms: Lag::of(starts.map(|start| (first, start))),
            cpu_us_per_launch: cpu_us,
            ratio_to_sandbox: cpu_us / sandbox.cpu_us,
            ratio_to_database: database / per_s,
            sandbox_cpu_us_per_call: sandbox.cpu_us,
            sandbox_calls_per_s: sandbox.per_s,
            database_launches_per_s: database,
        };
        output::print_record(&report, common.json)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Burst {
    async fn run(self, common: &Common, config: &Config) -> Result<ExitCode, Failure> {
        let host = BenchHost::start(config, Mode::Off).await?;
        let rule = RuleText::new(RuleKind::Every, &self.every, "UTC");
        // All schedules must be added before the first slot.
        let from = host.clock.now().plus(Duration::from_secs(2));
        let until = from.plus(Duration::from_secs(self.seconds));
        host.add_schedules(self.schedules, &rule, from).await?;
        let before = cpu_time();
        host.clock
            .sleep_until(until.plus(Duration::from_secs(2)))
            .await;
        let cpu = cpu_time() - before;
        let rows: Vec<LaunchRow> = {
            let mut tx = host.db.read().await?;
            let rows = launches::list(&mut tx, None, i64::MAX).await?;
            let in_time =
                |row: &LaunchRow| from < row.scheduled_time && row.scheduled_time <= until;
            rows.into_iter().filter(in_time).collect()
        };
        host.stop().await?;

        let rule = Rule::parse(&rule, HashKey::NONE)?;
        let slots = rule.slots(from, until).count() * self.schedules as usize;
        let succeeded = |row: &&LaunchRow| row.status == LaunchStatus::Succeeded;
        let distinct: std::collections::HashSet<(&str, Timestamp)> = rows
            .iter()
            .filter(succeeded)
            .map(|row| (row.schedule.as_str(), row.scheduled_time))
            .collect();
        let again = rows.iter().filter(|row| row.attempts > 1).count();
        let starts = rows
            .iter()
            .filter_map(|row| Some((row.scheduled_time, row.started_at?)));
        let report = BurstReport {
            backend: config.files.database.backend(),
            schedules: self.schedules,
            seconds: self.seconds,
            slots,
            succeeded: distinct.len(),
            missed: slots - distinct.len().min(slots),
            doubled: rows.len()
                - rows
                    .iter()
                    .map(|row| (&row.schedule, row.scheduled_time))
                    .collect::<std::collections::HashSet<_>>()
                    .len()
                + again,
            lag_ms: Lag::of(starts),
            cpu_us_per_launch: micros(cpu) / rows.len().max(1) as f64,
        };
        output::print_record(&report, common.json)?;
        Ok(output::exit_code(report.missed + report.doubled == 0))
    }
}

/// A host on a scratch database, with the no-op package in its folder.
struct BenchHost {
    db: Db,
    clock: Clock,
    folder: tempfile::TempDir,
    stop: watch::Sender<bool>,
    served: JoinHandle<Result<(), EngineError>>,
}

impl BenchHost {
    async fn start(config: &Config, mode: Mode) -> Result<BenchHost, Failure> {
        let (engine, lock, folder, dir) = engine(config).await?;
        let db = engine.db().clone();
        let clock = engine.clock().clone();
        let followed = Followed {
            folder,
            watcher: Watch::start(dir.path(), mode, WAIT_MAX),
            schedules: None,
        };
        let (stop, stopping) = watch::channel(false);
        let served = tokio::spawn(Arc::clone(&engine).serve(lock, followed, stopping));
        let deadline = Instant::now() + WAIT_MAX;
        while !is_active(&db, NAME, &ArtifactDigest::of(NOOP)).await? {
            if served.is_finished() || Instant::now() > deadline {
                return Err(Failure::failed("the host did not load the no-op package"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(BenchHost {
            db,
            clock,
            folder: dir,
            stop,
            served,
        })
    }

    /// Make `n` launches due.
    async fn add_backlog(&self, n: u32) -> Result<(), Failure> {
        add_backlog(&self.db, n, self.clock.now()).await
    }

    async fn add_schedules(
        &self,
        count: u32,
        rule: &RuleText,
        from: Timestamp,
    ) -> Result<(), Failure> {
        add_schedules(&self.db, 0..count, rule, from).await
    }

    /// Wait until no slot is due and no launch is unfinished.
    async fn until_idle(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + WAIT_MAX;
        while Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let mut tx = self.db.read().await?;
            let next = schedules::next_due(&mut tx).await?;
            let undecided = next.is_some_and(|next| next <= self.clock.now());
            if !undecided && stats::unfinished(&mut tx).await? == 0 {
                return Ok(());
            }
        }
        Err(Failure::failed("the launches did not end in time"))
    }

    /// Return the rows of all launches; `n` of them must have succeeded.
    async fn succeeded(&self, n: usize) -> Result<Vec<LaunchRow>, Failure> {
        let mut tx = self.db.read().await?;
        let rows = launches::list(&mut tx, None, i64::MAX).await?;
        let succeeded = |row: &&LaunchRow| row.status == LaunchStatus::Succeeded;
        match rows.iter().filter(succeeded).count() {
            all if all == n => Ok(rows),
            some => Err(Failure::failed(format!("{some} of {n} launches succeeded"))),
        }
    }

    async fn stop(self) -> Result<(), Failure> {
        self.stop.send_replace(true);
        let stopped = self.served.await;
        drop(self.folder);
        self.db.discard().await?;
        match stopped {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::failed(error)),
            Err(panic) => Err(Failure::failed(format!("the host panicked: {panic}"))),
        }
    }
}

/// Return whether the database has that version of a package as the active one.
async fn is_active(db: &Db, name: &str, digest: &ArtifactDigest) -> Result<bool, Failure> {
    let mut tx = db.read().await?;
    let row = packages::find(&mut tx, name).await?;
    Ok(row.is_some_and(|row| row.digest.as_ref() == Some(digest) && row.missing_since.is_none()))
}

type Parts = (
    Arc<Engine>,
    campanile_store::HostLock,
    PluginsFolder,
    tempfile::TempDir,
);

/// Create a host that does not serve yet.
async fn engine(config: &Config) -> Result<Parts, Failure> {
    let clock = Clock::system();
    let name = format!("campanile_bench_{}", RunId::new(clock.now()).0.simple());
    let db = Db::open_scratch(&config.files.database, &name).await?;
    let dir = tempfile::tempdir().map_err(Failure::failed)?;
    std::fs::write(dir.path().join("noop.wasm"), NOOP).map_err(Failure::failed)?;
    let sandbox = sandbox(config, &clock)?;
    let rules = HostRules {
        limits: config.limits.clone(),
        memory_bytes_most: config.sandbox.memory_bytes_max,
        env: |_| None,
        own_paths: config.own_paths(),
        secrets: BTreeSet::new(),
    };
    let folder =
        PluginsFolder::open(dir.path(), Arc::clone(&sandbox), rules).map_err(Failure::failed)?;
    let mut settings: Settings = serve::settings(config);
    // The slots of the backlog must count as late, not as missed.
    settings.late.misfire_grace = Duration::from_secs(366 * 24 * 3_600);
    let (engine, lock) = Engine::start(
        db,
        clock,
        Some("bench"),
        settings,
        Packages::default(),
        sandbox,
    )
    .await?;
    Ok((engine, lock, folder, dir))
}

fn sandbox(config: &Config, clock: &Clock) -> Result<Arc<Sandbox>, Failure> {
    Sandbox::new(config.sandbox_settings(), clock.clone())
        .map(Arc::new)
        .map_err(Failure::failed)
}

/// Add hourly schedules with `n` undecided slots in total at `now`.
async fn add_backlog(db: &Db, n: u32, now: Timestamp) -> Result<(), Failure> {
    const HOUR: Duration = Duration::from_secs(3_600);
    let rule = RuleText {
        // The last slot is now, so that no other slot follows during the benchmark.
        anchor: Some(now.minus(HOUR * 100_000)),
        ..RuleText::new(RuleKind::Every, "1h", "UTC")
    };
    let schedules = SCHEDULES.min(n);
    let (each, one_more) = (n / schedules, n % schedules);
    let since = |slots: u32| now.minus(HOUR * slots);
    add_schedules(db, 0..one_more, &rule, since(each + 1)).await?;
    add_schedules(db, one_more..schedules, &rule, since(each)).await
}

/// Return policies that launch all due slots at once, and still check each for overlap.
fn allow_overlap() -> Policies {
    Policies {
        overlap: Overlap::Allow,
        max_concurrent: Some(u32::MAX),
        ..Policies::default()
    }
}

/// Add schedules of the no-op package in one transaction, as if at `since`.
async fn add_schedules(
    db: &Db,
    numbers: std::ops::Range<u32>,
    rule: &RuleText,
    since: Timestamp,
) -> Result<(), Failure> {
    schedule_admin::change(db, async |tx| {
        for number in numbers.clone() {
            let wanted = ScheduleDefinition {
                name: format!("bench-{number}"),
                package: NAME.to_owned(),
                task: None,
                rule: rule.clone(),
                policies: allow_overlap(),
                context: Map::new(),
            };
            schedule_admin::add(tx, &wanted, Origin::Package, since).await?;
        }
        Ok(())
    })
    .await?;
    Ok(())
}

/// The speed of the bare sandbox.
struct Bare {
    cpu_us: f64,
    per_s: f64,
}

/// Measure instantiation and call alone, on one guest thread.
async fn bare_sandbox(config: &Config) -> Result<Bare, Failure> {
    let clock = Clock::system();
    let sandbox = sandbox(config, &clock)?;
    let artifact = sandbox
        .load(NOOP)
        .map_err(|refusal| Failure::failed(refusal.to_string()))?;
    let now = clock.now();
    let facts = Facts::by_hand(now);
    let call = Call {
        artifact: Arc::new(artifact),
        task: NAME.to_owned(),
        context: context::of_call(Map::new(), &facts),
        facts: facts.of_run(now),
        grants: Arc::new(Grants::default()),
        secrets: Arc::default(),
        limits: Limits::default(),
        world: World::real(Arc::new(MemoryBuckets::default())),
        stop: StopSignal::default(),
    };
    sandbox.run_in_a_row(call.clone(), SANDBOX_CALLS / 10).await;
    let (before, started) = (cpu_time(), Instant::now());
    let report = sandbox.run_in_a_row(call, SANDBOX_CALLS).await;
    let (cpu, wall) = (cpu_time() - before, started.elapsed());
    if report.outcome != Outcome::Succeeded {
        return Err(Failure::failed(format!(
            "the no-op task ended as {}",
            report.outcome
        )));
    }
    Ok(Bare {
        cpu_us: micros(cpu) / f64::from(SANDBOX_CALLS),
        per_s: f64::from(SANDBOX_CALLS) / wall.as_secs_f64(),
    })
}

/// Measure the three transactions of `n` launches without calls; return launches per second.
async fn bare_database(config: &Config, n: u32) -> Result<f64, Failure> {
    let (engine, lock, mut folder, dir) = engine(config).await?;
    let failed = |error: EngineError| Failure::failed(error);
    engine.scan(&mut folder).await.map_err(failed)?;
    let now = engine.clock().now();
    add_backlog(engine.db(), n, now).await?;
    let started = Instant::now();
    while engine.decide(now).await.map_err(failed)?.more {}
    let mut finished = 0;
    loop {
        let work = engine.claim(now).await.map_err(failed)?;
        if work.is_empty() {
            break;
        }
        let ends: Vec<_> = work
            .iter()
            .map(|work| {
                let end = RunEnd::Succeeded {
                    output: Some("{}".to_owned()),
                };
                work.finished(end, vec![noop_call(now)], engine.clock().now())
            })
            .collect();
        finished += engine.finish(&ends).await.map_err(failed)?;
    }
    let wall = started.elapsed();
    drop(lock);
    drop(dir);
    engine.db().clone().discard().await?;
    if finished != n as usize {
        return Err(Failure::failed(format!(
            "{finished} of {n} launches ended in the bare database loop"
        )));
    }
    Ok(f64::from(n) / wall.as_secs_f64())
}

fn noop_call(now: Timestamp) -> TaskRun {
    TaskRun {
        output: Some("{}".to_owned()),
        wall_ms: 0.1,
        cpu_ms: 0.1,
        memory_peak_bytes: 1 << 20,
        ..TaskRun::succeeded(NAME, 1, now, now)
    }
}

/// Return the CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}
