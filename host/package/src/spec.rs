//! A schedule as a sidecar, a schedules file or a package defines it, before its rule is parsed.

use std::collections::BTreeSet;
use std::iter::once;

use campanile_model::json_text::JsonObject;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{RuleKind, RuleText};

/// The definition of a schedule. The rule and the zone are still text.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleDefinition {
    pub name: String,
    pub package: String,
    /// One task with its dependencies; `None` is the whole package.
    pub task: Option<String>,
    pub rule: RuleText,
    pub policies: Policies,
    /// The arguments of a program, each a template; `None` for those of the sidecar.
    pub args: Option<Vec<String>>,
    pub context: JsonObject,
    /// False for a schedule that is paused when it is added, and as long as its file says so.
    pub enabled: bool,
}

/// The zone of a schedule that names none. The machine's zone is never used.
pub const TIMEZONE_DEFAULT: &str = "UTC";

/// Returns the only rule of `rules`, which come from the keys of all rule kinds; the error is a clause.
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

/// Name the schedules of `package` whose names are empty: like the package, with a number if that is taken.
pub(super) fn name_all(package: &str, schedules: &mut [ScheduleDefinition]) {
    let taken = schedules.iter().map(|schedule| schedule.name.clone());
    let taken: BTreeSet<String> = taken.collect();
    let numbered = (2..).map(|number| format!("{package}-{number}"));
    let names = once(package.to_owned()).chain(numbered);
    let free = names.filter(|name| !taken.contains(name));
    let unnamed = schedules.iter_mut();
    let unnamed = unnamed.filter(|schedule| schedule.name.is_empty());
    for (schedule, name) in unnamed.zip(free) {
        schedule.name = name;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> ScheduleDefinition {
        ScheduleDefinition {
            name: name.to_owned(),
            package: "backup".to_owned(),
            task: None,
            rule: RuleText::new(RuleKind::Cron, "@hourly", TIMEZONE_DEFAULT),
            policies: Policies::default(),
            args: None,
            context: JsonObject::new(),
            enabled: true,
        }
    }

    #[test]
    fn schedules_without_a_name_are_numbered_around_those_that_have_one() {
        let mut schedules = ["", "backup-2", "", ""].map(named);
        name_all("backup", &mut schedules);
        let names = schedules.map(|schedule| schedule.name);
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
