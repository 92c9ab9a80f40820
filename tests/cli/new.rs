//! `campanile new`: projects in each language.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::site::{CommandOutput, list, run, text};

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

fn temp_folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn new(folder: &Path, args: &[&str]) -> CommandOutput {
    run(folder, ["new"].iter().chain(args))
}

/// Return the paths of the files below `folder`, sorted.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let entry = entry.unwrap();
            // A project has no links to files elsewhere.
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
fn new_writes_the_files_it_lists_for_each_language() {
    for language in LANGUAGES {
        let parent = temp_folder();
        let output = new(parent.path(), &["my-task", "--lang", language, "--json"]);
        assert_eq!(output.code, 0, "{output:?}");
        let report = output.json();
        assert_eq!(report["name"], "my-task");
        assert_eq!(report["language"], language);
        assert_eq!(report["folder"], "my-task");
        assert_eq!(report["next"][0], "cd my-task");
        let mut listed: Vec<String> = list(report["files"].clone()).iter().map(text).collect();
        listed.sort();
        let folder = parent.path().join("my-task");
        assert_eq!(listed, files(&folder), "{language}");
        let readme = fs::read_to_string(folder.join("README.md")).unwrap();
        assert!(readme.contains("my-task"), "{language}: {readme}");
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

#[test]
fn a_language_has_the_short_names_that_people_type() {
    for (alias, language) in [
        ("js", "javascript"),
        ("ts", "typescript"),
        ("py", "python"),
        ("c++", "cpp"),
        ("rs", "rust"),
    ] {
        let parent = temp_folder();
        let output = new(parent.path(), &["my-task", "--lang", alias, "--json"]);
        assert_eq!(output.json()["language"], language, "{output:?}");
    }
}

#[test]
fn the_build_script_is_executable() {
    use std::os::unix::fs::PermissionsExt as _;

    let parent = temp_folder();
    let output = new(parent.path(), &["site", "--lang", "c"]);
    assert_eq!(output.code, 0, "{output:?}");
    let mode = |file: &str| {
        let path = parent.path().join("site").join(file);
        fs::metadata(path).unwrap().permissions().mode() & 0o111
    };
    assert_ne!(mode("build"), 0);
    assert_eq!(mode("README.md"), 0);
}

#[test]
fn new_prints_the_next_steps() {
    let parent = temp_folder();
    let output = new(parent.path(), &["my-task"]);
    let count = files(&parent.path().join("my-task")).len();
    assert_eq!(
        output.stdout,
        format!(
            "my-task: {count} files\n\nnext:\n  cd my-task\n  rustup target add wasm32-wasip2\n  ./build  # runs the tests first\n  \
             campanile task run target/my-task.wasm --context '{{\"text\": \"to be or not\"}}'\n  \
             mkdir -p plugins && cp target/my-task.wasm plugins/\n  \
             campanile serve  # the next commands in another terminal, in the same folder\n  \
             campanile schedule trigger my-task --wait\n"
        )
    );
    let output = new(parent.path(), &["site", "--lang", "go", "--into", "a/b"]);
    output.assert_stdout("cd a/b\n");
    // A program proposes no schedule.
    let add = "  campanile schedule add site --package site --every 10m\n  campanile schedule trigger site --wait\n";
    assert!(output.stdout.ends_with(add), "{output:?}");
    assert!(parent.path().join("a/b/main.go").is_file());
}

#[test]
fn an_invalid_project_name_or_folder_is_refused_and_writes_nothing() {
    let parent = temp_folder();
    let before = || files(parent.path());
    fs::create_dir(parent.path().join("taken")).unwrap();
    fs::write(parent.path().join("taken/notes"), "mine").unwrap();
    fs::write(parent.path().join("file"), "mine").unwrap();
    let files_before = before();
    for name in [
        "a b",
        "../up",
        "",
        "9to5",
        "_x",
        "site.wasm",
        &"x".repeat(65),
    ] {
        new(parent.path(), &[name])
            .assert_refused(&["is not a valid project name", "hint: choose 1 to 64"]);
    }
    new(parent.path(), &["taken"]).assert_refused(&["taken is not empty", "hint: ", "--into"]);
    new(parent.path(), &["new", "--into", "taken"]).assert_refused(&["taken is not empty"]);
    new(parent.path(), &["file"]).assert_refused(&["file cannot hold a project", "--into"]);
    let output = new(parent.path(), &["site", "--lang", "cobol"]);
    output.assert_refused(&["'cobol'", "typescript", "zig"]);
    let output = new(parent.path(), &["taken", "--json"]);
    assert_eq!(
        (output.code, &output.json()["error"]),
        (2, &json!("taken is not empty"))
    );
    assert_eq!(before(), files_before);

    // An existing empty folder is accepted.
    fs::create_dir(parent.path().join("empty")).unwrap();
    assert_eq!(new(parent.path(), &["empty"]).code, 0);
}

/// Run the tests of a new Rust project with the versions of its lock file. All projects share one target folder.
fn test_natively(language: &str) {
    // The same folder in every run, so that old builds do not pile up.
    let projects = Path::new(env!("CARGO_TARGET_TMPDIR")).join("projects");
    let folder = projects.join(language);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => panic!("{folder:?}: {error}"),
        _ => fs::create_dir_all(&folder).unwrap(),
    }
    // This name has another position in the sorted lock file than the name of the example.
    let result = new(&folder, &["A-site", "--lang", language, "--into", "."]);
    assert_eq!(result.code, 0, "{result:?}");
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
    let target = projects.join("target");
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
