//! Sidecars with an error, files that never were taken, and what is left of either when they are gone.

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::guest::described;
use crate::site::{Site, eventually, list, text};

on_both_empty!(
    a_start_with_a_broken_sidecar_goes_by_the_one_before_it,
    a_broken_sidecar_brings_back_nothing_that_was_taken_away,
    a_file_that_was_never_taken_leaves_the_list_with_its_file,
);

/// A package that wants a variable, without which nothing of it is called.
fn wants() -> Vec<u8> {
    described(&json!({
        "name": "chimes", "version": "1.0.0", "tasks": [{"id": "strike"}],
        "schedules": [{"name": "proposed", "every": "1h"}], "requests": {"env": ["TOKEN"]},
    }))
}

const GRANTS: &str = "grants.env = ['TOKEN=abc']\n[[schedules]]\nname = 'ordered'\nevery = '1h'\n";
const BROKEN: &str = "grants.env = ['TOKEN=abc', 'OTHER=abc']\n[[schedule]]\n";

impl Site {
    #[track_caller]
    fn shown_as(&self, state: &str) -> Value {
        eventually(|| {
            let shown = self.json(["package", "show", "chimes"]);
            match shown["state"] == state {
                true => Ok(shown),
                false => Err(format!("{shown:#}")),
            }
        })
    }

    #[track_caller]
    fn rings(&self) -> Value {
        let launch = self.trigger("ordered", &json!({}));
        self.ended("ordered", &launch)
    }

    fn packages(&self) -> Vec<String> {
        let all = list(self.json(["package", "list"]));
        all.iter().map(|package| text(&package["name"])).collect()
    }
}

async fn a_start_with_a_broken_sidecar_goes_by_the_one_before_it(place: Place) {
    let site = Site::new(place);
    std::fs::write(site.plugin("chimes.wasm"), wants()).expect("a package");
    site.sidecar("chimes", GRANTS);
    let serve = || site.serve_with(&["--name", "one"]);
    let mut host = serve();
    assert_eq!(site.rings()["status"], "succeeded");
    site.sidecar("chimes", BROKEN);
    host.wait_for_line("rejected chimes");
    let before = site.shown_as("rejected");

    for _ in 0..2 {
        host.terminate();
        assert!(host.wait_exit().success());
        host = serve();
        let shown = site.shown_as("rejected");
        for key in ["digest", "grants", "schedules", "missing_since"] {
            assert_eq!(shown[key], before[key], "{key}");
        }
        assert_eq!(shown["schedules"], json!(["ordered"]));
        assert_eq!(shown["grants"], json!([["env", "TOKEN"]]));
        let rejection = text(&shown["rejection"]);
        assert!(
            rejection.contains("chimes.toml") && rejection.contains("schedule"),
            "{rejection}"
        );
        assert!(site.ok(["package", "list"]).contains("chimes.toml"));
        let health = site.json(["health"]);
        assert_eq!(health["healthy"], true);
        assert!(
            text(&health["notes"][0]).contains("chimes.toml"),
            "{health:#}"
        );
        assert_eq!(site.rings()["status"], "succeeded");
    }
    // A new build beside it changes nothing either, and neither does a broken one.
    for bytes in [described(&json!({"version": "2.0.0"})), b"broken".to_vec()] {
        host.terminate();
        assert!(host.wait_exit().success());
        std::fs::write(site.plugin("chimes.wasm"), bytes).expect("a package");
        host = serve();
        assert_eq!(site.shown_as("rejected")["digest"], before["digest"]);
        assert_eq!(site.rings()["status"], "succeeded");
    }
    std::fs::write(site.plugin("chimes.wasm"), wants()).expect("a package");
    // Mended, it holds at once; and what it said while it was broken never did.
    site.sidecar("chimes", GRANTS);
    host.wait_for_line("restored chimes");
    assert_eq!(site.shown_as("active")["grants"], json!([["env", "TOKEN"]]));
    assert_eq!(site.json(["health"])["notes"], json!([]));
    // Another host has never gone by any.
    host.terminate();
    assert!(host.wait_exit().success());
    site.sidecar("chimes", BROKEN);
    let other = site.serve_with(&["--name", "other"]);
    other.wait_for_line("cannot go on");
    assert!(site.shown_as("missing")["rejection"].is_string());
}

async fn a_broken_sidecar_brings_back_nothing_that_was_taken_away(place: Place) {
    let site = Site::new(place);
    std::fs::write(site.plugin("chimes.wasm"), wants()).expect("a package");
    site.sidecar("chimes", GRANTS);
    let serve = || site.serve_with(&["--name", "one"]);
    let mut host = serve();
    // Taken back in force, and then broken: it stays taken back.
    site.sidecar("chimes", "[[schedules]]\nname = 'ordered'\nevery = '1h'\n");
    host.wait_for_line("applied the new settings");
    host.terminate();
    assert!(host.wait_exit().success());
    site.sidecar("chimes", BROKEN);
    host = serve();
    assert_eq!(site.shown_as("rejected")["grants"], json!([]));
    assert_eq!(site.rings()["failure"], "denied");
    site.sidecar("chimes", GRANTS);
    host.wait_for_line("applied the new settings");
    host.terminate();
    assert!(host.wait_exit().success());

    // The files were taken away while nobody served, and a host has seen that.
    for file in ["chimes.wasm", "chimes.toml"] {
        std::fs::remove_file(site.plugin(file)).expect("a file");
    }
    host = serve();
    site.shown_as("missing");
    host.terminate();
    assert!(host.wait_exit().success());
    std::fs::write(site.plugin("chimes.wasm"), wants()).expect("a package");
    site.sidecar("chimes", BROKEN);
    host = serve();
    let said = host.stderr_lines().join("\n");
    assert!(
        said.contains("the active version cannot be restored"),
        "{said}"
    );
    site.shown_as("missing");
}

async fn a_file_that_was_never_taken_leaves_the_list_with_its_file(place: Place) {
    let site = Site::new(place);
    std::fs::write(site.plugin("chimes.wasm"), wants()).expect("a package");
    for name in ["ghost", "spook"] {
        std::fs::write(site.plugin(&format!("{name}.wasm")), "broken").expect("a file");
    }
    let mut host = site.serve();
    assert_eq!(site.packages(), ["chimes", "ghost", "spook"]);
    let ghost = site.json(["package", "show", "ghost"]);
    assert_eq!(
        (&ghost["state"], &ghost["loaded_at"]),
        (&json!("rejected"), &Value::Null)
    );
    std::fs::remove_file(site.plugin("ghost.wasm")).expect("a file");
    host.wait_for_line("the file of ghost is gone");
    assert_eq!(site.packages(), ["chimes", "spook"]);
    site.run(["package", "show", "ghost"])
        .refused(&["no package named `ghost`"]);
    // And while nobody serves.
    host.terminate();
    assert!(host.wait_exit().success());
    assert_eq!(site.packages(), ["chimes", "spook"]);
    std::fs::remove_file(site.plugin("spook.wasm")).expect("a file");
    host = site.serve();
    assert_eq!(site.packages(), ["chimes"]);

    // What was taken once stays, without what was said of a file that is not there.
    std::fs::write(site.plugin("chimes.wasm"), "broken").expect("a file");
    host.wait_for_line("rejected chimes");
    std::fs::remove_file(site.plugin("chimes.wasm")).expect("a file");
    let shown = site.shown_as("missing");
    assert_eq!(shown["rejection"], Value::Null);
}
