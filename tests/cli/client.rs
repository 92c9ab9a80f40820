//! `--server`: each command prints by the API of a host what it prints with the database, and ends with the same code.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use campanile_tests::{Backend, Place, fresh_place, on_both_empty};
use serde_json::json;

use crate::api::Api;
use crate::site::{CommandOutput, Site, eventually, run_until_exit, text};

on_both_empty!(
    a_command_that_reads_prints_the_same,
    a_command_that_changes_prints_the_same,
    what_is_followed_is_printed_the_same,
    a_role_and_a_token_are_needed,
);

/// How often the record may change while the output of one command is compared.
const RECORD_CHANGES_MAX: usize = 5;

impl Api {
    /// Return a command that asks this host, without the database.
    pub fn client<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.site.command(args);
        command
            .env_remove("CAMPANILE_DATABASE_URL")
            .env("CAMPANILE_SERVER", format!("http://{}", self.address))
            .env("CAMPANILE_TOKEN", &self.token);
        command
    }

    pub fn ask<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> CommandOutput {
        run_until_exit(&mut self.client(args))
    }
}

fn parts(output: CommandOutput) -> (i32, String, String) {
    (output.code, output.stdout, output.stderr)
}

/// Return a text without times, ids, and other values that differ between two moments or two hosts.
fn still(text: &str) -> String {
    let mut still = String::new();
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && !"-:.".contains(c)) {
        let core = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let is_time = core.len() >= 20 && core.ends_with('Z') && core.as_bytes()[10] == b'T';
        let is_id = core.len() == 36 && core.matches('-').count() == 4;
        match is_time || is_id {
            true => {
                still += if is_time { "TIME" } else { "ID" };
                still += &word[core.len()..];
            }
            false => still += word,
        }
    }
    still
}

/// Does the same, leaving out how far a backfill had come, which depends on the moment of each reading.
fn without_progress(text: &str) -> String {
    let lines = still(text);
    let lines = lines.lines().filter(|line| !line.starts_with("running: "));
    Vec::from_iter(lines).join("\n")
}

/// Check that both outputs are the same. When the host changed the record between the two, compare again.
#[track_caller]
fn assert_same<T: PartialEq + std::fmt::Debug>(
    on_database: impl Fn() -> T,
    by_api: impl Fn() -> T,
    args: &[&str],
) {
    let mut wanted = on_database();
    for _ in 0..RECORD_CHANGES_MAX {
        let found = by_api();
        if found == wanted {
            return;
        }
        let later = on_database();
        assert_ne!(later, wanted, "{args:?} by the API: {found:?}");
        wanted = later;
    }
    panic!("{args:?} printed something else on the database each time, last {wanted:?}");
}

/// Prepare a record with something of each kind. Return the host, and the id of a launch that failed.
fn with_record(place: Place) -> (Api, String) {
    // With a longer lease, a slow host looks healthy all the time.
    let api = Api::start(place, "[recovery]\nlease = '60s'\n");
    for (name, task) in [("a", "ok"), ("b", "fail_permanent"), ("c", "echo")] {
        api.add(name, task);
    }
    let site = &api.site;
    site.add(
        "hashed",
        "ok",
        &["--cron", "H H * * *", "--tz", "Europe/Paris"],
    );
    site.add("after", "ok", &["--after-completion", "8760h"]);
    let every = ["--every", "36h", "--anchor", "2026-01-01T00:00:00Z"];
    site.add("many", "ok", &[&every[..], &["--jitter", "2s"]].concat());
    site.ok([
        "schedule", "pause", "many", "--note", "holiday", "--by", "ada",
    ]);
    let slot = text(&site.json(["schedule", "next", "hashed"])[1]);
    site.ok(["schedule", "skip", "hashed", &slot]);
    let mut failed = String::new();
    for name in ["a", "b", "c"] {
        let context = json!({"day": 1.1, "text": "é\n"});
        failed = match name {
            "b" => site.trigger(name, &context),
            _ => {
                api.end_of(&site.trigger(name, &context));
                failed
            }
        };
    }
    api.end_of(&failed);
    let span = [
        "--from",
        "2026-01-01T00:00:00Z",
        "--to",
        "2026-01-04T00:00:00Z",
    ];
    let backfill = ["schedule", "backfill", "hashed", "--by", "ada"];
    site.ok([&backfill[..], &span].concat());
    site.ok(["alert", "silence", "b*", "--for", "2h", "--note", "known"]);
    site.ok([
        "token",
        "create",
        "reader",
        "--role",
        "viewer",
        "--expires",
        "90d",
    ]);
    (api, failed)
}

