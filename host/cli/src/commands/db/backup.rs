//! `campanile db backup`: copy a SQLite database to a file.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tokio::task::block_in_place;

use super::postgres;
use crate::output::{Record, Result, failed, print_message, refused};
use crate::progress::Line;
use crate::{Common, user};
use campanile_engine::crash;
use campanile_model::clock::{Clock, Timestamp};
use campanile_store::backup::{self, Snapshot};
use campanile_store::{DatabaseUrl, Db, PartialFile, delete_left};

/// How often the progress of a copy is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Args)]
pub(crate) struct Backup {
    /// The file to write, in a folder that exists
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

/// A copy of a database that was written.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct BackupReport {
    file: String,
    /// Everything that was recorded before this instant is in the copy.
    taken_at: Timestamp,
    launches: i64,
    bytes: u64,
    /// How long it took to write and to check the copy.
    seconds: f64,
}

impl Record for BackupReport {}

impl Backup {
    pub async fn run(self, common: &Common, url: &DatabaseUrl) -> Result {
        let database = match url {
            DatabaseUrl::Sqlite(path) => path,
            DatabaseUrl::Postgres(url) => return Err(postgres::backup(url, &self.file)),
        };
        let started = Instant::now();
        let place = backup::place(database, &self.file, self.force)?;
        let db = Db::open_current(url).await?;
        let written = write(&db, &place).await;
        crate::close(&db).await;
        let snapshot = written?;
        common.print(&BackupReport {
            file: place.display().to_string(),
            taken_at: snapshot.taken_at,
            launches: snapshot.launches,
            bytes: snapshot.bytes,
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}

/// Write a copy of `db` to `place`, which appears there when it is complete and checked.
async fn write(db: &Db, place: &Path) -> Result<Snapshot> {
    clean_folder(place);
    let bytes = db.used_bytes().await?;
    backup::check_room(place, bytes)?;
    let copy = PartialFile::create(place).map_err(|error| {
        refused!(
            "{} cannot be written: {error}; check the permissions of its folder",
            place.display()
        )
    })?;
    let taken_at = Clock::system().now();
    let copying = db.copy_to(&copy);
    with_progress(copy.path(), bytes, copying).await?;
    backup::record_backup(&copy, user::actor(), taken_at).await?;
    let snapshot = backup::check(copy.path(), place, true).await?;
    crash::point("after_backup_copy");
    let installed = block_in_place(|| copy.install());
    installed.map_err(|error| failed!("{} cannot be written: {error}", place.display()))?;
    Ok(snapshot)
}

/// Delete what an interrupted backup or restore has left in the folder of `place`, and name it.
pub(super) fn clean_folder(place: &Path) {
    for left in delete_left(place.parent().unwrap_or(place)) {
        print_message!(
            "deleted {}, which an interrupted command had left",
            left.display()
        );
    }
}

/// Wait for `copying`, and show on a terminal how far the file at `path` has grown towards `bytes`.
async fn with_progress<T>(path: &Path, bytes: u64, copying: impl Future<Output = T>) -> T {
    let line = Line::bytes(bytes, "copied");
    let mut copying = std::pin::pin!(copying);
    loop {
        tokio::select! {
            copied = &mut copying => return copied,
            () = tokio::time::sleep(PROGRESS_INTERVAL), if line.is_drawn() => {
                line.set(std::fs::metadata(path).map_or(0, |found| found.len()));
            }
        }
    }
}
