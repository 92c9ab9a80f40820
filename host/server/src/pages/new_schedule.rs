//! The form that adds a schedule: a package is chosen first, since its manifest says which tasks and which context it has.

mod choose;
mod fields;
pub(super) mod typed;

use maud::{Markup, html};
use schemars::JsonSchema;
use serde::Deserialize;

use self::typed::{Package, check_name, definition, with_instants};
use super::edit::{next_slots, rule_words};
use super::form::Form;
use super::layout::problem_part;
use super::parts::command;
use super::words::{Clock, line, shell};
use super::{View, Visit, links};
use crate::call::{Call, Result};
use crate::problem::ApiProblem;
use campanile_control::admin::schedule_admin::{self, ScheduleDefinition, ScheduleError};
use campanile_control::problem::Problem;
use campanile_control::records::schedule::RulePreview;
use campanile_model::clock::Timestamp;
use campanile_model::json_text::{JsonObject, text_of};
use campanile_model::rule_text::{DayMatch, DstFold, DstGap, RuleKind};
use campanile_package::spec::TIMEZONE_DEFAULT;
use campanile_store::Tx;

/// The address of the page. A schedule may be called `new`, so it isn't below `/schedules`.
pub(super) const PATH: &str = "/new-schedule";

/// The query of the page.
#[derive(Deserialize, JsonSchema)]
pub(super) struct NewScheduleQuery {
    /// The package of the new schedule
    pub package: Option<String>,
    /// Only for the choice of a package: the last one of the page before
    pub after: Option<String>,
}

/// What the form would do.
struct Checked {
    rule: Result<RulePreview>,
    /// Why it isn't done yet, apart from the rule.
    faults: Vec<Problem>,
    /// The command that does the same, as far as the form is right.
    command: Option<String>,
}

