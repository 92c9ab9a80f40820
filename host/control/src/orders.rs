//! All orders, grouped by subject.

pub mod alerts;
pub mod backfills;
pub mod bulk;
pub mod bulk_launches;
pub mod definition;
pub mod files;
pub mod hosts;
pub mod launches;
pub mod messages;
pub mod packages;
pub mod schedules;
pub mod tokens;

use std::fmt::Display;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::{ErrorCode, Problem};

/// An empty request body.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Parses the id given in the path.
pub(crate) fn id<T: FromStr<Err: Display>>(of: &str) -> Result<T, Problem> {
    of.parse()
        .map_err(|error| Problem::new(ErrorCode::InvalidArgument, error))
}
