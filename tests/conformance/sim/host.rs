//! The hosts of a sequence.

use std::sync::Arc;
use std::time::Duration;

use campanile::clock::Timestamp;
use campanile::db::HostLock;
use campanile::db::runs::{Finish, RunEnd};
use campanile::engine::{Engine, RecoveryLimits, Settings, Work};
use campanile::policy::Defaults;
use campanile::wasm::StopSignal;

use super::model;

/// A host that lives.
pub struct LiveHost {
    pub engine: Arc<Engine>,
    pub _lock: HostLock,
    pub held: Vec<(Work, StopSignal)>,
}

/// How they work.
pub fn settings() -> Settings {
    Settings {
        runs_max: 6,
        lease: Duration::from_secs(30),
        renew: Duration::from_secs(10),
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
        drain: Duration::from_secs(1),
        secrets: Default::default(),
    }
}

/// How a run ends.
pub fn finish(work: &Work, end: RunEnd, at: Timestamp) -> Finish {
    Finish {
        run_id: work.run_id,
        token: work.token,
        launch_id: work.taken.launch_id,
        schedule_id: work.taken.schedule_id,
        slot: work.taken.slot,
        at,
        end,
        tasks: Vec::new(),
    }
}
