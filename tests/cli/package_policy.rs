//! `[policy]` of the configuration and `minimum_version` of a sidecar.

use campanile_model::ids::ArtifactDigest;
use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::guest::described;
use crate::site::{Site, eventually, list, stop, text};

on_both_empty!(
    an_older_version_is_refused_by_a_minimum_and_else_reported,
    every_version_waits_for_an_approval_when_the_policy_is_always,
    a_config_check_lists_the_packages_that_the_policy_refuses,
);

fn package(version: &str) -> Vec<u8> {
    let schedules = json!([{"name": "hourly", "every": "1h"}]);
    described(&json!({"version": version, "schedules": schedules}))
}

impl Site {
    fn put_version(&self, version: &str) {
        let temporary = self.plugin(".chimes.tmp");
        std::fs::write(&temporary, package(version)).expect("a package");
        std::fs::rename(&temporary, self.plugin("chimes.wasm")).expect("a package");
    }

    /// Wait until the package has `state` and this version is active.
    #[track_caller]
    fn wait_for_version(&self, state: &str, version: Option<&str>) -> Value {
        let digest = version.map(|version| ArtifactDigest::of(&package(version)).to_string());
        let wanted = (json!(state), json!(digest));
        eventually(|| {
            let shown = self.run(["package", "show", "chimes", "--json"]);
            let found = serde_json::from_str::<Value>(&shown.stdout).unwrap_or_default();
            match (found["state"].clone(), found["digest"].clone()) == wanted {
                true => Ok(found),
                false => Err(format!("{shown:?}")),
            }
        })
    }

    fn event_details(&self, kind: &str) -> Vec<String> {
        let all = list(self.json(["event", "list"])).into_iter();
        let of_kind = all.filter(|event| event["kind"] == kind);
        of_kind.map(|event| text(&event["detail"])).collect()
    }
}

async fn an_older_version_is_refused_by_a_minimum_and_else_reported(place: Place) {
    let site = Site::new(place);
    site.put_version("2.0.0");
    let host = site.serve();
    site.wait_for_version("active", Some("2.0.0"));
    site.sidecar("chimes", "minimum_version = '1.5.0'\n");
    host.wait_for_line("applied the new settings");
    site.put_version("1.0.0");
    host.wait_for_line("its version is 1.0.0, and chimes.toml accepts none below 1.5.0");
    site.wait_for_version("rejected", Some("2.0.0"));
    assert_eq!(site.trigger_and_wait("hourly")["status"], "succeeded");
    assert_eq!(
        site.event_details("version_downgraded"),
        Vec::<String>::new()
    );

    site.sidecar("chimes", "");
    let line = host.wait_for_line("with the version 1.0.0 replaced");
    assert!(line.contains("minimum_version"), "{line}");
    site.wait_for_version("active", Some("1.0.0"));
    let details = site.event_details("version_downgraded");
    assert_eq!(details.len(), 1);
    assert!(
        details[0].contains("1.0.0") && details[0].contains("minimum_version = \"2.0.0\""),
        "{details:?}"
    );
    // A higher version is no downgrade.
    site.put_version("2.1.0");
    site.wait_for_version("active", Some("2.1.0"));
    assert_eq!(site.event_details("version_downgraded").len(), 1);

    // A minimum above the active version: its launches are refused.
    site.sidecar("chimes", "minimum_version = '3.0.0'\n");
    host.wait_for_line("accepts none below 3.0.0");
    let launch = site.trigger_and_wait("hourly");
    assert_eq!(
        (&launch["status"], &launch["failure"]),
        (&json!("failed"), &json!("refused"))
    );
    assert!(
        text(&launch["message"]).contains("below 3.0.0"),
        "{launch:#}"
    );
    site.sidecar("chimes", "minimum_version = 'three'\n");
    host.wait_for_line("`minimum_version` must be a semantic version such as");
}

