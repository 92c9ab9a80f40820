//! Claims: which launches and retries a host may take now.
//!
//! When a host cannot take all, it divides its capacity between the packages that wait, and takes the launches of each by
//! priority. Launches of a concurrency group are apart: they wait for the group, and hold up no other launch.

use sqlx::FromRow;

use crate::sql::{Locking, locking, rows, statements};
use crate::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, HostId, LaunchId, LaunchKind, RunId, ScheduleId};
use campanile_model::labels::Labels;
use campanile_model::status::VersionDecision;
use campanile_model::trace_context::TraceContext;

/// A launch that a host may claim, with what its run gets in the context.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ClaimedLaunch {
    #[sqlx(rename = "id")]
    pub launch_id: LaunchId,
    pub schedule_id: ScheduleId,
    pub schedule_revision: i64,
    pub kind: LaunchKind,
    pub scheduled_time: Timestamp,
    /// By how many seconds the clock of the schedule's zone is ahead of UTC at the slot.
    pub utc_offset: i64,
    pub package: String,
    pub digest: ArtifactDigest,
    /// What a person has decided about this version since the launch was decided, or before.
    pub version_decision: Option<VersionDecision>,
    pub context: Option<String>,
    pub args: Option<String>,
    /// The trace context that its caller gave.
    pub caller_traceparent: Option<TraceContext>,
    pub interval_start: Timestamp,
    pub fire_time: Timestamp,
    /// Whether it is a slot of a schedule that its package proposed.
    pub proposed: bool,
    pub group_name: Option<String>,
    pub run_on: Option<Labels>,
    /// Whether a claim begins a run rather than continuing one after a retry's pause.
    pub begins_run: bool,
    /// The claims before this one.
    pub attempts: i64,
    pub recoveries: i64,
    pub recovered_at: Option<Timestamp>,
    /// Output of the last successful run of the schedule, JSON.
    pub last_result: Option<String>,
    /// The failure since then, JSON.
    pub last_failure: Option<String>,
}

impl ClaimedLaunch {
    /// Returns the run that a claim begins, or that it continues after a retry's pause.
    pub fn run_id(&self) -> RunId {
        RunId::of(self.launch_id, self.recoveries + 1)
    }

    /// Returns the fence of a claim.
    pub fn fence(&self) -> i64 {
        self.attempts + 1
    }

    /// Whether an earlier run of the launch was lost.
    pub fn is_recovery(&self) -> bool {
        self.recoveries > 0
    }
}

/// Launches of one package, or of one concurrency group, that have the same priority and are due.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct WaitingClass {
    /// The package, or the group.
    pub name: String,
    pub priority: i64,
    pub proposed: bool,
}

/// The columns of a [`ClaimedLaunch`].
macro_rules! claimed_columns {
    () => {
        "SELECT l.id, l.schedule_id, l.schedule_revision, l.kind, l.scheduled_time, l.utc_offset, l.package, l.digest, l.context, l.args,
        l.caller_traceparent, l.interval_start, l.fire_time, l.proposed, l.group_name, l.run_on, l.host_id IS NULL AS begins_run, l.attempts, l.recoveries, l.recovered_at, m.result AS last_result, m.failure AS last_failure,
        (SELECT v.decision FROM package_version v WHERE v.package = l.package AND v.digest = l.digest) AS version_decision
        FROM launch l LEFT JOIN schedule_result m ON m.schedule_id = l.schedule_id "
    };
}
/// Only a host whose folder has the package may claim a launch: there the operator put the package's grants.
macro_rules! has_package {
    () => {
        " AND EXISTS (SELECT 1 FROM package_host p WHERE p.package = l.package AND p.host_id = $1)"
    };
}
/// Only a host that has all labels which a launch needs may claim it.
// Both lists are sorted, so `eu,gpu` is in `,eu,,gpu,,ssd,` like `%,eu,%,gpu,%`.
macro_rules! has_labels {
    () => {
        " AND (l.run_on IS NULL OR EXISTS (SELECT 1 FROM host o WHERE o.id = $1
            AND ',' || replace(o.labels, ',', ',,') || ',' LIKE '%,' || replace(l.run_on, ',', ',%,') || ',%'))"
    };
}
pub(super) use has_labels;
/// Selects open launches for the transaction to claim: their fire time has come, any pause after a recovery is over, and the host
/// has their package and labels.
macro_rules! open_launches {
    ($group:literal) => {
        concat!(
            claimed_columns!(),
            "WHERE l.status = 'open' AND l.fire_time <= $2 AND (l.not_before IS NULL OR l.not_before <= $2)",
            has_package!(),
            has_labels!(),
            " AND l.group_name ",
            $group
        )
    };
}
/// Restricts open launches to on-time ones: firing after the given instant, and not for a past slot.
macro_rules! on_time {
    ($since:literal) => {
        concat!(
            " AND l.fire_time > ",
            $since,
            " AND l.kind <> 'catchup' AND l.kind <> 'backfill'"
        )
    };
}
/// The launches whose retry is due and whose package and labels the host has, for the transaction to claim.
macro_rules! due_retries {
    ($condition:literal) => {
        locking!(
            concat!(
                claimed_columns!(),
                "WHERE l.status = 'waiting' AND l.retry_at <= $2 AND l.cancel_deadline IS NULL",
                has_package!(),
                has_labels!(),
                $condition,
                " ORDER BY l.retry_at LIMIT $3"
            ),
            "FOR UPDATE OF l SKIP LOCKED"
        )
    };
}
/// A query that begins with the classes of unclaimed launches, by package or by group. The index leads from one name to
/// the next, however many launches each has.
macro_rules! with_classes {
    ($name:literal, $group:literal, $query:expr) => {
        concat!(
            "WITH RECURSIVE class (priority, proposed, name) AS (
                SELECT CAST(p.column1 AS BIGINT), o.column1, (SELECT min(", $name, ") FROM launch
                    WHERE status = 'open' AND group_name ", $group, "
                        AND priority IS NOT NULL AND priority = p.column1 AND proposed = o.column1)
                FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)) AS p, (VALUES (FALSE), (TRUE)) AS o
                UNION ALL SELECT class.priority, class.proposed, (SELECT min(", $name, ") FROM launch
                    WHERE status = 'open' AND group_name ", $group, "
                        AND priority IS NOT NULL AND priority = class.priority AND proposed = class.proposed
                        AND ", $name, " > class.name) FROM class WHERE class.name IS NOT NULL) ",
            $query
        )
    };
}
/// The classes of which a launch is due.
///
/// With `EXISTS`, Postgres reads every open launch into a hash table first.
macro_rules! due_classes {
    ($name:literal, $group:literal, $condition:expr) => {
        with_classes!(
            $name,
            $group,
            concat!(
                "SELECT name, priority, proposed FROM class WHERE name IS NOT NULL AND (SELECT l.priority FROM launch l
                WHERE l.status = 'open' AND l.group_name ", $group, "
                    AND l.priority IS NOT NULL AND l.priority = class.priority AND l.proposed = class.proposed
                    AND l.", $name, " = class.name AND l.fire_time <= $1
                    AND (l.not_before IS NULL OR l.not_before <= $1)", $condition, " LIMIT 1) IS NOT NULL
                ORDER BY name, priority DESC, proposed"
            )
        )
    };
}

