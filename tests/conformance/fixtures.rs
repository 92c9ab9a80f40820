//! Hosts, packages, schedules, launches and runs that tests start with.

use std::sync::OnceLock;
use std::time::Duration;

use campanile_model::approval_key::ApprovalKey;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, HostId, LaunchId, LaunchKind, RunId, ScheduleId};
use campanile_model::labels::Labels;
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::hosts::{self, Host};
use campanile_store::launch::{
    self, Claim, ClaimedLaunch, Finish, NewLaunch, RetriesOf, RunEnd, RunHashes,
};
use campanile_store::package_versions::Attribution;
use campanile_store::packages::{self, LoadedPackage, SidecarSummary};
use campanile_store::runs;
use campanile_store::schedules::{self, NewSchedule, NextSlot, Pause, Revision};
use campanile_store::task_runs::TaskRun;
use campanile_store::{DbError, Decision, Origin, Tx};
use campanile_tests::TestDb;
use uuid::Uuid;

/// The package of all schedules in these fixtures.
pub const PACKAGE: &str = "demo";

/// The package's bytes.
pub const BYTES: &[u8] = b"bytes";

/// Return 2027-01-15T08:00:00Z plus `seconds`.
pub fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000).plus(Duration::from_secs(seconds))
}

pub fn host_id(number: u128) -> HostId {
    HostId(Uuid::from_u128(0xA000 + number))
}

pub fn schedule_id(number: u128) -> ScheduleId {
    ScheduleId(Uuid::from_u128(0xB000 + number))
}

/// Return a run of a launch that no test inserts.
pub fn unknown_run() -> RunId {
    RunId::of(LaunchId(Uuid::from_u128(0xC000)), 1)
}

/// Return the digest of [`BYTES`].
pub fn digest() -> ArtifactDigest {
    ArtifactDigest::of(BYTES)
}

/// Return the end of the lease of a host with a heartbeat at `now`.
pub fn lease_until(now: Timestamp) -> Timestamp {
    now.plus(Duration::from_secs(10))
}

pub fn host(id: HostId, name: &str, now: Timestamp) -> Host {
    Host {
        id,
        name: name.to_owned(),
        version: "0.1.0".to_owned(),
        wasmtime_version: "48".to_owned(),
        tzdata_version: "2026a".to_owned(),
        started_at: now,
        heartbeat_at: now,
        lease_until: lease_until(now),
        runs_max: 8,
        labels: Labels::default(),
        ended_at: None,
        end_reason: None,
        drained_at: None,
        drained_by: None,
        claims_ended_at: None,
    }
}

/// Register the host `host-{number}` and let it load [`PACKAGE`].
pub async fn add_host(tx: &mut Tx, number: u128, now: Timestamp) -> HostId {
    let id = host_id(number);
    let host = host(id, &format!("host-{number}"), now);
    hosts::register(tx, &host).await.unwrap();
    publish(tx, id, PACKAGE, BYTES, now).await;
    id
}

pub async fn publish(tx: &mut Tx, host: HostId, name: &str, bytes: &[u8], now: Timestamp) {
    let loaded = LoadedPackage {
        name,
        digest: &ArtifactDigest::of(bytes),
        form: "typed_component",
        bytes,
        manifest: "{}",
        signature: None,
        sidecar: SidecarSummary::default(),
    };
    packages::publish(tx, host, &loaded, now).await.unwrap();
}

/// A pause without a note and without an end.
pub const PAUSE: Pause<'_> = Pause {
    by: "the operator",
    note: None,
    until: None,
};

/// Return the first revision of a schedule that was created at `at(0)`.
pub fn revision(number: u128) -> Revision {
    Revision {
        schedule_id: schedule_id(number),
        revision: 1,
        name: format!("schedule-{number}"),
        package: PACKAGE.to_owned(),
        task: None,
        rule: RuleText {
            anchor: Some(at(0)),
            ..RuleText::new(RuleKind::Every, "10 seconds", "UTC")
        },
        policies: "{}".to_owned(),
        defaults: "{}".to_owned(),
        args: None,
        context: "{}".to_owned(),
        since: at(0),
    }
}

/// Insert a schedule with its first revision.
pub async fn insert_schedule(
    tx: &mut Tx,
    definition: &Revision,
    origin: Origin,
    next_slot: Option<Timestamp>,
) -> Result<(), DbError> {
    let definition = definition.clone();
    let schedule = NewSchedule {
        definition,
        origin,
        next_slot,
    };
    schedules::insert_all(tx, &[schedule]).await
}

/// Add the schedule `schedule-{number}` with the cursor `at(0)` and the next slot `at(next)`.
pub async fn add_schedule(tx: &mut Tx, number: u128, next: u64) -> ScheduleId {
    insert_schedule(tx, &revision(number), Origin::Operator, Some(at(next)))
        .await
        .unwrap();
    schedule_id(number)
}

/// Return the decision to launch the schedule's slot `at(slot)`, made by `host_id(1)` at that instant.
pub fn launch(schedule: u128, slot: u64) -> NewLaunch {
    let revision = (schedule_id(schedule), 1);
    let slot = (LaunchKind::Schedule, at(slot));
    NewLaunch {
        digest: Some(digest()),
        interval_start: at(0),
        decided_by: Some(host_id(1)),
        ..NewLaunch::of_slot(revision, PACKAGE.to_owned(), slot, slot.1)
    }
}

pub fn skipped(schedule: u128, slot: u64, reason: &'static str) -> NewLaunch {
    NewLaunch {
        decision: Decision::Skipped,
        reason: Some(reason),
        digest: None,
        ..launch(schedule, slot)
    }
}

