//! What the services of one host share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::{Notify, watch};

use crate::alive::chore_lease::ChoreLease;
use crate::alive::heartbeat::HeartbeatHistory;
use crate::alive::lease_table::LeaseTable;
use crate::alive::trouble::Trouble;
use crate::claim::capacity::Capacity;
use crate::claim::claim_gate::ClaimGate;
use crate::claim::record_use::RecordUse;
use crate::claim::unrecorded::UnrecordedEnds;
use crate::decide::batch_size::BatchSizes;
use crate::decide::placement::Peers;
use crate::decide::spec::Specs;
use crate::packages::reported::ReportedVersions;
use crate::recover::begun_runs::BegunRuns;
use crate::tell::alerts::ping_queue::PingQueue;
use crate::tell::delivery_table::DeliveryTable;
use crate::tell::launch_log::LaunchLog;
use crate::tell::metrics::{CommitOf, Metrics};
use crate::tell::traces::queue::TraceQueue;
use campanile_control::settings::Settings;
use campanile_model::clock::{Clock, Monotonic};
use campanile_model::ids::{HostId, ScheduleId};
use campanile_package::Packages;
use campanile_store::{Db, DbError, Tx};

/// The context of every step: the database, the clock, the host's identity, and the state that more than one service
/// reads.
pub struct Ctx {
    pub(crate) db: Db,
    pub(crate) clock: Clock,
    /// This incarnation of the host.
    pub(crate) host: HostId,
    pub(crate) name: String,
    /// This process's number among those of its name; zero until it's on record.
    pub(crate) number: AtomicI64,
    pub(crate) settings: Settings,
    pub(crate) packages: Packages,
    pub(crate) specs: Specs,
    pub(crate) capacity: Capacity,
    pub(crate) claim_gate: ClaimGate,
    pub(crate) peers: Peers,
    pub(crate) batch_sizes: BatchSizes,
    pub(crate) leases: LeaseTable,
    pub(crate) chores: ChoreLease,
    pub(crate) deliveries: DeliveryTable,
    pub(crate) begun: BegunRuns,
    pub(crate) unrecorded: UnrecordedEnds,
    pub(crate) record_use: RecordUse,
    pub(crate) heartbeats: HeartbeatHistory,
    pub(crate) reported: ReportedVersions,
    /// Why approvals on record don't count on this host: one sentence each.
    pub(crate) uncounted_approvals: Mutex<Vec<String>>,
    /// Schedules whose launches failed and whose failures are not counted yet.
    pub(crate) uncounted: Mutex<BTreeSet<ScheduleId>>,
    pub(crate) wake: Wake,
    pub(crate) trouble: Trouble,
    pub(crate) traces: TraceQueue,
    pub(crate) pings: PingQueue,
    /// Holds true from the moment at which the host has loaded its packages and decides.
    pub(crate) serving: watch::Sender<bool>,
    pub(crate) launch_log: LaunchLog,
    pub(crate) metrics: Metrics,
    /// Set while a backfill runs: then the end of a launch lets its next one start.
    pub(crate) backfill_running: AtomicBool,
    /// Before this instant of the monotonic clock, the host recovers nothing and marks no host as dead.
    pub(crate) recover_after_us: AtomicI64,
    /// Set while the disk of the database has too little room to decide or claim anything.
    pub(crate) disk_low: AtomicBool,
}

impl Ctx {
    /// Whether this host neither decides nor claims.
    ///
    /// A host silent for longer than its lease, say because its machine slept, may have been replaced. It must renew the lease
    /// first.
    pub(crate) fn begins_nothing(&self) -> bool {
        !self.clock.is_known()
            || self.disk_low.load(Ordering::Relaxed)
            || self.db.damage().is_some()
            || !self
                .heartbeats
                .is_recent(self.clock.now(), self.settings.lease)
    }

    /// Whether this host may judge by the times on record that a host is dead, or that a lease has expired.
    pub(crate) fn may_recover(&self) -> bool {
        let after = Monotonic::from_micros(self.recover_after_us.load(Ordering::Relaxed));
        self.clock.is_known() && self.clock.monotonic() >= after
    }

    /// Commit a transaction, and note how long that took.
    pub(crate) async fn commit(&self, tx: Tx, of: CommitOf) -> Result<(), DbError> {
        let begun = Instant::now();
        tx.commit().await?;
        self.metrics.observe_commit(of, begun.elapsed());
        Ok(())
    }

    /// The context of a new incarnation of the host `name`.
    pub(crate) fn new(
        db: Db,
        clock: Clock,
        name: String,
        settings: Settings,
        packages: Packages,
    ) -> Ctx {
        let now = clock.now();
        let metrics = Metrics::default();
        let record_use = RecordUse::new(Arc::clone(&settings.namespaces));
        Ctx {
            host: HostId::new(now),
            capacity: Capacity::new(settings.runs_max, Arc::clone(&settings.namespaces), now),
            claim_gate: ClaimGate::default(),
            peers: Peers::default(),
            batch_sizes: BatchSizes::new(&db),
            leases: LeaseTable::new(clock.clone()),
            chores: ChoreLease::default(),
            deliveries: DeliveryTable::new(clock.clone()),
            db,
            clock,
            name,
            number: AtomicI64::new(0),
            settings,
            packages,
            specs: Specs::default(),
            begun: BegunRuns::default(),
            unrecorded: UnrecordedEnds::default(),
            record_use,
            heartbeats: HeartbeatHistory::default(),
            reported: ReportedVersions::default(),
            uncounted_approvals: Mutex::default(),
            uncounted: Mutex::default(),
            wake: Wake::default(),
            trouble: Trouble::new(metrics.database_errors.clone()),
            traces: TraceQueue::new(metrics.traces_dropped.clone()),
            pings: PingQueue::default(),
            serving: watch::Sender::default(),
            launch_log: LaunchLog::default(),
            metrics,
            backfill_running: AtomicBool::new(false),
            recover_after_us: AtomicI64::new(i64::MIN),
            disk_low: AtomicBool::new(false),
        }
    }
}

/// The context as each service keeps it.
pub(crate) type SharedCtx = Arc<Ctx>;

/// How one service tells another that there may be something to do.
#[derive(Default)]
pub(crate) struct Wake {
    /// Schedules have changed.
    pub(crate) scheduler: Notify,
    /// Launches are open, or capacity is free.
    pub(crate) dispatcher: Notify,
    /// The time of this host has moved.
    pub(crate) cursor_watch: Notify,
    /// Runs of this host may have been asked to end.
    pub(crate) lease_keeper: Notify,
    /// Messages are to be delivered.
    pub(crate) outbox: Notify,
    /// Messages about alerts are to be delivered.
    pub(crate) alerts: Notify,
    /// An operator decided about versions of packages.
    pub(crate) folder_sync: Notify,
}
