//! The command line: the contract with operators and scripts.
//!
//! Data goes to stdout, messages to stderr. `output::Exit` lists the exit codes.

// A command's future nests those of the engine, store and driver, exceeding the usual limit of 128.
#![recursion_limit = "256"]
// Bad input must end with a message and an exit code, never with a panic. Tests may panic (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is for data. Only `output.rs` writes there, and it handles a closed pipe.
#![warn(clippy::print_stdout)]

mod approval_key;
mod ask;
mod client;
mod commands;
mod config;
mod crontab;
mod environment;
mod init;
mod output;
mod progress;
#[cfg(test)]
mod reference;
// Public for the tests: they run the same rounds through proxies.
#[doc(hidden)]
pub mod selftest;
mod service_manager;
mod signals;
mod telemetry;
mod times;
mod user;
mod watch;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use serde::Serialize;
use tokio::signal::unix::SignalKind;

use campanile_control::admin::schedule_admin::{self, ScheduleError};
use campanile_model::access::{Actor, Channel};
use campanile_model::clock::{Clock, Timestamp};
use campanile_store::{Db, Tx};
use client::{Client, Given};
use commands::{
    alert, audit, backfill, bench, completions, config as config_command, cron, db, dev, doctor,
    event, host, launch, mcp, new, outbox, package, plan, run, schedule,
    selftest as selftest_command, serve, stats, task, token, top,
};
use config::{Config, Flags};
use output::{Exit, Failure, Record, Result, failed};

/// Runs WebAssembly tasks on schedules.
///
/// Copy a .wasm file into the plugins folder: Campanile runs it in a sandbox on its schedule and records every launch.
#[derive(Parser)]
#[command(name = "campanile", version = VERSION.as_str(), max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// The versions of Campanile, of wasmtime and of the time zone database.
static VERSION: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
    format!(
        "{} (wasmtime {}, tzdata {})",
        env!("CARGO_PKG_VERSION"),
        campanile_sandbox::WASMTIME_VERSION,
        campanile_schedule::rule::tzdata_version()
    )
});

/// How long to wait for the database to close.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The heading of the options of every command.
const GLOBAL: &str = "Global options";

/// The options of every command.
#[derive(Args, Clone)]
struct Common {
    /// The configuration file [default: campanile.toml, if it exists]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The database: sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "URL", hide_env_values = true)]
    database: Option<String>,
    /// Ask the API of a host in place of the database: https://HOST:PORT, http:// on this machine, or unix:PATH
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "URL")]
    server: Option<String>,
    /// The token for that API, or @FILE to read it from a file
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "TOKEN|@FILE")]
    token: Option<String>,
    /// Print JSON
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Show times in lists as they're on record, in UTC; at a terminal, lists show how far away they are
    #[arg(long, global = true, help_heading = GLOBAL)]
    utc: bool,
    /// The database that [`Common::open`] opened.
    #[arg(skip)]
    opened: OnceCell<Db>,
    /// The API that [`Common::client`] found.
    #[arg(skip)]
    client: OnceCell<Option<Client>>,
}

/// The size limit of a list.
#[derive(Args)]
struct Limit {
    /// The most entries to list
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: i64,
}

