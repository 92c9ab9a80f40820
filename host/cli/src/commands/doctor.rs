//! `campanile doctor`: what a host needs, looked at before it starts. It changes nothing but the cache.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use super::serve::{self, FOREIGN_HINT};
use crate::config::Config;
use crate::output::{self, Failure, Record, Result};
use crate::{Common, approval_key, folder_of};
use campanile_control::reports::health::SKEW_REPORTED_US;
use campanile_model::clock::Clock;
use campanile_model::text::{duration_text, size_rounded};
#[cfg(target_os = "linux")]
use campanile_package::{Approval, Attempt, Confinement, ForeignWriters, load};
use campanile_store::{Db, DbError, disk};

/// A small package, to try the sandbox with.
const NOOP: &[u8] = include_bytes!("../../assets/noop.wasm");

/// What gives the hosts of a database a key in common.
const APPROVAL_KEY_HINT: &str = "several hosts need one key: `campanile package approval-key FILE` makes it; name it as `approval_key` under `[policy]` on each";
/// How long to look for damage in the database.
const DAMAGE_TIME: Duration = Duration::from_secs(10);
/// The open files that a host needs besides those of its runs.
const HOST_FILES: u64 = 128;
/// The open files that a run needs: its directories, its connections.
const RUN_FILES: u64 = 8;

/// What `doctor` found.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct DoctorReport {
    /// Whether no check failed.
    ok: bool,
    checks: Vec<Check>,
}

/// One thing that a host needs.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Check {
    /// What was looked at.
    check: &'static str,
    state: State,
    /// What was found, one sentence.
    detail: String,
    /// What to do about it. Null when all is well.
    fix: Option<String>,
}

/// How well one thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    /// A host works, and something should be mended.
    Warning,
    /// A host does not start, or launches nothing.
    Failed,
}

impl Check {
    fn ok(check: &'static str, detail: impl Into<String>) -> Check {
        Check {
            check,
            state: State::Ok,
            detail: detail.into(),
            fix: None,
        }
    }

    fn warning(check: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
        Check {
            state: State::Warning,
            fix: Some(fix.into()),
            ..Check::ok(check, detail)
        }
    }

    fn failed(check: &'static str, detail: impl Into<String>, fix: impl Into<String>) -> Check {
        Check {
            state: State::Failed,
            ..Check::warning(check, detail, fix)
        }
    }
}

impl Record for DoctorReport {
    fn print(&self) -> Result {
        for Check {
            check,
            state,
            detail,
            fix,
        } in &self.checks
        {
            let state = match state {
                State::Ok => "ok",
                State::Warning => "warning",
                State::Failed => "FAILED",
            };
            output::print_line!("{state:7}  {check:13}  {detail}")?;
            if let Some(fix) = fix {
                output::print_line!("{:7}  {:13}  fix: {fix}", "", "")?;
            }
        }
        Ok(())
    }
}

/// Print what a host with this configuration needs; fail when something is missing.
pub(crate) async fn run(common: &Common) -> Result {
    let checks = match common.config() {
        Ok(config) => checks(&config).await,
        Err(failure) => vec![Check::failed(
            "configuration",
            failure.message,
            "correct it; `campanile config default` prints every key with its meaning",
        )],
    };
    let ok = checks.iter().all(|check| check.state != State::Failed);
    common.print(&DoctorReport { ok, checks })?;
    output::check(ok)
}

async fn checks(config: &Config) -> Vec<Check> {
    let mut checks = vec![match &config.file {
        Some(file) => Check::ok("configuration", file.display().to_string()),
        None => Check::ok("configuration", "no file: the defaults apply"),
    }];
    checks.extend(database(config).await);
    checks.push(plugins(&config.files.plugins));
    checks.extend(permissions(config));
    checks.push(decisions(config));
    checks.extend(server(config));
    checks.push(open_files(config));
    checks.extend(sandbox(config).await);
    checks.push(confinement());
    checks
}

