//! What a package says of itself: its tasks and their order, and the schedules and grants it asks for.
//!
//! A proposal, nothing more: it grants nothing, and the operator's sidecar overrules it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::fields::Fields;
use super::spec::ScheduleSpec;
use crate::strict::nearest;
use crate::wasm::Grants;

/// Attempts of a task when neither package nor operator say.
pub const MAX_ATTEMPTS_DEFAULT: u32 = 3;
/// The most tasks in a package, and the most schedules it may propose.
pub const ENTRIES_MAX: usize = 256;

/// A checked description: ids are unique, dependencies known and without a circle.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The package's name in the folder, not the one the author gave.
    pub package: String,
    /// As the author calls it.
    pub name: Option<String>,
    pub version: Option<String>,
    pub summary: Option<String>,
    /// At least one, as declared.
    pub tasks: Vec<Task>,
    pub schedules: Vec<ScheduleSpec>,
    /// The JSON Schema of the context, for people and editors.
    pub context_schema: Option<Value>,
    pub requests: Requests,
    /// Keys that this host does not know, one sentence each; a newer SDK may write them.
    pub warnings: Vec<String>,
    /// The description as it was given; an empty object when there was none.
    pub description: Value,
}

/// One unit of work of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    pub id: String,
    pub summary: Option<String>,
    /// The tasks that must have succeeded before, and whose context this one gets.
    pub depends_on: Vec<String>,
    pub timeout: Option<Duration>,
    pub max_attempts: Option<u32>,
}

/// What the package would need to be granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub directories: Vec<DirectoryRequest>,
    pub env: Vec<String>,
    pub http: Vec<HttpRequest>,
    pub config: Vec<String>,
}

/// A directory that the package wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryRequest {
    pub guest: String,
    pub writable: bool,
    pub reason: Option<String>,
}

/// Requests over the network that the package wants to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    pub scheme: String,
    pub host: String,
    pub reason: Option<String>,
}

/// Why a description cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the package's description of itself is wrong: {message}")]
pub struct ManifestError {
    pub message: String,
}

impl Manifest {
    /// The manifest of a package that does not describe itself: one task of the package's name.
    pub fn undescribed(package: &str) -> Manifest {
        Manifest {
            package: package.to_owned(),
            name: None,
            version: None,
            summary: None,
            tasks: vec![Task {
                id: package.to_owned(),
                ..Task::default()
            }],
            schedules: Vec::new(),
            context_schema: None,
            requests: Requests::default(),
            warnings: Vec::new(),
            description: Value::Object(Default::default()),
        }
    }

    /// A manifest read back from the record, where only a checked description is put.
    ///
    /// One that this version cannot read any more counts as none.
    pub fn from_stored(package: &str, description: &str) -> Manifest {
        serde_json::from_str(description)
            .ok()
            .and_then(|description| Manifest::from_json(package, &description).ok())
            .unwrap_or_else(|| Manifest::undescribed(package))
    }

    /// Check what `describe` answered for the package called `package` in the folder.
    pub fn from_json(package: &str, description: &Value) -> Result<Manifest, ManifestError> {
        read::manifest(package, description).map_err(|message| ManifestError { message })
    }

    /// The task called `id`.
    pub fn task(&self, id: &str) -> Option<&Task> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// The known task whose id is most like `id`: for a hint.
    pub fn nearest_task(&self, id: &str) -> Option<&str> {
        nearest(id, self.tasks.iter().map(|task| task.id.as_str()))
    }

    /// The tasks that `id` waits for, nearest only. Empty for an unknown task.
    pub fn dependencies_of(&self, id: &str) -> &[String] {
        self.task(id).map_or(&[], |task| &task.depends_on)
    }

    /// The tasks of a run in an order that puts each after those it depends on; among those that are
    /// free to go, as declared.
    ///
    /// With `only`, that task and all it depends on, directly or not; none when there is no such task.
    pub fn order(&self, only: Option<&str>) -> Option<Vec<&Task>> {
        let wanted = match only {
            None => self.tasks.iter().map(|task| task.id.as_str()).collect(),
            Some(id) => self.needed_by(self.task(id)?),
        };
        let mut done = BTreeSet::new();
        let mut order = Vec::with_capacity(wanted.len());
        while order.len() < wanted.len() {
            let next = self.tasks.iter().find(|task| {
                wanted.contains(task.id.as_str())
                    && !done.contains(task.id.as_str())
                    && task.depends_on.iter().all(|id| done.contains(id.as_str()))
            })?;
            done.insert(next.id.as_str());
            order.push(next);
        }
        Some(order)
    }

