//! Which version of a package is active: decisions of operators, files that hosts find, and races between both.

use std::path::PathBuf;
use std::sync::Arc;

use campanile_control::admin::approval::{
    self, Attribution, PackageError, VersionAdmission, VersionChange,
};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, HostId};
use campanile_package::requests::list_requests;
use campanile_package::{Approval, GrantRecord, Manifest, Package, Sidecar};
use campanile_sandbox::{Grants, Limits};
use campanile_store::package_versions::{self, VersionDecision};
use campanile_store::packages::{self, LoadedPackage, PackageState, SidecarSummary};
use campanile_store::{Db, Tx, events, hosts};
use campanile_tests::{TestDb, on_both};
use serde_json::json;

use crate::fixtures::{self, PACKAGE, at, host, host_id};

on_both!(
    a_pending_version_is_approved_or_rejected,
    a_rollback_activates_a_former_version_and_blocks_newer_ones,
    a_new_file_replaces_a_pending_version,
    all_hosts_follow_the_same_decision,
    an_invalid_version_command_changes_nothing,
    an_approval_without_a_digest_needs_a_single_pending_version,
    a_version_change_lists_the_requests_that_are_denied,
    a_rollback_against_a_hosts_pin_is_refused,
    an_approval_and_a_new_file_at_once_leave_one_version_active,
    a_rollback_during_a_scan_of_the_blocked_file_keeps_the_former_version_active,
);

fn ada() -> Attribution<'static> {
    Attribution {
        note: Some("looked at it"),
        ..fixtures::ada()
    }
}

/// Return the package with the bytes `bytes`. Bytes that begin with `asks` request a variable.
fn package_of(bytes: &str, granted: bool) -> Package<()> {
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
        signature: None,
        limits: Limits::default(),
    }
}

fn digest_of(bytes: &str) -> ArtifactDigest {
    ArtifactDigest::of(bytes.as_bytes())
}

/// Publish a file as a host does that finds it. Return whether the file's version is active.
async fn find_file(tx: &mut Tx, host: HostId, bytes: &str, granted: bool, now: Timestamp) -> bool {
    let package = package_of(bytes, granted);
    packages::lock_or_create(tx, PACKAGE).await.unwrap();
    let row = packages::find(tx, PACKAGE).await.unwrap();
    let decision = package_versions::decision(tx, PACKAGE, &package.digest).await;
    let decision = decision.unwrap().map(|it| it.decision);
    let admission = approval::admission(Approval::Requests, row.as_ref(), decision, &package);
    let loaded = LoadedPackage {
        name: PACKAGE,
        digest: &package.digest,
        form: "typed_component",
        bytes: bytes.as_bytes(),
        manifest: &package.manifest.description.to_string(),
        signature: None,
        sidecar: SidecarSummary {
            grants: &package.grant_record.text,
            pin: None,
            context: "",
        },
    };
    match admission {
        VersionAdmission::Active => packages::publish(tx, host, &loaded, now).await.unwrap(),
        _ => packages::set_pending(tx, &loaded, now).await.unwrap(),
    }
    admission == VersionAdmission::Active
}

/// Publish a file at the first host, in its own transaction. Return whether the file's version is active.
async fn add_file(test: &TestDb, bytes: &str, now: u64) -> bool {
    let mut tx = test.write().await;
    let is_active = find_file(&mut tx, host_id(1), bytes, false, at(now)).await;
    tx.commit().await.unwrap();
    is_active
}

