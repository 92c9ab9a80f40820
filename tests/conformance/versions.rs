//! Which version of a package is active: what people decide, what hosts find, and the races between them.

use std::path::PathBuf;
use std::sync::Arc;

use campanile_engine::approval::{
    self, Attribution, PackageError, VersionAdmission, VersionChange,
};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, HostId};
use campanile_package::requests::list_requests;
use campanile_package::{GrantRecord, Manifest, Package, Sidecar};
use campanile_sandbox::{Grants, Limits};
use campanile_store::package_versions::{self, VersionDecision};
use campanile_store::packages::{self, LoadedPackage, PackageState, SidecarSummary};
use campanile_store::{Db, Tx, events, hosts};
use campanile_tests::{TestDb, on_both};
use serde_json::json;

use crate::fixtures::{PACKAGE, at, host, host_id};

on_both!(
    a_version_that_waits_is_approved_or_rejected_once,
    a_former_version_is_in_force_again_and_what_came_after_it_is_kept_out,
    a_file_of_other_bytes_takes_the_place_of_one_that_is_kept_out,
    every_host_follows_the_same_decision,
    an_order_that_cannot_be_carried_out_changes_nothing,
    what_is_approved_without_a_digest_is_what_alone_could_be_meant,
    what_an_order_puts_in_force_says_what_it_is_denied,
    a_host_that_lets_in_one_version_only_is_heard,
    an_approval_and_a_new_file_at_once_leave_one_version_in_force,
    a_rollback_and_the_file_it_keeps_out_at_once_leave_the_former_version_in_force,
);

const ADA: Attribution<'_> = Attribution {
    by: "ada",
    note: Some("looked at it"),
};

/// What the bytes `bytes` make; those that begin with `asks` ask for a variable.
fn file(bytes: &str, granted: bool) -> Package<()> {
    let env: &[&str] = match bytes.starts_with("asks") {
        true => &["TOKEN"],
        false => &[],
    };
    let description = json!({"version": bytes, "requests": {"env": env}});
    let mut grants = Grants::default();
    if granted {
        grants.env.insert("TOKEN".to_owned(), String::new());
    }
    Package {
        name: PACKAGE.to_owned(),
        digest: ArtifactDigest::of(bytes.as_bytes()),
        artifact: Arc::new(()),
        manifest: Arc::new(Manifest::from_json(PACKAGE, &description).unwrap()),
        grant_record: GrantRecord::of(&grants),
        sidecar: Arc::new(Sidecar {
            grants: Arc::new(grants),
            ..Sidecar::default()
        }),
        sidecar_hash: None,
        path: PathBuf::new(),
        limits: Limits::default(),
    }
}

fn of(bytes: &str) -> ArtifactDigest {
    ArtifactDigest::of(bytes.as_bytes())
}

/// Do what a host does with a file that it finds; return whether the file's version is active.
async fn find_file(tx: &mut Tx, host: HostId, bytes: &str, granted: bool, now: Timestamp) -> bool {
    let package = file(bytes, granted);
    packages::lock_or_create(tx, PACKAGE).await.unwrap();
    let row = packages::find(tx, PACKAGE).await.unwrap();
    let decision = package_versions::decision(tx, PACKAGE, &package.digest)
        .await
        .unwrap();
    let entry = approval::admission(row.as_ref(), decision, &package);
    let loaded = LoadedPackage {
        name: PACKAGE,
        digest: &package.digest,
        form: "typed_component",
        bytes: bytes.as_bytes(),
        manifest: &package.manifest.description.to_string(),
        sidecar: SidecarSummary {
            grants: &package.grant_record.text,
            pin: None,
            text: None,
        },
    };
    match entry {
        VersionAdmission::Active => packages::publish(tx, host, &loaded, now).await.unwrap(),
        _ => packages::set_pending(tx, &loaded, now).await.unwrap(),
    }
    entry == VersionAdmission::Active
}

/// Do the same at the first host, in a separate transaction.
async fn drop_file(test: &TestDb, bytes: &str, now: u64) -> bool {
    let mut tx = test.write().await;
    let taken = find_file(&mut tx, host_id(1), bytes, false, at(now)).await;
    tx.commit().await.unwrap();
    taken
}

