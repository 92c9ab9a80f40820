//! A form for the context of a launch, made from the JSON Schema in the manifest of a package.
//!
//! A schema comes from a guest, and hosts don't validate with it. So a form knows just the plain part of JSON Schema, and
//! reads a bounded part of any schema: what it can't express is given as JSON, in a field for a value or for the whole context.

mod read;
mod show;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub(super) use self::read::TypedContext;
use campanile_model::json_text::JsonText;
use campanile_model::text::is_printable_line;
use campanile_package::context::RESERVED;

/// The field with the values that have no field of their own, as a JSON object.
const MORE: &str = "context";

/// The most fields. A schema with more values gets one field for JSON.
const FIELDS_MAX: usize = 40;
/// The most characters of a key that has a field.
const KEY_CHARS_MAX: usize = 100;
/// The most references, and unions with null, that are followed one after the other.
const STEPS_MAX: usize = 4;
/// The most bytes that the choices of all fields together may take on the page, roughly.
const CHOICE_BYTES_MAX: usize = 20 << 10;
/// What an `option` takes on a page besides its text.
const OPTION_BYTES: usize = 24;

/// What combines schemas, which a field can't express.
const COMBINED: [&str; 5] = [
    "not",
    "if",
    "$dynamicRef",
    "dependentSchemas",
    "patternProperties",
];

/// The form of a context.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ContextForm {
    parts: Vec<Part>,
    /// Why a schema has no fields.
    without: Option<String>,
    /// Whether the context may have further values.
    takes_more: bool,
}

/// A key of the context.
#[derive(Debug, PartialEq)]
enum Part {
    Value(Field),
    /// An object, each of whose values has a field.
    Object {
        key: String,
        is_required: bool,
        description: String,
        fields: Vec<Field>,
    },
}

/// A value with a field.
#[derive(Debug, PartialEq)]
struct Field {
    /// The name of the field: `context`, and a JSON pointer to the value. A value that the next version of the package no longer has
    /// can't be taken for another one.
    name: String,
    key: String,
    kind: Kind,
    /// Whether the object that has the value needs it.
    is_required: bool,
    description: String,
    /// What the package takes without the value.
    default: Option<JsonText>,
}

/// How a value is typed.
#[derive(Debug, PartialEq)]
enum Kind {
    Text,
    Number {
        is_whole: bool,
        least: Option<f64>,
        most: Option<f64>,
    },
    Flag,
    /// One of these values.
    Choice(Vec<JsonText>),
    Json,
}

impl ContextForm {
    /// Returns the form of a package with this manifest, as the database stores it.
    pub(super) fn of_manifest(manifest: &str) -> ContextForm {
        let manifest: Value = serde_json::from_str(manifest).unwrap_or_default();
        ContextForm::of(
            manifest
                .get("context_schema")
                .filter(|schema| !schema.is_null()),
        )
    }

    fn of(schema: Option<&Value>) -> ContextForm {
        let one_field = |without: Option<String>| ContextForm {
            parts: Vec::new(),
            without,
            takes_more: true,
        };
        let Some(root) = schema else {
            return one_field(Some(
                "The package says nothing about its context.".to_owned(),
            ));
        };
        let top = resolved(root, root);
        let Some(top) = top.filter(|top| type_of(top).is_none_or(|kind| kind == "object")) else {
            return one_field(Some(
                "The package's schema of its context can't be shown as fields.".to_owned(),
            ));
        };
        let mut reader = Reader {
            root,
            fields: 0,
            choice_bytes: 0,
        };
        let Some((mut parts, left_out)) = reader.parts(top) else {
            let why = format!(
                "The package's schema of its context has more than {FIELDS_MAX} values, too many for fields."
            );
            return one_field(Some(why));
        };
        parts.sort_by_key(|part| !part.is_required());
        ContextForm {
            takes_more: left_out
                || parts.is_empty()
                || top.get("additionalProperties") != Some(&Value::Bool(false)),
            without: None,
            parts,
        }
    }
}

impl Part {
    fn key(&self) -> &str {
        match self {
            Part::Value(field) => &field.key,
            Part::Object { key, .. } => key,
        }
    }

    fn is_required(&self) -> bool {
        match self {
            Part::Value(field) => field.is_required,
            Part::Object { is_required, .. } => *is_required,
        }
    }

    fn fields(&self) -> &[Field] {
        match self {
            Part::Value(field) => std::slice::from_ref(field),
            Part::Object { fields, .. } => fields,
        }
    }
}

/// Reads a schema, and counts what the page gets of it.
struct Reader<'s> {
    root: &'s Value,
    fields: usize,
    choice_bytes: usize,
}

