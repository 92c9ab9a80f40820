//! Tasks in every language: the examples, which all count primes, driven the same way.
//!
//! The small ones are committed, in `tests/guests/languages/`. `CAMPANILE_EXAMPLES` names another folder, such as the one
//! in which `examples/build` leaves all of them, those with an engine of their own as well; `.ci/run` does so.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Duration;

use campanile_tests::{Backend, Place, run_empty_case};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::site::{Said, Site, run, text};

/// One example, compiled.
struct Example {
    name: String,
    file: PathBuf,
    /// The context goes in and the output comes out as `campanile:task` has it; not through the streams of a program.
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
        let report = example.report(nowhere().path(), &json!({}), &[]);
        example.typed = report["package"]["form"] == "typed_component";
        example
    }

    /// Run it by hand in `folder`; gives the report.
    #[track_caller]
    fn report(&self, folder: &Path, context: &Value, more: &[&str]) -> Value {
        let context = context.to_string();
        let args = ["task".as_ref(), "run".as_ref(), self.file.as_os_str()];
        let options = ["--json", "--context", &context];
        let more = options.iter().chain(more).map(AsRef::as_ref);
        let said: Said = run(folder, args.into_iter().chain(more));
        let report = said.json();
        let code = if report["outcome"] == "succeeded" {
            0
        } else {
            1
        };
        assert_eq!(said.code, code, "{}: {said:?}", self.name);
        report
    }

    /// The same in a folder of its own, with that text beside it as its sidecar and an empty folder `reports`.
    fn granted(&self, sidecar: &str) -> (TempDir, Example) {
        let here = nowhere();
        let file = here.path().join("primes.wasm");
        std::fs::copy(&self.file, &file).expect("a copy");
        std::fs::write(here.path().join("primes.toml"), sidecar).expect("a sidecar");
        std::fs::create_dir(here.path().join("reports")).expect("a folder");
        let granted = Example {
            name: self.name.clone(),
            file,
            typed: self.typed,
        };
        (here, granted)
    }

    #[track_caller]
    fn fails(&self, context: &Value, more: &[&str], kind: &str, expected: &str) {
        let report = self.report(nowhere().path(), context, more);
        let message = text(&report["failure"]["message"]);
        assert_eq!(report["outcome"], kind, "{}: {report:#}", self.name);
        assert!(
            message.contains(expected),
            "{}: no `{expected}`: {message}",
            self.name
        );
    }
}

/// A grant of the folder `reports`.
fn reports(access: &str) -> String {
    format!(
        "[[grants.directories]]\nhost = \"reports\"\nguest = \"/reports\"\naccess = \"{access}\"\n"
    )
}

