//! `campanile bench load`: how fast packages load, and how much compiling delays launches.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::{BenchHost, NAME, WAIT_MAX, add_schedules, big, is_active, sandbox};
use crate::Common;
use crate::commands::stats::lag_text;
use crate::config::Config;
use crate::output::{self, Failure, Record};
use campanile_engine::audit::Lag;
use campanile_engine::watch::{Mode, QUIET};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{ArtifactDigest, RunId};
use campanile_package::SETTLE;
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::{DatabaseUrl, Db, launches};

/// The small package: a typed component made with the SDK.
const SMALL: &[u8] = include_bytes!("../../../assets/hello.wasm");
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
    pub(crate) async fn run(self, common: &Common, config: &Config) -> Result<ExitCode, Failure> {
        let component = match &self.component {
            Some(path) => std::fs::read(path)
                .map_err(|error| Failure::refused(format!("{}: {error}", path.display())))?,
            None => big::component(),
        };
        let dir = tempfile::tempdir().map_err(failed)?;
        let start_ms = starts(config, dir.path(), self.packages).await?;
        let mut config = config.clone();
        // An own cache is cold in every run, and is deleted after it.
        config.sandbox.cache_dir = Some(dir.path().join("cache"));

        let host = BenchHost::start(&config, Mode::Auto).await?;
        let mut drops = Vec::new();
        for n in 0..DROPS {
            let bytes = version(SMALL, &host.clock);
            drops.push(host.add_package(&format!("small-{n}"), &bytes).await?);
        }
        add_measured_schedules(&host).await?;
        let alone = Window::of(&host.clock, async {
            tokio::time::sleep(Duration::from_secs(self.seconds)).await;
            Ok(())
        });
        let (alone, ()) = alone.await?;
        let dropped = Window::of(&host.clock, host.add_package("large", &component));
        let (compiling, (dropped_at, live_at)) = dropped.await?;
        // The last launches need time to start.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (lag_alone, _) = host.lag_in(&alone).await?;
        let (lag_compiling, launches_compiling) = host.lag_in(&compiling).await?;
        host.stop().await?;

        let report = LoadReport {
            backend: config.files.database.backend(),
            packages: self.packages,
            start_ms,
            drop_ms: Lag::of(drops),
            debounce_ms: millis(QUIET + SETTLE),
            component_bytes: component.len(),
            component_ms: millis(live_at.since(dropped_at)),
            component_cached_ms: millis(load_again(&config, component).await?),
            lag_alone_ms: lag_alone,
            lag_compiling_ms: lag_compiling,
            launches_compiling,
        };
        output::print_record(&report, common.json)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Record for LoadReport {
    const DETAIL: &'static str = "backend packages start_ms drop_ms debounce_ms component_bytes component_ms \
        component_cached_ms lag_alone_ms lag_compiling_ms launches_compiling";

    fn text(&self, key: &str) -> Option<String> {
        let Starts { empty, cold, warm } = self.start_ms;
        match key {
            "start_ms" => Some(format!("empty {empty:.0}, cold {cold:.0}, warm {warm:.0}")),
            "drop_ms" => Some(lag_text(&self.drop_ms)),
            "lag_alone_ms" => Some(lag_text(&self.lag_alone_ms)),
            "lag_compiling_ms" => Some(lag_text(&self.lag_compiling_ms)),
            _ => None,
        }
    }
}

/// A time span in which something was measured.
struct Window {
    from: Timestamp,
    until: Timestamp,
}

impl Window {
    async fn of<T>(
        clock: &Clock,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<(Window, T), Failure> {
        let from = clock.now();
        let done = work.await?;
        let until = clock.now();
        Ok((Window { from, until }, done))
    }
}

impl BenchHost {
    /// Add a file to the folder; return when its debounce ended, and when its package was active.
    async fn add_package(
        &self,
        name: &str,
        bytes: &[u8],
    ) -> Result<(Timestamp, Timestamp), Failure> {
        let partial = self.folder.path().join(format!("{name}.part"));
        std::fs::write(&partial, bytes).map_err(failed)?;
        let digest = ArtifactDigest::of(bytes);
        std::fs::rename(&partial, self.folder.path().join(format!("{name}.wasm")))
            .map_err(failed)?;
        let dropped_at = self.clock.now().plus(QUIET + SETTLE);
        let deadline = Instant::now() + WAIT_MAX;
        while Instant::now() < deadline {
            if is_active(&self.db, name, &digest).await? {
                return Ok((dropped_at, self.clock.now()));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Err(Failure::failed(format!(
            "the package `{name}` was not loaded"
        )))
    }

    /// Return the lag of the launches of the slots in `window`, and their number.
    async fn lag_in(&self, window: &Window) -> Result<(Lag, usize), Failure> {
        let mut tx = self.db.read().await?;
        let rows = launches::list(&mut tx, None, i64::MAX).await?;
        let late: Vec<_> = rows
            .into_iter()
            .filter(|row| row.package == NAME)
            .filter(|row| window.from < row.scheduled_time && row.scheduled_time <= window.until)
            .filter_map(|row| Some((row.scheduled_time, row.started_at?)))
            .collect();
        Ok((Lag::of(late.iter().copied()), late.len()))
    }
}

/// Add the schedules whose launches are measured.
async fn add_measured_schedules(host: &BenchHost) -> Result<(), Failure> {
    let now = host.clock.now();
    for number in 0..SCHEDULES {
        let rule = RuleText {
            anchor: Some(now.plus(Duration::from_secs(1) * number / SCHEDULES)),
            ..RuleText::new(RuleKind::Every, "1s", "UTC")
        };
        add_schedules(&host.db, number..number + 1, &rule, now).await?;
    }
    Ok(())
}

/// Measure how long a host takes to start: without packages, with new ones, and with cached ones.
async fn starts(config: &Config, dir: &Path, packages: u32) -> Result<Starts, Failure> {
    let clock = Clock::system();
    let name = format!("campanile_bench_{}", RunId::new(clock.now()).0.simple());
    let db = Db::open_scratch(&config.files.database, &name).await?;
    let measured = starts_on(db.url().clone(), dir, packages, &clock).await;
    db.discard().await?;
    measured
}

async fn starts_on(
    url: DatabaseUrl,
    dir: &Path,
    packages: u32,
    clock: &Clock,
) -> Result<Starts, Failure> {
    let plugins = dir.join("plugins");
    std::fs::create_dir(&plugins).map_err(failed)?;
    let file = dir.join("campanile.toml");
    std::fs::write(&file, "[sandbox]\ncache_dir = \"started\"\n").map_err(failed)?;
    let versions: Vec<Vec<u8>> = (0..packages).map(|_| version(SMALL, clock)).collect();
    let measure = move || {
        let start = || start(&file, &plugins, &url).map(millis);
        // The first start records the host.
        start()?;
        let empty = median(start)?;
        for (n, bytes) in versions.iter().enumerate() {
            std::fs::write(plugins.join(format!("known-{n:03}.wasm")), bytes).map_err(failed)?;
        }
        let cold = start()?;
        let warm = median(start)?;
        Ok(Starts { empty, cold, warm })
    };
    tokio::task::spawn_blocking(measure).await.map_err(failed)?
}

/// Start a host as a process, wait until it serves, and stop it; return how long it took to serve.
fn start(file: &Path, plugins: &Path, url: &DatabaseUrl) -> Result<Duration, Failure> {
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command
        .args(["serve", "--name", "bench", "--config"])
        .arg(file)
        .arg("--plugins")
        .arg(plugins)
        .env("CAMPANILE_DATABASE_URL", url.expose())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let started = Instant::now();
    let mut child = command.spawn().map_err(failed)?;
    let mut served = None;
    let mut last = String::new();
    for line in child
        .stderr
        .take()
        .into_iter()
        .flat_map(|said| BufReader::new(said).lines())
    {
        last = line.map_err(failed)?;
        if served.is_none() && last.contains("serving") {
            served = Some(started.elapsed());
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                kill_process(pid, Signal::TERM).map_err(failed)?;
            }
        }
    }
    child.wait().map_err(failed)?;
    served.ok_or_else(|| Failure::failed(format!("a host did not start: {last}")))
}

fn median(measure: impl Fn() -> Result<f64, Failure>) -> Result<f64, Failure> {
    let measured: Result<Vec<f64>, Failure> = (0..STARTS).map(|_| measure()).collect();
    let mut measured = measured?;
    measured.sort_by(f64::total_cmp);
    Ok(measured[STARTS / 2])
}

/// Measure how long a new sandbox takes to load a component from the cache.
async fn load_again(config: &Config, component: Vec<u8>) -> Result<Duration, Failure> {
    let sandbox: Arc<_> = sandbox(config, &Clock::system())?;
    let load = move || {
        let started = Instant::now();
        let loaded = sandbox.load(&component);
        loaded.map_err(|refusal| Failure::failed(refusal.to_string()))?;
        Ok(started.elapsed())
    };
    tokio::task::spawn_blocking(load).await.map_err(failed)?
}

/// Return a new version of a file: a custom section changes the bytes and not the code.
fn version(bytes: &[u8], clock: &Clock) -> Vec<u8> {
    let mut version = bytes.to_vec();
    version.extend_from_slice(&[0, 20, 3]);
    version.extend_from_slice(b"own");
    version.extend_from_slice(RunId::new(clock.now()).0.as_bytes());
    version
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

fn failed(error: impl ToString) -> Failure {
    Failure::failed(error)
}
