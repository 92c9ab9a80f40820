//! The pages on which a schedule is added and launched with a context of its own, and the first page of an empty installation.

use std::fs;
use std::process::Command;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::api::Api;
use crate::browser::{Browser, HOSTILE, assert_is_page, encoded, event, send, token};
use crate::site::{Site, eventually, list, text};

on_both_empty!(
    a_schedule_is_added_with_the_fields_of_its_package,
    a_schedule_that_is_refused_keeps_what_was_typed,
    a_package_is_chosen_first,
    a_schedule_is_launched_with_a_context_of_its_own,
    an_empty_installation_adds_the_package_of_the_program,
    a_new_schedule_without_a_session_is_kept_and_filled_in_further,
);

const PAGE: &str = "/new-schedule";

/// A host that has the packages `guests` and `backup`, whose manifest has a schema of its context.
fn start(place: Place) -> Api {
    let site = Site::new(place);
    site.copy_package("guests");
    site.copy_package("backup");
    Api::of(site)
}

fn has(body: &str, parts: &[&str]) {
    for part in parts {
        assert!(body.contains(part), "no `{part}`: {body}");
    }
}

/// Return the command that a page names, split as a shell does.
fn command_words(body: &str) -> Vec<String> {
    let (_, rest) = body.split_once("Command: <code>").expect("a command");
    let command = rest.split("</code>").next().expect("an end");
    let command = command
        .replace("&quot;", "\"")
        .replace("&gt;", ">")
        .replace("&lt;", "<")
        .replace("&amp;", "&");
    let split = Command::new("sh")
        .args(["-c", &format!("printf '%s\\n' {command}")])
        .output();
    let words = String::from_utf8(split.expect("a shell").stdout).expect("UTF-8");
    words.lines().skip(1).map(str::to_owned).collect()
}

fn schedules(api: &Api) -> Vec<String> {
    let all = list(api.get("/api/v1/schedules")).into_iter();
    all.map(|schedule| text(&schedule["name"]))
        .filter(|name| name != "backup")
        .collect()
}

async fn a_schedule_is_added_with_the_fields_of_its_package(place: Place) {
    let api = start(place);
    let editor = Browser::of(&api, &token(&api, "editor"));
    has(
        &editor.page(&format!("{PAGE}?package=backup")),
        &[
            "name=\"context/keep\"",
            "The number of snapshots to keep; all by default. A whole number, 1 or more.",
            "name=\"policy.max_buffered\"",
            "option value=\"Europe/Paris\"",
            "data-preview=\"preview\"",
            "campanile schedule add NAME --package backup",
        ],
    );
    let mut fields = vec![
        ("package", "backup"),
        ("kind", "cron"),
        ("expression", "30 2 * * *"),
        ("timezone", "Europe/Paris"),
        ("context/source", "a b"),
        ("context/keep", "3"),
        ("policy.jitter", "30s"),
        ("policy.end_at", "2099-01-31 08:00"),
        ("exclude", "12-25\r\n01-01"),
        ("disabled", "yes"),
        ("do", "preview"),
    ];
    // The rule is shown while the name is missing.
    let preview = editor.post(PAGE, &fields);
    assert_eq!(preview.status, 200, "{preview:?}");
    assert_is_page(&preview);
    has(
        &preview.body,
        &[
            "02:30:00 +",
            "Europe/Paris",
            "Not yet: the schedule has no name",
            "value=\"3\"",
            ">\na b<",
            "checked",
        ],
    );
    assert_eq!(preview.body.matches("<ol><li>").count(), 1, "{preview:?}");
    fields.insert(0, ("name", "nightly"));
    let preview = editor.post(PAGE, &fields);
    assert!(!preview.body.contains("Not yet"), "{preview:?}");
    assert_eq!(schedules(&api), Vec::<String>::new());

    fields.retain(|(name, _)| *name != "do");
    fields.extend([("do", "add"), ("key", "0123456789abcdef")]);
    for _ in 0..2 {
        // The second time, the key has its answer.
        assert_eq!(editor.done(PAGE, &fields), "/schedules/nightly?done=add");
    }
    let added = api.get("/api/v1/schedules/nightly");
    assert_eq!(
        added["context"],
        json!({"source": "a b", "keep": 3}),
        "{added}"
    );
    assert_eq!(added["exclude"], json!(["12-25", "01-01"]), "{added}");
    assert_eq!(added["effective_policies"]["jitter"], "30s", "{added}");
    assert_eq!(
        added["effective_policies"]["end_at"], "2099-01-31T07:00:00Z",
        "{added}"
    );
    assert_eq!(added["state"], "paused", "{added}");
    has(
        &editor.page("/schedules/nightly?done=add"),
        &["The schedule is added."],
    );
    let recorded = event(&api, "schedule_added");
    assert_eq!(
        (&recorded["principal"], &recorded["channel"]),
        (&json!("editor"), &json!("page"))
    );

    // The command of the page adds the same.
    let mut words = command_words(&preview.body);
    let name = words.iter_mut().find(|word| *word == "nightly");
    "again".clone_into(name.expect("the name"));
    let words = Vec::from_iter(words.iter().map(String::as_str));
    let output = api.run(&words);
    assert_eq!(output.code, 0, "{words:?}: {output:?}");
    let again = api.get("/api/v1/schedules/again");
    for key in [
        "kind",
        "expression",
        "timezone",
        "exclude",
        "policies",
        "context",
        "state",
    ] {
        assert_eq!(again[key], added[key], "{key}");
    }
}

