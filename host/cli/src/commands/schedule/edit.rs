//! `campanile schedule edit`, `rename` and `skip`: change an existing schedule.

use clap::{ArgGroup, Args};

use super::By;
use super::definition::{DefinitionOptions, clear, clearable};
use crate::Common;
use crate::client::Client;
use crate::output::{ErrorCode, Failure, Result, refused};
use campanile_control::definition;
use campanile_control::orders::schedules as orders;
use campanile_control::records::schedule::{ScheduleDetail, ScheduleRecord};
use campanile_control::schedule_admin::{self, ScheduleDefinition};
use campanile_model::text::nearest;
use campanile_package::spec::TIMEZONE_DEFAULT;
use campanile_server::bodies;
use campanile_store::Tx;

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
    let zone = match edit.definition.lacks_zone() {
        true => zone_of(common, name).await?,
        false => TIMEZONE_DEFAULT.to_owned(),
    };
    let changes = edit.definition.parse(&zone)?;
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
    let schedule = match common.client()? {
        Some(client) => edit_by_api(client, name, edit.revision, change).await?,
        None => {
            let edit = async |tx: &mut Tx, now| {
                schedule_admin::edit(tx, name, edit.revision, change, now).await?;
                schedule_admin::find(tx, name).await
            };
            ScheduleRecord::new(common.change(edit).await?)
        }
    };
    let revision = schedule.row.state.revision;
    let (rule, next) = (schedule.rule_text(), schedule.next_text());
    let text = format!("{name} is at revision {revision}: {rule}, {next}");
    common.print_report(&schedule, &text)
}

/// Return the time zone of a schedule.
async fn zone_of(common: &Common, name: &str) -> Result<String> {
    let row = match common.client()? {
        Some(client) => {
            let detail: ScheduleDetail = client.get(&["schedules", name]).send().await?;
            detail.schedule.schedule.row
        }
        None => schedule_admin::find(&mut common.read().await?, name).await?,
    };
    Ok(row.definition.rule.timezone)
}

/// Replace the definition of the schedule by the changed one.
async fn edit_by_api(
    client: &Client,
    name: &str,
    revision: Option<i64>,
    change: impl Fn(&mut ScheduleDefinition),
) -> Result<ScheduleRecord> {
    let path = ["schedules", name];
    let detail: ScheduleDetail = client.get(&path).send().await?;
    let row = detail.schedule.schedule.row;
    let present = row.state.revision;
    let mut wanted = definition::read(&row.definition)
        .map_err(|why| Failure::refused(why).code(ErrorCode::Refused))?;
    change(&mut wanted);
    let call = client.put(&path, &bodies::Definition::from(wanted))?;
    call.if_match(Some(revision.unwrap_or(present)))
        .send()
        .await
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
    let report = common.order(name, order, &by.by).await?;
    let text = format!(
        "{} the slot {} of {name}",
        report.done, report.scheduled_time
    );
    common.print_report(&report, &text)
}
