use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;
use crate::fake_loader::FakeLoader;
use crate::{ForeignWriters, VersionPolicy};
use campanile_sandbox::Limits;

const NOW: Timestamp = Timestamp::EPOCH;

fn uploads(folder: &TempDir, policy: VersionPolicy) -> UploadFolder<FakeLoader> {
    let rules = HostRules {
        secret_variables: Default::default(),
        limits: Limits::default(),
        memory_bytes_most: 1 << 30,
        env: |_| None,
        own_paths: Vec::new(),
        secrets: Default::default(),
        foreign_writers: ForeignWriters::Refuse,
        groups: Default::default(),
        policy,
    };
    UploadFolder::open(folder.path(), Arc::new(FakeLoader::new()), rules).unwrap()
}

/// Returns the names in a folder, hidden ones too.
fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names = Vec::from_iter(names);
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_file_is_put_into_the_folder_when_it_is_published_and_not_before() {
    let folder = TempDir::new().unwrap();
    let uploads = uploads(&folder, VersionPolicy::default());
    let mut checked = uploads.check("a", b"good".to_vec(), NOW).await.unwrap();
    assert!(!checked.replaces);
    assert_eq!(checked.size_bytes, 4);
    assert!(names(&folder)[0].starts_with(HIDDEN));
    checked.publish().await.unwrap();
    checked.publish().await.unwrap();
    assert_eq!(names(&folder), ["a.wasm"]);
    assert_eq!(fs::read(folder.path().join("a.wasm")).unwrap(), b"good");

    let checked = uploads.check("a", b"good too".to_vec(), NOW).await.unwrap();
    assert!(checked.replaces);
    drop(checked);
    assert_eq!(names(&folder), ["a.wasm"]);
    assert_eq!(fs::read(folder.path().join("a.wasm")).unwrap(), b"good");
}

#[tokio::test]
async fn a_file_that_cannot_be_published_is_an_error_each_time() {
    let folder = TempDir::new().unwrap();
    let uploads = uploads(&folder, VersionPolicy::default());
    let mut checked = uploads.check("a", b"good".to_vec(), NOW).await.unwrap();
    fs::remove_file(folder.path().join(&names(&folder)[0])).unwrap();
    for _ in 0..2 {
        let failed = checked.publish().await;
        assert!(matches!(failed, Err(UploadError::Failed(_))), "{failed:?}");
    }
    assert!(names(&folder).is_empty());
}

#[tokio::test]
async fn what_a_scan_would_refuse_is_refused_and_nothing_is_left() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("sidecar.toml"), "nonsense = 1\n").unwrap();
    fs::write(at("target"), "good").unwrap();
    symlink("target", at("link.wasm")).unwrap();
    fs::create_dir(at("directory.wasm")).unwrap();
    let before = names(&folder);
    let uploads = self::uploads(&folder, VersionPolicy::default());
    for (name, bytes, part) in [
        ("../a", "good", "cannot name a package"),
        ("", "good", "cannot name a package"),
        ("a", "", "this one has 0 bytes"),
        ("a", "bad", "not good"),
        ("sidecar", "good", "nonsense"),
        ("link", "good", "is a link"),
        ("directory", "good", "is not a regular file"),
    ] {
        let refused = uploads.check(name, bytes.as_bytes().to_vec(), NOW).await;
        let why = format!("{:?}", refused.err());
        assert!(why.contains(part), "{name}: {why}");
        assert_eq!(names(&folder), before, "{name}");
    }
    let policy = VersionPolicy {
        require_signature: true,
        ..VersionPolicy::default()
    };
    let signed = self::uploads(&folder, policy);
    let refused = signed.check("a", b"good".to_vec(), NOW).await;
    assert!(matches!(refused, Err(UploadError::Refused(_))));
    assert_eq!(names(&folder), before);
}

#[tokio::test]
async fn a_link_in_the_place_of_a_namespaces_folder_is_not_followed() {
    let (folder, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let at = |name: &str| folder.path().join(name);
    let victim = outside.path().join("vic.wasm");
    fs::write(&victim, "good before").unwrap();
    symlink(outside.path(), at("@lnk")).unwrap();
    fs::write(at("@file"), "").unwrap();
    let uploads = uploads(&folder, VersionPolicy::default());
    let part = "must be a folder, not a link or a file";
    for name in ["@lnk/vic", "@lnk/new", "@file/vic"] {
        let refused = uploads.check(name, b"good".to_vec(), NOW).await;
        let why = format!("{:?}", refused.err());
        assert!(
            why.contains("Refused") && why.contains(part),
            "{name}: {why}"
        );
    }
    // A link replacing the folder after the check isn't followed either.
    let mut checked = uploads
        .check("@team/vic", b"good".to_vec(), NOW)
        .await
        .unwrap();
    symlink(outside.path(), at("@team")).unwrap();
    let why = format!("{:?}", checked.publish().await.err());
    assert!(why.contains("Refused") && why.contains(part), "{why}");
    drop(checked);
    assert_eq!(names(&folder), ["@file", "@lnk", "@team"]);
    assert_eq!(names(&outside), ["vic.wasm"]);
    assert_eq!(fs::read(&victim).unwrap(), b"good before");
    fs::remove_file(at("@team")).unwrap();
    let mut checked = uploads
        .check("@team/vic", b"good".to_vec(), NOW)
        .await
        .unwrap();
    checked.publish().await.unwrap();
    assert_eq!(fs::read(at("@team/vic.wasm")).unwrap(), b"good");
}

#[tokio::test]
async fn what_a_host_left_that_ended_is_deleted_after_an_hour() {
    let folder = TempDir::new().unwrap();
    let left = folder.path().join(format!("{HIDDEN}left"));
    fs::write(&left, "good").unwrap();
    let uploads = uploads(&folder, VersionPolicy::default());
    let written = fs::metadata(&left).unwrap().modified().unwrap();
    let written = written.duration_since(std::time::UNIX_EPOCH).unwrap();
    let after = |span: u64| NOW.plus(written + Duration::from_secs(span));
    drop(
        uploads
            .check("a", b"good".to_vec(), after(3_000))
            .await
            .unwrap(),
    );
    assert!(left.exists());
    drop(
        uploads
            .check("a", b"good".to_vec(), after(4_000))
            .await
            .unwrap(),
    );
    assert!(!left.exists());
}
