//! `campanile schedule edit`, `rename` and `skip`: change an existing schedule.

use clap::{ArgGroup, Args};
use serde::Serialize;
use serde_json::{Map, Value};

use super::record::ScheduleRecord;
use super::{By, read_context};
use crate::Common;
use crate::commands::policy::{GivenPolicies, PolicyOptions};
use crate::commands::rule::RuleOptions;
use crate::output::{self, Failure};
use campanile_engine::schedule_admin::{self, ScheduleDefinition, Skip as Order};
use campanile_model::clock::Timestamp;
use campanile_model::text::nearest;
use campanile_schedule::policy::Policy;
use campanile_schedule::rule::RuleKind;

#[derive(Args)]
#[command(group = ArgGroup::new("rule").args(["cron", "every", "at", "after_completion"]))]
pub(crate) struct Edit {
    /// The schedule's name
    name: String,
    /// The package to launch: its file name without .wasm
    #[arg(long)]
    package: Option<String>,
    /// Run only this task and the tasks it depends on
    #[arg(long)]
    task: Option<String>,
    /// Five fields (minute hour day-of-month month day-of-week), six with seconds first, or @daily etc.
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    #[command(flatten)]
    rule: RuleOptions,
    /// The new context of the tasks: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    context: Option<String>,
    /// Clear a policy by its key, such as jitter, or task, anchor, exclude or context
    #[arg(long, value_name = "KEY", value_parser = read_clearable)]
    clear: Vec<&'static str>,
    /// Refuse if the schedule is at another revision
    #[arg(long, value_name = "N")]
    revision: Option<i64>,
    #[command(flatten)]
    policies: PolicyOptions,
}

#[derive(Args)]
pub(crate) struct Rename {
    /// The schedule's name
    old: String,
    /// The new name
    new: String,
}

#[derive(Args)]
pub(crate) struct Skip {
    /// The schedule's name
    name: String,
    /// A future slot, as `schedule next` shows it, such as 2027-01-31T08:00:00Z
    slot: Timestamp,
    /// Restore the slot
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    by: By,
}

/// Return the keys of `--clear`: the policies, and some parts of a schedule.
fn clearable() -> impl Iterator<Item = &'static str> {
    let policies = Policy::ALL.iter().map(|policy| policy.as_str());
    policies.chain(["task", "anchor", "exclude", "context"])
}

/// Parse a key of `--clear`; `-` is accepted for `_`, as in the flag of that name.
fn read_clearable(text: &str) -> Result<&'static str, String> {
    let key = text.replace('-', "_");
    let found = clearable().find(|known| *known == key);
    found.ok_or_else(|| match nearest(&key, clearable()) {
        Some(near) => format!("unknown key; did you mean `{near}`?"),
        None => format!(
            "unknown key; choose one of {}",
            Vec::from_iter(clearable()).join(", ")
        ),
    })
}

/// The result of `schedule rename`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct RenameReport<'a> {
    schedule: &'a str,
    was: &'a str,
    revision: i64,
    /// `renamed`.
    done: &'static str,
}

/// The result of `schedule skip`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct SkipReport<'a> {
    schedule: &'a str,
    scheduled_time: Timestamp,
    /// `skipped` or `restored`.
    done: &'static str,
}

/// The parsed options of an edit.
struct Changes {
    edit: Edit,
    expression: Option<(RuleKind, String)>,
    policies: GivenPolicies,
    context: Option<Map<String, Value>>,
}

impl Edit {
    fn changes(mut self) -> Result<Changes, Failure> {
        let cron = self.cron.take();
        let changes = Changes {
            expression: self.rule.expression(cron)?,
            policies: self.policies.parse()?,
            context: read_context(self.context.as_deref())?,
            edit: self,
        };
        for key in &changes.edit.clear {
            if changes.sets(key) {
                let flag = key.replace('_', "-");
                let both = format!("--clear {key} and --{flag} contradict each other");
                return Err(Failure::refused(both).hint("keep one of them"));
            }
        }
        Ok(changes)
    }
}

