//! The table of all routes. The router and the OpenAPI document are made from it.

use axum::routing::MethodFilter;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

use crate::bulk::{self, BulkCount, BulkReport};
use crate::call::Handler;
use crate::change::order;
use crate::dispatch::Target;
use crate::probes::{self, Probe};
use crate::query::Parameter;
use crate::rate::COSTLY;
use crate::scope::Scope;
use crate::upload::{self, UploadReport};
use crate::{alerts, bodies, control, read, record_audit, schedules_file, stream, tokens};
use campanile_control::alert_admin::{AlertDetail, TestReport};
use campanile_control::calendar::Calendar;
use campanile_control::forecast::report::PlanReport;
use campanile_control::health::Health;
use campanile_control::host_admin::HostReport;
pub use campanile_control::order::Method;
use campanile_control::order::Order;
use campanile_control::orders::Nothing;
use campanile_control::orders::alerts::{EndSilence, ResolveAlert};
use campanile_control::orders::backfills::CancelBackfill;
use campanile_control::orders::hosts::Drain;
use campanile_control::orders::messages::DiscardMessage;
use campanile_control::orders::packages::RemovePackage;
use campanile_control::orders::schedules::{Pause, Rename, ResetCursor, Resume, Skip, Trigger};
use campanile_control::orders::tokens::RevokeToken;
use campanile_control::records::backfill::{BackfillRecord, SurveyReport};
use campanile_control::records::launch::{CancelReport, LaunchDetail, TriggerReport};
use campanile_control::records::package::{DecisionReport, PackageDetail, PackageRecord};
use campanile_control::records::package_diff::DiffReport;
use campanile_control::records::run::{RunDetail, TaskLogs};
use campanile_control::records::schedule::{
    ChangeReport, NewSchedule, ScheduleDetail, ScheduleRecord,
};
use campanile_control::records::schedules_file::FileReport;
use campanile_control::records::top::TopReport;
use campanile_control::schedule_admin::CursorResets;
use campanile_control::statistics::{ScheduleStatistics, Statistics};
use campanile_control::token_admin::{CreatedToken, TokenReport};
use campanile_control::use_statistics::{DayStatistics, PackageStatistics};
use campanile_control::verify::{AuditReport, Checkpoint};
use campanile_control::why::Answer;
use campanile_model::access::{Channel, Role};
use campanile_model::clock::Timestamp;
use campanile_store::alert_messages::AlertMessageRow;
use campanile_store::alerts::{Alert, Silence};
use campanile_store::events::Event;
use campanile_store::launches::LaunchRow;
use campanile_store::outbox::{MessageContent, MessageRow};
use campanile_store::runs::RunRow;

/// Converts a method for axum's router.
pub(crate) fn filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
        Method::Patch => MethodFilter::PATCH,
        Method::Delete => MethodFilter::DELETE,
    }
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    /// Server-sent events.
    Stream,
    /// JSON, or server-sent events if the query asks for them.
    JsonOrStream,
    /// Metrics in Prometheus' text format.
    Metrics,
    /// JSON. The body of the request is the file of a package.
    Upload,
    /// A message of the Model Context Protocol.
    Mcp,
}

impl Route {
    /// Whether an answer is given to the same request of others too, for a moment: a costly read.
    pub(crate) fn is_shared(&self) -> bool {
        self.method == Method::Get && self.cost >= COSTLY
    }

    /// Return the way on which a change comes, for the record.
    pub(crate) fn channel(&self) -> Channel {
        match self.form {
            Form::Mcp => Channel::Mcp,
            _ => Channel::Api,
        }
    }

    pub(crate) fn target(&self) -> Target {
        Target {
            handler: self.handler,
            scope: self.scope,
            cost: self.cost,
            is_shared: self.is_shared(),
            // A host does one verification at a time, and each call of a tool waits for a turn.
            has_own_turn: self.form == Form::Mcp || self.id == "verify_record",
        }
    }
}