async fn two_hosts(test: &TestDb) {
    let mut tx = test.write().await;
    for number in 1..=2 {
        let host = host(host_id(number), &format!("tower-{number}"), at(0));
        hosts::register(&mut tx, &host).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// Return the state, the active version and the pending version.
async fn state(test: &TestDb) -> (PackageState, ArtifactDigest, Option<ArtifactDigest>) {
    let row = packages::find(&mut test.read().await, PACKAGE).await;
    let row = row.unwrap().expect("a package");
    // The manifest is that of the active version.
    let manifest = Manifest::from_stored(PACKAGE, &row.manifest);
    let digest = row.digest.clone().expect("a version in force");
    assert_eq!(of(&manifest.version.expect("a version")), digest);
    (row.state(), digest, row.pending_digest)
}

async fn decisions(test: &TestDb) -> Vec<(String, Option<VersionDecision>)> {
    let all = package_versions::of_package(&mut test.read().await, PACKAGE).await;
    let version = |version: package_versions::Version| {
        let manifest = Manifest::from_stored(PACKAGE, &version.manifest);
        (manifest.version.unwrap_or_default(), version.decision)
    };
    all.unwrap().into_iter().map(version).collect()
}

async fn roll_back(
    test: &TestDb,
    to: Option<&str>,
    now: u64,
) -> Result<VersionChange, PackageError> {
    let mut tx = test.write().await;
    let decided = approval::roll_back(&mut tx, PACKAGE, to, ADA, at(now)).await?;
    tx.commit().await?;
    Ok(decided)
}

async fn approve(
    test: &TestDb,
    digest: Option<&str>,
    now: u64,
) -> Result<VersionChange, PackageError> {
    let mut tx = test.write().await;
    let decided = approval::approve(&mut tx, PACKAGE, digest, ADA, at(now)).await?;
    tx.commit().await?;
    Ok(decided)
}

async fn reject(test: &TestDb, now: u64) -> Result<VersionChange, PackageError> {
    let mut tx = test.write().await;
    let decided = approval::reject(&mut tx, PACKAGE, None, ADA, at(now)).await?;
    tx.commit().await?;
    Ok(decided)
}

async fn a_version_that_waits_is_approved_or_rejected_once(test: TestDb) {
    two_hosts(&test).await;
    assert!(drop_file(&test, "one", 1).await);
    assert!(!drop_file(&test, "asks 2", 2).await, "it asks for more");
    // Found again by every scan, and by a restart.
    assert!(!drop_file(&test, "asks 2", 3).await);
    let waits = (PackageState::PendingApproval, of("one"), Some(of("asks 2")));
    assert_eq!(state(&test).await, waits);
    let row = packages::find(&mut test.read().await, PACKAGE).await;
    assert_eq!(row.unwrap().unwrap().pending_since, Some(at(2)));

    let rejected = reject(&test, 4).await.unwrap();
    assert_eq!(
        (rejected.digest, rejected.before),
        (of("asks 2"), of("one"))
    );
    assert!(!drop_file(&test, "asks 2", 5).await);
    let kept_out = (PackageState::Rejected, of("one"), Some(of("asks 2")));
    assert_eq!(state(&test).await, kept_out);
    let twice = reject(&test, 6).await.unwrap_err().to_string();
    assert!(twice.contains("rejected already"), "{twice}");

    // A person may think better of it.
    let approved = approve(&test, Some(&of("asks 2").as_str()[..8]), 7).await;
    assert_eq!(approved.unwrap().before, of("one"));
    let in_force = (PackageState::Active, of("asks 2"), None);
    assert_eq!(state(&test).await, in_force);
    assert!(drop_file(&test, "asks 2", 8).await);
    assert_eq!(state(&test).await, in_force);
    let none = approve(&test, None, 9).await.unwrap_err().to_string();
    assert!(none.contains("has no pending version"), "{none}");

    let versions = package_versions::of_package(&mut test.read().await, PACKAGE).await;
    let versions = versions.unwrap();
    assert_eq!(versions.len(), 2);
    let version = &versions[1];
    assert_eq!(version.first_seen_at, at(2));
    assert_eq!(
        version.activated_at,
        Some(at(7)),
        "not when it was found again"
    );
    assert_eq!(version.decision, Some(VersionDecision::Approved));
    assert_eq!(version.decided_at, Some(at(7)));
    assert_eq!(version.decided_by.as_deref(), Some("ada"));
    assert_eq!(version.note.as_deref(), Some("looked at it"));
    let events = events::list(&mut test.read().await, 10).await.unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["version_approved", "version_rejected"]);
    assert!(
        events[0].detail.contains("by ada: looked at it"),
        "{events:?}"
    );
}

async fn a_former_version_is_in_force_again_and_what_came_after_it_is_kept_out(test: TestDb) {
    two_hosts(&test).await;
    for (now, bytes) in (1..).zip(["one", "two", "three"]) {
        assert!(drop_file(&test, bytes, now).await);
    }
    let back = roll_back(&test, None, 10).await.unwrap();
    assert_eq!((back.digest, back.before), (of("two"), of("three")));
    let rolled_back = (PackageState::RolledBack, of("two"), Some(of("three")));
    assert_eq!(state(&test).await, rolled_back);
    assert!(
        !drop_file(&test, "three", 11).await,
        "the file is still there"
    );
    assert_eq!(state(&test).await, rolled_back);

    // The next rollback goes further back, and not to the version that was rolled back. The file is still pending.
    assert_eq!(roll_back(&test, None, 12).await.unwrap().digest, of("one"));
    let rolled_back = (PackageState::RolledBack, of("one"), Some(of("three")));
    assert_eq!(state(&test).await, rolled_back);
    let approved = Some(VersionDecision::Approved);
    let against = Some(VersionDecision::RolledBack);
    let named = |name: &str, decision| (name.to_owned(), decision);
    assert_eq!(
        decisions(&test).await,
        [
            named("one", approved),
            named("two", against),
            named("three", against)
        ]
    );
    assert!(!drop_file(&test, "two", 13).await, "also from another host");
    assert!(matches!(
        roll_back(&test, None, 14).await,
        Err(PackageError::NoFormer(_))
    ));

    // Forward by name, and then by approval.
    let three = of("three");
    roll_back(&test, Some(&three.as_str()[..12]), 15)
        .await
        .unwrap();
    assert_eq!(state(&test).await.1, three);
    // Seen from there the others came later, so they are not gone back to unasked.
    assert!(matches!(
        roll_back(&test, None, 16).await,
        Err(PackageError::NoFormer(_))
    ));
    let one = of("one");
    roll_back(&test, Some(one.as_str()), 16).await.unwrap();
    assert_eq!(state(&test).await.1, one);
    assert!(!drop_file(&test, "three", 17).await);
    approve(&test, None, 18).await.unwrap();
    assert_eq!(state(&test).await, (PackageState::Active, three, None));
}

async fn a_file_of_other_bytes_takes_the_place_of_one_that_is_kept_out(test: TestDb) {
    two_hosts(&test).await;
    drop_file(&test, "one", 1).await;
    drop_file(&test, "two", 2).await;
    roll_back(&test, None, 3).await.unwrap();
    assert!(drop_file(&test, "three", 4).await);
    assert_eq!(
        state(&test).await,
        (PackageState::Active, of("three"), None)
    );
    assert!(!drop_file(&test, "two", 5).await, "a decision is for good");

    // An unusable file replaces a pending version, and so does the active version itself.
    drop_file(&test, "asks 4", 6).await;
    let mut tx = test.write().await;
    packages::reject(&mut tx, host_id(1), PACKAGE, "not wasm", at(7))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        state(&test).await,
        (PackageState::Rejected, of("three"), None)
    );
    drop_file(&test, "asks 4", 8).await;
    assert_eq!(state(&test).await.0, PackageState::PendingApproval);
    let mut tx = test.write().await;
    packages::clear_pending(&mut tx, PACKAGE).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        state(&test).await,
        (PackageState::Active, of("three"), None)
    );

    // What no host has waits no more either.
    drop_file(&test, "asks 4", 9).await;
    let mut tx = test.write().await;
    packages::withdraw(&mut tx, host_id(1), PACKAGE)
        .await
        .unwrap();
    packages::mark_missing(&mut tx, at(10)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        state(&test).await,
        (PackageState::Missing, of("three"), None)
    );
}

