//! The host's heartbeat, the leases of its runs and of the chores, and the lock on its name.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::alive::chores;
use crate::alive::database_state::DamageReport;
use crate::alive::lease_table::held_until;
use crate::alive::record_host::record_host;
use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::error::{EngineError, Result};
use crate::packages::record_package::publish_all;
use crate::recover::record_loss::{self, OwnRow};
use crate::recover::uncalled;
use crate::service::{Next, RETRY_PAUSE, Service, within};
use campanile_model::clock::Timestamp;
use campanile_store::{FileLoss, HostLock, hosts, launch};

/// How often expired leases are looked for at least: a lost lease is noticed at once, not at the next renewal.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The service that renews what proves this host alive, until the host has drained.
pub(crate) struct LeaseKeeper {
    lock: HostLock,
    /// Stops the host when it has lost its name or its file.
    stop: watch::Sender<bool>,
    renew_at: Instant,
    file_loss: Option<FileLoss>,
    /// What has been reported about a damaged database.
    damage: DamageReport,
    /// Set while another session has the lock on the name, and no other incarnation is on record.
    is_name_locked: bool,
}

impl LeaseKeeper {
    pub(crate) fn new(lock: HostLock, stop: watch::Sender<bool>) -> LeaseKeeper {
        LeaseKeeper {
            lock,
            stop,
            renew_at: Instant::now(),
            file_loss: None,
            damage: DamageReport::default(),
            is_name_locked: false,
        }
    }

    async fn renew_all(&mut self, ctx: &Ctx, now: Timestamp) {
        let begun = Instant::now();
        let renewed = within(patience(ctx), renew(ctx, now)).await;
        if let Err(EngineError::NameLost(_)) = renewed {
            return self.give_way(ctx);
        }
        ctx.trouble.note("renewing leases", &renewed);
        if renewed.is_ok() {
            self.renew_at = begun + ctx.settings.renew;
            // The next renewal tries again.
            let _ = within(patience(ctx), record_trouble(ctx)).await;
        }
    }

    /// Stops the host after a later process has taken its name.
    fn give_way(&self, ctx: &Ctx) {
        if !*self.stop.borrow() {
            tracing::error!(host = %ctx.name, "another process now serves in the place of this host; stopping");
        }
        self.stop.send_replace(true);
    }

    /// Hold the lock on the host's name. Stop the host when another incarnation of it is on record.
    ///
    /// The lock alone proves nothing. After a broken connection the server may keep the old session, which has the lock,
    /// until its keepalives fail.
    async fn hold_name(&mut self, ctx: &Ctx) {
        let looked = within(patience(ctx), async {
            Ok(match self.lock.hold().await? {
                true => NameState::Held,
                // The lock of a file is exact.
                false if !ctx.db.url().is_shared() || is_replaced(ctx).await? => {
                    NameState::Replaced
                }
                false => NameState::Locked,
            })
        });
        let looked = looked.await;
        ctx.trouble.note("holding the host's name", &looked);
        match looked {
            Ok(NameState::Held) => self.is_name_locked = false,
            Ok(NameState::Locked) => {
                if !self.is_name_locked {
                    tracing::warn!(host = %ctx.name, "the server still keeps this host's name locked, for a connection that broke or for the process that had the name before; trying again until it is free");
                }
                self.is_name_locked = true;
                // A process that waits for the name sees by the heartbeat that this host is alive.
                self.renew_at = Instant::now();
            }
            Ok(NameState::Replaced) => self.give_way(ctx),
            Err(_) => {}
        }
    }

    /// Stops the host if a database file was changed behind SQLite's back. The host would keep writing to the files it has open
    /// while commands read those at the path.
    fn look_for_files(&mut self) {
        if self.file_loss.is_some() {
            return;
        }
        self.file_loss = self.lock.file_loss();
        match &self.file_loss {
            None => return,
            Some(FileLoss::Moved(file)) => tracing::error!(
                "{} was renamed, or it was deleted or replaced while it is served: stopping; the launches of the last seconds are recorded in the file that this host has open, and in no other",
                file.display()
            ),
            Some(FileLoss::Journal(file)) => tracing::error!(
                "{} was deleted or replaced while the database is served: stopping; what was recorded since is in the files that this host has open, and in no others",
                file.display()
            ),
            Some(FileLoss::Overwritten(file)) => tracing::error!(
                "{} was cut short or overwritten while the database is served: stopping; what was recorded since is lost, so restore a backup",
                file.display()
            ),
        }
        self.stop.send_replace(true);
    }

    /// After a database file was changed behind SQLite's back, saves what the files opened by this host contain, and returns the
    /// host's final error. Either way, the database can then be closed.
    pub(crate) async fn end_watch(&mut self, ctx: &Ctx) -> Result {
        let Some(loss) = self.file_loss.take() else {
            return Ok(self.lock.end_watch().await?);
        };
        // SQLite won't merge the log of a renamed file by itself.
        let merged = match loss {
            FileLoss::Overwritten(_) => false,
            _ if !self.lock.may_merge_log() => false,
            _ => ctx.db.merge_log().await.is_ok(),
        };
        self.lock.end_watch().await?;
        Err(match loss {
            FileLoss::Moved(_) => EngineError::FileMoved(ctx.db.url().to_string()),
            FileLoss::Journal(path) => EngineError::JournalLost {
                path,
                hint: if merged {
                    "the database has everything that was recorded: start again"
                } else {
                    "another process has begun a new one, so the database lacks what was recorded since: run `campanile audit verify`, and restore a backup if it finds a fault"
                },
            },
            FileLoss::Overwritten(path) => EngineError::FileOverwritten(path),
        })
    }
}

/// Whether this host has its name.
enum NameState {
    Held,
    /// Another session has the lock, and no other incarnation of the host is on record.
    Locked,
    /// Another incarnation serves.
    Replaced,
}

