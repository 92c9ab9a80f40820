//! The query of a request, checked against the parameters of its route.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use crate::problem::ApiProblem;
use campanile_model::text::nearest;

/// A query parameter, doubling as a field of a question.
#[derive(Clone, Debug)]
pub struct Parameter {
    pub name: String,
    pub meaning: String,
    kind: Kind,
    pub schema: Value,
}

/// How to read a parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    /// `true` or `false`. Being there without a value counts as `true`.
    Flag,
    /// Values separated by commas, or given by repeating the parameter.
    List,
}

/// Returns a route's parameters.
pub(crate) type Parameters = fn() -> &'static [Parameter];

/// No parameters.
pub(crate) fn none() -> &'static [Parameter] {
    &[]
}

/// Returns the parameters doubling as fields of `Q`.
pub(crate) fn parameters<Q: JsonSchema + 'static>() -> &'static [Parameter] {
    static KNOWN: LazyLock<RwLock<HashMap<TypeId, &'static [Parameter]>>> =
        LazyLock::new(RwLock::default);
    let id = TypeId::of::<Q>();
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.get(&id) {
        return known;
    }
    drop(known);
    // Once for each of few types.
    let derived: &'static [Parameter] = Vec::leak(derive::<Q>());
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    known.entry(id).or_insert(derived)
}

fn derive<Q: JsonSchema>() -> Vec<Parameter> {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = settings
        .for_deserialize()
        .into_generator()
        .into_root_schema_for::<Q>();
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.cloned().unwrap_or_default();
    properties.into_iter().map(parameter).collect()
}

fn parameter((name, property): (String, Value)) -> Parameter {
    let is = |kind: &str| match &property["type"] {
        Value::Array(kinds) => kinds.iter().any(|one| one == kind),
        one => one == kind,
    };
    let bounds = property.as_object().into_iter().flatten();
    let bounds = bounds.filter(|(key, _)| ["minimum", "maximum"].contains(&key.as_str()));
    let (kind, schema) = match () {
        () if is("array") => (
            Kind::List,
            json!({ "type": "array", "items": { "type": "string" } }),
        ),
        () if is("boolean") => (Kind::Flag, json!({ "type": "boolean" })),
        () if is("integer") => {
            let mut schema = json!({ "type": "integer" });
            bounds.for_each(|(key, value)| schema[key] = value.clone());
            (Kind::Integer, schema)
        }
        () => (Kind::Text, json!({ "type": "string" })),
    };
    Parameter {
        meaning: property["description"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        name,
        kind,
        schema,
    }
}

/// The parameters of one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    given: Vec<(String, String)>,
}

