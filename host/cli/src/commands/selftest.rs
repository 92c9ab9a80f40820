//! `campanile selftest`: kill and suspend hosts on the user's own database, and report what became of the launches.
//!
//! The hosts serve a schema, or a file, that exists only for the selftest.

use std::path::Path;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use tempfile::TempDir;

use crate::config::Config;
use crate::output::{self, ErrorCode, Failure, Record, Result, failed, refused};
use crate::progress::Line;
use crate::selftest::{self, Outcome, Place, SCHEDULES, Scratch, Settings, Totals};
use crate::signals::StopSignals;
use crate::{Common, folder_of};
use campanile_control::reports::verify::Verification;
use campanile_control::rules::lateness::Lag;
use campanile_engine::crash;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::uuid_at;
use campanile_model::text::{duration_text, size_text};
use campanile_sandbox::own_files::temporary_directory;
use campanile_store::{DatabaseUrl, Db, DbError, HostLock, hosts};

/// The beginning of the name of everything that exists only for a selftest.
const PREFIX: &str = "campanile_selftest_";
/// The hosts on Postgres, unless the command says otherwise. A SQLite file is served by one.
const HOSTS: u32 = 3;

#[derive(Args)]
pub(crate) struct Selftest {
    /// The number of faults, one after the other
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// The number that chooses the faults; a report has it, so that the same faults can be repeated
    #[arg(long)]
    seed: Option<u64>,
    /// The number of hosts [default: 3 on Postgres, 1 on SQLite]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=8))]
    hosts: Option<u32>,
    /// Leave the schema or the file, and the folder with the hosts' logs
    #[arg(long)]
    keep: bool,
}

/// Refuse a number of hosts that cannot serve the database.
pub(super) fn refuse_hosts(database: &DatabaseUrl, hosts: u32) -> Result {
    if hosts > 1 && !database.is_shared() {
        return Err(refused!(
            "a SQLite file is served by one host, and `--hosts` asks for {hosts}"
        )
        .hint("leave `--hosts` out, or name a Postgres database with `--database`"));
    }
    Ok(())
}

/// The report of a selftest.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct SelftestReport {
    /// Whether there is no problem.
    ok: bool,
    campanile_version: &'static str,
    wasmtime_version: &'static str,
    tzdata_version: &'static str,
    /// The operating system and its version.
    system: String,
    /// `sqlite` or `postgres`.
    database: &'static str,
    database_version: String,
    /// When it began.
    at: Timestamp,
    seconds: f64,
    seed: u64,
    hosts: u32,
    schedules: usize,
    rounds: u32,
    /// Whether this build can abort at crash points: release builds cannot.
    has_crash_points: bool,
    #[serde(flatten)]
    outcome: Outcome,
    /// With `--keep`: the database, and the folder with the hosts' logs.
    kept: Vec<String>,
}

impl Record for SelftestReport {
    fn print(&self) -> Result {
        for (name, text) in self.lines() {
            output::print_line!("{name:14}{text}")?;
        }
        output::print_line(if self.ok {
            "no problem"
        } else {
            "there are problems"
        })
    }
}

impl SelftestReport {
    fn lines(&self) -> Vec<(&'static str, String)> {
        let outcome = &self.outcome;
        let mut lines = self.lines_about_the_program();
        lines.extend([
            (
                "rounds",
                format!("{} of {}", outcome.rounds_done, self.rounds),
            ),
            (
                "faults",
                format!(
                    "{} kills, {} suspensions",
                    outcome.kills, outcome.suspensions
                ),
            ),
            ("crash points", self.crash_points()),
            ("slots", self.slots()),
            ("launches", self.launches()),
            ("effects", self.effects()),
            (
                "take-over",
                format!(
                    "{} of {} runs",
                    percentiles(&outcome.take_over_ms),
                    outcome.take_overs
                ),
            ),
            ("delay", percentiles(&outcome.delay_ms)),
            ("verification", verification(&outcome.verification)),
        ]);
        lines.extend(self.kept.iter().map(|kept| ("kept", kept.clone())));
        let problems = outcome.problems.iter();
        lines.extend(problems.map(|problem| ("problem", problem.clone())));
        if outcome.problems_left_out > 0 {
            lines.push(("problem", format!("{} more", outcome.problems_left_out)));
        }
        lines
    }

