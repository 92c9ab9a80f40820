//! `campanile package keygen`, `sign` and `verify`, and hosts that require signatures.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::guest::described;
use crate::site::{CommandOutput, Site, command, eventually, run, stop, text};

on_both_empty!(
    a_host_that_requires_signatures_runs_only_signed_packages,
    a_version_that_was_active_without_a_signature_does_not_run_when_one_is_required,
);

const PASSPHRASE: &str = "CAMPANILE_KEY_PASSPHRASE";
/// Made by the program minisign, of the text `test`.
const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
const KEY_ID: &str = "E7620F1842B4E81F";
const SIGNATURE: &str = "untrusted comment: signature from minisign secret key
RUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=
trusted comment: timestamp:1556193335\tfile:test
y/rUw2y8/hOUYjZU71eHp/Wo1KZ40fGy2VJEDl34XMJM+TX48Ss/17u3IvIfbVR1FkZZSNCisQbuQY+bHwhEBg==
";

fn package(version: &str) -> Vec<u8> {
    let schedules = json!([{"name": "hourly", "every": "1h"}]);
    described(&json!({"version": version, "schedules": schedules}))
}

/// Return a folder with `a.wasm` and a key pair without a passphrase.
fn folder_with_key() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.wasm"), package("1.0.0")).unwrap();
    assert_eq!(keygen(folder.path(), "campanile.key").code, 0);
    folder
}

fn keygen(folder: &Path, file: &str) -> CommandOutput {
    run(
        folder,
        ["package", "keygen", file, "--no-passphrase", "--json"],
    )
}

fn with_passphrase(folder: &Path, passphrase: &str, args: &[&str]) -> CommandOutput {
    let mut command = command(folder, args);
    let output = command.env(PASSPHRASE, passphrase).output().unwrap();
    CommandOutput {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn a_file_is_signed_and_verified_with_a_protected_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("a.wasm"), package("1.0.0")).unwrap();
    let made = with_passphrase(path, "ding", &["package", "keygen", "--json"]);
    assert_eq!((made.code, made.stderr.as_str()), (0, ""), "{made:?}");
    let key = made.json();
    assert_eq!(
        (&key["secret_key_file"], &key["public_key_file"]),
        (&json!("campanile.key"), &json!("campanile.key.pub"))
    );
    assert_eq!(mode(&path.join("campanile.key")), 0o600);
    let secret = std::fs::read_to_string(path.join("campanile.key")).unwrap();
    assert_eq!(secret.lines().count(), 2, "{secret}");

    with_passphrase(path, "dong", &["package", "sign", "a.wasm"])
        .assert_refused(&["campanile.key cannot be used", "Wrong password"]);
    with_passphrase(path, "", &["package", "sign", "a.wasm"])
        .assert_refused(&["the passphrase is empty"]);
    assert!(!path.join("a.wasm.minisig").exists());
    let signed = with_passphrase(path, "ding", &["package", "sign", "a.wasm", "--json"]);
    assert_eq!(signed.code, 0, "{signed:?}");
    assert_eq!(signed.json()["key_id"], key["key_id"]);
    // A host under another user reads it.
    assert_eq!(mode(&path.join("a.wasm.minisig")), 0o644);

    let public = text(&key["public_key"]);
    for given in [public.as_str(), "campanile.key.pub"] {
        let verified = run(path, ["package", "verify", "a.wasm", "--key", given]);
        assert_eq!(verified.code, 0, "{verified:?}");
        verified.assert_stdout(&text(&key["key_id"]));
    }
    let trusted = format!("[policy]\ntrusted_keys = ['{public}']\n");
    std::fs::write(path.join("campanile.toml"), trusted).unwrap();
    assert_eq!(run(path, ["package", "verify", "a.wasm"]).code, 0);
}

#[test]
fn a_signature_that_minisign_made_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::write(path.join("a.wasm"), "test").unwrap();
    std::fs::write(path.join("a.wasm.minisig"), SIGNATURE).unwrap();
    let verified = run(
        path,
        ["package", "verify", "a.wasm", "--key", KEY, "--json"],
    );
    assert_eq!(
        verified.json(),
        json!({
            "file": "a.wasm", "signature_file": "a.wasm.minisig", "public_key": KEY, "key_id": KEY_ID,
        })
    );
}

