//! What tasks used in a span of time: by package, and by day.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use campanile_model::clock::Timestamp;
use campanile_model::namespace::Namespace;
use campanile_store::task_use::{self, PackageDay, UseSums};
use campanile_store::{DbError, Tx};

/// What the tasks of one package used in launches that were decided in a span of time up to now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PackageStatistics {
    pub package: String,
    pub since: Timestamp,
    #[serde(flatten)]
    pub used: UseSums,
}

/// What the tasks of one package used in launches that were decided on one day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DayStatistics {
    /// The day in UTC, such as `2026-11-22`.
    pub day: String,
    pub package: String,
    #[serde(flatten)]
    pub used: UseSums,
}

impl DayStatistics {
    /// Returns the key after which a list continues. Keys sort as the list does.
    pub fn key(&self) -> String {
        format!("{}/{}", self.day, self.package)
    }
}

/// Returns up to `limit` packages after `after`, by name, with what their tasks used in launches decided in the
/// span `span` before `now`; with `namespace` only packages of it. A package without calls is left out.
pub async fn package_statistics(
    tx: &mut Tx,
    now: Timestamp,
    span: Duration,
    namespace: Option<&Namespace>,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<PackageStatistics>, DbError> {
    let since = now.minus(span);
    let mut sums: BTreeMap<String, UseSums> = BTreeMap::new();
    for found in used_in(tx, since, namespace).await? {
        sums.entry(found.package).or_default().add(&found.used);
    }
    let rows = sums.into_iter().map(|(package, used)| PackageStatistics {
        package,
        since,
        used,
    });
    Ok(page(rows, after, limit, |row| row.package.clone()))
}

/// Returns the same for each day, the oldest first. The first day may have begun before the span.
pub async fn day_statistics(
    tx: &mut Tx,
    now: Timestamp,
    span: Duration,
    namespace: Option<&Namespace>,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<DayStatistics>, DbError> {
    let found = used_in(tx, now.minus(span), namespace).await?;
    let rows = found.into_iter().map(|found| DayStatistics {
        day: Timestamp::of_day(found.day).date_text(),
        package: found.package,
        used: found.used,
    });
    Ok(page(rows, after, limit, DayStatistics::key))
}

/// Returns what the packages of `namespace` used since `since`, or all packages.
async fn used_in(
    tx: &mut Tx,
    since: Timestamp,
    namespace: Option<&Namespace>,
) -> Result<Vec<PackageDay>, DbError> {
    let mut found = task_use::by_package_and_day(tx, since).await?;
    if let Some(namespace) = namespace {
        found.retain(|used| namespace.contains(&used.package));
    }
    Ok(found)
}

/// Returns up to `limit` rows whose keys are after `after`.
fn page<R>(
    rows: impl Iterator<Item = R>,
    after: Option<&str>,
    limit: i64,
    key: impl Fn(&R) -> String,
) -> Vec<R> {
    let is_later = |row: &R| after.is_none_or(|after| *key(row) > *after);
    let limit = usize::try_from(limit).unwrap_or_default();
    rows.filter(is_later).take(limit).collect()
}