/// Check the database, this machine's clock beside its own, and its disk.
async fn database(config: &Config) -> Vec<Check> {
    let url = &config.files.database;
    if let Some(path) = url.sqlite_path().filter(|path| !path.exists()) {
        let free = disk::free_bytes(folder_of(path)).ok();
        return vec![missing_database(path), disk_space(free, config)];
    }
    let opened = async {
        let db = Db::open(url).await?;
        db.refuse_unservable().await?;
        let migrations = db.migrations().await?;
        Ok::<_, DbError>((db, migrations))
    };
    let (db, migrations) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            let failure = Failure::from(error);
            let hint = "look at the address of the database and at its server; `campanile db status` tries it again";
            let fix = failure.hint.unwrap_or_else(|| hint.to_owned());
            return vec![Check::failed("database", failure.message, fix)];
        }
    };
    let tables = if migrations.iter().all(|migration| migration.applied) {
        Check::ok(
            "database",
            format!("{url} answers, and its tables are current"),
        )
    } else {
        Check::warning(
            "database",
            format!("{url} answers, and its tables are older than this version, or absent"),
            "`campanile serve` migrates them when it starts, and so does `campanile db migrate`",
        )
    };
    let mut checks = vec![
        tables,
        clock(&db).await,
        disk_space(db.free_bytes().await, config),
    ];
    checks.extend(damage(&db).await);
    crate::close(&db).await;
    checks
}

/// Looks for damage in a SQLite file, for a while: a large file takes minutes to read.
async fn damage(db: &Db) -> Option<Check> {
    const NAME: &str = "file";
    db.url().sqlite_path()?;
    let fix = "restore a backup with `campanile db restore`; a host stops as soon as it reads the damaged part";
    Some(
        match tokio::time::timeout(DAMAGE_TIME, db.search_damage()).await {
            Ok(Ok(None)) => Check::ok(NAME, "SQLite finds no damage in the database"),
            Ok(Ok(Some(damage))) => {
                Check::failed(NAME, format!("the database is damaged: {damage}"), fix)
            }
            Ok(Err(error)) => Check::failed(NAME, error.to_string(), fix),
            Err(_) => Check::ok(
                NAME,
                format!(
                    "SQLite found no damage within {}; `campanile db backup` looks at all of it",
                    duration_text(DAMAGE_TIME)
                ),
            ),
        },
    )
}

fn missing_database(path: &Path) -> Check {
    let folder = folder_of(path);
    let shown = path.display();
    match tempfile::tempfile_in(folder) {
        Ok(_) => Check::warning(
            "database",
            format!("{shown} does not exist yet"),
            "`campanile serve` creates it",
        ),
        Err(error) => Check::failed(
            "database",
            format!("{shown} cannot be created: {error}"),
            format!(
                "create the folder {}, and let this user write to it",
                folder.display()
            ),
        ),
    }
}

async fn clock(db: &Db) -> Check {
    const NAME: &str = "clock";
    let clock = Clock::system();
    match db.clock_anchor(&clock).await {
        Err(error) => Check::failed(NAME, error.to_string(), "see the line of the database"),
        Ok(None) => Check::ok(NAME, "the database has this machine's clock"),
        Ok(Some(anchor)) => {
            clock.follow(anchor);
            let skew_us = clock.skew_us();
            let seconds = skew_us as f64 / 1e6;
            let detail = format!(
                "this machine's clock is {:.1} s off the database's",
                seconds.abs()
            );
            if skew_us.abs() < SKEW_REPORTED_US {
                Check::ok(NAME, detail)
            } else {
                Check::warning(NAME, detail, "let NTP set the clocks of both machines")
            }
        }
    }
}

