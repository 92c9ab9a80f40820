//! The form that changes the definition of a schedule, with what the change would do.

use std::borrow::Cow;

use maud::{Markup, html};

use super::actions::{ACTION, KEY, PREVIEW, REVISION, refusal};
use super::form::Form;
use super::parts::{command, idempotency_key};
use super::words::{Clock, line, moment, shell, zoned};
use super::{View, Visit, bodies, links};
use crate::call::Result;
use crate::problem::ApiProblem;
use campanile_control::admin::schedule_admin::{self, Difference, ScheduleDefinition, differences};
use campanile_control::orders::definition::Definition;
use campanile_control::problem::{ErrorCode, Problem};
use campanile_control::records::schedule::{Redefinition, RulePreview, SLOTS_PREVIEWED};
use campanile_control::schedules::definition;
use campanile_model::json_text::{JsonObject, text_of};
use campanile_model::rule_text::{DayMatch, DstFold, DstGap, RuleKind};
use campanile_model::text::{printable, printable_json};
use campanile_store::schedules::Schedule;

/// The fields with JSON.
const JSON: [&str; 2] = ["context", "args"];
/// The most characters of a context, policies or excluded times that a field takes.
const TEXT_MAX: usize = 20_000;

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let (clock, name) = (visit.clock(), call.name("name"));
    let mut tx = call.read().await?;
    let row = schedule_admin::find(&mut tx, name).await?;
    let current = definition::read(&row.definition).map_err(unreadable)?;
    let is_typed = !visit.typed.is_empty();
    let form = if is_typed {
        Form::of(visit.typed.fields().to_vec())
    } else {
        Form::of(bodies::fields(&Definition::from(current.clone())))
    };
    let wanted = typed(&form, name);
    let preview = match (&wanted, is_typed) {
        (Ok(wanted), true) => Some(check(visit, &mut tx, &row, wanted, clock).await?),
        _ => None,
    };
    drop(tx);
    let is_outdated = visit
        .problem
        .as_ref()
        .is_some_and(|problem| problem.revision.is_some());
    // What the operator has seen: the present revision, once a conflict with it was shown.
    let revision = match form.given(REVISION) {
        Some(seen) if !is_outdated => seen.to_owned(),
        _ => row.state.revision.to_string(),
    };
    let is_saving = visit.problem.is_some();
    View::new(
        format!("Edit {name}"),
        html! {
            p { "The schedule " (links::schedule(name)) ", revision " (row.state.revision) ", changed " (moment(row.state.updated_at, clock)) "." }
            @if let (true, Ok(wanted)) = (is_outdated, &wanted) { (side_by_side(&differences(&current, wanted))) }
            @match (&wanted, &preview) {
                // The problem of a save that was refused is shown already.
                (Err(error), _) if is_typed && !is_saving => (super::layout::problem_part(&error.problem)),
                (_, Some(Err(error))) if !is_saving => (super::layout::problem_part(&error.problem)),
                _ => {}
            }
            div #preview { @if let Some(Ok(preview)) = &preview { (preview_part(preview, clock)) } }
            (form_part(visit, &form, &revision))
        },
    )
}

fn unreadable(why: String) -> ApiProblem {
    let problem = Problem::new(
        ErrorCode::Refused,
        format!("this version cannot read the definition: {why}"),
    );
    problem
        .hint("edit it on a host of the version that stored it")
        .into()
}

/// Returns the definition that a form has.
fn typed(form: &Form, name: &str) -> Result<ScheduleDefinition> {
    let body = bodies::definition(form)?;
    let body = serde_json::from_str(body.as_str()).and_then(|mut body: JsonObject| {
        body.insert("name".to_owned(), serde_json::Value::from(name).into());
        serde_json::from_str::<Definition>(&text_of(&body))
    });
    let body = body.map_err(|error| ApiProblem::invalid(format!("the form: {error}")))?;
    Ok(ScheduleDefinition::from(body))
}

/// Returns what a definition would do, or why it is refused.
async fn check(
    visit: &Visit,
    tx: &mut campanile_store::Tx,
    row: &Schedule,
    wanted: &ScheduleDefinition,
    clock: Clock,
) -> Result<Result<Redefinition>> {
    if let Err(refused) = visit.call.desk().check_group(&wanted.policies) {
        return Ok(Err(refused.into()));
    }
    match Redefinition::read(tx, row, wanted, clock.now).await {
        Ok(preview) => Ok(Ok(preview)),
        Err(schedule_admin::ScheduleError::Db(error)) => Err(error.into()),
        Err(refused) => Ok(Err(refused.into())),
    }
}

/// Show two versions of a definition, line by line.
fn side_by_side(lines: &[Difference]) -> Markup {
    let value = |text: &Option<String>| match text {
        Some(text) => html! { code { (line(text)) } },
        None => html! { span.far { "not set" } },
    };
    html! {
        section aria-labelledby="versions" {
            h2 #versions { "Your version, and the one on record now" }
            @if lines.is_empty() {
                p { "Both are the same: another person has made your change." }
            } @else {
                div.wide tabindex="0" {
                    table {
                        thead { tr { th scope="col" { "Part" } th scope="col" { "On record now" } th scope="col" { "Your version" } } }
                        tbody {
                            @for one in lines { tr { th scope="row" { (one.key) } td { (value(&one.before)) } td { (value(&one.after)) } } }
                        }
                    }
                }
                p { "What you typed is still in the form. Correct it, then save it over the version on record." }
            }
        }
    }
}

