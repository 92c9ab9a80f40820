use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::fake_loader::FakeLoader;
use crate::loader::Pace;
use crate::{FILE_BYTES_MAX, ForeignWriters, VersionPolicy};
use campanile_model::ids::ArtifactDigest;
use campanile_sandbox::Limits;

mod loading;
mod many_files;
mod not_applied;
mod others;
mod policy;
mod random;

/// A folder, its active packages, and the compiler.
struct Scene {
    root: TempDir,
    fake: Arc<FakeLoader>,
    folder: PluginsFolder<FakeLoader>,
    active: Packages<Vec<u8>>,
}

impl Scene {
    fn new() -> Scene {
        Scene::with_policy(VersionPolicy::default())
    }

    fn with_policy(policy: VersionPolicy) -> Scene {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("plugins")).unwrap();
        let fake = Arc::new(FakeLoader::new());
        let rules = HostRules {
            secret_variables: Default::default(),
            limits: Limits::default(),
            memory_bytes_most: 1 << 30,
            env: |_| None,
            own_paths: Vec::new(),
            foreign_writers: ForeignWriters::default(),
            secrets: BTreeSet::new(),
            groups: Default::default(),
            policy,
        };
        let mut folder =
            PluginsFolder::open(&root.path().join("plugins"), Arc::clone(&fake), rules).unwrap();
        folder.settle = Duration::from_millis(2);
        Scene {
            root,
            fake,
            folder,
            active: Packages::default(),
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join("plugins").join(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.at(name), content).unwrap();
    }

    /// Scan and apply until every file is loaded; return the sentence of each change.
    async fn scan(&mut self) -> Vec<String> {
        let mut changes = self.scan_once().await;
        while self.folder.is_loading() {
            self.folder.load_ended().await;
            changes.extend(self.scan_once().await);
        }
        changes
    }

    /// Scan and apply once; return the sentence of each change.
    async fn scan_once(&mut self) -> Vec<String> {
        let mut changes = Vec::new();
        let Some(mut scan) = self.folder.scan(&self.active).await else {
            return changes;
        };
        while let Some(change) = self.folder.next_change(&mut scan, &self.active).await {
            self.active.apply(&change);
            changes.push(change.to_string());
        }
        changes
    }

    /// Scan without applying; return the number of changes.
    async fn find(&mut self) -> usize {
        loop {
            let mut scan = self.folder.scan(&self.active).await.unwrap();
            let mut found = 0;
            while self
                .folder
                .next_change(&mut scan, &self.active)
                .await
                .is_some()
            {
                found += 1;
            }
            if !self.folder.is_loading() {
                return found;
            }
            self.folder.load_ended().await;
        }
    }

    fn loads(&self) -> usize {
        self.fake.loads.load(Ordering::Relaxed)
    }

    fn content(&self, name: &str) -> Option<String> {
        let package = self.active.get(name)?;
        Some(String::from_utf8(package.artifact.to_vec()).unwrap())
    }
}

fn short(content: &str) -> String {
    ArtifactDigest::of(content.as_bytes()).short().to_owned()
}

#[tokio::test]
async fn a_file_is_added_updated_and_removed() {
    let mut scene = Scene::new();
    assert_eq!(scene.scan().await, Vec::<String>::new());
    scene.write("a.wasm", "good 1");
    assert_eq!(scene.scan().await, [format!("added a@{}", short("good 1"))]);
    assert_eq!(scene.scan().await, Vec::<String>::new());
    scene.write("a.wasm", "good 2");
    assert_eq!(
        scene.scan().await,
        [format!(
            "updated a@{}, was {}",
            short("good 2"),
            short("good 1")
        )]
    );
    assert_eq!(scene.content("a").unwrap(), "good 2");
    fs::remove_file(scene.at("a.wasm")).unwrap();
    assert_eq!(
        scene.scan().await,
        [format!("removed a@{}", short("good 2"))]
    );
    assert!(scene.active.all().is_empty());
}