async fn register_two_hosts(test: &TestDb) {
    let mut tx = test.write().await;
    for number in 1..=2 {
        let host = host(host_id(number), &format!("host-{number}"), at(0));
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
    let digest = row.digest.clone().expect("an active version");
    assert_eq!(
        digest_of(&manifest.version.clone().expect("a version")),
        digest
    );
    (row.state(), digest, row.pending_digest)
}

async fn decisions(test: &TestDb) -> Vec<(String, Option<VersionDecision>)> {
    let mut tx = test.read().await;
    let all = package_versions::of_package(&mut tx, PACKAGE).await;
    let mut decisions = Vec::new();
    for version in all.unwrap() {
        let stored = package_versions::manifest(&mut tx, PACKAGE, &version.digest).await;
        let manifest = Manifest::from_stored(PACKAGE, &stored.unwrap().unwrap());
        decisions.push((
            manifest.version.clone().unwrap_or_default(),
            version.decision,
        ));
    }
    decisions
}

async fn roll_back(
    test: &TestDb,
    to: Option<&str>,
    now: u64,
) -> Result<VersionChange, PackageError> {
    let mut tx = test.write().await;
    let decided = approval::roll_back(&mut tx, PACKAGE, to, ada(), at(now)).await?;
    tx.commit().await?;
    Ok(decided)
}

async fn approve(
    test: &TestDb,
    digest: Option<&str>,
    now: u64,
) -> Result<VersionChange, PackageError> {
    let mut tx = test.write().await;
    let decided = approval::approve(&mut tx, PACKAGE, digest, ada(), at(now)).await?;
    tx.commit().await?;
    Ok(decided)
}

async fn reject(test: &TestDb, now: u64) -> Result<VersionChange, PackageError> {
    let mut tx = test.write().await;
    let decided = approval::reject(&mut tx, PACKAGE, None, ada(), at(now)).await?;
    tx.commit().await?;
    Ok(decided)
}

async fn a_pending_version_is_approved_or_rejected(test: TestDb) {
    register_two_hosts(&test).await;
    assert!(add_file(&test, "one", 1).await);
    assert!(
        !add_file(&test, "asks 2", 2).await,
        "it requests more than is granted"
    );
    // Every scan and every restart finds the file again.
    assert!(!add_file(&test, "asks 2", 3).await);
    let pending = (
        PackageState::PendingApproval,
        digest_of("one"),
        Some(digest_of("asks 2")),
    );
    assert_eq!(state(&test).await, pending);
    let row = packages::find(&mut test.read().await, PACKAGE).await;
    assert_eq!(row.unwrap().unwrap().pending_since, Some(at(2)));

    let rejected = reject(&test, 4).await.unwrap();
    assert_eq!(
        (rejected.digest, rejected.before),
        (digest_of("asks 2"), Some(digest_of("one")))
    );
    assert!(!add_file(&test, "asks 2", 5).await);
    let rejected_state = (
        PackageState::Rejected,
        digest_of("one"),
        Some(digest_of("asks 2")),
    );
    assert_eq!(state(&test).await, rejected_state);
    let second_time = reject(&test, 6).await.unwrap_err().to_string();
    assert!(second_time.contains("rejected already"), "{second_time}");

    // An operator may approve a version that was rejected.
    let approved = approve(&test, Some(&digest_of("asks 2").as_str()[..8]), 7).await;
    assert_eq!(approved.unwrap().before, Some(digest_of("one")));
    let active = (PackageState::Active, digest_of("asks 2"), None);
    assert_eq!(state(&test).await, active);
    assert!(add_file(&test, "asks 2", 8).await);
    assert_eq!(state(&test).await, active);
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
        "a later scan does not change the time"
    );
    assert_eq!(version.decision, Some(VersionDecision::Approved));
    assert_eq!(version.decided_at, Some(at(7)));
    assert_eq!(version.decided_by.as_deref(), Some("ada"));
    assert_eq!(version.note.as_deref(), Some("looked at it"));
    let events = events::list(&mut test.read().await, None, 10)
        .await
        .unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["version_approved", "version_rejected"]);
    assert!(
        events[0].detail.contains("by ada: looked at it"),
        "{events:?}"
    );
}

