//! Files whose version is not activated, and files that are gone.

use super::*;
use crate::OwnRecord;
use crate::sidecar::{Sidecar, Vouched};

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
    let own = OwnRecord::default();
    let former = (b"good 0".as_slice(), Vouched::OnThisHost);
    let restored = scene.folder.restore("a", former, &own).await.unwrap();
    assert_eq!(restored.sidecar.grants.env.len(), 1);
    // A pin of the new file refuses every other version.
    let pin = ArtifactDigest::of(b"good 2");
    scene.write("a.toml", &format!("sha256 = '{pin}'"));
    assert_eq!(scene.find().await, 1);
    own.keep_sidecar("a", &Sidecar::default()).await;
    let refused = scene.folder.restore("a", former, &own).await;
    assert!(refused.unwrap_err().contains("pins"));
}

/// Parses a sidecar as a host would.
fn sidecar(scene: &Scene, text: &str) -> Sidecar {
    Sidecar::parse(&scene.at("a.toml"), text, &scene.folder.rules).unwrap()
}

#[tokio::test]
async fn when_the_sidecar_has_an_error_the_last_good_one_applies() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    let good = (b"good 1".as_slice(), Vouched::OnThisHost);
    for broken in ["grants = ", "grants.ev = ['A=1']"] {
        scene.write("a.toml", broken);
        let changes = scene.scan().await;
        assert!(changes[0].starts_with("rejected a: "), "{changes:?}");
        let own = OwnRecord::default();
        assert!(
            scene.folder.restore("a", good, &own).await.is_err(),
            "{broken}"
        );
        own.keep_sidecar("a", &sidecar(&scene, "grants.env = ['A=1']"))
            .await;
        let restored = scene.folder.restore("a", good, &own).await.unwrap();
        assert_eq!(restored.grant_record.text, r#"["env","A"]"#);
        assert!(restored.sidecar_hash.is_some());
        own.keep_sidecar("a", &Sidecar::default()).await;
        let plain = scene.folder.restore("a", good, &own).await.unwrap();
        assert_eq!(
            (plain.grant_record.text.as_str(), &plain.sidecar_hash),
            ("", &None)
        );
        let pin = format!("sha256 = '{}'", ArtifactDigest::of(b"other"));
        own.keep_sidecar("a", &sidecar(&scene, &pin)).await;
        let refused = scene.folder.restore("a", good, &own).await.unwrap_err();
        assert!(refused.contains("pins"), "{refused}");
    }
}

#[tokio::test]
async fn a_sidecar_that_reads_well_and_fits_no_version_takes_back_what_it_does_not_grant() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    let good = (b"good 1".as_slice(), Vouched::OnThisHost);
    let misfit = "[[schedules]]\ntask = 'b'\nevery = '1m'\n[grants]\nenv = ['A=1']";
    scene.write("a.toml", misfit);
    let own = scene.active.own_record();
    own.keep_sidecar("a", &sidecar(&scene, "grants.env = ['A=1']"))
        .await;
    let changes = scene.scan().await;
    assert!(changes[0].starts_with("rejected a: "), "{changes:?}");
    let own = scene.active.own_record();
    let restored = scene.folder.restore("a", good, own).await.unwrap();
    assert_eq!(restored.grant_record.text, r#"["env","A"]"#);
    // The last good one grants more, so it stays out, even if the file has an error later.
    let more = sidecar(&scene, "grants.env = ['A=1', 'B=1']");
    own.keep_sidecar("a", &more).await;
    let restored = scene.folder.restore("a", good, own).await.unwrap();
    assert_eq!(restored.grant_record.text, r#"["env","A"]"#);
    scene.write("a.toml", &format!("{misfit} # again"));
    scene.scan().await;
    assert_eq!(scene.active.own_record().sidecar("a"), None);
}

#[tokio::test]
async fn a_version_that_lost_its_task_keeps_no_grant_that_its_new_sidecar_leaves_out() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    scene.write("a.toml", "grants.env = ['A=1', 'B=1']");
    scene.scan().await;
    let misfit = "[[schedules]]\ntask = 'b'\nevery = '1m'\n[grants]\nenv = ['A=1', 'C=1']";
    scene.write("a.toml", misfit);
    scene.scan().await;
    let active = scene.active.get("a").unwrap();
    assert_eq!(active.grant_record.text, r#"["env","A"]"#);
}

#[tokio::test]
async fn bytes_that_were_never_in_the_folder_get_no_grant() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    scene.write("a.toml", "grants.env = ['A=1']");
    scene.scan().await;
    let own = scene.active.own_record();
    assert!(own.has_seen("a", &ArtifactDigest::of(b"good 1")));
    assert!(!own.has_seen("a", &ArtifactDigest::of(b"good 0")));
    let unknown = (b"good 0".as_slice(), Vouched::OnlyInDatabase);
    let refused = scene.folder.restore("a", unknown, own).await.unwrap_err();
    assert!(refused.contains("only the database knows it"), "{refused}");
    // The last good sidecar grants it nothing either while the newest one has an error.
    scene.write("a.toml", "grants = ");
    scene.scan().await;
    let own = scene.active.own_record();
    assert!(own.sidecar("a").is_none(), "a scan alone keeps none");
    own.keep_sidecar("a", &sidecar(&scene, "grants.env = ['A=1']"))
        .await;
    let refused = scene.folder.restore("a", unknown, own).await.unwrap_err();
    assert!(refused.contains("only the database knows it"), "{refused}");
    // Without grants there's nothing to gain, and a pin in the host's own file vouches for the bytes.
    let pin = ArtifactDigest::of(b"good 0");
    for text in [
        "[limits]".to_owned(),
        format!("sha256 = '{pin}'\ngrants.env = ['A=1']"),
    ] {
        scene.write("a.toml", &text);
        scene.scan().await;
        let own = scene.active.own_record();
        assert!(
            scene.folder.restore("a", unknown, own).await.is_ok(),
            "{text}"
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
