//! The hosts of a simulation.

use std::sync::Arc;
use std::time::Duration;

use campanile_control::settings::{RecoveryLimits, Settings};
use campanile_engine::{Engine, Work};
use campanile_model::clock::{Clock, Timestamp};
use campanile_package::{PackageLoader, Packages};
use campanile_sandbox::{CodeCache, Limits, Sandbox, SandboxSettings, StopSignal};
use campanile_schedule::policy::Defaults;
use campanile_store::HostLock;
use campanile_store::launch::{Finish, RunEnd};
use campanile_tests::TestDb;

use super::model;
use crate::fixtures::{BYTES, PACKAGE, publish};

/// A live host.
pub struct LiveHost {
    pub engine: Arc<Engine>,
    pub _lock: HostLock,
    pub claimed: Vec<(Work, StopSignal)>,
}

impl LiveHost {
    /// Executes a claimed run. With `calls` false, it's dropped before its first call.
    pub fn take(&mut self, work: Work, stop: StopSignal, calls: bool) {
        if calls {
            self.engine.begin_call(work.run_id(), work.fence());
        }
        self.claimed.push((work, stop));
    }

    /// Do the chore of sealing, if this host has the lease of the chores or can take it.
    pub async fn seal(&self, now: Timestamp) {
        self.engine.hold_chores(now).await.unwrap();
        self.engine.seal(now).await.unwrap();
    }
}

/// Let the host seal that has the lease of the chores.
pub async fn seal_all(hosts: &[LiveHost], now: Timestamp) {
    for host in hosts {
        host.seal(now).await;
    }
}

/// Return a loader whose sandbox calls no task: the test decides how runs end.
pub fn loader(clock: &Clock) -> Arc<PackageLoader> {
    let settings = SandboxSettings {
        calls_max: 1,
        guest_threads: 1,
        code_cache: CodeCache::None,
        memory_bytes_max: Limits::default().memory_bytes_max,
        ..SandboxSettings::default()
    };
    let sandbox = Arc::new(Sandbox::new(settings, clock.clone()).unwrap());
    Arc::new(PackageLoader::in_this_process(sandbox))
}

/// Start a host with the name `name` that has loaded the package.
pub async fn start(
    test: &TestDb,
    clock: &Clock,
    loader: &Arc<PackageLoader>,
    name: &str,
) -> LiveHost {
    let (engine, lock) = Engine::start(
        test.db.clone(),
        clock.clone(),
        Some(name),
        settings(),
        Packages::default(),
        Arc::clone(loader),
    )
    .await
    .unwrap();
    let mut tx = test.write().await;
    publish(&mut tx, engine.host(), PACKAGE, BYTES, clock.now()).await;
    tx.commit().await.unwrap();
    LiveHost {
        engine,
        _lock: lock,
        claimed: Vec::new(),
    }
}

/// Return the settings of each host.
pub fn settings() -> Settings {
    Settings {
        runs_max: 6,
        quota: Default::default(),
        groups: Default::default(),
        namespaces: Default::default(),
        labels: Default::default(),
        placement: Default::default(),
        lease: Duration::from_secs(30),
        renew: Duration::from_secs(10),
        schedule_defaults: Default::default(),
        late: Defaults {
            misfire_grace: model::GRACE,
            catchup_window: model::WINDOW,
        },
        recovery: RecoveryLimits {
            lost_threshold: Duration::from_secs(300),
            age_max: Duration::from_secs(86_400),
            attempts_max: model::RECOVERIES_MAX,
        },
        recovery_interval: Duration::from_secs(5),
        audit_interval: Duration::from_secs(60),
        retention: campanile_control::settings::RetentionLimits::FOR_EVER,
        forget_after: None,
        disk_reserve_bytes: 0,
        give_up_after: Duration::from_secs(3_600),
        drain: Duration::from_secs(1),
        secrets: Default::default(),
        policy: Default::default(),
        alerts: Default::default(),
        traces: None,
    }
}

/// Return the end of a run for the store.
pub fn finish(work: &Work, end: RunEnd, at: Timestamp) -> Finish {
    Finish {
        run_id: work.run_id(),
        fence: work.fence(),
        schedule_id: work.launch.schedule_id,
        scheduled_time: work.launch.scheduled_time,
        at,
        end,
        tasks: Vec::new(),
    }
}
