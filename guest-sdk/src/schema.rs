//! JSON Schemas of the tasks' contexts, derived from the types that read them.

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
    /// As [`Task::new`], and the manifest's `context_schema` comes from the context's type, with its doc comments as
    /// descriptions. With the feature `schema`.
    ///
    /// In a package with several such tasks the schema is `anyOf` theirs, each entitled with its task. Tasks that are
    /// only given what others [pass](Run::pass) are better made by [`Task::new`]: nobody fills their context in. A schema
    /// that is given to [`Package::context_schema`](crate::Package::context_schema) stands before all of them.
    ///
    /// ```
    /// use campanile_sdk::schemars::{self, JsonSchema};
    /// use campanile_sdk::{Package, Result, Run, Task};
    ///
    /// #[derive(serde::Deserialize, JsonSchema)]
    /// struct Greeting {
    ///     /// Whom to greet.
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
    /// assert_eq!(schema["properties"]["name"]["description"], "Whom to greet.");
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

/// One schema for what `tasks` read, or none when there are none.
pub(crate) fn of_all(tasks: &[(&str, Derive)]) -> Option<Value> {
    // One generator for all, so that types of the same name in different tasks are told apart; and inline, because most
    // readers look at one place.
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
    // Only what contains itself is not inline.
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
    struct Wishes {
        /// How many.
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

    fn take<C>(_: &Run, _: C) -> Result<()> {
        Ok(())
    }

    fn schema_of(package: Package) -> Value {
        package.manifest()["context_schema"].clone()
    }

    #[test]
    fn the_schema_of_one_task_is_that_of_its_type_all_in_one_place() {
        let package = Package::new("one", "1")
            .task(Task::with_schema("take", take::<Wishes>))
            .task(Task::new("rest", take::<Value>));
        let count = json!({
            "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255,
            "default": 0, "description": "How many.",
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
    fn the_schemas_of_several_tasks_stand_side_by_side_under_their_names() {
        let package = Package::new("two", "1")
            .task(Task::with_schema("one", take::<Wishes>))
            .task(Task::with_schema("two", take::<other::Shelf>));
        let schema = schema_of(package);
        assert_eq!(schema["anyOf"][0]["title"], "one");
        assert_eq!(schema["anyOf"][1]["title"], "two");
        // What contains itself is defined once, where the reference leads.
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
    fn a_schema_written_by_hand_stands_before_the_derived_one() {
        let package = Package::new("one", "1")
            .task(Task::with_schema("take", take::<Wishes>))
            .context_schema(json!({"type": "object"}));
        assert_eq!(schema_of(package), json!({"type": "object"}));
        assert_eq!(schema_of(Package::new("none", "1")), Value::Null);
    }
}
