//! What attacks cost: for each, what stopped it, the memory of the host and of its processes, and the delay of a schedule
//! beside it that launches every second.
//!
//! Each attack gets a host and a database of its own. The database is a SQLite file. With the argument `postgres`, this
//! benchmark starts a Postgres server for each attack. It prints the rows of the table in
//! `docs/src/explanation/attacks.md`. Other arguments select attacks by parts of their names. `CAMPANILE_BIN` names the
//! program, usually a release build.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use campanile_model::clock::{Clock, Timestamp};
use campanile_tests::cluster::{Cluster, ClusterOptions};
use campanile_tests::{HostProcess, campanile_binary, hostile};
use serde_json::Value;

/// How long each attack is watched.
const WATCHED: Duration = Duration::from_secs(40);
/// Maximum length of the text saying what stopped an attack.
const STOPPED_BY_CHARS_MAX: usize = 160;
/// How often the memory is read.
const SAMPLE: Duration = Duration::from_millis(20);
/// The schedule that is measured.
const NEIGHBOUR: &str = "[[schedules]]\nevery = '1s'\n";

/// An attack: its name, and the files that it puts into the plugins folder.
struct Attack {
    name: &'static str,
    files: Vec<(String, Vec<u8>)>,
}

/// What an attack cost.
struct Cost {
    stopped_by: String,
    memory_bytes: u64,
    record_bytes: u64,
    delays: Vec<Duration>,
}

fn main() {
    // Cargo adds `--bench`.
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    arguments.retain(|argument| argument != "--bench");
    let on_postgres = arguments.iter().any(|argument| argument == "postgres");
    arguments.retain(|argument| argument != "postgres");
    println!(
        "| attack | what stopped it | peak memory | record | launches beside it | median delay | longest delay |"
    );
    println!("|---|---|---|---|---|---|---|");
    let is_chosen = |attack: &Attack| {
        arguments.is_empty() || arguments.iter().any(|it| attack.name.contains(it))
    };
    for attack in attacks().into_iter().filter(is_chosen) {
        let mut cost = cost(&attack, on_postgres);
        cost.delays.sort();
        let millis =
            |delay: Option<&Duration>| delay.map_or(f64::NAN, |delay| delay.as_secs_f64() * 1e3);
        println!(
            "| {} | {} | {} MiB | {} KiB | {} | {:.1} ms | {:.1} ms |",
            attack.name,
            cost.stopped_by,
            cost.memory_bytes >> 20,
            cost.record_bytes >> 10,
            cost.delays.len(),
            millis(cost.delays.get(cost.delays.len() / 2)),
            millis(cost.delays.last()),
        );
    }
}

