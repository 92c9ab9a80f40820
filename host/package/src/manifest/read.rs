//! From JSON to a checked manifest.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    BucketRequest, DirectoryRequest, ENTRIES_MAX, HttpRequest, Manifest, Requests, SocketRequest,
    Task,
};
use crate::context;
use crate::fields::Fields;
use crate::limits;
use crate::sidecar::{MAX_ATTEMPTS_MOST, guest_path_fault};
use crate::spec::{ScheduleSpec, TIMEZONE_DEFAULT, only_rule, schedule_name_fault};
use campanile_model::clock::Timestamp;
use campanile_model::text::nearest;
use campanile_sandbox::{ENV_PREFIX, Protocol};
use campanile_schedule::policy::{NUMBER_MOST, Policies, Policy, Shape};
use campanile_schedule::rule::{DayMatch, DstFold, DstGap, RuleKind, RuleText};

type Read<T> = Result<T, String>;

pub(super) fn manifest(package: &str, description: &Value) -> Read<Manifest> {
    let mut warnings = Vec::new();
    let mut top = Fields::new("", description)?;
    let mut manifest = Manifest {
        name: top.text("name")?,
        version: top.text("version")?,
        language: top.text("language")?,
        summary: top.text("summary")?,
        context_schema: top.any("context_schema").cloned(),
        description: description.clone(),
        ..Manifest::undescribed(package)
    };
    let tasks = bounded(top.list("tasks")?, "tasks")?
        .into_iter()
        .map(|fields| task(fields, &mut warnings))
        .collect::<Read<Vec<Task>>>()?;
    if !tasks.is_empty() {
        manifest.tasks = tasks;
    }
    check_tasks(&manifest.tasks)?;
    manifest.schedules = bounded(top.list("schedules")?, "schedules")?
        .into_iter()
        .map(|fields| schedule(fields, &manifest, &mut warnings))
        .collect::<Read<Vec<ScheduleSpec>>>()?;
    check_schedule_names(&manifest.schedules)?;
    if let Some(fields) = top.object("requests")? {
        manifest.requests = requests(fields, &mut warnings)?;
    }
    top.finish(&mut warnings);
    manifest.warnings = warnings;
    Ok(manifest)
}

fn bounded<T>(list: Vec<T>, key: &str) -> Read<Vec<T>> {
    match list.len() {
        0..=ENTRIES_MAX => Ok(list),
        n => Err(format!(
            "`{key}` has {n} entries, and {ENTRIES_MAX} are allowed"
        )),
    }
}

fn task(mut fields: Fields<'_>, warnings: &mut Vec<String>) -> Read<Task> {
    let id = fields
        .text("id")?
        .ok_or_else(|| fields.error("id", "is missing"))?;
    let plain = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-'
    };
    if id.is_empty() || id.len() > 64 || !id.bytes().all(plain) {
        return Err(fields.error(
            "id",
            format!("is {id:?}: use 1 to 64 of a-z, 0-9, `_` and `-`"),
        ));
    }
    let timeout = match fields.text("timeout")? {
        None => None,
        Some(text) => Some(limits::timeout(&text).map_err(|what| fields.error("timeout", what))?),
    };
    let max_attempts = fields.number("max_attempts", 1, MAX_ATTEMPTS_MOST)?;
    let task = Task {
        summary: fields.text("summary")?,
        depends_on: fields.texts("depends_on")?,
        timeout,
        max_attempts: max_attempts.and_then(|attempts| u32::try_from(attempts).ok()),
        id,
    };
    fields.finish(warnings);
    Ok(task)
}

fn check_tasks(tasks: &[Task]) -> Read<()> {
    let mut ids = BTreeSet::new();
    for task in tasks {
        if !ids.insert(task.id.as_str()) {
            return Err(format!("two tasks have the id `{}`", task.id));
        }
    }
    for task in tasks {
        let mut seen = BTreeSet::new();
        for id in &task.depends_on {
            if !ids.contains(id.as_str()) {
                let hint = match nearest(id, ids.iter().copied()) {
                    Some(near) => format!(": did you mean `{near}`?"),
                    None => String::new(),
                };
                return Err(format!(
                    "task `{}` depends on `{id}`, which is no task of this package{hint}",
                    task.id
                ));
            }
            if !seen.insert(id) {
                return Err(format!("task `{}` depends on `{id}` twice", task.id));
            }
        }
    }
    match circle(tasks) {
        None => Ok(()),
        Some(circle) => Err(format!("tasks wait for each other: {}", circle.join(" → "))),
    }
}