    fn needed_by<'m>(&'m self, task: &'m Task) -> BTreeSet<&'m str> {
        let mut needed = BTreeSet::from([task.id.as_str()]);
        let mut open = vec![task];
        while let Some(task) = open.pop() {
            for id in &task.depends_on {
                if needed.insert(id)
                    && let Some(task) = self.task(id)
                {
                    open.push(task);
                }
            }
        }
        needed
    }

    /// What the package asks for and `grants` does not give, one entry each, with the lines to add to
    /// the sidecar. A launch of a package with entries here is denied before anything is called.
    ///
    /// HTTP is left out: packages ask for hosts that a context names, and the sandbox checks each request.
    pub fn missing_grants(&self, grants: &Grants) -> Vec<String> {
        let sidecar = format!("{}.toml", self.package);
        let quote = |text: &str| toml::Value::from(text).to_string();
        let mut missing = Vec::new();
        for wanted in &self.requests.directories {
            let covered = grants
                .directories
                .iter()
                .any(|grant| grant.guest == wanted.guest && (grant.writable || !wanted.writable));
            if covered {
                continue;
            }
            let access = if wanted.writable { "write" } else { "read" };
            let reason = match &wanted.reason {
                Some(reason) => format!(" ({reason})"),
                None => String::new(),
            };
            missing.push(format!(
                "the package needs to {access} the directory {guest}{reason}, which is not granted: add to {sidecar}\n\
                 [[grants.directories]]\nhost = \"/a/directory/of/this/host\"\nguest = {quoted}\naccess = \"{access}\"",
                guest = wanted.guest,
                quoted = quote(&wanted.guest),
            ));
        }
        for name in &self.requests.env {
            if !grants.env.contains_key(name) {
                missing.push(format!(
                    "the package needs the environment variable {name}, which is not granted: add to {sidecar}\n\
                     [grants]\nenv = [{}]",
                    quote(name),
                ));
            }
        }
        for key in &self.requests.config {
            if !grants.config.contains_key(key) {
                missing.push(format!(
                    "the package needs the config key {key}, which is not set: add to {sidecar}\n\
                     [grants.config]\n{} = \"its value\"",
                    quote(key),
                ));
            }
        }
        missing
    }
}

/// From JSON to a checked manifest.
mod read {
    use super::*;
    use crate::clock::Timestamp;
    use crate::package::context;
    use crate::package::sidecar::{MAX_ATTEMPTS_MOST, guest_path_fault};
    use crate::package::spec::{TIMEZONE_DEFAULT, only_rule, schedule_name_fault};
    use crate::schedule::RuleKind;

    type Read<T> = Result<T, String>;

    pub(super) fn manifest(package: &str, description: &Value) -> Read<Manifest> {
        let mut warnings = Vec::new();
        let mut top = Fields::new("", description)?;
        let mut manifest = Manifest {
            name: top.text("name")?,
            version: top.text("version")?,
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
            Some(text) => match crate::strict::duration(&text) {
                Ok(timeout) if !timeout.is_zero() => Some(timeout),
                Ok(_) => return Err(fields.error("timeout", "must be more than nothing")),
                Err(what) => return Err(fields.error("timeout", what)),
            },
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
        let (cron, every, at) = (
            fields.text("cron")?,
            fields.text("every")?,
            fields.text("at")?,
        );
        let (kind, expression) =
            only_rule(cron, every, at).map_err(|what| fields.error_of_all(what))?;
        let anchor = match fields.text("anchor")? {
            None => None,
            Some(text) => Some(
                text.parse::<Timestamp>()
                    .map_err(|error| fields.error("anchor", format!("is wrong: {error}")))?,
            ),
        };
        if kind == RuleKind::At && expression.parse::<Timestamp>().is_err() {
            return Err(fields.error(
                "at",
                format!("is {expression:?}, which is not an RFC 3339 time"),
            ));
        }
        if anchor.is_some() && kind != RuleKind::Every {
            return Err(fields.error("anchor", "belongs to `every` only"));
        }
        let timezone = fields.text("timezone")?;
        let context = fields.map("context")?;
        context::check(&context)
            .map_err(|reserved| fields.error("context", format!("is refused: {reserved}")))?;
        fields.finish(warnings);
        Ok(ScheduleSpec {
            name,
            task,
            kind,
            expression,
            anchor,
            timezone: timezone.unwrap_or_else(|| TIMEZONE_DEFAULT.to_owned()),
            context,
        })
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
            let writable = match directory.text("access")?.as_deref() {
                Some("read") | None => false,
                Some("write") => true,
                Some(other) => {
                    return Err(directory
                        .error("access", format!("is {other:?}, not \"read\" or \"write\"")));
                }
            };
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
        requests.env = bounded(fields.texts("env")?, "requests.env")?;
        requests.config = bounded(fields.texts("config")?, "requests.config")?;
        fields.finish(warnings);
        Ok(requests)
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
