//! The query plans of the statements of a tick use the partial indexes.

use campanile_store::probe;
use campanile_tests::{Backend, TestDb, on_both};

use crate::fixtures::host_with_schedules;

on_both!(
    the_statements_of_a_tick_use_their_indexes,
    the_statement_for_unfinished_launches_uses_indexes,
);

/// A distinctive piece of a statement, and the index that the statement must use.
const EXPECTED: &[(&str, &str)] = &[
    (
        "WHERE s.next_slot <= $1 ORDER BY s.next_slot",
        "schedule_due",
    ),
    ("ORDER BY s.next_slot DESC", "schedule_due"),
    ("s.origin <> 'package' ORDER BY s.next_slot", "schedule_due"),
    ("min(next_slot)", "schedule_due"),
    ("l.group_name IS NULL ORDER BY l.fire_time", "launch_open"),
    (
        "status = 'open' AND group_name IS NULL AND fire_time > $1",
        "launch_open",
    ),
    ("WITH RECURSIVE class", "launch_"),
    ("SELECT (SELECT min(l.fire_time)", "launch_group"),
    // In tables of three rows launch_open is as good.
    ("AND l.package = $6", "launch_"),
    ("AND l.group_name = $6", "launch_group"),
    ("'backfill' ORDER BY l.fire_time DESC LIMIT $3", "launch_"),
    (
        "group_name = $1 AND status = 'running'",
        "launch_running_group",
    ),
    (
        "WHERE l.status = 'waiting' AND l.retry_at <= $2",
        "launch_retry",
    ),
    ("min(retry_at)", "launch_retry"),
    ("h.ended_at IS NOT NULL THEN 'host_died'", "launch_active"),
    ("h.ended_at IS NOT NULL) AS next", "launch_active"),
    ("GROUP BY host_id", "launch_active"),
    ("status = 'running' AND lease_until > $2", "launch_active"),
    (
        "AND l.run_on IS NOT NULL AND l.fire_time < $1",
        "launch_labels",
    ),
    // Two indexes contain unclaimed launches. Either is good.
    ("h.end_reason = 'died' OR", "launch_"),
    ("WHERE name = $1 AND ended_at IS NULL", "host_live"),
    ("FROM task_run WHERE launch_id = $1", "task_run_pkey"),
    ("FROM lost_run WHERE launch_id = $1", "lost_run_pkey"),
    ("l.id < $1 ORDER BY l.id DESC", "launch_pkey"),
    ("(l.scheduled_time, l.id) < ($2, $3)", "launch_schedule"),
    ("WHERE l.id >= $1 AND l.id < $2", "launch_pkey"),
    ("'abandoned') AND l.id >= $1", "launch_failed"),
    ("'abandoned') ORDER BY id DESC", "launch_failed"),
    ("(l.scheduled_time, l.id) < ($3, $4)", "launch_schedule"),
    ("WHERE id >= $1 AND id <= $2", "launch_pkey"),
    ("FROM event WHERE id > $1", "event_pkey"),
    ("FROM launch WHERE decided_at >= $1", "launch_decided"),
    (
        "WHERE decided_at >= $1 AND status IN ('succeeded', 'failed')",
        "launch_decided",
    ),
    ("AND scheduled_time >= $2 AND status IN", "launch_schedule"),
    ("ORDER BY next_slot, cursor_at DESC LIMIT", "schedule_due"),
    ("ORDER BY l.started_at LIMIT $1", "launch_active"),
    ("FROM event WHERE id < $1", "event_pkey"),
    ("FROM token WHERE hash = $1", "token_pkey"),
    ("count(next_slot) FROM schedule", "schedule_due"),
    ("m.schedule_id = s.id WHERE s.deleted_at", "schedule_name"),
    ("FROM event WHERE at < $1 ORDER BY at", "event_at"),
    ("kind = 'clock_stepped'", "event_clock"),
    (
        "status = 'queued' AND fire_time <= $1",
        "launch_queued_fire",
    ),
    ("WITH RECURSIVE queue", "launch_queued"),
    ("status = 'queued' AND fire_time > $1", "launch_queued_fire"),
    ("min(paused_until)", "schedule_paused_until"),
    ("WHERE paused_until <= $1", "schedule_paused_until"),
    ("WHERE b.status = 'running'", "backfill_running"),
    (
        "(kind = 'backfill' OR retry_of IS NOT NULL) AND status",
        "launch_schedule",
    ),
    ("ORDER BY scheduled_time DESC LIMIT $3", "launch_schedule"),
    ("backfill_id IS NOT DISTINCT FROM $2", "launch_active"),
    ("backfill_id IS NOT DISTINCT FROM $2", "launch_unclaimed"),
    ("backfill_id IS NOT DISTINCT FROM $2", "launch_queued"),
    ("FROM launch WHERE backfill_id = $1", "launch_backfill"),
    ("status = 'pending' AND package = $1", "outbox_message_"),
    ("AND id > $1", "launch_failed"),
    ("recovered_at >= $1", "launch_recovered"),
    ("schedule_id > $1\n        ORDER BY", "launch_active"),
    ("WHERE next_slot < $1 ORDER BY", "schedule_due"),
    (
        "FROM schedule_rollup WHERE period = $1 AND",
        "schedule_rollup_",
    ),
    (
        "FROM package_rollup WHERE period = $1 AND",
        "package_rollup_",
    ),
];

