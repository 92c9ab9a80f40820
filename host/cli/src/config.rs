//! The configuration: one checked struct, made from flags, environment variables, a file and defaults.
//!
//! Only this module reads `campanile.toml` and the variables that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use clap::Args;

use self::origins::Origins;
use self::settings::{Entry, Group, Table, YEAR, check_host_name};
use crate::environment;
use campanile_control::rules::alert_rule::AlertSettings;
use campanile_control::settings::{ConfigOrigin, SecretSource};
use campanile_engine::run::secrets::Vault;
use campanile_model::text::{self, size_text};
use campanile_package::limits::{self, LimitChanges};
use campanile_package::quota::{Groups, NamespaceQuota, Namespaces};
use campanile_package::toml_reader::{self, Document, Section};
use campanile_package::{Quota, files};
use campanile_sandbox::{
    CodeCache, ComponentLimits, LIMITS, Limits, SandboxSettings, memory_of_machine,
};
use campanile_schedule::policy::{Defaults, GroupName};
use campanile_server::{Listen, Proxies, ProxyRoles, TlsFiles};
use campanile_store::InvalidDatabaseUrl;

mod alerts;
mod kinds;
mod origins;
mod own_paths;
mod secret_commands;
mod secrets;
mod settings;

pub use settings::{
    Audit, Files, Host, Outbox, Packages, Policy, Recovery, Retention, Sandbox, ScheduleDefaults,
    Server, ServerTls, Traces, Watch,
};

/// The file in the working directory that is read when no file is named.
pub const FILE_NAME: &str = "campanile.toml";
/// The default schedules file, in the folder of the configuration file, or in the working directory.
const SCHEDULES_NAME: &str = "schedules.toml";

/// The file of the token of the API of a host on Postgres, in the working directory.
const TOKEN_NAME: &str = "campanile.token";
/// The folder in the working directory for a host's own record when using Postgres.
const STATE_NAME: &str = "campanile.state";

const DEFAULT_HEAD: &str = "\
# Campanile's configuration. Every value below is the default: keep only what you change.
#
# Read from campanile.toml in the working directory, or from the file given with --config.
# A flag overrides the environment, which overrides this file.
# Durations are texts such as \"30s\", \"5m\" or \"1h 30m\"; sizes are texts such as \"64MiB\".
# A relative path starts at the folder of this file.
";

/// An example of each table whose name, or number, is free.
const DEFAULT_NAMED_TABLES: &str = include_str!("../assets/named-tables.toml");

/// The configuration. All values are checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The file that was read, if there was one.
    pub file: Option<PathBuf>,
    pub files: Files,
    pub host: Host,
    pub server: Server,
    pub server_tls: ServerTls,
    pub watch: Watch,
    /// The limits of one call; sidecars change them.
    pub limits: Limits,
    pub recovery: Recovery,
    pub audit: Audit,
    /// The policies of schedules that do not set their own.
    pub late: Defaults,
    pub defaults: ScheduleDefaults,
    pub retention: Retention,
    pub outbox: Outbox,
    pub traces: Traces,
    pub packages: Packages,
    /// What one package may use.
    pub quota: Quota,
    /// The concurrency groups.
    pub groups: Groups,
    /// What the packages of each namespace may use together.
    pub namespaces: Namespaces,
    pub sandbox: Sandbox,
    pub policy: Policy,
    /// The source of each secret, by its name.
    pub secrets: BTreeMap<String, SecretSource>,
    /// The rules for alerts, and their channels.
    pub alerts: AlertSettings,
    /// The keys that aren't left at their defaults.
    origins: Origins,
}

/// The flags of the command line. `None` leaves the choice to the environment, the file and the defaults.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// Must exist when given. Every command has this flag and the next one.
    #[arg(skip)]
    pub config: Option<PathBuf>,
    #[arg(skip)]
    pub database: Option<String>,
    /// The folder with the packages' .wasm files [default: plugins]
    #[arg(long, value_name = "DIR")]
    pub plugins: Option<PathBuf>,
    /// The name of this host; it must stay the same after a restart [default: the machine's name]
    #[arg(long)]
    pub name: Option<String>,
    /// Where the API listens: an address and a port, unix:PATH, or off [default: 127.0.0.1:7979]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<Listen>,
    /// How long to wait for the database at the start; 0 tries once, for at most 5 s [default: 60s]
    #[arg(long, value_name = "SPAN", value_parser = text::duration)]
    pub wait: Option<Duration>,
}