async fn a_rollback_activates_a_former_version_and_blocks_newer_ones(test: TestDb) {
    register_two_hosts(&test).await;
    for (now, bytes) in (1..).zip(["one", "two", "three"]) {
        assert!(add_file(&test, bytes, now).await);
    }
    let change = roll_back(&test, None, 10).await.unwrap();
    assert_eq!(
        (change.digest, change.before),
        (digest_of("two"), Some(digest_of("three")))
    );
    let rolled_back = (
        PackageState::RolledBack,
        digest_of("two"),
        Some(digest_of("three")),
    );
    assert_eq!(state(&test).await, rolled_back);
    assert!(
        !add_file(&test, "three", 11).await,
        "the file is still there"
    );
    assert_eq!(state(&test).await, rolled_back);

    // The next rollback goes further back, and not to the version that was rolled back. The file is still pending.
    assert_eq!(
        roll_back(&test, None, 12).await.unwrap().digest,
        digest_of("one")
    );
    let rolled_back = (
        PackageState::RolledBack,
        digest_of("one"),
        Some(digest_of("three")),
    );
    assert_eq!(state(&test).await, rolled_back);
    let approved = Some(VersionDecision::Approved);
    let blocked = Some(VersionDecision::RolledBack);
    let named = |name: &str, decision| (name.to_owned(), decision);
    assert_eq!(
        decisions(&test).await,
        [
            named("one", approved),
            named("two", blocked),
            named("three", blocked)
        ]
    );
    assert!(
        !add_file(&test, "two", 13).await,
        "a version that was rolled back stays blocked"
    );
    assert!(matches!(
        roll_back(&test, None, 14).await,
        Err(PackageError::NoFormer(_))
    ));

    // An operator goes forward by a digest, and then by an approval.
    let three = digest_of("three");
    roll_back(&test, Some(&three.as_str()[..12]), 15)
        .await
        .unwrap();
    assert_eq!(state(&test).await.1, three);
    // The other versions were activated later than this one, so a rollback without a digest has no target.
    assert!(matches!(
        roll_back(&test, None, 16).await,
        Err(PackageError::NoFormer(_))
    ));
    let one = digest_of("one");
    roll_back(&test, Some(one.as_str()), 16).await.unwrap();
    assert_eq!(state(&test).await.1, one);
    assert!(!add_file(&test, "three", 17).await);
    // The rollback was from two versions, so an approval names one.
    assert!(approve(&test, None, 18).await.is_err());
    approve(&test, Some(three.as_str()), 18).await.unwrap();
    assert_eq!(state(&test).await, (PackageState::Active, three, None));
}

async fn a_new_file_replaces_a_pending_version(test: TestDb) {
    register_two_hosts(&test).await;
    add_file(&test, "one", 1).await;
    add_file(&test, "two", 2).await;
    roll_back(&test, None, 3).await.unwrap();
    assert!(add_file(&test, "three", 4).await);
    assert_eq!(
        state(&test).await,
        (PackageState::Active, digest_of("three"), None)
    );
    assert!(!add_file(&test, "two", 5).await, "the decision stays");

    // An unusable file replaces a pending version, and so does the active version itself.
    add_file(&test, "asks 4", 6).await;
    let mut tx = test.write().await;
    packages::reject(&mut tx, host_id(1), PACKAGE, (None, "not wasm"), at(7))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        state(&test).await,
        (PackageState::Rejected, digest_of("three"), None)
    );
    add_file(&test, "asks 4", 8).await;
    assert_eq!(state(&test).await.0, PackageState::PendingApproval);
    let mut tx = test.write().await;
    packages::clear_pending(&mut tx, PACKAGE).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        state(&test).await,
        (PackageState::Active, digest_of("three"), None)
    );

    // A version whose file no host has is not pending any more.
    add_file(&test, "asks 4", 9).await;
    let mut tx = test.write().await;
    packages::withdraw(&mut tx, host_id(1), PACKAGE)
        .await
        .unwrap();
    packages::mark_missing(&mut tx, at(10)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        state(&test).await,
        (PackageState::Missing, digest_of("three"), None)
    );
}

