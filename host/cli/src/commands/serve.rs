//! `campanile serve`: start a host, and serve until a signal stops it.

mod first_lines;
mod live_line;

use std::io::{self, IsTerminal as _};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::SignalKind;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::{Config, Flags};
use crate::output::{ErrorCode, Failure, Result};
use crate::service_manager::ServiceManager;
use crate::signals::{self, StopSignals};
use crate::telemetry::{self, LogFormat};
use crate::{Common, LOAD_COMMAND, approval_key, progress};
use campanile_control::settings::{RecoveryLimits, Settings};
use campanile_engine::packages::watch::Watch;
use campanile_engine::{Engine, Followed, FollowedFile};
use campanile_model::clock::Clock;
use campanile_package::{
    ForeignWriters, HostRules, LoadLimits, OwnPath, OwnPathKind, OwnRecord, PackageLoader,
    Packages, PluginsFolder, UploadFolder, foreign_files,
};
use campanile_sandbox::{Sandbox, raise_descriptor_limit};
use campanile_server::{App, Listen, Server, SignIn, Tls, Uploads};
use campanile_store::{Db, DbError};

/// The package `hello`, which the first page of a new installation offers.
pub(crate) static HELLO: &[u8] = include_bytes!("../../assets/hello.wasm");

/// The first and the longest pause between two attempts to open the database.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(250);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// What an operator can do about files that other users can change.
pub(crate) const FOREIGN_HINT: &str = "take the right to write from the others with `chmod go-w PATH`, or give the path to the user of the host with `chown`; on a machine or in a container without other users, write `foreign_writers = \"warn\"` under `[policy]`";

#[derive(Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    flags: Flags,
    /// The format of log lines on stderr
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
    /// Log successful launches too, not only failed, cancelled, skipped and recovered ones
    #[arg(long)]
    verbose: bool,
    /// Be killed when the process PID, which started this one, ends; `selftest` starts its hosts this way
    #[cfg(target_os = "linux")]
    #[arg(long, hide = true, value_name = "PID")]
    end_with_parent: Option<i32>,
}

impl Serve {
    pub async fn run(self, common: &Common) -> Result {
        #[cfg(target_os = "linux")]
        if let Some(parent) = self.end_with_parent {
            end_with(parent)?;
        }
        telemetry::init(self.log_format, self.verbose).map_err(Failure::misconfigured)?;
        let config = common.config_with(self.flags)?;
        for warning in check_files(&config)? {
            tracing::warn!("{warning}");
        }
        let manager = ServiceManager::connect(&|name| std::env::var_os(name));
        let manager = manager.map_err(Failure::misconfigured)?;
        raise_descriptor_limit();
        config
            .sandbox_settings()
            .check_address_space()
            .map_err(Failure::misconfigured)?;
        let mut stopping = stop_signal()?;
        let clock = Clock::system();
        // Refuse a wrong configuration before the database is opened.
        let server = config.api_server();
        let tls = server.check().map_err(Failure::misconfigured)?;
        let loader = loader(&config, &clock)?;
        let Config { files, watch, .. } = &config;
        let rules = rules(&config, loader.sandbox());
        let uploads = UploadFolder::open(&files.plugins, Arc::clone(&loader), rules.clone());
        let uploads = Uploads {
            folder: uploads.map_err(Failure::misconfigured)?,
            takes_all: config.server.upload,
            hello: HELLO,
        };
        let folder = PluginsFolder::open(&files.plugins, Arc::clone(&loader), rules);
        let schedules = FollowedFile::new(files.schedules.clone(), watch.mode, watch.rescan);
        let followed = Followed {
            folder: folder.map_err(Failure::misconfigured)?,
            watcher: Watch::start(&files.plugins, watch.mode, watch.rescan),
            schedules: Some(schedules),
        };
        let db = tokio::select! {
            db = open_database(&config, &clock) => db?,
            _ = stopping.wait_for(|now| *now) => {
                tracing::info!("stopped before the database answered");
                return Ok(());
            }
        };
        let (name, settings) = (config.host.name.as_deref(), settings(&config));
        let own_record = OwnRecord::open(&config.state_dir(), &files.plugins);
        let own_record = own_record.with_key(approval_key::of_host(&config)?);
        let packages = Packages::new(own_record);
        let started = Engine::start(db.clone(), clock.clone(), name, settings, packages, loader);
        let (engine, lock) = started.await?;
        if let Some(manager) = manager {
            tokio::spawn(manager.report(engine.serving(), stopping.clone()));
        }
        let api = api(&server, tls, &config, (&engine, uploads), &stopping).await;
        let (api, sign_in) = api.unzip();
        let lines = async {
            if is_read(self.log_format) {
                let sign_in = sign_in.flatten();
                let link = || sign_in.map(|sign_in| sign_in.offer(clock.now()));
                first_lines::print(&db, &files.plugins, engine.serving(), link).await;
                live_line::draw(&db, &clock, &engine, stopping.clone()).await;
            }
        };
        let mut served = pin!(Arc::clone(&engine).serve(lock, followed, stopping.clone()));
        let served = tokio::select! {
            served = &mut served => served,
            () = lines => served.await,
        };
        if let Some(api) = api {
            // It ends by itself within seconds after the stop; a host that stops for another reason ends it here.
            api.abort();
            let _ = api.await;
        }
        crate::close(&db).await;
        served.map_err(Failure::failed)
    }
}

