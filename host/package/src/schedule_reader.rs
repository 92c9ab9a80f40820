//! Reading schedules: those of a sidecar, of the schedules file, and those that a package proposes.
//!
//! An unknown key is an error of the whole file, not of one schedule: without that schedule the file would end the
//! schedule that it means to change.

use std::collections::BTreeSet;

use super::context;
use super::names::{namespace_of_schedule_fault, schedule_name_fault};
use super::spec::{ScheduleDefinition, TIMEZONE_DEFAULT, name_all, only_rule};
use crate::toml_reader::{Document, Error, Section};
use campanile_model::json_text::{JsonObject, object_of};
use campanile_model::namespace::{Namespace, in_namespace_of};
use campanile_sandbox::Template;
use campanile_schedule::policy::{NUMBER_MAX, Policies, Policy, ValueKind};
use campanile_schedule::rule::{DayMatch, DstFold, DstGap, HashKey, Rule, RuleKind, RuleText};

/// Read the schedules file, whose content is `text`; errors name it `shown`.
///
/// # Errors
/// The first mistake, with its place. This does not check that the packages and tasks exist.
pub fn read_file(shown: &str, text: &str) -> Result<Vec<ScheduleDefinition>, Error> {
    let document = Document::parse(shown, text)?;
    let mut top = document.section();
    let sections = top.tables("schedules")?.unwrap_or_default();
    top.finish()?;
    let mut names = BTreeSet::new();
    let schedules = sections.into_iter().map(|mut section| {
        let package = section.text("package")?;
        let name = read_name(&mut section, &mut names, package.as_deref())?;
        let name = name.ok_or_else(|| {
            section.error_of_table(
                "needs `name`, which identifies the schedule in every later version of this file",
            )
        })?;
        let package = section.required(
            "package",
            "the name of a file in the plugins folder without .wasm",
        )?;
        read_checked(section, name, &package)
    });
    schedules.collect()
}

/// Read the `[[schedules]]` of the sidecar of `package`.
pub(super) fn read_sidecar(
    sections: Vec<Section<'_>>,
    package: &str,
) -> Result<Vec<ScheduleDefinition>, Error> {
    let mut names = BTreeSet::new();
    let schedules = sections.into_iter().map(|mut section| {
        let name = read_name(&mut section, &mut names, Some(package))?;
        read_checked(section, name.unwrap_or_default(), package)
    });
    let mut schedules: Vec<ScheduleDefinition> = schedules.collect::<Result<_, _>>()?;
    name_all(package, &mut schedules);
    Ok(schedules)
}

/// Read the name of a schedule of `package`, if it has one; `names` holds those of the file so far. A name without a namespace
/// gets that of the package.
pub(super) fn read_name(
    section: &mut Section<'_>,
    names: &mut BTreeSet<String>,
    package: Option<&str>,
) -> Result<Option<String>, Error> {
    let Some(name) = section.text("name")? else {
        return Ok(None);
    };
    if let Some(fault) = schedule_name_fault(&name) {
        return Err(section.error("name", format_args!("is {name:?}, which {fault}")));
    }
    let name = package.map_or_else(|| name.clone(), |package| named_for(package, &name));
    if let Some(fault) = package.and_then(|package| namespace_of_schedule_fault(&name, package)) {
        return Err(section.error("name", format_args!("is refused: {fault}")));
    }
    if !names.insert(name.clone()) {
        let what = format_args!("is \"{name}\", the name of another schedule: choose another name");
        return Err(section.error("name", what));
    }
    Ok(Some(name))
}

/// Returns the full name of a schedule of `package`, adding the package's namespace if `name` has none.
pub(super) fn named_for(package: &str, name: &str) -> String {
    match Namespace::of(name) {
        None => in_namespace_of(package, name),
        Some(_) => name.to_owned(),
    }
}

/// Read the rest of an operator's schedule, and check that its rule and policies can be used.
fn read_checked(
    mut section: Section<'_>,
    name: String,
    package: &str,
) -> Result<ScheduleDefinition, Error> {
    let args = section.list("args", |text| {
        Template::parse(text).map(|_| text.to_owned())
    })?;
    let schedule = ScheduleDefinition {
        args,
        enabled: section.boolean("enabled")?.unwrap_or(true),
        ..read(&mut section, name, package)?
    };
    let rule = check_rule(&section, &schedule.rule)?;
    schedule.policies.check(&rule).map_err(|error| {
        let what = format_args!("is refused: {error}; {}", error.hint());
        match error.policy() {
            Some(policy) => section.error(policy.as_str(), what),
            None => section.error_of_table(what),
        }
    })?;
    section.finish()?;
    Ok(schedule)
}

