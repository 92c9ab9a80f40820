//! A package and its tasks, and how a call finds its task.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, Explain, Result};
use crate::manifest::{Manifest, TaskManifest};
use crate::request::Request;
use crate::run::Run;
use crate::schedule::Schedule;
use crate::schema::{self, Derive};

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
    derives: Vec<Option<Derive>>,
}

impl Package {
    /// A package without tasks. `version` is free text; `env!("CARGO_PKG_VERSION")` serves well.
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

    /// One sentence for the list of packages.
    ///
    /// ```
    /// # use campanile_sdk::Package;
    /// let package = Package::new("empty", "0.1.0").summary("Does nothing, and well");
    /// assert_eq!(package.manifest()["summary"], "Does nothing, and well");
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

    /// Propose a schedule. The operator may turn it off or set others.
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

    /// Say what the tasks cannot work without. A launch that lacks it is denied before the call.
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

    /// A JSON Schema of the context, for whoever fills it in.
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

    /// What the host gets from `describe`.
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

    /// The same as text. Without a `Value` between: what makes one would be in every task's .wasm.
    #[cfg(target_family = "wasm")]
    pub(crate) fn into_manifest_text(mut self) -> String {
        if let Some(schema) = self.derived_schema() {
            self.manifest.context_schema = Some(schema);
        }
        serde_json::to_string(&self.manifest).unwrap_or_default()
    }

    /// The schema of the context from the tasks' types, unless one was written by hand.
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

    /// Call `task` as the host would: with the context of `run`, without its reserved keys, read into the task's own type,
    /// and the output through JSON. No output is JSON's `null`.
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
}

/// One task: a name and the function that does it.
///
/// ```
/// use campanile_sdk::{AnyContext, Result, Run, Task};
///
/// fn tick(run: &Run, _: AnyContext) -> Result<String> {
///     Ok(run.original_scheduled_time().to_string())
/// }
///
/// Task::new("tick", tick).summary("Tells the slot").timeout("5s").max_attempts(2);
/// ```
#[must_use]
pub struct Task {
    manifest: TaskManifest,
    body: Body,
    /// Gives the schema of the context, if the type that reads it can.
    pub(crate) derive: Option<Derive>,
}

impl Task {
    /// The task `id` (1 to 64 of `a-z`, `0-9`, `_` and `-`), done by `run`: any function from a context that serde can read to an output that serde can write.
    ///
    /// A context that does not fit fails for good, naming the key. An output that is JSON's `null`, such as `()`, counts as none.
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
            derive: None,
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

    /// The tasks of this package that must have succeeded first. What they [pass](Run::pass) is in this task's context.
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

    /// How long one call may take: a number with a unit, such as `30s`. At most, and by default, what the host gives: 5 minutes.
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

    /// How often the task is tried when it fails retryably, the first time included. The host's default is 3.
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
