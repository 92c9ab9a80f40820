//! Files, packages and sidecars that `campanile task run` refuses.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::task_run::{assert_failure, guests_folder, run_in_folder, task_run, temp_folder};
use crate::site::{CommandOutput, package, run};

/// Run a file with these bytes as a package.
fn run_bytes(bytes: &[u8]) -> CommandOutput {
    let folder = temp_folder();
    std::fs::write(folder.path().join("file.wasm"), bytes).expect("a file");
    run(folder.path(), ["task", "run", "file.wasm", "--json"])
}

#[test]
fn a_file_that_is_no_package_is_refused_with_the_reason_and_exits_with_2() {
    let whole = std::fs::read(package("noop")).expect("a package");
    let module = |text: &str| wat::parse_str(text).expect("WebAssembly");
    let unstable_wasi = r#"(module (import "wasi_unstable" "fd_write"
        (func (param i32 i32 i32 i32) (result i32))) (func (export "_start")))"#;
    let newer_wasi = r#"(component (instance $i) (export "wasi:cli/run@0.3.0" (instance $i)))"#;
    for (bytes, expected) in [
        (b"just text\n".to_vec(), "this is not WebAssembly"),
        (Vec::new(), "the file is empty"),
        (whole[..5000].to_vec(), "cut short"),
        (whole[..whole.len() - 1].to_vec(), "cut short"),
        (b"(module)".to_vec(), "WebAssembly text"),
        (module(unstable_wasi), "`wasi_unstable.fd_write`"),
        (module(newer_wasi), "wasi:cli/run@0.3.0"),
        (
            std::fs::read(package("cycle")).expect("a package"),
            "chicken → egg → chicken",
        ),
    ] {
        let output = run_bytes(&bytes);
        assert_eq!(
            (output.code, output.stderr.as_str()),
            (2, ""),
            "{expected}: {output:?}"
        );
        let report = output.json();
        assert_failure(&report, "refused", false, expected);
        assert_eq!(report["package"]["form"], Value::Null);
    }
    task_run("nowhere", &[]).assert_refused(&["nowhere.wasm"]);
}

#[test]
fn an_unreadable_file_is_reported_as_refused() {
    let folder = temp_folder();
    std::fs::create_dir(folder.path().join("directory.wasm")).expect("a folder");
    std::fs::File::create(folder.path().join("huge.wasm"))
        .and_then(|file| file.set_len((64 << 20) + 1))
        .expect("a file with holes");
    make_fifo(&folder.path().join("pipe.wasm"));
    for (file, expected) in [
        ("directory.wasm", "it is not a regular file"),
        ("pipe.wasm", "it is not a regular file"),
        ("huge.wasm", "and a package may have 64MiB"),
    ] {
        let output = run(folder.path(), ["task", "run", file, "--json"]);
        assert_eq!((output.code, output.stderr.as_str()), (2, ""), "{output:?}");
        let report = output.json();
        assert_failure(&report, "refused", false, expected);
        assert_eq!(report["package"]["digest"], Value::Null);
    }
}

fn make_fifo(path: &Path) {
    let status = std::process::Command::new("mkfifo").arg(path).status();
    assert!(status.expect("mkfifo").success());
}

/// Assert that `task run` refuses the sidecar in the folder.
#[track_caller]
fn assert_sidecar_is_refused(folder: &TempDir, expected: &str) {
    let (code, report) = run_in_folder(folder.path(), "ok", &json!({}));
    assert_eq!(code, 2, "{report:#}");
    assert_failure(&report, "refused", false, expected);
}

#[test]
fn a_sidecar_is_checked_against_its_package() {
    for (sidecar, expected) in [
        (
            format!("sha256 = '{}'\n", "0".repeat(64)),
            "and guests.toml pins 0000",
        ),
        (
            "[[schedules]]\ncron = '0 0 * * MOO'\n".to_owned(),
            "guests.toml:2:1: `schedules[0].cron` is refused",
        ),
        (
            "[[schedules]]\nevery = '1h'\ntimezone = 'Europe/Pris'\n".to_owned(),
            "guests.toml:3:1: `schedules[0].timezone` is refused",
        ),
        (
            "[[schedules]]\nevery = '1h'\ntask = 'ecco'\n".to_owned(),
            "does not have: did you mean `echo`?",
        ),
        (
            "#".repeat((1 << 20) + 1),
            "guests.toml: it is larger than 1MiB",
        ),
    ] {
        assert_sidecar_is_refused(&guests_folder(Some(&sidecar)), expected);
    }
    let folder = guests_folder(None);
    make_fifo(&folder.path().join("guests.toml"));
    assert_sidecar_is_refused(&folder, "guests.toml: it is not a regular file");
    let folder = guests_folder(None);
    std::os::unix::fs::symlink("nothing", folder.path().join("guests.toml")).expect("a link");
    assert_sidecar_is_refused(&folder, "guests.toml: it is a link to nothing");
}

#[test]
fn an_invalid_sidecar_is_refused_with_file_line_key_and_hint() {
    for (sidecar, expected) in [
        (
            "[limits]\ntimout = '1s'\n",
            "guests.toml:2:1: unknown key `limits.timout`: did you mean `timeout`?",
        ),
        ("[grant]\n", "unknown key `grant`: did you mean `grants`?"),
        (
            "[[grants.directories]]\nhost = 'nowhere'\nguest = '/data'\naccess = 'read'\n",
            "nowhere, which cannot be used",
        ),
        ("[context]\nrun_id = 1\n", "may not set `run_id`"),
        (
            "context = 3\n",
            "guests.toml:1:1: `context` must be a table",
        ),
        ("this is no toml", "guests.toml:1"),
    ] {
        let folder = guests_folder(Some(sidecar));
        let (code, report) = run_in_folder(folder.path(), "ok", &json!({}));
        assert_eq!(code, 2, "{report:#}");
        assert_failure(&report, "refused", false, expected);
    }
}
