//! `campanile schedule`: define when packages are launched.
//!
//! The commands change the database directly; a host that serves it notices within a second.

pub(crate) mod backfill;
pub(crate) mod check;
pub(crate) mod edit;
pub(crate) mod import;
pub(crate) mod record;
mod why;

use std::path::Path;
use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value};

use super::calendar::Months;
use super::policy::PolicyOptions;
use super::rule::RuleOptions;
use super::slots::{self, SlotCount};
use crate::Common;
use crate::output::{self, Failure};
use campanile_engine::schedule_admin::{
    self, ScheduleDefinition, ScheduleError, Trigger, Triggered,
};
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_schedule::policy::{Overlap, OverlapDecision};
use campanile_schedule::rule::{Rule, Warning};
use campanile_store::launches;
use campanile_store::schedules::{self, Pause};
use campanile_store::{Decision, Origin, Tx};
use record::{NewSchedule, ScheduleDetail, ScheduleRecord};

/// The number of launches that are shown with a schedule.
const LAUNCHES_SHOWN: i64 = 10;

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
    /// List all schedules
    List,
    /// Show one schedule with its newest launches
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
        /// Why, for the record
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
        /// Resume by itself at this time, such as 2027-01-31T08:00:00Z
        #[arg(long, value_name = "TIME")]
        until: Option<Timestamp>,
        #[command(flatten)]
        by: By,
    },
    /// Resume a paused schedule from now on
    Resume {
        /// The schedule's name
        name: String,
        /// Apply the schedule's catch-up policy to the slots of the pause
        #[arg(long)]
        catch_up: bool,
        #[command(flatten)]
        by: By,
    },
    /// Remove a schedule; its launches stay on record
    Remove {
        /// The schedule's name
        name: String,
    },
    /// Launch a schedule now, in addition to its slots
    Trigger {
        /// The schedule's name
        name: String,
        /// Context merged over the schedule's: a JSON object, or @FILE
        #[arg(long, value_name = "JSON|@FILE")]
        context: Option<String>,
        /// The overlap policy of this launch [default: the schedule's]
        #[arg(long, value_name = "POLICY", value_parser = Overlap::read)]
        overlap: Option<Overlap>,
    },
    /// Launch the slots of a past time span, and follow the progress until all have ended
    Backfill(Box<backfill::Request>),
    /// Explain why a slot was launched or not, and how it ended
    Why(why::Why),
    /// Show what a schedules file would change; exit code 1 when one of its schedules would be refused
    Check(check::Check),
    /// Import schedules from a crontab
    #[command(subcommand)]
    Import(import::Import),
}

/// The person who gives a command.
#[derive(Args)]
pub(crate) struct By {
    /// Your name, for the record
    #[arg(
        long,
        env = "USER",
        default_value = "the operator",
        value_name = "NAME"
    )]
    pub by: String,
}

#[derive(Args)]
pub(crate) struct Next {
    /// The schedule's name
    name: String,
    #[command(flatten)]
    count: SlotCount,
    /// Show the slots in a calendar of months
    #[arg(long, conflicts_with = "n")]
    calendar: bool,
    #[command(flatten)]
    months: Months,
}

#[derive(Args)]
#[command(group = ArgGroup::new("rule").required(true).args(["cron", "every", "at", "after_completion"]))]
pub(crate) struct Add {
    /// The name of the new schedule
    name: String,
    /// The package to launch: its file name without .wasm
    #[arg(long)]
    package: String,
    /// Run only this task and the tasks it depends on
    #[arg(long)]
    task: Option<String>,
    /// Five fields (minute hour day-of-month month day-of-week), six with seconds first, or @daily etc.
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    #[command(flatten)]
    rule: RuleOptions,
    /// The context of the tasks: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    context: Option<String>,
    #[command(flatten)]
    policies: PolicyOptions,
}

/// The result of a command that changes a schedule.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ChangeReport<'a> {
    schedule: &'a str,
    /// `paused`, `resumed` or `removed`.
    done: &'static str,
}

/// The result of `schedule trigger`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct TriggerReport<'a> {
    schedule: &'a str,
    launch: LaunchId,
    scheduled_time: Timestamp,
    decision: Decision,
    /// The unfinished launch because of which this one is skipped.
    overlaps: Option<LaunchId>,
}

