//! `campanile schedule edit`, `rename` and `skip`: change an existing schedule.

use clap::{ArgGroup, Args};

use super::By;
use super::definition::{DefinitionOptions, clear, clearable};
use crate::Common;
use crate::output::{Failure, Result, refused};
use campanile_engine::records::schedule::{RenameReport, ScheduleRecord, SkipReport};
use campanile_engine::schedule_admin::{self, ScheduleDefinition, Skip as Order};
use campanile_model::clock::Timestamp;
use campanile_model::text::nearest;

#[derive(Args)]
#[command(group = ArgGroup::new("rule").args(["cron", "every", "at", "after_completion"]))]
pub(crate) struct Edit {
    /// The schedule's name
    name: String,
    #[command(flatten)]
    definition: DefinitionOptions,
    /// Clear a policy by its key, such as jitter, or task, anchor, exclude, args or context
    #[arg(long, value_name = "KEY", value_parser = read_clearable)]
    clear: Vec<&'static str>,
    /// Refuse if the schedule is at another revision
    #[arg(long, value_name = "N")]
    revision: Option<i64>,
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

pub(crate) async fn edit(common: &Common, edit: Edit) -> Result {
    let (name, cleared) = (&edit.name, &edit.clear);
    let changes = edit.definition.parse()?;
    changes.check_group(common)?;
    if let Some(key) = cleared.iter().find(|key| changes.sets(key)) {
        let flag = match *key {
            "args" => "arg".to_owned(),
            key => key.replace('_', "-"),
        };
        return Err(
            refused!("--clear {key} and --{flag} contradict each other").hint("keep one of them")
        );
    }
    if cleared.is_empty() && changes.is_empty() {
        return Err(Failure::refused("nothing was given to change")
            .hint("give a new value, such as --jitter 30s, or clear one, such as --clear jitter"));
    }
    let change = |wanted: &mut ScheduleDefinition| {
        cleared.iter().for_each(|key| clear(key, wanted));
        changes.apply_to(wanted);
    };
    let (revision, row) = common
        .change(async |tx, now| {
            let revision = schedule_admin::edit(tx, name, edit.revision, change, now).await?;
            Ok((revision, schedule_admin::find(tx, name).await?))
        })
        .await?;
    let schedule = ScheduleRecord::new(row);
    let (rule, next) = (&schedule.rule_text, schedule.next_text());
    let text = format!("{name} is at revision {revision}: {rule}, {next}");
    common.print_report(&schedule, &text)
}

pub(crate) async fn rename(common: &Common, Rename { old, new }: &Rename) -> Result {
    let revision = common
        .change(async |tx, now| schedule_admin::rename(tx, old, new, now).await)
        .await?;
    let report = RenameReport {
        schedule: new,
        was: old,
        revision,
        done: "renamed",
    };
    let text = format!("renamed {old} to {new}, at revision {revision}");
    common.print_report(&report, &text)
}

pub(crate) async fn skip(common: &Common, skip: &Skip) -> Result {
    let (name, slot) = (&skip.name, skip.slot);
    let order = Order {
        slot,
        by: &skip.by.by,
        undo: skip.undo,
    };
    common
        .change(async |tx, now| schedule_admin::skip(tx, name, order, now).await)
        .await?;
    let report = SkipReport {
        schedule: name,
        scheduled_time: slot,
        done: if skip.undo { "restored" } else { "skipped" },
    };
    let text = format!("{} the slot {slot} of {name}", report.done);
    common.print_report(&report, &text)
}
