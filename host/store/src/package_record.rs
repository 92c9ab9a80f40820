//! What the tasks of each package have added to the record on each day.

use super::sql::{Batch, statements};
use campanile_model::clock::Timestamp;

/// What a host adds to the use of one package on one day, or of the packages of a namespace, such as `@team/`, together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayUse {
    pub package: String,
    /// Days since 1970, in UTC.
    pub day: i64,
    pub bytes: i64,
    /// Whether the package has used up its quota. [`mark_exceeded`] records it.
    pub exceeded: bool,
}

statements! {
    /// Add to the use of packages; return the sums of all hosts.
    pub async fn add(used: &[DayUse]) -> Vec<(String, i64)> = rows_batch
        Batch::new("INSERT INTO package_record (package, day, bytes) VALUES ($1, $2, $3)
        ON CONFLICT (package, day) DO UPDATE SET bytes = package_record.bytes + excluded.bytes
        RETURNING package, bytes"),
        used, |used| [&used.package, used.day, used.bytes];

    /// Record that a package has used up its quota of a day. False when that is recorded already.
    pub async fn mark_exceeded(package: &str, day: i64, now: Timestamp) -> bool = changed
        "UPDATE package_record SET exceeded_at = $3 WHERE package = $1 AND day = $2 AND exceeded_at IS NULL";

    /// Returns the packages with a used-up quota of the day.
    pub async fn exceeded(day: i64) -> Vec<String> = values
        "SELECT package FROM package_record WHERE day = $1 AND exceeded_at IS NOT NULL ORDER BY package";
}
