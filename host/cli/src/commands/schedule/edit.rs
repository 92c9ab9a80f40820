//! `campanile schedule edit`, `rename` and `skip`: change an existing schedule.

use clap::{ArgGroup, Args};

use super::By;
use super::definition::{DefinitionOptions, clear, clearable};
use crate::Common;
use crate::ask::Giver;
use crate::output::{ErrorCode, Failure, Result, refused};
use campanile_control::admin::schedule_admin::ScheduleDefinition;
use campanile_control::orders::definition::{Definition, ReplaceSchedule};
use campanile_control::orders::schedules as orders;
use campanile_control::questions::schedules::GetSchedule;
use campanile_control::schedules::definition;
use campanile_model::text::nearest;
use campanile_package::spec::TIMEZONE_DEFAULT;
use campanile_store::schedules::Schedule;

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
    #[command(flatten)]
    order: orders::Rename,
}

#[derive(Args)]
pub(crate) struct Skip {
    /// The schedule's name
    name: String,
    #[command(flatten)]
    order: orders::Skip,
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
    let zone = if edit.definition.lacks_zone() {
        find(common, name).await?.definition.rule.timezone
    } else {
        TIMEZONE_DEFAULT.to_owned()
    };
    let changes = edit.definition.parse(&zone)?;
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
    let schedule = loop {
        let row = find(common, name).await?;
        let mut wanted = definition::read(&row.definition)
            .map_err(|why| Failure::refused(why).code(ErrorCode::Refused))?;
        change(&mut wanted);
        let giver = Giver {
            revision: Some(edit.revision.unwrap_or(row.state.revision)),
            ..Giver::default()
        };
        let order = ReplaceSchedule(Definition::from(wanted));
        match common.order(name, &order, giver).await {
            // Somebody else was faster.
            Err(failure) if failure.code == ErrorCode::Conflict && edit.revision.is_none() => {}
            done => break done?,
        }
    };
    let revision = schedule.row.state.revision;
    let (rule, next) = (schedule.rule_text(), schedule.next_text());
    let text = format!("{name} is at revision {revision}: {rule}, {next}");
    common.print_report(&schedule, &text)
}

async fn find(common: &Common, name: &str) -> Result<Schedule> {
    let detail = common.ask(name, &GetSchedule {}).await?;
    Ok(detail.schedule.schedule.into_row())
}

pub(crate) async fn rename(common: &Common, Rename { old, order }: &Rename) -> Result {
    let report = common.order(old, order, "").await?;
    let text = format!(
        "renamed {old} to {}, at revision {}",
        report.schedule, report.revision
    );
    common.print_report(&report, &text)
}

pub(crate) async fn skip(common: &Common, Skip { name, order, by }: &Skip) -> Result {
    let report = common.order(name, order, &*by.by).await?;
    let text = format!(
        "{} the slot {} of {name}",
        report.done, report.scheduled_time
    );
    common.print_report(&report, &text)
}