async fn is_replaced(ctx: &Ctx) -> Result<bool> {
    let mut tx = ctx.db.read().await?;
    let number = ctx.number.load(Ordering::Relaxed);
    Ok(hosts::is_replaced(&mut tx, &ctx.name, number).await?)
}

impl Service for LeaseKeeper {
    const STEP: &'static str = "keeping leases";

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        let begun = Instant::now();
        // Before the renewal, which may wait for the database.
        drop_expired(ctx);
        if begun >= self.renew_at {
            self.renew_all(ctx, now).await;
        }
        self.hold_name(ctx).await;
        self.look_for_files();
        self.damage.look(ctx, patience(ctx), now).await;
        drop_expired(ctx);
        let interval = ctx.settings.renew.min(LOOK_INTERVAL);
        let interval = interval.saturating_sub(begun.elapsed());
        let first_expiry = ctx.leases.until_first_expiry();
        Ok(Next::After(
            first_expiry.map_or(interval, |it| it.min(interval)),
        ))
    }

    async fn woken(&mut self, ctx: &Ctx) {
        ctx.wake.lease_keeper.notified().await;
        self.renew_at = Instant::now();
    }
}

/// Returns how long to wait for one answer of the database: not past the end of the first lease.
fn patience(ctx: &Ctx) -> Duration {
    let renew = ctx.settings.renew;
    let until = ctx.leases.until_first_expiry().unwrap_or(renew);
    until.clamp(RETRY_PAUSE, renew.max(RETRY_PAUSE))
}

/// Record that this host is alive and still has its runs.
///
/// A run that is no longer this host's is dropped at once, and the database refuses whatever it still writes.
pub(crate) async fn renew(ctx: &Ctx, now: Timestamp) -> Result {
    let lease = ctx.settings.lease;
    let lease_until = now.plus(lease);
    let held_until = held_until(ctx.clock.monotonic_at(now), lease);
    let asked = ctx.leases.to_renew();
    let mut tx = ctx.db.write().await?;
    let own_row = record_loss::own_row(ctx, &mut tx).await?;
    let mut number = ctx.number.load(Ordering::Relaxed);
    if own_row == OwnRow::Missing {
        if hosts::is_replaced(&mut tx, &ctx.name, number).await? {
            return Err(EngineError::NameLost(ctx.name.clone()));
        }
        number = record_host(ctx, &mut tx, now).await?;
        ctx.trouble.note_recorded(None);
    }
    let was_marked_dead = !hosts::heartbeat(&mut tx, ctx.host, now, lease_until).await?;
    if was_marked_dead {
        if !hosts::revive(&mut tx, ctx.host, now, lease_until).await? {
            return Err(EngineError::NameLost(ctx.name.clone()));
        }
        tracing::warn!(host = %ctx.name, "another host marked this one as dead after a long silence and recovered its runs; this host continues with new ones");
    }
    // After a mark as dead, and after a loss, the database may lack packages and reports of this host.
    let is_incomplete = was_marked_dead || !own_row.is_current();
    if is_incomplete {
        publish_all(ctx, &mut tx).await?;
    }
    let held = launch::renew(&mut tx, &asked, lease_until).await?;
    let handed_back = uncalled::hand_back(ctx, &mut tx, now).await?;
    // A host that is still loading its packages leaves the chores to others.
    let is_serving = *ctx.serving.borrow();
    let chores = if is_serving {
        chores::renew_or_take(ctx, &mut tx, now).await?
    } else {
        None
    };
    crash::point("before_heartbeat_commit");
    tx.commit().await?;
    ctx.number.store(number, Ordering::Relaxed);
    if is_serving {
        chores::note(ctx, chores);
    }
    if was_marked_dead {
        // Its clocks may have stopped, as those of a virtual machine that was paused.
        ctx.clock.forget();
    }
    if !own_row.is_current() {
        record_loss::forget_reads(ctx);
    }
    if is_incomplete {
        // Other hosts may deliver its messages.
        ctx.deliveries.drop_all();
        // Its packages and its reports of unusable files may be missing in the database.
        ctx.reported.mark_lost();
        ctx.wake.folder_sync.notify_one();
    }
    ctx.heartbeats.note(now, lease);
    ctx.deliveries.renew(held_until);
    ctx.leases.note_renewal(&asked, &held, held_until, now);
    handed_back.note(ctx);
    Ok(())
}

/// Records this host's trouble with the database, or its end, for `health` to show.
async fn record_trouble(ctx: &Ctx) -> Result {
    let lasting = ctx.trouble.lasting(std::time::Instant::now());
    if !ctx.trouble.is_news(lasting.as_ref()) {
        return Ok(());
    }
    let now = ctx.clock.now();
    let trouble = lasting.as_ref();
    let trouble = trouble.map(|trouble| (&*trouble.what, now.minus(trouble.since.elapsed())));
    let mut tx = ctx.db.write().await?;
    hosts::note_trouble(
        &mut tx,
        ctx.host,
        trouble.map(|it| it.0),
        trouble.map(|it| it.1),
    )
    .await?;
    tx.commit().await?;
    ctx.trouble.note_recorded(lasting.as_ref());
    Ok(())
}

/// Drop the runs whose grace is over after they were asked to end, and the runs and deliveries whose lease could not be
/// renewed in time.
pub(crate) fn drop_expired(ctx: &Ctx) {
    ctx.deliveries.drop_expired();
    ctx.leases.drop_cancelled();
    let dropped = ctx.leases.drop_expired();
    if dropped > 0 {
        ctx.metrics.count_lost(dropped);
        tracing::warn!(
            runs = dropped,
            "dropped runs whose lease could not be renewed in time"
        );
    }
}