/// Start the API, which can sign a browser in. If another process has its address, the host runs without the API.
async fn api(
    server: &Server,
    tls: Option<Tls>,
    config: &Config,
    (engine, uploads): (&Arc<Engine>, Uploads),
    stopping: &watch::Receiver<bool>,
) -> Option<(JoinHandle<()>, Option<SignIn>)> {
    let bound = match campanile_server::bind(server, tls).await {
        Ok(bound) => bound?,
        Err(why) => {
            tracing::warn!("{why}");
            return None;
        }
    };
    match server.listen {
        Listen::Unix(_) => tracing::info!("the API answers at {}", bound.url),
        _ => tracing::info!(
            "the API answers at {}; its token is in {}",
            bound.url,
            server.token_file.display()
        ),
    }
    if let Some(origin) = bound.url.strip_suffix("/api/v1")
        && origin.starts_with("http")
    {
        tracing::info!("the pages for a browser are at {origin}/");
    }
    let app = App {
        engine: Arc::clone(engine),
        configuration: config.keys(),
        settings: settings(config),
        stopping: stopping.clone(),
        uploads: Some(uploads),
        machine_notes: {
            let config = config.clone();
            Arc::new(move || machine_notes(&config))
        },
    };
    let sign_in = bound.sign_in.clone();
    let api = tokio::spawn(campanile_server::serve(bound, app));
    Some((api, sign_in))
}

/// Returns what an operator should look at on this machine. Blocks.
///
/// A command that reads them may belong to another user than the host, so they are no issues of its health.
pub(crate) fn machine_notes(config: &Config) -> Vec<String> {
    let mut notes = config.foreign_writers();
    notes.extend(foreign_files(&config.files.plugins));
    notes
}

/// Whether a person at a terminal reads the log.
fn is_read(format: LogFormat) -> bool {
    io::stderr().is_terminal() && format == LogFormat::Human
}

/// Create the loader of this host, with its sandbox.
pub(crate) fn loader(config: &Config, clock: &Clock) -> Result<Arc<PackageLoader>> {
    let limits = LoadLimits {
        memory_bytes: config.packages.load_memory_bytes,
        time: config.packages.load_time,
    };
    let args = vec![LOAD_COMMAND.to_owned()];
    let (settings, clock) = (config.sandbox_settings(), clock.clone());
    let loader = PackageLoader::isolated(settings, limits, args, clock, progress::compiling);
    loader.map(Arc::new).map_err(Failure::failed)
}

/// Has the system kill this process when its parent ends. Fails if `parent` is no longer the parent: it died before the system was asked,
/// so the signal would never come.
#[cfg(target_os = "linux")]
fn end_with(parent: i32) -> Result {
    let killed = rustix::process::Signal::KILL;
    rustix::process::set_parent_process_death_signal(Some(killed)).map_err(Failure::failed)?;
    let now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    if now == Some(parent) {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "the process {parent}, which started this host, has ended"
    )))
}

/// Checks files other users of this machine can change, refusing them or returning warnings as configured. Also refuses conflicting paths,
/// and channel secrets that are unusable or readable by others.
pub(crate) fn check_files(config: &Config) -> Result<Vec<String>> {
    if let Some(why) = config.contradiction() {
        return Err(Failure::misconfigured(why));
    }
    let secrets = config.alert_secrets();
    if !secrets.is_empty() {
        return Err(Failure::misconfigured(secrets.join("; ")));
    }
    let found = config.foreign_writers();
    match config.policy.foreign_writers {
        ForeignWriters::Refuse if !found.is_empty() => {
            let failure = Failure::refused(found.join("; ")).code(ErrorCode::Refused);
            Err(failure.hint(FOREIGN_HINT))
        }
        _ => Ok(found),
    }
}