/// A circle of dependencies, its first task repeated at the end, if there is one.
///
/// Takes away tasks that wait for nobody until none is left. Whatever remains has a dependency
/// that remains too, so following first dependencies must come around.
fn circle(tasks: &[Task]) -> Option<Vec<&str>> {
    let mut left: Vec<&Task> = tasks.iter().collect();
    loop {
        let waiting: BTreeSet<&str> = left.iter().map(|task| task.id.as_str()).collect();
        let before = left.len();
        left.retain(|task| {
            task.depends_on
                .iter()
                .any(|id| waiting.contains(id.as_str()))
        });
        if left.len() == before {
            break;
        }
    }
    let mut path: Vec<&str> = vec![&left.first()?.id];
    loop {
        let here = *path.last()?;
        let task = left.iter().find(|task| task.id == here)?;
        let next = task
            .depends_on
            .iter()
            .find(|id| left.iter().any(|task| task.id == **id))?;
        if let Some(start) = path.iter().position(|id| id == next) {
            path.push(next);
            return Some(path.split_off(start));
        }
        path.push(next);
    }
}

fn schedule(
    mut fields: Fields<'_>,
    manifest: &Manifest,
    warnings: &mut Vec<String>,
) -> Read<ScheduleSpec> {
    let name = fields.text("name")?;
    if let Some(fault) = name.as_deref().and_then(schedule_name_fault) {
        return Err(fields.error("name", fault));
    }
    let task = fields.text("task")?;
    if let Some(id) = &task
        && manifest.task(id).is_none()
    {
        return Err(fields.error(
            "task",
            format!("is `{id}`, which is no task of this package"),
        ));
    }
    let rule = rule(&mut fields)?;
    let policies = policies(&mut fields)?;
    let context = fields.map("context")?;
    context::check(&context)
        .map_err(|reserved| fields.error("context", format!("is refused: {reserved}")))?;
    fields.finish(warnings);
    Ok(ScheduleSpec {
        name,
        task,
        rule,
        policies,
        context,
    })
}

fn rule(fields: &mut Fields<'_>) -> Read<RuleText> {
    let mut rules = Vec::new();
    for &kind in RuleKind::ALL {
        rules.extend(fields.text(kind.as_str())?.map(|text| (kind, text)));
    }
    let (kind, expression) = only_rule(rules).map_err(|what| fields.error_of_all(what))?;
    if kind == RuleKind::At && expression.parse::<Timestamp>().is_err() {
        return Err(fields.error(
            "at",
            format!("is {expression:?}, which is not an RFC 3339 time"),
        ));
    }
    let anchor = match fields.text("anchor")? {
        None => None,
        Some(text) => Some(
            text.parse::<Timestamp>()
                .map_err(|error| fields.error("anchor", format!("is wrong: {error}")))?,
        ),
    };
    let timezone = fields.text("timezone")?;
    Ok(RuleText {
        anchor,
        day_match: fields.word("day_match", DayMatch::read)?,
        dst_gap: fields.word("dst_gap", DstGap::read)?,
        dst_fold: fields.word("dst_fold", DstFold::read)?,
        exclude: fields.texts("exclude")?,
        ..RuleText::new(
            kind,
            expression,
            timezone.unwrap_or_else(|| TIMEZONE_DEFAULT.to_owned()),
        )
    })
}

/// The policies that are proposed. Whether they go together is told with the rule, when the schedule is taken.
fn policies(fields: &mut Fields<'_>) -> Read<Policies> {
    let mut policies = Policies::default();
    for &policy in Policy::ALL {
        let key = policy.as_str();
        let text = match policy.shape() {
            Shape::Text | Shape::Instant => fields.text(key)?,
            Shape::Number => fields
                .number(key, 0, NUMBER_MOST)?
                .map(|number| number.to_string()),
        };
        if let Some(text) = text {
            let set = policies.set(policy, &text);
            set.map_err(|what| fields.error(key, what))?;
        }
    }
    Ok(policies)
}

