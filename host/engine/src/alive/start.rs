//! The start and the end of a host's incarnation.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::alive::lease_table::held_until;
use crate::alive::record_host::record_host;
use crate::ctx::Ctx;
use crate::decide::next_slots::correct_all;
use crate::error::{EngineError, Result};
use crate::recover::{forget_packages, hand_back};
use crate::service::record_event;
use campanile_control::admin::schedule_admin;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchKind, RunId};
use campanile_schedule::rule::{Rule, tzdata_version};
use campanile_store::events::{self, EventKind, NewEvent};
use campanile_store::launch::{self, NewLaunch, RecoveryAction, RecoveryDecision};
use campanile_store::{Db, DbError, HostLock, Origin, Tx, chores, hosts, packages, schedules};

/// Hosts on one machine that may be named after the machine.
const SAME_NAME_MAX: usize = 64;

/// How long a name may be locked before that is believed: a database server takes a moment to notice that the process
/// which held the lock is dead, and this process may be its restart.
const NAME_WAIT: Duration = Duration::from_secs(2);
const NAME_PAUSE: Duration = Duration::from_millis(50);

/// How often to look for a sign of life from the process holding the name.
const DEAD_SESSION_PAUSE: Duration = Duration::from_millis(250);

/// After this process has locked a name, how long a host recorded as alive has to prove it. It may have lost the lock along with a
/// broken connection, and checks its lock every second.
const SIGN_OF_LIFE_WAIT: Duration = Duration::from_secs(3);

/// The reason of a launch at a start that had not ended when the host started again.
const SUPERSEDED: &str = "superseded";

