//! The table of all routes. The router and the OpenAPI document are made from it.

use axum::routing::MethodFilter;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};

use crate::call::Handler;
use crate::dispatch::Target;
use crate::probes::{self, GetMetrics, Probe};
use crate::query::{Parameters, none, parameters};
use crate::rate::COSTLY;
use crate::scope::Scope;
use crate::upload::{self, UploadReport};
use crate::{backfills, change, read, record_audit, stream};
pub use campanile_control::order::Method;
use campanile_control::order::{Endpoint, Order};
use campanile_control::orders::alerts::{EndSilence, NewSilence, ResolveAlert, TestChannel};
use campanile_control::orders::backfills::{CancelBackfill, NewBackfill};
use campanile_control::orders::bulk::{BulkPause, BulkQuery, BulkResume};
use campanile_control::orders::bulk_launches::{ChangeLaunches, CountLaunches};
use campanile_control::orders::definition::{
    AddSchedule, EditSchedule, RemoveSchedule, ReplaceSchedule,
};
use campanile_control::orders::files::{CheckFile, ReconcileFile, SchedulesFile};
use campanile_control::orders::hosts::Drain;
use campanile_control::orders::launches::{Cancel, RetryLaunch};
use campanile_control::orders::messages::{DiscardMessage, RetryMessage};
use campanile_control::orders::packages::{Approve, Reject, RemovePackage, RollBack};
use campanile_control::orders::schedules::{
    Pause, Rename, ResetCursor, ResetCursors, Resume, Skip, Trigger,
};
use campanile_control::orders::tokens::{NewToken, RevokeToken};
use campanile_control::question::Question;
use campanile_control::questions::alerts::{
    GetAlert, GetMessage, ListAlertMessages, ListAlerts, ListMessages, ListSilences,
};
use campanile_control::questions::hosts::{GetTop, ListHosts, ListTokens};
use campanile_control::questions::launches::{GetLaunch, GetLogs, GetRun, ListLaunches, ListRuns};
use campanile_control::questions::packages::{DiffPackage, GetPackage, ListPackages};
use campanile_control::questions::record::{
    GetCheckpoint, GetStats, ListDayStats, ListEvents, ListPackageStats, ListScheduleStats,
};
use campanile_control::questions::schedules::{
    GetBackfill, GetCalendar, GetSchedule, GetScheduleStats, ListBackfills, ListSchedules,
    NextSlots, Why,
};
use campanile_control::records::backfill::{BackfillRecord, SurveyReport};
use campanile_control::reports::forecast::GetPlan;
use campanile_control::reports::forecast::report::PlanReport;
use campanile_control::reports::health::Health;
use campanile_control::reports::verify::{AuditReport, Verify};
use campanile_model::access::{Channel, Role};
use campanile_store::events::Event;

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

    /// Returns the way on which a change comes, for the record.
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

/// Returns the schema of a type.
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
    pub(crate) query: Parameters,
    pub(crate) body: Option<SchemaOf>,
    pub(crate) answer: SchemaOf,
    /// The status of an answer.
    pub status: u16,
    pub form: Form,
    pub(crate) handler: Handler,
}

pub(crate) fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

pub(crate) fn any(_: &mut SchemaGenerator) -> Schema {
    Schema::from(Map::<String, Value>::new())
}