#[derive(Subcommand)]
enum Command {
    /// Run a host: watch the plugins folder, launch tasks on schedule, record every launch
    Serve(serve::Serve),
    /// Create a project: a task, its tests and its build
    New(new::New),
    /// Run or check a task without a database
    #[command(subcommand, alias = "tasks")]
    Task(task::Task),
    /// Build a project and run its task once at each change, without a database
    Dev(dev::Dev),
    /// Define when packages are launched
    #[command(subcommand, alias = "schedules")]
    Schedule(schedule::Schedule),
    /// List, follow and cancel backfills; `schedule backfill` starts one
    #[command(subcommand, alias = "backfills")]
    Backfill(backfill::BackfillCommand),
    /// Try a rule without a database: its slots, an explanation, a calendar
    #[command(subcommand)]
    Cron(cron::Cron),
    /// Forecast the launches, also those after an outage or with another schedules file
    Plan(plan::Plan),
    /// List and show launches: the decisions about slots
    #[command(subcommand, alias = "launches")]
    Launch(launch::Launch),
    /// List and show runs: the attempts to execute launches
    #[command(subcommand, alias = "runs")]
    Run(run::Run),
    /// List, show, retry and discard the messages that tasks have sent
    #[command(subcommand)]
    Outbox(outbox::Outbox),
    /// List and silence alerts, and try the channels that are notified
    #[command(subcommand, alias = "alerts")]
    Alert(alert::Alert),
    /// List and show packages, and choose the active version
    #[command(subcommand, alias = "packages")]
    Package(package::Package),
    /// List what happened to hosts, packages and schedules
    #[command(subcommand, alias = "events")]
    Event(event::Event),
    /// List hosts, and drain one
    #[command(subcommand)]
    Host(host::Host),
    /// Create, list and revoke the tokens of people and programs
    #[command(subcommand, alias = "tokens")]
    Token(token::Token),
    /// Verify the record, and write a checkpoint of it
    #[command(subcommand)]
    Audit(audit::Audit),
    /// Serve assistants that speak the Model Context Protocol, on stdin and stdout
    Mcp(mcp::Mcp),
    /// Show statistics of the launches in a time span
    #[command(arg = watch::arg())]
    Stats(stats::Stats),
    /// Show hosts, runs, next slots and failures, and redraw them until Ctrl-C
    #[command(arg = watch::arg().default_value(watch::SECONDS), arg = watch::once())]
    Top,
    /// Check the health of the installation; exit code 1 when it is not healthy
    #[command(arg = watch::arg())]
    Health,
    /// Check what a host needs, and say what to mend; exit code 1 when it could not start or launch
    Doctor,
    /// Create, update or check the database's tables
    #[command(subcommand)]
    Db(db::DbCommand),
    /// Print or check the configuration
    #[command(subcommand)]
    Config(config_command::ConfigCommand),
    /// Measure the speed of launches on this machine
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Kill and suspend test hosts in a new schema or file, and report lost and doubled launches
    Selftest(selftest_command::Selftest),
    /// Print the completions of a shell
    Completions(completions::Completions),
    /// Print or write the manual pages
    Man(completions::Man),
    /// Load one file: a process that `serve` and `task` start for each file
    #[command(name = LOAD_COMMAND, hide = true)]
    LoadPackage { settings: String },
}

/// The command of the process that loads one file.
const LOAD_COMMAND: &str = "load-package";

/// Parse the arguments, run the command, and return the exit code.
pub fn main() -> ExitCode {
    let (cli, watch) = match read_arguments() {
        Ok(read) => read,
        Err(error) => return report_usage(error),
    };
    if let Command::LoadPackage { settings } = &cli.command {
        // Before this process has a second thread, which would not be confined.
        return campanile_package::load_in_this_process(settings);
    }
    let json = cli.common.json;
    if matches!(cli.command, Command::Serve(_)) && init::is_first_process() {
        return init::run().unwrap_or_else(|failure| failure.report(json));
    }
    progress::begin(json);
    if cli.common.utc {
        output::show_exact_times();
    }
    let done = tokio::runtime::Runtime::new()
        .map_err(|error| failed!("threads cannot be started: {error}"))
        .and_then(|runtime| {
            let done = runtime.block_on(cli.run(watch));
            // Do not wait for background work.
            runtime.shutdown_background();
            done
        });
    match done {
        Ok(()) => ExitCode::from(Exit::Success as u8),
        Err(failure) => failure.report(json),
    }
}

/// Read the arguments of this process. Return them with the pause between two rounds of a command that is repeated.
fn read_arguments() -> Result<(Cli, Option<Duration>), clap::Error> {
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    let read = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command));
    Ok((read?, watch::interval(&matches)))
}

/// Print the help text or the error in `error`, which is the answer of clap, and return the exit code.
fn report_usage(mut error: clap::Error) -> ExitCode {
    watch::suggest(&mut error);
    // A closed stdout or stderr does not change the exit code.
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::from(Exit::Success as u8);
    }
    let mut before_values = std::env::args_os().take_while(|arg| arg != "--");
    if before_values.any(|arg| arg == "--json") {
        let _ = output::print_json(&Failure::from(error));
    }
    ExitCode::from(Exit::Refused as u8)
}

