//! The configuration: one checked struct, put together from flags, environment, file and defaults.
//!
//! Nothing else in the product reads `campanile.toml` or the variables named here.

use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::package::limits::LimitChanges;
use crate::strict::{self, Document, Section, duration_text, size_text};
use crate::wasm::{Limits, SandboxSettings};
use crate::watch::Mode;

mod database;

pub use database::{DatabaseUrl, InvalidDatabaseUrl, PostgresUrl};

/// The file looked for in the working directory when none is named.
pub const FILE_NAME: &str = "campanile.toml";
/// The variable that holds the database's address.
pub const ENV_DATABASE: &str = "CAMPANILE_DATABASE_URL";
/// The variable that holds the plugins folder.
pub const ENV_PLUGINS: &str = "CAMPANILE_PLUGINS";

/// Everything that can be set. Checked: what is here can be used as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file that was read, if there was one.
    pub file: Option<PathBuf>,
    pub database: DatabaseUrl,
    pub plugins: PathBuf,
    pub host: Host,
    pub watch: Watch,
    /// Of one call; sidecars change them.
    pub limits: Limits,
    pub recovery: Recovery,
    pub audit: Audit,
    pub late: Late,
    pub sandbox: Sandbox,
}

/// `[host]`: this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// None is the machine's name.
    pub name: Option<String>,
    /// Runs at once.
    pub runs_max: u32,
    pub guest_threads: usize,
    /// For the database at the start; zero fails at once.
    pub wait: Duration,
    /// For running runs at the end.
    pub drain: Duration,
}

/// `[watch]`: how changes in the plugins folder are noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    pub mode: Mode,
    pub rescan: Duration,
}

/// `[recovery]`: what becomes of launches whose host is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// How long a claim holds without being renewed.
    pub lease: Duration,
    /// Shorter than the lease.
    pub renew: Duration,
    pub lost_threshold: Duration,
    /// For runs without a lease; not shorter than the lease.
    pub orphan_threshold: Duration,
    pub max_age: Duration,
    /// Zero recovers nothing.
    pub max_attempts: u32,
    pub interval: Duration,
}

/// `[audit]`: the loop that goes over everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    pub interval: Duration,
}

/// `[late]`: the defaults of schedules for slots that come late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    /// A slot later than this is missed.
    pub misfire_grace: Duration,
    /// A missed slot older than this is not caught up.
    pub catchup_window: Duration,
}

/// `[sandbox]`: the engine that runs guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The greatest memory limit of any task.
    pub memory_bytes_max: u64,
    /// None keeps no compiled code.
    pub cache_dir: Option<PathBuf>,
}

/// What the command line says; none leaves the choice to the environment, the file and the defaults.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Must exist when given.
    pub config: Option<PathBuf>,
    pub database: Option<String>,
    pub plugins: Option<PathBuf>,
    pub name: Option<String>,
    pub runs_max: Option<u32>,
    pub wait: Option<Duration>,
    pub watch: Option<Mode>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file was read and something in it is wrong.
    #[error(transparent)]
    File(#[from] strict::Error),
    /// The file cannot be read, or was named and is not there.
    #[error("the configuration {} cannot be read ({source}): correct the path given with --config", .path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A flag or a variable.
    #[error("{place} {what}")]
    Value { place: &'static str, what: String },
}

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);
const RUNS_MOST: u64 = 10_000;
const GUEST_THREADS_MOST: u64 = 1024;

impl Config {
    /// Put the configuration together. `env` looks a variable up, `folder` is the working directory.
    ///
    /// Relative paths of the file start at the file's folder, all others at the working directory.
    pub fn load(
        flags: &Flags,
        env: &dyn Fn(&str) -> Option<OsString>,
        folder: &Path,
    ) -> Result<Config, ConfigError> {
        let env = |name: &str| env(name).filter(|value| !value.is_empty());
        let (file, text) = file(flags.config.as_deref(), folder)?;
        let mut config = match &file {
            Some(path) => {
                let shown = path.display().to_string();
                let home = path.parent().unwrap_or(Path::new(""));
                Config::read(&shown, &text, home, &env)?
            }
            None => Config::read(FILE_NAME, "", Path::new(""), &env)?,
        };
        config.file = file;
        config.overrule(flags, &env)?;
        Ok(config)
    }

