//! Where each value of the configuration comes from, for the page that shows it.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::settings::Entry;
use super::{Config, Flags, secrets};
use crate::environment;
use campanile_control::settings::{ConfigKey, ConfigOrigin};
use campanile_package::toml_reader::{Document, Error};

/// The keys that aren't left at their defaults, by table and key.
pub(super) type Origins = BTreeMap<(String, String), ConfigOrigin>;

/// Returns the keys that the file `text` sets.
///
/// # Errors
/// When it is not TOML.
pub(super) fn of_file(config: &Config, text: &str) -> Result<Origins, Error> {
    let document = Document::parse("", text)?;
    let all = config.entries().into_iter();
    let all = all.flat_map(|(table, entries)| {
        let keys = entries.into_iter().map(|entry| entry.help.key);
        Vec::from_iter(keys.map(|key| (table.clone(), key)))
    });
    let set = all.filter(|(table, key)| document.sets(table, key));
    Ok(set.map(|key| (key, ConfigOrigin::File)).collect())
}

/// Notes the keys that flags and variables set.
pub(super) fn note_overrides(
    origins: &mut Origins,
    flags: &Flags,
    env: &dyn Fn(&str) -> Option<OsString>,
) {
    let variables = [
        ("", "database", environment::DATABASE),
        ("", "plugins", environment::PLUGINS),
        ("server", "listen", environment::LISTEN),
    ];
    let given = [
        ("", "database", flags.database.is_some()),
        ("", "plugins", flags.plugins.is_some()),
        ("host", "name", flags.name.is_some()),
        ("server", "listen", flags.listen.is_some()),
        ("host", "wait", flags.wait.is_some()),
    ];
    let variables = variables
        .into_iter()
        .filter(|(.., name)| env(name).is_some());
    let variables = variables.map(|(table, key, _)| (table, key, ConfigOrigin::Environment));
    let given = given.into_iter().filter(|(.., is_given)| *is_given);
    // A flag is stronger than a variable.
    let given = given.map(|(table, key, _)| (table, key, ConfigOrigin::Flag));
    for (table, key, origin) in variables.chain(given) {
        origins.insert((table.to_owned(), key.to_owned()), origin);
    }
}

impl Config {
    /// Returns the keys that aren't left at their defaults, with their tables, and what set each.
    pub fn set_keys(&self) -> BTreeMap<String, ConfigOrigin> {
        let origins = self.origins.iter();
        let named = origins.map(|((table, key), origin)| match table.as_str() {
            "" => (key.clone(), *origin),
            table => (format!("{table}.{key}"), *origin),
        });
        named.collect()
    }

    /// Lists every key with its value and where that comes from: secrets with their sources alone, and without the tables of
    /// alerts.
    pub fn keys(&self) -> Vec<ConfigKey> {
        let defaults = Config::default().entries().into_iter();
        let defaults: BTreeMap<(String, String), String> = defaults
            .flat_map(|(table, entries)| {
                let fixed = entries.into_iter().filter(|entry| entry.example.is_none());
                let keys = fixed.filter_map(|entry| Some((entry.help.key, entry.value?)));
                Vec::from_iter(keys.map(|(key, value)| ((table.clone(), key), value)))
            })
            .collect();
        let mut keys = Vec::new();
        for (table, entries) in self.entries() {
            for Entry { help, value, .. } in entries {
                let place = (table.clone(), help.key);
                let origin = self.origins.get(&place).copied();
                let default = defaults.get(&place).cloned();
                keys.push(ConfigKey {
                    origin: origin.unwrap_or(ConfigOrigin::Default),
                    table: place.0,
                    key: place.1,
                    value,
                    default,
                    meaning: help.meaning.replace('\n', " "),
                });
            }
        }
        keys.extend(self.secrets.iter().map(|(name, source)| {
            let source = secrets::toml(source);
            let (key, value) = source.split_once(" = ").unwrap_or((&source, ""));
            ConfigKey {
                table: format!("secrets.{name}"),
                key: key.to_owned(),
                value: Some(value.to_owned()),
                default: None,
                origin: ConfigOrigin::File,
                meaning: "Where the secret comes from. It is shown nowhere.".to_owned(),
            }
        }));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FILE_NAME;
    use std::fs;

    #[test]
    fn each_key_says_where_its_value_comes_from() {
        let folder = tempfile::tempdir().unwrap();
        let text = "database = 'postgres://u:hunter2@h/db'\nplugins = 'file'\n[host]\nname = 'file'\nruns_max = 4\n\
            [server.tls]\n[groups.g]\nmax = 2\n[secrets.db]\ncommand = ['vault', '--token=hunter2']";
        fs::write(folder.path().join(FILE_NAME), text).unwrap();
        let env = |name: &str| match name {
            environment::PLUGINS => Some("env".into()),
            environment::LISTEN => Some("127.0.0.1:1".into()),
            _ => None,
        };
        let flags = Flags {
            name: Some("flag".to_owned()),
            listen: Some("off".parse().unwrap()),
            ..Flags::default()
        };
        let config = Config::load(&flags, &env, folder.path()).unwrap();
        let set = config.set_keys();
        assert_eq!(set.get("host.runs_max"), Some(&ConfigOrigin::File));
        assert_eq!(set.get("schedules"), None);
        let printed = config.to_string();
        let lines = "# the environment sets plugins\n# options set host.name, server.listen\n";
        assert!(printed.contains(lines), "{printed}");
        let keys = config.keys();
        let find = |table: &str, key: &str| {
            let found = keys.iter().find(|it| it.table == table && it.key == key);
            found.unwrap_or_else(|| panic!("no key {table} {key}"))
        };
        for (table, key, origin) in [
            ("", "database", ConfigOrigin::File),
            ("", "plugins", ConfigOrigin::Environment),
            ("", "schedules", ConfigOrigin::Default),
            ("host", "name", ConfigOrigin::Flag),
            ("host", "runs_max", ConfigOrigin::File),
            ("host", "drain", ConfigOrigin::Default),
            ("server", "listen", ConfigOrigin::Flag),
            ("server.tls", "key", ConfigOrigin::Default),
            ("groups.g", "max", ConfigOrigin::File),
            ("secrets.db", "command", ConfigOrigin::File),
        ] {
            assert_eq!(find(table, key).origin, origin, "{table} {key}");
        }
        let runs = find("host", "runs_max");
        assert_eq!(
            (runs.value.as_deref(), runs.default.as_deref()),
            (Some("4"), Some("512"))
        );
        assert_eq!(find("server.tls", "key").value, None);
        let shown = format!("{keys:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
