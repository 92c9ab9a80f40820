//! `campanile bench load`: how soon packages are there, and whether launches feel it when one is compiled.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::{NAME, PATIENCE, Tower, add_schedules, big, is_in_force, sandbox};
use crate::Common;
use crate::config::Config;
use crate::output::{self, Failure};
use campanile_engine::audit::Lag;
use campanile_engine::watch::{Mode, QUIET};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{ArtifactDigest, RunId};
use campanile_package::SETTLE;
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::{DatabaseUrl, Db, launches};

/// The package that is started with and dropped in: a typed component made with the SDK.
const SMALL: &[u8] = include_bytes!("../../../../../plugins/hello.wasm");
/// Starts of a host of each kind; the figure is their median.
const STARTS: usize = 5;
/// Small packages dropped one after another.
const DROPS: usize = 10;
/// Schedules that ring every second, at equal distances.
const BELLS: u32 = 10;
/// How often to look whether a dropped package is live.
const LOOK: Duration = Duration::from_millis(1);

#[derive(Args)]
pub(crate) struct Load {
    /// How many packages a host starts with
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    packages: u32,
    /// For how long launches are measured while nothing is compiled, in seconds
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The large component to compile beside launches [default: 20 MB made for the purpose]
    #[arg(long, value_name = "FILE")]
    component: Option<PathBuf>,
}

/// What `bench load` measured.
#[derive(Serialize)]
struct LoadReport {
    backend: &'static str,
    packages: u32,
    /// From the start of the process until it serves.
    start_ms: Starts,
    /// From the file's appearance, less the waits for it to hold still, until the package is live.
    drop_ms: Lag,
    /// Those waits: for events to pause, and between two equal readings.
    debounce_ms: f64,
    component_bytes: usize,
    /// The same for the large component, which nobody has compiled before.
    component_ms: f64,
    /// To load it again, out of the cache.
    component_cached_ms: f64,
    /// From slot to start, of launches while nothing is compiled.
    lag_alone_ms: Lag,
    /// And of those while the large component is.
    lag_compiling_ms: Lag,
    launches_compiling: usize,
}

#[derive(Serialize)]
struct Starts {
    /// With an empty folder.
    empty: f64,
    /// With packages that were never compiled here.
    cold: f64,
    /// With the same once more.
    warm: f64,
}

impl Load {
    pub(super) async fn run(self, common: &Common, config: &Config) -> Result<ExitCode, Failure> {
        let component = match &self.component {
            Some(path) => std::fs::read(path)
                .map_err(|error| Failure::refused(format!("{}: {error}", path.display())))?,
            None => big::component(),
        };
        let dir = tempfile::tempdir().map_err(failed)?;
        let start_ms = starts(config, dir.path(), self.packages).await?;
        let mut config = config.clone();
        // What is cold here is so in every run, and nothing of it stays.
        config.sandbox.cache_dir = Some(dir.path().join("cache"));

        let tower = Tower::raise(&config, Mode::Auto).await?;
        let mut drops = Vec::new();
        for n in 0..DROPS {
            let bytes = version(SMALL, &tower.clock);
            drops.push(tower.drop_in(&format!("small-{n}"), &bytes).await?);
        }
        ring(&tower).await?;
        let alone = Window::of(&tower.clock, async {
            tokio::time::sleep(Duration::from_secs(self.seconds)).await;
            Ok(())
        });
        let (alone, ()) = alone.await?;
        let dropped = Window::of(&tower.clock, tower.drop_in("large", &component));
        let (compiling, (dropped_at, live_at)) = dropped.await?;
        // Those of the last moment are given time to start.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (lag_alone, _) = tower.lag_in(&alone).await?;
        let (lag_compiling, launches_compiling) = tower.lag_in(&compiling).await?;
        tower.raze().await?;

        let report = LoadReport {
            backend: config.database.backend(),
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
        report.print(common)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl LoadReport {
    fn print(&self, common: &Common) -> Result<(), Failure> {
        if common.json {
            return output::json_out(self);
        }
        let starts = &self.start_ms;
        let lag = |lag: &Lag| format!("p50 {:.1}  p99 {:.1}  max {:.1}", lag.p50, lag.p99, lag.max);
        for line in [
            format!(
                "start ms          {:.0} with {} packages, {:.0} when they were never compiled, {:.0} with none ({})",
                starts.warm, self.packages, starts.cold, starts.empty, self.backend
            ),
            format!(
                "drop to live ms   {}   ({} bytes, after {:.0} ms of debounce)",
                lag(&self.drop_ms),
                SMALL.len(),
                self.debounce_ms
            ),
            format!(
                "large component   {} bytes: {:.0} ms, out of the cache {:.0} ms",
                self.component_bytes, self.component_ms, self.component_cached_ms
            ),
            format!("lag ms alone      {}", lag(&self.lag_alone_ms)),
            format!(
                "  while compiling {}   ({} launches)",
                lag(&self.lag_compiling_ms),
                self.launches_compiling
            ),
        ] {
            output::line(&line)?;
        }
        Ok(())
    }
}

/// A span of time in which something went on.
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

impl Tower {
    /// Let a file appear; gives when it was to be taken up, all waits for it to hold still over, and when it was live.
    async fn drop_in(&self, name: &str, bytes: &[u8]) -> Result<(Timestamp, Timestamp), Failure> {
        let beside = self.folder.path().join(format!("{name}.part"));
        std::fs::write(&beside, bytes).map_err(failed)?;
        let digest = ArtifactDigest::of(bytes);
        std::fs::rename(&beside, self.folder.path().join(format!("{name}.wasm")))
            .map_err(failed)?;
        let dropped_at = self.clock.now().plus(QUIET + SETTLE);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if is_in_force(&self.db, name, &digest).await? {
                return Ok((dropped_at, self.clock.now()));
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(Failure::failed(format!(
            "the package `{name}` was not taken"
        )))
    }

    /// How late the launches of the slots in `window` were, and how many there are.
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
async fn ring(tower: &Tower) -> Result<(), Failure> {
    let now = tower.clock.now();
    for bell in 0..BELLS {
        let rule = RuleText {
            anchor: Some(now.plus(Duration::from_secs(1) * bell / BELLS)),
            ..RuleText::new(RuleKind::Every, "1s", "UTC")
        };
        add_schedules(&tower.db, bell..bell + 1, &rule, now).await?;
    }
    Ok(())
}

/// How long a host takes to start: with no package, with packages nobody has compiled, and with the same again.
async fn starts(config: &Config, dir: &Path, packages: u32) -> Result<Starts, Failure> {
    let clock = Clock::system();
    let name = format!("campanile_bench_{}", RunId::new(clock.now()).0.simple());
    let db = Db::open_scratch(&config.database, &name).await?;
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
        // The first one makes the host known.
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

/// Start a host as a process of its own, wait until it serves, and stop it; gives how long it took to serve.
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

/// Load a component that is in the cache, in a sandbox that does not know it.
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

/// `bytes` as they never were before: a custom section changes the file and not the code.
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
    Failure::failed(error.to_string())
}