pub fn manual(schedule: u128, slot: u64) -> NewLaunch {
    NewLaunch {
        id: LaunchId::of(schedule_id(schedule), at(slot), LaunchKind::Manual),
        kind: LaunchKind::Manual,
        context: Some(r#"{"reason":"test"}"#.to_owned()),
        ..launch(schedule, slot)
    }
}

/// A run that a host has claimed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClaimedRun {
    pub run_id: RunId,
    pub fence: i64,
    pub schedule_id: ScheduleId,
    pub scheduled_time: Timestamp,
}

impl ClaimedRun {
    /// Return the run of a launch that is being claimed.
    pub fn of(launch: &ClaimedLaunch) -> ClaimedRun {
        ClaimedRun {
            run_id: launch.run_id(),
            fence: launch.fence(),
            schedule_id: launch.schedule_id,
            scheduled_time: launch.scheduled_time,
        }
    }

    pub fn launch_id(self) -> LaunchId {
        self.run_id.launch()
    }

    pub fn finish(self, end: RunEnd, now: Timestamp) -> Finish {
        Finish {
            run_id: self.run_id,
            fence: self.fence,
            schedule_id: self.schedule_id,
            scheduled_time: self.scheduled_time,
            at: now,
            end,
            tasks: Vec::new(),
        }
    }

    pub fn succeeded(self, output: &str, now: Timestamp) -> Finish {
        let output = Some(output.to_owned());
        self.finish(RunEnd::Succeeded { output }, now)
    }

    pub fn failed(self, message: &str, now: Timestamp) -> Finish {
        let end = RunEnd::Failed {
            kind: campanile_store::FailureKind::Failed,
            message: message.to_owned(),
        };
        self.finish(end, now)
    }
}

/// Insert launches and claim all open launches for the host, with leases of 30 seconds from `now`.
pub async fn insert_and_claim(
    tx: &mut Tx,
    host: HostId,
    decided: &[NewLaunch],
    now: Timestamp,
) -> Vec<ClaimedRun> {
    launch::insert(tx, decided).await.unwrap();
    claim_all(tx, host, now).await
}

/// Claim all open launches for the host, with leases of 30 seconds from `now`.
pub async fn claim_all(tx: &mut Tx, host: HostId, now: Timestamp) -> Vec<ClaimedRun> {
    let open = launch::claimable(tx, host, now, 1_000).await.unwrap();
    let lease_until = now.plus(Duration::from_secs(30));
    let claims = claims_of(&open);
    launch::claim(tx, host, &claims, now, lease_until)
        .await
        .unwrap();
    open.iter().map(ClaimedRun::of).collect()
}

/// Return the claims of launches, without hashes.
pub fn claims_of(launches: &[ClaimedLaunch]) -> Vec<Claim> {
    let claim = |launch: &ClaimedLaunch| Claim {
        launch_id: launch.launch_id,
        fence: launch.fence(),
        hashes: RunHashes::default(),
    };
    launches.iter().map(claim).collect()
}

pub fn task_run(task: &str, attempt: i64) -> TaskRun {
    TaskRun::succeeded(task, attempt, at(1), at(2))
}

/// Add one host with the package and the schedules 1 to `schedules`, of which none is due before `at(10)`.
pub async fn host_with_schedules(test: &TestDb, schedules: u128) -> HostId {
    let mut tx = test.write().await;
    let host = add_host(&mut tx, 1, at(0)).await;
    for number in 1..=schedules {
        add_schedule(&mut tx, number, 10).await;
    }
    tx.commit().await.unwrap();
    host
}

/// Return the status of the run's launch and the status of the run.
pub async fn status_of(test: &TestDb, run: &ClaimedRun) -> (String, String) {
    let mut tx = test.read().await;
    let row = runs::find(&mut tx, run.run_id).await.unwrap().unwrap();
    let launches = launch::of_schedule(&mut tx, run.schedule_id, 1_000)
        .await
        .unwrap();
    let launch = launches
        .iter()
        .find(|launch| launch.id == run.launch_id())
        .unwrap();
    (launch.status.to_string(), row.status.to_string())
}

/// Set the next slot of one schedule. Return false if its cursor was not at `cursor_at`.
pub async fn set_next(
    tx: &mut Tx,
    id: ScheduleId,
    cursor_at: Timestamp,
    next_slot: Option<Timestamp>,
    now: Timestamp,
) -> Result<bool, DbError> {
    let slot = NextSlot {
        id,
        cursor_at,
        next_slot,
        now,
    };
    Ok(schedules::set_next(tx, &[slot]).await? == [id])
}

/// Claim up to `limit` due retries of no group.
pub async fn claim_retries(
    tx: &mut Tx,
    host: HostId,
    now: Timestamp,
    lease_until: Timestamp,
    limit: i64,
) -> campanile_store::Result<Vec<ClaimedLaunch>> {
    let retries = launch::retries(tx, RetriesOf::AnyPackage, host, now, limit).await?;
    launch::claim(tx, host, &claims_of(&retries), now, lease_until).await?;
    Ok(retries)
}

/// Returns who decides about versions in tests, without a note.
pub fn ada() -> Attribution<'static> {
    Attribution {
        by: "ada",
        note: None,
        key: approval_key(),
    }
}

/// Returns the key that seals decisions on all hosts of the tests.
pub fn approval_key() -> &'static ApprovalKey {
    static KEY: OnceLock<ApprovalKey> = OnceLock::new();
    KEY.get_or_init(ApprovalKey::generate)
}
