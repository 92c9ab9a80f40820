//! The program at a terminal: progress, the live line, colours, and tables that fit.
//!
//! The program `script` of util-linux, or of macOS, opens a pseudo-terminal and copies what is written to it.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use campanile_tests::{PATIENCE, Place, on_both_empty};

use crate::site::{Site, eventually};

on_both_empty!(
    a_host_shows_what_it_compiles_what_is_next_and_what_it_did,
    a_host_without_schedules_says_how_to_get_one,
    a_table_fits_the_terminal,
    errors_of_arguments_and_of_commands_look_alike,
    a_repeated_command_gives_the_terminal_back,
    a_backfill_shows_how_far_it_is,
);

/// Ctrl-C, as a terminal sends it.
const INTERRUPT: &[u8] = b"\x03";

/// A program at a terminal.
struct Terminal {
    child: Child,
    keyboard: ChildStdin,
    written: Arc<Mutex<Vec<u8>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Terminal {
    /// Start a command of the program at a terminal with this number of columns.
    fn start(command: &Command, columns: u16) -> Terminal {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let words = words.map(|word| format!("'{}'", word.to_str().expect("UTF-8")));
        let words = words.collect::<Vec<_>>().join(" ");
        let line = format!("stty rows 40 columns {columns}; exec {words}");
        let mut script = Command::new("script");
        match cfg!(target_os = "linux") {
            true => script.args(["-qefE", "never", "-c", &line, "/dev/null"]),
            false => script.args(["-qF", "/dev/null", "sh", "-c", &line]),
        };
        script.envs([("TERM", "xterm-256color"), ("SHELL", "/bin/sh")]);
        script.env_remove("NO_COLOR");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => script.env(name, value),
                None => script.env_remove(name),
            };
        }
        let mut child = script
            .current_dir(command.get_current_dir().expect("a folder"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("the test needs the program `script`, of the package util-linux or bsdutils: {error}")
            });
        let stdout = child.stdout.take().expect("its output");
        let written = Arc::new(Mutex::new(Vec::new()));
        let reader = std::thread::spawn({
            let written = Arc::clone(&written);
            move || collect(stdout, &written)
        });
        Terminal {
            keyboard: child.stdin.take().expect("its input"),
            child,
            written,
            reader: Some(reader),
        }
    }

    /// Return what the program has written so far, with its escape sequences.
    fn raw(&self) -> String {
        let written = self.written.lock().expect("no reader panics");
        String::from_utf8_lossy(&written).into_owned()
    }

    /// Wait until the program has written `part`, apart from colours and movements.
    #[track_caller]
    fn wait_for(&self, part: &str) {
        self.wait_until(|shown| shown.contains(part));
    }

    /// Wait until `is_wanted` holds for what the program has written, apart from colours and movements.
    #[track_caller]
    fn wait_until(&self, is_wanted: impl Fn(&str) -> bool) {
        eventually(|| {
            let shown = plain(&self.raw());
            is_wanted(&shown).then_some(()).ok_or(shown)
        });
    }

    fn interrupt(&mut self) {
        self.keyboard.write_all(INTERRUPT).expect("a key");
        self.keyboard.flush().expect("a key");
    }

    /// Wait for the end of the program. Return everything that it wrote.
    #[track_caller]
    fn end(&mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child process") {
                break status;
            }
            assert!(Instant::now() < deadline, "it goes on: {}", self.raw());
            std::thread::sleep(Duration::from_millis(20));
        };
        if let Some(reader) = self.reader.take() {
            reader.join().expect("no reader panics");
        }
        (status, self.raw())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Collect what a program writes, until it ends.
fn collect(mut stdout: ChildStdout, written: &Mutex<Vec<u8>>) {
    let mut piece = [0; 4_096];
    while let Ok(read @ 1..) = stdout.read(&mut piece) {
        let mut written = written.lock().expect("no reader panics");
        written.extend_from_slice(&piece[..read]);
    }
}

