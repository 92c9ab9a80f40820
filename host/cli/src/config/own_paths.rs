//! The paths that a host relies on, and who else can change them.

use std::path::{Path, PathBuf};

use super::{Config, FILE_NAME};
use crate::environment;
use campanile_engine::secrets::Source;
use campanile_package::{OwnPath, OwnPathKind};
use campanile_server::Listen;

impl Config {
    /// Return the paths from which no task may be granted a directory to write, and no secret to read: each file and
    /// folder of the configuration, also those that do not exist yet.
    pub fn own_paths(&self) -> Vec<OwnPath> {
        let files = &self.files;
        let configuration = self.file.as_deref().unwrap_or(Path::new(FILE_NAME));
        let paths = [
            (OwnPathKind::Plugins, Some(files.plugins.as_path())),
            (OwnPathKind::Configuration, Some(configuration)),
            (OwnPathKind::Schedules, Some(files.schedules.as_path())),
            (OwnPathKind::Database, files.database.sqlite_path()),
            (OwnPathKind::Cache, self.sandbox.cache_dir.as_deref()),
        ];
        let server = self.api_server();
        let of_server = (server.listen != Listen::Off).then_some(server.token_file);
        let of_server = of_server.into_iter().chain(server.tls.key);
        let of_server = of_server.map(|path| OwnPath {
            kind: OwnPathKind::SecretFile,
            path,
        });
        let paths = paths.into_iter().filter_map(|(kind, path)| {
            let path = path?.to_owned();
            Some(OwnPath { kind, path })
        });
        paths
            .chain(of_server)
            .chain(self.secrets.values().flat_map(of_secret))
            .collect()
    }

    /// Return a sentence without an end for each of these paths that others than the user of this process can change.
    /// Blocks.
    ///
    /// The cache is left out: a sandbox does not use one that others can write.
    pub fn foreign_writers(&self) -> Vec<String> {
        let paths = self.own_paths().into_iter();
        let used = paths.filter(|own| match own.kind {
            OwnPathKind::Cache => false,
            // Paths at which the system looks for the program before it finds it.
            OwnPathKind::SecretCommand => own.path.exists(),
            _ => true,
        });
        used.filter_map(|own| own.foreign_writer()).collect()
    }
}

/// Return the files that decide what the value of a secret is.
fn of_secret(source: &Source) -> Vec<OwnPath> {
    let (kind, paths) = match source {
        Source::Env { .. } => return Vec::new(),
        Source::File(path) => (OwnPathKind::SecretFile, vec![path.clone()]),
        Source::Command(words) => (OwnPathKind::SecretCommand, of_command(words)),
    };
    let paths = paths.into_iter().map(|path| OwnPath { kind, path });
    paths.collect()
}

/// Return the program of a command, and each file among its arguments, such as the script of an interpreter.
fn of_command(words: &[String]) -> Vec<PathBuf> {
    let Some((program, arguments)) = words.split_first() else {
        return Vec::new();
    };
    let mut paths = places_of_program(program);
    let files = arguments.iter().map(PathBuf::from);
    paths.extend(files.filter(|path| path.is_file()));
    paths
}

/// Return the paths at which the operating system looks for a program, up to the one that it executes.
///
/// A program that a task puts at an earlier one would be executed instead.
fn places_of_program(program: &str) -> Vec<PathBuf> {
    if program.contains('/') {
        return vec![program.into()];
    }
    let mut places = Vec::new();
    let folders = std::env::var_os(environment::PATH).unwrap_or_default();
    for folder in std::env::split_paths(&folders) {
        let place = folder.join(program);
        let is_found = place.is_file();
        places.push(place);
        if is_found {
            break;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn with_command(words: &[&str]) -> Config {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let secrets = BTreeMap::from([("a".to_owned(), Source::Command(words))]);
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
    fn the_program_and_the_script_of_a_secret_command_are_paths_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        fs::write(&script, "echo hunter2").unwrap();
        let shown = script.to_str().unwrap();
        let found = paths(
            &with_command(&["sh", "-e", shown]),
            OwnPathKind::SecretCommand,
        );
        assert_eq!(found.last(), Some(&script));
        let programs = &found[..found.len() - 1];
        assert!(
            programs.iter().all(|path| path.ends_with("sh")),
            "{programs:?}"
        );
        assert!(programs.last().unwrap().is_file(), "{programs:?}");
        let named = paths(&with_command(&["./print"]), OwnPathKind::SecretCommand);
        assert_eq!(named, [Path::new("./print")]);
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
