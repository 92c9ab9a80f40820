//! Pure: compare two definitions of a schedule, and a set of definitions with the schedules there are.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::holder::Holder;
use super::pause::PAUSED_BY_DEFINITION;
use crate::schedules::definition;
use crate::schedules::program_args::stored;
use campanile_model::json_text::text_of;
use campanile_package::ScheduleDefinition;
use campanile_schedule::rule::RuleText;
use campanile_store::Origin;
use campanile_store::schedules::Schedule;

/// One line in which two definitions differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Difference {
    /// A key of the schedules file.
    pub key: Cow<'static, str>,
    /// `None` where the definition does not have the key.
    pub before: Option<String>,
    pub after: Option<String>,
}

/// The changes that a set of definitions makes. Each list is in the order of names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diff {
    pub added: Vec<ScheduleDefinition>,
    pub changed: Vec<Changed>,
    /// The schedules that are no longer defined.
    pub removed: Vec<Schedule>,
    /// Definitions whose name is held by a schedule not yielding to them.
    pub held: Vec<(ScheduleDefinition, Holder)>,
}

/// A schedule whose definition changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    pub schedule: Schedule,
    pub wanted: ScheduleDefinition,
    /// Empty only where this version cannot read the current definition.
    pub differences: Vec<Difference>,
}

impl Diff {
    /// Whether there is nothing to change.
    pub fn is_empty(&self) -> bool {
        *self == Diff::default()
    }

    /// Returns the names of all schedules in this diff.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let held = self.held.iter().map(|(wanted, _)| wanted);
        let changed = self.changed.iter().map(|changed| &changed.wanted);
        let wanted = self.added.iter().chain(held).chain(changed);
        let removed = self.removed.iter().map(|gone| &*gone.definition.name);
        wanted.map(|wanted| &*wanted.name).chain(removed)
    }
}

/// Compares the schedules of one file or package, of that `origin`, with the definitions `wanted`, returning what to change.
///
/// `current` has these schedules, plus any others with a wanted name. Among those others, proposals yield to `wanted`: they change
/// if both are of the same package, and are replaced by an added schedule otherwise. The rest stay unchanged.
pub fn diff(
    current: &[Schedule],
    wanted: &[ScheduleDefinition],
    origin: Origin,
    is_owned: impl Fn(&Schedule) -> bool,
) -> Diff {
    let current = current.iter();
    let current = current.map(|schedule| (&*schedule.definition.name, schedule));
    let mut current: BTreeMap<&str, &Schedule> = current.collect();
    let wanted = wanted.iter().map(|wanted| (&*wanted.name, wanted));
    let wanted: BTreeMap<&str, &ScheduleDefinition> = wanted.collect();
    let mut diff = Diff::default();
    for (name, wanted) in &wanted {
        let wanted = (*wanted).clone();
        match current.get(name) {
            None => diff.added.push(wanted),
            Some(other) if !is_owned(other) && !is_changed(other, &wanted, origin) => {
                let holder = Holder::of(other);
                if holder.yields_to(&wanted, origin) {
                    diff.added.push(wanted)
                } else {
                    diff.held.push((wanted, holder))
                }
            }
            Some(schedule) => {
                let before = read(schedule, &wanted);
                if before.as_ref() != Some(&wanted) || schedule.state.origin != origin {
                    let differences = before.map(|before| differences(&before, &wanted));
                    diff.changed.push(Changed {
                        schedule: (*schedule).clone(),
                        wanted,
                        differences: differences.unwrap_or_default(),
                    });
                }
            }
        }
    }
    current.retain(|name, schedule| is_owned(schedule) && !wanted.contains_key(name));
    diff.removed = current.into_values().cloned().collect();
    diff
}

/// Whether another definer's schedule turns into the wanted one because the package is the same.
fn is_changed(other: &Schedule, wanted: &ScheduleDefinition, origin: Origin) -> bool {
    other.definition.package == wanted.package && Holder::of(other).yields_to(wanted, origin)
}

/// Returns the current definition of a schedule, to compare it with `wanted`; none when this version cannot read it.
///
/// A definition that is not enabled pauses its schedule. One that is enabled ends no pause that a person began.
fn read(schedule: &Schedule, wanted: &ScheduleDefinition) -> Option<ScheduleDefinition> {
    let state = &schedule.state;
    let enabled = match wanted.enabled {
        true => state.paused_by.as_deref() != Some(PAUSED_BY_DEFINITION),
        // A pause with an end would let it launch again.
        false => state.enabled || state.paused_until.is_some(),
    };
    let before = definition::read(&schedule.definition).ok()?;
    Some(ScheduleDefinition { enabled, ..before })
}