async fn a_schedule_that_is_refused_keeps_what_was_typed(place: Place) {
    let api = start(place);
    api.add("taken", "ok");
    let editor = Browser::of(&api, &token(&api, "editor"));
    let right = [
        ("name", "nightly"),
        ("package", "backup"),
        ("kind", "cron"),
        ("expression", "30 2 * * *"),
        ("timezone", "UTC"),
        ("context/snapshots", "kept as it was typed"),
    ];
    for (name, value, status, part) in [
        ("name", "", 400, "the schedule has no name"),
        ("name", "a b", 400, "cannot name a schedule"),
        ("name", "taken", 409, "exists already"),
        ("package", "backpu", 404, "did you mean `backup`?"),
        ("task", "nothing", 403, "nothing"),
        ("kind", "hourly", 400, "hourly"),
        ("expression", "", 400, "has no rule"),
        ("expression", "61 * * * *", 400, "61"),
        ("timezone", "Mars/Base", 400, "Mars/Base"),
        ("anchor", "noon", 400, "`anchor`"),
        ("exclude", "13-45", 400, "13-45"),
        ("args", "-v", 400, "`args` is no JSON"),
        ("policy.jitter", "often", 400, "`jitter`"),
        ("policy.max_buffered", "3", 400, "max_buffered"),
        ("policy.end_at", "noon", 400, "`end_at`"),
        ("policy.end_at", "2020-01-01", 400, "in the past"),
        ("policy.group", "nowhere", 400, "nowhere"),
        (
            "context/keep",
            "three",
            400,
            "`keep` is `three`, which is no number",
        ),
        ("context/keep", "0", 400, "the least is 1"),
        ("context/keep", HOSTILE, 400, "which is no number"),
        ("context/gone", "x", 400, "isn't in the package"),
        ("context", "{\"run_id\": 1}", 400, "run_id"),
    ] {
        let mut fields = right.to_vec();
        fields.retain(|(other, _)| *other != name);
        fields.extend([(name, value), ("do", "add")]);
        let answer = editor.post(PAGE, &fields);
        let body = &answer.body;
        assert_eq!(answer.status, status, "{name} {value}: {answer:?}");
        assert_is_page(&answer);
        assert!(body.contains(part), "{name} {value}: no `{part}`: {body}");
        // Without its package, there is no form.
        if name != "package" {
            has(body, &["kept as it was typed", "name=\"context/keep\""]);
        }
        assert_eq!(schedules(&api), ["taken"], "{name} {value}");
    }
    let mut fields = right.to_vec();
    fields.retain(|(name, _)| *name != "kind" && *name != "expression");
    fields.extend([
        ("kind", "at"),
        ("expression", "yesterday 9:00"),
        ("do", "add"),
    ]);
    let answer = editor.post(PAGE, &fields);
    assert_eq!(answer.status, 400, "{answer:?}");
    has(&answer.body, &["in the past", "yesterday 9:00"]);

    let viewer = Browser::of(&api, &token(&api, "viewer"));
    let shown = viewer.page(&format!("{PAGE}?package=backup"));
    assert!(
        shown.contains("needs the role editor") && !shown.contains("<textarea"),
        "{shown}"
    );
    let mut fields = right.to_vec();
    fields.push(("do", "add"));
    assert_eq!(viewer.post(PAGE, &fields).status, 403);
    assert_eq!(schedules(&api), ["taken"]);
}

