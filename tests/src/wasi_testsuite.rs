//! Runs a folder of tests of the public [wasi-testsuite](https://github.com/WebAssembly/wasi-testsuite) with
//! `campanile task run`, or with wasmtime's own command line, to compare the two.
//!
//! A test is a `.wasm` file, with its arguments, variables, root directory and expectations in a `.json` file beside it. The
//! suite's `doc/specification.md` has the keys. The tests of one folder are a group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// What the suite wants a program to get: nothing but what the test gives.
const SIDECAR: &str = "[program]\ncampanile_env = false\nstdin = \"none\"\n";

/// Parts of the messages about files that the host does not run: they are newer than it, or have threads. Any other refusal is
/// a failure.
const REFUSED: [&str; 2] = ["built for WASI 0.3", "built for threads"];

/// The program that runs the tests.
#[derive(Clone, Debug)]
pub enum Runner {
    Campanile(PathBuf),
    Wasmtime(PathBuf),
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Failed(String),
    /// The host does not run the file, and says why.
    Refused(String),
}

/// The tests of one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name in the folder's `manifest.json`, or its path.
    pub name: String,
    /// The tests by name.
    pub verdicts: BTreeMap<String, Verdict>,
}

/// `WASI C tests: 13 of 14 passed`, with a line for each test that failed and each reason of a refusal.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passed = self.verdicts.values();
        let passed = passed.filter(|verdict| **verdict == Verdict::Passed);
        let (name, all) = (&self.name, self.verdicts.len());
        write!(f, "{name}: {} of {all} passed", passed.count())?;
        let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
        for (test, verdict) in &self.verdicts {
            match verdict {
                Verdict::Passed => {}
                Verdict::Failed(why) => write!(f, "\n  failed   {test}: {why}")?,
                Verdict::Refused(why) => *refused.entry(why).or_default() += 1,
            }
        }
        for (why, tests) in refused {
            write!(f, "\n  refused  {tests}: {why}")?;
        }
        Ok(())
    }
}

/// Run all tests below `folder`.
///
/// # Errors
/// When a file cannot be read, the runner cannot be started, or the folder has no tests.
pub fn run(runner: &Runner, folder: &Path) -> io::Result<Vec<Group>> {
    let sidecar = tempfile::tempdir()?;
    let sidecar_file = sidecar.path().join("suite.toml");
    fs::write(&sidecar_file, SIDECAR)?;
    let mut groups: BTreeMap<PathBuf, Group> = BTreeMap::new();
    for file in tests_below(folder)? {
        let parent = file.parent().unwrap_or(folder);
        let name = file_stem(&file);
        let test = Test::read(&file)?;
        let verdict = match runner {
            Runner::Campanile(program) => test.run_with_campanile(program, &sidecar_file)?,
            Runner::Wasmtime(program) => test.run_with_wasmtime(program)?,
        };
        let group = groups
            .entry(parent.to_owned())
            .or_insert_with(|| Group::of(parent));
        group.verdicts.insert(name, verdict);
    }
    match groups.is_empty() {
        true => Err(io::Error::other(format!(
            "{} has no tests",
            folder.display()
        ))),
        false => Ok(groups.into_values().collect()),
    }
}

impl Group {
    fn of(folder: &Path) -> Group {
        let manifest = fs::read(folder.join("manifest.json")).ok();
        let manifest: Option<Value> =
            manifest.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let name = manifest.and_then(|manifest| Some(manifest["name"].as_str()?.to_owned()));
        Group {
            name: name.unwrap_or_else(|| folder.display().to_string()),
            verdicts: BTreeMap::new(),
        }
    }
}

/// Return the `.wasm` files below `folder`.
fn tests_below(folder: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            found.extend(tests_below(&path)?);
        } else if path.extension().is_some_and(|end| end == "wasm") {
            found.insert(path);
        }
    }
    Ok(found)
}

fn file_stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// One test, as its files describe it.
#[derive(Debug, Default)]
struct Test {
    file: PathBuf,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    root: Option<PathBuf>,
    exit_code: i64,
    /// What the streams must hold, by their names.
    streams: BTreeMap<String, String>,
    /// An operation of the test that this runner cannot do.
    unknown: Option<String>,
}

impl Test {
    fn read(file: &Path) -> io::Result<Test> {
        let mut test = Test {
            file: file.to_owned(),
            ..Test::default()
        };
        let described = match fs::read(file.with_extension("json")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(test),
            read => read?,
        };
        let described: Value = serde_json::from_slice(&described)?;
        match described["operations"].as_array() {
            Some(operations) => operations.iter().for_each(|one| test.add(one)),
            None => {
                test.add_start(&described);
                test.exit_code = described["exit_code"].as_i64().unwrap_or(0);
                for stream in ["stdout", "stderr"] {
                    test.add_stream(stream, &described[stream]);
                }
            }
        }
        Ok(test)
    }