/// Why a host cannot begin to serve.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "another campanile already serves {0}; a SQLite file is served by one host at a time, use Postgres for several"
    )]
    FileIsServed(String),
    #[error(
        "a host named `{0}` already serves this database, and its heartbeat is recent; give this one another name with `--name` or `name` under [host], or stop the other one"
    )]
    NameIsTaken(String),
    #[error(transparent)]
    Db(#[from] DbError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A host name free for this process.
pub(crate) struct FreeName {
    pub(crate) name: String,
    pub(crate) lock: HostLock,
    /// The last sign of life from the name's former process. Nothing newer may be on record when this one takes the name.
    pub(crate) last: Option<SignOfLife>,
}

/// A heartbeat and the end of its lease.
pub(crate) type SignOfLife = (Timestamp, Timestamp);

/// Records this incarnation of the host, marking earlier ones of the same name as dead. `last` is the former one's last sign of
/// life.
pub(crate) async fn register(
    ctx: &Ctx,
    last: Option<SignOfLife>,
    now: Timestamp,
) -> Result<(), StartError> {
    let is_passing = |error: &StartError| match error {
        // Two processes took the name at the same moment, and the other one got recorded.
        StartError::Engine(EngineError::Db(DbError::Conflict(_))) => true,
        // A lost session of an earlier incarnation may still hold locks.
        StartError::Engine(error) => error.is_transient(),
        _ => false,
    };
    campanile_store::retry(is_passing, || try_register(ctx, last, now)).await
}

async fn try_register(
    ctx: &Ctx,
    last: Option<SignOfLife>,
    now: Timestamp,
) -> Result<(), StartError> {
    let registered = take_name(ctx, last, now).await?;
    let Registered {
        number,
        dead,
        drained_by,
    } = match registered {
        Some(registered) => registered,
        None => return Err(StartError::NameIsTaken(ctx.name.clone())),
    };
    ctx.number.store(number, Ordering::Relaxed);
    ctx.heartbeats.note(now, ctx.settings.lease);
    let until = held_until(ctx.clock.monotonic_at(now), ctx.settings.lease);
    ctx.deliveries.renew(until);
    if let Some(by) = drained_by {
        ctx.claim_gate.close().await;
        tracing::warn!(host = %ctx.name, %by, "this host is drained: it claims nothing until `campanile host drain {} --undo`", ctx.name);
    }
    if dead {
        tracing::warn!(host = %ctx.name, "this host ended without stopping the last time it ran; its runs are recovered now");
    }
    Ok(())
}

/// What a host learns while getting recorded.
struct Registered {
    number: i64,
    /// Whether the name's former process ended without stopping properly.
    dead: bool,
    drained_by: Option<String>,
}

/// Records this process under its name, or returns none if another process shows it's using the name.
async fn take_name(
    ctx: &Ctx,
    last: Option<SignOfLife>,
    now: Timestamp,
) -> Result<Option<Registered>> {
    let mut tx = ctx.db.write().await?;
    hosts::lock_name(&mut tx, &ctx.name).await?;
    let drained_by = async |tx: &mut Tx| -> Result<Option<String>> {
        let host = hosts::with_id(tx, ctx.host).await?;
        Ok(host.and_then(|host| host.drained_by))
    };
    // Already recorded: the reply to an earlier attempt got lost.
    if let Some(number) = hosts::number_of(&mut tx, ctx.host).await? {
        return Ok(Some(Registered {
            number,
            dead: false,
            drained_by: drained_by(&mut tx).await?,
        }));
    }
    let found = hosts::last_sign_of_life(&mut tx, &ctx.name).await?;
    // With SQLite, the file lock alone is proof.
    if ctx.db.url().is_shared() && is_newer(found, last) {
        return Ok(None);
    }
    let dead = hosts::mark_predecessors_dead(&mut tx, &ctx.name, now).await?;
    for earlier in &dead {
        let detail = format!("incarnation {} ended without stopping", earlier.id);
        events::record(&mut tx, now, EventKind::HostDied, &earlier.name, &detail).await?;
    }
    // The earlier incarnation's packages are forgotten once this one has scanned its folder.
    let number = record_host(ctx, &mut tx, now).await?;
    let drained_by = drained_by(&mut tx).await?;
    tx.commit().await?;
    Ok(Some(Registered {
        number,
        dead: !dead.is_empty(),
        drained_by,
    }))
}

/// Pure: whether a process has shown signs of life since `last`.
fn is_newer(found: Option<SignOfLife>, last: Option<SignOfLife>) -> bool {
    let heartbeat = |sign: (Timestamp, Timestamp)| sign.0;
    found.map(heartbeat) > last.map(heartbeat)
}

/// Correct next slots when the time zone database differs from the last host's.
pub(crate) async fn follow_tzdata(ctx: &Ctx, now: Timestamp) -> Result {
    let before = hosts::tzdata_before(&mut ctx.db.read().await?, ctx.host).await?;
    let current = tzdata_version();
    let Some(before) = before.filter(|before| before != current) else {
        return Ok(());
    };
    let moved = correct_all(ctx, now).await?;
    let detail = format!("from {before} to {current}: {moved} next slots moved");
    tracing::info!("the time zone database changed {detail}");
    record_event(ctx, now, EventKind::TzdataChanged, &ctx.name, &detail).await
}

/// Launch the schedules whose rule is `@reboot`, once in this incarnation. The folder must be recorded before.
///
/// Launches of earlier starts that recovery has just opened again are abandoned: a host that dies again and again must
/// not do the work of all its starts at once.
pub(crate) async fn launch_at_start(ctx: &Ctx, now: Timestamp) -> Result {
    let at_start = schedules::at_host_start(&mut ctx.db.read().await?).await?;
    let mut tx = ctx.db.write().await?;
    let mut superseded = Vec::new();
    for (launch_id, schedule, slot) in launch::unclaimed_startups(&mut tx, ctx.host).await? {
        let detail = format!("slot {slot} was abandoned: {SUPERSEDED}");
        let kind = EventKind::LaunchAbandoned;
        let event = NewEvent::of_launch(kind, schedule, launch_id, detail);
        events::record_all(&mut tx, now, &[event]).await?;
        superseded.push(RecoveryDecision {
            launch_id,
            action: RecoveryAction::Abandon(SUPERSEDED),
            not_before: None,
        });
    }
    let why = "a later start took its place";
    launch::recover(&mut tx, ctx.host, &superseded, why, now).await?;
    for name in at_start {
        launch_now(ctx, &mut tx, &name, now).await?;
    }
    Ok(tx.commit().await?)
}

/// Launch a schedule at the start of this host, unless it is paused.
async fn launch_now(ctx: &Ctx, tx: &mut Tx, name: &str, now: Timestamp) -> Result {
    schedules::lock_named(tx, &[name]).await?;
    let Some(schedule) = schedules::find(tx, name).await? else {
        return Ok(());
    };
    let state = &schedule.state;
    let spec = ctx.specs.get(tx, state.id, state.revision).await?;
    let is_launched = |rule: &&Rule| state.enabled && rule.at_host_start();
    let Some(rule) = spec.rule.as_ref().filter(is_launched) else {
        return Ok(());
    };
    let package = packages::find(tx, &schedule.definition.package).await?;
    let launch = NewLaunch {
        proposed: state.origin == Origin::Package,
        decided_by: Some(ctx.host),
        ..schedule_admin::launch_at_once(
            &schedule,
            (rule, &spec.policies),
            package,
            LaunchKind::Startup,
            now,
        )
    };
    schedule_admin::decide_overlaps(tx, state, &spec.policies, vec![launch], now).await?;
    Ok(())
}

/// Forget which packages ended hosts had. This host's folder must be recorded before.
pub(crate) async fn forget_ended_hosts(ctx: &Ctx, now: Timestamp) -> Result {
    let mut tx = ctx.db.write().await?;
    forget_packages(&mut tx, now).await?;
    Ok(tx.commit().await?)
}

/// Ends this incarnation in order. Runs `left` without an end are handed back, for another host to recover.
pub(crate) async fn stop(ctx: &Ctx, left: &[RunId], now: Timestamp) -> Result {
    let handed_back = hand_back(ctx, left, now).await?;
    let mut tx = ctx.db.write().await?;
    chores::release(&mut tx, ctx.host, now).await?;
    tx.commit().await?;
    tracing::info!(host = %ctx.name, handed_back, "stopped");
    Ok(())
}

/// Finds and locks a host name without a living process. Defaults to the machine's name, numbered if taken by another host on it.
///
/// `lease` is how long a host counts as alive without a heartbeat.
pub(crate) async fn free_name(
    db: &Db,
    wanted: Option<&str>,
    lease: Duration,
) -> Result<FreeName, StartError> {
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_string_lossy().into_owned();
    let name = wanted.unwrap_or(&machine);
    wait_for_lock_file(db).await?;
    let until = Instant::now() + NAME_WAIT;
    let mut lock = db.host_lock(name).await?;
    while lock.is_none() && Instant::now() < until {
        tokio::time::sleep(NAME_PAUSE).await;
        lock = db.host_lock(name).await?;
    }
    if !db.url().is_shared() {
        let lock = match lock {
            Some(lock) => Some(lock),
            None => db.lock_of_silent_host().await?,
        };
        // The lock of a file is exact.
        let lock = lock.ok_or_else(|| StartError::FileIsServed(db.url().to_string()))?;
        return Ok(FreeName {
            name: name.to_owned(),
            lock,
            last: None,
        });
    }
    let free = match lock {
        Some(lock) => unless_alive(db, name, lock, SIGN_OF_LIFE_WAIT, lease).await?,
        None if wanted.is_some() => wait_for_silence(db, name, lease).await?,
        None => None,
    };
    if let Some(free) = free {
        return Ok(free);
    }
    if wanted.is_none() {
        for number in 2..=SAME_NAME_MAX {
            let name = format!("{machine}-{number}");
            let Some(lock) = db.host_lock(&name).await? else {
                continue;
            };
            let free = unless_alive(db, &name, lock, SIGN_OF_LIFE_WAIT, lease).await?;
            if let Some(free) = free {
                return Ok(free);
            }
        }
    }
    Err(StartError::NameIsTaken(name.to_owned()))
}

/// Wait for the lock file of a SQLite database that a host serves, when the file was removed: that host creates it again.
async fn wait_for_lock_file(db: &Db) -> Result<(), StartError> {
    let until = Instant::now() + SIGN_OF_LIFE_WAIT;
    while db.lacks_lock_file() && Instant::now() < until {
        if hosts::live(&mut db.read().await?).await?.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(NAME_PAUSE).await;
    }
    Ok(())
}

/// Waits until the process holding the lock on `name` has been silent for a lease. Returns none if it sends a heartbeat.
///
/// The lock belongs to a server session, and a proxy may keep that open long after the process died, so the heartbeat decides. If
/// the process is alive after all, it notices losing its name and stops.
async fn wait_for_silence(
    db: &Db,
    name: &str,
    lease: Duration,
) -> Result<Option<FreeName>, StartError> {
    let before = last_sign_of_life(db, name).await?;
    let wait = until_silent(db, before).await?.max(SIGN_OF_LIFE_WAIT);
    tracing::warn!(
        host = %name,
        "the name of this host is locked: taking it in {:.1} s, unless a host of this name sends a heartbeat",
        wait.as_secs_f64()
    );
    let until = Instant::now() + wait;
    loop {
        tokio::time::sleep(DEAD_SESSION_PAUSE).await;
        if is_newer(last_sign_of_life(db, name).await?, before) {
            return Ok(None);
        }
        if let Some(lock) = db.host_lock(name).await? {
            // The lock was held for long: the host may be alive, and cut off from the database with all its connections.
            return unless_alive(db, name, lock, lease, lease).await;
        }
        if Instant::now() >= until {
            tracing::warn!(host = %name, "the process that has this host's name has been silent for longer than its lease: this one takes the name");
            let lock = db.lock_of_silent_name(name).await?;
            return Ok(lock.map(|lock| FreeName {
                name: name.to_owned(),
                lock,
                last: before,
            }));
        }
    }
}

/// Returns how much longer a process counts as alive after this sign of life. A heartbeat in the future comes from a wrong clock,
/// and counts for a whole lease from now.
async fn until_silent(db: &Db, last: Option<SignOfLife>) -> Result<Duration, DbError> {
    let Some((heartbeat, lease_until)) = last else {
        return Ok(Duration::ZERO);
    };
    let now = db.server_time().await?.unwrap_or(heartbeat);
    Ok(lease_until.since(now).min(lease_until.since(heartbeat)))
}

/// Returns the name if no host called `name` is alive: none is on record, its last heartbeat is older than `lease`, or none arrives
/// for `wait`. Its runs get recovered, so a host that has merely lost its lock mustn't be taken for dead.
async fn unless_alive(
    db: &Db,
    name: &str,
    mut lock: HostLock,
    wait: Duration,
    lease: Duration,
) -> Result<Option<FreeName>, StartError> {
    let last = last_sign_of_life(db, name).await?;
    if let Some((before, _)) = last {
        let now = db.server_time().await?.unwrap_or(before);
        // A heartbeat from the future was recorded by a wrong clock.
        let until_silent = if before.since(now) > lease {
            Duration::ZERO
        } else {
            lease.saturating_sub(now.since(before))
        };
        let until = Instant::now() + wait.min(until_silent);
        while Instant::now() < until {
            tokio::time::sleep(DEAD_SESSION_PAUSE).await;
            if is_newer(last_sign_of_life(db, name).await?, last) {
                return Ok(None);
            }
            lock.hold().await?;
        }
    }
    Ok(Some(FreeName {
        name: name.to_owned(),
        lock,
        last,
    }))
}

async fn last_sign_of_life(db: &Db, name: &str) -> Result<Option<SignOfLife>, DbError> {
    hosts::last_sign_of_life(&mut db.read().await?, name).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_heartbeat_or_a_new_process_is_a_sign_of_life() {
        let at = |seconds| Timestamp::EPOCH.plus(Duration::from_secs(seconds));
        let sign = |seconds| Some((at(seconds), at(seconds + 8)));
        for (found, last, expected) in [
            (None, None, false),
            (None, sign(5), false),
            (sign(5), sign(5), false),
            (sign(6), sign(5), true),
            (sign(5), None, true),
            (sign(4), sign(5), false),
        ] {
            assert_eq!(is_newer(found, last), expected, "{found:?} {last:?}");
        }
    }
}
