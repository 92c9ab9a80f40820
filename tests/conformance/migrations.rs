//! Migrations: how a database gets its schema, which schemas are refused, and that both databases have the same schema.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use campanile_store::{Db, DbError};
use campanile_tests::dump::{columns, dump, tables};
use campanile_tests::{Backend, Place, TestDb, fresh_db, on_both, on_both_empty};

on_both!(
    migrating_twice_changes_nothing,
    a_database_of_a_newer_version_is_refused,
    a_changed_migration_is_refused,
    the_schema_is_as_in_the_snapshot_file,
);
on_both_empty!(
    an_empty_database_is_not_current,
    connections_may_migrate_concurrently,
);

fn newest_version(backend: Backend) -> i64 {
    let folder = migrations().join(backend.name());
    let files = std::fs::read_dir(&folder).unwrap();
    files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .map(|name| name.split_once('_').unwrap().0.parse().unwrap())
        .max()
        .unwrap()
}

fn migrations() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations")
}

async fn migrating_twice_changes_nothing(test: TestDb) {
    let schema = schema(&test).await;
    let rows = dump(&test).await;
    test.db.migrate().await.unwrap();
    let again = Db::open_and_migrate(&test.place.url).await.unwrap();
    let states = again.migrations().await.unwrap();
    assert_eq!(states.len() as i64, newest_version(test.backend()));
    assert!(states.iter().all(|state| state.applied));
    assert_eq!((states[0].version, &*states[0].name), (1, "first schema"));
    Db::open_current(&test.place.url).await.unwrap();
    assert_eq!(self::schema(&test).await, schema);
    assert_eq!(dump(&test).await, rows);
}

async fn an_empty_database_is_not_current(place: Place) {
    if place.backend == Backend::Sqlite {
        std::fs::write(place.folder.path().join("campanile.db"), b"").unwrap();
    }
    let Err(error) = Db::open_current(&place.url).await else {
        panic!("an empty database was opened");
    };
    assert!(matches!(error, DbError::Schema(_)));
    assert_eq!(
        error.to_string(),
        format!(
            "the database {} lacks schema version 1; start `campanile serve` on it, or run `campanile db migrate`",
            place.url
        )
    );
    let db = Db::open(&place.url).await.unwrap();
    assert!(
        db.migrations()
            .await
            .unwrap()
            .iter()
            .all(|state| !state.applied)
    );
    db.migrate().await.unwrap();
    Db::open_current(&place.url).await.unwrap();
}

async fn connections_may_migrate_concurrently(place: Place) {
    let mut migrating = Vec::new();
    for _ in 0..6 {
        let url = place.url.clone();
        migrating.push(tokio::spawn(async move {
            Db::open_and_migrate(&url)
                .await
                .map(|_| ())
                .map_err(|error| error.to_string())
        }));
    }
    for task in migrating {
        assert_eq!(task.await.unwrap(), Ok(()));
    }
    Db::open_current(&place.url).await.unwrap();
}

async fn a_database_of_a_newer_version_is_refused(test: TestDb) {
    let known = newest_version(test.backend());
    test.execute(
        "INSERT INTO _sqlx_migrations (version, description, installed_on, success, checksum, execution_time)
            SELECT 9000, 'the future', installed_on, success, checksum, execution_time FROM _sqlx_migrations WHERE version = 1",
    )
    .await;
    let sentence = format!(
        "the database {} has schema version 9000, newer than version {known} which this campanile knows; use a newer campanile",
        test.place.url
    );
    for opened in [
        Db::open_current(&test.place.url).await.map(|_| ()),
        Db::open_and_migrate(&test.place.url).await.map(|_| ()),
        test.db.migrate().await,
        test.db.migrations().await.map(|_| ()),
    ] {
        let Err(error) = opened else {
            panic!("a newer database was opened");
        };
        assert!(matches!(error, DbError::NewerSchema(_)));
        assert_eq!(error.to_string(), sentence);
    }
}

async fn a_changed_migration_is_refused(test: TestDb) {
    let other = match test.backend() {
        Backend::Sqlite => "X'00'",
        Backend::Postgres => "'\\x00'",
    };
    test.execute(&format!(
        "UPDATE _sqlx_migrations SET checksum = {other} WHERE version = 1"
    ))
    .await;
    let Err(error) = test.db.migrate().await else {
        panic!("a changed migration was accepted");
    };
    assert!(matches!(error, DbError::Schema(_)));
    assert_eq!(
        error.to_string(),
        format!(
            "schema version 1 of {} was made by a different build of Campanile; use that build, or a fresh database",
            test.place.url
        )
    );
}

async fn the_schema_is_as_in_the_snapshot_file(test: TestDb) {
    let file = migrations().join(format!("schema.{}.sql", test.backend().name()));
    let head = format!(
        "-- The schema that migrations/{}/ makes. Written by a test: `UPDATE_SNAPSHOTS=1 cargo test -p campanile-tests the_schema_is`.\n\n",
        test.backend().name()
    );
    let found = head + &schema(&test).await;
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&file, &found).unwrap();
    }
    let recorded = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == recorded,
        "{} differs from the schema of the migrations; if the change is intended, run this test with UPDATE_SNAPSHOTS=1. The schema is:\n{found}",
        file.display()
    );
}

/// Return the tables with their columns and constraints, and the indexes, as SQL.
async fn schema(test: &TestDb) -> String {
    let sql = match test.backend() {
        // The text of the migrations, without comments and empty lines.
        Backend::Sqlite => {
            "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND tbl_name <> '_sqlx_migrations' ORDER BY tbl_name, type DESC, name"
        }
        Backend::Postgres => POSTGRES_SCHEMA,
    };
    let statements = test.rows(sql).await.concat();
    let cleaned = statements.iter().map(|statement| {
        statement
            .lines()
            .map(|line| line.split("--").next().unwrap_or_default().trim_end())
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join("\n")
            + ";\n"
    });
    cleaned.collect()
}