/// Return a text without escape sequences and carriage returns.
fn plain(raw: &str) -> String {
    let mut plain = String::new();
    let mut chars = raw.chars().filter(|char| *char != '\r');
    while let Some(char) = chars.next() {
        match char {
            // ESC [ parameters, and one letter.
            '\u{1b}' => {
                let _ = chars.by_ref().find(char::is_ascii_alphabetic);
            }
            char => plain.push(char),
        }
    }
    plain
}

/// Run a command at a terminal until it ends.
fn run(site: &Site, args: &[&str], columns: u16) -> (ExitStatus, String) {
    Terminal::start(&site.command(args), columns).end()
}

/// Return how many launches have succeeded, as the last live line says; 0 without one.
fn succeeded(shown: &str) -> u64 {
    let line = shown
        .rsplit_once(" succeeded, 0 failed")
        .map(|(line, _)| line);
    let number = line.and_then(|line| line.rsplit(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

async fn a_host_shows_what_it_compiles_what_is_next_and_what_it_did(place: Place) {
    let site = Site::new(place);
    site.copy_package("hello");
    site.sidecar("hello", "[[schedules]]\nevery = '1s'\n");
    let mut command = site.command(["serve"]);
    // Nothing is compiled yet.
    command.env("XDG_CACHE_HOME", site.folder().join("cache"));
    let mut host = Terminal::start(&command, 100);
    host.wait_for("compiling hello (");
    host.wait_for(" … ");
    host.wait_for("next: `hello` at 2");
    host.wait_for("in another terminal, `campanile top` shows what the host does");
    host.wait_for("Ctrl-C stops the host");
    host.wait_for("`hello` ");
    host.wait_until(|shown| succeeded(shown) >= 2);
    host.interrupt();
    let (status, raw) = host.end();
    assert_eq!(status.code(), Some(0), "{raw}");
    assert!(raw.contains("\u{1b}[32m INFO\u{1b}[0m"), "{raw}");
    // The line is cleared at the end.
    let last = raw.rsplit("\u{1b}[2K").next().map(plain);
    let last = last.expect("a line was cleared");
    assert!(!last.contains("succeeded, 0 failed"), "{last}");

    let mut command = site.command(["serve"]);
    let mut host = Terminal::start(command.env("NO_COLOR", "1"), 100);
    host.wait_until(|shown| succeeded(shown) >= 1);
    host.interrupt();
    let (_, raw) = host.end();
    assert!(
        raw.contains("serving") && !raw.contains("INFO\u{1b}[0m"),
        "{raw}"
    );
}

async fn a_host_without_schedules_says_how_to_get_one(place: Place) {
    let site = Site::new(place);
    let mut host = Terminal::start(&site.command(["serve"]), 100);
    host.wait_for("nothing is scheduled: copy a .wasm file into plugins");
    host.wait_for("nothing is due; 0 running, 0 succeeded, 0 failed");
    host.interrupt();
    assert_eq!(host.end().0.code(), Some(0));
    // The log of a service is no place for these lines.
    let command = site.command(["serve", "--log-format", "json"]);
    let mut host = Terminal::start(&command, 100);
    host.wait_for("\"message\":\"serving\"");
    host.interrupt();
    let (_, raw) = host.end();
    assert!(
        !raw.contains("nothing is") && !raw.contains('\u{1b}'),
        "{raw}"
    );
}

async fn a_table_fits_the_terminal(place: Place) {
    let (site, _host) = Site::with_tasks(place, &["fail_permanent", "ok"]);
    site.trigger_and_wait("ok");
    let failed = site.trigger_and_wait("fail_permanent");
    let list = ["launch", "list"];
    let widest = |raw: &str| {
        let plain = plain(raw);
        let widths = plain.lines().map(|line| line.chars().count());
        widths.max().unwrap_or_default()
    };
    let (status, wide) = run(&site, &list, 300);
    assert_eq!(status.code(), Some(0));
    let whole = plain(&wide);
    assert!(
        whole.starts_with("ID  ") && whole.contains("ATTEMPTS  MESSAGE"),
        "{whole}"
    );
    // The same as in a pipe, apart from colours.
    assert_eq!(whole, site.ok(list));
    assert!(
        wide.contains("\u{1b}[31mfailed\u{1b}[0m") && wide.contains("\u{1b}[32msucceeded\u{1b}[0m"),
        "{wide}"
    );
    for columns in [100, 80] {
        let (_, narrow) = run(&site, &list, columns);
        let table = narrow.split("note:").next().expect("a table");
        assert!(widest(table) <= usize::from(columns), "{narrow}");
        let id = failed["id"].as_str().expect("an id");
        let shown = plain(&narrow);
        assert!(shown.contains(&id[..18]) && shown.contains('…'), "{shown}");
    }
    let (_, narrow) = run(&site, &list, 80);
    let narrow = plain(&narrow);
    assert!(
        narrow.contains("note: this terminal is too narrow for reason, kind, attempts;"),
        "{narrow}"
    );
    let (_, colourless) = Terminal::start(site.command(list).env("NO_COLOR", "1"), 300).end();
    assert!(!colourless.contains('\u{1b}'), "{colourless}");
    let (_, json) = run(&site, &["launch", "list", "--json"], 80);
    assert!(!json.contains('\u{1b}'), "{json}");
    let launches: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(launches[0]["id"], failed["id"]);
}

async fn errors_of_arguments_and_of_commands_look_alike(place: Place) {
    let site = Site::with_guests(place);
    let label = "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m ";
    for args in [
        &["launch", "list", "--limt", "3"][..],
        &["package", "show", "gests"],
    ] {
        let (status, raw) = run(&site, args, 80);
        assert_eq!(status.code(), Some(2));
        assert!(raw.starts_with(label), "{raw:?}");
    }
    let (_, hinted) = run(&site, &["task", "run", "nowhere.wasm"], 80);
    assert!(hinted.contains("\u{1b}[32mhint:\u{1b}[0m "), "{hinted:?}");
    let mut command = site.command(["package", "show", "gests"]);
    let (_, raw) = Terminal::start(command.env("NO_COLOR", "1"), 80).end();
    assert!(raw.starts_with("error: "), "{raw:?}");
}

async fn a_repeated_command_gives_the_terminal_back(place: Place) {
    let (site, _host) = Site::with_tasks(place, &["ok"]);
    for (args, part) in [
        (&["top"][..], "next slots"),
        (&["schedule", "list", "--watch=0.1"], "NAME"),
    ] {
        let command = site.command(args);
        let mut repeated = Terminal::start(&command, 60);
        repeated.wait_for("until Ctrl-C");
        repeated.wait_for(part);
        repeated.interrupt();
        let (status, raw) = repeated.end();
        assert_eq!(status.code(), Some(0), "{raw}");
        assert!(raw.starts_with("\u{1b}[?1049h"), "{raw:?}");
        assert!(raw.ends_with("\u{1b}[?1049l"), "{raw:?}");
        let frame = raw.split("\u{1b}[H").nth(1).map(plain);
        let widest = frame.and_then(|frame| frame.lines().map(|line| line.chars().count()).max());
        assert!(widest.is_some_and(|width| width <= 60), "{raw:?}");
    }
}

async fn a_backfill_shows_how_far_it_is(place: Place) {
    let (site, _host) = Site::with_tasks(place, &[]);
    site.add("hourly", "ok", &["--cron", "0 * * * *"]);
    let fixed = ["schedule", "backfill", "hourly"];
    let span = ["--from", "2026-01-01", "--to", "2026-01-01T05:30:00Z"];
    let (status, raw) = run(&site, &[&fixed[..], &span].concat(), 100);
    assert_eq!(status.code(), Some(0), "{raw}");
    let shown = plain(&raw);
    assert!(shown.contains(" of 6 "), "{shown}");
}
