//! The arguments of programs that schedules and triggers give, in place of those of the sidecar.

use std::fs;

use campanile_tests::{HostProcess, Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, package};

on_both_empty!(
    a_schedule_and_a_trigger_give_arguments,
    files_give_arguments,
    arguments_that_cannot_be_used_are_refused_and_change_nothing,
    a_launch_whose_arguments_cannot_be_used_fails_once,
    arguments_for_a_package_that_became_a_component_fail_the_launch,
);

/// Adds a schedule that launches only when it is triggered.
const ADD: [&str; 7] = [
    "schedule",
    "add",
    "sync",
    "--package",
    "command",
    "--at",
    "2099-01-01T00:00:00Z",
];
const TRIGGER: [&str; 3] = ["schedule", "trigger", "sync"];
const UNCLEAR: &str = "argument 1 of the program holds `{{ contxt.a }}`: write `{{ context.KEY }}`";
const NO_URL: &str = "argument 1 of the program cannot be filled in: the context has no key `url`";

/// Serve a program whose sidecar gives an argument and a context, and a task component.
fn serve(place: Place) -> (Site, HostProcess) {
    let site = Site::new(place);
    site.copy_package("command");
    site.copy_package("hello");
    site.sidecar(
        "command",
        "[context]\nmode = 'raw'\n[program]\nargs = ['raw']\n",
    );
    let host = site.serve();
    (site, host)
}

/// Trigger the schedule `sync`. Return the launch at its end.
fn trigger(site: &Site, more: &[&str]) -> Value {
    let triggered = site.json([&TRIGGER[..], more].concat());
    let id = triggered["launch"].as_str().expect("an id");
    site.wait_until_ended("sync", id)
}

/// Return the arguments that the program got in a launch, which must have succeeded.
#[track_caller]
fn arguments(site: &Site, launch: &Value) -> Value {
    assert_eq!(launch["status"], "succeeded", "{launch:#}");
    site.run_of(launch)["tasks"][0]["output"]["arguments"].clone()
}

/// Return the arguments that `launch show` says.
fn shown(site: &Site, launch: &Value) -> Value {
    let id = launch["id"].as_str().expect("an id");
    site.json(["launch", "show", id])["args"].clone()
}

async fn a_schedule_and_a_trigger_give_arguments(place: Place) {
    let (site, _host) = serve(place);
    site.ok(ADD);
    let launch = trigger(&site, &[]);
    assert_eq!(arguments(&site, &launch), json!(["command", "raw"]));
    assert_eq!(shown(&site, &launch), Value::Null);

    let edit = ["schedule", "edit", "sync", "--arg={{ context.mode }}"];
    let edited = site.json(edit);
    assert_eq!(edited["args"], json!(["{{ context.mode }}"]));
    assert_eq!(
        site.json(["schedule", "show", "sync"])["args"],
        edited["args"]
    );
    let text = site.ok(["schedule", "show", "sync"]);
    assert!(text.contains("args          {{ context.mode }}"), "{text}");
    let launch = trigger(&site, &[]);
    assert_eq!(arguments(&site, &launch), json!(["command", "raw"]));
    assert_eq!(shown(&site, &launch), edited["args"]);

    // The keys of the trigger's context and those of the host count too, and no shell reads the values.
    let own = ["--arg", "raw", "--arg", "/{{ context.trigger }} $HOME"];
    let launch = trigger(&site, &own);
    assert_eq!(launch["status"], "failed", "there is no such file");
    let own = json!(["raw", "/{{ context.trigger }} $HOME"]);
    assert_eq!(shown(&site, &launch), own);
    let context = r#"{"do": "echo", "text": "a; $(b)", "n": 7}"#;
    let own = [
        "--arg={{ context.text }}",
        "--arg=-n{{ context.n }}",
        "--context",
        context,
    ];
    let launch = trigger(&site, &own);
    let filled = json!(["command", "a; $(b)", "-n7"]);
    assert_eq!(arguments(&site, &launch), filled);

    // A launch that is asked to run again keeps its arguments, whatever the schedule says by then.
    site.ok(["schedule", "edit", "sync", "--clear", "args"]);
    let id = launch["id"].as_str().expect("an id");
    let again = site.json(["run", "retry", id]);
    let again = site.wait_until_ended("sync", again["launch"].as_str().expect("an id"));
    assert_eq!(arguments(&site, &again), filled);
    let shown = site.json(["schedule", "show", "sync"]);
    assert_eq!(shown["args"], Value::Null);
}

