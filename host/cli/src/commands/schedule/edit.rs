//! `campanile schedule edit`, `rename` and `skip`: change a schedule that is there.

use clap::{ArgGroup, Args};
use serde_json::{Map, Value, json};

use super::{By, read_context, shown};
use crate::Common;
use crate::commands::policy::{Given, PolicyOptions};
use crate::commands::rule::RuleOptions;
use crate::output::{self, Failure, cell};
use campanile_engine::schedule_admin::{self, Skip as Order, Wanted};
use campanile_model::clock::Timestamp;
use campanile_model::text::nearest;
use campanile_schedule::policy::Policy;
use campanile_schedule::rule::RuleKind;

#[derive(Args)]
#[command(group = ArgGroup::new("rule").args(["cron", "every", "at", "after_completion"]))]
pub(crate) struct Edit {
    /// The schedule's name
    name: String,
    /// The package to launch: the name of its file without .wasm
    #[arg(long)]
    package: Option<String>,
    /// One task with those it depends on
    #[arg(long)]
    task: Option<String>,
    /// Five fields, minute hour day-of-month month day-of-week, or six with seconds first, or @daily and the like
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    #[command(flatten)]
    rule: RuleOptions,
    /// Context for the tasks, in place of that before: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    context: Option<String>,
    /// Say nothing of this any more: a policy by its key, such as jitter, or task, anchor, exclude, context
    #[arg(long, value_name = "KEY", value_parser = Cleared::read)]
    clear: Vec<Cleared>,
    /// Refuse if the schedule is not at this revision any more
    #[arg(long, value_name = "N")]
    revision: Option<i64>,
    #[command(flatten)]
    policies: PolicyOptions,
}

#[derive(Args)]
pub(crate) struct Rename {
    /// The schedule's name
    old: String,
    /// Its name from now on
    new: String,
}

#[derive(Args)]
pub(crate) struct Skip {
    /// The schedule's name
    name: String,
    /// A slot to come, as `schedule next` shows it, such as 2027-01-31T08:00:00Z
    slot: Timestamp,
    /// Put it back
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    by: By,
}

/// What can be cleared besides policies.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Task,
    Anchor,
    Exclude,
    Context,
}

/// Each with its key.
const PARTS: [(&str, Part); 4] = [
    ("task", Part::Task),
    ("anchor", Part::Anchor),
    ("exclude", Part::Exclude),
    ("context", Part::Context),
];

/// What a schedule is to say nothing of.
#[derive(Clone, Copy, PartialEq)]
enum Cleared {
    Policy(Policy),
    Part(Part),
}

impl Cleared {
    fn all() -> impl Iterator<Item = (&'static str, Cleared)> {
        let policies = Policy::ALL.iter();
        let policies = policies.map(|&policy| (policy.as_str(), Cleared::Policy(policy)));
        policies.chain(PARTS.map(|(key, part)| (key, Cleared::Part(part))))
    }

    /// Read a key, also as the flag of that name is written.
    fn read(text: &str) -> Result<Cleared, String> {
        let key = text.replace('-', "_");
        if let Some((_, cleared)) = Cleared::all().find(|(known, _)| *known == key) {
            return Ok(cleared);
        }
        let keys: Vec<&str> = Cleared::all().map(|(key, _)| key).collect();
        Err(match nearest(&key, keys.iter().copied()) {
            Some(near) => format!("there is no such key; did you mean `{near}`?"),
            None => format!("there is no such key; choose one of {}", keys.join(", ")),
        })
    }
}

/// All that an edit changes, read and checked as far as it can be without the schedule.
struct Changes {
    edit: Edit,
    expression: Option<(RuleKind, String)>,
    policies: Given,
    context: Option<Map<String, Value>>,
}

impl Edit {
    fn changes(mut self) -> Result<Changes, Failure> {
        let cron = self.cron.take();
        let changes = Changes {
            expression: self.rule.expression(cron)?,
            policies: self.policies.read()?,
            context: read_context(self.context.as_deref())?,
            edit: self,
        };
        for (key, cleared) in Cleared::all() {
            if changes.edit.clear.contains(&cleared) && changes.gives(cleared) {
                let flag = key.replace('_', "-");
                let both = format!("--clear {key} and --{flag} contradict each other");
                return Err(Failure::refused(both).hint("keep one of them"));
            }
        }
        Ok(changes)
    }
}

