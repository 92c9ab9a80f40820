//! The bodies that forms send to routes of the API.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde_json::{Value, json};

use super::form::Form;
use crate::call::Result;
use crate::problem::ApiProblem;
use crate::query::Query;
use campanile_control::orders::bulk_launches::CountLaunches;
use campanile_control::orders::definition::Definition;
use campanile_model::json_text::{JsonText, object_text};
use campanile_model::text::counted;
use campanile_model::time_text::GivenTime;
use campanile_schedule::policy::{Policies, Policy};

/// The field with the number of things that an operator confirms.
pub(super) const COUNT: &str = "count";

/// The field with the ids of launches, which a form has once for each ticked row.
pub(super) const IDS: &str = "ids";
/// The field of a form whose rows are ticked: without a ticked row it means nothing, and not everything.
pub(super) const TICKED: &str = "ticked";

/// Returns the fields of a JSON object with a value.
fn object<const N: usize>(fields: [(&str, Option<JsonText>); N]) -> Result<JsonText> {
    let fields = fields.iter();
    let given = fields.filter_map(|(name, value)| Some((*name, value.as_ref()?.as_str())));
    Ok(JsonText::of_checked(object_text(given)))
}

/// Returns the fields of a form that double as fields of `O`, along with `more`.
pub(super) fn with<O: JsonSchema + 'static>(form: &Form, more: &Value) -> Result<JsonText> {
    let mut fields = Query::of_form::<O>(|name| form.given(name)).fields::<O>()?;
    fields.extend(more.as_object().cloned().unwrap_or_default());
    Ok(Value::Object(fields).into())
}

/// Returns the question how many things a form would change, from the fields that double as fields of `Q`.
pub(super) fn count_query<Q: JsonSchema + 'static>(form: &Form, change: &str) -> Result<Query> {
    let ids = Vec::from_iter(form.all(IDS)).join(",");
    if ids.is_empty() && form.given(TICKED).is_some() {
        let problem = ApiProblem::invalid("no row is ticked");
        return Err(problem.hint("tick the launches that you mean, or choose all that match"));
    }
    Ok(Query::of_form::<Q>(|name| match name {
        "change" => Some(change),
        IDS => Some(ids.as_str()).filter(|ids| !ids.is_empty()),
        _ => form.given(name),
    }))
}

/// Returns the change of many launches, as they were counted.
pub(super) fn launches_change(form: &Form, change: &str) -> Result<JsonText> {
    let of = count_query::<CountLaunches>(form, change)?;
    let count = form.get(COUNT).parse::<u64>();
    let count = count.map_err(|error| ApiProblem::invalid(format!("`{COUNT}`: {error}")))?;
    Ok(json!({"of": of.fields::<CountLaunches>()?, "count": count}).into())
}

/// Returns the question before a change of many launches, from their count.
pub(super) fn many_launches(answer: &Value, change: &str, effect: &str) -> String {
    let count = answer[COUNT].as_u64().unwrap_or_default();
    let names = answer["schedules"].as_array().into_iter().flatten();
    let names = Vec::from_iter(names.filter_map(Value::as_str)).join(", ");
    let more = answer["is_complete"].as_bool() == Some(false);
    let more = if more { " and others" } else { "" };
    let statuses = answer["statuses"].as_object().into_iter().flatten();
    let statuses = statuses.map(|(status, count)| format!("{count} {status}"));
    let statuses = Vec::from_iter(statuses).join(", ");
    let left_out = match answer["left_out"].as_u64().unwrap_or_default() {
        0 => String::new(),
        left_out => format!(" {left_out} of those ticked are left out."),
    };
    format!(
        "{change} {} ({statuses}) of {names}{more}.{left_out} {effect}",
        counted(count, "launch")
    )
}

fn text(form: &Form, name: &str) -> Option<JsonText> {
    form.given(name).map(quoted)
}

fn quoted(text: &str) -> JsonText {
    JsonText::from(Value::from(text))
}

