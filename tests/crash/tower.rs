//! A place to serve: a database, a plugins folder, and a package whose effects can be counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use campanile_model::clock::{Clock, Timestamp};
use campanile_store::launches::LaunchRow;
use campanile_store::runs::RunRow;
use campanile_store::schedules::Schedule;
use campanile_store::{DatabaseUrl, Db, LaunchStatus, changes, launches, runs, schedules};
use campanile_tests::{Backend, HostProcess, Place, campanile_binary, fresh_place};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// More rows than any of these tests makes.
const ALL: i64 = 1_000_000;

/// Everything a host needs, and everything that outlives it.
pub struct Tower {
    runtime: Runtime,
    pub url: DatabaseUrl,
    pub folder: PathBuf,
    /// Drops the schema or removes the folder at the end.
    _place: Box<dyn std::any::Any>,
}

/// What is on the record at one moment.
pub struct Record {
    pub schedules: Vec<Schedule>,
    /// By the name of their schedule, the earliest slot first.
    pub launches: BTreeMap<String, Vec<LaunchRow>>,
    /// The earliest first.
    pub runs: Vec<RunRow>,
}

/// One line of effect: which launch, on which attempt, and whether that knew itself a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    pub execution_id: String,
    pub attempt: u32,
    pub is_recovery: bool,
    pub slot: Timestamp,
}

impl Tower {
    /// An empty tower on a database of its own.
    pub fn new(backend: Backend) -> Tower {
        let runtime = runtime();
        let place: Place = runtime.block_on(fresh_place(backend));
        let (url, folder) = (place.url.clone(), place.folder.path().to_owned());
        Tower::with(runtime, url, folder, Box::new(place))
    }

    /// An empty tower on a database that the caller keeps.
    pub fn on(url: DatabaseUrl) -> Tower {
        let folder = TempDir::with_prefix("campanile-test-").expect("a temporary folder");
        let path = folder.path().to_owned();
        Tower::with(runtime(), url, path, Box::new(folder))
    }

    fn with(
        runtime: Runtime,
        url: DatabaseUrl,
        folder: PathBuf,
        place: Box<dyn std::any::Any>,
    ) -> Tower {
        for name in ["plugins", "out"] {
            std::fs::create_dir(folder.join(name)).expect("a folder");
        }
        // Built before anybody computes a slot that is soon.
        campanile_binary();
        let tower = Tower {
            runtime,
            url,
            folder,
            _place: place,
        };
        tower.configure("");
        tower
    }

    /// Write the configuration file: `sections` of TOML.
    pub fn configure(&self, sections: &str) {
        self.write("campanile.toml", sections);
    }