async fn all_hosts_follow_the_same_decision(test: TestDb) {
    register_two_hosts(&test).await;
    add_file(&test, "one", 1).await;
    assert!(!add_file(&test, "asks 2", 2).await);
    // The other host's sidecar grants the request. The version becomes active there, and so at both.
    let mut tx = test.write().await;
    assert!(find_file(&mut tx, host_id(2), "asks 2", true, at(3)).await);
    tx.commit().await.unwrap();
    assert!(add_file(&test, "asks 2", 4).await);
    assert_eq!(
        state(&test).await,
        (PackageState::Active, digest_of("asks 2"), None)
    );

    roll_back(&test, None, 5).await.unwrap();
    let followed = package_versions::followed(&mut test.read().await).await;
    let followed = followed.unwrap().into_iter();
    let mut followed: Vec<_> = followed
        .map(|it| (it.recorded.digest, it.recorded.decision, it.is_active))
        .collect();
    followed.sort_by_key(|(_, _, is_active)| *is_active);
    assert_eq!(
        followed,
        [
            (digest_of("asks 2"), VersionDecision::RolledBack, false),
            (digest_of("one"), VersionDecision::Approved, true)
        ]
    );
    let mut tx = test.write().await;
    assert!(
        !find_file(&mut tx, host_id(2), "asks 2", true, at(6)).await,
        "a decision overrides a grant"
    );
    drop(tx);
    let decided = package_versions::last_decided_at(&mut test.read().await).await;
    assert_eq!(decided.unwrap(), Some(at(5)));
}

