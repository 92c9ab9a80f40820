//! From a package's description in JSON to a checked manifest.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::graph::TaskGraph;
use super::{DEPENDENCIES_MAX, Description, ENTRIES_MAX, Manifest, Task};
use crate::grants::{GrantKind, KINDS};
use crate::limits::{self, MAX_ATTEMPTS_MOST};
use crate::requests::Requested;
use crate::schedule_reader;
use crate::spec::ScheduleDefinition;
use crate::toml_reader::{Document, Error, Section};
use campanile_model::text::did_you_mean;

type Read<T> = Result<T, Error>;

pub(super) fn manifest(package: &str, description: &Value) -> Read<Manifest> {
    let document = Document::from_json(description)?;
    let mut top = document.section();
    // The schema of the context is for people and editors.
    top.any("context_schema");
    let mut described = Description {
        name: top.text("name")?,
        version: top.text("version")?,
        language: top.text("language")?,
        summary: top.text("summary")?,
        description: description.to_string(),
        ..Description::default()
    };
    let mut warnings = Vec::new();
    let tasks = entries(&mut top, "tasks")?.into_iter();
    let tasks: Vec<Task> = tasks
        .map(|section| task(section, &mut warnings))
        .collect::<Read<_>>()?;
    check_tasks(&tasks).map_err(|what| top.error("tasks", what))?;
    described.tasks = Arc::new(tasks);
    let with_tasks = Description {
        tasks: Arc::clone(&described.tasks),
        ..Description::default()
    };
    let with_tasks = Manifest::of(package, Arc::new(with_tasks));
    let mut names = BTreeSet::new();
    for mut section in entries(&mut top, "schedules")? {
        let schedule = schedule(&mut section, &mut names, &with_tasks)?;
        described.schedules.push(schedule);
        section.finish_with_warnings(&mut warnings);
    }
    if let Some(mut section) = top.table("requests")? {
        for kind in KINDS.into_iter().filter(|kind| !kind.parts.is_empty()) {
            described
                .requests
                .extend(requests(&mut section, kind, &mut warnings)?);
        }
        section.finish_with_warnings(&mut warnings);
    }
    top.finish_with_warnings(&mut warnings);
    described.warnings = warnings;
    Ok(Manifest::of(package, Arc::new(described)))
}

fn entries<'d>(section: &mut Section<'d>, key: &'static str) -> Read<Vec<Section<'d>>> {
    let list = section.tables(key)?.unwrap_or_default();
    bounded(section, key, list)
}

/// Refuse a list that is too long.
fn bounded<T>(section: &Section<'_>, key: &str, list: Vec<T>) -> Read<Vec<T>> {
    let n = list.len();
    if n <= ENTRIES_MAX {
        return Ok(list);
    }
    let what = format_args!("has {n} entries, and {ENTRIES_MAX} are allowed");
    Err(section.error(key, what))
}

fn task(mut section: Section<'_>, warnings: &mut Vec<String>) -> Read<Task> {
    let id = section
        .text("id")?
        .ok_or_else(|| section.error("id", "is missing"))?;
    let is_plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
    };
    if id.is_empty() || id.len() > 64 || !id.bytes().all(is_plain) {
        let what = format_args!("is {id:?}: use 1 to 64 of a-z, 0-9, `_` and `-`");
        return Err(section.error("id", what));
    }
    let task = Task {
        max_attempts: section.number("max_attempts", 1, MAX_ATTEMPTS_MOST)?,
        summary: section.text("summary")?,
        depends_on: section.texts("depends_on")?.unwrap_or_default(),
        timeout: section.parsed("timeout", limits::timeout)?,
        id,
    };
    section.finish_with_warnings(warnings);
    Ok(task)
}

/// Check that ids are unique, and that dependencies are known, not too many, and have no cycle; the error is a clause.
fn check_tasks(tasks: &[Task]) -> Result<(), String> {
    let dependencies: usize = tasks.iter().map(|task| task.depends_on.len()).sum();
    if dependencies > DEPENDENCIES_MAX {
        return Err(format!(
            "has {dependencies} dependencies over all its tasks, and {DEPENDENCIES_MAX} are allowed: put a task between the many and those that depend on all of them"
        ));
    }
    let mut ids = BTreeSet::new();
    if let Some(task) = tasks.iter().find(|task| !ids.insert(task.id.as_str())) {
        return Err(format!("has two tasks with the id `{}`", task.id));
    }
    for task in tasks {
        let mut seen = BTreeSet::new();
        for id in &task.depends_on {
            if !ids.contains(id.as_str()) {
                let hint = did_you_mean(id, ids.iter().copied());
                return Err(format!(
                    "has a task `{}` that depends on `{id}`, which is no task of this package{hint}",
                    task.id
                ));
            }
            if !seen.insert(id) {
                return Err(format!(
                    "has a task `{}` that depends on `{id}` twice",
                    task.id
                ));
            }
        }
    }
    if let Some(cycle) = TaskGraph::of(tasks).cycle() {
        let ids: Vec<&str> = cycle.into_iter().map(|place| &*tasks[place].id).collect();
        let cycle = ids.join(" → ");
        return Err(format!("has tasks that depend on each other: {cycle}"));
    }
    Ok(())
}

/// Reads a proposed schedule, returning it with its name as written and without a package. The name must be one this package may use.
fn schedule(
    section: &mut Section<'_>,
    names: &mut BTreeSet<String>,
    manifest: &Manifest,
) -> Read<ScheduleDefinition> {
    let written = section.text("name")?.unwrap_or_default();
    schedule_reader::read_name(section, names, Some(&manifest.package))?;
    let schedule = schedule_reader::read(section, written, "")?;
    if let Some(id) = &schedule.task
        && manifest.task(id).is_none()
    {
        let what = format_args!("is `{id}`, which is no task of this package");
        return Err(section.error("task", what));
    }
    if schedule.rule.exclude.iter().any(String::is_empty) {
        return Err(section.error("exclude", "holds an empty text"));
    }
    Ok(schedule)
}

fn requests(
    section: &mut Section<'_>,
    kind: &'static GrantKind,
    warnings: &mut Vec<String>,
) -> Read<Vec<Requested>> {
    if let [part] = kind.parts {
        let requests = section.list(kind.key, |name| {
            part.check(name)?;
            Ok(Requested {
                kind,
                parts: vec![name.to_owned()],
                reason: None,
            })
        });
        return bounded(section, kind.key, requests?.unwrap_or_default());
    }
    let requests = entries(section, kind.key)?.into_iter().map(|mut entry| {
        let parts = kind.parts.iter().map(|part| part.read_from(&mut entry));
        let parts = parts.collect::<Read<_>>()?;
        let reason = entry.text("reason")?;
        entry.finish_with_warnings(warnings);
        Ok(Requested {
            kind,
            parts,
            reason,
        })
    });
    requests.collect()
}
