//! What hosts and people do with packages.

use campanile_engine::approval::{self, Attribution, PackageError, VersionChange};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_store::Tx;
use campanile_store::packages::{self, LoadedPackage, SidecarSummary};
use rand::Rng as _;

use super::{Caller, Done, sorted, text};
use crate::fixtures::publish;

pub(super) async fn change(tx: &mut Tx, caller: &mut Caller, now: Timestamp) -> Done {
    let host = caller.host();
    let name = caller.package();
    let order = Attribution {
        by: "ada",
        note: None,
    };
    let said = |answer: Result<VersionChange, PackageError>| match answer {
        Ok(decided) => format!("{decided:?}"),
        Err(error) => error.to_string(),
    };
    let answer = match caller.random.random_range(0..14) {
        10 => said(approval::approve(tx, name, None, order, now).await),
        11 => said(approval::reject(tx, name, None, order, now).await),
        12 => said(approval::roll_back(tx, name, None, order, now).await),
        13 => keep_out(tx, name, caller.random.random_range(0..4), now).await,
        0..5 => {
            let bytes = [caller.random.random_range(0..4)];
            publish(tx, host, name, &bytes, now).await;
            "published".to_owned()
        }
        5 => text(&packages::reject(tx, host, name, "cracked", now).await),
        6 => text(&packages::withdraw(tx, host, name).await),
        7 => text(&packages::withdraw_ended(tx).await),
        _ => text(&sorted(packages::mark_missing(tx, now).await)),
    };
    let all = packages::list(tx, None).await;
    ("packages", format!("{answer} {}", text(&all)), true)
}

/// A host finds a version that must not become active.
async fn keep_out(tx: &mut Tx, name: &str, byte: u8, now: Timestamp) -> String {
    let bytes = [byte];
    let digest = ArtifactDigest::of(&bytes);
    let row = packages::find(tx, name).await.unwrap();
    let in_force = row.and_then(|row| row.digest);
    if in_force.is_none_or(|in_force| in_force == digest) {
        return "nothing to keep out".to_owned();
    }
    let loaded = LoadedPackage {
        name,
        digest: &digest,
        form: "typed_component",
        bytes: &bytes,
        manifest: "{}",
        sidecar: SidecarSummary::default(),
    };
    text(&packages::set_pending(tx, &loaded, now).await)
}
