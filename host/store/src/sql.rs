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
//! | `values!`, `value!`, `one_value!` | the same for a query of one column |
//! | the macros with `batch` | run a [`Batch`] over many rows, so that hundreds of launches share one round trip |

use std::fmt::Write as _;

use sqlx::AssertSqlSafe;

use super::Tx;

/// A statement that a test prepares on each database.
pub(super) trait Statement {
    /// Return the text for the database of `tx`. `None` if that database cannot prepare it before values are bound.
    fn text(&self, tx: &Tx) -> Option<String>;
}

impl<S: Sql> Statement for S {
    fn text(&self, tx: &Tx) -> Option<String> {
        Some(self.sql(tx).to_owned())
    }
}

/// A statement whose text does not depend on values.
pub(super) trait Sql {
    /// Return the text for the database of `tx`.
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

/// A statement for many rows. Its text has a `VALUES` list of one row, `VALUES ($1, $2)`, which is repeated.
///
/// Both databases name the columns of such a list `column1`, `column2`, …, so one text serves both.
///
/// In the tail of an `UPDATE`, write conditions other than the id as `(status = 'running') = TRUE`. With a plain
/// `status = 'running'`, SQLite scans the table or an index on `status`, and searches the list for each row. Postgres
/// treats both forms alike.
pub(super) struct Batch(pub Locking);

/// The numbers of rows that a statement can have. Few sizes keep the number of prepared statements small. 224 is the most
/// runs of one package on a host with 256 permits. The largest size keeps the number of bound values below SQLite's limit
/// of 32 766.
const SIZES: [usize; 10] = [256, 224, 128, 64, 32, 16, 8, 4, 2, 1];

impl Batch {
    /// A batch with one text for both databases.
    pub const fn new(text: &'static str) -> Batch {
        Batch(Locking {
            sqlite: text,
            postgres: text,
        })
    }

