//! JSON Schemas of the tasks' contexts, derived from their types.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::Result;
use crate::package::Task;
use crate::run::Run;

/// Derives the schema of one task's context.
pub(crate) type Derive = fn(&mut SchemaGenerator) -> Schema;

impl Task {
    /// Create a task like [`Task::new`], and derive the manifest's `context_schema` from its context type.
    ///
    /// The doc comments of the type become the schema's descriptions. Needs the feature `schema`.
    ///
    /// With several such tasks the schema is `anyOf` their schemas, each with its task's id as the title. Create a
    /// task whose context only comes from [`Run::pass`] with [`Task::new`], because no user writes its context. A
    /// schema that is set with [`Package::context_schema`](crate::Package::context_schema) replaces the derived one.
    ///
    /// ```
    /// use campanile_sdk::schemars::{self, JsonSchema};
    /// use campanile_sdk::{Package, Result, Run, Task};
    ///
    /// #[derive(serde::Deserialize, JsonSchema)]
    /// struct Greeting {
    ///     /// The person to greet.
    ///     name: String,
    /// }
    ///
    /// fn hello(_: &Run, greeting: Greeting) -> Result<String> {
    ///     Ok(format!("Hello, {}!", greeting.name))
    /// }
    ///
    /// let package = Package::new("hello", "0.1.0").task(Task::with_schema("hello", hello));
    /// let schema = &package.manifest()["context_schema"];
    /// assert_eq!(schema["required"], serde_json::json!(["name"]));
    /// assert_eq!(schema["properties"]["name"]["description"], "The person to greet.");
    /// ```
    pub fn with_schema<C, O>(
        id: impl Into<String>,
        run: impl Fn(&Run, C) -> Result<O> + 'static,
    ) -> Task
    where
        C: DeserializeOwned + JsonSchema,
        O: Serialize,
    {
        let mut task = Task::new(id, run);
        task.derive = Some(C::json_schema);
        task
    }
}

/// Return one schema for the contexts of all `tasks`, or `None` if there are no tasks.
pub(crate) fn of_all(tasks: &[(&str, Derive)]) -> Option<Value> {
    // One generator for all tasks gives types of the same name different definitions. Inlining keeps a schema in one place.
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut generator = settings.into_generator();
    let mut schemas: Vec<Schema> = tasks
        .iter()
        .map(|(id, derive)| {
            let mut schema = derive(&mut generator);
            if tasks.len() > 1 {
                schema.insert("title".to_owned(), json!(id));
            }
            schema
        })
        .collect();
    let mut whole = match schemas.len() {
        0 | 1 => schemas.pop()?,
        _ => schemars::json_schema!({ "anyOf": schemas }),
    };
    // Recursive types cannot be inlined.
    let definitions = generator.take_definitions(true);
    if !definitions.is_empty() {
        whole.insert("$defs".to_owned(), Value::Object(definitions));
    }
    Some(whole.to_value())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::Package;
    use serde::Deserialize;

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Params {
        /// The number of books.
        #[serde(default)]
        count: u8,
        shelf: Shelf,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Shelf {
        name: String,
    }

    mod other {
        use super::*;

        #[derive(Deserialize, JsonSchema)]
        #[expect(dead_code, reason = "only its shape matters")]
        pub struct Shelf {
            next: Option<Box<Shelf>>,
        }
    }

    fn ignore<C>(_: &Run, _: C) -> Result<()> {
        Ok(())
    }

    fn schema_of(package: Package) -> Value {
        package.manifest()["context_schema"].clone()
    }

    #[test]
    fn the_schema_of_one_task_is_inlined() {
        let package = Package::new("one", "1")
            .task(Task::with_schema("ignore", ignore::<Params>))
            .task(Task::new("rest", ignore::<Value>));
        let count = json!({
            "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255,
            "default": 0, "description": "The number of books.",
        });
        let shelf = json!({
            "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
        });
        assert_eq!(
            schema_of(package),
            json!({
                "type": "object",
                "properties": {"count": count, "shelf": shelf},
                "required": ["shelf"],
                "additionalProperties": false,
            })
        );
    }

    #[test]
    fn the_schemas_of_several_tasks_are_alternatives_with_titles() {
        let package = Package::new("two", "1")
            .task(Task::with_schema("one", ignore::<Params>))
            .task(Task::with_schema("two", ignore::<other::Shelf>));
        let schema = schema_of(package);
        assert_eq!(schema["anyOf"][0]["title"], "one");
        assert_eq!(schema["anyOf"][1]["title"], "two");
        // A recursive type is defined once, under `$defs`.
        let reference = schema
            .pointer("/anyOf/1/properties/next")
            .map(ToString::to_string);
        assert!(
            reference.is_some_and(|text| text.contains("#/$defs/Shelf")),
            "{schema}"
        );
        assert!(schema["$defs"]["Shelf"]["properties"]["next"].is_object());
    }

    #[test]
    fn a_schema_written_by_hand_replaces_the_derived_one() {
        let package = Package::new("one", "1")
            .task(Task::with_schema("ignore", ignore::<Params>))
            .context_schema(json!({"type": "object"}));
        assert_eq!(schema_of(package), json!({"type": "object"}));
        assert_eq!(schema_of(Package::new("none", "1")), Value::Null);
    }
}
