//! The OpenAPI document, made from the table of routes and the schemas of their bodies and answers.

use campanile_model::trace_context::TRACEPARENT;
use schemars::generate::{Contract, SchemaSettings};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::all_routes::routes;
use crate::idempotency;
use crate::problem::ProblemDetails;
use crate::query::Parameter;
use crate::routes::{Form, Method, Route};

/// Where the document has its schemas.
const SCHEMAS: &str = "/components/schemas";

/// Returns the OpenAPI document, with a line break at its end.
pub fn document() -> String {
    let mut answers = generator(Contract::Serialize);
    let mut bodies = generator(Contract::Deserialize);
    let problem = answers.subschema_for::<ProblemDetails>();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes() {
        let operation = operation(route, &mut answers, &mut bodies, &problem);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation;
    }
    let mut schemas = bodies.take_definitions(false);
    schemas.extend(answers.take_definitions(false));
    schemas.sort_keys();
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Campanile",
            "description": "Reads and changes what a Campanile host records. Answers are the JSON of the command line.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:7979", "description": "A host on this machine"}],
        "security": [{"token": []}],
        "tags": tags(),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    });
    format!("{document:#}\n")
}

fn generator(contract: Contract) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = SCHEMAS.into();
        settings.contract = contract;
    });
    settings.into_generator()
}

/// Returns the group of a route: the part of its path after the version.
fn tag(route: &Route) -> &'static str {
    let rest = route.path.strip_prefix("/api/v1/");
    rest.map_or("host", |rest| rest.split('/').next().unwrap_or_default())
}

fn tags() -> Vec<Value> {
    let mut names: Vec<&str> = routes().iter().map(|route| tag(route)).collect();
    names.sort_unstable();
    names.dedup();
    let tag = |name: &str| json!({"name": name, "description": format!("Routes of {name}")});
    names.into_iter().map(tag).collect()
}

fn operation(
    route: &Route,
    answers: &mut SchemaGenerator,
    bodies: &mut SchemaGenerator,
    problem: &Schema,
) -> Value {
    let in_path = route.path.split('{').skip(1);
    let in_path = in_path.filter_map(|part| part.split('}').next());
    let in_path = in_path.map(
        |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
    );
    let in_query = (route.query)().iter().map(query_parameter);
    let header = |name: &str, is_required: bool, meaning: &str| json!({"name": name, "in": "header", "required": is_required, "description": meaning, "schema": {"type": "string"}});
    let mut parameters: Vec<Value> = in_path.chain(in_query).collect();
    match route.method {
        Method::Put | Method::Patch | Method::Delete => {
            parameters.push(header(
                "If-Match",
                true,
                "The `ETag` of the schedule that was read, or `*`.",
            ));
        }
        Method::Post if route.role.is_some() && route.form != Form::Mcp => {
            let meaning = "A key of your choice. The same request with the same key changes nothing twice for a day.";
            parameters.push(header(idempotency::HEADER, false, meaning));
        }
        _ => {}
    }
    if route.id == "trigger_schedule" {
        let meaning = "The span of the client, a trace context of W3C: the launch belongs to its trace. An invalid one is ignored.";
        parameters.push(header(TRACEPARENT, false, meaning));
    }
    if matches!(route.form, Form::Stream | Form::JsonOrStream) {
        parameters.push(header(
            "Last-Event-ID",
            false,
            "The id of the last event that the client has.",
        ));
    }
    let answer = (route.answer)(answers);
    let refused = |meaning: &str| json!({"description": meaning, "content": {"application/problem+json": {"schema": problem}}});
    let content = match route.form {
        Form::Json | Form::Upload | Form::Mcp => json!({"application/json": {"schema": answer}}),
        Form::Stream => json!({"text/event-stream": {"schema": answer}}),
        Form::JsonOrStream => {
            json!({"application/json": {"schema": answer}, "text/event-stream": {"schema": {"type": "string"}}})
        }
        Form::Metrics => json!({"text/plain": {"schema": {"type": "string"}}}),
    };
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "tags": [tag(route)],
        "parameters": parameters,
        "responses": {
            route.status.to_string(): {"description": "Done.", "content": content},
            "4XX": refused("The request is wrong, or not allowed. Nothing was changed."),
            "5XX": refused("The host cannot answer now. Nothing was changed."),
        },
    });
    if let Some(body) = route.body {
        let kind = match route.method {
            Method::Patch => "application/merge-patch+json",
            _ => "application/json",
        };
        operation["requestBody"] =
            json!({"required": true, "content": {kind: {"schema": body(bodies)}}});
    }
    if route.form == Form::Upload {
        let file = json!({"schema": {"type": "string", "format": "binary"}});
        operation["requestBody"] = json!({"required": true, "content": {"application/wasm": file}});
    }
    match route.role {
        Some(role) => {
            operation["x-role"] = json!(role.as_str());
            operation["x-scope"] = json!(if route.scope.is_of_namespaces() {
                "namespace"
            } else {
                "installation"
            });
            operation["x-cost"] = json!(route.cost);
        }
        None => operation["security"] = json!([]),
    }
    operation
}

fn query_parameter(parameter: &Parameter) -> Value {
    let mut described = json!({"name": parameter.name, "in": "query", "required": false, "description": parameter.meaning, "schema": parameter.schema});
    if parameter.schema["type"] == "array" {
        described["explode"] = json!(false);
    }
    described
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_committed_document_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let current = document();
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, &current).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == current,
            "docs/openapi.json is not current; run `UPDATE_REFERENCE=1 cargo test --workspace --lib openapi` and commit"
        );
    }

    #[test]
    fn the_document_has_every_route_and_no_other() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let committed = std::fs::read_to_string(path).unwrap();
        let committed: Value = serde_json::from_str(&committed).unwrap();
        let mut listed = BTreeSet::new();
        for (path, methods) in committed["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                listed.insert((path.clone(), method.to_uppercase()));
            }
        }
        let of = |route: &&Route| (route.path.to_owned(), route.method.as_str().to_owned());
        let routes: BTreeSet<(String, String)> = routes().iter().map(of).collect();
        assert_eq!(listed, routes);
    }

    #[test]
    fn every_reference_leads_to_a_schema_and_every_name_has_one_meaning() {
        let document: Value = serde_json::from_str(&document()).unwrap();
        let mut open = vec![&document];
        let mut references = BTreeSet::new();
        while let Some(value) = open.pop() {
            match value {
                Value::Object(object) => {
                    references.extend(object.get("$ref").and_then(Value::as_str));
                    open.extend(object.values());
                }
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        assert!(references.len() > 20);
        for reference in references {
            let found = document.pointer(reference.trim_start_matches('#'));
            assert!(found.is_some(), "{reference}");
        }
        let ids: BTreeSet<&str> = routes().iter().map(|route| route.id).collect();
        assert_eq!(ids.len(), routes().len());
        let (mut answers, mut bodies) = (
            generator(Contract::Serialize),
            generator(Contract::Deserialize),
        );
        for route in routes() {
            (route.answer)(&mut answers);
            if let Some(body) = route.body {
                body(&mut bodies);
            }
        }
        for (name, schema) in bodies.definitions() {
            let other = answers.definitions().get(name);
            assert!(
                other.is_none_or(|other| other == schema),
                "{name} has two meanings"
            );
        }
    }
}
