//! `campanile backfill`: list, follow and cancel backfills.

mod progress;

use std::time::{Duration, Instant};

use clap::Subcommand;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::follow::is_served;
use super::schedule::By;
use crate::output::{self, Failure, Record, Result, failed};
use crate::{Common, Limit, watch};
use campanile_engine::backfill;
use campanile_engine::schedule_admin::ScheduleError;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::BackfillId;
use campanile_model::text::counted;
use campanile_store::backfills::{self, Backfill, LaunchTotals};
use campanile_store::{BackfillStatus, Db, DbError, Tx, packages, schedules};
use progress::Progress;

/// The least time between two reads of a backfill.
const READ_INTERVAL: Duration = Duration::from_millis(500);
/// Reading takes at most one part in so many of the time: a large backfill counts many launches.
const READ_SHARE: u32 = 20;

#[derive(Subcommand)]
pub(crate) enum BackfillCommand {
    /// List the newest backfills, newest first
    #[command(arg = watch::arg())]
    List {
        /// List those after this one of another list
        #[arg(long, value_name = "ID")]
        after: Option<BackfillId>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show one backfill
    #[command(arg = watch::arg().conflicts_with("follow"))]
    Show {
        /// The backfill's id
        id: BackfillId,
        /// Follow it until it ends
        #[arg(long)]
        follow: bool,
    },
    /// Cancel a backfill: launches that have not started are skipped, the others continue
    Cancel {
        /// The backfill's id
        id: BackfillId,
        #[command(flatten)]
        by: By,
    },
}

impl BackfillCommand {
    pub async fn run(self, common: &Common) -> Result {
        match self {
            BackfillCommand::List { after, limit } => {
                let mut tx = common.read().await?;
                let mut records = Vec::new();
                for row in backfills::list(&mut tx, after, limit.limit).await? {
                    records.push(BackfillRecord::count(&mut tx, row).await?);
                }
                common.print_page(&records, limit.limit, |record| record.row.id)
            }
            BackfillCommand::Show { id, follow: false } => {
                common.print(&BackfillRecord::read(&mut common.read().await?, id).await?)
            }
            BackfillCommand::Show { id, follow: true } => follow(common, id).await,
            BackfillCommand::Cancel { id, by: By { by } } => {
                let cancel = async |tx: &mut Tx, now| {
                    let skipped = backfill::cancel(tx, id, &by, now).await?;
                    Ok((skipped, BackfillRecord::read(tx, id).await?))
                };
                let (skipped, record) = common.change(cancel).await?;
                let text = format!(
                    "cancelled backfill {id}: {} had not started",
                    counted(skipped, "launch")
                );
                common.print_report(&record, &text)
            }
        }
    }
}

/// A backfill, with the number of its launches in each status.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct BackfillRecord {
    #[serde(flatten)]
    row: Backfill,
    #[serde(flatten)]
    ends: LaunchTotals,
}

impl Record for BackfillRecord {
    const LIST: &'static str = "id schedule status from to slots slots_finished failed created_by";
    const DETAIL: &'static str = "id schedule from to created_by created_at finished_at progress";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "slots_finished" => Some(self.slots_finished().to_string()),
            "progress" => Some(self.progress()),
            _ => None,
        }
    }
}

impl BackfillRecord {
    pub(crate) async fn read(tx: &mut Tx, id: BackfillId) -> Result<BackfillRecord, ScheduleError> {
        let row = backfill::find(tx, id).await?;
        Ok(BackfillRecord::count(tx, row).await?)
    }

    async fn count(tx: &mut Tx, row: Backfill) -> Result<BackfillRecord, DbError> {
        let ends = backfills::launch_totals(tx, row.id).await?;
        Ok(BackfillRecord { row, ends })
    }

    /// Return the number of slots that are finished or left alone.
    fn slots_finished(&self) -> i64 {
        self.row.launched + self.row.slots_skipped - self.ends.unfinished
    }

    /// Return a line such as `done: 9 of 10 slots finished, 7 succeeded, 1 failed, 1 left alone`.
    fn progress(&self) -> String {
        let Backfill { status, slots, .. } = &self.row;
        let mut text = format!(
            "{status}: {} of {} finished",
            self.slots_finished(),
            counted(*slots, "slot")
        );
        for (count, what) in [
            (self.ends.succeeded, "succeeded"),
            (self.ends.failed, "failed"),
            (self.ends.cancelled, "cancelled"),
            (self.row.slots_skipped, "left alone"),
            (self.ends.unfinished, "unfinished"),
        ] {
            if count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text
    }

    /// Return whether every slot was left alone or has a launch that succeeded.
    fn has_succeeded(&self) -> bool {
        self.row.status == BackfillStatus::Done && self.ends.failed + self.ends.cancelled == 0
    }
}

/// Return the commands that follow a backfill, or cancel it.
pub(crate) fn next_commands(id: BackfillId) -> String {
    format!(
        "`campanile backfill show {id} --follow` follows it, `campanile backfill cancel {id}` cancels it"
    )
}

/// Follow a backfill until it ends, or until Ctrl-C, which does not stop the backfill.
pub(crate) async fn follow(common: &Common, id: BackfillId) -> Result {
    let (db, clock) = common.open_with_clock().await?;
    // Ctrl-C must also end this command while the database does not answer.
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| failed!("signals cannot be received: {error}"))?;
    let mut progress = Progress::new(common.json);
    let record = tokio::select! {
        record = until_finished(&db, &clock, id, &mut progress) => Some(record?),
        _ = interrupt.recv() => None,
    };
    // The bar disappears before the answer.
    drop(progress);
    let Some(record) = record else {
        return Err(
            Failure::failed("the backfill continues without this command").hint(next_commands(id)),
        );
    };
    common.print_report(&record, &record.progress())?;
    output::check(record.has_succeeded())
}

/// Show the progress of a backfill, and the reason of each pause, until it ends.
async fn until_finished(
    db: &Db,
    clock: &Clock,
    id: BackfillId,
    progress: &mut Progress,
) -> Result<BackfillRecord> {
    let mut last_obstacle = None;
    loop {
        let started = Instant::now();
        let mut tx = db.read().await?;
        let record = BackfillRecord::read(&mut tx, id).await?;
        if record.row.status != BackfillStatus::Running {
            return Ok(record);
        }
        let obstacle = obstacle(&mut tx, &record.row, clock.now()).await?;
        drop(tx);
        progress.show(&record);
        if let Some(why) = obstacle.as_ref().filter(|_| obstacle != last_obstacle) {
            output::print_message(why);
        }
        last_obstacle = obstacle;
        tokio::time::sleep(READ_INTERVAL.max(started.elapsed() * READ_SHARE)).await;
    }
}

/// Return why a backfill makes no progress, if the database shows it.
async fn obstacle(
    tx: &mut Tx,
    backfill: &Backfill,
    now: Timestamp,
) -> Result<Option<String>, DbError> {
    if !is_served(tx, now).await? {
        return Ok(Some(
            "no host serves this database, so the backfill waits; start `campanile serve`"
                .to_owned(),
        ));
    }
    let (schedule, revision) = (backfill.schedule_id, backfill.schedule_revision);
    let Some(definition) = schedules::revision(tx, schedule, revision).await? else {
        return Ok(None);
    };
    let name = &definition.package;
    let package = packages::find(tx, name).await?;
    let is_missing = package.is_none_or(|package| package.missing_since.is_some());
    let why = || {
        format!(
            "no live host has the package `{name}`: the backfill waits until {name}.wasm is back"
        )
    };
    Ok(is_missing.then(why))
}
