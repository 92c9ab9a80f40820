//! Decisions about versions count only with a seal: whoever writes the database approves nothing, and takes no rejection back.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use campanile_model::approval_key::ApprovalKey;
use campanile_model::ids::ArtifactDigest;
use campanile_tests::{HostProcess, Place, on_both_empty};
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};

use crate::api::Api;
use crate::browser::{Browser, token};
use crate::guest::described;
use crate::site::{Site, eventually, list, stop, text};

on_both_empty!(
    an_approval_that_is_written_into_the_database_activates_nothing,
    an_approval_of_one_version_does_not_count_for_another,
    an_old_approval_does_not_count_after_a_rollback,
    approvals_over_the_api_and_the_pages_count,
    a_token_that_is_altered_in_the_database_approves_nothing,
    a_lost_key_ends_approvals_until_they_are_given_again,
    an_approval_on_a_host_with_another_key_does_not_count,
    a_new_key_seals_what_counted_before,
    a_key_file_that_can_not_be_used_stops_hosts_and_commands,
);

const ALWAYS: &str = "[policy]\napproval = 'always'\n";
const WITH_KEY: &str = "[policy]\napproval = 'always'\napproval_key = 'approval.key'\n";
/// What a writer of the database makes of the pending version.
const FORGE: &str = "UPDATE package_version SET decision = 'approved', decided_at = first_seen_at, decided_by = 'eve'
    WHERE decision IS NULL";
const ACTIVATE: &str = "UPDATE package SET digest = pending_digest, loaded_at = pending_since, pending_digest = NULL, pending_since = NULL
    WHERE pending_digest IS NOT NULL";
const UNSEALED: &str = "isn't sealed with that host's key";

fn package(version: &str) -> Vec<u8> {
    let schedules = json!([{"name": "hourly", "every": "1h"}]);
    described(&json!({"version": version, "schedules": schedules}))
}

fn digest(version: &str) -> String {
    ArtifactDigest::of(&package(version)).to_string()
}

/// Returns a site where each version waits for an approval, a host, and its version 1.0.0, which waits.
fn serve_pending(place: Place, configuration: &str) -> (Site, HostProcess) {
    let site = Site::new(place);
    site.configure(configuration);
    site.put_chimes("1.0.0");
    let host = site.serve();
    site.wait_for_digest("pending_approval", "pending_digest", "1.0.0");
    (site, host)
}

impl Site {
    fn put_chimes(&self, version: &str) {
        let temporary = self.plugin(".chimes.tmp");
        fs::write(&temporary, package(version)).expect("a package");
        fs::rename(&temporary, self.plugin("chimes.wasm")).expect("a package");
    }

    #[track_caller]
    fn wait_for_digest(&self, state: &str, key: &str, version: &str) {
        eventually(|| {
            let shown = self.run(["package", "show", "chimes", "--json"]);
            let found = serde_json::from_str::<Value>(&shown.stdout).unwrap_or_default();
            match found["state"] == state && found[key] == digest(version) {
                true => Ok(()),
                false => Err(format!("{shown:?}")),
            }
        });
    }

    fn approve_chimes(&self, version: &str) {
        self.ok(["package", "approve", "chimes", "--digest", &digest(version)]);
        self.wait_for_digest("active", "digest", version);
    }

    /// Triggers the schedule of the package, once the host has recorded it, and returns the launch.
    #[track_caller]
    fn launch_chimes(&self) -> Value {
        eventually(|| match list(self.json(["schedule", "list"])) {
            schedules if schedules.len() == 1 => Ok(()),
            other => Err(format!("{other:?}")),
        });
        self.trigger_and_wait("hourly")
    }

    #[track_caller]
    fn assert_runs(&self) {
        let launch = self.launch_chimes();
        assert_eq!(launch["status"], "succeeded", "{launch:#}");
    }

    #[track_caller]
    fn assert_refused(&self, why: &str) {
        let launch = self.launch_chimes();
        assert_eq!(launch["failure"], "refused", "{launch:#}");
        assert!(text(&launch["message"]).contains(why), "{launch:#}");
    }

