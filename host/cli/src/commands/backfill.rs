//! `campanile backfill`: list, follow and cancel backfills.

mod progress;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::schedule::By;
use crate::output::{self, Failure, Field, Record};
use crate::{Common, Limit};
use campanile_engine::backfill::{self, BackfillError};
use campanile_engine::schedule_admin::{self, ScheduleError};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::BackfillId;
use campanile_store::backfills::{self, Backfill, LaunchTotals};
use campanile_store::{BackfillStatus, Db, DbError, Tx, hosts, packages, schedules};
use progress::Progress;

/// The least time between two reads of a backfill.
const READ_INTERVAL: Duration = Duration::from_millis(500);
/// Reading takes at most one part in so many of the time: a large backfill counts many launches.
const READ_SHARE: u32 = 20;
/// A host whose heartbeat is older than this does not serve.
const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(60);

#[derive(Subcommand)]
pub(crate) enum BackfillCommand {
    /// List the newest backfills, newest first
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Show one backfill
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
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        match self {
            BackfillCommand::List { limit } => list(common, limit.limit).await?,
            BackfillCommand::Show { id, follow: false } => {
                let db = common.open().await?;
                let record = BackfillRecord::read(&mut db.read().await?, id).await?;
                output::show(&record, common.json)?;
            }
            BackfillCommand::Show { id, follow: true } => {
                let (db, clock) = common.open_with_clock().await?;
                return follow(&db, &clock, id, common.json).await;
            }
            BackfillCommand::Cancel { id, by: By { by } } => cancel(common, id, &by).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A backfill, with the number of its launches in each status.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct BackfillRecord {
    id: BackfillId,
    schedule: String,
    status: BackfillStatus,
    /// The first time that may be a slot.
    from: Timestamp,
    /// The last time that may be a slot.
    to: Timestamp,
    /// The least time between two launches.
    spread_ms: i64,
    /// Whether slots that succeeded, or have an unfinished launch, are launched again.
    forced: bool,
    /// The context laid over the schedule's.
    context: Option<Value>,
    slots: i64,
    launched: i64,
    /// Slots that are not launched again.
    slots_skipped: i64,
    #[serde(flatten)]
    ends: LaunchTotals,
    created_at: Timestamp,
    created_by: String,
    finished_at: Option<Timestamp>,
}

impl Record for BackfillRecord {
    fn fields() -> Vec<Field<BackfillRecord>> {
        vec![
            Field::new("id"),
            Field::new("schedule"),
            Field::new("status").only_list(),
            Field::new("from"),
            Field::new("to"),
            Field::new("slots").only_list(),
            Field::new("finished_slots")
                .text(|record: &BackfillRecord| record.finished_slots().to_string())
                .only_list(),
            Field::new("failed").only_list(),
            Field::new("created_by"),
            Field::new("created_at").only_detail(),
            Field::new("finished_at").only_detail(),
            Field::new("status")
                .text(BackfillRecord::text)
                .only_detail(),
        ]
    }
}

impl BackfillRecord {
    async fn read(tx: &mut Tx, id: BackfillId) -> Result<BackfillRecord, ScheduleError> {
        let found = backfills::find(tx, id).await?;
        let backfill = found.ok_or(BackfillError::Unknown(id))?;
        Ok(BackfillRecord::count(tx, &backfill).await?)
    }

    async fn count(tx: &mut Tx, backfill: &Backfill) -> Result<BackfillRecord, DbError> {
        let context = backfill.context.as_deref();
        Ok(BackfillRecord {
            id: backfill.id,
            schedule: backfill.schedule.clone(),
            status: backfill.status,
            from: backfill.from,
            to: backfill.to,
            spread_ms: backfill.spread_ms,
            forced: backfill.forced,
            context: context.and_then(|text| serde_json::from_str(text).ok()),
            slots: backfill.slots,
            launched: backfill.launched,
            slots_skipped: backfill.slots_skipped,
            ends: backfills::launch_totals(tx, backfill.id).await?,
            created_at: backfill.created_at,
            created_by: backfill.created_by.clone(),
            finished_at: backfill.finished_at,
        })
    }

    /// Return the number of slots that are finished or left alone.
    fn finished_slots(&self) -> i64 {
        self.launched + self.slots_skipped - self.ends.unfinished
    }

    /// Return a line such as `done: 9 of 10 slots finished, 7 succeeded, 1 failed, 1 left alone`.
    fn text(&self) -> String {
        let mut text = format!(
            "{}: {} of {} slots finished",
            self.status,
            self.finished_slots(),
            self.slots
        );
        for (count, what) in [
            (self.ends.succeeded, "succeeded"),
            (self.ends.failed, "failed"),
            (self.ends.cancelled, "cancelled"),
            (self.slots_skipped, "left alone"),
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
        self.status == BackfillStatus::Done && self.ends.failed + self.ends.cancelled == 0
    }
}

/// Print that a backfill has started, and how to follow it.
pub(crate) async fn print_started(db: &Db, id: BackfillId, as_json: bool) -> Result<(), Failure> {
    if as_json {
        let record = BackfillRecord::read(&mut db.read().await?, id).await?;
        return output::json_out(&record);
    }
    output::talk(&next_commands(id));
    Ok(())
}

fn next_commands(id: BackfillId) -> String {
    format!(
        "`campanile backfill show {id} --follow` follows it, `campanile backfill cancel {id}` cancels it"
    )
}

/// Follow a backfill until it ends, or until Ctrl-C, which does not stop the backfill.
pub(crate) async fn follow(
    db: &Db,
    clock: &Clock,
    id: BackfillId,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    // Ctrl-C must also end this command while the database does not answer.
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| Failure::failed(format!("signals cannot be received: {error}")))?;
    let mut progress = Progress::new(as_json);
    let record = tokio::select! {
        record = until_finished(db, clock, id, &mut progress) => Some(record?),
        _ = interrupt.recv() => None,
    };
    progress.interrupt();
    let Some(record) = record else {
        return Err(
            Failure::failed("the backfill continues without this command").hint(next_commands(id)),
        );
    };
    output::report(&record, &record.text(), as_json)?;
    Ok(output::exit_code(record.has_succeeded()))
}

/// Show the progress of a backfill, and what it waits for, until it ends.
async fn until_finished(
    db: &Db,
    clock: &Clock,
    id: BackfillId,
    progress: &mut Progress,
) -> Result<BackfillRecord, Failure> {
    let mut last_obstacle = None;
    loop {
        let started = Instant::now();
        let mut tx = db.read().await?;
        let found = backfills::find(&mut tx, id).await?;
        let backfill = found.ok_or(ScheduleError::from(BackfillError::Unknown(id)))?;
        let record = BackfillRecord::count(&mut tx, &backfill).await?;
        if record.status != BackfillStatus::Running {
            return Ok(record);
        }
        let obstacle = obstacle(&mut tx, &backfill, clock.now()).await?;
        drop(tx);
        progress.show(&record);
        if let Some(why) = obstacle.as_ref().filter(|_| obstacle != last_obstacle) {
            progress.interrupt();
            output::talk(why);
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
    let oldest = now.minus(HEARTBEAT_AGE_MAX);
    let hosts = hosts::live(tx).await?;
    if !hosts.iter().any(|host| host.heartbeat_at >= oldest) {
        return Ok(Some(
            "no host serves this database, so the backfill waits; start `campanile serve`"
                .to_owned(),
        ));
    }
    let definition =
        schedules::revision(tx, backfill.schedule_id, backfill.schedule_revision).await?;
    let Some(definition) = definition else {
        return Ok(None);
    };
    let package = packages::find(tx, &definition.package).await?;
    let is_missing = package.is_none_or(|package| package.missing_since.is_some());
    Ok(is_missing.then(|| {
        format!(
            "no live host has the package `{0}`: the backfill waits until {0}.wasm is back",
            definition.package
        )
    }))
}

async fn list(common: &Common, limit: i64) -> Result<(), Failure> {
    let db = common.open().await?;
    let mut tx = db.read().await?;
    let mut records = Vec::new();
    for backfill in backfills::list(&mut tx, limit).await? {
        records.push(BackfillRecord::count(&mut tx, &backfill).await?);
    }
    output::list(&records, common.json)
}

async fn cancel(common: &Common, id: BackfillId, by: &str) -> Result<(), Failure> {
    let (db, clock) = common.open_with_clock().await?;
    let now = clock.now();
    let skipped =
        schedule_admin::change(&db, async |tx| backfill::cancel(tx, id, by, now).await).await?;
    let record = BackfillRecord::read(&mut db.read().await?, id).await?;
    let text = format!("cancelled backfill {id}: {skipped} launches had not started");
    output::report(&record, &text, common.json)
}