/// Read a context given as JSON or as `@FILE`.
pub(crate) fn read_context(text: Option<&str>) -> Result<Option<Map<String, Value>>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let (text, place) = match text.strip_prefix('@') {
        Some(path) => {
            let read = std::fs::read_to_string(Path::new(path))
                .map_err(|error| Failure::refused(format!("--context {path}: {error}")))?;
            (read, path.to_owned())
        }
        None => (text.to_owned(), "--context".to_owned()),
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(context)) => Ok(Some(context)),
        Ok(_) => Err(
            Failure::refused(format!("{place}: the context must be a JSON object"))
                .hint(r#"write it as {"key": "value"}"#),
        ),
        Err(error) => Err(Failure::refused(format!("{place}: not JSON: {error}"))
            .hint(r#"write it as {"key": "value"}, or @FILE to read a file"#)),
    }
}

impl Add {
    fn wanted(self) -> Result<ScheduleDefinition, Failure> {
        let policies = self.policies.parse()?.policies;
        Ok(ScheduleDefinition {
            name: self.name,
            package: self.package,
            task: self.task,
            rule: self.rule.rule(self.cron)?,
            policies,
            context: read_context(self.context.as_deref())?.unwrap_or_default(),
        })
    }
}

impl Schedule {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        match self {
            Schedule::Add(add) => self::add(common, *add).await?,
            Schedule::Edit(edit) => self::edit::edit(common, *edit).await?,
            Schedule::Rename(rename) => self::edit::rename(common, &rename).await?,
            Schedule::Skip(skip) => self::edit::skip(common, &skip).await?,
            Schedule::List => list(common).await?,
            Schedule::Show { name } => show(common, &name).await?,
            Schedule::Next(command) => next(common, &command).await?,
            Schedule::Pause {
                name,
                note,
                until,
                by: By { by },
            } => {
                let pause = Pause {
                    by: &by,
                    note: note.as_deref(),
                    until,
                };
                change(common, &name, "paused", async |tx, now| {
                    schedule_admin::pause(tx, &name, pause, now).await
                })
                .await?;
            }
            Schedule::Resume {
                name,
                catch_up,
                by: By { by },
            } => {
                change(common, &name, "resumed", async |tx, now| {
                    schedule_admin::resume(tx, &name, &by, catch_up, now).await
                })
                .await?;
            }
            Schedule::Remove { name } => {
                change(common, &name, "removed", async |tx, now| {
                    schedule_admin::remove(tx, &name, now).await
                })
                .await?;
            }
            Schedule::Trigger {
                name,
                context,
                overlap,
            } => return trigger(common, &name, context, overlap).await,
            Schedule::Backfill(request) => return request.run(common).await,
            Schedule::Why(command) => command.run(common).await?,
            Schedule::Check(command) => return command.run(common).await,
            Schedule::Import(command) => return command.run(common).await,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn add(common: &Common, add: Add) -> Result<(), Failure> {
    let wanted = add.wanted()?;
    let (db, clock) = common.open_with_clock().await?;
    let now = clock.now();
    schedule_admin::change(&db, async |tx| {
        schedule_admin::add(tx, &wanted, Origin::Operator, now).await
    })
    .await?;
    let mut tx = db.read().await?;
    let row = schedule_admin::find(&mut tx, &wanted.name).await?;
    let rule = record::rule(&row)?;
    let mut warnings = rule.warnings(now);
    warnings.extend(record::herd_warning(&mut tx, &row).await?);
    let added = NewSchedule {
        schedule: ScheduleRecord::new(row),
        notes: rule.notes().to_vec(),
        warnings,
    };
    if common.json {
        return output::print_json(&added);
    }
    output::print_line(&format!(
        "added {}: {}, {}",
        wanted.name,
        added.schedule.rule_text,
        added.schedule.next_text()
    ))?;
    if let Some(when) = slots::without_slots(&rule) {
        output::print_message(&when);
    }
    for note in added.notes {
        output::print_message(&format!("note: {note}"));
    }
    for Warning { message, hint, .. } in added.warnings {
        output::print_message(&format!("warning: {message}; {hint}"));
    }
    Ok(())
}

async fn change(
    common: &Common,
    name: &str,
    done: &'static str,
    order: impl AsyncFn(&mut Tx, Timestamp) -> Result<(), ScheduleError>,
) -> Result<(), Failure> {
    let (db, clock) = common.open_with_clock().await?;
    let now = clock.now();
    schedule_admin::change(&db, async |tx| order(tx, now).await).await?;
    let report = ChangeReport {
        schedule: name,
        done,
    };
    output::print_report(&report, &format!("{done} {name}"), common.json)
}

async fn trigger(
    common: &Common,
    name: &str,
    context: Option<String>,
    overlap: Option<Overlap>,
) -> Result<ExitCode, Failure> {
    let own = read_context(context.as_deref())?;
    let (db, clock) = common.open_with_clock().await?;
    let now = clock.now();
    let trigger = Trigger {
        context: own.as_ref(),
        overlap,
    };
    let Triggered { launch, turn } = schedule_admin::change(&db, async |tx| {
        schedule_admin::trigger(tx, name, trigger, now).await
    })
    .await?;
    let (decision, overlaps, text) = match turn {
        OverlapDecision::Start => (
            Decision::Launched,
            None,
            format!("triggered {name}: launch {launch}"),
        ),
        OverlapDecision::Queue => (
            Decision::Queued,
            None,
            format!("triggered {name}: launch {launch} is queued behind an unfinished launch"),
        ),
        OverlapDecision::Skip(other) => (
            Decision::Skipped,
            Some(other),
            format!("skipped {name}: launch {launch} overlaps launch {other}, which is unfinished"),
        ),
    };
    let report = TriggerReport {
        schedule: name,
        launch,
        scheduled_time: now,
        decision,
        overlaps,
    };
    output::print_report(&report, &text, common.json)?;
    if overlaps.is_some() {
        output::print_message(
            "hint: `--overlap allow` launches it anyway, `--overlap buffer_all` queues it",
        );
    }
    Ok(output::exit_code(overlaps.is_none()))
}

async fn list(common: &Common) -> Result<(), Failure> {
    let db = common.open().await?;
    let mut tx = db.read().await?;
    let rows = schedules::list(&mut tx, None, None).await?;
    let records: Vec<ScheduleRecord> = rows.into_iter().map(ScheduleRecord::new).collect();
    output::print_list(&records, common.json)
}

async fn show(common: &Common, name: &str) -> Result<(), Failure> {
    let (db, clock) = common.open_with_clock().await?;
    let mut tx = db.read().await?;
    let row = schedule_admin::find(&mut tx, name).await?;
    // A rule that this version cannot read is shown as it is stored.
    let rule = record::rule(&row).ok();
    let policies = record::policies(&row).ok();
    let defaults = common.config()?.late.defaults();
    let detail = ScheduleDetail {
        explanation: rule.as_ref().map(Rule::explanation),
        notes: rule
            .as_ref()
            .map_or_else(Vec::new, |rule| rule.notes().to_vec()),
        warnings: rule.map_or_else(Vec::new, |rule| rule.warnings(clock.now())),
        effective_policies: policies
            .map(|policies| record::effective_policies(&policies, &defaults)),
        launches: launches::of_schedule(&mut tx, row.state.id, LAUNCHES_SHOWN).await?,
        schedule: ScheduleRecord::new(row),
    };
    output::print_record(&detail, common.json)
}

async fn next(common: &Common, command: &Next) -> Result<(), Failure> {
    let Next { name, count, .. } = command;
    let (db, clock) = common.open_with_clock().await?;
    let row = schedule_admin::find(&mut db.read().await?, name).await?;
    let rule = record::rule(&row)?;
    let policies = record::policies(&row).unwrap_or_default();
    let skips = record::skips(&row);
    let after = row.state.cursor_at.max(clock.now());
    let slots = record::slots(&row, &rule, &policies, after);
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
    if let Some(when) = slots::without_slots(&rule) {
        output::print_message(&match row.state.next_slot {
            Some(slot) => format!("{when}; its next slot is {slot}"),
            None => when,
        });
    }
    if !row.state.enabled {
        output::print_message(&format!(
            "`{name}` is paused: it does not launch until it is resumed"
        ));
    }
    Ok(())
}
