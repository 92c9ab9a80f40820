//! `campanile backfill`: list, follow and cancel backfills.

use std::time::{Duration, Instant};

use clap::Subcommand;
use tokio::signal::unix::SignalKind;

use super::follow::is_served;
use super::schedule::By;
use crate::output::{self, Failure, Record, Result};
use crate::progress::Line;
use crate::{Common, Limit, signals, watch};
use campanile_control::orders::backfills::CancelBackfill;
use campanile_control::questions::schedules::{GetBackfill, ListBackfills};
use campanile_control::records::backfill::{BackfillRecord, CancelledBackfill};
use campanile_model::clock::Timestamp;
use campanile_model::ids::BackfillId;
use campanile_model::text::counted;
use campanile_store::backfills::Backfill;
use campanile_store::{BackfillStatus, DbError, Tx, packages, schedules};

/// The least time between two reads of a backfill.
const READ_INTERVAL: Duration = Duration::from_millis(500);
/// The least time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);
/// The pause after a reading is this many times as long as the reading, because a large backfill counts many launches.
const READ_SHARE: u32 = 20;

#[derive(Subcommand)]
pub(crate) enum BackfillCommand {
    /// List the newest backfills, newest first
    #[command(arg = watch::arg())]
    List {
        #[command(flatten)]
        question: ListBackfills,
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
            BackfillCommand::List { question, limit } => {
                common.print_some(question, limit.limit).await
            }
            BackfillCommand::Show { id, follow: false } => {
                common.print_answer(&id.to_string(), &GetBackfill {}).await
            }
            BackfillCommand::Show { id, follow: true } => follow(common, id).await,
            BackfillCommand::Cancel { id, by: By { by } } => {
                let order = CancelBackfill::default();
                print_cancelled(common, &common.order(&id.to_string(), &order, &*by).await?)
            }
        }
    }
}

fn print_cancelled(common: &Common, cancelled: &CancelledBackfill) -> Result {
    let (id, skipped) = (cancelled.record.row.id, cancelled.launches_skipped);
    let text = format!(
        "cancelled backfill {id}: {} had not started",
        counted(skipped, "launch")
    );
    common.print_report(cancelled, &text)
}

impl Record for BackfillRecord {
    const LIST: &'static str = "id schedule status from to slots slots_finished failed created_by";
    const DECIDING: &'static str = "schedule status slots slots_finished failed";
    const DETAIL: &'static str = "id schedule from to created_by created_at finished_at progress";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "slots_finished" => Some(slots_finished(self).to_string()),
            "progress" => Some(progress_text(self)),
            _ => None,
        }
    }
}

/// Returns the number of slots finished or left alone.
pub(super) fn slots_finished(record: &BackfillRecord) -> i64 {
    let over = record.row.launched.saturating_add(record.row.slots_skipped);
    over.saturating_sub(record.ends.unfinished)
}

/// Returns a line such as `done: 9 of 10 slots finished, 7 succeeded, 1 failed, 1 left alone`.
fn progress_text(record: &BackfillRecord) -> String {
    let BackfillRecord { row, ends } = record;
    let mut text = format!(
        "{}: {} of {} finished",
        row.status,
        slots_finished(record),
        counted(row.slots, "slot")
    );
    for (count, what) in [
        (ends.succeeded, "succeeded"),
        (ends.failed, "failed"),
        (ends.cancelled, "cancelled"),
        (row.slots_skipped, "left alone"),
        (ends.unfinished, "unfinished"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text
}

/// Returns whether every slot was left alone or has a launch that succeeded.
fn has_succeeded(record: &BackfillRecord) -> bool {
    record.row.status == BackfillStatus::Done && record.ends.failed + record.ends.cancelled == 0
}

/// Returns the commands that follow a backfill, or cancel it.
pub(crate) fn next_commands(id: BackfillId) -> String {
    format!(
        "`campanile backfill show {id} --follow` follows it, `campanile backfill cancel {id}` cancels it"
    )
}

/// Follow a backfill until it ends, or until Ctrl-C, which does not stop the backfill.
pub(crate) async fn follow(common: &Common, id: BackfillId) -> Result {
    // Ctrl-C must also end this command while the database does not answer.
    let mut interrupt = signals::listen(SignalKind::interrupt())?;
    let mut progress = Progress::new(common.json);
    let record = tokio::select! {
        record = until_finished(common, id, &mut progress) => Some(record?),
        _ = interrupt.recv() => None,
    };
    // The bar disappears before the answer.
    drop(progress);
    let Some(record) = record else {
        return Err(
            Failure::failed("the backfill continues without this command").hint(next_commands(id)),
        );
    };
    common.print_report(&record, &progress_text(&record))?;
    output::check(has_succeeded(&record))
}

/// Show the progress of a backfill, and the reason of each pause, until it ends.
async fn until_finished(
    common: &Common,
    id: BackfillId,
    progress: &mut Progress,
) -> Result<BackfillRecord> {
    let mut last_obstacle = None;
    loop {
        let started = Instant::now();
        let source = common.source().await?;
        let record = source.page(&id.to_string(), &GetBackfill {}).await?.answer;
        if record.row.status != BackfillStatus::Running {
            return Ok(record);
        }
        let now = source.now;
        let obstacle = match source.record().await? {
            // The host behind an API serves.
            None => None,
            Some(mut tx) => obstacle(&mut tx, &record.row, now).await?,
        };
        progress.show(&record);
        if let Some(why) = obstacle.as_ref().filter(|_| obstacle != last_obstacle) {
            output::print_message(why);
        }
        last_obstacle = obstacle;
        tokio::time::sleep(READ_INTERVAL.max(started.elapsed() * READ_SHARE)).await;
    }
}

/// The progress of a backfill on stderr: a bar on a terminal, a line every few seconds elsewhere.
struct Progress {
    is_quiet: bool,
    /// The bar of a terminal.
    bar: Line,
    /// Elsewhere: the last line, and when it was printed.
    last: Option<(Instant, String)>,
}

impl Progress {
    fn new(is_quiet: bool) -> Progress {
        Progress {
            is_quiet,
            bar: Line::parts(0),
            last: None,
        }
    }

    fn show(&mut self, record: &BackfillRecord) {
        let count = |slots: i64| u64::try_from(slots).unwrap_or_default();
        let text = progress_text(record);
        if self.bar.is_drawn() {
            self.bar.grow(count(record.row.slots));
            self.bar.set(count(slots_finished(record)));
            self.bar.say(&text);
        } else if !self.is_quiet {
            let is_due = self.last.as_ref().is_none_or(|(printed_at, printed)| {
                printed_at.elapsed() >= LINE_INTERVAL && *printed != text
            });
            if is_due {
                output::print_message(&text);
                self.last = Some((Instant::now(), text));
            }
        }
    }
}

/// Returns why a backfill makes no progress, if the database shows it.
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
