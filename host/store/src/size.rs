//! The size of the record, and the counts of its oldest launches. No statement reads all launches.

use std::path::Path;

use serde::Serialize;
use sqlx::{AssertSqlSafe, FromRow};

use super::partial::with_end;
use super::sql::{Locking, one_row, one_value, rows, statements};
use super::{Db, Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;

/// The most pages of a SQLite file that are read to measure its tables: 64 MiB of pages of 4 KiB.
const MEASURED_PAGES_MAX: i64 = 16_384;
/// A guess of the bytes of one index entry besides the key, and of the header of a row.
const ENTRY_BYTES: f64 = 24.0;

/// The size of a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct DatabaseSize {
    /// The bytes of the database: of the file on SQLite, of all files on Postgres.
    pub bytes: i64,
    /// The bytes of the file that hold no rows and are used again. Null on Postgres.
    pub free_bytes: Option<i64>,
    /// The bytes of SQLite's write-ahead log, a file beside the database. Null on Postgres.
    pub wal_bytes: Option<i64>,
    /// Whether the bytes of the tables are estimates: of a large SQLite file only the sum is exact.
    pub estimated: bool,
    /// The largest first.
    pub tables: Vec<TableSize>,
}

/// The size of a table with its indexes.
#[derive(Debug, Clone, PartialEq, Eq, FromRow, Serialize, schemars::JsonSchema)]
pub struct TableSize {
    pub table: String,
    /// An estimate.
    pub rows: i64,
    pub bytes: i64,
}

/// What the tasks of a package have added to the record.
#[derive(Debug, Clone, PartialEq, Eq, FromRow, Serialize, schemars::JsonSchema)]
pub struct PackageSize {
    pub package: String,
    /// The bytes of outputs, logs and messages, on all days that are recorded.
    pub bytes: i64,
}

/// Launches that ended before an instant, by status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRow)]
pub struct OldLaunches {
    /// How many launches were looked at.
    pub searched: i64,
    pub succeeded: i64,
    /// Failed, unknown, abandoned or cancelled.
    pub failed: i64,
    pub skipped: i64,
}

statements! {
    // The pages of the file, how many of them are free, and the bytes of a page.
    const PAGES: Locking = Locking {
        sqlite: "SELECT page_count, freelist_count, page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
        postgres: "SELECT CAST(0 AS BIGINT), CAST(0 AS BIGINT), CAST(0 AS BIGINT)",
    };
    // SQLite counts the pages of each table and its indexes. Both databases estimate the rows.
    const MEASURED: Locking = Locking {
        sqlite: "SELECT s.tbl_name AS \"table\", 0 AS rows, sum(d.pgsize) AS bytes FROM dbstat d JOIN sqlite_schema s ON s.name = d.name
            WHERE d.aggregate = TRUE AND s.tbl_name <> '_sqlx_migrations' GROUP BY s.tbl_name",
        postgres: "SELECT c.relname::text AS \"table\", coalesce(t.n_live_tup, 0) AS rows, pg_total_relation_size(c.oid) AS bytes
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_stat_user_tables t ON t.relid = c.oid
            WHERE n.nspname = current_schema() AND c.relkind = 'r' AND c.relname <> '_sqlx_migrations'",
    };
    // The columns of each table, as a sum of their bytes, and the number of its indexes.
    const COLUMNS: Locking = Locking {
        sqlite: "SELECT s.name, (SELECT group_concat('coalesce(octet_length(' || c.name || '), 0)', ' + ') FROM pragma_table_info(s.name) c),
                (SELECT count(*) FROM sqlite_schema i WHERE i.type = 'index' AND i.tbl_name = s.name)
            FROM sqlite_schema s WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND s.name <> '_sqlx_migrations'",
        postgres: "SELECT ''::text, ''::text, CAST(0 AS BIGINT)",
    };

    /// Returns the bytes that rows and indexes occupy; on Postgres an estimate.
    ///
    /// Removing rows lowers it at once, although the files keep their size.
    // All rows count as large as the newest ones. The sizes of an index entry and of the header of a row are guesses.
    pub async fn used_bytes() -> i64 = one_value Locking {
        sqlite: "SELECT ((SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count))
            * (SELECT page_size FROM pragma_page_size)",
        postgres: "SELECT CAST(
            (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = current_schema() AND c.relkind = 'r' AND c.relname NOT IN ('launch', 'task_run'))
            + coalesce((SELECT n_live_tup FROM pg_stat_user_tables WHERE schemaname = current_schema() AND relname = 'launch'), 0)
                * coalesce((SELECT avg(pg_column_size(l.*)) + 150 FROM (SELECT * FROM launch ORDER BY id DESC LIMIT 500) AS l), 0)
            + coalesce((SELECT n_live_tup FROM pg_stat_user_tables WHERE schemaname = current_schema() AND relname = 'task_run'), 0)
                * coalesce((SELECT avg(pg_column_size(t.*)) + 80 FROM (SELECT * FROM task_run ORDER BY launch_id DESC LIMIT 500) AS t), 0)
            AS BIGINT)",
    };

    /// Returns about how many launches there are.
    pub async fn launch_rows() -> i64 = one_value Locking {
        sqlite: "SELECT coalesce((SELECT max(rowid) FROM launch) - (SELECT min(rowid) FROM launch) + 1, 0)",
        postgres: "SELECT coalesce((SELECT n_live_tup FROM pg_stat_user_tables
            WHERE schemaname = current_schema() AND relname = 'launch'), 0)",
    };

    /// Returns what the tasks of packages have added to the record, of the `limit` packages that added the most.
    // The sum of a namespace has a name that ends in a slash.
    pub async fn packages(limit: i64) -> Vec<PackageSize> = rows
        "SELECT package, CAST(sum(bytes) AS BIGINT) AS bytes FROM package_record WHERE package NOT LIKE '%/' GROUP BY package ORDER BY 2 DESC, package LIMIT $1";

    /// Returns the slot of the oldest launch.
    pub async fn oldest_launch() -> Option<Timestamp> = value "SELECT scheduled_time FROM launch ORDER BY id LIMIT 1";

    /// Count launches among the `limit` oldest: for each kind of end, those that ended before its instant. A kind without an
    /// instant counts none.
    pub async fn old_launches(
        until: LaunchId, limit: i64, succeeded: Option<Timestamp>, failed: Option<Timestamp>, skipped: Option<Timestamp>,
    ) -> OldLaunches = one_row
        "SELECT count(*) AS searched,
            count(*) FILTER (WHERE status = 'succeeded' AND finished_at < $3) AS succeeded,
            count(*) FILTER (WHERE status IN ('failed', 'unknown', 'abandoned', 'cancelled') AND finished_at < $4) AS failed,
            count(*) FILTER (WHERE status = 'skipped' AND finished_at < $5) AS skipped
        FROM (SELECT status, finished_at FROM launch WHERE id < $1 ORDER BY id LIMIT $2) AS oldest";
}

