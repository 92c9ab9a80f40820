//! A test site: a database, a plugins folder, and a package whose effects can be counted.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use campanile_model::clock::{Clock, Timestamp};
use campanile_store::launch::{self, LaunchRow};
use campanile_store::runs::RunRow;
use campanile_store::schedules::Schedule;
use campanile_store::{DatabaseUrl, Db, LaunchStatus, changes, probe, runs, schedules};
use campanile_tests::{Backend, HostProcess, PATIENCE, Place, campanile_binary, fresh_place};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::turn::Turn;

/// A limit above the number of rows of every test.
const ROWS_MAX: i64 = 1_000_000;

/// The database and the folder of a host, which outlive the host.
pub struct Site {
    runtime: Runtime,
    pub url: DatabaseUrl,
    pub folder: PathBuf,
    /// Drops the schema or removes the folder on drop.
    _place: Box<dyn std::any::Any>,
    /// Of a site with a database of its own.
    _turn: Option<Turn>,
}

/// The record at one time.
pub struct Record {
    pub schedules: Vec<Schedule>,
    /// The launches by the names of their schedules, in the order of their slots.
    pub launches: BTreeMap<String, Vec<LaunchRow>>,
    /// The runs in the order of their starts.
    pub runs: Vec<RunRow>,
}

/// An effect of a task: a line with its launch, its attempt, and whether the run was a recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    pub execution_id: String,
    pub attempt: u32,
    pub is_recovery: bool,
    pub slot: Timestamp,
}

impl Site {
    /// Waits for its turn, then creates an empty site with a new database.
    pub fn new(backend: Backend) -> Site {
        let turn = Some(Turn::wait());
        let runtime = runtime();
        let place: Place = runtime.block_on(fresh_place(backend));
        let (url, folder) = (place.url.clone(), place.folder.path().to_owned());
        Site::with(runtime, url, folder, Box::new(place), turn)
    }

    /// Create an empty site with an existing database.
    pub fn on(url: DatabaseUrl) -> Site {
        let folder = TempDir::with_prefix("campanile-test-").expect("a temporary folder");
        let path = folder.path().to_owned();
        Site::with(runtime(), url, path, Box::new(folder), None)
    }

    fn with(
        runtime: Runtime,
        url: DatabaseUrl,
        folder: PathBuf,
        place: Box<dyn std::any::Any>,
        turn: Option<Turn>,
    ) -> Site {
        for name in ["plugins", "out"] {
            std::fs::create_dir(folder.join(name)).expect("a folder");
        }
        // Build the program before a test computes a slot in the near future.
        campanile_binary();
        let site = Site {
            runtime,
            url,
            folder,
            _place: place,
            _turn: turn,
        };
        site.configure("");
        site
    }

    /// Write the configuration file: `sections` of TOML.
    pub fn configure(&self, sections: &str) {
        self.write("campanile.toml", sections);
    }

