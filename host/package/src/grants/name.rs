//! Environment variables, config keys and secrets: grants by name.

use std::ffi::OsString;

use super::part::Part;
use super::{GrantKind, Layout};
use crate::host_rules::HostRules;
use campanile_model::text::{nearest, toml_string};
use campanile_sandbox::ENV_PREFIX;

pub(super) static ENV: GrantKind = GrantKind {
    name: "env",
    key: "env",
    keys: &[
        "env | list of texts | | | Environment variables of the task: \"NAME\" takes the value from the host's environment, \"NAME=value\" sets it.",
    ],
    read: |section, reader| {
        let read = section.list("env", |entry| {
            let (name, value) = read_variable(entry, reader.rules)?;
            let first = reader.grants.env.insert(name.clone(), value);
            first.map_or(Ok(()), |_| Err(format!("names {name} twice")))
        });
        read.map(drop)
    },
    record: |grants| names(grants.env.keys()),
    parts: &[Part::Variable],
    need: "the environment variable",
    also: Some(&SECRET_ENV),
    ..GrantKind::DEFAULTS
};

pub(super) static CONFIG: GrantKind = GrantKind {
    name: "config",
    key: "config",
    keys: &["config | table of texts | | | The keys and values that `wasi:config/store` returns."],
    read: |section, reader| {
        reader.grants.config = section.text_map("config", |_, value| Ok(value.to_owned()))?;
        Ok(())
    },
    record: |grants| names(grants.config.keys()),
    layout: Layout::Table,
    parts: &[Part::Name],
    need: "the config key",
    also: Some(&SECRET),
    ..GrantKind::DEFAULTS
};

pub(crate) static SECRET: GrantKind = GrantKind {
    name: "secret",
    key: "secrets",
    keys: &[
        "secrets | list of texts | | | Names of secrets of the host's configuration, which `wasi:config/store` returns as config keys.",
    ],
    read: |section, reader| {
        let read = section.list("secrets", |name| {
            let name = read_secret(name, reader.rules)?;
            if reader.grants.config.contains_key(&name) {
                return Err(format!(
                    "names {name}, which is also a key of `config`: rename one"
                ));
            }
            reader.grants.secrets.insert(name);
            Ok(())
        });
        read.map(drop)
    },
    record: |grants| names(&grants.secrets),
    ..GrantKind::DEFAULTS
};

pub(super) static SECRET_ENV: GrantKind = GrantKind {
    name: "secret_env",
    key: "secret_env",
    keys: &[
        "secret_env | table of texts | | | Environment variables whose values are secrets: the variable, and the secret's name.",
    ],
    read: |section, reader| {
        reader.grants.secret_env = section.text_map("secret_env", |variable, secret| {
            check_variable(variable)?;
            if reader.grants.env.contains_key(variable) {
                return Err(format!(
                    "sets {variable}, which `env` also sets: leave one out"
                ));
            }
            read_secret(secret, reader.rules)
        })?;
        Ok(())
    },
    layout: Layout::Table,
    record: |grants| {
        let parts = |(name, secret): (&String, &String)| vec![name.clone(), secret.clone()];
        grants.secret_env.iter().map(parts).collect()
    },
    ..GrantKind::DEFAULTS
};

fn names<'g>(names: impl IntoIterator<Item = &'g String>) -> Vec<Vec<String>> {
    let names = names.into_iter();
    names.map(|name| vec![name.clone()]).collect()
}

/// Read `NAME`, a variable of the host's environment, or `NAME=value`. Return its name and value; the error is a clause.
pub(super) fn read_variable(entry: &str, rules: &HostRules) -> Result<(String, String), String> {
    let (name, value) = match entry.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (entry, None),
    };
    check_variable(name)?;
    if value.as_ref().is_some_and(|value| value.contains('\0')) {
        return Err(format!(
            "sets {name} to a text with a NUL byte, which no variable can hold: remove it"
        ));
    }
    let value = value.map_or_else(|| host_variable(rules, name), Ok)?;
    Ok((name.to_owned(), value))
}

/// Returns the value of a variable of the host's environment; the error is a clause about `env`.
fn host_variable(rules: &HostRules, name: &str) -> Result<String, String> {
    if let Some(secret) = rules.secret_variables.get(name) {
        return Err(format!(
            "names {name}, which holds the secret `{secret}` of the host's configuration: grant the secret instead, with `{name} = {}` below [grants.secret_env]",
            toml::Value::from(secret.as_str())
        ));
    }
    match (rules.env)(name).map(OsString::into_string) {
        Some(Ok(value)) => Ok(value),
        Some(Err(_)) => Err(format!(
            "names {name}, whose value in the host's environment is not UTF-8 text"
        )),
        None => Err(format!(
            "names {name}, which is not set in the host's environment: set it before the host starts, or write \"{name}=value\""
        )),
    }
}

/// Refuse a variable that the host sets, and a name that no variable can have; the error is a clause.
pub(crate) fn check_variable(name: &str) -> Result<(), String> {
    if name.starts_with(ENV_PREFIX) {
        return Err(format!(
            "names {name}: the host sets the variables that begin with {ENV_PREFIX} for each run; choose another name"
        ));
    }
    if name.is_empty() {
        return Err(
            "has a variable without a name: write the name, before the `=` if it has one"
                .to_owned(),
        );
    }
    let wrong = |character: &char| *character == '=' || character.is_control();
    match name.chars().find(wrong) {
        None => Ok(()),
        Some(wrong) => Err(format!(
            "names {}, and a variable's name can't have the character {}: choose another name",
            toml_string(name),
            toml_string(wrong.encode_utf8(&mut [0; 4])),
        )),
    }
}

/// Returns the name of a secret of the host's configuration. The error is a clause.
pub(super) fn read_secret(name: &str, rules: &HostRules) -> Result<String, String> {
    if rules.secrets.contains(name) {
        return Ok(name.to_owned());
    }
    // A text that resembles no name may be a secret's value, which must not be logged.
    Err(match nearest(name, rules.secrets.iter().map(String::as_str)) {
        Some(nearest) => format!(
            "names {name}, which is no secret of the host's configuration: did you mean \"{nearest}\"?"
        ),
        None => "must name secrets of the host's configuration, not hold their values: define each in `[secrets.NAME]` of the configuration".to_owned(),
    })
}
