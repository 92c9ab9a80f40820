//! Loads beside the scans.

use super::*;
use crate::folder::loads::{Loads, Waiting};
use crate::folder::resolve::KnownFiles;

/// Scans and applies until something changes, returning a sentence for each change.
async fn until_change(scene: &mut Scene) -> Vec<String> {
    loop {
        let changes = scene.scan_once().await;
        if !changes.is_empty() {
            return changes;
        }
        if scene.folder.is_loading() {
            scene.folder.load_ended().await;
        }
    }
}

#[tokio::test]
async fn a_slow_load_delays_no_other_and_is_not_started_twice() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good and slow");
    scene.write("b.wasm", "good");
    let added = until_change(&mut scene).await;
    assert_eq!(added, [format!("added b@{}", short("good"))]);
    assert_eq!(scene.scan_once().await, Vec::<String>::new());
    let loading: Vec<&str> = scene.folder.loading().map(|(name, _)| name).collect();
    assert_eq!(loading, ["a"]);
    scene.fake.slow_ends.add_permits(1);
    assert_eq!(
        scene.scan().await,
        [format!("added a@{}", short("good and slow"))]
    );
    assert_eq!(scene.loads(), 2);
}

#[tokio::test]
async fn a_load_is_stopped_when_its_file_changes_or_is_removed() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good and slow");
    scene.write("b.wasm", "good but slow");
    scene.scan_once().await;
    assert_eq!(scene.folder.loading().count(), 2);
    scene.write("a.wasm", "good");
    fs::remove_file(scene.at("b.wasm")).unwrap();
    let changes = scene.scan().await;
    let added = format!("added a@{}", short("good"));
    assert_eq!(changes, ["the file of b is gone", &added]);
    assert!(!scene.folder.is_loading());
}

#[tokio::test]
async fn changes_without_compiling_come_first_and_each_when_it_is_found() {
    let mut scene = Scene::new();
    for name in ["b", "c"] {
        scene.write(&format!("{name}.wasm"), "good");
    }
    scene.scan().await;
    scene.write("a.wasm", "panic");
    scene.write("b.toml", "[limits]\ntimeout = '9s'");
    fs::remove_file(scene.at("c.wasm")).unwrap();
    scene.write("d e.wasm", "good");
    let before = scene.loads();
    let mut scan = scene.folder.scan(&scene.active).await.unwrap();
    for expected in ["applied the new settings of b", "removed c", "rejected d e"] {
        let change = scene.folder.next_change(&mut scan, &scene.active).await;
        let line = change.unwrap().to_string();
        assert!(line.starts_with(expected), "{line}");
    }
    assert_eq!(scene.loads(), before, "found before anything is compiled");
    let none = scene.folder.next_change(&mut scan, &scene.active).await;
    assert!(none.is_none() && scene.folder.is_loading());
    let last = scene.scan().await.pop().unwrap();
    assert!(last.starts_with("rejected a"), "{last}");
    assert_eq!(scene.loads(), before + 1);
}

#[tokio::test]
async fn a_file_that_was_loaded_before_is_not_loaded_again() {
    let mut scene = Scene::new();
    for name in ["a", "b", "c"] {
        scene.write(&format!("{name}.wasm"), "good and slow");
    }
    scene.write("known.wasm", "good and known");
    let added = format!("added known@{}", short("good and known"));
    assert_eq!(scene.scan_once().await, [added]);
    let unloaded: Vec<String> = scene.folder.unloaded().into_iter().collect();
    assert_eq!(unloaded, ["a", "b", "c"]);
}

#[tokio::test]
async fn files_that_change_again_and_again_keep_no_other_waiting() {
    let mut scene = Scene::new();
    scene.write("a.wasm", "good 1 slow");
    scene.write("b.wasm", "good 2 slow");
    // The largest is tried last.
    scene.write("c.wasm", "good, and the largest");
    scene.scan_once().await;
    let loading: Vec<&str> = scene.folder.loading().map(|(name, _)| name).collect();
    assert_eq!(loading, ["a", "b"]);
    // Both are replaced while they are loaded.
    scene.write("a.wasm", "good 3 slow");
    scene.write("b.wasm", "good 4 slow");
    scene.scan_once().await;
    scene.folder.load_ended().await;
    scene.scan_once().await;
    let loading: Vec<&str> = scene.folder.loading().map(|(name, _)| name).collect();
    assert!(loading.contains(&"c"), "{loading:?}");
}

#[tokio::test]
async fn many_files_that_take_long_delay_no_honest_one() {
    let mut scene = Scene::new();
    for number in 0..40 {
        scene.write(&format!("a{number}.wasm"), &format!("good {number} slow"));
    }
    scene.scan_once().await;
    scene.write("z.wasm", "good");
    // None of the others ever finishes.
    let added = tokio::time::timeout(Duration::from_secs(30), until_change(&mut scene));
    let added = added.await.expect("the honest file waits for the others");
    assert_eq!(added, [format!("added z@{}", short("good"))]);
    assert_eq!(scene.loads(), 2, "one file takes long, the rest waits");
}

#[tokio::test]
async fn namespaces_take_turns_and_small_files_come_first() {
    let waiting = |name: &str, size_bytes, pace| Waiting {
        name: name.to_owned(),
        size_bytes,
        pace,
    };
    let digest = || ArtifactDigest::of(b"");
    let mut loads = Loads::<()>::new();
    let mut waits = vec![
        waiting("@a/big", 9, Pace::Quick),
        waiting("@a/small", 1, Pace::Quick),
        waiting("@b/one", 5, Pace::Quick),
        waiting("@b/long", 1, Pace::Full),
        waiting("@b/longer", 1, Pace::Full),
    ];
    let mut order = Vec::new();
    while let Some(next) = loads.next_of(&waits) {
        let next = waits.remove(next);
        loads.start(&next.name, (digest(), next.pace), std::future::pending());
        order.push(next.name.clone());
        if next.pace == Pace::Quick {
            loads.stop(&next.name);
        }
    }
    // At most one slow file at a time.
    assert_eq!(order, ["@b/long", "@a/small", "@b/one", "@a/big"]);
}

#[test]
fn a_file_that_never_stops_changing_is_refused_once() {
    let mut known = KnownFiles::<()>::default();
    let hour = Duration::from_secs(3_600);
    assert!(known.note_change("a", hour, None).is_none());
    let refused = known.note_change("a", Duration::ZERO, None).unwrap();
    let refused = refused.to_string();
    assert!(
        refused.starts_with("rejected a: one of its files changes again and again"),
        "{refused}"
    );
    assert!(known.note_change("a", Duration::ZERO, None).is_none());
}
