//! Files that are in the folder and not taken, or were there.

use super::*;
use crate::RecordedSidecar;

#[tokio::test]
async fn a_file_that_is_not_taken_is_found_each_time_until_it_is_the_live_one_again() {
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
    // One that is taken is not told of as if it had come back.
    scene.write("a.wasm", "good 2");
    assert_eq!(scene.scan().await.len(), 1);
    assert_eq!(scene.scan().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_live_version_goes_on_under_the_sidecar_of_a_file_that_is_not_taken() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    scene.scan().await;
    let live = scene.live.get("a").unwrap();
    scene.write("a.wasm", "good 2");
    scene.write("a.toml", "grants.env = ['A=1']");
    assert_eq!(scene.find().await, 1);
    let same = scene.folder.with_current_sidecar(&live).unwrap();
    assert_eq!(
        (&same.digest, same.grant_record.text.as_str()),
        (&live.digest, r#"["env","A"]"#)
    );
    assert!(scene.folder.with_current_sidecar(&same).is_none());
    let former = scene.folder.restore("a", b"good 0", None).await.unwrap();
    assert_eq!(former.grants().env.len(), 1);
    // A pin on the new file lets in nothing else.
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
async fn beside_a_sidecar_with_an_error_the_one_that_was_kept_holds_and_grants_nothing_else() {
    let mut scene = Scene::new();
    let granting = |name: &str| format!("grants.env = ['{name}=1']");
    let kept = |text: Option<String>, grants: &str| {
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
        let told = scene.scan().await;
        assert!(told[0].starts_with("rejected a: "), "{told:?}");
        let bring = async |kept| scene.folder.restore("a", b"good 1", kept).await;
        assert!(bring(None).await.is_err(), "{broken}");
        let env = r#"["env","A"]"#;
        let back = bring(kept(Some(granting("A")), env)).await.unwrap();
        assert_eq!(back.grant_record.text, env);
        assert!(back.sidecar_hash.is_some());
        let plain = bring(kept(None, "")).await.unwrap();
        assert_eq!(
            (plain.grant_record.text.as_str(), &plain.sidecar_hash),
            ("", &None)
        );
        // Whatever it was read as then, it must say the same now.
        for (text, grants) in [
            (Some(granting("B")), env),
            (None, env),
            (Some(granting("A")), ""),
        ] {
            let refused = bring(kept(text, grants)).await.unwrap_err();
            assert!(refused.contains("something else"), "{refused}");
        }
        let pin = format!("sha256 = '{}'", ArtifactDigest::of(b"other"));
        assert!(
            bring(kept(Some(pin), ""))
                .await
                .unwrap_err()
                .contains("pins")
        );
    }
}

#[tokio::test]
async fn a_file_that_is_expected_and_not_there_is_told_of_once() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    for name in ["a", "b"] {
        scene.folder.expect_file(name.to_owned());
    }
    let told = scene.scan().await;
    assert_eq!(
        told,
        [
            "the file of b is gone".to_owned(),
            format!("added a@{}", short("good 1")),
        ]
    );
    assert_eq!(scene.scan().await, Vec::<String>::new());
    // And one that was never taken.
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