async fn a_package_is_chosen_first(place: Place) {
    let api = start(place);
    let browser = Browser::of(&api, &token(&api, "editor"));
    has(
        &browser.page(PAGE),
        &[
            "href=\"/new-schedule?package=backup\"",
            "href=\"/new-schedule?package=guests\"",
        ],
    );
    for (path, link) in [
        ("/schedules", "href=\"/new-schedule\""),
        ("/packages/backup", "href=\"/new-schedule?package=backup\""),
    ] {
        has(&browser.page(path), &[link]);
    }
    assert_eq!(browser.get(&format!("{PAGE}?package=gests")).status, 404);
    // A package without a schema has one field for the context; one with tasks has a choice of them.
    has(
        &browser.page(&format!("{PAGE}?package=guests")),
        &[
            "Context, a JSON object",
            "<select name=\"task\">",
            "<option value=\"ok\">",
        ],
    );
    // Numbers keep their text.
    let fields = [
        ("name", "exact"),
        ("package", "guests"),
        ("task", "ok"),
        ("kind", "every"),
        ("expression", "1d"),
        ("context", "{\"a\": 1.10, \"b\": 12345678901234567890123}"),
        ("do", "add"),
    ];
    assert_eq!(browser.done(PAGE, &fields), "/schedules/exact?done=add");
    let shown = api.send("GET", "/api/v1/schedules/exact", &[], None).body;
    has(&shown, &["\"a\":1.10", "\"b\":12345678901234567890123"]);
    // A schedule may be called `new`.
    api.add("new", "ok");
    has(&browser.page("/schedules/new"), &["<h1>new</h1>"]);
}

async fn a_schedule_is_launched_with_a_context_of_its_own(place: Place) {
    let api = start(place);
    let schedule = json!({
        "name": "one", "package": "guests", "task": "echo", "kind": "at", "expression": "2099-01-01T00:00:00Z",
        "context": {"a": 1, "b": 2},
    });
    api.post("/api/v1/schedules", schedule);
    let page = "/schedules/one/run";
    let editor = Browser::of(&api, &token(&api, "editor"));
    has(
        &editor.page("/schedules/one"),
        &["href=\"/schedules/one/run\""],
    );
    has(
        &editor.page(page),
        &[
            "Run one with…",
            "campanile schedule trigger one --context",
            "as its schedule has it: ",
        ],
    );
    let to = editor.done(
        page,
        &[
            ("context", "{\"a\": 12345678901234567890}"),
            ("overlap", "allow"),
            ("do", "run_with"),
        ],
    );
    let launch = to
        .strip_prefix("/launches/")
        .and_then(|to| to.strip_suffix("?done=run_with"));
    let launch = launch.expect("a launch").to_owned();
    let ended = api.end_of(&launch);
    assert_eq!(ended["status"], "succeeded");
    let run = api.site.run_of(&ended);
    let output = &run["tasks"][0]["output"];
    assert_eq!(
        (&output["a"], &output["b"]),
        (&json!(12_345_678_901_234_567_890_u64), &json!(2))
    );
    for (name, value, part) in [
        ("context", "{", "the JSON object is no JSON"),
        ("overlap", "never", "never"),
    ] {
        let answer = editor.post(page, &[(name, value), ("do", "run_with")]);
        assert_eq!(answer.status, 400, "{answer:?}");
        assert_is_page(&answer);
        has(&answer.body, &[part]);
    }
    // An operator runs it as it is, and an editor with another context.
    let operator = Browser::of(&api, &token(&api, "operator"));
    has(&operator.page(page), &["needs the role editor"]);
    let answer = operator.post(page, &[("context", "{\"a\": 3}"), ("do", "run_with")]);
    assert_eq!(answer.status, 403, "{answer:?}");
    assert_eq!(editor.get("/schedules/nothing/run").status, 404);

    // The fields of a schema show what the schedule has.
    let schedule = json!({
        "name": "copy", "package": "backup", "kind": "at", "expression": "2099-01-01T00:00:00Z", "context": {"keep": 7},
    });
    api.post("/api/v1/schedules", schedule);
    has(
        &editor.page("/schedules/copy/run"),
        &[
            "name=\"context/keep\"",
            "Left empty: 7, as its schedule has it.",
        ],
    );
    let answer = editor.post(
        "/schedules/copy/run",
        &[("context/keep", "0"), ("do", "run_with")],
    );
    assert_eq!(answer.status, 400, "{answer:?}");
    has(&answer.body, &["the least is 1", "aria-invalid=\"true\""]);
}

