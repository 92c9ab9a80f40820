//! `campanile backfill`: look at backfills, follow them, cancel them.

mod progress;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Subcommand;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::schedule::By;
use crate::Common;
use crate::output::{self, Failure};
use campanile_engine::backfill::{self, BackfillError};
use campanile_engine::schedule_admin::{self, ScheduleError};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::BackfillId;
use campanile_store::backfills::{self, LaunchTotals};
use campanile_store::{BackfillStatus, Db, DbError, Tx, hosts, packages, schedules};
use progress::Progress;

/// From one look at a backfill to the next at least.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Looking takes no more than one part of so many of the time: that of a large one counts many launches.
const LOOK_SHARE: u32 = 20;
/// A host that has not been heard of for so long does not serve.
const SILENCE: Duration = Duration::from_secs(60);

#[derive(Subcommand)]
pub(crate) enum Backfill {
    /// The newest backfills, newest first
    List {
        /// How many at most
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
        limit: i64,
    },
    /// One backfill
    Show {
        /// The backfill's id
        id: BackfillId,
        /// Follow it until it is over
        #[arg(long)]
        follow: bool,
    },
    /// End a backfill: launches that have not begun are skipped, those that have go on
    Cancel {
        /// The backfill's id
        id: BackfillId,
        #[command(flatten)]
        by: By,
    },
}

impl Backfill {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        match self {
            Backfill::List { limit } => list(common, limit).await?,
            Backfill::Show { id, follow: false } => show(common, id).await?,
            Backfill::Show { id, follow: true } => {
                let (db, clock) = common.open_with_clock().await?;
                return follow(&db, &clock, id, common.json).await;
            }
            Backfill::Cancel { id, by: By { by } } => cancel(common, id, &by).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A backfill, and what has become of its launches.
struct Seen {
    backfill: backfills::Backfill,
    ends: LaunchTotals,
}

impl Seen {
    async fn of(tx: &mut Tx, id: BackfillId) -> Result<Seen, ScheduleError> {
        let found = backfills::find(tx, id).await?;
        let backfill = found.ok_or(BackfillError::Unknown(id))?;
        let ends = backfills::launch_totals(tx, id).await?;
        Ok(Seen { backfill, ends })
    }

    /// Slots with which nothing more happens.
    fn over(&self) -> i64 {
        self.backfill.launched + self.backfill.slots_skipped - self.ends.unfinished
    }

    fn value(&self) -> Value {
        let Seen { backfill, ends } = self;
        let context = backfill.context.as_deref();
        let context: Option<Value> = context.and_then(|text| serde_json::from_str(text).ok());
        json!({
            "id": backfill.id,
            "schedule": backfill.schedule,
            "status": backfill.status,
            "from": backfill.from,
            "to": backfill.to,
            "spread_ms": backfill.spread_ms,
            "forced": backfill.forced,
            "context": context,
            "slots": backfill.slots,
            "launched": backfill.launched,
            "slots_skipped": backfill.slots_skipped,
            "succeeded": ends.succeeded,
            "failed": ends.failed,
            "cancelled": ends.cancelled,
            "unfinished": ends.unfinished,
            "created_at": backfill.created_at,
            "created_by": backfill.created_by,
            "finished_at": backfill.finished_at,
        })
    }

