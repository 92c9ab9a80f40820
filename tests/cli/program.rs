//! What a program gets at its start: `[program]` of a sidecar, and the flags of `task run` for one call.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::task_run::{assert_failure, guests_folder, temp_folder};
use crate::site::{CommandOutput, Site, be_plugins_folder, eventually, package, run};

on_both_empty!(
    a_host_starts_a_program_as_its_sidecar_says,
    an_argument_without_its_key_fails_the_launch_without_a_retry,
);

/// The same program for both versions of WASI.
const PROGRAMS: [&str; 2] = ["command", "command-p1"];

const SIDECAR: &str = r#"
[program]
argv0 = "rsync"
args = ["raw", "{{ context.file }}", "plain; text"]
stdin = { file = "input.txt" }
env_from_context = { N = "n" }
campanile_env = false
cwd = "/data"

[[grants.directories]]
host = "data"
guest = "/data"
access = "read"
"#;

/// Write what [`SIDECAR`] needs into the plugins folder.
fn write_input(folder: &Path) {
    fs::create_dir_all(folder.join("data")).expect("a folder");
    fs::write(folder.join("data/note 1.txt"), "ding").expect("a file");
    fs::write(folder.join("input.txt"), "a line\n").expect("a file");
}

/// Return a plugins folder with the program `name`, and with its sidecar when one is given.
fn program_folder(name: &str, sidecar: Option<&str>) -> TempDir {
    let folder = temp_folder();
    let root = folder.path();
    fs::copy(package(name), root.join(format!("{name}.wasm"))).expect("a copy");
    write_input(root);
    be_plugins_folder(root);
    if let Some(sidecar) = sidecar {
        fs::write(root.join(format!("{name}.toml")), sidecar).expect("a sidecar");
    }
    folder
}

/// Run the program in its folder with these arguments of the command line.
fn run_program(folder: &Path, name: &str, args: &[&str]) -> CommandOutput {
    let file = format!("{name}.wasm");
    let fixed = ["task", "run", &file];
    run(folder, fixed.into_iter().chain(args.iter().copied()))
}

/// Run the program, which must succeed. Return its output.
#[track_caller]
fn output_of(folder: &Path, name: &str, args: &[&str]) -> Value {
    let output = run_program(folder, name, &[args, &["--json"]].concat());
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    output.json()["output"].clone()
}

