//! `campanile new`: a project of one's own.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::site::{Said, list, run, text};

const LANGUAGES: [&str; 10] = [
    "rust",
    "rust-main",
    "rust-wit",
    "python",
    "javascript",
    "typescript",
    "c",
    "cpp",
    "zig",
    "go",
];

fn nowhere() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn new(folder: &Path, args: &[&str]) -> Said {
    run(folder, ["new"].iter().chain(args))
}

/// The files below `folder`, in order.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let entry = entry.unwrap();
            // Real files and folders only: a project is alone.
            assert!(!entry.file_type().unwrap().is_symlink(), "{entry:?}");
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => {
                    let below = path.strip_prefix(folder).unwrap();
                    found.push(below.to_str().unwrap().to_owned());
                }
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_project_in_each_language_is_written_as_it_is_told() {
    for language in LANGUAGES {
        let here = nowhere();
        let said = new(here.path(), &["my-task", "--lang", language, "--json"]);
        assert_eq!(said.code, 0, "{said:?}");
        let told = said.json();
        assert_eq!(told["name"], "my-task");
        assert_eq!(told["language"], language);
        assert_eq!(told["folder"], "my-task");
        assert_eq!(told["next"][0], "cd my-task");
        let mut listed: Vec<String> = list(told["files"].clone()).iter().map(text).collect();
        listed.sort();
        let folder = here.path().join("my-task");
        assert_eq!(listed, files(&folder), "{language}");
        let readme = fs::read_to_string(folder.join("README.md")).unwrap();
        assert!(readme.contains("my-task"), "{language}: {readme}");
        if language == "go" {
            assert_eq!(listed, ["README.md"]);
        } else {
            assert!(listed.len() > 4, "{language}: {listed:?}");
            let tests = listed.iter().any(|path| {
                let text = fs::read_to_string(folder.join(path)).unwrap();
                path.contains("test.")
                    || path.starts_with("test_")
                    || text.contains("#[test]")
                    || text.contains("test \"")
            });
            assert!(tests, "{language} has no test: {listed:?}");
        }
    }
}

#[test]
fn a_build_can_be_run() {
    use std::os::unix::fs::PermissionsExt as _;

    let here = nowhere();
    let said = new(here.path(), &["site", "--lang", "c"]);
    assert_eq!(said.code, 0, "{said:?}");
    let mode = |file: &str| {
        let path = here.path().join("site").join(file);
        fs::metadata(path).unwrap().permissions().mode() & 0o111
    };
    assert_ne!(mode("build"), 0);
    assert_eq!(mode("README.md"), 0);
}

#[test]
fn the_next_steps_are_told() {
    let here = nowhere();
    let said = new(here.path(), &["my-task"]);
    assert_eq!(
        said.stdout,
        "my-task: 5 files\n\nnext:\n  cd my-task\n  rustup target add wasm32-wasip2\n  \
         cargo add --path CAMPANILE_REPOSITORY/guest-sdk  # campanile-sdk is not on crates.io yet\n  cargo test\n  \
         cargo build --release --target wasm32-wasip2\n  \
         cp target/wasm32-wasip2/release/my_task.wasm target/my-task.wasm\n  \
         campanile task run target/my-task.wasm --context '{\"text\": \"to be or not\"}'\n  \
         cp target/my-task.wasm YOUR_PLUGIN_FOLDER/\n"
    );
    let said = new(here.path(), &["site", "--lang", "go", "--into", "a/b"]);
    assert!(said.stdout.contains("only a README.md"), "{said:?}");
    assert_eq!(files(&here.path().join("a/b")), ["README.md"]);
}

#[test]
fn what_cannot_become_a_project_is_refused_and_nothing_written() {
    let here = nowhere();
    let before = || files(here.path());
    fs::create_dir(here.path().join("taken")).unwrap();
    fs::write(here.path().join("taken/notes"), "mine").unwrap();
    fs::write(here.path().join("file"), "mine").unwrap();
    let there = before();
    for name in [
        "a b",
        "../up",
        "",
        "9to5",
        "_x",
        "site.wasm",
        &"x".repeat(65),
    ] {
        new(here.path(), &[name]).refused(&["is not a valid project name", "hint: choose 1 to 64"]);
    }
    new(here.path(), &["taken"]).refused(&["taken is not empty", "hint: ", "--into"]);
    new(here.path(), &["new", "--into", "taken"]).refused(&["taken is not empty"]);
    new(here.path(), &["file"]).refused(&["file cannot hold a project", "--into"]);
    let said = new(here.path(), &["site", "--lang", "cobol"]);
    said.refused(&["'cobol'", "typescript", "zig"]);
    let said = new(here.path(), &["taken", "--json"]);
    assert_eq!(
        (said.code, &said.json()["error"]),
        (2, &json!("taken is not empty"))
    );
    assert_eq!(before(), there);

    // An empty folder is as good as none.
    fs::create_dir(here.path().join("empty")).unwrap();
    assert_eq!(new(here.path(), &["empty"]).code, 0);
}

/// The tests of a project in Rust, by the versions of its lock file; what it depends on is built once for all of them.
fn test_natively(language: &str) {
    // Always the same place, so that a new one does not leave another build behind.
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("projects");
    let folder = place.join(language);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => panic!("{folder:?}: {error}"),
        _ => fs::create_dir_all(&folder).unwrap(),
    }
    // Between its neighbours, this name stands elsewhere in the lock file than the example's.
    let said = new(&folder, &["A-site", "--lang", language, "--into", "."]);
    assert_eq!(said.code, 0, "{said:?}");
    let cargo = |args: &[&OsStr]| {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut cargo = Command::new(program);
        let output = cargo.args(args).current_dir(&folder).output();
        let output = output.expect("cargo");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{language}:\n{stdout}\n{stderr}");
        stdout
    };
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    let step = "\n$ cargo add --path CAMPANILE_REPOSITORY/guest-sdk\n";
    assert_eq!(readme.contains(step), language == "rust", "{readme}");
    if language == "rust" {
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-sdk");
        cargo(&[
            "add".as_ref(),
            "--offline".as_ref(),
            "--path".as_ref(),
            sdk.as_ref(),
        ]);
    }
    let target = place.join("target");
    let options = ["test", "--locked", "--target-dir"].map(OsStr::new);
    let stdout = cargo(&[&options[..], &[target.as_ref()]].concat());
    let passed = stdout.lines().any(|line| {
        line.starts_with("test result: ok. ") && !line.starts_with("test result: ok. 0 ")
    });
    assert!(passed, "{language} has no tests:\n{stdout}");
}

#[test]
fn a_project_with_the_sdk_passes_its_tests() {
    test_natively("rust");
}

#[test]
fn a_program_in_rust_passes_its_tests() {
    test_natively("rust-main");
}

#[test]
fn a_project_with_bindings_passes_its_tests() {
    test_natively("rust-wit");
}