statements! {
    const RETRIES: Locking = due_retries!(" AND l.group_name IS NULL");
    const RETRIES_OF_PACKAGE: Locking = due_retries!(" AND l.group_name IS NULL AND l.package = $4");
    const RETRIES_OF_GROUP: Locking = due_retries!(" AND l.group_name = $4");

    /// Returns when, after `now`, the next launch of no group fires or the next retry is due, if any is known.
    ///
    /// Launches that are due already wait for another host or for capacity.
    pub async fn next_wake(now: Timestamp) -> Option<Timestamp> = one_value
        "SELECT min(at) FROM (
            SELECT min(fire_time) AS at FROM launch
                WHERE status = 'open' AND group_name IS NULL AND fire_time > $1
            UNION ALL SELECT min(fire_time) FROM launch WHERE status = 'queued' AND fire_time > $1
            UNION ALL SELECT min(retry_at) FROM launch WHERE status = 'waiting' AND retry_at > $1) AS next";

    /// Returns when, after `now`, the next launch of a group fires, if any is known.
    pub async fn next_wake_of_groups(now: Timestamp) -> Option<Timestamp> = one_value
        with_classes!("group_name", "IS NOT NULL", "SELECT min(at) FROM (
            SELECT (SELECT min(l.fire_time) FROM launch l WHERE l.status = 'open'
                AND l.group_name IS NOT NULL AND l.priority = class.priority
                AND l.proposed = class.proposed AND l.group_name = class.name AND l.fire_time > $1) AS at FROM class) AS next");

    /// Returns up to `limit` launches of no group that `host` may claim, earliest first.
    pub async fn claimable(host: HostId, now: Timestamp, limit: i64) -> Vec<ClaimedLaunch> = rows locking!(
        concat!(open_launches!("IS NULL"), " ORDER BY l.fire_time LIMIT $3"),
        "FOR UPDATE OF l SKIP LOCKED"
    );

    /// Returns up to `limit` launches outside groups, on time since `since` and claimable by `host`, latest first.
    pub async fn claimable_on_time(
        host: HostId, now: Timestamp, limit: i64, since: Timestamp,
    ) -> Vec<ClaimedLaunch> = rows locking!(
        concat!(open_launches!("IS NULL"), on_time!("$4"), " ORDER BY l.fire_time DESC LIMIT $3"),
        "FOR UPDATE OF l SKIP LOCKED"
    );

    /// Returns the packages with launches outside groups on time since `since`, by priority.
    pub async fn waiting_packages_on_time(now: Timestamp, since: Timestamp) -> Vec<WaitingClass> = rows
        due_classes!("package", "IS NULL", on_time!("$2"));

    /// Returns up to `limit` launches of one class of a package, on time since `since`, latest first.
    pub async fn open_of_package_on_time(
        host: HostId, now: Timestamp, limit: i64, class: &WaitingClass, since: Timestamp,
    ) -> Vec<ClaimedLaunch> = rows locking!(
        concat!(open_launches!("IS NULL"), " AND l.priority IS NOT NULL AND l.priority = $4 AND l.proposed = $5
            AND l.package = $6", on_time!("$7"), " ORDER BY l.fire_time DESC LIMIT $3"),
        "FOR UPDATE OF l SKIP LOCKED"
    ) => [host, now, limit, class.priority, class.proposed, &class.name, since];

    /// Returns the packages with a due launch of no group, by priority.
    pub async fn waiting_packages(now: Timestamp) -> Vec<WaitingClass> = rows due_classes!("package", "IS NULL", "");

    /// Returns up to `limit` launches of one class of a package, earliest first.
    pub async fn open_of_package(
        host: HostId, now: Timestamp, limit: i64, class: &WaitingClass,
    ) -> Vec<ClaimedLaunch> = rows locking!(
        concat!(open_launches!("IS NULL"), " AND l.priority IS NOT NULL AND l.priority = $4 AND l.proposed = $5
            AND l.package = $6 ORDER BY l.fire_time LIMIT $3"),
        "FOR UPDATE OF l SKIP LOCKED"
    ) => [host, now, limit, class.priority, class.proposed, &class.name];

    /// Returns the groups with a due launch, by priority.
    pub async fn waiting_groups(now: Timestamp) -> Vec<WaitingClass> = rows due_classes!("group_name", "IS NOT NULL", "");

    /// Returns up to `limit` launches of one class of a group, earliest first.
    pub async fn open_of_group(
        host: HostId, now: Timestamp, limit: i64, class: &WaitingClass,
    ) -> Vec<ClaimedLaunch> = rows locking!(
        concat!(open_launches!("IS NOT NULL"), " AND l.priority = $4 AND l.proposed = $5
            AND l.group_name = $6 ORDER BY l.fire_time LIMIT $3"),
        "FOR UPDATE OF l SKIP LOCKED"
    ) => [host, now, limit, class.priority, class.proposed, &class.name];

    /// Returns up to `limit` launches of one class of a group, on time since `since`, latest first.
    pub async fn open_of_group_on_time(
        host: HostId, now: Timestamp, limit: i64, class: &WaitingClass, since: Timestamp,
    ) -> Vec<ClaimedLaunch> = rows locking!(
        concat!(open_launches!("IS NOT NULL"), " AND l.priority = $4 AND l.proposed = $5
            AND l.group_name = $6", on_time!("$7"), " ORDER BY l.fire_time DESC LIMIT $3"),
        "FOR UPDATE OF l SKIP LOCKED"
    ) => [host, now, limit, class.priority, class.proposed, &class.name, since];

    /// Returns the packages with a due retry of no group.
    pub async fn packages_with_retries(now: Timestamp) -> Vec<String> = values
        "SELECT DISTINCT package FROM launch
        WHERE status = 'waiting' AND retry_at <= $1 AND cancel_deadline IS NULL AND group_name IS NULL ORDER BY package";

    /// Returns the groups with a due retry.
    pub async fn groups_with_retries(now: Timestamp) -> Vec<String> = values
        "SELECT DISTINCT group_name FROM launch
        WHERE status = 'waiting' AND retry_at <= $1 AND cancel_deadline IS NULL AND group_name IS NOT NULL ORDER BY group_name";

    /// Reserves claiming a group's launches until the transaction ends. False if another host has reserved it.
    // SQLite has a single writer, which is this transaction. On Postgres the key includes the schema, because an advisory lock
    // covers the whole database and another installation may have a group of the same name.
    pub async fn lock_group(group: &str) -> bool = one_value Locking {
        sqlite: "SELECT $1 IS NOT NULL",
        postgres: "SELECT pg_try_advisory_xact_lock(720115, hashtext(current_schema() || '.' || $1))",
    };

    /// Count the runs of a group, on all hosts.
    pub async fn running_in_group(group: &str) -> i64 = one_value
        "SELECT count(*) FROM launch WHERE group_name = $1 AND status = 'running' AND group_name IS NOT NULL";
}

/// Which due retries to return.
#[derive(Debug, Clone, Copy)]
pub enum RetriesOf<'a> {
    /// Those of no group.
    AnyPackage,
    /// Those of one package and no group.
    Package(&'a str),
    Group(&'a str),
}

/// Returns up to `limit` launches whose retry is due, the earliest first, for the transaction to claim.
pub async fn retries(
    tx: &mut Tx,
    of: RetriesOf<'_>,
    host: HostId,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<ClaimedLaunch>> {
    match of {
        RetriesOf::AnyPackage => rows!(tx, RETRIES, host, now, limit),
        RetriesOf::Package(package) => rows!(tx, RETRIES_OF_PACKAGE, host, now, limit, package),
        RetriesOf::Group(group) => rows!(tx, RETRIES_OF_GROUP, host, now, limit, group),
    }
}
