//! What a package says of itself: its tasks and their order, and the schedules and grants it asks for.
//!
//! A proposal, nothing more: it grants nothing, and the operator's sidecar overrules it.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::spec::ScheduleSpec;
use campanile_model::text::nearest;
use campanile_sandbox::Protocol;

mod read;

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
    /// What it was written in, as the tools that built it say.
    pub language: Option<String>,
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
    /// Keys that `wasi:config/store` is asked for; they may also be secrets.
    pub config: Vec<String>,
    pub keyvalue: Vec<BucketRequest>,
    pub sockets: Vec<SocketRequest>,
}

/// A bucket of `wasi:keyvalue` that the package wants to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketRequest {
    pub bucket: String,
    pub writable: bool,
    pub reason: Option<String>,
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

/// A place that the package wants to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketRequest {
    pub protocol: Protocol,
    pub host: String,
    pub port: u16,
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
            language: None,
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
}

#[cfg(test)]
mod tests;
