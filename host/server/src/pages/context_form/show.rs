//! A form of a context, as a page shows it.

use maud::{Markup, html};

use super::super::form::Form;
use super::super::words::{line, short};
use super::read::TypedContext;
use super::{ContextForm, Field, Kind, MORE, Part};
use campanile_model::json_text::{JsonObject, JsonText};
use campanile_model::text::{printable, printable_json};

/// The most characters of a description, and of a value that applies to an empty field.
const DESCRIPTION_MAX: usize = 160;
const VALUE_MAX: usize = 80;
/// The most characters of a typed value.
const TEXT_MAX: usize = 20_000;

impl ContextForm {
    /// Shows the fields with what was typed. `base` has the values that apply where a field is left empty.
    pub(in super::super) fn show(
        &self,
        form: &Form,
        base: &JsonObject,
        typed: &TypedContext,
    ) -> Markup {
        html! {
            @if let Some(why) = &self.without { p.far { (why) } }
            @for part in &self.parts {
                @match part {
                    Part::Value(field) => { (field.show(form, base.get(&field.key), typed)) },
                    Part::Object { key, is_required, description, fields } => {
                        @let before: Option<JsonObject> = base.get(key).and_then(|text| serde_json::from_str(text.as_str()).ok());
                        fieldset {
                            legend { code { (line(key)) } @if *is_required { " required" } @if !description.is_empty() { ": " (short(description, DESCRIPTION_MAX)) } }
                            @for field in fields {
                                (field.show(form, before.as_ref().and_then(|before| before.get(&field.key)), typed))
                            }
                        }
                    }
                }
            }
            @if self.takes_more {
                @let fault = typed.faults.get(MORE);
                label {
                    @if self.parts.is_empty() { "Context, a JSON object " } @else { "Further values, a JSON object " }
                    textarea name=(MORE) rows=(if self.parts.is_empty() { "4" } else { "2" }) placeholder="{\"region\": \"eu\"}, or empty" maxlength=(TEXT_MAX) spellcheck="false" aria-invalid=[fault.map(|_| "true")] {
                        "\n" (printable_json(form.get(MORE)))
                    }
                    @if let Some(fault) = fault { span.bad-text { (line(fault)) } }
                }
            }
        }
    }
}

impl Field {
    fn show(&self, form: &Form, base: Option<&JsonText>, typed: &TypedContext) -> Markup {
        let (value, fault) = (form.get(&self.name), typed.faults.get(&self.name));
        let invalid = fault.map(|_| "true");
        // A value that is on record already, or that the package takes by itself, need not be typed.
        let is_needed = self.is_required && base.is_none();
        html! {
            label {
                span { code { (line(&self.key)) } @if is_needed { " required" } }
                @match &self.kind {
                    // A browser leaves out the first line break.
                    Kind::Text => { textarea name=(self.name) rows="1" maxlength=(TEXT_MAX) spellcheck="false" aria-invalid=[invalid] { "\n" (printable(value)) } },
                    Kind::Number { is_whole, .. } => { input name=(self.name) value=(line(value)) inputmode=(if *is_whole { "numeric" } else { "decimal" }) maxlength="400" autocomplete="off" aria-invalid=[invalid]; },
                    Kind::Flag => { (self.choice(value, invalid, &[("true".to_owned(), "yes".to_owned()), ("false".to_owned(), "no".to_owned())])) },
                    Kind::Choice(choices) => { (self.choice(value, invalid, &Vec::from_iter(choices.iter().map(option)))) },
                    Kind::Json => { textarea name=(self.name) rows="2" maxlength=(TEXT_MAX) spellcheck="false" aria-invalid=[invalid] { "\n" (printable_json(value)) } },
                }
                (self.help(base))
                @if let Some(fault) = fault { span.bad-text { (line(fault)) } }
            }
        }
    }

    fn choice(&self, value: &str, invalid: Option<&str>, options: &[(String, String)]) -> Markup {
        html! {
            select name=(self.name) aria-invalid=[invalid] {
                option value="" { "not set" }
                @for (json, label) in options { option value=(json) selected[json == value] { (label) } }
            }
        }
    }

    /// Says what the value is, and what applies without it.
    fn help(&self, base: Option<&JsonText>) -> Markup {
        let what = match &self.kind {
            Kind::Text | Kind::Flag | Kind::Choice(_) => String::new(),
            Kind::Json => "As JSON.".to_owned(),
            Kind::Number {
                is_whole,
                least,
                most,
            } => {
                let what = if *is_whole {
                    "A whole number"
                } else {
                    "A number"
                };
                match (least, most) {
                    (Some(least), Some(most)) => format!("{what} from {least} to {most}."),
                    (Some(least), None) => format!("{what}, {least} or more."),
                    (None, Some(most)) => format!("{what}, {most} or less."),
                    (None, None) => format!("{what}."),
                }
            }
        };
        let described = short(&self.description, DESCRIPTION_MAX);
        let description = match described.ends_with(['.', '…', '?', '!']) || described.is_empty()
        {
            true => described,
            false => described + ".",
        };
        let empty = match (base, &self.default) {
            (Some(base), _) => format!(
                "Left empty: {}, as its schedule has it.",
                short(base.as_str(), VALUE_MAX)
            ),
            (None, Some(default)) => format!("Left empty: {}.", short(default.as_str(), VALUE_MAX)),
            (None, None) => String::new(),
        };
        let parts = [description, what, empty];
        let parts = parts
            .iter()
            .map(String::as_str)
            .filter(|part| !part.is_empty());
        let help = Vec::from_iter(parts).join(" ");
        html! { @if !help.is_empty() { small { (help) } } }
    }
}

/// Returns the value of an option, and what it says.
fn option(choice: &JsonText) -> (String, String) {
    let json = printable_json(choice.as_str()).into_owned();
    let text = serde_json::from_str::<String>(choice.as_str()).ok();
    let label = text.filter(|text| !text.trim().is_empty());
    let label = label.map_or_else(|| json.clone(), |text| short(&text, VALUE_MAX));
    (json, label)
}
