//! The orders, by what they are about.

pub mod alerts;
pub mod backfills;
pub mod hosts;
pub mod messages;
pub mod packages;
pub mod schedules;
pub mod tokens;

use std::fmt::Display;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problem::{ErrorCode, Problem};

/// A request without parts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Reads the id that the path names.
fn id<T: FromStr<Err: Display>>(of: &str) -> Result<T, Problem> {
    of.parse()
        .map_err(|error| Problem::new(ErrorCode::InvalidArgument, error))
}
