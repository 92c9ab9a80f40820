//! More files than a host uses.

use super::*;

#[tokio::test]
async fn files_beyond_the_most_are_rejected_together_and_displace_no_package() {
    let mut scene = Scene::new();
    scene.folder.packages_max = 3;
    scene.write("x.wasm", "good");
    scene.write("y.wasm", "good");
    assert_eq!(scene.scan().await.len(), 2);
    for name in ["a", "b", "c", "d"] {
        scene.write(&format!("{name}.wasm"), "good");
    }
    let changes = scene.scan().await;
    assert_eq!(
        changes[0],
        "rejected b: the folder has 6 files, and a host uses 3; this is the first that is not used: remove files, or use a second host with its own folder"
    );
    assert_eq!(changes.len(), 2);
    assert!(changes[1].starts_with("added a@"), "{changes:?}");
    assert_eq!(scene.scan().await, Vec::<String>::new());
    scene.folder.report_again("b");
    assert_eq!(scene.scan().await.len(), 1);

    // The others are used as soon as there is room.
    for name in ["x", "y", "a"] {
        fs::remove_file(scene.at(&format!("{name}.wasm"))).unwrap();
    }
    let changes = scene.scan().await;
    assert_eq!(changes[0], "the file of b is gone");
    assert_eq!(changes.len(), 7, "{changes:?}");
    assert_eq!(scene.content("d").as_deref(), Some("good"));
}