fn attacks() -> Vec<Attack> {
    let file = |bytes: Vec<u8>| vec![("attack.wasm".to_owned(), bytes)];
    let hello = committed("../plugins/hello.wasm");
    let guests = |task: &str, context: &str| {
        let schedules: String = (0..8)
            .map(|number| {
                format!("[[schedules]]\nname = 'attack-{number}'\nevery = '1s'\noverlap = 'allow'\ntask = '{task}'\ncontext = {context}\n")
            })
            .collect();
        vec![
            ("attack.wasm".to_owned(), committed("guests/guests.wasm")),
            ("attack.toml".to_owned(), schedules.into_bytes()),
        ]
    };
    let calls = |program: Vec<u8>| {
        let schedules: String = (0..8)
            .map(|number| {
                format!(
                    "[[schedules]]\nname = 'attack-{number}'\nevery = '1s'\noverlap = 'allow'\n"
                )
            })
            .collect();
        vec![
            ("attack.wasm".to_owned(), program),
            ("attack.toml".to_owned(), schedules.into_bytes()),
        ]
    };
    let with_schedule = |guest: &str, keys: &str| {
        let schedule = format!("[[schedules]]\nname = 'attack'\nevery = '5s'\n{keys}");
        vec![
            (
                "attack.wasm".to_owned(),
                committed(&format!("guests/{guest}.wasm")),
            ),
            ("attack.toml".to_owned(), schedule.into_bytes()),
        ]
    };
    let attack = |name, files| Attack { name, files };
    vec![
        attack("none", Vec::new()),
        attack(
            "900,000 empty functions",
            file(hostile::many_functions(900_000)),
        ),
        attack("900,000 types", file(hostile::many_types(900_000))),
        attack(
            "99,000 segments of elements",
            file(hostile::many_elements(99_000)),
        ),
        attack(
            "components nested 4,000 deep",
            file(hostile::nested_components(&hello, 4_000)),
        ),
        attack(
            "types nested 4,000 deep in the WIT metadata",
            file(hostile::nested_types(4_000)),
        ),
        attack(
            "component instances doubled over 30 levels",
            file(hostile::doubled_instances(30)),
        ),
        attack(
            "14 instances of 73 memories",
            calls(hostile::many_instances(14, &"(memory 1)".repeat(73))),
        ),
        attack(
            "20 instances of 1,000,000 globals",
            calls(hostile::many_instances(
                20,
                &"(global i32 (i32.const 0))".repeat(1_000_000),
            )),
        ),
        attack(
            "eight schedules a second that open 240 files each",
            calls(hostile::many_descriptors(240, 600)),
        ),
        attack(
            "eight schedules a second that fill 60 MiB of memory each",
            calls(hostile::much_memory(960, 600)),
        ),
        attack(
            "eight schedules a second that sleep",
            guests("sleep", "{ ms = 600000 }"),
        ),
        attack(
            "eight schedules a second that fill stdout",
            guests("stdout_flood", "{ bytes = 1000000 }"),
        ),
        attack(
            "eight schedules a second with an output of 1 MB",
            guests("big_output", "{ bytes = 1000000 }"),
        ),
        attack(
            "128 layers of two tasks, each depending on both above",
            with_schedule("layers", ""),
        ),
        attack(
            "60 tasks that each pass on 1 MiB to one",
            with_schedule("wide", "task = 'few'\n"),
        ),
        attack(
            "60 copies of a file with data 16 MiB apart",
            (0..60)
                .map(|number| (format!("attack-{number}.wasm"), hostile::distant_data()))
                .collect(),
        ),
        attack(
            "300 sidecars with a key of 1 MB",
            (0..300)
                .flat_map(|number| {
                    let sidecar = format!("{} = 1\n", "k".repeat(1_000_000));
                    [
                        (
                            format!("attack-{number}.wasm"),
                            committed("guests/noop.wasm"),
                        ),
                        (format!("attack-{number}.toml"), sidecar.into_bytes()),
                    ]
                })
                .collect(),
        ),
        attack(
            "5,000 files whose names are no names of packages",
            (0..5_000)
                .map(|number| (format!("attack {number}.wasm"), b"x".to_vec()))
                .collect(),
        ),
    ]
}

fn committed(path: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a committed package")
}

fn cost(attack: &Attack, on_postgres: bool) -> Cost {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = ClusterOptions { fsync: true };
    let server = on_postgres.then(|| Cluster::start_with(server).expect("a Postgres server"));
    if let Some(server) = &server {
        let url = server.url().expose();
        let config = format!("database = '{url}'\n");
        fs::write(folder.path().join("campanile.toml"), config).expect("a configuration");
    }
    let plugins = folder.path().join("plugins");
    fs::create_dir(&plugins).expect("a plugins folder");
    fs::write(plugins.join("noop.wasm"), committed("guests/noop.wasm")).expect("a package");
    fs::write(plugins.join("noop.toml"), NEIGHBOUR).expect("a sidecar");
    let mut command = command(folder.path(), &["serve"]);
    let mut host = HostProcess::spawn(&mut command);
    host.wait_for_line("serving");
    std::thread::sleep(Duration::from_secs(3));
    let before = record_bytes(folder.path());
    let memory = MemoryPeak::watch(host.id());
    let began = Clock::system().now();
    for (name, bytes) in &attack.files {
        fs::write(plugins.join(name), bytes).expect("a file");
    }
    let until = Instant::now() + WATCHED;
    while Instant::now() < until && host.try_wait().is_none() {
        std::thread::sleep(Duration::from_millis(100));
    }
    let stopped_by = match host.try_wait() {
        Some(status) => format!("**nothing: the host ended with {status}**"),
        // Quoting a key of a megabyte would spoil the table.
        None => stopped_by(folder.path())
            .chars()
            .take(STOPPED_BY_CHARS_MAX)
            .collect(),
    };
    Cost {
        stopped_by,
        memory_bytes: memory.end(),
        record_bytes: record_bytes(folder.path()).saturating_sub(before),
        delays: delays(folder.path(), began),
    }
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(campanile_binary());
    command
        .args(args)
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder.join("cache"));
    command
}