#[tokio::test]
async fn the_same_bytes_again_are_not_compiled_again() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    scene.scan().await;
    scene.write("a.wasm", "good 1");
    scene.write("b.wasm.tmp", "good 1");
    fs::rename(scene.at("b.wasm.tmp"), scene.at("a.wasm")).unwrap();
    assert_eq!(scene.scan().await, Vec::<String>::new());
    assert_eq!(scene.loads(), 1);
}

#[tokio::test]
async fn an_invalid_file_keeps_the_previous_version_and_is_reported_once() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    scene.scan().await;
    scene.write("a.wasm", "bad");
    let changes = format!("rejected a, keeping {}: not good", short("good 1"));
    assert_eq!(scene.scan().await, [changes.as_str()]);
    assert_eq!(scene.scan().await, Vec::<String>::new());
    assert_eq!(scene.loads(), 2);
    // A touched file is compiled again, and its rejection is not reported again.
    scene.write("a.wasm", "bad");
    assert_eq!(scene.scan().await, Vec::<String>::new());
    assert_eq!(scene.loads(), 3);
    // Other bytes are reported.
    scene.write("a.wasm", "worse");
    assert_eq!(scene.scan().await, [changes.as_str()]);
    // The good bytes are reported without compiling. Bad bytes after them are reported again.
    scene.write("a.wasm", "good 1");
    let back = format!("restored a@{}", short("good 1"));
    assert_eq!(scene.scan().await, [back]);
    assert_eq!(scene.scan().await, Vec::<String>::new());
    assert_eq!(scene.loads(), 4);
    scene.write("a.wasm", "worse");
    assert_eq!(scene.scan().await, [changes]);
    assert_eq!(scene.content("a").unwrap(), "good 1");
}

#[tokio::test]
async fn a_loader_that_panics_rejects_one_file_and_harms_no_other() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "panic");
    scene.write("b.wasm", "good");
    // Loads run side by side, ending in any order.
    let mut changes = scene.scan().await;
    changes.sort();
    let [added, rejected] = &changes[..] else {
        panic!("{changes:?}");
    };
    assert_eq!(*added, format!("added b@{}", short("good")));
    assert!(
        rejected.starts_with("rejected a: the host failed"),
        "{rejected}"
    );
}

#[tokio::test]
async fn a_sidecar_changes_the_package_without_compiling_it() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    scene.scan().await;
    scene.write("a.toml", "[limits]\ntimeout = '9s'");
    assert_eq!(
        scene.scan().await,
        [format!("applied the new settings of a@{}", short("good 1"))]
    );
    let package = scene.active.get("a").unwrap();
    assert_eq!(package.limits_of("a").timeout, Duration::from_secs(9));
    assert!(package.sidecar_hash.is_some());
    fs::remove_file(scene.at("a.toml")).unwrap();
    assert_eq!(scene.scan().await.len(), 1);
    let package = scene.active.get("a").unwrap();
    assert_eq!(package.limits_of("a"), Limits::default());
    assert_eq!(package.sidecar_hash, None);
    assert_eq!(scene.loads(), 1);
}

#[tokio::test]
async fn an_invalid_sidecar_keeps_the_previous_version_of_both() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1");
    scene.write("a.toml", "[limits]\ntimeout = '9s'");
    scene.scan().await;
    scene.write("a.wasm", "good 2");
    scene.write("a.toml", "[limits]\ntimout = '9s'");
    let changes = scene.scan().await;
    assert_eq!(changes.len(), 1);
    assert!(
        changes[0].starts_with(&format!("rejected a, keeping {}: ", short("good 1")))
            && changes[0].contains("a.toml:2:1: unknown key `limits.timout`"),
        "{changes:?}"
    );
    assert_eq!(scene.scan().await, Vec::<String>::new());
    assert_eq!(scene.loads(), 1);
    scene.write("a.toml", "[limits]\ntimeout = '8s'");
    assert_eq!(scene.scan().await.len(), 1);
    assert_eq!(scene.content("a").unwrap(), "good 2");
    // A sidecar that became a directory is invalid, not missing.
    fs::remove_file(scene.at("a.toml")).unwrap();
    fs::create_dir(scene.at("a.toml")).unwrap();
    let changes = scene.scan().await;
    assert!(
        changes[0].contains("a.toml: it is not a regular file"),
        "{changes:?}"
    );
    assert_eq!(
        scene.active.get("a").unwrap().limits_of("a").timeout,
        Duration::from_secs(8)
    );
}

