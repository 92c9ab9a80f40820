//! What is kept of sidecars, and what is forgotten of files that are gone.

use campanile_engine::schedule_admin::{ScheduleError, known_package};
use campanile_model::ids::HostId;
use campanile_store::Tx;
use campanile_store::hosts;
use campanile_store::packages::{self, LoadedPackage, PackageState, SidecarSummary};
use campanile_store::sidecars::{self, LastSidecar};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{BYTES, PACKAGE, at, digest, host, host_id};

on_both!(
    a_sidecar_is_kept_for_its_host_name_and_for_no_other,
    a_sidecar_is_forgotten_when_its_package_is_gone,
    a_file_that_was_never_usable_is_forgotten_when_it_is_gone,
    rejections_of_a_host_are_forgotten_when_it_ends,
);

const ENV: &str = r#"["env","TOKEN"]"#;

fn granting(sidecar: &str) -> SidecarSummary<'_> {
    SidecarSummary {
        grants: ENV,
        pin: None,
        text: Some(sidecar),
    }
}

fn kept(sidecar: Option<&str>, grants: &str) -> Option<LastSidecar> {
    Some(LastSidecar {
        sidecar: sidecar.map(str::to_owned),
        grants: grants.to_owned(),
    })
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
        sidecar,
    };
    packages::publish(tx, host, &loaded, at(1)).await.unwrap();
}

async fn a_sidecar_is_kept_for_its_host_name_and_for_no_other(test: TestDb) {
    let mut tx = test.write().await;
    let one = register(&mut tx, 1, "tower-1").await;
    let two = register(&mut tx, 2, "tower-2").await;
    publish(&mut tx, one, granting("grants.env = ['TOKEN']\n# é\n")).await;
    let text = Some("grants.env = ['TOKEN']\n# é\n");
    assert_eq!(
        sidecars::find(&mut tx, one, PACKAGE).await.unwrap(),
        kept(text, ENV)
    );
    assert_eq!(sidecars::find(&mut tx, two, PACKAGE).await.unwrap(), None);
    // That there was none is worth knowing, too.
    packages::publish_host(&mut tx, two, PACKAGE, &digest(), SidecarSummary::default())
        .await
        .unwrap();
    assert_eq!(
        sidecars::find(&mut tx, two, PACKAGE).await.unwrap(),
        kept(None, "")
    );

    hosts::end(&mut tx, one, at(2)).await.unwrap();
    packages::withdraw_ended(&mut tx).await.unwrap();
    let again = register(&mut tx, 3, "tower-1").await;
    assert_eq!(
        sidecars::find(&mut tx, again, PACKAGE).await.unwrap(),
        kept(text, ENV)
    );
    assert_eq!(sidecars::packages(&mut tx, again).await.unwrap(), [PACKAGE]);
    let narrower = SidecarSummary::default();
    packages::publish_host(&mut tx, again, PACKAGE, &digest(), narrower)
        .await
        .unwrap();
    assert_eq!(
        sidecars::find(&mut tx, again, PACKAGE).await.unwrap(),
        kept(None, ""),
        "the last one"
    );
}

async fn a_sidecar_is_forgotten_when_its_package_is_gone(test: TestDb) {
    let mut tx = test.write().await;
    let one = register(&mut tx, 1, "tower-1").await;
    let two = register(&mut tx, 2, "tower-2").await;
    for host in [one, two] {
        publish(&mut tx, host, granting("a")).await;
    }
    packages::withdraw(&mut tx, one, PACKAGE).await.unwrap();
    assert_eq!(sidecars::find(&mut tx, one, PACKAGE).await.unwrap(), None);
    assert_eq!(
        sidecars::find(&mut tx, two, PACKAGE).await.unwrap(),
        kept(Some("a"), ENV)
    );
    // A later process of the host, which never had it, finds it gone.
    hosts::end(&mut tx, two, at(2)).await.unwrap();
    let later = register(&mut tx, 3, "tower-2").await;
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
        "what was in force stays on the record"
    );
}

async fn a_file_that_was_never_usable_is_forgotten_when_it_is_gone(test: TestDb) {
    let mut tx = test.write().await;
    let one = register(&mut tx, 1, "tower-1").await;
    let two = register(&mut tx, 2, "tower-2").await;
    publish(&mut tx, one, SidecarSummary::default()).await;
    for (name, host) in [("ghost", one), (PACKAGE, one), ("other", two)] {
        packages::reject(&mut tx, host, name, "not wasm", at(2))
            .await
            .unwrap();
    }
    let row = packages::find(&mut tx, "ghost").await.unwrap().unwrap();
    assert_eq!((row.state(), row.loaded_at), (PackageState::Rejected, None));
    let refused = known_package(&mut tx, "ghost").await.unwrap_err();
    assert!(
        matches!(refused, ScheduleError::PackageRejected { .. }),
        "{refused}"
    );
    // What another host recorded stays.
    for name in ["ghost", "other", PACKAGE] {
        packages::forget_file(&mut tx, one, name).await.unwrap();
    }
    let all = packages::list(&mut tx, None).await.unwrap();
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

async fn rejections_of_a_host_are_forgotten_when_it_ends(test: TestDb) {
    let mut tx = test.write().await;
    let one = register(&mut tx, 1, "tower-1").await;
    let two = register(&mut tx, 2, "tower-2").await;
    publish(&mut tx, two, SidecarSummary::default()).await;
    for name in ["ghost", PACKAGE] {
        packages::reject(&mut tx, one, name, "not wasm", at(2))
            .await
            .unwrap();
    }
    packages::reject(&mut tx, two, "living", "not wasm", at(2))
        .await
        .unwrap();
    packages::forget_rejections_of_ended(&mut tx).await.unwrap();
    assert_eq!(packages::list(&mut tx, None).await.unwrap().len(), 3);
    hosts::end(&mut tx, one, at(3)).await.unwrap();
    packages::forget_rejections_of_ended(&mut tx).await.unwrap();
    let all = packages::list(&mut tx, None).await.unwrap();
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