/// The same on SQLite only: in tables of three rows, Postgres finds another index as good.
const EXPECTED_OF_SQLITE: &[(&str, &str)] = &[
    (
        "ORDER BY p.scheduled_time DESC, p.id DESC LIMIT 1)",
        "launch_schedule",
    ),
    ("origin = 'file'", "schedule_defined"),
    ("slot_day <= $3 GROUP BY slot_day", "removed_launches_pkey"),
    ("origin IN ('sidecar', 'package')", "schedule_defined"),
    (
        "deleted_at IS NULL AND package = $1 ORDER BY name",
        "schedule_package",
    ),
    ("origin IN ('operator', 'file')", "schedule_package"),
    ("s.package = $1 AND r.task IS NOT NULL", "schedule_package"),
    ("r.kind = 'after_completion'", "schedule_revision_counting"),
    ("LIKE '%@reboot%'", "schedule_revision_at_start"),
    ("LIKE '%\"retention\"%'", "schedule_revision_retention"),
    (
        "LIKE '%\"expect_within\"%'",
        "schedule_revision_expect_within",
    ),
    ("l.scheduled_time >= v.column2", "launch_schedule"),
    ("r.slot_day >= v.column2", "removed_launches_pkey"),
    ("l.decided_at >= $1 GROUP BY 1, 2", "launch_decided"),
    ("l.decided_at >= $1 GROUP BY 1, 2", "task_run_pkey"),
    ("FROM schedule_rollup r JOIN", "schedule_rollup_pkey"),
    ("FROM package_rollup r JOIN", "package_rollup_pkey"),
    (
        "r.period = 'hour' AND r.starts_at IN",
        "package_rollup_starts (period=? AND starts_at=?)",
    ),
    ("u.decided_day >= $1", "removed_calls_decided"),
    ("u.slot_day >= v.column2", "removed_calls_pkey"),
    ("ORDER BY scheduled_time DESC LIMIT $4", "launch_schedule"),
    ("WHERE r.name = $1)", "schedule_revision_name"),
    (
        "WHERE name = $1 AND deleted_at IS NOT NULL",
        "schedule_removed",
    ),
    ("h.name > named.n)", "host_ended"),
    ("substr(subject, 1, 200) = substr($1", "event_subject"),
    (
        "ORDER BY decided_at DESC LIMIT $2) AS newest",
        "launch_decided",
    ),
    (
        "ORDER BY decided_at DESC LIMIT 2000) AS o",
        "launch_decided",
    ),
    (
        "AS launch_id, started_at, retry_at FROM launch",
        "launch_active",
    ),
    (") AS near_slot", "launch_schedule"),
    (
        "WITH due AS MATERIALIZED (SELECT package",
        "outbox_message_next",
    ),
    ("WHERE status = 'dead' AND id", "outbox_message_dead"),
    ("ORDER BY scheduled_time LIMIT 500) AS n", "launch_schedule"),
];

