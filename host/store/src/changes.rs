//! The counter by which a running host notices changes of another process.

use super::sql::{execute, one_value, statements};
use super::{DbError, Tx};

statements! {
    const BUMP: &str = "UPDATE change SET counter = counter + 1 WHERE id = 1";
    const COUNTER: &str = "SELECT counter FROM change WHERE id = 1";
}

/// Tell every running host that schedules have changed.
pub async fn bump(tx: &mut Tx) -> Result<(), DbError> {
    execute!(tx, BUMP)?;
    Ok(())
}

/// Return a number that grows with every change.
pub async fn counter(tx: &mut Tx) -> Result<i64, DbError> {
    Ok(one_value!(tx, COUNTER)?)
}
