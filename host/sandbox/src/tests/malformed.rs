//! Thousands of malformed packages, each loaded and described.
//!
//! Each is a good file with a few changes: bytes flipped or replaced, pieces removed, repeated or inserted from another
//! file, ends cut off. `CAMPANILE_TEST_SEED=N` replays them.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::guests::*;
use crate::run::time::thread_time;
use crate::*;

const FILES: usize = 20_000;

/// One of this many files comes from a committed package, which takes a hundred times as long to compile.
const ONE_OF_LARGE: usize = 100;
const LARGE_BYTES_MAX: usize = 200_000;

/// The highest peak memory of the process. Two calls of `describe` have 32 MiB each, two compilations some more, and
/// the engine has a base size.
const PEAK_BYTES_MAX: u64 = 256 << 20;

/// The most processor time that one file takes of the thread loading it.
const FILE_TIME_MAX: Duration = Duration::from_secs(5);

/// Set in the process that loads the files.
const INSIDE: &str = "CAMPANILE_TEST_MALFORMED";

/// Run in a separate process: only these files count towards its memory, and a stack overflow fails only this test.
#[test]
fn twenty_thousand_mutated_files_are_refused_or_run_in_little_time_and_memory() {
    if std::env::var_os(INSIDE).is_some() {
        return load_all();
    }
    // The name of a test does not contain the name of the crate.
    let (_, module) = module_path!().split_once("::").unwrap();
    let own = format!(
        "{module}::twenty_thousand_mutated_files_are_refused_or_run_in_little_time_and_memory"
    );
    let inside = Command::new(std::env::current_exe().unwrap())
        .args([&own, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&inside.stdout);
    // The output of panics in libraries is long, and the process catches all of them.
    println!("{stdout}");
    let errors = String::from_utf8_lossy(&inside.stderr);
    let tail: Vec<&str> = errors.lines().rev().take(20).collect();
    assert!(inside.status.success(), "{}: {tail:#?}", inside.status);
    assert!(stdout.contains("loaded, "), "no file was loaded: {stdout}");
}

fn load_all() {
    let seed: u64 = match std::env::var("CAMPANILE_TEST_SEED") {
        Ok(text) => text.parse().expect("CAMPANILE_TEST_SEED is a number"),
        Err(_) => rand::random(),
    };
    println!("CAMPANILE_TEST_SEED={seed}");
    let (small, large) = (Arc::new(small()), Arc::new(large()));
    let next = Arc::new(AtomicUsize::new(0));
    let (sender, results) = mpsc::channel();
    for _ in 0..2 {
        let (small, large, next, sender) =
            (small.clone(), large.clone(), next.clone(), sender.clone());
        std::thread::spawn(move || {
            let loader = Loader::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= FILES {
                    return;
                }
                let mut random = StdRng::seed_from_u64(seed.wrapping_add(number as u64));
                let files = match number % ONE_OF_LARGE {
                    0 => &large,
                    _ => &small,
                };
                let file = mutated(files, &mut random);
                // Other processes may take the processor.
                let began = thread_time();
                let loaded = loader.load(&file);
                let spent = thread_time().saturating_sub(began);
                // The receiver is dropped when the test has failed.
                let _ = sender.send((number, loaded, spent));
            }
        });
    }
    drop(sender);
    let (mut loaded, mut longest, mut seen) = (0, Duration::ZERO, 0);
    // The loop ends early when a thread has panicked and printed the reason.
    while seen < FILES {
        let (number, is_loaded, spent) = results
            .recv_timeout(4 * LONG_WAIT)
            .unwrap_or_else(|error| panic!("after {seen} files: {error}"));
        assert!(spent < FILE_TIME_MAX, "file {number} took {spent:?}");
        loaded += usize::from(is_loaded);
        longest = longest.max(spent);
        seen += 1;
    }
    let peak = peak_bytes();
    println!(
        "{loaded} of {seen} loaded, {longest:?} of processor time at most, {peak:?} bytes at the peak"
    );
    // Otherwise the changes are too small or too large to find anything.
    assert!(loaded > FILES / 50 && loaded < FILES * 9 / 10, "{loaded}");
    if let Some(peak) = peak {
        assert!(peak < PEAK_BYTES_MAX, "{peak} bytes at the peak");
    }
}