const POSTGRES_SCHEMA: &str = r"
SELECT statement FROM (
    SELECT c.relname AS of, 1 AS place, c.relname AS name, 'CREATE TABLE ' || c.relname || E' (\n' || (
        SELECT string_agg('    ' || line, E',\n' ORDER BY kind, place, line) FROM (
            SELECT 1 AS kind, a.attnum AS place, a.attname || ' ' || upper(format_type(a.atttypid, a.atttypmod))
                || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
                || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '') AS line
            FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            UNION ALL
            SELECT 2, 0, pg_get_constraintdef(k.oid) FROM pg_constraint k
            WHERE k.conrelid = c.oid AND k.contype IN ('p', 'u', 'f', 'c')
        ) lines) || E'\n)'
        || coalesce(' WITH (' || array_to_string(c.reloptions, ', ') || ')', '') AS statement
    FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
    UNION ALL
    SELECT i.tablename, 2, i.indexname, replace(i.indexdef, ' ON ' || i.schemaname || '.', ' ON ')
    FROM pg_indexes i WHERE i.schemaname = current_schema()
        AND NOT EXISTS (SELECT 1 FROM pg_constraint k JOIN pg_namespace n ON n.oid = k.connamespace
            WHERE k.conname = i.indexname AND n.nspname = i.schemaname)
) statements WHERE of <> '_sqlx_migrations' ORDER BY of, place, name";

/// Return one name for the equivalent column types of both databases.
fn common_type(kind: &str) -> &str {
    match kind {
        "BLOB" | "uuid" | "bytea" => "bytes",
        "TEXT" | "text" => "text",
        // SQLite keeps instants and booleans as integers.
        "INTEGER" | "bigint" | "boolean" | "timestamp with time zone" => "integer",
        "REAL" | "double precision" => "real",
        other => panic!("no common name for the type {other}"),
    }
}

type TableProperties = BTreeMap<String, String>;

/// Return the properties that must be the same on both databases: tables, columns, keys, and the names and columns of indexes.
async fn common_schema(test: &TestDb) -> BTreeMap<String, TableProperties> {
    let mut all = BTreeMap::new();
    for table in tables(test).await {
        let mut properties = TableProperties::new();
        for (column, kind) in columns(test, &table).await {
            properties.insert(column, common_type(&kind).to_owned());
        }
        let nullable = match test.backend() {
            Backend::Sqlite => format!(r#"SELECT name FROM pragma_table_info('{table}') WHERE "notnull" = 0"#),
            Backend::Postgres => format!(
                "SELECT column_name::text FROM information_schema.columns
                 WHERE table_schema = current_schema() AND table_name = '{table}' AND is_nullable = 'YES'"
            ),
        };
        for column in test.rows(&nullable).await.concat() {
            properties.entry(column).or_default().push_str(" or NULL");
        }
        let keys = match test.backend() {
            Backend::Sqlite => format!(
                "SELECT name, 'key ' || pk FROM pragma_table_info('{table}') WHERE pk > 0
                 UNION ALL SELECT \"from\", 'references ' || \"table\" || ' ' || \"to\" FROM pragma_foreign_key_list('{table}')"
            ),
            Backend::Postgres => format!(
                "SELECT a.attname::text, CASE k.contype WHEN 'p' THEN 'key ' || array_position(k.conkey, a.attnum)
                    ELSE 'references ' || t.relname || ' ' || b.attname END
                 FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)
                    LEFT JOIN pg_class t ON t.oid = k.confrelid
                    LEFT JOIN pg_attribute b ON b.attrelid = k.confrelid AND b.attnum = k.confkey[1]
                 WHERE k.conrelid = '{table}'::regclass AND k.contype IN ('p', 'f')"
            ),
        };
        let mut keys = test.rows(&keys).await;
        keys.sort();
        for key in keys {
            let property = properties.entry(key[0].clone()).or_default();
            *property = format!("{property}, {}", key[1]);
        }
        let indexes = match test.backend() {
            Backend::Sqlite => format!(
                "SELECT l.name, l.\"unique\" || ' ' || l.partial || ' ' || group_concat(i.name)
                 FROM pragma_index_list('{table}') l, pragma_index_info(l.name) i WHERE l.origin = 'c' GROUP BY l.name"
            ),
            Backend::Postgres => format!(
                "SELECT c.relname::text, i.indisunique::int || ' ' || (i.indpred IS NOT NULL)::int || ' ' || (
                    SELECT string_agg(a.attname, ',' ORDER BY array_position(i.indkey::int2[], a.attnum))
                    FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey))
                 FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                 WHERE i.indrelid = '{table}'::regclass AND NOT i.indisprimary"
            ),
        };
        for index in test.rows(&indexes).await {
            properties.insert(format!("index {}", index[0]), index[1].clone());
        }
        all.insert(table, properties);
    }
    all
}

#[tokio::test]
async fn both_databases_have_the_same_tables() {
    let sqlite = common_schema(&fresh_db(Backend::Sqlite).await).await;
    let postgres = common_schema(&fresh_db(Backend::Postgres).await).await;
    assert!(sqlite.len() >= 12, "{:?}", sqlite.keys());
    for (table, properties) in &sqlite {
        assert_eq!(Some(properties), postgres.get(table), "{table}");
    }
    assert_eq!(sqlite.len(), postgres.len());
}
