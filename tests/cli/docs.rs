//! Every `console` block of the documents is run, and its output is compared with the output that it shows.
//!
//! One page is one fresh folder, one shell and, where the page says `campanile serve`, one host or more. The folder
//! has the first-party packages in `plugins/`. The folder of a page outside `docs/` also looks like the repository.
//!
//! A block of a page is run when its info string is one of these:
//!
//! | info string | the test |
//! |---|---|
//! | `console` | runs each line that begins with `$ `, in order, and compares the lines below it |
//! | `console,exact` | the same, and instants must be equal too |
//! | `console,needs=postgres` | the same; the address of the documents stands for a fresh schema of the tests' Postgres |
//! | `console,needs=wasm32-wasip2`, `console,needs=python`, `console,needs=curl` | the same, where that Rust target or that program is installed |
//! | `toml,file=PATH` (any language) | writes the block to PATH |
//!
//! Other blocks are not run. Use `sh` for commands that build all packages or a crate of the reader.
//!
//! `campanile serve` runs in the background until the page ends. In shown output, `…` and `[..]` stand for any text of
//! a line, and a line `...` for any lines. Instants, ids and digests need not be equal; a later command that uses a
//! shown id or instant runs with the real one. A command without shown output may print anything. Each command must
//! exit with 0, unless the next one is `echo $?`. A read-only command is repeated until its output matches.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use campanile_tests::{Backend, PATIENCE, campanile_binary, run_empty_case};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// The time limit of one command, which may be a build.
const COMMAND_SECONDS_MAX: u64 = 600;

/// The address of a Postgres in the documents.
const POSTGRES: &str = "postgres://campanile:secret@localhost/campanile";

/// The name of a copy of the repository in the documents.
const REPOSITORY: &str = "CAMPANILE_REPOSITORY";

/// Commands that change nothing: they are repeated until their output matches.
const READ_ONLY: &[&str] = &[
    "campanile audit verify",
    "campanile backfill list",
    "campanile backfill show",
    "campanile event list",
    "campanile health",
    "campanile launch ",
    "campanile package list",
    "campanile package show",
    "campanile plan",
    "campanile run ",
    "campanile schedule check",
    "campanile schedule list",
    "campanile schedule show",
    "campanile schedule why",
    "campanile stats",
];

macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        const PAGES: &[&str] = &[$($path),*];

        $(
            #[test]
            fn $name() {
                run_page($path);
            }
        )*
    };
}

pages! {
    readme: "README.md",
    configuration: "examples/config/README.md",
    api: "docs/src/guides/api.md",
    access: "docs/src/guides/access.md",
    alerts: "docs/src/guides/alerts.md",
    audit: "docs/src/guides/audit.md",
    backfills: "docs/src/guides/backfills.md",
    backup: "docs/src/guides/backup.md",
    grants_and_secrets: "docs/src/guides/grants-and-secrets.md",
    late_and_overlapping: "docs/src/guides/late-and-overlapping.md",
    many_hosts: "docs/src/guides/many-hosts.md",
    mcp: "docs/src/guides/mcp.md",
    metrics: "docs/src/guides/metrics.md",
    operating: "docs/src/guides/operating.md",
    retention: "docs/src/guides/retention.md",
    schedules: "docs/src/guides/schedules.md",
    testing_tasks: "docs/src/guides/testing-tasks.md",
    versions: "docs/src/guides/versions.md",
    configuration_reference: "docs/src/reference/configuration.md",
    exit_codes: "docs/src/reference/exit-codes.md",
    tutorial_in_any_language: "docs/src/tutorial/languages.md",
    tutorial_in_python: "docs/src/tutorial/python.md",
    tutorial_in_rust: "docs/src/tutorial/rust.md",
    tutorial_in_typescript: "docs/src/tutorial/typescript.md",
}

