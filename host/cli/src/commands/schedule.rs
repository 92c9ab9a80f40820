//! `campanile schedule`: say when packages are launched.
//!
//! Works on the database directly, also while a host serves it: the host notices within a second.

mod backfill;
pub(crate) mod check;
mod edit;
mod import;
mod shown;
mod why;

use std::path::Path;
use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Map, Value, json};

use super::calendar::Months;
use super::explain;
use super::policy::PolicyOptions;
use super::rule::RuleOptions;
use super::slots::{self, Number};
use crate::Common;
use crate::output::{self, Failure, cell};
use campanile_engine::schedule_admin::{self, ScheduleError, Trigger, Triggered, Wanted};
use campanile_model::clock::Timestamp;
use campanile_model::text::printable;
use campanile_schedule::policy::{Overlap, Turn};
use campanile_schedule::rule::Rule;
use campanile_store::launches;
use campanile_store::schedules::{self, Pause};
use campanile_store::{Decision, Origin, Tx};

/// Launches shown with a schedule.
const LAUNCHES_SHOWN: i64 = 10;

/// How the arguments of `add` are shown.
const ADD_USAGE: &str = "campanile schedule add [OPTIONS] --package <PACKAGE> <NAME>
           <--cron <EXPRESSION>|--every <PERIOD>|--at <TIME>|--after-completion <PERIOD>>";

#[derive(Subcommand)]
pub(crate) enum Schedule {
    /// Add a schedule
    #[command(override_usage = ADD_USAGE)]
    Add(Box<Add>),
    /// Change what is given of a schedule; what runs or waits keeps what it was decided with
    Edit(Box<edit::Edit>),
    /// Call a schedule something else; it keeps its slots and its launches
    Rename(edit::Rename),
    /// Take one slot out of a schedule, or put it back
    Skip(edit::Skip),
    /// All schedules
    List,
    /// One schedule with its newest launches
    Show {
        /// The schedule's name
        name: String,
    },
    /// The next slots of a schedule
    Next(Next),
    /// Decide no more slots until it is resumed; what runs, runs on
    Pause {
        /// The schedule's name
        name: String,
        /// Why, for those who come after you
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
        /// When it resumes by itself, such as 2027-01-31T08:00:00Z
        #[arg(long, value_name = "TIME")]
        until: Option<Timestamp>,
        #[command(flatten)]
        by: By,
    },
    /// Decide slots again, from now on
    Resume {
        /// The schedule's name
        name: String,
        /// Decide the slots of the pause like others that were missed, by the schedule's catch-up policy
        #[arg(long)]
        catch_up: bool,
        #[command(flatten)]
        by: By,
    },
    /// End a schedule for good; its launches stay on the record
    Remove {
        /// The schedule's name
        name: String,
    },
    /// Launch a schedule now, besides its slots
    Trigger {
        /// The schedule's name
        name: String,
        /// Context laid over the schedule's: a JSON object, or @FILE
        #[arg(long, value_name = "JSON|@FILE")]
        context: Option<String>,
        /// What becomes of it while another launch goes on, instead of what the schedule says
        #[arg(long, value_name = "POLICY", value_parser = Overlap::read)]
        overlap: Option<Overlap>,
    },
    /// Launch the slots of a time that is past, and follow that until it is done
    Backfill(Box<backfill::Request>),
    /// Why a slot was launched or not, and what became of it
    Why(why::Why),
    /// Read a schedules file and show what it would change; exit code 1 when one of its schedules would be refused
    Check(check::Check),
    /// Make schedules of a crontab
    #[command(subcommand)]
    Import(import::Import),
}

/// Who does it.
#[derive(Args)]
pub(crate) struct By {
    /// Who does it, for the record
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
    number: Number,
    /// Show them in a calendar of months
    #[arg(long, conflicts_with = "n")]
    calendar: bool,
    #[command(flatten)]
    months: Months,
}

