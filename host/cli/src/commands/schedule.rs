//! `campanile schedule`: define when packages are launched.
//!
//! The commands change the database, which a serving host notices within a second, or with `--server` send the change to a host.

pub(crate) mod backfill;
pub(crate) mod check;
mod definition;
pub(crate) mod edit;
pub(crate) mod import;
mod reconcile;
pub(crate) mod record;
pub(crate) mod trigger;
mod why;

use clap::{ArgGroup, Args, Subcommand};

use super::calendar::Months;
use super::slots::{self, SlotCount};
use crate::output::{self, Failure, Record, Result, refused};
use crate::{Common, environment, watch};
use campanile_control::admin::schedule_admin::{CursorResets, RefusedReset, ScheduleDefinition};
use campanile_control::order::Order;
use campanile_control::orders::definition::{AddSchedule, Definition, RemoveSchedule};
use campanile_control::orders::schedules::{Pause, ResetCursor, ResetCursors, Resume};
use campanile_control::questions::schedules::{GetSchedule, ListSchedules};
use campanile_control::records::schedule::{self, ChangeReport};
use campanile_control::schedules::definition::policies;
use campanile_model::clock::Timestamp;
use campanile_model::json_text::{JsonObject, JsonText};
use campanile_model::time_text::GivenTime;
use campanile_package::spec::TIMEZONE_DEFAULT;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{RuleKind, RuleText};
use definition::DefinitionOptions;
use import::Import;

/// The usage line of `add`.
const ADD_USAGE: &str = "campanile schedule add [OPTIONS] --package <PACKAGE> <NAME>
           <--cron <EXPRESSION>|--every <PERIOD>|--at <TIME>|--after-completion <PERIOD>>";

#[derive(Subcommand)]
pub(crate) enum Schedule {
    /// Add a schedule
    #[command(override_usage = ADD_USAGE)]
    Add(Box<Add>),
    /// Change the given parts of a schedule; unfinished launches keep the revision they were decided with
    Edit(Box<edit::Edit>),
    /// Rename a schedule; it keeps its slots and its launches
    Rename(edit::Rename),
    /// Skip one future slot of a schedule, or restore it
    Skip(edit::Skip),
    /// List schedules by name
    #[command(arg = watch::arg())]
    List {
        #[command(flatten)]
        question: ListSchedules,
        /// The most entries to list
        #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(i64).range(1..=100_000))]
        limit: i64,
    },
    /// Show one schedule with its newest launches
    #[command(arg = watch::arg())]
    Show {
        /// The schedule's name
        name: String,
    },
    /// List the next slots of a schedule
    Next(Next),
    /// Pause a schedule: no slot is decided until it is resumed, unfinished launches continue
    Pause {
        /// The schedule's name
        name: String,
        #[command(flatten)]
        order: Pause,
        #[command(flatten)]
        by: By,
    },
    /// Resume a paused schedule from now on
    Resume {
        /// The schedule's name
        name: String,
        #[command(flatten)]
        order: Resume,
        #[command(flatten)]
        by: By,
    },
    /// Reset the cursor of a schedule that a wrong clock has moved ahead; slots on record are not launched again
    ResetCursor {
        /// The schedule's name
        #[arg(required_unless_present = "all")]
        name: Option<String>,
        /// Reset each cursor that is ahead of the clock; exit code 1 when one of them cannot be reset
        #[arg(long, conflicts_with = "name")]
        all: bool,
        #[command(flatten)]
        order: ResetCursor,
        #[command(flatten)]
        by: By,
    },
    /// Remove a schedule; its launches stay on record
    Remove {
        /// The schedule's name
        name: String,
    },
    /// Launch a schedule now, in addition to its slots
    Trigger(trigger::TriggerOptions),
    /// Launch the slots of a past time span, and follow the progress until all have ended
    Backfill(Box<backfill::Request>),
    /// Explain why a slot was launched or not, and how it ended
    Why(why::Why),
    /// Show what a schedules file would change; exit code 1 when one of its schedules would be refused
    Check(check::Check),
    /// Add, change and remove schedules until they are those of a schedules file; a host does this by itself
    Reconcile(reconcile::Reconcile),
    /// Import schedules from a crontab
    #[command(subcommand)]
    Import(Import),
}

/// The person who gives a command.
#[derive(Args)]
pub(crate) struct By {
    /// Your name, for the record; with --server it is the token's
    #[arg(
        long,
        env = environment::USER,
        default_value = "the operator",
        value_name = "NAME"
    )]
    pub by: String,
}

#[derive(Args)]
pub(crate) struct Next {
    /// The schedule's name
    name: String,
    /// List the slots after this time instead of those from now on
    #[arg(long, value_name = "TIME")]
    after: Option<GivenTime>,
    #[command(flatten)]
    count: SlotCount,
    /// Show the slots in a calendar of months
    #[arg(long, conflicts_with = "limit")]
    calendar: bool,
    #[command(flatten)]
    months: Months,
}

#[derive(Args)]
#[command(group = ArgGroup::new("rule").required(true).args(["cron", "every", "at", "after_completion"]))]
#[command(mut_arg("package", |package| package.required(true)))]
pub(crate) struct Add {
    /// The name of the new schedule
    name: String,
    #[command(flatten)]
    definition: DefinitionOptions,
    /// Add it paused: `schedule resume` starts it
    #[arg(long)]
    disabled: bool,
}

