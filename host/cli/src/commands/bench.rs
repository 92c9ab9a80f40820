//! `campanile bench`: how fast launches are on this machine, beside the floors they stand on.
//!
//! A figure alone says little of a machine that nobody knows; so the same process also measures
//! the bare sandbox and the bare database, and the ratios are what to compare.

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
use crate::Common;
use crate::config::Config;
use crate::output::{self, Failure};
use campanile_engine::audit::Lag;
use campanile_engine::context::{self, Facts};
use campanile_engine::schedule_admin::{self, Wanted};
use campanile_engine::watch::{Mode, Watch};
use campanile_engine::{Engine, EngineError, Settings};
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

mod big;
mod load;

/// The task that is launched: it reads its context, logs a line and gives a small result.
const NOOP: &[u8] = include_bytes!("../../../../tests/guests/noop.wasm");
/// The package and the task have one name.
const NAME: &str = "noop";
/// Schedules among which the launches of `bench launches` are spread.
const SCHEDULES: u32 = 1_000;
/// Calls of the bare sandbox, after as many to warm up as a tenth of them.
const SANDBOX_CALLS: u32 = 10_000;
/// Nothing here may take longer.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Drain a backlog of no-op launches through the whole path, as fast as it goes
    Launches(Launches),
    /// Many schedules due at the same moment, again and again: how late, and is any missed or doubled
    Burst(Burst),
    /// How soon packages are there, and whether launches feel it when a large one is compiled
    Load(load::Load),
}

#[derive(Args)]
pub(crate) struct Launches {
    /// How many launches
    #[arg(short, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    n: u32,
}

#[derive(Args)]
pub(crate) struct Burst {
    /// How many schedules
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    schedules: u32,
    /// Their period
    #[arg(long, default_value = "1s", value_name = "PERIOD")]
    every: String,
    /// For how long, in seconds
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
}

/// What `bench launches` measured.
#[derive(Serialize)]
struct LaunchesReport {
    backend: &'static str,
    launches: u32,
    /// From the first decision to the last finish on the record.
    launches_per_s: f64,
    /// From the first decision, when every launch was already due, to the launch's start.
    lag_ms: Lag,
    /// Of this process: user and system, all threads.
    cpu_us_per_launch: f64,
    /// CPU time of a launch ÷ CPU time of a bare call.
    ratio_to_sandbox: f64,
    /// Time of a launch ÷ time of its three transactions alone, one after another.
    ratio_to_database: f64,
    sandbox_cpu_us_per_call: f64,
    sandbox_calls_per_s: f64,
    database_launches_per_s: f64,
}

/// What `bench burst` measured.
#[derive(Serialize)]
struct BurstReport {
    backend: &'static str,
    schedules: u32,
    seconds: u64,
    /// Slots that came in that time.
    slots: usize,
    succeeded: usize,
    /// Slots without a launch that succeeded.
    missed: usize,
    /// Slots with more than one launch or more than one run.
    doubled: usize,
    lag_ms: Lag,
    cpu_us_per_launch: f64,
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

        let tower = Tower::raise(config, Mode::Off).await?;
        tower.owe(self.n).await?;
        // Neither making the schedules nor reading the record is a part of a launch.
        let before = cpu_time();
        tower.ended().await?;
        let cpu = cpu_time() - before;
        let rows = tower.succeeded(self.n as usize).await?;
        tower.raze().await?;

