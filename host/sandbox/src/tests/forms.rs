//! The forms of packages, with handwritten guests and with guests of a real toolchain.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use serde_json::{Value, json};

use super::guests::*;
use crate::load::recognise::recognise;
use crate::*;

/// `tests/guests/command`, as Rust builds it for WASI 0.2 and for preview 1.
const PROGRAMS: [(&str, Form); 2] = [
    ("command.wasm", Form::CommandComponent),
    ("command-p1.wasm", Form::Preview1Command),
];

fn committed(name: &str) -> Vec<u8> {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests");
    std::fs::read(guests.join(name)).unwrap()
}

/// Returns a program with this `body`, as text. It imports the functions of preview 1 that the body names.
fn program(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (data (i32.const 0) "\08\00\00\00\05\00\00\00[\22a\22]")
            (func (export "_start") {body}))"#
    );
    wat::parse_str(text).unwrap()
}

/// Call each of [`PROGRAMS`] with `context`, and check its report.
async fn check_each(context: Value, change: impl Fn(&mut Call), check: impl Fn(&Report, Form)) {
    let sandbox = sandbox();
    for (name, form) in PROGRAMS {
        let artifact = Arc::new(sandbox.load(&committed(name)).unwrap());
        assert_eq!(artifact.form, form);
        let mut call = call();
        call.context = context.to_string();
        change(&mut call);
        check(&sandbox.run(&artifact, call).await, form);
    }
}