#[test]
fn every_page_with_a_console_block_is_run() {
    let with_blocks: Vec<String> = documents()
        .into_iter()
        .filter(|path| blocks(path).iter().any(Block::is_console))
        .collect();
    let missing: Vec<&String> = with_blocks
        .iter()
        .filter(|path| !PAGES.contains(&path.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "add these pages to `pages!`: {missing:?}"
    );
}

#[test]
fn most_shell_blocks_are_run() {
    let all: Vec<Block> = documents().iter().flat_map(|path| blocks(path)).collect();
    let run = all.iter().filter(|block| block.is_console()).count();
    let is_not_run = |block: &&Block| {
        let language = block.info.split(',').next().unwrap_or_default();
        let is_session = block.lines.iter().any(|line| line.starts_with("$ "));
        ["sh", "bash", "shell"].contains(&language) || language == "text" && is_session
    };
    let not_run = all.iter().filter(is_not_run).count();
    assert!(
        run >= 20 && run >= 3 * not_run,
        "{run} blocks are run and {not_run} are not: turn some of them into `console` blocks"
    );
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Return the paths of all pages, relative to the repository.
fn documents() -> Vec<String> {
    let mut found = [
        "README.md",
        "examples/config/README.md",
        "guest-sdk/README.md",
        "guest-sdk/testkit/README.md",
        "plugins/README.md",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut folders = vec!["docs/src".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repository().join(&folder)).expect("docs/src") {
            let name = entry.expect("an entry").file_name();
            let path = format!("{folder}/{}", name.to_string_lossy());
            match Path::new(&path).extension() {
                Some(extension) if extension == "md" => found.push(path),
                Some(_) => {}
                None => folders.push(path),
            }
        }
    }
    found.sort();
    found
}

/// A fenced block of a page.
struct Block {
    /// The line number of its first line.
    number: usize,
    info: String,
    lines: Vec<String>,
}

/// One command of a block, and the output that the block shows.
struct Step {
    number: usize,
    command: String,
    shown: Vec<String>,
}

impl Block {
    fn is_console(&self) -> bool {
        self.info.split(',').next() == Some("console")
    }

    fn option(&self, key: &str) -> Option<&str> {
        let mut options = self.info.split(',').skip(1);
        options.find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for (number, line) in (self.number..).zip(&self.lines) {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step {
                    number,
                    command: command.to_owned(),
                    shown: Vec::new(),
                }),
                (None, Some(step)) => step.shown.push(line.clone()),
                (None, None) => panic!("line {number}: a console block begins with `$ `"),
            }
        }
        steps
    }
}

fn blocks(path: &str) -> Vec<Block> {
    let text = fs::read_to_string(repository().join(path)).expect(path);
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(info), None) => {
                open = Some(Block {
                    number: number + 1,
                    info: info.trim().to_owned(),
                    lines: Vec::new(),
                });
            }
            (None, Some(block)) => block.lines.push(line.to_owned()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{path}: a block without an end");
    blocks
}

fn run_page(path: &str) {
    let blocks = blocks(path);
    let needs_postgres = |block: &Block| block.option("needs") == Some("postgres");
    if blocks.iter().any(needs_postgres) {
        run_empty_case(Backend::Postgres, async |place| {
            run_blocks(path, &blocks, &place.url.expose());
        });
    } else {
        run_blocks(path, &blocks, POSTGRES);
    }
}

fn run_blocks(path: &str, blocks: &[Block], postgres: &str) {
    let folder = page_folder(path);
    let mut shell = Shell::start(folder.path());
    let repository = fs::canonicalize(repository()).expect("the repository");
    for block in blocks {
        if let Some(file) = block.option("file") {
            let target = folder.path().join(file);
            fs::write(&target, block.lines.join("\n") + "\n").expect(file);
        }
        if !block.is_console() || !block.option("needs").is_none_or(is_installed) {
            continue;
        }
        let is_exact = block.info.contains(",exact");
        let steps = block.steps();
        for (at, step) in steps.iter().enumerate() {
            let place = format!("{path}:{}", step.number);
            let mut command = step
                .command
                .replace("cargo run -q --", "campanile")
                .replace("cargo run --", "campanile")
                .replace(POSTGRES, postgres)
                .replace(REPOSITORY, &repository.to_string_lossy());
            for (shown, real) in &shell.values {
                command = command.replace(shown, real);
            }
            if command.starts_with("campanile serve") {
                shell.serve(&place, &command);
                continue;
            }
            let next = steps.get(at + 1).map(|next| next.command.as_str());
            let may_fail = next == Some("echo $?");
            shell.check(&place, &command, step, may_fail, is_exact);
        }
    }
}

/// Return a new folder for a page, with the first-party packages.
fn page_folder(path: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let plugins = folder.path().join("plugins");
    fs::create_dir(&plugins).expect("a plugin folder");
    for name in ["backup", "etl", "hello", "http-check"] {
        let file = format!("{name}.wasm");
        let from = repository().join("plugins").join(&file);
        fs::copy(from, plugins.join(&file)).expect("a package");
    }
    if !path.starts_with("docs/") {
        link_repository(folder.path());
    }
    folder
}

/// Link parts of the repository into `folder`, so that no build writes into the repository itself.
fn link_repository(folder: &Path) {
    fs::create_dir(folder.join("examples")).expect("a folder");
    for name in [
        "Cargo.lock",
        "Cargo.toml",
        "examples/config",
        "guest-sdk",
        "host",
        "tests",
    ] {
        let from = fs::canonicalize(repository().join(name)).expect(name);
        symlink(from, folder.join(name)).expect("a link");
    }
    let example = "examples/rust-task";
    // A copy, because the build of the example writes into its folder.
    fs::create_dir_all(folder.join(example).join("src")).expect("a folder");
    for file in ["Cargo.lock", "Cargo.toml", "src/lib.rs"] {
        let file = format!("{example}/{file}");
        fs::copy(repository().join(&file), folder.join(&file)).expect("a file of the example");
    }
}

