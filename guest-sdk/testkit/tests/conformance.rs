//! Conformance tests of WASI in the sandbox: each case of `tests/guests/conformance`, as a program for preview 1 and as a
//! component. The cases are named like those of `wasi-testsuite`; some cases about grants are our own.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use campanile_testkit::{Device, Outcome, Report, TaskTest};
use serde_json::{Value, json};
use tempfile::TempDir;

const FOR_PREVIEW_1: &str = "conformance-p1.wasm";
const FOR_0_2: &str = "conformance.wasm";

/// Longer than any case takes.
const TIMEOUT: Duration = Duration::from_secs(10);

const PROCESS: &[&str] = &[
    "args_get",
    "args_sizes_get",
    "environ_get",
    "environ_sizes_get",
    "proc_exit_failure",
    "proc_exit_success",
    "sched_yield",
];
const CLOCKS: &[&str] = &[
    "clock_getres_monotonic",
    "clock_getres_realtime",
    "clock_gettime_monotonic",
    "clock_gettime_realtime",
    "clock_time_get",
    "poll_oneoff_clock",
    "poll_oneoff_clock_absolute",
    "poll_oneoff_clock_past",
    "poll_oneoff_realtime_past",
    "poll_oneoff_without_subscription",
];
const RANDOM: &[&str] = &[
    "big_random_buf",
    "random_get_non_zero_length",
    "random_get_zero_length",
];
const STDIO: &[&str] = &[
    "fd_write_to_invalid_fd",
    "fd_write_to_stdout",
    "isatty",
    "poll_oneoff_stdio",
    "sock_shutdown_invalid_fd",
    "sock_shutdown_not_sock",
    "stdio",
    "stdio_is_no_file",
];
const DESCRIPTORS: &[&str] = &[
    "close_preopen",
    "dangling_fd",
    "fd_fdstat_set_rights",
    "fd_flags_set",
    "overwrite_preopen",
    "renumber",
    "stat_dev_ino",
];
const FILES: &[&str] = &[
    "fd_advise",
    "fd_filestat_set",
    "fd_sync",
    "file_allocate",
    "file_pread_pwrite",
    "file_read_after_the_end",
    "file_seek_tell",
    "file_truncation",
    "file_unbuffered_write",
    "fopen_with_access",
    "fstflags_validate",
    "lseek",
    "pread_with_access",
    "pwrite_with_access",
    "pwrite_with_append",
];
const DIRECTORIES: &[&str] = &[
    "dir_fd_op_failures",
    "directory_seek",
    "fd_readdir",
    "fd_readdir_lots",
    "fdopendir_with_access",
    "name_is_not_utf_8",
    "path_create_directory",
    "remove_directory_trailing_slashes",
    "remove_nonempty_directory",
];
const OPENING: &[&str] = &[
    "interesting_paths",
    "nofollow_errors",
    "path_open_create_existing",
    "path_open_dirfd_not_dir",
    "path_open_missing",
    "path_open_nonblock",
    "path_open_preopen",
    "path_open_read_without_rights",
    "path_open_read_write",
    "truncation_rights",
];
const PATHS: &[&str] = &[
    "path_exists",
    "path_filestat",
    "path_link",
    "path_rename",
    "path_rename_dir_trailing_slashes",
    "path_rename_file_trailing_slashes",
    "trailing_slash_is_a_directory",
    "unlink_file_trailing_slashes",
];
const LINKS: &[&str] = &[
    "dangling_symlink",
    "path_symlink_trailing_slashes",
    "readlink",
    "symlink_create",
    "symlink_filestat",
    "symlink_loop",
];
const PERMISSIONS: &[&str] = &[
    "absolute_links_cannot_be_made",
    "fopen_with_no_access",
    "grants_are_apart",
    "links_out_of_it_are_not_followed",
    "links_out_of_it_cannot_be_made",
    "links_within_it_are_followed",
    "no_way_leads_out_of_a_directory",
    "not_granted",
    "read_only_is_read",
    "read_only_makes_and_removes_nothing",
    "read_only_opens_nothing_to_write",
    "read_only_sets_no_times_and_sizes",
];

const DEVICES: &[&str] = &[
    "dev_has_the_granted_devices",
    "dev_null",
    "dev_urandom",
    "dev_zero",
];

