//! JSON as the database has it.

use serde::de::DeserializeOwned;

/// Read stored JSON; none where nothing is stored, or what no longer has this type.
pub fn stored_json<T: DeserializeOwned>(text: Option<&str>) -> Option<T> {
    serde_json::from_str(text?).ok()
}