/// Return whether `requirement`, which a block needs, is installed on this machine.
fn is_installed(requirement: &str) -> bool {
    let output = match requirement {
        "postgres" => return true,
        "wasm32-wasip2" => Command::new("rustc")
            .args(["--print", "target-libdir", "--target", requirement])
            .output(),
        "curl" => Command::new("curl").arg("--version").output(),
        "python" => Command::new("python3").arg("--version").output(),
        other => panic!("no block can need `{other}`: see the top of this file"),
    };
    let is_installed = output.is_ok_and(|output| {
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success()
            && (requirement != "wasm32-wasip2" || Path::new(printed.trim()).is_dir())
    });
    if !is_installed {
        eprintln!("NOT RUN: the blocks that need {requirement}, which is not installed here");
    }
    is_installed
}

/// One shell for all commands of a page, so that `cd` and `export` work.
struct Shell {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    folder: PathBuf,
    hosts: usize,
    /// The ids and instants of the document, and the real ones that the program printed for them.
    values: BTreeMap<String, String>,
}

/// Printed after the output of each command, with its exit code.
const END: &str = "-- end of the command:";

impl Shell {
    fn start(folder: &Path) -> Shell {
        let binaries = folder.join(".bin");
        fs::create_dir(&binaries).expect("a folder");
        let binary = fs::canonicalize(campanile_binary()).expect("the program");
        symlink(binary, binaries.join("campanile")).expect("a link");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        for name in [
            "CAMPANILE_DATABASE_URL",
            "CAMPANILE_LOG",
            "CAMPANILE_PLUGINS",
            "CARGO_TARGET_DIR",
        ] {
            command.env_remove(name);
        }
        let mut child = command
            .args(["--norc", "--noprofile", "-s"])
            .current_dir(folder)
            .env("PATH", format!("{}:{path}", binaries.display()))
            .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
            .env("NO_COLOR", "1")
            // Pages run at the same time, and have one default address.
            .env("CAMPANILE_LISTEN", "off")
            .env("LC_ALL", "C.UTF-8")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash");
        let mut stdin = child.stdin.take().expect("piped");
        writeln!(stdin, "exec 2>&1\ntrap 'kill $(jobs -p); wait' EXIT").expect("a shell");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while stdout.read_until(b'\n', &mut bytes).unwrap_or(0) > 0 {
                let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                bytes.clear();
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Shell {
            child,
            stdin: Some(stdin),
            lines,
            folder: folder.to_owned(),
            hosts: 0,
            values: BTreeMap::new(),
        }
    }

    /// Run one command. Return its output and its exit code.
    fn run(&mut self, place: &str, command: &str) -> (Vec<String>, i32) {
        let stdin = self.stdin.as_mut().expect("an open shell");
        // Restore the exit code, so that a following `echo $?` prints it.
        writeln!(stdin, "{{ {command}\n}} </dev/null\n__code=$?; printf '\\n%s %s\\n' '{END}' $__code; (exit $__code)")
            .expect("a shell");
        let deadline = Instant::now() + Duration::from_secs(COMMAND_SECONDS_MAX);
        let mut output = Vec::new();
        loop {
            match self
                .lines
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(line) => match line.strip_prefix(END) {
                    // The empty line before the end marker is the one that `printf` added.
                    Some(code) => {
                        if output.last().is_some_and(String::is_empty) {
                            output.pop();
                        }
                        return (output, code.trim().parse().expect("an exit code"));
                    }
                    None => output.push(line),
                },
                Err(RecvTimeoutError::Timeout) => panic!("{place}: `{command}` does not end"),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!(
                        "{place}: the shell ended at `{command}`:\n{}",
                        output.join("\n")
                    )
                }
            }
        }
    }

    /// Start a host in the background, and wait until it serves.
    fn serve(&mut self, place: &str, command: &str) {
        self.hosts += 1;
        let log = self.folder.join(format!(".host-{}.log", self.hosts));
        let command = command.split(" #").next().unwrap_or(command);
        self.run(place, &format!("{command} >{} 2>&1 &", log.display()));
        let deadline = Instant::now() + PATIENCE * 4;
        loop {
            let mut log_text = String::new();
            if let Ok(mut file) = fs::File::open(&log) {
                file.read_to_string(&mut log_text).expect("a log");
            }
            if log_text.contains("serving") {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{place}: the host does not serve:\n{log_text}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Run a step, and compare its output with the document.
    fn check(&mut self, place: &str, command: &str, step: &Step, may_fail: bool, is_exact: bool) {
        let only_reads = READ_ONLY.iter().any(|word| command.starts_with(word));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (output, code) = self.run(place, command);
            let is_right = (code == 0 || may_fail)
                && (step.shown.is_empty() || matches(&step.shown, &output, is_exact));
            if is_right {
                self.remember(&step.shown, &output);
                return;
            }
            assert!(
                only_reads && Instant::now() < deadline,
                "{place}: `{command}` exits with {code} and prints\n{}\n\nThe document shows\n{}\n",
                output.join("\n"),
                step.shown.join("\n")
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Record which real ids and instants stand for those of the document.
    fn remember(&mut self, shown: &[String], output: &[String]) {
        let values = |line: &str| -> Vec<String> {
            let words = line.split_whitespace();
            let is_value = |word: &&str| is_id(word) || is_instant(word);
            words.filter(is_value).map(str::to_owned).collect()
        };
        for (shown, line) in shown.iter().zip(output) {
            if shown == "..." {
                return;
            }
            let (shown, real) = (values(shown), values(line));
            if shown.len() == real.len() {
                self.values.extend(shown.into_iter().zip(real));
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The end of its input stops the shell, and its trap stops the hosts.
        self.stdin = None;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Return whether `output` matches the lines that are `shown`.
fn matches(shown: &[String], output: &[String], is_exact: bool) -> bool {
    match shown.split_first() {
        None => output.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=output.len()).any(|from| matches(rest, &output[from..], is_exact))
        }
        Some((first, rest)) => output.split_first().is_some_and(|(line, lines)| {
            line_matches(first, line, is_exact) && matches(rest, lines, is_exact)
        }),
    }
}

fn line_matches(shown: &str, line: &str, is_exact: bool) -> bool {
    let shown = normalized(&shown.replace("[..]", "…"), is_exact);
    let line = normalized(line, is_exact);
    let mut parts = shown.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Return `text` with one space between words. Unless `is_exact`, one word replaces every instant and one every id.
fn normalized(text: &str, is_exact: bool) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let edges = [',', ':', ';', '.', '(', ')', '"'];
        let core = word.trim_matches(edges);
        words.push(match core {
            core if is_exact || core.is_empty() => word.to_owned(),
            core if is_instant(core) => word.replace(core, "INSTANT"),
            core if is_id(core) => word.replace(core, "ID"),
            _ => word.to_owned(),
        });
    }
    words.join(" ")
}

/// Return whether `word` is an instant in RFC 3339, with a zone or without.
fn is_instant(word: &str) -> bool {
    let mut bytes = word.bytes();
    let begins = b"dddd-dd-ddTdd:dd"
        .iter()
        .all(|form| match (form, bytes.next()) {
            (b'd', Some(byte)) => byte.is_ascii_digit(),
            (form, byte) => Some(*form) == byte,
        });
    begins && !word.contains('…')
}

/// Return whether `word` is a UUID, its beginning as lists show it, or a digest, short or long.
fn is_id(word: &str) -> bool {
    let is_hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts: Vec<usize> = word.split('-').map(str::len).collect();
    match parts.as_slice() {
        [8, 4, 4] | [8, 4, 4, 4, 12] => is_hexadecimal(&word.replace('-', "")),
        [12 | 64] => is_hexadecimal(word) && word.bytes().any(|byte| byte.is_ascii_digit()),
        _ => false,
    }
}

#[test]
fn output_is_compared_word_by_word() {
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    let compare =
        |shown: &str, output: &str, is_exact| matches(&lines(shown), &lines(output), is_exact);
    assert!(compare("a  b", "a b", false));
    assert!(!compare("a b", "a c", false));
    assert!(!compare("a", "a\nb", false));
    assert!(!compare("a\nb", "a", false));
    assert!(compare("a\n...", "a\nb\nc", false));
    assert!(compare("...\nc", "a\nb\nc", false));
    assert!(!compare("...\nd", "a\nb\nc", false));
    assert!(compare("next at … in [..]s", "next at noon in 5 s", false));
    assert!(!compare("next at …!", "next at noon", false));
    let (one, other) = ("at 2026-11-23T01:30:00Z.", "at 2027-01-01T00:00:00.5Z.");
    assert!(compare(one, other, false));
    assert!(!compare(one, other, true));
    let id = "01a1fd88-9872-7d5c-bd25-69d8b94ad314";
    assert!(compare(id, "11b1fd88-9872-7d5c-bd25-69d8b94ad31f", false));
    assert!(!compare(id, "none", false));
    assert!(compare(&id[..18], "11b1fd88-9872-7d5c", false));
    assert!(!compare(&id[..18], id, true));
}
