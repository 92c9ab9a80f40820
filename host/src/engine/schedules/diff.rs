//! Pure: in what two versions of a schedule differ, and what a set of schedules would change.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{ScheduleError, Wanted};
use crate::db::Origin;
use crate::db::schedules::{Revision, Schedule};
use crate::policy::Policies;
use crate::schedule::{DayMatch, DstFold, DstGap, RuleText};

/// One line in which two versions of a schedule differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What it is about: a key of the schedules file.
    pub key: String,
    /// `None` where one of them says nothing.
    pub before: Option<String>,
    pub after: Option<String>,
}

/// What taking over a set of schedules would change, each list in the order of names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diff {
    pub added: Vec<Wanted>,
    pub changed: Vec<Changed>,
    /// Those that nobody wants any more, as they are.
    pub removed: Vec<Schedule>,
    /// Wanted, but the name is held by a schedule of this other origin.
    pub held: Vec<(Wanted, Origin)>,
}

/// A schedule that would say something else.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    /// As it is.
    pub schedule: Schedule,
    pub wanted: Wanted,
    /// Empty only where this version cannot read what the schedule says.
    pub differences: Vec<Difference>,
}

impl Diff {
    /// Whether everything is as it is wanted.
    pub fn is_empty(&self) -> bool {
        *self == Diff::default()
    }
}

/// What it takes to make the schedules of `origin` among `current`, all there are, those that are `wanted`.
///
/// Schedules of other origins are never touched: a name that one of them holds is not to be had.
pub fn diff(current: &[Schedule], wanted: &[Wanted], origin: Origin) -> Diff {
    let current: BTreeMap<&str, &Schedule> = current
        .iter()
        .map(|schedule| (schedule.says.name.as_str(), schedule))
        .collect();
    let wanted: BTreeMap<&str, &Wanted> = wanted
        .iter()
        .map(|wanted| (wanted.name.as_str(), wanted))
        .collect();
    let mut diff = Diff::default();
    for (name, wanted) in &wanted {
        let wanted = (*wanted).clone();
        match current.get(name) {
            None => diff.added.push(wanted),
            Some(other) if other.state.origin != origin => {
                diff.held.push((wanted, other.state.origin));
            }
            Some(schedule) => {
                let said = Wanted::of(&schedule.says).ok();
                if said.as_ref() != Some(&wanted) {
                    let differences = said.map(|said| differences(&said, &wanted));
                    diff.changed.push(Changed {
                        schedule: (*schedule).clone(),
                        wanted,
                        differences: differences.unwrap_or_default(),
                    });
                }
            }
        }
    }
    diff.removed = current
        .iter()
        .filter(|(name, schedule)| schedule.state.origin == origin && !wanted.contains_key(*name))
        .map(|(_, schedule)| (*schedule).clone())
        .collect();
    diff
}

/// The lines in which `after` differs from `before`.
pub fn differences(before: &Wanted, after: &Wanted) -> Vec<Difference> {
    let (before, after) = (before.lines(), after.lines());
    let mut keys: Vec<&String> = before.iter().chain(&after).map(|(key, _)| key).collect();
    let mut seen = std::collections::BTreeSet::new();
    keys.retain(|key| seen.insert(key.as_str()));
    let value = |lines: &[(String, String)], key: &str| {
        let line = lines.iter().find(|(other, _)| other == key);
        line.map(|(_, value)| value.clone())
    };
    keys.into_iter()
        .map(|key| Difference {
            key: key.clone(),
            before: value(&before, key),
            after: value(&after, key),
        })
        .filter(|line| line.before != line.after)
        .collect()
}

/// One line for each difference: the key, what was said, and what is said now.
pub fn difference_lines(differences: &[Difference]) -> Vec<String> {
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let keys = width(&mut differences.iter().map(|line| line.key.chars().count()));
    differences
        .iter()
        .map(|line| {
            let (before, after) = (text(&line.before), text(&line.after));
            format!("{:keys$}  {before}  ->  {after}", line.key)
        })
        .collect()
}

impl Wanted {
    /// What a revision says.
    ///
    /// # Errors
    /// `Unreadable` when another version stored something that this one does not know.
    pub fn of(says: &Revision) -> Result<Wanted, ScheduleError> {
        let unreadable = |why: String| ScheduleError::Unreadable {
            name: says.name.clone(),
            why,
        };
        let policies: Policies = serde_json::from_str(&says.policies)
            .map_err(|error| unreadable(format!("its policies: {error}")))?;
        let context = serde_json::from_str(&says.context)
            .map_err(|error| unreadable(format!("its context: {error}")))?;
        Ok(Wanted {
            name: says.name.clone(),
            package: says.package.clone(),
            task: says.task.clone(),
            rule: says.rule.clone(),
            policies,
            context,
        })
    }

    /// What it says, line by line: keys of the schedules file, and those of them only of which something is said.
    pub fn lines(&self) -> Vec<(String, String)> {
        let mut lines = vec![
            ("name".to_owned(), self.name.clone()),
            ("package".to_owned(), self.package.clone()),
        ];
        let mut say = |key: &str, value: String| lines.push((key.to_owned(), value));
        if let Some(task) = &self.task {
            say("task", task.clone());
        }
        let RuleText {
            kind,
            expression,
            anchor,
            timezone,
            day_match,
            dst_gap,
            dst_fold,
            exclude,
        } = &self.rule;
        say(kind.as_str(), expression.clone());
        if let Some(anchor) = anchor {
            say("anchor", anchor.to_string());
        }
        say("timezone", timezone.clone());
        if *day_match != DayMatch::default() {
            say("day_match", day_match.to_string());
        }
        if *dst_gap != DstGap::default() {
            say("dst_gap", dst_gap.to_string());
        }
        if *dst_fold != DstFold::default() {
            say("dst_fold", dst_fold.to_string());
        }
        if !exclude.is_empty() {
            say("exclude", exclude.join("; "));
        }
        for (policy, text) in self.policies.said() {
            say(policy.as_str(), text);
        }
        if !self.context.is_empty() {
            say("context", Value::Object(self.context.clone()).to_string());
        }
        lines
    }
}