/// Return the schema of a type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One route.
pub struct Route {
    /// The name of the operation, for generated clients.
    pub id: &'static str,
    pub method: Method,
    pub path: &'static str,
    /// The least role that may send it; no token is needed without one.
    pub role: Option<Role>,
    /// What of the record it reads or changes.
    pub scope: Scope,
    /// How much of the rate limit of its principal a request takes.
    pub cost: u32,
    pub summary: &'static str,
    pub(crate) query: &'static [Parameter],
    /// The parameter that may come more than once; empty for none.
    pub(crate) repeated: &'static str,
    pub(crate) body: Option<SchemaOf>,
    pub(crate) answer: SchemaOf,
    /// The status of an answer.
    pub status: u16,
    pub form: Form,
    pub(crate) handler: Handler,
}

pub(crate) const fn text(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter {
        name,
        meaning,
        kind: "string",
    }
}

pub(crate) const AFTER: Parameter = text(
    "after",
    "List those after this key. The header `Link` of a page has the next one.",
);
pub(crate) const LIMIT: Parameter = Parameter {
    name: "limit",
    meaning: "The most entries, 1 to 500. 50 without it.",
    kind: "integer",
};
const SCHEDULE: Parameter = text("schedule", "Only those of this schedule.");
const SINCE_SPAN: Parameter = text(
    "since",
    "How far to look back, such as `30m` or `7days`. `24h` without it.",
);

pub(crate) const PAGE: &[Parameter] = &[AFTER, LIMIT];
pub(crate) const LAUNCHES: &[Parameter] = &[
    AFTER,
    LIMIT,
    SCHEDULE,
    text(
        "status",
        "Only those with one of these statuses, separated by commas.",
    ),
    text("kind", "Only those of this kind."),
    text(
        "reason",
        "Only those with this reason, or with this kind of failure.",
    ),
    text("package", "Only those of this package."),
    text(
        "since",
        "Only slots from this time on: a time, or a span before now.",
    ),
    text(
        "until",
        "Only slots before this time: a time, or a span before now.",
    ),
];
pub(crate) const DIFF: &[Parameter] = &[
    text(
        "from",
        "The first digits of a version's digest. The active version without it.",
    ),
    text(
        "to",
        "The first digits of another version's digest. The pending version without it, or with `from` the active one.",
    ),
];
const RUNS: &[Parameter] = &[AFTER, LIMIT, SCHEDULE];
const NEXT: &[Parameter] = &[
    text(
        "after",
        "The slots after this time instead of those from now on.",
    ),
    Parameter {
        name: "n",
        meaning: "How many slots, 1 to 1000. 5 without it.",
        kind: "integer",
    },
];
const WHY: &[Parameter] = &[text(
    "at",
    "A slot or any other time, in UTC or in the schedule's zone. The last decision and the next slot without it.",
)];
pub(crate) const CALENDAR: &[Parameter] = &[Parameter {
    name: "year",
    meaning: "The year, 1970 to 2099. The present one without it.",
    kind: "integer",
}];
const CALLS: &[Parameter] = &[AFTER];
const LOGS: &[Parameter] = &[
    AFTER,
    Parameter {
        name: "follow",
        meaning: "Stream each call when it ends, until the run ends.",
        kind: "boolean",
    },
];
pub(crate) const ALL: &[Parameter] = &[Parameter {
    name: "all",
    meaning: "Also the hosts that have stopped or died.",
    kind: "boolean",
}];
const TOKENS: &[Parameter] = &[
    Parameter {
        name: "all",
        meaning: "Also the tokens that are revoked.",
        kind: "boolean",
    },
    LIMIT,
];
pub(crate) const ALERTS: &[Parameter] = &[
    AFTER,
    LIMIT,
    Parameter {
        name: "all",
        meaning: "Also the alerts that are resolved.",
        kind: "boolean",
    },
];
const DELIVERIES: &[Parameter] = &[AFTER, LIMIT, text("channel", "Only those to this channel.")];
const MESSAGES: &[Parameter] = &[
    AFTER,
    LIMIT,
    text("status", "Only those with this status."),
    text("package", "Only those of this package."),
];
const METRICS: &[Parameter] = &[Parameter {
    name: "schedules",
    meaning: "How many schedules get their own metrics, the first ones by name, up to 10000. None without it.",
    kind: "integer",
}];
pub(crate) const PLAN: &[Parameter] = &[
    text("from", "The start of the forecast. Now without it."),
    text("to", "The end of the forecast. One day later without it."),
    text(
        "schedule",
        "Show only this schedule; the others are simulated too.",
    ),
    text(
        "outage",
        "An outage of all hosts, `FROM..TO`. It can be repeated.",
    ),
    Parameter {
        name: "decisions",
        meaning: "The most decisions, 1 to 10000, which is also the number without it. `cut_at` says where the forecast stopped.",
        kind: "integer",
    },
];