impl Config {
    /// Make the configuration. `env` looks a variable up, `folder` is the working directory.
    ///
    /// Relative paths of the file start at the file's folder, all others at the working directory.
    ///
    /// # Errors
    /// When the file cannot be read, or when it, a flag or a variable has a mistake.
    pub fn load(
        flags: &Flags,
        env: &dyn Fn(&str) -> Option<OsString>,
        folder: &Path,
    ) -> Result<Config, String> {
        let env = |name: &str| env(name).filter(|value| !value.is_empty());
        let (file, text) = read_file(flags.config.as_deref(), folder)?;
        let path = file.as_deref().unwrap_or(Path::new(FILE_NAME));
        let home = path.parent().unwrap_or(Path::new(""));
        let read = Config::read(&path.display().to_string(), &text, home, &env);
        let mut config = read.map_err(|error| error.to_string())?;
        let origins = origins::of_file(&config, &text);
        config.origins = origins.map_err(|error| error.to_string())?;
        config.file = file;
        config.override_with(flags, &env)?;
        origins::note_overrides(&mut config.origins, flags, &env);
        Ok(config)
    }

    /// Returns the text of a first `campanile.toml`: each key with its default and a comment.
    pub fn default_text() -> String {
        let tables = Config::default().tables_text(true);
        format!("{DEFAULT_HEAD}\n{tables}{DEFAULT_NAMED_TABLES}")
    }

    /// Returns the keys of all tables as TOML. With `comments`, each has its meaning, and an example stands for a value that
    /// is not the same everywhere.
    fn tables_text(&self, comments: bool) -> String {
        let mut text = String::new();
        for (table, entries) in self.entries() {
            if !table.is_empty() {
                text += &format!("\n[{table}]\n");
            }
            for entry in entries {
                let key = entry.help.key;
                let meaning = entry.help.meaning.lines().filter(|_| comments);
                text.extend(meaning.map(|line| format!("# {line}\n")));
                text += &match (entry.example.filter(|_| comments), entry.value) {
                    (Some(example), _) => format!("# {key} = {example}\n"),
                    (None, Some(value)) => format!("{key} = {value}\n"),
                    (None, None) => String::new(),
                };
            }
        }
        text
    }

    /// List the keys of the configuration, for the generated reference.
    #[cfg(test)]
    pub fn reference() -> Vec<campanile_package::reference::KeyHelp> {
        use campanile_package::reference::KeyHelp;

        let mut keys = Vec::new();
        let named = [
            ("groups.NAME".to_owned(), Group::default().entries()),
            (
                "namespaces.NAME".to_owned(),
                NamespaceQuota::default().entries(),
            ),
        ];
        for (table, entries) in Config::default().entries().into_iter().chain(named) {
            keys.extend(entries.into_iter().map(
                |Entry {
                     help,
                     value,
                     example,
                 }| KeyHelp {
                    key: match table.as_str() {
                        "" => help.key,
                        table => format!("{table}.{}", help.key),
                    },
                    default: value.filter(|_| example.is_none()),
                    meaning: help.meaning.replace('\n', " "),
                    ..help
                },
            ));
        }
        // Each of these tables has exactly one of its keys.
        let secrets = [
            "secrets.NAME.env | text | | | The secret is the value of this variable when the host starts.",
            "secrets.NAME.file | path | | | The secret is the content of this file, read for each call.",
            "secrets.NAME.command | list of texts | | | The secret is what this command prints, used for one minute.",
        ];
        keys.extend(secrets.map(KeyHelp::read));
        keys.extend(alerts::reference());
        keys
    }