#[test]
fn a_key_pair_replaces_no_file_and_is_never_half_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert_eq!(keygen(path, "a.key").code, 0);
    let before = std::fs::read(path.join("a.key")).unwrap();
    let again = run(path, ["package", "keygen", "a.key", "--no-passphrase"]);
    again.assert_refused(&["a.key exists already"]);
    assert_eq!(std::fs::read(path.join("a.key")).unwrap(), before);
    std::fs::write(path.join("b.key.pub"), "mine").unwrap();
    run(path, ["package", "keygen", "b.key", "--no-passphrase"])
        .assert_refused(&["b.key.pub exists already"]);
    assert!(!path.join("b.key").exists());
    run(
        path,
        ["package", "keygen", "nowhere/c.key", "--no-passphrase"],
    )
    .assert_refused(&["nowhere/c.key cannot be written"]);
}

#[test]
fn a_key_or_a_file_that_cannot_be_used_is_refused() {
    let folder = folder_with_key();
    let path = folder.path();
    let sign = |file: &str, key: &str| run(path, ["package", "sign", file, "--key", key]);
    std::fs::write(path.join("no.key"), "untrusted comment: x\nding\n").unwrap();
    std::fs::write(path.join("large.key"), "x".repeat(10_000)).unwrap();
    let secret = std::fs::read_to_string(path.join("campanile.key")).unwrap();
    std::fs::write(path.join("short.key"), &secret[..secret.len() - 20]).unwrap();
    for file in ["no.key", "large.key", "short.key"] {
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path.join(file), private).unwrap();
    }
    for (file, key, expected) in [
        (
            "b.wasm",
            "campanile.key",
            "b.wasm cannot be read: it does not exist",
        ),
        ("a.wasm", "nowhere.key", "nowhere.key: it does not exist"),
        ("a.wasm", "no.key", "no.key is no secret key"),
        ("a.wasm", "large.key", "it is larger than 4KiB"),
        ("a.wasm", "short.key", "short.key cannot be used"),
        ("a.wasm", ".", "it is not a regular file"),
    ] {
        sign(file, key).assert_refused(&[expected]);
    }
    let open = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(path.join("campanile.key"), open).unwrap();
    sign("a.wasm", "campanile.key").assert_refused(&["other users may use", "chmod 600"]);
    assert!(!path.join("a.wasm.minisig").exists());
    run(path, ["package", "verify", "a.wasm"]).assert_refused(&["there is no key to verify with"]);
    run(path, ["package", "verify", "a.wasm", "--key", "ding"])
        .assert_refused(&["--key ding is the path of no file", "is no public key"]);
    for (key, expected) in [
        ("no.key", "no.key is no public key"),
        ("campanile.key", "campanile.key is no public key"),
        ("large.key", "large.key: it is larger than 4KiB"),
        (".", ".: it is not a regular file"),
    ] {
        run(path, ["package", "verify", "a.wasm", "--key", key]).assert_refused(&[expected]);
    }
    let public = ["package", "verify", "a.wasm", "--key", "campanile.key.pub"];
    run(path, public).assert_refused(&["a.wasm.minisig: it does not exist"]);
}

#[test]
fn a_signature_that_is_not_valid_fails_with_the_reason() {
    let folder = folder_with_key();
    let path = folder.path();
    assert_eq!(run(path, ["package", "sign", "a.wasm"]).code, 0);
    let signature = std::fs::read_to_string(path.join("a.wasm.minisig")).unwrap();
    let verify = |expected: &str| {
        let args = ["package", "verify", "a.wasm", "--key", "campanile.key.pub"];
        let output = run(path, args);
        assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{output:?}");
        output.assert_stderr(expected);
    };
    std::fs::write(path.join("a.wasm"), package("1.0.1")).unwrap();
    verify("is of other bytes");
    std::fs::write(path.join("a.wasm"), package("1.0.0")).unwrap();
    std::fs::write(
        path.join("a.wasm.minisig"),
        &signature[..signature.len() / 2],
    )
    .unwrap();
    verify("incomplete");
    assert_eq!(keygen(path, "other.key").code, 0);
    let other = ["package", "sign", "a.wasm", "--key", "other.key"];
    assert_eq!(run(path, other).code, 0, "a signature is replaced");
    verify("which is not trusted");
}