    /// Return the statement for `rows` rows: `… VALUES ($1,$2), ($3,$4) …`.
    ///
    /// For SQLite the placeholders are `?`. It handles `$1` as a named parameter, and looking up thousands of names takes
    /// longer than writing the rows.
    pub fn sql(&self, tx: &Tx, rows: usize) -> AssertSqlSafe<String> {
        write_rows(self.0.sql(tx), rows, matches!(tx, Tx::Postgres(_)))
    }
}

fn write_rows(text: &str, rows: usize, is_postgres: bool) -> AssertSqlSafe<String> {
    let (head, row_and_tail) = text.split_once("($1").unwrap_or((text, ""));
    let (row, tail) = row_and_tail.split_once(')').unwrap_or_default();
    let columns = row.matches('$').count() + 1;
    let mut sql = String::with_capacity(text.len() + rows * (columns * 7 + 3));
    sql.push_str(head);
    for placeholder in 0..rows * columns {
        sql.push_str(match placeholder % columns {
            0 if placeholder == 0 => "(",
            0 => "), (",
            _ => ",",
        });
        if is_postgres {
            // Writing to a String cannot fail.
            let _ = write!(sql, "${}", placeholder + 1);
        } else {
            sql.push('?');
        }
    }
    sql.push(')');
    sql.push_str(tail);
    // The text holds only constants and placeholders.
    AssertSqlSafe(sql)
}

/// Postgres learns the types of a batch from the values that are bound.
impl Statement for Batch {
    fn text(&self, tx: &Tx) -> Option<String> {
        matches!(tx, Tx::Sqlite(_)).then(|| self.sql(tx, 2).0)
    }
}

/// Split `items` into pieces whose lengths are in [`SIZES`].
pub(super) fn pieces<T>(items: &[T]) -> impl Iterator<Item = &[T]> {
    let mut rest = items;
    std::iter::from_fn(move || {
        let size = SIZES.into_iter().find(|size| *size <= rest.len())?;
        let (piece, more) = rest.split_at(size);
        rest = more;
        Some(piece)
    })
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
        $(pub(super) const $name: $kind = $sql;)*

        $(
            $(#[$doc])*
            pub $(($scope))? async fn $function(
                tx: &mut $crate::Tx, $($argument: $type),*
            ) -> $crate::Result<$output> {
                $crate::sql::call!($run, tx, $query, [$($argument),*] $(=> $values)? $(, $items, |$item| $row)?)
            }
        )*

        /// Every constant and every query above.
        pub(super) const STATEMENTS: &[&dyn $crate::sql::Statement] = &[$(&$name,)* $(&$query,)*];
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

/// Expand one body for the connection of the database that `tx` is on.
macro_rules! on {
    ($tx:expr, |$conn:ident| $body:expr) => {
        match $tx {
            $crate::Tx::Sqlite(tx) => {
                let $conn = &mut **tx;
                $body
            }
            $crate::Tx::Postgres(tx) => {
                let $conn = &mut **tx;
                $body
            }
        }
    };
}

/// Run a statement; return how many rows it changed.
macro_rules! execute {
    ($tx:expr, $sql:expr $(, $value:expr)* $(,)?) => {{
        let sql = $crate::sql::Sql::sql(&$sql, $tx);
        $crate::sql::on!($tx, |conn| sqlx::query(sql)
            $(.bind($value))*
            .execute(conn)
            .await
            .map(|done| done.rows_affected())
            .map_err($crate::DbError::from))
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
        $crate::sql::on!($tx, |conn| sqlx::$query(sql)$(.bind($value))*.$fetch(conn).await)
            .map_err($crate::DbError::from)
    }};
}

/// Return all rows of a query.
macro_rules! rows {
    ($($query:expr),+ $(,)?) => { $crate::sql::fetch!(query_as, fetch_all, $($query),+) };
}

/// Return the row of a query, if there is one.
macro_rules! row {
    ($($query:expr),+ $(,)?) => { $crate::sql::fetch!(query_as, fetch_optional, $($query),+) };
}

/// Return the row of a query that always has one.
macro_rules! one_row {
    ($($query:expr),+ $(,)?) => { $crate::sql::fetch!(query_as, fetch_one, $($query),+) };
}

/// Return the only column of all rows of a query.
macro_rules! values {
    ($($query:expr),+ $(,)?) => { $crate::sql::fetch!(query_scalar, fetch_all, $($query),+) };
}

/// Return the only value of a query, if there is a row.
macro_rules! value {
    ($($query:expr),+ $(,)?) => { $crate::sql::fetch!(query_scalar, fetch_optional, $($query),+) };
}

/// Return the only value of a query that always has a row.
macro_rules! one_value {
    ($($query:expr),+ $(,)?) => { $crate::sql::fetch!(query_scalar, fetch_one, $($query),+) };
}

/// Run a batch for each piece of `items`: `$run` executes the query after the values of the piece are bound.
macro_rules! each_piece {
    ($query:ident, $tx:expr, $batch:expr, $items:expr, |$item:pat_param| [$($value:expr),* $(,)?], |$bound:ident, $conn:ident| $run:expr) => {
        for piece in $crate::sql::pieces($items) {
            let sql = $batch.sql($tx, piece.len());
            $crate::sql::on!($tx, |$conn| {
                let mut $bound = sqlx::$query(sql);
                for $item in piece {
                    $bound = $bound$(.bind($value))*;
                }
                $run
            });
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
    one_value, row, rows, rows_batch, run, statements, value, values, values_batch,
};

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: Batch = Batch(locking!(
        "INSERT INTO t VALUES ($1, $2) RETURNING a",
        "LOCK"
    ));

    #[test]
    fn placeholders_are_numbered_through_all_rows() {
        assert_eq!(
            write_rows(BATCH.0.postgres, 3, true).0,
            "INSERT INTO t VALUES ($1,$2), ($3,$4), ($5,$6) RETURNING a LOCK"
        );
        assert_eq!(
            write_rows(BATCH.0.sqlite, 2, false).0,
            "INSERT INTO t VALUES (?,?), (?,?) RETURNING a"
        );
    }

    #[test]
    fn pieces_cover_everything_in_order() {
        let items: Vec<usize> = (0..345).collect();
        let sizes: Vec<usize> = pieces(&items).map(<[usize]>::len).collect();
        assert_eq!(sizes, [256, 64, 16, 8, 1]);
        assert_eq!(pieces(&items).flatten().copied().collect::<Vec<_>>(), items);
        assert_eq!(pieces::<usize>(&[]).count(), 0);
    }
}