    /// Write any file of the tower's folder.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).expect("a file of the tower");
    }

    /// Put a package in, under a sidecar of its own.
    pub fn install(&self, package: &Path, sidecar: &str) {
        let name = package
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("a name");
        self.write(&format!("plugins/{name}.toml"), sidecar);
        std::fs::copy(package, self.folder.join(format!("plugins/{name}.wasm")))
            .unwrap_or_else(|error| panic!("{}: {error}", package.display()));
    }

    /// Put in the package that leaves a line for every call, under `schedules`: TOML of the sidecar.
    pub fn install_append(&self, schedules: &str) {
        let sidecar = format!(
            "[[grants.directories]]\nhost = \"../out\"\nguest = \"/out\"\naccess = \"write\"\n{schedules}"
        );
        self.install(&guest("append"), &sidecar);
    }

    /// The same with `count` schedules that are all due every second.
    pub fn install_bells(&self, count: usize, context: &str) {
        let schedules: String = (0..count)
            .map(|n| {
                format!(
                    "[[schedules]]\nname = \"bell-{n:03}\"\nevery = \"1s\"\noverlap = \"allow\"\ncontext = {context}\n"
                )
            })
            .collect();
        self.install_append(&schedules);
    }

    /// `campanile` with the tower's database and configuration, to be given its arguments.
    pub fn command(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command
            .current_dir(&self.folder)
            .env("CAMPANILE_DATABASE_URL", self.url.expose())
            .env_remove("CAMPANILE_CRASH_AT");
        command
    }

    /// `campanile serve` as the host `name`, about to be started.
    pub fn serve(&self, name: &str) -> Command {
        let mut command = self.command(campanile_binary());
        command.args(["serve", "--name", name]);
        command
    }

    /// Start the host `name` and wait until it serves.
    pub fn start(&self, name: &str) -> HostProcess {
        let host = HostProcess::spawn(&mut self.serve(name));
        host.wait_for_line("serving");
        host
    }

    /// Open the database for a moment.
    pub fn with_db<T, F: Future<Output = T>>(&self, step: impl FnOnce(Db) -> F) -> T {
        self.runtime.block_on(async {
            let db = Db::open(&self.url)
                .await
                .unwrap_or_else(|error| panic!("{}: {error}", self.url));
            let done = step(db.clone()).await;
            db.close().await;
            done
        })
    }

    /// Everything on the record now.
    pub fn record(&self) -> Record {
        self.with_db(async |db| read(&db).await)
    }

    /// The record, when it is as wanted, looking again and again up to `limit`.
    ///
    /// # Panics
    ///
    /// When it never is, with what it is and what `hosts` said.
    pub fn record_when(
        &self,
        what: &str,
        limit: Duration,
        hosts: &[&HostProcess],
        wanted: impl Fn(&Record) -> bool,
    ) -> Record {
        let until = Instant::now() + limit;
        let read = self.with_db(async |db| {
            loop {
                let record = read(&db).await;
                if wanted(&record) {
                    return Ok(record);
                }
                if Instant::now() >= until {
                    return Err(record);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        read.unwrap_or_else(|record| {
            let said: Vec<String> = hosts
                .iter()
                .map(|host| format!("a host said:\n{}", host.stderr_lines().join("\n")))
                .collect();
            panic!(
                "not in {limit:?}: {what}\n{}\n{}",
                record.shown(),
                said.join("\n")
            )
        })
    }

    /// Wait until every schedule has decided a slot after `at`.
    pub fn rings_past(&self, at: Timestamp, hosts: &[&HostProcess]) {
        let limit = Duration::from_secs(20);
        self.record_when(&format!("slots after {at}"), limit, hosts, |record| {
            let mut schedules = record.schedules.iter();
            schedules.len() > 0 && schedules.all(|schedule| schedule.state.cursor_at > at)
        });
    }

    /// Look at the newest runs again and again, up to `limit`, until they are as wanted.
    pub fn newest_runs_when(
        &self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&[RunRow]) -> bool,
    ) {
        let until = Instant::now() + limit;
        self.with_db(async |db| {
            loop {
                let mut tx = db.read().await.expect("a transaction");
                if wanted(&runs::list(&mut tx, None, 200).await.expect("runs")) {
                    return;
                }
                assert!(Instant::now() < until, "not in {limit:?}: {what}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }

    /// Decide no more slots, and give the record when every launch has ended.
    pub fn quiet(&self, limit: Duration, hosts: &[&HostProcess]) -> Record {
        self.with_db(async |db| {
            let now = Clock::system().now();
            let mut tx = db.write().await.expect("a transaction");
            let pause = schedules::Pause {
                by: "the test",
                note: None,
                until: None,
            };
            for schedule in schedules::list(&mut tx, None, None)
                .await
                .expect("schedules")
            {
                schedules::pause(&mut tx, schedule.state.id, pause, now)
                    .await
                    .expect("a pause");
            }
            changes::bump(&mut tx).await.expect("a change");
            tx.commit().await.expect("a commit");
        });
        self.record_when("every launch ended", limit, hosts, |record| {
            record
                .all_launches()
                .all(|launch| !is_unfinished(launch.status))
        })
    }

    /// The lines that calls of the package have left.
    pub fn effects(&self) -> Vec<Effect> {
        let text = std::fs::read_to_string(self.folder.join("out/effects.log")).unwrap_or_default();
        text.lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let [execution_id, attempt, kind, slot] = words[..] else {
                    panic!("not a line of an effect: {line:?}");
                };
                Effect {
                    execution_id: execution_id.to_owned(),
                    attempt: attempt.parse().expect("an attempt"),
                    is_recovery: kind == "recovery",
                    slot: slot.parse().expect("a time"),
                }
            })
            .collect()
    }
}

impl Record {
    pub fn all_launches(&self) -> impl Iterator<Item = &LaunchRow> {
        self.launches.values().flatten()
    }

    /// How many launches stand like this.
    pub fn count(&self, status: LaunchStatus) -> usize {
        self.all_launches()
            .filter(|launch| launch.status == status)
            .count()
    }

    /// The runs of one launch, the earliest first.
    pub fn runs_of(&self, launch: &LaunchRow) -> Vec<&RunRow> {
        self.runs
            .iter()
            .filter(|run| run.launch_id == launch.id)
            .collect()
    }

    /// For a person who reads why a test failed.
    pub fn shown(&self) -> String {
        let rows: Vec<String> = self
            .all_launches()
            .filter(|launch| launch.status != LaunchStatus::Succeeded)
            .take(20)
            .map(|launch| format!("{launch:?}"))
            .collect();
        format!(
            "{} launches, {} succeeded; others: {}",
            self.all_launches().count(),
            self.count(LaunchStatus::Succeeded),
            rows.join("\n")
        )
    }
}

/// Whether something is still to happen to a launch.
pub fn is_unfinished(status: LaunchStatus) -> bool {
    matches!(
        status,
        LaunchStatus::Open | LaunchStatus::Running | LaunchStatus::Waiting
    )
}

/// A guest of the tests.
pub fn guest(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("guests/{name}.wasm"))
}

/// The time by this machine's clock.
pub fn now() -> Timestamp {
    Clock::system().now()
}

async fn read(db: &Db) -> Record {
    let mut tx = db.read().await.expect("a transaction");
    let mut by_schedule: BTreeMap<String, Vec<LaunchRow>> = BTreeMap::new();
    for launch in launches::list(&mut tx, None, ALL).await.expect("launches") {
        by_schedule
            .entry(launch.schedule.clone())
            .or_default()
            .push(launch);
    }
    for launches in by_schedule.values_mut() {
        launches.sort_by_key(|launch| launch.scheduled_time);
    }
    let mut runs = runs::list(&mut tx, None, ALL).await.expect("runs");
    runs.sort_by_key(|run| run.started_at);
    Record {
        schedules: schedules::list(&mut tx, None, None)
            .await
            .expect("schedules"),
        launches: by_schedule,
        runs,
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}