fn check_schedule_names(schedules: &[ScheduleSpec]) -> Read<()> {
    let mut names = BTreeSet::new();
    for name in schedules.iter().filter_map(|spec| spec.name.as_deref()) {
        if !names.insert(name) {
            return Err(format!("two schedules are named `{name}`"));
        }
    }
    Ok(())
}

fn requests(mut fields: Fields<'_>, warnings: &mut Vec<String>) -> Read<Requests> {
    let mut requests = Requests::default();
    for mut directory in bounded(fields.list("directories")?, "requests.directories")? {
        let guest = directory
            .text("guest")?
            .ok_or_else(|| directory.error("guest", "is missing"))?;
        if let Some(fault) = guest_path_fault(&guest) {
            return Err(directory.error("guest", fault));
        }
        let writable = access(&mut directory)?;
        let reason = directory.text("reason")?;
        directory.finish(warnings);
        requests.directories.push(DirectoryRequest {
            guest,
            writable,
            reason,
        });
    }
    for mut http in bounded(fields.list("http")?, "requests.http")? {
        let request = HttpRequest {
            scheme: http.text("scheme")?.unwrap_or_else(|| "https".to_owned()),
            host: http
                .text("host")?
                .ok_or_else(|| http.error("host", "is missing"))?,
            reason: http.text("reason")?,
        };
        http.finish(warnings);
        requests.http.push(request);
    }
    requests.env = names(&mut fields, "env")?;
    if let Some(name) = requests
        .env
        .iter()
        .find(|name| name.starts_with(ENV_PREFIX))
    {
        return Err(fields.error(
            "env",
            format!("asks for {name}: what begins with {ENV_PREFIX} is the host's own and is never granted"),
        ));
    }
    requests.config = names(&mut fields, "config")?;
    for mut bucket in bounded(fields.list("keyvalue")?, "requests.keyvalue")? {
        let name = bucket
            .text("bucket")?
            .ok_or_else(|| bucket.error("bucket", "is missing"))?;
        if name.contains(char::is_control) {
            return Err(bucket.error("bucket", format!("is {name:?}, which is no name")));
        }
        let writable = access(&mut bucket)?;
        let reason = bucket.text("reason")?;
        bucket.finish(warnings);
        requests.keyvalue.push(BucketRequest {
            bucket: name,
            writable,
            reason,
        });
    }
    for mut socket in bounded(fields.list("sockets")?, "requests.sockets")? {
        let protocol = match socket.text("protocol")? {
            None => Protocol::Tcp,
            Some(protocol) => {
                Protocol::read(&protocol).map_err(|what| socket.error("protocol", what))?
            }
        };
        let host = socket
            .text("host")?
            .ok_or_else(|| socket.error("host", "is missing"))?;
        let port = socket
            .number("port", 1, 65535)?
            .ok_or_else(|| socket.error("port", "is missing"))?;
        let reason = socket.text("reason")?;
        socket.finish(warnings);
        requests.sockets.push(SocketRequest {
            protocol,
            host,
            port: u16::try_from(port).unwrap_or(u16::MAX),
            reason,
        });
    }
    fields.finish(warnings);
    Ok(requests)
}

/// Whether more than reading is asked for.
fn access(fields: &mut Fields<'_>) -> Read<bool> {
    match fields.text("access")?.as_deref() {
        Some("read") | None => Ok(false),
        Some("write") => Ok(true),
        Some(other) => {
            Err(fields.error("access", format!("is {other:?}, not \"read\" or \"write\"")))
        }
    }
}

/// Names that a sidecar can grant: they are shown, and written into its lines, as they are.
fn names(fields: &mut Fields<'_>, key: &'static str) -> Read<Vec<String>> {
    let names = fields.texts(key)?;
    match names.iter().find(|name| name.contains(char::is_control)) {
        Some(name) => Err(fields.error(key, format!("holds {name:?}, which is no name"))),
        None => bounded(names, &format!("requests.{key}")),
    }
}
