//! What the database keeps of sidecars, and file records deleted along with the file.

use campanile_control::admin::schedule_admin::{ScheduleError, known_package};
use campanile_model::ids::HostId;
use campanile_store::packages::{self, LoadedPackage, PackageState, SidecarSummary};
use campanile_store::{Tx, hosts, sidecars};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{BYTES, PACKAGE, at, digest, host, host_id};

on_both!(
    a_context_is_stored_for_its_host_name_only,
    a_sidecar_is_deleted_when_its_package_is_withdrawn,
    a_rejected_file_that_was_never_usable_is_deleted_with_the_file,
    rejections_of_a_host_are_deleted_when_the_host_ends,
);

fn with_context(context: &str) -> SidecarSummary<'_> {
    SidecarSummary {
        context,
        ..SidecarSummary::default()
    }
}

async fn register(tx: &mut Tx, number: u128, name: &str) -> HostId {
    let id = host_id(number);
    hosts::register(tx, &host(id, name, at(0))).await.unwrap();
    id
}

async fn publish(tx: &mut Tx, host: HostId, sidecar: SidecarSummary<'_>) {
    let loaded = LoadedPackage {
        name: PACKAGE,
        digest: &digest(),
        form: "typed_component",
        bytes: BYTES,
        manifest: "{}",
        signature: None,
        sidecar,
    };
    packages::publish(tx, host, &loaded, at(1)).await.unwrap();
}

async fn a_context_is_stored_for_its_host_name_only(test: TestDb) {
    let mut tx = test.write().await;
    let first = register(&mut tx, 1, "host-1").await;
    let second = register(&mut tx, 2, "host-2").await;
    publish(&mut tx, first, with_context(r#"{"a":"é"}"#)).await;
    // A host without a sidecar has the package too.
    let none = SidecarSummary::default();
    packages::publish_host(&mut tx, second, PACKAGE, &digest(), none)
        .await
        .unwrap();
    let stored = sidecars::contexts(&mut tx, PACKAGE).await.unwrap();
    assert_eq!(stored, [r#"{"a":"é"}"#]);
    assert_eq!(
        sidecars::packages(&mut tx, second).await.unwrap(),
        [PACKAGE]
    );

    hosts::end(&mut tx, first, at(2)).await.unwrap();
    packages::withdraw_ended(&mut tx).await.unwrap();
    let again = register(&mut tx, 3, "host-1").await;
    assert_eq!(sidecars::packages(&mut tx, again).await.unwrap(), [PACKAGE]);
    assert_eq!(sidecars::contexts(&mut tx, PACKAGE).await.unwrap().len(), 1);
    packages::publish_host(&mut tx, again, PACKAGE, &digest(), none)
        .await
        .unwrap();
    let stored = sidecars::contexts(&mut tx, PACKAGE).await.unwrap();
    assert_eq!(stored, Vec::<String>::new(), "the newest one counts");
}

async fn a_sidecar_is_deleted_when_its_package_is_withdrawn(test: TestDb) {
    let mut tx = test.write().await;
    let first = register(&mut tx, 1, "host-1").await;
    let second = register(&mut tx, 2, "host-2").await;
    for host in [first, second] {
        publish(&mut tx, host, with_context("{}")).await;
    }
    packages::withdraw(&mut tx, first, PACKAGE).await.unwrap();
    for (host, left) in [(first, 0), (second, 1)] {
        let known = sidecars::packages(&mut tx, host).await.unwrap();
        assert_eq!(known.len(), left);
    }
    // A later process of the same host name finds that the file is gone.
    hosts::end(&mut tx, second, at(2)).await.unwrap();
    let later = register(&mut tx, 3, "host-2").await;
    packages::forget_file(&mut tx, later, PACKAGE)
        .await
        .unwrap();
    assert_eq!(
        sidecars::packages(&mut tx, later).await.unwrap(),
        Vec::<String>::new()
    );
    let row = packages::find(&mut tx, PACKAGE).await.unwrap().unwrap();
    assert_eq!(
        row.digest,
        Some(digest()),
        "the active version stays in the table"
    );
}

async fn a_rejected_file_that_was_never_usable_is_deleted_with_the_file(test: TestDb) {
    let mut tx = test.write().await;
    let first = register(&mut tx, 1, "host-1").await;
    let second = register(&mut tx, 2, "host-2").await;
    publish(&mut tx, first, SidecarSummary::default()).await;
    for (name, host) in [("broken", first), (PACKAGE, first), ("other", second)] {
        packages::reject(&mut tx, host, name, (None, "not wasm"), at(2))
            .await
            .unwrap();
    }
    let row = packages::find(&mut tx, "broken").await.unwrap().unwrap();
    assert_eq!((row.state(), row.loaded_at), (PackageState::Rejected, None));
    let refused = known_package(&mut tx, "broken").await.unwrap_err();
    assert!(
        matches!(refused, ScheduleError::PackageRejected { .. }),
        "{refused}"
    );
    // Records of other hosts stay.
    for name in ["broken", "other", PACKAGE] {
        packages::forget_file(&mut tx, first, name).await.unwrap();
    }
    let all = packages::list(&mut tx, None, None, i64::MAX).await.unwrap();
    let all: Vec<_> = all
        .iter()
        .map(|row| (row.name.as_str(), row.state()))
        .collect();
    assert_eq!(
        all,
        [
            (PACKAGE, PackageState::Active),
            ("other", PackageState::Rejected)
        ]
    );
}

async fn rejections_of_a_host_are_deleted_when_the_host_ends(test: TestDb) {
    let mut tx = test.write().await;
    let first = register(&mut tx, 1, "host-1").await;
    let second = register(&mut tx, 2, "host-2").await;
    publish(&mut tx, second, SidecarSummary::default()).await;
    for name in ["broken", PACKAGE] {
        packages::reject(&mut tx, first, name, (None, "not wasm"), at(2))
            .await
            .unwrap();
    }
    packages::reject(&mut tx, second, "living", (None, "not wasm"), at(2))
        .await
        .unwrap();
    packages::forget_files_of_ended(&mut tx).await.unwrap();
    assert_eq!(
        packages::list(&mut tx, None, None, i64::MAX)
            .await
            .unwrap()
            .len(),
        3
    );
    hosts::end(&mut tx, first, at(3)).await.unwrap();
    packages::forget_files_of_ended(&mut tx).await.unwrap();
    let all = packages::list(&mut tx, None, None, i64::MAX).await.unwrap();
    let all: Vec<_> = all
        .iter()
        .map(|row| (row.name.as_str(), row.state()))
        .collect();
    assert_eq!(
        all,
        [
            (PACKAGE, PackageState::Active),
            ("living", PackageState::Rejected)
        ]
    );
}