const FAMILIES: [(&str, &[&str]); 12] = [
    ("process", PROCESS),
    ("clocks", CLOCKS),
    ("random", RANDOM),
    ("stdio", STDIO),
    ("descriptors", DESCRIPTORS),
    ("files", FILES),
    ("directories", DIRECTORIES),
    ("opening", OPENING),
    ("paths", PATHS),
    ("links", LINKS),
    ("permissions", PERMISSIONS),
    ("devices", DEVICES),
];

/// The cases that are known to fail: the name, a part of the message, and the reason.
const KNOWN_FAILURES: &[(&str, &str, &str)] = &[
    (
        "poll_oneoff_realtime_past",
        "gives OVERFLOW",
        "wasmtime's adapter for preview 1 subtracts the current time from the awaited time",
    ),
    (
        "file_read_after_the_end",
        "without one",
        "a stream of WASI 0.2 stays closed after its end; programs that follow a file must seek",
    ),
    (
        "path_open_read_without_rights",
        "and works",
        "WASI 0.2 has no rights and opens the file for reading; the suite has dropped this case",
    ),
];

/// The directory that a program sees at `/library`, and files beside it on this machine.
struct Library(TempDir);

impl Library {
    fn new() -> Library {
        let root = tempfile::tempdir().expect("a folder");
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("library/shelf")).expect("a folder");
        fs::write(at("library/book"), "ding dong").expect("a file");
        fs::create_dir(at("odd")).expect("a folder");
        for name in [&b"plain"[..], b"caf\xe9.txt", b"\xff"] {
            let name = OsStr::from_bytes(name);
            fs::write(at("odd").join(name), "plain").expect("a file");
        }
        fs::create_dir(at("elsewhere")).expect("a folder");
        fs::write(at("elsewhere/secret"), "secret").expect("a file");
        for (link, target) in [
            ("inside", PathBuf::from("book")),
            ("outside", PathBuf::from("../elsewhere/secret")),
            ("door", PathBuf::from("../elsewhere")),
            ("absolute", at("elsewhere/secret")),
        ] {
            symlink(target, at("library").join(link)).expect("a link");
        }
        Library(root)
    }

    /// Return all paths, with their modification times and contents.
    fn contents(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("entries") {
                let path = entry.expect("an entry").path();
                let about = path.symlink_metadata().expect("metadata");
                let inside = match about.is_file() {
                    true => fs::read_to_string(&path).expect("text"),
                    false => String::new(),
                };
                found.insert(format!("{path:?} {:?} {inside}", about.modified()));
                if about.is_dir() {
                    folders.push(path);
                }
            }
        }
        found
    }
}

/// The program in one form, with the grants of all cases. It is loaded once, because compiling takes longer than all cases.
struct Program {
    form: &'static str,
    test: Option<TaskTest>,
    library: Library,
}

impl Program {
    fn load(form: &'static str) -> Mutex<Program> {
        let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests");
        let library = Library::new();
        let nothing: [(&str, &str); 0] = [];
        let test = TaskTest::load(guests.join(form))
            .expect("the guest is a package")
            .timeout(TIMEOUT)
            .env("GREETING", "ciào=salve")
            .env("EMPTY", "")
            .writable_files("/scratch", nothing)
            .directory("/library", library.0.path().join("library"))
            .directory("/names", library.0.path().join("odd"))
            .device(Device::Null)
            .device(Device::Urandom)
            .device(Device::Zero);
        Mutex::new(Program {
            form,
            test: Some(test),
            library,
        })
    }

    fn run(&mut self, context: Value) -> Report {
        let mut test = self.test.take().expect("a test").context(context);
        let report = test.run().expect("the test can be run");
        self.test = Some(test);
        report
    }
}

/// Return the program for WASI preview 1 and for WASI 0.2.
fn programs() -> impl Iterator<Item = MutexGuard<'static, Program>> {
    static PREVIEW_1: LazyLock<Mutex<Program>> = LazyLock::new(|| Program::load(FOR_PREVIEW_1));
    static COMPONENT: LazyLock<Mutex<Program>> = LazyLock::new(|| Program::load(FOR_0_2));
    let each: [&LazyLock<Mutex<Program>>; 2] = [&PREVIEW_1, &COMPONENT];
    each.into_iter()
        .map(|program| program.lock().expect("the lock is not poisoned"))
}

