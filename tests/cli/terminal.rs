//! The program at a terminal: progress, the live line, colours, and tables that fit.
//!
//! The program `script` of util-linux, or of macOS, opens a pseudo-terminal and copies what is written to it.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use campanile_tests::{Backend, PATIENCE, Place, on_both_empty, run_empty_case};

use crate::api::{Answer, Api, raw};
use crate::browser::{assert_is_page, encoded};
use crate::site::{Site, eventually};

on_both_empty!(
    a_host_shows_what_it_compiles_what_is_next_and_what_it_did,
    a_host_without_schedules_says_how_to_get_one,
    a_table_fits_the_terminal,
    errors_of_arguments_and_of_commands_look_alike,
    a_repeated_command_gives_the_terminal_back,
    a_backfill_shows_how_far_it_is,
    a_link_signs_one_browser_in,
    nothing_but_a_terminal_gets_a_link,
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
    let list = ["launch", "list", "--utc"];
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
    for (list, deciding) in [
        ("schedule list", &["NAME", "RULE", "STATE", "NEXT SLOT"][..]),
        (
            "run list",
            &["ID", "SCHEDULE", "SCHEDULED TIME", "STATUS", "MESSAGE"],
        ),
        ("host list", &["NAME", "STATE", "RUNS", "HEARTBEAT AT"]),
        ("package list", &["NAME", "STATE", "DIGEST"]),
        ("event list", &["AT", "KIND", "SUBJECT", "DETAIL"]),
        ("token list", &["NAME", "ROLE", "STATE"]),
    ] {
        let (_, narrow) = run(&site, &Vec::from_iter(list.split(' ')), 80);
        let narrow = plain(&narrow);
        let header = narrow.lines().next().expect("a header");
        assert!(deciding.iter().all(|key| header.contains(key)), "{narrow}");
        assert!(header.len() <= 80, "{narrow}");
    }
    // Without --utc, a terminal shows how long ago something was.
    let (_, relative) = run(&site, &["launch", "list"], 80);
    assert!(plain(&relative).contains(" ago  "), "{relative}");
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

/// The number of characters of a link's secret.
const SECRET_CHARS: usize = 64;

/// A host at a terminal, and the link that it has printed.
struct Linked {
    host: Terminal,
    address: SocketAddr,
    secret: String,
}

impl Linked {
    #[track_caller]
    fn start(command: &Command) -> Linked {
        let host = Terminal::start(command, 100);
        let (address, secret) = eventually(|| {
            let shown = plain(&host.raw());
            let found = shown
                .split_once("/login?once=")
                .and_then(|(before, after)| {
                    let (_, address) = before.rsplit_once("http://")?;
                    Some((address.parse().ok()?, after.get(..SECRET_CHARS)?.to_owned()))
                });
            found.ok_or(shown)
        });
        Linked {
            host,
            address,
            secret,
        }
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/html\r\nConnection: close\r\n{headers}",
            self.address
        );
        let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
        let length = body.len();
        raw(
            self.address,
            &format!("{head}{kind}Content-Length: {length}\r\n\r\n{body}"),
        )
    }

    /// Send the form that the link leads to.
    fn sign_in(&self, secret: &str) -> Answer {
        let fields = encoded(&[("once", secret)]);
        self.send("POST", "/login", "Sec-Fetch-Site: same-origin\r\n", &fields)
    }

    /// Assert that a link signs nobody in, and that the page says why and what to do.
    #[track_caller]
    fn assert_refused(&self, secret: &str, why: &str) {
        let answer = self.sign_in(secret);
        assert_eq!(answer.status, 401, "{answer:?}");
        assert_is_page(&answer);
        assert_eq!(answer.header("set-cookie"), None);
        for part in [why, ".token` prints", "name=\"token\""] {
            assert!(answer.body.contains(part), "no `{part}`: {answer:?}");
        }
        assert!(
            secret.is_empty() || !answer.body.contains(secret),
            "{answer:?}"
        );
    }
}

/// Return the command that serves at a free port, and logs as much as it can.
fn serve_with_pages(site: &Site, more: &[&str]) -> Command {
    let mut command = site.command([&["serve", "--listen", "127.0.0.1:0"], more].concat());
    command.env("CAMPANILE_LOG", "trace");
    command
}

