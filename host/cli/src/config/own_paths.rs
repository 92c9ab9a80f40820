//! The paths that a host relies on, and who else can change them.

use std::path::Path;

use super::secret_commands::files_of;
use super::{Config, FILE_NAME};
use campanile_control::settings::SecretSource;
use campanile_package::{OwnPath, OwnPathKind};
use campanile_sandbox::own_files::PathTrace;
use campanile_server::Listen;

impl Config {
    /// Returns the paths from which no task may be granted a directory to write, and no secret to read: each file and
    /// folder of the configuration, also those that do not exist yet.
    pub fn own_paths(&self) -> Vec<OwnPath> {
        let files = self.files.clone();
        let configuration = self.file.clone().unwrap_or_else(|| FILE_NAME.into());
        let database = files.database.sqlite_path().map(Path::to_owned);
        let server = self.api_server();
        let token_file = (server.listen != Listen::Off).then_some(server.token_file);
        let paths = [
            (OwnPathKind::Plugins, Some(files.plugins)),
            (OwnPathKind::Configuration, Some(configuration)),
            (OwnPathKind::Schedules, Some(files.schedules)),
            (OwnPathKind::Database, database),
            (OwnPathKind::Cache, self.sandbox.cache_dir.clone()),
            (OwnPathKind::State, Some(self.state_dir())),
            (OwnPathKind::SecretFile, token_file),
            (OwnPathKind::SecretFile, server.tls.key),
            (OwnPathKind::Certificate, server.tls.certificate),
            (OwnPathKind::SecretFile, self.policy.approval_key.clone()),
        ];
        let paths = paths.into_iter();
        let paths = paths.filter_map(|(kind, path)| Some(OwnPath { kind, path: path? }));
        let secrets = self.secrets.values().flat_map(of_secret);
        paths.chain(secrets).collect()
    }

    /// Returns why two of these paths can't be used together, if so, as a sentence without a full stop. Blocks.
    ///
    /// Whatever a host writes mustn't be mistaken for a package, and the cache may be deleted at any time.
    pub fn contradiction(&self) -> Option<String> {
        let (plugins, state) = (self.files.plugins.as_path(), self.state_dir());
        let cache = self.sandbox.cache_dir.as_deref();
        let plugins = ("the plugins folder", Some(plugins));
        let state = ("`state_dir` under `[host]`", Some(&*state));
        let cache = ("`cache_dir` under `[sandbox]`", cache);
        let database = ("the database", self.files.database.sqlite_path());
        let inside = [
            (database, plugins),
            (state, plugins),
            (plugins, state),
            (cache, plugins),
            (plugins, cache),
            (state, cache),
            (database, cache),
        ];
        let mut inside = inside.into_iter();
        let found = inside.find_map(|((inner, path), (outer, folder))| {
            let (path, folder) = (path?, folder?);
            let (end, around) = (PathTrace::of(path), PathTrace::of(folder));
            let how = if around.end() == end.end() {
                "is also"
            } else if around.contains(end.end()) {
                "lies inside"
            } else {
                return None;
            };
            let path = path.display();
            Some(format!("{inner}, {path}, {how} {outer}"))
        })?;
        Some(format!("{found}: give each a folder of its own"))
    }

    /// Returns a sentence without a full stop for each of these paths others than this process's user can change. Blocks.
    ///
    /// Leaves out the cache and the host's own record: a host never uses them if others can write there.
    pub fn foreign_writers(&self) -> Vec<String> {
        let paths = self.own_paths().into_iter();
        let used = paths.filter(|own| match own.kind {
            OwnPathKind::Cache | OwnPathKind::State => false,
            // Paths at which the system looks for the program before it finds it.
            OwnPathKind::SecretCommand => own.path.exists(),
            _ => true,
        });
        used.filter_map(|own| own.foreign_writer()).collect()
    }
}