/// Returns the lines in which `after` differs from `before`.
pub fn differences(before: &ScheduleDefinition, after: &ScheduleDefinition) -> Vec<Difference> {
    let (before, after) = (lines(before), lines(after));
    let value = |lines: &[Line], key: &str| {
        let mut lines = lines.iter().filter(|(other, _)| *other == key);
        lines.find_map(|(_, value)| value.clone())
    };
    let of_before = before.iter().filter(|(_, value)| value.is_some());
    let is_new = |(key, _): &&Line| value(&before, key).is_none();
    let only_after = after.iter().filter(is_new);
    let keys = of_before.chain(only_after).map(|(key, _)| *key);
    keys.map(|key| Difference {
        key: Cow::Borrowed(key),
        before: value(&before, key),
        after: value(&after, key),
    })
    .filter(|line| line.before != line.after)
    .collect()
}

/// Returns one line of text for each difference: the key, the value before and the value after.
pub fn difference_lines(differences: &[Difference]) -> Vec<String> {
    let width = differences.iter().map(|line| line.key.len()).max();
    let width = width.unwrap_or(0);
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let lines = differences.iter().map(|line| {
        let (before, after) = (text(&line.before), text(&line.after));
        format!("{:width$}  {before}  ->  {after}", line.key)
    });
    lines.collect()
}

