//! Files whose version is not activated, and files that are gone.

use super::*;
use crate::RecordedSidecar;

#[tokio::test]
async fn a_version_that_is_not_activated_is_found_by_each_scan_until_the_active_one_is_back() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    scene.scan().await;
    assert_eq!(scene.scan().await, Vec::<String>::new());
    scene.write("a.wasm", "good 2");
    assert_eq!(scene.find().await, 1);
    assert_eq!(scene.find().await, 1);
    assert_eq!(scene.loads(), 2);
    scene.write("a.wasm", "good 1");
    let back = format!("restored a@{}", short("good 1"));
    assert_eq!(scene.scan().await, [back]);
    assert_eq!(scene.scan().await, Vec::<String>::new());
    // An activated version is not reported as restored.
    scene.write("a.wasm", "good 2");
    assert_eq!(scene.scan().await.len(), 1);
    assert_eq!(scene.scan().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_active_version_gets_the_sidecar_of_a_version_that_is_not_activated() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    scene.scan().await;
    let active = scene.active.get("a").unwrap();
    scene.write("a.wasm", "good 2");
    scene.write("a.toml", "grants.env = ['A=1']");
    assert_eq!(scene.find().await, 1);
    let same = scene.folder.with_current_sidecar(&active).unwrap();
    assert_eq!(
        (&same.digest, same.grant_record.text.as_str()),
        (&active.digest, r#"["env","A"]"#)
    );
    assert!(scene.folder.with_current_sidecar(&same).is_none());
    let former = scene.folder.restore("a", b"good 0", None).await.unwrap();
    assert_eq!(former.sidecar.grants.env.len(), 1);
    // A pin of the new file refuses every other version.
    let pin = ArtifactDigest::of(b"good 2");
    scene.write("a.toml", &format!("sha256 = '{pin}'"));
    assert_eq!(scene.find().await, 1);
    let open = RecordedSidecar {
        text: None,
        grants: String::new(),
    };
    let refused = scene.folder.restore("a", b"good 0", Some(open)).await;
    assert!(refused.unwrap_err().contains("pins"));
}

#[tokio::test]
async fn when_the_sidecar_has_an_error_the_recorded_sidecar_applies_and_grants_nothing_else() {
    let mut scene = Scene::new();
    let granting = |name: &str| format!("grants.env = ['{name}=1']");
    let recorded = |text: Option<String>, grants: &str| {
        Some(RecordedSidecar {
            text,
            grants: grants.to_owned(),
        })
    };
    scene.write("a.wasm", "good 1");
    for broken in [
        "grants = ",
        "grants.ev = ['A=1']",
        "[[schedules]]\ntask = 'b'\nevery = '1m'",
    ] {
        scene.write("a.toml", broken);
        let changes = scene.scan().await;
        assert!(changes[0].starts_with("rejected a: "), "{changes:?}");
        let restore = async |recorded| scene.folder.restore("a", b"good 1", recorded).await;
        assert!(restore(None).await.is_err(), "{broken}");
        let env = r#"["env","A"]"#;
        let restored = restore(recorded(Some(granting("A")), env)).await.unwrap();
        assert_eq!(restored.grant_record.text, env);
        assert!(restored.sidecar_hash.is_some());
        let plain = restore(recorded(None, "")).await.unwrap();
        assert_eq!(
            (plain.grant_record.text.as_str(), &plain.sidecar_hash),
            ("", &None)
        );
        // The recorded sidecar must grant what it granted before.
        for (text, grants) in [
            (Some(granting("B")), env),
            (None, env),
            (Some(granting("A")), ""),
        ] {
            let refused = restore(recorded(text, grants)).await.unwrap_err();
            assert!(refused.contains("its grants would differ"), "{refused}");
        }
        let pin = format!("sha256 = '{}'", ArtifactDigest::of(b"other"));
        assert!(
            restore(recorded(Some(pin), ""))
                .await
                .unwrap_err()
                .contains("pins")
        );
    }
}

#[tokio::test]
async fn an_expected_file_that_is_missing_is_reported_once() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    for name in ["a", "b"] {
        scene.folder.expect_file(name.to_owned());
    }
    let changes = scene.scan().await;
    assert_eq!(
        changes,
        [
            "the file of b is gone".to_owned(),
            format!("added a@{}", short("good 1")),
        ]
    );
    assert_eq!(scene.scan().await, Vec::<String>::new());
    // The same for a version that was never active.
    scene.write("c.wasm", "bad");
    assert_eq!(scene.scan().await, ["rejected c: not good"]);
    scene.folder.report_all_again();
    assert_eq!(scene.scan().await, ["rejected c: not good"]);
    fs::remove_file(scene.at("c.wasm")).unwrap();
    assert_eq!(scene.scan().await, ["the file of c is gone"]);
    assert_eq!(scene.scan().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_file_that_is_not_the_pinned_one_is_refused_with_both_digests() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    let (first, second) = (ArtifactDigest::of(b"good 1"), ArtifactDigest::of(b"good 2"));
    scene.write("a.toml", &format!("sha256 = '{first}'"));
    assert_eq!(scene.scan().await.len(), 1);
    scene.write("a.wasm", "good 2");
    assert_eq!(
        scene.scan().await,
        [format!(
            "rejected a, keeping {}: its SHA-256 is {second}, and a.toml pins {first}: put the pinned file back, or change `sha256`",
            first.short()
        )]
    );
    assert_eq!(
        (scene.loads(), scene.content("a").unwrap().as_str()),
        (1, "good 1")
    );
    scene.write("a.toml", &format!("sha256 = '{second}'"));
    assert_eq!(scene.scan().await.len(), 1);
    assert_eq!(scene.content("a").unwrap(), "good 2");
}
