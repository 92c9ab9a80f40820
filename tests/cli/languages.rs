//! The examples of all languages, which all count primes, in the same tests.
//!
//! The small examples are committed in `tests/guests/languages/`. `CAMPANILE_EXAMPLES` names another folder of
//! examples; `.ci/run` sets it to the folder where `examples/build` writes all of them, also those that contain a
//! language engine.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use campanile_tests::receiver::receiver;
use campanile_tests::{Backend, Place, run_empty_case};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::site::{CommandOutput, Site, be_plugins_folder, run, text};

/// One example, compiled.
struct Example {
    name: String,
    file: PathBuf,
    /// Whether the example exports `campanile:task`; otherwise it is a program that uses standard streams.
    typed: bool,
}

impl Example {
    fn of(file: PathBuf) -> Example {
        let name = file.file_stem().expect("a name").to_string_lossy();
        let mut example = Example {
            name: name.into_owned(),
            file,
            typed: false,
        };
        let report = example.report(temp_folder().path(), &json!({}), &[]);
        example.typed = report["package"]["form"] == "typed_component";
        example
    }

    /// Run the example in `folder`. Return the report.
    #[track_caller]
    fn report(&self, folder: &Path, context: &Value, more: &[&str]) -> Value {
        let context = context.to_string();
        let args = ["task".as_ref(), "run".as_ref(), self.file.as_os_str()];
        let options = ["--json", "--context", &context];
        let more = options.iter().chain(more).map(AsRef::as_ref);
        let output: CommandOutput = run(folder, args.into_iter().chain(more));
        let report = output.json();
        let code = if report["outcome"] == "succeeded" {
            0
        } else {
            1
        };
        assert_eq!(output.code, code, "{}: {output:?}", self.name);
        report
    }

    /// Return a copy of the example in a new folder, with this sidecar and an empty folder `reports`.
    fn with_sidecar(&self, sidecar: &str) -> (TempDir, Example) {
        let folder = temp_folder();
        let plugins = folder.path().join("plugins");
        std::fs::create_dir(&plugins).expect("a folder");
        let file = plugins.join("primes.wasm");
        std::fs::copy(&self.file, &file).expect("a copy");
        std::fs::write(plugins.join("primes.toml"), sidecar).expect("a sidecar");
        std::fs::create_dir(folder.path().join("reports")).expect("a folder");
        let copy = Example {
            name: self.name.clone(),
            file,
            typed: self.typed,
        };
        (folder, copy)
    }

    #[track_caller]
    fn assert_fails(&self, context: &Value, more: &[&str], kind: &str, expected: &str) {
        let report = self.report(temp_folder().path(), context, more);
        let message = text(&report["failure"]["message"]);
        assert_eq!(report["outcome"], kind, "{}: {report:#}", self.name);
        assert!(
            message.contains(expected),
            "{}: no `{expected}`: {message}",
            self.name
        );
    }
}

/// Return a sidecar that grants the folder `reports`.
fn grant_of_reports(access: &str) -> String {
    format!(
        "[[grants.directories]]\nhost = \"../reports\"\nguest = \"/reports\"\naccess = \"{access}\"\n"
    )
}

fn temp_folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Return all examples, sorted by name. Each has run once, so its compiled code is in the cache: a language engine
/// takes long to compile.
fn examples() -> &'static [Example] {
    static EXAMPLES: OnceLock<Vec<Example>> = OnceLock::new();
    EXAMPLES.get_or_init(|| {
        let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests/languages");
        let folder = std::env::var_os("CAMPANILE_EXAMPLES").map_or(committed, PathBuf::from);
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        let mut files: Vec<PathBuf> = entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "wasm")
            })
            .collect();
        assert!(!files.is_empty(), "no example is in {folder:?}");
        files.sort();
        files.into_iter().map(Example::of).collect()
    })
}

#[test]
fn each_example_returns_its_output_and_writes_one_report_per_slot() {
    for example in examples() {
        let (folder, copy) = example.with_sidecar(&grant_of_reports("write"));
        let context = json!({"below": 100_000, "report": "/reports/"});
        let report = copy.report(folder.path(), &context, &[]);
        let output = &report["output"];
        let slot = text(&output["slot"]);
        let expected = json!({
            "below": 100_000, "primes": 9_592, "is_recovery": false, "slot": slot, "attempt": 1,
        });
        assert_eq!(*output, expected, "{}: {report:#}", example.name);
        let written = folder
            .path()
            .join(format!("reports/primes-{}.json", slot.replace(':', "-")));
        let written = std::fs::read_to_string(written).expect("the report of the slot");
        let written: Value = serde_json::from_str(&written).expect("JSON");
        // The report has no values of its run, so another run of the slot writes the same.
        let expected = json!({"below": 100_000, "primes": 9_592, "slot": slot});
        assert_eq!(written, expected, "{}", example.name);
        if example.typed {
            let logs = report["logs"].to_string();
            assert!(
                logs.contains("9592 primes below 100000"),
                "{}: {logs}",
                example.name
            );
        }
    }
}