    /// The default configuration with a comment on every key: the text of a first `campanile.toml`.
    pub fn default_text() -> &'static str {
        include_str!("config/default.toml")
    }

    /// What the sandbox needs to know.
    pub fn sandbox_settings(&self) -> SandboxSettings {
        SandboxSettings {
            calls_max: self.host.runs_max,
            guest_threads: self.host.guest_threads,
            cache_dir: self.sandbox.cache_dir.clone(),
            memory_bytes_max: self.sandbox.memory_bytes_max,
        }
    }

    fn read(
        shown: &str,
        text: &str,
        home: &Path,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Config, strict::Error> {
        let document = Document::parse(shown, text)?;
        let mut top = document.section();
        let database = match top.text("database")? {
            Some(url) => url
                .parse::<DatabaseUrl>()
                .map_err(|error| top.error("database", error))?
                .within(home),
            None => DatabaseUrl::Sqlite(PathBuf::from("campanile.db")),
        };
        let plugins = match top.text("plugins")? {
            Some(path) if path.is_empty() => return Err(top.error("plugins", "names no folder")),
            Some(path) => home.join(path),
            None => PathBuf::from("plugins"),
        };
        let host = Host::read(top.table_or_empty("host")?)?;
        let watch = Watch::read(top.table_or_empty("watch")?)?;
        let sandbox = Sandbox::read(top.table_or_empty("sandbox")?, home, env)?;
        let limits = LimitChanges::read(top.table_or_empty("limits")?, sandbox.memory_bytes_max)?
            .over(&Limits::default());
        if limits.memory_bytes_max > sandbox.memory_bytes_max {
            return Err(top.error(
                "sandbox",
                format_args!(
                    "allows {} by `memory_max`, less than the {} of `limits.memory`: raise the one or lower the other",
                    size_text(sandbox.memory_bytes_max),
                    size_text(limits.memory_bytes_max),
                ),
            ));
        }
        let recovery = Recovery::read(top.table_or_empty("recovery")?)?;
        let audit = Audit::read(top.table_or_empty("audit")?)?;
        let late = Late::read(top.table_or_empty("late")?)?;
        top.finish()?;
        Ok(Config {
            file: None,
            database,
            plugins,
            host,
            watch,
            limits,
            recovery,
            audit,
            late,
            sandbox,
        })
    }

    fn overrule(
        &mut self,
        flags: &Flags,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<(), ConfigError> {
        let value = |place, what: String| ConfigError::Value { place, what };
        let database = match &flags.database {
            Some(url) => Some(("--database", url.clone())),
            None => match env(ENV_DATABASE).map(OsString::into_string) {
                Some(Ok(url)) => Some((ENV_DATABASE, url)),
                Some(Err(_)) => return Err(value(ENV_DATABASE, "is not UTF-8 text".to_owned())),
                None => None,
            },
        };
        if let Some((place, url)) = database {
            self.database = url
                .parse()
                .map_err(|error: InvalidDatabaseUrl| value(place, error.to_string()))?;
        }
        if let Some(path) = flags
            .plugins
            .clone()
            .or_else(|| env(ENV_PLUGINS).map(PathBuf::from))
        {
            self.plugins = path;
        }
        if let Some(name) = &flags.name {
            if let Some(fault) = host_name_fault(name) {
                return Err(value("--name", fault));
            }
            self.host.name = Some(name.clone());
        }
        if let Some(runs) = flags.runs_max {
            if !(1..=RUNS_MOST).contains(&u64::from(runs)) {
                let what = format!("must be a whole number from 1 to {RUNS_MOST}");
                return Err(value("--runs-max", what));
            }
            self.host.runs_max = runs;
        }
        self.host.wait = flags.wait.unwrap_or(self.host.wait).min(YEAR);
        self.watch.mode = flags.watch.unwrap_or(self.watch.mode);
        Ok(())
    }
}

/// The file's path and text: the one named, else the usual one if it is there.
fn file(named: Option<&Path>, folder: &Path) -> Result<(Option<PathBuf>, String), ConfigError> {
    let path = folder.join(named.unwrap_or(Path::new(FILE_NAME)));
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok((Some(path), text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => {
            Ok((None, String::new()))
        }
        Err(source) => Err(ConfigError::Unreadable { path, source }),
    }
}

/// Why `name` cannot name a host, if it cannot.
fn host_name_fault(name: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=255).contains(&name.len()) && name.bytes().all(plain) {
        return None;
    }
    Some(format!(
        "is {name:?}, which cannot name a host: use 1 to 255 letters, digits, `.`, `_` or `-`"
    ))
}

impl Host {
    fn read(mut section: Section<'_>) -> Result<Host, strict::Error> {
        let name = section.text("name")?;
        if let Some(fault) = name.as_deref().and_then(host_name_fault) {
            return Err(section.error("name", fault));
        }
        let runs_max = section.number("runs_max", 1, RUNS_MOST)?.unwrap_or(64);
        let guest_threads = section.number("guest_threads", 1, GUEST_THREADS_MOST)?;
        let host = Host {
            name,
            runs_max: u32::try_from(runs_max).unwrap_or(u32::MAX),
            guest_threads: match guest_threads {
                Some(threads) => usize::try_from(threads).unwrap_or(usize::MAX),
                None => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            },
            wait: section
                .duration("wait", Duration::ZERO, YEAR)?
                .unwrap_or(60 * SECOND),
            drain: section
                .duration("drain", Duration::ZERO, YEAR)?
                .unwrap_or(30 * SECOND),
        };
        section.finish()?;
        Ok(host)
    }
}

impl Watch {
    fn read(mut section: Section<'_>) -> Result<Watch, strict::Error> {
        let mode = match section.text("mode")?.as_deref() {
            None | Some("auto") => Mode::Auto,
            Some("poll") => Mode::Poll,
            Some("off") => Mode::Off,
            Some(other) => {
                let what = format!("is {other:?}: write \"auto\", \"poll\" or \"off\"");
                return Err(section.error("mode", what));
            }
        };
        let rescan = section
            .duration("rescan", SECOND, DAY)?
            .unwrap_or(30 * SECOND);
        section.finish()?;
        Ok(Watch { mode, rescan })
    }
}

impl Recovery {
    fn read(mut section: Section<'_>) -> Result<Recovery, strict::Error> {
        let max_attempts = section.number("max_attempts", 0, 1000)?.unwrap_or(3);
        let mut duration = |key, default: Duration| {
            let least = Duration::from_millis(100);
            Ok::<_, strict::Error>(section.duration(key, least, YEAR)?.unwrap_or(default))
        };
        let recovery = Recovery {
            lease: duration("lease", 30 * SECOND)?,
            renew: duration("renew", 10 * SECOND)?,
            lost_threshold: duration("lost_threshold", 300 * SECOND)?,
            orphan_threshold: duration("orphan_threshold", 1800 * SECOND)?,
            max_age: duration("max_age", DAY)?,
            max_attempts: u32::try_from(max_attempts).unwrap_or(u32::MAX),
            interval: duration("interval", 5 * SECOND)?,
        };
        let shorter = |a: (&str, Duration), b: (&str, Duration), advice: &str| {
            section.error(
                a.0,
                format_args!(
                    "is {}, and `{}` is {}: {advice}",
                    duration_text(a.1),
                    section.path_of(b.0),
                    duration_text(b.1),
                ),
            )
        };
        let lease = ("lease", recovery.lease);
        if recovery.renew >= recovery.lease {
            let advice = "renew well within the lease, usually after a third of it, or runs are taken away while they go on";
            return Err(shorter(("renew", recovery.renew), lease, advice));
        }
        if recovery.orphan_threshold < recovery.lease {
            let advice = "it must not be shorter than the lease";
            let orphan = ("orphan_threshold", recovery.orphan_threshold);
            return Err(shorter(orphan, lease, advice));
        }
        if recovery.max_age <= recovery.lost_threshold {
            let advice = "it must be longer, or nothing is ever recovered";
            let lost = ("lost_threshold", recovery.lost_threshold);
            return Err(shorter(("max_age", recovery.max_age), lost, advice));
        }
        section.finish()?;
        Ok(recovery)
    }
}

impl Audit {
    fn read(mut section: Section<'_>) -> Result<Audit, strict::Error> {
        let interval = section.duration("interval", SECOND, DAY)?;
        section.finish()?;
        Ok(Audit {
            interval: interval.unwrap_or(60 * SECOND),
        })
    }
}

impl Late {
    fn read(mut section: Section<'_>) -> Result<Late, strict::Error> {
        let misfire_grace = section.duration("misfire_grace", Duration::ZERO, YEAR)?;
        let catchup_window = section.duration("catchup_window", Duration::ZERO, YEAR)?;
        section.finish()?;
        Ok(Late {
            misfire_grace: misfire_grace.unwrap_or(300 * SECOND),
            catchup_window: catchup_window.unwrap_or(DAY),
        })
    }
}

impl Sandbox {
    fn read(
        mut section: Section<'_>,
        home: &Path,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Sandbox, strict::Error> {
        // 4 GiB is what a 32-bit memory can have.
        let memory = section.size("memory_max", 64 << 10, 4 << 30)?;
        let cache = section.boolean("cache")?.unwrap_or(true);
        let cache_dir = match section.text("cache_dir")? {
            Some(path) if path.is_empty() => {
                return Err(section.error(
                    "cache_dir",
                    "names no folder; to keep nothing, write cache = false",
                ));
            }
            Some(path) => Some(home.join(path)),
            None => user_cache(env),
        };
        section.finish()?;
        Ok(Sandbox {
            memory_bytes_max: memory.unwrap_or(1 << 30),
            cache_dir: cache_dir.filter(|_| cache),
        })
    }
}

/// The folder for this program among the user's caches; none for a user without a home.
fn user_cache(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| {
        env(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("campanile"))
}

/// The configuration in force, as TOML. Without the database's password.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = |text: &str| toml::Value::from(text).to_string();
        let path = |path: &Path| quote(&path.to_string_lossy());
        let time = |duration| quote(&duration_text(duration));
        let size = |bytes| quote(&size_text(bytes));
        match &self.file {
            Some(file) => writeln!(f, "# from {}", file.display())?,
            None => writeln!(f, "# no file")?,
        }
        writeln!(f, "database = {}", quote(&self.database.to_string()))?;
        writeln!(f, "plugins = {}", path(&self.plugins))?;
        writeln!(f, "\n[host]")?;
        if let Some(name) = &self.host.name {
            writeln!(f, "name = {}", quote(name))?;
        }
        writeln!(f, "runs_max = {}", self.host.runs_max)?;
        writeln!(f, "guest_threads = {}", self.host.guest_threads)?;
        writeln!(f, "wait = {}", time(self.host.wait))?;
        writeln!(f, "drain = {}", time(self.host.drain))?;
        writeln!(f, "\n[watch]\nmode = {}", quote(self.watch.mode.as_str()))?;
        writeln!(f, "rescan = {}", time(self.watch.rescan))?;
        writeln!(f, "\n[limits]\ntimeout = {}", time(self.limits.timeout))?;
        writeln!(f, "memory = {}", size(self.limits.memory_bytes_max))?;
        writeln!(f, "table_elements = {}", self.limits.table_elements_max)?;
        writeln!(f, "output = {}", size(self.limits.output_bytes_max as u64))?;
        writeln!(f, "log = {}", size(self.limits.log_bytes_max as u64))?;
        writeln!(f, "stdio = {}", size(self.limits.stdio_bytes_max as u64))?;
        writeln!(
            f,
            "http_response = {}",
            size(self.limits.http_response_bytes_max)
        )?;
        writeln!(f, "\n[recovery]\nlease = {}", time(self.recovery.lease))?;
        writeln!(f, "renew = {}", time(self.recovery.renew))?;
        writeln!(f, "lost_threshold = {}", time(self.recovery.lost_threshold))?;
        writeln!(
            f,
            "orphan_threshold = {}",
            time(self.recovery.orphan_threshold)
        )?;
        writeln!(f, "max_age = {}", time(self.recovery.max_age))?;
        writeln!(f, "max_attempts = {}", self.recovery.max_attempts)?;
        writeln!(f, "interval = {}", time(self.recovery.interval))?;
        writeln!(f, "\n[audit]\ninterval = {}", time(self.audit.interval))?;
        writeln!(
            f,
            "\n[late]\nmisfire_grace = {}",
            time(self.late.misfire_grace)
        )?;
        writeln!(f, "catchup_window = {}", time(self.late.catchup_window))?;
        writeln!(
            f,
            "\n[sandbox]\nmemory_max = {}",
            size(self.sandbox.memory_bytes_max)
        )?;
        writeln!(f, "cache = {}", self.sandbox.cache_dir.is_some())?;
        if let Some(folder) = &self.sandbox.cache_dir {
            writeln!(f, "cache_dir = {}", path(folder))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
