//! Parts that several pages have: badges, forms, commands, links to further entries.

use maud::{Markup, html};
use schemars::JsonSchema;
use serde::Deserialize;

use super::actions::{ACTION, KEY, refusal, shows_answer};
use super::form::Form;
use super::words::line;
use super::{Visit, charts, links};
use crate::call::Result;
use crate::problem::ApiProblem;
use campanile_control::bounds::Note;

/// A search in a list of names.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Search {
    pub after: Option<String>,
    pub q: Option<String>,
    pub state: Option<String>,
}

/// Shows a word such as a status. Its colour and its shape repeat the word.
pub(super) fn badge(word: &str) -> Markup {
    badge_of(charts::class(word), word)
}

/// Shows words in the colour and the shape of a class.
pub(super) fn badge_of(class: &str, words: &str) -> Markup {
    html! { span class={ "badge " (class) } { (line(words)) } }
}

/// Returns fields as a form has them.
fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
    let fields = fields.iter();
    let fields = fields.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    fields.collect()
}

/// A form of one button, which does something on another page.
pub(super) fn button(
    visit: &Visit,
    page: &str,
    action: &str,
    label: &str,
    hidden: &[(&str, &str)],
) -> Markup {
    if refusal(&visit.call, action).is_some() {
        return html! {};
    }
    html! {
        form.inline-form method="post" action=(page) {
            input type="hidden" name=(KEY) value=(idempotency_key());
            (Form::hidden(owned(hidden).iter()))
            button.small name=(ACTION) value=(action) { (label) }
        }
    }
}

/// Show the command that does the same, or shows the same.
pub(super) fn command(text: &str) -> Markup {
    html! { p.command { "Command: " code { (line(text)) } } }
}

/// Say that there is nothing to show, and what to do next.
pub(super) fn empty(what: &str, next: Markup) -> Markup {
    html! { div.empty { p { strong { (what) } } p { (next) } } }
}

/// Returns a key for running a form sent twice only once.
pub(super) fn idempotency_key() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// A form that does something.
pub(super) struct ActionForm<'a> {
    /// The name of the action.
    pub action: &'a str,
    /// The text of the button.
    pub label: &'a str,
    /// Fields that the operator does not see.
    pub hidden: &'a [(&'a str, &'a str)],
    pub fields: Markup,
    /// The command that does the same.
    pub command: String,
}

impl ActionForm<'_> {
    /// Show the form; or who may do the action, when the visitor may not.
    pub(super) fn show(self, visit: &Visit) -> Markup {
        if let Some(refusal) = refusal(&visit.call, self.action) {
            return html! {
                div.action {
                    p { strong { (self.label) } ": " (line(&refusal)) "." }
                    (command(&self.command))
                }
            };
        }
        html! {
            form.action method="post" action=(visit.call.uri) {
                @if !shows_answer(self.action) { input type="hidden" name=(KEY) value=(idempotency_key()); }
                (Form::hidden(owned(self.hidden).iter()))
                (self.fields)
                button name=(ACTION) value=(self.action) { (self.label) }
                (command(&self.command))
            }
        }
    }
}

/// Show a field for a text. It keeps what was typed when the form was not done.
pub(super) fn field(visit: &Visit, name: &str, label: &str, example: &str) -> Markup {
    html! {
        label {
            (label) " "
            input name=(name) value=(line(visit.typed.get(name))) placeholder=(example) maxlength=(Note::CHARS_MAX) autocomplete="off";
        }
    }
}

/// Returns a value of the query, or of the form that was not done; empty for none.
pub(super) fn given<'v>(visit: &'v Visit, name: &str) -> &'v str {
    let query = visit.call.query.text(name);
    query
        .or_else(|| visit.typed.given(name))
        .unwrap_or_default()
}

/// Returns the value of a parameter, the first of `all` if it's left out.
pub(super) fn one_of(
    name: &str,
    value: Option<&str>,
    all: &[&'static str],
) -> Result<&'static str> {
    let value = value.unwrap_or(all.first().copied().unwrap_or_default());
    let found = all.iter().find(|one| **one == value);
    found.copied().ok_or_else(|| {
        ApiProblem::invalid(format!(
            "`{name}` is {value:?}, and can be {}",
            all.join(", ")
        ))
    })
}

/// Show a field of a filter.
pub(super) fn filter(visit: &Visit, name: &str, label: &str, example: &str) -> Markup {
    let value = given(visit, name);
    html! {
        label {
            (label) " "
            input type="search" name=(name) value=(line(value)) placeholder=(example) maxlength="500";
        }
    }
}

/// Show a choice of a filter among words; the first means all.
pub(super) fn choice(visit: &Visit, name: &str, label: &str, words: &[&str]) -> Markup {
    let value = given(visit, name);
    html! {
        label {
            (label) " "
            select name=(name) {
                option value="" { "all" }
                @for word in words {
                    option value=(word) selected[*word == value] { (word) }
                }
            }
        }
    }
}

/// Link to the next page of a list. `after` is the key of the last entry of this one.
pub(super) fn next_page(visit: &Visit, after: Option<&str>) -> Markup {
    let first = visit.call.query.text("after").map(|_| {
        let query = visit.call.query.next_page("");
        let others = query.split('&').filter(|part| !part.starts_with("after="));
        let others = Vec::from_iter(others).join("&");
        if others.is_empty() {
            visit.call.uri.clone()
        } else {
            format!("{}?{others}", visit.call.uri)
        }
    });
    let next =
        after.map(|after| format!("{}?{}", visit.call.uri, visit.call.query.next_page(after)));
    html! {
        @if first.is_some() || next.is_some() {
            nav.pager aria-label="Pages of the list" {
                @if let Some(first) = first { a href=(first) { "First page" } " " }
                @if let Some(next) = next { a href=(next) rel="next" { "Next page" } }
            }
        }
    }
}

/// Link to the launches of a filter.
pub(super) fn launches_where(parameters: &[(&str, &str)]) -> String {
    format!("/launches{}", links::query(parameters))
}