/// Returns the files that decide what the value of a secret is.
fn of_secret(source: &SecretSource) -> Vec<OwnPath> {
    let (kind, paths) = match source {
        SecretSource::Env { .. } => return Vec::new(),
        SecretSource::File(path) => (OwnPathKind::SecretFile, vec![path.clone()]),
        SecretSource::Command(words) => {
            (OwnPathKind::SecretCommand, Vec::from_iter(files_of(words)))
        }
    };
    let paths = paths.into_iter().map(|path| OwnPath { kind, path });
    paths.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use super::*;

    fn with_command(words: &[&str]) -> Config {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let secrets = BTreeMap::from([("a".to_owned(), SecretSource::Command(words))]);
        Config {
            secrets,
            ..Config::default()
        }
    }

    fn paths(config: &Config, kind: OwnPathKind) -> Vec<PathBuf> {
        let own = config.own_paths().into_iter();
        own.filter(|own| own.kind == kind)
            .map(|own| own.path)
            .collect()
    }

    #[test]
    fn a_configuration_that_does_not_exist_is_a_path_of_the_host() {
        let found = paths(&Config::default(), OwnPathKind::Configuration);
        assert_eq!(found, [Path::new(FILE_NAME)]);
    }

    #[test]
    fn folders_that_contradict_each_other_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("plugins/inside")).unwrap();
        std::os::unix::fs::symlink(at("plugins"), at("link")).unwrap();
        let contradiction = |state: &str, cache: &str, database: &str, plugins: &str| {
            let mut config = Config::default();
            config.files.plugins = at(plugins);
            config.files.database = format!("sqlite:{}", at(database).display())
                .parse()
                .unwrap();
            config.host.state_dir = Some(at(state));
            config.sandbox.cache_dir = Some(at(cache));
            config.contradiction()
        };
        assert_eq!(contradiction("state", "cache", "a.db", "plugins"), None);
        // The cache may be deleted at any time, yet may lie in a folder meant to stay.
        assert_eq!(
            contradiction("state", "state/cache", "a.db", "plugins"),
            None
        );
        for (state, cache, database, plugins, part) in [
            (
                "plugins",
                "cache",
                "a.db",
                "plugins",
                "is also the plugins folder",
            ),
            (
                "link",
                "cache",
                "a.db",
                "plugins",
                "is also the plugins folder",
            ),
            (
                "link/inside",
                "cache",
                "a.db",
                "plugins",
                "lies inside the plugins folder",
            ),
            (
                "plugins/new",
                "cache",
                "a.db",
                "link",
                "lies inside the plugins folder",
            ),
            (
                "plugins",
                "cache",
                "a.db",
                "plugins/inside",
                "lies inside `state_dir`",
            ),
            (
                "state",
                "plugins",
                "a.db",
                "plugins",
                "is also the plugins folder",
            ),
            (
                "state",
                "plugins/new",
                "a.db",
                "plugins",
                "lies inside the plugins folder",
            ),
            (
                "state",
                "plugins",
                "a.db",
                "plugins/inside",
                "lies inside `cache_dir`",
            ),
            ("state", "state", "a.db", "plugins", "is also `cache_dir`"),
            (
                "cache/state",
                "cache",
                "a.db",
                "plugins",
                "lies inside `cache_dir`",
            ),
            (
                "state",
                "cache",
                "plugins/a.db",
                "plugins",
                "lies inside the plugins folder",
            ),
            (
                "state",
                "cache",
                "cache/a.db",
                "plugins",
                "lies inside `cache_dir`",
            ),
        ] {
            let found = contradiction(state, cache, database, plugins);
            let found = found.unwrap_or_default();
            assert!(
                found.contains(part),
                "{state} {cache} {database} {plugins}: {found}"
            );
        }
    }

    #[test]
    fn a_secret_command_that_others_can_write_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("print");
        fs::write(&program, "").unwrap();
        let mut config = with_command(&[program.to_str().unwrap()]);
        config.files.plugins = folder.path().join("plugins");
        config.files.schedules = folder.path().join("schedules.toml");
        config.file = Some(folder.path().join(FILE_NAME));
        config.files.database = "postgres://localhost/x".parse().unwrap();
        assert_eq!(config.foreign_writers(), Vec::<String>::new());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).unwrap();
        let found = config.foreign_writers();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("the secret command"), "{found:?}");
    }
}
