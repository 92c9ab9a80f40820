//! Mistakes from the whole command line. Each answer says what is wrong, where, and what to do next, and nothing changes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{CommandOutput, Site, eventually, text};

on_both_empty!(every_mistake_is_answered_with_its_cause_its_place_and_a_fix);

/// A command line, and what its answer contains: the cause, the place and the fix.
///
/// Words in single quotes are one argument, and a first word with `=` is a variable. `{launch}` is the id of a launch that has ended, `{short}` the
/// first digits of two, and `{running}` the id of a launch that runs.
type Mistake = (&'static str, [&'static str; 3]);

/// The beginning of `schedule add`, without the rule.
const ADD: &str = "schedule add new --package guests --task ok";

/// Commands that are refused: exit code 2.
#[rustfmt::skip]
const REFUSED: &[Mistake] = &[
    // Arguments.
    ("launch list --limt 3", ["unexpected argument", "'--limt'", "'--limit'"]),
    ("schedul list", ["unrecognized subcommand", "'schedul'", "'schedule'"]),
    ("schedule pause", ["required arguments were not provided", "<NAME>", "Usage: campanile schedule pause"]),
    ("{add}", ["required arguments were not provided", "--cron <EXPRESSION>", "--every <PERIOD>"]),
    ("{add} --every 1h --cron '0 1 * * *'", ["cannot be used with", "'--every <PERIOD>'", "'--cron <EXPRESSION>'"]),
    ("launch list --status sucess", ["'sucess'", "--status", "did you mean `succeeded`?"]),
    ("launch list --limit 0", ["'0'", "--limit", "1..=100000"]),
    ("launch list --since noon", ["'noon'", "--since", "`yesterday 14:00`"]),
    ("schedule why nightly --at nowhere", ["`nowhere` is not", "`at`", "`now-2h`"]),
    ("schedule next nightly --after noon", ["`noon` is not", "--after", "`yesterday 14:00`"]),
    ("stats --since often", ["'often'", "--since", "a span such as 2h"]),
    ("health --watch=0", ["'0'", "--watch", "from 0.1 to 86400"]),
    ("schedule list --watch 5", ["unexpected argument", "'5'", "'--watch=5'"]),
    ("completions tcsh", ["'tcsh'", "<SHELL>", "zsh"]),
    // Rules, times and zones.
    ("{add} --cron '* * * *'", ["expected 5 fields", "found 4", "30 2 * * *"]),
    ("{add} --cron '0 25 * * *'", ["`25`", "hour field at position 3", "write 0 to 23"]),
    ("{add} --cron '0 0 * * MOO'", ["`MOO`", "day-of-week field", "SUN to SAT"]),
    ("{add} --cron '0 0 31 2 *'", ["never fires", "month 2 has no day 31", "at most 29"]),
    ("cron next @dayly", ["not a known macro", "`@dayly`", "@daily"]),
    ("{add} --every 0s", ["zero", "`0s`", "at least 1s"]),
    ("{add} --every often", ["lacks a number", "`often`", "15m"]),
    ("{add} --at 2020-01-01T00:00:00Z", ["in the past", "2020-01-01T00:00:00Z", "give a later time"]),
    ("{add} --every 1h --tz Europe/Pariss", ["not known", "timezone `Europe/Pariss`", "Europe/Paris,"]),
    ("{add} --every 1h --tz PST", ["not known", "timezone `PST`", "America/Los_Angeles"]),
    ("{add} --every 1h --tz UTC+2", ["not known", "timezone `UTC+2`", "`Etc/GMT-2`, which is 2 hours ahead of UTC"]),
    ("cron next @daily --tz GMT+5:30", ["not known", "timezone `GMT+5:30`", "`Asia/Kolkata`"]),
    // Policies and contexts.
    ("{add} --every 1h --overlap sometimes", ["must be", "--overlap", "`buffer_one`"]),
    ("{add} --every 1h --jitter 2", ["not a duration", "--jitter", "\"30s\""]),
    ("{add} --every 1h --priority 11", ["is 11", "priority", "at most 9"]),
    ("{add} --every 1h --group none", ["not defined", "group `none`", "[groups.none]"]),
    ("{add} --every 1h --context [1]", ["must be a JSON object", "--context", r#"{"key": "value"}"#]),
    ("{add} --every 1h --context {,}", ["not JSON", "--context", "@FILE"]),
    ("{add} --every 1h --context @nowhere.json", ["does not exist", "--context nowhere.json", "correct the path"]),
    // Arguments and input of programs.
    ("schedule trigger argued", ["the context has no key `url`", "argument 1 of the program", "give it with --context"]),
    ("schedule edit argued --arg '{{ contxt.url }}'", ["holds `{{ contxt.url }}`", "argument 1 of the program", "write `{{ context.KEY }}`"]),
    ("schedule edit nightly --arg raw", ["for a program with a main function", "`guests`", "typed_component"]),
    ("task run plugins/command.wasm --stdin input.pipe", ["not a regular file", "--stdin input.pipe", "name a regular file"]),
    ("task run plugins/guests.wasm --task ok --dir plugins::/data", ["contains the plugins folder", "--dir plugins::/data", "only \"read\""]),
    ("task run plugins/guests.wasm --task ok --dir .::/data", ["contains the plugins folder", "--dir .::/data", "grant another directory"]),
    // Names and states.
    ("schedule add nightly --package guests --task ok --every 1h", ["exists already", "`nightly`", "choose another name"]),
    ("schedule add 'a b' --package guests --task ok --every 1h", ["cannot name a schedule", "`a b`", "letters, digits"]),
    ("schedule add new --package guest --every 1h", ["there is no package", "`guest`", "did you mean `guests`?"]),
    ("schedule add new --package guests --task ecco --every 1h", ["has no task", "`ecco`", "did you mean `echo`?"]),
    ("schedule show nightlly", ["there is no schedule", "`nightlly`", "did you mean `nightly`?"]),
    ("schedule remove zzz", ["there is no schedule", "`zzz`", "campanile schedule list"]),
    ("schedule resume nightly", ["not paused", "`nightly`", "campanile schedule show nightly"]),
    ("schedule pause nightly --until 2020-01-01", ["in the past", "2020-01-01T00:00:00Z", "give a later time"]),
    ("schedule edit nightly", ["nothing was given", "change", "such as --jitter 30s"]),
    ("schedule edit nightly --jitter 30s --clear jitter", ["contradict", "--clear jitter", "keep one"]),
    ("schedule edit nightly --revision 7 --jitter 30s", ["never had a revision 7", "`nightly`", "it is at revision 1"]),
    ("schedule skip nightly 2099-01-01T00:00:00Z", ["no future slot", "`nightly`", "2099-01-01T02:07:00Z"]),
    ("schedule backfill nightly --from 2026-02-02 --to 2026-02-01", ["end before it begins", "2026-02-02", "exchange"]),
    ("schedule backfill nightly --from 2098-01-01 --to 2098-01-02", ["in the future", "2098-01-01", "begin with a time that is past"]),
    ("schedule why nightly --at noon", ["not a time", "`at`", "2026-11-21T08:00:00Z"]),
    ("plan --from 2020-01-01T00:00:00Z", ["in the past", "`from`: 2020-01-01T00:00:00Z", "leave it out"]),
    // Ids.
    ("launch show zzz", ["no id of a launch or a run", "`zzz`", "at least 4"]),
    ("launch show 00000000", ["there is no launch", "00000000", "campanile launch list"]),
    ("launch show {short}", ["several launches", "nightly", "give more digits"]),
    ("run cancel {launch}", ["ended already", "{launch}", "campanile run retry"]),
    ("run retry {running}", ["has not ended", "{running}", "run cancel"]),
    ("backfill show abc", ["is no id", "`abc`", "--json"]),
    ("backfill show 01934f6e-6b00-7000-8000-000000000000", ["there is no backfill", "01934f6e", "campanile backfill list"]),
    // Packages.
    ("package show zzz", ["there is no package", "`zzz`", "campanile package list"]),
    ("package approve guests", ["no pending version", "`guests`", "campanile package show guests"]),
    ("package rollback guests --to zz", ["cannot be the digest", "`zz`", "at least 4"]),
    ("package remove guests", ["or had it when it was killed", "has guests.wasm", "delete the file there"]),
    ("package remove noop", ["schedules launch the package", "`of-noop`", "campanile schedule remove"]),
    ("package sign plugins/guests.wasm --key open.key", ["other users may use", "open.key", "chmod 600"]),
    ("package sign plugins/guests.wasm --key none.key", ["does not exist", "none.key", "campanile package keygen"]),
    ("package keygen open.key", ["exists already", "open.key", "name another file"]),
    ("task run nowhere.wasm", ["does not exist", "nowhere.wasm", "correct the path"]),
    ("task run text.wasm", ["not WebAssembly", "first bytes", "copy the .wasm that your build made"]),
    ("task run plugins/guests.wasm", ["several tasks", "plugins/guests.wasm", "--task"]),
    ("task run plugins/guests.wasm --task ok --dir data", ["no path of the task", "--dir data", "data::/data"]),
    ("task run plugins/guests.wasm --task ok --memory 1TiB", ["more than this host allows", "--memory 1TiB", "sandbox.memory_max"]),
    ("task run plugins/guests.wasm --task ok --sidecar limits.toml", ["unknown key `limits.timout`", "limits.toml:2:1", "`timeout`"]),
    ("new 1x", ["not a valid project name", "\"1x\"", "a letter first"]),
    ("new x --into full", ["not empty", "full", "--into"]),
    // Configurations.
    ("--config nowhere.toml stats", ["does not exist", "nowhere.toml", "--config"]),
    ("--config key.toml stats", ["unknown key `host.runs_mx`", "key.toml:2:1", "`runs_max`"]),
    ("--config type.toml stats", ["not a text", "type.toml:2:1", "a whole number"]),
    ("--config broken.toml stats", ["not TOML", "broken.toml:1:6", "expected `]`"]),
    ("--config group.toml stats", ["`groups.x.max`", "group.toml:2:1", "from 1 to 1000000"]),
    ("serve --plugins none", ["does not exist", "plugins folder none", "create it"]),
    ("CAMPANILE_LOG=campanile=loud serve", ["not a log filter", "CAMPANILE_LOG", "such as `debug`"]),
    // Databases.
    ("--database mysql://x stats", ["no database known here", "--database", "sqlite:PATH"]),
    ("--database sqlite:nowhere.db stats", ["there is no database", "nowhere.db", "campanile serve"]),
    ("--database sqlite:text.db stats", ["not a database", "sqlite:text.db", "restore the file from a backup"]),
    ("--database postgres://nobody@127.0.0.1:1/none stats", ["cannot be reached", "127.0.0.1:1", "check that the server runs"]),
    ("--database sqlite:other.db db backup text.db", ["exists", "text.db", "--force"]),
    ("--database sqlite:other.db db backup none/x.db", ["there is no folder", "none/x.db", "create it first"]),
    ("--database sqlite:other.db db restore other.db", ["a file of the database itself", "other.db", "name a backup"]),
    ("--database sqlite:new.db db restore text.db", ["not a database", "text.db", "give another one"]),
    // Files of schedules.
    ("schedule check key-of-schedule.toml", ["unknown key `schedules[0].crom`", "key-of-schedule.toml:4:1", "`cron`"]),
    ("schedule check none.toml", ["does not exist", "none.toml", "correct the path"]),
    ("schedule import crontab empty.crontab", ["no entry", "empty.crontab", "write minute, hour"]),
];

/// Commands that did something, and what they did or checked failed: exit code 1.
#[rustfmt::skip]
const FAILED: &[Mistake] = &[
    ("schedule check package.toml", ["there is no package", "refused x", "did you mean `guests`?"]),
    ("schedule import crontab hour.crontab --dry-run", ["`25`", "line 1", "write 0 to 23"]),
    ("--config bad.toml config check", ["not WebAssembly", "refused: text", "copy the .wasm that your build made"]),
    ("man --into text.db", ["cannot be written", "text.db", "name a folder"]),
];

/// The files of the mistakes.
const FILES: &[(&str, &str)] = &[
    ("text.wasm", "just text\n"),
    ("bad/text.wasm", "just text\n"),
    ("full/file", ""),
    ("open.key", "untrusted comment: x\n"),
    ("limits.toml", "[limits]\ntimout = '5s'\n"),
    ("key.toml", "[host]\nruns_mx = 3\n"),
    ("type.toml", "[host]\nruns_max = 'x'\n"),
    ("broken.toml", "[host\n"),
    ("group.toml", "[groups.x]\nmax = 0\n"),
    ("bad.toml", "plugins = 'bad'\n"),
    (
        "key-of-schedule.toml",
        "[[schedules]]\nname = 'x'\npackage = 'guests'\ncrom = '0 1 * * *'\n",
    ),
    (
        "package.toml",
        "[[schedules]]\nname = 'x'\npackage = 'guest'\ncron = '0 1 * * *'\n",
    ),
    ("empty.crontab", "# nothing\n"),
    ("hour.crontab", "0 25 * * * /usr/bin/true\n"),
];

/// Return a site with a schedule that has launched twice, a launch that runs, a schedule whose package has no file, the files of
/// the mistakes, and no running host;
/// the id of a launch that has ended, and the id of the running launch.
fn site(place: Place) -> (Site, String, String) {
    let site = Site::new(place);
    site.copy_package("guests");
    site.copy_package("command");
    site.copy_package("noop");
    let mut host = site.serve();
    site.add("nightly", "ok", &["--cron", "7 2 * * *"]);
    site.trigger_and_wait("nightly");
    let launch = text(&site.trigger_and_wait("nightly")["id"]);
    let argued =
        words("schedule add argued --package command --at 2099-01-01 --arg '{{ context.url }}'");
    site.ok(argued.iter().map(String::as_str));
    let of_noop = [
        "schedule",
        "add",
        "of-noop",
        "--package",
        "noop",
        "--at",
        "2099-01-01",
    ];
    site.ok(of_noop);
    fs::remove_file(site.plugin("noop.wasm")).expect("a file");
    eventually(|| match &site.json(["package", "show", "noop"])["state"] {
        state if state == "missing" => Ok(()),
        state => Err(state.to_string()),
    });
    site.add("long", "sleep", &["--at", "2099-01-01"]);
    let running = site.trigger("long", &json!({"ms": 600_000}));
    site.wait_for_launch("long", |row| row["status"] == "running");
    // A killed host leaves it running, as far as the record says.
    host.kill();
    for (file, content) in FILES {
        let path = site.folder().join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, content).expect("a file");
    }
    // Long enough for a header.
    fs::write(site.folder().join("text.db"), "no database ".repeat(100)).expect("a file");
    let pipe = std::process::Command::new("mkfifo")
        .arg(site.folder().join("input.pipe"))
        .status();
    assert!(pipe.expect("mkfifo").success());
    let open = fs::Permissions::from_mode(0o644);
    fs::set_permissions(site.folder().join("open.key"), open).expect("a mode");
    site.ok(["--database", "sqlite:other.db", "db", "migrate"]);
    (site, launch, running)
}

/// Return the words of a command line; those in single quotes are one.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Run a command line.
fn run(site: &Site, line: &str) -> CommandOutput {
    let mut words = words(line);
    let variable = words[0].split_once('=');
    let variable = variable.map(|(name, value)| (name.to_owned(), value.to_owned()));
    if variable.is_some() {
        words.remove(0);
    }
    let mut command = site.command(words);
    command.envs(variable);
    let output = command.output().expect("the program");
    CommandOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

/// Return everything on record that a command could have changed.
fn record(site: &Site) -> Vec<Value> {
    ["schedule", "launch", "run", "event", "package", "backfill"]
        .into_iter()
        .map(|table| site.json([table, "list"]))
        .collect()
}

/// Return the files of a folder with their content, without the database's own.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.display().to_string();
        if path.is_dir() {
            found.extend(files(&path));
            found.insert(name, Vec::new());
        } else if !path.is_file() {
            // Reading a pipe would wait for its writer.
            found.insert(name, Vec::new());
        } else if !name.contains(".db-")
            && !name.ends_with(".db.lock")
            && !name.ends_with("campanile.db")
        {
            found.insert(name, fs::read(&path).expect("a file"));
        }
    }
    found
}

