//! `campanile db compact`: give the free pages of a SQLite database back to the disk.

use serde::Serialize;
use tokio::task::block_in_place;

use super::backup::clean_folder;
use super::postgres;
use crate::Common;
use crate::output::{Record, Result};
use campanile_store::restore::RestoreTarget;
use campanile_store::{DatabaseUrl, Db, backup};

/// A database that was compacted.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct CompactReport {
    database: String,
    bytes_before: u64,
    bytes_after: u64,
}

impl Record for CompactReport {}

/// Replace the database by a copy of itself, which has no free pages.
pub(super) async fn run(common: &Common, url: &DatabaseUrl) -> Result {
    let database = match url {
        DatabaseUrl::Sqlite(path) => path,
        DatabaseUrl::Postgres(url) => return Err(postgres::compact(url)),
    };
    let db = Db::open_current(url).await?;
    let bytes = db.used_bytes().await?;
    crate::close(&db).await;
    let mut target = RestoreTarget::lock(database)?;
    clean_folder(target.path());
    backup::check_room(target.path(), bytes)?;
    target.take_over().await?;
    let bytes_before = std::fs::metadata(target.path()).map_or(0, |found| found.len());
    let copy = target.create()?;
    target.copy_to(&copy).await?;
    let bytes_after = backup::check(copy.path(), target.path(), true).await?.bytes;
    block_in_place(|| target.install(copy))?;
    common.print(&CompactReport {
        database: target.path().display().to_string(),
        bytes_before,
        bytes_after,
    })
}