    /// Returns the settings of the sandbox.
    pub fn sandbox_settings(&self) -> SandboxSettings {
        let cache_dir = self.sandbox.cache_dir.clone();
        SandboxSettings {
            calls_max: self.host.runs_max,
            guest_threads: self.host.guest_threads as usize,
            // A host without a cache needs one for each load, which another process does.
            code_cache: cache_dir.map_or(CodeCache::Temporary, CodeCache::Directory),
            memory_bytes_max: self.sandbox.memory_bytes_max,
            stack_bytes_max: usize::try_from(self.sandbox.stack_bytes_max).unwrap_or(usize::MAX),
            component_limits: ComponentLimits {
                core_instances_max: self.sandbox.core_instances_max,
                memories_max: self.sandbox.memories_max,
                tables_max: self.sandbox.tables_max,
                instance_bytes_max: self.sandbox.instance_bytes_max,
            },
            memory_total_bytes: self
                .sandbox
                .memory_total_bytes
                .unwrap_or_else(|| memory_of_machine() / 2),
            loaded_bytes_max: self.packages.loaded_bytes_max,
            ..SandboxSettings::default()
        }
    }

    /// Returns the environment variables containing secrets, each with its secret's name.
    pub fn secret_variables(&self) -> BTreeMap<String, String> {
        let sources = self.secrets.iter();
        let variables = sources.filter_map(|(name, source)| match source {
            SecretSource::Env { variable, .. } => Some((variable.clone(), name.clone())),
            SecretSource::File(_) | SecretSource::Command(_) => None,
        });
        variables.collect()
    }

    /// Returns the private folder for this host's own record.
    pub fn state_dir(&self) -> PathBuf {
        let beside_database = || self.beside_database(".state");
        let state_dir = self.host.state_dir.clone().or_else(beside_database);
        state_dir.unwrap_or_else(|| STATE_NAME.into())
    }

    /// Returns the path of a SQLite database with `end` appended.
    fn beside_database(&self, end: &str) -> Option<PathBuf> {
        let mut path = self.files.database.sqlite_path()?.as_os_str().to_owned();
        path.push(end);
        Some(path.into())
    }

    /// Returns how the server of the API is configured.
    pub fn api_server(&self) -> campanile_server::Server {
        let beside_database = || self.beside_database(".token");
        let token_file = self.server.token_file.clone().or_else(beside_database);
        campanile_server::Server {
            listen: self.server.listen.clone(),
            tls: TlsFiles {
                certificate: self.server_tls.certificate.clone(),
                key: self.server_tls.key.clone(),
            },
            token_file: token_file.unwrap_or_else(|| TOKEN_NAME.into()),
            rate_limit: self.server.rate_limit,
            proxies: Proxies {
                addresses: self.server.trusted_proxies.clone(),
                user_header: self.server.user_header.clone(),
                roles: match &self.server.role_header {
                    Some(header) => ProxyRoles::Header(header.clone()),
                    None => ProxyRoles::Users(self.server.proxy_roles.clone()),
                },
            },
        }
    }

    /// Returns a sentence without an end for each secret of a channel that cannot be used, or that others can read. Blocks.
    pub fn alert_secrets(&self) -> Vec<String> {
        let names = self.alerts.secrets();
        alerts::wrong_sources(names, &self.secrets)
    }

    /// Returns the same for the secrets `names` of channels, after each was read, from a command too.
    pub async fn unreadable_secrets(&self, names: Vec<&str>) -> Vec<String> {
        let mut wrong = alerts::wrong_sources(names.clone(), &self.secrets);
        if wrong.is_empty() {
            let vault = Vault::new(self.secrets.clone());
            for name in BTreeSet::from_iter(names) {
                let read = vault.values([name]).await;
                wrong.extend(read.err().map(|error| error.to_string()));
            }
        }
        wrong
    }

    /// Returns which versions of packages may run.
    pub fn package_policy(&self) -> campanile_package::VersionPolicy {
        let policy = self.policy.clone();
        campanile_package::VersionPolicy {
            approval: policy.approval,
            trusted_keys: policy.trusted_keys,
            require_signature: policy.require_signature,
        }
    }

