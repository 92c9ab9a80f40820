//! `campanile bench launches`: how fast hosts execute a backlog of no-op launches.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::{
    BenchHost, Cost, NAME, NOOP, Scratch, add_backlog, finish_without_calls, first_decision,
    has_succeeded, launches_per_s, micros, scratch_db,
};
use crate::commands::selftest::refuse_hosts;
use crate::commands::serve;
use crate::config::Config;
use crate::output::{Failure, Record, Result, failed};
use crate::progress::Line;
use campanile_control::rules::lateness::Lag;
use campanile_engine::packages::watch::Mode;
use campanile_model::clock::Clock;
use campanile_sandbox::{Call, Grants, Limits, MemoryBuckets, Outcome, StopSignal, World};
use campanile_store::Db;
use campanile_workflow::context::{self, Facts};

/// The number of calls of the bare sandbox. A tenth as many warm it up.
const SANDBOX_CALLS: u32 = 10_000;

#[derive(Args)]
pub(crate) struct Launches {
    /// The number of launches
    #[arg(short, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    n: u32,
    /// The number of hosts, all in this process; more than one needs Postgres
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=8))]
    hosts: u32,
}

/// The result of `bench launches`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct LaunchesReport {
    backend: &'static str,
    hosts: u32,
    launches: u32,
    /// Measured from the first decision to the last recorded finish.
    launches_per_s: f64,
    /// From the first decision, when every launch is due, to the start of each launch.
    lag_ms: Lag,
    /// The CPU time of this process, user and system, of all threads of all hosts.
    cpu_us_per_launch: f64,
    /// The CPU time of a launch divided by that of a bare call.
    ratio_to_sandbox: f64,
    /// The time of a launch divided by that of its three transactions alone.
    ratio_to_database: f64,
    sandbox_cpu_us_per_call: f64,
    sandbox_calls_per_s: f64,
    database_launches_per_s: f64,
}

impl Record for LaunchesReport {}

impl Launches {
    pub(super) async fn measure(&self, config: &Config) -> Result<LaunchesReport> {
        let Launches { n, hosts } = *self;
        refuse_hosts(&config.files.database, hosts)?;
        let step = Line::step("measuring the bare sandbox");
        let sandbox = bare_sandbox(config).await?;
        step.say("measuring the bare database");
        let database = bare_database(config, n).await?;

        step.say(format_args!("measuring {n} launches"));
        let host = BenchHost::start(config, scratch_db(config).await?, Mode::Off).await?;
        let others = other_hosts(config, host.engine.db(), hosts).await?;
        let now = host.engine.clock().now();
        add_backlog(host.engine.db(), n, now).await?;
        // Adding schedules and reading the rows are not parts of a launch.
        let (idle, cost) = Cost::of(host.until_idle()).await;
        idle?;
        let rows = host.backlog(n, now).await?;
        for other in others {
            other.end().await?;
        }
        host.stop().await?;

        let succeeded = rows.iter().filter(has_succeeded).count();
        if succeeded != n as usize {
            return Err(failed!("{succeeded} of {n} launches succeeded"));
        }
        let per_s = launches_per_s(&rows);
        let cpu_us = micros(cost.cpu) / f64::from(n);
        let first = first_decision(&rows);
        let starts = rows.iter().filter_map(|row| row.started_at);
        Ok(LaunchesReport {
            backend: config.files.database.backend(),
            hosts,
            launches: n,
            launches_per_s: per_s,
            lag_ms: Lag::of(starts.map(|start| (first, start))),
            cpu_us_per_launch: cpu_us,
            ratio_to_sandbox: cpu_us / micros(sandbox.cpu),
            ratio_to_database: database.as_secs_f64().recip() / per_s,
            sandbox_cpu_us_per_call: micros(sandbox.cpu),
            sandbox_calls_per_s: sandbox.wall.as_secs_f64().recip(),
            database_launches_per_s: database.as_secs_f64().recip(),
        })
    }
}

/// Start the second host and all later ones on the database of the first host. Each host opens its own connections.
async fn other_hosts(config: &Config, db: &Db, hosts: u32) -> Result<Vec<BenchHost>> {
    let mut others = Vec::new();
    for number in 2..=hosts {
        let db = Db::open_current(db.url()).await?;
        let mut scratch = Scratch::named(config, db, &format!("bench-{number}")).await?;
        scratch.load().await?;
        others.push(BenchHost::serve(scratch, Mode::Off).await?);
    }
    Ok(others)
}

/// Measure what one call takes in the bare sandbox, on one guest thread.
async fn bare_sandbox(config: &Config) -> Result<Cost> {
    let clock = Clock::system();
    let loader = serve::loader(config, &clock)?;
    let sandbox = loader.sandbox();
    let artifact = Arc::new(sandbox.load(NOOP).map_err(Failure::failed)?);
    let now = clock.now();
    let facts = Facts::by_hand(now);
    let call = Call {
        package: NAME.to_owned(),
        task: NAME.to_owned(),
        context: context::of_call([], &facts),
        facts: facts.of_run(now),
        program: Arc::default(),
        grants: Arc::new(Grants::default()),
        secrets: Arc::default(),
        limits: Limits::default(),
        world: World::real(Arc::new(MemoryBuckets::default())),
        stop: StopSignal::default(),
    };
    let in_a_row = |times| sandbox.run_in_a_row(&artifact, call.clone(), times);
    in_a_row(SANDBOX_CALLS / 10).await;
    let (report, all) = Cost::of(in_a_row(SANDBOX_CALLS)).await;
    if report.outcome != Outcome::Succeeded {
        return Err(failed!("the no-op task ended as {}", report.outcome));
    }
    Ok(Cost {
        cpu: all.cpu / SANDBOX_CALLS,
        wall: all.wall / SANDBOX_CALLS,
    })
}

/// Measure how long the three transactions of a launch take without a call, over `n` launches.
async fn bare_database(config: &Config, n: u32) -> Result<Duration> {
    let mut scratch = Scratch::new(config, scratch_db(config).await?).await?;
    scratch.load().await?;
    let engine = &scratch.engine;
    let now = engine.clock().now();
    add_backlog(engine.db(), n, now).await?;
    let (finished, cost) = Cost::of(finish_without_calls(engine, now)).await;
    let finished = finished.map_err(Failure::failed)?;
    drop(scratch.lock);
    engine.db().clone().discard().await?;
    if finished != n as usize {
        return Err(failed!(
            "{finished} of {n} launches ended in the bare database loop"
        ));
    }
    Ok(cost.wall / n)
}