async fn every_version_waits_for_an_approval_when_the_policy_is_always(place: Place) {
    let site = Site::new(place);
    site.configure("[policy]\napproval = 'always'\n");
    site.put_version("1.0.0");
    let mut host = site.serve();
    site.wait_for_version("pending_approval", None);
    let line = host.wait_for_line("waits for approval");
    assert!(line.contains("no version is active"), "{line}");
    let add = [
        "schedule",
        "add",
        "mine",
        "--package",
        "chimes",
        "--every",
        "1h",
    ];
    site.run(add)
        .assert_refused(&["campanile package approve chimes"]);
    // A restart changes nothing. A file that is gone is noticed, also after a restart.
    stop(&mut host);
    std::fs::remove_file(site.plugin("chimes.wasm")).unwrap();
    let mut host = site.serve();
    site.wait_for_version("missing", None);
    site.put_version("1.0.0");
    site.wait_for_version("pending_approval", None);
    stop(&mut host);
    let host = site.serve();
    site.wait_for_version("pending_approval", None);

    let approved = site.json(["package", "approve", "chimes", "--by", "ada"]);
    assert_eq!(approved["before"], Value::Null);
    host.wait_for_line("added chimes");
    site.wait_for_version("active", Some("1.0.0"));
    eventually(|| match site.json(["schedule", "list"]) {
        Value::Array(schedules) if schedules.len() == 1 => Ok(()),
        other => Err(other.to_string()),
    });
    assert_eq!(site.trigger_and_wait("hourly")["status"], "succeeded");
    site.put_version("1.1.0");
    site.wait_for_version("pending_approval", Some("1.0.0"));
    let rejected = site.ok(["package", "reject", "chimes"]);
    assert!(rejected.contains("stays active"), "{rejected}");
    site.wait_for_version("rejected", Some("1.0.0"));
    site.put_version("1.2.0");
    site.wait_for_version("pending_approval", Some("1.0.0"));
    let pending = ArtifactDigest::of(&package("1.2.0")).to_string();
    let printed = site.ok(["package", "approve", "chimes", "--digest", &pending]);
    assert!(printed.contains("which replaces"), "{printed}");
    site.wait_for_version("active", Some("1.2.0"));
    assert_eq!(site.trigger_and_wait("hourly")["digest"], pending.as_str());
}

async fn a_config_check_lists_the_packages_that_the_policy_refuses(place: Place) {
    let site = Site::new(place);
    site.put_version("1.0.0");
    site.copy_package("noop");
    let refused = |expected: &[(&str, &str)]| {
        let output = site.run(["config", "check"]);
        assert_eq!(output.code, i32::from(!expected.is_empty()), "{output:?}");
        assert_eq!(output.stderr.lines().count(), expected.len(), "{output:?}");
        for (package, why) in expected {
            let line = format!("refused: {package}: ");
            let mut lines = output.stderr.lines();
            let found = lines.any(|found| found.starts_with(&line) && found.contains(why));
            assert!(found, "no `{line}{why}`: {output:?}");
        }
    };
    refused(&[]);
    site.sidecar("chimes", "minimum_version = '1.0.1'\n");
    refused(&[("chimes", "accepts none below 1.0.1")]);
    site.sidecar("noop", "minimum_version = '9.0.0'\n");
    refused(&[("chimes", "below 1.0.1"), ("noop", "below 9.0.0")]);
    std::fs::remove_file(site.plugin("noop.toml")).unwrap();
    let digest = ArtifactDigest::of(&package("1.0.0"));
    site.sidecar("chimes", &format!("sha256 = '{digest}'\n"));
    refused(&[]);
    site.configure("[policy]\napproval = 'pinned'\n");
    refused(&[("noop", "no sidecar pins it")]);
    for (text, expected) in [
        (
            "approval = 'some'",
            "`policy.approval` must be `requests` or `always` or `pinned`",
        ),
        (
            "trusted_keys = ['ding']",
            "`policy.trusted_keys` item 1 is no public key",
        ),
        ("require_signature = true", "`policy.trusted_keys` is empty"),
        ("trusted = []", "did you mean `trusted_keys`?"),
    ] {
        site.configure(&format!("[policy]\n{text}\n"));
        site.run(["config", "check"])
            .assert_refused(&["campanile.toml", expected]);
    }
}
