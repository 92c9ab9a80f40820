//! The lines by which Postgres's own programs copy, restore and compact a database.
//!
//! Campanile does not run them: they must fit the server's version, and they ask for the password themselves.

use std::path::Path;

use crate::output::{ErrorCode, Failure, refused};
use campanile_store::PostgresUrl;

/// The note below such a line.
const PASSWORD: &str = "it asks for the password, or takes it from PGPASSWORD or ~/.pgpass";

/// Returns the answer to `db backup`.
pub(super) fn backup(url: &PostgresUrl, file: &Path) -> Failure {
    let schema = url.schema();
    let schema = schema.map(|name| format!("--schema={} ", quoted(&pattern(&name))));
    let line = format!(
        "pg_dump --format=custom {}--file={} {}",
        schema.unwrap_or_default(),
        quoted(&file.to_string_lossy()),
        quoted(&url.without_password())
    );
    answer("copied", "hosts may continue to serve", &line)
}

/// Returns the answer to `db restore`.
pub(super) fn restore(url: &PostgresUrl, file: &Path) -> Failure {
    let line = format!(
        "pg_restore --single-transaction --clean --if-exists --no-owner --dbname={} {}",
        quoted(&url.without_password()),
        quoted(&file.to_string_lossy())
    );
    answer("restored", "stop all hosts first", &line)
}

/// Returns the answer to `db compact`.
pub(super) fn compact(url: &PostgresUrl) -> Failure {
    let line = format!(
        "psql --command='VACUUM (ANALYZE)' {}",
        quoted(&url.without_password())
    );
    let when = "the server does the same by itself, and hosts may continue to serve";
    answer("compacted", when, &line)
}

fn answer(done: &str, when: &str, line: &str) -> Failure {
    let hint = format!("{when}; {PASSWORD}:\n\n  {line}");
    refused!("a Postgres database is {done} by a program of Postgres, which you run yourself")
        .code(ErrorCode::Refused)
        .hint(hint)
}

/// Returns the pattern of `pg_dump` that only the schema `name` matches.
fn pattern(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if name.bytes().all(is_plain) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// Returns a word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_word_as_it_was() {
        for (word, shown) in [
            ("nightly.dump", "nightly.dump"),
            ("postgres://u@h:5432/db", "postgres://u@h:5432/db"),
            (
                "postgres://h/db?sslmode=require",
                "'postgres://h/db?sslmode=require'",
            ),
            ("it's $(here)", r"'it'\''s $(here)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), shown);
        }
    }

    #[test]
    fn a_schema_is_named_and_not_matched() {
        assert_eq!(pattern("team_a"), "team_a");
        assert_eq!(pattern("Team*"), "\"Team*\"");
    }
}
