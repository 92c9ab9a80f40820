//! The launch or the run that a person means by an id, which may be short, or that of the other.

use crate::problem::{ErrorCode, Problem};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, RunId, ShortId};
use campanile_store::history::{self, DecidedLaunch};
use campanile_store::runs::{self, RunRow};
use campanile_store::{Tx, launches, removed_launches};

type Result<T, E = Problem> = std::result::Result<T, E>;

/// The most launches that an error about a short id lists.
const CANDIDATES_MAX: i64 = 5;

fn not_found(message: String) -> Problem {
    Problem::new(ErrorCode::NotFound, message)
}

/// Return the launch that an id means. That of a run means its launch.
///
/// # Errors
///
/// When no launch on record, or more than one, begins with a short id. A whole id is not looked up.
pub async fn launch(tx: &mut Tx, id: &ShortId) -> Result<LaunchId> {
    if let Some(whole) = id.whole() {
        return Ok(whole);
    }
    let found = launches::ids_between(tx, id.first, id.last, CANDIDATES_MAX + 1).await?;
    match found[..] {
        [] => Err(
            not_found(format!("there is no launch whose id begins with {id}"))
                .hint("`campanile launch list` shows the ids"),
        ),
        [only] => Ok(only),
        _ => Err(ambiguous(tx, id, &found).await?),
    }
}

/// Return the launch of that id with its decision; the error says when retention may have removed it.
pub async fn decided(tx: &mut Tx, id: &ShortId) -> Result<DecidedLaunch> {
    let id = launch(tx, id).await?;
    if let Some(decided) = history::launch(tx, id).await? {
        return Ok(decided);
    }
    let missing =
        not_found(format!("there is no launch {id}")).hint("`campanile launch list` shows the ids");
    Err(removed_launch(tx, id).await?.unwrap_or(missing))
}

/// Return the run that an id means. That of a launch means its newest run.
///
/// # Errors
///
/// As [`launch`], and when a launch has no run.
pub async fn run_id(tx: &mut Tx, id: &ShortId) -> Result<RunId> {
    if let Some(number) = id.number {
        return Ok(RunId::of(launch(tx, id).await?, number));
    }
    let decided = decided(tx, id).await?;
    let launch = &decided.launch;
    let without_run = || {
        let (id, status) = (launch.id, launch.status);
        not_found(format!("the launch {id} has no run: it is {status}"))
            .hint(format!("`campanile launch show {id}` shows its decision"))
    };
    launch.run_id.0.ok_or_else(without_run)
}

/// Return the run that an id means; the error says when retention may have removed it.
pub async fn run(tx: &mut Tx, id: &ShortId) -> Result<RunRow> {
    let id = run_id(tx, id).await?;
    if let Some(run) = runs::find(tx, id).await? {
        return Ok(run);
    }
    let missing =
        not_found(format!("there is no run {id}")).hint("`campanile run list` shows the ids");
    let launch = history::launch(tx, id.launch()).await?;
    let removed = match launch {
        Some(_) => None,
        None => removed_launch(tx, id.launch()).await?,
    };
    Err(removed.unwrap_or(missing))
}

/// Return the run after which a list continues, by its id or by the id of its launch.
pub async fn list_position(tx: &mut Tx, id: &ShortId) -> Result<RunId> {
    let launch = launch(tx, id).await?;
    Ok(RunId::of(launch, id.number.unwrap_or(1)))
}

/// Return the error that a short id means several launches, which it lists.
async fn ambiguous(tx: &mut Tx, id: &ShortId, found: &[LaunchId]) -> Result<Problem> {
    let mut rows = launches::with_ids(tx, found).await?;
    rows.sort_unstable_by_key(|row| row.id);
    rows.truncate(CANDIDATES_MAX as usize);
    let lines = rows.iter().map(|row| {
        let (id, slot, schedule, status) = (row.id, row.scheduled_time, &row.schedule, row.status);
        format!("\n  {id}  {slot}  {schedule}  {status}")
    });
    let more = match found.len() as i64 > CANDIDATES_MAX {
        true => "\n  and more",
        false => "",
    };
    let lines: String = lines.collect();
    let message = format!("the ids of several launches begin with {id}:{lines}{more}");
    Ok(Problem::new(ErrorCode::Ambiguous, message)
        .hint("give more digits of the one that you mean"))
}

/// Return the error that retention may have removed the launch `id`; none when no launch of its day was removed.
async fn removed_launch(tx: &mut Tx, id: LaunchId) -> Result<Option<Problem>> {
    let day = id.slot().day();
    let removed = removed_launches::of_all(tx, day).await?;
    Ok(removed.map(|removed| {
        let launches = match removed.launches {
            1 => "1 launch".to_owned(),
            n => format!("{n} launches"),
        };
        not_found(format!(
            "the launch {id} is not on record: retention has removed {launches} of {}, the last at {}",
            Timestamp::of_day(day).date_text(),
            removed.removed_at
        ))
        .hint("`campanile stats` counts removed launches; `[retention]` in the configuration sets their ages")
    }))
}
