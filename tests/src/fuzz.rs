//! Random input for what reads untrusted bytes. `tests/cli/fuzz.rs` calls these functions for some seconds each, and the
//! targets in `tests/fuzz` call them with bytes that a fuzzer chose.
//!
//! Every function makes structured input of the bytes, so that most of it passes the first checks and reaches the code
//! behind them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arbitrary::{Arbitrary as _, Result, Unstructured};
use serde_json::{Map, Value, json};
use wasm_smith::{Component, Config, Module};

use crate::hostile;
use campanile_model::clock::Timestamp;
use campanile_package::{HostRules, Manifest, Sidecar, schedule_reader};
use campanile_sandbox::{JsonText, Limits, object_of};
use campanile_store::DatabaseUrl;
use campanile_workflow::graph::{Graph, Step};
use campanile_workflow::workflow::Workflow;

/// Committed packages, to change.
const PACKAGES: [&[u8]; 3] = [
    include_bytes!("../guests/noop.wasm"),
    include_bytes!("../guests/diamond.wasm"),
    include_bytes!("../guests/core-echo.wasm"),
];

/// Valid files, to change.
const SIDECARS: [&str; 3] = [
    include_str!("../../examples/config/sidecars/backup.toml"),
    include_str!("../../examples/config/sidecars/http-check.toml"),
    "[limits]\nmemory = '64MiB'\n[retry]\nmax_attempts = 2\n[[schedules]]\ncron = '0 2 * * *'\npriority = 3\n",
];
const SCHEDULES: &str = include_str!("../../examples/config/schedules.toml");

/// Return a file for the plugins folder: a generated module or component, a changed package, or a file that expands.
///
/// # Errors
/// When there are too few bytes.
pub fn package(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut input = Unstructured::new(bytes);
    Ok(match input.int_in_range(0..=5)? {
        0 => Module::new(config(&mut input)?, &mut input)?.to_bytes(),
        1 | 2 => Component::new(config(&mut input)?, &mut input)?.to_bytes(),
        3 => bomb(&mut input)?,
        _ => changed(PACKAGES[input.choose_index(PACKAGES.len())?], &mut input)?,
    })
}

fn config(input: &mut Unstructured<'_>) -> Result<Config> {
    let mut config = Config::arbitrary(input)?;
    config.max_nesting_depth = input.int_in_range(1..=50)?;
    config.max_components = input.int_in_range(0..=20)?;
    Ok(config)
}

fn bomb(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let size = 1 << input.int_in_range(0..=16)?;
    Ok(match input.int_in_range(0..=4)? {
        0 => hostile::many_functions(size),
        1 => hostile::many_types(size),
        2 => hostile::many_elements(size),
        3 => hostile::nested_types(size.min(4_000)),
        _ => hostile::nested_components(PACKAGES[0], size.min(4_000)),
    })
}

/// Change some bytes, or repeat, remove or move a part.
fn changed(original: &[u8], input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut bytes = original.to_vec();
    for _ in 0..input.int_in_range(1..=8)? {
        let place = input.choose_index(bytes.len())?;
        let end = (place + input.int_in_range(1..=64)?).min(bytes.len());
        match input.int_in_range(0..=4)? {
            0 => bytes[place] = input.arbitrary()?,
            1 => bytes[place] ^= 1 << input.int_in_range(0..=7)?,
            2 => _ = bytes.drain(place..end),
            3 => {
                let part = bytes[place..end].to_vec();
                let times = input.int_in_range(1..=50)?;
                let at = input.choose_index(bytes.len())?;
                bytes.splice(at..at, part.repeat(times));
            }
            // Lengths and counts are encoded in seven bits a byte: this place now has a large one.
            _ => _ = bytes.splice(place..=place, [0xff, 0xff, 0xff, 0x7f]),
        }
        if bytes.is_empty() {
            break;
        }
    }
    Ok(bytes)
}