async fn an_invalid_version_command_changes_nothing(test: TestDb) {
    register_two_hosts(&test).await;
    add_file(&test, "one", 1).await;
    add_file(&test, "asks 2", 2).await;
    let before = state(&test).await;
    let other = digest_of("other");
    let never = digest_of("asks 2");
    for (error, expected) in [
        (approve(&test, Some("12"), 3).await, "at least 4"),
        (
            approve(&test, Some(other.as_str()), 3).await,
            "the pending version of `demo` is",
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
            roll_back(&test, Some(digest_of("one").as_str()), 3).await,
            "active already",
        ),
    ] {
        let message = error.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let mut tx = test.write().await;
    let unknown = approval::approve(&mut tx, "dem", None, ada(), at(3)).await;
    let message = unknown.unwrap_err().to_string();
    assert!(message.contains("did you mean `demo`?"), "{message}");
    packages::reject(&mut tx, host_id(1), "bad", (None, "it is empty"), at(3))
        .await
        .unwrap();
    let never = approval::roll_back(&mut tx, "bad", None, ada(), at(3)).await;
    let message = never.unwrap_err().to_string();
    assert!(
        message.contains("was ever active: it is empty"),
        "{message}"
    );
    drop(tx);
    assert_eq!(state(&test).await, before);
}

async fn an_approval_without_a_digest_needs_a_single_pending_version(test: TestDb) {
    register_two_hosts(&test).await;
    add_file(&test, "one", 1).await;
    assert!(!add_file(&test, "asks 2", 2).await);
    // A newer file replaces the version while a person reviews it.
    assert!(!add_file(&test, "asks 3", 3).await);
    let before = state(&test).await;
    let unclear = approve(&test, None, 4).await.unwrap_err();
    let message = unclear.to_string();
    let [reviewed, pending] = ["asks 2", "asks 3"].map(digest_of);
    assert!(
        message.contains(pending.short()) && message.contains(reviewed.short()),
        "{message}"
    );
    let command = approval::approve_command(PACKAGE, &pending);
    assert!(unclear.hint().contains(&command), "{}", unclear.hint());
    let other = approve(&test, Some(reviewed.short()), 4).await;
    assert!(
        matches!(other, Err(PackageError::NotPending { .. })),
        "{other:?}"
    );
    assert_eq!(state(&test).await, before);
    let approved = approve(&test, Some(pending.short()), 5).await.unwrap();
    assert_eq!(approved.digest, pending);
}

async fn a_version_change_lists_the_requests_that_are_denied(test: TestDb) {
    register_two_hosts(&test).await;
    add_file(&test, "one", 1).await;
    add_file(&test, "asks 2", 2).await;
    let denied = |decided: VersionChange| list_requests(&decided.denied);
    assert_eq!(
        denied(reject(&test, 3).await.unwrap()),
        "",
        "no version became active"
    );
    assert_eq!(denied(approve(&test, None, 4).await.unwrap()), "env TOKEN");
    assert_eq!(denied(roll_back(&test, None, 5).await.unwrap()), "");
    let mut tx = test.write().await;
    let settings = SidecarSummary {
        grants: r#"["env","TOKEN"]"#,
        ..SidecarSummary::default()
    };
    packages::publish_host(&mut tx, host_id(1), PACKAGE, &digest_of("one"), settings)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(denied(approve(&test, None, 6).await.unwrap()), "");
}

async fn a_rollback_against_a_hosts_pin_is_refused(test: TestDb) {
    register_two_hosts(&test).await;
    add_file(&test, "one", 1).await;
    add_file(&test, "two", 2).await;
    let pin = digest_of("two");
    let settings = SidecarSummary {
        grants: "",
        pin: Some(pin.as_str()),
        context: "",
    };
    let mut tx = test.write().await;
    packages::publish_host(&mut tx, host_id(2), PACKAGE, &pin, settings)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let refused = roll_back(&test, None, 3).await.unwrap_err();
    assert!(!refused.hint().is_empty());
    let message = refused.to_string();
    assert!(
        message.contains("host-2") && message.contains(pin.as_str()),
        "{message}"
    );
    // The pin of an ended host does not count.
    let mut tx = test.write().await;
    hosts::end(&mut tx, host_id(2), at(4)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        roll_back(&test, None, 5).await.unwrap().digest,
        digest_of("one")
    );
}

const ROUNDS: u64 = 25;

async fn an_approval_and_a_new_file_at_once_leave_one_version_active(test: TestDb) {
    register_two_hosts(&test).await;
    add_file(&test, "one", 1).await;
    let other_db = Db::open(&test.place.url).await.unwrap();
    let (mut before, mut after) = (0, 0);
    for round in 0..ROUNDS {
        let (pending, new) = (format!("asks {round}"), format!("plain {round}"));
        let now = 10 + 10 * round;
        assert!(!add_file(&test, &pending, now).await, "round {round}");
        let host = async {
            let mut tx = other_db.write().await.unwrap();
            let is_active = find_file(&mut tx, host_id(2), &new, false, at(now + 1)).await;
            tx.commit().await.unwrap();
            assert!(is_active, "it requests nothing");
        };
        let (approved, ()) = tokio::join!(approve(&test, None, now + 1), host);
        match approved {
            Ok(_) => before += 1,
            Err(PackageError::NothingPending(_)) => after += 1,
            Err(error) => panic!("{error}"),
        }
        // In either order the newest file is active and no version is pending.
        assert_eq!(
            state(&test).await,
            (PackageState::Active, digest_of(&new), None)
        );
    }
    println!("the approval came first in {before} rounds, second in {after}");
}

async fn a_rollback_during_a_scan_of_the_blocked_file_keeps_the_former_version_active(
    test: TestDb,
) {
    register_two_hosts(&test).await;
    add_file(&test, "one", 1).await;
    let other_db = Db::open(&test.place.url).await.unwrap();
    for round in 0..ROUNDS {
        let (bytes, now) = (format!("two {round}"), 10 + 10 * round);
        assert!(add_file(&test, &bytes, now).await);
        // The other host restarts with that file.
        let host = async {
            let mut tx = other_db.write().await.unwrap();
            find_file(&mut tx, host_id(2), &bytes, false, at(now + 1)).await;
            tx.commit().await.unwrap();
        };
        let (change, ()) = tokio::join!(roll_back(&test, None, now + 1), host);
        assert_eq!(change.unwrap().digest, digest_of("one"), "round {round}");
        let rolled_back = (
            PackageState::RolledBack,
            digest_of("one"),
            Some(digest_of(&bytes)),
        );
        assert_eq!(state(&test).await, rolled_back, "round {round}");
    }
}
