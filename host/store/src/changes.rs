//! The counter by which a running host notices what another process has changed.

use super::{DbError, Tx, on};

const BUMP: &str = "UPDATE change SET counter = counter + 1 WHERE id = 1";
const COUNTER: &str = "SELECT counter FROM change WHERE id = 1";

/// Every statement of this table, for the test that prepares them on both databases.
pub const STATEMENTS: &[&str] = &[BUMP, COUNTER];

/// Tell every running host that schedules have changed.
pub async fn bump(tx: &mut Tx) -> Result<(), DbError> {
    on!(tx, |conn| sqlx::query(BUMP).execute(conn).await.map(|_| ()))?;
    Ok(())
}

/// A number that grows with every change.
pub async fn counter(tx: &mut Tx) -> Result<i64, DbError> {
    Ok(on!(tx, |conn| sqlx::query_scalar(COUNTER)
        .fetch_one(conn)
        .await)?)
}
