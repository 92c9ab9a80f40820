//! Files that are in the folder and not taken.

use super::*;

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
    let same = scene.folder.under_present_sidecar(&live).unwrap();
    assert_eq!(
        (&same.digest, same.granted.text.as_str()),
        (&live.digest, r#"["env","A"]"#)
    );
    assert!(scene.folder.under_present_sidecar(&same).is_none());
    let former = scene.folder.bring_back("a", b"good 0").await.unwrap();
    assert_eq!(former.grants().env.len(), 1);
    // A pin on the new file lets in nothing else.
    let pin = ArtifactDigest::of(b"good 2");
    scene.write("a.toml", &format!("sha256 = '{pin}'"));
    assert_eq!(scene.find().await, 1);
    assert!(scene.folder.bring_back("a", b"good 0").await.is_none());
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