        let begun = rows.iter().map(|row| row.claimed_at).min();
        let ended = rows.iter().filter_map(|row| row.finished_at).max();
        let (Some(begun), Some(ended)) = (begun, ended) else {
            return Err(Failure::failed("no launch was finished"));
        };
        let per_s = f64::from(self.n) / ended.since(begun).as_secs_f64();
        let cpu_us = micros(cpu) / f64::from(self.n);
        let starts = rows.iter().filter_map(|row| row.started_at);
        let report = LaunchesReport {
            backend: config.database.backend(),
            launches: self.n,
            launches_per_s: per_s,
            lag_ms: Lag::of(starts.map(|start| (begun, start))),
            cpu_us_per_launch: cpu_us,
            ratio_to_sandbox: cpu_us / sandbox.cpu_us,
            ratio_to_database: database / per_s,
            sandbox_cpu_us_per_call: sandbox.cpu_us,
            sandbox_calls_per_s: sandbox.per_s,
            database_launches_per_s: database,
        };
        if common.json {
            output::json_out(&report)?;
            return Ok(ExitCode::SUCCESS);
        }
        let lag = report.lag_ms;
        for line in [
            format!("{} launches on {}", report.launches, report.backend),
            format!("launches/s        {:10.0}", report.launches_per_s),
            format!(
                "lag ms            p50 {:.1}  p99 {:.1}  max {:.1}",
                lag.p50, lag.p99, lag.max
            ),
            format!("CPU µs a launch   {:10.1}", report.cpu_us_per_launch),
            format!(
                "  × bare sandbox  {:10.2}   ({:.1} µs of CPU a call, {:.0} calls/s on one thread)",
                report.ratio_to_sandbox, report.sandbox_cpu_us_per_call, report.sandbox_calls_per_s
            ),
            format!(
                "time × bare database {:7.2}   ({:.0} launches/s through the three transactions alone)",
                report.ratio_to_database, report.database_launches_per_s
            ),
        ] {
            output::line(&line)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Burst {
    async fn run(self, common: &Common, config: &Config) -> Result<ExitCode, Failure> {
        let tower = Tower::raise(config, Mode::Off).await?;
        let rule = RuleText::new(RuleKind::Every, &self.every, "UTC");
        // A little ahead, so that every schedule is in place when the first slot comes.
        let from = tower.clock.now().plus(Duration::from_secs(2));
        let until = from.plus(Duration::from_secs(self.seconds));
        tower.add_schedules(self.schedules, &rule, from).await?;
        let before = cpu_time();
        tower
            .clock
            .sleep_until(until.plus(Duration::from_secs(2)))
            .await;
        let cpu = cpu_time() - before;
        let rows: Vec<LaunchRow> = {
            let mut tx = tower.db.read().await?;
            let rows = launches::list(&mut tx, None, i64::MAX).await?;
            let in_time =
                |row: &LaunchRow| from < row.scheduled_time && row.scheduled_time <= until;
            rows.into_iter().filter(in_time).collect()
        };
        tower.raze().await?;

        let rule = Rule::parse(&rule, HashKey::NONE)
            .map_err(|error| Failure::refused(error.to_string()).hint(error.hint()))?;
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
            backend: config.database.backend(),
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
        if common.json {
            output::json_out(&report)?;
        } else {
            let lag = report.lag_ms;
            output::line(&format!(
                "{} schedules every {} for {} s on {}: {} slots, {} missed, {} doubled",
                report.schedules,
                self.every,
                report.seconds,
                report.backend,
                report.slots,
                report.missed,
                report.doubled
            ))?;
            output::line(&format!(
                "lag ms            p50 {:.1}  p99 {:.1}  max {:.1}",
                lag.p50, lag.p99, lag.max
            ))?;
            output::line(&format!(
                "CPU µs a launch   {:10.1}",
                report.cpu_us_per_launch
            ))?;
        }
        Ok(if report.missed + report.doubled == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

/// A serving host on a scratch database, with the no-op package in its folder.
struct Tower {
    db: Db,
    clock: Clock,
    folder: tempfile::TempDir,
    stop: watch::Sender<bool>,
    served: JoinHandle<Result<(), EngineError>>,
}

impl Tower {
    async fn raise(config: &Config, mode: Mode) -> Result<Tower, Failure> {
        let (engine, lock, folder, dir) = engine(config).await?;
        let db = engine.db().clone();
        let clock = engine.clock().clone();
        let watch = Watch::start(dir.path(), mode, PATIENCE);
        let (stop, stopping) = watch::channel(false);
        let served = tokio::spawn(Arc::clone(&engine).serve(lock, folder, watch, None, stopping));
        let deadline = Instant::now() + PATIENCE;
        while !is_in_force(&db, NAME, &ArtifactDigest::of(NOOP)).await? {
            if served.is_finished() || Instant::now() > deadline {
                return Err(Failure::failed("the host did not load the no-op package"));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(Tower {
            db,
            clock,
            folder: dir,
            stop,
            served,
        })
    }

    /// Make `n` launches due.
    async fn owe(&self, n: u32) -> Result<(), Failure> {
        owe(&self.db, n, self.clock.now()).await
    }

    async fn add_schedules(
        &self,
        count: u32,
        rule: &RuleText,
        from: Timestamp,
    ) -> Result<(), Failure> {
        add_schedules(&self.db, 0..count, rule, from).await
    }

    /// Wait until nothing is due and nothing goes on.
    async fn ended(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
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

    /// The rows of all launches, of which `n` must have succeeded.
    async fn succeeded(&self, n: usize) -> Result<Vec<LaunchRow>, Failure> {
        let mut tx = self.db.read().await?;
        let rows = launches::list(&mut tx, None, i64::MAX).await?;
        let succeeded = |row: &&LaunchRow| row.status == LaunchStatus::Succeeded;
        match rows.iter().filter(succeeded).count() {
            all if all == n => Ok(rows),
            some => Err(Failure::failed(format!("{some} of {n} launches succeeded"))),
        }
    }

    async fn raze(self) -> Result<(), Failure> {
        self.stop.send_replace(true);
        let stopped = self.served.await;
        drop(self.folder);
        self.db.discard().await?;
        match stopped {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::failed(error.to_string())),
            Err(panic) => Err(Failure::failed(format!("the host panicked: {panic}"))),
        }
    }
}

/// Whether the record has that version of a package in force: a moment later than the host has it.
async fn is_in_force(db: &Db, name: &str, digest: &ArtifactDigest) -> Result<bool, Failure> {
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

/// A host that has not begun to serve.
async fn engine(config: &Config) -> Result<Parts, Failure> {
    let clock = Clock::system();
    let name = format!("campanile_bench_{}", RunId::new(clock.now()).0.simple());
    let db = Db::open_scratch(&config.database, &name).await?;
    let dir = tempfile::tempdir().map_err(|error| Failure::failed(error.to_string()))?;
    std::fs::write(dir.path().join("noop.wasm"), NOOP)
        .map_err(|error| Failure::failed(error.to_string()))?;
    let sandbox = sandbox(config, &clock)?;
    let rules = HostRules {
        limits: config.limits.clone(),
        memory_bytes_most: config.sandbox.memory_bytes_max,
        env: |_| None,
        own_paths: config.own_paths(),
        secrets: BTreeSet::new(),
    };
    let folder = PluginsFolder::open(dir.path(), Arc::clone(&sandbox), rules)
        .map_err(|error| Failure::failed(error.to_string()))?;
    let mut settings: Settings = serve::settings(config);
    // A backlog made for the purpose is late, not missed.
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
        .map_err(|error| Failure::failed(error.to_string()))
}

/// Add hourly schedules that owe `n` launches in all at `now`.
async fn owe(db: &Db, n: u32, now: Timestamp) -> Result<(), Failure> {
    const HOUR: Duration = Duration::from_secs(3_600);
    let rule = RuleText {
        // The last slot is now; none follows while this runs.
        anchor: Some(now.minus(HOUR * 100_000)),
        ..RuleText::new(RuleKind::Every, "1h", "UTC")
    };
    let schedules = SCHEDULES.min(n);
    let (each, one_more) = (n / schedules, n % schedules);
    let since = |slots: u32| now.minus(HOUR * slots);
    add_schedules(db, 0..one_more, &rule, since(each + 1)).await?;
    add_schedules(db, one_more..schedules, &rule, since(each)).await
}

/// Slots that are all due at once are launched beside each other; each is still looked at beside the others.
fn side_by_side() -> Policies {
    Policies {
        overlap: Overlap::Allow,
        max_concurrent: Some(u32::MAX),
        ..Policies::default()
    }
}

/// Add schedules of the no-op package as if at `since`, all in one transaction.
async fn add_schedules(
    db: &Db,
    numbers: std::ops::Range<u32>,
    rule: &RuleText,
    since: Timestamp,
) -> Result<(), Failure> {
    schedule_admin::change(db, async |tx| {
        for number in numbers.clone() {
            let wanted = Wanted {
                name: format!("bench-{number}"),
                package: NAME.to_owned(),
                task: None,
                rule: rule.clone(),
                policies: side_by_side(),
                context: Map::new(),
            };
            schedule_admin::add(tx, &wanted, Origin::Package, since).await?;
        }
        Ok(())
    })
    .await?;
    Ok(())
}

struct Bare {
    cpu_us: f64,
    per_s: f64,
}

/// Instantiate and call, nothing else, on one of the guests' threads.
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

/// The three transactions of `n` launches one batch after another, without any call; gives launches per second.
async fn bare_database(config: &Config, n: u32) -> Result<f64, Failure> {
    let (engine, lock, mut folder, dir) = engine(config).await?;
    let failed = |error: EngineError| Failure::failed(error.to_string());
    engine.scan(&mut folder).await.map_err(failed)?;
    let now = engine.clock().now();
    owe(engine.db(), n, now).await?;
    let started = Instant::now();
    while engine.intend(now).await.map_err(failed)?.more {}
    let mut finished = 0;
    loop {
        let work = engine.take(now).await.map_err(failed)?;
        if work.is_empty() {
            break;
        }
        let ends: Vec<_> = work
            .iter()
            .map(|work| {
                let end = RunEnd::Succeeded {
                    output: Some("{}".to_owned()),
                };
                engine.finished(work, end, vec![noop_call(now)])
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

/// CPU time of this process so far, all threads.
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