/// Read a context given as JSON or as `@FILE`.
pub(crate) fn read_context(text: Option<&str>) -> Result<Option<JsonObject>> {
    let Some(text) = text else { return Ok(None) };
    let (text, place) = match text.strip_prefix('@') {
        Some(path) => {
            let read = std::fs::read_to_string(path);
            let place = format_args!("--context {path}");
            let read = read.map_err(|error| Failure::unreadable(place, &error))?;
            (read, path)
        }
        None => (text.to_owned(), "--context"),
    };
    match serde_json::from_str::<JsonText>(&text).map(|json| serde_json::from_str(json.as_str())) {
        Ok(Ok(context)) => Ok(Some(context)),
        Ok(Err(_)) => Err(refused!("{place}: the context must be a JSON object")
            .hint(r#"write it as {"key": "value"}"#)),
        Err(error) => Err(refused!("{place}: not JSON: {error}")
            .hint(r#"write it as {"key": "value"}, or @FILE to read a file"#)),
    }
}

impl Schedule {
    pub async fn run(self, common: &Common) -> Result {
        match self {
            Schedule::Add(add) => self::add(common, *add).await,
            Schedule::Edit(edit) => self::edit::edit(common, *edit).await,
            Schedule::Rename(rename) => self::edit::rename(common, &rename).await,
            Schedule::Skip(skip) => self::edit::skip(common, &skip).await,
            Schedule::List { question, limit } => common.print_some(question, limit).await,
            Schedule::Show { name } => common.print_answer(&name, &GetSchedule {}).await,
            Schedule::Next(command) => next(common, &command).await,
            Schedule::Pause { name, order, by } => change(common, &name, &order, &by).await,
            Schedule::Resume { name, order, by } => change(common, &name, &order, &by).await,
            Schedule::ResetCursor {
                name: None,
                order,
                by,
                ..
            } => reset_cursors(common, order.to, &by).await,
            Schedule::ResetCursor {
                name: Some(name),
                order,
                by,
                ..
            } => change(common, &name, &order, &by).await,
            Schedule::Remove { name } => {
                let order = RemoveSchedule::default();
                print_change(common, &common.order(&name, &order, "").await?)
            }
            Schedule::Trigger(options) => options.run(common).await,
            Schedule::Backfill(request) => request.run(common).await,
            Schedule::Why(command) => command.run(common).await,
            Schedule::Check(command) => command.run(common).await,
            Schedule::Reconcile(command) => command.run(common).await,
            Schedule::Import(Import::Crontab(crontab)) => crontab.run(common).await,
        }
    }
}

async fn add(common: &Common, add: Add) -> Result {
    let changes = add.definition.parse(TIMEZONE_DEFAULT)?;
    let mut wanted = ScheduleDefinition {
        name: add.name,
        package: String::new(),
        task: None,
        rule: RuleText::new(RuleKind::Cron, "", TIMEZONE_DEFAULT),
        policies: Policies::default(),
        args: None,
        context: JsonObject::new(),
        enabled: !add.disabled,
    };
    changes.apply_to(&mut wanted);
    let order = AddSchedule(Definition::of_new(wanted));
    common.print(&common.order("", &order, "").await?)
}

async fn change<O: Order<Output = ChangeReport<'static>>>(
    common: &Common,
    name: &str,
    order: &O,
    by: &By,
) -> Result {
    print_change(common, &common.order(name, order, &*by.by).await?)
}

impl Record for CursorResets {
    fn print(&self) -> Result {
        for name in &self.reset {
            output::print_line!("reset {name}")?;
        }
        for RefusedReset { schedule, why } in &self.refused {
            output::print_line!("refused {schedule}: {why}")?;
        }
        Ok(())
    }
}

/// Resets all cursors ahead of the clock, one transaction at a time.
async fn reset_cursors(common: &Common, to: Option<GivenTime>, by: &By) -> Result {
    let mut all = CursorResets::default();
    let mut after = Some(String::new());
    while let Some(name) = after {
        let order = ResetCursors { to, after: name };
        let some = common.order("", &order, &*by.by).await?;
        all.reset.extend(some.reset);
        all.refused.extend(some.refused);
        after = some.next;
    }
    common.print(&all)?;
    if all.reset.is_empty() && all.refused.is_empty() {
        output::print_message("no cursor is ahead of the clock: nothing was reset");
    }
    output::check(all.refused.is_empty())
}

fn print_change(common: &Common, report: &ChangeReport<'_>) -> Result {
    common.print_report(report, &format!("{} {}", report.done, report.schedule))
}

async fn next(common: &Common, command: &Next) -> Result {
    let Next { name, count, .. } = command;
    let source = common.source().await?;
    let detail = source.page(name, &GetSchedule {}).await?.answer;
    let (row, now) = (detail.schedule.schedule.into_row(), source.now);
    let rule = schedule::rule(&row)?;
    let policies = policies(&row.definition).unwrap_or_default();
    let skips = schedule::skips(&row);
    let decided = row.state.cursor_at.max(now);
    let after = command.after.map_or(decided, |after| after.0);
    let slots = schedule::slots(
        &row,
        &rule,
        &policies,
        command.after.map(|after| after.0),
        now,
    );
    let is_kept = |slot: &Timestamp| !skips.contains(slot);
    if command.calendar {
        let kept = slots.filter(is_kept);
        command.months.print(&rule, kept, after, common.json)?;
    } else if common.json {
        output::print_json(&count.take(slots.filter(is_kept)))?;
    } else {
        slots::print(&rule, &count.take(slots), &skips)?;
    }
    if common.json {
        return Ok(());
    }
    if let Some(when) = schedule::without_slots(&rule) {
        output::print_message(&match row.state.next_slot {
            Some(slot) => format!("{when}; its next slot is {slot}"),
            None => when,
        });
    }
    if !row.state.enabled {
        output::print_message!("`{name}` is paused: it does not launch until it is resumed");
    }
    Ok(())
}
