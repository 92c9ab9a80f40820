//! A folder with a database and a plugins folder, and the program run in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use campanile_store::{Db, probe};
use campanile_tests::{HostProcess, LISTEN, PATIENCE, Place, campanile_binary};
use serde_json::Value;

/// The exit code and the output of one command.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl CommandOutput {
    /// Parse stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("stdout is not JSON ({error}): {self:?}"))
    }

    /// Assert that stdout contains `part`.
    #[track_caller]
    pub fn assert_stdout(&self, part: &str) {
        assert!(self.stdout.contains(part), "no `{part}`: {self:?}");
    }

    /// Assert that stderr contains `part`.
    #[track_caller]
    pub fn assert_stderr(&self, part: &str) {
        assert!(self.stderr.contains(part), "no `{part}`: {self:?}");
    }

    /// Assert that the command was refused: exit code 2, an empty stdout, and one error on stderr that contains all
    /// `parts`.
    #[track_caller]
    pub fn assert_refused(&self, parts: &[&str]) {
        assert_eq!(self.code, 2, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let errors = self.stderr.matches("error: ").count();
        assert_eq!(errors, 1, "not exactly one error: {self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "no `{part}`: {self:?}");
        }
        for never in ["panicked", "backtrace", "ScheduleError", "DbError"] {
            assert!(!self.stderr.contains(never), "{self:?}");
        }
    }
}

/// Return a command that runs the program in `folder`, without the variables of the caller that it reads.
pub fn command<S: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(campanile_binary());
    for name in [
        "CAMPANILE_DATABASE_URL",
        "CAMPANILE_SERVER",
        "CAMPANILE_TOKEN",
        "CAMPANILE_PLUGINS",
        "CAMPANILE_LOG",
        "TRACEPARENT",
    ] {
        command.env_remove(name);
    }
    command
        .args(args)
        .current_dir(folder)
        // The tests share one cache of compiled code, apart from the user's own.
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .env(LISTEN, "off")
        .stdin(Stdio::null());
    command
}

/// Run the program until it exits.
pub fn run<S: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = S>) -> CommandOutput {
    run_until_exit(&mut command(folder, args))
}

pub fn run_until_exit(command: &mut Command) -> CommandOutput {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    CommandOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
    }
}

/// Return the path of a committed package: a guest of the tests or a first-party package.
pub fn package(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guest = folder.join(format!("guests/{name}.wasm"));
    match guest.exists() {
        true => guest,
        false => folder.join(format!("../plugins/{name}.wasm")),
    }
}

/// Make `folder` the plugins folder of the commands that run in it, so that `task run` applies the sidecars there.
pub fn be_plugins_folder(folder: &Path) {
    std::fs::write(folder.join("campanile.toml"), "plugins = '.'\n").expect("a configuration");
}

/// A folder with a plugins folder and a database of its own, from which a host can serve.
pub struct Site {
    place: Place,
}

impl Site {
    /// Return a site without tables and packages.
    pub fn new(place: Place) -> Site {
        std::fs::create_dir(place.folder.path().join("plugins")).expect("a plugins folder");
        Site { place }
    }

    /// Return a site whose database has the package `guests`, without a running host.
    pub fn with_guests(place: Place) -> Site {
        let site = Site::new(place);
        site.copy_package("guests");
        let mut host = site.serve();
        stop(&mut host);
        site
    }

    /// Return a site with a host, and for each of `tasks` a schedule of the same name that launches only when it is triggered.
    pub fn with_tasks(place: Place, tasks: &[&str]) -> (Site, HostProcess) {
        let site = Site::new(place);
        site.copy_package("guests");
        let host = site.serve();
        for task in tasks {
            site.add(task, task, &["--at", "2099-01-01T00:00:00Z"]);
        }
        (site, host)
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn folder(&self) -> &Path {
        self.place.folder.path()
    }

    pub fn plugin(&self, file: &str) -> PathBuf {
        self.folder().join("plugins").join(file)
    }

    /// Copy a committed package into the plugins folder, as `cp` does.
    pub fn copy_package(&self, name: &str) {
        std::fs::copy(package(name), self.plugin(&format!("{name}.wasm"))).expect("a copy");
    }

    /// Run SQL on the database, without the program.
    pub async fn execute(&self, sql: &str) {
        let db = Db::open(&self.place.url).await.expect("the database");
        let mut tx = db.write().await.expect("a transaction");
        probe::execute(&mut tx, sql).await.expect("a statement");
        tx.commit().await.expect("a commit");
        db.close().await;
    }

    /// Write the configuration file.
    pub fn configure(&self, text: &str) {
        std::fs::write(self.folder().join("campanile.toml"), text).expect("a configuration");
    }

    /// Write a package's sidecar.
    pub fn sidecar(&self, name: &str, text: &str) {
        std::fs::write(self.plugin(&format!("{name}.toml")), text).expect("a sidecar");
    }

    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = command(self.folder(), args);
        command.env("CAMPANILE_DATABASE_URL", self.place.url.expose());
        command
    }

    /// Run one command until it exits.
    pub fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> CommandOutput {
        run_until_exit(&mut self.command(args))
    }

    /// Run one command, which must succeed. Return its stdout.
    #[track_caller]
    pub fn ok<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> String {
        let output = self.run(args);
        assert_eq!(output.code, 0, "{output:?}");
        output.stdout
    }

