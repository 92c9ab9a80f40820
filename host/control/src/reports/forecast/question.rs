//! Asking for a forecast.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ForecastRequest, Outage, OutageText};
use crate::bounds::Number;
use crate::problem::{ErrorCode, Problem};
use campanile_model::clock::Timestamp;
use campanile_model::time_text::GivenTime;

const DAY: Duration = Duration::from_hours(24);
/// Maximum distance of a forecast's end.
const AHEAD_MAX: Duration = Duration::from_hours(366 * 24);
/// Maximum number of decisions asked for.
const DECISIONS_MAX: i64 = 10_000;

/// A forecast to make.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct GetPlan {
    /// The start of the forecast [default: now]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub from: Option<GivenTime>,
    /// The end of the forecast [default: one day later, or one day after the last outage]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub to: Option<GivenTime>,
    /// Show only this schedule; the others are simulated too
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub schedule: Option<String>,
    /// Simulate an outage of all hosts between two times; can be repeated
    #[cfg_attr(feature = "clap", arg(long, value_name = "FROM..TO"))]
    #[serde(default)]
    pub outage: Vec<OutageText>,
    /// Maximum number of decisions, 10000 unless given. `cut_at` says where the forecast stopped
    #[cfg_attr(feature = "clap", arg(skip))]
    pub decisions: Option<Number<1, DECISIONS_MAX>>,
}

impl GetPlan {
    /// Checks the times, choosing those left out.
    ///
    /// # Errors
    ///
    /// Fails for times in the past, an end before the start or more than a year away, and outages outside the forecast.
    pub fn request(&self, now: Timestamp) -> Result<ForecastRequest, Problem> {
        let refused = |message: String, hint: &str| {
            Err(Problem::new(ErrorCode::InvalidArgument, message).hint(hint))
        };
        let outages = Vec::from_iter(self.outage.iter().map(|outage| outage.0));
        let from = self.from.map_or(now, |from| from.0);
        let back_at = outages.iter().map(|outage| outage.to).max();
        let default = || from.max(back_at.unwrap_or(from)).plus(DAY);
        let to = self.to.map_or_else(default, |to| to.0);
        if from < now {
            return refused(
                format!("`from`: {from} is in the past"),
                "leave it out to start now; the list of launches shows past decisions",
            );
        }
        if to <= from {
            return refused(
                format!("`to`: {to} is not after {from}"),
                "give a later time, or leave it out for a day",
            );
        }
        let decisions = self
            .decisions
            .map_or(DECISIONS_MAX, |decisions| decisions.0);
        let last = now.plus(AHEAD_MAX);
        if to > last {
            return refused(
                format!("`to`: {to} is more than a year ahead"),
                &format!("give a time before {last}"),
            );
        }
        if let Some(outage) = outages.iter().find(|outage| outage.to <= now) {
            return refused(
                format!("`outage`: it ends at {}, which is in the past", outage.to),
                "give one that ends later; the list of launches shows past decisions",
            );
        }
        let is_outside = |outage: &&Outage| outage.to < from || outage.to >= to;
        if let Some(outage) = outages.iter().find(is_outside) {
            return refused(
                format!(
                    "`outage`: it ends at {}, but the forecast is from {from} to {to}",
                    outage.to
                ),
                "give one that ends within the forecast",
            );
        }
        Ok(ForecastRequest {
            from,
            to,
            outages,
            rows_max: usize::try_from(decisions).unwrap_or(usize::MAX),
        })
    }
}