/// Read the rest of a schedule once its name is read. The rule is not parsed yet. Only an operator gives arguments.
pub(super) fn read(
    section: &mut Section<'_>,
    name: String,
    package: &str,
) -> Result<ScheduleDefinition, Error> {
    let task = section.text("task")?;
    let rule = read_rule(section)?;
    let policies = read_policies(section)?;
    let context = read_context(section)?;
    // Every key is read by now. A misspelt key may be the missing rule, and an error that names it helps more.
    let rule = rule.map_err(|what| {
        let misspelt = section.unknown_key();
        misspelt.unwrap_or_else(|| section.error_of_table(what))
    })?;
    Ok(ScheduleDefinition {
        name,
        package: package.to_owned(),
        task,
        rule,
        policies,
        args: None,
        context,
        enabled: true,
    })
}

/// Read the table `context`, empty when it is absent.
pub(super) fn read_context(section: &mut Section<'_>) -> Result<JsonObject, Error> {
    let context = object_of(&section.json("context")?);
    context::check(&context)
        .map_err(|reserved| section.error("context", format_args!("is refused: {reserved}")))?;
    Ok(context)
}

/// Read the rule; the inner error says that there is none, or several.
fn read_rule(section: &mut Section<'_>) -> Result<Result<RuleText, &'static str>, Error> {
    let mut rules = Vec::new();
    for &kind in RuleKind::ALL {
        let text = match kind {
            RuleKind::At => section.instant(kind.as_str())?.map(|at| at.to_string()),
            _ => section.text(kind.as_str())?,
        };
        rules.extend(text.map(|text| (kind, text)));
    }
    let timezone = section.text("timezone")?;
    let timezone = timezone.as_deref().unwrap_or(TIMEZONE_DEFAULT);
    let anchor = section.instant("anchor")?;
    let day_match = section.word("day_match", DayMatch::read)?;
    let dst_gap = section.word("dst_gap", DstGap::read)?;
    let dst_fold = section.word("dst_fold", DstFold::read)?;
    let exclude = section.texts("exclude")?.unwrap_or_default();
    let rule = only_rule(rules).map(|(kind, expression)| RuleText {
        anchor,
        day_match,
        dst_gap,
        dst_fold,
        exclude,
        ..RuleText::new(kind, expression, timezone)
    });
    Ok(rule)
}

/// Parse a rule; the error is placed at the key that causes it.
fn check_rule(section: &Section<'_>, text: &RuleText) -> Result<Rule, Error> {
    let parse = |text: &RuleText| Rule::parse(text, HashKey::NONE);
    let error = match parse(text) {
        Ok(rule) => return Ok(rule),
        Err(error) => error,
    };
    let in_utc = RuleText {
        timezone: TIMEZONE_DEFAULT.to_owned(),
        ..text.clone()
    };
    let alone = RuleText::new(text.kind, text.expression.clone(), TIMEZONE_DEFAULT);
    let what = match error.hint() {
        "" => format!("is refused: {error}"),
        hint => format!("is refused: {error}; {hint}"),
    };
    Err(match (parse(&in_utc), parse(&alone)) {
        (Ok(_), _) => section.error("timezone", what),
        (_, Err(_)) => section.error(text.kind.as_str(), what),
        // Another key is wrong, and the error names it.
        _ => section.error_of_table(what),
    })
}

/// Read the policies, each under its key.
fn read_policies(section: &mut Section<'_>) -> Result<Policies, Error> {
    let mut policies = Policies::default();
    for &policy in Policy::ALL {
        let key = policy.as_str();
        let text = match policy.spec().kind {
            ValueKind::Number(..) => {
                let number: Option<u64> = section.number(key, 0, NUMBER_MAX)?;
                number.map(|number| number.to_string())
            }
            ValueKind::Instant => section.instant(key)?.map(|instant| instant.to_string()),
            ValueKind::Coefficient => section.decimal(key)?.map(|number| number.to_string()),
            ValueKind::FailureKinds(_) | ValueKind::Labels => {
                section.texts(key)?.map(|items| items.join(","))
            }
            _ => section.text(key)?,
        };
        if let Some(text) = text {
            let set = policies.set(policy, &text);
            set.map_err(|what| section.error(key, what))?;
        }
    }
    Ok(policies)
}

#[cfg(test)]
mod tests;
