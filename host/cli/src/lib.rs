//! The command line: the contract that people and scripts rely on.
//!
//! Data goes to stdout, talk to stderr. Exit code 0: done; 1: the thing asked for failed;
//! 2: wrong usage, or refused before anything was done.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data: only `output.rs` writes there, and minds a closed pipe.
#![warn(clippy::print_stdout)]

mod commands;
mod config;
mod crontab;
mod output;
mod telemetry;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use campanile_model::clock::Clock;
use campanile_store::Db;
use commands::{
    backfill, bench, config as config_command, cron, db, event, launch, new, package, plan, run,
    schedule, serve, stats, task,
};
use config::{Config, Flags};
use output::Failure;

/// A bell tower for WebAssembly tasks: drop a compiled .wasm into a folder and it runs on its schedule,
/// sandboxed, and every ring is on the record.
#[derive(Parser)]
#[command(name = "campanile", version = VERSION.as_str(), max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// The version line: Campanile's, and those of what decides times and runs code.
static VERSION: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
    format!(
        "{} (wasmtime {}, tzdata {})",
        env!("CARGO_PKG_VERSION"),
        campanile_sandbox::WASMTIME_VERSION,
        campanile_schedule::rule::tzdata_version()
    )
});

/// How long the database may take to let go.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// Under this the help of every command shows what all of them understand.
const EVERYWHERE: &str = "Everywhere";

/// What every command understands.
#[derive(Args, Clone)]
struct Common {
    /// The configuration file [default: campanile.toml, if there is one]
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The database: sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE
    #[arg(long, global = true, help_heading = EVERYWHERE, value_name = "URL", hide_env_values = true)]
    database: Option<String>,
    /// Print JSON
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    json: bool,
    /// What [`Common::open`] opened.
    #[arg(skip)]
    opened: OnceCell<Db>,
}

#[derive(Subcommand)]
enum Command {
    /// Serve: watch the plugin folder, ring on schedule, keep the record
    Serve(serve::Serve),
    /// Write a project of your own to begin with: a task, its tests and how to build it
    New(new::New),
    /// Run a task once, without a database
    #[command(subcommand)]
    Task(task::Task),
    /// Say when packages are launched
    #[command(subcommand)]
    Schedule(schedule::Schedule),
    /// Look at backfills, and cancel them; `schedule backfill` begins one
    #[command(subcommand)]
    Backfill(backfill::Backfill),
    /// Try a rule of time: its slots, in words, in a calendar; without a database
    #[command(subcommand)]
    Cron(cron::Cron),
    /// Say what will run, and what would be caught up with after an outage
    Plan(plan::Plan),
    /// Look at launches: every decision about every slot
    #[command(subcommand)]
    Launch(launch::Launch),
    /// Look at runs: every attempt to carry a launch out
    #[command(subcommand)]
    Run(run::Run),
    /// Look at packages, and say which version of one is in force
    #[command(subcommand)]
    Package(package::Package),
    /// Look at what happened to the tower itself
    #[command(subcommand)]
    Event(event::Event),
    /// Numbers about the launches of a span of time
    Stats(stats::Stats),
    /// Whether the tower is well; exit code 1 when it is not
    Health(stats::HealthCommand),
    /// The database's tables
    #[command(subcommand)]
    Db(db::DbCommand),
    /// The configuration
    #[command(subcommand)]
    Config(config_command::ConfigCommand),
    /// Measure launches on this machine
    #[command(subcommand)]
    Bench(bench::Bench),
}

/// Read the arguments, do what they say, and give the exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.common.json;
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            return output::fail(
                &Failure::failed(format!("no threads could be started: {error}")),
                json,
            );
        }
    };
    let done = runtime.block_on(cli.run());
    // Whatever still runs in the background is not waited for.
    runtime.shutdown_background();
    match done {
        Ok(code) => code,
        Err(failure) => output::fail(&failure, json),
    }
}

impl Cli {
    async fn run(self) -> Result<ExitCode, Failure> {
        let common = self.common;
        let done = match self.command {
            Command::Serve(command) => command.run(&common).await,
            Command::New(command) => command.run(&common),
            Command::Task(command) => command.run(&common).await,
            Command::Schedule(command) => command.run(&common).await,
            Command::Backfill(command) => command.run(&common).await,
            Command::Cron(command) => command.run(&common),
            Command::Plan(command) => command.run(&common).await,
            Command::Launch(command) => command.run(&common).await,
            Command::Run(command) => command.run(&common).await,
            Command::Package(command) => command.run(&common).await,
            Command::Event(command) => command.run(&common).await,
            Command::Stats(command) => command.run(&common).await,
            Command::Health(command) => command.run(&common).await,
            Command::Db(command) => command.run(&common).await,
            Command::Config(command) => command.run(&common),
            Command::Bench(command) => command.run(&common).await,
        };
        if let Some(db) = common.opened.get() {
            close(db).await;
        }
        done
    }
}

/// Let go of the database, which takes a SQLite file's log back into it.
async fn close(db: &Db) {
    // One that does not answer any more does not say good-bye either.
    let _ = tokio::time::timeout(CLOSE_WAIT, db.close()).await;
}

/// The configuration of this process: its flags, its environment, the file of its working directory.
fn load(flags: &Flags) -> Result<Config, Failure> {
    Ok(Config::load(
        flags,
        &|name| std::env::var_os(name),
        Path::new(""),
    )?)
}

impl Common {
    fn flags(&self) -> Flags {
        Flags {
            config: self.config.clone(),
            database: self.database.clone(),
            ..Flags::default()
        }
    }

    fn config(&self) -> Result<Config, Failure> {
        load(&self.flags())
    }

    /// The database, whose tables must be those of this version. Closed when the command is done.
    async fn open(&self) -> Result<Db, Failure> {
        let db = Db::open_current(&self.config()?.database).await?;
        Ok(self.opened.get_or_init(|| db).clone())
    }

    /// The database and a clock that agrees with it.
    async fn open_with_clock(&self) -> Result<(Db, Clock), Failure> {
        let db = self.open().await?;
        let clock = Clock::system();
        if let Some(offset_us) = db.clock_offset_us(&clock).await? {
            clock.set_offset_us(offset_us);
        }
        Ok((db, clock))
    }
}