/// A sandbox, and a runtime for calls of `describe`.
struct Loader {
    sandbox: Sandbox,
    runtime: tokio::runtime::Runtime,
}

impl Loader {
    fn new() -> Loader {
        Loader {
            sandbox: sandbox(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap(),
        }
    }

    /// Load and describe a file. Return whether it loaded. A refusal is one sentence for any file.
    fn load(&self, file: &[u8]) -> bool {
        let check = |refusal: Refusal| {
            let message = refusal.message;
            assert!(!message.is_empty() && !message.contains('\n'), "{message}");
            assert!(message.len() <= 2 << 10, "{message}");
        };
        match self.sandbox.load(file) {
            Ok(artifact) => {
                let artifact = Arc::new(artifact);
                let described = self.runtime.block_on(self.sandbox.describe(&artifact));
                if let Err(refusal) = described {
                    check(refusal);
                }
                true
            }
            Err(refusal) => {
                check(refusal);
                false
            }
        }
    }
}

/// Returns a small file of each form.
fn small() -> Vec<Vec<u8>> {
    let task =
        guest("(call $log (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))")
            .completes(Some("7"), None)
            .describes("", r#"{"name": "small"}"#);
    let program = r#"(module $small
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (table 1 funcref)
        (elem (i32.const 0) $exit)
        (data (i32.const 0) "\08\00\00\00\05\00\00\00[\22a\22]")
        (func (export "_start")
            (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 64)))
            (call_indirect (param i32) (i32.const 0) (i32.const 0)))
        (@producers (language "C11" "")))"#;
    let program = wat::parse_str(program).unwrap();
    let command = crate::load::recognise::recognise(&program, |_| Ok(())).unwrap();
    vec![
        task.component(),
        task.module(),
        command.component.into_owned(),
        program,
    ]
}

/// Returns the committed packages small enough for many repetitions.
fn large() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["../../plugins", "../../tests/guests"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "wasm")
            {
                files.push(path);
            }
        }
    }
    // Sorted, so that a seed replays the same files.
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .filter(|file| file.len() <= LARGE_BYTES_MAX)
        .collect()
}

/// Returns one of `files` with one to four changes.
fn mutated(files: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let mut file = files[random.random_range(0..files.len())].clone();
    for _ in 0..random.random_range(1..=4) {
        let other = &files[random.random_range(0..files.len())];
        change(&mut file, other, random);
    }
    file
}

fn change(file: &mut Vec<u8>, other: &[u8], random: &mut StdRng) {
    if file.is_empty() {
        return;
    }
    let at = random.random_range(0..file.len());
    let end = (at + random.random_range(1..64)).min(file.len());
    match random.random_range(0..10) {
        0..=2 => file[at] ^= 1 << random.random_range(0..8),
        // The limits of the number ranges of this format.
        3..=4 => file[at] = [0x00, 0x01, 0x7f, 0x80, 0xff][random.random_range(0..5)],
        5 => file[at] = random.random(),
        6 => drop(file.drain(at..end)),
        7 => {
            let piece = file[at..end].to_vec();
            file.splice(at..at, piece);
        }
        8 => {
            let from = random.random_range(0..other.len());
            let to = (from + random.random_range(1..256)).min(other.len());
            file.splice(at..end, other[from..to].iter().copied());
        }
        _ if random.random() => file.truncate(at),
        // The start of one file and the end of another.
        _ => {
            file.truncate(at);
            let from = at.min(other.len());
            file.extend_from_slice(&other[from..]);
        }
    }
}

/// Returns the peak memory of this process, where the system reports it.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes << 10)
}
