//! Schedules that an operator orders in TOML: those of a sidecar, and those of the schedules file.
//!
//! What is not understood is a mistake in the file, not in one of its schedules: taken without that one, the file
//! would end the schedule that it means to change.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::context;
use super::spec::{ScheduleSpec, TIMEZONE_DEFAULT, only_rule, schedule_name_fault};
use crate::toml_reader::{Document, Error, Section};
use campanile_schedule::policy::{NUMBER_MOST, Policies, Policy, Shape};
use campanile_schedule::rule::{DayMatch, DstFold, DstGap, HashKey, Rule, RuleKind, RuleText};

/// A larger schedules file is refused without being read.
pub const FILE_BYTES_MAX: u64 = 4 << 20;

/// A schedule of the schedules file.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSchedule {
    pub name: String,
    pub package: String,
    /// Its own name is that above.
    pub spec: ScheduleSpec,
}

/// Read the schedules file, whose content is `text`; errors call it `shown`.
///
/// # Errors
/// The first thing that is wrong in it, with its line. Whether packages and tasks are there is not looked at.
pub fn read_file(shown: &str, text: &str) -> Result<Vec<FileSchedule>, Error> {
    let document = Document::parse(shown, text)?;
    let mut top = document.section();
    let sections = top.tables("schedules")?.unwrap_or_default();
    top.finish()?;
    let mut all = Vec::with_capacity(sections.len());
    let mut names = BTreeSet::new();
    for mut section in sections {
        let Some(name) = name(&mut section, &mut names)? else {
            return Err(section.error_of_table("needs `name`, by which it is known from now on"));
        };
        let Some(package) = section.text("package")? else {
            let what = "needs `package`, the name of a file of the plugin folder without .wasm";
            return Err(section.error_of_table(what));
        };
        all.push(FileSchedule {
            spec: spec(section, Some(name.clone()))?,
            name,
            package,
        });
    }
    Ok(all)
}

/// Read the `[[schedules]]` of a sidecar.
pub(super) fn of_sidecar(sections: Vec<Section<'_>>) -> Result<Vec<ScheduleSpec>, Error> {
    let mut specs = Vec::with_capacity(sections.len());
    let mut names = BTreeSet::new();
    for mut section in sections {
        let name = name(&mut section, &mut names)?;
        specs.push(spec(section, name)?);
    }
    Ok(specs)
}

/// The name of a schedule, if it has one; no other of the file may have had it.
fn name(section: &mut Section<'_>, names: &mut BTreeSet<String>) -> Result<Option<String>, Error> {
    let Some(name) = section.text("name")? else {
        return Ok(None);
    };
    if let Some(fault) = schedule_name_fault(&name) {
        return Err(section.error("name", fault));
    }
    if !names.insert(name.clone()) {
        return Err(section.error(
            "name",
            format_args!("is \"{name}\", as another schedule of this file already is"),
        ));
    }
    Ok(Some(name))
}

/// What is left of a schedule's table once its name is read.
fn spec(mut section: Section<'_>, name: Option<String>) -> Result<ScheduleSpec, Error> {
    let task = section.text("task")?;
    let (text, rule) = rule(&mut section)?;
    let spec = ScheduleSpec {
        name,
        task,
        rule: text,
        policies: policies(&mut section, &rule)?,
        context: context_of(&mut section)?,
    };
    section.finish()?;
    Ok(spec)
}

/// The table `context`, empty when it is not there.
pub(super) fn context_of(section: &mut Section<'_>) -> Result<Map<String, Value>, Error> {
    let context = section.json("context")?.unwrap_or_default();
    context::check(&context)
        .map_err(|reserved| section.error("context", format_args!("is refused: {reserved}")))?;
    Ok(context)
}

fn rule(section: &mut Section<'_>) -> Result<(RuleText, Rule), Error> {
    let mut rules = Vec::new();
    for &kind in RuleKind::ALL {
        let text = match kind {
            RuleKind::At => section.instant(kind.as_str())?.map(|at| at.to_string()),
            _ => section.text(kind.as_str())?,
        };
        rules.extend(text.map(|text| (kind, text)));
    }
    let (kind, expression) = only_rule(rules).map_err(|what| section.error_of_table(what))?;
    let timezone = section.text("timezone")?;
    let text = RuleText {
        anchor: section.instant("anchor")?,
        day_match: section.word("day_match", DayMatch::read)?,
        dst_gap: section.word("dst_gap", DstGap::read)?,
        dst_fold: section.word("dst_fold", DstFold::read)?,
        exclude: section.texts("exclude")?.unwrap_or_default(),
        ..RuleText::new(
            kind,
            expression,
            timezone.unwrap_or_else(|| TIMEZONE_DEFAULT.to_owned()),
        )
    };
    let parses = |text: &RuleText| Rule::parse(text, HashKey::NONE);
    let error = match parses(&text) {
        Ok(rule) => return Ok((text, rule)),
        Err(error) => error,
    };
    let in_utc = RuleText {
        timezone: TIMEZONE_DEFAULT.to_owned(),
        ..text.clone()
    };
    let bare = RuleText::new(kind, text.expression, TIMEZONE_DEFAULT);
    let place = match (parses(&in_utc), parses(&bare)) {
        (Ok(_), _) => Some("timezone"),
        (_, Err(_)) => Some(kind.as_str()),
        // It is in what stands beside the expression, and the error names it.
        _ => None,
    };
    let what = match error.hint() {
        "" => format!("is refused: {error}"),
        hint => format!("is refused: {error}; {hint}"),
    };
    Err(match place {
        Some(key) => section.error(key, what),
        None => section.error_of_table(what),
    })
}

/// The policies, each under its own key, checked against each other and the rule.
fn policies(section: &mut Section<'_>, rule: &Rule) -> Result<Policies, Error> {
    let mut policies = Policies::default();
    for &policy in Policy::ALL {
        let key = policy.as_str();
        let text = match policy.shape() {
            Shape::Text => section.text(key)?,
            Shape::Number => section
                .number(key, 0, NUMBER_MOST)?
                .map(|number| number.to_string()),
            Shape::Instant => section.instant(key)?.map(|instant| instant.to_string()),
        };
        if let Some(text) = text {
            let set = policies.set(policy, &text);
            set.map_err(|what| section.error(key, what))?;
        }
    }
    policies.check(rule).map_err(|error| {
        let what = format_args!("is refused: {error}; {}", error.hint());
        match error.policy() {
            Some(policy) => section.error(policy.as_str(), what),
            None => section.error_of_table(what),
        }
    })?;
    Ok(policies)
}

#[cfg(test)]
mod tests;
