//! The configuration: one checked struct, put together from flags, environment, file and defaults.
//!
//! Nothing else in the product reads `campanile.toml` or the variables named here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::sections::{YEAR, host_name_fault};
use campanile_engine::secrets::Source;
use campanile_model::text::size_text;
use campanile_package::files;
use campanile_package::limits::LimitChanges;
use campanile_package::toml_reader;
use campanile_package::toml_reader::Document;
use campanile_sandbox::{LIMITS, Limits, SandboxSettings};
use campanile_store::{DatabaseUrl, InvalidDatabaseUrl};

mod print;
mod sections;

pub use sections::{Audit, Host, Late, Recovery, Sandbox, Watch};

/// The file looked for in the working directory when none is named.
pub const FILE_NAME: &str = "campanile.toml";
/// The schedules file, unless another one is named: in the folder of the configuration file, or in the working
/// directory when there is none.
const SCHEDULES_NAME: &str = "schedules.toml";
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
    /// The schedules file, which need not be there.
    pub schedules: PathBuf,
    pub host: Host,
    pub watch: Watch,
    /// Of one call; sidecars change them.
    pub limits: Limits,
    pub recovery: Recovery,
    pub audit: Audit,
    pub late: Late,
    pub sandbox: Sandbox,
    /// Where each secret comes from, by its name.
    pub secrets: BTreeMap<String, Source>,
}

/// What the command line says; none leaves the choice to the environment, the file and the defaults.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Must exist when given.
    pub config: Option<PathBuf>,
    pub database: Option<String>,
    pub plugins: Option<PathBuf>,
    pub name: Option<String>,
    pub wait: Option<Duration>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file was read and something in it is wrong.
    #[error(transparent)]
    File(#[from] toml_reader::Error),
    /// The file cannot be read, or was named and is not there.
    #[error("the configuration {} cannot be read: {why}", .path.display())]
    Unreadable { path: PathBuf, why: String },
    /// A flag or a variable.
    #[error("{place} {what}")]
    Value { place: &'static str, what: String },
}

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
    pub fn default_text() -> String {
        let limits = LIMITS.iter().map(|spec| {
            let (help, key) = (spec.help, spec.key());
            match spec.default_toml() {
                Some(default) => format!("# {help}\n{key} = {default}\n"),
                None => format!("# {help}\n# {key} = \"1m\"\n"),
            }
        });
        let limits: String = limits.collect();
        include_str!("config/default.toml").replace("# LIMITS\n", &limits)
    }

    /// What the sandbox needs to know.
    pub fn sandbox_settings(&self) -> SandboxSettings {
        SandboxSettings {
            calls_max: self.host.runs_max,
            guest_threads: self.host.guest_threads,
            cache_dir: self.sandbox.cache_dir.clone(),
            memory_bytes_max: self.sandbox.memory_bytes_max,
            stack_bytes_max: usize::try_from(self.sandbox.stack_bytes_max).unwrap_or(usize::MAX),
        }
    }

    /// What no task may be given to write: the configuration, the schedules file, the database, the compiled code that
    /// this process runs, and the files of secrets.
    pub fn own_paths(&self) -> Vec<PathBuf> {
        let database = self.database.sqlite_path().map(Path::to_path_buf);
        let schedules = Some(self.schedules.clone());
        let paths = [
            self.file.clone(),
            schedules,
            database,
            self.sandbox.cache_dir.clone(),
        ];
        let secrets = self.secrets.values().filter_map(|source| match source {
            Source::File(path) => Some(path.clone()),
            Source::Env { .. } | Source::Command(_) => None,
        });
        paths.into_iter().flatten().chain(secrets).collect()
    }

    fn read(
        shown: &str,
        text: &str,
        home: &Path,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Config, toml_reader::Error> {
        let document = Document::parse(shown, text)?;
        let mut top = document.section();
        let database = match top.text("database")? {
            Some(url) => url
                .parse::<DatabaseUrl>()
                .map_err(|error| top.error("database", error))?
                .within(home),
            None => DatabaseUrl::Sqlite(PathBuf::from("campanile.db")),
        };
        let plugins = match top.path("plugins", "")? {
            Some(path) => home.join(path),
            None => PathBuf::from("plugins"),
        };
        let schedules = match top.path("schedules", "; leave it out for schedules.toml")? {
            Some(path) => home.join(path),
            None => home.join(SCHEDULES_NAME),
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
        let secrets = sections::secrets(top.named_tables("secrets")?, home, env)?;
        top.finish()?;
        Ok(Config {
            file: None,
            database,
            plugins,
            schedules,
            host,
            watch,
            limits,
            recovery,
            audit,
            late,
            sandbox,
            secrets,
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
        self.host.wait = flags.wait.unwrap_or(self.host.wait).min(YEAR);
        Ok(())
    }
}

/// The file's path and text: the one named, else the usual one if it is there.
fn file(named: Option<&Path>, folder: &Path) -> Result<(Option<PathBuf>, String), ConfigError> {
    let path = folder.join(named.unwrap_or(Path::new(FILE_NAME)));
    match files::read_text(&path) {
        Ok(Some(text)) => Ok((Some(path), text)),
        Ok(None) if named.is_none() => Ok((None, String::new())),
        Ok(None) => Err(ConfigError::Unreadable {
            path,
            why: "it is not there; correct the path given with --config".to_owned(),
        }),
        Err(why) => Err(ConfigError::Unreadable { path, why }),
    }
}

#[cfg(test)]
mod tests;
