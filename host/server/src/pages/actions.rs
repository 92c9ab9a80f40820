//! What the forms of the pages do. Each action is an operation of the API, with the same role and the same function.

use axum::body::Bytes;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_TYPE, IF_MATCH};
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::bodies::{COUNT, many, with};
use super::form::Form;
use super::links::path;
use super::packages::pending_version;
use super::{Section, bodies};
use crate::auth;
use crate::call::{Call, Result};
use crate::idempotency;
use crate::problem::ApiProblem;
use crate::routes::{self, Route, routes};
use crate::upload;
use campanile_control::orders::alerts::NewSilence;
use campanile_control::orders::backfills::NewBackfill;
use campanile_control::orders::bulk::{BulkPause, BulkQuery, BulkResume};
use campanile_control::orders::launches::Cancel;
use campanile_control::orders::packages::DecisionRequest;
use campanile_control::orders::schedules::{Pause, Resume, Skip};
use campanile_model::json_text::JsonText;

/// The field of a form with the name of its action.
pub(super) const ACTION: &str = "do";
/// The field with which an operator confirms an action.
pub(super) const CONFIRM: &str = "confirm";
/// The field with the key that makes a form that is sent twice happen once.
pub(super) const KEY: &str = "key";
/// The field with the revision of the schedule that a form changes.
pub(super) const REVISION: &str = "revision";
/// The name of the action that approves a version. Its form says so if requests of the version aren't granted.
const APPROVE: &str = "approve";
/// The name of the action that shows the effect of a form and changes nothing.
pub(super) const PREVIEW: &str = "preview";

/// An action of a form.
pub(super) struct Action {
    pub name: &'static str,
    pub section: Section,
    /// The operation of the API.
    route: &'static str,
    /// What the page says afterwards.
    pub done: &'static str,
    body: FormBody,
    question: Question,
}

/// Returns the body of a request from a form.
type FormBody = fn(&Form) -> Result<JsonText>;

/// The question that an operator confirms before an action is done.
#[derive(Clone, Copy)]
enum Question {
    /// Nothing: the action touches one thing.
    Nothing,
    /// What the function returns, if it returns a sentence.
    Says(fn(&Form) -> Option<&'static str>),
    /// What an operation of the API says about the same form.
    Counts(Count),
}

/// An operation of the API that says beforehand what an action would do.
#[derive(Clone, Copy)]
struct Count {
    route: &'static str,
    body: FormBody,
    /// Returns the question, from the answer of the operation.
    says: fn(&Value) -> String,
}

const fn action(
    name: &'static str,
    section: Section,
    route: &'static str,
    done: &'static str,
    body: FormBody,
) -> Action {
    Action {
        name,
        section,
        route,
        done,
        body,
        question: Question::Nothing,
    }
}

const fn asked(action: Action, question: fn(&Form) -> Option<&'static str>) -> Action {
    Action {
        question: Question::Says(question),
        ..action
    }
}

const fn counted_first(action: Action, count: Count) -> Action {
    Action {
        question: Question::Counts(count),
        ..action
    }
}

/// Returns the fields of a form that double as fields of `O`.
fn body<O: JsonSchema + 'static>(form: &Form) -> Result<JsonText> {
    with::<O>(form, &json!({}))
}

/// Returns a backfill. Only a confirmed form begins one of very many slots.
fn confirmed_backfill(form: &Form) -> Result<JsonText> {
    with::<NewBackfill>(form, &json!({"yes": true}))
}

const OF_ALL_SCHEDULES: &str =
    "Every schedule of the package launches with the version that is active then.";