#[test]
fn a_sidecar_says_what_a_program_gets() {
    for name in PROGRAMS {
        let folder = program_folder(name, Some(SIDECAR));
        let context = ["--context", r#"{"file": "note 1.txt", "n": 7}"#];
        let output = output_of(folder.path(), name, &context);
        let arguments = json!(["rsync", "raw", "note 1.txt", "plain; text"]);
        assert_eq!(output["arguments"], arguments);
        assert_eq!(output["stdin"], "a line\n");
        assert_eq!(output["file"], "ding");
        assert_eq!(output["env"], json!({"N": "7", "PWD": "/data"}));
        // The file is read for each call.
        fs::write(folder.path().join("input.txt"), "another\n").expect("a file");
        let output = output_of(folder.path(), name, &context);
        assert_eq!(output["stdin"], "another\n");

        let output = run_program(folder.path(), name, &["--json"]);
        assert_eq!(output.code, 1, "{output:?}");
        let expected =
            "argument 2 of the program cannot be filled in: the context has no key `file`";
        assert_failure(&output.json(), "refused", false, expected);
    }
}

#[test]
fn a_task_component_has_no_program_settings() {
    let folder = guests_folder(Some("[program]\nargs = ['a']\n"));
    let guest = |args: &[&str]| {
        let fixed = ["task", "run", "guests.wasm", "--task", "ok"];
        run(folder.path(), fixed.into_iter().chain(args.iter().copied()))
    };
    let output = guest(&["--json"]);
    assert_eq!(output.code, 2, "{output:?}");
    let expected = "guests.toml: `[program]` is for a program with a main function, and this package is a typed_component: leave the table out";
    assert_failure(&output.json(), "refused", false, expected);
    fs::remove_file(folder.path().join("guests.toml")).expect("the sidecar");
    guest(&["--arg", "a"]).assert_refused(&[
        "--arg is for a program with a main function, and this package is a typed_component",
        "--context",
    ]);
    guest(&["--stdin", "guests.wasm"]).assert_refused(&["--stdin is for a program"]);
}

#[test]
fn flags_give_grants_and_input_to_one_call() {
    for name in PROGRAMS {
        let folder = program_folder(
            name,
            Some("grants.env = ['A=old', 'B=kept']\n[program]\nargs = ['lost']\n"),
        );
        let args = [
            &["--arg", "raw", "--arg", "/in/{{ context.file }}"][..],
            &["--arg", "--looks-like-a-flag"],
            &["--context", r#"{"file": "note 1.txt"}"#],
            &["--env", "A=new", "--env", "C=x=y"],
            &["--dir", "data::/in:ro", "--stdin", "input.txt"],
        ];
        let output = output_of(folder.path(), name, &args.concat());
        let arguments = json!([name, "raw", "/in/note 1.txt", "--looks-like-a-flag"]);
        assert_eq!(output["arguments"], arguments);
        assert_eq!(output["stdin"], "a line\n");
        assert_eq!(output["file"], "ding");
        let env = &output["env"];
        assert_eq!((&env["A"], &env["B"]), (&json!("new"), &json!("kept")));
        assert_eq!(env["C"], "x=y");
        assert_eq!(env["CAMPANILE_TASK_NAME"], name);
        // The next call has none of it.
        let output = run_program(folder.path(), name, &["--json"]);
        assert_eq!(output.json()["output"]["arguments"], json!([name, "lost"]));
    }
}

#[test]
fn a_flag_replaces_a_variable_from_the_context_and_keeps_the_working_directory() {
    for name in PROGRAMS {
        let folder = program_folder(name, Some(SIDECAR));
        let context = ["--context", r#"{"file": "note 1.txt", "n": 7}"#];
        let output = output_of(
            folder.path(),
            name,
            &[&context[..], &["--env", "N=8"]].concat(),
        );
        assert_eq!(output["env"], json!({"N": "8", "PWD": "/data"}));

        // Relative paths begin in the directory that is granted as `/`, if there is one.
        let outside = temp_folder();
        let granted = format!("{}::/", outside.path().display());
        let root = [&context[..], &["--dir", &granted]].concat();
        run_program(folder.path(), name, &root).assert_refused(&[
            "with these flags `program.cwd` of the sidecar is \"/data\"",
            "another directory is granted as \"/\"",
        ]);
    }
}

#[test]
fn a_directory_is_granted_for_writing_unless_it_says_otherwise() {
    let folder = guests_folder(None);
    // Nothing inside the plugins folder can be granted for writing.
    let data = temp_folder();
    let write = |access: &str| {
        let directory = &format!("{}::/out{access}", data.path().display());
        let context = r#"{"path": "/out/new.txt", "text": "ding"}"#;
        let args = ["task", "run", "guests.wasm", "--task", "write_file"];
        let more = ["--context", context, "--dir", directory, "--json"];
        run(folder.path(), args.into_iter().chain(more))
    };
    assert_eq!(write(":ro").code, 1);
    assert!(!data.path().join("new.txt").exists());
    let output = write("");
    assert_eq!(output.code, 0, "{output:?}");
    assert!(data.path().join("new.txt").exists());
}

#[test]
fn a_flag_that_cannot_be_granted_is_refused() {
    let site = temp_folder();
    let root = site.path();
    for folder in ["plugins", "keys", "cache", "db", "data"] {
        fs::create_dir(root.join(folder)).expect("a folder");
    }
    fs::write(root.join("keys/token"), "secret").expect("a file");
    let configuration = "database = 'sqlite:db/campanile.db'\n[sandbox]\ncache_dir = 'cache'\n[secrets.token]\nfile = 'keys/token'\n";
    fs::write(root.join("campanile.toml"), configuration).expect("a configuration");
    fs::copy(package("command"), root.join("plugins/command.wasm")).expect("a copy");
    assert!(
        Command::new("mkfifo")
            .arg(root.join("pipe"))
            .status()
            .expect("mkfifo")
            .success()
    );
    symlink("db", root.join("link")).expect("a link");
    let large = fs::File::create(root.join("large")).expect("a file");
    large.set_len((16 << 20) + 1).expect("a file with holes");
    for (flag, value, expected) in [
        ("--dir", "plugins::/p", "contains the plugins folder"),
        ("--dir", ".::/all", "contains the plugins folder"),
        ("--dir", "db::/db", "which overlaps the database"),
        ("--dir", "link::/db", "which overlaps the database"),
        (
            "--dir",
            "cache::/c",
            "which overlaps the directory of compiled code",
        ),
        ("--dir", "keys::/keys", "which overlaps the secret file"),
        ("--dir", "keys::/keys:ro", "which contains the secret file"),
        ("--dir", "/::/all:ro", "from which the record of the host"),
        ("--dir", "db::/db:ro", "from which the record of the host"),
        ("--dir", "gone::/x", "which cannot be used"),
        ("--dir", "large::/x", "which is not a directory"),
        (
            "--dir",
            "data::x",
            "its guest path is \"x\", which is not a path inside a task",
        ),
        (
            "--dir",
            "data",
            "--dir data has no path of the task: write HOST::GUEST",
        ),
        ("--stdin", "pipe", "--stdin pipe: it is not a regular file"),
        ("--stdin", "data", "--stdin data: it is not a regular file"),
        ("--stdin", "gone", "--stdin gone: it does not exist"),
        ("--stdin", "large", "--stdin large: it is larger than 16MiB"),
        (
            "--env",
            "CAMPANILE_X=1",
            "--env names CAMPANILE_X: the host sets",
        ),
        (
            "--env",
            "NOT_SET_ANYWHERE",
            "--env names NOT_SET_ANYWHERE, which is not set",
        ),
        ("--http", "ftp://x", "--http ftp://x has the scheme \"ftp\""),
        ("--http", "https://x/y", "which is not a host"),
        (
            "--arg",
            "{{ contxt.x }}",
            "holds `{{ contxt.x }}`: write `{{ context.KEY }}`",
        ),
    ] {
        let output = run(root, ["task", "run", "plugins/command.wasm", flag, value]);
        output.assert_refused(&[flag, expected]);
    }
    let twice = ["--dir", "data::/x", "--dir", "data::/x"];
    let args = ["task", "run", "plugins/command.wasm"];
    let output = run(root, args.into_iter().chain(twice));
    output.assert_refused(&["the path of another granted directory"]);
    let reading = [
        "task",
        "run",
        "plugins/command.wasm",
        "--dir",
        "data::/data:ro",
    ];
    assert_eq!(run(root, reading).code, 0);
    let entries = fs::read_dir(root.join("db")).expect("the folder").count();
    assert_eq!(entries, 0, "no command created a database");
}

/// Serve the program with [`SIDECAR`], and a schedule that launches only when it is triggered.
fn serve_program(place: Place, context: &str) -> (Site, campanile_tests::HostProcess) {
    let site = Site::new(place);
    write_input(&site.folder().join("plugins"));
    let schedule = format!(
        "[[schedules]]\nname = 'sync'\nat = 2099-01-01T00:00:00Z\ncontext = {context}\n{SIDECAR}"
    );
    site.sidecar("command-p1", &schedule);
    site.copy_package("command-p1");
    let host = site.serve();
    (site, host)
}

async fn a_host_starts_a_program_as_its_sidecar_says(place: Place) {
    let (site, _host) = serve_program(place, "{ file = 'note 1.txt', n = 7 }");
    let launch = site.trigger_and_wait("sync");
    assert_eq!(launch["status"], "succeeded", "{launch:#}");
    let run = site.run_of(&launch);
    let output = &run["tasks"][0]["output"];
    let arguments = json!(["rsync", "raw", "note 1.txt", "plain; text"]);
    assert_eq!(output["arguments"], arguments, "{run:#}");
    assert_eq!(output["stdin"], "a line\n");
    assert_eq!(output["env"], json!({"N": "7", "PWD": "/data"}));
}

async fn an_argument_without_its_key_fails_the_launch_without_a_retry(place: Place) {
    let (site, host) = serve_program(place, "{ n = 7 }");
    let launch = site.trigger_and_wait("sync");
    assert_eq!(launch["status"], "failed", "{launch:#}");
    assert_eq!(launch["attempts"], 1, "{launch:#}");
    let message = launch["message"].as_str().unwrap_or_default().to_owned();
    assert!(
        message.contains("the context has no key `file`"),
        "{launch:#}"
    );
    // A component in its place keeps the program active, and says why.
    fs::copy(package("hello"), site.plugin("command-p1.wasm")).expect("a copy");
    host.wait_for_line("`[program]` is for a program with a main function");
    eventually(|| {
        let packages = site.json(["package", "list"]);
        let error = packages[0]["rejection"].as_str().unwrap_or_default();
        match error.contains("[program]") {
            true => Ok(()),
            false => Err(packages.to_string()),
        }
    });
}