async fn an_empty_installation_adds_the_package_of_the_program(place: Place) {
    let api = Api::of(Site::new(place));
    let approver = Browser::of(&api, &token(&api, "approver"));
    let first = approver.page("/");
    has(
        &first,
        &[
            "Nothing has run yet",
            "Add the package hello",
            "href=\"/new-schedule\"",
            "upload = true",
            "The folder has no package yet.",
        ],
    );
    assert!(
        !first.contains("Upload a .wasm") && !first.contains("id=\"timeline\""),
        "{first}"
    );
    let viewer = Browser::of(&api, &token(&api, "viewer"));
    let shown = viewer.page("/");
    assert!(
        shown.contains("needs the role approver") && !shown.contains("Add the package hello"),
        "{shown}"
    );
    assert_eq!(viewer.post("/", &[("do", "add_hello")]).status, 403);

    assert_eq!(
        approver.done("/", &[("do", "add_hello")]),
        "/?done=add_hello"
    );
    let hello = api.site.plugin("hello.wasm");
    assert_eq!(
        fs::read(hello).expect("a file"),
        fs::read(crate::site::package("hello")).expect("a file")
    );
    let uploaded = event(&api, "package_uploaded");
    assert_eq!(
        (&uploaded["subject"], &uploaded["principal"]),
        (&json!("hello"), &json!("approver"))
    );
    // The file that is there stays.
    let again = approver.post("/", &[("do", "add_hello")]);
    assert_eq!(again.status, 409, "{again:?}");
    assert_is_page(&again);
    has(&again.body, &["already"]);
    eventually(|| match list(api.get("/api/v1/launches")) {
        launches
            if launches
                .iter()
                .any(|launch| launch["status"] == "succeeded") =>
        {
            Ok(())
        }
        launches => Err(format!("{launches:?}")),
    });
    assert!(!approver.page("/").contains("Nothing has run yet"));
    // Other bytes need `upload = true`, also under this name.
    let answer = api.send(
        "POST",
        "/api/v1/packages/hello/upload",
        &[],
        Some(&Value::Null),
    );
    answer.assert_problem(403, "takes no uploads");
}

async fn a_new_schedule_without_a_session_is_kept_and_filled_in_further(place: Place) {
    let api = start(place);
    let fields = [
        ("name", "nightly"),
        ("package", "backup"),
        ("kind", "cron"),
        ("expression", "30 2 * * *"),
        ("context/keep", "3"),
        ("do", "add"),
    ];
    let ended = send(&api, "POST", PAGE, "", &encoded(&fields));
    assert_eq!(ended.status, 401, "{ended:?}");
    has(&ended.body, &["nothing was done", "it is kept"]);
    let (_, kept) = ended
        .body
        .split_once("name=\"kept\" value=\"")
        .expect("what was typed");
    let kept = kept
        .split('"')
        .next()
        .expect("an end")
        .replace("&amp;", "&");
    let login = [
        ("token", api.token.as_str()),
        ("next", PAGE),
        ("kept", &kept),
    ];
    let entered = send(&api, "POST", "/login", "", &encoded(&login));
    assert_eq!(entered.status, 200, "{entered:?}");
    assert_is_page(&entered);
    has(
        &entered.body,
        &[
            "nothing of it was done yet",
            "Send it now",
            "Back to the form",
            "context/keep",
        ],
    );
    let cookie = entered
        .header("set-cookie")
        .and_then(|cookie| cookie.split(';').next());
    let browser = Browser {
        api: &api,
        cookie: format!("Cookie: {}\r\n", cookie.expect("a cookie")),
    };
    let mut back = fields.to_vec();
    back.retain(|(name, _)| *name != "do");
    back.push(("do", "preview"));
    let form = browser.post(PAGE, &back);
    assert_eq!(form.status, 200, "{form:?}");
    has(
        &form.body,
        &["value=\"nightly\"", "name=\"context/keep\" value=\"3\""],
    );
    assert_eq!(schedules(&api), Vec::<String>::new());
    assert_eq!(browser.done(PAGE, &fields), "/schedules/nightly?done=add");
}
