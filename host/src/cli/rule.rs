//! A rule of time as the command line says it: the same options wherever one is given.

use clap::Args;

use super::output::Failure;
use crate::clock::Timestamp;
use crate::schedule::{DayMatch, DstFold, DstGap, RuleKind, RuleText};

/// What says a rule besides a cron expression.
#[derive(Args)]
pub(super) struct RuleOptions {
    /// A period: 10s, 15m, 2h, 1d, 1w, 1mo, 1y
    #[arg(long, value_name = "PERIOD")]
    every: Option<String>,
    /// One instant, such as 2026-11-21T08:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// The pause between the end of a launch and the next: 10m
    #[arg(long, value_name = "PERIOD")]
    after_completion: Option<String>,
    /// The instant from which periods are counted
    #[arg(long, value_name = "TIME", requires = "every")]
    anchor: Option<Timestamp>,
    /// The time zone whose clock the rule follows, such as Europe/Paris
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// Which days match when both day fields are restricted: or, and
    #[arg(long, value_name = "WORD", default_value_t, value_parser = DayMatch::read)]
    day_match: DayMatch,
    /// What becomes of a time of day that the clock leaves out: shift, skip
    #[arg(long, value_name = "WORD", default_value_t, value_parser = DstGap::read)]
    dst_gap: DstGap,
    /// In which pass a time of day fires that the clock shows twice: first, second, both
    #[arg(long, value_name = "WORD", default_value_t, value_parser = DstFold::read)]
    dst_fold: DstFold,
    /// Local times left out, such as 2026-12-25, 12-25, 2026-12-24..2027-01-01 or "* 12 * * *"; may be given again
    #[arg(long, value_name = "TIMES")]
    exclude: Vec<String>,
}

impl RuleOptions {
    /// The rule, which is `cron` if that is given.
    pub(super) fn rule(self, cron: Option<String>) -> Result<RuleText, Failure> {
        let rules = [
            (RuleKind::Cron, cron),
            (RuleKind::Every, self.every),
            (RuleKind::At, self.at),
            (RuleKind::AfterCompletion, self.after_completion),
        ];
        let mut rules = rules
            .into_iter()
            .filter_map(|(kind, text)| Some((kind, text?)));
        let (Some((kind, expression)), None) = (rules.next(), rules.next()) else {
            return Err(Failure::refused("exactly one rule is needed"));
        };
        Ok(RuleText {
            anchor: self.anchor,
            day_match: self.day_match,
            dst_gap: self.dst_gap,
            dst_fold: self.dst_fold,
            exclude: self.exclude,
            ..RuleText::new(kind, expression, self.tz)
        })
    }
}
