//! Handing back this host's claims before any call was made.
//!
//! Either the claiming transaction's reply came too late or never, or the run was dropped before its first call. Nothing of the
//! task ran, so the launch returns to its state before the claim, and no run counts, neither towards the recovery limit nor for
//! at-most-once launches. Other hosts give this one a moment to do so: see [`is_left_to_its_host`].

use std::time::Duration;

use crate::ctx::Ctx;
use crate::error::Result;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, LaunchId};
use campanile_store::Tx;
use campanile_store::claims::{self, UncalledClaim};
use campanile_store::recovery::OrphanedLaunch;

/// How long a living host may take to hand back a claim, counted from the end of its lease and from the end of an outage.
pub(crate) const HAND_BACK_TIME: Duration = Duration::from_secs(5);

#[must_use]
pub(crate) struct HandedBack {
    claims: Vec<UncalledClaim>,
    launches: Vec<LaunchId>,
}

/// Hands back this host's claims that led to no call.
pub(crate) async fn hand_back(ctx: &Ctx, tx: &mut Tx, now: Timestamp) -> Result<HandedBack> {
    let claims = ctx.leases.uncalled();
    let launches = match claims.is_empty() {
        true => Vec::new(),
        false => claims::hand_back(tx, ctx.host, &claims, now).await?,
    };
    Ok(HandedBack { claims, launches })
}

impl HandedBack {
    /// Confirms the commit, returning how many runs were handed back.
    pub(crate) fn note(self, ctx: &Ctx) -> usize {
        ctx.leases.note_handed_back(&self.claims, &self.launches);
        let runs = self.launches.len();
        if runs > 0 {
            tracing::warn!(
                runs,
                "handed back runs before their first call; they don't count"
            );
            ctx.wake.dispatcher.notify_one();
        }
        runs
    }
}

/// Pure: whether to leave an orphan with a run to its claiming host, which may hand it back.
///
/// A host not recorded as dead may simply have had no reply from the database. `reachable_since` is when the database began
/// answering this host, `host`.
pub(crate) fn is_left_to_its_host(
    orphan: &OrphanedLaunch,
    host: HostId,
    reachable_since: Option<Timestamp>,
    now: Timestamp,
) -> bool {
    let Some(lease_until) = orphan.lease_until.filter(|_| orphan.is_host_alive) else {
        return false;
    };
    let since = reachable_since.unwrap_or(now).max(lease_until);
    orphan.host_id.is_some_and(|of| of != host) && now < since.plus(HAND_BACK_TIME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery_rules::tests::{claimed, orphan};

    #[test]
    fn a_live_host_has_a_moment_to_hand_back() {
        let at = |seconds| Timestamp::EPOCH.plus(Duration::from_secs(seconds));
        let (own, other) = (
            HostId(uuid::Uuid::from_u128(1)),
            HostId(uuid::Uuid::from_u128(2)),
        );
        let expired = OrphanedLaunch {
            host_id: Some(other),
            is_host_alive: true,
            lease_until: Some(at(100)),
            ..claimed()
        };
        let is_left = |orphan: &OrphanedLaunch, since, now| {
            is_left_to_its_host(orphan, own, Some(at(since)), at(now))
        };
        assert!(is_left(&expired, 0, 104) && !is_left(&expired, 0, 105));
        // After an outage, time counts from its end.
        assert!(is_left(&expired, 200, 204) && !is_left(&expired, 200, 205));
        assert!(is_left_to_its_host(&expired, own, None, at(500)));
        let is_own = OrphanedLaunch {
            host_id: Some(own),
            ..expired.clone()
        };
        let is_dead = OrphanedLaunch {
            is_host_alive: false,
            ..expired
        };
        for orphan in [is_own, is_dead, orphan()] {
            assert!(!is_left(&orphan, 0, 101), "{orphan:?}");
        }
    }
}
