//! The bodies of requests. Each key has the name that it has in the answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use campanile_control::verify::Checkpoint;
use campanile_model::access::Role;
use campanile_model::clock::Timestamp;
use campanile_model::ids::BackfillId;
use campanile_model::json_text::JsonObject;
use campanile_model::namespace::Namespace;
use campanile_model::rule_text::{DayMatch, DstFold, DstGap, RuleKind, RuleText};
use campanile_package::ScheduleDefinition;
use campanile_schedule::policy::Policies;

/// The definition of a schedule.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub name: String,
    /// The package to launch: its file name without .wasm.
    pub package: String,
    /// Launch only this task and the tasks that it depends on.
    #[serde(default)]
    pub task: Option<String>,
    /// How to read the expression.
    pub kind: RuleKind,
    /// Such as `0 2 * * *`, `10s` or `2026-11-21T09:00:00+01:00`.
    pub expression: String,
    /// The instant from which periods are counted.
    #[serde(default)]
    pub anchor: Option<Timestamp>,
    /// The IANA name of the zone whose clock the rule follows.
    #[serde(default = "utc")]
    pub timezone: String,
    #[serde(default)]
    pub day_match: DayMatch,
    #[serde(default)]
    pub dst_gap: DstGap,
    #[serde(default)]
    pub dst_fold: DstFold,
    /// Local times to leave out, such as `12-25`.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// The policies that are set, by name.
    #[serde(default)]
    #[schemars(with = "Map<String, Value>")]
    pub policies: Policies,
    /// The arguments of a program, each a template; null for those of the sidecar.
    #[serde(default)]
    pub args: Option<Vec<String>>,
    #[serde(default)]
    #[schemars(with = "Map<String, Value>")]
    pub context: JsonObject,
    /// Only for a new schedule: whether it is added paused.
    #[serde(default)]
    pub disabled: bool,
}

fn utc() -> String {
    campanile_package::spec::TIMEZONE_DEFAULT.to_owned()
}

impl From<Definition> for ScheduleDefinition {
    fn from(body: Definition) -> ScheduleDefinition {
        ScheduleDefinition {
            name: body.name,
            package: body.package,
            task: body.task,
            rule: RuleText {
                kind: body.kind,
                expression: body.expression,
                anchor: body.anchor,
                timezone: body.timezone,
                day_match: body.day_match,
                dst_gap: body.dst_gap,
                dst_fold: body.dst_fold,
                exclude: body.exclude,
            },
            policies: body.policies,
            args: body.args,
            context: body.context,
            enabled: !body.disabled,
        }
    }
}

impl From<ScheduleDefinition> for Definition {
    fn from(current: ScheduleDefinition) -> Definition {
        let rule = current.rule;
        Definition {
            name: current.name,
            package: current.package,
            task: current.task,
            kind: rule.kind,
            expression: rule.expression,
            anchor: rule.anchor,
            timezone: rule.timezone,
            day_match: rule.day_match,
            dst_gap: rule.dst_gap,
            dst_fold: rule.dst_fold,
            exclude: rule.exclude,
            policies: current.policies,
            args: current.args,
            context: current.context,
            disabled: false,
        }
    }
}

impl Definition {
    /// Return the definition of a schedule to add.
    pub fn of_new(wanted: ScheduleDefinition) -> Definition {
        Definition {
            disabled: !wanted.enabled,
            ..Definition::from(wanted)
        }
    }
}

/// The schedules of a file.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulesFile {
    pub schedules: Vec<Definition>,
}

/// Where to reset the cursors to that are ahead of the clock.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetCursors {
    /// Decide the slots after this time; now without it.
    pub to: Option<Timestamp>,
    /// Look at the schedules whose names come after this one.
    #[serde(default)]
    pub after: String,
}

/// A token.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// The name under which its changes are recorded.
    pub name: String,
    pub role: Role,
    /// The only namespace that it sees; it sees the whole installation without it.
    pub namespace: Option<Namespace>,
    /// How long it is accepted, such as `90d`; it does not expire without it.
    pub expires: Option<String>,
}

/// Alerts about which no channel gets a message.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSilence {
    /// Only alerts of schedules, hosts or packages with this name; `*` stands for any characters.
    pub subject: Option<String>,
    /// Only alerts of rules with this name; `*` stands for any characters.
    pub rule: Option<String>,
    /// How long, such as `2h`.
    #[serde(rename = "for")]
    pub span: String,
    pub note: Option<String>,
}

/// How long the tasks of a run have to end by themselves.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// A span such as `30s`. Without it, `cancel_grace` of the schedule.
    pub grace: Option<String>,
}

/// A decision about a version.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionRequest {
    /// The first digits of the version's digest.
    pub digest: Option<String>,
    /// Why, for the record.
    pub note: Option<String>,
}

/// A backfill.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backfill {
    pub schedule: String,
    /// The first time that may be a slot.
    pub from: Timestamp,
    /// The last time that may be a slot.
    pub to: Timestamp,
    /// An id of your choice: the same request again launches nothing twice.
    pub id: Option<BackfillId>,
    /// The least time between two launches, such as `10s`.
    pub spread: Option<String>,
    /// Also launch slots that succeeded, are unfinished, or were skipped by a person.
    #[serde(default)]
    pub force: bool,
    #[schemars(with = "Option<Map<String, Value>>")]
    pub context: Option<JsonObject>,
    /// Confirm a backfill of more than 100,000 slots.
    #[serde(default)]
    pub yes: bool,
}

/// A schedules file to compare, or to apply.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedFile {
    /// The name of the file, for the record and for messages.
    pub file: String,
    pub schedules: Vec<Definition>,
}

/// What to verify of the record.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// Slots and decisions from this time on; from the beginning of the record without it.
    pub from: Option<Timestamp>,
    /// Slots and decisions up to this time; up to now without it.
    pub to: Option<Timestamp>,
    /// A checkpoint of this database: the chain must still have it.
    pub checkpoint: Option<Checkpoint>,
}

/// A change of many schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BulkChange {
    Pause,
    Resume,
}

/// Which schedules a change of many is for.
pub(crate) struct BulkFilter {
    pub q: Option<String>,
    pub state: Option<String>,
}

/// A count of the schedules that a change would touch.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkQuery {
    /// Only those whose name, package, rule or note has this text.
    q: Option<String>,
    /// Only those in this state: `enabled`, `paused` or `ended`.
    state: Option<String>,
    pub change: BulkChange,
}

/// Why many schedules are paused, and until when.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkPause {
    /// Only those whose name, package, rule or note has this text.
    q: Option<String>,
    /// Only those in this state: `enabled` or `ended`.
    state: Option<String>,
    /// How many the client has counted. With another number nothing is changed.
    pub count: usize,
    pub note: Option<String>,
    /// When they resume by themselves.
    pub until: Option<Timestamp>,
}

/// How many schedules are resumed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkResume {
    /// Only those whose name, package, rule or note has this text.
    q: Option<String>,
    /// Only those in this state: `paused`.
    state: Option<String>,
    /// How many the client has counted. With another number nothing is changed.
    pub count: usize,
    /// Apply the catch-up policy to the slots of the pause.
    #[serde(default)]
    pub catch_up: bool,
}

/// Give bodies the filter that they have.
macro_rules! filters {
    ($($body:ident)*) => {$(
        impl $body {
            pub(crate) fn filter(&self) -> BulkFilter {
                BulkFilter {
                    q: self.q.clone(),
                    state: self.state.clone(),
                }
            }
        }
    )*};
}

filters!(BulkQuery BulkPause BulkResume);