static ACTIONS: &[Action] = &[
    action(
        "pause",
        Section::Schedules,
        "pause_schedule",
        "The schedule is paused.",
        body::<Pause>,
    ),
    action(
        "resume",
        Section::Schedules,
        "resume_schedule",
        "The schedule is resumed.",
        body::<Resume>,
    ),
    action(
        "trigger",
        Section::Schedules,
        "trigger_schedule",
        "The launch was requested.",
        |_| Ok(json!({}).into()),
    ),
    action(
        "skip",
        Section::Schedules,
        "skip_slot",
        "The slot will be skipped.",
        |form| with::<Skip>(form, &json!({"scheduled_time": form.get("slot")})),
    ),
    action(
        "restore",
        Section::Schedules,
        "skip_slot",
        "The slot is restored.",
        |form| {
            with::<Skip>(
                form,
                &json!({"scheduled_time": form.get("slot"), "undo": true}),
            )
        },
    ),
    action(
        "edit",
        Section::Schedules,
        "replace_schedule",
        "The schedule has this definition now.",
        bodies::definition,
    ),
    counted_first(
        action(
            "backfill",
            Section::Schedules,
            "begin_backfill",
            "The backfill has begun.",
            confirmed_backfill,
        ),
        Count {
            route: "preview_backfill",
            body: confirmed_backfill,
            says: bodies::backfill_question,
        },
    ),
    action(
        "cancel_backfill",
        Section::Schedules,
        "cancel_backfill",
        "The backfill is cancelled.",
        |_| Ok(json!({}).into()),
    ),
    counted_first(
        action(
            "pause_many",
            Section::Schedules,
            "pause_schedules",
            "The schedules are paused.",
            body::<BulkPause>,
        ),
        Count {
            route: "count_schedules",
            body: |form| with::<BulkQuery>(form, &json!({"change": "pause"})),
            says: |answer| {
                many(
                    answer,
                    "Pause",
                    "No slot of them is decided until they are resumed.",
                )
            },
        },
    ),
    counted_first(
        action(
            "resume_many",
            Section::Schedules,
            "resume_schedules",
            "The schedules are resumed.",
            body::<BulkResume>,
        ),
        Count {
            route: "count_schedules",
            body: |form| with::<BulkQuery>(form, &json!({"change": "resume"})),
            says: |answer| many(answer, "Resume", "Their slots are decided from now on."),
        },
    ),
    action(
        "cancel",
        Section::Launches,
        "cancel_launch",
        "The launch was asked to end.",
        body::<Cancel>,
    ),
    action(
        "retry",
        Section::Launches,
        "retry_launch",
        "The launch was requested again.",
        |_| Ok(json!({}).into()),
    ),
    asked(
        action(
            APPROVE,
            Section::Packages,
            "approve_version",
            "The version is approved.",
            body::<DecisionRequest>,
        ),
        |_| Some(OF_ALL_SCHEDULES),
    ),
    action(
        "upload",
        Section::Packages,
        "upload_package",
        "The file is in the plugins folder. The host loads it within seconds.",
        |_| Ok(JsonText::null()),
    ),
    action(
        "reject",
        Section::Packages,
        "reject_version",
        "The version is rejected.",
        body::<DecisionRequest>,
    ),
    asked(
        action(
            "roll_back",
            Section::Packages,
            "roll_back_package",
            "The former version is active.",
            body::<DecisionRequest>,
        ),
        |_| Some(OF_ALL_SCHEDULES),
    ),
    asked(
        action(
            "drain",
            Section::Hosts,
            "drain_host",
            "The host claims nothing more.",
            |_| Ok(json!({}).into()),
        ),
        |_| Some("The host claims no launch of any schedule. Launches wait for the other hosts."),
    ),
    action(
        "undrain",
        Section::Hosts,
        "drain_host",
        "The host claims launches again.",
        |_| Ok(json!({"undo": true}).into()),
    ),
    action(
        "resolve",
        Section::Alerts,
        "resolve_alert",
        "The alert is resolved.",
        |_| Ok(json!({}).into()),
    ),
    asked(
        action(
            "silence",
            Section::Alerts,
            "add_silence",
            "The alerts are silenced.",
            body::<NewSilence>,
        ),
        |form| {
            let is_wide = |name| form.given(name).is_none_or(|pattern| pattern.contains('*'));
            (is_wide("rule") && is_wide("subject"))
                .then_some("The silence can match alerts of many rules and subjects.")
        },
    ),
    action(
        "unsilence",
        Section::Alerts,
        "end_silence",
        "The silence has ended.",
        |_| Ok(json!({}).into()),
    ),
];

/// Returns the action of that name.
pub(super) fn named(name: &str) -> Option<&'static Action> {
    ACTIONS.iter().find(|action| action.name == name)
}

/// What to do with a form.
pub(super) enum Step {
    /// Ask the operator first. The last part is a field that the confirmation has in addition.
    Ask(&'static Action, String, Option<(&'static str, String)>),
    /// Show the page, with what was typed.
    Show,
    /// Go to another page.
    Go(String),
}

impl Action {
    /// Returns the route of the API that does the same.
    pub(super) fn route(&self) -> Result<&'static Route> {
        operation(self.route)
    }

    /// Returns what the operator is to confirm, and a field that the confirmation has in addition; none for nothing.
    async fn question(&self, call: &Call, form: &Form) -> Result<Option<Asked>> {
        match self.question {
            Question::Nothing => Ok(None),
            Question::Says(says) => Ok(says(form).map(|text| (text.to_owned(), None))),
            Question::Counts(count) => {
                let route = operation(count.route)?;
                let asked = request(call.clone(), route, form, count.body)?;
                let answer = (route.handler)(asked).await?.value();
                let field = answer[COUNT].as_u64().map(|all| (COUNT, all.to_string()));
                Ok(Some(((count.says)(&answer), field)))
            }
        }
    }
}

