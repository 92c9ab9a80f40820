//! Versions that the sidecar or the policy of the host refuses.

use super::*;
use crate::{Approval, OwnRecord, Vouched};

const KEY: &str = "RWSYXL/5mCm7EZaIRCXSl27lMxObpHeOc0KFA3DpUgZPpjUb6U7MJIja";
/// By that key, of the text `good 1`.
const SIGNATURE: &str = "untrusted comment: test
RUSYXL/5mCm7EfUfJmJrBhD2XVsILxo7iK4tsdmSR36m65+oOUgym6xOSc5jygTsq5M/qfABQhTaB57RVcJvJ3P6mpoTMwGAQA4=
trusted comment: file:a.wasm
cN27749aNR1HQj0uaVvpX4t4SDT/CCD5lPRF60gKiTSZ9X50YCp+S/SZBs8PSzElARPgqdBCQsTERSx1LioECQ==
";

#[tokio::test]
async fn a_file_below_the_minimum_version_is_refused_and_the_active_one_gets_the_minimum() {
    let mut scene = Scene::new();
    scene.write("a.wasm", r#"good {"version": "2.0.0"}"#);
    scene.write("a.toml", "minimum_version = '1.5.0'");
    assert_eq!(scene.scan().await.len(), 1);
    scene.write("a.wasm", r#"good {"version": "1.0.0"}"#);
    let changes = scene.scan().await;
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!(
        changes[0].contains("its version is 1.0.0, and a.toml accepts none below 1.5.0"),
        "{changes:?}"
    );
    // A minimum above the active version keeps that version loaded. It is refused when it is to run.
    scene.write("a.wasm", r#"good {"version": "2.0.0"}"#);
    scene.write("a.toml", "minimum_version = '3.0.0'");
    let changes = scene.scan().await;
    assert!(
        changes[0].starts_with("applied the new settings"),
        "{changes:?}"
    );
    assert!(changes[1].contains("below 3.0.0"), "{changes:?}");
    assert_eq!(scene.scan().await, Vec::<String>::new());
    let active = scene.active.get("a").unwrap();
    assert!(active.sidecar.check_version(&active.manifest).is_err());
    let bytes = br#"good {"version": "2.0.0"}"#.as_slice();
    let own = OwnRecord::default();
    let restored = (scene.folder).restore("a", (bytes, Vouched::OnThisHost), &own);
    assert!(restored.await.unwrap_err().contains("below 3.0.0"));
}

#[tokio::test]
async fn an_active_version_gets_the_pin_of_other_bytes_and_no_new_grant() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    scene.write("a.toml", "grants.env = ['A=1', 'B=1']");
    scene.scan().await;
    let pin = ArtifactDigest::of(b"good 2");
    scene.write(
        "a.toml",
        &format!("sha256 = '{pin}'\ngrants.env = ['A=1', 'C=1']"),
    );
    assert_eq!(scene.scan().await.len(), 2);
    let active = scene.active.get("a").unwrap();
    assert_eq!(active.grant_record.text, r#"["env","A"]"#);
    assert_eq!(active.sidecar.pin.as_deref(), Some(pin.as_str()));
    assert_eq!(scene.scan().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_pinned_host_refuses_a_file_that_no_sidecar_pins() {
    let mut scene = Scene::with_policy(VersionPolicy {
        approval: Approval::Pinned,
        ..VersionPolicy::default()
    });
    scene.write("a.wasm", "good 1");
    let digest = ArtifactDigest::of(b"good 1");
    let changes = scene.scan().await;
    assert!(changes[0].contains("no sidecar pins it"), "{changes:?}");
    assert_eq!(scene.loads(), 0, "it is not compiled");
    scene.write("a.toml", &format!("sha256 = '{digest}'"));
    assert_eq!(scene.scan().await, [format!("added a@{}", digest.short())]);
}

#[tokio::test]
async fn a_signature_is_checked_when_it_or_the_file_changes() {
    let mut scene = Scene::with_policy(VersionPolicy {
        trusted_keys: vec![KEY.parse().unwrap()],
        require_signature: true,
        ..VersionPolicy::default()
    });
    scene.write("a.wasm", "good 1");
    let changes = scene.scan().await;
    assert!(changes[0].contains("it has no signature"), "{changes:?}");
    assert_eq!(scene.loads(), 0, "it is not compiled");
    assert_eq!(scene.scan().await, Vec::<String>::new());
    scene.write("a.wasm.minisig", "untrusted comment: x\n");
    let changes = scene.scan().await;
    assert!(changes[0].contains("incomplete"), "{changes:?}");
    fs::remove_file(scene.at("a.wasm.minisig")).unwrap();
    fs::create_dir(scene.at("a.wasm.minisig")).unwrap();
    let changes = scene.scan().await;
    assert!(changes[0].contains("not a regular file"), "{changes:?}");
    fs::remove_dir(scene.at("a.wasm.minisig")).unwrap();
    scene.write("a.wasm.minisig", SIGNATURE);
    let added = format!("added a@{}", short("good 1"));
    assert_eq!(scene.scan().await, [added]);
    let active = scene.active.get("a").unwrap();
    assert_eq!(active.signature.as_deref(), Some(SIGNATURE));
    assert_eq!(scene.scan().await, Vec::<String>::new());
    // The old signature does not count for new bytes, and neither of them is lost with the signature.
    scene.write("a.wasm", "good 2");
    let changes = scene.scan().await;
    assert!(changes[0].contains("is of other bytes"), "{changes:?}");
    fs::remove_file(scene.at("a.wasm.minisig")).unwrap();
    let changes = scene.scan().await;
    assert!(changes[0].contains("it has no signature"), "{changes:?}");
    assert_eq!(
        (scene.content("a").unwrap().as_str(), scene.loads()),
        ("good 1", 1)
    );
}

#[tokio::test]
async fn a_signature_that_is_not_required_is_kept_when_it_is_valid() {
    let mut scene = Scene::with_policy(VersionPolicy {
        trusted_keys: vec![KEY.parse().unwrap()],
        ..VersionPolicy::default()
    });
    scene.write("a.wasm", "good 1");
    scene.write("a.wasm.minisig", "wrong");
    assert_eq!(scene.scan().await.len(), 1);
    assert_eq!(scene.active.get("a").unwrap().signature, None);
    scene.write("a.wasm.minisig", SIGNATURE);
    assert_eq!(scene.scan().await.len(), 1);
    assert!(scene.active.get("a").unwrap().signature.is_some());
    assert_eq!(scene.loads(), 1);
}