    fn version_refusals(&self) -> Vec<String> {
        let all = list(self.json(["event", "list"])).into_iter();
        let refused = all.filter(|event| event["kind"] == "version_refused");
        refused.map(|event| text(&event["detail"])).collect()
    }

    /// Returns the file of the host's own key.
    fn own_key(&self) -> PathBuf {
        let entries = fs::read_dir(self.folder()).expect("the folder");
        let entries = entries.map(|entry| entry.expect("an entry").path());
        let mut keys = entries.map(|path| path.join("approval.key"));
        keys.find(|path| path.exists()).expect("a key")
    }

    /// Copies the only decision on record, with its seal, to the other versions.
    async fn copy_decision(&self) {
        let columns = ["decision", "decided_at", "decided_by", "note", "seal"].map(|column| {
            format!(
                "{column} = (SELECT k.{column} FROM package_version k WHERE k.decision IS NOT NULL)"
            )
        });
        let columns = columns.join(", ");
        self.execute(&format!(
            "UPDATE package_version SET {columns} WHERE decision IS NULL"
        ))
        .await;
    }

    #[track_caller]
    fn assert_key_is_refused(&self, parts: [&str; 2]) {
        let active = &digest("1.0.0");
        for command in [
            &["serve"][..],
            &["package", "approve", "chimes", "--digest", active],
            &["package", "reject", "chimes"],
            &["package", "rollback", "chimes"],
        ] {
            let refused = self.run(command.iter().copied());
            assert_eq!(refused.code, 2, "{refused:?}");
            for part in parts {
                refused.assert_stderr(part);
            }
        }
        let (state, text) = self.diagnosis();
        assert_eq!(state, "failed");
        assert!(text.contains(parts[0]), "{text}");
    }

    /// Returns what `doctor` says about decisions, and its advice.
    fn diagnosis(&self) -> (String, String) {
        let report = self.run(["doctor", "--json"]).json();
        let checks = list(report["checks"].clone());
        let found = checks.into_iter().find(|it| it["check"] == "decisions");
        let found = found.expect("a check");
        (
            text(&found["state"]),
            format!("{} {}", found["detail"], found["fix"]),
        )
    }
}

async fn an_approval_that_is_written_into_the_database_activates_nothing(place: Place) {
    let (site, mut host) = serve_pending(place, ALWAYS);
    site.execute(FORGE).await;
    site.sidecar("chimes", "[limits]\n");
    let line = host.wait_for_line(UNSEALED);
    for part in ["campanile package approve chimes", "policy.approval_key"] {
        assert!(line.contains(part), "{line}");
    }
    site.wait_for_digest("pending_approval", "pending_digest", "1.0.0");
    assert_eq!(site.version_refusals().len(), 1);
    // Nor does it count when the version is made the active one.
    site.execute(ACTIVATE).await;
    stop(&mut host);
    let mut host = site.serve();
    site.assert_refused("its approval on record isn't sealed with this host's key");
    site.approve_chimes("1.0.0");
    site.assert_runs();
    stop(&mut host);
    // With a seal of another key it's as without one.
    let _host = site.serve_with(&["--name", "another"]);
    site.assert_runs();
}

async fn an_approval_of_one_version_does_not_count_for_another(place: Place) {
    let (site, mut host) = serve_pending(place, ALWAYS);
    site.ok(["package", "approve", "chimes", "--note", "looked at it"]);
    site.wait_for_digest("active", "digest", "1.0.0");
    site.assert_runs();
    site.put_chimes("2.0.0");
    site.wait_for_digest("pending_approval", "pending_digest", "2.0.0");
    site.copy_decision().await;
    stop(&mut host);
    let host = site.serve();
    host.wait_for_line(UNSEALED);
    site.wait_for_digest("pending_approval", "pending_digest", "2.0.0");
    site.assert_runs();
    site.execute(ACTIVATE).await;
    site.assert_refused("its approval on record isn't sealed with this host's key");
}