pub(crate) fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

pub(crate) fn any(_: &mut SchemaGenerator) -> Schema {
    Schema::from(Map::<String, Value>::new())
}

/// Declare the routes.
macro_rules! routes {
    ($($id:ident: $method:ident $path:literal, $role:expr, $scope:ident, $cost:literal, $summary:literal,
        $query:expr $(, repeated $repeated:literal)? $(, body $body:ty)?, $([$form:ident])? $status:literal $answer:expr, $handler:path;)*) => {
        static ROUTES: &[Route] = &[$(Route {
            id: stringify!($id),
            method: Method::$method,
            path: $path,
            role: $role,
            scope: Scope::$scope,
            cost: $cost,
            summary: $summary,
            query: $query,
            repeated: concat!($($repeated)?),
            body: {
                let body: &[SchemaOf] = &[$(schema::<$body>)?];
                match body {
                    [body] => Some(*body),
                    _ => None,
                }
            },
            answer: $answer,
            status: $status,
            form: [$(Form::$form,)? Form::Json][0],
            handler: |call| Box::pin($handler(call)),
        }),*];
    };
}

const READ: Option<Role> = Some(Role::Viewer);
const OPERATE: Option<Role> = Some(Role::Operator);
const EDIT: Option<Role> = Some(Role::Editor);
const APPROVE: Option<Role> = Some(Role::Approver);
const ADMIN: Option<Role> = Some(Role::Admin);
const NONE: &[Parameter] = &[];

