//! Questions: reads requested by people and programs, with one type each.
//!
//! Fields double as query parameters, tool arguments and command-line options. The command line asks the database or a host, getting
//! the same answer.

use std::future::Future;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bounds::Limit;
use crate::order::{Desk, Endpoint};
use crate::problem::{ErrorCode, Problem};
use campanile_store::Tx;

/// An answer, or a part of one too large to give at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<A> {
    pub answer: A,
    /// Key of the next page, if there may be one.
    pub next: Option<String>,
}

/// The result of asking.
pub type Read<A> = Result<Page<A>, Problem>;

impl<A> From<A> for Page<A> {
    fn from(answer: A) -> Page<A> {
        Page { answer, next: None }
    }
}

impl<R> Page<Vec<R>> {
    /// Returns a page of up to `limit` rows, continuing after the last one if full.
    pub fn of(rows: Vec<R>, limit: i64, key: impl Fn(&R) -> String) -> Page<Vec<R>> {
        let is_full = rows.len() as i64 >= limit;
        Page {
            next: rows.last().filter(|_| is_full).map(key),
            answer: rows,
        }
    }
}

/// A read of the record.
pub trait Question: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    type Answer: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;

    const ENDPOINT: Endpoint;

    /// Reads the answer in `tx`. `of` is the value of the path's parameter.
    fn ask(
        &self,
        of: &str,
        desk: &Desk<'_>,
        tx: &mut Tx,
    ) -> impl Future<Output = Read<Self::Answer>> + Send;

    /// Returns the schedule's revision, for the `ETag`.
    fn revision(_: &Self::Answer) -> Option<i64> {
        None
    }
}

/// A question answered page by page.
pub trait Paged: Question {
    /// Whether a page shorter than asked for means that looking further would take too long.
    const IS_SEARCH: bool = false;

    /// Continues after the entry with this key.
    ///
    /// # Errors
    ///
    /// Returns a sentence for keys of the wrong form.
    fn continue_after(&mut self, key: &str) -> Result<(), String>;

    /// Sets the size of a page, where callers can choose it.
    fn limit_to(&mut self, _: Limit) {}
}

/// Returns a question's fields as query parameters, leaving out those not given. Lists are separated by commas.
///
/// # Errors
///
/// Fails for fields that aren't JSON, a bug.
pub fn parameters(question: &impl Serialize) -> Result<Vec<(String, String)>, Problem> {
    let fields = serde_json::to_value(question);
    let fields = fields.map_err(|error| Problem::new(ErrorCode::Internal, error))?;
    let fields = fields.as_object().into_iter().flatten();
    let parameters = fields.map(|(name, value)| {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        let texts = values.iter().filter_map(|value| match value {
            Value::Null | Value::Bool(false) => None,
            Value::String(text) => Some(text.clone()),
            value => Some(value.to_string()),
        });
        (name.clone(), Vec::from_iter(texts))
    });
    let given = parameters.filter(|(_, texts)| !texts.is_empty());
    Ok(given.map(|(name, texts)| (name, texts.join(","))).collect())
}

/// Implements [`Paged`] for questions with a field `after`, and `limit` unless they're `@parts`.
macro_rules! paged {
    (@parts $($question:ident)*) => {$(
        impl $crate::question::Paged for $question {
            fn continue_after(&mut self, key: &str) -> Result<(), String> {
                self.after = Some(key.parse().map_err(|error| format!("{error}"))?);
                Ok(())
            }
        }
    )*};
    ($($question:ident)*) => { $crate::question::paged!(@lists false, $($question)*); };
    (@searches $($question:ident)*) => { $crate::question::paged!(@lists true, $($question)*); };
    (@lists $is_search:literal, $($question:ident)*) => {$(
        impl $crate::question::Paged for $question {
            const IS_SEARCH: bool = $is_search;

            fn continue_after(&mut self, key: &str) -> Result<(), String> {
                self.after = Some(key.parse().map_err(|error| format!("{error}"))?);
                Ok(())
            }

            fn limit_to(&mut self, limit: $crate::bounds::Limit) {
                self.limit = Some(limit);
            }
        }
    )*};
}

/// Declares questions without fields.
macro_rules! plain {
    ($($(#[$doc:meta])* $question:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $question {}
    )*};
}

pub(crate) use {paged, plain};