/// Returns the address of the form for a package.
pub(super) fn address(package: &str) -> String {
    format!("{PATH}{}", links::query(&[("package", package)]))
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let query: NewScheduleQuery = visit.call.query.question()?;
    let typed = visit.typed.given("package");
    let Some(name) = typed.or(query.package.as_deref()) else {
        return choose::show(visit, query.after.as_deref()).await;
    };
    let (now, clock) = (visit.call.now(), visit.clock());
    let mut tx = visit.call.read().await?;
    let package = Package::read(&mut tx, name).await?;
    let checked = if visit.typed.is_empty() {
        None
    } else {
        Some(
            package
                .check(&visit.call, &mut tx, &visit.typed, now)
                .await?,
        )
    };
    drop(tx);
    let initial;
    let form = if visit.typed.is_empty() {
        initial = package.initial(clock);
        &initial
    } else {
        &visit.typed
    };
    View::new(
        "New schedule",
        html! {
            p { "Of the package " (links::package(&package.name)) ". " a href=(PATH) { "Choose another package" } }
            div.grid {
                section.card.beside aria-labelledby="preview-title" {
                    header { h2 #preview-title { "When it launches" } }
                    div.pad #preview { (preview(&package, checked.as_ref(), visit, clock)) }
                }
                (fields::form(visit, &package, form))
            }
        },
    )
}

fn preview(package: &Package, checked: Option<&Checked>, visit: &Visit, clock: Clock) -> Markup {
    let generic = || {
        format!(
            "campanile schedule add NAME --package {} --cron '0 2 * * *'",
            shell(&package.name)
        )
    };
    let same = checked
        .and_then(|checked| checked.command.clone())
        .unwrap_or_else(generic);
    // Why a form was refused is shown already.
    let is_refused = visit.problem.is_some();
    html! {
        @match checked.map(|checked| (&checked.rule, &checked.faults)) {
            Some((Ok(rule), faults)) => {
                (rule_words(rule))
                (next_slots(rule, visit.typed.given("disabled").is_some(), clock))
                @for fault in faults.iter().filter(|_| !is_refused) { (not_yet(fault)) }
            },
            Some((Err(error), _)) if !is_refused => { (problem_part(&error.problem)) },
            Some(_) => {},
            None => { p.far { "The rule in words, and its next slots." } },
        }
        (command(&same))
    }
}

/// Says what keeps a schedule from being added.
fn not_yet(fault: &Problem) -> Markup {
    let mut lines = fault.message.lines();
    html! {
        p.warning {
            "Not yet: " (line(lines.next().unwrap_or_default()))
            @for more in lines { br; (line(more)) }
            @if let Some(hint) = &fault.hint { "; " (line(hint)) }
            "."
        }
    }
}

impl Package {
    /// Returns the form that nobody has filled in yet.
    fn initial(&self, clock: Clock) -> Form {
        let fields = [
            ("package", self.name.as_str()),
            ("kind", RuleKind::Cron.as_str()),
            ("timezone", clock.zone.name()),
            ("day_match", DayMatch::default().as_str()),
            ("dst_gap", DstGap::default().as_str()),
            ("dst_fold", DstFold::default().as_str()),
        ];
        let fields = fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Form::of(fields.collect())
    }

    /// Returns what a form would do. Nothing is changed.
    async fn check(
        &self,
        call: &Call,
        tx: &mut Tx,
        form: &Form,
        now: Timestamp,
    ) -> Result<Checked> {
        let mut faults = Vec::new();
        let wanted = with_instants(form, now).and_then(definition);
        let mut wanted = match wanted {
            Ok(wanted) => wanted,
            Err(error) => {
                return Ok(Checked {
                    rule: Err(error),
                    faults,
                    command: None,
                });
            }
        };
        let rule =
            RulePreview::of_new(&wanted.rule, &wanted.policies, now).map_err(ApiProblem::from);
        let typed = self.context.read(form, &JsonObject::new());
        wanted.context.clone_from(&typed.context);
        if let Err(error) = typed.checked() {
            faults.push(error.problem);
        }
        if let Err(error) = check_name(form) {
            faults.push(error.problem);
        } else if rule.is_ok() {
            if let Err(refused) = call.desk().check_group(&wanted.policies) {
                faults.push(refused);
            }
            match schedule_admin::check_new(tx, &wanted, now).await {
                Ok(()) => {}
                Err(ScheduleError::Db(error)) => return Err(error.into()),
                Err(refused) => faults.push(Problem::from(refused)),
            }
        }
        Ok(Checked {
            rule,
            faults,
            command: Some(add_command(&wanted)),
        })
    }
}

/// Returns the command that adds a schedule.
fn add_command(wanted: &ScheduleDefinition) -> String {
    let rule = &wanted.rule;
    let name = Some(wanted.name.as_str()).filter(|name| !name.is_empty());
    let mut words = vec![format!(
        "campanile schedule add {}",
        shell(name.unwrap_or("NAME"))
    )];
    let mut add = |flag: &str, value: &str| words.push(format!("--{flag} {}", shell(value)));
    add("package", &wanted.package);
    if let Some(task) = &wanted.task {
        add("task", task);
    }
    add(&rule.kind.as_str().replace('_', "-"), &rule.expression);
    if rule.timezone != TIMEZONE_DEFAULT {
        add("tz", &rule.timezone);
    }
    if let Some(anchor) = rule.anchor {
        add("anchor", &anchor.to_string());
    }
    if rule.day_match != DayMatch::default() {
        add("day-match", rule.day_match.as_str());
    }
    if rule.dst_gap != DstGap::default() {
        add("dst-gap", rule.dst_gap.as_str());
    }
    if rule.dst_fold != DstFold::default() {
        add("dst-fold", rule.dst_fold.as_str());
    }
    for times in &rule.exclude {
        add("exclude", times);
    }
    for (policy, text) in wanted.policies.entries() {
        add(policy.flag(), &text);
    }
    for arg in wanted.args.iter().flatten() {
        add("arg", arg);
    }
    if !wanted.context.is_empty() {
        add("context", &text_of(&wanted.context));
    }
    if !wanted.enabled {
        words.push("--disabled".to_owned());
    }
    words.join(" ")
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
    fn the_command_has_what_differs_from_its_defaults() {
        let fields = |more: &[(&str, &str)]| {
            let fixed = [
                ("name", "a"),
                ("package", "p"),
                ("kind", "cron"),
                ("expression", "0 2 * * *"),
                ("timezone", "UTC"),
            ];
            form(&[&fixed[..], more].concat())
        };
        let now = "2026-11-21T12:00:00Z".parse().unwrap();
        let command = |more: &[(&str, &str)]| {
            add_command(&definition(with_instants(&fields(more), now).unwrap()).unwrap())
        };
        assert_eq!(
            command(&[]),
            "campanile schedule add a --package p --cron '0 2 * * *'"
        );
        let more = [
            ("day_match", "and"),
            ("exclude", "12-25\n01-01"),
            ("policy.overlap", "allow"),
            ("args", r#"["-v"]"#),
            ("disabled", "yes"),
        ];
        assert_eq!(
            command(&more),
            "campanile schedule add a --package p --cron '0 2 * * *' --day-match and --exclude 12-25 --exclude 01-01 \
             --overlap allow --arg -v --disabled"
        );
    }
}