/// Check the disk of a SQLite database, with `free` bytes.
fn disk_space(free: Option<u64>, config: &Config) -> Check {
    const NAME: &str = "disk";
    let reserve = config.host.disk_reserve_bytes;
    match free {
        None => Check::ok(
            NAME,
            "the database's disk is another machine's, or does not say how much is free",
        ),
        Some(free) if free < reserve => Check::failed(
            NAME,
            format!(
                "{} are free, less than the `disk_reserve` of {}",
                size_rounded(free),
                size_rounded(reserve)
            ),
            "free some space: a host launches nothing until then; `campanile db status` shows what the record takes",
        ),
        Some(free) => Check::ok(NAME, format!("{} are free", size_rounded(free))),
    }
}

fn plugins(folder: &Path) -> Check {
    const NAME: &str = "packages";
    let shown = folder.display();
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => {
            let fix = format!(
                "create it: `mkdir {shown}`; or name another with --plugins, or with `plugins` in the configuration"
            );
            return Check::failed(
                NAME,
                format!("the folder {shown} cannot be read: {error}"),
                fix,
            );
        }
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let count = paths
        .filter(|path| path.extension().is_some_and(|end| end == "wasm"))
        .count();
    match count {
        0 => Check::warning(
            NAME,
            format!("the folder {shown} has no .wasm file"),
            "copy one there, or begin a project with `campanile new NAME`",
        ),
        _ => Check::ok(
            NAME,
            format!("{count} in {shown}; `campanile config check` loads them all"),
        ),
    }
}

/// Check who else can change the files that a host relies on.
fn permissions(config: &Config) -> Vec<Check> {
    const NAME: &str = "permissions";
    let found = serve::machine_notes(config);
    if found.is_empty() {
        return vec![Check::ok(NAME, "no other user can change the host's files")];
    }
    let checks = found
        .into_iter()
        .map(|detail| match config.policy.foreign_writers {
            ForeignWriters::Refuse => Check::failed(NAME, detail, FOREIGN_HINT),
            ForeignWriters::Warn => Check::warning(NAME, detail, FOREIGN_HINT),
        });
    checks.collect()
}

/// Checks the key for sealing approvals.
fn decisions(config: &Config) -> Check {
    const NAME: &str = "decisions";
    let is_own = config.policy.approval_key.is_none();
    match approval_key::current(config) {
        Ok(_) if is_own && config.files.database.is_shared() => {
            let detail = "approvals are sealed with this host's own key, and don't count on other hosts of the database";
            match config.policy.approval {
                Approval::Always => Check::warning(NAME, detail, APPROVAL_KEY_HINT),
                _ => Check::ok(NAME, detail),
            }
        }
        Ok(Some(_)) => Check::ok(NAME, "approvals are sealed"),
        Ok(None) => Check::ok(NAME, "the first start makes the key that seals approvals"),
        Err(failure) => {
            let fix = failure.hint.unwrap_or_else(|| APPROVAL_KEY_HINT.to_owned());
            Check::failed(NAME, failure.message, fix)
        }
    }
}

/// Checks for API settings and channel secrets that `serve` would refuse.
fn server(config: &Config) -> Vec<Check> {
    let mut checks = vec![match config.api_server().check() {
        Ok(_) => Check::ok("api", "its settings can be used"),
        Err(why) => Check::failed("api", why.to_string(), "correct it under `[server]`"),
    }];
    let secrets = config.alert_secrets().into_iter();
    checks.extend(secrets.map(|why| {
        let fix = "correct the secret that it names; `campanile config check` looks again";
        Check::failed("secrets", why, fix)
    }));
    checks
}

