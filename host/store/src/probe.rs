//! Access for tests that goes past the other functions: raw SQL, statements and query plans.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::{AssertSqlSafe, Executor as _, Row as _, SqlSafeStr as _};

use super::sql::on;
use super::{
    Result, Tx, alert_facts, alert_messages, alerts, api_answers, backfills, backup, buckets,
    calendar, changes, chores, corrections, events, history, hosts, launch, outbox, package_record,
    package_removal, package_versions, packages, removed_launches, results, retention, rollup,
    runs, schedule_defaults, schedules, seals, sidecars, size, skipped_ranges, stats, task_runs,
    task_use, tokens, troubles, use_growth,
};

/// Run any SQL, also several statements.
pub async fn execute(tx: &mut Tx, sql: &str) -> Result {
    on!(tx, |conn| {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await?;
    });
    Ok(())
}

/// Returns the rows of a query whose columns are all texts; `~` stands for a missing value.
pub async fn rows(tx: &mut Tx, sql: &str) -> Result<Vec<Vec<String>>> {
    Ok(on!(tx, |conn| sqlx::query(AssertSqlSafe(sql))
        .fetch_all(conn)
        .await?
        .iter()
        .map(|row| {
            (0..row.len())
                .map(|column| {
                    row.try_get::<Option<String>, _>(column)
                        .map(|text| text.unwrap_or_else(|| "~".to_owned()))
                })
                .collect::<Result<Vec<String>, sqlx::Error>>()
        })
        .collect::<Result<Vec<_>, sqlx::Error>>())?)
}

/// Returns every statement that the database of `tx` can prepare without values.
pub fn statements(tx: &Tx) -> Vec<String> {
    let modules = [
        alert_facts::STATEMENTS,
        alert_messages::STATEMENTS,
        alert_messages::delivery::STATEMENTS,
        alerts::STATEMENTS,
        api_answers::STATEMENTS,
        backfills::STATEMENTS,
        backup::STATEMENTS,
        buckets::STATEMENTS,
        calendar::STATEMENTS,
        changes::STATEMENTS,
        chores::STATEMENTS,
        corrections::STATEMENTS,
        events::STATEMENTS,
        history::STATEMENTS,
        hosts::STATEMENTS,
        outbox::STATEMENTS,
        outbox::delivery::STATEMENTS,
        package_versions::STATEMENTS,
        package_record::STATEMENTS,
        package_removal::STATEMENTS,
        packages::STATEMENTS,
        removed_launches::STATEMENTS,
        results::STATEMENTS,
        retention::STATEMENTS,
        rollup::STATEMENTS,
        runs::STATEMENTS,
        schedule_defaults::STATEMENTS,
        schedules::STATEMENTS,
        seals::STATEMENTS,
        sidecars::STATEMENTS,
        size::STATEMENTS,
        skipped_ranges::STATEMENTS,
        stats::STATEMENTS,
        task_runs::STATEMENTS,
        task_use::STATEMENTS,
        tokens::STATEMENTS,
        troubles::STATEMENTS,
        use_growth::STATEMENTS,
    ];
    let all = modules.into_iter().chain(launch::STATEMENTS).flatten();
    all.filter_map(|statement| statement.text(tx)).collect()
}

/// Returns the statement that finds the unfinished launches of two schedules.
pub fn unfinished(tx: &Tx) -> String {
    match tx {
        Tx::Sqlite(_) => launch::UNFINISHED.with_rows(2).0,
        Tx::Postgres(_) => launch::UNFINISHED.with_arrays().0,
    }
}

/// Prepare a statement without running it.
pub async fn prepare(tx: &mut Tx, sql: String) -> Result {
    on!(tx, |conn| {
        conn.prepare(AssertSqlSafe(sql).into_sql_str()).await?;
    });
    Ok(())
}

/// Count in `steps` the steps of the statements that SQLite runs on the connection of `tx` from now on, also in later
/// transactions: some for each row that it reads. Postgres counts rows by itself.
pub async fn count_steps(tx: &mut Tx, steps: Arc<AtomicU64>) -> Result {
    if let Tx::Sqlite(tx) = tx {
        let mut connection = tx.tx.lock_handle().await?;
        connection.set_progress_handler(1, move || {
            steps.fetch_add(1, Ordering::SeqCst);
            true
        });
    }
    Ok(())
}

/// Returns how the database would run a statement: the text at the end of each row of its `EXPLAIN`.
pub async fn plan(tx: &mut Tx, explain: &str) -> Result<Vec<String>> {
    Ok(on!(tx, |conn| sqlx::query(AssertSqlSafe(explain))
        .fetch_all(conn)
        .await?
        .iter()
        .map(|row| row.try_get::<String, _>(row.len() - 1))
        .collect::<Result<Vec<String>, sqlx::Error>>())?)
}
