//! Invalid sidecars, packages that never loaded, and what stays of them after their files are deleted.

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::guest::described;
use crate::site::{Site, eventually, list, stop, text};

on_both_empty!(
    a_start_with_an_invalid_sidecar_uses_the_previous_one,
    an_invalid_sidecar_restores_no_removed_grant_or_package,
    a_never_loaded_package_leaves_the_list_with_its_file,
);

/// Return a package with a request for a variable. Without the grant its tasks are not called.
fn requesting_package() -> Vec<u8> {
    described(&json!({
        "name": "chimes", "version": "1.0.0", "tasks": [{"id": "strike"}],
        "schedules": [{"name": "proposed", "every": "1h"}], "requests": {"env": ["TOKEN"]},
    }))
}

const GRANTS: &str = "grants.env = ['TOKEN=abc']\n[[schedules]]\nname = 'hourly'\nevery = '1h'\n";
const BROKEN: &str = "grants.env = ['TOKEN=abc', 'OTHER=abc']\n[[schedule]]\n";

impl Site {
    #[track_caller]
    fn wait_for_package_state(&self, state: &str) -> Value {
        eventually(|| {
            let shown = self.json(["package", "show", "chimes"]);
            match shown["state"] == state {
                true => Ok(shown),
                false => Err(format!("{shown:#}")),
            }
        })
    }

    /// Deletes what hosts keep about the plugins folder on their own disk.
    fn forget_own_record(&self) {
        let entries = std::fs::read_dir(self.folder()).expect("the folder");
        let entries = entries.map(|entry| entry.expect("an entry").path());
        let states = entries.filter(|path| path.extension().is_some_and(|end| end == "state"));
        let states: Vec<_> = states.collect();
        assert_eq!(states.len(), 1, "{states:?}");
        std::fs::remove_dir_all(&states[0]).expect("deleted");
    }

    fn packages(&self) -> Vec<String> {
        let all = list(self.json(["package", "list"]));
        all.iter().map(|package| text(&package["name"])).collect()
    }
}

async fn a_start_with_an_invalid_sidecar_uses_the_previous_one(place: Place) {
    let site = Site::new(place);
    std::fs::write(site.plugin("chimes.wasm"), requesting_package()).expect("a package");
    site.sidecar("chimes", GRANTS);
    let serve = || site.serve_with(&["--name", "one"]);
    let mut host = serve();
    assert_eq!(site.trigger_and_wait("hourly")["status"], "succeeded");
    site.sidecar("chimes", BROKEN);
    host.wait_for_line("rejected chimes");
    let before = site.wait_for_package_state("rejected");

    for _ in 0..2 {
        stop(&mut host);
        host = serve();
        let shown = site.wait_for_package_state("rejected");
        for key in ["digest", "grants", "schedules", "missing_since"] {
            assert_eq!(shown[key], before[key], "{key}");
        }
        assert_eq!(shown["schedules"], json!(["hourly"]));
        assert_eq!(shown["grants"], json!([["env", "TOKEN"]]));
        let rejection = text(&shown["rejection"]);
        assert!(
            rejection.contains("chimes.toml") && rejection.contains("schedule"),
            "{rejection}"
        );
        assert!(site.ok(["package", "list"]).contains("chimes.toml"));
        let health = site.wait_until_healthy();
        assert!(
            text(&health["notes"][0]).contains("chimes.toml"),
            "{health:#}"
        );
        assert_eq!(site.trigger_and_wait("hourly")["status"], "succeeded");
    }
    // Neither a new build nor a broken one changes anything while the sidecar is invalid.
    for bytes in [described(&json!({"version": "2.0.0"})), b"broken".to_vec()] {
        stop(&mut host);
        std::fs::write(site.plugin("chimes.wasm"), bytes).expect("a package");
        host = serve();
        assert_eq!(
            site.wait_for_package_state("rejected")["digest"],
            before["digest"]
        );
        assert_eq!(site.trigger_and_wait("hourly")["status"], "succeeded");
    }
    std::fs::write(site.plugin("chimes.wasm"), requesting_package()).expect("a package");
    // The corrected sidecar applies at once. The grants of the invalid one never applied.
    site.sidecar("chimes", GRANTS);
    host.wait_for_line("restored chimes");
    assert_eq!(
        site.wait_for_package_state("active")["grants"],
        json!([["env", "TOKEN"]])
    );
    assert_eq!(site.wait_until_healthy()["notes"], json!([]));
    // The previous sidecar is kept by the host itself: what the database knows of it grants nothing.
    stop(&mut host);
    site.sidecar("chimes", BROKEN);
    site.forget_own_record();
    let again = serve();
    again.wait_for_line("cannot be restored");
    assert!(site.wait_for_package_state("missing")["rejection"].is_string());
}