async fn every_mistake_is_answered_with_its_cause_its_place_and_a_fix(place: Place) {
    assert!(REFUSED.len() + FAILED.len() >= 50);
    let (site, launch, running) = site(place);
    let short = &launch[..4];
    let fill = |text: &str| {
        let text = text.replace("{add}", ADD).replace("{launch}", &launch);
        let text = text.replace("{running}", &running);
        text.replace("{short}", short)
    };
    let on_record = record(&site);
    let before = files(site.folder());
    let refused = REFUSED.iter().map(|mistake| (2, mistake));
    let failed = FAILED.iter().map(|mistake| (1, mistake));
    let mut wrong = Vec::new();
    for (code, (line, parts)) in refused.chain(failed) {
        let output = run(&site, &fill(line));
        let answer = format!("{}{}", output.stdout, output.stderr);
        let missing: Vec<&&str> = parts
            .iter()
            .filter(|part| !answer.contains(&fill(part)))
            .collect();
        let is_raw = ["os error", "panicked", "DbError"]
            .into_iter()
            .any(|never| answer.contains(never) && code == 2 && !line.contains("postgres:"));
        if output.code != code || !missing.is_empty() || is_raw {
            wrong.push(format!("{line}\n  lacks {missing:?}: {output:?}"));
        }
        if files(site.folder()) != before {
            wrong.push(format!("{line}\n  changed a file: {output:?}"));
            break;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(json!(record(&site)), json!(on_record), "no partial change");
}