async fn a_command_that_reads_prints_the_same(place: Place) {
    let (api, failed) = with_record(place);
    let site = &api.site;
    let run = text(&site.json(["run", "show", &failed])["id"]);
    let second = text(&site.json(["launch", "list"])[1]["id"]);
    let backfill = text(&site.json(["backfill", "list"])[0]["id"]);
    let silence = text(&site.json(["alert", "silences"])[0]["id"]);
    let now = text(&site.json(["launch", "show", &failed])["decided_at"]);
    let other = json!({"first": "ab".repeat(32), "number": 1, "until": "2026-01-01T00:00:00Z", "hash": "cd".repeat(32)});
    std::fs::write(site.folder().join("other.json"), other.to_string()).expect("a checkpoint");
    for command in [
        // First, because nothing is sealed yet.
        "audit verify",
        "audit verify --from 2026-01-01 --to 2026-01-02",
        "audit verify --from 2026-01-02 --to 2026-01-01",
        "audit verify --from tomorrow",
        "audit verify --checkpoint none.json",
        "audit verify --checkpoint other.json",
        "audit export early.json",
        "schedule list",
        "schedule list --limit 2",
        "schedule list --limit 2 --after b",
        "schedule show a",
        "schedule show hashed",
        "schedule show many",
        "schedule show after",
        "schedule show none",
        "schedule show ..",
        "schedule next hashed -n 4",
        "schedule next hashed --calendar --months 2 --after 2027-01-01T00:00:00Z",
        "schedule next many --after 2027-01-01T00:00:00Z",
        "schedule next after",
        "schedule next none",
        "schedule why a",
        "schedule why hashed --at 2026-01-02T12:00:00Z",
        "schedule why hashed --at soon",
        "schedule why none",
        "launch list",
        "launch list --limit 3",
        "launch list --status failed,skipped",
        "launch list --kind backfill --schedule hashed",
        "launch list --reason failed",
        "launch list --package guests --since 1h --until 0s",
        "launch list --schedule none",
        &format!("launch list --after {second}"),
        &format!("launch list --since {now}"),
        &format!("launch show {failed}"),
        &format!("launch show {run}"),
        "launch show 0",
        "launch show 00000000",
        "run list",
        "run list --schedule b",
        "run list --schedule none",
        &format!("run show {failed}"),
        &format!("run show {second}"),
        &format!("run logs {failed}"),
        &format!("run logs {failed} --follow"),
        &format!("run logs {second} --follow"),
        "run logs 00000000 --follow",
        "event list",
        "event list --limit 3",
        "backfill list",
        &format!("backfill show {backfill}"),
        &format!("backfill show {backfill} --follow"),
        &format!("backfill show {silence}"),
        "schedule backfill hashed --from 2026-02-01 --to 2026-03-01 --dry-run",
        "schedule backfill hashed --from 2026-03-01 --to 2026-02-01 --dry-run",
        "package list",
        "package show guests",
        "package show gests",
        "package diff guests",
        "alert list --all",
        "alert deliveries",
        "alert silences",
        &format!("alert show {silence}"),
        "alert test none",
        "outbox list",
        "outbox list --status dead",
        &format!("outbox show {silence}"),
        "token list",
        "token list --all",
        "health",
        "stats --by day",
        "stats --by package --schedule a",
        "stats --schedule none",
        "plan --from 2020-01-01T00:00:00Z",
        "plan --schedule none",
    ] {
        let words = Vec::from_iter(command.split(' '));
        for json in [&[][..], &["--json"]] {
            let args = [&words[..], json].concat();
            let on_database = || parts(site.run(args.iter().copied()));
            assert_same(on_database, || parts(api.ask(args.iter().copied())), &args);
        }
    }
    std::fs::write(
        site.folder().join("other.toml"),
        "[[schedules]]\nname = \"new\"\npackage = \"guests\"\ntask = \"ok\"\nevery = \"5h\"\n",
    )
    .expect("a schedules file");
    // Their times advance.
    for command in [
        "host list",
        "host list --all",
        "stats",
        "stats --since 1h --schedule b",
        "stats --by schedule",
        "stats --by package",
        "plan",
        "plan --schedule hashed --rows",
        "plan --diff other.toml --rows",
        "plan --diff none.toml",
    ] {
        let words = Vec::from_iter(command.split(' '));
        for json in [&[][..], &["--json"]] {
            let args = [&words[..], json].concat();
            // Shares of the time, and charts of it, advance too.
            let lines = |output: CommandOutput| {
                let keep = |line: &&str| !line.contains("executions") && !line.contains('█');
                let still = [output.stdout, output.stderr].map(|text| {
                    Vec::from_iter(still(&text).lines().filter(keep).map(str::to_owned))
                });
                (output.code, still)
            };
            let on_database = || lines(site.run(args.iter().copied()));
            assert_same(on_database, || lines(api.ask(args.iter().copied())), &args);
        }
    }
}

