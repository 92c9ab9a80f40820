//! Handing back this host's claims before any call was made.
//!
//! Either the claiming transaction's reply came too late or never, or the run was dropped before its first call. Nothing of the
//! task ran, so the launch returns to its state before the claim, and no run counts, neither towards the recovery limit nor for
//! at-most-once launches. Other hosts give this one a moment to do so: see [`campanile_control::rules::recovery_rules::is_left_to_its_host`].

use crate::ctx::Ctx;
use crate::error::Result;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_store::Tx;
use campanile_store::launch::{self, UncalledClaim};

#[must_use]
pub(crate) struct HandedBack {
    claims: Vec<UncalledClaim>,
    launches: Vec<LaunchId>,
}

/// Hands back this host's claims that led to no call.
pub(crate) async fn hand_back(ctx: &Ctx, tx: &mut Tx, now: Timestamp) -> Result<HandedBack> {
    let claims = ctx.leases.uncalled();
    let launches = if claims.is_empty() {
        Vec::new()
    } else {
        launch::hand_back(tx, ctx.host, &claims, now).await?
    };
    Ok(HandedBack { claims, launches })
}

impl HandedBack {
    /// Returns how many runs are handed back.
    pub(crate) fn runs(&self) -> usize {
        self.launches.len()
    }

    /// Confirms the commit, returning how many runs were handed back.
    pub(crate) fn note(self, ctx: &Ctx) -> usize {
        ctx.leases.note_handed_back(&self.claims, &self.launches);
        let runs = self.runs();
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
