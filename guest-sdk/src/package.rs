//! Packages and tasks, and the dispatch of a call to its task.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, Explain, Result};
use crate::manifest::{Manifest, TaskManifest};
use crate::request::Request;
use crate::run::Run;
use crate::schedule::Schedule;
use crate::schema::{self, Derive};

/// A task's function with its types erased: from the user's context to the output as JSON text.
type Body = Box<dyn Fn(&Run, Map<String, Value>) -> Result<String>>;

/// A package: its tasks, the schedules that it proposes and the grants that it requests.
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
    derives: Vec<Option<Derive>>,
}

impl Package {
    /// Create a package without tasks.
    ///
    /// `version` is free text, usually `env!("CARGO_PKG_VERSION")`.
    ///
    /// ```
    /// # use campanile_sdk::Package;
    /// let package = Package::new("empty", "0.1.0");
    /// assert_eq!(package.manifest()["name"], "empty");
    /// ```
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Package {
        Package {
            manifest: Manifest {
                name: name.into(),
                version: version.into(),
                ..Manifest::default()
            },
            bodies: Vec::new(),
            derives: Vec::new(),
        }
    }

    /// Set one sentence for the list of packages.
    ///
    /// ```
    /// # use campanile_sdk::Package;
    /// let package = Package::new("empty", "0.1.0").summary("Does nothing");
    /// assert_eq!(package.manifest()["summary"], "Does nothing");
    /// ```
    pub fn summary(mut self, summary: impl Into<String>) -> Package {
        self.manifest.summary = Some(summary.into());
        self
    }

    /// Add a task.
    ///
    /// ```
    /// # use campanile_sdk::{AnyContext, Package, Result, Run, Task};
    /// fn tick(_: &Run, _: AnyContext) -> Result<()> {
    ///     Ok(())
    /// }
    ///
    /// let package = Package::new("clock", "0.1.0").task(Task::new("tick", tick));
    /// assert_eq!(package.manifest()["tasks"][0]["id"], "tick");
    /// ```
    pub fn task(mut self, task: Task) -> Package {
        self.manifest.tasks.push(task.manifest);
        self.bodies.push(task.body);
        self.derives.push(task.derive);
        self
    }

    /// Propose a schedule. The operator can disable it or add others.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let package = Package::new("clock", "0.1.0").schedule(Schedule::every("1h").overlap("skip"));
    /// assert_eq!(package.manifest()["schedules"][0]["every"], "1h");
    /// ```
    pub fn schedule(mut self, schedule: Schedule) -> Package {
        self.manifest.schedules.push(schedule);
        self
    }

    /// Request a grant that the tasks need.
    ///
    /// The host denies a launch before it calls a task if the operator did not grant the request.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Request};
    /// let package = Package::new("clock", "0.1.0").request(Request::env("REGION"));
    /// assert_eq!(package.manifest()["requests"]["env"][0], "REGION");
    /// ```
    pub fn request(mut self, request: Request) -> Package {
        self.manifest.requests.add(request);
        self
    }

    /// Set a JSON Schema of the context, for people and tools that write one.
    ///
    /// ```
    /// # use campanile_sdk::Package;
    /// let schema = serde_json::json!({"type": "object", "properties": {"name": {"type": "string"}}});
    /// let package = Package::new("greeter", "0.1.0").context_schema(schema.clone());
    /// assert_eq!(package.manifest()["context_schema"], schema);
    /// ```
    pub fn context_schema(mut self, schema: Value) -> Package {
        self.manifest.context_schema = Some(schema);
        self
    }

    /// Return the manifest as the host receives it from `describe`.
    ///
    /// ```
    /// # use campanile_sdk::Package;
    /// let manifest = Package::new("empty", "0.1.0").manifest();
    /// assert_eq!(manifest["tasks"], serde_json::json!([]));
    /// ```
    pub fn manifest(&self) -> Value {
        let mut manifest = serde_json::to_value(&self.manifest).unwrap_or_default();
        if let Some(schema) = self.derived_schema() {
            manifest["context_schema"] = schema;
        }
        manifest
    }