impl Query {
    /// Reads a query, refusing unknown parameters and those given twice, other than lists.
    pub(crate) fn read(text: &str, known: &'static [Parameter]) -> Result<Query, ApiProblem> {
        let mut given: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.as_bytes()) {
            let names = || known.iter().map(|parameter| parameter.name.as_str());
            let Some(parameter) = known.iter().find(|parameter| parameter.name == name) else {
                let hint = match (nearest(&name, names()), known) {
                    (Some(near), _) => format!("did you mean `{near}`?"),
                    (None, []) => "this route has no parameters".to_owned(),
                    (None, _) => format!("this route has {}", Vec::from_iter(names()).join(", ")),
                };
                return Err(
                    ApiProblem::invalid(format!("there is no query parameter `{name}`")).hint(hint),
                );
            };
            if parameter.kind != Kind::List && given.iter().any(|(given, _)| *given == name) {
                return Err(ApiProblem::invalid(format!(
                    "the query parameter `{name}` is given twice"
                )));
            }
            given.push((name.into_owned(), value.into_owned()));
        }
        Ok(Query { given })
    }

    /// Whether a value has a character that the database cannot store.
    pub(crate) fn has_zero(&self) -> bool {
        self.given.iter().any(|(_, value)| value.contains('\0'))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.given.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns all values of a parameter.
    pub(crate) fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q str> {
        let of_name = self.given.iter().filter(move |(given, _)| given == name);
        of_name.map(|(_, value)| value.as_str())
    }

    /// Returns the query as an address has it.
    pub(crate) fn encoded(&self) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(&self.given);
        text.finish()
    }

    /// Returns this query with another `after`.
    pub(crate) fn next_page(&self, after: &str) -> String {
        let others = self.given.iter().filter(|(name, _)| name != "after");
        let mut next = form_urlencoded::Serializer::new(String::new());
        next.extend_pairs(others);
        next.append_pair("after", after);
        next.finish()
    }

    /// Parses the question asked. `Q` may lack some of the route's parameters.
    pub(crate) fn question<Q: DeserializeOwned + JsonSchema + 'static>(
        &self,
    ) -> Result<Q, ApiProblem> {
        let fields = self.fields::<Q>()?;
        serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
            let path = error.path().to_string();
            let name = path.split('[').next().unwrap_or_default();
            ApiProblem::invalid(format!("`{name}`: {}", error.inner()))
        })
    }

    /// Returns the fields of `Q` given, as JSON.
    pub(crate) fn fields<Q: JsonSchema + 'static>(&self) -> Result<Map<String, Value>, ApiProblem> {
        let given = parameters::<Q>()
            .iter()
            .filter(|parameter| self.text(&parameter.name).is_some());
        given
            .map(|parameter| Ok((parameter.name.clone(), self.value(parameter)?)))
            .collect()
    }

    /// Returns a form's fields that double as fields of `Q`. A ticked box has any value.
    pub(crate) fn of_form<'f, Q: JsonSchema + 'static>(
        get: impl Fn(&str) -> Option<&'f str>,
    ) -> Query {
        let given = parameters::<Q>().iter().filter_map(|parameter| {
            let value = get(&parameter.name)?;
            let value = if parameter.kind == Kind::Flag {
                "true"
            } else {
                value
            };
            Some((parameter.name.clone(), value.to_owned()))
        });
        Query {
            given: given.collect(),
        }
    }

    fn value(&self, parameter: &Parameter) -> Result<Value, ApiProblem> {
        let name = &parameter.name;
        let text = self.text(name).unwrap_or_default();
        Ok(match (parameter.kind, text) {
            (Kind::Flag, "true" | "") => true.into(),
            (Kind::Flag, "false") => false.into(),
            (Kind::Flag, _) => {
                return Err(ApiProblem::invalid(format!(
                    "`{name}`: must be `true` or `false`"
                )));
            }
            (Kind::Integer, _) => text
                .parse::<i64>()
                .map_or_else(|_| text.into(), Value::from),
            (Kind::Text, _) => text.into(),
            (Kind::List, _) => self.all(name).flat_map(|text| text.split(',')).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_control::questions::alerts::ListAlerts;
    use campanile_control::questions::launches::ListLaunches;

    fn read(text: &str) -> Result<ListLaunches, ApiProblem> {
        Query::read(text, parameters::<ListLaunches>())?.question()
    }

    #[test]
    fn an_unknown_or_doubled_parameter_is_refused() {
        let error = read("limt=3").unwrap_err().problem;
        assert_eq!(error.hint.as_deref(), Some("did you mean `limit`?"));
        let error = read("limit=3&limit=4").unwrap_err().problem;
        assert!(error.message.contains("given twice"), "{error}");
        let query = read("schedule=a%20b&limit=3").unwrap();
        assert_eq!(query.schedule.as_deref(), Some("a b"));
        assert_eq!(query.limit.map(|limit| limit.0), Some(3));
    }

    #[test]
    fn a_page_has_bounds() {
        assert!(read("").unwrap().limit.is_none());
        for text in ["limit=0", "limit=501", "limit=-1", "limit=x", "limit="] {
            let error = read(text).unwrap_err().problem.message;
            assert_eq!(error, "`limit`: must be a number from 1 to 500", "{text}");
        }
    }

    #[test]
    fn a_list_comes_with_commas_or_repeated() {
        for text in ["status=failed,skipped", "status=failed&status=skipped"] {
            let statuses = read(text).unwrap().status;
            let statuses = Vec::from_iter(statuses.iter().map(|status| status.as_str()));
            assert_eq!(statuses, ["failed", "skipped"]);
        }
        let error = read("status=failed,skiped").unwrap_err().problem.message;
        assert!(error.starts_with("`status`: `skiped` must be"), "{error}");
        assert!(error.ends_with("did you mean `skipped`?"), "{error}");
    }

    #[test]
    fn a_flag_needs_no_value() {
        let read = |text| {
            let query = Query::read(text, parameters::<ListAlerts>())?;
            query.question().map(|question: ListAlerts| question.all)
        };
        let given = ["", "all", "all=true", "all=false"].map(|text| read(text).unwrap());
        assert_eq!(given, [false, true, true, false]);
        let error = read("all=yes").unwrap_err().problem.message;
        assert_eq!(error, "`all`: must be `true` or `false`");
    }
}