/// Read a manifest; run the workflow of an accepted one to its end.
///
/// # Errors
/// When there are too few bytes.
///
/// # Panics
/// When a refusal is not one line, or an accepted manifest has no workflow that ends.
pub fn manifest(bytes: &[u8]) -> Result<()> {
    let mut input = Unstructured::new(bytes);
    let description = description(&mut input)?;
    let manifest = match Manifest::from_json("job", &description) {
        Ok(manifest) => manifest,
        Err(message) => {
            check_message(&message);
            return Ok(());
        }
    };
    let tasks = manifest.order(None).expect("all tasks have an order");
    let places = tasks
        .iter()
        .enumerate()
        .map(|(place, task)| (&*task.id, place));
    let places: HashMap<&str, usize> = places.collect();
    let steps = tasks.iter().map(|task| Step {
        id: task.id.clone(),
        depends_on: task
            .depends_on
            .iter()
            .map(|id| places[id.as_str()])
            .collect(),
        limits: Limits::default(),
        attempts_max: 1,
    });
    let graph = Arc::new(Graph::new(steps.collect()));
    let mut flow = Workflow::new(graph, Arc::new(object_of(&Map::new())));
    let now = Timestamp::EPOCH;
    let mut calls = 0;
    while let Some(&place) = flow.ready(now).first() {
        flow.start(place);
        let inheritance = flow.inheritance(place);
        assert!(inheritance.bytes() < 1 << 30);
        let output: JsonText = serde_json::from_str("[1]").expect("JSON");
        let gives: Map<String, Value> = json!({"key": calls})
            .as_object()
            .cloned()
            .unwrap_or_default();
        if flow
            .succeed(place, Some(output), object_of(&gives))
            .is_err()
        {
            flow.fail(place);
        }
        calls += 1;
        assert!(calls <= tasks.len(), "a task is called twice");
    }
    assert!(flow.is_done() || flow.has_failed());
    Ok(())
}

fn description(input: &mut Unstructured<'_>) -> Result<Value> {
    let count = input.int_in_range(0..=300)?;
    let mut tasks = Vec::new();
    for number in 0..count {
        let mut depends_on = Vec::new();
        for _ in 0..input.int_in_range(0..=6)? {
            // Mostly an earlier task; sometimes itself, a later or an unknown one.
            let other = input.int_in_range(0..=number.max(3) + 1)?;
            depends_on.push(format!("t{other}"));
        }
        let mut task = json!({"id": format!("t{number}"), "depends_on": depends_on});
        if input.ratio(1, 40)? {
            task[word(input)?] = value(input, 3)?;
        }
        tasks.push(task);
    }
    let mut description = json!({"tasks": tasks});
    for _ in 0..input.int_in_range(0..=3)? {
        description[word(input)?] = value(input, 4)?;
    }
    Ok(description)
}