    fn lines_about_the_program(&self) -> Vec<(&'static str, String)> {
        vec![
            (
                "campanile",
                format!(
                    "{} (wasmtime {}, tzdata {})",
                    self.campanile_version, self.wasmtime_version, self.tzdata_version
                ),
            ),
            ("system", self.system.clone()),
            (
                "database",
                format!("{} {}", self.database, self.database_version),
            ),
            ("at", format!("{}, for {:.0} s", self.at, self.seconds)),
            ("seed", self.seed.to_string()),
            (
                "hosts",
                format!("{}, with {} schedules", self.hosts, self.schedules),
            ),
        ]
    }

    fn crash_points(&self) -> String {
        match (self.has_crash_points, self.outcome.crash_points.as_slice()) {
            (false, _) => "none in a release build".to_owned(),
            (true, []) => "none was reached".to_owned(),
            (true, points) => points.join(", "),
        }
    }

    fn slots(&self) -> String {
        let Outcome {
            slots,
            slots_missing,
            slots_twice,
            totals,
            ..
        } = &self.outcome;
        format!(
            "{slots}, {slots_missing} without a decision, {slots_twice} with more than one, {} skipped",
            totals.skipped
        )
    }

    fn launches(&self) -> String {
        let totals = &self.outcome.totals;
        format!(
            "{}: {} succeeded, {} failed, {} abandoned, {} unfinished, {} lost, {} doubled",
            totals.launches,
            totals.succeeded,
            totals.failed,
            totals.abandoned,
            totals.unfinished,
            totals.lost,
            totals.doubled
        )
    }

    fn effects(&self) -> String {
        let Totals {
            effects, repeated, ..
        } = self.outcome.totals;
        format!("{effects}; {repeated} launches had more than one, marked as that of a recovery")
    }
}

fn percentiles(lag: &Lag) -> String {
    let [p50, p99, max] = [lag.p50, lag.p99, lag.max].map(|ms| ms / 1e3);
    format!("p50 {p50:.2} s, p99 {p99:.2} s, max {max:.2} s")
}

fn verification(found: &Verification) -> String {
    let faults = match found.faults.len() {
        0 => "no fault".to_owned(),
        faults => format!("{faults} faults"),
    };
    format!(
        "{faults} in {} launches, {} events and {} seals",
        found.launches, found.events, found.seals
    )
}

impl Selftest {
    pub(crate) async fn run(self, common: &Common) -> Result {
        let config = common.config()?;
        let hosts = self.hosts(&config.files.database)?;
        refuse_in_use(&config).await?;
        let stop = StopSignals::listen();
        let mut stop = stop.map_err(|failure| Failure::misconfigured(failure.message))?;
        let clock = Clock::system();
        let begun = clock.now();
        let seed = self.seed.unwrap_or(begun.micros().unsigned_abs());
        let bench = Bench::set_up(&config, begun).await?;
        let done = tokio::select! {
            done = self.measure(&config, &bench, &clock, (hosts, seed, begun)) => done,
            () = stop.wait() => Err(failed!("the selftest was stopped; it has killed its hosts")),
        };
        // Its own database is discarded also after an error.
        let kept = bench.clean_up(self.keep).await;
        let (mut report, kept) = match (done, kept) {
            (Ok(report), kept) => (report, kept?),
            (Err(failure), Err(left)) => return Err(failure.hint(left.message)),
            (Err(failure), Ok(kept)) => return Err(failure.hint(kept.join("; "))),
        };
        report.kept = kept;
        common.print(&report)?;
        output::check(report.ok)
    }