fn nowhere() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// All that there are, in order of their names. Each has run once, so that its compiled code is in the cache: that of
/// an engine takes long.
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
fn each_gives_its_output_and_writes_one_report_for_a_slot() {
    for example in examples() {
        let (here, granted) = example.granted(&reports("write"));
        let context = json!({"below": 100_000, "report": "/reports/"});
        let report = granted.report(here.path(), &context, &[]);
        let output = &report["output"];
        let slot = text(&output["slot"]);
        let expected = json!({
            "below": 100_000, "primes": 9_592, "is_recovery": false, "slot": slot, "attempt": 1,
        });
        assert_eq!(*output, expected, "{}: {report:#}", example.name);
        let written = here
            .path()
            .join(format!("reports/primes-{}.json", slot.replace(':', "-")));
        let written = std::fs::read_to_string(written).expect("the report of the slot");
        let written: Value = serde_json::from_str(&written).expect("JSON");
        // Nothing of the run that wrote it: another one writes the same.
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
fn each_refuses_a_context_of_the_wrong_shape() {
    for example in examples() {
        let report = example.report(nowhere().path(), &json!({"below": "many"}), &[]);
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
                // A component's exit tells success from failure only, and not that it is no use to try again.
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
fn the_time_out_stops_each() {
    for example in examples() {
        let endless = json!({"rounds": 4_000_000_000_u32});
        example.fails(&endless, &["--timeout", "400ms"], "timed_out", "400ms");
    }
}

#[test]
fn the_memory_limit_stops_each() {
    for example in examples() {
        let context = json!({"below": 500_000_000});
        example.fails(
            &context,
            &["--memory", "48MiB"],
            "memory_exceeded",
            "48.0 MiB",
        );
    }
}

/// The kind that a task gives its failure in the details; a program and most tasks give none.
fn own_kind(report: &Value) -> &str {
    match report["failure"]["details"]["kind"] == "denied" {
        true => "denied",
        false => "failed",
    }
}

#[test]
fn each_fails_without_a_directory_and_a_note_proposes_the_grant() {
    for example in examples() {
        let context = json!({"report": "/reports"});
        let report = example.report(nowhere().path(), &context, &[]);
        assert_eq!(report["outcome"], own_kind(&report), "{}", example.name);
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
fn each_fails_to_write_to_a_read_only_directory_and_a_note_proposes_the_grant() {
    for example in examples() {
        let (here, granted) = example.granted(&reports("read"));
        let report = granted.report(here.path(), &json!({"report": "/reports"}), &[]);
        let note = text(&report["failure"]["note"]);
        assert_eq!(report["outcome"], own_kind(&report), "{}", example.name);
        assert!(
            note.contains("cannot be written: /reports is granted for reading only; to allow it, write `access = \"write\"`"),
            "{}: {note}",
            example.name
        );
    }
}

#[test]
fn each_may_crash_anywhere_and_be_run_again() {
    for example in examples() {
        let sidecar = reports("write") + "[[grants.http]]\nhost = \"bells.example\"\n";
        let (here, granted) = example.granted(&sidecar);
        let context = json!({"report": "/reports", "notify": "https://bells.example/primes"});
        let context = context.to_string();
        let args = ["task".as_ref(), "check".as_ref(), granted.file.as_os_str()];
        let more = ["--idempotent", "--json", "--context", &context];
        let said = run(here.path(), args.into_iter().chain(more.map(AsRef::as_ref)));
        assert_eq!(said.code, 0, "{}: {said:?}", example.name);
        let found = &said.json()["idempotence"];
        let effects = found["effects"].as_array().expect("a list");
        // It opens its report, writes it, and if it can tells of it.
        assert!(
            effects.len() >= 2 + usize::from(example.typed),
            "{}: {found:#}",
            example.name
        );
        assert_eq!(found["crashes"], 2 * effects.len(), "{}", example.name);
    }
}

#[test]
fn each_typed_one_is_denied_a_host_that_was_not_granted() {
    let typed: Vec<&Example> = examples().iter().filter(|example| example.typed).collect();
    assert!(!typed.is_empty());
    for example in typed {
        let context = json!({"notify": "http://bells.example/primes"});
        example.fails(
            &context,
            &[],
            "denied",
            "POST http://bells.example is not granted",
        );
    }
}

/// A server on this machine that answers one request with `status`; gives its port, and in the end the request.
fn server(status: &'static str) -> (u16, JoinHandle<String>) {
    let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = server.local_addr().expect("an address").port();
    let answers = move || {
        let (mut connection, _) = server.accept().expect("a connection");
        let mut request = Vec::new();
        // The report is the only object in it; a body without a length ends with an empty piece.
        while !request.ends_with(b"}") && !request.ends_with(b"0\r\n\r\n") {
            let mut bytes = [0; 4096];
            let count = connection.read(&mut bytes).expect("bytes");
            assert_ne!(count, 0, "the request has an end");
            request.extend(&bytes[..count]);
        }
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let _ = connection.write_all(answer.as_bytes());
        String::from_utf8(request).expect("text")
    };
    (port, std::thread::spawn(answers))
}

/// Run `example` with `methods` granted at `port`, to which it is to post its report.
fn notifying(example: &Example, port: u16, methods: &str) -> Value {
    let here = nowhere();
    let file = here.path().join("primes.wasm");
    std::fs::copy(&example.file, &file).expect("a copy");
    let sidecar = format!(
        "[[grants.http]]\nscheme = \"http\"\nhost = \"127.0.0.1\"\nport = {port}\nmethods = {methods}\n"
    );
    std::fs::write(here.path().join("primes.toml"), sidecar).expect("a sidecar");
    let granted = Example {
        name: example.name.clone(),
        file,
        typed: example.typed,
    };
    let url = format!("http://127.0.0.1:{port}/primes");
    granted.report(here.path(), &json!({"notify": url}), &[])
}

#[test]
fn each_typed_one_posts_to_a_host_that_was_granted() {
    for example in examples().iter().filter(|example| example.typed) {
        let name = &example.name;
        let (port, request) = server("204 No Content");
        let report = notifying(example, port, "[\"POST\"]");
        assert_eq!(report["outcome"], "succeeded", "{name}: {report:#}");
        let request = request.join().expect("a request");
        assert!(
            request.starts_with("POST /primes HTTP/1.1\r\n"),
            "{name}: {request}"
        );
        let (head, body) = request.split_once("\r\n\r\n").expect("a head");
        assert!(
            head.to_lowercase().contains("\r\nidempotency-key: "),
            "{name}: {head}"
        );
        let body = body
            .find('{')
            .zip(body.rfind('}'))
            .map(|(from, to)| &body[from..=to]);
        let body: Value = serde_json::from_str(body.expect("an object")).expect("JSON");
        for key in ["below", "primes", "slot"] {
            assert_eq!(body[key], report["output"][key], "{name}: {body}");
        }
        assert_eq!(body["primes"], 168, "{name}: {body}");

        let (port, request) = server("503 Service Unavailable");
        let report = notifying(example, port, "[\"POST\"]");
        request.join().expect("a request");
        assert_eq!(report["outcome"], "failed", "{name}: {report:#}");
        assert_eq!(report["failure"]["retryable"], true, "{name}: {report:#}");

        // Nobody is asked when another method is granted: this port is closed.
        let report = notifying(example, 1, "[\"GET\"]");
        assert_eq!(report["outcome"], "denied", "{name}: {report:#}");
        let message = text(&report["failure"]["message"]);
        assert!(
            message.contains("POST http://127.0.0.1:1 is not granted"),
            "{name}: {message}"
        );
    }
}

/// A site with all examples, and beside each a sidecar with that text.
fn site_with_all(place: Place, sidecar: &str) -> Site {
    let site = Site::new(place);
    for example in examples() {
        let file = site.plugin(&format!("{}.wasm", example.name));
        std::fs::copy(&example.file, file).expect("a copy");
    }
    say_in_sidecars(&site, sidecar);
    site
}

fn say_in_sidecars(site: &Site, sidecar: &str) {
    for example in examples() {
        site.sidecar(&example.name, sidecar);
    }
}

/// Serve; the packages are loaded first, which takes a while for eight of them.
fn serve(site: &Site) -> campanile_tests::HostProcess {
    let host = site.start(&[]);
    host.wait_for_line_within("serving", Duration::from_secs(120));
    host
}

#[test]
fn each_is_dropped_into_the_folder_and_run_by_its_schedule() {
    run_empty_case(Backend::Sqlite, async |place| {
        let site = site_with_all(place, "[[schedules]]\nevery = \"2s\"\n");
        let _host = serve(&site);
        for Example { name, .. } in examples() {
            let launch = site.launch_where(name, |row| row["status"] == "succeeded");
            let run = site.run_of(&launch);
            let output = &run["tasks"][0]["output"];
            assert_eq!(output["primes"], 168, "{name}: {run:#}");
            assert_eq!(output["slot"], launch["scheduled_time"], "{name}: {run:#}");
        }
    });
}

#[test]
fn each_is_told_of_its_recovery_when_the_host_was_killed() {
    run_empty_case(Backend::Sqlite, async |place| {
        let site = site_with_all(place, "schedules = []\n[context]\nrounds = 4000000000\n");
        let mut host = serve(&site);
        let mut launches = Vec::new();
        for Example { name, .. } in examples() {
            let never = ["--at", "2099-01-01T00:00:00Z"];
            site.ok(["schedule", "add", name, "--package", name]
                .into_iter()
                .chain(never));
            let launch = site.trigger(name, &json!({}));
            site.launch_where(name, |row| {
                row["id"] == launch && row["status"] == "running"
            });
            launches.push(launch);
        }
        host.kill();
        // The sidecar's part of a context is what it says when the task is called.
        say_in_sidecars(&site, "schedules = []\n[context]\nrounds = 1\n");
        let _host = serve(&site);
        for (Example { name, .. }, launch) in examples().iter().zip(&launches) {
            let launch = site.ended(name, launch);
            assert_eq!(launch["status"], "succeeded", "{name}: {launch:#}");
            assert_eq!(launch["recoveries"], 1, "{name}: {launch:#}");
            let run = site.run_of(&launch);
            let output = &run["tasks"][0]["output"];
            assert_eq!(output["is_recovery"], true, "{name}: {run:#}");
            assert_eq!(output["slot"], launch["scheduled_time"], "{name}: {run:#}");
        }
    });
}