routes! {
    live: Get "/healthz", None, Nothing, 1, "Say that the process answers", NONE, 200 schema::<Probe>, probes::live;
    ready: Get "/readyz", None, Nothing, 1, "Say that the host decides and reaches its database", NONE, 200 schema::<Probe>, probes::ready;
    openapi: Get "/openapi.json", READ, Nothing, 1, "Return this document", NONE, 200 any, probes::openapi;
    get_metrics: Get "/metrics", READ, Installation, 10, "Return metrics in Prometheus' text format", METRICS, [Metrics] 200 any, probes::metrics;
    get_health: Get "/api/v1/health", READ, Installation, 10, "Judge the health of the installation", NONE, 200 schema::<Health>, probes::health;

    get_top: Get "/api/v1/top", READ, Installation, 5, "Show what the hosts do now", NONE, 200 schema::<TopReport>, read::top;

    list_schedules: Get "/api/v1/schedules", READ, Chosen, 2, "List schedules by name", PAGE, 200 schema::<Vec<ScheduleRecord>>, read::schedules;
    add_schedule: Post "/api/v1/schedules", EDIT, Chosen, 5, "Add a schedule", NONE, body bodies::Definition, 201 schema::<NewSchedule>, control::add_schedule;
    get_schedule: Get "/api/v1/schedules/{name}", READ, Named, 2, "Show one schedule with its newest launches", NONE, 200 schema::<ScheduleDetail>, read::schedule;
    replace_schedule: Put "/api/v1/schedules/{name}", EDIT, Named, 5, "Replace the definition of a schedule", NONE, body bodies::Definition, 200 schema::<ScheduleRecord>, control::replace_schedule;
    edit_schedule: Patch "/api/v1/schedules/{name}", EDIT, Named, 5, "Change parts of a definition by a merge patch; null clears one", NONE, body Map<String, Value>, 200 schema::<ScheduleRecord>, control::edit_schedule;
    remove_schedule: Delete "/api/v1/schedules/{name}", EDIT, Named, 5, "Remove a schedule; its launches stay on record", NONE, 200 schema::<ChangeReport<'_>>, control::remove_schedule;
    next_slots: Get "/api/v1/schedules/{name}/next", READ, Named, 2, "List the next slots of a schedule", NEXT, 200 schema::<Vec<Timestamp>>, read::next;
    why: Get "/api/v1/schedules/{name}/why", READ, Named, 5, "Explain why a slot was launched or not, and how it ended", WHY, 200 schema::<Answer>, read::why;
    get_calendar: Get "/api/v1/schedules/{name}/calendar", READ, Named, 5, "Show a year of a schedule by day: how its launches ended, how late they began, and how long they took", CALENDAR, 200 schema::<Calendar>, read::calendar;
    get_schedule_stats: Get "/api/v1/schedules/{name}/stats", READ, Named, 10, "Show statistics of one schedule", &[SINCE_SPAN], 200 schema::<ScheduleStatistics>, read::stats_of_schedule;

    reset_cursors: Post "/api/v1/bulk/reset-cursors", EDIT, Installation, 20, "Reset the cursors that are ahead of the clock, up to 500 with one request", NONE, body bodies::ResetCursors, 200 schema::<CursorResets>, control::reset_cursors;
    count_schedules: Post "/api/v1/bulk/count", OPERATE, Installation, 5, "Count the schedules of a filter that a change of many would touch", NONE, body bodies::BulkQuery, 200 schema::<BulkCount>, bulk::count;
    pause_schedules: Post "/api/v1/bulk/pause", OPERATE, Installation, 20, "Pause the schedules of a filter, all or none", NONE, body bodies::BulkPause, 200 schema::<BulkReport>, bulk::pause;
    resume_schedules: Post "/api/v1/bulk/resume", OPERATE, Installation, 20, "Resume the paused schedules of a filter, all or none", NONE, body bodies::BulkResume, 200 schema::<BulkReport>, bulk::resume;

    check_schedules_file: Post "/api/v1/schedules-file/check", EDIT, Installation, 20, "Show what a schedules file would change, without changing it", NONE, body bodies::NamedFile, 200 schema::<FileReport>, schedules_file::check;
    reconcile_schedules_file: Post "/api/v1/schedules-file/reconcile", EDIT, Installation, 20, "Make the schedules of files those that a schedules file defines", NONE, body bodies::NamedFile, 200 schema::<FileReport>, schedules_file::reconcile;

    list_launches: Get "/api/v1/launches", READ, Chosen, 3, "List the newest launches, newest first", LAUNCHES, 200 schema::<Vec<LaunchRow>>, read::launches;
    get_launch: Get "/api/v1/launches/{id}", READ, Launch, 2, "Show one launch with its runs", NONE, 200 schema::<LaunchDetail>, read::launch;
    retry_launch: Post "/api/v1/launches/{id}/retry", OPERATE, Launch, 5, "Launch the slot of a launch that has ended again", NONE, body Nothing, 200 schema::<TriggerReport>, control::retry;
    cancel_launch: Post "/api/v1/launches/{id}/cancel", OPERATE, Launch, 5, "End a launch on whatever host runs it", NONE, body bodies::Cancel, 200 schema::<CancelReport>, control::cancel;

    list_runs: Get "/api/v1/runs", READ, Chosen, 3, "List the newest runs, newest first", RUNS, 200 schema::<Vec<RunRow>>, read::runs;
    get_run: Get "/api/v1/runs/{id}", READ, Launch, 2, "Show one run with the calls of its tasks; what they wrote and returned comes in pages of about 4 MiB", CALLS, 200 schema::<RunDetail>, read::run;
    get_logs: Get "/api/v1/runs/{id}/logs", READ, Launch, 2, "Show what the tasks of one run logged and printed, in pages of about 4 MiB", LOGS, [JsonOrStream] 200 schema::<Vec<TaskLogs>>, stream::logs;
    cancel_run: Post "/api/v1/runs/{id}/cancel", OPERATE, Launch, 5, "End the launch of a run on whatever host runs it", NONE, body bodies::Cancel, 200 schema::<CancelReport>, control::cancel;

    list_backfills: Get "/api/v1/backfills", READ, Chosen, 2, "List the newest backfills, newest first", PAGE, 200 schema::<Vec<BackfillRecord>>, read::backfills;
    begin_backfill: Post "/api/v1/backfills", EDIT, Chosen, 20, "Launch the slots of a past time span", NONE, body bodies::Backfill, 201 schema::<BackfillRecord>, control::begin_backfill;
    preview_backfill: Post "/api/v1/backfills/preview", EDIT, Chosen, 20, "Count the slots that a backfill would launch", NONE, body bodies::Backfill, 200 schema::<SurveyReport>, control::preview_backfill;
    get_backfill: Get "/api/v1/backfills/{id}", READ, Backfill, 2, "Show one backfill", NONE, 200 schema::<BackfillRecord>, read::backfill;

    list_packages: Get "/api/v1/packages", READ, Chosen, 2, "List the packages that a host has ever seen, by name", PAGE, 200 schema::<Vec<PackageRecord>>, read::packages;
    get_package: Get "/api/v1/packages/{name}", READ, Named, 2, "Show one package with its versions", NONE, 200 schema::<PackageDetail>, read::package;
    diff_package: Get "/api/v1/packages/{name}/diff", READ, Named, 5, "Show what changes from one version to another", DIFF, 200 schema::<DiffReport>, read::package_diff;
    approve_version: Post "/api/v1/packages/{name}/approve", APPROVE, Named, 5, "Activate the pending version, or one that was rejected", NONE, body bodies::DecisionRequest, 200 schema::<DecisionReport>, control::approve;
    reject_version: Post "/api/v1/packages/{name}/reject", APPROVE, Named, 5, "Reject the pending version", NONE, body bodies::DecisionRequest, 200 schema::<DecisionReport>, control::reject;
    roll_back_package: Post "/api/v1/packages/{name}/rollback", APPROVE, Named, 5, "Activate a former version", NONE, body bodies::DecisionRequest, 200 schema::<DecisionReport>, control::roll_back;
    upload_package: Post "/api/v1/packages/{name}/upload", APPROVE, Named, 50, "Put the file of a package into the plugins folder of this host", NONE, [Upload] 201 schema::<UploadReport>, upload::upload;

    list_hosts: Get "/api/v1/hosts", READ, Installation, 2, "List the live hosts and the drained ones by name", ALL, 200 schema::<Vec<HostReport>>, read::hosts;

    list_messages: Get "/api/v1/outbox", READ, Chosen, 2, "List the messages that tasks have sent, those of the newest launches first", MESSAGES, 200 schema::<Vec<MessageRow>>, alerts::messages;
    get_message: Get "/api/v1/outbox/{id}", READ, Message, 1, "Show one message with its content", NONE, 200 schema::<MessageContent>, alerts::message;
    retry_message: Post "/api/v1/outbox/{id}/retry", OPERATE, Message, 5, "Deliver a message again", NONE, body Nothing, 200 schema::<MessageRow>, alerts::retry_message;

    list_alerts: Get "/api/v1/alerts", READ, Installation, 2, "List the alerts that are not resolved, newest first", ALERTS, 200 schema::<Vec<Alert>>, alerts::alerts;
    get_alert: Get "/api/v1/alerts/{id}", READ, Installation, 1, "Show one alert with the messages about it", NONE, 200 schema::<AlertDetail>, alerts::alert;
    list_alert_messages: Get "/api/v1/alert-messages", READ, Installation, 2, "List the messages to channels with their deliveries, newest first", DELIVERIES, 200 schema::<Vec<AlertMessageRow>>, alerts::deliveries;
    test_channel: Post "/api/v1/channels/{name}/test", OPERATE, Installation, 5, "Send a message to a channel that says that the channel works", NONE, body Nothing, 200 schema::<TestReport>, alerts::test_channel;
    list_silences: Get "/api/v1/silences", READ, Installation, 1, "List the silences that apply", NONE, 200 schema::<Vec<Silence>>, alerts::silences;
    add_silence: Post "/api/v1/silences", OPERATE, Installation, 5, "Send no message about the alerts that match, until the time is over", NONE, body bodies::NewSilence, 201 schema::<Silence>, alerts::silence;

    list_tokens: Get "/api/v1/tokens", ADMIN, Installation, 2, "List the tokens by name, with their last use", TOKENS, 200 schema::<Vec<TokenReport>>, tokens::list;
    create_token: Post "/api/v1/tokens", ADMIN, Installation, 5, "Create a token, and return its secret, which is shown only once", NONE, body bodies::NewToken, 201 schema::<CreatedToken>, tokens::create;

    list_events: Get "/api/v1/events", READ, Chosen, 2, "List the newest events, newest first", PAGE, 200 schema::<Vec<Event>>, read::events;
    stream_events: Get "/api/v1/events/stream", READ, Chosen, 5, "Stream each event when it is recorded", NONE, [Stream] 200 schema::<Event>, stream::events;
    verify_record: Post "/api/v1/audit/verify", ADMIN, Installation, 100, "Compare the record with its rules and with its chain of hashes, one request at a time", NONE, body bodies::Verify, 200 schema::<AuditReport>, record_audit::verify;
    get_checkpoint: Get "/api/v1/audit/checkpoint", READ, Installation, 2, "Return the newest hash of the chain over the record; null while nothing is sealed", NONE, 200 schema::<Option<Checkpoint>>, record_audit::checkpoint;
    get_stats: Get "/api/v1/stats", READ, Installation, 20, "Show statistics of all launches in a time span", &[SINCE_SPAN], 200 schema::<Statistics>, read::stats;
    list_schedule_stats: Get "/api/v1/stats/schedules", READ, Chosen, 20, "Show statistics of each schedule by itself", &[SINCE_SPAN, AFTER, LIMIT], 200 schema::<Vec<ScheduleStatistics>>, read::schedule_stats;
    list_package_stats: Get "/api/v1/stats/packages", READ, Chosen, 20, "Show what the tasks of each package used in a time span", &[SINCE_SPAN, AFTER, LIMIT], 200 schema::<Vec<PackageStatistics>>, read::package_stats;
    list_day_stats: Get "/api/v1/stats/days", READ, Chosen, 20, "Show what the tasks of each package used on each day", &[SINCE_SPAN, AFTER, LIMIT], 200 schema::<Vec<DayStatistics>>, read::day_stats;
    get_plan: Get "/api/v1/plan", READ, Installation, 50, "Forecast the launches", PLAN, repeated "outage", 200 schema::<PlanReport>, read::plan;
    diff_plan: Post "/api/v1/plan/diff", EDIT, Installation, 50, "Forecast the launches after a schedules file, and show what it changes", PLAN, repeated "outage", body bodies::SchedulesFile, 200 schema::<PlanReport>, read::plan_diff;
}

/// Routes derived from orders.
static ORDERS: &[Route] = &[
    of::<Rename>(),
    of::<Trigger>(),
    of::<Pause>(),
    of::<Resume>(),
    of::<Skip>(),
    of::<ResetCursor>(),
    of::<CancelBackfill>(),
    of::<RemovePackage>(),
    of::<Drain>(),
    of::<DiscardMessage>(),
    of::<ResolveAlert>(),
    of::<EndSilence>(),
    of::<RevokeToken>(),
];

/// Derives an order's route.
const fn of<O: Order>() -> Route {
    let route = O::ROUTE;
    Route {
        id: route.id,
        method: route.method,
        path: route.path,
        role: Some(route.role),
        scope: route.scope,
        cost: route.cost,
        summary: route.summary,
        query: NONE,
        repeated: "",
        body: Some(schema::<O>),
        answer: schema::<O::Output>,
        status: 200,
        form: Form::Json,
        handler: |call| Box::pin(order::<O>(call)),
    }
}

/// Returns all routes, of both tables.
pub(crate) fn routes() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().chain(ORDERS)
}