    /// Returns the number of hosts, if that number can serve the database.
    fn hosts(&self, database: &DatabaseUrl) -> Result<u32> {
        match self.hosts {
            Some(hosts) => refuse_hosts(database, hosts).map(|()| hosts),
            None if database.is_shared() => Ok(HOSTS),
            None => Ok(1),
        }
    }

    async fn measure(
        &self,
        config: &Config,
        bench: &Bench,
        clock: &Clock,
        (hosts, seed, begun): (u32, u64, Timestamp),
    ) -> Result<SelftestReport> {
        let (db, started) = (&bench.db, Instant::now());
        if let Some(anchor) = db.clock_anchor(clock).await? {
            clock.follow(anchor);
        }
        let settings = Settings {
            program: std::env::current_exe().map_err(Failure::failed)?,
            rounds: self.rounds as usize,
            seed,
            lease: config.recovery.lease,
            crash_points: if crash::IS_BUILT_IN {
                &crash::POINTS
            } else {
                &[]
            },
        };
        let places = (1..=hosts).map(|number| Place {
            name: format!("selftest-{number}"),
            database: db.url().clone(),
            network: None,
        });
        let step = Line::parts(u64::from(self.rounds));
        step.say("rounds");
        let outcome = selftest::run(
            db,
            clock,
            &bench.scratch,
            places.collect(),
            &settings,
            |round| {
                step.set(round as u64);
            },
        );
        let outcome = outcome.await?;
        let system = rustix::system::uname();
        let (name, release) = (system.sysname(), system.release());
        Ok(SelftestReport {
            ok: outcome.problems.is_empty(),
            campanile_version: env!("CARGO_PKG_VERSION"),
            wasmtime_version: campanile_sandbox::WASMTIME_VERSION,
            tzdata_version: campanile_schedule::rule::tzdata_version(),
            system: format!("{} {}", name.to_string_lossy(), release.to_string_lossy()),
            database: config.files.database.backend(),
            database_version: db.version().await?,
            at: begun,
            seconds: started.elapsed().as_secs_f64(),
            seed,
            hosts,
            schedules: SCHEDULES,
            rounds: self.rounds,
            has_crash_points: crash::IS_BUILT_IN,
            outcome,
            kept: Vec::new(),
        })
    }
}

/// What exists only for a selftest: a database, and a folder for its hosts.
struct Bench {
    db: Db,
    scratch: Scratch,
    folder: TempDir,
}

impl Bench {
    /// Create the folder and the database, with empty tables. After an error nothing is left.
    ///
    /// A SQLite file is in the folder, and the folder beside the user's database: on the same disk.
    async fn set_up(config: &Config, now: Timestamp) -> Result<Bench> {
        let database = &config.files.database;
        let name = format!("{PREFIX}{}", uuid_at(now).simple());
        let folder = match database.sqlite_path() {
            Some(path) => folder_beside(path, &name)?,
            None => temporary_directory().map_err(Failure::failed)?,
        };
        let scratch = Scratch::create(folder.path(), SCHEDULES, &configuration(config));
        let scratch = scratch.map_err(|error| failed!("{}: {error}", folder.path().display()))?;
        let db = match database {
            DatabaseUrl::Sqlite(_) => {
                let file = folder.path().join("campanile.db");
                Db::open_and_migrate(&DatabaseUrl::Sqlite(file)).await?
            }
            DatabaseUrl::Postgres(_) => Db::open_scratch(database, &name).await?,
        };
        Ok(Bench {
            db,
            scratch,
            folder,
        })
    }

