//! Writes all rows of a database as text: the same rows give the same text on both databases.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::{Backend, TestDb};

/// Columns whose values the store draws at random.
const RANDOM_COLUMNS: &[(&str, &str)] = &[("event", "id")];

/// Return the names of Campanile's tables, sorted, without the migrator's table.
pub async fn tables(test: &TestDb) -> Vec<String> {
    let sql = match test.backend() {
        Backend::Sqlite => {
            "SELECT name FROM sqlite_schema WHERE type = 'table'
                AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name <> '_sqlx_migrations' ORDER BY name"
        }
        Backend::Postgres => {
            "SELECT table_name::text FROM information_schema.tables
                WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' AND table_name <> '_sqlx_migrations' ORDER BY table_name"
        }
    };
    test.rows(sql).await.concat()
}

/// Return the columns of a table with their types as the database names them, in the order of the table.
pub async fn columns(test: &TestDb, table: &str) -> Vec<(String, String)> {
    let sql = match test.backend() {
        Backend::Sqlite => format!("SELECT name, type FROM pragma_table_info('{table}') ORDER BY cid"),
        Backend::Postgres => format!(
            "SELECT column_name::text, data_type::text FROM information_schema.columns
                WHERE table_schema = current_schema() AND table_name = '{table}' ORDER BY ordinal_position"
        ),
    };
    let rows = test.rows(&sql).await;
    rows.into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect()
}

/// Return the rows of one table as sorted lines.
pub async fn dump_table(test: &TestDb, table: &str) -> Vec<String> {
    // By name: the order of columns does not matter.
    let columns: BTreeMap<String, String> = columns(test, table)
        .await
        .into_iter()
        .filter(|(column, _)| !RANDOM_COLUMNS.contains(&(table, column)))
        .collect();
    let texts: Vec<String> = columns
        .iter()
        .map(|(column, kind)| as_text(column, kind))
        .collect();
    let sql = format!("SELECT {} FROM {table}", texts.join(", "));
    let mut lines: Vec<String> = test
        .rows(&sql)
        .await
        .into_iter()
        .map(|row| {
            let values = columns.keys().zip(row);
            let values: Vec<String> = values
                .map(|(column, value)| format!("{column}={value}"))
                .collect();
            format!("{table}: {}", values.join(" "))
        })
        .collect();
    lines.sort();
    lines
}

/// Return the rows of all tables, one line each.
pub async fn dump(test: &TestDb) -> String {
    let mut text = String::new();
    for table in tables(test).await {
        for line in dump_table(test, &table).await {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

fn as_text(column: &str, kind: &str) -> String {
    match kind {
        // SQLite
        // `hex` and `printf` turn NULL into a text.
        "BLOB" => format!("iif({column} IS NULL, NULL, lower(hex({column})))"),
        "REAL" => format!("iif({column} IS NULL, NULL, printf('%.6f', {column}))"),
        "INTEGER" => format!("CAST({column} AS TEXT)"),
        "TEXT" => column.to_owned(),
        // Postgres
        "bytea" => format!("encode({column}, 'hex')"),
        "uuid" => format!("replace({column}::text, '-', '')"),
        "bigint" | "text" => format!("{column}::text"),
        "boolean" => format!("{column}::int::text"),
        "double precision" => format!("round({column}::numeric, 6)::text"),
        "timestamp with time zone" => {
            // As SQLite stores it: microseconds from 1970.
            format!("CAST(extract(epoch FROM {column}) * 1000000 AS BIGINT)::text")
        }
        other => panic!("no conversion to text for the type {other} of {column}"),
    }
}