async fn files_give_arguments(place: Place) {
    let site = Site::new(place);
    site.copy_package("command");
    let program = "[program]\nargs = ['lost']\n";
    let schedules = "[[schedules]]\nname = 'sync'\nat = 2099-01-01T00:00:00Z\nargs = ['raw']\n";
    site.sidecar("command", &format!("{program}{schedules}"));
    site.configure("schedules = 'schedules.toml'\n");
    let file = site.folder().join("schedules.toml");
    let text = schedules.replace("'sync'", "'file'\npackage = 'command'");
    fs::write(&file, &text).expect("a file");
    let _host = site.serve();
    for name in ["sync", "file"] {
        eventually(|| match site.run(["schedule", "show", name]).code {
            0 => Ok(()),
            _ => Err(format!("there is no schedule {name}")),
        });
        let launch = site.trigger_and_wait(name);
        assert_eq!(arguments(&site, &launch), json!(["command", "raw"]));
    }
    // A change of the file is shown before it is made.
    let changed = site.folder().join("changed.toml");
    fs::write(&changed, text.replace("['raw']", "['raw', '/x']")).expect("a file");
    let path = changed.to_str().expect("a path");
    let diff = site.run(["schedule", "check", path]);
    assert!(
        diff.stdout.contains(r#"["raw"]"#) && diff.stdout.contains(r#"["raw","/x"]"#),
        "{diff:?}"
    );
}

async fn arguments_that_cannot_be_used_are_refused_and_change_nothing(place: Place) {
    let (site, _host) = serve(place);
    let refused = |args: &[&str], expected: &str| {
        site.run(args.iter().copied()).assert_refused(&[expected]);
    };
    let no_program = "arguments are for a program with a main function, and the package `hello` is a typed_component";
    let greet = ["schedule", "add", "greet", "--package", "hello"];
    let greet = [&greet[..], &["--every", "1h", "--arg", "a"]].concat();
    refused(&greet, no_program);
    refused(&["schedule", "show", "greet"], "no schedule named `greet`");
    refused(&[&ADD[..], &["--arg", "{{ contxt.a }}"]].concat(), UNCLEAR);

    site.ok([&ADD[..], &["--arg", "{{ context.url }}"]].concat());
    refused(&TRIGGER, NO_URL);
    let edit = ["schedule", "edit", "sync"];
    refused(&[&edit[..], &["--arg", "{{ contxt.a }}"]].concat(), UNCLEAR);
    let both = [&edit[..], &["--arg", "a", "--clear", "args"]].concat();
    refused(&both, "--clear args and --arg contradict each other");
    let own = ["--arg", "raw", "--arg", "{{ context.bucket }}"];
    let second = NO_URL.replace("argument 1", "argument 2");
    refused(
        &[&TRIGGER[..], &own].concat(),
        &second.replace("url", "bucket"),
    );
    refused(
        &[&TRIGGER[..], &["--arg", "{{ contxt.a }}"]].concat(),
        UNCLEAR,
    );
    site.ok([
        "schedule",
        "edit",
        "sync",
        "--package",
        "hello",
        "--clear",
        "args",
    ]);
    refused(&[&TRIGGER[..], &["--arg", "a"]].concat(), no_program);
    assert_eq!(site.launches("sync"), Vec::<Value>::new());

    // Files are refused as a whole.
    let file = site.folder().join("schedules.toml");
    let path = file.to_str().expect("a path");
    let schedule = "[[schedules]]\nname = 'x'\nevery = '1h'\npackage = 'command'\nargs = ";
    for (args, expected) in [
        (
            "['a', '{{ b']",
            "schedules.toml:5:1: `schedules[0].args` holds `{{ b`",
        ),
        ("'a'", "`schedules[0].args` must be a list of texts"),
        (
            "['a', 1]",
            "`schedules[0].args` must hold only texts, and item 2 is",
        ),
    ] {
        fs::write(&file, format!("{schedule}{args}\n")).expect("a file");
        refused(&["schedule", "check", path], expected);
    }
    site.sidecar("hello", "[[schedules]]\nevery = '1h'\nargs = ['a']\n");
    let output = site.run(["task", "run", "plugins/hello.wasm"]);
    assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{output:?}");
    let expected = "refused: hello.toml: the schedule `hello` has `args`, which are for a program with a main function";
    output.assert_stderr(expected);
}

async fn a_launch_whose_arguments_cannot_be_used_fails_once(place: Place) {
    let (site, _host) = serve(place);
    let add = ["schedule", "add", "soon", "--package", "command"];
    let more = ["--every", "1s", "--max-launches", "1"];
    site.ok([&add[..], &more, &["--arg", "{{ context.url }}"]].concat());
    let launch = site.wait_for_launch("soon", |row| !row["finished_at"].is_null());
    assert_eq!(
        (&launch["status"], &launch["attempts"], &launch["failure"]),
        (&json!("failed"), &json!(1), &json!("refused")),
        "{launch:#}"
    );
    assert_eq!(launch["message"], NO_URL);
}

async fn arguments_for_a_package_that_became_a_component_fail_the_launch(place: Place) {
    let site = Site::new(place);
    site.copy_package("command");
    let _host = site.serve();
    site.ok([&ADD[..], &["--arg", "raw"]].concat());
    let soon = [
        "schedule",
        "add",
        "soon",
        "--package",
        "command",
        "--arg",
        "raw",
    ];
    let once = ["--every", "1s", "--max-launches", "1", "--disabled"];
    site.ok([&soon[..], &once].concat());
    let digest = || site.json(["package", "show", "command"])["digest"].clone();
    let before = digest();
    fs::copy(package("hello"), site.plugin("command.wasm")).expect("a copy");
    eventually(|| match digest() == before {
        true => Err("the new version is not active".to_owned()),
        false => Ok(()),
    });
    // A trigger is refused; no person waits for a slot, and its launch fails.
    let no_program = "arguments are for a program with a main function, and the package `command` is a typed_component";
    site.run(TRIGGER).assert_refused(&[no_program]);
    site.ok(["schedule", "resume", "soon"]);
    let launch = site.wait_for_launch("soon", |row| row["status"] != "skipped");
    let launch = site.wait_until_ended("soon", launch["id"].as_str().expect("an id"));
    assert_eq!(
        (&launch["status"], &launch["attempts"], &launch["failure"]),
        (&json!("failed"), &json!(1), &json!("refused")),
        "{launch:#}"
    );
    let message = launch["message"].as_str().unwrap_or_default();
    assert!(message.starts_with(no_program), "{launch:#}");
}