    /// Run one command with `--json`, which must succeed with an empty stderr. Return its JSON.
    #[track_caller]
    pub fn json<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Value {
        let output = self.run(args.into_iter().chain(["--json"]));
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
        output.json()
    }

    /// Run one command with `--json`, which must succeed with one warning on stderr. Return its JSON.
    #[track_caller]
    pub fn json_with_warning<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Value {
        let output = self.run(args.into_iter().chain(["--json"]));
        assert_eq!(output.code, 0, "{output:?}");
        assert_eq!(output.stderr.matches("warning: ").count(), 1, "{output:?}");
        output.json()
    }

    /// Run `schedule add` for a task of the package `guests`, with more arguments.
    pub fn run_add(&self, name: &str, task: &str, more: &[&str]) -> CommandOutput {
        let fixed = ["schedule", "add", name, "--package", "guests"];
        let task = ["--task", task];
        self.run(fixed.into_iter().chain(task).chain(more.iter().copied()))
    }

    /// Add a schedule of a task of the package `guests`. Return it as JSON.
    #[track_caller]
    pub fn add(&self, name: &str, task: &str, more: &[&str]) -> Value {
        let output = self.run_add(name, task, &[more, &["--json"]].concat());
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
        output.json()
    }

    /// Start a host, and wait until it serves.
    pub fn serve(&self) -> HostProcess {
        self.serve_with(&[])
    }

    /// Start a host with more arguments, and wait until it serves its packages.
    pub fn serve_with(&self, more: &[&str]) -> HostProcess {
        let host = self.start(more);
        host.wait_for_line("serving");
        host.wait_for_late_loads();
        host
    }

    /// Start a host with more arguments, and do not wait.
    pub fn start(&self, more: &[&str]) -> HostProcess {
        HostProcess::spawn(&mut self.command(["serve"].iter().chain(more)))
    }

    /// Return the launches of a schedule, oldest first.
    #[track_caller]
    pub fn launches(&self, schedule: &str) -> Vec<Value> {
        let shown = ["launch", "list", "--schedule", schedule, "--limit", "1000"];
        let mut rows = list(self.json(shown));
        rows.reverse();
        rows
    }

    /// Wait for a launch of a schedule for which `is_wanted` holds. Return the oldest one.
    #[track_caller]
    pub fn wait_for_launch(&self, schedule: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
        eventually(|| {
            let rows = self.launches(schedule);
            let found = rows.iter().find(|row| is_wanted(row)).cloned();
            found.ok_or_else(|| format!("the launches of {schedule}: {rows:#?}"))
        })
    }

    /// Trigger a schedule. Return the id of the launch.
    #[track_caller]
    pub fn trigger(&self, schedule: &str, context: &Value) -> String {
        let context = context.to_string();
        let fixed = ["schedule", "trigger", schedule, "--overlap", "allow"];
        let triggered = self.json([&fixed[..], &["--context", &context]].concat());
        text(&triggered["launch"])
    }

    /// Wait until the launch of that id has ended. Return it.
    #[track_caller]
    pub fn wait_until_ended(&self, schedule: &str, launch: &str) -> Value {
        self.wait_for_launch(schedule, |row| {
            row["id"] == launch && !row["finished_at"].is_null()
        })
    }

    /// Trigger a schedule and wait until the launch has ended. Return it.
    #[track_caller]
    pub fn trigger_and_wait(&self, schedule: &str) -> Value {
        let launch = self.trigger(schedule, &serde_json::json!({}));
        self.wait_until_ended(schedule, &launch)
    }

    /// Waits until nothing makes the installation unhealthy, returning its health: other work on the machine may have kept a
    /// host from its heartbeat.
    #[track_caller]
    pub fn wait_until_healthy(&self) -> Value {
        eventually(|| {
            let health = self.run(["health", "--json"]).json();
            match health["healthy"] == true {
                true => Ok(health),
                false => Err(format!("{health:#}")),
            }
        })
    }

    /// Return the run of a launch, with its task runs.
    #[track_caller]
    pub fn run_of(&self, launch: &Value) -> Value {
        self.json(["run", "show", &text(&launch["run_id"])])
    }
}

/// Stop a host as an init system does, and assert that it exits with 0.
#[track_caller]
pub fn stop(host: &mut HostProcess) {
    host.terminate();
    assert!(host.wait_exit().success());
}

/// Keeps calling `look` until it returns a value, giving up after [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(look: impl Fn() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let begun = Instant::now();
        match look() {
            Ok(found) => return found,
            Err(last) if Instant::now() > deadline => {
                panic!("no success within {PATIENCE:?}; the last state: {last}")
            }
            // Most looks are commands: on a busy machine they'd leave little of it to what they wait for.
            Err(_) => std::thread::sleep(Duration::from_millis(50).max(begun.elapsed() * 3)),
        }
    }
}

/// Return the items of a JSON array.
#[track_caller]
pub fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(list) => list,
        other => panic!("not a list: {other}"),
    }
}

/// Return a JSON string.
#[track_caller]
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => panic!("not a string: {other}"),
    }
}

/// Return an instant in milliseconds since 1970.
#[track_caller]
pub fn millis(value: &Value) -> i64 {
    let instant: campanile_model::clock::Timestamp = text(value).parse().expect("an instant");
    instant.micros() / 1000
}

/// Return the keys of a JSON object, sorted.
#[track_caller]
pub fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = match value {
        Value::Object(map) => map.keys().map(String::as_str).collect(),
        other => panic!("not an object: {other}"),
    };
    keys.sort_unstable();
    keys
}