impl Reader<'_> {
    /// Returns the parts of an object, and whether some of its keys have none. None for too many.
    fn parts(&mut self, object: &Map<String, Value>) -> Option<(Vec<Part>, bool)> {
        let (mut parts, mut left_out) = (Vec::new(), false);
        for (key, schema) in properties(object) {
            if !has_field(key) || RESERVED.contains(&key.as_str()) {
                left_out = true;
                continue;
            }
            let part = match self.object(key, schema) {
                Some(fields) => Part::Object {
                    key: key.clone(),
                    is_required: is_required(object, key),
                    description: description(schema),
                    fields: fields?,
                },
                None => Part::Value(self.field(&[key], schema, is_required(object, key))?),
            };
            parts.push(part);
        }
        Some((parts, left_out))
    }

    /// Returns the fields of an object within the context; `Some(None)` for too many, and none for a value that has a field itself.
    fn object(&mut self, key: &str, schema: &Value) -> Option<Option<Vec<Field>>> {
        let object = resolved(self.root, schema)?;
        let is_object = type_of(object) == Some("object") && !object.contains_key("enum");
        let mut inner = properties(object).take(FIELDS_MAX + 1).peekable();
        if !is_object
            || inner.peek().is_none()
            || !properties(object)
                .take(FIELDS_MAX + 1)
                .all(|(key, _)| has_field(key))
        {
            return None;
        }
        let fields =
            inner.map(|(own, schema)| self.field(&[key, own], schema, is_required(object, own)));
        Some(fields.collect())
    }

    /// Returns the field of a value; none for one field too many.
    fn field(&mut self, path: &[&str], schema: &Value, is_required: bool) -> Option<Field> {
        self.fields += 1;
        if self.fields > FIELDS_MAX {
            return None;
        }
        let meant = resolved(self.root, schema);
        let default = schema.get("default").or_else(|| meant?.get("default"));
        let own = description(schema);
        let of_meant =
            || meant.map_or_else(String::new, |meant| text(meant, "description").to_owned());
        Some(Field {
            name: format!("{MORE}{}", pointer(path)),
            key: path.last().copied().unwrap_or_default().to_owned(),
            kind: self.kind(meant),
            is_required,
            description: if own.is_empty() { of_meant() } else { own },
            default: default
                .filter(|value| !value.is_null())
                .map(|value| value.clone().into()),
        })
    }

    fn kind(&mut self, schema: Option<&Map<String, Value>>) -> Kind {
        let Some(schema) = schema else {
            return Kind::Json;
        };
        if let Some(values) = self.choices(schema) {
            return Kind::Choice(values);
        }
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let number = |is_whole| Kind::Number {
            is_whole,
            least: bound("minimum"),
            most: bound("maximum"),
        };
        match type_of(schema) {
            Some("string") => Kind::Text,
            Some("integer") => number(true),
            Some("number") => number(false),
            Some("boolean") => Kind::Flag,
            _ => Kind::Json,
        }
    }

    /// Returns the values among which a schema lets choose, unless they take too much of the page.
    fn choices(&mut self, schema: &Map<String, Value>) -> Option<Vec<JsonText>> {
        let values = match (schema.get("const"), schema.get("enum")) {
            (Some(only), _) => std::slice::from_ref(only),
            (None, Some(Value::Array(values))) => values.as_slice(),
            _ => return None,
        };
        let (mut bytes, mut choices) = (self.choice_bytes, Vec::new());
        for value in values {
            let text = match value {
                Value::Array(_) | Value::Object(_) => return None,
                Value::String(text) if text.len() > CHOICE_BYTES_MAX => return None,
                value => JsonText::from(value.clone()),
            };
            bytes += 2 * text.as_str().len() + OPTION_BYTES;
            if bytes > CHOICE_BYTES_MAX {
                return None;
            }
            choices.push(text);
        }
        self.choice_bytes = bytes;
        Some(choices).filter(|choices| !choices.is_empty())
    }
}

/// Returns the schema that is meant: at the end of references, and without the null of a union. None for one that a field can't express.
///
/// References lead through few steps, so a loop ends.
fn resolved<'s>(root: &'s Value, schema: &'s Value) -> Option<&'s Map<String, Value>> {
    let mut schema = schema;
    for _ in 0..=STEPS_MAX {
        let object = schema.as_object()?;
        if let Some(reference) = object.get("$ref") {
            schema = root.pointer(reference.as_str()?.strip_prefix('#')?)?;
            continue;
        }
        let unions = ["anyOf", "oneOf", "allOf"];
        if let Some(union) = unions.iter().find_map(|union| object.get(*union)) {
            let mut others = union.as_array()?.iter().filter(|one| one["type"] != "null");
            let (Some(only), None) = (others.next(), others.next()) else {
                return None;
            };
            schema = only;
            continue;
        }
        let is_combined = COMBINED.iter().any(|key| object.contains_key(*key));
        return Some(object).filter(|_| !is_combined);
    }
    None
}

/// Returns the type of a schema, if it is one besides null.
fn type_of(schema: &Map<String, Value>) -> Option<&str> {
    match schema.get("type")? {
        Value::Array(kinds) => {
            let mut kinds = kinds.iter().filter(|kind| *kind != "null");
            let only = kinds.next()?.as_str();
            only.filter(|_| kinds.next().is_none())
        }
        kind => kind.as_str(),
    }
}

fn properties(schema: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten()
}

fn is_required(schema: &Map<String, Value>, key: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|required| required.iter().any(|required| required == key))
}

/// Whether a key can be the name of a field.
fn has_field(key: &str) -> bool {
    !key.is_empty() && key.chars().count() <= KEY_CHARS_MAX && is_printable_line(key)
}

fn description(schema: &Value) -> String {
    let schema = schema.as_object();
    schema.map_or_else(String::new, |schema| text(schema, "description").to_owned())
}

fn text<'s>(schema: &'s Map<String, Value>, key: &str) -> &'s str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the JSON pointer of a path.
fn pointer(path: &[&str]) -> String {
    let parts = path
        .iter()
        .map(|part| part.replace('~', "~0").replace('/', "~1"));
    parts.fold(String::new(), |pointer, part| pointer + "/" + &part)
}