async fn an_old_approval_does_not_count_after_a_rollback(place: Place) {
    let (site, mut host) = serve_pending(place, ALWAYS);
    site.approve_chimes("1.0.0");
    site.put_chimes("2.0.0");
    site.wait_for_digest("pending_approval", "pending_digest", "2.0.0");
    site.approve_chimes("2.0.0");
    site.assert_runs();
    site.execute("CREATE TABLE kept AS SELECT * FROM package_version")
        .await;
    site.ok(["package", "rollback", "chimes"]);
    host.wait_for_line("restored the active version");
    site.assert_runs();
    for replay in ["UPDATE package_version SET decision = 'approved',
            decided_at = (SELECT k.decided_at FROM kept k WHERE k.digest = package_version.digest),
            decided_by = (SELECT k.decided_by FROM kept k WHERE k.digest = package_version.digest),
            note = (SELECT k.note FROM kept k WHERE k.digest = package_version.digest),
            seal = (SELECT k.seal FROM kept k WHERE k.digest = package_version.digest)",
        "UPDATE package_version SET decision = NULL, decided_at = NULL, decided_by = NULL, note = NULL, seal = NULL
            WHERE decided_at = (SELECT max(decided_at) FROM kept)"] {
        site.execute(replay).await;
        site.execute("UPDATE package SET digest = pending_digest, pending_digest = NULL, pending_since = NULL
            WHERE pending_digest IS NOT NULL").await;
        for _ in 0..2 {
            site.assert_refused("an operator rolled back from it");
            stop(&mut host);
            host = site.serve();
        }
    }
    site.approve_chimes("2.0.0");
    site.assert_runs();
}

/// Each of them as an operator decides who has no access to the host's machine.
async fn approvals_over_the_api_and_the_pages_count(place: Place) {
    let site = Site::new(place);
    site.configure(ALWAYS);
    site.put_chimes("1.0.0");
    let api = Api::of(site);
    let site = &api.site;
    site.wait_for_digest("pending_approval", "pending_digest", "1.0.0");
    let approved = api.run(&["package", "approve", "chimes", "--digest", &digest("1.0.0")]);
    assert_eq!(approved.code, 0, "{approved:?}");
    site.wait_for_digest("active", "digest", "1.0.0");
    site.assert_runs();
    site.put_chimes("2.0.0");
    site.wait_for_digest("pending_approval", "pending_digest", "2.0.0");
    let browser = Browser::of(&api, &token(&api, "approver"));
    let (digest, confirmed) = (digest("2.0.0"), ("confirm", "yes"));
    let fields = [("do", "approve"), ("digest", &*digest), confirmed];
    browser.done("/packages/chimes", &fields);
    site.wait_for_digest("active", "digest", "2.0.0");
    site.assert_runs();
    assert_eq!(site.version_refusals(), Vec::<String>::new());
    let Api { site, mut host, .. } = api;
    stop(&mut host);
    let _host = site.serve();
    site.assert_runs();
}

/// Whoever writes the database could otherwise approve over the API, and the host would seal it.
async fn a_token_that_is_altered_in_the_database_approves_nothing(place: Place) {
    let site = Site::new(place);
    site.configure(&format!("{ALWAYS}[server]\nupload = true\n"));
    site.put_chimes("1.0.0");
    let mut api = Api::of(site);
    api.site
        .wait_for_digest("pending_approval", "pending_digest", "1.0.0");
    let editor = token(&api, "editor");
    api.token = token(&api, "approver");
    api.site
        .execute("UPDATE token SET role = 'admin' WHERE name = 'editor'")
        .await;
    let administrator = std::mem::replace(&mut api.token, editor);
    let approve = ["package", "approve", "chimes", "--digest", &digest("1.0.0")];
    for command in [&approve[..], &["token", "create", "eve", "--role", "admin"]] {
        api.run(command).assert_refused(&[
            "the token editor isn't sealed with the key of this host, so its role is editor and not admin",
            "campanile token create NAME --role admin",
        ]);
    }
    let upload = api.send("POST", "/api/v1/packages/eve/upload", &[], Some(&json!({})));
    upload.assert_problem(403, "isn't sealed with the key of this host");
    // What needs no seal goes on.
    assert_eq!(api.run(&["package", "list"]).code, 0);
    api.site
        .wait_for_digest("pending_approval", "pending_digest", "1.0.0");
    api.token = administrator;
    let approved = api.run(&approve);
    assert_eq!(approved.code, 0, "{approved:?}");
    api.site.wait_for_digest("active", "digest", "1.0.0");
    // A key for several hosts seals tokens too.
    let made = api.site.json(["package", "approval-key", "approval.key"]);
    let counts = ["sealed", "sealed_tokens", "uncounted", "uncounted_tokens"].map(|key| &made[key]);
    assert_eq!(counts, [&json!(1), &json!(1), &json!(0), &json!(1)]);
    let Api {
        site,
        mut host,
        token,
        ..
    } = api;
    stop(&mut host);
    site.configure(WITH_KEY);
    let mut api = Api::of(site);
    api.token = token;
    let approved = api.run(&approve);
    assert_eq!(approved.code, 0, "{approved:?}");
    api.site.assert_runs();
}

async fn a_lost_key_ends_approvals_until_they_are_given_again(place: Place) {
    let (site, mut host) = serve_pending(place, ALWAYS);
    site.approve_chimes("1.0.0");
    site.put_chimes("2.0.0");
    site.wait_for_digest("pending_approval", "pending_digest", "2.0.0");
    site.ok(["package", "reject", "chimes"]);
    stop(&mut host);
    fs::remove_file(site.own_key()).expect("deleted");
    // Without the key no command can decide.
    let unsealed = site.run(["package", "approve", "chimes", "--digest", &digest("1.0.0")]);
    unsealed.assert_refused(&[
        "this command has no key to seal with",
        "approval.key doesn't exist",
        "--server",
        "`approval_key` under `[policy]`",
    ]);
    // Nor does a seal that is gone: a host trusts no record that it finds.
    site.execute("UPDATE package_version SET seal = NULL WHERE decision = 'approved'")
        .await;
    let mut host = site.serve();
    assert!(
        site.version_refusals()
            .iter()
            .any(|it| it.contains(UNSEALED))
    );
    site.assert_refused("its approval on record isn't sealed with this host's key");
    // Checking health without a server says so too.
    let health = site.wait_until_healthy();
    let notes = health["notes"].to_string();
    assert!(notes.contains(UNSEALED), "{health}");
    site.wait_for_digest("rejected", "pending_digest", "2.0.0");
    site.ok(["package", "approve", "chimes", "--digest", &digest("1.0.0")]);
    site.assert_runs();
    stop(&mut host);
    let _host = site.serve();
    site.assert_runs();
}

/// On SQLite, where one host serves, it takes over with another record.
async fn an_approval_on_a_host_with_another_key_does_not_count(place: Place) {
    let (site, mut host) = serve_pending(place, ALWAYS);
    site.approve_chimes("1.0.0");
    stop(&mut host);
    let other = format!("[host]\nstate_dir = 'other.state'\n{ALWAYS}");
    fs::write(site.folder().join("other.toml"), other).expect("a configuration");
    let mut other = site.serve_with(&["--config", "other.toml", "--name", "other"]);
    let line = other.wait_for_line(UNSEALED);
    assert!(line.contains("on the host other"), "{line}");
    site.assert_refused("its approval on record isn't sealed with this host's key");
    stop(&mut other);
    let _host = site.serve();
    site.assert_runs();
}

async fn a_new_key_seals_what_counted_before(place: Place) {
    let is_shared = place.url.is_shared();
    let (site, mut host) = serve_pending(place, ALWAYS);
    site.approve_chimes("1.0.0");
    site.put_chimes("2.0.0");
    site.wait_for_digest("pending_approval", "pending_digest", "2.0.0");
    site.execute(FORGE).await;
    let made = site.json(["package", "approval-key", "approval.key"]);
    let key_file = site.folder().join("approval.key");
    assert_eq!(
        made,
        json!({"key_file": "approval.key", "sealed": 1, "sealed_tokens": 0, "uncounted": 1, "uncounted_tokens": 0})
    );
    let again = site.run(["package", "approval-key", "approval.key"]);
    again.assert_refused(&["approval.key exists already"]);
    // A host with the former key continues, and so does one with the new key.
    site.assert_runs();
    site.configure(WITH_KEY);
    let second = is_shared.then(|| site.serve_with(&["--name", "second"]));
    stop(&mut host);
    if second.is_none() {
        host = site.serve();
    }
    site.assert_runs();
    site.wait_for_digest("pending_approval", "pending_digest", "2.0.0");
    site.approve_chimes("2.0.0");
    site.assert_runs();
    // The next key replaces this one.
    let made = site.json(["package", "approval-key", "next.key"]);
    assert_eq!(
        (&made["sealed"], &made["uncounted"]),
        (&json!(2), &json!(0))
    );
    fs::rename(site.folder().join("next.key"), &key_file).expect("renamed");
    drop((host, second));
    let _host = site.serve();
    site.assert_runs();
    assert!(
        site.version_refusals()
            .iter()
            .all(|it| it.contains(&digest("2.0.0")[..12]))
    );
}

async fn a_key_file_that_can_not_be_used_stops_hosts_and_commands(place: Place) {
    let site = Site::new(place);
    let path = site.folder().join("approval.key");
    let key = ApprovalKey::generate().to_text();
    let write = |bytes: &[u8], mode: u32| {
        fs::write(&path, bytes).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    write(key.as_bytes(), 0o600);
    site.configure(WITH_KEY);
    site.put_chimes("1.0.0");
    let mut host = site.serve();
    site.wait_for_digest("pending_approval", "pending_digest", "1.0.0");
    site.approve_chimes("1.0.0");
    stop(&mut host);
    assert_eq!(site.diagnosis().0, "ok");
    let no_key = [
        "isn't a complete key for approvals",
        "restore it from a backup",
    ];
    let faults: [(&[u8], u32, [&str; 2]); 6] = [
        (
            key.as_bytes(),
            0o644,
            ["other users can open the key", "chmod 600"],
        ),
        (
            key.as_bytes(),
            0o620,
            ["other users can open the key", "chmod 600"],
        ),
        (&key.as_bytes()[..40], 0o600, no_key),
        (b"", 0o600, no_key),
        (b"approval", 0o600, no_key),
        (b"\xff\xfe", 0o600, ["approval.key can't be read", "UTF-8"]),
    ];
    for (bytes, mode, parts) in faults {
        write(bytes, mode);
        site.assert_key_is_refused(parts);
    }
    fs::remove_file(&path).expect("deleted");
    site.assert_key_is_refused([
        "approval.key doesn't exist",
        "`campanile package approval-key FILE`, on a new database after `campanile db migrate`",
    ]);
    // A command that makes the missing key seals nothing that it can't know.
    let made = site.json(["package", "approval-key", "approval.key"]);
    assert_eq!(
        (&made["sealed"], &made["uncounted"]),
        (&json!(0), &json!(1))
    );
    fs::remove_file(&path).expect("deleted");
    fs::create_dir(&path).expect("a folder");
    site.assert_key_is_refused(["approval.key can't be read", "not a regular file"]);
    fs::remove_dir(&path).expect("deleted");
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).expect("a pipe");
    site.assert_key_is_refused(["not a regular file", "campanile package approval-key"]);
    fs::remove_file(&path).expect("deleted");
    write(key.as_bytes(), 0o400);
    let _host = site.serve();
    site.assert_runs();
}
