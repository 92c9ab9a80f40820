//! Texts that take values from the context, such as `--url={{ context.url }}`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use serde_json::value::RawValue;

use campanile_model::json::JsonParts;
use campanile_model::json_text::JsonObject;

const BEGIN: &str = "{{";
const END: &str = "}}";
/// Stands for [`BEGIN`] as text.
const ESCAPED: &str = "{{{{";
const PREFIX: &str = "context.";

/// A text with places that values of the context fill. No shell reads the result: one template is one argument, whatever
/// the values hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Value(ContextKey),
}

/// A value of the context, by the keys that lead to it: `url`, or `schedule.name` for a key of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextKey(String);

impl ContextKey {
    /// Read `text`; the error is a clause.
    ///
    /// # Errors
    /// When it cannot name a value.
    pub fn parse(text: &str) -> Result<ContextKey, String> {
        let is_unclear = |char: char| char.is_control() || matches!(char, '{' | '}');
        if text.split('.').any(str::is_empty) || text.contains(is_unclear) {
            Err(format!(
                "names {text:?}, which is no key of a context: write one such as \"url\", or \"schedule.name\" for a key within an object"
            ))
        } else {
            Ok(ContextKey(text.to_owned()))
        }
    }

    /// Returns the key at the top of the context.
    pub fn first(&self) -> &str {
        self.0.split('.').next().unwrap_or_default()
    }
}

/// The values of a context, and how many bytes of them a program may still get. Numbers stay as they are written.
pub struct ContextValues<'c> {
    context: &'c JsonObject,
    /// The entries of the objects on the way to a value, each read once.
    objects: HashMap<String, HashMap<String, &'c RawValue>>,
    bytes_left: usize,
}

impl<'c> ContextValues<'c> {
    /// The values of `context`, of which a program gets at most `bytes_max` bytes.
    pub fn new(context: &'c JsonObject, bytes_max: usize) -> ContextValues<'c> {
        ContextValues {
            context,
            objects: HashMap::new(),
            bytes_left: bytes_max,
        }
    }

    /// Returns the JSON text of the value of `key`.
    fn json(&mut self, key: &ContextKey) -> Option<&'c str> {
        let mut keys = key.0.split('.');
        let mut path = keys.next()?.to_owned();
        let mut value = self.context.get(&path)?.as_str();
        for key in keys {
            let object = match self.objects.entry(path.clone()) {
                Entry::Occupied(read) => read.into_mut(),
                Entry::Vacant(unread) => unread.insert(entries(value)),
            };
            value = object.get(key)?.get();
            path = format!("{path}.{key}");
        }
        Some(value)
    }

    /// Returns the value of `key` as text: a JSON string without its quotes, another value as JSON.
    ///
    /// # Errors
    /// A sentence about the context, when it has no such value, or the value cannot be an argument or is too long.
    pub fn text(&mut self, key: &ContextKey) -> Result<String, String> {
        let text = match self.json(key) {
            None => return Err(format!("the context has no key `{key}`")),
            Some("null") => return Err(format!("the key `{key}` of the context is null")),
            Some(json) if json.starts_with('"') => serde_json::from_str(json).map_err(|error| {
                format!("the key `{key}` of the context cannot be read: {error}")
            })?,
            Some(json) => json.to_owned(),
        };
        if text.contains('\0') {
            return Err(format!(
                "the key `{key}` of the context holds a NUL character, which no argument can have"
            ));
        }
        match self.bytes_left.checked_sub(text.len()) {
            Some(left) => self.bytes_left = left,
            None => {
                return Err(format!(
                    "with the key `{key}` of the context, what it fills into arguments and variables is longer than 1 MiB; pass large values by stdin"
                ));
            }
        }
        Ok(text)
    }
}

/// Returns the entries of an object; none of another value.
fn entries(json: &str) -> HashMap<String, &RawValue> {
    match JsonParts::of(json) {
        Ok(JsonParts::Object(entries)) => entries.into_iter().collect(),
        _ => HashMap::new(),
    }
}

impl fmt::Display for ContextKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Template {
    /// Returns the literal texts between values from the context.
    pub(crate) fn literals(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Value(_) => None,
        })
    }

    /// Read `text`; the error is a clause.
    ///
    /// # Errors
    /// When it has `{{` that begins neither `{{ context.KEY }}` nor `{{{{`, or a NUL character.
    pub fn parse(text: &str) -> Result<Template, String> {
        if text.contains('\0') {
            return Err("holds a NUL character, which no argument can have".to_owned());
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(BEGIN) {
            literal.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix(ESCAPED) {
                literal.push_str(BEGIN);
                rest = after;
                continue;
            }
            let (place, after) = match rest.split_once(END) {
                Some((place, after)) => (&place[BEGIN.len()..], after),
                None => return Err(unclear(rest)),
            };
            let key = place.trim().strip_prefix(PREFIX);
            let key = key.and_then(|key| ContextKey::parse(key).ok());
            let key = key.ok_or_else(|| unclear(&rest[..rest.len() - after.len()]))?;
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(Part::Value(key));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Template(parts))
    }

    /// Whether any value of the context is in it.
    pub fn needs_context(&self) -> bool {
        self.keys().next().is_some()
    }

    /// Returns the values of the context that are in it.
    pub fn keys(&self) -> impl Iterator<Item = &ContextKey> {
        self.0.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Value(key) => Some(key),
        })
    }

    /// Returns the text with values of the context.
    ///
    /// # Errors
    /// A sentence that names the key, when the context does not have a value for it.
    pub fn fill(&self, values: &mut ContextValues<'_>) -> Result<String, String> {
        let parts = self.0.iter().map(|part| match part {
            Part::Text(text) => Ok(text.clone()),
            Part::Value(key) => values.text(key),
        });
        parts.collect()
    }
}

