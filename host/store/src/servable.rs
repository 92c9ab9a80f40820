//! What a host needs from a database before serving it. `campanile serve` and `campanile doctor` share these checks so both see the
//! same.

use std::fs::File;

use super::error::refused;
use super::lock::lock_path;
use super::open::{MigrationState, POSTGRES_MIGRATIONS};
use super::postgres::Server;
use super::{Db, DbError, Pools, Result};

/// The tables in the schema of a Postgres session, including those its role can't read.
const TABLES: &str =
    "SELECT CAST(tablename AS TEXT) FROM pg_tables WHERE schemaname = current_schema()";

/// The tables in the schema whose rows the role can't use the way a host does.
const WITHOUT_RIGHTS: &str = "SELECT CAST(tablename AS TEXT) FROM pg_tables
    WHERE schemaname = current_schema() AND tablename <> '_sqlx_migrations' AND NOT (
        has_table_privilege(format('%I.%I', schemaname, tablename), 'SELECT')
        AND has_table_privilege(format('%I.%I', schemaname, tablename), 'INSERT')
        AND has_table_privilege(format('%I.%I', schemaname, tablename), 'UPDATE')
        AND has_table_privilege(format('%I.%I', schemaname, tablename), 'DELETE'))
    ORDER BY tablename";

impl Db {
    /// Refuses a database no host can serve, changing nothing.
    ///
    /// # Errors
    ///
    /// `ReadOnly` on a server accepting no writes, `NotWritable` for an unwritable lock file, and `Refused` behind a pooler in
    /// transaction mode, for another program's tables, or without the rights to use them.
    pub async fn refuse_unservable(&self) -> Result {
        match &self.pools {
            Pools::Sqlite { .. } => self.refuse_foreign_lock_file(),
            Pools::Postgres(server) => match self.refuse_server(server).await {
                // These already name the database.
                Err(error @ (DbError::Schema(_) | DbError::NewerSchema(_))) => Err(error),
                checked => checked.map_err(|error| error.at(&self.url)),
            },
        }
    }

    fn refuse_foreign_lock_file(&self) -> Result {
        let Some(path) = self.url.sqlite_path().map(lock_path) else {
            return Ok(());
        };
        match File::options().write(true).open(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(DbError::NotWritable(format!("{}: {error}", path.display())))
            }
            _ => Ok(()),
        }
    }

    async fn refuse_server(&self, server: &Server) -> Result {
        server.refuse_shared_sessions().await?;
        server.refuse_read_only().await?;
        let states = self.migrations().await?;
        self.refuse_other_tables(server, &states).await?;
        let denied: Vec<String> = sqlx::query_scalar(WITHOUT_RIGHTS)
            .fetch_all(server.pool())
            .await?;
        match denied.first() {
            None => Ok(()),
            Some(table) => refused(format!(
                "the role of the address may not read and write the table `{table}`; let the owner of the tables run what `campanile db grants ROLE` prints"
            )),
        }
    }

    /// Refuses a server's schema with some of the tables, but not those created by its applied migrations.
    pub(super) async fn refuse_other_tables(
        &self,
        server: &Server,
        states: &[MigrationState],
    ) -> Result {
        let is_applied = |version| {
            let mut states = states.iter();
            states.any(|state| state.version == version && state.applied)
        };
        let (mut expected, mut others) = (Vec::new(), Vec::new());
        for migration in POSTGRES_MIGRATIONS.iter() {
            let tables = if is_applied(migration.version) {
                &mut expected
            } else {
                &mut others
            };
            tables.extend(created_tables(migration.sql.as_str()));
        }
        let found: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(server.pool()).await?;
        let is_found = |table: &&str| found.iter().any(|found| found == table);
        if let Some(table) = others.iter().find(|table| is_found(table)) {
            return refused(format!(
                "its schema has a table `{table}` that this campanile did not create; name an empty schema with `options=-c search_path=NAME` in the address"
            ));
        }
        match expected.iter().find(|table| !is_found(table)) {
            None => Ok(()),
            Some(table) => refused(format!(
                "its schema lacks the table `{table}` and has the record of its creation; restore a backup, or name an empty schema"
            )),
        }
    }
}

/// Returns the names of the tables created by a migration.
fn created_tables(migration: &str) -> impl Iterator<Item = &str> {
    let created = migration.lines();
    created.filter_map(|line| line.strip_prefix("CREATE TABLE ")?.split(' ').next())
}
