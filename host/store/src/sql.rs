//! Declare and run statements: one text for both databases.
//!
//! A module declares its statements with [`statements!`], which also lists them for the test that prepares each of them
//! on both databases. Most statements are declared together with the function that runs them. Functions written by hand
//! run a constant with these macros:
//!
//! | macro | result |
//! |---|---|
//! | `run!`, `changed!`, `execute!` | nothing; whether one row changed; the number of changed rows |
//! | `rows!`, `row!`, `one_row!` | all rows; 0 or 1 row; exactly 1 row |
//! | `readable_rows!` | all rows except undecodable ones |
//! | `values!`, `value!`, `one_value!` | the same for a query of one column |
//! | the macros with `batch` | run a [`Batch`] over many rows, so that hundreds of launches share one round trip |

use sqlx::AssertSqlSafe;

use super::Tx;

/// A statement that a test prepares on each database.
pub(super) trait Statement {
    /// Returns the text for the database of `tx`. `None` if that database cannot prepare it before values are bound.
    fn text(&self, tx: &Tx) -> Option<String>;
}

impl<S: Sql> Statement for S {
    fn text(&self, tx: &Tx) -> Option<String> {
        Some(self.sql(tx).to_owned())
    }
}

/// A statement whose text does not depend on values.
pub(super) trait Sql {
    /// Returns the text for the database of `tx`.
    fn sql(&self, tx: &Tx) -> &'static str;
}

impl Sql for &'static str {
    fn sql(&self, _: &Tx) -> &'static str {
        self
    }
}

/// A `SELECT` whose rows the transaction is about to change.
///
/// On Postgres it locks the rows, so that two hosts that read at the same time get different rows. SQLite has
/// one writer and needs no lock.
pub(super) struct Locking {
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

impl Sql for Locking {
    fn sql(&self, tx: &Tx) -> &'static str {
        match tx {
            Tx::Sqlite(_) => self.sqlite,
            Tx::Postgres(_) => self.postgres,
        }
    }
}

/// A statement for many rows. Its text has a `VALUES` list of one row, `VALUES ($1, $2)`.
///
/// For SQLite that row is repeated, with rows of nulls padding the statement to one of a few sizes. So no statement may match or
/// insert anything for a null in its first column. Postgres gets one array per column, `unnest($1, $2)`, keeping its text and its
/// plan the same for any number of rows. Both name the columns `column1`, `column2`, …
///
/// In the tail of an `UPDATE`, or of a `SELECT` by ids, write conditions other than the id as `(status = 'running') IS TRUE`. With a
/// plain `status = 'running'`, SQLite scans the table or an index on `status`, searching the list for each row. Postgres treats both
/// forms alike.
///
/// Transactions lock launches in the order of their ids to rule out deadlocks. A batch changing launches must say how it follows
/// this rule: see [`RowLocks`].
pub(super) struct Batch {
    text: Locking,
    locks: RowLocks,
}

/// How a batch on Postgres locks the launches it changes. Plans may change them in any order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RowLocks {
    /// It changes no launches, or the transaction has already locked them.
    Held,
    /// In the order of their ids, before changing any.
    InOrder,
    /// As for `InOrder`, skipping launches locked by another transaction, which then stay unchanged.
    SkipLocked,
}

/// The condition identifying each launch in a locking batch.
const FOUND: &str = "launch.id = v.column1";

/// The numbers of rows that a statement for SQLite can have. Few sizes keep the number of prepared statements small. The
/// largest size keeps the number of bound values below SQLite's limit of 32 766.
const SIZES: [usize; 9] = [1, 4, 16, 32, 64, 96, 128, 192, SQLITE_ROWS_MAX];

/// The most rows of a statement for SQLite.
pub(super) const SQLITE_ROWS_MAX: usize = 256;

/// The most rows of a statement for Postgres.
pub(super) const ROWS_MAX: usize = 1_024;

impl Batch {
    /// A batch with one text for both databases.
    pub const fn new(text: &'static str) -> Batch {
        Batch::of(Locking {
            sqlite: text,
            postgres: text,
        })
    }

    /// A batch with a separate text for each database.
    pub const fn of(text: Locking) -> Batch {
        let locks = RowLocks::Held;
        Batch { text, locks }
    }

    /// An `UPDATE` of unfinished launches, with ids in the first column and a condition beginning with [`FOUND`].
    pub const fn of_launches(locks: RowLocks, text: &'static str) -> Batch {
        Batch {
            locks,
            ..Batch::new(text)
        }
    }