#[derive(Args)]
#[command(group = ArgGroup::new("rule").required(true).args(["cron", "every", "at", "after_completion"]))]
pub(crate) struct Add {
    /// Its name, of your choice
    name: String,
    /// The package to launch: the name of its file without .wasm
    #[arg(long)]
    package: String,
    /// One task with those it depends on, instead of the whole package
    #[arg(long)]
    task: Option<String>,
    /// Five fields, minute hour day-of-month month day-of-week, or six with seconds first, or @daily and the like
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    #[command(flatten)]
    rule: RuleOptions,
    /// Context for the tasks: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    context: Option<String>,
    #[command(flatten)]
    policies: PolicyOptions,
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
    fn wanted(self) -> Result<Wanted, Failure> {
        let policies = self.policies.read()?.policies;
        Ok(Wanted {
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
    let rule = shown::rule(&row)?;
    let mut warnings = rule.warnings(now);
    warnings.extend(shown::crowd(&mut tx, &row).await?);
    if common.json {
        let mut value = shown::value(&row);
        value["notes"] = json!(rule.notes());
        value["warnings"] = json!(explain::warnings(&warnings));
        return output::json_out(&value);
    }
    output::line(&format!(
        "added {}: {}, next at {}",
        row.definition.name,
        shown::rule_text(&row),
        cell(&row.state.next_slot)
    ))?;
    if let Some(when) = slots::without_clock(&rule) {
        output::talk(&when);
    }
    for note in rule.notes() {
        output::talk(&format!("note: {}", printable(note)));
    }
    for warning in warnings {
        let text = format!("warning: {}; {}", warning.message, warning.hint);
        output::talk(&printable(&text));
    }
    Ok(())
}

async fn change(
    common: &Common,
    name: &str,
    done: &str,
    order: impl AsyncFn(&mut Tx, Timestamp) -> Result<(), ScheduleError>,
) -> Result<(), Failure> {
    let (db, clock) = common.open_with_clock().await?;
    let now = clock.now();
    schedule_admin::change(&db, async |tx| order(tx, now).await).await?;
    if common.json {
        return output::json_out(&json!({ "schedule": name, "done": done }));
    }
    output::line(&format!("{done} {name}"))
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
    let (decision, overlaps) = match turn {
        Turn::Now => (Decision::Launched, None),
        Turn::Later => (Decision::Queued, None),
        Turn::Never(other) => (Decision::Skipped, Some(other)),
    };
    if common.json {
        output::json_out(&json!({
            "schedule": name,
            "launch": launch,
            "scheduled_time": now,
            "decision": decision,
            "overlaps": overlaps,
        }))?;
    } else {
        output::line(&match turn {
            Turn::Now => format!("triggered {name}: launch {launch}"),
            Turn::Later => format!("triggered {name}: launch {launch}, when it is its turn"),
            Turn::Never(other) => {
                format!(
                    "skipped {name}: launch {launch} would overlap launch {other}, which is not over"
                )
            }
        })?;
    }
    if overlaps.is_some() {
        output::talk(
            "hint: `--overlap allow` launches it all the same, `--overlap buffer_all` lets it wait",
        );
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(common: &Common) -> Result<(), Failure> {
    let db = common.open().await?;
    let mut tx = db.read().await?;
    let rows = schedules::list(&mut tx, None, None).await?;
    if common.json {
        return output::json_out(&rows.iter().map(shown::value).collect::<Vec<_>>());
    }
    output::table(
        [
            "SCHEDULE", "PACKAGE", "TASK", "RULE", "ZONE", "FROM", "STATE", "NEXT",
        ],
        rows.into_iter().map(|row| {
            let rule = shown::rule_text(&row);
            let state = shown::state(&row).to_owned();
            [
                row.definition.name,
                row.definition.package,
                cell(&row.definition.task),
                rule,
                row.definition.rule.timezone,
                row.state.origin.to_string(),
                state,
                cell(&row.state.next_slot),
            ]
        }),
    )
}

async fn show(common: &Common, name: &str) -> Result<(), Failure> {
    let (db, clock) = common.open_with_clock().await?;
    let mut tx = db.read().await?;
    let row = schedule_admin::find(&mut tx, name).await?;
    let newest = launches::of_schedule(&mut tx, row.state.id, LAUNCHES_SHOWN).await?;
    if common.json {
        let mut value = shown::value(&row);
        // A rule that this version cannot read is shown as it is stored.
        let rule = shown::rule(&row).ok();
        value["explanation"] = json!(rule.as_ref().map(Rule::explanation));
        value["notes"] = json!(rule.as_ref().map_or(&[][..], Rule::notes));
        let warnings = rule.map_or_else(Vec::new, |rule| rule.warnings(clock.now()));
        value["warnings"] = json!(explain::warnings(&warnings));
        let late = common.config()?.late;
        let policies = shown::policies(&row).ok();
        let in_force = policies.map(|policies| shown::in_force(&policies, &late.defaults()));
        value["policies_in_force"] = json!(in_force);
        value["launches"] = json!(newest);
        return output::json_out(&value);
    }
    let rows = shown::rows(&row);
    let width = rows.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    for (key, value) in rows {
        let key = key.replace('_', " ");
        output::line(&format!("{key:width$} {}", printable(&value)))?;
    }
    output::line("")?;
    output::table(
        ["SLOT", "STATUS", "REASON", "MESSAGE"],
        newest.into_iter().map(|launch| {
            [
                launch.slots_text(&launch.scheduled_local),
                launch.status.to_string(),
                cell(&launch.reason),
                launch.message.unwrap_or_default(),
            ]
        }),
    )
}

async fn next(common: &Common, command: &Next) -> Result<(), Failure> {
    let Next { name, number, .. } = command;
    let (db, clock) = common.open_with_clock().await?;
    let mut tx = db.read().await?;
    let row = schedule_admin::find(&mut tx, name).await?;
    drop(tx);
    let rule = shown::rule(&row)?;
    let policies = shown::policies(&row).unwrap_or_default();
    let skips = shown::skips(&row);
    let after = row.state.cursor_at.max(clock.now());
    let slots = shown::slots(&row, &rule, &policies, after);
    let rings = |slot: &Timestamp| !skips.contains(slot);
    if command.calendar {
        let ringing = slots.filter(rings);
        command.months.print(&rule, ringing, after, common.json)?;
    } else if common.json {
        return output::json_out(&number.of(slots.filter(rings)));
    } else {
        slots::print(&rule, &number.of(slots), &skips)?;
    }
    if common.json {
        return Ok(());
    }
    if let Some(when) = slots::without_clock(&rule) {
        output::talk(&match row.state.next_slot {
            Some(slot) => format!("{when}; its next slot is {slot}"),
            None => when,
        });
    }
    if !row.state.enabled {
        output::talk(&format!(
            "`{name}` is paused: it will not ring until it is resumed"
        ));
    }
    Ok(())
}
