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

#[tokio::test]
async fn all_names_of_a_file_share_its_description() {
    let mut scene = Scene::new();
    let summary = "s".repeat(100_000);
    let schedules =
        json!([{"every": "5m", "context": {"text": summary}}, {"name": "x", "every": "6m"}]);
    let described = json!({"summary": summary, "schedules": schedules});
    scene.write("p0.wasm", &format!("good {described}"));
    for number in 1..200 {
        fs::hard_link(scene.at("p0.wasm"), scene.at(&format!("p{number}.wasm"))).unwrap();
    }
    scene.write("q.wasm", &format!("good {}", json!({"summary": "another"})));
    assert_eq!(scene.scan().await.len(), 201);
    let texts = |scene: &Scene| {
        let all = scene.active.all();
        let texts = all
            .values()
            .map(|package| package.manifest.description.as_ptr());
        BTreeSet::from_iter(texts).len()
    };
    assert_eq!(texts(&scene), 2);
    for (name, package) in scene.active.all().iter().filter(|(name, _)| *name != "q") {
        let names = Vec::from_iter(
            package
                .schedules()
                .into_iter()
                .map(|schedule| schedule.name),
        );
        assert_eq!(names, [name, "x"]);
        assert!(package.manifest.task(name).is_some());
    }
    // Getting its file back, or a sidecar, doesn't end the sharing.
    fs::remove_file(scene.at("p7.wasm")).unwrap();
    scene.scan().await;
    fs::hard_link(scene.at("p0.wasm"), scene.at("p7.wasm")).unwrap();
    scene.write("p8.toml", "max_attempts = 2\n");
    assert_eq!(scene.scan().await.len(), 2);
    assert_eq!(texts(&scene), 2);
}