    fn read(
        shown: &str,
        text: &str,
        home: &Path,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Config, toml_reader::Error> {
        let document = Document::parse(shown, text)?;
        let mut top = document.section();
        let mut files = Files::read(&mut top, home)?;
        if files.schedules == Path::new(SCHEDULES_NAME) {
            files.schedules = home.join(files.schedules);
        }
        let mut sandbox = Sandbox::of(&mut top, home)?;
        sandbox.cache_dir = sandbox
            .cache_dir
            .or_else(|| user_cache(env))
            .filter(|_| sandbox.cache);
        sandbox.cache = sandbox.cache_dir.is_some();
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
        let recovery = Recovery::of(&mut top, home)?;
        let late = Defaults::of(&mut top, home)?;
        let mut section = top.table_or_empty(Server::NAME)?;
        let server = Server::read(&mut section, home)?;
        let server_tls = ServerTls::of(&mut section, home)?;
        section.finish()?;
        let mut section = top.table_or_empty(Retention::NAME)?;
        let retention = Retention::read(&mut section, home)?;
        retention.check(&section, &recovery, &late)?;
        section.finish()?;
        let secrets = secrets::read(top.named_tables("secrets")?, home, env)?;
        let alerts = alerts::read(&mut top, &secrets, retention.max_bytes)?;
        let config = Config {
            file: None,
            files,
            host: Host::of(&mut top, home)?,
            server,
            server_tls,
            watch: Watch::of(&mut top, home)?,
            limits,
            recovery,
            audit: Audit::of(&mut top, home)?,
            late,
            defaults: ScheduleDefaults::of(&mut top, home)?,
            retention,
            outbox: Outbox::of(&mut top, home)?,
            traces: Traces::of(&mut top, home)?,
            packages: Packages::of(&mut top, home)?,
            quota: Quota::of(&mut top, home)?,
            groups: read_groups(&mut top)?,
            namespaces: read_namespaces(&mut top)?,
            sandbox,
            policy: Policy::of(&mut top, home)?,
            secrets,
            alerts,
            origins: Origins::default(),
        };
        top.finish()?;
        Ok(config)
    }

    fn override_with(
        &mut self,
        flags: &Flags,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<(), String> {
        let flag = flags.database.clone().map(|url| ("--database", url.into()));
        let variable = || Some((environment::DATABASE, env(environment::DATABASE)?));
        if let Some((place, url)) = flag.or_else(variable) {
            let url = url.to_str();
            let url = url.ok_or_else(|| format!("{place} is not UTF-8 text"))?;
            let parsed = url.parse();
            self.files.database =
                parsed.map_err(|error: InvalidDatabaseUrl| format!("{place} {error}"))?;
        }
        let plugins = flags.plugins.clone();
        if let Some(path) = plugins.or_else(|| env(environment::PLUGINS).map(PathBuf::from)) {
            self.files.plugins = path;
        }
        if let Some(name) = &flags.name {
            check_host_name(name).map_err(|what| format!("--name {what}"))?;
            self.host.name = Some(name.clone());
        }
        let variable = |text: OsString| {
            let text = text.to_string_lossy();
            text.parse()
                .map_err(|what| format!("{} {what}", environment::LISTEN))
        };
        let listen = flags.listen.clone().map(Ok);
        let listen = listen.or_else(|| env(environment::LISTEN).map(variable));
        if let Some(listen) = listen.transpose()? {
            self.server.listen = listen;
        }
        self.host.wait = flags.wait.unwrap_or(self.host.wait).min(YEAR);
        Ok(())
    }

    /// List the keys of each table but those of secrets and alerts.
    fn entries(&self) -> Vec<(String, Vec<Entry>)> {
        let limits = LIMITS.iter().zip(limits::keys()).map(|(spec, help)| {
            let amount = self.limits.get(spec.resource);
            Entry {
                help,
                value: amount.map(|amount| spec.unit.toml(amount)),
                example: amount.is_none().then_some("\"1m\""),
            }
        });
        let tables = [
            ("", self.files.entries()),
            ("host", self.host.entries()),
            ("server", self.server.entries()),
            ("server.tls", self.server_tls.entries()),
            ("watch", self.watch.entries()),
            ("limits", limits.collect()),
            ("recovery", self.recovery.entries()),
            ("audit", self.audit.entries()),
            ("late", self.late.entries()),
            ("defaults", self.defaults.entries()),
            ("retention", self.retention.entries()),
            ("outbox", self.outbox.entries()),
            ("traces", self.traces.entries()),
            ("packages", self.packages.entries()),
            ("quota", self.quota.entries()),
            ("sandbox", self.sandbox.entries()),
            ("policy", self.policy.entries()),
        ];
        let tables = tables.map(|(name, entries)| (name.to_owned(), entries));
        let groups = self.groups.iter().map(|(name, max)| {
            let group = Group { max: Some(*max) };
            (format!("groups.{name}"), group.entries())
        });
        let namespaces = self.namespaces.iter();
        let namespaces =
            namespaces.map(|(name, quota)| (format!("namespaces.{name}"), quota.entries()));
        tables.into_iter().chain(groups).chain(namespaces).collect()
    }
}

/// The configuration as TOML, without the database's password, the values of secrets and the arguments of their commands.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => writeln!(f, "# from {}", file.display())?,
            None => writeln!(f, "# no file")?,
        }
        let set = self.set_keys();
        for (origin, what) in [
            (ConfigOrigin::Environment, "the environment sets"),
            (ConfigOrigin::Flag, "options set"),
        ] {
            let keys = set.iter().filter(|(_, by)| **by == origin);
            let keys = Vec::from_iter(keys.map(|(key, _)| key.as_str()));
            if !keys.is_empty() {
                writeln!(f, "# {what} {}", keys.join(", "))?;
            }
        }
        f.write_str(&self.tables_text(false))?;
        for (name, source) in &self.secrets {
            let (name, source) = (toml_reader::toml_key(name), secrets::toml(source));
            writeln!(f, "\n[secrets.{name}]\n{source}")?;
        }
        let alerts = toml::to_string(&self.alerts).map_err(|_| fmt::Error)?;
        let gap = if alerts.is_empty() { "" } else { "\n" };
        write!(f, "{gap}{alerts}")
    }
}