/// A question, and a field that its confirmation has in addition.
type Asked = (String, Option<(&'static str, String)>);

/// Returns the operation of the API with this name.
fn operation(id: &str) -> Result<&'static Route> {
    let found = routes().find(|route| route.id == id);
    found.ok_or_else(|| ApiProblem::not_found("the API does not have this operation"))
}

/// Do what a form of a page asks for. `call` is the visit of that page.
pub(super) async fn perform(call: Call, section: Section, form: &Form) -> Result<Step> {
    let name = form.get(ACTION);
    if name == PREVIEW {
        return Ok(Step::Show);
    }
    let found = named(name).filter(|action| action.section == section);
    let Some(action) = found else {
        let problem = ApiProblem::invalid("this page does not have the action that the form names");
        return Err(problem.hint("open the page again, and send one of its forms"));
    };
    let route = action.route()?;
    if let Some(role) = route.role {
        call.require(role, "the action")?;
    }
    if action.name == APPROVE {
        pending_version::check_approval(&call, form).await?;
    }
    if form.given(CONFIRM).is_none()
        && let Some((question, field)) = action.question(&call, form).await?
    {
        return Ok(Step::Ask(action, question, field));
    }
    let uri = call.uri.clone();
    let answer = (route.handler)(request(call, route, form, action.body)?).await?;
    let answer = answer.value();
    // The page on which a thing is edited leads back to the thing.
    let page = uri.strip_suffix("/edit").unwrap_or(&uri);
    let done = action.name;
    Ok(Step::Go(match answer["launch"].as_str() {
        Some(launch) => format!("{}?done={done}", path(&["launches", launch])),
        None if done == "backfill" => format!("/backfills?done={done}"),
        None => format!("{page}?done={done}"),
    }))
}

/// Returns the request that a form makes to a route of the API.
fn request(mut call: Call, route: &Route, form: &Form, body: FormBody) -> Result<Call> {
    let header = |name: &str| {
        let value = form.given(name)?;
        HeaderValue::from_str(value).ok()
    };
    if let Some(key) = header(KEY) {
        call.headers.insert(idempotency::HEADER, key);
    }
    if let Some(revision) = form.given(REVISION)
        && let Ok(revision) = HeaderValue::from_str(&format!("\"{revision}\""))
    {
        call.headers.insert(IF_MATCH, revision);
    }
    call.method = route.method.as_str();
    call.path.extend(form.fields().iter().cloned());
    let kind = match route.form {
        routes::Form::Upload => {
            let (name, file) = file(form)?;
            call.path.push(("name".to_owned(), name));
            call.body = file;
            upload::MEDIA_TYPE
        }
        _ => {
            call.body = body(form)?.to_string().into();
            "application/json"
        }
    };
    let kind = HeaderValue::from_static(kind);
    call.headers.insert(CONTENT_TYPE, kind);
    Ok(call)
}

/// Returns the package and the content of the file that a form has. The package is named like the file.
fn file(form: &Form) -> Result<(String, Bytes)> {
    let Some((file, bytes)) = &form.file else {
        let problem = ApiProblem::invalid("the form has no file");
        return Err(problem.hint("choose the WebAssembly file of a package"));
    };
    let name = file.rsplit(['/', '\\']).next().unwrap_or_default();
    let Some(name) = name.strip_suffix(".wasm") else {
        let problem = ApiProblem::invalid(format!(
            "the name of the file `{file}` does not end in `.wasm`"
        ));
        return Err(problem.hint("choose the WebAssembly file of a package"));
    };
    Ok((name.to_owned(), bytes.clone()))
}

/// Say who may do an action, when the visitor may not.
pub(super) fn refusal(call: &Call, action: &str) -> Option<String> {
    let role = named(action)?.route().ok()?.role?;
    let principal = call.principal.as_ref()?;
    let refused = auth::require(principal, role, "the action").err()?;
    Some(refused.problem.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_has_a_route_that_needs_a_role() {
        for action in ACTIONS {
            let route = action.route().unwrap();
            assert!(route.role.is_some(), "{}", action.name);
            if let Question::Counts(count) = action.question {
                let (needed, role) = (operation(count.route).unwrap().role, route.role.unwrap());
                assert!(role.includes(needed.unwrap()), "{}", action.name);
            }
            assert!(action.done.ends_with('.'), "{}", action.name);
            let same = ACTIONS.iter().filter(|other| other.name == action.name);
            assert_eq!(same.count(), 1, "{}", action.name);
        }
    }
}
