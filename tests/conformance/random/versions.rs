//! Random operations of hosts and operators on packages.

use campanile_control::admin::approval::{self, PackageError, VersionChange};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_store::Tx;
use campanile_store::packages::{self, LoadedPackage, SidecarSummary};
use rand::Rng as _;

use super::{OperationList, StepResult, sorted, text};
use crate::fixtures::{ada, publish};

pub(super) async fn change(tx: &mut Tx, list: &mut OperationList, now: Timestamp) -> StepResult {
    let host = list.any_host();
    let name = list.any_package();
    let answer_text = |answer: Result<VersionChange, PackageError>| match answer {
        Ok(decided) => format!("{decided:?}"),
        Err(error) => error.to_string(),
    };
    let answer = match list.random.random_range(0..14) {
        10 => answer_text(approval::approve(tx, name, None, ada(), now).await),
        11 => answer_text(approval::reject(tx, name, None, ada(), now).await),
        12 => answer_text(approval::roll_back(tx, name, None, ada(), now).await),
        13 => set_pending(tx, name, list.random.random_range(0..4), now).await,
        0..5 => {
            let bytes = [list.random.random_range(0..4)];
            publish(tx, host, name, &bytes, now).await;
            "published".to_owned()
        }
        5 => text(&packages::reject(tx, host, name, (None, "the disk is full"), now).await),
        6 => text(&packages::withdraw(tx, host, name).await),
        7 => text(&packages::withdraw_ended(tx).await),
        _ => text(&sorted(packages::mark_missing(tx, now).await)),
    };
    let all = packages::list(tx, None, None, i64::MAX).await;
    ("packages", format!("{answer} {}", text(&all)), true)
}

/// Make a version pending, as a host does that finds a version it may not activate.
async fn set_pending(tx: &mut Tx, name: &str, byte: u8, now: Timestamp) -> String {
    let bytes = [byte];
    let digest = ArtifactDigest::of(&bytes);
    let row = packages::find(tx, name).await.unwrap();
    let active = row.and_then(|row| row.digest);
    if active.is_none_or(|active| active == digest) {
        return "no other active version".to_owned();
    }
    let loaded = LoadedPackage {
        name,
        digest: &digest,
        form: "typed_component",
        bytes: &bytes,
        manifest: "{}",
        signature: None,
        sidecar: SidecarSummary::default(),
    };
    text(&packages::set_pending(tx, &loaded, now).await)
}
