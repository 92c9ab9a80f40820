//! The manifest of a package: its tasks and their order, and the schedules and grants that its author proposes.
//!
//! A manifest grants nothing, and the operator's sidecar overrides its proposals.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use semver::Version;
use serde_json::Value;

use super::grant_record::RecordedGrants;
use super::requests::{Request, evaluate_requests};
use super::schedule_reader::named_for;
use super::spec::{ScheduleDefinition, name_all};
use campanile_model::text::nearest;
pub use descriptions::{Description, Descriptions};
use graph::TaskGraph;

mod descriptions;
mod graph;
mod read;

/// The attempts of a task when neither the package nor the sidecar sets a number.
pub const MAX_ATTEMPTS_DEFAULT: u32 = 3;
/// The most tasks in a package, and the most schedules it may propose.
pub const ENTRIES_MAX: usize = 256;
/// The most dependencies of all tasks of a package together.
pub const DEPENDENCIES_MAX: usize = 4_096;
/// The most JSON values in a description. A value takes far more memory than its text.
pub const VALUES_MAX: usize = 32_768;

/// A checked description filed under its file's name: ids are unique, and dependencies exist and form no cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The name of the file, not the name that the author gives.
    pub package: String,
    /// At least one, in the order of the description.
    pub tasks: Arc<Vec<Task>>,
    described: Arc<Description>,
}

impl Deref for Manifest {
    type Target = Description;

    fn deref(&self) -> &Description {
        &self.described
    }
}

/// One unit of work of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    pub id: String,
    pub summary: Option<String>,
    /// The tasks that must succeed first. Their contexts are passed on to this task.
    pub depends_on: Vec<String>,
    pub timeout: Option<Duration>,
    pub max_attempts: Option<u32>,
}

impl Manifest {
    /// Returns the manifest of a package without a description: one task of the package's name.
    pub fn undescribed(package: &str) -> Manifest {
        let description = Description {
            description: "{}".to_owned(),
            ..Description::default()
        };
        Manifest::of(package, Arc::new(description))
    }

    /// Wraps a description already checked for this package.
    fn of(package: &str, described: Arc<Description>) -> Manifest {
        let mut tasks = Arc::clone(&described.tasks);
        if tasks.is_empty() {
            tasks = Arc::new(vec![Task {
                id: package.to_owned(),
                ..Task::default()
            }]);
        }
        Manifest {
            package: package.to_owned(),
            tasks,
            described,
        }
    }

    /// Returns the same manifest, but sharing `described`.
    fn with_description(self, described: Arc<Description>) -> Manifest {
        Manifest::of(&self.package, described)
    }

    /// Returns the schedules proposed by the author, with their full names.
    pub fn schedules(&self) -> Vec<ScheduleDefinition> {
        let mut schedules = self.described.schedules.clone();
        for schedule in &mut schedules {
            self.package.clone_into(&mut schedule.package);
            if !schedule.name.is_empty() {
                schedule.name = named_for(&self.package, &schedule.name);
            }
        }
        name_all(&self.package, &mut schedules);
        schedules
    }

    /// Returns the manifest of a description that the database stores.
    ///
    /// A description that this version cannot read counts as none.
    pub fn from_stored(package: &str, description: &str) -> Manifest {
        serde_json::from_str(description)
            .ok()
            .and_then(|description| Manifest::from_json(package, &description).ok())
            .unwrap_or_else(|| Manifest::undescribed(package))
    }

    /// Check the answer of `describe` for the package whose file is named `package`; the error is a sentence.
    pub fn from_json(package: &str, description: &Value) -> Result<Manifest, String> {
        let values = count(description);
        if values > VALUES_MAX {
            return Err(format!(
                "the package's description of itself has {values} JSON values, and {VALUES_MAX} are allowed"
            ));
        }
        read::manifest(package, description).map_err(|error| {
            let message = error.message;
            format!("the package's description of itself is wrong: {message}")
        })
    }

    /// Returns the version, if it is a semantic version.
    pub fn semantic_version(&self) -> Option<Version> {
        Version::parse(self.version.as_deref()?).ok()
    }

    /// Returns the task `id`.
    pub fn task(&self, id: &str) -> Option<&Task> {
        self.tasks.iter().find(|task| task.id == id)
    }

    /// Returns the task id most like `id`, for a hint.
    pub fn nearest_task(&self, id: &str) -> Option<&str> {
        nearest(id, self.tasks.iter().map(|task| task.id.as_str()))
    }

    /// Returns the tasks of a run, each after the tasks that it depends on, else in the order of the description.
    ///
    /// With `only`, return that task and all its direct and indirect dependencies; `None` when there is no such task.
    pub fn order(&self, only: Option<&str>) -> Option<Vec<&Task>> {
        let graph = TaskGraph::of(&self.tasks);
        let mut order = graph.order();
        if let Some(id) = only {
            let mut needed = BTreeSet::from([*graph.places.get(id)?]);
            for place in order.iter().rev() {
                if needed.contains(place) {
                    needed.extend(&graph.before[*place]);
                }
            }
            order.retain(|place| needed.contains(place));
        }
        Some(order.into_iter().map(|place| &self.tasks[place]).collect())
    }

    /// Returns the requests that `grants` do not cover.
    pub fn ungranted_requests(&self, grants: &RecordedGrants) -> Vec<Request> {
        let mut requests = evaluate_requests(&self.requests, grants);
        requests.retain(|request| !request.is_granted);
        requests
    }

    /// Returns the ungranted requests because of which a launch is denied.
    ///
    /// Network requests are not among them: packages request hosts that a context names, and the sandbox checks each
    /// connection.
    pub fn missing_grants(&self, grants: &RecordedGrants) -> Vec<Request> {
        let mut missing = self.ungranted_requests(grants);
        missing.retain(|request| !request.is_checked_at_use());
        missing
    }

    /// Returns the ungranted requests that `before`, the active version, does not make.
    ///
    /// A request of both versions makes no difference: without the grant, neither version runs. Network requests count.
    pub fn additional_requests(&self, before: &Manifest, grants: &RecordedGrants) -> Vec<Request> {
        let is_known =
            |request: &Request| before.requests.iter().any(|before| before.covers(request));
        let mut requests = self.ungranted_requests(grants);
        requests.retain(|request| !is_known(request));
        requests
    }
}

/// Count the values of a JSON document: itself, and those in its lists and objects.
fn count(value: &Value) -> usize {
    let inside: usize = match value {
        Value::Array(list) => list.iter().map(count).sum(),
        Value::Object(map) => map.values().map(count).sum(),
        _ => 0,
    };
    inside + 1
}

#[cfg(test)]
mod tests;
