//! `campanile db grants`: the statements that let a role of Postgres serve, and no more.

use clap::Args;
use serde::Serialize;

use crate::Common;
use crate::output::{Record, Result, print_line, refused};
use campanile_store::DatabaseUrl;

/// The schema of an address that names none.
const DEFAULT_SCHEMA: &str = "public";

#[derive(Args)]
pub(crate) struct Grants {
    /// The role of the hosts and commands
    role: String,
}

/// The statements that let a role serve, for the owner of the tables to run.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct GrantsReport {
    statements: Vec<String>,
}

impl Record for GrantsReport {
    fn print(&self) -> Result {
        for statement in &self.statements {
            print_line!("{statement}")?;
        }
        Ok(())
    }
}

impl Grants {
    pub fn run(self, common: &Common, url: &DatabaseUrl) -> Result {
        let DatabaseUrl::Postgres(url) = url else {
            return Err(refused!(
                "a SQLite database has no roles: its file has the permissions of its user"
            ));
        };
        let schema = url.schema();
        let schema = schema.as_deref().unwrap_or(DEFAULT_SCHEMA);
        common.print(&GrantsReport {
            statements: statements(&quoted(schema), &quoted(&self.role)),
        })
    }
}

/// Returns the statements for a role that reads and writes rows, and changes no table.
fn statements(schema: &str, role: &str) -> Vec<String> {
    let rows = "SELECT, INSERT, UPDATE, DELETE";
    vec![
        format!("GRANT USAGE ON SCHEMA {schema} TO {role};"),
        format!("GRANT {rows} ON ALL TABLES IN SCHEMA {schema} TO {role};"),
        format!("REVOKE INSERT, UPDATE, DELETE ON {schema}._sqlx_migrations FROM {role};"),
        format!("ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT {rows} ON TABLES TO {role};"),
    ]
}

/// Returns a name as SQL reads it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_name() {
        assert_eq!(quoted("hosts"), "\"hosts\"");
        assert_eq!(quoted("a\"; DROP"), "\"a\"\"; DROP\"");
    }
}
