//! Reading JSON from the database.

use serde::de::DeserializeOwned;

/// Parses stored JSON, returning none if missing or no longer matching the type.
pub fn stored_json<T: DeserializeOwned>(text: Option<&str>) -> Option<T> {
    serde_json::from_str(text?).ok()
}