    /// Returns the statement for SQLite with at least `rows` rows: `… VALUES (?,?), (?,?) …`. Values that are not bound are
    /// null.
    ///
    /// SQLite handles `$1` as a named parameter, and looking up thousands of names takes longer than writing the rows.
    pub fn with_rows(&self, rows: usize) -> AssertSqlSafe<String> {
        let rows = SIZES
            .into_iter()
            .find(|size| *size >= rows)
            .unwrap_or(SQLITE_ROWS_MAX);
        let text = self.text.sqlite;
        let (head, row, tail) = split(text);
        let columns = row.matches('$').count();
        let row = format!("({})", vec!["?"; columns].join(","));
        let rows = vec![row; rows].join(", ");
        let insert = head
            .strip_suffix("VALUES ")
            .filter(|head| !head.ends_with('('));
        let sql = match insert {
            // The rows of nulls are left out.
            Some(insert) => format!(
                "{insert}SELECT * FROM (VALUES {rows}) AS listed WHERE column1 IS NOT NULL{tail}"
            ),
            None => format!("{head}{rows}{tail}"),
        };
        // The text holds only constants and placeholders.
        AssertSqlSafe(sql)
    }

    /// Returns the statement for Postgres, to which an array is bound for each column.
    pub fn with_arrays(&self) -> AssertSqlSafe<String> {
        let (head, row, tail) = split(self.text.postgres);
        let head = head.strip_suffix("VALUES ").unwrap_or(head);
        let Some(table) = head.strip_suffix('(') else {
            return AssertSqlSafe(format!("{head}SELECT * FROM unnest({row}){tail}"));
        };
        let tail = tail.strip_prefix(") AS ").unwrap_or(tail);
        let name_end = tail.find(|c: char| !c.is_ascii_alphanumeric());
        let (name, tail) = tail.split_at(name_end.unwrap_or(tail.len()));
        let columns = row.replace('$', "column");
        let batch = format!("{table}unnest({row}) AS {name} ({columns}){tail}");
        AssertSqlSafe(self.locks.before(batch))
    }
}

impl RowLocks {
    /// Returns `batch` preceded by its locks. Only rows already locked are changed, and locking goes in the order of ids.
    fn before(self, batch: String) -> String {
        let skip = match self {
            RowLocks::Held => return batch,
            RowLocks::InOrder => "",
            RowLocks::SkipLocked => " SKIP LOCKED",
        };
        let locked = format!(
            "WITH locked AS MATERIALIZED (SELECT id FROM launch WHERE id = ANY($1) AND finished_at IS NULL ORDER BY id
                FOR NO KEY UPDATE{skip}) "
        );
        let found = format!("{FOUND} AND launch.id IN (SELECT id FROM locked)");
        locked + &batch.replacen(FOUND, &found, 1)
    }
}

/// Split a batch before and after its row, whose parentheses are left out.
fn split(text: &'static str) -> (&'static str, &'static str, &'static str) {
    let start = text.find("($1").unwrap_or(text.len());
    let (row, tail) = text[start..].split_once(')').unwrap_or_default();
    (&text[..start], row.trim_start_matches('('), tail)
}

/// Postgres learns the types of a batch from the values that are bound.
impl Statement for Batch {
    fn text(&self, tx: &Tx) -> Option<String> {
        matches!(tx, Tx::Sqlite(_)).then(|| self.with_rows(2).0)
    }
}

