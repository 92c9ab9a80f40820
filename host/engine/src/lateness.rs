//! Pure: which launches are late.
//!
//! After an outage a host has launches without end that are late. What is on time beside them has a share of its own: of the
//! slots that a transaction decides (`decide.rs`), of the permits (`shares.rs`), and of the launches that it claims (`choose.rs`).

use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;

/// Up to this long after its fire time, a launch is on time. Health reports a greater lag, too.
pub(crate) const ON_TIME_MAX: Duration = Duration::from_secs(10);

/// Whether a launch is late at `now`: one that is caught up or backfilled always is, whenever it fires.
pub(crate) fn is_late(kind: LaunchKind, fire_time: Timestamp, now: Timestamp) -> bool {
    let for_past_slot = matches!(kind, LaunchKind::Catchup | LaunchKind::Backfill);
    for_past_slot || now.since(fire_time) >= ON_TIME_MAX
}