impl Cli {
    /// Run the command once, or again and again with the pause `watch`.
    async fn run(self, watch: Option<Duration>) -> Result {
        survive_size_limit()?;
        let common = self.common;
        self.command.refuse_server(&common)?;
        let done = match watch {
            Some(pause) => watch::repeat(&common, self.command, pause).await,
            None => self.command.run(&common).await,
        };
        if let Some(db) = common.opened.get() {
            close(db).await;
        }
        done
    }
}

/// Let a write that exceeds the greatest size of a file, as `ulimit -f` sets it, fail with an error instead of ending the
/// process.
///
/// A handler and not an ignored signal: processes that this one starts do not inherit it.
fn survive_size_limit() -> Result {
    let exceeded = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    signals::listen(exceeded).map(drop)
}

impl Command {
    /// Refuse `--server` for a command that works on this machine.
    fn refuse_server(&self, common: &Common) -> Result {
        let (command, instead) = match self {
            Command::Serve(_) => ("serve", "a host opens its database: run it with --database"),
            Command::Schedule(schedule::Schedule::Import(_)) => (
                "schedule import",
                "run it with --database; or write the entries into a schedules file, and apply it with `campanile schedule reconcile`",
            ),
            Command::Stats(stats) if stats.prometheus => (
                "stats --prometheus",
                "read `/metrics` of the host: it has these metrics, and those of the host itself",
            ),
            Command::Doctor => (
                "doctor",
                "it checks the machine on which it runs: run it with --database on the machine of the host; `campanile health` asks the host itself",
            ),
            Command::Db(_) => (
                "db",
                "it opens, copies or changes the database itself: run it with --database where the database can be reached",
            ),
            Command::Bench(_) => (
                "bench",
                "it measures this machine with a database of its own: leave --server out",
            ),
            Command::Selftest(_) => (
                "selftest",
                "it checks this program with databases of its own: leave --server out",
            ),
            Command::New(_) => ("new", ""),
            Command::Task(_) => ("task", ""),
            Command::Dev(_) => ("dev", ""),
            Command::Cron(_) => ("cron", ""),
            Command::Config(_) => ("config", ""),
            Command::Completions(_) => ("completions", ""),
            Command::Man(_) => ("man", ""),
            _ => return Ok(()),
        };
        // A command that uses no database and no server refuses the option `--server`. It ignores CAMPANILE_SERVER, which is set
        // for other commands.
        match (instead, &common.server) {
            ("", Some(_)) => Err(client::works_here(command)),
            ("", None) => Ok(()),
            _ if common.client()?.is_some() => {
                let command = format!("`campanile {command}`");
                Err(client::needs_database(&command, instead))
            }
            _ => Ok(()),
        }
    }

    async fn run(self, common: &Common) -> Result {
        match self {
            Command::Serve(command) => command.run(common).await,
            Command::New(command) => command.run(common),
            Command::Task(command) => command.run(common).await,
            Command::Dev(command) => command.run(common).await,
            Command::Schedule(command) => command.run(common).await,
            Command::Backfill(command) => command.run(common).await,
            Command::Cron(command) => command.run(common),
            Command::Plan(command) => command.run(common).await,
            Command::Launch(command) => command.run(common).await,
            Command::Run(command) => command.run(common).await,
            Command::Outbox(command) => command.run(common).await,
            Command::Alert(command) => command.run(common).await,
            Command::Package(command) => command.run(common).await,
            Command::Event(command) => command.run(common).await,
            Command::Host(command) => command.run(common).await,
            Command::Token(command) => command.run(common).await,
            Command::Audit(command) => command.run(common).await,
            Command::Mcp(command) => command.run(common).await,
            Command::Stats(command) => command.run(common).await,
            Command::Top => top::run(common).await,
            Command::Health => stats::health(common).await,
            Command::Doctor => doctor::run(common).await,
            Command::Db(command) => command.run(common).await,
            Command::Config(command) => command.run(common).await,
            Command::Bench(command) => command.run(common).await,
            Command::Selftest(command) => command.run(common).await,
            Command::Completions(command) => command.run(),
            Command::Man(command) => command.run(common),
            // `main` runs it without threads.
            Command::LoadPackage { .. } => Ok(()),
        }
    }
}

