//! Random operations on the folder, while it is scanned.

use std::process::Command;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;

/// After any operations, with or without scans between them, the active packages are those of the folder. A package
/// with bad bytes may only be active with earlier good bytes.
#[tokio::test]
async fn after_random_operations_the_active_packages_are_those_of_the_folder() {
    for seed in 0..4 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut scene = Scene::new();
        scene.folder.settle = Duration::from_millis(1);
        let store = scene.root.path().join("store");
        fs::create_dir(&store).unwrap();
        for step in 0..200 {
            operate(&scene, &store, &mut random, step);
            if random.random_bool(0.4) {
                scene.scan().await;
            }
        }
        scene.folder.settle = Duration::from_millis(10);
        scene.scan().await;
        assert_eq!(scene.scan().await, Vec::<String>::new(), "seed {seed}");

        for name in NAMES {
            let path = scene.at(&format!("{name}.wasm"));
            let regular = fs::metadata(&path).is_ok_and(|found| found.is_file());
            let content = fs::symlink_metadata(&path).ok().map(|_| {
                if regular {
                    fs::read_to_string(&path).unwrap()
                } else {
                    "neither good nor a file".to_owned()
                }
            });
            let active = scene.content(name);
            match content {
                None => assert_eq!(active, None, "{name}, seed {seed}"),
                Some(content) if content.starts_with("good") => {
                    assert_eq!(active, Some(content), "{name}, seed {seed}");
                }
                Some(_) => assert!(
                    active.is_none_or(|active| active.starts_with("good")),
                    "{name}, seed {seed}"
                ),
            }
        }
        assert!(
            scene
                .active
                .all()
                .keys()
                .all(|name| NAMES.contains(&name.as_str())),
            "seed {seed}"
        );
    }
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// One random thing that people, copiers and build tools do in a folder.
fn operate(scene: &Scene, store: &Path, random: &mut StdRng, step: usize) {
    let name = NAMES[random.random_range(0..NAMES.len())];
    let path = scene.at(&format!("{name}.wasm"));
    let quality = if random.random_bool(0.8) {
        "good"
    } else {
        "bad"
    };
    let content = format!("{quality} {name} {step}");
    let clear = || {
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
            fs::remove_dir(&path).unwrap();
        } else {
            let _ = fs::remove_file(&path);
        }
    };
    let odd = |path: &Path| fs::metadata(path).is_ok_and(|found| !found.is_file());
    match random.random_range(0..9) {
        // Written in place; also through a link, as `cp` does.
        0 | 1 if !odd(&path) => fs::write(&path, content).unwrap(),
        // Written in two parts: only the first has arrived when the next scan comes.
        2 if !odd(&path) => fs::write(&path, &content[..content.len() / 2]).unwrap(),
        3 if !odd(&path) => fs::write(&path, "").unwrap(),
        4 => {
            clear();
            let temporary = scene.at(&format!(".{name}.tmp"));
            fs::write(&temporary, content).unwrap();
            fs::rename(&temporary, &path).unwrap();
        }
        5 => clear(),
        6 => {
            clear();
            let target = store.join(format!("{name}-{step}"));
            if random.random_bool(0.8) {
                fs::write(&target, content).unwrap();
            }
            symlink(&target, &path).unwrap();
        }
        7 => {
            clear();
            assert!(
                Command::new("mkfifo")
                    .arg(&path)
                    .status()
                    .unwrap()
                    .success()
            );
        }
        _ => {
            clear();
            fs::create_dir(&path).unwrap();
        }
    }
}