    /// Delete the database and the folder, or return where they are.
    async fn clean_up(self, keep: bool) -> Result<Vec<String>> {
        let database = self.db.url().to_string();
        if !keep {
            let discarded = self.db.discard().await;
            return match discarded {
                Ok(()) => Ok(Vec::new()),
                Err(error) => Err(failed!("{database} could not be deleted: {error}")
                    .hint("delete it yourself; nothing else uses it")),
            };
        }
        self.db.close().await;
        let folder = self.folder.keep();
        Ok(vec![database, folder.display().to_string()])
    }
}

/// Create the folder `name` beside the SQLite file at `path`.
fn folder_beside(path: &Path, name: &str) -> Result<TempDir> {
    use std::os::unix::fs::PermissionsExt as _;

    let parent = folder_of(path);
    let parent = &std::fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
    let only_owner = std::fs::Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new()
        .prefix(name)
        .rand_bytes(0)
        .permissions(only_owner)
        .tempdir_in(parent);
    folder.map_err(|error| {
        refused!(
            "no folder can be created beside the database: {}: {error}",
            parent.display()
        )
        .hint("name a database in a folder that you may write, with `--database`")
    })
}

/// Returns the configuration of the hosts as TOML. It has the sections of the user's configuration that change how hosts take
/// runs over, or whether they can start.
fn configuration(config: &Config) -> String {
    let recovery = &config.recovery;
    let [lease, renew, interval] =
        [recovery.lease, recovery.renew, recovery.interval].map(duration_text);
    format!(
        "[recovery]\nlease = \"{lease}\"\nrenew = \"{renew}\"\ninterval = \"{interval}\"\n\
         [host]\ndisk_reserve = \"{}\"\n[policy]\nforeign_writers = \"{}\"\n",
        size_text(config.host.disk_reserve_bytes),
        config.policy.foreign_writers.as_str()
    )
}

/// Refuse a database that live hosts serve, and a schema that has the tables of Campanile.
async fn refuse_in_use(config: &Config) -> Result {
    let database = &config.files.database;
    match database {
        DatabaseUrl::Sqlite(path) if HostLock::is_file_locked(path) => {
            Err(in_use("a host serves this database"))
        }
        DatabaseUrl::Sqlite(_) => Ok(()),
        DatabaseUrl::Postgres(url) => {
            let names = live_hosts(config).await?;
            if let Some(names) = names.as_deref().filter(|names| !names.is_empty()) {
                let names = names.join("`, `");
                return Err(in_use(&format!(
                    "live hosts serve this database: `{names}`"
                )));
            }
            match (names, url.schema()) {
                (Some(_), Some(schema)) => Err(refused!(
                    "the address names the schema `{schema}`, which has the record of an installation"
                )
                .code(ErrorCode::Conflict)
                .hint("the selftest creates a schema of its own: leave `search_path` out of the address, or name another database")),
                _ => Ok(()),
            }
        }
    }
}

fn in_use(what: &str) -> Failure {
    let hint = "the faults of a selftest would slow them down: stop the hosts, or name another database with `--database`";
    refused!("{what}").code(ErrorCode::Conflict).hint(hint)
}

/// Returns the names of the hosts that serve the schema of a Postgres address; none when the schema has no record.
async fn live_hosts(config: &Config) -> Result<Option<Vec<String>>> {
    let db = Db::open(&config.files.database).await?;
    let has_record = match db.migrations().await {
        Ok(states) => states.iter().any(|state| state.applied),
        // The tables of another version cannot be read, but they are a record too.
        Err(DbError::Schema(_) | DbError::NewerSchema(_)) => {
            db.close().await;
            return Ok(Some(Vec::new()));
        }
        Err(error) => return Err(error.into()),
    };
    let mut names = None;
    if has_record {
        let now = db.server_time().await?.unwrap_or(Timestamp::EPOCH);
        let live = hosts::live(&mut db.read().await?).await?.into_iter();
        let live = live.filter(|host| host.is_alive(now));
        names = Some(live.map(|host| host.name).collect());
    }
    db.close().await;
    Ok(names)
}