/// Declare the statements of a module, and list them in `STATEMENTS`.
///
/// First come constants, for functions written by hand, then statements with their functions. Such a function runs its
/// statement in the transaction `tx`, its first argument, and binds its other arguments in their order, or the values after
/// `=>`. A batch binds values for each item of its list. The word before the statement is the macro that runs it:
///
/// ```text
/// statements! {
///     const REGISTER: &str = "INSERT INTO host (id, name) VALUES ($1, $2)";
///
///     /// Record a heartbeat. False when the host has ended.
///     pub async fn heartbeat(id: HostId, now: Timestamp) -> bool = changed
///         "UPDATE host SET heartbeat_at = $2 WHERE id = $1 AND ended_at IS NULL";
///
///     /// Rename a host.
///     pub async fn rename(id: HostId, name: &str) -> () = run
///         "UPDATE host SET name = $2 WHERE id = $1" => [id, storable(name)];
///
///     /// Rename hosts.
///     pub async fn rename_all(names: &[(HostId, &str)]) -> () = execute_batch
///         Batch::new("UPDATE host SET name = v.column2 FROM (VALUES ($1, $2)) AS v WHERE host.id = v.column1"),
///         names, |(id, name)| [*id, *name];
/// }
/// ```
macro_rules! statements {
    (
        $(const $name:ident: $kind:ty = $sql:expr;)*
        $(
            $(#[$doc:meta])*
            pub $(($scope:ident))? async fn $function:ident(
                $($argument:ident: $type:ty),* $(,)?
            ) -> $output:ty = $run:ident $query:expr
                $(=> $values:tt)? $(, $items:ident, |$item:pat_param| $row:tt)?;
        )*
    ) => {
        $(pub(crate) const $name: $kind = $sql;)*

        $(
            $(#[$doc])*
            pub $(($scope))? async fn $function(
                tx: &mut $crate::Tx, $($argument: $type),*
            ) -> $crate::Result<$output> {
                $crate::sql::call!($run, tx, $query, [$($argument),*] $(=> $values)? $(, $items, |$item| $row)?)
            }
        )*

        /// Every constant and every query above.
        pub(crate) const STATEMENTS: &[&dyn $crate::sql::Statement] = &[$(&$name,)* $(&$query,)*];
    };
}

/// Run a declared statement with the arguments of its function or with its values, or a declared batch with its list.
macro_rules! call {
    ($run:ident, $tx:expr, $query:expr, [$($argument:expr),*]) => {
        $crate::sql::$run!($tx, $query, $($argument),*)
    };
    ($run:ident, $tx:expr, $query:expr, $arguments:tt => [$($value:expr),*]) => {
        $crate::sql::$run!($tx, $query, $($value),*)
    };
    ($run:ident, $tx:expr, $query:expr, $arguments:tt, $($list:tt)+) => {
        $crate::sql::$run!($tx, $query, $($list)+)
    };
}

/// Declare a [`Locking`] statement from its `SELECT` and its Postgres lock clause.
macro_rules! locking {
    ($select:expr, $lock:literal) => {
        $crate::sql::Locking {
            sqlite: $select,
            postgres: concat!($select, " ", $lock),
        }
    };
}

/// Declares an `UPDATE` of all launches matching a condition. On Postgres it first locks them in the order of their ids.
macro_rules! update_launches {
    ($set:literal, $condition:literal) => {
        $crate::sql::Locking {
            sqlite: concat!("UPDATE launch SET ", $set, " WHERE ", $condition),
            postgres: concat!(
                "UPDATE launch SET ",
                $set,
                " WHERE id IN (SELECT id FROM launch WHERE ",
                $condition,
                " ORDER BY id FOR NO KEY UPDATE)"
            ),
        }
    };
}

/// Expand one body for the connection of the database that `tx` is on.
macro_rules! on {
    ($tx:expr, |$conn:ident| $body:expr) => {
        match $tx {
            $crate::Tx::Sqlite(tx) => {
                let $conn = &mut *tx.tx;
                $body
            }
            $crate::Tx::Postgres(tx) => {
                let $conn = &mut *tx.tx;
                $body
            }
        }
    };
}

/// Run a statement; return how many rows it changed.
macro_rules! execute {
    ($tx:expr, $sql:expr $(, $value:expr)* $(,)?) => {{
        let sql = $crate::sql::Sql::sql(&$sql, $tx);
        let answers = $tx.answers();
        let executed = async {
            $crate::sql::on!($tx, |conn| sqlx::query(sql)
                $(.bind($value))*
                .execute(conn)
                .await
                .map(|done| done.rows_affected()))
        };
        answers.wait_for(|| (), executed).await
    }};
}

/// Run a statement.
macro_rules! run {
    ($($query:expr),+ $(,)?) => { $crate::sql::execute!($($query),+).map(|_| ()) };
}

/// Run a statement that changes at most one row; return whether it changed one.
macro_rules! changed {
    ($($query:expr),+ $(,)?) => { $crate::sql::execute!($($query),+).map(|rows| rows == 1) };
}

/// Run `sqlx::$query(sql)`, and fetch its rows with `$fetch`.
macro_rules! fetch {
    ($query:ident, $fetch:ident, $tx:expr, $sql:expr $(, $value:expr)*) => {{
        let sql = $crate::sql::Sql::sql(&$sql, $tx);
        let answers = $tx.answers();
        let fetched = async {
            $crate::sql::on!($tx, |conn| sqlx::$query(sql)$(.bind($value))*.$fetch(conn).await)
        };
        answers.wait_for(|| (), fetched).await
    }};
}

/// Returns all rows of a query.
macro_rules! rows {
    ($($query:expr),+ $(,)?) => { $crate::sql::fetch!(query_as, fetch_all, $($query),+) };
}

/// Returns all readable rows, skipping any spoiled by someone writing to the database, for example with invalid UTF-8.
macro_rules! readable_rows {
    ($tx:expr, $sql:expr $(, $value:expr)* $(,)?) => {{
        let sql = $crate::sql::Sql::sql(&$sql, $tx);
        let answers = $tx.answers();
        let fetched = async {
            $crate::sql::on!($tx, |conn| sqlx::query(sql)$(.bind($value))*.fetch_all(conn).await.map(|rows| {
                let rows = rows.iter().map(sqlx::FromRow::from_row);
                rows.filter_map(Result::ok).collect()
            }))
        };
        answers.wait_for(|| (), fetched).await
    }};
}

/// Returns the row of a query, if there is one.
macro_rules! row {
    ($($query:expr),+ $(,)?) => { $crate::sql::fetch!(query_as, fetch_optional, $($query),+) };
}

/// Returns the row of a query that always has one.
macro_rules! one_row {
    ($($query:expr),+ $(,)?) => { $crate::sql::fetch!(query_as, fetch_one, $($query),+) };
}

/// Returns the only column of all rows of a query.
macro_rules! values {
    ($($query:expr),+ $(,)?) => { $crate::sql::fetch!(query_scalar, fetch_all, $($query),+) };
}

/// Returns the only value of a query, if there is a row.
macro_rules! value {
    ($($query:expr),+ $(,)?) => { $crate::sql::fetch!(query_scalar, fetch_optional, $($query),+) };
}

/// Returns the only value of a query that always has a row.
macro_rules! one_value {
    ($($query:expr),+ $(,)?) => { $crate::sql::fetch!(query_scalar, fetch_one, $($query),+) };
}

/// Run a batch for each piece of `items`: `$run` executes the query after the values of the piece are bound.
macro_rules! each_piece {
    ($query:ident, $tx:expr, $batch:expr, $items:expr, |$item:pat_param| [$($value:expr),* $(,)?], |$bound:ident, $conn:ident| $run:expr) => {
        let answers = $tx.answers();
        match $tx {
            $crate::Tx::Sqlite(tx) => {
                for piece in $items.chunks($crate::sql::SQLITE_ROWS_MAX) {
                    let $conn = &mut *tx.tx;
                    let mut $bound = sqlx::$query($batch.with_rows(piece.len()));
                    for $item in piece {
                        $bound = $bound$(.bind($value))*;
                    }
                    let executed = async {
                        $run
                        Ok::<_, $crate::DbError>(())
                    };
                    answers.wait_for(|| (), executed).await?;
                }
            }
            $crate::Tx::Postgres(tx) => {
                for piece in $items.chunks($crate::sql::ROWS_MAX) {
                    let $conn = &mut *tx.tx;
                    #[allow(
                        clippy::allow_attributes,
                        unused_variables,
                        reason = "a column is made of a part of each item, and some parts have one column"
                    )]
                    let $bound = sqlx::$query($batch.with_arrays())
                        $(.bind(piece.iter().map(|$item| $value).collect::<Vec<_>>()))*;
                    let executed = async {
                        $run
                        Ok::<_, $crate::DbError>(())
                    };
                    answers.wait_for(|| (), executed).await?;
                }
            }
        }
    };
}

