//! What the forms of the pages do. Each action is an operation of the API, with the same role and the same function.

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};

use super::Section;
use super::form::Form;
use super::links::path;
use crate::auth;
use crate::call::{Call, Result};
use crate::idempotency;
use crate::problem::ApiProblem;
use crate::routes::{Route, routes};

/// The field of a form with the name of its action.
pub(super) const ACTION: &str = "do";
/// The field with which an operator confirms an action.
pub(super) const CONFIRM: &str = "confirm";
/// The field with the key that makes a form that is sent twice happen once.
pub(super) const KEY: &str = "key";

/// An action of a form.
pub(super) struct Action {
    pub name: &'static str,
    pub section: Section,
    /// The operation of the API.
    route: &'static str,
    /// What the page says afterwards.
    pub done: &'static str,
    body: fn(&Form) -> Value,
    /// Return what the operator is to confirm; none when the action touches one thing.
    question: fn(&Form) -> Option<&'static str>,
}

const fn action(
    name: &'static str,
    section: Section,
    route: &'static str,
    done: &'static str,
    body: fn(&Form) -> Value,
) -> Action {
    Action {
        name,
        section,
        route,
        done,
        body,
        question: |_| None,
    }
}

const fn asked(action: Action, question: fn(&Form) -> Option<&'static str>) -> Action {
    Action { question, ..action }
}

const OF_ALL_SCHEDULES: &str =
    "Every schedule of the package launches with the version that is active then.";

static ACTIONS: &[Action] = &[
    action(
        "pause",
        Section::Schedules,
        "pause_schedule",
        "The schedule is paused.",
        |form| object([("note", text(form, "note")), ("until", time(form, "until"))]),
    ),
    action(
        "resume",
        Section::Schedules,
        "resume_schedule",
        "The schedule is resumed.",
        |form| json!({"catch_up": form.given("catch_up").is_some()}),
    ),
    action(
        "trigger",
        Section::Schedules,
        "trigger_schedule",
        "The launch was requested.",
        |_| json!({}),
    ),
    action(
        "skip",
        Section::Schedules,
        "skip_slot",
        "The slot will be skipped.",
        |form| object([("scheduled_time", time(form, "slot"))]),
    ),
    action(
        "restore",
        Section::Schedules,
        "skip_slot",
        "The slot is restored.",
        |form| {
            object([
                ("scheduled_time", time(form, "slot")),
                ("undo", Some(json!(true))),
            ])
        },
    ),
    action(
        "cancel",
        Section::Launches,
        "cancel_launch",
        "The launch was asked to end.",
        |form| object([("grace", text(form, "grace"))]),
    ),
    action(
        "retry",
        Section::Launches,
        "retry_launch",
        "The launch was requested again.",
        |_| json!({}),
    ),
    asked(
        action(
            "approve",
            Section::Packages,
            "approve_version",
            "The version is approved.",
            decision,
        ),
        |_| Some(OF_ALL_SCHEDULES),
    ),
    action(
        "reject",
        Section::Packages,
        "reject_version",
        "The version is rejected.",
        decision,
    ),
    asked(
        action(
            "roll_back",
            Section::Packages,
            "roll_back_package",
            "The former version is active.",
            decision,
        ),
        |_| Some(OF_ALL_SCHEDULES),
    ),
    asked(
        action(
            "drain",
            Section::Hosts,
            "drain_host",
            "The host claims nothing more.",
            |_| json!({}),
        ),
        |_| Some("The host claims no launch of any schedule. Launches wait for the other hosts."),
    ),
    action(
        "undrain",
        Section::Hosts,
        "drain_host",
        "The host claims launches again.",
        |_| json!({"undo": true}),
    ),
    action(
        "resolve",
        Section::Alerts,
        "resolve_alert",
        "The alert is resolved.",
        |_| json!({}),
    ),
    asked(
        action(
            "silence",
            Section::Alerts,
            "add_silence",
            "The alerts are silenced.",
            |form| {
                object([
                    ("rule", text(form, "rule")),
                    ("subject", text(form, "subject")),
                    ("note", text(form, "note")),
                    ("for", Some(json!(form.get("for").trim()))),
                ])
            },
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
        |_| json!({}),
    ),
];

/// Return the fields of a JSON object that have a value.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    let fields = fields.into_iter();
    let given = fields.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(given.collect::<Map<String, Value>>())
}