fn preview_part(preview: &Redefinition, clock: Clock) -> Markup {
    let value = |text: &Option<String>| line(text.as_deref().unwrap_or("not set"));
    html! {
        section aria-labelledby="preview-title" {
            h2 #preview-title { "With this change" }
            (rule_words(&preview.rule))
            @if preview.differences.is_empty() {
                p { "Nothing is different from the version on record." }
            } @else {
                ul { @for one in &preview.differences { li { strong { (one.key) } ": " (value(&one.before)) " → " (value(&one.after)) } } }
            }
            (next_slots(&preview.rule, preview.is_paused, clock))
        }
    }
}

/// Shows a rule in words, with what's to be said about it.
pub(super) fn rule_words(rule: &RulePreview) -> Markup {
    html! {
        p { (line(&rule.explanation)) }
        @for note in &rule.notes { p { "Note: " (line(note)) } }
        @for warning in &rule.warnings { p.warning { "Warning: " (line(&warning.message)) "; " (line(&warning.hint)) "." } }
    }
}

/// Shows the next slots of a rule, or when it launches without any.
pub(super) fn next_slots(rule: &RulePreview, is_paused: bool, clock: Clock) -> Markup {
    html! {
        @match (&rule.without_slots, rule.slots.is_empty()) {
            (Some(text), _) => p { (line(text)) "." },
            (None, true) => p.warning { "It has no next slot." },
            (None, false) => {
                p { "The next " (SLOTS_PREVIEWED) " slots" @if is_paused { ", once it is resumed" } ":" }
                ol { @for (slot, local) in &rule.slots { li { (moment(*slot, clock)) " " span.local { (zoned(local)) } } } }
            }
        }
    }
}

/// Returns what a field has, with its hostile characters written out: those of JSON as JSON does.
fn shown<'f>(form: &'f Form, name: &str) -> Cow<'f, str> {
    if JSON.contains(&name) {
        printable_json(form.get(name))
    } else {
        printable(form.get(name))
    }
}

/// Show a field for one line.
pub(super) fn input(form: &Form, name: &str, label: &str, example: &str) -> Markup {
    html! {
        label {
            (label) " "
            input name=(name) value=(shown(form, name)) placeholder=(example) maxlength="1000" autocomplete="off";
        }
    }
}

/// Show a field for several lines.
pub(super) fn lines(form: &Form, name: &str, label: &str, example: &str) -> Markup {
    html! {
        label {
            (label) " "
            // A browser leaves out the first line break.
            textarea name=(name) rows="4" placeholder=(example) maxlength=(TEXT_MAX) spellcheck="false" { "\n" (shown(form, name)) }
        }
    }
}

/// Show a choice among words.
pub(super) fn choice(form: &Form, name: &str, label: &str, words: &[&str]) -> Markup {
    html! {
        label {
            (label) " "
            select name=(name) { @for word in words { option value=(word) selected[*word == form.get(name)] { (word) } } }
        }
    }
}

fn form_part(visit: &Visit, form: &Form, revision: &str) -> Markup {
    let same = format!("campanile schedule edit {}", shell(visit.call.name("name")));
    if let Some(refusal) = refusal(&visit.call, "edit") {
        return html! { p { strong { "Edit" } ": " (line(&refusal)) "." } (command(&same)) };
    }
    html! {
        form.action.edit method="post" action=(visit.call.uri) data-preview="preview" {
            input type="hidden" name=(KEY) value=(idempotency_key());
            input type="hidden" name=(REVISION) value=(revision);
            input type="hidden" name="name" value=(visit.call.name("name"));
            (choice(form, "kind", "Kind of rule", RuleKind::WORDS))
            (input(form, "expression", "Rule", "0 2 * * *"))
            (input(form, "timezone", "Time zone", "UTC"))
            (input(form, "package", "Package", "backup"))
            (input(form, "task", "Task and those it depends on", "empty for all tasks"))
            (lines(form, "exclude", "Excluded local times, one a line", "12-25"))
            (lines(form, "policies", "Policies, one a line", "overlap = skip"))
            (lines(form, "context", "Context of the tasks, JSON", "{\"region\": \"eu\"}"))
            (input(form, "args", "Arguments of a program, JSON", "[\"--all\"], or empty for those of the sidecar"))
            details {
                summary { "Anchor, and changes of the clock" }
                (input(form, "anchor", "Anchor of an interval", "2026-11-21T08:00, or empty"))
                (choice(form, "day_match", "When both day fields are given", DayMatch::WORDS))
                (choice(form, "dst_gap", "A local time that the clock leaves out", DstGap::WORDS))
                (choice(form, "dst_fold", "A local time that comes twice", DstFold::WORDS))
            }
            p {
                button name=(ACTION) value=(PREVIEW) { "Preview" } " "
                button name=(ACTION) value="edit" { "Save" }
                " " a href=(links::path(&["schedules", visit.call.name("name")])) { "Leave it as it is" }
            }
            (command(&same))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_characters_of_a_context_stay_json() {
        let context = "{\n  \"a\": \"x\u{202e}y\"\n}";
        let form = Form::of(vec![
            ("context".to_owned(), context.to_owned()),
            ("exclude".to_owned(), "12-25\n\u{202e}".to_owned()),
        ]);
        assert_eq!(shown(&form, "context"), "{\n  \"a\": \"x\\u202ey\"\n}");
        let read: serde_json::Value = serde_json::from_str(&shown(&form, "context")).unwrap();
        assert_eq!(read["a"], "x\u{202e}y");
        assert_eq!(shown(&form, "exclude"), "12-25\n\\u{202e}");
    }
}
