//! `campanile db restore`: put a copy in the place of a SQLite database.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use tokio::task::block_in_place;

use super::backup::clean_folder;
use super::postgres;
use crate::output::{ErrorCode, Record, Result, print_message, refused};
use crate::{Common, user};
use campanile_control::admin::schedule_admin::{self, SkippedMissed};
use campanile_engine::crash;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::text::counted;
use campanile_store::backup::{self, SUBJECT, Snapshot};
use campanile_store::events::{self, EventKind};
use campanile_store::restore::RestoreTarget;
use campanile_store::{DatabaseUrl, Db, PartialFile};

#[derive(Args)]
pub(crate) struct Restore {
    /// The copy, which `db backup` wrote
    file: PathBuf,
    /// Replace the database if it exists; it is kept beside the new one, under a name with the time
    #[arg(long)]
    force: bool,
    /// Launch nothing that was due since the copy was made: skip the slots, abandon the launches that had not ended, cancel the backfills
    #[arg(long)]
    skip_missed: bool,
}

/// A database that was restored.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct RestoreReport {
    database: String,
    file: String,
    /// The instant of the backup. Later rows are not in the database.
    taken_at: Timestamp,
    launches: i64,
    bytes: u64,
    /// Where the replaced database is now; null when there was none.
    kept: Option<String>,
    /// The numbers of `--skip-missed`; null without it.
    skipped: Option<SkippedMissed>,
}

impl Record for RestoreReport {
    const DETAIL: &'static str = "database file taken_at launches bytes kept skipped";

    fn text(&self, key: &str) -> Option<String> {
        let skipped = self.skipped.filter(|_| key == "skipped")?;
        Some(format!(
            "slots of {}, {}, {}",
            counted(skipped.schedules, "schedule"),
            counted(skipped.launches, "launch"),
            counted(skipped.backfills, "backfill")
        ))
    }
}

impl Restore {
    pub async fn run(self, common: &Common, url: &DatabaseUrl) -> Result {
        let database = match url {
            DatabaseUrl::Sqlite(path) => path,
            DatabaseUrl::Postgres(url) => return Err(postgres::restore(url, &self.file)),
        };
        backup::check_source(database, &self.file)?;
        let target = RestoreTarget::lock(database)?;
        if target.path().exists() && !self.force {
            return Err(refused!(
                "{} exists; replace it with --force, which keeps it under another name",
                database.display()
            )
            .code(ErrorCode::Conflict));
        }
        let report = self.replace(target).await?;
        warn(&report);
        common.print(&report)
    }

    async fn replace(&self, mut target: RestoreTarget) -> Result<RestoreReport> {
        let now = Clock::system().now();
        let bytes = backup::check(&self.file, &self.file, false).await?.bytes;
        clean_folder(target.path());
        backup::check_room(target.path(), bytes)?;
        let copy = block_in_place(|| target.create_from(&self.file))?;
        let snapshot = backup::check(copy.path(), &self.file, true).await?;
        let skipped = self.prepare(&copy, &snapshot, now).await?;
        crash::point("after_restore_copy");
        target.take_over().await?;
        let kept = block_in_place(|| target.keep(now))?;
        crash::point("before_restore_rename");
        block_in_place(|| target.install(copy))?;
        crash::point("after_restore_rename");
        Ok(RestoreReport {
            database: target.path().display().to_string(),
            file: self.file.display().to_string(),
            taken_at: snapshot.taken_at,
            launches: snapshot.launches,
            bytes,
            kept: kept.map(|path| path.display().to_string()),
            skipped,
        })
    }

    /// Record the restore as an event in the copy. With `--skip-missed`, also skip the missed slots and end the unfinished
    /// launches. Return the numbers of these.
    async fn prepare(
        &self,
        copy: &PartialFile,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Result<Option<SkippedMissed>> {
        let db = Db::open(&DatabaseUrl::Sqlite(copy.path().to_owned())).await?;
        let db = db.acting_as(user::actor());
        let mut tx = db.write().await?;
        let (skipped, since) = if self.skip_missed {
            (
                Some(schedule_admin::skip_missed(&mut tx, now).await?),
                "nothing that was due since then is launched",
            )
        } else {
            (None, "slots since then are decided as missed")
        };
        let (file, taken_at) = (self.file.display(), snapshot.taken_at);
        let detail = format!("from {file}, the record of {taken_at}; {since}");
        events::record(&mut tx, now, EventKind::DatabaseRestored, SUBJECT, &detail).await?;
        tx.commit().await?;
        db.close().await;
        Ok(skipped)
    }
}

/// Print the warning about the time since the backup.
fn warn(report: &RestoreReport) {
    let taken_at = report.taken_at;
    match report.skipped {
        Some(_) => print_message!(
            "warning: this record ends at {taken_at}; nothing that was due since then is launched"
        ),
        None => print_message!(
            "warning: this record ends at {taken_at}; slots since then count as missed when a host starts, and launches that had not ended are recovered; launches that ran since then may run again"
        ),
    }
}