async fn the_statements_of_a_tick_use_their_indexes(test: TestDb) {
    host_with_schedules(&test, 3).await;
    let mut tx = test.write().await;
    if test.backend() == Backend::Postgres {
        // In tables of three rows a scan is cheaper than any index.
        probe::execute(&mut tx, "SET LOCAL enable_seqscan = off")
            .await
            .unwrap();
    }
    let statements = probe::statements(&tx);
    let of_sqlite = match test.backend() {
        Backend::Sqlite => EXPECTED_OF_SQLITE,
        Backend::Postgres => &[],
    };
    for (piece, index) in EXPECTED.iter().chain(of_sqlite) {
        let found: Vec<_> = statements
            .iter()
            .filter(|sql| sql.contains(piece))
            .collect();
        assert!(!found.is_empty(), "no statement contains `{piece}`");
        for sql in found {
            let plan = match test.backend() {
                Backend::Sqlite => {
                    let sql = format!("EXPLAIN QUERY PLAN {sql}");
                    let rows = probe::plan(&mut tx, &sql).await.unwrap();
                    rows.join("\n")
                }
                Backend::Postgres => {
                    let sql = format!("EXPLAIN {}", with_values(sql));
                    let rows = probe::plan(&mut tx, &sql).await;
                    rows.unwrap_or_else(|error| panic!("{error}\n{sql}"))
                        .join("\n")
                }
            };
            let sqlite_key = format!("sqlite_autoindex_{}_1", index.trim_end_matches("_pkey"));
            assert!(
                plan.contains(index) || plan.contains(&sqlite_key),
                "the plan does not use {index}: {sql}\n{plan}"
            );
        }
    }
}

async fn the_statement_for_unfinished_launches_uses_indexes(test: TestDb) {
    host_with_schedules(&test, 3).await;
    let mut tx = test.write().await;
    let sql = probe::unfinished(&tx);
    let sql = match test.backend() {
        Backend::Sqlite => format!("EXPLAIN QUERY PLAN {}", sql.replace('?', "x'00'")),
        Backend::Postgres => {
            let off = "SET LOCAL enable_seqscan = off";
            probe::execute(&mut tx, off).await.unwrap();
            let ids = "'{00000000-0000-0000-0000-00000000a001}'::uuid[]";
            format!("EXPLAIN {}", sql.replace("$1", ids))
        }
    };
    let plan = probe::plan(&mut tx, &sql).await.unwrap().join("\n");
    for index in ["launch_active", "launch_unclaimed", "launch_queued"] {
        assert!(
            plan.contains(index),
            "the plan does not use {index}:\n{plan}"
        );
    }
}

/// Return the statement with a value for each parameter: an instant, an id, a name or a count.
fn with_values(sql: &str) -> String {
    const INSTANT: &str = "'2027-01-15T08:00:00Z'";
    const ID: &str = "'00000000-0000-0000-0000-00000000a001'";
    let is_limit = |parameter: &str| sql.contains(&format!("LIMIT {parameter}"));
    let mut filled = sql.to_owned();
    for parameter in ["$1", "$2", "$3", "$4", "$5", "$6", "$7"] {
        let compares = |name: &str| sql.contains(&format!("{name} = {parameter}"));
        let value = if is_limit(parameter) {
            "10"
        } else if compares("host_id")
            || compares("WHERE id")
            || sql.contains(&format!("id <> {parameter}"))
            || sql.contains(&format!("id < {parameter}"))
            || sql.contains(&format!("id <= {parameter}"))
            || sql.contains(&format!("id > {parameter}"))
            || sql.contains(&format!("id >= {parameter}"))
            || sql.contains(&format!("l.id) < ($2, {parameter})"))
            || sql.contains(&format!("l.id) < ($3, {parameter})"))
            || compares("launch_id")
            || compares("schedule_id")
            || compares("backfill_id")
            || sql.contains(&format!("backfill_id IS NOT DISTINCT FROM {parameter}"))
        {
            ID
        } else if compares("name") || compares("package") {
            "'host-1'"
        } else if compares("priority")
            || compares("run_number")
            || compares("attempt")
            || sql.contains(&format!("attempt) > ($3, $4, {parameter})"))
        {
            "5"
        } else if compares("proposed") {
            "TRUE"
        } else {
            INSTANT
        };
        filled = filled.replace(parameter, value);
    }
    filled
}