#[test]
fn each_example_refuses_a_context_of_the_wrong_type() {
    for example in examples() {
        let report = example.report(temp_folder().path(), &json!({"below": "many"}), &[]);
        let failure = &report["failure"];
        assert_eq!(failure["kind"], "failed", "{}: {report:#}", example.name);
        let message = text(&failure["message"]);
        assert!(
            message.contains("below") || message.contains("many"),
            "{}: {message}",
            example.name
        );
        match example.typed {
            true => assert_eq!(failure["retryable"], false, "{}: {report:#}", example.name),
            false => {
                // The exit of a component reports only success or failure, so the failure is retryable.
                let component = report["package"]["form"] == "command_component";
                let (code, retryable) = if component { (1, true) } else { (65, false) };
                let exit_code = &failure["details"]["exit_code"];
                assert_eq!(*exit_code, code, "{}: {report:#}", example.name);
                assert_eq!(failure["retryable"], retryable, "{}", example.name);
            }
        }
    }
}

#[test]
fn the_timeout_stops_each_example() {
    for example in examples() {
        let endless = json!({"rounds": 4_000_000_000_u32});
        example.assert_fails(&endless, &["--timeout", "400ms"], "timed_out", "400ms");
    }
}

#[test]
fn the_memory_limit_stops_each_example() {
    for example in examples() {
        let context = json!({"below": 500_000_000});
        example.assert_fails(
            &context,
            &["--memory", "48MiB"],
            "memory_exceeded",
            "48.0 MiB",
        );
    }
}

#[test]
fn each_example_fails_without_a_directory_and_a_note_proposes_the_grant() {
    for example in examples() {
        let context = json!({"report": "/reports"});
        let report = example.report(temp_folder().path(), &context, &[]);
        assert_eq!(report["outcome"], "failed", "{}", example.name);
        let failure = &report["failure"];
        match failure["note"].as_str() {
            Some(note) => assert!(
                note.contains("/reports") && note.contains("lies in no granted directory"),
                "{}: {note}",
                example.name
            ),
            // The examples in JavaScript and TypeScript look for the directory and open no path, so the host denies none.
            None => {
                let message = text(&failure["message"]);
                let opens_no_path = ["javascript-task", "typescript-task"];
                assert!(
                    opens_no_path.contains(&example.name.as_str())
                        && message.contains("/reports")
                        && message.contains("is not in a granted directory"),
                    "{}: {failure}",
                    example.name
                );
            }
        }
    }
}

#[test]
fn each_example_fails_to_write_to_a_read_only_directory_and_a_note_proposes_the_grant() {
    for example in examples() {
        let (folder, copy) = example.with_sidecar(&grant_of_reports("read"));
        let report = copy.report(folder.path(), &json!({"report": "/reports"}), &[]);
        let note = text(&report["failure"]["note"]);
        assert_eq!(report["outcome"], "failed", "{}", example.name);
        assert!(
            note.contains("cannot be written: /reports is granted for reading only; to allow it, write `access = \"write\"`"),
            "{}: {note}",
            example.name
        );
    }
}

#[test]
fn each_example_is_idempotent_at_every_crash_point() {
    for example in examples() {
        let sidecar = grant_of_reports("write") + "[[grants.http]]\nhost = \"hooks.example\"\n";
        let (folder, copy) = example.with_sidecar(&sidecar);
        let context = json!({"report": "/reports", "notify": "https://hooks.example/primes"});
        let context = context.to_string();
        let args = ["task".as_ref(), "check".as_ref(), copy.file.as_os_str()];
        let more = ["--idempotent", "--json", "--context", &context];
        let output = run(
            folder.path(),
            args.into_iter().chain(more.map(AsRef::as_ref)),
        );
        assert_eq!(output.code, 0, "{}: {output:?}", example.name);
        let idempotence = &output.json()["idempotence"];
        let effects = idempotence["effects"].as_array().expect("a list");
        // The effects: open the report, write it, and for a typed example the HTTP request.
        assert!(
            effects.len() >= 2 + usize::from(example.typed),
            "{}: {idempotence:#}",
            example.name
        );
        assert_eq!(
            idempotence["crashes"],
            2 * effects.len(),
            "{}",
            example.name
        );
    }
}

#[test]
fn each_typed_example_is_denied_a_host_without_a_grant() {
    let typed: Vec<&Example> = examples().iter().filter(|example| example.typed).collect();
    assert!(!typed.is_empty());
    for example in typed {
        let context = json!({"notify": "http://hooks.example/primes"});
        example.assert_fails(
            &context,
            &[],
            "denied",
            "POST http://hooks.example is not granted",
        );
    }
}