    /// Return the manifest as text. It does not go through a `Value`, whose code would enlarge every task's .wasm.
    #[cfg(target_family = "wasm")]
    pub(crate) fn into_manifest_text(mut self) -> String {
        if let Some(schema) = self.derived_schema() {
            self.manifest.context_schema = Some(schema);
        }
        serde_json::to_string(&self.manifest).unwrap_or_default()
    }

    /// Derive the schema of the context from the tasks' types, unless one was written by hand.
    fn derived_schema(&self) -> Option<Value> {
        if self.manifest.context_schema.is_some() {
            return None;
        }
        let tasks = self.manifest.tasks.iter().zip(&self.derives);
        let derives: Vec<(&str, Derive)> = tasks
            .filter_map(|(task, derive)| Some((&*task.id, (*derive)?)))
            .collect();
        schema::of_all(&derives)
    }

    /// Call `task` as the host does, and return its output.
    ///
    /// The context of `run`, without its reserved keys, is read into the task's context type. The output is converted
    /// through JSON, and an absent output is `null`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Result, Run, Task};
    /// # use serde_json::json;
    /// #[derive(serde::Deserialize)]
    /// struct Sum {
    ///     numbers: Vec<i64>,
    /// }
    ///
    /// fn add(_: &Run, sum: Sum) -> Result<i64> {
    ///     Ok(sum.numbers.iter().sum())
    /// }
    ///
    /// let package = Package::new("sums", "0.1.0").task(Task::new("add", add));
    /// let run = Run::fake().context(json!({"numbers": [40, 2]})).build();
    /// assert_eq!(package.call::<i64>("add", &run)?, 42);
    ///
    /// let misfit = Run::fake().context(json!({"numbers": [40, "2"]})).build();
    /// let error = package.call::<i64>("add", &misfit).unwrap_err();
    /// assert!(error.message().starts_with("the context does not fit: `numbers[1]`"));
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The task's own error. Permanent if the package has no such task, the context does not fit, or the output
    /// cannot be read as a `T`.
    pub fn call<T: DeserializeOwned>(&self, task: &str, run: &Run) -> Result<T> {
        let output = self.call_to_text(task, run);
        #[cfg(not(target_family = "wasm"))]
        run.host.end_call(output.is_ok());
        serde_json::from_str(&output?)
            .map_err(|error| Error::permanent(error.to_string()))
            .explain(|| format!("the output of `{task}` cannot be read"))
    }

    pub(crate) fn call_to_text(&self, task: &str, run: &Run) -> Result<String> {
        let index = self
            .manifest
            .tasks
            .iter()
            .position(|known| known.id == task);
        let Some(body) = index.and_then(|index| self.bodies.get(index)) else {
            let known: Vec<&str> = self.manifest.tasks.iter().map(|task| &*task.id).collect();
            return Err(Error::permanent(format!(
                "package `{}` has no task `{task}`; it has: {}",
                self.manifest.name,
                known.join(", ")
            )));
        };
        body(run, run.user_context())
    }
}

/// A task: an id and a function.
///
/// ```
/// use campanile_sdk::{AnyContext, Result, Run, Task};
///
/// fn tick(run: &Run, _: AnyContext) -> Result<String> {
///     Ok(run.original_scheduled_time().to_string())
/// }
///
/// Task::new("tick", tick).summary("Returns the slot").timeout("5s").max_attempts(2);
/// ```
#[must_use]
pub struct Task {
    manifest: TaskManifest,
    body: Body,
    /// Derives the schema of the context, for a task made by `with_schema`.
    pub(crate) derive: Option<Derive>,
}

