//! The policies that the configuration of the hosts gives to schedules which do not set them.

use super::sql::{locking, statements};

statements! {
    /// Returns the policies, a JSON object. No other transaction changes them before this one ends.
    pub async fn get() -> Option<String> = value locking!(
        "SELECT policies FROM schedule_default WHERE id = 1",
        "FOR SHARE"
    );

    /// Replace the policies. False when they are the same.
    pub async fn set(policies: &str) -> bool = changed
        "UPDATE schedule_default SET policies = $1 WHERE id = 1 AND policies <> $1";
}
