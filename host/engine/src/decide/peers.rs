//! The other hosts, and the turns between them and this one.

use std::collections::HashMap;

use crate::ctx::Ctx;
use crate::decide::placement::{Load, Peer, Turns};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, HostId};
use campanile_store::hosts::{self, Host};
use campanile_store::{DbError, Tx, packages};

/// Look which other hosts claim launches. Only a shared database has any.
pub(crate) async fn look(ctx: &Ctx, tx: &mut Tx, now: Timestamp) -> Result<(), DbError> {
    let live = if ctx.db.url().is_shared() {
        hosts::live(tx).await?
    } else {
        Vec::new()
    };
    let claims =
        |host: &Host| host.id != ctx.host && host.is_alive(now) && host.drained_at.is_none();
    let others: Vec<Host> = live.into_iter().filter(claims).collect();
    let mut folders: HashMap<HostId, HashMap<String, ArtifactDigest>> = HashMap::new();
    if !others.is_empty() {
        for (host, package, digest) in packages::on_hosts(tx).await? {
            folders.entry(host).or_default().insert(package, digest);
        }
    }
    let peers = others.into_iter().map(|host| Peer {
        packages: folders.remove(&host.id).unwrap_or_default(),
        id: host.id,
        runs_max: host.runs_max,
        labels: host.labels,
    });
    ctx.peers.set(peers.collect());
    Ok(())
}

/// Returns the turns of the hosts in this transaction; none when this host is alone, which then asks the database nothing.
pub(crate) async fn turns(ctx: &Ctx, tx: &mut Tx) -> Result<Option<Turns>, DbError> {
    let peers = ctx.peers.get();
    if peers.is_empty() {
        return Ok(None);
    }
    let runs: HashMap<HostId, i64> = hosts::running(tx).await?.into_iter().collect();
    let runs = |host: HostId| runs.get(&host).copied().unwrap_or_default();
    let own = Load {
        id: ctx.host,
        runs: runs(ctx.host),
        runs_max: ctx.settings.runs_max as i64,
    };
    Ok(Some(Turns::new(ctx.settings.placement, own, peers, runs)))
}