/// Declare the routes.
macro_rules! routes {
    ($($id:ident: $method:ident $path:literal, $role:expr, $scope:ident, $cost:literal, $summary:literal,
        $query:expr $(, body $body:ty)?, $([$form:ident])? $status:literal $answer:expr, $handler:path;)*) => {
        static ROUTES: &[Route] = &[$(Route {
            id: stringify!($id),
            method: Method::$method,
            path: $path,
            role: $role,
            scope: Scope::$scope,
            cost: $cost,
            summary: $summary,
            query: $query,
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
const EDIT: Option<Role> = Some(Role::Editor);
const APPROVE: Option<Role> = Some(Role::Approver);
const ADMIN: Option<Role> = Some(Role::Admin);

routes! {
    live: Get "/healthz", None, Nothing, 1, "Say that the process answers", none, 200 schema::<Probe>, probes::live;
    ready: Get "/readyz", None, Nothing, 1, "Say that the host decides and reaches its database", none, 200 schema::<Probe>, probes::ready;
    openapi: Get "/openapi.json", READ, Nothing, 1, "Return this document", none, 200 any, probes::openapi;
    get_metrics: Get "/metrics", READ, Installation, 10, "Return metrics in Prometheus' text format", parameters::<GetMetrics>, [Metrics] 200 any, probes::metrics;
    get_health: Get "/api/v1/health", READ, Installation, 10, "Judge the health of the installation", none, 200 schema::<Health>, probes::health;
    begin_backfill: Post "/api/v1/backfills", EDIT, Chosen, 20, "Launch the slots of a past time span", none, body NewBackfill, 201 schema::<BackfillRecord>, backfills::begin_backfill;
    preview_backfill: Post "/api/v1/backfills/preview", EDIT, Chosen, 20, "Count the slots that a backfill would launch", none, body NewBackfill, 200 schema::<SurveyReport>, backfills::preview_backfill;
    upload_package: Post "/api/v1/packages/{name}/upload", APPROVE, Named, 50, "Put the file of a package into the plugins folder of this host", none, [Upload] 201 schema::<UploadReport>, upload::upload;
    stream_events: Get "/api/v1/events/stream", READ, Chosen, 5, "Stream each event when it is recorded", none, [Stream] 200 schema::<Event>, stream::events;
    verify_record: Post "/api/v1/audit/verify", ADMIN, Installation, 100, "Compare the record with its rules and with its chain of hashes, one request at a time", none, body Verify, 200 schema::<AuditReport>, record_audit::verify;
    get_plan: Get "/api/v1/plan", READ, Installation, 50, "Forecast the launches", parameters::<GetPlan>, 200 schema::<PlanReport>, read::plan;
    diff_plan: Post "/api/v1/plan/diff", EDIT, Installation, 50, "Forecast the launches after a schedules file, and show what it changes", parameters::<GetPlan>, body SchedulesFile, 200 schema::<PlanReport>, read::plan_diff;
}

/// Routes derived from orders and questions.
static DERIVED: &[Route] = &[
    order::<AddSchedule>(),
    order::<ReplaceSchedule>(),
    order::<EditSchedule>(),
    order::<RemoveSchedule>(),
    order::<Rename>(),
    order::<Trigger>(),
    order::<Pause>(),
    order::<Resume>(),
    order::<Skip>(),
    order::<ResetCursor>(),
    order::<ResetCursors>(),
    order::<BulkPause>(),
    order::<BulkResume>(),
    order::<ChangeLaunches>(),
    order::<CheckFile>(),
    order::<ReconcileFile>(),
    order::<Cancel>(),
    Route {
        id: "cancel_run",
        path: "/api/v1/runs/{id}/cancel",
        summary: "End the launch of a run on whatever host runs it",
        ..order::<Cancel>()
    },
    order::<RetryLaunch>(),
    order::<CancelBackfill>(),
    order::<Approve>(),
    order::<Reject>(),
    order::<RollBack>(),
    order::<RemovePackage>(),
    order::<Drain>(),
    order::<RetryMessage>(),
    order::<DiscardMessage>(),
    order::<ResolveAlert>(),
    order::<TestChannel>(),
    order::<NewSilence>(),
    order::<EndSilence>(),
    order::<NewToken>(),
    order::<RevokeToken>(),
    question::<ListSchedules>(),
    question::<GetSchedule>(),
    question::<NextSlots>(),
    question::<Why>(),
    question::<GetCalendar>(),
    question::<GetScheduleStats>(),
    question::<BulkQuery>(),
    question::<CountLaunches>(),
    question::<ListLaunches>(),
    question::<GetLaunch>(),
    question::<ListRuns>(),
    question::<GetRun>(),
    Route {
        form: Form::JsonOrStream,
        handler: |call| Box::pin(stream::logs(call)),
        ..question::<GetLogs>()
    },
    question::<ListBackfills>(),
    question::<GetBackfill>(),
    question::<ListPackages>(),
    question::<GetPackage>(),
    question::<DiffPackage>(),
    question::<GetTop>(),
    question::<ListHosts>(),
    question::<ListTokens>(),
    question::<ListMessages>(),
    question::<GetMessage>(),
    question::<ListAlerts>(),
    question::<GetAlert>(),
    question::<ListAlertMessages>(),
    question::<ListSilences>(),
    question::<ListEvents>(),
    question::<GetCheckpoint>(),
    question::<GetStats>(),
    question::<ListScheduleStats>(),
    question::<ListPackageStats>(),
    question::<ListDayStats>(),
];

/// Derives an order's route.
const fn order<O: Order>() -> Route {
    let body: Option<SchemaOf> = match O::ENDPOINT.method {
        Method::Delete => None,
        _ => Some(schema::<O>),
    };
    at(O::ENDPOINT, none, body, schema::<O::Output>, |call| {
        Box::pin(change::order::<O>(call))
    })
}

/// Derives a question's route.
const fn question<Q: Question>() -> Route {
    at(
        Q::ENDPOINT,
        parameters::<Q>,
        None,
        schema::<Q::Answer>,
        |call| Box::pin(read::question::<Q>(call)),
    )
}

const fn at(
    endpoint: Endpoint,
    query: Parameters,
    body: Option<SchemaOf>,
    answer: SchemaOf,
    handler: Handler,
) -> Route {
    Route {
        id: endpoint.id,
        method: endpoint.method,
        path: endpoint.path,
        role: Some(endpoint.role),
        scope: endpoint.scope,
        cost: endpoint.cost,
        summary: endpoint.summary,
        query,
        body,
        answer,
        status: endpoint.status,
        form: Form::Json,
        handler,
    }
}

/// Returns all routes, of both tables.
pub(crate) fn routes() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().chain(DERIVED)
}