/// Run a batch over `items`, each bound as the list says.
macro_rules! execute_batch {
    ($tx:expr, $batch:expr, $items:expr, |$item:pat_param| $values:tt) => {{
        $crate::sql::each_piece!(
            query,
            $tx,
            $batch,
            $items,
            |$item| $values,
            |query, conn| {
                query.execute(conn).await?;
            }
        );
        Ok::<_, $crate::DbError>(())
    }};
}

/// Run a batch over `items`, each bound as the list says; return all rows as `sqlx::$query` reads them.
macro_rules! fetch_batch {
    ($query:ident, $tx:expr, $batch:expr, $items:expr, |$item:pat_param| $values:tt) => {{
        let mut rows = Vec::new();
        $crate::sql::each_piece!(
            $query,
            $tx,
            $batch,
            $items,
            |$item| $values,
            |query, conn| {
                rows.append(&mut query.fetch_all(conn).await?);
            }
        );
        Ok::<_, $crate::DbError>(rows)
    }};
}

/// Run a batch over `items`, each bound as the list says; return all rows.
macro_rules! rows_batch {
    ($($batch:tt)+) => { $crate::sql::fetch_batch!(query_as, $($batch)+) };
}

/// Run a batch over `items`, each bound as the list says; return the column.
macro_rules! values_batch {
    ($($batch:tt)+) => { $crate::sql::fetch_batch!(query_scalar, $($batch)+) };
}