/// Returns the rules of this host for packages.
pub(crate) fn rules(config: &Config, sandbox: &Sandbox) -> HostRules {
    let cache = sandbox.cache_dir().map(|path| OwnPath {
        kind: OwnPathKind::Cache,
        path: path.to_owned(),
    });
    HostRules {
        limits: config.limits.clone(),
        memory_bytes_most: config.sandbox.memory_bytes_max,
        env: |name| std::env::var_os(name),
        // The sandbox may use another cache than the configured one.
        own_paths: config.own_paths().into_iter().chain(cache).collect(),
        secrets: config.secrets.keys().cloned().collect(),
        secret_variables: config.secret_variables(),
        foreign_writers: config.policy.foreign_writers,
        groups: config.groups.clone(),
        policy: config.package_policy(),
    }
}

/// Returns the settings of the engine.
pub(crate) fn settings(config: &Config) -> Settings {
    Settings {
        runs_max: config.host.runs_max as usize,
        quota: config.quota,
        groups: config.groups.clone(),
        namespaces: Arc::new(config.namespaces.clone()),
        labels: config.host.labels.clone(),
        placement: config.host.placement,
        lease: config.recovery.lease,
        renew: config.recovery.renew,
        late: config.late,
        schedule_defaults: config.defaults.policies(),
        recovery: RecoveryLimits {
            lost_threshold: config.recovery.lost_threshold,
            age_max: config.recovery.max_age,
            attempts_max: i64::from(config.recovery.max_attempts),
        },
        recovery_interval: config.recovery.interval,
        audit_interval: config.audit.interval,
        retention: config.retention.limits(),
        disk_reserve_bytes: config.host.disk_reserve_bytes,
        give_up_after: config.outbox.give_up_after,
        drain: config.host.drain,
        secrets: config.secrets.clone(),
        forget_after: config.packages.forget_after,
        policy: config.package_policy(),
        alerts: config.alerts.clone(),
        traces: config.traces.endpoint.clone(),
    }
}

/// Open the database; wait for it as long as the configuration allows.
async fn open_database(config: &Config, clock: &Clock) -> Result<Db> {
    let give_up_at = clock.now().plus(config.host.wait);
    let mut pause = RETRY_PAUSE_MIN;
    loop {
        let error = match Db::open_and_migrate(&config.files.database).await {
            Ok(db) => return Ok(db),
            Err(error) => error,
        };
        let waits = matches!(
            error,
            DbError::Unavailable(_) | DbError::Busy(_) | DbError::ReadOnly(_)
        );
        if !waits || clock.now() >= give_up_at {
            return Err(error.into());
        }
        tracing::warn!(
            "{error}; trying again in {:.1} s, giving up at {give_up_at}",
            pause.as_secs_f64()
        );
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY_PAUSE_MAX);
    }
}

/// Logs signals that would end other programs, ignoring them for the life of the process.
///
/// Closing a terminal sends SIGHUP, and log rotation tools send that or SIGUSR1. A host has no log file to reopen, and reads its
/// configuration just once.
fn outlive_signals() -> Result {
    for (name, kind) in [
        ("SIGHUP", SignalKind::hangup()),
        ("SIGUSR1", SignalKind::user_defined1()),
        ("SIGUSR2", SignalKind::user_defined2()),
    ] {
        let mut signals = signals::listen(kind)?;
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                tracing::warn!(
                    "{name} is ignored: a host reads its configuration only at its start; restart it to apply a change, and stop it with SIGTERM"
                );
            }
        });
    }
    Ok(())
}

/// Returns a channel that becomes true on Ctrl-C or SIGTERM. A second signal exits the process at once.
fn stop_signal() -> Result<watch::Receiver<bool>> {
    outlive_signals()?;
    let mut signals = StopSignals::listen()?;
    let (stop, stopping) = watch::channel(false);
    tokio::spawn(async move {
        loop {
            signals.wait().await;
            if stop.send_replace(true) {
                tracing::warn!(
                    "second stop signal: exiting without draining; the next host recovers the unfinished runs"
                );
                std::process::exit(1);
            }
            tracing::info!("stopping: no new launches; waiting for the unfinished runs");
        }
    });
    Ok(stopping)
}