async fn a_link_signs_one_browser_in(place: Place) {
    let site = Site::new(place);
    let mut linked = Linked::start(&serve_with_pages(&site, &[]));
    let secret = linked.secret.clone();
    let path = format!("/login?once={secret}");
    // A preview of the link, by whatever looks at it, uses nothing up.
    for _ in 0..3 {
        let opened = linked.send("GET", &path, "", "");
        assert_eq!(opened.status, 200, "{opened:?}");
        assert_is_page(&opened);
        assert_eq!(opened.header("set-cookie"), None);
        assert_eq!(opened.header("referrer-policy"), Some("strict-origin"));
        let button = format!("<input type=\"hidden\" name=\"once\" value=\"{secret}\">");
        assert!(opened.body.contains(&button), "{opened:?}");
    }
    let foreign = encoded(&[("once", &secret)]);
    let foreign = linked.send("POST", "/login", "Sec-Fetch-Site: cross-site\r\n", &foreign);
    assert_eq!(foreign.status, 403, "{foreign:?}");
    linked.assert_refused(&secret[1..], "isn't the one");
    linked.assert_refused(&"0".repeat(SECRET_CHARS), "isn't the one");

    let entered = linked.sign_in(&secret);
    assert_eq!(entered.status, 303, "{entered:?}");
    assert_eq!(entered.header("location"), Some("/"));
    let cookie = entered.header("set-cookie").expect("a cookie");
    assert!(
        cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
        "{cookie}"
    );
    let cookie = cookie.split(';').next().expect("a value");
    assert!(!cookie.contains(&secret), "{cookie}");
    let page = linked.send("GET", "/", &format!("Cookie: {cookie}\r\n"), "");
    assert_eq!(page.status, 200, "{page:?}");
    assert!(
        page.body.contains("local token") && page.body.contains("admin"),
        "{page:?}"
    );
    linked.assert_refused(&secret, "has been used");

    linked.host.interrupt();
    let (status, raw) = linked.host.end();
    assert_eq!(status.code(), Some(0), "{raw}");
    // The printed line alone has the secret: no line of the log, and nothing on record.
    assert_eq!(plain(&raw).matches(&secret).count(), 1, "{raw}");
    assert!(
        raw.contains("a browser was signed in with the link"),
        "{raw}"
    );
    let events = site.ok(["event", "list", "--json"]);
    assert!(
        events.contains("request_refused") && !events.contains(&secret),
        "{events}"
    );
    for entry in std::fs::read_dir(site.folder()).expect("a folder") {
        let path = entry.expect("an entry").path();
        let content = if path.is_file() {
            std::fs::read(&path).expect("a file")
        } else {
            Vec::new()
        };
        let is_there = content
            .windows(SECRET_CHARS)
            .any(|part| part == secret.as_bytes());
        assert!(!is_there, "{}", path.display());
    }
}

/// On Postgres a host takes the time of the server, which no test steps.
#[test]
fn a_link_expires() {
    run_empty_case(Backend::Sqlite, expire_a_link);
}

async fn expire_a_link(place: Place) {
    let site = Site::new(place);
    let clock = site.folder().join("clock");
    std::fs::write(&clock, "0").expect("the clock's file");
    let mut command = serve_with_pages(&site, &[]);
    command.env("CAMPANILE_TEST_WALL_CLOCK", &clock);
    let mut linked = Linked::start(&command);
    // A reader must not find the file empty.
    let next = clock.with_extension("new");
    std::fs::write(&next, "301").expect("the clock's file");
    std::fs::rename(&next, &clock).expect("the clock's file");
    linked.host.wait_for("its time moved by +30");
    linked.assert_refused(&linked.secret, "has expired");
    // Whoever asks later does not learn whether it was ever used.
    linked.assert_refused(&linked.secret, "has expired");
    linked.host.interrupt();
    linked.host.end();
}

async fn nothing_but_a_terminal_gets_a_link(place: Place) {
    let api = Api::start(place, "");
    assert!(!api.host.stderr_lines().concat().contains("once="));
    assert!(!api.host.stdout_lines().concat().contains("once="));
    let (site, mut host) = (api.site, api.host);
    crate::site::stop(&mut host);
    // Lines of JSON are for programs, at a terminal too.
    let command = serve_with_pages(&site, &["--log-format", "json"]);
    let mut host = Terminal::start(&command, 100);
    host.wait_for("\"message\":\"serving\"");
    host.wait_for("the API answers at");
    host.interrupt();
    let (_, raw) = host.end();
    assert!(!raw.contains("once="), "{raw}");
    // Without pages there's nothing to sign in to.
    let mut host = Terminal::start(&site.command(["serve", "--listen", "off"]), 100);
    host.wait_for("nothing is due");
    host.interrupt();
    let (_, raw) = host.end();
    assert!(!raw.contains("once="), "{raw}");
}