/// A key of the schedules file, and its value; none where it has the default.
type Line = (&'static str, Option<String>);

/// Returns the value of a key, unless it is the default.
fn changed<T: Default + PartialEq + ToString>(value: &T) -> Option<String> {
    (*value != T::default()).then(|| value.to_string())
}

fn lines(definition: &ScheduleDefinition) -> Vec<Line> {
    let RuleText {
        kind,
        expression,
        anchor,
        timezone,
        day_match,
        dst_gap,
        dst_fold,
        exclude,
    } = &definition.rule;
    let (context, enabled) = (&definition.context, definition.enabled);
    let args = definition.args.as_deref();
    let mut lines = vec![
        ("name", Some(definition.name.clone())),
        ("package", Some(definition.package.clone())),
        ("task", definition.task.clone()),
        ("enabled", (!enabled).then(|| "false".to_owned())),
        (kind.as_str(), Some(expression.clone())),
        ("anchor", anchor.map(|anchor| anchor.to_string())),
        ("timezone", Some(timezone.clone())),
        ("day_match", changed(day_match)),
        ("dst_gap", changed(dst_gap)),
        ("dst_fold", changed(dst_fold)),
        ("exclude", changed(&exclude.join("; "))),
    ];
    let policies = definition.policies.entries();
    lines.extend(policies.map(|(policy, text)| (policy.as_str(), Some(text))));
    lines.push(("args", args.map(stored)));
    let text = || text_of(context);
    lines.push(("context", (!context.is_empty()).then(text)));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use campanile_model::clock::Timestamp;
    use campanile_model::ids::ScheduleId;
    use campanile_model::json_text::JsonObject;
    use campanile_schedule::policy::{Policies, Policy};
    use campanile_schedule::rule::RuleKind;
    use campanile_store::schedules::{History, Revision, ScheduleState};

    fn wanted(name: &str) -> ScheduleDefinition {
        ScheduleDefinition {
            name: name.to_owned(),
            package: "hello".to_owned(),
            task: None,
            rule: RuleText::new(RuleKind::Every, "1h", "UTC"),
            policies: Policies::default(),
            args: None,
            context: JsonObject::new(),
            enabled: true,
        }
    }

    fn schedule(wanted: &ScheduleDefinition, origin: Origin) -> Schedule {
        let id = ScheduleId::random();
        let at = Timestamp::from_micros(0);
        Schedule {
            state: ScheduleState {
                id,
                origin,
                revision: 1,
                enabled: true,
                cursor_at: at,
                next_slot: None,
                history: History::default(),
                paused_at: None,
                paused_by: None,
                pause_note: None,
                paused_until: None,
                resumed_at: None,
                created_at: at,
                updated_at: at,
                deleted_at: None,
            },
            definition: Revision {
                schedule_id: id,
                revision: 1,
                name: wanted.name.clone(),
                package: wanted.package.clone(),
                task: wanted.task.clone(),
                rule: wanted.rule.clone(),
                policies: json!(wanted.policies).to_string(),
                defaults: "{}".to_owned(),
                args: None,
                context: text_of(&wanted.context),
                since: at,
            },
        }
    }

    #[test]
    fn what_is_there_and_wanted_is_no_difference_and_all_else_is_one() {
        let mut other = wanted("other");
        other.policies.set(Policy::Jitter, "1m").unwrap();
        let current = [
            schedule(&wanted("same"), Origin::File),
            schedule(&wanted("other"), Origin::File),
            schedule(&wanted("gone"), Origin::File),
            schedule(&wanted("mine"), Origin::Operator),
            schedule(&wanted("theirs"), Origin::Sidecar),
            schedule(&wanted("proposed"), Origin::Package),
        ];
        let all = ["same", "new", "mine", "theirs"].map(wanted);
        let all = [&all[..], &[other]].concat();
        let of_file = |schedule: &Schedule| schedule.state.origin == Origin::File;
        let found = diff(&current, &all, Origin::File, of_file);
        let name = |wanted: &ScheduleDefinition| wanted.name.clone();
        assert_eq!(found.added.iter().map(name).collect::<Vec<_>>(), ["new"]);
        let [changed] = &found.changed[..] else {
            panic!("{:?}", found.changed)
        };
        assert_eq!(changed.wanted.name, "other");
        assert_eq!(
            changed.differences,
            [Difference {
                key: "jitter".into(),
                before: None,
                after: Some("1m".to_owned()),
            }]
        );
        let removed: Vec<&str> = found
            .removed
            .iter()
            .map(|schedule| schedule.definition.name.as_str())
            .collect();
        assert_eq!(removed, ["gone"]);
        let held = found.held.iter();
        let held: Vec<_> = held
            .map(|(wanted, holder)| (name(wanted), holder.origin))
            .collect();
        assert_eq!(
            held,
            [
                ("mine".to_owned(), Origin::Operator),
                ("theirs".to_owned(), Origin::Sidecar)
            ]
        );
        let mut names: Vec<&str> = found.names().collect();
        names.sort_unstable();
        assert_eq!(names, ["gone", "mine", "new", "other", "theirs"]);
        let none = diff(&current[..1], &[wanted("same")], Origin::File, of_file);
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn a_pause_with_an_end_does_not_do_for_a_definition_that_is_not_enabled() {
        let disabled = ScheduleDefinition {
            enabled: false,
            ..wanted("same")
        };
        let mut schedule = schedule(&wanted("same"), Origin::File);
        schedule.state.enabled = false;
        schedule.state.paused_by = Some("ada".to_owned());
        assert_eq!(read(&schedule, &disabled), Some(disabled.clone()));
        schedule.state.paused_until = Some(Timestamp::EPOCH);
        assert!(read(&schedule, &disabled).unwrap().enabled);
    }

    #[test]
    fn a_definition_that_is_not_enabled_differs_until_its_schedule_is_paused() {
        let enabled = wanted("same");
        let disabled = ScheduleDefinition {
            enabled: false,
            ..enabled.clone()
        };
        let of_file = |schedule: &Schedule| schedule.state.origin == Origin::File;
        let paused_by = |by: Option<&str>| {
            let mut schedule = schedule(&enabled, Origin::File);
            schedule.state.enabled = by.is_none();
            schedule.state.paused_by = by.map(str::to_owned);
            schedule
        };
        for (by, wanted, line) in [
            (None, &enabled, None),
            (None, &disabled, Some("enabled  -  ->  false")),
            (Some("ada"), &disabled, None),
            (Some("ada"), &enabled, None),
            (Some(PAUSED_BY_DEFINITION), &disabled, None),
            (
                Some(PAUSED_BY_DEFINITION),
                &enabled,
                Some("enabled  false  ->  -"),
            ),
        ] {
            let current = [paused_by(by)];
            let found = diff(
                &current,
                std::slice::from_ref(wanted),
                Origin::File,
                of_file,
            );
            let lines = found
                .changed
                .iter()
                .flat_map(|one| difference_lines(&one.differences));
            assert_eq!(lines.collect::<Vec<_>>(), Vec::from_iter(line), "{by:?}");
        }
    }

    #[test]
    fn versions_differ_by_the_lines_of_a_file() {
        let before = wanted("x");
        let after = ScheduleDefinition {
            task: Some("ok".to_owned()),
            rule: RuleText {
                exclude: vec!["12-25".to_owned(), "01-01".to_owned()],
                ..RuleText::new(RuleKind::Cron, "0 3 * * *", "UTC")
            },
            context: JsonObject::from([("a".to_owned(), json!(1).into())]),
            ..before.clone()
        };
        assert_eq!(
            difference_lines(&differences(&before, &after)),
            [
                "every    1h  ->  -",
                "task     -  ->  ok",
                "cron     -  ->  0 3 * * *",
                "exclude  -  ->  12-25; 01-01",
                "context  -  ->  {\"a\":1}",
            ]
        );
        assert_eq!(differences(&after, &after), []);
    }
}
