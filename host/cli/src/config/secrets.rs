//! The sources of secrets: the tables `[secrets.NAME]`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use campanile_control::settings::SecretSource;
use campanile_package::toml_reader::{Error, Section};
use campanile_sandbox::Secret;

/// Read the tables `[secrets.NAME]`.
pub(super) fn read(
    named: Vec<(String, Section<'_>)>,
    home: &Path,
    env: &dyn Fn(&str) -> Option<OsString>,
) -> Result<BTreeMap<String, SecretSource>, Error> {
    let mut sources = BTreeMap::new();
    for (name, mut section) in named {
        let variable = section.text("env")?;
        let file = section.path("file")?;
        let command = section.texts("command")?;
        let source = match (variable, file, command) {
            (Some(variable), None, None) => {
                let value = env(&variable).map(OsString::into_string).transpose();
                let value = value.map_err(|_| {
                    let what = format_args!("names {variable}, whose value is not UTF-8 text");
                    section.error("env", what)
                })?;
                SecretSource::Env {
                    variable,
                    value: value.map(Secret::new),
                }
            }
            (None, Some(file), None) => SecretSource::File(home.join(file)),
            (None, None, Some(words)) if !words.is_empty() => SecretSource::Command(words),
            _ => {
                let error = section.error_of_table(
                    "needs exactly one of `env = \"VARIABLE\"`, `file = \"PATH\"` or `command = [\"NAME\", \"ARGUMENT\"]`",
                );
                // An unknown key is most likely the missing one, mistyped.
                section.finish()?;
                return Err(error);
            }
        };
        section.finish()?;
        sources.insert(name, source);
    }
    Ok(sources)
}

/// Stands for an argument of a command, which may hold a secret.
const ARGUMENT: &str = "***";

/// Returns the key of `source` as TOML, without the secret's value and without the arguments of a command.
pub(super) fn toml(source: &SecretSource) -> String {
    let entry = match source {
        SecretSource::Env { variable, .. } => ("env", toml::Value::from(variable.as_str())),
        SecretSource::File(path) => ("file", toml::Value::from(path.to_string_lossy().as_ref())),
        SecretSource::Command(words) => {
            let arguments = words.iter().skip(1).map(|_| ARGUMENT);
            let shown = words.iter().take(1).map(String::as_str).chain(arguments);
            ("command", toml::Value::from(Vec::from_iter(shown)))
        }
    };
    format!("{} = {}", entry.0, entry.1)
}