impl Changes {
    /// Return whether the edit sets the part of that key.
    fn sets(&self, key: &str) -> bool {
        match key {
            "task" => self.edit.task.is_some(),
            "anchor" => self.edit.rule.has_anchor(),
            "exclude" => self.edit.rule.has_exclusions(),
            "context" => self.context.is_some(),
            policy => self
                .policies
                .given
                .iter()
                .any(|given| given.as_str() == policy),
        }
    }

    fn apply_to(&self, wanted: &mut ScheduleDefinition) {
        if let Some(package) = &self.edit.package {
            wanted.package.clone_from(package);
        }
        if self.edit.task.is_some() {
            wanted.task.clone_from(&self.edit.task);
        }
        for key in &self.edit.clear {
            match *key {
                "task" => wanted.task = None,
                "anchor" => wanted.rule.anchor = None,
                "exclude" => wanted.rule.exclude.clear(),
                "context" => wanted.context.clear(),
                policy => {
                    if let Ok(policy) = policy.parse() {
                        wanted.policies.clear(policy);
                    }
                }
            }
        }
        if let Some((kind, expression)) = &self.expression {
            if *kind != RuleKind::Every {
                wanted.rule.anchor = None;
            }
            wanted.rule.kind = *kind;
            wanted.rule.expression.clone_from(expression);
        }
        self.edit.rule.apply_to(&mut wanted.rule);
        self.policies.apply_to(&mut wanted.policies);
        if let Some(context) = &self.context {
            wanted.context.clone_from(context);
        }
    }

    /// Return whether nothing was given to change.
    fn is_empty(&self) -> bool {
        self.edit.package.is_none()
            && self.edit.clear.is_empty()
            && self.expression.is_none()
            && !self.edit.rule.has_choices()
            && !clearable().any(|key| self.sets(key))
    }
}

pub(crate) async fn edit(common: &Common, edit: Edit) -> Result<(), Failure> {
    let changes = edit.changes()?;
    if changes.is_empty() {
        return Err(Failure::refused("nothing was given to change")
            .hint("give a new value, such as --jitter 30s, or clear one, such as --clear jitter"));
    }
    let name = &changes.edit.name;
    let (db, clock) = common.open_with_clock().await?;
    let now = clock.now();
    let expected = changes.edit.revision;
    let change = |wanted: &mut ScheduleDefinition| changes.apply_to(wanted);
    let revision = schedule_admin::change(&db, async |tx| {
        schedule_admin::edit(tx, name, expected, change, now).await
    })
    .await?;
    let row = schedule_admin::find(&mut db.read().await?, name).await?;
    let schedule = ScheduleRecord::new(row);
    let text = format!(
        "{name} is at revision {revision}: {}, {}",
        schedule.rule_text,
        schedule.next_text()
    );
    output::print_report(&schedule, &text, common.json)
}

pub(crate) async fn rename(common: &Common, Rename { old, new }: &Rename) -> Result<(), Failure> {
    let (db, clock) = common.open_with_clock().await?;
    let now = clock.now();
    let revision = schedule_admin::change(&db, async |tx| {
        schedule_admin::rename(tx, old, new, now).await
    })
    .await?;
    let report = RenameReport {
        schedule: new,
        was: old,
        revision,
        done: "renamed",
    };
    let text = format!("renamed {old} to {new}, at revision {revision}");
    output::print_report(&report, &text, common.json)
}

pub(crate) async fn skip(common: &Common, skip: &Skip) -> Result<(), Failure> {
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
    let report = SkipReport {
        schedule: name,
        scheduled_time: *slot,
        done: if *undo { "restored" } else { "skipped" },
    };
    let text = format!("{} the slot {slot} of {name}", report.done);
    output::print_report(&report, &text, common.json)
}
