//! What was typed into the form of a new schedule.

use super::super::bodies;
use super::super::context_form::ContextForm;
use super::super::form::Form;
use crate::call::{Call, Result};
use crate::problem::ApiProblem;
use campanile_control::admin::schedule_admin::{self, ScheduleDefinition, ScheduleError};
use campanile_control::orders::definition::Definition;
use campanile_model::clock::Timestamp;
use campanile_model::json_text::{JsonObject, text_of};
use campanile_model::rule_text::RuleKind;
use campanile_model::time_text::TimeText;
use campanile_package::Manifest;
use campanile_package::spec::TIMEZONE_DEFAULT;
use campanile_schedule::policy::{Policy, ValueKind};
use campanile_schedule::rule::instant_in_zone;
use campanile_store::Tx;

/// What the form has to know of a package.
pub(super) struct Package {
    pub(super) name: String,
    /// The tasks, if there's more than one.
    pub(super) tasks: Vec<String>,
    pub(super) context: ContextForm,
}

impl Package {
    pub(super) async fn read(tx: &mut Tx, name: &str) -> Result<Package> {
        let row = schedule_admin::known_package(tx, name).await?;
        let tasks = Manifest::from_stored(&row.name, &row.manifest).tasks;
        let tasks = tasks.iter().map(|task| task.id.clone());
        Ok(Package {
            tasks: Some(Vec::from_iter(tasks))
                .filter(|tasks| tasks.len() > 1)
                .unwrap_or_default(),
            context: ContextForm::of_manifest(&row.manifest),
            name: row.name,
        })
    }
}

/// Returns the form as [`bodies::definition`] reads it.
pub(in super::super) async fn prepared(call: &Call, form: &Form) -> Result<Form> {
    let mut tx = call.read().await?;
    let package = Package::read(&mut tx, form.get("package").trim()).await?;
    drop(tx);
    let mut fields = with_instants(form, call.now())?;
    check_name(form)?;
    let context = package.context.read(form, &JsonObject::new()).checked()?;
    fields.push(("context".to_owned(), text_of(&context)));
    Ok(Form::of(fields))
}

pub(super) fn check_name(form: &Form) -> Result<()> {
    if form.given("name").is_some() {
        return Ok(());
    }
    Err(ApiProblem::invalid("the schedule has no name").hint("type one, such as `nightly-report`"))
}

/// Returns the fields of a form apart from the context, with its policies as lines and its times as instants: those without an offset are
/// on the clock of the rule's zone, as on the command line.
pub(super) fn with_instants(form: &Form, now: Timestamp) -> Result<Vec<(String, String)>> {
    let zone = form.given("timezone").unwrap_or(TIMEZONE_DEFAULT);
    let instant = |what: &str, text: &str| {
        let time = text.parse::<TimeText>().map_err(|error| {
            ApiProblem::invalid(format!("`{what}`: {error}")).hint(TimeText::HINT)
        })?;
        let instant = instant_in_zone(time, zone, now).map_err(ScheduleError::from)?;
        Ok::<_, ApiProblem>(instant.to_string())
    };
    let taken = [
        "name",
        "package",
        "task",
        "kind",
        "timezone",
        "day_match",
        "dst_gap",
        "dst_fold",
        "exclude",
        "args",
        "disabled",
    ];
    let taken = taken
        .iter()
        .map(|name| ((*name).to_owned(), form.get(name).to_owned()));
    let mut fields = Vec::from_iter(taken);
    let Some(expression) = form.given("expression") else {
        let problem = ApiProblem::invalid("the schedule has no rule");
        return Err(problem.hint(
            "type one, such as `30 2 * * *` for a cron expression, or `10m` for every ten minutes",
        ));
    };
    let expression = match form.given("kind") == Some(RuleKind::At.as_str()) {
        true => instant("expression", expression)?,
        false => expression.to_owned(),
    };
    fields.push(("expression".to_owned(), expression));
    if let Some(anchor) = form.given("anchor") {
        fields.push(("anchor".to_owned(), instant("anchor", anchor)?));
    }
    let mut policies = String::new();
    for policy in Policy::ALL {
        let Some(text) = form.given(&field_of(*policy)) else {
            continue;
        };
        let text = match policy.spec().kind {
            ValueKind::Instant => instant(policy.as_str(), text)?,
            _ => text.replace('\n', " "),
        };
        policies += &format!("{policy} = {text}\n");
    }
    fields.push(("policies".to_owned(), policies));
    Ok(fields)
}

/// Returns the name of the field of a policy.
pub(super) fn field_of(policy: Policy) -> String {
    format!("policy.{policy}")
}

/// Returns the definition in the fields that [`bodies::definition`] reads.
pub(super) fn definition(fields: Vec<(String, String)>) -> Result<ScheduleDefinition> {
    let body = bodies::definition(&Form::of(fields))?;
    let mut body: JsonObject = serde_json::from_str(body.as_str())
        .map_err(|error| ApiProblem::invalid(format!("the form: {error}")))?;
    // What a person hasn't typed yet keeps no rule from being shown.
    let name = serde_json::Value::from("");
    body.entry("name".to_owned()).or_insert_with(|| name.into());
    let definition: Definition = serde_json::from_str(&text_of(&body))
        .map_err(|error| ApiProblem::invalid(format!("the form: {error}")))?;
    Ok(ScheduleDefinition::from(definition))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[(&str, &str)]) -> Form {
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Form::of(fields.collect())
    }

    #[test]
    fn times_are_on_the_clock_of_the_rules_zone() {
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        let typed = form(&[
            ("kind", "at"),
            ("expression", "tomorrow 9:00"),
            ("timezone", "Europe/Paris"),
            ("policy.end_at", "2026-12-24"),
            ("policy.jitter", "30s"),
        ]);
        let fields = Form::of(with_instants(&typed, now).unwrap());
        assert_eq!(fields.get("expression"), "2026-11-22T08:00:00Z");
        assert_eq!(
            fields.get("policies"),
            "jitter = 30s\nend_at = 2026-12-23T23:00:00Z\n"
        );
        for (name, value) in [
            ("expression", "noon"),
            ("timezone", "Mars/Base"),
            ("expression", " "),
        ] {
            let mut fields = typed.fields().to_vec();
            fields.retain(|(other, _)| other != name);
            fields.push((name.to_owned(), value.to_owned()));
            assert!(
                with_instants(&Form::of(fields), now).is_err(),
                "{name} {value}"
            );
        }
    }
}
