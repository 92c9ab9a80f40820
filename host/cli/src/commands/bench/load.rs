//! `campanile bench load`: how fast packages load, and how much compiling delays launches.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use tokio::task::block_in_place;

use super::{BenchHost, add_schedules, big, every, lag, scratch_db};
use crate::commands::package::signing::read;
use crate::commands::serve::{self, HELLO};
use crate::config::Config;
use crate::environment;
use crate::output::{Failure, Record, Result, failed};
use crate::progress::Line;
use campanile_control::rules::lateness::Lag;
use campanile_engine::packages::watch::{Mode, QUIET};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::uuid_at;
use campanile_package::SETTLE;
use campanile_sandbox::own_files::temporary_directory;
use campanile_store::DatabaseUrl;

/// The number of starts of each kind; the report has their median.
const STARTS: usize = 5;
/// The number of small packages that are added, one after another.
const DROPS: usize = 10;
/// The number of schedules that launch every second, evenly spread over it.
const SCHEDULES: u32 = 10;
/// The pause between two checks whether a package is active.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

#[derive(Args)]
pub(crate) struct Load {
    /// The number of packages that a host starts with
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    packages: u32,
    /// How long to measure launches while nothing is compiled, in seconds
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The large component to compile during launches [default: a generated one of 20 MB]
    #[arg(long, value_name = "FILE")]
    component: Option<PathBuf>,
}

/// The result of `bench load`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct LoadReport {
    backend: &'static str,
    packages: u32,
    /// From the start of the process until the host serves.
    start_ms: Starts,
    /// From a new file, without the debounce, until its package is active.
    drop_ms: Lag,
    /// How long a file must not change before it is loaded.
    debounce_ms: f64,
    component_bytes: usize,
    /// The time to load the large component when it is not in the cache.
    component_ms: f64,
    /// The time to load it from the cache.
    component_cached_ms: f64,
    /// From slot to start, while nothing is compiled.
    lag_alone_ms: Lag,
    /// From slot to start, while the large component is compiled.
    lag_compiling_ms: Lag,
    launches_compiling: usize,
}

#[derive(Serialize, schemars::JsonSchema)]
struct Starts {
    /// With an empty folder.
    empty: f64,
    /// With packages that are not in the cache.
    cold: f64,
    /// With packages that are in the cache.
    warm: f64,
}

impl Load {
    pub(super) async fn measure(self, config: &Config) -> Result<LoadReport> {
        let component = match &self.component {
            Some(path) => read(path)?,
            None => big::component(),
        };
        let dir = temporary_directory().map_err(Failure::failed)?;
        let step = Line::step(format_args!("starting with {} packages", self.packages));
        let start_ms = starts(config, dir.path(), self.packages).await?;
        let mut config = config.clone();
        // An own cache is cold in every run, and is deleted after it.
        config.sandbox.cache_dir = Some(dir.path().join("cache"));

        step.say("dropping packages");
        let host = BenchHost::start(&config, scratch_db(&config).await?, Mode::Auto).await?;
        let mut drops = Vec::new();
        for n in 0..DROPS {
            let bytes = version(HELLO);
            drops.push(host.add_package(&format!("small-{n}"), &bytes).await?);
        }
        let now = host.engine.clock().now();
        for number in 0..SCHEDULES {
            let rule = every("1s", now.plus(Duration::from_secs(1) * number / SCHEDULES));
            add_schedules(host.engine.db(), number..number + 1, &rule, now).await?;
        }
        step.say("measuring launches while nothing is compiled");
        let alone = host.engine.clock().now();
        tokio::time::sleep(Duration::from_secs(self.seconds)).await;
        step.say("measuring launches while a large component is compiled");
        let compiling = host.engine.clock().now();
        let (dropped_at, active_at) = host.add_package("large", &component).await?;
        // The last launches need time to start.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let rows_alone = host.launches(alone, compiling).await?;
        let mut rows_compiling = host.launches(compiling, active_at).await?;
        host.stop().await?;

        rows_compiling.retain(|row| row.started_at.is_some());
        Ok(LoadReport {
            backend: config.files.database.backend(),
            packages: self.packages,
            start_ms,
            drop_ms: Lag::of(drops),
            debounce_ms: millis(QUIET + SETTLE),
            component_bytes: component.len(),
            component_ms: millis(active_at.since(dropped_at)),
            component_cached_ms: millis(load_again(&config, &component)?),
            lag_alone_ms: lag(&rows_alone),
            lag_compiling_ms: lag(&rows_compiling),
            launches_compiling: rows_compiling.len(),
        })
    }
}

