//! An action of a form, and what an operator confirms before it.

use serde_json::Value;

use super::super::form::Form;
use super::super::section::Section;
use crate::call::Result;
use crate::query::Query;
use campanile_model::json_text::JsonText;

/// An action of a form.
pub(in super::super) struct Action {
    pub(in super::super) name: &'static str,
    pub(super) section: Section,
    /// The operation of the API.
    pub(super) route: &'static str,
    /// What the page says afterwards.
    pub(in super::super) done: &'static str,
    pub(super) body: FormBody,
    pub(super) question: Question,
    /// Whether the page shows the answer, which is nowhere else.
    pub(super) shows_answer: bool,
}

/// Returns the body of a request from a form.
pub(super) type FormBody = fn(&Form) -> Result<JsonText>;

/// The question that an operator confirms before an action is done.
#[derive(Clone, Copy)]
pub(super) enum Question {
    /// Nothing: the action touches one thing.
    Nothing,
    /// What the function returns, if it returns a sentence.
    Says(fn(&Form) -> Option<&'static str>),
    /// What an operation of the API says about the same form.
    Counts(Count),
    /// That every schedule of the package launches with the version, and a tick if it asks for what isn't granted.
    Activates,
}

/// An operation of the API that says beforehand what an action would do.
#[derive(Clone, Copy)]
pub(super) struct Count {
    pub(super) route: &'static str,
    pub(super) asks: Asks,
    /// Returns the question, from the answer of the operation.
    pub(super) says: fn(&Value) -> String,
}

/// How an operation is asked about a form.
#[derive(Clone, Copy)]
pub(super) enum Asks {
    Body(FormBody),
    Query(fn(&Form) -> Result<Query>),
}

pub(super) const fn action(
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
        shows_answer: false,
    }
}

pub(super) const fn asked(action: Action, question: fn(&Form) -> Option<&'static str>) -> Action {
    Action {
        question: Question::Says(question),
        ..action
    }
}

pub(super) const fn counted_first(action: Action, count: Count) -> Action {
    Action {
        question: Question::Counts(count),
        ..action
    }
}

pub(super) const fn activating(action: Action) -> Action {
    Action {
        question: Question::Activates,
        ..action
    }
}
