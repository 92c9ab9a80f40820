//! The launch or the run that a person means by an id, which may be short, or that of the other.

use crate::problem::{ErrorCode, Problem};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, RunId, ShortId};
use campanile_model::namespace::Namespace;
use campanile_store::history::{self, DecidedLaunch};
use campanile_store::runs::{self, RunRow};
use campanile_store::{Tx, launch, removed_launches};

type Result<T, E = Problem> = std::result::Result<T, E>;

/// The most launches that an error about a short id lists.
const CANDIDATES_MAX: usize = 5;

fn not_found(message: String) -> Problem {
    Problem::new(ErrorCode::NotFound, message)
}

/// Returns the launch with this id. A run's id stands for its launch.
///
/// With a namespace, only its own launches exist: ids from elsewhere are treated as unknown, and can't make a short id ambiguous.
///
/// # Errors
///
/// Fails if a short id matches no launch on record, or several. Without a namespace, whole ids aren't looked up.
pub async fn launch(tx: &mut Tx, id: &ShortId, namespace: Option<&Namespace>) -> Result<LaunchId> {
    match (id.whole(), namespace) {
        (Some(whole), None) => Ok(whole),
        (Some(whole), Some(namespace)) => {
            let found = launch::with_ids(tx, &[whole]).await?;
            let is_own = found.iter().any(|row| namespace.contains(&row.package));
            is_own
                .then_some(whole)
                .ok_or_else(|| unknown(id, Some(namespace)))
        }
        (None, _) => begins_with(tx, id, namespace).await,
    }
}

/// Returns the launch whose id begins with a short id's digits.
async fn begins_with(tx: &mut Tx, id: &ShortId, namespace: Option<&Namespace>) -> Result<LaunchId> {
    let range = (id.first, id.last);
    let found = launch::ids_between(tx, range, namespace, CANDIDATES_MAX + 1).await?;
    match found.ids[..] {
        _ if found.is_cut && found.ids.len() < 2 => {
            let message = format!("{id} could be one of very many launches");
            Err(Problem::new(ErrorCode::Ambiguous, message).hint("give more digits"))
        }
        [] => Err(unknown(id, namespace)),
        [only] => Ok(only),
        _ => Err(ambiguous(tx, id, &found.ids).await?),
    }
}

/// Returns the error for an id without a launch. It's the same whether the launch doesn't exist or belongs to another namespace.
fn unknown(id: &ShortId, namespace: Option<&Namespace>) -> Problem {
    match (namespace, id.whole()) {
        (Some(namespace), _) => not_found(format!("there is no {id} in the namespace {namespace}")),
        (None, Some(_)) => not_found(format!("there is no launch {id}")),
        (None, None) => not_found(format!("there is no launch whose id begins with {id}")),
    }
    .hint("`campanile launch list` shows the ids")
}

/// Returns the launch with this id and its decision. The error mentions retention as a possible cause.
pub async fn decided(
    tx: &mut Tx,
    id: &ShortId,
    namespace: Option<&Namespace>,
) -> Result<DecidedLaunch> {
    let found = launch(tx, id, namespace).await?;
    if let Some(decided) = history::launch(tx, found).await? {
        return Ok(decided);
    }
    match removed_launch(tx, found, namespace).await? {
        Some(removed) => Err(removed),
        None => Err(unknown(id, namespace)),
    }
}

/// Returns the run with this id. A launch's id stands for its newest run.
///
/// # Errors
///
/// As for [`launch()`], and if the launch has no run.
pub async fn run_id(tx: &mut Tx, id: &ShortId, namespace: Option<&Namespace>) -> Result<RunId> {
    if let Some(number) = id.number {
        return Ok(RunId::of(launch(tx, id, namespace).await?, number));
    }
    let decided = decided(tx, id, namespace).await?;
    let launch = &decided.launch;
    let without_run = || {
        let (id, status) = (launch.id, launch.status);
        not_found(format!("the launch {id} has no run: it is {status}"))
            .hint(format!("`campanile launch show {id}` shows its decision"))
    };
    launch.run_id.0.ok_or_else(without_run)
}

/// Returns the run with this id. The error mentions retention as a possible cause.
pub async fn run(tx: &mut Tx, id: &ShortId, namespace: Option<&Namespace>) -> Result<RunRow> {
    let id = run_id(tx, id, namespace).await?;
    if let Some(run) = runs::find(tx, id).await? {
        return Ok(run);
    }
    let missing =
        not_found(format!("there is no run {id}")).hint("`campanile run list` shows the ids");
    let launch = history::launch(tx, id.launch()).await?;
    let removed = match launch {
        Some(_) => None,
        None => removed_launch(tx, id.launch(), namespace).await?,
    };
    Err(removed.unwrap_or(missing))
}

/// Returns the launch after which a list continues.
///
/// Whole ids only mark a position in the order of ids and aren't looked up: the launch may have been removed since the last page.
pub async fn position(
    tx: &mut Tx,
    id: &ShortId,
    namespace: Option<&Namespace>,
) -> Result<LaunchId> {
    match id.whole() {
        Some(whole) => Ok(whole),
        None => begins_with(tx, id, namespace).await,
    }
}

/// Returns the run after which a list continues, given its id or its launch's id.
pub async fn list_position(
    tx: &mut Tx,
    id: &ShortId,
    namespace: Option<&Namespace>,
) -> Result<RunId> {
    let launch = position(tx, id, namespace).await?;
    Ok(RunId::of(launch, id.number.unwrap_or(1)))
}

/// Returns the error that a short id means several launches, which it lists.
async fn ambiguous(tx: &mut Tx, id: &ShortId, found: &[LaunchId]) -> Result<Problem> {
    let mut rows = launch::with_ids(tx, found).await?;
    rows.sort_unstable_by_key(|row| row.id);
    rows.truncate(CANDIDATES_MAX);
    let lines = rows.iter().map(|row| {
        let (id, slot, schedule, status) = (row.id, row.scheduled_time, &row.schedule, row.status);
        format!("\n  {id}  {slot}  {schedule}  {status}")
    });
    let more = if found.len() > CANDIDATES_MAX {
        "\n  and more"
    } else {
        ""
    };
    let lines: String = lines.collect();
    let message = format!("the ids of several launches begin with {id}:{lines}{more}");
    Ok(Problem::new(ErrorCode::Ambiguous, message)
        .hint("give more digits of the one that you mean"))
}

/// Returns the error for a launch possibly removed by retention, or none if no launch of its day was. Always none within a
/// namespace, as the days count launches of all namespaces.
async fn removed_launch(
    tx: &mut Tx,
    id: LaunchId,
    namespace: Option<&Namespace>,
) -> Result<Option<Problem>> {
    if namespace.is_some() {
        return Ok(None);
    }
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
