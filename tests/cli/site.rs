//! A folder with a database and a plugins folder, and the program run in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use campanile_store::{Db, probe};
use campanile_tests::{HostProcess, Place, campanile_binary};
use serde_json::Value;

/// How long a test waits for something that takes a second or two on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What one command did.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// What stdout holds, which must be JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("stdout is not JSON ({error}): {self:?}"))
    }

    /// Require a refusal: exit code 2, nothing but talk, one sentence that holds every one of `parts`.
    #[track_caller]
    pub fn refused(&self, parts: &[&str]) {
        assert_eq!(self.code, 2, "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let sentences = self.stderr.matches("error: ").count();
        assert_eq!(sentences, 1, "not one sentence: {self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "no `{part}`: {self:?}");
        }
        for never in ["panicked", "backtrace", "ScheduleError", "DbError"] {
            assert!(!self.stderr.contains(never), "{self:?}");
        }
    }
}

/// The program, to be run in `folder` without anything of the caller's environment that it reads.
pub fn command<S: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(campanile_binary());
    for name in [
        "CAMPANILE_DATABASE_URL",
        "CAMPANILE_PLUGINS",
        "CAMPANILE_LOG",
    ] {
        command.env_remove(name);
    }
    command
        .args(args)
        .current_dir(folder)
        // Compiled code is shared by the tests, and kept out of the user's own cache.
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null());
    command
}

/// Run the program to its end.
pub fn run<S: AsRef<OsStr>>(folder: &Path, args: impl IntoIterator<Item = S>) -> Said {
    said(&mut command(folder, args))
}

fn said(command: &mut Command) -> Said {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    Said {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
    }
}

/// A committed package: the first-party ones, and the tests' guests.
pub fn package(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guest = here.join(format!("guests/{name}.wasm"));
    match guest.exists() {
        true => guest,
        false => here.join(format!("../plugins/{name}.wasm")),
    }
}

/// A place to serve from.
pub struct Site {
    place: Place,
}

impl Site {
    /// A site without tables and without packages.
    pub fn new(place: Place) -> Site {
        std::fs::create_dir(place.folder.path().join("plugins")).expect("a plugins folder");
        Site { place }
    }

    /// A site that knows the package `guests` and is not served.
    pub fn known(place: Place) -> Site {
        let site = Site::new(place);
        site.bring("guests");
        let mut host = site.serve();
        host.terminate();
        assert!(host.wait_exit().success());
        site
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
    pub fn bring(&self, name: &str) {
        std::fs::copy(package(name), self.plugin(&format!("{name}.wasm"))).expect("a copy");
    }

    /// Change the database behind everybody's back.
    pub async fn execute(&self, sql: &str) {
        let db = Db::open(&self.place.url).await.expect("the database");
        let mut tx = db.write().await.expect("a transaction");
        probe::execute(&mut tx, sql).await.expect("a statement");
        tx.commit().await.expect("a commit");
        db.close().await;
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

    /// Run one command to its end.
    pub fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Said {
        said(&mut self.command(args))
    }

    /// Run one command, which must succeed; gives its stdout.
    #[track_caller]
    pub fn ok<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> String {
        let said = self.run(args);
        assert_eq!(said.code, 0, "{said:?}");
        said.stdout
    }

    /// Run one command with `--json`, which must succeed and say nothing else.
    #[track_caller]
    pub fn json<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Value {
        let said = self.run(args.into_iter().chain(["--json"]));
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
        said.json()
    }

    /// Add a schedule of a task of the package `guests`, with more arguments.
    pub fn try_to_add(&self, name: &str, task: &str, more: &[&str]) -> Said {
        let fixed = ["schedule", "add", name, "--package", "guests"];
        let task = ["--task", task];
        self.run(fixed.into_iter().chain(task).chain(more.iter().copied()))
    }

    /// Add such a schedule, which must succeed; gives it as it is shown.
    #[track_caller]
    pub fn add(&self, name: &str, task: &str, more: &[&str]) -> Value {
        let said = self.try_to_add(name, task, &[more, &["--json"]].concat());
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
        said.json()
    }

    /// Serve, and wait until it does.
    pub fn serve(&self) -> HostProcess {
        self.serve_with(&[])
    }

    /// Serve with more arguments, and wait until it does.
    pub fn serve_with(&self, more: &[&str]) -> HostProcess {
        let host = self.start(more);
        host.wait_for_line("serving");
        host
    }

    /// Begin to serve.
    pub fn start(&self, more: &[&str]) -> HostProcess {
        HostProcess::spawn(&mut self.command(["serve"].iter().chain(more)))
    }

    /// The launches of a schedule, oldest first.
    #[track_caller]
    pub fn launches(&self, schedule: &str) -> Vec<Value> {
        let mut rows = list(self.json(["launch", "list", "--schedule", schedule]));
        rows.reverse();
        rows
    }

    /// The first launch of a schedule for which `is` holds, as soon as there is one.
    #[track_caller]
    pub fn launch_where(&self, schedule: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually(|| {
            let rows = self.launches(schedule);
            let found = rows.iter().find(|row| is(row)).cloned();
            found.ok_or_else(|| format!("the launches of {schedule}: {rows:#?}"))
        })
    }

    /// Trigger a schedule; gives the launch.
    #[track_caller]
    pub fn trigger(&self, schedule: &str, context: &Value) -> String {
        let context = context.to_string();
        let trigger = ["schedule", "trigger", schedule, "--overlap", "allow"];
        let done = self.json([&trigger[..], &["--context", &context]].concat());
        text(&done["launch"])
    }

    /// The launch of that id once it has come to an end.
    #[track_caller]
    pub fn ended(&self, schedule: &str, launch: &str) -> Value {
        self.launch_where(schedule, |row| {
            row["id"] == launch && !row["finished_at"].is_null()
        })
    }

    /// The run of a launch, with its calls of tasks.
    #[track_caller]
    pub fn run_of(&self, launch: &Value) -> Value {
        self.json(["run", "show", &text(&launch["run_id"])])
    }
}

/// Look again and again until there is something, at most for [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(look: impl Fn() -> Result<T, String>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(instead) if Instant::now() > until => {
                panic!("it did not come within {PATIENCE:?}; instead: {instead}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// A JSON array.
#[track_caller]
pub fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(list) => list,
        other => panic!("not a list: {other}"),
    }
}

/// A JSON text.
#[track_caller]
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => panic!("not a text: {other}"),
    }
}

/// An instant, in milliseconds since 1970.
#[track_caller]
pub fn millis(value: &Value) -> i64 {
    let instant: campanile_model::clock::Timestamp = text(value).parse().expect("an instant");
    instant.micros() / 1000
}

/// The keys of a JSON object, in order of the alphabet.
#[track_caller]
pub fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = match value {
        Value::Object(map) => map.keys().map(String::as_str).collect(),
        other => panic!("not an object: {other}"),
    };
    keys.sort_unstable();
    keys
}
