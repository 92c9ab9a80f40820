//! `campanile dev`: a build and a call at each change.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use campanile_tests::HostProcess;
use rustix::process::Signal;

use crate::site::{command, eventually, package, run};
use crate::task_run::temp_folder;

/// Write a project whose build runs `commands` in a shell.
fn project(folder: &Path, commands: &str) -> PathBuf {
    let project = folder.join("project");
    fs::create_dir_all(project.join("src")).unwrap();
    let script = project.join("build");
    fs::write(&script, format!("#!/bin/sh\nset -e\n{commands}\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    project
}

fn dev(folder: &Path, args: &[&str]) -> HostProcess {
    HostProcess::spawn(&mut command(folder, ["dev"].iter().chain(args)))
}

/// Wait until the output of `count` calls of the package `hello` is on stdout.
#[track_caller]
fn wait_for_calls(process: &HostProcess, count: usize) {
    eventually(|| {
        let lines = process.stdout_lines();
        let found = lines.iter().filter(|line| line.contains("Hello, Ada!"));
        match found.count() {
            found if found == count => Ok(()),
            found => Err(format!(
                "{found} calls, not {count}: {:#?}",
                process.stderr_lines()
            )),
        }
    });
}

const CONTEXT: [&str; 2] = ["--context", r#"{"name": "Ada"}"#];

#[test]
fn each_change_of_a_project_builds_it_and_calls_its_task_once() {
    let folder = temp_folder();
    let hello = package("hello");
    let commands = format!(
        "echo \"built from $(cat src/version)\"\ngrep -q good src/version || exit 3\n\
         mkdir -p target\ncp {} target/hello.wasm",
        hello.display()
    );
    let source = project(folder.path(), &commands).join("src/version");
    fs::write(&source, "good 1").unwrap();
    let mut process = dev(
        folder.path(),
        &["project", "--no-sidecar", CONTEXT[0], CONTEXT[1]],
    );
    process.wait_for_line("built from good 1");
    wait_for_calls(&process, 1);
    process.wait_for_line("succeeded in ");

    fs::write(&source, "good 2").unwrap();
    process.wait_for_line("built from good 2");
    wait_for_calls(&process, 2);

    fs::write(&source, "bad").unwrap();
    process.wait_for_line("the build failed: exit status: 3");
    fs::write(folder.path().join("project/src/new"), "").unwrap();
    fs::write(&source, "good 3").unwrap();
    process.wait_for_line("built from good 3");
    wait_for_calls(&process, 3);
    let stdout = process.stdout_lines();
    assert!(
        !stdout.iter().any(|line| line.contains("built")),
        "{stdout:?}"
    );

    process.signal(Signal::INT);
    assert_eq!(process.wait_exit().code(), Some(0));
}

#[test]
fn each_change_of_a_file_calls_its_task_and_a_damaged_file_is_refused() {
    let folder = temp_folder();
    let file = folder.path().join("hello.wasm");
    fs::copy(package("hello"), &file).unwrap();
    let mut process = dev(folder.path(), &["hello.wasm", CONTEXT[0], CONTEXT[1]]);
    wait_for_calls(&process, 1);
    process.wait_for_line("waiting for a change of hello.wasm");

    fs::write(&file, "no package").unwrap();
    process.wait_for_line("refused: ");
    fs::copy(package("hello"), &file).unwrap();
    wait_for_calls(&process, 2);

    fs::remove_file(&file).unwrap();
    process.wait_for_line("hello.wasm cannot be read: it does not exist");
    process.terminate();
    assert_eq!(process.wait_exit().code(), Some(0));
}

#[test]
fn an_interrupted_build_ends_with_the_command() {
    let folder = temp_folder();
    let commands = "trap 'echo ended > ended; exit' TERM\necho started\nsleep 600 &\nwait";
    let ended = project(folder.path(), commands).join("ended");
    let mut process = dev(folder.path(), &["project"]);
    process.wait_for_line("started");
    process.signal(Signal::INT);
    assert_eq!(process.wait_exit().code(), Some(0));
    eventually(|| match ended.is_file() {
        true => Ok(()),
        false => Err("the build runs on".to_owned()),
    });
}

#[test]
fn a_build_that_leaves_no_package_is_a_failure_that_says_so() {
    let folder = temp_folder();
    project(folder.path(), "mkdir -p target");
    let process = dev(folder.path(), &["project"]);
    process.wait_for_line("the build left no .wasm file in project/target");
    process.wait_for_line("waiting for a change of project");
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let folder = temp_folder();
    fs::create_dir(folder.path().join("empty")).unwrap();
    project(folder.path(), "true");
    for (args, parts) in [
        (
            vec!["nowhere"],
            [
                "nowhere cannot be read: it does not exist",
                "correct the path",
            ],
        ),
        (
            vec!["empty"],
            ["empty has no script `build`", "name the .wasm file"],
        ),
        (
            vec!["project", "--context", "[]"],
            ["the context must be a JSON object", ""],
        ),
        (
            vec!["project", "--replies", "none.json"],
            ["--replies none.json cannot be read", "it does not exist"],
        ),
    ] {
        let output = run(folder.path(), ["dev"].iter().chain(&args));
        output.assert_refused(&parts);
    }
    assert!(!folder.path().join("project/target").exists());
}
