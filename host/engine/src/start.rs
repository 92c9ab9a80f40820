//! The beginning and the end of a host's life.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::buckets::Turns;
use super::room::Room;
use super::schedule_admin;
use super::{Engine, EngineError, Settings, recover};
use crate::secrets::Vault;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{HostId, LaunchKind, RunId};
use campanile_package::Packages;
use campanile_sandbox::{self, Sandbox};
use campanile_schedule::rule::{Rule, tzdata_version};
use campanile_store::events::{self, EventKind};
use campanile_store::hosts::{self, Host};
use campanile_store::launches::NewLaunch;
use campanile_store::recovery::{self, RecoveryAction, RecoveryDecision};
use campanile_store::{Db, DbError, HostLock, Tx, packages, schedules};

/// Hosts with the machine's name as their name that can live on one machine.
const SAME_NAME_MAX: usize = 64;

/// How long a name may be taken before that is believed: a server takes a moment to notice that the
/// process which held it is dead, and this host may be that process's next life.
const NAME_WAIT: Duration = Duration::from_secs(2);
const NAME_PAUSE: Duration = Duration::from_millis(50);

/// The reason of a launch at a start that was not finished when the host started again.
const SUPERSEDED: &str = "superseded";

/// Why a host cannot begin to serve.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "another campanile already serves {0}; a SQLite file is served by one host at a time, use Postgres for several"
    )]
    FileIsServed(String),
    #[error(
        "a host named `{0}` already serves this database; give this one another name with `--name` or `name` under [host]"
    )]
    NameIsTaken(String),
    #[error(transparent)]
    Db(#[from] DbError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl Engine {
    /// Begin a host's life: take the name's lock, bury earlier lives of that name, and go on the record.
    ///
    /// Without `name` the machine's name is taken, with a number if another host on it has that already.
    pub async fn start(
        db: Db,
        clock: Clock,
        name: Option<&str>,
        settings: Settings,
        packages: Packages,
        sandbox: Arc<Sandbox>,
    ) -> Result<(Arc<Engine>, HostLock), StartError> {
        let (name, lock) = lock_name(&db, name).await?;
        let now = clock.now();
        let host = HostId::new(now);
        let engine = Engine {
            vault: Vault::new(settings.secrets.clone()),
            turns: Turns::default(),
            room: Room::new(settings.runs_max, now),
            db,
            clock,
            host,
            name,
            settings,
            packages,
            sandbox,
            specs: Default::default(),
            versions: Default::default(),
            told: Default::default(),
            holding: Default::default(),
            pulse: Default::default(),
            wake: Default::default(),
            trouble: Default::default(),
            fills_back: AtomicBool::new(false),
            last_health: AtomicBool::new(true),
            stands_back: AtomicBool::new(false),
        };
        engine.measure_clock().await?;
        engine.register(engine.clock.now()).await?;
        Ok((Arc::new(engine), lock))
    }

    async fn register(&self, now: Timestamp) -> Result<(), EngineError> {
        let mut tx = self.db.write().await?;
        let buried = hosts::mark_predecessors_dead(&mut tx, &self.name, now).await?;
        for earlier in &buried {
            let detail = format!("incarnation {} ended without stopping", earlier.id);
            events::record(&mut tx, now, EventKind::HostDied, &earlier.name, &detail).await?;
        }
        // What the earlier life had in its folder is forgotten when this one has looked into it.
        hosts::register(
            &mut tx,
            &Host {
                id: self.host,
                name: self.name.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                wasmtime_version: campanile_sandbox::WASMTIME_VERSION.to_owned(),
                tzdata_version: tzdata_version().to_owned(),
                started_at: now,
                heartbeat_at: now,
                ended_at: None,
                end_reason: None,
            },
        )
        .await?;
        let detail = format!("incarnation {}", self.host);
        events::record(&mut tx, now, EventKind::HostStarted, &self.name, &detail).await?;
        tx.commit().await?;
        self.pulse.beat(now, self.settings.lease);
        if !buried.is_empty() {
            tracing::warn!(host = %self.name, "the last life of this host ended without stopping; what it left is recovered now");
        }
        Ok(())
    }

    /// Follow a time zone database that is another than the last host's: its changes of clocks move next slots.
    pub(super) async fn follow_tzdata(&self, now: Timestamp) -> Result<(), EngineError> {
        let mut tx = self.db.read().await?;
        let before = hosts::tzdata_before(&mut tx, self.host).await?;
        drop(tx);
        let Some(before) = before.filter(|before| before != tzdata_version()) else {
            return Ok(());
        };
        let moved = self.reconcile(now).await?;
        let detail = format!(
            "from {before} to {}: {moved} next slots moved",
            tzdata_version()
        );
        tracing::info!("the time zone database changed {detail}");
        let mut tx = self.db.write().await?;
        events::record(&mut tx, now, EventKind::TzdataChanged, &self.name, &detail).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Launch the schedules whose rule is `@reboot`: once in this life, now that the folder is on the record.
    ///
    /// What recovery has just taken up of earlier starts is given up for it: a host that dies again and again must
    /// not do the work of all its starts at once.
    pub(super) async fn launch_at_start(&self, now: Timestamp) -> Result<(), EngineError> {
        let mut tx = self.db.write().await?;
        let mut superseded = Vec::new();
        for (launch_id, schedule, slot) in recovery::unclaimed_startups(&mut tx, self.host).await? {
            let detail = format!("slot {slot} was given up: {SUPERSEDED}");
            events::record(&mut tx, now, EventKind::LaunchAbandoned, &schedule, &detail).await?;
            superseded.push(RecoveryDecision {
                launch_id,
                run_id: None,
                action: RecoveryAction::Abandon(SUPERSEDED),
            });
        }
        let why = "a later start took its place";
        recovery::apply(&mut tx, self.host, &superseded, why, now).await?;
        // In one order with whoever else holds these rows.
        let mut all = schedules::list(&mut tx, None, None).await?;
        all.sort_unstable_by_key(|schedule| schedule.state.id);
        for schedule in all {
            let state = &schedule.state;
            let spec = self.specs.get(&mut tx, state.id, state.revision).await?;
            if spec.rule.as_ref().is_some_and(Rule::at_host_start) {
                self.launch_now(&mut tx, &schedule.definition.name, now)
                    .await?;
            }
        }
        tx.commit().await?;
        Ok(())
    }

    /// Launch a schedule at the start of this host, unless it is paused.
    async fn launch_now(&self, tx: &mut Tx, name: &str, now: Timestamp) -> Result<(), EngineError> {
        schedules::lock(tx, Some(name), None).await?;
        let Some(schedule) = schedules::find(tx, name).await? else {
            return Ok(());
        };
        let state = &schedule.state;
        let spec = self.specs.get(tx, state.id, state.revision).await?;
        let Some(rule) = spec.rule.as_ref().filter(|_| state.enabled) else {
            return Ok(());
        };
        let package = packages::find(tx, &schedule.definition.package).await?;
        let launch = NewLaunch {
            decided_by: Some(self.host),
            ..schedule_admin::at_once(&schedule, rule, package, LaunchKind::Startup, now)
        };
        schedule_admin::launch_beside(tx, &schedule, &spec.policies, launch, now).await?;
        Ok(())
    }

    /// Forget what hosts had that live no more, now that this host's folder is on the record.
    pub(super) async fn forget_ended_hosts(&self, now: Timestamp) -> Result<(), EngineError> {
        let mut tx = self.db.write().await?;
        recover::forget_packages(&mut tx, now).await?;
        tx.commit().await?;
        Ok(())
    }

    /// End this life in order: of what was `left` running, whatever has not ended goes back to be recovered by the next.
    pub(super) async fn stop(&self, left: &[RunId], now: Timestamp) -> Result<(), EngineError> {
        let handed_back = self.hand_back(left, now).await?;
        let mut tx = self.db.write().await?;
        let detail = format!("handed back {handed_back} runs");
        events::record(&mut tx, now, EventKind::HostStopped, &self.name, &detail).await?;
        tx.commit().await?;
        tracing::info!(host = %self.name, handed_back, "stopped");
        Ok(())
    }
}

async fn lock_name(db: &Db, wanted: Option<&str>) -> Result<(String, HostLock), StartError> {
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_string_lossy().into_owned();
    let name = wanted.unwrap_or(&machine);
    let until = Instant::now() + NAME_WAIT;
    loop {
        if let Some(lock) = db.host_lock(name).await? {
            return Ok((name.to_owned(), lock));
        }
        if Instant::now() >= until {
            break;
        }
        tokio::time::sleep(NAME_PAUSE).await;
    }
    if !db.url().is_shared() {
        return Err(StartError::FileIsServed(db.url().to_string()));
    }
    if wanted.is_none() {
        for number in 2..=SAME_NAME_MAX {
            let name = format!("{machine}-{number}");
            if let Some(lock) = db.host_lock(&name).await? {
                return Ok((name, lock));
            }
        }
    }
    Err(StartError::NameIsTaken(name.to_owned()))
}