/// Check the folder of compiled code that the host would use, `used`.
fn cache(config: &Config, used: Option<&Path>) -> Check {
    const NAME: &str = "cache";
    let Some(folder) = &config.sandbox.cache_dir else {
        let fix = "name a folder by `cache_dir` under `[sandbox]`";
        return Check::warning(
            NAME,
            "there is no cache: each start compiles every package",
            fix,
        );
    };
    let shown = folder.display();
    if used != Some(folder) {
        return Check::warning(
            NAME,
            format!(
                "{shown} is not used, because another user could have put compiled code there: each start compiles every package"
            ),
            "delete that folder, or name another one by `cache_dir` under `[sandbox]`",
        );
    }
    let free = disk::free_bytes(folder).map(size_rounded);
    let free = free.unwrap_or_default();
    match tempfile::tempfile_in(folder) {
        Ok(_) => Check::ok(NAME, format!("{shown} can be written, with {free} free")),
        Err(error) => Check::failed(
            NAME,
            format!("{shown} cannot be written: {error}"),
            "let this user write to it, or name another by `cache_dir` under `[sandbox]`",
        ),
    }
}

fn open_files(config: &Config) -> Check {
    const NAME: &str = "limits";
    let runs = u64::from(config.host.runs_max);
    let needed = HOST_FILES + RUN_FILES * runs;
    let allowed = getrlimit(Resource::Nofile).current;
    match allowed {
        Some(allowed) if allowed < needed => Check::warning(
            NAME,
            format!(
                "{allowed} files may be open, and {runs} runs at the same time need about {needed}"
            ),
            "raise it with `ulimit -n`, or with `LimitNOFILE=` in the systemd unit",
        ),
        Some(allowed) => Check::ok(NAME, format!("{allowed} files may be open")),
        None => Check::ok(NAME, "any number of files may be open"),
    }
}

/// Check what confines the process that loads a file, besides limits of resources.
#[cfg(target_os = "linux")]
fn confinement() -> Check {
    const NAME: &str = "confinement";
    let (has, lacks, fix) = match campanile_package::confinement() {
        Ok(Confinement {
            landlock: true,
            seccomp: true,
        }) => {
            return Check::ok(
                NAME,
                "Landlock and seccomp confine a process that loads a package",
            );
        }
        Ok(Confinement { seccomp: true, .. }) => (
            "seccomp confines",
            "Landlock does not: it can read the files of this user",
            "use a kernel of 5.13 or later with `landlock` among the modules of its parameter `lsm=`",
        ),
        Ok(Confinement { landlock: true, .. }) => (
            "Landlock confines",
            "seccomp does not: it can start other programs",
            "use a kernel with seccomp, on x86-64 or aarch64, and a container that allows it",
        ),
        Ok(Confinement { .. }) => (
            "limits of resources confine",
            "Landlock and seccomp do not: it can read the files of this user and start other programs",
            "use a kernel of 5.13 or later with both, and a container that allows them",
        ),
        Err(error) => {
            let fix = "no package can be loaded: allow Landlock and seccomp in the profile of this container";
            return Check::failed(NAME, error, fix);
        }
    };
    let detail = format!("{has} a process that loads a package, and {lacks}");
    Check::warning(NAME, detail, fix)
}

#[cfg(not(target_os = "linux"))]
fn confinement() -> Check {
    Check::warning(
        "confinement",
        "only limits of resources confine a process that loads a package: it can read the files of this user",
        "serve packages of others on Linux, which has Landlock and seccomp",
    )
}

/// Load a small package in a separate process, as a host does, and check the cache that it used.
async fn sandbox(config: &Config) -> Vec<Check> {
    const NAME: &str = "sandbox";
    let failed = |error: String| {
        Check::failed(
            NAME,
            format!("no package can be loaded: {error}"),
            "a limit of this process or container may forbid it: look at its memory, its address space and its seccomp profile",
        )
    };
    let loader = match serve::loader(config, &Clock::system()) {
        Ok(loader) => loader,
        Err(failure) => return vec![failed(failure.message)],
    };
    let cache = cache(config, loader.sandbox().cache_dir());
    let loaded = load(&*loader, "noop", NOOP.to_vec(), Attempt::Again).await;
    let loaded = match loaded {
        Ok(_) => Check::ok(NAME, "a separate process has loaded a package"),
        Err(error) => failed(error.to_string()),
    };
    vec![cache, loaded]
}