async fn every_host_follows_the_same_decision(test: TestDb) {
    two_hosts(&test).await;
    drop_file(&test, "one", 1).await;
    assert!(!drop_file(&test, "asks 2", 2).await);
    // The other host's sidecar grants the request. The version becomes active there, and so at both.
    let mut tx = test.write().await;
    assert!(find_file(&mut tx, host_id(2), "asks 2", true, at(3)).await);
    tx.commit().await.unwrap();
    assert!(drop_file(&test, "asks 2", 4).await);
    assert_eq!(
        state(&test).await,
        (PackageState::Active, of("asks 2"), None)
    );

    roll_back(&test, None, 5).await.unwrap();
    let kept_out = package_versions::blocked(&mut test.read().await).await;
    assert_eq!(kept_out.unwrap(), [(PACKAGE.to_owned(), of("asks 2"))]);
    let mut tx = test.write().await;
    assert!(
        !find_file(&mut tx, host_id(2), "asks 2", true, at(6)).await,
        "a decision counts more than a grant"
    );
    drop(tx);
    let decided = package_versions::last_decided_at(&mut test.read().await).await;
    assert_eq!(decided.unwrap(), Some(at(5)));
}

async fn an_order_that_cannot_be_carried_out_changes_nothing(test: TestDb) {
    two_hosts(&test).await;
    drop_file(&test, "one", 1).await;
    drop_file(&test, "asks 2", 2).await;
    let before = state(&test).await;
    let other = of("other");
    let never = of("asks 2");
    for (error, expected) in [
        (approve(&test, Some("12"), 3).await, "at least 4"),
        (
            approve(&test, Some(other.as_str()), 3).await,
            "the pending version of `chimes` is",
        ),
        (roll_back(&test, None, 3).await, "no former version"),
        (
            roll_back(&test, Some(other.as_str()), 3).await,
            "has no version",
        ),
        (
            roll_back(&test, Some(never.as_str()), 3).await,
            "was never active",
        ),
        (
            roll_back(&test, Some(of("one").as_str()), 3).await,
            "active already",
        ),
    ] {
        let said = error.unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
    let mut tx = test.write().await;
    let unknown = approval::approve(&mut tx, "chime", None, ADA, at(3)).await;
    let said = unknown.unwrap_err().to_string();
    assert!(said.contains("did you mean `chimes`?"), "{said}");
    packages::reject(&mut tx, host_id(1), "bad", "it is empty", at(3))
        .await
        .unwrap();
    let never = approval::roll_back(&mut tx, "bad", None, ADA, at(3)).await;
    let said = never.unwrap_err().to_string();
    assert!(said.contains("was ever active: it is empty"), "{said}");
    drop(tx);
    assert_eq!(state(&test).await, before);
}

async fn what_is_approved_without_a_digest_is_what_alone_could_be_meant(test: TestDb) {
    two_hosts(&test).await;
    drop_file(&test, "one", 1).await;
    assert!(!drop_file(&test, "asks 2", 2).await);
    // A newer file replaces the version while a person reviews it.
    assert!(!drop_file(&test, "asks 3", 3).await);
    let before = state(&test).await;
    let unclear = approve(&test, None, 4).await.unwrap_err();
    let said = unclear.to_string();
    let [looked_at, held] = ["asks 2", "asks 3"].map(of);
    assert!(
        said.contains(held.short()) && said.contains(looked_at.short()),
        "{said}"
    );
    let command = approval::approve_command(PACKAGE, &held);
    assert!(unclear.hint().contains(&command), "{}", unclear.hint());
    let other = approve(&test, Some(looked_at.short()), 4).await;
    assert!(
        matches!(other, Err(PackageError::NotPending { .. })),
        "{other:?}"
    );
    assert_eq!(state(&test).await, before);
    let approved = approve(&test, Some(held.short()), 5).await.unwrap();
    assert_eq!(approved.digest, held);
}

async fn what_an_order_puts_in_force_says_what_it_is_denied(test: TestDb) {
    two_hosts(&test).await;
    drop_file(&test, "one", 1).await;
    drop_file(&test, "asks 2", 2).await;
    let denied = |decided: VersionChange| list_requests(&decided.denied);
    assert_eq!(
        denied(reject(&test, 3).await.unwrap()),
        "",
        "nothing came in force"
    );
    assert_eq!(denied(approve(&test, None, 4).await.unwrap()), "env TOKEN");
    assert_eq!(denied(roll_back(&test, None, 5).await.unwrap()), "");
    let mut tx = test.write().await;
    let settings = SidecarSummary {
        grants: r#"["env","TOKEN"]"#,
        ..SidecarSummary::default()
    };
    packages::publish_host(&mut tx, host_id(1), PACKAGE, &of("one"), settings)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(denied(approve(&test, None, 6).await.unwrap()), "");
}

async fn a_host_that_lets_in_one_version_only_is_heard(test: TestDb) {
    two_hosts(&test).await;
    drop_file(&test, "one", 1).await;
    drop_file(&test, "two", 2).await;
    let pin = of("two");
    let settings = SidecarSummary {
        grants: "",
        pin: Some(pin.as_str()),
        text: None,
    };
    let mut tx = test.write().await;
    packages::publish_host(&mut tx, host_id(2), PACKAGE, &pin, settings)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let refused = roll_back(&test, None, 3).await.unwrap_err();
    assert!(!refused.hint().is_empty());
    let said = refused.to_string();
    assert!(
        said.contains("tower-2") && said.contains(pin.as_str()),
        "{said}"
    );
    // The pin of an ended host does not count.
    let mut tx = test.write().await;
    hosts::end(&mut tx, host_id(2), at(4)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(roll_back(&test, None, 5).await.unwrap().digest, of("one"));
}

const ROUNDS: u64 = 25;

async fn an_approval_and_a_new_file_at_once_leave_one_version_in_force(test: TestDb) {
    two_hosts(&test).await;
    drop_file(&test, "one", 1).await;
    let other = Db::open(&test.place.url).await.unwrap();
    let (mut before, mut after) = (0, 0);
    for round in 0..ROUNDS {
        let (waits, comes) = (format!("asks {round}"), format!("plain {round}"));
        let now = 10 + 10 * round;
        assert!(!drop_file(&test, &waits, now).await, "round {round}");
        let host = async {
            let mut tx = other.write().await.unwrap();
            let taken = find_file(&mut tx, host_id(2), &comes, false, at(now + 1)).await;
            tx.commit().await.unwrap();
            assert!(taken, "it asks for nothing");
        };
        let (approved, ()) = tokio::join!(approve(&test, None, now + 1), host);
        match approved {
            Ok(_) => before += 1,
            Err(PackageError::NothingPending(_)) => after += 1,
            Err(other) => panic!("{other}"),
        }
        // Whichever transaction was last, the newest file is active and no version is pending.
        assert_eq!(state(&test).await, (PackageState::Active, of(&comes), None));
    }
    println!("approved first in {before} rounds, too late in {after}");
}

async fn a_rollback_and_the_file_it_keeps_out_at_once_leave_the_former_version_in_force(
    test: TestDb,
) {
    two_hosts(&test).await;
    drop_file(&test, "one", 1).await;
    let other = Db::open(&test.place.url).await.unwrap();
    for round in 0..ROUNDS {
        let (bytes, now) = (format!("two {round}"), 10 + 10 * round);
        assert!(drop_file(&test, &bytes, now).await);
        // The other host restarts with that file.
        let host = async {
            let mut tx = other.write().await.unwrap();
            find_file(&mut tx, host_id(2), &bytes, false, at(now + 1)).await;
            tx.commit().await.unwrap();
        };
        let (back, ()) = tokio::join!(roll_back(&test, None, now + 1), host);
        assert_eq!(back.unwrap().digest, of("one"), "round {round}");
        let rolled_back = (PackageState::RolledBack, of("one"), Some(of(&bytes)));
        assert_eq!(state(&test).await, rolled_back, "round {round}");
    }
}