pub(super) use {
    call, changed, each_piece, execute, execute_batch, fetch, fetch_batch, locking, on, one_row,
    one_value, readable_rows, row, rows, rows_batch, run, statements, update_launches, value,
    values, values_batch,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_repeated_for_sqlite_and_arrays_are_given_to_postgres() {
        let insert = Batch::new("INSERT INTO t (a, b) VALUES ($1, $2) ON CONFLICT DO NOTHING");
        assert_eq!(
            insert.with_rows(3).0,
            "INSERT INTO t (a, b) SELECT * FROM (VALUES (?,?), (?,?), (?,?), (?,?)) AS listed WHERE column1 IS NOT NULL ON CONFLICT DO NOTHING"
        );
        assert_eq!(
            insert.with_arrays().0,
            "INSERT INTO t (a, b) SELECT * FROM unnest($1, $2) ON CONFLICT DO NOTHING"
        );
        let update = Batch::new(
            "UPDATE t SET b = v.column2 FROM (VALUES ($1, $2)) AS v WHERE t.a = v.column1",
        );
        assert_eq!(
            update.with_rows(1).0,
            "UPDATE t SET b = v.column2 FROM (VALUES (?,?)) AS v WHERE t.a = v.column1"
        );
        assert_eq!(
            update.with_arrays().0,
            "UPDATE t SET b = v.column2 FROM unnest($1, $2) AS v (column1, column2) WHERE t.a = v.column1"
        );
        let text = "UPDATE launch SET b = v.column2 FROM (VALUES ($1, $2)) AS v WHERE launch.id = v.column1 AND c";
        let update = Batch::of_launches(RowLocks::SkipLocked, text);
        assert_eq!(
            update.with_rows(1).0,
            "UPDATE launch SET b = v.column2 FROM (VALUES (?,?)) AS v WHERE launch.id = v.column1 AND c"
        );
        let on_postgres = update.with_arrays().0;
        assert!(on_postgres.contains(
            "ORDER BY id\n                FOR NO KEY UPDATE SKIP LOCKED) UPDATE launch SET"
        ));
        assert!(
            on_postgres
                .ends_with("launch.id = v.column1 AND launch.id IN (SELECT id FROM locked) AND c")
        );
        let listed =
            Batch::new("WITH v AS (SELECT * FROM (VALUES ($1)) AS listed) SELECT 1 FROM v");
        assert_eq!(
            listed.with_arrays().0,
            "WITH v AS (SELECT * FROM unnest($1) AS listed (column1)) SELECT 1 FROM v"
        );
    }

    /// A launch's status changes in one file.
    #[test]
    fn other_files_change_no_status_of_launches() {
        for (file, code) in crate::tests::sources() {
            let one = code.split("UPDATE launch SET").skip(1);
            let one = one.filter_map(|rest| rest.split("WHERE").next());
            let all = code.split("update_launches!(\"").skip(1);
            let all = all.filter_map(|rest| rest.split('"').next());
            let changes = |set: &str| set.contains("status = ");
            let is_allowed = ["launch/arrows.rs", "sql.rs"].contains(&file.as_str());
            assert!(is_allowed || !one.chain(all).any(changes), "{file}");
        }
    }

    /// Every statement changing many launches must say how it locks them.
    #[test]
    fn launches_are_locked_in_the_order_of_their_ids() {
        let mut updates = 0;
        for (file, code) in crate::tests::sources() {
            for (at, _) in code.match_indices("\"UPDATE launch SET") {
                updates += 1;
                let statement = code[at + 1..].split('"').next().unwrap_or_default();
                let before: String = code[at.saturating_sub(60)..at].split_whitespace().collect();
                let is_locked = before.ends_with("RowLocks::Held,")
                    || before.ends_with("RowLocks::InOrder,")
                    || before.ends_with("RowLocks::SkipLocked,")
                    || before.ends_with("RowLocks::Held,concat!(")
                    || before.ends_with("RowLocks::InOrder,concat!(");
                let is_one_row = statement.contains("WHERE id = $1");
                let is_macro = file == "sql.rs";
                // It extends one finished launch per schedule, already locked by the transaction.
                let is_range = file == "skipped_ranges.rs";
                assert!(
                    is_locked || is_one_row || is_macro || is_range,
                    "{file}: {statement}"
                );
            }
        }
        assert!(updates >= 12, "{updates}");
    }
}