/// Read the tables `[groups.NAME]`.
fn read_groups(top: &mut Section<'_>) -> Result<Groups, toml_reader::Error> {
    let mut groups = Groups::new();
    for (name, section) in top.named_tables(Group::NAME)? {
        if let Err(what) = GroupName::from_str(&name) {
            return Err(section.error_of_table(format_args!("its name {what}")));
        }
        let missing = section.error_of_table("needs `max`, the most runs at the same time");
        let group = Group::whole(section, Path::new(""))?;
        groups.insert(name, group.max.ok_or(missing)?);
    }
    Ok(groups)
}

/// Read the tables `[namespaces.NAME]`.
fn read_namespaces(top: &mut Section<'_>) -> Result<Namespaces, toml_reader::Error> {
    let mut namespaces = Namespaces::new();
    for (name, section) in top.named_tables(NamespaceQuota::NAME)? {
        let namespace = name.parse();
        let namespace =
            namespace.map_err(|what| section.error_of_table(format_args!("its name {what}")))?;
        namespaces.insert(namespace, NamespaceQuota::whole(section, Path::new(""))?);
    }
    Ok(namespaces)
}

/// Returns the path and the text of the named file, else of the usual file if it exists.
fn read_file(named: Option<&Path>, folder: &Path) -> Result<(Option<PathBuf>, String), String> {
    let path = folder.join(named.unwrap_or(Path::new(FILE_NAME)));
    let why = match files::read_text(&path) {
        Ok(Some(text)) => return Ok((Some(path), text)),
        Ok(None) if named.is_none() => return Ok((None, String::new())),
        Ok(None) => "it does not exist; correct the path given with --config".to_owned(),
        Err(why) => why,
    };
    let path = path.display();
    Err(format!("the configuration {path} cannot be read: {why}"))
}

/// Returns this program's folder in the user's cache folder; `None` for a user without a home.
fn user_cache(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| env(name).map(PathBuf::from);
    let absolute = |name| path(name).filter(|path| path.is_absolute());
    let caches = absolute(environment::CACHE_HOME)
        .or_else(|| Some(absolute(environment::HOME)?.join(".cache")))?;
    Some(caches.join("campanile"))
}

#[cfg(test)]
mod tests;
