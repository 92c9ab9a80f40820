//! `campanile db status`: the migrations, the size of the record, and the launches past their age.

use serde::Serialize;

use super::DbStatus;
use crate::Common;
use crate::output::{self, Record, Result};
use campanile_control::settings::RetentionLimits;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::LaunchId;
use campanile_model::text::size_rounded;
use campanile_store::size::{self, DatabaseSize, PackageSize, TableSize};
use campanile_store::{Db, Tx, removed_launches};

/// So many of the oldest launches are looked at.
const SEARCHED_MAX: i64 = 10_000;
/// So many packages are listed.
const PACKAGES_MAX: i64 = 20;

/// The migrations of a database, its size, and the launches past their age.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct DbReport {
    #[serde(flatten)]
    status: DbStatus,
    /// Null when a migration is missing.
    record: Option<RecordSize>,
}

/// The size of the record.
#[derive(Serialize, schemars::JsonSchema)]
struct RecordSize {
    #[serde(flatten)]
    size: DatabaseSize,
    /// The bytes that tasks of packages have added, the most first; at most 20 packages.
    packages: Vec<PackageSize>,
    /// The slot of the oldest launch.
    oldest_launch: Option<Timestamp>,
    /// No launch that was decided since then has been removed. Null when none was ever removed.
    complete_since: Option<Timestamp>,
    removable: Removable,
}

/// The launches that are past their age.
///
/// The newest launches of each schedule, and those of schedules with the policy `retention`, are counted like all others.
#[derive(Serialize, schemars::JsonSchema)]
struct Removable {
    succeeded: i64,
    /// Failed, unknown, abandoned or cancelled.
    failed: i64,
    skipped: i64,
    /// Whether there may be more: only the oldest 10,000 launches are looked at.
    at_least: bool,
}

/// Print the report; fail when a migration is missing.
pub(super) async fn run(common: &Common, db: &Db) -> Result {
    let status = DbStatus::read(db).await?;
    let limits = common.config()?.retention.limits();
    let record = if status.current {
        Some(RecordSize::read(db, &limits).await?)
    } else {
        None
    };
    crate::close(db).await;
    let report = DbReport { status, record };
    common.print(&report)?;
    output::check(report.status.current)
}

impl RecordSize {
    async fn read(db: &Db, limits: &RetentionLimits) -> Result<RecordSize> {
        let mut tx = db.read_long().await?;
        let newest = removed_launches::newest_day(&mut tx).await?;
        Ok(RecordSize {
            size: size::measure(db, &mut tx).await?,
            packages: size::packages(&mut tx, PACKAGES_MAX).await?,
            oldest_launch: size::oldest_launch(&mut tx).await?,
            complete_since: newest.map(|day| Timestamp::of_day(day + 1)),
            removable: Removable::read(&mut tx, limits, Clock::system().now()).await?,
        })
    }

    /// Returns the lines for people.
    fn lines(&self) -> Vec<String> {
        let bytes = |bytes: i64| size_rounded(bytes.unsigned_abs());
        let mut size = format!("size             {}", bytes(self.size.bytes));
        if let (Some(free), Some(wal)) = (self.size.free_bytes, self.size.wal_bytes) {
            size += &format!(
                ", of which {} are free; write-ahead log {}",
                bytes(free),
                bytes(wal)
            );
        }
        let mut lines = vec![size];
        if let Some(oldest) = self.oldest_launch {
            lines.push(format!("oldest launch    {oldest}"));
        }
        if let Some(since) = self.complete_since {
            lines.push(format!("complete since   {since}"));
        }
        lines.push(format!("past their age   {}", self.removable.text()));
        for PackageSize {
            package,
            bytes: added,
        } in &self.packages
        {
            lines.push(format!("added by tasks   {} of {package}", bytes(*added)));
        }
        lines
    }
}

impl Removable {
    async fn read(tx: &mut Tx, limits: &RetentionLimits, now: Timestamp) -> Result<Removable> {
        let ages = [limits.succeeded, limits.failed, limits.skipped];
        let [succeeded, failed, skipped] = ages.map(|age| age.map(|age| now.minus(age)));
        let until = LaunchId::first_at(now);
        let old = size::old_launches(tx, until, SEARCHED_MAX, succeeded, failed, skipped).await?;
        Ok(Removable {
            succeeded: old.succeeded,
            failed: old.failed,
            skipped: old.skipped,
            at_least: old.searched == SEARCHED_MAX,
        })
    }

    /// Returns `12 succeeded, 0 failed, 3 skipped`.
    fn text(&self) -> String {
        let at_least = if self.at_least { "at least " } else { "" };
        format!(
            "{at_least}{} succeeded, {} failed, {} skipped",
            self.succeeded, self.failed, self.skipped
        )
    }
}

impl Record for TableSize {
    const LIST: &'static str = "table rows size";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "rows" => Some(format!("~{}", self.rows)),
            "size" => Some(size_rounded(self.bytes.unsigned_abs())),
            _ => None,
        }
    }
}

impl Record for DbReport {
    fn print(&self) -> Result {
        self.status.print()?;
        let Some(record) = &self.record else {
            return Ok(());
        };
        output::print_line("")?;
        for line in record.lines() {
            output::print_line(&line)?;
        }
        output::print_line("")?;
        output::print_table(&record.size.tables)?;
        if record.size.estimated {
            output::print_message("the sizes of the tables are estimates; their sum is exact");
        }
        Ok(())
    }
}