async fn a_host_that_requires_signatures_runs_only_signed_packages(place: Place) {
    let site = Site::new(place);
    let keygen = |file: &str| {
        let args = ["package", "keygen", file, "--no-passphrase"];
        site.json(args)
    };
    let (key, other) = (keygen("a.key"), keygen("b.key"));
    site.configure(&format!(
        "[policy]\nrequire_signature = true\ntrusted_keys = ['{}']\n",
        text(&key["public_key"])
    ));
    std::fs::write(site.plugin("chimes.wasm"), package("1.0.0")).unwrap();
    let sign = |key: &str| site.ok(["package", "sign", "plugins/chimes.wasm", "--key", key]);
    let refused = |expected: &str| {
        let output = site.run(["config", "check", "--json"]);
        assert_eq!((output.code, output.stderr.as_str()), (1, ""), "{output:?}");
        let refused = output.json()["refused"].clone();
        assert_eq!(refused[0]["package"], "chimes");
        let error = text(&refused[0]["error"]);
        assert!(error.contains(expected), "{error}");
    };
    refused("it has no signature");
    sign("b.key");
    refused(&text(&other["key_id"]));

    let mut host = site.serve();
    host.wait_for_line("which is not trusted");
    sign("a.key");
    host.wait_for_line("added chimes");
    assert_eq!(site.json(["config", "check"])["refused"], json!([]));
    assert_eq!(site.trigger_and_wait("hourly")["status"], "succeeded");
    let shown = site.json(["package", "show", "chimes"]);
    assert_eq!(shown["versions"][0]["signed_by"], key["key_id"]);
    let printed = site.ok(["package", "show", "chimes"]);
    assert!(printed.contains(&text(&key["key_id"])), "{printed}");

    // A new file under the old signature is refused, and the signed version runs on, also after a restart.
    std::fs::write(site.plugin("chimes.wasm"), package("1.1.0")).unwrap();
    host.wait_for_line("is of other bytes");
    for _ in 0..2 {
        assert_eq!(site.trigger_and_wait("hourly")["status"], "succeeded");
        let shown = site.json(["package", "show", "chimes"]);
        assert_eq!(shown["state"], "rejected", "{shown:#}");
        assert_eq!(shown["versions"].as_array().map(Vec::len), Some(1));
        stop(&mut host);
        host = site.serve();
    }
    sign("a.key");
    eventually(|| {
        let shown = site.json(["package", "show", "chimes"]);
        match shown["versions"][1]["signed_by"] == key["key_id"] {
            true => Ok(()),
            false => Err(format!("{shown:#}")),
        }
    });
    assert_eq!(site.trigger_and_wait("hourly")["status"], "succeeded");
    stop(&mut host);

    // A key that is trusted no more verifies nothing, not even the version in the database.
    site.configure(&format!(
        "[policy]\nrequire_signature = true\ntrusted_keys = ['{}']\n",
        text(&other["public_key"])
    ));
    let host = site.start(&[]);
    host.wait_for_line("rejected chimes");
    host.wait_for_line("is not run: it is signed by the key");
    let events = site.json(["event", "list"]);
    let is_refusal = |event: &Value| event["kind"] == "version_refused";
    assert!(
        events.as_array().unwrap().iter().any(is_refusal),
        "{events:#}"
    );
}

async fn a_version_that_was_active_without_a_signature_does_not_run_when_one_is_required(
    place: Place,
) {
    let site = Site::new(place);
    let bytes = described(&json!({"version": "1.0.0"}));
    std::fs::write(site.plugin("chimes.wasm"), bytes).unwrap();
    let host = site.serve();
    host.wait_for_line("added chimes");
    drop(host);
    site.configure(&format!(
        "[policy]\nrequire_signature = true\ntrusted_keys = ['{KEY}']\n"
    ));
    let refused = |expected: &str| {
        let output = site.run(["config", "check", "--json"]);
        assert_eq!((output.code, output.stderr.as_str()), (1, ""), "{output:?}");
        let refused = output.json()["refused"].clone();
        assert_eq!(refused[0]["package"], "chimes");
        let error = text(&refused[0]["error"]);
        assert!(error.contains(expected), "{error}");
    };
    refused("it has no signature");
    std::fs::write(site.plugin("chimes.wasm.minisig"), SIGNATURE).unwrap();
    refused("is of other bytes");
    // Neither the file runs nor the version that was active without a signature.
    let host = site.start(&[]);
    host.wait_for_line("rejected chimes");
    host.wait_for_line("is not run: it has no signature");
    let shown = site.json(["package", "show", "chimes"]);
    assert_eq!(shown["versions"][0]["signed_by"], json!(null));
    let events = site.json(["event", "list"]);
    let mut events = events.as_array().unwrap().iter();
    assert!(events.any(|event| event["kind"] == "version_refused"));
}