    /// `done: 9 of 10 slots over, 7 succeeded, 1 failed, 1 left alone, 1 not over`.
    fn text(&self) -> String {
        let Seen { backfill, ends } = self;
        let mut text = format!(
            "{}: {} of {} slots over",
            backfill.status,
            self.over(),
            backfill.slots
        );
        for (count, what) in [
            (ends.succeeded, "succeeded"),
            (ends.failed, "failed"),
            (ends.cancelled, "cancelled"),
            (backfill.slots_skipped, "left alone"),
            (ends.unfinished, "not over"),
        ] {
            if count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text
    }

    fn print(&self, as_json: bool) -> Result<(), Failure> {
        match as_json {
            true => output::json_out(&self.value()),
            false => output::line(&self.text()),
        }
    }

    /// Every slot was launched with success, or left alone.
    fn has_succeeded(&self) -> bool {
        let LaunchTotals {
            failed, cancelled, ..
        } = self.ends;
        self.backfill.status == BackfillStatus::Done && failed + cancelled == 0
    }
}

/// Say that a backfill has begun, and how to follow it.
pub(crate) async fn begun(db: &Db, id: BackfillId, as_json: bool) -> Result<(), Failure> {
    if as_json {
        let mut tx = db.read().await?;
        return Seen::of(&mut tx, id).await?.print(true);
    }
    output::talk(&how_on(id));
    Ok(())
}

fn how_on(id: BackfillId) -> String {
    format!(
        "`campanile backfill show {id} --follow` follows it, `campanile backfill cancel {id}` ends it"
    )
}

/// Follow a backfill until it is over, or until Ctrl-C, which leaves it running.
pub(crate) async fn follow(
    db: &Db,
    clock: &Clock,
    id: BackfillId,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    // From the first moment, and also while the database does not answer.
    let mut interrupt = signal(SignalKind::interrupt())
        .map_err(|error| Failure::failed(format!("signals cannot be received: {error}")))?;
    let mut progress = Progress::new(as_json);
    let seen = tokio::select! {
        seen = until_over(db, clock, id, &mut progress) => Some(seen?),
        _ = interrupt.recv() => None,
    };
    progress.interrupt();
    let Some(seen) = seen else {
        return Err(Failure::failed("the backfill goes on without this command").hint(how_on(id)));
    };
    seen.print(as_json)?;
    Ok(match seen.has_succeeded() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Show how far a backfill has come, and what it waits for, until it is over.
async fn until_over(
    db: &Db,
    clock: &Clock,
    id: BackfillId,
    progress: &mut Progress,
) -> Result<Seen, Failure> {
    let mut waited_for = None;
    loop {
        let begun = Instant::now();
        let mut tx = db.read().await?;
        let seen = Seen::of(&mut tx, id).await?;
        if seen.backfill.status != BackfillStatus::Running {
            return Ok(seen);
        }
        let waits_for = obstacle(&mut tx, &seen.backfill, clock.now()).await?;
        drop(tx);
        progress.show(&seen);
        if let Some(why) = waits_for.as_ref().filter(|_| waits_for != waited_for) {
            progress.interrupt();
            output::talk(why);
        }
        waited_for = waits_for;
        tokio::time::sleep(LOOK_INTERVAL.max(begun.elapsed() * LOOK_SHARE)).await;
    }
}

/// Why a backfill does not go on, if that can be seen.
async fn obstacle(
    tx: &mut Tx,
    backfill: &backfills::Backfill,
    now: Timestamp,
) -> Result<Option<String>, DbError> {
    let heard_of = now.minus(SILENCE);
    let hosts = hosts::live(tx).await?;
    if !hosts.iter().any(|host| host.heartbeat_at >= heard_of) {
        return Ok(Some(
            "no host serves this database: the backfill waits until one does; start `campanile serve`"
                .to_owned(),
        ));
    }
    let says = schedules::revision(tx, backfill.schedule_id, backfill.schedule_revision).await?;
    let Some(says) = says else { return Ok(None) };
    let package = packages::find(tx, &says.package).await?;
    let is_missing = package.is_none_or(|package| package.missing_since.is_some());
    Ok(is_missing.then(|| {
        format!(
            "the package `{0}` is in no live host's folder: the backfill waits until {0}.wasm is back",
            says.package
        )
    }))
}

async fn list(common: &Common, limit: i64) -> Result<(), Failure> {
    let db = common.open().await?;
    let mut tx = db.read().await?;
    let mut all = Vec::new();
    for backfill in backfills::list(&mut tx, limit).await? {
        let ends = backfills::launch_totals(&mut tx, backfill.id).await?;
        all.push(Seen { backfill, ends });
    }
    if common.json {
        return output::json_out(&all.iter().map(Seen::value).collect::<Vec<_>>());
    }
    output::table(
        [
            "BACKFILL", "SCHEDULE", "STATE", "FROM", "TO", "SLOTS", "OVER", "FAILED", "BY",
        ],
        all.into_iter().map(|seen| {
            [
                seen.backfill.id.to_string(),
                seen.backfill.schedule.clone(),
                seen.backfill.status.to_string(),
                seen.backfill.from.to_string(),
                seen.backfill.to.to_string(),
                seen.backfill.slots.to_string(),
                seen.over().to_string(),
                seen.ends.failed.to_string(),
                seen.backfill.created_by,
            ]
        }),
    )
}

async fn show(common: &Common, id: BackfillId) -> Result<(), Failure> {
    let db = common.open().await?;
    let mut tx = db.read().await?;
    let seen = Seen::of(&mut tx, id).await?;
    if common.json {
        return seen.print(true);
    }
    let backfill = &seen.backfill;
    for (key, value) in [
        ("backfill", backfill.id.to_string()),
        ("schedule", backfill.schedule.clone()),
        ("from", backfill.from.to_string()),
        ("to", backfill.to.to_string()),
        (
            "begun",
            format!("{} by {}", backfill.created_at, backfill.created_by),
        ),
        ("finished", output::cell(&backfill.finished_at)),
        ("status", seen.text()),
    ] {
        output::line(&format!(
            "{key:10} {}",
            campanile_model::text::printable(&value)
        ))?;
    }
    Ok(())
}

async fn cancel(common: &Common, id: BackfillId, by: &str) -> Result<(), Failure> {
    let (db, clock) = common.open_with_clock().await?;
    let now = clock.now();
    let skipped =
        schedule_admin::change(&db, async |tx| backfill::cancel(tx, id, by, now).await).await?;
    if common.json {
        let mut tx = db.read().await?;
        return Seen::of(&mut tx, id).await?.print(true);
    }
    output::line(&format!(
        "cancelled backfill {id}: {skipped} launches had not begun"
    ))
}