impl Changes {
    /// Whether that is given which could be cleared.
    fn gives(&self, cleared: Cleared) -> bool {
        match cleared {
            Cleared::Policy(policy) => self.policies.which.contains(&policy),
            Cleared::Part(Part::Task) => self.edit.task.is_some(),
            Cleared::Part(Part::Anchor) => self.edit.rule.has_anchor(),
            Cleared::Part(Part::Exclude) => self.edit.rule.has_exclusions(),
            Cleared::Part(Part::Context) => self.context.is_some(),
        }
    }

    fn over(&self, wanted: &mut Wanted) {
        if let Some(package) = &self.edit.package {
            wanted.package.clone_from(package);
        }
        if self.edit.task.is_some() {
            wanted.task.clone_from(&self.edit.task);
        }
        for cleared in &self.edit.clear {
            match *cleared {
                Cleared::Policy(policy) => wanted.policies.clear(policy),
                Cleared::Part(Part::Task) => wanted.task = None,
                Cleared::Part(Part::Anchor) => wanted.rule.anchor = None,
                Cleared::Part(Part::Exclude) => wanted.rule.exclude.clear(),
                Cleared::Part(Part::Context) => wanted.context.clear(),
            }
        }
        if let Some((kind, expression)) = &self.expression {
            if *kind != RuleKind::Every {
                wanted.rule.anchor = None;
            }
            wanted.rule.kind = *kind;
            wanted.rule.expression.clone_from(expression);
        }
        self.edit.rule.rest_over(&mut wanted.rule);
        self.policies.over(&mut wanted.policies);
        if let Some(context) = &self.context {
            wanted.context.clone_from(context);
        }
    }

    /// Whether there is anything to change at all.
    fn is_empty(&self) -> bool {
        self.edit.package.is_none()
            && self.edit.clear.is_empty()
            && self.expression.is_none()
            && !self.edit.rule.has_rest()
            && !Cleared::all().any(|(_, cleared)| self.gives(cleared))
    }
}

pub(super) async fn edit(common: &Common, edit: Edit) -> Result<(), Failure> {
    let changes = edit.changes()?;
    if changes.is_empty() {
        return Err(Failure::refused("nothing was given to change")
            .hint("give what the schedule shall say, such as --jitter 30s, or --clear jitter"));
    }
    let name = &changes.edit.name;
    let (db, clock) = common.open_with_clock().await?;
    let now = clock.now();
    let expected = changes.edit.revision;
    let change = |wanted: &mut Wanted| changes.over(wanted);
    let revision = schedule_admin::change(&db, async |tx| {
        schedule_admin::edit(tx, name, expected, change, now).await
    })
    .await?;
    let mut tx = db.read().await?;
    let row = schedule_admin::find(&mut tx, name).await?;
    if common.json {
        return output::json_out(&shown::value(&row));
    }
    output::line(&format!(
        "{name} is at revision {revision}: {}, next at {}",
        shown::rule_text(&row),
        cell(&row.state.next_slot)
    ))
}

pub(super) async fn rename(common: &Common, Rename { old, new }: &Rename) -> Result<(), Failure> {
    let (db, clock) = common.open_with_clock().await?;
    let now = clock.now();
    let revision = schedule_admin::change(&db, async |tx| {
        schedule_admin::rename(tx, old, new, now).await
    })
    .await?;
    if common.json {
        let done = json!({ "schedule": new, "was": old, "revision": revision, "done": "renamed" });
        return output::json_out(&done);
    }
    output::line(&format!("renamed {old} to {new}, at revision {revision}"))
}

pub(super) async fn skip(common: &Common, skip: &Skip) -> Result<(), Failure> {
    let Skip {
        name,
        slot,
        undo,
        by,
    } = skip;
    let (db, clock) = common.open_with_clock().await?;
    let now = clock.now();
    let order = Order {
        slot: *slot,
        by: &by.by,
        undo: *undo,
    };
    schedule_admin::change(&db, async |tx| {
        schedule_admin::skip(tx, name, order, now).await
    })
    .await?;
    let done = if *undo { "restored" } else { "skipped" };
    if common.json {
        return output::json_out(
            &json!({ "schedule": name, "scheduled_time": slot, "done": done }),
        );
    }
    output::line(&match undo {
        true => format!("put back the slot {slot} of {name}"),
        false => format!("took out the slot {slot} of {name}"),
    })
}
