//! A backfill as a record.

use serde::{Deserialize, Serialize};

use crate::admin::backfill::{self, SlotSurvey};
use crate::admin::schedule_admin::ScheduleError;
use campanile_model::ids::BackfillId;
use campanile_model::read_by_parts;
use campanile_store::backfills::{self, Backfill, LaunchTotals};
use campanile_store::{DbError, Tx};

/// More slots than this need a confirmation: they may be a mistake.
pub const SLOTS_UNCONFIRMED_MAX: u64 = 100_000;

/// A backfill, with the number of its launches in each status.
#[derive(Serialize, schemars::JsonSchema)]
pub struct BackfillRecord {
    #[serde(flatten)]
    pub row: Backfill,
    #[serde(flatten)]
    pub ends: LaunchTotals,
}

read_by_parts!(BackfillRecord { row, ends });

/// The result of `backfill cancel`.
#[derive(Serialize, schemars::JsonSchema)]
pub struct CancelledBackfill {
    #[serde(flatten)]
    pub record: BackfillRecord,
    /// The launches that had not started, and are skipped.
    pub launches_skipped: u64,
}

read_by_parts!(CancelledBackfill { record } { launches_skipped: u64 });

/// The result of `schedule backfill --dry-run`.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct SurveyReport {
    pub schedule: String,
    #[serde(flatten)]
    pub survey: SlotSurvey,
}

impl BackfillRecord {
    /// Read the backfill `id`, and count its launches.
    pub async fn read(tx: &mut Tx, id: BackfillId) -> Result<BackfillRecord, ScheduleError> {
        let row = backfill::find(tx, id).await?;
        Ok(BackfillRecord::count(tx, row).await?)
    }

    /// Returns the newest `limit` backfills before `after`, newest first; with `pattern` those of schedules whose names match it.
    pub async fn list(
        tx: &mut Tx,
        pattern: Option<&str>,
        after: Option<BackfillId>,
        limit: i64,
    ) -> Result<Vec<BackfillRecord>, DbError> {
        let mut records = Vec::new();
        for row in backfills::list(tx, pattern, after, limit).await? {
            records.push(BackfillRecord::count(tx, row).await?);
        }
        Ok(records)
    }

    async fn count(tx: &mut Tx, row: Backfill) -> Result<BackfillRecord, DbError> {
        let ends = backfills::launch_totals(tx, row.id).await?;
        Ok(BackfillRecord { row, ends })
    }
}