#[tokio::test]
async fn a_rejection_is_reported_again_only_on_request() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "bad");
    assert_eq!(scene.find().await, 1);
    assert_eq!(scene.find().await, 0);
    scene.folder.report_again("a");
    assert_eq!(scene.find().await, 1);
    assert_eq!(scene.loads(), 1);
}

#[tokio::test]
async fn a_revoked_grant_is_gone_even_while_the_newest_file_cannot_be_used() {
    let mut scene = Scene::new();
    let granted = |scene: &Scene| {
        let package = scene.active.get("a").unwrap();
        (package.digest.clone(), package.sidecar.grants.env.len())
    };
    let good = ArtifactDigest::of(b"good");
    let update = format!("applied the new settings of a@{}", good.short());
    let rejection = format!("rejected a, keeping {}: not good", good.short());
    scene.write("a.wasm", "good");
    scene.write("a.toml", "grants.env = ['A=1', 'B=2']");
    scene.scan().await;
    assert_eq!(granted(&scene), (good.clone(), 2));

    scene.write("a.wasm", "bad");
    scene.write("a.toml", "grants.env = ['A=1']");
    // The rejection comes last, so that the package is recorded as rejected.
    assert_eq!(scene.scan().await, [update.as_str(), rejection.as_str()]);
    assert_eq!(granted(&scene), (good, 1));
    assert_eq!(scene.scan().await, Vec::<String>::new());

    // No readable file, and no sidecar.
    fs::remove_file(scene.at("a.wasm")).unwrap();
    fs::create_dir(scene.at("a.wasm")).unwrap();
    fs::remove_file(scene.at("a.toml")).unwrap();
    let changes = scene.scan().await;
    assert_eq!(changes[0], update);
    assert!(
        changes[1].ends_with("it is not a regular file"),
        "{changes:?}"
    );
    let package = scene.active.get("a").unwrap();
    assert!(package.sidecar.grants.env.is_empty() && package.sidecar_hash.is_none());

    // The active version gets a pin of other bytes, so that it is not run.
    let other = ArtifactDigest::of(b"other");
    scene.write("a.toml", &format!("sha256 = '{other}'"));
    let changes = scene.scan().await;
    assert_eq!((changes.len(), &changes[0]), (2, &update), "{changes:?}");
    let package = scene.active.get("a").unwrap();
    assert_eq!(package.sidecar.pin.as_deref(), Some(other.as_str()));
    assert_eq!(scene.scan().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_sidecar_for_other_bytes_revokes_grants_and_adds_none() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good");
    scene.write("a.toml", "grants.env = ['A=1', 'B=2']");
    scene.scan().await;
    let other = ArtifactDigest::of(b"other");
    scene.write(
        "a.toml",
        &format!("sha256 = '{other}'\ngrants.env = ['A=3', 'C=4']"),
    );
    assert_eq!(scene.scan().await.len(), 2, "taken back, and rejected");
    let active = scene.active.get("a").unwrap();
    let env = active.sidecar.grants.env.clone();
    assert_eq!(env, [("A".to_owned(), "1".to_owned())].into());
    assert_eq!(scene.scan().await, Vec::<String>::new());
    assert!(scene.folder.pins_another_version("a", &active.digest));
    assert!(!scene.folder.pins_another_version("a", &other));
}

#[tokio::test]
async fn a_sidecar_that_is_a_dangling_link_is_not_a_missing_sidecar() {
    let mut scene = Scene::new();
    symlink(scene.at("elsewhere"), scene.at("a.toml")).unwrap();
    scene.write("a.wasm", "good");
    let changes = scene.scan().await;
    assert!(
        changes[0].ends_with("a.toml: it is a link to nothing"),
        "{changes:?}"
    );
    assert!(scene.active.get("a").is_none());
    fs::write(scene.at("elsewhere"), "").unwrap();
    assert_eq!(scene.scan().await, [format!("added a@{}", short("good"))]);
}

#[tokio::test]
async fn a_wasm_name_that_is_no_file_is_rejected_with_the_reason() {
    let mut scene = Scene::new();
    fs::create_dir(scene.at("directory.wasm")).unwrap();
    symlink(scene.at("nothing"), scene.at("link.wasm")).unwrap();
    assert_eq!(
        scene.scan().await,
        [
            "rejected directory: it is not a regular file",
            "rejected link: it is a link to nothing"
        ]
    );
    assert_eq!(scene.scan().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_description_cannot_forge_a_line() {
    let mut scene = Scene::new();
    let tasks = json!({"tasks": [{"id": "x", "depends_on": ["y\nINFO all is well"]}]});
    scene.write("a.wasm", &format!("good {tasks}"));
    let changes = scene.scan().await;
    assert!(changes[0].starts_with("rejected a"), "{changes:?}");
    assert!(changes[0].contains("`y\\nINFO all is well`"), "{changes:?}");
}

#[tokio::test]
async fn a_missing_directory_is_looked_up_again_though_no_file_changed() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good");
    scene.write(
        "a.toml",
        "[[grants.directories]]\nhost = 'data'\nguest = '/data'\naccess = 'read'",
    );
    let changes = scene.scan().await;
    assert!(changes[0].contains("which cannot be used"), "{changes:?}");
    assert_eq!(scene.scan().await, Vec::<String>::new());
    fs::create_dir(scene.at("data")).unwrap();
    assert_eq!(scene.scan().await, [format!("added a@{}", short("good"))]);
    assert_eq!(
        scene
            .active
            .get("a")
            .unwrap()
            .sidecar
            .grants
            .directories
            .len(),
        1
    );
}

#[tokio::test]
async fn a_pin_accepts_one_digest_and_is_checked_before_compiling() {
    let mut scene = Scene::new();
    let pin = ArtifactDigest::of(b"good 1");
    scene.write("a.toml", &format!("sha256 = '{pin}'"));
    scene.write("a.wasm", "good 2");
    let changes = scene.scan().await;
    assert!(
        changes[0].contains(&format!("a.toml pins {pin}: put the pinned file back")),
        "{changes:?}"
    );
    assert_eq!(scene.loads(), 0);
    scene.write("a.wasm", "good 1");
    assert_eq!(scene.scan().await, [format!("added a@{}", short("good 1"))]);
}

#[tokio::test]
async fn a_description_and_the_tasks_that_the_sidecar_names_are_checked() {
    let mut scene = Scene::new();
    let described = |tasks: Value| format!("good {}", json!({ "tasks": tasks }));
    scene.write(
        "a.wasm",
        &described(json!([{"id": "x", "depends_on": ["x"]}])),
    );
    let changes = scene.scan().await;
    assert!(
        changes[0].contains("depend on each other: x → x"),
        "{changes:?}"
    );
    scene.write("a.wasm", &described(json!([{"id": "collect"}])));
    scene.write("a.toml", "[[schedules]]\nevery = '5m'\ntask = 'colect'");
    let changes = scene.scan().await;
    assert!(
        changes[0].contains("a.toml: a schedule names the task `colect`, which this package does not have: did you mean `collect`?"),
        "{changes:?}"
    );
    scene.write("a.toml", "[[schedules]]\nevery = '5m'\ntask = 'collect'");
    assert_eq!(scene.scan().await.len(), 1);
    assert_eq!(scene.active.get("a").unwrap().schedules()[0].name, "a");
}

#[tokio::test]
async fn a_change_that_was_not_applied_is_found_again_without_compiling() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good");
    assert_eq!(scene.find().await, 1);
    assert_eq!(scene.find().await, 1);
    assert_eq!(scene.scan().await.len(), 1);
    assert_eq!(scene.loads(), 1);
    fs::remove_file(scene.at("a.wasm")).unwrap();
    assert_eq!(scene.find().await, 1);
    assert_eq!(scene.scan().await, [format!("removed a@{}", short("good"))]);
}

#[tokio::test]
async fn invalid_names_and_sizes_are_refused_once_without_reading() {
    let mut scene = Scene::new();
    scene.write("a b.wasm", "good");
    let raw = std::ffi::OsStr::from_bytes(b"\xff.wasm");
    fs::write(scene.folder.path.join(raw), "good").unwrap();
    fs::File::create(scene.at("big.wasm"))
        .unwrap()
        .set_len(FILE_BYTES_MAX + 1)
        .unwrap();
    let changes = scene.scan().await;
    assert_eq!(changes.len(), 3);
    assert!(changes[0].starts_with("rejected a b: \"a b\" cannot name a package"));
    assert_eq!(
        changes[1],
        "rejected big: it has 64.0 MiB (67108865 bytes), and a package may have 64MiB; build in release mode and strip it, for example with `wasm-tools strip`"
    );
    assert!(changes[2].contains("cannot name a package"));
    assert_eq!(scene.scan().await, Vec::<String>::new());
    assert_eq!(scene.loads(), 0);
}

#[tokio::test]
async fn a_file_that_is_still_being_written_is_not_read() {
    let mut scene = Scene::new();
    scene.folder.settle = Duration::from_millis(150);
    let path = scene.at("a.wasm");
    let writer = std::thread::spawn(move || {
        for length in 1..=30 {
            let mut content = String::from("good");
            content.extend(std::iter::repeat_n('.', length));
            fs::write(&path, &content[..4 + length]).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let mut changes = scene.scan().await;
    writer.join().unwrap();
    changes.extend(scene.scan().await);
    let whole = format!("good{}", ".".repeat(30));
    assert_eq!(changes, [format!("added a@{}", short(&whole))]);
}

#[tokio::test]
async fn a_file_that_always_changes_does_not_delay_the_others() {
    let mut scene = Scene::new();
    // On a busy machine, the writer below may stand still for a hundred milliseconds.
    scene.folder.settle = Duration::from_millis(400);
    scene.write("calm.wasm", "good");
    let path = scene.at("unstable.wasm");
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writer = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            for n in 0.. {
                fs::write(&path, format!("good {n}")).unwrap();
                if stop.load(Ordering::Relaxed) {
                    return format!("good {n}");
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            unreachable!("it is stopped long before the numbers end")
        }
    });
    let changes = scene.scan().await;
    stop.store(true, Ordering::Relaxed);
    assert_eq!(changes, [format!("added calm@{}", short("good"))]);
    let last = writer.join().unwrap();
    assert_eq!(
        scene.scan().await,
        [format!("added unstable@{}", short(&last))]
    );
}

#[tokio::test]
async fn packages_stay_active_while_the_folder_is_gone() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good");
    scene.scan().await;
    let away = scene.root.path().join("away");
    fs::rename(&scene.folder.path, &away).unwrap();
    assert_eq!(scene.scan().await, Vec::<String>::new());
    assert!(scene.active.get("a").is_some());
    fs::rename(&away, &scene.folder.path).unwrap();
    scene.write("b.wasm", "good b");
    fs::remove_file(scene.at("a.wasm")).unwrap();
    assert_eq!(scene.scan().await.len(), 2);
    assert!(scene.active.get("a").is_none() && scene.active.get("b").is_some());
}

#[tokio::test]
async fn a_scan_may_move_between_threads() {
    fn sendable<T: Send>(value: T) -> T {
        value
    }
    let mut scene = Scene::new();
    let active = Packages::default();
    let mut scan = sendable(scene.folder.scan(&active)).await.unwrap();
    let change = sendable(scene.folder.next_change(&mut scan, &active)).await;
    assert!(change.is_none());
    // This code is type-checked and never called.
    fn product(folder: &mut PluginsFolder, scan: &mut Scan, active: &Packages) {
        drop(sendable(folder.scan(active)));
        drop(sendable(folder.next_change(scan, active)));
    }
    let _: fn(&mut PluginsFolder, &mut Scan, &Packages) = product;
}