/// Measure the database of `tx`, which is `db`.
pub async fn measure(db: &Db, tx: &mut Tx) -> Result<DatabaseSize> {
    let mut size = match tx {
        Tx::Sqlite(_) => measure_sqlite(db, tx).await?,
        Tx::Postgres(_) => measure_postgres(tx).await?,
    };
    size.tables
        .sort_by(|a, b| (b.bytes, &a.table).cmp(&(a.bytes, &b.table)));
    Ok(size)
}

async fn measure_postgres(tx: &mut Tx) -> Result<DatabaseSize> {
    let database = "SELECT pg_database_size(current_database())";
    Ok(DatabaseSize {
        bytes: one_value!(tx, database)?,
        free_bytes: None,
        wal_bytes: None,
        estimated: false,
        tables: rows!(tx, MEASURED)?,
    })
}

async fn measure_sqlite(db: &Db, tx: &mut Tx) -> Result<DatabaseSize> {
    let (pages, free_pages, page_bytes): (i64, i64, i64) = one_row!(tx, PAGES)?;
    let estimated = pages > MEASURED_PAGES_MAX;
    let mut tables = estimate(tx, (pages - free_pages) * page_bytes).await?;
    if !estimated {
        let measured: Vec<TableSize> = rows!(tx, MEASURED)?;
        for table in &mut tables {
            let exact = measured.iter().find(|exact| exact.table == table.table);
            table.bytes = exact.map_or(0, |exact| exact.bytes);
        }
    }
    Ok(DatabaseSize {
        bytes: pages * page_bytes,
        free_bytes: Some(free_pages * page_bytes),
        wal_bytes: db.url().sqlite_path().map(wal_bytes),
        estimated,
        tables,
    })
}

/// Divide the used bytes of a SQLite file between its tables, by their rows and by the size of their newest rows.
async fn estimate(tx: &mut Tx, used_bytes: i64) -> Result<Vec<TableSize>> {
    let tables: Vec<(String, String, i64)> = rows!(tx, COLUMNS)?;
    let mut weights = Vec::new();
    for (table, columns, indexes) in tables {
        let (rows, row_bytes) = sample(tx, &table, &columns).await?;
        let weight = rows as f64 * (row_bytes + ENTRY_BYTES * (indexes as f64 + 1.0));
        weights.push((table, rows, weight));
    }
    let sum: f64 = weights.iter().map(|(.., weight)| weight).sum();
    let sizes = weights.into_iter().map(|(table, rows, weight)| TableSize {
        table,
        rows,
        bytes: (used_bytes as f64 * weight / sum.max(1.0)) as i64,
    });
    Ok(sizes.collect())
}

/// Returns about how many rows a table of SQLite has, and the average bytes of its newest ones.
async fn sample(tx: &mut Tx, table: &str, columns: &str) -> Result<(i64, f64)> {
    let sql = format!(
        "SELECT coalesce((SELECT max(rowid) FROM {table}) - (SELECT min(rowid) FROM {table}) + 1, 0),
            coalesce((SELECT avg({columns}) FROM (SELECT * FROM {table} ORDER BY rowid DESC LIMIT 100)), 0.0)"
    );
    // The names come from the schema.
    let query = sqlx::query_as(AssertSqlSafe(sql));
    match tx {
        Tx::Sqlite(tx) => Ok(query.fetch_one(&mut *tx.tx).await?),
        Tx::Postgres(_) => Ok((0, 0.0)),
    }
}

fn wal_bytes(database: &Path) -> i64 {
    let found = std::fs::metadata(with_end(database, "-wal")).map_or(0, |found| found.len());
    i64::try_from(found).unwrap_or(i64::MAX)
}
