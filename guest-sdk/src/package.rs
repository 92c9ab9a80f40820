//! A package and its tasks, and how a call finds its task.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, Explain, Result};
use crate::manifest::{Manifest, Request, Schedule};
use crate::run::Run;

/// A task's function with its types worn off: from the user's context to the output as JSON text.
type Body = Box<dyn Fn(&Run, Map<String, Value>) -> Result<String>>;

/// Everything one `.wasm` offers: its tasks, the schedules it proposes, the grants it cannot work without.
///
/// ```
/// use campanile_sdk::{AnyContext, Package, Result, Run, Schedule, Task};
///
/// fn extract(run: &Run, _: AnyContext) -> Result<usize> {
///     run.pass("rows", ["a", "b"])?;
///     Ok(2)
/// }
///
/// #[derive(serde::Deserialize)]
/// struct Rows {
///     rows: Vec<String>,
/// }
///
/// fn load(_: &Run, context: Rows) -> Result<usize> {
///     Ok(context.rows.len())
/// }
///
/// fn package() -> Package {
///     Package::new("tiny-etl", env!("CARGO_PKG_VERSION"))
///         .summary("Two tasks, one after the other")
///         .task(Task::new("extract", extract).timeout("30s"))
///         .task(Task::new("load", load).depends_on(["extract"]).max_attempts(5))
///         .schedule(Schedule::every("1m"))
/// }
///
/// campanile_sdk::export!(package);
///
/// let run = Run::fake().context(serde_json::json!({"rows": ["x"]})).build();
/// assert_eq!(package().call::<usize>("load", &run)?, 1);
/// # Ok::<(), campanile_sdk::Error>(())
/// ```
#[must_use]
pub struct Package {
    manifest: Manifest,
    bodies: Vec<Body>,
}

impl Package {
    /// A package without tasks. `version` is free text; `env!("CARGO_PKG_VERSION")` serves well.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Package {
        Package {
            manifest: Manifest {
                name: name.into(),
                version: version.into(),
                ..Manifest::default()
            },
            bodies: Vec::new(),
        }
    }

    /// One sentence for the list of packages.
    pub fn summary(mut self, summary: impl Into<String>) -> Package {
        self.manifest.summary = Some(summary.into());
        self
    }

    /// Add a task.
    pub fn task(mut self, task: Task) -> Package {
        self.manifest.tasks.push(task.manifest);
        self.bodies.push(task.body);
        self
    }

    /// Propose a schedule. The operator may turn it off or set others.
    pub fn schedule(mut self, schedule: Schedule) -> Package {
        self.manifest.schedules.push(schedule);
        self
    }

    /// Say what the tasks cannot work without. A launch that lacks it is denied before the call.
    pub fn request(mut self, request: Request) -> Package {
        self.manifest.requests.add(request);
        self
    }

    /// A JSON Schema of the context, for whoever fills it in.
    pub fn context_schema(mut self, schema: Value) -> Package {
        self.manifest.context_schema = Some(schema);
        self
    }

    /// What the host gets from `describe`.
    pub fn manifest(&self) -> Value {
        serde_json::to_value(&self.manifest).unwrap_or_default()
    }

    /// Call `task` as the host would: with the context of `run`, without its reserved keys, read into the task's own type,
    /// and the output through JSON. No output is JSON's `null`.
    ///
    /// # Errors
    ///
    /// The task's own; permanent ones when there is no such task, the context does not fit, or the output is not a `T`.
    pub fn call<T: DeserializeOwned>(&self, task: &str, run: &Run) -> Result<T> {
        serde_json::from_str(&self.call_to_text(task, run)?)
            .map_err(|error| Error::permanent(error.to_string()))
            .explain(|| format!("the output of `{task}` has another shape"))
    }

    pub(crate) fn call_to_text(&self, task: &str, run: &Run) -> Result<String> {
        let place = self
            .manifest
            .tasks
            .iter()
            .position(|known| known.id == task);
        let Some(body) = place.and_then(|place| self.bodies.get(place)) else {
            let known: Vec<&str> = self.manifest.tasks.iter().map(|task| &*task.id).collect();
            return Err(Error::permanent(format!(
                "package `{}` has no task `{task}`; it has: {}",
                self.manifest.name,
                known.join(", ")
            )));
        };
        body(run, run.user_context())
    }

    #[cfg(target_family = "wasm")]
    pub(crate) fn manifest_text(&self) -> String {
        serde_json::to_string(&self.manifest).unwrap_or_default()
    }
}

/// One task: a name and the function that does it.
#[must_use]
pub struct Task {
    manifest: TaskManifest,
    body: Body,
}

/// One task as the manifest tells it.
#[derive(Serialize)]
pub(crate) struct TaskManifest {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<String>,
    depends_on: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
}