#[tokio::test]
async fn a_program_receives_its_context_its_run_info_and_its_name() {
    let context = json!({"do": "echo", "is_recovery": true, "greeting": "ciào"});
    let recovered = |call: &mut Call| {
        call.facts.is_recovery = true;
        call.grants = Arc::new(Grants {
            env: [("CITY", "Turin"), ("CAMPANILE_ATTEMPT", "99")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Grants::default()
        });
    };
    check_each(context.clone(), recovered, |report, _| {
        assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
        let output = report.output.as_ref().unwrap().value();
        assert_eq!(output["context"], context);
        assert_eq!(output["arguments"], json!(["test"]));
        let mut variables = output["env"].as_object().unwrap().clone();
        let deadline = variables.remove("CAMPANILE_DEADLINE").unwrap();
        assert!(deadline.as_str().unwrap().parse::<Timestamp>().is_ok());
        assert_eq!(
            Value::Object(variables),
            json!({
                "CITY": "Turin",
                "CAMPANILE_TASK_NAME": "test",
                "CAMPANILE_EXECUTION_ID": "00000000-0000-0000-0000-000000000001",
                "CAMPANILE_RUN_ID": "00000000-0000-0000-0000-000000000002",
                "CAMPANILE_ATTEMPT": "3",
                "CAMPANILE_IS_RECOVERY": "true",
                "CAMPANILE_SCHEDULED_FOR": "1970-01-01T00:00:00Z",
                "CAMPANILE_ORIGINAL_SCHEDULED_TIME": "1970-01-01T00:00:00Z",
            })
        );
        // JSON output is not repeated as text, and a program returns no context.
        assert_eq!(report.stdout, "");
        assert_eq!(report.context, None);
    })
    .await;
}

#[tokio::test]
async fn output_of_a_program_that_is_no_json_is_text() {
    check_each(
        json!({"do": "say"}),
        |_| {},
        |report, _| {
            assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
            assert_eq!(report.output, None);
            assert_eq!(report.stdout, "ding dong\n");
        },
    )
    .await;
}

#[tokio::test]
async fn a_nonzero_exit_code_is_a_retryable_failure() {
    check_each(
        json!({"do": "fail"}),
        |_| {},
        |report, _| {
            let failed = failure(report, Outcome::Failed);
            assert_eq!(failed.message, "exited with code 1: Error: \"no rope\"");
            assert_eq!(failed.details, Some(json!({"exit_code": 1})));
            assert!(failed.retryable);
        },
    )
    .await;
}

#[tokio::test]
async fn a_preview_1_program_reports_its_exit_code() {
    let sandbox = sandbox();
    for (code, reported) in [
        (0, 0),
        (1, 1),
        (3, 3),
        (42, 42),
        (255, 255),
        // All 32 bits count: only 0 is a success.
        (256, 256),
        (65_536, 65_536),
        (i32::MIN, i32::MIN),
        (-1, -1),
    ] {
        let program = program(&format!("(call $exit (i32.const {code}))"));
        let artifact = Arc::new(sandbox.load(&program).unwrap());
        assert_eq!(artifact.form, Form::Preview1Command);
        // The digest is the one of the file before its adaptation.
        assert_eq!(artifact.digest, ArtifactDigest::of(&program));
        let report = sandbox.run(&artifact, call()).await;
        if reported == 0 {
            assert_eq!(report.outcome, Outcome::Succeeded, "{code}: {report:#?}");
            continue;
        }
        let failed = failure(&report, Outcome::Failed);
        assert_eq!(failed.message, format!("exited with code {reported}"));
        assert_eq!(failed.details, Some(json!({ "exit_code": reported })));
    }
}

#[tokio::test]
async fn a_real_program_reports_its_exit_code() {
    for code in [0, 3, 255] {
        for how in ["exit", "return"] {
            check_each(
                json!({"do": how, "code": code}),
                |_| {},
                |report, form| {
                    if code == 0 {
                        assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
                        return;
                    }
                    // The library of WASI 0.2 reports only success or failure.
                    let reported = match form {
                        Form::Preview1Command => code,
                        _ => 1,
                    };
                    let failed = failure(report, Outcome::Failed);
                    assert_eq!(
                        failed.details,
                        Some(json!({ "exit_code": reported })),
                        "{how}"
                    );
                    if how == "exit" {
                        let message = format!("exited with code {reported}: the bell has cracked");
                        assert_eq!(failed.message, message);
                        assert_eq!(report.stdout, "leaving\n");
                    }
                },
            )
            .await;
        }
    }
}

#[tokio::test]
async fn a_program_without_exit_or_imports_runs() {
    let sandbox = sandbox();
    let body = "(drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 64)))";
    let prints = Arc::new(sandbox.load(&program(body)).unwrap());
    let report = sandbox.run(&prints, call()).await;
    assert_eq!(report.output, Some(json!(["a"]).into()), "{report:#?}");
    let silent = "(module (memory (export \"memory\") 1) (func (export \"_start\")))";
    let silent = Arc::new(sandbox.load(&wat::parse_str(silent).unwrap()).unwrap());
    assert_eq!(silent.form, Form::Preview1Command);
    let report = sandbox.run(&silent, call()).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    assert_eq!(report.output, None);
}

#[tokio::test]
async fn a_panic_of_a_program_is_reported_like_one_of_a_task() {
    check_each(
        json!({"do": "panic"}),
        |_| {},
        |report, _| {
            let failed = failure(report, Outcome::Trapped);
            assert!(
                failed.message.starts_with(
                    "the task panicked: the bell has cracked, at command/src/main.rs:"
                ),
                "{}",
                failed.message
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_program_reads_only_files_of_granted_directories() {
    let host = tempfile::tempdir().unwrap();
    std::fs::write(host.path().join("a.txt"), "granted text").unwrap();
    let context = json!({"do": "read", "path": "/data/a.txt"});
    let granted = |call: &mut Call| {
        call.grants = Arc::new(Grants {
            directories: vec![DirectoryGrant {
                host: host.path().canonicalize().unwrap(),
                guest: "/data".to_owned(),
                writable: false,
                quota: DirectoryQuota::default(),
            }],
            ..Grants::default()
        });
    };
    check_each(context.clone(), granted, |report, _| {
        assert_eq!(
            report.output,
            Some(json!("granted text").into()),
            "{report:#?}"
        );
    })
    .await;
    check_each(
        context,
        |_| {},
        |report, _| {
            // The kind and the message come from the program; the host adds a note.
            let failed = failure(report, Outcome::Failed);
            assert!(
                failed.message.starts_with("exited with code 1: "),
                "{}",
                failed.message
            );
            assert!(failed.retryable);
            let note = failed.note.as_ref().unwrap();
            assert!(
                note.starts_with("/data/a.txt lies in no granted directory; to allow it, add"),
                "{note}"
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_program_is_stopped_by_its_limits() {
    let timeout = |call: &mut Call| call.limits.timeout = Duration::from_millis(100);
    check_each(json!({"do": "spin"}), timeout, |report, _| {
        failure(report, Outcome::TimedOut);
    })
    .await;
    check_each(
        json!({"do": "hoard"}),
        |_| {},
        |report, _| {
            failure(report, Outcome::MemoryExceeded);
        },
    )
    .await;
}

#[tokio::test]
async fn excess_stdout_is_cut_and_an_oversized_output_is_refused() {
    let bytes = 3 << 20;
    check_each(
        json!({"do": "flood", "bytes": bytes}),
        |_| {},
        |report, _| {
            assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
            assert_eq!(report.output, None);
            assert_eq!(report.stdout.len(), 64 << 10);
            // It prints ten bytes at a time.
            assert_eq!(report.stdout_bytes_dropped, bytes / 10 * 10 - (64 << 10));
        },
    )
    .await;
    // Longer than the recorded stdout, and with its quotes exactly as long as the output limit.
    check_each(
        json!({"do": "list", "bytes": (1 << 20) - 2}),
        |_| {},
        |report, _| {
            assert_eq!(report.outcome, Outcome::Succeeded, "{:?}", report.failure);
            assert_eq!(report.stdout, "");
        },
    )
    .await;
    for bytes in [(1 << 20) - 1, bytes] {
        check_each(
            json!({"do": "list", "bytes": bytes}),
            |_| {},
            |report, _| {
                let failed = failure(report, Outcome::InvalidOutput);
                let expected = format!("one JSON value of {} bytes", bytes + 2);
                assert!(failed.message.contains(&expected), "{}", failed.message);
                assert!(
                    failed.message.contains("put large results"),
                    "{}",
                    failed.message
                );
                assert!(report.stdout.len() < (64 << 10) + 200);
            },
        )
        .await;
    }
}

/// Let the call start its program with `input`, with the argument `raw` before its own.
fn started_with(input: ProgramInput) -> impl Fn(&mut Call) {
    let fixed = ["raw"].map(|text| Template::parse(text).unwrap());
    let args = fixed.into_iter().chain(input.args.clone()).collect();
    let input = Arc::new(ProgramInput { args, ..input });
    move |call| call.program = Arc::clone(&input)
}

#[tokio::test]
async fn a_program_gets_the_arguments_the_variables_and_the_stdin_of_its_settings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("input.txt");
    std::fs::write(&file, "from a file\n").unwrap();
    let context = json!({"url": "http://x/?a b", "n": 7});
    let line = format!("{context}\n");
    for (stdin, expected) in [
        (Stdin::Context, line.as_str()),
        (Stdin::Empty, ""),
        (Stdin::Bytes("text".into()), "text"),
        (Stdin::File(file.clone()), "from a file\n"),
    ] {
        let input = ProgramInput {
            argv0: Some("rsync".to_owned()),
            stdin,
            env_from_context: [("N".to_owned(), ContextKey::parse("n").unwrap())].into(),
            campanile_env: false,
            ..ProgramInput::default()
        };
        check_each(context.clone(), started_with(input), |report, _| {
            assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
            let output = report.output.as_ref().unwrap().value();
            assert_eq!(output["stdin"], expected);
            assert_eq!(output["arguments"], json!(["rsync", "raw"]));
            assert_eq!(output["env"], json!({"N": "7"}));
        })
        .await;
    }
}

#[tokio::test]
async fn an_argument_is_filled_in_from_the_context_as_one_argument() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::write(root.join("a b; c"), "ding").unwrap();
    let input = || ProgramInput {
        args: ["/data/{{ context.name }}", "{{ context.list }}"]
            .map(|text| Template::parse(text).unwrap())
            .into(),
        ..ProgramInput::default()
    };
    let granted = |call: &mut Call| {
        started_with(input())(call);
        call.grants = Arc::new(directory(&root, "/data"));
    };
    let context = json!({"name": "a b; c", "list": [1, 2]});
    check_each(context, granted, |report, _| {
        assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
        let output = report.output.as_ref().unwrap().value();
        assert_eq!(output["file"], "ding");
        let arguments = json!(["test", "raw", "/data/a b; c", "[1,2]"]);
        assert_eq!(output["arguments"], arguments);
    })
    .await;
    check_each(json!({"list": 1}), started_with(input()), |report, _| {
        let failed = failure(report, Outcome::Refused);
        let message =
            "argument 2 of the program cannot be filled in: the context has no key `name`";
        assert_eq!(failed.message, message);
        assert!(!failed.retryable && failed.precedes_call);
    })
    .await;
}

fn directory(host: &Path, guest: &str) -> Grants {
    Grants {
        directories: vec![DirectoryGrant {
            host: host.to_owned(),
            guest: guest.to_owned(),
            writable: false,
            quota: DirectoryQuota::default(),
        }],
        ..Grants::default()
    }
}

#[tokio::test]
async fn relative_paths_begin_in_the_working_directory() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    std::fs::write(root.join("note.txt"), "ding").unwrap();
    let input = ProgramInput {
        args: vec![Template::parse("note.txt").unwrap()],
        cwd: Some("/data".to_owned()),
        ..ProgramInput::default()
    };
    let granted = |call: &mut Call| {
        started_with(input.clone())(call);
        call.grants = Arc::new(directory(&root, "/data"));
    };
    check_each(json!({}), granted, |report, _| {
        assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
        let output = report.output.as_ref().unwrap().value();
        assert_eq!(output["file"], "ding");
        assert_eq!(output["env"]["PWD"], "/data");
    })
    .await;
    let without = |call: &mut Call| {
        granted(call);
        let program = ProgramInput::clone(&call.program);
        call.program = Arc::new(ProgramInput {
            cwd: None,
            ..program
        });
    };
    check_each(json!({}), without, |report, _| {
        failure(report, Outcome::Failed);
    })
    .await;
}

#[tokio::test]
async fn a_stdin_that_cannot_be_read_is_no_failure_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let input = ProgramInput {
        stdin: Stdin::File(folder.path().join("gone.txt")),
        ..ProgramInput::default()
    };
    check_each(json!({}), started_with(input), |report, _| {
        let failed = failure(report, Outcome::HostError);
        assert!(
            failed.message.contains("gone.txt cannot be read"),
            "{}",
            failed.message
        );
        assert!(failed.retryable && failed.precedes_call);
    })
    .await;
}

#[tokio::test]
async fn a_library_for_preview_1_with_wit_metadata_runs_like_a_component() {
    let sandbox = sandbox();
    let artifact = Arc::new(sandbox.load(&committed("core-echo-p1.wasm")).unwrap());
    assert_eq!(artifact.form, Form::CoreModuleWithWit);
    let description = sandbox.describe(&artifact).await.unwrap().unwrap();
    assert_eq!(description["name"], "core-echo");
    let report = sandbox
        .run(
            &artifact,
            Call {
                task: "echo".to_owned(),
                context: json!({"greeting": "ciào"}).to_string(),
                ..call()
            },
        )
        .await;
    assert_eq!(
        report.output,
        Some(json!({"greeting": "ciào"}).into()),
        "{report:#?}"
    );
}

#[test]
fn a_component_with_asynchronous_functions_is_newer_than_this_host() {
    let text = r#"(component
        (core func (canon task.return))
        (instance $i)
        (export "wasi:cli/run@0.2.0" (instance $i)))"#;
    let refusal = sandbox().load(&wat::parse_str(text).unwrap()).err();
    let message = refusal.unwrap().message;
    assert!(message.contains("built for WASI 0.3"), "{message}");
    assert!(message.contains("newer than this version"), "{message}");
}

#[test]
fn a_feature_of_webassembly_that_the_engine_does_not_run_is_named() {
    for (instructions, feature, remedy) in [
        (
            "(drop (i32.atomic.load (i32.const 0)))",
            "`threads`",
            "without `-pthread`",
        ),
        (
            "(i64.add128 (i64.const 0) (i64.const 0) (i64.const 0) (i64.const 0)) drop drop",
            "`wide arithmetic`",
            "without that feature",
        ),
    ] {
        let text = format!(
            "(module (memory (export \"memory\") 1) (func (export \"_start\") {instructions}))"
        );
        let refusal = sandbox().load(&wat::parse_str(text).unwrap()).err();
        let message = refusal.unwrap().message;
        assert!(message.contains(feature), "{message}");
        assert!(message.contains(remedy), "{message}");
    }
}

#[test]
fn a_refusal_is_one_line_for_any_names_in_the_file() {
    let name = "\\n\\u{1b}[31m".repeat(5_000);
    let text = format!("(module (import \"bells\" \"{name}\" (func)) (func (export \"_start\")))");
    let refusal = sandbox()
        .load(&wat::parse_str(text).unwrap())
        .err()
        .unwrap();
    assert!(
        refusal.message.starts_with("this module imports `bells."),
        "{refusal}"
    );
    assert!(!refusal.message.contains(char::is_control), "{refusal}");
    assert!(refusal.message.len() <= 2 << 10);
}

#[tokio::test]
async fn the_manifest_of_a_program_comes_from_the_labels_of_its_file() {
    let sandbox = sandbox();
    let labelled = r#"(module $labelled
        (memory (export "memory") 1)
        (func (export "_start"))
        (@custom "version" "1.2.3")
        (@producers (language "C11" "") (language "Rust" "1.95")))"#;
    let labelled = wat::parse_str(labelled).unwrap();
    let module = Arc::new(sandbox.load(&labelled).unwrap());
    assert_eq!(
        sandbox.describe(&module).await,
        Ok(Some(
            json!({"name": "labelled", "version": "1.2.3", "language": "C11, Rust"})
        ))
    );
    // The component has the language of its module and no other labels.
    let component = recognise(&labelled, |_| Ok(())).unwrap().component;
    let component = Arc::new(sandbox.load(&component).unwrap());
    assert_eq!(
        sandbox.describe(&component).await,
        Ok(Some(json!({"language": "C11, Rust"})))
    );
    let silent = "(module (memory (export \"memory\") 1) (func (export \"_start\")))";
    let silent = Arc::new(sandbox.load(&wat::parse_str(silent).unwrap()).unwrap());
    assert_eq!(sandbox.describe(&silent).await, Ok(None));
}