    /// Write a file in the site's folder.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.join(name), text).expect("a file of the site");
    }

    /// Install a package with a sidecar.
    pub fn install(&self, package: &Path, sidecar: &str) {
        let name = package
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("a name");
        self.write(&format!("plugins/{name}.toml"), sidecar);
        std::fs::copy(package, self.folder.join(format!("plugins/{name}.wasm")))
            .unwrap_or_else(|error| panic!("{}: {error}", package.display()));
    }

    /// Install a package from its bytes, with a sidecar.
    pub fn install_bytes(&self, name: &str, package: &[u8], sidecar: &str) {
        self.write(&format!("plugins/{name}.toml"), sidecar);
        let path = self.folder.join(format!("plugins/{name}.wasm"));
        std::fs::write(path, package).expect("a file of the site");
    }

    /// Install the package `append`, which writes a line on every call, with `schedules` in TOML.
    pub fn install_append(&self, schedules: &str) {
        let sidecar = format!(
            "[[grants.directories]]\nhost = \"../out\"\nguest = \"/out\"\naccess = \"write\"\n{schedules}"
        );
        self.install(&guest("append"), &sidecar);
    }

    /// Install the package `append` with `count` schedules that are due every second.
    pub fn install_schedules(&self, count: usize, context: &str) {
        self.install_schedules_with(count, context, "");
    }

    /// The same with more lines in the definition of each schedule.
    pub fn install_schedules_with(&self, count: usize, context: &str, policies: &str) {
        let schedules: String = (0..count)
            .map(|n| {
                format!(
                    "[[schedules]]\nname = \"schedule-{n:03}\"\nevery = \"1s\"\noverlap = \"allow\"\ncontext = {context}\n{policies}\n"
                )
            })
            .collect();
        self.install_append(&schedules);
    }

    /// Return `campanile` with the site's database and configuration, without arguments.
    pub fn command(&self, binary: &Path) -> Command {
        let mut command = Command::new(binary);
        command
            .current_dir(&self.folder)
            .env("CAMPANILE_DATABASE_URL", self.url.expose())
            .env_remove("CAMPANILE_CRASH_AT");
        command
    }

    /// Return the command `campanile serve` of the host `name`.
    pub fn serve(&self, name: &str) -> Command {
        let mut command = self.command(campanile_binary());
        command.args(["serve", "--name", name]);
        command
    }

    /// Start the host `name`, and wait until it serves.
    pub fn start(&self, name: &str) -> HostProcess {
        let host = HostProcess::spawn(&mut self.serve(name));
        host.wait_for_line("serving");
        host.wait_for_late_loads();
        host
    }

    /// Run `step` to its end.
    pub fn block_on<T>(&self, step: impl Future<Output = T>) -> T {
        self.runtime.block_on(step)
    }

    /// Start the host `host-1`, and wait until it aborts at the crash point `point`.
    pub fn crash_at(&self, point: &str) {
        let mut host = HostProcess::spawn(self.serve("host-1").env("CAMPANILE_CRASH_AT", point));
        let status = host.wait_exit();
        assert_eq!(
            status.signal(),
            Some(Signal::ABORT.as_raw()),
            "{point}: the host did not die there but ended with {status}; its log:\n{}",
            host.stderr_lines().join("\n")
        );
    }

    /// Open the database, run `step`, and close the database.
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

    /// Runs one command, expecting it to succeed.
    pub fn ok(&self, args: &[&str]) {
        let output = self.command(campanile_binary()).args(args).output();
        let output = output.expect("a command");
        assert!(output.status.success(), "{args:?}: {output:?}");
    }

    /// Read the record.
    pub fn record(&self) -> Record {
        self.with_db(async |db| read(&db).await)
    }

    /// Waits until the record satisfies `wanted`, up to [`PATIENCE`], returning it.
    ///
    /// # Panics
    ///
    /// Panics after that, showing the record and the logs of `hosts`.
    pub fn record_when(
        &self,
        what: &str,
        hosts: &[&HostProcess],
        wanted: impl Fn(&Record) -> bool,
    ) -> Record {
        let until = Instant::now() + PATIENCE;
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
            let log: Vec<String> = hosts
                .iter()
                .map(|host| format!("log of a host:\n{}", host.stderr_lines().join("\n")))
                .collect();
            panic!(
                "not in {PATIENCE:?}: {what}\n{}\n{}",
                record.shown(),
                log.join("\n")
            )
        })
    }

    /// Wait until every schedule has decided a slot after `at`.
    pub fn wait_for_slots_after(&self, at: Timestamp, hosts: &[&HostProcess]) {
        self.record_when(&format!("slots after {at}"), hosts, |record| {
            let mut schedules = record.schedules.iter();
            schedules.len() > 0 && schedules.all(|schedule| schedule.state.cursor_at > at)
        });
    }

    /// Waits until the newest runs satisfy `wanted`, up to [`PATIENCE`].
    pub fn newest_runs_when(&self, what: &str, wanted: impl Fn(&[RunRow]) -> bool) {
        let until = Instant::now() + PATIENCE;
        self.with_db(async |db| {
            loop {
                let mut tx = db.read().await.expect("a transaction");
                if wanted(&runs::list(&mut tx, None, 200).await.expect("runs")) {
                    return;
                }
                assert!(Instant::now() < until, "not in {PATIENCE:?}: {what}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }

    /// Waits until nothing is left of dead hosts, pauses all schedules, waits until every launch has ended, and returns the record.
    ///
    /// Launches of paused schedules still awaiting recovery are abandoned, as `schedule_disabled`.
    pub fn pause_and_finish(&self, hosts: &[&HostProcess]) -> Record {
        self.wait_until_recovered();
        self.with_db(async |db| {
            let now = Clock::system().now();
            let mut tx = db.write().await.expect("a transaction");
            let pause = schedules::Pause {
                by: "the test",
                note: None,
                until: None,
            };
            for schedule in schedules::all(&mut tx).await.expect("schedules") {
                schedules::pause(&mut tx, schedule.state.id, pause, now)
                    .await
                    .expect("a pause");
            }
            changes::bump(&mut tx).await.expect("a change");
            tx.commit().await.expect("a commit");
        });
        self.record_when("every launch ended", hosts, |record| {
            record
                .all_launches()
                .all(|launch| !is_unfinished(launch.status))
        })
    }

    /// Waits until no launch belongs to a dead host.
    fn wait_until_recovered(&self) {
        const ORPHANS: &str = "SELECT CAST(count(*) AS TEXT) FROM launch l
            JOIN host h ON h.id = CASE WHEN l.status = 'open' THEN l.decided_by ELSE l.host_id END
            WHERE l.status IN ('open', 'running') AND h.end_reason = 'died'";
        self.wait_until_none(ORPHANS);
    }

    /// Waits until a host that was killed, or that gave up, is on record as ended.
    pub fn wait_until_ended(&self, name: &str) {
        self.wait_until_none(&format!(
            "SELECT CAST(count(*) AS TEXT) FROM host WHERE name = '{name}' AND ended_at IS NULL"
        ));
    }

    /// Waits until `count` returns zero.
    fn wait_until_none(&self, count: &str) {
        let until = Instant::now() + PATIENCE;
        self.with_db(async |db| {
            loop {
                let mut tx = db.read().await.expect("a transaction");
                let found = probe::rows(&mut tx, count).await.expect("a count");
                if found[0][0] == "0" {
                    return;
                }
                assert!(
                    Instant::now() < until,
                    "after {PATIENCE:?}, {found:?}: {count}"
                );
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }

    /// Return the effects of the package `append`.
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

    /// Return the number of launches with a status.
    pub fn count(&self, status: LaunchStatus) -> usize {
        self.all_launches()
            .filter(|launch| launch.status == status)
            .count()
    }

    /// Return the runs of a launch in the order of their starts.
    pub fn runs_of(&self, launch: &LaunchRow) -> Vec<&RunRow> {
        self.runs
            .iter()
            .filter(|run| run.launch_id == launch.id)
            .collect()
    }

    /// Return a summary for the message of a failed test.
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

/// Return whether a launch may begin or has begun, and has not ended.
///
/// A queued launch waits for its jitter or for others. While its schedule is paused, it stays queued.
pub fn is_unfinished(status: LaunchStatus) -> bool {
    matches!(
        status,
        LaunchStatus::Open | LaunchStatus::Running | LaunchStatus::Waiting
    )
}

/// Return the path of a guest.
pub fn guest(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("guests/{name}.wasm"))
}

/// Return the time of this machine's clock.
pub fn now() -> Timestamp {
    Clock::system().now()
}

async fn read(db: &Db) -> Record {
    let mut tx = db.read().await.expect("a transaction");
    let mut by_schedule: BTreeMap<String, Vec<LaunchRow>> = BTreeMap::new();
    for launch in launch::list(&mut tx, None, ROWS_MAX)
        .await
        .expect("launches")
    {
        by_schedule
            .entry(launch.schedule.clone())
            .or_default()
            .push(launch);
    }
    for launches in by_schedule.values_mut() {
        launches.sort_by_key(|launch| launch.scheduled_time);
    }
    let mut runs = runs::list(&mut tx, None, ROWS_MAX).await.expect("runs");
    runs.sort_by_key(|run| run.started_at);
    Record {
        schedules: schedules::all(&mut tx).await.expect("schedules"),
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