/// Run `example`, which posts its report to `port`, with a grant of `methods` there.
fn run_notify(example: &Example, port: u16, methods: &str) -> Value {
    let folder = temp_folder();
    let file = folder.path().join("primes.wasm");
    std::fs::copy(&example.file, &file).expect("a copy");
    let sidecar = format!(
        "[[grants.http]]\nscheme = \"http\"\nhost = \"127.0.0.1\"\nport = {port}\nmethods = {methods}\n"
    );
    std::fs::write(folder.path().join("primes.toml"), sidecar).expect("a sidecar");
    be_plugins_folder(folder.path());
    let copy = Example {
        name: example.name.clone(),
        file,
        typed: example.typed,
    };
    let url = format!("http://127.0.0.1:{port}/primes");
    copy.report(folder.path(), &json!({"notify": url}), &[])
}

#[test]
fn each_typed_example_posts_to_a_granted_host() {
    for example in examples().iter().filter(|example| example.typed) {
        let name = &example.name;
        let (port, requests) = receiver(&["204 No Content\r\n", "503 Service Unavailable\r\n"]);
        let report = run_notify(example, port, "[\"POST\"]");
        assert_eq!(report["outcome"], "succeeded", "{name}: {report:#}");
        let request = requests.try_recv().expect("a request");
        assert_eq!(request.line, "POST /primes HTTP/1.1", "{name}");
        let head = request.head;
        assert!(head.contains("\r\nidempotency-key: "), "{name}: {head}");
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        for key in ["below", "primes", "slot"] {
            assert_eq!(body[key], report["output"][key], "{name}: {body}");
        }
        assert_eq!(body["primes"], 168, "{name}: {body}");

        let report = run_notify(example, port, "[\"POST\"]");
        requests.try_recv().expect("a second request");
        assert_eq!(report["outcome"], "failed", "{name}: {report:#}");
        assert_eq!(report["failure"]["retryable"], true, "{name}: {report:#}");

        // Without a grant of the method no request is sent: this port is closed.
        let report = run_notify(example, 1, "[\"GET\"]");
        assert_eq!(report["outcome"], "denied", "{name}: {report:#}");
        let message = text(&report["failure"]["message"]);
        assert!(
            message.contains("POST http://127.0.0.1:1 is not granted"),
            "{name}: {message}"
        );
    }
}

/// Return a site with all examples, each with this sidecar.
fn site_with_all(place: Place, sidecar: &str) -> Site {
    let site = Site::new(place);
    for example in examples() {
        let file = site.plugin(&format!("{}.wasm", example.name));
        std::fs::copy(&example.file, file).expect("a copy");
    }
    write_sidecars(&site, sidecar);
    site
}

fn write_sidecars(site: &Site, sidecar: &str) {
    for example in examples() {
        site.sidecar(&example.name, sidecar);
    }
}

#[test]
fn each_example_runs_on_its_schedule() {
    run_empty_case(Backend::Sqlite, async |place| {
        let site = site_with_all(place, "[[schedules]]\nevery = \"2s\"\n");
        let _host = site.serve();
        for Example { name, .. } in examples() {
            let launch = site.wait_for_launch(name, |row| row["status"] == "succeeded");
            let run = site.run_of(&launch);
            let output = &run["tasks"][0]["output"];
            assert_eq!(output["primes"], 168, "{name}: {run:#}");
            assert_eq!(output["slot"], launch["scheduled_time"], "{name}: {run:#}");
        }
    });
}

#[test]
fn each_example_sees_is_recovery_after_the_host_is_killed() {
    run_empty_case(Backend::Sqlite, async |place| {
        let site = site_with_all(place, "schedules = []\n[context]\nrounds = 4000000000\n");
        let mut host = site.serve();
        let mut launches = Vec::new();
        for Example { name, .. } in examples() {
            let never = ["--at", "2099-01-01T00:00:00Z"];
            site.ok(["schedule", "add", name, "--package", name]
                .into_iter()
                .chain(never));
            let launch = site.trigger(name, &json!({}));
            site.wait_for_launch(name, |row| {
                row["id"] == launch && row["status"] == "running"
            });
            launches.push(launch);
        }
        host.kill();
        // The call of a task reads the context of the current sidecar.
        write_sidecars(&site, "schedules = []\n[context]\nrounds = 1\n");
        let _host = site.serve();
        for (Example { name, .. }, launch) in examples().iter().zip(&launches) {
            let launch = site.wait_until_ended(name, launch);
            assert_eq!(launch["status"], "succeeded", "{name}: {launch:#}");
            assert_eq!(launch["recoveries"], 1, "{name}: {launch:#}");
            let run = site.run_of(&launch);
            let output = &run["tasks"][0]["output"];
            assert_eq!(output["is_recovery"], true, "{name}: {run:#}");
            assert_eq!(output["slot"], launch["scheduled_time"], "{name}: {run:#}");
        }
    });
}
