//! Files that other users can write, and links that others changed.

use super::*;

#[tokio::test]
async fn packages_stay_active_while_a_link_on_the_way_leads_to_another_folder() {
    let mut scene = Scene::new();
    let at = |name: &str| scene.root.path().join(name);
    fs::create_dir_all(at("planted/plugins")).unwrap();
    fs::write(at("planted/plugins/evil.wasm"), "good evil").unwrap();
    symlink(".", at("current")).unwrap();
    let (current, planted) = (at("current"), at("planted"));
    let (fake, rules) = (Arc::clone(&scene.fake), scene.folder.rules.clone());
    scene.folder = PluginsFolder::open(&current.join("plugins"), fake, rules).unwrap();
    scene.folder.settle = Duration::from_millis(2);
    scene.write("a.wasm", "good");
    assert_eq!(scene.scan().await, [format!("added a@{}", short("good"))]);
    fs::remove_file(&current).unwrap();
    symlink(&planted, &current).unwrap();
    assert_eq!(scene.scan().await, Vec::<String>::new());
    assert!(scene.active.get("a").is_some() && scene.active.get("evil").is_none());
}

#[tokio::test]
async fn a_sidecar_that_others_can_write_is_rejected_until_they_cannot() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good");
    scene.write("a.toml", "");
    scene.scan().await;
    scene.write("a.toml", "grants.env = ['X=1']\n");
    let chmod = |scene: &Scene, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(scene.at("a.toml"), mode).unwrap();
    };
    chmod(&scene, 0o666);
    let changes = scene.scan().await;
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!(
        changes[0].contains("other users of this machine can change it"),
        "{changes:?}"
    );
    let active = scene.active.get("a").unwrap();
    assert!(active.sidecar.grants.env.is_empty());
    chmod(&scene, 0o644);
    assert_eq!(scene.scan().await.len(), 1);
    let active = scene.active.get("a").unwrap();
    assert!(!active.sidecar.grants.env.is_empty());
}

#[tokio::test]
async fn a_namespace_is_a_folder_that_only_this_user_can_write() {
    let mut scene = Scene::new();
    let team = scene.at("@team");
    fs::create_dir(&team).unwrap();
    scene.write("@team/a.wasm", "good");
    scene.write("@team/.hidden.wasm", "good");
    fs::create_dir(team.join("@deeper")).unwrap();
    scene.write("@team/@deeper/a.wasm", "good");
    scene.write("a.wasm", "good too");
    let changes = scene.scan().await;
    let added = |name: &str, content: &str| format!("added {name}@{}", short(content));
    assert_eq!(changes, [added("@team/a", "good"), added("a", "good too")]);

    let chmod = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&team, mode).unwrap();
    };
    chmod(0o777);
    scene.write("@team/b.wasm", "good");
    let changes = scene.scan().await;
    let told = "other users of this machine can change its folder";
    assert!(!changes.is_empty(), "nothing was refused");
    assert!(
        changes.iter().all(|change| change.contains(told)),
        "{changes:?}"
    );
    assert!(scene.active.get("@team/a").is_some() && scene.active.get("@team/b").is_none());
    chmod(0o755);
    let restored = format!("restored @team/a@{}", short("good"));
    assert_eq!(scene.scan().await, [restored, added("@team/b", "good")]);
}

#[tokio::test]
async fn a_link_is_no_namespace_and_its_name_has_a_form() {
    let mut scene = Scene::new();
    let elsewhere = scene.root.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("a.wasm"), "good").unwrap();
    symlink(&elsewhere, scene.at("@link")).unwrap();
    fs::write(scene.at("@file"), "").unwrap();
    fs::create_dir(scene.at("@Team")).unwrap();
    scene.write("@Team/a.wasm", "good");
    let changes = scene.scan().await;
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!(
        changes[0].contains("cannot name a namespace"),
        "{changes:?}"
    );
    assert!(scene.active.all().is_empty());
}

#[test]
fn a_missing_folder_is_an_error_with_a_hint() {
    let root = tempfile::tempdir().unwrap();
    let rules = HostRules {
        secret_variables: Default::default(),
        limits: Limits::default(),
        memory_bytes_most: 0,
        env: |_| None,
        own_paths: Vec::new(),
        foreign_writers: ForeignWriters::default(),
        secrets: BTreeSet::new(),
        groups: Default::default(),
        policy: VersionPolicy::default(),
    };
    let open = |name: &str| {
        PluginsFolder::open(
            &root.path().join(name),
            Arc::new(FakeLoader::new()),
            rules.clone(),
        )
        .err()
        .map(|error| error.to_string())
        .unwrap()
    };
    assert!(open("plugins").ends_with("does not exist: create it, or name another with --plugins"));
    fs::write(root.path().join("file"), "").unwrap();
    assert!(open("file").contains("is not a directory"));
}