fn word(input: &mut Unstructured<'_>) -> Result<&'static str> {
    input.choose(&WORDS).copied()
}

/// Keys of manifests, sidecars and schedules, and some unknown keys.
const WORDS: [&str; 24] = [
    "id",
    "depends_on",
    "tasks",
    "schedules",
    "requests",
    "name",
    "cron",
    "every",
    "context",
    "timeout",
    "max_attempts",
    "directories",
    "http",
    "env",
    "keyvalue",
    "secrets",
    "priority",
    "group",
    "overlap",
    "policies",
    "version",
    "limits",
    "",
    "\u{202e}x",
];

fn value(input: &mut Unstructured<'_>, depth: usize) -> Result<Value> {
    Ok(
        match input.int_in_range(0..=if depth == 0 { 4 } else { 6 })? {
            0 => Value::Null,
            1 => json!(input.arbitrary::<bool>()?),
            2 => json!(input.arbitrary::<i64>()?),
            3 => json!(input.arbitrary::<f64>()?),
            4 => json!(text(input)?),
            5 => {
                let count = input.int_in_range(0..=4)?;
                let items = (0..count).map(|_| value(input, depth - 1));
                Value::Array(items.collect::<Result<_>>()?)
            }
            _ => {
                let mut object = Map::new();
                for _ in 0..input.int_in_range(0..=4)? {
                    object.insert(word(input)?.to_owned(), value(input, depth - 1)?);
                }
                Value::Object(object)
            }
        },
    )
}

fn text(input: &mut Unstructured<'_>) -> Result<String> {
    match input.ratio(1, 2)? {
        true => Ok(word(input)?.to_owned()),
        false => input.arbitrary(),
    }
}

/// Read a changed sidecar.
///
/// # Errors
/// When there are too few bytes.
///
/// # Panics
/// When a refusal does not say where it is.
pub fn sidecar(bytes: &[u8]) -> Result<()> {
    let mut input = Unstructured::new(bytes);
    let original = SIDECARS[input.choose_index(SIDECARS.len())?];
    let text = changed_text(original, &mut input)?;
    let rules = HostRules {
        secret_variables: Default::default(),
        limits: Limits::default(),
        memory_bytes_most: 1 << 30,
        env: |_| None,
        own_paths: Vec::new(),
        secrets: Default::default(),
        foreign_writers: Default::default(),
        groups: Default::default(),
        policy: Default::default(),
    };
    if let Err(error) = Sidecar::parse(Path::new("job.toml"), &text, &rules) {
        check_place(&error.to_string(), "job.toml");
    }
    Ok(())
}

/// Read a changed schedules file.
///
/// # Errors
/// When there are too few bytes.
///
/// # Panics
/// When a refusal does not say where it is.
pub fn schedules_file(bytes: &[u8]) -> Result<()> {
    let mut input = Unstructured::new(bytes);
    let text = changed_text(SCHEDULES, &mut input)?;
    if let Err(error) = schedule_reader::read_file("schedules.toml", &text) {
        check_place(&error.to_string(), "schedules.toml");
    }
    Ok(())
}

/// Repeat, remove and exchange lines, and put other values in them.
fn changed_text(original: &str, input: &mut Unstructured<'_>) -> Result<String> {
    let mut lines: Vec<String> = original.lines().map(str::to_owned).collect();
    for _ in 0..input.int_in_range(1..=6)? {
        let place = input.choose_index(lines.len())?;
        match input.int_in_range(0..=4)? {
            0 => _ = lines.remove(place),
            1 => {
                let line = lines[place].clone();
                lines.insert(input.choose_index(lines.len())?, line);
            }
            2 => lines.insert(place, format!("{} = {}", word(input)?, value(input, 2)?)),
            3 => {
                if let Some((key, _)) = lines[place].clone().split_once('=') {
                    lines[place] = format!("{key}= {}", value(input, 2)?);
                }
            }
            _ => lines[place].push_str(&text(input)?),
        }
        if lines.is_empty() {
            break;
        }
    }
    Ok(lines.join("\n"))
}

/// Read the address of a database. An accepted one never shows its password.
///
/// # Errors
/// When there are too few bytes.
///
/// # Panics
/// When a password is shown, or a refusal is not one line.
pub fn database_url(bytes: &[u8]) -> Result<()> {
    const PASSWORD: &str = "s3cr3t-pass";
    let mut input = Unstructured::new(bytes);
    let originals = [
        "postgres://user:s3cr3t-pass@db.example.com:5432/campanile?sslmode=require",
        "postgresql://user:s3cr3t-pass@[::1]/x",
        "sqlite:campanile.db",
        "sqlite:///var/lib/campanile.db?mode=ro",
    ];
    let mut url = originals[input.choose_index(originals.len())?].to_owned();
    for _ in 0..input.int_in_range(0..=5)? {
        let ends: Vec<usize> = url.char_indices().map(|(place, _)| place).collect();
        let Some(&place) = ends.get(input.choose_index(ends.len().max(1))?) else {
            break;
        };
        match input.int_in_range(0..=2)? {
            0 => _ = url.remove(place),
            1 => url.insert_str(place, &text(&mut input)?),
            _ => url.insert(
                place,
                *input.choose(&['@', ':', '/', '?', '%', '#', '&', '='])?,
            ),
        }
    }
    match url.parse::<DatabaseUrl>() {
        Ok(parsed) => {
            let shown = format!("{parsed} {parsed:?}");
            // Elsewhere it is no password.
            let has_password = url.contains(&format!("//user:{PASSWORD}"));
            assert!(!has_password || !shown.contains(PASSWORD), "{url}: {shown}");
        }
        Err(error) => check_message(&error.to_string()),
    }
    Ok(())
}

fn check_message(message: &str) {
    let is_one_line = !message.is_empty() && !message.contains('\n');
    assert!(is_one_line, "{message:?}");
}

/// An error of a file begins with its place.
fn check_place(error: &str, file: &str) {
    assert!(error.starts_with(&format!("{file}:")), "{error:?}");
}