fn json(folder: &Path, args: &[&str]) -> Value {
    let output = command(folder, args)
        .arg("--json")
        .output()
        .expect("a command");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Return the rejection of the package, or the most frequent reason and message of its launches.
fn stopped_by(folder: &Path) -> String {
    let packages = json(folder, &["package", "list"]);
    let attack = rows(&packages).find(|row| row["name"] == "attack");
    let Some(attack) = attack else {
        let rejections: Vec<&Value> = rows(&packages)
            .map(|row| &row["rejection"])
            .filter(|why| why.is_string())
            .collect();
        return match rejections.first() {
            Some(first) => format!("{} files are refused: {}", rejections.len(), text(first)),
            None => format!("{} files are active", rows(&packages).count() - 1),
        };
    };
    if let Some(why) = attack["rejection"].as_str() {
        return why.split(';').next().unwrap_or(why).to_owned();
    }
    let launches = json(folder, &["launch", "list", "--limit", "1000"]);
    let mut ends: Vec<String> = rows(&launches)
        .filter(|row| {
            row["schedule"]
                .as_str()
                .is_some_and(|name| name.starts_with("attack"))
        })
        .map(|row| {
            let why = [&row["reason"], &row["failure"]].map(text);
            format!("{} {}", text(&row["status"]), why.join(""))
                .trim()
                .to_owned()
        })
        .collect();
    ends.sort();
    let counts: Vec<String> = ends
        .chunk_by(|a, b| a == b)
        .map(|same| format!("{} × {}", same.len(), same[0].trim()))
        .collect();
    if !counts.is_empty() {
        return counts.join(", ");
    }
    match &attack["digest"] {
        Value::Null => "not loaded, no rejection".to_owned(),
        _ => "nothing: it is active, and has no schedule".to_owned(),
    }
}

fn rows(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Return how late the launches of the neighbour started that were due after `began`.
fn delays(folder: &Path, began: Timestamp) -> Vec<Duration> {
    let launches = json(
        folder,
        &["launch", "list", "--schedule", "noop", "--limit", "1000"],
    );
    rows(&launches)
        .filter_map(|row| {
            let due: Timestamp = text(&row["scheduled_time"]).parse().ok()?;
            let started: Timestamp = text(&row["started_at"]).parse().ok()?;
            (due >= began).then(|| started.since(due))
        })
        .collect()
}

/// Return the size of the database, with its write-ahead log on SQLite.
fn record_bytes(folder: &Path) -> u64 {
    let status = json(folder, &["db", "status"]);
    let size = |key: &str| status["record"][key].as_u64().unwrap_or_default();
    size("bytes") + size("wal_bytes")
}

/// Reads the memory of a process and of its children again and again.
struct MemoryPeak {
    ended: Arc<AtomicBool>,
    peak: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl MemoryPeak {
    fn watch(process: u32) -> MemoryPeak {
        let (ended, peak) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let thread = std::thread::spawn({
            let (ended, peak) = (Arc::clone(&ended), Arc::clone(&peak));
            move || {
                while !ended.load(Ordering::Relaxed) {
                    peak.fetch_max(memory_bytes(process), Ordering::Relaxed);
                    std::thread::sleep(SAMPLE);
                }
            }
        });
        MemoryPeak {
            ended,
            peak,
            thread,
        }
    }

    fn end(self) -> u64 {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watching thread");
        self.peak.load(Ordering::Relaxed)
    }
}

/// Return the resident memory of a process and of its children.
fn memory_bytes(process: u32) -> u64 {
    let of = |process: &str| -> u64 {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0) << 10
    };
    let threads = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten();
    let children: String = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .collect::<Vec<_>>()
        .join(" ");
    let mut children: Vec<&str> = children.split_whitespace().collect();
    children.sort_unstable();
    children.dedup();
    of(&process.to_string()) + children.into_iter().map(of).sum::<u64>()
}
