//! Default policies on record.

use campanile_schedule::policy::Policies;
use campanile_store::{DbError, Tx, schedule_defaults};

/// Returns the default policies for a revision being written, ignoring any stored by another version and unreadable to this one.
pub async fn recorded(tx: &mut Tx) -> Result<Policies, DbError> {
    let stored = schedule_defaults::get(tx).await?.unwrap_or_default();
    Ok(serde_json::from_str(&stored).unwrap_or_default())
}
