//! Orders concerning schedules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::admin::schedule_admin::{self, CursorReset, CursorResets};
use crate::bounds::Note;
use crate::order::{Desk, Endpoint, Order, Scope};
use crate::problem::Problem;
use crate::records::launch::TriggerReport;
use crate::records::schedule::{ChangeReport, RenameReport, SkipReport};
use campanile_model::access::Role;
use campanile_model::json_text::JsonObject;
use campanile_model::time_text::GivenTime;
use campanile_schedule::policy::Overlap;
use campanile_store::{Tx, schedules};

/// Returns the endpoint of an order about one schedule.
const fn endpoint(
    id: &'static str,
    path: &'static str,
    role: Role,
    summary: &'static str,
) -> Endpoint {
    Endpoint::post(id, path, (role, Scope::Named), summary)
}

fn changed(schedule: &str, done: &'static str) -> ChangeReport<'static> {
    ChangeReport {
        schedule: schedule.to_owned().into(),
        done: done.into(),
    }
}

/// Why a schedule is paused, and until when.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// Why, for the record
    #[cfg_attr(feature = "clap", arg(long, value_name = "TEXT"))]
    pub note: Option<Note>,
    /// Resume by itself at this time, such as 2027-01-31T08:00:00Z
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub until: Option<GivenTime>,
}

impl Order for Pause {
    type Output = ChangeReport<'static>;

    const ENDPOINT: Endpoint = endpoint(
        "pause_schedule",
        "/api/v1/schedules/{name}/pause",
        Role::Operator,
        "Pause a schedule",
    );

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let pause = schedules::Pause {
            by: desk.by,
            note: self.note.as_deref(),
            until: self.until.map(|until| until.0),
        };
        schedule_admin::pause(tx, name, pause, desk.now).await?;
        Ok(changed(name, "paused"))
    }
}

/// How a schedule is resumed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// Apply the schedule's catch-up policy to the slots of the pause
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default)]
    pub catch_up: bool,
}

impl Order for Resume {
    type Output = ChangeReport<'static>;

    const ENDPOINT: Endpoint = endpoint(
        "resume_schedule",
        "/api/v1/schedules/{name}/resume",
        Role::Operator,
        "Resume a paused schedule from now on",
    );

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        schedule_admin::resume(tx, name, desk.by, self.catch_up, desk.now).await?;
        Ok(changed(name, "resumed"))
    }
}

/// Where to reset a cursor to.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct ResetCursor {
    /// Decide the slots after this time, such as 2027-01-31T08:00:00Z [default: now]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub to: Option<GivenTime>,
}

impl Order for ResetCursor {
    type Output = ChangeReport<'static>;

    const ENDPOINT: Endpoint = endpoint(
        "reset_cursor",
        "/api/v1/schedules/{name}/reset-cursor",
        Role::Editor,
        "Reset a cursor that a wrong clock has moved ahead",
    );

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let reset = CursorReset {
            to: self.to.map(|to| to.0),
            by: desk.by,
        };
        schedule_admin::reset_cursor(tx, name, reset, desk.now).await?;
        Ok(changed(name, "reset"))
    }
}

/// A new name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The new name
    #[cfg_attr(feature = "clap", arg(id = "new", value_name = "NEW"))]
    pub name: String,
}

impl Order for Rename {
    type Output = RenameReport<'static>;

    const ENDPOINT: Endpoint = endpoint(
        "rename_schedule",
        "/api/v1/schedules/{name}/rename",
        Role::Editor,
        "Rename a schedule",
    );

    async fn run(&self, old: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        Ok(RenameReport {
            revision: schedule_admin::rename(tx, old, &self.name, desk.now).await?,
            schedule: self.name.clone().into(),
            was: old.to_owned().into(),
            done: "renamed".into(),
        })
    }

    fn revision(report: &Self::Output) -> Option<i64> {
        Some(report.revision)
    }
}

/// A slot to skip.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct Skip {
    /// A future slot, as `schedule next` shows it, such as 2027-01-31T08:00:00Z
    #[cfg_attr(feature = "clap", arg(id = "slot", value_name = "SLOT"))]
    pub scheduled_time: GivenTime,
    /// Restore the slot
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default)]
    pub undo: bool,
}

impl Order for Skip {
    type Output = SkipReport<'static>;

    const ENDPOINT: Endpoint = endpoint(
        "skip_slot",
        "/api/v1/schedules/{name}/skip",
        Role::Operator,
        "Skip one future slot of a schedule, or restore it",
    );

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let skip = schedule_admin::Skip {
            slot: self.scheduled_time.0,
            by: desk.by,
            undo: self.undo,
        };
        schedule_admin::skip(tx, name, skip, desk.now).await?;
        let done = if self.undo { "restored" } else { "skipped" };
        Ok(SkipReport {
            schedule: name.to_owned().into(),
            scheduled_time: self.scheduled_time.0,
            done: done.into(),
        })
    }
}

/// A launch now.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// Merged over the schedule's.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub context: Option<JsonObject>,
    /// The arguments of a program, in place of the schedule's.
    pub args: Option<Vec<String>>,
    /// The overlap policy of this launch, in place of the schedule's.
    pub overlap: Option<Overlap>,
}

impl Order for Trigger {
    type Output = TriggerReport;

    const ENDPOINT: Endpoint = endpoint(
        "trigger_schedule",
        "/api/v1/schedules/{name}/trigger",
        Role::Operator,
        "Launch a schedule now, in addition to its slots",
    );

    fn needs(&self) -> Option<(Role, &'static str)> {
        let has_own = self.context.is_some() || self.args.is_some() || self.overlap.is_some();
        has_own.then_some((
            Role::Editor,
            "a trigger with a context, arguments or an overlap policy of its own",
        ))
    }

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let trigger = schedule_admin::Trigger {
            context: self.context.as_ref(),
            args: self.args.as_deref(),
            overlap: self.overlap,
            caller_traceparent: desk.caller,
        };
        let triggered = schedule_admin::trigger(tx, name, trigger, desk.now).await?;
        Ok(TriggerReport::new(name.to_owned(), desk.now, triggered))
    }
}

/// Where to reset the cursors to that are ahead of the clock.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetCursors {
    /// Decide the slots after this time; now without it.
    pub to: Option<GivenTime>,
    /// Look at the schedules whose names come after this one.
    #[serde(default)]
    pub after: String,
}

impl Order for ResetCursors {
    type Output = CursorResets;

    const ENDPOINT: Endpoint = Endpoint::post(
        "reset_cursors",
        "/api/v1/bulk/reset-cursors",
        (Role::Editor, Scope::Installation),
        "Reset the cursors that are ahead of the clock, up to 500 with one request",
    )
    .cost(20);

    async fn run(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let reset = CursorReset {
            to: self.to.map(|to| to.0),
            by: desk.by,
        };
        Ok(schedule_admin::reset_cursors(tx, &self.after, reset, desk.now).await?)
    }
}
