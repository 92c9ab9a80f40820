//! A schedule as a sidecar, a schedules file or a package defines it, before its rule is parsed.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{RuleKind, RuleText};

/// One schedule of an operator, or proposed by a package. The rule and the zone are still text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScheduleSpec {
    /// `None` takes the package's name; see [`define_all`].
    pub name: Option<String>,
    /// One task with its dependencies; `None` is the whole package.
    pub task: Option<String>,
    #[serde(flatten)]
    pub rule: RuleText,
    pub policies: Policies,
    pub context: Map<String, Value>,
}

/// The definition of a schedule. The rule and the zone are still text.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleDefinition {
    pub name: String,
    pub package: String,
    /// One task with its dependencies; `None` is the whole package.
    pub task: Option<String>,
    pub rule: RuleText,
    pub policies: Policies,
    pub context: Map<String, Value>,
}

impl ScheduleSpec {
    /// Return the definition of a schedule of `package` that is named `name`.
    pub(super) fn define(self, name: String, package: String) -> ScheduleDefinition {
        ScheduleDefinition {
            name,
            package,
            task: self.task,
            rule: self.rule,
            policies: self.policies,
            context: self.context,
        }
    }
}

/// The zone of a schedule that names none. The machine's zone is never used.
pub const TIMEZONE_DEFAULT: &str = "UTC";

/// Return the only rule of `rules`, which come from the keys of all rule kinds; the error is a clause.
pub(super) fn only_rule(
    rules: impl IntoIterator<Item = (RuleKind, String)>,
) -> Result<(RuleKind, String), &'static str> {
    let mut rules = rules.into_iter();
    match (rules.next(), rules.next()) {
        (Some(rule), None) => Ok(rule),
        (None, _) => Err("has no rule: give it one of `cron`, `every`, `at` or `after_completion`"),
        _ => Err("has more than one rule: keep one of `cron`, `every`, `at` or `after_completion`"),
    }
}

/// Return the definition of every schedule, under its own name or the package's, with a number if that is taken.
pub fn define_all(package: &str, specs: &[ScheduleSpec]) -> Vec<ScheduleDefinition> {
    let mut names: BTreeSet<String> = specs.iter().filter_map(|spec| spec.name.clone()).collect();
    let mut number = 1;
    let mut next_free = || loop {
        let name = match number {
            1 => package.to_owned(),
            n => format!("{package}-{n}"),
        };
        number += 1;
        if names.insert(name.clone()) {
            return name;
        }
    };
    specs
        .iter()
        .map(|spec| {
            let name = spec.name.clone().unwrap_or_else(&mut next_free);
            spec.clone().define(name, package.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: Option<&str>) -> ScheduleSpec {
        ScheduleSpec {
            name: name.map(str::to_owned),
            task: None,
            rule: RuleText::new(RuleKind::Cron, "@hourly", TIMEZONE_DEFAULT),
            policies: Policies::default(),
            context: Map::new(),
        }
    }

    #[test]
    fn schedules_without_a_name_are_numbered_around_those_that_have_one() {
        let specs = [spec(None), spec(Some("backup-2")), spec(None), spec(None)];
        let names: Vec<String> = define_all("backup", &specs)
            .into_iter()
            .map(|schedule| schedule.name)
            .collect();
        assert_eq!(names, ["backup", "backup-2", "backup-3", "backup-4"]);
    }

    #[test]
    fn exactly_one_rule_is_accepted() {
        let rule = |kind: RuleKind| (kind, "5m".to_owned());
        for &kind in RuleKind::ALL {
            assert_eq!(only_rule([rule(kind)]), Ok(rule(kind)));
            assert!(only_rule([]).unwrap_err().contains(kind.as_str()));
        }
        let two = [rule(RuleKind::Cron), rule(RuleKind::At)];
        assert!(only_rule(two).unwrap_err().contains("more than one"));
    }
}
