//! The runner of the public wasi-testsuite, on a small folder of tests.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use campanile_tests::campanile_binary;
use campanile_tests::wasi_testsuite::{Runner, Verdict, run};
use serde_json::{Value, json};

use super::task_run::temp_folder;
use crate::site::package;

/// Write a test of the program `command-p1` with this description.
fn write_test(folder: &Path, name: &str, description: &Value) {
    fs::copy(package("command-p1"), folder.join(format!("{name}.wasm"))).expect("a copy");
    let path = folder.join(format!("{name}.json"));
    fs::write(path, description.to_string()).expect("a description");
}

/// Return what the program prints without a context, in the order in which the runner prints JSON.
fn printed(arguments: &Value, env: &Value, file: &Value) -> String {
    json!({
        "arguments": arguments, "context": null, "cwd": "/", "env": env, "file": file, "stdin": ""
    })
    .to_string()
}

#[test]
fn tests_pass_fail_and_are_refused_by_group() {
    let folder = temp_folder();
    let group = folder.path().join("group");
    fs::create_dir_all(group.join("root/below")).expect("a folder");
    fs::write(group.join("root/below/file"), "ding").expect("a file");
    fs::write(group.join("manifest.json"), r#"{"name": "Small tests"}"#).expect("a file");
    let args = json!(["raw", "below/file", "{{ a \"quoted\" arg"]);
    let env = json!({"a": "new\nline"});
    let all = json!(["legacy", "raw", "below/file", "{{ a \"quoted\" arg"]);
    let stdout = printed(&all, &env, &json!("ding"));
    let legacy = json!({"root": "root", "args": args, "env": env, "stdout": stdout});
    write_test(&group, "legacy", &legacy);
    let operations = |stdout: &str| {
        json!({"operations": [
            {"type": "run", "args": ["raw"]},
            {"type": "read", "id": "stdout", "payload": stdout},
            {"type": "wait"}
        ]})
    };
    let stdout = printed(&json!(["operations", "raw"]), &json!({}), &Value::Null);
    write_test(&group, "operations", &operations(&stdout));
    write_test(&group, "other_output", &operations("ding"));
    // Without a context its stdin is no JSON, and it exits with 1.
    write_test(&group, "exit_code", &json!({"exit_code": 1}));
    write_test(&group, "other_exit_code", &json!({"exit_code": 33}));
    write_test(
        &group,
        "signal",
        &json!({"operations": [{"type": "kill"}, {"type": "wait", "exit_code": 1}]}),
    );
    let newer = r#"(component (instance $i) (export "wasi:cli/run@0.3.0" (instance $i)))"#;
    let newer = wat::parse_str(newer).expect("WebAssembly");
    fs::create_dir(folder.path().join("newer")).expect("a folder");
    fs::write(folder.path().join("newer/test.wasm"), newer).expect("a file");
    let threads = r#"(module (memory (export "memory") 1 1 shared) (func (export "_start")))"#;
    let threads = wat::parse_str(threads).expect("WebAssembly");
    fs::write(folder.path().join("newer/threads.wasm"), threads).expect("a file");

    let runner = Runner::Campanile(campanile_binary().to_owned());
    let groups = run(&runner, folder.path()).expect("a run");
    let [small, newer] = groups.as_slice() else {
        panic!("{groups:#?}");
    };
    let verdict = |name: &str| &small.verdicts[name];
    for passed in ["legacy", "operations", "exit_code"] {
        assert_eq!(*verdict(passed), Verdict::Passed, "{passed}");
    }
    for (name, expected) in [
        ("other_output", "not \"ding\""),
        ("other_exit_code", "it exited with 1, not with 33"),
        ("signal", "does not know the operation \"kill\""),
    ] {
        let Verdict::Failed(why) = verdict(name) else {
            panic!("{small:#?}");
        };
        assert!(why.contains(expected), "{why}");
    }
    let shown = small.to_string();
    assert!(shown.starts_with("Small tests: 3 of 6 passed\n"), "{shown}");
    let refused = "refused  1: this component was built for WASI 0.3";
    let shown = newer.to_string();
    assert!(shown.contains(refused), "{shown}");
    let refused = "refused  1: this file was built for threads";
    assert!(shown.contains(refused), "{shown}");
    assert!(shown.contains("0 of 2 passed"), "{shown}");
}

#[test]
fn the_tests_also_run_with_the_command_line_of_wasmtime() {
    let folder = temp_folder();
    let wasmtime = folder.path().join("wasmtime");
    fs::write(&wasmtime, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 3\n").expect("a script");
    fs::set_permissions(&wasmtime, fs::Permissions::from_mode(0o755)).expect("a mode");
    let group = folder.path().join("group");
    fs::create_dir(&group).expect("a folder");
    let described = |stdout: &str| json!({"args": ["one two"], "env": {"A": "b"}, "exit_code": 3, "stdout": stdout});
    let file = group.join("same.wasm");
    let stdout = format!("run\n--env\nA=b\n{}\none two\n", file.display());
    write_test(&group, "same", &described(&stdout));
    write_test(&group, "other", &described("ding"));

    let groups = run(&Runner::Wasmtime(wasmtime), &group).expect("a run");
    let [group] = groups.as_slice() else {
        panic!("{groups:#?}");
    };
    assert_eq!(group.verdicts["same"], Verdict::Passed);
    assert!(matches!(group.verdicts["other"], Verdict::Failed(_)));
}