impl Record for LoadReport {}

impl BenchHost {
    /// Add a file to the folder; return when its debounce ended, and when its package was active.
    async fn add_package(&self, name: &str, bytes: &[u8]) -> Result<(Timestamp, Timestamp)> {
        let partial = self.dir.path().join(format!("{name}.part"));
        std::fs::write(&partial, bytes).map_err(Failure::failed)?;
        std::fs::rename(&partial, partial.with_extension("wasm")).map_err(Failure::failed)?;
        let dropped_at = self.engine.clock().now().plus(QUIET + SETTLE);
        self.until_active(name, bytes, POLL_INTERVAL).await?;
        Ok((dropped_at, self.engine.clock().now()))
    }
}

/// Measure how long a host takes to start: without packages, with new ones, and with cached ones.
async fn starts(config: &Config, dir: &Path, packages: u32) -> Result<Starts> {
    let db = scratch_db(config).await?;
    let measured = block_in_place(|| starts_on(db.url(), dir, packages));
    db.discard().await?;
    measured
}

fn starts_on(url: &DatabaseUrl, dir: &Path, packages: u32) -> Result<Starts> {
    let plugins = dir.join("plugins");
    std::fs::create_dir(&plugins).map_err(Failure::failed)?;
    let file = dir.join("campanile.toml");
    let own = "[host]\nstate_dir = \"state\"\n[sandbox]\ncache_dir = \"started\"\n";
    std::fs::write(&file, own).map_err(Failure::failed)?;
    let start = || start(&file, &plugins, url).map(millis);
    // The first start records the host.
    start()?;
    let empty = median(start)?;
    for n in 0..packages {
        let path = plugins.join(format!("known-{n:03}.wasm"));
        std::fs::write(path, version(HELLO)).map_err(Failure::failed)?;
    }
    let cold = start()?;
    let warm = median(start)?;
    Ok(Starts { empty, cold, warm })
}

/// Start a host as a process, wait until it serves, and stop it; return how long it took to serve.
fn start(file: &Path, plugins: &Path, url: &DatabaseUrl) -> Result<Duration> {
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let mut command = Command::new(program);
    command
        .args(["serve", "--name", "bench", "--config"])
        .arg(file)
        .arg("--plugins")
        .arg(plugins)
        .env(environment::DATABASE, url.expose())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let started = Instant::now();
    let mut child = command.spawn().map_err(Failure::failed)?;
    let mut served = None;
    let mut last = String::new();
    let stderr = child.stderr.take().into_iter();
    for line in stderr.flat_map(|stderr| BufReader::new(stderr).lines()) {
        last = line.map_err(Failure::failed)?;
        if served.is_none() && last.contains("serving") {
            served = Some(started.elapsed());
            kill_process(Pid::from_child(&child), Signal::TERM).map_err(Failure::failed)?;
        }
    }
    child.wait().map_err(Failure::failed)?;
    served.ok_or_else(|| failed!("a host did not start: {last}"))
}

fn median(measure: impl Fn() -> Result<f64>) -> Result<f64> {
    let mut measured = (0..STARTS)
        .map(|_| measure())
        .collect::<Result<Vec<f64>>>()?;
    measured.sort_by(f64::total_cmp);
    Ok(measured[STARTS / 2])
}

/// Measure how long a new sandbox takes to load a component from the cache.
fn load_again(config: &Config, component: &[u8]) -> Result<Duration> {
    let loader = serve::loader(config, &Clock::system())?;
    let started = Instant::now();
    let loaded = block_in_place(|| loader.sandbox().load(component));
    loaded.map_err(Failure::failed)?;
    Ok(started.elapsed())
}

/// Returns a new version of a file: a custom section changes the bytes and not the code.
fn version(bytes: &[u8]) -> Vec<u8> {
    let id = uuid_at(Clock::system().now());
    [bytes, b"\x00\x14\x03own", id.as_bytes()].concat()
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