/// Check the report of a case, and return the fault if there is one.
fn check(form: &str, case: &str, report: &Report) -> Result<(), String> {
    let shown = || Err(report.to_string());
    match case {
        "proc_exit_failure" => {
            // WASI 0.2 has only the exit codes 0 and 1.
            let code = if form == FOR_PREVIEW_1 { 33 } else { 1 };
            let details = report.failure().and_then(|failure| failure.details.clone());
            match details == Some(json!({ "exit_code": code })) {
                true => Ok(()),
                false => shown(),
            }
        }
        _ if !report.succeeded() => shown(),
        "fd_write_to_stdout" => {
            let printed = (report.stdout(), report.stderr());
            match printed == ("ding dong\n", "the bell has cracked\n") {
                true => Ok(()),
                false => shown(),
            }
        }
        _ => Ok(()),
    }
}

/// Run the cases of a family in both forms, and panic with the list of failures.
fn run_family(cases: &[&str]) {
    let mut failures = String::new();
    for mut program in programs() {
        for case in cases {
            let before = program.library.contents();
            let report = program.run(json!({ "case": case }));
            let result = check(program.form, case, &report);
            let known = KNOWN_FAILURES.iter().find(|(name, _, _)| name == case);
            let fault = match (result, known) {
                _ if program.library.contents() != before => {
                    "it changed files outside of its grants".to_owned()
                }
                (Err(message), Some((_, expected, _))) if message.contains(expected) => continue,
                (Ok(()), Some((_, _, why))) => format!("it was expected to fail, because {why}"),
                (Err(message), _) => message,
                (Ok(()), None) => continue,
            };
            let _ = writeln!(failures, "{case} in {}: {fault}", program.form);
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

#[test]
fn the_tests_run_every_case_of_the_program() {
    let listed: Value = FAMILIES
        .iter()
        .map(|(family, cases)| ((*family).to_owned(), json!(cases)))
        .collect();
    for mut program in programs() {
        let report = program.run(json!({}));
        assert_eq!(report.output(), Some(&listed), "{report}");
    }
    let cases: Vec<&&str> = FAMILIES.iter().flat_map(|(_, cases)| *cases).collect();
    for (case, _, _) in KNOWN_FAILURES {
        assert!(cases.contains(&case), "there is no case {case}");
    }
}

#[test]
fn process() {
    run_family(PROCESS);
}

#[test]
fn clocks() {
    run_family(CLOCKS);
}

#[test]
fn random_bytes() {
    run_family(RANDOM);
}

#[test]
fn standard_descriptors() {
    run_family(STDIO);
}

#[test]
fn descriptors() {
    run_family(DESCRIPTORS);
}

#[test]
fn files() {
    run_family(FILES);
}

#[test]
fn directories() {
    run_family(DIRECTORIES);
}

#[test]
fn opening() {
    run_family(OPENING);
}

#[test]
fn paths() {
    run_family(PATHS);
}

#[test]
fn links() {
    run_family(LINKS);
}

#[test]
fn permissions() {
    run_family(PERMISSIONS);
}

#[test]
fn devices() {
    run_family(DEVICES);
}

/// A component of other tools has wasmtime's adapter built in, with its limit.
#[test]
fn variables_beyond_a_built_in_adapter_are_refused_for_good() {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests");
    for (form, succeeds) in [(FOR_PREVIEW_1, true), (FOR_0_2, false)] {
        let test = TaskTest::load(guests.join(form)).expect("the guest is a package");
        let nothing: [(&str, &str); 0] = [];
        let report = test
            .timeout(TIMEOUT)
            .env("LARGE", "a".repeat(100_000))
            .writable_files("/scratch", nothing)
            .context(json!({"case": "environ_sizes_get"}))
            .run()
            .expect("the test can be run");
        assert_eq!(report.succeeded(), succeeds, "{form}: {report}");
        if let Some(failure) = report.failure() {
            assert_eq!(failure.kind, Outcome::Refused, "{report}");
            assert!(
                !failure.retryable && failure.message.contains("64 KiB"),
                "{report}"
            );
        }
    }
}