async fn a_command_that_changes_prints_the_same(place: Place) {
    let other = fresh_place(place.backend).await;
    let [on_database, by_api] = [place, other].map(|place| {
        let api = Api::start(
            place,
            "[channels.ops]\nurl = \"http://127.0.0.1:9/x\"\nprivate = true\n",
        );
        for name in ["a", "long"] {
            api.add(name, if name == "a" { "ok" } else { "sleep" });
        }
        api.site.add("hourly", "ok", &["--cron", "0 * * * *"]);
        let of = |name: &str, more: &str| {
            format!("[[schedules]]\nname = '{name}'\npackage = 'guests'\ntask = 'ok'\n{more}\n")
        };
        for (file, text) in [
            ("one.toml", of("filed", "every = '5h'")),
            (
                "two.toml",
                of("filed", "every = '6h'") + &of("second", "cron = '0 3 * * *'"),
            ),
            (
                "refused.toml",
                of("filed", "every = '7h'") + &of("x", "every = '5h'").replace("guests", "gests"),
            ),
            ("taken.toml", of("hourly", "every = '7h'")),
            ("group.toml", of("filed", "every = '7h'\ngroup = 'db'")),
            ("broken.toml", of("filed", "evry = '7h'")),
            ("empty.toml", String::new()),
        ] {
            std::fs::write(api.site.folder().join(file), text).expect("a schedules file");
        }
        api
    });
    let run = |command: &str, last: &str| {
        let command = command.replace("LAST", last);
        let args = || command.split(' ');
        let outputs = [on_database.site.run(args()), by_api.ask(args())];
        let [wanted, found] = outputs.each_ref().map(|output| {
            (
                output.code,
                still(&output.stdout),
                without_progress(&output.stderr),
            )
        });
        assert_eq!(found, wanted, "{command}");
        outputs
    };
    for command in [
        "schedule add new --package guests --task ok --cron 5 * * * * --tz Europe/Paris",
        "schedule add new --package guests --task ok --every 5h --tag",
        "schedule add new --package guests --task ok --every 5h --anchor 2026-01-01T00:00:00Z",
        "schedule add new --package guests --task ok --every 5h",
        "schedule add bad! --package guests --every 5h",
        "schedule add x --package gests --every 5h",
        "schedule add x --package guests --every 5h --group db",
        "schedule edit new --jitter 30s --context {\"a\":1}",
        "schedule edit new --clear jitter --every 6h --json",
        "schedule edit new --jitter 30s --revision 1",
        "schedule edit none --jitter 30s",
        "schedule edit new",
        "schedule rename new newer",
        "schedule rename none newer",
        "schedule pause newer --note holiday",
        "schedule pause newer --json",
        "schedule pause none",
        "schedule resume newer --catch-up",
        "schedule resume newer",
        "schedule reset-cursor newer",
        "schedule skip hourly 2099-01-01T00:00:00Z",
        "schedule skip hourly 2099-01-01T00:00:01Z",
        "schedule skip hourly 2099-01-01T00:00:00Z --undo --json",
        "schedule remove newer",
        "schedule remove newer",
        "schedule trigger a --wait",
        "schedule trigger a --wait --context {\"x\":2}",
        "schedule trigger a --overlap skip",
        "schedule trigger none",
        "schedule trigger long --context {\"ms\":600000}",
        "schedule trigger long",
        "schedule backfill hourly --from 2026-01-01T00:00:00Z --to 2026-01-01T02:00:00Z",
        "schedule backfill hourly --from 2026-01-02T00:00:00Z --to 2026-01-02T02:00:00Z --detach",
        "schedule backfill hourly --from 2026-01-01T00:00:00Z --to 2026-01-01T02:00:00Z --id 01934f6e-6b00-7000-8000-000000000000 --force",
        "schedule backfill hourly --from 2026-01-01T00:00:00Z --to 2026-01-01T02:00:00Z --id 01934f6e-6b00-7000-8000-000000000000 --force",
        "schedule backfill hourly --from 2026-01-01T00:00:00Z --to 2026-01-01T03:00:00Z --id 01934f6e-6b00-7000-8000-000000000000",
        "schedule backfill hourly --from 2000-01-01 --to 2026-01-01",
        "backfill cancel 01934f6e-6b00-7000-8000-000000000000",
        "schedule check one.toml",
        "schedule check one.toml --json",
        "schedule reconcile one.toml --by ada",
        "schedule reconcile one.toml",
        "schedule check two.toml",
        "schedule check two.toml --json",
        "schedule check refused.toml",
        "schedule check refused.toml --json",
        "schedule reconcile refused.toml",
        "schedule check taken.toml",
        "schedule reconcile taken.toml",
        "schedule check group.toml",
        "schedule reconcile group.toml",
        "schedule check broken.toml",
        "schedule check none.toml",
        "schedule reconcile none.toml",
        "schedule reconcile two.toml --json",
        "schedule check empty.toml",
        "schedule reconcile empty.toml",
        "package approve guests",
        "package reject guests",
        "package rollback guests",
        "package remove guests",
        "alert silence long --for 2h",
        "alert test ops",
        "alert test none",
        "outbox retry 01934f6e-6b00-7000-8000-000000000000",
        "outbox discard 01934f6e-6b00-7000-8000-000000000000",
        "alert resolve 01934f6e-6b00-7000-8000-000000000000",
        "token create reader --role viewer --expires 90d --json",
        "token create reader --role viewer",
        "token revoke reader",
        "token revoke reader",
        "host drain none",
    ] {
        // The secret of a token is another each time.
        if command.contains("create reader --role viewer --expires") {
            let args = || command.split(' ');
            let outputs = [on_database.site.run(args()), by_api.ask(args())];
            let [wanted, found] = outputs.map(|output| {
                let mut token = output.json();
                assert!(text(&token["secret"]).starts_with("cmp_"));
                token["secret"] = json!("");
                still(&token.to_string())
            });
            assert_eq!(found, wanted);
            continue;
        }
        run(command, "");
    }
    // The running launch, by its own id on each side.
    let sides = [&on_database, &by_api].map(|api| {
        let launches = api.site.launches("long");
        text(&launches[0]["id"])
    });
    for command in [
        "run cancel LAST --grace 200ms",
        "run cancel LAST",
        "run retry LAST",
    ] {
        let outputs = [
            on_database
                .site
                .run(command.replace("LAST", &sides[0]).split(' ')),
            by_api.ask(command.replace("LAST", &sides[1]).split(' ')),
        ];
        let [wanted, found] =
            outputs.map(|output| (output.code, still(&output.stdout), still(&output.stderr)));
        assert_eq!(found, wanted, "{command}");
        if command.contains("grace") {
            for (api, id) in [(&on_database, &sides[0]), (&by_api, &sides[1])] {
                api.end_of(id);
            }
        }
    }
}

