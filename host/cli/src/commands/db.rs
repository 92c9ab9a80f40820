//! `campanile db`: the database's tables and its copies.

pub(crate) mod backup;
pub(crate) mod compact;
pub(crate) mod grants;
mod postgres;
pub(crate) mod restore;

pub(crate) mod status;

use clap::Subcommand;
use serde::Serialize;

use crate::output::{self, Record, Result};
use crate::{Common, watch};
use campanile_store::{Db, MigrationState};

#[derive(Subcommand)]
pub(crate) enum DbCommand {
    /// Bring the tables up to this version; create a SQLite file that does not exist
    Migrate,
    /// Show which migrations the database has, its size, and the launches past their age; exit code 1 when a migration is missing
    #[command(arg = watch::arg())]
    Status,
    /// Copy a SQLite database to a file, also while a host serves; on Postgres, say how
    Backup(backup::Backup),
    /// Put a copy in the place of a SQLite database that no host serves; on Postgres, say how
    Restore(restore::Restore),
    /// Give the free pages of a SQLite database that no host serves back to the disk; on Postgres, say how
    Compact,
    /// Print the statements that let a role of Postgres serve; the owner of the tables runs them
    Grants(grants::Grants),
}

/// The migrations of a database.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct DbStatus {
    /// The URL without its password.
    database: String,
    /// Whether every migration of this version is applied.
    current: bool,
    migrations: Vec<MigrationState>,
}

impl Record for DbStatus {
    const DETAIL: &'static str = "database current";

    fn print(&self) -> Result {
        output::print_detail(self)?;
        output::print_table(&self.migrations)
    }
}

impl Record for MigrationState {
    const LIST: &'static str = "version name applied";
}

impl DbStatus {
    async fn read(db: &Db) -> Result<DbStatus> {
        let migrations = db.migrations().await?;
        Ok(DbStatus {
            database: db.url().to_string(),
            current: migrations.iter().all(|migration| migration.applied),
            migrations,
        })
    }
}

impl DbCommand {
    pub async fn run(self, common: &Common) -> Result {
        let url = common.config()?.files.database;
        let db = match self {
            DbCommand::Migrate => Db::open_and_migrate(&url).await?,
            DbCommand::Status => return status::run(common, &Db::open(&url).await?).await,
            DbCommand::Backup(command) => return command.run(common, &url).await,
            DbCommand::Restore(command) => return command.run(common, &url).await,
            DbCommand::Compact => return compact::run(common, &url).await,
            DbCommand::Grants(command) => return command.run(common, &url),
        };
        let status = DbStatus::read(&db).await?;
        crate::close(&db).await;
        common.print(&status)?;
        output::check(status.current)
    }
}
