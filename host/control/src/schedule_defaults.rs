//! The policies on record for schedules that do not set them.

use campanile_schedule::policy::Policies;
use campanile_store::{DbError, Tx, schedule_defaults};

/// Return the policies for schedules that do not set them, for a revision that this transaction writes.
///
/// Those that another version stored, and this one cannot read, do not apply.
pub async fn recorded(tx: &mut Tx) -> Result<Policies, DbError> {
    let stored = schedule_defaults::get(tx).await?.unwrap_or_default();
    Ok(serde_json::from_str(&stored).unwrap_or_default())
}