impl Task {
    /// Create the task `id` from a function that takes a context and returns an output.
    ///
    /// An id has 1 to 64 characters of `a-z`, `0-9`, `_` and `-`. The context is any type that serde can read, and
    /// the output any type that serde can write as JSON.
    ///
    /// A context that does not fit its type is a permanent failure that names the key. An output of `null`, such as
    /// that of `()`, counts as absent.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Result, Run, Task};
    /// #[derive(serde::Deserialize)]
    /// struct Greeting {
    ///     name: String,
    /// }
    ///
    /// fn hello(_: &Run, greeting: Greeting) -> Result<String> {
    ///     Ok(format!("Hello, {}!", greeting.name))
    /// }
    ///
    /// let package = Package::new("hello", "0.1.0").task(Task::new("hello", hello));
    /// let run = Run::fake().context(serde_json::json!({"name": "Ada"})).build();
    /// assert_eq!(package.call::<String>("hello", &run)?, "Hello, Ada!");
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    pub fn new<C, O>(
        id: impl Into<String>,
        function: impl Fn(&Run, C) -> Result<O> + 'static,
    ) -> Task
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
            derive: None,
            body: Box::new(move |run, context| {
                let context = serde_path_to_error::deserialize(Value::Object(context))
                    .map_err(|error| misfit(&error))?;
                let output = function(run, context)?;
                serde_json::to_string(&output).map_err(|error| {
                    Error::permanent(format!("the output cannot be written as JSON: {error}"))
                })
            }),
        }
    }

    /// Set one sentence about the task.
    ///
    /// ```
    /// # use campanile_sdk::{AnyContext, Package, Run, Task};
    /// let task = Task::new("load", |_: &Run, _: AnyContext| Ok(()));
    /// let package = Package::new("etl", "0.1.0").task(task.summary("Loads the rows"));
    /// assert_eq!(package.manifest()["tasks"][0]["summary"], "Loads the rows");
    /// ```
    pub fn summary(mut self, summary: impl Into<String>) -> Task {
        self.manifest.summary = Some(summary.into());
        self
    }

    /// Run this task only after the given tasks of the package have succeeded.
    ///
    /// The values that they [pass](Run::pass) are in this task's context.
    ///
    /// ```
    /// # use campanile_sdk::{AnyContext, Package, Run, Task};
    /// let task = Task::new("load", |_: &Run, _: AnyContext| Ok(()));
    /// let package = Package::new("etl", "0.1.0").task(task.depends_on(["extract"]));
    /// assert_eq!(package.manifest()["tasks"][0]["depends_on"][0], "extract");
    /// ```
    pub fn depends_on<I: Into<String>>(mut self, tasks: impl IntoIterator<Item = I>) -> Task {
        self.manifest
            .depends_on
            .extend(tasks.into_iter().map(Into::into));
        self
    }

    /// Limit the duration of one call, with a number and a unit, such as `30s`.
    ///
    /// The default and the maximum are the host's limit, which is 5 minutes unless the operator changes it.
    ///
    /// ```
    /// # use campanile_sdk::{AnyContext, Package, Run, Task};
    /// let task = Task::new("load", |_: &Run, _: AnyContext| Ok(()));
    /// let package = Package::new("etl", "0.1.0").task(task.timeout("30s"));
    /// assert_eq!(package.manifest()["tasks"][0]["timeout"], "30s");
    /// ```
    pub fn timeout(mut self, timeout: impl Into<String>) -> Task {
        self.manifest.timeout = Some(timeout.into());
        self
    }

    /// Set how often the task is attempted if it fails retryably, including the first attempt.
    ///
    /// The host's default is 3.
    ///
    /// ```
    /// # use campanile_sdk::{AnyContext, Package, Run, Task};
    /// let task = Task::new("load", |_: &Run, _: AnyContext| Ok(()));
    /// let package = Package::new("etl", "0.1.0").task(task.max_attempts(5));
    /// assert_eq!(package.manifest()["tasks"][0]["max_attempts"], 5);
    /// ```
    pub fn max_attempts(mut self, attempts: u32) -> Task {
        self.manifest.max_attempts = Some(attempts);
        self
    }
}

/// Convert serde's error to one that names the key.
fn misfit(error: &serde_path_to_error::Error<serde_json::Error>) -> Error {
    let path = error.path().to_string();
    let reason = error.inner();
    // For the whole context the path is "." and the reason names the key, as in "missing field `urls`".
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
    fn deny_unknown_fields_accepts_the_reserved_keys() {
        assert_eq!(greeting_of(json!({"name": "Ada"})).unwrap(), "Ada []");
    }

    #[test]
    fn a_context_that_does_not_fit_is_a_permanent_error_that_names_the_key() {
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
    fn a_task_sees_only_the_keys_of_the_user() {
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
