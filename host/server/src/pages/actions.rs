//! What the forms of the pages do. Each action is an operation of the API, with the same role and the same function.

mod action;
mod table;

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_TYPE, IF_MATCH};
use maud::{Markup, html};
use serde_json::Value;

pub(super) use self::action::Action;
use self::action::{Asks, Count, FormBody, Question};
use self::table::ACTIONS;
use self::table::EDIT;
pub(super) use self::table::{ADD, ADD_HELLO, RUN_WITH, TEST_CHANNEL};
use super::Section;
use super::bodies::COUNT;
use super::form::Form;
use super::links::path;
use super::new_schedule::typed as new_schedule;
use super::packages::activation;
use super::run_with::typed as run_with;
use crate::auth;
use crate::call::{Call, Result};
use crate::idempotency;
use crate::problem::ApiProblem;
use crate::routes::{self, Route, routes};
use crate::upload;

/// The field of a form with the name of its action.
pub(super) const ACTION: &str = "do";
/// The field with which an operator confirms an action.
pub(super) const CONFIRM: &str = "confirm";
/// The field with the key that makes a form that is sent twice happen once.
pub(super) const KEY: &str = "key";
/// The field with the revision of the schedule that a form changes.
pub(super) const REVISION: &str = "revision";
/// The name of the action that shows the effect of a form and changes nothing.
pub(super) const PREVIEW: &str = "preview";

/// Returns the action of that name.
pub(super) fn named(name: &str) -> Option<&'static Action> {
    ACTIONS.iter().find(|action| action.name == name)
}

/// Whether the page shows the answer to an action. It's kept nowhere, so the form has no [`KEY`].
pub(super) fn shows_answer(name: &str) -> bool {
    named(name).is_some_and(|action| action.shows_answer)
}

/// Whether an action's form is all that its page has: a preview shows it again with what was typed.
pub(super) fn has_own_page(name: &str) -> bool {
    [EDIT, ADD, RUN_WITH].contains(&name)
}

const OF_ALL_SCHEDULES: &str =
    "Every schedule of the package launches with the version that is active then.";

/// What to do with a form.
pub(super) enum Step {
    /// Ask the operator first.
    Ask(&'static Action, Asked),
    /// Show the page, with what was typed.
    Show,
    /// Show the page with the answer, which is nowhere else.
    Tell(&'static Action, Value),
    /// Go to another page.
    Go(String),
}

/// What an operator confirms.
pub(super) struct Asked {
    pub text: String,
    /// Fields and texts that the confirmation has in addition.
    pub more: Markup,
}

impl Asked {
    fn of(text: impl Into<String>) -> Asked {
        Asked {
            text: text.into(),
            more: html! {},
        }
    }
}

impl Action {
    /// Returns the route of the API that does the same.
    pub(super) fn route(&self) -> Result<&'static Route> {
        operation(self.route)
    }

    /// Returns what the operator is to confirm; none for nothing.
    async fn question(&self, call: &Call, form: &Form) -> Result<Option<Asked>> {
        match self.question {
            Question::Nothing => Ok(None),
            Question::Says(says) => Ok(says(form).map(Asked::of)),
            Question::Counts(count) => Ok(Some(count.question(call, form).await?)),
            Question::Activates => {
                let mut asked = Asked::of(OF_ALL_SCHEDULES);
                asked.more = activation::tick(call, form).await?;
                Ok(Some(asked))
            }
        }
    }
}

impl Count {
    async fn question(&self, call: &Call, form: &Form) -> Result<Asked> {
        let route = operation(self.route)?;
        let asked = match self.asks {
            Asks::Body(body) => request(call.clone(), route, form, body)?,
            Asks::Query(query) => Call {
                method: route.method.as_str(),
                query: query(form)?,
                ..call.clone()
            },
        };
        let answer = (route.handler)(asked).await?.value();
        let count = answer[COUNT].as_u64();
        Ok(Asked {
            text: (self.says)(&answer),
            more: html! {
                @if let Some(count) = count { input type="hidden" name=(COUNT) value=(count); }
            },
        })
    }
}

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
    if form.given(CONFIRM).is_none()
        && let Some(asked) = action.question(&call, form).await?
    {
        return Ok(Step::Ask(action, asked));
    }
    let own = prepared(&call, action, form).await?;
    let form = own.as_ref().unwrap_or(form);
    let state = Arc::clone(&call.state);
    let _upload_turn = match action.name {
        ADD_HELLO => Some(upload::hello_turn(&state)?),
        _ => None,
    };
    let (uri, query) = (call.uri.clone(), call.query.encoded());
    let answer = (route.handler)(request(call, route, form, action.body)?).await?;
    let answer = answer.value();
    if action.shows_answer {
        return Ok(Step::Tell(action, answer));
    }
    // The page on which a thing is edited leads back to the thing.
    let page = uri.strip_suffix("/edit").unwrap_or(&uri);
    let done = action.name;
    Ok(Step::Go(match answer["launch"].as_str() {
        Some(launch) => format!("{}?done={done}", path(&["launches", launch])),
        None if done == ADD => {
            let name = answer["name"].as_str().unwrap_or_default();
            format!("{}?done={done}", path(&["schedules", name]))
        }
        None if done == "backfill" => format!("/backfills?done={done}"),
        None if query.is_empty() => format!("{page}?done={done}"),
        None => format!("{page}?{query}&done={done}"),
    }))
}

/// Returns the form that an action reads in place of the one that was sent, if it does.
async fn prepared(call: &Call, action: &Action, form: &Form) -> Result<Option<Form>> {
    let mut own = match action.name {
        ADD => new_schedule::prepared(call, form).await?,
        RUN_WITH => run_with::prepared(call, form).await?,
        ADD_HELLO => Form::of_file(upload::hello(&call.state)?),
        _ => return Ok(None),
    };
    own.set(KEY, form.get(KEY));
    Ok(Some(own))
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