async fn an_invalid_sidecar_restores_no_removed_grant_or_package(place: Place) {
    let site = Site::new(place);
    std::fs::write(site.plugin("chimes.wasm"), requesting_package()).expect("a package");
    site.sidecar("chimes", GRANTS);
    let serve = || site.serve_with(&["--name", "one"]);
    let mut host = serve();
    // A valid sidecar removes the grant. An invalid sidecar after it does not restore the grant.
    site.sidecar("chimes", "[[schedules]]\nname = 'hourly'\nevery = '1h'\n");
    host.wait_for_line("applied the new settings");
    stop(&mut host);
    site.sidecar("chimes", BROKEN);
    host = serve();
    assert_eq!(site.wait_for_package_state("rejected")["grants"], json!([]));
    assert_eq!(site.trigger_and_wait("hourly")["failure"], "denied");
    site.sidecar("chimes", GRANTS);
    host.wait_for_line("applied the new settings");
    stop(&mut host);

    // The files are deleted while no host serves, and the next host records that.
    for file in ["chimes.wasm", "chimes.toml"] {
        std::fs::remove_file(site.plugin(file)).expect("a file");
    }
    host = serve();
    site.wait_for_package_state("missing");
    stop(&mut host);
    std::fs::write(site.plugin("chimes.wasm"), requesting_package()).expect("a package");
    site.sidecar("chimes", BROKEN);
    host = serve();
    host.wait_for_line("the active version cannot be restored");
    site.wait_for_package_state("missing");
}

async fn a_never_loaded_package_leaves_the_list_with_its_file(place: Place) {
    let site = Site::new(place);
    std::fs::write(site.plugin("chimes.wasm"), requesting_package()).expect("a package");
    for name in ["ghost", "spook"] {
        std::fs::write(site.plugin(&format!("{name}.wasm")), "broken").expect("a file");
    }
    let mut host = site.serve();
    assert_eq!(site.packages(), ["chimes", "ghost", "spook"]);
    let never_loaded = site.json(["package", "show", "ghost"]);
    assert_eq!(
        (&never_loaded["state"], &never_loaded["loaded_at"]),
        (&json!("rejected"), &Value::Null)
    );
    std::fs::remove_file(site.plugin("ghost.wasm")).expect("a file");
    host.wait_for_line("the file of ghost is gone");
    assert_eq!(site.packages(), ["chimes", "spook"]);
    site.run(["package", "show", "ghost"])
        .assert_refused(&["no package named `ghost`"]);
    // The same while no host serves.
    stop(&mut host);
    assert_eq!(site.packages(), ["chimes", "spook"]);
    std::fs::remove_file(site.plugin("spook.wasm")).expect("a file");
    host = site.serve();
    assert_eq!(site.packages(), ["chimes"]);

    // A package that was active stays in the list, without the rejection of its deleted file.
    std::fs::write(site.plugin("chimes.wasm"), "broken").expect("a file");
    host.wait_for_line("rejected chimes");
    std::fs::remove_file(site.plugin("chimes.wasm")).expect("a file");
    let shown = site.wait_for_package_state("missing");
    assert_eq!(shown["rejection"], Value::Null);
}