impl Task {
    /// The task `id` (1 to 64 of `a-z`, `0-9`, `_` and `-`), done by `run`: any function from a context that serde can read to an output that serde can write.
    ///
    /// A context that does not fit fails for good, naming the key. An output that is JSON's `null`, such as `()`, counts as none.
    pub fn new<C, O>(id: impl Into<String>, run: impl Fn(&Run, C) -> Result<O> + 'static) -> Task
    where
        C: DeserializeOwned,
        O: Serialize,
    {
        Task {
            manifest: TaskManifest {
                id: id.into(),
                summary: None,
                depends_on: Vec::new(),
                timeout: None,
                max_attempts: None,
            },
            body: Box::new(move |facts, context| {
                let context = serde_path_to_error::deserialize(Value::Object(context))
                    .map_err(|error| misfit(&error))?;
                let output = run(facts, context)?;
                serde_json::to_string(&output).map_err(|error| {
                    Error::permanent(format!("the output cannot be JSON: {error}"))
                })
            }),
        }
    }

    /// One sentence about the task.
    pub fn summary(mut self, summary: impl Into<String>) -> Task {
        self.manifest.summary = Some(summary.into());
        self
    }

    /// The tasks of this package that must have succeeded first. What they [pass](Run::pass) is in this task's context.
    pub fn depends_on<I: Into<String>>(mut self, tasks: impl IntoIterator<Item = I>) -> Task {
        self.manifest
            .depends_on
            .extend(tasks.into_iter().map(Into::into));
        self
    }

    /// How long one call may take: a number with a unit, such as `30s`. At most, and by default, what the host gives: 5 minutes.
    pub fn timeout(mut self, timeout: impl Into<String>) -> Task {
        self.manifest.timeout = Some(timeout.into());
        self
    }

    /// How often the task is tried when it fails retryably, the first time included. The host's default is 3.
    pub fn max_attempts(mut self, attempts: u32) -> Task {
        self.manifest.max_attempts = Some(attempts);
        self
    }
}

fn misfit(error: &serde_path_to_error::Error<serde_json::Error>) -> Error {
    let path = error.path().to_string();
    let reason = error.inner();
    // The path of the whole context is "."; the reason then names the key itself ("missing field `urls`").
    let named = path == "." || reason.to_string().contains(&format!("`{path}`"));
    Error::permanent(if named {
        format!("the context does not fit: {reason}")
    } else {
        format!("the context does not fit: `{path}`: {reason}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RESERVED_KEYS;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Strict {
        name: String,
        #[serde(default)]
        ports: Vec<u16>,
    }

    fn greet(_: &Run, context: Strict) -> Result<String> {
        Ok(format!("{} {:?}", context.name, context.ports))
    }

    fn package() -> Package {
        Package::new("test", "1.2.3")
            .task(Task::new("greet", greet))
            .task(Task::new("nothing", |_: &Run, (): ()| Ok(())))
            .task(Task::new("echo", |_: &Run, context: Value| Ok(context)))
    }

    fn greeting_of(context: Value) -> Result<String> {
        package().call("greet", &Run::fake().context(context).build())
    }

    #[test]
    fn a_strict_context_is_not_disturbed_by_the_reserved_keys() {
        assert_eq!(greeting_of(json!({"name": "Ada"})).unwrap(), "Ada []");
    }

    #[test]
    fn a_context_that_does_not_fit_fails_for_good_and_names_the_key() {
        for (context, expected) in [
            (json!({}), "missing field `name`"),
            (
                json!({"name": 5}),
                "`name`: invalid type: integer `5`, expected a string",
            ),
            (
                json!({"name": "Ada", "ports": [1, 70_000]}),
                "`ports[1]`: invalid value: integer `70000`, expected u16",
            ),
            (
                json!({"name": "Ada", "nmae": 1}),
                "does not fit: unknown field `nmae`",
            ),
        ] {
            let error = greeting_of(context).unwrap_err();
            assert!(error.message().contains(expected), "{error}");
            assert!(!error.is_retryable());
        }
    }

    #[test]
    fn a_task_sees_the_users_keys_only() {
        let run = Run::fake().context(json!({"a": 1})).build();
        assert_eq!(
            package().call::<Value>("echo", &run).unwrap(),
            json!({"a": 1})
        );
        assert!(
            RESERVED_KEYS
                .iter()
                .all(|key| run.context().contains_key(*key))
        );
    }

    #[test]
    fn an_unknown_task_is_a_permanent_error_that_lists_the_known_ones() {
        let error = package()
            .call::<Value>("great", &Run::fake().build())
            .unwrap_err();
        assert_eq!(
            error.message(),
            "package `test` has no task `great`; it has: greet, nothing, echo"
        );
        assert!(!error.is_retryable());
    }
}
