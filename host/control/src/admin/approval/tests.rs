use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use campanile_package::requests::list_requests;
use campanile_package::{GrantRecord, Sidecar};
use campanile_sandbox::{Grants, Limits};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn manifest(description: &Value) -> Manifest {
    Manifest::from_json("chimes", description).unwrap()
}

/// Returns the package of a file with these bytes and a sidecar that grants the variables `env`.
fn file(bytes: &str, description: &Value, env: &[&str]) -> Package<()> {
    let granted = env.iter().map(|name| ((*name).to_owned(), String::new()));
    let grants = Grants {
        env: granted.collect(),
        ..Grants::default()
    };
    Package {
        name: "chimes".to_owned(),
        digest: ArtifactDigest::of(bytes.as_bytes()),
        artifact: Arc::new(()),
        manifest: Arc::new(manifest(description)),
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

fn row(active: Option<&str>, description: &Value) -> PackageRow {
    PackageRow {
        name: "chimes".to_owned(),
        digest: active.map(|bytes| ArtifactDigest::of(bytes.as_bytes())),
        form: None,
        size_bytes: None,
        manifest: description.to_string(),
        loaded_at: active.map(|_| at(0)),
        grants: String::new(),
        pending_digest: None,
        pending_since: None,
        pending_decision: None,
        missing_since: None,
        rejection: None,
        rejected_at: None,
        loading_since: None,
    }
}

fn requests_env(names: &[&str]) -> Value {
    json!({ "requests": { "env": names } })
}

#[test]
fn a_first_or_already_active_version_is_activated() {
    let new = file("new", &requests_env(&["TOKEN"]), &[]);
    assert_eq!(
        admission(Approval::Requests, None, None, &new),
        VersionAdmission::Active
    );
    let never = row(None, &json!({}));
    assert_eq!(
        admission(Approval::Requests, Some(&never), None, &new),
        VersionAdmission::Active
    );
    let same = row(Some("new"), &json!({}));
    assert_eq!(
        admission(Approval::Requests, Some(&same), None, &new),
        VersionAdmission::Active
    );
}

#[test]
fn an_ungranted_request_makes_a_version_pending_unless_the_active_one_has_it() {
    let plain = row(Some("old"), &json!({}));
    let requesting = row(Some("old"), &requests_env(&["TOKEN"]));
    let new = |requests: &[&str], granted: &[&str]| file("new", &requests_env(requests), granted);
    let is_activated =
        |row, new| admission(Approval::Requests, Some(row), None, &new) == VersionAdmission::Active;
    assert!(is_activated(&plain, new(&[], &[])));
    assert!(is_activated(&plain, new(&["TOKEN"], &["TOKEN", "OTHER"])));
    assert!(is_activated(&requesting, new(&["TOKEN"], &[])));
    assert!(is_activated(&requesting, new(&[], &[])));
    match admission(
        Approval::Requests,
        Some(&requesting),
        None,
        &new(&["TOKEN", "OTHER"], &[]),
    ) {
        VersionAdmission::PendingRequests(beyond) => {
            assert_eq!(list_requests(&beyond), "env OTHER")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_decision_overrides_the_requests() {
    let old = row(Some("old"), &json!({}));
    let greedy = file("new", &requests_env(&["TOKEN"]), &[]);
    let modest = file("new", &json!({}), &[]);
    for (decision, greedy_is, modest_is) in [
        (
            VersionDecision::Approved,
            VersionAdmission::Active,
            VersionAdmission::Active,
        ),
        (
            VersionDecision::Rejected,
            VersionAdmission::Blocked(VersionDecision::Rejected),
            VersionAdmission::Blocked(VersionDecision::Rejected),
        ),
        (
            VersionDecision::RolledBack,
            VersionAdmission::Blocked(VersionDecision::RolledBack),
            VersionAdmission::Blocked(VersionDecision::RolledBack),
        ),
    ] {
        assert_eq!(
            admission(Approval::Requests, Some(&old), Some(decision), &greedy),
            greedy_is
        );
        assert_eq!(
            admission(Approval::Requests, Some(&old), Some(decision), &modest),
            modest_is
        );
    }
}

fn seen(bytes: &str, activated_at: Option<i64>, decision: Option<VersionDecision>) -> Version {
    Version {
        digest: ArtifactDigest::of(bytes.as_bytes()),
        form: "typed_component".to_owned(),
        size_bytes: bytes.len() as i64,
        removed_at: None,
        first_seen_at: at(0),
        activated_at: activated_at.map(at),
        decision,
        decided_at: None,
        decided_by: None,
        note: None,
        signature: None,
        succeeded: 0,
        failed: 0,
    }
}

#[test]
fn the_former_version_is_the_last_one_not_decided_against() {
    let versions = [
        seen("a", Some(1), None),
        seen("b", Some(2), Some(VersionDecision::Approved)),
        seen("c", Some(3), Some(VersionDecision::RolledBack)),
        seen("d", Some(4), Some(VersionDecision::Rejected)),
        seen("e", None, None),
        seen("f", Some(6), None),
    ];
    let of = |active: &str| {
        let former = former(&versions, &ArtifactDigest::of(active.as_bytes()));
        former.map(|version| version.activated_at)
    };
    assert_eq!(of("f"), Some(Some(at(2))));
    assert_eq!(of("b"), Some(Some(at(6))));
    let only = &versions[5..];
    assert!(former(only, &ArtifactDigest::of(b"f")).is_none());
}

#[test]
fn a_version_is_named_by_its_first_digits() {
    let versions = [seen("a", None, None), seen("b", None, None)];
    let whole = versions[0].digest.as_str();
    for digits in [&whole[..4], &whole[..12].to_uppercase(), whole] {
        let found = version("chimes", &versions, digits).unwrap();
        assert_eq!(found.digest, versions[0].digest);
    }
    let refusal = |digits: &str| {
        version("chimes", &versions, digits)
            .unwrap_err()
            .to_string()
    };
    assert!(refusal("abc").contains("at least 4"));
    assert!(refusal("latest").contains("at least 4"));
    let none = refusal("00000000");
    assert!(none.contains(versions[0].digest.short()), "{none}");
    let twice = [seen("a", None, None), seen("a", None, None)];
    let several = version("chimes", &twice, &whole[..6]).unwrap_err();
    assert!(several.to_string().contains("several versions"));
}

#[test]
fn a_proposed_approval_is_of_one_version_and_one_command() {
    let digest = ArtifactDigest::of(b"a");
    for (name, word) in [("chimes", "chimes"), ("x; rm -r y", "'x; rm -r y'")] {
        let expected = format!(
            "campanile package approve {word} --digest {}",
            digest.as_str()
        );
        assert_eq!(approve_command(name, &digest), expected);
    }
}

#[test]
fn a_diff_lists_added_removed_and_changed_items() {
    use super::diff::{Side, diff};
    let before = manifest(&json!({
        "version": "1.0.0",
        "tasks": [{"id": "fetch"}, {"id": "store", "depends_on": ["fetch"]}, {"id": "gone"}],
        "schedules": [{"every": "5m"}, {"name": "old", "every": "1h"}],
        "requests": {"env": ["A", "B"]},
    }));
    let after = manifest(&json!({
        "version": "2.0.0",
        "tasks": [{"id": "fetch", "timeout": "5s"}, {"id": "store"}, {"id": "new"}],
        "schedules": [{"every": "6m"}, {"name": "fresh", "every": "1h"}],
        "requests": {"env": ["B", "C"]},
    }));
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let (old, new) = (seen("old", None, None), seen("newer", None, None));
    let side = |version, manifest, imports| Side {
        version,
        manifest,
        imports,
    };
    let grants = file("", &json!({}), &["C"]).sidecar.grants.clone();
    let found = diff(
        &side(&old, &before, &names(&["wasi:a", "wasi:b"])),
        &side(&new, &after, &names(&["wasi:b", "wasi:c"])),
        &(&*grants).into(),
    );
    let value = json!(found);
    assert_eq!(value["to"], json!(new.digest));
    assert_eq!(
        value["about"],
        json!([
            {"key": "version", "before": "1.0.0", "after": "2.0.0"},
            {"key": "size_bytes", "before": "3", "after": "5"},
        ])
    );
    assert_eq!(
        value["tasks"],
        json!({"added": ["new"], "removed": ["gone"], "changed": [
            {"name": "fetch", "differences": [{"key": "timeout", "before": null, "after": "5s"}]},
            {"name": "store", "differences": [{"key": "depends_on", "before": "fetch", "after": null}]},
        ]})
    );
    assert_eq!(
        value["schedules"],
        json!({"added": ["fresh"], "removed": ["old"], "changed": [
            {"name": "chimes", "differences": [{"key": "every", "before": "5m", "after": "6m"}]},
        ]})
    );
    assert_eq!(
        value["imports"],
        json!({"added": ["wasi:c"], "removed": ["wasi:a"], "changed": []})
    );
    let requests: Vec<(&str, &str, bool)> = found
        .requests
        .iter()
        .map(|entry| {
            let request = &entry.request;
            (request.what.as_str(), &*entry.change, request.is_granted)
        })
        .collect();
    assert_eq!(
        requests,
        [
            ("B", "kept", false),
            ("C", "added", true),
            ("A", "removed", false)
        ]
    );
}

#[test]
fn versions_that_arrived_or_were_left_later_are_listed_as_others() {
    use VersionDecision::{Approved, Rejected, RolledBack};
    let arrived = |name: &str, first_seen: i64| Version {
        first_seen_at: at(first_seen),
        ..seen(name, None, None)
    };
    let decided = |version: Version, decision, time: i64| Version {
        decision: Some(decision),
        decided_at: Some(at(time)),
        ..version
    };
    let is_another = |other: Version| {
        let versions = [seen("old", Some(10), None), arrived("pending", 12), other];
        let of = |name: &[u8]| ArtifactDigest::of(name);
        !others(&versions, Some(&of(b"old")), &of(b"pending")).is_empty()
    };
    assert!(is_another(arrived("waited", 11)));
    assert!(is_another(arrived("came back", 13)));
    assert!(is_another(decided(arrived("no", 11), Rejected, 12)));
    let former = || seen("former", Some(2), None);
    assert!(is_another(decided(former(), RolledBack, 10)));
    assert!(!is_another(decided(former(), RolledBack, 9)));
    assert!(!is_another(decided(former(), Approved, 11)));
    assert!(!is_another(former()));
    assert!(!is_another(decided(arrived("no", 2), Rejected, 3)));
    assert!(!is_another(arrived("pending", 12)));
    assert!(!is_another(arrived("old", 12)));
}

#[test]
fn the_policy_decides_which_versions_wait() {
    let old = row(Some("old"), &json!({}));
    let never = row(None, &json!({}));
    let modest = file("new", &json!({}), &[]);
    let greedy = file("new", &requests_env(&["TOKEN"]), &[]);
    let waits = VersionAdmission::PendingPolicy;
    for new in [&modest, &greedy] {
        for before in [None, Some(&never), Some(&old)] {
            assert_eq!(admission(Approval::Always, before, None, new), waits);
            // The folder has refused a version that is not pinned.
            let pinned = admission(Approval::Pinned, before, None, new);
            assert_eq!(pinned, VersionAdmission::Active);
        }
        let same = row(Some("new"), &json!({}));
        for approval in [Approval::Requests, Approval::Always, Approval::Pinned] {
            let active = admission(approval, Some(&same), None, new);
            assert_eq!(active, VersionAdmission::Active);
            let approved = Some(VersionDecision::Approved);
            let approved = admission(approval, Some(&never), approved, new);
            assert_eq!(approved, VersionAdmission::Active);
            let rejected = Some(VersionDecision::Rejected);
            assert_eq!(
                admission(approval, Some(&never), rejected, new),
                VersionAdmission::Blocked(VersionDecision::Rejected)
            );
        }
    }
}