    /// Add an operation of the newer form.
    fn add(&mut self, operation: &Value) {
        match operation["type"].as_str() {
            Some("run") => self.add_start(operation),
            Some("wait") => self.exit_code = operation["exit_code"].as_i64().unwrap_or(0),
            Some("read") => {
                let stream = operation["id"].as_str().unwrap_or("stdout");
                self.add_stream(stream, &operation["payload"]);
            }
            _ => self.unknown = Some(operation["type"].to_string()),
        }
    }

    fn add_start(&mut self, start: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let args = start["args"].as_array().into_iter().flatten();
        self.args = args.map(text).collect();
        let env = start["env"].as_object().into_iter().flatten();
        self.env = env
            .map(|(name, value)| (name.clone(), text(value)))
            .collect();
        self.root = start["root"]
            .as_str()
            .map(|root| self.file.with_file_name(root));
    }

    fn add_stream(&mut self, name: &str, expected: &Value) {
        if let Some(expected) = expected.as_str() {
            self.streams.insert(name.to_owned(), expected.to_owned());
        }
    }

    /// Run the test, in a copy of its root directory.
    fn run_with_campanile(&self, campanile: &Path, sidecar: &Path) -> io::Result<Verdict> {
        let root = self.root.as_deref().map(copy_of).transpose()?;
        let mut command = Command::new(campanile);
        command
            .args(["task", "run", "--json", "--sidecar"])
            .arg(sidecar);
        for arg in &self.args {
            // The suite's arguments are no templates.
            command.arg(format!("--arg={}", arg.replace("{{", "{{{{")));
        }
        for (name, value) in &self.env {
            command.arg(format!("--env={name}={value}"));
        }
        if let Some(root) = &root {
            command.arg(format!("--dir={}::/", root.path().display()));
        }
        let output = command.arg(&self.file).stdin(Stdio::null()).output()?;
        let report = serde_json::from_slice(&output.stdout);
        let report: Value = report.map_err(|error| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            io::Error::other(format!("{}: {error}: {stderr}", self.file.display()))
        })?;
        let failure = &report["failure"];
        let message = failure["message"].as_str().unwrap_or_default();
        let exit_code = match report["outcome"].as_str() {
            Some("succeeded") => 0,
            Some("failed") => failure["details"]["exit_code"].as_i64().unwrap_or(1),
            Some("refused") if REFUSED.iter().any(|part| message.contains(part)) => {
                return Ok(Verdict::Refused(message.to_owned()));
            }
            _ => {
                let why = format!("{}: {message}", report["outcome"]);
                return Ok(Verdict::Failed(why));
            }
        };
        // A whole JSON value on stdout is the output.
        let output = &report["output"];
        let stdout = match output.is_null() {
            true => report["stdout"].as_str().unwrap_or_default().to_owned(),
            false => output.to_string(),
        };
        let stderr = report["stderr"].as_str().unwrap_or_default();
        Ok(self.verdict(exit_code, &stdout, stderr, message))
    }

    /// Run the test as the suite's own adapter for wasmtime does.
    fn run_with_wasmtime(&self, wasmtime: &Path) -> io::Result<Verdict> {
        let root = self.root.as_deref().map(copy_of).transpose()?;
        let mut command = Command::new(wasmtime);
        command.arg("run");
        for (name, value) in &self.env {
            command.arg("--env").arg(format!("{name}={value}"));
        }
        if let Some(root) = &root {
            let root = format!("{}::/", root.path().display());
            command.arg("--dir").arg(root);
        }
        command.arg(&self.file).args(&self.args);
        let output = command.stdin(Stdio::null()).output()?;
        let exit_code = output.status.code().unwrap_or(-1).into();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let message = stderr.lines().next_back().unwrap_or_default();
        Ok(self.verdict(exit_code, &stdout, &stderr, message))
    }

    /// Compare what the program did with what the test expects. `message` says why it ended.
    fn verdict(&self, exit_code: i64, stdout: &str, stderr: &str, message: &str) -> Verdict {
        if let Some(unknown) = &self.unknown {
            return Verdict::Failed(format!("this runner does not know the operation {unknown}"));
        }
        if exit_code != self.exit_code {
            let expected = self.exit_code;
            let why = format!("it exited with {exit_code}, not with {expected}: {message}");
            return Verdict::Failed(why);
        }
        for (stream, expected) in &self.streams {
            let found = match stream.as_str() {
                "stdout" => stdout,
                _ => stderr,
            };
            if found != expected {
                return Verdict::Failed(format!("its {stream} is {found:?}, not {expected:?}"));
            }
        }
        Verdict::Passed
    }
}

/// Return a copy of the directory `folder`, which a test may change.
fn copy_of(folder: &Path) -> io::Result<TempDir> {
    let copy = tempfile::tempdir()?;
    copy_into(folder, copy.path())?;
    Ok(copy)
}

fn copy_into(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            copy_into(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
