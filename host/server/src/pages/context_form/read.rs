//! From what was typed to a context.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::form::Form;
use super::{ContextForm, Field, Kind, MORE, Part};
use crate::problem::ApiProblem;
use campanile_model::json_text::{JsonObject, JsonText, text_of};
use campanile_model::text::{counted, printable};

/// What is shown of a wrong value, in characters.
const WRONG_CHARS_MAX: usize = 40;

/// What a form has.
#[derive(Debug, Default, PartialEq)]
pub(in super::super) struct TypedContext {
    /// The values that are right.
    pub context: JsonObject,
    /// What is wrong with the others: a clause for each name of a field.
    pub(super) faults: BTreeMap<String, String>,
}

impl TypedContext {
    /// Returns the context.
    ///
    /// # Errors
    ///
    /// A problem that names each wrong value.
    pub(in super::super) fn checked(self) -> Result<JsonObject, ApiProblem> {
        let label = |name: &str| match name.strip_prefix(MORE).unwrap_or_default() {
            "" => "the JSON object".to_owned(),
            path => format!("`{}`", path.trim_start_matches('/')),
        };
        let faults = self.faults.iter();
        let faults = faults.map(|(name, fault)| format!("{} {fault}", label(name)));
        let faults = Vec::from_iter(faults);
        let message = match faults.as_slice() {
            [] => return Ok(self.context),
            [only] => format!("the context: {only}"),
            all => {
                let count = counted(all.len() as u64, "value");
                format!("{count} of the context are wrong:\n{}", all.join("\n"))
            }
        };
        Err(ApiProblem::invalid(message))
    }
}

impl ContextForm {
    /// Reads what was typed. An object of which a value was typed keeps its other ones of `base`, the context over which this one is merged.
    pub(in super::super) fn read(&self, form: &Form, base: &JsonObject) -> TypedContext {
        let mut typed = TypedContext::default();
        if let Some(text) = form.given(MORE) {
            match object(text) {
                Ok(object) => typed.context = object,
                Err(fault) => _ = typed.faults.insert(MORE.to_owned(), fault),
            }
        }
        for part in &self.parts {
            typed.read(part, form, base);
        }
        let known = |name: &str| {
            let mut fields = self.parts.iter().flat_map(Part::fields);
            fields.any(|field| field.name == name)
        };
        let mut given = form
            .fields()
            .iter()
            .filter(|(_, value)| !value.trim().is_empty());
        let unknown = given.find(|(name, _)| is_of_value(name) && !known(name));
        if let Some((name, _)) = unknown {
            let fault =
                "isn't in the package's schema any more: look at the fields again".to_owned();
            typed.faults.insert(name.clone(), fault);
        }
        typed
    }
}

/// Whether a field with this name has a value of a context.
fn is_of_value(name: &str) -> bool {
    let path = name.strip_prefix(MORE);
    path.is_some_and(|path| path.starts_with('/'))
}

fn object(text: &str) -> Result<JsonObject, String> {
    let json: JsonText =
        serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
    serde_json::from_str(json.as_str())
        .map_err(|_| r#"is JSON but no object: write it as {"region": "eu"}"#.to_owned())
}

impl TypedContext {
    fn read(&mut self, part: &Part, form: &Form, base: &JsonObject) {
        let mut values = JsonObject::new();
        let is_wrong_before = self.faults.len();
        for field in part.fields() {
            match field.value(form.get(&field.name)) {
                Ok(Some(value)) => _ = values.insert(field.key.clone(), value),
                Ok(None) => {}
                Err(fault) => _ = self.faults.insert(field.name.clone(), fault),
            }
        }
        let key = part.key();
        if self.context.contains_key(key) {
            if let Some(field) = part
                .fields()
                .iter()
                .find(|field| values.contains_key(&field.key))
            {
                let fault = "is set in its field and in the JSON object: leave one of them empty";
                self.faults.insert(field.name.clone(), fault.to_owned());
            }
            return;
        }
        if self.faults.len() > is_wrong_before {
            return;
        }
        match part {
            Part::Value(field) => match values.remove(key) {
                Some(value) => _ = self.context.insert(key.to_owned(), value),
                None if !base.contains_key(key) => self.need(field),
                None => {}
            },
            Part::Object {
                is_required,
                fields,
                ..
            } => {
                if values.is_empty() && (!is_required || base.contains_key(key)) {
                    return;
                }
                let before = base
                    .get(key)
                    .and_then(|before| object(before.as_str()).ok());
                let mut whole = before.unwrap_or_default();
                whole.extend(values);
                let missing = fields
                    .iter()
                    .filter(|field| !whole.contains_key(&field.key));
                missing.for_each(|field| self.need(field));
                let whole = JsonText::of_checked(text_of(&whole));
                self.context.insert(key.to_owned(), whole);
            }
        }
    }

    /// Notes that a required value is missing.
    fn need(&mut self, field: &Field) {
        if field.is_required {
            let fault = "is required by the package's schema, and empty".to_owned();
            self.faults.insert(field.name.clone(), fault);
        }
    }
}

impl Field {
    /// Returns the value that was typed; none for an empty field. The error is a clause.
    fn value(&self, typed: &str) -> Result<Option<JsonText>, String> {
        let text = typed.trim();
        if text.is_empty() {
            return Ok(None);
        }
        match &self.kind {
            Kind::Text if printable(typed) != typed => Err(
                "has characters that can't be seen: write its value in the JSON object, as a JSON text".to_owned(),
            ),
            Kind::Text => Ok(JsonText::from(Value::from(typed))),
            Kind::Number { is_whole, least, most } => number(text, *is_whole, (*least, *most)),
            Kind::Flag | Kind::Choice(_) => {
                let flags = [true, false].map(|flag| JsonText::from(Value::from(flag)));
                let choices = match &self.kind {
                    Kind::Choice(choices) => choices.as_slice(),
                    _ => flags.as_slice(),
                };
                let chosen = serde_json::from_str::<JsonText>(text).ok();
                let chosen = chosen.filter(|chosen| choices.contains(chosen));
                chosen.ok_or_else(|| format!("is `{}`, which is none of its choices", shown(text)))
            }
            Kind::Json => serde_json::from_str::<JsonText>(text).map_err(|error| {
                format!("is no JSON: {error}; a text needs quotes, as in \"eu\"")
            }),
        }
        .map(Some)
    }
}

fn shown(text: &str) -> String {
    text.chars().take(WRONG_CHARS_MAX).collect()
}

/// Reads a number, which keeps its text.
fn number(
    text: &str,
    is_whole: bool,
    (least, most): (Option<f64>, Option<f64>),
) -> Result<JsonText, String> {
    let shown = shown(text);
    let is_number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    let number = serde_json::from_str::<JsonText>(text)
        .ok()
        .filter(|_| is_number);
    let Some(number) = number else {
        return Err(format!(
            "is `{shown}`, which is no number of JSON: write one such as 10 or 2.5"
        ));
    };
    if is_whole
        && !text
            .trim_start_matches('-')
            .bytes()
            .all(|byte| byte.is_ascii_digit())
    {
        return Err(format!(
            "is `{shown}`, which is no whole number: write one such as 10"
        ));
    }
    // Rounding keeps the order, so no number within the bounds is refused.
    let value: f64 = text.parse().unwrap_or_default();
    match (least, most) {
        (Some(least), _) if value < least => Err(format!("is {shown}, and the least is {least}")),
        (_, Some(most)) if value > most => Err(format!("is {shown}, and the most is {most}")),
        _ => Ok(number),
    }
}