/// Returns the clause about a place outside the context.
fn unclear(place: &str) -> String {
    format!(
        "holds `{place}`: write `{BEGIN} context.KEY {END}` for a value of the context, or `{ESCAPED}` for the text `{BEGIN}`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::json_text::object_of;
    use serde_json::{Value, json};

    fn fill(text: &str, context: Value) -> Result<String, String> {
        let context = object_of(context.as_object().unwrap());
        Template::parse(text)?.fill(&mut ContextValues::new(&context, 1_000))
    }

    #[test]
    fn values_of_the_context_are_filled_in() {
        let context = json!({"url": "http://x/?a b", "n": 7, "on": true, "list": [1, "b"], "schedule": {"name": "night"}});
        for (text, expected) in [
            ("", ""),
            ("plain } text }}", "plain } text }}"),
            ("{{context.url}}", "http://x/?a b"),
            ("--n={{ context.n }}{{context.on}}!", "--n=7true!"),
            ("{{ context.list }}", "[1,\"b\"]"),
            ("{{ context.schedule.name }}", "night"),
            ("{{{{.Name}}", "{{.Name}}"),
            ("{{{{{{ context.n }}", "{{7"),
        ] {
            assert_eq!(
                fill(text, context.clone()),
                Ok(expected.to_owned()),
                "{text}"
            );
        }
    }

    #[test]
    fn a_number_is_filled_in_as_it_is_written() {
        let written = r#"{"n": 12345678901234567890123, "of": {"m": 1.10, "x": {"e": [1E5, 0.1000000000000000055]}}}"#;
        let context: JsonObject = serde_json::from_str(written).unwrap();
        let mut values = ContextValues::new(&context, 1_000);
        for (key, expected) in [
            ("n", "12345678901234567890123"),
            ("of.m", "1.10"),
            ("of.x", r#"{"e":[1E5,0.1000000000000000055]}"#),
            ("of.x.e", "[1E5,0.1000000000000000055]"),
        ] {
            let key = ContextKey::parse(key).unwrap();
            assert_eq!(values.text(&key).unwrap(), expected, "{key}");
        }
    }

    #[test]
    fn the_bytes_of_all_values_are_bounded() {
        let context = object_of(json!({"a": "four", "b": 12}).as_object().unwrap());
        let mut values = ContextValues::new(&context, 10);
        let fill = |values: &mut _| {
            Template::parse("{{ context.a }}{{ context.a }}")
                .unwrap()
                .fill(values)
        };
        assert_eq!(fill(&mut values).unwrap(), "fourfour");
        let key = ContextKey::parse("b").unwrap();
        assert_eq!(values.text(&key).unwrap(), "12");
        let error = values.text(&key).unwrap_err();
        assert!(
            error.contains("key `b`") && error.contains("longer than 1 MiB"),
            "{error}"
        );
    }

    #[test]
    fn a_value_is_never_read_as_a_template() {
        let context = json!({"a": "{{ context.b }}", "b": "secret"});
        assert_eq!(fill("{{ context.a }}", context).unwrap(), "{{ context.b }}");
    }

    #[test]
    fn a_missing_value_is_named() {
        for (text, context, expected) in [
            (
                "{{ context.url }}",
                json!({}),
                "the context has no key `url`",
            ),
            (
                "{{ context.a.b }}",
                json!({"a": {}}),
                "the context has no key `a.b`",
            ),
            (
                "{{ context.a.b }}",
                json!({"a": "text"}),
                "the context has no key `a.b`",
            ),
            (
                "{{ context.a }}",
                json!({"a": null}),
                "the key `a` of the context is null",
            ),
            (
                "{{ context.a }}",
                json!({"a": "\0"}),
                "the key `a` of the context holds a NUL",
            ),
        ] {
            let error = fill(text, context).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn an_unclear_place_is_refused() {
        for text in [
            "{{",
            "{{ context.url",
            "{{ contxt.url }}",
            "{{ url }}",
            "{{ context. }}",
            "{{ context.a..b }}",
            "{{{ context.url }}}",
        ] {
            let error = Template::parse(text).unwrap_err();
            assert!(error.contains("{{ context.KEY }}"), "{text}: {error}");
        }
        assert!(Template::parse("a\0b").unwrap_err().contains("NUL"));
    }
}