pub(super) fn many(answer: &Value, change: &str, effect: &str) -> String {
    let names = answer["names"].as_array().into_iter().flatten();
    let names = Vec::from_iter(names.filter_map(Value::as_str)).join(", ");
    let count = answer[COUNT].as_u64().unwrap_or_default();
    let more = answer["is_complete"].as_bool() == Some(false);
    let more = if more { " and others" } else { "" };
    format!(
        "{change} {}: {names}{more}. {effect}",
        counted(count, "schedule")
    )
}

/// Returns the definition of a schedule that a form has.
///
/// Its policies are lines such as `overlap = skip`, its excluded times are lines, and its context and arguments are JSON. Only the form
/// of a new schedule has `disabled`.
pub(super) fn definition(form: &Form) -> Result<JsonText> {
    let lines = |name: &str| {
        let lines = form.get(name).lines().map(str::trim);
        Vec::from_iter(lines.filter(|line| !line.is_empty()).map(str::to_owned))
    };
    let mut policies = Policies::default();
    let mut set = BTreeSet::new();
    for line in lines("policies") {
        let wrong = |what: String| ApiProblem::invalid(format!("`policies`: {what}"));
        let Some((name, value)) = line.split_once('=') else {
            let problem = wrong(format!("the line `{line}` has no `=`"));
            return Err(problem.hint("write one policy a line, such as `overlap = skip`"));
        };
        let policy = name.trim().parse::<Policy>();
        let policy = policy.map_err(|error| wrong(error.to_string()))?;
        if !set.insert(policy.as_str()) {
            return Err(wrong(format!("`{policy}` is set twice")));
        }
        let fault = policies.set(policy, value.trim());
        fault.map_err(|fault| wrong(format!("`{policy}` {fault}")))?;
    }
    let anchor = form.given("anchor").map(str::parse::<GivenTime>);
    let anchor = anchor
        .transpose()
        .map_err(|error| ApiProblem::invalid(format!("`anchor`: {error}")))?;
    let anchor = anchor.map(|anchor| quoted(&anchor.to_string()));
    object([
        ("name", text(form, "name")),
        ("package", Some(quoted(form.get("package").trim()))),
        ("task", text(form, "task")),
        ("kind", text(form, "kind")),
        ("expression", Some(quoted(form.get("expression").trim()))),
        ("anchor", anchor),
        ("timezone", text(form, "timezone")),
        ("day_match", text(form, "day_match")),
        ("dst_gap", text(form, "dst_gap")),
        ("dst_fold", text(form, "dst_fold")),
        ("exclude", Some(json!(lines("exclude")).into())),
        ("policies", Some(json!(policies).into())),
        ("args", args(form)?),
        ("context", context(form)?),
        (
            "disabled",
            form.given("disabled").map(|_| json!(true).into()),
        ),
    ])
}

/// Returns a launch by hand that a form has, with a context and an overlap policy of its own.
pub(super) fn trigger(form: &Form) -> Result<JsonText> {
    object([
        ("context", context(form)?),
        ("args", args(form)?),
        ("overlap", text(form, "overlap")),
    ])
}

