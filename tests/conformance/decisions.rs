//! The seals of decisions about versions: what a writer of the database can't change.

use campanile_control::admin::approval;
use campanile_model::approval_key::ApprovalKey;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_model::status::VersionDecision;
use campanile_store::package_versions::{self, Attribution, RecordedDecision};
use campanile_tests::{Backend, TestDb, fresh_db, on_both};

use crate::fixtures::{BYTES, PACKAGE, add_host, at, digest, publish};

on_both!(
    no_field_of_a_sealed_decision_can_be_changed,
    a_decision_is_later_than_the_sealed_one_before,
    a_rollback_seals_new_decisions_whatever_the_record_says,
    a_time_beyond_all_is_read_as_the_last_one,
);

/// Has a host load two versions of the package, and another package with the same file.
async fn load_versions(test: &TestDb) {
    let mut tx = test.write().await;
    let id = add_host(&mut tx, 1, at(1)).await;
    for (name, bytes) in [("other", BYTES), (PACKAGE, b"another"), (PACKAGE, BYTES)] {
        publish(&mut tx, id, name, bytes, at(2)).await;
    }
    tx.commit().await.unwrap();
}

/// Approves the active version with `key`.
async fn approve(test: &TestDb, key: &ApprovalKey, now: u64) {
    let by = Attribution {
        by: "ada",
        note: Some("looked at it"),
        key,
    };
    let mut tx = test.write().await;
    let digest = digest();
    let approved = approval::approve(&mut tx, PACKAGE, Some(digest.as_str()), by, at(now)).await;
    approved.unwrap();
    tx.commit().await.unwrap();
}

async fn decisions(test: &TestDb) -> Vec<RecordedDecision> {
    let mut tx = test.read().await;
    package_versions::decisions(&mut tx).await.unwrap()
}

async fn no_field_of_a_sealed_decision_can_be_changed(test: TestDb) {
    load_versions(&test).await;
    let key = ApprovalKey::generate();
    let copy = |to: &str| {
        format!(
            "UPDATE package_version SET decision = k.decision, decided_at = k.decided_at, decided_by = k.decided_by,
            note = k.note, seal = k.seal FROM package_version k
            WHERE k.decision IS NOT NULL AND package_version.decision IS NULL AND {to}"
        )
    };
    let set = |what: &str| format!("UPDATE package_version SET {what} WHERE decision IS NOT NULL");
    let of_other_version = copy("package_version.package = k.package");
    let of_other_package = copy("package_version.package <> k.package");
    for (change, left) in [
        (set("seal = NULL"), 0),
        (set("seal = 'zz'"), 0),
        (set("decision = 'rejected'"), 0),
        (set("decided_at = first_seen_at"), 0),
        (set("decided_by = 'eve'"), 0),
        (set("note = NULL"), 0),
        (of_other_version, 1),
        (of_other_package, 1),
    ] {
        approve(&test, &key, 5).await;
        assert!(
            decisions(&test)
                .await
                .iter()
                .all(|it| it.is_sealed_by(&key))
        );
        test.execute(&change).await;
        let mut found = decisions(&test).await;
        assert_eq!(found.len(), 1 + left, "{change}");
        found.retain(|it| it.is_sealed_by(&key));
        assert_eq!(found.len(), left, "{change}");
        let clear = "UPDATE package_version SET decision = NULL, decided_at = NULL, decided_by = NULL, note = NULL, seal = NULL";
        test.execute(clear).await;
    }
}

async fn a_decision_is_later_than_the_sealed_one_before(test: TestDb) {
    load_versions(&test).await;
    let key = ApprovalKey::generate();
    approve(&test, &key, 50).await;
    // The clock was set back.
    approve(&test, &key, 20).await;
    let found = decisions(&test).await;
    assert!(found[0].decided_at > at(50), "{found:?}");
    assert!(found[0].is_sealed_by(&key));
    // A time that nobody sealed doesn't count.
    test.execute("UPDATE package_version SET seal = NULL").await;
    approve(&test, &key, 20).await;
    assert_eq!(decisions(&test).await[0].decided_at, at(20));
}

/// Otherwise a writer could hide an approval from the rollback, and put it back afterwards.
async fn a_rollback_seals_new_decisions_whatever_the_record_says(test: TestDb) {
    load_versions(&test).await;
    let key = ApprovalKey::generate();
    let by = Attribution {
        by: "ada",
        note: None,
        key: &key,
    };
    let (active, other) = (digest(), ArtifactDigest::of(b"another"));
    for (target, blocked, change) in [
        (&other, &active, "decision = 'rolled_back', seal = NULL"),
        (&other, &active, "decision = 'rejected', seal = NULL"),
        (
            &other,
            &active,
            "decision = NULL, decided_at = NULL, decided_by = NULL, note = NULL, seal = NULL",
        ),
        (&active, &other, "activated_at = NULL"),
    ] {
        let mut tx = test.write().await;
        let approved = VersionDecision::Approved;
        package_versions::decide(&mut tx, PACKAGE, blocked, approved, by, at(5))
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let of_blocked = test.backend().bytes(blocked.as_str());
        test.execute(&format!(
            "UPDATE package_version SET {change} WHERE package = '{PACKAGE}' AND digest = {of_blocked}"
        ))
        .await;
        let mut tx = test.write().await;
        package_versions::block_newer(&mut tx, PACKAGE, target, by, at(9))
            .await
            .unwrap();
        let found = package_versions::decision(&mut tx, PACKAGE, blocked).await;
        tx.commit().await.unwrap();
        let found = found.unwrap().unwrap();
        assert_eq!(found.decision, VersionDecision::RolledBack, "{change}");
        assert!(
            found.is_sealed_by(&key) && found.decided_at >= at(9),
            "{change}: {found:?}"
        );
    }
}

async fn a_time_beyond_all_is_read_as_the_last_one(test: TestDb) {
    load_versions(&test).await;
    approve(&test, &ApprovalKey::generate(), 5).await;
    let latest = match test.backend() {
        Backend::Postgres => "'infinity'",
        Backend::Sqlite => "9223372036854775807",
    };
    test.execute(&format!(
        "UPDATE package_version SET decided_at = {latest} WHERE decision IS NOT NULL"
    ))
    .await;
    assert_eq!(decisions(&test).await[0].decided_at, Timestamp::LAST);
}

/// Only SQLite accepts such text.
#[tokio::test]
async fn a_row_that_is_not_text_does_not_hide_the_others() {
    let test = fresh_db(Backend::Sqlite).await;
    load_versions(&test).await;
    let key = ApprovalKey::generate();
    approve(&test, &key, 5).await;
    test.execute(
        "UPDATE package_version SET decision = 'rejected', decided_at = first_seen_at, decided_by = CAST(x'ff' AS TEXT)
        WHERE package = 'other'",
    )
    .await;
    let found = decisions(&test).await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].is_sealed_by(&key));
    let followed = package_versions::followed(&mut test.read().await).await;
    let followed = followed.expect("what can be read");
    assert_eq!(followed.len(), 1, "{followed:?}");
}
