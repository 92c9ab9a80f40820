//! Namespaces: teams that share an installation, each with packages, schedules and tokens of its own.
//!
//! The names of the namespace `team` begin with `@team/`, such as `@team/backup`. Other names are in no namespace.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest namespace.
pub const NAMESPACE_BYTES_MAX: usize = 32;

/// The name of a namespace, without `@` and `/`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub struct Namespace(String);

impl Namespace {
    /// Returns the namespace of a package or a schedule; none when its name is in none.
    pub fn of(name: &str) -> Option<&str> {
        split(name).0
    }

    /// Whether a package or a schedule is of this namespace.
    pub fn contains(&self, name: &str) -> bool {
        Namespace::of(name) == Some(&self.0)
    }

    /// Returns the beginning of all names of this namespace.
    pub fn prefix(&self) -> String {
        format!("@{}/", self.0)
    }

    /// Returns an SQL pattern matching its names. Namespaces contain no wildcards.
    pub fn like(&self) -> String {
        format!("{}%", self.prefix())
    }
}

impl FromStr for Namespace {
    type Err = String;

    /// Read the name of a namespace; the error is a clause.
    fn from_str(text: &str) -> Result<Namespace, String> {
        // A statement compares names by LIKE, which does not distinguish cases on SQLite, and where `_` stands for others.
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=NAMESPACE_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain) {
            Ok(Namespace(text.to_owned()))
        } else {
            Err(format!(
                "is {text:?}, which cannot name a namespace: use 1 to {NAMESPACE_BYTES_MAX} lower-case letters, digits or `-`"
            ))
        }
    }
}

impl TryFrom<String> for Namespace {
    type Error = String;

    fn try_from(text: String) -> Result<Namespace, String> {
        text.parse()
    }
}

impl From<Namespace> for String {
    fn from(namespace: Namespace) -> String {
        namespace.0
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Returns the namespace of a name, if it has one, and the rest of the name.
pub fn split(name: &str) -> (Option<&str>, &str) {
    let parts = name.strip_prefix('@').and_then(|name| name.split_once('/'));
    parts.map_or((None, name), |(namespace, rest)| (Some(namespace), rest))
}

/// Returns the name of what a file of `package` calls `name`: it is in the namespace of the package.
pub fn in_namespace_of(package: &str, name: &str) -> String {
    match Namespace::of(package) {
        Some(namespace) => format!("@{namespace}/{name}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_namespace_only_before_its_slash() {
        for (name, namespace, rest) in [
            ("backup", None, "backup"),
            ("@team/backup", Some("team"), "backup"),
            ("@team", None, "@team"),
            ("team/backup", None, "team/backup"),
            ("@a/b/c", Some("a"), "b/c"),
        ] {
            assert_eq!(split(name), (namespace, rest), "{name}");
        }
    }

    #[test]
    fn a_namespace_contains_its_names_and_no_others() {
        let team: Namespace = "team".parse().unwrap();
        assert!(team.contains("@team/backup"));
        for name in [
            "backup",
            "@team2/backup",
            "@tea/backup",
            "team/backup",
            "@Team/backup",
        ] {
            assert!(!team.contains(name), "{name}");
        }
        assert_eq!(in_namespace_of("@team/backup", "nightly"), "@team/nightly");
        assert_eq!(in_namespace_of("backup", "nightly"), "nightly");
    }

    #[test]
    fn what_a_pattern_would_read_differently_names_no_namespace() {
        assert!("team-2".parse::<Namespace>().is_ok());
        for wrong in ["", "Team", "a_b", "a%", "a/b", "@a", "é", &"a".repeat(33)] {
            assert!(wrong.parse::<Namespace>().is_err(), "{wrong}");
        }
    }
}