fn context(form: &Form) -> Result<Option<JsonText>> {
    json_field(form, "context", r#"{"region": "eu"}"#)
}

fn args(form: &Form) -> Result<Option<JsonText>> {
    json_field(form, "args", r#"["--all"]"#)
}

/// Returns the JSON in a field.
fn json_field(form: &Form, name: &str, example: &str) -> Result<Option<JsonText>> {
    let given = form.given(name).map(serde_json::from_str::<JsonText>);
    given.transpose().map_err(|error| {
        let problem = ApiProblem::invalid(format!("`{name}` is no JSON: {error}"));
        problem.hint(format!("write it as in {example}, or leave it empty"))
    })
}

/// Returns the fields of a form with the definition `of`, as [`definition`] reads them.
pub(super) fn fields(of: &Definition) -> Vec<(String, String)> {
    let policies = of.policies.entries();
    let policies = policies.map(|(policy, text)| format!("{policy} = {text}"));
    let policies = Vec::from_iter(policies).join("\n");
    let context = (!of.context.is_empty()).then(|| serde_json::to_string_pretty(&of.context));
    let context = context.and_then(Result::ok);
    let args = of.args.as_ref().map(|args| json!(args).to_string());
    let anchor = of.anchor.map(|anchor| anchor.to_string());
    let fields = [
        ("name", of.name.clone()),
        ("package", of.package.clone()),
        ("task", of.task.clone().unwrap_or_default()),
        ("kind", of.kind.to_string()),
        ("expression", of.expression.clone()),
        ("anchor", anchor.unwrap_or_default()),
        ("timezone", of.timezone.clone()),
        ("day_match", of.day_match.to_string()),
        ("dst_gap", of.dst_gap.to_string()),
        ("dst_fold", of.dst_fold.to_string()),
        ("exclude", of.exclude.join("\n")),
        ("policies", policies),
        ("args", args.unwrap_or_default()),
        ("context", context.unwrap_or_default()),
    ];
    Vec::from_iter(fields.map(|(name, value)| (name.to_owned(), value)))
}

/// Returns the question before a backfill, from its preview.
pub(super) fn backfill_question(preview: &Value) -> String {
    let number = |key: &str| preview[key].as_u64().unwrap_or_default();
    let (slots, skipped, removed) = (
        number("slots"),
        number("slots_skipped"),
        number("slots_removed"),
    );
    let text = |key: &str| preview[key].as_str().unwrap_or_default().to_owned();
    let launched = slots.saturating_sub(skipped);
    let left_out = match skipped {
        0 => String::new(),
        _ => format!(
            " {} not launched again, because they have succeeded, are unfinished, or were skipped by a person.",
            counted_are(skipped)
        ),
    };
    let removed = match removed {
        0 => String::new(),
        _ => format!(
            " Of {} of them it is not known whether they succeeded: retention has removed their launches.",
            counted(removed, "slot")
        ),
    };
    format!(
        "Launch {} of {}, from {} to {}.{left_out}{removed}",
        counted(launched, "slot"),
        text("schedule"),
        text("first"),
        text("last")
    )
}

fn counted_are(count: u64) -> String {
    let verb = if count == 1 { "is" } else { "are" };
    format!("{} {verb}", counted(count, "slot"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_definition_says_the_same() {
        let definition = json!({
            "name": "a", "package": "p", "task": "t", "kind": "cron", "expression": "0 2 * * *",
            "anchor": null, "timezone": "Europe/Paris", "day_match": "and", "dst_gap": "skip", "dst_fold": "both",
            "exclude": ["12-25", "01-01"], "policies": {"jitter": "1m", "priority": 7}, "args": ["-v", "a b"],
            "context": {"a": {"b": [1, "x=y"]}}, "disabled": false,
        });
        let read: Definition = serde_json::from_value(definition.clone()).unwrap();
        let form = Form::of(fields(&read));
        let mut again = self::definition(&form).unwrap().value();
        again["anchor"] = Value::Null;
        again["disabled"] = json!(false);
        let again: Definition = serde_json::from_value(again).unwrap();
        assert_eq!(
            serde_json::to_value(&again).unwrap(),
            serde_json::to_value(&read).unwrap()
        );
    }

    #[test]
    fn a_wrong_definition_says_where_it_is_wrong() {
        for (name, value, part) in [
            (
                "policies",
                "overlap",
                "`policies`: the line `overlap` has no `=`",
            ),
            ("policies", "overlap = never", "`overlap`"),
            ("policies", "overlop = skip", "overlop"),
            (
                "policies",
                "jitter = 1m\njitter = 2m",
                "`jitter` is set twice",
            ),
            ("context", "{", "`context` is no JSON"),
            ("args", "-v", "`args` is no JSON"),
        ] {
            let form = Form::of(vec![(name.to_owned(), value.to_owned())]);
            let error = definition(&form).unwrap_err().problem;
            assert!(error.message.contains(part), "{error}");
        }
    }
}