async fn what_is_followed_is_printed_the_same(place: Place) {
    let api = Api::start(place, "");
    api.add("echo", "echo");
    let mut following = api
        .client(["event", "list", "--follow", "--limit", "1", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a client");
    let mut lines = BufReader::new(following.stdout.take().expect("piped")).lines();
    // The newest event, and then each new one.
    let first = lines.next().expect("a line").expect("text");
    assert!(first.contains("schedule_added"), "{first}");
    api.site.ok(["schedule", "pause", "echo"]);
    let second = lines.next().expect("a line").expect("text");
    assert!(second.contains("schedule_paused"), "{second}");
    let _ = following.kill();
    let _ = following.wait();
    api.site.ok(["schedule", "resume", "echo"]);
    let launch = api.site.trigger("echo", &json!({"a": 1}));
    api.end_of(&launch);
    for json in [&[][..], &["--json"]] {
        let args = [&["run", "logs", &launch, "--follow"][..], json].concat();
        let by_api = parts(api.ask(args.iter().copied()));
        assert_eq!(by_api, parts(api.site.run(args)), "{launch}");
    }
}

async fn a_role_and_a_token_are_needed(place: Place) {
    let api = Api::start(place, "");
    let secret = text(
        &api.site
            .json(["token", "create", "reader", "--role", "viewer"])["secret"],
    );
    let with = |token: &str, command: &str| {
        let args = command.split(' ').chain(["--token", token]);
        run_until_exit(&mut api.client(args))
    };
    assert_eq!(with(&secret, "schedule list").code, 0);
    with(&secret, "host drain a").assert_refused(&["needs the role operator", "hint: "]);
    let file = api.site.folder().join("secret");
    std::fs::write(&file, &secret).expect("a file");
    let at_file = format!("@{}", file.display());
    with(&at_file, "schedule list").assert_refused(&["other users can read", "chmod 600"]);
    with("cmp_short", "schedule list").assert_refused(&["--token: that is no token"]);
    let wrong = format!("cmp_{}", "A".repeat(43));
    with(&wrong, "schedule list").assert_refused(&["the token is wrong", "campanile token create"]);
    let mut without = api.client(["schedule", "list"]);
    run_until_exit(without.env_remove("CAMPANILE_TOKEN"))
        .assert_refused(&["the request has no token", "--token or CAMPANILE_TOKEN"]);
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(2 << 20));
    std::fs::write(api.site.folder().join("large.json"), large).expect("a file");
    with(&secret, "schedule trigger a --context @large.json").assert_refused(&[
        "the request has 2.0 MiB, and the API takes 1MiB",
        "--database",
    ]);
    for (command, instead) in [
        ("serve", "a host opens its database"),
        ("db status", "run it with --database"),
        ("doctor", "`campanile health` asks the host itself"),
        ("bench launches", "leave --server out"),
        ("selftest", "leave --server out"),
        ("schedule import crontab x", "campanile schedule reconcile"),
        ("stats --prometheus", "read `/metrics` of the host"),
    ] {
        let refused = api.ask(command.split(' '));
        let needed = "needs the database, and does not work with --server";
        refused.assert_refused(&[needed, "hint: ", instead]);
    }
    with(&secret, "audit verify").assert_refused(&["needs the role admin", "hint: "]);
    // On a busy machine the first rows may be old enough to be sealed by now.
    let exported = with(&secret, "audit export x.json");
    let is_unsealed = exported.stderr.contains("nothing is sealed yet");
    assert!(exported.code == 0 || is_unsealed, "{exported:?}");
    let server = format!("http://{}", api.address);
    for command in [
        "cron next --every 5m",
        "config check",
        "task run x.wasm",
        "man",
    ] {
        let args = command.split(' ').chain(["--server", &server]);
        api.ask(args)
            .assert_refused(&["works on this machine, and not with --server"]);
    }
    // The variable is for other commands.
    assert_eq!(api.ask(["cron", "next", "--every", "5m"]).code, 0);
    let mut both = api.client(["schedule", "list"]);
    run_until_exit(both.env("CAMPANILE_DATABASE_URL", "sqlite:x.db"))
        .assert_refused(&["are both set"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_needs_no_token() {
    let site = Site::with_guests(fresh_place(Backend::Sqlite).await);
    let host = site.serve_with(&["--listen", "unix:api.sock"]);
    host.wait_for_line("the API answers at unix:");
    let mut list = site.command(["package", "list", "--server", "unix:api.sock"]);
    let by_api = run_until_exit(list.env_remove("CAMPANILE_DATABASE_URL"));
    assert_eq!(parts(by_api), parts(site.run(["package", "list"])));
    let mut none = site.command(["package", "list", "--server", "unix:none.sock"]);
    run_until_exit(&mut none).assert_refused(&["unix:none.sock cannot be reached"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_must_be_trusted() {
    let site = Site::with_guests(fresh_place(Backend::Sqlite).await);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (site.folder().join("ca.pem"), site.folder().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    std::fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("permissions");
    site.configure("[server.tls]\ncertificate = \"ca.pem\"\nkey = \"key.pem\"\n");
    let host = site.serve_with(&["--listen", "127.0.0.1:0"]);
    let line = host.wait_for_line("the API answers at https://");
    let (_, rest) = line.split_once("https://127.0.0.1:").expect("an address");
    let (port, rest) = rest.split_once("/api/v1").expect("a path");
    let (_, file) = rest.split_once("its token is in ").expect("a file");
    let server = format!("https://localhost:{port}");
    let token = format!("@{}", site.folder().join(file.trim()).display());
    let list = || {
        let args = ["package", "list", "--server", &server, "--token", &token];
        site.command(args)
    };
    let trusted = eventually(|| {
        let output = run_until_exit(list().env("SSL_CERT_FILE", &certificate));
        if output.code == 0 {
            Ok(output)
        } else {
            Err(format!("{output:?}"))
        }
    });
    assert!(trusted.stdout.contains("guests"), "{trusted:?}");
    run_until_exit(&mut list()).assert_refused(&["cannot be reached", "invalid peer certificate"]);
}
