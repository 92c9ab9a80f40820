//! Transaction 2, the handoff: open launches become runs that this host holds.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value};

use super::spec::Spec;
use super::{Engine, EngineError, context, run_context};
use crate::crash;
use campanile_model::clock::Timestamp;
use campanile_model::ids::RunId;
use campanile_package::Package;
use campanile_store::runs::{self, ClaimedLaunch, NewRun, RunHashes};

/// A run that this host holds and is about to carry out.
pub struct Work {
    pub run_id: RunId,
    /// The fence that proves the holding.
    pub fence: i64,
    /// Until when, unless it is renewed.
    pub lease_until: Timestamp,
    /// The same on the monotonic clock, which no correction of the other moves.
    pub proven_until: Instant,
    pub is_recovery: bool,
    pub launch: ClaimedLaunch,
    /// What the schedule said when the launch was decided.
    pub spec: Arc<Spec>,
    /// Whose grants and limits hold for it; none when it has just left this host's folder.
    pub package: Option<Arc<Package>>,
    /// The user's part of the context.
    pub user: Map<String, Value>,
}

impl Engine {
    /// Take launches and due retries, as many as there is capacity for.
    ///
    /// A crash after the commit leaves runs with a lease and no holder: they expire, and recovery finds them.
    pub async fn take(&self, now: Timestamp) -> Result<Vec<Work>, EngineError> {
        let free = self.room.free() as i64;
        if free == 0 {
            return Ok(Vec::new());
        }
        let lease_until = now.plus(self.settings.lease);
        let proven_until = Instant::now() + self.settings.lease;
        let mut tx = self.db.write().await?;
        // Before the record is read: a package that goes meanwhile goes there first.
        let live = self.packages.all();
        let continued = runs::claim_retries(&mut tx, self.host, now, lease_until, free).await?;
        let open = runs::claimable(&mut tx, self.host, now, free - continued.len() as i64).await?;
        if continued.is_empty() && open.is_empty() {
            return Ok(Vec::new());
        }
        if (continued.len() + open.len()) as i64 == free {
            self.room.promised(now);
        }
        let again = continued.len();
        let continued = continued
            .into_iter()
            .map(|run| (run.run_id, run.fence, run.is_recovery, run.launch));
        let begun = open.into_iter().map(|taken| {
            let is_recovery = taken.recoveries > 0;
            (RunId::new(now), runs::FIRST_FENCE, is_recovery, taken)
        });
        let claimed: Vec<_> = continued.chain(begun).collect();
        let revisions = claimed
            .iter()
            .map(|(.., launch)| (launch.schedule_id, launch.schedule_revision));
        let specs = self.specs.get_all(&mut tx, revisions).await?;
        let mut work = Vec::new();
        for ((run_id, fence, is_recovery, taken), spec) in claimed.into_iter().zip(specs) {
            let package = live.get(&taken.package).cloned();
            let user = run_context::user_keys(package.as_deref(), &spec, &taken);
            work.push(Work {
                run_id,
                fence,
                lease_until,
                proven_until,
                is_recovery,
                launch: taken,
                spec,
                package,
                user,
            });
        }
        let hashes = work[..again]
            .iter()
            .map(|work| (work.run_id, work.hashes()));
        runs::set_run_hashes(&mut tx, &hashes.collect::<Vec<_>>()).await?;
        let fresh: Vec<NewRun> = work[again..].iter().map(Work::to_begin).collect();
        runs::start(&mut tx, self.host, &fresh, now, lease_until).await?;
        tx.commit().await?;
        crash::point("after_take_commit");
        Ok(work)
    }
}

impl Work {
    fn to_begin(&self) -> NewRun {
        NewRun {
            id: self.run_id,
            launch_id: self.launch.launch_id,
            schedule_id: self.launch.schedule_id,
            is_recovery: self.is_recovery,
            digest: self.launch.digest.clone(),
            hashes: self.hashes(),
        }
    }

    fn hashes(&self) -> RunHashes {
        let package = self.package.as_ref();
        RunHashes {
            grants: package.map(|package| package.grant_record.hash.clone()),
            context: Some(context::hash(&self.user)),
        }
    }
}
