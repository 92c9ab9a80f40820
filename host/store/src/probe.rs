//! Looking into a database past the functions of this room.
//!
//! For tests: they check that those functions, and the tables' own constraints, do what they say.

use sqlx::{AssertSqlSafe, Executor as _, Row as _, SqlSafeStr as _};

use super::{
    DbError, Tx, backfills, buckets, changes, events, history, hosts, launches, on, overlap,
    package_versions, packages, recovery, runs, schedules, sidecars, stats, task_runs,
};

/// Run any SQL, also several statements.
pub async fn execute(tx: &mut Tx, sql: &str) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(conn)
        .await
        .map(|_| ()))?;
    Ok(())
}

/// The rows of a query whose columns are all texts; a missing value reads as `~`.
pub async fn rows(tx: &mut Tx, sql: &str) -> Result<Vec<Vec<String>>, DbError> {
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

/// Every statement that runs on the database of `tx`, apart from those over many rows.
pub fn statements(tx: &Tx) -> Vec<&'static str> {
    let shared = [
        backfills::STATEMENTS,
        buckets::STATEMENTS,
        changes::STATEMENTS,
        events::STATEMENTS,
        hosts::STATEMENTS,
        launches::STATEMENTS,
        overlap::STATEMENTS,
        package_versions::STATEMENTS,
        packages::STATEMENTS,
        recovery::STATEMENTS,
        runs::STATEMENTS,
        schedules::STATEMENTS,
        sidecars::STATEMENTS,
        stats::STATEMENTS,
        task_runs::STATEMENTS,
        history::STATEMENTS,
    ];
    let locking = [
        recovery::LOCKING_STATEMENTS,
        runs::LOCKING_STATEMENTS,
        schedules::LOCKING_STATEMENTS,
    ];
    let mut all = shared.concat();
    if let Tx::Postgres(_) = tx {
        all.extend(locking.concat());
    }
    all
}

/// The statement that looks for what goes on beside a slot, for two schedules.
pub fn unfinished(tx: &Tx) -> String {
    overlap::UNFINISHED.sql(tx, 2).0
}

/// Let the database read a statement, without running it.
pub async fn prepare(tx: &mut Tx, sql: &'static str) -> Result<(), DbError> {
    on!(tx, |conn| conn
        .prepare(sql.into_sql_str())
        .await
        .map(|_| ()))?;
    Ok(())
}

/// How the database would run a statement: the text at the end of each row of its `EXPLAIN`.
pub async fn plan(tx: &mut Tx, explain: &str) -> Result<Vec<String>, DbError> {
    Ok(on!(tx, |conn| sqlx::query(AssertSqlSafe(explain))
        .fetch_all(conn)
        .await?
        .iter()
        .map(|row| row.try_get::<String, _>(row.len() - 1))
        .collect::<Result<Vec<String>, sqlx::Error>>())?)
}