/// Returns the folder of a file; that of a bare name is the working directory.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Close the database. SQLite then merges its write-ahead log into the file.
async fn close(db: &Db) {
    // A database that does not answer cannot be closed either.
    let _ = tokio::time::timeout(CLOSE_WAIT, db.close()).await;
}

impl Common {
    fn config(&self) -> Result<Config> {
        self.config_with(Flags::default())
    }

    /// Load the configuration from flags, environment and file.
    fn config_with(&self, flags: Flags) -> Result<Config> {
        let flags = Flags {
            config: self.config.clone(),
            database: self.database.clone(),
            ..flags
        };
        let env = |name: &str| std::env::var_os(name);
        let config = Config::load(&flags, &env, Path::new(""));
        config.map_err(Failure::misconfigured)
    }

    /// Returns the API that commands ask in place of the database; none for the database.
    fn client(&self) -> Result<Option<&Client>> {
        if let Some(client) = self.client.get() {
            return Ok(client.as_ref());
        }
        let given = Given {
            server: self.server.as_deref(),
            token: self.token.as_deref(),
            database: self.database.as_deref(),
        };
        let client = client::given(given, &|name| std::env::var(name).ok())?;
        Ok(self.client.get_or_init(|| client).as_ref())
    }

    /// Open the database; its tables must be those of this version. It is opened once, and closed when the command ends.
    async fn open(&self) -> Result<Db> {
        self.open_as(Channel::Cli).await
    }

    /// Open the database for changes that come on the way `channel`. A database that is open keeps its channel.
    async fn open_as(&self, channel: Channel) -> Result<Db> {
        if let Some(db) = self.opened.get() {
            return Ok(db.clone());
        }
        if self.client()?.is_some() {
            let instead = "run it with --database where the database can be reached";
            return Err(client::needs_database("this command", instead));
        }
        let db = Db::open_current(&self.config()?.files.database).await?;
        let db = db.acting_as(Actor {
            channel,
            ..user::actor()
        });
        Ok(self.opened.get_or_init(|| db).clone())
    }

    /// Open the database, and return it with a clock that follows the database's.
    async fn open_with_clock(&self) -> Result<(Db, Clock)> {
        let db = self.open().await?;
        let clock = Clock::system();
        if let Some(anchor) = db.clock_anchor(&clock).await? {
            clock.follow(anchor);
        }
        Ok((db, clock))
    }

    /// Open the database and begin a read transaction; return it with the time of the database's clock.
    async fn read_with_time(&self) -> Result<(Tx, Timestamp)> {
        let (db, clock) = self.open_with_clock().await?;
        Ok((db.read_long().await?, clock.now()))
    }

    /// Open the database and begin a write transaction; return it with the time of the database's clock.
    async fn write_with_time(&self) -> Result<(Tx, Timestamp)> {
        let (db, clock) = self.open_with_clock().await?;
        Ok((db.write().await?, clock.now()))
    }

    /// Open the database and run `change` at the time of its clock, in a transaction that is then committed.
    async fn change<T>(
        &self,
        change: impl AsyncFn(&mut Tx, Timestamp) -> Result<T, ScheduleError>,
    ) -> Result<T> {
        let (db, clock) = self.open_with_clock().await?;
        let now = clock.now();
        Ok(schedule_admin::change(&db, async |tx| change(tx, now).await).await?)
    }

    /// Print a record for people, or as a JSON object.
    fn print(&self, record: &impl Record) -> Result {
        if self.json {
            output::print_json(record)
        } else {
            record.print()
        }
    }

    /// Print records as a table, or as a JSON array.
    fn print_list<R: Record>(&self, records: &[R]) -> Result {
        if self.json {
            output::print_json(records)
        } else {
            output::print_table(records)
        }
    }

    /// Print `text` for people, or `report` as JSON.
    fn print_report(&self, report: &impl Serialize, text: &str) -> Result {
        if self.json {
            output::print_json(report)
        } else {
            output::print_line(text)
        }
    }
}