fn text(form: &Form, name: &str) -> Option<Value> {
    form.given(name).map(Value::from)
}

/// Return a time in UTC, as RFC 3339 writes it.
fn time(form: &Form, name: &str) -> Option<Value> {
    form.given(name).map(|text| Value::from(utc(text)))
}

fn decision(form: &Form) -> Value {
    object([
        ("digest", text(form, "digest")),
        ("note", text(form, "note")),
    ])
}

/// Complete a time as a field for a date and a time sends it, such as `2026-11-21T08:00`.
fn utc(text: &str) -> String {
    let text = text.replacen(' ', "T", 1);
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"-T:".contains(&byte));
    match (is_plain, text.len()) {
        (true, 16) => format!("{text}:00Z"),
        (true, 19) => format!("{text}Z"),
        _ => text,
    }
}

/// Return the action of that name.
pub(super) fn named(name: &str) -> Option<&'static Action> {
    ACTIONS.iter().find(|action| action.name == name)
}

/// What to do with a form.
pub(super) enum Step {
    /// Ask the operator first.
    Ask(&'static Action, &'static str),
    /// Go to another page.
    Go(String),
}

impl Action {
    /// Return the route of the API that does the same.
    pub(super) fn route(&self) -> Result<&'static Route> {
        let found = routes().iter().find(|route| route.id == self.route);
        found.ok_or_else(|| ApiProblem::not_found("the API does not have this operation"))
    }
}

/// Do what a form of a page asks for. `call` is the visit of that page.
pub(super) async fn perform(call: Call, section: Section, form: &Form) -> Result<Step> {
    let found = named(form.get(ACTION)).filter(|action| action.section == section);
    let Some(action) = found else {
        let problem = ApiProblem::invalid("this page does not have the action that the form names");
        return Err(problem.hint("open the page again, and send one of its forms"));
    };
    let route = action.route()?;
    if let Some(role) = route.role {
        call.require(role, "the action")?;
    }
    if let Some(question) = (action.question)(form)
        && form.given(CONFIRM).is_none()
    {
        return Ok(Step::Ask(action, question));
    }
    let uri = call.uri.clone();
    let mut call = call;
    let json = HeaderValue::from_static("application/json");
    call.headers.insert(CONTENT_TYPE, json);
    if let Some(key) = form
        .given(KEY)
        .and_then(|key| HeaderValue::from_str(key).ok())
    {
        call.headers.insert(idempotency::HEADER, key);
    }
    call.method = route.method.as_str();
    call.body = (action.body)(form).to_string().into();
    call.path.extend(form.fields().iter().cloned());
    let answer = (route.handler)(call).await?.value();
    Ok(Step::Go(match answer["launch"].as_str() {
        Some(launch) => format!("{}?done={}", path(&["launches", launch]), action.name),
        None => format!("{uri}?done={}", action.name),
    }))
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
            assert!(action.done.ends_with('.'), "{}", action.name);
            let same = ACTIONS.iter().filter(|other| other.name == action.name);
            assert_eq!(same.count(), 1, "{}", action.name);
        }
    }

    #[test]
    fn a_time_of_a_form_is_in_utc() {
        for (given, expected) in [
            ("2026-11-21T08:00", "2026-11-21T08:00:00Z"),
            ("2026-11-21 08:00:30", "2026-11-21T08:00:30Z"),
            ("2026-11-21T08:00:00+01:00", "2026-11-21T08:00:00+01:00"),
            ("2026-11-21T08:00:00Z", "2026-11-21T08:00:00Z"),
            ("soon", "soon"),
        ] {
            assert_eq!(utc(given), expected);
        }
    }
}
